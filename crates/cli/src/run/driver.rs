//! Selects the driver that the program gets: NVIDIA's, or APEX's CPU device.

use super::libraries::{CPU_DEVICE, Libraries, RECORDER};
use crate::output;
use apex_conventions::variables;
use apex_ordered::Order;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The choice of `--device`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Device {
    /// The GPU if there is a driver and a device, otherwise the CPU device
    #[default]
    Auto,
    /// The GPU, through the installed driver
    Gpu,
    /// APEX's CPU device, which executes PTX
    Cpu,
}

/// The decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Driver {
    /// The driver that APEX_DRIVER names, else the one that the injected library finds.
    Gpu,
    /// The library at this path is the driver.
    Cpu(PathBuf),
}

/// Has NVTX hand its ranges to the injected library of this folder, unless the user has it hand
/// them to another tool.
pub fn set_nvtx(command: &mut Command, libraries: &Path) {
    let ours = libraries.join(RECORDER);
    match variables::NVTX.value() {
        Some(other) if Path::new(&other) != ours => output::remark(format!(
            "{} names another library: it receives the NVTX ranges, and the session does not contain them",
            variables::NVTX.name
        )),
        _ => {
            command.env(variables::NVTX.name, ours);
        }
    }
}

impl Driver {
    /// Decides, and says so on stderr if `auto` means the CPU device and not `quiet`.
    ///
    /// # Errors
    /// If the CPU device is needed and its library is not there.
    pub fn decide(device: Device, libraries: &Libraries, quiet: bool) -> anyhow::Result<Self> {
        let missing = match device {
            Device::Gpu => return Ok(Driver::Gpu),
            Device::Cpu => return libraries.cpu_device().map(Driver::Cpu),
            Device::Auto => match (variables::DRIVER.path(), missing_for_gpu()) {
                (Some(driver), _) if is_cpu_device(&driver) => return Ok(Driver::Cpu(driver)),
                (Some(_), _) | (None, None) => return Ok(Driver::Gpu),
                (None, Some(missing)) => missing,
            },
        };
        let driver = libraries.cpu_device().map(Driver::Cpu)?;
        if !quiet {
            output::remark(format!(
                "{missing}: kernels run on APEX's CPU device (--device cpu makes this explicit)"
            ));
        }
        Ok(driver)
    }

    /// Tells the injected library.
    pub fn set(&self, command: &mut Command) {
        match self {
            Driver::Cpu(driver) => {
                command.env(variables::DRIVER.name, driver);
                for (name, value) in ASK_FOR_PTX.iter().filter(|(name, _)| std::env::var_os(name).is_none()) {
                    command.env(name, value);
                }
            }
            // Left over from an outer `apex run --device cpu`.
            Driver::Gpu if variables::DRIVER.path().is_some_and(|driver| is_cpu_device(&driver)) => {
                command.env_remove(variables::DRIVER.name);
            }
            Driver::Gpu => {}
        }
    }

    /// As it stands in session.json.
    pub fn name(&self) -> &'static str {
        match self {
            Driver::Gpu => "gpu",
            Driver::Cpu(_) => "cpu",
        }
    }
}

/// Settings of clients that compile at run time, by which they hand PTX to the driver instead of
/// machine code.
const ASK_FOR_PTX: &[(&str, &str)] = &[("CUPY_COMPILE_WITH_PTX", "1")];

fn is_cpu_device(driver: &Path) -> bool {
    driver.file_name() == Some(OsStr::new(CPU_DEVICE))
}

/// Returns the reason why kernels cannot run on a GPU here.
pub fn missing_for_gpu() -> Option<&'static str> {
    if device_nodes().is_empty() {
        return Some("no GPU here");
    }
    apex_conventions::locate::candidates(&[]).is_empty().then_some("a GPU and no CUDA driver library here")
}

/// `/dev/nvidia0`, `/dev/nvidiactl`, `/dev/nvidia-uvm`; `/dev/dxg` under WSL; `/dev/nvmap` on
/// Jetson.
pub fn device_nodes() -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/dev").into_iter().flatten().flatten();
    let mut nodes: Vec<_> = entries.map(|entry| entry.path()).filter(|path| is_device_node(path)).collect();
    nodes.order_by(Ord::cmp);
    nodes
}

fn is_device_node(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let numbered = |rest: &str| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit());
    matches!(&*name, "nvidiactl" | "nvidia-uvm" | "dxg" | "nvmap")
        || name.strip_prefix("nvidia").is_some_and(numbered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_nodes_are_told_from_their_neighbours() {
        for (name, expected) in [
            ("nvidia0", true),
            ("nvidia15", true),
            ("nvidiactl", true),
            ("dxg", true),
            ("nvidia", false),
            ("nvidia-modeset", false),
            ("nvidia-caps", false),
            ("null", false),
        ] {
            assert_eq!(is_device_node(&Path::new("/dev").join(name)), expected, "{name}");
        }
    }
}
