//! Records, streamed out of a process file.
//!
//! When a file is opened its chunks are walked once, and what is found sound is noted as
//! *segments*: the records that one thread wrote into one chunk. The iterators go over segments and
//! read one at a time. They check again what they read, because a running program may have reused a
//! chunk in the meantime.

use crate::layout::{
    ArgumentSample, Call, GraphLaunch, Launch, RangeChange, RecordHead, RecordKind, SLOT_BYTES, Slots,
    StackSample, Timing,
};
use crate::reader::header::{ChunkHead, chunk_offset};
use crate::reader::process::Process;
use crate::reader::source::Opened;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::io;

/// Most slots of a record.
const MOST_SLOTS: u8 = 2;

/// An event of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Kernel identifier of the thread, 0 if unknown.
    pub tid: u32,
    /// The innermost range in which the thread was; 0 for none, or where it is not known.
    pub range: u32,
    /// The event.
    pub event: Event,
}

/// A record's content, by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A kernel launch.
    Launch(Launch),
    /// A graph launch.
    GraphLaunch(GraphLaunch),
    /// A measured duration on the GPU.
    Timing(Timing),
    /// Any other call.
    Call(Call),
    /// The call stack of a launch.
    StackSample(StackSample),
    /// A range has begun or ended.
    RangeChange(RangeChange),
    /// The arguments of a launch.
    ArgumentSample(ArgumentSample),
}

impl Record {
    /// Returns the part that all kinds of records have.
    pub fn head(&self) -> &RecordHead {
        match &self.event {
            Event::Launch(launch) => &launch.head,
            Event::GraphLaunch(launch) => &launch.head,
            Event::Timing(timing) => &timing.head,
            Event::Call(call) => &call.head,
            Event::StackSample(sample) => &sample.head,
            Event::RangeChange(change) => &change.head,
            Event::ArgumentSample(sample) => &sample.head,
        }
    }

    /// Ticks when the call began (of a timing: when the launch that was timed began; of a stack:
    /// when it was read).
    pub fn start(&self) -> u64 {
        self.head().start
    }

    /// Ticks that the call took; 0 for what is no call.
    pub fn duration_ticks(&self) -> u64 {
        match self.event {
            Event::Timing(_) | Event::StackSample(_) | Event::RangeChange(_) | Event::ArgumentSample(_) => 0,
            _ => self.head().duration_ticks(),
        }
    }
}

/// The records of one thread in one chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub chunk: u32,
    /// [`crate::layout::ChunkHeader::sequence`] when it was found.
    pub sequence: u64,
    /// First byte in the payload, and the byte after the last.
    pub from: u32,
    pub to: u32,
    pub tid: u32,
    /// The time at which the thread took the chunk, in ticks.
    pub taken: u64,
    /// The earliest start of a record in it other than a timing, ticks; `taken` if there is none.
    pub first: u64,
    /// The latest end of such a record; `taken` if there is none.
    pub last: u64,
}

impl Segment {
    /// The run of a thread that took the chunk, before its first record at this byte.
    pub fn start(chunk: u32, sequence: u64, at: usize, tid: u32, taken: u64) -> Segment {
        let at = at as u32;
        Segment { chunk, sequence, from: at, to: at, tid, taken, first: u64::MAX, last: 0 }
    }

    /// Takes a call or the like into its time.
    pub fn extend(&mut self, start: u64, end: u64) {
        self.first = self.first.min(start);
        self.last = self.last.max(end);
    }

    /// Its bytes.
    pub fn bytes(&self) -> u64 {
        u64::from(self.to - self.from)
    }

    /// As it is read: nothing if it holds no record.
    pub fn close(mut self) -> Option<Segment> {
        if self.first == u64::MAX {
            (self.first, self.last) = (self.taken, self.taken);
        }
        (self.to > self.from).then_some(self)
    }
}

/// One step through the slots of a chunk.
#[derive(Debug)]
pub(crate) struct Step<'p> {
    /// Byte in the payload.
    pub at: usize,
    /// Raw kind.
    pub kind: u8,
    /// The record, of whatever kind.
    pub bytes: &'p [u8],
}

