//! Makes a session of traces that another profiler recorded.
//!
//! [`Format::of`] tells a file's format by its content. Each format has a module that fills the
//! intermediate form (`model`): calls of the host, work of the device, ranges and frames of
//! Python, in nanoseconds. `write` joins calls to work and writes the files of a session, which
//! everything else reads as if `apex run` had recorded it.
//!
//! Invariants:
//!
//! 1. Every kernel, copy and set of the trace is in the session, with its exact start and duration.
//! 2. What a trace cannot tell is left out and said ([`Imported::remarks`]), never guessed.
//! 3. Any bytes give a session or an [`Error`] that names the place; never a panic. Memory is
//!    bounded by constants (`bounds`), not by what a file claims.
//! 4. No command line, environment or user name is copied.

mod bounds;
mod calls;
mod decimal;
mod error;
mod join;
mod json;
mod kineto;
mod model;
mod nsys;
mod places;
mod python;
mod ranges;
mod write;

pub use error::Error;

use apex_trace::MappedControl;
use apex_trace::control::Settings;
use apex_trace::meta::{Exit, Host, Meta, SCHEMA};
use apex_untrusted::{Folder, read};
use flate2::read::MultiGzDecoder;
use model::Trace;
use std::collections::{BTreeMap, HashSet};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// Bytes of a trace that is read, at most: 1 TiB.
const MOST_BYTES: u64 = 1 << 40;
/// Bytes by which a file's format is told.
const HEAD_BYTES: usize = 4096;

/// Identifiers of processes without a rank, where several files are one session.
const FIRST_WITHOUT_RANK: u32 = 1_000_000;

/// The format of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Events in Chrome's JSON, as `torch.profiler` writes them, maybe compressed by gzip.
    Json,
    /// Nsight Systems' export to SQLite.
    NsightSqlite,
}

impl Format {
    /// The format of a file; `None` if it is none of them, or cannot be read.
    pub fn of(path: &Path) -> Option<Self> {
        let mut head = Vec::new();
        let file = read::open(path, MOST_BYTES).ok()?;
        file.take(HEAD_BYTES as u64).read_to_end(&mut head).ok()?;
        if head.starts_with(b"SQLite format 3\0") {
            return Some(Self::NsightSqlite);
        }
        let mut text = head;
        if text.starts_with(&[0x1f, 0x8b]) {
            let mut plain = Vec::new();
            // The end of the head is a cut: what comes before counts.
            let _ = MultiGzDecoder::new(&text[..]).take(HEAD_BYTES as u64).read_to_end(&mut plain);
            text = plain;
        }
        let first = text.iter().find(|byte| !byte.is_ascii_whitespace());
        matches!(first, Some(b'{' | b'[')).then_some(Self::Json)
    }
}

/// The traces at a path: itself, or those in the folder, by name. Empty where there are none.
pub fn traces_at(path: &Path) -> Vec<PathBuf> {
    if !path.is_dir() {
        return Format::of(path).map(|_| path.to_path_buf()).into_iter().collect();
    }
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let files = entries.map(|entry| entry.path()).filter(|path| path.is_file() && is_named_like_trace(path));
    let mut traces: Vec<PathBuf> = files.filter(|path| is_trace(path)).collect();
    traces.sort();
    traces
}

/// Whether a file that nobody named is a trace: JSON files may hold anything.
fn is_trace(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match Format::of(path) {
        Some(Format::Json) => name.contains("trace.json") || name.ends_with(".json.gz"),
        format => format.is_some(),
    }
}

/// Whether a file in a folder has a name that profilers give traces.
fn is_named_like_trace(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    [".json", ".json.gz", ".sqlite"].iter().any(|ending| name.ends_with(ending))
}

/// What was imported.
#[derive(Clone, Debug, Default)]
pub struct Imported {
    /// Profiler and version, for each file.
    pub sources: Vec<String>,
    /// Kernels.
    pub kernels: u64,
    /// Copies and sets of memory.
    pub transfers: u64,
    /// Calls of the host.
    pub calls: u64,
    /// Events that the session has no place for, by kind.
    pub left_out: BTreeMap<String, u64>,
    /// What the traces cannot tell, and what was wrong with them: sentences.
    pub remarks: Vec<String>,
}

