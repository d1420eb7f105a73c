//! Networks as ONNX files, which other programs can run.
//!
//! The graph has one input, `features` (rows of raw features, any number of them), and one output,
//! `outputs` (rows of raw values, as [`crate::network`] states). It uses operators of operator set
//! [`OPERATOR_SET`] alone. In 8 bits the hidden layers but the first are DynamicQuantizeLinear and
//! MatMulInteger, with the very bytes that [`crate::Predictor`] multiplies; as the former chooses
//! one step for all rows that it gets, rows must go in one by one to give what the predictor gives.
//!
//! Field numbers and element types are those of `onnx.proto`.

use crate::forecast::Model;
use crate::math::{GELU_CUBIC, GELU_FACTOR};
use crate::network::{Activation, Layer, Network, Range};
use crate::predict::{Precision, QuantisedRow};
use apex_protobuf::Message;

/// Version of the operators.
pub const OPERATOR_SET: u64 = 17;

/// Version of the file format.
const IR: u64 = 8;

/// `TensorProto.DataType`.
#[derive(Clone, Copy)]
enum Element {
    Float = 1,
    Int8 = 3,
    Bool = 9,
}

/// The bytes of an ONNX file. `about` goes into its metadata: names and values.
pub fn to_onnx(network: &Network, precision: Precision, about: &[(&str, &str)]) -> Vec<u8> {
    let mut graph = Graph::default();
    let scaling = network.input_scaling();
    let factors: Vec<f32> = scaling.scale.iter().map(|scale| 1.0 / scale).collect();
    let mean = graph.floats("mean", &[network.inputs()], &scaling.mean);
    let factor = graph.floats("factor", &[network.inputs()], &factors);
    let centred = graph.node("Sub", &["features", &mean]);
    let mut values = graph.node("Mul", &[&centred, &factor]);
    for (index, layer) in network.layers().iter().enumerate() {
        let sums = match precision.quantises(index, network.layers().len()) {
            true => graph.quantised(index, layer, &values),
            false => graph.dense(index, layer, &values),
        };
        let last = index + 1 == network.layers().len();
        values = if last { sums } else { graph.activation(network.activation(), &sums) };
    }
    graph.outputs(network, &values);
    let mut onnx = Message::new();
    onnx.integer(1, IR)
        .text(2, "apex")
        .message(7, &graph.finish(network))
        .message(8, Message::new().text(1, "").integer(2, OPERATOR_SET));
    for (name, value) in about {
        onnx.message(14, Message::new().text(1, name).text(2, value));
    }
    onnx.as_bytes().to_vec()
}

impl Model {
    /// The bytes of an ONNX file. Its metadata name the feature set, its features and what each
    /// output is (a line for each), and hold the notes. Intervals are not part of it.
    pub fn to_onnx(&self, precision: Precision) -> Vec<u8> {
        let (set, network) = (self.features(), self.network());
        let names: Vec<&str> = set.features.iter().map(|feature| feature.name.as_str()).collect();
        let output = |(target, level): (usize, Option<f32>)| match level {
            None => network.targets()[target].name.clone(),
            Some(level) => format!("{}, quantile {level}", network.targets()[target].name),
        };
        let outputs: Vec<String> = network.output_roles().map(output).collect();
        let (version, names, outputs) = (set.version.to_string(), names.join("\n"), outputs.join("\n"));
        let mut about = vec![
            ("feature set", set.name.as_str()),
            ("feature set version", &version),
            ("features", &names),
            ("outputs", &outputs),
        ];
        about.extend(self.notes().iter().map(|(name, value)| (name.as_str(), value.as_str())));
        to_onnx(network, precision, &about)
    }
}

/// Nodes and constants so far. Values are known by name.
#[derive(Default)]
struct Graph {
    message: Message,
    nodes: usize,
}

impl Graph {
    /// A node with one output, whose name it gives.
    fn node(&mut self, operator: &str, inputs: &[&str]) -> String {
        let output = format!("value{}", self.nodes);
        self.add(operator, inputs, &[&output], &[]);
        output
    }

    /// A node; attributes are integers.
    fn add(&mut self, operator: &str, inputs: &[&str], outputs: &[&str], attributes: &[(&str, u64)]) {
        /// `AttributeProto.AttributeType.INT`.
        const INT: u64 = 2;
        let mut node = Message::new();
        for input in inputs {
            node.text(1, input);
        }
        for output in outputs {
            node.text(2, output);
        }
        node.text(3, &format!("node{}", self.nodes)).text(4, operator);
        for (name, value) in attributes {
            node.message(5, Message::new().text(1, name).integer(3, *value).integer(20, INT));
        }
        self.message.message(1, &node);
        self.nodes += 1;
    }

    fn tensor(&mut self, name: &str, shape: &[usize], element: Element, bytes: &[u8]) -> String {
        let mut tensor = Message::new();
        for &length in shape {
            tensor.integer(1, length as u64);
        }
        tensor.integer(2, element as u64).text(8, name).bytes(9, bytes);
        self.message.message(5, &tensor);
        name.to_owned()
    }

