//! Tracks the streams that are being captured into graphs.
//!
//! A capture forbids much that this library would otherwise do, and what is launched into one is
//! not executed. Asking the driver costs some twenty nanoseconds, so it is asked only while
//! [`Captures::any`] says that there is a capture somewhere in the process.

use crate::hot::hot;
use crate::limits;
use crate::tables::push;
use cuda_abi::types::CUstream;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Mutex, PoisonError};

/// The captures of a process. How many there are, begun or about to begin, is
/// [`hot().captures`](crate::hot::Hot::captures).
pub struct Captures {
    /// The streams on which they were begun, and for a thread's default stream the thread.
    origins: Mutex<Vec<(usize, u32)>>,
}

impl Captures {
    /// None: a forked child has none of its parent's.
    pub fn new() -> Captures {
        hot().captures.store(0, SeqCst);
        Captures { origins: Mutex::default() }
    }

    /// Whether there is a capture anywhere in the process.
    #[inline(always)]
    pub fn any(&self) -> bool {
        hot().captures.load(Relaxed) != 0
    }

    /// As [`Captures::any`], ordered with what other threads do before they begin one.
    pub fn any_in_order(&self) -> bool {
        hot().captures.load(SeqCst) != 0
    }

    /// A capture is about to begin. Either [`Captures::begun`] or [`Captures::not_begun`] follows.
    pub fn beginning(&self) {
        hot().captures.fetch_add(1, SeqCst);
    }

    /// The capture has begun on `stream`.
    pub fn begun(&self, stream: CUstream, thread: u32) {
        let mut origins = self.origins.lock().unwrap_or_else(PoisonError::into_inner);
        // Beyond the limit, or the memory, the count stays up, which costs time but is never wrong.
        if origins.len() < limits::CAPTURES {
            push(&mut origins, (stream as usize, thread));
        }
    }

    /// The capture did not begin.
    pub fn not_begun(&self) {
        hot().captures.fetch_sub(1, SeqCst);
    }

    /// The capture on `stream`, if there is one, has ended, or its stream is gone.
    pub fn ended(&self, stream: CUstream, thread: u32) {
        let mut origins = self.origins.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = origins.iter().position(|&origin| origin == (stream as usize, thread)) {
            origins.swap_remove(at);
            hot().captures.fetch_sub(1, SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_lasts_from_before_its_begin_until_it_ends_on_its_own_stream() {
        let captures = Captures::new();
        let (one, other) = (0x10 as CUstream, 0x20 as CUstream);
        captures.beginning();
        assert!(captures.any() && captures.any_in_order());
        captures.not_begun();
        assert!(!captures.any());

        for stream in [one, other] {
            captures.beginning();
            captures.begun(stream, 0);
        }
        captures.ended(0x30 as CUstream, 0);
        captures.ended(one, 1);
        captures.ended(one, 0);
        captures.ended(one, 0);
        assert!(captures.any(), "the other one goes on");
        captures.ended(other, 0);
        assert!(!captures.any());
    }
}
