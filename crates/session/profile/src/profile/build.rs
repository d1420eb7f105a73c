//! Builds a profile from record streams, process by process.
//!
//! A [`Builder`] holds counts, sums and sketches, never records. Each process is read into its own
//! builder ([`super::reading`]), which is then merged into the whole.
//! Builders of several sessions (the ranks of a job, its hosts) merge in the same way, and the
//! profile of a merged builder is the profile of both sets of processes:
//!
//! * Counts, extremes and the buckets of sketches are equal, so quantiles have the error of one
//!   sketch. Sums and means are equal except for rounding.
//! * One part depends on the order: on the time line, a launch without samples in its own process
//!   takes the mean time of the processes that this builder read before.

use apex_counts::Defect;
use apex_ordered::{Gather, Order};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use apex_trace::layout::{CallClass, MemoryKind};
use apex_trace::{Ended, Session};
use cuda_launch::{DeviceAttributes, compute_capability};

use super::calls::{CallCounts, CopyCounts};
use super::counts::CountedKernels;
use super::host_profile::HostProfile;
use super::host_stacks::{HostSampling, HostStack, SampledHost, renumber_host_stacks};
use super::interned::Interned;
use super::kernels::Kernels;
use super::ranges::Ranges;
use super::reading::Reading;
use super::stacks::{Stacks, renumber_stacks};
use super::summary::{CollectiveKey, renumber_kernels};
use super::{
    Activity, Call, CollectiveSeries, Copies, CopyDirection, Device, Functions, Graph, Images, LaunchQueue,
    LaunchedRank, Loops, Memory, MemoryOverTime, MemoryPool, Process, Profile, Quotes, Readings, Recorder,
    Reshaping, Sequence, SessionCode, Sources, Stream, Totals, code, lines, owners, quotes, unit_activity,
};
use crate::observer::Observer;
use crate::selection::{Ranks, Selection, launched_rank, origin_ns};

/// Mean cost of recording a launch, in nanoseconds, as measured on an H200's host on 2026-11-22 in a
/// tight loop of launches with arguments. A run of 2026-11-28 on another host had 198 ns
/// (`docs/results/h200.md`), which lies in the interval below.
pub const RECORD_COST_NS: f64 = 117.0;

/// Minimum and maximum of [`RECORD_COST_NS`]: without arguments, and in a PyTorch loop with cold
/// caches.
pub const RECORD_COST_INTERVAL_NS: (f64, f64) = (99.0, 413.0);

/// Minimum samples of the recorder's own time for their mean to be used for a process.
pub const LEAST_COST_SAMPLES: u64 = 16;

/// The cost of recording: measured if a process's recorder sampled its own time, otherwise
/// estimated.
#[derive(Clone, Copy, Default)]
pub(super) struct RecordingCost {
    /// Samples behind `measured_ns`.
    pub samples: u64,
    /// Records of processes with samples, times the mean of their process's samples.
    pub measured_ns: f64,
    /// Records of processes without.
    pub unmeasured: u64,
}

impl RecordingCost {
    fn of(process: &apex_trace::Process, records: u64) -> Self {
        let samples = process.cost_samples;
        if samples < LEAST_COST_SAMPLES {
            return Self { unmeasured: records, ..Self::default() };
        }
        let measured_ns = records as f64 * (process.cost_ns as f64 / samples as f64);
        Self { samples, measured_ns, unmeasured: 0 }
    }

    fn merge(&mut self, other: Self) {
        self.samples += other.samples;
        self.measured_ns += other.measured_ns;
        self.unmeasured += other.unmeasured;
    }
}

impl Profile {
    /// The profile of a whole session.
    pub fn from_session(session: &Session) -> Self {
        Self::of_selection(session, &Selection::default())
    }

    /// The profile of a part of a session.
    pub fn of_selection(session: &Session, selection: &Selection) -> Self {
        let mut builder = Builder::default();
        builder.take_samples(SampledHost::read(&session.dir));
        if session.meta.as_ref().is_some_and(|meta| meta.attached) {
            builder.profile_host();
        }
        let mut profile = builder.profile_of(session, selection);
        profile.images = code::images(&session.dir, &profile.kernels);
        let kept = profile.images.keys().cloned().collect();
        profile.kernels.iter_mut().for_each(|kernel| code::keep_known(&mut kernel.code, &kept));
        profile.sources = lines::sources(session, selection);
        let source = quotes::of_session(session, &profile);
        (profile.quotes, profile.loops, profile.functions) = (source.quotes, source.loops, source.functions);
        profile.readings = source.readings;
        profile.unit_activity = unit_activity::of_session(&session.dir);
        profile
    }

