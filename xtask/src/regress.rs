//! `cargo xtask regress`: the project's own benchmarks, as lines of a history.
//!
//! Each benchmark is a command of `apex` that a user gives: a run on the CPU device with and
//! without recording, a report, a page, a prediction. What is measured is the processor time of the
//! command and its children, which other work on the machine disturbs less than the time on the
//! clock. Commands take turns, and the least of several rounds counts: nothing makes a command
//! faster than it is.

use crate::root;
use anyhow::{Context, Result, ensure};
use apex_history::{Figures, History, Report, Run};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Where the committed history lies.
pub const HISTORY: &str = "docs/results/regress.jsonl";
/// A figure that is so many times the median of the committed ones is reported as slower.
const SLOWER: f64 = 1.25;

/// What `cargo xtask regress` is asked for.
pub struct Options {
    /// The command that is measured.
    pub apex: PathBuf,
    /// Times that each benchmark runs.
    pub rounds: u32,
    /// The commit that the command was built from; `None` for the one that is checked out.
    pub commit: Option<String>,
    /// Whether the line is added to the committed history.
    pub record: bool,
    /// The page with the charts.
    pub html: PathBuf,
}

/// A benchmark: its name, and the words behind `apex`, in which `{n}` is the number of the round
/// and `{apex}` the command. What recording costs is the difference of the second and the third.
const BENCHMARKS: [(&str, &str); 6] = [
    (
        "CPU device: demo matmul",
        "run --quiet --paused --device cpu -o matmul-{n} -- {apex} demo matmul --bare",
    ),
    ("not recording: demo saxpy", "run --quiet --paused --device cpu -o off-{n} -- {apex} demo saxpy --bare"),
    ("recording: demo saxpy", "run --quiet --device cpu -o on-{n} -- {apex} demo saxpy --bare"),
    ("reading: report of a session of the corpus", "report --json session.tar.xz"),
    ("page: HTML of a session of the corpus", "report --html page.html session.tar.xz"),
    ("prediction: launches of a session of the corpus", "predict --json session.tar.xz"),
];

/// The session that is read.
const SESSION: &str = "data/h200/corpus/torch-micro_batches.tar.xz";

