//! The device runs dry between short kernels.

use apex_ordered::Order;
use std::collections::BTreeMap;

use super::{
    Draft, NOT_MODELLED, Needs, Outcome, Rule, account, compiled, confidence, framework, host_function,
    in_pauses, job_saving, known, percent, time,
};
use crate::finding::{Evidence, Level, Saving, Scope, Severity, Unit};
use crate::rules::loops::{self, Loop};
use apex_profile::names::Owner;
use apex_profile::{Activity, Figure, IdleCause, Profile, SaturatingSum as _, total};

/// Idle for more than this share of the time …
const IDLE: f64 = 0.3;
/// … for at most so long before a launch, on average …
const EACH_NS: f64 = 100e3;
/// … while the median kernel is shorter than this.
const SHORT_NS: f64 = 50e3;
/// Host code before a launch that PyTorch alone does not explain: eager programs of testing/corpus
/// need 11 to 18 µs.
pub(super) const OWN_CODE_NS: f64 = 40e3;
/// Maximum share of the kernels' time that fusion or batching saves, and the likely one: in
/// programs of testing/corpus, where launching is what the device waits for, it was 0% to 87%, and
/// 0% in most.
const FUSED: f64 = 0.9;
const LIKELY_FUSED: f64 = 0.1;

pub(super) const RULE: Rule = Rule {
    id: "APEX-T24",
    slug: "launch-bound",
    title: "Launch-bound: the host launches kernels too slowly",
    severity: Severity::High,
    scope: Scope::Host,
    needs: Needs::Times,
    parent: Some("APEX-L43"),
    idle: &[IdleCause::Launching, IdleCause::HostCode],
    detects: "Outside long gaps (APEX-T16) and pauses of the host (at least 1 ms of its own code, APEX-T41), \
        the queue is empty for more than 30% of the time while the host is in launch calls or in its own \
        code, for at most 100 µs per launch, and the median kernel takes less than 50 µs.",
    source: "APEX, with the cutoff of Holistic Trace Analysis for launch delays (100 µs): a launch call \
        takes at least 2.5 µs on an H200 (data/h200/driver/call-costs.csv), and a framework adds several times as \
        much.",
    why: "The host needs more time for each launch than the device needs for the kernel.",
    change: "Launch less often: capture repeated sequences into a CUDA graph (torch.cuda.graph, \
             torch.compile(mode=\"reduce-overhead\")), fuse small kernels, enlarge the batch.",
    saving: "The idle time during launch calls and host code, without long gaps and pauses: at least half of \
        it; at most all of it and nine tenths of the kernels' time, because one kernel over a larger batch takes \
        hardly longer.",
    verify: "launch calls decrease, the GPU's busy share increases, the run time decreases",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    if profile.activities.is_empty() {
        return Outcome::Clear;
    }
    let Some(median) = median_kernel(profile).or_else(|| mean_kernel(profile)) else {
        return Outcome::Unjudged(super::UNTIMED.to_owned());
    };
    if profile.activities.iter().all(|activity| activity.idle_share.is_none()) {
        return Outcome::Unjudged(NOT_MODELLED.to_owned());
    }
    let Some(lost) = lost(profile) else { return Outcome::Clear };
    let span: f64 = profile.activities.iter().filter(is_bound).map(rest).sum();
    Outcome::found(Draft {
        summary: format!(
            "the queue is empty for {} of the time, and the median kernel takes {}",
            percent(lost.value / span),
            time(median)
        ),
        evidence: vec![
            Evidence::new(
                "share of time with an empty queue",
                lost.scaled(1.0 / span).at_most(1.0),
                Unit::Share,
            )
            .decrease_towards(0.0),
            Evidence::new("median kernel", Figure::measured(median), Unit::Nanoseconds)
                .compared_as(format!("shorter than {}", time(SHORT_NS))),
            Evidence::new("mean launch call", Figure::measured(mean_call(profile)), Unit::Nanoseconds),
        ],
        kernels: Vec::new(),
        change: change(profile),
        saving: Saving {
            beyond: Some(fused(profile)),
            ..job_saving(profile, Figure::predicted(lost.value, (lost.bounds().0 / 2.0, lost.bounds().1)))
        },
        confidence: confidence(
            Level::Medium,
            match is_of_framework(profile) {
                true => {
                    "idle time is modelled from launch times and mean durations of kernels; a graph removes most of it, \
                     and the upper end has what fusion or larger batches may save of the kernels' time"
                }
                false => {
                    "idle time is modelled from launch times and mean durations of kernels; a graph removes most of it"
                }
            },
        ),
    })
}

