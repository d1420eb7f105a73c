//! Devices as NVIDIA's management library (NVML) reports them.
//!
//! Each reading is requested separately. A reading that a device refuses permanently
//! (`NOT_SUPPORTED`, `NO_PERMISSION`) is not requested again, and nothing is requested from a
//! device that the driver has lost.

mod library;

use crate::quantity::Quantity;
use crate::record::{Device, Readings};
use crate::sampler::Devices;
use library::*;
use std::collections::BTreeSet;
use std::ffi::{c_char, c_int, c_uint, c_ulonglong};
use std::path::Path;

/// The name by which the dynamic linker finds NVML.
const LIBRARY: &str = "libnvidia-ml.so.1";
/// Devices that are read at most.
const MOST_DEVICES: u32 = 64;
/// Bytes of a name.
const NAME: usize = 128;
/// Bytes in a MiB, the unit of GPM's traffic.
const MIB: f64 = 1_048_576.0;

/// `nvmlClocksEventReason…`: which bits say that a reason holds.
const REASONS: [(u64, Quantity); 8] = [
    (0x4, Quantity::PowerCapped),
    (0x20 | 0x40, Quantity::ThermalSlowdown),
    (0x80, Quantity::PowerBrake),
    (0x2, Quantity::ClocksSet),
    (0x10, Quantity::SyncBoost),
    (0x100, Quantity::DisplayClocks),
    (0x200, Quantity::BoardLimit),
    (0x400, Quantity::ReliabilityLimit),
];
/// `GpuIdle`: the clocks are low because nothing runs.
const IDLE: u64 = 0x1;
/// `HwSlowdown`, which is also set with each of its causes.
const HARDWARE_SLOWDOWN: u64 = 0x8;
const CAUSES_OF_HARDWARE_SLOWDOWN: u64 = 0x40 | 0x80;

/// `NVML_GPM_METRIC_…`, what it tells, and by what its value is multiplied.
const GPM: [(c_uint, Quantity, f64); 8] = [
    (2, Quantity::SmUtilization, 0.01),
    (3, Quantity::SmOccupancy, 0.01),
    (5, Quantity::TensorActivity, 0.01),
    (10, Quantity::DramBandwidth, 0.01),
    (20, Quantity::PcieSent, MIB),
    (21, Quantity::PcieReceived, MIB),
    (60, Quantity::NvlinkReceived, MIB),
    (61, Quantity::NvlinkSent, MIB),
];

/// Sets the quantity of each reason for low clocks from the bits that NVML tells.
fn set_reasons(found: u64, readings: &mut Readings) {
    let holds = |is: bool| f64::from(u8::from(is));
    for (bits, quantity) in REASONS {
        readings.set(quantity, holds(found & bits != 0));
    }
    let other = found & HARDWARE_SLOWDOWN != 0 && found & CAUSES_OF_HARDWARE_SLOWDOWN == 0;
    readings.set(Quantity::HardwareSlowdown, holds(other));
    let known = REASONS.iter().fold(IDLE | HARDWARE_SLOWDOWN, |known, (bits, _)| known | bits);
    let unknown = found & !known;
    readings.set(Quantity::OtherClockReason, holds(unknown != 0));
    if unknown != 0 {
        readings.set(Quantity::OtherClockReasonBits, unknown as f64);
    }
}

/// NVML, ready to be asked.
pub struct Nvml {
    functions: Functions,
    devices: Vec<Device>,
    asked: Vec<Asked>,
    metrics: Box<GpmMetricsGet>,
}

// SAFETY: NVML may be called from any thread; the handles in here belong to the library, and
// nothing else has them.
unsafe impl Send for Nvml {}

/// A device, without its readings.
struct Asked {
    handle: Handle,
    refused: BTreeSet<&'static str>,
    is_lost: bool,
    /// The time of the last reading of the counter of energy, and its millijoules.
    energy: Option<(u64, u64)>,
    /// The time of the last reading of NVLink's counters, and the KiB sent and received.
    nvlink: Option<(u64, [u64; 2])>,
    gpm: Option<GpmSamples>,
}

