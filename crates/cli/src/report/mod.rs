//! `apex report`: the verdict, where the time went, the top kernels, the advice.

mod counts;
mod fast;
pub mod findings;
mod head;
pub mod kernels;
mod places;
mod predictions;
mod ranges;

use crate::loaded::{Loaded, Source};
use crate::output::{self, Color};
use crate::text::{Ink, PARAGRAPH, Style, wrap};
use crate::{session, units};
use apex_advice::{Advice, Options};
use apex_predict::Models;
use apex_profile::{Figure, PhaseKind, Profile, Provenance, SiteTotals};
use apex_trace::meta::{Exit, Meta};
use clap::builder::FalseyValueParser;
use head::Shown;
use kernels::Sort;
use serde::Serialize;
use std::borrow::Cow;
use std::io::{self, Write};
use std::process::ExitCode;

/// Kernels in the table unless the user says otherwise.
const TOP: usize = 10;
/// Findings in a report; `apex advise` has them all.
const FINDINGS: usize = 5;

/// Shows what ran, how well, what to change, and what that would save.
#[derive(clap::Args, Debug)]
#[command(after_long_help = "Examples:
  apex report                            the newest session in this folder
  apex report --top 30 --sort cpu before
  apex report --by place                 which lines of the program launch what
  apex report --by range                 what ran inside of NVTX ranges
  apex report --json | jq .advice.verdict

Every figure says where it comes from: measured (with its samples), computed exactly, or predicted.")]
pub struct Args {
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    view: View,
    /// Print JSON (schema apex.report/2)
    #[arg(long, env = "APEX_JSON", value_parser = FalseyValueParser::new())]
    json: bool,
}

/// What the table of a report lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum By {
    /// Kernels
    #[default]
    Kernel,
    /// Places in the program that launch them
    Place,
    /// Ranges that the program names (NVTX)
    Range,
}

/// What of a session is shown.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct View {
    /// Kernels to list
    #[arg(long, value_name = "N", default_value_t = TOP, env = "APEX_TOP")]
    top: usize,
    /// What to rank kernels by [default: time where any was measured, else count]
    #[arg(long, value_enum, env = "APEX_SORT")]
    sort: Option<Sort>,
    /// What to list: kernels, the places in the program that launch them, or its NVTX ranges
    #[arg(long, value_enum, default_value_t = By::Kernel, env = "APEX_BY")]
    by: By,
    #[command(flatten)]
    judged: Judged,
}

/// What is judged, and by which rules.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Judged {
    /// Phase of the run [default: the steady state of a GPU's run, where launches repeat]
    #[arg(long, value_enum, env = "APEX_PHASE")]
    phase: Option<Phase>,
    /// Rules not to report, by identifier or name
    #[arg(long, value_name = "RULE", value_delimiter = ',', env = "APEX_SUPPRESS")]
    suppress: Vec<String>,
}

/// A part of a program's run, found from the repetition of its launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Phase {
    /// Before the first iteration
    Startup,
    /// First iterations, slower than later ones
    Warmup,
    /// Iterations
    Steady,
    /// The whole run
    All,
}

impl Judged {
    /// The profile of the phase that is asked for, and which that is; `None` for the whole run.
    pub fn profile<'p>(&self, whole: &'p Profile) -> (Cow<'p, Profile>, Option<PhaseKind>) {
        let kind = match self.phase {
            // Its times say nothing about a GPU, and its counts are of all launches.
            None if whole.on_cpu_device() => return (Cow::Borrowed(whole), None),
            Some(Phase::Startup) => PhaseKind::Startup,
            Some(Phase::Warmup) => PhaseKind::Warmup,
            Some(Phase::Steady) | None => PhaseKind::Steady,
            Some(Phase::All) => return (Cow::Borrowed(whole), None),
        };
        match whole.in_phase(kind) {
            Some(profile) => (Cow::Owned(profile), Some(kind)),
            None => {
                if self.phase.is_some() {
                    output::remark(format!(
                        "this run has no {}; all of it is shown: --phase finds phases from launches that repeat",
                        kind.name()
                    ));
                }
                (Cow::Borrowed(whole), None)
            }
        }
    }

    /// The rules' judgement, without what the user does not want to hear. Names that no rule has
    /// are remarked upon.
    pub fn advise(&self, profile: &Profile) -> Advice {
        let options =
            Options { suppress: self.suppress.iter().cloned().collect(), models: Some(Models::shipped()) };
        let advice = apex_advice::advise(profile, &options);
        for name in &advice.unknown_suppressions {
            output::remark(format!("--suppress {name}: there is no such rule"));
        }
        advice
    }
}

impl View {
    /// What is shown unless the user says otherwise.
    pub fn usual() -> Self {
        Self { top: TOP, ..Self::default() }
    }
}

/// The document of `--json`.
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    apex_version: &'static str,
    session: String,
    run: Option<&'a Meta>,
    /// The phase that the advice and `top` are of; `null` for the whole run.
    phase: Option<PhaseKind>,
    /// Indices into the profile's kernels, as the table ranks them.
    top: Vec<usize>,
    /// What is launched from where.
    places: Vec<SiteTotals>,
    profile: &'a Profile,
    advice: &'a Advice,
}

/// Runs `apex report`.
pub fn execute(args: &Args, color: Color) -> anyhow::Result<ExitCode> {
    let loaded = args.source.load()?;
    if !args.json {
        let style = Style { color: color.on_stdout() };
        return output::page(|out| write(out, &loaded, &args.view, style, output::width()));
    }
    let (profile, phase) = args.view.judged.profile(&loaded.profile);
    let advice = args.view.judged.advise(&profile);
    let sort = args.view.sort.unwrap_or(Sort::default_of(&profile));
    output::json(&Document {
        schema: "apex.report/2",
        apex_version: env!("CARGO_PKG_VERSION"),
        session: loaded.session.dir.display().to_string(),
        run: loaded.session.meta.as_ref(),
        phase,
        top: kernels::ranked(&profile, sort, args.view.top),
        places: loaded.profile.by_site(),
        profile: &loaded.profile,
        advice: &advice,
    })
}

