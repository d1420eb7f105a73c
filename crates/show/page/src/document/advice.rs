//! Findings of the advice rules.

use super::figure::{Figure, NAME, text};
use super::{SENTENCE, Source};
use apex_advice::{Confidence, Direction, Evidence, Finding, KernelFinding, Level, Saving, Severity, Unit};
use apex_profile::Profile;
use serde::Serialize;

/// The advice.
#[derive(Debug, Serialize)]
pub struct Judgement {
    findings: Vec<Card>,
    /// Names of the rules that looked and found nothing.
    clear: Vec<String>,
    unjudged: Vec<Unjudged>,
    /// Rules that were run.
    rules: usize,
}

/// A finding.
#[derive(Debug, Serialize)]
struct Card {
    rule: String,
    slug: String,
    title: String,
    severity: Severity,
    within: Option<String>,
    summary: String,
    change: String,
    verify: String,
    confidence: Level,
    reason: String,
    saving: Saved,
    evidence: Vec<Value>,
    kernels: Vec<Concerned>,
    kernels_left_out: usize,
}

/// Saving of a change.
#[derive(Debug, Serialize)]
struct Saved {
    of_job: Option<Figure>,
    time_ns: Option<Figure>,
    /// Speedup of the job.
    faster: Option<f64>,
    unknown_because: Option<String>,
}

#[derive(Debug, Serialize)]
struct Value {
    name: String,
    figure: Figure,
    unit: Unit,
    /// Where it should go.
    goal: Option<f64>,
    /// Direction of the goal: `increase` or `decrease`.
    direction: Option<&'static str>,
    /// Value that it is compared with, where that is no goal.
    compared: Option<String>,
}

/// A kernel that has the fault.
#[derive(Debug, Serialize)]
struct Concerned {
    /// Index into the profile's kernels.
    kernel: usize,
    /// Its identifier, as in the table of kernels.
    id: Option<String>,
    name: String,
    configuration: String,
    launches: u64,
    change: String,
    place: Option<String>,
    evidence: Vec<Value>,
}

#[derive(Debug, Serialize)]
struct Unjudged {
    rule: String,
    slug: String,
    because: String,
}

impl Judgement {
    pub fn of(source: &Source<'_>, kernels: usize) -> Self {
        let advice = source.advice;
        let unjudged = advice.unjudged.iter().map(|unjudged| Unjudged {
            rule: unjudged.rule.clone(),
            slug: unjudged.slug.clone(),
            because: text(&unjudged.because, SENTENCE),
        });
        Self {
            findings: advice
                .findings
                .iter()
                .map(|finding| Card::of(source.selected, finding, kernels))
                .collect(),
            clear: advice.clear.clone(),
            unjudged: unjudged.collect(),
            rules: advice.rules,
        }
    }
}

impl Card {
    fn of(profile: &Profile, finding: &Finding, most: usize) -> Self {
        let Confidence { level, reason } = &finding.confidence;
        let kernels = finding.kernels.iter().take(most).map(|kernel| Concerned::of(profile, kernel));
        Self {
            rule: finding.rule.clone(),
            slug: finding.slug.clone(),
            title: text(&finding.title, SENTENCE),
            severity: finding.severity,
            within: finding.within.clone(),
            summary: text(&finding.summary, SENTENCE),
            change: text(&finding.change, SENTENCE),
            verify: text(&finding.verify, SENTENCE),
            confidence: *level,
            reason: text(reason, SENTENCE),
            saving: Saved::of(&finding.saving),
            evidence: values(&finding.evidence),
            kernels: kernels.collect(),
            kernels_left_out: finding.kernels.len().saturating_sub(most),
        }
    }
}

impl Saved {
    fn of(saving: &Saving) -> Self {
        Self {
            of_job: saving.of_job.map(Figure::of),
            time_ns: saving.time_ns.map(Figure::of),
            faster: saving.of_job.and_then(|share| Saving::faster(share.value)),
            unknown_because: saving.unknown_because.clone(),
        }
    }
}

impl Concerned {
    fn of(profile: &Profile, found: &KernelFinding) -> Self {
        let known = profile.kernels.get(found.kernel);
        let stacks = known.map(|kernel| kernel.stacks.as_slice());
        Self {
            kernel: found.kernel,
            id: known.map(apex_profile::Kernel::id),
            name: text(&found.name, NAME),
            configuration: found.configuration.clone(),
            launches: found.launches,
            change: text(&found.change, SENTENCE),
            place: stacks.and_then(|stacks| profile.main_place(stacks)).map(|place| text(&place, NAME)),
            evidence: values(&found.evidence),
        }
    }
}

fn values(evidence: &[Evidence]) -> Vec<Value> {
    let value = |evidence: &Evidence| {
        let (goal, direction) = match evidence.direction {
            Some(Direction::IncreaseTowards(goal)) => (Some(goal), Some("increase")),
            Some(Direction::DecreaseTowards(goal)) => (Some(goal), Some("decrease")),
            None => (None, None),
        };
        Value {
            name: text(&evidence.name, NAME),
            figure: Figure::of(evidence.figure),
            unit: evidence.unit,
            goal,
            direction,
            compared: evidence.compared.as_ref().map(|compared| text(compared, SENTENCE)),
        }
    };
    evidence.iter().map(value).collect()
}
