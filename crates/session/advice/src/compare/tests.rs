//! Comparisons of profiles.

use std::collections::{BTreeMap, BTreeSet};

use super::change::SAMPLES;
use super::*;
use crate::advise::{Options, advise};
use crate::rules::fixture::{kernel_of, profile_of, timed};
use apex_counts::{Direction, Space};
use apex_profile::{Activity, Iterations, Kernel, Phase, PhaseKind};

fn named(symbol: &str, kernel: Kernel) -> Kernel {
    Kernel { symbol: symbol.to_owned(), short_name: symbol.to_owned(), ..kernel }
}

/// Compares runs without advice.
fn compared(before: &[&Profile], after: &[&Profile]) -> Comparison {
    let advice = Advice::default();
    let run = |profile: &&'_ Profile| -> Profile { (**profile).clone() };
    let (before, after): (Vec<Profile>, Vec<Profile>) =
        (before.iter().map(run).collect(), after.iter().map(run).collect());
    let runs = |profiles: &'_ [Profile]| -> Vec<(Profile, Advice)> {
        profiles.iter().map(|profile| (profile.clone(), advice.clone())).collect()
    };
    with_advice(&runs(&before), &runs(&after))
}

fn with_advice(before: &[(Profile, Advice)], after: &[(Profile, Advice)]) -> Comparison {
    fn runs(side: &[(Profile, Advice)]) -> Vec<Run<'_>> {
        side.iter().map(|(profile, advice)| Run { job: profile, profile, advice }).collect()
    }
    compare(&runs(before), &runs(after))
}

#[test]
fn finds_what_came_and_went() {
    let before = profile_of([named("stays", kernel_of(100, 128)), named("goes", kernel_of(100, 128))]);
    let after = profile_of([named("stays", kernel_of(100, 128)), named("comes", kernel_of(100, 128))]);
    let compared = compared(&[&before], &[&after]);
    let presence: BTreeMap<&str, Presence> =
        compared.kernels.iter().map(|change| (change.name.as_str(), change.presence)).collect();
    let expected = [("comes", Presence::Added), ("goes", Presence::Removed), ("stays", Presence::Both)];
    assert_eq!(presence, BTreeMap::from(expected));
}

#[test]
fn functions_of_either_profile_are_told_apart() {
    let called =
        |symbol: &str| Kernel { short_name: "gemm".to_owned(), ..named(symbol, kernel_of(100, 128)) };
    let compared = compared(&[&profile_of([called("gemm_nn")])], &[&profile_of([called("gemm_tn")])]);
    let names: BTreeSet<&str> = compared.functions.iter().map(|change| change.name.as_str()).collect();
    assert_eq!(names, BTreeSet::from(["gemm [gemm_nn]", "gemm [gemm_tn]"]));
}

#[test]
fn a_new_configuration_is_still_the_same_function() {
    let before = profile_of([timed(kernel_of(1000, 100), 10_000.0)]);
    let after = profile_of([timed(kernel_of(782, 128), 8_000.0)]);
    let compared = compared(&[&before], &[&after]);
    assert_eq!((compared.functions.len(), compared.kernels.len()), (1, 2));
    let function = &compared.functions[0];
    assert_eq!((function.presence, function.duration_ns.significant), (Presence::Both, Some(true)));
    assert!((function.duration_ns.ratio.expect("both known") - 0.8).abs() < 1e-9);
    assert!(compared.kernels.iter().all(|change| change.duration_ns.ratio.is_none()));
}

#[test]
fn noise_is_not_significant() {
    // Standard errors are 2% / sqrt(50) on each side: three of their difference are 1.2%.
    let with = |mean| profile_of([timed(kernel_of(1000, 128), mean)]);
    let significant =
        |mean| compared(&[&with(10_000.0)], &[&with(mean)]).functions[0].duration_ns.significant;
    assert_eq!((significant(10_100.0), significant(10_200.0)), (Some(false), Some(true)));
    // Runs that spread by 3% say that 2% is chance, whatever the samples in them say.
    let runs = [9_700.0, 10_000.0, 10_300.0].map(with);
    let runs: Vec<&Profile> = runs.iter().collect();
    assert_eq!(compared(&runs, &[&with(10_200.0)]).functions[0].duration_ns.significant, Some(false));
}

