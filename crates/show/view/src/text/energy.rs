//! Energy accounts in words.

use apex_energy::{
    Account, Cost, DeviceEnergy, Energy, EnergyChange, EnergyOf, Estimate, IterationEnergy, PhaseEnergy, Work,
};
use apex_profile::units;

/// Maximum number of devices in the text; a document has all.
const DEVICES: usize = 8;
const TOO_SHORT: &str = "too short for the energy counter, which moves ten times a second";

/// Sentences for a report, one for each device and one for the cost.
pub fn sentences(energy: &Energy) -> Vec<String> {
    let mut sentences: Vec<String> = energy.devices.iter().take(DEVICES).map(of_device).collect();
    if energy.devices.len() > DEVICES {
        let more = energy.devices.len() - DEVICES;
        sentences.push(format!("Energy of {more} more devices: `apex report --json` has it."));
    }
    sentences.extend(energy.work.iter().filter_map(of_work));
    sentences.extend(energy.cost.as_ref().map(of_cost));
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

fn of_device(device: &DeviceEnergy) -> String {
    let name = if device.name.is_empty() { "device" } else { &device.name };
    let uuid = device.uuid.chars().take(12).collect::<String>();
    let parts = [of_whole(device)]
        .into_iter()
        .chain(device.phases.iter().filter_map(of_phase))
        .chain(device.iteration.as_ref().and_then(of_iteration));
    let parts = parts.collect::<Vec<_>>().join("; ");
    format!("Energy of {name} ({uuid}), measuredᵐ with all processes on it: {parts}.")
}

fn of_whole(device: &DeviceEnergy) -> String {
    let account = &device.whole;
    let Some(told) = of_account(account) else { return TOO_SHORT.to_owned() };
    let idle = device.idle_w.zip(account.above_idle);
    let idle = idle.map_or(String::new(), |(idle_w, above)| {
        format!(", {} more than at its idle power of {idle_w:.0} W", joules(above.value))
    });
    format!("{told}{idle}")
}

/// `1.92 kJ (1.85–1.99) in 4.00 s, 480 W`, with the part of the time that was not counted.
fn of_account(account: &Account) -> Option<String> {
    let (estimate, watts) = (account.joules?, account.watts()?);
    let counted = units::time(account.counted_seconds * 1e9);
    let of_all = match account.seconds - account.counted_seconds > 0.01 * account.seconds {
        true => format!(" of {} that were counted", units::time(account.seconds * 1e9)),
        false => String::new(),
    };
    Some(format!("{} in {counted}{of_all}, {watts:.0} W", between(estimate)))
}

/// Phases that are too short to say are left out: most start-ups and ends are.
fn of_phase(phase: &PhaseEnergy) -> Option<String> {
    Some(format!("{} {}", phase.kind.name(), of_account(&phase.account)?))
}

fn of_iteration(iteration: &IterationEnergy) -> Option<String> {
    let above =
        iteration.above_idle.map_or(String::new(), |above| format!(", {} above idle", joules(above.value)));
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

#[cfg(test)]
mod tests {
    use super::*;
    use apex_energy::Rates;
    use apex_profile::PhaseKind;

    fn estimate(value: f64) -> Option<Estimate> {
        Some(Estimate { value, low: value * 0.9, high: value * 1.1 })
    }

    fn account(seconds: f64, joules: Option<Estimate>) -> Account {
        Account { seconds, counted_seconds: seconds, joules, above_idle: joules }
    }

    fn energy() -> Energy {
        let steady = PhaseEnergy { kind: PhaseKind::Steady, account: account(3.0, estimate(1500.0)) };
        let short = PhaseEnergy { kind: PhaseKind::Warmup, account: account(0.1, None) };
        let iteration = IterationEnergy { count: 500, joules: estimate(3.0), above_idle: estimate(2.5) };
        let device = DeviceEnergy {
            device: 0,
            name: "NVIDIA H200".into(),
            uuid: "GPU-01010101-02".into(),
            idle_w: Some(75.0),
            whole: account(4.0, estimate(1920.0)),
            phases: vec![short, steady],
            iteration: Some(iteration),
        };
        Energy { devices: vec![device], work: Vec::new(), rates: Rates::default(), cost: None }
    }

    #[test]
    fn a_device_its_phases_and_an_iteration_are_told() {
        assert_eq!(
            sentences(&energy()),
            [
                "Energy of NVIDIA H200 (GPU-01010101), measuredᵐ with all processes on it: 1.92 kJ (1.73 kJ to \
              2.11 kJ) in 4.00 s, 480 W, 1.92 kJ more than at its idle power of 75 W; steady state 1.50 kJ \
              (1.35 kJ to 1.65 kJ) in 3.00 s, 500 W; 3.00 J (2.70 J to 3.30 J) in each of 500 iterations, \
              2.50 J above idle."
            ]
        );
    }

    #[test]
    fn what_the_counter_does_not_resolve_or_cover_is_said() {
        let mut energy = energy();
        energy.devices[0].whole.seconds = 8.0;
        assert!(sentences(&energy)[0].contains("in 4.00 s of 8.00 s that were counted, 480 W"));
        energy.devices[0].whole = account(0.1, None);
        (energy.devices[0].phases, energy.devices[0].iteration) = (Vec::new(), None);
        assert!(sentences(&energy)[0].ends_with(&format!("on it: {TOO_SHORT}.")));
    }

    #[test]
    fn costs_are_told_where_there_is_a_rate() {
        let rates = Rates { price_per_kwh: Some(0.3), grams_per_kwh: Some(400.0) };
        let mut energy = energy();
        energy.cost = rates.cost(Estimate { value: 3.6e6, low: 3.6e6, high: 3.6e6 });
        let told = sentences(&energy).pop().unwrap();
        assert_eq!(told, "This energy costs 0.30 at the price that you gave and 400 g of CO₂, computedᶜ.");
        energy.cost = rates.cost(Estimate { value: 36.0, low: 30.0, high: 40.0 });
        assert!(sentences(&energy)[1].contains("3.00e-6 at the price"));
    }

    #[test]
    fn work_is_told_in_its_unit() {
        let mut energy = energy();
        let per_joule = estimate(12.0);
        energy.work = vec![Work { unit: "tokens".into(), count: 24_000.0, per_joule }];
        assert_eq!(sentences(&energy)[1], "12.0 tokens for each joule (10.8 to 13.2), measuredᵐ.");
        energy.work[0].per_joule = None;
        assert_eq!(sentences(&energy).len(), 1);
    }

    #[test]
    fn a_change_says_whether_the_counter_resolves_it() {
        let mut after = energy();
        after.devices[0].iteration.as_mut().unwrap().joules = estimate(1.5);
        let told = change(&EnergyChange::of(&[energy()], &[after]).unwrap());
        assert_eq!(
            told,
            "Energy of an iteration, measuredᵐ: 3.00 J (2.70 J to 3.30 J) → 1.50 J (1.35 J to 1.65 J), \
             50.0% of that before."
        );
        let told = change(&EnergyChange::of(&[energy()], &[energy()]).unwrap());
        assert!(
            told.ends_with(
                "100% of that before; the intervals of the energy counter meet, so that this may \
             be no difference."
            ),
            "{told}"
        );
        let mut runs = [energy(), energy()];
        runs[1].devices[0].iteration = None;
        assert!(change(&EnergyChange::of(&[energy()], &runs).unwrap()).starts_with("Energy of a run, "));
        runs[1].devices[0].whole.joules = None;
        assert!(EnergyChange::of(&[energy()], &runs).is_none() && EnergyChange::of(&[], &[]).is_none());
    }

    #[test]
    fn joules_have_a_unit_that_fits() {
        let told = [0.0125, 3.0, 1500.0, 2.5e6].map(joules);
        assert_eq!(told, ["12.5 mJ", "3.00 J", "1.50 kJ", "2.50 MJ"]);
    }
}
