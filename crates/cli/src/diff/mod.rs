//! `apex diff`: runs before and after a change, side by side.

mod tables;
mod verdict;

use crate::filters::{Applied, Filters, Shown};
use crate::loaded::Loaded;
use crate::output::{self, Color};
use crate::text::{Ink, Style, wrap};
use crate::{exit, units};
use anyhow::Context;
use apex_advice::{Advice, Comparison, KernelChange, Run, compare};
use clap::builder::FalseyValueParser;
use serde::Serialize;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Shows what changed between runs, and whether the advice that was followed did what it promised.
#[derive(clap::Args, Debug)]
#[command(after_long_help = "Examples:
  apex diff before after
  apex diff --before a1 a2 a3 --after b1 b2 b3     repeats: their spread says what is chance
  apex diff --kernel 'gemm*' --rank 0 before after
  apex diff --configurations before after          each launch configuration by itself
  apex diff --fail-above 5 baseline candidate      for CI: exits with 1 if a step or a kernel takes over 5% longer

Where launches repeat, sums are those of a step. Between repeats a difference counts as real if it exceeds what their
spread makes likely (Welch's t-test, 1 in 370 by chance) and 1%; between single runs, if it exceeds three standard
errors of the samples and 1%.")]
pub struct Args {
    /// The session to compare with
    #[arg(value_name = "BEFORE", required_unless_present = "before", conflicts_with = "before")]
    first: Option<PathBuf>,
    /// The session to compare
    #[arg(value_name = "AFTER", required_unless_present = "before", conflicts_with = "before")]
    second: Option<PathBuf>,
    /// Sessions to compare with: runs of the same program
    #[arg(long, value_name = "SESSION", num_args = 1.., requires = "after")]
    before: Vec<PathBuf>,
    /// Sessions to compare: runs of the changed program
    #[arg(long, value_name = "SESSION", num_args = 1.., requires = "before")]
    after: Vec<PathBuf>,
    #[command(flatten)]
    filters: Filters,
    /// Kernels to list
    #[arg(long, value_name = "N", default_value_t = 15, env = "APEX_TOP")]
    top: usize,
    /// Compare each launch configuration by itself, instead of functions over all their
    /// configurations
    #[arg(long, env = "APEX_CONFIGURATIONS", value_parser = FalseyValueParser::new())]
    configurations: bool,
    /// Exit with 1 if a step, or a kernel on average, takes longer by more than this, beyond chance
    #[arg(long, value_name = "PERCENT", value_parser = units::parse_percent, env = "APEX_FAIL_ABOVE")]
    fail_above: Option<f64>,
    /// Print JSON (schema apex.diff/2)
    #[arg(long, env = "APEX_JSON", value_parser = FalseyValueParser::new())]
    json: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
pub struct Document<'a> {
    schema: &'static str,
    apex_version: &'static str,
    before: Vec<String>,
    after: Vec<String>,
    filters: Applied<'a>,
    /// The first line of the page.
    verdict: String,
    comparison: &'a Comparison,
}

/// Runs `apex diff`.
pub fn execute(args: &Args, color: Color) -> anyhow::Result<ExitCode> {
    let (before, after) = args.sides();
    let sessions = before.iter().chain(after).map(|path| Loaded::read_part(path, &args.filters));
    let sessions = sessions.collect::<anyhow::Result<Vec<_>>>()?;
    let shown = args.filters.shown_alike(&sessions.iter().collect::<Vec<_>>())?;
    let comparison = compared(&shown, before.len());
    if args.json {
        output::json(&Document::of(&shown, before, after, &comparison).context("no session")?)?;
    } else {
        let verdict = verdict::verdict(&comparison);
        let style = Style { color: color.on_stdout() };
        let filters = shown.first().and_then(Shown::described);
        let page = Page { args, comparison: &comparison, style, width: output::width() };
        output::page(|out| page.write(out, &verdict, filters))?;
    }
    Ok(args.exit_code(&comparison))
}

/// Compares what is shown of sessions: the first ones with the others.
pub fn compared(shown: &[Shown<'_>], before: usize) -> Comparison {
    let advice: Vec<Advice> = shown.iter().map(|shown| shown.advise(&[])).collect();
    let runs: Vec<Run<'_>> = shown
        .iter()
        .zip(&advice)
        .map(|(shown, advice)| Run { job: &shown.job, profile: shown.profile(), advice })
        .collect();
    let (before, after) = runs.split_at(before);
    compare(before, after)
}

impl<'a> Document<'a> {
    /// What of these sessions was compared; `None` where there are none.
    pub fn of(
        shown: &'a [Shown<'_>],
        before: &[PathBuf],
        after: &[PathBuf],
        comparison: &'a Comparison,
    ) -> Option<Self> {
        let names = |paths: &[PathBuf]| paths.iter().map(|path| path.display().to_string()).collect();
        Some(Self {
            schema: "apex.diff/2",
            apex_version: env!("CARGO_PKG_VERSION"),
            before: names(before),
            after: names(after),
            filters: shown.first()?.applied(),
            verdict: verdict::verdict(comparison),
            comparison,
        })
    }
}

impl Args {
    /// The sessions of both sides.
    fn sides(&self) -> (&[PathBuf], &[PathBuf]) {
        match (&self.first, &self.second) {
            (Some(before), Some(after)) => (std::slice::from_ref(before), std::slice::from_ref(after)),
            _ => (&self.before, &self.after),
        }
    }

    fn kernels<'a>(&self, comparison: &'a Comparison) -> &'a [KernelChange] {
        if self.configurations { &comparison.kernels } else { &comparison.functions }
    }

    /// Says what is slower than `--fail-above` allows.
    fn exit_code(&self, comparison: &Comparison) -> ExitCode {
        let Some(percent) = self.fail_above else { return ExitCode::SUCCESS };
        let limit = 1.0 + percent / 100.0;
        let step = comparison.step_ns.iter().map(|step| ("a step", step));
        let kernels =
            self.kernels(comparison).iter().map(|kernel| (kernel.name.as_str(), &kernel.duration_ns));
        let slower: Vec<_> = step.chain(kernels).filter(|(_, change)| change.rose_above(limit)).collect();
        for (name, change) in &slower {
            let ratio = change.ratio.unwrap_or(1.0);
            output::remark(format!("{name} is slower: {} of its time before", units::percent(ratio)));
        }
        if slower.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(exit::NO) }
    }
}

/// A comparison as text.
struct Page<'a> {
    args: &'a Args,
    comparison: &'a Comparison,
    style: Style,
    width: usize,
}

impl Page<'_> {
    fn write(&self, out: &mut dyn Write, verdict: &str, filters: Option<String>) -> io::Result<()> {
        for line in wrap(verdict, self.width, "  ") {
            writeln!(out, "{}", self.style.paint(Ink::Bold, line))?;
        }
        let names =
            |paths: &[PathBuf]| paths.iter().map(apex_untrusted::shown).collect::<Vec<_>>().join(", ");
        let (before, after) = self.args.sides();
        let sessions = format!("{} → {}", names(before), names(after));
        for line in std::iter::once(sessions).chain(filters) {
            writeln!(out, "{}", self.style.paint(Ink::Dim, line))?;
        }
        tables::totals(out, self)?;
        tables::counts(out, self)?;
        tables::advice(out, self)?;
        tables::kernels(out, self, self.args.kernels(self.comparison), self.args.top)
    }
}
