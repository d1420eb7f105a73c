//! The spans of a session: what OpenTelemetry's own classes (Python's package
//! `opentelemetry-proto`) decode is what was recorded, and when.

mod decoding;

use apex_metrics::{MOST_SPANS, Spans};
use apex_trace::definition::{self, Definition};
use apex_trace::layout::{RangeChange, Slots, flags};
use decoding::decoded;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use test_session::{LEGACY, Recording};

/// Prints one JSON document for each span of a request, with what its resource says.
const DECODE: &str = r#"
import json, sys
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
request = ExportTraceServiceRequest.FromString(sys.stdin.buffer.read())
value = lambda any: getattr(any, any.WhichOneof("value"))
attributes = lambda of: {entry.key: value(entry.value) for entry in of.attributes}
for of_resource in request.resource_spans:
    for of_scope in of_resource.scope_spans:
        for span in of_scope.spans:
            print(json.dumps({
                "resource": attributes(of_resource.resource), "scope": of_scope.scope.name,
                "trace": span.trace_id.hex(), "id": span.span_id.hex(), "parent": span.parent_span_id.hex(),
                "name": span.name, "kind": span.kind, "attributes": attributes(span),
                "start": span.start_time_unix_nano, "end": span.end_time_unix_nano, "status": span.status.code,
            }))
"#;

fn range(recording: &mut Recording, flags: u16, range: u32, changed: u32, instance: u64) {
    let head = RangeChange::head(flags, recording.now, recording.now);
    recording.write(&RangeChange { head, range, changed, instance });
}

/// Steps of 10 ms in which two kernels run inside of two ranges; around all of them is a
/// range of the process.
fn record(dir: &Path, most: u32) {
    let mut recording = Recording::new(dir);
    for (id, parent, name) in [(1, 0, "step"), (2, 1, "for\u{1b}[31mward"), (3, 0, "whole")] {
        let (domain, name) = (String::new(), name.to_owned());
        recording.define(Definition::Range(definition::Range { id, parent, domain, name }));
    }
    let function = recording.function("gelu");
    let gelu = recording.config(function, 132, 256);
    let function = recording.function("gemm");
    let gemm = recording.config(function, 132, 256);
    recording.now = 1_000_000;
    range(&mut recording, flags::RANGE_BEGUN | flags::PROCESS_WIDE, 0, 3, 77);
    for step in 0..most {
        range(&mut recording, flags::RANGE_BEGUN, 1, 1, 0);
        let start = recording.launch(gelu, LEGACY);
        recording.timing(gelu, LEGACY, start, 5_000, flags::STREAM_WAS_IDLE);
        range(&mut recording, flags::RANGE_BEGUN, 2, 2, 0);
        recording.timed(gemm, LEGACY, 2_000_000);
        recording.now += 5_000_000;
        range(&mut recording, flags::RANGE_ENDED, 1, 2, 0);
        recording.now += 5_000_000;
        range(&mut recording, flags::RANGE_ENDED, 0, 1, 0);
        // Once, the program pauses for a second.
        recording.now += if step == most / 2 { 1_000_000_000 } else { 0 };
    }
    range(&mut recording, flags::RANGE_ENDED | flags::PROCESS_WIDE, 0, 3, 77);
    recording.exit();
}

/// The spans of a session that is recorded so.
fn spans(most: u32) -> (Vec<u8>, usize) {
    let dir = tempfile::tempdir().unwrap();
    record(dir.path(), most);
    let session = test_session::open(&dir);
    let spans = Spans::of(&session);
    let request = spans.otlp("1.2.3");
    assert_eq!(Spans::of(&session).otlp("1.2.3"), request, "identifiers are stable");
    (request, spans.count())
}

