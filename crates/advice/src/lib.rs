//! What a session says, and what to change.
//!
//! * [`Profile::from_session`] streams through the records of a session and holds what every view shows: kernels by
//!   configuration, calls, memory, copies, streams, repeated sequences, the time line of each device.
//! * [`advise`] runs the [`rules`] over a profile and ranks what they find by the time that it would save.
//! * [`Profile::predict`](profile::Profile::predict) adds what the models of `predict` say of each kernel.
//! * [`compare`] sets two profiles side by side.
//!
//! Invariants:
//!
//! 1. Nothing here prints, and nothing depends on how a view will look: results are plain data that serialise.
//! 2. Every figure says where it comes from ([`Provenance`]). Plain integers are counts of records, hence measured.
//! 3. Memory is bounded by distinct configurations, live allocations and a fixed history per stream; never by the number
//!    of records.
//! 4. Advice never claims more than there is: savings in kernels cannot exceed the time that kernels take, savings on the
//!    host cannot exceed the time that the device is idle ([`advise`] has the rule).

mod advise;
mod compare;
mod figure;
mod finding;
mod names;
pub mod prediction;
pub mod profile;
pub mod rules;
mod sketch;
mod sums;

pub use advise::{Advice, Options, Unjudged, Verdict, advise};
pub use compare::{Change, Comparison, KernelChange, Presence, compare};
pub use figure::{Figure, Provenance};
pub use finding::{
    Confidence, Configuration, Direction, Evidence, Finding, KernelFinding, Level, Saving, Scope, Severity,
    Unit, WhatIf,
};
pub use names::{demangled, shortened};
pub use prediction::{Estimate, Prediction};
pub use profile::Profile;
pub use sketch::Distribution;
