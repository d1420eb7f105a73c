//! Events, delays and a stream of the library's own, for timing and calibration.

use super::succeeds;
use cuda_abi::types::*;
use std::ffi::{CStr, c_void};
use std::ptr::null_mut;

/// A new event that can be timed with.
pub fn create_event() -> Option<CUevent> {
    let mut event = null_mut();
    // SAFETY: the out-parameter is valid.
    succeeds(unsafe { real!(cuEventCreate)(&mut event, CU_EVENT_DEFAULT) }).then_some(event)
}

/// Destroys an event of ours.
pub fn destroy_event(event: CUevent) {
    // SAFETY: an event of ours in a living context, destroyed once.
    unsafe { real!(cuEventDestroy_v2)(event) };
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

/// A kernel of `ptx`, loaded into the current context, with which it ends. The captures of other
/// threads do not mind.
pub fn load_kernel(ptx: &CStr, name: &CStr) -> Option<CUfunction> {
    let mut mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    let (mut module, mut kernel) = (null_mut(), null_mut());
    // SAFETY: the out-parameters are valid, and the texts are C strings. The thread's mode is put
    // back.
    unsafe {
        real!(cuThreadExchangeStreamCaptureMode)(&mut mode);
        let is_loaded = succeeds(real!(cuModuleLoadData)(&mut module, ptx.as_ptr().cast()))
            && succeeds(real!(cuModuleGetFunction)(&mut kernel, module, name.as_ptr()));
        real!(cuThreadExchangeStreamCaptureMode)(&mut mode);
        is_loaded.then_some(kernel)
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

    /// Returns the time between a pair's events, in nanoseconds.
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
