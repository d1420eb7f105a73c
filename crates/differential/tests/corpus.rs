//! The CPU device computes what the H200 computed, but for what is known and explained.

use std::path::PathBuf;
use std::process::Command;

/// The CPU device's library, which cargo has built beside this test.
fn cpu_device() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let library = tests.with_file_name("libapex_cpu_device.so");
    assert!(library.exists(), "{} is missing", library.display());
    library
}

fn corpus() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/differential-h200"))
}

fn differential(command: &str, arguments: &[&str]) -> (bool, String) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_differential"));
    program.arg(command).args(arguments).arg("--driver").arg(cpu_device()).arg("--corpus").arg(corpus());
    let output = program.output().unwrap();
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (output.status.success(), said.concat())
}

#[test]
fn the_cpu_device_agrees_with_the_recorded_h200() {
    let (agrees, said) = differential("check", &["--brief"]);
    let unexplained: Vec<&str> =
        said.lines().filter(|line| line.contains("NOT EXPLAINED")).take(20).collect();
    let total = said.lines().last().unwrap_or_default();
    assert!(agrees, "{}\n{total}", unexplained.join("\n"));
}

/// The comparison can fail: a known difference, looked at without the list, is one.
#[test]
fn a_difference_is_shown_with_its_program_and_both_results() {
    let (ran, said) = differential("explain", &["slct.s32.s32"]);
    assert!(ran, "{said}");
    assert!(said.contains("slct.s32.s32 %r") && said.contains("constant of row 0"), "{said}");
    assert!(said.contains("recorded was"), "{said}");
}

#[test]
fn a_driver_that_is_none_is_an_error() {
    let mut program = Command::new(env!("CARGO_BIN_EXE_differential"));
    program.args(["check", "--driver", "/nowhere/libcuda.so.1", "--corpus"]).arg(corpus());
    let output = program.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("could not open the driver"), "{said}");
}
