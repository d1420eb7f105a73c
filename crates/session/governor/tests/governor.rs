//! The governor on a GPU that is a model, in virtual time: what it saves, against the best clocks
//! that there are, and what it does where something goes wrong.

use apex_governor::{Follower, Reading, Search, Settings, Window};
use gpu_physics::{Circumstances, Gpu, HIGHEST, LOWEST, Refused, STEP, Workload, reasons, steady};

/// Seconds between two readings.
const POLL: f64 = 0.01;
/// Highest slowdown.
const BOUND: f64 = 0.01;
/// Virtual seconds of a run.
const SECONDS: f64 = 600.0;
/// What the device draws from.
const SEED: u64 = 7;
/// Degrees of the air.
const AIR: f64 = 25.0;
/// Shortest phase that has a clock of its own, seconds: ten switches.
const SHORTEST: f64 = 0.4;

fn settings() -> Settings {
    Settings { most_slowdown: BOUND, clocks: (LOWEST, HIGHEST), step: STEP, window: 1.0 }
}

fn permitted() -> Circumstances {
    Circumstances { may_set: true, air: AIR, ..Circumstances::default() }
}

/// What a run came to.
struct Outcome {
    gpu: Gpu,
    follower: Follower,
    refused: Option<Refused>,
}

fn reading(gpu: &Gpu) -> Result<Reading, Refused> {
    let read = gpu.read()?;
    let (phase, done) = gpu.done();
    Ok(Reading {
        at: read.at,
        mhz: read.mhz,
        millijoules: read.millijoules,
        is_capped: read.reasons & reasons::POWER_CAP != 0,
        is_hot: read.reasons & reasons::HEAT != 0,
        is_locked: read.reasons & reasons::SETTING != 0,
        phase,
        steps: done[phase],
        is_collective: gpu.is_in_collective(),
    })
}

/// A fault of the governor's caller, planted to see that the checks find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Planted {
    /// The lock is left at the end.
    LockLeft,
    /// Collectives are not told.
    InCollectives,
}

/// Runs a workload under the governor for so many seconds, and leaves the device.
fn governed(workload: &Workload, circumstances: Circumstances, seconds: f64, seed: u64) -> Outcome {
    with_fault(workload, circumstances, seconds, seed, None)
}

fn with_fault(
    workload: &Workload,
    circumstances: Circumstances,
    seconds: f64,
    seed: u64,
    planted: Option<Planted>,
) -> Outcome {
    let mut gpu = Gpu::new(workload.clone(), circumstances, seed);
    let mut follower = Follower::new(settings());
    let mut refused = None;
    while gpu.now() < seconds && refused.is_none() {
        let call = reading(&gpu).map(|mut now| {
            now.is_collective &= planted != Some(Planted::InCollectives);
            follower.follow(&now)
        });
        let made = call.and_then(|call| call.map_or(Ok(()), |call| gpu.lock(call.to)));
        refused = made.err();
        gpu.run(POLL);
    }
    if let Some(last) = follower.release().filter(|_| planted != Some(Planted::LockLeft)) {
        refused = refused.or(gpu.lock(last.to).err());
    }
    Outcome { gpu, follower, refused }
}

/// Seconds and joules of a step of each phase at a lock.
fn fixed(workload: &Workload, lock: Option<u32>) -> Vec<(f64, f64)> {
    workload.phases.iter().map(|phase| steady(phase, lock, AIR)).collect()
}

/// Time and energy of a workload whose phases take turns at these clocks, as shares of those at the
/// device's own clock.
fn turns(workload: &Workload, own: &[(f64, f64)], of: impl Fn(usize) -> (f64, f64)) -> (f64, f64) {
    let sums = workload.phases.iter().zip(own).enumerate().fold([0.0; 4], |sums, (index, (phase, own))| {
        let (steps, (seconds, joules)) = (phase.seconds / phase.step_seconds(f64::from(HIGHEST)), of(index));
        let parts = [seconds, own.0, joules, own.1].map(|part| part * steps);
        std::array::from_fn(|at| sums[at] + parts[at])
    });
    (sums[0] / sums[1], sums[2] / sums[3])
}

/// Seconds and joules for each step of the first phase while all phases take turns at a lock, on
/// the warm device.
fn simulated(workload: &Workload, lock: Option<u32>, seconds: f64) -> (f64, f64) {
    let mut gpu = Gpu::new(workload.clone(), permitted(), 1);
    gpu.lock(lock).expect("a legal clock");
    gpu.run(30.0);
    let (joules, steps) = (gpu.exact_joules(), gpu.done().1[0]);
    gpu.run(seconds);
    let done = gpu.done().1[0] - steps;
    (seconds / done, (gpu.exact_joules() - joules) / done)
}

