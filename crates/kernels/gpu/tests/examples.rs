//! The examples run on the GPU or the CPU device, and each checks its own results.

use std::path::PathBuf;
use test_process::Command;

/// The example's binary, which cargo builds beside the tests.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folders = test.ancestors().skip(1).take(2);
    let found = folders.flat_map(|folder| [folder.join("examples").join(name), folder.join(name)]);
    found
        .into_iter()
        .find(|path| path.is_file())
        .unwrap_or_else(|| panic!("no example {name} near {}", test.display()))
}

#[track_caller]
fn run(name: &str, needs_compiler: bool) {
    if needs_compiler && let Err(why) = apex_gpu::Module::can_compile() {
        test_skip::missing_dependency(format!("{name}: {why}"));
        return;
    }
    let cache = tempfile::tempdir().unwrap();
    let output = Command::new(example(name)).env("APEX_CACHE_DIR", cache.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    println!("{text}");
    assert!(output.status.success(), "{name} fails");
}

#[test]
fn vector_add() {
    run("vector_add", true);
}

#[test]
fn matrix_product() {
    run("matrix_product", false);
}

#[test]
fn streams() {
    run("streams", true);
}

#[test]
fn origins() {
    run("origins", true);
}

#[test]
fn classifier() {
    run("classifier", false);
}

#[test]
fn blur() {
    run("blur", true);
}

#[test]
fn weighted_sum() {
    run("weighted_sum", true);
}

#[test]
fn training() {
    run("training", false);
}

#[test]
fn schedule() {
    run("schedule", false);
}
