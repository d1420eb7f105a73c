//! Small tensors: enough to write a model down without writing kernels.
//!
//! A [`Tensor`] is a shape over a buffer that it shares with its views. Operations check shapes,
//! run on the device's own stream, and give new tensors. They compute in f32 (i32 for i32,
//! wrapping) and store in the tensor's type; sums of i32 are 64 bits wide before they are stored.
//! NaN stays NaN through maximum, minimum and reductions.
//!
//! ```
//! use apex_gpu::{Device, Tensor};
//! let device = Device::open(0)?;
//! let x = Tensor::new(&device, &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3])?;
//! let w = Tensor::new(&device, &[1.0f32, 0.0, 0.0, 1.0, 1.0, 1.0], &[3, 2])?;
//! let bias = Tensor::new(&device, &[0.5f32, -0.5], &[2])?;
//! let y = x.matmul(&w)?.add(&bias)?.relu()?;
//! assert_eq!(y.to_vec()?, [4.5, 4.5, 10.5, 10.5]);
//! # apex_gpu::Result::Ok(())
//! ```

#[cfg(feature = "cublas")]
mod blas;
mod elementwise;
mod kernels;
mod matmul;
mod operators;
mod reduce;
mod shape;
#[cfg(not(feature = "cublas"))]
mod without_blas;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use apex_device_code::tensors;
use half::{bf16, f16};

use crate::buffer::{Buffer, View};
use crate::device::Device;
use crate::error::{Error, Result};
use kernels::{Kernels, Routine};
use shape::Shape;

const SHARED: &str = "the elements are shared with another tensor; drop its clones and views first";

pub use matmul::Backend;
pub use shape::Extents;

/// An element type of tensors: `f32`, [`half::f16`], [`half::bf16`] or `i32`.
///
/// ```
/// use apex_gpu::{Device, Number, Tensor};
///
/// fn square<T: Number>(x: &Tensor<T>) -> apex_gpu::Result<Tensor<T>> {
///     x.mul(x)
/// }
/// let device = Device::open(0)?;
/// assert_eq!(square(&Tensor::new(&device, &[-3, 4], &[2])?)?.to_vec()?, [9, 16]);
/// assert_eq!(square(&Tensor::new(&device, &[0.5f32], &[1])?)?.to_vec()?, [0.25]);
/// # apex_gpu::Result::Ok(())
/// ```
pub trait Number: sealed::Number {}

/// A [`Number`] that is a fraction: all but `i32`.
///
/// ```
/// use apex_gpu::{Device, Float, Tensor};
/// use half::bf16;
///
/// fn silu<T: Float>(x: &Tensor<T>) -> apex_gpu::Result<Tensor<T>> {
///     x.mul(&x.sigmoid()?)
/// }
/// let x = Tensor::new(&Device::open(0)?, &[bf16::ZERO], &[1])?;
/// assert_eq!(silu(&x)?.to_vec()?, [bf16::ZERO]);
/// # apex_gpu::Result::Ok(())
/// ```
pub trait Float: Number {}

pub(crate) mod sealed {
    use bytemuck::Pod;

    /// The properties of an element type that the kernels need.
    pub trait Number: Pod + Into<f64> + PartialEq + std::fmt::Debug + Send + Sync {
        /// The type for computations.
        type Value: Pod;
        /// The type for sums.
        type Sum: Pod;
        /// Its name in names of kernels.
        const NAME: &'static str;
        /// Returns the kernels.
        fn ptx() -> &'static str;
        fn from_f64(value: f64) -> Self;
        fn value_from_f64(value: f64) -> Self::Value;
    }
}

macro_rules! numbers {
    ($($type:ty, $value:ty, $sum:ty, $name:literal, $module:ident, $from:expr;)*) => { $(
        impl Number for $type {}
        impl sealed::Number for $type {
            type Value = $value;
            type Sum = $sum;
            const NAME: &'static str = $name;
            fn ptx() -> &'static str {
                tensors::$module.ptx()
            }
            fn from_f64(value: f64) -> Self {
                $from(value)
            }
            fn value_from_f64(value: f64) -> $value {
                value as $value
            }
        }
    )* };
}

numbers! {
    f32, f32, f32, "f32", F32, |value| value as f32;
    f16, f32, f32, "f16", F16, f16::from_f64;
    bf16, f32, f32, "bf16", BF16, bf16::from_f64;
    i32, i32, i64, "i32", I32, |value| value as i32;
}

