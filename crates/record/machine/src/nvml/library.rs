//! The functions of NVML that are called, found when the program runs.
//!
//! The binding is by hand and has getters alone: twenty of NVML's 400 functions, none of which
//! changes a device. (The crate `nvml-wrapper` would bring eighteen others, and every setter.)
//! Types and constants are those of `nvml.h` 13.5; older libraries have the same, or lack a
//! function, and then its readings are missing.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::mem::transmute_copy;
use std::path::Path;

/// `nvmlReturn_t`.
pub type Return = c_int;
/// `nvmlDevice_t`.
pub type Handle = *mut c_void;
/// `nvmlGpmSample_t`.
pub type Sample = *mut c_void;

/// `nvmlReturn_t`.
pub const SUCCESS: Return = 0;
pub const INVALID_ARGUMENT: Return = 2;
pub const NOT_SUPPORTED: Return = 3;
pub const NO_PERMISSION: Return = 4;
pub const FUNCTION_NOT_FOUND: Return = 13;
pub const GPU_IS_LOST: Return = 15;
pub const ARGUMENT_VERSION_MISMATCH: Return = 25;
pub const DEPRECATED: Return = 26;

/// `nvmlClockType_t`.
pub const CLOCK_SM: c_uint = 1;
pub const CLOCK_MEMORY: c_uint = 2;
/// `nvmlTemperatureSensors_t`.
pub const TEMPERATURE_GPU: c_uint = 0;
/// `nvmlTemperatureThresholds_t`.
pub const THRESHOLD_SLOWDOWN: c_uint = 1;
/// `nvmlPcieUtilCounter_t`.
pub const PCIE_SENT: c_uint = 0;
pub const PCIE_RECEIVED: c_uint = 1;
/// `NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX`, `…_RX`: KiB since the driver was loaded.
pub const FIELD_NVLINK_SENT: c_uint = 138;
pub const FIELD_NVLINK_RECEIVED: c_uint = 139;
/// As a field's scope: the sum over all links.
pub const ALL_LINKS: c_uint = c_uint::MAX;

/// `nvmlUtilization_t`, percent.
#[repr(C)]
#[derive(Default)]
pub struct Utilization {
    pub gpu: c_uint,
    pub memory: c_uint,
}

/// `nvmlMemory_t`, bytes.
#[repr(C)]
#[derive(Default)]
pub struct Memory {
    pub total: c_ulonglong,
    pub free: c_ulonglong,
    pub used: c_ulonglong,
}

/// `nvmlMemory_v2_t`, bytes: `used` without what the driver keeps.
#[repr(C)]
#[derive(Default)]
pub struct MemoryV2 {
    pub version: c_uint,
    pub total: c_ulonglong,
    pub reserved: c_ulonglong,
    pub free: c_ulonglong,
    pub used: c_ulonglong,
}

/// `nvmlMemory_v2`, the version of that structure.
pub const MEMORY_V2: c_uint = size_of::<MemoryV2>() as c_uint | 2 << 24;

/// `nvmlPciInfo_t`.
#[repr(C)]
#[derive(Default)]
pub struct PciInfo {
    pub bus_id_legacy: [c_char; 16],
    pub domain: c_uint,
    pub bus: c_uint,
    pub device: c_uint,
    pub pci_device_id: c_uint,
    pub pci_subsystem_id: c_uint,
    pub bus_id: [c_char; 32],
}

/// `nvmlFieldValue_t`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct FieldValue {
    pub field: c_uint,
    pub scope: c_uint,
    pub timestamp_us: i64,
    pub latency_us: i64,
    pub value_type: c_uint,
    pub returned: Return,
    /// A union; of 64 bits for the fields that are read here.
    pub value: u64,
}

/// `nvmlGpmMetric_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct GpmMetric {
    pub metric: c_uint,
    pub returned: Return,
    pub value: f64,
    pub names: [*const c_char; 3],
}

/// Room for metrics. `NVML_GPM_METRIC_MAX` was 98 in CUDA 12.0 and is 477 in 13.5, with the same
/// version of the structure: a library looks at the first [`GpmMetricsGet::count`] alone.
pub const GPM_METRICS: usize = 512;

/// `nvmlGpmMetricsGet_t`.
#[repr(C)]
pub struct GpmMetricsGet {
    pub version: c_uint,
    pub count: c_uint,
    pub earlier: Sample,
    pub later: Sample,
    pub metrics: [GpmMetric; GPM_METRICS],
}

/// `nvmlGpmSupport_t`.
#[repr(C)]
pub struct GpmSupport {
    pub version: c_uint,
    pub is_supported: c_uint,
}

/// The version of both.
pub const GPM_VERSION: c_uint = 1;

