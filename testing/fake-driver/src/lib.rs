//! A `libcuda.so.1` without a GPU, for the tests and the benchmark of `apex-interpose`.
//!
//! It exports the whole table. Entry points that it does not implement *echo*: they keep what they
//! were called with for [`echo::fake_echo`] and return [`echo::ECHO`]. Those that it implements
//! keep to the driver's documentation, with handles that are reused as soon as they are free, a GPU
//! whose time is computed ([`work`]), and a conscience: what must not be done while a stream is
//! being captured is counted (`fake_violations`).
//!
//! | variable | what it makes of the driver |
//! | --- | --- |
//! | `FAKE_HIDES=1` | `cuGetProcAddress` returns addresses other than the exported ones |
//! | `FAKE_NAMELESS=1` | `cuFuncGetName` fails, as before CUDA 12.3 |
//! | `FAKE_SLOW=1` | work is done only when somebody waits for it |
//! | `FAKE_HOST_TIME=1` | calls take the host's time, and the GPU works beside it |
//! | `FAKE_BUSY=1` | launches and waits for a context take as long as real ones ([`busy`]) |
//! | `FAKE_REFUSES_AFTER=n` | launches after the first `n` are refused |
//! | `FAKE_REFUSES_DELAYS_AFTER=n` | launches of `apex_delay` after the first `n` are refused |
//! | `FAKE_MEMORY=n` | the device has `n` bytes |
//! | `FAKE_KEEPS_MEMORY=1` | frees of device memory are refused |
//! | `FAKE_LEAST_THREADS=n` | kernels in blocks of fewer than `n` threads take four times as long |
//! | `FAKE_NO_PTX=1` | the PTX of others does not load |

mod busy;
mod echo;
mod graph;
mod link;
mod lookup;
mod objects;
mod work;
mod world;

use cuda_abi::types::*;
use cuda_abi::{COUNT, index, signature};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// Calls of each entry point that is implemented.
static CALLS: [AtomicU64; COUNT] = [const { AtomicU64::new(0) }; COUNT];

/// Of these, how many answered that work is not done yet.
static NOT_READY: [AtomicU64; COUNT] = [const { AtomicU64::new(0) }; COUNT];

/// Targets of the exported symbols.
static SLOTS: [AtomicPtr<()>; COUNT] = slots();

cuda_abi::export_entry_points!(SLOTS);

/// Returns, for tests, the number of calls of the entry point at `index`.
#[unsafe(no_mangle)]
pub extern "C" fn fake_calls(index: usize) -> u64 {
    CALLS[index].load(Ordering::Relaxed)
}

/// Returns, for tests, the number of times that the entry point at `index` answered that work is
/// not done yet.
#[unsafe(no_mangle)]
pub extern "C" fn fake_not_ready(index: usize) -> u64 {
    NOT_READY[index].load(Ordering::Relaxed)
}

/// Returns, for tests, the number of calls that spoil a capture or use an event that is gone, and
/// of launches that followed a delay.
#[unsafe(no_mangle)]
pub extern "C" fn fake_violations() -> u64 {
    work::VIOLATIONS.load(Ordering::Relaxed)
}

fn count(index: usize) {
    CALLS[index].fetch_add(1, Ordering::Relaxed);
}

fn not_ready(index: usize) -> CUresult {
    NOT_READY[index].fetch_add(1, Ordering::Relaxed);
    CUDA_ERROR_NOT_READY
}

macro_rules! implemented {
    ($($symbol:ident => $module:ident::$function:ident,)*) => {
        const fn slots() -> [AtomicPtr<()>; COUNT] {
            let mut slots = [const { AtomicPtr::new(echo::stub as *mut ()) }; COUNT];
            $({
                const IMPLEMENTATION: signature::$symbol = $module::$function;
                slots[index::$symbol] = AtomicPtr::new(IMPLEMENTATION as *mut ());
            })*
            slots
        }
    };
}

