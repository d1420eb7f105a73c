//! cudarc, with NVRTC of CUDA 12 and 13: the program is `testing/cudarc-client`.

use crate::common::Sandbox;
use crate::{check, deps};

fn run(nvrtc: &str) {
    let client = test_build::program("cudarc-client");
    let Some(nvrtc) = deps::find_package("cudarc", nvrtc) else { return };
    let sandbox = Sandbox::new();
    // The name that a toolkit has for its newest version, and the packages have not.
    let linked = sandbox.path("nvrtc");
    std::fs::create_dir(&linked).unwrap();
    let library = std::fs::read_dir(&nvrtc).unwrap().map(|entry| entry.unwrap().path());
    let library = library.into_iter().find(|path| path.to_string_lossy().contains("libnvrtc.so")).unwrap();
    std::os::unix::fs::symlink(library, linked.join("libnvrtc.so")).unwrap();
    let path = format!("{}:{}", linked.display(), nvrtc.display());
    check(&sandbox, &[client.to_str().unwrap()], &[("LD_LIBRARY_PATH", &path)], |_| true);
}

#[test]
fn cudarc_with_nvrtc_13() {
    run("nvidia/cu13/lib");
}

#[test]
fn cudarc_with_nvrtc_12() {
    run("nvidia/cuda_nvrtc/lib");
}
