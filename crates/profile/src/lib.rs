//! The profile of a session: what every view shows and every rule judges.
//!
//! * [`Profile::from_session`] streams through the records of a session and holds kernels by
//!   configuration, calls, memory, copies, streams, repeated sequences, and the time line of each
//!   device.
//! * [`Builder`] does so process by process. Builders of several sessions (ranks, hosts) merge;
//!   what they hold are counts, sums and sketches, so that the merge is the profile of all records.
//! * [`Accounts`] say where the time of a device went, of each [`Phase`] of a program.
//! * [`Figure`] is a value with its [`Provenance`]; [`Distribution`] is a sketch of durations.
//! * [`Selection`] is a part of a session: some processes, a window of time.
//! * [`units`] writes numbers as all views and all sentences have them.
//! * [`Prediction`] has room for what models say of a kernel; `apex-predict` fills it in.
//!
//! Invariants:
//!
//! 1. Nothing here prints or judges, and nothing depends on how a view will look: results are plain
//!    data that serialise.
//! 2. Every figure says where it comes from ([`Provenance`]). Plain integers are counts of records,
//!    hence measured.
//! 3. Memory is bounded by distinct configurations, live allocations and a fixed history per
//!    stream; never by the number of records.

mod accounts;
mod figure;
mod observer;
mod prediction;
mod profile;
mod selection;
mod sketch;
mod sums;
pub mod units;

pub use accounts::{Account, Accounts, IdleCause, Iterations, OverTime, Pauses, Phase, PhaseCall, PhaseKind};
pub use apex_kernel_names as names;
pub use figure::{Figure, Provenance, total};
pub use observer::{Called, ObservedCall, ObservedProcess, ObservedWork, Observer, Use};
pub use prediction::{Bound, BoundBy, Prediction, Work};
pub use profile::*;
pub use selection::{KernelPattern, Selection, origin_ns, ranks};
pub use sketch::Distribution;
pub use sums::SaturatingSum;
