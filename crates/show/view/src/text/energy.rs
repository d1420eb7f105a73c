//! Energy accounts in words.

use apex_energy::{
    Account, Cause, ClockAdvice, Cost, DeviceEnergy, Energy, EnergyChange, EnergyOf, Estimate,
    IterationEnergy, PhaseEnergy, Work,
};
use apex_profile::units;

/// Maximum number of devices in the text; a document has all.
const DEVICES: usize = 8;
const TOO_SHORT: &str = "too short for the energy counter, which moves ten times a second";
/// Windows of so many seconds are long enough if the counter was read in time.
const LONG_SECONDS: f64 = 3.0;

const UNTOLD_COST: &str =
    "The cost of the energy is unknown: the joules of the whole run are not known of each GPU.";

/// Says that what the energy costs is unknown without readings.
pub fn cost_without_readings() -> String {
    "The cost of the energy is unknown: no energy counter of the program's GPUs was read.".to_owned()
}

/// Sentences for a report, one for each device and one for the cost.
pub fn sentences(energy: &Energy) -> Vec<String> {
    let mut sentences: Vec<String> = energy.devices.iter().take(DEVICES).map(of_device).collect();
    if energy.devices.len() > DEVICES {
        let more = energy.devices.len() - DEVICES;
        sentences.push(format!("Energy of {more} more devices: `apex report --json` has it."));
    }
    sentences.extend(energy.work.iter().filter_map(of_work));
    let untold = (energy.rates.any() && energy.cost.is_none()).then(|| UNTOLD_COST.to_owned());
    sentences.extend(energy.cost.as_ref().map(of_cost).or(untold));
    sentences.extend(energy.clocks.iter().take(DEVICES).filter_map(|advice| of_clock(energy, advice)));
    sentences
}

/// A sentence for a comparison.
pub fn change(change: &EnergyChange) -> String {
    let of = match change.of {
        EnergyOf::Iteration => "an iteration",
        EnergyOf::Run => "a run",
    };
    let [before, after] = [change.before, change.after].map(between);
    let ratio = units::percent(change.ratio);
    let resolved = match change.is_resolved {
        true => "",
        false => "; the intervals of the energy counter meet, so that this may be no difference",
    };
    format!("Energy of {of}, measuredᵐ: {before} → {after}, {ratio} of that before{resolved}.")
}

/// The limit of a clock that would save energy, with the command that sets it.
fn of_clock(energy: &Energy, advice: &ClockAdvice) -> Option<String> {
    let ClockAdvice { mhz, highest_mhz, lowest_mhz, saving, slowdown, because, .. } = advice;
    let device = energy.devices.iter().find(|device| device.device == advice.device)?;
    let is_plain = device.uuid.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let index = if is_plain { &device.uuid } else { "N" };
    Some(format!(
        "Predictedᵖ, not tried: at {mhz} MHz at most (of {highest_mhz}), {} would take {} less energy \
         ({} to {}) and {}, because {}. `sudo nvidia-smi -i {index} -lgc {lowest_mhz},{mhz}` sets that \
         for all programs on it, `-rgc` in its place releases it; `apex power run` looks for the best clock.",
        named(device),
        predicted_percent(saving.value),
        predicted_percent(saving.low),
        predicted_percent(saving.high),
        slower(*slowdown),
        cause(*because),
    ))
}

/// `1% more time (0% to 5%)`; where nothing else is assumed than that kernels take the longer the
/// slower the clock is, the interval is empty, and the sentence says so.
fn slower(slowdown: Estimate) -> String {
    let [value, low, high] = [slowdown.value, slowdown.low, slowdown.high].map(predicted_percent);
    match low == high {
        true => format!("{value} more time, if its kernels slow down as the clock does"),
        false => format!("{value} more time ({low} to {high})"),
    }
}

fn cause(because: Cause) -> String {
    match because {
        Cause::WaitsForHost(share) => format!("it waits for the host {} of the time", most_percent(share)),
        Cause::Memory(share) => format!("memory bounds {} of its kernels' time", most_percent(share)),
        Cause::Idle(share) => format!("it is idle {} of the time", most_percent(share)),
    }
}

/// Predictions have no decimals, and what is above nothing is not named as nothing.
fn predicted_percent(share: f64) -> String {
    match share {
        share if share > 0.0 && share < 0.001 => "<0.1%".to_owned(),
        share if share > 0.0 && share < 0.0095 => format!("{:.1}%", share * 100.0),
        share => format!("{:.0}%", share * 100.0),
    }
}

