//! Samples of the host's call stacks, sorted by the idle account that the device had at their
//! moment.
//!
//! Idle time ends when a thread launches work. That thread is the one that the device waited for:
//! its samples say what it did meanwhile. Where it waited itself, for the interpreter's lock or for
//! data, a second stack says what the thread did that kept it waiting.
//!
//! Invariants: each sample counts in at most one account, because idle stretches do not overlap;
//! the sampled part of an account never exceeds the account. Memory is bounded by distinct stacks,
//! never by samples.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use apex_host_stacks::Span;

use super::{IdleCause, PhaseKind};
use crate::profile::{HostState, Other};

/// Moments of one span in one idle stretch at which the other stack is looked up.
const MOMENTS: u64 = 32;
/// A thread is not sampled where samples are further apart than this many periods …
const APART: u64 = 20;
/// … and than this: the sampler leaves rounds out to keep its budget.
const LEAST_APART_NS: u64 = 250_000_000;

/// An idle account of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct IdleAccount {
    pub phase: PhaseKind,
    pub cause: IdleCause,
    /// Whether the device was idle for at least [`super::Pauses::LEAST_NS`] without a break.
    pub is_pause: bool,
}

/// A stack of the samples' file, and the thread that it is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StackOf {
    pub thread: u32,
    pub stack: u32,
    pub is_settled: bool,
    /// The system call that it waited in, where its name tells something.
    pub call: Option<&'static str>,
}

/// The properties that samples of one sort share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sample {
    pub stack: StackOf,
    pub state: HostState,
    pub other: Option<(Other, StackOf)>,
}

/// The samples of one idle account.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sum {
    /// Time of the account.
    pub idle_ns: u64,
    /// Time of it in which the thread that the device waited for was sampled.
    pub sampled_ns: u64,
    /// Samples that were read.
    pub read: u64,
    /// Samples, each as often as it stands for others.
    pub samples: HashMap<Sample, u64>,
}

/// A span, and what its thread did.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SampledSpan {
    pub span: Span,
    pub state: HostState,
    /// The holder of the lock that it waited for.
    pub holder: Option<u32>,
    /// See [`StackOf::call`].
    pub call: Option<&'static str>,
}

/// Samples of one thread, which do not overlap.
#[derive(Debug, Default)]
pub(crate) struct SampledThread {
    tid: u32,
    spans: Vec<SampledSpan>,
    /// The intervals in which it was sampled.
    sampled: Vec<(u64, u64)>,
}

impl SampledThread {
    /// Spans in any order.
    pub fn new(tid: u32, mut spans: Vec<SampledSpan>, period_ns: u64) -> Self {
        spans.sort_by_key(|one| (one.span.first_ns, one.span.last_ns));
        let mut end = None;
        spans.retain(|SampledSpan { span, .. }| {
            // A span that goes on begins where its first part ends.
            let follows = end.is_none_or(|end| end <= span.first_ns) && span.first_ns <= span.last_ns;
            end = if follows { Some(span.last_ns) } else { end };
            follows
        });
        let apart = (APART.saturating_mul(period_ns)).max(LEAST_APART_NS);
        let mut sampled: Vec<(u64, u64)> = Vec::new();
        for SampledSpan { span, .. } in &spans {
            let (from, to) = (
                span.first_ns.saturating_sub(period_ns / 2),
                span.last_ns.saturating_add(period_ns.div_ceil(2)),
            );
            match sampled.last_mut() {
                // Of a file that was thinned, spans between are missing.
                Some((_, end)) if span.stands_for > 1 || from.saturating_sub(*end) <= apart => {
                    *end = to.max(*end);
                }
                _ => sampled.push((from, to)),
            }
        }
        Self { tid, spans, sampled }
    }

    /// Time of a stretch in which the thread was sampled.
    fn sampled_in(&self, from: u64, to: u64) -> u64 {
        let first = self.sampled.partition_point(|&(_, end)| end <= from);
        let inside = self.sampled[first..].iter().take_while(|&&(start, _)| start < to);
        inside.map(|&(start, end)| end.min(to) - start.max(from)).sum()
    }

    fn spans_in(&self, from: u64, to: u64) -> &[SampledSpan] {
        let first = self.spans.partition_point(|one| one.span.last_ns < from);
        let after = self.spans.partition_point(|one| one.span.first_ns < to);
        &self.spans[first..after.max(first)]
    }

    /// The span at a moment, or the one that is nearest and at most this far away.
    fn at(&self, moment: u64, away: u64) -> Option<&SampledSpan> {
        let next = self.spans.partition_point(|one| one.span.last_ns < moment);
        let near = self.spans[next.saturating_sub(1)..].iter().take(2);
        let distance =
            |span: &Span| span.first_ns.saturating_sub(moment).max(moment.saturating_sub(span.last_ns));
        near.min_by_key(|one| distance(&one.span)).filter(|one| distance(&one.span) <= away)
    }
}

