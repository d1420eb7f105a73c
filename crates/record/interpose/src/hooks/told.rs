//! Hooks of a process in which chosen libraries are told another compute capability (`apex run
//! --capability`).
//!
//! Each is entered by two instructions that hand the return address over, by which the caller is
//! known: the exported function and the stubs before a hook leave it where the call has put it
//! (`cuda_abi::trampoline`).

use super::Hook;
use super::actions::Action;
use super::call::Call;
use super::macros::hook_list;
use crate::actions::capability;
use crate::switch::guarded;
use apex_conventions::capability::Question;
use cuda_abi::types::*;
use cuda_abi::{index, signature};
use std::arch::naked_asm;
use std::ffi::c_void;

hook_list! {
    cuDeviceGetAttribute => told::attribute,
    cuDeviceComputeCapability => told::both,
}

/// Another compute capability.
pub static ACTION: Action = Action {
    is_wanted: capability::is_wanted,
    start: |_, _| true,
    hook,
    watches: |_| false,
    holding: None,
    is_due: |_| false,
    flush: || {},
    end: |_| {},
};

/// Lets the table name this module as it names others.
use crate::hooks::told;

#[unsafe(naked)]
pub unsafe extern "C" fn attribute<const INDEX: usize>(
    value: *mut i32,
    attribute: CUdevice_attribute,
    device: CUdevice,
) -> CUresult {
    naked_asm!("mov rcx, [rsp]", "jmp {}", sym attribute_for::<INDEX>)
}

#[unsafe(naked)]
pub unsafe extern "C" fn both<const INDEX: usize>(
    major: *mut i32,
    minor: *mut i32,
    device: CUdevice,
) -> CUresult {
    naked_asm!("mov rcx, [rsp]", "jmp {}", sym both_for::<INDEX>)
}

/// [`attribute`], for the code at `caller`.
unsafe extern "C" fn attribute_for<const INDEX: usize>(
    value: *mut i32,
    attribute: CUdevice_attribute,
    device: CUdevice,
    caller: *const c_void,
) -> CUresult {
    // SAFETY: the contract of every hook.
    let call = unsafe {
        Call::<unsafe extern "C" fn(*mut i32, CUdevice_attribute, CUdevice) -> CUresult, INDEX>::new((
            value, attribute, device,
        ))
    };
    let result = call.forward();
    let question = match attribute {
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR => Question::Major,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR => Question::Minor,
        _ => return result,
    };
    if result == CUDA_SUCCESS {
        guarded(|| {
            // SAFETY: the contract of every hook: the call has succeeded, so it has written there.
            let real = unsafe { value.read() }.cast_unsigned();
            let (real, is_major) = match question {
                Question::Major => ((real, 0), true),
                _ => ((0, real), false),
            };
            if let Some((major, minor)) = capability::instead(question, real, caller) {
                // SAFETY: as above.
                unsafe { value.write(if is_major { major } else { minor }.cast_signed()) };
            }
        });
    }
    result
}

/// [`both`], for the code at `caller`.
unsafe extern "C" fn both_for<const INDEX: usize>(
    major: *mut i32,
    minor: *mut i32,
    device: CUdevice,
    caller: *const c_void,
) -> CUresult {
    // SAFETY: the contract of every hook.
    let call = unsafe {
        Call::<unsafe extern "C" fn(*mut i32, *mut i32, CUdevice) -> CUresult, INDEX>::new((
            major, minor, device,
        ))
    };
    let result = call.forward();
    if result == CUDA_SUCCESS {
        guarded(|| {
            // SAFETY: the contract of every hook: the call has succeeded, so it has written there.
            let real = unsafe { (major.read().cast_unsigned(), minor.read().cast_unsigned()) };
            if let Some(told) = capability::instead(Question::Both, real, caller) {
                // SAFETY: as above.
                unsafe {
                    major.write(told.0.cast_signed());
                    minor.write(told.1.cast_signed());
                }
            }
        });
    }
    result
}
