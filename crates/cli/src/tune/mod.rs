//! `apex tune`: finds launch shapes that cost time, proves which other ones change no result, and
//! measures them on the program's own launches.
//!
//! It runs the program up to three times by `apex run`: to record it, to try blocks, and to confirm
//! the best ones ([`apex_tune`]). The profile that it writes is what `apex run --tuned` applies.
//! `--verify` compares the program's results with it and without ([`verify`]).

mod declared;
mod name;
mod runs;
mod text;
mod verify;

use crate::output::{self, Color};
use crate::run::driver::{Device, Driver};
use crate::run::libraries::Libraries;
use crate::run::{Fast, child};
use crate::text::Style;
use crate::{exit, loaded, tuned, units};
use anyhow::{Context, bail};
use apex_conventions::documents::{SEARCHED, TUNED, VERIFIED};
use apex_predict::Models;
use apex_trace::Session;
use apex_tune::{Tuning, document};
use apex_untrusted::replace;
use clap::builder::FalseyValueParser;
use launch_condition::Plan;
use runs::Runs;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};

/// Runs of the program at most.
const RUNS: usize = 3;

/// Finds launch shapes that cost time, and better ones that change no result.
///
/// The program runs up to three times: it is recorded; then launches of kernels for which a proof
/// allows other blocks draw between the program's block and others; then between the program's and
/// the best one. No run makes more launches than the program. The profile lists the blocks that are
/// faster, and why other kernels keep theirs.
#[derive(clap::Args, Debug)]
#[command(after_long_help = "Examples:
  apex tune -- ./stencil 4096
  apex tune -o stencil.json --budget 5 -- ./stencil 4096
  apex tune --json -- python simulate.py > tuned.json
  apex run --tuned stencil.tuned.json -- ./stencil 4096
  apex tune --verify -- ./stencil 4096
  apex tune --verify --fast=batch -- ./stencil 4096
  apex tune --space space.json -- ./bench --block {block} --tile {tile}
  apex tune --space space.json --depends k.cu -- sh -c 'nvcc {defines} k.cu -o k && ./k'
  apex tune --replay results.json --strategy random --trials 5% --seed 7

Kernels must be loaded as PTX (NVRTC, Numba, CuPy with CUPY_COMPILE_WITH_PTX=1, nvcc -code=compute_90): of machine code \
nothing is proven. If the profile exists, what it has decided stays, and only new kernels and sizes are tried. \
docs/tune.md explains the proof and the measurement.

With --space, COMMAND runs once for each configuration and prints its time; a failing one is recorded and skipped. The \
original stays unless pairs of runs show that the best is faster. Results are kept in a T4 file (-o, by default \
SPACE.results.json), from which the same command goes on after an interrupt.

Exits with status 0 if the profile was written, all that --verify compared is the same, or a configuration succeeded; \
with status 1 if the program failed or launched no kernel, --verify found a difference or nothing to compare, no \
configuration succeeded, or the search was interrupted; 2 if the command line is wrong, and \
125 if APEX failed (apex help exit-codes).")]
pub struct Args {
    /// Profile to write, to add to or to verify; `-` prints it and writes no file. With --space:
    /// the file of results
    /// [default: PROGRAM.tuned.json, or SCRIPT.tuned.json of an interpreter; SPACE.results.json]
    #[arg(short, long, value_name = "PROFILE")]
    output: Option<PathBuf>,
    /// Maximum share of the program's time that timing may take in each run, in percent
    #[arg(long, value_name = "PERCENT", default_value = "2", value_parser = units::parse_percent)]
    budget: f64,
    /// Run the program twice without the profile and once with it, and compare each copy to the
    /// host and each allocation at its end, bit by bit. Works on the CPU device as well
    #[arg(long, value_parser = FalseyValueParser::new())]
    verify: bool,
    /// With --verify: make the run with the profile in this way, too [values: queue, batch, or
    /// both]
    #[arg(
        long,
        requires = "verify",
        value_enum,
        value_name = "HOW",
        num_args = 0..=1,
        require_equals = true,
        value_delimiter = ',',
        default_missing_value = "queue",
        hide_possible_values = true
    )]
    fast: Vec<Fast>,
    #[arg(long, help = format!("Print the profile as JSON (schema {TUNED}), what --verify found ({VERIFIED}), or what --space found ({SEARCHED})"), value_parser = FalseyValueParser::new())]
    json: bool,
    /// The program and its arguments
    #[arg(
        required_unless_present_any = ["ask", "replay"],
        trailing_var_arg = true,
        value_name = "COMMAND"
    )]
    command: Vec<OsString>,
    #[command(flatten)]
    declared: declared::Declared,
}

/// Runs `apex tune`.
pub fn execute(args: &Args, color: Color) -> anyhow::Result<ExitCode> {
    let path = || args.output.clone().unwrap_or_else(|| name::of_profile(&args.command));
    let done = if args.declared.is_given() {
        declared::execute(&args.declared, &args.command, args.output.as_deref(), args.json, color)
    } else if args.verify {
        verify::execute(args, &path())
    } else {
        search(args, &path(), color)
    };
    let remark = match done {
        Ok(code) => return Ok(code),
        Err(Stopped::Failed(error)) => return Err(error),
        Err(Stopped::Interrupted(Some(signal))) => child::end_by(signal),
        Err(Stopped::Interrupted(None)) => "interrupted".to_owned(),
        Err(Stopped::Program(status)) => format!("the program failed ({status})"),
        Err(Stopped::NoLaunch) => "the program launched no kernel".to_owned(),
    };
    output::remark(format!("{remark}: nothing was {}", if args.verify { "compared" } else { "tuned" }));
    Ok(ExitCode::from(exit::NO))
}

