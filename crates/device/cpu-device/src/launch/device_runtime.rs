//! The device runtime of one launch: its kernel's requests, in the order of their execution.
//!
//! A grid's requests are collected while it runs and executed when it has ended: first its
//! children, each with all that it asks for itself, then what was launched into
//! `cudaStreamTailLaunch`. That is one of the orders that CUDA allows: within a stream the order of
//! requests holds, and nothing else is promised. [`Pending`] is the stack of what remains, so a
//! kernel that launches its own successor for ever needs no more memory than one.

use crate::context::Context;
use crate::device::Device;
use crate::error::Error;
use crate::graph::condition;
use crate::launch::{self, Arguments, Launch};
use crate::memory::copy::{Copy, DeclaredMemory, Extent, Fill, Side};
use crate::memory::{Allocation, Kind, Request};
use crate::module::{Function, Module};
use crate::observation::Configuration;
use crate::stream::operation::Operation;
use cuda_abi::types::*;
use ptx_exec::{DeviceLaunch, DeviceRuntime, DeviceWork, SUCCESS};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// `cudaStreamTailLaunch`.
const TAIL_LAUNCH: u64 = 3;

/// `cudaError_t`s.
const INVALID_VALUE: u32 = 1;
const MEMORY_ALLOCATION: u32 = 2;
const INVALID_CONFIGURATION: u32 = 9;

/// Executes what device code asked for, and what that asks for, until nothing is left.
pub fn execute_all<E>(
    first: Requests,
    mut execute: impl FnMut(Operation) -> Result<Requests, E>,
) -> Result<(), E> {
    let mut pending = Pending(Vec::new());
    pending.push(first);
    while let Some(operation) = pending.0.pop() {
        pending.push(execute(operation)?);
    }
    Ok(())
}

/// The remaining operations; the last one is next.
struct Pending(Vec<Operation>);

impl Pending {
    fn push(&mut self, requests: Requests) {
        self.0.extend(requests.tail.into_iter().rev());
        self.0.extend(requests.children.into_iter().rev());
    }
}

/// The operations that a grid has requested.
#[derive(Default)]
pub struct Requests {
    children: Vec<Operation>,
    tail: Vec<Operation>,
}

/// The device runtime as one grid sees it.
pub struct GridRuntime<'a> {
    device: &'static Device,
    context: &'a Context,
    function: &'a Function,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    requests: Requests,
    /// Buffers for arguments that have been given out, by address.
    buffers: HashMap<u64, (Buffer, Arc<Function>, Configuration)>,
    /// Buffers that can be given out again, by their size.
    spare: HashMap<u64, Vec<Buffer>>,
    /// Last errors of the threads that had any.
    errors: HashMap<u64, u32>,
}

/// Memory for the arguments of a launch, released with the grid that asked for it.
struct Buffer {
    device: &'static Device,
    allocation: Arc<Allocation>,
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.device.memory.release(self.allocation.start, |kind| kind == Kind::Parameters);
    }
}

impl<'a> GridRuntime<'a> {
    /// The runtime of a grid of `function`.
    pub fn new(device: &'static Device, context: &'a Context, function: &'a Function) -> GridRuntime<'a> {
        GridRuntime { device, context, function, state: Mutex::default() }
    }

    /// Returns the operations that the grid has requested.
    pub fn into_requests(self) -> Requests {
        self.state.into_inner().unwrap_or_else(PoisonError::into_inner).requests
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn buffer(&self, bytes: u64) -> Option<Buffer> {
        if let Some(spare) = self.lock().spare.get_mut(&bytes).and_then(Vec::pop) {
            return Some(spare);
        }
        let request = Request { bytes, kind: Kind::Parameters, flags: 0, context: self.context.handle };
        let allocation = self.device.memory.allocate(request).ok()?;
        Some(Buffer { device: self.device, allocation })
    }

    fn add(&self, operation: Operation, stream: u64) {
        let requests = &mut self.lock().requests;
        let list = if stream == TAIL_LAUNCH { &mut requests.tail } else { &mut requests.children };
        list.push(operation);
    }
}

impl DeviceRuntime for GridRuntime<'_> {
    fn parameter_buffer(&self, wanted: DeviceLaunch) -> Result<u64, u32> {
        let DeviceLaunch { kernel, config } = wanted;
        let configuration = Configuration { launch: config, cooperative: false };
        let module = Module::resolve(crate::arguments::opaque(self.function.module)).ok();
        let function =
            module.and_then(|module| module.functions.iter().find(|known| known.kernel == kernel).cloned());
        let function = function.ok_or(INVALID_CONFIGURATION)?;
        launch::check(self.device, &function, &configuration).map_err(|_| INVALID_CONFIGURATION)?;
        let bytes = function.attributes.param_bytes().max(1) as u64;
        let buffer = self.buffer(bytes).ok_or(MEMORY_ALLOCATION)?;
        let address = buffer.allocation.start;
        self.lock().buffers.insert(address, (buffer, function, configuration));
        Ok(address)
    }

    fn launch(&self, buffer: u64, stream: u64) -> u32 {
        let Some((buffer, function, configuration)) = self.lock().buffers.remove(&buffer) else {
            return INVALID_VALUE;
        };
        let bytes = function.attributes.param_bytes();
        // SAFETY: the buffer was allocated with so many bytes, and only the thread that launches
        // writes it.
        let arguments =
            unsafe { std::slice::from_raw_parts(buffer.allocation.start as *const u8, bytes) }.to_vec();
        let arguments = Arguments::new(&function.attributes, arguments);
        let size = buffer.allocation.bytes;
        self.lock().spare.entry(size).or_default().push(buffer);
        let named = function.handle;
        self.add(Operation::Kernel(Arc::new(Launch { function, named, configuration, arguments })), stream);
        SUCCESS
    }

    fn submit(&self, work: DeviceWork, stream: u64) -> u32 {
        let operation = match work {
            DeviceWork::Copy { destination, source, bytes } => {
                let side = |address| (Side::flat(address), DeclaredMemory::Device);
                Copy::new(self.device, side(source), side(destination), Extent::flat(bytes))
                    .map(|copy| copy.map(Operation::Copy))
            }
            DeviceWork::Fill { destination, value, bytes } => {
                Fill::new(self.device, Side::flat(destination), value.into(), 1, bytes, 1)
                    .map(|fill| fill.map(Operation::Fill))
            }
        };
        match operation {
            Ok(operation) => {
                operation.into_iter().for_each(|operation| self.add(operation, stream));
                SUCCESS
            }
            Err(Error(_)) => INVALID_VALUE,
        }
    }

    fn new_handle(&self) -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(0x1000);
        NEXT.fetch_add(16, Ordering::Relaxed)
    }

