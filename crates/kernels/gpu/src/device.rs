//! Devices: finding and opening them, their attributes and limits.
//!
//! A process runs on one driver, which the first opened device chooses; a device that is opened
//! again is the same device with the same stream. After the first fault of a device, all errors
//! name that fault.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytemuck::Pod;
use cuda_launch::DeviceAttributes;
use cudarc::driver::sys::{self, CUdevice_attribute as Attribute};
use cudarc::driver::{CudaContext, DriverError};

use crate::buffer::Buffer;
use crate::driver::{self, Choice, Kind};
use crate::error::{self, Context, Error, Result};
use crate::pinned::Pinned;
use crate::stream::Stream;

/// A GPU, or the CPU device that stands in for one. Cheap to clone: clones are the same device.
///
/// ```
/// let device = apex_gpu::Device::open(0)?;
/// println!("{} ({})", device.name(), device.kind());
/// let copied = device.upload(&[1i32, 2, 3])?.to_vec()?;
/// assert_eq!(copied, [1, 2, 3]);
/// # apex_gpu::Result::Ok(())
/// ```
#[derive(Clone)]
pub struct Device {
    core: Arc<Core>,
    stream: Stream,
}

/// The state that a device's streams and memory keep alive.
pub(crate) struct Core {
    pub(crate) cuda: Arc<CudaContext>,
    pub(crate) name: String,
    kind: &'static Kind,
    attributes: DeviceAttributes,
    /// The kernel that was launched last.
    launched: Mutex<Option<Arc<str>>>,
    /// The description of the fault, once it is known.
    finding: OnceLock<String>,
}

/// The attributes that [`DeviceAttributes`] has fields for.
const ATTRIBUTES: [Attribute; 23] = [
    Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
    Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
    Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
    Attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE,
    Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
    Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X,
    Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y,
    Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z,
    Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X,
    Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y,
    Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z,
    Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
    Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR,
    Attribute::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR,
    Attribute::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK,
    Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
    Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK,
    Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
    Attribute::CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK,
    Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE,
    Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE,
    Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH,
    Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE,
];

/// Queries the driver for the attributes of a device.
fn attributes(cuda: &CudaContext) -> std::result::Result<DeviceAttributes, DriverError> {
    let pair = |attribute: Attribute| Ok((attribute as u32, cuda.attribute(attribute)?));
    let pairs = ATTRIBUTES.into_iter().map(pair).collect::<std::result::Result<Vec<_>, DriverError>>()?;
    Ok(DeviceAttributes::UNKNOWN.with_pairs(&pairs))
}

impl fmt::Debug for Device {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.core.fmt(out)
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Device({})", self.name)
    }
}

impl Core {
    /// Makes the device's context current for the calling thread.
    pub(crate) fn bind(&self) -> Result<()> {
        self.cuda.bind_to_thread().map_err(self.failed("cuCtxSetCurrent"))
    }

