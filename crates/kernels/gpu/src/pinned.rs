//! Pinned memory of the host, which the device copies from and to while the host goes on.
//!
//! Invariant: `done`, if there is one, is reached when all copies that use the memory are over:
//! each waits, on the device, for the one before, on whichever stream that was. Reading or freeing
//! the memory waits for `done` first.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use bytemuck::Pod;
use cudarc::driver::{CudaEvent, result, sys};

use crate::buffer::describe;
use crate::device::{Core, Device};
use crate::error::Result;
use crate::stream::Stream;

/// `len` elements of type `T` in memory of the host that the device reads and writes directly, see
/// [`Device::pinned`].
///
/// ```
/// let device = apex_gpu::Device::open(0)?;
/// let stream = device.new_stream()?;
/// let mut staging = device.pinned::<f32>(3)?;
/// staging.as_mut_slice()?.copy_from_slice(&[1.0, 2.0, 3.0]);
/// let mut buffer = device.zeros_on::<f32>(3, &stream)?;
/// buffer.view_mut().write_pinned(&mut staging, &stream)?; // returns at once
/// buffer.view().read_pinned(&mut staging, &stream)?; // so does this
/// assert_eq!(staging.as_slice()?, [1.0, 2.0, 3.0]); // waits
/// # apex_gpu::Result::Ok(())
/// ```
pub struct Pinned<T> {
    pub(crate) start: *mut T,
    pub(crate) len: usize,
    device: Arc<Core>,
    done: Mutex<Option<CudaEvent>>,
}

impl<T> fmt::Debug for Pinned<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        describe::<T>(out, "Pinned", self.len, &format!("the host, for {}", self.device.name))
    }
}

// SAFETY: it owns its memory, as a `Vec` does; `T: Pod` has no ties to threads.
unsafe impl<T: Pod + Send> Send for Pinned<T> {}
// SAFETY: as above; shared references only read.
unsafe impl<T: Pod + Sync> Sync for Pinned<T> {}

impl<T: Pod> Pinned<T> {
    pub(crate) fn new(device: &Device, len: usize) -> Result<Pinned<T>> {
        let device = device.core().clone();
        device.bind()?;
        let bytes = len.saturating_mul(size_of::<T>());
        // SAFETY: allocates; flag 1 makes the memory pinned for all contexts.
        let start = unsafe { result::malloc_host(bytes.max(1), sys::CU_MEMHOSTALLOC_PORTABLE) };
        let start: *mut T = start.map_err(device.no_memory("cuMemHostAlloc", bytes))?.cast();
        // SAFETY: as many bytes were allocated.
        unsafe { start.cast::<u8>().write_bytes(0, bytes) };
        Ok(Pinned { start, len, device, done: Mutex::new(None) })
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements. Waits for copies that use the memory.
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let host = device.pinned::<f32>(4)?;
    /// assert_eq!((host.len(), host.is_empty()), (4, false));
    /// assert_eq!(host.as_slice()?, [0.0; 4]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// An error of the work before them.
    pub fn as_slice(&self) -> Result<&[T]> {
        self.wait()?;
        // SAFETY: the memory has `len` elements, initialised to zero or by a copy that is done; a
        // copy to it needs a mutable reference.
        Ok(unsafe { std::slice::from_raw_parts(self.start, self.len) })
    }

    /// The elements, to write. Waits for copies that use the memory.
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let mut host = device.pinned::<u32>(100)?;
    /// for (value, number) in host.as_mut_slice()?.iter_mut().zip(1..) {
    ///     *value = number;
    /// }
    /// assert_eq!(host.as_slice()?[99], 100);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// An error of the work before them.
    pub fn as_mut_slice(&mut self) -> Result<&mut [T]> {
        self.wait()?;
        // SAFETY: as in `as_slice`, and nobody else has a reference.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.start, self.len) })
    }

    fn wait(&self) -> Result<()> {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(event) = done.take() {
            event.synchronize().map_err(self.device.failed("cuEventSynchronize"))?;
        }
        Ok(())
    }

    /// Lets `stream` wait for the copies so far, before it is given another.
    pub(crate) fn order(&mut self, stream: &Stream) -> Result<()> {
        match self.done.get_mut().unwrap_or_else(PoisonError::into_inner) {
            Some(event) => stream.cuda().wait(event).map_err(self.device.failed("cuStreamWaitEvent")),
            None => Ok(()),
        }
    }

    /// Notes that `stream`, after [`Pinned::order`], was given a copy.
    pub(crate) fn used_by(&mut self, stream: &Stream) -> Result<()> {
        let event = stream.cuda().record_event(None).map_err(self.device.failed("cuEventRecord"))?;
        *self.done.get_mut().unwrap_or_else(PoisonError::into_inner) = Some(event);
        Ok(())
    }
}

impl<T> Drop for Pinned<T> {
    fn drop(&mut self) {
        let done = self.done.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        // Should this fail, the context is broken and no copy runs any more.
        let _ = done.map(|event| event.synchronize());
        let _ = self.device.bind();
        // SAFETY: the memory came from `malloc_host`, and nobody uses it any more.
        let _ = unsafe { result::free_host(self.start.cast()) };
    }
}
