//! What all formats have in common: the calls of a process, the work of its devices, its ranges and
//! frames of Python. Times are nanoseconds on one clock of the process.
//!
//! An event takes 24 to 56 bytes here, and each text is kept once, so that a trace of millions of
//! events fits into memory; both are bounded.

use crate::bounds::{MOST_EVENTS, MOST_NS, MOST_TEXT, end};
use crate::places::Places;
use crate::python::Frames;
use crate::ranges::Ranges;
use cuda_launch::Dim3;
use std::collections::{BTreeMap, HashMap};

/// Bytes of one name, at most; the rest is cut off.
const MOST_NAME: usize = 16 << 10;

/// A trace.
#[derive(Debug, Default)]
pub struct Trace {
    /// The profiler, such as `PyTorch (Kineto)`.
    pub tool: String,
    /// Its version or schema, as the trace names it; empty if it does not.
    pub version: String,
    /// The processes.
    pub processes: Vec<Process>,
    /// Events that are not imported, by kind.
    pub left_out: BTreeMap<String, u64>,
    /// Limits and faults of the trace, as sentences.
    pub remarks: Vec<String>,
    /// Events of the trace, of any kind.
    pub events: u64,
    /// Reason for which the trace ends early, where it does.
    pub cut: Option<String>,
}

impl Trace {
    /// The trace ends early: what came before counts.
    pub fn end_early(&mut self, why: &str) {
        self.remarks.push(format!(
            "the trace is incomplete ({why}): {} before {} read",
            several(self.events, "event", "events"),
            if self.events == 1 { "is" } else { "are" }
        ));
        self.cut = Some(why.to_owned());
    }

    /// Counts an event that is not imported.
    pub fn leave_out(&mut self, kind: &str) {
        if let Some(count) = self.left_out.get_mut(kind) {
            *count += 1;
            return;
        }
        // A file may name any number of kinds.
        let kind =
            if self.left_out.len() < 256 { kind.chars().take(64).collect() } else { "others".to_owned() };
        *self.left_out.entry(kind).or_default() += 1;
    }

    /// Profiler and version.
    pub(crate) fn source(&self) -> String {
        match self.version.as_str() {
            "" => self.tool.clone(),
            version => format!("{}, {version}", self.tool),
        }
    }

    /// Reason for which there is nothing to import, and the remedy.
    pub(crate) fn why_empty(&self) -> String {
        let events = several(self.events, "event", "events");
        if let Some(why) = &self.cut {
            return format!(
                "it ends before its first kernel ({why}), after {events}: the program ended while it wrote the trace, or \
                 the file was copied in part"
            );
        }
        let kinds: Vec<&str> = self.left_out.keys().map(String::as_str).take(5).collect();
        let kinds = if kinds.is_empty() { String::new() } else { format!(", such as {}", kinds.join(", ")) };
        let hint = match self.tool.split(' ').next() {
            Some("JAX") => "record a program that runs on a GPU",
            Some("Nsight") => "record with --trace=cuda",
            _ => "record with the CUDA activity, activities=[CPU, CUDA]",
        };
        format!("it has no work of a GPU in {events}{kinds}: {hint}")
    }
}

/// A number with what it counts, in the singular or plural.
pub fn several(count: u64, one: &str, many: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {many}") }
}

/// Texts, each once.
#[derive(Debug, Default)]
pub struct Names {
    places: HashMap<Box<str>, u32>,
    list: Vec<Box<str>>,
    bytes: usize,
}

impl Names {
    /// The number of a text. Where there are too many, all further ones are one.
    pub fn number(&mut self, text: &str) -> u32 {
        let end = text.floor_char_boundary_of(MOST_NAME);
        let text = &text[..end];
        if let Some(&known) = self.places.get(text) {
            return known;
        }
        if self.bytes + text.len() > MOST_TEXT && text != OVERFLOW {
            return self.number(OVERFLOW);
        }
        self.bytes += text.len();
        let number = self.list.len() as u32;
        self.list.push(text.into());
        self.places.insert(text.into(), number);
        number
    }

    /// The text of a number.
    pub fn text(&self, number: u32) -> &str {
        self.list.get(number as usize).map_or("", |text| text)
    }
}

/// The name of what has no name, for lack of room.
const OVERFLOW: &str = "(more names than are kept)";

/// The largest boundary of characters up to a byte. (The standard library's is not in the oldest
/// compiler that builds this.)
trait Boundary {
    fn floor_char_boundary_of(&self, most: usize) -> usize;
}

impl Boundary for str {
    fn floor_char_boundary_of(&self, most: usize) -> usize {
        let most = most.min(self.len());
        (0..=most).rev().find(|&at| self.is_char_boundary(at)).unwrap_or(0)
    }
}

/// A device, as far as a trace describes it.
#[derive(Clone, Debug, Default)]
pub struct Device {
    /// Its name; empty if unknown.
    pub name: String,
    /// Bytes of its memory.
    pub memory_bytes: u64,
    /// `CUdevice_attribute` and value.
    pub attributes: Vec<(u32, i32)>,
    /// Its UUID; zero if unknown.
    pub uuid: [u8; 16],
}

/// A kernel in one launch configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Config {
    /// The kernel's name, among the names.
    pub name: u32,
    /// Ordinal of its device.
    pub device: u32,
    /// Its context.
    pub context: u32,
    /// Blocks of the grid.
    pub grid: Option<Dim3>,
    /// Threads of a block.
    pub block: Option<Dim3>,
    /// Blocks of a cluster; zero without clusters.
    pub cluster: [u32; 3],
    /// Registers of a thread.
    pub registers: Option<u32>,
    /// Static shared memory of a block, bytes.
    pub static_shared: u32,
    /// Dynamic shared memory of a block, bytes.
    pub dynamic_shared: u32,
    /// Local memory of a thread, bytes.
    pub local: u32,
}

