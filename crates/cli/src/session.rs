//! Selects the session of a command, and names new ones.

use crate::output;
use anyhow::{Context, anyhow, bail};
use apex_trace::checksums;
use apex_trace::control::CONTROL_FILE;
use apex_trace::{Meta, has_process_files, is_session};
use apex_untrusted::Folder;
use apex_untrusted::folder::identity;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The session that the user named, else the newest in the current folder.
///
/// # Errors
/// If none was named and none is there.
pub fn choose(named: Option<&Path>) -> anyhow::Result<PathBuf> {
    let Some(path) = named else { return newest_of(&sessions_here()?) };
    must_exist(path)?;
    Ok(path.to_path_buf())
}

/// Refuses a path at which there is nothing.
///
/// # Errors
/// Says so, and how a session comes there.
pub fn exists(path: &Path) -> anyhow::Result<()> {
    let shown = apex_untrusted::shown(path);
    match path.try_exists() {
        Ok(false) if apex_pack::is_named_like_one(path) => {
            bail!("there is no file {shown}: `apex pack` makes such a file of a session")
        }
        Ok(false) => bail!("there is no session {shown}: create one with `apex run -o {shown} -- COMMAND`"),
        _ => Ok(()),
    }
}

/// Refuses a path at which there is nothing, or a packed session, which cannot be followed or
/// changed.
///
/// # Errors
/// Says so, and what to do.
pub fn must_exist(path: &Path) -> anyhow::Result<()> {
    exists(path)?;
    let shown = apex_untrusted::shown(path);
    match is_packed(path) {
        true => {
            bail!("{shown} is a packed session, and this command needs its folder: `apex unpack {shown}`")
        }
        false => Ok(()),
    }
}

/// Whether a path is that of a packed session.
pub fn is_packed(path: &Path) -> bool {
    apex_pack::is_archive(path)
}

/// The session to read: the one that the user named, else the newest in the current folder in which
/// a process made a CUDA call. Where no session has such a process, the newest one says so itself.
///
/// # Errors
/// As [`choose`].
pub fn choose_recorded(named: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(path) = named {
        return Ok(path.to_path_buf());
    }
    let mut sessions = sessions_here()?;
    let newest = newest_of(&sessions)?;
    sessions.retain(|path| has_process_files(path) || Meta::is_attached(path));
    let Ok(chosen) = newest_of(&sessions) else { return Ok(newest) };
    if chosen != newest {
        output::remark(format!(
            "the newest session {} has no CUDA call; reading {}",
            apex_untrusted::shown(newest),
            apex_untrusted::shown(&chosen)
        ));
    }
    Ok(chosen)
}

/// The newest session in the current folder, if there is one.
pub fn newest_here() -> Option<PathBuf> {
    newest_of(&sessions_here().ok()?).ok()
}

/// The current folder if it is a session, else the sessions in it.
fn sessions_here() -> anyhow::Result<Vec<PathBuf>> {
    sessions_in(Path::new(".")).context("cannot list the current folder")
}

/// A folder if it is a session, else the sessions in it.
pub fn sessions_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    if is_session(folder) {
        return Ok(vec![folder.to_path_buf()]);
    }
    let entries = std::fs::read_dir(folder)?;
    // A folder may have a million files: only folders, and what links may lead to, are looked into.
    let folders = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|found| !found.is_file()));
    Ok(folders.map(|entry| entry.path()).filter(|path| is_session(path)).collect())
}

/// The session that a path names, or the sessions in the folder that it names, the newest first. A
/// path at which there is neither names itself: what is wrong with it is said when it is read.
pub fn all_of(named: &Path) -> Vec<PathBuf> {
    let mut sessions = sessions_in(named).unwrap_or_default();
    if sessions.is_empty() {
        return vec![named.to_path_buf()];
    }
    sort_newest_first(&mut sessions);
    sessions
}

/// Sorts sessions, the newest first; those that were made at the same time by their path.
pub fn sort_newest_first(sessions: &mut [PathBuf]) {
    sessions.sort_by_cached_key(|path| (std::cmp::Reverse(made(path)), path.clone()));
}

fn newest_of(sessions: &[PathBuf]) -> anyhow::Result<PathBuf> {
    match sessions.iter().max_by_key(|path| made(path)) {
        Some(path) => Ok(as_typed(path)),
        None => bail!("no session in the current folder: name one, or create one with `apex run -- COMMAND`"),
    }
}

