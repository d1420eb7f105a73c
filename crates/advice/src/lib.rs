//! What to change, by what the profile of a session says.
//!
//! * [`advise`] runs the [`rules`] over a profile and ranks what they find by the time that it
//!   would save.
//! * [`compare`] sets runs before and after a change side by side, and says whether advice kept its
//!   promise.
//!
//! Invariants:
//!
//! 1. Nothing here prints, and nothing depends on how a view will look: results are plain data that
//!    serialise.
//! 2. Every figure says where it comes from ([`Provenance`](apex_profile::Provenance)).
//! 3. Advice never claims more than there is: savings in kernels cannot exceed the time that
//!    kernels take, savings on the host cannot exceed the time that the device is idle ([`advise`]
//!    has the rule).

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
    Confidence, Configuration, Direction, Evidence, Finding, KernelFinding, Level, Saving, Scope, Severity,
    Unit, WhatIf,
};
