//! The threads of an interpreter in another process, and the holder of its global lock.
//!
//! The lists change while they are read. They are followed for a bounded number of steps, and a
//! thread's state counts only for the thread that it names.

use super::Interpreter;
use super::layout::GilAt;
use crate::memory::{half_at, word_at};
use std::ops::Range;

/// Most interpreters of a process whose threads are listed.
const MOST_INTERPRETERS: usize = 64;
/// Most threads that are listed.
const MOST_THREADS: usize = 1 << 14;
/// Bytes of a thread's state that are read.
const STATE_BYTES: usize = 192;
/// In the global lock: the thread that took it last, and whether it is taken.
const LAST_HOLDER: usize = 8;
const LOCKED: usize = 16;
/// Bytes of the global lock: the two, a counter, and two mutexes with condition variables.
const GIL_BYTES: u64 = 208;
/// Bytes of a `pthread_t` in which the identifier of the thread is looked for.
const PTHREAD_BYTES: usize = 2048;

/// The state of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadState {
    /// The address of the thread's state.
    pub address: u64,
    /// `pthread_t` of the thread.
    pub pthread: u64,
    /// The system's identifier of the thread; `None` before 3.11.
    pub native: Option<u32>,
}

/// A global lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gil {
    address: u64,
}

impl Gil {
    /// Returns the addresses of the lock, including those on which threads wait for it.
    pub fn addresses(&self) -> Range<u64> {
        self.address..self.address.saturating_add(GIL_BYTES)
    }
}

impl Interpreter {
    /// The states of all threads. Allocates.
    pub fn thread_states(&self) -> Vec<ThreadState> {
        let threads = &self.layout.threads;
        let mut states = Vec::new();
        let mut interpreter = self.word(self.runtime, threads.interpreters);
        for _ in 0..MOST_INTERPRETERS {
            let Some(at) = interpreter.filter(|&at| at != 0) else { break };
            let mut state = self.word(at, threads.first);
            while let Some(at) = state.filter(|&at| at != 0 && states.len() < MOST_THREADS) {
                let Some((found, next)) = self.thread_state(at) else { break };
                states.push(found);
                state = Some(next);
            }
            interpreter = self.word(at, threads.next_interpreter);
        }
        states
    }

    /// The state at this address, and the address of the next one.
    pub fn thread_state(&self, address: u64) -> Option<(ThreadState, u64)> {
        let threads = &self.layout.threads;
        let mut bytes = [0; STATE_BYTES];
        if !self.memory.read(address, &mut bytes) {
            return None;
        }
        let native = threads.native.map(|native| half_at(&bytes, native));
        let state = ThreadState { address, pthread: word_at(&bytes, threads.pthread), native };
        Some((state, word_at(&bytes, threads.next)))
    }

    /// Returns the offset at which a `pthread_t` holds the system's identifier of its thread, in
    /// bytes: the only one at which all of these threads have one of `tids`.
    pub fn tid_in_pthread(&self, states: &[ThreadState], tids: &[u32]) -> Option<usize> {
        let mut possible: Vec<usize> = (0..PTHREAD_BYTES).step_by(4).collect();
        for state in states {
            let mut bytes = [0; PTHREAD_BYTES];
            let length = self.memory.read_some(state.pthread, &mut bytes);
            possible.retain(|&at| at + 4 <= length && tids.contains(&half_at(&bytes, at)));
        }
        possible.first().copied().filter(|_| !states.is_empty())
    }

    /// The identifier of the thread with this state, by what
    /// [`tid_in_pthread`](Interpreter::tid_in_pthread) found.
    pub fn tid(&self, state: &ThreadState, in_pthread: Option<usize>) -> Option<u32> {
        state.native.or_else(|| Some(self.word(state.pthread, in_pthread?)? as u32))
    }

    /// The global lock of the first interpreter.
    pub fn gil(&self) -> Option<Gil> {
        let threads = &self.layout.threads;
        let address = match threads.gil {
            GilAt::Runtime(offset) => self.runtime.checked_add(offset as u64),
            GilAt::Interpreter(offset) => self.word(self.main()?, offset),
        };
        address.filter(|&address| address != 0).map(|address| Gil { address })
    }

    /// The state of the thread that holds a global lock; `None` if none does.
    pub fn holder(&self, gil: &Gil) -> Option<u64> {
        let mut bytes = [0; LOCKED + 4];
        let is_held = self.memory.read(gil.address, &mut bytes) && half_at(&bytes, LOCKED) == 1;
        is_held.then(|| word_at(&bytes, LAST_HOLDER)).filter(|&state| state != 0)
    }

    /// The interpreter that was made first: the last of the list.
    fn main(&self) -> Option<u64> {
        let threads = &self.layout.threads;
        let mut last = self.word(self.runtime, threads.interpreters).filter(|&at| at != 0)?;
        for _ in 0..MOST_INTERPRETERS {
            match self.word(last, threads.next_interpreter) {
                None | Some(0) => break,
                Some(next) => last = next,
            }
        }
        Some(last)
    }

    fn word(&self, base: u64, offset: usize) -> Option<u64> {
        self.memory.word(base.checked_add(offset as u64)?)
    }
}
