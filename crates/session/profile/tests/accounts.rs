//! Time accounted for: accounts add up, phases are found, and what is unknown says so.

use apex_profile::{
    Account, Accounts, Activity, IdleCause, OverTime, Phase, PhaseKind, Profile, Selection, Sequence, Totals,
};
use apex_trace::layout::{Call, CallClass, MemoryKind, RecordHead, flags};
use proptest::prelude::*;
use tempfile::TempDir;
use test_session::{BLOCKING, LEGACY, NON_BLOCKING, Recording};

fn profile(program: impl FnOnce(&mut Recording)) -> Profile {
    test_session::of_program(program, Profile::from_session)
}

fn activity(program: impl FnOnce(&mut Recording)) -> Activity {
    let mut profile = profile(program);
    assert_eq!(profile.activities.len(), 1);
    profile.activities.remove(0)
}

fn idle(accounts: &Accounts, cause: IdleCause) -> f64 {
    accounts.idle.get(&cause).map_or(0.0, |time| time.value)
}

/// Accounts are whole nanoseconds, none is negative, and they add up to the span exactly.
fn assert_exact(accounts: &Accounts) {
    let entries = accounts.entries();
    let sum: f64 = entries.iter().map(|(_, time)| time.value).sum();
    assert_eq!(sum, accounts.span_ns, "{entries:?}");
    for (account, time) in entries {
        let (low, high) = time.bounds();
        assert!(0.0 <= low && low <= time.value && time.value <= high, "{account:?}: {time:?}");
        assert_eq!(time.value.fract(), 0.0);
    }
}

/// The parts of each account add up to it, and the accounts of each part to its length.
fn assert_parts_are_exact(activity: &Activity) {
    let over_time = activity.over_time.as_ref().unwrap();
    for account in Account::ALL {
        let parts = over_time.parts(account);
        assert!(parts.is_empty() || parts.len() == OverTime::PARTS);
        let sum: u64 = parts.iter().sum();
        assert_eq!(sum as f64, activity.accounts.time(account).value, "{account:?}");
    }
    for part in 0..OverTime::PARTS {
        let of = |account| over_time.parts(account).get(part).copied().unwrap_or(0);
        let length: u64 = Account::ALL.into_iter().map(of).sum();
        assert!((length as f64 - over_time.part_ns).abs() <= 1.0, "part {part}: {length}");
    }
}

/// Asserts that two windows that meet add up to the whole run.
fn assert_two_parts_make_the_whole(whole: &Profile, early: &Profile, late: &Profile) {
    for part in [early, late] {
        part.activities.iter().for_each(|activity| assert_exact(&activity.accounts));
    }
    let spans = |profile: &Profile| profile.activities.iter().map(|a| a.accounts.span_ns).sum::<f64>();
    assert_eq!(spans(early) + spans(late), spans(whole));
    let of = |profile: &Profile, account| {
        profile.accounts().entries().iter().find(|(of, _)| *of == account).map_or(0.0, |(_, time)| time.value)
    };
    for (account, time) in whole.accounts().entries() {
        assert_eq!(of(early, account) + of(late, account), time.value, "{account:?}");
    }
    let launches = |profile: &Profile| {
        let Totals { launches, failed, captured, .. } = profile.totals;
        [launches, failed, captured, profile.kernels.iter().map(|kernel| kernel.launches.calls).sum()]
    };
    let (early_ones, late_ones) = (launches(early), launches(late));
    assert_eq!(std::array::from_fn(|at| early_ones[at] + late_ones[at]), launches(whole));
    let calls = |profile: &Profile| profile.calls.iter().map(|call| call.count).sum::<u64>();
    assert_eq!(calls(early) + calls(late), calls(whole));
    let bytes = |profile: &Profile| profile.copies.iter().map(|copies| copies.bytes).sum::<u64>();
    assert_eq!(bytes(early) + bytes(late), bytes(whole));
}

