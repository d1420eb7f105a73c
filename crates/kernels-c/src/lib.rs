//! `libapex_kernels_c.so`: the kernels of [`apex_kernels`] behind a C interface, for callers that
//! have tensors of their own: a framework in the same process. The Python module
//! `apex_cuda.kernels` is its user.
//!
//! There are three functions: [`apex_kernels_version`], [`apex_kernels_run`], which runs an
//! operation, and [`apex_kernels_workspace`], which says how much memory it needs beside its
//! tensors. What an operation is called, and what it takes, stands in the one table of
//! `operation`.
//!
//! Invariants:
//! - Nothing of the caller's is copied, freed or destroyed. Work runs in the order of the caller's
//!   stream, in the device's primary context, and a call returns before the work is done.
//! - A call waits for nothing. With a workspace of the caller's it allocates nothing on the device
//!   either, so it may be captured into a graph, which then uses the caller's memory alone. Without
//!   one, memory is taken and given back in the order of the stream.
//! - The first call of an operation loads its kernels, once for each device, whichever thread makes
//!   it.
//! - The thread's current context is the same after a call as before.
//! - No panic crosses the interface: it becomes [`status::INTERNAL`].

mod attention;
mod call;
mod kernels;
mod norms;
mod operation;

use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

pub use call::{Call, Tensor, element, status};

use call::Failure;
use operation::Operation;

/// Version of the interface: the functions, [`Call`], and the table of operations.
pub const VERSION: u32 = 1;

/// [`VERSION`]. A caller that was written for another one must not call the other functions.
#[unsafe(no_mangle)]
pub extern "C" fn apex_kernels_version() -> u32 {
    VERSION
}

/// Runs an operation. Returns the [`status`]: from zero on the form that ran, below zero what went
/// wrong, which `message` then says.
///
/// # Safety
/// `operation` is a C string. `call` points to a [`Call`] whose arrays have as many elements as it
/// says. `message` has room for `message_bytes` bytes, which are filled with a C string if the
/// result is negative.
///
/// `Call::stream` is a stream of the device's primary context. Each tensor's address is that of as
/// many elements of the device's memory, valid for reads, and outputs for writes, until the stream
/// has done what it was given; the same holds for the workspace. Until then nobody else writes to
/// them, nor reads outputs or the workspace, but in the order of the stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn apex_kernels_run(
    operation: *const c_char,
    call: *const Call,
    message: *mut c_char,
    message_bytes: usize,
) -> i32 {
    // SAFETY: the caller says so.
    unsafe { answer(operation, call, (message, message_bytes), Operation::run) }
}

/// Writes to `bytes` how large [`Call::workspace`] has to be for this call. Addresses of tensors,
/// the stream and the workspace are not looked at. Returns 0, or what is wrong.
///
/// # Safety
/// As [`apex_kernels_run`], but for addresses and the stream; `bytes` is valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn apex_kernels_workspace(
    operation: *const c_char,
    call: *const Call,
    bytes: *mut u64,
    message: *mut c_char,
    message_bytes: usize,
) -> i32 {
    let work = |operation: &Operation, call: &Call| {
        let needed = operation.workspace(call)?;
        // SAFETY: the caller says so.
        unsafe { bytes.write(needed) };
        Ok(0)
    };
    // SAFETY: the caller says so.
    unsafe { answer(operation, call, (message, message_bytes), work) }
}

/// Finds the operation and does `work`, without a panic; writes what went wrong.
///
/// # Safety
/// As [`apex_kernels_run`], for what `work` looks at.
unsafe fn answer(
    operation: *const c_char,
    call: *const Call,
    (message, message_bytes): (*mut c_char, usize),
    work: impl FnOnce(&Operation, &Call) -> Result<i32, Failure>,
) -> i32 {
    // SAFETY: the caller says so.
    let (name, call) = unsafe { (CStr::from_ptr(operation), &*call) };
    let done = catch_unwind(AssertUnwindSafe(|| {
        call.check_version()?;
        work(Operation::find(&name.to_string_lossy())?, call)
    }));
    let failure = match done {
        Ok(Ok(code)) => return code,
        Ok(Err(failure)) => failure,
        Err(panic) => Failure::of_panic(panic.as_ref()),
    };
    // SAFETY: the caller says so.
    unsafe { write_message(&failure.message, message, message_bytes) };
    failure.status
}

/// Writes as much of `text` as fits, and a zero behind it.
///
/// # Safety
/// `message` is valid for writes of `message_bytes` bytes.
unsafe fn write_message(text: &str, message: *mut c_char, message_bytes: usize) {
    let Some(room) = message_bytes.checked_sub(1) else { return };
    let bytes = text.as_bytes();
    let len = bytes.len().min(room);
    // SAFETY: `len` bytes and a zero are at most `message_bytes`.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), message, len);
        message.add(len).write(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_status_and_a_message() {
        let call = Call {
            version: VERSION,
            device: 0,
            stream: std::ptr::null_mut(),
            tensors: std::ptr::null(),
            tensor_count: 0,
            integers: std::ptr::null(),
            integer_count: 0,
            numbers: std::ptr::null(),
            number_count: 0,
            workspace: 0,
            workspace_bytes: 0,
        };
        let mut message = [0u8; 100];
        let work = |_: &Operation, _: &Call| panic!("number {}", 7);
        // SAFETY: the call's arrays are empty, and the message has as much room.
        let code = unsafe { answer(c"softmax".as_ptr(), &call, (message.as_mut_ptr().cast(), 100), work) };
        assert_eq!(code, status::INTERNAL);
        let said = CStr::from_bytes_until_nul(&message).unwrap().to_string_lossy();
        assert_eq!(said, "a defect of apex_kernels, please report it: number 7");
    }
}
