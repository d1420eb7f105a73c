//! Builds the index of a session: the profile is built once, and its observer writes lanes.

use apex_ordered::Order;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use apex_profile::{
    Builder, Called, ObservedCall, ObservedProcess, ObservedWork, Observer, Predictions, Profile, Ranks, Use,
    origin_ns,
};
use apex_trace::definition::StreamKind;
use apex_trace::{Definitions, Session};
use cuda_launch::{FunctionAttributes, LaunchConfig};

use crate::event::{Basis, Event, What, off_code};
use crate::file::{Sink, Source};
use crate::lane::{LaneWriter, Stretches};
use crate::tables::{Kernel, LaneKind, LaneRow, Name, Phase, Process, Tables, text};

/// Lanes of a session: events of others are left out, and counted.
const MOST_LANES: usize = 1024;
/// Beginnings of phases.
const MOST_PHASES: usize = 1000;
/// Names of ranges: more names are not distinguished.
const MOST_RANGES: usize = 1 << 17;

/// The progress of an index.
#[derive(Debug, Default)]
pub struct Progress {
    read: AtomicU64,
    all: AtomicU64,
}

impl Progress {
    /// The share that is done.
    pub fn share(&self) -> f64 {
        let [read, all] = [&self.read, &self.all].map(|count| count.load(Ordering::Relaxed) as f64);
        if all > 0.0 { (read / all).min(1.0) } else { 0.0 }
    }
}

/// The lane that an event belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum LaneKey {
    Device(Option<usize>),
    Stream(Option<usize>, u32),
    Thread(u32),
    Range(u32),
}

/// The object that an event names, in its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Named {
    Called(Called),
    Range(u32),
}

/// A lane that grows.
struct Growing {
    key: LaneKey,
    process: usize,
    group: Option<u32>,
    writer: LaneWriter,
    /// The end of the last work on a stream. Work that overlaps it, as other profilers may have
    /// recorded, is drawn from then on.
    drawn: u64,
    stretches: Stretches,
    /// The range that is open.
    range: Option<OpenRange>,
}

/// A range of a thread that has not ended yet.
struct OpenRange {
    start: u64,
    name: u32,
    range: u32,
}

/// A process whose records have been read, or are being read.
struct IndexedProcess {
    definitions: Arc<Definitions>,
    threads: BTreeMap<u32, String>,
    devices: Vec<(String, String)>,
    /// The time from the session's start to the process's.
    late: u64,
    row: Process,
    groups: u32,
}

struct Indexer<'p> {
    progress: &'p Progress,
    sink: Sink,
    origin: u64,
    /// Processes by rank.
    ranks: Ranks,
    processes: Vec<IndexedProcess>,
    phases: Vec<Phase>,
    lanes: Vec<Growing>,
    /// Lanes of the current process.
    places: HashMap<LaneKey, usize>,
    names: Vec<(usize, Named)>,
    name_places: HashMap<Named, u32>,
    ranges: Vec<String>,
    range_places: HashMap<u32, u32>,
    /// The last moment of the current process.
    latest: u64,
    left_out: u64,
}

/// Writes the index of a session into an empty file. `predict` computes what models
/// say of the profile.
///
/// # Errors
/// If it cannot be written.
pub fn build(
    session: &Session,
    file: File,
    identity: u64,
    progress: &Progress,
    predict: impl FnOnce(&Profile) -> Predictions,
) -> io::Result<(Source, Tables)> {
    // Each process is read twice.
    let all = session.processes.iter().map(|process| process.record_count.saturating_mul(2));
    progress.all.store(all.fold(0, u64::saturating_add), Ordering::Relaxed);
    let mut indexer = Indexer {
        progress,
        sink: Sink::new(file),
        origin: origin_ns(session),
        ranks: Ranks::of(session),
        processes: Vec::new(),
        phases: Vec::new(),
        lanes: Vec::new(),
        places: HashMap::new(),
        names: Vec::new(),
        name_places: HashMap::new(),
        ranges: Vec::new(),
        range_places: HashMap::new(),
        latest: 0,
        left_out: 0,
    };
    let mut builder = Builder::default();
    builder.add_observed(session, &mut indexer);
    let profile = builder.finish();
    let predictions = predict(&profile);
    let profile = profile.with(predictions);
    indexer.finish(&profile, identity)
}

