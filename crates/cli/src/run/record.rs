//! One recording: makes the session, starts the program in it, waits for its end, and writes down
//! how it ended.
//!
//! Whatever fails before the program starts takes the session's folder with it.

use super::answering::Answering;
use super::child::{self, Signals};
use super::dashboard::{Listening, Showing};
use super::driver::{self, Driver};
use super::governed::Wanted;
use super::libraries::Libraries;
use super::watch::{Seen, Watch};
use super::{
    Fast, PRELOAD, Recording, capability, driver_file, fast_ways, host_stacks, machine, not_started, real_ns,
    schedule, to_hub, triton, tuned, universal,
};
use crate::joined;
use crate::output;
use crate::session::{self, Fresh};
use anyhow::{Context, bail};
use apex_agent::Agent;
use apex_catalogue::Notes;
use apex_conventions::{launchers, variables};
use apex_trace::control::{CONTROL_FILE, MappedControl};
use apex_trace::meta::{self, Exit, Host, Meta, RecordedRank};
use apex_trace::{META_FILE, checksums};
use apex_untrusted::Folder;
use clap::ValueEnum;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::Ordering;

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

/// A program that has been recorded.
pub struct Recorded {
    /// The way in which it ended.
    pub status: ExitStatus,
    /// Its session, an absolute path.
    pub session: PathBuf,
    /// The session's folder, unless other ranks record into one beside it.
    pub(super) fresh: Option<Fresh>,
    /// The processes that were seen while nothing had been captured.
    pub seen: BTreeMap<u32, Seen>,
    /// Its dashboard, and the signals that end it.
    pub(super) shown: Option<(Showing, Signals)>,
    /// Tells a hub of it.
    pub(super) agent: Option<Agent>,
}

