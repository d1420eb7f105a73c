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
use watch::{Seen, Watch};

/// Files of a session before its program starts.
const FIRST_FILES: [&str; 8] = [
    CONTROL_FILE,
    META_FILE,
    Notes::FILE,
    launch_condition::Plan::FILE,
    apex_trace::results::WANTED,
    apex_conventions::universal::SOCKET,
    apex_conventions::access::SOCKET,
    apex_conventions::capability::SOCKET,
];

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
  apex run --hub http://hub:8765 -- python train.py
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
    /// result. A profile of another device, driver or code is not applied
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

/// Makes the session, in a folder named after `name` if none is given, runs the program to its end,
/// and writes down how it ended.
pub fn record(
    command: &[OsString],
    output: Option<&Path>,
    name: &OsStr,
    recording: &Recording,
    quiet: bool,
) -> Result<Recorded, NotRecorded> {
    let libraries = Libraries::find()?;
    let driver = Driver::decide(recording.device, &libraries, quiet)?;
    refuse_contradictions(recording, &driver)?;
    let existing = std::env::var_os(PRELOAD);
    let existing = if driver == Driver::Gpu { existing } else { libraries.with_nvrtc(existing) };
    let preload = libraries.preload(existing.as_deref())?;
    let dashboard = recording.dashboard.map(Listening::new).transpose()?;
    let mut meta = describe(command, &driver, recording);
    let fresh = Fresh::make(own_folder(output, &meta)?.as_deref(), name)?;
    let session = fresh.folder.path().to_owned();
    let control = match MappedControl::create_in(&fresh.folder, recording.settings()) {
        Ok(control) => control,
        Err(error) => {
            fresh.discard(&[]);
            return Err(error.into());
        }
    };
    let plan = tuned::plan(recording);
    let first = write_first(&meta, &fresh.folder)
        .and_then(|()| tuned::write(plan, &fresh.folder))
        .and_then(|()| ask_for_results(recording, &fresh.folder))
        .and_then(|()| Ok(recording.notes.store(&fresh.folder)?))
        .and_then(|()| match output.filter(|_| meta.rank.is_some()) {
            Some(whole) => joined::note(whole, recording.notes.clone()),
            None => Ok(()),
        });
    if let Err(error) = first {
        fresh.discard(&FIRST_FILES);
        return Err(error.into());
    }
    // Before any thread starts: one that does not block a signal takes it from who waits for it.
    let signals = Signals::block();
    let universal = match universal::start(&fresh.folder, recording.universal) {
        Ok(universal) => universal,
        Err(error) => {
            fresh.discard(&FIRST_FILES);
            return Err(anyhow::Error::from(error)
                .context("--universal: cannot listen in the session")
                .into());
        }
    };
    let capability = match recording.capability.start(&fresh.folder) {
        Ok(capability) => capability,
        Err(error) => {
            fresh.discard(&FIRST_FILES);
            return Err(anyhow::Error::from(error)
                .context("--capability: cannot listen in the session")
                .into());
        }
    };
    let scheduling = match schedule::start(&fresh.folder, &recording.fast) {
        Ok(scheduling) => scheduling,
        Err(error) => {
            fresh.discard(&FIRST_FILES);
            return Err(anyhow::Error::from(error)
                .context("--fast=schedule: cannot listen in the session")
                .into());
        }
    };

    let power = match recording.power.as_ref().map(Wanted::prepare).transpose() {
        Ok(power) => power,
        Err(error) => {
            fresh.discard(&FIRST_FILES);
            return Err(error.into());
        }
    };
    let mut program = program(command, &session, &driver, recording);
    program.env(PRELOAD, preload);
    if driver != Driver::Gpu
        && let Some(search) = driver_file::search_path(&libraries)
    {
        program.env(driver_file::SEARCH, search);
    }
    driver::set_nvtx(&mut program, libraries.folder());
    let shown = dashboard.map(|dashboard| dashboard.show(session.clone(), &signals));
    if let Some(signal) = signals.ends_before_start() {
        fresh.discard(&FIRST_FILES);
        child::end_by(signal);
    }
    let mut child = match signals.spawn(&mut program) {
        Ok(child) => child,
        Err(error) => {
            fresh.discard(&FIRST_FILES);
            return Err(NotRecorded::NotStarted(not_started(&command[0], &error)));
        }
    };
    // First of all, so that nobody takes this process for the program longer than needed.
    meta.pid = Some(child.id());
    meta.host = Host::here();
    remember(&meta, &fresh.folder);
    // After the program has started, which must not wait for it.
    let sampler = if recording.no_machine {
        None
    } else {
        machine::start(&fresh.folder, child.id(), &driver, recording.max_size)
    };
    let governed = power.and_then(|power| power.start(fresh.folder.path().to_owned()));
    let agent = to_hub::start(recording.to_hub.as_ref(), fresh.folder.path().to_owned());
    let stacks = host_stacks::start(&fresh.folder, recording.host_stacks, recording.max_size);
    let mut watch = Watch::new(child.id());
    let status = signals.wait(&mut child, || watch.look(control.processes.load(Ordering::Relaxed) > 0))?;
    // Before anything that may take long or fail.
    if let Some(governed) = governed {
        governed.finish(quiet);
    }
    scheduling.into_iter().for_each(answering::Answering::finish);
    meta.universal = universal.map(universal::Server::finish).unwrap_or_default();
    meta.capability = capability.map(capability::Server::finish).unwrap_or_default();
    meta.ended_real_ns = Some(real_ns());
    meta.exit = status.code().map(Exit::Code).or_else(|| status.signal().map(Exit::Signal));
    remember(&meta, &fresh.folder);
    if let Some(Err(error)) = output.filter(|_| meta.rank.is_some()).map(joined::conclude) {
        output::remark(error);
    }
    // What comes now takes as long as the session is large, and may be interrupted.
    signals.end_by_signals();
    host_stacks::finish(stacks);
    machine::finish(sampler);
    if control.keeps_ptx() {
        triton::keep(&fresh.folder, &control);
    }
    // Without them, the session is read unchecked, as older ones are.
    if checksums::store(&fresh.folder, session::has_checksum).is_ok() {
        control.has_checksums.store(1, Ordering::Relaxed);
    }
    let shown = shown.map(|shown| (shown, signals));
    let fresh = Some(fresh).filter(|_| meta.rank.is_none() || output.is_none());
    Ok(Recorded { status, session, fresh, seen: watch.into_seen(), shown, agent })
}

