//! Products of matrices: cuBLAS where it is installed, else a kernel of this crate.

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use super::kernels::Routine;
use super::shape::{MAX_RANK, Shape};
use super::{Number, Tensor};
use crate::error::{Error, Result};

/// Side of the part of the result that a block of our own kernel computes.
const TILE: usize = 64;

/// The implementation of matrix products.
///
/// ```
/// use apex_gpu::Backend;
/// assert_eq!(Backend::Cublas(130_002).to_string(), "cuBLAS 13.0.2");
/// assert_eq!(Backend::Own("cuBLAS needs a GPU".to_owned()).to_string(), "own kernel (cuBLAS needs a GPU)");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backend {
    /// cuBLAS, of this version (10000 times major, plus 100 times minor, plus patch).
    Cublas(i32),
    /// The kernel of this crate, and why.
    Own(String),
}

impl fmt::Display for Backend {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Backend::Cublas(version) => {
                write!(out, "cuBLAS {}.{}.{}", version / 10000, version / 100 % 100, version % 100)
            }
            Backend::Own(why) => write!(out, "own kernel ({why})"),
        }
    }
}

impl<T: Number> Tensor<T> {
    /// Returns the implementation of [`Tensor::matmul`] for this type on this device.
    ///
    /// ```
    /// # use apex_gpu::{Device, Tensor};
    /// # let device = Device::open(0)?;
    /// let x = Tensor::<i32>::zeros(&device, &[2, 2])?;
    /// assert!(matches!(x.matmul_backend(), apex_gpu::Backend::Own(_))); // on every device, for i32
    /// # apex_gpu::Result::Ok(())
    /// ```
    pub fn matmul_backend(&self) -> Backend {
        self.cublas_backend()
    }

    /// Product of matrices: `[…, m, k]` times `[…, k, n]` gives `[…, m, n]`, one product for each
    /// index of the dimensions before, which are the same on both sides.
    ///
    /// f16 and bf16 are summed in f32; f32 is computed in f32, not in TF32. Transposed operands are
    /// not copied.
    ///
    /// ```
    /// # use apex_gpu::{Device, Tensor};
    /// # let device = Device::open(0)?;
    /// let a = Tensor::new(&device, &[1, 2, 3, 4, 5, 6], &[2, 3])?;
    /// let b = Tensor::new(&device, &[1, 0, 0, 1, 1, 1], &[3, 2])?;
    /// assert_eq!(a.matmul(&b)?.to_vec()?, [4, 5, 10, 11]);
    /// let batch = Tensor::<f32>::zeros(&device, &[7, 2, 3])?;
    /// assert_eq!(batch.matmul(&batch.transpose(1, 2)?)?.shape(), [7, 2, 2]);
    /// let error = a.matmul(&a).unwrap_err();
    /// assert_eq!(error.to_string(), "matmul: [2, 3] times [2, 3]");
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Shape`] if the shapes do not fit, [`Error::WrongDevice`].
    pub fn matmul(&self, other: &Tensor<T>) -> Result<Tensor<T>> {
        let shape = self.product_shape(other)?;
        let mut out = Tensor::unfilled(self.device(), shape)?;
        self.multiply(other, &mut out)?;
        Ok(out)
    }

    /// As [`Tensor::matmul`], into a tensor that exists, which nothing may share.
    ///
    /// ```
    /// # use apex_gpu::{Device, Tensor};
    /// # let device = Device::open(0)?;
    /// let a = Tensor::new(&device, &[1.0f32, 2.0, 3.0, 4.0], &[2, 2])?;
    /// let mut power = Tensor::zeros(&device, &[2, 2])?; // written anew each time
    /// for _ in 0..3 {
    ///     a.matmul_into(&a, &mut power)?;
    /// }
    /// assert_eq!(power.to_vec()?, [7.0, 10.0, 15.0, 22.0]);
    /// let shared = power.clone();
    /// assert!(a.matmul_into(&a, &mut power).is_err());
    /// # drop(shared);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::matmul`]; [`Error::Shape`] if `out` has another shape or is shared.
    pub fn matmul_into(&self, other: &Tensor<T>, out: &mut Tensor<T>) -> Result<()> {
        let shape = self.product_shape(other)?;
        let refused = |why: String| Err(Error::Shape { operation: "matmul_into", why });
        if out.shape() != shape.sizes() || !out.shape.is_contiguous() {
            return refused(format!("the product is {:?}, not {:?}", shape.sizes(), out.shape()));
        }
        self.check_same_device("matmul_into", out)?;
        if Arc::get_mut(&mut out.buffer).is_none() || out.shape.offset() != 0 {
            return refused("the result's elements are shared with another tensor".to_owned());
        }
        self.multiply(other, out)
    }

    fn product_shape(&self, other: &Tensor<T>) -> Result<Shape> {
        self.check_same_device("matmul", other)?;
        let refused = || Error::Shape {
            operation: "matmul",
            why: format!("{:?} times {:?}", self.shape(), other.shape()),
        };
        let ([batch_a @ .., m, k], [batch_b @ .., also_k, n]) = (self.shape(), other.shape()) else {
            return Err(refused());
        };
        if batch_a != batch_b || k != also_k {
            return Err(refused());
        }
        let sizes: SmallVec<[usize; MAX_RANK]> = batch_a.iter().copied().chain([*m, *n]).collect();
        Shape::contiguous("matmul", &sizes)
    }

    fn multiply(&self, other: &Tensor<T>, out: &mut Tensor<T>) -> Result<()> {
        if out.is_empty() {
            return Ok(());
        }
        if self.is_empty() {
            // Sums of nothing.
            return out.buffer_mut().clear();
        }
        match self.multiply_with_cublas(other, out) {
            Some(done) => done,
            None => self.multiply_ourselves(other, out),
        }
    }

    fn multiply_ourselves(&self, other: &Tensor<T>, out: &mut Tensor<T>) -> Result<()> {
        let (a, b) = (self.contiguous()?, other.contiguous()?);
        let [.., m, k] = *a.shape() else { unreachable!("checked by `product_shape`") };
        let n = *b.shape().last().unwrap_or(&1);
        let batch = out.len() / (m * n);
        let blocks = |size: usize| size.div_ceil(TILE);
        if [m, n, k].iter().any(|&size| size > u32::MAX as usize) || blocks(m) > 65535 || batch > 65535 {
            let why = format!(
                "{:?} times {:?} is too large for the kernel of this crate",
                self.shape(),
                other.shape()
            );
            return Err(Error::Shape { operation: "matmul", why });
        }
        let kernel = self.kernels.get::<T>(Routine::Matmul)?;
        let launch = kernel.launch([blocks(n) as u32, blocks(m) as u32, batch as u32], [256, 1, 1]);
        let launch = launch.arg(m as u32).arg(n as u32).arg(k as u32).arg((m * k) as u64).arg((k * n) as u64);
        // SAFETY: the three have `batch` matrices of these sizes, in order.
        unsafe { launch.arg(a.origin()).arg(b.origin()).arg(out.buffer_mut()).launch() }
    }
}
