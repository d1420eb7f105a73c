//! Compares the estimate of a launch's work with the executed work: every kernel of the suite, on
//! the CPU device, which counts.
//!
//! The walk sees the PTX, the launch, `n` and `m`; the device runs all blocks on real, random
//! input. Where control flow and addresses depend on these alone the walk is right but for
//! sampling; where they depend on data, it guesses. Instructions that only move and add up
//! addresses are left out: the device folds many of them, and a walk none.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use apex_collect::fill;
use apex_collect::plan::{self, Allowed, Bounds, Launch};
use apex_collect::suite::{self, Element, Kernel, MODULES};
use apex_counts::{Counts, Direction, InstructionClass, Space, Traffic};
use cuda_launch::FunctionAttributes;
use ptx::Class;
use ptx_estimate::{Argument, BUDGET, Estimator, Work};
use ptx_exec::{LaunchParams, Linked, Memory, Program, Region, WatchOptions, watch};

/// Small enough that all launches together take seconds.
const BOUNDS: Bounds = Bounds { pool_bytes: 1 << 18, seconds: 0.002, ..Bounds::CPU };
/// Launches of each kernel.
const LAUNCHES: u64 = 6;
/// The tolerance for a figure of a kernel: the errors of its launches without their signs, over the
/// executed work of all. The error of sampling warps was up to 0.0152 when this was written.
const TOLERANCE: f64 = 0.02;

/// Memory that a launch may use: allocations of host memory.
#[derive(Default)]
struct Allocations(Vec<(Vec<u128>, u64)>);

impl Allocations {
    fn start(storage: &[u128]) -> u64 {
        (storage.as_ptr() as u64).next_multiple_of(256)
    }

    /// An allocation with these contents; its address.
    fn add(&mut self, contents: &[u8]) -> u64 {
        let storage = vec![0u128; contents.len().div_ceil(16) + 16];
        let start = Allocations::start(&storage);
        // SAFETY: the storage has 256 bytes more than the contents, and nobody else uses it.
        unsafe { std::ptr::copy_nonoverlapping(contents.as_ptr(), start as *mut u8, contents.len()) };
        self.0.push((storage, contents.len() as u64));
        start
    }

    /// An input of random numbers.
    fn input(&mut self, element: Element, seed: u32) -> u64 {
        let count = (BOUNDS.pool_bytes / element.bytes()) as u32;
        let bytes: Vec<u8> = match element {
            Element::F32 => (0..count).flat_map(|i| fill::single(i, seed).to_ne_bytes()).collect(),
            Element::F64 => (0..count).flat_map(|i| fill::double(i, seed).to_ne_bytes()).collect(),
            Element::U32 => (0..count).flat_map(|i| fill::word(i, seed).to_ne_bytes()).collect(),
            Element::F16 => {
                (0..count).flat_map(|i| half::f16::from_f32(fill::single(i, seed)).to_ne_bytes()).collect()
            }
        };
        self.add(&bytes)
    }
}

// SAFETY: allocations live as long as this.
unsafe impl Memory for Allocations {
    fn region(&self, address: u64, bytes: u64) -> Option<Region> {
        let regions = self.0.iter().map(|(storage, bytes)| {
            let start = Allocations::start(storage);
            Region { start, end: start + bytes, writable: true }
        });
        let mut regions = regions;
        regions.find(|region| region.start <= address && address.saturating_add(bytes) <= region.end)
    }

    fn describe(&self, address: u64) -> String {
        format!("{address:#x}")
    }

    fn malloc(&self, _: u64) -> u64 {
        0
    }

    fn free(&self, _: u64) -> Result<(), String> {
        Err("nothing was allocated".to_owned())
    }

    fn print(&self, _: &[u8]) {}
}

/// Runs a launch and counts.
fn executed(kernel: &Kernel, program: &Arc<Program>, launch: &Launch) -> Counts {
    let mut memory = Allocations::default();
    let globals = program.globals().iter().map(|global| {
        let mut contents = global.initial.clone();
        contents.resize(global.size as usize, 0);
        memory.add(&contents)
    });
    let globals = globals.collect();
    let linked = Linked::new(Arc::clone(program), globals);
    let pointers = [
        memory.input(kernel.x, 1),
        memory.input(kernel.y, 2),
        memory.add(&vec![0; BOUNDS.pool_bytes as usize]),
    ];
    let mut params: Vec<u8> = pointers.iter().flat_map(|pointer| pointer.to_ne_bytes()).collect();
    params.extend([launch.n, launch.m].iter().flat_map(|number| number.to_ne_bytes()));
    let params =
        LaunchParams { config: launch.config, cooperative: false, stack: 1024, workers: 1, params: &params };
    let id = linked.program().kernel(kernel.name).expect("the module has the kernel");
    let options = WatchOptions { count: true, ..WatchOptions::default() };
    let (outcome, seen) = watch(&linked, id, &params, &memory, &AtomicBool::new(false), options);
    outcome.unwrap_or_else(|fault| panic!("{}: {launch:?}: {fault:?}", kernel.name));
    seen.counts.expect("counting was on").counts
}

