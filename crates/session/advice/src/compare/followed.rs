//! Checks whether the advice that was followed kept its promise.
//!
//! A finding is *gone* where the rule finds nothing, or next to nothing, in half of the runs after
//! the change. What was achieved is measured where the promise was made: on the kernels of the
//! finding, where these functions are still launched; else on the time of a step, or of the run. A
//! step's time is that of all changes together, so it is set against the promises of all findings
//! that are gone.

use apex_ordered::Order;
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::{Change, Comparison, KernelChange, NewFinding, Per, Side};
use crate::finding::{Finding, Scope};
use crate::rules;
use apex_profile::Figure;

/// A finding that saves a smaller share promises next to nothing.
const MINOR: f64 = 0.02;

/// The outcome of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// The rule does not find it any more.
    Gone,
    /// The rule still finds it.
    Still,
    /// The rule could not judge the runs after the change.
    Unjudged,
}

/// The time by which a promise is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// The GPU time of the finding's kernels.
    Kernels,
    /// The time of a step, or from the first to the last work of a run.
    Time,
}

/// A promise against what was achieved; both within their intervals of 90%.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kept {
    /// As much as promised.
    Kept,
    /// Less.
    Less,
    /// More.
    More,
}

/// A finding before the change, and what became of it. Times are nanoseconds of a step of one
/// device, or of the run ([`Comparison::per`]).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Followed {
    /// The rule's identifier.
    pub rule: String,
    /// The rule's name.
    pub slug: String,
    /// The fault.
    pub title: String,
    /// The outcome.
    pub state: State,
    /// The promised saving; `None` if it was unknown.
    pub promised_ns: Option<Figure>,
    /// The saving that is left, if the fault is still there.
    pub left_ns: Option<Figure>,
    /// The time that is measured, if the finding is gone.
    pub basis: Option<Basis>,
    /// The achieved saving; `None` if the time of all findings is one, see [`Together`].
    pub achieved_ns: Option<Figure>,
    /// The judgement of the promise; `None` if it is unknown.
    pub kept: Option<Kept>,
}

/// The findings that are gone, of which several are measured by the same time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Together {
    /// The number of findings.
    pub findings: u64,
    /// The sum of the promised savings.
    pub promised_ns: Figure,
    /// The decrease of a step's time, or of the run's.
    pub achieved_ns: Figure,
    /// The judgement of the promises.
    pub kept: Kept,
}

impl Kept {
    fn of(promised: Figure, achieved: Figure) -> Self {
        let ((low, high), (least, most)) = (promised.bounds(), achieved.bounds());
        if most < low {
            Self::Less
        } else if least > high {
            Self::More
        } else {
            Self::Kept
        }
    }
}

/// A rule's finding in the runs of a side.
#[derive(Default)]
struct Found<'a> {
    /// One of them.
    finding: Option<&'a Finding>,
    /// The number of runs that have the finding.
    runs: usize,
    /// Savings of a step, or of the run.
    savings: Vec<Figure>,
    /// Symbols of its kernels.
    symbols: BTreeSet<&'a str>,
}

impl Found<'_> {
    fn saving(&self) -> Option<Figure> {
        Some(Figure::sum(self.savings.iter().copied())?.scaled(1.0 / self.savings.len() as f64))
    }
}

/// Findings by rule that are in at least half of the runs, and that save more than next to nothing.
fn found<'a>(side: &Side<'a>) -> BTreeMap<&'a str, Found<'a>> {
    let mut found: BTreeMap<&str, Found<'_>> = BTreeMap::new();
    for (run, by) in side.runs.iter().zip(&side.by) {
        // Shares of the CPU device's time say nothing.
        let timed = !run.job.on_cpu_device();
        let minor =
            |finding: &&Finding| timed && finding.saving.of_job.is_some_and(|share| share.value < MINOR);
        for finding in run.advice.findings.iter().filter(|finding| !minor(finding)) {
            let of = found.entry(&finding.rule).or_default();
            of.finding = of.finding.or(Some(finding));
            of.runs += 1;
            of.savings.extend(finding.saving.time_ns.map(|time| time.scaled(1.0 / by)));
            let kernels = finding.kernels.iter().filter_map(|found| run.job.kernels.get(found.kernel));
            of.symbols.extend(kernels.map(|kernel| kernel.symbol.as_str()));
        }
    }
    found.retain(|_, of| 2 * of.runs >= side.runs.len());
    found
}