/// The reason why nothing is recorded.
pub enum NotRecorded {
    /// The command could not be started; the code says how.
    NotStarted(u8),
    /// APEX failed before that.
    Failed(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for NotRecorded {
    fn from(error: E) -> Self {
        NotRecorded::Failed(error.into())
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
    let shared = output.filter(|_| meta.rank.is_some());
    let fresh = Fresh::make(own_folder(output, &meta)?.as_deref(), name)?;
    let session = fresh.folder.path().to_owned();
    let control = made(&fresh, MappedControl::create_in(&fresh.folder, recording.settings()))?;
    made(&fresh, write_first_files(&meta, &fresh.folder, recording, shared))?;
    // Before any thread starts: one that does not block a signal takes it from who waits for it.
    let signals = Signals::block();
    let servers = made(&fresh, Servers::start(&fresh.folder, recording))?;
    let power = made(&fresh, recording.power.as_ref().map(Wanted::prepare).transpose())?;
    let mut program = program(command, &session, &driver, recording);
    program.env(PRELOAD, preload);
    if driver != Driver::Gpu
        && let Some(search) = driver_file::search_path(&libraries)
    {
        program.env(driver_file::SEARCH, search);
    }
    driver::set_nvtx(&mut program, libraries.folder());
    let shown = dashboard.map(|dashboard| dashboard.show(session.clone(), &signals));
    let mut child = spawn(&mut program, &fresh, &signals)?;
    // First of all, so that nobody takes this process for the program longer than needed.
    meta.pid = Some(child.id());
    meta.host = Host::here();
    remember(&meta, &fresh.folder);
    let watchers = Watchers::start(&fresh.folder, child.id(), &driver, recording);
    let governed = power.and_then(|power| power.start(session.clone()));
    let mut watch = Watch::new(child.id());
    let status = signals.wait(&mut child, || watch.look(control.processes.load(Ordering::Relaxed) > 0))?;
    // Before anything that may take long or fail.
    if let Some(governed) = governed {
        governed.finish(quiet);
    }
    servers.finish(&mut meta);
    meta.ended_real_ns = Some(real_ns());
    meta.exit = status.code().map(Exit::Code).or_else(|| status.signal().map(Exit::Signal));
    remember(&meta, &fresh.folder);
    if let Some(Err(error)) = shared.map(joined::conclude) {
        output::remark(error);
    }
    // The following steps take longer for larger sessions, and may be interrupted.
    signals.end_by_signals();
    let agent = watchers.finish();
    complete(&fresh.folder, &control);
    let shown = shown.map(|shown| (shown, signals));
    let fresh = Some(fresh).filter(|_| shared.is_none());
    Ok(Recorded { status, session, fresh, seen: watch.into_seen(), shown, agent })
}

/// Gives what was made for a session that is about to begin. If it could not be made, the session's
/// folder is discarded.
fn made<T>(fresh: &Fresh, result: Result<T, impl Into<anyhow::Error>>) -> Result<T, NotRecorded> {
    result.map_err(|error| {
        fresh.discard(&FIRST_FILES);
        NotRecorded::Failed(error.into())
    })
}

/// Starts the program, unless a signal has come that ends it before.
fn spawn(program: &mut Command, fresh: &Fresh, signals: &Signals) -> Result<Child, NotRecorded> {
    if let Some(signal) = signals.ends_before_start() {
        fresh.discard(&FIRST_FILES);
        child::end_by(signal);
    }
    signals.spawn(program).map_err(|error| {
        fresh.discard(&FIRST_FILES);
        NotRecorded::NotStarted(not_started(program.get_program(), &error))
    })
}

/// Servers that answer the injected library while the program runs.
struct Servers {
    universal: Option<universal::Server>,
    capability: Option<capability::Server>,
    scheduling: Option<Answering>,
}

impl Servers {
    fn start(session: &Folder, recording: &Recording) -> anyhow::Result<Self> {
        let universal = universal::start(session, recording.universal);
        let universal = universal.context("--universal: cannot listen in the session")?;
        let capability = recording.capability.start(session);
        let capability = capability.context("--capability: cannot listen in the session")?;
        let scheduling = schedule::start(session, &recording.fast);
        let scheduling = scheduling.context("--fast=schedule: cannot listen in the session")?;
        Ok(Self { universal, capability, scheduling })
    }

    /// Ends them, and notes what they answered.
    fn finish(self, meta: &mut Meta) {
        self.scheduling.into_iter().for_each(Answering::finish);
        meta.universal = self.universal.map(universal::Server::finish).unwrap_or_default();
        meta.capability = self.capability.map(capability::Server::finish).unwrap_or_default();
    }
}

/// Threads of this process that observe the program, or tell of it. They start after the program,
/// which must not wait for them.
struct Watchers {
    machine: Option<apex_machine::Sampler>,
    stacks: Option<apex_host_stacks::Sampler>,
    agent: Option<Agent>,
}

impl Watchers {
    fn start(session: &Folder, program: u32, driver: &Driver, recording: &Recording) -> Self {
        let machine = (!recording.no_machine)
            .then(|| machine::start(session, program, driver, recording.max_size))
            .flatten();
        let agent = to_hub::start(recording.to_hub.as_ref(), session.path().to_owned());
        let stacks = host_stacks::start(session, recording.host_stacks, recording.max_size);
        Self { machine, stacks, agent }
    }

    /// Ends those that observe, and gives the one that tells a hub.
    fn finish(self) -> Option<Agent> {
        host_stacks::finish(self.stacks);
        machine::finish(self.machine);
        self.agent
    }
}

/// Adds to a session what is found out after its program has ended.
fn complete(session: &Folder, control: &MappedControl) {
    if control.keeps_ptx() {
        triton::keep(session, control);
    }
    // Without them, the session is read unchecked, as older ones are.
    if checksums::store(session, session::has_checksum).is_ok() {
        control.has_checksums.store(1, Ordering::Relaxed);
    }
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

/// Writes the files that a session has before its program starts; `shared` is the folder of the
/// whole job that it is part of.
fn write_first_files(
    meta: &Meta,
    session: &Folder,
    recording: &Recording,
    shared: Option<&Path>,
) -> anyhow::Result<()> {
    let plan = tuned::plan(recording);
    write_first(meta, session)?;
    tuned::write(plan, session)?;
    ask_for_results(recording, session)?;
    recording.notes.store(session)?;
    shared.map_or(Ok(()), |whole| joined::note(whole, recording.notes.clone()))
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
