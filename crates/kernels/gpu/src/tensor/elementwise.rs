//! Operations on each element.

use std::any::Any;

use super::kernels::{self, AT_ONCE, Routine};
use super::shape::Shape;
use super::{Float, Number, Tensor};
use crate::error::{Error, Result};
use crate::launch::Launch;

/// Operations on two elements, in the order of the kernels' own list.
#[derive(Clone, Copy)]
enum Binary {
    Add,
    Subtract,
    Multiply,
    Divide,
    Maximum,
    Minimum,
}

/// Operations on one element, in the order of the kernels' own list.
#[derive(Clone, Copy)]
enum Unary {
    Affine,
    Relu,
    Abs,
    Sqrt,
    Reciprocal,
}

/// Functions of one fraction, in the order of the kernels' own list.
#[derive(Clone, Copy)]
enum Function {
    Exp,
    Ln,
    Tanh,
    Sigmoid,
    Gelu,
}

/// Two tensors, element by element. Dimensions of size 1 repeat, as do missing ones before the
/// first.
impl<T: Number> Tensor<T> {
    /// Sum. Wraps for i32.
    ///
    /// ```
    /// # use apex_gpu::{Device, Tensor};
    /// # let device = Device::open(0)?;
    /// let x = Tensor::new(&device, &[1.0f32, 2.0, 3.0, 4.0], &[2, 2])?;
    /// let row = Tensor::new(&device, &[10.0f32, 20.0], &[2])?;
    /// assert_eq!(x.add(&row)?.to_vec()?, [11.0, 22.0, 13.0, 24.0]);
    /// let three = Tensor::<f32>::zeros(&device, &[3])?;
    /// assert!(matches!(x.add(&three), Err(apex_gpu::Error::Shape { .. })));
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Shape`] if the shapes do not fit, [`Error::WrongDevice`]; as for all operations of
    /// two tensors.
    pub fn add(&self, other: &Tensor<T>) -> Result<Tensor<T>> {
        self.binary("add", Binary::Add, other)
    }

    /// Difference. Wraps for i32.
    ///
    /// ```
    /// # use apex_gpu::{Device, Tensor};
    /// # let device = Device::open(0)?;
    /// let x = Tensor::new(&device, &[5, 7], &[2])?;
    /// let one = Tensor::full(&device, 1, &[])?; // without dimensions: for each
    /// assert_eq!(x.sub(&one)?.to_vec()?, [4, 6]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::add`].
    pub fn sub(&self, other: &Tensor<T>) -> Result<Tensor<T>> {
        self.binary("sub", Binary::Subtract, other)
    }

    /// Product of elements; see [`Tensor::matmul`] for that of matrices. Wraps for i32.
    ///
    /// ```
    /// # use apex_gpu::{Device, Tensor};
    /// # let device = Device::open(0)?;
    /// let column = Tensor::new(&device, &[1, 2], &[2, 1])?;
    /// let row = Tensor::new(&device, &[3, 4, 5], &[3])?;
    /// assert_eq!(column.mul(&row)?.to_vec()?, [3, 4, 5, 6, 8, 10]); // both repeat
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::add`].
    pub fn mul(&self, other: &Tensor<T>) -> Result<Tensor<T>> {
        self.binary("mul", Binary::Multiply, other)
    }

    /// Quotient. For i32 toward zero, and 0 where the divisor is.
    ///
    /// ```
    /// # use apex_gpu::{Device, Tensor};
    /// # let device = Device::open(0)?;
    /// let (x, y) = (Tensor::new(&device, &[-7, 7, 1], &[3])?, Tensor::new(&device, &[2, 2, 0], &[3])?);
    /// assert_eq!(x.div(&y)?.to_vec()?, [-3, 3, 0]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::add`].
    pub fn div(&self, other: &Tensor<T>) -> Result<Tensor<T>> {
        self.binary("div", Binary::Divide, other)
    }