fn walked(estimator: &Estimator, launch: &Launch) -> Work {
    let [n, m] = [launch.n, launch.m].map(|number| Argument::Bits(number.into()));
    estimator.estimate(
        &launch.config,
        &[Argument::Pointer, Argument::Pointer, Argument::Pointer, n, m],
        BUDGET,
    )
}

/// Returns the compared figures: name, walked, executed. Left out are integers, comparisons and
/// moves, of which the device folds many, and special functions and conversions, which the two
/// delimit differently (a division of integers; a conversion of addresses).
fn figures(work: &Work, counts: &Counts) -> [(&'static str, f64, f64); 17] {
    let global = |direction| counts.traffic(Space::Global, direction);
    let (loads, stores) = (global(Direction::Load), global(Direction::Store));
    let shared = |amount: fn(&Traffic) -> u64| {
        let of = |direction| amount(counts.traffic(Space::Shared, direction)) as f64;
        of(Direction::Load) + of(Direction::Store)
    };
    let atomics = |amount: fn(&Traffic) -> u64| {
        let of = |space| amount(counts.traffic(space, Direction::Atomic)) as f64;
        of(Space::Global) + of(Space::Shared)
    };
    let local = |direction| counts.traffic(Space::Local, direction).requests as f64;
    let executed = |class: InstructionClass| counts.warp_instructions[class as usize] as f64;
    [
        ("f32 instructions", work.count(Class::Single), executed(InstructionClass::Single)),
        ("f64 instructions", work.count(Class::Double), executed(InstructionClass::Double)),
        ("f16 instructions", work.count(Class::Half), executed(InstructionClass::Half)),
        ("control instructions", work.count(Class::Control), executed(InstructionClass::Control)),
        ("warp instructions", work.count(Class::Warp), executed(InstructionClass::Warp)),
        ("barriers", work.count(Class::Barrier), executed(InstructionClass::Synchronization)),
        ("load requests", work.global_load_requests, loads.requests as f64),
        ("load sectors", work.global_load_sectors, loads.transactions as f64),
        ("load bytes", work.global_load_bytes, loads.bytes as f64),
        ("store requests", work.global_store_requests, stores.requests as f64),
        ("store sectors", work.global_store_sectors, stores.transactions as f64),
        ("store bytes", work.global_store_bytes, stores.bytes as f64),
        ("shared requests", work.shared_requests, shared(|traffic| traffic.requests)),
        ("shared wavefronts", work.shared_wavefronts, shared(|traffic| traffic.transactions)),
        ("atomic requests", work.atomic_requests, atomics(|traffic| traffic.requests)),
        ("atomic lanes", work.atomic_lanes, atomics(|traffic| traffic.threads)),
        ("local requests", work.local_requests, local(Direction::Load) + local(Direction::Store)),
    ]
}

/// The figures that a walk guesses, and their tolerance: a quarter more than the error. Branches
/// and addresses of `atomic_swap`, `bitonic_block`, `collatz`, `insertion_sort`, `sparse_thread`,
/// `sparse_warp` and `tree_walk` depend on the input, those of functions in many instructions
/// (`special_f64`) on their argument. Of `f32` the device counts comparisons too. Why control
/// instructions of `fma_f32_1`, `fma_f64_1` and `stencil_line` differ by a tenth is not known.
const GUESSED: [(&str, &str, f64); 26] = [
    ("atomic_swap", "atomic lanes", 0.62),
    ("atomic_swap", "atomic requests", 0.46),
    ("atomic_swap", "control instructions", 0.16),
    ("atomic_swap", "load sectors", 0.068),
    ("bitonic_block", "shared requests", 0.33),
    ("bitonic_block", "shared wavefronts", 0.33),
    ("collatz", "control instructions", 0.057),
    ("fma_f32_1", "control instructions", 0.13),
    ("fma_f64_1", "control instructions", 0.11),
    ("gelu", "f32 instructions", 0.14),
    ("insertion_sort", "control instructions", 0.05),
    ("insertion_sort", "local requests", 0.044),
    ("mandelbrot", "f32 instructions", 0.16),
    ("monte_carlo", "f32 instructions", 0.25),
    ("option_price", "f32 instructions", 0.088),
    ("sparse_thread", "load bytes", 0.038),
    ("sparse_thread", "load sectors", 0.037),
    ("sparse_warp", "load bytes", 0.053),
    ("sparse_warp", "load requests", 0.056),
    ("sparse_warp", "load sectors", 0.036),
    ("special_accurate", "f32 instructions", 0.13),
    ("special_f64", "control instructions", 0.28),
    ("special_f64", "f32 instructions", 0.56),
    ("special_f64", "f64 instructions", 0.033),
    ("stencil_line", "control instructions", 0.14),
    ("tree_walk", "load sectors", 0.089),
];

/// The figures that say nothing of a walk: comparisons are all that the device counts as `f32`, or
/// the input decides how many bins of a histogram are empty, while a walk takes all to be filled.
const NOT_COMPARED: [(&str, &str); 7] = [
    ("argmax_warp", "f32 instructions"),
    ("bitonic_block", "f32 instructions"),
    ("histogram_shared", "atomic lanes"),
    ("histogram_shared", "atomic requests"),
    ("insertion_sort", "f32 instructions"),
    ("tree_walk", "f32 instructions"),
    ("vote_count", "f32 instructions"),
];

/// Kernels for which the estimate and the device count something differently: constants are no
/// global memory to a walk, and a load or store of a matrix is one request.
const COUNTED_OTHERWISE: [&str; 5] =
    ["constant_uniform", "constant_divergent", "tensor_1", "tensor_4", "tensor_chain"];

#[test]
fn a_walk_says_what_a_launch_executes() {
    let parse = |module: &apex_device_code::Module| ptx::parse(module.ptx()).expect("the suite parses");
    let modules: Vec<_> = MODULES.iter().map(parse).collect();
    let compile = |module| Arc::new(Program::compile(module).expect("the suite compiles"));
    let programs: Vec<_> = modules.iter().map(compile).collect();
    let allowed = |kernel: &Kernel| {
        let program = &programs[kernel.module];
        let attributes = program.attributes(program.kernel(kernel.name).expect("the module has the kernel"));
        let FunctionAttributes { static_shared_bytes, max_threads_per_block, .. } = attributes.function;
        let dynamic_shared_bytes = ((48 << 10) - static_shared_bytes).into();
        Allowed { threads: max_threads_per_block, dynamic_shared_bytes }
    };
    let kernels: Vec<_> = suite::kernels().map(|kernel| (kernel, allowed(&kernel))).collect();
    // Of each kernel and figure: the launches' errors without their signs, so that none makes up
    // for another, and what was executed.
    let mut sums: BTreeMap<(&str, &str), (f64, f64)> = BTreeMap::new();
    let (mut exact, mut all) = (0, 0);
    for row in plan::rows(&kernels, &BOUNDS, 5, LAUNCHES * kernels.len() as u64) {
        let kernel = &kernels[row.kernel].0;
        let function = modules[kernel.module].functions().find(|function| &*function.name == kernel.name);
        let estimator = Estimator::new(&modules[kernel.module], function.expect("the module has the kernel"));
        let work = walked(&estimator, &row.launch);
        let counts = executed(kernel, &programs[kernel.module], &row.launch);
        if COUNTED_OTHERWISE.contains(&kernel.name) {
            continue;
        }
        for (name, walked, executed) in figures(&work, &counts) {
            if NOT_COMPARED.contains(&(kernel.name, name)) {
                continue;
            }
            let sum = sums.entry((kernel.name, name)).or_default();
            *sum = (sum.0 + (walked - executed).abs(), sum.1 + executed);
            exact += usize::from((walked - executed).abs() <= 1e-6 * executed);
            all += 1;
        }
    }
    let off = |(off, executed): (f64, f64)| off / f64::max(executed, 1.0);
    let tolerance = |of: (&str, &str)| {
        let guessed = GUESSED.iter().find(|(kernel, figure, _)| (*kernel, *figure) == of);
        guessed.map_or(TOLERANCE, |(_, _, tolerance)| *tolerance)
    };
    let wrong = sums.iter().filter(|(of, sum)| off(**sum) > tolerance(**of));
    let wrong: Vec<_> = wrong.map(|((kernel, figure), sum)| format!("{kernel}, {figure}: {sum:?}")).collect();
    assert!(wrong.is_empty(), "the sum of errors, executed:\n{}", wrong.join("\n"));
    assert!(exact * 10 > all * 8, "{exact} of {all} figures are exact");
}
