//! Makes a session of traces that another profiler recorded.
//!
//! [`Format::of`] tells a file's format by its content, and [`Found::at`] which files of a folder
//! are traces. Each format has a module that fills the intermediate form (`model`): calls of the
//! host, work of the device, ranges and frames of Python, in nanoseconds. `write` joins calls to
//! work and writes the files of a session, which everything else reads as if `apex run` had
//! recorded it.
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
mod sources;
mod write;
mod xla;
mod xplane;

pub use error::Error;
pub use sources::{Format, Found, refusal};

use apex_trace::MappedControl;
use apex_trace::control::Settings;
use apex_trace::meta::{Host, Meta, SCHEMA};
use apex_untrusted::{Folder, read};
use bounds::MOST_BYTES;
use flate2::read::MultiGzDecoder;
use model::{Trace, several};
use std::collections::{BTreeMap, HashSet};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// Identifiers of processes without a rank, where several files are one session.
const FIRST_WITHOUT_RANK: u32 = 1_000_000;

/// Files of a folder that are named with the reason why they are not read, at most.
const MOST_PASSED: usize = 5;

/// Summary of an import.
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
    /// Calls that other calls made, whose work counts as theirs.
    pub inside: u64,
    /// Events that the session has no place for, by kind.
    pub left_out: BTreeMap<String, u64>,
    /// Limits and faults of the traces, as sentences.
    pub remarks: Vec<String>,
}

/// Writes a session of these traces into an empty folder.
///
/// # Errors
/// If a trace is refused or cannot be read, if two are of the same rank, or if the session cannot
/// be written.
pub fn import(paths: &[PathBuf], folder: &Folder) -> Result<Imported, Error> {
    let mut importer = Importer::new(folder, paths.len() > 1);
    paths.iter().try_for_each(|path| importer.add(path, read_trace(path)?))?;
    importer.finish()
}

/// The same for the traces that were found in a folder: what is no trace after all is left out, and
/// said, as is what was passed.
///
/// # Errors
/// As [`import`], if no trace of them can be read.
pub fn import_found(found: &Found, folder: &Folder) -> Result<Imported, Error> {
    let mut importer = Importer::new(folder, found.traces.len() > 1);
    let mut passed: Vec<(&Path, String)> =
        found.passed.iter().map(|(path, why)| (path.as_path(), why.clone())).collect();
    let mut first = None;
    for path in &found.traces {
        match read_trace(path) {
            Ok(trace) => importer.add(path, trace)?,
            Err(error) => {
                passed.push((path, error.reason()));
                first.get_or_insert(error);
            }
        }
    }
    if let Some(error) = first.filter(|_| importer.paths.is_empty()) {
        return Err(error);
    }
    let more = passed.len().saturating_sub(MOST_PASSED);
    let named = passed.iter().take(MOST_PASSED);
    let remarks = &mut importer.imported.remarks;
    remarks.extend(named.map(|(path, why)| format!("{} is not read: {why}", apex_untrusted::shown(path))));
    remarks.extend((more > 0).then(|| {
        format!("{} of the folder not read", several(more as u64, "more file is", "more files are"))
    }));
    importer.finish()
}

/// A session that is being made, one trace after another, so that one at a time is in memory.
struct Importer<'f> {
    folder: &'f Folder,
    /// Whether there may be several traces, whose processes are then numbered by rank.
    are_several: bool,
    paths: Vec<PathBuf>,
    imported: Imported,
    ranks: BTreeMap<u32, PathBuf>,
    began: u64,
    ended: u64,
    processes: u32,
    /// The ranks of processes, by process identifier.
    told: BTreeMap<u32, u32>,
}

impl<'f> Importer<'f> {
    fn new(folder: &'f Folder, are_several: bool) -> Self {
        Self {
            folder,
            are_several,
            paths: Vec::new(),
            imported: Imported::default(),
            ranks: BTreeMap::new(),
            began: u64::MAX,
            ended: 0,
            processes: 0,
            told: BTreeMap::new(),
        }
    }

    fn add(&mut self, path: &Path, trace: Trace) -> Result<(), Error> {
        self.refuse_duplicate(path, &trace)?;
        self.paths.push(path.to_path_buf());
        self.imported.sources.push(trace.source());
        let Trace { processes, left_out, remarks, .. } = trace;
        for (kind, count) in left_out {
            *self.imported.left_out.entry(kind).or_default() += count;
        }
        self.imported.remarks.extend(remarks);
        processes.into_iter().try_for_each(|process| self.process(process))
    }