impl Float for f32 {}
impl Float for f16 {}
impl Float for bf16 {}

/// Elements of type `T` on a device, in up to [`Tensor::MAX_RANK`] dimensions. Cheap to clone:
/// clones and views share the elements, which never change while they are shared.
///
/// ```
/// # use apex_gpu::{Device, Tensor};
/// # let device = Device::open(0)?;
/// let x = Tensor::new(&device, &[1, 2, 3, 4, 5, 6], &[2, 3])?;
/// assert_eq!((x.shape(), x.strides(), x.len()), (&[2, 3][..], &[3, 1][..], 6));
/// let turned = x.transpose(0, 1)?; // no copy
/// assert_eq!((turned.shape(), turned.strides()), (&[3, 2][..], &[1, 3][..]));
/// assert_eq!(turned.to_vec()?, [1, 4, 2, 5, 3, 6]);
/// # apex_gpu::Result::Ok(())
/// ```
#[derive(Clone)]
pub struct Tensor<T: Number> {
    buffer: Arc<Buffer<T>>,
    kernels: &'static Kernels,
    shape: Shape,
}

impl<T: Number> fmt::Debug for Tensor<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Tensor<{}>({:?}, on {})", T::NAME, self.shape(), self.device().name())
    }
}

impl<T: Number> Tensor<T> {
    /// Most dimensions.
    ///
    /// ```
    /// # use apex_gpu::{Device, Tensor};
    /// # let device = Device::open(0)?;
    /// let dimensions = [1; Tensor::<f32>::MAX_RANK];
    /// assert_eq!(Tensor::<f32>::zeros(&device, &dimensions)?.len(), 1);
    /// # apex_gpu::Result::Ok(())
    /// ```
    pub const MAX_RANK: usize = shape::MAX_RANK;

