//! A slot's third state: first let the queued work out, then jump.
//!
//! An entry point without a hook is a jump, for which no signature is needed. But a call that goes to the driver past
//! work that was held back may overtake what it depends on. Whoever holds work back therefore registers a *flush*, and every
//! slot that would hold a jump holds [`flush_then_jump`] instead: it saves the registers that carry arguments, runs the
//! flush, restores them, and jumps to the real function, with the stack and the return address as they were
//! (`cuda_abi::trampoline` has the contract). Nobody holds anything back yet, so every such slot is a jump.
//!
//! # Contract of a flush
//! 1. It runs in the thread that makes the call, before the call reaches the driver, on a [`stack`](crate::stack) of ours.
//!    Several threads may run it at once.
//! 2. It may call the driver. Calls that come through a slot of this state from within it, because the driver or the flush
//!    itself makes one, go straight to the driver: a thread runs no flush within a flush.
//! 3. If it panics, recording ends for this process, and the call is made.

use crate::driver::REAL;
use crate::switch::guarded;
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Acquire;

static FLUSH: OnceLock<fn()> = OnceLock::new();

thread_local! {
    /// Whether this thread runs the flush.
    static RUNNING: Cell<bool> = const { Cell::new(false) };
}

/// Has `flush` run before every call of an entry point without a hook. To be registered before the first driver call, which
/// fills the slots; the first one stays.
pub fn before_calls_without_hook(flush: fn()) {
    FLUSH.get_or_init(|| flush);
}

/// Whether there is a flush.
pub(crate) fn is_registered() -> bool {
    FLUSH.get().is_some()
}

/// What a slot of the third state holds.
pub(crate) fn slot() -> *mut () {
    flush_then_jump as *mut ()
}

cuda_abi::lazy_resolver!(flush_then_jump, flush_and_find);

extern "C" fn flush_and_find(index: usize) -> *const () {
    if let Some(flush) = FLUSH.get()
        && !RUNNING.replace(true)
    {
        guarded(flush);
        RUNNING.set(false);
    }
    REAL[index].load(Acquire)
}
