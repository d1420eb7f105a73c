//! Which clock a GPU should have, phase by phase.
//!
//! The caller measures [`Window`]s: how many steps of which phase the device did, in what time,
//! with what energy, at which clock. A [`Governor`] says after each of them which clock to set. It
//! knows no device: a [`Follower`] makes windows of readings, and says which call to make
//! ([`Switch`]).
//!
//! The rules:
//! * A phase is a [`search`](Search) of its own. It begins at the device's own clock, lowers it in
//!   steps of at most 20%, and predicts from the windows at the nearest clocks whether the next
//!   clock keeps the bound. So a phase that computation bounds is never slowed down by far.
//! * A clock is kept only if its windows show less energy for a step, and no more slowdown than
//!   allowed. Otherwise the next clock is half-way to it.
//! * Windows under heat, during a switch, or at another clock than was set say nothing about the
//!   clock that was set: they are discarded. Windows under a power cap say what a *setting* comes
//!   to, and nothing about a clock: they are compared, and nothing is predicted from them.
//! * Phases that last less than ten times a switch share one clock.
//! * Nothing is set during a collective. If another tool sets the clock while the governor has set
//!   none yet, or holds one, the governor stops, and does not touch it.

mod follower;
mod search;

pub use follower::{Follower, Reading, Switch};
pub use search::Search;

use std::collections::BTreeMap;

/// A phase that lasts less than this many switches has no clock of its own.
const SWITCHES_IN_PHASE: f64 = 10.0;
/// Turns of phases before their duration is known.
const TURNS: u32 = 3;
/// Windows in a row at another clock than was set, without a cap or heat, before another tool is
/// held to have set it.
const FOREIGN: u32 = 3;

/// The settings. `step` must be above 0, because legal clocks are found by a division by it, and
/// `clocks.0` must be at most `clocks.1`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Highest slowdown: 0.01 for 1%.
    pub most_slowdown: f64,
    /// Lowest and highest clock, MHz.
    pub clocks: (u32, u32),
    /// Distance of legal clocks, MHz.
    pub step: u32,
    /// Shortest duration of a window, seconds: at least ten times as long as what a reading of the
    /// energy counter leaves open.
    pub window: f64,
}

/// What was measured in a part of the time in which one phase ran.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// The phase.
    pub phase: usize,
    /// Seconds.
    pub seconds: f64,
    /// Steps that were done in it.
    pub steps: f64,
    /// Joules.
    pub joules: f64,
    /// The clock that ran, MHz.
    pub mhz: u32,
    /// Whether a power cap held the clock.
    pub is_capped: bool,
    /// Whether heat held it.
    pub is_hot: bool,
}

/// The clock that a phase should have: `None` for the device's own.
pub type Clock = Option<u32>;

/// The governor of a device.
#[derive(Clone, Debug)]
pub struct Governor {
    settings: Settings,
    searches: BTreeMap<usize, Search>,
    turns: Turns,
    foreign: u32,
    has_stopped: bool,
}

/// How long phases last.
#[derive(Clone, Debug, Default)]
struct Turns {
    count: u32,
    seconds: f64,
}

impl Governor {
    /// A governor that has seen nothing.
    pub fn new(settings: Settings) -> Self {
        let (searches, turns) = (BTreeMap::new(), Turns::default());
        Self { settings, searches, turns, foreign: 0, has_stopped: false }
    }

    /// Takes a phase that has ended after so many seconds.
    pub fn turn(&mut self, seconds: f64) {
        self.turns.count += 1;
        self.turns.seconds += seconds;
    }

    /// Whether phases are so short, against the seconds of a switch, that they share one clock.
    pub fn is_blended(&self, switch_seconds: f64) -> bool {
        let Turns { count, seconds } = self.turns;
        count >= TURNS && seconds / f64::from(count) < SWITCHES_IN_PHASE * switch_seconds
    }

    /// Takes a window that was measured while `set` was the clock that was set.
    pub fn observe(&mut self, window: &Window, set: Clock) {
        if self.has_stopped {
            return;
        }
        let is_other = set.is_some_and(|set| window.mhz.abs_diff(set) > self.settings.step);
        let is_held = window.is_capped || window.is_hot;
        self.foreign = if is_other && !is_held { self.foreign + 1 } else { 0 };
        self.has_stopped = self.foreign >= FOREIGN;
        let settings = self.settings;
        let search = self.searches.entry(window.phase).or_insert_with(|| Search::new(settings));
        match set {
            _ if window.is_hot => {}
            Some(_) if is_other && !is_held => {}
            _ => search.take(window, set),
        }
    }

    /// The clock that a phase should have.
    pub fn clock(&self, phase: usize) -> Clock {
        self.searches.get(&phase).and_then(Search::clock)
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Whether another tool set the clock, so that nothing must be set any more.
    pub fn has_stopped(&self) -> bool {
        self.has_stopped
    }

    /// The search of a phase, to report on.
    pub fn search(&self, phase: usize) -> Option<&Search> {
        self.searches.get(&phase)
    }
}
