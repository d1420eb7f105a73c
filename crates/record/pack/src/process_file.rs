//! A process file as its parts: the header page, chunks of definitions, chunks of records.
//!
//! [`ProcessFile::from_bytes`] and [`ProcessFile::to_bytes`] are inverse to each other for files
//! whose chunks hold zeros behind what is committed.

use apex_trace::layout::{CHUNK_BYTES, ChunkHeader, ChunkKind, HEADER_BYTES, RecordKind, SLOT_BYTES, flags};
use std::io::{Error, Result};

/// Bytes of a chunk's header.
pub const CHUNK_HEADER_BYTES: usize = size_of::<ChunkHeader>();
/// Bytes of a record before its payload.
const HEAD_BYTES: usize = 16;

/// A process file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessFile {
    /// Length in bytes: the last chunk may be cut.
    pub length: u64,
    /// The header page.
    pub header: Vec<u8>,
    /// The chunks.
    pub chunks: Vec<Chunk>,
}

/// A chunk: its header, and what is committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The header, as it is in the file.
    pub header: [u8; CHUNK_HEADER_BYTES],
    /// The content.
    pub content: Content,
}

/// The content of a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Definitions, or whatever is not records.
    Bytes(Vec<u8>),
    /// Records.
    Records(Vec<Record>),
}

/// A record of one or two slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Kind, slots, and flags (two bytes).
    pub head: [u8; 4],
    /// The field `duration`.
    pub duration: u32,
    /// The field `start`, in ticks.
    pub start: u64,
    /// The bytes behind the head; zeros behind the last slot.
    pub payload: [u8; 2 * SLOT_BYTES - HEAD_BYTES],
}

impl Chunk {
    /// Whether a chunk with this header holds records.
    pub fn holds_records(header: &[u8]) -> bool {
        number(header, 0) == ChunkKind::Records as u32
    }

    /// Bytes that are committed, as the header says.
    pub fn committed(header: &[u8]) -> usize {
        number(header, 4) as usize
    }

    fn from_bytes(bytes: &[u8]) -> Result<Chunk> {
        let cut = || Error::other("the process file ends within a chunk");
        let (header, rest) = bytes.split_first_chunk().ok_or_else(cut)?;
        let committed = rest.get(..Chunk::committed(header)).ok_or_else(cut)?;
        let content = if Chunk::holds_records(header) {
            Content::Records(records(committed)?)
        } else {
            Content::Bytes(committed.to_vec())
        };
        Ok(Chunk { header: *header, content })
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.header);
        match &self.content {
            Content::Bytes(content) => bytes.extend(content),
            Content::Records(records) => records.iter().for_each(|record| record.write(bytes)),
        }
    }
}

impl Record {
    /// Bytes of the payload.
    pub fn payload_bytes(&self) -> usize {
        usize::from(self.head[1]) * SLOT_BYTES - HEAD_BYTES
    }

    /// Whether its `start` is the one of an earlier record, or lies outside of the sequence of
    /// calls.
    pub fn is_late(&self) -> bool {
        let late = [RecordKind::Timing, RecordKind::StackSample, RecordKind::ArgumentSample];
        late.iter().any(|kind| self.head[0] == *kind as u8)
    }

    /// Whether its `duration` is in ticks, not nanoseconds or longer units.
    pub fn duration_is_in_ticks(&self) -> bool {
        let flags = u16::from_le_bytes([self.head[2], self.head[3]]);
        self.head[0] != RecordKind::Timing as u8 && flags & flags::LONG == 0
    }

    fn read(bytes: &[u8]) -> Result<Record> {
        let unknown = || Error::other("a record has not one or two slots");
        let slots = *bytes.get(1).ok_or_else(unknown)?;
        let length = usize::from(slots) * SLOT_BYTES;
        let bytes = bytes.get(..length).filter(|_| slots == 1 || slots == 2).ok_or_else(unknown)?;
        let (head, rest) = bytes.split_first_chunk().ok_or_else(unknown)?;
        let (duration, rest) = rest.split_first_chunk().ok_or_else(unknown)?;
        let (start, rest) = rest.split_first_chunk().ok_or_else(unknown)?;
        let mut payload = [0; 2 * SLOT_BYTES - HEAD_BYTES];
        payload[..rest.len()].copy_from_slice(rest);
        let (duration, start) = (u32::from_le_bytes(*duration), u64::from_le_bytes(*start));
        Ok(Record { head: *head, duration, start, payload })
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.head);
        bytes.extend(self.duration.to_le_bytes());
        bytes.extend(self.start.to_le_bytes());
        bytes.extend(&self.payload[..self.payload_bytes()]);
    }

    /// Rounds begin and end to multiples of `unit`, so that sums of durations and gaps stay right.
    fn round(&mut self, unit: u64) {
        let rounded = |ticks: u64| (ticks + unit / 2) / unit * unit;
        let end = rounded(self.start + u64::from(self.duration));
        self.start = rounded(self.start);
        if self.duration_is_in_ticks() {
            self.duration = u32::try_from(end - self.start).unwrap_or(u32::MAX / unit as u32 * unit as u32);
        }
    }
}

impl ProcessFile {
    /// Reads a file.
    ///
    /// # Errors
    /// If it is not a process file, or has records that this version does not know.
    pub fn from_bytes(bytes: &[u8]) -> Result<ProcessFile> {
        let short = || Error::other("the process file ends within its header");
        let (header, chunks) = bytes.split_at_checked(HEADER_BYTES).ok_or_else(short)?;
        let chunks = chunks.chunks(CHUNK_BYTES).map(Chunk::from_bytes).collect::<Result<_>>()?;
        Ok(ProcessFile { length: bytes.len() as u64, header: header.to_vec(), chunks })
    }

    /// The bytes of the file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.header.clone();
        for (index, chunk) in self.chunks.iter().enumerate() {
            bytes.resize(HEADER_BYTES + index * CHUNK_BYTES, 0);
            chunk.write(&mut bytes);
        }
        bytes.resize(self.length as usize, 0);
        bytes
    }

    /// Rounds the times of all records to multiples of `unit` ticks. A record that names the start
    /// of another one still does.
    pub fn round(&mut self, unit: u64) {
        for chunk in &mut self.chunks {
            if let Content::Records(records) = &mut chunk.content {
                records.iter_mut().for_each(|record| record.round(unit));
            }
        }
    }
}

fn records(mut bytes: &[u8]) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let record = Record::read(bytes)?;
        bytes = &bytes[HEAD_BYTES + record.payload_bytes()..];
        records.push(record);
    }
    Ok(records)
}

/// The little-endian number of 32 bits at an offset.
fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes are four bytes"))
}
