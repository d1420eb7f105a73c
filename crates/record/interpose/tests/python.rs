//! The frames of the Python interpreter are recorded exactly, by every version that is read, and
//! whatever the interpreter is at does no harm.
//!
//! The interpreters: those that `APEX_TEST_PYTHONS` lists (paths, separated by colons), those of
//! pyenv, and those of the system.

mod support;

use apex_trace::Process;
use apex_trace::control::{Settings, TimingMode};
use apex_trace::layout::{StackSample, flags};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use support::{Recording, compiled, finished, samples};
use test_process::Command;

/// Frames that are kept of a stack.
const KEPT: usize = 64;

/// A frame: file, function, line.
type Frame = (String, String, u32);

/// One interpreter of each version that is read.
fn interpreters() -> Vec<(u32, PathBuf)> {
    let listed = std::env::var_os("APEX_TEST_PYTHONS").unwrap_or_default();
    let mut paths: Vec<PathBuf> = std::env::split_paths(&listed).collect();
    let home = std::env::var_os("HOME").unwrap_or_default();
    let versions =
        std::fs::read_dir(Path::new(&home).join(".pyenv/versions")).into_iter().flatten().flatten();
    paths.extend(versions.map(|version| version.path().join("bin/python3")));
    paths.extend((9..=14).map(|minor| PathBuf::from(format!("/usr/bin/python3.{minor}"))));
    let mut found = BTreeMap::new();
    for path in paths {
        let asked =
            Command::new(&path).args(["-c", "import sys, ctypes; print(sys.version_info[1])"]).output();
        let minor = asked.ok().and_then(|answer| String::from_utf8(answer.stdout).ok()?.trim().parse().ok());
        if let Some(minor @ 9..=14) = minor {
            found.entry(minor).or_insert(path);
        }
    }
    if found.is_empty() {
        test_skip::missing_dependency("no Python interpreter from 3.9 to 3.14");
    }
    found.into_iter().collect()
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python").join(name)
}

/// A program in Python, recorded.
fn python(recording: &Recording, interpreter: &Path, program: &str) -> Command {
    let mut command = recording.program(interpreter);
    command.arg(script(program));
    command
}

fn frames(process: &Process, sample: &StackSample) -> Vec<Frame> {
    let stack = process.definitions.call_stack(sample.stack).expect("a stack");
    let frame = |frame: &apex_trace::definition::PythonFrame| {
        let code = process.definitions.python_code(frame.code).expect("a code object");
        (code.file.clone(), code.function.clone(), code.line(frame.offset).unwrap_or(0))
    };
    assert_eq!(stack.is_cut, stack.python.len() == KEPT);
    stack.python.iter().map(frame).collect()
}

/// The frames of the first launch with each grid.
fn by_grid(process: &Process) -> BTreeMap<u32, Vec<Frame>> {
    let first = samples(process).into_iter().filter(|sample| sample.head.flags & flags::FIRST_SEEN != 0);
    first
        .map(|sample| {
            let config = process.definitions.config(sample.config).expect("a configuration");
            (config.launch.grid.x, frames(process, &sample))
        })
        .collect()
}

#[test]
fn every_launch_has_the_frames_that_the_interpreter_sees() {
    for (minor, interpreter) in interpreters() {
        let recording = Recording::untimed();
        let output = finished(&mut python(&recording, &interpreter, "launches.py"));
        let found = by_grid(&recording.process());
        let mut grids = 0;
        for line in output.lines() {
            let (grid, stack) = line.split_once('\t').expect("a grid and its stack");
            let mut expected: Vec<Frame> = serde_json::from_str(stack).expect("a stack");
            expected.truncate(KEPT);
            let grid: u32 = grid.parse().expect("a grid");
            let found = found.get(&grid).unwrap_or_else(|| panic!("3.{minor}, grid {grid}: no stack"));
            assert_eq!(found, &expected, "3.{minor}, grid {grid}");
            grids += 1;
        }
        assert!(grids > 80, "3.{minor}: {grids} launches");
        assert_eq!(found.len(), grids);
    }
}

/// A program of `states.py`, in a state.
fn state(recording: &Recording, interpreter: &Path, arguments: &[&str]) -> Command {
    let mut command = python(recording, interpreter, "states.py");
    command.args(arguments);
    command
}

/// The status of a process in which code other than ours has faulted (`tests/shims/faults.c`).
const FAULT_ELSEWHERE: i32 = 98;

