//! `apex merge`: joins sessions that were recorded apart.
//!
//! The members are copied as they are, with their checksums. What is refused would make a report
//! wrong without a trace: a rank that occurs twice, a session that is still being recorded, and a
//! folder that is no session.

use crate::{import, joined, output, session, units};
use anyhow::{Context, bail};
use apex_catalogue::Notes;
use apex_conventions::documents;
use apex_ordered::Gather;
use apex_profile::{Ranks, launched_rank};
use apex_trace::meta::Meta;
use apex_trace::{Session, folders};
use apex_untrusted::Folder;
use apex_untrusted::folder::identity;
use clap::builder::FalseyValueParser;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Minimum time between the end of one session and the start of another for them to be of different
/// runs, nanoseconds. Shorter times may be a difference between the hosts' clocks.
const APART_NS: u64 = 60_000_000_000;

/// Joins sessions that were recorded apart (ranks, hosts) into one that every command reads.
#[derive(clap::Args, Debug)]
#[command(after_long_help = "Examples:
  apex merge rank-0 rank-1 -o job
  apex merge node-*/session -o job
  apex merge node-0.tar.gz node-1.tar.gz -o job    packed sessions
  apex report --ranks job

The sessions are copied. A rank that occurs twice is refused. Ranks that record into one shared folder need no merging: \
`apex run -o job` in each rank. Times of sessions of other hosts are moved so that the hosts' calendar clocks agree; \
how well these were set is not known, so no order of events across hosts is claimed.")]
pub struct Args {
    /// The sessions to join
    #[arg(required = true, value_name = "SESSION")]
    sessions: Vec<PathBuf>,
    /// Session folder to create
    #[arg(short, long, value_name = "DIR", required = true)]
    output: PathBuf,
    #[arg(long, help = format!("Print JSON (schema {})", documents::MERGE), value_parser = FalseyValueParser::new())]
    json: bool,
}

/// Summary of the joined sessions.
#[derive(Serialize)]
struct Document {
    #[serde(serialize_with = "output::path_in_document")]
    session: PathBuf,
    members: Vec<Joined>,
    /// Processes of the job, as its launcher says; `null` where it does not, or says several.
    world_size: Option<u32>,
    /// Notes that a reader of the session must know.
    notes: Vec<String>,
}

/// A session that was joined.
#[derive(Serialize)]
struct Joined {
    #[serde(serialize_with = "output::path_in_document")]
    from: PathBuf,
    host: String,
    /// The ranks that a launcher gave its processes.
    ranks: Vec<u32>,
    /// Processes that made CUDA calls.
    processes: usize,
}

/// Runs `apex merge`.
pub fn execute(args: &Args) -> anyhow::Result<ExitCode> {
    let members = members(&args.sessions)?;
    refuse_twice(&members)?;
    refuse_inside(&args.output, &args.sessions)?;
    let read: Vec<Session> = members.iter().map(|dir| read(dir)).collect::<Result<_, _>>()?;
    let joined: Vec<Joined> =
        members.iter().zip(&read).map(|(dir, session)| describe(dir, session)).collect();
    refuse_duplicates(&joined)?;
    let (world_size, notes) = notes(&read, &joined);
    let said = said_about(&args.sessions, &members)?;
    let fresh = session::Fresh::make(Some(&args.output), OsStr::new("merge"))?;
    joined::begin(&fresh.folder, &whole(&read)?)?;
    for from in &members {
        let to = joined::new_member(&fresh.folder)?;
        copy(from, &to).with_context(|| format!("cannot copy {}", apex_untrusted::shown(from)))?;
    }
    joined::note(fresh.folder.path(), said)?;
    joined::conclude(fresh.folder.path())?;
    let document = Document { session: args.output.clone(), members: joined, world_size, notes };
    if args.json { output::json(documents::MERGE, &document) } else { say(&document) }
}

fn say(document: &Document) -> anyhow::Result<ExitCode> {
    document.notes.iter().for_each(output::remark);
    let ranks: u64 = document.members.iter().map(|member| member.ranks.len() as u64).sum();
    let without = unranked(&document.members);
    let ranks = match (ranks, without) {
        (0, _) => String::new(),
        (ranks, 0) => format!("{}, ", units::counted(ranks, "rank", "ranks")),
        (ranks, without) => {
            let without = units::counted(without, "process", "processes");
            format!("{}, {without} without a rank, ", units::counted(ranks, "rank", "ranks"))
        }
    };
    let hosts: BTreeSet<&str> = document.members.iter().map(|member| member.host.as_str()).gathered();
    let shown = apex_untrusted::shown(&document.session);
    output::remark(format!(
        "joined {} ({ranks}{}) in {shown}; read it with `apex report --ranks {shown}`",
        units::counted(document.members.len() as u64, "session", "sessions"),
        units::counted(hosts.len() as u64, "host", "hosts"),
    ));
    Ok(ExitCode::SUCCESS)
}

