//! A session as a Perfetto trace, decoded by the format's own classes.

mod common;

use apex_export::{Reading, chrome, perfetto, timeline};
use apex_profile::{Builder, ObservedCall, ObservedProcess, ObservedWork, Observer, Use};
use apex_trace::Session;
use common::{ALLOCATED, SYMBOLS, decode, session};
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

fn lines(session: &Session, window: Range<u64>) -> Option<Vec<Json>> {
    let mut bytes = Vec::new();
    let trace = perfetto::Trace::new(&mut bytes);
    timeline::write(&mut Reading::new(session, window, &mut |_| {}), trace).unwrap();
    decode(&bytes)
}

/// Names of tracks by identifier.
fn tracks(lines: &[Json]) -> BTreeMap<u64, String> {
    let track = |line: &Json| Some((line["track"].as_u64()?, line["name"].as_str()?.to_string()));
    lines.iter().filter_map(track).collect()
}

/// Beginnings of slices on tracks whose name contains `part`.
fn slices<'a>(lines: &'a [Json], part: &str) -> Vec<&'a Json> {
    let tracks = tracks(lines);
    let on = |line: &&Json| line["on"].as_u64().is_some_and(|track| tracks[&track].contains(part));
    lines.iter().filter(|line| line["type"] == "TYPE_SLICE_BEGIN").filter(on).collect()
}

/// Durations of slices by track: beginnings and ends alternate, since work of a track does not
/// overlap.
fn durations(lines: &[Json], part: &str) -> BTreeMap<u64, Vec<u64>> {
    let on: BTreeSet<u64> = slices(lines, part).iter().map(|slice| slice["on"].as_u64().unwrap()).collect();
    let mut found: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let mut begun: BTreeMap<u64, u64> = BTreeMap::new();
    for line in lines.iter().filter(|line| line["on"].as_u64().is_some_and(|track| on.contains(&track))) {
        let (track, at) = (line["on"].as_u64().unwrap(), line["at"].as_u64().unwrap());
        match line["type"].as_str() {
            Some("TYPE_SLICE_BEGIN") => assert!(begun.insert(track, at).is_none(), "{line}"),
            _ => found.entry(track).or_default().push(at - begun.remove(&track).unwrap()),
        }
    }
    found
}

/// The sum of what a profile's observer is told of work.
#[derive(Default)]
struct Observed {
    work: u64,
    measured_ns: u64,
    idle_ns: u64,
}

