//! `apex check`: holds runs to budgets, for CI.

use crate::output::{self, Color};
use crate::text::{Align, Ink, Style, Table, wrap};
use crate::{exit, loaded, session, units};
use anyhow::{Context, bail};
use apex_budgets::{Budgets, Judged, Measures, Outcome, Per, Report, Section};
use apex_conventions::documents;
use apex_trace::meta::Exit;
use apex_view::{Filters, Loaded};
use clap::ValueEnum;
use clap::builder::FalseyValueParser;
use serde::Serialize;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Longest file that is read, bytes.
const MOST_BYTES: u64 = 1 << 20;

/// Holds runs to budgets in a file, and fails where one is exceeded.
#[derive(clap::Args, Debug)]
#[command(after_long_help = "Examples:
  apex check --init run-1 run-2 run-3       write budgets that these runs keep
  apex check --init --force run-4           write them anew
  apex check                                the newest session in this folder
  apex check run-4 run-5                    repeated runs: their mean is judged
  apex check --figures s                    all figures that can have a limit, as JSON
  apex run --device cpu --check -o s -- ./test && apex check s
                                            CI without a GPU: launches, bytes, sectors, races
  apex check --format github s              annotations of GitHub Actions
  apex check --format junit s > check.xml

Exits with status 1 if a limit is not kept. Counts on the CPU device are exact; a time has a margin \
that one unchanged run in 2000 exceeds, at least 2%. Runs on a GPU and on the CPU device have sections of their own in the file.")]
pub struct Args {
    /// Sessions of the same program [default: the newest session in this folder]
    #[arg(value_name = "SESSION")]
    sessions: Vec<PathBuf>,
    /// The file with the budgets
    #[arg(long, value_name = "FILE", default_value = "apex-budgets.toml")]
    budgets: PathBuf,
    /// Write limits that these sessions keep into the file. Its section for the other kind of
    /// device stays
    #[arg(long, value_parser = FalseyValueParser::new(), conflicts_with_all = ["json", "format"])]
    init: bool,
    /// With --init: replace limits that the file has for this kind of device
    #[arg(long, value_parser = FalseyValueParser::new(), requires = "init")]
    force: bool,
    #[arg(long, help = format!("Print the figures of each session as JSON (schema {}), and judge nothing", documents::FIGURES), value_parser = FalseyValueParser::new(), conflicts_with_all = ["json", "format", "init"])]
    figures: bool,
    /// With --init or --figures: sums of the run, or of a step where launches repeat on a GPU
    /// [default: of a step where there are steps]
    #[arg(long, value_name = "UNIT")]
    per: Option<Unit>,
    /// How the result is printed
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    format: Format,
    #[arg(long, help = format!("Print JSON (schema {})", documents::CHECK), value_parser = FalseyValueParser::new(), conflicts_with = "format")]
    json: bool,
}

/// How a result is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A table
    Text,
    /// A table in Markdown, as for `$GITHUB_STEP_SUMMARY`
    Markdown,
    /// Annotations of GitHub Actions: a line for each limit that is not kept
    Github,
    /// XML of JUnit: a test for each limit
    Junit,
}

/// The unit of sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Unit {
    Step,
    Run,
}

impl Unit {
    fn per(self) -> Per {
        match self {
            Self::Step => Per::Step,
            Self::Run => Per::Run,
        }
    }
}

/// The document of `--figures`.
#[derive(Serialize)]
struct Figures<'a> {
    runs: Vec<FiguresOfRun<'a>>,
}

#[derive(Serialize)]
struct FiguresOfRun<'a> {
    session: String,
    #[serde(flatten)]
    measures: &'a Measures,
}

#[derive(Serialize)]
struct Document<'a> {
    #[serde(serialize_with = "output::path_in_document")]
    budgets: PathBuf,
    sessions: Vec<String>,
    device: &'static str,
    per: Per,
    kept: bool,
    #[serde(flatten)]
    report: &'a Report,
}

