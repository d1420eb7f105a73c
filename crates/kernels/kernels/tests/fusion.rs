//! Generated kernels against the reference in f64, on the device that there is: the CPU device in
//! CI. Random graphs over random shapes, the set forms, plans as they are printed, errors.

mod common;
mod fusion_columns;

use apex_gpu::Device;
use apex_kernels::Error;
use apex_kernels::fusion::{
    ElementType, Fused, Graph, Options, Plan, Target, Tensor, Tuning, Value, View, forms, reference, target,
};
use common::{Number, distance, random, wide};
use half::{bf16, f16};
use proptest::prelude::*;

/// A tensor on the device and its numbers, as they are there.
fn upload(device: &Device, element: ElementType, numbers: &[f64]) -> (Tensor, Vec<f64>) {
    let tensor: Tensor = match element {
        ElementType::Bf16 => device.upload(&convert(numbers, bf16::from_f64)).unwrap().into(),
        ElementType::F16 => device.upload(&convert(numbers, f16::from_f64)).unwrap().into(),
        ElementType::F32 => device.upload(&convert(numbers, |x| x as f32)).unwrap().into(),
        ElementType::U32 => device.upload(&convert(numbers, |x| x as u32)).unwrap().into(),
    };
    let rounded = tensor.to_f64().unwrap();
    (tensor, rounded)
}

fn convert<T>(numbers: &[f64], to: impl Fn(f64) -> T) -> Vec<T> {
    numbers.iter().map(|&number| to(number)).collect()
}

/// Largest relative error of a result in such elements.
fn tolerance(element: ElementType) -> f64 {
    match element {
        ElementType::U32 => 0.0,
        ElementType::F32 => 1e-5,
        ElementType::F16 => <f16 as Number>::TOLERANCE,
        ElementType::Bf16 => <bf16 as Number>::TOLERANCE,
    }
}

/// Numbers that are as likely to be found in a tensor as any.
fn numbers(seed: u64, len: usize, size: f64) -> Vec<f64> {
    wide(&random::<bf16>(seed, len, size))
}

/// Outputs of a graph whose inputs are such, as computed and as they should be, and the plan.
fn computed(
    graph: &Graph,
    inputs: &[(ElementType, Vec<f64>)],
    options: &Options,
) -> (Vec<Tensor>, Vec<Vec<f64>>, String) {
    let device = Device::open(0).unwrap();
    let fused = Fused::with(&device, graph, options).unwrap();
    verify(fused.plan());
    let (tensors, rounded): (Vec<_>, Vec<_>) =
        inputs.iter().map(|(element, numbers)| upload(&device, *element, numbers)).unzip();
    let views: Vec<View<'_>> = tensors.iter().map(View::from).collect();
    let expected = reference::evaluate(graph, &rounded).unwrap();
    // Outputs hold anything but results before.
    let mut found: Vec<Tensor> = fused.run(&views).unwrap();
    for tensor in &mut found {
        match tensor {
            Tensor::U32(buffer) => buffer.write(&vec![7; buffer.len()]).unwrap(),
            Tensor::Bf16(buffer) => buffer.write(&vec![<bf16 as Number>::NAN; buffer.len()]).unwrap(),
            Tensor::F16(buffer) => buffer.write(&vec![<f16 as Number>::NAN; buffer.len()]).unwrap(),
            Tensor::F32(buffer) => buffer.write(&vec![f32::NAN; buffer.len()]).unwrap(),
        }
    }
    fused.run_into(&views, &mut found, device.stream()).unwrap();
    (found, expected, fused.plan().to_string())
}

/// Computes a graph and compares every output.
fn check(graph: &Graph, inputs: &[(ElementType, Vec<f64>)], options: &Options) {
    let (found, expected, plan) = computed(graph, inputs, options);
    for (found, expected) in found.iter().zip(&expected) {
        compare(found, expected, &plan);
    }
}

fn compare(found: &Tensor, expected: &[f64], plan: &str) {
    let (element, found) = (found.element(), found.to_f64().unwrap());
    check_special(&found, expected, plan);
    let is_finite = |(_, expected): &(&f64, &f64)| expected.is_finite();
    let (finite, wanted): (Vec<f64>, Vec<f64>) = found.iter().zip(expected).filter(is_finite).unzip();
    let off = distance(finite.into_iter(), &wanted);
    assert!(off <= tolerance(element), "relative error {off}\n{plan}");
}

