//! Every bundled program computes the right thing on the CPU device, and says so when it does not.

use std::path::PathBuf;
use std::process::Output;
use test_process::Command;

/// The CPU device's library, which cargo has built beside this test. Preloaded, it is the
/// `libcuda.so.1` that a program finds, also where there is a GPU.
fn cpu_device() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let library = tests.with_file_name("libapex_cpu_device.so");
    assert!(library.exists(), "{} is missing", library.display());
    library
}

/// The example program, which cargo has built for this test.
fn demo_program() -> Command {
    let tests = std::env::current_exe().unwrap();
    let program = tests.parent().and_then(|deps| deps.parent()).unwrap().join("examples/demo_program");
    assert!(program.exists(), "{} is missing", program.display());
    Command::new(program)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn assert_success(output: &Output) {
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

#[test]
fn all_programs_are_right() {
    for program in apex_demo::PROGRAMS {
        let output = demo_program().env("LD_PRELOAD", cpu_device()).arg(program.name).output().unwrap();
        assert_success(&output);
        let said = text(&output.stdout);
        assert!(said.starts_with(&format!("{} on APEX CPU device", program.name)), "{said}");
        assert!(said.contains("values right"), "{said}");
    }
}

#[test]
fn results_are_the_same_every_time() {
    // Sums whose order is left to the device are not among these.
    for name in ["vector_add", "matmul", "histogram", "pipeline"] {
        let run = || text(&demo_program().env("LD_PRELOAD", cpu_device()).arg(name).output().unwrap().stdout);
        assert_eq!(run(), run());
    }
}

#[test]
fn the_fallback_is_used_where_there_is_no_driver_and_named_where_it_is_missing() {
    let missing = demo_program().args(["histogram", "/nowhere/libcuda.so.1"]).output().unwrap();
    if missing.status.success() {
        return; // There is a GPU: no fallback is asked for.
    }
    let said = text(&missing.stderr);
    assert!(said.contains("no CUDA driver") && said.contains("/nowhere/libcuda.so.1"), "{said}");
    assert_success(&demo_program().arg("histogram").arg(cpu_device()).output().unwrap());
}

#[test]
fn a_program_that_is_not_there_is_refused_with_those_that_are() {
    let output = demo_program().arg("fly").output().unwrap();
    assert!(!output.status.success());
    let said = text(&output.stderr);
    assert!(apex_demo::PROGRAMS.iter().all(|program| said.contains(program.name)), "{said}");
}
