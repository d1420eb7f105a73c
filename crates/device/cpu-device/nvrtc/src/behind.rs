//! Finds the function that a caller would have reached without this library.
//!
//! The dynamic linker looks a name up in the process's global scope and then in the caller's own:
//! the library that was opened with `dlopen`, and what it needs. This library stands in the global
//! scope, in front of all. `RTLD_NEXT` continues only there, so it misses an NVRTC that a library
//! opened with `RTLD_LOCAL` has brought in, as Python opens its extension modules. Three places are
//! searched in turn:
//!
//! 1. the rest of the global scope;
//! 2. the caller's library and what it needs;
//! 3. every loaded library: a caller may get NVRTC from the library that needs both.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::null_mut;

/// The function of this name behind this library's own, for a caller whose code contains the
/// address `caller`.
///
/// # Safety
///
/// `F` is the type of a pointer to that function.
pub unsafe fn behind<F>(name: &CStr, caller: *const c_void) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    let found = in_global_scope(name)
        .or_else(|| in_library(file_of(caller)?, name))
        .or_else(|| loaded().iter().find_map(|library| in_library(library, name)))?;
    // SAFETY: of the same size, and of the type of that function, as promised by the caller.
    Some(unsafe { std::mem::transmute_copy(&found) })
}

fn in_global_scope(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name ends in a zero byte.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// A function of a loaded library, or of one that it needs, unless it is of this library.
fn in_library(file: &CStr, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: strings that end in a zero byte. The library is loaded and in use, so closing the
    // handle does not unload it.
    let found = unsafe {
        let library = libc::dlopen(file.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if library.is_null() {
            return None;
        }
        let found = libc::dlsym(library, name.as_ptr());
        libc::dlclose(library);
        found
    };
    let is_own = || base_of(found) == base_of(in_library as *const c_void);
    (!found.is_null() && !is_own()).then_some(found)
}

/// Asks the dynamic linker which object and symbol hold an address; `None` if none does.
fn info_of(address: *const c_void) -> Option<libc::Dl_info> {
    let mut info = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: null_mut(),
    };
    // SAFETY: `info` is valid for a write; the address is only looked up.
    (unsafe { libc::dladdr(address, &mut info) } != 0).then_some(info)
}

fn base_of(address: *const c_void) -> Option<*mut c_void> {
    info_of(address).map(|info| info.dli_fbase)
}

/// The file of the library that contains an address.
fn file_of<'a>(address: *const c_void) -> Option<&'a CStr> {
    let info = info_of(address)?;
    // SAFETY: the linker's string, which lives as long as the library, whose code is running.
    (!info.dli_fname.is_null()).then(|| unsafe { CStr::from_ptr(info.dli_fname) })
}

/// The files of all loaded libraries, in the order in which they were loaded.
fn loaded() -> Vec<CString> {
    unsafe extern "C" fn add(info: *mut libc::dl_phdr_info, _: usize, to: *mut c_void) -> c_int {
        // SAFETY: the linker passes a description of a library, and the list of below. The name
        // ends in a zero byte if there is one.
        unsafe {
            let name: *const c_char = (*info).dlpi_name;
            // The executable has no name; what it contains is in the global scope.
            if !name.is_null() && *name != 0 {
                (*to.cast::<Vec<CString>>()).push(CStr::from_ptr(name).to_owned());
            }
        }
        0
    }
    let mut libraries: Vec<CString> = Vec::new();
    // SAFETY: `add` gets the list, which lives until the call returns.
    unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut libraries).cast()) };
    libraries
}
