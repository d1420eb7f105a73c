//! `apex run`: records an unmodified program.
//!
//! Makes the session, starts the program with the injected library preloaded, passes signals on,
//! and ends the way the program ended. The program never depends on this process: what it records
//! is in mapped files, and `apex` may be killed at any moment. Nothing is written to stdout;
//! remarks go to stderr and `--quiet` silences them.

mod answering;
mod assembler;
mod capability;
pub mod child;
mod conclude;
mod dashboard;
pub mod driver;
mod driver_file;
mod embedded;
pub mod governed;
pub mod host_stacks;
pub mod inspect;
pub mod libraries;
pub mod machine;
mod not_started;
mod record;
mod schedule;
mod to_hub;
mod triton;
pub mod tuned;
mod uncaptured;
mod universal;
mod watch;

use crate::destination::ToHub;
use crate::output::{self, Color};
use crate::{exit, units};
use anyhow::bail;
use apex_catalogue::{Change, Notes};
use apex_conventions::variables;
use apex_trace::META_FILE;
use apex_trace::control::{MappedControl, Settings, TimingMode};
use apex_trace::image::PTX_MAX_BYTES;
use apex_trace::meta::Meta;
use apex_untrusted::read;
use child::Signals;
pub use child::{end_like, ignore_file_size_signal};
use clap::builder::FalseyValueParser;
use governed::Wanted;
use libraries::Libraries;
pub use record::{NotRecorded, record};
use std::ffi::{OsStr, OsString};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The dynamic linker's variable.
const PRELOAD: &str = "LD_PRELOAD";

/// Records every CUDA launch of an unmodified program.
#[derive(clap::Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  apex run -- python train.py
  apex run -o before --timing all -- ./matmul 4096
  apex run -o after --name fused --tag h200 -- python train.py
  apex run --fast -- python generate.py
  apex run --fast=schedule -- ./pipeline
  apex run --tuned stencil.tuned.json -- ./stencil
  apex run --universal -- ./built_for_newer_gpus
  apex run --universal --capability 12.0 --capability-for libchooser.so -- python infer.py
  apex run --code -- ./stencil
  apex run --device cpu -- ./no_gpu_needed
  apex run --device cpu --check -- ./suspect
  apex run --dashboard -- python train.py
  apex run --host-stacks off -- ./latency_test
  apex run --hub https://hub:8765 -- python train.py
  apex run --max-size 512M --quiet -- mpirun -n 4 ./solver
  apex run -o job -- torchrun --nproc-per-node 8 train.py
  srun apex run -o job-$SLURM_JOB_ID -- python train.py

`apex run` exits with the program's exit status; `apex help exit-codes` lists APEX's own codes. An `apex run` inside \
another one records into the outer session unless it has its own -o.")]
pub struct Args {
    /// Session folder to create [default: apex-COMMAND-DATE-TIME]. Ranks of a job that name the
    /// same folder, also from several hosts, record one session together
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Name of the session, which `apex list` and `apex report` show
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Tag of the session. May be repeated
    #[arg(long, value_name = "TAG")]
    tag: Vec<String>,
    #[command(flatten)]
    pub recording: Recording,
    /// Start with recording off; `apex ctl on` or `apex_cuda.record()` (Python) switches it on
    #[arg(long, value_parser = FalseyValueParser::new())]
    paused: bool,
    /// Exit with status 124 if the program succeeds and nothing was captured
    #[arg(long, value_parser = FalseyValueParser::new())]
    require_capture: bool,
    /// Print only warnings and errors on stderr
    #[arg(short, long, value_parser = FalseyValueParser::new())]
    quiet: bool,
    /// Print the report on stderr when the program has ended
    #[arg(long, value_parser = FalseyValueParser::new())]
    report: bool,
    /// Show the session in a browser during recording: print the address, and open the browser if
    /// there is a display. On a terminal the dashboard runs until Ctrl-C, otherwise it ends with
    /// the program. An address beyond loopback requires a token in APEX_TOKEN
    #[arg(
        long,
        value_name = "ADDRESS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "127.0.0.1:0"
    )]
    dashboard: Option<SocketAddr>,
    #[command(flatten)]
    to_hub: ToHub,
    /// Name of the job that this run is part of, for the hub [default: what the launcher (srun,
    /// torchrun, …) says; otherwise a job of its own]
    #[arg(long, value_name = "NAME")]
    job: Option<String>,
    /// Time between two messages to the hub while the program runs
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = units::parse_duration)]
    hub_interval: Duration,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// The settings of a recording, and the device that the program runs on.
