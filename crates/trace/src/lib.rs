//! APEX sessions: what a record looks like, how it survives, how it is read back.
//!
//! A *session* is a directory. It holds
//!
//! * `session.json`: what was run, when, and how it ended (written by `apex run`);
//! * `control`: one mapped page through which recording is steered while programs run ([`control`]);
//! * one *process file* `<pid>-<start>.rec` for each process that made a CUDA call ([`layout`]).
//!
//! A process file is a header page and then chunks of [`layout::CHUNK_BYTES`], each holding records of one kind
//! of writer. Writers map the file shared, so what is committed is in the page cache: it survives SIGKILL of the
//! program and of `apex`, and there is nothing to finalise. Invariants:
//!
//! 1. A chunk's `committed` counter is advanced (release) only after the bytes below it are complete.
//! 2. A definition is committed before any record that names it.
//! 3. Disk space is reserved before a chunk is mapped, so a full disk is an error code and never a SIGBUS.
//! 4. What could not be recorded is counted in the header.
//! 5. The reader trusts nothing: any byte sequence gives a [`Session`] with [`Problem`]s, or an [`Error`]; never a panic.
//!
//! This crate does not know who writes or who reads. It depends on libc alone: it is part of the injected library.
mod clock;
mod codec;
pub mod control;
pub mod definition;
mod error;
mod fork;
pub mod layout;
mod mapping;
#[cfg(feature = "meta")]
pub mod meta;
mod reader;
mod space;
mod ticks;
mod writer;

pub use clock::{Clock, Rate};
pub use control::{Control, MappedControl};
pub use definition::Definition;
pub use error::{Error, Problem};
pub use fork::ForkGuard;
pub use layout::Ended;
#[cfg(feature = "meta")]
pub use meta::Meta;
pub use reader::{Definitions, Event, META_FILE, Process, Record, Session};
pub use ticks::now;
pub use writer::{Chunk, Lane, ProcessFile};
