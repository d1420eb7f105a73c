//! Iterates over a session's records: the window, the time line, progress.
//!
//! All processes share one time line: nanoseconds since the first process began to record, on the
//! machine's monotonic clock.

use apex_trace::{Process, Record, Session};
use std::io;
use std::ops::Range;

/// Records between two calls of the progress function.
const STEP: u64 = 1 << 16;

/// A session on its way to a file.
pub struct Reading<'a> {
    /// The session.
    pub session: &'a Session,
    /// Which calls are wanted, by when they began on the time line, nanoseconds.
    pub window: Range<u64>,
    /// Told now and then how many records have been read.
    pub progress: &'a mut dyn FnMut(u64),
    read: u64,
    origin_ns: u64,
}

impl<'a> Reading<'a> {
    /// Reads `session` within `window`.
    pub fn new(session: &'a Session, window: Range<u64>, progress: &'a mut dyn FnMut(u64)) -> Self {
        // Ticks of 0 are before every start, so they give the start itself.
        let starts = session.processes.iter().map(|process| process.clock.monotonic_ns(0));
        Self { session, window, progress, read: 0, origin_ns: starts.min().unwrap_or(0) }
    }

    /// The start of the time line on the machine's monotonic clock, nanoseconds.
    pub fn origin_ns(&self) -> u64 {
        self.origin_ns
    }

    /// A moment of a process on the time line.
    pub fn time_ns(&self, process: &Process, ticks: u64) -> u64 {
        process.clock.monotonic_ns(ticks).saturating_sub(self.origin_ns)
    }

    /// Calls `row` with each record of `process` in the window, and when it began.
    ///
    /// # Errors
    /// The first of `row`.
    pub fn each(
        &mut self,
        process: &Process,
        mut row: impl FnMut(Record, u64) -> io::Result<()>,
    ) -> io::Result<()> {
        for record in process.records() {
            self.count();
            let start_ns = self.time_ns(process, record.start());
            if self.window.contains(&start_ns) {
                row(record, start_ns)?;
            }
        }
        Ok(())
    }

    /// Counts one record.
    pub fn count(&mut self) {
        self.read += 1;
        if self.read.is_multiple_of(STEP) {
            (self.progress)(self.read);
        }
    }
}