fn stack_of(one: &SampledSpan) -> StackOf {
    let SampledSpan { span, call, .. } = *one;
    StackOf { thread: span.thread, stack: span.stack, is_settled: span.is_settled, call }
}

/// The sampled threads that concern one process. Times are on the clock of the samples.
#[derive(Debug, Default)]
pub(crate) struct SampledThreads {
    /// The process's threads, by identifier.
    pub own: BTreeMap<u32, SampledThread>,
    /// The threads of the processes that it started.
    pub workers: Vec<SampledThread>,
    /// The start of the process's time.
    pub origin_ns: u64,
    pub period_ns: u64,
}

impl SampledThreads {
    /// Returns the stack that keeps a thread waiting at a moment: that of the holder of the
    /// interpreter's lock; of a running thread of the process, one after the other in `turn` if
    /// there are several; else of a process that it started.
    fn reason_of_wait(
        &self,
        own: &SampledThread,
        (state, holder): (HostState, Option<u32>),
        moment: u64,
        turn: &mut usize,
    ) -> Option<(Other, StackOf)> {
        let at = |thread: &SampledThread| thread.at(moment, self.period_ns).copied();
        let others = || self.own.values().filter(|thread| thread.tid != own.tid);
        if state == HostState::WaitsForGil {
            let named = holder.and_then(|holder| at(self.own.get(&holder)?));
            let held = || others().filter_map(at).find(|one| one.span.holds_gil);
            let one = named.or_else(held)?;
            return (one.span.stack != 0).then(|| (Other::Holder, stack_of(&one)));
        }
        if !state.waits_for_others() {
            return None;
        }
        let mut running = |threads: &mut dyn Iterator<Item = &SampledThread>, who: Other| {
            let found: Vec<SampledSpan> = threads
                .filter_map(at)
                .filter(|one| one.state == HostState::Running && one.span.stack != 0)
                .collect();
            *turn = turn.wrapping_add(1);
            (!found.is_empty()).then(|| (who, stack_of(&found[*turn % found.len()])))
        };
        running(&mut others(), Other::Thread).or_else(|| running(&mut self.workers.iter(), Other::Worker))
    }
}

/// Sorts the samples of a process by the idle accounts of one device.
#[derive(Clone, Debug)]
pub(crate) struct IdleSampler {
    threads: Arc<SampledThreads>,
    sums: BTreeMap<IdleAccount, Sum>,
    turn: usize,
}

impl IdleSampler {
    pub fn new(threads: Arc<SampledThreads>) -> Self {
        Self { threads, sums: BTreeMap::new(), turn: 0 }
    }

    /// A stretch of an idle account, nanoseconds after the process's start, in which the device
    /// waits for `thread`.
    pub fn add(&mut self, (from, to): (u64, u64), thread: u32, account: IdleAccount) {
        let Self { threads, sums, turn } = self;
        let sum = sums.entry(account).or_default();
        sum.idle_ns += to - from;
        let Some(own) = threads.own.get(&thread) else { return };
        let [from, to] = [from, to].map(|moment| moment.saturating_add(threads.origin_ns));
        sum.sampled_ns += own.sampled_in(from, to);
        for one in own.spans_in(from, to) {
            let SampledSpan { span, state, holder, .. } = one;
            let inside = span.samples_in(from, to) as u64;
            if inside == 0 {
                continue;
            }
            sum.read = sum.read.saturating_add(inside);
            let (first, last) = (span.first_ns.max(from), span.last_ns.min(to));
            let moments = inside.min(if *state == HostState::Running { 1 } else { MOMENTS });
            for part in 0..moments {
                let moment = first + (last - first) / moments * part + (last - first) / (2 * moments);
                let other = threads.reason_of_wait(own, (*state, *holder), moment, turn);
                let sample = Sample { stack: stack_of(one), state: *state, other };
                let count = inside / moments + u64::from(part < inside % moments);
                let samples = sum.samples.entry(sample).or_default();
                *samples = samples.saturating_add(count.saturating_mul(span.stands_for.into()));
            }
        }
    }

    pub fn finish(self) -> BTreeMap<IdleAccount, Sum> {
        self.sums
    }
}

#[cfg(test)]
mod tests {
    use super::HostState::{Running, Sleeps, WaitsForData, WaitsForGil};
    use super::*;

    const MS: u64 = 1_000_000;

    /// A span of so many samples, with this stack.
    fn span(first_ns: u64, last_ns: u64, samples: u32, stack: u32) -> Span {
        Span {
            thread: 1,
            stack,
            first_ns,
            last_ns,
            samples,
            stands_for: 1,
            is_settled: true,
            ..Span::default()
        }
    }

    /// A span, what its thread did, and who held the lock that it waited for.
    type Seen = (Span, HostState, Option<u32>);

