//! GPU durations of kernels and graphs, by event pairs on the launch's own stream.
//!
//! A pair costs the CPU about 1.5 us and the stream a few more, so what is timed is chosen ([`decide`]): the first launches
//! of a configuration after the very first (which may load code), then ever fewer, until pairs take at most a thousandth of
//! the kernel's own time; and all of it within a token bucket that fills with the budget's share of the process's time. Pairs
//! are read when they are done, on later timed launches, after synchronisations and at the end of the process, by the
//! thread that made them; nothing ever waits for them.
//!
//! # Captures and dying contexts
//! While any stream of the process is being captured, creating, recording or asking events could end up in the graph or
//! invalidate the capture; when a context goes, so do its events. So every use of events is a [`Section`], which is refused
//! while there is a capture or a [`Pause`]; and whoever begins a capture or ends a context announces it first and then waits
//! for sections under way ([`wait_for_sections`]), which are a few calls long.

mod pool;

use crate::recorder::{Recorder, caught, guarded};
use crate::tables::{Zeroable, push, zeroed};
use crate::thread::{self, Thread};
use crate::{calibration, driver, limits};
use apex_trace::control::TimingMode;
use apex_trace::layout::{RecordHead, RecordKind, flags};
use apex_trace::now;
use cuda_abi::types::*;
use std::sync::Mutex;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

use pool::{Found, Pools, Spare, State};

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A kernel's launch: its configuration.
    Kernel(u32),
    /// A graph's launch: its identifier.
    Graph(u32),
}

/// How far the sampling of a configuration or graph is.
#[derive(Default)]
pub struct Progress {
    /// Launches that were chosen.
    chosen: AtomicU32,
    /// Mean of what was read, less the pair's cost, ns; 0 before the first reading.
    mean_ns: AtomicU32,
    /// Graphs: launches until the next decision. Kernels: how often they were met again.
    until: AtomicU32,
}

// SAFETY: integers.
unsafe impl Zeroable for Progress {}

impl Progress {
    /// Launches from this sample to the next. Doubles with every fourth sample, until pairs take a thousandth of the time.
    fn interval(&self) -> u32 {
        let ramp = 1u32 << (self.chosen.load(Relaxed) / 4).min(LONGEST_RAMP_LOG2);
        match self.mean_ns.load(Relaxed) {
            0 => ramp,
            mean => ramp.min((1000 * PAIR_COST_NS / mean).max(1)),
        }
    }

    fn add(&self, ns: u64) {
        let (ns, mean) = (i64::try_from(ns).unwrap_or(i64::MAX), i64::from(self.mean_ns.load(Relaxed)));
        // A moving mean over about eight readings.
        let next = if mean == 0 { ns } else { mean + (ns - mean) / 8 };
        self.mean_ns.store(next.clamp(1, u32::MAX.into()) as u32, Relaxed);
    }
}

/// What a pair costs a stream (H200: 2.8 us busy, 4.4 us idle).
const PAIR_COST_NS: u32 = 5000;
/// Logarithm of the longest interval.
const LONGEST_RAMP_LOG2: u32 = 12;
/// Launches after which a configuration that can't be timed now is thought about again.
const LATER: u32 = 64;
/// What the token bucket holds at most, and at first: some milliseconds.
const BUCKET_TICKS: u64 = 10_000_000;
/// What a timed launch is expected to cost.
const EXPECTED_TICKS: u64 = 5_000;
/// Pairs that are looked at on a timed launch.
const READ_AT_ONCE: usize = 4;

/// Timing of a process.
pub struct Timing {
    bucket: Mutex<Bucket>,
    pools: Pools,
    sections: AtomicU32,
    pauses: AtomicU32,
    kernels: Box<[Progress]>,
    graphs: Box<[Progress]>,
}

/// What may be spent on timing, ticks.
struct Bucket {
    tokens: u64,
    filled: u64,
}

impl Bucket {
    /// Fills by `ppm` of the ticks since it was last filled.
    fn fill(&mut self, at: u64, ppm: u32) {
        let earned = u128::from(at.saturating_sub(self.filled)) * u128::from(ppm) / 1_000_000;
        if earned > 0 {
            self.tokens = (self.tokens + earned.min(BUCKET_TICKS.into()) as u64).min(BUCKET_TICKS);
            self.filled = at;
        }
    }
}

