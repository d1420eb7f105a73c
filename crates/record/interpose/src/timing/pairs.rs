//! A thread's event pairs: recorded around a launch, read when the GPU has passed them.
//!
//! Queries to the driver are rarely too early. Work that the program has waited for is complete. Of
//! the other samples, only those are queried that are as old as earlier samples were at their
//! completion ([`Patience`]). A stream's samples complete in order, so after an incomplete one the
//! later ones are not queried.

use super::calibration::{Calibration, PairCost};
use super::lead::Lead;
use super::pool::{Found, Spare, State};
use super::{Subject, Timing, wants_all};
use crate::tables::push;
use crate::{driver, limits};
use apex_trace::layout::{self, RecordHead, RecordKind, flags};
use apex_trace::now;
use cuda_abi::types::*;

/// An event before and one after.
#[derive(Clone, Copy)]
pub struct Pair {
    pub before: CUevent,
    pub after: CUevent,
}

// SAFETY: handles, which the driver takes from any thread.
unsafe impl Send for Pair {}

/// A launch between two recorded events.
#[derive(Clone, Copy)]
pub struct Sample {
    pair: Pair,
    context: u32,
    subject: Subject,
    /// The stream's identifier; known after the launch.
    stream: u32,
    /// The time at which the launch's call began, in ticks; known after the launch.
    start: u64,
    /// The time by which its pair's reading may exceed that of the launch.
    cost: PairCost,
    /// Whether the stream had nothing to do before.
    was_idle: bool,
    /// Microseconds by which the stream was delayed before the pair.
    delayed_us: u16,
    /// Whether the GPU came to the first event after the second had been recorded.
    is_queued: bool,
}

/// The samples that the driver is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Candidates {
    /// Samples that are old enough ([`Patience`]).
    Aged,
    /// Samples on the stream with this identifier: the program has waited for it.
    OfStream(u32),
    /// All: the program has waited for everything.
    All,
    /// All, if the driver was not asked too early just now: every launch is to be timed, and there
    /// is no room for another sample.
    MakingRoom,
}

/// Age at which the driver is asked about a sample, in ticks since the launch. It follows how far
/// the GPU is behind the program: it doubles where the driver was asked too early, and shrinks
/// where a sample was done.
#[derive(Default)]
struct Patience(u64);

/// Bounds of [`Patience`] after the driver was asked too early: some 10 µs and some 20 ms.
const PATIENCE: [u64; 2] = [20_000, 50_000_000];

impl Patience {
    fn was_too_early(&mut self) {
        self.0 = (self.0 * 2).clamp(PATIENCE[0], PATIENCE[1]);
    }

    fn was_done(&mut self) {
        self.0 -= self.0.div_ceil(16);
    }
}

/// The samples of a thread that are not read yet.
#[derive(Default)]
pub struct Pending {
    samples: Vec<Sample>,
    patience: Patience,
    lead: Lead,
    /// The time of the last query that came too early, in ticks.
    asked_too_early: u64,
    /// Pairs to give back when their pool is not busy.
    spares: Vec<Spare>,
}

impl Pending {
    /// Whether there is nothing to read.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// Whether there is no room for another sample.
    pub fn is_full(&self) -> bool {
        self.samples.len() >= limits::PENDING_PAIRS
    }

    /// Records the event before a launch, with a delay ahead of it if the GPU would come to it too
    /// soon.
    pub fn begin(
        &mut self,
        timing: &Timing,
        subject: Subject,
        context: u32,
        stream: CUstream,
    ) -> Option<Sample> {
        let _section = timing.section()?;
        let State::Ready(calibration) = timing.pools.state(context)? else { return None };
        let pair = self.take_pair(timing, context)?;
        let was_idle = driver::is_idle(stream);
        let delayed_us = self.delay(timing, subject, context, calibration, was_idle, stream);
        if !driver::record_event(pair.before, stream) {
            self.give_back(timing, context, pair);
            return None;
        }
        let (stream, start, is_queued) = (0, 0, false);
        let cost = calibration.cost;
        Some(Sample { pair, context, subject, stream, start, cost, was_idle, delayed_us, is_queued })
    }

    /// Delays the stream if the GPU would come to the next event too soon, and gives by how many
    /// microseconds. A graph's launch is never delayed: how long the host needs for it depends on
    /// the graph. Nor is a collective, because the other ranks would wait for that; what its
    /// reading holds of the host's time for the launch is small beside it.
    fn delay(
        &self,
        timing: &Timing,
        subject: Subject,
        context: u32,
        calibration: Calibration,
        was_idle: bool,
        stream: CUstream,
    ) -> u16 {
        let Subject::Kernel(_) = subject else { return 0 };
        if timing.is_collective(subject) {
            return 0;
        }
        let (Some(delay), Some(us)) = (calibration.delay, self.lead.wanted(was_idle)) else { return 0 };
        // SAFETY: the context has a pool, and the caller is in a section: nobody destroys it.
        if unsafe { delay.launch(us, stream) } {
            us
        } else {
            timing.pools.give_up_delay(context);
            0
        }
    }

