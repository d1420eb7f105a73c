//! Accounts of simulated counters, whose energy is known.

use apex_energy::{Energy, Rates, TOO_WIDE};
use apex_machine::energy::{Counter, PERIOD_NS};
use apex_machine::{Device, DeviceRecord, Machine, Quantity, Readings, Record};
use apex_profile::{Accounts, Distribution, Figure, Iterations, Phase, PhaseKind, Profile};
use proptest::prelude::*;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

/// The period in which counters are set, nanoseconds.
const SET_NS: u64 = 100 * MS;

/// Power over time: watts from each moment on.
type Power = Vec<(u64, f64)>;

/// Joules up to a moment.
fn exact(power: &Power, at_ns: u64) -> f64 {
    let ends = power.iter().skip(1).map(|&(from, _)| from).chain([u64::MAX]);
    let part =
        |(&(from, watts), end): (&(u64, f64), u64)| watts * at_ns.min(end).saturating_sub(from) as f64 / 1e9;
    power.iter().zip(ends).map(part).sum()
}

/// What a counter shows that is set each `period` from `phase` on.
fn shown(power: &Power, period: u64, phase: u64, at_ns: u64) -> u64 {
    let set = at_ns.saturating_sub(phase) / period * period + phase;
    (exact(power, set.min(at_ns)) * 1e3) as u64
}

/// A machine whose counter is read each `every` for `seconds`.
fn machine(power: &Power, period: u64, phase: u64, every: u64, seconds: u64) -> Machine {
    let record = |second: u64| {
        let (from_ns, to_ns) = (second * SECOND, (second + 1) * SECOND);
        let mut readings = Readings::default();
        readings.set(Quantity::PowerLimit, 700.0);
        readings.set(Quantity::SmUtilization, if second == 0 { 0.0 } else { 0.9 });
        let average = (exact(power, to_ns) - exact(power, from_ns)) / 1.0;
        readings.set(Quantity::AveragePower, average);
        let moments = (from_ns + 1..=to_ns).step_by(every as usize);
        let energy = moments.map(|at| (at, shown(power, period, phase, at))).collect();
        let devices = vec![DeviceRecord { device: 0, readings, energy }];
        Record { from_ns, to_ns, devices, ..Record::default() }
    };
    let devices = vec![Device { uuid: "GPU-a".into(), ..Device::default() }];
    Machine { devices, records: (0..seconds).map(record).collect(), ..Machine::default() }
}

proptest! {
    /// Whatever the power does, however the counter's phase lies: the truth is in the interval.
    #[test]
    fn the_interval_holds_the_energy(
        watts in prop::collection::vec(50.0..700.0f64, 20),
        phase in 0..PERIOD_NS,
        period in 20..=140u64,
        every in 50..300u64,
        (from, span) in (1_000..6_000u64, 1..4_000u64),
    ) {
        let power: Power = (0..).step_by(500 * MS as usize).zip(watts).collect();
        let counter = Counter::of(&machine(&power, period * MS, phase, every * MS, 10), 0).unwrap();
        let (from, to) = (from * MS, (from + span) * MS);
        let joules = counter.between(from, to).unwrap();
        let truth = exact(&power, to) - exact(&power, from);
        prop_assert_eq!(joules.ns, to - from);
        // The counter has whole millijoules.
        prop_assert!(joules.low - 0.002 <= truth && truth <= joules.high + 0.002, "{} in {:?}", truth, joules);
        prop_assert!(joules.low <= joules.value && joules.value <= joules.high);
    }

    /// Readings of any form neither panic nor give an interval that is none.
    #[test]
    fn any_readings_are_taken(
        energy in prop::collection::vec((any::<u64>(), any::<u64>()), 0..20),
        (from, to) in (any::<u64>(), any::<u64>()),
    ) {
        let devices = vec![DeviceRecord { device: 0, energy, ..DeviceRecord::default() }];
        let records = vec![Record { from_ns: 0, to_ns: SECOND, devices, ..Record::default() }];
        let machine = Machine { records, ..Machine::default() };
        if let Some(joules) = Counter::of(&machine, 0).and_then(|counter| counter.between(from, to)) {
            prop_assert!(joules.low <= joules.value && joules.value <= joules.high, "{:?}", joules);
        }
    }
}

/// A profile of one process that used one device from `from` to `to` seconds.
fn profile(from: f64, to: f64) -> Profile {
    let mut profile = Profile::default();
    profile.devices.push(apex_profile::Device { uuid: "GPU-a".into(), ..Default::default() });
    profile.activities.push(apex_profile::Activity {
        device: Some(0),
        start_ns: from * 1e9,
        span_ns: (to - from) * 1e9,
        ..Default::default()
    });
    profile
}

