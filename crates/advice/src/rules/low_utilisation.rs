//! Parts of the run in which the device is mostly idle.

use super::{Draft, NOT_MODELLED, Needs, Outcome, Rule, confidence, idle_by_cause, percent};
use crate::figure::Figure;
use crate::finding::{Evidence, Level, Saving, Scope, Severity, Unit};
use crate::profile::{Activity, Profile};

/// A part below this is badly used.
const LOW: f64 = 0.5;

pub(super) const RULE: Rule = Rule {
    id: "APEX-T17",
    slug: "low-utilisation",
    title: "The device is idle for much of the time",
    severity: Severity::High,
    scope: Scope::Host,
    needs: Needs::Times,
    parent: None,
    idle: &[],
    detects: "In any of 30 equal parts of the time between first and last launch of a process, the device is busy for \
              less than 50 %.",
    source: "Nsight Systems, rule gpu_time_util: 30 chunks, 50 %.",
    why: "The host does not launch work as fast as the device does it.",
    change: "Start with what the host does while the device is idle (in the evidence), and with the findings that concern \
             it; for the program's own code, a CPU profiler tells more.",
    saving: "None of its own: it is a symptom. Its evidence says how much idle time there is; the rules on the host's \
             side say what removes it.",
    verify: "GPU busy share rises, and the job's time falls",
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
    let Some((_, worst)) = low().min_by(|a, b| a.1.total_cmp(b.1)) else { return Outcome::Clear };
    let count = low().count();
    let mut evidence = vec![
        Evidence::new("parts below 50 %", Figure::predicted(count as f64), Unit::Count).decrease_towards(0.0),
        Evidence::new("lowest busy share", Figure::predicted(*worst), Unit::Share).increase_towards(LOW),
    ];
    let causes = idle_by_cause(profile);
    evidence.extend(causes.iter().map(|(cause, idle)| {
        let name = format!("idle during {}, share of the time", cause.name());
        Evidence::new(name, Figure::predicted(idle / profile.totals.span_ns.max(1.0)), Unit::Share)
    }));
    let most = causes.iter().max_by(|a, b| a.1.total_cmp(b.1));
    let most =
        most.map_or(String::new(), |(cause, _)| format!("; most idle time passes during {}", cause.name()));
    Outcome::found(Draft {
        summary: format!(
            "in {count} of {parts} equal parts of the run the device is busy for less than 50 %, in the worst for {}{most}",
            percent(*worst)
        ),
        evidence,
        kernels: Vec::new(),
        change: None,
        saving: Saving {
            unknown_because: Some("it is a symptom; the findings about its causes have a saving".to_owned()),
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
    use super::super::fixture::{activity, assert_clear_in, assert_finds_in, assert_unjudged, profile_with};
    use super::RULE;
    use crate::profile::Activity;

    fn busy(values: Vec<f64>) -> Activity {
        Activity { busy: values, ..activity(30e9, 0.9) }
    }

    #[test]
    fn fires_on_one_idle_part() {
        let mut values = vec![1.0; 30];
        values[7] = 0.25;
        let finding = assert_finds_in(&RULE, profile_with([busy(values)]));
        assert!(finding.summary.starts_with("in 1 of 30 equal parts"), "{}", finding.summary);
        assert!(finding.summary.ends_with("passes during the program's own code"), "{}", finding.summary);
        assert!(finding.saving.time_ns.is_none() && finding.saving.unknown_because.is_some());
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
