//! The work that a launch executes, estimated from a few of its warps.
//!
//! [`Mix`](ptx::Mix) counts instructions as they are written; how often each is executed depends
//! on the launch and on the kernel's parameters. An [`Estimator`] executes a few sampled warps (see
//! `selection`) from the first instruction to the last, computes what decides branches and
//! addresses, and counts what each warp does; the sum stands for all warps of the grid. `compile`,
//! `decode` and `slice` make `code` of a function's [listing](ptx::body), its
//! [operations](ptx::instruction) and their [meanings](ptx_lower), `warp` executes it, `value`
//! computes, [`analysis`](ptx::analysis) turns addresses into sectors and wavefronts, `loops` and
//! `skip` make a loop of a million rounds as cheap as one of five, `selection` and `sampling`
//! choose the warps, `sum` adds them up. `latency` and `schedule` say how many cycles a stretch of
//! code takes a warp, [`ptx::machine`] how many instructions of the machine each becomes, `probe`
//! what accesses ask for by the code alone, `contention` on how many places the atomic operations
//! of all warps fall.
//!
//! There is no memory. What an estimator does not know it guesses, and it says that it did
//! ([`Work::assumed`]):
//!
//! 1. Loaded numbers look random: all bits of an integer, from -1 to below 1 of a floating-point
//!    number. The same address holds the same number, whatever was stored there. So of lanes that
//!    branch on data about as many go each way as chance has it, and data-dependent addresses lie
//!    far apart unless the kernel brings them together (as `% bins` does).
//! 2. An unknown pointer points somewhere of its own. An unknown integer is the number of the
//!    launch's threads, which is what kernels mostly compare their index with.
//! 3. A loop that only a guess bounds is left after eight rounds if the guess says more than
//!    65,536, or for ever.
//! 4. Functions that are called by address, or are not in the module, do nothing, and such calls
//!    are counted ([`Work::unknown_calls`]).
//!
//! Where the sizes of the launch's allocations are known ([`Estimator::estimate_in`]), as they are
//! of launches that a session recorded, guesses are better:
//!
//! 5. Loaded integers are not negative and lie [below](bounds_checks) what they are compared with;
//!    [offsets of rows](arrays) rise. Addresses that are computed of them lie in their allocation.
//! 6. A loop that only a guess bounds ends where the first of the arrays ends that it goes through.
//!    One that does nothing but load a number until another thread has changed it has one round.
//! 7. A compare-and-swap finds what it expects, but for what other lanes of its warp have just
//!    stored there; an exchange for a known number finds 0: a lock is free. Integers that all lanes
//!    add to one address are added up first. Sectors that are stored to again are written once.
//!
//! The models that are shipped were trained on launches of which no sizes are known: there, these
//! rules would change what they were trained on.
//!
//! Invariants: any module and any launch give an answer, in time bounded by the budget; the same
//! input gives the same answer.

mod arrays;
mod bounds_checks;
mod code;
mod compile;
mod contention;
mod decode;
mod latency;
mod loops;
mod probe;
mod reuse;
mod sampling;
mod schedule;
mod selection;
mod skip;
mod slice;
mod sum;
#[cfg(test)]
mod tests;
mod value;
mod warp;

use cuda_launch::LaunchConfig;
use ptx::body::SpecialRegister;
use ptx::instruction::Class;
use ptx::syntax::{Function, Module};
use ptx_lower::scalar::lane_mask;

use code::{Code, Input};
use loops::Loops;
pub use probe::{RequestCost, Requested};
use sampling::Sampling;
use value::{LANES, Value, guess, ones};
use warp::Warp;

/// Cycles of each load from global memory in [`Work::latency_cycles`].
pub const GLOBAL_LOAD_CYCLES: f64 = latency::GLOBAL_LOAD;

/// Steps that an estimate takes by default, all warps together. One takes some tens of nanoseconds.
pub const BUDGET: u64 = 100_000;

/// A parameter of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Argument {
    /// Nothing is known.
    Unknown,
    /// A pointer to memory that no other parameter points to, 256-byte aligned.
    Pointer,
    /// Its bits: of an integer, or a floating-point number.
    Bits(u64),
    /// Its bytes, of any number: of a structure, for example.
    Bytes(Box<[u8]>),
}

