//! Pooled memory: memory that the program frees is kept, and serves its next allocation of the same
//! size.
//!
//! `cuMemAlloc` and `cuMemFree` map and unmap memory: 85 µs for 16 MiB, 821 µs for 1 GiB on an
//! H200. With the pool (`apex run --fast=memory`), a freed allocation stays allocated, as an *idle*
//! block ([`blocks`]), and is what the next `cuMemAlloc` of its size in its context gets. Blocks
//! are whole allocations of the driver's, never parts or several of them, so what the driver says
//! of an address, and where an access faults, stays as it is.
//!
//! # Contract
//! 1. *Waiting.* A free returns when the GPU has done what was submitted to the context before, as
//!    the driver's does ([`work`]); so nothing uses an idle block.
//! 2. *Errors.* What the driver would refuse is refused by the driver: an address that is no live
//!    block of the pool is freed by it, and an idle block, which the program must not name any
//!    more, is given back before the driver is asked about it. Where a wait fails, the driver's
//!    free returns the error.
//! 3. *Memory.* Idle blocks are given back where the program would have more memory without them:
//!    on `CUDA_ERROR_OUT_OF_MEMORY`, after which the call is made again; before `cuMemGetInfo`; and
//!    as the bound of [`blocks`] says.
//! 4. *Sharing.* A block whose IPC handle or buffer identifier the program asked for is freed when
//!    the program frees it. Where memory or work escapes what is watched, the pool closes for good
//!    ([`rules`]): then all calls go to the driver.
//! 5. *Captures.* While a stream captures, allocations and frees go to the driver.
//! 6. No lock in here is held across a call into the driver.

mod blocks;
pub mod rules;
pub mod work;

use crate::actions::queue::now_ns;
use crate::driver;
use crate::objects::Objects;
use crate::per_process::{OfProcess, PerProcess};
use crate::switch::caught;
use apex_trace::definition::Definition;
use apex_trace::layout::{PoolFigures, PoolState};
use apex_trace::{ForkGuard, ProcessFile};
use blocks::{Blocks, Victim};
use cuda_abi::types::*;
use cuda_abi::{COUNT, ENTRY_POINTS};
use rules::Meaning;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError};

static POOL: PerProcess<Pool> = PerProcess::new();

/// The interval between timed operations, in operations. It is odd, since allocations and frees may
/// alternate.
const ASKED_INTERVAL: u64 = 17;
/// The number of timed operations after which the pool's statistics are written to the session.
const NOTED_INTERVAL: u64 = 4;

/// The pool of a process.
pub struct Pool {
    state: Mutex<State>,
    meanings: Vec<Meaning>,
    is_closed: AtomicBool,
    operations: AtomicU64,
    file: &'static ProcessFile,
    objects: &'static Objects,
    guard: ForkGuard,
}

#[derive(Default)]
struct State {
    blocks: Blocks,
    figures: PoolFigures,
}

/// The pool's answer to an allocation.
pub enum Answer {
    /// The block at this address is the program's.
    Served(CUdeviceptr),
    /// The driver is to allocate it, in this context; [`Pool::allocated`] follows.
    Allocate(CUcontext),
    /// The pool has nothing to do with it.
    Passes,
}

impl OfProcess for Pool {
    fn is_ours(&self) -> bool {
        self.guard.is_same_process()
    }
}

/// Makes the pool of this process; `None`, and the session says so, if that fails. `has_hook` tells
/// by their indices which entry points' calls need not be announced ([`before_call`]).
pub fn start(
    file: &'static ProcessFile,
    objects: &'static Objects,
    has_hook: fn(usize) -> bool,
) -> Option<&'static Pool> {
    let made = POOL.get_or_make(|| Pool::new(file, objects, has_hook), |_| work::watch());
    file.set_pool_state(if made.is_some() { PoolState::Unused } else { PoolState::Failed });
    made
}

/// The pool of this process, if it has one, open or closed.
#[inline(always)]
pub fn existing() -> Option<&'static Pool> {
    POOL.get()
}

