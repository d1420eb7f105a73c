//! Writes a process of a trace as a process file.
//!
//! Ticks are nanoseconds since the first event of the process. Each launch is followed by the time
//! of its kernel, with its start on the device ([`flags::PLACED`]), so that no reader has to
//! estimate.

use crate::Imported;
use crate::calls::{Purpose, is_asynchronous, plain, purpose};
use crate::join::{Joined, NO_CALL};
use crate::model::{Call, Kind, Process, Stream, Thread, Transfer, Work, several};
use crate::python::{Frames, Stacks, Walk};
use crate::ranges::Change;
use apex_ordered::Gather;
use apex_trace::definition::{
    Config, Context, Definition, Device, Function, Graph, Range, Stream as StreamDefinition, StreamKind,
};
use apex_trace::layout::{
    self, CallClass, ClockAnchor, GraphLaunch, Launch, RangeChange, RecordHead, Slots, StackSample, Timing,
    flags,
};
use apex_trace::{Assembled, Origin};
use apex_untrusted::Folder;
use cuda_launch::{Dim3, FunctionAttributes, LaunchConfig, attribute};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;

/// Thread identifiers of work without a call: one for each stream.
const STREAM_THREADS: u32 = 0xf000_0000;
/// Thread identifiers of threads whose own number is taken, or is too large.
const FURTHER_THREADS: u32 = 0xe000_0000;
/// The streams that CUPTI numbers so are the legacy default stream.
const LEGACY: [u64; 2] = [0, 7];
/// Threads of a block, at most, where a kernel's own limit is not known.
const MOST_BLOCK: u32 = 1024;
/// Shared memory that a block may have without more being asked for, bytes. A trace does not tell
/// what was asked for; what was launched was allowed.
const USUAL_SHARED: u32 = 48 << 10;

/// Writes a process.
///
/// # Errors
/// Those of the system.
pub fn process(mut process: Process, folder: &Folder, imported: &mut Imported) -> io::Result<()> {
    let (first, _) = process.span();
    let real_ns = process.span_real_ns().0;
    let anchor = ClockAnchor { ticks: 0, monotonic_ns: real_ns, real_ns };
    let origin = Origin { pid: process.pid, start: anchor, executable: process.executable.clone() };
    let joined = Joined::of(&mut process);
    process.frames.sort();
    let (ranges, named) = {
        let ranges = std::mem::take(&mut process.ranges);
        let names = &process.names;
        ranges.changes(|name| names.text(name))
    };
    remark(&process, &joined, imported);
    let file = Assembled::create(folder, origin)?;
    let mut writer = Writer {
        file,
        process: &process,
        first,
        names: HashMap::new(),
        stacks: Stacks::default(),
        graphs: HashMap::new(),
        streams: stream_ids(&process.streams.list),
    };
    writer.definitions(&named)?;
    writer.threads(&joined, &ranges)?;
    writer.alone(&joined)?;
    let refused = writer.file.finish()?;
    if refused > 0 {
        imported.remarks.push(format!(
            "{} too large for a session: left out",
            several(refused, "definition is", "definitions are")
        ));
    }
    Ok(())
}

/// Messages about a process's calls and work.
fn remark(process: &Process, joined: &Joined, imported: &mut Imported) {
    let is_kernel = |work: &&Work| matches!(work.kind, Kind::Kernel(_));
    imported.kernels += joined.work.iter().filter(is_kernel).count() as u64;
    imported.transfers += joined.work.iter().filter(|work| !is_kernel(work)).count() as u64;
    imported.calls += joined.calls.len() as u64;
    let alone = joined.owners.iter().filter(|&&owner| owner == NO_CALL).count();
    let remarks = &mut imported.remarks;
    if joined.calls.is_empty() {
        remarks.push("this trace has no calls of the host: why the GPU is idle cannot be told".to_owned());
    } else if alone > 0 {
        remarks.push(format!(
            "{alone} of {} no launch call in this trace: {} without one",
            several(joined.work.len() as u64, "piece of GPU work has", "pieces of GPU work have"),
            if alone == 1 { "it counts" } else { "they count" }
        ));
    }
    if joined.early > 0 {
        remarks.push(format!(
            "{} (the clocks differ): the call is taken to begin with its work",
            several(
                joined.early,
                "piece of GPU work begins before its call",
                "pieces of GPU work begin before their calls"
            )
        ));
    }
    if joined.overlapping > 0 {
        remarks.push(format!(
            "{} on the same thread: it is taken to begin at the end of that one",
            several(joined.overlapping, "call overlaps the one before", "calls overlap the one before")
        ));
    }
    if joined.ambiguous > 0 {
        remarks.push(format!(
            "{} a correlation that several calls have: the last one before counts",
            several(joined.ambiguous, "piece of GPU work has", "pieces of GPU work have")
        ));
    }
    imported.inside += joined.inside;
    if process.is_cut {
        remarks.push("this trace has more events than are read: the last ones are left out".to_owned());
    }
}

