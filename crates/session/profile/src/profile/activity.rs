//! The second reading of a process, which places its work and its calls on the time line of each
//! device ([`crate::accounts`]).

mod waits;

use apex_ordered::{Gather, Order};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use apex_trace::layout::{Call, CallClass, GraphLaunch, Launch, RangeChange, RecordHead, Timing, flags};
use apex_trace::{Event, Record};

use super::by_id::IndexById;
use super::collectives::AllSeries;
use super::costs::{Costs, LaunchTimes, Launched, PerLaunched};
use super::launches::LaunchCounts;
use super::ranges::{OpenRanges, RangePlaces, RangeTimes, Ranges};
use super::reading::{Extent, Reading, THIS, waits};
use super::sampled::Sample;
use super::transfers::{is_pageable, transfer_ns};
use super::{
    Activity, Collective, CollectiveLaunch, CollectiveSeries, CopyDirection, Growth, Sizes, sampled,
};
use crate::accounts::{
    Boundaries, IdleCause, IdleSampler, IdleSums, Loop, Model, NewWork, Phase, PhaseCall, PhaseKind, Queued,
    SampledThreads, Seen, Timeline, Work,
};
use crate::figure::Figure;
use crate::observer::{Called, ObservedCall, ObservedProcess, ObservedWork, Observer};

/// A first launch that takes longer has loaded code.
const LOADS_NS: u64 = 20_000;

/// A device while the process is read for the second time.
struct Device {
    model: Model,
    /// Bytes that its memory moves in a nanosecond; 0 if unknown.
    bandwidth: f64,
    timed: u64,
    counts: PerLaunched<u64>,
    launched: LaunchCounts,
}

/// Launches and calls of a phase.
#[derive(Default)]
struct PhaseCounts {
    devices: BTreeMap<Option<usize>, PhaseLaunches>,
    calls: HashMap<CallKey, CallSums>,
}

/// Launches of a phase on a device.
#[derive(Default)]
struct PhaseLaunches {
    all: u64,
    /// Launch calls by kernel.
    kernels: Vec<u64>,
    /// Graph launches by the graph's identifier.
    graphs: BTreeMap<u32, u64>,
}

/// The sums over calls of one kind in a phase.
#[derive(Default)]
struct CallSums {
    count: u64,
    bytes: u64,
    cpu_ns: u64,
    /// The sizes of copies.
    sizes: Sizes,
}

/// What the second reading gives: the use of each device, times of ranges, collectives.
pub(super) struct Read {
    pub activities: Vec<Sampled>,
    pub range_times: BTreeMap<usize, RangeTimes>,
    pub collectives: Vec<CollectiveSeries>,
}

/// The use of a device, and the host's samples while it was idle.
type Sampled = (Activity, Option<IdleSums>);

/// Entry point, class, where a copy goes, pageable, asynchronous.
type CallKey = (u32, u8, Option<CopyDirection>, bool, bool);

/// The second reading.
struct Second<'r, 'b, 'o> {
    reading: &'r Reading<'b>,
    costs: &'r Costs,
    devices: BTreeMap<Option<usize>, Device>,
    /// Entry points that wait for an event.
    event_calls: HashSet<u32>,
    /// The time at which the work before an event is done, in each of the three models, and its
    /// stream.
    events: HashMap<u64, ([u64; 3], u32)>,
    /// Configurations that have been launched.
    met: IndexById,
    /// The position of the reading among the samples.
    samples: sampled::Cursor,
    boundaries: Boundaries,
    /// The part of the run that the host is in, among `boundaries`.
    at: usize,
    /// In the order of [`PhaseKind::ALL`].
    phases: [PhaseCounts; PhaseKind::ALL.len()],
    ranges: Ranges,
    range_places: RangePlaces,
    open_ranges: OpenRanges,
    range_times: BTreeMap<usize, RangeTimes>,
    collectives: AllSeries,
    observer: Option<&'o mut (dyn Observer + 'o)>,
    /// The thread of the last call that launched.
    launching: u32,
}

/// A launch: its device and stream, and its call.
struct LaunchCall {
    what: Launched,
    device: Option<usize>,
    kernel: Option<usize>,
    stream: u32,
    thread: u32,
    range: u32,
    start: u64,
    end: u64,
    loads: bool,
    collective: bool,
    called: Called,
    /// Whether the call itself was recorded, not its kernel alone.
    is_recorded: bool,
}

