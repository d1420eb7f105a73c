//! The Python package: its own tests, with the command that was built.

use crate::common::{APEX, Sandbox, output, text};
use std::path::Path;

#[test]
fn the_tests_of_the_python_package_pass() {
    let sandbox = Sandbox::new();
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python/tests");
    let mut python = sandbox.command("python3");
    python.args(["-B", "-m", "unittest", "discover", "--verbose", "-s"]).arg(tests);
    let before = std::env::var_os("PATH").unwrap_or_default();
    let folders = Path::new(APEX).parent().into_iter().map(Path::to_path_buf);
    let folders = std::env::join_paths(folders.chain(std::env::split_paths(&before))).unwrap();
    python.env("PATH", folders);
    if sandbox.command("python3").arg("--version").output().is_err() {
        return test_skip::missing_dependency("no python3");
    }
    let said = text(&output(&mut python, 0).stderr);
    assert!(said.contains("OK"), "{said}");
    let skipped = |reason: &str| said.contains(&format!("skipped '{reason}'"));
    if skipped("no pyarrow") {
        test_skip::missing_dependency("no pyarrow: the tests of tables did not run");
    }
    for (reason, package) in
        [("no IPython", "ipython"), ("no tensorboardX", "tensorboardX"), ("no pytest", "pytest")]
    {
        if skipped(reason) {
            test_skip::missing_dependency(format!("{reason}: `pip install {package}`"));
        }
    }
    // Their dependencies take from 100 MB to 5 GB.
    for package in ["MLflow", "Weights & Biases", "Keras", "transformers", "Lightning"] {
        if skipped(&format!("no {package}")) {
            test_skip::impossible_here(format!("no {package}: the test with it did not run"));
        }
    }
    if skipped("no PyTorch") {
        // With CUDA's libraries, which its wheel links, it has 5 GB.
        test_skip::impossible_here("no PyTorch: the tests of its operators did not run");
    }
}
