//! Selections: a part of a session (processes, a window of time).

use apex_ordered::Gather;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use apex_conventions::launchers::{self, Rank};
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

/// The ranks of a session: numbers of the processes that launched kernels.
///
/// Imported traces name their ranks. Otherwise a launcher's variables tell the rank
/// ([`apex_conventions::launchers`]) where each of these
/// processes has one and no two have the same. Otherwise the numbers follow the process
/// identifiers: launchers start the ranks of a job in order, so identifiers follow the ranks unless
/// they wrap around; the order of first GPU use is random.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranks {
    /// Process identifiers by rank.
    processes: BTreeMap<usize, u32>,
}

impl Ranks {
    /// The ranks of a session.
    pub fn of(session: &Session) -> Ranks {
        let launched =
            session.processes.iter().filter(|process| process.definitions.configs().next().is_some());
        let launched: BTreeMap<u32, &Process> = launched.map(|process| (process.pid, process)).gathered();
        let named = named(session, &launched);
        Ranks {
            processes: named
                .or_else(|| told(&launched))
                .unwrap_or_else(|| launched.keys().copied().enumerate().gathered()),
        }
    }

    /// Ranks 0, 1, … of processes.
    pub fn in_order(processes: impl IntoIterator<Item = u32>) -> Ranks {
        Ranks { processes: processes.into_iter().enumerate().gathered() }
    }

    /// The rank of a process.
    pub fn of_process(&self, pid: u32) -> Option<usize> {
        self.processes.iter().find(|&(_, &process)| process == pid).map(|(&rank, _)| rank)
    }

    /// The process of a rank.
    pub fn process(&self, rank: usize) -> Option<u32> {
        self.processes.get(&rank).copied()
    }

    /// Ranks and their processes.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (usize, u32)> + '_ {
        self.processes.iter().map(|(&rank, &process)| (rank, process))
    }
}

/// Process identifiers by the ranks that imported traces name; `None` where a process has none, or
/// two have the same.
fn named(session: &Session, launched: &BTreeMap<u32, &Process>) -> Option<BTreeMap<usize, u32>> {
    let ranks = &session.meta.as_ref()?.ranks;
    let rank = |pid: &u32| Some((*ranks.get(pid)? as usize, *pid));
    let named: Option<BTreeMap<usize, u32>> = launched.keys().map(rank).collect();
    named.filter(|named| !named.is_empty() && named.len() == launched.len())
}

/// What the launcher's variables of a process say of its rank; `None` where they say nothing, or
/// what cannot be right.
pub fn launched_rank(process: &Process) -> Option<Rank> {
    let variables = || process.definitions.variables();
    launchers::rank(|name| variables().find(|known| known.name == name).map(|known| known.value.clone()))
        .ok()
        .flatten()
}

/// Process identifiers by the ranks that launchers told; `None` where a process has no rank, or two
/// have the same. Of a rank that was restarted, the last process counts, and of a process and those
/// that it started (which have its variables), the first.
fn told(launched: &BTreeMap<u32, &Process>) -> Option<BTreeMap<usize, u32>> {
    let mut found: BTreeMap<usize, (u32, &Process)> = BTreeMap::new();
    for process in launched.values() {
        let rank = launched_rank(process)?;
        let Some(&(restarts, known)) = found.get(&(rank.rank as usize)) else {
            found.insert(rank.rank as usize, (rank.restarts, process));
            continue;
        };
        if rank.restarts > restarts || known.parent_pid == process.pid {
            found.insert(rank.rank as usize, (rank.restarts, process));
        } else if rank.restarts == restarts && process.parent_pid != known.pid {
            return None;
        }
    }
    Some(found.into_iter().map(|(rank, (_, process))| (rank, process.pid)).gathered())
}
