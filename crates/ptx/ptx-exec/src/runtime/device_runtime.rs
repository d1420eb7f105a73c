//! The device runtime: launches, copies and graph conditions that device code asks for (CUDA
//! dynamic parallelism).
//!
//! nvcc compiles `kernel<<<…>>>` in device code into two calls: one for a buffer that the arguments
//! are written into, one that launches. Both, and the rest of `cuda_device_runtime_api.h`, are
//! functions that the module declares and the device provides. What is asked for is handed to the
//! [`DeviceRuntime`], which executes it when the grid that asked has ended: CUDA does not promise
//! that a child grid runs beside its parent, only that the parent is not complete before its
//! children are.

use crate::code::RuntimeCall;
use crate::device::{DeviceLaunch, DeviceWork, KernelId, SUCCESS};
use crate::fault::FaultKind;
use crate::program::{Program, function_at};
use crate::runtime::builtin::{CallArea, Signature};
use crate::warp::Surroundings;
use cuda_launch::LaunchConfig;

const INVALID_VALUE: u32 = 1;
const MEMORY_ALLOCATION: u32 = 2;
const INVALID_DEVICE_FUNCTION: u32 = 98;

/// The functions that are provided, without the prefix of either version of dynamic parallelism.
const FUNCTIONS: &[(&str, RuntimeCall)] = &[
    ("GetParameterBufferV2", RuntimeCall::GetParameterBuffer),
    ("LaunchDeviceV2", RuntimeCall::LaunchDevice),
    ("LaunchDeviceV2_ptsz", RuntimeCall::LaunchDevice),
    ("GetLastError", RuntimeCall::GetLastError),
    ("PeekAtLastError", RuntimeCall::PeekAtLastError),
    ("GetErrorString", RuntimeCall::GetErrorString),
    ("GetErrorName", RuntimeCall::GetErrorName),
    ("GetDeviceCount", RuntimeCall::GetDeviceCount),
    ("GetDevice", RuntimeCall::GetDevice),
    ("DeviceGetAttribute", RuntimeCall::DeviceGetAttribute),
    ("StreamCreateWithFlags", RuntimeCall::Create),
    ("EventCreateWithFlags", RuntimeCall::Create),
    ("StreamDestroy", RuntimeCall::Order),
    ("StreamWaitEvent", RuntimeCall::Order),
    ("StreamWaitEvent_ptsz", RuntimeCall::Order),
    ("EventRecord", RuntimeCall::Order),
    ("EventRecord_ptsz", RuntimeCall::Order),
    ("EventRecordWithFlags", RuntimeCall::Order),
    ("EventRecordWithFlags_ptsz", RuntimeCall::Order),
    ("EventDestroy", RuntimeCall::Order),
    ("MemcpyAsync", RuntimeCall::MemcpyAsync),
    ("MemcpyAsync_ptsz", RuntimeCall::MemcpyAsync),
    ("MemsetAsync", RuntimeCall::MemsetAsync),
    ("MemsetAsync_ptsz", RuntimeCall::MemsetAsync),
    ("Malloc", RuntimeCall::Malloc),
    ("Free", RuntimeCall::Free),
];

/// The prefix of the device runtime's functions, and the one that they had until CUDA 11.
const PREFIXES: [&str; 2] = ["__cudaCDP2", "cuda"];

/// The function called `name`, if it is provided.
pub(crate) fn provided(name: &str) -> Option<RuntimeCall> {
    if name == "cudaGraphSetConditional" {
        return Some(RuntimeCall::GraphSetConditional);
    }
    let short = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix))?;
    FUNCTIONS.iter().find(|(known, _)| *known == short).map(|(_, call)| *call)
}

