//! Caps savings, so that findings never promise more together than the time that there is.
//!
//! In this order:
//!
//! 1. *Kernels.* Where kernels overlap, their GPU time counts for the time that passes on the clock
//!    meanwhile. Where several rules find fault with the same kernel, the largest saving counts in
//!    full and each next one for its share of what the larger ones leave.
//! 2. *Host.* A change on the host's side can save no more than the time that the device is idle,
//!    and of that only what passes while the host does what the change removes ([`Rule::idle`]):
//!    allocating less saves the idle time during allocations. Where too much is unknown to tell by
//!    what, all known idle time and the unknown time are the limit. Findings share these times, the
//!    largest first, but a finding that leads others before these ([`super::leading`]). A finding
//!    whose rule has a parent that fired lies *within* the parent's ([`Finding::within`]): it is
//!    capped by that one, and does not add to it.
//!
//! No saving exceeds the accounts that it is taken from, and the upper end of its interval does not
//! exceed those of these accounts: a finding about the host can save at most the idle time, plus
//! the time of the kernels and copies that it names ([`highest`]). A host that runs ahead of the
//! device removes idle time, but not the device's work.
//!
//! A change to kernels that makes launches needless saves the idle time around these too; one on
//! the host's side that makes kernels or copies needless saves their time. Both are added to what
//! the two rules above leave.

use apex_ordered::{Gather, Order};
use std::collections::BTreeMap;

use crate::finding::{Finding, Saving, Scope};
use crate::rules::{self, Rule};
use apex_profile::{Accounts, Figure, IdleCause, Profile, total};

/// A finding on the host's side that may save this share of the job says why the device is idle.
const CAUSE: f64 = 0.1;
/// A known cause explains a finding if it accounts for this share of what the finding would save …
const HALF: f64 = 0.5;
/// … and a part of it, which is the cause's own, if for this share.
const PART: f64 = 0.1;

/// A finding about kernels is no finding where a known cause explains it: where at least half of
/// what it would save lies in kernels of that cause. Its own remedy misses the cause.
pub(super) fn drop_explained(findings: &mut Vec<Finding>) {
    let is_explained = |finding: &Finding| {
        let saves = |is_such: &dyn Fn(usize) -> bool| {
            let kernels = finding.kernels.iter().filter(|kernel| is_such(kernel.kernel));
            total(kernels.filter_map(|kernel| kernel.saving.time_ns).map(|time| time.value))
        };
        let all = saves(&|_| true);
        finding.scope == Scope::Kernel
            && findings.iter().filter(|other| other.explains.contains(&finding.slug)).any(|other| {
                let is_of_cause = |row| other.kernels.iter().any(|kernel| kernel.kernel == row);
                all > 0.0 && saves(&is_of_cause) >= HALF * all
            })
    };
    let explained: Vec<bool> = findings.iter().map(is_explained).collect();
    let mut explained = explained.into_iter();
    findings.retain(|_| !explained.next().unwrap_or(false));
}

/// Findings on the host's side that a known cause explains, by rule, with the place of the cause's
/// finding: it saves at least half of what they would.
fn explained(findings: &[Finding]) -> BTreeMap<String, usize> {
    let is_cause = |cause: &Finding, of: &Finding| {
        cause.scope == Scope::Host
            && cause.explains.contains(&of.slug)
            && time_of(cause) >= HALF * time_of(of)
            && time_of(cause) > 0.0
    };
    let of_host = findings.iter().filter(|finding| finding.scope == Scope::Host);
    let causes = of_host.filter_map(|finding| {
        let at = findings.iter().position(|other| is_cause(other, finding))?;
        Some((finding.rule.clone(), at))
    });
    causes.gathered()
}

/// Idle time whose function was sampled goes before idle time that a rule explains from calls
/// alone, unless the latter is longer by this factor.
const OBSERVED: f64 = 2.0;

