//! `apex diff`: two sessions side by side.

use crate::loaded::Loaded;
use crate::output::{self, Color};
use crate::text::{Align, Ink, Style, Table};
use crate::{exit, units};
use apex_advice::{Change, Comparison, KernelChange, Presence, compare};
use clap::builder::FalseyValueParser;
use serde::Serialize;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Shows what changed between two sessions.
#[derive(clap::Args, Debug)]
#[command(after_long_help = "Examples:
  apex diff before after
  apex diff --configurations before after          each launch configuration by itself
  apex diff --fail-above 5 baseline candidate      for CI: exits with 1 if GPU time rose by more than 5%

A difference counts as real if it exceeds three standard errors of the samples and 1%.")]
pub struct Args {
    /// The session to compare with
    before: PathBuf,
    /// The session to compare
    after: PathBuf,
    /// Kernels to list
    #[arg(long, value_name = "N", default_value_t = 15, env = "APEX_TOP")]
    top: usize,
    /// Compare each launch configuration by itself, instead of functions over all their
    /// configurations
    #[arg(long, env = "APEX_CONFIGURATIONS", value_parser = FalseyValueParser::new())]
    configurations: bool,
    /// Exit with 1 if the mean GPU time of a kernel rose by more than this, beyond chance
    #[arg(long, value_name = "PERCENT", value_parser = units::parse_percent, env = "APEX_FAIL_ABOVE")]
    fail_above: Option<f64>,
    /// Print JSON (schema apex.diff/1)
    #[arg(long, env = "APEX_JSON", value_parser = FalseyValueParser::new())]
    json: bool,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    apex_version: &'static str,
    before: String,
    after: String,
    comparison: &'a Comparison,
}

/// Runs `apex diff`.
pub fn execute(args: &Args, color: Color) -> anyhow::Result<ExitCode> {
    let (before, after) = (Loaded::read(&args.before)?, Loaded::read(&args.after)?);
    let comparison = compare(&before.profile, &after.profile);
    if args.json {
        output::json(&Document {
            schema: "apex.diff/1",
            apex_version: env!("CARGO_PKG_VERSION"),
            before: args.before.display().to_string(),
            after: args.after.display().to_string(),
            comparison: &comparison,
        })?;
    } else {
        let style = Style { color: color.on_stdout() };
        output::page(|out| print(out, args, &comparison, style, output::width()))?;
    }
    let limit = args.fail_above.map(|percent| 1.0 + percent / 100.0);
    let slower = |change: &&KernelChange| limit.is_some_and(|limit| is_slower(&change.duration_ns, limit));
    let slower: Vec<_> = args.kernels(&comparison).iter().filter(slower).collect();
    for kernel in &slower {
        let ratio = kernel.duration_ns.ratio.unwrap_or(1.0);
        output::remark(format!("{} is slower: {} of its time before", kernel.name, units::percent(ratio)));
    }
    Ok(if slower.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(exit::NO) })
}

fn is_slower(change: &Change, limit: f64) -> bool {
    change.significant == Some(true) && change.ratio.is_some_and(|ratio| ratio > limit)
}

impl Args {
    fn kernels<'a>(&self, comparison: &'a Comparison) -> &'a [KernelChange] {
        if self.configurations { &comparison.kernels } else { &comparison.functions }
    }
}

fn print(
    out: &mut dyn Write,
    args: &Args,
    comparison: &Comparison,
    style: Style,
    width: usize,
) -> io::Result<()> {
    writeln!(
        out,
        "{}",
        style.paint(
            Ink::Bold,
            format!("{} → {}", apex_untrusted::shown(&args.before), apex_untrusted::shown(&args.after))
        )
    )?;
    let (before, after) = comparison.launches;
    writeln!(out, "launches        {} → {}", units::count(before), units::count(after))?;
    let mut total =
        |name, change, unit: fn(f64) -> String| writeln!(out, "{name:15} {}", describe(change, unit));
    total("time", &comparison.span_ns, units::time)?;
    total("GPU time", &comparison.gpu_time_ns, units::time)?;
    total("GPU busy", &comparison.gpu_busy, units::percent)?;
    total("CPU in launches", &comparison.launch_cpu_ns, units::time)?;
    let kernels = args.kernels(comparison);
    let mut table = Table::new(&[
        ("kernel", Align::Flexible),
        ("launches", Align::Right),
        ("GPU time eachᵐ", Align::Left),
        ("occupancyᶜ", Align::Left),
    ]);
    for kernel in kernels.iter().take(args.top) {
        table.row(vec![
            format!("{}{}", kernel.name, kernel.configuration.as_deref().unwrap_or_default()),
            launches(kernel),
            describe(&kernel.duration_ns, units::time),
            occupancy(&kernel.occupancy),
        ]);
    }
    writeln!(out)?;
    for (i, line) in table.lines(width).into_iter().enumerate() {
        // The line behind the header belongs to the first kernel.
        let slower = i.checked_sub(1).is_some_and(|i| is_slower(&kernels[i].duration_ns, 1.0));
        let ink = if i == 0 { Some(Ink::Dim) } else { slower.then_some(Ink::Bad) };
        writeln!(out, "{}", ink.map_or(line.clone(), |ink| style.paint(ink, &line)))?;
    }
    if kernels.len() > args.top {
        writeln!(out, "{} more: --top shows them", kernels.len() - args.top)?;
    }
    writeln!(
        out,
        "{}",
        style.paint(
            Ink::Dim,
            "ᵐ measured on samples · ᶜ computed exactly · ~ within chance, or too few samples to tell"
        )
    )
}

fn launches(kernel: &KernelChange) -> String {
    let (before, after) = kernel.launches;
    match kernel.presence {
        Presence::Added => format!("new: {}", units::count(after)),
        Presence::Removed => format!("gone: {}", units::count(before)),
        Presence::Both if before == after => units::count(after),
        Presence::Both => format!("{} → {}", units::count(before), units::count(after)),
    }
}

/// `1.20 ms → 1.10 ms (−8.3%)`; a tilde where the difference may be chance.
fn describe(change: &Change, unit: fn(f64) -> String) -> String {
    let side = |figure: &Option<apex_profile::Figure>| {
        figure.as_ref().map_or("?".into(), |figure| unit(figure.value))
    };
    let sides = format!("{} → {}", side(&change.before), side(&change.after));
    match change.ratio {
        Some(ratio) => {
            let chance = if change.significant == Some(true) { "" } else { "~" };
            format!("{sides} ({chance}{:+.1}%)", (ratio - 1.0) * 100.0)
        }
        None if change.before.is_none() && change.after.is_none() => "not measured".into(),
        None => sides,
    }
}

fn occupancy(change: &Change) -> String {
    match (&change.before, &change.after) {
        (Some(before), Some(after)) if before.value == after.value => units::share(after.value),
        (None, None) => "?".into(),
        (before, after) => {
            let side = |figure: &Option<apex_profile::Figure>| {
                figure.as_ref().map_or("?".into(), |f| units::share(f.value))
            };
            format!("{} → {}", side(before), side(after))
        }
    }
}
