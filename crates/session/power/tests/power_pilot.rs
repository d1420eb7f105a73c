//! The pilot with the readings of a real run (the clock 50 times a second, energy and progress once
//! a second) on a GPU that is a model, in virtual time.

use apex_governor::Settings;
use apex_power::{Counts, Ended, Phases, Pilot, Seen, State, reasons};
use gpu_physics::{Circumstances, Gpu, HIGHEST, LOWEST, STEP, Workload};

/// Seconds between two readings of the clock, and between two looks.
const TICK: f64 = 0.02;
const LOOK: f64 = 1.0;
const SETTINGS: Settings =
    Settings { most_slowdown: 0.01, clocks: (LOWEST, HIGHEST), step: STEP, window: 10.0 };

fn permitted() -> Circumstances {
    Circumstances { may_set: true, air: 25.0, ..Circumstances::default() }
}

/// A run: what a program does, whom it meets, and how readings are falsified.
struct Run {
    gpu: Gpu,
    pilot: Pilot,
}

impl Run {
    fn new(workload: &Workload, circumstances: Circumstances, is_dry: bool) -> Self {
        Self { gpu: Gpu::new(workload.clone(), circumstances, 7), pilot: Pilot::new(SETTINGS, is_dry) }
    }

    /// Lets so many seconds pass; `falsify` changes what is read.
    fn pass(mut self, seconds: f64, falsify: impl Fn(State, Seen) -> (State, Seen)) -> Self {
        let (until, mut next) = (self.gpu.now() + seconds, self.gpu.now());
        while self.gpu.now() < until {
            let read = self.gpu.read().expect("it is not lost");
            let (phase, done) = self.gpu.done();
            let seen = Seen { phase, steps: done[phase], is_collective: self.gpu.is_in_collective() };
            let (state, seen) = falsify(State { mhz: read.mhz, reasons: read.reasons }, seen);
            let is_look = self.gpu.now() >= next;
            next = if is_look { self.gpu.now() + LOOK } else { next };
            let call = self.pilot.step(self.gpu.now(), state, is_look.then_some((read.millijoules, seen)));
            if let Some(clock) = call {
                self.gpu.lock(clock).expect("a legal clock");
            }
            self.gpu.run(TICK);
        }
        self
    }

    /// Watts, and steps a second, in the next seconds.
    fn rates(&mut self, seconds: f64) -> (f64, f64) {
        let (joules, steps) = (self.gpu.exact_joules(), self.gpu.done().1[0]);
        self.gpu.run(seconds);
        ((self.gpu.exact_joules() - joules) / seconds, (self.gpu.done().1[0] - steps) / seconds)
    }
}

fn truly(state: State, seen: Seen) -> (State, Seen) {
    (state, seen)
}

#[test]
fn readings_once_a_second_find_the_clock_that_saves() {
    for (workload, least) in [(Workload::decode(), 0.30), (Workload::batched_decode(), 0.23)] {
        let own = Run::new(&workload, permitted(), true).pass(60.0, truly).rates(60.0);
        let mut run = Run::new(&workload, permitted(), false).pass(900.0, truly);
        let outcome = run.pilot.outcome();
        let (watts, steps) = run.rates(60.0);
        let (saved, slowdown) = (1.0 - watts / steps / (own.0 / own.1), own.1 / steps - 1.0);
        assert!(saved > least && slowdown < 0.01, "{}: {saved} {slowdown} {outcome:?}", workload.name);
        assert!(outcome.ended.is_none() && outcome.phases[0].is_found, "{outcome:?}");
        assert!((outcome.phases[0].saving - saved).abs() < 0.02, "{saved} {outcome:?}");
        let said = outcome.sentences(HIGHEST).join("\n");
        assert!(said.contains("less energy") && said.contains("set or released"), "{said}");
        assert!(outcome.warnings(HIGHEST).is_empty());
        let is_left = apex_power::Outcome { is_left: true, ..outcome };
        assert!(is_left.warnings(HIGHEST)[0].contains("STILL SET"));
    }
}

#[test]
fn a_dry_run_says_what_it_would_have_set_and_sets_nothing() {
    let run = Run::new(&Workload::decode(), Circumstances { may_set: false, ..permitted() }, true);
    let outcome = run.pass(120.0, truly).pilot.outcome();
    let Some(Ended::WouldSet { seconds, mhz }) = outcome.ended else { panic!("{outcome:?}") };
    assert!((30..40).contains(&seconds) && (1800..HIGHEST).contains(&mhz), "{outcome:?}");
    assert_eq!(outcome.calls, 0);
    assert!(outcome.sentences(HIGHEST)[1].contains("would have set"), "{:?}", outcome.sentences(HIGHEST));
}