/// NaN and infinities are where they should be, and nowhere else.
fn check_special(found: &[f64], expected: &[f64], plan: &str) {
    assert_eq!(found.len(), expected.len());
    for (place, (found, expected)) in found.iter().zip(expected).enumerate() {
        let is_same = match expected.is_finite() {
            true => found.is_finite(),
            false => found == expected || found.is_nan() && expected.is_nan(),
        };
        assert!(is_same, "element {place} is {found}, not {expected}\n{plan}");
    }
}

/// Every kernel of a plan is correct PTX.
fn verify(plan: &Plan) {
    for kernel in plan.kernels() {
        let source = kernel.ptx();
        let module =
            ptx::parse(source).unwrap_or_else(|error| panic!("{}", error.render("generated", source)));
        let problems = ptx::verify(&module);
        let problems: Vec<String> =
            problems.iter().map(|problem| problem.render("generated", source)).collect();
        assert!(problems.is_empty(), "{}\n{plan}", problems.join("\n"));
    }
}

fn fused() -> Options {
    Options::default()
}

fn apart() -> Options {
    Options { fuse: false, ..Options::default() }
}

const TYPES: [ElementType; 3] = [ElementType::Bf16, ElementType::F16, ElementType::F32];

/// Inputs of a set form: random, by the shapes that the graph gives them.
fn inputs(element: ElementType, lengths: &[usize], size: f64) -> Vec<(ElementType, Vec<f64>)> {
    let of = |(seed, &len): (usize, &usize)| (element, numbers(seed as u64 + 1, len, size));
    lengths.iter().enumerate().map(of).collect()
}

/// Rows and lengths: one, odd, vectors and not, more than a warp has, none.
const SIZES: [(usize, usize); 14] = [
    (3, 1),
    (5, 7),
    (1, 8),
    (9, 33),
    (4, 64),
    (6, 100),
    (2, 1000),
    (3, 1024),
    (2, 1032),
    (2, 2049),
    (1, 4096),
    (0, 64),
    (2, 5000),
    (2, 9216),
];

#[test]
fn residual_relu_layer_norm_of_any_size() {
    for (rows, length) in SIZES {
        for element in TYPES {
            let graph = forms::residual_relu_layer_norm(element, rows, length, 1e-5).unwrap();
            let size = rows * length;
            check(&graph, &inputs(element, &[size, size, length, length], 2.0), &fused());
        }
    }
}

#[test]
fn softmax_of_any_size_and_of_numbers_that_overflow() {
    for (rows, length) in SIZES {
        for element in TYPES {
            let graph = forms::softmax(element, rows, length).unwrap();
            for size in [3.0, 3e4] {
                check(&graph, &inputs(element, &[rows * length], size), &fused());
            }
        }
    }
}

#[test]
fn rms_norm_of_any_size() {
    for (rows, length) in SIZES {
        let graph = forms::rms_norm(ElementType::Bf16, rows, length, 1e-6).unwrap();
        check(&graph, &inputs(ElementType::Bf16, &[rows * length, length], 2.0), &fused());
    }
}

#[test]
fn bias_gelu_of_any_size() {
    for (rows, length) in SIZES {
        for element in TYPES {
            let graph = forms::bias_gelu(element, rows, length).unwrap();
            check(&graph, &inputs(element, &[rows * length, length], 4.0), &fused());
        }
    }
}

#[test]
fn rotary_embeddings_of_any_size() {
    for shape in [[1, 1, 1, 2], [2, 3, 4, 64], [1, 5, 3, 128], [2, 7, 5, 6], [0, 2, 2, 8]] {
        let [batch, length, heads, dim] = shape;
        let graph = forms::rotary(ElementType::Bf16, shape).unwrap();
        let lengths = [batch * length * heads * dim, length * dim, length * dim];
        check(&graph, &inputs(ElementType::Bf16, &lengths, 2.0), &fused());
        check(&graph, &inputs(ElementType::Bf16, &lengths, 2.0), &apart());
    }
}

#[test]
fn masked_softmax_of_any_size() {
    for [heads, rows, length] in [[1, 1, 1], [2, 5, 5], [3, 7, 20], [1, 4, 1300], [2, 3, 64], [1, 2, 9000]] {
        let graph = forms::scale_mask_softmax(ElementType::Bf16, [heads, rows, length], 0.125).unwrap();
        check(&graph, &inputs(ElementType::Bf16, &[heads * rows * length], 30.0), &fused());
    }
}

