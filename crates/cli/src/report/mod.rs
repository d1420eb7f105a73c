//! `apex report`: the verdict, where the time went, the top kernels, the advice.

mod counts;
pub mod findings;
mod head;
mod host;
mod idle;
pub mod kernels;
mod lines;
mod machine;
pub mod page;
mod places;
mod predictions;
mod ranges;
mod ranks;

use crate::filters::{self, FilterOptions};
use crate::import;
use crate::knowledge;
use crate::loaded::Source;
use crate::output::{self, Color};
use crate::text::{Ink, PARAGRAPH, Style, wrap};
use crate::units;
use anyhow::bail;
use apex_advice::Advice;
use apex_catalogue::Notes;
use apex_conventions::documents;
use apex_energy::{Energy, Rates};
use apex_machine::Summary;
use apex_profile::{ByRank, HostFunctions, IdleFunctions, Profile, SiteTotals};
use apex_trace::meta::{Exit, Meta};
use apex_untrusted::printable;
use apex_view::text::universal::sentence;
use apex_view::text::verdict::what_is_missing;
use apex_view::{Applied, Filters, Loaded, PHASE_OPTION, Shown};
use clap::builder::FalseyValueParser;
use kernels::Sort;
use serde::Serialize;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Kernels in the table unless the user says otherwise.
const TOP: usize = 10;
/// Problems of a session in a report; JSON has them all.
const PROBLEMS: usize = 3;
/// Modules that were lowered, in a report; JSON has them all.
const MODULES: usize = 5;
/// Findings in a report; `apex advise` has them all.
const FINDINGS: usize = 5;

/// Shows where the time went, what to change, and how much time that would save.
#[derive(clap::Args, Debug)]
#[command(after_long_help = "Examples:
  apex report                            the newest session in this folder
  apex report --top 30 --sort cpu before
  apex report --kernel 'gemm*'           figures, source lines and advice of these kernels
  apex report --window 2s..5s --rank 0   three seconds of one process
  apex report --by place                 by the source line that launches
  apex report --by range                 by NVTX range
  apex report --ranks                    the ranks of a job, and the one that they wait for
  apex report --json | jq '.by_rank.late'
  apex report --json | jq -r '.verdict[]'  the sentences at the top of the report
  apex report --json | jq '.advice.findings[] | {rule, remedy}'
  apex report --html report.html         one self-contained HTML file
  apex report --energy-price 0.25 --energy-co2 380
  apex report --format markdown >> \"$GITHUB_STEP_SUMMARY\"
  apex report --format sarif > apex.sarif  the findings at the program's lines

Marks: ᵐ measured, ᶜ computed exactly, ᵖ predicted with an interval.")]
pub struct Args {
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    view: View,
    /// Show the ranks of a job beside each other: their accounts, the rank that comes last to
    /// collectives, and what it does meanwhile
    #[arg(long = "ranks", value_parser = FalseyValueParser::new(), conflicts_with_all = ["html", "by", "top", "sort"])]
    by_rank: bool,
    #[arg(long, help = format!("Print JSON (schema {})", documents::REPORT), value_parser = FalseyValueParser::new())]
    json: bool,
    /// Form of the report on stdout
    #[arg(long, value_enum, default_value_t, conflicts_with_all = ["json", "html", "by_rank", "by", "top", "sort"])]
    format: Format,
    /// Folder of the program's source, to which paths in SARIF are relative [default: where the
    /// program was started]
    #[arg(long, value_name = "DIR")]
    source_root: Option<PathBuf>,
    /// Write the report as one HTML file, which needs neither APEX nor a network connection
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// The form of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Text for a terminal
    #[default]
    Text,
    /// Markdown for a pull request, an issue or a chat
    Markdown,
    /// SARIF 2.1.0: findings at the lines of the program, for editors and code scanning
    Sarif,
}

/// The rows of a report's table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum By {
    /// Kernels
    #[default]
    Kernel,
    /// Places in the program that launch kernels
    Place,
    /// NVTX ranges
    Range,
}

