//! `apex attach`: a process that runs already is watched from outside.

use crate::common::*;
use crate::places::interpreter;
use apex_host_stacks::HostStacks;
use serde_json::Value;
use std::path::Path;
use test_process::Command;

/// Computes in a known function until a file appears, while another thread sleeps. Any process may
/// read it, whatever Yama's setting.
const PROGRAM: &str = r#"
import ctypes, os, threading, time
ctypes.CDLL(None).prctl(0x59616d61, ctypes.c_ulong(-1), 0, 0, 0)
def idles():
    time.sleep(1000)
def crunch():
    return sum(number * number for number in range(10_000))
def computes():
    while not os.path.exists("end"):
        crunch()
threading.Thread(target=idles, daemon=True).start()
open("begun", "w").close()
computes()
"#;

/// Starts the program in a sandbox, and waits until it computes.
fn start(sandbox: &Sandbox, python: &str) -> Running {
    std::fs::write(sandbox.path("work.py"), PROGRAM).unwrap();
    let mut command = Command::new(python);
    let running = Running::start(command.arg("work.py").current_dir(sandbox.path(".")));
    wait_until("the program has begun", || sandbox.path("begun").exists());
    running
}

/// What a command printed, with one space in place of each break of a line.
fn flat(printed: &[u8]) -> String {
    text(printed).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether a thread was seen in each of these functions.
fn has_all(session: &Path, functions: &[&str]) -> bool {
    let stacks = HostStacks::read(session);
    let is_seen = |function: &&str| {
        let mut spans = stacks.spans.iter();
        spans.any(|span| stacks.frames(span.stack).any(|frame| frame.function == **function))
    };
    functions.iter().all(is_seen)
}

fn functions<'v>(report: &'v Value, state: &str) -> Vec<&'v str> {
    let states = report["host_functions"].as_array().unwrap();
    let state = states.iter().find(|found| found["state"] == state).unwrap_or_else(|| panic!("{report:#}"));
    state["functions"].as_array().unwrap().iter().map(|found| found["function"].as_str().unwrap()).collect()
}

#[test]
fn a_process_that_runs_already_is_watched_until_it_ends_and_every_reader_shows_where_it_was() {
    let Some(python) = interpreter() else { return };
    let sandbox = Sandbox::new();
    let mut program = start(&sandbox, python);
    let pid = program.0.id().to_string();
    let mut attach = Running::start(&mut sandbox.apex(&["attach", &pid, "-o", "s"]));
    let session = sandbox.path("s");
    wait_until("both threads are sampled", || has_all(&session, &["crunch", "idles"]));
    std::fs::write(sandbox.path("end"), "").unwrap();
    assert!(program.0.wait().unwrap().success());
    let said = std::io::read_to_string(attach.0.stderr.take().unwrap()).unwrap();
    assert!(attach.0.wait().unwrap().success() && said.contains("its launches are not seen"), "{said}");
    assert!(said.contains("read it with `apex report s`"), "{said}");

    // (The newest session is this one, and has no launch.)
    let report = text(&output(&mut sandbox.apex(&["report"]), 0).stdout);
    let first = report.split("\n\n").next().unwrap().replace("\n  ", " ");
    assert!(first.starts_with("On average ") && first.contains("launches are not seen."), "{report}");
    assert!(first.contains("work.py"), "{report}");
    for part in
        [&format!("attached to process {pid}"), "2 of 2 threads", "Host functions", "sleeps", "crunch"]
    {
        assert!(report.contains(part), "{part}: {report}");
    }
    let report = sandbox.json(&["report", "--json", "s"]);
    assert!(functions(&report, "running").contains(&"computes"), "{report:#}");
    assert!(functions(&report, "sleeps").contains(&"idles"), "{report:#}");
    assert_eq!(report["run"]["attached"], true);
    assert_eq!(report["run"]["command"][1], "work.py");
    let threads = report["profile"]["host"]["threads"].as_array().unwrap();
    // (One that sleeps wakes once in a while, and waits for a processor if all are busy.)
    let [ran, idled] = [0, 1].map(|thread: usize| threads[thread]["running_ns"].as_f64().unwrap());
    assert!(threads.len() == 2 && idled < ran, "{threads:?}");

    let average = format!("On average {:.2} ", ran / report["profile"]["host"]["span_ns"].as_f64().unwrap());
    assert!(first.starts_with(&average), "{first} {average}");
    assert!(ran <= threads[0]["sampled_ns"].as_f64().unwrap(), "{report:#}");

    for format in ["perfetto", "chrome"] {
        let told =
            text(&output(&mut sandbox.apex(&["export", "--format", format, "-o", "trace", "s"]), 125).stderr);
        assert!(told.contains("does not see launches") && !sandbox.path("trace").exists(), "{told}");
    }
    let told = flat(&output(&mut sandbox.apex(&["history", "add", "--commit", "c", "s"]), 125).stderr);
    assert!(told.contains("does not see launches"), "{told}");
    assert!(!sandbox.path("apex-history.jsonl").exists(), "nothing is added");
    let told = flat(&output(&mut sandbox.apex(&["diff", "s", "s"]), 0).stdout);
    assert!(told.contains("neither side has a kernel launch"), "{told}");
    let told = flat(&output(&mut sandbox.apex(&["advise", "s"]), 0).stdout);
    assert!(told.contains("launches were not recorded") && !told.contains("--timing sampled"), "{told}");

    let folded = text(&output(&mut sandbox.apex(&["export", "--format", "collapsed", "s"]), 0).stdout);
    assert!(
        folded.lines().any(|line| line.starts_with("runs;thread ") && line.contains("crunch")),
        "{folded}"
    );
    for format in ["speedscope", "pprof", "firefox"] {
        output(&mut sandbox.apex(&["export", "--format", format, "-o", "stacks", "s"]), 0);
    }
    output(&mut sandbox.apex(&["report", "--html", "s.html", "s"]), 0);
    let page = std::fs::read_to_string(sandbox.path("s.html")).unwrap();
    assert!(page.contains("is_of_host") && page.contains("crunch"), "{}", page.len());
    let list = text(&output(&mut sandbox.apex(&["list"]), 0).stdout);
    assert!(list.contains("threads ran or were ready to run") && !list.contains("killed"), "{list}");
}

