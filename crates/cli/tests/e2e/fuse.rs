//! `apex fuse`: what it says of a program whose launches go back and forth between two buffers.

use crate::common::{Sandbox, output, text};
use apex_trace::{Event, Session};
use serde_json::Value;

/// Records ten launches of 1,000 values in the session `s`.
fn recorded(options: &[&str]) -> Sandbox {
    recording(options, &["shaped", "10", "1000", "1"])
}

/// Records a program in the session `s`.
fn recording(options: &[&str], program: &[&str]) -> Sandbox {
    let sandbox = Sandbox::new();
    let mut command = sandbox.apex(&["run", "--device", "cpu", "--timing", "all", "-o", "s"]);
    command.args(options).arg("--").arg(test_build::program("driver-client"));
    output(command.args(program), 0);
    sandbox
}

#[test]
fn launches_that_follow_each_other_become_one() {
    let sandbox = recorded(&["--code"]);
    let json = text(&output(&mut sandbox.apex(&["fuse", "s", "-o", "fused", "--json"]), 0).stdout);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["schema"], "apex.fused/1");
    let pair = &json["pairs"][0];
    assert_eq!(json["pairs"].as_array().unwrap().len(), 1, "{json}");
    assert_eq!((&pair["first"], &pair["result"]), (&"step_20000".into(), &"joined".into()), "{json}");
    assert_eq!((&pair["times"], &pair["flowing_bytes"]), (&9.into(), &4000.into()), "{json}");
    assert_eq!(pair["joined"]["checked"], "same", "{json}");
    let written = std::fs::read_to_string(sandbox.path("fused/1.ptx")).unwrap();
    assert!(written.contains(".visible .entry apex_fused("), "{written}");
    assert!(
        written.contains("// Parameter 0 of the first kernel and parameter 1 of the second must be equal.")
    );
    let module = ptx::parse(&written).unwrap_or_else(|error| panic!("{}", error.render("1.ptx", &written)));
    assert!(ptx::verify(&module).is_empty());
    let page = text(&output(&mut sandbox.apex(&["fuse", "s"]), 0).stdout).replace("\n   ", " ");
    assert!(page.contains("35.2 KiB in all (computed); the same bits on the CPU device"), "{page}");
}

#[test]
fn launches_between_which_the_stream_writes_waits_or_attaches_memory_are_no_pair() {
    let sandbox = recording(&["--code"], &["shaped-observed", "1000"]);
    let json = text(&output(&mut sandbox.apex(&["fuse", "s", "--json"]), 1).stdout);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["pairs"], Value::Array(Vec::new()), "{json}");
}

#[test]
fn what_is_not_known_is_said() {
    let sandbox = recorded(&[]);
    let page = text(&output(&mut sandbox.apex(&["fuse", "s"]), 1).stdout).replace("\n   ", " ");
    assert!(page.contains("unknown") && page.contains("record it with --code"), "{page}");
    let missing = text(&output(&mut sandbox.apex(&["fuse", "other"]), 125).stderr);
    assert!(missing.contains("there is no session other"), "{missing}");
}

/// What a program printed that ran with a profile, and its session.
fn tuned(sandbox: &Sandbox, ways: &[&str], program: &[&str]) -> (String, Session) {
    let mut command = sandbox.apex(&["run", "--device", "cpu", "-o", "t", "--tuned", "p.json"]);
    command.args(ways).arg("--").arg(test_build::program("driver-client"));
    command.args(program).env("APEX_FAST_ALWAYS", "1");
    let printed = text(&output(&mut command, 0).stdout);
    (printed, Session::open(sandbox.path("t")).unwrap())
}

#[test]
fn a_profile_has_launches_made_as_one_where_both_wait_and_results_are_the_same() {
    let sandbox = recorded(&["--code"]);
    output(&mut sandbox.apex(&["fuse", "s", "--tuned", "p.json"]), 0);
    let program = ["shaped", "4001", "1000", "1"];
    let expected = alone(&program);
    for way in ["--fast=queue", "--fast=batch", "--fast=queue,memory"] {
        let (printed, session) = tuned(&sandbox, &[way], &program);
        assert_eq!(printed, expected, "{way}");
        let process = &session.processes[0];
        let mut launched = [0_u64; 2];
        for record in process.records() {
            if let Event::Launch(launch) = record.event {
                assert_eq!(launch.result, 0);
                let config = process.definitions.config(launch.config).unwrap();
                let name = &process.definitions.function(config.function).unwrap().name;
                launched[usize::from(name == "apex_fused__step_20000__step_20000")] += 1;
            }
        }
        // Each launch of the program is made alone, or is part of one pair.
        assert_eq!(launched[0] + 2 * launched[1], 4001, "{way}: {launched:?}");
        assert!(launched[1] > 0 && launched[1] == process.joined, "{way}: {launched:?}, {}", process.joined);
        std::fs::remove_dir_all(sandbox.path("t")).unwrap();
    }
    let (printed, session) = tuned(&sandbox, &[], &program);
    assert_eq!((printed, session.processes[0].joined), (expected, 0));
    std::fs::remove_dir_all(sandbox.path("t")).unwrap();
    // With something between each two launches, nothing is joined.
    let observed = ["shaped-observed", "1000"];
    let (printed, session) = tuned(&sandbox, &["--fast=queue"], &observed);
    assert_eq!((printed, session.processes[0].joined), (alone(&observed), 0));
}

/// What a program prints that runs without a profile.
fn alone(program: &[&str]) -> String {
    let sandbox = Sandbox::new();
    let mut command = sandbox.apex(&["run", "--device", "cpu", "--"]);
    text(&output(command.arg(test_build::program("driver-client")).args(program), 0).stdout)
}

#[test]
fn joined_launches_are_verified_and_a_changed_profile_is_not_applied() {
    let sandbox = recorded(&["--code"]);
    output(&mut sandbox.apex(&["fuse", "s", "--tuned", "p.json"]), 0);
    let mut verify = sandbox.apex(&["tune", "--verify", "--fast=queue", "--json", "-o", "p.json", "--"]);
    verify.arg(test_build::program("driver-client")).args(["shaped", "2001", "1000", "1"]);
    let json = text(&output(verify.env("APEX_FAST_ALWAYS", "1"), 0).stdout);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert!(json["joined_pairs"].as_u64() > Some(0) && json["differences"] == 0, "{json}");
    // Added again, the pair is there once; its code is not to be changed by hand.
    output(&mut sandbox.apex(&["fuse", "s", "--tuned", "p.json"]), 0);
    let profile = std::fs::read_to_string(sandbox.path("p.json")).unwrap();
    assert_eq!(profile.matches("apex_fused__step_20000__step_20000(").count(), 1, "{profile}");
    std::fs::write(sandbox.path("p.json"), profile.replace("add.s64", "sub.s64")).unwrap();
    let said = text(&output(&mut sandbox.apex(&["fuse", "s", "--tuned", "p.json"]), 125).stderr);
    assert!(said.contains("cannot add to p.json") && said.contains("its checksum does not match"), "{said}");
    let (_, session) = tuned(&sandbox, &["--fast=queue"], &["shaped", "300", "1000", "1"]);
    assert_eq!(session.processes[0].joined, 0);
}
