//! CUDA arrays, mipmapped or not, and the copies that only they have.

use super::copy::{copy_in_stream, copy_now, host, on_device};
use crate::entry::{entries, opaque, read, write};
use crate::error::{Error, Result, ensure};
use crate::image::array::{Array, MipmappedArray};
use crate::memory::copy::{DeclaredMemory, Extent, Side};
use crate::stream::Stream;
use cuda_abi::types::*;
use std::ffi::c_void;

entries! {
    /// Creates an array of one or two dimensions.
    fn cuArrayCreate_v2(array: *mut CUarray, descriptor: *const CUDA_ARRAY_DESCRIPTOR) {
        ensure(!array.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let given = read(descriptor)?;
        let descriptor = CUDA_ARRAY3D_DESCRIPTOR {
            Width: given.Width,
            Height: given.Height,
            Depth: 0,
            Format: given.Format,
            NumChannels: given.NumChannels,
            Flags: 0,
        };
        write(array, opaque(Array::create(descriptor)?.handle))
    }

    /// Creates an array of any kind.
    fn cuArray3DCreate_v2(array: *mut CUarray, descriptor: *const CUDA_ARRAY3D_DESCRIPTOR)
        partly "normalised, block-compressed, planar and sparse arrays are refused"
    {
        ensure(!array.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        write(array, opaque(Array::create(read(descriptor)?)?.handle))
    }

    /// Ends an array.
    fn cuArrayDestroy(array: CUarray) {
        Array::destroy(array)
    }

    /// Returns the descriptor that an array of one or two dimensions was created with.
    fn cuArrayGetDescriptor_v2(descriptor: *mut CUDA_ARRAY_DESCRIPTOR, array: CUarray) {
        let found = Array::resolve(array)?.descriptor;
        write(descriptor, CUDA_ARRAY_DESCRIPTOR {
            Width: found.Width,
            Height: found.Height,
            Format: found.Format,
            NumChannels: found.NumChannels,
        })
    }

    /// Returns the descriptor that an array was created with.
    fn cuArray3DGetDescriptor_v2(descriptor: *mut CUDA_ARRAY3D_DESCRIPTOR, array: CUarray) {
        write(descriptor, Array::resolve(array)?.descriptor)
    }

    /// Creates a mipmapped array.
    fn cuMipmappedArrayCreate(
        array: *mut CUmipmappedArray,
        descriptor: *const CUDA_ARRAY3D_DESCRIPTOR,
        levels: u32,
    ) partly "normalised, block-compressed, planar and sparse arrays are refused" {
        ensure(!array.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        write(array, opaque(MipmappedArray::create(read(descriptor)?, levels)?.handle))
    }

    /// Ends a mipmapped array.
    fn cuMipmappedArrayDestroy(array: CUmipmappedArray) {
        MipmappedArray::destroy(array)
    }

    /// A level of a mipmapped array; it ends with the whole.
    fn cuMipmappedArrayGetLevel(level_array: *mut CUarray, array: CUmipmappedArray, level: u32) {
        let array = MipmappedArray::resolve(array)?;
        let level = array.levels.get(level as usize).ok_or(Error(CUDA_ERROR_INVALID_VALUE))?;
        write(level_array, opaque(level.handle))
    }

    /// Copies from the host to an array.
    fn cuMemcpyHtoA_v2(
        destination: CUarray,
        offset: usize,
        source: *const c_void,
        bytes: usize,
    ) also cuMemcpyHtoA_v2_ptds [default] {
        copy_now(host(source), in_array(destination, offset, bytes)?, Extent::flat(bytes as u64), default)
    }

    /// Copies from the host to an array, in a stream.
    fn cuMemcpyHtoAAsync_v2(
        destination: CUarray,
        offset: usize,
        source: *const c_void,
        bytes: usize,
        stream: CUstream,
    ) also cuMemcpyHtoAAsync_v2_ptsz [default] {
        let stream = Stream::resolve(stream, default)?;
        copy_in_stream(host(source), in_array(destination, offset, bytes)?, Extent::flat(bytes as u64), &stream)
    }

    /// Copies from an array to the host.
    fn cuMemcpyAtoH_v2(
        destination: *mut c_void,
        source: CUarray,
        offset: usize,
        bytes: usize,
    ) also cuMemcpyAtoH_v2_ptds [default] {
        copy_now(in_array(source, offset, bytes)?, host(destination), Extent::flat(bytes as u64), default)
    }

    /// Copies from an array to the host, in a stream.
    fn cuMemcpyAtoHAsync_v2(
        destination: *mut c_void,
        source: CUarray,
        offset: usize,
        bytes: usize,
        stream: CUstream,
    ) also cuMemcpyAtoHAsync_v2_ptsz [default] {
        let stream = Stream::resolve(stream, default)?;
        copy_in_stream(in_array(source, offset, bytes)?, host(destination), Extent::flat(bytes as u64), &stream)
    }

    /// Copies from the device's memory to an array.
    fn cuMemcpyDtoA_v2(
        destination: CUarray,
        offset: usize,
        source: CUdeviceptr,
        bytes: usize,
    ) also cuMemcpyDtoA_v2_ptds [default] {
        copy_now(on_device(source), in_array(destination, offset, bytes)?, Extent::flat(bytes as u64), default)
    }

    /// Copies from an array to the device's memory.
    fn cuMemcpyAtoD_v2(
        destination: CUdeviceptr,
        source: CUarray,
        offset: usize,
        bytes: usize,
    ) also cuMemcpyAtoD_v2_ptds [default] {
        copy_now(in_array(source, offset, bytes)?, on_device(destination), Extent::flat(bytes as u64), default)
    }

    /// Copies from one array to another.
    fn cuMemcpyAtoA_v2(
        destination: CUarray,
        destination_offset: usize,
        source: CUarray,
        source_offset: usize,
        bytes: usize,
    ) also cuMemcpyAtoA_v2_ptds [default] {
        let source = in_array(source, source_offset, bytes)?;
        let destination = in_array(destination, destination_offset, bytes)?;
        copy_now(source, destination, Extent::flat(bytes as u64), default)
    }
}

/// The side of a copy that is in an array, from an offset in bytes.
fn in_array(array: CUarray, offset: usize, bytes: usize) -> Result<(Side, DeclaredMemory)> {
    let array = Array::resolve(array)?;
    Ok((array.flat_side(offset as u64, bytes as u64)?, DeclaredMemory::Array(array.handle)))
}
