//! Reads a lane: its time in columns, its events, one event.
//!
//! A column reads one or two stored cells, or the few events of cells that were not stored. The
//! cost of a picture therefore depends on its columns and not on the length of the lane.

use std::collections::VecDeque;
use std::ops::Range;

use crate::cell::{Cell, Detail};
use crate::event::{Event, decode};
use crate::file::{Damaged, Source};
use crate::lane::{CELLS, FINEST, LEVELS, LaneIndex, STEP, shift};
use crate::leb128::Taker;
use crate::tree::{Cursor, Root};

/// Blocks that an answer reads of a lane at most. A sound index needs a tenth of it for the most
/// columns.
const MOST_BLOCKS: u64 = 100_000;
/// Columns of one length that the sum of a stretch is made of.
const MOST_SUMMED: usize = 8;

/// An event; where it is a collective, with its number among those of its lane.
pub type Numbered = (Event, Option<u64>);

/// Columns: `count` stretches of 2 to the power of `shift` nanoseconds, from the one at place
/// `first` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns {
    pub shift: u32,
    pub first: u64,
    pub count: usize,
}

impl Columns {
    /// Returns the shortest columns of which at most `most` cover a stretch of time.
    pub fn of(from: u64, to: u64, most: usize) -> Self {
        let (last, most) = (to.max(from + 1) - 1, most.max(1) as u64);
        let fits = |shift: &u32| (last >> shift) - (from >> shift) < most;
        let shift = (0..62).find(fits).unwrap_or(62);
        let count = ((last >> shift) - (from >> shift) + 1) as usize;
        Self { shift, first: from >> shift, count }
    }

    /// Returns the span of time that they cover.
    pub fn span(&self) -> Range<u64> {
        self.first << self.shift..(self.first + self.count as u64) << self.shift
    }

    /// The moments of one.
    fn bounds(&self, column: usize) -> (u64, u64) {
        let place = self.first + column as u64;
        (place << self.shift, (place + 1) << self.shift)
    }

    fn at(&self, moment: u64) -> usize {
        ((moment >> self.shift).saturating_sub(self.first) as usize).min(self.count.saturating_sub(1))
    }
}

/// Goes through the events of a lane.
struct Events<'s> {
    blocks: Cursor<'s>,
    ready: VecDeque<Event>,
    /// The collective that comes next has this number.
    collectives: u64,
    /// The end of what was read: events begin no earlier.
    reached: u64,
    left: u64,
}

impl<'s> Events<'s> {
    fn new(source: &'s Source, root: Option<Root>) -> Self {
        let blocks = Cursor::new(source, root);
        Self { blocks, ready: VecDeque::new(), collectives: 0, reached: 0, left: MOST_BLOCKS }
    }

    fn fill(&mut self) -> Result<bool, Damaged> {
        let Some(block) = self.blocks.next()? else { return Ok(false) };
        self.left = self.left.checked_sub(1).ok_or(Damaged)?;
        let (events, collectives) = decode(&block).ok_or(Damaged)?;
        let (Some(first), Some(last)) = (events.first(), events.last()) else { return Err(Damaged) };
        if first.start < self.reached {
            return Err(Damaged);
        }
        self.reached = last.end;
        self.collectives = collectives;
        self.ready.extend(events);
        Ok(true)
    }

    /// Goes forward to the last event that begins before a moment, or to the first one.
    fn seek(&mut self, moment: u64) -> Result<(), Damaged> {
        let lies_ahead = self.ready.front().is_none_or(|first| first.start < moment);
        let is_near = lies_ahead
            && !self.ready.is_empty()
            && (self.reached >= moment || self.blocks.peek().is_some_and(|key| key >= moment));
        if !is_near && lies_ahead {
            self.ready.clear();
            self.reached = 0;
            self.blocks.seek(moment)?;
            self.fill()?;
        }
        while self.ready.get(1).is_some_and(|second| second.start < moment) {
            self.next()?;
        }
        Ok(())
    }

    /// The next event, without taking it.
    fn peek(&mut self) -> Result<Option<Event>, Damaged> {
        if self.ready.is_empty() {
            self.fill()?;
        }
        Ok(self.ready.front().copied())
    }

