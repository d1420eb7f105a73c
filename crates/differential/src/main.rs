//! `differential`: records what a driver computes, checks another one against it, explains differences.

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Parser, Subcommand};
use differential::case::Case;
use differential::compare::{Outcome, Verdict, compare};
use differential::corpus::{Corpus, Manifest};
use differential::fleet::{Fleet, Share, work};
use differential::report::{Report, describe};
use differential::{generate, known};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Runs random PTX on CUDA drivers and compares what they compute.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Generate programs, run them on a driver, and write the corpus.
    Record {
        #[command(flatten)]
        run: Run,
        /// Folder to write the corpus to.
        #[arg(long)]
        out: PathBuf,
        /// Driver version for the manifest.
        #[arg(long, default_value = "unknown")]
        driver_version: String,
        /// Date for the manifest.
        #[arg(long, default_value = "unknown")]
        date: String,
    },
    /// Run a corpus on a driver and compare: a line for each form, then the differences.
    Check {
        #[command(flatten)]
        run: Run,
        /// Folder of the corpus.
        #[arg(long)]
        corpus: PathBuf,
        /// Print only differences and totals.
        #[arg(long)]
        brief: bool,
    },
    /// Show the first difference of a form: PTX, operands, both results.
    Explain {
        /// Form, as `check` prints it.
        form: String,
        /// The driver: path or name of a libcuda.so.1.
        #[arg(long)]
        driver: String,
        /// Folder of the corpus.
        #[arg(long)]
        corpus: PathBuf,
    },
    /// Write the PTX of all programs into a folder.
    Generate {
        /// The folder.
        out: PathBuf,
    },
    /// What worker processes do.
    #[command(hide = true)]
    Work {
        #[command(flatten)]
        run: Run,
        #[arg(long)]
        corpus: Option<PathBuf>,
        #[arg(long)]
        start: usize,
        #[arg(long)]
        stride: usize,
    },
}

#[derive(Args)]
struct Run {
    /// The driver: path or name of a libcuda.so.1.
    #[arg(long)]
    driver: String,
    /// Only forms whose names begin so.
    #[arg(long, default_value = "")]
    only: String,
    /// Processes that run programs.
    #[arg(long, default_value_t = 2)]
    workers: usize,
    /// Stop after so many seconds, done or not.
    #[arg(long)]
    seconds: Option<u64>,
}

impl Run {
    /// Runs cases in worker processes, which read them from `corpus` or generate them.
    fn outcomes(&self, corpus: Option<&Path>, count: usize) -> Result<differential::fleet::Haul> {
        let mut command: Vec<OsString> = vec![std::env::current_exe()?.into(), "work".into()];
        command.extend([
            "--driver".into(),
            self.driver.clone().into(),
            "--only".into(),
            self.only.clone().into(),
        ]);
        if let Some(corpus) = corpus {
            command.extend(["--corpus".into(), corpus.into()]);
        }
        let deadline = self.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
        Fleet { command, workers: self.workers.max(1), deadline }.run(count)
    }
}

/// The generated cases whose names begin with `only`.
fn generated(only: &str) -> Vec<Case> {
    generate::cases().into_iter().filter(|case| case.name.starts_with(only)).collect()
}

/// The corpus, with the cases whose names begin with `only`.
fn read(folder: &Path, only: &str) -> Result<Corpus> {
    let mut corpus = Corpus::read(folder)?;
    corpus.cases.retain(|(case, _)| case.name.starts_with(only));
    ensure!(!corpus.cases.is_empty(), "no form of the corpus begins with `{only}`");
    Ok(corpus)
}

