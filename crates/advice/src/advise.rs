//! Running the rules, and making sure that what they promise adds up.
//!
//! Savings are capped in this order, so that the sum over findings that are not within another one
//! never exceeds what there is:
//!
//! 1. *Kernels.* Where kernels overlap, their GPU time counts for the time that passes on the clock
//!    meanwhile. Where several rules find fault with the same kernel, the largest saving counts in
//!    full and each next one for its share of what the larger ones leave.
//! 2. *Host.* A change on the host's side can save no more than the time that the device is idle,
//!    and of that only what passes while the host does what the change removes ([`Rule::idle`]):
//!    allocating less saves the idle time during allocations. Where idle time is not modelled, the
//!    whole span is the limit. Findings share these times, the largest first. A finding whose rule
//!    has a parent that fired lies *within* the parent's ([`Finding::within`]): it is capped by
//!    that one, and does not add to it.
//!
//! A change to kernels that makes launches needless saves the idle time around these too; one on
//! the host's side that makes kernels or copies needless saves their time. Both are added to what
//! the two rules above leave.
//!
//! Findings are ordered by what they save. Unknown savings come after known ones, and known savings
//! of less than 2% of the job after these. Where the CPU device counted, what it counted comes
//! first and the host's side last: its times say nothing about a GPU.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use apex_predict::Models;
use serde::{Deserialize, Serialize};

use crate::finding::{Finding, Saving, Scope, Severity};
use crate::prediction;
use crate::rules::{self, Needs, Outcome, RULES, Rule};
use apex_profile::{Figure, IdleCause, Profile, SaturatingSum as _, total};

/// What the caller wants.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Identifiers or names of rules that are not to be reported.
    pub suppress: BTreeSet<String>,
    /// What is asked what changes of configurations would save; without models nothing is.
    pub models: Option<Arc<Models>>,
}

/// What the rules say of a profile.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// The job in one line.
    pub verdict: Verdict,
    /// Findings, by the time that they would save; those whose saving is not known come after, by
    /// severity and by the launches that they concern.
    pub findings: Vec<Finding>,
    /// Kernels in whose launch configuration nothing is left to gain: they ran, their geometry is
    /// known, and no rule about kernels found fault; none where the device is idle for a quarter of
    /// the time. Indices into [`Profile::kernels`].
    pub excellent: Vec<usize>,
    /// Names of the rules that looked and found nothing.
    pub clear: Vec<String>,
    /// Rules that could not judge, and why.
    pub unjudged: Vec<Unjudged>,
    /// Rules whose findings were suppressed: how many kernels each concerned (0 if it is not about
    /// kernels).
    pub suppressed: BTreeMap<String, u64>,
    /// Names in [`Options::suppress`] that no rule has.
    pub unknown_suppressions: Vec<String>,
    /// Rules that were run.
    pub rules: usize,
}

/// A rule that could not judge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unjudged {
    /// Its identifier.
    pub rule: String,
    /// Its name.
    pub slug: String,
    /// Why.
    pub because: String,
}

/// The job in one line.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// See [`apex_profile::Totals::gpu_busy`].
    pub gpu_busy: Option<Figure>,
    /// Kernels that ran.
    pub launches: u64,
    /// Of these, share with a finding above [`Severity::Info`] about the kernel.
    pub launches_with_finding: f64,
    /// Of these, share of kernels that are excellent.
    pub launches_excellent: f64,
    /// See [`apex_profile::Recorder::overhead_share`].
    pub overhead_share: Option<Figure>,
    /// Records lost, of any sort.
    pub lost_records: u64,
    /// Share of the job's time that all findings together would save; `None` where none is known.
    pub saving_of_job: Option<Figure>,
}

/// A finding that saves less of the job than this costs it next to nothing.
const NEGLIGIBLE: f64 = 0.001;
/// A finding that is known to save less of the job than this comes last.
const MINOR: f64 = 0.02;
/// A finding on the host's side that may save this share of the job says why the device is idle.
const CAUSE: f64 = 0.1;
/// No kernel is called excellent where the device is idle for this share of the time.
const IDLE: f64 = 0.25;