/// An event before and one after.
#[derive(Clone, Copy)]
struct Pair {
    before: CUevent,
    after: CUevent,
}

/// A launch between two recorded events.
#[derive(Clone, Copy)]
struct Sample {
    pair: Pair,
    context: u32,
    subject: Subject,
    stream: u32,
    /// When the launch's call began, ticks.
    start: u64,
    was_idle: bool,
    cost_ns: u32,
}

/// The samples of a thread that are not read yet.
#[derive(Default)]
pub struct Pending {
    samples: Vec<Sample>,
    /// Pairs to give back when their pool is not busy.
    spares: Vec<Spare>,
}

/// Leave to use events, for as long as it lives.
struct Section<'t>(&'t Timing);

impl Drop for Section<'_> {
    fn drop(&mut self) {
        self.0.sections.fetch_sub(1, SeqCst);
    }
}

/// While it lives nothing is timed.
pub struct Pause(&'static Timing);

impl Drop for Pause {
    fn drop(&mut self) {
        self.0.pauses.fetch_sub(1, SeqCst);
    }
}

/// Stops timing, and waits until nobody is at it.
pub fn pause(recorder: &'static Recorder) -> Pause {
    recorder.timing.pauses.fetch_add(1, SeqCst);
    wait_for_sections(recorder);
    Pause(&recorder.timing)
}

/// Waits until no section is under way. The caller has made sure that none begins. Gives up after a while: a driver call
/// that does not come back must not hold up the program's other threads for good.
pub fn wait_for_sections(recorder: &Recorder) {
    let busy = || recorder.timing.sections.load(SeqCst) != 0;
    if !busy() {
        return;
    }
    let begun = Instant::now();
    while busy() && begun.elapsed() < Duration::from_millis(200) {
        std::thread::yield_now();
    }
}

impl Timing {
    /// `None` if there is no memory for it.
    pub fn new() -> Option<Timing> {
        Some(Timing {
            bucket: Mutex::new(Bucket { tokens: BUCKET_TICKS, filled: now() }),
            pools: Pools::new()?,
            sections: AtomicU32::new(0),
            pauses: AtomicU32::new(0),
            kernels: zeroed(limits::CONFIGS + 1)?,
            graphs: zeroed(limits::GRAPHS + 1)?,
        })
    }
}

impl Timing {
    fn section(&self, recorder: &Recorder) -> Option<Section<'_>> {
        self.sections.fetch_add(1, SeqCst);
        let section = Section(self);
        let allowed = self.pauses.load(SeqCst) == 0 && !recorder.captures.any_in_order();
        allowed.then_some(section)
    }

    fn progress(&self, subject: Subject) -> Option<&Progress> {
        match subject {
            Subject::Kernel(config) => self.kernels.get(config as usize),
            Subject::Graph(graph) => self.graphs.get(graph as usize),
        }
    }

    /// The context is about to be destroyed. The caller holds a [`Pause`].
    pub fn forget_context(&self, context: u32) {
        self.pools.forget(context);
    }

    /// Some context is about to be destroyed. The caller holds a [`Pause`].
    pub fn forget_all_contexts(&self) {
        self.pools.forget_all();
    }

    /// Whether the budget has room for another sample.
    fn can_afford(&self, ppm: u32) -> bool {
        let Ok(mut bucket) = self.bucket.try_lock() else { return false };
        bucket.fill(now(), ppm);
        bucket.tokens >= EXPECTED_TICKS
    }

    fn spend(&self, recorder: &Recorder, ticks: u64) {
        recorder.file.add_timing_ticks(ticks);
        if let Ok(mut bucket) = self.bucket.try_lock() {
            bucket.tokens = bucket.tokens.saturating_sub(ticks);
        }
    }
}

/// Whether every launch is to be timed.
#[inline(always)]
pub fn wants_all(recorder: &Recorder) -> bool {
    recorder.control.timing.load(Relaxed) == TimingMode::All as u32
}

