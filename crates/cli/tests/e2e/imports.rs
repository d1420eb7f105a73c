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

#[test]
fn an_import_claims_nothing_that_nobody_recorded() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("t.trace.json"), TRACE).unwrap();
    output(&mut sandbox.apex(&["import", "t.trace.json", "-o", "s"]), 0);
    for source in ["s", "t.trace.json"] {
        let said = text(&output(&mut sandbox.apex(&["report", source]), 0).stdout);
        assert!(said.contains("imported from PyTorch (Kineto), schema 1"), "{said}");
        for wrong in ["overhead", "apex-import-", "killed", "0 dropped"] {
            assert!(!said.contains(wrong), "{wrong}: {said}");
        }
        let report = sandbox.json(&["report", "--json", source]);
        assert_eq!(report["session"], source);
        assert!(report["run"]["exit"].is_null() && report["advice"]["verdict"]["overhead_share"].is_null());
    }
    let page = text(&output(&mut sandbox.apex(&["report", "t.trace.json", "--html", "page.html"]), 0).stderr);
    assert!(page.contains("wrote page.html"), "{page}");
    assert!(!std::fs::read_to_string(sandbox.path("page.html")).unwrap().contains("apex-import-"));
    let chrome = output(&mut sandbox.apex(&["export", "--format", "chrome", "t.trace.json"]), 0);
    let document: serde_json::Value = serde_json::from_slice(&chrome.stdout).unwrap();
    let events = document["traceEvents"].as_array().unwrap();
    let kernel = events.iter().find(|event| event["name"] == "saxpy").expect("the kernel");
    assert_eq!(kernel["dur"].as_f64(), Some(3.125));
}

#[test]
fn folders_say_what_is_not_read_and_files_what_they_are() {
    let sandbox = Sandbox::new();
    std::fs::create_dir_all(sandbox.path("log/rank1")).unwrap();
    std::fs::write(sandbox.path("log/rank0.json"), TRACE).unwrap();
    std::fs::write(sandbox.path("log/rank1/anything.json"), TRACE).unwrap();
    std::fs::write(sandbox.path("log/rank2.json"), &TRACE[..60]).unwrap();
    let kept = output(&mut sandbox.apex(&["import", "log", "-o", "s"]), 0);
    let said = text(&kept.stderr);
    assert!(said.contains("imported 2 kernels") && said.contains("rank2.json is not read"), "{said}");
    std::fs::write(sandbox.path("notes.txt"), "hello").unwrap();
    let said = text(&output(&mut sandbox.apex(&["report", "notes.txt"]), 125).stderr);
    assert!(said.contains("neither a session nor a trace") && said.contains("it is text"), "{said}");
}

#[test]
fn traces_are_of_one_program_if_their_kernels_are() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("before.json"), TRACE).unwrap();
    std::fs::write(sandbox.path("after.json"), TRACE.replace("3.125", "2.5")).unwrap();
    std::fs::write(sandbox.path("other.json"), TRACE.replace("saxpy", "gemm")).unwrap();
    let compared = |other| text(&output(&mut sandbox.apex(&["diff", "before.json", other]), 0).stdout);
    let same = compared("after.json");
    assert!(!same.contains("different programs") && !same.contains("commands differ"), "{same}");
    let different = compared("other.json").replace("\n  ", " ");
    assert!(different.contains("different programs"), "{different}");
}

/// A trace of steps of 100 µs, each with three kernels of 10 µs.
fn steps(count: u64) -> String {
    let event = |step: u64, kernel: u64| {
        let (at, correlation) = (step * 100 + kernel * 20, step * 3 + kernel + 1);
        format!(
            r#"{{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 11, "tid": 12, "ts": {at}, "dur": 5, "args": {{"correlation": {correlation}}}}},
{{"ph": "X", "cat": "kernel", "name": "k{kernel}", "pid": 0, "tid": 7, "ts": {}, "dur": 10, "args": {{"correlation": {correlation}, "device": 0, "stream": 7}}}}"#,
            at + 7
        )
    };
    let events: Vec<String> =
        (0..count).flat_map(|step| (0..3).map(move |kernel| event(step, kernel))).collect();
    format!("[{}]", events.join(",\n"))
}

