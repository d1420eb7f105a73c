//! The real driver: the addresses of its entry points, and the calls that this library makes on its
//! own account.
//!
//! [`real`] gives, for each entry of the table, the address that the real driver exports, or that
//! of a stub that returns an error; never null once a driver was looked for. The functions below
//! are the only places where this library calls the driver for itself. Each says what it asks; none
//! of them locks, allocates on the device, synchronises or changes what the program sees, except
//! those of [`crate::calibration`], the event pairs and delays of [`crate::timing`], and what
//! [`crate::pool`] waits for and frees in the program's place.
//!
//! # Contract of the table
//! `real(i)` can be called with the signature that `cuda_abi::signature` gives for the symbol at
//! index `i`: it is the driver's own function of that name, or a stub that reads no arguments and
//! returns a `CUresult`.

use crate::hot::hot;
use crate::tables::push;
use apex_trace::definition::Device;
use cuda_abi::types::*;
use cuda_abi::{Plain, index};
use cuda_launch::{Carveout, Dim3, FunctionAttributes, LaunchConfig};
use std::ffi::{CStr, c_char, c_void};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::Ordering;

/// Where a parameter of a function lies in its parameter space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Bytes from the beginning.
    pub offset: u32,
    /// Bytes that it takes.
    pub bytes: u32,
}

/// The address of the real entry point at `index`; see the [module](self).
#[inline(always)]
pub fn real(index: usize) -> *mut () {
    hot().real[index].load(Ordering::Relaxed)
}

/// What stands in for an entry point that the real driver lacks. The one place to take its address
/// from: the compiler may make several copies of a function, each with an address of its own.
static MISSING: extern "C" fn() -> CUresult = missing;

extern "C" fn missing() -> CUresult {
    CUDA_ERROR_NOT_FOUND
}

/// Enters the address of an entry point of the real driver, or that it has none.
pub fn set_real(index: usize, address: Option<NonNull<()>>) {
    let address = address.map_or(MISSING as *mut (), NonNull::as_ptr);
    hot().real[index].store(address, Ordering::Release);
}

/// The real entry point at `index`.
///
/// # Safety
/// `F` is `cuda_abi::signature`'s type for the symbol at `index`.
#[inline(always)]
pub unsafe fn real_at<F: Copy>(index: usize) -> F {
    const { assert!(size_of::<F>() == size_of::<*mut ()>()) };
    let address = real(index);
    // SAFETY: of the right size; by the table's contract the address can be called as `F`. This is
    // only reached after the table was filled: through a hook, which gets into a slot later than
    // its address into the table.
    unsafe { std::mem::transmute_copy::<*mut (), F>(&address) }
}

/// The real entry point of this name, typed.
macro_rules! real {
    ($name:ident) => {
        $crate::driver::real_at::<cuda_abi::signature::$name>(cuda_abi::index::$name)
    };
}

mod chain;

pub use chain::{Chain, ChainedKernel, function_of};

/// Whether the real driver has the entry point at `index`.
pub fn has(index: usize) -> bool {
    real(index) != MISSING as *mut ()
}

fn succeeds(result: CUresult) -> bool {
    result == CUDA_SUCCESS
}

/// The calling thread's current context; null without one.
pub fn current_context() -> CUcontext {
    let mut context = null_mut();
    // SAFETY: the out-parameter is valid.
    if succeeds(unsafe { real!(cuCtxGetCurrent)(&mut context) }) { context } else { null_mut() }
}

/// Makes `context` the calling thread's current one.
pub fn set_current_context(context: CUcontext) {
    // SAFETY: a context that was current in a thread of the program; the driver refuses one that
    // has ended.
    unsafe { real!(cuCtxSetCurrent)(context) };
}

/// The device of the current context.
pub fn current_device() -> Option<CUdevice> {
    let mut device = 0;
    // SAFETY: the out-parameter is valid.
    succeeds(unsafe { real!(cuCtxGetDevice)(&mut device) }).then_some(device)
}