#[derive(clap::Args, Clone, Debug)]
pub struct Recording {
    /// Where kernels run: on the GPU, or on APEX's CPU device
    #[arg(long, value_enum, default_value_t)]
    pub device: driver::Device,
    /// Detect defects in kernels: uninitialised reads, shared-memory races, divergent barriers (CPU
    /// device only)
    #[arg(long, value_parser = FalseyValueParser::new())]
    pub check: bool,
    /// Which kernels are timed on the GPU
    #[arg(long, value_enum, default_value_t)]
    pub timing: Timing,
    /// Maximum share of the program's time that sampled timing may take, in percent
    #[arg(long, value_name = "PERCENT", default_value = "0.5", value_parser = units::parse_percent)]
    pub budget: f64,
    /// Speed up the program: `queue` launches from a separate thread, `batch` also combines
    /// repeated launches into CUDA graphs, `schedule` also runs launches of a graph beside each
    /// other that are proven to share no data, `memory` reuses freed memory for later allocations
    /// [values: queue, batch, schedule, memory, or several: batch,memory]
    #[arg(
        long,
        value_enum,
        value_name = "HOW",
        num_args = 0..=1,
        require_equals = true,
        value_delimiter = ',',
        default_missing_value = "queue",
        hide_possible_values = true
    )]
    pub fast: Vec<Fast>,
    /// Launch kernels in the blocks that `apex tune` found to be faster and proved to change no
    /// result; with --fast=queue, also make two launches that `apex fuse` has joined as one. A
    /// profile of another device, driver or code is not applied
    #[arg(long, value_name = "PROFILE")]
    pub tuned: Option<PathBuf>,
    /// Launch kernels by this plan (what `apex tune` runs)
    #[arg(long, hide = true, value_name = "FILE", conflicts_with = "tuned")]
    pub launch_plan: Option<PathBuf>,
    /// Keep hashes of the program's results in the session (what `apex tune --verify` runs)
    #[arg(long, hide = true, value_parser = FalseyValueParser::new())]
    pub hash_results: bool,
    /// Load PTX that the driver refuses as too new, lowered for its version and GPU: `exact` makes
    /// changes that change no result, `approximate` others too [values: exact, approximate]
    #[arg(
        long,
        value_enum,
        value_name = "CHANGES",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "exact",
        hide_possible_values = true
    )]
    pub universal: Option<universal::Universal>,
    #[command(flatten)]
    pub capability: capability::Options,
    /// Store the code that the program loads and the arguments of its launches, so that predictions
    /// know what launches execute. Scalar arguments may be secrets. Images take at most SIZE
    /// [default without SIZE: 256M]
    #[arg(
        long,
        value_name = "SIZE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "256M",
        value_parser = parse_limit
    )]
    pub code: Option<u64>,
    /// Do not store the PTX that the program loads. Advice uses it to tell why a kernel is slow;
    /// a session stores at most 16 MiB of it, and no arguments
    #[arg(long, conflicts_with = "code", value_parser = FalseyValueParser::new())]
    pub no_ptx: bool,
    /// Maximum disk space of the session, such as 512M; new records replace the oldest ones
    /// [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = parse_limit)]
    pub max_size: Option<u64>,
    /// Do not sample the machine: power, clocks, temperature, memory, CPU usage
    #[arg(long, value_parser = FalseyValueParser::new())]
    pub no_machine: bool,
    /// Samples of each host thread's call stack in a second, for processes that use the GPU and
    /// their descendants, or `off`
    #[arg(long, value_name = "HZ|off", default_value = "100")]
    pub host_stacks: host_stacks::Rate,
    /// What the user says about the session.
    #[arg(skip)]
    pub notes: Notes,
    /// Whether recording is off until it is switched on.
    #[arg(skip)]
    pub paused: bool,
    /// The address on which the dashboard of the session listens, if it has one.
    #[arg(skip)]
    pub dashboard: Option<SocketAddr>,
    /// The hub that is told of the session, if any.
    #[arg(skip)]
    pub to_hub: Option<to_hub::Wanted>,
    /// The device whose clock follows the program, if any (`apex power run`).
    #[arg(skip)]
    pub power: Option<Wanted>,
}