    /// A tensor of `values` in row-major order: the last dimension's elements lie next to each
    /// other.
    ///
    /// ```
    /// # use apex_gpu::{Device, Tensor};
    /// # let device = Device::open(0)?;
    /// let x = Tensor::new(&device, &[1.0f32, 2.0, 3.0, 4.0], &[2, 2])?; // rows 1, 2 and 3, 4
    /// assert_eq!(x.slice(0, 1..2)?.to_vec()?, [3.0, 4.0]);
    /// let error = Tensor::new(&device, &[1.0f32], &[2, 2]).unwrap_err();
    /// assert_eq!(error.to_string(), "new: 1 values do not fill the shape [2, 2]");
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Shape`] if the shape has another number of elements; [`Error::OutOfMemory`].
    pub fn new(device: &Device, values: &[T], shape: impl Into<Extents>) -> Result<Tensor<T>> {
        let shape = Shape::contiguous("new", shape.into().sizes())?;
        if shape.len() != values.len() {
            let why = format!("{} values do not fill the shape {:?}", values.len(), shape.sizes());
            return Err(Error::Shape { operation: "new", why });
        }
        Tensor::over(device.upload(values)?, shape)
    }

    /// All zeros.
    ///
    /// ```
    /// # use apex_gpu::{Device, Tensor};
    /// # let device = Device::open(0)?;
    /// let x = Tensor::<f32>::zeros(&device, &[2, 2])?;
    /// assert_eq!(x.to_vec()?, [0.0; 4]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn zeros(device: &Device, shape: impl Into<Extents>) -> Result<Tensor<T>> {
        let shape = Shape::contiguous("zeros", shape.into().sizes())?;
        Tensor::over(device.zeros(shape.len())?, shape)
    }

    /// All elements equal.
    ///
    /// ```
    /// # use apex_gpu::{Device, Tensor};
    /// # let device = Device::open(0)?;
    /// let x = Tensor::full(&device, 7, &[3])?;
    /// assert_eq!(x.to_vec()?, [7, 7, 7]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn full(device: &Device, value: T, shape: impl Into<Extents>) -> Result<Tensor<T>> {
        let mut filled = Tensor::unfilled(device, Shape::contiguous("full", shape.into().sizes())?)?;
        let (n, kernels) = (filled.len(), filled.kernels);
        let kernel = kernels.get::<T>(Routine::Fill)?;
        // SAFETY: the kernel writes `n` elements, as many as there are.
        unsafe { kernels::over(kernel, n).arg(n as u64).arg(value).arg(filled.buffer_mut()).launch()? };
        Ok(filled)
    }

    /// A buffer as a tensor; see [`Tensor::new`].
    ///
    /// ```
    /// # use apex_gpu::{Device, Tensor};
    /// # let device = Device::open(0)?;
    /// let buffer = device.upload(&[1.0f32, 2.0, 3.0])?; // or what a kernel wrote
    /// let column = Tensor::from_buffer(buffer, &[3, 1])?;
    /// assert_eq!(column.shape(), [3, 1]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Shape`].
    pub fn from_buffer(buffer: Buffer<T>, shape: impl Into<Extents>) -> Result<Tensor<T>> {
        let shape = Shape::contiguous("from_buffer", shape.into().sizes())?;
        if shape.len() != buffer.len() {
            let why = format!("a buffer of {} does not fill the shape {:?}", buffer.len(), shape.sizes());
            return Err(Error::Shape { operation: "from_buffer", why });
        }
        Tensor::over(buffer, shape)
    }

    fn over(buffer: Buffer<T>, shape: Shape) -> Result<Tensor<T>> {
        let kernels = Kernels::of::<T>(buffer.device())?;
        Ok(Tensor { buffer: Arc::new(buffer), kernels, shape })
    }

    /// A tensor whose elements somebody is about to write.
    fn unfilled(device: &Device, shape: Shape) -> Result<Tensor<T>> {
        Tensor::over(Buffer::uninitialised(device, shape.len(), device.stream())?, shape)
    }

    /// The buffer of a tensor that was just made.
    fn buffer_mut(&mut self) -> &mut Buffer<T> {
        Arc::get_mut(&mut self.buffer).expect("nobody else has a tensor that is being made")
    }

    /// Sets all elements to those of `other`, which has the same shape: the memory stays where it
    /// is, as captured work needs it ([`Graph`](crate::Graph)).
    ///
    /// ```
    /// # use apex_gpu::{Device, Tensor};
    /// # let device = Device::open(0)?;
    /// let mut weights = Tensor::new(&device, &[1.0f32, 2.0], 2)?;
    /// weights.copy_from(&(&weights * 3.0)?)?;
    /// assert_eq!(weights.to_vec()?, [3.0, 6.0]);
    /// let shared = weights.clone();
    /// assert!(weights.copy_from(&shared).is_err()); // it would change the clone
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Shape`] if `other` has another shape, or if clones or views share the elements.
    pub fn copy_from(&mut self, other: &Tensor<T>) -> Result<()> {
        let refused = |why: String| Err(Error::Shape { operation: "copy_from", why });
        if self.shape() != other.shape() {
            return refused(format!("{:?} is not the shape {:?}", other.shape(), self.shape()));
        }
        let other = other.contiguous()?;
        let (offset, len) = (self.shape.offset(), self.len());
        if !self.shape.is_contiguous() {
            let strides = self.strides();
            return refused(format!(
                "strides {strides:?} are not those of elements in order; call contiguous() first"
            ));
        }
        let Some(buffer) = Arc::get_mut(&mut self.buffer) else {
            return refused(SHARED.to_owned());
        };
        buffer.slice_mut(offset..offset + len).copy_from(other.elements())
    }

    /// The elements in row-major order, on the host.
    ///
    /// ```
    /// # use apex_gpu::{Device, Tensor};
    /// # let device = Device::open(0)?;
    /// let x = Tensor::new(&device, &[1, 2, 3, 4], &[2, 2])?;
    /// assert_eq!(x.transpose(0, 1)?.to_vec()?, [1, 3, 2, 4]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// An error of the work before.
    pub fn to_vec(&self) -> Result<Vec<T>> {
        self.contiguous()?.elements().to_vec()
    }

    /// The only element.
    ///
    /// ```
    /// # use apex_gpu::{Device, Tensor};
    /// # let device = Device::open(0)?;
    /// let x = Tensor::new(&device, &[1.5f32, 2.5], &[2])?;
    /// assert_eq!(x.sum_all()?.item()?, 4.0);
    /// assert!(x.item().is_err());
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Shape`] if there are more or none.
    pub fn item(&self) -> Result<T> {
        match *self.to_vec()? {
            [item] => Ok(item),
            _ => Err(Error::Shape {
                operation: "item",
                why: format!("{:?} has not one element", self.shape()),
            }),
        }
    }

    /// Sizes of the dimensions.
    ///
    /// ```
    /// # use apex_gpu::{Device, Tensor};
    /// # let device = Device::open(0)?;
    /// let x = Tensor::<f32>::zeros(&device, &[8, 3, 2])?;
    /// assert_eq!((x.shape(), x.len(), x.is_empty()), (&[8, 3, 2][..], 48, false));
    /// assert_eq!(x.sum_all()?.shape(), []);
    /// # apex_gpu::Result::Ok(())
    /// ```
    pub fn shape(&self) -> &[usize] {
        self.shape.sizes()
    }

    /// For each dimension, how many elements of the buffer lie from one index to the next.
    ///
    /// ```
    /// # use apex_gpu::{Device, Tensor};
    /// # let device = Device::open(0)?;
    /// let row = Tensor::new(&device, &[1, 2, 3], &[1, 3])?;
    /// assert_eq!(row.strides(), [3, 1]);
    /// assert_eq!(row.broadcast(&[4, 3])?.strides(), [0, 1]); // each row is the same memory
    /// # apex_gpu::Result::Ok(())
    /// ```
    pub fn strides(&self) -> &[isize] {
        self.shape.strides()
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.len()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The device.
    ///
    /// ```
    /// # use apex_gpu::{Device, Tensor};
    /// # let device = Device::open(0)?;
    /// let x = Tensor::<f32>::zeros(&device, &[4])?;
    /// let y = Tensor::full(x.device(), 1.0f32, x.shape())?; // like x
    /// assert_eq!(x.add(&y)?.to_vec()?, [1.0; 4]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    pub fn device(&self) -> &Device {
        self.buffer.device()
    }

    /// The elements of a tensor whose elements lie in order, see [`Tensor::contiguous`].
    ///
    /// ```
    /// # use apex_gpu::{Device, Tensor};
    /// # let device = Device::open(0)?;
    /// let x = Tensor::new(&device, &[1.0f32, 2.0, 3.0, 4.0], &[2, 2])?;
    /// let second = x.slice(0, 1..2)?; // lies in order; a column would not
    /// let view = second.elements(); // an argument for a kernel, for instance
    /// assert_eq!(view.to_vec()?, [3.0, 4.0]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Panics
    /// If they do not.
    pub fn elements(&self) -> View<'_, T> {
        assert!(self.shape.is_contiguous(), "the elements do not lie in order: call `contiguous` first");
        self.buffer.slice(self.shape.offset()..self.shape.offset() + self.len())
    }

    /// The buffer that holds these elements and no others, for what takes buffers.
    ///
    /// ```
    /// # use apex_gpu::{Device, Tensor};
    /// # let device = Device::open(0)?;
    /// let x = Tensor::new(&device, &[1.0f32, 2.0, 3.0, 4.0], (2, 2))?;
    /// assert_eq!(x.as_buffer()?.len(), 4);
    /// assert!(x.slice(0, 0..1)?.as_buffer().is_err()); // a part of a buffer
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Shape`] if the buffer holds others too, or these in another order.
    pub fn as_buffer(&self) -> Result<&Buffer<T>> {
        self.check_whole("as_buffer")?;
        Ok(&self.buffer)
    }

    /// The same, to write.
    ///
    /// ```
    /// # use apex_gpu::{Device, Tensor};
    /// # let device = Device::open(0)?;
    /// let mut x = Tensor::<f32>::zeros(&device, 3)?;
    /// x.as_buffer_mut()?.write(&[1.0, 2.0, 3.0])?;
    /// assert_eq!(x.to_vec()?, [1.0, 2.0, 3.0]);
    /// let shared = x.clone();
    /// assert!(x.as_buffer_mut().is_err()); // it would change the clone
    /// # drop(shared);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::as_buffer`]; [`Error::Shape`] if clones or views share the elements.
    pub fn as_buffer_mut(&mut self) -> Result<&mut Buffer<T>> {
        self.check_whole("as_buffer_mut")?;
        Arc::get_mut(&mut self.buffer)
            .ok_or_else(|| Error::Shape { operation: "as_buffer_mut", why: SHARED.to_owned() })
    }

    fn check_whole(&self, operation: &'static str) -> Result<()> {
        if self.shape.is_contiguous() && self.len() == self.buffer.len() {
            return Ok(());
        }
        let why = format!(
            "a tensor of shape {:?} and strides {:?} is not a buffer of {} elements in order; call contiguous() first",
            self.shape(),
            self.strides(),
            self.buffer.len()
        );
        Err(Error::Shape { operation, why })
    }

    /// The buffer from the first element on.
    fn origin(&self) -> View<'_, T> {
        self.buffer.slice(self.shape.offset()..)
    }
}

