//! Access to the single events behind a profile's sums, for instance for the index of a timeline.
//!
//! While a profile is built, an [`Observer`] receives the calls of each thread, the work of each
//! stream according to the model of the device, and the use of each stretch of the device's time.
//! Without an observer, none of this is stored.
//!
//! Invariants: the stretches of a device follow each other without a gap and add up to its
//! [`crate::Accounts`], to the nanosecond (the accounts then move a part of the collectives to
//! [`crate::Accounts::waiting`]). The work of a stream arrives in the order of time and does not
//! overlap, except where another profiler recorded that it did; the calls of a thread arrive in the
//! order of their starts.

use std::ops::Range;

use crate::accounts::{IdleCause, PhaseKind};
use crate::profile::Device;

pub use crate::accounts::Use;

/// Receives the events of a session, process by process. Times are in nanoseconds after the start
/// of the process.
pub trait Observer {
    /// This many records were read; all records of a process are read twice.
    fn read(&mut self, records: u64);

    /// The following events belong to this process.
    fn process(&mut self, process: &ObservedProcess<'_>);

    /// A driver call.
    fn call(&mut self, call: &ObservedCall);

    /// Work on a stream, in its final form.
    fn work(&mut self, work: &ObservedWork);

    /// Use of a stretch of a device's time; `device` is an index into [`ObservedProcess::devices`].
    fn stretch(&mut self, device: Option<usize>, from: u64, to: u64, on: Use);

    /// The innermost range of a thread from this time on; 0 if there is none.
    fn range(&mut self, thread: u32, at: u64, range: u32);

    /// An instance of a process-wide range begins or ends.
    fn process_range(&mut self, _at: u64, _range: u32, _instance: u64, _begins: bool) {}
}

/// A process whose events follow.
pub struct ObservedProcess<'p> {
    /// The process.
    pub process: &'p apex_trace::Process,
    /// The devices that its events name.
    pub devices: &'p [Device],
    /// Starts of the phases, in the order of time.
    pub phases: &'p [(u64, PhaseKind)],
    /// The iterations, in the host's time.
    pub iterations: &'p [Range<u64>],
    /// Whether another profiler recorded when work ran: its start is not modelled then, and it may
    /// overlap earlier work of its stream.
    pub is_placed: bool,
}

/// The launched configuration or graph, or the called entry point, by the identifier of its
/// definition.
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
    /// Start.
    pub start: u64,
    /// Return.
    pub end: u64,
    /// The cause of idle time that the call can explain.
    pub cause: IdleCause,
    /// The called entry point.
    pub called: Called,
    /// Bytes copied, set or allocated.
    pub bytes: u64,
    /// The innermost range of its thread; 0 if there is none.
    pub range: u32,
}

/// Work on a stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ObservedWork {
    /// Index into [`ObservedProcess::devices`].
    pub device: Option<usize>,
    /// Its stream.
    pub stream: u32,
    /// Start, from the model of the device.
    pub start: u64,
    /// End.
    pub end: u64,
    /// Kernels, collectives, copies or unknown.
    pub on: Use,
    /// The launched or called object.
    pub called: Called,
    /// Whether this launch was timed; its duration is then measured.
    pub is_timed: bool,
    /// Half the width of the 90% interval of its end.
    pub off_ns: f64,
    /// The thread that queued it.
    pub thread: u32,
    /// Start of the call that queued it.
    pub call_start: u64,
}
