//! Names and meanings of the codes that the driver returns. The names come with the table; the
//! meanings are ours.

use crate::constants::{RESULT_NAMES, *};
use crate::types::CUresult;

/// A code's name: `CUDA_ERROR_OUT_OF_MEMORY` for 2. `None` where the table does not know the code.
pub fn result_name(code: CUresult) -> Option<&'static str> {
    let at = RESULT_NAMES.binary_search_by_key(&code, |known| known.0).ok()?;
    Some(RESULT_NAMES[at].1)
}

/// Returns the meaning of a code, in one line. `None` where this crate does not know the code.
///
/// Codes that say "the context is lost" leave nothing of the context usable: every later call
/// returns them too.
pub fn result_description(code: CUresult) -> Option<&'static str> {
    Some(match code {
        CUDA_SUCCESS => "done; of a query: what was asked about has finished",
        CUDA_ERROR_INVALID_VALUE => "an argument is out of range, null or inconsistent",
        CUDA_ERROR_OUT_OF_MEMORY => "no memory left, on the device or for the driver's own needs",
        CUDA_ERROR_NOT_INITIALIZED => "cuInit has not been called, or failed",
        CUDA_ERROR_DEINITIALIZED => "the driver is shutting down with the process",
        CUDA_ERROR_PROFILER_DISABLED => "an external profiler holds the device's profiler",
        CUDA_ERROR_PROFILER_NOT_INITIALIZED => {
            "the profiler was used before it was set up (no longer returned)"
        }
        CUDA_ERROR_PROFILER_ALREADY_STARTED => "the profiler was started twice (no longer returned)",
        CUDA_ERROR_PROFILER_ALREADY_STOPPED => "the profiler was stopped twice (no longer returned)",
        CUDA_ERROR_STUB_LIBRARY => "the libcuda that was loaded is the toolkit's link-time stub, no driver",
        CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER => "the installed driver is too old for this call",
        CUDA_ERROR_DEVICE_UNAVAILABLE => "the device is taken, or its compute mode forbids a context",
        CUDA_ERROR_MULTICAST_RESOURCE_FULL => "the hardware has no room for another multicast binding",
        CUDA_ERROR_NO_DEVICE => "no CUDA device is visible",
        CUDA_ERROR_INVALID_DEVICE => "no device has this ordinal, or it cannot do what was asked",
        CUDA_ERROR_DEVICE_NOT_LICENSED => "the virtual GPU has no licence",
        CUDA_ERROR_INVALID_IMAGE => "the module is no valid PTX, cubin or fatbin",
        CUDA_ERROR_INVALID_CONTEXT => "no context is current on this thread, or the one given is none",
        CUDA_ERROR_CONTEXT_ALREADY_CURRENT => "the context is current already (no longer returned)",
        CUDA_ERROR_MAP_FAILED => "memory or a resource could not be mapped or registered",
        CUDA_ERROR_UNMAP_FAILED => "memory or a resource could not be unmapped",
        CUDA_ERROR_ARRAY_IS_MAPPED => "the array is mapped, so it cannot be destroyed",
        CUDA_ERROR_ALREADY_MAPPED => "the resource is mapped already",
        CUDA_ERROR_NO_BINARY_FOR_GPU => "the module has no code for this device's architecture",
        CUDA_ERROR_ALREADY_ACQUIRED => "the resource is held by somebody already",
        CUDA_ERROR_NOT_MAPPED => "the resource is not mapped",
        CUDA_ERROR_NOT_MAPPED_AS_ARRAY => "the resource is mapped, but not as an array",
        CUDA_ERROR_NOT_MAPPED_AS_POINTER => "the resource is mapped, but not as linear memory",
        CUDA_ERROR_ECC_UNCORRECTABLE => "device memory had an error that ECC could not repair",
        CUDA_ERROR_UNSUPPORTED_LIMIT => "the device does not have this limit",
        CUDA_ERROR_CONTEXT_ALREADY_IN_USE => "the context is bound to another thread and allows only one",
        CUDA_ERROR_PEER_ACCESS_UNSUPPORTED => "these devices cannot reach each other's memory",
        CUDA_ERROR_INVALID_PTX => "the PTX does not compile; the JIT's error log says where",
        CUDA_ERROR_INVALID_GRAPHICS_CONTEXT => "the OpenGL or Direct3D context is unusable",
        CUDA_ERROR_NVLINK_UNCORRECTABLE => "NVLink had an error that it could not repair",
        CUDA_ERROR_JIT_COMPILER_NOT_FOUND => "the driver's PTX compiler library is missing",
        CUDA_ERROR_UNSUPPORTED_PTX_VERSION => "the PTX is newer than the driver's compiler",
        CUDA_ERROR_JIT_COMPILATION_DISABLED => "the module needs its PTX compiled, and that is switched off",
        CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY => "the device cannot give a context this execution affinity",
        CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC => {
            "the PTX calls cudaDeviceSynchronize on the device, which is gone"
        }
        CUDA_ERROR_CONTAINED => "an error in device code was contained; the context is lost",
        CUDA_ERROR_INSUFFICIENT_LOADER_VERSION => "the loader library is too old for this driver",
        CUDA_ERROR_INVALID_SOURCE => "the kernel's source does not compile",
        CUDA_ERROR_FILE_NOT_FOUND => "there is no such file",
        CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND => "a shared library that the driver needs lacks a symbol",
        CUDA_ERROR_SHARED_OBJECT_INIT_FAILED => "a shared library that the driver needs failed to start",
        CUDA_ERROR_OPERATING_SYSTEM => "a call to the operating system failed",
        CUDA_ERROR_INVALID_HANDLE => "the handle names nothing that is alive",
        CUDA_ERROR_ILLEGAL_STATE => "the resource is in no state to do this",
        CUDA_ERROR_LOSSY_QUERY => "the answer would not hold all there is to know: ask by the newer call",
        CUDA_ERROR_NOT_FOUND => "nothing of this name exists: symbol, kernel, texture or surface",
        CUDA_ERROR_NOT_READY => "the work asked about has not finished; no fault",
        CUDA_ERROR_ILLEGAL_ADDRESS => {
            "a kernel read or wrote an address that is not its own; the context is lost"
        }
        CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES => {
            "a block needs more registers, shared memory or threads than there are, or the arguments do not fit"
        }
        CUDA_ERROR_LAUNCH_TIMEOUT => {
            "a kernel ran longer than the display's watchdog allows; the context is lost"
        }
        CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING => "the kernel's texturing mode does not suit",
        CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => "access to this peer is enabled already",
        CUDA_ERROR_PEER_ACCESS_NOT_ENABLED => "access to this peer is not enabled",
        CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE => "the primary context exists already, so its flags are fixed",
        CUDA_ERROR_CONTEXT_IS_DESTROYED => "the current context was destroyed, or never came to life",
        CUDA_ERROR_ASSERT => "an assert in a kernel failed; the context is lost",
        CUDA_ERROR_TOO_MANY_PEERS => "the device has no room for another peer",
        CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED => "this host memory is registered already",
        CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED => "this host memory is not registered",
        CUDA_ERROR_HARDWARE_STACK_ERROR => {
            "a kernel's stack overflowed or was corrupted; the context is lost"
        }
        CUDA_ERROR_ILLEGAL_INSTRUCTION => {
            "a kernel met an instruction that does not exist; the context is lost"
        }
        CUDA_ERROR_MISALIGNED_ADDRESS => "a kernel's load or store was misaligned; the context is lost",
        CUDA_ERROR_INVALID_ADDRESS_SPACE => {
            "an instruction got an address of a memory space that it cannot reach; the context is lost"
        }
        CUDA_ERROR_INVALID_PC => "a kernel's program counter left its code; the context is lost",
        CUDA_ERROR_LAUNCH_FAILED => "a kernel died of a fault with no code of its own; the context is lost",
        CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE => {
            "a cooperative grid has more blocks than fit on the device at once"
        }
        CUDA_ERROR_TENSOR_MEMORY_LEAK => {
            "a kernel ended without freeing its tensor memory; the context is lost"
        }
        CUDA_ERROR_NOT_PERMITTED => "this is not allowed here",
        CUDA_ERROR_NOT_SUPPORTED => "this device, driver or system cannot do it",
        CUDA_ERROR_SYSTEM_NOT_READY => {
            "the system is not ready for CUDA: a driver daemon, the fabric manager say, is down"
        }
        CUDA_ERROR_SYSTEM_DRIVER_MISMATCH => "the kernel's driver and libcuda are of different versions",
        CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE => {
            "forward compatibility does not work with one of the visible devices"
        }
        CUDA_ERROR_MPS_CONNECTION_FAILED => "the MPS daemon or server cannot be reached",
        CUDA_ERROR_MPS_RPC_FAILURE => "a request to the MPS server failed",
        CUDA_ERROR_MPS_SERVER_NOT_READY => "the MPS server takes no requests yet, perhaps after a crash",
        CUDA_ERROR_MPS_MAX_CLIENTS_REACHED => "MPS has no room for another client",
        CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED => "MPS has no room for another connection to the device",
        CUDA_ERROR_MPS_CLIENT_TERMINATED => "the MPS server ended this client; the process must be restarted",
        CUDA_ERROR_CDP_NOT_SUPPORTED => {
            "the module launches kernels from the device, which does not work here"
        }
        CUDA_ERROR_CDP_VERSION_MISMATCH => "the module mixes two versions of dynamic parallelism",
        CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED => "this cannot be done while the stream is being captured",
        CUDA_ERROR_STREAM_CAPTURE_INVALIDATED => "an earlier error spoiled this capture",
        CUDA_ERROR_STREAM_CAPTURE_MERGE => {
            "this would join two captures that have nothing to do with each other"
        }
        CUDA_ERROR_STREAM_CAPTURE_UNMATCHED => "the capture did not begin in this stream",
        CUDA_ERROR_STREAM_CAPTURE_UNJOINED => {
            "a stream that forked off during the capture did not join again"
        }
        CUDA_ERROR_STREAM_CAPTURE_ISOLATION => "a dependency would cross the boundary of the capture",
        CUDA_ERROR_STREAM_CAPTURE_IMPLICIT => "the legacy default stream would have to wait for the capture",
        CUDA_ERROR_CAPTURED_EVENT => "the event was recorded during a capture, so it cannot be used outside",
        CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD => "the capture must end in the thread where it began",
        CUDA_ERROR_TIMEOUT => "the wait took longer than it was given",
        CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE => {
            "the graph changed more than an update may change: instantiate anew"
        }
        CUDA_ERROR_EXTERNAL_DEVICE => "a device other than the GPU failed, and work depends on it",
        CUDA_ERROR_INVALID_CLUSTER_SIZE => "the cluster's shape is not possible for this launch",
        CUDA_ERROR_FUNCTION_NOT_LOADED => "the kernel has not been loaded yet, and this call needs it to be",
        CUDA_ERROR_INVALID_RESOURCE_TYPE => "a resource is of a type that this call does not take",
        CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION => "the resources are too few, or do not go together",
        CUDA_ERROR_KEY_ROTATION => "rotating the confidential-computing keys failed",
        CUDA_ERROR_STREAM_DETACHED => "the stream lost its green context",
        CUDA_ERROR_GRAPH_RECAPTURE_FAILURE => "capturing the graph again failed and was stopped",
        CUDA_ERROR_FABRIC_NOT_READY => "the GPU fabric is still coming up: try again later",
        CUDA_ERROR_UNKNOWN => "an internal error of the driver",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails when a newer toolkit brings a code that nobody has described.
    #[test]
    fn every_code_has_a_description() {
        for (code, name) in RESULT_NAMES {
            let description = result_description(code).unwrap_or_else(|| panic!("{name} has no description"));
            assert!((8..=110).contains(&description.len()), "{name}: {description}");
            assert_eq!(result_name(code), Some(name));
        }
    }

    #[test]
    fn unknown_codes_have_neither() {
        assert_eq!((result_name(998), result_description(998)), (None, None));
        assert_eq!((result_name(u32::MAX), result_description(u32::MAX)), (None, None));
    }
}
