//! The NVTX range that a thread is in: one record for each change, and one when a thread begins to
//! record inside ranges.
//!
//! Records of launches do not name their range, and the launch path does not know about ranges: a
//! record belongs to the last range that its thread recorded ([`apex_trace::layout::RangeChange`]).

use super::Recorder;
use super::thread::{self, Thread};
use crate::ranges::texts::DOMAINS;
use crate::ranges::{self, Change};
use crate::switch::{caught, guarded, is_recording};
use apex_trace::definition::{Definition, Range};
use apex_trace::layout::{RangeChange, Slots, flags};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Mutex, PoisonError};

/// The ranges that the session's file defines.
#[derive(Default)]
pub struct DefinedRanges {
    /// All up to this one.
    until: AtomicU32,
    defining: Mutex<()>,
}

/// The calling thread has entered or left a range; `flags` say which.
pub fn changed(change: Change, flags: u16, instance: u64) {
    if is_recording() {
        thread::with_existing(|thread| {
            caught(|| thread.change_range(change.range, change.changed, flags, instance));
        });
    } else if Recorder::existing().is_some() {
        // What is recorded later must not belong to a range that may have ended by then.
        thread::with_existing(|thread| {
            caught(|| thread.enter_range(0));
        });
    }
}

/// The calling thread makes calls for a thread that is in `range`; false if that cannot be stated.
pub fn enter(range: u32) -> bool {
    is_recording() && thread::with(|thread| caught(|| thread.enter_range(range))).flatten().is_some()
}

impl Thread {
    /// States the range in which the thread is, if it has not stated that.
    fn enter_range(&mut self, range: u32) {
        if self.range != range {
            self.change_range(range, 0, 0, 0);
        }
    }

    /// The thread begins to record: states the ranges in which it is.
    pub fn state_open_ranges(&mut self) {
        for range in ranges::open() {
            self.change_range(range, range, flags::RANGE_BEGUN, 0);
        }
    }

    fn change_range(&mut self, range: u32, changed: u32, flags: u16, instance: u64) {
        let [range, changed] = [range, changed].map(|range| self.recorder.defined_range(range));
        let now = self.clock.now();
        self.range = range;
        self.push(&RangeChange { head: RangeChange::head(flags, now, now), range, changed, instance });
    }
}

impl Recorder {
    /// The range, once the session's file defines it.
    fn defined_range(&self, range: u32) -> u32 {
        if range > self.ranges.until.load(Acquire) {
            guarded(|| self.define_ranges(range));
        }
        range
    }

    /// Defines all ranges up to `last`. (One that the file has no room for stays undefined, and
    /// what names it belongs to no range.)
    fn define_ranges(&self, last: u32) {
        let Some(table) = ranges::table() else { return };
        let _defining = self.ranges.defining.lock().unwrap_or_else(PoisonError::into_inner);
        let first = self.ranges.until.load(Acquire) + 1;
        for id in first..=last {
            let Some(node) = table.node(id) else { return };
            let domain = DOMAINS.get(node.domain).unwrap_or_default().to_owned();
            let definition = Range { id, parent: node.parent, domain, name: node.name };
            self.file.define(&Definition::Range(definition));
            self.ranges.until.store(id, Release);
        }
    }
}
