//! Samples of the host fall into the idle account that the device had at their moment.

use apex_host_stacks::{Doing, FrameKind, Span, WaitsFor};
use apex_profile::{
    Builder, HostStack, HostState, IdleCause, ObservedCall, ObservedProcess, ObservedWork, Observer, Other,
    PhaseKind, Profile, Use,
};
use apex_trace::layout::CallClass;
use proptest::prelude::*;
use std::collections::BTreeMap;
use tempfile::TempDir;
use test_session::{HostSampler, LEGACY, OnHost, Recording};

const MS: u64 = 1_000_000;
const PERIOD: u64 = MS;

const TRAIN: OnHost<'_> = (FrameKind::Python, "main", "/home/me/train.py", 41);
const SAVE: OnHost<'_> =
    (FrameKind::Python, "save", "/v/lib/python3.12/site-packages/torch/serialization.py", 850);
const WRITE: OnHost<'_> = (FrameKind::Native, "write", "/usr/lib/x86_64-linux-gnu/libc.so.6", 0);
const STEP: OnHost<'_> = (FrameKind::Python, "step", "/home/me/train.py", 50);
const NEXT: OnHost<'_> =
    (FrameKind::Python, "__next__", "/v/lib/python3.12/site-packages/torch/utils/data/dataloader.py", 700);
const DECODE: OnHost<'_> = (FrameKind::Python, "decode", "/home/me/pictures.py", 7);

