//! A session as a Perfetto trace: the host's calls, and the measured work of the GPU.
//!
//! * A track for each thread, with its calls.
//! * A track for each stream, with its *measured* launches only. Their durations are measured.
//!   Their starts are computed, as the earliest possible moment: when the call had returned and the
//!   measured launch before it on the stream had ended. An arrow leads from the call to the launch.
//!   In an imported session, starts are measured as well, and copies and sets have slices, too; what
//!   overlaps earlier work of its stream has a track of its own, for slices of a track must nest.
//! * A counter of live bytes for each kind of memory.
//!
//! Each process is read in the order of time, so that streams and counters advance.

use crate::names::{self, Names};
use crate::perfetto::{Slice, Trace, Value};
use crate::reading::Reading;
use crate::timings::{Measured, Timings};
use apex_trace::definition::Config;
use apex_trace::layout::{Call, CallClass, MemoryKind, RecordHead, Timing, flags};
use apex_trace::{Event, Process};
use std::collections::HashMap;
use std::io::{self, Write};

/// Writes the trace of the calls that began in the window.
///
/// # Errors
/// Those of the output.
pub fn write(reading: &mut Reading<'_>, out: impl Write) -> io::Result<()> {
    let mut trace = Trace::new(out);
    let mut ids = Ids::default();
    for process in &reading.session.processes {
        let track = ids.next();
        trace.process(track, process.pid, &process.executable)?;
        let mut writer = Writer {
            process,
            track,
            ids: &mut ids,
            trace: &mut trace,
            timings: Timings::of(process),
            names: Names::new(process),
            threads: HashMap::new(),
            streams: HashMap::new(),
            origin_ns: reading.time_ns(process, 0),
            memory: Memory::default(),
        };
        for record in process.records_by_time() {
            reading.count();
            let start_ns = reading.time_ns(process, record.start());
            let inside = reading.window.contains(&start_ns);
            writer.record(record.tid, start_ns, &record.event, inside)?;
        }
    }
    trace.finish()
}

/// Identifiers of tracks and arrows, all different.
#[derive(Default)]
struct Ids(u64);

impl Ids {
    fn next(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }
}

struct Writer<'a, W> {
    process: &'a Process,
    /// The process's track.
    track: u64,
    ids: &'a mut Ids,
    trace: &'a mut Trace<W>,
    timings: Timings,
    names: Names<'a>,
    /// Tracks by thread.
    threads: HashMap<u32, u64>,
    /// By stream: its tracks, and when the last measured launch on each ended.
    streams: HashMap<u32, Vec<(u64, u64)>>,
    /// Time of tick 0 on the time line of the session.
    origin_ns: u64,
    memory: Memory,
}

/// Live allocations of a process.
#[derive(Default)]
struct Memory {
    /// Kind and bytes by address.
    live: HashMap<u64, (MemoryKind, u64)>,
    /// By kind: its track, and bytes live.
    counters: HashMap<MemoryKind, (u64, i64)>,
}

