//! Traces of other profilers: kept as a session, read directly, refused.

use crate::common::{Sandbox, output, text};

const TRACE: &str = r#"{"schemaVersion": 1, "baseTimeNanoseconds": 1700000000000000000, "traceEvents": [
{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 11, "tid": 12, "ts": 1.001, "dur": 2.5, "args": {"correlation": 5}},
{"ph": "X", "cat": "kernel", "name": "saxpy", "pid": 0, "tid": 7, "ts": 9.25, "dur": 3.125,
 "args": {"correlation": 5, "device": 0, "context": 1, "stream": 7, "grid": [2, 1, 1], "block": [64, 1, 1]}}
]}"#;

#[test]
fn a_trace_is_imported_and_read_directly_with_the_same_result() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("t.trace.json"), TRACE).unwrap();
    let kept = output(&mut sandbox.apex(&["import", "t.trace.json", "-o", "s"]), 0);
    assert_eq!(text(&kept.stdout), "s\n");
    assert!(text(&kept.stderr).contains("imported 1 kernel"), "{}", text(&kept.stderr));
    let gpu_ns = |source| {
        let report = sandbox.json(&["report", "--json", source]);
        report["profile"]["kernels"][0]["gpu"]["total_ns"]["value"].as_f64()
    };
    assert_eq!([gpu_ns("s"), gpu_ns("t.trace.json")], [Some(3125.0), Some(3125.0)]);
    // A folder of traces is read in the same way, and a folder of sessions still is one.
    std::fs::create_dir(sandbox.path("log")).unwrap();
    std::fs::rename(sandbox.path("t.trace.json"), sandbox.path("log/rank0.pt.trace.json")).unwrap();
    assert_eq!(gpu_ns("log"), Some(3125.0));
    let told = sandbox.json(&["import", "log", "-o", "again", "--json"]);
    assert_eq!((told["schema"].as_str(), told["kernels"].as_u64()), (Some("apex.import/1"), Some(1)));
    output(&mut sandbox.apex(&["diff", "s", "log"]), 0);
    let export = output(&mut sandbox.apex(&["export", "--format", "json", "--what", "launches", "log"]), 0);
    assert!(text(&export.stdout).contains("saxpy"));
}

#[test]
fn a_trace_that_cannot_be_imported_leaves_no_session() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("amd.json"), "{\"roctracer_version\": 4, \"traceEvents\": []}").unwrap();
    for words in [&["import", "amd.json", "-o", "s"][..], &["report", "amd.json"]] {
        let said = text(&output(&mut sandbox.apex(words), 125).stderr);
        assert!(said.contains("amd.json") && said.contains("ROCm"), "{said}");
    }
    assert!(!sandbox.path("s").exists());
    let said = text(&output(&mut sandbox.apex(&["import", "none.json"]), 125).stderr);
    assert!(said.contains("none.json"), "{said}");
}
