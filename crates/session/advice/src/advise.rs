//! Runs the rules, makes sure that the savings that they promise add up ([`capping`],
//! [`holding`]), and orders their findings ([`ranking`]): specific causes before the general
//! findings that contain them ([`leading`]).

mod capping;
mod covering;
mod holding;
mod leading;
mod ranking;
mod statements;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use apex_predict::Models;
use apex_predict_session::programs::Programs;
use serde::Serialize;

use crate::finding::{Finding, Scope, Severity, Unit};
use crate::prediction;
use crate::rules::{self, Outcome, RULES, Rule};
use apex_profile::{Figure, Profile, SaturatingSum as _};
use capping::{cap_host, cap_kernels, drop_explained, drop_symptoms, hide_behind_launches};
use covering::{drop_covered, quote_places};
use holding::hold;
use leading::{name_causes, note_leaders};
use ranking::rank;
use statements::add_remedies;

/// Options of the caller.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Identifiers or names of rules that are not to be reported.
    pub suppress: BTreeSet<String>,
    /// The models that predict the savings of changed configurations; without models nothing is
    /// predicted.
    pub models: Option<Arc<Models>>,
    /// The kernels that advice is wanted about: indices into [`Profile::kernels`]; `None` for all
    /// of them and the host's side. Shares stay those of the job, and are capped as if all were
    /// told: what the host's findings take is taken.
    pub kernels: Option<BTreeSet<usize>>,
}

/// The result of the rules for a profile.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unjudged {
    /// Its identifier.
    pub rule: String,
    /// Its name.
    pub slug: String,
    /// The reason.
    pub because: String,
}

/// The job in one line.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Verdict {
    /// See [`apex_profile::Totals::gpu_busy`].
    pub gpu_busy: Option<Figure>,
    /// Kernels that ran.
    pub launches: u64,
    /// The share of these launches whose kernel has a finding above [`Severity::Info`].
    pub launches_with_finding: f64,
    /// The share of these launches whose kernel is excellent.
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
/// No kernel is called excellent where the device is idle for this share of the time.
const IDLE: f64 = 0.25;

/// Runs the rules over a profile.
pub fn advise(profile: &Profile, options: &Options) -> Advice {
    let mut advice = run_rules(profile, options);
    if let Some(models) = &options.models {
        let programs = Programs::of(profile);
        for found in advice.findings.iter_mut().flat_map(|finding| &mut finding.kernels) {
            found.what_if = prediction::what_if(profile, &programs, models, found);
        }
    }
    rules::drop_waits(&mut advice.findings);
    drop_explained(&mut advice.findings);
    note_leaders(profile, &mut advice.findings);
    name_causes(profile, &mut advice.findings);
    cap_kernels(profile, &mut advice.findings);
    drop_covered(profile, &mut advice.findings);
    hide_behind_launches(profile, &mut advice.findings);
    cap_host(profile, &mut advice.findings);
    drop_symptoms(&mut advice.findings);
    hold(profile, &mut advice.findings);
    if profile.on_cpu_device() {
        forget_times(&mut advice.findings, rules::CPU_SAVING);
    } else if profile.device_is_unknown() {
        forget_times(&mut advice.findings, rules::UNKNOWN_DEVICE);
    }
    advice.findings.retain(|finding| options.tells(finding.scope));
    for finding in &mut advice.findings {
        if finding.saving.of_job.is_some_and(|share| share.value < NEGLIGIBLE) {
            finding.severity = Severity::Info;
        }
    }
    rank(profile, &mut advice.findings);
    quote_places(profile, &mut advice.findings);
    add_remedies(profile, &mut advice.findings);
    advice.excellent = excellent(profile, &advice.findings);
    if let Some(kernels) = &options.kernels {
        advice.excellent.retain(|kernel| kernels.contains(kernel));
    }
    advice.verdict = verdict(profile, &advice);
    advice
}

/// Removes savings and times from findings if the CPU device ran the kernels, or may have: its
/// times, and those of the host's calls, are no evidence about a GPU.
fn forget_times(findings: &mut [Finding], because: &str) {
    for finding in findings {
        finding.evidence.retain(|evidence| evidence.unit != Unit::Nanoseconds);
        let kernels = finding.kernels.iter_mut().map(|kernel| &mut kernel.saving);
        for saving in kernels.chain([&mut finding.saving]) {
            (saving.of_job, saving.time_ns) = (None, None);
            saving.unknown_because.get_or_insert_with(|| because.into());
        }
    }
}

impl Options {
    /// Whether findings about this are wanted.
    fn tells(&self, scope: Scope) -> bool {
        self.kernels.is_none() || scope == Scope::Kernel
    }
}

/// Runs the rules. Findings on the host's side are included even if they are not wanted: they share
/// the idle time with the others.
fn run_rules(profile: &Profile, options: &Options) -> Advice {
    let selected = options.kernels.as_ref().map(|kernels| profile.of_kernels(kernels));
    let mut advice =
        Advice { rules: RULES.iter().filter(|rule| options.tells(rule.scope)).count(), ..Advice::default() };
    let suppressed: Vec<&str> =
        options.suppress.iter().filter_map(|name| Rule::named(name)).map(|rule| rule.id).collect();
    advice.unknown_suppressions =
        options.suppress.iter().filter(|name| Rule::named(name).is_none()).cloned().collect();
    let uses = rules::known::frameworks(profile);
    for rule in RULES {
        let of_kernels = selected.as_ref().filter(|_| rule.scope == Scope::Kernel);
        match rule.says(of_kernels.unwrap_or(profile)) {
            Outcome::Found(draft) if !suppressed.contains(&rule.id) => {
                advice.findings.push(rule.finding(draft, &uses));
            }
            Outcome::Known(draft, cause) if !suppressed.contains(&rule.id) => {
                advice.findings.push(rule.finding_of(draft, *cause, &uses));
            }
            _ if !options.tells(rule.scope) => {}
            Outcome::Found(draft) | Outcome::Known(draft, _) => {
                advice.suppressed.insert(rule.id.to_owned(), draft.kernels.len() as u64);
            }
            Outcome::Clear => advice.clear.push(rule.slug.into()),
            Outcome::Unjudged(because) => {
                advice.unjudged.push(Unjudged { rule: rule.id.into(), slug: rule.slug.into(), because });
            }
        }
    }
    if let Some(kernels) = &options.kernels {
        for finding in advice.findings.iter_mut().filter(|finding| finding.scope == Scope::Kernel) {
            finding.kernels.retain(|found| kernels.contains(&found.kernel));
        }
        advice.findings.retain(|finding| finding.scope == Scope::Host || !finding.kernels.is_empty());
    }
    advice
}

fn excellent(profile: &Profile, findings: &[Finding]) -> Vec<usize> {
    let accounts = profile.accounts();
    if !profile.on_cpu_device() && accounts.idle_ns().value >= IDLE * accounts.span_ns.max(1.0) {
        return Vec::new();
    }
    // A line that takes the time is no fault of its kernels.
    let faults = findings.iter().filter(|finding| finding.rule != rules::COSTLY_LINE);
    let faulty: BTreeSet<usize> =
        faults.flat_map(|finding| finding.kernels.iter().map(|kernel| kernel.kernel)).collect();
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
