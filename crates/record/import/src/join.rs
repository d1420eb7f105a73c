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
    /// Calls inside of other calls, as those of the driver that the runtime makes.
    pub inside: u64,
    /// Calls that overlap the one before them on their thread, and are taken to begin at its end.
    pub overlapping: u64,
    /// Work whose correlation several calls have.
    pub ambiguous: u64,
}

/// In place of the index of a call.
pub const NO_CALL: u32 = u32::MAX;

impl Joined {
    /// Joins what a process has.
    pub fn of(process: &mut Process) -> Self {
        let mut all = std::mem::take(&mut process.calls);
        all.sort_by_key(|call| (call.thread, call.start, std::cmp::Reverse(call.ns)));
        let mut outermost = Outermost::of(all);
        outermost.by_correlation.sort_unstable();
        let work = std::mem::take(&mut process.work);
        let mut ambiguous = 0;
        let mut owned: Vec<(u32, Work)> = work
            .into_iter()
            .map(|work| (outermost.owner(work.correlation, work.start, &mut ambiguous), work))
            .collect();
        let Outermost { mut calls, inside, overlapping, .. } = outermost;
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
        Self { calls, work, owners, early, inside, overlapping, ambiguous }
    }

    /// The range of a call's work.
    pub fn work_of(&self, call: u32) -> std::ops::Range<usize> {
        let begin = self.owners.partition_point(|&owner| owner < call);
        begin..begin + self.owners[begin..].partition_point(|&owner| owner == call)
    }
}

/// The calls that no other call of their thread made.
#[derive(Default)]
struct Outermost {
    calls: Vec<Call>,
    /// The outermost call for each correlation.
    by_correlation: Vec<(u64, u32)>,
    inside: u64,
    overlapping: u64,
}

impl Outermost {
    /// Of calls in the order of threads and time.
    fn of(all: Vec<Call>) -> Self {
        let mut of = Self { calls: Vec::with_capacity(all.len()), ..Self::default() };
        for call in all {
            let correlation = call.correlation;
            of.add(call);
            if correlation != 0 {
                of.by_correlation.push((correlation, of.calls.len() as u32 - 1));
            }
        }
        of
    }

    fn add(&mut self, mut call: Call) {
        let before = self.calls.last().filter(|before| before.thread == call.thread);
        let free = before.map_or(i64::MIN, |before| end(before.start, before.ns));
        let ends = end(call.start, call.ns);
        if call.start < free && ends <= free {
            self.inside += 1;
            return;
        }
        if call.start < free {
            self.overlapping += 1;
            call.ns = ends.abs_diff(free);
            call.start = free;
        }
        self.calls.push(call);
    }

    /// The call of a correlation: of several the last one that began before the work, else the
    /// first.
    fn owner(&self, correlation: u64, start: i64, ambiguous: &mut u64) -> u32 {
        if correlation == 0 {
            return NO_CALL;
        }
        let at = self.by_correlation.partition_point(|&(other, _)| other < correlation);
        let rest = &self.by_correlation[at..];
        let of = rest.iter().take_while(|(other, _)| *other == correlation).map(|&(_, call)| call);
        let begun = |call: u32| self.calls[call as usize].start;
        let first = of.clone().next();
        *ambiguous += u64::from(of.clone().any(|call| Some(call) != first));
        let last = of.filter(|&call| begun(call) <= start).max_by_key(|&call| begun(call));
        last.or(first).unwrap_or(NO_CALL)
    }
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
        assert_eq!((joined.inside, joined.overlapping, joined.ambiguous), (1, 0, 0));
    }

    #[test]
    fn calls_that_overlap_are_kept_one_behind_the_other_and_counted() {
        let mut process = Process {
            calls: vec![call(0, 10, 1), call(6, 10, 2)],
            work: vec![work(15, 2)],
            ..Process::default()
        };
        let joined = Joined::of(&mut process);
        assert_eq!(
            joined.calls.iter().map(|call| (call.start, call.ns)).collect::<Vec<_>>(),
            [(0, 10), (10, 6)]
        );
        assert_eq!((joined.overlapping, joined.owners.as_slice()), (1, &[1][..]));
    }

    #[test]
    fn work_with_a_correlation_of_several_calls_belongs_to_the_last_one_before_it() {
        let of = |thread: u32, call: Call| Call { thread, ..call };
        let mut process = Process {
            calls: vec![of(0, call(0, 10, 1)), of(1, call(50, 10, 1))],
            work: vec![work(15, 1), work(70, 1)],
            ..Process::default()
        };
        let joined = Joined::of(&mut process);
        assert_eq!((joined.owners.as_slice(), joined.ambiguous), (&[0, 1][..], 2));
    }
}
