//! A device, and the objects that a program creates on it. Each object is freed when it goes out of
//! scope.
//!
//! This is a small host API with errors that name the call. The crate `apex-gpu` cannot replace it:
//!
//! * Reports and tests depend on the exact calls of the bundled programs. `bad` allocates in a
//!   loop, copies pageable memory asynchronously and uses the legacy default stream; `apex-gpu`
//!   allocates from pools, orders streams by itself, and never uses that stream.
//! * `apex-differential` opens a driver by its path, again after each fault. `apex-gpu` opens one
//!   driver for each process.
//! * `apex-gpu` has no arrays, textures and surfaces ([`crate::image`]).

use crate::error::{DriverError, Result};
use crate::library::{self, Functions, call};
use cuda_abi::types::*;
use cuda_launch::Dim3;
use std::ffi::{CStr, CString, c_char, c_void};
use std::marker::PhantomData;
use std::path::Path;

/// Types that are the same bytes on host and device, any of which are a value.
///
/// # Safety
///
/// The type has no padding and no invalid bit patterns.
pub unsafe trait Element: Copy + Default + 'static {}
// SAFETY: numbers.
unsafe impl Element for f32 {}
// SAFETY: numbers.
unsafe impl Element for u32 {}
// SAFETY: numbers.
unsafe impl Element for u8 {}
// SAFETY: numbers.
unsafe impl Element for u64 {}
// SAFETY: numbers, one behind the other.
unsafe impl Element for [u64; 2] {}

/// The first device, with its primary context current on the thread that opened it.
pub struct Device {
    functions: Functions,
    ordinal: CUdevice,
    name: String,
    multiprocessors: u32,
}

impl Device {
    /// Opens the system's CUDA driver, or the library at `fallback` where there is none that works.
    pub fn open(fallback: Option<&Path>) -> Result<Device> {
        Device::first_of(library::open(fallback)?)
    }

    /// Opens the CUDA driver at this path, or with this name where it has no slash, and no other.
    pub fn open_driver(driver: &CStr) -> Result<Device> {
        Device::first_of(library::open_library(driver)?)
    }

    fn first_of(functions: Functions) -> Result<Device> {
        let (mut ordinal, mut context) = (0, std::ptr::null_mut());
        let mut name = [0 as c_char; 256];
        let mut multiprocessors = 0;
        // SAFETY: the pointers are to locals that outlive the calls, and the buffer is as long as
        // it is said to be.
        unsafe {
            call!(functions, cuDeviceGet(&mut ordinal, 0))?;
            call!(functions, cuDeviceGetName(name.as_mut_ptr(), name.len() as i32, ordinal))?;
            let attribute = CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
            call!(functions, cuDeviceGetAttribute(&mut multiprocessors, attribute, ordinal))?;
            call!(functions, cuDevicePrimaryCtxRetain(&mut context, ordinal))?;
            call!(functions, cuCtxSetCurrent(context))?;
        }
        let name =
            name.iter().take_while(|byte| **byte != 0).map(|byte| byte.cast_unsigned() as char).collect();
        Ok(Device { functions, ordinal, name, multiprocessors: multiprocessors.cast_unsigned() })
    }

    pub(crate) fn functions(&self) -> &Functions {
        &self.functions
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number of multiprocessors.
    pub fn multiprocessors(&self) -> u32 {
        self.multiprocessors
    }

    /// Waits for all work.
    pub fn synchronize(&self) -> Result {
        // SAFETY: no arguments.
        unsafe { call!(self.functions, cuCtxSynchronize()) }
    }

    /// Loads PTX.
    pub fn load(&self, ptx: &str) -> Result<Module<'_>> {
        let image =
            CString::new(ptx).map_err(|_| DriverError::Compilation("the PTX has a zero byte".into()))?;
        let mut log = [0u8; 4096];
        let mut options = [CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        let mut values = [log.as_mut_ptr().cast(), std::ptr::without_provenance_mut(log.len())];
        let mut module = std::ptr::null_mut();
        // SAFETY: the image ends in a zero byte, and there is a value for each option, the log's
        // buffer among them.
        let loaded = unsafe {
            let image = image.as_ptr().cast::<c_void>();
            call!(
                self.functions,
                cuModuleLoadDataEx(&mut module, image, 2, options.as_mut_ptr(), values.as_mut_ptr())
            )
        };
        let log = log.split(|byte| *byte == 0).next().unwrap_or_default();
        match loaded {
            Ok(()) => Ok(Module { device: self, handle: module }),
            Err(error) if log.is_empty() => Err(error),
            Err(_) => Err(DriverError::Compilation(String::from_utf8_lossy(log).into_owned())),
        }
    }

    /// Allocates device memory for `length` elements; its contents are undefined.
    pub fn allocate<T: Element>(&self, length: usize) -> Result<Buffer<'_, T>> {
        let mut address = 0;
        // SAFETY: the pointer is to a local.
        unsafe { call!(self.functions, cuMemAlloc_v2(&mut address, length * size_of::<T>()))? };
        Ok(Buffer { device: self, address, length, element: PhantomData })
    }

