//! The two ways in which programs pass the parameters of a launch: an address for each, or one
//! buffer for all.

use cuda_abi::types::*;
use std::ffi::c_void;

/// The buffer in which a program gives all parameters together.
#[derive(Clone, Copy)]
pub enum Buffer {
    /// There is none: it gives an address for each of them.
    None,
    /// The buffer's address and size in bytes.
    At(*const u8, usize),
}

/// The buffer that `extra` names; `None` if it says something else.
///
/// # Safety
/// `extra` is null or what the driver demands.
#[inline(always)]
pub unsafe fn buffer_of(extra: *mut *mut c_void) -> Option<Buffer> {
    if extra.is_null() {
        return Some(Buffer::None);
    }
    // SAFETY: by contract.
    unsafe { buffer_in(extra) }
}

/// # Safety
/// `extra` is what the driver demands: names, each followed by a value, up to the end.
#[cold]
unsafe fn buffer_in(mut extra: *mut *mut c_void) -> Option<Buffer> {
    let (mut buffer, mut bytes) = (None, None);
    // SAFETY: by contract.
    unsafe {
        while !std::ptr::eq(*extra, CU_LAUNCH_PARAM_END) {
            let value = *extra.add(1);
            match *extra as usize {
                name if name == CU_LAUNCH_PARAM_BUFFER_POINTER as usize => buffer = Some(value),
                name if name == CU_LAUNCH_PARAM_BUFFER_SIZE as usize => {
                    bytes = value.cast::<usize>().as_ref()
                }
                _ => return None,
            }
            extra = extra.add(2);
        }
    }
    Some(Buffer::At(buffer?.cast_const().cast(), *bytes?))
}
