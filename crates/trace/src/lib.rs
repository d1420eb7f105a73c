//! APEX sessions: what a record looks like, how it survives, how it is read back.
//!
//! A *session* is a directory. It holds
//!
//! * `session.json`: what was run, when, and how it ended (written by `apex run`);
//! * `control`: one mapped page through which recording is steered while programs run
//!   ([`control`]);
//! * one *process file* `<pid>-<start>.rec` for each process that made a CUDA call ([`layout`]);
//! * `<pid>-<start>.counts`, where a device executes kernels itself: what it counted and found
//!   wrong ([`counts`]);
//! * `<hash>.image`: what programs loaded as code, where that is kept ([`image`]);
//! * `<hash>.source`: the source text of kernels that a device counted, kept with it ([`source`]).
//!
//! A process file is a header page and then chunks of [`layout::CHUNK_BYTES`], each holding records
//! of one kind of writer. Writers map the file shared, so what is committed is in the page cache:
//! it survives SIGKILL of the program and of `apex`, and there is nothing to finalise. Invariants:
//!
//! 1. A chunk's `committed` counter is advanced (release) only after the bytes below it are
//!    complete.
//! 2. A definition is committed before any record that names it.
//! 3. Disk space is reserved before a chunk is mapped, so a full disk is an error code and never a
//!    SIGBUS; a file that others truncate ends recording and never the program ([`fault`]).
//! 4. What could not be recorded is counted in the header.
//! 5. The reader trusts nothing: any byte sequence gives a [`Session`] with [`Problem`]s, or an
//!    [`Error`]; never a panic.
//!
//! How it is used, by the two sides that never meet but in a file:
//!
//! ```
//! use apex_trace::layout::{Launch, Slots};
//! use apex_trace::{Definition, Event, Lane, ProcessFile, Session, now};
//!
//! # let dir = std::env::temp_dir().join(format!("apex-doc-{}", std::process::id()));
//! # std::fs::create_dir(&dir)?;
//! // In the program, through the injected library: a file for the process, a lane for each thread.
//! let file = ProcessFile::create(&dir, None)?;
//! assert!(file.define(&Definition::Name { id: 1, text: "cuLaunchKernel".into() }));
//! let mut lane = Lane::default();
//! let start = now();
//! // ... the driver's call ...
//! let head = Launch::head(0, start, now());
//! assert!(lane.record(&file, &Launch { head, config: 1, stream: 1, result: 0, api: 1 }));
//!
//! // In a report, then or later:
//! let session = Session::open(&dir)?;
//! let process = &session.processes[0];
//! for record in process.records() {
//!     if let Event::Launch(launch) = record.event {
//!         assert_eq!(process.definitions.name(launch.api), Some("cuLaunchKernel"));
//!         let _ns = process.clock.duration_ns(record.duration_ticks());
//!     }
//! }
//! # assert_eq!(process.record_count, 1);
//! # std::fs::remove_dir_all(&dir)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **Disk.** A record is 32 or 64 bytes. A file grows by a chunk at a time, one for definitions and
//! one for each thread that records; a process that ends in an orderly way gives back what of them
//! it did not use. [`Control::max_bytes`] bounds the disk space of all files of a session together.
//! Below 16 MiB only the first part of each chunk has disk space, a 64th of the limit, so that many
//! threads find one each; files are sparse then. At the limit the oldest records go first, and are
//! counted; files of counts ([`counts::file`]) stop growing.
//!
//! This crate does not know who writes or who reads. It depends on libc, `cuda-launch` and
//! `untrusted` alone (on serde for `session.json`, behind the feature `meta`): it is part of the
//! injected library.
mod clock;
mod codec;
pub mod control;
pub mod counts;
pub mod definition;
mod error;
pub mod fault;
mod fork;
pub mod image;
pub mod layout;
mod mapping;
#[cfg(feature = "meta")]
pub mod meta;
pub mod python;
mod reader;
pub mod source;
mod space;
mod ticks;
mod writer;

pub use clock::{Clock, ClockRate};
pub use control::{Control, MappedControl};
pub use definition::Definition;
pub use error::{Error, Problem};
pub use fork::ForkGuard;
pub use layout::Ended;
#[cfg(feature = "meta")]
pub use meta::Meta;
pub use reader::{
    CallSort, CallTotals, Definitions, Event, KeptCode, META_FILE, Process, Recent, Record, Session, Totals,
    Watcher, has_process_files, is_part_of_session, is_session,
};
pub use ticks::{TickCounter, now};
pub use writer::{Lane, ProcessFile};