/// What fewer and larger operations of a framework save of the kernels' time; a graph of a
/// program's own kernels saves nothing of it.
fn fused(profile: &Profile) -> Figure {
    let kernels = account(profile, |accounts| accounts.kernels).value;
    let time = if is_of_framework(profile) { kernels } else { 0.0 };
    Figure::predicted(LIKELY_FUSED * time, (0.0, FUSED * time))
}

/// Whether a framework's functions launch most kernels.
fn is_of_framework(profile: &Profile) -> bool {
    framework(profile).is_some_and(|owner| owner != Owner::Own)
}

/// The time without long gaps and pauses, in which launching may be slow.
fn rest(activity: &Activity) -> f64 {
    activity.span_ns - activity.long_gaps_ns - in_pauses(activity)
}

fn is_bound(activity: &&Activity) -> bool {
    let (idle, rest) = (idle(activity), rest(activity));
    rest > 0.0 && idle > IDLE * rest && idle <= EACH_NS * activity.launches as f64
}

/// The idle time for which launching is too slow, nanoseconds; `None` if it is not.
pub(super) fn lost(profile: &Profile) -> Option<Figure> {
    let median = median_kernel(profile).or_else(|| mean_kernel(profile))?;
    let bound = profile.activities.iter().filter(is_bound);
    let lost = Figure::sum(bound.map(|activity| activity.idle_part(idle(activity))));
    lost.filter(|lost| lost.value > 0.0 && median < SHORT_NS)
}

/// Returns the change to make in place of the general advice: the framework's means, or the host's
/// own code if it takes several times as long as the framework needs.
fn change(profile: &Profile) -> Option<String> {
    let owner = framework(profile)?;
    let remedy = || known::remedy_of_case(profile, "launch-bound/loop");
    // A loop within a compiled function launches again and again from one line, as a loop of Python
    // around that line would.
    if let Some(change) = (owner == Owner::Xla).then(|| compiled::change_of_loop(profile)).flatten() {
        return Some(change);
    }
    if let Some(change) = (owner == Owner::PyTorch).then(|| loops::unbatched(profile)).flatten() {
        return Some(change);
    }
    if let Some((looped, remedy)) = Loop::of(profile).and_then(|looped| Some((looped, remedy()?))) {
        return Some(format!("Replace {}: {remedy}", looped.in_words()));
    }
    let activities = || profile.activities.iter().filter(is_bound);
    let code = total(activities().map(|a| idle_during(a, &[IdleCause::HostCode])));
    let launches = activities().map(|a| a.launches).saturating_sum();
    let each = code / launches.max(1) as f64;
    if owner == Owner::PyTorch && each > OWN_CODE_NS {
        let places = host_function::mostly_at(profile, |_, samples| !samples.is_pause);
        let find = places.map_or_else(
            || "Find what the host runs between launches, with a CPU profiler (py-spy)".to_owned(),
            |places| format!("Shorten what the host runs between launches, mostly {places}"),
        );
        return Some(format!(
            "{find}: {} before each launch are several times what an operation of PyTorch takes (10 to 20 µs). Then \
                launch less often: a CUDA graph (torch.compile(mode=\"reduce-overhead\")), a larger batch",
            time(each)
        ));
    }
    loops::compiled(profile, owner).or_else(|| instead(owner).map(str::to_owned))
}

/// Returns the change by which this owner's functions launch less often.
pub(super) fn instead(owner: Owner) -> Option<&'static str> {
    Some(match owner {
        Owner::Xla => {
            "Launch less often: put the loop into the compiled function (jax.vmap over samples, jax.lax.scan or \
             fori_loop over steps, one jax.jit around the whole step), enlarge the batch"
        }
        Owner::CuPy => {
            "Launch less often: one call over a whole array instead of a loop over its rows (axis=…), \
             cupy.fuse() around an expression, or a CUDA graph (cupy.cuda.Stream.begin_capture)"
        }
        Owner::Own => {
            "Launch less often: capture repeated sequences into a CUDA graph (cudaStreamBeginCapture), fuse small \
             kernels, let one kernel do the work of several launches"
        }
        _ => return None,
    })
}

