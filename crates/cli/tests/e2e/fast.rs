//! `apex run --fast` on the CPU device: programs compute what they compute without it, and a queue
//! that lost the order of calls would be noticed.

use crate::common::{Sandbox, cpu_device, output, text};
use std::os::unix::fs::symlink;
use tempfile::TempDir;
use test_process::Command;

/// Random programs, made faster in the way that the option says; a queue stays on where it gains
/// nothing.
pub fn random_programs(sandbox: &Sandbox, fast: &str, seed: u32, count: &str) -> Command {
    programs(sandbox, fast, &["order", &seed.to_string(), count, "60"])
}

/// As [`random_programs`], of which some steps are many launches in a row.
fn programs_in_bursts(sandbox: &Sandbox, fast: &str, seed: u32, count: &str) -> Command {
    programs(sandbox, fast, &["order-in-bursts", &seed.to_string(), count, "60"])
}

fn programs(sandbox: &Sandbox, fast: &str, words: &[&str]) -> Command {
    let mut command = sandbox.apex(&["run", "--device", "cpu", fast, "--quiet", "-o", "session", "--"]);
    command.arg(test_build::program("driver-client")).args(words);
    command.env("APEX_FAST_ALWAYS", "1").env("RUST_BACKTRACE", "0");
    command
}

