//! A session as spans: the activities of a program over time, for tracing back ends such as Jaeger
//! and Tempo.
//!
//! | span | parent | how many |
//! | --- | --- | --- |
//! | the run | none | one |
//! | a process | the run | each |
//! | a phase of its launches, unless it has but one | the process | each |
//! | a step: an iteration of the steady state or the warm-up | its phase | the longest |
//! | an NVTX range | the range around it, or the process | the longest |
//! | an idle gap of a device | the process | those that the profile lists |
//! | a timed kernel | the process | the longest |
//!
//! Invariants: identifiers depend on what was recorded alone, so that a session that is exported
//! twice is one trace. What is kept of ranges is the longest, so that a range which is kept has the
//! ranges around it. Memory is bounded by that, never by the number of records.

use apex_kernel_names::identify;
use apex_ordered::Order;
use apex_profile::{
    Builder, Called, ObservedProcess, ObservedWork, Observer, PhaseKind, Profile, Ranks, Use,
};
use apex_trace::meta::Exit;
use apex_trace::{Definitions, Session};
use apex_untrusted::printable;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

/// Ranges, and steps, of a session that get a span.
pub const MOST_SPANS: usize = 5_000;
/// Kernels of a session that get a span.
pub const MOST_KERNELS: usize = 100;
/// Bytes of a name.
const LONGEST_NAME: usize = 500;
/// Ranges of a process that are open at a time and distinguished.
const MOST_OPEN: usize = 256;

/// The spans of a session.
#[derive(Clone, Debug)]
pub struct Spans {
    /// The trace's identifier.
    pub(crate) trace: [u8; 16],
    /// The machine's name; empty where it is not known.
    pub(crate) host: String,
    /// The run alone, then each process.
    pub(crate) processes: Vec<ProcessSpans>,
}

/// The spans of a process, its own first.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProcessSpans {
    /// Attributes of all of them.
    pub attributes: Vec<(&'static str, Value)>,
    pub spans: Vec<Span>,
}