    /// Allocates device memory and copies `values` to it.
    pub fn upload<T: Element>(&self, values: &[T]) -> Result<Buffer<'_, T>> {
        let buffer = self.allocate(values.len())?;
        // SAFETY: source and destination are as long as the slice.
        unsafe {
            let source = values.as_ptr().cast();
            call!(self.functions, cuMemcpyHtoD_v2(buffer.address, source, size_of_val(values)))?;
        }
        Ok(buffer)
    }

    /// Allocates page-locked host memory and copies `values` to it.
    pub fn pin<T: Element>(&self, values: &[T]) -> Result<Pinned<'_, T>> {
        let mut start = std::ptr::null_mut();
        // SAFETY: the pointer is to a local.
        unsafe { call!(self.functions, cuMemHostAlloc(&mut start, size_of_val(values), 0))? };
        let start = start.cast::<T>();
        // SAFETY: the allocation is as long as the slice, and nobody else knows of it.
        unsafe { start.copy_from_nonoverlapping(values.as_ptr(), values.len()) };
        Ok(Pinned { device: self, start, length: values.len() })
    }

    /// Creates a stream.
    pub fn stream(&self) -> Result<Stream<'_>> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the pointer is to a local.
        unsafe { call!(self.functions, cuStreamCreate(&mut handle, CU_STREAM_NON_BLOCKING))? };
        Ok(Stream { device: self, handle })
    }

    /// The legacy default stream.
    pub fn default_stream(&self) -> Stream<'_> {
        Stream { device: self, handle: std::ptr::null_mut() }
    }

    /// Creates an event.
    pub fn event(&self) -> Result<Event<'_>> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the pointer is to a local.
        unsafe { call!(self.functions, cuEventCreate(&mut handle, CU_EVENT_DEFAULT))? };
        Ok(Event { device: self, handle })
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: everything made on the device borrows it, so nothing is left. A failure has
        // nobody to be told to.
        let _ = unsafe { call!(self.functions, cuDevicePrimaryCtxRelease_v2(self.ordinal)) };
    }
}

/// Device code.
pub struct Module<'d> {
    device: &'d Device,
    handle: CUmodule,
}

impl Module<'_> {
    /// A kernel by name.
    pub fn kernel(&self, name: &str) -> Result<Kernel<'_>> {
        let missing = DriverError::Call { call: "cuModuleGetFunction", code: CUDA_ERROR_NOT_FOUND };
        let name = CString::new(name).map_err(|_| missing)?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the module is loaded, and the name ends in a zero byte.
        unsafe {
            call!(self.device.functions, cuModuleGetFunction(&mut handle, self.handle, name.as_ptr()))?
        };
        Ok(Kernel { device: self.device, handle })
    }
}

impl Drop for Module<'_> {
    fn drop(&mut self) {
        // SAFETY: kernels borrow the module, so none is left.
        let _ = unsafe { call!(self.device.functions, cuModuleUnload(self.handle)) };
    }
}

/// A kernel.
#[derive(Clone, Copy)]
pub struct Kernel<'m> {
    device: &'m Device,
    handle: CUfunction,
}

impl Kernel<'_> {
    /// Launches the kernel.
    ///
    /// # Safety
    ///
    /// The arguments are what the kernel declares, in order, and the kernel touches only memory
    /// that lives until the stream has come behind it.
    pub unsafe fn launch(
        &self,
        stream: &Stream<'_>,
        grid: impl Into<Dim3>,
        block: impl Into<Dim3>,
        arguments: &[Argument<'_>],
    ) -> Result {
        let mut pointers: Vec<*mut c_void> = arguments.iter().map(|argument| argument.pointer).collect();
        let (grid, block) = (grid.into(), block.into());
        // SAFETY: as promised by the caller; the driver has copied the arguments when it returns.
        unsafe {
            call!(
                self.device.functions,
                cuLaunchKernel(
                    self.handle,
                    grid.x,
                    grid.y,
                    grid.z,
                    block.x,
                    block.y,
                    block.z,
                    0,
                    stream.handle,
                    pointers.as_mut_ptr(),
                    std::ptr::null_mut(),
                )
            )
        }
    }
}

