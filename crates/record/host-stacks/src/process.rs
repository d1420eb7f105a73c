//! A process whose threads are sampled.

use crate::file::Writer;
use crate::linux::{self, State, ThreadFiles, Turns};
use crate::native::{Found, Libraries, Native};
use crate::python::{Files, Python};
use crate::record::{Counters, Doing, Process, Span, Thread};
use crate::running::Clock;
use crate::waits;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::PathBuf;

/// Listings of a process's threads for which an interpreter is looked for: programs load one at
/// their start.
const LISTINGS_FOR_PYTHON: u32 = 64;
/// Compiled frames that are remembered; beyond, all are named again.
const MOST_FRAMES: usize = 1 << 16;
/// Most threads of a process whose running is sampled by a clock of the kernel.
const MOST_CLOCKS: usize = 32;
/// A span is written when it is so long, so that a killed sampler loses little.
const LONGEST_SPAN_NS: u64 = 5_000_000_000;

/// A process.
pub struct Watched {
    pid: u32,
    /// The time at which it began, which distinguishes it from another process with this
    /// identifier.
    start: u64,
    executable: Option<PathBuf>,
    /// Its index in the file.
    index: u32,
    reader: Reader,
    listings: u32,
    threads: BTreeMap<u32, WatchedThread>,
    /// Threads that are not sampled, because there are too many.
    left_out: u64,
    /// Whether a thread has ended since they were listed.
    has_ended_threads: bool,
}

/// Reads stacks of a process.
struct Reader {
    pid: u32,
    python: Option<Python>,
    native: Native,
    /// Indexes of compiled frames: the functions that are inlined into each other at an address,
    /// outermost first.
    frames: HashMap<Found, Vec<u32>>,
    /// Clocks of threads that run compiled code; `None` where the system refuses one.
    clocks: HashMap<u32, Option<Ticking>>,
    /// Indexes of the frames of the stack that is being read, outermost first.
    stack: Vec<u32>,
}

/// A thread that runs compiled code, and where it was at the last tick of its clock.
struct Ticking {
    clock: Clock,
    /// Frames of the stack, outermost first; empty if the thread has waited since.
    stack: Vec<u32>,
}

/// The writer of threads' samples, and the names of frames.
pub struct Output<'s> {
    /// The file.
    pub writer: &'s mut Writer,
    /// The counters.
    pub counters: &'s mut Counters,
    /// The functions that files export.
    pub libraries: &'s mut Libraries,
}

/// A thread of it.
struct WatchedThread {
    /// Its index in the file.
    index: u32,
    name: String,
    files: ThreadFiles,
    turns: Option<Turns>,
    /// The span that may go on.
    open: Option<Span>,
    doing: Doing,
}

/// A moment, and the mean time between two of them.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// The time on the monotonic clock, in nanoseconds.
    pub now_ns: u64,
    /// Mean time from one sample to the next.
    pub period_ns: u64,
}