/// A place that holds no record.
#[derive(Debug)]
pub(crate) struct Gap {
    /// Byte in the payload.
    pub at: usize,
    /// The byte at which a record follows, or the payload's end.
    pub to: usize,
    /// What was found there.
    pub what: String,
}

/// Walks over slots. Where no record can be, gives the gap and goes on behind it, at the next slot
/// that looks like a record. `is_known` says that no kind of record can be newer than this reader.
pub(crate) fn walk(payload: &[u8], is_known: bool) -> impl Iterator<Item = Result<Step<'_>, Gap>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let (start, rest) = (at, &payload[at..]);
        let [kind, slots, ..] = *rest else { return None };
        let is_possible = match RecordKind::from_raw(kind) {
            Some(known) => (known.slots()..=MOST_SLOTS).contains(&slots),
            None => slots > 0 && kind > 0 && !is_known,
        };
        let bytes = rest.get(..usize::from(slots) * SLOT_BYTES).filter(|_| is_possible);
        at = bytes.map_or_else(|| next_record(payload, start), |bytes| start + bytes.len());
        Some(bytes.map(|bytes| Step { at: start, kind, bytes }).ok_or_else(|| {
            let left = rest.len() / SLOT_BYTES;
            let what = format!("no record here (kind {kind}, {slots} slots, where {left} are left)");
            Gap { at: start, to: at, what }
        }))
    })
}

/// The first slot behind the one at `at` that looks like a record.
fn next_record(payload: &[u8], at: usize) -> usize {
    let looks = |at: &usize| {
        let kind = RecordKind::from_raw(payload[*at]);
        kind.is_some_and(|kind| payload.get(*at + 1) == Some(&kind.slots()))
    };
    (at + SLOT_BYTES..payload.len()).step_by(SLOT_BYTES).find(looks).unwrap_or(payload.len())
}

/// The largest result that a driver gives, with room.
const MOST_RESULT: u32 = 9_999;
/// Most bytes that a call can be about: an address space.
const MOST_BYTES: u64 = 1 << 57;
/// Ticks by which a thread's records may seem to go back: long durations are rounded, and sessions
/// that are passed on have rounded times.
const SLACK: u64 = 1 << 22;
/// Ticks before the process file was made in which its first call may have begun.
const BEFORE: u64 = 1 << 40;
/// Most ticks that a process can run: years.
const LONGEST: u64 = 1 << 58;

impl Event {
    /// What cannot be in a record of a process whose file was made at this tick.
    pub(crate) fn fault(&self, made: u64) -> Option<&'static str> {
        let head = Record { tid: 0, range: 0, event: *self };
        let start = head.start();
        if start < made.saturating_sub(BEFORE) || start > made.saturating_add(LONGEST) {
            return Some("its time is not one of the process");
        }
        let (result, bytes) = match self {
            Event::Launch(launch) => (launch.result, 0),
            Event::GraphLaunch(launch) => (launch.result, 0),
            Event::Call(call) => (call.result, call.bytes),
            Event::Timing(timing) => (0, timing.raw_ns),
            _ => (0, 0),
        };
        match () {
            () if result > MOST_RESULT => Some("its result is none of the driver's"),
            () if bytes > MOST_BYTES => Some("its size is beyond what can be"),
            () => None,
        }
    }

    /// When a call ended, in ticks; `None` for what is no call. A thread writes its calls in the
    /// order of their ends.
    fn end(&self) -> Option<u64> {
        let is_call = matches!(self, Event::Launch(_) | Event::GraphLaunch(_) | Event::Call(_));
        let record = Record { tid: 0, range: 0, event: *self };
        is_call.then(|| record.start().saturating_add(record.duration_ticks()))
    }
}

/// The calls that ended before the one in front of them or after the one behind them, though their
/// neighbours are in order: their bytes in the payload.
pub(crate) fn out_of_order(payload: &[u8]) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let mut ends: Vec<(usize, u64)> = Vec::new();
    for step in walk(payload, true).filter_map(Result::ok) {
        match Event::parse(&step).and_then(|event| event.end()) {
            Some(end) => ends.push((step.at, end)),
            // Another thread's calls follow.
            None if step.kind == RecordKind::Thread as u8 => find_out_of_order(&mut ends, &mut found),
            None => {}
        }
    }
    find_out_of_order(&mut ends, &mut found);
    found
}

