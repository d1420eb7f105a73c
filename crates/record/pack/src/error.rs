//! The reasons why a session cannot be packed, or an archive cannot be unpacked.

use apex_untrusted::shown;
use std::io;
use std::path::{Path, PathBuf};

/// The reason why an archive cannot be read or written. It names the file and the place.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be read.
    #[error("cannot read {}: {_1}", shown(_0))]
    Unreadable(PathBuf, #[source] io::Error),
    /// A file could not be written.
    #[error("cannot write {}: {_1}", shown(_0))]
    Unwritable(PathBuf, #[source] io::Error),
    /// The archive is damaged or refused.
    #[error("cannot unpack {}: {what}, near byte {at}", shown(path))]
    Refused {
        /// The archive.
        path: PathBuf,
        /// Bytes of the archive that had been decompressed.
        at: u64,
        /// The fault.
        what: String,
    },
    /// The archive is whole and holds no session.
    #[error("{} holds no session: an archive of one has its `control` and `session.json`", shown(_0))]
    NoSession(PathBuf),
}

impl Error {
    pub(crate) fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        |error| Self::Unreadable(path.to_owned(), error)
    }

    pub(crate) fn unwritable(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        |error| Self::Unwritable(path.to_owned(), error)
    }
}