    /// The larger one; NaN if either is.
    ///
    /// ```
    /// # use apex_gpu::{Device, Tensor};
    /// # let device = Device::open(0)?;
    /// let x = Tensor::new(&device, &[1.0f32, 5.0, f32::NAN], &[3])?;
    /// let most = x.maximum(&Tensor::full(&device, 2.0f32, &[])?)?.to_vec()?;
    /// assert_eq!(most[..2], [2.0, 5.0]);
    /// assert!(most[2].is_nan());
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::add`].
    pub fn maximum(&self, other: &Tensor<T>) -> Result<Tensor<T>> {
        self.binary("maximum", Binary::Maximum, other)
    }

    /// The smaller one; NaN if either is.
    ///
    /// ```
    /// # use apex_gpu::{Device, Tensor};
    /// # let device = Device::open(0)?;
    /// let x = Tensor::new(&device, &[1, 5, -4], &[3])?;
    /// assert_eq!(x.minimum(&Tensor::full(&device, 2, &[])?)?.to_vec()?, [1, 2, -4]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::add`].
    pub fn minimum(&self, other: &Tensor<T>) -> Result<Tensor<T>> {
        self.binary("minimum", Binary::Minimum, other)
    }

    fn binary(&self, name: &'static str, operation: Binary, other: &Tensor<T>) -> Result<Tensor<T>> {
        self.check_same_device(name, other)?;
        let sizes = self.shape.common(&other.shape, name)?;
        let mut out = Tensor::unfilled(self.device(), Shape::contiguous(name, &sizes)?)?;
        let n = out.len();
        if n == 0 {
            return Ok(out);
        }
        let in_order = |tensor: &Tensor<T>| tensor.shape() == &*sizes && tensor.shape.is_contiguous();
        // Wide loads need 16-byte addresses; a slice may begin anywhere.
        let aligned = |tensor: &Tensor<T>| (tensor.shape.offset() * size_of::<T>()).is_multiple_of(16);
        if [self, other].into_iter().all(|tensor| in_order(tensor) && aligned(tensor)) {
            let kernel = self.kernels.get::<T>(Routine::Binary)?;
            let launch = kernels::over(kernel, n.div_ceil(AT_ONCE));
            let launch = launch.arg(operation as u32).arg(n as u64).arg(self.origin()).arg(other.origin());
            // SAFETY: all three have `n` elements in order, at addresses that are multiples of 16.
            unsafe { launch.arg(out.buffer_mut()).launch()? };
        } else {
            let (a, b) = (self.shape.broadcast(name, &sizes)?, other.shape.broadcast(name, &sizes)?);
            let kernel = self.kernels.get::<T>(Routine::BinaryStrided)?;
            let launch = kernels::over(kernel, n).arg(operation as u32).arg(n as u64).arg(a.layout(Some(&b)));
            let launch = launch.arg(self.origin()).arg(other.origin());
            // SAFETY: shapes stay within their buffers, and `out` has `n` elements.
            unsafe { launch.arg(out.buffer_mut()).launch()? };
        }
        Ok(out)
    }

    pub(super) fn check_same_device(&self, operation: &'static str, other: &Tensor<T>) -> Result<()> {
        if self.device().cuda().cu_ctx() == other.device().cuda().cu_ctx() {
            return Ok(());
        }
        Err(Error::WrongDevice {
            what: format!("the second tensor of `{operation}`"),
            found: other.device().name().to_owned(),
            expected: self.device().name().to_owned(),
        })
    }
}

/// One tensor, element by element.
impl<T: Number> Tensor<T> {
    /// `scale * x + shift`, with one rounding (wrapping for i32, of which scale and shift are whole
    /// numbers).
    ///
    /// ```
    /// # use apex_gpu::{Device, Tensor};
    /// # let device = Device::open(0)?;
    /// let celsius = Tensor::new(&device, &[0.0f32, 100.0], &[2])?;
    /// assert_eq!(celsius.affine(1.8, 32.0)?.to_vec()?, [32.0, 212.0]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; as for all operations of one tensor.
    pub fn affine(&self, scale: f64, shift: f64) -> Result<Tensor<T>> {
        self.unary(Unary::Affine, scale, shift)
    }

