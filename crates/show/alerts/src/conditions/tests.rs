//! Each condition on both sides of its limit and of its margin. Values lie near the border, so that
//! another limit or margin shows.

use super::*;
use crate::rule::Limits;
use Verdict::{Holds, Over, Unclear};
use apex_profile::{Accounts, Basis, Device, Distribution, Geometry, GpuTime, IdleCause, Iterations};
use apex_profile::{Kernel, Process};
use occupancy::{Occupancy, Waves};

const GPU: &str = "GPU-1";

fn view(profile: &Profile) -> View<'_> {
    View { profile, window: 0..20_000_000_000, used: BTreeMap::new(), readings: BTreeMap::new(), dropped: 0 }
}

/// Returns a profile with steps of `mean_ns` on average, with a narrow interval.
fn stepping(mean_ns: f64) -> Profile {
    let step_ns = Figure::predicted(mean_ns, (0.9999 * mean_ns, 1.0001 * mean_ns)).of_samples(400);
    let iterations = Iterations { count: 400, step_ns, launches: 40.0, ..Iterations::default() };
    let activity = Activity { iterations: Some(iterations), ..Activity::default() };
    Profile { activities: vec![activity], ..Profile::default() }
}

#[test]
fn a_step_is_slower_above_its_limit_and_as_before_below_half_of_it() {
    let good = Reference::of("good".into(), &stepping(1e6));
    let verdict = |mean_ns, limit| {
        let profile = stepping(mean_ns);
        slower(&view(&profile), Some(&good), limit).map(|observed| observed.verdict)
    };
    for limit in [0.1, 0.2] {
        for (part, expected) in
            [(1.05, Holds), (0.95, Unclear), (0.55, Unclear), (0.45, Over), (0.0, Over), (-0.5, Over)]
        {
            assert_eq!(verdict(1e6 * (1.0 + part * limit), limit), Some(expected), "{part} of {limit}");
        }
    }
    assert!(slower(&view(&stepping(2e6)), None, 0.1).is_none());
    let nothing = Profile::default();
    assert_eq!(slower(&view(&nothing), Some(&good), 0.1).unwrap().verdict, Unclear);
    let without = Reference::of("good".into(), &nothing);
    assert!(slower(&view(&stepping(2e6)), Some(&without), 0.1).is_none());
    assert!(good.has_steps() && !without.has_steps());
}

#[test]
fn a_slower_step_says_how_much_longer_it_takes() {
    let good = Reference::of("good".into(), &stepping(1e6));
    let profile = stepping(1.5e6);
    let finding = slower(&view(&profile), Some(&good), 0.1).unwrap().finding.unwrap();
    let expected =
        "a step takes 1.50 ms instead of 1.00 ms in good (50.0% longer; means of 400 and 400 steps)";
    assert_eq!(finding.what, expected);
    assert_eq!((finding.value.value, finding.reference.unwrap().value), (1.5e6, 1e6));
    assert!(matches!(finding.next, Next::Diff(name) if name == "good"));
}

/// A kernel with so many of 64 warps, and its GPU time.
fn kernel(warps: u32, ns: f64) -> Kernel {
    let occupancy = Occupancy {
        blocks_per_sm: 1,
        warps_per_block: warps,
        warps_per_sm: warps,
        max_warps_per_sm: 64,
        block_limits: [None; 5],
    };
    let waves = Waves { blocks: 1, capacity: 1, waves: 1.0, full: 1, tail_blocks: 0, sm_coverage: 1.0 };
    let gpu = GpuTime {
        each: Distribution::default(),
        deviation_ns: None,
        basis: Basis::Busy,
        queued_samples: 0,
        busy_samples: 1,
        idle_samples: 0,
        correction_ns: 0.0,
        total_ns: Figure::measured(ns),
    };
    let geometry = Geometry { occupancy, waves, block_efficiency: 1.0 };
    Kernel { geometry: Some(geometry), gpu: Some(gpu), ..Kernel::default() }
}

fn running(kernels: Vec<Kernel>) -> Profile {
    Profile { kernels, ..Profile::default() }
}

