//! What a walk says a launch executes, held to what the launch executes: every kernel of the suite, on the CPU device, which counts.
//!
//! The walk sees the PTX, the launch, `n` and `m`; the device runs all blocks on real, random input. Where control flow and
//! addresses depend on these alone the walk is right but for sampling; where they depend on data, it guesses. Instructions that
//! only move and add up addresses are left out: the device folds many of them, and a walk none.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use apex_cpu_device::exec::{LaunchParams, Linked, Memory, Program, Region, Wishes, watch};
use collect::plan::{self, Allowed, Bounds, Launch};
use collect::random;
use collect::suite::{self, Element, Kernel, MODULES};
use ptx::Class;
use ptx::walk::{Argument, BUDGET, Walker, Work};
use trace::counts::{Counts, Direction, InstructionClass, Space, Traffic};

/// Small enough that all launches together take seconds.
const BOUNDS: Bounds = Bounds { pool_bytes: 1 << 18, seconds: 0.002, ..Bounds::CPU };
/// Of each kernel.
const LAUNCHES: u64 = 6;
/// How far off a figure may be, summed over a kernel's launches: what sampling of warps costs.
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
            Element::F32 => (0..count).flat_map(|i| random::single(i, seed).to_ne_bytes()).collect(),
            Element::F64 => (0..count).flat_map(|i| random::double(i, seed).to_ne_bytes()).collect(),
            Element::U32 => (0..count).flat_map(|i| random::word(i, seed).to_ne_bytes()).collect(),
            Element::F16 => {
                (0..count).flat_map(|i| half::f16::from_f32(random::single(i, seed)).to_ne_bytes()).collect()
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
    let params = LaunchParams {
        grid: launch.grid,
        block: launch.block,
        dynamic_shared: launch.dynamic_shared,
        cooperative: false,
        stack: 1024,
        workers: 1,
        params: &params,
    };
    let id = linked.program().kernel(kernel.name).expect("the module has the kernel");
    let wishes = Wishes { count: true, ..Wishes::default() };
    let (outcome, seen) = watch(&linked, id, &params, &memory, &AtomicBool::new(false), wishes);
    outcome.unwrap_or_else(|fault| panic!("{}: {launch:?}: {fault:?}", kernel.name));
    seen.counts.expect("counting was on").counts
}

fn walked(walker: &Walker, launch: &Launch) -> Work {
    let shape =
        ptx::walk::Launch { grid: launch.grid, block: launch.block, dynamic_shared: launch.dynamic_shared };
    let [n, m] = [launch.n, launch.m].map(|number| Argument::Bits(number.into()));
    walker.walk(&shape, &[Argument::Pointer, Argument::Pointer, Argument::Pointer, n, m], BUDGET)
}

/// What is compared: name, walked, executed.
fn figures(work: &Work, counts: &Counts) -> [(&'static str, f64, f64); 9] {
    let global = |direction| counts.traffic(Space::Global, direction);
    let (loads, stores) = (global(Direction::Load), global(Direction::Store));
    let both = |amount: fn(&Traffic) -> u64| {
        let of = |direction| amount(counts.traffic(Space::Shared, direction)) as f64;
        of(Direction::Load) + of(Direction::Store)
    };
    let executed = |class: InstructionClass| counts.warp_instructions[class as usize] as f64;
    [
        ("warp instructions", work.count(Class::Warp), executed(InstructionClass::Warp)),
        ("barriers", work.count(Class::Barrier), executed(InstructionClass::Synchronization)),
        ("load requests", work.global_load_requests, loads.requests as f64),
        ("load sectors", work.global_load_sectors, loads.transactions as f64),
        ("load bytes", work.global_load_bytes, loads.bytes as f64),
        ("store sectors", work.global_store_sectors, stores.transactions as f64),
        ("store bytes", work.global_store_bytes, stores.bytes as f64),
        ("shared requests", work.shared_requests, both(|traffic| traffic.requests)),
        ("shared passes", work.shared_passes, both(|traffic| traffic.transactions)),
    ]
}

/// Kernels whose branches or addresses depend on the input, and how far off a walk may be.
const DATA_DEPENDENT: [(&str, f64); 5] = [
    ("atomic_swap", 0.1),
    // A warp stores if any of its pairs is in the wrong order; a guess has that of more warps than a tile half sorted.
    ("bitonic_block", 0.3),
    ("sparse_thread", 0.05),
    ("sparse_warp", 0.05),
    // Searches of one table meet in its upper levels.
    ("tree_walk", 0.1),
];

/// Kernels of which the walk and the device count something differently: constants are no global memory to a walk, and a load or
/// store of a matrix is one request.
const COUNTED_OTHERWISE: [&str; 5] =
    ["constant_uniform", "constant_divergent", "tensor_1", "tensor_4", "tensor_chain"];

#[test]
fn a_walk_says_what_a_launch_executes() {
    let parse = |module: &suite::Module| ptx::parse(module.ptx).expect("the suite parses");
    let modules: Vec<_> = MODULES.iter().map(parse).collect();
    let compile = |module| Arc::new(Program::compile(module).expect("the suite compiles"));
    let programs: Vec<_> = modules.iter().map(compile).collect();
    let allowed = |kernel: &Kernel| {
        let program = &programs[kernel.module];
        let attributes = program.attributes(program.kernel(kernel.name).expect("the module has the kernel"));
        let dynamic_shared = ((48 << 10) - attributes.static_shared).into();
        Allowed { threads: attributes.max_threads, dynamic_shared }
    };
    let kernels: Vec<_> = suite::kernels().map(|kernel| (kernel, allowed(&kernel))).collect();
    // Of each kernel and figure: walked and executed.
    let mut sums: BTreeMap<(&str, &str), (f64, f64)> = BTreeMap::new();
    let (mut exact, mut all) = (0, 0);
    for row in plan::rows(&kernels, &BOUNDS, 5, LAUNCHES * kernels.len() as u64) {
        let kernel = &kernels[row.kernel].0;
        let function = modules[kernel.module].functions().find(|function| &*function.name == kernel.name);
        let walker = Walker::new(&modules[kernel.module], function.expect("the module has the kernel"));
        let work = walked(&walker, &row.launch);
        let counts = executed(kernel, &programs[kernel.module], &row.launch);
        if COUNTED_OTHERWISE.contains(&kernel.name) {
            continue;
        }
        for (name, walked, executed) in figures(&work, &counts) {
            let sum = sums.entry((kernel.name, name)).or_default();
            *sum = (sum.0 + walked, sum.1 + executed);
            exact += usize::from((walked - executed).abs() <= 1e-6 * executed);
            all += 1;
        }
    }
    let off = |(walked, executed): (f64, f64)| (walked - executed).abs() / f64::max(executed, 1.0);
    let tolerance = |kernel: &str| {
        DATA_DEPENDENT.iter().find(|(name, _)| *name == kernel).map_or(TOLERANCE, |(_, tolerance)| *tolerance)
    };
    let wrong = sums.iter().filter(|((kernel, _), sum)| off(**sum) > tolerance(kernel));
    let wrong: Vec<_> = wrong.map(|((kernel, figure), sum)| format!("{kernel}, {figure}: {sum:?}")).collect();
    assert!(wrong.is_empty(), "walked, executed:\n{}", wrong.join("\n"));
    assert!(exact * 10 > all * 8, "{exact} of {all} figures are exact");
}