impl Indexer<'_> {
    /// A lane of the current process; `None` if there are too many.
    fn lane(&mut self, key: LaneKey) -> Option<usize> {
        if let Some(&place) = self.places.get(&key) {
            return Some(place);
        }
        if self.lanes.len() == MOST_LANES {
            self.left_out += 1;
            return None;
        }
        self.lanes.push(Growing {
            key,
            process: self.processes.len() - 1,
            group: None,
            writer: LaneWriter::default(),
            drawn: 0,
            stretches: Stretches::default(),
            range: None,
        });
        self.places.insert(key, self.lanes.len() - 1);
        Some(self.lanes.len() - 1)
    }

    fn push(&mut self, key: LaneKey, event: &Event) {
        if let Some(lane) = self.lane(key) {
            self.lanes[lane].writer.push(&mut self.sink, event);
        }
    }

    /// A moment of the current process, since the session's start.
    fn at(&self, moment: u64) -> u64 {
        moment.saturating_add(self.processes.last().map_or(0, |process| process.late))
    }

    fn name(&mut self, named: Named) -> u32 {
        let (names, process) = (&mut self.names, self.processes.len() - 1);
        *self.name_places.entry(named).or_insert_with(|| {
            names.push((process, named));
            names.len() as u32
        })
    }

    fn range(&mut self, id: u32) -> u32 {
        if id == 0 {
            return 0;
        }
        if let Some(&place) = self.range_places.get(&id) {
            return place;
        }
        if self.ranges.len() == MOST_RANGES {
            return 0;
        }
        let definitions = self.processes.last().map(|process| Arc::clone(&process.definitions));
        self.ranges.push(definitions.map_or_else(String::new, |definitions| path_of(&definitions, id)));
        self.range_places.insert(id, self.ranges.len() as u32);
        self.ranges.len() as u32
    }

    /// Ends the current process.
    fn end_process(&mut self) {
        for lane in self.lanes.iter_mut().filter(|lane| lane.process + 1 == self.processes.len()) {
            if let Some(last) = std::mem::take(&mut lane.stretches).finish() {
                lane.writer.push(&mut self.sink, &last);
            }
            if let Some(open) = lane.range.take() {
                lane.writer.push(&mut self.sink, &ended(open, self.latest));
            }
        }
        self.latest = 0;
        self.places.clear();
        self.name_places.clear();
        self.range_places.clear();
    }

    fn finish(mut self, profile: &Profile, identity: u64) -> io::Result<(Source, Tables)> {
        self.end_process();
        let mut tables = Tables { phases: self.phases, ranges: self.ranges, ..Tables::default() };
        if self.left_out > 0 {
            tables.lacks.push(format!(
                "The timeline has the first {MOST_LANES} streams and threads; {} events of others are left out.",
                self.left_out
            ));
        }
        let mut known = Known::of(profile);
        tables.names =
            self.names.iter().map(|&(process, named)| known.name(&self.processes[process], named)).collect();
        tables.kernels = known.kept;
        for lane in self.lanes {
            let process = &self.processes[lane.process];
            let index = lane.writer.finish(&mut self.sink);
            tables.lanes.push(LaneRow { index, group: lane.group, ..process.row_of(lane.key, lane.process) });
        }
        tables.processes = self.processes.into_iter().map(|process| process.row).collect();
        for process in &mut tables.processes {
            process.rank = self.ranks.of_process(process.pid);
        }
        tables.order = (0..tables.lanes.len() as u32).collect();
        let lanes = &tables.lanes;
        let key = |&lane: &u32| {
            let row = &lanes[lane as usize];
            (row.process, row.device_uuid.is_none(), row.device_uuid.clone(), row.kind, lane)
        };
        tables.order.order_by_key(key);
        let written = serde_json::to_vec(&tables).map_err(io::Error::other)?;
        let place = self.sink.block(&written);
        Ok((self.sink.finish(identity, place)?, tables))
    }
}

