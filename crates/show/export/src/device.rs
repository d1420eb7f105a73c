//! The part of a trace that the records alone do not tell: when each launch ran on the
//! GPU, why the GPU was idle, and which phase and range the program was in.
//!
//! An observer of the profile receives it as the timeline of the dashboard does, so the totals are
//! the report's. A slice says whether its duration is measured, and whether its start is: without
//! a GPU clock in the session, starts are modelled. Slices of a track must nest, so work that
//! overlaps earlier work of its stream has a track of its own.

use crate::names::Names;
use crate::slices::{Slice, Tracks, Value};
use apex_profile::{
    Called, Device, IdleCause, ObservedCall, ObservedProcess, ObservedWork, Observer, PhaseKind, Use,
};
use apex_trace::Process;
use std::collections::HashMap;
use std::io;
use std::ops::Range;

/// Ranges inside of each other that are shown, at most.
const MOST_DEPTH: usize = 64;

/// Number that connects a launch call to its work: the same for both, different for others.
pub fn flow(process: usize, thread: u32, call_start_ns: u64) -> u64 {
    // Distinct bits of distinct calls, mixed so that sums do not meet (SplitMix64's finaliser).
    let mut bits = call_start_ns ^ (process as u64) << 52 ^ u64::from(thread) << 32;
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (bits ^ bits >> 31) | 1
}

/// A track of a process.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Lane {
    Stream(Option<usize>, u32, usize),
    Idle(Option<usize>),
    Ranges(u32),
    Phases,
    Steps,
}

/// Writes the work of devices.
pub struct Devices<'a, T> {
    trace: &'a mut T,
    /// The tracks of the processes, in the order of the session.
    processes: &'a [(u64, &'a Process)],
    next_id: u64,
    /// The index of the process whose events come; one more than there are before the first.
    at: Option<usize>,
    origin_ns: u64,
    window: Range<u64>,
    /// Nanoseconds from the start of the session to that of the process.
    late_ns: u64,
    ordinals: Vec<Option<u32>>,
    names: Option<Names<'a>>,
    is_placed: bool,
    tracks: HashMap<Lane, u64>,
    /// When the last work on each track of a stream ended.
    free: HashMap<(Option<usize>, u32), Vec<u64>>,
    /// The open ranges of each thread: identifier and start.
    open: HashMap<u32, Vec<(u32, u64)>>,
    /// The first failure of the output.
    failure: Option<io::Error>,
}

