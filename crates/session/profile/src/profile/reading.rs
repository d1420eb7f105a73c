//! One process, from its records to its part of a profile.
//!
//! The records of a process are read twice, in the order of time: once to count everything and to
//! learn how long kernels take, once more (launches and synchronisations alone) to lay kernels of
//! known time on the time line.

mod objects;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use apex_trace::definition::Context;
use apex_trace::layout::{
    ArgumentSample, Call as CallRecord, CallClass, GraphLaunch, Launch, MemoryKind, RecordHead, StackSample,
    Timing, flags,
};
use apex_trace::{Event, Record};

use super::activity::Read;
use super::build::Builder;
use super::by_id::{ById, IndexById};
use super::calls::CallCounts;
use super::memory::{Caller, Heap};
use super::ranges::{OpenRanges, RangeCounts, RangePlaces};
use super::sampled::{Sample, Sampled};
use super::sequences::Sequences;
use super::times::{Estimate, STRATA, Sort};
use super::transfers::copy_waits;
use super::{AfterLaunch, CopyDirection, Stream};
use crate::accounts::Launched;
use crate::observer::Observer;
use crate::saturating::SaturatingSum as _;

pub(super) use objects::{ConfigState, GraphState};

/// The process that is read, among the processes of its own part.
pub(super) const THIS: usize = 0;

/// The result of the first reading of one process.
pub(super) struct Reading<'b> {
    /// The results of other processes so far.
    pub others: &'b Builder,
    /// The part of this process; it is process 0 there.
    pub part: Builder,
    pub process: &'b apex_trace::Process,
    /// The window whose events are counted, in nanoseconds after the process's start. Events
    /// outside of it tell only the state at its beginning, and the durations of kernels.
    pub window: Range<u64>,
    /// Devices by context.
    pub devices: HashMap<u32, usize>,
    pub config_places: IndexById,
    pub configs: Vec<ConfigState>,
    pub graph_places: IndexById,
    pub graphs: Vec<GraphState>,
    pub calls: HashMap<(u32, u8), CallCounts>,
    pub streams: ById<Stream>,
    pub range_places: RangePlaces,
    open_ranges: OpenRanges,
    heap: Heap,
    /// Indices of stacks, by their identifiers and those of the functions that are launched.
    stack_places: HashMap<(u32, u32), Option<usize>>,
    sequences: Sequences,
    /// The launches, in which [`crate::accounts`] finds iterations.
    pub launched: Launched,
    /// The copies, sets and waits before the first launch.
    unlaunched: Launched,
    /// The samples of timed launches.
    pub sampled: Sampled,
    /// Whether another tool recorded when work ran on the device.
    pub is_placed: bool,
    pub extents: BTreeMap<Option<usize>, Extent>,
    /// As `extents`, of the copies and sets before the first launch.
    transfers: BTreeMap<Option<usize>, Extent>,
}

/// The start of graphs among functions: their identifiers are others.
const GRAPHS: u32 = 1 << 31;

/// The use of one device by one process, in nanoseconds after the process's start: the interval,
/// and the counts.
#[derive(Default)]
pub(super) struct Extent {
    pub start: f64,
    pub end: f64,
    pub launches: u64,
    pub streams: BTreeSet<u32>,
    /// The stream that was launched into last.
    last_stream: Option<u32>,
    /// The first thread that launched.
    thread: Option<u32>,
    /// Whether another thread launched, too.
    pub has_threads: bool,
}

impl Extent {
    /// Returns the part of the interval in a window; empty if they do not meet.
    pub fn within(&self, window: &Range<u64>) -> (f64, f64) {
        let start = self.start.max(window.start as f64);
        (start, self.end.min(window.end as f64).max(start))
    }
}