/// Whether the primary context of `device` is in use.
pub fn primary_context_is_active(device: CUdevice) -> bool {
    let (mut flags, mut active) = (0, 0);
    // SAFETY: the out-parameters are valid.
    let result = unsafe { real!(cuDevicePrimaryCtxGetState)(device, &mut flags, &mut active) };
    succeeds(result) && active != 0
}

/// Attributes from which occupancy, rooflines and the advice are worked out.
const DEVICE_ATTRIBUTES: &[CUdevice_attribute] = &[
    CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
    CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X,
    CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y,
    CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z,
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK,
    CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY,
    CU_DEVICE_ATTRIBUTE_WARP_SIZE,
    CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK,
    CU_DEVICE_ATTRIBUTE_CLOCK_RATE,
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
    CU_DEVICE_ATTRIBUTE_INTEGRATED,
    CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS,
    CU_DEVICE_ATTRIBUTE_ECC_ENABLED,
    CU_DEVICE_ATTRIBUTE_PCI_BUS_ID,
    CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID,
    CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID,
    CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE,
    CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH,
    CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE,
    CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
    CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
    CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR,
    CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO,
    CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH,
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
    CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR,
    CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE,
    CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK,
    CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH,
];

/// Everything that is recorded of a device, its identifier left 0.
pub fn describe_device(device: CUdevice) -> Device {
    let mut name = [0 as c_char; 256];
    let mut uuid = CUuuid::zeroed();
    let (mut total, mut version) = (0, 0);
    // SAFETY: the out-parameters are valid, and the name has the length that is stated.
    unsafe {
        real!(cuDeviceGetName)(name.as_mut_ptr(), name.len() as i32 - 1, device);
        real!(cuDeviceGetUuid_v2)(&mut uuid, device);
        real!(cuDeviceTotalMem_v2)(&mut total, device);
        real!(cuDriverGetVersion)(&mut version);
    }
    let attribute = |&attribute: &CUdevice_attribute| {
        let mut value = 0;
        // SAFETY: the out-parameter is valid.
        succeeds(unsafe { real!(cuDeviceGetAttribute)(&mut value, attribute, device) })
            .then_some((attribute, value))
    };
    Device {
        id: 0,
        ordinal: device as u32,
        // SAFETY: the array ends with a zero that the driver was not told of.
        name: unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned(),
        uuid: uuid.bytes.map(|byte| byte as u8),
        driver_version: version as u32,
        memory_bytes: total as u64,
        attributes: DEVICE_ATTRIBUTES.iter().filter_map(attribute).collect(),
    }
}

/// Whether `stream`, or the work of the calling thread on it, is being captured. Not to be asked of
/// the legacy default stream, which can't be captured.
pub fn is_capturing(stream: CUstream) -> bool {
    let mut status = CU_STREAM_CAPTURE_STATUS_NONE;
    // SAFETY: the out-parameter is valid; the program has just used the stream.
    succeeds(unsafe { real!(cuStreamIsCapturing)(stream, &mut status) })
        && status != CU_STREAM_CAPTURE_STATUS_NONE
}

/// The flags of a stream that the program made. Not to be asked of a stream that is capturing: it
/// ends the capture.
pub fn stream_flags(stream: CUstream) -> Option<u32> {
    let mut flags = 0;
    // SAFETY: the out-parameter is valid; the program has just used the stream with success.
    succeeds(unsafe { real!(cuStreamGetFlags)(stream, &mut flags) }).then_some(flags)
}

/// The context of a stream that the program made.
pub fn stream_context(stream: CUstream) -> Option<CUcontext> {
    let mut context = null_mut();
    // SAFETY: the out-parameter is valid; the program has just used the stream with success.
    succeeds(unsafe { real!(cuStreamGetCtx)(stream, &mut context) }).then_some(context)
}

/// The function of a library's kernel in the current context.
pub fn function_of_kernel(kernel: CUkernel) -> Option<CUfunction> {
    let mut function = null_mut();
    // SAFETY: the out-parameter is valid; the program got the kernel from the driver and has just
    // launched it.
    succeeds(unsafe { real!(cuKernelGetFunction)(&mut function, kernel) }).then_some(function)
}

