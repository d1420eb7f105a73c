//! Launches: a kernel with its configuration and arguments.
//!
//! A [`Launch`] exists only if [`check`] has accepted its configuration for the device and the
//! function. It copies the arguments when it is created and never changes: a graph executes the
//! same launch any number of times, and a changed node gets another launch. Kernels that device
//! code launches run after the grid that requested them.

pub mod device_runtime;
pub mod time_limit;

use crate::context::{self, Context};
use crate::device::{self, Device};
use crate::error::{Error, Result, ensure, fail};
use crate::fault;
use crate::headroom;
use crate::launch::device_runtime::{GridRuntime, Requests};
use crate::memory::host::Map;
use crate::memory::{Backing, Kind, Request};
use crate::module::Function;
use crate::observation::{self, Configuration};
use crate::stream::operation::Operation;
use crate::thread;
use cuda_abi::types::*;
use cuda_launch::{Carveout, Dim3, FunctionAttributes, LaunchConfig};
use ptx_exec::{
    self, Fault, FaultKind, KernelAttributes, LaunchParams, Observation, Region, Shadow, WatchOptions,
};
use std::ffi::c_void;
use std::sync::{Arc, OnceLock};

/// A launch's configuration as it is executed: with the block that the function requires, if it
/// requires one and the program names a block of one thread
/// (`CU_LAUNCH_KERNEL_REQUIRED_BLOCK_DIM`), and with the cluster that it requires, if the program
/// names none. A graph's node keeps what the program named.
fn with_block_of(mut configuration: Configuration, function: &Function) -> Configuration {
    if configuration.launch.cluster == Dim3::ZERO {
        configuration.launch.cluster = function.attributes.required_cluster.unwrap_or(Dim3::ZERO);
    }
    if configuration.launch.block == Dim3::ONE {
        configuration.launch.block = function.attributes.required_block.unwrap_or(Dim3::ONE);
    }
    configuration
}

/// A kernel that can be executed, any number of times.
pub struct Launch {
    /// The kernel.
    pub function: Arc<Function>,
    /// The handle that the program named it by: a `CUfunction` or a `CUkernel`.
    pub named: u64,
    /// The configuration.
    pub configuration: Configuration,
    /// The arguments.
    pub arguments: Arguments,
}

impl Launch {
    /// Checks a launch. The kernel's handle is `named`.
    pub fn new(named: CUfunction, configuration: Configuration, arguments: Arguments) -> Result<Arc<Launch>> {
        Launch::of_function(Function::resolve(named)?, named, configuration, arguments)
    }

    /// The same of a kernel that has been looked up.
    pub fn of_function(
        function: Arc<Function>,
        named: CUfunction,
        configuration: Configuration,
        arguments: Arguments,
    ) -> Result<Arc<Launch>> {
        check(device::get()?, &function, &configuration)?;
        Ok(Arc::new(Launch { function, named: named as u64, configuration, arguments }))
    }

    /// The same kernel with the same arguments, configured anew.
    pub fn reconfigured(&self, configuration: Configuration) -> Result<Arc<Launch>> {
        check(device::get()?, &self.function, &configuration)?;
        let arguments = Arguments::new(&self.function.attributes, self.arguments.bytes.to_vec());
        Ok(Arc::new(Launch { function: self.function.clone(), named: self.named, configuration, arguments }))
    }

    /// Executes the kernel on the calling thread and its helpers, and then what it has launched
    /// itself. A fault is described on standard error.
    pub fn execute(&self, context: &Context) -> Result {
        let _pin = device::get()?.memory.pin();
        let Some(limit) = time_limit::limit() else {
            return self.execute_with_children(context).map_err(Stopped::tell);
        };
        let (outcome, late) = time_limit::watch(limit, context, || self.execute_with_children(context))?;
        outcome.map_err(|mut stopped| {
            if let Stopped::Fault(fault) = &mut stopped
                && late
                && fault.kind == FaultKind::Cancelled
            {
                fault.text = format!("stopped after {limit:?} (APEX_CPU_TIMEOUT)");
                fault.kind = FaultKind::Deadlock;
            }
            stopped.tell()
        })
    }

