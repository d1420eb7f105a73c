//! Sessions as one file: [`pack`] writes an archive of a session's folder, [`unpack`] makes the
//! folder again.
//!
//! An archive is a tar file compressed by gzip, so that any `tar` unpacks it. [`unpack`] also reads
//! archives that people made themselves: compressed by xz or zstd, or not at all, with the session's
//! files at the top or in a folder. A process file may be stored column by column ([`columns`]), as
//! in `data/h200/corpus`.
//!
//! Invariants:
//!
//! 1. A file is written only where a session has one: under a plain name that the caller knows as a
//!    session's, in the session's folder or in that of a member of a joined session. Links, devices
//!    and paths with `..` are refused; other files are counted and left out.
//! 2. Bytes, files and memory are bounded by [`Limits`] and constants, whatever the archive claims.
//!    Zeros are stored as holes.
//! 3. Any bytes give a session or an [`Error`] that names the place; never a panic.
//! 4. The content of an archive is checked as far as its compression has a checksum (gzip, xz,
//!    zstd), before [`unpack`] returns.

pub mod columns;
mod compression;
mod error;
mod holes;
mod place;
pub mod process_file;
mod unpacking;
mod writing;

pub use compression::{is_archive, is_named_like_one};
pub use error::Error;
pub use unpacking::{Limits, Unpacked, unpack};
pub use writing::{Packed, pack};

/// The ending of the archives that [`pack`] writes.
pub const ENDING: &str = "tar.gz";
/// The ending of a process file that is stored column by column.
const COLUMNS: &str = "columns";
