//! The sums over one session.

use crate::format::Series;
use crate::metric::{
    ALLOCATED_BYTES, ALLOCATIONS, COPIED_BYTES, COPIES, DISK, DROPPED, FAILED, GPU_BUSY, GPU_ENERGY,
    GPU_IDLE, GPU_UNKNOWN, GRAPH_LAUNCHES, LAUNCH_SECONDS, LAUNCHES, RECORDS, RUNNING, SYNCHRONIZE_SECONDS,
    TIMING_SECONDS, UNREAD,
};
use apex_kernel_names::identify;
use apex_live::Snapshot;
use apex_machine::Machine;
use apex_profile::{Account, Activity, CopyDirection, IdleCause, memory_kind_name};
use apex_trace::Process;
use apex_trace::layout::{CallClass, MemoryKind};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;

/// The kernels that have no series of their own.
const OTHER: &str = "other";

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct SessionSums {
    /// The sums by process file: a file that vanishes keeps its counts.
    processes: BTreeMap<PathBuf, Sums>,
    /// Kernels with a series of their own.
    admitted: BTreeSet<String>,
    /// The identities of functions by symbol: short name and operation.
    names: HashMap<String, (String, &'static str)>,
    /// The seconds by device.
    devices: BTreeMap<String, DeviceSeconds>,
    /// The devices that each process has used.
    used: BTreeSet<(u32, String)>,
    /// The energy counters of these devices.
    energy: BTreeMap<String, Counter>,
    pub running: usize,
    pub unread_bytes: u64,
    /// The start of the session, in nanoseconds since 1970; 0 if it is unknown.
    pub began_ns: u64,
    disk_bytes: u64,
}

/// The sums over one process since its start.
#[derive(Debug, Default)]
struct Sums {
    /// The launches by device and short name.
    launches: BTreeMap<(String, String), u64>,
    graph_launches: u64,
    failed: u64,
    launch_seconds: f64,
    synchronize_seconds: f64,
    copies: BTreeMap<CopyDirection, (u64, u64)>,
    allocations: BTreeMap<MemoryKind, (u64, u64)>,
    records: u64,
    dropped: u64,
    overwritten: u64,
    timing_seconds: f64,
}

#[derive(Debug, Default)]
struct DeviceSeconds {
    busy: BTreeMap<&'static str, f64>,
    idle: BTreeMap<IdleCause, f64>,
    unknown: f64,
}

/// The energy counter of a device.
#[derive(Debug)]
struct Counter {
    /// When it was read last, nanoseconds of the machine's clock, and its millijoules.
    last: (u64, u64),
    /// What it moved by since it was read first.
    millijoules: u64,
}

impl Counter {
    /// Takes a reading, unless it was taken before. A driver that was loaded again counts from
    /// zero.
    fn take(&mut self, at_ns: u64, millijoules: u64) {
        if at_ns > self.last.0 {
            self.millijoules += millijoules.saturating_sub(self.last.1);
            self.last = (at_ns, millijoules);
        }
    }
}

/// As label values have it.
fn cause_label(cause: IdleCause) -> &'static str {
    match cause {
        IdleCause::Launching => "launching",
        IdleCause::Allocating => "allocating",
        IdleCause::Transferring => "transferring",
        IdleCause::Synchronising => "synchronizing",
        IdleCause::Loading => "loading_code",
        IdleCause::Capturing => "capturing_graphs",
        IdleCause::OtherCalls => "other_calls",
        IdleCause::HostCode => "host_code",
        IdleCause::Unrecorded => "unrecorded",
    }
}

fn direction_label(direction: CopyDirection) -> &'static str {
    match direction {
        CopyDirection::HostToDevice => "host_to_device",
        CopyDirection::DeviceToHost => "device_to_host",
        CopyDirection::DeviceToDevice => "device_to_device",
        CopyDirection::PeerToPeer => "peer_to_peer",
        CopyDirection::HostToHost => "host_to_host",
        CopyDirection::Other => "other",
    }
}

impl SessionSums {
    /// Takes what was counted since the start; at most `top` kernels get a series.
    pub fn count(&mut self, snapshot: &Snapshot, top: usize) {
        for process in &snapshot.session.processes {
            let sums = self.sums_of(process);
            self.processes.insert(process.file.clone(), sums);
        }
        self.running = snapshot.running.len();
        self.began_ns = snapshot.session.meta.as_ref().map_or(0, |meta| meta.started_real_ns);
        self.unread_bytes = snapshot.since_start.unread_bytes;
        self.disk_bytes = snapshot.since_start.disk_bytes;
        self.admit(top);
    }

