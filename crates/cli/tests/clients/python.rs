//! Python packages that talk to the driver, from PyPI, in versions that `scripts/test-deps.sh`
//! pins.

use crate::common::{APEX, Sandbox, output};
use crate::{check, deps, set};
use std::path::Path;

/// Has `work` run a script of `tests/clients/python`, whose own kernels are those called
/// `client_…`: it is given the command and what to add to its environment.
fn with_script(script: &str, work: impl FnOnce(&Sandbox, &[&str], &[(&str, &str)])) {
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
    work(&sandbox, &command, &environment);
}

/// Runs a script alone and under `apex run`.
fn run(script: &str) {
    with_script(script, |sandbox, command, environment| {
        check(sandbox, command, environment, |kernel| kernel.contains("client_"));
    });
}

#[test]
fn cupy() {
    run("cupy_client.py");
}

#[test]
fn ranges_of_cupy() {
    run("ranges_client.py");
    with_script("ranges_client.py", |sandbox, command, environment| {
        let mut recorded = sandbox.apex(&["run", "--device", "cpu", "-o", "s", "--"]);
        output(set(recorded.args(command), environment), 0);
        let json = sandbox.json(&["report", "s", "--json"]);
        let ranges = json["profile"]["ranges"].as_array().unwrap();
        for (name, parent, count, launches) in [
            ("process", None, 1, 10),
            ("outer", None, 1, 10),
            ("inner", Some("outer"), 2, 8),
            ("décoré", Some("inner"), 2, 6),
        ] {
            let range = ranges.iter().find(|range| range["name"] == name && range["count"] == count);
            let range = range.unwrap_or_else(|| panic!("{name} is not among {ranges:#?}"));
            assert_eq!(range["launches"], launches, "{range:#?}");
            let around =
                range["parent"].as_u64().map(|parent| ranges[parent as usize]["name"].as_str().unwrap());
            assert_eq!(around, parent, "{name}");
        }
    });
}

/// The module `apex_cuda.kernels`, with the library that was built: all kernels that are launched
/// are its.
#[test]
fn kernels_of_apex_on_arrays_of_cupy() {
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python");
    let libraries = Path::new(APEX).with_file_name("deps");
    with_script("kernels_client.py", |sandbox, command, environment| {
        let of_module = [
            ("PYTHONPATH", module.to_str().unwrap()),
            ("PYTHONDONTWRITEBYTECODE", "1"),
            ("APEX_LIB_DIR", libraries.to_str().unwrap()),
        ];
        check(sandbox, command, &[environment, &of_module].concat(), |_| true);
    });
}

#[test]
fn bindings_of_nvidia() {
    run("bindings_client.py");
}
