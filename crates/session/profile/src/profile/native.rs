//! Frames of compiled code: the user's among them, and their places in the source.
//!
//! A program's stack goes through libraries that its user cannot change: CUDA's, PyTorch's, the
//! system's. Frames in files of these are not looked at. What is left is symbolized from the files
//! as they are now, if they still are what was recorded.

use super::stacks::Frame;
use apex_symbolization::{Build, Place, Symbols};
use apex_trace::definition::{Module, NativeFrame};
use std::collections::HashMap;
use std::path::Path;

/// Parts of paths of files and of sources that are installed or generated, and not the user's.
const LIBRARY_PATHS: [&str; 13] = [
    "/site-packages/",
    "/dist-packages/",
    "/lib/python3.",
    "/usr/local/cuda",
    "/.triton/",
    "/torchinductor_",
    "/.cargo/registry/",
    "/rustc/",
    "/include/c++/",
    "/targets/x86_64-linux/",
    "/rustlib/",
    "/thrust/",
    "/cub/",
];

/// The beginnings of paths of the system's files.
const SYSTEM_FOLDERS: [&str; 8] =
    ["/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/", "/usr/include/", "/usr/bin/", "/bin/", "/opt/nvidia/"];

/// The beginnings of names of libraries that may lie anywhere.
const LIBRARY_NAMES: [&str; 22] = [
    "libapex",
    "libcuda",
    "libcublas",
    "libcudnn",
    "libcufft",
    "libcupti",
    "libcurand",
    "libcusolver",
    "libcusparse",
    "libcutensor",
    "libnccl",
    "libnvrtc",
    "libnvidia",
    "libnvJitLink",
    "libnvToolsExt",
    "libtorch",
    "libc10",
    "libpython",
    "libstdc++",
    "libgcc_s",
    "libgomp",
    "python",
];

/// Symbols of CUDA's runtime where it is linked into the program, and of what the compiler generates
/// for a launch.
const RUNTIME_SYMBOLS: [&str; 6] =
    ["__cudart", "libcudart_static", "__device_stub__", "__wrapper__device_stub_", "__cuda", "_start"];

/// The beginnings of names of functions that are compiled into programs and not their own.
const CPP_LIBRARIES: [&str; 24] = [
    "std::",
    "__gnu_cxx::",
    "__cxa_",
    "operator new",
    "operator delete",
    "boost::",
    "Eigen::",
    "cv::",
    "fmt::",
    "spdlog::",
    "thrust::",
    "cub::",
    "cuda::",
    "absl::",
    "google::",
    "nlohmann::",
    "rapidjson::",
    "simdjson::",
    "YAML::",
    "tinyxml2::",
    "pugi::",
    "re2::",
    "arrow::",
    "tbb::",
];

/// Rust crates that launch for others, wherever their source lies: `apex-gpu` may be a path
/// dependency, and `cudarc` a vendored one.
const RUST_LIBRARIES: [&str; 2] = ["apex_gpu", "cudarc"];

/// Crates of Rust's own library, whose traits every crate implements.
const RUST_STANDARD: [&str; 3] = ["core", "alloc", "std"];

/// Whether a function's path says that it is a Rust library's: `apex_gpu::launch::Launch::launch`,
/// `<apex_gpu::Buffer<f32> as core::ops::Drop>::drop`. What the user's crate implements for types
/// of a library is the user's.
fn is_of_rust_library(function: &str) -> bool {
    let is_in = |path: &str, crates: &[&str]| {
        let path = path.trim_start_matches(['&', '<', '*', '(', '[']);
        let path = ["mut ", "const ", "dyn "].iter().fold(path, |path, word| path.trim_start_matches(word));
        path.split_once("::").is_some_and(|(root, _)| crates.contains(&root.trim_start_matches('<')))
    };
    let is_library = |path: &str| is_in(path, &RUST_LIBRARIES);
    // The trait of `<Type as Trait>::function`.
    match function.strip_prefix('<').and_then(|rest| rest.split_once(" as ")) {
        Some((of, interface)) => {
            is_library(of) && (is_library(interface) || is_in(interface, &RUST_STANDARD))
        }
        None => is_library(function),
    }
}

/// Whether a function's name says that it belongs to C++'s standard library, the compiler's
/// runtime, CUDA's runtime, or a library that is compiled into programs.
pub(super) fn is_function_of_library(function: &str) -> bool {
    let is_runtime = |prefix: &str| {
        let rest = function.strip_prefix(prefix);
        rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()))
    };
    CPP_LIBRARIES.iter().chain(&RUNTIME_SYMBOLS).any(|start| function.starts_with(start))
        || is_runtime("cuda")
        || is_of_rust_library(function)
}

fn is_of_library(path: &str) -> bool {
    SYSTEM_FOLDERS.iter().any(|folder| path.starts_with(folder))
        || LIBRARY_PATHS.iter().any(|part| path.contains(part))
}

/// Whether the file is an executable or library of the user's.
fn is_of_user(module: &Module) -> bool {
    is_file_of_user(&module.path)
}

/// Whether the executable or library at a path is the user's.
pub(super) fn is_file_of_user(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    path.starts_with('/')
        && !is_of_library(path)
        && !LIBRARY_NAMES.iter().any(|library| name.starts_with(library))
}