    /// `-x`.
    ///
    /// ```
    /// # use apex_gpu::{Device, Tensor};
    /// # let device = Device::open(0)?;
    /// assert_eq!(Tensor::new(&device, &[1.5f32, -2.0], &[2])?.neg()?.to_vec()?, [-1.5, 2.0]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::affine`].
    pub fn neg(&self) -> Result<Tensor<T>> {
        // Adding -0 changes nothing, not even the sign of zeros.
        self.unary(Unary::Affine, -1.0, -0.0)
    }

    /// The absolute value.
    ///
    /// ```
    /// # use apex_gpu::{Device, Tensor};
    /// # let device = Device::open(0)?;
    /// assert_eq!(Tensor::new(&device, &[3, -4], &[2])?.abs()?.to_vec()?, [3, 4]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::affine`].
    pub fn abs(&self) -> Result<Tensor<T>> {
        self.unary(Unary::Abs, 0.0, 0.0)
    }

    /// `x`, or 0 where `x` is negative.
    ///
    /// ```
    /// # use apex_gpu::{Device, Tensor};
    /// # let device = Device::open(0)?;
    /// assert_eq!(Tensor::new(&device, &[-1.0f32, 0.5], &[2])?.relu()?.to_vec()?, [0.0, 0.5]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::affine`].
    pub fn relu(&self) -> Result<Tensor<T>> {
        self.unary(Unary::Relu, 0.0, 0.0)
    }

    fn unary(&self, operation: Unary, scale: f64, shift: f64) -> Result<Tensor<T>> {
        self.each(Routine::Unary, |launch, n| {
            let launch = launch.arg(operation as u32).arg(n);
            launch.arg(T::value_from_f64(scale)).arg(T::value_from_f64(shift))
        })
    }

    /// Runs a kernel over each element. `begin` gives the arguments before the two tensors; `n` is
    /// their length.
    fn each(
        &self,
        routine: Routine,
        begin: impl for<'k> FnOnce(Launch<'k>, u64) -> Launch<'k>,
    ) -> Result<Tensor<T>> {
        let from = self.contiguous()?;
        let aligned = (from.shape.offset() * size_of::<T>()).is_multiple_of(16);
        let from = if aligned { from } else { from.copied()? };
        let n = from.len();
        let mut out = Tensor::unfilled(self.device(), from.shape.compact())?;
        if n > 0 {
            let launch = kernels::over(self.kernels.get::<T>(routine)?, n.div_ceil(AT_ONCE));
            // SAFETY: both have `n` elements in order, at addresses that are multiples of 16.
            unsafe { begin(launch, n as u64).arg(from.origin()).arg(out.buffer_mut()).launch()? };
        }
        Ok(out)
    }

    /// A copy in a buffer of its own.
    fn copied(&self) -> Result<Tensor<T>> {
        let mut copy = Tensor::unfilled(self.device(), self.shape.compact())?;
        let buffer = copy.buffer_mut();
        buffer.view_mut().copy_from(self.elements())?;
        Ok(copy)
    }

    /// The elements as another type: to the nearest, of `i32` toward zero and within its range, NaN
    /// as 0.
    ///
    /// ```
    /// use apex_gpu::{Device, Tensor};
    /// let x = Tensor::new(&Device::open(0)?, &[-1.5f32, 2.25, 1e20], &[3])?;
    /// assert_eq!(x.cast::<i32>()?.to_vec()?, [-1, 2, i32::MAX]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::affine`].
    pub fn cast<U: Number>(&self) -> Result<Tensor<U>> {
        if let Some(same) = (self as &dyn Any).downcast_ref::<Tensor<U>>() {
            return Ok(same.clone());
        }
        let from = self.contiguous()?;
        let n = from.len();
        let mut out = Tensor::<U>::unfilled(self.device(), from.shape.compact())?;
        if n > 0 {
            let kernel = self.kernels.cast::<T, U>()?;
            let launch = kernels::over(kernel, n).arg(n as u64).arg(from.origin());
            // SAFETY: both have `n` elements in order.
            unsafe { launch.arg(out.buffer_mut()).launch()? };
        }
        Ok(out)
    }
}

