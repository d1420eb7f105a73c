//! Sessions as JSON, CSV, Parquet and Perfetto traces.
pub mod csv;
pub mod parquet;
pub mod perfetto;
pub mod protobuf;
pub mod table;
