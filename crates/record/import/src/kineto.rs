//! PyTorch's trace: Chrome's JSON as Kineto writes it, plain or compressed; and JAX's, which has
//! the same form and other contents ([`Xla`]).
//!
//! Times are decimal microseconds, read exactly; `baseTimeNanoseconds`, which may follow the
//! events, says when 0 is. Categories changed their names in 2022 (`Kernel` is `kernel` now). Calls
//! of the host and work of the device have the same correlation. An event that makes no sense is
//! counted and left out; a file that ends early (the writer crashed) keeps the events before.

use crate::calls::{ends_of_copy, is_between_devices, memory};
use crate::decimal::scaled;
use crate::error::Error;
use crate::json::{Cursor, Damage, Splitter, Stop, whole};
use crate::model::{Call, Config, Device, Kind, Process, Stream, Thread, Trace, Transfer, Work, several};
use crate::xla::{self, Xla};
use cuda_launch::Dim3;
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::io::Read;
use std::path::Path;

/// From microseconds to nanoseconds, as a power of ten.
const MICROSECONDS: i32 = 3;
/// Kilobytes of a value beside the events that is looked at.
const MOST_METADATA: usize = 1 << 20;

/// Reads a trace.
///
/// # Errors
/// If it is not one of a CUDA device, or damaged before its first event.
pub fn read(path: &Path, input: impl Read) -> Result<Trace, Error> {
    let mut reader = Reader::new(path);
    let mut splitter = Splitter::new(input);
    splitter.skip_bom();
    reader.document(&mut splitter)?;
    reader.rest(&mut splitter);
    if let Some(error) = splitter.failure.take() {
        reader.end_early(&error.to_string());
    }
    reader.finish()
}

/// Members of the document that are read; others may be of any length.
const KEYS: [&str; 8] = [
    "schemaVersion",
    "cuda_runtime_version",
    "cuda_driver_version",
    "cupti_version",
    "with_stack",
    "baseTimeNanoseconds",
    "distributedInfo",
    "deviceProperties",
];

/// Kind of a category's events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Category {
    Kernel,
    Copy,
    Set,
    Call,
    Wait,
    Range,
    Python,
    /// It is known, and there is no place for it.
    Known,
    Unknown,
}

fn category(name: &[u8]) -> Category {
    match name {
        b"kernel" | b"Kernel" | b"gpu_op" => Category::Kernel,
        b"gpu_memcpy" | b"Memcpy" => Category::Copy,
        b"gpu_memset" | b"Memset" => Category::Set,
        b"cuda_runtime" | b"Runtime" | b"cuda_driver" => Category::Call,
        b"cuda_sync" => Category::Wait,
        b"user_annotation" => Category::Range,
        b"python_function" => Category::Python,
        b"cpu_op"
        | b"Operator"
        | b"gpu_user_annotation"
        | b"ac2g"
        | b"async_cpu_to_gpu"
        | b"async_gpu"
        | b"fwdbwd"
        | b"Trace" => Category::Known,
        _ => Category::Unknown,
    }
}

/// An event's members.
#[derive(Default)]
struct Event<'a> {
    phase: u8,
    category: Cow<'a, str>,
    name: Cow<'a, str>,
    /// Raw: a number, or a text such as `stream 7`.
    pid: Cow<'a, str>,
    tid: Cow<'a, str>,
    ts: Option<i64>,
    dur: Option<i64>,
    /// Whether the time is a text, as Ascend's profiler writes it.
    has_text_time: bool,
    args: Args,
}

/// The members of an event's `args` that count.
#[derive(Default)]
struct Args {
    correlation: u64,
    stream: Option<u64>,
    device: Option<u64>,
    context: u64,
    bytes: u64,
    registers: Option<u64>,
    shared: u64,
    grid: Option<[u32; 3]>,
    block: Option<[u32; 3]>,
    memory_kind: Option<String>,
    label: Option<String>,
    /// XLA's description of kernels, copies and sets, as words `key:value`.
    details: Option<String>,
    /// The number of a step that the program marks.
    has_step: bool,
}

