//! The source of a process file's bytes.
//!
//! Files are read, never mapped: if a file shrinks, a mapping raises SIGBUS, while a read returns
//! fewer bytes.

use apex_untrusted::{folder, read};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Arc;

/// The unit in which systems count the disk space of a file.
const BLOCK_BYTES: u64 = 512;

/// A file by its path, or bytes in memory.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    Path(PathBuf),
    Bytes(Arc<[u8]>),
}

impl Source {
    /// Opens it. Not kept open in between: a session may have more files than a process may have
    /// descriptors.
    pub fn open(&self) -> io::Result<Opened> {
        match self {
            Source::Path(path) => read::open(path, read::PROCESS_FILE).map(Opened::File),
            Source::Bytes(bytes) => Ok(Opened::Bytes(bytes.clone())),
        }
    }
}

/// A source, open for reading.
#[derive(Debug)]
pub(crate) enum Opened {
    File(File),
    Bytes(Arc<[u8]>),
}

/// The identity and size of a source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Device and inode; zeros of bytes in memory.
    pub identity: (u64, u64),
    /// Its length.
    pub bytes: u64,
    /// Its disk space, bytes.
    pub disk_bytes: u64,
}

impl Opened {
    pub fn place(&self) -> io::Result<Place> {
        match self {
            Opened::File(file) => {
                let metadata = file.metadata()?;
                let (identity, bytes) = (folder::identity(&metadata), metadata.len());
                Ok(Place { identity, bytes, disk_bytes: metadata.blocks().saturating_mul(BLOCK_BYTES) })
            }
            Opened::Bytes(bytes) => Ok(Place { identity: (0, 0), bytes: bytes.len() as u64, disk_bytes: 0 }),
        }
    }

    /// Replaces `buffer` by up to `count` bytes from `offset`: fewer only where the source ends.
    pub fn read(&self, offset: u64, count: usize, buffer: &mut Vec<u8>) -> io::Result<()> {
        buffer.resize(count, 0);
        let mut done = 0;
        while done < count {
            match self.read_some(offset + done as u64, &mut buffer[done..]) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    buffer.clear();
                    return Err(error);
                }
            }
        }
        buffer.truncate(done);
        Ok(())
    }

    /// Returns the offset of the first byte from `offset` on that is not in a hole, as far as the
    /// file system reports holes; `None` if there is none.
    pub fn next_data(&self, offset: u64) -> Option<u64> {
        let Opened::File(file) = self else { return Some(offset) };
        let from = i64::try_from(offset).ok()?;
        // SAFETY: takes numbers. The file's position, which this moves, is used by nobody.
        match unsafe { libc::lseek(file.as_raw_fd(), from, libc::SEEK_DATA) } {
            -1 if io::Error::last_os_error().raw_os_error() == Some(libc::ENXIO) => None,
            -1 => Some(offset),
            found => Some(found.cast_unsigned()),
        }
    }

    fn read_some(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Opened::File(file) => file.read_at(buffer, offset),
            Opened::Bytes(bytes) => {
                let rest = usize::try_from(offset).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
                let count = rest.len().min(buffer.len());
                buffer[..count].copy_from_slice(&rest[..count]);
                Ok(count)
            }
        }
    }
}