#[test]
fn gates_of_any_size() {
    for (tokens, experts, k) in
        [(1, 2, 1), (7, 8, 2), (50, 64, 4), (33, 60, 7), (9, 1000, 32), (0, 8, 2), (5, 3, 3)]
    {
        let graph = forms::gate(ElementType::F32, tokens, experts, k).unwrap();
        // Logits that differ, so that rounding does not decide between them.
        let logits =
            (0..tokens * experts).map(|place| ((place * 7919) % 4001) as f64 / 400.0 - 5.0).collect();
        check(&graph, &[(ElementType::F32, logits)], &fused());
    }
}

#[test]
fn choices_among_equals_nan_and_infinities() {
    let mut graph = Graph::new();
    let x = graph.input("x", ElementType::F32, &[5, 6]).unwrap();
    let (values, indices) = graph.top_k(x, 4).unwrap();
    graph.output("values", values, ElementType::F32).unwrap();
    graph.output("indices", indices, ElementType::U32).unwrap();
    let (nan, low, high) = (f64::NAN, f64::NEG_INFINITY, f64::INFINITY);
    let rows = [
        [1.0; 6],
        [0.0, 2.0, -0.0, 2.0, 1.0, 2.0],
        [nan, low, nan, 5.0, low, nan],
        [nan; 6],
        [low, -3.0, high, -3.0, 0.5, low],
    ];
    check(&graph, &[(ElementType::F32, rows.concat())], &fused());
}

#[test]
fn a_histogram_ignores_what_is_no_bin() {
    let mut graph = Graph::new();
    let x = graph.input("x", ElementType::U32, &[3, 5]).unwrap();
    let counts = graph.histogram(x, 4).unwrap();
    graph.output("counts", counts, ElementType::U32).unwrap();
    let indices = [0, 1, 2, 3, 4, 5, 3, 3, 1, 100_000, 4_294_967_295, 0, 2, 2, 2];
    check(&graph, &[(ElementType::U32, indices.into_iter().map(|x: u32| f64::from(x)).collect())], &fused());
}

#[test]
fn nan_and_infinities_go_through() {
    let graph = forms::softmax(ElementType::F32, 4, 3).unwrap();
    let (nan, low, high) = (f64::NAN, f64::NEG_INFINITY, f64::INFINITY);
    let rows = [[1.0, nan, 2.0], [low, 0.0, 0.0], [low; 3], [high, 1.0, 2.0]];
    check(&graph, &[(ElementType::F32, rows.concat())], &fused());
    let mut graph = Graph::new();
    let x = graph.input("x", ElementType::F32, &[2, 3]).unwrap();
    let (most, positive) = (graph.row_max(x).unwrap(), graph.relu(x).unwrap());
    let power = graph.exp(x).unwrap();
    let tanh = graph.tanh(x).unwrap();
    for (name, value) in [("most", most), ("positive", positive), ("power", power), ("tanh", tanh)] {
        graph.output(name, value, ElementType::F32).unwrap();
    }
    check(&graph, &[(ElementType::F32, vec![low, high, 3.0, 1.0, nan, -200.0])], &fused());
}

#[test]
fn functions_are_exact_to_f32() {
    let mut graph = Graph::new();
    let length = 4001;
    let x = graph.input("x", ElementType::F32, &[length]).unwrap();
    let one = graph.constant(1.0);
    let size = graph.abs(x).unwrap();
    let positive = graph.add(size, one).unwrap();
    for (name, value) in [
        ("exp", graph.exp(x).unwrap()),
        ("ln", graph.ln(positive).unwrap()),
        ("sqrt", graph.sqrt(positive).unwrap()),
        ("rsqrt", graph.rsqrt(positive).unwrap()),
        ("recip", graph.recip(positive).unwrap()),
        ("tanh", graph.tanh(x).unwrap()),
        ("sigmoid", graph.sigmoid(x).unwrap()),
        ("silu", graph.silu(x).unwrap()),
        ("gelu", graph.gelu(x).unwrap()),
    ] {
        graph.output(name, value, ElementType::F32).unwrap();
    }
    let device = Device::open(0).unwrap();
    let fused = Fused::new(&device, &graph).unwrap();
    let numbers: Vec<f64> = (0..length).map(|place| (place as f64 - 2000.0) / 400.0).collect();
    let (tensor, rounded) = upload(&device, ElementType::F32, &numbers);
    let found = fused.run(&[(&tensor).into()]).unwrap();
    let expected = reference::evaluate(&graph, std::slice::from_ref(&rounded)).unwrap();
    for (which, (found, expected)) in found.iter().zip(&expected).enumerate() {
        for ((found, expected), x) in found.to_f64().unwrap().iter().zip(expected).zip(&rounded) {
            // GELU's tail and the logarithm near 1 lose relative digits, not absolute ones.
            let off = (found - expected).abs() / expected.abs().max(if which == 1 { 1.0 } else { 1e-2 });
            assert!(off < 1e-6, "function {which} of {x}: {found}, not {expected}");
        }
    }
}

