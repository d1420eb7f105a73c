//! `apex history`: keeps figures of runs, and shows them over commits.

use crate::check::{loaded_once, measured, program};
use crate::output::{self, Color};
use crate::text::{Align, Ink, Style, Table, wrap};
use crate::units;
use anyhow::{Context, bail};
use apex_budgets::{Measures, Per};
use apex_conventions::documents;
use apex_history::{Figures, History, Report, Run, number, sparkline};
use apex_view::Loaded;
use clap::ValueEnum;
use clap::builder::FalseyValueParser;
use std::collections::BTreeMap;
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{SystemTime, UNIX_EPOCH};

/// Longest file that is read, bytes.
const MOST_BYTES: u64 = 64 << 20;
/// Bars of a line in the table.
const BARS: usize = 16;

/// Shows figures of a project's runs over commits, and where they changed.
#[derive(clap::Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_long_help = "Examples:
  apex run --device cpu --check -o run -- ./test && apex history add run
                                            adds the run to apex-history.jsonl, at the commit of the folder
  apex history                              what changed, and the newest figures
  apex history --days 7 --format markdown   the report of a week, for a chat or an issue
  apex history --days 7 --html week.html    the same as a page, with a chart for each figure
  apex history --kernels --json | jq '.series[].changes'

A count on the CPU device has changed wherever it differs. Of a time, a change is told that fewer than 1% of all orders of \
the same runs would show: it takes at least eight runs, and has an interval. The file has a line for each run; commit it, or \
keep it as an artefact of CI.")]
pub struct Args {
    #[command(subcommand)]
    command: Option<Subcommand>,
    #[command(flatten)]
    file: HistoryFile,
    /// Days whose runs and changes are told; the last one is today (UTC) [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=3650))]
    days: Option<u64>,
    /// Show the figures of kernels too, not only their changes
    #[arg(long, value_parser = FalseyValueParser::new())]
    kernels: bool,
    /// How the result is printed
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    format: Format,
    /// Write the report as one HTML file, with a chart for each figure
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[arg(long, help = format!("Print JSON (schema {})", documents::HISTORY), value_parser = FalseyValueParser::new(), conflicts_with = "format")]
    json: bool,
}

/// The file.
#[derive(clap::Args, Debug)]
struct HistoryFile {
    /// The file with a line for each run
    #[arg(long, value_name = "FILE", default_value = "apex-history.jsonl")]
    history: PathBuf,
}

/// How a result is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Changes, then a table of the newest figures
    Text,
    /// The same in Markdown
    Markdown,
}

#[derive(clap::Subcommand, Debug)]
enum Subcommand {
    Add(AddArgs),
}

/// Adds runs to the history: a line for each session.
#[derive(clap::Args, Debug)]
#[command(after_long_help = "Examples:
  apex history add run                      at the commit that is checked out here
  apex history add --program bench --commit v1.2 run-1 run-2 run-3

Figures are those of `apex check --figures`: of a step where launches repeat on a GPU, otherwise of the run.")]
struct AddArgs {
    /// Sessions to add
    #[arg(required = true, value_name = "SESSION")]
    sessions: Vec<PathBuf>,
    #[command(flatten)]
    file: HistoryFile,
    /// The commit that ran [default: the one that git has checked out here]
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    commit: Option<String>,
    /// The name of the series [default: the program's, or its script's]
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    program: Option<String>,
}

/// A name of a commit or a program.
fn parse_name(text: &str) -> Result<String, String> {
    let name = text.trim();
    let fits = !name.is_empty() && !name.chars().any(char::is_control);
    fits.then(|| name.to_owned())
        .ok_or_else(|| "it is empty or has control characters; write a name".to_owned())
}