/// The same with phases of so many seconds, and iterations in the steady state.
fn in_phases(from: f64, phases: &[(PhaseKind, f64)], iterations: u64) -> Profile {
    let mut profile = profile(from, from + phases.iter().map(|(_, seconds)| seconds).sum::<f64>());
    let activity = &mut profile.activities[0];
    let phase = |&(kind, seconds): &(PhaseKind, f64)| Phase {
        kind,
        accounts: Accounts { span_ns: seconds * 1e9, ..Accounts::default() },
        launches: 0,
        kernels: Vec::new(),
        graphs: Vec::new(),
        calls: Vec::new(),
    };
    activity.phases = phases.iter().map(phase).collect();
    let until: f64 =
        phases.iter().take_while(|(kind, _)| *kind != PhaseKind::Steady).map(|(_, seconds)| seconds).sum();
    let steady =
        phases.iter().find(|(kind, _)| *kind == PhaseKind::Steady).map_or(0.0, |(_, seconds)| *seconds);
    activity.iterations = Some(Iterations {
        count: iterations,
        step_ns: Figure::measured(steady * 1e9 / iterations as f64),
        duration: Distribution::default(),
        launches: 10.0,
        warmup: 0,
        start_ns: (from + until) * 1e9,
    });
    profile
}

#[test]
fn phases_and_iterations_have_accounts_of_their_own() {
    let power = vec![(0, 100.0), (4 * SECOND, 500.0)];
    let machine = machine(&power, SET_NS, 70 * MS, 100 * MS, 22);
    let phases = [(PhaseKind::Startup, 3.0), (PhaseKind::Steady, 16.0)];
    let of = in_phases(1.0, &phases, 1_600);
    let device = Energy::of(&machine, &of, 0, Rates::default()).unwrap().devices.remove(0);
    let told: Vec<_> = device.phases.iter().map(|phase| (phase.kind, phase.account.seconds)).collect();
    assert_eq!(told, phases);
    assert!((device.phases[0].account.watts().unwrap() - 100.0).abs() < 15.0, "{:?}", device.phases[0]);
    assert!((device.phases[1].account.watts().unwrap() - 500.0).abs() < 5.0, "{:?}", device.phases[1]);
    let iteration = device.iteration.unwrap();
    // 500 W for 10 ms, of them 100 W idle.
    assert_eq!(iteration.count, 1_600);
    assert!((iteration.joules.unwrap().value - 5.0).abs() < 0.05, "{iteration:?}");
    assert!((iteration.above_idle.unwrap().value - 4.0).abs() < 0.05, "{iteration:?}");
}

#[test]
fn phases_that_interleave_or_share_a_device_have_no_accounts() {
    let machine = machine(&vec![(0, 300.0)], SET_NS, 0, 100 * MS, 22);
    let between = [(PhaseKind::Steady, 10.0), (PhaseKind::Between, 5.0)];
    let mut of = in_phases(1.0, &between, 100);
    let told = |of: &Profile| {
        let device = Energy::of(&machine, of, 0, Rates::default()).unwrap().devices.remove(0);
        (device.phases.len(), device.iteration.is_some(), device.whole.joules.is_some())
    };
    assert_eq!(told(&of), (0, false, true));
    of = in_phases(1.0, &between[..1], 100);
    assert_eq!(told(&of), (1, true, true));
    of.activities.push(of.activities[0].clone());
    assert_eq!(told(&of), (0, false, true));
}

#[test]
fn a_device_is_counted_from_its_first_launch_to_its_last_work() {
    // 100 W idle, then 400 W.
    let power = vec![(0, 100.0), (SECOND, 400.0)];
    let machine = machine(&power, SET_NS, 30 * MS, 100 * MS, 12);
    let energy = Energy::of(&machine, &profile(1.0, 11.0), 0, Rates::default()).unwrap();
    let device = &energy.devices[0];
    let joules = device.whole.joules.unwrap();
    assert_eq!((device.whole.seconds, device.whole.counted_seconds), (10.0, 10.0));
    assert!((joules.value - 4_000.0).abs() < 20.0, "{joules:?}");
    assert!((joules.high - joules.low) / joules.value < 0.08, "{joules:?}");
    assert_eq!(device.idle_w, Some(100.0));
    assert!((device.whole.above_idle.unwrap().value - (joules.value - 1_000.0)).abs() < 1e-6);
    assert!(energy.cost.is_none());
}