/// Whether an interpreter may fault by itself in a state. Before 3.14, a thread that waits for the
/// GIL looks, when it has waited, at the interpreter's state, which the thread that ends the
/// interpreter has freed by then: seen in 3 of 425 runs of `daemons` without APEX, on a loaded
/// machine.
fn may_fault(minor: u32, state: &str) -> bool {
    minor < 14 && ["daemons", "forks"].contains(&state)
}

#[test]
fn no_state_of_the_interpreter_harms_the_program() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let Some(faults) = compiled("faults.c", &folder.path().join("faults.so"), &["-shared", "-fPIC", "-ldl"])
    else {
        return;
    };
    for (minor, interpreter) in interpreters() {
        let states =
            [("daemons", 8), ("signals", 1), ("exits", 1), ("at_once", 8), ("forks", 2), ("interpreters", 1)];
        for (name, times) in states {
            for _ in 0..times {
                let recording = Recording::untimed();
                let mut command = state(&recording, &interpreter, &[name]);
                command.env("LD_PRELOAD", format!("{} {}", faults.display(), support::library().display()));
                let output = command.output().expect("the interpreter starts");
                let said = String::from_utf8_lossy(&output.stderr);
                let own = output.status.code() == Some(FAULT_ELSEWHERE) && may_fault(minor, name);
                assert!(output.status.success() || own, "3.{minor}, {name}: {}: {said}", output.status);
                let session = recording.open();
                let stacks: usize = session.processes.iter().map(|process| samples(process).len()).sum();
                assert!(stacks > 0, "3.{minor}, {name}: no stack was read");
            }
        }
    }
}

/// A sandbox that refuses the system call by which stacks are read: everything else is recorded,
/// and the session says what is missing.
#[test]
fn where_stacks_cannot_be_read_the_session_says_so() {
    let Some((_, interpreter)) = interpreters().pop() else { return };
    for error in [libc::EPERM, libc::ENOSYS] {
        let recording = Recording::untimed();
        let mut command = python(&recording, &interpreter, "launches.py");
        finished(command.refuse(libc::SYS_process_vm_readv, error));
        let process = recording.process();
        assert!(!support::launches(&process).is_empty());
        let samples = samples(&process);
        assert!(samples.iter().all(|sample| frames(&process, sample).is_empty()), "nothing is made up");
        let said = recording.control.complaint().expect("word is left");
        let why = std::io::Error::from_raw_os_error(error).to_string();
        assert!(said.contains("process_vm_readv") && said.contains(&why), "{said}");
    }
    let recording = Recording::untimed();
    finished(&mut python(&recording, &interpreter, "launches.py"));
    assert_eq!(recording.control.complaint(), None);
}

#[test]
fn a_kill_at_any_moment_leaves_whole_stacks() {
    for (_, interpreter) in interpreters() {
        for (signal, wait_ms) in [(libc::SIGKILL, 0), (libc::SIGTERM, 30), (libc::SIGKILL, 60)] {
            let recording = Recording::untimed();
            let mut child = state(&recording, &interpreter, &["launch_for_ever"]).spawn().expect("it starts");
            recording.wait_until_begun(&mut child);
            std::thread::sleep(std::time::Duration::from_millis(wait_ms));
            // SAFETY: a child of this test that was not waited for.
            unsafe { libc::kill(child.id() as i32, signal) };
            let status = child.wait().expect("it ends");
            assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(signal));
            for process in &recording.open().processes {
                for sample in samples(process) {
                    let _ = frames(process, &sample);
                }
            }
        }
    }
}

#[test]
fn threads_without_frames_have_their_names() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let driver = folder.path().join("libcuda.so.1");
    std::os::unix::fs::symlink(support::fake_driver(), &driver).expect("a link");
    let search = format!("-L{}", folder.path().display());
    let arguments = ["-shared", "-fPIC", "-pthread", search.as_str(), "-l:libcuda.so.1"];
    let Some(launcher) = compiled("launcher.c", &folder.path().join("launcher.so"), &arguments) else {
        return;
    };
    for (minor, interpreter) in interpreters() {
        let recording = Recording::untimed();
        let arguments = ["foreign", launcher.to_str().expect("a path")];
        finished(&mut state(&recording, &interpreter, &arguments));
        let process = recording.process();
        let found = by_grid(&process);
        let lambda: Vec<&str> = found[&1003].iter().map(|frame| frame.1.as_str()).collect();
        let outer = if minor < 11 { "<lambda>" } else { "foreign.<locals>.<lambda>" };
        assert_eq!(lambda, ["launch", outer], "3.{minor}");
        let mut threads = BTreeMap::new();
        for sample in samples(&process) {
            let grid = process.definitions.config(sample.config).expect("a configuration").launch.grid.x;
            let stack = process.definitions.call_stack(sample.stack).expect("a stack");
            threads.insert(grid, (stack.thread.clone(), stack.python.len()));
        }
        assert_eq!(threads[&1000], ("pt_autograd_0".to_owned(), 0), "3.{minor}");
        for grid in [1001, 1002] {
            assert_eq!(threads[&grid], ("a_worker".to_owned(), 0), "3.{minor}, grid {grid}");
        }
        assert_eq!(threads[&1004].1, 0, "3.{minor}: the interpreter has ended");
    }
}

