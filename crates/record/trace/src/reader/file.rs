//! The content of one process file that has been read, kept from one look to the next.
//!
//! A look reads the header page, the heads of chunks that may have changed, and what these hold
//! beyond what was read before. Committed bytes of a chunk never change until the chunk is reused,
//! which its sequence number tells, so nothing is read twice. A chunk that is full changes only
//! where the size limit makes a thread reuse it; the header counts that first, and full chunks are
//! looked at again only then.
//!
//! Memory: the definitions; some 40 bytes for each chunk that was opened; 64 bytes for each run of
//! a thread in a chunk, where the file is watched only for runs of the recent past; and what
//! [`History`] bounds.

use crate::error::{Error, Problem};
use crate::layout::{
    CHUNK_BYTES, CHUNK_PAYLOAD_BYTES, ChunkHeader, ChunkKind, HEADER_BYTES, RecordKind, SLOT_BYTES, Slots,
    Thread,
};
use crate::reader::definitions::Definitions;
use crate::reader::header::{ChunkHead, FirstPage, Header, chunk_offset, text};
use crate::reader::history::History;
use crate::reader::problems::Problems;
use crate::reader::process::Process;
use crate::reader::records::{Event, Record, Segment, Step, out_of_order, walk};
use crate::reader::source::{Opened, Source};
use crate::reader::totals::Totals;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A thread whose chunk has less room than this may take another one.
const LEAST_ROOM: usize = 5 * SLOT_BYTES;
/// Chunks in holes of a file that are watched: programs may open them later.
const MOST_HOLES: usize = 4096;
/// The number of attempts to read a chunk that is reused in the meantime.
const ATTEMPTS: usize = 3;
/// Bytes of records from before the window that are given, if they are of the time that is.
const PAST_BYTES: u64 = 1 << 20;
/// The time before the window, or before the process's last record if that is earlier, from which
/// records are given.
const PAST_NS: u64 = 60_000_000_000;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct FileState {
    path: PathBuf,
    source: Source,
    /// Whether the file will be looked at again, and only recent records are wanted.
    is_watched: bool,
    identity: Option<(u64, u64)>,
    /// Whether no newer APEX can have recorded the session.
    is_known: bool,
    /// The tick at which the process made the file.
    made: u64,
    /// Chunks that were found open.
    chunks: BTreeMap<u32, Chunk>,
    /// Chunks that may hold more than was read.
    unfinished: BTreeSet<u32>,
    /// The first chunk that was not looked at.
    next: u32,
    overwritten: u64,
    /// Looks in which full chunks are looked at too.
    reuses: u32,
    definitions: Arc<Definitions>,
    /// By identifier: when the thread took its newest chunk, which, and its name then.
    threads: BTreeMap<u32, (u64, u32, String)>,
    /// Runs that may go on, by chunk.
    open: BTreeMap<u32, Segment>,
    /// Runs that are over.
    closed: Vec<Segment>,
    record_count: u64,
    span: Option<(u64, u64)>,
    unknown_records: u64,
    totals: Totals,
    history: History,
    /// Found in what is read once.
    lasting: Problems,
    /// Found in this look.
    passing: Problems,
}

/// The progress of reading a chunk.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    sequence: u64,
    /// Bytes of its payload; all there can be where the rest can't be understood.
    read: u32,
}

/// Bytes of a chunk that were read.
struct Payload<'p> {
    index: u32,
    sequence: u64,
    /// Their offset in the chunk's payload.
    at: usize,
    /// Whether more may follow.
    is_sound: bool,
    bytes: &'p [u8],
}

impl FileState {
    pub fn new(path: &Path, source: Source, is_watched: bool) -> FileState {
        FileState {
            path: path.to_owned(),
            source,
            is_watched,
            identity: None,
            is_known: false,
            made: 0,
            chunks: BTreeMap::new(),
            unfinished: BTreeSet::new(),
            next: 0,
            overwritten: 0,
            reuses: 0,
            definitions: Arc::default(),
            threads: BTreeMap::new(),
            open: BTreeMap::new(),
            closed: Vec::new(),
            record_count: 0,
            span: None,
            unknown_records: 0,
            totals: Totals::default(),
            history: History::default(),
            lasting: Problems::default(),
            passing: Problems::default(),
        }
    }

