//! `apex import`: a session of traces that another profiler recorded.
//!
//! Commands that read a session read such traces, too: [`opened`] imports them into a temporary
//! folder, which is removed at the end.

use crate::{interrupt, output, pack, progress, session, units};
use anyhow::{Context, bail};
use apex_conventions::documents::IMPORT;
use apex_import::{Found, Imported};
use apex_ordered::Order;
use apex_pack::Limits;
use apex_trace::{META_FILE, checksums, is_session};
use apex_untrusted::{Folder, shown};
use clap::builder::FalseyValueParser;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Kinds of events without a place that are named.
const KINDS: usize = 6;

/// Makes a session of a trace that another profiler recorded.
///
/// It reads PyTorch's traces (torch.profiler's JSON, plain or compressed by gzip), JAX's
/// (jax.profiler.trace: *.xplane.pb, *.trace.json.gz) and Nsight Systems' exports to SQLite.
/// Several traces, or a folder of them, become one session: the ranks of a job. Each kernel has its
/// measured duration and its place in time; what a trace cannot tell is said.
#[derive(clap::Args, Debug)]
#[command(after_long_help = "Examples:
  apex import worker0.pt.trace.json.gz -o session
  apex import log/ -o session                  all traces in it and in folders inside, one for each rank
  apex import plugins/profile/2026_11_29/      a run of jax.profiler.trace
  nsys export --type sqlite report.nsys-rep && apex import report.sqlite -o session
  apex report worker0.pt.trace.json.gz         read a trace without keeping a session
  apex import trace.json --json | jq .remarks

docs/import.md says what each format cannot tell.")]
pub struct Args {
    /// Traces, or folders with traces in them
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// Session folder to create [default: apex-TRACE-TIME]
    #[arg(short, long, value_name = "SESSION")]
    output: Option<PathBuf>,
    #[arg(long, help = format!("Print JSON (schema {IMPORT})"), value_parser = FalseyValueParser::new())]
    json: bool,
}

#[derive(Serialize)]
struct Document<'a> {
    session: String,
    sources: &'a [String],
    kernels: u64,
    transfers: u64,
    calls: u64,
    left_out: &'a BTreeMap<String, u64>,
    remarks: &'a [String],
}

/// Runs `apex import`.
pub fn execute(args: &Args) -> anyhow::Result<ExitCode> {
    let traces = Traces::of(&args.traces)?;
    let name = args.traces[0].file_stem().unwrap_or(OsStr::new("trace"));
    let fresh = session::Fresh::make(args.output.as_deref(), name)?;
    let imported = match read(&traces, &fresh.folder) {
        Ok(imported) => imported,
        Err(error) => {
            let written = written_in(fresh.folder.path());
            fresh.discard(&written.iter().map(String::as_str).collect::<Vec<_>>());
            return Err(error);
        }
    };
    let Imported { sources, kernels, transfers, calls, left_out, remarks, .. } = &imported;
    let session = session::shown(fresh.folder.path());
    if args.json {
        let (kernels, transfers, calls) = (*kernels, *transfers, *calls);
        let document = Document { session, sources, kernels, transfers, calls, left_out, remarks };
        return output::json(IMPORT, &document);
    }
    tell(&imported);
    output::page(|out| writeln!(out, "{session}"))
}

/// The traces to import.
enum Traces {
    /// Traces that were named: each has to be one.
    Named(Vec<PathBuf>),
    /// Traces in folders: what is none is left out, and said.
    Found(Found),
}

impl Traces {
    /// The traces that these paths name.
    fn of(paths: &[PathBuf]) -> anyhow::Result<Self> {
        if paths.iter().all(|path| !path.is_dir()) {
            return Ok(Self::Named(paths.to_vec()));
        }
        let mut all = Found::default();
        for path in paths {
            if !path.is_dir() {
                all.traces.push(path.clone());
                continue;
            }
            if is_session(path) {
                bail!("{0} is a session already: `apex report {0}`", shown(path));
            }
            let found = Found::at(path);
            if found.traces.is_empty() {
                bail!(no_traces(path, &found));
            }
            all.traces.extend(found.traces);
            all.passed.extend(found.passed);
        }
        Ok(Self::Found(all))
    }

    /// Number of files to read.
    fn count(&self) -> usize {
        match self {
            Self::Named(traces) | Self::Found(Found { traces, .. }) => traces.len(),
        }
    }
}

/// Says that there are no traces in a folder, and what there is.
fn no_traces(folder: &Path, found: &Found) -> String {
    let files = units::counted(found.others + found.passed.len() as u64, "file", "files");
    let first = found.passed.first().map(|(path, why)| format!("; of {}: {why}", shown(path)));
    format!(
        "{} has no traces in it ({files}{}): name files of torch.profiler (*.json, *.json.gz), of jax.profiler \
         (*.xplane.pb) or of `nsys export --type sqlite`",
        shown(folder),
        first.unwrap_or_default()
    )
}

/// The files in a folder.
fn written_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

fn read(traces: &Traces, folder: &Folder) -> anyhow::Result<Imported> {
    let what = match traces {
        Traces::Named(all) if all.len() == 1 => shown(&all[0]),
        several => format!("{} traces", several.count()),
    };
    let imported = progress::show(&format!("importing {what}"), |_| match traces {
        Traces::Named(paths) => apex_import::import(paths, folder),
        Traces::Found(found) => apex_import::import_found(found, folder),
    })?;
    // Readers do without them.
    let _ = checksums::store(folder, session::has_checksum);
    Ok(imported)
}

