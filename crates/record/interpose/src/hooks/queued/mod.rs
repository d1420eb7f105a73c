//! Hooks that hand calls over to the launch queue instead of making them, or let them pass where
//! they repeat earlier ones.
//!
//! Each stands in for an ordinary hook, which makes the call: the queue's thread enters it with the
//! copied arguments, and so does the caller where the queue does not take the call. So whoever
//! makes the call, it is decided, forwarded and recorded in the same way.

mod launch;
mod plain;
mod repeated;

use super::actions::{Action, Holding};
use super::call::Function;
use super::macros::index_table;
use super::{Hook, is_launch, ordinary};
use crate::actions::queue::accepted::Print;
use crate::actions::queue::order::{self, Order};
use crate::actions::queue::{self, Kind, Queue, Scratch, Taking};
use crate::actions::{Ending, is_wanted};
use crate::objects::streams::{is_own_default, is_per_thread, normalised};
use crate::{driver, flush};
use cuda_abi::types::*;
use cuda_abi::{COUNT, index, signature};
use std::marker::PhantomData;

/// The hooks, by index of their entry point.
pub fn table() -> &'static [Option<Hook>; COUNT] {
    static TABLE: [Option<Hook>; COUNT] = build();
    &TABLE
}

index_table! {
    cuLaunchKernel => launch::kernel,
    cuLaunchKernel_ptsz => launch::kernel,
    cuLaunchKernelEx => launch::kernel_ex,
    cuLaunchKernelEx_ptsz => launch::kernel_ex,
    cuMemsetD8Async => plain::set_8,
    cuMemsetD8Async_ptsz => plain::set_8,
    cuMemsetD16Async => plain::set_16,
    cuMemsetD16Async_ptsz => plain::set_16,
    cuMemsetD32Async => plain::set_32,
    cuMemsetD32Async_ptsz => plain::set_32,
    cuMemcpyDtoDAsync_v2 => plain::copy,
    cuMemcpyDtoDAsync_v2_ptsz => plain::copy,
    cuEventRecord => plain::record,
    cuEventRecord_ptsz => plain::record,
    cuEventRecordWithFlags => plain::record_with_flags,
    cuEventRecordWithFlags_ptsz => plain::record_with_flags,
    cuStreamWaitEvent => plain::wait,
    cuStreamWaitEvent_ptsz => plain::wait,
    cuKernelGetFunction => repeated::function_of_kernel,
    cuKernelSetAttribute => repeated::kernel_attribute,
    cuFuncSetAttribute => repeated::function_attribute,
}

/// The launch queue.
pub static ACTION: Action = Action {
    is_wanted: || ["queue", "batch", "schedule"].into_iter().any(is_wanted),
    start: |recorder, slots| queue::start(recorder, slots).is_some(),
    hook: |_| None,
    watches: |_| false,
    holding: Some(Holding {
        slot,
        begins: |index| table()[index].is_some() && is_launch(index),
        first: |slots| (slots.arm)(),
    }),
    is_due: queue::is_due,
    flush: queue::flush,
    end: |ending| match ending {
        Ending::Exit => queue::shut_down(),
        Ending::Abrupt => queue::shut_down_soon(),
        Ending::Exec => queue::before_exec(),
    },
};

/// Returns the content of the slot at `index` while calls are queued.
fn slot(index: usize, direct: *mut ()) -> *mut () {
    match order::of(index) {
        (Order::Passes, _) => direct,
        (Order::Waits, _) => flush::slot(index, direct),
        (Order::HandedOver | Order::PassesAgain, _) => match table()[index] {
            Some(hook) => hook.address.cast_mut(),
            None => flush::slot(index, direct),
        },
    }
}

/// The facts that decide whether a call with plain arguments is queued.
struct Facts<V> {
    /// The stream into which it is made.
    stream: CUstream,
    /// The words that distinguish it from other calls of its entry point.
    words: [u64; 2],
    /// Whether the driver will accept the part of the call that `words` do not cover.
    is_valid: V,
}

/// Hands a call over, or makes it.
///
/// # Safety
/// `F` is the type of the entry point at `INDEX`, and the arguments meet its contract.
#[inline(always)]
unsafe fn hand_over<F: Function, const INDEX: usize>(
    arguments: F::Arguments,
    facts: Facts<impl FnOnce() -> bool>,
) -> CUresult {
    let make_now = || {
        // SAFETY: by contract, for the ordinary hook is entered in place of the entry point.
        unsafe { ordinary::<F, INDEX>().call(arguments) }
    };
    let Some((queue, taking)) = taking::<INDEX>(facts.stream) else { return make_now() };
    if taking != Taking::Takes {
        queue.wait_until_made();
        return make_now();
    }
    let context = driver::current_context();
    let of_call = [INDEX as u64, facts.stream as u64];
    let print = Print::of([of_call, [context as u64, queue.epoch()], facts.words]);
    if queue.accepted.has(print) && (facts.is_valid)() {
        let write = |to: *mut u8| {
            // SAFETY: there is room for the arguments, aligned to 8 bytes.
            unsafe { to.cast::<F::Arguments>().write(arguments) }
        };
        if queue.put(&Plain::<F, INDEX>::KIND, context, size_of::<F::Arguments>(), write) {
            return CUDA_SUCCESS;
        }
    }
    queue.wait_until_made();
    let result = make_now();
    if result == CUDA_SUCCESS {
        queue.accepted.note_call(print);
    }
    result
}

/// Calls with plain arguments.
struct Plain<F, const INDEX: usize>(PhantomData<F>);

impl<F: Function, const INDEX: usize> Plain<F, INDEX> {
    const KIND: Kind = Kind { make: make_plain::<F, INDEX>, launch: None };
}

/// Makes a call whose arguments [`hand_over`] copied.
///
/// # Safety
/// [`hand_over`] wrote the arguments for the same entry point.
unsafe fn make_plain<F: Function, const INDEX: usize>(arguments: *mut u8, _: &mut Scratch) -> CUresult {
    // SAFETY: the arguments were written as this type, and meet the entry point's contract.
    unsafe { ordinary::<F, INDEX>().call(arguments.cast::<F::Arguments>().read()) }
}

/// The queue, unless it is closed, and what it does about a call that is made into `stream`.
#[inline(always)]
fn taking<const INDEX: usize>(stream: CUstream) -> Option<(&'static Queue, Taking)> {
    let queue = queue::existing()?;
    match queue.takes() {
        Taking::Closed => None,
        // A thread's own default stream means another stream in the queue's thread.
        _ if is_own_default(normalised(stream, const { is_per_thread(INDEX) })) => Some((queue, Taking::Not)),
        taking => Some((queue, taking)),
    }
}