    /// Records the event after a launch that ended with `result`; `None` if there will be no
    /// reading.
    pub fn end(
        &mut self,
        timing: &Timing,
        sample: Sample,
        stream: CUstream,
        result: CUresult,
    ) -> Option<Sample> {
        let section = if result == CUDA_SUCCESS { timing.section() } else { None };
        let is_recorded = section.is_some() && driver::record_event(sample.pair.after, stream);
        let is_queued = is_recorded && driver::is_pending(sample.pair.before);
        drop(section);
        timing.budget.spend_delay(sample.delayed_us);
        if !is_recorded {
            self.give_back(timing, sample.context, sample.pair);
            return None;
        }
        match sample {
            Sample { delayed_us: 1.., .. } => self.lead.delayed(is_queued),
            Sample { was_idle: false, .. } => self.lead.busy(is_queued),
            _ => {}
        }
        Some(Sample { is_queued, ..sample })
    }

    /// Keeps a sample until it is read: a launch that began at `start` on the stream of this
    /// identifier.
    pub fn keep(&mut self, sample: Sample, start: u64, stream: u32) {
        push(&mut self.samples, Sample { start, stream, ..sample });
    }

    /// A pair of the context's, or a new one while its pool may grow. Where every launch is to be
    /// timed, waits for a thread that is at the pool: it is there for a few instructions, and a
    /// launch that is not timed would be missing.
    fn take_pair(&mut self, timing: &Timing, context: u32) -> Option<Pair> {
        if let Some(at) = self.spares.iter().position(|spare| spare.context == context) {
            return Some(self.spares.swap_remove(at).pair);
        }
        match timing.pools.take(context, wants_all(timing.control))? {
            Found::Pair(pair) => Some(pair),
            Found::Room => Some(Pair { before: driver::create_event()?, after: driver::create_event()? }),
        }
    }

    /// Gives a pair back to its pool, or keeps it while another thread is at the pool: nothing is
    /// waited for.
    fn give_back(&mut self, timing: &Timing, context: u32, pair: Pair) {
        let pools = &timing.pools;
        self.spares.retain(|&spare| pools.has(spare.context) && !pools.give_back(spare, false));
        let spare = Spare { context, pair };
        if !pools.give_back(spare, false) && self.spares.len() < limits::PENDING_PAIRS {
            push(&mut self.spares, spare);
        }
    }

    /// Gives the pairs of samples that are not read yet to whoever times next. The thread ends: the
    /// driver is not asked for anything any more.
    pub fn give_up(&mut self, timing: &Timing) {
        for spare in self.spares.drain(..) {
            timing.pools.give_back(spare, true);
        }
        for Sample { context, pair, .. } in self.samples.drain(..) {
            timing.pools.give_back(Spare { context, pair }, true);
        }
    }

    /// Reads up to `most` of the candidates that are done, and hands their records to `write`.
    pub fn read(
        &mut self,
        timing: &Timing,
        which: Candidates,
        most: usize,
        mut write: impl FnMut(&layout::Timing),
    ) {
        let Some(_section) = timing.section() else { return };
        let now = now();
        // Streams that are not done with a sample: a bit for each, which others may share.
        let mut behind = 0u64;
        let (mut at, mut asked) = (0, 0);
        while at < self.samples.len() && asked < most {
            let sample = self.samples[at];
            let stream = 1 << (sample.stream % u64::BITS);
            if behind & stream != 0 || !self.is_candidate(&sample, which, now) {
                at += 1;
                continue;
            }
            asked += 1;
            // The events of a context that is gone are gone with it.
            let is_alive = timing.pools.has(sample.context);
            let reading =
                if is_alive { driver::elapsed_ns(sample.pair.before, sample.pair.after) } else { Err(false) };
            match reading {
                Err(true) => {
                    self.patience.was_too_early();
                    self.asked_too_early = now;
                    behind |= stream;
                    continue;
                }
                Ok(raw_ns) => {
                    self.patience.was_done();
                    write(&sample.record(timing, raw_ns));
                }
                Err(false) => {}
            }
            self.samples.remove(at);
            self.give_back(timing, sample.context, sample.pair);
        }
    }

    fn is_candidate(&self, sample: &Sample, which: Candidates, now: u64) -> bool {
        match which {
            Candidates::Aged => now.saturating_sub(sample.start) >= self.patience.0,
            Candidates::OfStream(stream) => sample.stream == stream,
            Candidates::All => true,
            Candidates::MakingRoom => now.saturating_sub(self.asked_too_early) >= PATIENCE[0],
        }
    }
}

impl Sample {
    /// The record of a reading, which also moves the subject's mean.
    fn record(&self, timing: &Timing, raw_ns: u64) -> layout::Timing {
        let correction_ns = match (self.is_queued, self.delayed_us > 0, self.was_idle) {
            (true, true, _) => self.cost.delayed,
            (false, _, true) => self.cost.idle,
            _ => self.cost.busy,
        };
        if let Some(progress) = timing.progress(self.subject) {
            progress.add(raw_ns.saturating_sub(correction_ns.into()).max(1), self.delayed_us);
        }
        let (config, of_graph) = match self.subject {
            Subject::Kernel(config) => (config, 0),
            Subject::Graph(graph) => (graph, flags::OF_GRAPH),
        };
        let was_idle = if self.was_idle { flags::STREAM_WAS_IDLE } else { 0 };
        let is_queued = if self.is_queued { flags::QUEUED } else { 0 };
        let head = RecordHead {
            kind: RecordKind::Timing as u8,
            slots: 1,
            flags: of_graph | was_idle | is_queued,
            duration: correction_ns,
            start: self.start,
        };
        layout::Timing { head, config, stream: self.stream, raw_ns }
    }
}