/// Runs the rules over a profile.
pub fn advise(profile: &Profile, options: &Options) -> Advice {
    let mut advice = Advice { rules: RULES.len(), ..Advice::default() };
    let suppressed: Vec<&str> =
        options.suppress.iter().filter_map(|name| Rule::named(name)).map(|rule| rule.id).collect();
    advice.unknown_suppressions =
        options.suppress.iter().filter(|name| Rule::named(name).is_none()).cloned().collect();
    for rule in RULES {
        let outcome = match rule.is_about_gpu_times() && profile.on_cpu_device() {
            true => Outcome::Unjudged(rules::CPU_TIMES.into()),
            false => (rule.judge)(profile),
        };
        match outcome {
            Outcome::Clear => advice.clear.push(rule.slug.into()),
            Outcome::Unjudged(because) => {
                advice.unjudged.push(Unjudged { rule: rule.id.into(), slug: rule.slug.into(), because });
            }
            Outcome::Found(draft) if suppressed.contains(&rule.id) => {
                advice.suppressed.insert(rule.id.to_owned(), draft.kernels.len() as u64);
            }
            Outcome::Found(draft) => advice.findings.push(rule.finding(draft)),
        }
    }
    if let Some(models) = &options.models {
        for found in advice.findings.iter_mut().flat_map(|finding| &mut finding.kernels) {
            found.what_if = prediction::what_if(profile, models, found);
        }
    }
    cap_kernels(profile, &mut advice.findings);
    hide_behind_launches(profile, &mut advice.findings);
    cap_host(profile, &mut advice.findings);
    drop_symptoms(&mut advice.findings);
    for finding in &mut advice.findings {
        if finding.saving.of_job.is_some_and(|share| share.value < NEGLIGIBLE) {
            finding.severity = Severity::Info;
        }
    }
    rank(profile, &mut advice.findings);
    advice.excellent = excellent(profile, &advice.findings);
    advice.verdict = verdict(profile, &advice);
    advice
}