impl Reading<'_> {
    /// Reads the process's work and calls again, and passes them to the observer.
    pub(super) fn activities(&self, costs: &Costs, mut observer: Option<&mut dyn Observer>) -> Read {
        let end = self.extents.values().map(|extent| extent.end).fold(0.0, f64::max) as u64;
        let found = self.launched.find_loop(end);
        let boundaries = found.as_ref().map_or_else(|| vec![(0, PhaseKind::Whole)].into(), Loop::boundaries);
        if let Some(observer) = &mut observer {
            let (process, devices) = (self.process, &self.part.devices);
            let mut phases = boundaries.to_vec();
            phases.dedup_by_key(|&mut (_, kind)| kind);
            let iterations = found.as_ref().map_or(&[][..], Loop::all);
            let is_placed = self.is_placed;
            observer.process(&ObservedProcess { process, devices, phases: &phases, iterations, is_placed });
        }
        let mut second = Second::new(self, costs, boundaries, observer);
        for record in self.process.records_by_time() {
            second.record(&record);
            second.tell();
        }
        second.finish(found.as_ref())
    }

    /// Returns the start and end of a call, in nanoseconds after the process's start.
    fn interval(&self, head: &RecordHead) -> (u64, u64) {
        let (start, cpu_ns) = self.times(head);
        (start as u64, (start as u64).saturating_add(cpu_ns))
    }

    /// The threads of this process that were sampled.
    fn sampled_threads(&self) -> Option<Arc<SampledThreads>> {
        self.others.host.as_ref()?.threads(self.process.pid, self.process.clock.monotonic_ns(0))
    }

    /// Entry points that wait for an event.
    fn event_synchronisations(&self) -> HashSet<u32> {
        let apis = self.calls.keys().map(|&(api, _)| api);
        apis.filter(|&api| self.process.definitions.name(api).is_some_and(|name| name.contains("Event")))
            .collect()
    }
}