/// Rule 1 of the module: compounds savings on the same kernel, and sums them up for each finding.
pub(super) fn cap_kernels(profile: &Profile, findings: &mut [Finding]) {
    let mut by_kernel: BTreeMap<usize, Vec<(f64, usize, usize)>> = BTreeMap::new();
    for (f, finding) in findings.iter().enumerate().filter(|(_, finding)| finding.scope == Scope::Kernel) {
        for (k, kernel) in finding.kernels.iter().enumerate() {
            if let Some(local) = kernel.saving.of_kernel {
                by_kernel.entry(kernel.kernel).or_default().push((local.value, f, k));
            }
        }
    }
    for mut savings in by_kernel.into_values() {
        // Work that need not be done goes before faster forms of it, and what the program did not
        // mean to do in FP64 before fewer kernels of it.
        let is_needless = |f: usize| [rules::GROWING_PASSES, rules::PROMOTED].contains(&&*findings[f].rule);
        savings.order_by(|a, b| is_needless(b.1).cmp(&is_needless(a.1)).then(b.0.total_cmp(&a.0)));
        let mut left = 1.0;
        for (local, f, k) in savings {
            let saving = &mut findings[f].kernels[k].saving;
            saving.time_ns = saving.time_ns.map(|time| time.scaled(left));
            saving.of_job = saving.of_job.map(|share| share.scaled(left));
            left *= (1.0 - local).clamp(0.0, 1.0);
        }
    }
    for finding in findings.iter_mut().filter(|finding| finding.scope == Scope::Kernel) {
        sum_kernels(profile, finding);
    }
}

/// The saving of a finding about kernels: the sum over them.
fn sum_kernels(profile: &Profile, finding: &mut Finding) {
    let Some(time) = Figure::sum(finding.kernels.iter().filter_map(|kernel| kernel.saving.time_ns)) else {
        finding.saving.unknown_because =
            finding.kernels.iter().find_map(|kernel| kernel.saving.unknown_because.clone());
        return;
    };
    let own: f64 =
        finding.kernels.iter().filter_map(|found| profile.kernels.get(found.kernel)?.gpu_total_ns()).sum();
    // What samples make of a kernel that takes all of the time may be more than that.
    let limit = limit_of_kernels(profile, &finding.rule);
    let time = limit.map_or(time, |(most, highest)| time.capped(time.value.min(most), highest));
    finding.saving = Saving { beyond: finding.saving.beyond, ..rules::job_saving(profile, time) };
    let on_the_clock = own * rules::on_the_clock(profile);
    finding.saving.of_kernel = (on_the_clock > 0.0).then(|| time.scaled(1.0 / on_the_clock).at_most(1.0));
}

/// Limits the savings of kernels if the host cannot launch fast enough: a shorter kernel then makes
/// the device wait longer. Only the share of the time in which the device is busy counts, and no
/// saving is sure.
pub(super) fn hide_behind_launches(profile: &Profile, findings: &mut [Finding]) {
    if findings.iter().all(|finding| finding.rule != rules::LAUNCH_BOUND) {
        return;
    }
    let accounts = profile.accounts();
    let busy = 1.0 - (accounts.idle_ns().value / accounts.span_ns.max(1.0)).min(1.0);
    for finding in findings.iter_mut().filter(|finding| finding.scope == Scope::Kernel) {
        let Some(time) = finding.saving.time_ns else { continue };
        let saved = Figure::predicted(time.value * busy, (0.0, time.bounds().1));
        let Saving { of_kernel, beyond, .. } = finding.saving;
        finding.saving = Saving { of_kernel, beyond, ..rules::job_saving(profile, saved) };
    }
}

/// Rule 2 of the module. A finding comes after those that it may lie within.
pub(super) fn cap_host(profile: &Profile, findings: &mut [Finding]) {
    let fired: BTreeMap<String, usize> = findings
        .iter()
        .enumerate()
        .filter(|(_, f)| f.saving.time_ns.is_some())
        .map(|(at, f)| (f.rule.clone(), at))
        .gathered();
    let all = Idle::of(profile);
    let mut left = all.clone();
    add_idle_time(profile, findings, &mut left);
    let explained = explained(findings);
    for f in host_order(findings, &fired, &explained) {
        let (Some(rule), Some(time)) = (Rule::named(&findings[f].rule), findings[f].saving.time_ns) else {
            continue;
        };
        let parent = container(findings, f, &fired, &explained);
        let limit = parent.as_ref().and_then(|(_, at)| findings[*at].saving.time_ns);
        let busy = findings[f].saving.beyond.take().unwrap_or_default();
        let value = match parent {
            Some(_) => time.value.min(all.during(rule.idle)),
            None => left.take(rule.idle, time.value),
        };
        let ((least, most), (busy_least, busy_most)) = (time.bounds(), busy.bounds());
        let most = (most.min(most_idle(profile, rule.idle)) + busy_most)
            .min(highest(profile, rule, busy))
            .min(limit.map_or(profile.totals.span_ns, |limit| limit.bounds().1));
        let value = (value + busy.value).min(limit.map_or(most, |limit| limit.value)).min(most);
        let saved = Figure::predicted(value, (least.min(value) + busy_least, most));
        let observed = findings[f].saving.observed.take();
        findings[f].saving = Saving { observed, ..rules::job_saving(profile, saved) };
        findings[f].within = parent.map(|(parent, _)| parent);
    }
}

