//! `apex run --fast=memory` on the CPU device: programs see what they see without it, and a pool
//! that hands memory out too early would be noticed.

use crate::common::{Sandbox, output, text};
use crate::fast::{careless_libraries, random_programs, unwrapped_report};
use serde_json::Value;

/// Returns the output of a program of `driver-client` with the options, and the pool of its
/// session.
fn ran(options: &[&str], words: &[&str]) -> (String, Value) {
    let sandbox = Sandbox::new();
    let mut command = sandbox.apex(&["run", "--device", "cpu", "--quiet", "-o", "s"]);
    command.args(options).arg("--").arg(test_build::program("driver-client")).args(words);
    let run = output(&mut command, 0);
    assert_eq!(text(&run.stderr), "");
    let pool = sandbox.json(&["report", "s", "--json"])["profile"]["processes"][0]["pool"].clone();
    (text(&run.stdout), pool)
}

#[test]
fn programs_see_of_their_memory_what_they_see_without_the_pool() {
    for program in ["memory-as-seen", "memory-waited-for", "memory-of-contexts", "memory-shared"] {
        let (expected, none) = ran(&[], &[program]);
        assert_eq!(none, Value::Null);
        for fast in ["--fast=memory", "--fast=queue,memory"] {
            let (found, pool) = ran(&[fast], &[program]);
            assert_eq!(found, expected, "{program} with {fast}");
            assert!(pool["kept"].as_u64().unwrap() > 0, "{program}: {pool}");
        }
    }
}

#[test]
fn threads_do_not_get_the_same_memory() {
    let (_, pool) = ran(&["--fast=memory"], &["memory-in-threads", "4", "200"]);
    assert!(pool["served"].as_u64().unwrap() > 400, "{pool}");
}

#[test]
fn random_programs_keep_their_order_with_pooled_memory() {
    for fast in ["--fast=memory", "--fast=queue,memory"] {
        let sandbox = Sandbox::new();
        let run = output(&mut random_programs(&sandbox, fast, 1, "200"), 0);
        assert_eq!(text(&run.stdout), "200 programs as they should be\n");
        let pool = &sandbox.json(&["report", "session", "--json"])["profile"]["processes"][0]["pool"];
        assert_eq!(pool["state"], "on", "{pool}");
        let report = unwrapped_report(&sandbox, "session");
        assert!(report.contains("allocations reused freed memory"), "{report}");
    }
}

#[test]
fn a_pool_that_does_not_wait_is_noticed() {
    let libraries = careless_libraries();
    let succeeds = |fault: &str| {
        let sandbox = Sandbox::new();
        let mut command =
            sandbox.apex(&["run", "--device", "cpu", "--fast=memory", "--quiet", "-o", "s", "--"]);
        command.arg(test_build::program("driver-client")).arg("memory-waited-for");
        command.env("APEX_LIB_DIR", libraries.path()).env("CARELESS_ABOUT", fault);
        command.output().unwrap().status.success()
    };
    assert!(succeeds("nothing"), "without a fault each free waits");
    // Whether a kernel is done before somebody looks is decided anew in each run.
    for fault in ["waiting", "watching"] {
        assert!((0..10).any(|_| !succeeds(fault)), "the pool neglects {fault}, and nothing notices");
    }
}

#[test]
fn a_call_that_the_pool_cannot_follow_closes_it_and_the_report_names_it() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.apex(&["run", "--device", "cpu", "--fast=memory", "--quiet", "-o", "s", "--"]);
    output(command.arg(test_build::program("driver-client")).arg("memory-shared"), 0);
    let pool = &sandbox.json(&["report", "s", "--json"])["profile"]["processes"][0]["pool"];
    assert_eq!(pool["state"], "closed", "{pool}");
    assert_eq!(pool["closed_by"], "cuStreamWriteValue32_v2", "{pool}");
    let report = unwrapped_report(&sandbox, "s");
    assert!(report.contains("called cuStreamWriteValue32_v2"), "{report}");
}

#[test]
fn memory_that_is_kept_and_checked_is_refused() {
    let sandbox = Sandbox::new();
    let refused = output(&mut sandbox.record(&["--check", "--fast=memory"], &["launch", "1"]), 125);
    assert!(text(&refused.stderr).contains("use only one of them"), "{}", text(&refused.stderr));
}