impl<'r, 'b, 'o> Second<'r, 'b, 'o> {
    fn new(
        reading: &'r Reading<'b>,
        costs: &'r Costs,
        boundaries: Boundaries,
        observer: Option<&'o mut (dyn Observer + 'o)>,
    ) -> Self {
        let observed = observer.is_some();
        let device = |(&device, extent): (&Option<usize>, &Extent)| {
            let bandwidth = device.map_or(0.0, |device| reading.part.devices[device].memory_bytes_per_ns());
            let mut state = Device::new(extent, &reading.window, bandwidth, costs, &boundaries, observed);
            if reading.is_placed {
                state.model.each(|timeline| timeline.ledger.is_measured = true);
            }
            (device, state)
        };
        let mut devices: BTreeMap<_, _> = reading.extents.iter().map(device).gathered();
        if let Some(threads) = reading.sampled_threads() {
            let sampler = || IdleSampler::new(Arc::clone(&threads));
            devices.values_mut().for_each(|device: &mut Device| device.model.usual().sort(sampler()));
        }
        // The same places as those of the first reading: they come from the same definitions.
        let mut ranges = Ranges::default();
        let range_places = RangePlaces::of(reading.process, &mut ranges);
        Self {
            devices,
            event_calls: reading.event_synchronisations(),
            events: HashMap::new(),
            met: IndexById::default(),
            samples: sampled::Cursor::default(),
            collectives: AllSeries::of(reading.process.definitions.ranges()),
            reading,
            costs,
            boundaries,
            at: 0,
            phases: Default::default(),
            ranges,
            range_places,
            open_ranges: OpenRanges::default(),
            range_times: BTreeMap::new(),
            observer,
            launching: 0,
        }
    }

    /// Tells the observer what was settled.
    fn tell(&mut self) {
        let Some(observer) = &mut self.observer else { return };
        observer.read(1);
        for (&device, state) in &mut self.devices {
            tell_of(&mut **observer, device, &mut state.model);
        }
    }

    fn record(&mut self, record: &Record) {
        match &record.event {
            Event::Launch(launch) => self.kernel_launch(record, launch),
            Event::GraphLaunch(launch) if launch.result == 0 => self.graph_launch(record, launch),
            Event::Call(call) => self.call(record.tid, record.range, call),
            Event::Timing(timing) => self.placed(record, timing),
            Event::RangeChange(change) => self.range_change(record, change),
            _ => {}
        }
    }

    fn kernel_launch(&mut self, record: &Record, launch: &Launch) {
        let (thread, range) = (record.tid, record.range);
        let (start, end) = self.reading.interval(&launch.head);
        let loads = self.meets(launch.config) && end - start > LOADS_NS;
        let called = Called::Config(launch.config);
        let is_captured = launch.head.flags & flags::CAPTURED != 0;
        if is_captured || launch.result != 0 {
            let cause = if is_captured { IdleCause::Capturing } else { IdleCause::Launching };
            return self.called(&ObservedCall { thread, start, end, cause, called, bytes: 0, range });
        }
        let place = self.reading.config_places.get(launch.config);
        let config = place.map(|place| &self.reading.configs[place]);
        let of_kernel = config.and_then(|config| config.device);
        self.launch(
            &LaunchCall {
                what: Launched::Config(place),
                device: self.reading.device_of_launch(of_kernel, launch.stream),
                kernel: config.map(|config| config.kernel),
                collective: config.is_some_and(|config| config.collective),
                stream: launch.stream,
                thread,
                range,
                start,
                end,
                loads,
                called,
                is_recorded: launch.head.flags & flags::NO_CALL == 0,
            },
            launch.head.start,
        );
    }

    fn graph_launch(&mut self, record: &Record, launch: &GraphLaunch) {
        let (start, end) = self.reading.interval(&launch.head);
        let place = self.reading.graph_places.get(launch.graph);
        let graph = place.map(|place| &self.reading.graphs[place]);
        let of_kernels = graph.and_then(|graph| graph.device);
        self.launch(
            &LaunchCall {
                what: Launched::Graph(place),
                device: self.reading.device_of_launch(of_kernels, launch.stream),
                kernel: graph.and_then(|graph| graph.kernels.first()).map(|&(kernel, _)| kernel),
                collective: false,
                stream: launch.stream,
                thread: record.tid,
                range: record.range,
                start,
                end,
                loads: false,
                called: Called::Graph(launch.graph),
                is_recorded: true,
            },
            launch.head.start,
        );
    }

    fn range_change(&mut self, record: &Record, change: &RangeChange) {
        self.open_ranges.change(record.tid, change, 0, &mut self.range_places, &mut self.ranges);
        let is_process_wide = change.head.flags & flags::PROCESS_WIDE != 0;
        if !is_process_wide && change.instance != 0 {
            self.collectives.called(record.tid, change.changed, change.instance);
        }
        let Some(observer) = &mut self.observer else { return };
        let at = self.reading.process.clock.ns_since_start(change.head.start);
        observer.range(record.tid, at, record.range);
        if is_process_wide {
            let begins = change.head.flags & flags::RANGE_BEGUN != 0;
            observer.process_range(at, change.changed, change.instance, begins);
        }
    }

    /// Whether a configuration is launched for the first time.
    fn meets(&mut self, config: u32) -> bool {
        let is_new = self.met.get(config).is_none();
        if is_new {
            self.met.insert(config, 0);
        }
        is_new
    }

    /// The part of the run that a moment lies in, among the boundaries; moments come in order.
    fn part(&mut self, moment: u64) -> usize {
        while self.boundaries.get(self.at + 1).is_some_and(|&(begins, _)| begins <= moment) {
            self.at += 1;
        }
        self.at
    }

    /// The counts of the phase at a moment; moments come in order.
    fn phase(&mut self, moment: u64) -> &mut PhaseCounts {
        let part = self.part(moment);
        &mut self.phases[self.boundaries[part].1 as usize]
    }

    fn called(&mut self, call: &ObservedCall) {
        if let Some(observer) = &mut self.observer {
            observer.call(call);
        }
        let ObservedCall { thread, start, end, cause, .. } = *call;
        self.devices.values_mut().for_each(|device| {
            device.model.each(|timeline| timeline.called(thread, start, end, cause));
        });
    }

    /// Counts a launch and places its work on the device, for the time that was measured at these
    /// ticks or is known of others. Where the work has records of its own, they place it.
    fn launch(&mut self, call: &LaunchCall, ticks: u64) {
        if call.is_recorded {
            self.launch_called(call);
        }
        let counts = self.reading.counts_at(call.start as f64);
        if counts {
            self.count_launch(call);
        }
        let part = self.part(call.start);
        let sample = self.reading.sampled.at(ticks, &mut self.samples);
        self.collective_launched(call, sample, counts);
        let cost = self.costs.times.get(call.what).copied().flatten();
        let Some(device) = self.devices.get_mut(&call.device) else { return };
        if counts {
            device.count(call, cost);
        }
        if self.reading.is_placed {
            return;
        }
        if let Some(sample) = sample {
            device.see_stream(call, sample);
        }
        let taken = match (sample, cost) {
            (Some(sample), _) => [sample.ns; 3],
            (None, Some(cost)) => cost.taken,
            (None, None) => self.costs.unknown,
        };
        let what = match call.collective {
            _ if sample.is_none() && cost.is_none() => Work::Unknown,
            true => Work::Collective,
            false => Work::Kernel,
        };
        let uncertainty = cost.filter(|_| sample.is_none()).map_or((0.0, 0.0), |cost| cost.uncertainty);
        let work = NewWork {
            stream: call.stream,
            kind: self.reading.streams.get(call.stream).and_then(|stream| stream.kind),
            ready: call.end,
            is_placed: false,
            taken: 0,
            what,
            kernel: call.kernel,
            thread: call.thread,
            part,
            range: self.range_places.of_thread(call.range),
            uncertainty,
            queued: Queued { start: call.start, called: call.called, is_timed: sample.is_some() },
        };
        device.model.queue(work, taken);
        if what != Work::Unknown {
            self.charge_ranges(&work, taken);
        }
    }

    /// Passes on the host's side of a launch.
    fn launch_called(&mut self, call: &LaunchCall) {
        let &LaunchCall { thread, start, end, called, range, .. } = call;
        let cause = if call.loads { IdleCause::Loading } else { IdleCause::Launching };
        self.launching = thread;
        self.called(&ObservedCall { thread, start, end, cause, called, bytes: 0, range });
    }

    /// Counts a launch in its phase.
    fn count_launch(&mut self, call: &LaunchCall) {
        let launches = self.phase(call.start).devices.entry(call.device).or_default();
        launches.all += 1;
        match (call.called, call.kernel) {
            (Called::Graph(graph), _) => *launches.graphs.entry(graph).or_default() += 1,
            (_, Some(kernel)) => {
                if launches.kernels.len() <= kernel {
                    launches.kernels.resize(kernel + 1, 0);
                }
                launches.kernels[kernel] += 1;
            }
            _ => {}
        }
    }

    /// Adds a launch of a collective to its series.
    fn collective_launched(&mut self, call: &LaunchCall, sample: Option<Sample>, counts: bool) {
        let (true, Some(kernel)) = (call.collective, call.kernel) else { return };
        let symbol = self.reading.part.kernels.symbol_and_launch(kernel).0;
        let launch = CollectiveLaunch {
            symbol: 0,
            start_ns: call.start,
            ns: sample.map(|sample| sample.ns),
            exchanges: 0,
        };
        self.collectives.launched(call.thread, (call.device, call.stream), symbol, launch, counts);
    }

    /// Adds the time of work, in each of the three models, to the ranges that it belongs to.
    fn charge_ranges(&mut self, work: &NewWork, taken: [u64; 3]) {
        for range in work.range.into_iter().chain(self.open_ranges.of_process()) {
            let times = self.range_times.entry(range).or_default();
            times.gpu_ns.iter_mut().zip(taken).for_each(|(sum, taken)| *sum = sum.saturating_add(taken));
            times.timed += u64::from(work.what != Work::Copy);
        }
    }

    /// Work whose time on the device another tool recorded.
    fn placed(&mut self, record: &Record, timing: &Timing) {
        let Some(at) = timing.placed_at() else { return };
        let reading = self.reading;
        let by_stream = || reading.device_of_stream(timing.stream);
        let (device, kernel, what, called) = if timing.head.flags & flags::OF_CALL != 0 {
            (by_stream(), None, Work::Copy, Called::Api(timing.config))
        } else if timing.head.flags & flags::OF_GRAPH != 0 {
            let graph = reading.graph_places.get(timing.config).map(|place| &reading.graphs[place]);
            let kernel = graph.and_then(|graph| graph.kernels.first()).map(|&(kernel, _)| kernel);
            let device = graph.and_then(|graph| graph.device).or_else(by_stream);
            (device, kernel, Work::Kernel, Called::Graph(timing.config))
        } else {
            let config = reading.config_places.get(timing.config).map(|place| &reading.configs[place]);
            let what =
                if config.is_some_and(|config| config.collective) { Work::Collective } else { Work::Kernel };
            let device = config.and_then(|config| config.device);
            (device, config.map(|config| config.kernel), what, Called::Config(timing.config))
        };
        let clock = &reading.process.clock;
        let start = clock.ns_since_start(timing.head.start);
        let work = NewWork {
            stream: timing.stream,
            kind: None,
            ready: clock.ns_since_start(at),
            is_placed: true,
            taken: 0,
            what,
            kernel,
            thread: self.launching,
            part: self.part(start),
            range: self.range_places.of_thread(record.range),
            uncertainty: (0.0, 0.0),
            queued: Queued { start, called, is_timed: true },
        };
        let Some(device) = self.devices.get_mut(&device) else { return };
        device.model.queue(work, [timing.raw_ns; 3]);
        self.charge_ranges(&work, [timing.raw_ns; 3]);
    }

    fn call(&mut self, thread: u32, range: u32, call: &Call) {
        let (start, end) = self.reading.interval(&call.head);
        let captured = call.head.flags & flags::CAPTURED != 0;
        let cause = if captured { IdleCause::Capturing } else { cause(call) };
        let (called, bytes) = (Called::Api(call.api), call.bytes);
        self.called(&ObservedCall { thread, start, end, cause, called, bytes, range });
        if call.result != 0 || captured {
            return;
        }
        if self.reading.counts_at(start as f64) {
            self.count(call, start, end - start);
        }
        if self.reading.is_placed {
            return; // what it waited for, or copied, ran when its records say
        }
        match call.class() {
            Some(CallClass::Copy | CallClass::Set) => self.transfer((thread, range), call, start, end),
            Some(CallClass::Event) if call.head.flags & flags::ASYNC != 0 => self.event_recorded(call),
            Some(CallClass::Stream) if call.head.flags & flags::ASYNC != 0 => self.stream_waits(call),
            // A query of a stream is recorded where it says that the stream is empty.
            Some(CallClass::Stream) if call.stream != 0 && call.object != 0 && self.is_query(call) => {
                let stream = call.stream;
                self.on(stream, |timeline| timeline.empty_at(Some(stream), end));
            }
            _ if waits(call) => self.waited(call, start, end, 0),
            _ => {}
        }
    }

    fn is_query(&self, call: &Call) -> bool {
        self.reading.process.definitions.name(call.api).is_some_and(|name| name.starts_with("cuStreamQuery"))
    }

    fn count(&mut self, call: &Call, start: u64, cpu_ns: u64) {
        let is_copy = call.class() == Some(CallClass::Copy);
        let direction = is_copy.then(|| CopyDirection::of(call));
        let asynchronous = call.head.flags & flags::ASYNC != 0;
        let key = (call.api, call.class, direction, is_copy && is_pageable(call), asynchronous);
        let sums = self.phase(start).calls.entry(key).or_default();
        sums.count += 1;
        sums.bytes = sums.bytes.saturating_add(call.bytes);
        sums.cpu_ns = sums.cpu_ns.saturating_add(cpu_ns);
        if is_copy {
            sums.sizes.add(call.bytes);
        }
    }

    /// Does something to the device of a stream, if it is known.
    fn on(&mut self, stream: u32, change: impl FnMut(&mut Timeline)) {
        if let Some(device) = self.device_of(stream) {
            device.model.each(change);
        }
    }

    /// The device of a stream. A process with one device needs no record of the stream.
    fn device_of(&mut self, stream: u32) -> Option<&mut Device> {
        let device = self.reading.device_of_stream(stream);
        let only = self.devices.len() == 1;
        self.devices.iter_mut().find(|(known, _)| only || **known == device).map(|(_, device)| device)
    }

    /// A copy or a set: work on its stream. The host waits for some.
    fn transfer(&mut self, (thread, range): (u32, u32), call: &Call, start: u64, end: u64) {
        let bandwidth = self.device_of(call.stream).map_or(0.0, |device| device.bandwidth);
        let taken = transfer_ns(call, bandwidth);
        if waits(call) {
            self.waited(call, start, end, taken[2]);
            // It is done when the call returns, and the host waits for it: the call is charged.
            return;
        }
        let work = NewWork {
            stream: call.stream,
            kind: self.reading.streams.get(call.stream).and_then(|stream| stream.kind),
            ready: end,
            is_placed: false,
            taken: 0,
            what: Work::Copy,
            kernel: None,
            thread,
            part: self.part(start),
            range: self.range_places.of_thread(range),
            uncertainty: (0.0, 0.0),
            queued: Queued { start, called: Called::Api(call.api), is_timed: false },
        };
        let mut taken = taken.into_iter();
        self.on(call.stream, |timeline| timeline.queue(NewWork { taken: taken.next().unwrap_or(0), ..work }));
    }

    fn finish(mut self, found: Option<&Loop>) -> Read {
        let devices = std::mem::take(&mut self.devices);
        let mut activities: Vec<Sampled> =
            devices.into_iter().map(|(device, state)| self.activity(device, state, found)).collect();
        if self.reading.window != (0..u64::MAX) {
            activities.retain(|(activity, _)| activity.span_ns > 0.0);
        }
        let collectives = self.collectives.finish();
        Read { activities, range_times: self.range_times, collectives }
    }

    fn activity(&mut self, device: Option<usize>, state: Device, found: Option<&Loop>) -> Sampled {
        let extent = &self.reading.extents[&device];
        let (start_ns, end_ns) = extent.within(&self.reading.window);
        let mut activity = Activity {
            process: THIS,
            device,
            ordinal: device.and_then(|device| self.reading.part.devices[device].ordinals.first().copied()),
            start_ns,
            span_ns: end_ns - start_ns,
            launches: extent.launches,
            timed_share: state.timed as f64 / extent.launches.max(1) as f64,
            streams: extent.streams.len(),
            has_threads: extent.has_threads,
            gpu_time_ns: state.gpu_time(self.costs),
            iterations: found.and_then(|found| found.iterations(&self.reading.window)),
            collectives: self.collectives(&state),
            launches_over_time: state.launched.finish(),
            ..Activity::default()
        };
        activity.growth = Growth::of(&activity.launches_over_time);
        if let Some(iterations) = activity.iterations.as_mut().filter(|_| extent.launches == 0) {
            // They are made of other calls.
            iterations.launches = 0.0;
        }
        let mut model = state.model;
        model.each(Timeline::end);
        let samples = model.usual().take_samples();
        if let Some(observer) = &mut self.observer {
            tell_of(&mut **observer, device, &mut model);
        }
        let Model(timelines) = model;
        for (model, timeline) in timelines.iter().enumerate() {
            for (range, idle) in timeline.idle_of_ranges() {
                self.range_times.entry(range).or_default().idle_ns[model] += idle;
            }
        }
        let [usual, short, long] = &timelines;
        let accounts = |phase| usual.ledger.accounts([&short.ledger, &long.ledger], phase);
        activity.accounts = accounts(None);
        let step_ns = usual.ledger.step_ns([&short.ledger, &long.ledger]);
        if let Some((iterations, step_ns)) = activity.iterations.as_mut().zip(step_ns) {
            iterations.step_ns = step_ns;
        }
        // Where the host runs ahead, a phase may have launches that the device has not begun.
        let is_used = |kind: &PhaseKind| {
            usual.ledger.has_phase(*kind) || self.phases[*kind as usize].devices.contains_key(&device)
        };
        let phases = PhaseKind::ALL.into_iter().filter(is_used);
        activity.phases = phases.map(|kind| self.phase_of(device, kind, accounts(Some(kind)))).collect();
        activity.busy = usual.ledger.busy();
        activity.over_time = Some(usual.ledger.over_time());
        let [usual, ..] = timelines;
        (activity.gaps, activity.long_gaps, activity.long_gaps_ns) = usual.gaps();
        activity.tell_idle_time();
        (activity, samples)
    }

    fn phase_of(&self, device: Option<usize>, kind: PhaseKind, accounts: crate::Accounts) -> Phase {
        let counts = &self.phases[kind as usize];
        let launches = counts.devices.get(&device);
        let kernels = launches.map_or(&[][..], |launches| &launches.kernels).iter().copied().enumerate();
        let name = |api: u32| self.reading.process.definitions.name(api).unwrap_or("unknown").to_owned();
        let call =
            |(&(api, class, direction, pageable, asynchronous), sums): (&CallKey, &CallSums)| PhaseCall {
                name: name(api),
                class: CallClass::from_raw(class),
                direction,
                pageable,
                asynchronous,
                count: sums.count,
                bytes: sums.bytes,
                sizes: sums.sizes.clone(),
                cpu_ns: sums.cpu_ns as f64,
            };
        let mut calls: Vec<PhaseCall> = counts.calls.iter().map(call).collect();
        calls.order_by(|a, b| {
            let key = |call: &PhaseCall| (call.direction, call.pageable, call.asynchronous);
            b.cpu_ns.total_cmp(&a.cpu_ns).then_with(|| a.name.cmp(&b.name)).then_with(|| key(a).cmp(&key(b)))
        });
        Phase {
            kind,
            accounts,
            launches: launches.map_or(0, |launches| launches.all),
            kernels: kernels.filter(|&(_, count)| count > 0).collect(),
            graphs: launches
                .into_iter()
                .flat_map(|launches| &launches.graphs)
                .map(|(&id, &count)| (id, count))
                .collect(),
            calls,
        }
    }

    /// Collectives that were launched and timed.
    fn collectives(&self, state: &Device) -> Vec<Collective> {
        let places = self.reading.configs.iter().zip(&state.counts.configs).zip(&self.costs.known.configs);
        let of = places.filter(|((config, count), _)| config.collective && **count > 0);
        of.filter_map(|((config, &launches), cost)| {
            Some(Collective { kernel: config.kernel, launches, mean_ns: (*cost)?.mean_ns })
        })
        .collect()
    }
}

