//! Allocations and frees of every kind.
//!
//! The forms of before CUDA 3.2, which take 32-bit addresses, are bare jumps: no 64-bit program can
//! use them.

use super::macros::hooks;
use crate::actions::schedule;
use crate::objects::Objects;
use crate::switch::guarded;
use apex_trace::layout::MemoryKind::{Array, Device, Managed, Pinned, Pitched, Pool, Unknown, Virtual};
use cuda_abi::types::*;
use std::ffi::c_void;

hooks! {
    fn allocate(pointer: *mut CUdeviceptr, bytes: usize)
    after(result) { schedule_has(result, pointer, bytes) } |notes| {
        notes.allocate(Device, notes.out(pointer), bytes);
    }

    fn allocate_pitched(pointer: *mut CUdeviceptr, pitch: *mut usize, width: usize, height: usize, element: u32)
    after(result) {
        // SAFETY: the call has written it, if it succeeded.
        let pitch = if result == CUDA_SUCCESS { unsafe { pitch.read_unaligned() } } else { 0 };
        schedule_has(result, pointer, pitch.saturating_mul(height))
    } |notes| {
        notes.allocate(Pitched, notes.out(pointer), notes.out(pitch).wrapping_mul(height));
    }

    fn allocate_managed(pointer: *mut CUdeviceptr, bytes: usize, flags: u32) after(_result) { addresses_change() } |notes| {
        notes.allocate(Managed, notes.out(pointer), bytes);
    }

    fn allocate_host(pointer: *mut *mut c_void, bytes: usize) after(_result) { addresses_change() } |notes| {
        notes.allocate(Pinned, notes.out_handle(pointer), bytes);
    }

    fn allocate_host_with_flags(pointer: *mut *mut c_void, bytes: usize, flags: u32) after(_result) { addresses_change() } |notes| {
        notes.allocate(Pinned, notes.out_handle(pointer), bytes);
    }

    fn register_host(pointer: *mut c_void, bytes: usize, flags: u32) after(_result) { addresses_change() } |notes| {
        notes.allocate(Pinned, pointer as u64, bytes);
    }

    fn allocate_async(pointer: *mut CUdeviceptr, bytes: usize, stream: CUstream)
    after(result) { schedule_has(result, pointer, bytes) } |notes| {
        notes.allocate(Pool, notes.out(pointer), bytes);
        notes.asynchronous(stream);
    }

    fn allocate_from_pool(pointer: *mut CUdeviceptr, bytes: usize, pool: CUmemoryPool, stream: CUstream) |notes| {
        notes.allocate(Pool, notes.out(pointer), bytes);
        notes.asynchronous(stream);
        notes.object = pool as u64;
    }

    fn free(pointer: CUdeviceptr) before { is_freed(pointer) } |notes| {
        notes.free(Device, pointer);
    }

    fn free_async(pointer: CUdeviceptr, stream: CUstream) before { is_freed(pointer) } |notes| {
        notes.free(Pool, pointer);
        notes.asynchronous(stream);
    }

    fn free_host(pointer: *mut c_void) before { addresses_change() } |notes| {
        notes.free(Pinned, pointer as u64);
    }

    /// Physical memory; [`map`] gives it an address.
    fn create(
        handle: *mut CUmemGenericAllocationHandle,
        bytes: usize,
        properties: *const CUmemAllocationProp,
        flags: u64,
    ) |notes| {
        notes.allocate(Virtual, 0, bytes);
        notes.object = notes.out(handle);
    }

    fn release(handle: CUmemGenericAllocationHandle) |notes| {
        notes.free(Virtual, 0);
        notes.object = handle;
    }

    /// Maps memory of unknown kind, so that nobody counts the bytes of [`create`] twice.
    fn map(address: CUdeviceptr, bytes: usize, offset: usize, handle: CUmemGenericAllocationHandle, flags: u64)
    |notes| {
        notes.allocate(Unknown, address, bytes);
        notes.object = handle;
    }

    fn unmap(address: CUdeviceptr, bytes: usize) before { addresses_change() } |notes| {
        notes.free(Unknown, address);
        notes.bytes = bytes as u64;
    }

    fn create_array(array: *mut CUarray, descriptor: *const CUDA_ARRAY_DESCRIPTOR) |notes| {
        let bytes = descriptor.as_ref().map_or(0, |array| {
            texel(array.Format, array.NumChannels)
                .wrapping_mul(array.Width)
                .wrapping_mul(array.Height.max(1))
        });
        notes.allocate(Array, 0, bytes);
        notes.object = notes.out_handle(array);
    }

    fn create_3d_array(array: *mut CUarray, descriptor: *const CUDA_ARRAY3D_DESCRIPTOR) |notes| {
        notes.allocate(Array, 0, descriptor.as_ref().map_or(0, array_bytes));
        notes.object = notes.out_handle(array);
    }

    fn create_mipmapped_array(
        array: *mut CUmipmappedArray,
        descriptor: *const CUDA_ARRAY3D_DESCRIPTOR,
        levels: u32,
    ) |notes| {
        notes.allocate(Array, 0, descriptor.as_ref().map_or(0, array_bytes));
        notes.object = notes.out_handle(array);
    }

    fn destroy_array(array: CUarray) |notes| {
        notes.free(Array, 0);
        notes.object = array as u64;
    }

    fn destroy_mipmapped_array(array: CUmipmappedArray) |notes| {
        notes.free(Array, 0);
        notes.object = array as u64;
    }

    /// Another process's memory.
    fn open_ipc(pointer: *mut CUdeviceptr, handle: CUipcMemHandle, flags: u32) |notes| {
        notes.allocate(Unknown, notes.out(pointer), 0);
    }

    fn close_ipc(pointer: CUdeviceptr) before { addresses_change() } |notes| {
        notes.free(Unknown, pointer);
    }
}