/// Rule 1 of the module: compounds savings on the same kernel, and sums them up for each finding.
fn cap_kernels(profile: &Profile, findings: &mut [Finding]) {
    let mut by_kernel: BTreeMap<usize, Vec<(f64, usize, usize)>> = BTreeMap::new();
    for (f, finding) in findings.iter().enumerate().filter(|(_, finding)| finding.scope == Scope::Kernel) {
        for (k, kernel) in finding.kernels.iter().enumerate() {
            if let Some(local) = kernel.saving.of_kernel {
                by_kernel.entry(kernel.kernel).or_default().push((local.value, f, k));
            }
        }
    }
    for mut savings in by_kernel.into_values() {
        savings.sort_by(|a, b| b.0.total_cmp(&a.0));
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
    finding.saving = Saving { beyond: finding.saving.beyond, ..rules::job_saving(profile, time) };
    let on_the_clock = own * rules::on_the_clock(profile);
    finding.saving.of_kernel = (on_the_clock > 0.0).then(|| time.scaled(1.0 / on_the_clock).at_most(1.0));
}

/// Where the host cannot launch fast enough, a shorter kernel makes the device wait longer: of what
/// changes to kernels save, the share counts in which the device is busy, and nothing is sure.
fn hide_behind_launches(profile: &Profile, findings: &mut [Finding]) {
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
fn cap_host(profile: &Profile, findings: &mut [Finding]) {
    let fired: BTreeMap<String, usize> = findings
        .iter()
        .enumerate()
        .filter(|(_, f)| f.saving.time_ns.is_some())
        .map(|(at, f)| (f.rule.clone(), at))
        .collect();
    let all = Idle::of(profile);
    let mut left = all.clone();
    add_idle_time(profile, findings, &mut left);
    let mut order: Vec<usize> = (0..findings.len()).filter(|&f| findings[f].scope == Scope::Host).collect();
    let wanted = |f: usize| time_of(&findings[f]) + findings[f].saving.beyond.map_or(0.0, |busy| busy.value);
    order.sort_by(|&a, &b| {
        let depth = |f: usize| ancestors(&findings[f].rule, &fired).count();
        depth(a).cmp(&depth(b)).then(wanted(b).total_cmp(&wanted(a)))
    });
    for f in order {
        let (Some(rule), Some(time)) = (Rule::named(&findings[f].rule), findings[f].saving.time_ns) else {
            continue;
        };
        let parent =
            ancestors(rule.id, &fired).next().map(|(parent, at)| (parent, findings[at].saving.time_ns));
        let limit = parent.and_then(|(_, saving)| saving);
        let busy = findings[f].saving.beyond.take().unwrap_or_default();
        let value = match parent {
            Some(_) => time.value.min(all.during(rule.idle)),
            None => left.take(rule.idle, time.value),
        };
        let idle =
            rules::idle_during(profile, rule.idle).map_or(profile.totals.span_ns, |idle| idle.bounds().1);
        let ((least, most), (busy_least, busy_most)) = (time.bounds(), busy.bounds());
        let most =
            (most.min(idle) + busy_most).min(limit.map_or(profile.totals.span_ns, |limit| limit.bounds().1));
        let value = (value + busy.value).min(limit.map_or(most, |limit| limit.value)).min(most);
        let saved = Figure::predicted(value, (least.min(value) + busy_least, most));
        findings[f].saving = rules::job_saving(profile, saved);
        findings[f].within = parent.map(|(parent, _)| parent.to_owned());
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
fn drop_symptoms(findings: &mut Vec<Finding>) {
    let is_cause = |finding: &Finding| finding.saving.of_job.is_some_and(|share| share.bounds().1 >= CAUSE);
    if findings.iter().any(|finding| finding.scope == Scope::Host && is_cause(finding)) {
        findings.retain(|finding| finding.rule != rules::SYMPTOM);
    }
}

/// Idle time that is still to be had, nanoseconds.
#[derive(Clone)]
enum Idle {
    /// By what the host does meanwhile.
    Modelled(BTreeMap<IdleCause, f64>),
    /// Not known: this much at most.
    Unknown(f64),
}

impl Idle {
    fn of(profile: &Profile) -> Self {
        match profile.activities.iter().all(|activity| activity.idle_share.is_some()) {
            true => Self::Modelled(rules::idle_by_cause(profile)),
            false => Self::Unknown(profile.totals.span_ns),
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
                    idle.entry(*cause).and_modify(|time| *time -= *time / had * taken);
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

fn time_of(finding: &Finding) -> f64 {
    finding.saving.time_ns.map_or(0.0, |time| time.value)
}

/// Whether what a finding says was counted by the CPU device.
fn is_counted(finding: &Finding) -> bool {
    Rule::named(&finding.rule).is_some_and(|rule| rule.needs == Needs::Counts)
}

/// Whether the CPU device executed the kernels, and counted.
fn counts(profile: &Profile) -> bool {
    profile.kernels.iter().any(|kernel| kernel.counts.is_some())
}

fn rank(profile: &Profile, findings: &mut [Finding]) {
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

fn excellent(profile: &Profile, findings: &[Finding]) -> Vec<usize> {
    let accounts = profile.accounts();
    if !profile.on_cpu_device() && accounts.idle_ns().value >= IDLE * accounts.span_ns.max(1.0) {
        return Vec::new();
    }
    let faulty: BTreeSet<usize> =
        findings.iter().flat_map(|finding| finding.kernels.iter().map(|kernel| kernel.kernel)).collect();
    let fine = |(index, kernel): &(usize, &apex_profile::Kernel)| {
        let runs = kernel.geometry.is_some_and(|geometry| geometry.occupancy.blocks_per_sm > 0);
        kernel.launches.ran() > 0 && runs && !faulty.contains(index)
    };
    profile.kernels.iter().enumerate().filter(fine).map(|(index, _)| index).collect()
}

fn verdict(profile: &Profile, advice: &Advice) -> Verdict {
    let launches = profile.totals.kernels_run();
    let share = |kernels: &BTreeSet<usize>| {
        let found = kernels.iter().filter_map(|&k| profile.kernels.get(k));
        let count = found.map(|kernel| kernel.launches.ran()).saturating_sum();
        count as f64 / launches.max(1) as f64
    };
    let faulty = advice
        .findings
        .iter()
        .filter(|finding| finding.severity > Severity::Info)
        .flat_map(|finding| finding.kernels.iter().map(|kernel| kernel.kernel))
        .collect();
    let saving = Figure::sum(
        advice
            .findings
            .iter()
            .filter(|finding| finding.within.is_none())
            .filter_map(|finding| finding.saving.of_job),
    );
    Verdict {
        gpu_busy: profile.totals.gpu_busy,
        launches,
        launches_with_finding: share(&faulty),
        launches_excellent: share(&advice.excellent.iter().copied().collect()),
        overhead_share: profile.recorder.overhead_share,
        lost_records: profile.recorder.lost(),
        saving_of_job: saving.map(|saving| saving.at_most(1.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::rules::fixture::{
        SMS, activity, copies, counted, idle_during, kernel_of, profile_of, profile_with, timed,
    };
    use apex_profile::{Activity, Kernel, Sequence};
    use apex_trace::layout::MemoryKind;

    fn named<'a>(advice: &'a Advice, rule: &str) -> &'a Finding {
        advice
            .findings
            .iter()
            .find(|finding| finding.rule == rule)
            .unwrap_or_else(|| panic!("{rule} finds nothing"))
    }

    #[test]
    fn nothing_in_nothing() {
        let advice = advise(&Profile::default(), &Options::default());
        assert!(
            advice.findings.is_empty()
                && advice.excellent.is_empty()
                && advice.unknown_suppressions.is_empty()
        );
        assert_eq!(advice.verdict, Verdict::default());
    }

    #[test]
    fn a_good_configuration_is_excellent() {
        let profile = profile_of([timed(kernel_of(100_000, 256), 50_000.0), kernel_of(10, 100)]);
        let advice = advise(&profile, &Options::default());
        assert_eq!(advice.excellent, [0]);
        assert_eq!((advice.verdict.launches_with_finding, advice.verdict.launches_excellent), (0.5, 0.5));
    }

    #[test]
    fn savings_on_one_kernel_compound() {
        // 2112 blocks of 100 threads are a wave: the second one has one block. APEX-L01 saves 28 of
        // 128 lanes of what APEX-T04 leaves.
        let profile = profile_of([timed(kernel_of(2113, 100), 1e6)]);
        let advice = advise(&profile, &Options::default());
        let saving = |rule| named(&advice, rule).saving.clone();
        let tail = saving("APEX-T04").of_kernel.expect("timed").value;
        assert!((0.4..0.6).contains(&tail), "{tail}");
        let lanes = saving("APEX-L01").time_ns.expect("timed").value;
        assert!((lanes - (1.0 - tail) * 1e9 * 28.0 / 128.0).abs() < 1.0, "{lanes}");
        assert_eq!(advice.findings[0].rule, "APEX-T04", "the largest saving comes first");
    }

    /// A sequence of ten launches, a thousand times, with calls that take so long in all.
    fn sequence(launch_cpu_ns: f64) -> Sequence {
        Sequence { length: 10, repeats: 1000, launch_cpu_ns, ..Sequence::default() }
    }

    #[test]
    fn kernels_that_overlap_save_time_on_the_clock() {
        // 4 s of GPU time in 1 s: what halves the kernels' time halves the second.
        let mut profile = profile_of([timed(kernel_of(66, 256), 4e6)]);
        profile.activities =
            vec![Activity { idle_share: None, idle_by: BTreeMap::new(), ..activity(1e9, 0.0) }];
        profile.totals.span_ns = 1e9;
        let advice = advise(&profile, &Options::default());
        let saving = &named(&advice, "APEX-L02").saving;
        assert!((saving.of_job.expect("timed").value - 0.5).abs() < 1e-9);
        let of_job = saving.of_job.expect("timed").value;
        assert!((Saving::faster(of_job).expect("it says something") - 2.0).abs() < 1e-9);
        assert_eq!((Saving::faster(1.0), Saving::faster(0.995)), (None, None));
        assert!((saving.of_kernel.expect("timed").value - 0.5).abs() < 1e-9);
    }

    #[test]
    fn findings_on_the_host_save_the_idle_time_of_what_they_remove() {
        let mut profile = profile_with([idle_during(IdleCause::Transferring, 1e9, 0.2)]);
        profile.activities[0].idle_by.insert(IdleCause::Launching, 0.1e9);
        profile.sequences = vec![sequence(0.9e9)];
        profile.copies = vec![
            copies(MemoryKind::Device, MemoryKind::Pageable, true, 1_900, 1 << 20),
            copies(MemoryKind::Device, MemoryKind::Pinned, false, 1_500, 1 << 20),
        ];
        let advice = advise(&profile, &Options::default());
        let saves = |rule| time_of(named(&advice, rule));
        // Pinned memory is copied at 55 bytes in a nanosecond.
        let copied = 0.19e9 - 1_900.0 * f64::from(1 << 20) / 55.0;
        assert_eq!(saves("APEX-L25").round(), 0.1e9, "no more than the idle time during launch calls");
        // The idle share of the fixture is known to a tenth of its value.
        let (low, high) =
            named(&advice, "APEX-L25").saving.time_ns.and_then(|time| time.interval()).expect("one");
        assert!(low == 0.0 && (high - 0.11e9).abs() < 1.0, "{low} to {high}");
        assert_eq!(saves("APEX-L18").round(), copied.round(), "the larger of the two about copies");
        assert_eq!(saves("APEX-L19").round(), (0.2e9 - copied).round(), "what that one leaves");
    }

    #[test]
    fn without_a_model_the_span_is_the_limit() {
        let mut profile =
            profile_with([Activity { idle_share: None, idle_by: BTreeMap::new(), ..activity(1e9, 0.2) }]);
        profile.sequences = vec![sequence(0.9e9)];
        profile.copies = vec![copies(MemoryKind::Device, MemoryKind::Pageable, true, 5_000, 1 << 20)];
        let advice = advise(&profile, &Options::default());
        let saving = advice.verdict.saving_of_job.expect("a share");
        assert_eq!((saving.value, saving.interval()), (1.0, Some((0.0, 1.0))));
    }

    #[test]
    fn what_lies_within_another_finding_does_not_add() {
        let mut profile = Profile {
            kernels: vec![timed(kernel_of(10_000, 256), 2_000.0)],
            sequences: vec![sequence(0.9e9)],
            ..profile_with([activity(1e9, 0.4)])
        };
        profile.activities[0].idle_by.insert(IdleCause::Launching, 0.2e9);
        let advice = advise(&profile, &Options::default());
        let (parent, child) = (named(&advice, "APEX-T24"), named(&advice, "APEX-L25"));
        assert_eq!((parent.within.as_deref(), child.within.as_deref()), (None, Some("APEX-T24")));
        assert_eq!((time_of(parent).round(), time_of(child).round()), (0.6e9, 0.2e9));
        assert_eq!(advice.verdict.saving_of_job, parent.saving.of_job);
    }

    #[test]
    fn untimed_findings_come_last_and_say_why() {
        let profile = profile_of([timed(kernel_of(1000, 100), 1e6), kernel_of(SMS / 2, 256)]);
        let advice = advise(&profile, &Options::default());
        assert!(advice.findings[0].saving.time_ns.is_some());
        let untimed = named(&advice, "APEX-L02");
        assert!(untimed.saving.time_ns.is_none() && untimed.saving.unknown_because.is_some());
    }

    #[test]
    fn what_costs_next_to_nothing_is_information() {
        let profile = profile_of([timed(kernel_of(1000, 100), 10.0)]);
        assert_eq!(named(&advise(&profile, &Options::default()), "APEX-L01").severity, Severity::Info);
    }

    #[test]
    fn what_saves_less_than_two_percent_comes_last() {
        // 10 s in all: 28 of 128 lanes of 0.92 s are 2%. What low occupancy costs is not known.
        for (each_ns, first) in [(0.92e6, "APEX-L01"), (0.91e6, "APEX-L05")] {
            let mut kernel = timed(kernel_of(100_000, 100), each_ns);
            kernel.attributes.as_mut().expect("known").static_shared_bytes = 60_000;
            let advice = advise(&profile_of([kernel]), &Options::default());
            assert_eq!(advice.findings[0].rule, first, "{each_ns}");
        }
    }

    #[test]
    fn counts_come_first_on_the_cpu_device() {
        let strided = counted("global", "load", 100, 800, 700, "uncoalesced");
        let mut profile = profile_of([timed(strided, 1e6)]);
        profile.activities = vec![idle_during(IdleCause::Transferring, 10e9, 0.5)];
        profile.copies = vec![copies(MemoryKind::Device, MemoryKind::Pageable, true, 30_000, 1 << 20)];
        let advice = advise(&profile, &Options::default());
        assert_eq!(advice.findings[0].rule, "APEX-C31");
        assert_eq!(advice.findings.last().map(|finding| finding.scope), Some(Scope::Host));
    }

    #[test]
    fn suppression_counts_and_names_what_it_does_not_know() {
        let profile =
            profile_of([kernel_of(1000, 100), Kernel { symbol: "other".into(), ..kernel_of(1000, 33) }]);
        let suppress = ["block-not-warp-multiple", "APEX-X99"].map(String::from).into();
        let advice = advise(&profile, &Options { suppress, models: None });
        assert!(advice.findings.iter().all(|finding| finding.rule != "APEX-L01"));
        assert_eq!(advice.suppressed, BTreeMap::from([("APEX-L01".to_owned(), 2)]));
        assert_eq!(advice.unknown_suppressions, ["APEX-X99"]);
    }

    #[test]
    fn advice_survives_json() {
        let profile = profile_of([timed(kernel_of(33, 100), 1e6)]);
        let advice = advise(&profile, &Options::default());
        let text = serde_json::to_string(&(&profile, &advice)).expect("serialises");
        let back: (Profile, Advice) = serde_json::from_str(&text).expect("reads back");
        assert_eq!(back, (profile, advice));
    }
}
