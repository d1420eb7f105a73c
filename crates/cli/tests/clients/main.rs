//! Real CUDA clients, unmodified, on the CPU device: alone, where it is the `libcuda.so.1` that
//! they find, and under `apex run --device cpu`, where the launches that were recorded are the
//! launches that they made.
//!
//! `programs` are built by nvcc against NVIDIA's own runtime, `python` has CuPy and NVIDIA's
//! bindings, `rust` cudarc. Compilers and packages come from `scripts/test-deps.sh`; what is not
//! there is skipped, and said.

#[allow(dead_code, reason = "each test target uses a part of what the two share")]
#[path = "../e2e/common.rs"]
mod common;
mod deps;
mod programs;
mod python;
mod rust;

use common::{Sandbox, cpu_device, output, text};
use test_process::Command;

/// Runs a client alone and under `apex run`, and checks its last line, which gives the number of
/// launched kernels: as many must have been recorded, counted over the kernels for which `counts`
/// returns true.
///
/// `environment` is set in both runs.
fn check(sandbox: &Sandbox, command: &[&str], environment: &[(&str, &str)], counts: impl Fn(&str) -> bool) {
    let libraries = sandbox.path("libraries");
    std::fs::create_dir_all(&libraries).unwrap();
    let _ = std::os::unix::fs::symlink(cpu_device(), libraries.join("libcuda.so.1"));
    // The client's own libraries first: a shared libcudart, say.
    let own = environment.iter().find(|(name, _)| *name == "LD_LIBRARY_PATH").map_or("", |(_, path)| path);
    let path = format!("{}:{own}", libraries.display());

    let mut alone = sandbox.command(command[0]);
    set(alone.args(&command[1..]), environment).env("LD_LIBRARY_PATH", path);
    let alone = text(&output(&mut alone, 0).stdout);

    let mut recorded = sandbox.apex(&["run", "--device", "cpu", "-o", "s", "--"]);
    set(recorded.args(command), environment);
    let recorded = text(&output(&mut recorded, 0).stdout);
    assert_eq!(recorded, alone, "{command:?}");

    let said =
        launches_said(&alone).unwrap_or_else(|| panic!("{command:?} does not say what it launched: {alone}"));
    let report = sandbox.json(&["report", "s", "--json"]);
    let kernels = report["profile"]["kernels"].as_array().unwrap();
    let counted: u64 = kernels
        .iter()
        .filter(|kernel| counts(kernel["name"].as_str().unwrap_or_default()))
        .map(|kernel| &kernel["launches"])
        .map(|launches| launches["calls"].as_u64().unwrap() + launches["by_graphs"].as_u64().unwrap())
        .sum();
    assert_eq!(counted, said, "{command:?}: {kernels:#?}");
    std::fs::remove_dir_all(sandbox.path("s")).unwrap();
}

fn set<'c>(command: &'c mut Command, environment: &[(&str, &str)]) -> &'c mut Command {
    command.envs(environment.iter().copied())
}

/// The number before `kernels launched`.
fn launches_said(output: &str) -> Option<u64> {
    let words: Vec<&str> = output.lines().last()?.split_whitespace().collect();
    let at = words.windows(2).position(|pair| pair == ["kernels", "launched"])?;
    words[at.checked_sub(1)?].parse().ok()
}