impl<'b> Reading<'b> {
    /// Reads a process of which `part` holds nothing but the process itself.
    pub fn new(
        others: &'b Builder,
        mut part: Builder,
        process: &'b apex_trace::Process,
        window: Range<u64>,
    ) -> Self {
        let definitions = &process.definitions;
        let by_device: HashMap<u32, usize> =
            definitions.devices().map(|device| (device.id, part.device(device.into()))).collect();
        let devices = definitions
            .contexts()
            .filter_map(|context: &Context| Some((context.id, *by_device.get(&context.device)?)))
            .collect();
        let range_places = RangePlaces::of(process, &mut part.ranges);
        let span = process.span.map(|(first, last)| [first, last].map(|at| process.clock.ns_since_start(at)));
        let [first, last] = span.unwrap_or_default();
        let span = first.max(window.start) as f64..last.min(window.end) as f64;
        Self {
            range_places,
            open_ranges: OpenRanges::default(),
            others,
            part,
            process,
            window,
            devices,
            config_places: IndexById::default(),
            configs: Vec::new(),
            graph_places: IndexById::default(),
            graphs: Vec::new(),
            calls: HashMap::new(),
            streams: ById::default(),
            heap: Heap::of(span),
            stack_places: HashMap::new(),
            sequences: Sequences::default(),
            launched: Launched::default(),
            unlaunched: Launched::default(),
            sampled: Sampled::default(),
            is_placed: false,
            extents: BTreeMap::new(),
            transfers: BTreeMap::new(),
        }
    }

    /// The process's part of the profile; the observer receives the events.
    pub fn read(mut self, mut observer: Option<&mut dyn Observer>) -> Builder {
        for record in self.process.records_by_time() {
            self.record(&record);
            if let Some(observer) = &mut observer {
                observer.read(1);
            }
        }
        self.finish(observer)
    }

    fn record(&mut self, record: &Record) {
        let event = record.event;
        // (What a stack costs is counted with timing. A range costs the program's call, not a
        // launch.)
        let is_no_call =
            matches!(event, Event::StackSample(_) | Event::RangeChange(_) | Event::ArgumentSample(_));
        self.part.recorder.records += u64::from(!is_no_call);
        match event {
            Event::Launch(launch) => self.launch(&launch, record),
            Event::GraphLaunch(launch) => self.graph_launch(&launch, record),
            Event::Timing(timing) => self.timing(&timing),
            Event::Call(call) => self.call(&call, record),
            Event::StackSample(sample) => self.stack(&sample, record.tid),
            Event::ArgumentSample(sample) => self.arguments(&sample),
            Event::RangeChange(change) => {
                let now = self.process.clock.ns_since_start(change.head.start);
                let (places, ranges) = (&mut self.range_places, &mut self.part.ranges);
                self.open_ranges.change(record.tid, &change, now, places, ranges);
            }
        }
    }

    /// Something ran in these ranges: that of its thread, and those of the process.
    fn in_ranges(&mut self, range: u32, mut count: impl FnMut(&mut RangeCounts)) {
        let places = self.range_places.of_thread(range).into_iter().chain(self.open_ranges.of_process());
        places.for_each(|place| count(self.part.ranges.counts(place)));
    }

    fn launch(&mut self, launch: &Launch, record: &Record) {
        let Record { range, tid, .. } = *record;
        let (start, cpu_ns) = self.times(&launch.head);
        let counts = self.counts_at(start);
        let config = self.config(launch.config);
        let kernel = config.map(|config| self.configs[config].kernel);
        if let Some(kernel) = kernel.filter(|_| counts) {
            self.part.kernels.counts(kernel).launch(launch, cpu_ns);
        }
        let totals = &mut self.part.totals;
        if launch.result != 0 {
            totals.failed += u64::from(counts);
            return;
        }
        if launch.head.flags & flags::CAPTURED != 0 {
            totals.captured += u64::from(counts);
            return;
        }
        self.heap.launch();
        self.in_ranges(range, |counts| counts.launches += 1);
        let device = config.and_then(|config| self.configs[config].device);
        let device = self.device_of_launch(device, launch.stream);
        self.extend(device, (launch.stream, tid), start, cpu_ns);
        if let Some(config) = config {
            let stratum = self.stratum(launch.head.start);
            let state = &mut self.configs[config];
            state.samples.launch(stratum);
            state.launches += 1;
            self.launched.launch(state.function, start as u64, 1);
        }
        self.stream(launch.stream).launches += u64::from(counts);
        if !counts {
            return;
        }
        let totals = &mut self.part.totals;
        totals.launches += 1;
        totals.launch_cpu_ns += cpu_ns as f64;
        totals.unknown += u64::from(config.is_none());
        if let Some(kernel) = kernel {
            self.sequences.launch(launch.stream, kernel, start, cpu_ns as f64);
        }
    }

