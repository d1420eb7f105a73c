//! The session's file: lines of JSON, appended one by one.
//!
//! The first line names the format. Processes, threads, frames, stacks and doings are defined by
//! their order: the first frame of the file has the index 0, and so on. Stacks are numbered from 1,
//! because 0 means that there is none. `reading` reads it.

mod reading;

use crate::record::{Counters, Doing, Frame, FrameKind, Head, MOST_TEXT, Process, Span, Stack, Thread};
use apex_conventions::documents::HOST_STACKS;
use apex_trace::Meta;
use apex_untrusted::{Folder, read};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Its name in a session's folder.
pub const FILE: &str = "host-stacks.jsonl";
/// Most bytes that are read.
const MOST_READ: u64 = 256 << 20;
/// Most frames of a stack.
const MOST_DEPTH: usize = 512;

/// Flags of a span in the file.
pub(crate) mod flags {
    pub const SETTLED: u32 = 1;
    pub const ASLEEP: u32 = 2;
    pub const HOLDS_GIL: u32 = 4;
}

/// Thread, stack, doing, first, last after first, samples, stands for, flags.
pub(crate) type WrittenSpan = (u32, u32, u32, u64, u64, u32, u32, u32);

/// A line of the file: one of these.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Line {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<Head>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<Process>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<Thread>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frame: Option<(FrameKind, String, String, u32)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stack: Option<(u32, u32)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doing: Option<Doing>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub span: Option<WrittenSpan>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counters: Option<Counters>,
}

impl Line {
    /// Whether it has no member that this version knows.
    pub fn is_empty(&self) -> bool {
        let Self { schema, head, process, thread, frame, stack, doing, span, counters } = self;
        let definitions = process.is_none() && thread.is_none() && frame.is_none() && stack.is_none();
        let others = schema.is_none() && head.is_none() && doing.is_none();
        definitions && others && span.is_none() && counters.is_none()
    }

    fn span(span: &Span) -> Self {
        let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
        let flags = flag(span.is_settled, flags::SETTLED)
            | flag(span.is_asleep, flags::ASLEEP)
            | flag(span.holds_gil, flags::HOLDS_GIL);
        let lasts = span.last_ns.saturating_sub(span.first_ns);
        let span =
            (span.thread, span.stack, span.doing, span.first_ns, lasts, span.samples, span.stands_for, flags);
        Self { span: Some(span), ..Self::default() }
    }

    fn append(&self, bytes: &mut Vec<u8>) -> io::Result<()> {
        serde_json::to_writer(&mut *bytes, self)?;
        bytes.push(b'\n');
        Ok(())
    }
}

/// A text of at most [`MOST_TEXT`] bytes.
fn cut(mut text: String) -> String {
    if text.len() > MOST_TEXT {
        let end = (0..=MOST_TEXT).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
        text.truncate(end);
    }
    text
}

/// Appends to a session's file. It gives numbers to what it has not met before.
#[derive(Debug)]
pub struct Writer {
    folder: Folder,
    head: Head,
    file: Option<File>,
    /// Lines that are not written yet.
    pending: Vec<u8>,
    bytes: u64,
    most_bytes: u64,
    /// Spans that each span of the file stands for.
    stands_for: u32,
    processes: u32,
    threads: u32,
    frames: HashMap<Frame, u32>,
    stacks: HashMap<Stack, u32>,
    doings: HashMap<Doing, u32>,
}

impl Writer {
    /// Will make the file in this folder with the first span. It will have at most `most_bytes`.
    pub fn new(folder: Folder, head: Head, most_bytes: u64) -> Self {
        Self {
            folder,
            head,
            file: None,
            pending: Vec::new(),
            bytes: 0,
            most_bytes,
            stands_for: 1,
            processes: 0,
            threads: 0,
            frames: HashMap::new(),
            stacks: HashMap::new(),
            doings: HashMap::new(),
        }
    }

    /// Defines a process, and gives its index.
    ///
    /// # Errors
    /// Those of the system.
    pub fn process(&mut self, process: Process) -> io::Result<u32> {
        let process = Process { name: cut(process.name), python: cut(process.python), ..process };
        self.push(&Line { process: Some(process), ..Line::default() })?;
        self.processes += 1;
        Ok(self.processes - 1)
    }

    /// Defines a thread, and gives its index.
    ///
    /// # Errors
    /// Those of the system.
    pub fn thread(&mut self, thread: Thread) -> io::Result<u32> {
        let thread = Thread { name: cut(thread.name), ..thread };
        self.push(&Line { thread: Some(thread), ..Line::default() })?;
        self.threads += 1;
        Ok(self.threads - 1)
    }

    /// The index of a frame.
    ///
    /// # Errors
    /// Those of the system.
    pub fn frame(&mut self, frame: Frame) -> io::Result<u32> {
        let frame = Frame { function: cut(frame.function), file: cut(frame.file), ..frame };
        if let Some(&known) = self.frames.get(&frame) {
            return Ok(known);
        }
        let line = (frame.kind, frame.function.clone(), frame.file.clone(), frame.line);
        self.push(&Line { frame: Some(line), ..Line::default() })?;
        let index = self.frames.len() as u32;
        self.frames.insert(frame, index);
        Ok(index)
    }

