//! CUDA C++ compiled at run time, and the cache of what was compiled. Needs NVRTC
//! (`pip install nvidia-cuda-nvrtc`); says so where there is none.

mod common;

use apex_gpu::{CacheFolder, Cached, Error, Module, Source};
use common::device;
use std::fs;
use std::path::Path;
use test_process::Command;

const CODE: &str = r#"
template <typename T, int N> __global__ void powers(T* x, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    T power = 1;
    for (int k = 0; k < N; k++) power *= x[i];
    x[i] = power;
}
namespace inner { __global__ void nothing() {} }
extern "C" __global__ void plain(int* x) { x[threadIdx.x] += 1; }
"#;

/// Whether tests of this file can run.
fn has_compiler() -> bool {
    if let Err(why) = Module::can_compile() {
        test_skip::missing_dependency(why);
        return false;
    }
    true
}

fn source(folder: &Path) -> Source {
    let source = Source::new(CODE).name("powers.cu").cache(CacheFolder::In(folder.to_path_buf()));
    source.instance("powers<int, 3>").instance("powers<double, 2>").instance("inner::nothing")
}

/// Compiles, runs one instance, and tells where the code came from.
fn cube(folder: &Path) -> Cached {
    let device = device();
    let module = device.compile(&source(folder)).unwrap();
    let values: Vec<i32> = (-500..500).collect();
    let mut buffer = device.upload(&values).unwrap();
    let kernel = module.kernel("powers<int, 3>").unwrap();
    // SAFETY: the kernel is told how many elements there are.
    unsafe { kernel.over(1000).arg(&mut buffer).arg(1000u32).launch() }.unwrap();
    let cubes: Vec<i32> = values.iter().map(|value| value.pow(3)).collect();
    assert_eq!(buffer.to_vec().unwrap(), cubes);
    module.cached().clone()
}

#[test]
fn templates_namespaces_and_plain_kernels_are_found() {
    if !has_compiler() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let module = device().compile(&source(folder.path())).unwrap();
    for name in ["powers<int, 3>", "powers<double, 2>", "inner::nothing", "plain"] {
        module.kernel(name).unwrap();
    }
    let error = module.kernel("powers<int, 4>").unwrap_err().to_string();
    assert!(error.contains("`inner::nothing`, ") || error.contains("`plain`, "), "{error}");
    assert!(error.contains("`powers<int, 3>`"), "{error}");
}

#[test]
fn the_second_time_nothing_is_compiled() {
    if !has_compiler() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(cube(folder.path()), Cached::Stored);
    assert_eq!(cube(folder.path()), Cached::Hit);
    let other = source(folder.path()).option("-DUNUSED");
    assert_eq!(*device().compile(&other).unwrap().cached(), Cached::Stored, "other options");
    let off = source(folder.path()).cache(CacheFolder::Off);
    assert_eq!(*device().compile(&off).unwrap().cached(), Cached::Off);
}

#[test]
fn a_torn_file_is_compiled_anew() {
    if !has_compiler() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    cube(folder.path());
    let file = fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    let whole = fs::read(&file).unwrap();
    for damage in [&whole[..whole.len() / 2], &[], b"something else altogether"] {
        fs::write(&file, damage).unwrap();
        assert_eq!(cube(folder.path()), Cached::Stored);
        assert_eq!(fs::read(&file).unwrap(), whole);
    }
}

#[test]
fn a_folder_that_cannot_be_written_costs_nothing_but_time() {
    if !has_compiler() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "in the way").unwrap();
    let cached = cube(&file);
    assert!(matches!(&cached, Cached::NotStored(why) if why.contains("file")), "{cached:?}");
}

