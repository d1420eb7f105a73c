//! Hooks of a process with pooled memory.
//!
//! Each replaces the ordinary hook or the driver's function of its entry point, and then calls it.
//! The program does not know the addresses of idle blocks. Before the driver is asked about such an
//! address, the block is therefore returned to it ([`crate::actions::pool`]).

use super::actions::Action;
use super::call::Call;
use super::macros::hook_list;
use super::{Hook, is_seen_by_pool, observe, ordinary};
use crate::actions::pool::work::Wait;
use crate::actions::pool::{self, Answer};
use crate::actions::queue::now_ns;
use crate::actions::{Ending, is_wanted};
use crate::driver;
use crate::objects::Objects;
use crate::switch::caught;
use apex_trace::layout::MemoryKind::Device;
use cuda_abi::types::*;
use cuda_abi::{index, signature};
use std::ffi::c_void;

hook_list! {
    cuMemAlloc_v2 => pooled::allocate,
    cuMemFree_v2 => pooled::free,
    cuCtxSynchronize => pooled::synchronize,
    cuMemGetAddressRange_v2 => pooled::address_range,
    cuPointerGetAttribute => pooled::attribute,
    cuPointerGetAttributes => pooled::attributes,
    cuIpcGetMemHandle => pooled::ipc_handle,
}

/// The memory pool.
pub static ACTION: Action = Action {
    is_wanted: || is_wanted("memory"),
    start: |recorder, _| pool::start(&recorder.file, recorder.objects, is_seen_by_pool).is_some(),
    hook,
    watches: pool::watches,
    holding: None,
    is_due: |index| {
        caught(|| pool::before_call(index));
        false
    },
    flush: || {},
    end: |ending| {
        if ending == Ending::Exit {
            pool::shut_down();
        }
    },
};

/// Lets the table name this module as it names others.
use crate::hooks::pooled;

pub unsafe extern "C" fn allocate<const INDEX: usize>(pointer: *mut CUdeviceptr, bytes: usize) -> CUresult {
    // SAFETY: the contract of every hook.
    let call = unsafe { Call::<signature::cuMemAlloc_v2, INDEX>::new((pointer, bytes)) };
    observe::decided::<INDEX>(
        || serve(call, pointer, bytes),
        // SAFETY: the contract of every hook.
        |notes| notes.allocate(Device, unsafe { notes.out(pointer) }, bytes),
    )
}

fn serve<const INDEX: usize>(
    call: Call<signature::cuMemAlloc_v2, INDEX>,
    pointer: *mut CUdeviceptr,
    bytes: usize,
) -> CUresult {
    let Some(pool) = pool::open().filter(|_| !pointer.is_null()) else { return call.forward() };
    match caught(|| pool.allocate(bytes)).unwrap_or(Answer::Passes) {
        Answer::Passes => call.forward(),
        Answer::Served(address) => {
            // SAFETY: the contract of every hook: an out-parameter that is not null.
            unsafe { pointer.write_unaligned(address) };
            CUDA_SUCCESS
        }
        Answer::Allocate(context) => {
            let begun = now_ns();
            let result = call.forward();
            if result == CUDA_SUCCESS {
                let alloc_ns = now_ns().saturating_sub(begun);
                // SAFETY: as above, and the call succeeded.
                let address = unsafe { pointer.read_unaligned() };
                caught(|| pool.allocated(context, address, bytes, alloc_ns));
            }
            result
        }
    }
}

pub unsafe extern "C" fn free<const INDEX: usize>(pointer: CUdeviceptr) -> CUresult {
    // SAFETY: the contract of every hook.
    let call = unsafe { Call::<signature::cuMemFree_v2, INDEX>::new((pointer,)) };
    if let Some(objects) = Objects::existing() {
        objects.forget_addresses();
    }
    observe::decided::<INDEX>(
        || match pool::open() {
            Some(pool) if pointer != 0 && caught(|| pool.keep(pointer)) == Some(true) => CUDA_SUCCESS,
            _ => call.forward(),
        },
        |notes| notes.free(Device, pointer),
    )
}

pub unsafe extern "C" fn synchronize<const INDEX: usize>() -> CUresult {
    let wait = pool::open().map(|_| (Wait::begin(), driver::current_context()));
    // SAFETY: the contract of every hook.
    let result = unsafe { ordinary::<signature::cuCtxSynchronize, INDEX>()() };
    if let Some((wait, context)) = wait.filter(|_| result == CUDA_SUCCESS) {
        wait.succeeded(context);
    }
    result
}

pub unsafe extern "C" fn address_range<const INDEX: usize>(
    start: *mut CUdeviceptr,
    bytes: *mut usize,
    address: CUdeviceptr,
) -> CUresult {
    is_asked_about(address);
    // SAFETY: the contract of every hook.
    unsafe { Call::<signature::cuMemGetAddressRange_v2, INDEX>::new((start, bytes, address)) }.forward()
}

pub unsafe extern "C" fn attribute<const INDEX: usize>(
    value: *mut c_void,
    attribute: CUpointer_attribute,
    address: CUdeviceptr,
) -> CUresult {
    is_asked_about(address);
    if tells_life(attribute) {
        is_shared(address);
    }
    // SAFETY: the contract of every hook.
    unsafe { Call::<signature::cuPointerGetAttribute, INDEX>::new((value, attribute, address)) }.forward()
}

pub unsafe extern "C" fn attributes<const INDEX: usize>(
    count: u32,
    attributes: *mut CUpointer_attribute,
    values: *mut *mut c_void,
    address: CUdeviceptr,
) -> CUresult {
    is_asked_about(address);
    if !attributes.is_null() {
        // SAFETY: the contract of every hook: so many attributes are valid for reading.
        let asks = |at: usize| tells_life(unsafe { attributes.add(at).read_unaligned() });
        if (0..count as usize).any(asks) {
            is_shared(address);
        }
    }
    let arguments = (count, attributes, values, address);
    // SAFETY: the contract of every hook.
    unsafe { Call::<signature::cuPointerGetAttributes, INDEX>::new(arguments) }.forward()
}

/// Other processes may use the memory until it is freed.
pub unsafe extern "C" fn ipc_handle<const INDEX: usize>(
    handle: *mut CUipcMemHandle,
    address: CUdeviceptr,
) -> CUresult {
    is_asked_about(address);
    is_shared(address);
    // SAFETY: the contract of every hook.
    unsafe { Call::<signature::cuIpcGetMemHandle, INDEX>::new((handle, address)) }.forward()
}

/// Whether an attribute of an address tells one allocation from a later one at the same address, or
/// lets another device use it.
fn tells_life(attribute: CUpointer_attribute) -> bool {
    matches!(attribute, CU_POINTER_ATTRIBUTE_BUFFER_ID | CU_POINTER_ATTRIBUTE_P2P_TOKENS)
}

fn is_asked_about(address: CUdeviceptr) {
    if let Some(pool) = pool::existing() {
        caught(|| pool.give_back_containing(address));
    }
}

fn is_shared(address: CUdeviceptr) {
    if let Some(pool) = pool::existing() {
        caught(|| pool.share(address));
    }
}
