//! One process of a session, read from its file.

use crate::clock::{Anchors, Clock};
use crate::error::{Error, Problem};
use crate::layout::{
    CHUNK_BYTES, ChunkHeader, ChunkKind, Ended, HEADER_BYTES, LIMIT_REACHED, PoolFigures, PoolState,
    QueueFigures, QueueState, RecordKind, SLOT_BYTES, Slots, Thread,
};
use crate::reader::definitions::Definitions;
use crate::reader::header::{ChunkHead, FirstPage, Header, chunk_offset, text};
use crate::reader::records::{Event, Record, Records, RecordsByTime, Segment, walk};
use crate::reader::source::{Opened, Source};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// Problems reported of one file; more are counted.
const MAX_PROBLEMS: usize = 20;

/// A process that made CUDA calls.
#[derive(Debug)]
#[non_exhaustive]
pub struct Process {
    /// Its file.
    pub file: PathBuf,
    /// Its identifier.
    pub pid: u32,
    /// Its parent's.
    pub parent_pid: u32,
    /// Path of its executable, cut after 512 bytes.
    pub executable: String,
    /// When its file was made (at its first CUDA call): nanoseconds since 1970.
    pub start_real_ns: u64,
    /// How it ended, if it came to say so.
    pub ended: Ended,
    /// Converts its ticks to time.
    pub clock: Clock,
    /// Records lost because there was no space for them.
    pub dropped: u64,
    /// Records given up because of the session's size limit.
    pub overwritten: u64,
    /// `errno` of the first failure to get space, [`LIMIT_REACHED`], or 0; see
    /// [`Process::drop_cause`].
    pub drop_errno: u32,
    /// Launches whose configuration was beyond the recorder's table.
    pub config_overflow: u32,
    /// Time that the recorder spent on timing kernels, ns.
    pub timing_ns: u64,
    /// Launches around which the recorder took the time that it spent itself; 0 where it took none.
    pub cost_samples: u64,
    /// Time that it spent on these, ns.
    pub cost_ns: u64,
    /// What became of its launch queue.
    pub queue_state: QueueState,
    /// What the launch queue did.
    pub queue: QueueFigures,
    /// What became of its memory pool.
    pub pool_state: PoolState,
    /// What the memory pool did.
    pub pool: PoolFigures,
    /// What the identifiers in its records stand for.
    pub definitions: Definitions,
    /// Threads that recorded, by identifier, with the last name they had (at most 12 bytes of it).
    pub threads: BTreeMap<u32, String>,
    /// How many records there are to read.
    pub record_count: u64,
    /// Start of the first call and end of the last one, ticks.
    pub span: Option<(u64, u64)>,
    /// Records of kinds that only a newer APEX knows; they were stepped over.
    pub unknown_records: u64,
    pub(crate) source: Source,
    /// In the order in which threads took the chunks.
    pub(crate) segments: Vec<Segment>,
    anchors: Anchors,
    timing_ticks: u64,
    cost_ticks: u64,
    read_failure: OnceLock<Problem>,
}

impl Process {
    /// Reads a process file that is in memory; `name` stands for its path in problems. `Ok(None)`
    /// if it holds nothing, as the problems then say.
    pub fn from_bytes(name: &Path, bytes: &[u8]) -> Result<(Option<Process>, Vec<Problem>), Error> {
        let mut loading = Loading::new(name.to_owned());
        let mut process = loading.load(Source::Bytes(Arc::from(bytes)))?;
        settle_clocks(process.as_mut_slice());
        Ok((process, loading.problems()))
    }

    /// Its records, thread by thread as they took chunks; those of one thread are in the order of
    /// writing. Streams: reads one chunk at a time. See [`Process::read_failure`] for what can
    /// still go wrong.
    pub fn records(&self) -> impl Iterator<Item = Record> {
        Records::new(self)
    }

