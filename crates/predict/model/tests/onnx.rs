//! ONNX files, run by ONNX Runtime. Skipped, with a message, where it is not installed.

mod common;
mod onnxruntime;

use apex_model::forecast::{Feature, FeatureSet, Model};
use apex_model::network::{Activation, Network, Target};
use apex_model::onnx::to_onnx;
use apex_model::{InstructionSet, Matrix, Precision, Predictor, Scratch};
use apex_random::Random;
use common::{distance, features, network};
use onnxruntime::OnnxRuntime;

/// The greatest distance between what we predict and what ONNX Runtime does, over some random rows,
/// `at_once` of which it gets at once.
fn apart(
    runtime: &OnnxRuntime,
    network: &Network,
    precision: Precision,
    set: InstructionSet,
    at_once: usize,
) -> f64 {
    let onnx = to_onnx(network, precision, &[("made by", "a test"), ("ümlaut", "§")]);
    let mut session = runtime.session(&onnx, at_once, network.inputs(), network.outputs());
    let mut random = Random::new(3);
    let predictor = Predictor::with_instructions(network, precision, set).unwrap();
    let (mut scratch, mut ours) = (Scratch::new(), vec![0.0; network.outputs()]);
    let mut greatest = 0.0f64;
    for _ in 0..12 / at_once {
        let rows: Vec<f32> = (0..at_once).flat_map(|_| features(network, &mut random)).collect();
        let theirs = session.run(&rows);
        for (row, theirs) in rows.chunks(network.inputs()).zip(theirs.chunks(network.outputs())) {
            predictor.predict(row, &mut scratch, &mut ours).unwrap();
            let theirs: Vec<f64> = theirs.iter().map(|&value| f64::from(value)).collect();
            greatest = greatest.max(distance(network, &ours, &theirs));
        }
    }
    greatest
}

#[test]
fn onnx_runtime_agrees_in_single_precision() {
    let Some(runtime) = OnnxRuntime::load("ONNX in single precision") else { return };
    for activation in [Activation::Relu, Activation::Silu, Activation::Gelu] {
        for (inputs, hidden, outputs) in [
            (8, vec![16, 8], 4),
            (3, vec![], 2),
            (60, vec![130, 70, 50], 9),
            (8, vec![256, 512, 512, 256], 4),
        ] {
            let network = network(inputs, &hidden, outputs, activation, 40 + inputs as u64);
            for set in InstructionSet::available() {
                let apart = apart(&runtime, &network, Precision::F32, set, 4);
                assert!(apart < 1e-5, "{activation:?} {inputs} {hidden:?} {set:?}: {apart:e}");
            }
        }
    }
}

/// The metadata hold the parts of a model for which ONNX has no place: a reader of the file finds
/// the meaning of every column.
#[test]
fn a_model_says_what_its_columns_are() {
    let targets = vec![Target::fraction("occupancy").with_quantiles(&[0.25]), Target::real("log time")];
    let network = Network::new(2, &[3], Activation::Relu, targets, 1).unwrap();
    let features = FeatureSet::seen("launch", 7, &["threads", "registers"], &Matrix::zeros(1, 2)).unwrap();
    let notes = vec![("data".to_owned(), "made up".to_owned())];
    let onnx = Model::new(features, network, vec![None, None], notes).unwrap().to_onnx(Precision::F32);
    for (name, value) in [
        ("feature set", "launch"),
        ("feature set version", "7"),
        ("features", "threads\nregisters"),
        ("outputs", "occupancy\noccupancy, quantile 0.25\nlog time"),
        ("data", "made up"),
    ] {
        // A `StringStringEntryProto`: both fields with their key and length.
        let [key, text] = [name, value].map(|text| [&[text.len() as u8], text.as_bytes()].concat());
        let entry = [&[0x0a], key.as_slice(), &[0x12], text.as_slice()].concat();
        assert!(onnx.windows(entry.len()).any(|bytes| bytes == entry), "{name}");
    }
    let Some(runtime) = OnnxRuntime::load("a model's ONNX") else { return };
    assert_eq!(runtime.session(&onnx, 1, 2, 3).run(&[0.5, -0.5]).len(), 3);
}

/// In 8 bits a rounding error in an early layer may move a later input by one of 255 steps, which
/// is what the bound allows for; without such a step the two agree as in single precision.
#[test]
fn onnx_runtime_agrees_in_eight_bits() {
    let Some(runtime) = OnnxRuntime::load("ONNX in 8 bits") else { return };
    let mut close = 0;
    for activation in [Activation::Relu, Activation::Silu, Activation::Gelu] {
        for seed in 0..4 {
            let network = network(20, &[130, 70, 50], 9, activation, seed);
            let apart = apart(&runtime, &network, Precision::Int8, InstructionSet::best(), 1);
            assert!(apart < 5e-3, "{activation:?}: {apart:e}");
            close += u32::from(apart < 1e-5);
        }
    }
    assert!(close >= 3, "{close} of 12 networks agree as in single precision");
}

/// The models that APEX ships, on random features within what they were trained on.
#[test]
fn onnx_runtime_agrees_on_the_shipped_models() {
    let Some(runtime) = OnnxRuntime::load("the shipped models' ONNX") else { return };
    for name in ["small", "large", "what-if"] {
        let shipped = test_manifest::content(&format!("crates/predict/predict/models/{name}.apexmodel.zst"));
        let model = Model::from_bytes(&shipped).unwrap();
        let network = model.network();
        let mut session =
            runtime.session(&model.to_onnx(Precision::F32), 1, network.inputs(), network.outputs());
        let predictor = Predictor::new(network, Precision::F32);
        let (mut scratch, mut ours) = (Scratch::new(), vec![0.0; network.outputs()]);
        let mut random = Random::new(9);
        for _ in 0..50 {
            let within = |feature: &Feature| {
                feature.least + random.uniform() as f32 * (feature.greatest - feature.least)
            };
            let row: Vec<f32> = model.features().features.iter().map(within).collect();
            predictor.predict(&row, &mut scratch, &mut ours).unwrap();
            let theirs: Vec<f64> = session.run(&row).iter().map(|&value| f64::from(value)).collect();
            let apart = distance(network, &ours, &theirs);
            assert!(apart < 1e-4, "{name}: {apart:e}");
        }
    }
}
