//! Launch calls that take long though the device has nothing to do.

use super::{
    Draft, Fault, NOT_MODELLED, Needs, Outcome, Rule, about_kernels, confidence, counted, job_saving,
    kernel_finding, percent, time, up_to,
};
use crate::finding::{Evidence, Level, Scope, Severity, Unit};
use apex_profile::{Figure, IdleCause, Kernel, Profile};

/// Minimum share of the span in slow calls.
const SHARE: f64 = 0.01;
/// Minimum launch calls for a comparison.
const LAUNCHES: u64 = 10;
/// Minimum idle share; calls to a busier device wait for space in the queue.
const IDLE: f64 = 0.1;

pub(super) const RULE: Rule = Rule {
    id: "APEX-T21",
    slug: "slow-launch",
    title: "Slow launch calls",
    severity: Severity::Low,
    scope: Scope::Host,
    needs: Needs::Times,
    parent: None,
    idle: &[IdleCause::Launching],
    detects: "Launch calls of more than 50 µs that together take at least 1% of the time between first and \
        last launch, while the device is idle for at least 10% of it (otherwise they wait for space in a \
        full queue, which is harmless). Fewer than 10 launches are not judged.",
    source: "Holistic Trace Analysis, CUDA kernel launch statistics: CPU time above 50 µs is an outlier. The other \
             thresholds are APEX's own.",
    why: "The first launch of a kernel loads its code; a busy or throttled CPU delays every launch.",
    change: "Launch each kernel once during warm-up, or set CUDA_MODULE_LOADING=EAGER; if calls stay slow, \
        look for other processes on the same cores.",
    saving: "CPU time of these calls, less that of as many usual calls.",
    verify: "calls above 50 µs decrease, and the run time decreases",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    let idle: Vec<f64> =
        profile.activities.iter().filter_map(|a| Some(a.idle_share?.value * a.span_ns)).collect();
    if idle.is_empty() {
        return if profile.activities.is_empty() {
            Outcome::Clear
        } else {
            Outcome::Unjudged(NOT_MODELLED.to_owned())
        };
    }
    let launches = profile.totals.launches;
    if launches < LAUNCHES {
        return Outcome::Unjudged(format!(
            "only {}: the first calls of a process are slow, and later calls are needed for comparison",
            counted(launches, "launch call", "launch calls")
        ));
    }
    let span = profile.totals.span_ns;
    let (count, spent) = profile
        .kernels
        .iter()
        .fold((0, 0.0), |(count, spent), kernel| (count + kernel.slow_calls.0, spent + excess(kernel)));
    if count == 0 || span <= 0.0 || spent < SHARE * span || idle.iter().sum::<f64>() < IDLE * span {
        return Outcome::Clear;
    }
    let kernels = profile
        .kernels
        .iter()
        .enumerate()
        .filter(|(_, kernel)| kernel.slow_calls.0 > 0)
        .map(|(index, kernel)| {
            let mut finding = kernel_finding(profile, index, fault(kernel));
            finding.saving = job_saving(profile, up_to(excess(kernel)));
            finding
        })
        .collect();
    let sure = confidence(Level::Medium, "effective only if the device waits for these calls");
    let draft = about_kernels(profile, kernels, sure, |_| {
        format!(
            "{} took more than 50 µs, {} together, {} of the time",
            counted(count, "launch call", "launch calls"),
            time(spent),
            percent(spent / span)
        )
    });
    Outcome::found(Draft { change: None, saving: job_saving(profile, up_to(spent)), ..draft })
}

/// CPU time of a kernel's slow calls above that of usual ones.
fn excess(kernel: &Kernel) -> f64 {
    let (count, spent) = kernel.slow_calls;
    (spent - count as f64 * kernel.cpu.median_ns.min(50e3)).max(0.0)
}

fn fault(kernel: &Kernel) -> Fault {
    let (count, spent) = kernel.slow_calls;
    Fault {
        evidence: vec![
            Evidence::new("calls above 50 µs", Figure::measured(count as f64), Unit::Count)
                .decrease_towards(0.0),
            Evidence::new("CPU time of these", Figure::measured(spent), Unit::Nanoseconds),
            Evidence::new("slowest", Figure::measured(kernel.cpu.max_ns), Unit::Nanoseconds),
        ],
        change: match count {
            1 => "launch it once during warm-up: its only slow call is probably the first".to_owned(),
            _ => "its calls are slow repeatedly: look for other processes on the same cores".to_owned(),
        },
        saves: Err("the change saves the host's time"),
        threads: None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{
        activity, assert_clear_in, assert_finds_in, assert_unjudged, evidence, idle_during, kernel_of,
        profile_with,
    };
    use super::RULE;
    use apex_profile::{Activity, IdleCause, Kernel, Profile};

    fn profile(slow_ns: f64, idle: f64) -> Profile {
        let mut kernel = Kernel { slow_calls: (3, slow_ns), ..kernel_of(1000, 128) };
        kernel.cpu.median_ns = 0.0;
        let mut profile = profile_with([idle_during(IdleCause::Launching, 1e9, idle)]);
        profile.totals.launches = 1000;
        Profile { kernels: vec![kernel], ..profile }
    }

    #[test]
    fn fires_on_slow_calls_while_the_device_waits() {
        let finding = assert_finds_in(&RULE, profile(20e6, 0.4));
        let saving = finding.saving.time_ns.expect("a time");
        assert_eq!((saving.value, saving.interval()), (20e6, Some((0.0, 20e6))));
        assert_eq!(evidence(&finding, "calls above 50 µs").value, 3.0);
        assert_eq!(evidence(&finding, "CPU time of these").value, 20e6);
        assert!(finding.summary.starts_with("3 launch calls took more than 50 µs"), "{}", finding.summary);
    }

    #[test]
    fn the_boundaries_are_one_percent_and_an_idle_device() {
        assert_finds_in(&RULE, profile(10e6, 0.1));
        assert_clear_in(&RULE, profile(9.9e6, 0.1));
        assert_clear_in(&RULE, profile(10e6, 0.09));
    }

    #[test]
    fn does_not_judge_what_was_not_modelled() {
        let mut one = profile(20e6, 0.4);
        one.activities = vec![Activity { idle_share: None, ..activity(1e9, 0.4) }];
        assert_unjudged(&RULE, one);
    }

    #[test]
    fn does_not_judge_first_calls_without_others_to_compare_with() {
        let mut one = profile(1e9, 1.0);
        one.totals.launches = 9;
        assert_unjudged(&RULE, one.clone());
        one.totals.launches = 10;
        assert_finds_in(&RULE, one);
    }
}