/// Every way to go through rows, for a form with three passes.
#[test]
fn every_schedule_computes_the_same() {
    let ways = [
        Tuning { threads: Some(32), ..Tuning::default() },
        Tuning { threads: Some(1), ..Tuning::default() },
        Tuning { threads: Some(4), persistent: Some(1), ..Tuning::default() },
        Tuning { threads: Some(64), persistent: Some(1), ..Tuning::default() },
        Tuning { threads: Some(96), vector: Some(2), ..Tuning::default() },
        Tuning { threads: Some(1024), vector: Some(1), ..Tuning::default() },
        Tuning { streaming: Some(false), resident: Some(2), chunks: Some(3), ..Tuning::default() },
    ];
    let target = Target { multiprocessors: 1, ..Target::default() };
    for tuning in ways {
        for (rows, length) in [(7, 104), (5, 333), (301, 16)] {
            let options = Options { target, tuning, ..Options::default() };
            let graph = forms::residual_relu_layer_norm(ElementType::Bf16, rows, length, 1e-5).unwrap();
            let lengths = [rows * length, rows * length, length, length];
            check(&graph, &inputs(ElementType::Bf16, &lengths, 2.0), &options);
            let graph = forms::rms_norm(ElementType::Bf16, rows, length, 1e-6).unwrap();
            check(&graph, &inputs(ElementType::Bf16, &[rows * length, length], 2.0), &options);
            let graph = forms::bias_gelu(ElementType::Bf16, rows, length).unwrap();
            check(&graph, &inputs(ElementType::Bf16, &[rows * length, length], 2.0), &options);
        }
    }
}

/// Rows that do not fit into registers, then not into shared memory.
#[test]
fn rows_of_any_length() {
    let lengths = [
        (ElementType::F32, 16_384, "in shared memory"),
        (ElementType::F32, 70_001, "read again in each pass"),
    ];
    for (element, length, held) in lengths {
        let graph = forms::residual_relu_layer_norm(element, 2, length, 1e-5).unwrap();
        let options = Options { target: Target { shared: 163 << 10, ..Target::default() }, ..fused() };
        let plan = Plan::new(&graph, &options).unwrap().to_string();
        assert!(plan.contains(held), "{plan}");
        check(&graph, &inputs(element, &[2 * length, 2 * length, length, length], 2.0), &options);
        let graph = forms::softmax(element, 1, length).unwrap();
        check(&graph, &inputs(element, &[length], 20.0), &options);
    }
}

#[test]
fn inputs_that_are_not_aligned() {
    let device = Device::open(0).unwrap();
    for element in TYPES {
        let graph = forms::rms_norm(element, 4, 64, 1e-6).unwrap();
        let fused = Fused::new(&device, &graph).unwrap();
        for offset in [0, 1, 2, 4, 8] {
            let given = numbers(3, 4 * 64 + offset, 2.0);
            let (x, rounded) = upload(&device, element, &given);
            let (weight, weights) = upload(&device, element, &numbers(4, 64, 2.0));
            let part = match &x {
                Tensor::Bf16(buffer) => View::from(buffer.slice(offset..)),
                Tensor::F16(buffer) => View::from(buffer.slice(offset..)),
                Tensor::F32(buffer) => View::from(buffer.slice(offset..)),
                Tensor::U32(_) => unreachable!("no indices"),
            };
            let found = fused.run(&[part, (&weight).into()]).unwrap();
            let expected = reference::evaluate(&graph, &[rounded[offset..].to_vec(), weights]).unwrap();
            compare(&found[0], &expected[0], &fused.plan().to_string());
        }
    }
}

/// A step in the making of a random graph: which values it takes.
#[derive(Clone, Copy, Debug)]
struct Step {
    kind: u8,
    operands: [u16; 2],
}

const SHAPES: u8 = 6;