impl Observer for Indexer<'_> {
    fn read(&mut self, records: u64) {
        self.progress.read.fetch_add(records, Ordering::Relaxed);
    }

    fn process(&mut self, observed: &ObservedProcess<'_>) {
        if !self.processes.is_empty() {
            self.end_process();
        }
        let process = observed.process;
        let late = process.clock.monotonic_ns(0).saturating_sub(self.origin);
        let place = self.processes.len();
        let room = MOST_PHASES.saturating_sub(self.phases.len());
        let phases = observed.phases.iter().take(room);
        self.phases.extend(phases.map(|&(start, kind)| Phase {
            process: place,
            kind,
            start_ns: late + start,
        }));
        let executable = process.executable.rsplit('/').next().unwrap_or_default();
        self.processes.push(IndexedProcess {
            definitions: Arc::clone(&process.definitions),
            threads: process.threads.clone(),
            devices: observed
                .devices
                .iter()
                .map(|device| (device.name.clone(), device.uuid.clone()))
                .collect(),
            late,
            row: Process { pid: process.pid, rank: None, name: text(executable), start_ns: late },
            groups: 0,
        });
    }

    fn call(&mut self, call: &ObservedCall) {
        if self.sink.has_failed() {
            return;
        }
        let event = Event {
            name: self.name(Named::Called(call.called)),
            bytes: call.bytes,
            range: self.range(call.range),
            ..Event::new(self.at(call.start), self.at(call.end), What::of(Use::Idle(call.cause)))
        };
        self.latest = self.latest.max(event.end);
        self.push(LaneKey::Thread(call.thread), &event);
    }

    fn work(&mut self, work: &ObservedWork) {
        if self.sink.has_failed() {
            return;
        }
        let basis = match work.on {
            Use::Unknown => Basis::Unknown,
            _ if work.is_timed => Basis::Measured,
            _ => Basis::Modelled,
        };
        let call_lane = self.places.get(&LaneKey::Thread(work.thread)).map_or(0, |&lane| lane as u32 + 1);
        let Some(lane) = self.lane(LaneKey::Stream(work.device, work.stream)) else { return };
        let start = self.at(work.start).max(self.lanes[lane].drawn);
        let end = self.at(work.end).max(start);
        self.lanes[lane].drawn = end;
        let event = Event {
            basis,
            name: self.name(Named::Called(work.called)),
            call_start: self.at(work.call_start),
            call_lane,
            off: off_code(work.off_ns),
            ..Event::new(start, end, What::of(work.on))
        };
        if let (Use::Collectives, None, Some(process)) =
            (work.on, self.lanes[lane].group, self.processes.last_mut())
        {
            self.lanes[lane].group = Some(process.groups);
            process.groups += 1;
        }
        self.lanes[lane].writer.push(&mut self.sink, &event);
    }

    fn stretch(&mut self, device: Option<usize>, from: u64, to: u64, on: Use) {
        let (from, to) = (self.at(from), self.at(to));
        let Some(lane) = self.lane(LaneKey::Device(device)) else { return };
        let lane = &mut self.lanes[lane];
        if let Some(ended) = lane.stretches.add(from, to, What::of(on)) {
            lane.writer.push(&mut self.sink, &ended);
        }
    }

    fn range(&mut self, thread: u32, at: u64, range: u32) {
        let at = self.at(at);
        let begins = (range != 0).then(|| OpenRange {
            start: at,
            name: self.name(Named::Range(range)),
            range: Self::range(self, range),
        });
        let Some(lane) = self.lane(LaneKey::Range(thread)) else { return };
        let lane = &mut self.lanes[lane];
        let name = |range: &Option<OpenRange>| range.as_ref().map(|range| range.name);
        if name(&lane.range) == name(&begins) {
            // A thread says it again at the beginning of each chunk.
            return;
        }
        if let Some(open) = std::mem::replace(&mut lane.range, begins) {
            lane.writer.push(&mut self.sink, &ended(open, at));
        }
    }
}

fn ended(open: OpenRange, at: u64) -> Event {
    let OpenRange { start, name, range } = open;
    Event { name, range, ..Event::new(start, at.max(start), What::RANGE) }
}

impl IndexedProcess {
    fn row_of(&self, key: LaneKey, process: usize) -> LaneRow {
        let (kind, device, thread, name) = match key {
            LaneKey::Device(device) => (LaneKind::Device, device, None, None),
            LaneKey::Stream(device, stream) => (LaneKind::Stream, device, None, Some(self.stream(stream))),
            LaneKey::Thread(thread) => (LaneKind::Thread, None, Some(thread), Some(self.thread(thread))),
            LaneKey::Range(thread) => (LaneKind::Range, None, Some(thread), Some(self.thread(thread))),
        };
        let device = device.and_then(|device| self.devices.get(device));
        let named = device.map(|(name, _)| text(name));
        LaneRow {
            kind,
            process,
            name: name.or_else(|| named.clone()).unwrap_or_else(|| "unknown device".to_owned()),
            device: named,
            device_uuid: device.map(|(_, uuid)| uuid.clone()),
            thread,
            group: None,
            index: Default::default(),
        }
    }

