//! The order of findings: by what they save. Unknown savings come after known ones, and known
//! savings of less than 2% of the job after these. Where the CPU device counted, what it counted
//! comes first and the host's side last: its times say nothing about a GPU.

use super::capping::time_of;
use crate::finding::{Finding, Scope};
use crate::rules::{Needs, Rule};
use apex_profile::{Profile, SaturatingSum as _};

/// A finding that is known to save less of the job than this comes last.
const MINOR: f64 = 0.02;

/// Whether what a finding says was counted by the CPU device.
fn is_counted(finding: &Finding) -> bool {
    Rule::named(&finding.rule).is_some_and(|rule| rule.needs == Needs::Counts)
}

/// Whether the CPU device executed the kernels, and counted.
fn counts(profile: &Profile) -> bool {
    profile.kernels.iter().any(|kernel| kernel.counts.is_some())
}

pub(super) fn rank(profile: &Profile, findings: &mut [Finding]) {
    let counts = counts(profile);
    // Where the CPU device counted: counts, then launch configurations, then the host's side.
    let first = |finding: &Finding| counts && is_counted(finding);
    let last = |finding: &Finding| counts && finding.scope == Scope::Host;
    let concerned = |finding: &Finding| finding.kernels.iter().map(|kernel| kernel.launches).saturating_sum();
    // 2: known, 1: unknown, 0: known to be minor.
    let known = |finding: &Finding| match finding.saving.of_job {
        Some(share) if share.value < MINOR => 0,
        Some(_) => 2,
        None => 1,
    };
    findings.sort_by(|a, b| {
        first(b)
            .cmp(&first(a))
            .then(last(a).cmp(&last(b)))
            .then(known(b).cmp(&known(a)))
            .then(time_of(b).total_cmp(&time_of(a)))
            // A finding comes before those within it.
            .then(a.within.is_some().cmp(&b.within.is_some()))
            .then(b.severity.cmp(&a.severity))
            .then(concerned(b).cmp(&concerned(a)))
            .then(a.rule.cmp(&b.rule))
    });
}
