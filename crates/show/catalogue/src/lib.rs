//! Sessions as things that people list, name and write about.
//!
//! [`Entry`] is a row of a list: what was run, when, for how long, on what, and what its report
//! says first. [`Notes`] is what people say about a session: a name, tags, and dated remarks. They
//! lie in a small file beside the records, which no reader of records looks at, so a session is
//! read the same with, without, and with a damaged one.

mod entry;
mod notes;

pub use entry::{Entry, FirstFinding, State};
pub use notes::{Change, Error, Note, Notes};
