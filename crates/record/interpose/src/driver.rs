//! The real driver: the addresses of its entry points, and the calls that this library makes on its
//! own account.
//!
//! [`real`] gives, for each entry of the table, the address that the real driver exports, or that
//! of a stub that returns an error; never null once a driver was looked for. Only the functions of
//! this module call the driver on the library's own account: queries here, graph nodes in
//! `graph_nodes`, graphs of the library's own in `chain`, events and delays in `events`. None of
//! them locks, allocates on the device, synchronises or changes what the program sees, except those
//! of [`crate::calibration`], the event pairs and delays of [`crate::timing`], the joined kernels
//! that [`crate::actions::fusion`] loads, the waits and frees
//! of [`crate::actions::pool`] in the program's place, and the waits and reads of
//! [`crate::actions::results`].
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
use cuda_launch::{Carveout, Dim3, FunctionAttributes};
use std::ffi::{CStr, c_char, c_void};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::Ordering;

/// The position of a function's parameter in its parameter space.
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

/// Stands in for an entry point that the real driver lacks. The one place to take its address from:
/// the compiler may make several copies of a function, each with an address of its own.
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
mod events;
mod graph_nodes;

pub use chain::{Chain, ChainedKernel, function_of};
pub use events::{
    Scratch, create_event, destroy_event, elapsed_ns, is_idle, is_pending, launch_thread, load_kernel,
    record_event,
};
pub use graph_nodes::{
    Kernel, Node, describe_node, graph_nodes, kernel_of, kernel_of_v1, kernel_of_v3, node_cluster,
};

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

/// The name of each device of the process, and the driver's version; empty if the driver does not
/// tell.
pub fn all_devices() -> Vec<(String, u32)> {
    let mut count = 0;
    // SAFETY: the out-parameter is valid.
    let is_known = succeeds(unsafe { real!(cuDeviceGetCount)(&mut count) });
    let describe = |device| {
        let Device { name, driver_version, .. } = describe_device(device);
        (name, driver_version)
    };
    (0..count).filter(|_| is_known).map(describe).collect()
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

/// The version of the driver's interface: 13000 for 13.0; 0 if it does not tell.
pub fn version() -> i32 {
    let mut version = 0;
    // SAFETY: the out-parameter is valid.
    if succeeds(unsafe { real!(cuDriverGetVersion)(&mut version) }) { version } else { 0 }
}

/// Whether the driver can tell where a function's parameters lie (12.4 and later).
pub fn tells_parameters() -> bool {
    has(index::cuFuncGetParamInfo)
}

/// Returns the positions of the parameters of a function, or of a library's kernel, in its
/// parameter space; `None` if the driver does not tell, or if there are more than `most`.
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

/// Waits for the work on a stream, which the program has just used with success.
pub fn finish(stream: CUstream) -> bool {
    // SAFETY: by contract.
    succeeds(unsafe { real!(cuStreamSynchronize)(stream) })
}

/// Reads device memory that was allocated in `context`, once the work there is done; false if it
/// cannot be read. The captures of other threads do not mind.
pub fn read_device_memory(context: CUcontext, address: CUdeviceptr, to: &mut [u8]) -> bool {
    let mut mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    let mut popped = null_mut();
    // SAFETY: the out-parameters are valid, and `to` is as long as is said; the driver refuses
    // memory and a context that have ended. The thread's context and mode are put back.
    unsafe {
        if !succeeds(real!(cuCtxPushCurrent_v2)(context)) {
            return false;
        }
        real!(cuThreadExchangeStreamCaptureMode)(&mut mode);
        let result = match real!(cuCtxSynchronize)() {
            CUDA_SUCCESS => real!(cuMemcpyDtoH_v2)(to.as_mut_ptr().cast(), address, to.len()),
            failed => failed,
        };
        real!(cuThreadExchangeStreamCaptureMode)(&mut mode);
        real!(cuCtxPopCurrent_v2)(&mut popped);
        succeeds(result)
    }
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

/// What the driver knows of an address.
pub struct PointerAttributes {
    /// The type of its memory; 0 if it is unknown.
    pub kind: CUmemorytype,
    /// Whether its memory is managed.
    pub managed: bool,
    /// The ordinal of the device on which it was allocated, or for which it was registered.
    pub device: i32,
}

/// Asks what an address is.
pub fn pointer_attributes(address: CUdeviceptr) -> PointerAttributes {
    let (mut kind, mut managed, mut device): (CUmemorytype, u32, i32) = (0, 0, CU_DEVICE_INVALID);
    let mut attributes = [
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
    ];
    let mut values = [
        (&raw mut kind).cast::<c_void>(),
        (&raw mut managed).cast::<c_void>(),
        (&raw mut device).cast::<c_void>(),
    ];
    let count = attributes.len() as u32;
    // SAFETY: three attributes and three places of four bytes for their values; the address is only
    // looked up.
    let result = unsafe {
        real!(cuPointerGetAttributes)(count, attributes.as_mut_ptr(), values.as_mut_ptr(), address)
    };
    match succeeds(result) {
        true => PointerAttributes { kind, managed: managed != 0, device },
        false => PointerAttributes { kind: 0, managed: false, device: CU_DEVICE_INVALID },
    }
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
