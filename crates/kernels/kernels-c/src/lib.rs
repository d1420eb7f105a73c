//! `libapex_kernels_c.so`: the kernels of [`apex_kernels`] behind a C interface, for callers that
//! have tensors of their own: a framework in the same process. The Python module
//! `apex_cuda.kernels` is its user.
//!
//! There are four functions: [`apex_kernels_version`]; [`apex_kernels_run`], which runs an
//! operation; [`apex_kernels_plan`], which says how it would be run, and how much memory it needs
//! beside its tensors; [`apex_kernels_message`], which says what went wrong. What an operation is
//! called, and what it takes, stands in the one table of `operation`.
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
mod experts;
mod integers;
mod kernels;
mod norms;
mod operation;
mod sequences;

use std::cell::RefCell;
use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

pub use call::{Header, Tensor, element, status};

use call::{Call, Failure};
use operation::Operation;

/// Version of the interface: the functions, what a call looks like, and the table of operations.
pub const VERSION: u32 = 5;

thread_local! {
    /// The last error in this thread.
    static MESSAGE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// [`VERSION`]. A caller that was written for another one must not call the other functions.
#[unsafe(no_mangle)]
pub extern "C" fn apex_kernels_version() -> u32 {
    VERSION
}

/// Runs an operation. Returns the [`status`]: from zero on the form that ran, below zero what went
/// wrong, which [`apex_kernels_message`] then says.
///
/// # Safety
/// `operation` is a C string. `call` points to a [`Header`] with the arrays that it tells of behind
/// it, aligned to 8 bytes.
///
/// [`Header::stream`] is a stream of the device's primary context. Each tensor's address is that of
/// as many elements of the device's memory, valid for reads, and outputs for writes, until the
/// stream has done what it was given; the same holds for the workspace. Starts of sequences are as
/// [`apex_kernels::Sequences::from_starts`] needs them, and a plan and projections that are inputs
/// are those of a forward pass with the same integers. Until then nobody else
/// writes to them, nor reads outputs or the workspace, but in the order of the stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn apex_kernels_run(operation: *const c_char, call: *const Header) -> i32 {
    // SAFETY: the caller says so.
    unsafe { answer(operation, call, Operation::run) }
}

/// Writes to `bytes` how large [`Header::workspace`] has to be for this call, and returns what a
/// run would return: the form, or what is wrong. Addresses of tensors, the stream and the workspace
/// are not looked at.
///
/// # Safety
/// As [`apex_kernels_run`], but for addresses and the stream; `bytes` is valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn apex_kernels_plan(
    operation: *const c_char,
    call: *const Header,
    bytes: *mut u64,
) -> i32 {
    let work = |operation: &Operation, call: &Call<'_>| {
        let (needed, form) = operation.plan(call)?;
        // SAFETY: the caller says so.
        unsafe { bytes.write(needed) };
        Ok(form)
    };
    // SAFETY: the caller says so.
    unsafe { answer(operation, call, work) }
}

/// Fills `message` with a C string that says what went wrong in the last call of this thread that
/// returned a negative number; as much of it as fits.
///
/// # Safety
/// `message` is valid for writes of `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn apex_kernels_message(message: *mut c_char, bytes: usize) {
    let Some(room) = bytes.checked_sub(1) else { return };
    MESSAGE.with_borrow(|text| {
        let len = text.len().min(room);
        // SAFETY: `len` bytes and a zero are at most `bytes`.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr().cast(), message, len);
            message.add(len).write(0);
        }
    });
}

/// Finds the operation and does `work`, without a panic; keeps what went wrong.
///
/// # Safety
/// As [`apex_kernels_run`], for what `work` looks at.
unsafe fn answer(
    operation: *const c_char,
    call: *const Header,
    work: impl FnOnce(&Operation, &Call<'_>) -> Result<i32, Failure>,
) -> i32 {
    // SAFETY: the caller says so.
    let name = unsafe { CStr::from_ptr(operation) };
    let done = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the caller says so.
        let call = unsafe { Call::read(call) }?;
        work(Operation::find(&name.to_string_lossy())?, &call)
    }));
    let failure = match done {
        Ok(Ok(code)) => return code,
        Ok(Err(failure)) => failure,
        Err(panic) => Failure::of_panic(panic.as_ref()),
    };
    MESSAGE.set(failure.message);
    failure.status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_status_and_a_message() {
        let header = Header {
            version: VERSION,
            device: 0,
            stream: std::ptr::null_mut(),
            workspace: 0,
            workspace_bytes: 0,
            tensors: 0,
            integers: 0,
            numbers: 0,
            reserved: 0,
        };
        let work = |_: &Operation, _: &Call<'_>| panic!("number {}", 7);
        // SAFETY: the call's arrays are empty.
        let code = unsafe { answer(c"softmax".as_ptr(), &header, work) };
        assert_eq!(code, status::INTERNAL);
        let mut message = [0u8; 100];
        // SAFETY: it has as much room.
        unsafe { apex_kernels_message(message.as_mut_ptr().cast(), 100) };
        let said = CStr::from_bytes_until_nul(&message).unwrap().to_string_lossy();
        assert_eq!(said, "a defect of apex_kernels, please report it: number 7");
    }
}