#[test]
fn on_a_full_disk_code_is_compiled_and_not_kept() {
    if !has_compiler() {
        return;
    }
    if let Some(folder) = std::env::var_os("GPU_TEST_FULL_DISK") {
        on_a_full_disk(Path::new(&folder));
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // A file system of one's own takes a name space, or to be root.
    let prefixes: [&[&str]; 2] =
        [&["unshare", "--user", "--map-root-user", "--mount"], &["unshare", "--mount"]];
    let run = |prefix: &[&str], command: &Path, arguments: &[&str]| {
        let mut child = Command::new(prefix[0]);
        child.args(&prefix[1..]).arg(command).args(arguments).env("GPU_TEST_FULL_DISK", folder.path());
        child.output().is_ok_and(|output| output.status.success())
    };
    let mount = ["-t", "tmpfs", "apex-test", folder.path().to_str().unwrap()];
    let Some(prefix) = prefixes.iter().find(|prefix| run(prefix, Path::new("mount"), &mount)) else {
        test_skip::impossible_here("a small file system needs user name spaces or root");
        return;
    };
    let this = std::env::current_exe().unwrap();
    assert!(run(prefix, &this, &["on_a_full_disk_code_is_compiled_and_not_kept", "--exact"]));
}

/// In a name space of its own.
fn on_a_full_disk(folder: &Path) {
    let mount = ["-t", "tmpfs", "-o", "size=16k", "apex-test"];
    assert!(Command::new("mount").args(mount).arg(folder).status().unwrap().success());
    fs::write(folder.join("rest"), [1; 16 << 10]).unwrap();
    let cached = cube(folder);
    assert!(matches!(&cached, Cached::NotStored(why) if why.contains("No space left")), "{cached:?}");
    assert_eq!(fs::read_dir(folder).unwrap().count(), 1, "no unfinished files");
}

#[test]
fn processes_share_a_folder() {
    if !has_compiler() {
        return;
    }
    if let Some(folder) = std::env::var_os("GPU_TEST_FOLDER") {
        cube(Path::new(&folder));
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let start = || {
        Command::new(std::env::current_exe().unwrap())
            .args(["processes_share_a_folder", "--exact"])
            .env("GPU_TEST_FOLDER", folder.path())
            .spawn()
            .unwrap()
    };
    for mut child in [start(), start(), start()] {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "one outcome, no unfinished files");
    assert_eq!(cube(folder.path()), Cached::Hit);
}

#[test]
fn headers_are_found_and_their_changes_noticed() {
    if !has_compiler() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    fs::write(folder.path().join("by.h"), "#define BY 3\n").unwrap();
    let source = Source::new("#include \"by.h\"\nextern \"C\" __global__ void by(int* x) { *x *= BY; }")
        .include(folder.path())
        .cache(CacheFolder::In(cache));
    let device = device();
    let run = || {
        let module = device.compile(&source).unwrap();
        let mut buffer = device.upload(&[5i32]).unwrap();
        // SAFETY: one thread, one element.
        unsafe { module.kernel("by").unwrap().launch([1, 1, 1], [1, 1, 1]).arg(&mut buffer).launch() }
            .unwrap();
        (buffer.to_vec().unwrap()[0], module.cached().clone())
    };
    assert_eq!(run(), (15, Cached::Stored));
    assert_eq!(run(), (15, Cached::Hit));
    fs::write(folder.path().join("by.h"), "#define BY 4\n").unwrap();
    assert_eq!(run(), (20, Cached::Stored));
}

#[test]
fn what_does_not_compile_is_told_with_the_line() {
    if !has_compiler() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let wrong = Source::new("extern \"C\" __global__ void k() {\n  undeclared = 1;\n}").name("wrong.cu");
    let error = device().compile(&wrong.cache(CacheFolder::In(folder.path().to_path_buf()))).unwrap_err();
    let Error::Compile { name, log, .. } = &error else { panic!("{error}") };
    assert_eq!(name, "wrong.cu");
    assert!(log.contains("wrong.cu(2)") && log.contains("undeclared"), "{log}");
    assert!(!folder.path().join("x").exists() && fs::read_dir(folder.path()).unwrap().count() == 0);
    assert!(matches!(device().compile(&Source::new("nul \0")), Err(Error::Compile { .. })));
    assert!(matches!(
        device().compile(&source(folder.path()).option("--no-such-option")),
        Err(Error::Compile { .. })
    ));
    assert!(matches!(
        device().compile(&source(folder.path()).architecture("sm_1")),
        Err(Error::Compile { .. })
    ));
}