/// Whether [`prepare`] has something to do. Takes no lock.
pub fn is_new(recorder: &Recorder, context: u32) -> bool {
    context != 0 && !recorder.timing.pools.has(context)
}

/// Called before a launch that may be the first in its context: calibrates if it is, for nothing can be running yet that
/// waits for what the program does next.
pub fn prepare(recorder: &Recorder, context: u32) {
    if is_new(recorder, context) && recorder.timing.pools.add(context) {
        calibrate(recorder, context);
    }
}

/// Calibrates the current context, which is idle, if it should be timed.
fn calibrate(recorder: &Recorder, context: u32) {
    if recorder.control.timing_mode() == TimingMode::Off {
        return;
    }
    let Some(section) = recorder.timing.section(recorder) else { return };
    let begun = now();
    let costs = calibration::measure();
    drop(section);
    recorder.file.add_timing_ticks(now() - begun);
    if let Some(costs) = costs {
        recorder.calibrated(context, costs.busy_ns, costs.idle_ns);
    }
    recorder.timing.pools.set_costs(context, costs);
}

/// What is to be done about a launch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Decision {
    /// Whether to time it.
    pub now: bool,
    /// Launches of its configuration until the next decision.
    pub next_after: u32,
}

/// Launches of a configuration that a thread has just come to know until the first decision. The first launch of all is
/// never timed, since it may load code.
pub fn interval(recorder: &Recorder, config: u32) -> u32 {
    recorder.timing.progress(Subject::Kernel(config)).map_or(LATER, Progress::interval)
}

/// Whether to decide about a launch whose configuration the thread knew but has forgotten, and with it how many launches
/// ago the last decision was: so these are counted for all threads together.
pub fn is_due_when_met_again(recorder: &Recorder, config: u32) -> bool {
    recorder.timing.progress(Subject::Kernel(config)).is_some_and(|progress| {
        let met = progress.until.fetch_add(1, Relaxed);
        met.is_multiple_of(progress.interval())
    })
}

/// Whether a launch of `config` in `context` is to be timed.
pub fn decide(recorder: &Recorder, config: u32, context: u32) -> Decision {
    decide_on(recorder, Subject::Kernel(config), context)
        .unwrap_or(Decision { now: false, next_after: LATER })
}

/// Whether a launch of the graph in `context` is to be timed. The first is not: it may upload the graph.
pub fn decide_graph(recorder: &Recorder, graph: u32, context: u32) -> bool {
    let (subject, mode) = (Subject::Graph(graph), recorder.control.timing_mode());
    if graph == 0 || mode == TimingMode::Off {
        return false;
    }
    if is_new(recorder, context) {
        guarded(|| prepare(recorder, context));
    }
    let Some(progress) = recorder.timing.progress(subject) else { return false };
    let until = progress.until.load(Relaxed);
    if until > 1 && mode == TimingMode::Sampled || until == 0 {
        progress.until.store(until.max(2) - 1, Relaxed);
        return false;
    }
    let decision =
        decide_on(recorder, subject, context).unwrap_or(Decision { now: false, next_after: LATER });
    progress.until.store(decision.next_after, Relaxed);
    decision.now
}

fn decide_on(recorder: &Recorder, subject: Subject, context: u32) -> Option<Decision> {
    let timing = &recorder.timing;
    let progress = timing.progress(subject)?;
    let mode = recorder.control.timing_mode();
    if mode == TimingMode::Off || !matches!(timing.pools.state(context)?, State::Ready(_)) {
        return None;
    }
    if mode == TimingMode::All {
        return Some(Decision { now: true, next_after: 1 });
    }
    let interval = progress.interval();
    if !timing.can_afford(recorder.control.budget_ppm.load(Relaxed)) {
        return Some(Decision { now: false, next_after: interval.max(LATER) });
    }
    progress.chosen.fetch_add(1, Relaxed);
    Some(Decision { now: true, next_after: interval })
}