/// The folders of all sessions that are named; those of a joined one are its members'.
fn members(named: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut members = Vec::new();
    for dir in named {
        session::exists(dir)?;
        members.extend(folders(&import::opened(dir)?));
    }
    if members.len() > apex_trace::MOST_MEMBERS {
        bail!("{} sessions are more than the {} that one joins", members.len(), apex_trace::MOST_MEMBERS);
    }
    Ok(members)
}

/// Names, tags and remarks of the sessions, and of the members that they join.
fn said_about(named: &[PathBuf], members: &[PathBuf]) -> anyhow::Result<Notes> {
    let mut said = Notes::default();
    for dir in named {
        said.join(Notes::read(&import::opened(dir)?)?);
    }
    for dir in members {
        said.join(Notes::read(dir)?);
    }
    Ok(said)
}

fn refuse_twice(members: &[PathBuf]) -> anyhow::Result<()> {
    let mut seen = BTreeSet::new();
    for dir in members {
        let found = dir.metadata().with_context(|| format!("cannot read {}", apex_untrusted::shown(dir)))?;
        if !seen.insert(identity(&found)) {
            bail!("{} is named twice", apex_untrusted::shown(dir));
        }
    }
    Ok(())
}

/// A session that holds the joined one would be copied into itself by the next `apex merge`.
fn refuse_inside(output: &Path, sessions: &[PathBuf]) -> anyhow::Result<()> {
    let parent = output.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Ok(parent) = parent.canonicalize() else { return Ok(()) };
    let holds = |session: &&PathBuf| session.canonicalize().is_ok_and(|session| parent.starts_with(session));
    match sessions.iter().find(holds) {
        Some(session) => bail!(
            "{} would be inside of {}: name a folder outside of the sessions that are joined with -o",
            apex_untrusted::shown(output),
            apex_untrusted::shown(session)
        ),
        None => Ok(()),
    }
}

/// Reads a session that is not being recorded any more.
fn read(dir: &Path) -> anyhow::Result<Session> {
    let session = Session::open(dir)?;
    if let Some(pid) = apex_live::running(&session).first() {
        bail!("{} is still recorded by process {pid}: wait for its end", apex_untrusted::shown(dir));
    }
    Ok(session)
}

fn describe(dir: &Path, session: &Session) -> Joined {
    let told: BTreeSet<u32> = Ranks::of(session)
        .iter()
        .filter_map(|(rank, pid)| {
            let process = session.processes.iter().find(|process| process.pid == pid)?;
            launched_rank(process).map(|told| told.rank).filter(|&told| told as usize == rank)
        })
        .gathered();
    let host = session.members.first().map_or_else(String::new, |member| member.host.clone());
    Joined {
        from: dir.to_owned(),
        host,
        ranks: told.into_iter().collect(),
        processes: session.processes.len(),
    }
}

/// Processes of members in which a launcher told no rank.
fn unranked(joined: &[Joined]) -> u64 {
    let of = |member: &Joined| member.processes.saturating_sub(member.ranks.len()) as u64;
    joined.iter().filter(|member| member.ranks.is_empty()).map(of).sum()
}

fn refuse_duplicates(joined: &[Joined]) -> anyhow::Result<()> {
    let mut seen: BTreeMap<u32, &Path> = BTreeMap::new();
    for member in joined {
        for &rank in &member.ranks {
            if let Some(other) = seen.insert(rank, &member.from) {
                bail!(
                    "rank {rank} is in {} and in {}: sessions of one run of a job have each rank once",
                    apex_untrusted::shown(other),
                    apex_untrusted::shown(&member.from)
                );
            }
        }
    }
    Ok(())
}