impl<'a, T: Tracks> Devices<'a, T> {
    /// A writer into a trace that has the tracks of these processes; identifiers from `next_id` on
    /// are free.
    pub fn new(
        trace: &'a mut T,
        processes: &'a [(u64, &'a Process)],
        next_id: u64,
        origin_ns: u64,
        window: Range<u64>,
    ) -> Self {
        Self {
            trace,
            processes,
            next_id,
            at: None,
            origin_ns,
            window,
            late_ns: 0,
            ordinals: Vec::new(),
            names: None,
            is_placed: false,
            tracks: HashMap::new(),
            free: HashMap::new(),
            open: HashMap::new(),
            failure: None,
        }
    }

    /// Ends what is open.
    ///
    /// # Errors
    /// The first of the output.
    pub fn finish(mut self) -> io::Result<()> {
        self.end_process();
        self.failure.map_or(Ok(()), Err)
    }

    fn end_process(&mut self) {
        let end = self.current().and_then(|process| Some(process.clock.ns_since_start(process.span?.1)));
        let threads: Vec<u32> = self.open.keys().copied().collect();
        threads.into_iter().for_each(|thread| self.close(thread, 0, end.unwrap_or(0)));
        self.tracks.clear();
        self.free.clear();
        self.open.clear();
    }

    fn current(&self) -> Option<&'a Process> {
        self.at.and_then(|at| self.processes.get(at)).map(|&(_, process)| process)
    }

    /// The track of a lane, announced where it is new.
    fn track(&mut self, lane: Lane) -> io::Result<u64> {
        if let Some(&known) = self.tracks.get(&lane) {
            return Ok(known);
        }
        let id = self.next_id;
        self.next_id += 1;
        let gpu = |device: Option<usize>| match device.and_then(|device| self.ordinals.get(device)) {
            Some(Some(ordinal)) => format!("GPU {ordinal}"),
            _ => "GPU".to_owned(),
        };
        let name = match lane {
            Lane::Stream(device, stream, 0) => format!("{} stream {stream}", gpu(device)),
            Lane::Stream(device, stream, lane) => {
                format!("{} stream {stream}, overlapping {lane}", gpu(device))
            }
            Lane::Idle(device) => format!("{} idle", gpu(device)),
            Lane::Ranges(thread) => format!("ranges of thread {thread}"),
            Lane::Phases => "phases".to_owned(),
            Lane::Steps => "steps".to_owned(),
        };
        let parent = self.at.and_then(|at| self.processes.get(at)).map_or(0, |&(track, _)| track);
        self.trace.track(id, parent, &name)?;
        self.tracks.insert(lane, id);
        Ok(id)
    }

    /// Writes a slice, times since the start of the process, if its output has not failed.
    fn slice(&mut self, lane: Lane, name: &str, time: Range<u64>, flow: u64, details: &[(&str, Value<'_>)]) {
        if self.failure.is_some() || !self.window.contains(&(time.start + self.late_ns)) {
            return;
        }
        let (start_ns, duration_ns) = (time.start + self.late_ns, time.end.saturating_sub(time.start));
        let write = |writer: &mut Self| {
            let track = writer.track(lane)?;
            writer.trace.slice(&Slice { track, name, start_ns, duration_ns, flow, details })
        };
        self.failure = write(self).err();
    }

    /// The track of a stream that is free at a moment.
    fn free_lane(&mut self, work: &ObservedWork) -> usize {
        let lanes = self.free.entry((work.device, work.stream)).or_default();
        let lane = lanes.iter().position(|&end| end <= work.start).unwrap_or(lanes.len());
        if lane == lanes.len() {
            lanes.push(0);
        }
        lanes[lane] = work.end;
        lane
    }

    fn name(&mut self, called: Called) -> String {
        let definitions = self.current().map(|process| &process.definitions);
        match called {
            Called::Config(config) => {
                let function = definitions.and_then(|of| of.config(config)).map(|config| config.function);
                let name = function.and_then(|function| self.names.as_mut()?.function(function));
                name.map_or("unknown kernel".into(), |name| apex_profile::names::identify(name).short_name)
            }
            Called::Graph(graph) => format!("graph {graph}"),
            Called::Api(api) => definitions.and_then(|of| of.name(api)).unwrap_or("copy or set").to_owned(),
        }
    }

    /// The ranges around a range and itself, outermost first.
    fn path(&self, range: u32) -> Vec<u32> {
        let Some(process) = self.current() else { return Vec::new() };
        let mut path = Vec::new();
        let mut at = range;
        while at != 0 && path.len() < MOST_DEPTH {
            path.push(at);
            // A range has a larger identifier than the one around it.
            at = process.definitions.range(at).map_or(0, |range| range.parent).min(at - 1);
        }
        path.reverse();
        path
    }

    /// Ends the ranges of a thread that are deeper than this.
    fn close(&mut self, thread: u32, depth: usize, at: u64) {
        let open = self.open.entry(thread).or_default();
        for (range, start) in open.split_off(depth.min(open.len())).into_iter().rev() {
            let process = self.current();
            let name = process.and_then(|process| process.definitions.range(range));
            let name = name.map_or_else(|| "unknown range".to_owned(), |range| range.name.clone());
            self.slice(Lane::Ranges(thread), &name, start..at.max(start), 0, &[]);
        }
    }
}

impl<T: Tracks> Observer for Devices<'_, T> {
    fn read(&mut self, _records: u64) {}

    fn process(&mut self, observed: &ObservedProcess<'_>) {
        self.end_process();
        let same = |&(_, process): &(u64, &Process)| std::ptr::eq(process, observed.process);
        self.at = self.processes.iter().position(same);
        let Some(process) = self.current() else { return };
        self.late_ns = process.clock.monotonic_ns(0).saturating_sub(self.origin_ns);
        self.names = Some(Names::new(process));
        self.ordinals =
            observed.devices.iter().map(|device: &Device| device.ordinals.first().copied()).collect();
        self.is_placed = observed.is_placed;
        let end = process.span.map_or(0, |(_, last)| process.clock.ns_since_start(last));
        let ends = observed.phases.iter().skip(1).map(|&(start, _)| start).chain([end]);
        for (&(start, kind), next) in
            observed.phases.iter().zip(ends).filter(|((_, kind), _)| *kind != PhaseKind::Whole)
        {
            self.slice(Lane::Phases, kind.name(), start..next.max(start), 0, &[]);
        }
        for (step, number) in observed.iterations.iter().zip(1..) {
            self.slice(Lane::Steps, &format!("step {number}"), step.clone(), 0, &[]);
        }
    }

    fn call(&mut self, _call: &ObservedCall) {}

    fn work(&mut self, work: &ObservedWork) {
        let Some(at) = self.at else { return };
        let measured = |is: bool| Value::Text(if is { "measured" } else { "predicted" });
        let duration = match work.on {
            Use::Unknown => Value::Text("unknown: its kernel was not timed"),
            _ => measured(work.is_timed),
        };
        let details = [("duration", duration), ("start", measured(self.is_placed))];
        let lane = self.free_lane(work);
        let name = self.name(work.called);
        let flow = flow(at, work.thread, work.call_start);
        self.slice(Lane::Stream(work.device, work.stream, lane), &name, work.start..work.end, flow, &details);
    }

    fn stretch(&mut self, device: Option<usize>, from: u64, to: u64, on: Use) {
        if let Use::Idle(cause) = on {
            let name = match cause {
                IdleCause::HostCode => "idle: the program's own code".to_owned(),
                IdleCause::Unrecorded => "idle: cause unknown".to_owned(),
                cause => format!("idle: {}", cause.name()),
            };
            self.slice(Lane::Idle(device), &name, from..to, 0, &[]);
        }
    }

    fn range(&mut self, thread: u32, at: u64, range: u32) {
        let path = self.path(range);
        let open = self.open.entry(thread).or_default();
        let same = open.iter().zip(&path).take_while(|((open, _), range)| open == *range).count();
        self.close(thread, same, at);
        self.open.entry(thread).or_default().extend(path[same..].iter().map(|&range| (range, at)));
    }
}