struct Reader<'p> {
    path: &'p Path,
    trace: Trace,
    process: Process,
    /// The processes whose calls are in the file.
    callers: BTreeSet<u64>,
    /// JAX's description of its trace's processes, which are devices and the host.
    planes: HashMap<u64, xla::Plane>,
    /// Whether a list of events was found.
    has_list: bool,
    damaged: u64,
    untimed: u64,
    refusal: Option<String>,
    /// Events whose time is a text, and events whose time is a number.
    text_times: u64,
    number_times: u64,
    cuda: [Option<u64>; 3],
    has_stacks_flag: bool,
}

impl<'p> Reader<'p> {
    fn new(path: &'p Path) -> Self {
        let trace = Trace { tool: "PyTorch (Kineto)".to_owned(), ..Trace::default() };
        Self {
            path,
            trace,
            process: Process::default(),
            callers: BTreeSet::new(),
            planes: HashMap::new(),
            has_list: false,
            damaged: 0,
            untimed: 0,
            refusal: None,
            text_times: 0,
            number_times: 0,
            cuda: [None; 3],
            has_stacks_flag: false,
        }
    }

    /// The trace ends early.
    fn end_early(&mut self, why: &str) {
        let is_partial = self.path.to_string_lossy().ends_with(".tmp");
        let hint = if is_partial { "; the program ended while it wrote it" } else { "" };
        self.trace.end_early(&format!("{why}{hint}"));
    }

    fn damage(&self, at: u64, what: &str) -> Error {
        Error::Damaged { path: self.path.to_owned(), at, what: what.to_owned() }
    }

    fn document<R: Read>(&mut self, splitter: &mut Splitter<R>) -> Result<(), Error> {
        if splitter.take(b'[') {
            return self.all_events(splitter);
        }
        if !splitter.take(b'{') {
            return Err(self.damage(splitter.position(), "no JSON object begins here"));
        }
        loop {
            match splitter.peek() {
                Some(b',') => drop(splitter.take(b',')),
                Some(b'"') => {
                    let key = match splitter.value() {
                        Ok(key) => String::from_utf8_lossy(&key[1..key.len() - 1]).into_owned(),
                        Err(stop) => return self.stopped(splitter, &stop),
                    };
                    if !splitter.take(b':') {
                        return self.not_json(splitter);
                    }
                    if key == "traceEvents" && splitter.take(b'[') {
                        self.all_events(splitter)?;
                    } else {
                        self.check_key(&key);
                        self.check()?;
                        let read = match KEYS.contains(&key.as_str()) {
                            true => splitter.value().map(|value| self.metadata(&key, value)),
                            false => splitter.skip(),
                        };
                        if let Err(stop) = read {
                            return self.stopped(splitter, &stop);
                        }
                    }
                }
                Some(b'}') => {
                    splitter.take(b'}');
                    return Ok(());
                }
                Some(_) => return self.not_json(splitter),
                None => return self.stopped(splitter, &Stop::Cut),
            }
        }
    }

    fn all_events<R: Read>(&mut self, splitter: &mut Splitter<R>) -> Result<(), Error> {
        self.has_list = true;
        loop {
            match splitter.peek() {
                Some(b',') => drop(splitter.take(b',')),
                Some(b'{') => match splitter.value() {
                    Ok(bytes) => {
                        self.trace.events += 1;
                        // (Its text is borrowed from the splitter's buffer, which nobody else needs
                        // meanwhile.)
                        self.event(bytes);
                    }
                    Err(stop) => return self.stopped(splitter, &stop),
                },
                Some(b']') => {
                    splitter.take(b']');
                    return Ok(());
                }
                // No event, but JSON: the ones behind it count.
                Some(b'n' | b't' | b'f' | b'"' | b'[' | b'-' | b'0'..=b'9') => match splitter.value() {
                    Ok(value) if is_value(value) => self.damaged += 1,
                    Ok(_) => return self.not_json(splitter),
                    Err(stop) => return self.stopped(splitter, &stop),
                },
                Some(_) => return self.not_json(splitter),
                None => return self.stopped(splitter, &Stop::Cut),
            }
            if self.refusal.is_some() {
                return self.check();
            }
        }
    }

    /// Says that there is more behind the document, such as another one. The file is read to its
    /// end, so that damage of a compressed one is found.
    fn rest<R: Read>(&mut self, splitter: &mut Splitter<R>) {
        let is_whole = self.trace.remarks.is_empty() && splitter.failure.is_none();
        if is_whole && splitter.peek().is_some() {
            let at = splitter.position();
            splitter.drain();
            self.trace.remarks.push(format!(
                "behind the trace, from byte {at} on, there {} not read: each trace has to be a file of its own",
                several_more(splitter.position() - at)
            ));
        }
    }

