//! Reads the state of another process's threads from /proc.
//!
//! Reading it stops nothing and is not visible to the process.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Most bytes of a file of /proc that are read at once.
const MOST_BYTES: usize = 512;

/// The time and number of turns for which a thread has run. If both numbers stay the same and the
/// thread was waiting, it has not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turns {
    ran_ns: u64,
    turns: u64,
}

/// The open files of a thread that are read for each sample, which costs less than opening them.
#[derive(Debug)]
pub struct ThreadFiles {
    schedule: File,
    call: File,
}

impl ThreadFiles {
    /// Opens the files of a thread; `None` if it has ended or may not be read.
    pub fn of(pid: u32, tid: u32) -> Option<ThreadFiles> {
        let open = |name| File::open(format!("/proc/{pid}/task/{tid}/{name}")).ok();
        Some(ThreadFiles { schedule: open("schedstat")?, call: open("syscall")? })
    }

    /// Returns the time and number of its turns; `None` if it has ended.
    pub fn turns(&self) -> Option<Turns> {
        let mut bytes = [0; MOST_BYTES];
        let mut fields = text(&self.schedule, &mut bytes)?.split_ascii_whitespace();
        let mut number = || fields.next()?.parse().ok();
        let (ran_ns, _waited_ns, turns) = (number()?, number()?, number()?);
        Some(Turns { ran_ns, turns })
    }

    /// Returns the state of the thread; `None` if it has ended, or if the state may not be read.
    pub fn state(&self) -> Option<State> {
        parse_state(text(&self.call, &mut [0; MOST_BYTES])?)
    }
}

fn text<'b>(file: &File, bytes: &'b mut [u8]) -> Option<&'b str> {
    let length = file.read_at(bytes, 0).ok()?;
    std::str::from_utf8(bytes.get(..length)?).ok()
}

/// The state of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It runs, or is ready to run.
    Running,
    /// It waits.
    Waiting(Call),
}

/// The system call in which a thread waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// Its number; `None` where the thread waits outside of one, as for a page.
    pub number: Option<u32>,
    /// Its arguments.
    pub arguments: [u64; 6],
    /// The thread's stack pointer.
    pub stack: u64,
    /// The instruction behind the call.
    pub instruction: u64,
}

fn parse_state(text: &str) -> Option<State> {
    let mut fields = text.split_ascii_whitespace();
    let number = match fields.next()? {
        "running" => return Some(State::Running),
        number => number.parse::<i64>().ok()?,
    };
    let mut word = || u64::from_str_radix(fields.next()?.trim_start_matches("0x"), 16).ok();
    let mut call = Call { number: u32::try_from(number).ok(), ..Call::default() };
    if call.number.is_some() {
        for argument in &mut call.arguments {
            *argument = word()?;
        }
    }
    (call.stack, call.instruction) = (word()?, word()?);
    Some(State::Waiting(call))
}

/// The threads of a process; empty if it has ended.
pub fn threads(pid: u32) -> Vec<u32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The children of a process that its thread `tid` made.
pub fn children(pid: u32, tid: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/children")).unwrap_or_default();
    text.split_ascii_whitespace().filter_map(|child| child.parse().ok()).collect()
}

/// The name of a thread.
pub fn name(pid: u32, tid: u32) -> String {
    let name = fs::read(format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(&name).trim_end().to_owned()
}

/// The parent of a process, and what tells it from another one with the same identifier: when it
/// began.
pub fn parent_and_start(pid: u32) -> Option<(u32, u64)> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The name in front of the last parenthesis may contain anything.
    let stat = String::from_utf8_lossy(&stat);
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    Some((fields.get(1)?.parse().ok()?, fields.get(19)?.parse().ok()?))
}

/// The executable of a process: another one after `exec`.
pub fn executable(pid: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/exe")).ok()
}