    fn graph_launch(&mut self, launch: &GraphLaunch, record: &Record) {
        let Record { range, tid, .. } = *record;
        let (start, cpu_ns) = self.times(&launch.head);
        let (stratum, counts) = (self.stratum(launch.head.start), self.counts_at(start));
        let at = self.graph(launch.graph);
        let graph = &mut self.graphs[at];
        let totals = &mut self.part.totals;
        if launch.result != 0 {
            graph.failed += u64::from(counts);
            totals.failed += u64::from(counts);
            return;
        }
        graph.samples.launch(stratum);
        let of_kernels = graph.device;
        let nodes = graph.kernels.iter().fold(0_u32, |sum, &(_, nodes)| sum.saturating_add(nodes));
        if counts {
            graph.launches += 1;
            graph.cpu.add(cpu_ns);
            totals.graph_launches += 1;
            totals.launch_cpu_ns += cpu_ns as f64;
            for &(kernel, nodes) in &graph.kernels {
                let by_graphs = &mut self.part.kernels.counts(kernel).launches.by_graphs;
                *by_graphs = by_graphs.saturating_add(nodes.into());
                totals.graph_kernels = totals.graph_kernels.saturating_add(nodes.into());
            }
        }
        self.stream(launch.stream).graph_launches += u64::from(counts);
        // An update gives a graph another identifier, but the handle stays.
        let handle = self.process.definitions.graph(launch.graph).map_or(0, |graph| graph.handle);
        self.launched.launch(GRAPHS | (handle ^ handle >> 32) as u32, start as u64, nodes);
        self.heap.launch();
        self.in_ranges(range, |counts| counts.launches += 1);
        self.sequences.interrupt(Some(launch.stream));
        let device = self.device_of_launch(of_kernels, launch.stream);
        self.extend(device, (launch.stream, tid), start, cpu_ns);
    }

    fn timing(&mut self, timing: &Timing) {
        self.part.recorder.timings += 1;
        if timing.head.flags & flags::PLACED != 0 {
            return self.placed(timing);
        }
        let stratum = self.stratum(timing.head.start);
        let idle = timing.head.flags & flags::STREAM_WAS_IDLE != 0;
        let correction = timing.correction_ns();
        let ns = timing.raw_ns.saturating_sub(correction);
        let sort = Sort::of(timing.head.flags);
        self.sampled.add(timing.head.start, Sample { ns, idle });
        if timing.head.flags & flags::OF_GRAPH != 0 {
            let at = self.graph(timing.config);
            self.graphs[at].samples.sample(stratum, timing.raw_ns, correction, sort);
        } else if let Some(config) = self.config(timing.config) {
            self.configs[config].samples.sample(stratum, timing.raw_ns, correction, sort);
        }
    }

    /// Work that another tool saw on the device: its time is exact, and it ends then.
    fn placed(&mut self, timing: &Timing) {
        self.is_placed = true;
        let (stratum, of) = (self.stratum(timing.head.start), timing.head.flags);
        let device = if of & (flags::OF_GRAPH | flags::OF_CALL) != 0 {
            self.device_of_stream(timing.stream)
        } else {
            let config = self.config(timing.config);
            if let Some(config) = config {
                self.configs[config].samples.sample(stratum, timing.raw_ns, 0, Sort::Queued);
            }
            config.and_then(|config| self.configs[config].device)
        };
        let start = timing.placed_at().map_or(0, |at| self.process.clock.ns_since_start(at));
        let end = start.saturating_add(timing.raw_ns) as f64;
        if of & flags::OF_CALL != 0 && !self.extents.contains_key(&device) {
            // (Its call may be missing in the trace.)
            let start = start as f64;
            self.transfers.entry(device).or_insert_with(|| Extent { start, ..Extent::default() });
        }
        for extents in [&mut self.extents, &mut self.transfers] {
            if let Some(extent) = extents.get_mut(&device) {
                extent.end = extent.end.max(end);
            }
        }
    }

