//! A session as a trace, for Perfetto or in Chrome's format: the host's calls, and the work of the
//! GPU.
//!
//! * A track for each thread, with its calls.
//! * A counter of live bytes for each kind of memory.
//! * From the profile's observer ([`crate::device`]): the work of each stream, why each GPU is
//!   idle, the ranges of threads, phases and steps. Arrows lead from calls to the work that they
//!   queued.
//!
//! Each process is read in the order of time, so that streams and counters advance.

use crate::device::{Devices, flow};
use crate::names::{self, Names};
use crate::reading::Reading;
use crate::slices::{Slice, Tracks, Value};
use apex_profile::Builder;
use apex_trace::definition::Config;
use apex_trace::layout::{Call, CallClass, MemoryKind, RecordHead, flags};
use apex_trace::{Event, Process};
use std::collections::HashMap;
use std::io;

/// Writes the trace of the calls that began in the window.
///
/// # Errors
/// Those of the output.
pub fn write(reading: &mut Reading<'_>, mut trace: impl Tracks) -> io::Result<()> {
    let mut ids = Ids::default();
    let mut processes = Vec::new();
    for (at, process) in reading.session.processes.iter().enumerate() {
        let track = ids.next();
        trace.process(track, process.pid, &process.executable)?;
        processes.push((track, process));
        let mut writer = Writer {
            process,
            at,
            track,
            ids: &mut ids,
            trace: &mut trace,
            names: Names::new(process),
            threads: HashMap::new(),
            memory: Memory::default(),
        };
        for record in process.records_by_time() {
            reading.count();
            let start_ns = reading.time_ns(process, record.start());
            let inside = reading.window.contains(&start_ns);
            writer.record(record.tid, start_ns, &record.event, inside)?;
        }
    }
    let (origin_ns, window) = (reading.origin_ns(), reading.window.clone());
    let mut devices = Devices::new(&mut trace, &processes, ids.next(), origin_ns, window);
    Builder::default().add_observed(reading.session, &mut devices);
    devices.finish()?;
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

struct Writer<'a, T> {
    process: &'a Process,
    /// Its place in the session.
    at: usize,
    /// The process's track.
    track: u64,
    ids: &'a mut Ids,
    trace: &'a mut T,
    names: Names<'a>,
    /// Tracks by thread.
    threads: HashMap<u32, u64>,
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

impl<T: Tracks> Writer<'_, T> {
    fn record(&mut self, tid: u32, start_ns: u64, event: &Event, inside: bool) -> io::Result<()> {
        if let Event::Call(call) = event {
            self.count_memory(start_ns, call, inside)?;
        }
        match event {
            Event::Timing(_) | Event::StackSample(_) | Event::RangeChange(_) | Event::ArgumentSample(_) => {
                Ok(())
            }
            _ if !inside => Ok(()),
            // The call was not recorded: the kernel alone is shown.
            Event::Launch(launch) if launch.head.flags & flags::NO_CALL != 0 => Ok(()),
            Event::Call(call) => self.call(tid, start_ns, call),
            Event::Launch(launch) => {
                let kernel = self.kernel(launch.config);
                let grid = self.configuration(launch.config);
                let details =
                    [("configuration", Value::Text(&grid)), ("result", Value::Integer(launch.result.into()))];
                self.launch(tid, start_ns, &launch.head, (launch.api, launch.result), &kernel, &details)
            }
            Event::GraphLaunch(launch) => {
                let name = format!("graph {}", launch.graph);
                let details = [("result", Value::Integer(launch.result.into()))];
                self.launch(tid, start_ns, &launch.head, (launch.api, launch.result), &name, &details)
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
        details.extend(call.is_peer().then_some(("between devices", Value::Integer(1))));
        let duration_ns = self.process.clock.duration_ns(call.head.duration_ticks());
        let name = self.process.definitions.name(call.api).unwrap_or("unknown call");
        let queues = matches!(call.class(), Some(CallClass::Copy | CallClass::Set));
        let flow = if queues { self.flow(tid, &call.head, call.result) } else { 0 };
        self.trace.slice(&Slice { track, name, start_ns, duration_ns, flow, details: &details })
    }

    fn launch(
        &mut self,
        tid: u32,
        start_ns: u64,
        head: &RecordHead,
        (api, result): (u32, u32),
        what: &str,
        details: &[(&str, Value<'_>)],
    ) -> io::Result<()> {
        let flow = self.flow(tid, head, result);
        let track = self.thread(tid)?;
        let duration_ns = self.process.clock.duration_ns(head.duration_ticks());
        let api = self.process.definitions.name(api).unwrap_or("unknown launch");
        let name = format!("{api} {what}");
        self.trace.slice(&Slice { track, name: &name, start_ns, duration_ns, flow, details })
    }

    /// Number that connects a call to the work that it queued; 0 if it queued none.
    fn flow(&self, tid: u32, head: &RecordHead, result: u32) -> u64 {
        let queued = result == 0 && head.flags & flags::CAPTURED == 0;
        if queued { flow(self.at, tid, self.process.clock.ns_since_start(head.start)) } else { 0 }
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
        if launch.grid.is_empty() || launch.block.is_empty() {
            return "unknown".into();
        }
        format!(
            "grid {:?}, block {:?}, dynamic shared {} B",
            launch.grid, launch.block, launch.dynamic_shared_bytes
        )
    }
}
