//! A `libnvidia-ml.so.1` without a GPU, for the tests of `apex-machine` and `apex run`.
//!
//! Its devices are alike. What they tell depends on how often their power was asked for, `t` times:
//! power grows by 100 W each time up to the limit of 700 W, at which the clocks are power capped;
//! the counter of energy grows by 500 J, those of NVLink by 1 MiB.
//!
//! | variable | what it makes of the library |
//! | --- | --- |
//! | `FAKE_NVML_DEVICES=n` | there are `n` devices, and not 1 |
//! | `FAKE_NVML_UUID=GPU-…` | the UUID of the first one |
//! | `FAKE_NVML_ERRORS=call=code,…` | these calls return these codes; [`HANGS`] never returns |
//! | `FAKE_NVML_CHANGES=path` | a call that would change a device makes this file |
//! | `FAKE_NVML_LOCK=path` | clocks may be set: this file has the first device's highest clock, as a driver has it for all processes. Without it, setting one is refused: no permission |
//! | `FAKE_NVML_WORKLOAD=name` | clocks, power and energy of the first device are those of `gpu-physics` in real time, under this workload and that lock |

#![allow(clippy::missing_safety_doc, reason = "the contract of each function is the one of nvml.h")]
#![allow(missing_docs, reason = "most items are those of nvml.h")]
#![allow(non_snake_case, reason = "the names are those of nvml.h")]

mod physics;

use physics::{lock_file, physical};
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A code of `FAKE_NVML_ERRORS`: the call does not return.
const HANGS: c_int = 1_000;
const SUCCESS: c_int = 0;
const UNINITIALIZED: c_int = 1;
const INVALID_ARGUMENT: c_int = 2;
const NOT_SUPPORTED: c_int = 3;
const NO_PERMISSION: c_int = 4;
const INSUFFICIENT_SIZE: c_int = 7;
const VERSION_MISMATCH: c_int = 25;
const MOST_DEVICES: usize = 16;

/// The number of readings of each device's power.
static TICKS: [AtomicU64; MOST_DEVICES] = [const { AtomicU64::new(0) }; MOST_DEVICES];
/// Calls that would have changed something.
static CHANGES: AtomicU64 = AtomicU64::new(0);
static STATE: Mutex<State> =
    Mutex::new(State { ready: false, errors: BTreeMap::new(), calls: BTreeMap::new() });

struct State {
    ready: bool,
    errors: BTreeMap<String, c_int>,
    calls: BTreeMap<String, u64>,
}

/// Returns, for tests, the number of calls that would have changed a device.
#[unsafe(no_mangle)]
pub extern "C" fn fake_nvml_changes() -> u64 {
    CHANGES.load(SeqCst)
}

/// Returns, for tests, the number of calls of this function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fake_nvml_calls(name: *const c_char) -> u64 {
    // SAFETY: the test gives text with a zero byte at its end.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    STATE.lock().unwrap_or_else(PoisonError::into_inner).calls.get(&name).copied().unwrap_or(0)
}

/// Lets this function return this code from now on, for tests; 0 for its usual answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fake_nvml_error(name: *const c_char, code: c_int) {
    // SAFETY: the test gives text with a zero byte at its end.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    STATE.lock().unwrap_or_else(PoisonError::into_inner).errors.insert(name, code);
}

/// Counts a call, and gives the code that it is to return.
fn called(name: &str) -> c_int {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    *state.calls.entry(name.to_owned()).or_default() += 1;
    let code = match state.errors.get(name) {
        Some(&code) => code,
        None if !state.ready => UNINITIALIZED,
        None => SUCCESS,
    };
    drop(state);
    if code == HANGS {
        loop {
            std::thread::sleep(Duration::from_secs(3600));
        }
    }
    code
}

fn devices() -> usize {
    let count = std::env::var("FAKE_NVML_DEVICES").ok().and_then(|count| count.parse().ok());
    count.unwrap_or(1).min(MOST_DEVICES)
}

/// Handles are indices plus one.
fn index(device: *mut c_void) -> Option<usize> {
    (device as usize).checked_sub(1).filter(|&index| index < devices())
}

/// Returns the number of readings of the device's power.
fn ticks(index: usize) -> u64 {
    TICKS[index].load(SeqCst)
}