struct Writer<'p> {
    file: Assembled,
    process: &'p Process,
    /// Tick 0.
    first: i64,
    /// Identifiers of entry points, by their names among the process's names.
    names: HashMap<u32, u32>,
    stacks: Stacks,
    /// Graphs by what they consist of.
    graphs: HashMap<Vec<(u32, u32)>, u32>,
    /// Identifiers of the streams.
    streams: Vec<u32>,
}

/// Identifiers of streams: their numbers in the trace, as far as these are different and not 0.
fn stream_ids(streams: &[Stream]) -> Vec<u32> {
    let numbers = || streams.iter().filter_map(|stream| u32::try_from(stream.number).ok());
    let mut free = numbers().filter(|&number| number < u32::MAX / 2).max().unwrap_or(0);
    let mut taken = HashSet::new();
    let id = |stream: &Stream| {
        let number = u32::try_from(stream.number).unwrap_or(0);
        if number > 0 && number < u32::MAX / 2 && taken.insert(number) {
            return number;
        }
        free += 1;
        free
    };
    streams.iter().map(id).collect()
}

/// Identifiers of threads: their numbers in the trace, as far as these are different.
fn thread_ids(threads: &[Thread]) -> Vec<u32> {
    let mut taken = HashSet::new();
    let id = |(thread, further): (&Thread, u32)| {
        let own = u32::try_from(thread.id).ok().filter(|&id| id < FURTHER_THREADS);
        own.filter(|&id| taken.insert(id)).unwrap_or(further)
    };
    threads.iter().zip(FURTHER_THREADS..STREAM_THREADS).map(id).collect()
}

/// A thread that is being written.
struct Written<'p> {
    index: u32,
    name: &'p str,
    frames: Walk<'p>,
    changes: std::slice::Iter<'p, Change>,
}

