//! Maps of tensors for the copy engine of compute capability 9.0 (TMA). Older drivers do not have
//! the functions, which are therefore looked up when a map is asked for.

use crate::error::{DriverError, Result};
use crate::library::{Library, check};
use cuda_abi::signature;
use cuda_abi::types::*;
use std::ffi::c_void;

/// A tensor in device memory, and what one copy moves of it. The innermost dimension comes first.
#[derive(Clone, Copy, Debug)]
pub struct Layout<'l> {
    /// The address of the first element.
    pub address: CUdeviceptr,
    /// The type of elements.
    pub data_type: CUtensorMapDataType,
    /// Elements along each dimension.
    pub sizes: &'l [u64],
    /// Bytes from an element to the next along each dimension but the first.
    pub strides: &'l [u64],
    /// Elements of the box along each dimension; with corners, channels and pixels alone.
    pub spans: &'l [u32],
    /// The box has every element, every second, … along each dimension.
    pub steps: &'l [u32],
    /// The permutation of shared memory.
    pub swizzle: CUtensorMapSwizzle,
    /// Whether NaNs stand for elements outside, in place of zeros.
    pub nan: bool,
    /// The first and the last pixel along each inner dimension, for copies of pixels (`im2col`).
    pub corners: Option<(&'l [i32], &'l [i32])>,
}

impl Layout<'_> {
    /// Whether the lists have as many elements as the driver reads.
    fn is_complete(&self) -> bool {
        let rank = self.sizes.len();
        let spans = if self.corners.is_some() { 2 } else { rank };
        let corners = self
            .corners
            .is_none_or(|(lower, upper)| rank >= 2 && lower.len() == rank - 2 && upper.len() == rank - 2);
        rank >= 1
            && self.strides.len() == rank - 1
            && self.spans.len() == spans
            && self.steps.len() == rank
            && corners
    }
}

/// The 128 bytes that kernels get for a tensor.
///
/// # Errors
/// [`DriverError::MissingFunction`] where the driver is too old, [`DriverError::Call`] where it
/// refuses the layout or lists have the wrong lengths.
pub fn encode(driver: Library, layout: &Layout<'_>) -> Result<[u8; 128]> {
    let call = match layout.corners {
        None => "cuTensorMapEncodeTiled",
        Some(_) => "cuTensorMapEncodeIm2col",
    };
    if !layout.is_complete() {
        return Err(DriverError::Call { call, code: CUDA_ERROR_INVALID_VALUE });
    }
    let name = std::ffi::CString::new(call).expect("a name without zero bytes");
    let address = driver.address(&name);
    if address.is_null() {
        return Err(DriverError::MissingFunction(call));
    }
    let mut map = CUtensorMap { opaque: [0; 16] };
    // SAFETY: the function has the signature of its name, and each list has as many elements as
    // the driver reads, as has just been seen.
    let code = unsafe { encode_with(address, layout, &mut map) };
    check(call, code)?;
    let mut bytes = [0; 128];
    bytes.chunks_exact_mut(8).zip(map.opaque).for_each(|(to, word)| to.copy_from_slice(&word.to_le_bytes()));
    Ok(bytes)
}

/// Calls the function at `function`.
///
/// # Safety
/// It is the one for the layout, which is complete.
unsafe fn encode_with(function: *mut c_void, layout: &Layout<'_>, map: &mut CUtensorMap) -> CUresult {
    let fill = match layout.nan {
        false => CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        true => CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA,
    };
    let (rank, address) = (layout.sizes.len() as cuuint32_t, layout.address as *mut c_void);
    let (sizes, strides) = (layout.sizes.as_ptr(), layout.strides.as_ptr());
    let (spans, steps) = (layout.spans.as_ptr(), layout.steps.as_ptr());
    let (interleave, promotion) = (CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE);
    let (data_type, swizzle) = (layout.data_type, layout.swizzle);
    // SAFETY: the caller's promise.
    unsafe {
        match layout.corners {
            None => {
                let encode = std::mem::transmute::<*mut c_void, signature::cuTensorMapEncodeTiled>(function);
                encode(
                    map, data_type, rank, address, sizes, strides, spans, steps, interleave, swizzle,
                    promotion, fill,
                )
            }
            Some((lower, upper)) => {
                let encode = std::mem::transmute::<*mut c_void, signature::cuTensorMapEncodeIm2col>(function);
                let (lower, upper) = (lower.as_ptr(), upper.as_ptr());
                let [channels, pixels] = [layout.spans[0], layout.spans[1]];
                encode(
                    map, data_type, rank, address, sizes, strides, lower, upper, channels, pixels, steps,
                    interleave, swizzle, promotion, fill,
                )
            }
        }
    }
}
