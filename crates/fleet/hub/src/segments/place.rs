//! Where segments are: a folder of this machine, or a part of a bucket.
//!
//! In both, a file appears as a whole or not at all, so that a reader sees no half of one. One
//! export at a time writes into a folder, which a lock ensures where the file system has locks. A
//! bucket has none.

use apex_objects::Store;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

/// Most bytes of a segment that is read back.
const MOST: usize = 1 << 30;

/// What segments are put into: folders of files that appear as a whole.
pub trait Place {
    /// The names of files in a folder, which need not be there.
    ///
    /// # Errors
    /// Those of the place, as all others.
    fn names(&self, folder: &str) -> io::Result<Vec<String>>;
    /// Puts a file, in the place of one that has this name.
    ///
    /// # Errors
    /// Those of the place. Then there is no file of this name, or the former one.
    fn put(&self, folder: &str, name: &str, bytes: &[u8]) -> io::Result<()>;
    /// Reads a file.
    ///
    /// # Errors
    /// Those of the place, and if the file is larger than 1 GiB.
    fn read(&self, folder: &str, name: &str) -> io::Result<Vec<u8>>;
    /// Removes a file.
    ///
    /// # Errors
    /// Those of the place.
    fn remove(&self, folder: &str, name: &str) -> io::Result<()>;
}

/// A folder of this machine.
#[derive(Debug)]
pub struct Local {
    path: PathBuf,
    /// Locked while segments are written.
    lock: Option<File>,
}

impl Local {
    /// A folder that is read.
    pub fn to_read(path: &Path) -> Self {
        Self { path: path.to_owned(), lock: None }
    }

    /// A folder that is written, by one export at a time; it is made where it is missing. Files
    /// that an export which was killed had begun are removed, if nobody else can be writing.
    ///
    /// # Errors
    /// Those of the system, and if another export writes there.
    pub fn to_write(path: &Path) -> io::Result<Self> {
        fs::create_dir_all(path)?;
        let folder = File::open(path)?;
        let lock = match folder.try_lock() {
            Ok(()) => Some(folder),
            Err(TryLockError::WouldBlock) => {
                return Err(io::Error::other("another export writes there: wait until it has ended"));
            }
            // A file system without locks.
            Err(TryLockError::Error(_)) => None,
        };
        let local = Self { path: path.to_owned(), lock };
        if local.lock.is_some() {
            super::TABLES.iter().try_for_each(|(_, folder)| local.clean(folder))?;
        }
        for (_, folder) in super::TABLES {
            fs::create_dir_all(path.join(folder))?;
        }
        Ok(local)
    }

    /// Removes what was begun and never got its name.
    fn clean(&self, folder: &str) -> io::Result<()> {
        let is_begun = |name: &&String| name.starts_with(".apex-") && name.ends_with(".part");
        self.names(folder)?.iter().filter(is_begun).try_for_each(|name| self.remove(folder, name))
    }
}

impl Place for Local {
    fn names(&self, folder: &str) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(self.path.join(folder)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let name = |entry: io::Result<fs::DirEntry>| entry.map(|entry| entry.file_name().into_string().ok());
        entries.filter_map(|entry| name(entry).transpose()).collect()
    }

    fn put(&self, folder: &str, name: &str, bytes: &[u8]) -> io::Result<()> {
        let folder = self.path.join(folder);
        fs::create_dir_all(&folder)?;
        apex_untrusted::replace::bytes(&folder.join(name), bytes)
    }

    fn read(&self, folder: &str, name: &str) -> io::Result<Vec<u8>> {
        apex_untrusted::read::read(&self.path.join(folder).join(name), MOST as u64)
    }

    fn remove(&self, folder: &str, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(folder).join(name))
    }
}

impl Place for Store {
    fn names(&self, folder: &str) -> io::Result<Vec<String>> {
        Self::names(self, folder).map_err(io::Error::other)
    }

    fn put(&self, folder: &str, name: &str, bytes: &[u8]) -> io::Result<()> {
        Self::put(self, &format!("{folder}/{name}"), bytes).map_err(io::Error::other)
    }

    fn read(&self, folder: &str, name: &str) -> io::Result<Vec<u8>> {
        Self::read(self, &format!("{folder}/{name}"), MOST).map_err(io::Error::other)
    }

    fn remove(&self, folder: &str, name: &str) -> io::Result<()> {
        Self::remove(self, &format!("{folder}/{name}")).map_err(io::Error::other)
    }
}
