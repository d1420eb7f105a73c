//! Holds launches for a moment while the GPU has enough to do, so that batches form.
//!
//! A program that is faster than the GPU, but not faster than the driver takes launches, leaves
//! nothing in the ring: its launches wait in the driver, one by one. While the GPU has not begun
//! the last [`GROUP`] launches of a stream, another launch into it starts no earlier if it is made
//! earlier. So the queue's thread may wait for the rest of a sequence.
//!
//! # Contract
//! 1. *Nothing starts late.* Launches are held only while the GPU has not reached a mark, an event
//!    of ours, behind which at least [`GROUP`] launches of the same stream were made.
//! 2. *Progress.* The first launch that is held waits at most [`MOST_NS`], and nothing is held while
//!    a thread waits for calls, or once a call of another kind or stream comes.
//! 3. *No order is added.* A mark is recorded right before a launch into its stream.

use crate::driver::{create_event, destroy_event, is_pending, record_event};
use crate::tables::push;
use cuda_abi::types::*;
use std::ptr::null_mut;

/// Fewest launches behind a mark.
const GROUP: usize = 16;
/// Longest time for which a launch is held, nanoseconds.
const MOST_NS: u64 = 200_000;

/// See the [module](self).
pub struct Hold {
    stream: CUstream,
    /// The last two marks in the stream, the older one first.
    marks: Vec<CUevent>,
    free: Vec<CUevent>,
    /// Launches since the last mark.
    launches: usize,
    /// The launch that is held, and since when.
    ticket: u64,
    begun: u64,
}

impl Hold {
    /// Without marks.
    pub const fn new() -> Hold {
        Hold { stream: null_mut(), marks: Vec::new(), free: Vec::new(), launches: 0, ticket: 0, begun: 0 }
    }

    /// So many launches were made.
    pub fn made(&mut self, launches: usize) {
        self.launches = self.launches.saturating_add(launches);
    }

    /// A launch into a stream is next: marks the place if enough were made since the last mark.
    pub fn mark(&mut self, stream: CUstream) {
        if stream != self.stream {
            self.free.append(&mut self.marks);
            (self.stream, self.launches) = (stream, 0);
        }
        if self.launches < GROUP {
            return;
        }
        let oldest = (self.marks.len() > 1).then(|| self.marks.remove(0));
        let event = oldest.or_else(|| self.free.pop()).or_else(create_event);
        let Some(event) = event else { return };
        if record_event(event, stream) && push(&mut self.marks, event) {
            self.launches = 0;
        } else {
            destroy_event(event);
            self.clear();
        }
    }

    /// Whether the launch with this ticket, the next one of a stream, waits for more.
    pub fn holds(&mut self, stream: CUstream, ticket: u64, now: u64) -> bool {
        let [older, _] = self.marks[..] else { return false };
        if ticket != self.ticket {
            (self.ticket, self.begun) = (ticket, now);
        }
        stream == self.stream && now.saturating_sub(self.begun) < MOST_NS && is_pending(older)
    }

    /// Destroys the marks: a context ends.
    pub fn clear(&mut self) {
        self.marks.drain(..).chain(self.free.drain(..)).for_each(destroy_event);
        self.launches = 0;
    }
}
