//! Devices: what there is, and what it allows.

use std::fmt;
use std::sync::Arc;

use bytemuck::Pod;
use cudarc::driver::sys::{self, CUdevice_attribute as Attribute};
use cudarc::driver::{CudaContext, DriverError};

use crate::buffer::{Buffer, Pinned};
use crate::driver::{self, Choice, Kind};
use crate::error::{self, Context, Error, Result};
use crate::stream::Stream;

/// A GPU, or the CPU device that stands in for one. Cheap to clone: clones are the same device.
///
/// ```
/// let device = gpu::Device::open(0)?;
/// println!("{} ({})", device.name(), device.kind());
/// let copied = device.upload(&[1i32, 2, 3])?.download()?;
/// assert_eq!(copied, [1, 2, 3]);
/// # gpu::Result::Ok(())
/// ```
#[derive(Clone)]
pub struct Device {
    core: Arc<Core>,
    stream: Stream,
}

/// What a device's streams and memory keep alive.
pub(crate) struct Core {
    pub(crate) cuda: Arc<CudaContext>,
    pub(crate) name: String,
    kind: &'static Kind,
    limits: Limits,
}

/// What a device allows. Sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Compute capability, major and minor.
    pub compute_capability: (u32, u32),
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Threads of a block, all axes together.
    pub threads_per_block: u32,
    /// Threads of a block along x, y and z.
    pub block: [u32; 3],
    /// Blocks of a grid along x, y and z.
    pub grid: [u32; 3],
    /// Shared memory that a block gets without asking for more.
    pub shared_per_block: u32,
    /// Shared memory that a block can get at most.
    pub shared_per_block_optin: u32,
    /// Threads of a warp.
    pub warp: u32,
}

impl Limits {
    fn of(cuda: &CudaContext) -> std::result::Result<Limits, DriverError> {
        let get = |attribute| Ok(cuda.attribute(attribute)?.max(0) as u32);
        Ok(Limits {
            compute_capability: (
                get(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                get(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            ),
            multiprocessors: get(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            threads_per_block: get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            block: [
                get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X)?,
                get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y)?,
                get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)?,
            ],
            grid: [
                get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X)?,
                get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y)?,
                get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z)?,
            ],
            shared_per_block: get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK)?,
            shared_per_block_optin: get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
            warp: get(Attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE)?,
        })
    }
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
        move |error| error::driver(call, &self.name, error, Context::default())
    }

    /// As [`Core::failed`], with what was tried.
    pub(crate) fn failed_at(
        &self,
        call: &'static str,
        context: impl Fn() -> String,
    ) -> impl Fn(DriverError) -> Error {
        move |error| error::driver(call, &self.name, error, Context::new(context()))
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
    /// Opens a device: the GPU of that number, or the CPU device where there is no GPU. [`Device::kind`] says which.
    ///
    /// # Errors
    /// [`Error::NoDevice`], [`Error::NoSuchDevice`], [`Error::DriverTooOld`].
    pub fn open(ordinal: usize) -> Result<Device> {
        Device::open_as(ordinal, Choice::Auto)
    }

    /// As [`Device::open`], but [`Choice::Gpu`] refuses the CPU device and [`Choice::Cpu`] insists on it.
    ///
    /// A process runs on one driver: what the first device was opened with, all are.
    ///
    /// ```
    /// use gpu::{Choice, Device, Kind};
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
        let failed =
            |call| move |error| error::driver(call, &format!("device {ordinal}"), error, Context::default());
        let cuda = CudaContext::new(ordinal).map_err(failed("cuDevicePrimaryCtxRetain"))?;
        // SAFETY: nothing has been allocated through it; the buffers of this crate keep their own order between streams,
        // without an event for each allocation and each launch.
        unsafe { cuda.disable_event_tracking() };
        let name = cuda.name().map_err(failed("cuDeviceGetName"))?;
        let limits = Limits::of(&cuda).map_err(failed("cuDeviceGetAttribute"))?;
        keep_freed_memory(&cuda).map_err(failed("cuMemPoolSetAttribute"))?;
        let core = Arc::new(Core { cuda, name: format!("{name} (device {ordinal})"), kind, limits });
        Ok(Device { stream: Stream::new(&core)?, core })
    }

    /// How many devices there are; opens the driver that [`Device::open`] would.
    ///
    /// # Errors
    /// If there is no driver at all.
    pub fn count() -> Result<usize> {
        driver::load(Choice::Auto)?;
        driver::device_count()
    }

    /// Whether this is a GPU or the CPU device, and why.
    pub fn kind(&self) -> &Kind {
        self.core.kind
    }

    /// Name and number, as messages show them: `NVIDIA H200 (device 0)`.
    pub fn name(&self) -> &str {
        &self.core.name
    }

    /// Its number among the devices that the process sees.
    pub fn ordinal(&self) -> usize {
        self.core.cuda.ordinal()
    }

    /// What it allows.
    pub fn limits(&self) -> &Limits {
        &self.core.limits
    }

    /// Free and total memory in bytes. What the driver keeps for this process ([`Device::trim`]) is not free.
    ///
    /// # Errors
    /// What the driver says.
    pub fn memory(&self) -> Result<(usize, usize)> {
        self.core.cuda.mem_get_info().map_err(self.core.failed("cuMemGetInfo"))
    }

    /// Gives freed memory back, of which the driver otherwise keeps up to an eighth of the device's for this process.
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
    /// # Errors
    /// An error of that work.
    pub fn synchronize(&self) -> Result<()> {
        self.core.cuda.synchronize().map_err(self.core.failed("cuCtxSynchronize"))
    }

    /// The stream that is used where none is named.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Another stream.
    ///
    /// # Errors
    /// What the driver says.
    pub fn new_stream(&self) -> Result<Stream> {
        Stream::new(&self.core)
    }

    /// cudarc's context, for what this crate does not offer.
    pub fn cuda(&self) -> &Arc<CudaContext> {
        &self.core.cuda
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }
}