/// Two samples, between which GPM computes its metrics.
struct GpmSamples {
    samples: [Sample; 2],
    /// The sample that was taken last; `None` before the first.
    last: Option<usize>,
}

impl Nvml {
    /// Loads NVML from where the dynamic linker finds it; `None` without one, or without a driver.
    pub fn load() -> Option<Self> {
        Self::open(Path::new(LIBRARY))
    }

    /// Loads NVML from this file.
    pub fn open(library: &Path) -> Option<Self> {
        let functions = Functions::open(library)?;
        // SAFETY: takes nothing.
        if unsafe { functions.init?() } != SUCCESS {
            return None;
        }
        let metric = GpmMetric { metric: 0, returned: 0, value: 0.0, names: [std::ptr::null(); 3] };
        let none = std::ptr::null_mut();
        let metrics = GpmMetricsGet {
            version: GPM_VERSION,
            count: GPM.len() as c_uint,
            earlier: none,
            later: none,
            metrics: [metric; GPM_METRICS],
        };
        let mut nvml = Self { functions, devices: Vec::new(), asked: Vec::new(), metrics: Box::new(metrics) };
        nvml.find_devices();
        Some(nvml)
    }

    fn find_devices(&mut self) {
        let Functions { count, handle, .. } = self.functions;
        let (Some(count), Some(handle)) = (count, handle) else { return };
        let mut devices = 0;
        // SAFETY: a writable number.
        if unsafe { count(&raw mut devices) } != SUCCESS {
            return;
        }
        for index in 0..devices.min(MOST_DEVICES) {
            let mut found = std::ptr::null_mut();
            // SAFETY: a writable handle. A device that refuses, of another user's, is left out.
            if unsafe { handle(index, &raw mut found) } == SUCCESS {
                let mut asked = Asked::new(found);
                self.devices.push(asked.describe(&self.functions));
                asked.prepare_gpm(&self.functions);
                self.asked.push(asked);
            }
        }
    }
}

impl Devices for Nvml {
    fn list(&self) -> &[Device] {
        &self.devices
    }

    fn energy(&mut self, index: usize) -> Option<u64> {
        self.asked.get_mut(index)?.counted_energy(&self.functions)
    }

    fn read(&mut self, index: usize, now_ns: u64) -> Readings {
        let mut readings = Readings::default();
        let Some(asked) = self.asked.get_mut(index) else { return readings };
        let functions = &self.functions;
        asked.read_state(functions, &mut readings);
        asked.read_energy(functions, now_ns, &mut readings);
        asked.read_nvlink(functions, now_ns, &mut readings);
        asked.read_gpm(functions, &mut self.metrics, &mut readings);
        if asked.gpm.is_none() {
            asked.read_pcie(functions, &mut readings);
        }
        if asked.is_lost {
            readings.set(Quantity::Lost, 1.0);
        }
        readings
    }
}

impl Asked {
    fn new(handle: Handle) -> Self {
        let refused = BTreeSet::new();
        Self { handle, refused, is_lost: false, energy: None, nvlink: None, gpm: None }
    }

    /// Asks for what `what` names, and says whether there was an answer.
    fn ask(&mut self, what: &'static str, call: impl FnOnce(Handle) -> Return) -> bool {
        if self.is_lost || self.refused.contains(what) {
            return false;
        }
        match call(self.handle) {
            SUCCESS => return true,
            GPU_IS_LOST => self.is_lost = true,
            INVALID_ARGUMENT
            | NOT_SUPPORTED
            | NO_PERMISSION
            | FUNCTION_NOT_FOUND
            | ARGUMENT_VERSION_MISMATCH
            | DEPRECATED => {
                self.refused.insert(what);
            }
            // Another time there may be an answer.
            _ => {}
        }
        false
    }

    /// Asks for a number.
    fn number<T: Default>(
        &mut self,
        what: &'static str,
        call: impl FnOnce(Handle, *mut T) -> Return,
    ) -> Option<T> {
        let mut value = T::default();
        self.ask(what, |handle| call(handle, &raw mut value)).then_some(value)
    }