/// Findings of the second side that the first one has not.
pub(super) fn new_findings(before: &Side<'_>, after: &Side<'_>) -> Vec<NewFinding> {
    let known = found(before);
    let new = found(after).into_iter().filter(|(rule, _)| !known.contains_key(rule));
    new.filter_map(|(_, found)| {
        let Finding { rule, slug, title, .. } = found.finding?;
        Some(NewFinding { rule: rule.clone(), slug: slug.clone(), title: title.clone() })
    })
    .collect()
}

/// Determines the outcome of the first side's findings, those that promised most first, and the
/// common outcome of those that are gone.
pub(super) fn followed(
    before: &Side<'_>,
    after: &Side<'_>,
    compared: &Comparison,
) -> (Vec<Followed>, Option<Together>) {
    let (known, left) = (found(before), found(after));
    // On the CPU device times mean nothing.
    let timed = before.runs.iter().chain(after.runs).all(|run| !run.job.on_cpu_device());
    let on_the_clock = before.runs.first().map_or(1.0, |run| rules::on_the_clock(run.job));
    let mut followed: Vec<Followed> = Vec::new();
    let mut promised_together = Vec::new();
    for (rule, of) in &known {
        let Some(finding) = of.finding else { continue };
        let unjudged =
            after.runs.iter().all(|run| run.advice.unjudged.iter().any(|other| other.rule == *rule));
        let state = match left.get(rule) {
            Some(_) => State::Still,
            None if unjudged => State::Unjudged,
            None => State::Gone,
        };
        let promised_ns = of.saving().filter(|_| timed);
        let gone = state == State::Gone && timed;
        let on_kernels = (finding.scope == Scope::Kernel).then(|| saved_on_kernels(of, compared)).flatten();
        // Where kernels overlap, their GPU time is more than passes on the clock.
        let achieved_ns = on_kernels.filter(|_| gone).map(|saved| saved.scaled(on_the_clock));
        if gone && finding.within.is_none() {
            promised_together.extend(promised_ns.map(|promised| (finding.rule.as_str(), promised)));
        }
        followed.push(Followed {
            rule: finding.rule.clone(),
            slug: finding.slug.clone(),
            title: finding.title.clone(),
            state,
            promised_ns,
            left_ns: left.get(rule).and_then(Found::saving).filter(|_| timed),
            basis: gone.then_some(if achieved_ns.is_some() { Basis::Kernels } else { Basis::Time }),
            achieved_ns,
            kept: promised_ns.zip(achieved_ns).map(|(promised, achieved)| Kept::of(promised, achieved)),
        });
    }
    followed.order_by(|a, b| {
        let promised = |followed: &Followed| followed.promised_ns.map_or(0.0, |time| time.value);
        promised(b).total_cmp(&promised(a))
    });
    let together = together(&promised_together, compared);
    match (&together, &promised_together[..]) {
        // One alone is measured by all of the time.
        (Some(one), [(rule, _)]) => {
            let of_time = |followed: &&mut Followed| followed.basis == Some(Basis::Time);
            for followed in followed.iter_mut().filter(of_time).filter(|followed| followed.rule == *rule) {
                (followed.achieved_ns, followed.kept) = (Some(one.achieved_ns), Some(one.kept));
            }
            (followed, None)
        }
        _ => (followed, together),
    }
}

/// The promises of all that is gone, against the time that is saved.
fn together(promised: &[(&str, Figure)], compared: &Comparison) -> Option<Together> {
    let time = match compared.per {
        Per::Step => compared.step_ns.as_ref()?,
        Per::Run => &compared.span_ns,
    };
    let sum = Figure::sum(promised.iter().map(|(_, promised)| *promised))?.at_most(time.before?.value);
    let achieved_ns = saved(time)?;
    let kept = Kept::of(sum, achieved_ns);
    Some(Together { findings: promised.len() as u64, promised_ns: sum, achieved_ns, kept })
}

/// The GPU time that the functions of a finding take less; `None` unless all of them are still
/// launched: what took the place of the others is not known.
fn saved_on_kernels(found: &Found<'_>, compared: &Comparison) -> Option<Figure> {
    let of = |symbol: &&str| compared.functions.iter().find(|function| function.symbol == **symbol);
    let functions: Option<Vec<&KernelChange>> = found.symbols.iter().map(of).collect();
    let saved = functions?.into_iter().map(|function| saved(&function.total_ns)).collect::<Option<Vec<_>>>();
    Figure::sum(saved?)
}

/// Before less after.
fn saved(change: &Change) -> Option<Figure> {
    Figure::sum([change.before?, change.after?.scaled(-1.0)])
}
