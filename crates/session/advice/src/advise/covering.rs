//! The line that takes the time (APEX-T130), where the other findings do not explain it; and the
//! statement at the place that each finding names first.
//!
//! A finding about what kernels do explains all of their time; one that sets their launch
//! configuration against the device explains what it saves, because a kernel of few blocks may
//! still do needless work. A place of which at least [`HALF`] is explained is no finding of its
//! own.

use crate::finding::{Finding, Quoted, Scope};
use crate::rules::costly_line::{Work, work_by_place};
use crate::rules::{self, Rule};
use apex_profile::{Frame, Profile, Site, total};

const HALF: f64 = 0.5;

/// Removes the finding about a line that other findings explain, unless it is of a known cause that
/// claims a saving.
pub(super) fn drop_covered(profile: &Profile, findings: &mut Vec<Finding>) {
    let is_covered = |finding: &Finding| {
        let of_line = finding.kernels.iter().filter_map(|kernel| Some((kernel.kernel, share_of(kernel)?)));
        let (mut all, mut explained) = (0.0, 0.0);
        for (kernel, time) in of_line {
            all += time;
            explained += time * explained_of(profile, findings, kernel);
        }
        // Kernels of graphs that were not timed by themselves have no time of their own.
        all > 0.0 && explained >= HALF * all
    };
    let is_line = |finding: &Finding| finding.rule == rules::COSTLY_LINE;
    let has_claim = |finding: &Finding| finding.cause.is_some() && finding.saving.time_ns.is_some();
    let is_needless = |finding: &Finding| is_line(finding) && !has_claim(finding) && is_covered(finding);
    if findings.iter().any(is_needless) {
        findings.retain(|finding| !is_line(finding));
    }
}

fn share_of(kernel: &crate::finding::KernelFinding) -> Option<f64> {
    Some(kernel.evidence.first()?.figure.value)
}

/// The share of a kernel's time that the findings about it explain, at most 1.
fn explained_of(profile: &Profile, findings: &[Finding], kernel: usize) -> f64 {
    let own = profile.kernels[kernel].gpu_total_ns().unwrap_or(0.0) * rules::on_the_clock(profile);
    let of = |finding: &Finding| {
        let found = finding.kernels.iter().find(|found| found.kernel == kernel)?;
        let saved = found.saving.time_ns.map_or(0.0, |time| time.value);
        let says_why = finding.cause.is_some()
            || Rule::named(&finding.rule).is_some_and(|rule| !rules::OF_CONFIGURATION.contains(&rule.id));
        Some(if says_why { 1.0 } else { saved / own.max(1.0) })
    };
    let others = findings
        .iter()
        .filter(|finding| finding.scope == Scope::Kernel && finding.rule != rules::COSTLY_LINE);
    total(others.filter_map(of)).min(1.0)
}

/// Notes the statement at the place that each finding is about: the one that its kernels spend most
/// time for, or else the first that its text names.
pub(super) fn quote_places(profile: &Profile, findings: &mut [Finding]) {
    if profile.quotes.is_empty() {
        return;
    }
    let works = work_by_place(profile);
    for finding in findings.iter_mut() {
        let of_kernels = main_line(&works, finding).filter(|_| finding.scope == Scope::Kernel);
        let frame = of_kernels.or_else(|| named_line(profile, finding));
        finding.place = frame.and_then(|frame| {
            let text = profile.quote(frame)?.to_owned();
            Some(Quoted {
                file: frame.file.clone(),
                line: frame.line?,
                function: frame.function.clone(),
                text,
            })
        });
    }
}

/// The line that a finding's kernels spend most time for.
fn main_line<'p>(works: &[Work<'p>], finding: &Finding) -> Option<&'p Frame> {
    let time = |work: &Work<'_>| {
        let is_found = |index: usize| finding.kernels.iter().any(|found| found.kernel == index);
        total(work.kernels.iter().filter(|(index, _)| is_found(*index)).map(|(_, time)| *time))
    };
    let work = works.iter().max_by(|a, b| time(a).total_cmp(&time(b)))?;
    work.site.frame().filter(|_| time(work) > 0.0)
}

/// The line of the program that a finding's summary names first.
fn named_line<'p>(profile: &'p Profile, finding: &Finding) -> Option<&'p Frame> {
    let launching = profile.call_stacks.iter().filter_map(|stack| match stack.site() {
        Site::Line(frame) | Site::Through { python: frame, .. } => Some(frame),
        Site::Autograd | Site::Thread(_) => None,
    });
    let waiting = profile.host_stacks.iter().flat_map(|stack| &stack.frames).map(|host| &host.frame);
    let quoted = launching.chain(waiting).filter(|frame| profile.quote(frame).is_some());
    let place = |frame: &'p Frame| Some((finding.summary.find(&frame.to_string())?, frame));
    quoted.filter_map(place).min_by_key(|(at, _)| *at).map(|(_, frame)| frame)
}