/// Writes a session of these traces into an empty folder.
///
/// # Errors
/// If a trace is refused or cannot be read, if two are of the same rank, or if the session cannot
/// be written.
pub fn import(paths: &[PathBuf], folder: &Folder) -> Result<Imported, Error> {
    let mut imported = Imported::default();
    let mut began = u64::MAX;
    let mut ended = 0;
    let mut ranks: BTreeMap<u32, &Path> = BTreeMap::new();
    let mut next_pid = FIRST_WITHOUT_RANK;
    let mut files = 0;
    for path in paths {
        let trace = read_trace(path)?;
        if trace.processes.iter().all(model::Process::is_empty) {
            return Err(Error::refused(path, trace.why_empty()));
        }
        for process in &trace.processes {
            if let Some(rank) = process.rank
                && let Some(other) = ranks.insert(rank, path)
            {
                let other = apex_untrusted::shown(other);
                let what = format!("it is of rank {rank}, and so is {other}: import them separately");
                return Err(Error::refused(path, what));
            }
        }
        imported.sources.push(trace.source());
        let Trace { processes, left_out, remarks, .. } = trace;
        left_out.into_iter().for_each(|(kind, count)| *imported.left_out.entry(kind).or_default() += count);
        imported.remarks.extend(remarks);
        for mut process in processes.into_iter().filter(|process| !process.is_empty()) {
            if paths.len() > 1 {
                // Identifiers of several machines may be the same, and do not follow the ranks.
                process.pid = process.rank.map_or_else(|| next_pid, |rank| rank + 1);
                next_pid += 1;
            }
            let (start, end) = process.span_real_ns();
            (began, ended) = (began.min(start), ended.max(end));
            files += 1;
            write::process(process, folder, &mut imported)
                .map_err(|error| Error::Unwritable(folder.path().to_owned(), error))?;
        }
    }
    let mut said = HashSet::new();
    imported.remarks.retain(|remark| said.insert(remark.clone()));
    let unwritable = |error| Error::Unwritable(folder.path().to_owned(), error);
    meta(paths, began, ended).store(folder).map_err(unwritable)?;
    // The page by which a session is told. Nobody records into it.
    let control = MappedControl::create_in(folder, Settings { recording: false, ..Settings::default() });
    control.map_err(unwritable)?.processes.store(files, Ordering::Relaxed);
    Ok(imported)
}

fn meta(paths: &[PathBuf], began: u64, ended: u64) -> Meta {
    let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Meta {
        schema: SCHEMA,
        apex_version: env!("CARGO_PKG_VERSION").to_owned(),
        command: paths.iter().map(name).collect(),
        cwd: String::new(),
        pid: None,
        started_real_ns: began,
        ended_real_ns: Some(ended),
        exit: Some(Exit::Code(0)),
        device: "gpu".to_owned(),
        timing: "all".to_owned(),
        host: Host::default(),
        rank: None,
        universal: Vec::new(),
    }
}

fn read_trace(path: &Path) -> Result<Trace, Error> {
    if path.to_string_lossy().ends_with(".nsys-rep") {
        let shown = apex_untrusted::shown(path);
        let what = format!("only Nsight Systems reads it: `nsys export --type sqlite {shown}`");
        return Err(Error::refused(path, what));
    }
    let open = || read::open(path, MOST_BYTES).map_err(|error| Error::Unreadable(path.to_owned(), error));
    match Format::of(path) {
        Some(Format::NsightSqlite) => nsys::read(path),
        Some(Format::Json) => {
            let mut head = [0; 2];
            let is_packed = open()?.read_exact(&mut head).is_ok() && head == [0x1f, 0x8b];
            let file = BufReader::with_capacity(1 << 18, open()?);
            match is_packed {
                true => kineto::read(path, MultiGzDecoder::new(file)),
                false => kineto::read(path, file),
            }
        }
        None => {
            open()?;
            let what = "it is no trace that APEX reads: PyTorch's JSON, Nsight Systems' SQLite export";
            Err(Error::refused(path, what))
        }
    }
}