    /// The problems found so far that still are some.
    pub fn problems(&self) -> Vec<Problem> {
        let mut all = self.passing.and(&self.lasting);
        if self.unknown_records > 0 {
            let what =
                format!("{} records of kinds that only a newer APEX knows: skipped", self.unknown_records);
            all.add(&self.path, None, what);
        }
        all.finish(&self.path)
    }

    fn problem(&mut self, offset: impl Into<Option<u64>>, what: impl Into<String>) {
        self.passing.add(&self.path, offset, what);
    }

    fn lasting_problem(&mut self, offset: u64, what: impl Into<String>) {
        self.lasting.add(&self.path, offset, what);
    }

    /// Reads new data, at most `most_bytes` of records, the newest first. The process has no
    /// records yet ([`Self::give`]); `None` if this is no process file, or none yet. Fails only if
    /// the file is of a newer version, which `is_known` says that it cannot be.
    pub fn look(&mut self, most_bytes: u64, is_known: bool) -> Result<Option<Process>, Error> {
        self.passing = Problems::default();
        let opened = self.source.open().and_then(|file| Ok((file.place()?, file)));
        let (place, file) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                let hint = if error.kind() == io::ErrorKind::PermissionDenied {
                    " (process files can be read by the user who ran the process)"
                } else {
                    ""
                };
                self.problem(None, format!("cannot be opened: {error}{hint}; this process is missing"));
                return Ok(None);
            }
        };
        if self.identity.is_some_and(|known| known != place.identity) {
            *self = FileState::new(&self.path, self.source.clone(), self.is_watched);
        }
        self.identity = Some(place.identity);
        let mut page = Vec::new();
        self.read(&file, 0, HEADER_BYTES, &mut page);
        match FirstPage::parse(&page, &self.path, is_known)? {
            FirstPage::Header(header) => {
                (self.is_known, self.made) = (is_known, header.start.ticks);
                header.faults.iter().for_each(|(offset, what)| self.problem(*offset, what.as_str()));
                self.read_chunks(&header, &file, place.bytes, most_bytes);
                self.check_definitions();
                Ok(Some(self.process(*header, place.disk_bytes)))
            }
            FirstPage::HalfMade => {
                self.problem(None, "the process ended while it made this file: it recorded nothing");
                Ok(None)
            }
            FirstPage::Foreign => {
                self.problem(0, "is no process file: it does not start like one; it is left out");
                Ok(None)
            }
        }
    }

    /// Finds launches of configurations that no definition describes.
    fn check_definitions(&mut self) {
        let undefined =
            self.totals.configs().filter(|&(config, _)| self.definitions.config(config).is_none());
        let launches: u64 = undefined.map(|(_, launches)| launches).sum();
        if launches > 0 && self.definitions.configs().next().is_some() {
            let what = format!(
                "{launches} launches name a kernel that the file does not define: the file is damaged, and \
                 they are listed as launches of an unknown kernel"
            );
            self.problem(None, what);
        }
    }

    fn process(&self, header: Header, disk_bytes: u64) -> Process {
        let threads = self.threads.iter().map(|(&tid, (_, _, name))| (tid, name.clone()));
        let mut process = Process::of_header(header, self.path.clone(), self.source.clone());
        process.definitions = self.definitions.clone();
        process.threads = threads.collect();
        process.record_count = self.record_count;
        process.totals = self.totals.clone();
        process.disk_bytes = disk_bytes;
        process.span = self.span;
        process.unknown_records = self.unknown_records;
        process
    }

    /// The runs of records that are known: of a watched file, those that may be given.
    pub fn runs(&self) -> impl Iterator<Item = Segment> {
        self.closed.iter().copied().chain(self.open.values().filter_map(|run| run.close()))
    }

    /// Gives the process its records: those from a moment of the machine's monotonic clock on, and
    /// some from before ([`crate::Watcher`]). Of a watched file, older ones are forgotten.
    pub fn give(&mut self, process: &mut Process, from_ns: u64) {
        let mut runs: Vec<_> = self.runs().collect();
        if self.is_watched {
            let from = self.first_to_give(process, from_ns, &mut runs);
            runs.retain(|run| run.last >= from);
            self.closed.retain(|run| run.last >= from);
            self.history.settle(from, self.totals.unread_bytes == 0);
            (process.from, process.past) = (from, self.history.records());
        }
        runs.sort_by_key(|run| (run.taken, run.sequence, run.from));
        process.segments = runs;
    }

    /// Returns the start of the records that are given, in ticks.
    fn first_to_give(&self, process: &Process, from_ns: u64, runs: &mut [Segment]) -> u64 {
        let clock = &process.clock;
        let last = self.span.map_or(0, |(_, last)| last);
        let window = clock.ticks_at_monotonic_ns(from_ns);
        let present = window.min(last);
        let past = clock.monotonic_ns(present).saturating_sub(PAST_NS);
        let mut from = clock.ticks_at_monotonic_ns(past).min(present);
        runs.sort_unstable_by_key(|run| Reverse(run.last));
        let mut bytes = 0;
        for run in runs.iter().take_while(|run| run.last >= from) {
            bytes += if run.last < present { run.bytes() } else { 0 };
            if bytes > PAST_BYTES {
                from = run.last.saturating_add(1).min(present);
                break;
            }
        }
        from
    }

    fn read_chunks(&mut self, header: &Header, file: &Opened, length: u64, most_bytes: u64) {
        let chunks = self.count_chunks(header.chunks, length);
        self.forget_beyond(chunks);
        self.survey(file, chunks, header.chunks);
        if header.overwritten != self.overwritten {
            // The count comes first: a chunk may be reused between this look and the next.
            (self.overwritten, self.reuses) = (header.overwritten, 2);
        }
        if self.reuses > 0 {
            self.reuses -= 1;
            self.unfinished.extend(self.chunks.keys());
        }
        // Records first: what they name was defined before, so definitions read afterwards are
        // complete even where the program still runs.
        let definitions = self.read_new_records(file, most_bytes);
        self.read_new_definitions(file, definitions);
    }

    fn count_chunks(&mut self, announced: u64, length: u64) -> u32 {
        let found = length.saturating_sub(HEADER_BYTES as u64).div_ceil(CHUNK_BYTES as u64);
        if announced > found {
            self.problem(
                length,
                format!("the file is cut off: {announced} chunks were written, {found} are there"),
            );
        }
        u32::try_from(found).unwrap_or(u32::MAX)
    }

    /// Forgets chunks that are cut off.
    fn forget_beyond(&mut self, chunks: u32) {
        if chunks < self.next {
            self.next = chunks;
            let gone: Vec<u32> = self.chunks.range(chunks..).map(|(&index, _)| index).collect();
            gone.into_iter().for_each(|index| self.forget(index));
            self.unfinished.retain(|&index| index < chunks);
        }
    }

    /// Forgets what a chunk held.
    fn forget(&mut self, index: u32) {
        if self.chunks.remove(&index).is_some() {
            self.open.remove(&index);
            self.closed.retain(|run| run.chunk != index);
        }
    }

    /// Finds chunks that are new.
    fn survey(&mut self, file: &Opened, chunks: u32, announced: u64) {
        let mut bytes = Vec::new();
        while self.next < chunks {
            let index = self.next;
            self.next += 1;
            let Some(head) = self.chunk_head(file, index, &mut bytes) else { continue };
            if head.kind != 0 {
                self.unfinished.insert(index);
                continue;
            }
            // A hole holds no chunk, however long somebody has made it, but it may come to hold
            // one.
            let data = first_chunk(file.next_data(chunk_offset(index))).clamp(self.next, chunks);
            let room = MOST_HOLES.saturating_sub(self.unfinished.len());
            let holes = (index..data).take_while(|&hole| u64::from(hole) < announced).take(room);
            self.unfinished.extend(holes);
            self.next = data;
        }
    }

    /// Reads records that are new. Returns the definitions chunks, in the order of their opening.
    fn read_new_records(&mut self, file: &Opened, most_bytes: u64) -> Vec<u32> {
        let (mut records, mut definitions, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
        for index in self.unfinished.clone() {
            let Some(head) = self.chunk_head(file, index, &mut bytes) else { continue };
            match head.kind() {
                Some(ChunkKind::Records) => {
                    records.push((head.sequence, index, self.new_bytes(index, &head)))
                }
                Some(ChunkKind::Definitions) => definitions.push((head.sequence, index)),
                None if head.kind == 0 => self.forget(index),
                None => self.problem(
                    chunk_offset(index),
                    format!("a chunk of the unknown kind {:#x}; what it holds is left out", head.kind),
                ),
            }
        }
        let (mut unread, mut done) = (records.iter().map(|&(.., new)| new).sum::<u64>(), 0);
        if unread > most_bytes {
            records.sort_unstable_by_key(|&(sequence, ..)| Reverse(sequence));
        }
        for (sequence, index, new) in records {
            if done > 0 && done + new > most_bytes {
                break;
            }
            done += new;
            unread -= new;
            if new > 0 {
                self.read_records(file, index, &mut bytes);
            }
            if self.chunks.get(&index).is_some_and(|chunk| chunk.sequence == sequence) {
                self.finish_if_full(index);
            }
        }
        self.totals.unread_bytes = unread;
        definitions.sort_unstable();
        definitions.into_iter().map(|(_, index)| index).collect()
    }

    /// Bytes that a chunk holds beyond what was read.
    fn new_bytes(&self, index: u32, head: &ChunkHead) -> u64 {
        let known = self.chunks.get(&index).filter(|chunk| chunk.sequence == head.sequence);
        (head.payload_bytes() as u64).saturating_sub(known.map_or(0, |chunk| chunk.read.into()))
    }

    fn read_records(&mut self, file: &Opened, index: u32, bytes: &mut Vec<u8>) {
        for _ in 0..ATTEMPTS {
            let Some(head) = self.chunk_head(file, index, bytes) else { return };
            if head.kind() != Some(ChunkKind::Records) {
                return;
            }
            let at = self.begin(index, &head);
            let is_sound = self.read_payload(file, index, &head, at, SLOT_BYTES, bytes);
            let end = payload_offset(index) + head.payload_bytes() as u64;
            let has_more = self.overwritten == 0 && self.is_written(file, index, head.payload_bytes());
            // Looked at afterwards: then the bytes were read before any reuse.
            let mut after = Vec::new();
            let after = self.chunk_head(file, index, &mut after);
            if has_more && after == Some(head) {
                let what = "damaged: more records follow than the chunk says that it holds; they are lost";
                self.lasting_problem(end, what);
            }
            if after.is_some_and(|after| (after.kind, after.sequence) == (head.kind, head.sequence)) {
                self.index_records(&Payload { index, sequence: head.sequence, at, is_sound, bytes });
                return;
            }
        }
    }

    /// Whether a chunk that was never reused has bytes behind its payload, and behind the record
    /// that a process may have been writing when it was killed.
    fn is_written(&mut self, file: &Opened, index: u32, payload: usize) -> bool {
        let from = payload + 2 * SLOT_BYTES;
        let mut bytes = Vec::new();
        if from + SLOT_BYTES <= CHUNK_PAYLOAD_BYTES {
            self.read(file, payload_offset(index) + from as u64, SLOT_BYTES, &mut bytes);
        }
        bytes.iter().any(|&byte| byte != 0)
    }

    /// Returns the progress of reading a chunk since it was opened.
    fn begin(&mut self, index: u32, head: &ChunkHead) -> usize {
        if self.chunks.get(&index).is_some_and(|chunk| chunk.sequence != head.sequence) {
            self.forget(index);
        }
        let new = Chunk { sequence: head.sequence, read: 0 };
        self.chunks.entry(index).or_insert(new).read as usize
    }

    /// Looks no longer at a chunk that nobody writes any more.
    fn finish_if_full(&mut self, index: u32) {
        let room = CHUNK_PAYLOAD_BYTES.saturating_sub(self.chunks[&index].read as usize);
        let tid = self.open.get(&index).map(|run| run.tid);
        let has_moved_on = || {
            let newest = tid.and_then(|tid| self.threads.get(&tid));
            newest.is_some_and(|&(_, chunk, _)| chunk != index)
        };
        if room < SLOT_BYTES || room < LEAST_ROOM && has_moved_on() {
            self.unfinished.remove(&index);
            self.closed.extend(self.open.remove(&index).and_then(Segment::close));
        }
    }

    fn read_new_definitions(&mut self, file: &Opened, chunks: Vec<u32>) {
        let mut bytes = Vec::new();
        for index in chunks {
            let Some(head) = self.chunk_head(file, index, &mut bytes) else { continue };
            let at = self.begin(index, &head);
            if head.payload_bytes() <= at {
                continue;
            }
            let is_sound = self.read_payload(file, index, &head, at, crate::codec::ALIGNMENT, &mut bytes);
            let start = payload_offset(index) + at as u64;
            let mut found = Vec::new();
            let definitions = Arc::make_mut(&mut self.definitions);
            let add = |at: usize, what| found.push((start + at as u64, what));
            let whole = definitions.add_chunk(&bytes, self.is_known, add);
            found.into_iter().for_each(|(offset, what)| self.lasting_problem(offset, what));
            self.advance(index, at + bytes.len(), whole && is_sound);
        }
    }

    /// A chunk was read up to this byte; `whole` if what comes next can be understood.
    fn advance(&mut self, index: u32, to: usize, whole: bool) {
        if let Some(chunk) = self.chunks.get_mut(&index) {
            chunk.read = if whole { to as u32 } else { u32::MAX };
        }
    }

    fn chunk_head(&mut self, file: &Opened, index: u32, bytes: &mut Vec<u8>) -> Option<ChunkHead> {
        self.read(file, chunk_offset(index), size_of::<ChunkHeader>(), bytes);
        ChunkHead::parse(bytes)
    }

    /// Reads the committed payload from a byte on, as far as it is there, in whole units. False if
    /// the chunk says what cannot be.
    fn read_payload(
        &mut self,
        file: &Opened,
        index: u32,
        head: &ChunkHead,
        at: usize,
        unit: usize,
        bytes: &mut Vec<u8>,
    ) -> bool {
        let wanted = head.payload_bytes();
        let is_sound = head.committed as usize == wanted && wanted.is_multiple_of(unit);
        if !is_sound {
            let what = format!("a chunk says that it holds {} bytes, which cannot be", head.committed);
            self.lasting_problem(chunk_offset(index), what);
        }
        let (wanted, from) = (wanted.saturating_sub(at), payload_offset(index) + at as u64);
        self.read(file, from, wanted, bytes);
        if bytes.len() < wanted {
            let missing = wanted - bytes.len();
            self.problem(
                from + bytes.len() as u64,
                format!("the file is cut off inside a chunk: {missing} bytes of it are missing"),
            );
        }
        bytes.truncate(bytes.len() / unit * unit);
        is_sound
    }

    fn index_records(&mut self, payload: &Payload<'_>) {
        let mut run = self.open.remove(&payload.index);
        let mut whole = payload.is_sound;
        let misplaced = if self.is_known { out_of_order(payload.bytes) } else { BTreeSet::new() };
        for step in walk(payload.bytes, self.is_known) {
            match step {
                Ok(step) if misplaced.contains(&step.at) && self.fault(&step).is_none() => {
                    let what =
                        "damaged: this call ended before the one in front of it, or after the one behind";
                    run = self.leave_out(payload, run, step.at..step.at + step.bytes.len(), what);
                }
                Ok(step) => run = self.index_step(payload, run, &step),
                Err(gap) => {
                    whole &= gap.to < payload.bytes.len();
                    run = self.leave_out(payload, run, gap.at..gap.to, &gap.what);
                }
            }
        }
        if let Some(run) = run {
            self.open.insert(payload.index, run);
        }
        self.advance(payload.index, payload.at + payload.bytes.len(), whole);
    }

    /// What cannot be in a record, as far as this reader knows what can.
    fn fault(&self, step: &Step<'_>) -> Option<&'static str> {
        Event::parse(step).filter(|_| self.is_known)?.fault(self.made)
    }

    /// Leaves out bytes of a chunk. What follows them goes into the run that is returned.
    fn leave_out(
        &mut self,
        payload: &Payload<'_>,
        run: Option<Segment>,
        bytes: Range<usize>,
        what: &str,
    ) -> Option<Segment> {
        let is_rest = bytes.end == payload.bytes.len();
        let slots = bytes.len() / SLOT_BYTES;
        let lost = match (is_rest, slots) {
            (true, 2..) => "the rest of this chunk's records is lost".to_owned(),
            (_, 0 | 1) => "it is left out".to_owned(),
            _ => format!("{} bytes are left out", bytes.len()),
        };
        let Payload { index, sequence, at, .. } = *payload;
        self.lasting_problem(payload_offset(index) + (at + bytes.start) as u64, format!("{what}; {lost}"));
        let run = run?;
        self.closed.extend(run.close());
        Some(Segment::start(index, sequence, at + bytes.end, run.tid, run.taken))
    }

    /// Takes a record into its run; the next one goes into the run that is returned.
    fn index_step(
        &mut self,
        payload: &Payload<'_>,
        run: Option<Segment>,
        step: &Step<'_>,
    ) -> Option<Segment> {
        let Payload { index, sequence, at, .. } = *payload;
        let (at, end) = (at + step.at, at + step.at + step.bytes.len());
        if step.kind == RecordKind::Thread as u8
            && let Some(thread) = Thread::from_bytes(step.bytes)
        {
            self.closed.extend(run.and_then(Segment::close));
            let (tid, taken) = (thread.tid, thread.head.start);
            if self.threads.get(&tid).is_none_or(|&(newest, ..)| newest <= taken) {
                self.threads.insert(tid, (taken, index, text(&thread.name)));
            }
            return Some(Segment::start(index, sequence, end, tid, taken));
        }
        let mut run = run.unwrap_or_else(|| {
            let what = "records without a thread in front; they are listed under thread 0";
            self.lasting_problem(payload_offset(index) + at as u64, what);
            Segment::start(index, sequence, at, 0, 0)
        });
        let event = Event::parse(step);
        if let Some(what) = self.fault(step) {
            let what = format!("a damaged record: {what}");
            return self.leave_out(payload, Some(run), step.at..step.at + step.bytes.len(), &what);
        }
        run.to = end as u32;
        match event {
            Some(event) => self.index_event(&mut run, event),
            None if RecordKind::from_raw(step.kind).is_none() => self.unknown_records += 1,
            None => self.lasting_problem(
                payload_offset(index) + at as u64,
                format!("a record of kind {} is too short; it is left out", step.kind),
            ),
        }
        Some(run)
    }

    fn index_event(&mut self, run: &mut Segment, event: Event) {
        self.record_count += 1;
        self.totals.add(&event);
        let record = Record { tid: run.tid, range: 0, event };
        if self.is_watched {
            self.history.note(record);
        }
        if !matches!(event, Event::Timing(_)) {
            let (start, end) = (record.start(), record.start().saturating_add(record.duration_ticks()));
            run.extend(start, end);
            self.span =
                Some(self.span.map_or((start, end), |(first, last)| (first.min(start), last.max(end))));
        }
    }

    /// Reads as much as there is; a failure is a problem, and reads as an end of the file.
    fn read(&mut self, file: &Opened, offset: u64, count: usize, bytes: &mut Vec<u8>) {
        if let Err(error) = file.read(offset, count, bytes) {
            self.problem(offset, format!("cannot be read: {error}; what is here is missing"));
        }
    }
}

/// The chunk that this byte of a file lies in; beyond all chunks where there is none.
fn first_chunk(byte: Option<u64>) -> u32 {
    let chunk = byte.map(|byte| byte.saturating_sub(HEADER_BYTES as u64) / CHUNK_BYTES as u64);
    chunk.and_then(|chunk| u32::try_from(chunk).ok()).unwrap_or(u32::MAX)
}

fn payload_offset(index: u32) -> u64 {
    chunk_offset(index) + size_of::<ChunkHeader>() as u64
}