fn waits(r#for: WaitsFor) -> Doing {
    Doing::Waiting { syscall: None, r#for }
}

/// Steps of a kernel of 10 ms, for which the host waits, and 30 ms of the host's own code, of which
/// 20 ms are in `torch.save`. The start-up takes 500 ms.
fn training(dir: &TempDir, steps: u64) -> Vec<u64> {
    let mut program = Recording::new(dir.path());
    let function = program.function("gelu");
    let config = program.config(function, 132, 256);
    let other = program.function("fill");
    let other = program.config(other, 132, 256);
    program.timed(other, LEGACY, 1_000);
    program.synchronise(LEGACY, 2_000);
    program.now += 500 * MS;
    let mut starts = Vec::new();
    for _ in 0..steps {
        starts.push(program.now);
        program.timed(config, LEGACY, 10 * MS);
        program.synchronise(LEGACY, 10 * MS);
        program.now += 30 * MS;
    }
    program.timed(config, LEGACY, 10 * MS);
    program.synchronise(LEGACY, 10 * MS);
    program.exit();
    starts
}

fn sampler(dir: &TempDir) -> (HostSampler, u32) {
    test_session::open(dir);
    let host = HostSampler::new(dir.path(), PERIOD);
    let thread = host.main;
    (host, thread)
}

fn profile_of(dir: &TempDir) -> Profile {
    Profile::from_session(&test_session::open(dir))
}

#[test]
fn the_steady_state_names_its_functions_and_not_those_of_the_start_up() {
    let dir = TempDir::new().unwrap();
    let starts = training(&dir, 40);
    let (mut host, thread) = sampler(&dir);
    let import: OnHost<'_> = (FrameKind::Python, "_find_and_load", "<frozen importlib._bootstrap>", 1);
    host.samples(thread, (MS, starts[0]), &[TRAIN, import], &Doing::Running);
    for start in starts {
        host.samples(thread, (start, start + 20 * MS), &[STEP], &Doing::Running);
        host.samples(thread, (start + 20 * MS, start + 40 * MS), &[TRAIN, SAVE, WRITE], &Doing::Running);
    }
    host.finish();
    let whole = profile_of(&dir);
    let steady = whole.in_phase(PhaseKind::Steady).expect("a steady state");
    let [host_code, ..] = &steady.idle_functions()[..] else { panic!("no idle account") };
    assert_eq!(host_code.cause, IdleCause::HostCode);
    assert!(host_code.unknown_share < 0.01, "{host_code:?}");
    let of = |name: &str| {
        let function = host_code.functions.iter().find(|one| one.frame.frame.function == name);
        function.map(|one| (one.self_share, one.total_share, one.is_of_library))
    };
    let (own, all, is_of_library) = of("save").expect("torch.save");
    assert!(own.value == 0.0 && (all.value - 2.0 / 3.0).abs() < 0.03 && is_of_library, "{own:?} {all:?}");
    let (low, high) = all.interval().expect("an interval");
    assert!(low < all.value && all.value < high && high - low < 0.1, "{low} {high}");
    let (own, ..) = of("write").expect("the innermost function");
    assert!((own.value - 2.0 / 3.0).abs() < 0.03, "{own:?}");
    let (own, ..) = of("step").expect("the user's own code");
    assert!((own.value - 1.0 / 3.0).abs() < 0.03, "{own:?}");
    assert_eq!(of("_find_and_load"), None);

    let places = steady.idle_places(|_, _| true);
    let names: Vec<_> = places
        .iter()
        .map(|place| (place.line().unwrap().to_string(), place.library.map(|one| one.qualified_name())))
        .collect();
    assert_eq!(
        names,
        [
            ("train.py:41 main".to_owned(), Some("torch.serialization.save".to_owned())),
            ("train.py:50 step".to_owned(), None)
        ]
    );
    // 20 of the 40 ms of a step.
    let of_step = places[0].time.value / steady.accounts().span_ns;
    assert!((of_step - 0.5).abs() < 0.03, "{of_step}");
    let listed = steady.functions_while_idle();
    assert!(
        listed
            .iter()
            .any(|one| one.frame.frame.function == "save" && (one.total_share.value - of_step).abs() < 0.001)
    );
    // Of the whole run, the start-up is a part.
    assert!(whole.functions_while_idle().iter().any(|one| one.frame.frame.function == "_find_and_load"));
}

#[test]
fn a_thread_that_waits_without_compiled_frames_is_in_its_system_call() {
    let dir = TempDir::new().unwrap();
    let starts = training(&dir, 40);
    let (mut host, thread) = sampler(&dir);
    let syncs = |number| Doing::Waiting { syscall: Some(number), r#for: WaitsFor::Unknown };
    for start in starts {
        host.samples(thread, (start + 11 * MS, start + 14 * MS), &[TRAIN], &syncs(74));
        host.samples(thread, (start + 14 * MS, start + 25 * MS), &[TRAIN], &Doing::Running);
        // A futex tells nothing, and with compiled frames the call is known.
        host.samples(thread, (start + 25 * MS, start + 30 * MS), &[STEP], &syncs(202));
        host.samples(thread, (start + 30 * MS, start + 39 * MS), &[TRAIN, SAVE, WRITE], &syncs(1));
    }
    host.finish();
    let profile = profile_of(&dir);
    let places = profile.idle_places(|_, _| true);
    let names: Vec<String> = places.iter().map(ToString::to_string).collect();
    assert_eq!(
        names,
        [
            "`fsync (system call)`, called from train.py:41 main",
            "`torch.serialization.save`, called from train.py:41 main",
            "train.py:50 step"
        ]
    );
    let calls =
        profile.functions_while_idle().into_iter().filter(|one| one.frame.frame.file == "system call");
    assert_eq!(calls.map(|one| one.frame.frame.function).collect::<Vec<_>>(), ["fsync"]);
    // A thread that runs in the kernel has no frame of the call.
    assert!(places[0].time.value > 0.3 * profile.accounts().idle_ns().value);
    let of_calls = |stack: &HostStack| stack.frames.iter().any(|frame| frame.frame.function == "fsync");
    let time = profile.idle_time_where(of_calls).expect("samples");
    assert!((time.value - places[0].time.value).abs() < 1.0, "{time:?}");
}

#[test]
fn a_thread_that_waits_is_shown_with_what_keeps_it_waiting() {
    let dir = TempDir::new().unwrap();
    let starts = training(&dir, 40);
    let (mut host, thread) = sampler(&dir);
    let busy = host.thread(0, 77, "prefetch");
    let worker = host.process(99, std::process::id(), "pt_data_worker");
    let worker = host.thread(worker, 99, "pt_data_worker");
    for start in starts {
        let (begin, middle, end) = (start + 5 * MS, start + 25 * MS, start + 40 * MS);
        host.samples(thread, (begin, middle), &[STEP], &waits(WaitsFor::Gil { holder: Some(77) }));
        host.samples(thread, (middle, end), &[TRAIN, NEXT], &waits(WaitsFor::Futex { address: 8 }));
        host.samples(busy, (begin, middle), &[DECODE], &Doing::Running);
        host.samples(busy, (middle, end), &[DECODE], &waits(WaitsFor::Sleep));
        host.samples(worker, (begin, end), &[TRAIN, DECODE], &Doing::Running);
    }
    host.finish();
    let steady = profile_of(&dir).in_phase(PhaseKind::Steady).expect("a steady state");
    let places = steady.idle_places(|_, _| true);
    let seen: Vec<_> = places
        .iter()
        .map(|place| {
            let (other, stack) = place.other.expect("another stack");
            (place.line().unwrap().line, place.state, other, stack.thread.as_str())
        })
        .collect();
    assert_eq!(
        seen,
        [
            (Some(41), HostState::WaitsForLock, Other::Worker, "pt_data_worker"),
            (Some(50), HostState::WaitsForGil, Other::Holder, "prefetch"),
        ]
    );
}

#[test]
fn what_was_not_sampled_is_unknown() {
    let dir = TempDir::new().unwrap();
    let starts = training(&dir, 40);
    let (mut host, thread) = sampler(&dir);
    // The sampler starts at the middle, and another thread is of no interest.
    let other = host.thread(0, 78, "monitor");
    for (step, start) in starts.into_iter().enumerate() {
        host.samples(other, (start, start + 40 * MS), &[DECODE], &Doing::Running);
        if step >= 20 {
            host.samples(thread, (start, start + 40 * MS), &[STEP], &Doing::Running);
        }
    }
    host.finish();
    let steady = profile_of(&dir).in_phase(PhaseKind::Steady).expect("a steady state");
    let [host_code, ..] = &steady.idle_functions()[..] else { panic!("no idle account") };
    assert!((host_code.unknown_share - 0.5).abs() < 0.06, "{}", host_code.unknown_share);
    let [step] = &host_code.functions[..] else { panic!("{:?}", host_code.functions) };
    let sum = step.self_share.value + host_code.unknown_share;
    assert!((sum - 1.0).abs() < 1e-6, "{sum}");
}

#[test]
fn a_session_without_samples_says_nothing_of_them() {
    let dir = TempDir::new().unwrap();
    training(&dir, 20);
    let profile = profile_of(&dir);
    assert!(profile.idle_functions().is_empty() && profile.functions_while_idle().is_empty());
    let text = serde_json::to_string(&profile).unwrap();
    for name in ["host_stacks", "host_sampling", "host_samples"] {
        assert_eq!(text.find(&format!("{name:?}:")).map(|at| &text[at..at + 90]), None);
    }
}

/// The idle stretches of a process.
#[derive(Default)]
struct Stretches(Vec<(u64, u64, IdleCause)>);

impl Observer for Stretches {
    fn read(&mut self, _: u64) {}
    fn process(&mut self, _: &ObservedProcess<'_>) {}
    fn call(&mut self, _: &ObservedCall) {}
    fn work(&mut self, _: &ObservedWork) {}
    fn range(&mut self, _: u32, _: u64, _: u32) {}
    fn stretch(&mut self, _: Option<usize>, from: u64, to: u64, on: Use) {
        if let Use::Idle(cause) = on {
            self.0.push((from, to, cause));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn samples_are_those_of_the_idle_stretches_and_shares_add_up(
        program in prop::collection::vec((0u64..3, 0u64..40), 1..60),
        spans in prop::collection::vec((0u64..400, 0u64..60, 1u32..40, 0usize..4, 0usize..3, any::<bool>()), 0..60),
    ) {
        let dir = TempDir::new().unwrap();
        let mut recording = Recording::new(dir.path());
        let function = recording.function("gelu");
        let config = recording.config(function, 132, 256);
        for (what, length) in program {
            match what {
                0 => recording.timed(config, LEGACY, length * MS / 4),
                1 => recording.call("cuModuleLoadData", CallClass::Module, length * MS / 4, Default::default()),
                _ => recording.now += length * MS / 4,
            }
        }
        recording.timed(config, LEGACY, MS);
        recording.exit();
        let (mut host, thread) = sampler(&dir);
        let stacks: [&[OnHost<'_>]; 4] = [&[], &[TRAIN], &[TRAIN, SAVE], &[STEP, SAVE, SAVE, WRITE]];
        let doings = [Doing::Running, waits(WaitsFor::Sleep), waits(WaitsFor::Gil { holder: None })];
        // Of spans that overlap, the later one is damage.
        let mut kept: Vec<(u64, u64, u32, usize)> = Vec::new();
        let mut sorted = spans.clone();
        sorted.sort_by_key(|&(from, lasts, ..)| (from, lasts));
        for (from, lasts, samples, stack, ..) in sorted {
            let (first, last) = (from * MS / 2 + 1, from * MS / 2 + 1 + lasts * MS / 8);
            if kept.last().is_none_or(|&(_, end, ..)| end <= first) {
                kept.push((first, last, samples, stack));
            }
        }
        for (from, lasts, samples, stack, doing, is_settled) in spans {
            let (first_ns, last_ns) = (from * MS / 2 + 1, from * MS / 2 + 1 + lasts * MS / 8);
            let span = Span { thread, first_ns, last_ns, samples, stands_for: 1, is_settled, ..Span::default() };
            host.span(span, stacks[stack], &doings[doing]);
        }
        host.finish();
        let session = test_session::open(&dir);
        let profile = Profile::from_session(&session);
        let mut stretches = Stretches::default();
        Builder::default().add_observed(&session, &mut stretches);

        // Every sample of a kept span in an idle stretch counts once, for that stretch's account.
        let mut expected: BTreeMap<IdleCause, u64> = BTreeMap::new();
        let mut idle: BTreeMap<IdleCause, u64> = BTreeMap::new();
        for &(from, to, cause) in &stretches.0 {
            *idle.entry(cause).or_default() += to - from;
            for &(first, last, samples, _) in &kept {
                let step = (last - first) as f64 / f64::from(samples.saturating_sub(1).max(1));
                let moments = (0..samples).map(|at| first as f64 + step * f64::from(at));
                let inside = moments.filter(|&at| from as f64 <= at && at < to as f64).count() as u64;
                *expected.entry(cause).or_default() += inside;
            }
        }
        expected.retain(|_, samples| *samples > 0);
        let mut found: BTreeMap<IdleCause, u64> = BTreeMap::new();
        let mut idle_of_samples: BTreeMap<IdleCause, u64> = BTreeMap::new();
        for samples in profile.activities.iter().flat_map(|activity| &activity.host_samples) {
            *found.entry(samples.cause).or_default() += samples.read;
            *idle_of_samples.entry(samples.cause).or_default() += samples.idle_ns as u64;
            prop_assert_eq!(samples.stacks.iter().map(|one| one.samples).sum::<u64>(), samples.read);
            prop_assert!(0.0 <= samples.sampled_ns && samples.sampled_ns <= samples.idle_ns);
        }
        found.retain(|_, samples| *samples > 0);
        prop_assert_eq!(&found, &expected);
        if !kept.is_empty() {
            prop_assert_eq!(idle_of_samples, idle);
        }

        for account in profile.idle_functions() {
            let own: f64 = account.functions.iter().map(|one| one.self_share.value).sum();
            prop_assert!(own + account.unknown_share <= 1.0 + 1e-9, "{} {}", own, account.unknown_share);
            for one in &account.functions {
                prop_assert!(one.self_share.value <= one.total_share.value);
                let (low, high) = one.total_share.bounds();
                prop_assert!(0.0 <= low && high <= 1.0);
                let written = stacks.iter().flat_map(|stack| stack.iter());
                let known = |&(kind, function, file, line): &OnHost<'_>| {
                    let frame = &one.frame.frame;
                    (kind == FrameKind::Native, function, file, line)
                        == (one.frame.is_native, &*frame.function, &*frame.file, frame.line.unwrap_or(0))
                };
                prop_assert!(written.into_iter().any(known), "invented: {:?}", one);
            }
        }
        let places = profile.idle_places(|_, _| true);
        let all: f64 = places.iter().map(|place| place.time.value).sum();
        let sampled: f64 =
            profile.activities.iter().flat_map(|one| &one.host_samples).map(|one| one.sampled_ns).sum();
        prop_assert!(all <= sampled * (1.0 + 1e-9), "{} of {}", all, sampled);
    }
}

/// The profile of the session as if `apex attach` had made it.
fn attached(dir: &TempDir) -> Profile {
    let meta = serde_json::json!({
        "schema": 1, "apex_version": "0.1.0", "command": ["train"], "cwd": "/", "started_real_ns": 0, "ended_real_ns": 1,
        "exit": null, "device": "host", "timing": "off", "attached": true
    });
    std::fs::write(dir.path().join("session.json"), meta.to_string()).unwrap();
    Profile::from_session(&apex_trace::Session::open(dir.path()).unwrap())
}

#[test]
fn a_session_of_attach_says_what_all_threads_did() {
    let dir = TempDir::new().unwrap();
    training(&dir, 1);
    let (mut host, thread) = sampler(&dir);
    host.samples(thread, (0, 300 * MS), &[TRAIN, STEP], &Doing::Running);
    host.samples(thread, (300 * MS, 400 * MS), &[TRAIN, SAVE], &waits(WaitsFor::Sleep));
    host.finish();
    assert_eq!(profile_of(&dir).host, None, "it has launches");
    let profile = attached(&dir);
    let [thread] = &profile.host.as_ref().expect("a view of the host").threads[..] else {
        panic!("one thread")
    };
    let runs = thread.running_ns / thread.sampled_ns;
    assert!((runs - 0.75).abs() < 0.02, "{runs}");
    let [running, asleep] = &profile.host_functions()[..] else { panic!("two states") };
    assert_eq!((running.state, asleep.state), (HostState::Running, HostState::Sleeps));
    let shares = |name: &str| {
        let function = running.functions.iter().find(|found| found.frame.frame.function == name).unwrap();
        (function.self_share.value, function.total_share.value)
    };
    assert_eq!((shares("step"), shares("main")), ((1.0, 1.0), (0.0, 1.0)));
    let places = profile.host_places(|one| one.state == HostState::Sleeps);
    assert_eq!(places[0].0, "`torch.serialization.save`, called from train.py:41 main");
}

#[test]
fn a_sample_stands_for_the_time_to_the_next_look_at_its_thread_at_whatever_rate() {
    let dir = TempDir::new().unwrap();
    training(&dir, 1);
    let (mut host, thread) = sampler(&dir);
    let sleeper = host.thread(0, 77, "sleeper");
    let stopped = host.thread(0, 78, "stopped");
    // A look in 100 periods: one thread runs all the time, and one sleeps.
    for look in 0..10 {
        let at = look * 100 * PERIOD;
        let one =
            |thread| Span { thread, first_ns: at, last_ns: at, samples: 1, stands_for: 1, ..Span::default() };
        host.span(one(thread), &[STEP], &Doing::Running);
    }
    let asleep = |last_ns| Span { last_ns, samples: 10, stands_for: 1, is_asleep: true, ..Span::default() };
    host.span(Span { thread: sleeper, ..asleep(900 * PERIOD) }, &[SAVE], &waits(WaitsFor::Sleep));
    for at in [0, 60_000 * MS] {
        host.samples(stopped, (at, at + PERIOD), &[STEP], &Doing::Running);
    }
    host.finish();
    let profile = attached(&dir);
    let whole = profile.host.as_ref().unwrap();
    let times = |tid: &dyn Fn(u32) -> bool| {
        let found = whole.threads.iter().find(|found| tid(found.tid)).unwrap();
        (found.running_ns, found.sampled_ns)
    };
    let all = (901 * PERIOD) as f64;
    assert_eq!(times(&|tid| tid != 77 && tid != 78), (all, all));
    assert_eq!(times(&|tid| tid == 77), (0.0, all));
    let (running, _) = times(&|tid| tid == 78);
    assert_eq!(running, (2_000 * MS + PERIOD) as f64, "nothing is known of a minute without a look");
}
