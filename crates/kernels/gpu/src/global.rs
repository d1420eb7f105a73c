//! Variables of modules: `__device__` and `__constant__`, read and written from the host.

use std::fmt;
use std::marker::PhantomData;

use bytemuck::Pod;
use cudarc::driver::sys;

use crate::buffer::{READ_LATER, check_stream, copy_from_host, describe, same_size};
use crate::error::Result;
use crate::module::Module;
use crate::stream::Stream;

/// A `__device__` or `__constant__` variable of a [`Module`]: `len` elements of type `T`. Found by
/// [`Module::global`]; keeps the module loaded.
///
/// Which kernels use a variable is not known, so nothing orders them but what is said here:
/// [`write`](Global::write) and [`to_vec`](Global::to_vec) wait for all work on the device,
/// [`write_on`](Global::write_on) takes its turn in a stream.
///
/// ```
/// # if apex_gpu::Module::can_compile().is_err() { return Ok(()) } // no NVRTC here
/// # let device = apex_gpu::Device::open(0)?;
/// let module = device.compile(&apex_gpu::Source::new(r#"
///     __constant__ float weights[3];
///     __device__ unsigned calls;
///     extern "C" __global__ void weigh(float* x) {
///         x[threadIdx.x] *= weights[threadIdx.x];
///         if (threadIdx.x == 0) atomicAdd(&calls, 1);
///     }
/// "#))?;
/// module.global::<f32>("weights")?.write(&[0.5, 1.0, 2.0])?;
/// let mut x = device.upload(&[4.0f32, 4.0, 4.0])?;
/// // SAFETY: one thread for each of three elements.
/// unsafe { module.kernel("weigh")?.launch(1, 3).arg(&mut x).launch()? };
/// assert_eq!(x.to_vec()?, [2.0, 4.0, 8.0]);
/// assert_eq!(module.global::<u32>("calls")?.to_vec()?, [1]);
/// # apex_gpu::Result::Ok(())
/// ```
pub struct Global<T> {
    module: Module,
    name: String,
    address: sys::CUdeviceptr,
    len: usize,
    element: PhantomData<T>,
}

impl<T> fmt::Debug for Global<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        describe::<T>(out, &format!("Global {} ", self.name), self.len, self.module.device().name())
    }
}

impl<T: Pod> Global<T> {
    /// `bytes` bytes at `address` belong to the variable, a whole number of elements.
    pub(crate) fn new(module: &Module, name: &str, address: u64, bytes: usize) -> Global<T> {
        let (module, name, len) = (module.clone(), name.to_owned(), bytes / size_of::<T>());
        Global { module, name, address, len, element: PhantomData }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Waits for all work on the device, then sets all elements. When this returns, `values` may be
    /// changed, and kernels that are launched read them.
    ///
    /// ```
    /// # const PTX: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels.ptx"));
    /// # let device = apex_gpu::Device::open(0)?;
    /// let table = device.load_ptx(PTX)?.global::<f32>("table")?;
    /// assert_eq!((table.len(), table.is_empty()), (4, false));
    /// table.write(&[1.0, 2.0, 3.0, 4.0])?;
    /// assert_eq!(table.to_vec()?, [1.0, 2.0, 3.0, 4.0]);
    /// assert!(matches!(table.write(&[1.0]), Err(apex_gpu::Error::SizeMismatch { to_elements: 4, .. })));
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// [`Error::SizeMismatch`](crate::Error::SizeMismatch), or an error of the work before.
    pub fn write(&self, values: &[T]) -> Result<()> {
        let device = self.module.device();
        device.stream().refuse_in_capture("`Global::write`", "call `Global::write_on`")?;
        device.synchronize()?;
        self.write_on(values, device.stream())?;
        device.stream().synchronize()
    }

    /// Sets all elements in the order of `stream`: for launches that `stream` is given later. When
    /// this returns, `values` may be changed.
    ///
    /// ```
    /// # const PTX: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels.ptx"));
    /// # let device = apex_gpu::Device::open(0)?;
    /// let table = device.load_ptx(PTX)?.global::<f32>("table")?;
    /// table.write_on(&[0.5; 4], device.stream())?;
    /// assert_eq!(table.to_vec()?, [0.5; 4]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// [`Error::SizeMismatch`](crate::Error::SizeMismatch),
    /// [`Error::WrongDevice`](crate::Error::WrongDevice).
    pub fn write_on(&self, values: &[T], stream: &Stream) -> Result<()> {
        same_size("a slice", values.len(), "a variable", self.len)?;
        let device = self.module.device();
        check_stream(device.core(), stream)?;
        device.core().bind()?;
        // SAFETY: the variable has as many bytes, and the module is loaded.
        unsafe { copy_from_host(device, self.address, bytemuck::cast_slice(values), stream) }
    }

    /// The elements, copied to the host. Waits for all work on the device.
    ///
    /// ```
    /// # const PTX: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels.ptx"));
    /// # let device = apex_gpu::Device::open(0)?;
    /// let module = device.load_ptx(PTX)?;
    /// assert_eq!(module.global::<u32>("counter")?.to_vec()?, [7]); // as the PTX initialises it
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// An error of the work before.
    pub fn to_vec(&self) -> Result<Vec<T>> {
        let device = self.module.device();
        device.stream().refuse_in_capture("reading a variable", READ_LATER)?;
        device.synchronize()?;
        let mut values = vec![T::zeroed(); self.len];
        let bytes = size_of_val(&*values);
        // SAFETY: the variable has as many bytes, and the module is loaded.
        let copied = unsafe { sys::cuMemcpyDtoH_v2(values.as_mut_ptr().cast(), self.address, bytes) };
        copied.result().map_err(device.core().failed_at("cuMemcpyDtoH", || self.name.clone()))?;
        Ok(values)
    }
}
