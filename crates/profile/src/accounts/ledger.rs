//! Exact sums of a device's time by account and phase, in whole nanoseconds.

use std::sync::Arc;

use super::{Accounts, IdleCause, OverTime, Pauses, PhaseKind};
use crate::figure::{Figure, NINETY_PERCENT};
use crate::profile::Activity;
use crate::sketch::Sketch;

/// Standard deviations from the tenth to the ninetieth percentile of a normal distribution.
const FROM_P10_TO_P90: f64 = 2.563;

const KERNELS: usize = 0;
const COLLECTIVES: usize = 1;
const COPIES: usize = 2;
const UNKNOWN: usize = 3;
const IDLE: usize = 4;
const SLOTS: usize = IDLE + IdleCause::ALL.len();

/// Use of a stretch of a device's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Kernels, except those of collectives.
    Kernels,
    /// Collectives (NCCL), and no other kernel.
    Collectives,
    /// Copies or sets of memory, and no kernel.
    Copies,
    /// Kernels may or may not run, because their durations are unknown.
    Unknown,
    /// Idle, because of this activity of the host.
    Idle(IdleCause),
}

impl Use {
    fn slot(self) -> usize {
        match self {
            Self::Kernels => KERNELS,
            Self::Collectives => COLLECTIVES,
            Self::Copies => COPIES,
            Self::Unknown => UNKNOWN,
            Self::Idle(cause) => IDLE + cause as usize,
        }
    }
}

/// The start of each part of the run on the host, and its phase: an iteration, the time between
/// two, or the time before or after all of them. Ascending, the first at 0.
pub(crate) type Boundaries = Arc<[(u64, PhaseKind)]>;

/// The sums of one device.
#[derive(Clone)]
pub(crate) struct Ledger {
    /// First and last nanosecond that is accounted for, after the process's start.
    pub span: (u64, u64),
    boundaries: Boundaries,
    /// The part of the run that the device is in, among `boundaries`.
    at: usize,
    /// The time at which the device began it.
    since: u64,
    /// The device's times for the iterations of the steady state in the span.
    steps: Sketch,
    /// In the order of [`PhaseKind::ALL`]; `None` of a phase that holds no time.
    sums: [Option<[u64; SLOTS]>; PhaseKind::ALL.len()],
    /// Number of pauses and their sum in nanoseconds, in the same order.
    pauses: [(u64, u64); PhaseKind::ALL.len()],
    /// The sums of equal parts of the span.
    parts: Vec<[u64; SLOTS]>,
    /// The part of the last addition, and where it ends.
    part: (usize, u64),
}

/// Returns the start of a part of a span.
fn edge((from, to): (u64, u64), part: usize) -> u64 {
    let length = u128::from(to - from);
    from + (length * part as u128 / OverTime::PARTS as u128) as u64
}

// The busy shares are made of whole parts.
const _: () = assert!(OverTime::PARTS.is_multiple_of(Activity::CHUNKS));

impl Ledger {
    pub fn new(span: (u64, u64), boundaries: Boundaries) -> Self {
        let parts = vec![[0; SLOTS]; OverTime::PARTS];
        Self {
            span,
            boundaries,
            at: 0,
            since: 0,
            steps: Sketch::default(),
            sums: Default::default(),
            pauses: Default::default(),
            parts,
            part: (0, edge(span, 1)),
        }
    }

    /// Adds a stretch of time, which begins no earlier than the stretch that was added before.
    pub fn add(&mut self, from: u64, to: u64, what: Use) {
        let (from, to) = (from.max(self.span.0), to.min(self.span.1));
        if from < to {
            self.add_to_parts(from, to, what.slot());
            let phase = self.phase() as usize;
            self.sums[phase].get_or_insert([0; SLOTS])[what.slot()] += to - from;
            if what == Use::Idle(IdleCause::HostCode) && to - from >= Pauses::LEAST_NS {
                let (count, time) = &mut self.pauses[phase];
                (*count, *time) = (*count + 1, *time + (to - from));
            }
        }
    }

    /// The phase that the device is in.
    pub fn phase(&self) -> PhaseKind {
        self.boundaries[self.at].1
    }

    /// The device begins the first work of a part of the run: what is added from now on belongs to
    /// it. The device never goes back to an earlier part.
    pub fn enter(&mut self, part: usize, moment: u64) {
        if part <= self.at {
            return;
        }
        let passed = &self.boundaries[self.at..part];
        let lies = self.span.0 <= self.since && moment <= self.span.1;
        if lies && passed.iter().all(|&(_, phase)| phase == PhaseKind::Steady) {
            // A device without work in an iteration passes several at once.
            let each = (moment - self.since) / passed.len() as u64;
            passed.iter().for_each(|_| self.steps.add(each));
        }
        (self.at, self.since) = (part, moment);
    }

