//! Parts of the run in which the device is mostly idle.

use super::{Draft, NOT_MODELLED, Needs, Outcome, Rule, confidence, idle_by_cause, idle_during, percent};
use crate::finding::{Evidence, Level, Saving, Scope, Severity, Unit};
use apex_profile::{Activity, Figure, Profile};

/// Minimum busy share of a part without a finding.
const LOW: f64 = 0.5;

pub(super) const RULE: Rule = Rule {
    id: "APEX-T17",
    slug: "low-utilisation",
    title: "Low GPU utilisation",
    severity: Severity::High,
    scope: Scope::Host,
    needs: Needs::Times,
    parent: None,
    idle: &[],
    detects: "In any of 30 equal parts of the time between first and last launch of a process, the device is busy for \
              less than 50%.",
    source: "Nsight Systems, rule gpu_time_util: 30 chunks, 50%.",
    why: "The host does not submit work as fast as the device executes it.",
    change: "Start with the host's activity during idle time (see the evidence) and with the findings about \
        it; use a CPU profiler for the program's own code.",
    saving: "None: low utilisation is a symptom. The evidence shows the idle time; the rules about the host \
        show how to remove it.",
    verify: "the GPU's busy share increases, and the run time decreases",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    let modelled: Vec<&Activity> =
        profile.activities.iter().filter(|activity| !activity.busy.is_empty()).collect();
    if modelled.is_empty() {
        return if profile.activities.is_empty() {
            Outcome::Clear
        } else {
            Outcome::Unjudged(NOT_MODELLED.to_owned())
        };
    }
    let parts: usize = modelled.iter().map(|activity| activity.busy.len()).sum();
    let low =
        || modelled.iter().flat_map(|a| a.busy.iter().filter(|&&busy| busy < LOW).map(move |busy| (a, busy)));
    let Some((worst_of, worst)) = low().min_by(|a, b| a.1.total_cmp(b.1)) else { return Outcome::Clear };
    let count = low().count();
    let below = |end: fn((f64, f64)) -> f64| {
        let shares = modelled.iter().flat_map(|a| a.busy.iter().map(move |&busy| a.busy_part(busy).bounds()));
        shares.filter(|&bounds| end(bounds) < LOW).count() as f64
    };
    let counted = (below(|(_, high)| high), below(|(low, _)| low));
    let mut evidence = vec![
        Evidence::new("parts below 50%", Figure::predicted(count as f64, counted), Unit::Count)
            .decrease_towards(0.0),
        Evidence::new("lowest busy share", worst_of.busy_part(*worst), Unit::Share).increase_towards(LOW),
    ];
    let causes = idle_by_cause(profile);
    evidence.extend(causes.keys().filter_map(|&cause| {
        let name = format!("idle during {}, share of the time", cause.name());
        let idle = idle_during(profile, &[cause])?.scaled(1.0 / profile.totals.span_ns.max(1.0));
        Some(Evidence::new(name, idle, Unit::Share))
    }));
    let most = causes.iter().max_by(|a, b| a.1.total_cmp(b.1));
    let most =
        most.map_or(String::new(), |(cause, _)| format!("; most idle time is during {}", cause.name()));
    Outcome::found(Draft {
        summary: format!(
            "in {count} of {parts} equal parts of the run the GPU is busy for less than 50% of the time, in \
                the worst part for {}{most}",
            percent(*worst)
        ),
        evidence,
        kernels: Vec::new(),
        change: None,
        saving: Saving {
            unknown_because: Some(
                "this is a symptom; the findings about its causes have a saving".to_owned(),
            ),
            ..Saving::default()
        },
        confidence: confidence(
            Level::Medium,
            "idle time is modelled from launch times and mean durations of kernels; copies do not count as busy",
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{
        activity, assert_clear_in, assert_finds_in, assert_unjudged, evidence, profile_with,
    };
    use super::RULE;
    use apex_profile::Activity;

    fn busy(values: Vec<f64>) -> Activity {
        let idle = 1.0 - values.iter().sum::<f64>() / values.len().max(1) as f64;
        // So many launches that no rule says why the device is idle.
        Activity { busy: values, launches: 1_000_000, ..activity(30e9, idle) }
    }

    #[test]
    fn fires_on_one_idle_part() {
        let mut values = vec![1.0; 30];
        values[7] = 0.25;
        let finding = assert_finds_in(&RULE, profile_with([busy(values)]));
        assert!(finding.summary.starts_with("in 1 of 30 equal parts"), "{}", finding.summary);
        assert!(finding.summary.ends_with("is during the program's own code"), "{}", finding.summary);
        assert!(finding.saving.time_ns.is_none() && finding.saving.unknown_because.is_some());
        let parts = evidence(&finding, "parts below 50%");
        assert_eq!((parts.value, parts.interval()), (1.0, Some((1.0, 1.0))));
        let worst = evidence(&finding, "lowest busy share");
        // Idle for 2.5% of the time, or 2.25 to 2.75: busy for 97.5%, or 97.25 to 97.75.
        let (low, high) = worst.interval().expect("it is modelled");
        assert!(worst.value == 0.25 && (low * 0.975 - 0.25 * 0.9725).abs() < 1e-9, "{worst:?}");
        let idle = evidence(&finding, "idle during the program's own code, share of the time");
        assert!((high * 0.975 - 0.25 * 0.9775).abs() < 1e-9, "{worst:?}");
        assert!((idle.value - 0.025).abs() < 1e-9, "{idle:?}");
    }

    #[test]
    fn parts_near_the_boundary_may_lie_on_either_side() {
        // Half a second idle of each, known to a tenth of it.
        let activity =
            Activity { idle_share: activity(30e9, 0.5).idle_share, ..busy(vec![0.2, 0.49, 0.52, 0.9]) };
        let finding = assert_finds_in(&RULE, profile_with([activity]));
        let parts = evidence(&finding, "parts below 50%");
        assert_eq!((parts.value, parts.interval()), (2.0, Some((1.0, 3.0))));
    }

    #[test]
    fn the_boundary_is_a_half() {
        assert_clear_in(&RULE, profile_with([busy(vec![0.5; 30])]));
        assert_finds_in(&RULE, profile_with([busy(vec![0.499; 30])]));
    }

    #[test]
    fn does_not_judge_what_was_not_modelled() {
        assert_unjudged(&RULE, profile_with([busy(Vec::new())]));
    }
}