    /// Its records in the order of their starts, those of all threads merged; a timing comes when
    /// its thread had reached the moment at which it wrote it. Memory: about 0.4 MiB for each
    /// thread that was recording at that moment.
    pub fn records_by_time(&self) -> impl Iterator<Item = Record> {
        RecordsByTime::new(self)
    }

    /// Why records were dropped, if any were.
    pub fn drop_cause(&self) -> Option<String> {
        match self.drop_errno {
            0 => None,
            LIMIT_REACHED => Some("the session's size limit was reached".to_owned()),
            errno => Some(io::Error::from_raw_os_error(errno as i32).to_string()),
        }
    }

    /// Contexts whose launches can't be timed: they made their first one while timing was off.
    pub fn untimed_contexts(&self) -> usize {
        let launched = |context: u32| self.definitions.configs().any(|config| config.context == context);
        let uncalibrated = self.definitions.contexts().filter(|context| context.pair_busy_ns == 0);
        uncalibrated.filter(|context| launched(context.id)).count()
    }

    /// What the iterators could not read since the session was opened, if anything: the file was
    /// deleted, cut, or its disk fails. (Records that a running program has overwritten in the
    /// meantime are not a failure: they just don't come.)
    pub fn read_failure(&self) -> Option<&Problem> {
        self.read_failure.get()
    }

    pub(crate) fn note_read_failure(&self, offset: u64, error: &io::Error) {
        let what = format!("cannot be read any more: {error}; the records from here on are missing");
        let _ = self.read_failure.set(Problem { path: self.file.clone(), offset, what });
    }
}

/// Gives each process its clock. They are settled together because they may help one another.
pub(crate) fn settle_clocks(processes: &mut [Process]) {
    let anchors: Vec<_> = processes.iter().map(|process| process.anchors).collect();
    for (process, clock) in processes.iter_mut().zip(Anchors::clocks(&anchors)) {
        process.clock = clock;
        process.timing_ns = clock.duration_ns(process.timing_ticks);
        process.cost_ns = clock.duration_ns(process.cost_ticks);
    }
}

/// Reading one file, and what is found wrong with it.
#[derive(Debug)]
pub(crate) struct Loading {
    path: PathBuf,
    problems: Vec<Problem>,
    unreported: u64,
}

impl Loading {
    pub fn new(path: PathBuf) -> Loading {
        Loading { path, problems: Vec::new(), unreported: 0 }
    }

    /// The problems found.
    pub fn problems(mut self) -> Vec<Problem> {
        if self.unreported > 0 {
            let what = format!("{} more problems like these", self.unreported);
            self.problems.push(Problem { path: self.path, offset: 0, what });
        }
        self.problems
    }

