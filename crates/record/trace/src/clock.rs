//! Conversion of ticks to time.
//!
//! The rate of a process's clock follows from its first and its newest anchor; its accuracy
//! increases with their distance. If a process was killed at once, its anchors are close together;
//! the rate then comes from another process of the session (all processes of a machine share the
//! counter), or from the processor's nominal rate, unless it contradicts the process's own anchors
//! (the process then ran on another machine).

use crate::layout::{ClockAnchor, ClockKind};

/// The error of one anchor in ns: the time between reading two clocks, with room for an
/// interruption.
const ANCHOR_ERROR_NS: f64 = 500.0;
/// Anchors this far apart give a rate to 0.01% and need no help.
const LONG_BASELINE_NS: u64 = 10_000_000;
/// The difference between rates of one machine: clock adjustment slews `CLOCK_MONOTONIC` by up to
/// 0.05%.
const SLEW: f64 = 1e-3;
/// Plausible rates, in ns per tick.
const SANE_RATES: std::ops::Range<f64> = 0.01..1000.0;

/// The source of the rate of a [`Clock`], best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockRate {
    /// Ticks are nanoseconds, or the process's own anchors lie far apart.
    Measured,
    /// Another process of the session measured it.
    Borrowed,
    /// The processor's nominal rate.
    Nominal,
    /// The process's own anchors, close together: good to some percent.
    Rough,
    /// Unknown: ticks are assumed to be nanoseconds.
    Unknown,
}

/// Converts a process's ticks to nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clock {
    start: ClockAnchor,
    ns_per_tick: f64,
    rate: ClockRate,
}

/// The clock data of a process file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Anchors {
    pub kind: Option<ClockKind>,
    pub start: ClockAnchor,
    pub latest: ClockAnchor,
    pub nominal_hz: u64,
}

impl Anchors {
    /// Nanoseconds between the anchors.
    fn baseline_ns(&self) -> u64 {
        self.latest.monotonic_ns.saturating_sub(self.start.monotonic_ns)
    }

    /// ClockRate from the anchors, if they make sense.
    fn own(&self) -> Option<f64> {
        let ticks = self.latest.ticks.checked_sub(self.start.ticks)?;
        Some(self.baseline_ns() as f64 / ticks as f64).filter(|rate| SANE_RATES.contains(rate))
    }

    fn long(&self) -> Option<f64> {
        self.own().filter(|_| self.baseline_ns() >= LONG_BASELINE_NS)
    }

    fn nominal(&self) -> Option<f64> {
        Some(1e9 / self.nominal_hz as f64).filter(|rate| SANE_RATES.contains(rate))
    }

    /// Whether `rate` may be this process's, as far as its anchors tell.
    fn allow(&self, rate: f64) -> bool {
        self.own().is_none_or(|own| {
            let uncertain = SLEW + 2.0 * ANCHOR_ERROR_NS / self.baseline_ns() as f64;
            (own / rate - 1.0).abs() <= uncertain
        })
    }

    fn clock(&self, borrowed: Option<f64>) -> Clock {
        let allowed = |rate: Option<f64>| rate.filter(|&rate| self.allow(rate));
        let (rate, ns_per_tick) = if self.kind == Some(ClockKind::Monotonic) {
            (ClockRate::Measured, 1.0)
        } else if let Some(own) = self.long() {
            (ClockRate::Measured, own)
        } else if let Some(borrowed) = allowed(borrowed) {
            (ClockRate::Borrowed, borrowed)
        } else if let Some(nominal) = allowed(self.nominal()) {
            (ClockRate::Nominal, nominal)
        } else if let Some(own) = self.own() {
            (ClockRate::Rough, own)
        } else {
            (ClockRate::Unknown, 1.0)
        };
        Clock { start: self.start, ns_per_tick, rate }
    }

    /// A clock for each process of a session.
    pub fn clocks(all: &[Anchors]) -> Vec<Clock> {
        let best = all
            .iter()
            .filter(|anchors| anchors.kind == Some(ClockKind::Tsc))
            .filter_map(|anchors| Some((anchors.baseline_ns(), anchors.long()?)))
            .max_by_key(|&(baseline, _)| baseline)
            .map(|(_, rate)| rate);
        all.iter().map(|anchors| anchors.clock(best)).collect()
    }
}

impl Clock {
    /// The same clock with times on the monotonic clock moved by that many nanoseconds.
    #[must_use]
    pub(crate) fn moved(self, by_ns: i64) -> Clock {
        let monotonic_ns = self.start.monotonic_ns.saturating_add_signed(by_ns);
        Clock { start: ClockAnchor { monotonic_ns, ..self.start }, ..self }
    }

    /// Returns the source of its rate.
    pub fn rate(&self) -> ClockRate {
        self.rate
    }

    /// Nanoseconds from the moment the process file was made; 0 for moments before.
    pub fn ns_since_start(&self, ticks: u64) -> u64 {
        self.duration_ns(ticks.saturating_sub(self.start.ticks))
    }

