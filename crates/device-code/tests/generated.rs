//! The PTX that is checked in belongs to the CUDA C++ that is checked in.
//!
//! `generated/manifest.txt` says which sources each file was compiled from. One test compares its
//! hashes, which takes no compiler; the other compiles everything again.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use apex_device_code::{Module, demo, suite, tensors};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// SHA-256 in hexadecimal, by the program of coreutils.
fn sha256(bytes: &[u8]) -> String {
    let mut child = Command::new("sha256sum")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("coreutils has sha256sum");
    child.stdin.take().unwrap().write_all(bytes).unwrap();
    let output = child.wait_with_output().unwrap();
    String::from_utf8(output.stdout).unwrap().split_whitespace().next().unwrap().to_owned()
}

/// The bytes of a file of the repository, decompressed.
fn read(path: &str) -> Vec<u8> {
    let bytes = std::fs::read(repository().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    if !path.ends_with(".zst") {
        return bytes;
    }
    let linked = suite::MODULES.iter().chain([
        &suite::FILL,
        &tensors::F32,
        &tensors::F16,
        &tensors::BF16,
        &tensors::I32,
    ]);
    let name = |module: &&Module| path.ends_with(&format!("/{}.ptx.zst", module.name()));
    let found: Vec<_> = linked.filter(name).collect();
    let [module] = found[..] else { panic!("{path} is one module of the crate") };
    module.ptx().as_bytes().to_vec()
}

/// The files of a folder with this ending.
fn files(folder: &str, ending: &str) -> BTreeSet<String> {
    let entries = std::fs::read_dir(repository().join(folder)).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(ending)).map(|name| format!("{folder}/{name}")).collect()
}

#[test]
fn the_ptx_belongs_to_the_sources() {
    let manifest = read("crates/device-code/generated/manifest.txt");
    let manifest = String::from_utf8(manifest).unwrap();
    let mut sources = BTreeSet::new();
    let mut outputs = BTreeSet::new();
    for line in manifest.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let [output, hash, source, _compiler, _flags, inputs @ ..] = &fields[..] else {
            panic!("a line has output, hash, source, compiler, flags, hashes of the inputs: {line}");
        };
        assert_eq!(sha256(&read(output)), *hash, "{output} is not what scripts/device-code.sh wrote");
        let (folder, _) = source.rsplit_once('/').unwrap();
        let inputs_now: Vec<String> = [(*source).to_owned()]
            .into_iter()
            .chain(files(folder, ".cuh"))
            .map(|path| sha256(&read(&path)))
            .collect();
        assert_eq!(
            inputs_now, inputs,
            "{output} was compiled from other sources: run scripts/device-code.sh"
        );
        sources.insert((*source).to_owned());
        outputs.insert((*output).to_owned());
    }
    for folder in ["demo", "suite", "tensors"] {
        let expected = files(&format!("crates/device-code/{folder}"), ".cu");
        assert!(expected.is_subset(&sources), "{expected:?} are compiled; the manifest has {sources:?}");
        let present: BTreeSet<_> = ["ptx", "ptx.zst"]
            .iter()
            .flat_map(|ending| files(&format!("crates/device-code/generated/{folder}"), ending))
            .collect();
        assert!(present.is_subset(&outputs), "{present:?} are generated; the manifest has {outputs:?}");
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
    let sources = files("crates/device-code/demo", ".cu");
    assert_eq!(sources.len(), programs.len());
    for (name, ptx) in programs {
        assert!(ptx.starts_with(".version 8.0\n.target sm_75\n"), "{name}");
        assert!(
            ptx.ends_with(&format!("\t.file\t1 \"{name}.cu\"\n")),
            "{name}: sources are named without a folder"
        );
        let source = read(&format!("crates/device-code/demo/{name}.cu"));
        let kernels = String::from_utf8(source).unwrap().matches("__global__").count();
        assert_eq!(ptx.matches(".visible .entry").count(), kernels, "{name}");
    }
}
