//! Sessions that are followed, as metrics in Prometheus' text format and in OpenTelemetry's
//! protocol; and sessions as spans in the latter ([`Spans`]).
//!
//! An [`Exporter`] takes one [`apex_live::Snapshot`] of each session after the other and writes
//! what they add up to. Names and labels follow Prometheus' conventions: base units, `_total` for
//! counters, ratios never in per cent. A device is labelled `UUID="GPU-…"`, as dcgm-exporter labels
//! it, so that both join.
//!
//! Invariants:
//!
//! 1. Nothing here does input or output, but that spans are read from a session.
//! 2. A counter never decreases as long as its exporter lives: what is estimated from windows is
//!    summed over windows that follow each other, and kernels keep the series that they have once
//!    got.
//! 3. Cardinality is bounded: by devices, by [`Exporter::new`]'s number of kernels of each session,
//!    and by [`MOST_SESSIONS`].
//! 4. Foreign text is in label values alone, escaped.

mod exporter;
mod format;
mod metric;
pub mod otlp;
mod session;
mod spans;

pub use exporter::{Exporter, MOST_SESSIONS};
pub use metric::{METRICS, Metric, MetricKind};
pub use spans::{MOST_KERNELS, MOST_SPANS, Spans};