fn find_out_of_order(ends: &mut Vec<(usize, u64)>, found: &mut BTreeSet<usize>) {
    let is_before = |a: u64, b: u64| a.saturating_add(SLACK) < b;
    // Calls that are in order so far.
    let mut sound: Vec<(usize, u64)> = Vec::with_capacity(ends.len());
    for (place, &(at, end)) in ends.iter().enumerate() {
        let next = ends.get(place + 1).map(|&(_, next)| next);
        match sound.last() {
            Some(&(last_at, last)) if is_before(end, last) => {
                if next.is_some_and(|next| is_before(next, last)) {
                    found.insert(last_at);
                    sound.pop();
                    sound.push((at, end));
                } else {
                    found.insert(at);
                }
            }
            _ => sound.push((at, end)),
        }
    }
    ends.clear();
}

impl Event {
    /// `None` for kinds that are consumed (thread records), unknown, or shorter than their kind
    /// needs.
    pub(crate) fn parse(step: &Step<'_>) -> Option<Event> {
        match RecordKind::from_raw(step.kind)? {
            RecordKind::Thread => None,
            RecordKind::Launch => Launch::from_bytes(step.bytes).map(Event::Launch),
            RecordKind::GraphLaunch => GraphLaunch::from_bytes(step.bytes).map(Event::GraphLaunch),
            RecordKind::Timing => Timing::from_bytes(step.bytes).map(Event::Timing),
            RecordKind::Call => Call::from_bytes(step.bytes).map(Event::Call),
            RecordKind::StackSample => StackSample::from_bytes(step.bytes).map(Event::StackSample),
            RecordKind::RangeChange => RangeChange::from_bytes(step.bytes).map(Event::RangeChange),
            RecordKind::ArgumentSample => ArgumentSample::from_bytes(step.bytes).map(Event::ArgumentSample),
        }
    }

    /// The range in which a thread is after this, if it was in `range` before.
    fn range_after(&self, range: u32) -> u32 {
        match self {
            Event::RangeChange(change) => change.range,
            _ => range,
        }
    }
}

/// Reads segments of a process file.
#[derive(Debug)]
struct Reading<'p> {
    process: &'p Process,
    file: Option<Opened>,
}

impl<'p> Reading<'p> {
    fn new(process: &'p Process) -> Reading<'p> {
        let opened = process.source.open();
        let file = opened.map_err(|error| process.note_read_failure(0, &error)).ok();
        Reading { process, file }
    }

    /// Replaces `buffer` by the segment's bytes: by nothing if they can't be read, or are gone.
    fn load(&self, segment: &Segment, buffer: &mut Vec<u8>) {
        let offset = chunk_offset(segment.chunk);
        let result = self.file.as_ref().map_or(Ok(false), |file| read_segment(file, segment, buffer));
        if !matches!(result, Ok(true)) {
            buffer.clear();
        }
        if let Err(error) = result {
            self.process.note_read_failure(offset, &error);
        }
    }
}

/// False if the chunk was reused since the segment was found.
fn read_segment(file: &Opened, segment: &Segment, buffer: &mut Vec<u8>) -> io::Result<bool> {
    let offset = chunk_offset(segment.chunk);
    let head_bytes = size_of::<crate::layout::ChunkHeader>();
    let payload = offset + head_bytes as u64;
    let count = (segment.to - segment.from) as usize;
    file.read(payload + u64::from(segment.from), count, buffer)?;
    if buffer.len() < count {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file has been cut off"));
    }
    // Looked at afterwards: then the bytes were read before any reuse.
    let mut head = Vec::new();
    file.read(offset, head_bytes, &mut head)?;
    Ok(ChunkHead::parse(&head).is_some_and(|head| head.kind != 0 && head.sequence == segment.sequence))
}

/// See [`Process::records`].
#[derive(Debug)]
pub struct Records<'p> {
    reading: Reading<'p>,
    segments: std::slice::Iter<'p, Segment>,
    tid: u32,
    range: u32,
    buffer: Vec<u8>,
    at: usize,
}

