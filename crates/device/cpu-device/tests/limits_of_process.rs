//! Resources that a program names and the process does not have: files that do not exist, and
//! memory.

mod common;

use common::{Context, cu, image, ok};
use cuda_abi::types::*;
use std::ffi::{CString, c_void};
use std::path::Path;
use test_process::Command;

const NONE: *mut c_void = std::ptr::null_mut();

/// The results of the calls that load a file.
fn load(path: &Path) -> [CUresult; 3] {
    let path = CString::new(path.to_str().unwrap()).unwrap();
    let (mut module, mut library, mut state) = (NONE.cast(), NONE.cast(), NONE.cast());
    ok!(cuLinkCreate_v2(0, NONE.cast(), NONE.cast(), &mut state));
    let kind = CU_JIT_INPUT_PTX;
    let results = [
        cu!(cuModuleLoad(&mut module, path.as_ptr())),
        cu!(cuLibraryLoadFromFile(
            &mut library,
            path.as_ptr(),
            NONE.cast(),
            NONE.cast(),
            0,
            NONE.cast(),
            NONE.cast(),
            0
        )),
        cu!(cuLinkAddFile_v2(state, kind, path.as_ptr(), 0, NONE.cast(), NONE.cast())),
    ];
    ok!(cuLinkDestroy(state));
    results
}

#[test]
fn only_regular_files_are_loaded() {
    let _context = Context::new();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    std::fs::write(file("kernels.ptx"), image().as_bytes()).unwrap();
    assert_eq!(load(&file("kernels.ptx")), [CUDA_SUCCESS; 3]);
    assert_eq!(load(&file("missing")), [CUDA_ERROR_FILE_NOT_FOUND; 3]);
    let fifo = CString::new(file("fifo").to_str().unwrap()).unwrap();
    // SAFETY: the path is a string.
    assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
    std::fs::File::create(file("huge")).unwrap().set_len(1 << 40).unwrap();
    for path in [&file("fifo"), &file("huge"), folder.path(), Path::new("/dev/zero")] {
        assert_eq!(load(path), [CUDA_ERROR_OPERATING_SYSTEM; 3], "{path:?}");
    }
}

/// Set where a child process runs, to the bytes that it leaves itself.
const LEFT: &str = "BYTES_LEFT";

/// Limits the process to `bytes` of address space beyond what it has.
fn limit(bytes: u64) {
    let pages: u64 =
        std::fs::read_to_string("/proc/self/statm").unwrap().split(' ').next().unwrap().parse().unwrap();
    let limit = libc::rlimit { rlim_cur: pages * 4096 + bytes, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the structure is initialised.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
}

#[test]
fn child() {
    let Ok(left) = std::env::var(LEFT) else { return };
    let _context = Context::new();
    let (image, mut module) = (image(), NONE.cast());
    limit(left.parse().unwrap());
    let code = cu!(cuModuleLoadData(&mut module, image.as_ptr().cast()));
    limit(1 << 40);
    println!("loading: {code}");
}

#[test]
fn a_module_that_does_not_fit_into_the_address_space_is_an_error() {
    for left in [0, 64 << 10, 400_000, 1 << 20, 2 << 20, 4 << 20] {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--nocapture"])
            .env(LEFT, left.to_string())
            .output()
            .unwrap();
        let [told, errors] = [&child.stdout, &child.stderr].map(|text| String::from_utf8_lossy(text));
        assert!(told.contains(&format!("loading: {CUDA_ERROR_OUT_OF_MEMORY}\n")), "{left}: {told}{errors}");
        assert!(errors.contains("no address space left to compile"), "{left}: {errors}");
    }
}