#[test]
fn occupancy_is_weighted_by_time() {
    assert_eq!(occupancy(&running(vec![kernel(64, 3.0), kernel(32, 1.0)])), Some(0.875));
    assert_eq!(occupancy(&running(vec![kernel(16, 0.0)])), None);
    let untimed = Kernel { gpu: None, ..kernel(64, 1.0) };
    let unknown = Kernel { geometry: None, ..kernel(64, 1.0) };
    assert_eq!(occupancy(&running(vec![untimed, unknown, kernel(16, 1.0)])), Some(0.25));
}

#[test]
fn occupancy_fell_relative_to_what_it_was_first_or_in_a_good_run() {
    let look = |memory: &mut Memory, warps, reference: Option<&Reference>| {
        let profile = running(vec![kernel(warps, 1.0)]);
        occupancy_fell(&view(&profile), reference, 0.5, memory).map(|observed| observed.verdict)
    };
    let mut memory = Memory::default();
    assert!(occupancy_fell(&view(&Profile::default()), None, 0.5, &mut memory).is_none());
    // Relative to 40 of 64 warps, which is not all: half of them is 20, a quarter less 30.
    for (warps, expected) in
        [(40, Over), (31, Over), (30, Over), (29, Unclear), (20, Unclear), (19, Holds), (64, Over)]
    {
        assert_eq!(look(&mut memory, warps, None), Some(expected), "{warps}");
    }
    assert_eq!(occupancy_fell(&view(&Profile::default()), None, 0.5, &mut memory).unwrap().verdict, Unclear);
    let good = Reference::of("good".into(), &running(vec![kernel(64, 1.0)]));
    for (warps, expected) in [(48, Over), (47, Unclear), (32, Unclear), (31, Holds)] {
        assert_eq!(look(&mut memory, warps, Some(&good)), Some(expected), "{warps} in a good run's stead");
    }
    let profile = running(vec![kernel(16, 1.0)]);
    let found = |reference: Option<&Reference>, memory: &mut Memory| {
        occupancy_fell(&view(&profile), reference, 0.5, memory).unwrap().finding.unwrap()
    };
    let than_first = found(None, &mut memory);
    assert_eq!((than_first.value.value, than_first.reference.unwrap().value), (0.25, 0.625));
    assert!(than_first.what.contains("25.0% instead of 62.5% when it was first looked at"), "{than_first:?}");
    assert!(matches!(than_first.next, Next::Advise));
    let than_good = found(Some(&good), &mut Memory::default());
    assert_eq!((than_good.value.value, than_good.reference.unwrap().value), (0.25, 1.0));
    assert!(than_good.what.contains("25.0% instead of 100% in good ("), "{than_good:?}");
    assert!(matches!(than_good.next, Next::Diff(_)));
}

/// A process that works, waits for other ranks, and does nothing for so long.
fn activity(process: usize, [kernels, waiting, idle]: [f64; 3]) -> Activity {
    let figure = |ns: f64| Figure::predicted(ns, (ns, ns));
    let accounts = Accounts {
        span_ns: kernels + waiting + idle,
        kernels: figure(kernels),
        waiting: figure(waiting),
        collectives: figure(0.0),
        idle: [(IdleCause::HostCode, figure(idle))].into(),
        ..Accounts::default()
    };
    Activity { process, device: Some(0), accounts, ..Activity::default() }
}

fn ranks(waits: &[f64]) -> Profile {
    let process = |rank| Process { pid: 100 + rank as u32, rank: Some(rank), ..Process::default() };
    Profile {
        processes: (0..waits.len()).map(process).collect(),
        activities: waits
            .iter()
            .enumerate()
            .map(|(rank, &waits)| activity(rank, [100.0 - waits, waits, 0.0]))
            .collect(),
        ..Profile::default()
    }
}

