//! The search for the clock of a phase.

use crate::{Clock, Settings, Window};
use std::collections::BTreeMap;

/// Windows at a clock before it is judged.
const WINDOWS: u32 = 3;
/// A step down is at most this part of the clock.
const LONGEST: f64 = 0.2;
/// The first step down is at most this part.
const FIRST: f64 = 0.07;
/// The part of the allowed slowdown that a clock may take: the search itself takes some, and
/// windows have noise.
const PART: f64 = 0.93;
/// A clock is better if a step takes this part less energy.
const BETTER: f64 = 0.003;
/// Legal clocks between two that were judged, below which the search ends.
const CLOSE: u32 = 2;

/// The windows at a clock.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Measured {
    windows: u32,
    seconds: f64,
    steps: f64,
    joules: f64,
    /// Sum of windows' clocks.
    mhz: f64,
    /// Windows in which a power cap held the clock.
    capped: u32,
}

impl Measured {
    fn take(&mut self, window: &Window) {
        self.windows += 1;
        self.seconds += window.seconds;
        self.steps += window.steps;
        self.joules += window.joules;
        self.mhz += f64::from(window.mhz);
        self.capped += u32::from(window.is_capped);
    }

    fn step_seconds(&self) -> f64 {
        self.seconds / self.steps
    }

    fn step_joules(&self) -> f64 {
        self.joules / self.steps
    }
}

/// A search: from the device's own clock down, in parts that get shorter.
#[derive(Clone, Debug)]
pub struct Search {
    settings: Settings,
    /// At the device's own clock.
    own: Measured,
    at: BTreeMap<u32, Measured>,
    /// The best clock so far.
    best: Clock,
    /// A clock below that is too slow, or no better.
    bound: u32,
    /// The clock that is tried.
    tried: Clock,
}

impl Search {
    /// A search that has seen nothing.
    pub fn new(settings: Settings) -> Self {
        let bound = settings.clocks.0.saturating_sub(settings.step);
        Self { settings, own: Measured::default(), at: BTreeMap::new(), best: None, bound, tried: None }
    }

    /// The clock that the phase should have now.
    pub fn clock(&self) -> Clock {
        self.tried.or(self.best)
    }

    /// The best clock so far, which is kept when the search has ended.
    pub fn best(&self) -> Clock {
        self.best
    }

    /// Whether the search has ended.
    pub fn has_ended(&self) -> bool {
        self.own.windows >= WINDOWS && self.tried.is_none()
    }

    /// The slowdown at a clock that was tried, measured.
    pub fn slowdown(&self, mhz: u32) -> Option<f64> {
        Some(self.at.get(&mhz)?.step_seconds() / self.own.step_seconds() - 1.0)
    }

    /// The part of a step's energy that the best clock saves, measured.
    pub fn saving(&self) -> f64 {
        let best = self.best.and_then(|best| self.at.get(&best));
        best.map_or(0.0, |best| 1.0 - best.step_joules() / self.own.step_joules())
    }

    /// Takes a window at a clock.
    pub fn take(&mut self, window: &Window, set: Clock) {
        if window.steps <= 0.0 || window.seconds <= 0.0 {
            return;
        }
        let measured = match set {
            None => &mut self.own,
            Some(mhz) => self.at.entry(mhz).or_default(),
        };
        measured.take(window);
        let is_judged = measured.windows == WINDOWS;
        if is_judged && set == self.clock() {
            self.judge();
        }
    }

    /// Judges the clock that was tried, and chooses the next one.
    fn judge(&mut self) {
        if let Some(tried) = self.tried.take() {
            if self.is_better(tried) { self.best = Some(tried) } else { self.bound = tried }
        }
        self.tried = self.next();
    }

    fn is_better(&self, tried: u32) -> bool {
        let (Some(new), Some(slowdown)) = (self.at.get(&tried), self.slowdown(tried)) else { return false };
        let known = self.best.and_then(|best| self.at.get(&best)).unwrap_or(&self.own);
        slowdown <= PART * self.settings.most_slowdown
            && new.step_joules() < known.step_joules() * (1.0 - BETTER)
    }

    /// The next clock to try: as low as the prediction allows, and no more than a fifth lower.
    /// Where a lower clock was bad, half-way to it at most, and half-way if the prediction allows
    /// none: what is predicted from that clock may be too pessimistic.
    fn next(&self) -> Clock {
        let from = self.best.unwrap_or(self.settings.clocks.1);
        let allowed = self.legal(self.slowest_allowed(from));
        let is_bounded = self.bound >= self.settings.clocks.0;
        let half = self.legal(f64::from(from + self.bound) / 2.0);
        let next = match is_bounded {
            false => self.legal(f64::from(from) * (1.0 - LONGEST)).max(allowed),
            true if allowed < from => half.max(allowed),
            true => half,
        };
        let has_room = !is_bounded || from - self.bound > CLOSE * self.settings.step;
        (has_room && (self.bound + 1..from).contains(&next)).then_some(next)
    }

    /// The lowest clock that keeps the bound if the time of a step is `a + b / clock` between the
    /// two lowest clocks that are known; without two, a little lower.
    fn slowest_allowed(&self, from: u32) -> f64 {
        let allowed = self.own.step_seconds() * (1.0 + PART * self.settings.most_slowdown);
        let judged = self.at.values().chain([&self.own]).filter(|of| of.windows >= WINDOWS && of.capped == 0);
        let mut known: Vec<(f64, f64)> =
            judged.map(|of| (of.mhz / f64::from(of.windows), of.step_seconds())).collect();
        known.sort_by(|a, b| a.0.total_cmp(&b.0));
        let [(low, slow), (high, fast), ..] = known[..] else { return f64::from(from) * (1.0 - FIRST) };
        let by_clock = (slow - fast) / (1.0 / low - 1.0 / high);
        let fixed = slow - by_clock / low;
        if by_clock <= 0.0 || allowed <= fixed {
            return 0.0;
        }
        by_clock / (allowed - fixed)
    }

    /// The next legal clock at or above.
    fn legal(&self, mhz: f64) -> u32 {
        let ((lowest, highest), step) = (self.settings.clocks, self.settings.step);
        let above = (mhz.max(f64::from(lowest)) - f64::from(lowest)) / f64::from(step);
        (lowest + (above - 1e-6).ceil().max(0.0) as u32 * step).min(highest)
    }
}
