//! The traffic that fusion saves in the set forms: as plans compute it, and as the CPU device
//! counts it, in sectors of 32 bytes.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use apex_counts::Space;
use apex_kernels::fusion::{ElementType, Graph, Memory as Tensor, Options, Plan, Target, Tuning, forms};
use cuda_launch::LaunchConfig;
use ptx_exec::{LaunchParams, Linked, Memory, Program, Region, WatchOptions, watch};

/// Bytes of the largest tensor of these tests.
const BYTES: usize = 1 << 19;

/// Tensors of zeros, each in memory of its own.
#[derive(Default)]
struct Host {
    tensors: Mutex<HashMap<Tensor, Vec<u128>>>,
}

impl Host {
    fn address(&self, tensor: Tensor) -> u64 {
        let mut tensors = self.tensors.lock().unwrap();
        let storage = tensors.entry(tensor).or_insert_with(|| vec![0; BYTES / 16 + 16]);
        start(storage)
    }
}

/// As aligned as CUDA's allocations.
fn start(storage: &[u128]) -> u64 {
    (storage.as_ptr() as u64).next_multiple_of(256)
}

// SAFETY: tensors are kept until the host is dropped, after all launches.
unsafe impl Memory for Host {
    fn region(&self, address: u64, bytes: u64) -> Option<Region> {
        let tensors = self.tensors.lock().unwrap();
        let regions = tensors.values().map(|storage| {
            let start = start(storage);
            Region { start, end: start + BYTES as u64, writable: true }
        });
        regions.into_iter().find(|region| region.start <= address && address + bytes <= region.end)
    }

    fn describe(&self, _: u64) -> String {
        "no tensor".to_owned()
    }

    fn malloc(&self, _: u64) -> u64 {
        0
    }

    fn free(&self, _: u64) -> Result<(), String> {
        Err("kernels allocate nothing".to_owned())
    }

    fn print(&self, _: &[u8]) {}
}

/// Bytes of all sectors that the kernels of a plan touch.
fn counted(plan: &Plan) -> u64 {
    let host = Host::default();
    let mut sectors = 0;
    for kernel in plan.kernels() {
        let program = Program::compile(&ptx::parse(kernel.ptx()).unwrap()).unwrap();
        let addresses = vec![0; program.globals().len()];
        let linked = Linked::new(program, addresses);
        let entry = linked.program().kernel(&kernel.name).unwrap();
        let values: Vec<u8> =
            kernel.parameters().flat_map(|tensor| host.address(tensor).to_le_bytes()).collect();
        let mut config = LaunchConfig::new([kernel.grid() as u32, 1, 1], [kernel.block() as u32, 1, 1]);
        config.dynamic_shared_bytes = kernel.shared() as u32;
        let params = LaunchParams { config, cooperative: false, stack: 0, workers: 1, params: &values };
        let options = WatchOptions { count: true, ..WatchOptions::default() };
        let (outcome, seen) = watch(&linked, entry, &params, &host, &AtomicBool::new(false), options);
        outcome.unwrap_or_else(|fault| panic!("{fault}\n{plan}"));
        sectors += seen.counts.unwrap().counts.all_traffic(Space::Global).transactions;
    }
    32 * sectors
}

/// Shares of bytes that fusion saves, as computed and as counted.
fn saved(graph: &Graph) -> [f64; 2] {
    let target = Target { multiprocessors: 2, ..Target::default() };
    let plan = |fuse| Plan::new(graph, &Options { fuse, target, ..Options::default() }).unwrap();
    let (before, after) = (plan(false), plan(true));
    assert_eq!(after.kernels().len(), 1, "{after}");
    let share = |after: f64, before: f64| 1.0 - after / before;
    [
        share(after.bytes_after() as f64, after.bytes_before() as f64),
        share(counted(&after) as f64, counted(&before) as f64),
    ]
}

#[test]
fn set_forms_save_two_fifths_of_the_traffic() {
    for (form, graph) in forms::all(ElementType::Bf16, 64, 1024).unwrap() {
        // A softmax is one operation before and after.
        if form == "softmax" {
            continue;
        }
        let [computed, counted] = saved(&graph);
        assert!(computed >= 0.4 && counted >= 0.4, "{form}: {computed:.2} computed, {counted:.2} counted");
    }
}

fn column_sums(element: ElementType, rows: usize, length: usize) -> Graph {
    let mut graph = Graph::new();
    let x = graph.input("x", element, &[rows, length]).unwrap();
    let sum = graph.column_sum(x).unwrap();
    graph.output("sum", sum, ElementType::F32).unwrap();
    graph
}

/// The computed bytes are those that the CPU device counts, where no tensor is read twice.
#[test]
fn what_is_computed_is_what_is_counted() {
    for (form, graph) in [
        ("softmax", forms::softmax(ElementType::Bf16, 64, 1024).unwrap()),
        ("softmax, long rows", forms::softmax(ElementType::F32, 2, 20480).unwrap()),
        ("column sums", column_sums(ElementType::Bf16, 64, 1024)),
        ("column sums, by blocks that share rows", column_sums(ElementType::F32, 4, 30720)),
    ] {
        // Shared memory that holds the long rows.
        let target = Target { shared: 163 << 10, ..Target::default() };
        let plan = Plan::new(&graph, &Options { target, ..Options::default() }).unwrap();
        assert_eq!(counted(&plan), plan.bytes_after() as u64, "{form}\n{plan}");
    }
}

