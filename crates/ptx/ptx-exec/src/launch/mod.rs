//! The description of a launch: the kernel, its grid, its parameters, and state shared by its
//! blocks.
//!
//! [`prepare`] checks it; [`crate::grid`] executes it.

pub(crate) mod symbolization;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::budget::Budget;
use crate::code::{Clock, ClusterInput, Code, Input, Named};
use crate::device::{KernelId, Memory, Region};
use crate::fault::{Fault, FaultKind, Stop};
use crate::memory::spaces::{CLUSTER_UNIT, ClusterMemory};
use crate::native::Engine;
use crate::operands::{Class, Reg};
use crate::program::{Kernel, KernelAttributes, Program};
use crate::registers::lanes::WARP;
use apex_counts::Place;
use cuda_launch::{Dim3, LaunchConfig};

/// Most threads of a block, and most along one of its axes.
pub const MAX_THREADS: u32 = 1024;

/// Most shared memory of a block, in bytes: what compute capability 9.0 allows.
pub const MAX_SHARED: u32 = 227 * 1024;

/// Most blocks of a cluster.
pub const MAX_CLUSTER: u32 = 16;

/// The alignment of a block's shared memory, in bytes.
pub(crate) const SHARED_ALIGNMENT: u64 = 1024;

/// Bytes in which shared memory is allocated.
const SHARED_UNIT: u64 = 128;

/// The least memory that a call takes of a thread's stack, in bytes: the address to return to.
const CALL_BYTES: u32 = 8;

/// Most calls that nest, whatever the stack.
const MAX_CALLS: usize = 1 << 19;

/// Launches so far.
static LAUNCHES: AtomicU64 = AtomicU64::new(1);

/// A program with the addresses of its variables.
pub struct Linked {
    program: Arc<Program>,
    globals: Vec<u64>,
    engine: Engine,
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
        Linked { program, globals: addresses, engine: Engine::of_environment().unwrap_or(Engine::Auto) }
    }

    /// Executes kernels by another engine than the environment names.
    pub fn with_engine(self, engine: Engine) -> Self {
        Linked { engine, ..self }
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

/// The parameters of a launch.
#[derive(Clone, Copy, Debug)]
pub struct LaunchParams<'a> {
    /// Grid, block, cluster and dynamic shared memory. Without a cluster, it is the one that the
    /// kernel requires.
    pub config: LaunchConfig,
    /// Whether all blocks have to be resident at once.
    pub cooperative: bool,
    /// Local memory in bytes for each thread, in addition to what calls without recursion need: the
    /// driver's `CU_LIMIT_STACK_SIZE`.
    pub stack: u32,
    /// Threads of the host to use; 0 for one on each core.
    pub workers: usize,
    /// The kernel's parameters, as [`KernelAttributes::params`](crate::KernelAttributes::params)
    /// lays them out.
    pub params: &'a [u8],
}

/// Everything that the blocks of a launch share.
pub(crate) struct Launch<'a> {
    linked: &'a Linked,
    pub(crate) memory: &'a dyn Memory,
    cancel: &'a AtomicBool,
    pub(crate) failed: AtomicBool,
    pub(crate) kernel_function: u32,
    pub(crate) engine: Engine,
    kernel: KernelId,
    pub(crate) config: LaunchConfig,
    pub(crate) block_threads: u32,
    /// Blocks of a cluster along each axis; ones without clusters.
    cluster: [u32; 3],
    /// Tells launches apart: `%gridid`.
    pub(crate) identity: u64,
    /// The address of the workspace that the grid shares; 0 without one.
    pub(crate) workspace: u64,
    /// Shared memory of a block, as the kernel and the launch ask for it.
    pub(crate) shared_bytes: u64,
    /// Local memory of a thread.
    pub(crate) local_bytes: u64,
    /// The part of it that frames take where no function is recursive.
    pub(crate) frames_bytes: u64,
    pub(crate) local_align: u32,
    /// Bytes of [`LaunchParams::stack`].
    pub(crate) stack: u32,
    /// Most calls that nest.
    pub(crate) most_calls: usize,
    /// The budget for the threads' own memory.
    pub(crate) budget: Budget,
    pub(crate) params: Region,
    /// The kernel's inputs that differ from block to block: registers and what of the block they
    /// hold, as [`block_value`](Self::block_value) takes it.
    pub(crate) block_inputs: Vec<(Reg, Class, u8)>,
    started: Instant,
}