/// A path without the `./` that nobody types.
pub fn as_typed(path: &Path) -> PathBuf {
    match path.strip_prefix(".") {
        Ok(rest) if !rest.as_os_str().is_empty() => rest.to_path_buf(),
        _ => path.to_path_buf(),
    }
}

/// Returns the time at which a session was made: its control page is written once, at the start, by
/// name (mapped changes leave no trace in the folder).
fn made(path: &Path) -> SystemTime {
    let file = path.join(CONTROL_FILE).metadata().or_else(|_| path.metadata());
    file.and_then(|file| file.created().or_else(|_| file.modified())).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// The folder of a session that is about to be recorded. Nobody else can change what is in it.
#[derive(Debug)]
pub struct Fresh {
    /// The folder, by its absolute path.
    pub folder: Folder,
    /// Whether it was there before, empty.
    existed: bool,
}

impl Fresh {
    /// Makes the folder, or takes an empty one. One that holds anything, or that others could
    /// change, is never used.
    ///
    /// # Errors
    /// Says which folder could not be made, why, and what to do.
    pub fn make(named: Option<&Path>, command: &OsStr) -> anyhow::Result<Self> {
        if let Some(file) = named.filter(|path| path.is_file()) {
            let shown = apex_untrusted::shown(file);
            bail!("{shown} is a file, not a session folder: name a new or empty folder with -o");
        }
        let fresh = match named {
            Some(path) => Self::at(path),
            None => Self::unused(&default_name(command)),
        };
        let shown = named.map_or_else(|| "here".to_owned(), apex_untrusted::shown);
        let mut fresh = fresh.map_err(|error| {
            anyhow!("cannot create the session folder {shown}: {error}; name a writable folder with -o")
        })?;
        let resolved = fresh.folder.resolve();
        resolved.with_context(|| format!("cannot use {}", apex_untrusted::shown(fresh.folder.path())))?;
        if fresh.existed {
            fresh.check()?;
        }
        Ok(fresh)
    }

    fn at(path: &Path) -> io::Result<Self> {
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            std::fs::create_dir_all(parent)?;
        }
        match Folder::make(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Ok(Self { folder: Folder::open(path)?, existed: true })
            }
            made => Ok(Self { folder: made?, existed: false }),
        }
    }

    /// A folder of this name, or with the first free number behind it. That it is made tells that
    /// it is new: another `apex run` may look for a name at the same moment.
    fn unused(name: &str) -> io::Result<Self> {
        let numbered = (2..).map(|number| format!("{name}-{number}"));
        for name in std::iter::once(name.to_owned()).chain(numbered) {
            match Folder::make(Path::new(&name)) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => return Ok(Self { folder: made?, existed: false }),
            }
        }
        unreachable!("there are more numbers than names in a folder")
    }

    /// Refuses a folder that was there before, and why.
    fn check(&self) -> anyhow::Result<()> {
        let path = apex_untrusted::shown(self.folder.path());
        if let Some(why) = self.folder.refusal().with_context(|| format!("cannot read {path}"))? {
            bail!(
                "{path} cannot hold a session: {why}, and other users who can write to it could redirect \
                    files; name a new folder with -o, or one that only you can write to"
            );
        }
        let mut entries =
            std::fs::read_dir(self.folder.path()).with_context(|| format!("cannot list {path}"))?;
        if entries.next().is_some() {
            bail!("{path} is not empty, and a session never overwrites files: name another folder with -o");
        }
        Ok(())
    }

    /// Takes back what [`Fresh::make`] made, with all that is in it: a folder that was there before
    /// was empty.
    pub fn discard_all(self) {
        let Ok(entries) = std::fs::read_dir(self.folder.path()) else { return };
        for path in entries.flatten().map(|entry| entry.path()) {
            // A leftover does no harm.
            let _ = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
        }
        self.discard(&[]);
    }

    /// Takes back what [`Fresh::make`] made, and the files that were made in it since.
    pub fn discard(&self, files: &[&str]) {
        for file in files {
            // A leftover does no harm.
            let _ = self.folder.remove(file);
        }
        if !self.existed {
            // Only if it is empty.
            let _ = std::fs::remove_dir(self.folder.path());
        }
    }
}

