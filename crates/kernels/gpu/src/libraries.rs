//! Finds NVIDIA's libraries at run time.
//!
//! They may lie where the loader looks, in a toolkit, or among Python's packages (wheels such as
//! `nvidia-cuda-nvrtc` and `nvidia-cublas`). cudarc opens them by name; opening one first by its
//! path makes its name known.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::{env, fs};

/// The result of a search.
pub(crate) struct Search {
    /// The library that was opened, if it was found outside the loader's own places.
    pub(crate) opened: Option<PathBuf>,
    /// The folders that were looked into.
    pub(crate) folders: Vec<PathBuf>,
}

/// Opens the newest version of the library `name` (up to the dot before its version) that lies in a
/// known place, after the libraries `with` beside it, which it opens by name itself.
pub(crate) fn open_newest(name: &str, with: &[&str], wheel: &str) -> Search {
    let mut folders = toolkit_folders();
    let open_in = |folder: &PathBuf| {
        with.iter().flat_map(|name| versions_of(name, folder)).for_each(|path| {
            open(&path);
        });
        versions_of(name, folder).into_iter().find(|path| open(path))
    };
    let mut opened = folders.iter().find_map(open_in);
    if opened.is_none() {
        let packages: Vec<PathBuf> = python_packages()
            .iter()
            .flat_map(|nvidia| ["cu13", wheel].map(|part| nvidia.join(part).join("lib")))
            .collect();
        opened = packages.iter().find_map(open_in);
        folders.extend(packages);
    }
    Search { opened, folders }
}

/// Folders of toolkits, the most explicit first.
fn toolkit_folders() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for variable in ["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"] {
        let toolkit = env::var_os(variable).map(PathBuf::from);
        folders.extend(toolkit.iter().flat_map(|toolkit| [toolkit.join("lib64"), toolkit.join("lib")]));
    }
    folders.extend(env::var_os("LD_LIBRARY_PATH").iter().flat_map(env::split_paths));
    folders.extend(["/usr/local/cuda/lib64", "/usr/lib/x86_64-linux-gnu"].map(PathBuf::from));
    folders
}

/// The folders `nvidia` among Python's packages: the `python3` in the path is asked, once.
fn python_packages() -> &'static [PathBuf] {
    const ASK: &str =
        "import site, sysconfig; print(sysconfig.get_path('purelib')); print(site.getusersitepackages())";
    static FOLDERS: OnceLock<Vec<PathBuf>> = OnceLock::new();
    FOLDERS.get_or_init(|| {
        let answer = Command::new("python3").args(["-I", "-c", ASK]).stderr(Stdio::null()).output();
        let answer = answer.map(|output| output.stdout).unwrap_or_default();
        let packages = answer.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
        packages.map(|line| Path::new(OsStr::from_bytes(line)).join("nvidia")).collect()
    })
}

/// The files `name` with a version behind it, the newest first.
fn versions_of(name: &str, folder: &Path) -> Vec<PathBuf> {
    let version = |path: &Path| {
        let file = path.file_name()?.to_str()?.strip_prefix(name)?;
        file.split('.').map(|part| part.parse::<u32>().ok()).collect::<Option<Vec<_>>>()
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<_> = entries.filter_map(|path| Some((version(&path)?, path))).collect();
    found.sort();
    found.into_iter().rev().map(|(_, path)| path).collect()
}

/// Opens a library of NVIDIA's for the rest of the process; whether that worked.
fn open(path: &Path) -> bool {
    let name = CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
    // SAFETY: a valid name. The library's initialisers are NVIDIA's, as they would be if the
    // program was linked to it.
    !unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) }.is_null()
}
