//! Measured GPU durations of one process, to be found by the launch that they belong to.
//!
//! A timing record comes after its launch in the file, sometimes long after, so they are gathered
//! in a first pass. A measured launch costs 32 bytes here; launches that were not measured cost
//! nothing.

use apex_ordered::Order;
use apex_trace::layout::{Timing, flags};
use apex_trace::{Event, Process};

/// One measured duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// The reading of the event pair, in nanoseconds.
    pub raw_ns: u64,
    /// The same less what the pair costs, never below zero.
    pub gpu_ns: u64,
    /// Whether the stream was idle when the launch came, so that `raw_ns` includes launch latency.
    pub stream_was_idle: bool,
}

impl From<&Timing> for Measured {
    fn from(timing: &Timing) -> Self {
        Measured {
            raw_ns: timing.raw_ns,
            gpu_ns: timing.raw_ns.saturating_sub(timing.correction_ns()),
            stream_was_idle: timing.head.flags & flags::STREAM_WAS_IDLE != 0,
        }
    }
}

/// The measured launches of a process.
#[derive(Debug, Default)]
pub struct Timings {
    /// By start of the launch and thread, sorted.
    launches: Vec<((u64, u32), Measured)>,
}

impl Timings {
    /// Gathers those of `process`.
    pub fn of(process: &Process) -> Self {
        let timings = process.records().filter_map(|record| match record.event {
            Event::Timing(timing) if !timing.is_part_of_launch() => {
                Some(((timing.head.start, record.tid), Measured::from(&timing)))
            }
            _ => None,
        });
        let mut launches: Vec<_> = timings.collect();
        launches.order_by_key(|(launch, _)| *launch);
        Self { launches }
    }

    /// The duration of the launch that thread `tid` made at `start` (ticks), if it was measured.
    pub fn find(&self, start: u64, tid: u32) -> Option<Measured> {
        let at = self.launches.binary_search_by_key(&(start, tid), |(launch, _)| *launch).ok()?;
        Some(self.launches[at].1)
    }
}
