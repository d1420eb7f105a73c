//! Copies and sets in all their forms.

use super::macros::hooks;
use crate::record::call::Memory::{self, Any, Host};
use apex_trace::layout::MemoryKind;
use cuda_abi::types::*;
use std::ffi::c_void;

const DEVICE: Memory = Memory::Is(MemoryKind::Device);
const ARRAY: Memory = Memory::Is(MemoryKind::Array);
const MANAGED: Memory = Memory::Is(MemoryKind::Managed);

hooks! {
    fn any(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) |notes| {
        notes.copy((Any, to), (Any, from), bytes);
    }

    fn any_async(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) |notes| {
        notes.copy((Any, to), (Any, from), bytes);
        notes.asynchronous(stream);
    }

    fn any_with_attributes(
        to: CUdeviceptr,
        from: CUdeviceptr,
        bytes: usize,
        attributes: *mut CUmemcpyAttributes,
        stream: CUstream,
    ) |notes| {
        notes.copy((Any, to), (Any, from), bytes);
        notes.asynchronous(stream);
    }

    fn peer(to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, bytes: usize) |notes| {
        notes.copy((DEVICE, to), (DEVICE, from), bytes);
    }

    fn peer_async(
        to: CUdeviceptr,
        to_context: CUcontext,
        from: CUdeviceptr,
        from_context: CUcontext,
        bytes: usize,
        stream: CUstream,
    ) |notes| {
        notes.copy((DEVICE, to), (DEVICE, from), bytes);
        notes.asynchronous(stream);
    }

    fn host_to_device(to: CUdeviceptr, from: *const c_void, bytes: usize) |notes| {
        notes.copy((DEVICE, to), (Host, from as u64), bytes);
    }

    fn host_to_device_async(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream) |notes| {
        notes.copy((DEVICE, to), (Host, from as u64), bytes);
        notes.asynchronous(stream);
    }

    fn device_to_host(to: *mut c_void, from: CUdeviceptr, bytes: usize) |notes| {
        notes.copy((Host, to as u64), (DEVICE, from), bytes);
    }

    fn device_to_host_async(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream) |notes| {
        notes.copy((Host, to as u64), (DEVICE, from), bytes);
        notes.asynchronous(stream);
    }

    fn device_to_device(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) |notes| {
        notes.copy((DEVICE, to), (DEVICE, from), bytes);
    }

    fn device_to_device_async(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) |notes| {
        notes.copy((DEVICE, to), (DEVICE, from), bytes);
        notes.asynchronous(stream);
    }

    fn device_to_array(to: CUarray, offset: usize, from: CUdeviceptr, bytes: usize) |notes| {
        notes.copy((ARRAY, to as u64), (DEVICE, from), bytes);
    }

    fn array_to_device(to: CUdeviceptr, from: CUarray, offset: usize, bytes: usize) |notes| {
        notes.copy((DEVICE, to), (ARRAY, from as u64), bytes);
    }

    fn host_to_array(to: CUarray, offset: usize, from: *const c_void, bytes: usize) |notes| {
        notes.copy((ARRAY, to as u64), (Host, from as u64), bytes);
    }

    fn host_to_array_async(to: CUarray, offset: usize, from: *const c_void, bytes: usize, stream: CUstream) |notes| {
        notes.copy((ARRAY, to as u64), (Host, from as u64), bytes);
        notes.asynchronous(stream);
    }

    fn array_to_host(to: *mut c_void, from: CUarray, offset: usize, bytes: usize) |notes| {
        notes.copy((Host, to as u64), (ARRAY, from as u64), bytes);
    }

    fn array_to_host_async(to: *mut c_void, from: CUarray, offset: usize, bytes: usize, stream: CUstream) |notes| {
        notes.copy((Host, to as u64), (ARRAY, from as u64), bytes);
        notes.asynchronous(stream);
    }

    fn array_to_array(to: CUarray, to_offset: usize, from: CUarray, from_offset: usize, bytes: usize) |notes| {
        notes.copy((ARRAY, to as u64), (ARRAY, from as u64), bytes);
    }

    fn plane(copy: *const CUDA_MEMCPY2D) |notes| {
        let Some(copy) = copy.as_ref() else { return };
        notes.copy(to_of!(copy), from_of!(copy), plane_bytes!(copy));
    }

    fn plane_async(copy: *const CUDA_MEMCPY2D, stream: CUstream) |notes| {
        let Some(copy) = copy.as_ref() else { return };
        notes.copy(to_of!(copy), from_of!(copy), plane_bytes!(copy));
        notes.asynchronous(stream);
    }

    fn volume(copy: *const CUDA_MEMCPY3D) |notes| {
        let Some(copy) = copy.as_ref() else { return };
        notes.copy(to_of!(copy), from_of!(copy), plane_bytes!(copy).wrapping_mul(copy.Depth));
    }

    fn volume_async(copy: *const CUDA_MEMCPY3D, stream: CUstream) |notes| {
        let Some(copy) = copy.as_ref() else { return };
        notes.copy(to_of!(copy), from_of!(copy), plane_bytes!(copy).wrapping_mul(copy.Depth));
        notes.asynchronous(stream);
    }

    fn volume_peer(copy: *const CUDA_MEMCPY3D_PEER) |notes| {
        let Some(copy) = copy.as_ref() else { return };
        notes.copy(to_of!(copy), from_of!(copy), plane_bytes!(copy).wrapping_mul(copy.Depth));
    }

    fn volume_peer_async(copy: *const CUDA_MEMCPY3D_PEER, stream: CUstream) |notes| {
        let Some(copy) = copy.as_ref() else { return };
        notes.copy(to_of!(copy), from_of!(copy), plane_bytes!(copy).wrapping_mul(copy.Depth));
        notes.asynchronous(stream);
    }

    /// A batch is one record: all its bytes, and the addresses of its first copy.
    fn batch(
        to: *mut CUdeviceptr,
        from: *mut CUdeviceptr,
        sizes: *mut usize,
        count: usize,
        attributes: *mut CUmemcpyAttributes,
        attribute_indices: *mut usize,
        attribute_count: usize,
        stream: CUstream,
    ) |notes| {
        let bytes = if notes.succeeded() { sum(sizes, count) } else { 0 };
        notes.copy((Any, notes.out(to)), (Any, notes.out(from)), bytes);
        notes.asynchronous(stream);
    }

    fn batch_with_failure(
        to: *mut CUdeviceptr,
        from: *mut CUdeviceptr,
        sizes: *mut usize,
        count: usize,
        attributes: *mut CUmemcpyAttributes,
        attribute_indices: *mut usize,
        attribute_count: usize,
        failure: *mut usize,
        stream: CUstream,
    ) |notes| {
        let bytes = if notes.succeeded() { sum(sizes, count) } else { 0 };
        notes.copy((Any, notes.out(to)), (Any, notes.out(from)), bytes);
        notes.asynchronous(stream);
    }

    /// Extents are in elements of formats that only the driver knows: the bytes are left out.
    fn volume_batch(count: usize, operations: *mut CUDA_MEMCPY3D_BATCH_OP, flags: u64, stream: CUstream) |notes| {
        notes.copy((Memory::default(), 0), (Memory::default(), 0), 0);
        notes.asynchronous(stream);
    }

    fn volume_batch_with_failure(
        count: usize,
        operations: *mut CUDA_MEMCPY3D_BATCH_OP,
        failure: *mut usize,
        flags: u64,
        stream: CUstream,
    ) |notes| {
        notes.copy((Memory::default(), 0), (Memory::default(), 0), 0);
        notes.asynchronous(stream);
    }

    fn volume_with_attributes(operation: *mut CUDA_MEMCPY3D_BATCH_OP, flags: u64, stream: CUstream) |notes| {
        notes.copy((Memory::default(), 0), (Memory::default(), 0), 0);
        notes.asynchronous(stream);
    }

    fn prefetch(address: CUdeviceptr, bytes: usize, device: CUdevice, stream: CUstream) |notes| {
        notes.copy((MANAGED, address), (MANAGED, address), bytes);
        notes.asynchronous(stream);
    }

    fn prefetch_to_location(
        address: CUdeviceptr,
        bytes: usize,
        location: CUmemLocation,
        flags: u32,
        stream: CUstream,
    ) |notes| {
        notes.copy((MANAGED, address), (MANAGED, address), bytes);
        notes.asynchronous(stream);
    }

    fn set_8(to: CUdeviceptr, value: u8, count: usize) |notes| {
        notes.set(to, count);
    }

    fn set_16(to: CUdeviceptr, value: u16, count: usize) |notes| {
        notes.set(to, count.wrapping_mul(2));
    }

    fn set_32(to: CUdeviceptr, value: u32, count: usize) |notes| {
        notes.set(to, count.wrapping_mul(4));
    }

    fn set_8_async(to: CUdeviceptr, value: u8, count: usize, stream: CUstream) |notes| {
        notes.set(to, count);
        notes.asynchronous(stream);
    }

    fn set_16_async(to: CUdeviceptr, value: u16, count: usize, stream: CUstream) |notes| {
        notes.set(to, count.wrapping_mul(2));
        notes.asynchronous(stream);
    }

    fn set_32_async(to: CUdeviceptr, value: u32, count: usize, stream: CUstream) |notes| {
        notes.set(to, count.wrapping_mul(4));
        notes.asynchronous(stream);
    }

    fn set_plane_8(to: CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize) |notes| {
        notes.set(to, width.wrapping_mul(height));
    }

    fn set_plane_16(to: CUdeviceptr, pitch: usize, value: u16, width: usize, height: usize) |notes| {
        notes.set(to, width.wrapping_mul(height).wrapping_mul(2));
    }

    fn set_plane_32(to: CUdeviceptr, pitch: usize, value: u32, width: usize, height: usize) |notes| {
        notes.set(to, width.wrapping_mul(height).wrapping_mul(4));
    }

    fn set_plane_8_async(to: CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize, stream: CUstream)
    |notes| {
        notes.set(to, width.wrapping_mul(height));
        notes.asynchronous(stream);
    }

    fn set_plane_16_async(to: CUdeviceptr, pitch: usize, value: u16, width: usize, height: usize, stream: CUstream)
    |notes| {
        notes.set(to, width.wrapping_mul(height).wrapping_mul(2));
        notes.asynchronous(stream);
    }

    fn set_plane_32_async(to: CUdeviceptr, pitch: usize, value: u32, width: usize, height: usize, stream: CUstream)
    |notes| {
        notes.set(to, width.wrapping_mul(height).wrapping_mul(4));
        notes.asynchronous(stream);
    }
}

