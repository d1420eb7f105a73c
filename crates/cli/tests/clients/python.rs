//! Python packages that talk to the driver, from PyPI, in versions that `scripts/test-deps.sh`
//! pins.

use crate::common::Sandbox;
use crate::{check, deps};
use std::path::Path;

/// Runs a script of `tests/clients/python`; its own kernels are those called `client_…`.
fn run(script: &str) {
    let Some(python) = deps::find(script, "python/bin/python") else { return };
    let Some(nvcc) = deps::find(script, "cuda13/bin/nvcc") else { return };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/python").join(script);
    let toolkit = nvcc.parent().unwrap().parent().unwrap();
    let sandbox = Sandbox::new();
    let cache = sandbox.path("cache");
    let environment = [
        ("CUDA_PATH", toolkit.to_str().unwrap()),
        ("CUPY_CACHE_DIR", cache.to_str().unwrap()),
        // Else CuPy compiles to machine code, which the CPU device cannot execute.
        ("CUPY_COMPILE_WITH_PTX", "1"),
    ];
    let command = [python.to_str().unwrap(), script.to_str().unwrap()];
    check(&sandbox, &command, &environment, |kernel| kernel.contains("client_"));
}

#[test]
fn cupy() {
    run("cupy_client.py");
}

#[test]
fn bindings_of_nvidia() {
    run("bindings_client.py");
}
