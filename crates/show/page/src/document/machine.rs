//! The machine: devices with their limits, driver, host, processes.

use super::Limits;
use super::Source;
use super::figure::{NAME, text};
use super::machine_over_time::MachineOverTime;
use apex_energy::{Energy, Rates};
use serde::Serialize;

/// Bytes of a sentence on the energy of a device.
const SENTENCE: usize = 2_000;

/// Where it ran.
#[derive(Debug, Serialize)]
pub struct Machine {
    devices: Vec<Device>,
    /// Kind of the devices' labels: `GPU` (CUDA ordinals or UUIDs), or `rank`.
    device_heading: &'static str,
    host: Option<Host>,
    processes: Vec<Process>,
    processes_left_out: usize,
    recorder: Recorder,
    /// Its state meanwhile.
    over_time: Option<MachineOverTime>,
    /// The energy that the program's devices took, in words.
    energy: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Device {
    name: String,
    /// Label among the others: see `device_heading`.
    label: String,
    uuid: String,
    /// Ordinal by which the program calls it; `null` if processes call it differently.
    ordinal: Option<u32>,
    compute_capability: Option<(u32, u32)>,
    sms: u32,
    memory_bytes: u64,
    /// 13000 is CUDA 13.0.
    driver_version: u32,
    max_warps_per_sm: Option<u32>,
    max_registers_per_thread: Option<u32>,
    max_threads_per_block: Option<u32>,
    /// With the kernel's consent.
    max_shared_bytes_per_block: Option<u32>,
    /// Its peaks; `null` where its clocks are not known.
    roofs: Option<Roofs>,
}

/// Computed from clocks and widths, in a nanosecond.
#[derive(Debug, Serialize)]
struct Roofs {
    warp_instructions: f64,
    memory_bytes: f64,
}

impl Roofs {
    fn of(device: &apex_profile::Device) -> Option<Self> {
        let device = apex_predict_session::recorded::device(&device.name, &device.attributes).ok()?;
        let (warp_instructions, memory_bytes) = apex_predict::bounds::roofs(&device);
        Some(Self { warp_instructions, memory_bytes })
    }
}

#[derive(Debug, Serialize)]
struct Host {
    name: String,
    kernel: String,
    cpu: String,
    cpus: u32,
    memory_bytes: u64,
}

#[derive(Debug, Serialize)]
struct Process {
    pid: u32,
    rank: Option<usize>,
    executable: String,
    start_ns: f64,
    wall_ns: f64,
    launches: u64,
    ended: bool,
}

/// Cost of recording, and what it missed.
#[derive(Debug, Serialize)]
struct Recorder {
    records: u64,
    timings: u64,
    recording_ns: f64,
    timing_ns: f64,
    dropped: u64,
    overwritten: u64,
}

impl Machine {
    /// With lists of at most these lengths.
    pub fn of(source: &Source<'_>, limits: &Limits) -> Self {
        let most = limits.processes;
        let profile = source.whole;
        let names = profile.device_names();
        let devices = profile.devices.iter().zip(&names.cells).take(most).map(|(device, label)| {
            let limits = device.limits();
            let attributes = limits.as_ref().map(|limits| &limits.attributes);
            Device {
                name: text(&device.name, NAME),
                label: text(label, NAME),
                uuid: text(&device.uuid, NAME),
                ordinal: <[u32; 1]>::try_from(device.ordinals.as_slice()).ok().map(|[ordinal]| ordinal),
                compute_capability: device.compute_capability,
                sms: device.sms,
                memory_bytes: device.memory_bytes,
                driver_version: device.driver_version,
                max_warps_per_sm: limits.as_ref().map(|limits| limits.max_warps_per_sm()),
                max_registers_per_thread: limits.as_ref().map(|limits| limits.max_registers_per_thread),
                max_threads_per_block: attributes.map(|attributes| attributes.max_threads_per_block),
                max_shared_bytes_per_block: attributes
                    .map(|attributes| attributes.max_shared_bytes_per_block_optin),
                roofs: Roofs::of(device),
            }
        });
        let host = source.meta.map(|meta| &meta.host).filter(|host| !host.cpu.is_empty());
        let processes = profile.processes.iter().take(most).map(|process| Process {
            pid: process.pid,
            rank: process.rank,
            executable: text(&process.executable, NAME),
            start_ns: process.start_ns,
            wall_ns: process.wall_ns,
            launches: process.launches,
            ended: process.ended,
        });
        let recorder = &profile.recorder;
        Self {
            devices: devices.collect(),
            device_heading: names.heading,
            host: host.map(|host| Host {
                name: text(&host.name, NAME),
                kernel: text(&host.kernel, NAME),
                cpu: text(&host.cpu, NAME),
                cpus: host.cpus,
                memory_bytes: host.memory_bytes,
            }),
            processes: processes.collect(),
            processes_left_out: profile.processes.len().saturating_sub(most),
            recorder: Recorder {
                records: recorder.records,
                timings: recorder.timings,
                recording_ns: recorder.recording_ns,
                timing_ns: recorder.timing_ns,
                dropped: recorder.dropped,
                overwritten: recorder.overwritten,
            },
            over_time: MachineOverTime::of(source, limits.moments),
            energy: energy(source),
        }
    }
}

/// Sentences on the energy; none where no energy counter was read.
fn energy(source: &Source<'_>) -> Vec<String> {
    let energy = Energy::of(source.machine, source.whole, source.origin_ns, Rates::default());
    let sentences = energy.map_or_else(Vec::new, |energy| apex_view::text::energy::sentences(&energy));
    sentences.iter().map(|sentence| text(sentence, SENTENCE)).collect()
}
