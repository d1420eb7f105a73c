//! Calls that programs repeat with the same arguments before each launch of a kernel, to look up
//! its function or to set an attribute. The first such call waits until the ring is empty. After it
//! has succeeded, an equal call changes nothing and returns what is already known, so it passes the
//! queue.
//!
//! The end of the epoch of code or streams makes a call count as new again: unloaded code, a
//! destroyed context, a changed attribute. A call that itself ended the epoch is not remembered, so
//! the next one waits as well.

use super::super::ordinary;
use crate::actions::queue::accepted::Print;
use crate::actions::queue::existing;
use crate::driver;
use crate::hooks::call::Function;
use cuda_abi::signature;
use cuda_abi::types::*;

pub unsafe extern "C" fn function_of_kernel<const INDEX: usize>(
    function: *mut CUfunction,
    kernel: CUkernel,
) -> CUresult {
    // SAFETY: the contract of every hook.
    unsafe { pass_again::<signature::cuKernelGetFunction, INDEX>((function, kernel), [kernel as u64, 0]) }
}

pub unsafe extern "C" fn kernel_attribute<const INDEX: usize>(
    attribute: CUfunction_attribute,
    value: i32,
    kernel: CUkernel,
    device: CUdevice,
) -> CUresult {
    let words = [kernel as u64 ^ (device as u64) << 48, two(attribute, value)];
    // SAFETY: the contract of every hook.
    unsafe { pass_again::<signature::cuKernelSetAttribute, INDEX>((attribute, value, kernel, device), words) }
}

pub unsafe extern "C" fn function_attribute<const INDEX: usize>(
    function: CUfunction,
    attribute: CUfunction_attribute,
    value: i32,
) -> CUresult {
    let words = [function as u64, two(attribute, value)];
    // SAFETY: the contract of every hook.
    unsafe { pass_again::<signature::cuFuncSetAttribute, INDEX>((function, attribute, value), words) }
}

fn two(high: u32, low: i32) -> u64 {
    u64::from(high) << 32 | u64::from(low as u32)
}

/// Makes a call that `words` tell from others of its entry point.
///
/// # Safety
/// `F` is the type of the entry point at `INDEX`, and the arguments meet its contract.
#[inline(always)]
unsafe fn pass_again<F: Function, const INDEX: usize>(arguments: F::Arguments, words: [u64; 2]) -> CUresult {
    let make_now = || {
        // SAFETY: by contract, for the ordinary hook is entered in place of the entry point.
        unsafe { ordinary::<F, INDEX>().call(arguments) }
    };
    let Some(queue) = existing() else { return make_now() };
    let context = driver::current_context();
    let print = || Print::of([[INDEX as u64, context as u64], [queue.epoch(), 0], words]);
    let asked = print();
    if queue.accepted.has(asked) {
        return make_now();
    }
    queue.wait_until_made();
    let result = make_now();
    if result == CUDA_SUCCESS && print() == asked {
        queue.accepted.note_call(asked);
    }
    result
}
