//! The scope in which the interpreter's symbols are looked up: the process's global scope, or that
//! of a `libpython` that was opened for its opener alone (`RTLD_LOCAL`), as plugins of larger
//! programs open it.

use std::ffi::{CStr, CString, c_int, c_void};

/// The function that every interpreter has.
const THIS_THREAD_STATE: &CStr = c"PyGILState_GetThisThreadState";

/// A handle for `dlsym`.
#[derive(Clone, Copy)]
pub struct Scope(*mut c_void);

impl Scope {
    /// The scope that holds the interpreter; `None` if the process has none. The interpreter's
    /// library stays loaded for good: its functions will be called as long as the process records.
    pub fn find() -> Option<Scope> {
        let global = Scope(libc::RTLD_DEFAULT);
        match global.symbol(THIS_THREAD_STATE) {
            Some(address) => {
                pin(address);
                Some(global)
            }
            None => opened(&loaded_libpython()?),
        }
    }

    /// A symbol of the interpreter.
    pub fn symbol(self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: the global scope, or a handle that is never closed, and a name that ends in zero.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        (!address.is_null()).then_some(address)
    }

    /// `PyGILState_GetThisThreadState`.
    pub fn this_thread_state(self) -> Option<*mut c_void> {
        self.symbol(THIS_THREAD_STATE)
    }
}

/// Keeps the library that holds `address` loaded for good.
fn pin(address: *mut c_void) {
    // SAFETY: all zero is valid for the structure.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: `dladdr` fills the structure in where it succeeds; its name is then valid.
    let name = unsafe {
        let is_found = libc::dladdr(address, &mut found) != 0 && !found.dli_fname.is_null();
        is_found.then(|| CStr::from_ptr(found.dli_fname))
    };
    // An executable, which cannot be opened again, is never unloaded either.
    name.map(opened);
}

/// A loaded library, which stays loaded for good.
fn opened(name: &CStr) -> Option<Scope> {
    const FLAGS: c_int = libc::RTLD_NOW | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
    // SAFETY: a name that ends in zero, of a library that is loaded: no code of it runs.
    let handle = unsafe { libc::dlopen(name.as_ptr(), FLAGS) };
    (!handle.is_null()).then_some(Scope(handle))
}

/// The path of the first `libpython3` that is loaded, other than the stub `libpython3.so`, which
/// has no code.
fn loaded_libpython() -> Option<CString> {
    unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
        // SAFETY: `dl_iterate_phdr` hands over a valid description, and the option below.
        let (info, found) = unsafe { (&*info, &mut *found.cast::<Option<CString>>()) };
        if !info.dlpi_name.is_null() {
            // SAFETY: a name ends in zero.
            let name = unsafe { CStr::from_ptr(info.dlpi_name) };
            *found = is_libpython(name.to_bytes()).then(|| name.to_owned());
        }
        found.is_some().into()
    }
    let mut found: Option<CString> = None;
    // SAFETY: `look` is what the function calls, with `found`.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut found).cast()) };
    found
}

fn is_libpython(path: &[u8]) -> bool {
    let file = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    file.starts_with(b"libpython3.") && !file.starts_with(b"libpython3.so")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_library_with_the_code_counts() {
        for path in ["/usr/lib/libpython3.11.so.1.0", "libpython3.13.so", "/a/libpython3.12d.so.1.0"] {
            assert!(is_libpython(path.as_bytes()), "{path}");
        }
        for path in ["", "/usr/lib/libpython3.so", "/libpython3.11.so/libm.so.6", "/a/mylibpython3.11.so"] {
            assert!(!is_libpython(path.as_bytes()), "{path}");
        }
    }
}