/// Lets the driver keep up to an eighth of the device's memory that was freed, for the next allocation. Else it gives all of
/// it back whenever somebody waits, and mapping it again costs more than most kernels.
fn keep_freed_memory(cuda: &CudaContext) -> std::result::Result<(), DriverError> {
    if !cuda.has_async_alloc() {
        return Ok(());
    }
    let mut pool = std::ptr::null_mut();
    let mut bytes = cuda.total_mem()? as u64 / 8;
    // SAFETY: the device is open, `pool` is valid for writing, and the attribute is 64 bits wide.
    unsafe {
        sys::cuDeviceGetDefaultMemPool(&mut pool, cuda.cu_device()).result()?;
        let attribute = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        sys::cuMemPoolSetAttribute(pool, attribute, (&raw mut bytes).cast()).result()
    }
}

/// Memory. Each function has a form that names the stream.
impl Device {
    /// Memory for `len` elements, all bytes zero.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn zeros<T: Pod>(&self, len: usize) -> Result<Buffer<T>> {
        self.zeros_on(len, &self.stream)
    }

    /// As [`Device::zeros`], in the order of `stream`.
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
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn upload<T: Pod>(&self, values: &[T]) -> Result<Buffer<T>> {
        self.upload_on(values, &self.stream)
    }

    /// As [`Device::upload`], in the order of `stream`.
    ///
    /// # Errors
    /// As [`Device::upload`]; [`Error::WrongDevice`].
    pub fn upload_on<T: Pod>(&self, values: &[T], stream: &Stream) -> Result<Buffer<T>> {
        let mut buffer = Buffer::uninitialised(self, values.len(), stream)?;
        buffer.write_on(values, stream)?;
        Ok(buffer)
    }

    /// Pinned memory of the host for `len` elements, all bytes zero: copies to and from it go at full speed and do not
    /// hold up the host.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn pinned<T: Pod>(&self, len: usize) -> Result<Pinned<T>> {
        Pinned::new(self, len)
    }
}
