//! Writing Chrome's trace format: a JSON document with a list of events, which `chrome://tracing`,
//! Perfetto, Tracy and speedscope read.
//!
//! A track is a thread there. Threads keep their numbers, and other tracks have numbers above
//! those. Times are decimal microseconds with three places, so nanoseconds are exact.

use crate::slices::{Slice, Tracks, Value};
use std::collections::{HashMap, HashSet};
use std::io::{self, Write};

/// Numbers from here on are of tracks that are no threads, and of processes whose own number is
/// taken.
const FURTHER: u64 = 1 << 32;

/// Writes a trace.
pub struct Trace<W> {
    out: W,
    is_begun: bool,
    pids: HashSet<u64>,
    /// Process and thread of each track.
    places: HashMap<u64, Place>,
}

/// Where the slices of a track go.
#[derive(Clone, Debug)]
struct Place {
    pid: u64,
    tid: u64,
    /// Whether it is a thread: arrows begin there, and end on other tracks.
    is_thread: bool,
    /// Its name, which names the values of a counter.
    name: String,
}

impl<W: Write> Trace<W> {
    /// A trace that goes to `out`.
    pub fn new(out: W) -> Self {
        Self { out, is_begun: false, pids: HashSet::new(), places: HashMap::new() }
    }

    /// Begins an event: what follows are its members, each with a comma before.
    fn event(&mut self, phase: char, pid: u64, tid: u64) -> io::Result<()> {
        let lead = match std::mem::replace(&mut self.is_begun, true) {
            false => "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n",
            true => ",\n",
        };
        write!(self.out, "{lead}{{\"ph\":\"{phase}\",\"pid\":{pid},\"tid\":{tid}")
    }

    /// A name of a process or thread.
    fn named(&mut self, what: &str, pid: u64, tid: u64, name: &str) -> io::Result<()> {
        self.event('M', pid, tid)?;
        write!(self.out, ",\"name\":\"{what}\",\"args\":{{\"name\":{}}}}}", quoted(name))
    }

    /// Makes a track of a process.
    fn place(&mut self, id: u64, parent: u64, tid: Option<u32>, name: &str) -> io::Result<()> {
        let pid = self.places.get(&parent).map_or(0, |place| place.pid);
        let number = tid.map_or(FURTHER + id, u64::from);
        let place = Place { pid, tid: number, is_thread: tid.is_some(), name: name.to_owned() };
        self.places.insert(id, place);
        self.named("thread_name", pid, number, name)
    }

    fn of(&self, track: u64) -> Place {
        let unknown = || Place { pid: 0, tid: track, is_thread: false, name: String::new() };
        self.places.get(&track).cloned().unwrap_or_else(unknown)
    }
}

impl<W: Write> Tracks for Trace<W> {
    fn process(&mut self, id: u64, pid: u32, name: &str) -> io::Result<()> {
        // Sessions of several hosts may have a number twice.
        let own = u64::from(pid);
        let pid = if self.pids.insert(own) { own } else { FURTHER + id };
        let place = Place { pid, tid: pid, is_thread: false, name: name.to_owned() };
        self.places.insert(id, place);
        self.named("process_name", pid, pid, name)
    }

    fn thread(&mut self, id: u64, process: u64, _: u32, tid: u32, name: &str) -> io::Result<()> {
        self.place(id, process, Some(tid), name)
    }

    fn track(&mut self, id: u64, parent: u64, name: &str) -> io::Result<()> {
        self.place(id, parent, None, name)
    }

    fn byte_counter(&mut self, id: u64, parent: u64, name: &str) -> io::Result<()> {
        let pid = self.of(parent).pid;
        let place = Place { pid, tid: pid, is_thread: false, name: name.to_owned() };
        self.places.insert(id, place);
        Ok(())
    }

    fn slice(&mut self, slice: &Slice<'_>) -> io::Result<()> {
        let Place { pid, tid, is_thread, .. } = self.of(slice.track);
        self.event('X', pid, tid)?;
        let (start, duration) = (micros(slice.start_ns), micros(slice.duration_ns));
        write!(self.out, ",\"ts\":{start},\"dur\":{duration},\"name\":{}", quoted(slice.name))?;
        for (index, (name, value)) in slice.details.iter().enumerate() {
            let lead = if index == 0 { ",\"args\":{" } else { "," };
            let value = match value {
                Value::Integer(value) => value.to_string(),
                Value::Text(text) => quoted(text),
            };
            write!(self.out, "{lead}{}:{value}", quoted(name))?;
        }
        self.out.write_all(if slice.details.is_empty() { b"}" } else { b"}}" })?;
        if slice.flow == 0 {
            return Ok(());
        }
        // Numbers of arrows are texts: JSON's own have fewer digits.
        self.event(if is_thread { 's' } else { 'f' }, pid, tid)?;
        let end = if is_thread { "" } else { ",\"bp\":\"e\"" };
        write!(
            self.out,
            ",\"ts\":{start},\"id\":\"{:x}\",\"cat\":\"launch\",\"name\":\"launch\"{end}}}",
            slice.flow
        )
    }

    fn count(&mut self, track: u64, at_ns: u64, value: i64) -> io::Result<()> {
        let Place { pid, tid, name, .. } = self.of(track);
        self.event('C', pid, tid)?;
        let name = quoted(&name);
        write!(self.out, ",\"ts\":{},\"name\":{name},\"args\":{{\"bytes\":{value}}}}}", micros(at_ns))
    }

    fn finish(&mut self) -> io::Result<()> {
        if !self.is_begun {
            self.out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
        }
        self.out.write_all(b"\n]}\n")?;
        self.out.flush()
    }
}

/// A text as JSON.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Nanoseconds as decimal microseconds.
fn micros(ns: u64) -> String {
    format!("{}.{:03}", ns / 1000, ns % 1000)
}
