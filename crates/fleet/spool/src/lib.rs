//! A folder of messages that wait for a confirmed delivery.
//!
//! A message has a *key*, a *sequence*, and a *label* for those who deliver it. [`Spool::put`]
//! replaces an earlier message of the same key, [`Spool::waiting`] lists what waits, and
//! [`Spool::confirm`] removes a message once its receiver has confirmed that sequence or a later
//! one.
//!
//! Invariants:
//!
//! 1. **A message is whole or absent**, whenever a process or the machine stops: it is written
//!    under another name, reaches the disk, and then takes its name.
//! 2. **Nothing that changed on the disk is delivered.** Each entry has a checksum over its key,
//!    sequence, label and body. An entry that does not agree is set aside ([`MOST_ASIDE`] of them
//!    are kept) and counted.
//! 3. **It is bounded** ([`Limits`]). Where a message has no room, the entries that were written
//!    longest ago go, and are counted.
//! 4. **Several processes may use it.** Each change holds the folder's lock, for as long as it
//!    takes to write a file. A confirmation does not remove a message that came meanwhile.

mod entry;
mod folder;

pub use entry::{Entry, MOST_LABEL};
pub use folder::{Counts, Limits, MOST_ASIDE, Spool, Waiting};