    fn check(&mut self) -> Result<(), Error> {
        self.refusal.take().map_or(Ok(()), |what| Err(Error::refused(self.path, what)))
    }

    /// The file ends here, or goes on with what is not read. What came before counts.
    fn stopped<R: Read>(&mut self, splitter: &Splitter<R>, stop: &Stop) -> Result<(), Error> {
        let at = splitter.position();
        match stop {
            Stop::TooLong => Err(self.damage(at, "a value of more than 16 MiB begins before this place")),
            Stop::Cut if self.trace.events == 0 && self.has_list => {
                Err(self.damage(at, "the file ends before its first event"))
            }
            Stop::Cut => {
                if splitter.failure.is_none() {
                    self.end_early("it ends in the middle");
                }
                Ok(())
            }
        }
    }

    fn not_json<R: Read>(&mut self, splitter: &Splitter<R>) -> Result<(), Error> {
        let at = splitter.position();
        if self.trace.events == 0 {
            return Err(self.damage(at, "what is here is no JSON"));
        }
        self.end_early(&format!("byte {at} is no JSON"));
        Ok(())
    }

    /// Notes what a member's name alone tells.
    fn check_key(&mut self, key: &str) {
        match key {
            "roctracer_version" | "hip_runtime_version" | "hip_driver_version" | "rocprofiler_version" => {
                self.refuse(xla::AMD);
            }
            "rocprofiler-sdk-tool" => self.refuse("it is a trace of rocprofiler; APEX knows CUDA devices"),
            "nodes" => self.refuse(
                "it is an execution trace of PyTorch, which has no times: record with torch.profiler.profile",
            ),
            _ => {}
        }
    }

    /// A member of the document beside the events.
    fn metadata(&mut self, key: &str, value: &[u8]) {
        if value.len() > MOST_METADATA {
            return;
        }
        let mut cursor = Cursor::new(value);
        let number = || whole(value);
        match key {
            "schemaVersion" => {
                self.trace.version = format!("schema {}", String::from_utf8_lossy(value));
            }
            "cuda_runtime_version" => self.cuda[0] = number(),
            "cuda_driver_version" => self.cuda[1] = number(),
            "cupti_version" => self.cuda[2] = number(),
            "with_stack" => self.has_stacks_flag = number() == Some(1),
            "baseTimeNanoseconds" => self.process.epoch_ns = scaled(value, 0).unwrap_or(0),
            "distributedInfo" => {
                let process = &mut self.process;
                let _ = cursor.object(|key, cursor| {
                    if key == b"rank" {
                        process.rank = cursor.whole()?.and_then(|rank| u32::try_from(rank).ok());
                        return Ok(());
                    }
                    cursor.skip()
                });
            }
            "deviceProperties" => {
                let devices = &mut self.process.devices;
                let mut foreign = None;
                let _ = cursor.list(|cursor| {
                    let (id, device) = device(cursor)?;
                    foreign = foreign.take().or_else(|| xla::foreign_device(&device.name));
                    devices.insert(id, device);
                    Ok(())
                });
                if let Some(what) = foreign {
                    self.refuse(&what);
                }
            }
            _ => {}
        }
    }

    fn refuse(&mut self, what: &str) {
        self.refusal.get_or_insert_with(|| what.to_owned());
    }

    fn event(&mut self, bytes: &[u8]) {
        match Event::parse(bytes) {
            Ok(Some(event)) => self.parsed(&event),
            Ok(None) => {}
            Err(Damage) => self.damaged += 1,
        }
    }