/// The kernels that are timed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Timing {
    /// No kernel: recording adds about 100 ns to a launch
    Off,
    /// As many launches of each configuration as the budget allows
    #[default]
    Sampled,
    /// Every launch, except while a thread has 64 timed launches in flight
    All,
}

impl From<Timing> for TimingMode {
    fn from(timing: Timing) -> Self {
        match timing {
            Timing::Off => TimingMode::Off,
            Timing::Sampled => TimingMode::Sampled,
            Timing::All => TimingMode::All,
        }
    }
}

/// A way of making a program faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Fast {
    /// A thread of APEX makes the launches that the program queues
    Queue,
    /// That thread also combines queued launches that repeat into CUDA graphs
    Batch,
    /// In these graphs, launches run beside others with which they are proven to share no data
    Schedule,
    /// Memory that the program frees serves its next allocations
    Memory,
}

/// The value of the variable that tells the injected library how to make the program faster.
pub fn fast_ways(ways: &[Fast]) -> String {
    let names = ways.iter().filter_map(clap::ValueEnum::to_possible_value);
    names.map(|value| value.get_name().to_owned()).collect::<Vec<_>>().join(",")
}

/// A size limit that leaves room for something: definitions and two runs of records.
fn parse_limit(text: &str) -> Result<u64, String> {
    match units::parse_size(text)? {
        bytes if bytes < 1 << 20 => Err("a session needs at least 1M".into()),
        bytes => Ok(bytes),
    }
}

impl Recording {
    fn settings(&self) -> Settings {
        // Little of a session that is small on purpose.
        let of_ptx = self.max_size.map_or(PTX_MAX_BYTES, |most| PTX_MAX_BYTES.min(most / 8));
        let of_ptx = if self.no_ptx { 0 } else { of_ptx };
        Settings {
            recording: !self.paused,
            timing: self.timing.into(),
            budget_ppm: (self.budget * 1e4).round() as u32,
            max_bytes: self.max_size.unwrap_or(0),
            code_max_bytes: self.code.unwrap_or(of_ptx),
            ptx_only: self.code.is_none(),
        }
    }
}

/// Runs `apex power run`. Returns only where the program did not run.
pub fn execute_governed(args: &Args, power: Wanted, color: Color) -> anyhow::Result<ExitCode> {
    if args.output.is_none() && outer_session().is_some() {
        bail!("`apex power run` cannot run inside another `apex run`: start it in its place");
    }
    if args.recording.device == driver::Device::Cpu {
        bail!("the CPU device has no clock to govern: leave --device cpu out");
    }
    let recording = Recording { power: Some(power), ..args.recording.clone() };
    execute(&Args { recording, ..args.clone() }, color)
}