impl Writer<'_> {
    fn tick(&self, at: i64) -> u64 {
        u64::try_from(at.saturating_sub(self.first)).unwrap_or(0)
    }

    /// The identifier of a stream.
    fn stream(&self, place: u32) -> u32 {
        self.streams[place as usize]
    }

    fn definitions(&mut self, ranges: &[(u32, String)]) -> io::Result<()> {
        let process = self.process;
        let mut used: BTreeMap<u32, ()> =
            process.streams.list.iter().map(|stream| (stream.device, ())).gathered();
        used.extend(process.configs.list.iter().map(|config| (config.device, ())));
        for &ordinal in used.keys() {
            self.device(ordinal)?;
        }
        let contexts: BTreeMap<(u32, u32), ()> =
            process.streams.list.iter().map(|stream| ((stream.device, stream.context), ())).gathered();
        let contexts: Vec<(u32, u32)> = contexts.into_keys().collect();
        for (&(device, number), id) in contexts.iter().zip(1..) {
            let context = Context { id, handle: number.into(), device: device + 1, ..Context::default() };
            self.file.define(&Definition::Context(context))?;
        }
        let context_of = |device: u32, number: u32| {
            let place = contexts.binary_search(&(device, number));
            place
                .or_else(|_| contexts.binary_search_by_key(&device, |&(device, _)| device))
                .map_or(0, |place| place as u32 + 1)
        };
        for (stream, &id) in process.streams.list.iter().zip(&self.streams) {
            let kind = stream_kind(stream);
            let context = context_of(stream.device, stream.context);
            let stream = StreamDefinition { id, handle: stream.number, context, kind };
            self.file.define(&Definition::Stream(stream))?;
        }
        self.kernels(context_of)?;
        for ((parent, name), id) in ranges.iter().zip(1..) {
            let range = Range { id, parent: *parent, domain: String::new(), name: name.clone() };
            self.file.define(&Definition::Range(range))?;
        }
        let codes: Vec<_> = Frames::codes(&process.frames).collect();
        codes.into_iter().try_for_each(|code| self.file.define(&Definition::PythonCode(code)))
    }

    fn device(&mut self, ordinal: u32) -> io::Result<()> {
        let known = self.process.devices.get(&ordinal).cloned().unwrap_or_default();
        let name = if known.name.is_empty() { "unknown GPU".to_owned() } else { known.name };
        let mut uuid = known.uuid;
        if uuid == [0; 16] {
            // Devices of several processes are told apart by it, and ordinals are those of a
            // machine.
            uuid[..4].copy_from_slice(&(ordinal + 1).to_be_bytes());
        }
        let device = Device {
            id: ordinal + 1,
            ordinal,
            name,
            uuid,
            driver_version: 0,
            memory_bytes: known.memory_bytes,
            attributes: known.attributes,
        };
        self.file.define(&Definition::Device(device))
    }

    fn kernels(&mut self, context_of: impl Fn(u32, u32) -> u32) -> io::Result<()> {
        let process = self.process;
        let mut functions: HashMap<(u32, Option<FunctionAttributes>), u32> = HashMap::new();
        for (config, id) in process.configs.list.iter().zip(1..) {
            let capability =
                process.devices.get(&config.device).map_or(0, |device| capability(&device.attributes));
            let attributes = config.registers.map(|registers| FunctionAttributes {
                registers,
                static_shared_bytes: config.static_shared,
                local_bytes: config.local,
                max_threads_per_block: MOST_BLOCK,
                max_dynamic_shared_bytes: Some(
                    USUAL_SHARED.saturating_sub(config.static_shared).max(config.dynamic_shared),
                ),
                binary_version: capability,
                ..FunctionAttributes::default()
            });
            let next = functions.len() as u32 + 1;
            let function = *functions.entry((config.name, attributes)).or_insert(next);
            if function == next {
                let name = process.names.text(config.name).to_owned();
                self.file.define(&Definition::Function(Function { id: function, name, attributes }))?;
            }
            let [x, y, z] = config.cluster;
            let launch = LaunchConfig {
                // No launch has an empty grid: this one is not known.
                grid: config.grid.unwrap_or(Dim3::ZERO),
                block: config.block.unwrap_or(Dim3::ZERO),
                cluster: Dim3::new(x, y, z),
                dynamic_shared_bytes: config.dynamic_shared,
            };
            let context = context_of(config.device, config.context);
            self.file.define(&Definition::Config(Config {
                id,
                function,
                context,
                launch,
                ..Config::default()
            }))?;
        }
        Ok(())
    }

    /// The identifier of an entry point.
    fn name(&mut self, name: u32) -> io::Result<u32> {
        let next = self.names.len() as u32 + 1;
        let id = *self.names.entry(name).or_insert(next);
        if id == next {
            let text = plain(self.process.names.text(name)).to_owned();
            self.file.define(&Definition::Name { id, text })?;
        }
        Ok(id)
    }

    /// The calls of all threads, and their work.
    fn threads(&mut self, joined: &Joined, ranges: &HashMap<u32, Vec<Change>>) -> io::Result<()> {
        let process = self.process;
        let ids = thread_ids(&process.threads.list);
        for (index, (thread, &id)) in (0..).zip(process.threads.list.iter().zip(&ids)) {
            let name = process.thread_names.get(thread).map_or("", |name| name);
            let begin = joined.calls.partition_point(|call| call.thread < index);
            let end = joined.calls.partition_point(|call| call.thread <= index);
            if begin == end {
                continue;
            }
            self.file.thread(id, name)?;
            let changes = ranges.get(&index).map_or(&[][..], |changes| changes);
            let mut thread =
                Written { index, name, frames: process.frames.of_thread(index), changes: changes.iter() };
            for at in begin..end {
                let call = &joined.calls[at];
                self.changes(&mut thread, call.start)?;
                self.call(&mut thread, call, &joined.work[joined.work_of(at as u32)])?;
            }
            self.changes(&mut thread, i64::MAX)?;
        }
        Ok(())
    }

    /// The changes of ranges up to a moment.
    fn changes(&mut self, thread: &mut Written<'_>, by: i64) -> io::Result<()> {
        while let Some(change) = thread.changes.clone().next().filter(|change| change.at <= by) {
            thread.changes.next();
            let at = self.tick(change.at);
            let of = if change.begins { flags::RANGE_BEGUN } else { flags::RANGE_ENDED };
            let head = RangeChange::head(of, at, at);
            let record = RangeChange { head, range: change.inner, changed: change.changed, instance: 0 };
            self.file.record(&record)?;
        }
        Ok(())
    }

    fn call(&mut self, thread: &mut Written<'_>, call: &Call, work: &[Work]) -> io::Result<()> {
        let api = self.name(call.name)?;
        let name = self.process.names.text(call.name).to_owned();
        let kernels = || work.iter().filter(|work| matches!(work.kind, Kind::Kernel(_) | Kind::Graph(_)));
        let is_graph = purpose(&name) == Purpose::GraphLaunch
            || work.iter().any(|work| matches!(work.kind, Kind::Graph(_)));
        if is_graph && !work.is_empty() {
            return self.graph_launch(thread, call, api, work);
        }
        match kernels().next() {
            Some(first) => {
                self.launch(thread, call, api, &name, first)?;
                // (What a call launched beside its first kernel is written with the streams.)
                Ok(())
            }
            None => self.call_without_kernel(thread, call, api, &name, work),
        }
    }

    fn head<R: Slots>(&self, of: u16, call: &Call) -> RecordHead {
        let start = self.tick(call.start);
        R::head(of, start, start.saturating_add(call.ns))
    }

    fn launch(
        &mut self,
        thread: &mut Written<'_>,
        call: &Call,
        api: u32,
        name: &str,
        work: &Work,
    ) -> io::Result<()> {
        let Kind::Kernel(config) = work.kind else { return Ok(()) };
        let cooperative = purpose(name) == Purpose::Launch { cooperative: true };
        let of = if cooperative { flags::COOPERATIVE } else { 0 };
        let head = self.head::<Launch>(of, call);
        let (config, stream) = (config + 1, self.stream(work.stream));
        self.file.record(&Launch { head, config, stream, result: call.result, api })?;
        self.stack(thread, call, StackSample { config, ..StackSample::default() }, 0)?;
        self.timing(0, call.start, config, work)
    }

    /// The time of work whose call began then.
    fn timing(&mut self, of: u16, called: i64, config: u32, work: &Work) -> io::Result<()> {
        let (start, placed) = (self.tick(called), self.tick(work.start));
        let head = Timing::head(of | flags::PLACED | flags::QUEUED, start, placed);
        let stream = self.stream(work.stream);
        self.file.record(&Timing { head, config, stream, raw_ns: work.ns })
    }

    fn stack(
        &mut self,
        thread: &mut Written<'_>,
        call: &Call,
        sample: StackSample,
        of: u16,
    ) -> io::Result<()> {
        let codes = thread.frames.at(call.start);
        let Some((stack, new)) = self.stacks.number(thread.index, thread.name, codes) else { return Ok(()) };
        if let Some(new) = new {
            self.file.define(&Definition::CallStack(new))?;
        }
        let at = self.tick(call.start);
        self.file.record(&StackSample { head: StackSample::head(of, at, at), stack, ..sample })
    }

    fn graph_launch(
        &mut self,
        thread: &mut Written<'_>,
        call: &Call,
        api: u32,
        work: &[Work],
    ) -> io::Result<()> {
        let graph = self.graph(work)?;
        let stream = self.stream(work[0].stream);
        let head = self.head::<GraphLaunch>(0, call);
        self.file.record(&GraphLaunch { head, graph, stream, result: call.result, api })?;
        let sample = StackSample { config: graph, ..StackSample::default() };
        self.stack(thread, call, sample, flags::OF_GRAPH)?;
        let raw_ns = work.iter().map(|work| work.ns).sum();
        let at = self.tick(call.start);
        // The graph as a whole takes what its nodes take.
        let mut whole = Timing {
            head: Timing::head(flags::OF_GRAPH | flags::QUEUED, at, at),
            config: graph,
            stream,
            raw_ns,
        };
        whole.head.duration = 0;
        self.file.record(&whole)?;
        work.iter().try_for_each(|work| self.timing(flags::OF_GRAPH, call.start, graph, work))
    }

    /// The identifier of the graph that consists of this work.
    fn graph(&mut self, work: &[Work]) -> io::Result<u32> {
        let mut nodes: BTreeMap<u32, u32> = BTreeMap::new();
        let (mut copies, mut sets, mut handle, mut opaque) = (0, 0, 0, 0);
        for work in work {
            match work.kind {
                Kind::Kernel(config) => *nodes.entry(config + 1).or_default() += 1,
                Kind::Copy(_) => copies += 1,
                Kind::Set(_) => sets += 1,
                Kind::Graph(number) => (handle, opaque) = (u64::from(number), 1),
            }
        }
        let kernels: Vec<(u32, u32)> = nodes.into_iter().collect();
        let mut key = kernels.clone();
        key.extend([(u32::MAX, copies), (u32::MAX, sets), (u32::MAX, handle as u32)]);
        let next = self.graphs.len() as u32 + 1;
        let id = *self.graphs.entry(key).or_insert(next);
        if id == next {
            let handle = if handle == 0 { u64::from(id) } else { handle };
            let graph = Graph { id, handle, kernels, copies, sets, others: 0, opaque };
            self.file.define(&Definition::Graph(graph))?;
        }
        Ok(id)
    }

    /// A call that launches no kernel.
    fn call_without_kernel(
        &mut self,
        thread: &mut Written<'_>,
        call: &Call,
        api: u32,
        name: &str,
        work: &[Work],
    ) -> io::Result<()> {
        let class = match purpose(name) {
            Purpose::Other(class) => class,
            // Its kernel is not in the trace.
            Purpose::Launch { .. } | Purpose::GraphLaunch => None,
        };
        let transfer = work.iter().find_map(|work| match work.kind {
            Kind::Copy(transfer) | Kind::Set(transfer) => Some((transfer, self.stream(work.stream))),
            _ => None,
        });
        let waited = self.process.waits.get(&call.correlation).map_or(0, |&stream| self.stream(stream));
        let (transfer, stream) = transfer.unwrap_or((Transfer::default(), waited));
        let asynchronous = if is_asynchronous(name) { flags::ASYNC } else { 0 };
        let of = asynchronous | if transfer.is_peer { flags::PEER } else { 0 };
        let record = layout::Call {
            head: self.head::<layout::Call>(of, call),
            api,
            stream,
            result: call.result,
            class: class.map_or(0, |class| class as u8),
            memory: transfer.to,
            source_memory: transfer.from,
            bytes: transfer.bytes,
            ..layout::Call::default()
        };
        self.file.record(&record)?;
        if matches!(
            class,
            Some(CallClass::Copy | CallClass::Set | CallClass::Synchronize | CallClass::Allocate)
        ) {
            let sample = StackSample {
                config: api,
                class: record.class,
                memory: record.memory,
                source_memory: record.source_memory,
                ..StackSample::default()
            };
            self.stack(thread, call, sample, flags::OF_CALL | of)?;
        }
        work.iter().try_for_each(|work| self.timing(flags::OF_CALL, call.start, api, work))
    }

    /// Work without a call, by stream: a launch without duration stands for each kernel.
    fn alone(&mut self, joined: &Joined) -> io::Result<()> {
        let begin = joined.owners.partition_point(|&owner| owner != NO_CALL);
        let mut alone: Vec<Work> = joined.work[begin..].to_vec();
        alone.extend(self.further_kernels(joined));
        alone.sort_by_key(|work| (work.stream, work.start));
        for of_stream in alone.chunk_by(|a, b| a.stream == b.stream) {
            let stream = of_stream[0].stream;
            let number = self.process.streams.list[stream as usize].number;
            self.file.thread(STREAM_THREADS + stream, &format!("stream {number}"))?;
            of_stream.iter().try_for_each(|work| self.work_alone(work))?;
        }
        Ok(())
    }

    /// Work that calls launched beside their first kernel, graphs excepted.
    fn further_kernels(&self, joined: &Joined) -> Vec<Work> {
        let mut further = Vec::new();
        for of_call in joined.owners.chunk_by(|a, b| a == b).scan(0, |begin, owners| {
            let range = *begin..*begin + owners.len();
            *begin = range.end;
            Some((owners[0], range))
        }) {
            let (owner, range) = of_call;
            if owner == NO_CALL || range.len() == 1 {
                continue;
            }
            let name = self.process.names.text(joined.calls[owner as usize].name);
            let work = &joined.work[range];
            if purpose(name) != Purpose::GraphLaunch
                && !work.iter().any(|work| matches!(work.kind, Kind::Graph(_)))
            {
                let kernels = work.iter().filter(|work| matches!(work.kind, Kind::Kernel(_)));
                let has_kernel = work.iter().any(|work| matches!(work.kind, Kind::Kernel(_)));
                let others = work.iter().filter(|work| has_kernel && !matches!(work.kind, Kind::Kernel(_)));
                further.extend(kernels.skip(1).chain(others).copied());
            }
        }
        further
    }

    fn work_alone(&mut self, work: &Work) -> io::Result<()> {
        let (at, stream) = (self.tick(work.start), self.stream(work.stream));
        match work.kind {
            Kind::Kernel(config) => {
                let head = Launch::head(flags::NO_CALL, at, at);
                self.file.record(&Launch { head, config: config + 1, stream, result: 0, api: 0 })?;
                self.timing(0, work.start, config + 1, work)
            }
            Kind::Graph(_) => {
                let graph = self.graph(std::slice::from_ref(work))?;
                let head = GraphLaunch::head(0, at, at);
                self.file.record(&GraphLaunch { head, graph, stream, result: 0, api: 0 })?;
                self.timing(flags::OF_GRAPH, work.start, graph, work)
            }
            Kind::Copy(_) | Kind::Set(_) => self.timing(flags::OF_CALL, work.start, 0, work),
        }
    }
}

