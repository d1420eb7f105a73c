//! Kernels whose operation has a better form.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::backward::Backward;
use super::super::{
    Fault, Needs, Outcome, Rule, UNTIMED, about_kernels, confidence, counted, kernel_finding, launch_bound,
    percent, share_of_launches,
};
use super::{Known, causes_for, has_function, names, outcome, share_from};
use crate::finding::{Evidence, Level, Scope, Severity, Unit};
use apex_knowledge::{Cause, Knowledge};
use apex_profile::{CallStack, Figure, Kernel, Profile, Sequence, total};

pub(in crate::rules) const RULE: Rule = Rule {
    id: "APEX-T95",
    slug: "known-operation",
    title: "A known slow operation",
    severity: Severity::Medium,
    scope: Scope::Kernel,
    needs: Needs::Times,
    parent: None,
    idle: &[],
    detects: "Kernels that a cause of the table of known causes names, alone, by their call stacks, or in a sequence that \
        repeats, with at least 2% of the GPU time together (or the cause's own threshold). The cause that saves most is the \
        finding.",
    source: "Each cause names its public documentation; docs/knowledge.md describes the table.",
    why: "The operation is a slow form of one that has a faster form. The cause says which.",
    change: "The cause has the remedy in the words of the program's framework.",
    saving: "A share of the GPU time of these kernels; the cause says which. Where its remedy makes launches needless and \
        the program is launch-bound, also that share of the idle time around these launches.",
    verify: "the GPU time of these kernels decreases",
    judge,
};

/// Kernels of a cause, and which share of their time it claims.
struct Claimed<'k> {
    cause: &'k Cause,
    remedy: &'k str,
    rows: Vec<(usize, f64)>,
}

fn judge(profile: &Profile) -> Outcome {
    let Some(all) = profile.totals.gpu_time_ns.map(|time| time.value).filter(|&time| time > 0.0) else {
        return Outcome::Unjudged(UNTIMED.to_owned());
    };
    let knowledge = Knowledge::current();
    let mut taken = BTreeSet::new();
    let mut found = Vec::new();
    for mut claimed in candidates(profile, &knowledge) {
        // A kernel belongs to the first cause that names it.
        claimed.rows.retain(|(row, _)| !taken.contains(row));
        let time = time_of(profile, &claimed.rows);
        if claimed.rows.is_empty() || time < claimed.cause.least * all {
            continue;
        }
        taken.extend(claimed.rows.iter().map(|(row, _)| *row));
        found.push(known(profile, claimed, time / all));
    }
    outcome(found)
}

fn time_of(profile: &Profile, rows: &[(usize, f64)]) -> f64 {
    total(rows.iter().filter_map(|&(row, share)| Some(share * profile.kernels.get(row)?.gpu_total_ns()?)))
}

fn candidates<'k>(profile: &Profile, knowledge: &'k Arc<Knowledge>) -> Vec<Claimed<'k>> {
    let is_about = |cause: &Cause| !cause.kernels.is_empty() && cause.variable.is_none();
    let about = causes_for(profile, knowledge).filter(|(cause, _)| is_about(cause));
    let backward = Backward::of(profile);
    about
        .filter(|(cause, _)| !launches_any(profile, |kernel| is_absent(cause, kernel)))
        .map(|(cause, remedy)| Claimed { cause, remedy, rows: rows(profile, cause, backward.as_ref()) })
        .collect()
}

fn launches_any(profile: &Profile, is_such: impl Fn(&Kernel) -> bool) -> bool {
    profile.kernels.iter().any(|kernel| kernel.launches.any() && is_such(kernel))
}

fn is_absent(cause: &Cause, kernel: &Kernel) -> bool {
    cause.absent.iter().any(|pattern| pattern.matches(&kernel.short_name) || pattern.matches(&kernel.name))
}

/// The timed kernels that a cause names, with the share of each one's launches; of a cause that is
/// about functions, with the kernels of their backward pass, which has no call stacks.
fn rows(profile: &Profile, cause: &Cause, backward: Option<&Backward<'_>>) -> Vec<(usize, f64)> {
    let mut rows = forward_rows(profile, cause);
    let Some(backward) = backward.filter(|_| !rows.is_empty() && !cause.functions.is_empty()) else {
        return rows;
    };
    let is_from = |stack: &CallStack| has_function(stack, |file, function| cause.is_from(file, function));
    for (row, time) in backward.of_stacks(is_from) {
        let kernel = &profile.kernels[row];
        let all = kernel.gpu_total_ns().filter(|_| cause.names_kernel(names(kernel)));
        let Some(share) = all.map(|all| time / all.max(time)) else { continue };
        match rows.iter_mut().find(|(known, _)| *known == row) {
            Some((_, sum)) => *sum = (*sum + share).min(1.0),
            None => rows.push((row, share)),
        }
    }
    rows
}

