//! A session reads back as it was written.

mod common;

use apex_trace::definition::{Definition, Function, Graph};
use apex_trace::layout::{Ended, LONG_UNIT, Launch, Slots};
use apex_trace::{ClockRate, Event, Lane, ProcessFile};
use common::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn records_and_definitions_come_back(
        events in prop::collection::vec(any_event(), 0..2000),
        definitions in prop::collection::vec(any_definition(), 0..300),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let file = ProcessFile::create(dir.path(), None).unwrap();
        let mut lane = Lane::default();
        for definition in &definitions {
            prop_assert!(file.define(definition));
        }
        for event in &events {
            prop_assert!(record(&mut lane, &file, event));
        }
        let process = open_only_process(dir.path());
        let read: Vec<_> = process.records().map(|record| record.event).collect();
        prop_assert_eq!(&read, &events);
        prop_assert_eq!(process.record_count, events.len() as u64);
        let expected = last_of_each(&definitions);
        let graphs = expected.keys().filter(|(kind, _)| *kind == 7).count();
        for (identifier, definition) in expected {
            prop_assert_eq!(lookup(&process, identifier), Some(definition));
        }
        prop_assert_eq!(process.definitions.graphs().count(), graphs);
    }

    #[test]
    fn merging_threads_by_time_loses_nothing_and_sorts(
        threads in prop::collection::vec(prop::collection::vec(any_event(), 0..400), 1..6),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let file = ProcessFile::create(dir.path(), None).unwrap();
        std::thread::scope(|scope| {
            for events in &threads {
                scope.spawn(|| {
                    let mut lane = Lane::default();
                    for (number, event) in events.iter().enumerate() {
                        assert!(record(&mut lane, &file, event));
                        if number % 97 == 96 {
                            lane.give_back(); // and so share chunks among threads
                        }
                    }
                });
            }
        });
        let process = open_only_process(dir.path());
        let merged: Vec<_> = process.records_by_time().collect();
        let calls = merged.iter().filter(|record| !matches!(record.event, Event::Timing(_)));
        prop_assert!(calls.map(|record| record.start()).is_sorted());
        let count = |records: &[apex_trace::Record]| {
            let mut counts = BTreeMap::<_, usize>::new();
            for record in records {
                *counts.entry(format!("{record:?}")).or_default() += 1;
            }
            counts
        };
        prop_assert_eq!(count(&merged), count(&process.records().collect::<Vec<_>>()));
        // Within a thread the plain order is that of writing.
        for events in threads.iter().filter(|events| !events.is_empty()) {
            let of = |tid| process.records().filter(move |record| record.tid == tid);
            let wrote = |&tid: &u32| of(tid).map(|record| record.event).eq(events.iter().copied());
            prop_assert!(process.threads.keys().any(wrote));
        }
    }
}

#[test]
fn a_graph_larger_than_a_chunk_comes_back_whole() {
    let dir = tempfile::tempdir().unwrap();
    let file = ProcessFile::create(dir.path(), None).unwrap();
    let kernels: Vec<_> = (0..100_000u32).map(|node| (node.wrapping_mul(2_654_435_761), node)).collect();
    let graph = Graph { id: 3, handle: 77, kernels, copies: 1, sets: 2, others: 3, opaque: 4 };
    assert!(file.define(&Definition::Graph(graph.clone())));
    assert_eq!(open_only_process(dir.path()).definitions.graph(3), Some(&graph));
}

#[test]
fn a_very_long_name_is_cut_between_characters() {
    let dir = tempfile::tempdir().unwrap();
    let file = ProcessFile::create(dir.path(), None).unwrap();
    let name = format!("x{}", "ß".repeat(50_000));
    assert!(file.define(&Definition::Function(Function {
        id: 1,
        name: name.clone(),
        ..Function::default()
    })));
    let process = open_only_process(dir.path());
    let read = &process.definitions.function(1).unwrap().name;
    assert!(name.starts_with(read.as_str()));
    assert_eq!(read.len(), 60 * 1024 - 1);
}

#[test]
fn a_process_describes_itself() {
    let dir = tempfile::tempdir().unwrap();
    let file = ProcessFile::create(dir.path(), None).unwrap();
    std::thread::scope(|scope| {
        let record_once = || assert!(Lane::default().record(&file, &launch(1, 1)));
        let builder = std::thread::Builder::new().name("a-name-of-its-own".to_owned());
        builder.spawn_scoped(scope, record_once).unwrap();
    });
    file.count_dropped(7);
    file.count_config_overflow();
    file.add_timing_ticks(1_000_000);
    [300_000, 500_000].into_iter().for_each(|ticks| file.add_cost_sample(ticks));
    file.mark_ended(Ended::Exited);
    let process = open_only_process(dir.path());
    assert_eq!(process.pid, std::process::id());
    assert_eq!(process.parent_pid, std::os::unix::process::parent_id());
    assert_eq!(process.executable, std::env::current_exe().unwrap().to_string_lossy());
    assert_eq!(process.ended, Ended::Exited);
    assert_eq!((process.dropped, process.config_overflow), (7, 1));
    assert_eq!(process.timing_ns, process.clock.duration_ns(1_000_000));
    assert_eq!((process.cost_samples, process.cost_ns), (2, process.clock.duration_ns(800_000)));
    assert_eq!(process.threads.values().collect::<Vec<_>>(), ["a-name-of-it"]);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let age = now.as_nanos() as u64 - process.start_real_ns;
    assert!(age < 600_000_000_000, "made {age} ns ago");
}

#[test]
fn times_and_durations_agree_with_the_systems_clock() {
    let dir = tempfile::tempdir().unwrap();
    let file = ProcessFile::create(dir.path(), None).unwrap();
    let mut lane = Lane::default();
    let (outer, start, inner) = (Instant::now(), apex_trace::now(), Instant::now());
    std::thread::sleep(Duration::from_millis(60));
    let (inner, end, outer) = (inner.elapsed(), apex_trace::now(), outer.elapsed());
    let record = Launch { head: Launch::head(0, start, end), config: 1, ..Launch::default() };
    assert!(lane.record(&file, &record));
    file.anchor_clock();
    let process = open_only_process(dir.path());
    assert_eq!(process.clock.rate(), ClockRate::Measured);
    let read = process.records().next().unwrap();
    let measured = process.clock.duration_ns(read.duration_ticks());
    let seconds = Duration::from_nanos(measured).as_secs_f64();
    let (least, most) = (inner.as_secs_f64() * 0.999, outer.as_secs_f64() * 1.001);
    assert!((least..=most).contains(&seconds), "{seconds} s, by the system's clock {least} to {most} s");
    assert_eq!(process.span, Some((start, end)));
}

#[test]
fn long_calls_keep_their_length() {
    let head = Launch::head(2, 5, 5 + u64::from(u32::MAX));
    assert_eq!((head.flags, head.duration_ticks()), (2, u64::from(u32::MAX)));
    let ticks = 3_000_000_000 * 3600; // an hour at 3 GHz
    let head = Launch::head(2, 5, 5 + ticks);
    assert!(ticks - head.duration_ticks() < LONG_UNIT);
    assert_eq!(Launch::head(0, 0, u64::MAX).duration_ticks(), u64::from(u32::MAX) * LONG_UNIT);
    assert_eq!(Launch::head(0, 9, 3).duration_ticks(), 0);
}