#[test]
fn a_rank_is_waited_for_if_the_others_wait_and_it_hardly_does() {
    let verdict = |waits: &[f64]| straggler(&ranks(waits), 0.2).map(|observed| observed.verdict);
    for (waits, expected) in [
        (&[21.0, 1.0][..], Holds),
        (&[19.0, 1.0], Unclear),
        (&[11.0, 1.0], Unclear),
        (&[9.0, 1.0], Over),
        // The mean of the others counts: 22 and 18, 30 and 6.
        (&[22.0, 20.5, 1.0], Holds),
        (&[30.0, 6.0, 1.0], Unclear),
        // It waits half as long as the others, and a little longer.
        (&[40.0, 20.0], Holds),
        (&[40.0, 20.5], Unclear),
        (&[50.0, 25.0], Holds),
    ] {
        assert_eq!(verdict(waits), Some(expected), "{waits:?}");
    }
    let found = straggler(&ranks(&[50.0, 2.0, 40.0]), 0.2).unwrap();
    assert_eq!(found.subject, Subject::Rank(1));
    let finding = found.finding.unwrap();
    assert!((finding.value.value - 0.45).abs() < 1e-12 && matches!(finding.next, Next::Rank(1)));
    assert_eq!(verdict(&[50.0]), None, "nobody else");
    assert_eq!(verdict(&[0.0, 0.0]), None, "no collective");
    // The activities of a process on two devices count together.
    let mut two = ranks(&[50.0, 2.0]);
    two.activities.push(activity(0, [100.0, 0.0, 0.0]));
    assert_eq!(waiting(&two), [(0, 0.25), (1, 0.02)]);
}

#[test]
fn a_device_is_idle_if_all_its_processes_leave_it_so() {
    const WINDOW: f64 = 1000.0;
    let verdict = |activities: &[[f64; 3]]| {
        let activities: Vec<_> = activities.iter().map(|&of| activity(0, of)).collect();
        let activities: Vec<_> = activities.iter().collect();
        idle_share(Subject::Session, GPU, &activities, WINDOW, 0.5).verdict
    };
    for (activities, expected) in [
        (&[[490.0, 0.0, 510.0]][..], Holds),
        (&[[510.0, 0.0, 490.0]], Unclear),
        // It is over below 40%: what is not known counts as idle.
        (&[[590.0, 0.0, 100.0]], Unclear),
        (&[[610.0, 0.0, 100.0]], Over),
        (&[[310.0, 300.0, 390.0]], Over),
        // Two processes: it is idle for what is left of both, 800 + 710 - 1000.
        (&[[200.0, 0.0, 800.0], [290.0, 0.0, 710.0]], Holds),
        (&[[200.0, 0.0, 800.0], [310.0, 0.0, 690.0]], Unclear),
        (&[[0.0, 0.0, 900.0], [700.0, 0.0, 300.0]], Over),
    ] {
        assert_eq!(verdict(activities), expected, "{activities:?}");
    }
    // Copies and collectives are work too.
    let busy = |change: fn(&mut Accounts)| {
        let mut activity = activity(0, [310.0, 0.0, 390.0]);
        change(&mut activity.accounts);
        idle_share(Subject::Session, GPU, &[&activity], WINDOW, 0.5).verdict
    };
    assert_eq!(busy(|_| ()), Unclear);
    assert_eq!(busy(|accounts| accounts.copies = Figure::measured(300.0)), Over);
    assert_eq!(busy(|accounts| accounts.collectives = Figure::measured(300.0)), Over);
    let found = idle_share(Subject::Session, GPU, &[&activity(0, [100.0, 0.0, 800.0])], WINDOW, 0.5);
    let value = found.finding.unwrap().value;
    assert!((value.value - 0.8).abs() < 1e-12 && (value.bounds().1 - 0.9).abs() < 1e-12, "{value:?}");
}

