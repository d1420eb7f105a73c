//! The driver that a process runs on: NVIDIA's where there is a GPU, else the CPU device.
//!
//! cudarc opens `libcuda.so.1` by name, once in a process. The CPU device carries that name too, so
//! opening it first, by its path, makes it the driver. A driver that the process has loaded already
//! (by itself, or because it was started with `apex run`) stays.

use std::ffi::{CStr, CString};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use cudarc::driver::{result, sys};

use crate::error::{Context, Error, Result};

/// File name of the CPU device.
const CPU_DEVICE: &str = "libapex_cpu_device.so";

/// Answers who opens `libcuda.so`, as cudarc tries first: a library of that name that needs
/// [`DRIVER`].
const ALIAS: &str = "libapex_alias.so";

/// How the CPU device's name begins.
const CPU_DEVICE_NAME: &str = "APEX CPU device";

/// The name by which programs know the driver.
const DRIVER: &CStr = c"libcuda.so.1";

/// The oldest driver whose functions suffice: `cuEventElapsedTime_v2` came with it.
const OLDEST: (u32, u32) = (12, 8);

/// What may be opened.
///
/// ```
/// use apex_gpu::{Choice, Device};
/// let device = Device::open_as(0, Choice::default())?; // as `Device::open`
/// println!("{}", device.kind());
/// # apex_gpu::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// A GPU, or the CPU device where there is none. The environment variable `APEX_DEVICE` (`gpu`
    /// or `cpu`) decides otherwise.
    #[default]
    Auto,
    /// A GPU or nothing.
    Gpu,
    /// The CPU device, even where there is a GPU.
    Cpu,
}

/// What a device is.
///
/// ```
/// use apex_gpu::Kind;
/// assert_eq!(Kind::Gpu.to_string(), "GPU");
/// let kind = Kind::Cpu { why: "it was asked for".to_owned() };
/// assert_eq!(kind.to_string(), "CPU device, because it was asked for");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A GPU, through NVIDIA's driver.
    Gpu,
    /// Cores of the host that execute PTX.
    Cpu {
        /// Why not a GPU.
        why: String,
    },
}

impl std::fmt::Display for Kind {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Kind::Gpu => out.write_str("GPU"),
            Kind::Cpu { why } => write!(out, "CPU device, because {why}"),
        }
    }
}

/// Loads the driver, or says which one is loaded.
///
/// # Errors
/// If there is none, or another than `choice` allows.
pub(crate) fn load(choice: Choice) -> Result<&'static Kind> {
    static LOADED: OnceLock<Kind> = OnceLock::new();
    static LOADING: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let loading = LOADING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let kind = match LOADED.get() {
        Some(kind) => kind,
        None => {
            let kind = open(from_environment(choice))?;
            LOADED.get_or_init(|| kind)
        }
    };
    drop(loading);
    let wanted = match (choice, kind) {
        (Choice::Gpu, Kind::Cpu { .. }) => "a GPU",
        (Choice::Cpu, Kind::Gpu) => "the CPU device",
        _ => return Ok(kind),
    };
    Err(Error::DriverChosen { using: kind.to_string(), wanted: wanted.to_owned() })
}

fn from_environment(choice: Choice) -> Choice {
    match (choice, std::env::var("APEX_DEVICE").as_deref()) {
        (Choice::Auto, Ok("gpu")) => Choice::Gpu,
        (Choice::Auto, Ok("cpu")) => Choice::Cpu,
        (choice, _) => choice,
    }
}

/// Opens a driver and starts it.
fn open(choice: Choice) -> Result<Kind> {
    if is_loaded(DRIVER) {
        start()?;
        return Ok(kind_of_loaded());
    }
    let why = match (choice, gpu_is_absent()) {
        (Choice::Gpu, _) | (Choice::Auto, None) => None,
        (Choice::Cpu, _) => Some("it was asked for".to_owned()),
        (Choice::Auto, Some(why)) => Some(why),
    };
    match why {
        None => {
            // SAFETY: opens libraries of known names.
            if !unsafe { sys::is_culib_present() } {
                return Err(no_driver());
            }
            start()?;
            Ok(Kind::Gpu)
        }
        Some(why) => {
            open_cpu_device(&why)?;
            start()?;
            check_that_cudarc_uses_it()?;
            Ok(Kind::Cpu { why })
        }
    }
}

fn no_driver() -> Error {
    let why = "NVIDIA's driver (libcuda.so.1) is not installed, or not visible in this container; run on the CPU device \
               with APEX_DEVICE=cpu, or start the container with the NVIDIA runtime";
    Error::NoDevice { why: why.to_owned() }
}

/// Starts the driver and checks its version.
fn start() -> Result<()> {
    result::init().map_err(|error| Error::NoDevice {
        why: format!("cuInit says {}; APEX_DEVICE=cpu runs on the CPU device", crate::error::name_of(error)),
    })?;
    let mut version = 0;
    // SAFETY: `version` is valid for writing.
    let asked = unsafe { sys::cuDriverGetVersion(&mut version) }.result();
    // A driver that does not tell its version is taken as it is.
    if asked.is_ok() { check_version(version) } else { Ok(()) }
}