impl Watched {
    /// Begins to watch a process; `None` if it has ended.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn new(pid: u32, files: &mut Files, writer: &mut Writer) -> io::Result<Option<Watched>> {
        let Some((parent, start)) = linux::parent_and_start(pid) else { return Ok(None) };
        let executable = linux::executable(pid);
        let python = find_python(pid, files);
        let version = python.as_ref().map_or_else(String::new, Python::version);
        let process = Process { pid, parent, name: linux::name(pid, pid), python: version };
        let index = writer.process(process)?;
        let reader = Reader {
            pid,
            python,
            native: Native::new(pid),
            frames: HashMap::new(),
            clocks: HashMap::new(),
            stack: Vec::new(),
        };
        let (threads, listings, left_out) = (BTreeMap::new(), 0, 0);
        let has_ended_threads = false;
        Ok(Some(Watched {
            pid,
            start,
            executable,
            index,
            reader,
            listings,
            threads,
            left_out,
            has_ended_threads,
        }))
    }

    /// Whether it is still the process and the program that it was.
    pub fn is_same(&self) -> bool {
        linux::parent_and_start(self.pid).is_some_and(|(_, start)| start == self.start)
            && linux::executable(self.pid) == self.executable
    }

    /// Whether it is of compiled code and its threads come and go: they are listed more often.
    pub fn is_changing(&self) -> bool {
        self.has_ended_threads && self.reader.python.is_none()
    }

    /// Identifiers of its children.
    pub fn children(&self) -> impl Iterator<Item = u32> {
        self.threads.keys().flat_map(|&tid| linux::children(self.pid, tid))
    }

    /// Lists its threads anew, of which `most` are sampled; gives how many those are.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn list_threads(
        &mut self,
        most: usize,
        period_ns: u64,
        files: &mut Files,
        writer: &mut Writer,
    ) -> io::Result<usize> {
        self.has_ended_threads = false;
        let tids = linux::threads(self.pid);
        let ended: Vec<u32> = self.threads.keys().copied().filter(|tid| !tids.contains(tid)).collect();
        for tid in ended {
            self.remove(tid, writer)?;
        }
        for &tid in tids.iter().take(most) {
            self.look_at(tid, period_ns, writer)?;
        }
        self.left_out = tids.len().saturating_sub(self.threads.len()) as u64;
        if self.reader.python.is_none() && self.listings < LISTINGS_FOR_PYTHON {
            self.reader.python = find_python(self.pid, files);
            if let Some(python) = &self.reader.python {
                let parent = linux::parent_and_start(self.pid).map_or(0, |(parent, _)| parent);
                let name = linux::name(self.pid, self.pid);
                let process = Process { pid: self.pid, parent, name, python: python.version() };
                self.redefine(process, writer)?;
            }
        }
        self.listings += 1;
        if let Some(python) = &mut self.reader.python {
            python.list_threads(&tids);
        }
        Ok(self.threads.len())
    }

    /// Defines the process anew, of which more is known now, and so its threads.
    fn redefine(&mut self, process: Process, writer: &mut Writer) -> io::Result<()> {
        self.close(writer)?;
        self.index = writer.process(process)?;
        for (&tid, thread) in &mut self.threads {
            thread.index = writer.thread(Thread { process: self.index, tid, name: thread.name.clone() })?;
        }
        Ok(())
    }

    /// Notes a thread and its name, which it may have changed.
    fn look_at(&mut self, tid: u32, period_ns: u64, writer: &mut Writer) -> io::Result<()> {
        let name = linux::name(self.pid, tid);
        let thread = || Thread { process: self.index, tid, name: name.clone() };
        match self.threads.get_mut(&tid) {
            Some(known) if known.name == name || name.is_empty() => {}
            Some(known) => {
                known.close(writer)?;
                known.index = writer.thread(thread())?;
                known.name = name;
            }
            None => {
                let Some(files) = ThreadFiles::of(self.pid, tid) else { return Ok(()) };
                let index = writer.thread(thread())?;
                // A thread that lives for some milliseconds has a tick before its first round.
                self.reader.start_clock(tid, period_ns);
                let new =
                    WatchedThread { index, name, files, turns: None, open: None, doing: Doing::Running };
                self.threads.insert(tid, new);
            }
        }
        Ok(())
    }

    fn remove(&mut self, tid: u32, writer: &mut Writer) -> io::Result<()> {
        self.reader.clocks.remove(&tid);
        self.threads.remove(&tid).map_or(Ok(()), |mut thread| thread.close(writer))
    }

    /// Samples its threads.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn sample(&mut self, at: Moment, output: &mut Output<'_>) -> io::Result<()> {
        output.counters.left_out += self.left_out;
        let mut ended = Vec::new();
        for (&tid, thread) in &mut self.threads {
            let Some(turns) = thread.files.turns() else {
                ended.push(tid);
                continue;
            };
            output.counters.samples += 1;
            let is_unchanged = thread.turns.replace(turns) == Some(turns);
            if is_unchanged && thread.doing != Doing::Running && thread.go_on(at, output.writer)? {
                output.counters.unchanged += 1;
                continue;
            }
            thread.read(tid, turns, &mut self.reader, at, output)?;
        }
        self.has_ended_threads |= !ended.is_empty();
        ended.into_iter().try_for_each(|tid| self.remove(tid, output.writer))
    }

    /// Writes the spans that are so long that they should not be lost.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_long(&mut self, writer: &mut Writer) -> io::Result<()> {
        let is_long = |span: &Span| span.last_ns - span.first_ns >= LONGEST_SPAN_NS;
        for thread in self.threads.values_mut() {
            if let Some(span) = thread.open.filter(is_long) {
                thread.close(writer)?;
                // What goes on begins where this part ends: no time is lost between the two.
                let rest = Span { first_ns: span.last_ns, samples: 0, ..span };
                thread.open = Some(rest).filter(|span| span.is_asleep);
            }
        }
        Ok(())
    }

    /// Writes all spans.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn close(&mut self, writer: &mut Writer) -> io::Result<()> {
        self.threads.values_mut().try_for_each(|thread| thread.close(writer))
    }
}