/// Returns the target of a process's descriptor, as /proc shows it.
pub fn descriptor(pid: u32, descriptor: u64) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/fd/{descriptor}")).ok()
}

/// The beginning of a file's mapping.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Mapping {
    /// The address of the file's first byte.
    pub start: u64,
    /// Device and inode, as /proc shows them.
    pub identity: String,
    /// Path of the file.
    pub path: String,
}

impl Mapping {
    /// The file's name without its folder.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }
}

/// The files of which the first byte is mapped.
///
/// # Errors
/// If the process has ended, or may not be read.
pub fn mappings(pid: u32) -> io::Result<Vec<Mapping>> {
    let maps = fs::read(format!("/proc/{pid}/maps"))?;
    Ok(parse_mappings(&String::from_utf8_lossy(&maps)))
}

fn parse_mappings(maps: &str) -> Vec<Mapping> {
    let mapping = |line: &str| {
        let mut fields = line.splitn(6, ' ');
        let start = u64::from_str_radix(fields.next()?.split('-').next()?, 16).ok()?;
        let (_permissions, offset) = (fields.next()?, fields.next()?);
        let identity = format!("{} {}", fields.next()?, fields.next()?);
        let path = fields.next()?.trim_start();
        let is_first = offset.trim_start_matches('0').is_empty() && path.starts_with('/');
        is_first.then(|| Mapping { start, identity, path: path.to_owned() })
    };
    maps.lines().filter_map(mapping).collect()
}

/// Nanoseconds of a clock.
pub fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills the structure that it is given, and only that.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_read_as_the_kernel_writes_them() {
        assert_eq!(parse_state("running\n"), Some(State::Running));
        let call = Call { number: Some(202), arguments: [16, 0, 1, 2, 3, 4], stack: 255, instruction: 26 };
        let text = "202 0x10 0x0 0x1 0x2 0x3 0x4 0xff 0x1a\n";
        assert_eq!(parse_state(text), Some(State::Waiting(call)));
        let outside = Call { stack: 255, instruction: 26, ..Call::default() };
        assert_eq!(parse_state("-1 0xff 0x1a\n"), Some(State::Waiting(outside)));
        for damaged in ["", "202", "202 0x10 0x0", "x", "-1 0xff", "202 0x 0 0 0 0 0 0 0 0"] {
            assert_eq!(parse_state(damaged), None, "{damaged:?}");
        }
    }

    #[test]
    fn mappings_of_files_begin_with_their_first_byte() {
        let maps = "5600-5700 r--p 00000000 08:01 12   /usr/bin/a file\n5700-5800 r-xp 00001000 08:01 12 /x\n\
                    7f00-7f01 rw-p 00000000 00:00 0 \nnonsense\n7f02-7f03 r--p 00000000 00:00 0    [vdso]\n";
        let expected = Mapping { start: 0x5600, identity: "08:01 12".into(), path: "/usr/bin/a file".into() };
        assert_eq!(parse_mappings(maps), [expected]);
    }

    #[test]
    fn a_waiting_thread_of_this_process_is_seen() {
        let (tell, told) = std::sync::mpsc::channel();
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            // SAFETY: takes nothing, returns a number.
            tell.send(unsafe { libc::gettid() }).unwrap();
            let _ = wait.recv();
        });
        let (pid, tid) = (std::process::id(), told.recv().unwrap().cast_unsigned());
        let files = ThreadFiles::of(pid, tid).unwrap();
        let call = std::iter::repeat_with(|| (files.turns(), files.state())).find_map(|(turns, state)| {
            let is_quiet = turns.is_some() && turns == files.turns();
            state.filter(|state| is_quiet && *state != State::Running)
        });
        let Some(State::Waiting(call)) = call else { panic!("{call:?}") };
        assert!(call.stack > 0 && call.instruction > 0);
        assert!(threads(pid).contains(&tid) && parent_and_start(pid).is_some());
        drop(end);
        thread.join().unwrap();
    }
}