#[test]
fn plans_say_what_is_fused_and_why() {
    let graph = forms::residual_relu_layer_norm(ElementType::Bf16, 16384, 4096, 1e-5).unwrap();
    let printed = Plan::new(&graph, &Options::default()).unwrap().to_string();
    // 7 tensors of 128 MiB and two of 8 KiB before, 3 and two after.
    for line in [
        "fused: add | relu: saves 268435456 bytes;",
        "fused: add + relu | layer-norm: saves 268435456 bytes;",
        "fused_0: add + relu + layer-norm: 16384 rows of 4096, ",
        "operations: 3; kernels: 1; memory traffic (computed): 939540480 bytes before, 402669568 after, 57% saved",
    ] {
        assert!(printed.contains(line), "no `{line}` in\n{printed}");
    }
}

/// x, its gradient and that of y go over the memory once, and what blocks leave of the weight's.
#[test]
fn column_sums_are_a_part_of_the_kernel_that_computes_their_terms() {
    let graph = forms::rms_norm_gradient(ElementType::Bf16, 16384, 4096, 1e-6).unwrap();
    let plan = Plan::new(&graph, &Options::default()).unwrap();
    let printed = plan.to_string();
    for line in [
        "; 324 blocks walk through the rows",
        "256 threads a row, in registers, passes 3, column sums: blocks a multiprocessor 3, rows of partial sums 324, the \
         next row read ahead; accesses of 16 bytes, grid 324, block 256; ",
        "fused_0_totals: column-sum: partial sums of 324 × 4096, grid 128, block 1024; ",
    ] {
        assert!(printed.contains(line), "no `{line}` in\n{printed}");
    }
    let (matrix, vector, partials) = (2 * 16384 * 4096, 2 * 4096, 4 * 324 * 4096);
    assert_eq!(plan.kernels().len(), 2, "{printed}");
    assert_eq!(plan.bytes_after(), 3 * matrix + 2 * vector + 2 * partials, "{printed}");
}

#[test]
fn plans_say_what_is_not_fused_and_why() {
    let mut graph = Graph::new();
    let x = graph.input("x", ElementType::Bf16, &[8, 64]).unwrap();
    let y = graph.input("y", ElementType::Bf16, &[8, 64]).unwrap();
    let sum = graph.add(x, y).unwrap();
    let moved = graph.roll(sum, 3).unwrap();
    graph.output("moved", moved, ElementType::Bf16).unwrap();
    let plan = Plan::new(&graph, &Options::default()).unwrap();
    assert_eq!(plan.kernels().len(), 2);
    let printed = plan.to_string();
    let line = "not fused: add | roll: roll reads elements that other threads compute";
    assert!(printed.contains(line), "{printed}");
}

#[test]
fn a_cluster_of_blocks_can_share_a_row() {
    let graph = forms::residual_relu_layer_norm(ElementType::Bf16, 16, 32768, 1e-5).unwrap();
    let target = Target { clusters: true, ..Target::default() };
    let tuning = Tuning { cluster: Some(4), ..Tuning::default() };
    let plan = Plan::new(&graph, &Options { target, tuning, ..Options::default() }).unwrap();
    let kernel = &plan.kernels()[0];
    assert_eq!(kernel.grid(), 4 * 16, "{plan}");
    assert!(plan.to_string().contains("4 blocks of 256 threads a row, in registers"), "{plan}");
    let module = ptx::parse(kernel.ptx()).unwrap();
    assert!(ptx::verify(&module).is_empty(), "{}", kernel.ptx());
}

#[test]
fn a_row_that_one_block_cannot_hold_is_shared_by_a_cluster() {
    let graph = forms::residual_relu_layer_norm(ElementType::Bf16, 16, 65536, 1e-5).unwrap();
    let plan = |clusters| {
        let target = Target { clusters, shared: 227 << 10, ..Target::default() };
        Plan::new(&graph, &Options { target, ..Options::default() }).unwrap()
    };
    let (alone, together) = (plan(false), plan(true));
    assert_eq!((alone.kernels().len(), together.kernels().len()), (2, 1), "{alone}\n{together}");
    assert!(together.bytes_after() < alone.bytes_after());
    let kernel = &together.kernels()[0];
    assert_eq!((kernel.grid(), kernel.block()), (4 * 16, 512), "{together}");
}

#[test]
fn rows_in_half_of_the_shared_memory_leave_registers_for_a_second_block() {
    let target = Target { shared: 227 << 10, ..Target::default() };
    for (length, is_limited) in [(32768, true), (65536, false)] {
        let graph = forms::softmax(ElementType::Bf16, 4, length).unwrap();
        let plan = Plan::new(&graph, &Options { target, ..Options::default() }).unwrap();
        let kernel = &plan.kernels()[0];
        assert!(kernel.shared() > 2 * length, "{plan}");
        assert_eq!(kernel.ptx().contains(".minnctapersm 2"), is_limited, "{plan}");
    }
}
