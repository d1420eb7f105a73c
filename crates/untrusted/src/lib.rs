//! What others may have made: files, folders and text, handled so that they can do no harm.
//!
//! Sessions, models, data sets and PTX come from anywhere, lie in folders that others may write to,
//! and carry names that their makers chose. Three rules hold wherever APEX meets them, and each has
//! one place:
//!
//! * [`read`]: only a regular file of at most a stated size is opened for reading. A FIFO never
//!   blocks, a device is never touched, a sparse file never fills the memory.
//! * [`folder`] and [`replace`]: a file is made new (`O_EXCL | O_NOFOLLOW`), relative to an open
//!   folder, so that nothing that somebody has put there is followed or overwritten.
//! * [`text`]: text is printed only after what a terminal would obey, or hide, has been escaped.
//!
//! The injected library uses the first two: this crate depends on libc alone.

pub mod folder;
pub mod read;
pub mod replace;
pub mod text;

pub use folder::Folder;
pub use text::{printable, shown};
