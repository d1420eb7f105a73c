//! Column sums: in kernels of their own and in those of norms' gradients, in every schedule, and
//! where no registers hold a row.

use super::*;

/// The gradients of norms, and the lengths of their inputs.
fn gradients(element: ElementType, rows: usize, length: usize) -> [(Graph, Vec<usize>); 3] {
    let size = rows * length;
    [
        (forms::rms_norm_gradient(element, rows, length, 1e-6).unwrap(), vec![size, length, size]),
        (
            forms::residual_rms_norm_gradient(element, rows, length, 1e-6).unwrap(),
            vec![size, length, size, size],
        ),
        (
            forms::residual_relu_layer_norm_gradient(element, rows, length, 1e-5).unwrap(),
            vec![size, size, length, size],
        ),
    ]
}

/// The sums of the columns of `x` and of its squares.
fn sums(element: ElementType, shape: &[usize]) -> Graph {
    let mut graph = Graph::new();
    let x = graph.input("x", element, shape).unwrap();
    let square = graph.square(x).unwrap();
    for (name, value) in [("sum", x), ("squares", square)] {
        let sum = graph.column_sum(value).unwrap();
        graph.output(name, sum, ElementType::F32).unwrap();
    }
    graph
}

#[test]
fn gradients_of_norms_of_any_size() {
    let sizes = [
        (1, 1),
        (2, 1),
        (1, 64),
        (33, 7),
        (9, 33),
        (130, 64),
        (300, 100),
        (7, 1000),
        (50, 2049),
        (0, 64),
        (3, 4096),
    ];
    for (rows, length) in sizes {
        for (graph, lengths) in gradients(ElementType::Bf16, rows, length) {
            check_gradients(&graph, &inputs(ElementType::Bf16, &lengths, 2.0), &fused());
        }
    }
    for (graph, lengths) in gradients(ElementType::F32, 20, 264) {
        check_gradients(&graph, &inputs(ElementType::F32, &lengths, 2.0), &fused());
        check_gradients(&graph, &inputs(ElementType::F32, &lengths, 2.0), &apart());
    }
}

/// As `check`; where few terms cancel, a gradient is off by a share of the largest one.
fn check_gradients(graph: &Graph, inputs: &[(ElementType, Vec<f64>)], options: &Options) {
    let share = if inputs[0].0 == ElementType::F32 { 1e-5 } else { 0.01 };
    check_close(graph, inputs, options, share);
}

#[test]
fn columns_of_any_shape() {
    let shapes: [&[usize]; 12] = [
        &[1],
        &[9],
        &[1, 40],
        &[40, 1],
        &[5, 3],
        &[1000, 16],
        &[77, 129],
        &[2, 3, 4, 64],
        &[33, 2050],
        &[3, 40_000],
        &[0, 8],
        &[600, 1024],
    ];
    for shape in shapes {
        for element in TYPES {
            let given = inputs(element, &[shape.iter().product()], 2.0);
            check_close(&sums(element, shape), &given, &fused(), 1e-5);
        }
    }
}

/// Blocks with one row, the last row of a block that is none, more blocks than rows, parts.
#[test]
fn every_schedule_sums_the_same_columns() {
    let ways = [
        Tuning { threads: Some(32), ..Tuning::default() },
        Tuning { threads: Some(1), ..Tuning::default() },
        Tuning { threads: Some(4), persistent: Some(1), ..Tuning::default() },
        Tuning { threads: Some(64), ahead: Some(false), ..Tuning::default() },
        Tuning { threads: Some(96), vector: Some(2), ahead: Some(true), ..Tuning::default() },
        Tuning { threads: Some(512), vector: Some(1), ..Tuning::default() },
        Tuning { streaming: Some(true), resident: Some(1), persistent: Some(3), ..Tuning::default() },
        Tuning { cluster: Some(2), ..Tuning::default() },
    ];
    for (multiprocessors, tuning) in ways.iter().enumerate() {
        let target = Target { multiprocessors: multiprocessors + 1, ..Target::default() };
        for (rows, length) in [(7, 104), (31, 333), (301, 16), (19, 1025)] {
            let options = Options { target, tuning: *tuning, ..Options::default() };
            for (graph, lengths) in gradients(ElementType::Bf16, rows, length) {
                check_gradients(&graph, &inputs(ElementType::Bf16, &lengths, 2.0), &options);
            }
            let given = inputs(ElementType::Bf16, &[rows * length], 2.0);
            check_close(&sums(ElementType::Bf16, &[rows, length]), &given, &options, 1e-5);
        }
    }
}

/// A long row of which no block can hold the sums: its kernel writes their terms, and blocks that
/// share rows add these.
#[test]
fn rows_that_no_registers_hold_are_summed_by_other_kernels() {
    let (rows, length) = (5, 40_000);
    let graph = forms::rms_norm_gradient(ElementType::Bf16, rows, length, 1e-6).unwrap();
    let given = inputs(ElementType::Bf16, &[rows * length, length, rows * length], 2.0);
    check_gradients(&graph, &given, &fused());
    let plan = Plan::new(&graph, &fused()).unwrap();
    let printed = plan.to_string();
    let reason = "column sums stay in the registers of one block, which do not hold a row of 40000";
    assert!(printed.contains(reason), "{printed}");
    assert!(printed.contains(" blocks of "), "a row of one block\n{printed}");
}

