//! The activity of a program's threads on the host, whether a device waited for them or not: the
//! profile of a session of `apex attach`, which has no launches.
//!
//! Invariant: each sample stands for the time to the next look at its thread ([`LONGEST_GAP_NS`] at
//! most), and a thread's last one for a period. Running and waiting are thus weighed alike at
//! whatever rate the sampler could keep, and a thread's times add up to the time that it was
//! watched.

use apex_ordered::Order;
use std::collections::BTreeMap;

use apex_host_stacks::Span;
use serde::Serialize;

use super::Profile;
use super::host_stacks::{HostStack, HostState, SampledHost};
use super::idle_functions::{Functions, IdleFunction, Pool};
use super::interned::Interned;
use crate::accounts::{SampledSpan, StackOf};

/// Longest time to the next look that a sample stands for: the sampler leaves no longer pauses
/// unless it was stopped, and then nothing is known of the thread.
const LONGEST_GAP_NS: u64 = 2_000_000_000;

/// The host's activity in a session without launches.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HostProfile {
    /// Time from the first sample of any thread to a period after the last one, nanoseconds.
    pub span_ns: f64,
    /// The threads, those that ran longest first.
    pub threads: Vec<HostThread>,
    /// The stacks found, those of the longest time first.
    #[serde(skip)]
    pub stacks: Vec<ThreadStack>,
}

/// A thread that was sampled.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HostThread {
    /// Name of its process.
    pub process: String,
    /// Identifier of its process.
    pub pid: u32,
    /// Version of the process's Python interpreter; empty without one that can be read.
    pub python: String,
    /// Its name.
    pub name: String,
    /// Its identifier.
    pub tid: u32,
    /// Samples.
    pub samples: u64,
    /// Time that the samples stand for, nanoseconds.
    pub sampled_ns: f64,
    /// The part of it in which the thread ran or was ready to run, nanoseconds.
    pub running_ns: f64,
}

/// Samples of one thread that found one stack in one state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThreadStack {
    /// Index into [`HostProfile::threads`].
    pub thread: usize,
    /// The state of the thread.
    pub state: HostState,
    /// Index into [`Profile::host_stacks`].
    pub stack: usize,
    /// Samples.
    pub samples: u64,
    /// Time that they stand for, nanoseconds.
    pub time_ns: f64,
}

/// The functions on the stacks of threads while they were in one state.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HostFunctions {
    /// The state.
    pub state: HostState,
    /// Time of all threads in it, nanoseconds.
    pub time_ns: f64,
    /// Samples.
    pub samples: u64,
    /// Functions, by total share of that time.
    pub functions: Vec<IdleFunction>,
}

impl HostProfile {
    /// Time in which threads ran, of all together, nanoseconds.
    pub fn running_ns(&self) -> f64 {
        crate::total(self.threads.iter().map(|thread| thread.running_ns))
    }

    /// Moves the stacks to other places, sorts, and numbers the threads anew.
    pub(super) fn finish(&mut self, place: &[usize]) {
        let mut order: Vec<usize> = (0..self.threads.len()).collect();
        let by = |&at: &usize| (-self.threads[at].running_ns, -self.threads[at].sampled_ns);
        order.order_by(|a, b| by(a).partial_cmp(&by(b)).unwrap_or(std::cmp::Ordering::Equal));
        let mut number = vec![0; order.len()];
        order.iter().enumerate().for_each(|(new, &old)| number[old] = new);
        self.threads = order.into_iter().map(|at| self.threads[at].clone()).collect();
        for one in &mut self.stacks {
            (one.thread, one.stack) = (number[one.thread], place[one.stack]);
        }
        self.stacks.order_by(|a, b| {
            b.time_ns.total_cmp(&a.time_ns).then_with(|| (a.thread, a.stack).cmp(&(b.thread, b.stack)))
        });
    }
}