/// Runs `apex check`.
pub fn execute(args: &Args, color: Color) -> anyhow::Result<ExitCode> {
    let sessions = match &args.sessions[..] {
        [] => vec![session::choose_recorded(None)?],
        named => named.to_vec(),
    };
    let (sessions, loaded) = loaded_once(&sessions)?;
    let per = args.per.map(Unit::per);
    if args.figures {
        let runs = measured(&sessions, &loaded, per)?;
        let runs = sessions.iter().zip(&runs).map(|(path, measures)| {
            let session = path.to_string_lossy().into_owned();
            FiguresOfRun { session, measures }
        });
        return output::json(documents::FIGURES, &Figures { runs: runs.collect() });
    }
    refuse_mixture(&sessions, &loaded)?;
    if args.init {
        let runs = measured(&sessions, &loaded, per)?;
        refuse_idle(&sessions, &runs)?;
        return init(&args.budgets, &runs, args.force);
    }
    if per.is_some() {
        bail!("--per is of --init and --figures: a file of budgets says itself what its sums are of");
    }
    let budgets = read(&args.budgets)?.with_context(|| {
        let file = apex_untrusted::shown(&args.budgets);
        format!("there is no {file}: write one from runs that are as they should be, `apex check --init SESSION...`")
    })?;
    // Sums of the whole run are known of each run, also where its launches repeat.
    let on_cpu_device = loaded[0].profile.on_cpu_device();
    let per = budgets.section(on_cpu_device).map(|section| section.per).filter(|per| *per == Per::Run);
    let runs = measured(&sessions, &loaded, per)?;
    refuse_idle(&sessions, &runs)?;
    let section = section(&budgets, &args.budgets, &runs)?;
    let report = Report::of(section, &runs);
    print(args, color, &sessions, &runs[0], &report)?;
    Ok(if report.is_kept() { ExitCode::SUCCESS } else { ExitCode::from(exit::NO) })
}

/// Reads sessions that are whole, each once: a run that is named twice is no second run.
pub fn loaded_once(sessions: &[PathBuf]) -> anyhow::Result<(Vec<PathBuf>, Vec<Loaded>)> {
    let (mut paths, mut all): (Vec<PathBuf>, Vec<Loaded>) = (Vec::new(), Vec::new());
    for path in sessions {
        let loaded = loaded::read(path, &Filters::default())?;
        refuse_broken(path, &loaded)?;
        if let Some(first) = all.iter().position(|other| is_same_run(other, &loaded)) {
            let [path, first] = [path, &paths[first]].map(apex_untrusted::shown);
            output::remark(format!("{path} is the same run as {first}: it counts once"));
            continue;
        }
        paths.push(path.clone());
        all.push(loaded);
    }
    Ok((paths, all))
}

/// Whether two sessions are of one run: from one folder, or copies of it.
fn is_same_run(a: &Loaded, b: &Loaded) -> bool {
    let started = |loaded: &Loaded| {
        let meta = loaded.session.meta.as_ref()?;
        Some((meta.started_real_ns, meta.pid, meta.host.name.clone()))
    };
    let folder = |loaded: &Loaded| loaded.session.dir.canonicalize().ok();
    match (started(a), started(b)) {
        (Some(a), Some(b)) => a == b,
        _ => folder(a).is_some_and(|of_a| folder(b) == Some(of_a)),
    }
}

/// Refuses runs of different programs, whose figures have nothing to do with each other, and says
/// where the arguments of one program differ.
fn refuse_mixture(sessions: &[PathBuf], loaded: &[Loaded]) -> anyhow::Result<()> {
    let commands = sessions.iter().zip(loaded);
    let mut commands =
        commands.filter_map(|(path, loaded)| Some((path, &loaded.session.meta.as_ref()?.command)));
    let Some((first, expected)) = commands.next() else { return Ok(()) };
    let mut differ = false;
    for (path, found) in commands {
        if program(found) != program(expected) {
            bail!(
                "{} and {} are runs of different programs, `{}` and `{}`: give each program a file of its own \
                 (`--budgets FILE`)",
                apex_untrusted::shown(first),
                apex_untrusted::shown(path),
                program(expected).join(" "),
                program(found).join(" ")
            );
        }
        differ |= found != expected;
    }
    if differ {
        output::remark("the runs have different arguments: their figures are taken as those of one program");
    }
    Ok(())
}