implemented! {
    cuInit => lookup::init,
    cuDriverGetVersion => lookup::driver_version,
    cuGetProcAddress => lookup::get_proc_address,
    cuGetProcAddress_v2 => lookup::get_proc_address_v2,
    cuDeviceGetCount => lookup::device_count,
    cuDeviceGetName => lookup::device_name,
    cuDeviceGetUuid_v2 => lookup::device_uuid,
    cuDeviceTotalMem_v2 => lookup::device_memory,
    cuDeviceGetAttribute => lookup::device_attribute,
    cuPointerGetAttributes => lookup::pointer_attributes,

    cuCtxCreate_v2 => objects::create_context,
    cuCtxDestroy_v2 => objects::destroy_context,
    cuCtxSetCurrent => objects::set_current,
    cuCtxPushCurrent_v2 => objects::set_current,
    cuCtxGetCurrent => objects::get_current,
    cuCtxGetDevice => objects::get_device,
    cuDevicePrimaryCtxRetain => objects::retain_primary,
    cuDevicePrimaryCtxRelease_v2 => objects::release_primary,
    cuDevicePrimaryCtxReset_v2 => objects::release_primary,
    cuDevicePrimaryCtxGetState => objects::primary_state,
    cuDeviceGetDevResource => objects::device_resource,
    cuDevSmResourceSplitByCount => objects::split_resource,
    cuDevResourceGenerateDesc => objects::describe_resource,
    cuGreenCtxCreate => objects::create_green_context,
    cuCtxFromGreenCtx => objects::context_of_green,
    cuGreenCtxStreamCreate => objects::create_green_stream,
    cuModuleLoadData => objects::load_module,
    cuModuleUnload => objects::unload_module,
    cuModuleGetFunction => objects::get_function,
    cuLibraryLoadData => objects::load_library,
    cuLibraryUnload => objects::unload_library,
    cuLibraryGetKernel => objects::get_kernel,
    cuKernelGetFunction => objects::function_of_kernel,
    cuFuncGetName => objects::function_name,
    cuFuncGetAttribute => objects::function_attribute,
    cuFuncGetParamInfo => objects::parameter,
    cuFuncSetAttribute => objects::set_function_attribute,
    cuFuncSetBlockShape => objects::set_block_shape,
    cuFuncSetSharedSize => objects::set_shared_size,
    cuStreamCreate => objects::create_stream,
    cuStreamDestroy_v2 => objects::destroy_stream,
    cuStreamGetFlags => objects::stream_flags,
    cuStreamGetCtx => objects::stream_context,
    cuMemAlloc_v2 => objects::allocate,
    cuMemFree_v2 => objects::free,
    cuMemGetAddressRange_v2 => objects::address_range,
    cuLinkCreate_v2 => link::create,
    cuLinkAddData_v2 => link::add,
    cuLinkComplete => link::complete,
    cuLinkDestroy => link::destroy,
    cuMemHostRegister_v2 => objects::register,
    cuMemHostUnregister => objects::unregister,

    cuLaunchKernel => work::launch,
    cuLaunchKernel_ptsz => work::launch_per_thread,
    cuLaunchKernelEx => work::launch_ex,
    cuLaunchCooperativeKernel => work::launch_cooperative,
    cuLaunchGrid => work::launch_grid,
    cuMemcpyHtoDAsync_v2 => work::copy_to_device,
    cuMemcpyDtoDAsync_v2 => work::copy_on_device,
    cuMemcpyPeerAsync => work::copy_between_devices,
    cuMemcpyDtoH_v2 => work::copy_from_device,
    cuMemsetD32Async => work::set_32,
    cuEventCreate => work::create_event,
    cuEventDestroy_v2 => work::destroy_event,
    cuEventRecord => work::record_event,
    cuEventQuery => work::query_event,
    cuEventElapsedTime => work::elapsed,
    cuStreamQuery => work::query_stream,
    cuStreamSynchronize => work::synchronize_stream,
    cuCtxSynchronize => work::synchronize,
    cuLaunchHostFunc => work::host_function,

    cuStreamBeginCapture_v2 => graph::begin_capture,
    cuStreamEndCapture => graph::end_capture,
    cuStreamIsCapturing => graph::is_capturing,
    cuGraphInstantiateWithFlags => graph::instantiate,
    cuGraphExecUpdate_v2 => graph::update,
    cuGraphGetNodes => graph::nodes,
    cuGraphNodeGetType => graph::node_type,
    cuGraphKernelNodeGetParams_v2 => graph::kernel_parameters,
    cuGraphChildGraphNodeGetGraph => graph::child,
    cuGraphExecKernelNodeSetParams_v2 => graph::set_kernel_parameters,
    cuGraphNodeSetEnabled => graph::set_enabled,
    cuGraphLaunch => graph::launch,
    cuGraphExecDestroy => graph::destroy,
}

/// A C result.
fn result(outcome: Option<()>, failure: CUresult) -> CUresult {
    if outcome.is_some() { CUDA_SUCCESS } else { failure }
}
