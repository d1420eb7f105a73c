//! Samples the program's processes a few times, so that a run that captured nothing can be
//! explained.
//!
//! There are at most a dozen samples in some ten seconds. They end as soon as a process has made a
//! CUDA call, and do not affect the program.

use apex_machine::host::descendants;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Looks that are taken at most.
const LOOKS: u32 = 12;
/// Pause after the first look; each next one is half as long again.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// What was seen of the tree of processes.
pub struct Watch {
    root: u32,
    looks: u32,
    pause: Duration,
    seen: BTreeMap<u32, Seen>,
}

/// What one process looked like when it was last seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Its name, as `ps` shows it.
    pub name: String,
    /// Whether the injected library was loaded.
    pub recorder: bool,
    /// Whether its dynamic linker is musl's, which cannot load the injected library.
    pub is_musl: bool,
    /// Another libcuda that was loaded beside or instead of it.
    pub other_driver: Option<String>,
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

fn inspect(pid: u32) -> Option<Seen> {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?.trim_end().to_string();
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let files: BTreeSet<&str> =
        maps.lines().filter_map(|line| line.find('/').map(|at| &line[at..])).collect();
    let named = |part: &str| {
        files.iter().find(|path| path.rsplit('/').next().is_some_and(|name| name.contains(part)))
    };
    Some(Seen {
        name,
        recorder: named(super::libraries::RECORDER).is_some(),
        is_musl: named("ld-musl-").is_some(),
        other_driver: named("libcuda.so").map(ToString::to_string),
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
        assert!(watch.seen.values().all(|seen| !seen.recorder && seen.other_driver.is_none()));
        let sleep = *watch.seen.iter().find(|(_, seen)| seen.name == "sleep").unwrap().0;
        // SAFETY: the child of the shell that this test started.
        unsafe { libc::kill(sleep.cast_signed(), libc::SIGKILL) };
        shell.wait().unwrap();
    }
}