/// Refuses to write where no file can be made, and where it would destroy the record of the session
/// in `session`: `output` is, or would become, one of its files, by whatever name.
///
/// # Errors
/// Names the file, and says what to do.
pub fn refuse_output(session: &Path, output: &Path) -> anyhow::Result<()> {
    let shown = apex_untrusted::shown(output);
    if output.is_dir() {
        bail!("{shown} is a folder: name a file in it with -o, such as {shown}/output");
    }
    if let Some(folder) = output.parent().filter(|folder| matches!(folder.try_exists(), Ok(false)))
        && !folder.as_os_str().is_empty()
    {
        bail!("cannot write {shown}: there is no folder {}", apex_untrusted::shown(folder));
    }
    let is_read = |found: &std::fs::Metadata| {
        session.metadata().is_ok_and(|read| read.is_file() && identity(&read) == identity(found))
    };
    if output.metadata().is_ok_and(|found| is_read(&found)) {
        bail!("{shown} is what is read, and would be overwritten: name another file");
    }
    let part = match output.metadata() {
        Ok(found) => file_with_identity(session, identity(&found)),
        Err(_) => new_file(session, output),
    };
    match part {
        Some(file) => bail!(
            "{} is a file of the session {} and would be overwritten: name another file",
            apex_untrusted::shown(output),
            apex_untrusted::shown(file.parent().unwrap_or(session))
        ),
        None => Ok(()),
    }
}

/// Refuses to write to stdout if that is a file of the session in `session`.
///
/// # Errors
/// Names the file, and says what to do.
pub fn refuse_stdout(session: &Path) -> anyhow::Result<()> {
    let Some(stdout) = stdout_identity() else { return Ok(()) };
    match file_with_identity(session, stdout) {
        Some(file) => bail!(
            "stdout is {}, a file of the session: redirect it to another file",
            apex_untrusted::shown(file)
        ),
        None => Ok(()),
    }
}

/// Device and inode of the file that stdout is, if it is one.
pub fn stdout_identity() -> Option<(u64, u64)> {
    let stdout = File::from(io::stdout().as_fd().try_clone_to_owned().ok()?).metadata().ok()?;
    stdout.is_file().then(|| identity(&stdout))
}

/// Whether a file of this name in a session's folder is part of the session.
fn is_part_of_session(name: &OsStr) -> bool {
    [checksums::FILE, apex_timeline::INDEX_FILE].iter().any(|&file| name == file)
        || has_checksum(name)
        || name == CONTROL_FILE
}

/// Whether a file of this name in a session's folder does not change once the program has ended.
pub fn has_checksum(name: &OsStr) -> bool {
    [apex_machine::FILE, apex_host_stacks::FILE].iter().any(|&file| name == file)
        || Path::new(name).extension().is_some_and(|end| end == apex_trace::source::EXTENSION)
        || apex_trace::is_part_of_session(name) && name != CONTROL_FILE
}

/// Whether a file of this name in a session's folder belongs into a copy of the session.
pub fn is_copied(name: &OsStr) -> bool {
    let others = [launch_condition::Plan::FILE, apex_catalogue::Notes::FILE];
    name != apex_timeline::INDEX_FILE
        && (is_part_of_session(name) || others.iter().any(|&other| name == other))
}

/// The file of a session that this is.
fn file_with_identity(session: &Path, wanted: (u64, u64)) -> Option<PathBuf> {
    let entries = std::fs::read_dir(session).ok()?.flatten();
    let mut files = entries.filter(|entry| is_part_of_session(&entry.file_name())).map(|entry| entry.path());
    files.find(|path| path.metadata().is_ok_and(|found| identity(&found) == wanted))
}

/// The path of a file that is not there yet, if it would be part of the session.
fn new_file(session: &Path, output: &Path) -> Option<PathBuf> {
    let parent = output.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (here, there) = (session.metadata().ok()?, parent.metadata().ok()?);
    let part = identity(&here) == identity(&there) && is_part_of_session(output.file_name()?);
    part.then(|| session.join(output.file_name().unwrap_or_default()))
}

/// A session's path as the user would type it: relative to the current folder where it lies in it.
pub fn shown(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    apex_untrusted::shown(path.strip_prefix(here).unwrap_or(path))
}