#[test]
fn a_window_beyond_the_readings_is_counted_in_part() {
    let power = vec![(0, 300.0)];
    let machine = machine(&power, SET_NS, 0, 100 * MS, 10);
    let energy = Energy::of(&machine, &profile(5.0, 20.0), 0, Rates::default()).unwrap();
    let whole = energy.devices[0].whole;
    assert_eq!(whole.seconds, 15.0);
    assert!((4.8..5.0).contains(&whole.counted_seconds), "{whole:?}");
    assert!((whole.watts().unwrap() - 300.0).abs() < 5.0, "{whole:?}");
    assert!(
        Energy::of(&machine, &profile(30.0, 40.0), 0, Rates::default()).unwrap().devices[0]
            .whole
            .joules
            .is_none()
    );
}

#[test]
fn what_the_counter_does_not_resolve_has_no_joules() {
    let power = vec![(0, 300.0)];
    let machine = machine(&power, SET_NS, 0, 100 * MS, 10);
    let account = |ms: u64| {
        let to = 3.0 + ms as f64 / 1e3;
        Energy::of(&machine, &profile(3.0, to), 0, Rates::default()).unwrap().devices[0].whole
    };
    assert!(account(200).joules.is_none() && account(200).watts().is_none());
    let joules = account(3_000).joules.unwrap();
    assert!((joules.high - joules.low) / 2.0 <= TOO_WIDE * joules.value);
}

#[test]
fn older_sessions_have_the_mean_power_of_each_second() {
    let power = vec![(0, 300.0)];
    let mut machine = machine(&power, SET_NS, 0, 100 * MS, 60);
    for record in &mut machine.records {
        record.devices[0].energy.clear();
    }
    let whole = Energy::of(&machine, &profile(5.0, 45.0), 0, Rates::default()).unwrap().devices[0].whole;
    let joules = whole.joules.unwrap();
    assert!((joules.value - 12_000.0).abs() < 100.0, "{joules:?}");
    assert!((0.03..0.12).contains(&((joules.high - joules.low) / joules.value)), "{joules:?}");
}

#[test]
fn a_driver_that_was_loaded_again_is_counted_from_then_on() {
    let power = vec![(0, 300.0)];
    let mut machine = machine(&power, SET_NS, 0, 100 * MS, 10);
    for record in &mut machine.records[4..] {
        record.devices[0].energy.iter_mut().for_each(|(_, millijoules)| *millijoules -= 1_000_000);
    }
    let whole = Energy::of(&machine, &profile(1.0, 9.0), 0, Rates::default()).unwrap().devices[0].whole;
    assert!((4.8..5.1).contains(&whole.counted_seconds), "{whole:?}");
    assert!((whole.watts().unwrap() - 300.0).abs() < 15.0, "{whole:?}");
}

#[test]
fn devices_of_others_and_devices_without_a_counter_have_no_account() {
    let mut of = machine(&vec![(0, 300.0)], SET_NS, 0, 100 * MS, 10);
    of.devices[0].uuid = "MIG-a".into();
    assert!(Energy::of(&of, &profile(1.0, 9.0), 0, Rates::default()).is_none());
    assert!(Energy::of(&Machine::default(), &profile(1.0, 9.0), 0, Rates::default()).is_none());
}

#[test]
fn ranges_name_the_unit_of_their_work() {
    let machine = machine(&vec![(0, 300.0)], SET_NS, 0, 100 * MS, 22);
    let mut profile = profile(1.0, 21.0);
    let mut range = |name: &str, count: u64| {
        profile.ranges.push(apex_profile::Range { name: name.into(), count, ..Default::default() });
    };
    range("step [4096 tokens]", 30);
    range("last step [1024 tokens]", 1);
    range("picture [2.5 images]", 4);
    // No number, no unit, several words, nothing at the end.
    for other in ["step [# tokens]", "step [4096]", "[3 big steps]", "[-1 steps]", "[8 steps] x", "]", ""] {
        range(other, 1_000);
    }
    let energy = Energy::of(&machine, &profile, 0, Rates::default()).unwrap();
    let told: Vec<_> = energy.work.iter().map(|work| (work.unit.as_str(), work.count)).collect();
    assert_eq!(told, [("images", 10.0), ("tokens", 123_904.0)]);
    let per_joule = energy.work[1].per_joule.unwrap();
    assert!((per_joule.value - 123_904.0 / 6_000.0).abs() < 0.2, "{per_joule:?}");
    assert!(per_joule.low < per_joule.value && per_joule.value < per_joule.high);
}

#[test]
fn rates_make_costs() {
    let machine = machine(&vec![(0, 360.0)], SET_NS, 0, 100 * MS, 12);
    let rates = Rates { price_per_kwh: Some(0.5), grams_per_kwh: None };
    let cost = Energy::of(&machine, &profile(1.0, 11.0), 0, rates).unwrap().cost.unwrap();
    // 3.6 kJ are a thousandth of a kilowatt-hour.
    assert!((cost.money.unwrap().value / 0.0005 - 1.0).abs() < 0.01, "{cost:?}");
    assert!(cost.co2_grams.is_none());
}
