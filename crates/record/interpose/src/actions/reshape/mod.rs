//! Reshaping: launches are made with the same threads in other blocks (`apex run --tuned`,
//! `apex tune`).
//!
//! `apex` writes a plan into the session ([`launch_condition::Plan`]): kernels by the hash of their
//! PTX and name, the condition under which a proof says that another block changes no result, and
//! the blocks by what the program asks for. This action looks a launch's function up, evaluates the
//! condition with the launch's parameters, and names the block. It knows nothing of PTX.
//!
//! # Contract
//! 1. *The code is the plan's.* A function is of the plan if the program got it from a module or
//!    library that it loaded as PTX with the plan's hash ([`crate::objects::images`]), and if all
//!    devices and the driver are those of the plan.
//! 2. *Unknown means no.* A launch with dynamic shared memory, with parameters that cannot be read,
//!    or for which the condition does not hold is made as the program asks, and so is one that the
//!    driver would refuse, so that its error stays.
//! 3. *Captures.* While a stream of the process captures, nothing is reshaped: queries of a graph's
//!    nodes return what the program asked for.
//! 4. *Addresses tell memory apart.* The condition compares addresses. Once the program maps memory
//!    by calls by which two addresses may mean the same memory ([`MAPPING`]), nothing is reshaped
//!    any more.
//! 5. *Never more launches than the program's.* Each launch is made once, in one shape.
//! 6. *Fast.* A launch that repeats an earlier one is looked up ([`memo`]), unless launches draw.
//!    The launch path takes no lock, allocates nothing, and asks the driver nothing, except when a
//!    function is met for the first time.

mod draw;
mod memo;
mod parameters;

use super::fusion;
use crate::objects::{Objects, epochs};
use crate::per_process::{OfProcess, PerProcess};
use crate::record::arguments::Passed;
use crate::switch::guarded;
use crate::tables::{HandleMap, PackedBlock, push};
use crate::{driver, limits};
use apex_conventions::variables::SESSION;
use apex_trace::layout::ReshapeState;
use apex_trace::{ForkGuard, ProcessFile};
use apex_untrusted::read;
use cuda_abi::types::*;
use cuda_launch::{Dim3, LaunchConfig};
use draw::Turns;
use launch_condition::{Checked, Plan, size_class};
use memo::{Key, Memo, Shape};
use parameters::Layout;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr};
use std::sync::{Mutex, PoisonError};

/// Calls after which two addresses may mean the same memory.
pub const MAPPING: [&str; 3] =
    ["cuMemMap", "cuExternalMemoryGetMappedBuffer", "cuGraphicsResourceGetMappedPointer"];

/// The number of a function that is not of the plan; those that are follow.
const NOT_PLANNED: u32 = 1;

const _: () = assert!(size_of::<Function>() <= 2 << 10);

static RESHAPE: PerProcess<Reshape> = PerProcess::new();

/// The plan of a process.
pub struct Reshape {
    device: String,
    driver_version: u32,
    kernels: Vec<Kernel>,
    /// Numbers of functions by handle: [`NOT_PLANNED`], or one more than the place in `found`,
    /// plus 1.
    numbers: HandleMap,
    /// Functions that were met, never freed.
    found: Box<[AtomicPtr<Function>]>,
    finding: Mutex<Vec<&'static Function>>,
    is_on: AtomicBool,
    is_closed: AtomicBool,
    file: &'static ProcessFile,
    objects: &'static Objects,
    guard: ForkGuard,
}

/// A kernel of the plan.
struct Kernel {
    code: u128,
    name: String,
    condition: Checked,
    choices: Vec<Choice>,
    /// Whether some launches draw, so that equal launches have different shapes.
    draws: bool,
}

/// The blocks for launches of one size.
struct Choice {
    asked: Dim3,
    size_class: u32,
    blocks: Vec<(Dim3, PackedBlock)>,
    /// Whose turn it is, if launches draw.
    turns: Option<Turns>,
}

/// A function of the plan.
struct Function {
    kernel: usize,
    /// Most threads of a block.
    most_threads: u32,
    /// Whether a decision depends on allocations.
    needs_allocations: bool,
    layout: Layout,
    memo: Memo,
}

impl OfProcess for Reshape {
    fn is_ours(&self) -> bool {
        self.guard.is_same_process()
    }
}

/// Whether the session has a plan.
pub fn is_wanted() -> bool {
    SESSION.path().is_some_and(|session| session.join(Plan::FILE).exists())
}

/// Reads the plan; `None`, and the session says so, if that fails.
pub fn start(file: &'static ProcessFile, objects: &'static Objects) -> Option<&'static Reshape> {
    if !driver::tells_parameters() {
        file.set_reshape_state(ReshapeState::OldDriver);
        return None;
    }
    let made = RESHAPE.get_or_make(|| Reshape::new(file, objects), |_| {});
    file.set_reshape_state(if made.is_some() { ReshapeState::Unused } else { ReshapeState::Failed });
    made
}