/// The words of a command that name the program: the first one, and of an interpreter of Python
/// those up to its script or module. Of a shell with `-c`, they are those of the first command of
/// its text.
pub fn program(command: &[String]) -> Vec<&str> {
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    match shell_text(&words) {
        Some(text) if !text.is_empty() => named_by(&text),
        _ => named_by(&words),
    }
}

/// The words of the text that a shell is given with `-c`, from its first command on.
fn shell_text<'a>(words: &[&'a str]) -> Option<Vec<&'a str>> {
    const SHELLS: [&str; 5] = ["sh", "bash", "dash", "zsh", "ksh"];
    let shell = Path::new(words.first()?).file_name()?.to_str()?;
    let is_shell = SHELLS.contains(&shell);
    let is_text = |word: &&str| word.starts_with('-') && !word.starts_with("--") && word.ends_with('c');
    let at = words.iter().skip(1).position(is_text).filter(|_| is_shell)? + 2;
    let text = words_of(words.get(at)?).into_iter();
    Some(text.skip_while(|word| *word == "exec" || is_assignment(word)).collect())
}

/// Splits a shell's text into words, which may be quoted. Other syntax of shells does not matter
/// for the name of a program.
fn words_of(text: &str) -> Vec<&str> {
    let mut rest = text.trim_start();
    let mut words = Vec::new();
    while let Some(first) = rest.chars().next() {
        let is_quote = matches!(first, '"' | '\'');
        let from = &rest[usize::from(is_quote)..];
        let end = from.find(|c: char| if is_quote { c == first } else { c.is_whitespace() });
        let (word, after) = from.split_at(end.unwrap_or(from.len()));
        words.push(word);
        rest = after.strip_prefix(first).filter(|_| is_quote).unwrap_or(after).trim_start();
    }
    words
}

/// Whether a word of a shell sets a variable: `NAME=value`.
fn is_assignment(word: &str) -> bool {
    let is_name =
        |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    word.split_once('=').is_some_and(|(name, _)| is_name(name))
}

fn named_by<'a>(words: &[&'a str]) -> Vec<&'a str> {
    let name = words.first().and_then(|word| Path::new(word).file_name());
    let is_python = name.is_some_and(|name| name.to_string_lossy().starts_with("python"));
    let options = words.iter().skip(1).take_while(|word| word.starts_with('-')).count();
    let count = if is_python { options + 2 } else { 1 };
    words.iter().take(count).copied().collect()
}

/// The figures of sessions, which must be comparable.
pub fn measured(sessions: &[PathBuf], loaded: &[Loaded], per: Option<Per>) -> anyhow::Result<Vec<Measures>> {
    let is_checked = |loaded: &Loaded| loaded.session.meta.as_ref().is_some_and(|meta| meta.checked);
    let filters = Filters::default();
    let runs: Vec<Measures> = match per {
        Some(Per::Run) => {
            loaded.iter().map(|loaded| Measures::of(&loaded.profile, is_checked(loaded), per)).collect()
        }
        _ => {
            let shown = filters.shown_alike(loaded)?;
            let shown = shown.iter().zip(loaded);
            shown.map(|(shown, loaded)| Measures::of(&shown.job, is_checked(loaded), per)).collect()
        }
    };
    for (path, run) in sessions.iter().zip(&runs) {
        let shown = apex_untrusted::shown(path);
        if run.on_cpu_device != runs[0].on_cpu_device {
            let first = apex_untrusted::shown(&sessions[0]);
            bail!("{shown} and {first} are not comparable: one ran on the CPU device, the other on a GPU");
        }
        if per == Some(Per::Step) && run.per != Per::Step {
            bail!(
                "{shown} has no steps: launches that repeat too seldom give none. Record longer, or use `--per run`"
            );
        }
        if run.per != runs[0].per {
            let first = apex_untrusted::shown(&sessions[0]);
            bail!(
                "{shown} and {first} are not comparable: the launches of one repeat, those of the other do not"
            );
        }
    }
    Ok(runs)
}

/// Refuses a run that launched nothing.
fn refuse_idle(sessions: &[PathBuf], runs: &[Measures]) -> anyhow::Result<()> {
    let idle = sessions.iter().zip(runs).find(|(_, run)| run.kernels.is_empty());
    idle.map_or(Ok(()), |(path, _)| {
        let shown = apex_untrusted::shown(path);
        bail!("{shown} has no kernel launches: there is nothing to hold to a budget")
    })
}