/// What is saved at most: with one clock for all phases, and with a clock for each phase, of all
/// clocks and with the truth known. Phases that are too short for a switch have one clock, which is
/// tried, because they change the clock of a device at its power cap all the time.
fn best(workload: &Workload) -> (f64, f64) {
    let clocks = (LOWEST..=HIGHEST).step_by(STEP as usize);
    let saved = |(time, joules): (f64, f64)| if time <= 1.0 + BOUND { 1.0 - joules } else { 0.0 };
    if has_short_phases(workload) {
        let own = simulated(workload, None, 14.0);
        let one = clocks.filter(|clock| *clock >= 1_395).map(|clock| {
            let at = simulated(workload, Some(clock), 14.0);
            saved((at.0 / own.0, at.1 / own.1))
        });
        let one = one.fold(0.0, f64::max);
        return (one, one);
    }
    let own = fixed(workload, None);
    let clocks: Vec<_> = clocks.map(|clock| fixed(workload, Some(clock))).collect();
    let one = clocks.iter().map(|clock| saved(turns(workload, &own, |index| clock[index])));
    let one = one.fold(0.0, f64::max);
    if workload.phases.len() != 2 {
        return (one, one);
    }
    let pairs = clocks.iter().flat_map(|first| clocks.iter().map(move |second| [first, second]));
    let each = pairs.map(|pair| saved(turns(workload, &own, |index| pair[index][index])));
    (one, each.fold(one, f64::max))
}

/// A row of the table.
struct Row {
    name: &'static str,
    saved: f64,
    slowdown: f64,
    one: f64,
    each: f64,
}

fn row(workload: &Workload) -> Row {
    let run = governed(workload, permitted(), SECONDS, SEED);
    let (seconds, joules) = of_the_same_work(workload, run.gpu.done().1);
    let (one, each) = best(workload);
    let saved = 1.0 - run.gpu.exact_joules() / joules;
    Row { name: workload.name, saved, slowdown: run.gpu.now() / seconds - 1.0, one, each }
}

/// Seconds and joules that so many steps of each phase take at the device's own clock.
fn of_the_same_work(workload: &Workload, steps: &[f64]) -> (f64, f64) {
    if has_short_phases(workload) {
        let (seconds, joules) = simulated(workload, None, 150.0);
        return (seconds * steps[0], joules * steps[0]);
    }
    let own = fixed(workload, None);
    let sum = |of: fn(&(f64, f64)) -> f64| steps.iter().zip(&own).map(|(steps, own)| steps * of(own)).sum();
    (sum(|own| own.0), sum(|own| own.1))
}

fn has_short_phases(workload: &Workload) -> bool {
    workload.phases.iter().any(|phase| phase.seconds < SHORTEST)
}

fn table(rows: &[Row]) -> String {
    let head = "| workload | governor | slowdown | best fixed clock | best clock of each phase |\n\
                | --- | --- | --- | --- | --- |\n";
    // Without a sign before zero.
    let percent = |share: f64| format!("{:.1}%", (share * 1e3).round() / 10.0 + 0.0);
    let line = |row: &Row| {
        let of = [row.saved, row.slowdown, row.one, row.each].map(percent);
        format!("| {} | {} |\n", row.name, of.join(" | "))
    };
    rows.iter().map(line).fold(head.to_owned(), |text, line| text + &line)
}

#[test]
fn the_governor_saves_nearly_what_can_be_saved() {
    let rows: Vec<Row> = Workload::all().iter().map(row).collect();
    let text = table(&rows);
    for row in &rows {
        assert!(row.slowdown <= BOUND, "{}: {}\n{text}", row.name, row.slowdown);
        assert!(row.saved >= row.each - 0.03, "{}: of {}\n{text}", row.name, row.each);
        assert!(row.saved >= row.one - 0.01, "{}: of one clock {}\n{text}", row.name, row.one);
    }
    let page = include_str!("../../../../docs/power.md");
    assert!(page.contains(&text), "docs/power.md has another table than\n{text}");
}

#[test]
fn the_model_takes_the_power_that_was_measured() {
    // `eager_decode`, `unfused_norm`, `llama_eager`, `gemm_saturated`: see docs/power.md.
    let measured = [(Workload::decode(), 130.0), (Workload::batched_decode(), 630.0)];
    let measured = measured.into_iter().chain([(Workload::training(), 683.0), (Workload::products(), 691.0)]);
    for (workload, watts) in measured {
        let (seconds, joules) = steady(&workload.phases[0], None, AIR);
        assert!((joules / seconds / watts - 1.0).abs() < 0.03, "{}: {}", workload.name, joules / seconds);
    }
}

/// Whether a run left the clock as it was found, and how many calls fell into a collective, without
/// the one that releases the clock when the program has ended.
fn checks(run: &Outcome) -> (bool, usize) {
    let meanwhile = run.gpu.calls().iter().filter(|(at, _)| *at < run.gpu.now());
    (run.gpu.locked().is_none(), meanwhile.filter(|(_, in_collective)| *in_collective).count())
}

