//! Hashes of a process's results: of the bytes of each copy to the host, and of each allocation at
//! its end.
//!
//! `apex tune --verify` compares these files of several runs. A session has them if its folder has
//! a file named [`WANTED`] when the process starts. They hold hashes alone, never the bytes.
//!
//! # Layout
//! Words of 8 bytes, the lowest byte first: [`MAGIC`], the time of the file's making in nanoseconds
//! of the monotonic clock, then entries. An entry has the [`Kind`], the thread (from 0, in the
//! order of their first entries), its number among the entries of this kind and thread, and the
//! bytes; then a hash for each [`PIECE`] bytes. An [`Kind::Unseen`] has no hashes. A file that ends
//! inside an entry is that of a process that was ended; the entry does not count.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The file by which a session asks for hashes.
pub const WANTED: &str = "results";
/// The file of a process has this name, a hyphen, and the process's identifier.
const PREFIX: &str = "results-";
/// The first word of a file.
const MAGIC: u64 = u64::from_le_bytes(*b"APEXRES1");
/// Bytes that one hash is of.
pub const PIECE: usize = 4096;
/// Most bytes of a file: hashes of 32 GiB. What comes later is not compared.
pub const MOST_BYTES: u64 = 64 << 20;

/// Subject of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u64)]
pub enum Kind {
    /// A copy from the device to the host.
    Copy = 1,
    /// An allocation, when it is freed or the process ends.
    Allocation = 2,
    /// Something that was not compared.
    Unseen = 3,
}

/// Identity of a result within its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The kind of result.
    pub kind: Kind,
    /// The thread that asked for it.
    pub thread: u64,
    /// Its number among those of this kind and thread, from 0.
    pub number: u64,
}

/// The hashes of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hashes {
    /// Its bytes.
    pub bytes: u64,
    /// A hash for each [`PIECE`].
    pub pieces: Vec<u64>,
}

/// The results of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Results {
    /// Time at which the process began to write them.
    pub begun: u64,
    /// By place.
    pub hashes: BTreeMap<Place, Hashes>,
    /// Number that was not compared.
    pub unseen: u64,
}

/// The hash of at most [`PIECE`] bytes. It tells results apart that differ by accident; nobody is
/// kept from making two with the same hash.
pub fn hash(piece: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let (words, rest) = piece.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let words = words.iter().map(|&word| u64::from_le_bytes(word));
    let all = words.chain([u64::from_le_bytes(last)]);
    all.fold(piece.len() as u64, |hash, word| {
        let mixed = (hash ^ word).wrapping_mul(FACTOR);
        mixed ^ (mixed >> 29)
    })
}

/// Writes the file of a process.
pub struct Writer {
    file: File,
    left: u64,
}

impl Writer {
    /// Makes the file of the calling process.
    ///
    /// # Errors
    /// Those of the system.
    pub fn create(session: &Path) -> io::Result<Writer> {
        let path = session.join(format!("{PREFIX}{}", std::process::id()));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        let mut writer = Writer { file, left: MOST_BYTES };
        writer.words(&[MAGIC, monotonic_ns()])?;
        Ok(writer)
    }

    /// Begins an entry, whose hashes follow. False if the file would become too large: then it has
    /// none.
    ///
    /// # Errors
    /// Those of the system.
    pub fn begin(&mut self, place: Place, bytes: u64) -> io::Result<bool> {
        let pieces = bytes.div_ceil(PIECE as u64);
        let fits = pieces < (self.left / 8).saturating_sub(8);
        let Place { kind, thread, number } = place;
        let kind = if fits { kind } else { Kind::Unseen };
        if fits || self.left > 1024 {
            self.words(&[kind as u64, thread, number, bytes])?;
        }
        Ok(fits)
    }

    /// The hashes of a part of an entry, of whole pieces but for the last one.
    ///
    /// # Errors
    /// Those of the system.
    pub fn hash(&mut self, part: &[u8]) -> io::Result<()> {
        let mut hashes = [0; 64];
        for pieces in part.chunks(64 * PIECE) {
            let count = pieces.len().div_ceil(PIECE);
            hashes.iter_mut().zip(pieces.chunks(PIECE)).for_each(|(to, piece)| *to = hash(piece));
            self.words(&hashes[..count])?;
        }
        Ok(())
    }

