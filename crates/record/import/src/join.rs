//! Joins work to the calls that queued it.
//!
//! A correlation identifier is unique within a process. Work without a call is kept: a trace that
//! begins in the middle of a run has work whose call it has not, as has one that lost events.

use crate::bounds::end;
use crate::model::{Call, Process, Work};

/// Calls in the order of threads and time, without those inside of others, and their work.
#[derive(Debug, Default)]
pub struct Joined {
    /// The calls. A call that a recorded call made itself is not among them.
    pub calls: Vec<Call>,
    /// The work, by call, then by time; that without a call comes last.
    pub work: Vec<Work>,
    /// The index of the call of each piece of work; [`NO_CALL`] without one.
    pub owners: Vec<u32>,
    /// Work that began before its call, and was moved by nothing: the call is taken to have begun
    /// with it.
    pub early: u64,
}

/// In place of the index of a call.
pub const NO_CALL: u32 = u32::MAX;

impl Joined {
    /// Joins what a process has.
    pub fn of(process: &mut Process) -> Self {
        let mut all = std::mem::take(&mut process.calls);
        all.sort_by_key(|call| (call.thread, call.start, std::cmp::Reverse(call.ns)));
        let (mut calls, by_correlation) = outermost(all);
        let work = std::mem::take(&mut process.work);
        let mut owned: Vec<(u32, Work)> =
            work.into_iter().map(|work| (owner(&by_correlation, work.correlation), work)).collect();
        owned.sort_by_key(|(owner, work)| (*owner, work.start));
        let mut early = 0;
        for (owner, work) in owned.iter().filter(|(owner, _)| *owner != NO_CALL) {
            let call = &mut calls[*owner as usize];
            if work.start < call.start {
                early += 1;
                call.ns = end(call.start, call.ns).saturating_sub(work.start).max(0) as u64;
                call.start = work.start;
            }
        }
        let (owners, work) = owned.into_iter().unzip();
        Self { calls, work, owners, early }
    }

    /// The range of a call's work.
    pub fn work_of(&self, call: u32) -> std::ops::Range<usize> {
        let begin = self.owners.partition_point(|&owner| owner < call);
        begin..begin + self.owners[begin..].partition_point(|&owner| owner == call)
    }
}

/// The calls that no other call of their thread made, and the outermost call for each correlation.
fn outermost(all: Vec<Call>) -> (Vec<Call>, Vec<(u64, u32)>) {
    let mut calls: Vec<Call> = Vec::with_capacity(all.len());
    let mut by_correlation = Vec::with_capacity(all.len());
    for call in all {
        let inside = calls.last().is_some_and(|outer: &Call| {
            outer.thread == call.thread && call.start < end(outer.start, outer.ns)
        });
        if !inside {
            calls.push(call);
        }
        if call.correlation != 0 {
            by_correlation.push((call.correlation, calls.len() as u32 - 1));
        }
    }
    by_correlation.sort_unstable();
    (calls, by_correlation)
}

/// The call of a correlation: the first of several.
fn owner(by_correlation: &[(u64, u32)], correlation: u64) -> u32 {
    if correlation == 0 {
        return NO_CALL;
    }
    let at = by_correlation.partition_point(|&(other, _)| other < correlation);
    by_correlation.get(at).filter(|(other, _)| *other == correlation).map_or(NO_CALL, |&(_, call)| call)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Kind;

    fn call(start: i64, ns: u64, correlation: u64) -> Call {
        Call { start, ns, correlation, ..Call::default() }
    }

    fn work(start: i64, correlation: u64) -> Work {
        Work { start, ns: 5, correlation, stream: 0, kind: Kind::Kernel(0) }
    }

    #[test]
    fn work_belongs_to_the_outermost_call_and_work_without_one_stays() {
        let mut process = Process {
            calls: vec![call(0, 10, 1), call(2, 5, 2), call(20, 10, 3)],
            work: vec![work(15, 2), work(40, 9), work(18, 3), work(50, 0)],
            ..Process::default()
        };
        let joined = Joined::of(&mut process);
        assert_eq!(joined.calls.iter().map(|call| call.start).collect::<Vec<_>>(), [0, 18]);
        assert_eq!(joined.owners, [0, 1, NO_CALL, NO_CALL]);
        assert_eq!((joined.work_of(0), joined.work_of(1), joined.early), (0..1, 1..2, 1));
        // A call that begins earlier ends when it did.
        assert_eq!(joined.calls[1].ns, 12);
    }
}
