//! Hooks of a process whose results are hashed ([`crate::actions::results`]).
//!
//! Each calls the ordinary hook of its entry point, and looks at what came of it.

use super::actions::Action;
use super::macros::hook_list;
use super::{Hook, ordinary};
use crate::actions::{Ending, results};
use crate::objects::streams::{is_per_thread, normalised};
use cuda_abi::types::*;
use cuda_abi::{ENTRY_POINTS, index, signature};
use std::ffi::c_void;

hook_list! {
    cuMemAlloc_v2 => hashed::allocate,
    cuMemAllocManaged => hashed::allocate_managed,
    cuMemAllocAsync => hashed::allocate_async,
    cuMemAllocAsync_ptsz => hashed::allocate_async,
    cuMemFree_v2 => hashed::free,
    cuMemFreeAsync => hashed::free_async,
    cuMemFreeAsync_ptsz => hashed::free_async,
    cuMemcpy => hashed::copy,
    cuMemcpy_ptds => hashed::copy,
    cuMemcpyAsync => hashed::copy_async,
    cuMemcpyAsync_ptsz => hashed::copy_async,
    cuMemcpyDtoH_v2 => hashed::to_host,
    cuMemcpyDtoH_v2_ptds => hashed::to_host,
    cuMemcpyDtoHAsync_v2 => hashed::to_host_async,
    cuMemcpyDtoHAsync_v2_ptsz => hashed::to_host_async,
}

/// Hashes of the results.
pub static ACTION: Action = Action {
    is_wanted: results::is_wanted,
    start: |recorder, _| results::start(recorder.objects).is_some(),
    hook,
    watches: is_unseen,
    holding: None,
    is_due: |index| {
        if is_unseen(index) {
            results::unseen();
        }
        false
    },
    flush: || {},
    end: |ending| {
        if ending == Ending::Exit {
            results::end();
        }
    },
};

/// Whether the entry point at an index copies bytes that do not lie together, or from arrays, or
/// many at once.
fn is_unseen(index: usize) -> bool {
    ["cuMemcpy2D", "cuMemcpy3D", "cuMemcpyAtoH", "cuMemcpyBatch", "cuMemcpyWith"]
        .iter()
        .any(|&base| ENTRY_POINTS[index].base.starts_with(base))
}

/// Lets the table name this module as it names others.
use crate::hooks::hashed;

/// Says that memory was allocated, if it was.
///
/// # Safety
/// `pointer` is the out-parameter of a call with this result.
unsafe fn allocated(result: CUresult, pointer: *const CUdeviceptr, bytes: usize) -> CUresult {
    if result == CUDA_SUCCESS && !pointer.is_null() {
        // SAFETY: by contract.
        results::allocated(unsafe { pointer.read_unaligned() }, bytes);
    }
    result
}

pub unsafe extern "C" fn allocate<const INDEX: usize>(pointer: *mut CUdeviceptr, bytes: usize) -> CUresult {
    // SAFETY: the contract of every hook.
    unsafe { allocated(ordinary::<signature::cuMemAlloc_v2, INDEX>()(pointer, bytes), pointer, bytes) }
}

pub unsafe extern "C" fn allocate_managed<const INDEX: usize>(
    pointer: *mut CUdeviceptr,
    bytes: usize,
    flags: u32,
) -> CUresult {
    // SAFETY: the contract of every hook.
    unsafe {
        let result = ordinary::<signature::cuMemAllocManaged, INDEX>()(pointer, bytes, flags);
        allocated(result, pointer, bytes)
    }
}

pub unsafe extern "C" fn allocate_async<const INDEX: usize>(
    pointer: *mut CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> CUresult {
    // SAFETY: the contract of every hook.
    unsafe {
        let result = ordinary::<signature::cuMemAllocAsync, INDEX>()(pointer, bytes, stream);
        allocated(result, pointer, bytes)
    }
}

pub unsafe extern "C" fn free<const INDEX: usize>(pointer: CUdeviceptr) -> CUresult {
    results::is_freed(pointer);
    // SAFETY: the contract of every hook.
    unsafe { ordinary::<signature::cuMemFree_v2, INDEX>()(pointer) }
}

pub unsafe extern "C" fn free_async<const INDEX: usize>(pointer: CUdeviceptr, stream: CUstream) -> CUresult {
    results::is_freed(pointer);
    // SAFETY: the contract of every hook.
    unsafe { ordinary::<signature::cuMemFreeAsync, INDEX>()(pointer, stream) }
}

/// Says that the device's bytes were copied to the host, if they were.
///
/// # Safety
/// Such a copy was made with this result.
unsafe fn copied(result: CUresult, to: *const u8, bytes: usize, stream: Option<CUstream>) -> CUresult {
    if result == CUDA_SUCCESS {
        // SAFETY: by contract.
        unsafe { results::copied(to, bytes, stream) };
    }
    result
}

pub unsafe extern "C" fn copy<const INDEX: usize>(
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: usize,
) -> CUresult {
    // SAFETY: the contract of every hook.
    unsafe {
        let result = ordinary::<signature::cuMemcpy, INDEX>()(to, from, bytes);
        if !results::leads_to_host(to, from) {
            return result;
        }
        copied(result, to as *const u8, bytes, None)
    }
}

pub unsafe extern "C" fn copy_async<const INDEX: usize>(
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> CUresult {
    // SAFETY: the contract of every hook.
    unsafe {
        let result = ordinary::<signature::cuMemcpyAsync, INDEX>()(to, from, bytes, stream);
        if !results::leads_to_host(to, from) {
            return result;
        }
        copied(result, to as *const u8, bytes, Some(normalised(stream, const { is_per_thread(INDEX) })))
    }
}

pub unsafe extern "C" fn to_host<const INDEX: usize>(
    to: *mut c_void,
    from: CUdeviceptr,
    bytes: usize,
) -> CUresult {
    // SAFETY: the contract of every hook.
    unsafe {
        let result = ordinary::<signature::cuMemcpyDtoH_v2, INDEX>()(to, from, bytes);
        copied(result, to.cast(), bytes, None)
    }
}

pub unsafe extern "C" fn to_host_async<const INDEX: usize>(
    to: *mut c_void,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> CUresult {
    // SAFETY: the contract of every hook.
    unsafe {
        let result = ordinary::<signature::cuMemcpyDtoHAsync_v2, INDEX>()(to, from, bytes, stream);
        copied(result, to.cast(), bytes, Some(normalised(stream, const { is_per_thread(INDEX) })))
    }
}
