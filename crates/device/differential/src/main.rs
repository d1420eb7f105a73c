//! `differential`: records what a driver computes, checks another one against it, explains
//! differences.

use anyhow::{Context, Result, bail, ensure};
use apex_differential::case::Case;
use apex_differential::compare::{Difference, Verdict, compare};
use apex_differential::corpus::{Corpus, Manifest};
use apex_differential::digest::{self, Digests};
use apex_differential::recording::{Outcome, Recorded};
use apex_differential::report::{Report, describe, list_rows};
use apex_differential::workers::{CASE_SECONDS, Outcomes, Progress, Share, Workers, work};
use apex_differential::{coverage, generate, known_differences};
use clap::{Args, Parser, Subcommand};
use std::collections::HashSet;
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
        /// Folder of a corpus of the same device and driver: run only the programs that it lacks,
        /// and write both.
        #[arg(long)]
        onto: Option<PathBuf>,
        /// Driver version for the manifest.
        #[arg(long, default_value = "unknown")]
        driver_version: String,
        /// Date for the manifest.
        #[arg(long, default_value = "unknown")]
        date: String,
        /// Keep all results of the programs that run, not only checksums where these do, so that
        /// `explain` shows them; `condense` leaves them out later.
        #[arg(long)]
        whole: bool,
    },
    /// Write a corpus again with checksums in place of the results that need no more.
    Condense {
        /// Folder of the corpus.
        #[arg(long)]
        corpus: PathBuf,
        /// Folder to write it to.
        #[arg(long)]
        out: PathBuf,
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
    /// Write a checksum for each program of a whole recording of programs for compute capability
    /// 9.0.
    Digest {
        /// Folder of the corpus, as `record --hopper --whole` writes it.
        #[arg(long)]
        corpus: PathBuf,
        /// File to write.
        #[arg(long)]
        out: PathBuf,
    },
    /// Run programs for compute capability 9.0 on a driver and compare their checksums with those
    /// of a recording; names those that differ.
    CheckDigests {
        #[command(flatten)]
        run: Run,
        /// The file that `digest` writes.
        #[arg(long)]
        digests: PathBuf,
    },
    /// Show the first difference of a form: PTX, operands, both results; of rows that share a
    /// checksum, what this driver computes.
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
    /// Count the instruction forms that no program has; with `--only`, name them.
    Lacking {
        /// Folder of the corpus; the generated programs if it is missing.
        #[arg(long)]
        corpus: Option<PathBuf>,
        /// Only forms whose names begin so.
        #[arg(long)]
        only: Option<String>,
    },
    /// Write the PTX of all programs into a folder.
    Generate {
        /// The folder.
        out: PathBuf,
        /// In place of these, programs for compute capability 9.0: numbers from 0 on.
        #[arg(long)]
        hopper: Option<u64>,
    },
    /// Run a share of the cases (worker processes).
    #[command(hide = true)]
    Work {
        #[command(flatten)]
        run: Run,
        #[command(flatten)]
        source: Source,
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
    /// Stop after this many seconds.
    #[arg(long)]
    seconds: Option<u64>,
    /// Seconds after which a program counts as hanging.
    #[arg(long, default_value_t = CASE_SECONDS)]
    case_seconds: u32,
    /// Programs for compute capability 9.0, in place of the others: these numbers, from 0 on.
    #[arg(long)]
    hopper: Option<u64>,
    /// Of these only every so many.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    every: u64,
}

/// The source of cases.
#[derive(Args, Clone, Default)]
struct Source {
    /// Folder of the corpus; generated if there is none.
    #[arg(long)]
    corpus: Option<PathBuf>,
    /// Folder of a corpus of the same device: run only the generated cases that it lacks.
    #[arg(long)]
    onto: Option<PathBuf>,
}

impl Source {
    /// The cases whose names begin with `only`.
    fn cases(&self, run: &Run) -> Result<Vec<Case>> {
        let only = run.only.as_str();
        if let Some(folder) = &self.corpus {
            return Ok(read(folder, only)?.cases.into_iter().map(|(case, _)| case).collect());
        }
        let mut cases = match run.hopper {
            Some(count) => numbers(count, run.every).map(generate::hopper::case).collect(),
            None => generate::cases(),
        };
        cases.retain(|case| case.name.starts_with(only));
        if let Some(folder) = &self.onto {
            let there = Corpus::read(folder)?;
            let there: HashSet<&str> = there.cases.iter().map(|(case, _)| case.name.as_str()).collect();
            cases.retain(|case| !there.contains(case.name.as_str()));
        }
        Ok(cases)
    }

    /// The same as arguments of a worker.
    fn arguments(&self) -> Vec<OsString> {
        let named = [("--corpus", &self.corpus), ("--onto", &self.onto)];
        let given = named.into_iter().filter_map(|(name, folder)| Some((name, folder.as_ref()?)));
        given.flat_map(|(name, folder)| [name.into(), folder.into()]).collect()
    }
}

impl Run {
    /// Runs cases in worker processes, which get them from `source`.
    fn outcomes(&self, source: &Source, count: usize) -> Result<Outcomes> {
        let mut command: Vec<OsString> = vec![std::env::current_exe()?.into(), "work".into()];
        command.extend([
            "--driver".into(),
            self.driver.clone().into(),
            "--only".into(),
            self.only.clone().into(),
        ]);
        command.extend(source.arguments());
        command.extend(["--case-seconds".into(), self.case_seconds.to_string().into()]);
        if let Some(count) = self.hopper {
            command.extend(["--hopper".into(), count.to_string().into()]);
            command.extend(["--every".into(), self.every.to_string().into()]);
        }
        let deadline = self.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
        let (workers, progress) = (self.workers.max(1), Progress::default());
        Workers { command, workers, deadline, progress }.run(count)
    }
}

/// The corpus, with the cases whose names begin with `only`.
fn read(folder: &Path, only: &str) -> Result<Corpus> {
    let mut corpus = Corpus::read(folder)?;
    corpus.cases.retain(|(case, _)| case.name.starts_with(only));
    ensure!(!corpus.cases.is_empty(), "no form of the corpus begins with `{only}`");
    Ok(corpus)
}

/// Every so many of the first numbers.
fn numbers(count: u64, every: u64) -> impl Iterator<Item = u64> {
    (0..count).step_by(usize::try_from(every).unwrap_or(usize::MAX))
}

fn digest_corpus(folder: &Path, out: &Path) -> Result<()> {
    let Corpus { manifest, cases } = Corpus::read(folder)?;
    let by_number =
        |case: &Case| case.name.rsplit_once('/').and_then(|(_, number)| number.parse::<u64>().ok());
    let mut digests = vec![None; cases.len()];
    for (case, recorded) in &cases {
        let Recorded::Whole(outcome) = recorded else { bail!("{} is not whole", case.name) };
        let number = by_number(case).filter(|number| generate::hopper::case(*number) == *case);
        let number = number.with_context(|| format!("{} is no program for 9.0 of today", case.name))?;
        let place = digests.get_mut(number as usize).context("a number is missing")?;
        *place = Some(digest::digest(case, outcome));
    }
    let digests = digests.into_iter().collect::<Option<Vec<u32>>>().context("a number is missing")?;
    Digests { manifest, digests }.write(out)
}

fn check_digests(run: &Run, file: &Path) -> Result<bool> {
    let Digests { manifest, digests } = Digests::read(file)?;
    let run = Run {
        hopper: Some(digests.len() as u64),
        driver: run.driver.clone(),
        only: run.only.clone(),
        ..*run
    };
    let source = Source::default();
    let cases = source.cases(&run)?;
    let haul = run.outcomes(&source, cases.len())?;
    let mut wrong = 0;
    for (case, outcome) in cases.iter().zip(&haul.outcomes) {
        let number = case.name.rsplit_once('/').and_then(|(_, number)| number.parse::<usize>().ok());
        let expected = number.and_then(|number| digests.get(number)).context("a program has no number")?;
        let words = match outcome {
            Some(outcome) if digest::digest(case, outcome) == *expected => continue,
            Some(Outcome::Results(_)) => "other results",
            Some(Outcome::Refused(words) | Outcome::Failed(words)) => words,
            None => "not reached",
        };
        wrong += 1;
        println!("{}: {words}", case.name);
    }
    println!("{} against {}: {} programs, {wrong} differ", haul.device, manifest.device, cases.len());
    Ok(wrong == 0)
}

/// Options of a recording.
struct Recording {
    onto: Option<PathBuf>,
    out: PathBuf,
    driver: String,
    date: String,
    whole: bool,
}

fn record(run: &Run, recording: Recording) -> Result<()> {
    let Recording { onto, out, driver, date, whole } = recording;
    let source = Source { onto, ..Source::default() };
    let cases = source.cases(run)?;
    let mut haul = run.outcomes(&source, cases.len())?;
    let missing = haul.outcomes.iter().filter(|outcome| outcome.is_none()).count();
    let ran = cases.into_iter().zip(haul.outcomes).filter_map(|(case, outcome)| Some((case, outcome?)));
    let mut cases: Vec<(Case, Recorded)> =
        ran.map(|(case, outcome)| recorded(case, Recorded::Whole(outcome), whole)).collect();
    for (case, recorded) in &cases {
        if let Recorded::Whole(Outcome::Refused(words) | Outcome::Failed(words)) = recorded {
            println!("{}: {words}", case.name);
        }
    }
    println!("{} programs run, {missing} not reached", cases.len());
    if let Some(folder) = &source.onto {
        let there = Corpus::read(folder)?;
        let (device, other) = (&mut haul.device, there.manifest.device);
        // Where nothing ran, nobody has asked for a device.
        ensure!(cases.is_empty() || *device == other, "{device} adds nothing to a corpus of {other}");
        *device = other;
        cases.extend(there.cases);
        cases.sort_by(|a, b| a.0.name.cmp(&b.0.name));
    }
    let is_refused = |recorded: &Recorded| matches!(recorded, Recorded::Whole(Outcome::Refused(_)));
    let refused = cases.iter().filter(|(_, recorded)| is_refused(recorded)).count();
    let ran = cases.iter().filter(|(_, recorded)| recorded.has_results());
    let results = ran.map(|(case, _)| case.results_compared()).sum();
    println!("{} programs ({refused} refused), {results} results", cases.len());
    let manifest = Manifest { device: haul.device, driver, date, programs: cases.len(), refused, results };
    Corpus { manifest, cases }.write(&out)
}

/// A case with what is kept of it.
fn recorded(case: Case, recorded: Recorded, whole: bool) -> (Case, Recorded) {
    let recorded = if whole { recorded } else { recorded.condensed(&case) };
    (case, recorded)
}

fn condense(folder: &Path, out: &Path) -> Result<()> {
    let Corpus { manifest, cases } = Corpus::read(folder)?;
    let cases = cases.into_iter().map(|(case, kept)| recorded(case, kept, false)).collect();
    Corpus { manifest, cases }.write(out)
}

fn check(run: &Run, folder: &Path, brief: bool) -> Result<bool> {
    let corpus = read(folder, &run.only)?;
    let source = Source { corpus: Some(folder.to_owned()), ..Source::default() };
    let haul = run.outcomes(&source, corpus.cases.len())?;
    let mut report = Report::new(&corpus, &haul.outcomes, &known_differences::read(folder)?);
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
    let run = Run {
        driver: driver.to_owned(),
        only: form.to_owned(),
        workers: 1,
        seconds: None,
        case_seconds: CASE_SECONDS,
        hopper: None,
        every: 1,
    };
    let source = Source { corpus: Some(folder.to_owned()), ..Source::default() };
    let haul = run.outcomes(&source, corpus.cases.len())?;
    for ((case, recorded), found) in corpus.cases.iter().zip(haul.outcomes) {
        let found = found.context("a program did not run")?;
        let words = match compare(case, recorded, &found) {
            Verdict::Equal | Verdict::WithinError => continue,
            Verdict::Differs(differences) => {
                let words =
                    |found: &Difference| format!("{}\n{}", describe(case, found), list_rows(case, found));
                differences.iter().map(words).collect::<String>().trim_end().to_owned()
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

fn lacking(corpus: Option<&Path>, only: Option<&str>) -> Result<()> {
    let cases = match corpus {
        Some(folder) => Corpus::read(folder)?.cases.into_iter().map(|(case, _)| case).collect(),
        None => generate::cases(),
    };
    let (mut all, mut without) = (0, 0);
    for (opcode, forms) in coverage::of(cases.iter()) {
        (all, without) = (all + forms.all, without + forms.lacking.len());
        match only {
            Some(only) => {
                forms.lacking.iter().filter(|form| form.starts_with(only)).for_each(|form| println!("{form}"))
            }
            None if forms.lacking.is_empty() => {}
            None => println!("{opcode}: {} of {}", forms.lacking.len(), forms.all),
        }
    }
    println!("{without} of {all} forms have no program");
    Ok(())
}

fn write_ptx(out: &Path, hopper: Option<u64>) -> Result<()> {
    std::fs::create_dir_all(out)?;
    let cases = match hopper {
        Some(count) => (0..count).map(generate::hopper::case).collect(),
        None => generate::cases(),
    };
    for case in cases {
        let name = case.name.replace(['/', ':'], "-");
        std::fs::write(out.join(format!("{name}.ptx")), case.ptx).with_context(|| case.name)?;
    }
    Ok(())
}

fn run(cli: Cli) -> Result<ExitCode> {
    match cli.command {
        Action::Record { run, onto, out, driver_version: driver, date, whole } => {
            record(&run, Recording { onto, out, driver, date, whole })?;
        }
        Action::Condense { corpus, out } => condense(&corpus, &out)?,
        Action::Check { run, corpus, brief } => {
            if !check(&run, &corpus, brief)? {
                return Ok(ExitCode::FAILURE);
            }
        }
        Action::Digest { corpus, out } => digest_corpus(&corpus, &out)?,
        Action::CheckDigests { run, digests } => {
            if !check_digests(&run, &digests)? {
                return Ok(ExitCode::FAILURE);
            }
        }
        Action::Explain { form, driver, corpus } => explain(&form, &driver, &corpus)?,
        Action::Lacking { corpus, only } => lacking(corpus.as_deref(), only.as_deref())?,
        Action::Generate { out, hopper } => write_ptx(&out, hopper)?,
        Action::Work { run, source, start, stride } => {
            let cases = source.cases(&run)?;
            if stride == 0 {
                bail!("a stride of 0 never ends");
            }
            let share = Share { start, stride, case_seconds: run.case_seconds };
            work(&run.driver, &cases, share, &mut std::io::stdout())?;
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