/// Memory of the device is about to be freed.
fn is_freed(pointer: CUdeviceptr) {
    addresses_change();
    if let Some(schedule) = schedule::existing() {
        guarded(|| schedule.freed(pointer));
    }
}

/// A call has allocated memory at `*pointer`, if its result says so.
fn schedule_has(result: CUresult, pointer: *mut CUdeviceptr, bytes: usize) {
    if let Some(schedule) = schedule::existing().filter(|_| result == CUDA_SUCCESS) {
        // SAFETY: the call has written it.
        let address = unsafe { pointer.read_unaligned() };
        guarded(|| schedule.allocated(address, bytes as u64));
    }
}

/// Memory was or is about to be allocated, registered or freed.
fn addresses_change() {
    if let Some(objects) = Objects::existing() {
        objects.forget_addresses();
    }
}

/// Bytes of the (first level of the) array.
fn array_bytes(array: &CUDA_ARRAY3D_DESCRIPTOR) -> usize {
    let plane = array.Width.wrapping_mul(array.Height.max(1));
    texel(array.Format, array.NumChannels).wrapping_mul(plane).wrapping_mul(array.Depth.max(1))
}

/// Bytes of an element; 0 for block-compressed and planar formats, whose elements have no whole
/// size.
fn texel(format: CUarray_format, channels: u32) -> usize {
    let channel: usize = match format {
        CU_AD_FORMAT_UNSIGNED_INT8 | CU_AD_FORMAT_SIGNED_INT8 => 1,
        CU_AD_FORMAT_UNSIGNED_INT16 | CU_AD_FORMAT_SIGNED_INT16 | CU_AD_FORMAT_HALF => 2,
        CU_AD_FORMAT_UNSIGNED_INT32 | CU_AD_FORMAT_SIGNED_INT32 | CU_AD_FORMAT_FLOAT => 4,
        _ => 0,
    };
    channel.wrapping_mul(channels as usize)
}