/// A random graph over tensors of shapes that broadcast to `[a, b, n]`.
fn build(steps: &[Step], [a, b, n]: [usize; 3], element: ElementType) -> (Graph, Vec<usize>) {
    let mut graph = Graph::new();
    let mut lengths = vec![];
    let mut values: Vec<Value> = vec![];
    let shapes: [&[usize]; SHAPES as usize] = [&[a, b, n], &[b, n], &[n], &[a, 1, 1], &[b, 1], &[a, 1, n]];
    for (place, shape) in shapes.iter().enumerate() {
        values.push(graph.input(&format!("x{place}"), element, shape).unwrap());
        lengths.push(shape.iter().product());
    }
    values.push(graph.index(0, n).unwrap());
    let scale = graph.constant(0.01);
    let last = values.len() - 1;
    values[last] = graph.mul(values[last], scale).unwrap();
    for step in steps {
        let [x, y] = step.operands.map(|operand| values[operand as usize % values.len()]);
        // Functions that keep numbers moderate, so that no error is blown up.
        let made = match step.kind % 14 {
            0 => graph.add(x, y),
            1 => graph.sub(x, y),
            2 => graph.max(x, y),
            3 => graph.min(x, y),
            4 => graph.tanh(x).and_then(|x| graph.mul(x, y)),
            5 => graph.row_mean(x),
            6 => graph.row_max(x),
            7 => graph.row_min(x),
            8 => graph.softmax(x),
            9 => graph.sigmoid(x),
            10 => graph.abs(x).and_then(|x| {
                let one = graph.constant(1.0);
                graph.add(x, one).and_then(|x| graph.sqrt(x))
            }),
            11 => graph.silu(x),
            12 => graph.square(x).and_then(|x| graph.row_mean(x)).and_then(|mean| {
                let one = graph.constant(1.0);
                let sum = graph.add(mean, one)?;
                let scale = graph.rsqrt(sum)?;
                graph.mul(x, scale)
            }),
            _ => graph.roll(x, step.operands[1] as usize % (graph.shape(x).last().unwrap() + 1)),
        };
        values.push(made.unwrap());
    }
    let made = &values[SHAPES as usize + 1..];
    for (place, &value) in made.iter().rev().take(3).enumerate() {
        graph.output(&format!("y{place}"), value, element).unwrap();
    }
    (graph, lengths)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (any::<u8>(), any::<[u16; 2]>()).prop_map(|(kind, operands)| Step { kind, operands });
    prop::collection::vec(step, 1..9)
}

fn shape() -> impl Strategy<Value = [usize; 3]> {
    let length = prop_oneof![1..40usize, (1..20usize).prop_map(|eighth| 8 * eighth), 1000..1200usize];
    (1..4usize, 1..5usize, length).prop_map(|(a, b, n)| [a, b, n])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_graph_fused_and_apart(steps in steps(), shape in shape(), seed in 0u64..1000, special in 0usize..40) {
        let (graph, lengths) = build(&steps, shape, ElementType::F32);
        let mut given: Vec<_> = lengths
            .iter()
            .enumerate()
            .map(|(place, &len)| (ElementType::F32, numbers(seed + place as u64, len, 2.0)))
            .collect();
        // In some cases a number that spreads: NaN, or an infinity.
        if let Some(&number) = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY].get(special) {
            given[0].1[0] = number;
        }
        check_close(&graph, &given, &fused(), 1e-4);
        check_close(&graph, &given, &apart(), 1e-4);
    }

    #[test]
    fn any_graph_in_16_bits(steps in steps(), shape in shape(), seed in 0u64..1000) {
        let (graph, lengths) = build(&steps, shape, ElementType::Bf16);
        let given = lengths.iter().enumerate();
        let given: Vec<_> = given
            .map(|(place, &len)| (ElementType::Bf16, numbers(seed + place as u64, len, 2.0)))
            .collect();
        // What kernels leave for others is rounded on the way.
        check_close(&graph, &given, &fused(), 0.06);
    }
}

/// As `check`, but each element may be off by a share of the largest one.
fn check_close(graph: &Graph, inputs: &[(ElementType, Vec<f64>)], options: &Options, share: f64) {
    let (outputs, expected, plan) = computed(graph, inputs, options);
    for (found, expected) in outputs.iter().zip(&expected) {
        let found = found.to_f64().unwrap();
        check_special(&found, expected, &plan);
        let finite = expected.iter().filter(|x| x.is_finite());
        let largest = finite.fold(1.0f64, |most, x| most.max(x.abs()));
        for (found, expected) in found.iter().zip(expected).filter(|(_, expected)| expected.is_finite()) {
            assert!((found - expected).abs() <= share * largest, "{found}, not {expected}\n{plan}");
        }
    }
}

