//! The profile of a session, which views show and rules judge.
//!
//! * [`Profile::from_session`] streams through the records of a session and holds kernels by
//!   configuration, calls, memory, copies, streams, repeated sequences, and the time line of each
//!   device.
//! * [`Builder`] adds process by process. Builders of several sessions (ranks, hosts) can be
//!   merged: they hold counts, sums and sketches, so the result is the profile of all records.
//! * [`Accounts`] divide the time of a device in each [`Phase`] of a program.
//! * [`Figure`] is a value with its [`Provenance`]; [`Distribution`] is a sketch of durations.
//! * [`Selection`] is a part of a session: some processes, a window of time.
//! * [`units`] formats numbers for all views and sentences, and parses them.
//! * [`Prediction`] holds the models' predictions for a kernel; `apex-predict-session` computes
//!   them, and [`Profile::with`] takes them.
//!
//! Invariants:
//!
//! 1. Nothing here prints, judges or depends on a view: results are plain data that can be
//!    serialised.
//! 2. Every figure has its [`Provenance`]. Plain integers are counts of records, hence measured.
//! 3. Memory is bounded by distinct configurations, live allocations and a fixed history per
//!    stream; never by the number of records.

mod accounts;
mod figure;
mod observer;
mod pattern;
mod prediction;
mod profile;
mod readings;
mod saturating;
mod selection;
mod sketch;
mod source_line;
pub mod units;

pub use accounts::{Account, Accounts, IdleCause, Iterations, OverTime, Pauses, Phase, PhaseCall, PhaseKind};
pub use apex_kernel_names as names;
pub use figure::{Figure, Provenance, total};
pub use observer::{Called, ObservedCall, ObservedProcess, ObservedWork, Observer, Use};
pub use pattern::KernelPattern;
pub use prediction::{Bound, BoundBy, Prediction, Work};
pub use profile::*;
pub use readings::Reading;
pub use saturating::SaturatingSum;
pub use selection::{Ranks, Selection, launched_rank, origin_ns};
pub use sketch::Distribution;