    fn execute_with_children(&self, context: &Context) -> std::result::Result<(), Stopped> {
        let requests = self.execute_grid(context)?;
        device_runtime::execute_all(requests, |operation| match operation {
            Operation::Kernel(child) => child.execute_grid(context),
            other => other.execute(context).map(|()| Requests::default()).map_err(Stopped::Error),
        })
    }

    /// Executes the grid; returns what it asks to be done behind it.
    fn execute_grid(&self, context: &Context) -> std::result::Result<Requests, Stopped> {
        let device = device::get().map_err(Stopped::Error)?;
        let configuration = with_block_of(self.configuration, &self.function);
        let Configuration { launch: config, cooperative } = configuration;
        let stack = stack_limit(context);
        let params = &self.arguments.bytes;
        let workers = device.attributes.multiprocessors as usize;
        let params = LaunchParams { config, cooperative, stack, workers, params };
        let runtime = GridRuntime::new(device, context, &self.function);
        let memory = KernelMemory { device, context, runtime: &runtime, map: OnceLock::new() };
        let linked = &self.function.code.linked;
        let kernel = self.function.kernel;
        let execute = |options: WatchOptions| match options.watch() {
            true => ptx_exec::watch(linked, kernel, &params, &memory, &context.cancel, options),
            false => {
                (ptx_exec::launch(linked, kernel, &params, &memory, &context.cancel), Observation::default())
            }
        };
        let name = self.function.name.to_string_lossy();
        observation::around(&name, configuration, execute).map_err(Stopped::Fault)?;
        observation::machine_code(&name, || linked.program().has_machine_code(kernel));
        Ok(runtime.into_requests())
    }
}

/// The reason why a launch ended early: a fault of a kernel, or an error of another operation that
/// it requested.
enum Stopped {
    Fault(Box<Fault>),
    Error(Error),
}

impl Stopped {
    /// Describes a fault on standard error; returns the error that CUDA has for it.
    fn tell(self) -> Error {
        match self {
            Stopped::Fault(fault) => Error(report(&fault)),
            Stopped::Error(error) => error,
        }
    }
}

/// Says on standard error what stopped a kernel; returns the code that CUDA has for it.
fn report(fault: &Fault) -> CUresult {
    let code = match fault.kind {
        FaultKind::OutOfBounds => CUDA_ERROR_ILLEGAL_ADDRESS,
        FaultKind::Misaligned => CUDA_ERROR_MISALIGNED_ADDRESS,
        FaultKind::IllegalInstruction => CUDA_ERROR_ILLEGAL_INSTRUCTION,
        FaultKind::Assert => CUDA_ERROR_ASSERT,
        FaultKind::Unsupported => CUDA_ERROR_NOT_SUPPORTED,
        FaultKind::StackOverflow => CUDA_ERROR_HARDWARE_STACK_ERROR,
        FaultKind::Deadlock => CUDA_ERROR_LAUNCH_TIMEOUT,
        FaultKind::OutOfMemory => CUDA_ERROR_OUT_OF_MEMORY,
        FaultKind::InvalidLaunch => CUDA_ERROR_INVALID_VALUE,
        FaultKind::Trap | FaultKind::Cancelled => CUDA_ERROR_LAUNCH_FAILED,
    };
    let name = result_name(code).unwrap_or_default();
    fault::tell(format_args!("{name} in kernel {}\n{}", fault.kernel, fault.details()));
    observation::fault(fault, name);
    code
}

