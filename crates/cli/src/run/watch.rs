//! Samples the program's processes a few times, so that a run that captured nothing can be
//! explained.
//!
//! There are at most a dozen samples in some ten seconds. They end as soon as a process has made a
//! CUDA call, and do not affect the program.
//!
//! The meaning of a sample does not depend on the speed of the machine. A process that is between
//! its start and the dynamic linker's work says nothing, however long it stays there: the linker
//! maps the libraries of `LD_PRELOAD` before the C library, so only a process that has mapped the
//! latter can be one without ours. A process that becomes another program meanwhile says nothing
//! either.

use super::inspect::Program;
use super::libraries::RECORDER;
use apex_machine::host::descendants;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

/// Looks that are taken at most.
const LOOKS: u32 = 12;
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
    /// It was not, although the dynamic linker is to load it, which has not come to that yet.
    Due,
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

/// `None` of a process that ends, that becomes another program, or that does not show itself.
fn inspect(pid: u32) -> Option<Seen> {
    let image = Image::of(pid)?;
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?.trim_end().to_string();
    let before = mapped(pid)?;
    // Read again: what was mapped before the C library is now seen for certain.
    let files = mapped(pid)?;
    let recorder = match file(&files, RECORDER) {
        Some(_) => Recorder::Loaded,
        None => absent(pid, image, has_c_library(&before))?,
    };
    let other_driver = file(&files, "libcuda.so").map(String::from);
    (Image::of(pid)? == image).then_some(Seen { name, recorder, other_driver })
}

/// The files that a process has mapped.
fn mapped(pid: u32) -> Option<BTreeSet<String>> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).ok().filter(|maps| !maps.is_empty())?;
    Some(maps.lines().filter_map(|line| line.find('/').map(|at| line[at..].to_owned())).collect())
}

/// The first of these files whose name contains `part`.
fn file<'f>(files: &'f BTreeSet<String>, part: &str) -> Option<&'f str> {
    files.iter().map(String::as_str).find(|path| name_of(path).contains(part))
}

fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Whether glibc's C library is among these files. (Before version 2.34 its name has the version.)
fn has_c_library(files: &BTreeSet<String>) -> bool {
    let is_c_library = |name: &str| name.starts_with("libc.so") || name.starts_with("libc-");
    files.iter().any(|path| is_c_library(name_of(path)))
}

/// Where the arguments and the environment of the program that a process executes begin and end. It
/// differs from program to program, because the stack's address is random.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Image([u64; 4]);

impl Image {
    /// Index of the end of the environment.
    const END: usize = 3;

    fn of(pid: u32) -> Option<Self> {
        // The fields 48 to 51, of which the name in parentheses is the second.
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let fields: Vec<u64> = stat
            .rsplit_once(')')?
            .1
            .split_whitespace()
            .skip(45)
            .map_while(|field| field.parse().ok())
            .collect();
        Some(Self(*fields.first_chunk()?))
    }

    /// Whether the system has written the program's environment, which it does last.
    fn is_complete(self) -> bool {
        self.0[Self::END] != 0
    }
}

/// Why the library is not in a process: what its program and its environment say, which hold from the
/// process's start on. `None` if they do not show themselves.
fn absent(pid: u32, image: Image, is_past_preloading: bool) -> Option<Recorder> {
    if let Some(obstacle) = Program::of(Path::new(&format!("/proc/{pid}/exe"))).obstacle() {
        return Some(Recorder::Without(obstacle));
    }
    // A process that ends, or that is becoming another program, shows an empty environment, as does
    // one that has none: its link, and where the environment ends, tell.
    let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    (image.is_complete() || !environment.is_empty()).then(|| without(&environment, is_past_preloading))
}

