//! `apex explain`: the meaning of a rule, from the same table as `docs/advice.md`, or of a known
//! cause.

use crate::output::{self, Color};
use crate::text::{Align, Ink, PARAGRAPH, Style, Table, wrap};
use crate::{exit, similar};
use apex_advice::rules::{RULES, Rule, VERIFY};
use apex_conventions::documents;
use apex_knowledge::{Cause, Framework, Knowledge};
use clap::builder::FalseyValueParser;
use serde::Serialize;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Explains advice rules and known causes: what they detect, why that costs time, what to change.
#[derive(clap::Args, Debug)]
#[command(after_long_help = "Examples:
  apex explain                      all rules, one per line
  apex explain APEX-T24             a rule of a report, by its identifier
  apex explain launch-bound L19     by name, or without APEX-
  apex explain pytorch-cat-in-loop  a known cause, by the identifier in JSON
  apex explain --json | jq '.rules[].title'
  apex explain --knowledge ours.toml our-cause

Exit status: 0, or 1 if there is no such rule or cause.")]
pub struct Args {
    /// Identifiers or names of rules, identifiers of known causes; without any, all rules are
    /// listed
    #[arg(value_name = "RULE")]
    rules: Vec<String>,
    /// Files of known causes, beside those in ~/.config/apex/knowledge. May be repeated
    #[arg(long, value_name = "FILE")]
    knowledge: Vec<PathBuf>,
    #[arg(long, help = format!("Print JSON (schema {})", documents::EXPLAIN), value_parser = FalseyValueParser::new())]
    json: bool,
}

/// The document of `--json`.
#[derive(Serialize)]
struct Document<'k> {
    rules: Vec<RuleDocument>,
    causes: Vec<CauseDocument<'k>>,
    /// Names that no rule and no cause has.
    unknown: Vec<&'k str>,
}

#[derive(Serialize)]
struct RuleDocument {
    rule: &'static str,
    slug: &'static str,
    title: &'static str,
    why: &'static str,
    detects: &'static str,
    source: &'static str,
    change: &'static str,
    saving: &'static str,
    /// Circumstances in which a finding can be wrong, and how to check it.
    limits: &'static str,
    /// The rule whose finding contains this one's saving.
    within: Option<&'static str>,
    verify: String,
}

#[derive(Serialize)]
struct CauseDocument<'k> {
    id: &'k str,
    title: &'k str,
    why: &'k str,
    source: &'k str,
    changes: Vec<ChangeDocument<'k>>,
    verify: String,
}

/// The remedy; in every framework where none is named.
#[derive(Serialize)]
struct ChangeDocument<'k> {
    framework: Option<&'static str>,
    change: &'k str,
}

impl<'k> Document<'k> {
    fn of(known: &[Explained<'k>], unknown: Vec<&'k str>) -> Self {
        let rule = |one: &Explained<'k>| match one {
            Explained::Rule(rule) => Some(RuleDocument::of(rule)),
            Explained::Cause(_) => None,
        };
        let cause = |one: &Explained<'k>| match one {
            Explained::Cause(cause) => Some(CauseDocument::of(cause)),
            Explained::Rule(_) => None,
        };
        let (rules, causes) = (known.iter().filter_map(rule), known.iter().filter_map(cause));
        Self { rules: rules.collect(), causes: causes.collect(), unknown }
    }
}

impl RuleDocument {
    fn of(rule: &'static Rule) -> Self {
        let Rule { id, slug, title, parent, detects, source, why, change, saving, .. } = *rule;
        let verify = format!("{VERIFY}: {}", rule.verify);
        let limits = rule.needs.limits();
        Self { rule: id, slug, title, why, detects, source, change, saving, limits, within: parent, verify }
    }
}

impl<'k> CauseDocument<'k> {
    fn of(cause: &'k Cause) -> Self {
        let change = |(framework, change): (Option<Framework>, &'k str)| ChangeDocument {
            framework: framework.map(Framework::key),
            change,
        };
        Self {
            id: &cause.id,
            title: &cause.title,
            why: &cause.meaning,
            source: &cause.source,
            changes: cause.remedies.texts().map(change).collect(),
            verify: format!("{VERIFY}: {}", cause.check),
        }
    }
}

/// Runs `apex explain`.
pub fn execute(args: &Args, color: Color) -> anyhow::Result<ExitCode> {
    let style = Style { color: color.on_stdout() };
    let width = output::width();
    crate::knowledge::install(&args.knowledge)?;
    let knowledge = Knowledge::current();
    let (known, unknown) = named(&args.rules, &knowledge);
    for name in &unknown {
        let rules = RULES.iter().flat_map(|rule| [rule.slug, rule.id]);
        let causes = knowledge.causes().iter().map(|cause| cause.id.as_str());
        let meant = similar::proposal(name, rules.chain(causes));
        output::remark(format!("there is no rule or cause `{name}`{meant}; `apex explain` lists all rules"));
    }
    let is_any_unknown = !unknown.is_empty();
    let written = if args.json {
        let all = || RULES.iter().map(Explained::Rule).collect::<Vec<_>>();
        let known = if args.rules.is_empty() { all() } else { known };
        output::json(documents::EXPLAIN, &Document::of(&known, unknown))?
    } else if args.rules.is_empty() {
        output::page(|out| list(out, style, width))?
    } else {
        output::page(|out| known.iter().try_for_each(|one| one.explain(out, style, width)))?
    };
    Ok(if is_any_unknown { ExitCode::from(exit::NO) } else { written })
}

