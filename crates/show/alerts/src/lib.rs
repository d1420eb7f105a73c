//! Alerts about followed sessions.
//!
//! [`Alerts`] takes one [`apex_live::Snapshot`] of each session after the other, judges the
//! conditions of each [`Rule`] on it, and returns a [`Notice`] if there is something to report:
//! that a condition holds, that it still does, that it is over. [`message`] writes notices as a
//! line for a terminal, as JSON, and as Prometheus' Alertmanager takes them.
//!
//! Invariants:
//!
//! 1. Nothing here does input or output, and no clock is read: a look is given its [`Moment`].
//! 2. Nothing flaps ([`tracker`]): a condition has to hold at [`LOOKS`] looks one after the other
//!    before an alert fires, and has to be over, by a wider margin, at as many before it resolves.
//!    What is not known at a look changes nothing. (What is lost is lost: one look will do.)
//! 3. An alert is repeated no more often than asked for.
//! 4. What is kept is bounded: [`MOST_CONDITIONS`], and [`MOST_SESSIONS`].
//! 5. Foreign text is escaped in whatever is made to be read.

mod alerts;
mod conditions;
pub mod message;
mod moment;
mod rule;
mod subject;
mod tracker;

pub use alerts::{Alert, Alerts, MOST_SESSIONS, Notice, State};
pub use conditions::{Reference, View};
pub use moment::{Moment, rfc3339};
pub use rule::{Limits, Rule};
pub use subject::Subject;
pub use tracker::{Change, LOOKS, MOST_CONDITIONS, Tracker, Verdict};
