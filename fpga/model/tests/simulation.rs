//! The short simulation, where Icarus Verilog is installed: RTL of small tiles equals the model.

use std::path::Path;
use test_process::Command;

#[test]
fn small_tiles_equal_the_model_on_icarus() {
    if !Command::new("iverilog").arg("-V").output().is_ok_and(|output| output.status.success()) {
        test_skip::impossible_here("iverilog is not installed, so the RTL was not simulated: docs/fpga.md");
        return;
    }
    let work = tempfile::tempdir().expect("a folder");
    let check = Path::new(env!("CARGO_MANIFEST_DIR")).join("../check");
    let output = Command::new("python3")
        .arg("-B")
        .arg(check)
        .args(["--short", "--size", "4", "--dimension", "32", "--model", env!("CARGO_BIN_EXE_fpga-model")])
        .arg("--work")
        .arg(work.path())
        .output()
        .expect("python3 runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}
