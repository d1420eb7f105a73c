//! The reasons why a trace cannot be imported.

use apex_untrusted::shown;
use std::io;
use std::path::{Path, PathBuf};

/// The reason why a trace cannot be imported: it names the file, the place and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be read.
    #[error("cannot read {}: {_1}", shown(_0))]
    Unreadable(PathBuf, #[source] io::Error),
    /// The session could not be written.
    #[error("cannot write the session {}: {_1}", shown(_0))]
    Unwritable(PathBuf, #[source] io::Error),
    /// The trace is of a kind that is not imported, or contradicts another one.
    #[error("cannot import {}: {_1}", shown(_0))]
    Refused(PathBuf, String),
    /// The trace is damaged so that nothing behind this place can be read.
    #[error("cannot import {}: {what}, at byte {at}", shown(path))]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The place in the file, after decompression.
        at: u64,
        /// The fault.
        what: String,
    },
    /// SQLite refused the file or a query.
    #[error("cannot import {}: {what}: {source}", shown(path))]
    Database {
        /// The file.
        path: PathBuf,
        /// The table.
        what: String,
        /// SQLite's message.
        source: rusqlite::Error,
    },
}

impl Error {
    /// The reason without the file.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::Refused(_, what) => what.clone(),
            Self::Damaged { what, at, .. } => format!("{what}, at byte {at}"),
            Self::Database { what, source, .. } => format!("{what}: {source}"),
            Self::Unreadable(_, error) | Self::Unwritable(_, error) => error.to_string(),
        }
    }

    /// A refusal.
    pub(crate) fn refused(path: &Path, what: impl Into<String>) -> Self {
        Self::Refused(path.to_owned(), what.into())
    }
}
