//! Hardship that must not hurt the program: session files that others spoil, no memory, small
//! stacks. The launch path makes no system call and allocates nothing.

mod support;

use apex_trace::control::{Settings, TimingMode};
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use support::{Recording, compiled, finished, launches};
use test_process::Command;

const MODES: [TimingMode; 3] = [TimingMode::Off, TimingMode::Sampled, TimingMode::All];

fn timed(timing: TimingMode) -> Recording {
    Recording::new(Settings { timing, ..Settings::default() })
}

/// Runs a program that says when its session may be spoilt, spoils it, and gives how the program
/// ended.
fn spoilt(recording: &Recording, program: &str, spoil: impl Fn(&Path)) -> Output {
    let mut command = recording.client(program);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    spoil(recording.path());
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    child.wait_with_output().unwrap()
}

fn files(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect()
}

fn cut(path: &Path, bytes: u64) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(bytes).unwrap();
}

fn process_file(dir: &Path) -> PathBuf {
    files(dir)
        .into_iter()
        .find(|path| path.extension().is_some_and(|it| it == "rec"))
        .expect("a process file")
}

/// The name, the damage to the folder of a session, and whether it ends recording.
type Spoil = (&'static str, fn(&Path), bool);

/// Everything that somebody may do to a session.
const SPOILS: [Spoil; 9] = [
    ("truncate all", |dir| files(dir).iter().for_each(|path| cut(path, 0)), true),
    ("truncate the records", |dir| cut(&process_file(dir), 0), true),
    ("keep the header only", |dir| cut(&process_file(dir), 4096), true),
    ("cut a chunk in two", |dir| cut(&process_file(dir), 4096 + 256 * 1024 + 8192), true),
    ("truncate the control page", |dir| cut(&dir.join("control"), 0), true),
    (
        "empty and fill again",
        |dir| {
            let length = fs::metadata(process_file(dir)).unwrap().len();
            cut(&process_file(dir), 0);
            cut(&process_file(dir), length);
        },
        true,
    ),
    ("remove the folder", |dir| files(dir).iter().for_each(|path| fs::remove_file(path).unwrap()), false),
    (
        "replace by folders",
        |dir| {
            for path in files(dir) {
                fs::remove_file(&path).unwrap();
                fs::create_dir(&path).unwrap();
            }
        },
        false,
    ),
    (
        "take the rights away",
        |dir| {
            use std::os::unix::fs::PermissionsExt;
            files(dir)
                .iter()
                .for_each(|path| fs::set_permissions(path, fs::Permissions::from_mode(0o000)).unwrap());
        },
        false,
    ),
];

#[test]
fn a_program_survives_whatever_is_done_to_its_session() {
    for (what, spoil, is_loss) in SPOILS {
        for program in ["own-faults before", "own-faults after", "blocked-signals"] {
            let recording = timed(TimingMode::Sampled);
            let Output { status, stderr, .. } = spoilt(&recording, program, spoil);
            let stderr = String::from_utf8_lossy(&stderr);
            assert!(status.success(), "{what}, {program}: {status}: {stderr}");
            assert!(stderr.lines().count() <= 1, "{what}, {program}: {stderr}");
            if is_loss {
                assert!(stderr.contains("was truncated or its disk failed"), "{what}, {program}: {stderr}");
            }
        }
    }
}

#[test]
fn a_fault_of_the_programs_own_ends_it_as_without_apex() {
    let recording = Recording::untimed();
    let output = recording.client("unhandled-fault").output().unwrap();
    assert_eq!(output.status.signal(), Some(libc::SIGBUS), "{output:?}");
    assert_eq!(launches(&recording.process()).len(), 1, "and what it did until then is recorded");
}

/// A library that counts the allocations of ours and lets them fail, if there is a C compiler.
fn allocations_shim(folder: &Path) -> Option<PathBuf> {
    compiled("allocations.c", &folder.join("liballocations.so"), &["-shared", "-fPIC", "-O1", "-ldl"])
}

fn with_shim(recording: &Recording, program: &str, shim: &Path) -> Command {
    let mut command = recording.client(program);
    command.env("LD_PRELOAD", format!("{}:{}", shim.display(), support::library().display()));
    command
}

#[test]
fn any_allocation_may_fail() {
    let folder = tempfile::tempdir().unwrap();
    let Some(shim) = allocations_shim(folder.path()) else { return };
    let (mut said, mut runs) = (0, 0);
    for (program, timing) in
        [("graphs", TimingMode::Sampled), ("timed 300", TimingMode::All), ("forms", TimingMode::Sampled)]
    {
        let whole = timed(timing);
        let expected = finished(with_shim(&whole, program, &shim).env_remove("FAIL_FROM"));
        let total = count_of(&shim);
        for variable in ["FAIL_FROM", "FAIL_ONLY"] {
            for at in (0..total).step_by(if variable == "FAIL_FROM" { 11 } else { 17 }) {
                let recording = timed(timing);
                let output =
                    with_shim(&recording, program, &shim).env(variable, at.to_string()).output().unwrap();
                let stderr = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{program}, {variable}={at}: {}: {stderr}", output.status);
                assert!(stderr.lines().count() <= 1, "{program}, {variable}={at}: {stderr}");
                assert!(stderr.is_empty() || stderr.contains("not recorded"), "{program}: {stderr}");
                if variable == "FAIL_FROM" {
                    said += usize::from(!stderr.is_empty());
                    runs += 1;
                }
                if program != "timed 300" {
                    // (That one prints how many events were recorded, which is ours to choose.)
                    assert_eq!(
                        String::from_utf8_lossy(&output.stdout),
                        expected,
                        "{program}, {variable}={at}"
                    );
                }
                let _ = apex_trace::Session::open(recording.path()).expect("what is there can be read");
            }
        }
    }
    assert!(said > runs / 2, "{said} of {runs} runs said that recording ended");
}

/// Allocations of ours in a short program.
fn count_of(shim: &Path) -> usize {
    let recording = Recording::untimed();
    let printed = finished(&mut with_shim(&recording, "without-allocations 10", shim));
    printed.split_whitespace().nth(1).and_then(|count| count.parse().ok()).expect("a count")
}

#[test]
fn a_program_near_its_address_space_limit_goes_on() {
    for mib in [4, 8, 12, 16, 40, 80, 100, 130, 200, 400] {
        let recording = timed(TimingMode::Sampled);
        // (Rust's standard library deadlocks where it runs out of memory while it prints a
        // backtrace.)
        let program = format!("near-the-limit {mib}");
        let output = recording.client(&program).env("RUST_BACKTRACE", "0").output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{mib} MiB: {}: {stderr}", output.status);
        assert_eq!(output.stdout, b"done\n", "{mib} MiB");
        assert!(stderr.lines().count() <= 1, "{mib} MiB: {stderr}");
        let is_recorded = files(recording.path()).len() > 1;
        assert!(is_recorded || stderr.contains("not recorded"), "{mib} MiB: {stderr}");
        assert!(is_recorded || mib < 200, "{mib} MiB is enough: {stderr}");
    }
}

#[test]
fn threads_with_the_smallest_stack_may_launch() {
    for timing in MODES {
        let recording = timed(timing);
        recording.run("small-stacks 4");
        let process = recording.process();
        assert_eq!(launches(&process).len(), 4 * (40 + 9000 + 1) + 4, "{timing:?}");
    }
}

#[test]
fn hooks_add_little_to_the_programs_stack() {
    let depth = |command: &mut Command| -> usize { finished(command).trim().parse().expect("a number") };
    let without = depth(Recording::untimed().client("stack-depth").env("APEX_DISABLE", "1"));
    for timing in MODES {
        let with = depth(&mut timed(timing).client("stack-depth"));
        let added = with.saturating_sub(without);
        println!("{timing:?}: {without} bytes without, {with} with");
        assert!(added <= apex::stack::ON_PROGRAMS_STACK, "{timing:?}: {added} bytes");
    }
}

#[test]
fn launches_make_no_system_call() {
    for timing in [TimingMode::Off, TimingMode::Sampled] {
        let recording = timed(timing);
        let output = recording.client("without-system-calls 3000 0").output().unwrap();
        assert!(output.status.success(), "{timing:?}: {output:?}");
        assert_eq!(launches(&recording.process()).len(), 6000, "{timing:?}");
        let output = recording.client("without-system-calls 10 1").output().unwrap();
        assert_eq!(
            output.status.signal(),
            Some(libc::SIGSYS),
            "the program that makes one is killed: {output:?}"
        );
    }
}

#[test]
fn launches_allocate_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let Some(shim) = allocations_shim(folder.path()) else { return };
    let recording = timed(TimingMode::Off);
    let printed = finished(&mut with_shim(&recording, "without-allocations 3000", &shim));
    let (meanwhile, before) = printed.trim().split_once(' ').expect("two numbers");
    assert_eq!(meanwhile, "0");
    assert_ne!(before, "0", "the shim counts");
}
