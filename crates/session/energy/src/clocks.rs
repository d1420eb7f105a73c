//! Predicts which clock limit would make a device take less energy.
//!
//! These predictions were never checked by changing a clock. The inputs are measured: the power at
//! the device's own clock, how long the device is idle and why, and which kernels are memory-bound.
//! How time and power follow the clock is assumed ([`Assumed`]): a prediction is the result of the
//! likely assumptions, and its interval spans the most and the least favourable ones.
//!
//! The minimum power is that of an H200 (data/h200/energy), so there is advice for an H200 only.

use crate::{DeviceEnergy, Estimate};
use apex_machine::{Machine, Quantity, Summary};
use apex_profile::{Activity, BoundBy, IdleCause, PhaseKind, Profile};
use serde::Serialize;

/// Part of the names of the devices that are advised on.
const DEVICE: &str = "H200";
/// Lowest and highest clock, and the distance between supported clocks, MHz.
const CLOCKS: (u32, u32) = (345, 1980);
const STEP: u32 = 15;
/// Power at the lowest clock without a context, watts, measured.
const LEAST_WATTS: f64 = 81.0;
/// Maximum predicted slowdown, and maximum under the least favourable assumptions.
const SLOWDOWN: f64 = 0.01;
const MOST_SLOWDOWN: f64 = 0.05;
/// Minimum saving for advice.
const WORTH: f64 = 0.03;
/// Maximum share of the time in which a power cap, heat or a setting holds the clock.
const HELD: f64 = 0.05;
/// A device that is idle for less than this share of the time does not wait for the host.
const IDLE: f64 = 0.3;

/// A limit of the clock that would save energy, predicted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClockAdvice {
    /// Index into [`Profile::devices`].
    pub device: usize,
    /// The proposed limit of the clock, MHz.
    pub mhz: u32,
    /// The highest clock, MHz.
    pub highest_mhz: u32,
    /// The lowest clock, MHz.
    pub lowest_mhz: u32,
    /// Share of the energy that it saves, predicted.
    pub saving: Estimate,
    /// Relative increase of the program's duration: 0.01 for 1%, predicted.
    pub slowdown: Estimate,
    /// Why.
    pub because: Cause,
}

/// What makes a lower clock save energy.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The device waits for the host, which launches too slowly, for this share of the time.
    WaitsForHost(f64),
    /// Kernels with this share of the kernels' time are memory-bound.
    Memory(f64),
    /// The device is idle for this share of the time.
    Idle(f64),
}

/// A device under a program, at its own clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Mean power, watts.
    pub watts: f64,
    /// Share of the time in which it is busy.
    pub busy: f64,
    /// Share of the kernels' time that memory-bound kernels take.
    pub memory: f64,
    /// Whether longer kernels take the place of idle time, because the host launches too slowly.
    pub waits_for_host: bool,
}

/// How time and power follow the clock.
#[derive(Clone, Copy, Debug)]
struct Assumed {
    /// Share of the power above the minimum that depends on the clock, and how much less it is if
    /// all kernels are memory-bound.
    core: (f64, f64),
    /// The exponent with which that power follows the clock: 1 at a constant voltage, 3 where the
    /// voltage is proportional to the clock.
    exponent: f64,
    /// The clock from which memory reaches its full bandwidth, as a share of the highest clock.
    knee: f64,
    /// Whether longer kernels can take the place of idle time at all.
    is_hidden: bool,
}

const LIKELY: Assumed = Assumed { core: (0.8, 0.2), exponent: 2.2, knee: 0.75, is_hidden: true };
const FAVOURABLE: Assumed = Assumed { core: (1.0, 0.25), exponent: 3.0, knee: 0.6, is_hidden: true };
const UNFAVOURABLE: Assumed = Assumed { core: (0.6, 0.1), exponent: 1.5, knee: 0.9, is_hidden: false };

impl Assumed {
    /// The saving and the slowdown at this share of the highest clock.
    fn at(&self, load: &Load, part: f64) -> (f64, f64) {
        let kernels = load.memory * (self.knee / part).max(1.0) + (1.0 - load.memory) / part;
        let time = match self.is_hidden && load.waits_for_host {
            true => (load.busy * kernels).max(1.0),
            false => 1.0 + load.busy * (kernels - 1.0),
        };
        let above = (load.watts - LEAST_WATTS).max(0.0);
        let core = above * (self.core.0 - self.core.1 * load.memory);
        // Half of it is spent all the time, half only in cycles that compute.
        let driven = part.powf(self.exponent) * (time + 1.0 / part) / 2.0;
        let joules = (load.watts - core) * time + core * driven;
        (1.0 - joules / load.watts, time - 1.0)
    }
}