/// The part of a session that is shown.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct View {
    /// Number of kernels to list
    #[arg(long, value_name = "N", default_value_t = TOP)]
    top: usize,
    /// Ranking of kernels [default: time if kernels were timed, otherwise count]
    #[arg(long, value_enum)]
    sort: Option<Sort>,
    /// List by kernel, by place in the program, or by NVTX range
    #[arg(long, value_enum, default_value_t = By::Kernel)]
    by: By,
    #[command(flatten)]
    rates: RateOptions,
    #[command(flatten)]
    judged: Judged,
}

/// What a kilowatt-hour costs.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub struct RateOptions {
    /// Price of a kilowatt-hour in your currency, to tell what the GPUs' energy costs
    #[arg(long, value_name = "PRICE", value_parser = parse_rate)]
    energy_price: Option<f64>,
    /// Grams of CO₂ of a kilowatt-hour, to tell the emissions of the GPUs' energy
    #[arg(long, value_name = "GRAMS", value_parser = parse_rate)]
    energy_co2: Option<f64>,
}

impl RateOptions {
    fn rates(self) -> Rates {
        Rates { price_per_kwh: self.energy_price, grams_per_kwh: self.energy_co2 }
    }
}

/// Largest price or emission of a kilowatt-hour: above those of any currency, so that a mistyped
/// one is noticed.
const MOST_RATE: f64 = 1e6;

/// A price or an emission of a kilowatt-hour.
fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = text.trim().parse().ok().filter(|rate| (0.0..=MOST_RATE).contains(rate));
    rate.ok_or_else(|| format!("`{text}` is no rate; write a number from 0 to {MOST_RATE}, such as 0.25"))
}

/// The judged part of a session, and the rules that judge it.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Judged {
    #[command(flatten)]
    pub filters: FilterOptions,
    /// Rules to leave out, by identifier or name
    #[arg(long, value_name = "RULE", value_delimiter = ',')]
    pub suppress: Vec<String>,
    /// Files of known causes, beside those in ~/.config/apex/knowledge. May be repeated
    #[arg(long, value_name = "FILE")]
    pub knowledge: Vec<PathBuf>,
}

impl View {
    /// Returns the view if the user chooses none.
    pub fn usual() -> Self {
        Self { top: TOP, ..Self::default() }
    }
}

/// What a session of `apex attach` does not hold.
const NOT_SEEN: &str = "Not seen: launches, copies, GPU memory, steps, and why a GPU is idle. `apex run -- COMMAND` records these from the \
    program's start.";

/// The document of `--json`.
#[derive(Serialize)]
struct Document<'a> {
    session: String,
    /// The session's name, tags and notes; absent without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    notes: Option<Notes>,
    run: Option<&'a Meta>,
    /// The session's start on the recording machine's clock CLOCK_MONOTONIC, nanoseconds.
    origin_monotonic_ns: u64,
    filters: Applied<'a>,
    /// The first lines of the report: what the time went into, how long it took, what to change.
    verdict: Vec<String>,
    /// Indices into the profile's kernels, as the table ranks them.
    top: Vec<usize>,
    /// The sums over launches from each place.
    places: Vec<SiteTotals>,
    /// The host's functions in each idle account of the phase; absent if the host was not sampled.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    idle_functions: Vec<IdleFunctions>,
    /// The functions on the stacks of all threads, by what the threads did; in a session of `apex
    /// attach` alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    host_functions: Vec<HostFunctions>,
    profile: &'a Profile,
    /// The ranks beside each other; absent where fewer than two processes launched kernels.
    #[serde(skip_serializing_if = "Option::is_none")]
    by_rank: Option<ByRank>,
    /// The state of the machine meanwhile, with everything else that ran on it.
    machine: Option<Summary>,
    /// The energy that the program's devices took; absent where no energy counter was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    energy: Option<Energy>,
    advice: &'a Advice,
}

