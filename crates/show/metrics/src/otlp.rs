//! The same series, and the spans of sessions, as OpenTelemetry's protocol has them (OTLP 1), in
//! protocol buffers.
//!
//! Names are [`Metric::otel_name`], with [`Metric::unit`], which OpenTelemetry's rules for
//! Prometheus turn into the names of the text format. A device's UUID is the attribute `hw.id`, as
//! the conventions for hardware have it; the other labels keep their names. Sums are cumulative,
//! since their session or its exporter began.

use crate::format::{Point, Series};
use crate::metric::{METRICS, Metric, MetricKind};
use crate::spans::{Span, Spans, Value};
use apex_protobuf::Message;

/// Media type of a request.
pub const MEDIA_TYPE: &str = "application/x-protobuf";
/// The path of a collector for metrics.
pub const METRICS_PATH: &str = "/v1/metrics";
/// The path of a collector for spans.
pub const SPANS_PATH: &str = "/v1/traces";
/// `AggregationTemporality`: since the start.
const CUMULATIVE: u64 = 2;
/// `SpanKind`: neither a request nor an answer.
const INTERNAL: u64 = 1;
/// `StatusCode`: an error.
const ERROR: u64 = 2;

/// The exporter, with its times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin<'a> {
    /// Version of APEX.
    pub version: &'a str,
    /// The machine's name; empty where it is not known.
    pub host: &'a str,
    /// The start of the exporter, in nanoseconds since 1970.
    pub began_ns: u64,
    /// The present time, in nanoseconds since 1970.
    pub now_ns: u64,
}

impl Series {
    /// An `ExportMetricsServiceRequest` with all of them.
    pub(crate) fn otlp(&self, origin: &Origin<'_>) -> Vec<u8> {
        let resource = resource(origin.version, origin.host);
        let mut of_scope = of_scope("apex.metrics", origin.version);
        for metric in METRICS {
            let points = self.points(metric, origin);
            if !points.is_empty() {
                of_scope.message(2, &message_of(metric, &points));
            }
        }
        let mut request = Message::new();
        request.message(1, &of_resource(&resource, &of_scope));
        request.as_bytes().to_vec()
    }

    /// The series of a metric, as `NumberDataPoint`s.
    fn points(&self, metric: &Metric, origin: &Origin<'_>) -> Vec<Message> {
        let point = |series: &Point| {
            let mut point = Message::new();
            for (name, value) in &series.labels {
                let name = if *name == "UUID" { "hw.id" } else { *name };
                point.message(7, &attribute(name, &Value::from(value.as_str())));
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

impl Spans {
    /// An `ExportTraceServiceRequest` with all of them: those of a process in a resource of its
    /// own.
    pub fn otlp(&self, version: &str) -> Vec<u8> {
        let mut request = Message::new();
        for process in &self.processes {
            let mut resource = resource(version, &self.host);
            for (name, value) in &process.attributes {
                resource.message(1, &attribute(name, value));
            }
            let mut of_scope = of_scope("apex.spans", version);
            for span in &process.spans {
                of_scope.message(2, &self.message_of(span));
            }
            request.message(1, &of_resource(&resource, &of_scope));
        }
        request.as_bytes().to_vec()
    }

    /// A `Span`.
    fn message_of(&self, span: &Span) -> Message {
        let mut message = Message::new();
        message.bytes(1, &self.trace).bytes(2, &span.id.to_be_bytes());
        if let Some(parent) = span.parent {
            message.bytes(4, &parent.to_be_bytes());
        }
        message.text(5, &span.name).integer(6, INTERNAL);
        message.fixed(7, span.start_ns).fixed(8, span.end_ns.max(span.start_ns));
        for (name, value) in &span.attributes {
            message.message(9, &attribute(name, value));
        }
        if let Some(error) = &span.error {
            let mut status = Message::new();
            message.message(15, status.text(2, error).integer(3, ERROR));
        }
        message
    }
}

/// A `Resource`: who exports.
fn resource(version: &str, host: &str) -> Message {
    let mut resource = Message::new();
    resource.message(1, &attribute("service.name", &"apex".into()));
    resource.message(1, &attribute("service.version", &version.into()));
    if !host.is_empty() {
        resource.message(1, &attribute("host.name", &host.into()));
    }
    resource
}

/// A `ScopeMetrics` or `ScopeSpans` that holds nothing yet.
fn of_scope(name: &str, version: &str) -> Message {
    let (mut scope, mut of_scope) = (Message::new(), Message::new());
    of_scope.message(1, scope.text(1, name).text(2, version));
    of_scope
}

/// A `ResourceMetrics` or `ResourceSpans`.
fn of_resource(resource: &Message, of_scope: &Message) -> Message {
    let mut of_resource = Message::new();
    of_resource.message(1, resource).message(2, of_scope);
    of_resource
}

/// A `KeyValue`.
fn attribute(key: &str, value: &Value) -> Message {
    let (mut any, mut attribute) = (Message::new(), Message::new());
    match value {
        Value::Text(text) => any.text(1, text),
        Value::Integer(integer) => any.signed(3, *integer),
    };
    attribute.text(1, key).message(2, &any);
    attribute
}
