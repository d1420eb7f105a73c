//! The state of the machine while a program was recorded.
//!
//! * A [`Sampler`] is a thread of `apex run`, not of the program. Once a second it reads what NVML
//!   tells of each device ([`nvml`]) and what Linux tells of the host and of the program's
//!   processes ([`host`]), and appends a line to the session's file ([`FILE`]). It reads the energy
//!   counters ten times a second.
//! * [`energy`] says how much energy a device took between two moments, as far as its counter
//!   tells.
//! * [`Machine::read`] reads that file, and [`Watcher`] follows it while it grows.
//! * [`Summary`] says what a window of it amounts to.
//!
//! Invariants:
//! * Nothing is ever set: the binding to NVML has no function that changes a device.
//! * What is not known is missing, never zero. A machine without NVML has readings of the host
//!   alone.
//! * The figures of a device are of everything that runs on it, not of one program.
//! * The file never exceeds a stated size: neighbouring records are merged, and a merged record
//!   keeps the least, the mean and the most of what it replaces.
//! * The reader trusts nothing that a file says. A torn last line is a line that is not there yet.

pub mod energy;
mod file;
pub mod host;
pub mod nvml;
mod quantity;
mod record;
mod sampler;
mod summary;

pub use file::{FILE, Machine, Watcher, Writer};
pub use quantity::{Quantity, Unit};
pub use record::{Device, DeviceRecord, Readings, Record, Span, downsample, overall};
pub use sampler::{Devices, Options, Sampler};
pub use summary::{DeviceSummary, Summary};