/// Idle time that launching explains; 0 if it was not modelled.
fn idle(activity: &Activity) -> f64 {
    idle_during(activity, RULE.idle)
}

/// Idle time for these causes, host code among them, without long gaps and pauses.
fn idle_during(activity: &Activity, causes: &[IdleCause]) -> f64 {
    let of = |by: &BTreeMap<IdleCause, f64>| total(causes.iter().filter_map(|cause| by.get(cause).copied()));
    let gaps = total(activity.gaps.iter().map(|gap| of(&gap.by)));
    (of(&activity.idle_by) - gaps - in_pauses(activity)).max(0.0)
}

/// The median over launches of their kernel's mean time.
fn median_kernel(profile: &Profile) -> Option<f64> {
    let mut times: Vec<(f64, u64)> = profile
        .kernels
        .iter()
        .filter_map(|kernel| Some((kernel.gpu.as_ref()?.each.mean_ns, kernel.launches.ran())))
        .collect();
    times.order_by(|a, b| a.0.total_cmp(&b.0));
    let half = times.iter().map(|&(_, launches)| launches).saturating_sum().div_ceil(2);
    let mut seen = 0;
    times
        .into_iter()
        .find(|(_, launches)| {
            seen = launches.saturating_add(seen);
            seen >= half && seen > 0
        })
        .map(|(time, _)| time)
}

/// The mean time of a launch by the devices' accounts. They know it if the program launches graphs,
/// which are timed as a whole.
fn mean_kernel(profile: &Profile) -> Option<f64> {
    let time = account(profile, |accounts| accounts.kernels).value;
    let launches = profile.activities.iter().map(|activity| activity.launches).saturating_sum();
    let is_known = profile.totals.graph_launches > 0 && time > 0.0 && launches > 0;
    is_known.then(|| time / launches as f64)
}