/// Functions of fractions.
impl<T: Float> Tensor<T> {
    fn function(&self, function: Function) -> Result<Tensor<T>> {
        self.each(Routine::Function, |launch, n| launch.arg(function as u32).arg(n))
    }

    /// e to the power of x.
    ///
    /// ```
    /// # use apex_gpu::{Device, Tensor};
    /// # let device = Device::open(0)?;
    /// let y = Tensor::new(&device, &[0.0f32, 1.0], &[2])?.exp()?.to_vec()?;
    /// assert!((y[0] - 1.0).abs() < 1e-6 && (y[1] - std::f32::consts::E).abs() < 1e-6);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::affine`].
    pub fn exp(&self) -> Result<Tensor<T>> {
        self.function(Function::Exp)
    }

    /// The natural logarithm.
    ///
    /// ```
    /// # use apex_gpu::{Device, Tensor};
    /// # let device = Device::open(0)?;
    /// let y = Tensor::new(&device, &[1.0f32, 0.0, -1.0], &[3])?.ln()?.to_vec()?;
    /// assert_eq!(y[..2], [0.0, f32::NEG_INFINITY]);
    /// assert!(y[2].is_nan());
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::affine`].
    pub fn ln(&self) -> Result<Tensor<T>> {
        self.function(Function::Ln)
    }

    /// The square root.
    ///
    /// ```
    /// # use apex_gpu::{Device, Tensor};
    /// # let device = Device::open(0)?;
    /// assert_eq!(Tensor::new(&device, &[9.0f32, 0.25], &[2])?.sqrt()?.to_vec()?, [3.0, 0.5]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::affine`].
    pub fn sqrt(&self) -> Result<Tensor<T>> {
        self.unary(Unary::Sqrt, 0.0, 0.0)
    }

    /// The hyperbolic tangent.
    ///
    /// ```
    /// # use apex_gpu::{Device, Tensor};
    /// # let device = Device::open(0)?;
    /// assert_eq!(Tensor::new(&device, &[0.0f32, 50.0, -50.0], &[3])?.tanh()?.to_vec()?, [0.0, 1.0, -1.0]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::affine`].
    pub fn tanh(&self) -> Result<Tensor<T>> {
        self.function(Function::Tanh)
    }

    /// `1 / (1 + exp(-x))`.
    ///
    /// ```
    /// # use apex_gpu::{Device, Tensor};
    /// # let device = Device::open(0)?;
    /// assert_eq!(Tensor::new(&device, &[0.0f32, 50.0], &[2])?.sigmoid()?.to_vec()?, [0.5, 1.0]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::affine`].
    pub fn sigmoid(&self) -> Result<Tensor<T>> {
        self.function(Function::Sigmoid)
    }

    /// `x * Φ(x)`, with the exact distribution function.
    ///
    /// ```
    /// # use apex_gpu::{Device, Tensor};
    /// # let device = Device::open(0)?;
    /// let y = Tensor::new(&device, &[0.0f32, 1.0], &[2])?.gelu()?.to_vec()?;
    /// assert!(y[0] == 0.0 && (y[1] - 0.8413447).abs() < 1e-6);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::affine`].
    pub fn gelu(&self) -> Result<Tensor<T>> {
        self.function(Function::Gelu)
    }

    /// `1 / x`.
    ///
    /// ```
    /// # use apex_gpu::{Device, Tensor};
    /// # let device = Device::open(0)?;
    /// assert_eq!(Tensor::new(&device, &[4.0f32, -0.5], &[2])?.recip()?.to_vec()?, [0.25, -2.0]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::affine`].
    pub fn recip(&self) -> Result<Tensor<T>> {
        self.unary(Unary::Reciprocal, 0.0, 0.0)
    }
}
