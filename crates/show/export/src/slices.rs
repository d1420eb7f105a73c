//! The parts of a trace, in any format: processes, tracks, slices, counters and arrows.

use std::io;

/// A value shown with a slice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// A number.
    Integer(i64),
    /// Text.
    Text(&'a str),
}

/// A slice: something that lasts on a track.
#[derive(Clone, Copy, Debug)]
pub struct Slice<'a> {
    /// Identifier of its track.
    pub track: u64,
    /// Its name.
    pub name: &'a str,
    /// Beginning, nanoseconds since the trace's start.
    pub start_ns: u64,
    /// Duration, nanoseconds.
    pub duration_ns: u64,
    /// Connects all slices that carry the same number, in order of time; 0 for none.
    pub flow: u64,
    /// Additional attributes of the event.
    pub details: &'a [(&'a str, Value<'a>)],
}

/// A writer of a trace. Tracks are announced before their slices; slices of a track nest.
pub trait Tracks {
    /// Announces a process and its own track.
    ///
    /// # Errors
    /// Those of the output, as in all methods here.
    fn process(&mut self, id: u64, pid: u32, name: &str) -> io::Result<()>;

    /// Announces a thread's track.
    ///
    /// # Errors
    /// Those of the output.
    fn thread(&mut self, id: u64, process: u64, pid: u32, tid: u32, name: &str) -> io::Result<()>;

    /// Announces a track of another sort below `parent`.
    ///
    /// # Errors
    /// Those of the output.
    fn track(&mut self, id: u64, parent: u64, name: &str) -> io::Result<()>;

    /// Announces a counter of bytes below `parent`.
    ///
    /// # Errors
    /// Those of the output.
    fn byte_counter(&mut self, id: u64, parent: u64, name: &str) -> io::Result<()>;

    /// Writes a slice.
    ///
    /// # Errors
    /// Those of the output.
    fn slice(&mut self, slice: &Slice<'_>) -> io::Result<()>;

    /// Sets a counter's value from `at_ns` on.
    ///
    /// # Errors
    /// Those of the output.
    fn count(&mut self, track: u64, at_ns: u64, value: i64) -> io::Result<()>;

    /// Writes what is still held back; nothing follows.
    ///
    /// # Errors
    /// Those of the output.
    fn finish(&mut self) -> io::Result<()>;
}
