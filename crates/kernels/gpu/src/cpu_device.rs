//! Finds the CPU device and makes it the driver.
//!
//! Cargo builds it beside the program, as this crate's feature `cpu-device` asks: as
//! `libapex_cpu_device.so` where APEX's sources lie in a folder, with a hash behind the name where
//! they come from a git repository. Programs that were copied elsewhere find it beside themselves
//! or in an installation of APEX.

use std::ffi::{CStr, CString, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use apex_conventions::cpu_device::{self, LIBRARY as CPU_DEVICE};
use apex_conventions::variables;
use cudarc::driver::result;

use crate::error::{Error, Result};

/// Answers who opens `libcuda.so`, as cudarc tries first: a library of that name that needs
/// `libcuda.so.1`.
const ALIAS: &str = "libapex_alias";

/// Opens the CPU device for the rest of the process. `why` says why it is wanted.
///
/// # Errors
/// [`Error::NoDevice`] if it is not found, or does not load.
pub(crate) fn open(why: &str) -> Result<()> {
    let path = match std::env::var_os(variables::CPU_DEVICE.name).map(PathBuf::from) {
        Some(path) if path.is_file() => path,
        Some(path) => {
            let why = format!("{why}, and APEX_CPU_DEVICE names {}, which is no file", path.display());
            return Err(Error::NoDevice { why });
        }
        None => find(&folders(), CPU_DEVICE).ok_or_else(|| Error::NoDevice { why: not_found(why) })?,
    };
    open_for_good(&path)
        .map_err(|message| Error::NoDevice { why: format!("the CPU device does not load: {message}") })?;
    // Where NVIDIA's driver is installed too, its `libcuda.so` would be found before.
    let beside = path.parent().unwrap_or(Path::new("/")).to_path_buf();
    if let Some(alias) = find(&[beside], ALIAS) {
        let _ = open_for_good(&alias);
    }
    Ok(())
}

/// Returns the advice for a missing CPU device.
fn not_found(why: &str) -> String {
    let program = std::env::current_exe().unwrap_or_default();
    let place = program.parent().unwrap_or(Path::new("/")).display();
    match cfg!(feature = "cpu-device") {
        true => format!(
            "{why}, and the CPU device was not found beside the program; copy {CPU_DEVICE}*.so and {ALIAS}*.so from \
             target/…/deps, where cargo has built them, to {place}, or name the first in APEX_CPU_DEVICE"
        ),
        false => format!(
            "{why}, and apex-gpu was built without its CPU device; enable its feature `cpu-device`, install APEX, or name \
             {CPU_DEVICE}.so in APEX_CPU_DEVICE"
        ),
    }
}

/// Folders where it may lie: beside the program, where cargo builds it; the library path, which
/// cargo sets for what it runs; installations that this program or `apex` belong to.
fn folders() -> Vec<PathBuf> {
    let program = std::env::current_exe().unwrap_or_default();
    let beside = program.parent().unwrap_or(Path::new("/"));
    let near = ["", "deps", "../deps", "../lib/apex"].map(|relative| beside.join(relative));
    let variable = |name| std::env::var_os(name).unwrap_or_else(OsString::new);
    let (libraries, path) = (variable("LD_LIBRARY_PATH"), variable("PATH"));
    let installed = std::env::split_paths(&path)
        .filter_map(|folder| fs::canonicalize(folder.join("apex")).ok())
        .filter_map(|apex| Some(apex.parent()?.to_path_buf()))
        .flat_map(|folder| [folder.join("../lib/apex"), folder]);
    near.into_iter().chain(std::env::split_paths(&libraries)).chain(installed).collect()
}

/// The library `stem` in the first folder that has it: the newest, with or without a hash behind
/// its name.
fn find(folders: &[PathBuf], stem: &str) -> Option<PathBuf> {
    let is_wanted = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        let behind = name.and_then(|name| name.strip_prefix(stem)?.strip_suffix(".so"));
        behind.is_some_and(|behind| {
            let hash = behind.strip_prefix('-').unwrap_or(behind);
            hash.bytes().all(|byte| byte.is_ascii_hexdigit())
        })
    };
    let modified = |path: &PathBuf| path.metadata().and_then(|file| file.modified()).ok();
    folders.iter().find_map(|folder| {
        let entries = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
        entries.filter(|path| is_wanted(path) && path.is_file()).max_by_key(modified)
    })
}

/// Opens a library for the rest of the process; the error is the loader's message.
fn open_for_good(path: &Path) -> std::result::Result<(), String> {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let name = CString::new(path.as_os_str().as_encoded_bytes()).unwrap_or_default();
    // SAFETY: a valid name. The initialisers of our libraries do nothing.
    if !unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) }.is_null() {
        return Ok(());
    }
    // SAFETY: after a failed `dlopen` there is a message.
    Err(unsafe { CStr::from_ptr(libc::dlerror()) }.to_string_lossy().into_owned())
}

/// Whether the driver that cudarc uses is the CPU device.
pub(crate) fn is_the_driver() -> bool {
    let name = result::device::get(0).and_then(result::device::get_name);
    name.is_ok_and(|name| cpu_device::is(&name))
}

/// A file called `libcuda.so` in the library path (a toolkit's stub, say) would be found before.
///
/// # Errors
/// [`Error::NoDevice`] if one was.
pub(crate) fn check_that_cudarc_uses_it() -> Result<()> {
    match is_the_driver() {
        true => Ok(()),
        false => Err(Error::NoDevice {
            why: format!(
                "a libcuda.so of the system stands before the CPU device; put {ALIAS}.so beside {CPU_DEVICE}.so, or take \
                 that file's folder out of LD_LIBRARY_PATH"
            ),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};

    #[test]
    fn the_newest_library_is_found_under_either_name_that_cargo_gives_it() {
        let root = tempfile::tempdir().unwrap();
        let folders = ["empty", "built"].map(|name| root.path().join(name));
        folders.iter().for_each(|folder| fs::create_dir(folder).unwrap());
        fs::write(folders[1].join("libapex_cpu_device-old.so"), "").unwrap();
        fs::write(folders[1].join("libapex_cpu_device.so.bak"), "").unwrap();
        assert_eq!(find(&folders, CPU_DEVICE), None);

        let names = ["libapex_cpu_device-0a1b.so", "libapex_cpu_device.so", "libapex_cpu_device-ffff.so"];
        for (name, age) in names.iter().zip([150, 100, 50]) {
            let path = folders[1].join(name);
            let file = fs::File::create(&path).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
            assert_eq!(find(&folders, CPU_DEVICE), Some(path), "the newest so far");
        }
    }
}