    /// An entry could not be completed: the file ends inside of it.
    pub fn close(&mut self) {
        self.left = 0;
    }

    /// At most 64 words.
    fn words(&mut self, words: &[u64]) -> io::Result<()> {
        let mut bytes = [0; 512];
        for (to, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *to = word.to_le_bytes();
        }
        let bytes = &bytes[..8 * words.len()];
        self.left = self.left.saturating_sub(bytes.len() as u64);
        self.file.write_all(bytes)
    }
}

fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: valid for writing.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// The results of a session's processes, in the order in which they began.
///
/// # Errors
/// Those of the system, and of a file that is none.
pub fn read(session: &Path) -> io::Result<Vec<Results>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(session)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            let bytes = apex_untrusted::read::read(&entry.path(), MOST_BYTES + 1024)?;
            found.push(parse(&bytes).ok_or(io::ErrorKind::InvalidData)?);
        }
    }
    found.sort_by_key(|results| results.begun);
    Ok(found)
}

/// The results of a file; `None` if it is none.
pub fn parse(bytes: &[u8]) -> Option<Results> {
    let (words, _) = bytes.as_chunks::<8>();
    let mut words = words.iter().map(|&word| u64::from_le_bytes(word));
    if words.next()? != MAGIC {
        return None;
    }
    let mut results = Results { begun: words.next()?, ..Results::default() };
    while let Some(kind) = words.next() {
        let (Some(thread), Some(number), Some(bytes)) = (words.next(), words.next(), words.next()) else {
            break;
        };
        let kind = match kind {
            1 => Kind::Copy,
            2 => Kind::Allocation,
            3 => {
                results.unseen += 1;
                continue;
            }
            _ => return None,
        };
        let count = bytes.div_ceil(PIECE as u64);
        if words.len() as u64 >= count {
            let pieces = words.by_ref().take(count as usize).collect();
            results.hashes.insert(Place { kind, thread, number }, Hashes { bytes, pieces });
        } else {
            break;
        }
    }
    Some(results)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn place(kind: Kind, number: u64) -> Place {
        Place { kind, thread: 0, number }
    }

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = Writer::create(folder.path()).unwrap();
        let data: Vec<u8> = (0..300_000_u32).map(|at| at as u8).collect();
        assert!(writer.begin(place(Kind::Copy, 0), data.len() as u64).unwrap());
        writer.hash(&data[..70 * PIECE]).unwrap();
        writer.hash(&data[70 * PIECE..]).unwrap();
        assert!(!writer.begin(place(Kind::Copy, 1), u64::MAX).unwrap(), "too large");
        assert!(writer.begin(place(Kind::Allocation, 0), 0).unwrap());
        let [results] = <[Results; 1]>::try_from(read(folder.path()).unwrap()).unwrap();
        let pieces: Vec<u64> = data.chunks(PIECE).map(hash).collect();
        let copy = Hashes { bytes: 300_000, pieces };
        let empty = Hashes { bytes: 0, pieces: Vec::new() };
        let expected = [(place(Kind::Copy, 0), copy), (place(Kind::Allocation, 0), empty)];
        assert_eq!((results.hashes, results.unseen), (BTreeMap::from(expected), 1));
    }

    #[test]
    fn a_bit_and_a_length_change_the_hash() {
        let bytes: Vec<u8> = (0..100).collect();
        let mut hashes: Vec<u64> = (0..=100).map(|end| hash(&bytes[..end])).collect();
        for at in 0..800 {
            let mut other = bytes.clone();
            other[at / 8] ^= 1 << (at % 8);
            hashes.push(hash(&other));
        }
        hashes.push(hash(&[0; 8]));
        hashes.push(hash(&[0; 16]));
        let count = hashes.len();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), count);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(
            bytes in prop::collection::vec(prop_oneof![Just(0_u8), Just(1), Just(2), any::<u8>()], 0..200),
        ) {
            parse(&bytes);
            parse(&[&MAGIC.to_le_bytes()[..], &bytes].concat());
        }
    }
}
