//! Long times without any work on the device.

use super::{Draft, Needs, Outcome, Rule, compilation_cache, confidence, counted, job_saving, percent, time};
use crate::finding::{Evidence, Level, Scope, Severity, Unit};
use apex_profile::{Activity, Figure, Gap, IdleCause, Profile, SaturatingSum as _};

const CHANGE: &str = "Move the host's work in the gap to another thread or before the first launch: prefetch the \
    next input, write checkpoints in the background, compile ahead of time.";

pub(super) const RULE: Rule = Rule {
    id: "APEX-T16",
    slug: "gpu-gap",
    title: "GPU idle gap",
    severity: Severity::High,
    scope: Scope::Host,
    needs: Needs::Times,
    parent: None,
    idle: &IdleCause::ALL,
    detects: "A period of at least 500 ms without work on the device, between its first and its last work; \
        in a run of less than 10 s, at least 5% of the run and at least 10 ms. Where \
        XLA or TorchInductor made kernels, the finding names the cache of compiled code.",
    source: "Nsight Systems, rule gpu_gaps: 500 ms. The shares for short runs are APEX's own.",
    why: "During the gap the host does other work: it loads data, compiles, writes a checkpoint, or waits \
        for another process.",
    change: CHANGE,
    saving: "The time of these gaps.",
    verify: "the gaps disappear, and the run time decreases",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    let gaps = profile.activities.iter().map(|activity| activity.long_gaps).saturating_sum();
    let lost =
        Figure::sum(profile.activities.iter().map(Activity::long_gaps)).unwrap_or(Figure::measured(0.0));
    let share = lost.scaled(1.0 / profile.totals.span_ns.max(1.0));
    if gaps == 0 {
        return match profile.activities.iter().any(|activity| activity.idle_share.is_none()) {
            true => Outcome::Unjudged(super::NOT_MODELLED.to_owned()),
            false => Outcome::Clear,
        };
    }
    let longest = profile.activities.iter().filter_map(|a| Some((a, a.gaps.first()?)));
    let Some((activity, longest)) =
        longest.max_by(|a, b| a.1.duration_ns.value.total_cmp(&b.1.duration_ns.value))
    else {
        return Outcome::Clear;
    };
    Outcome::found(Draft {
        summary: format!(
            "the GPU is idle for {} in {}; the longest gap takes {}, {} after the first launch{}{}",
            time(lost.value),
            counted(gaps, "long gap", "long gaps"),
            time(longest.duration_ns.value),
            time((longest.start_ns - activity.start_ns).max(0.0)),
            between(profile, longest.before, longest.after),
            while_in(longest)
        ),
        evidence: vec![
            Evidence::new("long gaps", Figure::measured(gaps as f64), Unit::Count).decrease_towards(0.0),
            Evidence::new("longest gap", longest.duration_ns, Unit::Nanoseconds)
                .decrease_towards(Activity::long_gap_ns(activity.span_ns)),
            Evidence::new("share of the device's time", share, Unit::Share).decrease_towards(0.0),
        ],
        kernels: Vec::new(),
        change: unknown_cause(longest)
            .or_else(|| compilation_cache(profile).map(|cache| format!("{CHANGE} {cache}"))),
        saving: job_saving(profile, Figure::predicted(lost.value, (0.0, lost.bounds().1))),
        confidence: confidence(
            Level::Medium,
            format!(
                "the GPU is idle for {}; it is unknown how much of the host's work can be moved",
                percent(share.value)
            ),
        ),
    })
}

/// Returns the host's activity for most of a gap.
fn mostly(gap: &Gap) -> IdleCause {
    let most = gap.by.iter().max_by(|a, b| a.1.total_cmp(b.1));
    most.map_or(IdleCause::HostCode, |(&cause, _)| cause)
}