/// The report of a session without line breaks, because the width of figures moves them.
pub fn unwrapped_report(sandbox: &Sandbox, session: &str) -> String {
    let report = text(&output(&mut sandbox.apex(&["report", session]), 0).stdout);
    report.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn random_programs_keep_their_order() {
    let sandbox = Sandbox::new();
    let run = output(&mut random_programs(&sandbox, "--fast", 1, "1500"), 0);
    assert_eq!(text(&run.stdout), "1500 programs as they should be\n");
    assert_eq!(text(&run.stderr), "");
    let process = &sandbox.json(&["report", "session", "--json"])["profile"]["processes"][0];
    assert_eq!(process["queue"]["state"], "on");
    assert!(process["queue"]["made"].as_u64().unwrap() > 1000, "{process}");
    let report = unwrapped_report(&sandbox, "session");
    assert!(report.contains("calls were queued"), "{report}");
}

/// Calls that must not pass the queue. Each of these faults alone makes random programs fail.
const FAULTS: [&str; 13] = [
    "cuEventRecord",
    "cuStreamWaitEvent",
    "cuLaunchKernelEx",
    "cuMemsetD8Async",
    "cuMemsetD32Async",
    "cuMemcpyDtoDAsync",
    "cuMemcpyDtoHAsync",
    "cuGraphLaunch",
    "cuStreamBeginCapture",
    "cuStreamDestroy",
    "cuMemFree",
    "cuCtxSynchronize",
    "cuKernelSetAttribute",
];

/// A folder of libraries for `APEX_LIB_DIR`, in which `libapex.so` is careless about what
/// `CARELESS_ABOUT` names.
pub fn careless_libraries() -> TempDir {
    let libraries = tempfile::tempdir().unwrap();
    for (file, name) in [
        (test_build::library("careless-library"), "libapex.so"),
        (test_build::library("apex-alias"), "libapex_alias.so"),
        (cpu_device(), "libapex_cpu_device.so"),
    ] {
        symlink(file, libraries.path().join(name)).unwrap();
    }
    libraries
}

#[test]
fn a_call_that_wrongly_passes_the_queue_is_noticed() {
    let libraries = careless_libraries();
    let run = |fault: &str, seed: u32| {
        let sandbox = Sandbox::new();
        let mut command = random_programs(&sandbox, "--fast", seed, "100");
        command.env("APEX_LIB_DIR", libraries.path()).env("CARELESS_ABOUT", fault);
        command.output().unwrap().status.success()
    };
    assert!(run("nothing", 1), "without a fault the programs are as they should be");
    // Whether a call overtakes another is decided anew in each run.
    for fault in FAULTS {
        let is_noticed = (0..40).any(|round| !run(fault, 1 + 100 * round));
        assert!(is_noticed, "{fault} passes the queue, and nothing notices");
    }
}

#[test]
fn contexts_and_default_streams_of_threads_keep_their_order() {
    for fast in ["--fast", "--fast=batch", "--fast=queue,memory"] {
        for (words, expected) in [
            (["places-contexts", "300", "1", ""], "2 places as they should be\n1 devices\n"),
            (["places-own-streams", "3", "300", "1"], "3 places as they should be\n"),
        ] {
            let sandbox = Sandbox::new();
            let run = output(&mut programs(&sandbox, fast, &words), 0);
            assert_eq!(text(&run.stdout), expected, "{fast}");
            let process = &sandbox.json(&["report", "session", "--json"])["profile"]["processes"][0];
            assert!(process["queue"]["made"].as_u64().unwrap() > 100, "{words:?}, {fast}: {process}");
        }
    }
}

#[test]
fn launches_in_batches_keep_their_order() {
    let sandbox = Sandbox::new();
    let run = output(&mut programs_in_bursts(&sandbox, "--fast=batch", 1, "100"), 0);
    assert_eq!(text(&run.stdout), "100 programs as they should be\n");
    assert_eq!(text(&run.stderr), "");
    let profile = &sandbox.json(&["report", "session", "--json"])["profile"];
    let queue = &profile["processes"][0]["queue"];
    let [batches, batched] = ["batches", "batched"].map(|name| queue[name].as_u64().unwrap());
    assert!(batches > 100 && batched >= 8 * batches, "{queue}");
    let report = unwrapped_report(&sandbox, "session");
    assert!(report.contains("launches were combined into"), "{report}");
    // The session holds each launch, as it does without batches.
    let plain = Sandbox::new();
    output(&mut programs_in_bursts(&plain, "--fast", 1, "100"), 0);
    let without = &plain.json(&["report", "session", "--json"])["profile"]["processes"][0];
    assert_eq!(without["queue"]["batches"], 0);
    assert_eq!(profile["processes"][0]["launches"], without["launches"]);
}

#[test]
fn contexts_and_modules_take_their_batches_with_them() {
    let sandbox = Sandbox::new();
    output(&mut programs(&sandbox, "--fast=batch", &["launches-come-and-go", "5"]), 0);
    let queue = &sandbox.json(&["report", "session", "--json"])["profile"]["processes"][0]["queue"];
    assert!(queue["batches"].as_u64().unwrap() > 15, "{queue}");
}

#[test]
fn a_fault_in_batches_is_noticed() {
    let libraries = careless_libraries();
    let run = |fault: &str, seed: u32| {
        let sandbox = Sandbox::new();
        let mut command = programs_in_bursts(&sandbox, "--fast=batch", seed, "20");
        command.env("APEX_LIB_DIR", libraries.path()).env("CARELESS_ABOUT", fault);
        command.output().unwrap().status.success()
    };
    assert!(run("nothing", 1), "without a fault the programs are as they should be");
    for fault in ["batch-order", "batch-parameters", "batch-stream", "batch-kernels"] {
        let is_noticed = (0..20).any(|round| !run(fault, 1 + 20 * round));
        assert!(is_noticed, "batches neglect {fault}, and nothing notices");
    }
}

#[test]
fn a_program_that_waits_for_its_work_is_told_that_nothing_was_gained() {
    let sandbox = Sandbox::new();
    output(&mut sandbox.record(&["--fast"], &["launch", "2000"]), 0);
    let queue = &sandbox.json(&["report", "s", "--json"])["profile"]["processes"][0]["queue"];
    assert!(queue["state"].is_string(), "{queue}");
    let refused = output(&mut sandbox.apex(&["run", "--fast=fastest", "-o", "t", "--", "true"]), 125);
    let said = text(&refused.stderr);
    assert!(said.contains("'fastest'") && said.contains("--fast"), "{said}");
}

#[test]
fn the_doctor_says_whether_launches_can_be_handed_over() {
    let sandbox = Sandbox::new();
    let checks = sandbox.apex(&["doctor", "--json"]).output().unwrap();
    let checks: serde_json::Value = serde_json::from_slice(&checks.stdout).unwrap();
    let check = checks["checks"].as_array().unwrap().iter().find(|check| check["id"] == "fast").unwrap();
    assert!(check["found"].as_str().unwrap().contains("--fast"), "{check}");
}

/// Launches that had returned success when the program was killed are in the record, or counted.
#[test]
fn calls_that_a_killed_program_had_queued_are_told() {
    let sandbox = Sandbox::new();
    let words = ["launch", "3000", "raise", "9"];
    let mut command = sandbox.record(&["--fast", "--quiet"], &words);
    let run = command.env("APEX_FAST_ALWAYS", "1").output().unwrap();
    let profile = &sandbox.json(&["report", "s", "--json"])["profile"];
    let not_made = profile["processes"][0]["queue"]["not_made"].as_u64().unwrap();
    let told = sandbox.launches("s") + not_made;
    // (The last one may have been made without being counted as made.)
    assert!((3000..=3001).contains(&told), "{told}, {not_made} of them not made");
    let said = text(&run.stderr);
    assert_eq!(said.contains("NOT MADE: process"), not_made > 0, "{said}");
    assert_eq!(unwrapped_report(&sandbox, "s").contains("not made: the process was ended"), not_made > 0);
}

/// Random programs on objects that launches share or do not; each launch of a graph draws one of
/// the orders that its edges allow.
fn programs_beside(sandbox: &Sandbox, fast: &str, seed: u32, count: &str, is_shared: bool) -> Command {
    let words = ["beside", &seed.to_string(), count, "20", if is_shared { "1" } else { "0" }];
    let mut command = programs(sandbox, fast, &words);
    command.env("APEX_CPU_GRAPH_ORDER", seed.to_string());
    command
}

/// The number of programs of the test below; docs/fast.md says how many it ran with once.
fn programs_to_schedule() -> String {
    std::env::var("SCHEDULED_PROGRAMS").unwrap_or_else(|_| "40".to_owned())
}

#[test]
fn launches_beside_others_compute_what_they_compute_one_after_the_other() {
    let (sandbox, count) = (Sandbox::new(), programs_to_schedule());
    let run = output(&mut programs_beside(&sandbox, "--fast=schedule", 1, &count, false), 0);
    assert_eq!(text(&run.stdout), format!("{count} programs as they should be\n"));
    assert_eq!(text(&run.stderr), "");
    let schedule =
        &sandbox.json(&["report", "session", "--json"])["profile"]["processes"][0]["queue"]["schedule"];
    assert_eq!(schedule["state"], "on");
    assert!(schedule["batches"].as_u64().unwrap() > 20, "{schedule}");
    let report = unwrapped_report(&sandbox, "session");
    assert!(report.contains("ran beside launches that share no data with them"), "{report}");
}

/// What schedules must not neglect. Each of these faults alone makes random programs fail.
const SCHEDULE_FAULTS: [&str; 13] = [
    // A launch does not wait for one that writes what it reads, or reads or writes what it writes.
    "schedule-read-after-write",
    "schedule-write-after-read",
    "schedule-write-after-write",
    // Or for one of which nothing is known.
    "schedule-unknown",
    // A launch has one thread.
    "schedule-dimensions",
    // Who waits for one waits for all before it.
    "schedule-reach",
    // The last launch waits for nobody.
    "schedule-last",
    // A launch waits for the one right before it alone.
    "schedule-neighbours",
    // Memory overlaps only if it begins at the same address.
    "schedule-overlap",
    // A graph is used whatever its edges are.
    "schedule-pattern",
    // A kernel is the one of this name, whatever its code is.
    "schedule-code",
    // It is any kernel of its module.
    "schedule-kernel",
    // A batch has the edges of one with other parameters.
    "schedule-parameters",
];

#[test]
fn a_fault_in_schedules_is_noticed() {
    let libraries = careless_libraries();
    let run = |fault: &str, seed: u32| {
        let sandbox = Sandbox::new();
        let mut command = programs_beside(&sandbox, "--fast=schedule", seed, "8", false);
        command.env("APEX_LIB_DIR", libraries.path()).env("CARELESS_ABOUT", fault);
        command.output().unwrap().status.success()
    };
    assert!(run("nothing", 1), "without a fault the programs are as they should be");
    for fault in SCHEDULE_FAULTS {
        let is_noticed = (0..20).any(|round| !run(fault, 1 + 8 * round));
        assert!(is_noticed, "schedules neglect {fault}, and nothing notices");
    }
}
