//! The order of findings, which only this module decides:
//!
//! 1. The larger claim comes first: the likely saving, after capping ([`super::capping`]).
//! 2. A finding that explains a larger, more general one comes before it ([`super::leading`]), and
//!    its confidence says so.
//! 3. Unknown savings come after known ones, and known savings of less than 2% of the job last:
//!    they are no reason to change a program. A line that takes most of the time, of which only a
//!    question is known, comes before what saves less than 5%.
//!
//! Where the CPU device counted, its times say nothing about a GPU: what it counted comes first, by
//! the share of the counted work that the kernels concerned do, and the host's side comes last.

use super::capping::time_of;
use crate::finding::{Finding, KernelFinding, Scope};
use crate::rules::{self, Needs, Rule};
use apex_ordered::Order;
use apex_profile::{Profile, SaturatingSum as _};

/// A finding that is known to save less of the job than this comes last.
const MINOR: f64 = 0.02;
/// The share of the job by which a costly line without a claim is ordered: it asks whether the work
/// is needed, and comes before smaller claims.
const QUESTION: f64 = 0.05;

/// A launch configuration that costs its kernels less of their time than this comes last where the
/// CPU device counted: a block of 500 threads instead of 512, for instance.
const SLIGHT: f64 = 0.05;

/// The place of a finding if the CPU device counted: faults that it counted come first, then launch
/// configurations, then counted faults of kernels that do less than [`MINOR`] of the work, then the
/// host's side, then what costs less than [`SLIGHT`].
fn place_by_counts(finding: &Finding, work: f64) -> u8 {
    let is_counted = Rule::named(&finding.rule).is_some_and(|rule| rule.needs == Needs::Counts);
    let is_slight =
        |kernel: &KernelFinding| kernel.saving.of_kernel.is_some_and(|share| share.value < SLIGHT);
    match finding.scope {
        Scope::Host => 3,
        Scope::Kernel if finding.kernels.iter().all(is_slight) => 4,
        Scope::Kernel if is_counted && work < MINOR => 2,
        Scope::Kernel if is_counted => 0,
        Scope::Kernel => 1,
    }
}

pub(super) fn rank(profile: &Profile, findings: &mut [Finding]) {
    let has_counts = profile.kernels.iter().any(|kernel| kernel.counts.is_some());
    let shares = profile.counted_shares();
    let work = |finding: &Finding| finding.counted_weight(&shares);
    let of_kernels = |finding: &Finding| if finding.scope == Scope::Kernel { work(finding) } else { 0.0 };
    let place = |finding: &Finding| if has_counts { place_by_counts(finding, work(finding)) } else { 0 };
    // A finding about the host names kernels as examples: what they do is no measure of it.
    let concerned = |finding: &Finding| match finding.scope {
        Scope::Host => 0,
        Scope::Kernel => finding.kernels.iter().map(|kernel| kernel.launches).saturating_sum(),
    };
    findings.order_by(|a, b| {
        place(a)
            .cmp(&place(b))
            .then(known(b).cmp(&known(a)))
            .then(weight(profile, b).total_cmp(&weight(profile, a)))
            // A finding comes before those within it.
            .then(a.within.is_some().cmp(&b.within.is_some()))
            .then(of_kernels(b).total_cmp(&of_kernels(a)))
            .then(b.severity.cmp(&a.severity))
            .then(concerned(b).cmp(&concerned(a)))
            .then(a.rule.cmp(&b.rule))
    });
    put_leaders_first(findings);
    note_larger_claims(findings);
}

/// Whether the saving of a finding is known, and worth a word.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Known {
    Minor,
    Unknown,
    Worth,
}

/// Whether a finding is about a line of which only a question is known.
fn is_question(finding: &Finding) -> bool {
    finding.rule == rules::COSTLY_LINE && finding.saving.time_ns.is_none()
}

/// The saving by which a finding is ordered, nanoseconds.
fn weight(profile: &Profile, finding: &Finding) -> f64 {
    if is_question(finding) { QUESTION * profile.totals.span_ns } else { time_of(finding) }
}

fn known(finding: &Finding) -> Known {
    match finding.saving.of_job {
        None if is_question(finding) => Known::Worth,
        Some(share) if share.value < MINOR => Known::Minor,
        Some(_) => Known::Worth,
        None => Known::Unknown,
    }
}

/// Moves each finding before those that it leads. What leads is more specific than what is led, so
/// this ends.
fn put_leaders_first(findings: &mut [Finding]) {
    let mut at = 0;
    while let Some(general) = findings.get(at) {
        let leads =
            |finding: &Finding| finding.leads.contains(&general.rule) && known(finding) == Known::Worth;
        match findings[at + 1..].iter().position(leads) {
            Some(next) => findings[at..=at + 1 + next].rotate_right(1),
            None => at += 1,
        }
    }
}

