//! Samples the program's processes a few times, so that a run that captured nothing can be
//! explained.
//!
//! There are at most a dozen samples in some ten seconds. They end as soon as a process has made a
//! CUDA call, and do not affect the program.

use super::inspect::Program;
use super::libraries::RECORDER;
use apex_machine::host::descendants;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

/// Looks that are taken at most.
const LOOKS: u32 = 12;
/// A process that the library is due in for so long does not load it. Before, it may be between its
/// start and the dynamic linker's work.
const LONGEST_DUE: Duration = Duration::from_secs(2);
/// Pause after the first look; each next one is half as long again.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// Observations of the tree of processes.
pub struct Watch {
    root: u32,
    looks: u32,
    pause: Duration,
    seen: BTreeMap<u32, Seen>,
}

/// One process as it was last observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its name, as `ps` shows it.
    pub name: String,
    /// The state of the injected library in it.
    pub recorder: Recorder,
    /// Another libcuda that was loaded beside or instead of it.
    pub other_driver: Option<String>,
}

/// The injected library in a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recorder {
    /// It was loaded.
    Loaded,
    /// It was not, since this moment, although the dynamic linker is to load it: it may not have come to
    /// that yet.
    Due(Instant),
    /// It will not be, for this reason.
    Without(String),
}

impl Watch {
    /// Watches the process `root` and its descendants.
    pub fn new(root: u32) -> Self {
        Self { root, looks: 0, pause: FIRST_PAUSE, seen: BTreeMap::new() }
    }

    /// Looks once, unless something was `captured` already. Returns when to look again.
    pub fn look(&mut self, captured: bool) -> Option<Duration> {
        if captured || self.looks == LOOKS {
            return None;
        }
        if self.looks > 0 {
            for pid in descendants(self.root) {
                if let Some(seen) = inspect(pid) {
                    let seen = seen.after(self.seen.remove(&pid));
                    self.seen.insert(pid, seen);
                }
            }
        }
        self.looks += 1;
        let pause = self.pause;
        self.pause = pause * 3 / 2;
        Some(pause)
    }

    /// The processes seen, by process identifier.
    pub fn into_seen(self) -> BTreeMap<u32, Seen> {
        self.seen
    }
}

impl Seen {
    /// This, where the same process was seen `before`.
    fn after(mut self, before: Option<Seen>) -> Seen {
        if let (Recorder::Due(_), Some(Seen { recorder: Recorder::Due(since), name, .. })) =
            (&self.recorder, before)
            && name == self.name
        {
            self.recorder = match since.elapsed() > LONGEST_DUE {
                true => Recorder::Without(
                    "its dynamic linker did not load the library that LD_PRELOAD names".into(),
                ),
                false => Recorder::Due(since),
            };
        }
        self
    }
}

/// `None` of a process that ends, or that does not show itself.
fn inspect(pid: u32) -> Option<Seen> {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?.trim_end().to_string();
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).ok().filter(|maps| !maps.is_empty())?;
    let files: BTreeSet<&str> =
        maps.lines().filter_map(|line| line.find('/').map(|at| &line[at..])).collect();
    let named = |part: &str| {
        files.iter().find(|path| path.rsplit('/').next().is_some_and(|name| name.contains(part)))
    };
    let recorder = if named(RECORDER).is_some() { Recorder::Loaded } else { absent(pid)? };
    Some(Seen { name, recorder, other_driver: named("libcuda.so").map(ToString::to_string) })
}

/// Returns the reason why the library is not in a process, from its program and its environment,
/// which hold from the process's start on. `None` if they do not show themselves.
fn absent(pid: u32) -> Option<Recorder> {
    if let Some(obstacle) = Program::of(Path::new(&format!("/proc/{pid}/exe"))).obstacle() {
        return Some(Recorder::Without(obstacle));
    }
    // A process that ends shows an empty environment, as does one that has none: its link tells.
    let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    let preload =
        environment.split(|&byte| byte == 0).find_map(|variable| variable.strip_prefix(b"LD_PRELOAD="));
    let names_it = |preload: &[u8]| preload.windows(RECORDER.len()).any(|part| part == RECORDER.as_bytes());
    Some(match preload {
        Some(preload) if names_it(preload) => Recorder::Due(Instant::now()),
        Some(_) => Recorder::Without("LD_PRELOAD was replaced in its environment".into()),
        None => Recorder::Without("its environment was cleared: LD_PRELOAD is missing".into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_and_its_child_are_seen_without_the_recorder() {
        let mut shell = test_process::Command::new("sh").args(["-c", "sleep 60; true"]).spawn().unwrap();
        let mut watch = Watch::new(shell.id());
        let names =
            |watch: &Watch| watch.seen.values().map(|seen| seen.name.clone()).collect::<BTreeSet<_>>();
        while let Some(pause) = watch.look(false) {
            if names(&watch).contains("sleep") {
                break;
            }
            std::thread::sleep(pause);
        }
        assert!(names(&watch).is_superset(&["sh", "sleep"].map(String::from).into()), "{:?}", watch.seen);
        for seen in watch.seen.values() {
            let Recorder::Without(why) = &seen.recorder else { panic!("{seen:?}") };
            assert!(why.contains("LD_PRELOAD is missing") && seen.other_driver.is_none(), "{seen:?}");
        }
        let sleep = *watch.seen.iter().find(|(_, seen)| seen.name == "sleep").unwrap().0;
        // SAFETY: the child of the shell that this test started.
        unsafe { libc::kill(sleep.cast_signed(), libc::SIGKILL) };
        shell.wait().unwrap();
    }

    /// Between the start of a program and the dynamic linker's work, its memory does not show the
    /// library: a process that is seen then is no cause.
    #[test]
    fn a_process_in_which_the_library_is_due_counts_only_after_a_while() {
        let due = |since| Seen { name: "python3".into(), recorder: Recorder::Due(since), other_driver: None };
        let now = Instant::now();
        assert_eq!(due(now).after(None), due(now));
        assert_eq!(due(now).after(Some(due(now))), due(now));
        let Some(long_ago) = now.checked_sub(LONGEST_DUE * 2) else { return };
        let seen = due(now).after(Some(due(long_ago)));
        assert!(matches!(seen.recorder, Recorder::Without(_)), "{seen:?}");
        let other = Seen { name: "bash".into(), ..due(long_ago) };
        assert_eq!(due(now).after(Some(other)), due(now), "it has become another program");
        let loaded = Seen { recorder: Recorder::Loaded, ..due(now) };
        assert_eq!(loaded.clone().after(Some(due(long_ago))), loaded);
    }

    /// A program that the dynamic linker has not begun with yet, of which nothing shows but its
    /// environment: it is stopped at its first instruction.
    #[test]
    fn a_program_at_its_first_instruction_is_not_one_without_the_library() {
        let mut command = test_process::Command::new("/bin/true");
        command.env("LD_PRELOAD", format!("/nowhere/{RECORDER}"));
        // SAFETY: a system call without memory.
        unsafe {
            command.pre_exec(|| {
                libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
                Ok(())
            });
        }
        let mut child = command.spawn().unwrap();
        let pid = child.id().cast_signed();
        let mut status = 0;
        // SAFETY: `status` is valid for writing; the child is this test's.
        unsafe { libc::waitpid(pid, &raw mut status, 0) };
        if !libc::WIFSTOPPED(status) {
            return test_skip::impossible_here("processes cannot be traced here");
        }
        let seen = inspect(child.id());
        // SAFETY: as before.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        child.wait().unwrap();
        assert!(matches!(seen.as_ref().unwrap().recorder, Recorder::Due(_)), "{seen:?}");
    }
}
