//! A process that does not end is killed with all that it has started, and the test says so.

use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Stdio;
use std::time::Duration;
use test_process::{Child, Command};

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

/// A process that waits for ever.
fn endless() -> Command {
    let mut command = shell("sleep 1000");
    command.limit(Duration::from_millis(50));
    command
}

/// Returns the message with which `run` panics.
fn failure<R>(run: impl FnOnce() -> R) -> String {
    let payload = catch_unwind(AssertUnwindSafe(run)).err().expect("the limit has passed");
    *payload.downcast::<String>().expect("a message")
}

/// Returns the output of a script that never ends until it was killed: the number of a process. On
/// a busy machine it needs a longer limit to print that.
fn printed_by(script: &str) -> String {
    let message = |&seconds: &u64| failure(|| shell(script).limit(Duration::from_secs(seconds)).output());
    let printed = |said: String| {
        assert!(said.contains("\"sh\"") && said.contains("did not end within"), "{said}");
        said.split_once("started ").and_then(|(_, rest)| Some(rest.split_once('\n')?.0.to_owned()))
    };
    [1, 10, 100].iter().map(message).find_map(printed).expect("the script prints")
}

/// A process is gone, or a zombie of somebody else.
fn is_gone(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit(") ").next().is_none_or(|state| state.is_empty() || state.starts_with('Z'))
}

fn wait_until_gone(pid: &str) {
    let started = std::time::Instant::now();
    while !is_gone(pid) {
        assert!(started.elapsed() < Duration::from_secs(60), "process {pid} was not killed");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_process_that_ends_in_time_is_as_the_standard_librarys() {
    let output = shell("echo out; echo err >&2; cat; exit 3").output().unwrap();
    assert_eq!(
        (output.status.code(), &output.stdout[..], &output.stderr[..]),
        (Some(3), &b"out\n"[..], &b"err\n"[..])
    );
    assert_eq!(shell("exit 4").status().unwrap().code(), Some(4));
    let mut child = shell("exit 5").spawn().unwrap();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None => std::thread::yield_now(),
        }
    };
    assert_eq!((status.code(), child.wait().unwrap().code()), (Some(5), Some(5)), "waited for twice");
    let one_pipe = shell("echo err >&2").stderr(Stdio::piped()).spawn().unwrap();
    assert_eq!(one_pipe.wait_with_output().unwrap().stderr, b"err\n");
    assert!(Command::new("/nowhere/program").output().is_err());
}

#[test]
fn a_process_that_hangs_is_killed_with_its_children_and_named() {
    wait_until_gone(&printed_by("sleep 1000 & printf 'started %s\\n' $!; echo; wait; echo '$!'"));
    assert!(failure(|| endless().status()).contains("did not end within 50ms"));
    let polled = |mut child: Child| while child.try_wait().unwrap().is_none() {};
    assert!(failure(|| polled(endless().spawn().unwrap())).contains("did not end within 50ms"));
}

/// The pipe stays open after the process has ended; the limit holds all the same.
#[test]
fn a_child_that_keeps_the_pipe_is_killed_too() {
    wait_until_gone(&printed_by("sleep 1000 & printf 'started %s\\n' $!"));
}

#[test]
fn a_process_does_not_outlive_its_handle() {
    let mut child = shell("sleep 1000 & echo $!; wait").stdout(Stdio::piped()).spawn().unwrap();
    let (mut line, mut byte) = (String::new(), [0]);
    while child.stdout.as_mut().unwrap().read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
        line.push(char::from(byte[0]));
    }
    drop(child);
    wait_until_gone(&line);
}

#[test]
fn a_refused_system_call_fails_in_the_process_and_its_children() {
    let output = shell("sh -c pwd; mkdir a").refuse(libc::SYS_mkdir, libc::EACCES).output().unwrap();
    assert!(!output.status.success() && !output.stdout.is_empty());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("Permission denied"), "{said}");
}
