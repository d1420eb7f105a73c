//! Reads sessions, finished or running, whole or damaged.
//!
//! Nothing that a file says is trusted. What is sound is read, what is not is named in a
//! [`Problem`] with its place, and only a session that can't be understood at all is an [`Error`].
//! Memory: the definitions, 100 bytes for each run of a thread in a chunk (8190 launches, usually),
//! and one chunk while records are streamed. A session that is opened again and again has less
//! ([`Watcher`]).

mod definitions;
mod file;
mod header;
mod headers;
mod history;
mod members;
mod problems;
mod process;
mod records;
mod source;
mod totals;
mod watcher;

pub use definitions::Definitions;
pub use headers::Headers;
pub use members::{Member, members};
pub use process::Process;
pub use records::{Event, Record};
pub use totals::{CallSort, CallTotals, Totals};
pub use watcher::{Recent, Watcher};

use crate::checksums;
use crate::control::{self, CONTROL_FILE, CONTROL_MAGIC, MappedControl};
use crate::counts::{EXTENSION as COUNTS_FILE_EXTENSION, ProcessCounts};
use crate::error::{Error, Problem};
use crate::joined::{folders, session_pid};
use crate::layout::PROCESS_FILE_EXTENSION;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Name of the file in a session's directory that says what was run.
pub const META_FILE: &str = "session.json";
/// Process files of a session, and files of counts, that are read: more than machines have
/// processes.
const MOST_FILES: usize = 100_000;

/// The recording of one `apex run`.
#[derive(Debug)]
#[non_exhaustive]
pub struct Session {
    /// Its directory.
    pub dir: PathBuf,
    /// The sessions that it is joined of; itself alone if it is not joined.
    pub members: Vec<Member>,
    /// The run; `None`, with a problem, if `session.json` is missing or damaged.
    #[cfg(feature = "meta")]
    pub meta: Option<crate::meta::Meta>,
    /// The processes that made CUDA calls, in the order of their first one. None is no error: a
    /// session of a program that never used CUDA.
    pub processes: Vec<Process>,
    /// The counts of devices that execute kernels themselves, by process; empty if there are none.
    pub counts: Vec<ProcessCounts>,
    /// The part of the programs' code that was kept; `None` if none was requested.
    pub code: Option<KeptCode>,
    /// The problems in it.
    pub problems: Vec<Problem>,
}

/// The amount of code that was kept of the images that programs loaded (`apex run --code`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeptCode {
    /// Most bytes that images could take.
    pub max_bytes: u64,
    /// Images.
    pub images: u64,
    /// Bytes of their files.
    pub bytes: u64,
    /// Loads of images that were not kept.
    pub left_out: u64,
    /// Bytes of these, as far as they are known.
    pub left_out_bytes: u64,
}

impl KeptCode {
    /// Adds what another member of a joined session kept.
    fn add(&mut self, other: &KeptCode) {
        self.max_bytes = self.max_bytes.max(other.max_bytes);
        self.images = self.images.saturating_add(other.images);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.left_out = self.left_out.saturating_add(other.left_out);
        self.left_out_bytes = self.left_out_bytes.saturating_add(other.left_out_bytes);
    }
}

/// Whether a directory is a session. Its control page tells: `session.json` alone is a name that
/// others use too.
pub fn is_session(dir: &Path) -> bool {
    let mut magic = [0; CONTROL_MAGIC.len()];
    let opened = apex_untrusted::read::open(&dir.join(CONTROL_FILE), u64::MAX);
    opened.is_ok_and(|mut file| file.read_exact(&mut magic).is_ok()) && magic == CONTROL_MAGIC
}

/// Whether a process made a CUDA call in the session in `dir`: its first one makes the process's
/// file, which may have been removed since.
pub fn has_process_files(dir: &Path) -> bool {
    folders(dir).iter().any(|dir| has_own_process_files(dir))
}

fn has_own_process_files(dir: &Path) -> bool {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name()).any(|name| has_extension(&name, PROCESS_FILE_EXTENSION))
        || files_made(dir) > 0
}

/// Process files that were made in a session, as its control page counts them; 0 without a page.
fn files_made(dir: &Path) -> usize {
    MappedControl::open(dir).map_or(0, |control| control.processes.load(Relaxed) as usize)
}

/// Says that process files are missing that were made, if the files that are found and those that
/// are known to be missing are fewer. The list of checksums, where it is whole, has so many
/// `listed` ones: if it misses none of the others, the count is probably wrong.
fn uncounted(dir: &Path, found: usize, missing: usize, listed: Option<usize>) -> Option<Problem> {
    let made = files_made(dir);
    let missing = made.checked_sub(found + missing).filter(|&missing| missing > 0)?;
    if let Some(listed) = listed {
        let what = format!(
            "this count is probably damaged: it says that {made} process files were made, and {} has \
             {listed}. If the count is right, {missing} files are missing that were made after the list",
            checksums::FILE
        );
        let (path, offset) = (dir.join(CONTROL_FILE), Some(control::PROCESSES_AT));
        return Some(Problem { path, offset, what });
    }
    let what = format!(
        "{missing} of {made} process files that were made in the session are missing: the CUDA calls in them \
         are in no figure"
    );
    let path = dir.join("*").with_extension(PROCESS_FILE_EXTENSION);
    Some(Problem { path, offset: None, what })
}

