//! The event pairs of the contexts, found without a lock.
//!
//! A launch that is to be timed asks for its context's state and for a pair. The state is read
//! lock-free. The list of free pairs is behind a lock for which a sampled launch never waits: a
//! taken lock means that the launch is not timed, and a pair that cannot be given back now stays
//! with its thread as a [`Spare`].

use super::calibration::{Calibration, Delay, PairCost};
use super::pairs::Pair;
use crate::limits;
use crate::tables::push;
use cuda_abi::types::CUfunction;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU32};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// The state of a context: whether its launches can be timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not yet: work was launched before there was a moment to calibrate. The next time the context
    /// is idle will do.
    Uncalibrated,
    /// Calibration failed: never.
    Unusable,
    /// Yes.
    Ready(Calibration),
}

const UNUSABLE: u32 = 1;
const READY: u32 = 2;

/// The pool of one context.
#[derive(Default)]
struct Pool {
    /// The context's identifier; 0 for none.
    context: AtomicU32,
    state: AtomicU32,
    /// Valid where `state` is [`READY`].
    cost: [AtomicU32; 3],
    /// The kernel that delays streams; null where there is none.
    delay_kernel: AtomicPtr<()>,
    delay_cycles_per_us: AtomicU32,
    /// Pairs made.
    made: AtomicU32,
    free: Mutex<Vec<Pair>>,
}

/// A pair that a thread keeps because its pool was busy.
#[derive(Clone, Copy)]
pub struct Spare {
    /// The identifier of its context.
    pub context: u32,
    pub pair: Pair,
}

/// The result of [`Pools::take`].
pub enum Found {
    /// A pair.
    Pair(Pair),
    /// Room for a new one, which the caller makes.
    Room,
}

/// The pools of all contexts. A context has one place; where another one has it, the context is not
/// timed.
pub struct Pools(Box<[Pool]>);

impl Pools {
    /// `None` if there is no memory for them.
    pub fn new() -> Option<Pools> {
        let mut pools = Vec::new();
        pools.try_reserve_exact(limits::CONTEXT_HANDLES).ok()?;
        pools.resize_with(limits::CONTEXT_HANDLES, Pool::default);
        Some(Pools(pools.into_boxed_slice()))
    }

    fn place(&self, context: u32) -> &Pool {
        &self.0[context as usize % limits::CONTEXT_HANDLES]
    }

    fn find(&self, context: u32) -> Option<&Pool> {
        let pool = self.place(context);
        (context != 0 && pool.context.load(Acquire) == context).then_some(pool)
    }

    /// Whether the context has a pool. Takes no lock.
    pub fn has(&self, context: u32) -> bool {
        self.find(context).is_some()
    }

    /// The state of a context that has a pool. Takes no lock.
    pub fn state(&self, context: u32) -> Option<State> {
        let pool = self.find(context)?;
        Some(match pool.state.load(Acquire) {
            UNUSABLE => State::Unusable,
            READY => State::Ready(pool.calibration()),
            _ => State::Uncalibrated,
        })
    }

    /// Gives the context a pool; true if this call did.
    pub fn add(&self, context: u32) -> bool {
        let pool = self.place(context);
        let _turn = pool.free();
        let is_free = pool.context.load(Relaxed) == 0;
        if is_free {
            pool.state.store(0, Relaxed);
            pool.made.store(0, Relaxed);
            pool.context.store(context, Release);
        }
        is_free
    }

    /// Says what calibration found; `None` if it failed.
    pub fn set_calibration(&self, context: u32, found: Option<Calibration>) {
        let Some(pool) = self.find(context) else { return };
        if let Some(Calibration { cost: PairCost { delayed, busy, idle }, delay }) = found {
            pool.cost.iter().zip([delayed, busy, idle]).for_each(|(place, ns)| place.store(ns, Relaxed));
            pool.delay_cycles_per_us.store(delay.map_or(0, |delay| delay.cycles_per_us), Relaxed);
            pool.delay_kernel.store(delay.map_or(null_mut(), |delay| delay.kernel.cast()), Relaxed);
        }
        pool.state.store(if found.is_some() { READY } else { UNUSABLE }, Release);
    }

    /// The driver has refused to delay one of the context's streams: no other is delayed.
    pub fn give_up_delay(&self, context: u32) {
        if let Some(pool) = self.find(context) {
            pool.delay_kernel.store(null_mut(), Relaxed);
        }
    }

