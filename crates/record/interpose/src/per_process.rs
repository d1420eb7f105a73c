//! Values that exist once per process.
//!
//! Such a value is made once and never freed. A forked child detects that the inherited value is
//! not its own and makes a new one. It leaves the inherited one alone, because threads that do not
//! exist in the child may hold locks in it.

use crate::switch::guarded;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU64};

/// A value that knows which process made it.
pub trait OfProcess: Sync + 'static {
    /// Whether the calling process made it, and not one that it was forked from.
    fn is_ours(&self) -> bool;
}

/// The place of such a value.
pub struct PerProcess<T: 'static> {
    made: AtomicPtr<T>,
    /// The process that makes or has made it, and the progress: the process identifier times 4,
    /// plus a stage.
    stage: AtomicU64,
}

const MAKING: u64 = 1;
const MADE: u64 = 2;
const FAILED: u64 = 3;

impl<T: OfProcess> PerProcess<T> {
    /// An empty place.
    pub const fn new() -> PerProcess<T> {
        PerProcess { made: AtomicPtr::new(null_mut()), stage: AtomicU64::new(0) }
    }

    /// The value of this process, if it has been made.
    #[inline]
    pub fn get(&self) -> Option<&'static T> {
        // SAFETY: null or a leaked value, published with release.
        unsafe { self.made.load(Acquire).as_ref() }.filter(|made| made.is_ours())
    }

    /// The value of this process, made if need be. Threads that ask meanwhile wait, also for
    /// `publish`, which is handed the new value. `None` if this process could not make it.
    pub fn get_or_make(
        &self,
        make: impl FnOnce() -> Option<Box<T>>,
        publish: impl FnOnce(&'static T),
    ) -> Option<&'static T> {
        let mine = u64::from(std::process::id()) * 4;
        loop {
            let seen = self.stage.load(Acquire);
            match seen.checked_sub(mine) {
                Some(MADE) => return self.get(),
                Some(FAILED) => return None,
                // Another thread is at it, and waits for nobody: this ends.
                Some(MAKING) => std::thread::yield_now(),
                // Nobody, or the process that this one was forked from.
                _ => {
                    if self.stage.compare_exchange(seen, mine + MAKING, Acquire, Relaxed).is_ok() {
                        let made = guarded(|| self.place(make()?, publish)).flatten();
                        self.stage.store(mine + if made.is_some() { MADE } else { FAILED }, Release);
                        return made;
                    }
                }
            }
        }
    }

    fn place(&self, value: Box<T>, publish: impl FnOnce(&'static T)) -> Option<&'static T> {
        let value: &'static mut T = Box::leak(value);
        self.made.store(value, Release);
        let made = self.get()?;
        publish(made);
        Some(made)
    }
}