/// Refuses options that exclude each other.
fn refuse_contradictions(recording: &Recording, driver: &Driver) -> anyhow::Result<()> {
    if recording.check && *driver == Driver::Gpu {
        bail!("--check needs the CPU device: add --device cpu");
    }
    if recording.hash_results && recording.fast.contains(&Fast::Memory) {
        bail!("results cannot be compared together with --fast=memory, which keeps memory that is freed");
    }
    if recording.fast.contains(&Fast::Schedule) && recording.fast.contains(&Fast::Memory) {
        bail!(
            "--fast=schedule does not know when memory that --fast=memory keeps is reused: use only one of them"
        );
    }
    if recording.check && recording.fast.contains(&Fast::Memory) {
        bail!(
            "--check cannot detect use after free together with --fast=memory, which reuses freed memory: use \
             only one of them"
        );
    }
    Ok(())
}

/// The program with the variables of its session.
fn program(command: &[OsString], session: &Path, driver: &Driver, recording: &Recording) -> Command {
    let mut program = Command::new(&command[0]);
    program.args(&command[1..]).env(variables::SESSION.name, session);
    // They are of this session and its interpreter, and must not be those of a nested run.
    for of_session in ["APEX_OUTPUT", "APEX_NAME", "APEX_TAG", "APEX_DASHBOARD", variables::PYTHON.name] {
        program.env_remove(of_session);
    }
    // A secret of this process.
    program.env_remove("APEX_HUB_TOKEN");
    driver.set(&mut program);
    if recording.check {
        program.env(variables::CPU_CHECK.name, "1");
    }
    if !recording.fast.is_empty() {
        program.env(variables::FAST.name, fast_ways(&recording.fast));
    }
    recording.capability.set(&mut program);
    program
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

/// Writes session.json before the program starts, so that an `apex run` inside finds it. The
/// program waits for this, so it need not reach the disk: `remember`, which has it do so, follows
/// at once.
fn write_first(meta: &Meta, session: &Folder) -> anyhow::Result<()> {
    let write = || session.create_new(META_FILE)?.write_all(&serde_json::to_vec_pretty(meta)?);
    let path = session.path().join(META_FILE);
    write().with_context(|| format!("cannot write {}", apex_untrusted::shown(path)))
}

/// Has the injected library hash the program's results, if that is wanted.
fn ask_for_results(recording: &Recording, session: &Folder) -> anyhow::Result<()> {
    if recording.hash_results {
        session.create_new(apex_trace::results::WANTED).context("cannot ask for hashes in the session")?;
    }
    Ok(())
}

/// Writes session.json again. The program's run counts more than this file, so failing to is a
/// remark.
fn remember(meta: &Meta, session: &Folder) {
    if let Err(error) = meta.store(session) {
        output::remark(error);
    }
}

/// Returns the content of session.json before the program has started.
fn describe(command: &[OsString], driver: &Driver, recording: &Recording) -> Meta {
    Meta {
        schema: meta::SCHEMA,
        apex_version: env!("CARGO_PKG_VERSION").into(),
        command: command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        cwd: std::env::current_dir().unwrap_or_default().display().to_string(),
        // Until the program has been started, this process stands for it.
        pid: Some(std::process::id()),
        started_real_ns: real_ns(),
        ended_real_ns: None,
        exit: None,
        device: driver.name().into(),
        timing: recording.timing.to_possible_value().map_or(String::new(), |value| value.get_name().into()),
        // Found out while the program starts.
        host: Host::default(),
        rank: own_rank(),
        ranks: std::collections::BTreeMap::new(),
        universal: Vec::new(),
        capability: Vec::new(),
        imported: Vec::new(),
        checked: recording.check,
        attached: false,
        watched_by: None,
    }
}

/// The rank of this process in a job of several, if a launcher started it as one.
fn own_rank() -> Option<RecordedRank> {
    let rank = launchers::rank(|name| std::env::var(name).ok()).ok().flatten()?;
    let launchers::Rank { rank, world_size, restarts, job, .. } = rank;
    (world_size != Some(1)).then_some(RecordedRank { rank, world_size, restarts, job })
}

/// The folder to record into: that of a new member, where each rank of a job records into `output`.
fn own_folder(output: Option<&Path>, meta: &Meta) -> anyhow::Result<Option<PathBuf>> {
    match output {
        Some(shared) if meta.rank.is_some() => joined::take_part(shared, meta).map(Some),
        output => Ok(output.map(Path::to_owned)),
    }
}

/// Nanoseconds since 1970.
pub fn real_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// Says what was captured, or loudly that nothing was; then ends as the program did.
fn conclude(recorded: &mut Recorded, args: &Args, color: Color) -> anyhow::Result<ExitCode> {
    let failed_to_read = |error: anyhow::Error| output::remark(output::causes(&error));
    let agent = recorded.agent.take();
    let is_brief = args.quiet && !args.report && !args.recording.check && agent.is_none();
    if is_brief && tell_losses(&recorded.session) {
        stay(recorded);
        end_like(recorded.status);
    }
    let session = &recorded.session;
    if let Ok(loaded) = on_enough_stack(|| loaded::just_recorded(session)).map_err(failed_to_read) {
        let captured = summarize(&loaded, recorded, args);
        if captured && args.report {
            if let Err(error) = crate::knowledge::install(&[]) {
                output::remark(format!("{error:#}"));
            }
            let style = Style { color: color.on_stderr() };
            // Lost with the terminal, it can be had again with `apex report`.
            let _ = report::write(&mut io::stderr(), &loaded, style, output::width_of_stderr());
        }
        if let Some(agent) = agent {
            to_hub::finish(agent, &loaded);
        }
        stay(recorded);
        if is_empty(&loaded)
            && let Some(fresh) = recorded.fresh.take()
        {
            fresh.discard_all();
        }
        if !captured && args.require_capture && recorded.status.success() {
            return Ok(ExitCode::from(exit::NOTHING_CAPTURED));
        }
        if args.recording.check && recorded.status.success() && !loaded.profile.defects.is_empty() {
            return Ok(ExitCode::from(exit::DEFECTS));
        }
    }
    end_like(recorded.status)
}

/// Whether a session has nothing to report: no record, and no word about why there is none.
fn is_empty(loaded: &Loaded) -> bool {
    let recorder = &loaded.profile.recorder;
    let is_silent = recorder.records == 0 && recorder.lost() == 0 && recorder.problems.is_empty();
    let refused = loaded.session.meta.iter().any(|meta| !meta.universal.is_empty());
    is_silent && !refused && loaded.profile.defects.is_empty()
}

/// Has the dashboard stay, if there is one, as long as somebody may look at it.
fn stay(recorded: &Recorded) {
    if let Some((dashboard, signals)) = &recorded.shown {
        dashboard.stay(signals);
    }
}

/// Says what was lost of a session, without reading its records: all that `--quiet` wants to know.
/// False if the session has no records or cannot be read; then nothing was said.
fn tell_losses(session: &Path) -> bool {
    let Ok(headers) = Headers::read(session) else { return false };
    if !headers.has_records {
        return false;
    }
    let problems: Vec<_> = headers.session.problems.iter().map(ToString::to_string).collect();
    loaded::tell_problems(&problems);
    let waiting = headers.session.processes.iter().map(|process| (process.pid, process.queue_waiting));
    tell_lost(headers.lost(), &headers.session, waiting);
    true
}

/// Says how many records were lost and why, and how many queued calls, by process, were not made.
fn tell_lost(records: u64, session: &Session, not_made: impl Iterator<Item = (u32, u64)>) {
    if records > 0 {
        let causes = session.causes_of_loss().into_iter().collect::<Vec<_>>().join("; ");
        output::remark(format!("{} RECORDS WERE LOST: {causes}", units::count(records)));
    }
    for (pid, calls) in not_made.filter(|&(_, calls)| calls > 0) {
        output::remark(format!(
            "{} NOT MADE: process {pid} ended before the queue of --fast could make {}",
            units::counted(calls, "QUEUED CALL WAS", "QUEUED CALLS WERE"),
            if calls == 1 { "it" } else { "them" },
        ));
    }
}

/// The line at the end, or the warning that nothing was captured. Returns whether something was.
fn summarize(loaded: &Loaded, recorded: &Recorded, args: &Args) -> bool {
    let profile = &loaded.profile;
    let lost = profile.recorder.lost();
    if profile.recorder.records == 0 {
        let is_kept = recorded.fresh.is_none() || !is_empty(loaded);
        for line in uncaptured::message(&args.command, loaded, recorded, is_kept) {
            output::remark(line);
        }
        return false;
    }
    let waiting =
        profile.processes.iter().filter_map(|process| Some((process.pid, process.queue.as_ref()?.not_made)));
    tell_lost(lost, &loaded.session, waiting);
    tuned::tell(profile).into_iter().for_each(output::remark);
    let refused = loaded.session.meta.iter().flat_map(|meta| &meta.universal);
    refused
        .map(apex_view::text::universal::sentence)
        .for_each(|told| output::remark(format!("--universal: {told}")));
    let told = loaded.session.meta.iter().flat_map(|meta| &meta.capability).cloned();
    apex_view::text::capability::sentences(&told.collect::<Vec<_>>())
        .into_iter()
        .for_each(|told| output::remark(format!("--capability: {told}")));
    if !args.quiet {
        let session = session::shown(&recorded.session);
        let shared = args.output.as_deref().filter(|output| apex_trace::is_joined(output));
        let named = match (shared, &args.output) {
            (Some(shared), _) => format!(" --ranks {}", session::shown(shared)),
            (None, Some(_)) => format!(" {session}"),
            (None, None) => String::new(),
        };
        output::remark(format!(
            "{} of {}, {} dropped, in {session}; read it with `apex report{named}`",
            apex_view::text::verdict::launches(profile),
            units::counted(profile.kernels.len() as u64, "kernel", "kernels"),
            units::count(lost),
        ));
    }
    true
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