/// Runs `apex report`.
pub fn execute(args: &Args, color: Color) -> anyhow::Result<ExitCode> {
    let Judged { filters, suppress, knowledge } = &args.view.judged;
    knowledge::install(knowledge)?;
    let filters = filters.filters();
    if let Some(folder) = args.html.as_deref().filter(|path| path.is_dir()) {
        bail!(page::not_a_file(folder, args.source.session.as_deref()));
    }
    let loaded = args.source.load(&filters)?;
    let shown = filters.shown(&loaded)?;
    filters::remark_on_phases(std::slice::from_ref(&shown));
    if let Some(path) = &args.html {
        page::write(path, &loaded, &shown, &filters::advise(&shown, suppress))?;
        if !args.json {
            return Ok(ExitCode::SUCCESS);
        }
    }
    if args.format != Format::Text {
        return formatted(args, &loaded, &shown, &filters::advise(&shown, suppress));
    }
    if !args.json {
        let style = Style { color: color.on_stdout() };
        if args.by_rank {
            return output::page(|out| ranks::write(out, &shown, style, output::width()));
        }
        return output::page(|out| write_shown(out, &loaded, &shown, &args.view, style, output::width()));
    }
    let sort = args.view.sort.unwrap_or(Sort::default_of(shown.profile()));
    let advice = filters::advise(&shown, suppress);
    let document = Document {
        session: import::named(&loaded.session.dir).display().to_string(),
        notes: Notes::read(&loaded.session.dir).ok().filter(|notes| *notes != Notes::default()),
        run: loaded.session.meta.as_ref(),
        origin_monotonic_ns: apex_profile::origin_ns(&loaded.session),
        filters: shown.applied(),
        top: kernels::ranked(shown.profile(), sort, args.view.top),
        places: loaded.profile.by_site(),
        idle_functions: shown.job.idle_functions(),
        host_functions: loaded.profile.host_functions(),
        profile: &loaded.profile,
        by_rank: shown.job.by_rank(),
        machine: loaded.machine_summary(),
        energy: loaded.energy(args.view.rates.rates()),
        verdict: apex_view::text::verdict::sentences(&shown.part(), &advice),
        advice: &advice,
    };
    output::json(documents::REPORT, &document)
}

/// Prints the report in a form for other tools.
fn formatted(args: &Args, loaded: &Loaded, shown: &Shown<'_>, advice: &Advice) -> anyhow::Result<ExitCode> {
    if args.format == Format::Markdown {
        let session = import::named(&loaded.session.dir);
        let text = apex_findings::markdown(&apex_untrusted::shown(&session), loaded, shown, advice);
        return output::page(|out| out.write_all(text.as_bytes()));
    }
    let given = args.source_root.as_ref().map(|root| root.canonicalize().unwrap_or_else(|_| root.clone()));
    let given = given.map(|root| root.to_string_lossy().into_owned());
    let started = loaded.session.meta.as_ref().map(|meta| meta.cwd.clone());
    let log = apex_findings::sarif(shown, advice, given.or(started).as_deref());
    let unplaced = advice.findings.len().saturating_sub(apex_findings::placed(shown, advice)) as u64;
    if unplaced > 0 {
        let findings = units::counted(unplaced, "finding stands", "findings stand");
        output::remark(format!("{findings} at no line of the program: code scanning does not show them"));
    }
    output::page(|out| {
        apex_export::json::pretty(&mut *out, &log)?;
        writeln!(out)
    })
}

/// Writes the report on all of a session as text.
pub fn write(out: &mut dyn Write, loaded: &Loaded, style: Style, width: usize) -> io::Result<()> {
    let view = View::usual();
    let filters = Filters::default();
    let shown = filters.shown(loaded).map_err(io::Error::other)?;
    write_shown(out, loaded, &shown, &view, style, width)
}

fn write_shown(
    out: &mut dyn Write,
    loaded: &Loaded,
    shown: &Shown<'_>,
    view: &View,
    style: Style,
    width: usize,
) -> io::Result<()> {
    let profile = shown.profile();
    let advice = filters::advise(shown, &view.judged.suppress);
    for line in head::verdict(shown, &advice, width) {
        writeln!(out, "{}", style.paint(Ink::Bold, line))?;
    }
    head::accounts(out, shown, style, width)?;
    writeln!(out)?;
    let notes = shown
        .described()
        .into_iter()
        .chain(problems(&loaded.profile.recorder.problems))
        .chain(shown.notes(&advice, PHASE_OPTION))
        .flat_map(|note| wrap(&note, width, "  "));
    let circumstances = circumstances(loaded);
    let circumstances = circumstances.iter().flat_map(|line| wrap(line, width, "  "));
    for line in notes.chain(circumstances).chain(recorded(loaded, shown, &advice, width)) {
        writeln!(out, "{}", style.paint(Ink::Dim, line))?;
    }
    for sentence in apex_view::text::fast::sentences(profile)
        .into_iter()
        .chain(lowered_modules(loaded))
        .chain(told_capabilities(loaded))
        .chain(machine::sentences(loaded, shown, view.rates.rates()))
    {
        for line in wrap(&sentence, width.min(PARAGRAPH), "") {
            writeln!(out, "{line}")?;
        }
    }
    counts::defects(out, profile, style, width)?;
    if profile.host.is_some() {
        // Rules judge launches, which such a session does not have.
        return host::tables(out, profile, style, width);
    }
    if profile.kernels.is_empty() {
        writeln!(out, "\nNo {}.\n", what_is_missing(profile))?;
    } else if view.by == By::Place {
        places::by_place(out, profile, view.top, style, width)?;
    } else if view.by == By::Range {
        ranges::by_range(out, &loaded.profile, view.top, style, width)?;
    } else {
        top_kernels(out, shown, view, style, width)?;
    }
    if shown.kernels.is_none() {
        idle::table(out, &shown.job, style, width)?;
    }
    findings::brief(out, profile, &advice, FINDINGS, style, width)
}

