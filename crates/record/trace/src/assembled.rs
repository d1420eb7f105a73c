//! Process files put together afterwards, from what another tool recorded.
//!
//! [`crate::ProcessFile`] maps the file of the process that it runs in, so that records survive the
//! process. Here the process is long gone: chunks are filled in memory and written one after the
//! other. The result is a process file like any other, whose ticks are nanoseconds since
//! [`Origin::start`]. It is complete after [`Assembled::finish`]; before, a reader takes it for a
//! file that a process ended while it made it.

use crate::codec;
use crate::definition::Definition;
use crate::layout::{
    CHUNK_BYTES, CHUNK_PAYLOAD_BYTES, ChunkHeader, ChunkKind, ClockAnchor, ClockKind, Ended, FileHeader,
    HEADER_BYTES, MAGIC, PROCESS_FILE_EXTENSION, RangeChange, RecordHead, RecordKind, SLOT_BYTES,
    SharedAnchor, Slots, Thread, VERSION,
};
use apex_untrusted::Folder;
use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;

/// The process that a file is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// Its identifier.
    pub pid: u32,
    /// Tick 0 on the clocks that compare processes: nanoseconds on a clock that the files of a
    /// session share, and nanoseconds since 1970.
    pub start: ClockAnchor,
    /// Path of the executable; empty if unknown.
    pub executable: String,
}

/// A process file that is put together by one thread.
#[derive(Debug)]
pub struct Assembled {
    file: File,
    origin: Origin,
    definitions: Part,
    records: Part,
    buffer: Vec<u8>,
    chunks: u64,
    thread: Thread,
    /// The innermost range of the thread, which each chunk begins with.
    range: u32,
    /// The latest tick of a record.
    last: u64,
    /// Definitions that do not fit a chunk.
    refused: u64,
}

/// A chunk that is being filled.
#[derive(Debug)]
struct Part {
    kind: ChunkKind,
    bytes: Vec<u8>,
}

impl Part {
    fn new(kind: ChunkKind) -> Self {
        Self { kind, bytes: Vec::with_capacity(CHUNK_PAYLOAD_BYTES) }
    }

    fn fits(&self, bytes: usize) -> bool {
        self.bytes.len() + bytes <= CHUNK_PAYLOAD_BYTES
    }

    /// Writes it as the next chunk of a file, if it holds anything.
    fn write(&mut self, file: &File, chunks: &mut u64) -> io::Result<()> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        let at = HEADER_BYTES as u64 + *chunks * CHUNK_BYTES as u64;
        *chunks += 1;
        let mut head = [0; size_of::<ChunkHeader>()];
        put(&mut head, offset_of!(ChunkHeader, kind), &(self.kind as u32).to_le_bytes());
        put(&mut head, offset_of!(ChunkHeader, committed), &(self.bytes.len() as u32).to_le_bytes());
        put(&mut head, offset_of!(ChunkHeader, sequence), &chunks.to_le_bytes());
        file.write_all_at(&head, at)?;
        file.write_all_at(&self.bytes, at + head.len() as u64)?;
        self.bytes.clear();
        file.set_len(HEADER_BYTES as u64 + *chunks * CHUNK_BYTES as u64)
    }
}

impl Assembled {
    /// Makes the file of a process in a session's folder, readable by its owner only.
    ///
    /// # Errors
    /// Those of the system.
    pub fn create(folder: &Folder, origin: Origin) -> io::Result<Self> {
        let mut number = origin.start.real_ns;
        let file = loop {
            match folder.create_new(format!("{}-{number}.{PROCESS_FILE_EXTENSION}", origin.pid)) {
                // Processes of two machines may have the same identifier and start.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                made => break made?,
            }
        };
        Ok(Self {
            file,
            origin,
            definitions: Part::new(ChunkKind::Definitions),
            records: Part::new(ChunkKind::Records),
            buffer: Vec::new(),
            chunks: 0,
            thread: Thread::default(),
            range: 0,
            last: 0,
            refused: 0,
        })
    }

    /// Writes a definition, which is complete before any record that follows in the file.
    ///
    /// # Errors
    /// Those of the system.
    pub fn define(&mut self, definition: &Definition) -> io::Result<()> {
        let Self { file, definitions, chunks, buffer, .. } = self;
        let mut failure = None;
        let done = codec::encode(definition, buffer, |piece| {
            if !definitions.fits(piece.len())
                && let Err(error) = definitions.write(file, chunks)
            {
                failure = Some(error);
                return false;
            }
            let fits = definitions.fits(piece.len());
            if fits {
                definitions.bytes.extend_from_slice(piece);
            }
            fits
        });
        self.refused += u64::from(!done);
        failure.map_or(Ok(()), Err)
    }

