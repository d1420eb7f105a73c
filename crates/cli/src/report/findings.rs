//! Findings as text: brief in a report, in full in `apex advise`.

use crate::text::figures::{mark, unmarked_time};
use crate::text::kernels::configuration;
use crate::text::savings::{amount, faster, is_minor, saving};
use crate::text::{Ink, PARAGRAPH, Style, wrap};
use crate::units;
use apex_advice::{
    Advice, Confidence, Direction, Evidence, Finding, KernelFinding, Level, Quoted, Severity, Unit, Unjudged,
    WhatIf,
};
use apex_ordered::Gather;
use apex_profile::{PhaseKind, Profile};
use apex_view::text::verdict::{together, what_is_missing};
use std::collections::BTreeSet;
use std::io::{self, Write};

/// Kernels listed for each finding; the rest is counted.
const KERNELS: usize = 5;

/// The first findings: what, and what to do.
pub fn brief(
    out: &mut dyn Write,
    profile: &Profile,
    advice: &Advice,
    limit: usize,
    style: Style,
    width: usize,
) -> io::Result<()> {
    heading(out, profile, advice, style, width)?;
    let shown = advice.findings.iter().filter(|finding| !is_minor(finding)).count().min(limit);
    let worth_a_word = advice.findings.iter().enumerate().filter(|(_, finding)| !is_minor(finding));
    for (i, finding) in worth_a_word.take(limit) {
        title(out, (i, finding), profile, style, width)?;
        paragraph(out, &finding.summary, width)?;
        quote(out, finding, width)?;
        paragraph(out, &format!("→ {}", finding.change), width)?;
        if let Some(place) = finding.kernels.first().and_then(|kernel| place(profile, kernel)) {
            paragraph(out, &format!("Launched {place}"), width)?;
        }
    }
    let rest = advice.findings.len().saturating_sub(shown);
    let more = match rest {
        _ if advice.findings.is_empty() => return unjudged(out, advice, width),
        0 => "`apex advise` shows the evidence, `apex explain RULE` a rule.".to_owned(),
        rest => format!(
            "{rest} more: `apex advise` shows all findings with their evidence, `apex explain RULE` a rule."
        ),
    };
    writeln!(out)?;
    for line in wrap(&more, width, "  ") {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// Where nothing was found: how many rules could not judge.
fn unjudged(out: &mut dyn Write, advice: &Advice, width: usize) -> io::Result<()> {
    if advice.unjudged.is_empty() {
        return Ok(());
    }
    let rules = units::counted(advice.unjudged.len() as u64, "rule", "rules");
    for line in wrap(&format!("Not judged: {rules}. `apex advise` says why."), width, "  ") {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// All findings, with evidence.
pub fn full(
    out: &mut dyn Write,
    profile: &Profile,
    advice: &Advice,
    style: Style,
    width: usize,
) -> io::Result<()> {
    heading(out, profile, advice, style, width)?;
    for (i, finding) in advice.findings.iter().enumerate() {
        title(out, (i, finding), profile, style, width)?;
        paragraph(out, &finding.summary, width)?;
        quote(out, finding, width)?;
        paragraph(out, &format!("→ {}", finding.change), width)?;
        if !finding.evidence.is_empty() {
            paragraph(out, &format!("Evidence: {}", evidence(&finding.evidence)), width)?;
        }
        for kernel in finding.kernels.iter().take(KERNELS) {
            paragraph(out, &about_kernel(profile, finding, kernel), width)?;
        }
        if finding.kernels.len() > KERNELS {
            let rest = (finding.kernels.len() - KERNELS) as u64;
            paragraph(out, &format!("and {}", units::counted(rest, "more kernel", "more kernels")), width)?;
        }
        let Confidence { level, reason } = &finding.confidence;
        paragraph(out, &format!("Confidence: {}: {reason}", level_name(*level)), width)?;
        paragraph(out, &format!("Verify: {}", finding.verify), width)?;
    }
    epilogue(out, profile, advice, style, width)
}

/// Writes the number of findings, and their joint saving.
fn heading(
    out: &mut dyn Write,
    profile: &Profile,
    advice: &Advice,
    style: Style,
    width: usize,
) -> io::Result<()> {
    let judged = advice.rules.saturating_sub(advice.unjudged.len());
    let line = match (advice.findings.len(), &advice.verdict.saving_of_job) {
        (0, _) if profile.kernels.is_empty() => {
            format!("Advice: no {}, so no launch was judged", what_is_missing(profile))
        }
        (0, _) => format!("Advice: no findings from {judged} rules"),
        (count, Some(saving)) if saving.value > 0.0 => {
            let worth = format!("{} of {}", amount(saving), of_what(profile));
            format!(
                "Advice: {}, worth {worth}{}",
                units::counted(count as u64, "finding", "findings"),
                faster(saving)
            )
        }
        (count, _) => format!("Advice: {}", units::counted(count as u64, "finding", "findings")),
    };
    wrap(&line, width, "  ").iter().try_for_each(|line| writeln!(out, "{}", style.paint(Ink::Bold, line)))
}

fn title(
    out: &mut dyn Write,
    (index, finding): (usize, &Finding),
    profile: &Profile,
    style: Style,
    width: usize,
) -> io::Result<()> {
    let ink = match finding.severity {
        Severity::High => Ink::Bad,
        Severity::Medium => Ink::Warning,
        Severity::Low | Severity::Info => Ink::Dim,
    };
    let rule = format!("{} {}", finding.rule, finding.slug);
    let head = format!("{:2}  {}", index + 1, finding.title);
    writeln!(out, "\n{}", style.paint(Ink::Bold, crate::text::shorten(&head, width)))?;
    let inside = finding.within.as_ref().map_or(String::new(), |parent| format!(", part of {parent}"));
    let saves = saving(&finding.saving, of_what(profile), together(profile).as_deref());
    let line = format!("{saves} · {} · {rule}{inside}", severity_name(finding.severity));
    for line in wrap(&line, width.min(PARAGRAPH).saturating_sub(4).max(20), "  ") {
        writeln!(out, "    {}", style.paint(ink, line))?;
    }
    Ok(())
}

/// Writes the statement at the finding's place, unless the summary has it.
fn quote(out: &mut dyn Write, finding: &Finding, width: usize) -> io::Result<()> {
    let Some(Quoted { file, line, text, .. }) = &finding.place else { return Ok(()) };
    let name = file.rsplit('/').next().unwrap_or(file);
    match finding.summary.contains(text.as_str()) {
        true => Ok(()),
        false => paragraph(out, &format!("{name}:{line}: `{text}`"), width),
    }
}

/// Returns the unit that shares refer to.
fn of_what(profile: &Profile) -> &'static str {
    let mut phases = profile.activities.iter().flat_map(|activity| &activity.phases).peekable();
    let steady = phases.peek().is_some() && phases.all(|phase| phase.kind == PhaseKind::Steady);
    if steady { "each step" } else { "the job" }
}

/// `from train.py:48 train_step`, where a call stack of the kernel was read.
fn place(profile: &Profile, kernel: &KernelFinding) -> Option<String> {
    let stacks = &profile.kernels.get(kernel.kernel)?.stacks;
    profile.main_place(stacks).map(|place| format!("from {place}"))
}

fn about_kernel(profile: &Profile, finding: &Finding, kernel: &KernelFinding) -> String {
    let KernelFinding { name, launches, evidence: values, change, .. } = kernel;
    let launch = profile.kernels.get(kernel.kernel).map(|kernel| configuration(kernel.launch));
    let launch = launch.unwrap_or_default();
    let evidence = if values.is_empty() { String::new() } else { format!(": {}", evidence(values)) };
    let expected = kernel.what_if.as_ref().map_or_else(String::new, what_if);
    let launches = units::counted(*launches, "launch", "launches");
    let place = place(profile, kernel).map_or_else(String::new, |place| format!(" {place}"));
    // What is to be changed is said once.
    let change = if *change == finding.change { String::new() } else { format!("; {change}") };
    format!("· {name}{launch}, {launches}{place}{evidence}{change}{expected}")
}

/// Describes the models' prediction for the changed configuration.
fn what_if(expected: &WhatIf) -> String {
    let WhatIf { duration_ns: time, saves, .. } = expected;
    let time = unmarked_time(time);
    let (least, most) = saves.bounds();
    let (low, high) = (units::share(least.abs()), units::share(most.abs()));
    let saved = |share: f64| if share < 0.0 { "costs" } else { "saves" };
    let mark = mark(saves.provenance());
    // One word does for both ends of most intervals.
    let (of, ends) = (units::share(saves.value.abs()), (saved(least), saved(most)));
    let interval = match ends {
        (one, other) if one == other && saves.value >= 0.0 => format!("{low} to {high}"),
        (one, other) if one == other => format!("{high} to {low}"),
        _ => format!("{low} more to {high} less"),
    };
    format!(
        ". Predicted from the measured time: {time}, which {} {of} ({interval}){mark}",
        saved(saves.value)
    )
}

fn evidence(values: &[Evidence]) -> String {
    values.iter().map(one_value).collect::<Vec<_>>().join("; ")
}

fn one_value(evidence: &Evidence) -> String {
    let goal = match evidence.direction {
        Some(Direction::IncreaseTowards(goal)) => {
            format!(", should rise to {}", value(goal, evidence.unit))
        }
        Some(Direction::DecreaseTowards(goal)) => {
            format!(", should fall to {}", value(goal, evidence.unit))
        }
        None => evidence.compared.as_ref().map_or_else(String::new, |compared| format!(", {compared}")),
    };
    let figure = &evidence.figure;
    let samples = match figure.samples {
        0 => String::new(),
        samples => format!(" ×{}", units::count(samples)),
    };
    let shown = |number| value(number, evidence.unit);
    let interval = figure
        .interval()
        .map_or_else(String::new, |(low, high)| format!(" ({} to {})", shown(low), shown(high)));
    let mark = mark(figure.provenance());
    format!("{} {}{interval}{mark}{samples}{goal}", evidence.name, shown(figure.value))
}

fn value(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Count if value.fract() == 0.0 && (0.0..1e15).contains(&value) => units::count(value as u64),
        Unit::Count => format!("{value:.2}"),
        Unit::Share => units::percent(value),
        Unit::Nanoseconds => units::time(value),
        Unit::Bytes => units::bytes(value.max(0.0) as u64),
    }
}

/// Writes the rules that could not judge, those that were suppressed, and excellent results.
fn epilogue(
    out: &mut dyn Write,
    profile: &Profile,
    advice: &Advice,
    style: Style,
    width: usize,
) -> io::Result<()> {
    let mut notes = Vec::new();
    let mut unjudged: Vec<(&str, Vec<String>)> = Vec::new();
    // Of a session without launches, all have one reason.
    let each: &[Unjudged] = if profile.host.is_some() { &[] } else { &advice.unjudged };
    if profile.host.is_some() {
        let rules = units::counted(advice.unjudged.len() as u64, "rule", "rules");
        notes.push(format!(
            "Not judged: {rules}, because launches were not recorded: `apex attach` does not see them; start the \
             program under `apex run`"
        ));
    }
    for Unjudged { rule, slug, because } in each {
        let rule = format!("{rule} {slug}");
        match unjudged.iter_mut().find(|(reason, _)| reason == because) {
            Some((_, rules)) => rules.push(rule),
            None => unjudged.push((because, vec![rule])),
        }
    }
    notes.extend(
        unjudged.iter().map(|(because, rules)| format!("Not judged ({because}): {}", rules.join(", "))),
    );
    for (rule, kernels) in &advice.suppressed {
        notes.push(format!(
            "{rule} is suppressed; it would concern {}",
            units::counted(*kernels, "kernel", "kernels")
        ));
    }
    if !advice.excellent.is_empty() {
        let faulty: BTreeSet<&str> = advice
            .findings
            .iter()
            .flat_map(|finding| &finding.kernels)
            .map(|kernel| kernel.name.as_str())
            .gathered();
        let kernels = advice.excellent.iter().filter_map(|&kernel| profile.kernels.get(kernel));
        let names: BTreeSet<&str> = kernels.map(|kernel| kernel.short_name.as_str()).gathered();
        // A kernel has findings in another configuration: its name alone would contradict them.
        let names: Vec<&str> = names.difference(&faulty).copied().collect();
        if !names.is_empty() {
            notes.push(format!("Nothing left to gain in the launch configuration of: {}", names.join(", ")));
        }
    }
    if !notes.is_empty() {
        writeln!(out)?;
    }
    for note in notes {
        for line in wrap(&note, width, "  ") {
            writeln!(out, "{}", style.paint(Ink::Dim, line))?;
        }
    }
    let marks = "ᵐ measured (×n: on n samples) · ᶜ computed exactly · ᵖ predicted";
    wrap(marks, width, "").iter().try_for_each(|line| writeln!(out, "{}", style.paint(Ink::Dim, line)))
}

fn paragraph(out: &mut dyn Write, text: &str, width: usize) -> io::Result<()> {
    for line in wrap(text, width.min(PARAGRAPH).saturating_sub(4).max(20), "  ") {
        writeln!(out, "    {line}")?;
    }
    Ok(())
}

fn level_name(level: Level) -> &'static str {
    match level {
        Level::Low => "low",
        Level::Medium => "medium",
        Level::High => "high",
    }
}

fn severity_name(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "info",
        Severity::Low => "low",
        Severity::Medium => "medium",
        Severity::High => "high",
    }
}