/// Views: other shapes over the same elements.
impl<T: Number> Tensor<T> {
    fn with_shape(&self, shape: Shape) -> Tensor<T> {
        Tensor { buffer: self.buffer.clone(), kernels: self.kernels, shape }
    }

    /// The same elements in another shape. Copies if they do not lie in order.
    ///
    /// ```
    /// # use apex_gpu::{Device, Tensor};
    /// # let device = Device::open(0)?;
    /// let x = Tensor::new(&device, &[1, 2, 3, 4, 5, 6], &[2, 3])?;
    /// assert_eq!(x.reshape(&[3, 2])?.slice(0, 0..1)?.to_vec()?, [1, 2]);
    /// assert!(x.reshape(&[4]).is_err());
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Shape`] if the shape has another number of elements.
    pub fn reshape(&self, shape: impl Into<Extents>) -> Result<Tensor<T>> {
        let from = self.contiguous()?;
        let shape = Shape::contiguous("reshape", shape.into().sizes())?.starting_at(from.shape.offset());
        if shape.len() != self.len() {
            let why = format!("{:?} does not hold the elements of {:?}", shape.sizes(), self.shape());
            return Err(Error::Shape { operation: "reshape", why });
        }
        Ok(from.with_shape(shape))
    }

    /// Exchanges two dimensions.
    ///
    /// ```
    /// # use apex_gpu::{Device, Tensor};
    /// # let device = Device::open(0)?;
    /// let x = Tensor::<f32>::zeros(&device, &[5, 3, 2])?;
    /// assert_eq!(x.transpose(0, 2)?.shape(), [2, 3, 5]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Shape`] if there is no such dimension.
    pub fn transpose(&self, one: usize, other: usize) -> Result<Tensor<T>> {
        Ok(self.with_shape(self.shape.transposed(one, other)?))
    }