pub(crate) fn kernel_name(linked: &Linked, kernel: KernelId) -> String {
    let function = linked.program.kernels[kernel.0 as usize].function;
    linked.program.functions[function as usize].name.to_string()
}

/// Bytes of shared memory that a block of a launch has.
fn shared_bytes(kernel: &Kernel, params: &LaunchParams) -> u64 {
    u64::from(kernel.dynamic_start) + u64::from(params.config.dynamic_shared_bytes)
}

/// Checks the sizes of a launch; the error is a sentence.
fn check(attributes: &KernelAttributes, params: &LaunchParams, shared_bytes: u64) -> Result<(), String> {
    let LaunchConfig { grid, block, .. } = params.config;
    let threads = block.count();
    if grid.is_empty() || block.is_empty() {
        return Err("a grid and a block need at least one element along each axis".to_owned());
    }
    if threads > MAX_THREADS.into() || block.to_array().iter().any(|&side| side > MAX_THREADS) {
        return Err(format!("a block has at most {MAX_THREADS} threads, not {threads}"));
    }
    let most = attributes.function.max_threads_per_block;
    if threads > most.into() {
        return Err(format!("the kernel was compiled for {most} threads in a block, not {threads}"));
    }
    if let Some(required) = attributes.required_block
        && required != block
    {
        return Err(format!("the kernel requires blocks of {required:?} threads, not {block:?}"));
    }
    if shared_bytes > MAX_SHARED.into() {
        return Err(format!(
            "{shared_bytes} bytes of shared memory are more than the {MAX_SHARED} of a block"
        ));
    }
    let wanted = attributes.param_bytes();
    if params.params.len() < wanted {
        return Err(format!("the kernel takes {wanted} bytes of parameters, not {}", params.params.len()));
    }
    Ok(())
}