#[test]
fn planted_faults_are_found() {
    let run = |workload: &Workload, planted| with_fault(workload, permitted(), 120.0, 7, planted);
    assert_eq!(checks(&run(&Workload::decode(), None)), (true, 0));
    assert!(!checks(&run(&Workload::decode(), Some(Planted::LockLeft))).0);
    let collectives = Workload::with_collectives();
    let sound = run(&collectives, None);
    assert!(checks(&sound) == (true, 0) && !sound.gpu.calls().is_empty());
    // Which calls fall into one depends on the moment.
    let planted =
        (0..20).map(|seed| with_fault(&collectives, permitted(), 60.0, seed, Some(Planted::InCollectives)));
    assert!(planted.map(|run| checks(&run).1).sum::<usize>() > 0);
}

/// The clock that is tried second, if the windows at the first one that is tried ran at 1700 MHz as
/// those at the device's own clock did.
fn second_try(is_capped: bool) -> u32 {
    let mut search = Search::new(settings());
    let window =
        |joules| Window { phase: 0, seconds: 1.0, steps: 100.0, joules, mhz: 1700, is_capped, is_hot: false };
    (0..3).for_each(|_| search.take(&window(700.0), None));
    let first = search.clock().expect("a first try");
    (0..3).for_each(|_| search.take(&window(690.0), Some(first)));
    search.clock().expect("a second try")
}

#[test]
fn nothing_is_predicted_from_windows_under_a_power_cap() {
    // Under a cap, that a step takes as long at a lower setting does not say that the clock is of
    // no consequence.
    assert!(second_try(true) >= 1700, "{}", second_try(true));
    assert!(second_try(false) < 1500, "{}", second_try(false));
}

#[test]
fn five_hundred_ends_at_any_moment_leave_no_lock() {
    for seed in 0..500 {
        let seconds = 2.0 + 12.0 * apex_random_part(seed);
        let run = governed(&Workload::decode(), permitted(), seconds, seed);
        assert_eq!(checks(&run), (true, 0), "seed {seed}, {seconds} s");
    }
}

/// A part of one that a seed draws.
fn apex_random_part(seed: u64) -> f64 {
    apex_random::Random::named(seed, "end").uniform()
}

#[test]
fn without_the_right_nothing_is_set() {
    let run = governed(&Workload::decode(), Circumstances { may_set: false, ..permitted() }, 60.0, 1);
    assert_eq!(run.refused, Some(Refused::NoPermission));
    assert!(run.gpu.calls().is_empty() && run.gpu.locked().is_none());
}

#[test]
fn a_clock_that_another_tool_sets_is_left_alone() {
    for at in [0.1, 2.0, 40.0, 120.0] {
        let circumstances = Circumstances { other_setter: Some((at, 1200)), ..permitted() };
        let run = governed(&Workload::decode(), circumstances, 180.0, 3);
        assert!(run.follower.has_stopped(), "at {at} s");
        assert_eq!(run.gpu.locked(), Some(1200), "at {at} s");
        let late = run.gpu.calls().iter().filter(|(called, _)| *called > at + 10.0).count();
        assert_eq!(late, 0, "at {at} s");
    }
}

#[test]
fn a_lost_device_ends_the_governing() {
    let run = governed(&Workload::decode(), Circumstances { lost_at: Some(20.0), ..permitted() }, 60.0, 1);
    assert_eq!(run.refused, Some(Refused::Lost));
    assert!(run.gpu.now() < 21.0);
}

#[test]
fn windows_under_heat_say_nothing() {
    // Air of 75 °C keeps the device above its limit.
    let run = governed(&Workload::products(), Circumstances { air: 75.0, ..permitted() }, 60.0, 1);
    assert!(run.gpu.calls().is_empty());
    assert!(run.follower.governor().clock(0).is_none());
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed| governed(&Workload::mixed(), permitted(), 60.0, seed).gpu;
    let (first, second, other) = (run(5), run(5), run(6));
    assert_eq!((first.exact_joules(), first.calls()), (second.exact_joules(), second.calls()));
    assert_ne!(first.exact_joules(), other.exact_joules());
}

#[test]
fn phases_that_are_shorter_than_ten_switches_share_a_clock() {
    let run = governed(&Workload::quick_turns(), permitted(), 120.0, 2);
    // Far fewer calls than turns, of which there are a thousand.
    assert!((1..40).contains(&run.gpu.calls().len()), "{:?}", run.gpu.calls());
    let run = governed(&Workload::mixed(), permitted(), 120.0, 2);
    assert!(run.follower.switch_seconds() < 0.1);
}