/// The saving of a finding with the device's work that it claims, nanoseconds.
fn all_of(finding: &Finding) -> f64 {
    time_of(finding) + finding.saving.beyond.map_or(0.0, |busy| busy.value)
}

/// The order in which findings on the host's side take from the idle time: those that others lie
/// within before these, then by what they would save.
fn host_order(
    findings: &[Finding],
    fired: &BTreeMap<String, usize>,
    explained: &BTreeMap<String, usize>,
) -> Vec<usize> {
    let of_itself = |finding: &Finding| match finding.saving.observed {
        Some(_) => all_of(finding) * OBSERVED,
        None => all_of(finding),
    };
    // A known cause that was sampled takes its time before the place that it explains.
    let explains = |finding: &Finding, place: &Finding| {
        let both = finding.saving.observed.is_some() && place.saving.observed.is_some();
        both && finding.explains.contains(&place.slug) && all_of(finding) >= PART * all_of(place)
    };
    let led = |finding: &Finding| {
        let goes_before = |other: &Finding| finding.leads.contains(&other.rule) || explains(finding, other);
        let led = findings.iter().filter(|other| goes_before(other));
        led.map(|other| of_itself(other).next_up()).fold(0.0, f64::max)
    };
    let wanted = |f: usize| of_itself(&findings[f]).max(led(&findings[f]));
    let depth = |f: usize| {
        let rule = &findings[f].rule;
        let own = ancestors_and_self(rule, fired).any(|rule| explained.contains_key(rule));
        let container = findings[f].part_of.as_ref().map_or(0, |rule| 1 + ancestors(rule, fired).count());
        (ancestors(rule, fired).count() + usize::from(own)).max(container)
    };
    let mut order: Vec<usize> = (0..findings.len()).filter(|&f| findings[f].scope == Scope::Host).collect();
    order.order_by(|&a, &b| depth(a).cmp(&depth(b)).then(wanted(b).total_cmp(&wanted(a))));
    order
}

/// The finding that one lies within, by rule and place: that of its rule's parent, of the known
/// cause that explains it, or of the rule that it is a part of.
fn container(
    findings: &[Finding],
    of: usize,
    fired: &BTreeMap<String, usize>,
    explained: &BTreeMap<String, usize>,
) -> Option<(String, usize)> {
    let finding = &findings[of];
    let parent = ancestors(&finding.rule, fired).next().map(|(parent, at)| (parent.to_owned(), at));
    let cause = explained.get(&finding.rule).map(|&at| (findings[at].rule.clone(), at));
    parent.or(cause).or_else(|| {
        let whole = finding.part_of.as_ref().filter(|_| !explained.values().any(|&at| at == of))?;
        Some((whole.clone(), *fired.get(whole)?))
    })
}

/// The maximum that a change on the host's side can save, nanoseconds: all idle time, plus the
/// device's work that the finding claims.
fn highest(profile: &Profile, rule: &Rule, busy: Figure) -> f64 {
    let claims_work = busy.value > 0.0 || rules::OF_COPIES.contains(&rule.id);
    most_idle(profile, &IdleCause::ALL) + if claims_work { busy.bounds().1 } else { 0.0 }
}

/// The upper end of the idle time during these activities of the host, nanoseconds.
fn most_idle(profile: &Profile, causes: &[IdleCause]) -> f64 {
    rules::idle_during(profile, causes).map_or_else(|| idle_at_most(profile), |idle| idle.bounds().1)
}

/// The most that devices can be idle where not all of it was modelled, nanoseconds: what is known to
/// be idle, and what is unknown; the span without accounts.
fn idle_at_most(profile: &Profile) -> f64 {
    let accounts = profile.accounts();
    match accounts.span_ns > 0.0 {
        true => (accounts.idle_ns().value + accounts.unknown.value).min(profile.totals.span_ns),
        false => profile.totals.span_ns,
    }
}

/// The most that a rule about kernels can save, nanoseconds, as a value and as the upper end of an
/// interval: the time that kernels take on the clock or may take, or the span without accounts. Ranks
/// that wait for one another save the time in which they wait, at most all of the collectives.
/// `None` where nothing is known.
fn limit_of_kernels(profile: &Profile, rule: &str) -> Option<(f64, f64)> {
    let Accounts { span_ns, kernels, collectives, waiting, unknown, .. } = profile.accounts();
    if rule == rules::SLOW_RANK && waiting.value > 0.0 {
        return Some((waiting.value, waiting.value + collectives.value));
    }
    let span = Some(profile.totals.span_ns).filter(|span| *span > 0.0);
    let busy = Figure::sum([kernels, collectives, waiting, unknown]).filter(|_| span_ns > 0.0);
    match (busy, span) {
        (Some(busy), Some(span)) => Some((busy.value.min(span), busy.bounds().1.min(span))),
        (Some(busy), None) => Some((busy.value, busy.bounds().1)),
        (None, span) => span.map(|span| (span, span)),
    }
}

