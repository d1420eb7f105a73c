//! Makes windows of a device's readings, and says when to set which clock.
//!
//! A window begins and ends where the energy counter moved, because a counter that moves ten times
//! a second is exact there alone. It holds one phase at one clock. What lies between a call and the
//! moment at which the clock runs is in no window.

use crate::{Clock, Governor, Settings, Window};
use std::collections::BTreeMap;

/// Windows in which phases take turns are so many times as long, because their parts differ from
/// window to window.
const BLEND_WINDOWS: f64 = 5.0;
/// A call has taken effect after so many seconds, or never.
const LONGEST_SWITCH: f64 = 0.6;
/// Seconds of a switch before one was measured.
const USUAL_SWITCH: f64 = 0.03;
/// Switches between two calls, at least.
const RESIDENCE: f64 = 10.0;
/// The phase of windows in which phases share a clock.
const BLEND: usize = usize::MAX;

/// What was read of a device and of its program at a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// Seconds.
    pub at: f64,
    /// The clock that runs, MHz.
    pub mhz: u32,
    /// The energy counter, millijoules.
    pub millijoules: u64,
    /// Whether a power cap holds the clock.
    pub is_capped: bool,
    /// Whether heat holds it.
    pub is_hot: bool,
    /// Whether a setting holds it.
    pub is_locked: bool,
    /// The phase that runs.
    pub phase: usize,
    /// Steps of this phase since the start.
    pub steps: f64,
    /// Whether a collective runs.
    pub is_collective: bool,
}

/// A call to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    /// The clock to set; `None` to release it.
    pub to: Clock,
}

/// A window that is not complete.
#[derive(Clone, Copy, Debug)]
struct Open {
    from: Reading,
    /// Work at the begin: steps, or seconds at the device's own clock where phases share one.
    work: f64,
    is_capped: bool,
    is_hot: bool,
    /// Sum of clocks, and readings.
    mhz: (f64, u32),
}

/// The work of a phase.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    /// Steps at the last reading in it.
    steps: f64,
    /// Seconds and steps at the device's own clock.
    own: (f64, f64),
}

/// Follows a device.
#[derive(Clone, Debug)]
pub struct Follower {
    governor: Governor,
    set: Clock,
    set_at: f64,
    has_set: bool,
    is_settled: bool,
    /// Sum of measured seconds of switches, and their number.
    switches: (f64, u32),
    last: Option<Reading>,
    turned_at: f64,
    open: Option<Open>,
    is_foreign: bool,
    /// What is known of each phase.
    phases: BTreeMap<usize, Work>,
    /// Seconds that the work since the start would have taken at the device's own clock.
    work: f64,
}

impl Follower {
    /// A follower of a device whose clock nobody has set.
    pub fn new(settings: Settings) -> Self {
        Self {
            governor: Governor::new(settings),
            set: None,
            set_at: f64::NEG_INFINITY,
            has_set: false,
            is_settled: true,
            switches: (0.0, 0),
            last: None,
            turned_at: 0.0,
            open: None,
            is_foreign: false,
            phases: BTreeMap::new(),
            work: 0.0,
        }
    }

    /// Takes a reading, and returns the call to make now, if any. The caller makes it before the
    /// next reading.
    pub fn follow(&mut self, now: &Reading) -> Option<Switch> {
        let last = self.last.replace(*now);
        self.is_foreign |= self.set.is_none() && !self.has_set && now.is_locked;
        if self.has_stopped() {
            return None;
        }
        if let Some(last) = last {
            self.count(&last, now);
            if last.phase != now.phase {
                self.turn(now);
            }
        }
        self.settle(now);
        let is_edge = last.is_some_and(|last| last.millijoules != now.millijoules);
        self.extend(now, is_edge);
        self.switch(now)
    }

    /// The call that leaves the device as it was found: none where nothing was set, or where
    /// another tool has set the clock since.
    pub fn release(&self) -> Option<Switch> {
        (self.set.is_some() && !self.has_stopped()).then_some(Switch { to: None })
    }