/// Forwards a launch between two events. `record` is handed the call's begin, end and result.
#[cold]
pub fn around(
    subject: Subject,
    stream: CUstream,
    forward: impl FnOnce() -> CUresult,
    record: impl FnOnce(u64, u64, CUresult),
) -> CUresult {
    let begun = now();
    let sample = thread::with(|thread| caught(|| thread.begin_sample(subject, stream)).flatten()).flatten();
    let start = now();
    let result = forward();
    let end = now();
    if let Some(sample) = sample {
        thread::with(|thread| {
            caught(|| {
                thread.end_sample(Sample { start, ..sample }, stream, result);
                thread.read_samples(READ_AT_ONCE);
                thread.recorder.timing.spend(thread.recorder, now() - end + start - begun);
            })
        });
    }
    record(start, end, result);
    result
}

/// The program waited for something, so samples may be done.
pub fn after_synchronizing(result: CUresult) {
    if result == CUDA_SUCCESS {
        read_all();
    }
}

/// The program waited for its current context: besides, there is nothing running, and so a moment to calibrate.
pub fn after_idling(result: CUresult) {
    if result != CUDA_SUCCESS {
        return;
    }
    read_all();
    thread::with_existing(|thread| {
        let (recorder, context) = (thread.recorder, thread.context());
        if recorder.timing.pools.state(context) == Some(State::Uncalibrated) {
            guarded(|| calibrate(recorder, context));
        }
    });
}

/// Reads what can be read of the calling thread's samples.
pub fn at_exit() {
    read_all();
}

fn read_all() {
    thread::with_existing(|thread| {
        if !thread.pending.samples.is_empty() {
            let begun = now();
            caught(|| thread.read_samples(limits::PENDING_PAIRS));
            thread.recorder.timing.spend(thread.recorder, now() - begun);
        }
    });
}

impl Thread {
    /// Records the event before the launch.
    fn begin_sample(&mut self, subject: Subject, stream: CUstream) -> Option<Sample> {
        if self.pending.samples.len() >= limits::PENDING_PAIRS {
            self.read_samples(limits::PENDING_PAIRS);
            if self.pending.samples.len() >= limits::PENDING_PAIRS {
                return None;
            }
        }
        let (recorder, context) = (self.recorder, self.context());
        let timing = &recorder.timing;
        let _section = timing.section(recorder)?;
        let State::Ready(costs) = timing.pools.state(context)? else { return None };
        let pair = self.take_pair(context)?;
        let was_idle = driver::is_idle(stream);
        if !driver::record_event(pair.before, stream) {
            self.give_back(context, pair);
            return None;
        }
        let cost_ns = if was_idle { costs.idle_ns } else { costs.busy_ns };
        Some(Sample { pair, context, subject, stream: 0, start: 0, was_idle, cost_ns })
    }

    /// A pair of the context's, or a new one while its pool may grow. Where every launch is to be timed, waits for a thread
    /// that is at the pool: it is there for a few instructions, and a launch that is not timed would be missing.
    fn take_pair(&mut self, context: u32) -> Option<Pair> {
        if let Some(at) = self.pending.spares.iter().position(|spare| spare.context == context) {
            return Some(self.pending.spares.swap_remove(at).pair);
        }
        match self.recorder.timing.pools.take(context, wants_all(self.recorder))? {
            Found::Pair(pair) => Some(pair),
            Found::Room => Some(Pair { before: driver::create_event()?, after: driver::create_event()? }),
        }
    }

    /// Gives a pair back to its pool, or keeps it while another thread is at the pool: nothing is waited for.
    fn give_back(&mut self, context: u32, pair: Pair) {
        let pools = &self.recorder.timing.pools;
        self.pending.spares.retain(|&spare| pools.has(spare.context) && !pools.give_back(spare, false));
        let spare = Spare { context, pair };
        if !pools.give_back(spare, false) && self.pending.spares.len() < limits::PENDING_PAIRS {
            push(&mut self.pending.spares, spare);
        }
    }

    /// Records the event after the launch.
    fn end_sample(&mut self, sample: Sample, stream: CUstream, result: CUresult) {
        let (recorder, timing) = (self.recorder, &self.recorder.timing);
        let section = if result == CUDA_SUCCESS { timing.section(recorder) } else { None };
        let is_recorded = section.is_some() && driver::record_event(sample.pair.after, stream);
        drop(section);
        if is_recorded {
            let stream = self.stream(stream);
            push(&mut self.pending.samples, Sample { stream, ..sample });
        } else {
            self.give_back(sample.context, sample.pair);
        }
    }

