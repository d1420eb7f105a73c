//! Modules, libraries, and what changes their functions.

use super::macros::hooks;
use crate::driver;
use crate::objects::Objects;
use apex_trace::layout::CallClass::Module;
use cuda_abi::types::*;
use std::ffi::{c_char, c_void};

hooks! {
    fn load(module: *mut CUmodule, file: *const c_char) |notes| {
        notes.object(Module, notes.out_handle(module));
    }

    fn load_data(module: *mut CUmodule, image: *const c_void) |notes| {
        notes.object(Module, notes.out_handle(module));
    }

    fn load_data_with_options(
        module: *mut CUmodule,
        image: *const c_void,
        count: u32,
        options: *mut CUjit_option,
        values: *mut *mut c_void,
    ) |notes| {
        notes.object(Module, notes.out_handle(module));
    }

    fn unload(module: CUmodule) before { code_goes() } |notes| {
        notes.object(Module, module as u64);
    }

    fn load_library(
        library: *mut CUlibrary,
        code: *const c_void,
        options: *mut CUjit_option,
        values: *mut *mut c_void,
        count: u32,
        library_options: *mut CUlibraryOption,
        library_values: *mut *mut c_void,
        library_count: u32,
    ) |notes| {
        notes.object(Module, notes.out_handle(library));
    }

    fn load_library_file(
        library: *mut CUlibrary,
        file: *const c_char,
        options: *mut CUjit_option,
        values: *mut *mut c_void,
        count: u32,
        library_options: *mut CUlibraryOption,
        library_values: *mut *mut c_void,
        library_count: u32,
    ) |notes| {
        notes.object(Module, notes.out_handle(library));
    }

    fn unload_library(library: CUlibrary) before { code_goes() } |notes| {
        notes.object(Module, library as u64);
    }

    /// Not recorded: only the name is of interest, and only where the driver can't tell it.
    fn get_function(function: *mut CUfunction, module: CUmodule, name: *const c_char)
    after(result) { note_name(result, function.cast(), name) } |_notes| {}

    fn get_kernel(kernel: *mut CUkernel, library: CUlibrary, name: *const c_char)
    after(result) { note_name(result, kernel.cast(), name) } |_notes| {}

    fn set_function_attribute(function: CUfunction, attribute: CUfunction_attribute, value: i32)
    after(result) { attribute_set(result, function as u64, attribute, value) } |_notes| {}

    fn set_kernel_attribute(attribute: CUfunction_attribute, value: i32, kernel: CUkernel, device: CUdevice)
    after(result) { attribute_set(result, kernel as u64, attribute, value) } |_notes| {}
}

/// Code is about to be unloaded: handles of its functions may come to mean others.
fn code_goes() {
    if let Some(objects) = Objects::existing() {
        objects.forget_functions();
    }
}

fn attribute_set(result: CUresult, handle: u64, attribute: CUfunction_attribute, value: i32) {
    if result == CUDA_SUCCESS
        && let Some(objects) = Objects::existing()
    {
        objects.note_attribute(handle, attribute, value);
    }
}

/// The program got `handle` for `name`.
fn note_name(result: CUresult, handle: *const u64, name: *const c_char) {
    if result == CUDA_SUCCESS
        && let Some(objects) = Objects::existing()
        // SAFETY: the contract of every hook: null, or written by the call, which succeeded.
        && let Some(&handle) = unsafe { handle.as_ref() }
    {
        // SAFETY: the contract of every hook: the call succeeded, so it read the name.
        objects.note_name(handle, || unsafe { driver::string(name) });
    }
}
