//! Products of matrices: cuBLAS where it is installed, else a kernel of this crate.

use std::borrow::Cow;
use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

use cudarc::cublas::{CudaBlas, result, sys};
use smallvec::SmallVec;

use super::kernels::Routine;
use super::shape::{MAX_RANK, Shape};
use super::{Number, Tensor};
use crate::device::Device;
use crate::driver::Kind;
use crate::error::{Error, Result};
use crate::libraries;
use crate::uses::Access;

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

/// cuBLAS on a device's own stream, or why not.
pub(super) struct Blas {
    handle: Option<CudaBlas>,
    backend: Backend,
}

impl Blas {
    pub(super) fn of(device: &Device) -> Blas {
        match Blas::open(device) {
            Ok((handle, version)) => Blas { handle: Some(handle), backend: Backend::Cublas(version) },
            Err(why) => Blas { handle: None, backend: Backend::Own(why) },
        }
    }

    fn open(device: &Device) -> std::result::Result<(CudaBlas, i32), String> {
        if *device.kind() != Kind::Gpu {
            return Err("cuBLAS needs a GPU".to_owned());
        }
        let search = libraries::open_newest("libcublas.so.", &["libcublasLt.so."], "cublas");
        // SAFETY: opens libraries of known names.
        if search.opened.is_none() && !unsafe { sys::is_culib_present() } {
            return Err("libcublas was not found".to_owned());
        }
        let handle = CudaBlas::new(Arc::clone(device.stream().cuda()))
            .map_err(|error| format!("cuBLAS: {error:?}"))?;
        let mut version = 0;
        // SAFETY: the handle lives, and `version` is valid for writing.
        let asked = unsafe { sys::cublasGetVersion_v2(*handle.handle(), &mut version) };
        asked.result().map_err(|error| format!("cuBLAS: {error:?}"))?;
        Ok((handle, version))
    }
}

/// A batch of matrices as cuBLAS wants them: each row-major or column-major, equally far from one
/// another.
struct Matrices<'t, T: Number> {
    tensor: Cow<'t, Tensor<T>>,
    transposed: bool,
    leading: usize,
    apart: usize,
}

