//! Which streams have used a piece of memory, and what the next user has to wait for.
//!
//! Reads wait for the last write; a write, and the end of the memory, for that and for all reads
//! since. To wait for a stream means to wait for all that it has been given by then: the use is
//! among that. So a use costs nothing but a look as long as one stream uses the memory, and an
//! event only where another takes over.
//!
//! Invariant: `alone`, if not 0, is the only stream with work on the memory that nobody has waited
//! for yet.
//!
//! Rust's borrows do the rest: a write needs a mutable reference, so no other use is issued at the
//! same time. Reads can, on several threads; then the lock orders them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::error::Result;
use crate::stream::Stream;

/// How memory is used.
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
