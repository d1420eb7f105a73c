//! Modules, libraries, and what changes their functions.

use super::macros::hooks;
use crate::driver;
use crate::objects::Objects;
use crate::record::Recorder;
use crate::switch::guarded;
use apex_trace::layout::CallClass::Module;
use cuda_abi::types::*;
use std::ffi::{CStr, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

hooks! {
    fn load(module: *mut CUmodule, file: *const c_char)
    after(result) { file_loaded(result, module.cast(), file) } |notes| {
        notes.object(Module, notes.out_handle(module));
    }

    fn load_data(module: *mut CUmodule, image: *const c_void)
    after(result) { image_loaded(result, module.cast(), image) } |notes| {
        notes.object(Module, notes.out_handle(module));
    }

    fn load_data_with_options(
        module: *mut CUmodule,
        image: *const c_void,
        count: u32,
        options: *mut CUjit_option,
        values: *mut *mut c_void,
    ) after(result) { image_loaded(result, module.cast(), image) } |notes| {
        notes.object(Module, notes.out_handle(module));
    }

    fn unload(module: CUmodule) before { code_goes(module as u64) } |notes| {
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
    ) after(result) { image_loaded(result, library.cast(), code) } |notes| {
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
    ) after(result) { file_loaded(result, library.cast(), file) } |notes| {
        notes.object(Module, notes.out_handle(library));
    }

    fn unload_library(library: CUlibrary) before { code_goes(library as u64) } |notes| {
        notes.object(Module, library as u64);
    }

    /// Not recorded, as the others of the linker: what is linked is of interest where the session
    /// keeps code.
    fn add_to_linker(
        linker: CUlinkState,
        kind: CUjitInputType,
        data: *mut c_void,
        bytes: usize,
        name: *const c_char,
        count: u32,
        options: *mut CUjit_option,
        values: *mut *mut c_void,
    ) after(result) {
        if let Some(recorder) = keeper(result) {
            // SAFETY: the contract of every hook: the call succeeded, so it read the data.
            recorder.note_link_input(linker as u64, unsafe { bytes_of(data, bytes) });
        }
    } |_notes| {}

    fn add_file_to_linker(
        linker: CUlinkState,
        kind: CUjitInputType,
        file: *const c_char,
        count: u32,
        options: *mut CUjit_option,
        values: *mut *mut c_void,
    ) after(result) {
        if let Some(recorder) = keeper(result) {
            // SAFETY: the contract of every hook: the call succeeded, so it read the name.
            recorder.note_link_file(linker as u64, unsafe { path_of(file) });
        }
    } |_notes| {}

    fn link(linker: CUlinkState, machine_code: *mut *mut c_void, bytes: *mut usize)
    after(result) {
        // SAFETY: the contract of every hook: null, or written by the call.
        let made = unsafe { machine_code.as_ref().zip(bytes.as_ref()) };
        if let Some((recorder, (&made, &bytes))) = keeper(result).zip(made) {
            // SAFETY: the linker owns so many bytes there, until it is destroyed.
            recorder.link_completed(linker as u64, unsafe { bytes_of(made, bytes) });
        }
    } |_notes| {}

    fn destroy_linker(linker: CUlinkState) before {
        if let Some(recorder) = keeper(CUDA_SUCCESS) {
            recorder.forget_linker(linker as u64);
        }
    } |_notes| {}

    /// Not recorded: only the name is of interest, and only where the driver can't tell it.
    fn get_function(function: *mut CUfunction, module: CUmodule, name: *const c_char)
    after(result) {
        note_name(result, function.cast(), name);
        note_part(result, function.cast(), module as u64);
    } |_notes| {}

    fn get_kernel(kernel: *mut CUkernel, library: CUlibrary, name: *const c_char)
    after(result) {
        note_name(result, kernel.cast(), name);
        note_part(result, kernel.cast(), library as u64);
    } |_notes| {}

    fn get_module(module: *mut CUmodule, library: CUlibrary)
    after(result) { note_part(result, module.cast(), library as u64) } |_notes| {}

    fn get_function_of_kernel(function: *mut CUfunction, kernel: CUkernel)
    after(result) { note_part(result, function.cast(), kernel as u64) } |_notes| {}

    fn set_function_attribute(function: CUfunction, attribute: CUfunction_attribute, value: i32)
    after(result) { attribute_set(result, function as u64, false, attribute, value) } |_notes| {}

    fn set_kernel_attribute(attribute: CUfunction_attribute, value: i32, kernel: CUkernel, device: CUdevice)
    after(result) { attribute_set(result, kernel as u64, true, attribute, value) } |_notes| {}
}

/// Code is about to be unloaded: handles of its functions may come to mean others.
fn code_goes(handle: u64) {
    if let Some(objects) = Objects::existing() {
        objects.forget_image(handle);
        objects.forget_functions();
    }
}

/// The recorder, if a call succeeded and the session keeps images.
fn keeper(result: CUresult) -> Option<&'static Recorder> {
    Recorder::existing().filter(|recorder| result == CUDA_SUCCESS && recorder.keeps_images())
}

/// # Safety
///
/// `data` is null, or `bytes` bytes can be read there.
unsafe fn bytes_of<'a>(data: *const c_void, bytes: usize) -> &'a [u8] {
    // SAFETY: by contract.
    if data.is_null() { &[] } else { unsafe { std::slice::from_raw_parts(data.cast(), bytes) } }
}

/// # Safety
/// `file` is a text that ends in a zero byte.
unsafe fn path_of<'a>(file: *const c_char) -> &'a Path {
    // SAFETY: by contract.
    Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(file) }.to_bytes()))
}

/// The recorder and the handle that a call gave, if the call succeeded.
fn noting(result: CUresult, handle: *const u64) -> Option<(&'static Recorder, u64)> {
    let recorder = Recorder::existing().filter(|_| result == CUDA_SUCCESS)?;
    // SAFETY: the contract of every hook: null, or written by the call, which succeeded.
    unsafe { handle.as_ref() }.map(|&handle| (recorder, handle))
}

/// The program loaded an image from its memory.
fn image_loaded(result: CUresult, handle: *const u64, image: *const c_void) {
    if let Some((recorder, handle)) = noting(result, handle) {
        // SAFETY: the contract of every hook: the call succeeded, so it read the image.
        unsafe { recorder.note_image(handle, image.cast()) };
    }
}

/// The program loaded an image from a file.
fn file_loaded(result: CUresult, handle: *const u64, file: *const c_char) {
    if let Some((recorder, handle)) = noting(result, handle) {
        // SAFETY: the contract of every hook: the call succeeded, so it read the name.
        recorder.note_file(handle, unsafe { path_of(file) });
    }
}

/// The program got `part` of a library, module or kernel.
fn note_part(result: CUresult, part: *const u64, whole: u64) {
    if let Some((recorder, part)) = noting(result, part) {
        guarded(|| recorder.objects.note_part(part, whole));
    }
}

fn attribute_set(
    result: CUresult,
    handle: u64,
    is_kernel: bool,
    attribute: CUfunction_attribute,
    value: i32,
) {
    if result == CUDA_SUCCESS
        && let Some(objects) = Objects::existing()
    {
        objects.note_attribute(handle, is_kernel, attribute, value);
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
