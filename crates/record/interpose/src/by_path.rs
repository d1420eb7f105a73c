//! Programs that open the driver as a file: `dlopen("/usr/lib/x86_64-linux-gnu/libcuda.so.1")`.
//!
//! A program that asks for the name `libcuda.so.1` gets this library, which has that SONAME. One
//! that looks for the driver's file on the disk and opens it by its path would get the driver and
//! not be recorded. So this library exports `dlopen` and `dlmopen`. Where the path is a driver's,
//! the path of this library replaces it, and the driver that was named is the one to forward to.
//! All other calls are glibc's: the exported functions jump there, so that glibc finds the caller
//! by its return address, as the search for libraries demands.
//!
//! Three opens pass unchanged: a file that is not there, so that the program gets its own error; a
//! second driver beside the one that is forwarded to; and a driver in a name space of its own
//! (`dlmopen`), into which this library cannot follow. The last two are said once.

use crate::loader::{self, Driver};
use crate::message::say_once;
use crate::switch::caught;
use apex_conventions::locate::FileId;
use apex_conventions::variables;
use std::arch::naked_asm;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The function to call in place of the exported one: returned in the registers `rax` and `rdx`.
#[repr(C)]
struct Choice {
    name: *const c_char,
    function: *mut c_void,
}

/// The function of that name.
///
/// # Safety
/// `dlopen`'s contract.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void {
    naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8", // calls are made with an aligned stack
        "call {choose}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "mov rdi, rax",
        "jmp rdx",
        choose = sym choose_for_dlopen,
    )
}

/// The function of that name.
///
/// # Safety
/// `dlmopen`'s contract.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn dlmopen(space: libc::Lmid_t, name: *const c_char, flags: c_int) -> *mut c_void {
    naked_asm!(
        "push rdi",
        "push rsi",
        "push rdx", // calls are made with an aligned stack
        "call {choose}",
        "mov r11, rdx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "mov rsi, rax",
        "jmp r11",
        choose = sym choose_for_dlmopen,
    )
}

extern "C" fn choose_for_dlopen(name: *const c_char) -> Choice {
    // SAFETY: the program's contract with `dlopen`: null or a C string.
    let name = caught(|| unsafe { replaced(name, true) }).unwrap_or(name);
    Choice { name, function: loader::genuine_dlopen() }
}

extern "C" fn choose_for_dlmopen(space: libc::Lmid_t, name: *const c_char) -> Choice {
    static GENUINE: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
    let is_ours = space == libc::LM_ID_BASE;
    // SAFETY: the program's contract with `dlmopen`: null or a C string.
    let name = caught(|| unsafe { replaced(name, is_ours) }).unwrap_or(name);
    Choice { name, function: loader::genuine(c"dlmopen", c"GLIBC_2.3.4", &GENUINE) }
}

/// The name to open in place of `name`; `name` itself where it is no driver's path, or where the
/// program cannot have this library instead.
///
/// # Safety
/// `name` is null or a C string.
unsafe fn replaced(name: *const c_char, is_our_space: bool) -> *const c_char {
    if name.is_null() {
        return name;
    }
    // SAFETY: by contract.
    let path = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(name) }.to_bytes()));
    if !is_path_of_a_driver(path) || loader::is_opening() {
        return name;
    }
    let (Some(id), Some(own)) = (FileId::of(path), own_path()) else { return name };
    if Some(id) == loader::own_file() {
        return name;
    }
    if !is_our_space {
        say_unrecorded(path, "in a name space of its own (`dlmopen`), which APEX cannot record");
        return name;
    }
    // A driver that the user names, such as the CPU device, stands for every other one.
    let Ok(absolute) = std::path::absolute(path) else { return name };
    if variables::DRIVER.path().is_none() && !loader::forwards_to(Driver { path: absolute, id }) {
        say_unrecorded(path, "after another driver, or none, was found: APEX records the first one only");
        return name;
    }
    own
}

fn say_unrecorded(path: &Path, how: &str) {
    if variables::SESSION.path().is_some() && !variables::DISABLE.is_on() {
        say_once(&format!("the program opened {} {how}", path.display()));
    }
}

/// Whether a path, and not only a name, ends like a driver's: `libcuda.so`, `libcuda.so.1`,
/// `libcuda.so.580.65.06`.
fn is_path_of_a_driver(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    let Some(slash) = bytes.iter().rposition(|&byte| byte == b'/') else { return false };
    let Some(version) = bytes[slash + 1..].strip_prefix(b"libcuda.so") else { return false };
    version.is_empty() || version[0] == b'.' && version.iter().all(|byte| b".0123456789".contains(byte))
}

/// The path under which this library was loaded; `None` in a program that contains it.
fn own_path() -> Option<*const c_char> {
    static PATH: AtomicPtr<c_char> = AtomicPtr::new(null_mut());
    let known = PATH.load(Ordering::Acquire);
    if !known.is_null() {
        return Some(known);
    }
    let path = loader::own_path()?;
    if FileId::of(&path) == FileId::of(Path::new("/proc/self/exe")) {
        return None;
    }
    let path = CString::new(path.as_os_str().as_bytes()).ok()?.into_raw();
    // Never freed: threads may use either, and each is written once in a process.
    PATH.store(path, Ordering::Release);
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_drivers_are_told_from_names_and_neighbours() {
        for (path, expected) in [
            ("/usr/lib/x86_64-linux-gnu/libcuda.so.1", true),
            ("./libcuda.so", true),
            ("/usr/lib/libcuda.so.580.65.06", true),
            ("libcuda.so.1", false),
            ("/usr/lib/libcudart.so.13", false),
            ("/usr/lib/libcuda.so.1.old", false),
            ("/usr/lib/libcudadebugger.so.1", false),
            ("/usr/lib/libcuda.socket", false),
            ("/usr/lib/libcuda.so.1/", false),
            ("/libcuda.so.1/libm.so.6", false),
            ("", false),
        ] {
            assert_eq!(is_path_of_a_driver(Path::new(path)), expected, "{path}");
        }
    }
}
