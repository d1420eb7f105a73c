//! Writes a lane: blocks of events, and cells above them.
//!
//! Cells are stretches of time whose length is a power of two, from [`FINEST`] on in steps of
//! [`STEP`], and that begin at a multiple of it. A cell is stored where at least [`LEAST`] events
//! begin in it; what others hold is read from the events, which are few. So the cells take a small
//! part of what the events take, at any density, and any column of a picture is one or two cells,
//! or a few events.
//!
//! A cell that ends is merged into the one around it, so an event costs the same at any length of
//! the session; an event that covers whole cells is added to the cells above them alone.

use serde::{Deserialize, Serialize};

use crate::cell::{Cell, Detail};
use crate::event::{END, Event, IN_BLOCK, What, encode};
use crate::file::Sink;
use crate::tree::{Root, TreeWriter};

/// The shortest cells take 2 to this power of nanoseconds: 66 µs.
pub const FINEST: u32 = 16;
/// The factor from one length of cells to the next, as a shift: four.
pub const STEP: u32 = 2;
/// Lengths of cells; the longest is longer than all time.
pub const LEVELS: usize = ((62 - FINEST) / STEP) as usize;
/// Minimum events that begin in a stored cell. An answer reads the events of cells that are not
/// stored: a smaller number makes answers faster and the index larger.
const LEAST: u64 = 16;
/// Cells of a block.
pub const CELLS: usize = 32;

const _: () = assert!(1 << (FINEST + STEP * (LEVELS as u32 - 1)) >= END);

/// The positions of a lane's parts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LaneIndex {
    /// Its events, by their starts.
    pub events: Option<Root>,
    /// Its cells of each length, by their places.
    pub cells: Vec<Option<Root>>,
    /// Its collectives, by their numbers.
    pub collectives: Option<Root>,
    /// Events.
    pub count: u64,
    /// The start of the first event, and the end of the last.
    pub span: (u64, u64),
}

/// Cells of one length.
#[derive(Default)]
struct Level {
    /// The cell that is open, and its place.
    open: Option<(u64, Cell)>,
    /// Cells to be written.
    chunk: Vec<(u64, Vec<u8>)>,
    tree: TreeWriter,
}

/// A lane that is being written.
pub struct LaneWriter {
    levels: Vec<Level>,
    block: Vec<Event>,
    tree: TreeWriter,
    /// Collectives that are in no block of their own yet.
    collectives: Vec<Event>,
    collective_tree: TreeWriter,
    /// Collectives so far, and those in front of `block`.
    collective_counts: (u64, u64),
    count: u64,
    span: (u64, u64),
}

impl Default for LaneWriter {
    fn default() -> Self {
        Self {
            levels: (0..LEVELS).map(|_| Level::default()).collect(),
            block: Vec::new(),
            tree: TreeWriter::default(),
            collectives: Vec::new(),
            collective_tree: TreeWriter::default(),
            collective_counts: (0, 0),
            count: 0,
            span: (END, 0),
        }
    }
}

/// The length of a level's cells, as a power of two.
pub fn shift(level: usize) -> u32 {
    FINEST + STEP * level as u32
}

impl LaneWriter {
    /// Adds an event. The part of it before the end of the previous event is cut off.
    pub fn push(&mut self, sink: &mut Sink, event: &Event) {
        let start = event.start.clamp(self.span.1, END);
        let end = event.end.clamp(start, END);
        let event = Event { start, end, ..*event };
        self.span = (self.span.0.min(start), end);
        self.count += 1;
        self.open(sink, 0, start >> FINEST).begin(event.duration());
        if start < end {
            self.cover(sink, 0, &event, start, end);
        }
        if event.what.is_collective() {
            self.collectives.push(event);
            self.collective_counts.0 += 1;
            self.write_collectives(sink, IN_BLOCK);
        }
        self.block.push(event);
        if self.block.len() == IN_BLOCK {
            self.write_block(sink);
        }
    }

    fn write_block(&mut self, sink: &mut Sink) {
        let Some(first) = self.block.first() else { return };
        let place = sink.block(&encode(&self.block, self.collective_counts.1));
        self.tree.push(sink, first.start, place);
        self.block.clear();
        self.collective_counts.1 = self.collective_counts.0;
    }

