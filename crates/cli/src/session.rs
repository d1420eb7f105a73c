//! Which session a command means, and names for new ones.

use anyhow::{Context, bail};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use trace::control::{CONTROL_FILE, CONTROL_MAGIC};
use trace::{Ended, META_FILE, Session};

/// The session that the user named, else the newest in the current folder.
///
/// # Errors
/// If none was named and none is there.
pub fn choose(named: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(path) = named {
        return Ok(path.to_path_buf());
    }
    let here = Path::new(".");
    if is_session(here) {
        return Ok(here.to_path_buf());
    }
    let entries = std::fs::read_dir(here).context("cannot list the current folder")?;
    let sessions = entries.flatten().map(|entry| entry.path()).filter(|path| is_session(path));
    match sessions.max_by_key(|path| made(path)) {
        Some(path) => Ok(path.strip_prefix(".").unwrap_or(&path).to_path_buf()),
        None => bail!("no session in the current folder: name one, or make one with `apex run -- COMMAND`"),
    }
}

/// Its control page tells: `session.json` alone is a name that others use too.
fn is_session(path: &Path) -> bool {
    let mut magic = [0; CONTROL_MAGIC.len()];
    let read = File::open(path.join(CONTROL_FILE)).and_then(|mut file| file.read_exact(&mut magic));
    read.is_ok() && magic == CONTROL_MAGIC
}

/// When a session was made: its control page is written once, at the start, by name (mapped changes leave no trace
/// in the folder).
fn made(path: &Path) -> SystemTime {
    let file = path.join(CONTROL_FILE).metadata().or_else(|_| path.metadata());
    file.and_then(|file| file.created().or_else(|_| file.modified())).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// The folder of a session that is about to be recorded.
pub struct Fresh {
    /// Its absolute path.
    pub path: PathBuf,
    /// Whether it was there before, empty.
    existed: bool,
}

impl Fresh {
    /// Makes the folder. One that holds anything is never used.
    ///
    /// # Errors
    /// Says which folder could not be made, why, and what to do.
    pub fn make(named: Option<&Path>, command: &OsStr) -> anyhow::Result<Self> {
        let path = named.map_or_else(|| unused(&default_name(command)), Path::to_path_buf);
        let existed = path.exists();
        if existed {
            let entries = std::fs::read_dir(&path);
            let mut entries = entries.with_context(|| format!("{} is no usable folder", path.display()))?;
            if entries.next().is_some() {
                let path = path.display();
                bail!("{path} is not empty, and a session never overwrites: name another folder with -o");
            }
        }
        std::fs::create_dir_all(&path).with_context(|| {
            format!("cannot make the session folder {}: name one that is writable with -o", path.display())
        })?;
        let path = path.canonicalize().with_context(|| format!("cannot resolve {}", path.display()))?;
        Ok(Self { path, existed })
    }

    /// Takes back what [`Fresh::make`] made, and the two files that a run starts with.
    pub fn discard(self) {
        for file in [CONTROL_FILE, META_FILE] {
            // Missing is as good as removed, and a leftover does no harm.
            let _ = std::fs::remove_file(self.path.join(file));
        }
        if !self.existed {
            let _ = std::fs::remove_dir(&self.path);
        }
    }
}

/// A session's path as the user would type it: relative to the current folder where it lies in it.
pub fn shown(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(here).unwrap_or(path).display().to_string()
}

/// The name itself, or with the first number that makes it new.
pub fn unused(name: &str) -> PathBuf {
    let numbered = (2..).map(|n| PathBuf::from(format!("{name}-{n}")));
    std::iter::once(PathBuf::from(name))
        .chain(numbered)
        .find(|path| !path.exists())
        .unwrap_or_else(|| name.into())
}

/// `apex-<command>-<yyyymmdd-hhmmss>`, local time.
pub fn default_name(command: &OsStr) -> String {
    let name = Path::new(command).file_name().unwrap_or_default().to_string_lossy();
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    let name: String = name.chars().map(plain).take(40).collect();
    format!("apex-{name}-{}", local_time())
}

fn local_time() -> String {
    // SAFETY: `time` with null only returns; `tm` is plain data; `localtime_r` reads one local and fills the other.
    let tm = unsafe {
        let now = libc::time(std::ptr::null_mut());
        let mut tm: libc::tm = std::mem::zeroed();
        libc::localtime_r(&raw const now, &raw mut tm);
        tm
    };
    let (year, month, day) = (tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday);
    format!("{year:04}{month:02}{day:02}-{:02}{:02}{:02}", tm.tm_hour, tm.tm_min, tm.tm_sec)
}

/// Processes of a session that run: the program, as long as it has not ended, and whoever records.
pub fn running(session: &Session) -> Vec<u32> {
    let recording = session.processes.iter().filter(|process| process.ended == Ended::Unmarked);
    let mut pids: Vec<_> = recording.map(|process| (process.pid, process.start_real_ns)).collect();
    if let Some(meta) = session.meta.as_ref().filter(|meta| meta.exit.is_none()) {
        // The program was started right after its session was made.
        let started = meta.started_real_ns.saturating_add(START_TOLERANCE_NS);
        pids.extend(meta.pid.map(|pid| (pid, started)));
    }
    let mut running: Vec<_> = pids
        .into_iter()
        .filter(|&(pid, before)| runs_since_before(pid, before))
        .map(|(pid, _)| pid)
        .collect();
    running.sort_unstable();
    running.dedup();
    running
}

/// Between making a session and starting the program lie milliseconds.
const START_TOLERANCE_NS: u64 = 10_000_000_000;

/// Whether a process with this identifier runs that was started before the moment; one that was started later has taken
/// the identifier over.
fn runs_since_before(pid: u32, before_real_ns: u64) -> bool {
    // Boot time is known to the second, start times to the tick.
    const SLACK_NS: u64 = 2_000_000_000;
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let fields: Vec<_> =
        stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect()).unwrap_or_default();
    let (Some(state), Some(start)) =
        (fields.first(), fields.get(19).and_then(|ticks| ticks.parse::<u64>().ok()))
    else {
        return false;
    };
    // SAFETY: takes a number, returns a number.
    let ticks_per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1).cast_unsigned();
    let start_ns = boot_real_ns().saturating_add(start.saturating_mul(1_000_000_000 / ticks_per_second));
    *state != "Z" && start_ns <= before_real_ns.saturating_add(SLACK_NS)
}

/// When the machine started, nanoseconds since 1970; 0 if the system does not say.
fn boot_real_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let seconds = stat.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse::<u64>().ok());
    seconds.unwrap_or(0).saturating_mul(1_000_000_000)
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
    fn a_process_runs_until_it_ends_and_is_not_mistaken_for_a_later_one() {
        let now = crate::run::real_ns();
        let me = std::process::id();
        assert!(runs_since_before(me, now));
        assert!(!runs_since_before(me, now - 3600 * 1_000_000_000), "this process was not there an hour ago");
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert!(!runs_since_before(child.id(), now));
    }

    #[test]
    fn a_folder_with_anything_in_it_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let empty = folder.path().join("a/b");
        let make = || Fresh::make(Some(&empty), OsStr::new("x"));
        assert_eq!(make().unwrap().path, empty.canonicalize().unwrap());
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
            fresh.discard();
        }
        assert!(!new.exists());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