/// The shape in which a launch is made: `None` for the program's.
#[inline]
pub fn shape(function: CUfunction, asked: &LaunchConfig, passed: Passed) -> Shape {
    let reshape = RESHAPE.get()?;
    let function = reshape.function(function)?;
    // SAFETY: the contract of every hook, which passes the program's own arguments on, and the
    // layout is that of the function's parameters.
    unsafe { reshape.shape(function, asked, passed) }
}

/// From here on two addresses may mean the same memory.
pub fn close() {
    if let Some(reshape) = RESHAPE.get()
        && !reshape.is_closed.swap(true, Relaxed)
    {
        reshape.file.set_reshape_state(ReshapeState::Closed);
    }
}

/// Whether launches are made as the program asks, because it maps memory.
pub fn is_closed() -> bool {
    RESHAPE.get().is_none_or(|reshape| reshape.is_closed.load(Relaxed))
}

/// Whether driver and devices are those of the plan. The session says if not.
pub fn is_of_this_driver() -> bool {
    RESHAPE.get().is_some_and(Reshape::is_of_this_driver)
}

/// Whether launches of a function may be reshaped.
#[inline]
pub fn may_reshape(function: CUfunction) -> bool {
    RESHAPE.get().is_some_and(|reshape| reshape.function(function).is_some())
}

impl Reshape {
    fn new(file: &'static ProcessFile, objects: &'static Objects) -> Option<Box<Reshape>> {
        let path = SESSION.path()?.join(Plan::FILE);
        let plan = Plan::from_bytes(&read::read(&path, limits::PLAN_BYTES as u64).ok()?).ok()?;
        let kernels = plan.kernels.into_iter().map(|kernel| {
            let choices = kernel.choices.into_iter().map(Choice::of).collect::<Option<Vec<_>>>()?;
            let condition = Checked::of(&kernel.condition)?;
            let draws = choices.iter().any(|choice: &Choice| choice.turns.is_some());
            Some(Kernel { code: kernel.code, name: kernel.name, condition, choices, draws })
        });
        let pairs = Some(plan.pairs).filter(|pairs| !pairs.is_empty());
        if pairs.is_some_and(|pairs| !fusion::start(pairs, file, objects)) {
            return None;
        }
        Some(Box::new(Reshape {
            kernels: kernels.collect::<Option<_>>()?,
            device: plan.device,
            driver_version: plan.driver_version,
            numbers: HandleMap::new(limits::PLANNED_HANDLES)?,
            found: (0..limits::PLANNED_FUNCTIONS).map(|_| AtomicPtr::default()).collect(),
            finding: Mutex::default(),
            is_on: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            file,
            objects,
            guard: ForkGuard::new().ok()?,
        }))
    }

