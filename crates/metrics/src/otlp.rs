//! The same series as OpenTelemetry's protocol has them (OTLP 1, metrics), in protocol buffers.
//!
//! Names are [`Metric::otel_name`], with [`Metric::unit`], which OpenTelemetry's rules for
//! Prometheus turn into the names of the text format. A device's UUID is the attribute `hw.id`, as
//! the conventions for hardware have it; the other labels keep their names. Sums are cumulative,
//! since their session or its exporter began.

use crate::format::{Point, Series};
use crate::metric::{METRICS, Metric, MetricKind};
use apex_protobuf::Message;

/// Media type of a request.
pub const MEDIA_TYPE: &str = "application/x-protobuf";
/// What stands behind a collector's address.
pub const PATH: &str = "/v1/metrics";
/// `AggregationTemporality`: since the start.
const CUMULATIVE: u64 = 2;

/// Who exports, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin<'a> {
    /// Version of APEX.
    pub version: &'a str,
    /// The machine's name; empty where it is not known.
    pub host: &'a str,
    /// When the exporter began, nanoseconds since 1970.
    pub began_ns: u64,
    /// When this is, nanoseconds since 1970.
    pub now_ns: u64,
}

impl Series {
    /// An `ExportMetricsServiceRequest` with all of them.
    pub(crate) fn otlp(&self, origin: &Origin<'_>) -> Vec<u8> {
        let mut resource = Message::new();
        resource.message(1, &attribute("service.name", "apex"));
        resource.message(1, &attribute("service.version", origin.version));
        if !origin.host.is_empty() {
            resource.message(1, &attribute("host.name", origin.host));
        }
        let mut scope = Message::new();
        scope.text(1, "apex.metrics").text(2, origin.version);
        let mut of_scope = Message::new();
        of_scope.message(1, &scope);
        for metric in METRICS {
            let points = self.points(metric, origin);
            if !points.is_empty() {
                of_scope.message(2, &message_of(metric, &points));
            }
        }
        let mut of_resource = Message::new();
        of_resource.message(1, &resource).message(2, &of_scope);
        let mut request = Message::new();
        request.message(1, &of_resource);
        request.as_bytes().to_vec()
    }

    /// The series of a metric, as `NumberDataPoint`s.
    fn points(&self, metric: &Metric, origin: &Origin<'_>) -> Vec<Message> {
        let point = |series: &Point| {
            let mut point = Message::new();
            for (name, value) in &series.labels {
                let name = if *name == "UUID" { "hw.id" } else { *name };
                point.message(7, &attribute(name, value));
            }
            match metric.kind {
                MetricKind::Counter => point.fixed(2, series.session_began_ns),
                MetricKind::Followed => point.fixed(2, origin.began_ns),
                MetricKind::Gauge => &mut point,
            };
            point.fixed(3, origin.now_ns).fixed(4, series.value.to_bits());
            point
        };
        self.of(metric).iter().map(point).collect()
    }
}

/// A `Metric` with its data.
fn message_of(metric: &Metric, points: &[Message]) -> Message {
    let mut data = Message::new();
    for point in points {
        data.message(1, point);
    }
    let mut message = Message::new();
    message.text(1, &metric.otel_name()).text(2, metric.help).text(3, metric.unit);
    match metric.kind {
        MetricKind::Counter | MetricKind::Followed => {
            message.message(7, data.integer(2, CUMULATIVE).integer(3, 1))
        }
        MetricKind::Gauge => message.message(5, &data),
    };
    message
}

/// A `KeyValue` of text.
fn attribute(key: &str, value: &str) -> Message {
    let (mut text, mut attribute) = (Message::new(), Message::new());
    attribute.text(1, key).message(2, text.text(1, value));
    attribute
}