/// Whether `session.json` says that this version of APEX recorded the session, or an older one. A
/// file of a newer format in it is then damaged.
#[cfg(feature = "meta")]
fn is_of_known_version(dir: &Path) -> bool {
    crate::meta::Meta::load(dir).is_ok_and(|(meta, _)| meta.is_some_and(|meta| meta.is_known()))
}

/// Nothing says so without `session.json`.
#[cfg(not(feature = "meta"))]
fn is_of_known_version(_: &Path) -> bool {
    false
}

/// Whether a file of this name in a session's directory is part of the session.
pub fn is_part_of_session(name: &OsStr) -> bool {
    name == CONTROL_FILE
        || name == META_FILE
        || has_extension(name, PROCESS_FILE_EXTENSION)
        || has_extension(name, COUNTS_FILE_EXTENSION)
        || has_extension(name, crate::image::EXTENSION)
}

fn has_extension(name: &OsStr, extension: &str) -> bool {
    Path::new(name).extension().is_some_and(|found| found == extension)
}

impl Session {
    /// A session in which nothing was recorded.
    fn empty(dir: &Path) -> Session {
        Session {
            dir: dir.to_owned(),
            members: Vec::new(),
            #[cfg(feature = "meta")]
            meta: None,
            processes: Vec::new(),
            counts: Vec::new(),
            code: None,
            problems: Vec::new(),
        }
    }

    /// Takes a member into a joined session.
    fn take(&mut self, member: &Member, session: Session) {
        let joined = |pid| session_pid(member.number, pid);
        self.processes.extend(session.processes.into_iter().map(|mut process| {
            process.pid = joined(process.pid);
            process.parent_pid = joined(process.parent_pid);
            process.clock = process.clock.moved(member.offset_ns);
            process
        }));
        self.counts.extend(
            session.counts.into_iter().map(|counts| ProcessCounts { pid: joined(counts.pid), ..counts }),
        );
        self.problems.extend(session.problems);
        if let Some(code) = session.code {
            self.code.get_or_insert_default().add(&code);
        }
        self.members.push(member.clone());
    }

    /// Opens the session in `dir`. It may still be running: then this is what was recorded up to
    /// now.
    pub fn open(dir: impl AsRef<Path>) -> Result<Session, Error> {
        Watcher::of_all(dir.as_ref()).look(|_, _| 0)
    }

    /// The name of the host that a process ran on; `None` if it is not known.
    #[cfg(feature = "meta")]
    pub fn host_of(&self, pid: u32) -> Option<&str> {
        let member = self.members.iter().find(|member| member.number == crate::joined::member_of(pid))?;
        Some(member.host.as_str()).filter(|host| !host.is_empty())
    }

    /// Returns the reasons why records of the session were lost, a clause for each cause; empty if
    /// none were.
    pub fn causes_of_loss(&self) -> BTreeSet<String> {
        let mut causes = BTreeSet::new();
        for process in &self.processes {
            if process.overwritten > 0 {
                causes.insert("the oldest gave way to newer ones within --max-size".to_owned());
            }
            if process.dropped > 0 {
                causes.insert(process.drop_cause().unwrap_or_else(|| {
                    "calls came while the recorder was at work in the same thread, as from a signal handler"
                        .to_owned()
                }));
            }
        }
        causes
    }
}

/// Whether the control page says that a list of checksums was written.
fn has_checksums(dir: &Path) -> bool {
    MappedControl::open(dir).is_ok_and(|control| control.has_checksums.load(Relaxed) == 1)
}

/// Reads the control page's counters of code; `None` if none was to be kept, or without the page.
fn kept_code(dir: &Path) -> Option<KeptCode> {
    let control = MappedControl::open(dir).ok()?;
    let code = &control.code;
    let load = |field: &AtomicU64| field.load(Relaxed);
    control.keeps_code().then(|| KeptCode {
        max_bytes: load(&code.max_bytes),
        images: load(&code.kept),
        bytes: load(&code.used_bytes),
        left_out: load(&code.left_out),
        left_out_bytes: load(&code.left_out_bytes),
    })
}

/// The process files in a session's directory, in the order of their names, and how many are left
/// out.
fn list(dir: &Path) -> Result<(Vec<PathBuf>, usize), Error> {
    let unreadable = |source: io::Error| Error::Unreadable { path: dir.to_owned(), source };
    let not_a_session = |found: &str| Error::NotASession { path: dir.to_owned(), found: found.to_owned() };
    if !fs::metadata(dir).map_err(unreadable)?.is_dir() {
        return Err(not_a_session("it is a file"));
    }
    let (files, left_out) = files_of(dir, PROCESS_FILE_EXTENSION)?;
    if files.is_empty() && !dir.join(META_FILE).exists() && !dir.join(CONTROL_FILE).exists() {
        return Err(not_a_session("nothing in it is part of one"));
    }
    Ok((files, left_out))
}

/// The files in a directory whose names end in `extension`, in the order of their names, and how
/// many are left out.
fn files_of(dir: &Path, extension: &str) -> Result<(Vec<PathBuf>, usize), Error> {
    let unreadable = |source: io::Error| Error::Unreadable { path: dir.to_owned(), source };
    let (mut files, mut left_out) = (Vec::new(), 0);
    for entry in fs::read_dir(dir).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_none_or(|found| found != extension) {
            continue;
        }
        if files.len() < MOST_FILES { files.push(path) } else { left_out += 1 }
    }
    files.sort();
    Ok((files, left_out))
}