/// Refuses a run that failed, and a session that lacks a part: what they did not do is no saving.
fn refuse_broken(path: &Path, loaded: &Loaded) -> anyhow::Result<()> {
    let shown = apex_untrusted::shown(path);
    if loaded.session.meta.as_ref().is_some_and(|meta| meta.attached) {
        bail!(
            "{shown} was made by `apex attach`, which does not see launches: there is nothing to count; record the \
             program with `apex run`"
        );
    }
    let recorder = &loaded.profile.recorder;
    if !recorder.problems.is_empty() || recorder.lost() > 0 {
        bail!("{shown} lacks records, so that its figures are too small: record it again");
    }
    match loaded.session.meta.as_ref().and_then(|meta| meta.exit) {
        Some(Exit::Code(code)) if code != 0 => {
            bail!("the program of {shown} ended with exit status {code}: only a run that succeeds is judged")
        }
        Some(Exit::Signal(signal)) => {
            bail!("the program of {shown} was ended by signal {signal}: only a run that succeeds is judged")
        }
        _ => Ok(()),
    }
}

/// The file's budgets; `None` if there is no file.
fn read(path: &Path) -> anyhow::Result<Option<Budgets>> {
    let shown = || apex_untrusted::shown(path);
    if !path.try_exists().with_context(|| format!("cannot read {}", shown()))? {
        return Ok(None);
    }
    let text = apex_untrusted::read::read_to_string(path, MOST_BYTES)
        .with_context(|| format!("cannot read {}", shown()))?;
    Ok(Some(Budgets::parse(&text).with_context(|| format!("cannot use {}", shown()))?))
}

/// The section that judges these runs.
fn section<'b>(budgets: &'b Budgets, path: &Path, runs: &[Measures]) -> anyhow::Result<&'b Section> {
    let file = apex_untrusted::shown(path);
    let name = device(&runs[0]);
    let section = budgets.section(runs[0].on_cpu_device).with_context(|| {
        format!("{file} has no limits for runs on {name}: add them with `apex check --init SESSION...`")
    })?;
    if section.limits.is_empty() && section.kernels.values().all(std::collections::BTreeMap::is_empty) {
        bail!("{file} has no limit for runs on {name}: nothing would be judged");
    }
    if section.per != runs[0].per {
        bail!(
            "the limits for runs on {name} in {file} are of a {}, but this run has figures of a {}: launches that repeat \
             too seldom give no steps. Record longer, or write the limits anew with `apex check --init --force SESSION...`",
            section.per.name(),
            runs[0].per.name()
        );
    }
    Ok(section)
}

fn device(run: &Measures) -> &'static str {
    if run.on_cpu_device { "the CPU device" } else { "a GPU" }
}

