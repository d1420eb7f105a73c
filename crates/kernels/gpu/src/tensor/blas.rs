//! Products by cuBLAS.

use std::borrow::Cow;
use std::ffi::c_void;
use std::sync::Arc;

use cudarc::cublas::{CudaBlas, result, sys};

use super::matmul::Backend;
use super::{Number, Tensor};
use crate::device::Device;
use crate::driver::Kind;
use crate::error::{Error, Result};
use crate::libraries;
use crate::uses::Access;

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

    fn factor(&self) -> std::result::Result<Factor, String> {
        let [leading] = int([self.leading])?;
        let operation = match self.transposed {
            false => sys::cublasOperation_t::CUBLAS_OP_N,
            true => sys::cublasOperation_t::CUBLAS_OP_T,
        };
        let from = self.tensor.origin().address() as *const c_void;
        Ok(Factor { from, operation, leading, apart: self.apart as i64 })
    }
}

impl<T: Number> Tensor<T> {
    /// The implementation of products of this type.
    pub(super) fn cublas_backend(&self) -> Backend {
        match cublas_type::<T>() {
            Some(_) => self.kernels.blas().backend.clone(),
            None => Backend::Own("cuBLAS has no product of i32".to_owned()),
        }
    }

    /// Multiplies with cuBLAS; `None` if it is not there or does not multiply this type.
    pub(super) fn multiply_with_cublas(&self, other: &Tensor<T>, out: &mut Tensor<T>) -> Option<Result<()>> {
        let element = cublas_type::<T>()?;
        let blas = self.kernels.blas();
        Some(self.multiply_by(blas.handle.as_ref()?, element, other, out))
    }

    fn multiply_by(
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
        let factors = [a.factor().map_err(failed)?, b.factor().map_err(failed)?];
        let [m, n, k, batch] = int([m, n, k, batch]).map_err(failed)?;
        let stream = self.kernels.stream();
        device.core().bind()?;
        a.tensor.buffer.memory().order(stream, Access::Read)?;
        b.tensor.buffer.memory().order(stream, Access::Read)?;
        let into = out.buffer_mut();
        into.memory().order(stream, Access::Write)?;
        let to = into.address() as *mut c_void;
        let product = Product { sizes: [m, n, k], batch, factors, element, to };
        // SAFETY: the handle lives and its stream is the one that the buffers were ordered for;
        // leading dimensions and distances are those of the shapes, which stay within their
        // buffers.
        unsafe { product.enqueue(*blas.handle()) }.map_err(|error| failed(format!("{:?}", error.0)))
    }
}

/// A batch of products a b = out of row-major matrices. cuBLAS is column-major: to it, they are
/// transposed, so it computes b^T a^T = out^T.
struct Product {
    /// Rows of a and out; columns of b and out; columns of a.
    sizes: [i32; 3],
    batch: i32,
    /// a and b.
    factors: [Factor; 2],
    element: sys::cudaDataType,
    to: *mut c_void,
}

/// A factor as cuBLAS takes it.
#[derive(Clone, Copy)]
struct Factor {
    from: *const c_void,
    operation: sys::cublasOperation_t,
    leading: i32,
    apart: i64,
}

impl Product {
    /// Enqueues the products on the handle's stream.
    ///
    /// # Safety
    ///
    /// The handle lives. The matrices lie within memory of its device that is free for this use on
    /// its stream.
    #[rustfmt::skip] // a matrix a line
    unsafe fn enqueue(&self, handle: sys::cublasHandle_t) -> std::result::Result<(), result::CublasError> {
        let ([m, n, k], [a, b], element) = (self.sizes, self.factors, self.element);
        let (one, zero) = (1.0f32, 0.0f32);
        let pointer = |value: &f32| std::ptr::from_ref(value).cast::<c_void>();
        let (one, zero) = (pointer(&one), pointer(&zero));
        let compute = sys::cublasComputeType_t::CUBLAS_COMPUTE_32F;
        let algorithm = sys::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT;
        let apart = i64::from(m) * i64::from(n);
        // SAFETY: as promised by the caller.
        unsafe {
            match self.batch {
                1 => result::gemm_ex(
                    handle, b.operation, a.operation, n, m, k, one,
                    b.from, element, b.leading,
                    a.from, element, a.leading, zero,
                    self.to, element, n,
                    compute, algorithm,
                ),
                _ => result::gemm_strided_batched_ex(
                    handle, b.operation, a.operation, n, m, k, one,
                    b.from, element, b.leading, b.apart,
                    a.from, element, a.leading, a.apart, zero,
                    self.to, element, n, apart,
                    self.batch, compute, algorithm,
                ),
            }
        }
    }
}

/// Sizes as cuBLAS takes them; an error says which one is too large.
fn int<const N: usize>(sizes: [usize; N]) -> std::result::Result<[i32; N], String> {
    let mut ints = [0; N];
    for (int, size) in ints.iter_mut().zip(sizes) {
        *int = i32::try_from(size).map_err(|_| format!("{size} exceeds its 32-bit sizes"))?;
    }
    Ok(ints)
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
