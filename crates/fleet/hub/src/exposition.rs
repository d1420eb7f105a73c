//! Metrics in Prometheus' text format: the hub's own, which hold nothing of a tenant, and those of
//! the GPUs that a tenant's runs use now.

use crate::health::Health;
use crate::pages::SILENT_NS;
use crate::store::{Error, Store, unpacked};
use apex_aggregate::{Device, End, Job, Reading};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Media type of the text.
pub const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Recordings whose devices are told, the newest.
const MOST_RECORDINGS: usize = 1000;
/// What is told of a GPU: name of the reading, of the metric by OpenTelemetry's conventions for
/// hardware as Prometheus writes it, and its help. (NVML's utilization of the memory is the share
/// of time in which it was read or written; `hw.gpu.memory.utilization` is the share of bytes in
/// use.)
const OF_GPUS: [(&str, &str, &str); 2] = [
    (
        "gpu_utilization",
        "hw_gpu_utilization_ratio",
        "Share of time in which a kernel ran, by NVML: mean of the run so far.",
    ),
    ("memory_used_bytes", "hw_gpu_memory_usage_bytes", "Device memory in use: mean of the run so far."),
];

/// What is read of a message, whose bounds were checked when it came.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Seen {
    job: Job,
    owner: String,
    host: String,
    ended: Option<End>,
    devices: Vec<Device>,
    machine: Vec<Reading>,
}

/// The hub's own metrics now.
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

/// The metrics of the GPUs that a tenant's runs use now, of each GPU by the newest message.
///
/// # Errors
/// Those of the database.
pub fn devices(store: &Store, tenant: &str, now_ns: u64) -> Result<String, Error> {
    let since = now_ns.saturating_sub(SILENT_NS);
    let messages = store.newest_messages(tenant, since, MOST_RECORDINGS)?;
    let mut values: [BTreeMap<String, f64>; OF_GPUS.len()] = Default::default();
    for packed in messages {
        let seen = unpacked(&packed).and_then(|bytes| serde_json::from_slice::<Seen>(&bytes).ok());
        let Some(of) = seen.filter(|of| of.ended.is_none()) else { continue };
        for reading in of.machine.iter().filter(|reading| !reading.uuid.is_empty()) {
            let Some(at) = OF_GPUS.iter().position(|(key, ..)| *key == reading.name) else { continue };
            values[at].entry(labels(&of, &reading.uuid)).or_insert(reading.mean);
        }
    }
    let mut text = String::new();
    for ((_, name, help), values) in OF_GPUS.iter().zip(&values).filter(|(_, values)| !values.is_empty()) {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
        for (labels, value) in values {
            let _ = writeln!(text, "{name}{{{labels}}} {value}");
        }
    }
    Ok(text)
}

/// The labels of a GPU: the conventions' attributes, with the job by which it is used.
fn labels(of: &Seen, uuid: &str) -> String {
    let device = of.devices.iter().find(|device| device.uuid == uuid);
    let name = device.map_or("", |device| device.name.as_str());
    let labels = [
        ("hw_id", uuid),
        ("hw_type", "gpu"),
        ("hw_name", name),
        ("hw_gpu_task", "general"),
        ("host_name", &of.host),
        ("apex_job", &of.job.id),
        ("apex_owner", &of.owner),
    ];
    let escaped = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    labels.map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).join(",")
}