    /// The function of the plan behind a handle.
    #[inline(always)]
    fn function(&self, handle: CUfunction) -> Option<&'static Function> {
        let epoch = epochs().modules.load(Acquire);
        match self.numbers.get(handle as u64, epoch) {
            Some(NOT_PLANNED) => None,
            // SAFETY: null, or leaked.
            Some(number) => unsafe { self.found.get(number as usize - 2)?.load(Acquire).as_ref() },
            None => self.find(handle, epoch),
        }
    }

    #[cold]
    fn find(&self, handle: CUfunction, epoch: u32) -> Option<&'static Function> {
        // What is asked of the driver may wait for a stream that captures.
        if handle.is_null() || self.objects.captures.any() {
            return None;
        }
        guarded(|| self.find_in_plan(handle, epoch)).flatten()
    }

    /// Looks a handle up that is met for the first time. It is asked about only where the program
    /// got it from a module that lives, so that it means a function.
    fn find_in_plan(&self, handle: CUfunction, epoch: u32) -> Option<&'static Function> {
        let code = self.objects.ptx_behind(handle);
        let candidates = || (0..).zip(&self.kernels).filter(|(_, kernel)| Some(kernel.code) == code);
        let is_planned = candidates().next().is_some() && self.is_of_this_driver();
        let name = is_planned.then(|| self.objects.describe_function(handle).name);
        let kernel = name.and_then(|name| candidates().find(|(_, kernel)| kernel.name == name));
        let function = kernel.and_then(|(at, kernel)| Function::of(handle, at, kernel));
        // No lock is held during a call into the driver.
        let mut finding = self.finding.lock().unwrap_or_else(PoisonError::into_inner);
        let place = function.and_then(|function| self.place(&mut finding, function));
        let number = place.map_or(NOT_PLANNED, |place| place as u32 + 2);
        self.numbers.insert(handle as u64, epoch, number);
        place.map(|place| finding[place])
    }

    /// The place of a function among those that were met; `None` if there are too many.
    fn place(&self, found: &mut Vec<&'static Function>, function: Function) -> Option<usize> {
        let is_equal = |known: &&Function| {
            (known.kernel, known.most_threads) == (function.kernel, function.most_threads)
                && known.layout == function.layout
        };
        if let Some(place) = found.iter().position(is_equal) {
            return Some(place);
        }
        let place = found.len();
        let slot = self.found.get(place)?;
        let function: &'static Function = Box::leak(Box::new(function));
        slot.store(std::ptr::from_ref(function).cast_mut(), Release);
        push(found, function).then_some(place)
    }

    /// Whether driver and devices are those of the plan. The session says if not.
    fn is_of_this_driver(&self) -> bool {
        let devices = driver::all_devices();
        let is_device = |device: &(String, u32)| device.0 == self.device;
        let is_driver = |device: &(String, u32)| device.1 == self.driver_version;
        let wrong = match devices {
            _ if devices.is_empty() || !devices.iter().all(is_device) => ReshapeState::OtherDevice,
            _ if !devices.iter().all(is_driver) => ReshapeState::OtherDriver,
            _ => return true,
        };
        self.file.set_reshape_state(wrong);
        false
    }

    /// # Safety
    /// `passed` is what a launch of `function` passes to the driver.
    #[inline]
    unsafe fn shape(&self, function: &Function, asked: &LaunchConfig, passed: Passed) -> Shape {
        let kernel = &self.kernels[function.kernel];
        if self.objects.captures.any() || self.is_closed.load(Relaxed) || !is_plain(asked) {
            return None;
        }
        // SAFETY: by contract.
        let words = if kernel.draws { None } else { unsafe { function.layout.words(passed) } };
        // SAFETY: by contract.
        let Some(words) = words else { return unsafe { self.decide(function, asked, passed) } };
        let key = Key::of(asked, &words, function.epoch());
        function.memo.get(&key, asked).or_else(|| {
            // SAFETY: by contract.
            let shape = unsafe { self.decide(function, asked, passed) }?;
            function.memo.put(&key, shape);
            Some(shape)
        })
    }

    /// Decides about a launch that is not remembered.
    ///
    /// # Safety
    /// As [`Reshape::shape`].
    #[inline(never)]
    unsafe fn decide(&self, function: &Function, asked: &LaunchConfig, passed: Passed) -> Shape {
        let kernel = &self.kernels[function.kernel];
        // (The block first: it costs less than the size, and rules out most launches of kernels
        // that are launched in several.)
        let is_its = |choice: &&Choice| choice.asked == asked.block && choice.size_class == size_class(asked);
        let choice = kernel.choices.iter().find(is_its)?;
        if !function.holds(asked.block) {
            return None;
        }
        let (block, packed) = choice.drawn()?;
        // SAFETY: by contract.
        let parameters = unsafe { function.layout.read(passed) }?;
        let around = |address| {
            let (base, bytes) = driver::allocation_around(address)?;
            Some((base, bytes as u64))
        };
        let Some(launch) = kernel.condition.reshaped(asked, block, &parameters, around) else {
            self.file.count_reshape_refused();
            return None;
        };
        if !function.holds(block) {
            return None;
        }
        if !self.is_on.load(Relaxed) {
            self.is_on.store(true, Relaxed);
            self.file.set_reshape_state(ReshapeState::On);
        }
        Some((launch, packed))
    }
}

impl Choice {
    fn of(planned: launch_condition::Choice) -> Option<Choice> {
        let launch_condition::Choice { asked, size_class, blocks, draws } = planned;
        let turns = draws.then(|| Turns::among(blocks.len() + 1));
        let blocks: Option<Vec<_>> =
            blocks.into_iter().map(|block| Some((block, PackedBlock::of(block)?))).collect();
        let blocks = blocks.filter(|blocks| !blocks.is_empty())?;
        Some(Choice { asked, size_class, blocks, turns })
    }

    /// The block of a launch; `None` if it is the program's turn.
    #[inline]
    fn drawn(&self) -> Option<(Dim3, PackedBlock)> {
        match &self.turns {
            None => self.blocks.first().copied(),
            Some(turns) => self.blocks.get(turns.next()?).copied(),
        }
    }
}

impl Function {
    /// The epoch of allocations, if a decision depends on them.
    #[inline(always)]
    fn epoch(&self) -> u64 {
        if self.needs_allocations { epochs().memory.load(Acquire).into() } else { 0 }
    }

    fn of(handle: CUfunction, at: usize, kernel: &Kernel) -> Option<Function> {
        let most_threads = driver::function_attributes(driver::function_of(handle)?)?.max_threads_per_block;
        let layout = Layout::of(&driver::parameters(handle, parameters::MOST)?, &kernel.condition)?;
        let needs_allocations = kernel.condition.needs_allocations();
        Some(Function { kernel: at, most_threads, needs_allocations, layout, memo: Memo::default() })
    }

    /// Whether it can be launched in these blocks.
    #[inline(always)]
    fn holds(&self, block: Dim3) -> bool {
        (1..=u64::from(self.most_threads)).contains(&block.count()) && block.z <= 64
    }
}

/// Whether the grid is one that CUDA allows, and nothing depends on the block's shape but its
/// threads.
#[inline(always)]
fn is_plain(asked: &LaunchConfig) -> bool {
    let Dim3 { x, y, z } = asked.grid;
    let is_grid = |side: u32| (1..=65_535).contains(&side);
    let has_no_more = asked.dynamic_shared_bytes == 0 && asked.cluster == Dim3::ZERO;
    is_grid(y) && is_grid(z) && x.wrapping_sub(1) < i32::MAX as u32 && has_no_more
}