/// Holds a configuration against the limits of the device and of the function.
pub fn check(device: &Device, function: &Function, configuration: &Configuration) -> Result {
    let Configuration { launch, cooperative } = &with_block_of(*configuration, function);
    let dynamic_shared_bytes = launch.dynamic_shared_bytes;
    ensure(launch.exceeded_limit(&device.attributes).is_none(), CUDA_ERROR_INVALID_VALUE)?;
    let threads = launch.threads_per_block() as u32;
    // Registers never run short here: what bounds the kernel is its own `.maxntid` or `.reqntid`.
    let attributes = &function.attributes;
    ensure(threads <= attributes.function.max_threads_per_block, CUDA_ERROR_INVALID_VALUE)?;
    let required = attributes.required_block;
    ensure(required.is_none_or(|required| required == launch.block), CUDA_ERROR_INVALID_VALUE)?;
    ensure(dynamic_shared_bytes <= function.settings.max_dynamic_shared(), CUDA_ERROR_INVALID_VALUE)?;
    let shared = u64::from(attributes.function.static_shared_bytes) + u64::from(dynamic_shared_bytes);
    ensure(shared <= device.attributes.max_shared_bytes_per_block_optin.into(), CUDA_ERROR_INVALID_VALUE)?;
    check_cluster(launch, attributes.required_cluster)?;
    if *cooperative {
        let resident = u64::from(blocks_per_multiprocessor(function, threads, dynamic_shared_bytes));
        let most = resident * u64::from(device.attributes.multiprocessors);
        ensure(launch.blocks() <= most, CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE)?;
    }
    check_local_memory(device, function, threads)
}

/// Most blocks of a cluster that every device with clusters has.
const PORTABLE_CLUSTER: u64 = 8;

/// Holds the cluster of a launch against what the function requires, and against the grid.
fn check_cluster(launch: &LaunchConfig, required: Option<Dim3>) -> Result {
    if launch.cluster == Dim3::ZERO {
        return Ok(());
    }
    let is_wanted = required.is_none_or(|required| required == launch.cluster);
    let blocks = launch.cluster.count();
    let mut sides = launch.grid.to_array().into_iter().zip(launch.cluster.to_array());
    let is_whole = |(blocks, side): (u32, u32)| side > 0 && blocks % side == 0;
    let fits = blocks <= PORTABLE_CLUSTER && sides.all(is_whole);
    ensure(is_wanted && fits, CUDA_ERROR_INVALID_CLUSTER_SIZE)
}

/// Local memory of a block that is allocated for trial when it is launched.
const LARGE: u64 = 64 << 20;

/// Refuses a launch that has no memory for the local memory of one block, while it is being
/// submitted.
fn check_local_memory(device: &Device, function: &Function, threads: u32) -> Result {
    let stack = context::current().map_or(0, |context| stack_limit(&context));
    let of_thread = ptx_exec::local_bytes(&function.code.linked, function.kernel, stack);
    let of_block = of_thread.saturating_mul(u64::from(threads.next_multiple_of(device.attributes.warp_size)));
    if of_block < LARGE {
        return Ok(());
    }
    let (_, total) = device.memory.free_and_total();
    if of_block <= total && Backing::map(of_block).is_ok() {
        return Ok(());
    }
    fault::tell(format_args!(
        "CUDA_ERROR_OUT_OF_MEMORY at the launch of {}: its {threads} threads take {of_thread} bytes of \
         local memory each (arrays, and cudaLimitStackSize where functions are recursive), and the host has not as much; \
         make them smaller",
        function.name.to_string_lossy()
    ));
    fail(CUDA_ERROR_OUT_OF_MEMORY)
}

/// The context's `CU_LIMIT_STACK_SIZE`.
fn stack_limit(context: &Context) -> u32 {
    context.limit(CU_LIMIT_STACK_SIZE).try_into().unwrap_or(u32::MAX)
}

/// Returns the number of a function's blocks that a multiprocessor holds at once.
pub fn blocks_per_multiprocessor(function: &Function, threads: u32, dynamic_shared_bytes: u32) -> u32 {
    let limits = device_limits();
    occupancy::theoretical(&limits, &resources(function), threads, dynamic_shared_bytes).blocks_per_sm
}

/// The device's limits, as the occupancy calculator wants them.
pub fn device_limits() -> occupancy::DeviceLimits {
    let (major, minor) = device::capability().numbers();
    occupancy::DeviceLimits::of_compute_capability(major as u32, minor as u32)
        .expect("the calculator knows the compute capability that the device reports")
}

/// Returns a function's resources as the occupancy calculator takes them.
pub fn resources(function: &Function) -> FunctionAttributes {
    FunctionAttributes {
        max_dynamic_shared_bytes: Some(function.settings.max_dynamic_shared()),
        carveout: Carveout::from_attribute(function.settings.carveout()),
        ..function.attributes.function
    }
}