    /// The next event; where it is a collective, with its number.
    fn next(&mut self) -> Result<Option<Numbered>, Damaged> {
        let Some(event) = self.peek()? else { return Ok(None) };
        self.ready.pop_front();
        let number = event.what.is_collective().then_some(self.collectives);
        self.collectives += u64::from(number.is_some());
        Ok(Some((event, number)))
    }
}

/// Goes through the stored cells of one length.
struct Cells<'s> {
    blocks: Cursor<'s>,
    ready: VecDeque<(u64, Cell)>,
    reached: u64,
    left: u64,
}

impl<'s> Cells<'s> {
    /// Reads the cells from a place on.
    fn from(source: &'s Source, root: Option<Root>, place: u64) -> Result<Self, Damaged> {
        let mut blocks = Cursor::new(source, root);
        blocks.seek(place)?;
        let mut cells = Self { blocks, ready: VecDeque::new(), reached: 0, left: MOST_BLOCKS };
        while cells.peek()?.is_some_and(|at| at < place) {
            cells.ready.pop_front();
        }
        Ok(cells)
    }

    fn peek(&mut self) -> Result<Option<u64>, Damaged> {
        if self.ready.is_empty()
            && let Some(block) = self.blocks.next()?
        {
            self.left = self.left.checked_sub(1).ok_or(Damaged)?;
            self.fill(&block).ok_or(Damaged)?;
        }
        Ok(self.ready.front().map(|(place, _)| *place))
    }

    fn fill(&mut self, block: &[u8]) -> Option<()> {
        let mut taker = Taker(block);
        let mut place = taker.number().filter(|&place| place >= self.reached)?;
        for _ in 0..taker.number().filter(|count| (1..=CELLS as u64).contains(count))? {
            place = place.checked_add(taker.number()?)?;
            self.ready.push_back((place, Cell::decode(&mut taker)?));
        }
        self.reached = place.checked_add(1)?;
        Some(())
    }
}

/// A lane that is read.
#[derive(Clone, Copy)]
pub struct Lane<'s> {
    pub source: &'s Source,
    pub index: &'s LaneIndex,
}

