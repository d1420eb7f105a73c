//! The order of findings: by what they save. Unknown savings come after known ones, and known
//! savings of less than 2% of the job after these. A finding that leads another comes before it,
//! whatever both save ([`super::leading`]). Where the CPU device counted, its times
//! say nothing about a GPU: what it counted comes first, by the share of the counted work that the
//! kernels concerned do, and the host's side comes last.

use super::capping::time_of;
use crate::finding::{Finding, KernelFinding, Scope};
use crate::rules::{Needs, Rule};
use apex_ordered::Order;
use apex_profile::{Profile, SaturatingSum as _};

/// A finding that is known to save less of the job than this comes last.
const MINOR: f64 = 0.02;

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
            .then(time_of(b).total_cmp(&time_of(a)))
            // A finding comes before those within it.
            .then(a.within.is_some().cmp(&b.within.is_some()))
            .then(of_kernels(b).total_cmp(&of_kernels(a)))
            .then(b.severity.cmp(&a.severity))
            .then(concerned(b).cmp(&concerned(a)))
            .then(a.rule.cmp(&b.rule))
    });
    put_leaders_first(findings);
}

/// Whether the saving of a finding is known, and worth a word.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Known {
    Minor,
    Unknown,
    Worth,
}

fn known(finding: &Finding) -> Known {
    match finding.saving.of_job {
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
