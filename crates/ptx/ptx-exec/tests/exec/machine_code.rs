//! The tests beside this one once more, with everything as machine code that can be.

use ptx_exec::Engine;
use test_process::Command;

#[test]
fn everything_passes_with_machine_code() {
    if Engine::of_environment() != Ok(Engine::Auto) {
        return;
    }
    let mut tests = Command::new(std::env::current_exe().unwrap());
    // What only watches or analyses has no machine code.
    let skipped = ["machine_code::", "analysis::", "counts::", "coverage::", "defects::"];
    tests.arg("--quiet").args(skipped.iter().flat_map(|module| ["--skip", module]));
    tests.env("APEX_CPU_ENGINE", Engine::Compiled.name());
    let output = tests.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
