//! The file of an index: a header and blocks, each with a checksum.
//!
//! The header is written last, so that a file that was not finished is none. Whoever opens the file
//! trusts nothing in it: a block that is not what its checksum says, or lies outside of the file,
//! is [`Damaged`].

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;

use serde::{Deserialize, Serialize};

/// The first bytes. The number is the format's: raised when anything in the file changes.
const MAGIC: &[u8; 8] = b"APEXTL01";
const HEADER_BYTES: u64 = 64;
/// The longest block of events or cells.
const MOST_BLOCK: u32 = 1 << 24;
/// The longest table.
const MOST_TABLE: u32 = 1 << 28;
/// Bytes that are written at once.
const WRITTEN: usize = 1 << 20;

/// The position of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub offset: u64,
    pub bytes: u32,
}

/// The index is not what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged;

/// A file that is being written. The first failure is kept, and nothing more is written after it.
pub struct Sink {
    file: BufWriter<File>,
    at: u64,
    failure: Option<io::Error>,
}

impl Sink {
    /// Will write into an empty file.
    pub fn new(file: File) -> Self {
        let mut sink = Self { file: BufWriter::with_capacity(WRITTEN, file), at: 0, failure: None };
        sink.write(&[0; HEADER_BYTES as usize]);
        sink
    }

    fn write(&mut self, bytes: &[u8]) {
        if self.failure.is_none() {
            self.failure = self.file.write_all(bytes).err();
            self.at += bytes.len() as u64;
        }
    }

    /// Writes a block.
    pub fn block(&mut self, bytes: &[u8]) -> Place {
        let place = Place { offset: self.at, bytes: bytes.len() as u32 };
        if bytes.len() > MOST_TABLE as usize && self.failure.is_none() {
            self.failure = Some(io::Error::other("a table of the timeline's index is too large"));
        }
        self.write(bytes);
        self.write(&crc32fast::hash(bytes).to_le_bytes());
        place
    }

    /// Whether nothing can be written any more.
    pub fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Writes the header: of which session the index is, and where its table is.
    ///
    /// # Errors
    /// The first failure to write.
    pub fn finish(mut self, identity: u64, table: Place) -> io::Result<Source> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        self.file.flush()?;
        let file = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        let mut header = [0; HEADER_BYTES as usize];
        let numbers = [identity, table.offset, table.bytes.into(), self.at, crate::MAKER];
        header[..8].copy_from_slice(MAGIC);
        for (to, number) in header[8..].chunks_exact_mut(8).zip(numbers) {
            to.copy_from_slice(&number.to_le_bytes());
        }
        let sum = crc32fast::hash(&header[..56]);
        header[56..60].copy_from_slice(&sum.to_le_bytes());
        file.write_all_at(&header, 0)?;
        Ok(Source { file, bytes: self.at })
    }
}

/// A file that is read.
#[derive(Debug)]
pub struct Source {
    file: File,
    bytes: u64,
}

impl Source {
    /// Opens the index of a session of this identity; also gives where its table is.
    ///
    /// # Errors
    /// If the file is none, or of something else.
    pub fn open(file: File, identity: u64) -> Result<(Self, Place), Damaged> {
        let bytes = file.metadata().map_err(|_| Damaged)?.len();
        let mut header = [0; HEADER_BYTES as usize];
        file.read_exact_at(&mut header, 0).map_err(|_| Damaged)?;
        let number = |at: usize| {
            let mut number = [0; 8];
            number.copy_from_slice(&header[at..at + 8]);
            u64::from_le_bytes(number)
        };
        let sum = u32::from_le_bytes([header[56], header[57], header[58], header[59]]);
        let is_sound = header[..8] == *MAGIC
            && sum == crc32fast::hash(&header[..56])
            && number(8) == identity
            && number(32) == bytes
            && number(40) == crate::MAKER;
        let table = Place { offset: number(16), bytes: u32::try_from(number(24)).map_err(|_| Damaged)? };
        if is_sound { Ok((Self { file, bytes }, table)) } else { Err(Damaged) }
    }

    /// The file's size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// A block of events, cells or directory entries.
    ///
    /// # Errors
    /// If it is not what was written.
    pub fn block(&self, place: Place) -> Result<Vec<u8>, Damaged> {
        self.read(place, MOST_BLOCK)
    }

    /// A table.
    ///
    /// # Errors
    /// If it is not what was written.
    pub fn table(&self, place: Place) -> Result<Vec<u8>, Damaged> {
        self.read(place, MOST_TABLE)
    }

    fn read(&self, place: Place, most: u32) -> Result<Vec<u8>, Damaged> {
        let length = place.bytes as usize;
        let end = place.offset.checked_add(u64::from(place.bytes) + 4).ok_or(Damaged)?;
        if place.bytes > most || end > self.bytes {
            return Err(Damaged);
        }
        let mut bytes = vec![0; length + 4];
        self.file.read_exact_at(&mut bytes, place.offset).map_err(|_| Damaged)?;
        let sum =
            u32::from_le_bytes([bytes[length], bytes[length + 1], bytes[length + 2], bytes[length + 3]]);
        bytes.truncate(length);
        if sum == crc32fast::hash(&bytes) { Ok(bytes) } else { Err(Damaged) }
    }
}