    fn arguments(&mut self, sample: &ArgumentSample) {
        let (start, _) = self.times(&sample.head);
        if let Some(config) = self.config(sample.config).filter(|_| self.counts_at(start)) {
            let kernel = self.configs[config].kernel;
            let given = self.process.definitions.arguments(sample.arguments);
            let given = given.filter(|given| given.config == sample.config);
            self.part.kernels.counts(kernel).arguments.add(given);
        }
    }

    fn stack(&mut self, sample: &StackSample, tid: u32) {
        let (start, _) = self.times(&sample.head);
        let Some(stack) = self.stack_place(sample) else { return };
        let is_of_call = sample.head.flags & flags::OF_CALL != 0;
        if is_of_call && sample.class == CallClass::Allocate as u8 {
            let stacks = &self.part.stacks;
            self.heap.read_stack(tid, sample.config, stack, || stacks.site(stack).to_string());
        }
        if !self.counts_at(start) {
            return;
        }
        let is_first_seen = sample.head.flags & flags::FIRST_SEEN != 0;
        if is_of_call {
            if let Some(counts) = self.calls.get_mut(&(sample.config, sample.class)) {
                counts.stacks.add(stack, is_first_seen);
            }
            if sample.class == CallClass::Copy as u8 {
                let key = sort_of_copy(sample.memory, sample.source_memory, sample.head.flags);
                if let Some(counts) = self.part.copies.get_mut(&key) {
                    counts.stacks.add(stack, is_first_seen);
                }
            }
        } else if sample.head.flags & flags::OF_GRAPH != 0 {
            let at = self.graph(sample.config);
            self.graphs[at].stacks.add(stack, is_first_seen);
        } else if let Some(config) = self.config(sample.config) {
            let kernel = self.configs[config].kernel;
            self.part.kernels.counts(kernel).stacks.add(stack, is_first_seen);
        }
    }

    /// The place of a sample's stack, which is looked up once for each kernel.
    fn stack_place(&mut self, sample: &StackSample) -> Option<usize> {
        let definitions = &self.process.definitions;
        let is_of_kernel = sample.head.flags & (flags::OF_GRAPH | flags::OF_CALL) == 0;
        let config = is_of_kernel.then(|| definitions.config(sample.config)).flatten();
        let function = config.map_or(0, |config| config.function);
        let kernel = definitions.function(function).map(|function| function.name.as_str());
        let (stacks, process) = (&mut self.part.stacks, self.process);
        let key = (sample.stack, function);
        *self.stack_places.entry(key).or_insert_with(|| stacks.of_process(process, sample.stack, kernel))
    }

    fn call(&mut self, call: &CallRecord, record: &Record) {
        let (start, cpu_ns) = self.times(&call.head);
        let by = Caller { tid: record.tid, at: start as u64, cpu_ns: cpu_ns as f64 };
        let captured = call.head.flags & flags::CAPTURED != 0;
        let after_launch = self.after_launch(cpu_ns);
        let in_window = self.counts_at(start);
        let counts = self.calls.entry((call.api, call.class)).or_default();
        if call.result != 0 {
            counts.failed += u64::from(in_window);
            return;
        }
        if in_window {
            counts.cpu.add(cpu_ns);
            counts.after_launch.add(after_launch);
            counts.captured += u64::from(captured);
            counts.bytes = counts.bytes.saturating_add(call.bytes);
        }
        if captured {
            return;
        }
        if self.extents.is_empty() {
            self.call_unlaunched(call, start);
        }
        self.heap.is_outside = !in_window;
        let kind = MemoryKind::from_raw(call.memory).unwrap_or(MemoryKind::Unknown);
        match CallClass::from_raw(call.class) {
            Some(CallClass::Allocate) => {
                let after_launch = !self.extents.is_empty();
                self.heap.allocate(kind, call, by, after_launch);
                self.interrupt_unless_pool(kind);
            }
            Some(CallClass::Free) => {
                self.heap.free(call, by);
                self.interrupt_unless_pool(kind);
            }
            Some(CallClass::Copy) => {
                self.in_ranges(record.range, |counts| counts.copied(call.bytes));
                if in_window {
                    self.copy(call, cpu_ns);
                }
                self.transfer(call, start, cpu_ns);
            }
            Some(CallClass::Set) => self.transfer(call, start, cpu_ns),
            _ => {}
        }
        if cannot_be_captured(call) {
            self.sequences.interrupt((call.stream != 0).then_some(call.stream));
        }
        if waits(call) {
            let end = start + cpu_ns as f64;
            let extents = self.extents.values_mut().chain(self.transfers.values_mut());
            extents.for_each(|extent| extent.end = extent.end.max(end));
        }
    }

