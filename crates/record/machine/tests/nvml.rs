//! The binding to NVML, on the stand-in of `testing/fake-nvml`.
//!
//! Each test loads a copy of it: a file of its own is a library of its own, with its own state.

use apex_machine::nvml::Nvml;
use apex_machine::{Devices, Quantity, Readings};
use std::ffi::{CString, c_char, c_int, c_void};
use std::path::PathBuf;

/// A copy of the stand-in, loaded.
struct StandIn {
    _folder: tempfile::TempDir,
    path: PathBuf,
    library: *mut c_void,
}

impl StandIn {
    fn load() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("libnvidia-ml.so.1");
        std::fs::copy(test_build::library("fake-nvml"), &path).unwrap();
        let name = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: the stand-in has no initialisers.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!library.is_null());
        Self { _folder: folder, path, library }
    }

    fn symbol(&self, name: &str) -> *mut c_void {
        let name = CString::new(name).unwrap();
        // SAFETY: the library stays open.
        let address = unsafe { libc::dlsym(self.library, name.as_ptr()) };
        assert!(!address.is_null(), "{name:?}");
        address
    }

    /// Has a function return a code.
    fn error(&self, name: &str, code: c_int) {
        // SAFETY: the function of the stand-in has this signature.
        let set: extern "C" fn(*const c_char, c_int) =
            unsafe { std::mem::transmute(self.symbol("fake_nvml_error")) };
        set(CString::new(name).unwrap().as_ptr(), code);
    }

    fn calls(&self, name: &str) -> u64 {
        // SAFETY: the function of the stand-in has this signature.
        let calls: extern "C" fn(*const c_char) -> u64 =
            unsafe { std::mem::transmute(self.symbol("fake_nvml_calls")) };
        calls(CString::new(name).unwrap().as_ptr())
    }

    fn changes(&self) -> u64 {
        // SAFETY: the function of the stand-in has this signature.
        let changes: extern "C" fn() -> u64 =
            unsafe { std::mem::transmute(self.symbol("fake_nvml_changes")) };
        changes()
    }

    fn nvml(&self) -> Nvml {
        Nvml::open(&self.path).unwrap()
    }
}

/// Reads the first device `times` times, a second apart; returns the last readings.
fn read(nvml: &mut Nvml, times: u64) -> Readings {
    (1..=times).map(|second| nvml.read(0, second * 1_000_000_000)).last().unwrap()
}

fn value(readings: &Readings, quantity: Quantity) -> Option<f64> {
    readings.get(quantity).map(|span| span.mean)
}

/// Calls of a sampled device, and what is missing without each.
const CALLS: [(&str, &[Quantity]); 9] = [
    ("nvmlDeviceGetPowerUsage", &[Quantity::Power]),
    ("nvmlDeviceGetEnforcedPowerLimit", &[Quantity::PowerLimit]),
    ("nvmlDeviceGetTotalEnergyConsumption", &[Quantity::AveragePower]),
    ("nvmlDeviceGetTemperature", &[Quantity::Temperature]),
    ("nvmlDeviceGetUtilizationRates", &[Quantity::GpuUtilization, Quantity::MemoryUtilization]),
    ("nvmlDeviceGetCurrentClocksEventReasons", &Quantity::CLOCK_REASONS),
    ("nvmlDeviceGetFieldValues", &[Quantity::NvlinkSent, Quantity::NvlinkReceived]),
    ("nvmlGpmSampleGet", &GPM),
    ("nvmlGpmMetricsGet", &GPM),
];
const GPM: [Quantity; 4] =
    [Quantity::SmUtilization, Quantity::SmOccupancy, Quantity::TensorActivity, Quantity::DramBandwidth];

#[test]
fn a_device_is_described_and_read() {
    let stand_in = StandIn::load();
    let mut nvml = stand_in.nvml();
    let [device] = nvml.list() else { panic!("one device") };
    assert_eq!(device.uuid, "GPU-01010101-0101-0101-0101-010101010101");
    assert_eq!((device.name.as_str(), device.pci.as_str()), ("NVIDIA Stand-in", "00000000:01:00.0"));
    assert_eq!((device.max_sm_clock_mhz, device.max_memory_clock_mhz), (Some(1980), Some(3201)));
    assert_eq!((device.memory_bytes, device.slowdown_c), (Some(80 << 30), Some(92)));

    let first = nvml.read(0, 1_000_000_000);
    assert_eq!(value(&first, Quantity::Power), Some(100.0));
    for counted in [Quantity::AveragePower, Quantity::NvlinkSent, Quantity::SmOccupancy] {
        assert_eq!(value(&first, counted), None, "{counted:?}: there is nothing to compare with yet");
    }
    let second = nvml.read(0, 3_000_000_000);
    for (quantity, expected) in [
        (Quantity::Power, 200.0),
        (Quantity::PowerLimit, 700.0),
        // 500 J in two seconds.
        (Quantity::AveragePower, 250.0),
        (Quantity::SmClock, 1980.0),
        (Quantity::MemoryClock, 3201.0),
        (Quantity::Temperature, 61.0),
        // Without what the driver keeps.
        (Quantity::MemoryUsed, f64::from(20 << 10) * 1_048_576.0),
        (Quantity::GpuUtilization, 0.97),
        (Quantity::MemoryUtilization, 0.4),
        (Quantity::SmUtilization, 0.9),
        (Quantity::SmOccupancy, 0.45),
        (Quantity::TensorActivity, 0.6),
        (Quantity::DramBandwidth, 0.3),
        (Quantity::PcieSent, 100.0 * 1_048_576.0),
        (Quantity::PcieReceived, 200.0 * 1_048_576.0),
        (Quantity::NvlinkSent, 524_288.0),
        (Quantity::PowerCapped, 0.0),
        (Quantity::ThermalSlowdown, 0.0),
    ] {
        assert_eq!(value(&second, quantity), Some(expected), "{quantity:?}");
    }
    assert_eq!((nvml.energy(0), nvml.energy(1)), (Some(1_000_000), None), "two readings of 500 J");
    assert_eq!(stand_in.calls("nvmlDeviceGetPcieThroughput"), 0, "GPM told it without a wait of 20 ms");
    let capped = read(&mut nvml, 7);
    assert_eq!(value(&capped, Quantity::PowerCapped), Some(1.0));
    assert_eq!(value(&capped, Quantity::SmClock), Some(1500.0));
}

