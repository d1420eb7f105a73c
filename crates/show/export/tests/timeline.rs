//! A session as a Perfetto trace, decoded by the format's own classes.

mod common;

use apex_export::{Reading, timeline};
use apex_trace::Session;
use common::{ALLOCATED, SYMBOLS, decode, session};
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

fn lines(session: &Session, window: Range<u64>) -> Option<Vec<Json>> {
    let mut bytes = Vec::new();
    timeline::write(&mut Reading::new(session, window, &mut |_| {}), &mut bytes).unwrap();
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

#[test]
fn the_gpu_tracks_hold_the_measured_launches_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let (session, written) = session(dir.path(), 400, 11);
    let Some(lines) = lines(&session, 0..u64::MAX) else { return };
    let gpu = slices(&lines, "GPU stream 1");
    let measured: Vec<_> = written.iter().filter_map(|launch| Some((launch.config, launch.timed?))).collect();
    assert_eq!(gpu.len(), measured.len());
    for (slice, (config, (raw, _))) in gpu.iter().zip(&measured) {
        let name = apex_profile::names::identify(SYMBOLS[*config as usize - 1]).short_name;
        assert_eq!(slice["name"], name);
        assert_eq!(slice["details"]["event pair, ns"], *raw);
    }
    // A stream does one thing at a time, however the readings come out.
    let on_gpu: BTreeSet<_> = gpu.iter().map(|slice| slice["on"].as_u64().unwrap()).collect();
    let mut edges =
        lines.iter().filter(|line| line["on"].as_u64().is_some_and(|track| on_gpu.contains(&track)));
    let mut end = 0;
    while let (Some(begin), Some(finish)) = (edges.next(), edges.next()) {
        assert!(begin["at"].as_u64().unwrap() >= end);
        end = finish["at"].as_u64().unwrap();
    }
}

#[test]
fn an_arrow_leads_from_each_measured_launch_to_its_kernel() {
    let dir = tempfile::tempdir().unwrap();
    let (session, written) = session(dir.path(), 200, 12);
    let Some(lines) = lines(&session, 0..u64::MAX) else { return };
    let mut arrows: BTreeMap<u64, Vec<&Json>> = BTreeMap::new();
    for slice in lines.iter().filter(|line| line["flows"].is_array()) {
        arrows.entry(slice["flows"][0].as_u64().unwrap()).or_default().push(slice);
    }
    assert_eq!(arrows.len(), written.iter().filter(|launch| launch.timed.is_some()).count());
    let tracks = tracks(&lines);
    for ends in arrows.values() {
        let [call, kernel] = ends[..] else { panic!("{ends:?}") };
        assert!(call["name"].as_str().unwrap().starts_with("cuLaunchKernel "));
        assert!(tracks[&kernel["on"].as_u64().unwrap()].contains("measured"));
        assert!(call["at"].as_u64() <= kernel["at"].as_u64());
    }
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