/// Functions that write one value, which they compute from the device's index and further
/// arguments.
macro_rules! getters {
    ($($name:ident($($argument:ident: $type:ty),*) -> $out:ty = |$index:ident| $value:expr;)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(device: *mut c_void, $($argument: $type,)* out: *mut $out) -> c_int {
                let code = called(stringify!($name));
                let Some($index) = index(device).filter(|_| !out.is_null()) else { return INVALID_ARGUMENT };
                if code == SUCCESS {
                    let value: Option<$out> = $value;
                    let Some(value) = value else { return INVALID_ARGUMENT };
                    // SAFETY: the caller keeps to the contract of nvml.h.
                    unsafe { *out = value };
                }
                code
            }
        )*
    };
}

/// `nvmlUtilization_t`.
#[repr(C)]
pub struct Utilization([c_uint; 2]);
/// `nvmlMemory_t`.
#[repr(C)]
pub struct Memory([c_ulonglong; 3]);

/// Power at a tick, milliwatts.
fn power(ticks: u64) -> c_uint {
    u32::try_from(ticks).unwrap_or(u32::MAX).saturating_mul(100_000).min(700_000)
}

getters! {
    nvmlDeviceGetPowerUsage() -> c_uint = |index| match physical(index) {
        Some(read) => Some((read.watts * 1e3) as c_uint),
        None => Some(power(TICKS[index].fetch_add(1, SeqCst) + 1)),
    };
    nvmlDeviceGetEnforcedPowerLimit() -> c_uint = |_index| Some(700_000);
    nvmlDeviceGetTotalEnergyConsumption() -> c_ulonglong = |index| Some(physical(index).map_or(ticks(index) * 500_000, |read| read.millijoules));
    nvmlDeviceGetClockInfo(sort: c_uint) -> c_uint = |index| match sort {
        1 if physical(index).is_some() => physical(index).map(|read| read.mhz),
        1 => Some(if power(ticks(index)) < 700_000 { 1980 } else { 1500 }),
        2 => Some(3201),
        _ => None,
    };
    nvmlDeviceGetMaxClockInfo(sort: c_uint) -> c_uint = |_index| [None, Some(1980), Some(3201)].get(sort as usize).copied().flatten();
    nvmlDeviceGetCurrentClocksEventReasons() -> c_ulonglong = |index| Some(match physical(index) {
        Some(read) => read.reasons,
        None if power(ticks(index)) < 700_000 => 0,
        None => 4,
    });
    nvmlDeviceGetTemperature(sensor: c_uint) -> c_uint = |_index| (sensor == 0).then_some(61);
    nvmlDeviceGetTemperatureThreshold(threshold: c_uint) -> c_uint = |_index| (threshold == 1).then_some(92);
    nvmlDeviceGetUtilizationRates() -> Utilization = |_index| Some(Utilization([97, 40]));
    nvmlDeviceGetMemoryInfo() -> Memory = |_index| Some(Memory([80 << 30, 59 << 30, 21 << 30]));
    nvmlDeviceGetPcieThroughput(counter: c_uint) -> c_uint = |_index| [Some(1_000), Some(2_000)].get(counter as usize).copied().flatten();
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> c_int {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    let errors = std::env::var("FAKE_NVML_ERRORS").unwrap_or_default();
    for (name, code) in errors.split(',').filter_map(|error| error.split_once('=')) {
        state.errors.insert(name.to_owned(), code.parse().unwrap_or(NOT_SUPPORTED));
    }
    state.ready = true;
    drop(state);
    called("nvmlInit_v2")
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCount_v2(count: *mut c_uint) -> c_int {
    let code = called("nvmlDeviceGetCount_v2");
    if code == SUCCESS {
        // SAFETY: the caller keeps to the contract of nvml.h.
        unsafe { *count = devices() as c_uint };
    }
    code
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut *mut c_void) -> c_int {
    let code = called("nvmlDeviceGetHandleByIndex_v2");
    if index as usize >= devices() {
        return INVALID_ARGUMENT;
    }
    if code == SUCCESS {
        // SAFETY: the caller keeps to the contract of nvml.h.
        unsafe { *device = (index as usize + 1) as *mut c_void };
    }
    code
}

/// Writes text with a zero byte, if there is room.
fn write(
    name: &str,
    device: *mut c_void,
    buffer: *mut c_char,
    length: c_uint,
    text: impl Fn(usize) -> String,
) -> c_int {
    let code = called(name);
    let Some(index) = index(device) else { return INVALID_ARGUMENT };
    let text = text(index);
    if text.len() >= length as usize {
        return INSUFFICIENT_SIZE;
    }
    if code == SUCCESS {
        // SAFETY: the caller's buffer has this length, and the text is shorter.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr().cast(), buffer, text.len());
            *buffer.add(text.len()) = 0;
        }
    }
    code
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetUUID(device: *mut c_void, buffer: *mut c_char, length: c_uint) -> c_int {
    write("nvmlDeviceGetUUID", device, buffer, length, |index| {
        let first = std::env::var("FAKE_NVML_UUID").ok().filter(|_| index == 0);
        first.unwrap_or_else(|| {
            let pair = format!("{:02x}", index + 1);
            let part = |pairs| pair.repeat(pairs);
            format!("GPU-{}-{}-{}-{}-{}", part(4), part(2), part(2), part(2), part(6))
        })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetName(device: *mut c_void, buffer: *mut c_char, length: c_uint) -> c_int {
    write("nvmlDeviceGetName", device, buffer, length, |_| "NVIDIA Stand-in".to_owned())
}

/// `nvmlPciInfo_t`.
#[repr(C)]
pub struct PciInfo {
    legacy: [c_char; 16],
    numbers: [c_uint; 5],
    bus_id: [c_char; 32],
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetPciInfo_v3(device: *mut c_void, out: *mut PciInfo) -> c_int {
    // SAFETY: the caller gives the structure of nvml.h, which has room for the text.
    let (buffer, length) = unsafe { ((&raw mut (*out).bus_id).cast(), 32) };
    write("nvmlDeviceGetPciInfo_v3", device, buffer, length, |index| {
        format!("00000000:{:02X}:00.0", index + 1)
    })
}

/// `nvmlMemory_v2_t`.
#[repr(C)]
pub struct MemoryV2 {
    version: c_uint,
    bytes: [c_ulonglong; 4],
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(device: *mut c_void, out: *mut MemoryV2) -> c_int {
    let code = called("nvmlDeviceGetMemoryInfo_v2");
    // SAFETY: the caller gives the structure of nvml.h.
    let out = unsafe { &mut *out };
    if out.version != size_of::<MemoryV2>() as c_uint | 2 << 24 {
        return VERSION_MISMATCH;
    }
    if index(device).is_some() && code == SUCCESS {
        out.bytes = [80 << 30, 1 << 30, 59 << 30, 20 << 30];
    }
    code
}

/// `nvmlFieldValue_t`.
#[repr(C)]
pub struct FieldValue {
    field: c_uint,
    scope: c_uint,
    times: [i64; 2],
    value_type: c_uint,
    returned: c_int,
    value: u64,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetFieldValues(
    device: *mut c_void,
    count: c_int,
    fields: *mut FieldValue,
) -> c_int {
    let code = called("nvmlDeviceGetFieldValues");
    let (Some(index), Ok(count)) = (index(device), usize::try_from(count)) else { return INVALID_ARGUMENT };
    // SAFETY: the caller gives so many fields.
    for field in unsafe { std::slice::from_raw_parts_mut(fields, count) } {
        field.returned = if matches!(field.field, 138 | 139) && field.scope == c_uint::MAX {
            SUCCESS
        } else {
            NOT_SUPPORTED
        };
        field.value = ticks(index) * 1024;
    }
    code
}

/// `nvmlGpmSupport_t`.
#[repr(C)]
pub struct GpmSupport([c_uint; 2]);

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpmQueryDeviceSupport(_: *mut c_void, out: *mut GpmSupport) -> c_int {
    let code = called("nvmlGpmQueryDeviceSupport");
    // SAFETY: the caller gives the structure of nvml.h.
    let out = unsafe { &mut *out };
    if out.0[0] != 1 {
        return VERSION_MISMATCH;
    }
    out.0[1] = 1;
    code
}

/// A sample is when it was taken: 0 while it is empty.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpmSampleAlloc(sample: *mut *mut AtomicU64) -> c_int {
    let code = called("nvmlGpmSampleAlloc");
    if code == SUCCESS {
        // SAFETY: the caller keeps to the contract of nvml.h.
        unsafe { *sample = Box::into_raw(Box::new(AtomicU64::new(0))) };
    }
    code
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpmSampleGet(device: *mut c_void, sample: *mut AtomicU64) -> c_int {
    static SAMPLES: AtomicU64 = AtomicU64::new(0);
    let code = called("nvmlGpmSampleGet");
    if index(device).is_some() && code == SUCCESS {
        // SAFETY: the sample is one of this library.
        unsafe { (*sample).store(SAMPLES.fetch_add(1, SeqCst) + 1, SeqCst) };
    }
    code
}

/// `nvmlGpmMetric_t`.
#[repr(C)]
pub struct GpmMetric {
    metric: c_uint,
    returned: c_int,
    value: f64,
    names: [*const c_char; 3],
}

/// `nvmlGpmMetricsGet_t`, without the metrics.
#[repr(C)]
pub struct GpmMetricsGet {
    version: c_uint,
    count: c_uint,
    samples: [*mut AtomicU64; 2],
    metrics: [GpmMetric; 0],
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpmMetricsGet(out: *mut GpmMetricsGet) -> c_int {
    let code = called("nvmlGpmMetricsGet");
    // SAFETY: the caller gives the structure of nvml.h, and samples of this library.
    let (version, count, [earlier, later]) = unsafe {
        let taken = (*out).samples.map(|sample| (*sample).load(SeqCst));
        ((*out).version, (*out).count, taken)
    };
    if version != 1 {
        return VERSION_MISMATCH;
    }
    if earlier == 0 || later <= earlier {
        return INVALID_ARGUMENT;
    }
    // SAFETY: so many metrics follow.
    let metrics = unsafe {
        std::slice::from_raw_parts_mut((&raw mut (*out).metrics).cast::<GpmMetric>(), count as usize)
    };
    for metric in metrics {
        let value = match metric.metric {
            2 => Some(90.0),
            3 => Some(45.0),
            5 => Some(60.0),
            10 => Some(30.0),
            20 => Some(100.0),
            21 => Some(200.0),
            _ => None,
        };
        metric.returned = if value.is_some() { SUCCESS } else { NOT_SUPPORTED };
        metric.value = value.unwrap_or(f64::NAN);
    }
    code
}

/// Counts a call that changes a device.
fn changed(name: &str) {
    CHANGES.fetch_add(1, SeqCst);
    if let Ok(path) = std::env::var("FAKE_NVML_CHANGES") {
        // The test that looks for the file fails where it is missing.
        let _ = std::fs::write(path, name);
    }
}

/// Sets the highest clock of a device, or releases it.
fn lock(name: &str, device: *mut c_void, mhz: Option<c_uint>) -> c_int {
    changed(name);
    let (code, Some(index)) = (called(name), index(device)) else { return INVALID_ARGUMENT };
    let Some(file) = lock_file().filter(|_| index == 0) else { return NO_PERMISSION };
    let is_legal =
        |mhz: c_uint| LEGAL.contains(&mhz) && (mhz - gpu_physics::LOWEST).is_multiple_of(gpu_physics::STEP);
    if !mhz.is_none_or(is_legal) {
        return INVALID_ARGUMENT;
    }
    if code == SUCCESS {
        file.write(mhz);
    }
    code
}

/// Legal clocks, MHz.
const LEGAL: std::ops::RangeInclusive<c_uint> = gpu_physics::LOWEST..=gpu_physics::HIGHEST;

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceSetGpuLockedClocks(
    device: *mut c_void,
    lowest: c_uint,
    highest: c_uint,
) -> c_int {
    match LEGAL.contains(&lowest) && lowest <= highest {
        true => lock("nvmlDeviceSetGpuLockedClocks", device, Some(highest)),
        false => INVALID_ARGUMENT,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceResetGpuLockedClocks(device: *mut c_void) -> c_int {
    lock("nvmlDeviceResetGpuLockedClocks", device, None)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetSupportedGraphicsClocks(
    device: *mut c_void,
    _memory: c_uint,
    count: *mut c_uint,
    clocks: *mut c_uint,
) -> c_int {
    let code = called("nvmlDeviceGetSupportedGraphicsClocks");
    let legal: Vec<c_uint> = LEGAL.rev().step_by(gpu_physics::STEP as usize).collect();
    // SAFETY: the caller keeps to the contract of nvml.h.
    let room = std::mem::replace(unsafe { &mut *count }, legal.len() as c_uint);
    if index(device).is_none() {
        return INVALID_ARGUMENT;
    }
    if (room as usize) < legal.len() {
        return INSUFFICIENT_SIZE;
    }
    // SAFETY: there is room for so many clocks.
    unsafe { std::ptr::copy_nonoverlapping(legal.as_ptr(), clocks, legal.len()) };
    code
}

/// Defines functions that would change a device, or the machine: each call is counted.
macro_rules! changes {
    ($($name:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            pub extern "C" fn $name() -> c_int {
                changed(stringify!($name));
                SUCCESS
            }
        )*
    };
}

changes! {
    nvmlDeviceClearAccountingPids nvmlDeviceClearCpuAffinity nvmlDeviceClearEccErrorCounts nvmlDeviceClearFieldValues
    nvmlDeviceCreateGpuInstance nvmlDeviceCreateGpuInstanceWithPlacement nvmlDeviceFreezeNvLinkUtilizationCounter
    nvmlDeviceModifyDrainState nvmlDevicePowerSmoothingActivatePresetProfile nvmlDevicePowerSmoothingSetState
    nvmlDevicePowerSmoothingUpdatePresetProfileParam nvmlDeviceRegisterEvents nvmlDeviceRemoveGpu nvmlDeviceRemoveGpu_v2
    nvmlDeviceResetApplicationsClocks nvmlDeviceResetMemoryLockedClocks
    nvmlDeviceResetNvLinkErrorCounters nvmlDeviceResetNvLinkUtilizationCounter nvmlDeviceSetAPIRestriction
    nvmlDeviceSetAccountingMode nvmlDeviceSetApplicationsClocks nvmlDeviceSetAutoBoostedClocksEnabled
    nvmlDeviceSetClockOffsets nvmlDeviceSetComputeMode nvmlDeviceSetConfComputeUnprotectedMemSize
    nvmlDeviceSetCpuAffinity nvmlDeviceSetDefaultAutoBoostedClocksEnabled nvmlDeviceSetDefaultFanSpeed_v2
    nvmlDeviceSetDramEncryptionMode nvmlDeviceSetDriverModel nvmlDeviceSetEccMode nvmlDeviceSetFanControlPolicy
    nvmlDeviceSetFanSpeed_v2 nvmlDeviceSetGpcClkVfOffset nvmlDeviceSetGpuOperationMode
    nvmlDeviceSetMemClkVfOffset nvmlDeviceSetMemoryLockedClocks nvmlDeviceSetMigMode
    nvmlDeviceSetNvLinkDeviceLowPowerThreshold nvmlDeviceSetNvLinkUtilizationControl nvmlDeviceSetNvlinkBwMode
    nvmlDeviceSetPersistenceMode nvmlDeviceSetPowerManagementLimit nvmlDeviceSetPowerManagementLimit_v2
    nvmlDeviceSetTemperatureThreshold nvmlDeviceSetVgpuCapabilities nvmlDeviceSetVgpuHeterogeneousMode
    nvmlDeviceSetVgpuSchedulerState nvmlDeviceSetVirtualizationMode nvmlDeviceWorkloadPowerProfileClearRequestedProfiles
    nvmlDeviceWorkloadPowerProfileSetRequestedProfiles nvmlGpmSetStreamingEnabled nvmlGpuInstanceCreateComputeInstance
    nvmlGpuInstanceDestroy nvmlComputeInstanceDestroy nvmlSetVgpuVersion nvmlSystemSetConfComputeGpusReadyState
    nvmlSystemSetConfComputeKeyRotationThresholdInfo nvmlSystemSetNvlinkBwMode nvmlUnitSetLedState
    nvmlVgpuInstanceClearAccountingPids nvmlVgpuInstanceSetEncoderCapacity
}