impl Device {
    fn new(
        extent: &Extent,
        window: &Range<u64>,
        bandwidth: f64,
        costs: &Costs,
        boundaries: &Boundaries,
        observed: bool,
    ) -> Self {
        let known = &costs.known;
        let counts =
            PerLaunched { configs: vec![0; known.configs.len()], graphs: vec![0; known.graphs.len()] };
        let (start, end) = extent.within(window);
        let (span, told) = ((extent.start as u64, extent.end as u64), (start as u64, end as u64));
        let mut model = Model::new(span, told, boundaries);
        if observed {
            model.usual().observe();
        }
        Self { model, bandwidth, timed: 0, counts, launched: LaunchCounts::new(told) }
    }

    /// Counts a launch of what has this cost.
    fn count(&mut self, call: &LaunchCall, cost: Option<LaunchTimes>) {
        self.timed += u64::from(cost.is_some_and(|cost| cost.own));
        if let Some(count) = self.counts.get_mut(call.what) {
            *count += 1;
        }
        if let (Launched::Config(_), Some(kernel)) = (call.what, call.kernel) {
            self.launched.launched(kernel, call.start);
        }
    }

    /// Corrects the time lines by what a timed launch found its stream doing.
    fn see_stream(&mut self, call: &LaunchCall, sample: Sample) {
        self.model.each(|timeline| match sample.idle {
            true => timeline.empty_at(Some(call.stream), call.start),
            // Before a collective, the stream is told to wait for the kernels whose results it
            // sends: it has something to do, and runs nothing.
            false if call.collective => {}
            false => timeline.busy_at(call.stream, call.start),
        });
    }