/// Checks a launch and makes it ready; the error is a sentence.
pub(crate) fn prepare<'a>(
    linked: &'a Linked,
    kernel_id: KernelId,
    params: &LaunchParams,
    memory: &'a dyn Memory,
    cancel: &'a AtomicBool,
    region: Region,
) -> Result<Launch<'a>, String> {
    let kernel = &linked.program.kernels[kernel_id.0 as usize];
    let attributes = &kernel.attributes;
    let (threads, shared_bytes) = (params.config.block.count(), shared_bytes(kernel, params));
    check(attributes, params, shared_bytes)?;
    let functions = linked.program.functions.len();
    let code = &linked.program.functions[kernel.function as usize].code;
    Ok(Launch {
        linked,
        memory,
        cancel,
        failed: AtomicBool::new(false),
        kernel_function: kernel.function,
        engine: linked.engine,
        kernel: kernel_id,
        config: params.config,
        block_threads: threads as u32,
        cluster: cluster(params.config, attributes)?,
        identity: LAUNCHES.fetch_add(1, Ordering::Relaxed),
        workspace: 0,
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

/// The blocks of a cluster along each axis; the error is a sentence.
fn cluster(config: LaunchConfig, attributes: &KernelAttributes) -> Result<[u32; 3], String> {
    let required = attributes.required_cluster;
    if let Some(required) = required
        && !config.cluster.is_empty()
        && config.cluster != required
    {
        return Err(format!("the kernel requires clusters of {required:?}, not {:?}", config.cluster));
    }
    let cluster = match config.cluster.is_empty() {
        true => required.unwrap_or(Dim3::ONE),
        false => config.cluster,
    };
    if cluster.is_empty() || cluster.count() > MAX_CLUSTER.into() {
        return Err(format!("a cluster has 1 to {MAX_CLUSTER} blocks, not {cluster:?}"));
    }
    let (grid, cluster) = (config.grid.to_array(), cluster.to_array());
    match grid.iter().zip(&cluster).all(|(blocks, side)| blocks % side == 0) {
        true => Ok(cluster),
        false => Err(format!("a grid of {grid:?} blocks is no multiple of clusters of {cluster:?}")),
    }
}

/// Local memory that the frames of a thread take where no function is recursive.
fn frames_bytes(attributes: &KernelAttributes) -> u64 {
    // Builtin functions find their arguments above the deepest frame.
    let local_bytes = u64::from(attributes.function.local_bytes);
    local_bytes + if local_bytes > 0 { 64 } else { 0 }
}

/// Bytes of local memory of a thread; `stack` is [`LaunchParams::stack`].
pub fn local_bytes(linked: &Linked, kernel: KernelId, stack: u32) -> u64 {
    let kernel = &linked.program.kernels[kernel.0 as usize];
    let extra = if kernel.unbounded_stack { u64::from(stack) } else { 0 };
    (frames_bytes(&kernel.attributes) + extra).next_multiple_of(linked.program.local_align.into())
}

impl<'a> Launch<'a> {
    /// Shared memory that a block can access: GPUs allocate it in units, and programs read behind
    /// what they asked for.
    pub(crate) fn allocated_shared(&self) -> u64 {
        self.shared_bytes.next_multiple_of(SHARED_UNIT)
    }

    /// Blocks of a cluster.
    pub(crate) fn cluster_blocks(&self) -> u32 {
        self.cluster.iter().product()
    }

    /// Clusters of the grid along each axis.
    pub(crate) fn cluster_grid(&self) -> [u32; 3] {
        let grid = self.config.grid.to_array();
        std::array::from_fn(|axis| grid[axis] / self.cluster[axis])
    }

    /// Clusters of the grid.
    pub(crate) fn clusters(&self) -> u64 {
        self.cluster_grid().map(u64::from).iter().product()
    }

    /// The block of this rank in a cluster.
    pub(crate) fn block_of_cluster(&self, cluster: [u32; 3], rank: u32) -> [u32; 3] {
        let [x, y, _] = self.cluster;
        let inside = [rank % x, rank / x % y, rank / x / y];
        std::array::from_fn(|axis| cluster[axis] * self.cluster[axis] + inside[axis])
    }

    /// The rank of a block in its cluster.
    fn rank(&self, block: [u32; 3]) -> u32 {
        let [x, y, z]: [u32; 3] = std::array::from_fn(|axis| block[axis] % self.cluster[axis]);
        (z * self.cluster[1] + y) * self.cluster[0] + x
    }

    /// The value of [`Input::Block`] in a block.
    pub(crate) fn block_value(&self, block: [u32; 3], which: u8) -> u32 {
        match usize::from(which) {
            axis @ 0..3 => block[axis],
            axis @ 3..6 => block[axis - 3] / self.cluster[axis - 3],
            axis @ 6..9 => block[axis - 6] % self.cluster[axis - 6],
            _ => self.rank(block),
        }
    }

    /// The distance in bytes from the shared memory of a block to that of the next of its cluster.
    pub(crate) fn cluster_stride(&self) -> u64 {
        self.allocated_shared().next_multiple_of(SHARED_ALIGNMENT).max(SHARED_ALIGNMENT)
    }

    /// The shared memory of the cluster of a block whose own begins at `shared`.
    pub(crate) fn cluster_memory(&self, shared: u64, block: [u32; 3]) -> ClusterMemory {
        let stride = self.cluster_stride();
        let start = shared - stride * u64::from(self.rank(block));
        ClusterMemory { start, stride, bytes: self.allocated_shared(), blocks: self.cluster_blocks().into() }
    }

    /// The value of an input that tells about the cluster of a block.
    pub(crate) fn cluster_input(&self, which: ClusterInput, shared: u64, block: [u32; 3]) -> u64 {
        match which {
            ClusterInput::Blocks => self.cluster_blocks().into(),
            ClusterInput::Size(axis) => self.cluster[usize::from(axis) % 3].into(),
            ClusterInput::Grid(axis) => self.cluster_grid()[usize::from(axis) % 3].into(),
            ClusterInput::IsGiven => u64::from(self.cluster_blocks() > 1 || !self.config.cluster.is_empty()),
            ClusterInput::Unit => {
                if self.cluster_blocks() > 1 {
                    CLUSTER_UNIT
                } else {
                    0
                }
            }
            ClusterInput::Stride => self.cluster_stride(),
            ClusterInput::Window => self.cluster_memory(shared, block).start,
        }
    }

    /// Local memory of all threads of a block, those that fill up the last warp included.
    pub(crate) fn local_of_block(&self) -> u64 {
        u64::from(self.warps()) * WARP as u64 * self.local_bytes
    }

    /// The fault of a launch of which not one block has room.
    pub(crate) fn no_room(&self) -> Stop {
        let (local, block) = (self.local_bytes, self.local_of_block() + self.allocated_shared());
        let text = format!(
            "out of memory: a block takes {block} bytes, {local} of them local memory of each thread, and the host has \
             not as much left"
        );
        Stop::nowhere(FaultKind::OutOfMemory, &text)
    }

    pub(crate) fn code(&self, function: u32) -> &'a Code {
        &self.linked.program.functions[function as usize].code
    }

    /// Returns the program to execute.
    pub(crate) fn program(&self) -> &'a Program {
        &self.linked.program
    }

    /// Functions of the program.
    pub(crate) fn functions(&self) -> usize {
        self.linked.program.functions.len()
    }

    /// Whether the program has a function of this index, with a body.
    pub(crate) fn has(&self, function: u32) -> bool {
        self.linked
            .program
            .functions
            .get(function as usize)
            .is_some_and(|function| !function.code.steps.is_empty())
    }

    pub(crate) fn warps(&self) -> u32 {
        self.block_threads.div_ceil(WARP as u32)
    }

    /// `%tid` of a thread, counted through the block.
    pub(crate) fn thread(&self, index: u32) -> [u32; 3] {
        let Dim3 { x, y, .. } = self.config.block;
        [index % x, index / x % y, index / x / y]
    }

    /// Bytes of the parameters as a number.
    pub(crate) fn param(&self, offset: u32, bytes: u8, signed: bool) -> u64 {
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

    pub(crate) fn shared_offset(&self, variable: u32) -> u64 {
        let kernel = &self.linked.program.kernels[self.kernel.0 as usize];
        kernel.shared_offsets.get(variable as usize).copied().flatten().unwrap_or(0).into()
    }

    /// The shared variables that the kernel uses. Those that are sized at launch have no size.
    pub(crate) fn shared_variables(&self) -> Vec<Named> {
        let kernel = &self.linked.program.kernels[self.kernel.0 as usize];
        let placed = self.linked.program.shared.iter().zip(&kernel.shared_offsets);
        let named = placed.filter_map(|(variable, offset)| {
            let (name, bytes) = (variable.name.to_string(), variable.bytes);
            Some(Named { name, start: u64::from((*offset)?), bytes })
        });
        named.collect()
    }

    /// Lanes of a warp that have a thread.
    pub(crate) fn lanes_of(&self, warp: u32) -> u32 {
        let threads = self.block_threads - warp * WARP as u32;
        if threads >= WARP as u32 { u32::MAX } else { (1 << threads) - 1 }
    }

    pub(crate) fn kernel_name(&self) -> String {
        kernel_name(self.linked, self.kernel)
    }

    pub(crate) fn global(&self, variable: u32) -> u64 {
        self.linked.globals[variable as usize]
    }

    /// Nanoseconds on one of the clocks.
    pub(crate) fn now(&self, clock: Clock) -> u64 {
        let time = match clock.wall {
            true => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            false => self.started.elapsed(),
        };
        time.as_nanos() as u64
    }

    /// Whether the launch has to end now.
    pub(crate) fn cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed) || self.failed.load(Ordering::Relaxed)
    }

    /// Returns the origin of a step in PTX and source.
    pub(crate) fn place(&self, function: u32, pc: u32) -> Place {
        let code = self.code(function);
        let origin = code.origin_of.get(pc as usize).and_then(|&origin| code.origins.get(origin as usize));
        let Some(origin) = origin else { return Place::default() };
        let (file, line) = origin.source.and_then(|source| self.file_line(source.at)).unwrap_or_default();
        Place { instruction: origin.mnemonic.to_string(), ptx_line: origin.line, file, line }
    }

    /// The line of a step: with a file's index where the line table names the file, else of the
    /// PTX.
    pub(crate) fn line(&self, function: u32, pc: u32) -> (Option<u32>, u32) {
        let code = self.code(function);
        let origin = &code.origins[code.origin_of[pc as usize] as usize];
        let source = origin.source.map(|source| source.at);
        match source.filter(|(file, _)| self.linked.program.files.contains_key(file)) {
            Some((file, line)) => (Some(file), line),
            None => (None, origin.line),
        }
    }

    /// The name of a file of the line table; empty for the PTX.
    pub(crate) fn file(&self, index: Option<u32>) -> &str {
        index.and_then(|index| self.linked.program.files.get(&index)).map_or("", |name| name)
    }

    fn file_line(&self, (file, line): (u32, u32)) -> Option<(String, u32)> {
        Some((self.linked.program.files.get(&file)?.clone(), line))
    }

    pub(crate) fn fault(&self, stop: Stop, block: [u32; 3]) -> Fault {
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