fn mean_call(profile: &Profile) -> f64 {
    profile.totals.launch_cpu_ns / (profile.totals.launches + profile.totals.graph_launches).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{
        activity, assert_clear_in, assert_finds_in, assert_unjudged, called, evidence, gap, idle_during,
        kernel_of, profile_with, timed,
    };
    use super::RULE;
    use apex_profile::names::Owner;
    use apex_profile::{Activity, Figure, IdleCause, Pauses, Profile};

    fn profile(idle: f64, kernel_ns: f64) -> Profile {
        Profile {
            kernels: vec![timed(kernel_of(1000, 128), kernel_ns)],
            ..profile_with([activity(1e9, idle)])
        }
    }

    #[test]
    fn fires_on_short_kernels_and_an_empty_queue() {
        let finding = assert_finds_in(&RULE, profile(0.6, 3e3));
        let saving = finding.saving.of_job.expect("a share");
        let (low, high) = saving.interval().expect("it is predicted");
        assert!((saving.value - 0.6).abs() < 1e-9, "{saving:?}");
        // Half of the idle time at least; at most all of it, because a graph leaves kernels as they
        // are.
        assert!((low - 0.27).abs() < 1e-9 && (high - 0.66).abs() < 1e-9, "{saving:?}");
        assert!(!finding.confidence.reason.contains("fusion"), "{}", finding.confidence.reason);
    }

    #[test]
    fn operations_of_a_framework_may_be_fused() {
        // Idle time of 0.36 to 0.44, and kernels of 0.6, of which fusion may save nine tenths.
        let mut one = profile(0.4, 3e3);
        one.kernels[0].traits.owner = Owner::PyTorch;
        let finding = assert_finds_in(&RULE, one);
        let saving = finding.saving.of_job.expect("a share");
        let (low, high) = saving.interval().expect("it is predicted");
        assert!((saving.value - 0.46).abs() < 1e-9, "{saving:?}");
        assert!((low - 0.18).abs() < 1e-9 && (high - 0.98).abs() < 1e-9, "{saving:?}");
        assert!(finding.confidence.reason.contains("fusion"), "{}", finding.confidence.reason);
    }

    proptest::proptest! {
        #[test]
        fn the_median_is_that_of_all_launches_in_order(
            kernels in proptest::collection::vec((0..8u64, 1..40u32), 0..6),
        ) {
            let mut each: Vec<f64> =
                kernels.iter().flat_map(|&(launches, ns)| vec![f64::from(ns); launches as usize]).collect();
            each.sort_by(f64::total_cmp);
            let expected = each.get(each.len().saturating_sub(1) / 2).copied();
            let of = |&(launches, ns): &(u64, u32)| called(timed(kernel_of(1, 128), ns.into()), launches, 4e3);
            let one = Profile { kernels: kernels.iter().map(of).collect(), ..Profile::default() };
            proptest::prop_assert_eq!(super::median_kernel(&one), expected);
        }
    }

    #[test]
    fn a_framework_s_own_code_takes_40_us_at_most() {
        let change = |launches| {
            let mut one = profile(0.4, 3e3);
            one.kernels[0].traits.owner = Owner::PyTorch;
            one.activities[0].launches = launches;
            assert_finds_in(&RULE, one).change
        };
        assert_eq!(change(10_000), RULE.change, "40 µs before each launch");
        assert!(change(9_999).contains("40.0 µs before each launch"));
        // What the launch calls take is not code of the program.
        let mut calling = profile(0.4, 3e3);
        calling.kernels[0].traits.owner = Owner::PyTorch;
        calling.activities =
            vec![Activity { launches: 9_999, ..idle_during(IdleCause::Launching, 1e9, 0.4) }];
        assert_eq!(assert_finds_in(&RULE, calling).change, RULE.change);
        // The activity beside it, which is not bound by launches, adds neither code nor launches.
        let mut beside = profile(0.4, 3e3);
        beside.kernels[0].traits.owner = Owner::PyTorch;
        beside.activities[0].launches = 9_999;
        beside.activities.push(Activity { launches: 100_000, ..activity(1e9, 0.1) });
        assert!(assert_finds_in(&RULE, beside).change.contains("40.0 µs before each launch"));
    }

    #[test]
    fn its_evidence_is_the_idle_share_the_median_kernel_and_the_mean_call() {
        let of = |launches, gpu_ns| called(timed(kernel_of(1000, 128), gpu_ns), launches, 4000.0);
        // 300 launches of 1 µs, 300 of 2, 500 of 3: the 550th of 1100 is one of 2.
        let kernels = vec![of(300, 1e3), of(500, 3e3), of(300, 2e3)];
        let mut one = Profile { kernels, ..profile_with([activity(1e9, 0.6)]) };
        (one.totals.launches, one.totals.graph_launches, one.totals.launch_cpu_ns) = (1000, 100, 4.4e6);
        let finding = assert_finds_in(&RULE, one.clone());
        assert_eq!(evidence(&finding, "median kernel").value, 2e3);
        assert_eq!(evidence(&finding, "mean launch call").value, 4e3);
        let share = evidence(&finding, "share of time with an empty queue");
        let (low, high) = share.interval().expect("it is modelled");
        assert!((share.value - 0.6).abs() < 1e-9, "{share:?}");
        assert!((low - 0.54).abs() < 1e-9 && (high - 0.66).abs() < 1e-9, "{share:?}");
        // One launch more of the short one, two less of the long one: the median is that of the
        // first.
        one.kernels[0].launches.calls = 600;
        assert_eq!(evidence(&assert_finds_in(&RULE, one), "median kernel").value, 2e3);
    }

    #[test]
    fn the_remedy_is_one_of_the_framework() {
        let change = |owner, launches| {
            let mut one = profile(0.6, 3e3);
            one.kernels[0].traits.owner = owner;
            one.activities[0].launches = launches;
            assert_finds_in(&RULE, one).change
        };
        assert!(change(Owner::Xla, 100_000).contains("jax.vmap"));
        assert!(change(Owner::CuPy, 100_000).contains("cupy.fuse()"));
        assert!(change(Owner::Own, 100_000).contains("cudaStreamBeginCapture"));
        assert_eq!(change(Owner::PyTorch, 100_000), RULE.change);
        // 60 µs of host code before each launch.
        assert!(change(Owner::PyTorch, 10_000).contains("60.0 µs before each launch"));
        // A pause is not code before a launch.
        let mut pausing = profile(0.6, 3e3);
        pausing.kernels[0].traits.owner = Owner::PyTorch;
        pausing.activities[0].launches = 10_000;
        pausing.activities[0].accounts.pauses = Pauses { count: 30, time: Figure::measured(0.25e9) };
        assert_eq!(assert_finds_in(&RULE, pausing).change, RULE.change);
    }

    #[test]
    fn both_boundaries_count() {
        assert_clear_in(&RULE, profile(0.3, 3e3));
        assert_finds_in(&RULE, profile(0.31, 3e3));
        assert_clear_in(&RULE, profile(0.6, 50e3));
        assert_finds_in(&RULE, profile(0.6, 49_999.0));
        let of = |launches| {
            let mut one = profile(0.6, 3e3);
            one.activities[0].launches = launches;
            one
        };
        // 100 µs for each launch, and a little more.
        assert_finds_in(&RULE, of(6_000));
        assert_clear_in(&RULE, of(5_999));
    }

    #[test]
    fn long_gaps_are_anothers() {
        let mut one = profile(0.25, 3e3);
        one.activities[0].idle_by.insert(IdleCause::HostCode, 0.35e9);
        assert_finds_in(&RULE, one.clone());
        one.activities[0].gaps = vec![gap(0.0, 0.1e9)];
        one.activities[0].long_gaps_ns = 0.1e9;
        assert_clear_in(&RULE, one.clone());
        // The rest of the time is what counts: 0.2 s of 0.5 s.
        one.activities[0].idle_by.insert(IdleCause::HostCode, 0.7e9);
        one.activities[0].gaps = vec![gap(0.0, 0.3e9), gap(0.5e9, 0.2e9)];
        one.activities[0].long_gaps_ns = 0.5e9;
        let share = |one: &Profile| {
            let finding = assert_finds_in(&RULE, one.clone());
            evidence(&finding, "share of time with an empty queue").value
        };
        assert!((share(&one) - 0.4).abs() < 1e-9);
        // A pause that is no gap: 0.15 s of 0.45 s.
        one.activities[0].accounts.pauses = Pauses { count: 30, time: Figure::measured(0.55e9) };
        assert!((share(&one) - 1.0 / 3.0).abs() < 1e-9);
        // Nothing is left of the time.
        one.activities[0].long_gaps_ns = 0.95e9;
        assert_clear_in(&RULE, one);
    }

    #[test]
    fn pauses_are_anothers() {
        let mut one = profile(0.6, 3e3);
        one.activities[0].accounts.pauses = Pauses { count: 30, time: Figure::measured(0.3e9) };
        let finding = assert_finds_in(&RULE, one.clone());
        assert!((finding.saving.of_job.expect("a share").value - 0.3).abs() < 1e-9);
        one.activities[0].accounts.pauses.time = Figure::measured(0.45e9);
        assert_clear_in(&RULE, one);
    }

    #[test]
    fn idle_time_that_launching_does_not_explain_is_anothers() {
        let slow_host = Activity { launches: 5_999, ..activity(1e9, 0.6) };
        let kernels = vec![timed(kernel_of(1000, 128), 3e3)];
        assert_clear_in(&RULE, Profile { kernels: kernels.clone(), ..profile_with([slow_host]) });
        let allocating = idle_during(IdleCause::Allocating, 1e9, 0.6);
        assert_clear_in(&RULE, Profile { kernels, ..profile_with([allocating]) });
    }

    #[test]
    fn where_graphs_alone_were_timed_the_accounts_tell_the_mean() {
        // 0.4 s of kernels: 4 µs for each of 100,000 launches, or 57 µs for each of 7,000.
        let of_graphs = |launches| {
            let mut profile = profile_with([Activity { launches, ..activity(1e9, 0.6) }]);
            profile.totals.graph_launches = 1000;
            profile
        };
        let finding = assert_finds_in(&RULE, of_graphs(100_000));
        assert!((evidence(&finding, "median kernel").value - 4e3).abs() < 1e-6);
        assert_clear_in(&RULE, of_graphs(7_000));
        // Without a graph, a launch or a kernel's time nobody knows.
        let mut none = of_graphs(100_000);
        none.totals.graph_launches = 0;
        assert_unjudged(&RULE, none);
        assert_unjudged(&RULE, of_graphs(0));
        let mut idle = of_graphs(100_000);
        idle.activities[0].accounts.kernels = Figure::measured(0.0);
        assert_unjudged(&RULE, idle);
    }

    #[test]
    fn does_not_judge_what_was_not_timed() {
        assert_unjudged(&RULE, profile_with([activity(1e9, 0.6)]));
        let mut one = profile(0.6, 3e3);
        one.activities = vec![Activity { idle_share: None, ..activity(1e9, 0.6) }];
        assert_unjudged(&RULE, one);
    }
}