    fn stream(&self, id: u32) -> String {
        match self.definitions.stream(id).map(|stream| stream.kind) {
            Some(StreamKind::LegacyDefault) => "default stream".to_owned(),
            Some(StreamKind::PerThreadDefault) => format!("per-thread default stream {id}"),
            _ => format!("stream {id}"),
        }
    }

    fn thread(&self, id: u32) -> String {
        let name = self.threads.get(&id).map_or("", String::as_str);
        if name.is_empty() { format!("thread {id}") } else { format!("{} ({id})", text(name)) }
    }
}

/// The names of a range and of those around it, the outermost first.
fn path_of(definitions: &Definitions, id: u32) -> String {
    let (mut names, mut next) = (Vec::new(), id);
    while let Some(range) = definitions.range(next).filter(|_| names.len() < 32) {
        names.push(text(&range.name));
        next = range.parent;
    }
    names.reverse();
    text(&names.join(" / "))
}

/// The identity of a kernel: symbol, launch, attributes, device.
type KernelKey = (String, LaunchConfig, Option<FunctionAttributes>, Option<usize>);

/// Kernels of the profile, by what they are.
struct Known<'p> {
    profile: &'p Profile,
    places: HashMap<KernelKey, usize>,
    kept: Vec<Kernel>,
    kept_places: HashMap<usize, usize>,
}

impl<'p> Known<'p> {
    fn of(profile: &'p Profile) -> Self {
        let mut places = HashMap::new();
        for (place, kernel) in profile.kernels.iter().enumerate() {
            let key = (kernel.symbol.clone(), kernel.launch, kernel.attributes, kernel.device);
            places.entry(key).or_insert(place);
        }
        Self { profile, places, kept: Vec::new(), kept_places: HashMap::new() }
    }

    fn name(&mut self, process: &IndexedProcess, named: Named) -> Name {
        let unknown = |what: &str, id: u32| Name { text: format!("{what} {id}"), kernel: None };
        let called = match named {
            Named::Called(called) => called,
            Named::Range(id) => {
                let range = process.definitions.range(id);
                return range.map_or_else(
                    || unknown("range", id),
                    |range| Name { text: text(&range.name), kernel: None },
                );
            }
        };
        match called {
            Called::Api(id) => process
                .definitions
                .name(id)
                .map_or_else(|| unknown("entry point", id), |name| Name { text: text(name), kernel: None }),
            Called::Graph(id) => {
                let kernels = process.definitions.graph(id).map_or(0, |graph| {
                    graph.kernels.iter().map(|&(_, nodes)| u64::from(nodes)).fold(0, u64::saturating_add)
                });
                let plural = if kernels == 1 { "" } else { "s" };
                Name { text: format!("graph {id} ({kernels} kernel{plural})"), kernel: None }
            }
            Called::Config(id) => match self.kernel(process, id) {
                Some(place) => Name {
                    text: text(&self.profile.kernels[place].short_name),
                    kernel: Some(self.keep(place)),
                },
                None => unknown("kernel", id),
            },
        }
    }

    fn kernel(&self, process: &IndexedProcess, id: u32) -> Option<usize> {
        let config = process.definitions.config(id)?;
        let function = process.definitions.function(config.function);
        let symbol = function
            .map_or_else(|| format!("function {}", config.function), |function| function.name.clone());
        let device = process.device_of(config.context, self.profile);
        let attributes = function.and_then(|function| function.attributes);
        self.places.get(&(symbol, config.launch, attributes, device)).copied()
    }

    fn keep(&mut self, place: usize) -> usize {
        let Self { profile, kept, kept_places, .. } = self;
        *kept_places.entry(place).or_insert_with(|| {
            kept.push(Kernel::of(profile, &profile.kernels[place]));
            kept.len() - 1
        })
    }
}

impl IndexedProcess {
    /// The device of a context, among those of the profile; where the context is not known, the
    /// only device of the process.
    fn device_of(&self, context: u32, profile: &Profile) -> Option<usize> {
        let id = self.definitions.contexts().find(|known| known.id == context).map(|context| context.device);
        let known = id.and_then(|id| self.definitions.devices().find(|device| device.id == id));
        let (name, uuid) = match known {
            Some(device) => (device.name.clone(), apex_profile::device_uuid(&device.uuid)),
            None => self.devices.first().filter(|_| self.devices.len() == 1)?.clone(),
        };
        profile.devices.iter().position(|device| device.name == name && device.uuid == uuid)
    }
}
