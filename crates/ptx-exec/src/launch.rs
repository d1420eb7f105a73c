//! A launch: a kernel over a grid of blocks.
//!
//! Blocks are handed out in order to as many threads as there are cores; each thread runs its block to the end. A
//! block that spins without getting on may wait for another that has not started (a barrier of the whole grid): its
//! thread then starts that one too and takes turns, so such kernels end whenever they end on a GPU that holds the
//! whole grid at once.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::block::{Block, Progress};
use super::budget::Budget;
use super::code::{Class, Clock, Code, Input, Reg};
use super::fault::{Fault, FaultKind};
use super::float_control::DefaultFloats;
use super::lanes::WARP;
use super::memory::{Memory, Region};
use super::observe::{Observation, Watch, Wishes};
use super::probe::{Probe, Unwatched};
use super::program::{KernelAttributes, KernelId, Program};
use super::warp::{Counts, Stop};
use super::whereabouts::Named;
use apex_trace::counts::Place;

/// Most threads of a block.
const MAX_BLOCK: u64 = 1024;

/// Most shared memory of a block, in bytes: what compute capability 8.0 allows.
pub const MAX_SHARED: u64 = 163 * 1024;

/// How often each thread comes for blocks, at least: the more often, the nearer to each other they end.
const SHARES: u64 = 32;

/// Most blocks that a thread takes at a time.
const MAX_SHARE: u64 = 16;

/// What a call takes of a thread's stack at least: the address to return to.
const CALL_BYTES: u32 = 8;

/// Most calls that nest, whatever the stack.
const MAX_CALLS: usize = 1 << 19;

/// Most blocks that one thread takes turns with.
const MAX_RESIDENT: usize = 4096;

/// Launches so far.
static LAUNCHES: AtomicU64 = AtomicU64::new(1);

/// A program with the addresses of its variables.
pub struct Linked {
    program: Arc<Program>,
    globals: Vec<u64>,
}

impl Linked {
    /// Puts the variable [`Program::globals`]`()[i]` at `addresses[i]`.
    ///
    /// # Panics
    ///
    /// If there are not as many addresses as variables.
    pub fn new(program: impl Into<Arc<Program>>, addresses: Vec<u64>) -> Self {
        let program = program.into();
        assert_eq!(addresses.len(), program.globals().len(), "each variable needs an address");
        Linked { program, globals: addresses }
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Addresses of the program's variables.
    pub fn addresses(&self) -> &[u64] {
        &self.globals
    }
}

/// How a kernel is launched.
#[derive(Clone, Copy, Debug)]
pub struct LaunchParams<'a> {
    /// Blocks along x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y, z.
    pub block: [u32; 3],
    /// Shared memory in bytes, in addition to what the kernel declares.
    pub dynamic_shared: u32,
    /// Whether all blocks have to be resident at once.
    pub cooperative: bool,
    /// Local memory in bytes for each thread, in addition to what calls without recursion need: the driver's
    /// `CU_LIMIT_STACK_SIZE`.
    pub stack: u32,
    /// Threads of the host to use; 0 for one on each core.
    pub workers: usize,
    /// The kernel's parameters, as [`KernelAttributes::params`](super::KernelAttributes::params) lays them out.
    pub params: &'a [u8],
}

/// What a launch executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaunchStats {
    /// Instructions, each counted once for all lanes of a warp that execute it together.
    pub warp_instructions: u64,
    /// Instructions, counted for each thread.
    pub thread_instructions: u64,
    /// Branches, by warp.
    pub branches: u64,
    /// Branches that lanes of a warp took differently.
    pub divergent_branches: u64,
}

