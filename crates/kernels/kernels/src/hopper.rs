//! The host code that all Hopper forms share: the check of the device, and tensor maps, which
//! describe the layout of tensors to the copy engine (TMA).

use std::ffi::c_void;

use apex_gpu::{Buffer, Device};
use bytemuck::{Pod, Zeroable};
use cudarc::driver::sys;

use crate::Element;

/// Returns the reason why the forms do not run on this device, if they do not.
pub fn refusal(device: &Device) -> Option<String> {
    let (major, minor) = device.limits().compute_capability;
    ((major, minor) != (9, 0))
        .then(|| format!("it needs compute capability 9.0 (H100, H200), and this is {major}.{minor}"))
}

/// The description of a tensor for the copy engine: the driver's `CUtensorMap`.
#[repr(C, align(64))]
#[derive(Clone, Copy, Pod, Zeroable)]
pub struct TensorMap([u64; 16]);

/// A tensor of five dimensions, the innermost first, and the tile of it that one copy brings, with
/// the 128-byte swizzle.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    pub sizes: [usize; 5],
    /// The distance from one element to the next along all dimensions but the first, in elements.
    pub strides: [usize; 4],
    pub tile: [usize; 5],
}

/// A map of a buffer that holds the tensor.
///
/// # Errors
/// The driver's refusal, and the reason.
pub fn tensor_map<T: Element, B: Pod>(buffer: &Buffer<B>, layout: &Layout) -> Result<TensorMap, String> {
    let sizes = layout.sizes.map(|size| size as u64);
    let strides = layout.strides.map(|stride| (stride * size_of::<T>()) as u64);
    let tile = layout.tile.map(|size| size as u32);
    let every = [1u32; 5];
    let kind = match T::NAME {
        "bf16" => sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        _ => sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
    };
    let mut map = TensorMap::zeroed();
    // SAFETY: `map` is as large and as aligned as the driver's type, the arrays have as many
    // elements as the rank asks for, and the address is that of the buffer.
    let encoded = unsafe {
        sys::cuTensorMapEncodeTiled(
            (&raw mut map).cast(),
            kind,
            5,
            buffer.address() as *mut c_void,
            sizes.as_ptr(),
            strides.as_ptr(),
            tile.as_ptr(),
            every.as_ptr(),
            sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
            sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    };
    encoded.result().map_err(|error| format!("the driver refuses a map of {layout:?}: {error}"))?;
    Ok(map)
}
