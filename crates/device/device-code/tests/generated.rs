//! The PTX that is checked in belongs to the CUDA C++ that is checked in.
//!
//! `generated/manifest.txt` says which sources each file was compiled from. One test compares its
//! hashes, which takes no compiler; the other compiles everything again.

use std::collections::BTreeSet;
use test_process::Command;

use apex_device_code::demo;
use test_manifest::{files, repository};

#[test]
fn the_ptx_belongs_to_the_sources() {
    let listed =
        test_manifest::check("crates/device/device-code/generated/manifest.txt", "scripts/device-code.sh");
    for folder in ["demo", "suite", "tensors"] {
        let sources = files(&format!("crates/device/device-code/{folder}"), ".cu");
        assert!(sources.is_subset(&listed.sources), "{sources:?} are compiled: {listed:?}");
        let present: BTreeSet<_> = ["ptx", "ptx.zst"]
            .iter()
            .flat_map(|ending| files(&format!("crates/device/device-code/generated/{folder}"), ending))
            .collect();
        assert!(present.is_subset(&listed.outputs), "{present:?} are generated: {listed:?}");
    }
}

#[test]
fn the_sources_compile_to_the_ptx() {
    let dependencies = repository().join("target/test-deps");
    let (nvcc, tools) = (dependencies.join("cuda13/bin/nvcc"), dependencies.join("device-code"));
    if !nvcc.exists() || !tools.exists() {
        return test_skip::missing_dependency("no nvcc or no NVRTC 12.0");
    }
    let output = Command::new(repository().join("scripts/device-code.sh"))
        .arg("--check")
        .env("NVCC", nvcc)
        .env("DEVICE_CODE_TOOLS", tools)
        .output()
        .expect("bash is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_bundled_programs_run_with_any_driver_since_cuda_12_0_and_name_their_lines() {
    let programs = [
        ("bad", demo::BAD),
        ("histogram", demo::HISTOGRAM),
        ("matmul", demo::MATMUL),
        ("pipeline", demo::PIPELINE),
        ("reduce", demo::REDUCE),
        ("saxpy", demo::SAXPY),
        ("vector_add", demo::VECTOR_ADD),
    ];
    let sources = files("crates/device/device-code/demo", ".cu");
    assert_eq!(sources.len(), programs.len());
    for (name, ptx) in programs {
        assert!(ptx.starts_with(".version 8.0\n.target sm_75\n"), "{name}");
        assert!(
            ptx.ends_with(&format!("\t.file\t1 \"{name}.cu\"\n")),
            "{name}: sources are named without a folder"
        );
        let source = repository().join(format!("crates/device/device-code/demo/{name}.cu"));
        let kernels = std::fs::read_to_string(source).unwrap().matches("__global__").count();
        assert_eq!(ptx.matches(".visible .entry").count(), kernels, "{name}");
    }
}