/// Warnings if sessions seem to be of different jobs, with the sessions that differ.
fn of_different_jobs(read: &[Session], joined: &[Joined]) -> Vec<String> {
    let members = || read.iter().zip(joined).map(|(session, member)| (session, member.from.as_path()));
    let jobs = members().filter_map(|(session, from)| Some((job(session)?, from)));
    let programs = members().filter_map(|(session, from)| Some((program(session.meta.as_ref()?)?, from)));
    // The calendar time of an imported trace is unknown.
    let is_dated = |meta: &&Meta| meta.imported.is_empty();
    let times =
        || members().filter_map(|(session, from)| Some((session.meta.as_ref().filter(is_dated)?, from)));
    let ended_first = times().filter_map(|(meta, from)| Some((meta.ended_real_ns?, from))).min();
    let began_last = times().map(|(meta, from)| (meta.started_real_ns, from)).max();
    let apart =
        ended_first.zip(began_last).filter(|((end, _), (begin, _))| end.saturating_add(APART_NS) < *begin);
    let apart = apart.map(|((end, early), (begin, late))| {
        format!(
            "{} had ended {} before {} began: the sessions may be of different runs",
            apex_untrusted::shown(early),
            units::time((begin - end) as f64),
            apex_untrusted::shown(late)
        )
    });
    let differing = [differing("jobs", jobs), differing("programs", programs)];
    differing.into_iter().flatten().chain(apart).collect()
}

/// The name that a launcher gave the job of a session's processes.
fn job(session: &Session) -> Option<String> {
    session.processes.iter().filter_map(launched_rank).find_map(|rank| rank.job)
}

/// What a session ran: the Python script, or else the program. Other arguments may differ by rank.
fn program(meta: &Meta) -> Option<String> {
    let script = meta.command.iter().find(|word| Path::new(word).extension() == Some(OsStr::new("py")));
    let named = script.or(meta.command.first())?;
    Some(Path::new(named).file_name()?.to_string_lossy().into_owned())
}

/// Says that sessions differ in their `what`, with one example for each value.
fn differing<'a>(what: &str, of: impl Iterator<Item = (String, &'a Path)>) -> Option<String> {
    let mut examples: BTreeMap<String, &Path> = BTreeMap::new();
    for (name, from) in of {
        examples.entry(name).or_insert(from);
    }
    let named = examples
        .iter()
        .map(|(name, from)| format!("{} in {}", apex_untrusted::shown(name), apex_untrusted::shown(from)));
    let named: Vec<String> = named.collect();
    (examples.len() > 1).then(|| format!("the sessions are of different {what}: {}", named.join(", ")))
}

/// The size of the job, and what is not as in a job that was recorded whole.
fn notes(read: &[Session], joined: &[Joined]) -> (Option<u32>, Vec<String>) {
    let ranks = read.iter().flat_map(|session| &session.processes).filter_map(launched_rank);
    let sizes: BTreeSet<u32> = ranks.filter_map(|rank| rank.world_size).gathered();
    let recorded: usize = joined.iter().map(|member| member.ranks.len()).sum();
    let mut notes = of_different_jobs(read, joined);
    let world = sizes.first().copied().filter(|_| sizes.len() == 1);
    if sizes.len() > 1 {
        let sizes: Vec<String> = sizes.iter().map(ToString::to_string).collect();
        notes.push(format!(
            "the sessions are of jobs of different sizes ({} processes): they may be of different runs",
            sizes.join(", ")
        ));
    }
    let unranked = unranked(joined);
    if let Some(world) = world.filter(|&world| recorded < world as usize) {
        let was = if recorded == 1 { "was" } else { "were" };
        let others = match unranked {
            0 => String::new(),
            others => format!(", and {} without a rank", units::counted(others, "process", "processes")),
        };
        notes.push(format!("{recorded} of the job's {world} ranks {was} recorded{others}"));
    }
    for member in joined.iter().filter(|member| member.ranks.is_empty()) {
        let all = match recorded {
            0 => "they are",
            _ => "so all processes of the joined session are",
        };
        notes.push(format!(
            "no launcher told the ranks in {}: {all} numbered by process identifiers",
            apex_untrusted::shown(&member.from)
        ));
    }
    (world, notes)
}

/// The description of the whole, which is that of the first member; its end follows from theirs.
fn whole(read: &[Session]) -> anyhow::Result<Meta> {
    let metas = || read.iter().filter_map(|session| session.meta.as_ref());
    // One that was started under APEX has launches, and so has the whole.
    let first = metas().find(|meta| !meta.attached).or_else(|| metas().next()).cloned();
    let first = first.context("none of the sessions says what was run: their `session.json` is missing")?;
    let ranks = BTreeMap::new();
    Ok(Meta { rank: None, ranks, pid: None, watched_by: None, exit: None, ended_real_ns: None, ..first })
}

/// Copies the files of a session.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let folder = Folder::open(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        if entry.file_type()?.is_file() && session::is_copied(&name) {
            let mut source = apex_untrusted::read::open(&entry.path(), u64::MAX)?;
            io::copy(&mut source, &mut folder.create_new(&name)?)?;
        }
    }
    Ok(())
}