impl Load {
    /// The saving and the slowdown at a clock of an H200, predicted.
    pub fn at(&self, mhz: u32) -> (Estimate, Estimate) {
        let part = f64::from(mhz) / f64::from(CLOCKS.1);
        let [likely, best, worst] = [LIKELY, FAVOURABLE, UNFAVOURABLE].map(|of| of.at(self, part));
        let saving = Estimate { value: likely.0, low: worst.0.min(likely.0), high: best.0.max(likely.0) };
        (saving, Estimate { value: likely.1, low: best.1.min(likely.1), high: worst.1.max(likely.1) })
    }

    /// The clock with the largest predicted saving at a predicted slowdown of at most 1%, and of at
    /// most 5% under the least favourable assumptions; `None` if the saving may be zero.
    pub fn best(&self) -> Option<(u32, Estimate, Estimate)> {
        let clocks = (CLOCKS.0..CLOCKS.1).step_by(STEP as usize);
        let all = clocks.map(|mhz| (mhz, self.at(mhz))).filter(|(_, (saving, slowdown))| {
            slowdown.value <= SLOWDOWN && slowdown.high <= MOST_SLOWDOWN && saving.low > 0.0
        });
        let best = all.max_by(|(_, a), (_, b)| a.0.value.total_cmp(&b.0.value));
        best.filter(|(_, (saving, _))| saving.value >= WORTH)
            .map(|(mhz, (saving, slowdown))| (mhz, saving, slowdown))
    }
}

/// Advice for a device that one process used; `None` if a lower clock may save nothing, or too
/// little is known.
pub fn advice(machine: &Machine, profile: &Profile, device: &DeviceEnergy) -> Option<ClockAdvice> {
    let activity = only_activity(profile, device.device)?;
    let is_known = device.name.contains(DEVICE) && runs_freely(machine, &device.uuid);
    let load = load(profile, activity, watts(device)?).filter(|_| is_known)?;
    let (mhz, saving, slowdown) = load.best()?;
    let idle = 1.0 - load.busy;
    let because = match load.waits_for_host {
        true => Cause::WaitsForHost(idle),
        false if load.memory >= idle => Cause::Memory(load.memory),
        false => Cause::Idle(idle),
    };
    let (lowest_mhz, highest_mhz) = CLOCKS;
    Some(ClockAdvice { device: device.device, mhz, highest_mhz, lowest_mhz, saving, slowdown, because })
}

/// Mean power of the steady state, or of the whole time.
fn watts(device: &DeviceEnergy) -> Option<f64> {
    let steady = device.phases.iter().find(|phase| phase.kind == PhaseKind::Steady);
    steady.and_then(|phase| phase.account.watts()).or_else(|| device.whole.watts())
}

fn only_activity(profile: &Profile, device: usize) -> Option<&Activity> {
    let mut on_device = profile.activities.iter().filter(|activity| activity.device == Some(device));
    on_device.next().filter(|_| on_device.next().is_none())
}

/// Whether the device ran at its highest clock, and nothing held it below that for long.
fn runs_freely(machine: &Machine, uuid: &str) -> bool {
    let Some(summary) = Summary::of(machine, [uuid]).filter(|summary| summary.joined) else { return false };
    let Some(device) = summary.devices.first() else { return false };
    let held = [Quantity::PowerCapped, Quantity::ThermalSlowdown, Quantity::ClocksSet];
    let is_free = held.iter().all(|&reason| device.readings.get(reason).is_none_or(|span| span.mean < HELD));
    let clock = device.readings.get(Quantity::SmClock).map(|span| span.most);
    is_free && clock.is_some_and(|most| most >= f64::from(CLOCKS.1 - STEP))
}

fn load(profile: &Profile, activity: &Activity, watts: f64) -> Option<Load> {
    let idle = activity.idle_share?.value;
    let launching =
        [IdleCause::Launching, IdleCause::HostCode].map(|cause| activity.idle_by.get(&cause).copied());
    let launching: f64 = launching.into_iter().flatten().sum();
    let launching = launching - activity.accounts.pauses.time.value - activity.long_gaps_ns;
    let waits_for_host = idle > IDLE && launching > 0.5 * idle * activity.span_ns;
    Some(Load { watts, busy: 1.0 - idle, memory: memory_share(profile, activity.device), waits_for_host })
}

/// Share of the kernels' time on a device that kernels take which are known to be memory-bound.
fn memory_share(profile: &Profile, device: Option<usize>) -> f64 {
    let (mut memory, mut all) = (0.0, 0.0);
    for kernel in profile.kernels.iter().filter(|kernel| kernel.device == device) {
        let bound = kernel.prediction.as_ref().and_then(|said| said.bound.as_ref());
        let took = kernel.gpu_total_ns().unwrap_or(0.0);
        all += took;
        memory += if bound.is_some_and(|bound| bound.by == BoundBy::Memory) { took } else { 0.0 };
    }
    if all > 0.0 { memory / all } else { 0.0 }
}