    /// The number of the stack of these frames, outermost first; 0 for none.
    ///
    /// # Errors
    /// Those of the system.
    pub fn stack(&mut self, frames: impl IntoIterator<Item = u32>) -> io::Result<u32> {
        let mut callers = 0;
        for frame in frames.into_iter().take(MOST_DEPTH) {
            let stack = Stack { callers, frame };
            callers = match self.stacks.get(&stack) {
                Some(&known) => known,
                None => {
                    self.push(&Line { stack: Some((callers, frame)), ..Line::default() })?;
                    let number = self.stacks.len() as u32 + 1;
                    self.stacks.insert(stack, number);
                    number
                }
            };
        }
        Ok(callers)
    }

    /// The index of what a thread does.
    ///
    /// # Errors
    /// Those of the system.
    pub fn doing(&mut self, doing: &Doing) -> io::Result<u32> {
        if let Some(&known) = self.doings.get(doing) {
            return Ok(known);
        }
        self.push(&Line { doing: Some(doing.clone()), ..Line::default() })?;
        let index = self.doings.len() as u32;
        self.doings.insert(doing.clone(), index);
        Ok(index)
    }

    /// Adds a span, which must name only what this writer has defined. In a file that was thinned,
    /// another one may stand for it.
    ///
    /// # Errors
    /// Those of the system.
    pub fn span(&mut self, span: &Span) -> io::Result<()> {
        if !stays(span, self.stands_for) {
            return Ok(());
        }
        self.push(&Line::span(&Span { stands_for: self.stands_for, ..*span }))
    }

    /// Adds what has been counted, and writes what is pending.
    ///
    /// # Errors
    /// Those of the system. The file then has a torn last line at most, and must not be written to
    /// any more.
    pub fn flush(&mut self, counters: &Counters) -> io::Result<()> {
        self.push(&Line { counters: Some(*counters), ..Line::default() })?;
        self.write_pending()?;
        if self.bytes > self.most_bytes { self.thin() } else { Ok(()) }
    }

    fn push(&mut self, line: &Line) -> io::Result<()> {
        line.append(&mut self.pending)
    }

    fn write_pending(&mut self) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                let mut bytes = Vec::new();
                head_line(&self.head).append(&mut bytes)?;
                bytes.append(&mut self.pending);
                self.pending = bytes;
                none.insert(self.folder.create_new(FILE)?)
            }
        };
        file.write_all(&self.pending)?;
        self.bytes += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }

    /// Replaces the file by one of three quarters of its size at most, which keeps one span of two,
    /// or of four, and so on, as the writer does from then on. All definitions stay, because the
    /// numbers that were given must not change.
    fn thin(&mut self) -> io::Result<()> {
        let mut all = HostStacks::read(self.folder.path());
        let bytes = loop {
            self.stands_for = self.stands_for.saturating_mul(2);
            all.thin(self.stands_for);
            let mut bytes = Vec::new();
            all.append(&mut bytes)?;
            if bytes.len() as u64 <= self.most_bytes / 4 * 3 || all.spans.is_empty() {
                break bytes;
            }
        };
        self.folder.replace(FILE, 0o600, &bytes)?;
        let path = self.folder.path().join(FILE);
        let mut options = File::options();
        self.file = Some(options.append(true).custom_flags(libc::O_NOFOLLOW).open(path)?);
        self.bytes = bytes.len() as u64;
        if self.bytes > self.most_bytes / 4 * 3 {
            return Err(io::Error::other("the stacks without their times fill the size limit"));
        }
        Ok(())
    }
}

/// Whether a span is among those that stand for `of` spans each, which is as good as random. One
/// that stays for a number stays for each of its divisors.
fn stays(span: &Span, of: u32) -> bool {
    // The mixing of SplitMix64.
    let mut bits = (span.first_ns ^ u64::from(span.thread) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (bits >> 32).is_multiple_of(u64::from(of))
}

fn head_line(head: &Head) -> Line {
    Line { schema: Some(HOST_STACKS.to_string()), head: Some(head.clone()), ..Line::default() }
}

/// Places of a session's threads on the host. Empty if they are not known. Empty where that is not
/// known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostStacks {
    /// The settings of the sampler.
    pub head: Head,
    /// The processes.
    pub processes: Vec<Process>,
    /// The threads; each one's process exists.
    pub threads: Vec<Thread>,
    /// The frames.
    pub frames: Vec<Frame>,
    /// The stacks, of which the first has the number 1; callers come before what they call.
    pub(crate) stacks: Vec<Stack>,
    /// The states of threads.
    pub doings: Vec<Doing>,
    /// The spans, in the order of writing: by their ends, except where threads ended. What each
    /// names exists.
    pub spans: Vec<Span>,
    /// The counters of the sampler.
    pub counters: Counters,
    /// The problems of the file, a sentence each.
    pub problems: Vec<String>,
}