/// That a driver for CUDA `version` (1000 times major plus 10 times minor, as `cuDriverGetVersion`
/// counts) is new enough.
fn check_version(version: i32) -> Result<()> {
    let version = version.max(0) as u32;
    let found = (version / 1000, version % 1000 / 10);
    match found < OLDEST {
        true => Err(Error::DriverTooOld { found, needed: OLDEST }),
        false => Ok(()),
    }
}

/// Why there can be no GPU, if the system has none: then NVIDIA's driver, which may be installed
/// all the same, is left alone.
fn gpu_is_absent() -> Option<String> {
    if let Ok(visible) = std::env::var("CUDA_VISIBLE_DEVICES")
        && matches!(visible.trim(), "" | "-1" | "NoDevFiles")
    {
        return Some("CUDA_VISIBLE_DEVICES hides all GPUs".to_owned());
    }
    // The kernel module's control device; its like under Windows' Linux; that of Tegra systems.
    let devices = ["/dev/nvidiactl", "/dev/dxg", "/dev/nvhost-ctrl-gpu", "/dev/nvgpu"];
    let present = devices.iter().any(|path| Path::new(path).exists());
    (!present).then(|| "there is no NVIDIA GPU (no /dev/nvidiactl)".to_owned())
}

fn is_loaded(name: &CStr) -> bool {
    // SAFETY: a valid name; nothing is loaded.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if !handle.is_null() {
        // SAFETY: the handle is the one that was just opened.
        unsafe { libc::dlclose(handle) };
    }
    !handle.is_null()
}

/// What the driver is that was there before us.
fn kind_of_loaded() -> Kind {
    let name = result::device::get(0).and_then(result::device::get_name);
    match name {
        Ok(name) if name.starts_with(CPU_DEVICE_NAME) => {
            Kind::Cpu { why: "the process was started on it".to_owned() }
        }
        _ => Kind::Gpu,
    }
}

/// Where the CPU device may lie: where `APEX_CPU_DEVICE` says; else in the library path, which
/// cargo sets for what it runs; beside the executable; or in an installation.
fn places() -> Vec<PathBuf> {
    if let Some(path) = std::env::var_os("APEX_CPU_DEVICE") {
        return vec![PathBuf::from(path)];
    }
    let library_path = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let executable = std::env::current_exe().unwrap_or_default();
    let beside = executable.parent().unwrap_or(Path::new("/"));
    let folders = ["", "deps", "../deps", "../lib/apex"].map(|relative| beside.join(relative));
    std::env::split_paths(&library_path).chain(folders).map(|folder| folder.join(CPU_DEVICE)).collect()
}

fn open_cpu_device(why: &str) -> Result<()> {
    let places = places();
    let Some(path) = places.iter().find(|path| path.is_file()) else {
        let looked = places.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
        return Err(Error::NoDevice {
            why: format!(
                "{why}, and the CPU device was not found (looked for {looked}); build it with \
                 `cargo build -p apex-cpu-device` and name the file in APEX_CPU_DEVICE"
            ),
        });
    };
    open_for_good(path)
        .map_err(|message| Error::NoDevice { why: format!("the CPU device does not load: {message}") })?;
    // Where NVIDIA's driver is installed too, its `libcuda.so` would be found before.
    let _ = open_for_good(&path.with_file_name(ALIAS));
    Ok(())
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

/// A file called `libcuda.so` in the library path (a toolkit's stub, say) would be found before.
fn check_that_cudarc_uses_it() -> Result<()> {
    let name = result::device::get(0).and_then(result::device::get_name);
    match name {
        Ok(name) if name.starts_with(CPU_DEVICE_NAME) => Ok(()),
        _ => Err(Error::NoDevice {
            why: format!(
                "a libcuda.so of the system stands before the CPU device; put {ALIAS} beside {CPU_DEVICE}, or take that \
                 file's folder out of LD_LIBRARY_PATH"
            ),
        }),
    }
}

/// Devices of the driver that is loaded.
pub(crate) fn device_count() -> Result<usize> {
    let count = result::device::get_count();
    let count = count
        .map_err(|error| crate::error::driver("cuDeviceGetCount", "the driver", error, Context::default()))?;
    Ok(count.max(0) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drivers_older_than_needed_are_refused_with_both_versions() {
        for (version, found) in
            [(12_070, (12, 7)), (11_080, (11, 8)), (9_020, (9, 2)), (0, (0, 0)), (-1, (0, 0))]
        {
            let error = check_version(version).unwrap_err();
            assert!(
                matches!(error, Error::DriverTooOld { found: said, needed } if said == found && needed == OLDEST),
                "{version}: {error}"
            );
        }
        let message = check_version(12_070).unwrap_err().to_string();
        assert!(message.contains("supports CUDA 12.7, and 12.8 is needed"), "{message}");
    }

    #[test]
    fn the_oldest_driver_that_suffices_and_newer_ones_are_taken() {
        // The last by its major version alone.
        for version in [12_080, 12_090, 13_000] {
            check_version(version).unwrap();
        }
    }
}