    /// Asks by a function for a number of one sort: a clock, a temperature.
    fn of_sort(
        &mut self,
        what: &'static str,
        function: Option<unsafe extern "C" fn(Handle, c_uint, *mut c_uint) -> Return>,
        sort: c_uint,
    ) -> Option<u32> {
        let function = function?;
        // SAFETY: the handle is NVML's, the number is writable.
        self.number(what, |handle, value| unsafe { function(handle, sort, value) })
    }

    fn describe(&mut self, functions: &Functions) -> Device {
        let mut text_of =
            |what, function: Option<unsafe extern "C" fn(Handle, *mut c_char, c_uint) -> Return>| {
                let mut buffer = [0; NAME];
                // SAFETY: the buffer has the length that is stated.
                let call = |handle| unsafe {
                    function
                        .map_or(FUNCTION_NOT_FOUND, |ask| ask(handle, buffer.as_mut_ptr(), NAME as c_uint))
                };
                if self.ask(what, call) { text(&buffer) } else { String::new() }
            };
        let (uuid, name) = (text_of("uuid", functions.uuid), text_of("name", functions.name));
        let pci = functions.pci.and_then(|ask| {
            // SAFETY: the handle is NVML's, the structure is writable.
            self.number("pci", |handle, pci: *mut PciInfo| unsafe { ask(handle, pci) })
        });
        Device {
            uuid,
            name,
            pci: pci.map_or_else(String::new, |pci| text(&pci.bus_id)),
            memory_bytes: self.memory(functions).map(|(total, _)| total),
            max_sm_clock_mhz: self.of_sort("max SM clock", functions.max_clock, CLOCK_SM),
            max_memory_clock_mhz: self.of_sort("max memory clock", functions.max_clock, CLOCK_MEMORY),
            slowdown_c: self.of_sort("slowdown", functions.threshold, THRESHOLD_SLOWDOWN),
        }
    }

    /// Bytes of memory, and those in use.
    fn memory(&mut self, functions: &Functions) -> Option<(u64, u64)> {
        if let Some(ask) = functions.memory_v2 {
            let found = self.number("memory v2", |handle, memory: *mut MemoryV2| {
                // SAFETY: the handle is NVML's, the structure is writable and states its version.
                unsafe {
                    (*memory).version = MEMORY_V2;
                    ask(handle, memory)
                }
            });
            if let Some(memory) = found {
                return Some((memory.total, memory.used));
            }
        }
        let ask = functions.memory?;
        // SAFETY: the handle is NVML's, the structure is writable.
        let memory = self.number("memory", |handle, memory: *mut Memory| unsafe { ask(handle, memory) })?;
        Some((memory.total, memory.used))
    }

    /// Reads the present state: power, clocks and what limits them, temperature, memory,
    /// utilisation.
    fn read_state(&mut self, functions: &Functions, readings: &mut Readings) {
        let milliwatts = [
            ("power", functions.power, Quantity::Power),
            ("power limit", functions.power_limit, Quantity::PowerLimit),
        ];
        for (what, function, quantity) in milliwatts {
            let ask = |ask: unsafe extern "C" fn(Handle, *mut c_uint) -> Return| {
                // SAFETY: the handle is NVML's, the number is writable.
                self.number(what, |handle, value| unsafe { ask(handle, value) })
            };
            if let Some(found) = function.and_then(ask) {
                readings.set(quantity, f64::from(found) / 1e3);
            }
        }
        let of_sort = [
            ("SM clock", functions.clock, CLOCK_SM, Quantity::SmClock),
            ("memory clock", functions.clock, CLOCK_MEMORY, Quantity::MemoryClock),
            ("temperature", functions.temperature, TEMPERATURE_GPU, Quantity::Temperature),
        ];
        for (what, function, sort, quantity) in of_sort {
            if let Some(found) = self.of_sort(what, function, sort) {
                readings.set(quantity, f64::from(found));
            }
        }
        if let Some((_, used)) = self.memory(functions) {
            readings.set(Quantity::MemoryUsed, used as f64);
        }
        let utilization = functions.utilization.and_then(|ask| {
            // SAFETY: the handle is NVML's, the structure is writable.
            self.number("utilization", |handle, found: *mut Utilization| unsafe { ask(handle, found) })
        });
        if let Some(found) = utilization {
            readings.set(Quantity::GpuUtilization, f64::from(found.gpu) / 100.0);
            readings.set(Quantity::MemoryUtilization, f64::from(found.memory) / 100.0);
        }
        self.read_reasons(functions, readings);
    }