    fn set_error(&self, thread: u64, error: u32) {
        self.lock().errors.insert(thread, error);
    }

    fn last_error(&self, thread: u64, take: bool) -> u32 {
        let errors = &mut self.lock().errors;
        let error = if take { errors.remove(&thread) } else { errors.get(&thread).copied() };
        error.unwrap_or(SUCCESS)
    }

    fn error_text(&self, error: u32, description: bool) -> u64 {
        error_text(self.device, error, description).unwrap_or(0)
    }

    fn device_attribute(&self, attribute: i32) -> Option<i32> {
        // The runtime's numbers are the driver's.
        self.device.attribute(attribute.cast_unsigned()).ok()
    }

    fn set_condition(&self, handle: u64, value: u32) -> Result<(), String> {
        let condition = condition::Condition::find(handle);
        let condition = condition.ok_or_else(|| {
            format!("cudaGraphSetConditional of {handle:#x}, which is the handle of no graph's condition")
        })?;
        condition.set(value);
        Ok(())
    }
}

/// The address of an error's name or description, where device code can read it.
fn error_text(device: &Device, error: u32, description: bool) -> Option<u64> {
    type Texts = Mutex<HashMap<(u32, bool), Arc<Allocation>>>;
    static TEXTS: OnceLock<Texts> = OnceLock::new();
    let mut texts = TEXTS.get_or_init(Texts::default).lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = texts.get(&(error, description)) {
        return Some(known.start);
    }
    // The runtime's errors have the driver's numbers and, but for the prefix, their names.
    let name = result_name(error).unwrap_or("CUDA_ERROR_UNKNOWN").replacen("CUDA_", "cuda_", 1);
    let text = match (error, description) {
        (SUCCESS, true) => "no error".to_owned(),
        (INVALID_CONFIGURATION, false) => "cudaErrorInvalidConfiguration".to_owned(),
        (INVALID_CONFIGURATION, true) => "invalid configuration argument".to_owned(),
        (_, false) => camel_case(&name),
        (_, true) => name.trim_start_matches("cuda_error_").to_lowercase().replace('_', " "),
    };
    let bytes = text.len() as u64 + 1;
    let request = Request { bytes, kind: Kind::Global, flags: 0, context: 0 };
    let allocation = device.memory.allocate_variable(request, false).ok()?;
    // SAFETY: the allocation is new, zeroed, and one byte longer than the text.
    unsafe { (allocation.start as *mut u8).copy_from_nonoverlapping(text.as_ptr(), text.len()) };
    let address = allocation.start;
    texts.insert((error, description), allocation);
    Some(address)
}

/// `cuda_ERROR_INVALID_VALUE` as `cudaErrorInvalidValue`.
fn camel_case(name: &str) -> String {
    let capitalised = |part: &str| {
        let (first, rest) = part.split_at(1.min(part.len()));
        first.to_uppercase() + &rest.to_lowercase()
    };
    let (prefix, rest) = name.split_once('_').unwrap_or((name, ""));
    prefix.to_owned() + &rest.split('_').map(capitalised).collect::<String>()
}