/// Returns the reason why the function called `name` is not provided, if it belongs to the device
/// runtime.
pub(crate) fn refusal(name: &str) -> Option<String> {
    let short = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix))?;
    if !short.starts_with(|first: char| first.is_ascii_uppercase()) {
        return None;
    }
    Some(match short {
        "GraphLaunch" | "GraphLaunch_ptsz" | "GetCurrentGraphExec" => format!(
            "device-side graph launch (`cuda{short}`) is not supported by the CPU device; launch the graph from the host"
        ),
        "DeviceSynchronize" | "__cudaDeviceSynchronizeDeprecationAvoidance" => {
            "waiting for child grids in device code (`cudaDeviceSynchronize`) is not supported by the CPU device, nor by \
             CUDA since version 12; launch what comes after them into cudaStreamTailLaunch"
                .to_owned()
        }
        _ => format!(
            "`cuda{short}` of the device runtime (dynamic parallelism) is not supported by the CPU device; call it on \
             the host"
        ),
    })
}

/// Whether PTX is that of NVIDIA's device runtime, which nvcc adds to every program that is
/// compiled separately: what it declares is provided here, and below it lies what only NVIDIA's
/// driver has.
pub fn is_device_runtime(text: &str) -> bool {
    text.contains("__cuda_syscall_")
}

impl RuntimeCall {
    /// Returns the sizes of the function's result and parameters, as `cuda_device_runtime_api.h`
    /// declares them.
    pub(crate) fn signature(self) -> Signature {
        let (result, params): (u32, &'static [u32]) = match self {
            RuntimeCall::GetParameterBuffer => (8, &[8, 12, 12, 4]),
            RuntimeCall::LaunchDevice => (4, &[8, 8]),
            RuntimeCall::GetLastError | RuntimeCall::PeekAtLastError => (4, &[]),
            RuntimeCall::GetErrorString | RuntimeCall::GetErrorName => (8, &[4]),
            RuntimeCall::GetDeviceCount | RuntimeCall::GetDevice => (4, &[8]),
            RuntimeCall::DeviceGetAttribute => (4, &[8, 4, 4]),
            RuntimeCall::Create => (4, &[8, 4]),
            // Several functions, none of which looks at what it gets.
            RuntimeCall::Order => return Signature { result: 4, params: None },
            RuntimeCall::MemcpyAsync => (4, &[8, 8, 8, 4, 8]),
            RuntimeCall::MemsetAsync => (4, &[8, 4, 8, 8]),
            RuntimeCall::Malloc => (4, &[8, 8]),
            RuntimeCall::Free => (4, &[8]),
            RuntimeCall::GraphSetConditional => (0, &[8, 4]),
        };
        Signature { result, params: Some(params) }
    }

    /// Bytes that the function writes where its first argument points.
    pub(crate) fn output_bytes(self) -> u32 {
        match self {
            RuntimeCall::GetDeviceCount | RuntimeCall::GetDevice | RuntimeCall::DeviceGetAttribute => 4,
            RuntimeCall::Create | RuntimeCall::Malloc => 8,
            _ => 0,
        }
    }
}

