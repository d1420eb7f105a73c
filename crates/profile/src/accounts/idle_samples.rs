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

/// A span, what its thread did, and the holder of the lock that it waited for.
pub(crate) type SampledSpan = (Span, HostState, Option<u32>);

/// Samples of one thread, which do not overlap.
#[derive(Debug, Default)]
pub(crate) struct SampledThread {
    tid: u32,
    spans: Vec<SampledSpan>,
    /// The intervals in which it was sampled.
    sampled: Vec<(u64, u64)>,
}

impl SampledThread {
    /// Spans with their states, and the holders of the lock that they wait for, in any order.
    pub fn new(tid: u32, mut spans: Vec<SampledSpan>, period_ns: u64) -> Self {
        spans.sort_by_key(|(span, ..)| (span.first_ns, span.last_ns));
        let mut end = None;
        spans.retain(|(span, ..)| {
            // A span that goes on begins where its first part ends.
            let follows = end.is_none_or(|end| end <= span.first_ns) && span.first_ns <= span.last_ns;
            end = if follows { Some(span.last_ns) } else { end };
            follows
        });
        let apart = (APART.saturating_mul(period_ns)).max(LEAST_APART_NS);
        let mut sampled: Vec<(u64, u64)> = Vec::new();
        for (span, ..) in &spans {
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
        let first = self.spans.partition_point(|(span, ..)| span.last_ns < from);
        let after = self.spans.partition_point(|(span, ..)| span.first_ns < to);
        &self.spans[first..after.max(first)]
    }

    /// The span at a moment, or the one that is nearest and at most this far away.
    fn at(&self, moment: u64, away: u64) -> Option<&SampledSpan> {
        let next = self.spans.partition_point(|(span, ..)| span.last_ns < moment);
        let near = self.spans[next.saturating_sub(1)..].iter().take(2);
        let distance =
            |span: &Span| span.first_ns.saturating_sub(moment).max(moment.saturating_sub(span.last_ns));
        near.min_by_key(|(span, ..)| distance(span)).filter(|(span, ..)| distance(span) <= away)
    }
}

fn stack_of(span: &Span) -> StackOf {
    StackOf { thread: span.thread, stack: span.stack, is_settled: span.is_settled }
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
    fn other(
        &self,
        own: &SampledThread,
        (state, holder): (HostState, Option<u32>),
        moment: u64,
        turn: &mut usize,
    ) -> Option<(Other, StackOf)> {
        let at = |thread: &SampledThread| {
            thread.at(moment, self.period_ns).map(|(span, state, _)| (*span, *state))
        };
        let others = || self.own.values().filter(|thread| thread.tid != own.tid);
        if state == HostState::WaitsForGil {
            let named = holder.and_then(|holder| at(self.own.get(&holder)?));
            let held = || others().filter_map(at).find(|(span, _)| span.holds_gil);
            let (span, _) = named.or_else(held)?;
            return (span.stack != 0).then(|| (Other::Holder, stack_of(&span)));
        }
        if !state.waits_for_others() {
            return None;
        }
        let mut running = |threads: &mut dyn Iterator<Item = &SampledThread>, who: Other| {
            let found: Vec<Span> = threads
                .filter_map(at)
                .filter(|(span, state)| *state == HostState::Running && span.stack != 0)
                .map(|(span, _)| span)
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
        for (span, state, holder) in own.spans_in(from, to) {
            let inside = span.samples_in(from, to) as u64;
            if inside == 0 {
                continue;
            }
            sum.read = sum.read.saturating_add(inside);
            let (first, last) = (span.first_ns.max(from), span.last_ns.min(to));
            let moments = inside.min(if *state == HostState::Running { 1 } else { MOMENTS });
            for part in 0..moments {
                let moment = first + (last - first) / moments * part + (last - first) / (2 * moments);
                let other = threads.other(own, (*state, *holder), moment, turn);
                let sample = Sample { stack: stack_of(span), state: *state, other };
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