/// Whether the function is a part of CUDA's runtime that was linked into the program, the
/// compiler's own, a Rust library's that launches for others, or a source's that is installed.
fn is_of_runtime(place: &Place) -> bool {
    let symbol = place.symbol.as_deref().unwrap_or_default();
    let function = place.function.as_deref().unwrap_or_default();
    // `cudaLaunchKernel`, `cuLaunchKernel`: the user's own functions of such names have a file.
    let is_api = |prefix| {
        function
            .strip_prefix(prefix)
            .is_some_and(|rest: &str| rest.starts_with(|c: char| c.is_ascii_uppercase()))
    };
    RUNTIME_SYMBOLS.iter().any(|prefix| symbol.starts_with(prefix) || function.starts_with(prefix))
        || is_of_rust_library(function)
        || match &place.file {
            Some(file) => is_of_library(file),
            None => is_api("cuda") || is_api("cu"),
        }
}

/// Symbolizes frames, each once.
#[derive(Default)]
pub(super) struct Symbolizer {
    files: HashMap<Module, Option<Symbols>>,
}

impl Symbolizer {
    /// The user's functions that a frame is in, the innermost inlined one first; not the one that
    /// the compiler made of `kernel`, to launch it. Empty where none is the user's, or its name is
    /// not known.
    pub fn frames(&mut self, module: &Module, frame: NativeFrame, kernel: Option<&str>) -> Vec<Frame> {
        if !is_of_user(module) {
            return Vec::new();
        }
        let key = Module { id: 0, ..module.clone() };
        let symbols = self.files.entry(key).or_insert_with_key(|module| {
            let (id, bytes, modified_ns) = (module.build_id.clone(), module.bytes, module.modified_ns);
            Symbols::of(Path::new(&module.path), &Build { id, bytes, modified_ns })
        });
        let places = symbols.as_ref().map_or_else(Vec::new, |symbols| symbols.at(frame.address));
        let is_shown =
            |place: &Place| !is_of_runtime(place) && (kernel.is_none() || place.symbol.as_deref() != kernel);
        places
            .into_iter()
            .filter(is_shown)
            .filter_map(|place| {
                let (file, line) = match place.file {
                    Some(file) => (file, place.line),
                    None => (module.path.clone(), None),
                };
                Some(Frame { file, line, function: place.function? })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_told_from_what_is_the_users() {
        let is_users = |path: &str| is_of_user(&Module { path: path.into(), ..Module::default() });
        for path in [
            "/usr/lib/x86_64-linux-gnu/libc.so.6",
            "/opt/conda/lib/libcudart.so.12",
            "/opt/conda/lib/python3.12/site-packages/torch/lib/libtorch_cuda.so",
            "/opt/conda/bin/python3.12",
            "/home/me/.triton/cache/x/__triton_launcher.so",
            "linux-vdso.so.1",
            "",
        ] {
            assert!(!is_users(path), "{path}");
        }
        for path in ["/home/me/train", "/home/me/.cache/torch_extensions/py312/ext/ext.so", "/w/libcustom.so"]
        {
            assert!(is_users(path), "{path}");
        }
    }

    #[test]
    fn rust_libraries_that_launch_are_left_out_wherever_their_source_lies() {
        let place = |function: &str| Place {
            function: Some(function.into()),
            symbol: None,
            file: Some("/home/me/apex/crates/kernels/gpu/src/launch/mod.rs".into()),
            line: Some(308),
        };
        for function in [
            "apex_gpu::launch::Launch::launch",
            "apex_gpu::launch::Launch::launch::{{closure}}",
            "<apex_gpu::launch::Launch>::launch",
            "<apex_gpu::Buffer<my::Number> as core::ops::drop::Drop>::drop",
            "<&mut apex_gpu::Buffer<f32> as apex_gpu::Argument>::pass",
            "cudarc::driver::safe::launch::LaunchArgs::launch",
            "<cudarc::driver::LaunchArgs as cudarc::driver::Launch>::go",
        ] {
            assert!(is_of_runtime(&place(function)), "{function}");
        }
        for function in [
            "solver::step",
            "apex_gpu_solver::step",
            "solver::apex_gpu::step",
            "<solver::Kernel as apex_gpu::Launchable>::launch",
            "<apex_gpu::Buffer<f32> as solver::Norm>::norm",
            "<solver::Model<apex_gpu::Buffer<f32>>>::forward",
            "main",
        ] {
            assert!(!is_of_runtime(&place(function)), "{function}");
        }
    }

    #[test]
    fn the_runtime_and_what_the_compiler_generates_are_left_out() {
        let place = |symbol: &str, file: Option<&str>| Place {
            function: Some(symbol.into()),
            symbol: Some(symbol.into()),
            file: file.map(Into::into),
            line: None,
        };
        for (symbol, file) in [
            ("cudaLaunchKernel", None),
            ("__cudart798", None),
            ("__device_stub__Z5scalePf", Some("/home/me/a.cu")),
            ("cudaLaunchKernel<char>", Some("/usr/local/cuda/include/cuda_runtime.h")),
            ("_start", None),
        ] {
            assert!(is_of_runtime(&place(symbol, file)), "{symbol}");
        }
        for (symbol, file) in [("step", None), ("cudaStep", Some("/home/me/a.cu")), ("cubic", None)] {
            assert!(!is_of_runtime(&place(symbol, file)), "{symbol}");
        }
    }
}