    fn parsed(&mut self, event: &Event<'_>) {
        if event.phase == b'M' {
            return self.named(event);
        }
        if event.has_text_time {
            self.text_times += 1;
            return;
        }
        self.number_times += u64::from(event.ts.is_some());
        if !self.planes.is_empty() && event.category.is_empty() {
            return self.of_jax(event);
        }
        let kind = category(event.category.as_bytes());
        if kind == Category::Kernel && event.name.starts_with("__amd_rocclr") {
            return self.refuse(xla::AMD);
        }
        if kind == Category::Known {
            return;
        }
        if event.phase != b'X' {
            return self.of_other_phase(event, kind);
        }
        if event.category.starts_with("mtia_") {
            return self.refuse("it is of an MTIA device; APEX knows CUDA devices");
        }
        if event.category == "xpu_runtime" || event.category == "xpu_driver" {
            return self.refuse("it is of an Intel GPU (XPU); APEX knows CUDA devices");
        }
        if kind == Category::Unknown {
            let name = if event.category.is_empty() { "without a category" } else { &event.category };
            return self.trace.leave_out(name);
        }
        let (Some(start), Some(ns)) = (event.ts, event.dur.and_then(|dur| u64::try_from(dur).ok())) else {
            self.damaged += 1;
            return;
        };
        if start == 0 && ns == 0 {
            self.untimed += 1;
            return;
        }
        self.timed(event, kind, start, ns);
    }

    fn timed(&mut self, event: &Event<'_>, kind: Category, start: i64, ns: u64) {
        let correlation = event.args.correlation;
        match kind {
            Category::Kernel | Category::Copy | Category::Set => {
                let stream = self.stream(event);
                let kind = match kind {
                    Category::Kernel => Kind::Kernel(self.config(event)),
                    Category::Copy => Kind::Copy(copy(event)),
                    _ => Kind::Set(set(event)),
                };
                self.process.work(Work { start, ns, correlation, stream, kind });
            }
            Category::Call if xla::is_hip(&event.name) => self.refuse(xla::AMD),
            Category::Call => {
                let (name, thread) = (self.process.names.number(&event.name), self.thread(event));
                self.callers.extend(digits(&event.pid));
                self.process.call(Call { start, ns, correlation, name, thread, result: 0 });
            }
            Category::Wait => {
                if event.args.stream.is_some_and(|stream| stream < u64::from(u32::MAX)) {
                    let stream = self.stream(event);
                    self.process.waits.insert(correlation, stream);
                }
            }
            Category::Range => {
                let (name, thread) = (self.process.names.number(&event.name), self.thread(event));
                self.process.ranges.add(thread, start, ns, name);
            }
            Category::Python => {
                let thread = self.thread(event);
                self.process.frames.add(thread, start, ns, &event.name);
            }
            Category::Known | Category::Unknown => {}
        }
    }

    /// A name of a thread.
    fn named(&mut self, event: &Event<'_>) {
        let Some(label) = &event.args.label else { return };
        if event.name == "process_name"
            && let (Some(pid), Some(plane)) = (digits(&event.pid), xla::Plane::of(label))
            && self.planes.len() < 1_000
        {
            self.planes.insert(pid, plane);
        }
        if event.name == "thread_name" && self.process.thread_names.len() < 100_000 {
            self.process.thread_names.insert(Self::thread_of(event), label.clone());
        }
    }

    fn thread_of(event: &Event<'_>) -> Thread {
        let number = |text| digits(text).unwrap_or(0);
        Thread { process: number(&event.pid), id: number(&event.tid) }
    }

    fn thread(&mut self, event: &Event<'_>) -> u32 {
        self.process.threads.number(Self::thread_of(event))
    }

    /// An event that is no interval, of a kind that would be one.
    fn of_other_phase(&mut self, event: &Event<'_>, kind: Category) {
        let what = match event.phase {
            b'B' | b'E' => "(begin and end apart)",
            b'b' | b'e' | b'n' => "(asynchronous)",
            b'i' | b'I' | b'R' => "(a moment)",
            b'C' => "(a counter)",
            0 => "(without a phase)",
            _ => "(of another phase)",
        };
        let is_flow = matches!(event.phase, b's' | b't' | b'f');
        if !(is_flow && kind == Category::Unknown) {
            let category = if event.category.is_empty() { "without a category" } else { &event.category };
            self.trace.leave_out(&format!("{category} {what}"));
        }
    }