/// The idle time that changes to kernels save: what goes with their launches.
fn add_idle_time(profile: &Profile, findings: &mut [Finding], left: &mut Idle) {
    for finding in findings.iter_mut().filter(|finding| finding.scope == Scope::Kernel) {
        let Some(idle) = finding.saving.beyond.take() else { continue };
        let Some(time) = finding.saving.time_ns else { continue };
        let idle = idle.capped(left.take(rules::AROUND_LAUNCHES, idle.value), idle.bounds().1);
        let all = Figure::sum([time, idle]).unwrap_or(time).at_most(profile.totals.span_ns);
        finding.saving = Saving { of_kernel: finding.saving.of_kernel, ..rules::job_saving(profile, all) };
    }
}

/// A symptom is no finding where a cause was found.
pub(super) fn drop_symptoms(findings: &mut Vec<Finding>) {
    let is_cause = |finding: &Finding| finding.saving.of_job.is_some_and(|share| share.bounds().1 >= CAUSE);
    if findings.iter().any(|finding| finding.scope == Scope::Host && is_cause(finding)) {
        findings.retain(|finding| finding.rule != rules::SYMPTOM);
    }
}

/// Idle time that is still to be had, nanoseconds.
#[derive(Clone)]
enum Idle {
    /// The idle time by the host's activity.
    Modelled(BTreeMap<IdleCause, f64>),
    /// Not known: this much at most.
    Unknown(f64),
}

impl Idle {
    fn of(profile: &Profile) -> Self {
        match profile.activities.iter().all(|activity| activity.idle_share.is_some()) {
            true => Self::Modelled(rules::idle_by_cause(profile)),
            false => Self::Unknown(idle_at_most(profile)),
        }
    }

    fn during(&self, causes: &[IdleCause]) -> f64 {
        match self {
            Self::Modelled(idle) => total(causes.iter().filter_map(|cause| idle.get(cause).copied())),
            Self::Unknown(most) => *most,
        }
    }

    /// Takes up to `wanted` from these causes, from each in proportion to what it has. Returns what
    /// was had.
    fn take(&mut self, causes: &[IdleCause], wanted: f64) -> f64 {
        let had = self.during(causes);
        let taken = wanted.min(had);
        match self {
            Self::Modelled(idle) if had > 0.0 => {
                for cause in causes {
                    // Rounding leaves no less than nothing.
                    idle.entry(*cause).and_modify(|time| *time = (*time - *time / had * taken).max(0.0));
                }
            }
            Self::Modelled(_) => {}
            Self::Unknown(most) => *most -= taken,
        }
        taken
    }
}

/// The ancestors of a rule that fired, the nearest first, with the places of their findings.
fn ancestors<'f>(
    rule: &str,
    fired: &'f BTreeMap<String, usize>,
) -> impl Iterator<Item = (&'static str, usize)> + 'f {
    let parent = |rule: &str| Rule::named(rule)?.parent;
    std::iter::successors(parent(rule), move |rule| parent(rule))
        .filter_map(|rule| Some((rule, *fired.get(rule)?)))
}

/// The ancestors of a rule that fired, and the rule.
fn ancestors_and_self<'f>(
    rule: &'f str,
    fired: &'f BTreeMap<String, usize>,
) -> impl Iterator<Item = &'f str> + 'f {
    ancestors(rule, fired).map(|(rule, _)| rule).chain([rule])
}

pub(super) fn time_of(finding: &Finding) -> f64 {
    finding.saving.time_ns.map_or(0.0, |time| time.value)
}

#[cfg(test)]
mod tests {
    use super::Idle;
    use apex_profile::IdleCause;

    #[test]
    fn taking_all_idle_time_leaves_no_less_than_none() {
        let causes = [IdleCause::Launching, IdleCause::Allocating];
        // 0.1 ns are less than their part of the sum, as it is rounded.
        let mut idle = Idle::Modelled([(causes[0], 0.1), (causes[1], 0.7)].into());
        idle.take(&causes, 1.0);
        assert!(idle.take(&causes, 1.0) >= 0.0);
        assert!(causes.iter().all(|cause| idle.during(&[*cause]) >= 0.0));
    }
}