/// Everything that the blocks of a launch share.
pub(super) struct Launch<'a> {
    linked: &'a Linked,
    pub(super) memory: &'a dyn Memory,
    cancel: &'a AtomicBool,
    failed: AtomicBool,
    pub(super) kernel_function: u32,
    kernel: KernelId,
    pub(super) grid: [u32; 3],
    pub(super) block: [u32; 3],
    pub(super) block_threads: u32,
    /// Tells launches apart: `%gridid`.
    pub(super) identity: u64,
    /// The address of the grid's [`Workspace`]; 0 without one.
    pub(super) workspace: u64,
    pub(super) dynamic_shared: u32,
    pub(super) shared_bytes: u64,
    /// Local memory of a thread.
    pub(super) local_bytes: u64,
    /// The part of it that frames take where no function is recursive.
    pub(super) frames_bytes: u64,
    pub(super) local_align: u32,
    /// Bytes of [`LaunchParams::stack`].
    pub(super) stack: u32,
    /// Most calls that nest.
    pub(super) most_calls: usize,
    /// What threads' own memory is taken from.
    pub(super) budget: Budget,
    pub(super) params: Region,
    /// The kernel's inputs that differ from block to block: registers that hold `%ctaid` along an axis.
    pub(super) block_inputs: Vec<(Reg, Class, u8)>,
    started: Instant,
}

/// Memory that the blocks of a cooperative launch share, for the grid barrier of cooperative groups: its counter is the
/// second word. Whether there is one tells device code whether its grid can synchronise.
struct Workspace<'a> {
    memory: &'a dyn Memory,
    address: u64,
}

impl<'a> Workspace<'a> {
    fn new(memory: &'a dyn Memory, cooperative: bool) -> Self {
        let address = if cooperative { memory.malloc(size_of::<u128>() as u64) } else { 0 };
        if address != 0 {
            // SAFETY: `malloc` has just given these bytes, aligned to 16.
            unsafe { (address as *mut u128).write(0) };
        }
        Workspace { memory, address }
    }
}

impl Drop for Workspace<'_> {
    fn drop(&mut self) {
        if self.address != 0 {
            // It is what `malloc` returned; a kernel that has freed it has only harmed itself.
            let _ = self.memory.free(self.address);
        }
    }
}

/// Runs a kernel to its end.
///
/// # Errors
///
/// A [`Fault`] says what stopped it. Blocks that were running then have done part of their work.
pub fn launch(
    linked: &Linked,
    kernel: KernelId,
    params: &LaunchParams,
    memory: &dyn Memory,
    cancel: &AtomicBool,
) -> Result<LaunchStats, Fault> {
    launch_by(linked, kernel, params, memory, cancel, |launch, blocks, workers| {
        execute(launch, blocks, workers, || Some(Unwatched))
    })
}

/// Runs a kernel to its end and watches it: several times slower than [`launch`]. What was seen of a launch that fails
/// is what happened until then.
///
/// # Errors
///
/// As [`launch`], beside what was seen.
pub fn watch(
    linked: &Linked,
    kernel: KernelId,
    params: &LaunchParams,
    memory: &dyn Memory,
    cancel: &AtomicBool,
    wishes: Wishes,
) -> (Result<LaunchStats, Fault>, Observation) {
    let mut observation = Observation::default();
    let outcome = launch_by(linked, kernel, params, memory, cancel, |launch, blocks, workers| {
        let watch = Watch::new(launch, wishes);
        let outcome = execute(launch, blocks, workers, || watch.observer());
        observation = watch.finish(outcome.as_ref().ok().map(|counts| counts.warp_instructions));
        outcome
    });
    (outcome, observation)
}

