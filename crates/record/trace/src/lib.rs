//! APEX sessions: the layout of records, the crash-safe writer, and the reader.
//!
//! A *session* is a directory with these files:
//!
//! * `session.json`: the command, its start, and its end (written by `apex run`);
//! * `control`: one mapped page that controls recording while programs run ([`control`]);
//! * one *process file* `<pid>-<start>.rec` for each process that made a CUDA call ([`layout`]);
//! * `<pid>-<start>.counts`: counts and defects from the CPU device ([`counts`]);
//! * `<hash>.image`: code that programs loaded, with `--code` ([`image`]);
//! * `<hash>.source`: source text of counted kernels, with `--code` ([`source`]);
//! * `results-<pid>`: hashes of results, which `apex tune --verify` compares ([`results`]).
//!
//! A process file is a header page followed by chunks of [`layout::CHUNK_BYTES`], each with records
//! of one thread or with definitions. Writers map the file shared, so committed records are in the
//! page cache: they survive SIGKILL of the program and of `apex`, and nothing needs to be
//! finalised. Invariants:
//!
//! 1. A chunk's `committed` counter is advanced (release) only after the bytes below it are
//!    complete.
//! 2. A definition is committed before any record that names it.
//! 3. Disk space is reserved before a chunk is mapped, so a full disk is an error code and never a
//!    SIGBUS; a file that others truncate ends recording, never the program ([`fault`]).
//! 4. The header counts lost records.
//! 5. The reader trusts nothing: any byte sequence gives a [`Session`] with [`Problem`]s, or an
//!    [`Error`]; never a panic.
//!
//! The writer and the reader share only the file:
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
//! // In a report, meanwhile or later:
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
//! **Disk.** A record has 32 or 64 bytes. A file grows by one chunk at a time, one for definitions
//! and one for each recording thread; a process that exits normally releases the unused parts.
//! [`Control::max_bytes`] limits the disk space of all files of a session together. With a limit
//! below 16 MiB, only the first part of each chunk has disk space, a 64th of the limit, so that
//! many threads get a chunk; the files are then sparse. At the limit, new records overwrite the
//! oldest ones, which are counted; files of counts ([`counts`]) stop growing.
//!
//! This crate knows neither writer nor reader. It is part of the injected library, so it depends
//! only on libc, `cuda-launch` and `untrusted` (and on serde for `session.json`, with the feature
//! `meta`).
mod assembled;
pub mod checksums;
mod chunks;
mod clock;
mod codec;
pub mod control;
pub mod counts;
pub mod definition;
pub mod environment;
mod error;
pub mod fault;
mod fork;
pub mod image;
mod joined;
pub mod layout;
mod mapping;
#[cfg(feature = "meta")]
pub mod meta;
pub mod python;
mod reader;
pub mod results;
pub mod source;
mod ticks;
mod writer;

pub use assembled::{Assembled, Origin};
pub use clock::{Clock, ClockRate};
pub use control::{Control, MappedControl};
pub use definition::Definition;
pub use error::{Error, Problem};
pub use fork::ForkGuard;
pub use joined::{
    JOINED_FILE, MOST_MEMBERS, folders, is_joined, member_dir, member_of, numbered, own_pid, session_pid,
};
pub use layout::Ended;
#[cfg(feature = "meta")]
pub use meta::Meta;
pub use reader::{
    CallSort, CallTotals, Definitions, Event, Headers, KeptCode, META_FILE, Member, Process, Recent, Record,
    Session, Totals, Watcher, has_process_files, is_part_of_session, is_session, members,
};
pub use ticks::{TickCounter, now};
pub use writer::{Lane, ProcessFile};