    /// Takes a free pair. Where another thread is at the list, waits for it only if `waits`.
    pub fn take(&self, context: u32, waits: bool) -> Option<Found> {
        let pool = self.find(context)?;
        let taken = if waits { pool.free().pop() } else { pool.try_free()?.pop() };
        if let Some(pair) = taken {
            return Some(Found::Pair(pair));
        }
        let limit = limits::EVENT_PAIRS as u32;
        let more = |made: u32| (made < limit).then_some(made + 1);
        pool.made.fetch_update(Relaxed, Relaxed, more).ok().map(|_| Found::Room)
    }

    /// Gives a pair back; false if another thread is at the list, unless `waits`. A pair of a
    /// context that is gone is gone.
    pub fn give_back(&self, spare: Spare, waits: bool) -> bool {
        let Some(pool) = self.find(spare.context) else { return true };
        let free = if waits { Some(pool.free()) } else { pool.try_free() };
        let Some(mut free) = free else { return false };
        if pool.context.load(Relaxed) == spare.context {
            push(&mut free, spare.pair);
        }
        true
    }

    /// The context is about to be destroyed, and its pairs with it.
    pub fn forget(&self, context: u32) {
        if let Some(pool) = self.find(context) {
            pool.clear();
        }
    }

    /// Some context is about to be destroyed.
    pub fn forget_all(&self) {
        self.0.iter().for_each(Pool::clear);
    }
}

impl Pool {
    fn calibration(&self) -> Calibration {
        let kernel: CUfunction = self.delay_kernel.load(Relaxed).cast();
        let cycles_per_us = self.delay_cycles_per_us.load(Relaxed);
        let [delayed, busy, idle] = self.cost.each_ref().map(|ns| ns.load(Relaxed));
        Calibration {
            cost: PairCost { delayed, busy, idle },
            delay: (!kernel.is_null()).then_some(Delay { kernel, cycles_per_us }),
        }
    }

    fn free(&self) -> MutexGuard<'_, Vec<Pair>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_free(&self) -> Option<MutexGuard<'_, Vec<Pair>>> {
        match self.free.try_lock() {
            Ok(free) => Some(free),
            Err(TryLockError::Poisoned(free)) => Some(free.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn clear(&self) {
        let mut free = self.free();
        self.context.store(0, Release);
        free.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAIR: Pair = Pair { before: null_mut(), after: null_mut() };

    #[test]
    fn a_launch_that_does_not_wait_gets_nothing_from_a_list_that_is_taken() {
        let pools = Pools::new().unwrap();
        assert!(pools.add(1));
        assert!(!pools.add(1), "it has one");
        let spare = Spare { context: 1, pair: PAIR };
        let held = pools.place(1).free();
        assert!(pools.take(1, false).is_none());
        assert!(!pools.give_back(spare, false));
        assert_eq!(pools.state(1), Some(State::Uncalibrated), "the state takes no lock");
        drop(held);
        assert!(matches!(pools.take(1, false), Some(Found::Room)));
        assert!(pools.give_back(spare, false));
        assert!(matches!(pools.take(1, false), Some(Found::Pair(_))));
    }

    #[test]
    fn pairs_go_with_their_context() {
        let pools = Pools::new().unwrap();
        pools.add(1);
        let delay = Delay { kernel: std::ptr::dangling_mut(), cycles_per_us: 5 };
        let calibration = Calibration { cost: PairCost { delayed: 2, busy: 3, idle: 4 }, delay: Some(delay) };
        pools.set_calibration(1, Some(calibration));
        assert_eq!(pools.state(1), Some(State::Ready(calibration)));
        pools.give_up_delay(1);
        assert_eq!(pools.state(1), Some(State::Ready(Calibration { delay: None, ..calibration })));
        pools.give_back(Spare { context: 1, pair: PAIR }, true);
        pools.forget(1);
        assert_eq!(pools.state(1), None);
        let next = 1 + limits::CONTEXT_HANDLES as u32;
        assert!(pools.add(next), "the place is free again");
        assert_eq!(pools.state(next), Some(State::Uncalibrated));
        assert!(pools.give_back(Spare { context: 1, pair: PAIR }, false), "it is gone");
        assert!(matches!(pools.take(next, false), Some(Found::Room)), "no pair of the other context");
        assert!(pools.take(1, true).is_none());
    }

    #[test]
    fn a_context_has_so_many_pairs() {
        let pools = Pools::new().unwrap();
        pools.add(5);
        let given = std::iter::repeat_with(|| pools.take(5, true)).take_while(Option::is_some).count();
        assert_eq!(given, limits::EVENT_PAIRS);
    }
}