    fn floats(&mut self, name: &str, shape: &[usize], values: &[f32]) -> String {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.tensor(name, shape, Element::Float, &bytes)
    }

    fn number(&mut self, name: &str, value: f32) -> String {
        self.floats(name, &[], &[value])
    }

    fn dense(&mut self, index: usize, layer: &Layer, values: &str) -> String {
        let weights = self.floats(&format!("weights{index}"), &[layer.outputs, layer.inputs], &layer.weights);
        let bias = self.floats(&format!("bias{index}"), &[layer.outputs], &layer.bias);
        let output = format!("sums{index}");
        self.add("Gemm", &[values, &weights, &bias], &[&output], &[("transB", 1)]);
        output
    }

    fn quantised(&mut self, index: usize, layer: &Layer, values: &str) -> String {
        /// `TensorProto.DataType.FLOAT`, as an attribute of Cast.
        const TO_FLOAT: u64 = Element::Float as u64;
        let rows: Vec<QuantisedRow> = layer.weights.chunks(layer.inputs).map(QuantisedRow::new).collect();
        let column = |input: usize| rows.iter().map(move |row| row.weights[input].cast_unsigned());
        let bytes: Vec<u8> = (0..layer.inputs).flat_map(column).collect();
        let scales: Vec<f32> = rows.iter().map(|row| row.scale).collect();
        let weights =
            self.tensor(&format!("weights{index}"), &[layer.inputs, layer.outputs], Element::Int8, &bytes);
        let scales = self.floats(&format!("scales{index}"), &[layer.outputs], &scales);
        let bias = self.floats(&format!("bias{index}"), &[layer.outputs], &layer.bias);
        let [bytes, step, zero] = ["bytes", "step", "zero"].map(|name| format!("{name}{index}"));
        self.add("DynamicQuantizeLinear", &[values], &[&bytes, &step, &zero], &[]);
        let exact = self.node("MatMulInteger", &[&bytes, &weights, &zero]);
        let cast = format!("exact{index}");
        self.add("Cast", &[&exact], &[&cast], &[("to", TO_FLOAT)]);
        let scale = self.node("Mul", &[&step, &scales]);
        let products = self.node("Mul", &[&cast, &scale]);
        self.node("Add", &[&products, &bias])
    }

    fn activation(&mut self, activation: Activation, sums: &str) -> String {
        match activation {
            Activation::Relu => self.node("Relu", &[sums]),
            Activation::Silu => {
                let logistic = self.node("Sigmoid", &[sums]);
                self.node("Mul", &[sums, &logistic])
            }
            Activation::Gelu => {
                let nodes = self.nodes;
                let cubic = self.number(&format!("cubic{nodes}"), GELU_CUBIC);
                let factor = self.number(&format!("factor{nodes}"), GELU_FACTOR);
                let square = self.node("Mul", &[sums, sums]);
                let cube = self.node("Mul", &[&square, sums]);
                let cube = self.node("Mul", &[&cube, &cubic]);
                let inner = self.node("Add", &[sums, &cube]);
                let inner = self.node("Mul", &[&inner, &factor]);
                let logistic = self.node("Sigmoid", &[&inner]);
                self.node("Mul", &[sums, &logistic])
            }
        }
    }

    /// `outputs` from the last layer's sums: both readings of every sum, and for each the one that
    /// holds.
    fn outputs(&mut self, network: &Network, sums: &str) {
        let shape = [network.outputs()];
        let (scaling, roles) =
            (network.output_scaling(), || network.output_roles().map(|(target, _)| target));
        let fraction = |target: usize| u8::from(network.targets()[target].range == Range::Fraction);
        let fractions: Vec<u8> = roles().map(fraction).collect();
        let scale: Vec<f32> = roles().map(|target| scaling.scale[target]).collect();
        let mean: Vec<f32> = roles().map(|target| scaling.mean[target]).collect();
        let fractions = self.tensor("fractions", &shape, Element::Bool, &fractions);
        let scale = self.floats("output_scale", &shape, &scale);
        let mean = self.floats("output_mean", &shape, &mean);
        let scaled = self.node("Mul", &[sums, &scale]);
        let number = self.node("Add", &[&scaled, &mean]);
        let logistic = self.node("Sigmoid", &[sums]);
        self.add("Where", &[&fractions, &logistic, &number], &["outputs"], &[]);
    }

    fn finish(mut self, network: &Network) -> Message {
        self.message.text(2, "network");
        self.message.message(11, &rows("features", network.inputs()));
        self.message.message(12, &rows("outputs", network.outputs()));
        self.message
    }
}

/// `ValueInfoProto` of any number of rows of numbers.
fn rows(name: &str, width: usize) -> Message {
    let mut shape = Message::new();
    shape.message(1, Message::new().text(2, "rows")).message(1, Message::new().integer(1, width as u64));
    let mut tensor = Message::new();
    tensor.integer(1, Element::Float as u64).message(2, &shape);
    let mut value = Message::new();
    value.text(1, name).message(2, Message::new().message(1, &tensor));
    value
}
