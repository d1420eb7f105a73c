//! Tracks whether work may be outstanding in a context: a free waits for it.
//!
//! The driver's `cuMemFree` waits until the GPU has done what was submitted before. A free of the
//! pool waits as well, and spares that where nothing was submitted since somebody last waited for
//! the whole context.
//!
//! # Contract
//! 1. Every call that may submit work ends with [`submitted`] before it returns to the program
//!    ([`crate::hooks`] forwards them all in one place); a call that has no hook closes the pool
//!    instead ([`super::rules`]).
//! 2. [`is_idle`] is true only if no such call has returned since a wait for that context began,
//!    and that wait has succeeded. A call that has not returned is not ordered before a free.
//! 3. A memory fence stands between the driver's part of a call and the look at [`IDLE`], and
//!    between the change of [`IDLE`] and the wait. So a call either is waited for, or ends the
//!    wait's claim.

use crate::driver;
use crate::hot::hot;
use cuda_abi::ENTRY_POINTS;
use cuda_abi::types::*;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU64, fence};

/// The context without outstanding work; 0 if there is none; the odd number of a wait that has not
/// ended.
static IDLE: AtomicU64 = AtomicU64::new(0);

/// The number of the next wait.
static NEXT_WAIT: AtomicU64 = AtomicU64::new(1);

/// Beginnings of base names of entry points that have a hook and may submit work.
const SUBMITTING: [&str; 12] = [
    "cuLaunch",
    "cuMemcpy",
    "cuMemset",
    "cuMemPrefetch",
    "cuMemAllocAsync",
    "cuMemAllocFromPoolAsync",
    "cuMemFreeAsync",
    "cuGraphLaunch",
    "cuGraphUpload",
    "cuEventRecord",
    "cuStreamWaitEvent",
    "cuStreamAddCallback",
];

/// Whether calls of the entry point at `index`, which has a hook, may submit work.
pub const fn may_submit(index: usize) -> bool {
    let name = ENTRY_POINTS[index].base.as_bytes();
    let mut at = 0;
    while at < SUBMITTING.len() {
        if begins_with(name, SUBMITTING[at].as_bytes()) {
            return true;
        }
        at += 1;
    }
    false
}

const fn begins_with(name: &[u8], beginning: &[u8]) -> bool {
    if name.len() < beginning.len() {
        return false;
    }
    let mut at = 0;
    while at < beginning.len() {
        if name[at] != beginning[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// Names of what is neglected although it must not be; see [`neglect`].
static NEGLECTED: OnceLock<fn(&str) -> bool> = OnceLock::new();

/// Has the pool neglect what is named: `waiting` in a free, or `watching` the calls that submit
/// work. What a test does to see whether it would notice. To be called before the first driver
/// call.
pub fn neglect(which: fn(&str) -> bool) {
    NEGLECTED.get_or_init(|| which);
}

fn neglects(what: &str) -> bool {
    NEGLECTED.get().is_some_and(|neglects| neglects(what))
}

/// Starts to watch calls that submit work, in this process and in those that are forked from it.
pub fn watch() {
    hot().is_watched.store(!neglects("watching"), SeqCst);
}

/// A call that may have submitted work is over.
#[inline(always)]
pub fn submitted() {
    if hot().is_watched.load(Relaxed) {
        fence(SeqCst);
        if IDLE.load(Relaxed) != 0 {
            IDLE.store(0, SeqCst);
        }
    }
}

/// Whether no work can be outstanding in `context`.
pub fn is_idle(context: CUcontext) -> bool {
    IDLE.load(SeqCst) == context as u64
}

/// A wait for everything in a context, which begins now.
pub struct Wait(u64);

impl Wait {
    /// It begins.
    pub fn begin() -> Wait {
        let number = NEXT_WAIT.fetch_add(2, SeqCst);
        IDLE.store(number, SeqCst);
        Wait(number)
    }

    /// It has succeeded, for `context`.
    pub fn succeeded(self, context: CUcontext) {
        // (Fails if work was submitted meanwhile, or another thread began to wait.)
        let _ = IDLE.compare_exchange(self.0, context as u64, SeqCst, Relaxed);
    }
}

/// Waits for everything in `context`, the current one, if work may be outstanding. True if it
/// waited.
pub fn wait_for(context: CUcontext) -> Result<bool, CUresult> {
    if is_idle(context) || neglects("waiting") {
        return Ok(false);
    }
    let wait = Wait::begin();
    match driver::synchronize() {
        CUDA_SUCCESS => {
            wait.succeeded(context);
            Ok(true)
        }
        failure => Err(failure),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuda_abi::index;

    #[test]
    fn a_context_is_idle_from_a_wait_until_work_is_submitted() {
        let (context, other) = (0x40 as CUcontext, 0x80 as CUcontext);
        watch();
        assert!(!is_idle(context));
        Wait::begin().succeeded(context);
        assert!(is_idle(context) && !is_idle(other));
        submitted();
        assert!(!is_idle(context));

        let wait = Wait::begin();
        submitted();
        wait.succeeded(context);
        assert!(!is_idle(context), "work came while it waited");

        let first = Wait::begin();
        let second = Wait::begin();
        first.succeeded(context);
        assert!(!is_idle(context), "work may have come before the second wait");
        second.succeeded(context);
        assert!(is_idle(context));
    }

    #[test]
    fn launches_copies_sets_and_graphs_submit_work() {
        for index in [
            index::cuLaunchKernel,
            index::cuLaunchKernelEx_ptsz,
            index::cuLaunchHostFunc,
            index::cuMemcpyDtoD_v2,
            index::cuMemsetD8_v2,
            index::cuGraphLaunch,
            index::cuMemFreeAsync,
        ] {
            assert!(may_submit(index), "{}", ENTRY_POINTS[index].symbol);
        }
        for index in [index::cuMemAlloc_v2, index::cuMemFree_v2, index::cuCtxSynchronize] {
            assert!(!may_submit(index), "{}", ENTRY_POINTS[index].symbol);
        }
    }
}
