//! `apex run --check`, faults and counts: told on stderr, kept in the session, shown by the report.

use crate::common::{Sandbox, output, text};

#[test]
fn a_race_is_told_kept_and_has_its_own_exit_code() {
    let sandbox = Sandbox::new();
    let ended = output(&mut sandbox.record(&["--check"], &["run", "race"]), 123);
    let told = text(&ended.stderr);
    for part in
        ["shared-race in kernel race", "thread (1,0,0)", "`word`", "defects.cu:12", "check: 1 defect, met "]
    {
        assert!(told.contains(part), "{part}: {told}");
    }
    let report = text(&output(&mut sandbox.apex(&["report", "s"]), 0).stdout);
    assert!(
        report.starts_with("Defects in kernels: shared-race in `race` at defects.cu:12.\n\n"),
        "{report}"
    );
    assert!(report.contains("1 defect in kernels"), "{report}");
    assert!(report.contains("shared-race in race at defects.cu:12"), "{report}");
    let found = &sandbox.json(&["report", "--json", "s"])["profile"]["defects"];
    assert_eq!((found.as_array().unwrap().len(), &found[0]["kind"]), (1, &"shared-race".into()));
    assert_eq!(
        (&found[0]["place"]["line"], &found[0]["place"]["instruction"]),
        (&12.into(), &"st.shared.u32".into())
    );
}

#[test]
fn the_programs_own_status_comes_first_and_sound_programs_pass() {
    let sandbox = Sandbox::new();
    output(&mut sandbox.record(&["--check"], &["run", "race", "exit", "5"]), 5);
    let sandbox = Sandbox::new();
    let ended = output(&mut sandbox.record(&["--check"], &["launch", "3"]), 0);
    assert!(text(&ended.stderr).contains("check: no defects found"));
    // Without --check nobody looks.
    let sandbox = Sandbox::new();
    output(&mut sandbox.record(&[], &["run", "race"]), 0);
    assert_eq!(sandbox.json(&["report", "--json", "s"])["profile"]["defects"], serde_json::json!([]));
}

#[test]
fn checking_needs_the_cpu_device() {
    let sandbox = Sandbox::new();
    let ended = output(&mut sandbox.apex(&["run", "--device", "gpu", "--check", "--", "true"]), 125);
    assert!(text(&ended.stderr).contains("--device cpu"));
}

#[test]
fn a_fault_is_kept_without_being_asked_for() {
    let sandbox = Sandbox::new();
    let ended = sandbox.recorded(&[], &["run", "wild"]);
    assert!(text(&ended.stdout).contains("ended with 700"));
    let told = text(&ended.stderr);
    for part in [
        "CUDA_ERROR_ILLEGAL_ADDRESS in kernel wild",
        "invalid read of 4 bytes at 0x40: a null pointer, or an offset from one",
        "block (0,0,0), thread (0,0,0)",
        "at ld.global.u32 (PTX line",
        "from defects.cu:21",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let found = &sandbox.json(&["report", "--json", "s"])["profile"]["defects"];
    assert_eq!(found[0]["kind"], "CUDA_ERROR_ILLEGAL_ADDRESS");
}

#[test]
fn a_fault_names_the_variable_of_the_module() {
    let sandbox = Sandbox::new();
    let told = text(&sandbox.recorded(&[], &["run", "beyond"]).stderr);
    assert!(told.contains("4 bytes past the end of the variable `table` of 16 bytes at 0x"), "{told}");
}

#[test]
fn an_undefined_value_is_told_where_it_is_used() {
    let sandbox = Sandbox::new();
    let ended = output(&mut sandbox.record(&["--check"], &["run", "speculates"]), 123);
    let told = text(&ended.stderr);
    for part in [
        "uninitialized-read in kernel speculates",
        "thread (5,0,0) stores a value of 4 bytes that nobody has written",
        "defects.cu:43\n    loaded at ld.local.u32",
        "check: 1 defect, met 1 time\n",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let report = text(&output(&mut sandbox.apex(&["report", "s"]), 0).stdout);
    assert!(report.contains("at defects.cu:43, loaded at defects.cu:41"), "{report}");
    let found = &sandbox.json(&["report", "--json", "s"])["profile"]["defects"][0];
    assert_eq!((&found["places"], &found["other"]["line"]), (&1.into(), &41.into()));
}

#[test]
fn counts_reach_the_report() {
    let sandbox = Sandbox::new();
    output(sandbox.record(&[], &["launch", "5"]).env("APEX_CPU_COUNTS", "all"), 0);
    let kernel = &sandbox.json(&["report", "--json", "s"])["profile"]["kernels"][0];
    assert_eq!(kernel["counts"]["launches"], 5);
    assert_eq!(kernel["counts"]["sampled_share"], serde_json::Value::Null);
    // The kernel is one `ret`, by one warp.
    assert_eq!(kernel["counts"]["warp_instructions"]["control"], 5);
    assert_eq!(kernel["counts"]["thread_instructions"]["control"], 5 * 32);
    let report = text(&output(&mut sandbox.apex(&["report", "s"]), 0).stdout);
    assert!(report.contains("Counted on the CPU device"), "{report}");
    let sandbox = Sandbox::new();
    output(sandbox.record(&[], &["launch", "5"]).env("APEX_CPU_COUNTS", "off"), 0);
    let kernel = &sandbox.json(&["report", "--json", "s"])["profile"]["kernels"][0];
    assert_eq!(kernel["counts"], serde_json::Value::Null);
}