impl<'s> Lane<'s> {
    fn events(&self) -> Events<'s> {
        Events::new(self.source, self.index.events)
    }

    /// Returns the sums of each column.
    ///
    /// # Errors
    /// If the index is damaged.
    pub fn columns(&self, columns: &Columns, detail: Detail) -> Result<Vec<Cell>, Damaged> {
        let mut sums = vec![Cell::default(); columns.count];
        let mut events = self.events();
        let span = columns.span();
        let mut at = span.start;
        if let Some(level) = (0..LEVELS).rev().find(|&level| shift(level) <= columns.shift) {
            let root = self.index.cells.get(level).copied().flatten();
            let mut cells = Cells::from(self.source, root, span.start >> shift(level))?;
            while let Some(place) = cells.peek()?.filter(|&place| place < span.end >> shift(level)) {
                let (begin, end) = (place << shift(level), (place + 1) << shift(level));
                self.add_events(&mut events, columns, at..begin, detail, &mut sums)?;
                if let Some((_, cell)) = cells.ready.pop_front() {
                    sums[columns.at(begin)].merge(&cell, detail);
                }
                at = end;
            }
        }
        self.add_events(&mut events, columns, at..span.end, detail, &mut sums)?;
        Ok(sums)
    }

    /// Returns the sums between two moments.
    ///
    /// # Errors
    /// If the index is damaged.
    pub fn sum(&self, span: Range<u64>) -> Result<Cell, Damaged> {
        let mut whole = Cell::default();
        self.add_to(&mut whole, span)?;
        Ok(whole)
    }

    /// Adds what lies between two moments: whole columns, and what is left before and after them in
    /// shorter ones.
    fn add_to(&self, whole: &mut Cell, span: Range<u64>) -> Result<(), Damaged> {
        if span.is_empty() {
            return Ok(());
        }
        let columns = Columns::of(span.start, span.end, MOST_SUMMED);
        if columns.shift < FINEST {
            let mut sums = vec![Cell::default(); columns.count];
            self.add_events(&mut self.events(), &columns, span, Detail::All, &mut sums)?;
            sums.iter().for_each(|cell| whole.merge(cell, Detail::All));
            return Ok(());
        }
        let first = span.start.div_ceil(1 << columns.shift);
        let count = (span.end >> columns.shift).saturating_sub(first) as usize;
        let inner = Columns { first, count, ..columns };
        self.columns(&inner, Detail::All)?.iter().for_each(|cell| whole.merge(cell, Detail::All));
        let within = inner.span();
        self.add_to(whole, span.start..within.start)?;
        self.add_to(whole, within.end..span.end)
    }

    /// Adds the parts of events that lie in a part of the columns.
    fn add_events(
        &self,
        events: &mut Events<'s>,
        columns: &Columns,
        part: Range<u64>,
        detail: Detail,
        sums: &mut [Cell],
    ) -> Result<(), Damaged> {
        let (first, last) = self.index.span;
        if part.is_empty() || part.start > last || part.end <= first {
            return Ok(());
        }
        events.seek(part.start)?;
        while let Some(event) = events.peek()?.filter(|event| event.start < part.end) {
            let (start, end) = (event.start.max(part.start), event.end.min(part.end));
            let covered = columns.at(start)..=columns.at(end.max(start + 1) - 1);
            for column in covered {
                let (from, to) = columns.bounds(column);
                sums[column].add(&event, from.max(part.start), to.min(part.end), detail);
            }
            if event.end > part.end {
                // It goes on in the next part.
                break;
            }
            events.next()?;
        }
        Ok(())
    }

    /// The events that lie in a stretch of time, or begin in it, with the numbers of collectives;
    /// `None` if there are more than `most`.
    ///
    /// # Errors
    /// If the index is damaged.
    pub fn events_in(&self, span: &Range<u64>, most: usize) -> Result<Option<Vec<Numbered>>, Damaged> {
        let mut events = self.events();
        events.seek(span.start)?;
        let mut found = Vec::new();
        while let Some((event, number)) = events.next()? {
            if event.start >= span.end {
                break;
            }
            if event.end <= span.start && event.start < span.start {
                continue;
            }
            if found.len() == most {
                return Ok(None);
            }
            found.push((event, number));
        }
        Ok(Some(found))
    }

    /// The event that runs at a moment, or begins at it.
    ///
    /// # Errors
    /// If the index is damaged.
    pub fn event_at(&self, moment: u64) -> Result<Option<Numbered>, Damaged> {
        let mut events = self.events();
        events.seek(moment)?;
        let mut found = None;
        while let Some((event, number)) = events.next()? {
            if event.start > moment {
                break;
            }
            // Of several that begin at once all but the last have no length: the last one is seen.
            if event.start == moment || event.end > moment {
                found = Some((event, number));
            }
            if event.end > moment {
                break;
            }
        }
        Ok(found)
    }

    /// The event that begins next after a moment, or last before it.
    ///
    /// # Errors
    /// If the index is damaged.
    pub fn step(&self, moment: u64, is_forward: bool) -> Result<Option<Numbered>, Damaged> {
        let mut events = self.events();
        events.seek(moment)?;
        while let Some((event, number)) = events.next()? {
            let is_found = if is_forward { event.start > moment } else { event.start < moment };
            if is_found {
                return Ok(Some((event, number)));
            }
            if !is_forward {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// The collective of a number.
    ///
    /// # Errors
    /// If the index is damaged.
    pub fn collective(&self, number: u64) -> Result<Option<Event>, Damaged> {
        let mut blocks = Cursor::new(self.source, self.index.collectives);
        blocks.seek(number.saturating_add(1))?;
        let Some(block) = blocks.next()? else { return Ok(None) };
        let (events, before) = decode(&block).ok_or(Damaged)?;
        let place = number.checked_sub(before).and_then(|place| usize::try_from(place).ok());
        Ok(place.and_then(|place| events.get(place).copied()))
    }
}

const _: () = assert!(STEP == 2, "a column holds two cells at most");
