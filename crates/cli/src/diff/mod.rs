//! `apex diff`: compares runs before and after a change.

mod tables;

use crate::filters::{self, FilterOptions};
use crate::loaded;
use crate::output::{self, Color};
use crate::text::{Ink, Style, wrap};
use crate::{exit, units};
use anyhow::Context;
use apex_advice::{Comparison, KernelChange};
use apex_conventions::documents;
use apex_view::{DiffDocument, Shown};
use clap::builder::FalseyValueParser;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Compares runs, and shows whether the advice that was followed kept its promise.
#[derive(clap::Args, Debug)]
#[command(after_long_help = "Examples:
  apex diff before after
  apex diff --before a1 a2 a3 --after b1 b2 b3     repeated runs: their spread shows the noise
  apex diff --kernel 'gemm*' --rank 0 before after
  apex diff --configurations before after          each launch configuration separately
  apex diff --fail-above 5 baseline candidate      for CI: status 1 if more than 5% slower

If launches repeat, sums are per step. A difference is significant if it exceeds 1% and, between repeated runs, passes \
Welch's t-test (p < 1/370), or, between single runs, exceeds three standard errors of the samples. On the CPU device, counts \
are compared; its times are the busy host's, and are compared between repeated runs only.")]
pub struct Args {
    /// The baseline session
    #[arg(value_name = "BEFORE", required_unless_present = "before", conflicts_with = "before")]
    first: Option<PathBuf>,
    /// The candidate session
    #[arg(value_name = "AFTER", required_unless_present = "before", conflicts_with = "before")]
    second: Option<PathBuf>,
    /// Baseline sessions: repeated runs of the same program
    #[arg(long, value_name = "SESSION", num_args = 1.., requires = "after")]
    before: Vec<PathBuf>,
    /// Candidate sessions: repeated runs of the changed program
    #[arg(long, value_name = "SESSION", num_args = 1.., requires = "before")]
    after: Vec<PathBuf>,
    #[command(flatten)]
    filters: FilterOptions,
    /// Number of kernels to list
    #[arg(long, value_name = "N", default_value_t = 15)]
    top: usize,
    /// Compare each launch configuration separately, instead of each function over all its
    /// configurations
    #[arg(long, value_parser = FalseyValueParser::new())]
    configurations: bool,
    /// Exit with status 1 if a step, or a kernel on average, takes longer by more than this and the
    /// difference is significant
    #[arg(long, value_name = "PERCENT", value_parser = units::parse_percent)]
    fail_above: Option<f64>,
    #[arg(long, help = format!("Print JSON (schema {})", documents::DIFF), value_parser = FalseyValueParser::new())]
    json: bool,
}

/// Runs `apex diff`.
pub fn execute(args: &Args, color: Color) -> anyhow::Result<ExitCode> {
    crate::knowledge::install(&[])?;
    let (before, after) = args.sides();
    let filters = args.filters.filters();
    let sessions = before.iter().chain(after).map(|path| loaded::read(path, &filters));
    let sessions = sessions.collect::<anyhow::Result<Vec<_>>>()?;
    let shown = filters.shown_alike(&sessions)?;
    filters::remark_on_phases(&shown);
    let comparison = apex_view::compared(&sessions, &shown, before.len());
    if args.json {
        let content = DiffDocument::of(&sessions, &shown, before, after, &comparison);
        output::json(documents::DIFF, &content.context("no session")?)?;
    } else {
        let verdict = apex_view::verdict(&comparison);
        let style = Style { color: color.on_stdout() };
        let filters = shown.first().and_then(Shown::described);
        let commands = apex_view::different_commands(&apex_view::commands(&sessions, before.len()));
        let commands = commands.into_iter().chain(apex_view::different_programs(&sessions, before.len()));
        let energy = apex_view::energy_change(&sessions, before.len());
        let energy = energy.map(|change| apex_view::text::energy::change(&change));
        let page = Page { args, comparison: &comparison, energy, style, width: output::width() };
        output::page(|out| page.write(out, &verdict, filters.into_iter().chain(commands)))?;
    }
    Ok(args.exit_code(&comparison))
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
    /// What became of the energy, where it is known.
    energy: Option<String>,
    style: Style,
    width: usize,
}

impl Page<'_> {
    fn write(
        &self,
        out: &mut dyn Write,
        verdict: &str,
        notes: impl Iterator<Item = String>,
    ) -> io::Result<()> {
        for line in wrap(verdict, self.width, "  ") {
            writeln!(out, "{}", self.style.paint(Ink::Bold, line))?;
        }
        let names =
            |paths: &[PathBuf]| paths.iter().map(apex_untrusted::shown).collect::<Vec<_>>().join(", ");
        let (before, after) = self.args.sides();
        let sessions = format!("{} → {}", names(before), names(after));
        for line in wrap(&sessions, self.width, "  ") {
            writeln!(out, "{}", self.style.paint(Ink::Dim, line))?;
        }
        for line in notes.flat_map(|note| wrap(&note, self.width, "  ")) {
            writeln!(out, "{}", self.style.paint(Ink::Dim, line))?;
        }
        tables::totals(out, self)?;
        for line in self.energy.iter().flat_map(|energy| wrap(energy, self.width, "  ")) {
            writeln!(out, "{line}")?;
        }
        tables::counts(out, self)?;
        tables::advice(out, self)?;
        tables::kernels(out, self, self.args.kernels(self.comparison), self.args.top)
    }
}