/// `, while the host is in …`, if that was recorded.
fn while_in(gap: &Gap) -> String {
    match mostly(gap) {
        IdleCause::Unrecorded => "; what the host did was not recorded".to_owned(),
        cause => format!(", while the host is in {}", cause.name()),
    }
}

/// What to do about a gap whose cause is not known.
fn unknown_cause(gap: &Gap) -> Option<String> {
    let change = "Find what the host does in the gap: record its calls too, by `apex run` or as the profiler's CPU \
                  activities";
    (mostly(gap) == IdleCause::Unrecorded).then(|| change.to_owned())
}

/// `, between ``a`` and ``b```, as far as these are known.
fn between(profile: &Profile, before: Option<usize>, after: Option<usize>) -> String {
    let name = |kernel: Option<usize>| kernel.and_then(|k| profile.kernels.get(k)).map(|k| &k.short_name);
    match (name(before), name(after)) {
        (Some(before), Some(after)) => format!(", between `{before}` and `{after}`"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{
        activity, assert_clear_in, assert_finds_in, assert_unjudged, evidence, gap, idle_during, launched_by,
        profile_with,
    };
    use super::RULE;
    use apex_profile::names::Owner;
    use apex_profile::{Activity, IdleCause};

    #[test]
    fn fires_on_a_long_gap() {
        let mut active = idle_during(IdleCause::HostCode, 10e9, 0.09);
        active.gaps = vec![gap(2e9, 900e6)];
        (active.long_gaps, active.long_gaps_ns) = (1, 900e6);
        let finding = assert_finds_in(&RULE, profile_with([active]));
        let saving = finding.saving.time_ns.expect("a time");
        let (low, high) = saving.interval().expect("it is predicted");
        assert!(saving.value == 900e6 && low == 0.0 && (high - 990e6).abs() < 1.0, "{saving:?}");
        let share = evidence(&finding, "share of the device's time");
        let (low, high) = share.interval().expect("its beginning is modelled");
        assert!(
            (share.value - 0.09).abs() < 1e-12 && (low - 0.081).abs() < 1e-12 && (high - 0.099).abs() < 1e-12
        );
        assert!((finding.saving.of_job.expect("a share").value - 0.09).abs() < 1e-12);
    }

    #[test]
    fn names_the_cache_of_what_compiles() {
        let by = |owner| {
            let mut active = idle_during(IdleCause::HostCode, 10e9, 0.09);
            active.gaps = vec![gap(2e9, 900e6)];
            (active.long_gaps, active.long_gaps_ns) = (1, 900e6);
            assert_finds_in(&RULE, launched_by(owner, profile_with([active]))).change
        };
        assert!(by(Owner::Xla).contains("jax_compilation_cache_dir"));
        assert!(by(Owner::Inductor).contains("TORCHINDUCTOR_CACHE_DIR"));
        assert_eq!(by(Owner::Own), RULE.change);
    }

    #[test]
    fn a_gap_whose_cause_was_not_recorded_has_no_remedy_for_one() {
        let mut active = idle_during(IdleCause::Unrecorded, 10e9, 0.09);
        active.gaps = vec![gap(2e9, 900e6)];
        active.gaps[0].by = [(IdleCause::Unrecorded, 900e6)].into();
        (active.long_gaps, active.long_gaps_ns) = (1, 900e6);
        let profile = launched_by(Owner::Xla, profile_with([active]));
        assert!(profile.lacks_calls());
        let finding = assert_finds_in(&RULE, profile);
        assert!(finding.change.contains("record its calls too"), "{}", finding.change);
        assert!(finding.summary.ends_with("what the host did was not recorded"), "{}", finding.summary);
    }

    #[test]
    fn is_clear_without_one() {
        assert_clear_in(&RULE, profile_with([activity(10e9, 0.5)]));
    }

    #[test]
    fn does_not_judge_what_was_not_modelled() {
        assert_unjudged(&RULE, profile_with([Activity { idle_share: None, ..activity(10e9, 0.5) }]));
    }
}
