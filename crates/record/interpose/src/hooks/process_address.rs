//! `cuGetProcAddress`: the call by which libcudart and the frameworks look up the driver's
//! functions.
//!
//! The real call comes first, with the program's own pointers, and decides. Then the address that
//! it returned is replaced by that of this library's exported symbol. The driver
//! returns the addresses that it exports (all of 53,042 look-ups tried on an H200 with driver 580),
//! so equality tells; should another driver return something else for a name, version and flags
//! that this library knows, the table tells. Everything else, newer functions above all, passes
//! through.

use super::call::Call;
use crate::driver::real;
use crate::switch::guarded;
use cuda_abi::types::*;
use cuda_abi::{ENTRY_POINTS, TOOLKIT_VERSION, resolve};
use std::ffi::{CStr, c_char, c_void};
use std::sync::OnceLock;

/// Returns the address that a program gets for the entry point at an index; `None` for the driver's
/// own answer.
type Substitute = fn(usize) -> Option<*mut ()>;

static SUBSTITUTE: OnceLock<Substitute> = OnceLock::new();

/// Says what programs are given. To be called before the first hook is entered.
pub fn substitute_by(substitute: Substitute) {
    SUBSTITUTE.get_or_init(|| substitute);
}

pub unsafe extern "C" fn get<const INDEX: usize>(
    symbol: *const c_char,
    pointer: *mut *mut c_void,
    version: i32,
    flags: cuuint64_t,
) -> CUresult {
    let arguments = (symbol, pointer, version, flags);
    // SAFETY: the contract of every hook.
    unsafe {
        let result = Call::<cuda_abi::signature::cuGetProcAddress, INDEX>::new(arguments).forward();
        substitute(result, symbol, pointer, version, flags);
        result
    }
}

pub unsafe extern "C" fn get_with_status<const INDEX: usize>(
    symbol: *const c_char,
    pointer: *mut *mut c_void,
    version: i32,
    flags: cuuint64_t,
    status: *mut CUdriverProcAddressQueryResult,
) -> CUresult {
    let arguments = (symbol, pointer, version, flags, status);
    // SAFETY: the contract of every hook.
    unsafe {
        let result = Call::<cuda_abi::signature::cuGetProcAddress_v2, INDEX>::new(arguments).forward();
        substitute(result, symbol, pointer, version, flags);
        result
    }
}

/// Replaces the address in `pointer` if the calls of its function are not to go straight to the
/// driver.
///
/// # Safety
/// The arguments of a call to `cuGetProcAddress` that returned `result`.
unsafe fn substitute(
    result: CUresult,
    symbol: *const c_char,
    pointer: *mut *mut c_void,
    version: i32,
    flags: cuuint64_t,
) {
    if result != CUDA_SUCCESS || symbol.is_null() || pointer.is_null() {
        return;
    }
    // SAFETY: the call succeeded: it read the name and wrote the address.
    let (name, address) = unsafe { (CStr::from_ptr(symbol), *pointer) };
    let per_thread = flags & u64::from(CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
    let choose = || choose(name.to_str().ok()?, address.cast(), version, per_thread);
    if let Some(index) = guarded(choose).flatten()
        && let Some(address) = SUBSTITUTE.get().and_then(|substitute| substitute(index))
    {
        // SAFETY: the call has just written there.
        unsafe { *pointer = address.cast() };
    }
}

/// The entry point that a look-up of `name` with the answer `address` stands for, if that is
/// certain.
fn choose(name: &str, address: *mut (), version: i32, per_thread: bool) -> Option<usize> {
    if address.is_null() {
        return None;
    }
    let version = u32::try_from(version).ok()?;
    let is_at = |index: &usize| real(*index) == address;
    let by_table = resolve(name, version, per_thread);
    if let Some(index) = by_table.filter(is_at) {
        return Some(index);
    }
    let same_name = |index: &usize| ENTRY_POINTS[*index].base == name;
    let mut by_address = (0..ENTRY_POINTS.len()).filter(is_at).peekable();
    if by_address.peek().is_some() {
        return by_address.find(same_name);
    }
    // An address that the driver does not export. What the table says holds only for versions that
    // the table knows.
    by_table.filter(|_| version <= TOOLKIT_VERSION)
}
