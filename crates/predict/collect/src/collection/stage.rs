//! The two stages of counting. The profiler runs a launch once for the usual counters, and many
//! times for its throughput. Each stage has its own runs and its own tables, so that it can be
//! measured without the other, and later.

use crate::ncu;
use apex_dataset::Counters;

/// The purpose of a run of the profiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The counters of one pass.
    Counters,
    /// Throughput, in many passes.
    Throughput,
}

impl Stage {
    pub(super) const ALL: [Stage; 2] = [Stage::Counters, Stage::Throughput];

    /// The name of its tables in `partial/`, and of what a launch lacks.
    pub(super) fn table(self) -> &'static str {
        match self {
            Stage::Counters => "counters",
            Stage::Throughput => "throughput",
        }
    }

    /// The metrics that the profiler measures.
    pub(super) fn metrics(self) -> &'static [&'static str] {
        match self {
            Stage::Counters => &ncu::METRICS,
            Stage::Throughput => &ncu::THROUGHPUT,
        }
    }

    /// Returns the maximum number of rows for a run of the profiler: small, so that a run that is
    /// killed loses little, and large enough that its start takes a small part of its time.
    pub(super) fn at_once(self) -> usize {
        match self {
            Stage::Counters => 256,
            Stage::Throughput => 64,
        }
    }

    /// A missing value because of which a launch is not counted.
    pub(super) fn lacks(self, counters: &Counters) -> Option<&'static str> {
        match self {
            Stage::Counters if counters.achieved_occupancy_percent.is_none() => Some("achieved occupancy"),
            Stage::Throughput if counters.sm_throughput_percent.is_none() => Some("SM throughput"),
            Stage::Throughput if counters.memory_throughput_percent.is_none() => Some("memory throughput"),
            _ => None,
        }
    }
}
