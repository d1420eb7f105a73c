//! Programs of ours, each in one area of CUDA C++, built by nvcc against NVIDIA's runtime, versions
//! 12 and 13, static and shared. Each compares what the device computed with what the host
//! computes.

use crate::common::{Sandbox, output};
use crate::{check, deps};
use std::path::{Path, PathBuf};

/// The build of a program.
#[derive(Clone, Copy)]
struct Build {
    /// Folder of the toolkit.
    toolkit: &'static str,
    /// The linkage of the runtime: shared, or static as is nvcc's default.
    cudart: &'static str,
}

const STATIC_13: Build = Build { toolkit: "cuda13", cudart: "static" };
const SHARED_13: Build = Build { toolkit: "cuda13", cudart: "shared" };
const STATIC_12: Build = Build { toolkit: "cuda12", cudart: "static" };
const SHARED_12: Build = Build { toolkit: "cuda12", cudart: "shared" };

/// The builds of most programs: compiling takes longer than running.
const TWO: &[Build] = &[STATIC_13, SHARED_12];

/// Builds `sources` in each way of `builds`, and runs them.
fn run(sources: &[&str], flags: &[&str], builds: &[Build]) {
    run_counting(sources, flags, builds, |_| true);
}

/// The same, where only the launches of kernels that `counts` says yes to are the program's own.
fn run_counting(sources: &[&str], flags: &[&str], builds: &[Build], counts: impl Fn(&str) -> bool) {
    let sandbox = Sandbox::new();
    for build in builds {
        let Some(nvcc) = deps::find(sources[0], &format!("{}/bin/nvcc", build.toolkit)) else { return };
        let program = compile(&sandbox, &nvcc, sources, flags, build.cudart);
        let libraries = nvcc.with_file_name("../lib");
        let environment = [("LD_LIBRARY_PATH", libraries.to_str().unwrap())];
        check(&sandbox, &[program.to_str().unwrap()], &environment, &counts);
    }
}

/// The program. Its device code is PTX for compute capability 8.0, and nothing else.
fn compile(sandbox: &Sandbox, nvcc: &Path, sources: &[&str], flags: &[&str], cudart: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/cuda");
    let program = sandbox.path(sources[0].trim_end_matches(".cu"));
    let mut command = sandbox.command(nvcc);
    command.args(["-std=c++17", "-arch=compute_80", "-code=compute_80", "-cudart", cudart]);
    command.args(flags).arg("-o").arg(&program).args(sources.iter().map(|source| folder.join(source)));
    output(&mut command, 0);
    program
}

#[test]
fn streams_events_and_asynchronous_copies() {
    run(&["streams.cu"], &[], &[STATIC_13, SHARED_13, STATIC_12, SHARED_12]);
}

#[test]
fn the_default_stream_of_each_thread() {
    run(&["streams.cu"], &["-default-stream", "per-thread"], &[STATIC_13]);
}

#[test]
fn cooperative_groups() {
    run(&["cooperative.cu"], &[], TWO);
}

#[test]
fn shared_memory() {
    run(&["shared.cu"], &[], TWO);
}

#[test]
fn managed_memory() {
    run(&["managed.cu"], &[], TWO);
}

#[test]
fn graphs() {
    run(&["graphs.cu"], &[], TWO);
}

#[test]
fn atomics() {
    run(&["atomics.cu"], &[], TWO);
}

#[test]
fn printf_assert_and_malloc() {
    run(&["output.cu"], &[], TWO);
}

#[test]
fn templates_lambdas_and_virtual_functions() {
    run(&["templates.cu"], &["--extended-lambda"], TWO);
}

#[test]
fn separate_compilation() {
    run(&["separate.cu", "separate_part.cu"], &["-rdc=true"], TWO);
}

#[test]
fn constant_memory_and_symbols() {
    run(&["constant.cu"], &[], TWO);
}

#[test]
fn errors() {
    run(&["errors.cu"], &[], TWO);
}

#[test]
fn textures_and_surfaces() {
    run(&["textures.cu"], &[], TWO);
}

#[test]
fn halves_and_tensor_cores() {
    run(&["halves.cu"], &[], TWO);
}

#[test]
fn cub_thrust_and_the_standard_library() {
    run_counting(&["cccl.cu"], &[], &[STATIC_13], |kernel| kernel.starts_with("standard"));
}

#[test]
fn random_numbers_on_the_device() {
    let Some(headers) = deps::find_package("random.cu", "nvidia/cu13/include") else { return };
    run(&["random.cu"], &["-I", headers.to_str().unwrap()], &[STATIC_13]);
}

#[test]
fn code_for_debugging() {
    run(&["templates.cu"], &["--extended-lambda", "-G"], &[STATIC_13]);
}

#[test]
fn nvrtc_asked_for_machine_code() {
    const SOURCE: &str = "nvrtc.cu";
    for (toolkit, nvrtc, library) in
        [("cuda13", "nvidia/cu13", "libnvrtc.so.13"), ("cuda12", "nvidia/cuda_nvrtc", "libnvrtc.so.12")]
    {
        let Some(nvcc) = deps::find(SOURCE, &format!("{toolkit}/bin/nvcc")) else { return };
        let Some(nvrtc) = deps::find_package(SOURCE, nvrtc) else { return };
        let (include, folder) = (nvrtc.join("include"), nvrtc.join("lib"));
        let [include, folder] = [&include, &folder].map(|path| path.to_str().unwrap());
        let library = format!("-l:{library}");
        let sandbox = Sandbox::new();
        let flags = ["-I", include, "-L", folder, "-Xlinker", &library];
        let program = compile(&sandbox, &nvcc, &[SOURCE], &flags, "static");
        let program = program.to_str().unwrap();
        // Of the libraries that stand before NVRTC, `apex run` preloads its own.
        let recorded = sandbox
            .apex(&["run", "--device", "cpu", "-o", "s", "--", program])
            .env("LD_LIBRARY_PATH", folder)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&recorded.stdout);
        let problems = String::from_utf8_lossy(&recorded.stderr);
        assert!(recorded.status.success(), "{toolkit}: {said}{problems}");
        assert!(said.trim_end().ends_with(" 4 kernels launched"), "{toolkit}: {said}{problems}");
    }
}