/// A thread of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Thread {
    /// Its process, as the trace numbers it.
    pub process: u64,
    /// Its number in the trace.
    pub id: u64,
}

/// A stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stream {
    /// Ordinal of its device.
    pub device: u32,
    /// Its context.
    pub context: u32,
    /// Its number in the trace.
    pub number: u64,
}

/// A call of the CUDA runtime or driver.
#[derive(Clone, Copy, Debug, Default)]
pub struct Call {
    /// Its start.
    pub start: i64,
    /// Its duration.
    pub ns: u64,
    /// Number that joins it to its work; 0 if nothing does.
    pub correlation: u64,
    /// Its name, among the names.
    pub name: u32,
    /// Its thread, among the threads.
    pub thread: u32,
    /// The error that it returned; 0 is success.
    pub result: u32,
}

/// Work of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A kernel, in this configuration.
    Kernel(u32),
    /// A copy.
    Copy(Transfer),
    /// A set.
    Set(Transfer),
    /// A whole graph launch, whose nodes are not in the trace.
    Graph(u32),
}

/// A copy or set of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transfer {
    /// Bytes.
    pub bytes: u64,
    /// A raw [`apex_trace::layout::MemoryKind`], of the source.
    pub from: u8,
    /// The same of the destination, or of what is set.
    pub to: u8,
    /// Whether these are the memories of two devices.
    pub is_peer: bool,
}

/// A piece of a device's work.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Its start.
    pub start: i64,
    /// Its duration.
    pub ns: u64,
    /// Number that joins it to its call; 0 if nothing does.
    pub correlation: u64,
    /// Its stream, among the streams.
    pub stream: u32,
    /// Kind of work.
    pub kind: Kind,
}

/// A process.
#[derive(Debug, Default)]
pub struct Process {
    /// Its identifier.
    pub pid: u32,
    /// Its rank in a job.
    pub rank: Option<u32>,
    /// Path or name of its executable; empty if unknown.
    pub executable: String,
    /// Nanoseconds since 1970 at time 0.
    pub epoch_ns: i64,
    /// Texts.
    pub names: Names,
    /// Devices by ordinal.
    pub devices: BTreeMap<u32, Device>,
    /// Threads.
    pub threads: Places<Thread>,
    /// Their names, as far as they have any.
    pub thread_names: HashMap<Thread, String>,
    /// Configurations.
    pub configs: Places<Config>,
    /// Streams.
    pub streams: Places<Stream>,
    /// Calls.
    pub calls: Vec<Call>,
    /// Work.
    pub work: Vec<Work>,
    /// The stream for which a call waited, by correlation.
    pub waits: HashMap<u64, u32>,
    /// Ranges that the program names.
    pub ranges: Ranges,
    /// Frames of Python.
    pub frames: Frames,
    /// Bits of the correlation that tell a process's calls apart were lost: more calls than are
    /// kept.
    pub is_cut: bool,
}

impl Process {
    /// Whether no device did anything for it.
    pub fn is_empty(&self) -> bool {
        self.work.is_empty()
    }

    /// Leaves out events that cannot be: that last longer than [`MOST_NS`], or are further than
    /// that from the median of work and calls. Gives their number.
    pub fn leave_out_impossible(&mut self) -> u64 {
        if self.work.is_empty() {
            return 0;
        }
        let calls = self.calls.iter().map(|call| call.start);
        let mut starts: Vec<i64> = self.work.iter().map(|work| work.start).chain(calls).collect();
        let middle = starts.len() / 2;
        let (_, &mut median, _) = starts.select_nth_unstable(middle);
        drop(starts);
        let can_be = |start: i64, ns: u64| ns <= MOST_NS && start.abs_diff(median) <= MOST_NS;
        let before = self.work.len() + self.calls.len() + self.ranges.len() + self.frames.len();
        self.work.retain(|work| can_be(work.start, work.ns));
        self.calls.retain(|call| can_be(call.start, call.ns));
        self.ranges.retain(can_be);
        self.frames.retain(can_be);
        (before - self.work.len() - self.calls.len() - self.ranges.len() - self.frames.len()) as u64
    }

    /// Adds a call, unless there are too many.
    pub fn call(&mut self, call: Call) {
        push(&mut self.calls, call, &mut self.is_cut);
    }

    /// Adds work, unless there is too much.
    pub fn work(&mut self, work: Work) {
        push(&mut self.work, work, &mut self.is_cut);
    }

    /// The first and last moment of a call or of work.
    pub fn span(&self) -> (i64, i64) {
        let calls = self.calls.iter().map(|call| (call.start, end(call.start, call.ns)));
        let work = self.work.iter().map(|work| (work.start, end(work.start, work.ns)));
        calls.chain(work).fold((i64::MAX, i64::MIN), |span, of| (span.0.min(of.0), span.1.max(of.1)))
    }

    /// The same in nanoseconds since 1970.
    pub fn span_real_ns(&self) -> (u64, u64) {
        let (first, last) = self.span();
        let real = |at: i64| u64::try_from(self.epoch_ns.saturating_add(at)).unwrap_or(0);
        (real(first), real(last))
    }
}

fn push<T>(list: &mut Vec<T>, item: T, is_cut: &mut bool) {
    if list.len() < MOST_EVENTS {
        list.push(item);
    } else {
        *is_cut = true;
    }
}