    /// For `map_err`: the error of a failed call.
    pub(crate) fn failed(&self, call: &'static str) -> impl Fn(DriverError) -> Error + '_ {
        move |error| self.error(call, error, Context::default())
    }

    fn error(&self, call: &'static str, error: DriverError, context: Context) -> Error {
        match error::driver(call, &self.name, error, context) {
            Error::Driver { call, device, code, text, .. } if error::is_fault(error) => {
                let finding = self.finding.get_or_init(|| self.find()).clone();
                Error::Fault { call, device, code, text, finding }
            }
            other => other,
        }
    }

    /// Describes a fault: the driver's words, or the kernel that was launched last.
    fn find(&self) -> String {
        driver::logged().unwrap_or_else(|| {
            let launched = self.launched.lock().unwrap_or_else(PoisonError::into_inner);
            match &*launched {
                Some(kernel) => format!(
                    "the kernel launched last is `{kernel}`; CUDA_LAUNCH_BLOCKING=1 lets each launch tell its own errors"
                ),
                None => "no kernel was launched".to_owned(),
            }
        })
    }

    /// Notes that `kernel` was launched.
    pub(crate) fn has_launched(&self, kernel: &Arc<str>) {
        let mut launched = self.launched.lock().unwrap_or_else(PoisonError::into_inner);
        if launched.as_ref().is_none_or(|last| !Arc::ptr_eq(last, kernel)) {
            *launched = Some(kernel.clone());
        }
    }

    /// As [`Core::failed`], with what was tried.
    pub(crate) fn failed_at(
        &self,
        call: &'static str,
        context: impl Fn() -> String,
    ) -> impl Fn(DriverError) -> Error {
        move |error| self.error(call, error, Context::new(context()))
    }

    /// For `map_err`: the error of a failed allocation of `bytes`.
    pub(crate) fn no_memory(&self, call: &'static str, bytes: usize) -> impl Fn(DriverError) -> Error + '_ {
        move |error| {
            if !error::is_out_of_memory(error) {
                return self.failed_at(call, || format!("{bytes} bytes"))(error);
            }
            let (free, total) = self.cuda.mem_get_info().unwrap_or_default();
            Error::OutOfMemory { call, device: self.name.clone(), bytes, free, total }
        }
    }
}

impl Device {
    /// Opens a device: the GPU of that number, or the CPU device where there is no GPU.
    /// [`Device::kind`] says which.
    ///
    /// ```
    /// use apex_gpu::{Device, Error};
    /// match Device::open(7) {
    ///     Ok(device) => println!("the eighth: {}", device.name()),
    ///     Err(Error::NoSuchDevice { count, .. }) => println!("there are {count}"),
    ///     Err(error) => println!("{error}"),
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::NoDevice`], [`Error::NoSuchDevice`], [`Error::DriverTooOld`].
    pub fn open(ordinal: usize) -> Result<Device> {
        Device::open_as(ordinal, Choice::Auto)
    }

    /// As [`Device::open`], but [`Choice::Gpu`] refuses the CPU device and [`Choice::Cpu`] insists
    /// on it.
    ///
    /// A process runs on one driver: what the first device was opened with, all are. A device that
    /// is opened twice is the same one.
    ///
    /// ```
    /// use apex_gpu::{Choice, Device, Kind};
    /// match Device::open_as(0, Choice::Gpu) {
    ///     Ok(device) => assert_eq!(*device.kind(), Kind::Gpu),
    ///     Err(error) => eprintln!("this program needs a GPU: {error}"),
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Device::open`]; [`Error::DriverChosen`] if the process runs on the other kind already.
    pub fn open_as(ordinal: usize, choice: Choice) -> Result<Device> {
        let kind = driver::load(choice)?;
        let count = driver::device_count()?;
        if ordinal >= count {
            return Err(Error::NoSuchDevice { ordinal, count });
        }
        // One device for each number, so that its stream is one too.
        static OPENED: Mutex<BTreeMap<usize, Device>> = Mutex::new(BTreeMap::new());
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(device) = opened.get(&ordinal) {
            return Ok(device.clone());
        }
        let device = Device::first_of(ordinal, kind)?;
        opened.insert(ordinal, device.clone());
        Ok(device)
    }

    fn first_of(ordinal: usize, kind: &'static Kind) -> Result<Device> {
        let failed =
            |call| move |error| error::driver(call, &format!("device {ordinal}"), error, Context::default());
        let cuda = CudaContext::new(ordinal).map_err(failed("cuDevicePrimaryCtxRetain"))?;
        // SAFETY: nothing has been allocated through it; the buffers of this crate keep their own
        // order between streams, without an event for each allocation and each launch.
        unsafe { cuda.disable_event_tracking() };
        let name = cuda.name().map_err(failed("cuDeviceGetName"))?;
        let attributes = attributes(&cuda).map_err(failed("cuDeviceGetAttribute"))?;
        keep_freed_memory(&cuda).map_err(failed("cuMemPoolSetAttribute"))?;
        let name = format!("{name} (device {ordinal})");
        let (launched, finding) = (Mutex::new(None), OnceLock::new());
        let core = Arc::new(Core { cuda, name, kind, attributes, launched, finding });
        Ok(Device { stream: Stream::new(&core)?, core })
    }

    /// Returns the number of devices; opens the driver that [`Device::open`] would.
    ///
    /// ```
    /// let devices = (0..apex_gpu::Device::count()?).map(apex_gpu::Device::open).collect::<apex_gpu::Result<Vec<_>>>()?;
    /// assert!(!devices.is_empty());
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// If there is no driver at all.
    pub fn count() -> Result<usize> {
        driver::load(Choice::Auto)?;
        driver::device_count()
    }

    /// Returns whether this is a GPU or the CPU device, and why.
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// match device.kind() {
    ///     apex_gpu::Kind::Gpu => println!("a GPU"),
    ///     apex_gpu::Kind::Cpu { why } => println!("on the host's cores, because {why}"),
    /// }
    /// # apex_gpu::Result::Ok(())
    /// ```
    pub fn kind(&self) -> &Kind {
        self.core.kind
    }

    /// Name and number, as messages show them: `NVIDIA H200 (device 0)`.
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// assert!(device.name().ends_with("(device 0)"));
    /// # apex_gpu::Result::Ok(())
    /// ```
    pub fn name(&self) -> &str {
        &self.core.name
    }

    /// Its number among the devices that the process sees.
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// assert_eq!(device.ordinal(), 0);
    /// # apex_gpu::Result::Ok(())
    /// ```
    pub fn ordinal(&self) -> usize {
        self.core.cuda.ordinal()
    }

    /// Returns the device's limits and rates.
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let limits = device.limits();
    /// assert!(limits.compute_capability >= (7, 5));
    /// assert_eq!(limits.warp_size, 32);
    /// let side = 32;
    /// assert!(side * side <= limits.max_threads_per_block, "a block of 32 × 32 threads fits");
    /// println!("at most {} blocks", limits.max_grid_dim); // (2147483647, 65535, 65535)
    /// # apex_gpu::Result::Ok(())
    /// ```
    pub fn limits(&self) -> &DeviceAttributes {
        &self.core.attributes
    }

    /// Free and total memory in bytes. What the driver keeps for this process ([`Device::trim`]) is
    /// not free.
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let (free, total) = device.memory()?;
    /// assert!(free <= total);
    /// println!("{:.1} of {:.1} GiB are free", free as f64 / 2f64.powi(30), total as f64 / 2f64.powi(30));
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// The driver's error.
    pub fn memory(&self) -> Result<(usize, usize)> {
        self.core.cuda.mem_get_info().map_err(self.core.failed("cuMemGetInfo"))
    }

    /// Gives freed memory back, of which the driver otherwise keeps up to an eighth of the device's
    /// for this process.
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// drop(device.zeros::<u8>(1 << 20)?); // kept for the next allocation
    /// device.trim()?; // now other processes can have it
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// An error of work on the device, which it waits for.
    pub fn trim(&self) -> Result<()> {
        self.synchronize()?;
        let mut pool = std::ptr::null_mut();
        // SAFETY: the device is open, and `pool` is valid for writing.
        let trimmed = unsafe {
            sys::cuDeviceGetDefaultMemPool(&mut pool, self.core.cuda.cu_device())
                .result()
                .and_then(|()| sys::cuMemPoolTrimTo(pool, 0).result())
        };
        trimmed.map_err(self.core.failed("cuMemPoolTrimTo"))
    }

    /// Waits until everything on this device is done.
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let (one, two) = (device.new_stream()?, device.new_stream()?);
    /// let buffers = (device.zeros_on::<u8>(100, &one)?, device.zeros_on::<u8>(100, &two)?);
    /// device.synchronize()?; // both are zero
    /// # drop(buffers);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// An error of that work.
    pub fn synchronize(&self) -> Result<()> {
        self.core.cuda.synchronize().map_err(self.core.failed("cuCtxSynchronize"))
    }

    /// The stream that is used where none is named.
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let buffer = device.upload(&[1, 2, 3])?; // on `device.stream()`
    /// device.stream().synchronize()?;
    /// # drop(buffer);
    /// # apex_gpu::Result::Ok(())
    /// ```
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Another stream.
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let copies = device.new_stream()?;
    /// assert!(copies != *device.stream());
    /// assert!(copies == copies.clone());
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// The driver's error.
    pub fn new_stream(&self) -> Result<Stream> {
        Stream::new(&self.core)
    }

    /// cudarc's context, for what this crate does not offer.
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let context = device.cuda().cu_ctx(); // the `CUcontext` that a C library wants
    /// assert!(!context.is_null());
    /// # apex_gpu::Result::Ok(())
    /// ```
    pub fn cuda(&self) -> &Arc<CudaContext> {
        &self.core.cuda
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }
}

/// Lets the driver keep up to an eighth of the device's memory that was freed, for the next
/// allocation. Else it gives all of it back whenever somebody waits, and mapping it again costs
/// more than most kernels.
fn keep_freed_memory(cuda: &CudaContext) -> std::result::Result<(), DriverError> {
    if !cuda.has_async_alloc() {
        return Ok(());
    }
    let mut pool = std::ptr::null_mut();
    let (mut bytes, mut kept) = (cuda.total_mem()? as u64 / 8, 0u64);
    // SAFETY: the device is open, `pool` is valid for writing, and the attribute is 64 bits wide.
    unsafe {
        sys::cuDeviceGetDefaultMemPool(&mut pool, cuda.cu_device()).result()?;
        let attribute = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        sys::cuMemPoolGetAttribute(pool, attribute, (&raw mut kept).cast()).result()?;
        // The pool is the process's: a framework in it may keep more already.
        match kept >= bytes {
            true => Ok(()),
            false => sys::cuMemPoolSetAttribute(pool, attribute, (&raw mut bytes).cast()).result(),
        }
    }
}

/// Memory. Each function has a form that names the stream.
impl Device {
    /// Memory for `len` elements, all bytes zero.
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let sums = device.zeros::<f64>(3)?;
    /// assert_eq!(sums.to_vec()?, [0.0; 3]);
    /// let refused = device.zeros::<u8>(1 << 60).unwrap_err();
    /// assert!(matches!(refused, apex_gpu::Error::OutOfMemory { .. }));
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn zeros<T: Pod>(&self, len: usize) -> Result<Buffer<T>> {
        self.zeros_on(len, &self.stream)
    }

    /// As [`Device::zeros`], in the order of `stream`.
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let stream = device.new_stream()?;
    /// let sums = device.zeros_on::<f64>(3, &stream)?;
    /// assert_eq!(sums.to_vec()?, [0.0; 3]); // waits for `stream` by itself
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// As [`Device::zeros`]; [`Error::WrongDevice`].
    pub fn zeros_on<T: Pod>(&self, len: usize, stream: &Stream) -> Result<Buffer<T>> {
        let mut buffer = Buffer::uninitialised(self, len, stream)?;
        buffer.clear_on(stream)?;
        Ok(buffer)
    }

    /// A copy of `values` on the device. When this returns, `values` may be changed.
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let points = device.upload(&[[0.0f32, 1.0], [2.0, 3.0]])?; // any plain data
    /// assert_eq!(points.len(), 2);
    /// assert_eq!(points.to_vec()?[1], [2.0, 3.0]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn upload<T: Pod>(&self, values: &[T]) -> Result<Buffer<T>> {
        self.upload_on(values, &self.stream)
    }

    /// As [`Device::upload`], in the order of `stream`.
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let stream = device.new_stream()?;
    /// let buffer = device.upload_on(&[1u8, 2], &stream)?;
    /// assert_eq!(buffer.to_vec()?, [1, 2]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// As [`Device::upload`]; [`Error::WrongDevice`].
    pub fn upload_on<T: Pod>(&self, values: &[T], stream: &Stream) -> Result<Buffer<T>> {
        let mut buffer = Buffer::uninitialised(self, values.len(), stream)?;
        buffer.write_on(values, stream)?;
        Ok(buffer)
    }

    /// Pinned memory of the host for `len` elements, all bytes zero: copies to and from it go at
    /// full speed and do not hold up the host.
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let mut host = device.pinned::<f32>(2)?;
    /// host.as_mut_slice()?.copy_from_slice(&[4.0, 5.0]);
    /// let mut buffer = device.zeros::<f32>(2)?;
    /// buffer.view_mut().write_pinned(&mut host, device.stream())?;
    /// assert_eq!(buffer.to_vec()?, [4.0, 5.0]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn pinned<T: Pod>(&self, len: usize) -> Result<Pinned<T>> {
        Pinned::new(self, len)
    }
}