    /// An event of JAX's trace.
    fn of_jax(&mut self, event: &Event<'_>) {
        let plane = digits(&event.pid).and_then(|pid| self.planes.get(&pid)).copied();
        let (Some(start), Some(ns)) = (event.ts, event.dur.and_then(|dur| u64::try_from(dur).ok())) else {
            // (The list ends with an empty object.)
            self.damaged += u64::from(event.phase == b'X');
            return;
        };
        let thread = Self::thread_of(event);
        let stream = self.process.thread_names.get(&thread).and_then(|line| xla::stream_of(line));
        let of = xla::Event {
            name: &event.name,
            start,
            ns,
            correlation: event.args.correlation,
            context: event.args.context as u32,
            details: event.args.details.as_deref().unwrap_or(""),
            has_step: event.args.has_step,
        };
        let mut xla = Xla { process: &mut self.process, trace: &mut self.trace };
        let done = match plane {
            Some(xla::Plane::Gpu(device)) => xla.on_device(device, stream, &of),
            Some(xla::Plane::Host) => xla.on_host(thread, &of),
            Some(xla::Plane::Tpu) => Err(xla::TPU),
            None => {
                self.trace.leave_out("events of processes without a name");
                Ok(())
            }
        };
        if let Err(what) = done {
            self.refuse(what);
        }
    }

    fn device(event: &Event<'_>) -> u32 {
        event.args.device.or_else(|| digits(&event.pid)).unwrap_or(0) as u32
    }

    fn stream(&mut self, event: &Event<'_>) -> u32 {
        let number = event.args.stream.or_else(|| digits(&event.tid)).unwrap_or(0);
        let context = event.args.context as u32;
        self.process.streams.number(Stream { device: Self::device(event), context, number })
    }

    fn config(&mut self, event: &Event<'_>) -> u32 {
        let args = &event.args;
        let dim = |of: Option<[u32; 3]>| of.map(|[x, y, z]| Dim3::new(x, y, z));
        let config = Config {
            name: self.process.names.number(&event.name),
            device: Self::device(event),
            context: args.context as u32,
            grid: dim(args.grid),
            block: dim(args.block),
            registers: args.registers.map(|registers| registers as u32),
            // Static and dynamic shared memory are one number in the trace.
            dynamic_shared: args.shared as u32,
            ..Config::default()
        };
        self.process.configs.number(config)
    }

    /// Ascend's profiler writes all times as texts; a few of them are damage.
    fn judge_text_times(&mut self) {
        if self.text_times > 0 && self.number_times == 0 {
            self.refuse("its times are texts, as Ascend's profiler writes them; APEX knows CUDA devices");
        }
        self.damaged += self.text_times;
    }

    fn finish(mut self) -> Result<Trace, Error> {
        self.judge_text_times();
        self.check()?;
        if !self.has_list {
            let what = match &self.trace.cut {
                Some(why) => format!(
                    "it ends before its first event ({why}): the program ended while it wrote the trace, or the file \
                     was copied in part"
                ),
                None => "it is JSON without a list of events (traceEvents): no trace".to_owned(),
            };
            return Err(Error::refused(self.path, what));
        }
        let process = &mut self.process;
        process.pid = self.callers.first().map_or(0, |&pid| pid as u32);
        process.executable = "python (PyTorch)".to_owned();
        if !self.planes.is_empty() {
            return Ok(self.finish_jax());
        }
        let versions = ["CUDA runtime", "driver", "CUPTI"].iter().zip(self.cuda);
        let versions: Vec<String> =
            versions.filter_map(|(what, version)| Some(format!("{what} {}", version?))).collect();
        if !versions.is_empty() {
            self.trace.version = format!("{}, {}", self.trace.version, versions.join(", "));
        }
        let remarks = &mut self.trace.remarks;
        if self.damaged > 0 {
            remarks.push(senseless(self.damaged));
        }
        if self.untimed > 0 {
            let events = several(self.untimed, "event has", "events have");
            remarks.push(format!("{events} no time: left out"));
        }
        if self.callers.len() > 1 {
            remarks.push(format!(
                "calls of {} processes are in one trace: they are read as one process",
                self.callers.len()
            ));
        }
        if process.frames.is_empty() {
            remarks.push(if self.has_stacks_flag {
                "this trace has no stacks of Python, although they were asked for".to_owned()
            } else {
                "this trace has no stacks of Python, so no lines of the program are named: record with_stack=True".to_owned()
            });
        }
        remarks.push(
            "this trace has no sizes of allocations, and static and dynamic shared memory are one number"
                .to_owned(),
        );
        self.trace.processes.push(self.process);
        Ok(self.trace)
    }