    /// Whether another tool holds or set the clock.
    pub fn has_stopped(&self) -> bool {
        self.is_foreign || self.governor.has_stopped()
    }

    /// The governor, to report on.
    pub fn governor(&self) -> &Governor {
        &self.governor
    }

    /// Mean seconds from a call to the clock that it asked for.
    pub fn switch_seconds(&self) -> f64 {
        let (seconds, count) = self.switches;
        if count == 0 { USUAL_SWITCH } else { seconds / f64::from(count) }
    }

    fn is_blended(&self) -> bool {
        self.governor.is_blended(self.switch_seconds())
    }

    fn key(&self, now: &Reading) -> usize {
        if self.is_blended() { BLEND } else { now.phase }
    }

    /// Counts work: in seconds at the device's own clock, by what a step of each phase took there.
    /// The last steps of a phase before a turn are counted when it runs again.
    fn count(&mut self, last: &Reading, now: &Reading) {
        let Work { steps, own } = self.phases.entry(now.phase).or_default();
        let done = now.steps - std::mem::replace(steps, now.steps);
        if self.set.is_none() && self.is_settled {
            *own = (own.0 + now.at - last.at, own.1 + done);
        }
        if own.1 > 0.0 {
            self.work += done * own.0 / own.1;
        }
    }

    fn turn(&mut self, now: &Reading) {
        let was_blended = self.is_blended();
        self.governor.turn(now.at - self.turned_at);
        self.turned_at = now.at;
        if !self.is_blended() || !was_blended {
            self.open = None;
        }
    }

    /// Sees whether the clock that was set runs.
    fn settle(&mut self, now: &Reading) {
        let waited = now.at - self.set_at;
        if self.is_settled {
            return;
        }
        let runs = self.set.is_some_and(|set| now.mhz.abs_diff(set) <= 1);
        if runs {
            self.switches = (self.switches.0 + waited, self.switches.1 + 1);
        }
        self.is_settled = runs || waited >= LONGEST_SWITCH;
    }

    /// Extends the window that is open, and begins or ends one where the counter moved.
    fn extend(&mut self, now: &Reading, is_edge: bool) {
        if !self.is_settled {
            self.open = None;
            return;
        }
        if let Some(open) = &mut self.open {
            open.is_capped |= now.is_capped;
            open.is_hot |= now.is_hot;
            open.mhz = (open.mhz.0 + f64::from(now.mhz), open.mhz.1 + 1);
        }
        if !is_edge {
            return;
        }
        let key = self.key(now);
        let work = if key == BLEND { self.work } else { now.steps };
        let window = self.governor.settings().window;
        let least = if key == BLEND { BLEND_WINDOWS * window } else { window };
        match self.open.take() {
            Some(open) if now.at - open.from.at < least => self.open = Some(open),
            open => {
                if let Some(open) = open {
                    self.close(&open, now, key, work);
                }
                self.open = Some(Open { from: *now, work, is_capped: false, is_hot: false, mhz: (0.0, 0) });
            }
        }
    }

    fn close(&mut self, open: &Open, now: &Reading, key: usize, work: f64) {
        let window = Window {
            phase: key,
            seconds: now.at - open.from.at,
            steps: work - open.work,
            joules: now.millijoules.saturating_sub(open.from.millijoules) as f64 / 1e3,
            mhz: (open.mhz.0 / f64::from(open.mhz.1.max(1))).round() as u32,
            is_capped: open.is_capped,
            is_hot: open.is_hot,
        };
        self.governor.observe(&window, self.set);
    }

    /// The call to make, if the phase should have another clock and a call may be made.
    fn switch(&mut self, now: &Reading) -> Option<Switch> {
        let wanted = self.governor.clock(self.key(now));
        let stays = now.at - self.set_at < RESIDENCE * self.switch_seconds();
        if self.has_stopped() || wanted == self.set || now.is_collective || stays {
            return None;
        }
        (self.set, self.set_at, self.has_set, self.is_settled) = (wanted, now.at, true, false);
        self.open = None;
        Some(Switch { to: wanted })
    }
}
