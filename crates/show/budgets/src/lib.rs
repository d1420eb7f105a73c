//! Budgets of a program's runs: limits in a file, which a run in CI must keep.
//!
//! * [`Measures`] are the figures of a run that can have a limit ([`Quantity`]), for the whole and
//!   for each kernel function.
//! * [`Budgets`] is the file: one section for runs on a GPU, one for runs on the CPU device.
//! * [`Report`] says for each limit what the runs have, and which exceed it.
//!
//! Invariants:
//!
//! 1. A count of a run is exact: its limit is what the first runs had, and the worst run is judged.
//!    A time, a share or a count of a step varies: its limit has a margin
//!    ([`Quantity::margin`]), and the mean of the runs is judged.
//! 2. The CPU device's times are those of a busy host: they have no limits.
//! 3. What a limit needs and a run does not have is a failure with the reason, never a silent
//!    success.

mod file;
mod measures;
mod quantity;
mod report;
mod shown;

pub use file::{Budgets, Error, Section};
pub use measures::{Measures, Per};
pub use quantity::Quantity;
pub use report::{Judged, Outcome, Report, number};
pub use shown::{github, junit, markdown};