#[test]
fn too_few_samples_tell_nothing() {
    let mut kernel = timed(kernel_of(1000, 128), 10_000.0);
    if let Some(gpu) = &mut kernel.gpu {
        gpu.total_ns.samples = SAMPLES - 1;
    }
    let compared =
        compared(&[&profile_of([kernel])], &[&profile_of([timed(kernel_of(1000, 128), 20_000.0)])]);
    assert_eq!(compared.functions[0].duration_ns.significant, None);
}

#[test]
fn untimed_is_unknown() {
    let profile = profile_of([kernel_of(1000, 128)]);
    let compared = compared(&[&profile], &[&profile]);
    assert_eq!(compared.functions[0].duration_ns, Change::of(&[None], &[None]));
    assert_eq!(compared.functions[0].occupancy.ratio, Some(1.0));
}

/// Returns the profile of a device in its steady state: `steps` steps of `step_ns`, with one
/// kernel.
fn steady(kernel: Kernel, steps: u64, step_ns: f64) -> Profile {
    let mut profile = profile_of([kernel]);
    let span_ns = steps as f64 * step_ns;
    let mean_ns = Figure::predicted(step_ns, (0.99 * step_ns, 1.01 * step_ns)).of_samples(steps);
    let kernels = Figure::sum(profile.kernels.iter().filter_map(|kernel| Some(kernel.gpu?.total_ns)));
    let accounts = Accounts { span_ns, kernels: kernels.unwrap_or_default(), ..Accounts::default() };
    let phase = Phase {
        kind: PhaseKind::Steady,
        accounts: accounts.clone(),
        launches: 100,
        kernels: vec![(0, 100)],
        graphs: Vec::new(),
        calls: Vec::new(),
    };
    profile.activities = vec![Activity {
        span_ns,
        accounts,
        phases: vec![phase],
        iterations: Some(Iterations { count: steps, step_ns: mean_ns, ..Iterations::default() }),
        ..Activity::default()
    }];
    profile.totals.span_ns = span_ns;
    profile
}

#[test]
fn sums_are_those_of_a_step_where_both_sides_have_steps() {
    let kernel = || timed(kernel_of(1000, 128), 10_000.0);
    let (before, after) = (steady(kernel(), 40, 18.3e6), steady(kernel(), 80, 12.2e6));
    let change = compared(&[&before], &[&after]);
    assert_eq!((change.per, change.steps), (Per::Step, (40, 80)));
    let step = change.step_ns.expect("both have steps");
    assert!((step.ratio.expect("known") - 2.0 / 3.0).abs() < 1e-9 && step.significant == Some(true));
    // As many launches in twice as many steps.
    assert_eq!(change.launches.ratio, Some(0.5));
    let kernels = change.accounts.iter().find(|account| account.account == "kernels").expect("timed");
    assert_eq!(kernels.time_ns.ratio, Some(0.5));
    assert_eq!(change.span_ns.before.map(|span| span.value), Some(40.0 * 18.3e6), "of a run, always");
    let without = compared(&[&before], &[&profile_of([kernel()])]);
    assert_eq!((without.per, without.step_ns), (Per::Run, None));
}

/// A profile with what the rules say of it.
fn judged(profile: Profile) -> (Profile, Advice) {
    let advice = advise(&profile, &Options::default());
    (profile, advice)
}

/// Returns the outcome of a finding.
fn followed<'a>(compared: &'a Comparison, rule: &str) -> &'a Followed {
    compared.followed.iter().find(|followed| followed.rule == rule).expect("it was found before")
}

#[test]
fn a_promise_about_kernels_is_held_against_their_time() {
    // 28 of 128 lanes of each block idle: a promise of up to 22% of the kernel's time.
    let before = judged(steady(timed(kernel_of(100_000, 100), 100_000.0), 10, 2e7));
    let with = |mean_ns: f64| {
        let after =
            judged(steady(timed(kernel_of(78_125, 128), mean_ns), 10, 2e7 - (100_000.0 - mean_ns) * 100.0));
        let compared = with_advice(std::slice::from_ref(&before), &[after]);
        let ragged = followed(&compared, "APEX-L01").clone();
        assert_eq!((ragged.state, ragged.basis), (State::Gone, Some(Basis::Kernels)));
        ragged
    };
    let kept = with(90_000.0);
    assert_eq!(kept.kept, Some(Kept::Kept));
    let achieved = kept.achieved_ns.expect("measured").value;
    let launches = before.0.kernels[0].launches.calls as f64;
    assert!((achieved - 10_000.0 * launches / 10.0).abs() < 1e-6, "{achieved}");
    assert_eq!(with(50_000.0).kept, Some(Kept::More));
    assert_eq!(with(120_000.0).kept, Some(Kept::Less), "slower");
    let same = with_advice(std::slice::from_ref(&before), std::slice::from_ref(&before));
    let still = followed(&same, "APEX-L01");
    assert_eq!((still.state, still.kept, still.left_ns), (State::Still, None, still.promised_ns));
    assert!(same.new_findings.is_empty() && same.together.is_none());
}

