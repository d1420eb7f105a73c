//! Memory that is set (memset) for a notable part of the time.

use super::{
    Draft, NOT_MODELLED, Needs, Outcome, Rule, account, bytes, confidence, counted, from_place, job_saving,
    percent, setting,
};
use crate::finding::{Evidence, Level, Saving, Scope, Severity, Unit};
use apex_profile::{Call, Figure, Profile, SaturatingSum as _};
use apex_trace::layout::CallClass;

/// Minimum share of the time.
const SETTING: f64 = 0.1;
/// Share of that time that is usually avoidable: data that is overwritten anyway, or few places of
/// it that were touched.
const USUAL: f64 = 0.8;

pub(super) const RULE: Rule = Rule {
    id: "APEX-T122",
    slug: "fills",
    title: "Memory is set in every step",
    severity: Severity::Medium,
    scope: Scope::Host,
    needs: Needs::Times,
    parent: None,
    idle: &[],
    detects: "During at least 10% of the time the device sets memory (cudaMemset and its kin), and no kernel runs.",
    source: "APEX; the time of a fill follows from its bytes and the bandwidth of the device's memory.",
    why: "A fill writes each byte and computes nothing. The kernels wait for it.",
    change: "Set only what needs it: nothing where a kernel overwrites the data anyway; only the places that the last step \
        touched (a list of them, or a number of the step stored beside each value, so that old ones count as empty); or let \
        the kernel that writes first store instead of add.",
    saving: "The time of the fills, between nothing (all of them are needed) and all of it: the estimate is four fifths of it.",
    verify: "fills decrease, and the run time decreases",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    let sets: Vec<&Call> = profile.calls.iter().filter(|call| call.class == Some(CallClass::Set)).collect();
    let count = sets.iter().map(|call| call.count).saturating_sum();
    let set = sets.iter().map(|call| call.bytes).saturating_sum();
    if set == 0 {
        return Outcome::Clear;
    }
    if profile.activities.iter().all(|activity| activity.idle_share.is_none()) {
        return Outcome::Unjudged(NOT_MODELLED.to_owned());
    }
    let span = profile.totals.span_ns.max(1.0);
    let setting = setting(profile);
    if setting.value < SETTING * span {
        return Outcome::Clear;
    }
    let kernels = account(profile, |accounts| accounts.kernels);
    Outcome::found(Draft {
        summary: format!(
            "{} of {} on average{}: for {} of the time the device sets memory (memset) and no kernel runs",
            counted(count, "fill", "fills"),
            bytes(set / count.max(1)),
            from_place(profile, sets.iter().map(|call| &call.stacks)),
            percent(setting.value / span)
        ),
        evidence: vec![
            Evidence::new("share of time with fills only", setting.scaled(1.0 / span), Unit::Share)
                .decrease_towards(0.0),
            Evidence::new("share of time in kernels", kernels.scaled(1.0 / span), Unit::Share),
        ],
        kernels: Vec::new(),
        change: None,
        saving: Saving {
            beyond: Some(Figure::predicted(USUAL * setting.value, (0.0, setting.bounds().1))),
            ..job_saving(profile, Figure::predicted(0.0, (0.0, 0.0)))
        },
        confidence: confidence(
            Level::Medium,
            "the time of fills is estimated from their bytes; it is unknown which of them are needed",
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{activity, assert_clear_in, assert_finds_in, call, copies, profile_with};
    use super::RULE;
    use apex_profile::{Accounts, Activity, Call, Figure, Profile};
    use apex_trace::layout::CallClass;
    use apex_trace::layout::MemoryKind::{Device, Pinned};

    /// A second, of which this share goes to copies and fills; 100 fills of this number of bytes.
    fn setting(share: f64, bytes: u64) -> Profile {
        let base = activity(1e9, 0.0);
        let accounts = Accounts {
            copies: Figure::measured(share * 1e9),
            kernels: Figure::measured((1.0 - share) * 1e9),
            ..base.accounts.clone()
        };
        let set = Call { bytes: 100 * bytes, ..call("cuMemsetD8Async", CallClass::Set, 100) };
        Profile { calls: vec![set], ..profile_with([Activity { accounts, ..base }]) }
    }

    #[test]
    fn fills_that_take_time_are_found() {
        let finding = assert_finds_in(&RULE, setting(0.9, 1 << 31));
        let saving = finding.saving.of_job.expect("a share");
        assert!((saving.value - 0.8 * 0.9).abs() < 1e-9 && saving.bounds().0 == 0.0, "{saving:?}");
        assert!(finding.summary.starts_with("100 fills of 2.00 GiB on average"), "{}", finding.summary);
        assert_clear_in(&RULE, setting(0.05, 1 << 31));
    }

    #[test]
    fn time_of_copies_is_not_that_of_fills() {
        let mut copying = setting(0.9, 64);
        copying.copies = vec![copies(Pinned, Device, true, 100, 1 << 24)];
        assert_clear_in(&RULE, copying);
    }
}