impl<W: Write> Writer<'_, W> {
    fn record(&mut self, tid: u32, start_ns: u64, event: &Event, inside: bool) -> io::Result<()> {
        if let Event::Call(call) = event {
            self.count_memory(start_ns, call, inside)?;
        }
        match event {
            Event::StackSample(_) | Event::RangeChange(_) | Event::ArgumentSample(_) => Ok(()),
            _ if !inside => Ok(()),
            Event::Timing(timing) if timing.is_part_of_launch() => self.part(timing),
            Event::Timing(_) => Ok(()),
            Event::Call(call) => self.call(tid, start_ns, call),
            Event::Launch(launch) => {
                let kernel = self.kernel(launch.config);
                let grid = self.configuration(launch.config);
                let details =
                    [("configuration", Value::Text(&grid)), ("result", Value::Integer(launch.result.into()))];
                self.launch(tid, start_ns, &launch.head, launch.api, launch.stream, &kernel, &details)
            }
            Event::GraphLaunch(launch) => {
                let name = format!("graph {}", launch.graph);
                let details = [("result", Value::Integer(launch.result.into()))];
                self.launch(tid, start_ns, &launch.head, launch.api, launch.stream, &name, &details)
            }
        }
    }

    fn call(&mut self, tid: u32, start_ns: u64, call: &Call) -> io::Result<()> {
        let track = self.thread(tid)?;
        let mut details = vec![("result", Value::Integer(call.result.into()))];
        if call.bytes > 0 {
            details.push(("bytes", Value::Integer(call.bytes.cast_signed())));
        }
        for (name, kind) in [("memory", call.memory()), ("source memory", call.source_memory())] {
            details.extend(names::memory(kind).map(|kind| (name, Value::Text(kind))));
        }
        let duration_ns = self.process.clock.duration_ns(call.head.duration_ticks());
        let name = self.process.definitions.name(call.api).unwrap_or("unknown call");
        self.trace.slice(&Slice { track, name, start_ns, duration_ns, flow: 0, details: &details })
    }

    #[allow(clippy::too_many_arguments, reason = "what launches of kernels and graphs have in common, once")]
    fn launch(
        &mut self,
        tid: u32,
        start_ns: u64,
        head: &RecordHead,
        api: u32,
        stream: u32,
        what: &str,
        details: &[(&str, Value<'_>)],
    ) -> io::Result<()> {
        let measured = self.timings.find(head.start, tid);
        let flow = if measured.is_some() { self.ids.next() } else { 0 };
        let track = self.thread(tid)?;
        let duration_ns = self.process.clock.duration_ns(head.duration_ticks());
        let api = self.process.definitions.name(api).unwrap_or("unknown launch");
        let name = format!("{api} {what}");
        self.trace.slice(&Slice { track, name: &name, start_ns, duration_ns, flow, details })?;
        match measured {
            Some(measured) => self.gpu(stream, start_ns.saturating_add(duration_ns), what, measured, flow),
            None => Ok(()),
        }
    }

    /// A node of a graph launch, or a copy or set, whose time another profiler recorded.
    fn part(&mut self, timing: &Timing) -> io::Result<()> {
        let is_call = timing.head.flags & flags::OF_CALL != 0;
        let name = match self.process.definitions.name(timing.config) {
            Some(name) if is_call => name.to_owned(),
            _ if is_call => "copy or set".to_owned(),
            _ => format!("node of graph {}", timing.config),
        };
        self.gpu(timing.stream, 0, &name, Measured::from(timing), 0)
    }

    /// A measured launch on its stream's track.
    fn gpu(
        &mut self,
        stream: u32,
        ready_ns: u64,
        name: &str,
        measured: Measured,
        flow: u64,
    ) -> io::Result<()> {
        let placed = measured.placed_at.map(|at| self.origin_ns + self.process.clock.ns_since_start(at));
        let (track, start_ns) = self.gpu_track(stream, ready_ns, placed, measured.gpu_ns)?;
        let start = if placed.is_some() { "measured" } else { "computed: the earliest possible" };
        let mut details = vec![("duration", Value::Text("measured")), ("start", Value::Text(start))];
        if placed.is_none() {
            details.push(("event pair, ns", Value::Integer(measured.raw_ns.cast_signed())));
        }
        self.trace.slice(&Slice {
            track,
            name,
            start_ns,
            duration_ns: measured.gpu_ns,
            flow,
            details: &details,
        })
    }

    /// The track for work of a stream, and its start: where it was placed, on a track that is free
    /// then, else as soon as it is ready and the work before it is done.
    fn gpu_track(
        &mut self,
        stream: u32,
        ready_ns: u64,
        placed: Option<u64>,
        gpu_ns: u64,
    ) -> io::Result<(u64, u64)> {
        let tracks = self.streams.entry(stream).or_default();
        let lane = placed
            .map_or(0, |at| tracks.iter().position(|&(_, free_ns)| free_ns <= at).unwrap_or(tracks.len()));
        if lane == tracks.len() {
            let track = self.ids.next();
            let name = match lane {
                0 => format!("GPU stream {stream}: measured launches"),
                _ => format!("GPU stream {stream}: overlapping launches {lane}"),
            };
            self.trace.track(track, self.track, &name)?;
            tracks.push((track, 0));
        }
        let (track, free_ns) = tracks[lane];
        let start_ns = placed.unwrap_or(ready_ns.max(free_ns));
        tracks[lane].1 = start_ns.saturating_add(gpu_ns);
        Ok((track, start_ns))
    }

    fn thread(&mut self, tid: u32) -> io::Result<u64> {
        if let Some(&track) = self.threads.get(&tid) {
            return Ok(track);
        }
        let track = self.ids.next();
        let name = self.process.threads.get(&tid).map_or("", String::as_str);
        self.trace.thread(track, self.track, self.process.pid, tid, name)?;
        self.threads.insert(tid, track);
        Ok(track)
    }

    /// Follows an allocation or a free that succeeded; shows it if it is in the window, else what
    /// it comes to at the window's beginning.
    fn count_memory(&mut self, start_ns: u64, call: &Call, inside: bool) -> io::Result<()> {
        if call.result != 0 || call.head.flags & flags::CAPTURED != 0 {
            return Ok(());
        }
        let (kind, change) = match call.class() {
            Some(CallClass::Allocate) => {
                self.memory.live.insert(call.address, (call.memory(), call.bytes));
                (call.memory(), call.bytes.cast_signed())
            }
            Some(CallClass::Free) => match self.memory.live.remove(&call.address) {
                Some((kind, bytes)) => (kind, bytes.cast_signed().saturating_neg()),
                None => return Ok(()),
            },
            _ => return Ok(()),
        };
        let (track, bytes) = match self.memory.counters.get(&kind) {
            Some(&known) => known,
            None => {
                let track = self.ids.next();
                let kind = names::memory(kind).unwrap_or("other");
                self.trace.byte_counter(track, self.track, &format!("{kind} memory, live"))?;
                (track, 0)
            }
        };
        let bytes = bytes.saturating_add(change);
        self.memory.counters.insert(kind, (track, bytes));
        if inside { self.trace.count(track, start_ns, bytes) } else { Ok(()) }
    }

    fn kernel(&mut self, config: u32) -> String {
        let function = self.process.definitions.config(config).map(|config| config.function);
        let name = function.and_then(|function| self.names.function(function));
        name.map_or("unknown kernel".into(), |name| apex_profile::names::identify(name).short_name)
    }

    fn configuration(&self, config: u32) -> String {
        let Some(&Config { launch, .. }) = self.process.definitions.config(config) else {
            return "unknown".into();
        };
        format!(
            "grid {:?}, block {:?}, dynamic shared {} B",
            launch.grid, launch.block, launch.dynamic_shared_bytes
        )
    }
}
