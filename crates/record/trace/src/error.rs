//! Errors and problems of a session.

use apex_untrusted::{printable, shown};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The reason why a session could not be opened at all. A fault inside one that opens is a
/// [`Problem`]. What is wrong inside one that opens is a [`Problem`].
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A file or directory could not be read.
    Unreadable {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The path is not that of a session.
    NotASession {
        /// The path.
        path: PathBuf,
        /// The schema or format that was found there.
        found: String,
    },
    /// A newer APEX wrote it.
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u32,
        /// The newest version that this APEX reads.
        supported: u32,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Unreadable { path, source } => write!(f, "cannot read {}: {source}", shown(path)),
            Error::NotASession { path, found } => write!(
                f,
                "{} is not an APEX session: {found}; expected a directory made by `apex run`, with \
                 `session.json` and `*.rec` files in it",
                shown(path)
            ),
            Error::Newer { path, version, supported } => write!(
                f,
                "{} was recorded by a newer APEX (version {version} of the format, this one reads up to \
                 {supported}): update APEX to read it",
                shown(path)
            ),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Unreadable { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// Something wrong in a session that could be opened: what is affected was left out, the rest is
/// there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub path: PathBuf,
    /// Byte in it; `None` where the fault is the whole file's.
    pub offset: Option<u64>,
    /// The fault, and its effect on the data that was read.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.offset.map_or_else(String::new, |offset| format!("byte {offset}: "));
        write!(f, "{}: {place}{}", shown(&self.path), printable(&self.what))
    }
}

/// Adds to an error what was being done and with which file; its kind stays.
pub(crate) fn in_file(doing: &str, path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{doing} {}: {error}{}", shown(path), hint(&error)))
}

/// Returns advice about an error that is no fault of the file.
fn hint(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EFBIG) => " (the limit on file sizes is reached: raise it with `ulimit -f`)",
        _ => "",
    }
}
