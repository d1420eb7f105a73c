//! Turns at work that is expensive: a few at a time, and those who wait before those who do not.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Limits the number of turns at a time.
pub struct Turns {
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Default)]
struct State {
    free: usize,
    waiting: usize,
}

/// A turn, which ends when it is dropped.
pub struct Turn<'t>(&'t Turns);

impl Turns {
    /// Allows at most `most` turns at a time.
    pub fn new(most: usize) -> Self {
        Self { state: Mutex::new(State { free: most, waiting: 0 }), freed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a turn.
    pub fn take(&self) -> Turn<'_> {
        let mut state = self.state();
        state.waiting += 1;
        while state.free == 0 {
            state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.waiting -= 1;
        state.free -= 1;
        Turn(self)
    }

    /// A turn that is free and that nobody waits for.
    pub fn try_take(&self) -> Option<Turn<'_>> {
        let mut state = self.state();
        let is_free = state.free > state.waiting;
        state.free -= usize::from(is_free);
        is_free.then(|| Turn(self))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.state().free += 1;
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_so_many_and_who_waits_comes_first() {
        let turns = Turns::new(2);
        let (first, second) = (turns.try_take(), turns.try_take());
        assert!(first.is_some() && second.is_some() && turns.try_take().is_none());
        drop(second);
        std::thread::scope(|scope| {
            let second = turns.take();
            let waits = scope.spawn(|| drop(turns.take()));
            while turns.state().waiting == 0 {
                std::thread::yield_now();
            }
            drop(first);
            waits.join().unwrap();
            assert!(turns.try_take().is_some(), "its turn is over");
            drop(second);
        });
    }
}