impl WatchedThread {
    /// Notes that the thread still waits as it did; false if nothing is known of that.
    fn go_on(&mut self, at: Moment, writer: &mut Writer) -> io::Result<bool> {
        let Some(mut span) = self.open.take() else { return Ok(false) };
        if !span.is_asleep && span.samples > 1 {
            // It waits since its last sample, and had run between those before.
            writer.span(&span)?;
            span = Span { first_ns: span.last_ns, samples: 0, ..span };
        }
        let samples = span.samples.saturating_add(1);
        self.open = Some(Span { last_ns: at.now_ns, is_asleep: true, samples, ..span });
        Ok(true)
    }

    /// Reads where the thread is.
    fn read(
        &mut self,
        tid: u32,
        turns: Turns,
        reader: &mut Reader,
        at: Moment,
        output: &mut Output<'_>,
    ) -> io::Result<()> {
        let Some(mut state) = self.files.state() else {
            output.counters.failed += 1;
            return Ok(());
        };
        let mut is_settled = reader.read(tid, state, at, output)?;
        if state != State::Running && self.files.turns() != Some(turns) {
            // It went on meanwhile.
            (state, self.turns) = (State::Running, None);
            is_settled = reader.read(tid, state, at, output)?;
        }
        let python = reader.python.as_ref();
        let holds_gil = state == State::Running && python.is_some_and(|python| python.holds_gil(tid));
        self.doing = match state {
            State::Running => Doing::Running,
            State::Waiting(call) => waits::waiting(reader.pid, &call, || python?.lock()),
        };
        output.counters.unsettled += u64::from(!is_settled);
        let span = Span {
            thread: self.index,
            stack: output.writer.stack(reader.stack.iter().copied())?,
            doing: output.writer.doing(&self.doing)?,
            first_ns: at.now_ns,
            last_ns: at.now_ns,
            samples: 1,
            stands_for: 1,
            is_settled,
            is_asleep: false,
            holds_gil,
        };
        self.add(span, at, output.writer)
    }

    /// Adds a sample to the open span, or writes that and opens another one.
    fn add(&mut self, sample: Span, at: Moment, writer: &mut Writer) -> io::Result<()> {
        if let Some(span) = &mut self.open {
            let same = |span: &Span| (span.stack, span.doing, span.is_settled, span.holds_gil);
            let is_next = sample.first_ns.saturating_sub(span.last_ns) <= 2 * at.period_ns;
            if same(span) == same(&sample) && !span.is_asleep && is_next {
                span.last_ns = sample.last_ns;
                span.samples = span.samples.saturating_add(1);
                return Ok(());
            }
        }
        self.close(writer)?;
        self.open = Some(sample);
        Ok(())
    }

