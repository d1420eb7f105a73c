//! `apex tune`: finds launch shapes that cost time, proves which other ones change no result, and
//! measures them on the program's own launches.
//!
//! It runs the program up to three times by `apex run`: to record it, to try blocks, and to confirm
//! the best ones ([`apex_tune`]). The profile that it writes is what `apex run --tuned` applies.

mod text;

use crate::output::{self, Color};
use crate::run::driver::{Device, Driver};
use crate::run::libraries::Libraries;
use crate::text::Style;
use crate::{exit, loaded, tuned, units};
use anyhow::{Context, bail};
use apex_conventions::documents::TUNED;
use apex_predict::Models;
use apex_trace::Session;
use apex_tune::{Tuning, document};
use apex_untrusted::replace;
use clap::builder::FalseyValueParser;
use launch_condition::Plan;
use std::ffi::{OsStr, OsString};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};

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

Kernels must be loaded as PTX (NVRTC, Numba, CuPy with CUPY_COMPILE_WITH_PTX=1, nvcc -code=compute_90): of machine code \
nothing is proven. If the profile exists, what it has decided stays, and only new kernels and sizes are tried. \
docs/tune.md explains the proof and the measurement.

Exits with status 0 if the profile was written, 1 if the program failed, 2 if the command line is wrong, and 125 if \
APEX failed (apex help exit-codes).")]
pub struct Args {
    /// Profile to write or to add to [default: COMMAND.tuned.json]
    #[arg(short, long, value_name = "PROFILE")]
    output: Option<PathBuf>,
    /// Maximum share of the program's time that timing may take in each run, in percent
    #[arg(long, value_name = "PERCENT", default_value = "2", value_parser = units::parse_percent)]
    budget: f64,
    #[arg(long, help = format!("Print the profile as JSON (schema {TUNED})"), value_parser = FalseyValueParser::new())]
    json: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Runs `apex tune`.
pub fn execute(args: &Args, color: Color) -> anyhow::Result<ExitCode> {
    refuse_without_gpu()?;
    let path = args.output.clone().unwrap_or_else(|| default_name(&args.command[0]));
    let earlier = path.exists().then(|| tuned::load(&path)).transpose().with_context(|| {
        format!("cannot add to {}; name another file with -o", apex_untrusted::shown(&path))
    })?;
    refuse_without_folder(&path)?;
    let runs = Runs::new(args)?;
    let tuning = match tune(&runs, &path, earlier.as_ref()) {
        Ok(tuning) => tuning,
        Err(Stopped::Failed(error)) => return Err(error),
        Err(Stopped::Program(status)) => {
            output::remark(format!("the program failed ({status}): nothing was tuned"));
            return Ok(ExitCode::from(exit::NO));
        }
    };
    let text = document::write(&tuning).context("cannot write the profile as JSON")?;
    replace::bytes(&path, text.as_bytes())
        .with_context(|| format!("cannot write {}", apex_untrusted::shown(&path)))?;
    if args.json {
        return output::page(|out| out.write_all(text.as_bytes()));
    }
    let style = Style { color: color.on_stdout() };
    output::page(|out| text::write(out, &tuning, &path, style, output::width()))
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

/// The name of the profile of a command.
fn default_name(command: &OsStr) -> PathBuf {
    let mut name = Path::new(command).file_name().unwrap_or(OsStr::new("program")).to_owned();
    name.push(".tuned.json");
    name.into()
}

/// The reason why nothing was tuned.
enum Stopped {
    Failed(anyhow::Error),
    /// The program failed.
    Program(ExitStatus),
}

impl<E: Into<anyhow::Error>> From<E> for Stopped {
    fn from(error: E) -> Self {
        Stopped::Failed(error.into())
    }
}

fn tune(runs: &Runs<'_>, path: &Path, earlier: Option<&Tuning>) -> Result<Tuning, Stopped> {
    let recorded = runs.run(1, "recording", None)?;
    let loaded = loaded::just_recorded(&recorded)?;
    let mut tuning = Tuning::begin(&loaded.session, &loaded.profile, &Models::shipped(), earlier);
    drop(loaded);
    if let Some(earlier) = earlier.filter(|earlier| !earlier.is_of_device_of(&tuning)) {
        return Err(of_other_device(path, earlier, &tuning).into());
    }
    if tuning.is_open() {
        let searched = runs.run(2, "trying other blocks", Some(&tuning.search()))?;
        tuning.searched(&Session::open(searched)?);
    }
    if tuning.is_open() {
        let confirmed = runs.run(3, "confirming the best blocks", Some(&tuning.confirmation()))?;
        tuning.confirmed(&Session::open(confirmed)?);
    }
    Ok(tuning)
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

/// The runs of the program, and the folder of their sessions, which ends with this.
struct Runs<'a> {
    args: &'a Args,
    folder: PathBuf,
}

impl<'a> Runs<'a> {
    fn new(args: &'a Args) -> anyhow::Result<Self> {
        let folder = std::env::temp_dir().join(format!("apex-tune-{}", std::process::id()));
        let made = DirBuilder::new().mode(0o700).create(&folder);
        made.with_context(|| format!("cannot make the folder {}", apex_untrusted::shown(&folder)))?;
        Ok(Self { args, folder })
    }

    /// Runs the program by `apex run`, whose launches follow a plan, and returns its session.
    fn run(&self, number: usize, purpose: &str, plan: Option<&Plan>) -> Result<PathBuf, Stopped> {
        output::remark(format!("run {number} of {RUNS}: {purpose}"));
        let session = self.folder.join(number.to_string());
        let mut apex = Command::new(std::env::current_exe().context("cannot find the apex executable")?);
        apex.args(["run", "--quiet", "--device", "gpu", "--timing", "sampled", "--no-machine"]);
        apex.args(["--host-stacks", "off", "--budget", &self.args.budget.to_string(), "-o"]).arg(&session);
        if let Some(plan) = plan {
            let file = self.folder.join(format!("{number}.plan"));
            std::fs::write(&file, plan.to_bytes()).context("cannot write the plan of a run")?;
            apex.arg("--launch-plan").arg(file);
        }
        // Set for a run of the user, it must not change these.
        apex.env_remove("APEX_TUNED");
        if self.args.json {
            // The document is all that goes to stdout.
            apex.stdout(Stdio::from(std::io::stderr()));
        }
        let status = apex.arg("--").args(&self.args.command).status().context("cannot run the program")?;
        if status.success() { Ok(session) } else { Err(Stopped::Program(status)) }
    }
}

impl Drop for Runs<'_> {
    fn drop(&mut self) {
        // A leftover in the folder for temporary files does no harm.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
