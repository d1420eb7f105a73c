//! Sessions as JSON, CSV, Parquet and Perfetto traces.
//!
//! * [`rows`] are the tables that a session has; [`csv`], [`parquet`] and [`json`] are where they can go ([`table::Sink`]).
//! * [`timeline`] turns a session into a [`perfetto`] trace.
//!
//! Nothing is judged here, and nothing is held in memory but definitions, measured durations and one row group: sessions
//! are larger than memory. What is not known is null.

pub mod csv;
pub mod json;
mod names;
pub mod parquet;
pub mod perfetto;
pub mod reading;
pub mod rows;
pub mod table;
pub mod timeline;
mod timings;

pub use reading::Reading;