/// Writes the report as text.
pub fn write(
    out: &mut dyn Write,
    loaded: &Loaded,
    view: &View,
    style: Style,
    width: usize,
) -> io::Result<()> {
    let (profile, phase) = view.judged.profile(&loaded.profile);
    let profile = &*profile;
    let advice = view.judged.advise(profile);
    let shown = Shown { profile, whole: &loaded.profile, phase };
    for line in head::verdict(&shown, &advice, width) {
        writeln!(out, "{}", style.paint(Ink::Bold, line))?;
    }
    head::accounts(out, &shown, style)?;
    writeln!(out)?;
    let notes = head::notes(&shown, &advice).into_iter().flat_map(|note| wrap(&note, width, "  "));
    for line in notes.chain(circumstances(loaded)).chain(recorded(&shown, &advice, width)) {
        writeln!(out, "{}", style.paint(Ink::Dim, line))?;
    }
    for sentence in fast::sentences(profile) {
        for line in wrap(&sentence, width.min(PARAGRAPH), "") {
            writeln!(out, "{line}")?;
        }
    }
    counts::defects(out, profile, style, width)?;
    if profile.kernels.is_empty() {
        writeln!(out, "\nNo {}.\n", what_is_missing(profile))?;
    } else if view.by == By::Place {
        places::by_place(out, profile, view.top, style, width)?;
    } else if view.by == By::Range {
        ranges::by_range(out, &loaded.profile, view.top, style, width)?;
    } else {
        top_kernels(out, profile, view, style, width)?;
    }
    findings::brief(out, profile, &advice, FINDINGS, style, width)
}

fn top_kernels(
    out: &mut dyn Write,
    profile: &Profile,
    view: &View,
    style: Style,
    width: usize,
) -> io::Result<()> {
    let sort = view.sort.unwrap_or(Sort::default_of(profile));
    let launched = profile.kernels.iter().filter(|kernel| kernel.launches.any()).count();
    let title = format!("{} of {launched} kernels, by {}", view.top.min(launched), sort.name());
    writeln!(out, "\n{}", style.paint(Ink::Bold, title))?;
    for (i, line) in kernels::table(profile, sort, view.top, width).into_iter().enumerate() {
        writeln!(out, "{}", if i == 0 { style.paint(Ink::Dim, line) } else { line })?;
    }
    for line in wrap(kernels::LEGEND, width, "") {
        writeln!(out, "{}", style.paint(Ink::Dim, line))?;
    }
    writeln!(out)?;
    let top = kernels::ranked(profile, sort, view.top);
    places::table(out, profile, &top, style, width)?;
    predictions::table(out, profile, &top, style, width)?;
    counts::table(out, profile, &top, style, width)
}

/// How many launches there were, what recording them cost, and what it lost.
fn recorded(shown: &Shown<'_>, advice: &Advice, width: usize) -> Vec<String> {
    let verdict = &advice.verdict;
    let parts = [
        format!("{} launches", units::count(shown.whole.totals.kernels_run())),
        head::recorder(shown.profile, advice),
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

/// What there is none of in a session without launches, and why: `No …`.
fn what_is_missing(profile: &Profile) -> String {
    match profile.recorder.lost() {
        0 => "kernel was launched".to_owned(),
        lost => format!("launch is known: {} lost", units::counted(lost, "record was", "records were")),
    }
}

/// A share with its interval, if it is predicted, and the mark of its provenance.
pub fn share(figure: &Figure) -> String {
    let shown = match figure.interval() {
        Some((low, high)) => units::percent_between(figure.value, low, high),
        None => units::percent(figure.value),
    };
    format!("{shown}{}", mark(figure.provenance()))
}

/// The mark that the legend explains.
pub fn mark(provenance: Provenance) -> char {
    match provenance {
        Provenance::Measured => 'ᵐ',
        Provenance::Computed => 'ᶜ',
        Provenance::Predicted => 'ᵖ',
    }
}

/// What was run, where, and how it ended.
fn circumstances(loaded: &Loaded) -> Vec<String> {
    let profile = &loaded.profile;
    let devices = profile.devices.iter().map(|device| match device.compute_capability {
        Some((major, minor)) => format!("{} (CC {major}.{minor}, {} SMs)", device.name, device.sms),
        None if device.name.is_empty() => "unknown device".into(),
        None => device.name.clone(),
    });
    let devices = devices.collect::<Vec<_>>().join(", ");
    let command = loaded.command().unwrap_or_else(|| "unknown command".into());
    let ended = match loaded.session.meta.as_ref().map(|meta| meta.exit) {
        Some(Some(Exit::Code(0))) | None => String::new(),
        Some(Some(Exit::Code(code))) => format!(" (exit status {code})"),
        Some(Some(Exit::Signal(signal))) => format!(" (ended by signal {signal})"),
        Some(None) if session::running(&loaded.session).is_empty() => {
            " (apex was killed before the program ended)".into()
        }
        Some(None) => " (running)".into(),
    };
    let processes = match profile.processes.len() {
        1 => String::new(),
        count => format!(" · {count} processes"),
    };
    vec![
        format!("{}: {command}{ended}", apex_untrusted::shown(&loaded.session.dir)),
        format!("{devices}{processes}"),
    ]
}
