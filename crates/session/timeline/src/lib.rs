//! A session's events over time, at any zoom.
//!
//! An *index* is made of a session once: one pass of the profile's builder, whose observer writes
//! the events of every *lane* (what a device does, the work of a stream, the calls and ranges of a
//! thread) in blocks, with cells of all lengths above them. A picture of any part of the session
//! then reads as much as it has columns, whatever the session's length.
//!
//! The index lies beside the session's files ([`INDEX_FILE`]) and can be removed at any time;
//! [`Timelines`] makes it in the background, keeps it while it is the session's, and makes it anew
//! when the session has grown or the file is damaged.
//!
//! Invariants:
//!
//! 1. The file of an index is foreign input when it is read: each block has a checksum, every
//!    number is checked, and what is read for an answer is bounded. Garbage is an error, never a
//!    panic.
//! 2. What a column says is what its events say: time, counts, shortest and longest are exact, a
//!    median is within 4.4%, and what takes most of it is found among the names that each cell
//!    keeps.
//! 3. The time of a device's lane adds up to its accounts, to the nanosecond.
//! 4. Memory is bounded by lanes and by what their events name, never by the number of events.

mod answer;
mod build;
mod cell;
mod event;
mod file;
mod lane;
mod leb128;
mod query;
mod store;
mod tables;
#[cfg(test)]
mod tests;
mod tree;

pub use answer::{Asked, AskedLaunch, MOST_COLUMNS, MOST_EVENTS, Missing, Question, Step, Unanswered};
pub use build::Progress;
pub use store::{INDEX_FILE, Look, Problem, Timeline, Timelines};

/// The version of APEX that makes an index, as a number: another version models devices otherwise,
/// perhaps.
const MAKER: u64 = {
    let (text, mut hash, mut at) = (env!("CARGO_PKG_VERSION").as_bytes(), 0xcbf2_9ce4_8422_2325_u64, 0);
    while at < text.len() {
        hash = (hash ^ text[at] as u64).wrapping_mul(0x0100_0000_01b3);
        at += 1;
    }
    hash
};
