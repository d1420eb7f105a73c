//! Sessions as JSON, CSV, Parquet, traces for Perfetto and in Chrome's format, and call stacks of
//! the host.
//!
//! * [`rows`] are the tables that a session has; [`csv`], [`parquet`] and [`json`] are the
//!   formats that they are written in ([`table::Sink`]).
//! * [`timeline`] turns a session into a trace, for [`perfetto`] or in [`chrome`]'s format.
//! * [`collapsed`], [`speedscope`], [`pprof`] and [`firefox`] have the host's sampled call stacks
//!   while devices were idle.
//!
//! Nothing is judged here. Only definitions, measured durations and one row group are held in
//! memory, because sessions are larger than memory. An unknown value is null.

pub mod chrome;
pub mod collapsed;
pub mod csv;
mod device;
pub mod firefox;
mod idle_stacks;
pub mod json;
mod names;
pub mod parquet;
pub mod perfetto;
pub mod pprof;
pub mod reading;
pub mod rows;
pub mod slices;
pub mod speedscope;
pub mod table;
pub mod timeline;
mod timings;

pub use idle_stacks::has_stacks;
pub use reading::Reading;
