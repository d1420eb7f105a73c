//! The streams that have used a piece of memory, and what the next user must wait for.
//!
//! A read waits for the last write. A write waits for the last write and all reads since, and so
//! does freeing the memory. Waiting for a stream means waiting for all work submitted to it so far,
//! which includes the use. While one stream uses the memory, a use therefore costs only a
//! comparison; an event is recorded only when another stream takes over.
//!
//! Invariant: `alone`, if not 0, is the only stream with work on the memory that nobody has waited
//! for.
//!
//! Rust's borrow rules exclude the rest: a write needs a mutable reference, so no other use is
//! submitted at the same time. Several threads may submit reads at the same time; the lock orders
//! them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::error::Result;
use crate::stream::Stream;

/// The kind of access to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

#[derive(Debug)]
pub(crate) struct Uses {
    alone: AtomicU64,
    last: Mutex<Last>,
}

#[derive(Debug)]
struct Last {
    /// The stream of the last write, or where the memory was made.
    writer: Stream,
    /// Streams that have read since, each of which has waited for the writer.
    readers: Vec<Stream>,
}

impl Uses {
    /// Memory that is made on `stream`.
    pub(crate) fn made_on(stream: &Stream) -> Uses {
        let last = Last { writer: stream.clone(), readers: Vec::new() };
        Uses { alone: AtomicU64::new(stream.id()), last: Mutex::new(last) }
    }

    /// Lets `stream` wait for what it has to wait for before it uses the memory.
    #[inline]
    pub(crate) fn order(&self, stream: &Stream, access: Access) -> Result<()> {
        if self.alone.load(Ordering::Acquire) == stream.id() {
            return Ok(());
        }
        self.order_among_several(stream, access)
    }

    #[cold]
    fn order_among_several(&self, stream: &Stream, access: Access) -> Result<()> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let Last { writer, readers } = &mut *last;
        match access {
            Access::Read => {
                if writer != stream && !readers.contains(stream) {
                    stream.join(writer)?;
                    readers.push(stream.clone());
                }
                self.alone.store(0, Ordering::Release);
            }
            Access::Write => {
                for other in std::iter::once(&*writer).chain(&*readers).filter(|other| *other != stream) {
                    stream.join(other)?;
                }
                readers.clear();
                *writer = stream.clone();
                self.alone.store(stream.id(), Ordering::Release);
            }
        }
        Ok(())
    }
}