/// One argument of a launch: a number, or the address of a [`Buffer`].
#[derive(Clone, Copy)]
pub struct Argument<'a> {
    pointer: *mut c_void,
    value: PhantomData<&'a ()>,
}

impl<'a, T: Element> From<&'a T> for Argument<'a> {
    fn from(value: &'a T) -> Argument<'a> {
        Argument { pointer: std::ptr::from_ref(value).cast_mut().cast(), value: PhantomData }
    }
}

impl<'a, T: Element> From<&'a Buffer<'_, T>> for Argument<'a> {
    fn from(buffer: &'a Buffer<'_, T>) -> Argument<'a> {
        Argument { pointer: (&raw const buffer.address).cast_mut().cast(), value: PhantomData }
    }
}

impl<'a> From<&'a [u8]> for Argument<'a> {
    /// An argument of any type, by its bytes.
    fn from(bytes: &'a [u8]) -> Argument<'a> {
        Argument { pointer: bytes.as_ptr().cast_mut().cast(), value: PhantomData }
    }
}

/// The arguments of a launch: `arguments![&a, &b, &n]`.
#[macro_export]
macro_rules! arguments {
    ($($argument:expr),* $(,)?) => { &[$($crate::device::Argument::from($argument)),*] };
}

/// Device memory.
pub struct Buffer<'d, T: Element> {
    device: &'d Device,
    address: CUdeviceptr,
    length: usize,
    element: PhantomData<T>,
}

impl<T: Element> Buffer<'_, T> {
    /// Its address on the device.
    pub fn address(&self) -> CUdeviceptr {
        self.address
    }

    fn bytes(&self) -> usize {
        self.length * size_of::<T>()
    }

    /// Copies the contents to the host.
    pub fn download(&self) -> Result<Vec<T>> {
        let mut values = vec![T::default(); self.length];
        // SAFETY: both sides are as long as the buffer.
        unsafe {
            let destination = values.as_mut_ptr().cast();
            call!(self.device.functions, cuMemcpyDtoH_v2(destination, self.address, self.bytes()))?;
        }
        Ok(values)
    }

    /// Sets every byte to zero, in a stream.
    pub fn clear(&self, stream: &Stream<'_>) -> Result {
        // SAFETY: the destination is as long as the buffer.
        unsafe { call!(self.device.functions, cuMemsetD8Async(self.address, 0, self.bytes(), stream.handle)) }
    }

    /// Copies from host memory, in a stream.
    ///
    /// # Safety
    ///
    /// `source` lives, and is not written, until the stream has come behind the copy.
    ///
    /// # Panics
    ///
    /// When the lengths differ.
    pub unsafe fn copy_from(&self, source: &[T], stream: &Stream<'_>) -> Result {
        assert_eq!(source.len(), self.length, "a copy between buffers of different lengths");
        let source = source.as_ptr().cast();
        // SAFETY: both sides are as long as the buffer.
        unsafe {
            call!(
                self.device.functions,
                cuMemcpyHtoDAsync_v2(self.address, source, self.bytes(), stream.handle)
            )
        }
    }

    /// Copies to host memory, in a stream.
    ///
    /// # Safety
    ///
    /// `destination` lives, and nobody touches it, until the stream has come behind the copy.
    ///
    /// # Panics
    ///
    /// When the lengths differ.
    pub unsafe fn copy_to(&self, destination: &mut [T], stream: &Stream<'_>) -> Result {
        assert_eq!(destination.len(), self.length, "a copy between buffers of different lengths");
        let destination = destination.as_mut_ptr().cast();
        // SAFETY: both sides are as long as the buffer.
        unsafe {
            call!(
                self.device.functions,
                cuMemcpyDtoHAsync_v2(destination, self.address, self.bytes(), stream.handle)
            )
        }
    }
}

impl<T: Element> Drop for Buffer<'_, T> {
    fn drop(&mut self) {
        // SAFETY: the driver waits for work that uses the memory.
        let _ = unsafe { call!(self.device.functions, cuMemFree_v2(self.address)) };
    }
}

