//! A GPU whose clocks may be set, in virtual time.
//!
//! [`Gpu`] has what a governor meets: a lock that takes effect after a delay, legal clocks, power
//! that follows the work with a lag, an energy counter that is set ten times a second at an unknown
//! phase, a power cap and heat that hold the clock below the lock, rights, a second setter, a lost
//! device. [`Workload`] says what runs on it.
//!
//! Invariants: the same seed gives the same readings; the exact energy and the exact work are known
//! ([`Gpu::exact_joules`], [`Gpu::done`]), so that what a governor believes can be compared with
//! what is true.
//!
//! Power at the device's own clock of four workloads is what was measured on an H200
//! (data/h200/energy); all others are assumed. How power divides, and what becomes of it at other
//! clocks, is *assumed*: no clock of a real one was changed.

mod workload;

pub use workload::{Phase, Workload};

use apex_random::Random;

/// Highest clock, MHz.
pub const HIGHEST: u32 = 1980;
/// Lowest clock, MHz.
pub const LOWEST: u32 = 345;
/// Distance of legal clocks, MHz.
pub const STEP: u32 = 15;
/// Virtual time of a step of the model, seconds.
pub const TICK: f64 = 0.005;
/// Power cap, watts.
const CAP: f64 = 700.0;
/// Degrees from which heat lowers the clock.
const HOT: f64 = 87.0;
/// Maximum change of the clock in a tick, in steps of [`STEP`].
const STEPS_IN_TICK: u32 = 8;
/// Degrees that a watt adds in the end.
const HEATING: f64 = 0.06;
/// Time constant of warming, seconds.
const WARM_UP: f64 = 20.0;

/// The reasons for low clocks that are modelled, by their bits in `nvml.h`.
pub mod reasons {
    /// Somebody's setting holds the clock.
    pub const SETTING: u64 = 0x2;
    /// The power cap holds it.
    pub const POWER_CAP: u64 = 0x4;
    /// Heat holds it.
    pub const HEAT: u64 = 0x20;
}

/// Why a call failed, as NVML says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// `NVML_ERROR_NO_PERMISSION`.
    NoPermission,
    /// `NVML_ERROR_INVALID_ARGUMENT`: no legal clock.
    InvalidArgument,
    /// `NVML_ERROR_GPU_IS_LOST`.
    Lost,
}

/// A planted fault, or a circumstance, of the device.
#[derive(Clone, Copy, Debug, Default)]
pub struct Circumstances {
    /// The caller may set clocks.
    pub may_set: bool,
    /// Degrees of the air.
    pub air: f64,
    /// When another tool locks the clock, seconds, and at what.
    pub other_setter: Option<(f64, u32)>,
    /// When the driver loses the device, seconds.
    pub lost_at: Option<f64>,
}

/// What NVML tells at a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// Virtual time, seconds.
    pub at: f64,
    /// The clock that runs, MHz.
    pub mhz: u32,
    /// The energy counter, millijoules.
    pub millijoules: u64,
    /// Power, watts: a mean over 25 ms of each 100 ms, which lags.
    pub watts: f64,
    /// Reasons for low clocks.
    pub reasons: u64,
}

/// The device.
#[derive(Clone, Debug)]
pub struct Gpu {
    at: f64,
    clock: f64,
    lock: Option<u32>,
    /// A call that has not taken effect: when it does, and the lock.
    pending: Option<(f64, Option<u32>)>,
    delays: Random,
    degrees: f64,
    joules: f64,
    shown_joules: f64,
    /// When the counter is set next.
    counter_at: f64,
    shown_watts: f64,
    reasons: u64,
    circumstances: Circumstances,
    work: Workload,
    phase: usize,
    phase_until: f64,
    done: Vec<f64>,
    calls: Vec<(f64, bool)>,
}

impl Gpu {
    /// A device on which a workload begins. The seed draws the counter's phase and the delays of
    /// calls.
    pub fn new(work: Workload, circumstances: Circumstances, seed: u64) -> Self {
        let mut phase = Random::named(seed, "counter");
        Self {
            at: 0.0,
            clock: f64::from(HIGHEST),
            lock: None,
            pending: None,
            delays: Random::named(seed, "delays"),
            degrees: circumstances.air + 15.0,
            joules: 0.0,
            shown_joules: 0.0,
            counter_at: phase.uniform() * 0.1,
            shown_watts: 0.0,
            reasons: 0,
            circumstances,
            phase: 0,
            phase_until: work.phases[0].seconds,
            done: vec![0.0; work.phases.len()],
            work,
            calls: Vec::new(),
        }
    }

    /// Locks the clock, or releases it. It takes effect 5 to 30 ms later, or up to 500 ms later in
    /// 2 of 100 calls.
    ///
    /// # Errors
    /// As NVML refuses.
    pub fn lock(&mut self, mhz: Option<u32>) -> Result<(), Refused> {
        self.alive()?;
        if !self.circumstances.may_set {
            return Err(Refused::NoPermission);
        }
        if mhz.is_some_and(|mhz| !(LOWEST..=HIGHEST).contains(&mhz) || !(mhz - LOWEST).is_multiple_of(STEP)) {
            return Err(Refused::InvalidArgument);
        }
        let is_slow = self.delays.uniform() < 0.02;
        let part = self.delays.uniform();
        let delay = if is_slow { 0.03 + 0.47 * part } else { 0.005 + 0.025 * part };
        self.pending = Some((self.at + delay, mhz));
        self.calls.push((self.at, self.work.phases[self.phase].is_collective));
        Ok(())
    }

