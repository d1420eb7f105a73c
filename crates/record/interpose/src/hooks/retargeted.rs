//! Hooks of a process whose modules may be lowered (`apex run --universal`).
//!
//! Each stands in for the ordinary hook of a call that loads code and makes the call through it;
//! where the driver refuses the code, it makes the call again with what
//! [`crate::actions::universal`] is offered for it. The program sees the second result only if that
//! is a success.

use super::Hook;
use super::actions::Action;
use super::macros::hook_list;
use super::module;
use crate::actions::universal;
use crate::switch::guarded;
use apex_untrusted::read;
use cuda_abi::types::*;
use cuda_abi::{index, signature};
use std::ffi::{CStr, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

hook_list! {
    cuModuleLoad => retargeted::load,
    cuModuleLoadData => retargeted::load_data,
    cuModuleLoadDataEx => retargeted::load_data_with_options,
    cuModuleLoadFatBinary => retargeted::load_data,
    cuLibraryLoadData => retargeted::load_library,
    cuLibraryLoadFromFile => retargeted::load_library_file,
}

/// Modules for older GPUs.
pub static ACTION: Action = Action {
    is_wanted: universal::is_wanted,
    start: |_, _| true,
    hook,
    watches: |_| false,
    holding: None,
    is_due: |_| false,
    flush: || {},
    end: |_| {},
};

/// Lets the table name this module as it names others.
use crate::hooks::retargeted;

/// The result of a call that loads code, made again with what is offered in its place if the driver
/// refuses it.
fn retried(
    first: CUresult,
    image: impl FnOnce() -> Option<Vec<u8>>,
    again: impl Fn(*const c_void) -> CUresult,
) -> CUresult {
    if !universal::is_too_new(first) {
        return first;
    }
    let mut offers = None;
    guarded(|| offers = image().and_then(|image| universal::offers(first, &image)));
    let Some(mut offers) = offers else { return first };
    while let Some(code) = offers.another() {
        let is_loaded = again(code.as_ptr().cast()) == CUDA_SUCCESS;
        offers.tell(is_loaded);
        if is_loaded {
            // Never released: the driver may read a library's code as long as the library exists.
            code.leak();
            return CUDA_SUCCESS;
        }
    }
    first
}

/// An image that the driver has read, if it is one piece.
///
/// # Safety
/// `image` is what the driver has just been given.
unsafe fn whole(image: *const c_void) -> Option<Vec<u8>> {
    // SAFETY: by contract; the driver demands what `whole` does.
    match unsafe { fatbin::whole(image.cast()) }.ok()?.as_slice() {
        [part] => Some(part.to_vec()),
        _ => None,
    }
}

/// A file that the driver has read.
///
/// # Safety
/// `file` is a text that ends in a zero byte.
unsafe fn contents(file: *const c_char) -> Option<Vec<u8>> {
    // SAFETY: by contract.
    let path = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(file) }.to_bytes()));
    read::read(path, apex_conventions::universal::MOST_BYTES as u64).ok()
}

pub unsafe extern "C" fn load<const INDEX: usize>(module: *mut CUmodule, file: *const c_char) -> CUresult {
    // SAFETY: the contract of every hook.
    unsafe {
        let first = module::load::<INDEX>(module, file);
        retried(
            first,
            || contents(file),
            |text| module::load_data::<{ index::cuModuleLoadData }>(module, text),
        )
    }
}

pub unsafe extern "C" fn load_data<const INDEX: usize>(
    module: *mut CUmodule,
    image: *const c_void,
) -> CUresult {
    // SAFETY: the contract of every hook.
    unsafe {
        let first = module::load_data::<INDEX>(module, image);
        retried(first, || whole(image), |text| module::load_data::<{ index::cuModuleLoadData }>(module, text))
    }
}

pub unsafe extern "C" fn load_data_with_options<const INDEX: usize>(
    module: *mut CUmodule,
    image: *const c_void,
    count: u32,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
) -> CUresult {
    // SAFETY: the contract of every hook.
    unsafe {
        let load = |image| module::load_data_with_options::<INDEX>(module, image, count, options, values);
        retried(load(image), || whole(image), load)
    }
}

pub unsafe extern "C" fn load_library<const INDEX: usize>(
    library: *mut CUlibrary,
    code: *const c_void,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
    count: u32,
    library_options: *mut CUlibraryOption,
    library_values: *mut *mut c_void,
    library_count: u32,
) -> CUresult {
    // SAFETY: the contract of every hook.
    unsafe {
        let load = |code| {
            module::load_library::<INDEX>(
                library,
                code,
                options,
                values,
                count,
                library_options,
                library_values,
                library_count,
            )
        };
        retried(load(code), || whole(code), load)
    }
}

pub unsafe extern "C" fn load_library_file<const INDEX: usize>(
    library: *mut CUlibrary,
    file: *const c_char,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
    count: u32,
    library_options: *mut CUlibraryOption,
    library_values: *mut *mut c_void,
    library_count: u32,
) -> CUresult {
    // SAFETY: the contract of every hook.
    unsafe {
        let first = module::load_library_file::<INDEX>(
            library,
            file,
            options,
            values,
            count,
            library_options,
            library_values,
            library_count,
        );
        retried(
            first,
            || contents(file),
            |text| {
                module::load_library::<{ index::cuLibraryLoadData }>(
                    library,
                    text,
                    options,
                    values,
                    count,
                    library_options,
                    library_values,
                    library_count,
                )
            },
        )
    }
}