/// Calls a function of the device runtime in one lane of a warp, whose results and arguments lie at
/// `frame`.
pub(crate) fn run(
    call: RuntimeCall,
    around: &mut Surroundings,
    warp: u32,
    lane: usize,
    frame: u64,
) -> Result<(), (FaultKind, String)> {
    let thread = around.thread(warp, lane);
    let memory = around.launch.memory;
    let Some(runtime) = memory.runtime() else {
        return Err((FaultKind::Unsupported, "there is no device runtime here".to_owned()));
    };
    let mut arguments = CallArea::new(lane, frame);
    let error = match call {
        RuntimeCall::GetParameterBuffer => {
            let (result, function) = (arguments.result(8), arguments.next(around, 8)?);
            let mut extent = [0; 7];
            for side in &mut extent {
                *side = arguments.next(around, 4)? as u32;
            }
            let [gx, gy, gz, bx, by, bz, dynamic_shared] = extent;
            let config =
                LaunchConfig::new([gx, gy, gz], [bx, by, bz]).with_dynamic_shared_bytes(dynamic_shared);
            let kernel = kernel_at(around.launch.program(), function);
            let made = kernel
                .ok_or(INVALID_DEVICE_FUNCTION)
                .and_then(|kernel| runtime.parameter_buffer(DeviceLaunch { kernel, config }));
            made.as_ref().err().inspect(|error| runtime.set_error(thread, **error));
            return result.write(around, &made.unwrap_or(0).to_le_bytes());
        }
        RuntimeCall::GetErrorString | RuntimeCall::GetErrorName => {
            let (result, error) = (arguments.result(8), arguments.next(around, 4)? as u32);
            let text = runtime.error_text(error, call == RuntimeCall::GetErrorString);
            return result.write(around, &text.to_le_bytes());
        }
        RuntimeCall::GraphSetConditional => {
            let (handle, value) = (arguments.next(around, 8)?, arguments.next(around, 4)? as u32);
            return runtime.set_condition(handle, value).map_err(|text| (FaultKind::Trap, text));
        }
        RuntimeCall::GetLastError | RuntimeCall::PeekAtLastError => {
            let error = runtime.last_error(thread, call == RuntimeCall::GetLastError);
            return arguments.result(4).write(around, &error.to_le_bytes());
        }
        RuntimeCall::LaunchDevice => {
            arguments.result(4);
            let (buffer, stream) = (arguments.next(around, 8)?, arguments.next(around, 8)?);
            // The buffer's memory is given to the next launch.
            around.spaces.forget();
            runtime.launch(buffer, stream)
        }
        RuntimeCall::MemcpyAsync => {
            arguments.result(4);
            let (destination, source) = (arguments.next(around, 8)?, arguments.next(around, 8)?);
            let (bytes, _kind) = (arguments.next(around, 8)?, arguments.next(around, 4)?);
            let stream = arguments.next(around, 8)?;
            runtime.submit(DeviceWork::Copy { destination, source, bytes }, stream)
        }
        RuntimeCall::MemsetAsync => {
            arguments.result(4);
            let (destination, value) = (arguments.next(around, 8)?, arguments.next(around, 4)? as u8);
            let (bytes, stream) = (arguments.next(around, 8)?, arguments.next(around, 8)?);
            runtime.submit(DeviceWork::Fill { destination, value, bytes }, stream)
        }
        RuntimeCall::GetDeviceCount | RuntimeCall::GetDevice => {
            arguments.result(4);
            let count = u32::from(call == RuntimeCall::GetDeviceCount);
            store(around, arguments.next(around, 8)?, &count.to_le_bytes())?;
            SUCCESS
        }
        RuntimeCall::DeviceGetAttribute => {
            arguments.result(4);
            let (place, attribute) = (arguments.next(around, 8)?, arguments.next(around, 4)? as i32);
            match runtime.device_attribute(attribute) {
                Some(value) => store(around, place, &value.to_le_bytes()).map(|()| SUCCESS)?,
                None => INVALID_VALUE,
            }
        }
        RuntimeCall::Create => {
            arguments.result(4);
            store(around, arguments.next(around, 8)?, &runtime.new_handle().to_le_bytes())?;
            SUCCESS
        }
        RuntimeCall::Order => SUCCESS,
        RuntimeCall::Malloc => {
            arguments.result(4);
            let (place, bytes) = (arguments.next(around, 8)?, arguments.next(around, 8)?);
            let address = memory.malloc(bytes);
            store(around, place, &address.to_le_bytes())?;
            if address == 0 { MEMORY_ALLOCATION } else { SUCCESS }
        }
        RuntimeCall::Free => {
            arguments.result(4);
            let address = arguments.next(around, 8)?;
            around.spaces.forget();
            if address != 0 {
                memory.free(address).map_err(|text| (FaultKind::OutOfBounds, text))?;
            }
            SUCCESS
        }
    };
    if error != SUCCESS {
        runtime.set_error(thread, error);
    }
    CallArea::new(lane, frame).result(4).write(around, &error.to_le_bytes())
}

/// The kernel whose address device code holds.
fn kernel_at(program: &Program, address: u64) -> Option<KernelId> {
    let function = function_at(address)?;
    let place = program.kernels.iter().position(|kernel| kernel.function == function)?;
    u32::try_from(place).ok().map(KernelId)
}

/// Writes to where device code says.
fn store(around: &mut Surroundings, address: u64, bytes: &[u8]) -> Result<(), (FaultKind, String)> {
    let to = around.spaces.generic(address, bytes.len() as u64, true)?;
    // SAFETY: `generic` has found the bytes inside memory that may be written.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    Ok(())
}