fn record(run: &Run, out: &Path, driver: String, date: String) -> Result<()> {
    let cases = generated(&run.only);
    let haul = run.outcomes(None, cases.len())?;
    let missing = haul.outcomes.iter().filter(|outcome| outcome.is_none()).count();
    let cases: Vec<(Case, Outcome)> =
        cases.into_iter().zip(haul.outcomes).filter_map(|(case, outcome)| Some((case, outcome?))).collect();
    let refused = cases.iter().filter(|(_, outcome)| matches!(outcome, Outcome::Refused(_))).count();
    let ran = cases.iter().filter(|(_, outcome)| matches!(outcome, Outcome::Results(_)));
    let results = ran.map(|(case, _)| case.results_compared()).sum();
    for (case, outcome) in &cases {
        if let Outcome::Refused(words) | Outcome::Failed(words) = outcome {
            println!("{}: {words}", case.name);
        }
    }
    let manifest = Manifest { device: haul.device, driver, date, programs: cases.len(), refused, results };
    println!("{} programs ({refused} refused), {results} results, {missing} not reached", cases.len());
    Corpus { manifest, cases }.write(out)
}

fn check(run: &Run, folder: &Path, brief: bool) -> Result<bool> {
    let corpus = read(folder, &run.only)?;
    let haul = run.outcomes(Some(folder), corpus.cases.len())?;
    let mut report = Report::new(&corpus, &haul.outcomes, &known::read(folder)?);
    if !run.only.is_empty() || run.seconds.is_some() {
        report.stale.clear();
    }
    if !brief {
        print!("{}", report.table());
    }
    print!("{} against {}: {report}", haul.device, corpus.manifest.device);
    Ok(report.unexplained().next().is_none() && report.stale.is_empty())
}

fn explain(form: &str, driver: &str, folder: &Path) -> Result<()> {
    let corpus = read(folder, form)?;
    let run = Run { driver: driver.to_owned(), only: form.to_owned(), workers: 1, seconds: None };
    let haul = run.outcomes(Some(folder), corpus.cases.len())?;
    for ((case, recorded), found) in corpus.cases.iter().zip(haul.outcomes) {
        let found = found.context("a program did not run")?;
        let words = match compare(case, recorded, &found) {
            Verdict::Equal | Verdict::WithinError => continue,
            Verdict::Differs(cells) => {
                cells.iter().map(|cell| describe(case, cell)).collect::<Vec<_>>().join("\n")
            }
            Verdict::Refused(words) => format!("refused: {words}"),
            Verdict::NotRecorded(words) => format!("refused by {}: {words}", corpus.manifest.device),
            Verdict::Failed(words) => words,
        };
        println!("{}\n{}: {words}", case.ptx, case.name);
        return Ok(());
    }
    println!("all {} programs of {form} agree", corpus.cases.len());
    Ok(())
}

fn write_ptx(out: &Path) -> Result<()> {
    std::fs::create_dir_all(out)?;
    for case in generate::cases() {
        let name = case.name.replace(['/', ':'], "-");
        std::fs::write(out.join(format!("{name}.ptx")), case.ptx).with_context(|| case.name)?;
    }
    Ok(())
}

fn run(cli: Cli) -> Result<ExitCode> {
    match cli.command {
        Action::Record { run, out, driver_version, date } => record(&run, &out, driver_version, date)?,
        Action::Check { run, corpus, brief } => {
            if !check(&run, &corpus, brief)? {
                return Ok(ExitCode::FAILURE);
            }
        }
        Action::Explain { form, driver, corpus } => explain(&form, &driver, &corpus)?,
        Action::Generate { out } => write_ptx(&out)?,
        Action::Work { run, corpus, start, stride } => {
            let cases = match corpus {
                Some(folder) => read(&folder, &run.only)?.cases.into_iter().map(|(case, _)| case).collect(),
                None => generated(&run.only),
            };
            if stride == 0 {
                bail!("a stride of 0 never ends");
            }
            work(&run.driver, &cases, Share { start, stride }, &mut std::io::stdout())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn main() -> ExitCode {
    run(Cli::parse()).unwrap_or_else(|error| {
        eprintln!("differential: {error:#}");
        ExitCode::FAILURE
    })
}