    /// Length in nanoseconds of a duration in ticks.
    pub fn duration_ns(&self, ticks: u64) -> u64 {
        (ticks as f64 * self.ns_per_tick).round() as u64
    }

    /// Nanoseconds since 1970.
    pub fn real_ns(&self, ticks: u64) -> u64 {
        self.start.real_ns.saturating_add(self.ns_since_start(ticks))
    }

    /// Nanoseconds on the machine's `CLOCK_MONOTONIC`, which is never set, so it can compare the
    /// processes of a session.
    pub fn monotonic_ns(&self, ticks: u64) -> u64 {
        self.start.monotonic_ns.saturating_add(self.ns_since_start(ticks))
    }

    /// The process's ticks at a time of the machine's `CLOCK_MONOTONIC`; 0 before its start.
    pub fn ticks_at_monotonic_ns(&self, ns: u64) -> u64 {
        let Some(since) = ns.checked_sub(self.start.monotonic_ns) else { return 0 };
        self.start.ticks.saturating_add((since as f64 / self.ns_per_tick) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GHZ: f64 = 2.5;

    fn anchors(baseline_ns: u64, error_ns: i64) -> Anchors {
        let start = ClockAnchor { ticks: 7_000_000_000_000, monotonic_ns: 90_000, real_ns: 1 << 60 };
        let ticks = ((baseline_ns as i64 + error_ns) as f64 * GHZ) as u64;
        let latest = ClockAnchor {
            ticks: start.ticks + ticks,
            monotonic_ns: start.monotonic_ns + baseline_ns,
            real_ns: start.real_ns + baseline_ns,
        };
        Anchors { kind: Some(ClockKind::Tsc), start, latest, nominal_hz: 0 }
    }

    fn off_by(clock: Clock) -> f64 {
        (clock.duration_ns(2_500_000_000) as f64 / 1e9 - 1.0).abs()
    }

    #[test]
    fn a_long_baseline_is_believed_and_lent() {
        let killed_at_once = Anchors { latest: anchors(0, 0).start, ..anchors(0, 0) };
        let clocks = Anchors::clocks(&[killed_at_once, anchors(30_000, 400), anchors(5_000_000_000, 80)]);
        assert_eq!(
            clocks.iter().map(Clock::rate).collect::<Vec<_>>(),
            [ClockRate::Borrowed, ClockRate::Borrowed, ClockRate::Measured]
        );
        assert!(clocks.iter().all(|&clock| off_by(clock) < 1e-6));
    }

    #[test]
    fn another_machines_rate_is_not_borrowed() {
        let mut other = anchors(5_000_000_000, 0);
        other.latest.ticks = other.start.ticks + (5e9 * 3.1) as u64;
        let clocks = Anchors::clocks(&[anchors(1_000_000, 100), other]);
        assert_eq!(clocks[0].rate(), ClockRate::Rough);
        assert!(off_by(clocks[0]) < 1e-3);
    }

    #[test]
    fn alone_the_nominal_rate_helps() {
        let mut alone = anchors(20_000, 300);
        alone.nominal_hz = 2_500_000_000;
        let clocks = Anchors::clocks(&[alone]);
        assert_eq!(clocks[0].rate(), ClockRate::Nominal);
        assert!(off_by(clocks[0]) < 1e-6);
    }

    #[test]
    fn nanoseconds_need_no_rate() {
        let mut system = anchors(0, 0);
        system.kind = Some(ClockKind::Monotonic);
        system.latest = system.start;
        let clock = Anchors::clocks(&[system, anchors(5_000_000_000, 0)])[0];
        assert_eq!((clock.rate(), clock.duration_ns(123_456_789)), (ClockRate::Measured, 123_456_789));
        let later = system.start.ticks + 1000;
        assert_eq!(clock.ns_since_start(later), 1000);
        assert_eq!(clock.real_ns(later), system.start.real_ns + 1000);
        assert_eq!(clock.monotonic_ns(later), system.start.monotonic_ns + 1000);
        assert_eq!(clock.ns_since_start(system.start.ticks - 1), 0);
    }

    #[test]
    fn nonsense_gives_some_clock() {
        for (start, latest) in [(0, 0), (u64::MAX, 0), (0, u64::MAX), (5, 4)] {
            let at = |value| ClockAnchor { ticks: value, monotonic_ns: value, real_ns: value };
            for hz in [0, 1, u64::MAX] {
                for kind in [None, Some(ClockKind::Tsc), Some(ClockKind::Monotonic)] {
                    let odd = Anchors { kind, start: at(start), latest: at(latest), nominal_hz: hz };
                    let clock = Anchors::clocks(&[odd])[0];
                    let _ = (clock.ns_since_start(u64::MAX), clock.real_ns(u64::MAX), clock.monotonic_ns(0));
                    assert_eq!(clock.duration_ns(0), 0);
                }
            }
        }
    }
}