#[test]
fn the_time_of_a_steps_kernels_is_measured() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("t.json"), steps(60)).unwrap();
    let said = text(&output(&mut sandbox.apex(&["report", "t.json"]), 0).stdout).replace("\n  ", " ");
    assert!(said.contains("A step takes 100 µsᵐ") && said.contains("its kernels take 30.0 µsᵐ."), "{said}");
}

#[test]
fn what_a_trace_does_not_have_is_unknown_and_not_advised_on() {
    let sandbox = Sandbox::new();
    let h100 = r#"{"deviceProperties": [{"id": 0, "name": "NVIDIA H100", "computeMajor": 9, "numSms": 132,
        "maxThreadsPerMultiprocessor": 2048, "regsPerMultiprocessor": 65536}], "traceEvents": "#;
    // Kernels of 40 µs without grid and block, with registers; and without the calls.
    let registers = r#""stream": 7, "registers per thread": 32"#;
    let bare = steps(60).replace("\"stream\": 7", registers).replace("\"dur\": 10,", "\"dur\": 15,");
    std::fs::write(sandbox.path("bare.json"), format!("{h100}{bare}}}")).unwrap();
    let report = sandbox.json(&["report", "--json", "bare.json"]);
    let kernel = &report["profile"]["kernels"][0];
    assert!(kernel["geometry"].is_null(), "{kernel:#}");
    for finding in report["advice"]["findings"].as_array().unwrap() {
        assert!(!finding.to_string().contains("block"), "{finding:#}");
    }
    let said = text(&output(&mut sandbox.apex(&["report", "bare.json"]), 0).stdout);
    assert!(said.contains("<<<?, ?>>>"), "{said}");
    let rows = sandbox.apex(&["export", "--format", "json", "--what", "kernels", "bare.json"]);
    let rows = text(&output(&mut { rows }, 0).stdout);
    assert!(rows.contains("\"grid_x\":null") && !rows.contains("\"block_y\":0"), "{rows}");

    let calls_gone = bare.replace("cuda_runtime", "cpu_op");
    std::fs::write(sandbox.path("alone.json"), format!("{h100}{calls_gone}}}")).unwrap();
    let report = sandbox.json(&["report", "--json", "alone.json"]);
    let idle = &report["profile"]["activities"][0]["accounts"]["idle"];
    assert!(idle["unrecorded"]["value"].as_f64() > Some(0.0) && idle["host_code"].is_null(), "{idle:#}");
    let out = output(&mut sandbox.apex(&["report", "alone.json"]), 0);
    let said = text(&out.stdout).replace("\n  ", " ");
    assert!(said.contains("the reason was not recorded"), "{said}");
    assert!(said.contains("idle: cause unknown") && !said.contains("host code"), "{said}");
    assert!(!said.contains("launch calls") && !said.contains("synchronisation"), "nothing is fine: {said}");
    assert!(text(&out.stderr).contains("why the GPU is idle cannot be told"));
}

#[test]
fn a_folder_whose_only_trace_is_cut_says_so() {
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.path("log")).unwrap();
    std::fs::write(sandbox.path("log/rank1.json"), &TRACE[..60]).unwrap();
    for command in [&["report", "log"][..], &["import", "log"]] {
        let said = text(&output(&mut sandbox.apex(command), 125).stderr).replace("\n  ", " ");
        assert!(said.contains("rank1.json") && said.contains("ends in the middle"), "{said}");
        assert!(!said.contains("apex run"), "{said}");
    }
}

#[test]
fn ranks_have_the_numbers_of_their_files() {
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.path("log")).unwrap();
    for worker in [3, 10] {
        let path = sandbox.path(&format!("log/worker{worker}.pt.trace.json"));
        std::fs::write(path, TRACE).unwrap();
    }
    let report = sandbox.json(&["report", "--json", "log"]);
    let ranks = report["profile"]["processes"].as_array().unwrap().iter().map(|of| of["rank"].as_u64());
    assert_eq!(ranks.collect::<Vec<_>>(), [Some(3), Some(10)]);
}