    fn read_reasons(&mut self, functions: &Functions, readings: &mut Readings) {
        let found = functions.clock_reasons.or(functions.throttle_reasons).and_then(|ask| {
            // SAFETY: the handle is NVML's, the number is writable.
            self.number("clock reasons", |handle, found: *mut c_ulonglong| unsafe { ask(handle, found) })
        });
        if let Some(found) = found {
            set_reasons(found, readings);
        }
    }

    /// Millijoules since the driver was loaded.
    fn counted_energy(&mut self, functions: &Functions) -> Option<u64> {
        let ask = functions.energy?;
        // SAFETY: the handle is NVML's, the number is writable.
        self.number("energy", |handle, found: *mut c_ulonglong| unsafe { ask(handle, found) })
    }

    fn read_energy(&mut self, functions: &Functions, now_ns: u64, readings: &mut Readings) {
        let Some(millijoules) = self.counted_energy(functions) else { return };
        if let Some((then, before)) = self.energy.replace((now_ns, millijoules))
            && let Some(rate) = rate(then, now_ns, before, millijoules)
        {
            readings.set(Quantity::AveragePower, rate / 1e3);
        }
    }

    fn read_nvlink(&mut self, functions: &Functions, now_ns: u64, readings: &mut Readings) {
        let Some(ask) = functions.fields else { return };
        let field = |field| FieldValue { field, scope: ALL_LINKS, ..FieldValue::default() };
        let mut fields = [field(FIELD_NVLINK_SENT), field(FIELD_NVLINK_RECEIVED)];
        let answered = self.ask("NVLink", |handle| {
            // SAFETY: the handle is NVML's, there are as many fields as is stated.
            let returned = unsafe { ask(handle, fields.len() as c_int, fields.as_mut_ptr()) };
            // Each field has an answer of its own.
            if returned == SUCCESS { fields[0].returned } else { returned }
        });
        if !answered || fields[1].returned != SUCCESS {
            return;
        }
        let found = fields.map(|field| field.value);
        if let Some((then, before)) = self.nvlink.replace((now_ns, found)) {
            for (at, quantity) in [Quantity::NvlinkSent, Quantity::NvlinkReceived].into_iter().enumerate() {
                if let Some(rate) = rate(then, now_ns, before[at], found[at]) {
                    readings.set(quantity, rate * 1024.0);
                }
            }
        }
    }

    /// Traffic over PCIe, of a device without GPM. NVML counts for 20 ms in each of both calls.
    fn read_pcie(&mut self, functions: &Functions, readings: &mut Readings) {
        let directions = [
            ("PCIe sent", PCIE_SENT, Quantity::PcieSent),
            ("PCIe received", PCIE_RECEIVED, Quantity::PcieReceived),
        ];
        for (what, direction, quantity) in directions {
            if let Some(found) = self.of_sort(what, functions.pcie, direction) {
                readings.set(quantity, f64::from(found) * 1024.0);
            }
        }
    }

