//! What the host did: its driver calls, thread by thread, and which of them idle time is charged
//! to.
//!
//! Idle time ends because a thread launched something. What that thread did is why the device was
//! idle: its calls first. Where it was in no call, another thread's calls count that may have kept
//! it waiting (the main thread loads a module, then its worker launches); calls that only wait do
//! not (a watchdog waits for events all the time). The rest is the program's own code.

use std::collections::{BTreeMap, VecDeque};

use super::IdleCause;

/// A call of one thread, nanoseconds after the process's start.
#[derive(Clone, Copy, Debug)]
struct Call {
    start: u64,
    end: u64,
    cause: IdleCause,
}

/// Calls that may lie in idle time that is still to be explained.
#[derive(Clone, Default)]
pub(crate) struct Host {
    /// By thread; those of a thread follow each other.
    threads: BTreeMap<u32, VecDeque<Call>>,
    calls: usize,
}

impl Host {
    /// A call. Calls come in the order of their starts.
    pub fn called(&mut self, thread: u32, start: u64, end: u64, cause: IdleCause) {
        self.threads.entry(thread).or_default().push_back(Call { start, end, cause });
        self.calls += 1;
    }

    /// Calls held.
    pub fn len(&self) -> usize {
        self.calls
    }

    /// Forgets calls that ended by then.
    pub fn forget(&mut self, until: u64) {
        for calls in self.threads.values_mut() {
            while calls.front().is_some_and(|call| call.end <= until) {
                calls.pop_front();
                self.calls -= 1;
            }
        }
    }

    /// Charges the idle time from `from` to `to`, which ended because `thread` launched something.
    pub fn explain(&self, from: u64, to: u64, thread: u32, mut charge: impl FnMut(u64, u64, IdleCause)) {
        let mut rest = vec![(from, to)];
        let mut charged = Vec::new();
        let own = self.threads.get(&thread).map(|calls| (calls, true));
        let others = self.threads.iter().filter(|(other, _)| **other != thread);
        for (calls, own) in own.into_iter().chain(others.map(|(_, calls)| (calls, false))) {
            if !rest.is_empty() {
                rest = paint(&rest, calls, own, &mut charged);
            }
        }
        charged.extend(rest.into_iter().map(|(from, to)| (from, to, IdleCause::HostCode)));
        charged.sort_unstable_by_key(|&(from, ..)| from);
        charged.into_iter().for_each(|(from, to, cause)| charge(from, to, cause));
    }
}

/// Charges what of `rest` the calls cover. Returns what they leave.
fn paint(
    rest: &[(u64, u64)],
    calls: &VecDeque<Call>,
    own: bool,
    charged: &mut Vec<(u64, u64, IdleCause)>,
) -> Vec<(u64, u64)> {
    let mut left = Vec::new();
    for &(from, to) in rest {
        let mut at = from;
        let first = calls.partition_point(|call| call.end <= from);
        for call in calls.range(first..).take_while(|call| call.start < to) {
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
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(host: &Host, from: u64, to: u64, thread: u32) -> Vec<(u64, u64, IdleCause)> {
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
        assert_eq!(explained(&host, 5, 70, 1), expected);
        host.forget(20);
        assert_eq!(host.len(), 2);
        assert_eq!(explained(&host, 20, 30, 1), [(20, 30, Loading)]);
    }

    #[test]
    fn a_thread_that_only_waits_explains_nothing_of_anothers_time() {
        let mut host = Host::default();
        host.called(7, 0, 1000, IdleCause::Synchronising);
        assert_eq!(explained(&host, 0, 100, 1), [(0, 100, IdleCause::HostCode)]);
        assert_eq!(explained(&host, 0, 100, 7), [(0, 100, IdleCause::Synchronising)]);
    }
}