/// What is below all is not named as all.
fn most_percent(share: f64) -> String {
    match share {
        share if (0.995..1.0).contains(&share) => ">99%".to_owned(),
        share => predicted_percent(share),
    }
}

/// `NVIDIA H200 (GPU-01010101)`.
fn named(device: &DeviceEnergy) -> String {
    let name = if device.name.is_empty() { "device" } else { &device.name };
    let uuid = device.uuid.chars().take(12).collect::<String>();
    format!("{name} ({uuid})")
}

fn of_device(device: &DeviceEnergy) -> String {
    let parts = [of_whole(device)]
        .into_iter()
        .chain(device.phases.iter().filter_map(of_phase))
        .chain(device.iteration.as_ref().and_then(of_iteration));
    let parts = parts.collect::<Vec<_>>().join("; ");
    format!("Energy of {}, measuredᵐ with all processes on it: {parts}.", named(device))
}

fn of_whole(device: &DeviceEnergy) -> String {
    let account = &device.whole;
    let Some(told) = of_account(account) else { return untold(account) };
    let idle = device.idle_w.zip(account.above_idle.filter(Estimate::is_resolved));
    let idle = idle.map_or(String::new(), |(idle_w, above)| {
        format!(", {} more than at its idle power of {idle_w:.0} W", between(above))
    });
    format!("{told}{idle}")
}

/// The reason for which a window has no joules.
fn untold(account: &Account) -> String {
    if account.seconds < LONG_SECONDS {
        return TOO_SHORT.to_owned();
    }
    let time = units::time(account.seconds * 1e9);
    format!("unknown: the energy counter was read too seldom in {time}")
}

/// `1.92 kJ (1.85 kJ to 1.99 kJ) in 4.00 s, 480 W`, with the part of the time that was not counted.
fn of_account(account: &Account) -> Option<String> {
    let (estimate, watts) = (account.joules?, account.watts()?);
    let counted = units::time(account.counted_seconds * 1e9);
    let of_all = match account.seconds - account.counted_seconds > 0.01 * account.seconds {
        true => format!(" that were counted, of {}", units::time(account.seconds * 1e9)),
        false => String::new(),
    };
    Some(format!("{} in {counted}{of_all}, {watts:.0} W", between(estimate)))
}

/// Phases that are too short to say are left out: most start-ups and ends are.
fn of_phase(phase: &PhaseEnergy) -> Option<String> {
    Some(format!("{} {}", phase.kind.name(), of_account(&phase.account)?))
}

fn of_iteration(iteration: &IterationEnergy) -> Option<String> {
    let above = iteration.above_idle.filter(Estimate::is_resolved);
    let above = above.map_or(String::new(), |above| format!(", {} above idle", between(above)));
    let count = units::counted(iteration.count, "iteration", "iterations");
    Some(format!("{} in each of {count}{above}", between(iteration.joules?)))
}

/// `12.0 tokens for each joule (11.1 to 13.0), measuredᵐ.`
fn of_work(work: &Work) -> Option<String> {
    let Estimate { value, low, high } = work.per_joule?;
    let [value, low, high] = [value, low, high].map(digits);
    Some(format!("{value} {} for each joule ({low} to {high}), measuredᵐ.", work.unit))
}

fn of_cost(cost: &Cost) -> String {
    let money = cost.money.map(|money| format!("{} at the price that you gave", digits(money.value)));
    let grams = cost.co2_grams.map(|grams| format!("{} g of CO₂", digits(grams.value)));
    let parts: Vec<String> = [money, grams].into_iter().flatten().collect();
    format!("This energy costs {}, computedᶜ.", parts.join(" and "))
}

/// Three significant digits; of small values, too.
fn digits(value: f64) -> String {
    match value.abs() {
        x if x == 0.0 || x >= 0.01 => units::ratio(value),
        _ => format!("{value:.2e}"),
    }
}

/// `1.92 kJ (1.85 kJ to 1.99 kJ)`.
fn between(estimate: Estimate) -> String {
    let [value, low, high] = [estimate.value, estimate.low, estimate.high].map(joules);
    format!("{value} ({low} to {high})")
}

/// `1.50 kJ`.
pub fn joules(joules: f64) -> String {
    let (scale, unit) = match joules {
        x if x < 1.0 => (1e-3, "mJ"),
        x if x < 1e3 => (1.0, "J"),
        x if x < 1e6 => (1e3, "kJ"),
        _ => (1e6, "MJ"),
    };
    format!("{} {unit}", units::ratio(joules / scale))
}
