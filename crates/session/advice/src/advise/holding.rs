//! Limits of the claims of all findings together, whichever rules made them:
//!
//! * The part of a general finding's time in which call stacks show the function of a finding that
//!   leads it is claimed by that one alone.
//! * A finding within another one claims at most as much, and is not surer to.
//! * The others claim at most all of the job together, the larger claims first.
//!
//! Upper ends of intervals are no claims: of two changes, each may save nearly all.

use apex_ordered::{Gather, Order};
use std::collections::BTreeMap;

use super::capping::time_of;
use crate::finding::{Finding, Saving};
use crate::rules;
use apex_profile::{Figure, Profile};

/// Most levels of findings within findings.
const DEPTH: usize = 4;

/// Limits the claims, as the [module](self) says.
pub(super) fn hold(profile: &Profile, findings: &mut [Finding]) {
    for finding in findings.iter_mut() {
        let apart = finding.apart_ns.filter(|_| finding.within.is_none());
        if let Some(apart) = apart.filter(|apart| time_of(finding) > *apart) {
            limit(profile, finding, Figure::predicted(apart, (0.0, f64::INFINITY)));
        }
    }
    share_out(profile, findings);
    for _ in 0..DEPTH {
        let whole = |finding: &Finding| Some((finding.rule.clone(), finding.saving.time_ns?));
        let wholes: BTreeMap<String, Figure> = findings.iter().filter_map(whole).gathered();
        for finding in findings.iter_mut() {
            let whole = finding.within.as_ref().and_then(|rule| wholes.get(rule));
            if let Some(whole) = whole.copied() {
                limit(profile, finding, whole);
            }
        }
    }
}

/// Divides the time of the job among the findings that are within no other.
fn share_out(profile: &Profile, findings: &mut [Finding]) {
    let mut order: Vec<usize> = (0..findings.len()).filter(|&at| findings[at].within.is_none()).collect();
    order.order_by(|&a, &b| time_of(&findings[b]).total_cmp(&time_of(&findings[a])));
    let mut left = profile.totals.span_ns;
    for at in order {
        let finding = &mut findings[at];
        if time_of(finding) > left {
            limit(profile, finding, Figure::predicted(left, (left, f64::INFINITY)));
        }
        left = (left - time_of(finding)).max(0.0);
    }
}

/// Limits the claim of a finding: its value and both ends.
fn limit(profile: &Profile, finding: &mut Finding, whole: Figure) {
    let Some(time) = finding.saving.time_ns else { return };
    let ((low, high), (least, most)) = (time.bounds(), whole.bounds());
    let value = time.value.min(whole.value);
    if value >= time.value && low <= least && high <= most {
        return;
    }
    let time = Figure::predicted(value, (low.min(least).min(value), high.min(most)));
    let Saving { time_ns, of_job, .. } = rules::job_saving(profile, time);
    (finding.saving.time_ns, finding.saving.of_job) = (time_ns, of_job);
}

#[cfg(test)]
mod tests {
    use super::*;
    use apex_profile::Totals;
    use proptest::prelude::*;

    const SPAN_NS: f64 = 1e9;
    const RULES: [&str; 5] = ["APEX-L43", "APEX-T24", "APEX-L25", "APEX-T66", "APEX-P124"];

    /// Findings of which each may lie within the one before it.
    fn findings() -> impl Strategy<Value = Vec<Finding>> {
        let one = ([0.0..1.0f64, 0.0..1.0, 0.0..1.0], any::<bool>(), prop::option::of(0.0..1.0f64));
        prop::collection::vec(one, RULES.len()).prop_map(|drawn| {
            let of = |(at, (mut ends, is_within, apart)): (usize, ([f64; 3], bool, Option<f64>))| {
                ends.sort_by(f64::total_cmp);
                let time = Figure::predicted(ends[1] * SPAN_NS, (ends[0] * SPAN_NS, ends[2] * SPAN_NS));
                let within = (is_within && at > 0).then(|| RULES[at - 1].to_owned());
                let saving = Saving { time_ns: Some(time), ..Saving::default() };
                let apart_ns = apart.map(|share| share * SPAN_NS);
                Finding { rule: RULES[at].to_owned(), within, saving, apart_ns, ..Finding::default() }
            };
            drawn.into_iter().enumerate().map(of).collect()
        })
    }

    proptest! {
        #[test]
        fn claims_keep_together(mut findings in findings()) {
            let profile = Profile { totals: Totals { span_ns: SPAN_NS, ..Totals::default() }, ..Profile::default() };
            hold(&profile, &mut findings);
            let alone = findings.iter().filter(|finding| finding.within.is_none());
            prop_assert!(alone.map(time_of).sum::<f64>() <= SPAN_NS * 1.000_001);
            for finding in &findings {
                let time = finding.saving.time_ns.expect("it is known");
                let (low, high) = time.bounds();
                prop_assert!(low <= time.value && time.value <= high, "{time:?}");
                let is_apart = finding.apart_ns.is_none_or(|apart| time.value <= apart);
                prop_assert!(is_apart || finding.within.is_some());
                let whole = findings.iter().find(|other| finding.within.as_ref() == Some(&other.rule));
                if let Some(whole) = whole.and_then(|whole| whole.saving.time_ns) {
                    prop_assert!(low <= whole.bounds().0 && time.value <= whole.value && high <= whole.bounds().1);
                }
            }
        }
    }
}