/// Says what was imported, and what is missing.
fn tell(imported: &Imported) {
    let mut sources = imported.sources.clone();
    sources.dedup();
    output::remark(format!(
        "imported {}, {} and {} of {}",
        units::counted(imported.kernels, "kernel", "kernels"),
        units::counted(imported.transfers, "copy or set", "copies and sets"),
        units::counted(imported.calls, "call", "calls"),
        sources.join("; ")
    ));
    imported.remarks.iter().for_each(output::remark);
    let mut kinds: Vec<(&String, &u64)> = imported.left_out.iter().collect();
    kinds.order_by_key(|(_, count)| std::cmp::Reverse(**count));
    if !kinds.is_empty() {
        let rest = kinds.len().saturating_sub(KINDS);
        let mut told: Vec<String> =
            kinds.iter().take(KINDS).map(|(kind, count)| format!("{count} × {kind}")).collect();
        told.extend((rest > 0).then(|| units::counted(rest as u64, "more kind", "more kinds")));
        output::remark(format!("left out, for a session has no place for them: {}", told.join(", ")));
    }
}

/// Temporary sessions that were made.
static NUMBER: AtomicUsize = AtomicUsize::new(0);
/// Traces that were imported and packed sessions that were unpacked for this command, and their
/// sessions.
static TEMPORARY: Mutex<Vec<(PathBuf, PathBuf)>> = Mutex::new(Vec::new());

/// The folders around temporary sessions. (The list above is locked while one is made.)
static AROUND: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Removes the folders of temporary sessions, while a session may still be written into one.
fn remove_around() {
    for folder in AROUND.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
        // What is created between the listing and the removal is met by the next attempt.
        for _ in 0..100 {
            match std::fs::remove_dir_all(&folder) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {}
                _ => break,
            }
        }
    }
}

/// The session to read at a path: the path itself, or a temporary one of the packed session or of
/// the traces there.
///
/// # Errors
/// If there are such, and they cannot be unpacked or imported, or if the file there is known to be
/// something else.
pub fn opened(path: &Path) -> anyhow::Result<PathBuf> {
    let mut temporary = TEMPORARY.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, session)) = temporary.iter().find(|(trace, _)| trace == path) {
        return Ok(session.clone());
    }
    let is_recorded = is_session(path) || path.join(META_FILE).exists();
    if is_recorded || path.is_dir() && !session::all_of(path).iter().all(|found| found == path) {
        return Ok(path.to_path_buf());
    }
    let is_packed = session::is_packed(path);
    let found = if is_packed { Found::default() } else { Found::at(path) };
    if found.traces.is_empty() && !is_packed {
        return match apex_import::refusal(path).filter(|_| path.is_file()) {
            Some(what) => {
                bail!("{} is neither a session nor a trace that can be imported: {what}", shown(path))
            }
            // Files that look like traces say more than a session that is not there.
            None if !found.passed.is_empty() => bail!(no_traces(path, &found)),
            None => Ok(path.to_path_buf()),
        };
    }
    let traces = if path.is_dir() { Traces::Found(found) } else { Traces::Named(found.traces) };
    let folder = temporary_folder(path)?;
    let at = folder.path().to_path_buf();
    temporary.push((path.to_path_buf(), at.clone()));
    if is_packed {
        pack::tell(&pack::unpacked_into(path, &folder, Limits::default())?);
    } else {
        tell(&read(&traces, &folder)?);
    }
    Ok(at)
}

/// A folder for a session, which has the name of the trace or the packed session, because commands
/// show it.
fn temporary_folder(named: &Path) -> anyhow::Result<Folder> {
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let around = std::env::temp_dir().join(format!("apex-import-{}-{number}", std::process::id()));
    let name = named.file_name().unwrap_or(OsStr::new("traces"));
    AROUND.lock().unwrap_or_else(PoisonError::into_inner).push(around.clone());
    // Without it, a signal leaves the folder, and nothing else is different.
    let _ = interrupt::clean_before_end(remove_around);
    Folder::make(&around)
        .and_then(|_| Folder::make(&around.join(name)))
        .with_context(|| format!("cannot create {}", shown(&around)))
}

/// What the user named, whose session is in this folder.
pub fn named(dir: &Path) -> PathBuf {
    let temporary = TEMPORARY.lock().unwrap_or_else(PoisonError::into_inner);
    temporary
        .iter()
        .find(|(_, session)| session == dir)
        .map_or_else(|| dir.to_path_buf(), |(path, _)| path.clone())
}

/// Removes the temporary session of a path, which is read no more.
pub fn forget(path: &Path) {
    let mut temporary = TEMPORARY.lock().unwrap_or_else(PoisonError::into_inner);
    for (_, session) in temporary.extract_if(.., |(trace, _)| trace == path) {
        remove(&session);
    }
}

/// Removes the temporary sessions of this command.
pub fn remove_temporary() {
    for (_, session) in TEMPORARY.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
        remove(&session);
    }
}

/// Removes a temporary session, with the folder around it.
fn remove(session: &Path) {
    // It lies in the folder for temporary files.
    let _ = std::fs::remove_dir_all(session.parent().unwrap_or(session));
}