/// The pool of this process, while it is open.
#[inline(always)]
pub fn open() -> Option<&'static Pool> {
    existing().filter(|pool| !pool.is_closed.load(Relaxed))
}

/// Whether calls of the entry point at `index` are to be announced ([`before_call`]).
pub fn watches(index: usize) -> bool {
    existing().is_some_and(|pool| pool.meanings[index] != Meaning::Nothing)
}

/// A call of the entry point at `index`, which has no hook, is about to be made.
pub fn before_call(index: usize) {
    if let Some(pool) = existing() {
        match pool.meanings[index] {
            Meaning::Nothing => {}
            Meaning::GivesBack => drop(pool.give_all_back()),
            Meaning::Closes => pool.close(PoolState::Closed, index),
        }
    }
}

/// Gives all idle blocks back to the driver. True if there were some: an allocation that failed may
/// succeed now.
#[cold]
pub fn give_all_back() -> bool {
    existing().is_some_and(|pool| caught(|| pool.give_all_back()) == Some(true))
}

/// `context` is gone, and with it what was allocated in it; all contexts if it is not known which.
pub fn forget_context(context: Option<CUcontext>) {
    if let Some(pool) = existing() {
        caught(|| pool.state().blocks.forget_context(context.map(|context| context as usize)));
    }
}

/// The process comes to its end.
pub fn shut_down() {
    if let Some(pool) = existing() {
        pool.note_figures(&mut pool.state());
    }
}

impl Pool {
    fn new(
        file: &'static ProcessFile,
        objects: &'static Objects,
        has_hook: fn(usize) -> bool,
    ) -> Option<Box<Pool>> {
        let mut meanings = Vec::new();
        meanings.try_reserve_exact(COUNT).ok()?;
        meanings.extend((0..COUNT).map(|index| match has_hook(index) {
            true => Meaning::Nothing,
            false => rules::of(index),
        }));
        Some(Box::new(Pool {
            state: Mutex::default(),
            meanings,
            is_closed: AtomicBool::new(false),
            operations: AtomicU64::new(0),
            file,
            objects,
            guard: ForkGuard::new().ok()?,
        }))
    }

    /// Decides on an allocation of `bytes` in the current context.
    pub fn allocate(&self, bytes: usize) -> Answer {
        let begun = self.begin_operation();
        let context = driver::current_context();
        if context.is_null() || self.objects.captures.any_in_order() {
            return Answer::Passes;
        }
        if let Some(address) = self.take(context, bytes, begun) {
            return Answer::Served(address);
        }
        self.give_surplus_back(context, bytes);
        Answer::Allocate(context)
    }

    fn take(&self, context: CUcontext, bytes: usize, begun: Option<u64>) -> Option<CUdeviceptr> {
        let mut state = self.state();
        let (address, alloc_ns) = state.blocks.take(context as usize, bytes)?;
        let figures = &mut state.figures;
        if figures.served == 0 {
            self.file.set_pool_state(PoolState::On);
        }
        figures.served += 1;
        figures.served_bytes = figures.served_bytes.saturating_add(bytes as u64);
        figures.alloc_ns += alloc_ns;
        figures.end_sample(begun);
        self.note_now_and_then(&mut state, begun);
        Some(address)
    }

    /// The driver has allocated a block for the program, within `alloc_ns`.
    pub fn allocated(&self, context: CUcontext, address: CUdeviceptr, bytes: usize, alloc_ns: u64) {
        let mut state = self.state();
        // The first allocation of a process takes what no later one takes.
        let is_first = state.figures.allocated == 0;
        state.figures.allocated += 1;
        let alloc_ns = if is_first { 0 } else { alloc_ns };
        state.blocks.insert_allocated(context as usize, address, bytes, alloc_ns);
    }