/// A kernel's arguments, laid out as the kernel reads them.
pub struct Arguments {
    bytes: Box<[u8]>,
    /// A pointer to each argument in `bytes`: what a graph's kernel node answers when it is asked
    /// for its parameters.
    pointers: Box<[*mut c_void]>,
}

// SAFETY: the pointers point into `bytes`, which is never written after it has been filled.
unsafe impl Send for Arguments {}
// SAFETY: as for `Send`.
unsafe impl Sync for Arguments {}

impl Arguments {
    /// Takes arguments as a launch is given them: one pointer for each, or all of them in a buffer.
    ///
    /// # Safety
    ///
    /// `pointers` is null or has a pointer to each argument of the function; `extra` is null or a
    /// list of options that ends in `CU_LAUNCH_PARAM_END`, as the driver's reference says.
    pub unsafe fn read(
        attributes: &KernelAttributes,
        pointers: *const *mut c_void,
        extra: *const *mut c_void,
    ) -> Result<Arguments> {
        let mut bytes = vec![0; attributes.param_bytes()];
        if !pointers.is_null() {
            ensure(extra.is_null(), CUDA_ERROR_INVALID_VALUE)?;
            for (index, layout) in attributes.params.iter().enumerate() {
                // SAFETY: there is a pointer for each argument.
                let argument = unsafe { *pointers.add(index) };
                ensure(!argument.is_null(), CUDA_ERROR_INVALID_VALUE)?;
                let place = &mut bytes[layout.offset..layout.offset + layout.size];
                // SAFETY: the pointer is to an argument of the size that the kernel declares.
                unsafe { argument.cast::<u8>().copy_to_nonoverlapping(place.as_mut_ptr(), layout.size) };
            }
        } else if !extra.is_null() {
            // SAFETY: as promised by the caller.
            let buffer = unsafe { buffer_of(extra)? };
            ensure(buffer.len() >= bytes.len(), CUDA_ERROR_INVALID_VALUE)?;
            let length = bytes.len();
            bytes.copy_from_slice(&buffer[..length]);
        } else {
            ensure(attributes.params.is_empty(), CUDA_ERROR_INVALID_VALUE)?;
        }
        Ok(Arguments::new(attributes, bytes))
    }

    /// Takes arguments that are laid out already.
    pub fn new(attributes: &KernelAttributes, bytes: Vec<u8>) -> Arguments {
        let mut bytes = bytes.into_boxed_slice();
        let start = bytes.as_mut_ptr();
        let pointers =
            attributes.params.iter().map(|layout| start.wrapping_add(layout.offset).cast()).collect();
        Arguments { bytes, pointers }
    }

    /// A pointer to each argument, as `kernelParams` wants them; null if there are none. They live
    /// as long as this.
    pub fn pointers(&self) -> *mut *mut c_void {
        if self.pointers.is_empty() { std::ptr::null_mut() } else { self.pointers.as_ptr().cast_mut() }
    }
}

/// The buffer that a launch's `extra` list names.
///
/// # Safety
///
/// As for [`Arguments::read`].
unsafe fn buffer_of<'a>(mut extra: *const *mut c_void) -> Result<&'a [u8]> {
    let mut buffer = std::ptr::null();
    let mut length = None;
    loop {
        // SAFETY: the list goes on until its end has been read, and every option has a value behind
        // it.
        let (option, value) = unsafe { ((*extra) as usize, extra.add(1)) };
        match option as u64 {
            LAUNCH_PARAM_END => break,
            // SAFETY: the option's value is the buffer's address.
            LAUNCH_PARAM_BUFFER_POINTER => buffer = unsafe { *value }.cast_const().cast::<u8>(),
            // SAFETY: the option's value is the address of the buffer's size.
            LAUNCH_PARAM_BUFFER_SIZE => length = unsafe { (*value).cast::<usize>().as_ref() }.copied(),
            _ => return fail(CUDA_ERROR_INVALID_VALUE),
        }
        // SAFETY: not the end yet.
        extra = unsafe { extra.add(2) };
    }
    let length = length.ok_or(Error(CUDA_ERROR_INVALID_VALUE))?;
    ensure(!buffer.is_null() || length == 0, CUDA_ERROR_INVALID_VALUE)?;
    if length == 0 {
        return Ok(&[]);
    }
    // SAFETY: the program says that the buffer is so long.
    Ok(unsafe { std::slice::from_raw_parts(buffer, length) })
}