impl SampledHost {
    /// What all sampled threads did; their stacks are among `stacks`.
    pub(super) fn profile(&self, stacks: &mut Interned<HostStack>) -> HostProfile {
        let mut whole = HostProfile::default();
        let (mut first, mut last) = (u64::MAX, 0);
        for (mut thread, spans) in self.threads_of_all() {
            let mut sums: BTreeMap<(HostState, usize), (u64, f64)> = BTreeMap::new();
            for (at, SampledSpan { span, state, call, .. }) in spans.iter().enumerate() {
                let of = StackOf {
                    thread: span.thread,
                    stack: span.stack,
                    is_settled: span.is_settled,
                    call: *call,
                };
                let samples = u64::from(span.samples).saturating_mul(span.stands_for.into());
                let ns = self.time_of(span, spans.get(at + 1).map(|next| &next.span));
                (first, last) = (first.min(span.first_ns), last.max(span.last_ns));
                thread.samples = thread.samples.saturating_add(samples);
                thread.sampled_ns += ns;
                thread.running_ns += if *state == HostState::Running { ns } else { 0.0 };
                let sum = sums.entry((*state, stacks.place(self.stack(of)))).or_default();
                *sum = (sum.0.saturating_add(samples), sum.1 + ns);
            }
            let number = whole.threads.len();
            whole.threads.push(thread);
            whole.stacks.extend(sums.into_iter().map(|((state, stack), (samples, time_ns))| ThreadStack {
                thread: number,
                state,
                stack,
                samples,
                time_ns,
            }));
        }
        whole.span_ns = last.saturating_add(self.period_ns()).saturating_sub(first) as f64;
        whole
    }

    /// Estimate of the time that a thread spent as a span says, nanoseconds; `next` is the thread's
    /// next span. Of a thinned file the next one is not there: then the mean interval between
    /// rounds is each sample's.
    fn time_of(&self, span: &Span, next: Option<&Span>) -> f64 {
        if span.stands_for > 1 {
            return span.time_in(0, u64::MAX, self.interval_ns());
        }
        let gap = next.map_or(self.period_ns(), |next| next.first_ns.saturating_sub(span.last_ns));
        span.last_ns.saturating_sub(span.first_ns) as f64 + gap.min(LONGEST_GAP_NS) as f64
    }
}

impl Profile {
    /// The functions on the stacks of the threads of a session without launches, by what the
    /// threads did, the state of the longest time first; empty for others.
    pub fn host_functions(&self) -> Vec<HostFunctions> {
        let Some(host) = &self.host else { return Vec::new() };
        let mut states: BTreeMap<HostState, (Functions<'_>, u64, f64)> = BTreeMap::new();
        for one in &host.stacks {
            let (functions, samples, time_ns) = states.entry(one.state).or_default();
            functions.add(&self.host_stacks[one.stack], one.time_ns as u64);
            *samples = samples.saturating_add(one.samples);
            *time_ns += one.time_ns;
        }
        let finished = states.into_iter().map(|(state, (functions, samples, time_ns))| HostFunctions {
            state,
            time_ns,
            samples,
            functions: functions.finish(&Pool::of_time(time_ns, samples), time_ns),
        });
        let mut finished: Vec<HostFunctions> = finished.collect();
        finished.order_by(|a, b| b.time_ns.total_cmp(&a.time_ns));
        finished
    }

    /// Where the threads of a session without launches were in one state: places in the program
    /// with their part of that time, nanoseconds, the largest first.
    pub fn host_places(&self, is_meant: impl Fn(&ThreadStack) -> bool) -> Vec<(String, f64)> {
        let mut places: BTreeMap<String, f64> = BTreeMap::new();
        let stacks = self.host.iter().flat_map(|host| &host.stacks).filter(|one| is_meant(one));
        for one in stacks {
            let place = self.host_stacks[one.stack].place();
            *places.entry(place.unwrap_or_else(|| "unknown functions".to_owned())).or_default() +=
                one.time_ns;
        }
        let mut places: Vec<(String, f64)> = places.into_iter().collect();
        places.order_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        places
    }
}
