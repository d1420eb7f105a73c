//! The host's driver calls, thread by thread, and the attribution of idle time to them.
//!
//! Idle time ends when a thread launches work, and it is attributed to what that thread did: first
//! to its calls. If it was in no call, calls of another thread count that it may have waited for
//! (the main thread loads a module, then its worker launches), except calls that only wait (a
//! watchdog waits for events all the time). The rest is the program's own code, unless no call at
//! all was recorded: then the cause is not known.

use std::collections::VecDeque;

use super::IdleCause;

/// A call of one thread, nanoseconds after the process's start.
#[derive(Clone, Copy, Debug)]
struct Call {
    start: u64,
    end: u64,
    cause: IdleCause,
}

/// A stretch of time, nanoseconds after the process's start.
type Stretch = (u64, u64);

/// Calls that may lie in idle time that is still to be explained.
#[derive(Clone, Default)]
pub(crate) struct Host {
    /// In the order of the threads' identifiers.
    threads: Vec<ThreadCalls>,
    /// The thread that called last, among them.
    last: usize,
    calls: usize,
    /// The idle time that is still to be charged while one stretch is explained, and the part of it
    /// that a thread leaves.
    rest: Vec<Stretch>,
    left: Vec<Stretch>,
    charged: Vec<(u64, u64, IdleCause)>,
}

/// Calls of one thread, which follow each other.
#[derive(Clone, Default)]
struct ThreadCalls {
    thread: u32,
    calls: VecDeque<Call>,
    /// Calls before it end before what was explained last: idle time is explained in order, nearly.
    passed: usize,
}

impl ThreadCalls {
    /// The first call that ends after a moment.
    fn first_after(&mut self, moment: u64) -> usize {
        let ends_by = |call: &Call| call.end <= moment;
        if self.passed.checked_sub(1).and_then(|last| self.calls.get(last)).is_some_and(|call| !ends_by(call))
        {
            self.passed = self.calls.partition_point(ends_by);
        }
        while self.calls.get(self.passed).is_some_and(ends_by) {
            self.passed += 1;
        }
        self.passed
    }
}

impl Host {
    /// A call. Calls come in the order of their starts.
    pub fn called(&mut self, thread: u32, start: u64, end: u64, cause: IdleCause) {
        if self.threads.get(self.last).is_none_or(|last| last.thread != thread) {
            self.last = match self.place(thread) {
                Ok(known) => known,
                Err(new) => {
                    self.threads.insert(new, ThreadCalls { thread, ..ThreadCalls::default() });
                    new
                }
            };
        }
        self.threads[self.last].calls.push_back(Call { start, end, cause });
        self.calls += 1;
    }

    fn place(&self, thread: u32) -> Result<usize, usize> {
        self.threads.binary_search_by_key(&thread, |known| known.thread)
    }

    /// Calls held.
    pub fn len(&self) -> usize {
        self.calls
    }

    /// Forgets calls that ended by then.
    pub fn forget(&mut self, until: u64) {
        for of in &mut self.threads {
            while of.calls.front().is_some_and(|call| call.end <= until) {
                of.calls.pop_front();
                of.passed = of.passed.saturating_sub(1);
                self.calls -= 1;
            }
        }
    }

    /// Charges the idle time from `from` to `to`, which ended because `thread` launched something.
    pub fn explain(&mut self, from: u64, to: u64, thread: u32, mut charge: impl FnMut(u64, u64, IdleCause)) {
        self.rest.clear();
        self.rest.push((from, to));
        self.charged.clear();
        let own = self.place(thread).ok();
        let others = (0..self.threads.len()).filter(|&other| Some(other) != own);
        for place in own.into_iter().chain(others) {
            if self.rest.is_empty() {
                break;
            }
            self.left.clear();
            paint(
                &self.rest,
                &mut self.threads[place],
                Some(place) == own,
                &mut self.charged,
                &mut self.left,
            );
            std::mem::swap(&mut self.rest, &mut self.left);
        }
        let rest = if self.threads.is_empty() { IdleCause::Unrecorded } else { IdleCause::HostCode };
        self.charged.extend(self.rest.iter().map(|&(from, to)| (from, to, rest)));
        self.charged.sort_unstable_by_key(|&(from, ..)| from);
        self.charged.iter().for_each(|&(from, to, cause)| charge(from, to, cause));
    }
}