/// The module of a function, or of a library's kernel, in the current context.
pub fn module_of(function: CUfunction) -> Option<CUmodule> {
    let ask = |function| {
        let mut module = null_mut();
        // SAFETY: the out-parameter is valid; the function was launched with success, or comes from
        // a kernel that was.
        succeeds(unsafe { real!(cuFuncGetModule)(&mut module, function) }).then_some(module)
    };
    ask(function).or_else(|| ask(function_of_kernel(function.cast())?))
}

/// The architecture of the current device, or of the first one: 90 for compute capability 9.0; 0 if
/// the driver does not tell.
pub fn architecture() -> u32 {
    let device = current_device().unwrap_or(0);
    let ask = |attribute| {
        let mut value = 0;
        // SAFETY: the out-parameter is valid.
        succeeds(unsafe { real!(cuDeviceGetAttribute)(&mut value, attribute, device) })
            .then_some(value as u32)
    };
    let major = ask(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR).unwrap_or(0);
    10 * major + ask(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR).unwrap_or(0)
}

/// Whether the driver can tell where a function's parameters lie (12.4 and later).
pub fn tells_parameters() -> bool {
    has(index::cuFuncGetParamInfo)
}

/// Where the parameters of a function, or of a library's kernel, lie in its parameter space; `None`
/// if the driver does not tell, or if there are more than `most`.
pub fn parameters(function: CUfunction, most: usize) -> Option<Vec<Parameter>> {
    // A kernel is not a function to every query, but its function has the same parameters.
    let function = function_of(function)?;
    let mut parameters = Vec::new();
    loop {
        let (mut offset, mut bytes) = (0, 0);
        // SAFETY: the out-parameters are valid; the function was launched with success, or comes
        // from a kernel that was.
        match unsafe { real!(cuFuncGetParamInfo)(function, parameters.len(), &mut offset, &mut bytes) } {
            CUDA_SUCCESS if parameters.len() < most => {}
            // One past the last.
            CUDA_ERROR_INVALID_VALUE => return Some(parameters),
            _ => return None,
        }
        let parameter = Parameter { offset: u32::try_from(offset).ok()?, bytes: u32::try_from(bytes).ok()? };
        if !push(&mut parameters, parameter) {
            return None;
        }
    }
}

/// Whether `bytes` from `address` on lie in one living allocation of device memory.
pub fn is_allocated(address: CUdeviceptr, bytes: usize) -> bool {
    let end = address.checked_add(bytes as u64);
    allocation_around(address).zip(end).is_some_and(|((base, size), end)| end <= base + size as u64)
}

/// The living allocation in which `address` lies: where it begins, and its bytes.
pub fn allocation_around(address: CUdeviceptr) -> Option<(CUdeviceptr, usize)> {
    let (mut base, mut size) = (0, 0);
    // SAFETY: the out-parameters are valid; the address is only looked up.
    let result = unsafe { real!(cuMemGetAddressRange_v2)(&mut base, &mut size, address) };
    succeeds(result).then_some((base, size))
}

/// Waits for everything in the current context.
pub fn synchronize() -> CUresult {
    // SAFETY: takes no arguments.
    unsafe { real!(cuCtxSynchronize)() }
}

/// Frees device memory that was allocated in `context`. The captures of other threads do not mind.
pub fn free_device_memory(context: CUcontext, address: CUdeviceptr) -> CUresult {
    let is_current = current_context() == context;
    let mut mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    let mut popped = null_mut();
    // SAFETY: the out-parameters are valid. The program has freed the memory, and nothing else
    // frees it. The driver refuses a context that has ended. The thread's context and mode are put
    // back.
    unsafe {
        if !is_current && !succeeds(real!(cuCtxPushCurrent_v2)(context)) {
            return CUDA_ERROR_INVALID_CONTEXT;
        }
        real!(cuThreadExchangeStreamCaptureMode)(&mut mode);
        let result = real!(cuMemFree_v2)(address);
        real!(cuThreadExchangeStreamCaptureMode)(&mut mode);
        if !is_current {
            real!(cuCtxPopCurrent_v2)(&mut popped);
        }
        result
    }
}

