//! Safe handling of files, folders and text that others may have made.
//!
//! Sessions, models, data sets and PTX come from anywhere, lie in folders that others may write to,
//! and contain names that others chose. Four rules hold everywhere in APEX, and each is
//! implemented in one place:
//!
//! * [`read`]: only a regular file of at most a stated size is opened for reading. A FIFO cannot
//!   block, a device is never touched, a sparse file cannot fill the memory.
//! * [`folder`] and [`replace`]: new files are created (`O_EXCL | O_NOFOLLOW`) relative to an open
//!   folder, so that nothing that somebody else has put there is followed or overwritten.
//! * [`text`]: text is printed only after characters that a terminal interprets or hides have been
//!   escaped.
//! * [`lines`]: of a file of lines, those that are sound are read, and the others are named.
//!
//! The injected library uses the first two, so this crate depends on libc alone.

pub mod folder;
pub mod lines;
pub mod read;
pub mod replace;
pub mod text;

pub use folder::Folder;
pub use text::{printable, shown};