fn forward_rows(profile: &Profile, cause: &Cause) -> Vec<(usize, f64)> {
    let in_sequence: Option<BTreeSet<usize>> = (!cause.sequence.is_empty())
        .then(|| profile.sequences.iter().flat_map(|sequence| matched(profile, cause, sequence)).collect());
    let share = |row: usize, kernel: &Kernel| {
        let is_there = in_sequence.as_ref().is_none_or(|rows| rows.contains(&row));
        let is_named = is_there && kernel.gpu.is_some() && cause.names_kernel(names(kernel));
        is_named.then(|| share_from(profile, &kernel.stacks, cause)).flatten()
    };
    let all = profile.kernels.iter().enumerate();
    let shares = all.filter_map(|(row, kernel)| Some((row, share(row, kernel)?)));
    shares.filter(|(_, share)| *share > 0.0).collect()
}

/// Kernels of a sequence that stand where the cause's sequence occurs.
fn matched(profile: &Profile, cause: &Cause, sequence: &Sequence) -> Vec<usize> {
    let rows: Vec<usize> =
        sequence.kernels.iter().copied().filter(|&row| row < profile.kernels.len()).collect();
    let length = cause.sequence.len();
    // A sequence goes on at its beginning.
    let at = |place: usize| rows[place % rows.len()];
    let begins = |start: &usize| {
        rows.len() >= length
            && cause.is_sequence((0..length).map(|next| names(&profile.kernels[at(start + next)])))
    };
    (0..rows.len())
        .filter(begins)
        .flat_map(|start| (0..length).map(move |next| start + next))
        .map(at)
        .collect()
}

/// Idle time around the launches of a cause's kernels, of which the cause says that its remedy
/// makes them needless: it explains that the program is launch-bound.
fn idle_time(profile: &Profile, cause: &Cause, rows: &[(usize, f64)]) -> Option<Figure> {
    let lost = cause
        .explains
        .iter()
        .any(|rule| rule == launch_bound::RULE.slug)
        .then(|| launch_bound::lost(profile))?;
    let (kernels, saves) = (rows.iter().filter_map(|&(row, _)| profile.kernels.get(row)), cause.saves);
    let around = lost?.scaled(share_of_launches(profile, kernels));
    let (low, high) = around.bounds();
    Some(Figure::predicted(around.value * saves.likely, (low * saves.least, high * saves.most)))
}

/// The most that goes with the launches of a cause's kernels: their share of all idle time.
fn idle_beside(profile: &Profile, rows: &[(usize, f64)]) -> Option<Figure> {
    let kernels = rows.iter().filter_map(|&(row, _)| profile.kernels.get(row));
    let idle = profile.accounts().idle_ns().bounds().1 * share_of_launches(profile, kernels);
    (idle > 0.0).then(|| Figure::predicted(0.0, (0.0, idle)))
}

fn known<'k>(profile: &Profile, claimed: Claimed<'k>, share: f64) -> Known<'k> {
    let Claimed { cause, remedy, rows } = claimed;
    let saves = cause.saves;
    let finding = |&(row, part): &(usize, f64)| {
        let kernel = &profile.kernels[row];
        let launches = counted(kernel.launches.ran(), "launch", "launches");
        let fault = Fault {
            evidence: Vec::new(),
            change: format!("its {launches} become faster or fewer"),
            saves: Ok(Figure::predicted(saves.likely * part, (saves.least * part, saves.most * part))),
            threads: None,
        };
        kernel_finding(profile, row, fault)
    };
    let kernels: Vec<_> = rows.iter().map(finding).collect();
    let saves_ns = kernels.iter().filter_map(|kernel| kernel.saving.time_ns).map(|time| time.value);
    let saves_ns = total(saves_ns);
    let reason = "the kernels' time is measured; how much of it the other form takes depends on the sizes";
    let mut draft = about_kernels(profile, kernels, confidence(Level::Medium, reason), |who| {
        format!("{who}: {}", cause.meaning)
    });
    draft.summary = format!("{}; {} of GPU time", draft.summary.trim_end_matches('.'), percent(share));
    draft.evidence = vec![Evidence::new("share of GPU time", Figure::measured(share), Unit::Share)];
    draft.saving.beyond = idle_time(profile, cause, &rows).or_else(|| idle_beside(profile, &rows));
    // The remedy is the cause's.
    draft.change = None;
    Known { cause, remedy, draft, saves_ns: Some(saves_ns) }
}
