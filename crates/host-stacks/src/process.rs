//! A process whose threads are sampled.

use crate::file::Writer;
use crate::linux::{self, Mapping, Schedule, State, Turns};
use crate::python::{Files, Python};
use crate::record::{Counters, Doing, Process, Span, Thread};
use crate::waits;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

/// Listings of a process's threads for which an interpreter is looked for: programs load one at
/// their start.
const LISTINGS_FOR_PYTHON: u32 = 64;
/// A span is written when it is so long, so that a killed sampler loses little.
const LONGEST_SPAN_NS: u64 = 5_000_000_000;

/// A process.
pub struct Watched {
    pid: u32,
    /// When it began, which tells it from another process of this identifier.
    start: u64,
    executable: Option<PathBuf>,
    /// Its index in the file.
    index: u32,
    python: Option<Python>,
    listings: u32,
    threads: BTreeMap<u32, WatchedThread>,
    /// Threads that are not sampled, because there are too many.
    left_out: u64,
}

/// A thread of it.
struct WatchedThread {
    /// Its index in the file.
    index: u32,
    name: String,
    schedule: Schedule,
    turns: Option<Turns>,
    /// The span that may go on.
    open: Option<Span>,
    doing: Doing,
}

/// A moment, and the mean time between two of them.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Of the monotonic clock.
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
        let (threads, listings, left_out) = (BTreeMap::new(), 0, 0);
        Ok(Some(Watched { pid, start, executable, index, python, listings, threads, left_out }))
    }

    /// Whether it is still the process and the program that it was.
    pub fn is_same(&self) -> bool {
        linux::parent_and_start(self.pid).is_some_and(|(_, start)| start == self.start)
            && linux::executable(self.pid) == self.executable
    }

    /// Identifiers of its children.
    pub fn children(&self) -> impl Iterator<Item = u32> {
        self.threads.keys().flat_map(|&tid| linux::children(self.pid, tid))
    }

    /// Lists its threads anew, of which `most` are sampled; gives how many those are.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn list_threads(&mut self, most: usize, files: &mut Files, writer: &mut Writer) -> io::Result<usize> {
        let tids = linux::threads(self.pid);
        let ended: Vec<u32> = self.threads.keys().copied().filter(|tid| !tids.contains(tid)).collect();
        for tid in ended {
            self.remove(tid, writer)?;
        }
        for &tid in tids.iter().take(most) {
            self.look_at(tid, writer)?;
        }
        self.left_out = tids.len().saturating_sub(self.threads.len()) as u64;
        if self.python.is_none() && self.listings < LISTINGS_FOR_PYTHON {
            self.python = find_python(self.pid, files);
            if let Some(python) = &self.python {
                let parent = linux::parent_and_start(self.pid).map_or(0, |(parent, _)| parent);
                let name = linux::name(self.pid, self.pid);
                let process = Process { pid: self.pid, parent, name, python: python.version() };
                self.redefine(process, writer)?;
            }
        }
        self.listings += 1;
        if let Some(python) = &mut self.python {
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
    fn look_at(&mut self, tid: u32, writer: &mut Writer) -> io::Result<()> {
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
                let Some(schedule) = Schedule::of(self.pid, tid) else { return Ok(()) };
                let index = writer.thread(thread())?;
                let new =
                    WatchedThread { index, name, schedule, turns: None, open: None, doing: Doing::Running };
                self.threads.insert(tid, new);
            }
        }
        Ok(())
    }

    fn remove(&mut self, tid: u32, writer: &mut Writer) -> io::Result<()> {
        self.threads.remove(&tid).map_or(Ok(()), |mut thread| thread.close(writer))
    }

    /// Samples its threads.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn sample(&mut self, at: Moment, counters: &mut Counters, writer: &mut Writer) -> io::Result<()> {
        counters.left_out += self.left_out;
        let mut ended = Vec::new();
        for (&tid, thread) in &mut self.threads {
            let Some(turns) = thread.schedule.read() else {
                ended.push(tid);
                continue;
            };
            counters.samples += 1;
            let is_unchanged = thread.turns.replace(turns) == Some(turns);
            if is_unchanged && thread.doing != Doing::Running && thread.go_on(at, writer)? {
                counters.unchanged += 1;
                continue;
            }
            thread.read(self.pid, tid, turns, self.python.as_mut(), at, counters, writer)?;
        }
        ended.into_iter().try_for_each(|tid| self.remove(tid, writer))
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
    #[allow(clippy::too_many_arguments, reason = "the process's parts, of which the thread is one")]
    fn read(
        &mut self,
        pid: u32,
        tid: u32,
        turns: Turns,
        mut python: Option<&mut Python>,
        at: Moment,
        counters: &mut Counters,
        writer: &mut Writer,
    ) -> io::Result<()> {
        let Some(state) = linux::state(pid, tid) else {
            counters.failed += 1;
            return Ok(());
        };
        let (mut stack, mut is_settled, mut holds_gil) = (0, true, false);
        let is_waiting = state != State::Running;
        self.doing = match state {
            State::Running => Doing::Running,
            State::Waiting(call) => waits::waiting(pid, &call, || python.as_ref()?.lock()),
        };
        if let Some(python) = &mut python {
            let mut sampled = python.sample(tid, is_waiting, writer)?;
            if is_waiting && self.schedule.read() != Some(turns) {
                // It went on meanwhile.
                self.doing = Doing::Running;
                self.turns = None;
                sampled = python.sample(tid, false, writer)?;
            }
            if let Some(sampled) = sampled {
                (stack, is_settled) = (sampled.stack, sampled.is_settled);
                holds_gil = self.doing == Doing::Running && python.holds_gil(tid);
            }
        }
        counters.unsettled += u64::from(!is_settled);
        let doing = writer.doing(&self.doing)?;
        let (first_ns, last_ns) = (at.now_ns, at.now_ns);
        let (thread, samples, stands_for, is_asleep) = (self.index, 1, 1, false);
        let span = Span {
            thread,
            stack,
            doing,
            first_ns,
            last_ns,
            samples,
            stands_for,
            is_settled,
            is_asleep,
            holds_gil,
        };
        self.add(span, at, writer)
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

fn find_python(pid: u32, files: &mut Files) -> Option<Python> {
    let mappings: Vec<Mapping> = linux::mappings(pid)?;
    Python::find(pid, &mappings, files)
}