    fn sampled(seen: &[Seen]) -> Vec<SampledSpan> {
        let one = |&(span, state, holder): &Seen| SampledSpan { span, state, holder, call: None };
        seen.iter().map(one).collect()
    }

    fn thread(tid: u32, seen: &[Seen]) -> SampledThread {
        SampledThread::new(tid, sampled(seen), 10)
    }

    /// A thread that runs.
    fn running(tid: u32, spans: &[Span]) -> SampledThread {
        thread(tid, &spans.iter().map(|&span| (span, Running, None)).collect::<Vec<_>>())
    }

    fn of(own: impl IntoIterator<Item = SampledThread>, workers: Vec<SampledThread>) -> IdleSampler {
        let own = own.into_iter().map(|thread| (thread.tid, thread)).collect();
        IdleSampler::new(Arc::new(SampledThreads { own, workers, origin_ns: 1_000, period_ns: 10 }))
    }

    const ACCOUNT: IdleAccount =
        IdleAccount { phase: PhaseKind::Steady, cause: IdleCause::HostCode, is_pause: false };

    /// What is known of idle time in which the device waits for thread 7: the times, the samples
    /// that were read, and how often each other stack was seen beside each stack.
    type Known = (u64, u64, u64, BTreeMap<(u32, Option<u32>), u64>);

    fn known(mut sampler: IdleSampler, stretches: &[(u64, u64)]) -> Known {
        stretches.iter().for_each(|&stretch| sampler.add(stretch, 7, ACCOUNT));
        let sum = sampler.finish().remove(&ACCOUNT).expect("an account");
        let stacks = sum.samples.iter().map(|(sample, &count)| {
            ((sample.stack.stack, sample.other.map(|(_, other)| other.stack)), count)
        });
        (sum.idle_ns, sum.sampled_ns, sum.read, stacks.collect())
    }

    #[test]
    fn samples_of_a_thread_do_not_overlap() {
        let spans =
            [span(200, 300, 11, 3), span(100, 200, 11, 1), span(150, 250, 11, 2), span(400, 390, 1, 4)];
        let thread = running(7, &spans);
        let stacks = |spans: &[SampledSpan]| spans.iter().map(|one| one.span.stack).collect::<Vec<_>>();
        assert_eq!(stacks(&thread.spans), [1, 3]);
        // Half a period before the first sample and after the last one.
        assert_eq!(thread.sampled, [(95, 305)]);
        assert_eq!(thread.sampled_in(100, 150), 50);
        assert_eq!([thread.sampled_in(0, 95), thread.sampled_in(0, 96)], [0, 1]);
        assert_eq!([thread.sampled_in(304, 900), thread.sampled_in(305, 900)], [1, 0]);
        assert_eq!(stacks(thread.spans_in(0, 100)), Vec::<u32>::new());
        assert_eq!(stacks(thread.spans_in(0, 101)), [1]);
        assert_eq!(stacks(thread.spans_in(200, 201)), [1, 3]);
        assert_eq!(stacks(thread.spans_in(201, 999)), [3]);
        assert_eq!(stacks(thread.spans_in(301, 999)), Vec::<u32>::new());
        // Of an odd period, the larger half comes after.
        assert_eq!(
            SampledThread::new(7, sampled(&[(span(0, 20, 3, 1), Running, None)]), 11).sampled,
            [(0, 26)]
        );
        assert_eq!(
            SampledThread::new(7, sampled(&[(span(20, 40, 3, 1), Running, None)]), 11).sampled,
            [(15, 46)]
        );
    }

    #[test]
    fn a_thread_is_not_sampled_where_samples_are_far_apart() {
        let sampled = |second: Span, period_ns| {
            let spans = [span(100, 200, 2, 1), second].map(|span| (span, Running, None));
            SampledThread::new(7, sampled(&spans), period_ns).sampled.len()
        };
        let at = |first_ns| span(first_ns, first_ns, 1, 2);
        // From 205 to five nanoseconds before the next one.
        assert_eq!([sampled(at(210 + 250 * MS), 10), sampled(at(211 + 250 * MS), 10)], [1, 2]);
        assert_eq!(sampled(Span { stands_for: 2, ..at(900 * MS) }, 10), 1, "the file was thinned");
        // Twenty periods of 20 ms, between half a period after one and before the next.
        assert_eq!([sampled(at(200 + 420 * MS), 20 * MS), sampled(at(201 + 420 * MS), 20 * MS)], [1, 2]);
    }

