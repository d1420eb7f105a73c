//! Turns readings of a device and of a session into calls. It does no input or output itself, so
//! tests run it on a model in virtual time.
//!
//! Invariants: in a dry run no clock is set; no clock is set before the device has been seen at its
//! highest clock; after an end there is no further call.

use crate::{Seen, State, reasons};
use apex_governor::{Clock, Follower, Reading, Search, Settings};

/// Why governing ended before the program did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// In a dry run, this clock would have been set first.
    WouldSet {
        /// Seconds since the start.
        seconds: u64,
        /// MHz.
        mhz: u32,
    },
    /// The device was never seen at its highest clock, so another tool may have locked it. Holds
    /// the highest clock that was seen, MHz.
    NeverHighest(u32),
    /// Another tool set the clock.
    Foreign,
    /// NVML refused: no permission.
    NoPermission,
    /// NVML refused for another reason, or lost the device.
    Refused,
    /// The watchdog is gone.
    NoWatchdog,
}

/// The result for one phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OfPhase {
    /// The best clock that was found, MHz; `None` if no lower clock was better.
    pub clock: Clock,
    /// Share of a launch's energy that it saves, measured.
    pub saving: f64,
    /// Relative increase of a launch's duration: 0.01 for 1%, measured.
    pub slowdown: f64,
    /// Whether the search has ended.
    pub is_found: bool,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Why it ended before the program did.
    pub ended: Option<Ended>,
    /// Calls that set or released the clock.
    pub calls: u32,
    /// The phases.
    pub phases: Vec<OfPhase>,
    /// Share of readings in which a power cap, heat, an idle GPU or another limit held the clock.
    pub held: f64,
    /// Whether the clock could not be released at the end.
    pub is_left: bool,
}

/// Follows a device and a session.
#[derive(Clone, Debug)]
pub struct Pilot {
    follower: Follower,
    settings: Settings,
    is_dry: bool,
    /// The highest clock that was seen while none was set, MHz.
    highest_seen: u32,
    set: Clock,
    /// The last look: millijoules, and what the session showed.
    last: Option<(u64, Seen)>,
    ended: Option<Ended>,
    calls: u32,
    phases: usize,
    /// Readings under a limit, and all of them.
    held: (u64, u64),
    is_above: bool,
}

impl Pilot {
    /// A pilot of a device whose clock nobody has set. In a dry run it makes no call.
    pub fn new(settings: Settings, is_dry: bool) -> Self {
        Self {
            follower: Follower::new(settings),
            settings,
            is_dry,
            highest_seen: 0,
            set: None,
            last: None,
            ended: None,
            calls: 0,
            phases: 0,
            held: (0, 0),
            is_above: false,
        }
    }

    /// Takes a reading at this moment, seconds, with what a look showed if there was one. Returns
    /// the call to make at once, if any.
    pub fn step(&mut self, at: f64, state: State, look: Option<(u64, Seen)>) -> Option<Clock> {
        self.see(state);
        self.last = look.or(self.last);
        let (millijoules, seen) = self.last.filter(|_| self.ended.is_none())?;
        self.phases = self.phases.max(seen.phase + 1);
        let now = Reading {
            at,
            mhz: state.mhz,
            millijoules,
            is_capped: state.reasons & reasons::POWER != 0,
            is_hot: is_limited(state.reasons),
            is_locked: state.reasons & reasons::SETTING != 0,
            phase: seen.phase,
            steps: seen.steps,
            // What runs is known at a look alone.
            is_collective: look.is_none_or(|(_, seen)| seen.is_collective),
        };
        let switch = self.follower.follow(&now);
        if self.follower.has_stopped() {
            self.ended = Some(Ended::Foreign);
        }
        self.allow(at, switch?.to)
    }

    fn see(&mut self, state: State) {
        if self.set.is_none() {
            self.highest_seen = self.highest_seen.max(state.mhz);
        }
        self.is_above = self.set.is_some_and(|set| state.mhz > set + self.settings.step);
        let is_held = is_limited(state.reasons) || state.reasons & reasons::POWER != 0;
        self.held = (self.held.0 + u64::from(is_held), self.held.1 + 1);
    }

    /// The call, unless it is a dry run, or another tool may hold the clock.
    fn allow(&mut self, at: f64, to: Clock) -> Option<Clock> {
        let is_free = self.highest_seen + self.settings.step >= self.settings.clocks.1;
        self.ended = match to {
            Some(_) if !is_free => Some(Ended::NeverHighest(self.highest_seen)),
            Some(mhz) if self.is_dry => Some(Ended::WouldSet { seconds: at.round() as u64, mhz }),
            _ => None,
        };
        if self.ended.is_some() {
            return None;
        }
        (self.set, self.calls) = (to, self.calls + 1);
        Some(to)
    }

    /// Ends governing: no clock is set from now on.
    pub fn end(&mut self, why: Ended) {
        self.ended.get_or_insert(why);
    }

    /// Whether governing has ended.
    pub fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Whether another tool has replaced the clock, which then is not released: the device runs
    /// faster than the clock that was set.
    pub fn is_replaced(&self) -> bool {
        self.ended == Some(Ended::Foreign) && self.is_above
    }

    /// The result so far.
    pub fn outcome(&self) -> Outcome {
        let governor = self.follower.governor();
        let of_phase = |search: &Search| OfPhase {
            clock: search.best(),
            saving: search.saving(),
            slowdown: search.best().and_then(|best| search.slowdown(best)).unwrap_or(0.0),
            is_found: search.has_ended(),
        };
        let phases = (0..self.phases).filter_map(|phase| governor.search(phase)).map(of_phase).collect();
        let held = self.held.0 as f64 / self.held.1.max(1) as f64;
        Outcome { ended: self.ended, calls: self.calls, phases, held, is_left: false }
    }
}

/// Whether something other than a setting or a power cap holds the clock. This includes an idle
/// device, whose clock says nothing.
fn is_limited(bits: u64) -> bool {
    bits & !(reasons::SETTING | reasons::POWER) != 0
}