    /// The trace of JAX that was read.
    fn finish_jax(mut self) -> Trace {
        self.trace.tool = "JAX (XLA's trace.json)".to_owned();
        self.trace.version.clear();
        let remarks = &mut self.trace.remarks;
        if self.damaged > 0 {
            remarks.push(senseless(self.damaged));
        }
        if self.trace.events >= xla::MOST_OF_JSON {
            remarks.push(format!(
                "XLA writes only the first {} events into trace.json: later ones may be missing, and *.xplane.pb has them",
                xla::MOST_OF_JSON
            ));
        }
        remarks.push(
            "this trace has no launch configurations and does not name its GPU: the file *.xplane.pb beside it has them"
                .to_owned(),
        );
        xla::finish(&mut self.process);
        self.trace.processes.push(self.process);
        self.trace
    }
}

/// What is behind a trace: `are 7 bytes more, which are`.
fn several_more(bytes: u64) -> String {
    if bytes == 1 {
        "is 1 byte more, which is".to_owned()
    } else {
        format!("are {bytes} bytes more, which are")
    }
}

/// Says that events are left out.
fn senseless(events: u64) -> String {
    format!("{} no sense: left out", several(events, "event makes", "events make"))
}

/// Whether a value in place of an event is one of JSON.
fn is_value(value: &[u8]) -> bool {
    matches!(value, b"null" | b"true" | b"false" | [b'"' | b'[', ..]) || scaled(value, 0).is_some()
}

/// The number in a text such as `7` or `stream 7`.
fn digits(text: &str) -> Option<u64> {
    let begin = text.rfind(|c: char| !c.is_ascii_digit()).map_or(0, |at| at + 1);
    text[text.floor_char_boundary_at(begin)..].parse().ok()
}

trait Boundary {
    fn floor_char_boundary_at(&self, at: usize) -> usize;
}

impl Boundary for str {
    fn floor_char_boundary_at(&self, at: usize) -> usize {
        (at..=self.len()).find(|&at| self.is_char_boundary(at)).unwrap_or(self.len())
    }
}

fn copy(event: &Event<'_>) -> Transfer {
    let (from, to) = ends_of_copy(&event.name);
    let is_peer = is_between_devices(&event.name);
    Transfer { bytes: event.args.bytes, from: from as u8, to: to as u8, is_peer }
}

fn set(event: &Event<'_>) -> Transfer {
    let inner = event.name.split_once('(').and_then(|(_, rest)| rest.split_once(')'));
    let kind = inner.map(|(inner, _)| inner).or(event.args.memory_kind.as_deref());
    let to = memory(kind.unwrap_or("Device")) as u8;
    Transfer { bytes: event.args.bytes, to, ..Transfer::default() }
}

/// A device, and its ordinal.
fn device(cursor: &mut Cursor<'_>) -> Result<(u32, Device), Damage> {
    use cuda_launch::attribute;
    let (mut id, mut device) = (0, Device::default());
    cursor.object(|key, cursor| {
        let attribute = match key {
            b"name" => {
                device.name = cursor.text()?.chars().take(256).collect();
                return Ok(());
            }
            b"id" => {
                id = cursor.whole()?.unwrap_or(0) as u32;
                return Ok(());
            }
            b"totalGlobalMem" => {
                device.memory_bytes = cursor.whole()?.unwrap_or(0);
                return Ok(());
            }
            b"computeMajor" => attribute::COMPUTE_CAPABILITY_MAJOR,
            b"computeMinor" => attribute::COMPUTE_CAPABILITY_MINOR,
            b"maxThreadsPerBlock" => attribute::MAX_THREADS_PER_BLOCK,
            b"maxThreadsPerMultiprocessor" => attribute::MAX_THREADS_PER_MULTIPROCESSOR,
            b"regsPerBlock" => attribute::MAX_REGISTERS_PER_BLOCK,
            b"regsPerMultiprocessor" => attribute::MAX_REGISTERS_PER_MULTIPROCESSOR,
            b"warpSize" => attribute::WARP_SIZE,
            b"sharedMemPerBlock" => attribute::MAX_SHARED_MEMORY_PER_BLOCK,
            b"sharedMemPerBlockOptin" => attribute::MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
            b"sharedMemPerMultiprocessor" => attribute::MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
            b"numSms" => attribute::MULTIPROCESSOR_COUNT,
            _ => return cursor.skip(),
        };
        if let Some(value) = cursor.whole()?.and_then(|value| i32::try_from(value).ok()) {
            device.attributes.push((attribute, value));
        }
        Ok(())
    })?;
    Ok((id, device))
}