/// `apex-<command>-<yyyymmdd-hhmmss>`, local time.
fn default_name(command: &OsStr) -> String {
    let name = Path::new(command).file_name().unwrap_or_default().to_string_lossy();
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    let name: String = name.chars().map(plain).take(40).collect();
    format!("apex-{name}-{}", local_time())
}

fn local_time() -> String {
    // SAFETY: `time` with null only returns.
    let tm = local(unsafe { libc::time(std::ptr::null_mut()) });
    let (year, month, day) = (tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday);
    format!("{year:04}{month:02}{day:02}-{:02}{:02}{:02}", tm.tm_hour, tm.tm_min, tm.tm_sec)
}

/// A moment, nanoseconds since 1970, as `yyyy-mm-dd hh:mm` of local time.
pub fn local_minute(real_ns: u64) -> String {
    let tm = local((real_ns / 1_000_000_000).cast_signed());
    let (year, month, day) = (tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}", tm.tm_hour, tm.tm_min)
}

fn local(seconds: libc::time_t) -> libc::tm {
    // SAFETY: `tm` is plain data; `localtime_r` reads one local and fills the other.
    unsafe {
        let mut tm: libc::tm = std::mem::zeroed();
        libc::localtime_r(&raw const seconds, &raw mut tm);
        tm
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_and_dated() {
        let name = default_name(OsStr::new("/opt/my tools/train,v2.py"));
        let (head, time) = name.split_at(name.len() - "yyyymmdd-hhmmss".len());
        assert_eq!(head, "apex-train_v2.py-");
        assert!(time.bytes().enumerate().all(|(i, byte)| if i == 8 {
            byte == b'-'
        } else {
            byte.is_ascii_digit()
        }));
    }

    #[test]
    fn a_packed_session_is_refused_where_a_folder_is_needed() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["s.tar", "s.tar.xz", "s.tgz"] {
            let archive = folder.path().join(name);
            std::fs::write(&archive, "packed").unwrap();
            let error = must_exist(&archive).unwrap_err().to_string();
            assert!(error.contains("is a packed session") && error.contains("`apex unpack"), "{error}");
            exists(&archive).unwrap();
            let error = refuse_output(&archive, &archive).unwrap_err().to_string();
            assert!(error.contains("is what is read"), "{error}");
        }
        let session = folder.path().join("session.tar");
        std::fs::create_dir(&session).unwrap();
        must_exist(&session).unwrap();
    }

    #[test]
    fn paths_are_shown_as_people_type_them() {
        for (path, typed) in [("./a/b", "a/b"), (".", "."), ("../a", "../a"), ("/a", "/a")] {
            assert_eq!(as_typed(Path::new(path)), Path::new(typed));
        }
    }

    #[test]
    fn a_folder_with_anything_in_it_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let empty = folder.path().join("a/b");
        let make = || Fresh::make(Some(&empty), OsStr::new("x"));
        assert_eq!(make().unwrap().folder.path(), empty.canonicalize().unwrap());
        std::fs::write(empty.join("something"), "").unwrap();
        let error = make().err().unwrap().to_string();
        assert!(error.contains("not empty") && error.contains("-o"), "{error}");
    }

    #[test]
    fn what_was_made_in_vain_is_taken_back_and_what_was_there_stays() {
        let folder = tempfile::tempdir().unwrap();
        let new = folder.path().join("new");
        for path in [new.as_path(), folder.path()] {
            let fresh = Fresh::make(Some(path), OsStr::new("x")).unwrap();
            std::fs::write(path.join(CONTROL_FILE), "").unwrap();
            fresh.discard(&[CONTROL_FILE]);
        }
        assert!(!new.exists());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_folder_names_the_sessions_in_it_and_a_session_itself() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(all_of(folder.path()), [folder.path()], "there is none yet");
        let [one, two] = ["one", "two"].map(|name| folder.path().join(name));
        for path in [&one, &two] {
            std::fs::create_dir(path).unwrap();
            std::fs::write(path.join(CONTROL_FILE), apex_trace::control::CONTROL_MAGIC).unwrap();
        }
        std::fs::create_dir(folder.path().join("no session")).unwrap();
        let mut all = all_of(folder.path());
        all.sort();
        assert_eq!(all, [one.clone(), two]);
        assert_eq!(all_of(&one), [one]);
    }
}