#[test]
fn a_session_is_one_trace() {
    let (request, count) = spans(60);
    let Some(spans) = decoded(DECODE, &request) else { return };
    assert_eq!(spans.len(), count);
    let text = |span: &Value, member: &str| span[member].as_str().unwrap().to_owned();
    let number = |span: &Value, member: &str| span[member].as_u64().unwrap();
    let by_id: BTreeMap<String, &Value> = spans.iter().map(|span| (text(span, "id"), span)).collect();
    assert_eq!(by_id.len(), spans.len(), "each has an identifier of its own");
    assert_eq!(spans.iter().map(|span| text(span, "trace")).collect::<BTreeSet<_>>().len(), 1);
    for span in &spans {
        assert!(number(span, "start") <= number(span, "end"), "{span}");
        assert_eq!((number(span, "kind"), number(span, "status")), (1, 0));
        assert_eq!(
            (span["scope"].as_str(), span["resource"]["service.name"].as_str()),
            (Some("apex.spans"), Some("apex"))
        );
        let parent = text(span, "parent");
        if !parent.is_empty() {
            let parent = by_id.get(&parent).unwrap_or_else(|| panic!("no parent of {span}"));
            let inside = number(parent, "start") <= number(span, "start")
                && number(span, "end") <= number(parent, "end");
            assert!(inside, "{span} in {parent}");
        }
    }
    let named = |name: &str| spans.iter().filter(|span| span["name"] == name).collect::<Vec<_>>();
    let parent_of = |span: &Value| by_id[&text(span, "parent")]["name"].as_str().unwrap().to_owned();
    let [run] = named("run")[..] else { panic!("{:?}", named("run")) };
    assert_eq!(run["parent"], "");
    // Ranges, steps that were found and the kernels that take longest.
    let (ranges, steps): (Vec<&Value>, Vec<&Value>) =
        named("step").into_iter().partition(|span| span["attributes"].get("apex.step").is_none());
    assert_eq!(ranges.len(), 60);
    assert!(steps.len() > 50 && steps.iter().all(|step| parent_of(step) == "steady state"), "{steps:?}");
    let mut numbered: Vec<_> = steps
        .iter()
        .map(|step| (number(step, "start"), step["attributes"]["apex.step"].as_u64().unwrap()))
        .collect();
    numbered.sort_unstable();
    assert!(numbered.iter().map(|&(_, step)| step).eq(0..steps.len() as u64), "{numbered:?}");
    let forward: Vec<&Value> = spans.iter().filter(|span| text(span, "name").contains("ward")).collect();
    assert_eq!(forward.len(), 60);
    assert!(forward.iter().all(|span| parent_of(span) == "step" && !text(span, "name").contains('\u{1b}')));
    assert!(
        forward
            .iter()
            .all(|span| (5_000_000..6_000_000).contains(&(number(span, "end") - number(span, "start"))))
    );
    let [whole] = named("whole")[..] else { panic!("{:?}", named("whole")) };
    assert!(number(whole, "end") - number(whole, "start") > 600_000_000);
    assert_eq!(named("gemm").len(), 60);
    assert_eq!(named("gelu").len(), 40, "100 kernels: the longest");
    let [gap] = named("GPU idle")[..] else { panic!("{:?}", named("GPU idle")) };
    assert!((1_000_000_000..1_020_000_000).contains(&(number(gap, "end") - number(gap, "start"))), "{gap}");
    assert_eq!(gap["attributes"]["apex.idle.cause"], "the program's own code");
    assert_eq!(gap["attributes"]["hw.id"], "GPU-30313233-3435-3637-3839-616263646566");
}

#[test]
fn the_longest_of_many_are_kept_with_what_is_around_them() {
    let most = MOST_SPANS as u32;
    let (request, count) = spans(most);
    // Ranges of two sorts and steps are bounded; run, process, phases, gaps and kernels are few.
    assert!(count <= 2 * MOST_SPANS + 200, "{count}");
    assert!(request.len() < 5_000_000, "{} bytes are more than Tempo takes of a trace", request.len());
    let Some(spans) = decoded(DECODE, &request) else { return };
    let ids: BTreeSet<&str> = spans.iter().filter_map(|span| span["id"].as_str()).collect();
    let is_known = |span: &Value| {
        span["parent"].as_str().is_some_and(|parent| parent.is_empty() || ids.contains(parent))
    };
    assert!(spans.iter().all(is_known));
    let left_out = spans[0]["attributes"]["apex.spans.left_out"].as_u64().unwrap();
    assert!((u64::from(most)..u64::from(most) + 100).contains(&left_out), "{left_out}");
}
