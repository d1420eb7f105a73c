//! Advice from the profile of a session.
//!
//! * [`advise`] runs the [`rules`] over a profile and ranks their findings by the saved time.
//! * [`compare`] compares runs before and after a change, and says whether advice kept its promise.
//!
//! Invariants:
//!
//! 1. Nothing here prints or depends on a view: results are plain data that can be serialised.
//! 2. Every figure has its [`Provenance`](apex_profile::Provenance).
//! 3. Claimed savings are possible: savings in kernels do not exceed the kernels' time, and savings
//!    on the host do not exceed the device's idle time (see [`advise`]).

mod advise;
mod compare;
mod finding;
mod prediction;
pub mod rules;

pub use advise::{Advice, Options, Unjudged, Verdict, advise};
pub use compare::{
    AccountChange, Basis, Change, Comparison, CountChanges, Followed, Kept, KernelChange, KernelCountChanges,
    NewFinding, Per, Presence, Run, State, Steps, Together, compare,
};
pub use finding::{
    Confidence, Configuration, Direction, Evidence, Finding, KernelFinding, KnownCause, Level, Observed,
    Quoted, Saving, Scope, Severity, Unit, WhatIf,
};
