//! Places of a program's threads on the host while it was recorded.
//!
//! * A [`Sampler`] is a thread of `apex run`. It reads the threads' stacks from outside: the
//!   program is not stopped, gets no signal and no thread, and calls nothing for it. [`refusal`]
//!   says whether the system allows that, and [`refusal_of_running`] whether it also copies the
//!   stacks of compiled code that runs.
//! * [`Writer`] appends processes, threads, frames, stacks and [`Span`]s to the session's file
//!   ([`FILE`]).
//! * [`HostStacks::read`] reads that file.
//!
//! All times are nanoseconds of the machine's `CLOCK_MONOTONIC`, the clock that
//! `apex_trace::Clock::monotonic_ns` gives for the records of a session.
//!
//! Invariants:
//! * A definition is written before what names it, and each line is written by one call: a killed
//!   writer leaves whole lines and at most one torn one at the end.
//! * The file never exceeds a stated size. When it is full, spans are thinned uniformly in time,
//!   and a span that stays stands for those that went ([`Span::stands_for`]).
//! * The reader trusts nothing that a file says, and never panics. A damaged line costs what names
//!   it, and is a problem.

mod file;
mod linux;
mod native;
mod process;
mod python;
mod record;
mod running;
mod sampler;
mod waits;

pub use file::{FILE, HostStacks, Writer};
pub use python::refusal;
pub use record::{
    Counters, Doing, Frame, FrameKind, Head, MOST_TEXT, Process, Span, Stack, Thread, WaitsFor,
};
pub use running::refusal as refusal_of_running;
pub use sampler::{Options, Sampler, USUAL_HZ};
