//! `apex fuse`: what it says of a program whose launches go back and forth between two buffers.

use crate::common::{Sandbox, output, text};
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