/// What `apex run --universal` did about modules that the driver refused.
fn lowered_modules(loaded: &Loaded) -> impl Iterator<Item = String> {
    let refused = loaded.session.meta.iter().flat_map(|meta| &meta.universal).take(MODULES);
    refused.map(|refused| printable(&format!("--universal: {}", sentence(refused))).into_owned())
}

/// The libraries that `apex run --capability` told another compute capability.
fn told_capabilities(loaded: &Loaded) -> Vec<String> {
    let told: Vec<_> = loaded.session.meta.iter().flat_map(|meta| meta.capability.iter().cloned()).collect();
    let sentences = apex_view::text::capability::sentences(&told).into_iter().take(MODULES);
    sentences.map(|told| printable(&format!("--capability: {told}")).into_owned()).collect()
}

/// Notes on what is wrong with the session's files, and what it means.
fn problems(problems: &[String]) -> Vec<String> {
    let more = problems.len().saturating_sub(PROBLEMS);
    let mut notes: Vec<String> =
        problems.iter().take(PROBLEMS).map(|problem| format!("Damaged or incomplete: {problem}.")).collect();
    if more > 0 {
        notes.push(format!(
            "{} like these, which `apex report --json` lists.",
            units::counted(more as u64, "problem", "problems")
        ));
    }
    notes
}

fn top_kernels(
    out: &mut dyn Write,
    shown: &Shown<'_>,
    view: &View,
    style: Style,
    width: usize,
) -> io::Result<()> {
    let profile = shown.profile();
    let sort = view.sort.unwrap_or(Sort::default_of(profile));
    let launched = profile.kernels.iter().filter(|kernel| kernel.launches.any()).count();
    let title = format!(
        "{} of {}, by {}",
        view.top.min(launched),
        units::counted(launched as u64, "kernel", "kernels"),
        sort.name()
    );
    writeln!(out, "\n{}", style.paint(Ink::Bold, title))?;
    let kernels::Kernels { lines, legend } = kernels::table(profile, &shown.job, sort, view.top, width);
    for (i, line) in lines.into_iter().enumerate() {
        writeln!(out, "{}", if i == 0 { style.paint(Ink::Dim, line) } else { line })?;
    }
    for line in wrap(&legend, width, "") {
        writeln!(out, "{}", style.paint(Ink::Dim, line))?;
    }
    writeln!(out)?;
    let top = kernels::ranked(profile, sort, view.top);
    places::table(out, profile, &top, style, width)?;
    predictions::table(out, profile, &top, style, width)?;
    counts::table(out, profile, &top, style, width)?;
    // Only for selected kernels.
    if shown.kernels.is_some() { lines::table(out, profile, &top, style, width) } else { Ok(()) }
}

/// Describes the number of launches, the cost of recording them, and the losses.
fn recorded(loaded: &Loaded, shown: &Shown<'_>, advice: &Advice, width: usize) -> Vec<String> {
    let verdict = &advice.verdict;
    let launches = apex_view::text::verdict::launches(shown.whole);
    if let Some(sources) = imported(loaded) {
        return lines_of(&[launches, format!("imported from {sources}")], width.min(PARAGRAPH));
    }
    if shown.whole.host.is_some() {
        return wrap(NOT_SEEN, width.min(PARAGRAPH), "");
    }
    let parts = [
        launches,
        head::recorder(&shown.job, advice),
        match verdict.lost_records {
            0 => "0 dropped".into(),
            lost => format!("{} RECORDS DROPPED", units::count(lost)),
        },
    ];
    lines_of(&parts, width.min(PARAGRAPH))
}