/// Measures, compares, draws. The exit status is 1 if a benchmark is slower than the committed
/// ones.
///
/// # Errors
/// A command fails, or the history cannot be read.
pub fn run(options: &Options) -> Result<ExitCode> {
    let history = read(&root().join(HISTORY))?;
    let run = measure(options)?;
    let slower = compare(&history, &run);
    let mut all = history;
    all.runs.push(run.clone());
    let page = apex_history::page(&Report::of(&all, None), "APEX's own benchmarks");
    std::fs::write(&options.html, page).with_context(|| options.html.display().to_string())?;
    println!("charts: {}", options.html.display());
    if options.record {
        let path = root().join(HISTORY);
        std::fs::create_dir_all(path.parent().expect("a folder"))?;
        let mut file = std::fs::File::options().append(true).create(true).open(path)?;
        file.write_all(run.line().as_bytes())?;
    }
    Ok(if slower { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn read(path: &Path) -> Result<History> {
    match path.exists() {
        true => History::parse(&std::fs::read_to_string(path)?)
            .with_context(|| format!("cannot use {}", path.display())),
        false => Ok(History::default()),
    }
}

/// Prints each figure beside the median of the committed ones of the same machine, and says whether
/// one is slower.
fn compare(history: &History, run: &Run) -> bool {
    let mut slower = false;
    for (name, &value) in &run.figures.varying {
        let of_machine = history.runs.iter().filter(|other| other.device == run.device);
        let mut before: Vec<f64> =
            of_machine.filter_map(|other| other.figures.varying.get(name).copied()).collect();
        before.sort_by(f64::total_cmp);
        let said = match before.get(before.len() / 2) {
            None => "no committed run of this machine".to_owned(),
            Some(&median) => {
                let ratio = value / median;
                slower |= ratio > SLOWER;
                let mark = if ratio > SLOWER { " SLOWER" } else { "" };
                format!("{ratio:.2} of the median of {}{mark}", before.len())
            }
        };
        println!("{name}: {} ms of processor time, {said}", apex_history::number(value));
    }
    slower
}

/// The line of this machine and commit.
fn measure(options: &Options) -> Result<Run> {
    let folder = tempfile::tempdir()?;
    std::fs::copy(root().join(SESSION), folder.path().join("session.tar.xz")).context(SESSION)?;
    let apex = std::path::absolute(&options.apex)?;
    ensure!(apex.exists(), "there is no {}: cargo build --release", apex.display());
    let mut least: BTreeMap<String, f64> = BTreeMap::new();
    for round in 0..options.rounds {
        for (name, words) in BENCHMARKS {
            let words = words.split(' ').map(|word| {
                word.replace("{n}", &round.to_string()).replace("{apex}", &apex.to_string_lossy())
            });
            let ms = processor_ms(Command::new(&apex).args(words).current_dir(folder.path()))?;
            let best = least.entry(name.to_owned()).or_insert(f64::INFINITY);
            *best = best.min(ms);
        }
    }
    let head = || crate::output(Command::new("git").args(["rev-parse", "HEAD"]).current_dir(root()));
    Ok(Run {
        commit: options.commit.clone().map_or_else(head, Ok)?.trim().to_owned(),
        time: crate::output(Command::new("date").args(["-u", "+%Y-%m-%dT%H:%M:%SZ"]))?.trim().to_owned(),
        id: None,
        name: "apex".to_owned(),
        device: processor()?,
        figures: Figures { varying: least, ..Figures::default() },
        kernels: BTreeMap::new(),
    })
}

/// The processor's name and count: figures of other machines are not compared.
fn processor() -> Result<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").context("/proc/cpuinfo")?;
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let name = name.map_or("a processor", |(_, name)| name.trim());
    Ok(format!("{name}, {} cores", std::thread::available_parallelism()?))
}

/// Processor time of a command and its children, in milliseconds: in user and in system mode.
fn processor_ms(command: &mut Command) -> Result<f64> {
    let before = children_ms();
    let done = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).output()?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "{command:?}: {}\n{said}", done.status);
    Ok(children_ms() - before)
}

/// Processor time of all children that were waited for.
fn children_ms() -> f64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is a `rusage` that the call may write; zeroes are one too.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr());
        usage.assume_init()
    };
    let ms = |time: libc::timeval| time.tv_sec as f64 * 1e3 + time.tv_usec as f64 / 1e3;
    ms(usage.ru_utime) + ms(usage.ru_stime)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(ms: f64, device: &str) -> Run {
        let varying = [("reading".to_owned(), ms)].into();
        Run {
            commit: "c".into(),
            time: "2026-11-29T00:00:00Z".into(),
            id: None,
            name: "apex".into(),
            device: device.into(),
            figures: Figures { varying, ..Figures::default() },
            kernels: BTreeMap::new(),
        }
    }

    #[test]
    fn what_is_slower_than_this_machine_was_is_told() {
        let history = History { runs: [100.0, 90.0, 300.0].map(|ms| run(ms, "this")).to_vec() };
        assert!(!compare(&history, &run(120.0, "this")) && compare(&history, &run(130.0, "this")));
        assert!(!compare(&history, &run(1000.0, "another")), "another machine says nothing");
    }

    #[test]
    fn the_committed_history_can_be_used() {
        let history = read(&root().join(HISTORY)).unwrap();
        for run in &history.runs {
            assert!(run.figures.varying.keys().all(|name| BENCHMARKS.iter().any(|(known, _)| known == name)));
        }
    }

    #[test]
    fn the_session_that_is_read_is_there() {
        assert!(root().join(SESSION).is_file());
    }
}