    /// The indices in `range` of dimension `axis`.
    ///
    /// ```
    /// # use apex_gpu::{Device, Tensor};
    /// # let device = Device::open(0)?;
    /// let x = Tensor::new(&device, &[1, 2, 3, 4, 5, 6], &[2, 3])?;
    /// assert_eq!(x.slice(1, 1..3)?.to_vec()?, [2, 3, 5, 6]); // the last two columns
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Shape`] if there are no such indices.
    pub fn slice(&self, axis: usize, range: Range<usize>) -> Result<Tensor<T>> {
        Ok(self.with_shape(self.shape.sliced(axis, range)?))
    }

    /// Repeats dimensions of size 1, and adds dimensions before the first.
    ///
    /// ```
    /// # use apex_gpu::{Device, Tensor};
    /// # let device = Device::open(0)?;
    /// let column = Tensor::new(&device, &[1, 2], &[2, 1])?;
    /// assert_eq!(column.broadcast(&[2, 3])?.to_vec()?, [1, 1, 1, 2, 2, 2]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Shape`] if another dimension would change.
    pub fn broadcast(&self, shape: impl Into<Extents>) -> Result<Tensor<T>> {
        Ok(self.with_shape(self.shape.broadcast("broadcast", shape.into().sizes())?))
    }

    /// This tensor if its elements lie in row-major order, else a copy whose elements do.
    ///
    /// ```
    /// # use apex_gpu::{Device, Tensor};
    /// # let device = Device::open(0)?;
    /// let turned = Tensor::new(&device, &[1, 2, 3, 4], &[2, 2])?.transpose(0, 1)?;
    /// assert_eq!(turned.strides(), [1, 2]);
    /// assert_eq!(turned.contiguous()?.strides(), [2, 1]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn contiguous(&self) -> Result<Tensor<T>> {
        if self.shape.is_contiguous() {
            return Ok(self.clone());
        }
        let n = self.len();
        let mut copy = Tensor::unfilled(self.device(), self.shape.compact())?;
        let kernel = self.kernels.get::<T>(Routine::CopyStrided)?;
        let launch = kernels::over(kernel, n).arg(n as u64).arg(self.shape.layout(None)).arg(self.origin());
        // SAFETY: the layout stays within the buffer, as shapes do, and `copy` has `n` elements.
        unsafe { launch.arg(copy.buffer_mut()).launch()? };
        Ok(copy)
    }
}