    /// GPU time of all launches whose time is known.
    fn gpu_time(&self, costs: &Costs) -> Option<Figure> {
        let counts = self.counts.iter().zip(costs.known.iter()).filter(|(count, _)| **count > 0);
        Figure::sum(counts.filter_map(|(&count, cost)| {
            let cost = (*cost).filter(|cost| cost.own)?;
            let error = cost.variance.map(f64::sqrt);
            Some(Figure::sampled(cost.mean_ns, cost.samples, error).scaled(count as f64))
        }))
    }
}

/// Passes the final events of a device to an observer.
fn tell_of(observer: &mut dyn Observer, device: Option<usize>, model: &mut Model) {
    model.usual().tell(|seen| match seen {
        Seen::Stretch(from, to, on) => observer.stretch(device, from, to, on),
        Seen::Work(work) => observer.work(&ObservedWork { device, ..work }),
    });
}

/// The activity of the host in a call.
fn cause(call: &Call) -> IdleCause {
    match CallClass::from_raw(call.class) {
        Some(CallClass::Allocate | CallClass::Free) => IdleCause::Allocating,
        Some(CallClass::Copy | CallClass::Set) => IdleCause::Transferring,
        Some(CallClass::Synchronize) => IdleCause::Synchronising,
        Some(CallClass::Module) => IdleCause::Loading,
        Some(CallClass::Graph) => IdleCause::Capturing,
        _ => IdleCause::OtherCalls,
    }
}