/// An interval with a name: from one moment to another.
#[derive(Clone, Debug, Default)]
pub(crate) struct Span {
    pub id: u64,
    pub parent: Option<u64>,
    pub name: String,
    /// Nanoseconds since 1970.
    pub start_ns: u64,
    pub end_ns: u64,
    pub attributes: Vec<(&'static str, Value)>,
    /// The failure, if it failed.
    pub error: Option<String>,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Text(String),
    Integer(i64),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<u64> for Value {
    fn from(integer: u64) -> Self {
        Self::Integer(integer.try_into().unwrap_or(i64::MAX))
    }
}

impl Spans {
    /// Reads a session.
    pub fn of(session: &Session) -> Self {
        let trace = trace_of(session);
        let mut collector = Collector { trace, ranks: Ranks::of(session), ..Collector::default() };
        let mut builder = Builder::default();
        builder.add_observed(session, &mut collector);
        let profile = builder.finish();
        collector.finish(session, &profile)
    }

    /// Returns the number of spans.
    pub fn count(&self) -> usize {
        self.processes.iter().map(|process| process.spans.len()).sum()
    }
}

/// The identifier of a session's trace.
fn trace_of(session: &Session) -> [u8; 16] {
    let mut of = Vec::new();
    if let Some(meta) = &session.meta {
        of.extend(meta.host.name.as_bytes());
        of.extend(meta.started_real_ns.to_le_bytes());
    }
    if let Some(process) = session.processes.first() {
        of.extend(process.start_real_ns.to_le_bytes());
        of.extend(process.pid.to_le_bytes());
    }
    let mut trace = [0; 16];
    trace[..8].copy_from_slice(&apex_random::hash(1, &of).to_be_bytes());
    trace[8..].copy_from_slice(&apex_random::hash(2, &of).to_be_bytes());
    trace
}

/// Keeps the longest of what it is given; of what is as long, that which holds the other.
#[derive(Debug)]
struct Longest<T> {
    most: usize,
    kept: BinaryHeap<Reverse<(u64, Reverse<usize>, usize)>>,
    items: HashMap<usize, T>,
    given: usize,
    left_out: usize,
}

impl<T> Longest<T> {
    fn new(most: usize) -> Self {
        Self { most, kept: BinaryHeap::new(), items: HashMap::new(), given: 0, left_out: 0 }
    }

    /// Whether something so long would be kept; `depth`: how many hold it. If not, it is left out.
    fn wants(&mut self, length: u64, depth: usize) -> bool {
        let is_longer = |Reverse((shortest, Reverse(deepest), _)): &Reverse<(u64, Reverse<usize>, usize)>| {
            (length, Reverse(depth)) > (*shortest, Reverse(*deepest))
        };
        let wants = self.kept.len() < self.most || self.kept.peek().is_some_and(is_longer);
        self.left_out += usize::from(!wants);
        wants
    }

    /// Keeps what is wanted.
    fn add(&mut self, length: u64, depth: usize, item: T) {
        if self.kept.len() == self.most
            && let Some(Reverse((.., number))) = self.kept.pop()
        {
            self.items.remove(&number);
            self.left_out += 1;
        }
        self.given += 1;
        self.kept.push(Reverse((length, Reverse(depth), self.given)));
        self.items.insert(self.given, item);
    }

    /// In the order in which they were given.
    fn finish(self) -> Vec<T> {
        let mut items: Vec<_> = self.items.into_iter().collect();
        items.order_by_key(|&(number, _)| number);
        items.into_iter().map(|(_, item)| item).collect()
    }
}

/// A phase of a process: its start, nanoseconds from the process' own, and its kind.
type Phase = (u64, PhaseKind);

/// A process: its span, its identifier and its start, nanoseconds since 1970.
type Of = (u64, u32, u64);

/// A process whose records have been read, or are being read.
struct TracedProcess {
    /// The identifier of its span.
    id: u64,
    pid: u32,
    definitions: Arc<Definitions>,
    threads: std::collections::BTreeMap<u32, String>,
    devices: Vec<String>,
    /// Nanoseconds since 1970.
    start_ns: u64,
    end_ns: u64,
    spans: ProcessSpans,
}

/// A range that has not ended.
#[derive(Clone, Copy)]
struct Open {
    range: u32,
    start: u64,
    id: u64,
    parent: u64,
}

/// Collects observations until they become spans. Kept spans have the place of their process.
struct Collector {
    trace: [u8; 16],
    ranks: Ranks,
    processes: Vec<TracedProcess>,
    /// Open ranges of the current process: those of each thread, outermost first, and its own.
    threads: HashMap<u32, Vec<Open>>,
    process_ranges: HashMap<u64, Open>,
    steps: Longest<(usize, Span)>,
    ranges: Longest<(usize, Span)>,
    kernels: Longest<(usize, Span)>,
}

impl Default for Collector {
    fn default() -> Self {
        Self {
            trace: [0; 16],
            ranks: Ranks::default(),
            processes: Vec::new(),
            threads: HashMap::new(),
            process_ranges: HashMap::new(),
            steps: Longest::new(MOST_SPANS),
            ranges: Longest::new(MOST_SPANS),
            kernels: Longest::new(MOST_KERNELS),
        }
    }
}

impl Collector {
    /// The identifier of a span of a process: what it is, and numbers that tell it from others.
    fn id(&self, pid: u32, what: &str, numbers: &[u64]) -> u64 {
        let mut of = self.trace.to_vec();
        of.extend(pid.to_le_bytes());
        of.extend(what.as_bytes());
        numbers.iter().for_each(|number| of.extend(number.to_le_bytes()));
        // 0 would be no identifier.
        apex_random::hash(3, &of).max(1)
    }

    /// Ends a range of the current process.
    fn close(&mut self, open: Open, depth: usize, end: u64, thread: Option<u32>) {
        let length = end.saturating_sub(open.start);
        let Some(process) = self.processes.last().filter(|_| self.ranges.wants(length, depth)) else {
            return;
        };
        let Some(range) = process.definitions.range(open.range) else { return };
        let mut attributes = Vec::new();
        if let Some(thread) = thread {
            attributes.push(("thread.id", u64::from(thread).into()));
            let name = process.threads.get(&thread).filter(|name| !name.is_empty());
            attributes.extend(name.map(|name| ("thread.name", Value::Text(printable(name).into_owned()))));
        }
        if !range.domain.is_empty() {
            attributes.push(("apex.nvtx.domain", Value::Text(text(&range.domain))));
        }
        let span = Span {
            id: open.id,
            parent: Some(open.parent),
            name: text(&range.name),
            start_ns: process.start_ns.saturating_add(open.start),
            end_ns: process.start_ns.saturating_add(end),
            attributes,
            error: None,
        };
        let place = self.processes.len() - 1;
        self.ranges.add(length, depth, (place, span));
    }

    /// Ends the open ranges of the current process.
    fn end_process(&mut self) {
        let Some(process) = self.processes.last() else { return };
        let end = process.end_ns.saturating_sub(process.start_ns);
        for (thread, mut open) in std::mem::take(&mut self.threads) {
            while let Some(last) = open.pop() {
                self.close(last, open.len(), end.max(last.start), Some(thread));
            }
        }
        for (_, open) in std::mem::take(&mut self.process_ranges) {
            self.close(open, 0, end.max(open.start), None);
        }
    }

    fn finish(mut self, session: &Session, profile: &Profile) -> Spans {
        self.end_process();
        self.add_gaps(profile);
        let left_out = self.steps.left_out + self.ranges.left_out;
        let run = self.run(session, left_out);
        let Self { steps, ranges, kernels, trace, mut processes, .. } = self;
        for (place, span) in [steps, ranges, kernels].into_iter().flat_map(Longest::finish) {
            processes[place].spans.spans.push(span);
        }
        let host = session.meta.as_ref().map_or(String::new(), |meta| text(&meta.host.name));
        let of_processes = processes.into_iter().map(|process| process.spans);
        Spans { trace, host, processes: std::iter::once(run).chain(of_processes).collect() }
    }

    /// The run: from the start of the program to the end of the last process.
    fn run(&self, session: &Session, left_out: usize) -> ProcessSpans {
        let starts = self.processes.iter().map(|process| process.start_ns);
        let ends = self.processes.iter().map(|process| process.end_ns);
        let meta = session.meta.as_ref();
        let start_ns = starts.chain(meta.map(|meta| meta.started_real_ns)).min().unwrap_or(0);
        let end_ns = ends.chain(meta.and_then(|meta| meta.ended_real_ns)).max().unwrap_or(start_ns);
        let command = meta.map(|meta| meta.command.join(" ")).filter(|command| !command.is_empty());
        let mut run = Span {
            id: self.id(0, "run", &[]),
            name: "run".to_owned(),
            start_ns,
            end_ns,
            error: meta.and_then(|meta| meta.exit).and_then(failure),
            ..Span::default()
        };
        run.attributes.push(("apex.session", Value::Text(text(&session.dir.to_string_lossy()))));
        if left_out > 0 {
            run.attributes.push(("apex.spans.left_out", (left_out as u64).into()));
        }
        if let Some(command) = &command {
            run.name = text(command);
        }
        let attributes = command.map(|command| ("process.command_line", Value::Text(text(&command))));
        ProcessSpans { attributes: attributes.into_iter().collect(), spans: vec![run] }
    }

    /// The longest gaps of each device.
    fn add_gaps(&mut self, profile: &Profile) {
        for activity in &profile.activities {
            // (Both are in the order of their starts.)
            let Some(process) = self.processes.get(activity.process) else { continue };
            let (parent, pid, process_ns) = (process.id, process.pid, process.start_ns);
            let device = activity.device.and_then(|device| profile.devices.get(device));
            let uuid = device.map_or(String::new(), |device| device.uuid.clone());
            for gap in &activity.gaps {
                let (start, length) = (gap.start_ns as u64, gap.duration_ns.value as u64);
                let id = self.id(pid, "gap", &[activity.device.unwrap_or(0) as u64, start]);
                let most = gap.by.iter().max_by(|a, b| a.1.total_cmp(b.1));
                let cause = most.map(|(cause, _)| ("apex.idle.cause", cause.name().into()));
                self.processes[activity.process].spans.spans.push(Span {
                    id,
                    parent: Some(parent),
                    name: "GPU idle".to_owned(),
                    start_ns: process_ns.saturating_add(start),
                    end_ns: process_ns.saturating_add(start).saturating_add(length),
                    attributes: cause.into_iter().chain([("hw.id", Value::Text(uuid.clone()))]).collect(),
                    error: None,
                });
            }
        }
    }
}

impl Collector {
    /// The spans of a process' phases.
    fn phase_spans(&self, (id, pid, start_ns): Of, phases: &[Phase], length: u64) -> Vec<Span> {
        let ends = phases.iter().skip(1).map(|(start, _)| *start).chain([length]);
        let lasting = phases.iter().zip(ends).filter(|((start, _), end)| start < end).take(MOST_SPANS);
        let span = |(&(start, kind), end): (&Phase, u64)| Span {
            id: self.id(pid, "phase", &[start]),
            parent: Some(id),
            name: kind.name().to_owned(),
            start_ns: start_ns.saturating_add(start),
            end_ns: start_ns.saturating_add(end),
            ..Span::default()
        };
        lasting.map(span).collect()
    }

    /// Keeps the longest steps of a process, each within its phase.
    fn keep_steps(
        &mut self,
        (id, pid, start_ns): Of,
        phases: &[Phase],
        observed: &ObservedProcess<'_>,
        place: usize,
    ) {
        for (number, step) in observed.iterations.iter().enumerate() {
            if !self.steps.wants(step.end - step.start, 0) {
                continue;
            }
            let phase = phases.partition_point(|(start, _)| *start <= step.start).checked_sub(1);
            let phase = phase.map_or(id, |at| self.id(pid, "phase", &[phases[at].0]));
            let span = Span {
                id: self.id(pid, "step", &[step.start]),
                parent: Some(phase),
                name: "step".to_owned(),
                start_ns: start_ns.saturating_add(step.start),
                end_ns: start_ns.saturating_add(step.end),
                attributes: vec![("apex.step", (number as u64).into())],
                error: None,
            };
            self.steps.add(step.end - step.start, 0, (place, span));
        }
    }
}

impl Observer for Collector {
    fn read(&mut self, _records: u64) {}

    fn process(&mut self, observed: &ObservedProcess<'_>) {
        self.end_process();
        let process = observed.process;
        let length = process.span.map_or(0, |(_, last)| process.clock.ns_since_start(last));
        let (pid, start_ns) = (process.pid, process.start_real_ns);
        let end_ns = start_ns.saturating_add(length);
        let executable = text(&process.executable);
        let mut attributes = vec![
            ("process.pid", Value::from(u64::from(pid))),
            ("process.parent_pid", u64::from(process.parent_pid).into()),
            ("process.executable.path", Value::Text(executable.clone())),
        ];
        let rank = self.ranks.of_process(pid);
        attributes.extend(rank.map(|rank| ("apex.rank", (rank as u64).into())));
        let name = executable.rsplit('/').next().unwrap_or_default().to_owned();
        let id = self.id(pid, "process", &[start_ns]);
        self.processes.push(TracedProcess {
            id,
            pid,
            definitions: Arc::clone(&process.definitions),
            threads: process.threads.clone(),
            devices: observed.devices.iter().map(|device| device.uuid.clone()).collect(),
            start_ns,
            end_ns,
            spans: ProcessSpans { attributes, spans: Vec::new() },
        });
        let mut spans = vec![Span {
            id,
            parent: Some(self.id(0, "run", &[])),
            name: if name.is_empty() { format!("process {pid}") } else { name },
            start_ns,
            end_ns,
            ..Span::default()
        }];
        let phases: Vec<Phase> =
            observed.phases.iter().copied().filter(|(_, kind)| *kind != PhaseKind::Whole).collect();
        spans.extend(self.phase_spans((id, pid, start_ns), &phases, length));
        let place = self.processes.len() - 1;
        self.keep_steps((id, pid, start_ns), &phases, observed, place);
        self.processes[place].spans.spans = spans;
    }

    fn call(&mut self, _call: &apex_profile::ObservedCall) {}

    fn work(&mut self, work: &ObservedWork) {
        let (Called::Config(config), Use::Kernels | Use::Collectives, true) =
            (work.called, work.on, work.is_timed)
        else {
            return;
        };
        let length = work.end - work.start;
        let Some(process) = self.processes.last().filter(|_| self.kernels.wants(length, 0)) else { return };
        let definitions = &process.definitions;
        let function = definitions.config(config).and_then(|config| definitions.function(config.function));
        let Some(function) = function else { return };
        let numbers = [work.device.unwrap_or(0) as u64, u64::from(work.stream), work.start];
        let uuid = work.device.and_then(|device| process.devices.get(device));
        let mut attributes = vec![("apex.stream", Value::from(u64::from(work.stream)))];
        attributes.extend(uuid.map(|uuid| ("hw.id", Value::Text(uuid.clone()))));
        let span = Span {
            id: self.id(process.pid, "kernel", &numbers),
            parent: Some(process.id),
            name: text(&identify(&function.name).short_name),
            start_ns: process.start_ns.saturating_add(work.start),
            end_ns: process.start_ns.saturating_add(work.end),
            attributes,
            error: None,
        };
        let place = self.processes.len() - 1;
        self.kernels.add(length, 0, (place, span));
    }

    fn stretch(&mut self, _device: Option<usize>, _from: u64, _to: u64, _on: Use) {}

    fn range(&mut self, thread: u32, at: u64, range: u32) {
        let Some(process) = self.processes.last() else { return };
        let (pid, process_span) = (process.pid, process.id);
        let path = path_of(&process.definitions, range);
        let mut open = self.threads.remove(&thread).unwrap_or_default();
        let same = open.iter().zip(&path).take_while(|(open, range)| open.range == **range).count();
        while open.len() > same
            && let Some(last) = open.pop()
        {
            self.close(last, open.len(), at.max(last.start), Some(thread));
        }
        for &range in &path[same..] {
            let parent = open.last().map_or(process_span, |outer| outer.id);
            let id = self.id(pid, "range", &[thread.into(), at, open.len() as u64]);
            open.push(Open { range, start: at, id, parent });
        }
        self.threads.insert(thread, open);
    }

    fn process_range(&mut self, at: u64, range: u32, instance: u64, begins: bool) {
        let Some(process) = self.processes.last() else { return };
        let (pid, parent) = (process.pid, process.id);
        if begins && self.process_ranges.len() < MOST_OPEN {
            let id = self.id(pid, "process range", &[instance, at]);
            self.process_ranges.insert(instance, Open { range, start: at, id, parent });
        } else if let Some(open) = self.process_ranges.remove(&instance) {
            self.close(open, 0, at.max(open.start), None);
        }
    }
}

/// A range and those around it, outermost first.
fn path_of(definitions: &Definitions, range: u32) -> Vec<u32> {
    let mut path = Vec::new();
    let mut next = range;
    while next != 0
        && path.len() < MOST_OPEN
        && let Some(range) = definitions.range(next)
    {
        path.push(next);
        // (A parent has a smaller identifier.)
        next = if range.parent < next { range.parent } else { 0 };
    }
    path.reverse();
    path
}

/// Describes the failure of a program.
fn failure(exit: Exit) -> Option<String> {
    match exit {
        Exit::Code(0) => None,
        Exit::Code(code) => Some(format!("exited with status {code}")),
        Exit::Signal(signal) => Some(format!("ended by signal {signal}")),
    }
}

/// Foreign text, without control characters and cut.
fn text(foreign: &str) -> String {
    let text = printable(foreign);
    let end = (0..=LONGEST_NAME.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    text[..end.unwrap_or(0)].to_owned()
}

#[cfg(test)]
mod tests;