/// Prepares a launch and has `run` execute it: so many blocks, on so many threads.
fn launch_by(
    linked: &Linked,
    kernel: KernelId,
    params: &LaunchParams,
    memory: &dyn Memory,
    cancel: &AtomicBool,
    run: impl FnOnce(&Launch, u64, usize) -> Result<Counts, Fault>,
) -> Result<LaunchStats, Fault> {
    // The workers are made while it lives, so they inherit it.
    let _floats = DefaultFloats::enter();
    // Parameters are addressed like any memory: aligned, and theirs to read.
    let mut parameters = vec![0u128; params.params.len().div_ceil(16).max(1)];
    // SAFETY: the vector has at least as many bytes, and any bytes are a valid `u128`.
    unsafe {
        let start = parameters.as_mut_ptr().cast::<u8>();
        std::ptr::copy_nonoverlapping(params.params.as_ptr(), start, params.params.len());
    }
    let start = parameters.as_ptr() as u64;
    let region = Region { start, end: start + params.params.len() as u64, writable: false };
    let workspace = Workspace::new(memory, params.cooperative);
    let mut launch = prepare(linked, kernel, params, memory, cancel, region).map_err(|text| Fault {
        kind: FaultKind::InvalidLaunch,
        text,
        kernel: kernel_name(linked, kernel),
        block: [0; 3],
        thread: [0; 3],
        address: None,
        instruction: String::new(),
        line: 0,
        source: None,
        inlined_at: None,
    })?;
    launch.workspace = workspace.address;
    let blocks = launch.grid.iter().map(|&side| u64::from(side)).product::<u64>();
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let workers = if params.workers == 0 { cores() } else { params.workers };
    let workers = workers.min(blocks.try_into().unwrap_or(usize::MAX));
    let outcome = run(&launch, blocks, workers);
    drop(parameters);
    outcome.map(|counts| LaunchStats {
        warp_instructions: counts.warp_instructions,
        thread_instructions: counts.thread_instructions,
        branches: counts.branches,
        divergent_branches: counts.divergent_branches,
    })
}