/// Adds to the confidence of each finding before a larger claim which claim that is, and why.
fn note_larger_claims(findings: &mut [Finding]) {
    for at in 0..findings.len() {
        let (before, after) = findings.split_at_mut(at + 1);
        let Some(finding) = before.last_mut().filter(|finding| known(finding) == Known::Worth) else {
            continue;
        };
        let is_larger = |other: &&Finding| {
            finding.leads.contains(&other.rule) && time_of(other) > time_of(finding) && other.within.is_none()
        };
        if let Some(larger) = after.iter().find(is_larger) {
            let reason = &mut finding.confidence.reason;
            *reason =
                format!("{reason}; it comes before {}, of which it names a part of the cause", larger.rule);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Saving;
    use apex_profile::{Figure, Totals};
    use proptest::prelude::*;

    const SPAN_NS: f64 = 1e9;

    /// A finding of a rule that claims this share; unknown without.
    fn finding(rule: &str, share: Option<f64>, leads: &[&str]) -> Finding {
        let figure = |of: f64| share.map(|share| Figure::predicted(share * of, (0.0, share * of)));
        Finding {
            rule: rule.to_owned(),
            leads: leads.iter().map(|&rule| rule.to_owned()).collect(),
            saving: Saving { of_job: figure(1.0), time_ns: figure(SPAN_NS), ..Saving::default() },
            ..Finding::default()
        }
    }

    fn profile() -> Profile {
        Profile { totals: Totals { span_ns: SPAN_NS, ..Totals::default() }, ..Profile::default() }
    }

    fn ranked(mut findings: Vec<Finding>) -> Vec<Finding> {
        rank(&profile(), &mut findings);
        findings
    }

    /// What a finding saves, or the largest one of those that it leads.
    fn led(findings: &[Finding], finding: &Finding) -> f64 {
        let is_led = |other: &&Finding| finding.leads.contains(&other.rule) && known(other) == Known::Worth;
        let others = findings.iter().filter(is_led);
        others.map(|other| led(findings, other)).fold(weight(&profile(), finding), f64::max)
    }

    #[test]
    fn a_cause_says_that_a_larger_claim_comes_after_it() {
        let ranked =
            ranked(vec![finding("APEX-T24", Some(0.5), &[]), finding("APEX-L96", Some(0.2), &["APEX-T24"])]);
        assert_eq!(ranked[0].rule, "APEX-L96");
        assert!(
            ranked[0]
                .confidence
                .reason
                .ends_with("it comes before APEX-T24, of which it names a part of the cause")
        );
    }

    /// Specific rules lead general ones, and never the other way round.
    fn findings() -> impl Strategy<Value = Vec<Finding>> {
        const RULES: [&str; 8] =
            ["APEX-L96", "APEX-T95", "APEX-T87", "APEX-T24", "APEX-T41", "APEX-L43", "APEX-T60", "APEX-T130"];
        let share =
            prop_oneof![1 => Just(None), 5 => (0.0..1.0f64).prop_map(Some), 1 => (0.0..0.04).prop_map(Some)];
        let one = (share, any::<[bool; 3]>());
        prop::collection::vec(one, RULES.len()).prop_map(|drawn| {
            let general = ["APEX-T24", "APEX-T41", "APEX-L43"];
            let of = |(at, (share, leads)): (usize, (Option<f64>, [bool; 3]))| {
                let led = general.iter().zip(leads).filter(|(_, is_led)| *is_led && at < 3);
                finding(RULES[at], share, &led.map(|(rule, _)| *rule).collect::<Vec<_>>())
            };
            drawn.into_iter().enumerate().map(of).collect()
        })
    }

    proptest! {
        #[test]
        fn the_larger_claim_comes_first_unless_another_explains_it(findings in findings()) {
            let ranked = ranked(findings);
            for pair in ranked.windows(2) {
                prop_assert!(known(&pair[0]) >= known(&pair[1]), "{pair:?}");
                if known(&pair[1]) == Known::Worth {
                    prop_assert!(led(&ranked, &pair[0]) >= led(&ranked, &pair[1]), "{pair:?}");
                }
            }
            for (at, leader) in ranked.iter().enumerate().filter(|(_, one)| known(one) == Known::Worth) {
                let is_led = |other: &&Finding| leader.leads.contains(&other.rule) && known(other) == Known::Worth;
                prop_assert_eq!(ranked[..at].iter().find(is_led).map(|other| &other.rule), None);
            }
        }
    }
}
