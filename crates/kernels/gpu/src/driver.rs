//! The driver that a process runs on: NVIDIA's where there is a GPU, else the CPU device.
//!
//! cudarc opens `libcuda.so.1` by name, once in a process. The CPU device carries that name too, so
//! opening it first, by its path, makes it the driver. A driver that the process has loaded already
//! (by itself, or because it was started with `apex run`) stays.

use std::ffi::{CStr, c_char, c_uint, c_void};
use std::path::Path;
use std::sync::OnceLock;

use cudarc::driver::{result, sys};

use crate::cpu_device;
use crate::error::{Context, Error, Result};

/// The name by which programs know the driver.
const DRIVER: &CStr = c"libcuda.so.1";

/// The oldest driver whose functions suffice: `cuEventElapsedTime_v2` came with it.
const OLDEST: (u32, u32) = (12, 8);

/// The drivers that may be opened.
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

/// The kind of a device.
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
        /// The reason why it is not a GPU.
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
            cpu_device::open(&why)?;
            start()?;
            cpu_device::check_that_cudarc_uses_it()?;
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

/// Checks that a driver for CUDA `version` (1000 times major plus 10 times minor, as
/// `cuDriverGetVersion` counts) is new enough.
fn check_version(version: i32) -> Result<()> {
    let version = version.max(0) as u32;
    let found = (version / 1000, version % 1000 / 10);
    match found < OLDEST {
        true => Err(Error::DriverTooOld { found, needed: OLDEST }),
        false => Ok(()),
    }
}

/// Returns the reason why there can be no GPU, if the system has none: then NVIDIA's driver, which
/// may be installed all the same, is left alone.
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

/// Returns the kind of the driver that was loaded before us.
fn kind_of_loaded() -> Kind {
    match cpu_device::is_the_driver() {
        true => Kind::Cpu { why: "the process was started on it".to_owned() },
        false => Kind::Gpu,
    }
}

/// Returns the messages of the driver's error log since the process began, if the driver keeps one
/// (CUDA 12.9) and there are any.
pub(crate) fn logged() -> Option<String> {
    type Dump = unsafe extern "C" fn(*mut c_uint, *mut c_char, *mut usize, c_uint) -> sys::CUresult;
    // SAFETY: valid names; the driver is loaded, and stays.
    let dump = unsafe {
        let library = libc::dlopen(DRIVER.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if library.is_null() {
            return None;
        }
        libc::dlsym(library, c"cuLogsDumpToMemory".as_ptr())
    };
    if dump.is_null() {
        return None;
    }
    let mut text = vec![0u8; 25_600];
    let mut size = text.len();
    // SAFETY: the function of that name has this signature. Without an iterator it copies what
    // there is, at most `size` bytes, and says how many.
    let dumped = unsafe {
        let dump = std::mem::transmute::<*mut c_void, Dump>(dump);
        dump(std::ptr::null_mut(), text.as_mut_ptr().cast(), &mut size, 0)
    };
    // Names of kernels and files are foreign.
    let text = String::from_utf8_lossy(&text[..size.min(text.len())]).trim().to_owned();
    let text = apex_untrusted::text::printable_but(&text, &['\n']).into_owned();
    (dumped == sys::CUresult::CUDA_SUCCESS && !text.is_empty()).then_some(text)
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