impl HostStacks {
    /// Reads the file of the session in `dir`. A session without one is no problem: the program
    /// was short, or nothing was sampled.
    pub fn read(dir: &Path) -> Self {
        if !apex_trace::is_joined(dir) {
            return Self::read_one(dir);
        }
        let mut whole = Self::default();
        apex_trace::members(dir).iter().for_each(|member| whole.take(Self::read_one(&member.dir), member));
        whole
    }

    /// Takes what was sampled of a member of a joined session.
    fn take(&mut self, other: Self, member: &apex_trace::Member) {
        let [processes, threads, frames, stacks, doings] = [
            self.processes.len(),
            self.threads.len(),
            self.frames.len(),
            self.stacks.len(),
            self.doings.len(),
        ]
        .map(|count| count as u32);
        let joined = |pid| apex_trace::session_pid(member.number, pid);
        let moved = |ns: u64| ns.saturating_add_signed(member.offset_ns);
        // Stacks have numbers from 1.
        let stack = |number: u32| if number == 0 { 0 } else { number + stacks };
        self.head.period_ns = self.head.period_ns.max(other.head.period_ns);
        self.head.lost.extend(other.head.lost);
        self.processes.extend(other.processes.into_iter().map(|process| Process {
            pid: joined(process.pid),
            parent: joined(process.parent),
            ..process
        }));
        let of_thread = |thread: Thread| Thread { process: thread.process + processes, ..thread };
        self.threads.extend(other.threads.into_iter().map(of_thread));
        self.frames.extend(other.frames);
        self.stacks.extend(
            other
                .stacks
                .into_iter()
                .map(|one| Stack { callers: stack(one.callers), frame: one.frame + frames }),
        );
        self.doings.extend(other.doings);
        self.spans.extend(other.spans.into_iter().map(|span| Span {
            thread: span.thread + threads,
            stack: stack(span.stack),
            doing: span.doing + doings,
            first_ns: moved(span.first_ns),
            last_ns: moved(span.last_ns),
            ..span
        }));
        self.counters.add(&other.counters);
        self.problems.extend(other.problems);
    }

    /// Reads the file of a session that is not joined.
    fn read_one(dir: &Path) -> Self {
        let path = dir.join(FILE);
        let mut bytes = Vec::new();
        let is_read =
            read::open(&path, MOST_READ).and_then(|file| file.take(MOST_READ).read_to_end(&mut bytes));
        let (mut stacks, problems) = match is_read {
            Ok(_) => reading::read(&bytes, || Meta::has_ended(dir)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Default::default(),
            Err(error) => (Self::default(), vec![format!("cannot be read: {error}")]),
        };
        let named = |what: String| format!("{}: {what}", apex_untrusted::shown(&path));
        stacks.problems = problems.into_iter().map(named).collect();
        stacks
    }

    /// The frames of a stack, innermost first.
    pub fn frames(&self, stack: u32) -> impl Iterator<Item = &Frame> {
        let next = |number: u32| Some(self.stacks[usize::try_from(number.checked_sub(1)?).ok()?]);
        let frames = std::iter::successors(self.stack(stack), move |stack| next(stack.callers));
        frames.filter_map(|stack| self.frames.get(stack.frame as usize))
    }

    /// The stack of this number; `None` for 0 and for numbers that do not exist.
    pub fn stack(&self, number: u32) -> Option<Stack> {
        self.stacks.get(usize::try_from(number.checked_sub(1)?).ok()?).copied()
    }

    /// Number of stacks; they are numbered from 1.
    pub fn stack_count(&self) -> usize {
        self.stacks.len()
    }

    /// Returns the state of the thread of a span.
    pub fn doing(&self, span: &Span) -> &Doing {
        &self.doings[span.doing as usize]
    }

    /// The thread of a span, and its process.
    pub fn thread(&self, span: &Span) -> (&Process, &Thread) {
        let thread = &self.threads[span.thread as usize];
        (&self.processes[thread.process as usize], thread)
    }

    /// Keeps the spans that stand for `stands_for` samples each.
    fn thin(&mut self, stands_for: u32) {
        self.spans.retain_mut(|span| {
            span.stands_for = stands_for;
            stays(span, stands_for)
        });
    }

    /// Appends everything as lines.
    fn append(&self, bytes: &mut Vec<u8>) -> io::Result<()> {
        let line = Line::default;
        head_line(&self.head).append(bytes)?;
        for process in &self.processes {
            Line { process: Some(process.clone()), ..line() }.append(bytes)?;
        }
        for thread in &self.threads {
            Line { thread: Some(thread.clone()), ..line() }.append(bytes)?;
        }
        for frame in &self.frames {
            let frame = (frame.kind, frame.function.clone(), frame.file.clone(), frame.line);
            Line { frame: Some(frame), ..line() }.append(bytes)?;
        }
        for stack in &self.stacks {
            Line { stack: Some((stack.callers, stack.frame)), ..line() }.append(bytes)?;
        }
        for doing in &self.doings {
            Line { doing: Some(doing.clone()), ..line() }.append(bytes)?;
        }
        self.spans.iter().try_for_each(|span| Line::span(span).append(bytes))?;
        Line { counters: Some(self.counters), ..line() }.append(bytes)
    }
}