    fn sums_of(&mut self, process: &Process) -> Sums {
        let (totals, seconds) = (&process.totals, |ticks| process.clock.duration_ns(ticks) as f64 / 1e9);
        let mut sums = Sums {
            graph_launches: totals.graph_launches,
            failed: totals.failed,
            launch_seconds: seconds(totals.launch_ticks),
            records: process.record_count,
            dropped: process.dropped,
            overwritten: process.overwritten,
            timing_seconds: process.timing_ns as f64 / 1e9,
            ..Sums::default()
        };
        let mut named = 0u64;
        for config in process.definitions.configs() {
            let launches = totals.launches_of(config.id);
            if let Some(function) = process.definitions.function(config.function).filter(|_| launches > 0) {
                let key = (uuid_of(process, config.context), self.short_name(&function.name));
                *sums.launches.entry(key).or_default() += launches;
                named += launches;
            }
        }
        let unnamed = totals.launches.saturating_sub(named);
        if unnamed > 0 {
            sums.launches.insert((String::new(), OTHER.to_owned()), unnamed);
        }
        for (sort, of) in &totals.calls {
            match sort.class {
                CallClass::Synchronize => sums.synchronize_seconds += seconds(of.ticks),
                CallClass::Copy => {
                    let direction = CopyDirection::between(sort.source, sort.memory).or_peer(sort.is_peer);
                    add(sums.copies.entry(direction).or_default(), of.count, of.bytes);
                }
                CallClass::Allocate if sort.memory != MemoryKind::Unknown => {
                    add(sums.allocations.entry(sort.memory).or_default(), of.count, of.bytes);
                }
                _ => {}
            }
        }
        sums
    }

    fn short_name(&mut self, symbol: &str) -> String {
        let known = self.names.get(symbol).map(|(short, _)| short.clone());
        known.unwrap_or_else(|| {
            let identity = identify(symbol);
            let short = identity.short_name;
            self.names.insert(symbol.to_owned(), (short.clone(), identity.traits.operation.name()));
            short
        })
    }

    /// Gives the kernels with the most launches a series, as long as there is room; it is theirs
    /// from then on.
    fn admit(&mut self, top: usize) {
        let mut waiting: BTreeMap<&str, u64> = BTreeMap::new();
        for ((_, name), launches) in self.processes.values().flat_map(|sums| &sums.launches) {
            if name != OTHER && !self.admitted.contains(name) {
                *waiting.entry(name).or_default() += launches;
            }
        }
        let mut waiting: Vec<_> =
            waiting.into_iter().map(|(name, launches)| (Reverse(launches), name)).collect();
        waiting.sort_unstable();
        let room = top.saturating_sub(self.admitted.len());
        let new: Vec<String> = waiting.into_iter().take(room).map(|(_, name)| name.to_owned()).collect();
        self.admitted.extend(new);
    }

    /// Takes the accounts of the snapshot's window, which follows the last one that was taken.
    pub fn account(&mut self, snapshot: &Snapshot) {
        let window_s = (snapshot.window.end - snapshot.window.start) as f64 / 1e9;
        let mut active = BTreeSet::new();
        for activity in &snapshot.profile.activities {
            let pid = snapshot.profile.processes[activity.process].pid;
            let uuid = activity.device.map_or(String::new(), |at| snapshot.profile.devices[at].uuid.clone());
            let is_new = self.used.insert((pid, uuid.clone()));
            self.account_for(activity, &uuid);
            // Before its first call, a process did not use the device.
            let whole = if is_new { activity.span_ns / 1e9 } else { window_s };
            let rest = whole - activity.accounts.span_ns / 1e9;
            self.devices.entry(uuid.clone()).or_default().unknown += rest.max(0.0);
            active.insert((pid, uuid));
        }
        for (pid, uuid) in self.used.difference(&active) {
            if snapshot.running.contains(pid) {
                self.devices.entry(uuid.clone()).or_default().unknown += window_s;
            }
        }
        self.count_energy(&snapshot.machine);
    }

    /// Takes the readings of the energy counters of the devices that the session uses.
    fn count_energy(&mut self, machine: &Machine) {
        for of_device in machine.records.iter().flat_map(|record| &record.devices) {
            let Some(device) = machine.devices.get(of_device.device) else { continue };
            if !self.used.iter().any(|(_, uuid)| *uuid == device.uuid) {
                continue;
            }
            for &(at_ns, millijoules) in &of_device.energy {
                let new = || Counter { last: (at_ns, millijoules), millijoules: 0 };
                self.energy.entry(device.uuid.clone()).or_insert_with(new).take(at_ns, millijoules);
            }
        }
    }

    fn account_for(&mut self, activity: &Activity, uuid: &str) {
        let device = self.devices.entry(uuid.to_owned()).or_default();
        let accounts = &activity.accounts;
        for (work, account) in [
            ("kernels", Account::Kernels),
            ("collectives", Account::Collectives),
            ("waiting", Account::Waiting),
            ("copies", Account::Copies),
        ] {
            *device.busy.entry(work).or_default() += accounts.time(account).value.max(0.0) / 1e9;
        }
        // (What runs under APEX has its calls recorded.)
        for cause in IdleCause::ALL.into_iter().filter(|cause| *cause != IdleCause::Unrecorded) {
            *device.idle.entry(cause).or_default() +=
                accounts.time(Account::Idle(cause)).value.max(0.0) / 1e9;
        }
        device.unknown += accounts.unknown.value.max(0.0) / 1e9;
    }