macro_rules! functions {
    ($($field:ident = $name:literal: ($($argument:ty),*);)*) => {
        /// The functions. Those that the library lacks are `None`.
        ///
        /// # Safety
        /// The caller keeps to what `nvml.h` says: pointers to writable values of these types,
        /// handles that NVML gave.
        pub struct Functions {
            $(pub $field: Option<unsafe extern "C" fn($($argument),*) -> Return>,)*
        }

        impl Functions {
            /// Their names.
            #[cfg(test)]
            pub const NAMES: &[&str] = &[$($name),*];

            fn load(library: *mut c_void) -> Self {
                Self {
                    $($field: {
                        let address = symbol(library, $name);
                        // SAFETY: a pointer to a function and an optional one have the same
                        // representation, null for `None`; the signature is the one of `nvml.h`.
                        unsafe { transmute_copy(&address) }
                    },)*
                }
            }
        }
    };
}

functions! {
    init = "nvmlInit_v2": ();
    count = "nvmlDeviceGetCount_v2": (*mut c_uint);
    handle = "nvmlDeviceGetHandleByIndex_v2": (c_uint, *mut Handle);
    uuid = "nvmlDeviceGetUUID": (Handle, *mut c_char, c_uint);
    name = "nvmlDeviceGetName": (Handle, *mut c_char, c_uint);
    pci = "nvmlDeviceGetPciInfo_v3": (Handle, *mut PciInfo);
    power = "nvmlDeviceGetPowerUsage": (Handle, *mut c_uint);
    power_limit = "nvmlDeviceGetEnforcedPowerLimit": (Handle, *mut c_uint);
    energy = "nvmlDeviceGetTotalEnergyConsumption": (Handle, *mut c_ulonglong);
    clock = "nvmlDeviceGetClockInfo": (Handle, c_uint, *mut c_uint);
    max_clock = "nvmlDeviceGetMaxClockInfo": (Handle, c_uint, *mut c_uint);
    clock_reasons = "nvmlDeviceGetCurrentClocksEventReasons": (Handle, *mut c_ulonglong);
    throttle_reasons = "nvmlDeviceGetCurrentClocksThrottleReasons": (Handle, *mut c_ulonglong);
    temperature = "nvmlDeviceGetTemperature": (Handle, c_uint, *mut c_uint);
    threshold = "nvmlDeviceGetTemperatureThreshold": (Handle, c_uint, *mut c_uint);
    utilization = "nvmlDeviceGetUtilizationRates": (Handle, *mut Utilization);
    memory = "nvmlDeviceGetMemoryInfo": (Handle, *mut Memory);
    memory_v2 = "nvmlDeviceGetMemoryInfo_v2": (Handle, *mut MemoryV2);
    pcie = "nvmlDeviceGetPcieThroughput": (Handle, c_uint, *mut c_uint);
    fields = "nvmlDeviceGetFieldValues": (Handle, c_int, *mut FieldValue);
    gpm_support = "nvmlGpmQueryDeviceSupport": (Handle, *mut GpmSupport);
    gpm_alloc = "nvmlGpmSampleAlloc": (*mut Sample);
    gpm_sample = "nvmlGpmSampleGet": (Handle, Sample);
    gpm_metrics = "nvmlGpmMetricsGet": (*mut GpmMetricsGet);
}

fn symbol(library: *mut c_void, name: &str) -> *mut c_void {
    let Ok(name) = CString::new(name) else { return std::ptr::null_mut() };
    // SAFETY: the library is open, the name ends with a zero byte.
    unsafe { libc::dlsym(library, name.as_ptr()) }
}

impl Functions {
    /// Opens a library by its path or, for the dynamic linker to find, by its name. It stays
    /// loaded, since a call may still be under way when the process ends. `None` without it.
    pub fn open(library: &Path) -> Option<Self> {
        let name = CString::new(std::os::unix::ffi::OsStrExt::as_bytes(library.as_os_str())).ok()?;
        // SAFETY: loading NVML runs its initialisers, which the caller asks for by naming it.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        (!library.is_null()).then(|| Self::load(library))
    }
}

/// The text in a buffer that NVML filled; what is not UTF-8 is replaced.
pub fn text(buffer: &[c_char]) -> String {
    let bytes: Vec<u8> = buffer.iter().map(|&byte| byte.cast_unsigned()).collect();
    CStr::from_bytes_until_nul(&bytes).map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_sizes_of_nvml_h() {
        assert_eq!(size_of::<PciInfo>(), 68);
        assert_eq!(size_of::<FieldValue>(), 40);
        assert_eq!(size_of::<GpmMetric>(), 40);
        assert_eq!(std::mem::offset_of!(GpmMetricsGet, metrics), 24);
        assert_eq!(MEMORY_V2, 0x0200_0028);
    }

    #[test]
    fn no_function_changes_a_device() {
        let harmless = ["nvmlInit_v2", "nvmlGpmQueryDeviceSupport", "nvmlGpmSampleAlloc"];
        for name in Functions::NAMES {
            assert!(name.contains("Get") || harmless.contains(name), "{name}");
        }
    }

    #[test]
    fn text_ends_at_its_zero_byte_and_needs_one() {
        let buffer = |bytes: &[u8]| bytes.iter().map(|&byte| byte.cast_signed()).collect::<Vec<c_char>>();
        assert_eq!(text(&buffer(b"H200\0rest")), "H200");
        assert_eq!(text(&buffer(b"no end")), "");
        assert_eq!(text(&buffer(b"\xff\0")), "\u{fffd}");
    }
}
