//! The message of one recording to the fleet.
//!
//! An [`Aggregate`] is a message of some kilobytes: whose the recording is, which devices it holds,
//! where their time went, which kernels took it and what would save some of it. `apex run --to`
//! writes one again and again while the program runs. Each is *cumulative*: it replaces every
//! earlier one of the same [`recording`](Aggregate::recording), which [`Aggregate::sequence`]
//! orders. Whoever keeps the newest of each recording and adds these up has counted everything
//! once.
//!
//! Invariants:
//!
//! 1. **Sums are exact.** Times are whole microseconds, rounded once, here; what is added up is
//!    bounded ([`MOST_US`]), so that 64 bits hold the sum of 65,000 of the largest messages.
//! 2. **The times of a use add up**: [`Times::held_us`] is what a device was held for, and the
//!    other times are its parts ([`Times::parts`]). Where processes share a device, each use has
//!    its own; [`Aggregate::holds`] tells when each device was held.
//! 3. **Everything has a bound**, which [`Aggregate::parse`] checks before anybody uses a value:
//!    bytes, lengths of texts and lists, numbers. Nothing is truncated when it is read; whoever
//!    writes a message truncates texts ([`shortened`]).

mod message;
mod refusal;
mod times;

pub use message::{
    Aggregate, Allocation, Device, End, Energy, Finding, Hold, Job, Kernel, Kernels, Kind, MOST_BYTES,
    MOST_COMMAND, MOST_DEVICES, MOST_FINDINGS, MOST_KERNELS, MOST_TEXT, MOST_USES, Metered, Reading, Step,
    Use, shortened,
};
pub use refusal::Refusal;
pub use times::{IDLE_CAUSES, MOST_US, PARTS, Times};
