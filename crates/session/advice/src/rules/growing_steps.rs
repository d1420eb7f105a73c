//! Steps that make ever more launches.

use super::{Draft, Needs, Outcome, Rule, confidence, idle_by_cause, job_saving, percent};
use crate::finding::{Evidence, Level, Saving, Scope, Severity, Unit};
use apex_profile::{Figure, Growth, IdleCause, Profile, total};

pub(super) const RULE: Rule = Rule {
    id: "APEX-L131",
    slug: "growing-steps",
    title: "Steps get longer: each makes more launches than the one before",
    severity: Severity::High,
    scope: Scope::Host,
    needs: Needs::Records,
    parent: None,
    idle: &IdleCause::ALL,
    detects: "In each sixth of the busy time there are more launches than in the one before for each launch of at least three \
        kernels that are launched at least 24 times, and in the last sixth at least 1.5 times as many as in the first.",
    source: "APEX; launches are counted. The thresholds are APEX's own.",
    why: "Each step adds something that all later steps execute again, so that the time of n steps grows with n².",
    change: "Find what each step registers or appends and never removes: hooks (keep the handle, call remove()), callbacks, \
        metrics, modules, an ever longer list that is concatenated or a graph of operations that is kept (detach()). Register it \
        once, before the loop.",
    saving: "What the launches beyond those of the first sixth take, if they are needless; they may be wanted (longer inputs).",
    verify: "all steps make as many launches",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    let growths = profile.activities.iter().filter_map(|activity| Some((activity, activity.growth?)));
    let Some((activity, growth)) = growths.max_by_key(|(activity, _)| activity.launches) else {
        return Outcome::Clear;
    };
    let Growth { kernel, first, last, mean } = growth;
    let needless = 1.0 - first / mean;
    let idle = total(idle_by_cause(profile).into_values());
    let all = activity.span_ns;
    let saved = |time: f64| Figure::predicted(needless * time, (0.0, needless * time));
    let name = profile.kernels.get(kernel).map_or("a kernel", |kernel| &kernel.short_name);
    let launches = |name: &str, count| Evidence::new(name, Figure::measured(count), Unit::Count);
    Outcome::found(Draft {
        summary: format!(
            "for each launch of `{name}` the program makes {first:.0} launches at first and {last:.0} in the end, {:.1} times as \
             many: steps get longer from step to step",
            last / first
        ),
        evidence: vec![
            launches("launches for each of it at first", first),
            launches("launches for each of it in the end", last).decrease_towards(first),
            Evidence::new(
                "share of launches beyond those of the first steps",
                Figure::computed(needless),
                Unit::Share,
            ),
        ],
        kernels: Vec::new(),
        change: None,
        saving: Saving {
            beyond: Some(saved((all - idle).max(0.0))),
            ..job_saving(profile, saved(idle.min(all)))
        },
        confidence: confidence(
            Level::Medium,
            format!("launches are counted; whether {} of them are wanted is not known", percent(needless)),
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{activity, assert_clear_in, assert_finds_in, profile_with};
    use super::RULE;
    use apex_profile::{Activity, Growth};

    #[test]
    fn fires_where_steps_grow() {
        let growth = Growth { kernel: 0, first: 100.0, last: 800.0, mean: 400.0 };
        let finding =
            assert_finds_in(&RULE, profile_with([Activity { growth: Some(growth), ..activity(1e9, 0.5) }]));
        assert!(finding.summary.contains("8.0 times as many"), "{}", finding.summary);
        let share = finding.saving.of_job.expect("a saving").value;
        assert!((0.7..=0.76).contains(&share), "{share}");
        assert_clear_in(&RULE, profile_with([activity(1e9, 0.5)]));
    }
}
