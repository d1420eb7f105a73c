//! Places of the host's threads while a program runs, from `apex run` to the session's file.

use crate::common::*;
use crate::places::{PROGRAM, interpreter};
use apex_host_stacks::{Doing, FILE, HostStacks, WaitsFor};
use std::path::Path;

/// Waits in a known function when it has launched, until a file appears.
const WAITS: &str = r#"
import os, threading, time
def awaits_end():
    while not os.path.exists("end"):
        time.sleep(0.05)
def idles():
    time.sleep(1000)
threading.Thread(target=idles, daemon=True).start()
if os.fork() == 0:
    awaits_end()
    os._exit(0)
awaits_end()
os.wait()
"#;

fn program(sandbox: &Sandbox) {
    std::fs::write(sandbox.path("fill.ptx"), PTX).unwrap();
    std::fs::write(sandbox.path("train.py"), format!("{PROGRAM}{WAITS}")).unwrap();
}

/// Whether threads of two processes were seen in `awaits_end`, and one in `idles`.
fn is_complete(session: &Path) -> bool {
    let stacks = HostStacks::read(session);
    let pids = |function: &str| {
        let has = |stack: u32| stacks.frames(stack).any(|frame| frame.function == function);
        let spans = stacks.spans.iter().filter(|span| has(span.stack));
        spans.map(|span| stacks.thread(span).0.pid).collect::<std::collections::BTreeSet<u32>>().len()
    };
    pids("awaits_end") == 2 && pids("idles") == 1
}

#[test]
fn threads_of_a_program_and_of_its_children_are_sampled() {
    let Some(python) = interpreter() else { return };
    let sandbox = Sandbox::new();
    program(&sandbox);
    let mut command =
        sandbox.apex(&["run", "--device", "cpu", "--host-stacks", "200", "-o", "s", "--", python]);
    let mut running = Running::start(command.arg("train.py"));
    wait_until("both processes are sampled", || is_complete(&sandbox.path("s")));
    std::fs::write(sandbox.path("end"), "").unwrap();
    assert!(running.0.wait().unwrap().success());

    let stacks = HostStacks::read(&sandbox.path("s"));
    assert_eq!((stacks.problems.len(), stacks.head.lost.len()), (0, 0), "{stacks:?}");
    assert_eq!(stacks.head.period_ns, 5_000_000);
    let session = apex_trace::Session::open(sandbox.path("s")).unwrap();
    let process = &session.processes[0];
    // Both have one clock: the samples of launches lie in the time of the launches.
    let (first, last) = process.span.unwrap();
    let [first, last] = [first, last].map(|ticks| process.clock.monotonic_ns(ticks));
    let launching = stacks.spans.iter().filter(|span| {
        let (sampled, _) = stacks.thread(span);
        sampled.pid == process.pid && stacks.frames(span.stack).any(|frame| frame.function == "train_step")
    });
    for span in launching {
        assert!(span.last_ns >= first && span.first_ns <= last, "{span:?} is not in {first}..{last}");
    }
    let waits_for_time = |span: &apex_host_stacks::Span| {
        matches!(stacks.doing(span), Doing::Waiting { r#for: WaitsFor::Sleep, .. })
    };
    let idles: Vec<_> = stacks
        .spans
        .iter()
        .filter(|span| {
            let mut frames = stacks.frames(span.stack);
            frames.any(|frame| frame.function == "idles" && frame.file.ends_with("train.py"))
        })
        .collect();
    // The first sample may come before it waits.
    assert!(idles.iter().any(|span| waits_for_time(span)), "{idles:?}");
}

#[test]
fn off_means_off_and_a_program_without_launches_has_no_file() {
    let Some(python) = interpreter() else { return };
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("end"), "").unwrap();
    program(&sandbox);
    let run = |rate: &str, session: &str, arguments: &[&str]| {
        let options = ["run", "--device", "cpu", "--host-stacks", rate, "-o", session, "--", python];
        output(sandbox.apex(&options).args(arguments), 0);
        sandbox.path(session).join(FILE).exists()
    };
    assert!(!run("off", "off", &["train.py"]));
    assert!(!run("1000", "none", &["-c", "import time; time.sleep(0.5)"]));
    let refused = output(&mut sandbox.apex(&["run", "--host-stacks", "often", "--", "true"]), 125);
    assert!(text(&refused.stderr).contains("1 to 1000"), "{}", text(&refused.stderr));
}

/// A sandbox that forbids to read other processes ends no program, and the session says what is
/// missing.
#[test]
fn where_stacks_cannot_be_read_the_program_runs_and_the_session_says_so() {
    let Some(python) = interpreter() else { return };
    let sandbox = Sandbox::new();
    program(&sandbox);
    let mut command = sandbox.apex(&["run", "--device", "cpu", "-o", "s", "--", python, "train.py"]);
    let mut running = Running::start(command.refuse(libc::SYS_process_vm_readv, libc::EPERM));
    wait_until("the file is there", || sandbox.path("s").join(FILE).exists());
    std::fs::write(sandbox.path("end"), "").unwrap();
    assert!(running.0.wait().unwrap().success());
    let stacks = HostStacks::read(&sandbox.path("s"));
    let [lost] = &stacks.head.lost[..] else { panic!("{stacks:?}") };
    assert!(lost.contains("process_vm_readv") && lost.contains("ptrace_scope"), "{lost}");
    assert_eq!(stacks.spans, []);
    let mut doctor = sandbox.apex(&["doctor", "--json"]);
    let found = doctor.refuse(libc::SYS_process_vm_readv, libc::EPERM).output().unwrap();
    let found: serde_json::Value = serde_json::from_slice(&found.stdout).unwrap();
    let checks = found["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["id"] == "host-stacks").unwrap();
    assert_eq!(check["status"], "warn", "{check}");
}