/// Parts with ` · ` between, broken into lines between them; within one only where it does not fit
/// a line of its own.
fn lines_of(parts: &[String], width: usize) -> Vec<String> {
    let length = |text: &str| text.chars().count();
    let mut lines: Vec<String> = Vec::new();
    for part in parts {
        match lines.last_mut() {
            Some(line) if length(line) + 3 + length(part) <= width => *line += &format!(" · {part}"),
            _ => lines.extend(wrap(part, width, "")),
        }
    }
    lines
}

/// Describes the command, the machine, and the end of the run.
fn circumstances(loaded: &Loaded) -> Vec<String> {
    let profile = &loaded.profile;
    let devices = profile.devices.iter().map(|device| match device.compute_capability {
        Some((major, minor)) => format!("{} (CC {major}.{minor}, {} SMs)", device.name, device.sms),
        None if device.name.is_empty() => "unknown device".into(),
        None => device.name.clone(),
    });
    let devices = devices.collect::<Vec<_>>().join(", ");
    let command = loaded.command().unwrap_or_else(|| "unknown command".into());
    let dir = apex_untrusted::shown(import::named(&loaded.session.dir));
    let ended = match loaded.session.meta.as_ref().map(|meta| meta.exit) {
        _ if imported(loaded).is_some() => String::new(),
        _ if loaded.profile.host.is_some() => attached(&loaded.session),
        Some(Some(Exit::Code(0))) | None => String::new(),
        Some(Some(Exit::Code(code))) => format!(" (exit status {code})"),
        Some(Some(Exit::Signal(signal))) => format!(" (ended by signal {signal})"),
        Some(None) if apex_live::running(&loaded.session).is_empty() => {
            " (apex was killed before the program ended)".into()
        }
        Some(None) => " (running)".into(),
    };
    let processes = match profile.host.as_ref().map_or(profile.processes.len(), host::processes) {
        1 => String::new(),
        count => format!("{count} processes"),
    };
    let ran_on: Vec<String> = [devices, processes].into_iter().filter(|part| !part.is_empty()).collect();
    // (The command of an import is the trace's name.)
    let is_named_so = imported(loaded).is_some() && dir.ends_with(&command);
    let what = if is_named_so { dir } else { format!("{dir}: {command}{ended}") };
    let notes = Notes::read(&loaded.session.dir).unwrap_or_default();
    let last = notes.notes.last().map(|note| printable(&note.text).into_owned());
    let noted: Vec<String> = notes.headline().into_iter().chain(last).collect();
    let lines = [what, noted.join(" · "), ran_on.join(" · ")];
    lines.into_iter().filter(|line| !line.is_empty()).collect()
}

/// The process that `apex attach` watched, and whether it could end that itself.
fn attached(session: &apex_trace::Session) -> String {
    let meta = session.meta.as_ref();
    let pid = meta.and_then(|meta| meta.pid);
    let to = pid.map_or("several processes".to_owned(), |pid| format!("process {pid}"));
    let end = match meta.is_some_and(apex_trace::Meta::is_over) {
        true => "",
        false if apex_live::running(session).is_empty() => "; apex was killed while it watched",
        false => ", which is watched still",
    };
    format!(" (attached to {to}{end})")
}

/// The profiler of whose traces the session was made.
fn imported(loaded: &Loaded) -> Option<String> {
    let sources = &loaded.session.meta.as_ref()?.imported;
    (!sources.is_empty()).then(|| printable(&sources.join("; ")).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_price_that_somebody_could_pay() {
        for (text, rate) in [("0", 0.0), (" 0.25", 0.25), ("1e6", 1e6)] {
            assert_eq!(parse_rate(text), Ok(rate));
        }
        for text in ["", "-1", "NaN", "inf", "1e7", "0,25"] {
            assert!(parse_rate(text).unwrap_err().contains("from 0 to 1000000"), "{text}");
        }
    }
}