    /// Keeps the block at `address`, which the program frees, after a wait. False if the driver is
    /// to free it.
    pub fn keep(&self, address: CUdeviceptr) -> bool {
        let begun = self.begin_operation();
        let context = driver::current_context();
        let may_keep =
            !self.objects.captures.any_in_order() && self.state().blocks.may_keep(context as usize, address);
        // The block is live while it is waited for: a second free meanwhile does not find it idle.
        let waited = if may_keep { work::wait_for(context).ok() } else { None };
        let Some(has_waited) = waited else {
            self.state().blocks.forget(address);
            self.give_back_containing(address);
            return false;
        };
        {
            let mut state = self.state();
            if !state.blocks.keep(address) {
                drop(state);
                self.give_back_containing(address);
                return false;
            }
            state.figures.kept += 1;
            state.figures.waits += u64::from(has_waited);
            if !has_waited {
                state.figures.end_sample(begun);
            }
            self.note_now_and_then(&mut state, begun);
        }
        self.give_surplus_back(context, 0);
        true
    }

    /// Gives the idle block back in which `address` lies: the driver is about to be asked about it.
    pub fn give_back_containing(&self, address: CUdeviceptr) {
        let victim = self.state().blocks.take_containing(address);
        if let Some(victim) = victim {
            self.give_back(victim);
        }
    }

    /// The block in which `address` lies becomes known beyond the process: it is not kept.
    pub fn share(&self, address: CUdeviceptr) {
        if let Some((start, _)) = driver::allocation_around(address) {
            self.state().blocks.share(start);
        }
    }

    /// Closes the pool for good: all calls go to the driver. The session says `why`, and which
    /// entry point was called.
    #[cold]
    fn close(&self, why: PoolState, index: usize) {
        if self.is_closed.swap(true, SeqCst) {
            return;
        }
        self.file.set_pool_state(why);
        {
            let mut state = self.state();
            let id = index as u32 + 1;
            self.file.define(&Definition::Name { id, text: ENTRY_POINTS[index].symbol.to_owned() });
            state.figures.closed_by = id.into();
            self.note_figures(&mut state);
        }
        self.give_all_back();
    }

    fn give_surplus_back(&self, context: CUcontext, more: usize) {
        loop {
            let victim = self.state().blocks.surplus(context as usize, more);
            match victim {
                Some(victim) => self.give_back(victim),
                None => return,
            }
        }
    }

    fn give_all_back(&self) -> bool {
        let mut has_given = false;
        loop {
            let victim = self.state().blocks.take_any();
            match victim {
                Some(victim) => self.give_back(victim),
                None => return has_given,
            }
            has_given = true;
        }
    }

    #[cold]
    fn give_back(&self, victim: Victim) {
        let result = driver::free_device_memory(victim.context as CUcontext, victim.address);
        self.state().figures.given_back += 1;
        if result != CUDA_SUCCESS {
            self.close(PoolState::Refused, cuda_abi::index::cuMemFree_v2);
        }
    }

    /// Returns the start of an operation in ns, if it is to be timed.
    fn begin_operation(&self) -> Option<u64> {
        self.operations.fetch_add(1, Relaxed).is_multiple_of(ASKED_INTERVAL).then(now_ns)
    }

    /// Tells the session what the pool did, every now and then: with some of the timed operations.
    fn note_now_and_then(&self, state: &mut State, begun: Option<u64>) {
        if begun.is_some() && state.figures.asked_samples.is_multiple_of(NOTED_INTERVAL) {
            self.note_figures(state);
        }
    }

    fn note_figures(&self, state: &mut State) {
        (state.figures.peak_bytes, state.figures.peak_held_bytes) = state.blocks.peaks();
        self.file.set_pool_figures(&state.figures);
    }

    /// A panic while it was held leaves the state valid: every step of its changes is.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the timing of an operation.
trait EndSample {
    fn end_sample(&mut self, begun: Option<u64>);
}

impl EndSample for PoolFigures {
    fn end_sample(&mut self, begun: Option<u64>) {
        if let Some(begun) = begun {
            self.asked_samples += 1;
            self.asked_ns += now_ns().saturating_sub(begun);
        }
    }
}