/// Executes all blocks, each worker's under a probe that `probe` makes if there is memory for it.
///
/// A worker that gets no thread, or no memory for a block, is left out: the others do its part. Without memory for any
/// block there is no launch.
fn execute<P: Probe>(
    launch: &Launch,
    blocks: u64,
    workers: usize,
    probe: impl Fn() -> Option<P> + Sync,
) -> Result<Counts, Fault> {
    let work = Work {
        launch,
        probe,
        next: AtomicU64::new(0),
        share: (blocks / (workers as u64 * SHARES)).clamp(1, MAX_SHARE),
        blocks,
        outcome: Mutex::new(Ok(Counts::default())),
    };
    let Some(first) = work.room() else {
        return Err(launch.fault(launch.no_room(), [0; 3]));
    };
    std::thread::scope(|scope| {
        let worker = || std::thread::Builder::new().spawn_scoped(scope, || work.run(None)).ok();
        let workers: Vec<_> = (1..workers).map_while(|_| worker()).collect();
        work.run(Some(first));
        for worker in workers {
            if let Err(panic) = worker.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
    work.outcome.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn kernel_name(linked: &Linked, kernel: KernelId) -> String {
    let function = linked.program.kernels[kernel.0 as usize].function;
    linked.program.functions[function as usize].name.to_string()
}

/// Checks a launch; the error is a sentence.
fn prepare<'a>(
    linked: &'a Linked,
    kernel_id: KernelId,
    params: &LaunchParams,
    memory: &'a dyn Memory,
    cancel: &'a AtomicBool,
    region: Region,
) -> Result<Launch<'a>, String> {
    let kernel = &linked.program.kernels[kernel_id.0 as usize];
    let attributes = &kernel.attributes;
    let threads: u64 = params.block.iter().map(|&side| u64::from(side)).product();
    if params.grid.contains(&0) || params.block.contains(&0) {
        return Err("a grid and a block need at least one element along each axis".to_owned());
    }
    if threads > MAX_BLOCK || params.block.iter().any(|&side| u64::from(side) > MAX_BLOCK) {
        return Err(format!("a block has at most {MAX_BLOCK} threads, not {threads}"));
    }
    if threads > attributes.max_threads.into() {
        return Err(format!(
            "the kernel was compiled for {} threads in a block, not {threads}",
            attributes.max_threads
        ));
    }
    if let Some(required) = attributes.required_block
        && required != params.block
    {
        return Err(format!("the kernel requires blocks of {required:?} threads, not {:?}", params.block));
    }
    let shared_bytes = u64::from(kernel.dynamic_start) + u64::from(params.dynamic_shared);
    if shared_bytes > MAX_SHARED {
        return Err(format!(
            "{shared_bytes} bytes of shared memory are more than the {MAX_SHARED} of a block"
        ));
    }
    let wanted = attributes.param_bytes();
    if params.params.len() < wanted {
        return Err(format!("the kernel takes {wanted} bytes of parameters, not {}", params.params.len()));
    }
    let functions = linked.program.functions.len();
    let code = &linked.program.functions[kernel.function as usize].code;
    Ok(Launch {
        linked,
        memory,
        cancel,
        failed: AtomicBool::new(false),
        kernel_function: kernel.function,
        kernel: kernel_id,
        grid: params.grid,
        block: params.block,
        block_threads: threads as u32,
        identity: LAUNCHES.fetch_add(1, Ordering::Relaxed),
        workspace: 0,
        dynamic_shared: params.dynamic_shared,
        shared_bytes,
        local_bytes: local_bytes(linked, kernel_id, params.stack),
        frames_bytes: frames_bytes(attributes),
        local_align: linked.program.local_align,
        stack: params.stack,
        // Without recursion, calls nest no deeper than there are functions.
        most_calls: ((params.stack / CALL_BYTES) as usize + functions).min(MAX_CALLS),
        budget: Budget::new(memory.room()),
        params: region,
        block_inputs: code
            .inputs
            .iter()
            .filter_map(|&(reg, class, input)| match input {
                Input::Block(axis) => Some((reg, class, axis)),
                _ => None,
            })
            .collect(),
        started: Instant::now(),
    })
}

/// Local memory that the frames of a thread take where no function is recursive.
fn frames_bytes(attributes: &KernelAttributes) -> u64 {
    // Builtin functions find their arguments above the deepest frame.
    u64::from(attributes.local_bytes) + if attributes.local_bytes > 0 { 64 } else { 0 }
}

/// Bytes of local memory of a thread; `stack` is [`LaunchParams::stack`].
pub fn local_bytes(linked: &Linked, kernel: KernelId, stack: u32) -> u64 {
    let kernel = &linked.program.kernels[kernel.0 as usize];
    let extra = if kernel.unbounded_stack { u64::from(stack) } else { 0 };
    (frames_bytes(&kernel.attributes) + extra).next_multiple_of(linked.program.local_align.into())
}

impl<'a> Launch<'a> {
    /// Local memory of all threads of a block, those that fill up the last warp included.
    pub(super) fn local_of_block(&self) -> u64 {
        u64::from(self.warps()) * WARP as u64 * self.local_bytes
    }

    /// The fault of a launch of which not one block has room.
    fn no_room(&self) -> Stop {
        let (local, block) = (self.local_bytes, self.local_of_block() + self.shared_bytes);
        let text = format!(
            "out of memory: a block takes {block} bytes, {local} of them local memory of each thread, and the host has \
             not as much left"
        );
        Stop::nowhere(FaultKind::OutOfMemory, &text)
    }

    pub(super) fn code(&self, function: u32) -> &'a Code {
        &self.linked.program.functions[function as usize].code
    }

    /// What is executed.
    pub(super) fn program(&self) -> &'a Program {
        &self.linked.program
    }

    /// Functions of the program.
    pub(super) fn functions(&self) -> usize {
        self.linked.program.functions.len()
    }

    /// Whether the program has a function of this index, with a body.
    pub(super) fn has(&self, function: u32) -> bool {
        self.linked
            .program
            .functions
            .get(function as usize)
            .is_some_and(|function| !function.code.steps.is_empty())
    }

    pub(super) fn warps(&self) -> u32 {
        self.block_threads.div_ceil(WARP as u32)
    }

    /// `%tid` of a thread, counted through the block.
    pub(super) fn thread(&self, index: u32) -> [u32; 3] {
        let [x, y, _] = self.block;
        [index % x, index / x % y, index / x / y]
    }

    /// Bytes of the parameters as a number.
    pub(super) fn param(&self, offset: u32, bytes: u8, signed: bool) -> u64 {
        let mut value = [0; 8];
        let end = self.params.end - self.params.start;
        if u64::from(offset) + u64::from(bytes) <= end {
            // SAFETY: the bytes lie inside the parameters, which outlive the launch.
            unsafe {
                let from = (self.params.start + u64::from(offset)) as *const u8;
                std::ptr::copy_nonoverlapping(from, value.as_mut_ptr(), bytes.into());
            }
        }
        let shift = 64 - 8 * u32::from(bytes);
        let value = u64::from_le_bytes(value);
        if signed { ((value << shift) as i64 >> shift) as u64 } else { value }
    }

    pub(super) fn shared_offset(&self, variable: u32) -> u64 {
        let kernel = &self.linked.program.kernels[self.kernel.0 as usize];
        kernel.shared_offsets.get(variable as usize).copied().flatten().unwrap_or(0).into()
    }

    /// The shared variables that the kernel uses. Those that are sized at launch have no size.
    pub(super) fn shared_variables(&self) -> Vec<Named> {
        let kernel = &self.linked.program.kernels[self.kernel.0 as usize];
        let placed = self.linked.program.shared.iter().zip(&kernel.shared_offsets);
        let named = placed.filter_map(|(variable, offset)| {
            let (name, bytes) =
                (variable.name.to_string(), if variable.dynamic { 0 } else { variable.bytes });
            Some(Named { name, start: u64::from((*offset)?), bytes })
        });
        named.collect()
    }

    /// Lanes of a warp that have a thread.
    pub(super) fn lanes_of(&self, warp: u32) -> u32 {
        let threads = self.block_threads - warp * WARP as u32;
        if threads >= WARP as u32 { u32::MAX } else { (1 << threads) - 1 }
    }

    pub(super) fn kernel_name(&self) -> String {
        kernel_name(self.linked, self.kernel)
    }

    pub(super) fn global(&self, variable: u32) -> u64 {
        self.linked.globals[variable as usize]
    }

    /// Nanoseconds on one of the clocks.
    pub(super) fn now(&self, clock: Clock) -> u64 {
        let time = match clock.wall {
            true => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            false => self.started.elapsed(),
        };
        time.as_nanos() as u64
    }

    /// Whether the launch has to end now.
    pub(super) fn cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed) || self.failed.load(Ordering::Relaxed)
    }

    /// Where a step came from.
    pub(super) fn place(&self, function: u32, pc: u32) -> Place {
        let code = self.code(function);
        let origin = code.origin_of.get(pc as usize).and_then(|&origin| code.origins.get(origin as usize));
        let Some(origin) = origin else { return Place::default() };
        let (file, line) = origin.source.and_then(|source| self.file_line(source.at)).unwrap_or_default();
        Place { instruction: origin.mnemonic.to_string(), ptx_line: origin.line, file, line }
    }

    fn file_line(&self, (file, line): (u32, u32)) -> Option<(String, u32)> {
        Some((self.linked.program.files.get(&file)?.clone(), line))
    }

    fn fault(&self, stop: Stop, block: [u32; 3]) -> Fault {
        let origin = stop.place.and_then(|(function, pc)| {
            let code = self.code(function);
            code.origins.get(*code.origin_of.get(pc as usize)? as usize)
        });
        let source = origin.and_then(|origin| origin.source);
        Fault {
            kind: stop.kind,
            text: stop.text,
            kernel: kernel_name(self.linked, self.kernel),
            block,
            thread: self.thread(stop.thread),
            address: stop.address,
            instruction: origin.map_or(String::new(), |origin| origin.mnemonic.to_string()),
            line: origin.map_or(0, |origin| origin.line),
            source: source.and_then(|source| self.file_line(source.at)),
            inlined_at: source.and_then(|source| self.file_line(source.inlined_at?)),
        }
    }
}