    /// Reads the device.
    ///
    /// # Errors
    /// If it is lost.
    pub fn read(&self) -> Result<Reading, Refused> {
        self.alive()?;
        let millijoules = (self.shown_joules * 1e3) as u64;
        let (mhz, watts) = (self.clock.round() as u32, self.shown_watts);
        Ok(Reading { at: self.at, mhz, millijoules, watts, reasons: self.reasons })
    }

    /// The phase that runs, and the steps of each phase that are done.
    pub fn done(&self) -> (usize, &[f64]) {
        (self.phase, &self.done)
    }

    /// Whether the running phase is a collective.
    pub fn is_in_collective(&self) -> bool {
        self.work.phases[self.phase].is_collective
    }

    /// Virtual time, seconds.
    pub fn now(&self) -> f64 {
        self.at
    }

    /// The true energy, joules.
    pub fn exact_joules(&self) -> f64 {
        self.joules
    }

    /// The lock that is in effect or will be.
    pub fn locked(&self) -> Option<u32> {
        self.pending.map_or(self.lock, |(_, lock)| lock)
    }

    /// Calls that set the clock: when, and whether a collective ran.
    pub fn calls(&self) -> &[(f64, bool)] {
        &self.calls
    }

    /// Lets the time pass.
    pub fn run(&mut self, seconds: f64) {
        let until = self.at + seconds;
        while self.at + TICK / 2.0 < until {
            self.tick();
        }
    }

    fn alive(&self) -> Result<(), Refused> {
        match self.circumstances.lost_at {
            Some(lost) if self.at >= lost => Err(Refused::Lost),
            _ => Ok(()),
        }
    }

    fn tick(&mut self) {
        self.at += TICK;
        self.take_effect();
        let phase = self.work.phases[self.phase];
        let watts = self.clock_for(&phase);
        self.joules += watts * TICK;
        let warm = self.circumstances.air + 15.0 + HEATING * watts;
        self.degrees += (warm - self.degrees) * TICK / WARM_UP;
        self.shown_watts += (watts - self.shown_watts) * TICK / 0.05;
        self.done[self.phase] += TICK / phase.step_seconds(self.clock);
        if self.at >= self.counter_at {
            self.shown_joules = self.joules;
            self.counter_at += 0.1;
        }
        let over = self.done[self.phase] - self.phase_until;
        if over >= 0.0 {
            self.turn(over * phase.step_seconds(self.clock));
        }
    }

    /// Begins the next phase, so many seconds ago.
    fn turn(&mut self, ago: f64) {
        self.done[self.phase] = self.phase_until;
        self.phase = (self.phase + 1) % self.work.phases.len();
        let next = &self.work.phases[self.phase];
        self.phase_until = self.done[self.phase] + next.seconds / next.step_seconds(f64::from(HIGHEST));
        self.done[self.phase] += ago / next.step_seconds(self.clock);
    }

    /// Lets calls take effect that are due.
    fn take_effect(&mut self) {
        if let Some((_, mhz)) =
            self.circumstances.other_setter.filter(|(at, _)| (*at..*at + TICK).contains(&self.at))
        {
            self.lock = Some(mhz);
        }
        if let Some((_, lock)) = self.pending.filter(|(due, _)| self.at >= *due) {
            (self.lock, self.pending) = (lock, None);
        }
    }

    /// Moves the clock to where the lock, the cap and heat allow, and sets the reasons; returns the
    /// power.
    fn clock_for(&mut self, phase: &Phase) -> f64 {
        let wanted = self.lock.unwrap_or(HIGHEST).min(HIGHEST);
        let heat = if self.degrees > HOT { ((self.degrees - HOT) * 4.0) as u32 * STEP } else { 0 };
        let allowed = wanted.saturating_sub(heat).max(LOWEST);
        let degrees = self.degrees;
        let fits = |clock: u32| phase.watts(f64::from(clock), degrees) <= CAP;
        let mut clock = self.clock as u32;
        for _ in 0..STEPS_IN_TICK {
            if clock > allowed || clock > LOWEST && !fits(clock) {
                clock -= STEP;
            } else if clock < allowed && fits(clock + STEP) {
                clock += STEP;
            } else {
                break;
            }
        }
        let is_capped = clock < allowed && !fits(clock + STEP);
        self.reasons = [
            (self.lock.is_some(), reasons::SETTING),
            (is_capped, reasons::POWER_CAP),
            (heat > 0, reasons::HEAT),
        ]
        .into_iter()
        .filter_map(|(holds, reason)| holds.then_some(reason))
        .sum();
        self.clock = f64::from(clock);
        phase.watts(self.clock, self.degrees)
    }
}

/// Seconds and joules of a step of a phase at a lock, once the device is warm: the truth that a
/// search over all clocks needs.
pub fn steady(phase: &Phase, lock: Option<u32>, air: f64) -> (f64, f64) {
    let mut degrees = air + 15.0;
    let mut found = (0.0, 0.0);
    for _ in 0..20 {
        let mut clock = lock.unwrap_or(HIGHEST).min(HIGHEST);
        while clock > LOWEST && phase.watts(f64::from(clock), degrees) > CAP {
            clock -= STEP;
        }
        let watts = phase.watts(f64::from(clock), degrees);
        let seconds = phase.step_seconds(f64::from(clock));
        degrees = air + 15.0 + HEATING * watts;
        found = (seconds, watts * seconds);
    }
    found
}