impl<'p> Records<'p> {
    pub(crate) fn new(process: &'p Process) -> Records<'p> {
        let segments = process.segments.iter();
        Records { reading: Reading::new(process), segments, tid: 0, range: 0, buffer: Vec::new(), at: 0 }
    }
}

impl Iterator for Records<'_> {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        loop {
            while let Some(Ok(step)) = walk(&self.buffer[self.at..], false).next() {
                self.at += step.bytes.len();
                if let Some(event) = Event::parse(&step) {
                    self.range = event.range_after(self.range);
                    return Some(Record { tid: self.tid, range: self.range, event });
                }
            }
            let segment = self.segments.next()?;
            self.reading.load(segment, &mut self.buffer);
            self.at = 0;
            (self.tid, self.range) = (segment.tid, 0);
        }
    }
}

/// See [`Process::records_by_time`].
#[derive(Debug)]
pub struct RecordsByTime<'p> {
    reading: Reading<'p>,
    /// Segments not opened yet, the next one last.
    pending: Vec<&'p Segment>,
    /// Segments being read; a finished one leaves its place to the next.
    open: Vec<Ordered>,
    /// `(key, place in open)` of the next record of each.
    heap: BinaryHeap<Reverse<(u64, usize)>>,
    vacant: Vec<usize>,
}

/// A segment in memory, with its records in the order of their keys.
#[derive(Debug, Default)]
struct Ordered {
    tid: u32,
    buffer: Vec<u8>,
    /// `(key, byte, range)`, the next one last.
    order: Vec<(u64, u32, u32)>,
}

impl<'p> RecordsByTime<'p> {
    pub(crate) fn new(process: &'p Process) -> RecordsByTime<'p> {
        let mut pending: Vec<_> = process.segments.iter().collect();
        pending.sort_by_key(|segment| Reverse(segment.first));
        let (open, heap, vacant) = (Vec::new(), BinaryHeap::new(), Vec::new());
        RecordsByTime { reading: Reading::new(process), pending, open, heap, vacant }
    }

    /// Opens every segment that may hold the next record.
    fn open_due(&mut self) {
        while let Some(segment) = self
            .pending
            .pop_if(|segment| self.heap.peek().is_none_or(|Reverse((key, _))| segment.first <= *key))
        {
            let place = self.vacant.pop().unwrap_or_else(|| {
                self.open.push(Ordered::default());
                self.open.len() - 1
            });
            let ordered = &mut self.open[place];
            ordered.tid = segment.tid;
            self.reading.load(segment, &mut ordered.buffer);
            ordered.sort(segment);
            self.await_next(place);
        }
    }

    fn await_next(&mut self, place: usize) {
        match self.open[place].order.last() {
            Some(&(key, ..)) => self.heap.push(Reverse((key, place))),
            None => {
                self.open[place] = Ordered::default();
                self.vacant.push(place);
            }
        }
    }
}

impl Ordered {
    fn sort(&mut self, segment: &Segment) {
        let (mut reached, mut range) = (segment.first, 0);
        for step in walk(&self.buffer, false).map_while(Result::ok) {
            if let Some(event) = Event::parse(&step) {
                range = event.range_after(range);
                let start = Record { tid: 0, range, event }.start();
                let key = if matches!(event, Event::Timing(_)) { reached } else { start };
                reached = reached.max(key);
                self.order.push((key, step.at as u32, range));
            }
        }
        // Stable, so that what began at the same tick stays in the order of writing.
        self.order.sort_by_key(|&(key, ..)| key);
        self.order.reverse();
    }
}

impl Iterator for RecordsByTime<'_> {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        loop {
            self.open_due();
            let Reverse((_, place)) = self.heap.pop()?;
            let ordered = &mut self.open[place];
            let next = ordered.order.pop();
            let event = next
                .and_then(|(_, at, _)| walk(&ordered.buffer[at as usize..], false).next()?.ok())
                .and_then(|step| Event::parse(&step));
            let (tid, range) = (ordered.tid, next.map_or(0, |(.., range)| range));
            self.await_next(place);
            if let Some(event) = event {
                return Some(Record { tid, range, event });
            }
        }
    }
}