    fn close(&mut self, writer: &mut Writer) -> io::Result<()> {
        self.open.take().map_or(Ok(()), |span| writer.span(&span))
    }
}

impl Reader {
    /// Reads a thread's stack, and says whether it is settled. Frames of Python come first; those
    /// of compiled code that the interpreter called follow, if the thread waits.
    fn read(&mut self, tid: u32, state: State, at: Moment, output: &mut Output<'_>) -> io::Result<bool> {
        self.stack.clear();
        let is_waiting = state != State::Running;
        let mut is_settled = true;
        if let Some(python) = &mut self.python {
            is_settled = python.sample(tid, is_waiting, &mut self.stack, output.writer)?;
        }
        let State::Waiting(call) = state else {
            // The interpreter's own frames say more than those of the code that interprets.
            return if self.python.is_some() { Ok(is_settled) } else { self.read_running(tid, at, output) };
        };
        self.forget_running(tid);
        let until = self.python.as_ref().filter(|_| !self.stack.is_empty()).map(Python::address);
        let found = self.native.frames(&call, until, at.now_ns).to_vec();
        self.push_native(&found, output)?;
        Ok(is_settled)
    }

    /// Reads the compiled frames of a thread that runs, and says whether they are known. Without a
    /// tick since the last round, the thread has hardly run since, and is where it was.
    fn read_running(&mut self, tid: u32, at: Moment, output: &mut Output<'_>) -> io::Result<bool> {
        self.start_clock(tid, at.period_ns);
        let Some(Some(ticking)) = self.clocks.get_mut(&tid) else { return Ok(false) };
        let Some(sample) = ticking.clock.newest() else {
            self.stack.extend_from_slice(&ticking.stack);
            return Ok(!self.stack.is_empty());
        };
        let found = self.native.frames_of(&sample, at.now_ns).to_vec();
        self.push_native(&found, output)?;
        if let Some(frame) = self.native.in_kernel(&sample) {
            self.stack.push(output.writer.frame(frame)?);
        }
        if let Some(Some(ticking)) = self.clocks.get_mut(&tid) {
            ticking.stack.clone_from(&self.stack);
        }
        Ok(!found.is_empty())
    }

    /// Starts the clock of a thread of compiled code, if it has none and there is room.
    fn start_clock(&mut self, tid: u32, period_ns: u64) {
        if self.python.is_some() || self.clocks.len() >= MOST_CLOCKS || self.clocks.contains_key(&tid) {
            return;
        }
        // Two ticks in a period: a thread that has run since the last round has a new one.
        let clock = Clock::of(tid, (period_ns / 2).max(1)).ok();
        self.clocks.insert(tid, clock.map(|clock| Ticking { clock, stack: Vec::new() }));
    }

    /// Drops what a thread that waits did before.
    fn forget_running(&mut self, tid: u32) {
        if let Some(Some(ticking)) = self.clocks.get_mut(&tid) {
            ticking.clock.newest();
            ticking.stack.clear();
        }
    }

    /// Adds compiled frames, of which the innermost is the first, and what is inlined there.
    fn push_native(&mut self, found: &[Found], output: &mut Output<'_>) -> io::Result<()> {
        for &frame in found.iter().rev() {
            if self.frames.len() >= MOST_FRAMES {
                self.frames.clear();
            }
            let indexes = match self.frames.entry(frame) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    let described = self.native.describe(frame, output.libraries);
                    let indexes = described.into_iter().rev().map(|frame| output.writer.frame(frame));
                    new.insert(indexes.collect::<io::Result<_>>()?)
                }
            };
            self.stack.extend_from_slice(indexes);
        }
        Ok(())
    }
}

fn find_python(pid: u32, files: &mut Files) -> Option<Python> {
    Python::find(pid, &linux::mappings(pid).ok()?, files)
}
