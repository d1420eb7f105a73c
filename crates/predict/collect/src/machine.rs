//! The machine's part of a manifest: the device's attributes, the clocks, the time.

use apex_ordered::Gather;
use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use cudarc::driver::sys::{self, CUdevice_attribute as Attribute};

use apex_dataset::Clocks;

/// Attributes that decide how fast kernels run, and how many blocks fit.
const ATTRIBUTES: [Attribute; 29] = [
    Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
    Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X,
    Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y,
    Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z,
    Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X,
    Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y,
    Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z,
    Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK,
    Attribute::CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY,
    Attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE,
    Attribute::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK,
    Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE,
    Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
    Attribute::CU_DEVICE_ATTRIBUTE_ECC_ENABLED,
    Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE,
    Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH,
    Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE,
    Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
    Attribute::CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT,
    Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
    Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
    Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
    Attribute::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR,
    Attribute::CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO,
    Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
    Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR,
    Attribute::CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE,
    Attribute::CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK,
    Attribute::CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH,
];

/// Columns that `nvidia-smi` is asked for; asking changes nothing.
const CLOCK_COLUMNS: &str = "index,driver_version,clocks.sm,clocks.mem,clocks.max.sm,temperature.gpu,power.draw,\
                             clocks_event_reasons.active";

/// Number and value of the device's attributes, as far as its driver knows them.
pub(crate) fn attributes(device: &apex_gpu::Device) -> BTreeMap<u32, i32> {
    let value = |attribute: Attribute| Some((attribute as u32, device.cuda().attribute(attribute).ok()?));
    ATTRIBUTES.into_iter().filter_map(value).gathered()
}

/// The driver's version of CUDA.
pub(crate) fn cuda_version() -> u32 {
    let mut version = 0;
    // SAFETY: the driver is loaded where a device is open, and `version` is valid for writing.
    let asked = unsafe { sys::cuDriverGetVersion(&mut version) }.result();
    asked.map_or(0, |()| version.max(0) as u32)
}

/// The clocks of the machine's GPUs; `None` where `nvidia-smi` cannot tell.
pub(crate) fn clocks() -> Option<Clocks> {
    let columns = CLOCK_COLUMNS;
    let mut smi = Command::new("nvidia-smi");
    smi.args([&format!("--query-gpu={columns}"), "--format=csv,noheader"]).stdin(Stdio::null());
    let output = smi.stderr(Stdio::null()).output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let device = |line: &str| {
        let values = line.split(',').map(|value| value.trim().to_owned());
        columns.split(',').map(|name| name.trim().to_owned()).zip(values).collect()
    };
    Some(Clocks { at: now(), devices: text.lines().map(device).collect() })
}

/// The current time in UTC: `2026-11-21 16:00:00`.
pub(crate) fn now() -> String {
    // SAFETY: `time` with null only returns; `tm` is plain data; `gmtime_r` reads one local and
    // fills the other.
    let tm = unsafe {
        let now = libc::time(std::ptr::null_mut());
        let mut tm: libc::tm = std::mem::zeroed();
        libc::gmtime_r(&raw const now, &raw mut tm);
        tm
    };
    let date = format!("{:04}-{:02}-{:02}", tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday);
    format!("{date} {:02}:{:02}:{:02}", tm.tm_hour, tm.tm_min, tm.tm_sec)
}

#[cfg(test)]
mod tests {
    #[test]
    fn now_is_a_date_of_this_century() {
        let now = super::now();
        assert!(now.len() == 19 && now.starts_with("20") && now[4..].starts_with('-'), "{now}");
    }
}
