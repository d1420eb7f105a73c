//! Tensor maps, which copies of boxes of tensors use: compute capability 9.0.

use crate::device::{self, Capability};
use crate::entry::{array, entries, read, write};
use crate::error::{Error, Result, ensure, fail};
use cuda_abi::types::*;
use ptx_exec::{Corners, MAX_INNER, MAX_RANK, TensorMap};
use std::ffi::c_void;

entries! {
    /// Describes a tensor and the boxes that are copied of it.
    fn cuTensorMapEncodeTiled(
        map: *mut CUtensorMap,
        data_type: CUtensorMapDataType,
        rank: cuuint32_t,
        address: *mut c_void,
        sizes: *const cuuint64_t,
        strides: *const cuuint64_t,
        spans: *const cuuint32_t,
        steps: *const cuuint32_t,
        interleave: CUtensorMapInterleave,
        swizzle: CUtensorMapSwizzle,
        _promotion: CUtensorMapL2promotion,
        fill: CUtensorMapFloatOOBfill,
    )
        partly "interleaved layouts, packed types and swizzles with other units than 16 bytes are refused"
    {
        ensure(!map.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let plain = tensor(data_type, (rank, 1), (interleave, swizzle), fill)?;
        let mut described = placed(plain, address, (sizes, strides, steps))?;
        let dimensions = rank as usize;
        described.spans[..dimensions].copy_from_slice(array(spans, dimensions)?);
        check(&described)?;
        write(map, encoded(&described))
    }

    /// Describes images and the pixels that are copied of them.
    fn cuTensorMapEncodeIm2col(
        map: *mut CUtensorMap,
        data_type: CUtensorMapDataType,
        rank: cuuint32_t,
        address: *mut c_void,
        sizes: *const cuuint64_t,
        strides: *const cuuint64_t,
        lower: *const i32,
        upper: *const i32,
        channels: cuuint32_t,
        pixels: cuuint32_t,
        steps: *const cuuint32_t,
        interleave: CUtensorMapInterleave,
        swizzle: CUtensorMapSwizzle,
        _promotion: CUtensorMapL2promotion,
        fill: CUtensorMapFloatOOBfill,
    )
        partly "interleaved layouts, packed types and swizzles with other units than 16 bytes are refused"
    {
        ensure(!map.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let images = tensor(data_type, (rank, 3), (interleave, swizzle), fill)?;
        let mut described = placed(images, address, (sizes, strides, steps))?;
        (described.spans[0], described.spans[1]) = (channels, pixels);
        let corner = |given: *const i32| corner(array(given, rank as usize - 2)?);
        described.pixels = Some(Corners { lower: corner(lower)?, upper: corner(upper)? });
        check(&described)?;
        write(map, encoded(&described))
    }

    /// Gives a map another tensor of the same form.
    fn cuTensorMapReplaceAddress(map: *mut CUtensorMap, address: *mut c_void) {
        let bytes = read(map)?.opaque.map(u64::to_le_bytes);
        let described = TensorMap::from_bytes(bytes.as_flattened().first_chunk().unwrap_or(&[0; 128]));
        let described = described.ok_or(Error(CUDA_ERROR_INVALID_VALUE))?;
        let moved = TensorMap { address: address as u64, ..described };
        check(&moved)?;
        write(map, encoded(&moved))
    }
}

/// A tensor of elements of a type and a number of dimensions, of which it has at least some; what
/// it has along them is to be filled in.
fn tensor(
    data_type: CUtensorMapDataType,
    (rank, least): (cuuint32_t, usize),
    (interleave, swizzle): (CUtensorMapInterleave, CUtensorMapSwizzle),
    fill: CUtensorMapFloatOOBfill,
) -> Result<TensorMap> {
    ensure((least..=MAX_RANK).contains(&(rank as usize)), CUDA_ERROR_INVALID_VALUE)?;
    if interleave != CU_TENSOR_MAP_INTERLEAVE_NONE || swizzle > CU_TENSOR_MAP_SWIZZLE_128B {
        return fail(CUDA_ERROR_NOT_SUPPORTED);
    }
    let (element_bytes, nan) = element(data_type)?;
    Ok(TensorMap {
        address: 0,
        element_bytes,
        data_type,
        rank,
        outside: if fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE { 0 } else { nan },
        swizzle,
        sizes: [1; MAX_RANK],
        strides: [0; MAX_RANK - 1],
        spans: [1; MAX_RANK],
        steps: [1; MAX_RANK],
        pixels: None,
    })
}

/// The tensor at an address, with the sizes, strides and steps of its dimensions.
///
/// # Safety
/// The arrays are null, or have an element for each dimension, that of strides one less.
unsafe fn placed(
    map: TensorMap,
    address: *mut c_void,
    (sizes, strides, steps): (*const cuuint64_t, *const cuuint64_t, *const cuuint32_t),
) -> Result<TensorMap> {
    let (mut map, dimensions) = (TensorMap { address: address as u64, ..map }, map.rank as usize);
    // SAFETY: the caller's promise.
    let (sizes, strides, steps) =
        unsafe { (array(sizes, dimensions)?, array(strides, dimensions - 1)?, array(steps, dimensions)?) };
    map.sizes[..dimensions].copy_from_slice(sizes);
    map.strides[..dimensions - 1].copy_from_slice(strides);
    map.steps[..dimensions].copy_from_slice(steps);
    Ok(map)
}

/// A corner of the pixels. Its numbers have 16 bits in all, shared by the inner dimensions (of
/// three each has five).
fn corner(given: &[i32]) -> Result<[i16; MAX_INNER]> {
    let bits = [16, 8, 5][given.len() - 1];
    let range = -(1 << (bits - 1))..=(1 << (bits - 1)) - 1;
    ensure(given.iter().all(|number| range.contains(number)), CUDA_ERROR_INVALID_VALUE)?;
    Ok(std::array::from_fn(|axis| given.get(axis).map_or(0, |number| *number as i16)))
}

/// What may stand for floats outside a tensor, in each 16 bits: a NaN in all types.
const NANS: u32 = 0x7ff7_7ff7;

/// Bytes of an element, and the bits that may stand for those outside.
fn element(data_type: CUtensorMapDataType) -> Result<(u32, u32)> {
    Ok(match data_type {
        CU_TENSOR_MAP_DATA_TYPE_UINT8 => (1, 0),
        CU_TENSOR_MAP_DATA_TYPE_UINT16 => (2, 0),
        CU_TENSOR_MAP_DATA_TYPE_UINT32 | CU_TENSOR_MAP_DATA_TYPE_INT32 => (4, 0),
        CU_TENSOR_MAP_DATA_TYPE_UINT64 | CU_TENSOR_MAP_DATA_TYPE_INT64 => (8, 0),
        CU_TENSOR_MAP_DATA_TYPE_FLOAT16 | CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 => (2, NANS),
        CU_TENSOR_MAP_DATA_TYPE_FLOAT32
        | CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ
        | CU_TENSOR_MAP_DATA_TYPE_TFLOAT32
        | CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ => (4, NANS),
        CU_TENSOR_MAP_DATA_TYPE_FLOAT64 => (8, NANS),
        _ => return fail(CUDA_ERROR_NOT_SUPPORTED),
    })
}

/// Checks a map against the requirements of the driver's reference.
fn check(map: &TensorMap) -> Result {
    if device::capability() == Capability::Ampere {
        return fail(CUDA_ERROR_NOT_SUPPORTED);
    }
    let dimensions = map.rank as usize;
    let line = u64::from(map.spans[0]) * u64::from(map.element_bytes);
    let most_pixels = if map.pixels.is_some() { 1024 } else { 256 };
    let most = if map.swizzle == 0 { u64::MAX } else { 16 << map.swizzle };
    let sound = map.address.is_multiple_of(16)
        && map.sizes.iter().all(|size| (1..=1 << 32).contains(size))
        && map.strides[..dimensions - 1].iter().all(|stride| stride % 16 == 0 && *stride < 1 << 40)
        && map.spans.iter().all(|span| (1..=256).contains(span) || *span == map.spans[1])
        && (1..=most_pixels).contains(&map.spans[1])
        && map.steps.iter().all(|step| (1..=8).contains(step))
        && line % 16 == 0
        && line <= most;
    ensure(sound, CUDA_ERROR_INVALID_VALUE)
}

fn encoded(map: &TensorMap) -> CUtensorMap {
    let bytes = map.to_bytes();
    let (words, _) = bytes.as_chunks::<8>();
    CUtensorMap { opaque: std::array::from_fn(|at| u64::from_le_bytes(words[at])) }
}