    /// Like [`Self::of_selection`], with empty [`Profile::images`] and [`Profile::sources`], and
    /// without the host's samples.
    pub fn of_selection_without_images(session: &Session, selection: &Selection) -> Self {
        Builder::default().profile_of(session, selection)
    }
}

/// A profile under construction, to which processes and other builders can be added.
#[derive(Default)]
pub struct Builder {
    pub(super) totals: Totals,
    pub(super) devices: Vec<Device>,
    pub(super) processes: Vec<StartedProcess>,
    pub(super) kernels: Kernels,
    pub(super) stacks: Stacks,
    /// The host's samples of the session that is read.
    pub(super) host: Option<SampledHost>,
    pub(super) host_stacks: Interned<HostStack>,
    host_sampling: Option<HostSampling>,
    host_profile: Option<HostProfile>,
    pub(super) ranges: Ranges,
    pub(super) graphs: Vec<Graph>,
    pub(super) calls: BTreeMap<(String, u8), CallCounts>,
    pub(super) copies: BTreeMap<(CopyDirection, MemoryKind, MemoryKind, bool), CopyCounts>,
    pub(super) memory: BTreeMap<MemoryKind, Memory>,
    pub(super) memory_over_time: Vec<MemoryOverTime>,
    pub(super) streams: Vec<Stream>,
    pub(super) sequences: Vec<Sequence>,
    pub(super) activities: Vec<Activity>,
    pub(super) collectives: Vec<CollectiveSeries>,
    counted: CountedKernels,
    defects: Vec<Defect>,
    machine_code: BTreeSet<String>,
    pub(super) recorder: Recorder,
    /// The mean time of each collective on the rank that takes least time for it, of processes that
    /// are not part of the profile.
    other_collectives: BTreeMap<CollectiveKey, f64>,
    cost: RecordingCost,
    /// The code that the session keeps.
    pub(super) code: Option<SessionCode>,
    /// Problems of the sessions, except those of the processes' files.
    problems: Vec<String>,
}

/// A process whose start within the session is not known until all processes are.
pub(super) struct StartedProcess {
    /// Nanoseconds since the Unix epoch.
    start_real_ns: u64,
    pub process: Process,
}

impl Builder {
    /// Adds everything that a session recorded.
    pub fn add_session(&mut self, session: &Session) {
        self.add_selection(session, &Selection::default());
    }

    /// Adds a session, and passes its single events to an observer.
    pub fn add_observed(&mut self, session: &Session, observer: &mut dyn Observer) {
        self.add(session, &Selection::default(), Some(observer));
    }

    /// Takes the host's samples of the session that is read.
    fn take_samples(&mut self, host: Option<SampledHost>) {
        self.host_sampling = host.as_ref().map(SampledHost::sampling);
        self.problems.extend(host.iter().flat_map(SampledHost::problems));
        self.host = host;
    }

    /// Says what all threads did, in a session without launches.
    fn profile_host(&mut self) {
        let Self { host, host_stacks, .. } = self;
        self.host_profile = host.as_ref().map(|host| host.profile(host_stacks));
    }

    /// The profile of a part of one session.
    fn profile_of(mut self, session: &Session, selection: &Selection) -> Profile {
        self.add_selection(session, selection);
        let (mut profile, ranks) = (self.finish(), Ranks::of(session));
        for process in &mut profile.processes {
            process.rank = ranks.of_process(process.pid);
            process.host = session.host_of(process.pid).map(str::to_owned);
        }
        profile
    }

    /// Adds a part of what a session recorded.
    pub fn add_selection(&mut self, session: &Session, selection: &Selection) {
        self.add(session, selection, None);
    }

