//! NVTX ranges, from the program to the report.

use crate::common::*;
use std::path::Path;
use test_process::Command;

/// The program that the tests of the injected library use, with a driver to link with; `None` where
/// it cannot be compiled.
fn compiled(sandbox: &Sandbox) -> Option<()> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../record/interpose/tests/shims/nvtx.c");
    let device = Path::new(APEX).with_file_name("deps").join("libapex_cpu_device.so");
    std::os::unix::fs::symlink(device, sandbox.path("libcuda.so.1")).unwrap();
    let search = format!("-L{}", sandbox.path("").display());
    let arguments = ["-pthread", search.as_str(), "-l:libcuda.so.1", "-ldl"];
    let status = Command::new("cc").arg("-o").arg(sandbox.path("nvtx")).arg(source).args(arguments).status();
    match status {
        Ok(status) => {
            assert!(status.success(), "cc failed");
            Some(())
        }
        Err(error) => {
            test_skip::missing_dependency(format!("cannot run cc: {error}"));
            None
        }
    }
}

/// Name, name of the range around it, how often it began, launches and copies of each range.
type Row = (String, Option<String>, u64, u64, u64);

fn rows(sandbox: &Sandbox, session: &str) -> Vec<Row> {
    let json = sandbox.json(&["report", session, "--json"]);
    let ranges = json["profile"]["ranges"].as_array().unwrap();
    let name = |range: &serde_json::Value| range["name"].as_str().unwrap().to_owned();
    let row = |range: &serde_json::Value| {
        let count = |name: &str| range[name].as_u64().unwrap();
        let parent = range["parent"].as_u64().map(|parent| name(&ranges[parent as usize]));
        (name(range), parent, count("count"), count("launches"), count("copies"))
    };
    let mut rows: Vec<Row> = ranges.iter().map(row).collect();
    rows.sort();
    rows
}

#[test]
fn a_report_says_what_ran_inside_of_each_range() {
    let sandbox = Sandbox::new();
    let Some(()) = compiled(&sandbox) else { return };
    output(&mut sandbox.apex(&["run", "--device", "cpu", "-o", "s", "--", "./nvtx", "nested"]), 0);
    let row = |name: &str, parent: Option<&str>, count, launches, copies| {
        (name.to_owned(), parent.map(str::to_owned), count, launches, copies)
    };
    let expected = [
        row("after", None, 1, 1, 0),
        row("before the driver", None, 1, 7, 1),
        row("inner", Some("outer"), 3, 3, 0),
        row("outer", Some("before the driver"), 1, 5, 1),
    ];
    assert_eq!(rows(&sandbox, "s"), expected);
    let report = text(&output(&mut sandbox.apex(&["report", "s", "--by", "range"]), 0).stdout);
    assert!(report.contains("4 of 4 ranges") && report.contains("\n    inner "), "{report}");
}

#[test]
fn launches_that_are_handed_over_belong_to_the_range_in_which_the_program_made_them() {
    let sandbox = Sandbox::new();
    let Some(()) = compiled(&sandbox) else { return };
    let run = ["run", "--device", "cpu", "--fast", "-o", "s", "--", "./nvtx", "threads"];
    output(sandbox.apex(&run).env("APEX_FAST_ALWAYS", "1"), 0);
    let rows = rows(&sandbox, "s");
    let launches = |name: &str| -> Vec<(u64, u64)> {
        rows.iter().filter(|row| row.0 == name).map(|row| (row.2, row.3)).collect()
    };
    assert_eq!(launches("main"), [(1, 1)]);
    for thread in ["thread b", "thread c", "thread d", "thread e"] {
        assert_eq!(launches(thread), [(1, 2001)], "{rows:?}");
    }
    for inner in ["even", "odd"] {
        assert_eq!(launches(inner), [(1000, 1000); 4], "{rows:?}");
    }
    let json = sandbox.json(&["report", "s", "--json"]);
    let queue = &json["profile"]["processes"][0]["queue"];
    assert!(queue["made"].as_u64().unwrap() > 0, "{queue}");
}

#[test]
fn ranges_that_go_to_another_tool_stay_there_and_their_absence_is_explained() {
    let sandbox = Sandbox::new();
    let Some(()) = compiled(&sandbox) else { return };
    let mut run = sandbox.apex(&["run", "--device", "cpu", "-o", "s", "--", "./nvtx", "nested"]);
    let ran = output(run.env("NVTX_INJECTION64_PATH", "/opt/tool/libtool.so"), 0);
    assert!(text(&ran.stdout).starts_with("0: "), "NVTX found no tool");
    let said = text(&ran.stderr);
    assert!(said.contains("NVTX_INJECTION64_PATH names another library"), "{said}");
    let report = text(&output(&mut sandbox.apex(&["report", "s", "--by", "range"]), 0).stdout);
    assert!(report.contains("The program named no ranges"), "{report}");
}