/// Bits of an address in an allocation: allocations lie this far apart.
const ALLOCATION_BITS: u32 = 40;

/// Returns the address at which an estimate places an allocation.
pub fn allocation_address(allocation: u32) -> u64 {
    (u64::from(allocation) + 1) << ALLOCATION_BITS
}

macro_rules! figures_of_work {
    ($($(#[$doc:meta])* $figure:ident,)*) => {
        /// The work of a launch. Counts are of the whole launch, estimated from the sampled warps.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Work {
            /// Instructions of warps, of each kind, in the order of [`Class::ALL`]. Predicated ones
            /// count whether or not they do anything.
            pub instructions: [f64; Class::ALL.len()],
            $($(#[$doc])* pub $figure: f64,)*
            /// Whether anything rests on a guess: see the [module](self).
            pub assumed: bool,
            /// Whether part of a loop, or of a warp, was not executed but taken to be like the
            /// rest.
            pub extrapolated: bool,
        }

        impl Work {
            /// All figures but the instructions of each kind.
            fn each_figure(&mut self) -> impl Iterator<Item = &mut f64> {
                [$(&mut self.$figure),*].into_iter()
            }
        }
    };
}

figures_of_work! {
    /// Instructions of threads; over [`Work::total`], how many lanes take part in one on average.
    thread_instructions,
    /// Loads from global memory by warps with a lane that loads.
    global_load_requests,
    /// Sectors of 32 bytes that these touch, counted for each request on its own.
    global_load_sectors,
    /// Bytes that threads ask for.
    global_load_bytes,
    /// Lines of 128 bytes that loads and stores touch, counted for each request on its own.
    global_lines,
    /// Sectors that the warp which loads them has not loaded before.
    warp_sectors,
    /// The sectors among these that no other warp of the block has loaded before, about.
    block_sectors,
    /// The sectors among these that no other block has loaded before, about.
    launch_sectors,
    /// Sectors from the lowest to the highest that loads and stores were seen to touch, in each
    /// stretch of memory.
    span_sectors,
    /// Stores to global memory, likewise.
    global_store_requests,
    /// Sectors that these touch.
    global_store_sectors,
    /// Bytes that threads store.
    global_store_bytes,
    /// Sectors that stores touch which the launch has not stored to before, about: those that L2
    /// writes to memory.
    written_sectors,
    /// Loads from and stores to shared memory by warps.
    shared_requests,
    /// Wavefronts that these need; as many as requests if there are no conflicts and at most four
    /// bytes a lane.
    shared_wavefronts,
    /// Loads from and stores to local memory by warps.
    local_requests,
    /// Sectors of 32 bytes that these touch: four for each word that all lanes have at the same
    /// place of their memory, up to 32 where the place depends on the lane.
    local_sectors,
    /// Different addresses that warps read from constant memory, counted for each load on its own:
    /// 1 for all lanes at best.
    constant_wavefronts,
    /// Atomic operations by warps, in any memory.
    atomic_requests,
    /// Atomic operations by threads.
    atomic_lanes,
    /// Sum over the warps' operations of the most lanes that share an address.
    atomic_wavefronts,
    /// Sum over the sectors of global memory that each of the warps' operations touches of the most
    /// lanes that share an address there: turns that L2 takes.
    atomic_turns,
    /// Sum over the warps' operations in shared memory of the most lanes that share an address.
    shared_atomic_turns,
    /// Different sectors of global memory that atomic operations of the whole launch touch, about.
    /// Few of them are fought over.
    atomic_sectors,
    /// Cycles that a warp takes on average if nothing but the latency of its own instructions holds
    /// it back: the length of its critical path, where loads that do not depend on each other
    /// overlap, and what accesses take that need several wavefronts. No cache is followed: all
    /// loads from global memory take equally long.
    latency_cycles,
    /// Loads from global memory of a warp, on average, that wait for each other: those on its
    /// critical path.
    serial_loads,
    /// Instructions of the machine that those of warps become.
    machine_instructions,
    /// Cycles for which a warp's arithmetic keeps the units busy, on average.
    issue_cycles,
    /// Barriers of a block that a warp comes to, on average.
    barriers_per_warp,
    /// Warps of the grid.
    warps,
    /// Most instructions of a sampled warp.
    longest_warp,
    /// Branches of warps that a guess decided.
    unknown_branches,
    /// Calls by warps of functions whose code is not known, and of which nothing is counted.
    unknown_calls,
}

impl Work {
    /// Instructions of warps, of all kinds.
    pub fn total(&self) -> f64 {
        self.instructions.iter().sum()
    }

    /// Instructions of warps of a kind.
    pub fn count(&self, class: Class) -> f64 {
        self.instructions[class as usize]
    }

    /// The work of a launch on average, of launches of which each stands for as many as its weight
    /// says. What holds of one of them (that something was guessed) holds of the mean.
    pub fn mean(launches: &[(f64, Work)]) -> Work {
        let all: f64 = launches.iter().map(|(weight, _)| weight).sum();
        let mut mean = Work::default();
        for (weight, work) in launches {
            let share = weight / all;
            let add = |to: &mut f64, value: f64| *to += share * value;
            mean.instructions.iter_mut().zip(work.instructions).for_each(|(to, value)| add(to, value));
            mean.each_figure().zip(work.clone().each_figure()).for_each(|(to, value)| add(to, *value));
            mean.assumed |= work.assumed;
            mean.extrapolated |= work.extrapolated;
        }
        mean
    }
}

/// A kernel, ready to be estimated.
#[derive(Clone, Debug)]
pub struct Estimator {
    code: Code,
    loops: Loops,
}

impl Estimator {
    /// Prepares a function of a module; one without a body executes nothing.
    pub fn new(module: &Module, function: &Function) -> Estimator {
        let mut code = compile::compile(module, function);
        let loops = Loops::of(&code);
        arrays::mark(&mut code, &loops);
        Estimator { code, loops }
    }

    /// The work of a launch with these parameters, the first first; missing ones are unknown. Sides
    /// of grid and block that are 0 count as 1.
    ///
    /// At most about twice `budget` steps are taken ([`BUDGET`] does for most).
    pub fn estimate(&self, launch: &LaunchConfig, arguments: &[Argument], budget: u64) -> Work {
        self.estimate_in(&[], launch, arguments, budget)
    }

    /// The same of a launch whose pointers are those into allocations of these sizes, each of which
    /// begins at its [`allocation_address`]: guessed addresses lie in them.
    pub fn estimate_in(
        &self,
        allocations: &[u64],
        launch: &LaunchConfig,
        arguments: &[Argument],
        budget: u64,
    ) -> Work {
        let shape = Shape::of(launch);
        let mut warp = Warp::new(&self.code, &self.loops, allocations);
        self.load(&mut warp.registers, &shape, arguments);
        Sampling::new(self, shape, warp, budget).go()
    }

    /// Fills the registers that are the same for all warps.
    fn load(&self, registers: &mut [Value], shape: &Shape, arguments: &[Argument]) {
        for &(register, input) in &self.code.inputs {
            registers[register as usize] = match input {
                Input::Constant(value) => Value::uniform(value),
                Input::Parameter { index, offset, bytes } => {
                    parameter(arguments, index, offset, bytes, shape)
                }
                Input::Special(register, dimension) => shape.special(register, dimension),
            };
        }
    }

    /// Fills those that differ between warps; the lanes that have a thread.
    fn place(&self, registers: &mut [Value], shape: &Shape, block: u64, warp: u64) -> u32 {
        for &(register, input) in &self.code.inputs {
            let value = match input {
                Input::Special(SpecialRegister::Tid, dimension) => shape.threads_of(warp, dimension),
                Input::Special(SpecialRegister::Ctaid, dimension) => {
                    Value::uniform(coordinate(block, shape.grid, dimension))
                }
                Input::Special(SpecialRegister::Warpid, _) => Value::uniform(warp),
                _ => continue,
            };
            registers[register as usize] = value;
        }
        ones((shape.threads - warp * LANES as u64).min(LANES as u64) as u32) as u32
    }
}

/// A launch in numbers.
struct Shape {
    grid: [u64; 3],
    block: [u64; 3],
    blocks: u64,
    threads: u64,
    /// Warps of a block.
    warps: u64,
    dynamic_shared_bytes: u64,
}

impl Shape {
    fn of(launch: &LaunchConfig) -> Shape {
        let [grid, block] = [launch.grid, launch.block].map(|sides| sides.map(|side| side.max(1)));
        let threads = block.count();
        Shape {
            grid: grid.to_array().map(u64::from),
            block: block.to_array().map(u64::from),
            blocks: grid.count(),
            threads,
            warps: threads.div_ceil(LANES as u64),
            dynamic_shared_bytes: launch.dynamic_shared_bytes.into(),
        }
    }

    /// `%tid` of the lanes of a warp.
    fn threads_of(&self, warp: u64, dimension: u8) -> Value {
        let lane =
            |lane: usize| coordinate((warp * LANES as u64).wrapping_add(lane as u64), self.block, dimension);
        let mut value = Value::of_lanes(lane);
        value.uniform = value.lanes.iter().all(|&lane| lane == value.lanes[0]);
        value
    }

    fn special(&self, register: SpecialRegister, dimension: u8) -> Value {
        use SpecialRegister as Of;
        let size = |sizes: [u64; 3], dimension: u8| sizes.get(usize::from(dimension)).copied().unwrap_or(0);
        match register {
            Of::Ntid => Value::uniform(size(self.block, dimension)),
            Of::Nctaid => Value::uniform(size(self.grid, dimension)),
            Of::Nwarpid => Value::uniform(self.warps),
            Of::DynamicSmemSize => Value::uniform(self.dynamic_shared_bytes),
            Of::Laneid => Value::of_lanes(|lane| lane as u64),
            Of::LanemaskEq | Of::LanemaskLt | Of::LanemaskLe | Of::LanemaskGt | Of::LanemaskGe => {
                Value::of_lanes(|lane| lane_mask(register, lane as u32).into())
            }
            // Of each warp its own.
            Of::Tid | Of::Ctaid | Of::Warpid => Value::uniform(0),
            // Unknown, such as a clock.
            other => {
                let own = SpecialRegister::NAMED.iter().position(|named| *named == other);
                Value { guessed: true, ..Value::uniform(own.unwrap_or(SpecialRegister::NAMED.len()) as u64) }
            }
        }
    }
}

/// One coordinate of the `index`-th of `sizes`, x running fastest.
fn coordinate(index: u64, sizes: [u64; 3], dimension: u8) -> u64 {
    match dimension {
        0 => index % sizes[0],
        1 => index / sizes[0] % sizes[1],
        2 => index / sizes[0] / sizes[1] % sizes[2],
        _ => 0,
    }
}

/// Bytes of a parameter.
fn parameter(arguments: &[Argument], index: u32, offset: u32, bytes: u32, shape: &Shape) -> Value {
    let bits = 8 * bytes.clamp(1, 8);
    match arguments.get(index as usize).unwrap_or(&Argument::Unknown) {
        Argument::Bits(value) => {
            Value::uniform(value.checked_shr(offset.saturating_mul(8)).unwrap_or(0) & ones(bits))
        }
        Argument::Bytes(all) if all.len() as u64 >= u64::from(offset) + u64::from(bytes) && bytes <= 8 => {
            let part = &all[offset as usize..][..bytes as usize];
            let value = part.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte));
            Value::uniform(value)
        }
        Argument::Pointer if offset == 0 => Value::uniform(allocation_address(index) & ones(bits)),
        _ => {
            let integer = code::Kind::Integer { bits: 14, signed: false };
            let own = guess((u64::from(index) << 32) | u64::from(offset), integer) + 1;
            let threads = shape.blocks.saturating_mul(shape.threads).min(ones(31));
            let value = if bits == 64 { own << 32 } else { threads & ones(bits) };
            Value { guessed: true, ..Value::uniform(value) }
        }
    }
}