impl Observer for Observed {
    fn read(&mut self, _: u64) {}
    fn process(&mut self, _: &ObservedProcess<'_>) {}
    fn call(&mut self, _: &ObservedCall) {}
    fn range(&mut self, _: u32, _: u64, _: u32) {}
    fn work(&mut self, work: &ObservedWork) {
        self.work += 1;
        self.measured_ns += if work.is_timed { work.end - work.start } else { 0 };
    }
    fn stretch(&mut self, _: Option<usize>, from: u64, to: u64, on: Use) {
        self.idle_ns += if matches!(on, Use::Idle(_)) { to - from } else { 0 };
    }
}

#[test]
fn the_gpu_tracks_hold_all_work_with_the_totals_of_the_profile() {
    let dir = tempfile::tempdir().unwrap();
    let (session, written) = session(dir.path(), 400, 11);
    let Some(lines) = lines(&session, 0..u64::MAX) else { return };
    let mut observed = Observed::default();
    Builder::default().add_observed(&session, &mut observed);
    let gpu = slices(&lines, " stream ");
    assert_eq!(gpu.len() as u64, observed.work);
    assert!(gpu.len() > written.iter().filter(|launch| launch.timed.is_some()).count());
    let sum = |part| durations(&lines, part).values().flatten().sum::<u64>();
    assert_eq!(sum("GPU 0 idle"), observed.idle_ns);
    let measured = gpu.iter().filter(|slice| slice["details"]["duration"] == "measured").count();
    assert!(measured > 0 && observed.measured_ns <= sum(" stream "));
    assert!(gpu.iter().all(|slice| slice["details"]["start"] == "predicted"));
    let names: BTreeSet<String> =
        SYMBOLS.iter().map(|symbol| apex_profile::names::identify(symbol).short_name).collect();
    assert!(gpu.iter().any(|slice| names.contains(slice["name"].as_str().unwrap())));
}

#[test]
fn chromes_format_has_the_same_work_calls_and_arrows() {
    let dir = tempfile::tempdir().unwrap();
    let (session, _) = session(dir.path(), 400, 11);
    let mut bytes = Vec::new();
    let trace = chrome::Trace::new(&mut bytes);
    timeline::write(&mut Reading::new(&session, 0..u64::MAX, &mut |_| {}), trace).unwrap();
    let document: Json = serde_json::from_slice(&bytes).unwrap();
    let events = document["traceEvents"].as_array().unwrap();
    let of = |phase: &str| events.iter().filter(|event| event["ph"] == phase).collect::<Vec<_>>();
    let place = |event: &Json| (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
    let ns = |value: &Json| (value.as_f64().unwrap() * 1e3).round() as u64;
    let names: BTreeMap<(u64, u64), &str> = of("M")
        .into_iter()
        .filter(|event| event["name"] == "thread_name")
        .map(|event| (place(event), event["args"]["name"].as_str().unwrap()))
        .collect();
    let on = |part: &str| {
        let is_on = |event: &&&Json| names.get(&place(event)).is_some_and(|name| name.contains(part));
        of("X").iter().filter(is_on).map(|event| ns(&event["dur"])).collect::<Vec<_>>()
    };
    let mut observed = Observed::default();
    Builder::default().add_observed(&session, &mut observed);
    assert_eq!(on(" stream ").len() as u64, observed.work);
    assert_eq!(on("GPU 0 idle").iter().sum::<u64>(), observed.idle_ns);
    // An arrow from each launch to its kernel, in this order.
    let ends = |phase| -> BTreeMap<&str, u64> {
        of(phase).into_iter().map(|event| (event["id"].as_str().unwrap(), ns(&event["ts"]))).collect()
    };
    let (begun, ended) = (ends("s"), ends("f"));
    assert_eq!(ended.len() as u64, observed.work);
    assert!(ended.iter().all(|(id, at)| begun.get(id).is_none_or(|start| start <= at)));
    assert!(ended.keys().filter(|id| begun.contains_key(*id)).count() > 300);
    assert!(!of("C").is_empty(), "memory is counted");
}

#[test]
fn an_arrow_leads_from_each_launch_to_its_kernel() {
    let dir = tempfile::tempdir().unwrap();
    let (session, _) = session(dir.path(), 200, 12);
    let Some(lines) = lines(&session, 0..u64::MAX) else { return };
    let gpu = slices(&lines, " stream ");
    let mut arrows: BTreeMap<u64, Vec<&Json>> = BTreeMap::new();
    for slice in lines.iter().filter(|line| line["flows"].is_array()) {
        arrows.entry(slice["flows"][0].as_u64().unwrap()).or_default().push(slice);
    }
    assert_eq!(gpu.iter().filter(|slice| slice["flows"].is_array()).count(), gpu.len());
    let on_gpu: BTreeSet<u64> = gpu.iter().map(|slice| slice["on"].as_u64().unwrap()).collect();
    for ends in arrows.values().filter(|ends| ends.len() > 1) {
        let [call, kernel] = ends[..] else { panic!("{ends:?}") };
        assert!(on_gpu.contains(&kernel["on"].as_u64().unwrap()));
        assert!(!on_gpu.contains(&call["on"].as_u64().unwrap()));
        assert!(call["at"].as_u64() <= kernel["at"].as_u64());
    }
    assert_eq!(arrows.values().filter(|ends| ends.len() > 1).count(), gpu.len());
}

#[test]
fn host_tracks_hold_every_call() {
    let dir = tempfile::tempdir().unwrap();
    let (session, written) = session(dir.path(), 50, 13);
    let Some(lines) = lines(&session, 0..u64::MAX) else { return };
    let tid = *session.processes[0].threads.keys().next().unwrap();
    let thread = lines.iter().find(|line| line["tid"] == tid).unwrap();
    assert_eq!(thread["pid"], std::process::id());
    let on_host =
        lines.iter().filter(|line| line["on"] == thread["track"] && line["type"] == "TYPE_SLICE_BEGIN");
    // Launches, three allocations, a free, a copy, a graph launch.
    assert_eq!(on_host.count(), written.len() + 6);
    let failed = written.iter().filter(|launch| launch.result != 0).count();
    assert_eq!(lines.iter().filter(|line| line["details"]["result"] == 1).count(), failed);
}

#[test]
fn counters_follow_allocations_and_frees() {
    let dir = tempfile::tempdir().unwrap();
    let (session, _) = session(dir.path(), 5, 14);
    let Some(lines) = lines(&session, 0..u64::MAX) else { return };
    let values: Vec<_> = lines.iter().filter_map(|line| line["value"].as_u64()).collect();
    let [a, b, c] = ALLOCATED;
    assert_eq!(values, [a, a + b, a + b + c, a + c]);
    assert!(tracks(&lines).values().any(|name| name == "device memory, live"));
}

#[test]
fn a_window_keeps_what_was_live_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let (session, _) = session(dir.path(), 5, 14);
    let Some(all) = lines(&session, 0..u64::MAX) else { return };
    let times: Vec<_> =
        all.iter().filter(|line| line["value"].is_u64()).map(|line| line["at"].as_u64().unwrap()).collect();
    let window = lines(&session, times[2]..u64::MAX).unwrap();
    let values: Vec<_> = window.iter().filter_map(|line| line["value"].as_u64()).collect();
    let [a, b, c] = ALLOCATED;
    assert_eq!(values, [a + b + c, a + c]);
    assert!(window.iter().all(|line| line["at"].as_u64().is_none_or(|at| at >= times[2])));
}