    /// Returns the duration of an iteration of the steady state, as in [`Self::accounts`]; `None`
    /// if the device finished none in the span.
    pub fn step_ns(&self, ends: [&Self; 2]) -> Option<Figure> {
        let [value, short, long] = [self, ends[0], ends[1]].map(|ledger| ledger.steps.distribution());
        let ends = [short, long].into_iter().filter(|steps| steps.count > 0).map(|steps| steps.mean_ns);
        let (low, high) =
            ends.fold((value.mean_ns, value.mean_ns), |(low, high), mean| (low.min(mean), high.max(mean)));
        let deviation = (value.p90_ns - value.p10_ns) / FROM_P10_TO_P90;
        let off = NINETY_PERCENT * deviation / (value.count.max(1) as f64).sqrt();
        let mean = Figure::predicted(value.mean_ns, ((low - off).max(0.0), high + off));
        (value.count > 0).then(|| mean.of_samples(value.count))
    }

    fn add_to_parts(&mut self, from: u64, to: u64, slot: usize) {
        let (mut part, mut ends) = self.part;
        let mut begin = from;
        while begin < to && part < self.parts.len() {
            let end = ends.min(to);
            self.parts[part][slot] += end.saturating_sub(begin);
            begin = begin.max(end);
            if ends <= begin {
                part += 1;
                ends = edge(self.span, part + 1);
            }
        }
        self.part = (part, ends);
    }

    /// Whether a phase holds time.
    pub fn has_phase(&self, kind: PhaseKind) -> bool {
        self.sums[kind as usize].is_some()
    }

    /// Share of each of [`Activity::CHUNKS`] equal parts of the span in which the device was busy.
    pub fn busy(&self) -> Vec<f64> {
        let width = (self.span.1 - self.span.0) as f64 / Activity::CHUNKS as f64;
        let busy = |part: &[u64; SLOTS]| part[KERNELS] + part[COLLECTIVES] + part[COPIES];
        let chunks = self.parts.chunks(OverTime::PARTS / Activity::CHUNKS);
        chunks.map(|parts| (parts.iter().map(busy).sum::<u64>() as f64 / width).clamp(0.0, 1.0)).collect()
    }

    /// The accounts of equal parts of the span.
    pub fn over_time(&self) -> OverTime {
        let of = |slot: usize| {
            let times: Vec<u64> = self.parts.iter().map(|part| part[slot]).collect();
            if times.iter().all(|&time| time == 0) { Vec::new() } else { times }
        };
        let idle = IdleCause::ALL.into_iter().map(|cause| (cause, of(IDLE + cause as usize)));
        OverTime {
            part_ns: (self.span.1 - self.span.0) as f64 / OverTime::PARTS as f64,
            kernels: of(KERNELS),
            collectives: of(COLLECTIVES),
            waiting: Vec::new(),
            copies: of(COPIES),
            idle: idle.filter(|(_, times)| !times.is_empty()).collect(),
            unknown: of(UNKNOWN),
        }
    }

    /// The accounts of a phase (of all, if `None`). `ends` are the same device with work that is as
    /// short and as long as it may be.
    pub fn accounts(&self, ends: [&Self; 2], phase: Option<PhaseKind>) -> Accounts {
        let [value, short, long] = [self, ends[0], ends[1]].map(|ledger| ledger.sums_of(phase));
        let figure = |slot: usize| {
            let all = [value, short, long].map(|sums| sums[slot]);
            let (low, high) = (all.iter().min(), all.iter().max());
            let bound = |end: Option<&u64>| end.map_or(0.0, |&end| end as f64);
            Figure::predicted(value[slot] as f64, (bound(low), bound(high)))
        };
        let idle = IdleCause::ALL.into_iter().map(|cause| (cause, figure(IDLE + cause as usize)));
        Accounts {
            span_ns: value.iter().sum::<u64>() as f64,
            kernels: figure(KERNELS),
            collectives: figure(COLLECTIVES),
            waiting: Figure::default(),
            copies: figure(COPIES),
            idle: idle.filter(|(_, time)| time.bounds().1 > 0.0).collect(),
            pauses: self.pauses_of(ends, phase),
            unknown: figure(UNKNOWN),
        }
    }

    fn pauses_of(&self, ends: [&Self; 2], phase: Option<PhaseKind>) -> Pauses {
        let of = |ledger: &Self| {
            let all = PhaseKind::ALL.into_iter().zip(ledger.pauses);
            let told = all.filter(|&(kind, _)| phase.is_none_or(|phase| phase == kind));
            told.fold((0, 0.0), |(count, time), (_, (more, ns))| (count + more, time + ns as f64))
        };
        let [(count, value), (_, short), (_, long)] = [self, ends[0], ends[1]].map(of);
        let bounds = (value.min(short).min(long), value.max(short).max(long));
        Pauses { count, time: Figure::predicted(value, bounds) }
    }

    fn sums_of(&self, phase: Option<PhaseKind>) -> [u64; SLOTS] {
        let mut sums = [0; SLOTS];
        let of = PhaseKind::ALL.into_iter().zip(&self.sums).filter_map(|(kind, of)| Some((kind, (*of)?)));
        for (_, phase) in of.filter(|&(kind, _)| phase.is_none_or(|phase| phase == kind)) {
            sums.iter_mut().zip(phase).for_each(|(sum, time)| *sum += time);
        }
        sums
    }
}
