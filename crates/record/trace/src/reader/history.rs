//! Older records that recent records refer to.
//!
//! A watched session yields only its recent records. Some of these refer to older ones: a free to
//! its allocation, the end of a process-wide range to its beginning. The duration of a kernel is
//! known only from timings, which are rare. These older records are kept within stated bounds and
//! precede the recent ones.

use crate::layout::{Call, CallClass, flags};
use crate::reader::records::{Event, Record};
use std::collections::{BTreeMap, HashMap};

/// Timings kept of each configuration and graph: the newest.
const TIMINGS: usize = 16;
/// Configurations and graphs of which timings are kept.
const MOST_TIMED: usize = 1 << 13;
/// Allocations and ranges that are kept, freed and ended ones included while records are missing.
const MOST_OPEN: usize = 1 << 16;
/// Recent records that are noted; beyond it, the oldest count as history.
const MOST_NOTED: usize = 1 << 18;

/// The identity of an object that records open and close.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    /// An allocation, by its address.
    Address(u64),
    /// An allocation that has a handle in place of an address.
    Handle(u64),
    /// A process-wide range, by its instance.
    Range(u64),
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// Recent records that will be needed once they are history.
    noted: Vec<Record>,
    /// The last past change of each key: when, and the record if it opened.
    open: HashMap<Key, (u64, Option<Record>)>,
    /// In the order of their starts; whether of a graph, and the identifier.
    timings: BTreeMap<(bool, u32), Vec<Record>>,
}

impl History {
    /// Notes a record if it may be needed.
    pub fn note(&mut self, record: Record) {
        if change(&record).is_none() && !matches!(record.event, Event::Timing(_)) {
            return;
        }
        self.noted.push(record);
        if self.noted.len() > MOST_NOTED {
            let middle = MOST_NOTED / 2;
            let (_, record, _) = self.noted.select_nth_unstable_by_key(middle, Record::start);
            let start = record.start();
            // Many may have begun in the same tick.
            self.pass(start.saturating_add(1));
        }
    }

    /// Lets everything that began before `from` be past from now on. `complete`: no older record
    /// will be noted.
    pub fn settle(&mut self, from: u64, complete: bool) {
        self.pass(from);
        if complete {
            self.open.retain(|_, (_, record)| record.is_some());
        }
    }

    /// The records of the past, in the order of their starts.
    pub fn records(&self) -> Vec<Record> {
        let open = self.open.values().filter_map(|(_, record)| *record);
        let mut records: Vec<_> = open.chain(self.timings.values().flatten().copied()).collect();
        records.sort_by_key(Record::start);
        records
    }

    fn pass(&mut self, from: u64) {
        let mut noted = std::mem::take(&mut self.noted);
        noted.retain(|record| {
            let is_recent = record.start() >= from;
            if !is_recent {
                self.keep(record);
            }
            is_recent
        });
        self.noted = noted;
    }

    fn keep(&mut self, record: &Record) {
        if let Event::Timing(timing) = record.event {
            let key = (timing.head.flags & flags::OF_GRAPH != 0, timing.config);
            if self.timings.len() < MOST_TIMED || self.timings.contains_key(&key) {
                let kept = self.timings.entry(key).or_default();
                let at = kept.partition_point(|kept| kept.start() <= record.start());
                kept.insert(at, *record);
                kept.drain(..kept.len().saturating_sub(TIMINGS));
            }
        }
        let Some((key, opens)) = change(record) else { return };
        let start = record.start();
        if self.open.len() < MOST_OPEN || self.open.contains_key(&key) {
            let last = self.open.entry(key).or_insert((start, None));
            // Records come chunk by chunk, not in the order of time.
            if last.0 <= start {
                *last = (start, opens.then_some(*record));
            }
        }
    }
}

/// Returns the object that a record opens (`true`) or closes.
fn change(record: &Record) -> Option<(Key, bool)> {
    match record.event {
        Event::Call(call) if call.result == 0 && call.head.flags & flags::CAPTURED == 0 => {
            match call.class()? {
                CallClass::Allocate => Some((place(&call), true)),
                CallClass::Free => Some((place(&call), false)),
                _ => None,
            }
        }
        Event::RangeChange(change) if change.head.flags & flags::PROCESS_WIDE != 0 => {
            let begins = change.head.flags & flags::RANGE_BEGUN != 0;
            let ends = change.head.flags & flags::RANGE_ENDED != 0;
            (begins != ends).then_some((Key::Range(change.instance), begins))
        }
        _ => None,
    }
}

fn place(call: &Call) -> Key {
    if call.address != 0 { Key::Address(call.address) } else { Key::Handle(call.object) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{RangeChange, Slots as _, Timing};

    fn call(class: CallClass, start: u64, address: u64) -> Record {
        let head = Call::head(0, start, start + 1);
        let event = Event::Call(Call { head, class: class as u8, address, ..Call::default() });
        Record { tid: 1, range: 0, event }
    }

    fn starts(history: &History) -> Vec<u64> {
        history.records().iter().map(Record::start).collect()
    }

    #[test]
    fn what_is_allocated_and_not_freed_is_kept_in_whatever_order_it_comes() {
        let mut history = History::default();
        for (class, start, address) in [
            (CallClass::Free, 40, 0x10),
            (CallClass::Allocate, 30, 0x10),
            (CallClass::Allocate, 10, 0x20),
            (CallClass::Free, 5, 0x20),
            (CallClass::Allocate, 70, 0x30),
        ] {
            history.note(call(class, start, address));
        }
        history.settle(60, true);
        assert_eq!(starts(&history), [10], "what is recent is given as it was recorded");
        assert_eq!(history.open.len(), 1);
        history.settle(100, true);
        assert_eq!(starts(&history), [10, 70]);
    }

    #[test]
    fn what_is_freed_before_its_allocation_is_read_is_not_live() {
        let mut history = History::default();
        history.note(call(CallClass::Free, 40, 0x10));
        history.settle(50, false);
        history.note(call(CallClass::Allocate, 30, 0x10));
        history.settle(50, true);
        assert_eq!(starts(&history), [0; 0]);
    }

    #[test]
    fn the_newest_timings_of_each_kernel_are_kept() {
        let mut history = History::default();
        for start in 0..100 {
            let timing = Timing {
                head: Timing::head(0, start, start),
                config: (start % 2) as u32,
                ..Timing::default()
            };
            history.note(Record { tid: 1, range: 0, event: Event::Timing(timing) });
        }
        history.settle(90, true);
        assert_eq!(starts(&history), (58..90).collect::<Vec<_>>());
    }

    #[test]
    fn ranges_of_the_process_that_are_open_are_kept() {
        let mut history = History::default();
        let range = |start, instance, begun| {
            let flag = if begun { flags::RANGE_BEGUN } else { flags::RANGE_ENDED };
            let head = RangeChange::head(flags::PROCESS_WIDE | flag, start, start);
            let event = Event::RangeChange(RangeChange { head, instance, ..RangeChange::default() });
            Record { tid: 1, range: 0, event }
        };
        [range(1, 7, true), range(2, 8, true), range(3, 7, false)]
            .into_iter()
            .for_each(|one| history.note(one));
        history.settle(50, true);
        assert_eq!(starts(&history), [2]);
    }

    #[test]
    fn what_is_noted_is_bounded() {
        let mut history = History::default();
        for start in 0..2 * MOST_NOTED as u64 {
            history.note(call(CallClass::Allocate, start / 1000, start));
            assert!(history.noted.len() <= MOST_NOTED);
        }
        history.settle(u64::MAX, true);
        assert_eq!(history.open.len(), MOST_OPEN);
    }
}
