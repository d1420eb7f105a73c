//! Advice about clocks: against a GPU that is a model, whose truth is known, and from a session.

use apex_energy::{Cause, Energy, Load, Rates};
use apex_machine::{Device, DeviceRecord, Machine, Quantity, Readings, Record};
use apex_profile::{Activity, Figure, IdleCause, Profile};
use gpu_physics::{HIGHEST, Phase, Workload, steady};

const AIR: f64 = 25.0;

/// A phase as a session shows it.
fn load(phase: &Phase, memory: f64, waits_for_host: bool) -> Load {
    let (seconds, joules) = steady(phase, None, AIR);
    let kernels = phase.memory.max(phase.compute);
    Load { watts: joules / seconds, busy: kernels / seconds, memory, waits_for_host }
}

/// The interval holds the truth of the model at the clock that is advised.
#[test]
fn the_truth_of_the_model_is_in_the_interval() {
    for (workload, memory, waits_for_host, is_advised) in [
        (Workload::decode(), 0.0, true, true),
        (Workload::batched_decode(), 1.0, false, true),
        (Workload::graph_network(), 1.0, false, true),
        (Workload::training(), 0.2, false, false),
    ] {
        let phase = &workload.phases[0];
        let Some((mhz, saving, slowdown)) = load(phase, memory, waits_for_host).best() else {
            assert!(!is_advised, "{}", workload.name);
            continue;
        };
        let (own, at) = (steady(phase, None, AIR), steady(phase, Some(mhz), AIR));
        let (saved, slower) = (1.0 - at.1 / own.1, at.0 / own.0 - 1.0);
        assert!(
            is_advised && saving.low <= saved && saved <= saving.high,
            "{}: {saved} {saving:?}",
            workload.name
        );
        assert!(slower <= 0.01 && slower <= slowdown.high, "{}: {slower} {slowdown:?}", workload.name);
        assert!(saving.low > 0.0 && slowdown.value <= 0.01 && slowdown.high <= 0.05, "{}", workload.name);
    }
}

#[test]
fn at_its_own_clock_nothing_is_saved() {
    let (saving, slowdown) = load(&Workload::decode().phases[0], 0.0, true).at(HIGHEST);
    assert!([saving.value, saving.low, saving.high, slowdown.high].iter().all(|of| of.abs() < 1e-9));
}

/// Twenty seconds of a device at 130 W that waits for the host for 85% of the time.
fn session(name: &str, falsify: impl Fn(&mut Readings)) -> Option<Energy> {
    const SECOND: u64 = 1_000_000_000;
    let device = apex_profile::Device { uuid: "GPU-a".into(), name: name.into(), ..Default::default() };
    let span_ns = 20e9;
    let activity = Activity {
        device: Some(0),
        span_ns,
        idle_share: Some(Figure::measured(0.85)),
        idle_by: [(IdleCause::HostCode, 0.85 * span_ns)].into(),
        ..Activity::default()
    };
    let profile = Profile { devices: vec![device], activities: vec![activity], ..Profile::default() };
    let record = |second: u64| {
        let mut readings = Readings::default();
        readings.set(Quantity::SmClock, 1980.0);
        readings.set(Quantity::PowerCapped, 0.0);
        falsify(&mut readings);
        let energy =
            (0..10).map(|tenth| (second * SECOND + tenth * SECOND / 10, (second * 10 + tenth) * 13_000));
        let devices = vec![DeviceRecord { device: 0, readings, energy: energy.collect() }];
        Record { from_ns: second * SECOND, to_ns: (second + 1) * SECOND, devices, ..Record::default() }
    };
    let devices = vec![Device { uuid: "GPU-a".into(), ..Device::default() }];
    let machine = Machine { devices, records: (0..22).map(record).collect(), ..Machine::default() };
    Energy::of(&machine, &profile, 0, Rates::default())
}

#[test]
fn a_session_is_advised_on_if_nothing_else_held_its_clock() {
    let energy = session("NVIDIA H200", |_| {}).expect("it has a counter");
    let advice = &energy.clocks[0];
    assert!(
        matches!(advice.because, Cause::WaitsForHost(share) if (share - 0.85).abs() < 1e-9),
        "{advice:?}"
    );
    assert!((1300..1600).contains(&advice.mhz) && advice.saving.value > 0.1, "{advice:?}");
    let capped = |readings: &mut Readings| readings.set(Quantity::PowerCapped, 1.0);
    let set = |readings: &mut Readings| readings.set(Quantity::ClocksSet, 1.0);
    let low = |readings: &mut Readings| readings.set(Quantity::SmClock, 1200.0);
    let none = [session("NVIDIA H200", capped), session("NVIDIA H200", set), session("NVIDIA H200", low)];
    for energy in none.into_iter().chain([session("NVIDIA A100", |_| {})]) {
        assert!(energy.expect("it has a counter").clocks.is_empty());
    }
}