    fn problem(&mut self, offset: u64, what: impl Into<String>) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(Problem { path: self.path.clone(), offset, what: what.into() });
        } else {
            self.unreported += 1;
        }
    }

    /// Reads what `source` holds: nothing if it is no process file, or none yet. An error only if
    /// it is of a newer version.
    pub fn load(&mut self, source: Source) -> Result<Option<Process>, Error> {
        let opened = source.open().and_then(|file| Ok((file.len()?, file)));
        let (length, file) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                let hint = if error.kind() == io::ErrorKind::PermissionDenied {
                    " (process files can be read by the user who ran the process)"
                } else {
                    ""
                };
                self.problem(0, format!("cannot be opened: {error}{hint}; this process is missing"));
                return Ok(None);
            }
        };
        let mut page = Vec::new();
        self.read(&file, 0, HEADER_BYTES, &mut page);
        match FirstPage::parse(&page, &self.path)? {
            FirstPage::Header(header) => Ok(Some(self.load_chunks(*header, source, &file, length))),
            FirstPage::HalfMade => {
                self.problem(0, "the process ended while it made this file: it recorded nothing");
                Ok(None)
            }
            FirstPage::Foreign => {
                self.problem(0, "is no process file: it does not start like one; it is left out");
                Ok(None)
            }
        }
    }

    fn load_chunks(&mut self, header: Header, source: Source, file: &Opened, length: u64) -> Process {
        let anchors = Anchors {
            kind: header.clock,
            start: header.start,
            latest: header.latest,
            nominal_hz: header.nominal_hz,
        };
        let mut process = Process {
            file: self.path.clone(),
            pid: header.pid,
            parent_pid: header.parent_pid,
            executable: header.executable,
            start_real_ns: header.start.real_ns,
            ended: header.ended,
            clock: Anchors::clocks(&[anchors])[0],
            dropped: header.dropped,
            overwritten: header.overwritten,
            drop_errno: header.drop_errno,
            config_overflow: header.config_overflow,
            timing_ns: 0,
            cost_samples: header.cost_samples,
            cost_ns: 0,
            queue_state: header.queue_state,
            queue: header.queue,
            pool_state: header.pool_state,
            pool: header.pool,
            definitions: Definitions::default(),
            threads: BTreeMap::new(),
            record_count: 0,
            span: None,
            unknown_records: 0,
            source,
            segments: Vec::new(),
            anchors,
            timing_ticks: header.timing_ticks,
            cost_ticks: header.cost_ticks,
            read_failure: OnceLock::new(),
        };
        let chunks = self.count_chunks(header.chunks, length);
        // Records first: what they name was defined before, so definitions read afterwards are
        // complete even where the program still runs.
        let definitions = self.load_records(&mut process, file, chunks);
        self.load_definitions(&mut process.definitions, file, definitions);
        process
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

    /// Walks all records once. Returns the definitions chunks, in the order of their opening.
    fn load_records(&mut self, process: &mut Process, file: &Opened, chunks: u32) -> Vec<u32> {
        let (mut definitions, mut bytes) = (Vec::new(), Vec::new());
        let mut next = 0;
        while next < chunks {
            let index = next;
            next += 1;
            let Some(head) = self.chunk_head(file, index, &mut bytes) else { continue };
            match head.kind() {
                Some(ChunkKind::Records) => {
                    let head = self.read_payload(file, index, head, SLOT_BYTES, &mut bytes);
                    self.index_records(process, index, head, &bytes);
                }
                Some(ChunkKind::Definitions) => definitions.push((head.sequence, index)),
                // A hole holds no chunk, however long somebody has made it.
                None if head.kind == 0 => next = next.max(first_chunk(file.next_data(chunk_offset(index)))),
                None => self.problem(
                    chunk_offset(index),
                    format!("a chunk of the unknown kind {:#x}; what it holds is left out", head.kind),
                ),
            }
        }
        process.segments.sort_by_key(|segment| (segment.taken, segment.sequence));
        if process.unknown_records > 0 {
            let what =
                format!("{} records of kinds that only a newer APEX knows: skipped", process.unknown_records);
            self.problem(0, what);
        }
        definitions.sort_unstable();
        definitions.into_iter().map(|(_, index)| index).collect()
    }

    fn load_definitions(&mut self, definitions: &mut Definitions, file: &Opened, chunks: Vec<u32>) {
        let mut bytes = Vec::new();
        for index in chunks {
            let Some(head) = self.chunk_head(file, index, &mut bytes) else { continue };
            self.read_payload(file, index, head, crate::codec::ALIGNMENT, &mut bytes);
            let start = payload_offset(index);
            definitions.add_chunk(&bytes, |at, what| self.problem(start + at as u64, what));
        }
    }

    fn chunk_head(&mut self, file: &Opened, index: u32, bytes: &mut Vec<u8>) -> Option<ChunkHead> {
        self.read(file, chunk_offset(index), size_of::<ChunkHeader>(), bytes);
        ChunkHead::parse(bytes)
    }

    /// Reads the committed payload, as far as it is there, in whole units.
    fn read_payload(
        &mut self,
        file: &Opened,
        index: u32,
        head: ChunkHead,
        unit: usize,
        bytes: &mut Vec<u8>,
    ) -> ChunkHead {
        let wanted = head.payload_bytes();
        if head.committed as usize != wanted || !wanted.is_multiple_of(unit) {
            let what = format!("a chunk says that it holds {} bytes, which cannot be", head.committed);
            self.problem(chunk_offset(index), what);
        }
        self.read(file, payload_offset(index), wanted, bytes);
        if bytes.len() < wanted {
            let missing = wanted - bytes.len();
            self.problem(
                payload_offset(index) + bytes.len() as u64,
                format!("the file is cut off inside a chunk: {missing} bytes of it are missing"),
            );
        }
        bytes.truncate(bytes.len() / unit * unit);
        head
    }

    fn index_records(&mut self, process: &mut Process, index: u32, head: ChunkHead, payload: &[u8]) {
        let mut current: Option<Segment> = None;
        let start_segment = |at: usize, tid, taken| Segment {
            chunk: index,
            sequence: head.sequence,
            from: at as u32,
            to: at as u32,
            tid,
            taken,
            first: u64::MAX,
        };
        let mut close = |segment: Option<Segment>| {
            if let Some(mut segment) = segment.filter(|segment| segment.to > segment.from) {
                if segment.first == u64::MAX {
                    segment.first = segment.taken;
                }
                process.segments.push(segment);
            }
        };
        for step in walk(payload) {
            let step = match step {
                Ok(step) => step,
                Err((at, what)) => {
                    let what = format!("{what}; the rest of this chunk's records is lost");
                    self.problem(payload_offset(index) + at as u64, what);
                    break;
                }
            };
            if step.kind == RecordKind::Thread as u8
                && let Some(thread) = Thread::from_bytes(step.bytes)
            {
                close(current.take());
                process.threads.insert(thread.tid, text(&thread.name));
                current = Some(start_segment(step.at + step.bytes.len(), thread.tid, thread.head.start));
                continue;
            }
            let segment = current.get_or_insert_with(|| {
                let what = "records without a thread in front; they are listed under thread 0";
                self.problem(payload_offset(index) + step.at as u64, what);
                start_segment(step.at, 0, 0)
            });
            segment.to = (step.at + step.bytes.len()) as u32;
            match Event::parse(&step) {
                Some(event) => {
                    process.record_count += 1;
                    note_event(&mut process.span, segment, event);
                }
                None if RecordKind::from_raw(step.kind).is_none() => process.unknown_records += 1,
                None => self.problem(
                    payload_offset(index) + step.at as u64,
                    format!("a record of kind {} is too short; it is left out", step.kind),
                ),
            }
        }
        close(current);
    }

    /// Reads as much as there is; a failure is a problem, and reads as an end of the file.
    fn read(&mut self, file: &Opened, offset: u64, count: usize, bytes: &mut Vec<u8>) {
        if let Err(error) = file.read(offset, count, bytes) {
            self.problem(offset, format!("cannot be read: {error}; what is here is missing"));
        }
    }
}

fn note_event(span: &mut Option<(u64, u64)>, segment: &mut Segment, event: Event) {
    if matches!(event, Event::Timing(_)) {
        return;
    }
    let record = Record { tid: segment.tid, range: 0, event };
    let (start, end) = (record.start(), record.start().saturating_add(record.duration_ticks()));
    segment.first = segment.first.min(start);
    *span = Some(span.map_or((start, end), |(first, last)| (first.min(start), last.max(end))));
}

/// The chunk that this byte of a file lies in; beyond all chunks where there is none.
fn first_chunk(byte: Option<u64>) -> u32 {
    let chunk = byte.map(|byte| byte.saturating_sub(HEADER_BYTES as u64) / CHUNK_BYTES as u64);
    chunk.and_then(|chunk| u32::try_from(chunk).ok()).unwrap_or(u32::MAX)
}

fn payload_offset(index: u32) -> u64 {
    chunk_offset(index) + size_of::<ChunkHeader>() as u64
}