#[test]
fn what_takes_the_place_of_other_kernels_is_held_against_the_step() {
    let slow = named("old", timed(kernel_of(100_000, 100), 100_000.0));
    let fast = named("new", timed(kernel_of(78_125, 128), 90_000.0));
    let before = judged(steady(slow, 10, 2e7));
    let with = |step_ns: f64| {
        let after = judged(steady(fast.clone(), 10, step_ns));
        let compared = with_advice(std::slice::from_ref(&before), &[after]);
        let ragged = followed(&compared, "APEX-L01");
        assert_eq!(ragged.basis, Some(Basis::Time));
        (ragged.achieved_ns.map(|time| time.value), ragged.kept)
    };
    assert_eq!(with(19e6), (Some(1e6), Some(Kept::Kept)));
    assert_eq!(with(10e6).1, Some(Kept::More));
    assert_eq!(with(24e6).1, Some(Kept::Less));
}

#[test]
fn times_of_kernels_that_were_not_timed_are_unknown() {
    let accounts = |kernels: f64, unknown: f64| apex_profile::Accounts {
        span_ns: 1e9,
        kernels: Figure::measured(kernels),
        unknown: Figure::measured(unknown),
        ..apex_profile::Accounts::default()
    };
    let with = |accounts| Profile {
        activities: vec![Activity { span_ns: 1e9, accounts, ..Activity::default() }],
        ..profile_of([kernel_of(100, 128)])
    };
    let change = |after| {
        let compared = compared(&[&with(accounts(0.4e9, 0.0))], &[&with(after)]);
        let kernels =
            compared.accounts.into_iter().find(|change| change.account == "kernels").expect("it has time");
        (kernels.time_ns.after.map(|time| time.value), kernels.time_ns.ratio)
    };
    assert_eq!(change(accounts(0.0, 0.9e9)), (None, None), "unknown");
    assert_eq!(change(accounts(0.0, 0.0)), (Some(0.0), Some(0.0)), "there was none");
    assert_eq!(change(accounts(0.2e9, 0.1e9)), (Some(0.2e9), Some(0.5)));
}

#[test]
fn times_of_the_cpu_device_are_compared_between_repeated_runs_alone() {
    let on_cpu = |each_ns: f64| {
        crate::rules::fixture::on_cpu_device(profile_of([timed(kernel_of(1000, 128), each_ns)]))
    };
    let (slow, fast) = (on_cpu(464e3), on_cpu(138e3));
    let once = compared(&[&slow], &[&fast]);
    assert!(once.on_cpu_device && !once.is_of_repeated_runs());
    for change in [&once.gpu_time_ns, &once.functions[0].duration_ns, &once.kernels[0].total_ns] {
        assert_eq!((change.significant, change.rose_above(0.1)), (None, false));
    }
    assert_eq!(once.launches.significant, Some(false), "counts are exact");
    let again = compared(&[&slow, &slow, &slow], &[&fast, &fast, &fast]);
    assert!(again.is_of_repeated_runs());
    assert_eq!(
        (again.gpu_time_ns.significant, again.functions[0].total_ns.significant),
        (Some(true), Some(true))
    );
    let on_gpu = profile_of([timed(kernel_of(1000, 128), 464e3)]);
    assert!(!compared(&[&on_gpu], &[&on_gpu]).on_cpu_device);
}

#[test]
fn counts_of_one_side_are_no_change() {
    let counted = profile_of([crate::rules::fixture::counted(Space::Global, Direction::Load, 100, 400, 0)]);
    let uncounted = profile_of([kernel_of(1000, 128)]);
    let counts = compared(&[&uncounted], &[&counted]).counts.expect("one side has them");
    assert_eq!((counts.sectors.before, counts.sectors.significant), (None, None));
    assert!(counts.sectors.after.is_some());
}