/// The rules and causes of these names, and the names that are none.
fn named<'k>(names: &'k [String], knowledge: &'k Knowledge) -> (Vec<Explained<'k>>, Vec<&'k str>) {
    let (mut known, mut unknown) = (Vec::new(), Vec::new());
    for name in names {
        let cause = || knowledge.causes().iter().find(|cause| cause.id == *name).map(Explained::Cause);
        match Rule::named(name).map(Explained::Rule).or_else(cause) {
            Some(explained) => known.push(explained),
            None => unknown.push(name.as_str()),
        }
    }
    (known, unknown)
}

/// The subject of an explanation.
enum Explained<'k> {
    Rule(&'static Rule),
    Cause(&'k Cause),
}

impl Explained<'_> {
    fn explain(&self, out: &mut dyn Write, style: Style, width: usize) -> io::Result<()> {
        match self {
            Self::Rule(rule) => explain(out, rule, style, width),
            Self::Cause(cause) => explain_cause(out, cause, style, width),
        }
    }
}

fn list(out: &mut dyn Write, style: Style, width: usize) -> io::Result<()> {
    let mut table = Table::new(&[("rule", Align::Left), ("name", Align::Left), ("detects", Align::Flexible)]);
    for rule in RULES {
        table.row(vec![rule.id.to_owned(), rule.slug.to_owned(), rule.title.to_owned()]);
    }
    for (at, line) in table.lines(width).into_iter().enumerate() {
        writeln!(out, "{}", if at == 0 { style.paint(Ink::Dim, line) } else { line })?;
    }
    Ok(())
}

fn explain(out: &mut dyn Write, rule: &Rule, style: Style, width: usize) -> io::Result<()> {
    let head = format!("{} {}: {}", rule.id, rule.slug, rule.title);
    let within = rule.parent.map(|parent| format!("A finding of {parent} contains its saving."));
    let verify = format!("{VERIFY}: {}", rule.verify);
    let parts = [
        ("Why", rule.why),
        ("Detects", rule.detects),
        ("Source", rule.source),
        ("Change", rule.change),
        ("Saving", rule.saving),
        ("Limits", rule.needs.limits()),
        ("Within", within.as_deref().unwrap_or("")),
        ("Verify", &verify),
    ];
    write_parts(out, &head, parts.map(|(name, text)| (name.to_owned(), text)), style, width)
}

fn explain_cause(out: &mut dyn Write, cause: &Cause, style: Style, width: usize) -> io::Result<()> {
    let head = format!("{}: {}", cause.id, cause.title);
    let change = |(framework, text)| match framework {
        Some(framework) => (format!("Change ({})", Framework::key(framework)), text),
        None => ("Change".to_owned(), text),
    };
    let verify = format!("{VERIFY}: {}", cause.check);
    let parts = [("Why".to_owned(), cause.meaning.as_str()), ("Source".to_owned(), cause.source.as_str())];
    let parts = parts.into_iter().chain(cause.remedies.texts().map(change));
    write_parts(out, &head, parts.chain([("Verify".to_owned(), verify.as_str())]), style, width)
}

/// A head, and named texts that are not empty.
fn write_parts<'t>(
    out: &mut dyn Write,
    head: &str,
    parts: impl IntoIterator<Item = (String, &'t str)>,
    style: Style,
    width: usize,
) -> io::Result<()> {
    for line in wrap(head, width, "  ") {
        writeln!(out, "{}", style.paint(Ink::Bold, line))?;
    }
    for (name, text) in parts.into_iter().filter(|(_, text)| !text.is_empty()) {
        for line in wrap(&format!("{name}: {text}"), width.min(PARAGRAPH), "  ") {
            writeln!(out, "{line}")?;
        }
    }
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl Fn(&mut dyn Write) -> io::Result<()>) -> String {
        let mut text = Vec::new();
        write(&mut text).expect("memory takes everything");
        String::from_utf8(text).expect("text")
    }

    #[test]
    fn every_rule_is_listed_and_explained_within_the_width() {
        let style = Style { color: false };
        let list = written(|out| list(out, style, 80));
        assert_eq!(list.lines().count(), RULES.len() + 1);
        for rule in RULES {
            assert!(list.contains(rule.id), "{}", rule.id);
            let text = written(|out| explain(out, rule, style, 60));
            assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
            for part in [
                "Why: ",
                "Detects: ",
                "Source: ",
                "Change: ",
                "Saving: ",
                "Limits: ",
                "Verify: apex run -o NEW",
            ] {
                assert!(text.contains(part), "{}: {text}", rule.id);
            }
            assert_eq!(text.contains("Within: "), rule.parent.is_some(), "{}", rule.id);
        }
    }

    #[test]
    fn rules_and_causes_are_data_too() {
        let knowledge = Knowledge::shipped();
        let cause = &knowledge.causes()[0];
        let names = [RULES[0].slug.to_owned(), cause.id.clone(), "nothing".to_owned()];
        let (known, unknown) = named(&names, &knowledge);
        let document = Document::of(&known, unknown);
        assert_eq!((document.rules[0].rule, document.rules[0].why), (RULES[0].id, RULES[0].why));
        assert_eq!((document.causes[0].id, document.causes[0].source), (&*cause.id, &*cause.source));
        assert!(!document.causes[0].changes.is_empty());
        assert_eq!(document.unknown, ["nothing"]);
    }

    #[test]
    fn every_known_cause_is_explained_with_its_source() {
        for cause in Knowledge::shipped().causes() {
            let text = written(|out| Explained::Cause(cause).explain(out, Style { color: false }, 200));
            for part in [&cause.title, &cause.source] {
                assert!(text.contains(part.as_str()), "{}: {text}", cause.id);
            }
            assert!(text.contains("Change") && text.contains("Verify: apex run -o NEW"), "{text}");
        }
    }
}
