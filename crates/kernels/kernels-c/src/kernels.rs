//! The kernels that are loaded on each device, and the state of the calling thread that a call must
//! not change.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use apex_gpu::{Buffer, Device, Stream};
use apex_kernels::Attention;
use apex_kernels::fusion::Fused;
use apex_kernels::moe::Moe;
use bytemuck::Pod;
use cudarc::driver::{CudaSlice, DevicePtr, sys};

use crate::call::{Call, Failure, Tensor};

/// Alignment of tensors that kernels access in pieces of 16 bytes.
pub const ALIGNMENT: u64 = 16;
/// Alignment of parts of a workspace.
const PART_ALIGNMENT: u64 = 256;

/// The key of generated kernels: operation, elements, rows, length, bits of epsilon.
pub type Key = (&'static str, u32, usize, usize, u64);

/// Kernels of one device.
pub struct Kernels {
    pub device: Device,
    pub attention: Attention,
    pub moe: Moe,
    /// Kernels that were generated, by what for.
    pub fused: Mutex<HashMap<Key, Arc<Fused>>>,
}

impl Kernels {
    /// Those of a device, which are made at the first call.
    pub fn of(ordinal: i32) -> Result<Arc<Kernels>, Failure> {
        static DEVICES: Mutex<BTreeMap<usize, Arc<Kernels>>> = Mutex::new(BTreeMap::new());
        let number = usize::try_from(ordinal)
            .map_err(|_| Failure::invalid(format!("device {ordinal}: numbers of devices begin with 0")))?;
        // A thread that panicked here left whole entries.
        let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernels) = devices.get(&number) {
            return Ok(Arc::clone(kernels));
        }
        let device = Device::open(number)?;
        let attention = Attention::new(&device)?;
        let moe = Moe::new(&device)?;
        let kernels = Arc::new(Kernels { device, attention, moe, fused: Mutex::default() });
        devices.insert(number, Arc::clone(&kernels));
        Ok(kernels)
    }
}

/// The thread's current context, and how it takes part in captures of streams. Both are put back
/// when this is dropped. Meanwhile kernels may be loaded although a stream is captured.
pub struct Thread {
    context: sys::CUcontext,
    mode: sys::CUstreamCaptureMode,
}

impl Thread {
    /// # Errors
    /// If there is no driver.
    pub fn enter() -> Result<Thread, Failure> {
        // Opens the driver that `gpu` then uses; without one, calls of cudarc's would panic.
        static DRIVER: OnceLock<()> = OnceLock::new();
        if DRIVER.get().is_none() {
            Device::count()?;
            DRIVER.get_or_init(|| ());
        }
        let mut context = std::ptr::null_mut();
        let mut mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: both are valid for writes, and the driver has been started. Should it refuse, it
        // will refuse what follows too, and that is reported.
        unsafe {
            let _ = sys::cuCtxGetCurrent(&mut context);
            let _ = sys::cuThreadExchangeStreamCaptureMode(&mut mode);
        }
        Ok(Thread { context, mode })
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // SAFETY: the context is the one that was current, and the mode what the driver told.
        unsafe {
            let _ = sys::cuThreadExchangeStreamCaptureMode(&mut self.mode);
            let _ = sys::cuCtxSetCurrent(self.context);
        }
    }
}

/// The caller's stream and memory, for one call.
pub struct Borrowed<'c> {
    pub device: Device,
    pub stream: Stream,
    tensors: &'c [Tensor],
}

impl<'c> Borrowed<'c> {
    pub fn new(kernels: &Kernels, call: &'c Call<'_>) -> Borrowed<'c> {
        // SAFETY: who calls the interface says so: the stream is one of the device's primary
        // context, and lives longer than this, which ends with the call. In a capture of somebody
        // else's, it is given kernels and memsets alone, on memory that waits for no other stream.
        let stream = unsafe { kernels.device.borrow_stream(call.header.stream) };
        Borrowed { device: kernels.device.clone(), stream, tensors: call.tensors }
    }

    /// The tensor at a place of the operation's table, whose element type has been checked.
    pub fn tensor<T: Pod>(&self, place: usize) -> Result<Buffer<T>, Failure> {
        let Tensor { address, elements, .. } = self.tensors[place];
        self.buffer(address, elements as usize)
    }

    /// `len` elements of the tensor at a place, from so many bytes behind its start on. There must
    /// be as many.
    pub fn part<T: Pod>(&self, place: usize, start: usize, len: usize) -> Result<Buffer<T>, Failure> {
        let Tensor { address, elements, .. } = self.tensors[place];
        let end = start + len * size_of::<T>();
        assert!(end as u64 <= 4 * elements, "a part of 32-bit elements that are not there");
        self.buffer(address + start as u64, len)
    }

    fn buffer<T: Pod>(&self, address: u64, len: usize) -> Result<Buffer<T>, Failure> {
        // SAFETY: who calls the interface says so, of tensors and of the workspace.
        Ok(unsafe { self.device.borrow_buffer(address, len, &self.stream) }?)
    }
}

/// Memory beside the tensors, which is handed out from the start to the end.
pub struct Workspace {
    next: u64,
    end: u64,
    /// Gives it back, in the order of the stream, if it is not the caller's.
    _owned: Option<CudaSlice<u8>>,
}

impl Workspace {
    /// The caller's, or memory of the driver's pool if there is none.
    ///
    /// # Errors
    /// If the caller's is too small, or there is no memory.
    pub fn new(call: &Call<'_>, needed: u64, borrowed: &Borrowed<'_>) -> Result<Workspace, Failure> {
        let (start, bytes) = (call.header.workspace, call.header.workspace_bytes);
        if start != 0 {
            if bytes < needed || !start.is_multiple_of(PART_ALIGNMENT) {
                return Err(Failure::invalid(format!(
                    "the workspace has {bytes} bytes at address {start:#x}; it needs {needed} at a multiple of {PART_ALIGNMENT}"
                )));
            }
            return Ok(Workspace { next: start, end: start + bytes, _owned: None });
        }
        let stream = borrowed.stream.cuda();
        // SAFETY: nobody reads what is not written before: workspaces may hold anything.
        let owned = unsafe { stream.alloc::<u8>(needed as usize) };
        let owned = owned.map_err(|error| Failure {
            status: crate::status::DEVICE,
            message: format!("no workspace of {needed} bytes on {}: {error}", borrowed.device.name()),
        })?;
        let (start, _) = owned.device_ptr(stream);
        Ok(Workspace { next: start, end: start + needed, _owned: Some(owned) })
    }

    /// The next `len` elements.
    pub fn take<T: Pod>(&mut self, len: usize, borrowed: &Borrowed<'_>) -> Result<Buffer<T>, Failure> {
        let start = self.next;
        self.next += part_bytes(len * size_of::<T>());
        assert!(self.next <= self.end, "an operation uses more workspace than it says");
        borrowed.buffer(start, len)
    }
}

/// Returns the size of a part of a workspace that holds `bytes` bytes.
pub fn part_bytes(bytes: usize) -> u64 {
    (bytes as u64).next_multiple_of(PART_ALIGNMENT)
}