    /// Refuses a second trace of a rank: which of them is the rank's cannot be told.
    fn refuse_duplicate(&mut self, path: &Path, trace: &Trace) -> Result<(), Error> {
        for rank in trace.processes.iter().filter_map(|process| process.rank) {
            if let Some(other) = self.ranks.insert(rank, path.to_path_buf()) {
                let other = apex_untrusted::shown(&other);
                let what = format!("it is of rank {rank}, and so is {other}: import them separately");
                return Err(Error::refused(path, what));
            }
        }
        Ok(())
    }

    fn process(&mut self, mut process: model::Process) -> Result<(), Error> {
        if self.are_several {
            // Identifiers of several machines may be the same, and do not follow the ranks.
            process.pid =
                process.rank.map_or(FIRST_WITHOUT_RANK + self.processes, |rank| rank.saturating_add(1));
        }
        if let Some(rank) = process.rank {
            self.told.insert(process.pid, rank);
        }
        let (start, end) = process.span_real_ns();
        (self.began, self.ended) = (self.began.min(start), self.ended.max(end));
        self.processes += 1;
        write::process(process, self.folder, &mut self.imported)
            .map_err(|error| Error::Unwritable(self.folder.path().to_owned(), error))
    }

    fn finish(self) -> Result<Imported, Error> {
        let Self { folder, paths, mut imported, began, ended, processes, told, .. } = self;
        if imported.inside > 0 {
            imported.remarks.push(format!(
                "{} (the runtime calls the driver): the work of an inner call counts as the outer call's",
                several(imported.inside, "call is inside of another one", "calls are inside of other ones")
            ));
        }
        let mut said = HashSet::new();
        imported.remarks.retain(|remark| said.insert(remark.clone()));
        let unwritable = |error| Error::Unwritable(folder.path().to_owned(), error);
        let meta = Meta { ranks: told, ..meta(&paths, &imported.sources, began, ended) };
        meta.store(folder).map_err(unwritable)?;
        // The page by which a session is told. Nobody records into it.
        let settings = Settings { recording: false, ..Settings::default() };
        let control = MappedControl::create_in(folder, settings).map_err(unwritable)?;
        control.processes.store(processes, Ordering::Relaxed);
        Ok(imported)
    }
}

fn meta(paths: &[PathBuf], sources: &[String], began: u64, ended: u64) -> Meta {
    let mut imported = sources.to_vec();
    imported.dedup();
    let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Meta {
        schema: SCHEMA,
        apex_version: env!("CARGO_PKG_VERSION").to_owned(),
        command: paths.iter().map(name).collect(),
        cwd: String::new(),
        pid: None,
        started_real_ns: began,
        ended_real_ns: Some(ended),
        exit: None,
        device: "gpu".to_owned(),
        timing: "all".to_owned(),
        host: Host::default(),
        rank: None,
        ranks: BTreeMap::new(),
        universal: Vec::new(),
        capability: Vec::new(),
        imported,
        checked: false,
        attached: false,
        watched_by: None,
    }
}

/// Reads a trace that has work of a GPU.
fn read_trace(path: &Path) -> Result<Trace, Error> {
    let mut trace = decoded(path)?;
    let impossible: u64 = trace.processes.iter_mut().map(model::Process::leave_out_impossible).sum();
    if impossible > 0 {
        trace.remarks.push(format!(
            "{} that cannot be (a year long, or years away from the others): left out",
            several(impossible, "event has a time", "events have times")
        ));
    }
    trace.processes.retain(|process| !process.is_empty());
    let [process] = &mut trace.processes[..] else {
        return if trace.processes.is_empty() {
            Err(Error::refused(path, trace.why_empty()))
        } else {
            Ok(trace)
        };
    };
    if process.rank.is_none() {
        process.rank = rank_in_name(path);
    }
    Ok(trace)
}

fn decoded(path: &Path) -> Result<Trace, Error> {
    let open = || read::open(path, MOST_BYTES).map_err(|error| Error::Unreadable(path.to_owned(), error));
    match Format::of(path) {
        Some(Format::NsightSqlite) => nsys::read(path),
        Some(Format::Xplane) => xplane::read(path),
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
            let what = "it is no trace that APEX reads (PyTorch's or JAX's JSON, *.xplane.pb, Nsight Systems' SQLite export)";
            Err(Error::refused(path, refusal(path).unwrap_or(what)))
        }
    }
}

/// The number after `rank` or `worker` in a file's name, or in the name of its folder.
fn rank_in_name(path: &Path) -> Option<u32> {
    let names = [path.file_name(), path.parent().and_then(Path::file_name)];
    names.into_iter().flatten().find_map(|name| {
        let name = name.to_string_lossy().to_ascii_lowercase();
        ["rank", "worker"].iter().find_map(|word| {
            let (_, rest) = name.split_once(word)?;
            let rest = rest.trim_start_matches(['-', '_', '.', '=']);
            let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            // (A longer number is a time.)
            rest[..end].parse().ok().filter(|_| end < 7)
        })
    })
}