    fn add(&mut self, session: &Session, selection: &Selection, mut observer: Option<&mut dyn Observer>) {
        let origin = origin_ns(session);
        // First: how kernels are told apart depends on it.
        if let Some(kept) = session.code {
            self.code.get_or_insert_default().merge(&kept.into());
        }
        let (own, others): (Vec<_>, Vec<_>) =
            session.processes.iter().partition(|process| selection.has(process.pid));
        for process in own {
            let window = selection.window_of(process, origin);
            match &mut observer {
                Some(observer) => self.add_process_in(process, window, Some(&mut **observer)),
                None => self.add_process_in(process, window, None),
            }
        }
        if self.activities.iter().any(|activity| !activity.collectives.is_empty()) {
            others.into_iter().for_each(|process| self.note_collectives(process));
        }
        for process in session.counts.iter().filter(|process| selection.has(process.pid)) {
            process.launches.iter().for_each(|launch| self.counted.add(launch));
            self.defects.extend(process.defects.iter().cloned());
            self.machine_code.extend(process.machine_code.iter().cloned());
        }
        self.problems.extend(session.problems.iter().map(ToString::to_string));
    }

    /// Adds the records of one process.
    pub fn add_process(&mut self, process: &apex_trace::Process) {
        self.add_process_in(process, 0..u64::MAX, None);
    }

    /// Adds the events of a process that began in a window, in nanoseconds after its start.
    fn add_process_in(
        &mut self,
        process: &apex_trace::Process,
        window: Range<u64>,
        observer: Option<&mut dyn Observer>,
    ) {
        let mut part = Reading::new(self, Self::of_header(process), process, window).read(observer);
        // Of a process that is followed, not all records are given; its cost is that since its
        // start.
        let records = part.recorder.records.max(process.totals.counted_calls());
        part.cost = RecordingCost::of(process, records);
        self.merge(part);
        self.recorder.problems.extend(process.read_failure().map(ToString::to_string));
    }

    /// Notes what collectives take in a process that is not part of the profile: its ranks wait
    /// for that one too.
    fn note_collectives(&mut self, process: &apex_trace::Process) {
        let part = Reading::new(self, Self::of_header(process), process, 0..u64::MAX).read(None);
        for one in part.activities.iter().flat_map(|activity| &activity.collectives) {
            let (symbol, launch) = part.kernels.symbol_and_launch(one.kernel);
            let key = (symbol.to_owned(), launch.grid, launch.block);
            let least = self.other_collectives.entry(key).or_insert(one.mean_ns);
            *least = least.min(one.mean_ns);
        }
    }

    /// Returns the content of a process's file besides its records.
    fn of_header(process: &apex_trace::Process) -> Self {
        let wall_ns = process.span.map_or(0, |(_, last)| process.clock.ns_since_start(last)) as f64;
        let recorder = Recorder {
            timing_ns: process.timing_ns as f64,
            dropped: process.dropped,
            overwritten: process.overwritten,
            config_overflow: process.config_overflow.into(),
            ..Recorder::default()
        };
        let started = StartedProcess {
            start_real_ns: process.start_real_ns,
            process: Process {
                pid: process.pid,
                parent_pid: process.parent_pid,
                rank: None,
                host: None,
                launcher: launched_rank(process).map(LaunchedRank::from),
                executable: process.executable.clone(),
                environment: environment(process),
                start_ns: 0.0,
                wall_ns,
                launches: 0,
                ended: process.ended != Ended::Unmarked,
                queue: LaunchQueue::of(process),
                pool: MemoryPool::of(process),
                reshaping: Reshaping::of(process),
            },
        };
        Self { processes: vec![started], recorder, ..Self::default() }
    }