    /// Writes its series.
    pub fn write(&self, session: &str, series: &mut Series) {
        let of_session = [("session", session)];
        series.add(&RUNNING, &of_session, self.running as f64);
        self.write_launches(session, series);
        let sum = |of: fn(&Sums) -> f64| self.processes.values().map(of).sum::<f64>();
        series.add(&GRAPH_LAUNCHES, &of_session, sum(|sums| sums.graph_launches as f64));
        series.add(&FAILED, &of_session, sum(|sums| sums.failed as f64));
        series.add(&LAUNCH_SECONDS, &of_session, sum(|sums| sums.launch_seconds));
        series.add(&SYNCHRONIZE_SECONDS, &of_session, sum(|sums| sums.synchronize_seconds));
        series.add(&RECORDS, &of_session, sum(|sums| sums.records as f64));
        series.add(&TIMING_SECONDS, &of_session, sum(|sums| sums.timing_seconds));
        for (reason, lost) in [
            ("no_space", sum(|sums| sums.dropped as f64)),
            ("overwritten", sum(|sums| sums.overwritten as f64)),
        ] {
            series.add(&DROPPED, &[("session", session), ("reason", reason)], lost);
        }
        self.write_memory(session, series);
        self.write_devices(session, series);
        series.add(&UNREAD, &of_session, self.unread_bytes as f64);
        series.add(&DISK, &of_session, self.disk_bytes as f64);
    }

    fn write_launches(&self, session: &str, series: &mut Series) {
        let mut launches: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        for ((uuid, name), count) in self.processes.values().flat_map(|sums| &sums.launches) {
            let name = if self.admitted.contains(name) { name } else { OTHER };
            *launches.entry((uuid, name)).or_default() += count;
        }
        let operations: HashMap<&str, &str> =
            self.names.values().map(|(name, operation)| (name.as_str(), *operation)).collect();
        for ((uuid, name), count) in launches {
            let operation = operations.get(name).copied().unwrap_or(OTHER);
            let labels = [("session", session), ("UUID", uuid), ("kernel", name), ("operation", operation)];
            series.add(&LAUNCHES, &labels, count as f64);
        }
    }

    fn write_memory(&self, session: &str, series: &mut Series) {
        let (mut copies, mut allocations) = (BTreeMap::new(), BTreeMap::new());
        for sums in self.processes.values() {
            for (&direction, &(count, bytes)) in &sums.copies {
                add(copies.entry(direction).or_default(), count, bytes);
            }
            for (&kind, &(count, bytes)) in &sums.allocations {
                add(allocations.entry(kind).or_default(), count, bytes);
            }
        }
        for (direction, (count, bytes)) in copies {
            let labels = [("session", session), ("direction", direction_label(direction))];
            series.add(&COPIES, &labels, count as f64);
            series.add(&COPIED_BYTES, &labels, bytes as f64);
        }
        for (kind, (count, bytes)) in allocations {
            let labels = [("session", session), ("memory", memory_kind_name(kind))];
            series.add(&ALLOCATIONS, &labels, count as f64);
            series.add(&ALLOCATED_BYTES, &labels, bytes as f64);
        }
    }

    fn write_devices(&self, session: &str, series: &mut Series) {
        for (uuid, seconds) in &self.devices {
            let of_device = [("session", session), ("UUID", uuid)];
            for (work, busy) in &seconds.busy {
                series.add(&GPU_BUSY, &[of_device[0], of_device[1], ("work", work)], *busy);
            }
            for (&cause, idle) in &seconds.idle {
                series.add(&GPU_IDLE, &[of_device[0], of_device[1], ("cause", cause_label(cause))], *idle);
            }
            series.add(&GPU_UNKNOWN, &of_device, seconds.unknown);
        }
        for (uuid, counter) in &self.energy {
            let of_device = [("session", session), ("UUID", uuid)];
            series.add(&GPU_ENERGY, &of_device, counter.millijoules as f64 / 1e3);
        }
    }
}

fn add(sums: &mut (u64, u64), count: u64, bytes: u64) {
    sums.0 = sums.0.saturating_add(count);
    sums.1 = sums.1.saturating_add(bytes);
}

/// The UUID of a context's device; empty where it is not known.
fn uuid_of(process: &Process, context: u32) -> String {
    let context = process.definitions.context(context);
    let device = context.and_then(|context| process.definitions.device(context.device));
    device.map_or(String::new(), |device| apex_profile::device_uuid(&device.uuid))
}