#[test]
fn stacks_are_sampled_within_their_share_of_the_time() {
    for timing in [TimingMode::Sampled, TimingMode::All] {
        let Some((_, interpreter)) = interpreters().pop() else { return };
        // A sample that is interrupted costs more, so a busy machine takes few.
        let mut lines = BTreeSet::new();
        for _ in 0..30 {
            lines.extend(sampled_lines(timing, &interpreter));
            if lines.len() == 2 {
                break;
            }
        }
        assert_eq!(lines.len(), 2, "both lines are seen");
    }
}

/// The lines of which a program's stacks are: of its first launch, and of samples, which are within
/// their share of the time. The program launches from two lines.
fn sampled_lines(timing: TimingMode, interpreter: &Path) -> BTreeSet<u32> {
    let recording = Recording::new(Settings { timing, ..Settings::default() });
    finished(&mut state(&recording, interpreter, &["sampled"]));
    let process = recording.process();
    let samples = samples(&process);
    let (first, sampled): (Vec<&StackSample>, Vec<&StackSample>) =
        samples.iter().partition(|sample| sample.head.flags & flags::FIRST_SEEN != 0);
    assert_eq!(first.len(), 1);
    let ticks: u64 = sampled.iter().map(|sample| sample.head.duration_ticks()).sum();
    let longest = sampled.iter().map(|sample| sample.head.duration_ticks()).max().unwrap_or(0);
    let (begun, end) = process.span.expect("records");
    assert!(ticks <= (end - begun) / 200 + longest, "{timing:?}: {ticks} of {} ticks", end - begun);
    samples.iter().map(|sample| frames(&process, sample)[1].2).collect()
}

/// The file of an interpreter's `libpython`, and its home; `None` of one that has its code itself.
fn libpython(interpreter: &Path) -> Option<(PathBuf, String)> {
    const ASK: &str = "import sys; from sysconfig import get_config_var as var; \
        print(var('LIBDIR') or '', var('MULTIARCH') or '', var('INSTSONAME') or '', sys.base_prefix, sep='\\n')";
    let answer = Command::new(interpreter).args(["-c", ASK]).output().ok()?;
    let answer = String::from_utf8(answer.stdout).ok()?;
    let [folder, architecture, file, home] = answer.lines().collect::<Vec<_>>()[..] else { return None };
    let folders = [Path::new(folder).to_owned(), Path::new(folder).join(architecture)];
    let path = folders.map(|folder| folder.join(file)).into_iter().find(|path| path.is_file())?;
    file.contains(".so").then(|| (path, home.to_owned()))
}

/// A plugin that embeds Python opens its library so that no other library sees its symbols.
#[test]
fn an_interpreter_outside_of_the_global_scope_is_found() {
    const PROGRAM: &str = "def inner():\n    launch()\ndef outer():\n    inner()\nouter()\n";
    let folder = tempfile::tempdir().expect("a temporary folder");
    let driver = support::driver_file(folder.path());
    let arguments = [driver.to_str().expect("text"), "-ldl"];
    let Some(program) = compiled("embeds.c", &folder.path().join("embeds"), &arguments) else { return };
    let found: Vec<_> = interpreters().iter().filter_map(|(_, path)| libpython(path)).collect();
    if found.is_empty() {
        test_skip::impossible_here("no libpython from 3.10 to 3.14");
    }
    for (library, home) in found {
        let recording = Recording::untimed();
        let mut command = recording.program(&program);
        finished(command.arg(&library).arg(PROGRAM).env("PYTHONHOME", home));
        let process = recording.process();
        let stacks: Vec<_> = samples(&process).iter().map(|sample| frames(&process, sample)).collect();
        let frame = |function: &str, line| ("<string>".to_owned(), function.to_owned(), line);
        let expected = [frame("inner", 2), frame("outer", 4), frame("<module>", 5)];
        assert_eq!(stacks, [expected], "{}", library.display());
    }
}