    /// Adds everything that `other` holds: other processes than those of `self`.
    pub fn merge(&mut self, mut other: Self) {
        let devices: Vec<usize> = other.devices.drain(..).map(|device| self.device(device)).collect();
        let stacks = self.stacks.merge(other.stacks);
        let host_stacks = self.host_stacks.merge(other.host_stacks);
        self.host_sampling = self.host_sampling.take().or(other.host_sampling);
        let kernels = self.kernels.merge(other.kernels, &devices, &stacks);
        self.ranges.merge(other.ranges);
        let first = self.processes.len();
        let device = |device: &mut Option<usize>| *device = device.map(|device| devices[device]);
        for stream in &mut other.streams {
            stream.process += first;
            device(&mut stream.device);
        }
        for activity in &mut other.activities {
            activity.process += first;
            device(&mut activity.device);
            renumber_host_stacks(activity, &host_stacks);
        }
        for series in &mut other.collectives {
            series.process += first;
            device(&mut series.device);
        }
        for graph in &mut other.graphs {
            graph.process += first;
            renumber_stacks(&mut graph.stacks, &stacks);
        }
        other.sequences.iter_mut().for_each(|sequence| sequence.process += first);
        other.memory_over_time.iter_mut().for_each(|memory| memory.process += first);
        renumber_kernels(&kernels, &mut other.graphs, &mut other.sequences, &mut other.activities);
        self.processes.append(&mut other.processes);
        self.graphs.append(&mut other.graphs);
        self.memory_over_time.append(&mut other.memory_over_time);
        self.streams.append(&mut other.streams);
        self.sequences.append(&mut other.sequences);
        self.activities.append(&mut other.activities);
        self.collectives.append(&mut other.collectives);
        self.defects.append(&mut other.defects);
        self.machine_code.append(&mut other.machine_code);
        self.problems.append(&mut other.problems);
        if let Some(kept) = &other.code {
            self.code.get_or_insert_default().merge(kept);
        }
        for (key, counts) in other.calls {
            self.calls.entry(key).or_default().merge(&counts, &stacks);
        }
        for (key, counts) in other.copies {
            self.copies.entry(key).or_default().merge(&counts, &stacks);
        }
        for (kind, memory) in other.memory {
            self.memory.entry(kind).or_insert_with(|| Memory::none(kind)).merge(&memory);
        }
        self.counted.merge(other.counted);
        self.totals.merge(&other.totals);
        self.recorder.merge(other.recorder);
        self.cost.merge(other.cost);
    }

    /// The place of a device; one that several processes use is one device.
    pub(super) fn device(&mut self, device: Device) -> usize {
        let Some(place) = self.known_device(&device) else {
            self.devices.push(device);
            return self.devices.len() - 1;
        };
        let ordinals = &mut self.devices[place].ordinals;
        ordinals.extend(device.ordinals);
        ordinals.sort_unstable();
        ordinals.dedup();
        place
    }

    pub(super) fn known_device(&self, device: &Device) -> Option<usize> {
        self.devices.iter().position(|known| known.uuid == device.uuid && known.name == device.name)
    }

    /// The profile of all that was added.
    pub fn finish(mut self) -> Profile {
        self.order_processes();
        let epoch = self.processes.first().map_or(0, |first| first.start_real_ns);
        let started = |StartedProcess { start_real_ns, process }| Process {
            start_ns: start_real_ns.saturating_sub(epoch) as f64,
            ..process
        };
        let (call_stacks, stacks) = self.stacks.finish();
        let (host_stacks, places) = self.host_stacks.finish();
        self.activities.iter_mut().for_each(|activity| renumber_host_stacks(activity, &places));
        self.host_profile.iter_mut().for_each(|host| host.finish(&places));
        self.graphs.iter_mut().for_each(|graph| renumber_stacks(&mut graph.stacks, &stacks));
        let mut profile = Profile {
            kernels: self.kernels.finish(&self.devices, &self.counted, &stacks),
            call_stacks,
            host_stacks,
            host_sampling: self.host_sampling,
            host: self.host_profile,
            ranges: self.ranges.finish(),
            devices: self.devices,
            processes: self.processes.into_iter().map(started).collect(),
            graphs: self.graphs,
            calls: self.calls.into_iter().map(|(key, counts)| call(key, counts, &stacks)).collect(),
            copies: self.copies.into_iter().map(|(key, counts)| copies(key, counts, &stacks)).collect(),
            memory: self.memory.into_values().collect(),
            memory_over_time: self.memory_over_time,
            streams: self.streams,
            sequences: self.sequences,
            data_flows: Vec::new(),
            activities: self.activities,
            collectives: self.collectives,
            defects: self.defects,
            machine_code: self.machine_code.into_iter().gathered(),
            totals: Totals::default(),
            recorder: Recorder::default(),
            unpredicted: Vec::new(),
            prediction_basis: BTreeMap::new(),
            code: self.code,
            images: Images::new(),
            sources: Sources::new(),
            quotes: Quotes::new(),
            loops: Loops::new(),
            functions: Functions::new(),
            readings: Readings::new(),
            unit_activity: None,
        };
        owners::name_libraries(&mut profile);
        profile.tell_waiting_for_ranks(&self.other_collectives);
        self.recorder.problems.append(&mut self.problems);
        self.totals.sum_up(&profile);
        self.recorder.sum_up(self.cost, &profile);
        profile.totals = self.totals;
        profile.recorder = self.recorder;
        profile.sort();
        profile
    }

