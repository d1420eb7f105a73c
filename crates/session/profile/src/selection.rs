//! Selections: a part of a session (processes, a window of time).

use std::collections::BTreeSet;
use std::ops::Range;

use apex_trace::{Process, Session};

/// A part of a session.
///
/// A *window* contains the launches, calls, copies, allocations and steps that begin in it.
/// Accounts cover the part of the window between a device's first and last work, and add up to it.
/// Steps, and durations of launches that were not timed, are derived from the whole run. The
/// recorder's cost, NVTX ranges and the CPU device's counts are those of the whole run. If the
/// session has only recent records ([`apex_trace::Watcher`]), these are the run.
///
/// A profile without some *processes* is the profile of the other processes, which still wait for
/// the missing ones in collectives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Nanoseconds since the session's start ([`origin_ns`]); `None` for the whole run.
    pub window: Option<Range<u64>>,
    /// Process identifiers; `None` for all.
    pub processes: Option<BTreeSet<u32>>,
}

impl Selection {
    pub(crate) fn has(&self, process: u32) -> bool {
        self.processes.as_ref().is_none_or(|processes| processes.contains(&process))
    }

    /// The window in nanoseconds after the start of a process.
    pub(crate) fn window_of(&self, process: &Process, origin_ns: u64) -> Range<u64> {
        let late = process.clock.monotonic_ns(0).saturating_sub(origin_ns);
        let end = |end: u64| if end == u64::MAX { end } else { end.saturating_sub(late) };
        self.window.as_ref().map_or(0..u64::MAX, |window| end(window.start)..end(window.end))
    }
}

/// Start of the session on the machine's monotonic clock: the time when its first process began to
/// record.
pub fn origin_ns(session: &Session) -> u64 {
    // Ticks of 0 are before every start, so they give the start itself.
    session.processes.iter().map(|process| process.clock.monotonic_ns(0)).min().unwrap_or(0)
}

/// The processes of a session that launched kernels, ordered by identifier. Launchers start the
/// ranks of a job in order, so identifiers follow the ranks unless they wrap around; the order of
/// first GPU use is random.
pub fn ranks(session: &Session) -> Vec<u32> {
    let launched = session.processes.iter().filter(|process| process.definitions.configs().next().is_some());
    let ranks: BTreeSet<u32> = launched.map(|process| process.pid).collect();
    ranks.into_iter().collect()
}
