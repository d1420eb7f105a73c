//! Energy accounts in words.

use apex_energy::{
    Account, Cause, ClockAdvice, DeviceEnergy, Energy, EnergyChange, Estimate, IterationEnergy, PhaseEnergy,
    Rates, Work,
};
use apex_profile::PhaseKind;
use apex_view::text::energy::{change, joules, sentences};

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
    Energy {
        devices: vec![device],
        work: Vec::new(),
        rates: Rates::default(),
        cost: None,
        clocks: Vec::new(),
    }
}

#[test]
fn a_device_its_phases_and_an_iteration_are_told() {
    assert_eq!(
        sentences(&energy()),
        ["Energy of NVIDIA H200 (GPU-01010101), measuredᵐ with all processes on it: 1.92 kJ (1.73 kJ to \
          2.11 kJ) in 4.00 s, 480 W, 1.92 kJ (1.73 kJ to 2.11 kJ) more than at its idle power of 75 W; \
          steady state 1.50 kJ \
          (1.35 kJ to 1.65 kJ) in 3.00 s, 500 W; 3.00 J (2.70 J to 3.30 J) in each of 500 iterations, \
          2.50 J (2.25 J to 2.75 J) above idle."]
    );
}

#[test]
fn what_the_counter_does_not_resolve_or_cover_is_said() {
    let mut energy = energy();
    energy.devices[0].whole.seconds = 8.0;
    assert!(sentences(&energy)[0].contains("in 4.00 s that were counted, of 8.00 s, 480 W"));
    energy.devices[0].whole = account(0.1, None);
    (energy.devices[0].phases, energy.devices[0].iteration) = (Vec::new(), None);
    assert!(
        sentences(&energy)[0]
            .ends_with("on it: too short for the energy counter, which moves ten times a second.")
    );
    energy.devices[0].whole.seconds = 6.0;
    assert!(sentences(&energy)[0].contains("unknown: the energy counter was read too seldom in 6.00 s"));
}

#[test]
fn joules_above_idle_that_may_be_none_are_not_told() {
    let mut energy = energy();
    energy.devices[0].whole.above_idle = Some(Estimate { value: 2.39, low: 0.0, high: 70.3 });
    energy.devices[0].iteration = None;
    assert!(!sentences(&energy)[0].contains("idle power"), "{:?}", sentences(&energy));
}

#[test]
fn a_rate_without_joules_is_said_to_tell_nothing() {
    let mut energy = energy();
    energy.rates.price_per_kwh = Some(0.3);
    let told = sentences(&energy).pop().unwrap();
    assert!(told.starts_with("The cost of the energy is unknown: "), "{told}");
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

#[test]
fn a_clock_that_would_save_energy_is_told_last_and_as_predicted() {
    let mut energy = energy();
    let saving = Estimate { value: 0.117, low: 0.014, high: 0.195 };
    let slowdown = Estimate { value: 0.0, low: 0.0, high: 0.05 };
    let because = Cause::WaitsForHost(0.86);
    let (mhz, highest_mhz, lowest_mhz) = (1470, 1980, 345);
    energy.clocks = vec![ClockAdvice { device: 0, mhz, highest_mhz, lowest_mhz, saving, slowdown, because }];
    assert_eq!(
        sentences(&energy)[1..],
        [
            "Predictedᵖ, not tried: at 1470 MHz at most (of 1980), NVIDIA H200 (GPU-01010101) would take 12% less \
          energy (1% to 20%) and 0% more time (0% to 5%), because it waits for the host 86% of the time. `sudo \
          nvidia-smi -i GPU-01010101-02 -lgc 345,1470` sets that for all programs on it, `-rgc` in its place \
          releases it; `apex power run` looks for the best clock."
        ]
    );
    // Ends that are the same are no interval, and little is not nothing, nor most all.
    energy.clocks[0].saving.low = 0.0002;
    energy.clocks[0].slowdown = Estimate { value: 0.0098, low: 0.0098, high: 0.0098 };
    energy.clocks[0].because = Cause::Idle(0.9976);
    let told = &sentences(&energy)[1];
    for part in [
        "less energy (<0.1% to 20%)",
        "1% more time, if its kernels slow down as the clock does,",
        "idle >99% of the time",
    ] {
        assert!(told.contains(part), "{told}");
    }
    // A name from a file does not become part of a command.
    energy.devices[0].uuid = "GPU; rm".into();
    assert!(sentences(&energy)[1].contains("nvidia-smi -i N -lgc"), "{:?}", sentences(&energy));
}
