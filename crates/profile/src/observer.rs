//! For who wants to see the single events that a profile is made of, such as an index of a
//! timeline.
//!
//! A profile holds sums. While it is built, an [`Observer`] is told what the sums are of: the calls
//! of each thread, the work of each stream as the model of the device plays it, and what each
//! stretch of the device's time was spent on. Where nobody observes, nothing is kept for it.
//!
//! Invariants: the stretches of a device follow each other without a gap, and what they add up to
//! are its [`crate::Accounts`], to the nanosecond (of which the accounts move a part of the
//! collectives to [`crate::Accounts::waiting`]). The work of one stream comes in the order of its
//! time and does not overlap; the calls of one thread come in the order of their starts.

use std::ops::Range;

use crate::accounts::{IdleCause, PhaseKind};
use crate::profile::Device;

pub use crate::accounts::Use;

/// Is told the events of a session, process by process. Times are nanoseconds after the process's
/// start.
pub trait Observer {
    /// Records were read, of which each process has all read twice.
    fn read(&mut self, records: u64);

    /// What is told from now on is of this process.
    fn process(&mut self, process: &ObservedProcess<'_>);

    /// A driver call.
    fn call(&mut self, call: &ObservedCall);

    /// Work on a stream. What is told of it does not change any more.
    fn work(&mut self, work: &ObservedWork);

    /// What the time of a device (its place in [`ObservedProcess::devices`]) was spent on.
    fn stretch(&mut self, device: Option<usize>, from: u64, to: u64, on: Use);

    /// The innermost range of a thread from that moment on; 0 if there is none.
    fn range(&mut self, thread: u32, at: u64, range: u32);

    /// A range of the process begins or ends: which, and which of its instances.
    fn process_range(&mut self, _at: u64, _range: u32, _instance: u64, _begins: bool) {}
}

/// A process that is told of.
pub struct ObservedProcess<'p> {
    /// Its file.
    pub process: &'p apex_trace::Process,
    /// The devices that its events name.
    pub devices: &'p [Device],
    /// When phases begin, in the order of time.
    pub phases: &'p [(u64, PhaseKind)],
    /// From when to when each iteration lasts, on the host.
    pub iterations: &'p [Range<u64>],
}

/// What was launched or called, by the identifiers of the process's definitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Called {
    /// A launch of a configuration.
    Config(u32),
    /// A launch of a graph.
    Graph(u32),
    /// A call of another entry point.
    Api(u32),
}

/// A driver call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ObservedCall {
    /// The thread that made it.
    pub thread: u32,
    /// When it began.
    pub start: u64,
    /// When it returned.
    pub end: u64,
    /// What sort of call it is: what a device that is idle meanwhile waits for.
    pub cause: IdleCause,
    /// What was called.
    pub called: Called,
    /// Bytes that it copies, sets or allocates.
    pub bytes: u64,
    /// The innermost range of its thread; 0 if there is none.
    pub range: u32,
}

/// Work on a stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ObservedWork {
    /// Place in [`ObservedProcess::devices`].
    pub device: Option<usize>,
    /// Its stream.
    pub stream: u32,
    /// When it begins: modelled.
    pub start: u64,
    /// When it ends.
    pub end: u64,
    /// Kernels, collectives, copies or unknown.
    pub on: Use,
    /// What was launched or called.
    pub called: Called,
    /// Whether this launch was timed, and its duration is what was read.
    pub is_timed: bool,
    /// Its end may be off by so much to either side, in nine of ten cases.
    pub off_ns: f64,
    /// The thread that queued it.
    pub thread: u32,
    /// When the call began that queued it.
    pub call_start: u64,
}