/// Runs `apex history`.
pub fn execute(args: &Args, color: Color) -> anyhow::Result<ExitCode> {
    if let Some(Subcommand::Add(args)) = &args.command {
        return add(args);
    }
    let file = &args.file.history;
    let history = read(file)?.with_context(|| {
        let file = apex_untrusted::shown(file);
        format!("there is no {file}: `apex history add SESSION` makes it")
    })?;
    let since = args.days.map(|days| since(days, SystemTime::now()));
    let mut report = Report::of(&history, since.as_deref());
    if report.series.is_empty() {
        let file = apex_untrusted::shown(file);
        bail!("{file} has no run of these days: `apex history add SESSION` adds one");
    }
    let title = match args.days {
        Some(1) => "The last day".to_owned(),
        Some(days) => format!("The last {days} days"),
        None => "All runs".to_owned(),
    };
    if let Some(path) = &args.html {
        let page = apex_history::page(&report, &title);
        apex_untrusted::replace::file(path, |mut file| file.write_all(page.as_bytes()))
            .with_context(|| format!("cannot write {}", apex_untrusted::shown(path)))?;
    }
    if !args.kernels {
        report.series.retain(|series| series.kernel.is_none() || !series.changes.is_empty());
    }
    match args.format {
        _ if args.json => output::json(documents::HISTORY, &report),
        Format::Markdown => output::page(|out| write!(out, "{}", apex_history::markdown(&report, &title))),
        Format::Text => {
            let style = Style { color: color.on_stdout() };
            output::page(|out| write_text(out, &report, style, output::width()))
        }
    }
}

/// Adds sessions.
fn add(args: &AddArgs) -> anyhow::Result<ExitCode> {
    let path = &args.file.history;
    let shown = apex_untrusted::shown(path);
    // A file that cannot be read is not made longer.
    let known = read(path)?.unwrap_or_default();
    let commit = args.commit.clone().map_or_else(checked_out, Ok)?;
    let (sessions, loaded) = loaded_once(&args.sessions)?;
    let (mut lines, mut added) = (String::new(), 0);
    for (session, loaded) in sessions.iter().zip(&loaded) {
        let measures = measured(std::slice::from_ref(session), std::slice::from_ref(loaded), None)?;
        let run = run(loaded, &measures[0], &commit, args.program.as_deref(), session)?;
        if let Some(there) = known.find(&run) {
            let (session, commit) = (apex_untrusted::shown(session), apex_untrusted::shown(&there.commit));
            output::remark(format!("{session} is in {shown} already, at commit {commit}: it counts once"));
            continue;
        }
        lines.push_str(&run.line());
        added += 1;
    }
    append(path, &lines).with_context(|| format!("cannot write {shown}"))?;
    let runs = units::counted(added, "run", "runs");
    output::remark(format!("added {runs} of {commit} to {shown}"));
    Ok(ExitCode::SUCCESS)
}

/// The line of a session.
fn run(
    loaded: &Loaded,
    measures: &Measures,
    commit: &str,
    name: Option<&str>,
    session: &Path,
) -> anyhow::Result<Run> {
    let meta = loaded.session.meta.as_ref().with_context(|| {
        let session = apex_untrusted::shown(session);
        format!("{session} does not say when it ran: its meta.json is missing")
    })?;
    let script = || {
        let last = program(&meta.command).last().copied().unwrap_or("program");
        Path::new(last).file_name().map_or(last.to_owned(), |name| name.to_string_lossy().into_owned())
    };
    let device = match measures.on_cpu_device {
        true => "CPU device".to_owned(),
        false => loaded.profile.devices.first().map_or("GPU".to_owned(), |device| device.name.clone()),
    };
    Ok(Run {
        commit: commit.to_owned(),
        time: apex_alerts::rfc3339(meta.started_real_ns),
        id: meta.pid.map(|pid| format!("{}-{pid}", meta.started_real_ns)),
        name: name.map_or_else(script, str::to_owned),
        device,
        figures: figures(&measures.whole, measures.per),
        kernels: measures
            .kernels
            .iter()
            .map(|(kernel, values)| (kernel.clone(), figures(values, measures.per)))
            .collect(),
    })
}

