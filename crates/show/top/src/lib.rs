//! The screen of `apex top`: what sessions do while they are recorded.
//!
//! * A [`Look`] is a session at one moment: its last seconds and the advice about them.
//! * [`Top`] holds the latest look at each session and what the user chose with keys ([`Key`]).
//! * [`Top::render`] draws a frame into a buffer of any size.
//!
//! Invariants:
//!
//! 1. Nothing here knows a terminal, a clock or a file: the same looks and keys give the same
//!    frame.
//! 2. A frame fits every area. What does not fit is left out, the least important first.
//! 3. Foreign text (names of kernels, commands, paths) is printable before it gets into a frame.
//! 4. Memory is bounded by a fixed number of sessions, each with one look and a fixed history.

mod history;
mod look;
mod screen;
mod top;

pub use look::Look;
pub use screen::Theme;
pub use top::{Action, Key, Sort, Top};
