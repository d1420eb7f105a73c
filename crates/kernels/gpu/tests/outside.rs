//! A project outside of this workspace adds the crate as `cargo add` does, builds, and runs on the
//! CPU device, which nobody points it to.

use std::path::Path;
use std::process::Output;
use test_process::Command;

/// Cargo without network, as this workspace's own crates were built, and a quick build.
fn cargo(folder: &Path, arguments: &[&str]) -> Output {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("outside");
    let mut command = Command::new(env!("CARGO"));
    for variable in ["APEX_CPU_DEVICE", "APEX_DEVICE", "LD_LIBRARY_PATH", "RUSTFLAGS", "CARGO_TARGET_DIR"] {
        command.env_remove(variable);
    }
    command.args(arguments).arg("--offline").current_dir(folder).env("CARGO_TARGET_DIR", target);
    command.env("CUDA_VISIBLE_DEVICES", "").env("CARGO_PROFILE_DEV_DEBUG", "0");
    command.limit(test_process::BUILD_LIMIT);
    command.output().expect("cargo runs: it runs this test")
}

#[test]
fn a_project_outside_of_the_workspace_runs_ten_features_on_the_cpu_device() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = tempfile::tempdir().unwrap();
    let project = root.path().join("stranger");
    let done = |output: Output| {
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{text}");
    };
    done(cargo(root.path(), &["new", "--vcs=none", "stranger"]));
    done(cargo(&project, &["add", "--path", own.to_str().unwrap()]));
    // The same versions as here: others may not be on this machine.
    std::fs::copy(own.join("../../../Cargo.lock"), project.join("Cargo.lock")).unwrap();
    for (from, to) in [("outside/program.rs", "main.rs"), ("kernels.ptx", "kernels.ptx")] {
        std::fs::copy(own.join("tests").join(from), project.join("src").join(to)).unwrap();
    }
    done(cargo(&project, &["build", "--quiet"]));

    let output = cargo(&project, &["run", "--quiet"]);
    let (said, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let expected = "\
device: true
debug: Buffer<f32>(1000000 elements, 4000000 bytes, on APEX CPU device (sm_80) (device 0))
two dimensions: [196613, 196614]
constants: [1.0, 2.0, 3.0, 4.0], [8]
types: argument 1 of kernel `saxpy` is f32, but the parameter is an integer (`.u32` in PTX)
streams: [10.0, 20.0, 30.0, 40.0]
pinned: [10.0, 20.0, 30.0, 40.0]
tensors: [17.0, 25.0, 33.0, 49.0]
shapes: add: [2, 2] and [3] do not repeat to a common shape
graphs: 80
compiler: [4]
";
    assert_eq!(said, expected, "{told}");
    assert_eq!(output.status.code(), Some(1), "{told}");
    let error = told.split("\nError: ").nth(1).expect("`main` ends with an error");
    assert!(error.starts_with("cuCtxSynchronize on APEX CPU device (sm_80) (device 0) reports"), "{told}");
    assert!(error.contains("in kernel oops\n") && error.contains("(PTX line 151)"), "{told}");
}