/// Returns what the environment tells about a process without the library, whose dynamic linker has
/// dealt with `LD_PRELOAD` or not.
fn without(environment: &[u8], is_past_preloading: bool) -> Recorder {
    let variable = |name: &str| {
        environment.split(|&byte| byte == 0).find_map(|variable| variable.strip_prefix(name.as_bytes()))
    };
    let names_it = |preload: &[u8]| preload.windows(RECORDER.len()).any(|part| part == RECORDER.as_bytes());
    match variable("LD_PRELOAD=") {
        None => Recorder::Without("its environment was cleared: LD_PRELOAD is missing".into()),
        Some(preload) if !names_it(preload) => {
            Recorder::Without("LD_PRELOAD was replaced in its environment".into())
        }
        // Libraries that audit the linker have a C library of their own, which comes first.
        Some(_) if is_past_preloading && variable("LD_AUDIT=").is_none() => {
            Recorder::Without("its dynamic linker did not load the library that LD_PRELOAD names".into())
        }
        Some(_) => Recorder::Due,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_and_its_child_are_seen_without_the_recorder() {
        let mut shell = test_process::Command::new("sh").args(["-c", "sleep 600; true"]).spawn().unwrap();
        let mut watch = Watch::new(shell.id());
        let names =
            |watch: &Watch| watch.seen.values().map(|seen| seen.name.clone()).collect::<BTreeSet<_>>();
        // However many looks a busy machine needs.
        while !names(&watch).is_superset(&["sh", "sleep"].map(String::from).into()) {
            watch.looks = 1;
            watch.look(false);
            assert!(shell.try_wait().unwrap().is_none(), "{:?}", watch.seen);
            std::thread::sleep(FIRST_PAUSE);
        }
        for seen in watch.seen.values() {
            let Recorder::Without(why) = &seen.recorder else { panic!("{seen:?}") };
            assert!(why.contains("LD_PRELOAD is missing") && seen.other_driver.is_none(), "{seen:?}");
        }
        let sleep = *watch.seen.iter().find(|(_, seen)| seen.name == "sleep").unwrap().0;
        // SAFETY: the child of the shell that this test started.
        unsafe { libc::kill(sleep.cast_signed(), libc::SIGKILL) };
        shell.wait().unwrap();
    }

    #[test]
    fn looks_are_few_and_end_when_something_is_captured() {
        let mut watch = Watch::new(std::process::id());
        let pauses: Vec<Duration> = std::iter::from_fn(|| watch.look(false)).collect();
        assert_eq!((pauses.len(), pauses[0]), (12, Duration::from_millis(50)));
        assert_eq!(pauses[2], Duration::from_nanos(112_500_000));
        assert!(pauses.iter().sum::<Duration>() < Duration::from_secs(15));
        assert_eq!(Watch::new(std::process::id()).look(true), None);
    }

    /// A program that runs, and waits until it is dropped.
    fn waiting(environment: &[(&str, &str)]) -> test_process::Child {
        use std::process::Stdio;
        let mut command = test_process::Command::new("/bin/sh");
        // The dynamic linker complains of what it does not find.
        command.args(["-c", "echo ready; read line"]).stdin(Stdio::piped()).stderr(Stdio::null());
        command.env_clear().envs(environment.iter().copied());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut word = [0; 6];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut word).unwrap();
        child
    }

    #[test]
    fn a_program_that_runs_without_the_library_says_why() {
        for (environment, expected) in [
            (&[][..], "LD_PRELOAD is missing"),
            (&[("A", "libapex.so"), ("B", "1")], "LD_PRELOAD is missing"),
            (&[("LD_PRELOAD", "/nowhere/other.so")], "was replaced"),
            (&[("A", "1"), ("LD_PRELOAD", "/nowhere/libapex.so")], "its dynamic linker did not load"),
        ] {
            let program = waiting(environment);
            let seen = inspect(program.id()).expect("it runs");
            let Recorder::Without(why) = &seen.recorder else { panic!("{seen:?}") };
            assert!(why.contains(expected), "{seen:?}");
            assert_eq!(seen.name, "sh");
        }
    }

    #[test]
    fn the_library_is_due_until_the_dynamic_linker_has_dealt_with_it() {
        let preload = b"A=1\0LD_PRELOAD=/opt/libapex.so\0";
        assert_eq!(without(preload, false), Recorder::Due);
        assert!(matches!(without(preload, true), Recorder::Without(_)));
        // The C library of a library that audits comes before those of LD_PRELOAD.
        assert_eq!(without(&[preload, &b"LD_AUDIT=a.so\0"[..]].concat(), true), Recorder::Due);
        let files = |names: &[&str]| names.iter().map(|&name| format!("/lib/{name}")).collect();
        for name in ["libc.so.6", "libc-2.31.so"] {
            assert!(has_c_library(&files(&["ld-linux-x86-64.so.2", name])));
        }
        assert!(!has_c_library(&files(&["ld-linux-x86-64.so.2", "libcuda.so.1", "libcap.so.2"])));
    }

    /// While the system replaces a program by another one, its memory is new and its environment is
    /// not written yet.
    #[test]
    fn a_process_that_becomes_another_program_has_not_lost_its_environment() {
        let program = waiting(&[]);
        let image = Image::of(program.id()).unwrap();
        assert!(image.is_complete() && image.0.is_sorted(), "{image:?}");
        let unwritten = Image([image.0[0], 0, 0, 0]);
        assert_eq!(absent(program.id(), unwritten, false), None);
        assert!(matches!(absent(program.id(), image, false), Some(Recorder::Without(_))));
        assert_ne!(Image::of(std::process::id()).unwrap(), image);
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
        assert!(seen.as_ref().is_some_and(|seen| seen.recorder == Recorder::Due), "{seen:?}");
    }
}
