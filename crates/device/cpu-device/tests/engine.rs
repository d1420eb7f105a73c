//! The choice of the engine: a name that is none is said once, with those that are.

mod common;

use common::Context;
use test_process::Command;

/// The program that the test below runs in a process of its own.
#[test]
#[ignore = "the test beside it runs it"]
fn child() {
    drop(Context::new());
}

/// What a program says that makes a context while the variable has this value.
fn said(engine: &str) -> String {
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", "child", "--ignored", "--nocapture"]).env("APEX_CPU_ENGINE", engine);
    let output = program.output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn an_unknown_engine_is_said_with_those_that_there_are() {
    let unknown = said("jit");
    let line = "APEX_CPU_ENGINE=jit names no engine; it may be auto, interpreted or compiled";
    assert_eq!(unknown.matches(line).count(), 1, "{unknown}");
    for engine in ["", "auto", "interpreted", "compiled"] {
        assert_eq!(said(engine), "");
    }
}