/// The bytes of a plane of a copy; what a program asks for may overflow, and the driver refuses it.
macro_rules! plane_bytes {
    ($copy:ident) => {
        $copy.WidthInBytes.wrapping_mul($copy.Height)
    };
}
use plane_bytes;

/// The destination of a copy described by one of the `CUDA_MEMCPY…` structures.
macro_rules! to_of {
    ($copy:ident) => {
        side($copy.dstMemoryType, $copy.dstHost as u64, $copy.dstDevice, $copy.dstArray as u64)
    };
}
use to_of;

/// Its source.
macro_rules! from_of {
    ($copy:ident) => {
        side($copy.srcMemoryType, $copy.srcHost as u64, $copy.srcDevice, $copy.srcArray as u64)
    };
}
use from_of;

fn side(kind: CUmemorytype, host: u64, device: CUdeviceptr, array: u64) -> (Memory, u64) {
    match kind {
        CU_MEMORYTYPE_HOST => (Host, host),
        CU_MEMORYTYPE_DEVICE => (DEVICE, device),
        CU_MEMORYTYPE_ARRAY => (ARRAY, array),
        CU_MEMORYTYPE_UNIFIED => (Any, device),
        _ => (Memory::default(), 0),
    }
}

/// # Safety
/// `sizes` is null or points to `count` sizes.
unsafe fn sum(sizes: *const usize, count: usize) -> usize {
    if sizes.is_null() {
        return 0;
    }
    // SAFETY: by contract.
    (0..count).fold(0, |sum, at| unsafe { sizes.add(at).read() }.wrapping_add(sum))
}