fn figures(values: &BTreeMap<apex_budgets::Quantity, f64>, per: Per) -> Figures {
    let mut figures = Figures::default();
    for (quantity, &value) in values {
        let into = if quantity.is_exact(per) { &mut figures.exact } else { &mut figures.varying };
        into.insert(quantity.name().to_owned(), value);
    }
    figures
}

/// The commit that git has checked out in this folder.
fn checked_out() -> anyhow::Result<String> {
    let asked = Command::new("git").args(["rev-parse", "HEAD"]).output();
    let said = asked.ok().filter(|said| said.status.success());
    let commit = said.map(|said| String::from_utf8_lossy(&said.stdout).trim().to_owned());
    commit
        .filter(|commit| !commit.is_empty())
        .context("git does not say which commit is checked out in this folder: name it with `--commit NAME`")
}

/// Adds lines in one write, so that two commands at once do not mix them.
fn append(path: &Path, lines: &str) -> io::Result<()> {
    let mut file = std::fs::File::options().read(true).append(true).create(true).open(path)?;
    // An editor may have left the last line without its end.
    let mut last = [b'\n'];
    if file.seek(io::SeekFrom::End(0))? > 0 {
        file.seek(io::SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
    }
    let end = if last == *b"\n" { "" } else { "\n" };
    file.write_all(format!("{end}{lines}").as_bytes())
}

/// The file's runs; `None` if there is no file.
fn read(path: &Path) -> anyhow::Result<Option<History>> {
    let shown = || apex_untrusted::shown(path);
    if !path.try_exists().with_context(|| format!("cannot read {}", shown()))? {
        return Ok(None);
    }
    let text = apex_untrusted::read::read_to_string(path, MOST_BYTES)
        .with_context(|| format!("cannot read {}", shown()))?;
    Ok(Some(History::parse(&text).with_context(|| format!("cannot use {}", shown()))?))
}

/// The beginning of the first of so many days, the last of which is today.
fn since(days: u64, now: SystemTime) -> String {
    const DAY: u64 = 86_400;
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let first = (now / DAY).saturating_sub(days - 1) * DAY;
    apex_alerts::rfc3339(first * 1_000_000_000)
}

fn write_text(out: &mut dyn Write, report: &Report, style: Style, width: usize) -> io::Result<()> {
    for line in wrap(&report.verdict(), width, "  ") {
        writeln!(out, "{}", style.paint(Ink::Bold, line))?;
    }
    for (series, change) in report.changes() {
        let told = format!(
            "{}: {} {}, {}, from commit {} on ({})",
            series.name,
            series.what(),
            if change.is_worse { "worse" } else { "better" },
            change.amount(),
            change.commit,
            change.time
        );
        for line in wrap(&told, width, "  ") {
            writeln!(out, "{}", if change.is_worse { style.paint(Ink::Bad, line) } else { line })?;
        }
    }
    writeln!(out)?;
    let mut table = Table::new(&[
        ("program", Align::Left),
        ("figure", Align::Left),
        ("latest", Align::Right),
        ("over runs", Align::Left),
    ]);
    for series in &report.series {
        let latest = number(series.latest().value);
        let name = format!("{}, {}", series.name, series.device);
        table.row(vec![name, series.what(), latest, sparkline(series, BARS)]);
    }
    for (at, line) in table.lines(width).into_iter().enumerate() {
        writeln!(out, "{}", if at == 0 { style.paint(Ink::Dim, line) } else { line })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_commit_has_a_name() {
        assert_eq!(parse_name(" v1.2 "), Ok("v1.2".to_owned()));
        assert!(["", " ", "a\nb"].iter().all(|name| parse_name(name).is_err()));
    }

    #[test]
    fn days_begin_at_midnight_and_the_last_one_is_today() {
        let now = UNIX_EPOCH + Duration::from_secs(1_795_454_551);
        assert_eq!(since(1, now), "2026-11-23T00:00:00Z");
        assert_eq!(since(7, now), "2026-11-17T00:00:00Z");
    }
}