    /// Allocates the two samples of a device that has GPM.
    fn prepare_gpm(&mut self, functions: &Functions) {
        let Functions { gpm_support: Some(support), gpm_alloc: Some(alloc), .. } = *functions else { return };
        let mut supported = GpmSupport { version: GPM_VERSION, is_supported: 0 };
        // SAFETY: the handle is NVML's, the structure is writable and states its version.
        let answered = self.ask("GPM", |handle| unsafe { support(handle, &raw mut supported) });
        if !answered || supported.is_supported == 0 {
            return;
        }
        let mut samples = [std::ptr::null_mut(); 2];
        // SAFETY: writable pointers. What they get is kept as long as the process lives.
        let allocated = samples.iter_mut().all(|sample| unsafe { alloc(sample) } == SUCCESS);
        self.gpm = allocated.then_some(GpmSamples { samples, last: None });
    }

    fn read_gpm(&mut self, functions: &Functions, metrics: &mut GpmMetricsGet, readings: &mut Readings) {
        let Functions { gpm_sample: Some(take), gpm_metrics: Some(compute), .. } = *functions else { return };
        let Some(GpmSamples { samples, last }) = &self.gpm else { return };
        let (samples, last) = (*samples, *last);
        let next = last.map_or(0, |last| 1 - last);
        // SAFETY: the handle and the sample are NVML's.
        if !self.ask("GPM sample", |handle| unsafe { take(handle, samples[next]) }) {
            return self.give_gpm_up_if_refused();
        }
        self.gpm = Some(GpmSamples { samples, last: Some(next) });
        let Some(last) = last else { return };
        (metrics.earlier, metrics.later) = (samples[last], samples[next]);
        for (metric, (identifier, ..)) in metrics.metrics.iter_mut().zip(GPM) {
            (metric.metric, metric.returned, metric.value) = (identifier, NOT_SUPPORTED, 0.0);
        }
        // SAFETY: the structure states its version and how many metrics it asks for, and has both
        // samples of this device.
        if self.ask("GPM metrics", |_| unsafe { compute(&raw mut *metrics) }) {
            for (metric, (_, quantity, factor)) in metrics.metrics.iter().zip(GPM) {
                if metric.returned == SUCCESS {
                    readings.set(quantity, metric.value * factor);
                }
            }
        }
        self.give_gpm_up_if_refused();
    }

    fn give_gpm_up_if_refused(&mut self) {
        if ["GPM sample", "GPM metrics"].iter().any(|call| self.refused.contains(call)) {
            self.gpm = None;
        }
    }
}

/// Returns the growth of a counter per second; `None` if it was set back.
fn rate(then_ns: u64, now_ns: u64, before: u64, after: u64) -> Option<f64> {
    let (ns, grown) = (now_ns.checked_sub(then_ns)?, after.checked_sub(before)?);
    (ns > 0).then(|| grown as f64 / (ns as f64 / 1e9))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_of_the_clock_reasons_is_kept() {
        let reasons = |bits: u64| {
            let mut readings = Readings::default();
            set_reasons(bits, &mut readings);
            let held = Quantity::CLOCK_REASONS.into_iter();
            let held: Vec<_> =
                held.filter(|reason| readings.get(*reason).is_some_and(|span| span.mean == 1.0)).collect();
            (held, readings.get(Quantity::OtherClockReasonBits).map(|span| span.most))
        };
        assert_eq!(reasons(0), (vec![], None));
        assert_eq!(reasons(IDLE), (vec![], None));
        for (bit, quantity) in [
            (0x2, Quantity::ClocksSet),
            (0x4, Quantity::PowerCapped),
            (0x8, Quantity::HardwareSlowdown),
            (0x10, Quantity::SyncBoost),
            (0x20, Quantity::ThermalSlowdown),
            (0x48, Quantity::ThermalSlowdown),
            (0x88, Quantity::PowerBrake),
            (0x100, Quantity::DisplayClocks),
            (0x200, Quantity::BoardLimit),
            (0x400, Quantity::ReliabilityLimit),
        ] {
            assert_eq!(reasons(bit), (vec![quantity], None), "{bit:#x}");
        }
        for bit in 11..53 {
            let expected = (vec![Quantity::OtherClockReason], Some((1u64 << bit) as f64));
            assert_eq!(reasons(1 << bit | IDLE), expected, "bit {bit}");
        }
    }
}
