//! The trace writer, held against the format's own generated classes (Python's `perfetto` package).
//!
//! Skipped, with a message, where the package is not installed (`scripts/test-deps.sh` installs
//! it).

mod common;

use apex_export::perfetto::Trace;
use apex_export::slices::{Slice, Tracks, Value};
use common::decode;
use serde_json::json;

#[test]
fn tracks_slices_counters_and_flows_come_back() {
    let mut bytes = Vec::new();
    let mut trace = Trace::new(&mut bytes);
    trace.process(1, 4242, "python train.py").unwrap();
    trace.thread(2, 1, 4242, 4243, "worker").unwrap();
    trace.track(3, 1, "GPU stream 7").unwrap();
    trace.byte_counter(4, 1, "device memory").unwrap();
    let details = [("grid", Value::Text("(1, 2, 3)")), ("registers", Value::Integer(-40))];
    let launch =
        Slice { track: 2, name: "saxpy", start_ns: 1_000, duration_ns: 500, flow: 77, details: &details };
    trace.slice(&launch).unwrap();
    trace.slice(&Slice { track: 3, start_ns: 1_700, duration_ns: 0, details: &[], ..launch }).unwrap();
    trace.slice(&Slice { name: "other", flow: 0, start_ns: u64::MAX, ..launch }).unwrap();
    trace.count(4, 1_200, -1 << 40).unwrap();
    trace.finish().unwrap();

    let Some(lines) = decode(&bytes) else { return };
    let details = json!({"grid": "(1, 2, 3)", "registers": -40});
    let expected = [
        json!({"track": 1, "parent": 0, "pid": 4242, "name": "python train.py"}),
        json!({"track": 2, "parent": 1, "pid": 4242, "tid": 4243, "name": "worker"}),
        json!({"track": 3, "parent": 1, "name": "GPU stream 7"}),
        json!({"track": 4, "parent": 1, "name": "device memory", "unit": 3}),
        json!({"at": 1000, "type": "TYPE_SLICE_BEGIN", "on": 2, "name": "saxpy", "flows": [77], "details": details}),
        json!({"at": 1500, "type": "TYPE_SLICE_END", "on": 2}),
        json!({"at": 1700, "type": "TYPE_SLICE_BEGIN", "on": 3, "name": "saxpy", "flows": [77]}),
        json!({"at": 1700, "type": "TYPE_SLICE_END", "on": 3}),
        json!({"at": u64::MAX, "type": "TYPE_SLICE_BEGIN", "on": 2, "name": "other", "details": details}),
        json!({"at": u64::MAX, "type": "TYPE_SLICE_END", "on": 2}),
        json!({"at": 1200, "type": "TYPE_COUNTER", "on": 4, "value": -1i64 << 40}),
    ];
    assert_eq!(lines, expected);
}
