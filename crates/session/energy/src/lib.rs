//! Energy accounts: joules of each device, phase and iteration of a session.
//!
//! The energy comes from the device's counter ([`apex_machine::energy`]), the windows from the
//! profile. A counter that moves ten times a second says nothing about a kernel and little about a
//! second. So each account has an interval, which holds whatever the power did, and an account
//! whose interval is too wide has no joules: it is too short to say.
//!
//! Invariants:
//! * The joules of a device are of everything that ran on it, not of one program.
//! * Devices that are not known to be the program's (MIG) have no accounts.
//! * Phases have accounts only where one process of the session used the device, and where the
//!   phases follow each other. Otherwise their windows overlap.
//! * Idle power is subtracted only if the session saw the device idle. No account assumes
//!   anything; what another clock would save ([`ClockAdvice`]) is predicted.

mod change;
mod clocks;
mod rates;
mod windows;
mod work;

pub use change::{EnergyChange, EnergyOf};
pub use clocks::{Cause, ClockAdvice, Load};
pub use rates::{Cost, Rates};
pub use work::Work;

use apex_machine::Machine;
use apex_machine::energy::{Counter, Joules, idle_watts};
use apex_profile::{PhaseKind, Profile};
use serde::Serialize;
use windows::{DeviceWindows, Window};

/// Half the width of an account's interval against its joules, beyond which it is too short to say.
pub const TOO_WIDE: f64 = 0.25;

/// The energy of a session.
#[derive(Clone, Debug, Serialize)]
pub struct Energy {
    /// Accounts of the program's devices.
    pub devices: Vec<DeviceEnergy>,
    /// What the program did for it, in units that the names of its ranges state.
    pub work: Vec<Work>,
    /// The rates that costs are computed with.
    pub rates: Rates,
    /// Costs of all devices together; `None` without a rate, or where a device is too short to
    /// say.
    pub cost: Option<Cost>,
    /// Limits of clocks that would save energy, predicted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clocks: Vec<ClockAdvice>,
}

/// The energy of a device.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceEnergy {
    /// Index into [`Profile::devices`].
    pub device: usize,
    /// Its name.
    pub name: String,
    /// Its UUID.
    pub uuid: String,
    /// Power while nothing ran on it, watts, measured; `None` where the session did not see it
    /// idle.
    pub idle_w: Option<f64>,
    /// From the first launch to the end of the last work.
    pub whole: Account,
    /// The phases, in the order of time.
    pub phases: Vec<PhaseEnergy>,
    /// An iteration of the steady state, on average; `None` without iterations.
    pub iteration: Option<IterationEnergy>,
}

/// The energy of a phase.
#[derive(Clone, Debug, Serialize)]
pub struct PhaseEnergy {
    /// Kind of phase.
    pub kind: PhaseKind,
    /// Its account.
    #[serde(flatten)]
    pub account: Account,
}

/// The energy of an iteration.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct IterationEnergy {
    /// Iterations that the mean is over.
    pub count: u64,
    /// Joules of one; `None` if all of them are too short to say.
    pub joules: Option<Estimate>,
    /// The same without idle power.
    pub above_idle: Option<Estimate>,
}

/// A measured value, and the interval that the counter leaves open.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The likeliest value.
    pub value: f64,
    /// Least.
    pub low: f64,
    /// Most.
    pub high: f64,
}

/// The energy of a window.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Account {
    /// Duration of the window.
    pub seconds: f64,
    /// Duration of the part of it that readings surround: the joules are of this part.
    pub counted_seconds: f64,
    /// Joules; `None` if the window is too short to say.
    pub joules: Option<Estimate>,
    /// Joules without idle power; `None` where that is not known.
    pub above_idle: Option<Estimate>,
}

