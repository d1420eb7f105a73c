//! Exact sums of a device's time by account and phase, in whole nanoseconds.

use apex_ordered::Gather;
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
    /// Whether all times are measured on the device, none modelled.
    pub is_measured: bool,
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
            is_measured: false,
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
        if self.is_measured {
            return (value.count > 0).then(|| Figure::measured(value.mean_ns).of_samples(value.count));
        }
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
                // No edge lies beyond the end of the span, which may be the end of time.
                ends = edge(self.span, (part + 1).min(OverTime::PARTS));
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
            idle: idle.filter(|(_, times)| !times.is_empty()).gathered(),
            unknown: of(UNKNOWN),
        }
    }

    /// The accounts of a phase (of all, if `None`). `ends` are the same device with work that is as
    /// short and as long as it may be.
    pub fn accounts(&self, ends: [&Self; 2], phase: Option<PhaseKind>) -> Accounts {
        let [value, short, long] = [self, ends[0], ends[1]].map(|ledger| ledger.sums_of(phase));
        let figure = |slot: usize| {
            if self.is_measured {
                return Figure::measured(value[slot] as f64);
            }
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
            idle: idle.filter(|(_, time)| time.bounds().1 > 0.0).gathered(),
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
        if self.is_measured {
            return Pauses { count, time: Figure::measured(value) };
        }
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

#[cfg(test)]
mod tests {
    use super::super::Account;
    use super::PhaseKind::{End, Startup, Steady, Warmup};
    use super::*;

    fn ledger(span: (u64, u64), boundaries: &[(u64, PhaseKind)]) -> Ledger {
        Ledger::new(span, boundaries.into())
    }

    /// The accounts of a ledger whose times are certain.
    fn accounts(ledger: &Ledger, phase: Option<PhaseKind>) -> Vec<(Account, f64)> {
        let accounts = ledger.accounts([ledger, ledger], phase);
        let entries: Vec<_> =
            accounts.entries().into_iter().map(|(account, time)| (account, time.value)).collect();
        assert_eq!(accounts.span_ns, entries.iter().map(|(_, time)| time).sum::<f64>());
        entries
    }

    #[test]
    fn time_within_the_span_belongs_to_the_part_that_the_device_has_entered_last() {
        let mut ledger = ledger((100, 1_100), &[(0, Startup), (300, Steady), (900, End)]);
        let host_code = Use::Idle(IdleCause::HostCode);
        ledger.add(0, 90, Use::Kernels);
        ledger.add(90, 200, Use::Kernels);
        ledger.add(200, 330, host_code);
        ledger.enter(1, 330);
        // It does not go back, and does not begin a part twice.
        ledger.enter(0, 340);
        ledger.enter(1, 350);
        assert_eq!(ledger.phase(), Steady);
        ledger.add(330, 2_000, Use::Copies);
        ledger.add(1_100, 1_200, Use::Unknown);
        let idle = Account::Idle(IdleCause::HostCode);
        let all = [(Account::Kernels, 100.0), (Account::Copies, 770.0), (idle, 130.0)];
        assert_eq!(accounts(&ledger, None), all);
        assert_eq!(accounts(&ledger, Some(Startup)), [all[0], all[2]]);
        assert_eq!(accounts(&ledger, Some(Steady)), [all[1]]);
        assert!(accounts(&ledger, Some(Warmup)).is_empty());
        // No time is none, also where it is told.
        ledger.enter(2, 1_100);
        ledger.add(1_100, 1_100, Use::Kernels);
        assert_eq!(
            [Startup, Steady, Warmup, End].map(|kind| ledger.has_phase(kind)),
            [true, true, false, false]
        );
    }

    #[test]
    fn an_interval_reaches_over_all_three_models() {
        let kernels = |ns: u64, idle: u64| {
            let mut ledger = ledger((0, 1_000), &[(0, Steady)]);
            ledger.add(0, ns, Use::Kernels);
            ledger.add(ns, ns + idle, Use::Idle(IdleCause::Launching));
            ledger
        };
        let (usual, short, long) = (kernels(100, 0), kernels(80, 20), kernels(130, 0));
        let of = usual.accounts([&short, &long], None);
        assert_eq!((of.kernels.value, of.kernels.bounds()), (100.0, (80.0, 130.0)));
        // Idle time that only one of them has is there.
        assert_eq!(of.idle[&IdleCause::Launching].bounds(), (0.0, 20.0));
        assert_eq!((of.idle.len(), of.span_ns), (1, 100.0));
        let of = long.accounts([&usual, &short], None);
        assert_eq!((of.kernels.value, of.kernels.bounds()), (130.0, (80.0, 130.0)));
    }

    #[test]
    fn long_idle_time_in_host_code_is_a_pause() {
        const MS: u64 = 1_000_000;
        let pausing = |longer: u64| {
            let mut ledger = ledger((0, 100 * MS), &[(0, Startup), (10 * MS, Steady)]);
            ledger.add(0, MS, Use::Idle(IdleCause::HostCode));
            ledger.add(MS, 2 * MS - 1, Use::Idle(IdleCause::HostCode));
            ledger.add(3 * MS, 9 * MS, Use::Idle(IdleCause::Launching));
            ledger.enter(1, 10 * MS);
            ledger.add(10 * MS, 12 * MS + longer, Use::Idle(IdleCause::HostCode));
            ledger.add(20 * MS, 23 * MS, Use::Idle(IdleCause::HostCode));
            ledger
        };
        let (usual, short, long) = (pausing(10), pausing(0), pausing(30));
        let of = |phase| usual.accounts([&short, &long], phase).pauses;
        let times = |pauses: Pauses| (pauses.count, pauses.time.value, pauses.time.bounds());
        assert_eq!(times(of(None)), (3, 6_000_010.0, (6_000_000.0, 6_000_030.0)));
        assert_eq!(times(of(Some(Startup))), (1, 1e6, (1e6, 1e6)));
        assert_eq!(times(of(Some(Steady))), (2, 5_000_010.0, (5_000_000.0, 5_000_030.0)));
        assert_eq!(of(Some(End)).count, 0);
    }

    /// Iterations that the device begins at these moments: of a loop of eight.
    fn stepping(span: (u64, u64), entered: &[(usize, u64)]) -> Ledger {
        let boundaries: Vec<_> =
            (0..8).map(|part| (part * 10, if part == 0 { Warmup } else { Steady })).collect();
        let mut ledger = ledger(span, &boundaries);
        entered.iter().for_each(|&(part, moment)| ledger.enter(part, moment));
        ledger
    }

    #[test]
    fn an_iteration_takes_from_its_first_work_to_that_of_the_next() {
        let whole = |entered: &[(usize, u64)]| {
            let ledger = stepping((0, 10_000), entered);
            ledger.step_ns([&ledger, &ledger])
        };
        // What comes before the steady state is no step of it.
        assert_eq!(whole(&[(1, 5_000)]), None);
        // Three parts are begun at once: each takes a third.
        let step = whole(&[(1, 5_000), (4, 5_300), (5, 5_400)]).unwrap();
        assert_eq!(
            (step.value, step.bounds(), step.interval()),
            (100.0, (100.0, 100.0), Some((100.0, 100.0)))
        );
        // An iteration that is not wholly in the span does not count.
        let cut = |span, entered: &[(usize, u64)]| {
            let ledger = stepping(span, entered);
            ledger.step_ns([&ledger, &ledger]).map(|step| step.value)
        };
        let entered = [(1, 5_000), (2, 5_100), (3, 5_300)];
        assert_eq!(cut((5_000, 5_300), &entered), Some(150.0));
        assert_eq!(cut((5_001, 5_300), &entered), Some(200.0));
        assert_eq!(cut((5_000, 5_299), &entered), Some(100.0));
        assert_eq!(cut((5_101, 5_299), &entered), None);
    }

    #[test]
    fn what_a_step_takes_is_as_uncertain_as_the_models_and_the_steps_are() {
        let every = |ns: u64| {
            stepping((0, 10_000), &(1..6).map(|part| (part, 1_000 + part as u64 * ns)).collect::<Vec<_>>())
        };
        let (usual, short, long) = (every(100), every(90), every(130));
        let step = usual.step_ns([&short, &long]).unwrap();
        assert_eq!((step.value, step.bounds()), (100.0, (90.0, 130.0)));
        // A model in which no step ends says nothing.
        let none = stepping((0, 10), &[]);
        assert_eq!(usual.step_ns([&none, &none]).unwrap().bounds(), (100.0, 100.0));
        // Steps of 100 and of 200, two each.
        let mixed = stepping((0, 10_000), &[(1, 1_000), (2, 1_100), (3, 1_300), (4, 1_400), (5, 1_600)]);
        let step = mixed.step_ns([&mixed, &mixed]).unwrap();
        let spread = mixed.steps.distribution();
        let off = 1.645 * (spread.p90_ns - spread.p10_ns) / 2.563 / 2.0;
        assert!(spread.p90_ns - spread.p10_ns > 90.0);
        let (low, high) = step.bounds();
        assert_eq!(step.value, 150.0);
        assert!((low - (150.0 - off)).abs() < 1e-9 && (high - (150.0 + off)).abs() < 1e-9, "{step:?} {off}");
    }

    #[test]
    fn the_parts_of_a_span_hold_what_lies_in_them() {
        // A part is ten nanoseconds.
        let mut ledger = ledger((1_000, 3_400), &[(0, Steady)]);
        ledger.add(900, 1_025, Use::Kernels);
        ledger.add(1_025, 1_040, Use::Copies);
        ledger.add(1_040, 1_047, Use::Collectives);
        ledger.add(3_395, 3_500, Use::Unknown);
        let over_time = ledger.over_time();
        assert_eq!(over_time.part_ns, 10.0);
        let starts = |account| over_time.parts(account).iter().take(5).copied().collect::<Vec<u64>>();
        assert_eq!(starts(Account::Kernels), [10, 10, 5, 0, 0]);
        assert_eq!(starts(Account::Copies), [0, 0, 5, 10, 0]);
        assert_eq!(starts(Account::Collectives), [0, 0, 0, 0, 7]);
        assert_eq!(starts(Account::Idle(IdleCause::HostCode)), Vec::<u64>::new(), "it holds no time");
        assert_eq!(over_time.unknown.iter().sum::<u64>(), 5);
        assert_eq!((over_time.unknown.len(), over_time.unknown[239]), (240, 5));
        // Of the first thirtieth, 80 ns, 47 were busy; what is unknown is not.
        let busy = ledger.busy();
        assert_eq!((busy.len(), busy[0]), (30, 47.0 / 80.0));
        assert!(busy[1..].iter().all(|&share| share == 0.0));
    }

    #[test]
    fn a_span_may_reach_to_the_end_of_time() {
        let (from, end) = (u64::MAX - 2_400, u64::MAX);
        let mut ledger = ledger((from, end), &[(0, Steady)]);
        ledger.add(from, end - 15, Use::Kernels);
        ledger.add(end - 15, end, Use::Copies);
        let over_time = ledger.over_time();
        assert_eq!(
            (over_time.kernels.iter().sum::<u64>(), &over_time.copies[237..]),
            (2_385, &[0, 5, 10][..])
        );
    }

    #[test]
    fn parts_of_a_span_that_cannot_be_divided_add_up_to_it() {
        let mut ledger = ledger((7, 1_007), &[(0, Steady)]);
        ledger.add(7, 500, Use::Kernels);
        ledger.add(500, 1_007, Use::Idle(IdleCause::Loading));
        let over_time = ledger.over_time();
        let parts = over_time.kernels.iter().zip(&over_time.idle[&IdleCause::Loading]);
        assert!(parts.clone().all(|(kernels, idle)| [4, 5].contains(&(kernels + idle))));
        assert_eq!(over_time.kernels.iter().sum::<u64>(), 493);
        assert_eq!(over_time.idle.values().flatten().sum::<u64>(), 507);
        assert_eq!([0, 1, 120, 240].map(|part| edge((7, 1_007), part)), [7, 11, 507, 1_007]);
    }
}