/// A function's name, if the driver can tell it (12.3 and later).
pub fn function_name(function: CUfunction) -> Option<String> {
    let mut name: *const c_char = std::ptr::null();
    // SAFETY: the out-parameter is valid; the function was launched with success, or comes from a
    // kernel that was.
    let result = unsafe { real!(cuFuncGetName)(&mut name, function) };
    // SAFETY: the driver gave a string, which lives as long as the function.
    (succeeds(result) && !name.is_null()).then(|| unsafe { string(name) })
}

/// An attribute of a function; `None` of a library's kernel, which is none.
fn function_attribute(function: CUfunction, attribute: CUfunction_attribute) -> Option<i32> {
    let mut value = 0;
    // SAFETY: the out-parameter is valid; the function was launched with success, or comes from a
    // kernel that was.
    succeeds(unsafe { real!(cuFuncGetAttribute)(&mut value, attribute, function) }).then_some(value)
}

/// The attributes of a function; `None` of a library's kernel, which is none.
pub fn function_attributes(function: CUfunction) -> Option<FunctionAttributes> {
    let attribute = |which| function_attribute(function, which);
    let size = |which| attribute(which).unwrap_or(0) as u32;
    let carveout = attribute(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT);
    Some(FunctionAttributes {
        registers: attribute(CU_FUNC_ATTRIBUTE_NUM_REGS)? as u32,
        static_shared_bytes: size(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES),
        local_bytes: size(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES),
        constant_bytes: size(CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES),
        max_threads_per_block: size(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
        max_dynamic_shared_bytes: Some(size(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)),
        carveout: carveout.map_or(Carveout::Default, Carveout::from_attribute),
        barriers: 0,
        binary_version: size(CU_FUNC_ATTRIBUTE_BINARY_VERSION),
        ptx_version: size(CU_FUNC_ATTRIBUTE_PTX_VERSION),
    })
}

/// The nodes of a graph.
pub fn graph_nodes(graph: CUgraph) -> Vec<CUgraphNode> {
    let mut count = 0;
    // SAFETY: with a null array the driver only counts; the program has just used the graph with
    // success.
    if !succeeds(unsafe { real!(cuGraphGetNodes)(graph, null_mut(), &mut count) }) {
        return Vec::new();
    }
    let mut nodes = Vec::new();
    if nodes.try_reserve_exact(count).is_err() {
        return nodes;
    }
    nodes.resize(count, null_mut());
    // SAFETY: the array has room for `count` nodes.
    let result = unsafe { real!(cuGraphGetNodes)(graph, nodes.as_mut_ptr(), &mut count) };
    nodes.truncate(if succeeds(result) { count } else { 0 });
    nodes
}

/// What a kernel node launches.
pub struct Kernel {
    /// A function, or a library's kernel.
    pub function: CUfunction,
    /// The context that the node names, null for the current one.
    pub context: CUcontext,
    /// How it is launched; clusters are an attribute of the node ([`node_cluster`]).
    pub launch: LaunchConfig,
}

/// What a graph's node is.
pub enum Node {
    /// A kernel's launch.
    Kernel(Kernel),
    /// A graph of its own.
    Graph(CUgraph),
    /// A copy.
    Copy,
    /// A set.
    Set,
    /// Something else that the host knows of: events, host functions, allocations.
    Other,
    /// Something of which the host can't know what it does.
    Opaque,
}

/// What `node`, of a graph that the program has just used, is.
pub fn describe_node(node: CUgraphNode) -> Node {
    let mut kind = 0;
    // SAFETY: the out-parameter is valid, and so is the node.
    if !succeeds(unsafe { real!(cuGraphNodeGetType)(node, &mut kind) }) {
        return Node::Opaque;
    }
    match kind {
        CU_GRAPH_NODE_TYPE_KERNEL => node_kernel(node).map_or(Node::Opaque, Node::Kernel),
        CU_GRAPH_NODE_TYPE_GRAPH => node_graph(node).map_or(Node::Opaque, Node::Graph),
        CU_GRAPH_NODE_TYPE_MEMCPY => Node::Copy,
        CU_GRAPH_NODE_TYPE_MEMSET => Node::Set,
        CU_GRAPH_NODE_TYPE_CONDITIONAL => Node::Opaque,
        _ => Node::Other,
    }
}

fn node_kernel(node: CUgraphNode) -> Option<Kernel> {
    if has(index::cuGraphKernelNodeGetParams_v2) {
        let mut parameters = CUDA_KERNEL_NODE_PARAMS::zeroed();
        // SAFETY: the out-parameter is valid, and the node is a kernel's.
        let result = unsafe { real!(cuGraphKernelNodeGetParams_v2)(node, &mut parameters) };
        return succeeds(result).then(|| kernel_of(&parameters));
    }
    let mut parameters = CUDA_KERNEL_NODE_PARAMS_v1::zeroed();
    // SAFETY: as above.
    let result = unsafe { real!(cuGraphKernelNodeGetParams)(node, &mut parameters) };
    succeeds(result).then(|| kernel_of_v1(&parameters))
}

fn node_graph(node: CUgraphNode) -> Option<CUgraph> {
    let mut graph = null_mut();
    // SAFETY: the out-parameter is valid, and the node holds a graph.
    succeeds(unsafe { real!(cuGraphChildGraphNodeGetGraph)(node, &mut graph) }).then_some(graph)
}

/// The cluster of a kernel node; zeros without one.
pub fn node_cluster(node: CUgraphNode) -> Dim3 {
    let mut value = CUlaunchAttributeValue::zeroed();
    // SAFETY: the out-parameter is valid, and the node is a kernel's. The driver fills in the
    // member of the union that the attribute names.
    unsafe {
        let attribute = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        if !succeeds(real!(cuGraphKernelNodeGetAttribute)(node, attribute, &mut value)) {
            return Dim3::ZERO;
        }
        Dim3::new(value.clusterDim.x, value.clusterDim.y, value.clusterDim.z)
    }
}

/// What parameters without a kernel or context say.
pub fn kernel_of_v1(parameters: &CUDA_KERNEL_NODE_PARAMS_v1) -> Kernel {
    Kernel {
        function: parameters.func,
        context: null_mut(),
        launch: LaunchConfig {
            grid: Dim3::new(parameters.gridDimX, parameters.gridDimY, parameters.gridDimZ),
            block: Dim3::new(parameters.blockDimX, parameters.blockDimY, parameters.blockDimZ),
            cluster: Dim3::ZERO,
            dynamic_shared_bytes: parameters.sharedMemBytes,
        },
    }
}

/// What parameters say. A kernel counts only where there is no function.
pub fn kernel_of(parameters: &CUDA_KERNEL_NODE_PARAMS) -> Kernel {
    let has_function = !parameters.func.is_null();
    Kernel {
        function: if has_function { parameters.func } else { parameters.kern.cast() },
        context: if has_function { null_mut() } else { parameters.ctx },
        launch: LaunchConfig {
            grid: Dim3::new(parameters.gridDimX, parameters.gridDimY, parameters.gridDimZ),
            block: Dim3::new(parameters.blockDimX, parameters.blockDimY, parameters.blockDimZ),
            cluster: Dim3::ZERO,
            dynamic_shared_bytes: parameters.sharedMemBytes,
        },
    }
}

/// What parameters inside [`CUgraphNodeParams`] say: the same fields again.
pub fn kernel_of_v3(parameters: &CUDA_KERNEL_NODE_PARAMS_v3) -> Kernel {
    let &CUDA_KERNEL_NODE_PARAMS_v3 {
        func,
        gridDimX,
        gridDimY,
        gridDimZ,
        blockDimX,
        blockDimY,
        blockDimZ,
        ..
    } = parameters;
    let &CUDA_KERNEL_NODE_PARAMS_v3 { sharedMemBytes, kernelParams, extra, kern, ctx, .. } = parameters;
    kernel_of(&CUDA_KERNEL_NODE_PARAMS {
        func,
        gridDimX,
        gridDimY,
        gridDimZ,
        blockDimX,
        blockDimY,
        blockDimZ,
        sharedMemBytes,
        kernelParams,
        extra,
        kern,
        ctx,
    })
}

/// The cluster that a function, or a library's kernel, was compiled for; zeros if for none. The
/// program has launched it with success.
pub fn required_cluster(function: CUfunction) -> Dim3 {
    let sizes = [
        CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH,
        CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT,
        CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH,
    ];
    let of = |function| sizes.map(|size| function_attribute(function, size));
    let found = match of(function) {
        [None, ..] => function_of_kernel(function.cast()).map_or([None; 3], of),
        found => found,
    };
    found.map(|size| size.unwrap_or(0) as u32).into()
}

/// What the driver says of an address: its memory type and whether it is managed; zeros for memory
/// that it does not know.
pub fn pointer_attributes(address: CUdeviceptr) -> (CUmemorytype, bool) {
    let (mut kind, mut managed): (CUmemorytype, u32) = (0, 0);
    let mut attributes = [CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED];
    let mut values = [(&raw mut kind).cast::<c_void>(), (&raw mut managed).cast::<c_void>()];
    // SAFETY: two attributes and two places of four bytes for their values; the address is only
    // looked up.
    let result =
        unsafe { real!(cuPointerGetAttributes)(2, attributes.as_mut_ptr(), values.as_mut_ptr(), address) };
    if succeeds(result) { (kind, managed != 0) } else { (0, false) }
}

/// A C string, cut to what is kept of names.
///
/// # Safety
/// `text` is a C string.
pub unsafe fn string(text: *const c_char) -> String {
    // SAFETY: by contract.
    let bytes = unsafe { CStr::from_ptr(text) }.to_bytes();
    String::from_utf8_lossy(&bytes[..bytes.len().min(crate::limits::NAME_BYTES)]).into_owned()
}

/// Whether the driver can tell functions' names.
pub fn tells_names() -> bool {
    has(index::cuFuncGetName)
}

/// A new event that can be timed with.
pub fn create_event() -> Option<CUevent> {
    let mut event = null_mut();
    // SAFETY: the out-parameter is valid.
    succeeds(unsafe { real!(cuEventCreate)(&mut event, CU_EVENT_DEFAULT) }).then_some(event)
}

/// Records an event of ours on a stream; false if the driver refuses.
pub fn record_event(event: CUevent, stream: CUstream) -> bool {
    // SAFETY: an event of ours in a living context; the program is about to use, or has just used,
    // the stream.
    succeeds(unsafe { real!(cuEventRecord)(event, stream) })
}

/// Whether the GPU has not come to an event of ours yet, which was recorded.
pub fn is_pending(event: CUevent) -> bool {
    // SAFETY: an event of ours in a living context.
    let result = unsafe { real!(cuEventQuery)(event) };
    result == CUDA_ERROR_NOT_READY
}

/// Launches a kernel of ours as a single thread; false if the driver refuses.
///
/// # Safety
/// The kernel is in a living context, and takes nothing, or the one number that is given.
pub unsafe fn launch_thread(kernel: CUfunction, number: Option<u32>, stream: CUstream) -> bool {
    let mut number = number;
    let mut parameters = number.as_mut().map(|number| (&raw mut *number).cast::<c_void>());
    let parameters = parameters.as_mut().map_or(null_mut(), |parameters| &raw mut *parameters);
    // SAFETY: by contract; the program is about to use the stream, or it is ours. The driver copies
    // the parameter before it returns.
    succeeds(unsafe { real!(cuLaunchKernel)(kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, null_mut()) })
}

/// Whether all work on a stream is done.
pub fn is_idle(stream: CUstream) -> bool {
    // SAFETY: the program is about to use the stream.
    succeeds(unsafe { real!(cuStreamQuery)(stream) })
}

/// Nanoseconds between two events of ours that were recorded; `Err(true)` if they are not both done
/// yet, `Err(false)` if there will never be an answer.
pub fn elapsed_ns(before: CUevent, after: CUevent) -> Result<u64, bool> {
    let mut milliseconds = 0.0_f32;
    // SAFETY: the out-parameter is valid; events of ours in a living context.
    match unsafe { real!(cuEventElapsedTime)(&mut milliseconds, before, after) } {
        CUDA_SUCCESS => Ok((f64::from(milliseconds) * 1e6).max(0.0) as u64),
        CUDA_ERROR_NOT_READY => Err(true),
        _ => Err(false),
    }
}

/// A stream, a module and event pairs of our own in the current context, for calibration. All of it
/// is released when dropped, but for a module that is [kept](Scratch::keep_module).
pub struct Scratch {
    stream: CUstream,
    module: CUmodule,
    pairs: Vec<[CUevent; 2]>,
}

impl Scratch {
    /// Loads `ptx`.
    pub fn new(ptx: &CStr, pairs: usize) -> Option<Scratch> {
        let mut scratch =
            Scratch { stream: null_mut(), module: null_mut(), pairs: Vec::with_capacity(pairs) };
        // SAFETY: the out-parameters are valid, and the text is a C string.
        let made = unsafe {
            succeeds(real!(cuStreamCreate)(&mut scratch.stream, CU_STREAM_NON_BLOCKING))
                && succeeds(real!(cuModuleLoadData)(&mut scratch.module, ptx.as_ptr().cast()))
        };
        for _ in 0..pairs {
            scratch.pairs.push([create_event()?, create_event()?]);
        }
        made.then_some(scratch)
    }

    /// A kernel of the module.
    pub fn kernel(&self, name: &CStr) -> Option<CUfunction> {
        let mut kernel = null_mut();
        // SAFETY: the out-parameter is valid; a module of ours, and a C string.
        let result = unsafe { real!(cuModuleGetFunction)(&mut kernel, self.module, name.as_ptr()) };
        succeeds(result).then_some(kernel)
    }

    /// Launches a kernel as a single thread.
    ///
    /// # Safety
    /// A kernel of the module that takes nothing, or the one number that is given.
    pub unsafe fn launch(&self, kernel: CUfunction, number: Option<u32>) -> Option<()> {
        // SAFETY: by contract; the stream and the module are ours.
        unsafe { launch_thread(kernel, number, self.stream) }.then_some(())
    }

    /// The same between the two events of a pair.
    ///
    /// # Safety
    /// As for [`Scratch::launch`].
    pub unsafe fn launch_between_events(
        &self,
        pair: usize,
        kernel: CUfunction,
        number: Option<u32>,
    ) -> Option<()> {
        let [before, after] = self.pairs[pair];
        record_event(before, self.stream).then_some(())?;
        // SAFETY: by contract.
        unsafe { self.launch(kernel, number) }?;
        record_event(after, self.stream).then_some(())
    }

    /// Whether the GPU has not come to the first event of a pair yet.
    pub fn is_pending(&self, pair: usize) -> bool {
        is_pending(self.pairs[pair][0])
    }

    /// Leaves the module to the context, with which it ends.
    pub fn keep_module(&mut self) {
        self.module = null_mut();
    }

    /// Waits for the stream.
    pub fn wait(&self) -> Option<()> {
        // SAFETY: a stream of ours.
        succeeds(unsafe { real!(cuStreamSynchronize)(self.stream) }).then_some(())
    }

    /// What a pair read, nanoseconds.
    pub fn elapsed_ns(&self, pair: usize) -> Option<u64> {
        let [before, after] = self.pairs[pair];
        elapsed_ns(before, after).ok()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // SAFETY: objects of ours, each released once; null where it was never made.
        unsafe {
            for event in self.pairs.drain(..).flatten() {
                real!(cuEventDestroy_v2)(event);
            }
            if !self.module.is_null() {
                real!(cuModuleUnload)(self.module);
            }
            if !self.stream.is_null() {
                real!(cuStreamDestroy_v2)(self.stream);
            }
        }
    }
}