    #[test]
    fn the_nearest_span_counts_if_it_is_near_enough() {
        let thread = running(7, &[span(100, 200, 2, 1), span(220, 300, 2, 2)]);
        let at = |moment, away| thread.at(moment, away).map(|one| one.span.stack);
        assert_eq!([at(100, 0), at(200, 0), at(250, 0)], [Some(1), Some(1), Some(2)]);
        assert_eq!([at(209, 9), at(210, 10), at(211, 9)], [Some(1), Some(1), Some(2)]);
        assert_eq!([at(209, 8), at(211, 8)], [None, None]);
        assert_eq!([at(90, 10), at(89, 10), at(310, 10), at(311, 10)], [Some(1), None, Some(2), None]);
        assert_eq!(running(7, &[]).at(5, 100).map(|one| one.span.stack), None);
    }

    #[test]
    fn samples_in_idle_time_are_counted_with_what_they_stand_for() {
        // Samples every 10 ns from 1,100 on, which is 100 ns after the process's start.
        let sampler = || of([running(7, &[span(1_100, 1_190, 10, 5)])], Vec::new());
        let seen = |count| [((5, None), count)].into();
        assert_eq!(known(sampler(), &[(100, 150)]), (50, 50, 5, seen(5)));
        assert_eq!(known(sampler(), &[(100, 150), (150, 400)]), (300, 95, 10, seen(10)));
        assert_eq!(known(sampler(), &[(0, 50)]), (50, 0, 0, BTreeMap::new()));
        let thinned = Span { stands_for: 3, ..span(1_100, 1_190, 10, 5) };
        assert_eq!(known(of([running(7, &[thinned])], Vec::new()), &[(100, 150)]).2, 5);
        assert_eq!(known(of([running(7, &[thinned])], Vec::new()), &[(100, 150)]).3, seen(15));
        let other = of([running(8, &[span(1_100, 1_190, 10, 5)])], Vec::new());
        assert_eq!(known(other, &[(100, 150)]), (50, 0, 0, BTreeMap::new()), "it was not sampled");
    }

    #[test]
    fn a_wait_is_seen_beside_what_runs_meanwhile() {
        // 70 samples at 32 moments, of which the first six count three times.
        let waits = |state| thread(7, &[(span(1_000, 1_690, 70, 5), state, None)]);
        let runs = || running(8, &[span(1_000, 1_344, 35, 6), span(1_345, 1_690, 35, 7)]);
        let seen = |state, own: Vec<SampledThread>, workers| {
            known(of([waits(state)].into_iter().chain(own), workers), &[(0, 700)]).3
        };
        let halves = BTreeMap::from([((5, Some(6)), 38), ((5, Some(7)), 32)]);
        assert_eq!(seen(WaitsForData, vec![runs()], Vec::new()), halves);
        assert_eq!(seen(WaitsForData, Vec::new(), vec![runs()]), halves, "of a process that it started");
        let alone = BTreeMap::from([((5, None), 70)]);
        assert_eq!(seen(Sleeps, vec![runs()], vec![runs()]), alone);
        assert_eq!(seen(Running, vec![runs()], vec![runs()]), alone);
        assert_eq!(
            seen(WaitsForData, vec![thread(8, &[(span(1_000, 1_690, 70, 6), Sleeps, None)])], vec![]),
            alone
        );
        assert_eq!(seen(WaitsForData, vec![running(8, &[span(1_000, 1_690, 70, 0)])], vec![]), alone);
        // Of two that run, each is seen half of the time.
        let whole = |tid, stack| running(tid, &[span(1_000, 1_690, 70, stack)]);
        let both = seen(WaitsForData, vec![whole(8, 6), whole(9, 7)], Vec::new());
        assert_eq!(both, BTreeMap::from([((5, Some(6)), 35), ((5, Some(7)), 35)]));
    }

    #[test]
    fn who_waits_for_the_interpreters_lock_waits_for_its_holder() {
        let seen = |holder, others: Vec<SampledThread>| {
            let waits = thread(7, &[(span(1_000, 1_000, 1, 5), WaitsForGil, holder)]);
            let mut sampler = of([waits].into_iter().chain(others), Vec::new());
            sampler.add((0, 10), 7, ACCOUNT);
            let sum = sampler.finish().remove(&ACCOUNT).expect("an account");
            sum.samples.into_keys().next().expect("a sample").other
        };
        let holds = |stack| Span { holds_gil: true, ..span(1_000, 1_000, 1, stack) };
        let others = || vec![running(8, &[holds(6)]), running(9, &[span(1_000, 1_000, 1, 8)])];
        let stack = |seen: Option<(Other, StackOf)>| seen.map(|(who, of)| (who, of.stack));
        assert_eq!(stack(seen(Some(9), others())), Some((Other::Holder, 8)), "it is named");
        assert_eq!(stack(seen(None, others())), Some((Other::Holder, 6)), "it was seen to hold it");
        assert_eq!(seen(None, vec![running(9, &[span(1_000, 1_000, 1, 8)])]), None);
        assert_eq!(seen(None, vec![running(8, &[holds(0)])]), None, "no frame is known");
    }
}