#[test]
fn nan_and_infinities_stay_in_their_columns() {
    let graph = sums(ElementType::F32, &[40, 9]);
    let mut given = numbers(3, 360, 2.0);
    (given[9], given[20], given[30], given[39]) = (f64::NAN, f64::INFINITY, f64::INFINITY, f64::NEG_INFINITY);
    check_close(&graph, &[(ElementType::F32, given)], &fused(), 1e-5);
}

/// A sum that is an output twice, in two types, and that another operation uses.
#[test]
fn a_sum_may_go_to_several_places() {
    let mut graph = Graph::new();
    let x = graph.input("x", ElementType::F16, &[50, 24]).unwrap();
    let sum = graph.column_sum(x).unwrap();
    let centred = graph.sub(x, sum).unwrap();
    let again = graph.column_sum(centred).unwrap();
    graph.output("sum", sum, ElementType::F32).unwrap();
    graph.output("rounded", sum, ElementType::F16).unwrap();
    graph.output("centred", centred, ElementType::F32).unwrap();
    graph.output("again", again, ElementType::Bf16).unwrap();
    check(&graph, &inputs(ElementType::F16, &[1200], 2.0), &fused());
    let printed = Plan::new(&graph, &fused()).unwrap().to_string();
    assert!(printed.contains("a column sum is complete only when all rows are done"), "{printed}");
}

/// Column sums beside a histogram, a top-k and a row's own sum.
#[test]
fn sums_of_columns_beside_other_reductions() {
    let mut graph = Graph::new();
    let x = graph.input("x", ElementType::F32, &[90, 12]).unwrap();
    let (values, places) = graph.top_k(x, 3).unwrap();
    let loads = graph.histogram(places, 12).unwrap();
    let of_rows = graph.row_sum(x).unwrap();
    let share = graph.div(x, of_rows).unwrap();
    let of_columns = graph.column_sum(share).unwrap();
    let of_all = graph.column_sum(of_rows).unwrap();
    for (name, value, element) in [
        ("values", values, ElementType::F32),
        ("loads", loads, ElementType::U32),
        ("columns", of_columns, ElementType::F32),
        ("all", of_all, ElementType::F32),
    ] {
        graph.output(name, value, element).unwrap();
    }
    let given = (0..90 * 12).map(|place| ((place * 7919) % 4001) as f64 / 400.0 + 1.0).collect();
    check(&graph, &[(ElementType::F32, given)], &fused());
}

/// Bit for bit: no sum depends on which block ends first.
#[test]
fn sums_are_the_same_in_each_run() {
    let device = Device::open(0).unwrap();
    let graph = forms::residual_rms_norm_gradient(ElementType::Bf16, 700, 512, 1e-6).unwrap();
    let lengths = [700 * 512, 512, 700 * 512, 700 * 512];
    let tensors: Vec<Tensor> = inputs(ElementType::Bf16, &lengths, 2.0)
        .iter()
        .map(|(element, numbers)| upload(&device, *element, numbers).0)
        .collect();
    let views: Vec<View<'_>> = tensors.iter().map(View::from).collect();
    let fused = Fused::new(&device, &graph).unwrap();
    let numbers = |tensors: Vec<Tensor>| -> Vec<Vec<f64>> {
        tensors.iter().map(|tensor| tensor.to_f64().unwrap()).collect()
    };
    let first = numbers(fused.run(&views).unwrap());
    for _ in 0..3 {
        assert_eq!(numbers(fused.run(&views).unwrap()), first);
    }
    // In the caller's memory, which holds anything.
    let workspace = fused.workspace();
    let mut between: Vec<_> =
        workspace.iter().map(|&words| device.upload(&vec![u32::MAX; words]).unwrap()).collect();
    let mut outputs = fused.run(&views).unwrap();
    fused.run_with(&views, &mut outputs, &mut between, device.stream()).unwrap();
    assert_eq!(numbers(outputs), first);
    let mut outputs = fused.run(&views).unwrap();
    let error = fused.run_with(&views, &mut outputs, &mut [], device.stream()).unwrap_err().to_string();
    let needed = format!("buffers between kernels of {workspace:?} words are needed, not []");
    assert_eq!(error, format!("fusion: {needed}"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn columns_of_any_matrix(
        rows in 1..200usize,
        length in prop_oneof![1..70usize, (1..300usize).prop_map(|eighth| 8 * eighth), 1000..1100usize],
        multiprocessors in 1..40usize,
        seed in 0u64..1000,
    ) {
        let target = Target { multiprocessors, ..Target::default() };
        let options = Options { target, ..Options::default() };
        let given = [(ElementType::Bf16, numbers(seed, rows * length, 2.0))];
        check_close(&sums(ElementType::Bf16, &[rows, length]), &given, &options, 1e-5);
        let graph = forms::rms_norm_gradient(ElementType::F32, rows, length, 1e-3).unwrap();
        let given: Vec<_> = [rows * length, length, rows * length]
            .iter()
            .map(|&len| (ElementType::F32, numbers(seed + len as u64, len, 2.0)))
            .collect();
        check_close(&graph, &given, &options, 1e-4);
    }
}
