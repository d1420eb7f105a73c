//! Sums over a process's records since its start, computed while the records are read once.

use crate::layout::{Call, CallClass, Launch, MemoryKind, flags};
use crate::reader::records::Event;
use std::collections::BTreeMap;

/// Identifiers above this are counted in sums alone: recorders number from 1.
const MOST_IDENTIFIERS: u32 = 1 << 20;

/// Counts of a process since its start: of all records that were read, those included that were
/// overwritten later. They never decrease as long as a [`crate::Watcher`] reads the same file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Kernel launches that succeeded; those that were captured into a graph are not among them.
    pub launches: u64,
    /// Graph launches that succeeded.
    pub graph_launches: u64,
    /// Launches of kernels and graphs that failed.
    pub failed: u64,
    /// Ticks that the calls took that launched kernels and graphs successfully.
    pub launch_ticks: u64,
    /// Other calls that succeeded and were executed, by sort.
    pub calls: BTreeMap<CallSort, CallTotals>,
    /// Committed bytes of records that were not read yet: the next look goes on with them. 0 if the
    /// counts are complete.
    pub unread_bytes: u64,
    by_config: Vec<u64>,
}

/// A sort of calls: the class, and the memory that bytes come from and go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallSort {
    /// The class.
    pub class: CallClass,
    /// The source of a copy.
    pub source: MemoryKind,
    /// The memory that is allocated, freed, set or copied to.
    pub memory: MemoryKind,
    /// Whether the source of a copy is another device's.
    pub is_peer: bool,
}

/// Calls of one sort.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallTotals {
    /// The number of calls.
    pub count: u64,
    /// Bytes allocated, copied or set.
    pub bytes: u64,
    /// Ticks that they took.
    pub ticks: u64,
}

impl Totals {
    /// Launches of a configuration ([`crate::definition::Config`]) that succeeded.
    pub fn launches_of(&self, config: u32) -> u64 {
        self.by_config.get(config as usize).copied().unwrap_or(0)
    }

    /// Configurations that were launched, and how often.
    pub(crate) fn configs(&self) -> impl Iterator<Item = (u32, u64)> {
        let launched = (0..).zip(&self.by_config).skip(1);
        launched.map(|(config, &launches)| (config, launches)).filter(|&(_, launches)| launches > 0)
    }

    /// Calls that are counted here. Those that were captured are not, and of those that failed only
    /// launches.
    pub fn counted_calls(&self) -> u64 {
        let others: u64 = self.calls.values().map(|calls| calls.count).sum();
        self.launches + self.graph_launches + self.failed + others
    }

    pub(crate) fn add(&mut self, event: &Event) {
        match event {
            Event::Launch(launch) => self.launch(launch),
            Event::GraphLaunch(launch) if launch.result != 0 => self.failed += 1,
            Event::GraphLaunch(launch) => {
                self.graph_launches += 1;
                self.launch_ticks = self.launch_ticks.saturating_add(launch.head.duration_ticks());
            }
            Event::Call(call) => self.call(call),
            _ => {}
        }
    }

    fn launch(&mut self, launch: &Launch) {
        if launch.result != 0 {
            self.failed += 1;
        } else if launch.head.flags & flags::CAPTURED == 0 {
            self.launches += 1;
            self.launch_ticks = self.launch_ticks.saturating_add(launch.head.duration_ticks());
            count(&mut self.by_config, launch.config);
        }
    }

    fn call(&mut self, call: &Call) {
        let Some(class) = call.class() else { return };
        if call.result != 0 || call.head.flags & flags::CAPTURED != 0 {
            return;
        }
        let (source, memory, is_peer) = (call.source_memory(), call.memory(), call.is_peer());
        let sort = CallSort { class, source, memory, is_peer };
        let totals = self.calls.entry(sort).or_default();
        totals.count += 1;
        totals.bytes = totals.bytes.saturating_add(call.bytes);
        totals.ticks = totals.ticks.saturating_add(call.head.duration_ticks());
    }
}

fn count(counts: &mut Vec<u64>, id: u32) {
    if id >= MOST_IDENTIFIERS {
        return;
    }
    let at = id as usize;
    if counts.len() <= at {
        counts.resize(at + 1, 0);
    }
    counts[at] += 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_that_no_recorder_gives_cost_no_memory() {
        let mut totals = Totals::default();
        for config in [3, u32::MAX, 3, 0] {
            totals.add(&Event::Launch(Launch { config, ..Launch::default() }));
        }
        assert_eq!((totals.launches, totals.launches_of(3), totals.launches_of(u32::MAX)), (4, 2, 0));
        assert_eq!(totals.by_config.len(), 4);
    }
}