/// Writes limits that runs keep. Those that are there may have been edited, so only `force`
/// replaces them.
fn init(path: &Path, runs: &[Measures], force: bool) -> anyhow::Result<ExitCode> {
    let mut budgets = read(path)?.unwrap_or_default();
    if !force && budgets.section(runs[0].on_cpu_device).is_some() {
        bail!(
            "{} already has limits for runs on {}: replace them with --force, or name another file with --budgets",
            apex_untrusted::shown(path),
            device(&runs[0])
        );
    }
    let section = Section::of(runs);
    let limits =
        section.limits.len() + section.kernels.values().map(std::collections::BTreeMap::len).sum::<usize>();
    budgets.set(runs[0].on_cpu_device, section);
    let shown = apex_untrusted::shown(path);
    std::fs::write(path, budgets.text()).with_context(|| format!("cannot write {shown}"))?;
    output::remark(format!(
        "wrote {} for runs on {} into {shown}; take out or raise what may change, and commit it",
        units::counted(limits as u64, "limit", "limits"),
        device(&runs[0])
    ));
    if !runs[0].on_cpu_device && runs.len() < 3 {
        output::remark(
            "times have a margin of 10%, because their spread is not known: give five runs or more for one that fits",
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn print(
    args: &Args,
    color: Color,
    sessions: &[PathBuf],
    run: &Measures,
    report: &Report,
) -> anyhow::Result<ExitCode> {
    if args.json {
        let document = Document {
            budgets: args.budgets.clone(),
            sessions: sessions.iter().map(|path| path.display().to_string()).collect(),
            device: if run.on_cpu_device { "cpu" } else { "gpu" },
            per: run.per,
            kept: report.is_kept(),
            report,
        };
        return output::json(documents::CHECK, &document);
    }
    let title = format!(
        "apex check {}",
        sessions.iter().map(apex_untrusted::shown).map(|s| s.to_string()).collect::<Vec<_>>().join(" ")
    );
    match args.format {
        Format::Text => {
            let style = Style { color: color.on_stdout() };
            output::page(|out| write_text(out, report, run.per, style, output::width()))
        }
        Format::Markdown => output::page(|out| write!(out, "{}", apex_budgets::markdown(report, &title))),
        Format::Github => output::page(|out| write!(out, "{}", apex_budgets::github(report, &title))),
        Format::Junit => output::page(|out| write!(out, "{}", apex_budgets::junit(report, &title))),
    }
}

fn write_text(out: &mut dyn Write, report: &Report, per: Per, style: Style, width: usize) -> io::Result<()> {
    let failed: Vec<&Judged> = report.failures().collect();
    let limits = units::counted(report.judged.len() as u64, "limit", "limits");
    let first = match &failed[..] {
        [] if report.judged.len() == 1 => "The limit is kept.".to_owned(),
        [] => format!("All {limits} are kept."),
        [one] => format!("{} {}.", one.what(), one.said()),
        [one, rest @ ..] => {
            format!("{} {}, and {} more of {limits} are not kept.", one.what(), one.said(), rest.len())
        }
    };
    for line in wrap(&first, width, "  ") {
        writeln!(out, "{}", style.paint(Ink::Bold, line))?;
    }
    writeln!(out)?;
    let mut table = Table::new(&[
        ("", Align::Left),
        ("figure", Align::Left),
        ("value", Align::Right),
        ("limit", Align::Right),
    ]);
    // A long list of kernels that are as they should be would hide the one that is not.
    let is_listed = |judged: &&Judged| judged.kernel.is_none() || judged.outcome != Outcome::Kept;
    for judged in report.judged.iter().filter(is_listed) {
        let mark = if judged.outcome == Outcome::Kept { "kept" } else { "NOT KEPT" };
        let value = judged.value.map_or("not known".to_owned(), apex_budgets::number);
        table.row(vec![mark.to_owned(), judged.what(), value, apex_budgets::number(judged.limit)]);
    }
    for (at, line) in table.lines(width).into_iter().enumerate() {
        writeln!(out, "{}", if at == 0 { style.paint(Ink::Dim, line) } else { line })?;
    }
    let more = report.judged.iter().filter(|judged| !is_listed(judged)).count() as u64;
    let note = format!(
        "{} of kernels {} kept, and not listed. Sums are of a {}, over {}.",
        units::counted(more, "limit", "limits"),
        if more == 1 { "is" } else { "are" },
        per.name(),
        units::counted(report.runs as u64, "run", "runs")
    );
    for line in wrap(&note, width, "  ") {
        writeln!(out, "{}", style.paint(Ink::Dim, line))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_named_by_its_command_its_script_or_what_a_shell_starts() {
        for (command, expected) in [
            (&["./tests/run", "2"][..], &["./tests/run"][..]),
            (&["python3", "-u", "train.py", "3"], &["python3", "-u", "train.py"]),
            (&["bash", "-eo", "pipefail", "-c", "'./build/my tests' 2"], &["./build/my tests"]),
            (&["bash", "-c", "'unfinished"], &["unfinished"]),
            (&["sh", "-c", "A=1 exec python train.py 4"], &["python", "train.py"]),
            (&["/bin/bash", "script.sh"], &["/bin/bash"]),
            (&["bash", "-c", ""], &["bash"]),
            (&["bash", "-c"], &["bash"]),
            (&[], &[]),
        ] {
            let command: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
            assert_eq!(program(&command), expected, "{command:?}");
        }
    }
}