impl Energy {
    /// The energy of a profile's devices. `origin_ns` is the session's start on the clock of
    /// `machine`. `None` where no device of the program has an energy counter.
    pub fn of(machine: &Machine, profile: &Profile, origin_ns: u64, rates: Rates) -> Option<Self> {
        let all = DeviceWindows::of(profile, origin_ns);
        let devices: Vec<_> = all.iter().filter_map(|windows| device(machine, profile, windows)).collect();
        // The work and the price are those of the whole run: a part of its joules says nothing of
        // them.
        let whole = devices.iter().map(|device| device.whole.joules_of_all());
        let joules = whole.sum::<Option<Estimate>>();
        let (work, cost) = (Work::of(profile, joules), joules.and_then(|joules| rates.cost(joules)));
        let clocks = devices.iter().filter_map(|device| clocks::advice(machine, profile, device)).collect();
        (!devices.is_empty()).then_some(Self { devices, work, rates, cost, clocks })
    }
}

fn device(machine: &Machine, profile: &Profile, windows: &DeviceWindows) -> Option<DeviceEnergy> {
    let known = &profile.devices[windows.device];
    let (own, is_joined) = machine.devices_of([known.uuid.as_str()]);
    let index = own.first().copied().filter(|_| is_joined)?;
    let counter = Counter::of(machine, index)?;
    let idle_w = idle_watts(machine, index);
    let account = |window: &Window| Account::of(&counter, window, idle_w);
    let phase = |(kind, window): &(PhaseKind, Window)| PhaseEnergy { kind: *kind, account: account(window) };
    let iteration = windows.iterations.as_ref().map(|(count, window)| {
        let all = account(window);
        let each = |joules: Option<Estimate>| joules.map(|joules| joules.scaled(1.0 / *count as f64));
        // A window that is not counted in full has an unknown number of iterations in its part.
        let [joules, above_idle] = [all.joules, all.above_idle].map(|of| each(of.filter(|_| all.is_whole())));
        IterationEnergy { count: *count, joules, above_idle }
    });
    Some(DeviceEnergy {
        device: windows.device,
        name: known.name.clone(),
        uuid: known.uuid.clone(),
        idle_w,
        whole: account(&windows.whole),
        phases: windows.phases.iter().map(phase).collect(),
        iteration,
    })
}

impl Account {
    fn of(counter: &Counter, window: &Window, idle_w: Option<f64>) -> Self {
        let seconds = window.ns() as f64 / 1e9;
        let Some(counted) = counter.between(window.from_ns, window.to_ns) else {
            return Self { seconds, counted_seconds: 0.0, joules: None, above_idle: None };
        };
        let counted_seconds = counted.ns as f64 / 1e9;
        let joules = Estimate::of(counted);
        let above_idle = joules.zip(idle_w).map(|(joules, idle_w)| joules.without(idle_w * counted_seconds));
        Self { seconds, counted_seconds, joules, above_idle }
    }

    /// Whether readings surround the whole window.
    fn is_whole(&self) -> bool {
        self.counted_seconds >= self.seconds * (1.0 - 1e-9)
    }

    /// Joules of the whole window; `None` if they are known of a part of it alone.
    pub fn joules_of_all(&self) -> Option<Estimate> {
        self.joules.filter(|_| self.is_whole())
    }

    /// Mean power, watts; `None` if the window is too short to say.
    pub fn watts(&self) -> Option<f64> {
        Some(self.joules?.value / self.counted_seconds)
    }
}

impl Estimate {
    /// `None` where the interval is too wide.
    fn of(joules: Joules) -> Option<Self> {
        let Joules { value, low, high, .. } = joules;
        Some(Self { value, low, high }).filter(Self::is_resolved)
    }

    fn scaled(self, by: f64) -> Self {
        Self { value: self.value * by, low: self.low * by, high: self.high * by }
    }

    /// Whether the interval is narrow enough for the value to say something.
    pub fn is_resolved(&self) -> bool {
        self.value > 0.0 && self.high - self.low <= 2.0 * TOO_WIDE * self.value
    }

    /// Less a known amount, but no less than nothing.
    fn without(self, amount: f64) -> Self {
        let [value, low, high] = [self.value, self.low, self.high].map(|of| (of - amount).max(0.0));
        Self { value, low, high }
    }
}

impl std::ops::Add for Estimate {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { value: self.value + other.value, low: self.low + other.low, high: self.high + other.high }
    }
}

impl std::iter::Sum for Estimate {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self { value: 0.0, low: 0.0, high: 0.0 }, |sum, one| sum + one)
    }
}