#[test]
fn of_each_used_device_is_judged_what_was_launched_on_it() {
    let device = |uuid: &str| Device { uuid: uuid.into(), name: "NVIDIA H100".into(), ..Device::default() };
    let profile = Profile {
        devices: vec![device("GPU-other"), device(GPU)],
        activities: vec![
            Activity { device: Some(1), ..activity(0, [1e9, 0.0, 19e9]) },
            Activity { device: None, ..activity(0, [20e9, 0.0, 0.0]) },
        ],
        ..Profile::default()
    };
    let used = [(GPU.to_owned(), [1].into()), ("GPU-silent".to_owned(), [1, 2].into())].into();
    let observed = idle(&View { used, ..view(&profile) }, 0.5);
    let whats: Vec<_> =
        observed.iter().map(|of| (of.verdict, of.finding.as_ref().unwrap().what.as_str())).collect();
    assert_eq!(whats.len(), 2);
    assert!(whats[0].0 == Holds && whats[0].1.contains("GPU-1 was idle for 95"), "{whats:?}");
    assert!(whats[1].0 == Holds && whats[1].1.contains("and 2 processes that used it run:"), "{whats:?}");
}

#[test]
fn a_power_limit_slows_above_its_limit_and_no_longer_below_half_of_it() {
    let verdict = |share| {
        let mut readings = Readings::default();
        readings.set(Quantity::PowerCapped, share);
        power_capped(GPU, Some(&readings), 0.6).verdict
    };
    for (share, expected) in [(0.61, Holds), (0.6, Unclear), (0.31, Unclear), (0.3, Over), (0.0, Over)] {
        assert_eq!(verdict(share), expected, "{share}");
    }
    assert_eq!(power_capped(GPU, None, 0.6).verdict, Unclear);
}

#[test]
fn records_that_are_lost_between_two_looks_count() {
    let profile = Profile::default();
    let mut memory = Memory::default();
    let mut look = |dropped| {
        let observed = lost_records(&View { dropped, ..view(&profile) }, &mut memory)?;
        Some((observed.verdict, observed.finding.map(|finding| finding.value.value)))
    };
    assert_eq!(look(0), None);
    assert_eq!(look(7), Some((Holds, Some(7.0))));
    assert_eq!(look(7), Some((Over, None)));
    assert_eq!(look(9), Some((Holds, Some(2.0))));
}

#[test]
fn devices_are_used_on_which_running_processes_have_launched() {
    use test_session::{LEGACY, Recording};
    let dir = tempfile::tempdir().unwrap();
    let mut recording = Recording::new(dir.path());
    let function = recording.function("f");
    let config = recording.config(function, 1, 32);
    test_session::open(&dir);
    let look = || apex_live::Follower::new(dir.path(), std::time::Duration::from_secs(3600)).look().unwrap();
    let used = || View::from(&look()).used;
    assert_eq!(used(), BTreeMap::new(), "nothing was launched");
    recording.launch(config, LEGACY);
    let uuid = device_uuid(b"0123456789abcdef");
    assert_eq!(used(), [(uuid, [std::process::id()].into())].into());
    let mut snapshot = look();
    snapshot.session.processes[0].dropped = 7;
    assert_eq!(View::from(&snapshot).dropped, 7);
    recording.exit();
    assert_eq!(used(), BTreeMap::new(), "it has ended");
}

#[test]
fn rules_that_are_off_are_not_judged() {
    let profile = Profile { kernels: vec![kernel(64, 1.0)], ..ranks(&[50.0, 1.0]) };
    let profile = Profile {
        devices: vec![Device { uuid: GPU.into(), name: "NVIDIA H100".into(), ..Device::default() }],
        ..profile
    };
    let good = Reference::of("good".into(), &stepping(1e6));
    let used = || [(GPU.to_owned(), [1].into())].into();
    let rules = |limits: &Limits| {
        let view = View { dropped: 1, used: used(), ..view(&profile) };
        let observed = observe(&view, Some(&good), limits, &mut Memory::default());
        observed.into_iter().map(|observed| observed.rule).collect::<Vec<_>>()
    };
    let all = rules(&Limits::default());
    assert_eq!(all.len(), Rule::ALL.len(), "{all:?}");
    for rule in Rule::ALL {
        let mut limits = Limits::default();
        limits.set(&format!("{}=off", rule.name())).unwrap();
        let left: Vec<_> = all.iter().copied().filter(|other| *other != rule).collect();
        assert_eq!(rules(&limits), left);
    }
}