/// Runs `apex run`. Returns only where the program did not run.
pub fn execute(args: &Args, color: Color) -> anyhow::Result<ExitCode> {
    let command = by_interpreter(&args.command, std::env::var_os(variables::PYTHON.name));
    if args.output.is_none()
        && let Some(outer) = outer_session()
    {
        return join(&outer, &command, args);
    }
    let to_hub = args.to_hub.destination()?;
    let to_hub =
        to_hub.map(|to| to_hub::Wanted { to: Arc::new(to), job: args.job.clone(), every: args.hub_interval });
    let mut notes = Notes::default();
    notes.change(&Change { name: args.name.clone(), tag: args.tag.clone(), ..Change::default() }, 0)?;
    let (paused, dashboard) = (args.paused, args.dashboard);
    let recording = Recording { notes, paused, dashboard, to_hub, ..args.recording.clone() };
    let name = &args.command[0];
    match record(&command, args.output.as_deref(), name, &recording, args.quiet) {
        Ok(mut recorded) => conclude::conclude(&mut recorded, args, color),
        Err(NotRecorded::NotStarted(code)) => Ok(ExitCode::from(code)),
        Err(NotRecorded::Failed(error)) => Err(error),
    }
}

/// The session of the `apex run` that this one runs in. One that has ended is none: a server that
/// was started under it passes its environment on for days.
fn outer_session() -> Option<PathBuf> {
    let session = variables::SESSION.path().filter(|session| MappedControl::open(session).is_ok())?;
    let meta: Meta =
        serde_json::from_slice(&read::read(&session.join(META_FILE), read::SESSION_JSON).ok()?).ok()?;
    meta.exit.is_none().then_some(session)
}

/// The command to start: a file of Python's is run by `python`, where `python -m apex_cuda` names
/// one.
fn by_interpreter(command: &[OsString], python: Option<OsString>) -> Vec<OsString> {
    let is_python = Path::new(&command[0]).extension() == Some(OsStr::new("py"));
    python.filter(|_| is_python).into_iter().chain(command.iter().cloned()).collect()
}

/// Becomes the program, in the outer run's session.
fn join(outer: &Path, command: &[OsString], args: &Args) -> anyhow::Result<ExitCode> {
    let preload = Libraries::find()?.preload(std::env::var_os(PRELOAD).as_deref())?;
    if !args.quiet {
        let session = apex_untrusted::shown(outer);
        output::remark(format!(
            "records into the session {session} of the outer `apex run`, with its options"
        ));
    }
    if args.dashboard.is_some() {
        output::remark("--dashboard applies to the outer `apex run`; `apex dashboard` shows this session");
    }
    if args.name.is_some() || !args.tag.is_empty() {
        output::remark("--name and --tag apply to the outer `apex run`; `apex note` changes this session's");
    }
    if args.to_hub.hub.is_some() {
        output::remark(
            "--hub applies to the outer `apex run`, which tells the hub of this session if it has one",
        );
    }
    let mut program = Command::new(&command[0]);
    program.args(&command[1..]).env(PRELOAD, preload).env_remove(variables::PYTHON.name);
    if args.recording.check {
        program.env(variables::CPU_CHECK.name, "1");
    }
    let error = Signals::block().replace(&mut program);
    Ok(ExitCode::from(not_started(&command[0], &error)))
}

/// Says why the command could not be started, and returns the code that shells have for it.
fn not_started(command: &OsStr, error: &io::Error) -> u8 {
    output::remark(not_started::message(command, error));
    if error.kind() == io::ErrorKind::NotFound { exit::NOT_FOUND } else { exit::NOT_EXECUTABLE }
}

/// Nanoseconds since 1970.
pub fn real_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_python_are_run_by_the_interpreter_that_is_named() {
        let command = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        let python = || Some(OsString::from("/opt/python3"));
        for (words, python, expected) in [
            (&["train.py", "-v"][..], python(), &["/opt/python3", "train.py", "-v"][..]),
            (&["train.py"], None, &["train.py"]),
            (&["./solver", "train.py"], python(), &["./solver", "train.py"]),
        ] {
            assert_eq!(by_interpreter(&command(words), python), command(expected));
        }
    }
}