    /// Gives the pairs of samples that are not read yet to whoever times next. The thread ends: the driver is not asked for
    /// anything any more.
    pub fn give_up_samples(&mut self) {
        let pools = &self.recorder.timing.pools;
        for spare in self.pending.spares.drain(..) {
            pools.give_back(spare, true);
        }
        for Sample { context, pair, .. } in self.pending.samples.drain(..) {
            pools.give_back(Spare { context, pair }, true);
        }
    }

    /// Reads and records up to `most` of the samples that are done.
    fn read_samples(&mut self, most: usize) {
        let (recorder, timing) = (self.recorder, &self.recorder.timing);
        let Some(_section) = timing.section(recorder) else { return };
        let (mut at, mut looked_at) = (0, 0);
        while at < self.pending.samples.len() && looked_at < most {
            looked_at += 1;
            let sample = self.pending.samples[at];
            // The events of a context that is gone are gone with it.
            let is_alive = timing.pools.has(sample.context);
            let reading =
                if is_alive { driver::elapsed_ns(sample.pair.before, sample.pair.after) } else { Err(false) };
            match reading {
                Err(true) => {
                    at += 1;
                    continue;
                }
                Ok(raw_ns) => self.push(&sample.record(timing, raw_ns)),
                Err(false) => {}
            }
            self.pending.samples.remove(at);
            self.give_back(sample.context, sample.pair);
        }
    }
}

impl Sample {
    /// The record of a reading, which also moves the subject's mean.
    fn record(&self, timing: &Timing, raw_ns: u64) -> apex_trace::layout::Timing {
        if let Some(progress) = timing.progress(self.subject) {
            progress.add(raw_ns.saturating_sub(self.cost_ns.into()).max(1));
        }
        let (config, of_graph) = match self.subject {
            Subject::Kernel(config) => (config, 0),
            Subject::Graph(graph) => (graph, flags::OF_GRAPH),
        };
        let was_idle = if self.was_idle { flags::STREAM_WAS_IDLE } else { 0 };
        let head = RecordHead {
            kind: RecordKind::Timing as u8,
            slots: 1,
            flags: of_graph | was_idle,
            duration: self.cost_ns,
            start: self.start,
        };
        apex_trace::layout::Timing { head, config, stream: self.stream, raw_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_get_rarer_until_they_cost_a_thousandth() {
        let intervals_at = |mean_ns: u32| {
            let progress = Progress::default();
            progress.mean_ns.store(mean_ns, Relaxed);
            (0..100)
                .map(|_| {
                    let interval = progress.interval();
                    progress.chosen.fetch_add(1, Relaxed);
                    interval
                })
                .collect::<Vec<_>>()
        };
        for (mean_ns, longest) in
            [(5_000, 1000), (50_000, 100), (5_000_000, 1), (100, 1 << LONGEST_RAMP_LOG2)]
        {
            let intervals = intervals_at(mean_ns);
            assert!(intervals.is_sorted());
            assert_eq!(intervals[0], 1, "the first launches are timed");
            assert_eq!(intervals[99], longest);
        }
    }

    #[test]
    fn the_bucket_gives_its_share_and_saves_little() {
        let mut bucket = Bucket { tokens: 0, filled: 0 };
        let mut spent = 0;
        for at in (0..100_000_000_000).step_by(1_000_000) {
            bucket.fill(at, 5000);
            spent += std::mem::take(&mut bucket.tokens);
        }
        assert!((499_000_000..=500_000_000).contains(&spent), "0.5 % of 100 G ticks, not {spent}");
        bucket.fill(u64::MAX, 5000);
        assert_eq!(bucket.tokens, BUCKET_TICKS);
    }

    #[test]
    fn the_mean_follows() {
        let progress = Progress::default();
        progress.add(1000);
        assert_eq!(progress.mean_ns.load(Relaxed), 1000);
        (0..100).for_each(|_| progress.add(3000));
        assert!((2900..=3000).contains(&progress.mean_ns.load(Relaxed)));
        progress.add(u64::MAX);
        assert!(progress.mean_ns.load(Relaxed) > 3000);
    }
}