#[derive(Clone, Debug)]
enum Step {
    Launch { kernel: usize, stream: u32, cpu_ns: u64 },
    Timed { kernel: usize, stream: u32, gpu_ns: u64, idle: bool },
    Synchronise { stream: u32, cpu_ns: u64 },
    SynchroniseAll { cpu_ns: u64 },
    Copy { bytes: u64, asynchronous: bool, to_host: bool, cpu_ns: u64 },
    Free { cpu_ns: u64 },
    RecordEvent { stream: u32 },
    WaitEvent { stream: u32 },
    AwaitEvent { cpu_ns: u64 },
    Pause { ns: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let stream = || prop::sample::select(vec![LEGACY, BLOCKING, NON_BLOCKING, 0, 9]);
    let call = || 100u64..300_000;
    prop_oneof![
        3 => (0usize..4, stream(), call()).prop_map(|(kernel, stream, cpu_ns)| Step::Launch { kernel, stream, cpu_ns }),
        4 => (0usize..3, stream(), 0u64..2_000_000, any::<bool>())
            .prop_map(|(kernel, stream, gpu_ns, idle)| Step::Timed { kernel, stream, gpu_ns, idle }),
        1 => (stream(), call()).prop_map(|(stream, cpu_ns)| Step::Synchronise { stream, cpu_ns }),
        1 => call().prop_map(|cpu_ns| Step::SynchroniseAll { cpu_ns }),
        2 => (1u64..1 << 28, any::<bool>(), any::<bool>(), call())
            .prop_map(|(bytes, asynchronous, to_host, cpu_ns)| Step::Copy { bytes, asynchronous, to_host, cpu_ns }),
        1 => call().prop_map(|cpu_ns| Step::Free { cpu_ns }),
        1 => stream().prop_map(|stream| Step::RecordEvent { stream }),
        1 => stream().prop_map(|stream| Step::WaitEvent { stream }),
        1 => call().prop_map(|cpu_ns| Step::AwaitEvent { cpu_ns }),
        1 => (1u64..40_000_000).prop_map(|ns| Step::Pause { ns }),
    ]
}

fn event(name: &str, class: CallClass, stream: u32, cpu_ns: u64, program: &mut Recording) {
    let head = RecordHead { flags: if stream == 0 { 0 } else { flags::ASYNC }, ..RecordHead::default() };
    program.call(name, class, cpu_ns, Call { head, stream, object: 0xe, ..Call::default() });
}

impl Step {
    fn take(&self, program: &mut Recording, configs: &[u32]) {
        match *self {
            Step::Launch { kernel, stream, cpu_ns } => program.launch_taking(configs[kernel], stream, cpu_ns),
            Step::Timed { kernel, stream, gpu_ns, idle } => {
                let start = program.launch(configs[kernel], stream);
                let flags = if idle { flags::STREAM_WAS_IDLE } else { 0 };
                program.timing(configs[kernel], stream, start, gpu_ns, flags);
            }
            Step::Synchronise { stream, cpu_ns } => program.synchronise(stream, cpu_ns),
            Step::SynchroniseAll { cpu_ns } => program.synchronise(0, cpu_ns),
            Step::Copy { bytes, asynchronous, to_host, cpu_ns } => {
                let (device, host) = (MemoryKind::Device, MemoryKind::Pageable);
                let (to, from) = if to_host { (host, device) } else { (device, host) };
                program.copy(to, from, bytes, asynchronous, cpu_ns);
            }
            Step::Free { cpu_ns } => program.free(0x1000, cpu_ns),
            Step::RecordEvent { stream } => event("cuEventRecord", CallClass::Event, stream, 500, program),
            Step::WaitEvent { stream } => event("cuStreamWaitEvent", CallClass::Stream, stream, 500, program),
            Step::AwaitEvent { cpu_ns } => {
                event("cuEventSynchronize", CallClass::Synchronize, 0, cpu_ns, program);
            }
            Step::Pause { ns } => program.now += ns,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn accounts_add_up_whatever_a_program_does(
        steps in prop::collection::vec(step(), 1..60),
        repeats in 1usize..20,
        cut in 0.0f64..1.0,
    ) {
        let program = |program: &mut Recording| {
            let names = ["first", "second", "third", "never_timed"];
            let functions = names.map(|name| program.function(name));
            let configs = functions.map(|function| program.config(function, 264, 128));
            for _ in 0..repeats {
                steps.iter().for_each(|step| step.take(program, &configs));
            }
        };
        let [profile, early, late] = test_session::of_program(program, |session| {
            let whole = Profile::from_session(session);
            let cut = (whole.totals.wall_ns * cut) as u64;
            let part = |window| {
                Profile::of_selection(session, &Selection { window: Some(window), ..Selection::default() })
            };
            [whole, part(0..cut), part(cut..u64::MAX)]
        });
        assert_two_parts_make_the_whole(&profile, &early, &late);
        for activity in &profile.activities {
            assert_exact(&activity.accounts);
            assert_parts_are_exact(activity);
            prop_assert_eq!(activity.accounts.span_ns, activity.span_ns);
            let mut sum = 0.0;
            for phase in &activity.phases {
                assert_exact(&phase.accounts);
                sum += phase.accounts.span_ns;
            }
            prop_assert_eq!(sum, activity.span_ns);
            let launches: u64 = activity.phases.iter().map(|phase| phase.launches).sum();
            prop_assert_eq!(launches, activity.launches);
            for launches in &activity.launches_over_time {
                let of = |phase: &Phase| phase.kernels.iter().find(|(kernel, _)| *kernel == launches.kernel).map_or(0, |(_, count)| *count);
                let counted: u64 = activity.phases.iter().map(of).sum();
                prop_assert_eq!(launches.parts.iter().sum::<u64>(), counted);
            }
        }
        for kind in PhaseKind::ALL {
            if let Some(part) = profile.in_phase(kind) {
                prop_assert!(part.totals.span_ns <= profile.totals.span_ns);
                prop_assert!(part.totals.launches <= profile.totals.launches);
            }
        }
    }
}

#[test]
fn idle_time_is_charged_to_what_the_host_did() {
    let activity = activity(|program| {
        let function = program.function("kernel");
        let config = program.config(function, 1056, 256);
        for _ in 0..10 {
            program.timed(config, LEGACY, 100_000);
            // Busy for 100 µs; the host comes to wait after 10, and returns with the work.
            program.now += 10_000;
            program.synchronise(LEGACY, 92_000);
            program.allocate(MemoryKind::Device, 0x1000, 1 << 20, 30_000);
            program.now += 50_000;
        }
    });
    let accounts = &activity.accounts;
    assert_exact(accounts);
    assert_eq!(accounts.kernels.value, 1e6);
    assert_eq!(idle(accounts, IdleCause::Allocating), 9.0 * 30e3);
    assert_eq!(idle(accounts, IdleCause::HostCode), 9.0 * 50e3);
    assert_eq!(idle(accounts, IdleCause::Synchronising), 10.0 * 2e3);
    assert_eq!(idle(accounts, IdleCause::Launching), 10.0 * 4e3);
    assert_eq!(accounts.unknown.value, 0.0);
}

#[test]
fn a_wait_that_the_model_did_not_expect_was_for_kernels() {
    let activity = activity(|program| {
        let function = program.function("kernel");
        let config = program.config(function, 1056, 256);
        program.timed(config, LEGACY, 10_000);
        // By its sample, the kernel of the second launch should take 10 µs too; the host waits for
        // 5 ms.
        program.launch(config, LEGACY);
        program.synchronise(LEGACY, 5_000_000);
    });
    let busy = activity.accounts.kernels.value / activity.span_ns;
    assert!(busy > 0.99, "{:?}", activity.accounts);
}

/// Launches of a kernel, each with a copy of four bytes behind it and a wait of 2 ms; the times are
/// those of the first launches.
fn waits_behind_copies(times: &[u64], launches: usize) -> Activity {
    activity(|program| {
        let function = program.function("kernel");
        let config = program.config(function, 1056, 256);
        for at in 0..launches {
            match times.get(at) {
                Some(&gpu_ns) => program.timed(config, LEGACY, gpu_ns),
                None => _ = program.launch(config, LEGACY),
            }
            program.copy(MemoryKind::Pinned, MemoryKind::Device, 4, true, 4_000);
            program.synchronise(LEGACY, 2_000_000);
        }
    })
}

#[test]
fn a_wait_behind_a_copy_is_for_the_kernel_before_it_or_for_no_work_at_all() {
    let of = |times: &[u64], launches| {
        let activity = waits_behind_copies(times, launches);
        assert_exact(&activity.accounts);
        let share = |ns: f64| ns / activity.span_ns;
        assert!(share(activity.accounts.copies.value) < 0.001, "{:?}", activity.accounts);
        (share(activity.accounts.kernels.value), share(idle(&activity.accounts, IdleCause::Synchronising)))
    };
    // The kernel takes 1 ms without doubt: the driver does something else for the rest of a wait.
    let (kernels, waiting) = of(&[1_000_000; 40], 40);
    assert!((kernels - 0.5).abs() < 0.02 && (waiting - 0.5).abs() < 0.02, "{kernels} {waiting}");
    // A kernel that takes this or that may have taken all of the wait.
    let (kernels, waiting) = of(&[500_000, 1_500_000, 400_000, 1_600_000, 1_000_000], 400);
    assert!(kernels > 0.95 && waiting < 0.02, "{kernels} {waiting}");
}

#[test]
fn a_free_that_waits_for_kernels_costs_nothing() {
    let activity = activity(|program| {
        let function = program.function("kernel");
        let config = program.config(function, 1056, 256);
        for _ in 0..20 {
            program.timed(config, LEGACY, 1_000_000);
            program.free(0x1000, 1_010_000);
        }
    });
    let share = idle(&activity.accounts, IdleCause::Allocating) / activity.span_ns;
    assert!(share < 0.02, "{:?}", activity.accounts);
}

#[test]
fn a_device_whose_kernels_are_not_timed_is_unknown() {
    let activity = activity(|program| {
        let function = program.function("kernel");
        let config = program.config(function, 1056, 256);
        program.launch(config, LEGACY);
        program.now += 1_000_000;
        program.synchronise(LEGACY, 1_000_000);
        program.now += 1_000_000;
        program.launch(config, LEGACY);
        program.synchronise(LEGACY, 10_000);
    });
    let accounts = &activity.accounts;
    assert_exact(accounts);
    // From the first launch to the return of the first synchronisation; after it the device is
    // known to be idle.
    assert!((accounts.unknown.value - 2.01e6).abs() < 1e4, "{accounts:?}");
    assert_eq!(idle(accounts, IdleCause::HostCode), 1e6);
    assert!(activity.idle_share.is_none() && activity.idle_by.is_empty());
}

#[test]
fn one_untimed_launch_among_timed_ones_is_bounded() {
    let profile = profile(|program| {
        let (first, second) = (program.function("init"), program.function("work"));
        let (init, work) = (program.config(first, 1056, 256), program.config(second, 1056, 256));
        program.launch(init, LEGACY);
        program.now += 3_000_000_000;
        program.launch(work, LEGACY);
        for _ in 0..40 {
            program.timed(work, LEGACY, 3_000_000);
        }
        program.synchronise(LEGACY, 122_000_000);
    });
    let activity = &profile.activities[0];
    assert!(activity.accounts.unknown_share() < 0.01, "{:?}", activity.accounts);
    assert!(idle(&activity.accounts, IdleCause::HostCode) > 2.9e9);
    let gap = &activity.gaps[0];
    let name = |kernel: Option<usize>| profile.kernels[kernel.expect("one")].short_name.clone();
    assert_eq!((name(gap.before), name(gap.after)), ("init".to_owned(), "work".to_owned()));
    assert_eq!(activity.iterations, None, "40 launches in 4% of the time are not what the program is");
    assert_eq!(activity.phases.iter().map(|phase| phase.kind).collect::<Vec<_>>(), [PhaseKind::Whole]);
}

#[test]
fn the_first_launch_of_a_kernel_loads_it() {
    let activity = activity(|program| {
        let function = program.function("kernel");
        let config = program.config(function, 1056, 256);
        program.launch_taking(config, LEGACY, 30_000_000);
        for _ in 0..10 {
            program.timed(config, LEGACY, 1_000_000);
        }
        program.synchronise(LEGACY, 12_000_000);
    });
    assert_eq!(idle(&activity.accounts, IdleCause::Loading), 30e6);
}

#[test]
fn the_time_of_a_function_in_another_configuration_is_its_estimate() {
    let activity = activity(|program| {
        let function = program.function("grows");
        for blocks in 1..=100 {
            let config = program.config(function, blocks, 128);
            match blocks {
                50 => program.timed(config, LEGACY, 20_000),
                _ => drop(program.launch(config, LEGACY)),
            }
            program.now += 36_000;
        }
        program.synchronise(LEGACY, 1_000);
    });
    assert_eq!(activity.accounts.unknown.value, 0.0);
    assert!((activity.accounts.kernels.value - 100.0 * 20e3).abs() < 1.0, "{:?}", activity.accounts);
}

/// A program that starts up, warms up, iterates with shapes that grow, and evaluates twice between.
fn training(program: &mut Recording, layers: u32, steps: u32) {
    let [init, forward, backward, loss, update, evaluate] =
        ["init", "forward", "backward", "loss", "update", "evaluate"].map(|name| program.function(name));
    let of = |function: u32, blocks: u32, program: &mut Recording| {
        let config = program.config(function, blocks, 128);
        program.timed(config, LEGACY, 20_000);
        program.now += 10_000;
    };
    for layer in 0..30 {
        of(init, layer + 1, program);
        program.now += 4_000_000;
    }
    for step in 0..steps {
        if step < 5 {
            program.now += 5_000_000;
        }
        for layer in 0..layers {
            of(forward, 100 + layer + step, program);
        }
        of(loss, 1, program);
        for layer in 0..layers {
            of(backward, 200 + layer + step, program);
            of(update, 300 + layer, program);
        }
        program.synchronise(LEGACY, 20_000);
        if step % 20 == 15 {
            (0..40).for_each(|_| of(evaluate, 132, program));
        }
    }
}

#[test]
fn iterations_are_found_with_start_up_warm_up_and_evaluation() {
    let activity = activity(|program| training(program, 6, 60));
    let iterations = activity.iterations.clone().expect("it repeats");
    // The mark is found in every step; an interval with an evaluation in it is none, nor is the
    // last one.
    assert_eq!((iterations.count + iterations.warmup, iterations.warmup), (56, 4));
    assert_eq!(iterations.launches, 19.0);
    let step = 19.0 * 14_000.0 + 20_000.0;
    assert!((iterations.duration.median_ns / step - 1.0).abs() < 0.02, "{iterations:?}");
    let kinds: Vec<PhaseKind> = activity.phases.iter().map(|phase| phase.kind).collect();
    use PhaseKind::{Between, End, Startup, Steady, Warmup};
    assert_eq!(kinds, [Startup, Warmup, Steady, Between, End]);
    let steady = activity.phase(Steady).expect("it has one");
    let each = steady.accounts.span_ns / iterations.count as f64;
    assert!((each / step - 1.0).abs() < 0.05, "{each}");
    assert!(activity.phase(Startup).expect("it has one").accounts.span_ns > 0.12e9);
    let synchronisations: u64 = steady.calls.iter().map(|call| call.count).sum();
    assert!(synchronisations.abs_diff(iterations.count) <= 3, "{synchronisations}");
}

#[test]
fn a_phase_alone_has_its_own_launches_and_time() {
    let profile = profile(|program| training(program, 6, 60));
    let steady = profile.in_phase(PhaseKind::Steady).expect("it has one");
    let kernel = |profile: &Profile, name: &str| -> u64 {
        profile.kernels.iter().filter(|k| k.short_name == name).map(|k| k.launches.calls).sum()
    };
    assert_eq!((kernel(&profile, "init"), kernel(&steady, "init")), (30, 0));
    assert!(kernel(&steady, "loss").abs_diff(51) <= 3, "{}", kernel(&steady, "loss"));
    assert_eq!(steady.totals.span_ns, steady.activities[0].accounts.span_ns);
    let (all, part) = (profile.totals.gpu_time_ns.expect("timed"), steady.totals.gpu_time_ns.expect("timed"));
    assert!(part.value < all.value && part.value > 0.6 * all.value);
    assert!(profile.in_phase(PhaseKind::Whole).is_none());
}

#[test]
fn a_window_has_its_steps_and_their_time() {
    let window = |window: std::ops::Range<u64>| {
        let selection = Selection { window: Some(window), ..Selection::default() };
        test_session::of_program(
            |program| training(program, 6, 60),
            |session| Profile::of_selection(session, &selection),
        )
    };
    let whole = window(0..u64::MAX);
    let iterations = whole.activities[0].iterations.clone().expect("it repeats");
    let (start, step) = (iterations.start_ns as u64, iterations.duration.median_ns as u64);
    // Ten steps and a half hold ten whole ones.
    let part = window(start..start + 10 * step + step / 2);
    let activity = &part.activities[0];
    assert_exact(&activity.accounts);
    assert_eq!(activity.span_ns, (10 * step + step / 2) as f64);
    assert_eq!(activity.iterations.as_ref().expect("it repeats").count, 10);
    // The device begins the first one when its launch call has returned.
    let phases: Vec<_> = activity.phases.iter().map(|phase| (phase.kind, phase.accounts.span_ns)).collect();
    assert_eq!(phases, [(PhaseKind::Warmup, 4_000.0), (PhaseKind::Steady, activity.span_ns - 4_000.0)]);
    let none = window(whole.totals.wall_ns as u64 + 1..u64::MAX);
    assert_eq!((none.activities.len(), none.totals.launches), (0, 0));
}

#[test]
fn a_rank_alone_still_waits_for_the_others() {
    let dir = TempDir::new().expect("a temporary directory");
    for (own_ns, collective_ns) in [(1_000_000, 3_000_000), (3_000_000, 1_000_000)] {
        rank(&dir, own_ns, collective_ns);
    }
    let session = test_session::open(&dir);
    let whole = Profile::from_session(&session);
    let waiting = |activity: &Activity| activity.accounts.waiting.value;
    let place = whole.activities.iter().position(|activity| waiting(activity) > 0.0).expect("one waits");
    // Both ranks of this test are the same process, of which a selection cannot take one: the other
    // one gets an identifier of its own.
    let mut session = session;
    session.processes[place].pid += 1;
    assert_eq!(apex_profile::Ranks::of(&session).iter().len(), 2);
    let alone = |pid: u32| {
        let processes = Some([pid].into());
        Profile::of_selection(&session, &Selection { processes, ..Selection::default() })
    };
    let part = alone(session.processes[place].pid);
    assert_eq!((part.activities.len(), part.processes[0].rank), (1, Some(1)));
    assert_eq!(waiting(&part.activities[0]), waiting(&whole.activities[place]));
    assert_eq!(part.totals.launches, whole.totals.launches / 2);
    assert_eq!(waiting(&alone(session.processes[1 - place].pid).activities[0]), 0.0);
}

/// A program whose host launches a step of 200 µs every 40 µs, and waits at the end. Half of the
/// launches are timed.
fn running_ahead(steps: u64) -> Profile {
    profile(|program| {
        let [long, short] = ["long", "short"].map(|name| program.function(name));
        let [long, short] = [long, short].map(|function| program.config(function, 132, 128));
        for step in 0..steps {
            for (config, gpu_ns) in [(long, 150_000), (short, 50_000)] {
                let start = program.now;
                program.launch_taking(config, LEGACY, 20_000);
                if step % 2 == 0 {
                    program.timing(config, LEGACY, start, gpu_ns, 0);
                }
            }
        }
        program.synchronise(LEGACY, steps * 160_000);
    })
}

#[test]
fn a_step_takes_as_long_as_the_device_works_on_it_however_far_the_host_runs_ahead() {
    for steps in [20, 400] {
        let whole = running_ahead(steps);
        let steady = whole.in_phase(PhaseKind::Steady).expect("it repeats");
        let activity = &steady.activities[0];
        let iterations = activity.iterations.as_ref().expect("it repeats");
        assert_eq!(iterations.duration.mean_ns, 40_000.0, "the host's");
        assert_eq!(iterations.step_ns.value, 200_000.0);
        assert_eq!(
            (iterations.step_ns.samples, iterations.step_ns.bounds()),
            (steps - 1, (200_000.0, 200_000.0))
        );
        assert_eq!((steady.step_ns(), steady.steps()), (Some(iterations.step_ns), Some((steps - 1) as f64)));
        let kernels = steady.totals.gpu_time_ns.expect("timed").value;
        assert_eq!((activity.span_ns, kernels), (200_000.0 * (steps - 1) as f64, activity.span_ns));
        // What the host does in it is its own.
        assert_eq!(steady.totals.launches, 2 * (steps - 1));
        let covered = |profile: &Profile| profile.sequences.iter().map(Sequence::covered).sum::<u64>();
        assert_eq!((covered(&whole), covered(&steady)), (2 * steps, 2 * (steps - 1)));
        whole.activities[0].phases.iter().for_each(|phase| assert_exact(&phase.accounts));
    }
}

#[test]
fn layers_are_not_iterations_and_one_off_programs_have_none() {
    let generation = activity(|program| {
        let [attention, mlp, head, pick] =
            ["attention", "mlp", "head", "pick"].map(|name| program.function(name));
        for token in 0..100u32 {
            for layer in 0..12 {
                for function in [attention, mlp, mlp] {
                    let config = program.config(function, 1 + token + layer, 128);
                    program.timed(config, LEGACY, 5_000);
                }
            }
            for function in [head, pick] {
                let config = program.config(function, 7, 128);
                program.timed(config, LEGACY, 5_000);
            }
            program.synchronise(LEGACY, 9_000);
        }
    });
    let iterations = generation.iterations.expect("it repeats");
    assert_eq!((iterations.count, iterations.launches), (99, 38.0));

    let one_off = activity(|program| {
        for number in 0..50u32 {
            let function = program.function(&format!("stage_{number}"));
            let config = program.config(function, 132, 128);
            program.launch(config, LEGACY);
            program.timed(config, LEGACY, 100_000);
        }
    });
    assert_eq!((one_off.iterations, one_off.phases.len()), (None, 1));
}

/// A rank that computes and reduces a hundred times.
fn rank(dir: &TempDir, own_ns: u64, collective_ns: u64) {
    let mut rank = Recording::new(dir.path());
    let names = ["train", "_Z38ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE"];
    let [train, reduce] = names.map(|name| rank.function(name));
    let (train, reduce) = (rank.config(train, 1056, 256), rank.config(reduce, 24, 544));
    for _ in 0..100 {
        rank.timed(train, NON_BLOCKING, own_ns);
        rank.timed(reduce, NON_BLOCKING, collective_ns);
        rank.synchronise(NON_BLOCKING, 4_000_000);
    }
    rank.exit();
}

#[test]
fn ranks_wait_in_collectives_for_the_slowest() {
    let dir = TempDir::new().expect("a temporary directory");
    for (own_ns, collective_ns) in [(1_000_000, 3_000_000), (3_000_000, 1_000_000)] {
        rank(&dir, own_ns, collective_ns);
    }
    let profile = Profile::from_session(&test_session::open(&dir));
    let mut waits: Vec<f64> =
        profile.activities.iter().map(|a| a.accounts.waiting.value / a.span_ns).collect();
    waits.sort_by(f64::total_cmp);
    assert!(waits[0] == 0.0 && (waits[1] - 0.5).abs() < 0.02, "{waits:?}");
    profile.activities.iter().for_each(|activity| assert_exact(&activity.accounts));
    profile.activities.iter().for_each(assert_parts_are_exact);
}

#[test]
fn a_program_that_only_copies_and_sets_memory_has_accounts() {
    let profile = profile(|program| {
        for _ in 0..512 {
            program.copy(MemoryKind::Device, MemoryKind::Device, 4_000, true, 3_000);
            program.now += 1_000;
        }
        program.copy(MemoryKind::Pageable, MemoryKind::Device, 65_536, false, 40_000);
        let set =
            Call { stream: LEGACY, memory: MemoryKind::Device as u8, bytes: 1 << 20, ..Call::default() };
        program.call("cuMemsetD8Async", CallClass::Set, 5_000, set);
        program.synchronise(LEGACY, 20_000);
    });
    let [activity] = &profile.activities[..] else { panic!("{:?}", profile.activities) };
    assert_exact(&activity.accounts);
    assert_parts_are_exact(activity);
    assert_eq!((activity.device, activity.ordinal, activity.launches), (Some(0), Some(0), 0));
    assert!(activity.span_ns >= 512.0 * 4_000.0 + 65_000.0, "{}", activity.span_ns);
    assert!(activity.accounts.copies.value > 0.0, "{:?}", activity.accounts);
    let waiting = idle(&activity.accounts, IdleCause::Transferring);
    assert!(waiting > 0.5 * activity.span_ns, "the host is in copy calls: {:?}", activity.accounts);
    let within = profile.copies.iter().find(|copies| copies.asynchronous).expect("copies");
    assert_eq!((within.after_launch.count, within.after_launch.cpu_ns), (512, 512.0 * 3_000.0));
    assert_eq!(within.sizes.in_words(), " of 3.91 KiB");
}

#[test]
fn a_program_of_copies_alone_has_steps_like_one_of_kernels() {
    let copies = |program: &mut Recording, steps: u64, rows: u64| {
        for step in 0..steps {
            (0..rows).for_each(|_| program.copy(MemoryKind::Pinned, MemoryKind::Device, 1280, true, 2_500));
            program.synchronise(LEGACY, 5_000);
            program.now += 100_000 + step;
        }
    };
    let activity = activity(|program| copies(program, 40, 1000));
    let iterations = activity.iterations.clone().expect("it repeats");
    assert!((38..40).contains(&(iterations.count + iterations.warmup)), "{iterations:?}");
    assert_eq!(iterations.launches, 0.0);
    let step = 1000.0 * 2_500.0 + 105_000.0;
    assert!((iterations.duration.median_ns / step - 1.0).abs() < 0.5, "{iterations:?}");
    let steady = activity.phase(PhaseKind::Steady).expect("it has one");
    let calls: Vec<(&str, u64)> = steady.calls.iter().map(|call| (call.name.as_str(), call.count)).collect();
    assert!(calls.iter().any(|&(name, count)| name == "cuMemcpyAsync" && count >= 30_000), "{calls:?}");
    assert_exact(&activity.accounts);
    assert!(activity.accounts.unknown.value < 0.05 * activity.span_ns, "{:?}", activity.accounts);
    assert!(idle(&activity.accounts, IdleCause::Transferring) > 0.5 * activity.span_ns);
    // A few copies are no loop.
    let few = self::activity(|program| copies(program, 5, 10));
    assert!(few.iterations.is_none());
}

#[test]
fn copies_before_the_first_launch_do_not_count_where_there_is_one() {
    let program = |launches: bool| {
        profile(move |program| {
            let function = program.function("kernel");
            let config = program.config(function, 1056, 256);
            program.copy(MemoryKind::Device, MemoryKind::Pageable, 4, false, 3_000);
            program.now += 1_000_000;
            if launches {
                program.timed(config, LEGACY, 100_000);
            }
            program.synchronise(LEGACY, 100_000);
        })
    };
    let (with, without) = (program(true), program(false));
    assert_eq!((with.copies[0].after_launch.count, without.copies[0].after_launch.count), (0, 1));
    assert!(with.totals.span_ns < 250_000.0 && without.totals.span_ns > 1e6);
}