    fn write_collectives(&mut self, sink: &mut Sink, least: usize) {
        if self.collectives.len() >= least.max(1) {
            let before = self.collective_counts.0 - self.collectives.len() as u64;
            let place = sink.block(&encode(&self.collectives, before));
            self.collective_tree.push(sink, before, place);
            self.collectives.clear();
        }
    }

    /// The cell of a level at a place; cells before it end.
    fn open(&mut self, sink: &mut Sink, level: usize, place: u64) -> &mut Cell {
        if self.levels[level].open.as_ref().is_some_and(|(open, _)| *open != place) {
            self.close(sink, level);
        }
        &mut self.levels[level].open.get_or_insert_with(|| (place, Cell::default())).1
    }

    /// The open cell of a level ends.
    fn close(&mut self, sink: &mut Sink, level: usize) {
        let Some((place, cell)) = self.levels[level].open.take() else { return };
        if level + 1 < LEVELS && !cell.is_empty() {
            self.open(sink, level + 1, place >> STEP).merge(&cell, Detail::All);
        }
        if cell.count >= LEAST {
            let mut bytes = Vec::new();
            cell.encode(&mut bytes);
            self.levels[level].chunk.push((place, bytes));
            self.levels[level].write(sink, CELLS);
        }
    }

    /// Adds the part of an event from one moment to another, which no cell of this level has yet.
    fn cover(&mut self, sink: &mut Sink, level: usize, event: &Event, from: u64, to: u64) {
        let length = 1u64 << shift(level);
        let (first, last) = (from >> shift(level), (to - 1) >> shift(level));
        if first == last {
            return self.open(sink, level, first).cover(event.what, event.name, to - from);
        }
        // Whole cells that hold nothing else are not opened: those above them take the time.
        let is_open = self.levels[level].open.as_ref().is_some_and(|(open, _)| *open == first);
        let head = if from.is_multiple_of(length) && !is_open { from } else { (first + 1) * length };
        let tail = to - to % length;
        if from < head {
            self.open(sink, level, first).cover(event.what, event.name, head - from);
        }
        if head < tail {
            self.close(sink, level);
            self.cover(sink, level + 1, event, head, tail);
        }
        if tail < to {
            self.open(sink, level, last).cover(event.what, event.name, to - tail);
        }
    }

    /// Ends the lane.
    pub fn finish(mut self, sink: &mut Sink) -> LaneIndex {
        self.write_block(sink);
        self.write_collectives(sink, 1);
        (0..LEVELS).for_each(|level| self.close(sink, level));
        let mut cells: Vec<Option<Root>> = Vec::new();
        for mut level in self.levels {
            level.write(sink, 1);
            cells.push(level.tree.finish(sink));
        }
        LaneIndex {
            events: self.tree.finish(sink),
            cells,
            collectives: self.collective_tree.finish(sink),
            count: self.count,
            span: if self.count == 0 { (0, 0) } else { self.span },
        }
    }
}

impl Level {
    /// Writes the cells that wait, if there are at least `least`.
    fn write(&mut self, sink: &mut Sink, least: usize) {
        if self.chunk.len() < least.max(1) {
            return;
        }
        let mut out = Vec::new();
        let first = self.chunk[0].0;
        let mut before = first;
        crate::leb128::put(&mut out, first);
        crate::leb128::put(&mut out, self.chunk.len() as u64);
        for (place, bytes) in self.chunk.drain(..) {
            crate::leb128::put(&mut out, place - before);
            out.extend(bytes);
            before = place;
        }
        let written = sink.block(&out);
        self.tree.push(sink, first, written);
    }
}

/// A stretch of a device, which goes on while the device does the same.
#[derive(Default)]
pub struct Stretches {
    open: Option<Event>,
}

impl Stretches {
    /// More time; gives the stretch that ends with it.
    pub fn add(&mut self, from: u64, to: u64, what: What) -> Option<Event> {
        match &mut self.open {
            Some(open) if open.what == what && open.end == from => {
                open.end = to;
                None
            }
            open => open.replace(Event::new(from, to, what)),
        }
    }

    /// The last one.
    pub fn finish(self) -> Option<Event> {
        self.open
    }
}
