//! The third state of a slot: first flush the queued work, then jump.
//!
//! A call that reaches the driver before queued work may overtake work that it depends on. A module
//! that queues work therefore registers a *flush*, and the slots of such calls hold
//! [`flush_then_jump`]: it saves the registers that carry arguments, runs the flush, restores them,
//! and jumps to the hook or the real function, with the original stack and return address
//! (`cuda_abi::trampoline` has the contract). It needs no signature. The actions of
//! the process register one flush together ([`crate::hooks::actions`]): for calls that must not
//! overtake queued launches, and for those of which the memory pool has to know.
//!
//! # Contract of a flush
//!
//! 1. It runs in the thread that makes the call, before the call reaches the driver, on a
//!    [`stack`](crate::stack) of the library. Several threads may run it at once.
//! 2. It may call the driver. Calls that the driver or the flush makes through a slot of this state
//!    during a flush go directly to the driver: a thread runs no flush within a flush.
//! 3. If it panics, recording ends for this process, and the call is made.

use crate::switch::guarded;
use cuda_abi::COUNT;
use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Release};

static FLUSH: OnceLock<Flush> = OnceLock::new();

/// The targets of calls of each entry point after the flush.
static BEHIND: [AtomicPtr<()>; COUNT] = [const { AtomicPtr::new(null_mut()) }; COUNT];

/// The functions that a holder of work registers.
#[derive(Clone, Copy)]
pub struct Flush {
    /// Whether work is held back that the call of the entry point at an index, which is about to be
    /// made, must not overtake. It does little, on the program's stack.
    pub is_due: fn(usize) -> bool,
    /// Lets the work out.
    pub run: fn(),
}

thread_local! {
    /// Whether this thread runs the flush.
    static RUNNING: Cell<bool> = const { Cell::new(false) };
}

/// Has `flush` run before calls whose slots are in this state. To be registered before the first
/// driver call, which fills the slots; the first one stays.
pub fn register(flush: Flush) {
    FLUSH.get_or_init(|| flush);
}

/// Whether there is a flush.
pub(crate) fn is_registered() -> bool {
    FLUSH.get().is_some()
}

/// Returns the content of the slot at `index` in the third state; after the flush, its calls go to
/// `behind`.
pub(crate) fn slot(index: usize, behind: *mut ()) -> *mut () {
    BEHIND[index].store(behind, Release);
    STUB as *mut ()
}

/// The one place to take the stub's address from.
static STUB: unsafe extern "C" fn() = flush_then_jump;

cuda_abi::lazy_resolver!(flush_then_jump, flush_and_find);

extern "C" fn flush_and_find(index: usize) -> *const () {
    if let Some(flush) = FLUSH.get()
        && (flush.is_due)(index)
        && !RUNNING.replace(true)
    {
        guarded(flush.run);
        RUNNING.set(false);
    }
    BEHIND[index].load(Acquire)
}