/// The options of `extra`, which CUDA declares as pointers.
const LAUNCH_PARAM_END: u64 = 0;
const LAUNCH_PARAM_BUFFER_POINTER: u64 = 1;
const LAUNCH_PARAM_BUFFER_SIZE: u64 = 2;

/// The launch that the deprecated calls (`cuFuncSetBlockShape`, `cuParamSetv`, …) have prepared on
/// a function.
#[derive(Clone, Debug)]
pub struct LegacyLaunch {
    /// Threads of a block; [`Dim3::ZERO`], which no launch accepts, until they are set.
    pub block: Dim3,
    /// Dynamic shared memory of a block.
    pub dynamic_shared_bytes: u32,
    /// The arguments, laid out by the program.
    pub arguments: Vec<u8>,
}

impl Default for LegacyLaunch {
    fn default() -> Self {
        Self { block: Dim3::ZERO, dynamic_shared_bytes: 0, arguments: Vec::new() }
    }
}

/// The device's memory as an executing kernel sees it.
struct KernelMemory<'a> {
    device: &'a Device,
    context: &'a Context,
    runtime: &'a GridRuntime<'a>,
    /// The address space, as it was when the launch first met memory of the program's.
    map: OnceLock<Map>,
}

// SAFETY: the launch holds a pin on the memory, so what was looked up stays mapped until it is
// over, freed or not. Registered memory is the program's, which promises to leave it alone while a
// kernel uses it; what it has taken away before is left out.
unsafe impl ptx_exec::Memory for KernelMemory<'_> {
    fn region(&self, address: u64, bytes: u64) -> Option<Region> {
        let found = self.device.memory.find(address)?;
        // To GPUs constants are global memory behind another cache.
        let writable = found.writable || found.is_constant();
        let (mut start, mut end, mut writable) = (found.start, found.end(), writable);
        if found.kind == Kind::Registered {
            let run = self.map.get_or_init(Map::read).around(address, start, end)?;
            (start, end, writable) = (run.start, run.end, writable && run.writable);
        }
        (address >= start && address < end && bytes <= end - address).then_some(Region {
            start,
            end,
            writable,
        })
    }

    fn describe(&self, address: u64) -> String {
        self.device.memory.describe(address)
    }

    fn malloc(&self, bytes: u64) -> u64 {
        let heap =
            self.context.settings().limits.get(&CU_LIMIT_MALLOC_HEAP_SIZE).copied().unwrap_or(0) as u64;
        let request = Request { bytes, kind: Kind::Heap, flags: 0, context: self.context.handle };
        self.device.memory.allocate_from_heap(request, heap).map_or(0, |allocation| allocation.start)
    }

    fn free(&self, address: u64) -> std::result::Result<(), String> {
        let release = || self.device.memory.release(address, |kind| kind == Kind::Heap);
        let released = thread::in_call("free in device code", release);
        released.map(drop).ok_or_else(|| format!("free of {}", self.device.memory.describe(address)))
    }

    fn room(&self) -> u64 {
        self.device.memory.free_and_total().0
    }

    fn texture(&self, handle: u64) -> Option<Arc<ptx_exec::Texture>> {
        crate::image::texture_object::texture(handle)
    }

    fn surface(&self, handle: u64) -> Option<ptx_exec::Image> {
        crate::image::texture_object::surface(handle)
    }

    fn is_constant(&self, address: u64) -> bool {
        self.device.memory.find(address).is_some_and(|found| found.is_constant())
    }

    fn can_start_thread(&self) -> bool {
        headroom::for_thread()
    }

    fn shadow(&self, address: u64) -> Option<Arc<Shadow>> {
        self.device.memory.shadow(address)
    }

    fn runtime(&self) -> Option<&dyn ptx_exec::DeviceRuntime> {
        Some(self.runtime)
    }

    fn print(&self, text: &[u8]) {
        use std::io::Write;
        // A program that has closed its output loses it; the kernel goes on.
        let mut output = std::io::stdout().lock();
        let _ = output.write_all(text).and_then(|()| output.flush());
    }
}
