//! Findings that say why come before findings that say that.
//!
//! Several findings may be about the same idle time. A *general* one ([`rules::GENERAL`]) names its
//! account: the host launches too slowly, runs its own code, or synchronises. It is a container:
//! it claims all of the account, so it is larger than any cause that lies within. A *specific* one
//! names the cause: a known function or operation ([`Finding::cause`]), or else a function of the
//! program that samples found ([`Specificity`]).
//!
//! A specific finding *leads* a general one if it explains at least [`SUBSTANTIAL`] of its time,
//! and claims at least a part of what the general one claims beside it ([`least_claim`]):
//!
//! * by samples of the host's call stacks, or by the launches that it makes ([`Saving::observed`]);
//! * a finding about kernels, by their share of the launches, where its cause says that its remedy
//!   makes launches needless (it explains `launch-bound`);
//! * a finding about driver calls, by the time that it claims, where its cause explains the other.
//!
//! So a cause stands before a larger claim only if it explains that claim and its own claim is more
//! reliable. Among first findings on unseen programs whose remedy was followed (sets 7 to 9), the
//! remedy achieved at least half of the claim in 11 of 14 programs where a known cause was named,
//! in 3 of 7 where a place was named, and in none of 4 where an account was named. By Laplace's
//! rule of succession these rates are 12/16, 4/9 and 1/6, so a known cause's claim outweighs an
//! account's that is up to four and a half times as large. Otherwise the larger claim comes first.
//!
//! A finding that leads takes its idle time first ([`super::capping`]) and is said first
//! ([`super::ranking`]), with its own claim: the general one claims what is left. A specific
//! finding that explains less is named in the general one's summary, with its remedy
//! ([`name_causes`]). Where there is none, the summary names the lines at which the account's time
//! passes. So the first finding always names a line or a function, if call stacks were read.

use apex_ordered::Gather;
use std::collections::BTreeSet;

use super::capping::time_of;
use crate::finding::{Finding, Observed, Scope};
use crate::rules;
use apex_profile::units::share as percent;
use apex_profile::{Profile, total};

/// Minimum part of a general finding's time for a specific finding to be said first.
///
/// In the recorded programs of testing/corpus whose cause was planted, the cause explains 18%
/// (`vocoder_chunks`), 19% (`policy_heads`), 29% (`synced_log`, `training_notes`) and 35%
/// (`scanned_pages`) of the time that the general finding claims, by samples and launches; the
/// measured savings are as large or larger. Removing a sixth of a wait makes a program a fifth
/// faster.
const SUBSTANTIAL: f64 = 1.0 / 6.0;
/// Minimum part for a specific finding to be named in the general one's summary.
const NAMED: f64 = 0.05;

/// Minimum claim of a known cause, as a share of the rest of the claim of an account that it
/// explains.
const OF_ACCOUNT: f64 = 0.2;
/// The same for a cause or a place within the time of a named place.
const OF_PLACE: f64 = 0.5;

/// How precisely a finding names its cause.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Specificity {
    /// The account of the time.
    Account,
    /// A function or a line of the program.
    Place,
    /// A known cause with its remedy, or a fault of kernels.
    Cause,
}

impl Specificity {
    fn of(finding: &Finding) -> Self {
        match &finding.cause {
            Some(_) => Self::Cause,
            None if finding.rule == rules::GROWING_STEPS => Self::Cause,
            None if finding.saving.observed.is_some() => Self::Place,
            None => Self::Account,
        }
    }
}

/// The part of a general finding's time that a more specific one explains: 0 if it is about other
/// time.
fn part(profile: &Profile, specific: &Finding, general: &Finding) -> f64 {
    let all = time_of(general);
    let is_general = rules::GENERAL.contains(&general.rule.as_str());
    if !is_general || all <= 0.0 || Specificity::of(specific) <= Specificity::of(general) {
        return 0.0;
    }
    let explains = specific.explains.contains(&general.slug)
        || specific.rule == rules::GROWING_STEPS && general.rule == rules::LAUNCH_BOUND;
    let time = match (&specific.saving.observed, specific.scope) {
        (Some(Observed { time_ns, .. }), Scope::Host) if time_ns.samples > 0 => {
            time_ns.value / rules::sampled_part(profile)
        }
        (Some(Observed { time_ns, .. }), Scope::Host) => time_ns.value,
        (None, Scope::Host) if explains => time_of(specific),
        (_, Scope::Kernel) if explains && general.rule == rules::LAUNCH_BOUND => {
            let kernels = specific.kernels.iter().filter_map(|found| profile.kernels.get(found.kernel));
            return rules::share_of_launches(profile, kernels);
        }
        _ => 0.0,
    };
    (time / all).min(1.0)
}

/// Minimum claim of a finding that leads this one, as a share of the rest of this one's claim.
fn least_claim(general: &Finding) -> f64 {
    match Specificity::of(general) {
        Specificity::Account => OF_ACCOUNT,
        Specificity::Place | Specificity::Cause => OF_PLACE,
    }
}