    fn copy(&mut self, call: &CallRecord, cpu_ns: u64) {
        let key = sort_of_copy(call.memory, call.source_memory, call.head.flags);
        let after_launch = self.after_launch(cpu_ns);
        let counts = self.part.copies.entry(key).or_default();
        counts.cpu.add(cpu_ns);
        counts.after_launch.add(after_launch);
        counts.bytes = counts.bytes.saturating_add(call.bytes);
        counts.sizes.add(call.bytes);
    }

    fn transfer(&mut self, call: &CallRecord, start: f64, cpu_ns: u64) {
        let counts = self.counts_at(start);
        if call.head.flags & flags::ASYNC != 0 {
            self.stream(call.stream).transfers += u64::from(counts);
        }
        if self.extents.is_empty() {
            let device = self.device_of_stream(call.stream);
            let extent =
                self.transfers.entry(device).or_insert_with(|| Extent { start, ..Extent::default() });
            extent.end = extent.end.max(start + cpu_ns as f64);
            if counts {
                extent.streams.insert(call.stream);
            }
        }
    }

    /// A call that may be part of an iteration of a process that launches nothing.
    fn call_unlaunched(&mut self, call: &CallRecord, start: f64) {
        let direction = match call.class() {
            Some(CallClass::Copy) => CopyDirection::of(call) as u32,
            Some(CallClass::Set | CallClass::Synchronize) => 0,
            _ => return,
        };
        self.unlaunched.call(call.api << 4 | direction, start as u64);
    }

    /// A process that launches nothing spends its time on copies and sets: they tell from when to
    /// when it used its devices.
    fn take_transfers(&mut self) {
        if self.is_placed {
            // Copies before the first launch are work like any other where it is known when they
            // ran.
            for (device, transfers) in &self.transfers {
                if let Some(extent) = self.extents.get_mut(device) {
                    extent.start = extent.start.min(transfers.start);
                }
            }
        }
        if !self.extents.is_empty() {
            return;
        }
        self.extents = std::mem::take(&mut self.transfers);
        self.launched = std::mem::take(&mut self.unlaunched);
        for counts in self.part.copies.values_mut() {
            let cpu = counts.cpu.distribution();
            counts.after_launch = AfterLaunch { count: cpu.count, cpu_ns: cpu.total_ns };
        }
    }

    /// A call that takes so long, if a launch has come before it.
    fn after_launch(&self, cpu_ns: u64) -> AfterLaunch {
        match self.extents.is_empty() {
            true => AfterLaunch::default(),
            false => AfterLaunch { count: 1, cpu_ns: cpu_ns as f64 },
        }
    }

    /// Allocating ends what a graph could hold, except from a pool.
    fn interrupt_unless_pool(&mut self, kind: MemoryKind) {
        if kind != MemoryKind::Pool {
            self.sequences.interrupt(None);
        }
    }

    /// Start of a call in nanoseconds after the process's start, and how long it took.
    pub(super) fn times(&self, head: &RecordHead) -> (f64, u64) {
        let clock = &self.process.clock;
        (clock.ns_since_start(head.start) as f64, clock.duration_ns(head.duration_ticks()))
    }

    /// Whether what begins at that moment, nanoseconds after the process's start, is counted.
    pub(super) fn counts_at(&self, start: f64) -> bool {
        self.window.contains(&(start as u64))
    }

