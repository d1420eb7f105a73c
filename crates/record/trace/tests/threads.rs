//! Many threads, and readers beside them.

mod common;

use apex_trace::control::Settings;
use apex_trace::definition::Definition;
use apex_trace::layout::{CHUNK_BYTES, HEADER_BYTES, Launch, Slots};
use apex_trace::{Event, Lane, MappedControl, ProcessFile, Session};
use common::*;
use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn sixty_four_threads_lose_nothing() {
    const THREADS: u32 = 64;
    const LAUNCHES: u32 = 20_000;
    let dir = tempfile::tempdir().unwrap();
    let file = ProcessFile::create(dir.path(), None).unwrap();
    let together = Barrier::new(THREADS as usize);
    std::thread::scope(|scope| {
        for thread in 1..=THREADS {
            let (file, together) = (&file, &together);
            scope.spawn(move || {
                together.wait();
                let mut lane = Lane::default();
                assert!((0..LAUNCHES).all(|number| lane.record(file, &launch(thread, number))));
            });
        }
    });
    let process = open_only_process(dir.path());
    assert_eq!((process.dropped, process.overwritten), (0, 0));
    assert_eq!(process.record_count, u64::from(THREADS * LAUNCHES));
    let mut by_thread = vec![Vec::new(); THREADS as usize + 1];
    for record in process.records() {
        let Event::Launch(launch) = record.event else { panic!("{record:?}") };
        by_thread[launch.config as usize].push((record.tid, launch.result));
    }
    let mut tids = HashSet::new();
    for records in &by_thread[1..] {
        let tid = records[0].0;
        assert!(tids.insert(tid), "two threads under one identifier");
        assert!(records.iter().copied().eq((0..LAUNCHES).map(|number| (tid, number))));
    }
}

/// The bound that the writer's documentation states: the header, the definitions chunk, one chunk
/// for each thread.
#[test]
fn memory_and_files_are_bounded_by_the_threads_alive() {
    const TOGETHER: usize = 8;
    let dir = tempfile::tempdir().unwrap();
    let file = ProcessFile::create(dir.path(), None).unwrap();
    assert!(file.define(&Definition::Name { id: 1, text: "cuLaunchKernel".to_owned() }));
    for round in 0..50 {
        let (holding, measured) = (Barrier::new(TOGETHER + 1), Barrier::new(TOGETHER + 1));
        std::thread::scope(|scope| {
            for thread in 0..TOGETHER as u32 {
                let (file, holding, measured) = (&file, &holding, &measured);
                scope.spawn(move || {
                    let mut lane = Lane::default();
                    assert!(
                        (0..10).all(|number| lane.record(file, &launch(thread + 1, round * 10 + number)))
                    );
                    holding.wait();
                    measured.wait();
                });
            }
            holding.wait();
            assert_eq!(mapped_bytes(dir.path()), HEADER_BYTES + CHUNK_BYTES * (1 + TOGETHER));
            measured.wait();
        });
        assert_eq!(mapped_bytes(dir.path()), HEADER_BYTES + CHUNK_BYTES);
    }
    let length = fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap().metadata().unwrap().len();
    assert_eq!(length as usize, HEADER_BYTES + CHUNK_BYTES * (1 + TOGETHER), "chunks are passed on");
    let process = open_only_process(dir.path());
    for thread in 1..=TOGETHER as u32 {
        assert!(numbers(process.records(), thread).into_iter().eq(0..500), "in the order of time");
    }
}

/// Bytes of this process's memory that map files below `dir`.
fn mapped_bytes(dir: &Path) -> usize {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let ours = maps.lines().filter(|line| line.contains(dir.to_str().unwrap()));
    ours.map(|line| {
        let (start, rest) = line.split_once('-').unwrap();
        let end = rest.split(' ').next().unwrap();
        let parse = |address| usize::from_str_radix(address, 16).unwrap();
        parse(end) - parse(start)
    })
    .sum()
}

/// A reader of a running session, whose oldest chunks are overwritten under it, sees whole records
/// only, and every definition that they name.
#[test]
fn a_running_session_can_be_read() {
    const THREADS: u32 = 3;
    let dir = tempfile::tempdir().unwrap();
    let max_bytes = (HEADER_BYTES + 8 * CHUNK_BYTES) as u64;
    let control = MappedControl::create(dir.path(), Settings { max_bytes, ..Settings::default() }).unwrap();
    let file = ProcessFile::create(dir.path(), Some(control.leak())).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 1..=THREADS {
            let (file, done) = (&file, &done);
            scope.spawn(move || {
                let mut lane = Lane::default();
                let mut name = 0;
                for number in 0.. {
                    if number % 5000 == 0 && name < 300 {
                        name += THREADS;
                        let text = format!("call-{}", name + thread);
                        assert!(file.define(&Definition::Name { id: name + thread, text }));
                    }
                    let start = apex_trace::now();
                    let head = Launch::head(0, start, start + 5);
                    let (config, stream, api) = (thread, !number, name + thread);
                    lane.record(file, &Launch { head, config, stream, result: number, api });
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        scope.spawn(|| {
            let mut overwritten = 0;
            let mut rounds = 0;
            while rounds < 30 || overwritten == 0 {
                let session = Session::open(dir.path()).unwrap();
                let process = &session.processes[0];
                for record in process.records().chain(process.records_by_time()) {
                    let Event::Launch(launch) = record.event else { panic!("{record:?}") };
                    assert_eq!(launch.stream, !launch.result);
                    let name = format!("call-{}", launch.api);
                    assert_eq!(process.definitions.name(launch.api), Some(name.as_str()));
                }
                assert_eq!(process.read_failure(), None);
                overwritten = process.overwritten;
                rounds += 1;
            }
            done.store(true, Ordering::Relaxed);
        });
    });
    let process = open_only_process(dir.path());
    for thread in 1..=THREADS {
        let numbers = numbers(process.records(), thread);
        assert!(numbers.is_sorted() && !numbers.is_empty());
    }
}