/// Finds better blocks, and writes the profile.
fn search(args: &Args, path: &Path, color: Color) -> Result<ExitCode, Stopped> {
    refuse_without_gpu()?;
    let only_prints = path == Path::new("-");
    let earlier =
        (!only_prints && path.exists()).then(|| tuned::load(path)).transpose().with_context(|| {
            format!("cannot add to {}; name another file with -o", apex_untrusted::shown(path))
        })?;
    refuse_without_folder(path)?;
    let tuning = {
        let runs = Runs::new(&args.command, args.json || only_prints)?;
        tune(&runs, args, path, earlier.as_ref())?
    };
    let text = document::write(&tuning).context("cannot write the profile as JSON")?;
    if !only_prints {
        replace::in_mode(path, 0o644, text.as_bytes())
            .with_context(|| format!("cannot write {}", apex_untrusted::shown(path)))?;
    }
    if args.json || only_prints {
        return Ok(output::page(|out| out.write_all(text.as_bytes()))?);
    }
    let style = Style { color: color.on_stdout() };
    Ok(output::page(|out| text::write(out, &tuning, path, style, output::width()))?)
}

/// The CPU device's times are not a GPU's.
fn refuse_without_gpu() -> anyhow::Result<()> {
    match Driver::decide(Device::Auto, &Libraries::find()?, true)? {
        Driver::Gpu => Ok(()),
        Driver::Cpu(_) => bail!(
            "apex tune measures on a GPU, and there is none here (the CPU device's times say nothing about one): run it \
             on a machine with a GPU"
        ),
    }
}

/// What took three runs to measure must have a place.
fn refuse_without_folder(profile: &Path) -> anyhow::Result<()> {
    let folder = profile.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        let [profile, folder] = [profile, folder].map(apex_untrusted::shown);
        bail!("cannot write {profile}: there is no folder {folder}; make it, or name another file with -o");
    }
    Ok(())
}

/// The reason why nothing was tuned.
enum Stopped {
    Failed(anyhow::Error),
    /// The program failed.
    Program(ExitStatus),
    /// A signal came, which ended the program if it is named.
    Interrupted(Option<i32>),
    /// The program launched nothing.
    NoLaunch,
}

impl<E: Into<anyhow::Error>> From<E> for Stopped {
    fn from(error: E) -> Self {
        Stopped::Failed(error.into())
    }
}

fn tune(runs: &Runs<'_>, args: &Args, path: &Path, earlier: Option<&Tuning>) -> Result<Tuning, Stopped> {
    let recorded = run(runs, args, 1, "recording", None)?;
    if !apex_trace::has_process_files(&recorded) {
        return Err(Stopped::NoLaunch);
    }
    let loaded = loaded::just_recorded(&recorded)?;
    if loaded.profile.kernels.is_empty() {
        return Err(Stopped::NoLaunch);
    }
    let mut tuning = Tuning::begin(&loaded.session, &loaded.profile, &Models::shipped(), earlier);
    drop(loaded);
    if let Some(earlier) = earlier.filter(|earlier| !earlier.is_of_device_of(&tuning)) {
        return Err(of_other_device(path, earlier, &tuning).into());
    }
    if tuning.is_open() {
        let searched = run(runs, args, 2, "trying other blocks", Some(&tuning.search()))?;
        tuning.searched(&Session::open(searched)?);
    }
    if tuning.is_open() {
        let confirmed = run(runs, args, 3, "confirming the best blocks", Some(&tuning.confirmation()))?;
        tuning.confirmed(&Session::open(confirmed)?);
    }
    Ok(tuning)
}

/// Runs the program with launches that follow a plan, and returns its session.
fn run(
    runs: &Runs<'_>,
    args: &Args,
    number: usize,
    purpose: &str,
    plan: Option<&Plan>,
) -> Result<PathBuf, Stopped> {
    output::remark(format!("run {number} of {RUNS}: {purpose}"));
    let budget = args.budget.to_string();
    let mut options: Vec<&OsStr> =
        ["--device", "gpu", "--timing", "sampled", "--budget", &budget].map(OsStr::new).to_vec();
    let file = runs.file(&format!("{number}.plan"));
    if let Some(plan) = plan {
        std::fs::write(&file, plan.to_bytes()).context("cannot write the plan of a run")?;
        options.extend([OsStr::new("--launch-plan"), file.as_os_str()]);
    }
    runs.run(&number.to_string(), &options)
}

/// The error about a profile whose decisions a new one would lose.
fn of_other_device(path: &Path, earlier: &Tuning, tuning: &Tuning) -> anyhow::Error {
    let named =
        |of: &Tuning| format!("{} with driver {}", apex_untrusted::printable(&of.device), of.driver_version);
    anyhow::anyhow!(
        "{} is of {}, and the program ran on {}: name another file with -o, or remove it",
        apex_untrusted::shown(path),
        named(earlier),
        named(tuning)
    )
}