/// Page-locked host memory.
pub struct Pinned<'d, T: Element> {
    device: &'d Device,
    start: *mut T,
    length: usize,
}

impl<T: Element> std::ops::Deref for Pinned<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the allocation is so long and was filled when it was made.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }
}

impl<T: Element> std::ops::DerefMut for Pinned<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.length) }
    }
}

impl<T: Element> Drop for Pinned<'_, T> {
    fn drop(&mut self) {
        // SAFETY: the driver waits for work that uses the memory.
        let _ = unsafe { call!(self.device.functions, cuMemFreeHost(self.start.cast())) };
    }
}

/// A stream.
pub struct Stream<'d> {
    device: &'d Device,
    handle: CUstream,
}

impl<'d> Stream<'d> {
    /// Waits for the stream's work.
    pub fn synchronize(&self) -> Result {
        // SAFETY: the stream is there.
        unsafe { call!(self.device.functions, cuStreamSynchronize(self.handle)) }
    }

    /// Has later work of the stream wait for an event.
    pub fn wait(&self, event: &Event<'_>) -> Result {
        // SAFETY: stream and event are there.
        unsafe { call!(self.device.functions, cuStreamWaitEvent(self.handle, event.handle, 0)) }
    }

    /// Makes a graph of what `submit` gives the stream to do.
    pub fn capture(&self, submit: impl FnOnce() -> Result) -> Result<Graph<'d>> {
        let functions = &self.device.functions;
        let (mut graph, mut exec) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the stream is there; the pointers are to locals. The capture is ended even if
        // `submit` fails.
        unsafe {
            call!(functions, cuStreamBeginCapture_v2(self.handle, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))?;
            let submitted = submit();
            call!(functions, cuStreamEndCapture(self.handle, &mut graph))?;
            let instantiated =
                submitted.and_then(|()| call!(functions, cuGraphInstantiateWithFlags(&mut exec, graph, 0)));
            call!(functions, cuGraphDestroy(graph))?;
            instantiated?;
        }
        Ok(Graph { device: self.device, handle: exec })
    }
}

impl Drop for Stream<'_> {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: the stream was made by this module; its work is still done.
            let _ = unsafe { call!(self.device.functions, cuStreamDestroy_v2(self.handle)) };
        }
    }
}

/// An event.
pub struct Event<'d> {
    device: &'d Device,
    handle: CUevent,
}

impl Event<'_> {
    /// Records the event behind a stream's work.
    pub fn record(&self, stream: &Stream<'_>) -> Result {
        // SAFETY: stream and event are there.
        unsafe { call!(self.device.functions, cuEventRecord(self.handle, stream.handle)) }
    }

    /// Waits for the event.
    pub fn synchronize(&self) -> Result {
        // SAFETY: the event is there.
        unsafe { call!(self.device.functions, cuEventSynchronize(self.handle)) }
    }

    /// Milliseconds from this event to a later one.
    pub fn milliseconds_until(&self, end: &Event<'_>) -> Result<f32> {
        let mut milliseconds = 0.0;
        // SAFETY: both events are there; the pointer is to a local.
        unsafe {
            call!(self.device.functions, cuEventElapsedTime(&mut milliseconds, self.handle, end.handle))?
        };
        Ok(milliseconds)
    }
}

impl Drop for Event<'_> {
    fn drop(&mut self) {
        // SAFETY: the event was made by this module.
        let _ = unsafe { call!(self.device.functions, cuEventDestroy_v2(self.handle)) };
    }
}

/// A graph that can be launched.
pub struct Graph<'d> {
    device: &'d Device,
    handle: CUgraphExec,
}

impl Graph<'_> {
    /// Does in a stream what was captured.
    ///
    /// # Safety
    ///
    /// All memory that was named in the capture lives until the stream has come behind the launch.
    pub unsafe fn launch(&self, stream: &Stream<'_>) -> Result {
        // SAFETY: graph and stream are there; as promised by the caller.
        unsafe { call!(self.device.functions, cuGraphLaunch(self.handle, stream.handle)) }
    }
}

impl Drop for Graph<'_> {
    fn drop(&mut self) {
        // SAFETY: the graph was made by this module; launches under way go on.
        let _ = unsafe { call!(self.device.functions, cuGraphExecDestroy(self.handle)) };
    }
}