/// Rows that blocks of a cluster share, where the device has clusters; the CPU device has none, and
/// the wish is not granted there.
#[test]
fn clusters_of_every_size() {
    let device = target(&Device::open(0).unwrap());
    for cluster in [2, 4, 8] {
        let options = Options { tuning: Tuning { cluster: Some(cluster), ..Tuning::default() }, ..fused() };
        for length in [4104, 5003] {
            let softmax = forms::softmax(ElementType::Bf16, 3, length).unwrap();
            let norm = forms::rms_norm(ElementType::Bf16, 3, length, 1e-6).unwrap();
            for (graph, lengths) in [(softmax, vec![3 * length]), (norm, vec![3 * length, length])] {
                let plan = Plan::new(&graph, &Options { target: device, ..options }).unwrap().to_string();
                assert_eq!(plan.contains(&format!("{cluster} blocks of")), device.clusters, "{plan}");
                check(&graph, &inputs(ElementType::Bf16, &lengths, 3.0), &options);
            }
        }
    }
}

#[test]
fn wrong_graphs_are_errors_that_say_what_is_wrong() {
    let mut graph = Graph::new();
    let x = graph.input("x", ElementType::Bf16, &[4, 6]).unwrap();
    let y = graph.input("y", ElementType::Bf16, &[5]).unwrap();
    let three = graph.constant(3.0);
    let index = graph.index(0, 6).unwrap();
    let errors = [
        (
            graph.add(x, y).map(drop),
            "add: shapes [4, 6] and [5] do not broadcast; dimensions, aligned at the last, must be equal or 1",
        ),
        (graph.row_sum(three).map(drop), "row-sum: it works along the last dimension, and a number has none"),
        (
            graph.top_k(x, 7).map(drop),
            "top-k: there are kernels for the 1 to 32 largest of at most 1024 elements, not the 7 largest of 6",
        ),
        (graph.roll(x, 7).map(drop), "roll: 7 places, and rows of [4, 6] have 6"),
        (graph.rotate_half(y).map(drop), "rotate-half: rows of 5 elements have no halves"),
        (graph.histogram(x, 4).map(drop), "histogram: it counts indices (u32), not other numbers"),
        (graph.input("x", ElementType::F32, &[1]).map(drop), "there are two inputs `x`"),
        (
            graph.input("z", ElementType::F32, &[1 << 20, 1 << 20]).map(drop),
            "a tensor of shape [1048576, 1048576] has more than 2^31 - 1 elements",
        ),
        (
            graph.output("x", index, ElementType::F32),
            "output `x` is an input, a constant or an index, which no operation computes",
        ),
        (Plan::new(&graph, &fused()).map(drop), "the graph has no outputs"),
    ];
    for (found, message) in errors {
        let error = found.unwrap_err();
        assert!(matches!(error, Error::Shape { .. }), "{error:?}");
        assert_eq!(error.to_string(), format!("fusion: {message}"));
    }
}

#[test]
fn wrong_tensors_are_errors_that_say_what_is_wrong() {
    let device = Device::open(0).unwrap();
    let fused = Fused::new(&device, &forms::softmax(ElementType::Bf16, 2, 4).unwrap()).unwrap();
    let tensor = |element, len| Tensor::zeros(&device, element, len).unwrap();
    let (right, long, wide) =
        (tensor(ElementType::Bf16, 8), tensor(ElementType::Bf16, 9), tensor(ElementType::F32, 8));
    let inputs: [(&[&Tensor], &str); 3] = [
        (&[], "inputs of the graph: 1, not 0"),
        (&[&long], "input `x` has 9 elements, and its shape [2, 4] needs 8"),
        (&[&wide], "input `x` has F32 elements, not Bf16"),
    ];
    for (given, message) in inputs {
        let views: Vec<View<'_>> = given.iter().map(|&tensor| tensor.into()).collect();
        assert_eq!(fused.run(&views).unwrap_err().to_string(), format!("fusion: {message}"));
    }
    let mut outputs = [long];
    let error = fused.run_into(&[(&right).into()], &mut outputs, device.stream()).unwrap_err();
    let message = "output `y` has 9 elements of Bf16, and the graph has [2, 4] of Bf16";
    assert_eq!(error.to_string(), format!("fusion: {message}"));
    assert!(target(&device).multiprocessors > 0);
}