/// Whether a finding is said before a more general one.
fn is_leader(profile: &Profile, specific: &Finding, general: &Finding) -> bool {
    let claim = claim_of(specific);
    let rest = (time_of(general) - claim).max(0.0);
    part(profile, specific, general) >= SUBSTANTIAL && claim >= least_claim(general) * rest
}

/// The claim of a finding, including the device's work, nanoseconds.
fn claim_of(finding: &Finding) -> f64 {
    let kernels = finding.kernels.iter().filter_map(|kernel| kernel.saving.time_ns);
    let own = match finding.scope {
        Scope::Host => time_of(finding),
        Scope::Kernel => total(kernels.map(|time| time.value)),
    };
    own + finding.saving.beyond.map_or(0.0, |beside| beside.value)
}

/// Notes which findings lead which others, by what they claim before it is capped.
pub(super) fn note_leaders(profile: &Profile, findings: &mut [Finding]) {
    let leads: Vec<Vec<String>> = findings
        .iter()
        .map(|specific| {
            let led = findings.iter().filter(|general| is_leader(profile, specific, general));
            led.map(|general| general.rule.clone()).collect()
        })
        .collect();
    let part_of: Vec<Option<String>> =
        findings.iter().zip(&leads).map(|(one, leads)| container(profile, findings, one, leads)).collect();
    let apart: Vec<Option<f64>> =
        findings.iter().map(|general| apart(profile, findings, &leads, general)).collect();
    findings.iter_mut().zip(apart).for_each(|(finding, apart_ns)| finding.apart_ns = apart_ns);
    for ((finding, leads), part_of) in findings.iter_mut().zip(leads).zip(part_of) {
        (finding.leads, finding.part_of) = (leads, part_of);
    }
}

/// See [`Finding::apart_ns`]; `leads` has the rules that each finding leads.
fn apart(profile: &Profile, findings: &[Finding], leads: &[Vec<String>], general: &Finding) -> Option<f64> {
    let leaders = findings.iter().zip(leads).filter(|(leader, leads)| {
        let is_seen = leader.saving.observed.as_ref().is_some_and(|observed| observed.time_ns.samples > 0);
        is_seen && leads.contains(&general.rule)
    });
    let largest = leaders.map(|(leader, _)| part(profile, leader, general)).reduce(f64::max)?;
    Some((1.0 - largest) * time_of(general))
}

/// The rule of the largest general finding about the host whose time this finding about the host
/// partly explains without leading it.
fn container(
    profile: &Profile,
    findings: &[Finding],
    specific: &Finding,
    leads: &[String],
) -> Option<String> {
    let holds =
        |general: &&Finding| !leads.contains(&general.rule) && part(profile, specific, general) >= NAMED;
    let largest = findings.iter().filter(holds).max_by(|a, b| time_of(a).total_cmp(&time_of(b)))?;
    (specific.scope == Scope::Host && time_of(specific) <= time_of(largest)).then(|| largest.rule.clone())
}

/// Names in the summary of each general finding the cause that explains most of it, with its
/// remedy unless that leads; or the lines at which its time passes.
pub(super) fn name_causes(profile: &Profile, findings: &mut [Finding]) {
    let led: BTreeSet<String> = findings.iter().flat_map(|finding| finding.leads.iter().cloned()).gathered();
    for at in 0..findings.len() {
        let general = &findings[at];
        if !rules::GENERAL.contains(&general.rule.as_str()) {
            continue;
        }
        let parts = findings.iter().map(|specific| (specific, part(profile, specific, general)));
        let largest = parts.filter(|(_, part)| *part >= NAMED).max_by(|a, b| a.1.total_cmp(&b.1));
        // Where another finding leads, its remedy is said there.
        let remedy = largest.filter(|_| !led.contains(&general.rule)).map(|(specific, part)| {
            let change = general.change.trim_end_matches('.');
            format!("{change}. For {} of that time: {}", percent(part), specific.remedy)
        });
        let within = largest.map(|(specific, part)| cause_within(specific, part));
        let within = within.or_else(|| rules::places_of(profile, &general.rule));
        let general = &mut findings[at];
        general.change = remedy.unwrap_or_else(|| std::mem::take(&mut general.change));
        if let Some(within) = within.filter(|within| !general.summary.contains(within.as_str())) {
            general.summary = format!("{}; {within}", general.summary);
            general.within_time = Some(within);
        }
    }
}

/// The part of a general finding's time that a specific one explains, in words.
fn cause_within(specific: &Finding, part: f64) -> String {
    let part = percent(part);
    match &specific.saving.observed {
        Some(Observed { doing, .. }) => format!("{part} of that time passes while {doing}"),
        None => format!("{part} of that time goes with “{}”", specific.title),
    }
}