    /// The following records are of this thread, which is in no range.
    ///
    /// # Errors
    /// Those of the system.
    pub fn thread(&mut self, tid: u32, name: &str) -> io::Result<()> {
        let mut short = [0; 12];
        let bytes = name.as_bytes();
        let length = bytes.len().min(short.len());
        short[..length].copy_from_slice(&bytes[..length]);
        self.thread = Thread { head: Thread::head(0, 0, 0), tid, name: short };
        self.range = 0;
        // One run of a thread is one segment: a reader puts those in order by time.
        self.records.write(&self.file, &mut self.chunks)
    }

    /// Writes a record of the thread.
    ///
    /// # Errors
    /// Those of the system.
    pub fn record<R: Slots>(&mut self, record: &R) -> io::Result<()> {
        let bytes = record.as_bytes();
        let head = RecordHead::of(bytes);
        let end = if R::KIND == RecordKind::Timing { head.start } else { head.start + head.duration_ticks() };
        self.last = self.last.max(end);
        if !self.records.fits(bytes.len()) {
            self.records.write(&self.file, &mut self.chunks)?;
        }
        if self.records.bytes.is_empty() {
            self.begin_chunk(head.start);
        }
        self.records.bytes.extend_from_slice(bytes);
        if let (RecordKind::RangeChange, Some(change)) = (R::KIND, RangeChange::from_bytes(bytes)) {
            self.range = change.range;
        }
        Ok(())
    }

    fn begin_chunk(&mut self, at: u64) {
        self.thread.head.start = at;
        self.records.bytes.extend_from_slice(self.thread.as_bytes());
        if self.range != 0 {
            let head = RangeChange::head(0, at, at);
            let change = RangeChange { head, range: self.range, ..RangeChange::default() };
            self.records.bytes.extend_from_slice(change.as_bytes());
        }
    }

    /// Writes what is left, and the header that makes the file one. Returns the number of
    /// definitions that were too large.
    ///
    /// # Errors
    /// Those of the system.
    pub fn finish(mut self) -> io::Result<u64> {
        self.definitions.write(&self.file, &mut self.chunks)?;
        self.records.write(&self.file, &mut self.chunks)?;
        self.file.write_all_at(&self.header(), 0)?;
        Ok(self.refused)
    }

    fn header(&self) -> [u8; HEADER_BYTES] {
        let mut page = [0; HEADER_BYTES];
        let Origin { pid, start, executable } = &self.origin;
        for (offset, value) in [
            (offset_of!(FileHeader, version), VERSION),
            (offset_of!(FileHeader, pid), *pid),
            (offset_of!(FileHeader, clock), ClockKind::Monotonic as u32),
            (offset_of!(FileHeader, ended), Ended::Exited as u32),
            (offset_of!(FileHeader, latest_count), 1),
        ] {
            put(&mut page, offset, &value.to_le_bytes());
        }
        let latest = ClockAnchor {
            ticks: start.ticks + self.last,
            monotonic_ns: start.monotonic_ns.saturating_add(self.last),
            real_ns: start.real_ns.saturating_add(self.last),
        };
        let anchors = offset_of!(FileHeader, latest);
        put_anchor(&mut page, offset_of!(FileHeader, start), *start);
        put_anchor(&mut page, anchors, *start);
        put_anchor(&mut page, anchors + size_of::<SharedAnchor>(), latest);
        put(&mut page, offset_of!(FileHeader, chunks), &self.chunks.to_le_bytes());
        let room = offset_of!(FileHeader, cost_samples) - offset_of!(FileHeader, executable);
        let path = &executable.as_bytes()[..executable.len().min(room - 1)];
        put(&mut page, offset_of!(FileHeader, executable), path);
        put(&mut page, offset_of!(FileHeader, magic), &MAGIC);
        page
    }
}

fn put_anchor(page: &mut [u8], at: usize, anchor: ClockAnchor) {
    for (offset, value) in [
        (offset_of!(ClockAnchor, ticks), anchor.ticks),
        (offset_of!(ClockAnchor, monotonic_ns), anchor.monotonic_ns),
        (offset_of!(ClockAnchor, real_ns), anchor.real_ns),
    ] {
        put(page, at + offset, &value.to_le_bytes());
    }
}

fn put(page: &mut [u8], at: usize, bytes: &[u8]) {
    page[at..at + bytes.len()].copy_from_slice(bytes);
}

impl RecordHead {
    /// The head of a record's bytes.
    fn of(bytes: &[u8]) -> RecordHead {
        // Every record begins with the head that a thread's record has.
        Thread::from_bytes(&bytes[..SLOT_BYTES]).map_or_else(RecordHead::default, |record| record.head)
    }
}
