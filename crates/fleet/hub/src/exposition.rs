//! The hub's own metrics, in Prometheus' text format. They hold nothing of a tenant.

use crate::health::Health;
use crate::store::{Error, Store};
use std::fmt::Write as _;

/// Media type of the text.
pub const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The metrics now.
///
/// # Errors
/// Those of the database.
pub fn text(store: &Store, health: &Health, started_ns: u64) -> Result<String, Error> {
    let (jobs, recordings, bytes) = store.size()?;
    let mut text = String::new();
    let mut single = |name: &str, kind: &str, help: &str, value: f64| {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
    };
    single(
        "apex_hub_start_time_seconds",
        "gauge",
        "When the hub started, since 1970.",
        started_ns as f64 / 1e9,
    );
    single("apex_hub_jobs", "gauge", "Jobs that are stored.", jobs as f64);
    single("apex_hub_recordings_total", "counter", "Recordings that ever came.", recordings as f64);
    single("apex_hub_database_bytes", "gauge", "Bytes of the database.", bytes as f64);
    let name = "apex_hub_messages_total";
    let _ = writeln!(
        text,
        "# HELP {name} Messages and requests since the hub started, by outcome.\n# TYPE {name} counter"
    );
    for (outcome, count) in health.counts() {
        let _ = writeln!(text, "{name}{{outcome=\"{}\"}} {count}", outcome.name());
    }
    Ok(text)
}