#[test]
fn what_a_device_refuses_is_missing_and_not_asked_for_again() {
    for (call, missing) in CALLS {
        for code in [3, 4, 13] {
            let stand_in = StandIn::load();
            stand_in.error(call, code);
            let mut nvml = stand_in.nvml();
            let readings = read(&mut nvml, 3);
            for quantity in missing {
                assert_eq!(value(&readings, *quantity), None, "{call}, {code}: {quantity:?}");
            }
            assert!(value(&readings, Quantity::SmClock).is_some(), "{call}: the others are read");
            assert_eq!(stand_in.calls(call), 1, "{call}, {code}");
        }
    }
}

#[test]
fn what_fails_for_a_moment_is_asked_for_again() {
    for (call, quantities) in CALLS {
        let stand_in = StandIn::load();
        let mut nvml = stand_in.nvml();
        read(&mut nvml, 2);
        stand_in.error(call, 999);
        let readings = nvml.read(0, 3_000_000_000);
        assert_eq!(value(&readings, quantities[0]), None, "{call}");
        stand_in.error(call, 0);
        let readings = nvml.read(0, 4_000_000_000);
        assert!(value(&readings, quantities[0]).is_some(), "{call}");
    }
}

#[test]
fn a_device_that_the_driver_has_lost_is_not_asked_any_more() {
    for (call, _) in CALLS {
        let stand_in = StandIn::load();
        let mut nvml = stand_in.nvml();
        read(&mut nvml, 2);
        stand_in.error(call, 15);
        assert_eq!(value(&nvml.read(0, 3_000_000_000), Quantity::Lost), Some(1.0), "{call}");
        let calls = stand_in.calls("nvmlDeviceGetPowerUsage");
        let readings = nvml.read(0, 4_000_000_000);
        assert_eq!(readings.iter().map(|(quantity, _)| quantity).collect::<Vec<_>>(), [Quantity::Lost]);
        assert_eq!(stand_in.calls("nvmlDeviceGetPowerUsage"), calls);
    }
}

#[test]
fn a_device_without_gpm_has_its_pcie_traffic_counted_otherwise() {
    let stand_in = StandIn::load();
    stand_in.error("nvmlGpmQueryDeviceSupport", 3);
    let readings = read(&mut stand_in.nvml(), 2);
    assert_eq!(value(&readings, Quantity::PcieSent), Some(1_000.0 * 1024.0));
    assert_eq!(value(&readings, Quantity::PcieReceived), Some(2_000.0 * 1024.0));
    assert_eq!(value(&readings, Quantity::SmOccupancy), None);
}

#[test]
fn an_older_library_tells_of_memory_by_its_older_function() {
    let stand_in = StandIn::load();
    stand_in.error("nvmlDeviceGetMemoryInfo_v2", 25);
    let readings = read(&mut stand_in.nvml(), 1);
    assert_eq!(value(&readings, Quantity::MemoryUsed), Some(f64::from(21 << 10) * 1_048_576.0));
}

#[test]
fn without_a_library_a_driver_or_a_device_there_are_no_devices() {
    let stand_in = StandIn::load();
    assert!(Nvml::open(&stand_in.path.with_extension("none")).is_none());
    stand_in.error("nvmlInit_v2", 9);
    assert!(Nvml::open(&stand_in.path).is_none());
    let stand_in = StandIn::load();
    for (call, code) in [("nvmlDeviceGetCount_v2", 9), ("nvmlDeviceGetHandleByIndex_v2", 4)] {
        stand_in.error(call, code);
        assert!(stand_in.nvml().list().is_empty(), "{call}");
        stand_in.error(call, 0);
    }
    let foreign = tempfile::NamedTempFile::new().unwrap();
    assert!(Nvml::open(foreign.path()).is_none());
}

#[test]
fn nothing_is_ever_set() {
    let stand_in = StandIn::load();
    let mut nvml = stand_in.nvml();
    read(&mut nvml, 5);
    drop(nvml);
    assert_eq!(stand_in.changes(), 0);
    // The count can fail.
    // SAFETY: the stand-in's functions that change something take nothing.
    let set: extern "C" fn() -> c_int =
        unsafe { std::mem::transmute(stand_in.symbol("nvmlDeviceSetPowerManagementLimit")) };
    set();
    assert_eq!(stand_in.changes(), 1);
}
