//! Compares the metrics that are pushed to a collector, decoded by OpenTelemetry's own classes
//! (Python's package `opentelemetry-proto`), with those that Prometheus scrapes.
//!
//! Skipped, with a message, where the package is not installed (`scripts/test-deps.sh` installs
//! it).

mod decoding;

use apex_live::Follower;
use apex_metrics::otlp::Origin;
use apex_metrics::{Exporter, METRICS, MetricKind};
use apex_trace::layout::MemoryKind;
use decoding::decoded;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use test_session::{LEGACY, Recording};

const ORIGIN: Origin<'_> = Origin { version: "1.2.3", host: "node-7", began_ns: 1_000, now_ns: 2_000 };

/// Prints one JSON document for each resource, scope and data point of a request.
const DECODE: &str = r#"
import json, sys
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE
request = ExportMetricsServiceRequest.FromString(sys.stdin.buffer.read())
attributes = lambda of: {entry.key: entry.value.string_value for entry in of.attributes}
for of_resource in request.resource_metrics:
    print(json.dumps({"resource": attributes(of_resource.resource)}))
    for of_scope in of_resource.scope_metrics:
        print(json.dumps({"scope": of_scope.scope.name, "version": of_scope.scope.version}))
        for metric in of_scope.metrics:
            kind = metric.WhichOneof("data")
            data = getattr(metric, kind)
            if kind == "sum":
                assert data.aggregation_temporality == AGGREGATION_TEMPORALITY_CUMULATIVE
            for point in data.data_points:
                assert point.WhichOneof("value") == "as_double"
                print(json.dumps({
                    "name": metric.name, "unit": metric.unit, "described": bool(metric.description),
                    "counter": kind == "sum" and data.is_monotonic, "attributes": attributes(point),
                    "began": point.start_time_unix_nano, "at": point.time_unix_nano, "value": point.as_double,
                }))
"#;

/// A metric's name as Prometheus has it, by OpenTelemetry's rules: units and kinds are suffixes,
/// annotations in braces are none.
fn prometheus_name(name: &str, unit: &str, is_counter: bool) -> String {
    let unit = match unit {
        "s" => "_seconds",
        "By" => "_bytes",
        "J" => "_joules",
        other => {
            assert!(other.is_empty() || other.starts_with('{'), "{other}");
            ""
        }
    };
    format!("{}{unit}{}", name.replace('.', "_"), if is_counter { "_total" } else { "" })
}

#[test]
fn names_and_units_are_those_of_prometheus() {
    for metric in METRICS {
        let is_counter = metric.kind != MetricKind::Gauge;
        assert_eq!(prometheus_name(&metric.otel_name(), metric.unit, is_counter), metric.name);
    }
}

#[test]
fn a_collector_receives_what_prometheus_scrapes() {
    let dir = tempfile::tempdir().unwrap();
    let mut recording = Recording::new(dir.path());
    let function = recording.function("a\"b\\c\u{1b}[31mé");
    let config = recording.config(function, 264, 256);
    for _ in 0..30 {
        recording.timed(config, LEGACY, 1_000_000);
        recording.now += 10_000_000;
    }
    recording.allocate(MemoryKind::Pool, 0x10, 10, 1_000);
    recording.copy(MemoryKind::Pageable, MemoryKind::Device, 10, false, 1_000);
    recording.exit();
    test_session::open(&dir);
    let mut exporter = Exporter::new(10);
    exporter.look("s", &mut Follower::new(dir.path(), Duration::ZERO)).unwrap();

    let Some(mut documents) = decoded(DECODE, &exporter.otlp(&ORIGIN)) else { return };
    let points = documents.split_off(2);
    let resource = json!({"service.name": "apex", "service.version": "1.2.3", "host.name": "node-7"});
    assert_eq!(
        documents,
        [json!({"resource": resource}), json!({"scope": "apex.metrics", "version": "1.2.3"})]
    );
    let mut received = BTreeMap::new();
    for point in &points {
        let text = |member: &str| point[member].as_str().unwrap();
        let is_counter = point["counter"].as_bool().unwrap();
        let name = prometheus_name(text("name"), text("unit"), is_counter);
        // The session does not say when it began; the sums over what was followed do.
        let began = if name.starts_with("apex_gpu_") { 1_000 } else { 0 };
        assert_eq!(
            (&point["described"], &point["at"], &point["began"]),
            (&true.into(), &2_000.into(), &began.into())
        );
        let quoted = |value: &Value| value.as_str().unwrap().replace('\\', "\\\\").replace('"', "\\\"");
        let labels = point["attributes"].as_object().unwrap().iter().map(|(name, value)| {
            format!("{}=\"{}\"", if name == "hw.id" { "UUID" } else { name }, quoted(value))
        });
        let mut labels: Vec<_> = labels.collect();
        labels.sort();
        received.insert((name, labels), point["value"].as_f64().unwrap());
    }
    let scraped = exporter.text("1.2.3");
    let scraped = scraped.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let (series, value) = line.rsplit_once("} ").unwrap();
        let (name, labels) = series.split_once('{').unwrap();
        let mut labels: Vec<_> =
            labels.split_inclusive("\",").map(|label| label.trim_end_matches(',').to_owned()).collect();
        labels.sort();
        ((name.to_owned(), labels), value.parse::<f64>().unwrap())
    });
    assert_eq!(received, scraped.collect::<BTreeMap<_, _>>());
    assert!(received.len() > METRICS.len());
}