/// The compute capability as the version of machine code: 90 for 9.0.
fn capability(attributes: &[(u32, i32)]) -> u32 {
    let of =
        |wanted| attributes.iter().find(|(id, _)| *id == wanted).map_or(0, |&(_, value)| value.max(0) as u32);
    of(attribute::COMPUTE_CAPABILITY_MAJOR) * 10 + of(attribute::COMPUTE_CAPABILITY_MINOR)
}

/// Traces do not tell whether a stream waits for the legacy default one: frameworks make streams
/// that do not.
fn stream_kind(stream: &Stream) -> StreamKind {
    if LEGACY.contains(&stream.number) { StreamKind::LegacyDefault } else { StreamKind::NonBlocking }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_and_threads_keep_their_numbers_where_these_are_different() {
        let stream = |device, number| Stream { device, context: 1, number };
        let streams = [stream(0, 7), stream(1, 7), stream(0, 0), stream(0, 20), stream(0, u64::MAX)];
        assert_eq!(stream_ids(&streams), [7, 21, 22, 20, 23]);
        let thread = |process, id| Thread { process, id };
        let threads = [thread(1, 12), thread(2, 12), thread(1, 13), thread(1, 1 << 40)];
        assert_eq!(thread_ids(&threads), [12, FURTHER_THREADS + 1, 13, FURTHER_THREADS + 3]);
    }
}