/// The blocks that are still to be run.
struct Work<'w, 'a, F> {
    launch: &'w Launch<'a>,
    /// Makes the probe of a block.
    probe: F,
    next: AtomicU64,
    /// Blocks that a thread takes at a time: neighbours often access neighbouring memory.
    share: u64,
    blocks: u64,
    outcome: Mutex<Result<Counts, Fault>>,
}

impl<P: Probe, F: Fn() -> Option<P> + Sync> Work<'_, '_, F> {
    /// The next block; `mine` has those that this thread has taken already.
    fn take(&self, mine: &mut Range<u64>) -> Option<[u32; 3]> {
        if mine.is_empty() {
            let first = self.next.fetch_add(self.share, Ordering::Relaxed);
            *mine = first..first.saturating_add(self.share).min(self.blocks);
        }
        let index = mine.next()?;
        let [x, y, z] = self.launch.grid.map(u64::from);
        Some(match (y, z) {
            (1, 1) => [index as u32, 0, 0],
            _ => [index % x, index / x % y, index / x / y].map(|at| at as u32),
        })
    }

    /// Room for a block, if there is memory for it.
    fn room(&self) -> Option<Box<Block<'_, P>>> {
        Block::new(self.launch, (self.probe)()?).map(Box::new)
    }

    /// Runs blocks until there are none, one has failed, or there is no memory for one: those are left to others.
    fn run<'b>(&'b self, mut spare: Option<Box<Block<'b, P>>>) {
        let mut mine = 0..0;
        let mut resident: VecDeque<Box<Block<P>>> = VecDeque::new();
        let mut counts = Counts::default();
        loop {
            let mut block = match resident.pop_front() {
                Some(block) => block,
                None => match self.start(&mut mine, &mut spare) {
                    Some(block) => block,
                    None => break,
                },
            };
            match block.run() {
                Ok(Progress::Done) => {
                    if let Some(other) = spare.replace(block) {
                        counts.add(&other.counts);
                    }
                }
                Ok(Progress::Waiting) => {
                    resident.push_back(block);
                    // What it waits for may not have started.
                    let another =
                        (resident.len() < MAX_RESIDENT).then(|| self.start(&mut mine, &mut spare)).flatten();
                    match another {
                        Some(block) => resident.push_front(block),
                        None => std::thread::yield_now(),
                    }
                }
                Err(stop) => {
                    self.fail(*stop, block.index);
                    return;
                }
            }
        }
        if let Some(block) = spare {
            counts.add(&block.counts);
        }
        if let Ok(total) = &mut *self.outcome.lock().unwrap_or_else(PoisonError::into_inner) {
            total.add(&counts);
        }
    }

    /// The next block, at its start.
    fn start<'b>(
        &'b self,
        mine: &mut Range<u64>,
        spare: &mut Option<Box<Block<'b, P>>>,
    ) -> Option<Box<Block<'b, P>>> {
        if self.launch.failed.load(Ordering::Relaxed) {
            return None;
        }
        // A block is taken only once there is room for it.
        if spare.is_none() && (!mine.is_empty() || self.next.load(Ordering::Relaxed) < self.blocks) {
            *spare = self.room();
        }
        let mut block = spare.take()?;
        match self.take(mine) {
            Some(index) => block.start(index),
            None => {
                *spare = Some(block);
                return None;
            }
        }
        Some(block)
    }

    /// Keeps the first fault.
    fn fail(&self, stop: Stop, block: [u32; 3]) {
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        let first = !self.launch.failed.swap(true, Ordering::Relaxed);
        if first {
            *outcome = Err(self.launch.fault(stop, block));
        }
    }
}