impl<'a> Event<'a> {
    /// `None` for an event of a category that has no place here, which is told early.
    fn parse(bytes: &'a [u8]) -> Result<Option<Self>, Damage> {
        let mut event = Event::default();
        let mut passes = false;
        let mut cursor = Cursor::new(bytes);
        let read = cursor.object(|key, cursor| {
            match key {
                b"ph" => event.phase = cursor.text_if_any()?.and_then(|ph| ph.bytes().next()).unwrap_or(0),
                b"cat" => {
                    event.category = cursor.text_if_any()?.unwrap_or_default();
                    passes = category(event.category.as_bytes()) == Category::Known;
                    if passes {
                        return Err(Damage); // nothing more of it is read
                    }
                }
                b"name" => event.name = cursor.text_if_any()?.unwrap_or_default(),
                b"pid" => event.pid = label(cursor)?,
                b"tid" => event.tid = label(cursor)?,
                b"ts" => {
                    event.has_text_time = cursor.is(b'"');
                    event.ts = time(cursor)?;
                }
                b"dur" => event.dur = time(cursor)?,
                b"args" if cursor.is(b'{') => event.args.read(cursor)?,
                _ => cursor.skip()?,
            }
            Ok(())
        });
        if passes {
            return Ok(None);
        }
        read.map(|()| Some(event))
    }
}

/// A time in nanoseconds; `None`, and passed, for anything else.
fn time(cursor: &mut Cursor<'_>) -> Result<Option<i64>, Damage> {
    match cursor.number() {
        Ok(number) => Ok(scaled(number, MICROSECONDS)),
        Err(Damage) => cursor.skip().map(|()| None),
    }
}

/// A number or text, as text; empty, and passed, for anything else.
fn label<'a>(cursor: &mut Cursor<'a>) -> Result<Cow<'a, str>, Damage> {
    match cursor.number() {
        Ok(number) => Ok(String::from_utf8_lossy(number)),
        Err(Damage) => cursor.skip().map(|()| Cow::Borrowed("")),
    }
}

impl Args {
    fn read(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Damage> {
        cursor.object(|key, cursor| {
            match key {
                b"correlation" => self.correlation = cursor.whole()?.unwrap_or(0),
                b"stream" => self.stream = cursor.whole()?,
                b"device" => self.device = cursor.whole()?,
                b"context" => self.context = cursor.whole()?.unwrap_or(0),
                b"bytes" => self.bytes = cursor.whole()?.unwrap_or(0),
                b"registers per thread" => self.registers = cursor.whole()?,
                b"shared memory" => self.shared = cursor.whole()?.unwrap_or(0),
                b"grid" => self.grid = triple(cursor)?,
                b"block" => self.block = triple(cursor)?,
                b"memory kind" => self.memory_kind = cursor.text_if_any()?.map(Cow::into_owned),
                b"name" => {
                    self.label = cursor.text_if_any()?.map(|name| name.chars().take(64).collect());
                }
                // JAX's
                b"correlation_id" => self.correlation = cursor.whole()?.unwrap_or(0),
                b"context_id" => {
                    self.context = cursor.text_if_any()?.map_or(0, |id| xla::context(&id).into())
                }
                b"kernel_details" | b"memcpy_details" | b"memset_details" => {
                    self.details = cursor.text_if_any()?.map(Cow::into_owned);
                }
                b"step_num" => {
                    self.has_step = true;
                    cursor.skip()?;
                }
                _ => cursor.skip()?,
            }
            Ok(())
        })
    }
}

/// Three numbers in a list; `None` if they are none.
fn triple(cursor: &mut Cursor<'_>) -> Result<Option<[u32; 3]>, Damage> {
    if !cursor.is(b'[') {
        cursor.skip()?;
        return Ok(None);
    }
    let (mut all, mut count) = ([1; 3], 0);
    cursor.list(|cursor| {
        let value = cursor.whole()?.and_then(|value| u32::try_from(value).ok());
        if let (Some(place), Some(value)) = (all.get_mut(count), value) {
            *place = value;
        }
        count += 1;
        Ok(())
    })?;
    Ok((count == 3).then_some(all))
}
