//! Exports of a recorded session. What is in them is tested in `export`; here, that the command
//! writes them.

use crate::common::{Sandbox, output, text};

#[test]
fn every_format_holds_every_launch() {
    let sandbox = Sandbox::new();
    sandbox.recorded(&["--timing", "all"], &["launch", "60", "launch", "60", "threads", "3", "50"]);
    let csv = text(&output(&mut sandbox.apex(&["export", "--format", "csv"]), 0).stdout);
    assert_eq!(csv.lines().count(), 271);
    let json = sandbox.json(&["export", "--format", "json", "--what", "launches"]);
    assert_eq!(json["schema"], "apex.export/1");
    assert_eq!(json["launches"].as_array().unwrap().len(), 270);
    let timed =
        json["launches"].as_array().unwrap().iter().filter(|launch| launch["gpu_ns"].is_u64()).count();
    assert_eq!(timed, 269, "all but the very first, which may load code");
    let kernels = sandbox.json(&["export", "-f", "json", "--what", "kernels", "s"]);
    assert_eq!(kernels["kernels"][0]["launches"], 270);
    assert!(sandbox.json(&["export", "-f", "json"])["launches"].is_null(), "rows only where asked for");
    output(&mut sandbox.apex(&["export", "-f", "parquet", "-o", "out.parquet"]), 0);
    let parquet = std::fs::read(sandbox.path("out.parquet")).unwrap();
    assert!(parquet.starts_with(b"PAR1") && parquet.ends_with(b"PAR1"));
    output(&mut sandbox.apex(&["export", "-f", "perfetto", "-o", "out.pftrace"]), 0);
    assert!(std::fs::metadata(sandbox.path("out.pftrace")).unwrap().len() > 270 * 20);
    let calls = text(&output(&mut sandbox.apex(&["export", "-f", "csv", "--what", "calls"]), 0).stdout);
    assert!(calls.contains("cuModuleLoadData") && calls.contains("cuCtxSynchronize"));
}

#[test]
fn windows_and_meaningless_combinations() {
    let sandbox = Sandbox::new();
    sandbox.recorded(&[], &["launch", "50"]);
    let rows = |window| {
        let csv = text(&output(&mut sandbox.apex(&["export", "-f", "csv", "--window", window]), 0).stdout);
        csv.lines().count() - 1
    };
    assert_eq!((rows("0.."), rows("1000s..2000s")), (50, 0));
    for arguments in [
        &["export", "-f", "perfetto", "--what", "calls", "-o", "x"][..],
        &["export", "-f", "csv", "--what", "kernels", "--window", "0..1"],
        &["export", "-f", "json", "--window", "0..1"],
    ] {
        let message = text(&output(&mut sandbox.apex(arguments), 125).stderr);
        assert!(message.contains("does not apply"), "{message}");
    }
    assert!(!sandbox.path("x").exists());
}

#[test]
fn a_reader_that_stops_early_is_no_error() {
    let sandbox = Sandbox::new();
    sandbox.recorded(&["--quiet", "--timing", "off"], &["launch", "20000"]);
    let script = format!("set -o pipefail; {} export -f csv s | head -n 1", crate::common::APEX);
    let output = output(sandbox.command("bash").args(["-c", &script]), 0);
    assert!(text(&output.stdout).starts_with("process,thread,start_ns"));
    assert_eq!(text(&output.stderr), "");
}