impl<'t, T: Number> Matrices<'t, T> {
    /// Copies what does not lie as it has to.
    fn of(tensor: &'t Tensor<T>) -> Result<Matrices<'t, T>> {
        if let Some(found) = Matrices::as_it_is(Cow::Borrowed(tensor)) {
            return Ok(found);
        }
        let copy = Cow::Owned(tensor.contiguous()?);
        Ok(Matrices::as_it_is(copy).expect("matrices in order lie as they have to"))
    }

    fn as_it_is(tensor: Cow<'t, Tensor<T>>) -> Option<Matrices<'t, T>> {
        let rank = tensor.shape().len();
        let (sizes, strides) = (tensor.shape(), tensor.strides());
        let (rows, columns) = (sizes[rank - 2], sizes[rank - 1]);
        // Along a dimension of size 1 any stride will do.
        let stride =
            |axis: usize, other: usize| if sizes[axis] == 1 { other } else { strides[axis] as usize };
        let (down, right) = (stride(rank - 2, columns), stride(rank - 1, 1));
        let (transposed, leading) = match () {
            () if right == 1 && down >= columns.max(1) => (false, down),
            () if stride(rank - 2, 1) == 1 && stride(rank - 1, rows) >= rows.max(1) => {
                (true, stride(rank - 1, rows))
            }
            () => return None,
        };
        // From matrix to matrix: the batch's dimensions have to be evenly apart.
        let mut apart = 0;
        let mut expected = None;
        for axis in (0..rank - 2).rev().filter(|&axis| sizes[axis] != 1) {
            match expected {
                None => apart = strides[axis] as usize,
                Some(expected) if expected == strides[axis] as usize => {}
                Some(_) => return None,
            }
            expected = Some(strides[axis] as usize * sizes[axis]);
        }
        Some(Matrices { tensor, transposed, leading, apart })
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
        match cublas_type::<T>() {
            Some(_) => self.kernels.blas().backend.clone(),
            None => Backend::Own("cuBLAS has no product of i32".to_owned()),
        }
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
        if let Some(element) = cublas_type::<T>()
            && let Some(blas) = &self.kernels.blas().handle
        {
            return self.multiply_with_cublas(blas, element, other, out);
        }
        self.multiply_ourselves(other, out)
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

    /// cuBLAS is column-major: to it, row-major matrices are transposed, so it computes other^T
    /// self^T = out^T.
    fn multiply_with_cublas(
        &self,
        blas: &CudaBlas,
        element: sys::cudaDataType,
        other: &Tensor<T>,
        out: &mut Tensor<T>,
    ) -> Result<()> {
        let device = self.device().clone();
        let (a, b) = (Matrices::of(self)?, Matrices::of(other)?);
        let [.., m, k] = *self.shape() else { unreachable!("checked by `product_shape`") };
        let n = *other.shape().last().unwrap_or(&1);
        let batch = out.len() / (m * n);
        let failed = |code: String| Error::Blas {
            call: "cublasGemmStridedBatchedEx",
            device: device.name().to_owned(),
            code,
        };
        let int =
            |size: usize| i32::try_from(size).map_err(|_| failed(format!("{size} exceeds its 32-bit sizes")));
        let (m32, n32, k32, batch32) = (int(m)?, int(n)?, int(k)?, int(batch)?);
        let (leading_a, leading_b) = (int(a.leading)?, int(b.leading)?);
        let stream = self.kernels.stream();
        device.core().bind()?;
        a.tensor.buffer.memory().order(stream, Access::Read)?;
        b.tensor.buffer.memory().order(stream, Access::Read)?;
        let into = out.buffer_mut();
        into.memory().order(stream, Access::Write)?;
        let (one, zero) = (1.0f32, 0.0f32);
        let pointer = |value: &f32| std::ptr::from_ref(value).cast::<c_void>();
        let address = |matrices: &Matrices<'_, T>| matrices.tensor.origin().address() as *const c_void;
        let operation = |transposed| match transposed {
            false => sys::cublasOperation_t::CUBLAS_OP_N,
            true => sys::cublasOperation_t::CUBLAS_OP_T,
        };
        let handle = *blas.handle();
        let (transposed_a, transposed_b) = (operation(a.transposed), operation(b.transposed));
        let (compute, algorithm) =
            (sys::cublasComputeType_t::CUBLAS_COMPUTE_32F, sys::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT);
        let (one, zero, to) = (pointer(&one), pointer(&zero), into.address() as *mut c_void);
        let (from_a, from_b) = (address(&a), address(&b));
        // SAFETY: the handle lives and its stream is the one that the buffers were ordered for;
        // leading dimensions and distances are those of the shapes, which stay within their
        // buffers.
        let done = unsafe {
            match batch32 {
                1 => result::gemm_ex(
                    handle,
                    transposed_b,
                    transposed_a,
                    n32,
                    m32,
                    k32,
                    one,
                    from_b,
                    element,
                    leading_b,
                    from_a,
                    element,
                    leading_a,
                    zero,
                    to,
                    element,
                    n32,
                    compute,
                    algorithm,
                ),
                _ => result::gemm_strided_batched_ex(
                    handle,
                    transposed_b,
                    transposed_a,
                    n32,
                    m32,
                    k32,
                    one,
                    from_b,
                    element,
                    leading_b,
                    b.apart as i64,
                    from_a,
                    element,
                    leading_a,
                    a.apart as i64,
                    zero,
                    to,
                    element,
                    n32,
                    (m * n) as i64,
                    batch32,
                    compute,
                    algorithm,
                ),
            }
        };
        done.map_err(|error| failed(format!("{:?}", error.0)))
    }
}

/// cuBLAS' name of an element type that it multiplies.
fn cublas_type<T: Number>() -> Option<sys::cudaDataType> {
    match T::NAME {
        "f32" => Some(sys::cudaDataType::CUDA_R_32F),
        "f16" => Some(sys::cudaDataType::CUDA_R_16F),
        "bf16" => Some(sys::cudaDataType::CUDA_R_16BF),
        _ => None,
    }
}