    /// Returns the stratum of the process's span in which a moment lies.
    fn stratum(&self, ticks: u64) -> u64 {
        let Some((first, last)) = self.process.span else { return 0 };
        let share = ticks.saturating_sub(first) as f64 / last.saturating_sub(first).max(1) as f64;
        ((share * STRATA as f64) as u64).min(STRATA - 1)
    }

    fn extend(&mut self, device: Option<usize>, (stream, tid): (u32, u32), start: f64, cpu_ns: u64) {
        let counts = self.counts_at(start);
        let extent = self.extents.entry(device).or_insert_with(|| Extent { start, ..Extent::default() });
        extent.end = extent.end.max(start + cpu_ns as f64);
        if counts {
            extent.launches += 1;
            extent.has_threads |= *extent.thread.get_or_insert(tid) != tid;
            if extent.last_stream.replace(stream) != Some(stream) {
                extent.streams.insert(stream);
            }
        }
    }

    /// The second reading happens here.
    fn finish(mut self, observer: Option<&mut dyn Observer>) -> Builder {
        self.take_transfers();
        let estimates: Vec<Option<Estimate>> =
            self.configs.iter().map(|config| config.samples.estimate()).collect();
        for (config, estimate) in self.configs.iter().zip(&estimates) {
            let Some(estimate) = estimate else { continue };
            self.part.kernels.counts(config.kernel).add_times(estimate);
        }
        self.sampled.sort();
        let costs = self.costs(&estimates);
        let Read { activities, range_times, mut collectives } = self.activities(&costs, observer);
        collectives.iter_mut().for_each(|series| series.process = THIS);
        self.part.collectives = collectives;
        for (mut activity, samples) in activities {
            if let (Some(host), Some(samples)) = (&self.others.host, samples) {
                activity.host_samples = host.samples(samples, &mut self.part.host_stacks);
            }
            self.part.activities.push(activity);
        }
        range_times.into_iter().for_each(|(range, times)| self.part.ranges.counts(range).times = times);
        let launches =
            self.streams.values().map(|stream| stream.launches + stream.graph_launches).saturating_sum();
        self.part.processes[THIS].process.launches = launches;
        let used = |stream: &Stream| stream.launches + stream.graph_launches + stream.transfers > 0;
        self.part.streams.extend(self.streams.into_values().filter(used));
        self.part.sequences.extend(self.sequences.finish(THIS));
        (self.part.memory_over_time, self.part.memory) = self.heap.finish(THIS);
        let used = |counts: &CallCounts| counts.cpu.count() + counts.failed > 0;
        for ((api, class), counts) in self.calls.into_iter().filter(|(_, counts)| used(counts)) {
            let name = self.process.definitions.name(api).unwrap_or("unknown").to_owned();
            self.part.calls.insert((name, class), counts);
        }
        for graph in self.graphs.into_iter().filter(|graph| graph.launches + graph.failed > 0) {
            self.part.graphs.push(graph.finish(self.process));
        }
        self.part
    }
}

/// Returns the key by which copies are counted: direction and kinds of memory.
fn sort_of_copy(destination: u8, source: u8, of: u16) -> (CopyDirection, MemoryKind, MemoryKind, bool) {
    let kind = |raw| MemoryKind::from_raw(raw).unwrap_or(MemoryKind::Unknown);
    let (destination, source) = (kind(destination), kind(source));
    let direction = CopyDirection::between(source, destination).or_peer(of & flags::PEER != 0);
    (direction, source, destination, of & flags::ASYNC != 0)
}

/// Whether the call may have waited for work on the device.
pub(super) fn waits(call: &CallRecord) -> bool {
    let asynchronous = call.head.flags & flags::ASYNC != 0;
    match CallClass::from_raw(call.class) {
        Some(CallClass::Synchronize) => true,
        Some(CallClass::Copy) => copy_waits(call.source_memory(), call.memory(), asynchronous),
        _ => false,
    }
}

/// Whether a stream capture would not survive the call.
fn cannot_be_captured(call: &CallRecord) -> bool {
    let asynchronous = call.head.flags & flags::ASYNC != 0;
    match CallClass::from_raw(call.class) {
        Some(CallClass::Synchronize) => true,
        Some(CallClass::Copy | CallClass::Set) => !asynchronous,
        _ => false,
    }
}