    /// Puts the processes into the order of their start.
    fn order_processes(&mut self) {
        let mut order: Vec<usize> = (0..self.processes.len()).collect();
        order.order_by_key(|&at| (self.processes[at].start_real_ns, self.processes[at].process.pid));
        let mut place = vec![0; order.len()];
        order.iter().enumerate().for_each(|(new, &old)| place[old] = new);
        self.processes.order_by_key(|started| (started.start_real_ns, started.process.pid));
        let graphs = self.graphs.iter_mut().map(|graph| &mut graph.process);
        let streams = self.streams.iter_mut().map(|stream| &mut stream.process);
        let sequences = self.sequences.iter_mut().map(|sequence| &mut sequence.process);
        let activities = self.activities.iter_mut().map(|activity| &mut activity.process);
        let memory = self.memory_over_time.iter_mut().map(|memory| &mut memory.process);
        let collectives = self.collectives.iter_mut().map(|series| &mut series.process);
        graphs
            .chain(streams)
            .chain(memory)
            .chain(collectives)
            .chain(sequences)
            .chain(activities)
            .for_each(|process| *process = place[*process]);
        self.activities.order_by_key(|activity| activity.process);
        self.memory_over_time.order_by_key(|memory| (memory.process, memory.on_host));
    }
}

impl Totals {
    /// Adds what is counted; the rest follows when a builder finishes.
    fn merge(&mut self, other: &Self) {
        self.launches += other.launches;
        self.graph_launches += other.graph_launches;
        self.graph_kernels = self.graph_kernels.saturating_add(other.graph_kernels);
        self.captured += other.captured;
        self.failed += other.failed;
        self.unknown += other.unknown;
        self.launch_cpu_ns += other.launch_cpu_ns;
    }
}

impl Recorder {
    /// Adds what is counted; the rest follows when a builder finishes.
    fn merge(&mut self, mut other: Self) {
        self.records += other.records;
        self.timings += other.timings;
        self.timing_ns += other.timing_ns;
        self.dropped = self.dropped.saturating_add(other.dropped);
        self.overwritten = self.overwritten.saturating_add(other.overwritten);
        self.config_overflow += other.config_overflow;
        self.problems.append(&mut other.problems);
    }
}

impl From<&apex_trace::definition::Device> for Device {
    fn from(device: &apex_trace::definition::Device) -> Self {
        Self {
            name: device.name.clone(),
            ordinals: vec![device.ordinal],
            uuid: device_uuid(&device.uuid),
            compute_capability: compute_capability(&device.attributes),
            sms: DeviceAttributes::UNKNOWN.with_pairs(&device.attributes).multiprocessors,
            memory_bytes: device.memory_bytes,
            driver_version: device.driver_version,
            attributes: device.attributes.clone(),
        }
    }
}

/// `stacks`: the final places of call stacks.
/// The kept variables of a process's environment.
fn environment(process: &apex_trace::Process) -> BTreeMap<String, String> {
    let variables = process.definitions.variables();
    variables.map(|variable| (variable.name.clone(), variable.value.clone())).gathered()
}

fn call((name, class): (String, u8), counts: CallCounts, stacks: &[usize]) -> Call {
    Call {
        name,
        class: CallClass::from_raw(class),
        count: counts.cpu.count(),
        failed: counts.failed,
        captured: counts.captured,
        bytes: counts.bytes,
        cpu: counts.cpu.distribution(),
        after_launch: counts.after_launch,
        stacks: counts.stacks.finish(stacks),
    }
}

/// `stacks`: the final places of call stacks.
fn copies(
    (direction, source, destination, asynchronous): (CopyDirection, MemoryKind, MemoryKind, bool),
    counts: CopyCounts,
    stacks: &[usize],
) -> Copies {
    let cpu = counts.cpu.distribution();
    Copies {
        direction,
        source,
        destination,
        asynchronous,
        count: cpu.count,
        bytes: counts.bytes,
        sizes: counts.sizes,
        cpu,
        after_launch: counts.after_launch,
        stacks: counts.stacks.finish(stacks),
    }
}

/// The UUID of a device as `nvidia-smi` prints it: `GPU-…`.
pub fn device_uuid(bytes: &[u8; 16]) -> String {
    let hex =
        |range: std::ops::Range<usize>| bytes[range].iter().map(|b| format!("{b:02x}")).collect::<String>();
    format!("GPU-{}-{}-{}-{}-{}", hex(0..4), hex(4..6), hex(6..8), hex(8..10), hex(10..16))
}