/// NVML tells no lock, and the reasons may not show it either.
#[test]
fn a_lower_lock_that_nothing_shows_is_left_alone() {
    let other_setter = Some((0.1, 1200));
    let silent = |state: State, seen| (State { reasons: state.reasons & !reasons::SETTING, ..state }, seen);
    let mut run = Run::new(&Workload::decode(), Circumstances { other_setter, ..permitted() }, false);
    run.gpu.run(1.0);
    let run = run.pass(120.0, silent);
    assert_eq!(run.pilot.outcome().ended, Some(Ended::NeverHighest(1200)));
    assert!(run.gpu.calls().is_empty());
}

#[test]
fn a_lock_that_the_reasons_show_ends_the_run_at_once() {
    let other_setter = Some((20.0, 1200));
    let run = Run::new(&Workload::decode(), Circumstances { other_setter, ..permitted() }, false);
    let run = run.pass(60.0, truly);
    assert_eq!(run.pilot.outcome().ended, Some(Ended::Foreign));
    assert!(run.gpu.calls().is_empty() && !run.pilot.is_replaced());
}

#[test]
fn a_higher_lock_of_another_tool_is_known_to_have_replaced_ours() {
    let other_setter = Some((200.0, HIGHEST));
    let run = Run::new(&Workload::decode(), Circumstances { other_setter, ..permitted() }, false);
    let run = run.pass(300.0, truly);
    assert_eq!(run.pilot.outcome().ended, Some(Ended::Foreign));
    assert!(run.pilot.is_replaced());
}

#[test]
fn no_call_is_made_while_collectives_are_launched() {
    let always = |state, seen| (state, Seen { is_collective: true, ..seen });
    let run = Run::new(&Workload::decode(), permitted(), false).pass(120.0, always);
    assert!(run.gpu.calls().is_empty());
    // The check can fail.
    let run = Run::new(&Workload::decode(), permitted(), false).pass(120.0, truly);
    assert!(!run.gpu.calls().is_empty());
}

#[test]
fn readings_under_any_limit_say_nothing() {
    for bit in [0x1, 0x8, 0x10, 0x20, 0x40, 0x100, 0x200, 0x400, 1 << 40] {
        let limited = |state, seen| (State { reasons: bit, ..state }, seen);
        let run = Run::new(&Workload::decode(), permitted(), false).pass(60.0, limited);
        assert!(run.gpu.calls().is_empty(), "{bit:#x}");
        assert_eq!(run.pilot.outcome().held, 1.0, "{bit:#x}");
    }
}

#[test]
fn readings_under_a_power_cap_are_no_sign_of_another_tool() {
    let silent = |state: State, seen| (State { reasons: state.reasons & !reasons::POWER, ..state }, seen);
    let run = |falsify: &dyn Fn(State, Seen) -> (State, Seen)| {
        let run = Run::new(&Workload::products(), permitted(), false).pass(240.0, falsify);
        run.pilot.outcome()
    };
    let (told, planted) = (run(&truly), run(&silent));
    assert!(told.ended.is_none() && told.held > 0.9, "{told:?}");
    assert_eq!(planted.ended, Some(Ended::Foreign), "the check sees samples of which the cap is not told");
}

#[test]
fn phases_are_known_by_the_shares_of_their_kernels() {
    let counts = |of: &[(u32, u64)]| -> Counts { of.iter().map(|(id, count)| ((1, *id), *count)).collect() };
    let mut phases = Phases::default();
    assert_eq!(phases.of(&counts(&[(1, 1000), (2, 500)])), 0);
    assert_eq!(phases.of(&counts(&[(3, 7)])), 1);
    assert_eq!(phases.of(&counts(&[(1, 2100), (2, 1000)])), 0, "twice as much of the same");
    assert_eq!(phases.of(&counts(&[(1, 500), (2, 1000)])), 2, "other shares");
    assert_eq!(phases.of(&counts(&[(3, 900), (4, 1)])), 1);
    let more = (10..40).map(|id| phases.of(&counts(&[(id, 1)])));
    assert_eq!(more.max(), Some(15), "phases are bounded");
}