/// Charges the part of `rest` that the calls cover, and adds the remainder to `left`.
fn paint(
    rest: &[Stretch],
    of: &mut ThreadCalls,
    own: bool,
    charged: &mut Vec<(u64, u64, IdleCause)>,
    left: &mut Vec<Stretch>,
) {
    for &(from, to) in rest {
        let mut at = from;
        let first = of.first_after(from);
        for call in of.calls.range(first..).take_while(|call| call.start < to) {
            let waits = matches!(call.cause, IdleCause::Synchronising | IdleCause::OtherCalls);
            let (start, end) = (call.start.max(at), call.end.min(to));
            if start >= end || waits && !own {
                continue;
            }
            if at < start {
                left.push((at, start));
            }
            charged.push((start, end, call.cause));
            at = end;
        }
        if at < to {
            left.push((at, to));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(host: &mut Host, from: u64, to: u64, thread: u32) -> Vec<(u64, u64, IdleCause)> {
        let mut all = Vec::new();
        host.explain(from, to, thread, |from, to, cause| all.push((from, to, cause)));
        all
    }

    #[test]
    fn own_calls_come_first_then_those_of_others_then_the_programs_code() {
        use IdleCause::{Allocating, HostCode, Launching, Loading};
        let mut host = Host::default();
        host.called(2, 0, 50, Loading);
        host.called(1, 10, 20, Allocating);
        host.called(1, 60, 70, Launching);
        let expected = [
            (5, 10, Loading),
            (10, 20, Allocating),
            (20, 50, Loading),
            (50, 60, HostCode),
            (60, 70, Launching),
        ];
        assert_eq!(explained(&mut host, 5, 70, 1), expected);
        host.forget(20);
        assert_eq!(host.len(), 2);
        assert_eq!(explained(&mut host, 20, 30, 1), [(20, 30, Loading)]);
    }

    #[test]
    fn without_any_call_the_cause_is_not_known() {
        let mut host = Host::default();
        assert_eq!(explained(&mut host, 5, 70, 1), [(5, 70, IdleCause::Unrecorded)]);
        host.called(2, 100, 110, IdleCause::Launching);
        assert_eq!(explained(&mut host, 70, 90, 1), [(70, 90, IdleCause::HostCode)]);
    }

    #[test]
    fn a_thread_that_only_waits_explains_nothing_of_anothers_time() {
        let mut host = Host::default();
        host.called(7, 0, 1000, IdleCause::Synchronising);
        assert_eq!(explained(&mut host, 0, 100, 1), [(0, 100, IdleCause::HostCode)]);
        assert_eq!(explained(&mut host, 0, 100, 7), [(0, 100, IdleCause::Synchronising)]);
    }

    #[test]
    fn calls_cover_idle_time_as_far_as_they_last() {
        use IdleCause::{Allocating, HostCode, Launching, Loading, Synchronising};
        let mut host = Host::default();
        host.called(1, 10, 30, Launching);
        // It took no time.
        host.called(1, 80, 80, Launching);
        host.called(1, 90, 140, Synchronising);
        host.called(2, 0, 20, Loading);
        // It begins while the call before it lasts.
        host.called(2, 15, 60, Allocating);
        host.called(3, 50, 70, Loading);
        let expected = [
            (5, 10, Loading),
            (10, 30, Launching),
            (30, 60, Allocating),
            (60, 70, Loading),
            (70, 90, HostCode),
            (90, 100, Synchronising),
        ];
        assert_eq!(explained(&mut host, 5, 100, 1), expected);
        // What ends where a stretch begins, or begins where it ends, is not in it.
        assert_eq!(explained(&mut host, 30, 50, 3), [(30, 50, Allocating)]);
        assert_eq!(explained(&mut host, 70, 90, 1), [(70, 90, HostCode)]);
        assert_eq!(explained(&mut host, 140, 150, 1), [(140, 150, HostCode)]);
        // Idle time of before may be explained later.
        assert_eq!(explained(&mut host, 0, 12, 1), [(0, 10, Loading), (10, 12, Launching)]);
        assert_eq!(explained(&mut host, 95, 100, 1), [(95, 100, Synchronising)]);
        // Of two calls of a thread that overlap, the first one counts.
        assert_eq!(explained(&mut host, 0, 25, 2), [(0, 20, Loading), (20, 25, Allocating)]);
        // A thread that made no call launches.
        assert_eq!(explained(&mut host, 25, 35, 9)[0], (25, 30, Launching));
        assert_eq!(host.len(), 6);
        host.forget(59);
        assert_eq!(host.len(), 4, "those that ended later stay");
        host.forget(60);
        assert_eq!(host.len(), 3);
        assert_eq!(explained(&mut host, 50, 70, 1), [(50, 70, Loading)]);
        assert_eq!(explained(&mut host, 95, 100, 1), [(95, 100, Synchronising)]);
    }
}