#[test]
fn a_time_ends_it_while_the_process_runs_on() {
    let Some(python) = interpreter() else { return };
    let sandbox = Sandbox::new();
    let mut program = start(&sandbox, python);
    let pid = program.0.id().to_string();
    let watched = output(&mut sandbox.apex(&["attach", &pid, "--seconds", "0.5", "--report", "-q"]), 0);
    let report = text(&watched.stderr);
    assert!(report.contains("threads ran or were ready to run") && !report.contains("watching"), "{report}");
    assert!(program.0.try_wait().unwrap().is_none(), "it runs on");
    std::fs::write(sandbox.path("end"), "").unwrap();
    assert!(program.0.wait().unwrap().success());
}

#[test]
fn a_killed_attach_records_no_more_though_the_process_runs_on() {
    let Some(python) = interpreter() else { return };
    let sandbox = Sandbox::new();
    let mut program = start(&sandbox, python);
    let pid = program.0.id().to_string();
    let mut attach = Running::start(&mut sandbox.apex(&["attach", &pid, "-q", "-o", "s"]));
    let watcher = attach.0.id();
    wait_until("a thread is sampled", || has_all(&sandbox.path("s"), &["crunch"]));
    let told = text(&output(&mut sandbox.apex(&["pack", "s"]), 125).stderr);
    assert!(told.contains(&format!("still recorded by process {watcher}")), "{told}");
    attach.0.kill().unwrap();
    attach.0.wait().unwrap();
    let report = flat(&output(&mut sandbox.apex(&["report", "s"]), 0).stdout);
    assert!(report.contains("apex was killed while it watched"), "{report}");
    output(&mut sandbox.apex(&["pack", "s"]), 0);
    let list = flat(&output(&mut sandbox.apex(&["list"]), 0).stdout);
    assert!(list.contains("killed while it watched") && !list.contains("program ended"), "{list}");
    assert!(program.0.try_wait().unwrap().is_none(), "it runs on");
    std::fs::write(sandbox.path("end"), "").unwrap();
    assert!(program.0.wait().unwrap().success());
}

#[test]
fn what_cannot_be_watched_is_refused_without_a_session() {
    let Some(python) = interpreter() else { return };
    let sandbox = Sandbox::new();
    let mut program = start(&sandbox, python);
    let pid = program.0.id().to_string();
    let refused = |command: &mut Command, code: i32| text(&output(command, code).stderr);
    let told = refused(sandbox.apex(&["attach", &pid]).refuse(libc::SYS_process_vm_readv, libc::EPERM), 125);
    assert!(told.contains("process_vm_readv is refused") && told.contains("SYS_PTRACE"), "{told}");
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let tasks = tasks.map(|task| task.unwrap().file_name().into_string().unwrap());
    let thread = tasks.into_iter().find(|task| *task != pid).expect("a second thread");
    let told = refused(&mut sandbox.apex(&["attach", &thread]), 125);
    assert!(told.contains(&format!("{thread} is a thread of process {pid}: attach to that")), "{told}");
    let told = refused(&mut sandbox.apex(&["attach", &pid, "--host-stacks", "off"]), 125);
    assert!(told.contains("leaves nothing to watch"), "{told}");
    refused(&mut sandbox.apex(&["attach", "python"]), 2);
    refused(&mut sandbox.apex(&["attach", &pid, "--seconds", "0"]), 2);
    std::fs::write(sandbox.path("end"), "").unwrap();
    assert!(program.0.wait().unwrap().success());
    let told = refused(&mut sandbox.apex(&["attach", &pid]), 125);
    assert!(told.contains(&format!("there is no process {pid}")), "{told}");
    let sessions = std::fs::read_dir(sandbox.path(".")).unwrap().flatten();
    let sessions = sessions.filter(|entry| entry.path().is_dir()).count();
    assert_eq!(sessions, 0, "no session is left");
}
