//! The content of a session after a program ran.

mod support;

use apex_trace::control::{Settings, TimingMode};
use apex_trace::definition::{Config, Function, StreamKind};
use apex_trace::layout::{Call, CallClass, Launch, MemoryKind, NO_CONFIG, flags};
use apex_trace::{Ended, Event, Process};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use support::{Recording, finished, launches, records};

fn config<'p>(process: &'p Process, launch: &Launch) -> (&'p Config, &'p Function) {
    let config = process.definitions.config(launch.config).expect("a defined configuration");
    (config, process.definitions.function(config.function).expect("a defined function"))
}

/// Launches by kernel name and grid width.
fn by_name_and_grid(process: &Process) -> BTreeMap<(String, u32), usize> {
    let mut counts = BTreeMap::new();
    for launch in launches(process) {
        let (config, function) = config(process, &launch);
        *counts.entry((function.name.clone(), config.launch.grid.x)).or_default() += 1;
    }
    counts
}

#[test]
fn a_million_launches_from_64_threads_are_all_there() {
    const THREADS: usize = 64;
    const EACH: usize = 15_700;
    let recording = Recording::untimed();
    recording.run(&format!("launches {THREADS} {EACH}"));
    let process = recording.process();
    assert_eq!((process.dropped, process.overwritten, process.config_overflow), (0, 0, 0));

    let mut expected = BTreeMap::new();
    for thread in 0..THREADS {
        for index in 0..EACH {
            let (name, grid) =
                if index % 4 == 0 { ("own_100", thread + 1) } else { ("shared_100", index % 50 + 1) };
            *expected.entry((name.to_owned(), grid as u32)).or_insert(0) += 1;
        }
    }
    assert_eq!(by_name_and_grid(&process), expected);

    // Each thread's are its own: on its stream, in order.
    let mut of_thread: BTreeMap<u32, Vec<Launch>> = BTreeMap::new();
    for record in process.records() {
        if let Event::Launch(launch) = record.event {
            of_thread.entry(record.tid).or_default().push(launch);
        }
    }
    assert_eq!(of_thread.len(), THREADS);
    let streams: BTreeSet<u32> = of_thread.values().map(|launches| launches[0].stream).collect();
    assert_eq!(streams.len(), THREADS);
    for launches in of_thread.values() {
        assert_eq!(launches.len(), EACH);
        assert!(launches.iter().all(|launch| launch.stream == launches[0].stream && launch.result == 0));
        assert!(launches.is_sorted_by_key(|launch| launch.head.start));
    }
    assert_eq!(process.ended, Ended::Exited);
}

#[test]
fn launches_of_every_form_are_told_apart() {
    let recording = Recording::untimed();
    recording.run("forms");
    let process = recording.process();
    let found: Vec<_> = launches(&process)
        .iter()
        .map(|launch| {
            let (config, function) = config(&process, launch);
            let api = process.definitions.name(launch.api).unwrap();
            let stream = process.definitions.stream(launch.stream).unwrap();
            let attributes = function.attributes.expect("known");
            assert_eq!(attributes.registers as usize, 16 + function.name.len());
            (
                api,
                function.name.as_str(),
                config.launch.grid.to_array(),
                config.launch.block.to_array(),
                config.launch.cluster.to_array(),
                config.launch.dynamic_shared_bytes,
                stream.kind,
            )
        })
        .collect();
    let none = [0; 3];
    let one = [1; 3];
    assert_eq!(
        found,
        [
            ("cuLaunchKernel", "plain_1", [1, 2, 3], [4, 5, 6], none, 7, StreamKind::Blocking),
            ("cuLaunchKernelEx", "extended_2", [8, 1, 1], [32, 1, 1], [2, 1, 1], 16, StreamKind::NonBlocking),
            (
                "cuLaunchCooperativeKernel",
                "cooperative_3",
                [9, 1, 1],
                [10, 1, 1],
                none,
                0,
                StreamKind::LegacyDefault
            ),
            ("cuLaunchGrid", "legacy_4", [11, 12, 1], [64, 2, 1], none, 1024, StreamKind::LegacyDefault),
            ("cuLaunchKernel_ptsz", "per_thread_5", one, one, none, 0, StreamKind::PerThreadDefault),
            (
                "cuLaunchKernel",
                "clustered_kernel_6",
                [13, 1, 1],
                [128, 1, 1],
                [4, 1, 1],
                0,
                StreamKind::LegacyDefault
            ),
        ]
    );
    let cooperative: Vec<bool> =
        launches(&process).iter().map(|launch| launch.head.flags & flags::COOPERATIVE != 0).collect();
    assert_eq!(cooperative, [false, true, true, false, false, false]);
    let device = process.definitions.devices().next().expect("a device");
    assert_eq!((device.name.as_str(), device.driver_version), ("Fake GPU", 13000));
    assert!(device.attributes.contains(&(16, 160)), "the attributes of the device: {:?}", device.attributes);
}

#[test]
fn a_handle_that_comes_again_is_another_function() {
    let recording = Recording::untimed();
    recording.run("reload 40");
    let process = recording.process();
    let names = ["even_0", "even_2", "odd_1", "odd_3"];
    let expected: BTreeMap<_, _> = names.iter().map(|name| ((name.to_string(), 1), 30)).collect();
    assert_eq!(by_name_and_grid(&process), expected);
    assert_eq!(process.definitions.functions().count(), 4, "reloading a function makes no new definition");
}

#[test]
fn a_stream_handle_that_comes_again_is_another_stream() {
    let recording = Recording::untimed();
    recording.run("streams");
    let process = recording.process();
    let mut of_grid: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for launch in launches(&process) {
        of_grid.entry(config(&process, &launch).0.launch.grid.x).or_default().insert(launch.stream);
    }
    assert!(
        of_grid.values().all(|streams| streams.len() == 1),
        "a stream that lives keeps its identifier: {of_grid:?}"
    );
    let different: BTreeSet<u32> = of_grid.values().flatten().copied().collect();
    assert_eq!(different.len(), 7);
    let kind = |grid: u32| process.definitions.stream(*of_grid[&grid].first().unwrap()).unwrap().kind;
    assert_eq!(
        [1, 2, 3, 100].map(kind),
        [StreamKind::Blocking, StreamKind::NonBlocking, StreamKind::Blocking, StreamKind::NonBlocking]
    );
}

#[test]
fn streams_go_with_their_contexts() {
    let recording = Recording::untimed();
    recording.run("streams-of-contexts");
    let process = recording.process();
    let mut streams: Vec<_> = launches(&process)
        .iter()
        .map(|launch| {
            let stream = process.definitions.stream(launch.stream).unwrap();
            (config(&process, launch).0.launch.grid.x, stream.context, stream.kind)
        })
        .collect();
    streams.dedup();
    let (blocking, parallel) = (StreamKind::Blocking, StreamKind::NonBlocking);
    assert_eq!(streams, [(1, 1, blocking), (2, 2, parallel), (3, 3, blocking), (4, 4, parallel)]);
}

/// The fake driver without a function: its name in the file is spoiled.
fn driver_without(symbol: &str, folder: &Path) -> PathBuf {
    let mut file = std::fs::read(support::fake_driver()).unwrap();
    let name = format!("\0{symbol}\0").into_bytes();
    let mut spoiled = 0;
    for at in 0..file.len() - name.len() {
        if file[at..].starts_with(&name) {
            file[at + 3] = b'_';
            spoiled += 1;
        }
    }
    assert!(spoiled > 0, "{symbol} is in the driver");
    let path = folder.join("libcuda.so.1");
    std::fs::write(&path, file).unwrap();
    path
}

#[test]
fn names_come_from_the_program_where_the_driver_cannot_tell_them() {
    let folder = tempfile::tempdir().unwrap();
    let recording = Recording::untimed();
    finished(recording.client("forms").env("APEX_DRIVER", driver_without("cuFuncGetName", folder.path())));
    let process = recording.process();
    let names: Vec<_> =
        launches(&process).iter().map(|launch| config(&process, launch).1.name.clone()).collect();
    let expected =
        ["plain_1", "extended_2", "cooperative_3", "legacy_4", "per_thread_5", "clustered_kernel_6"];
    assert_eq!(names, expected);
}

#[test]
fn a_function_that_nobody_can_name_is_unknown_and_recorded() {
    let recording = Recording::untimed();
    finished(recording.client("forms").env("FAKE_NAMELESS", "1"));
    let process = recording.process();
    let names: BTreeSet<_> =
        launches(&process).iter().map(|launch| config(&process, launch).1.name.clone()).collect();
    assert_eq!(names, BTreeSet::from(["(unknown)".to_owned()]));
    assert_eq!(
        process.definitions.functions().count(),
        6,
        "functions of different attributes are told apart"
    );
}

#[test]
fn memory_is_bounded_and_what_does_not_fit_is_counted() {
    const MORE: usize = 5000;
    let count = interpose_limits::CONFIGS + MORE;
    let recording = Recording::untimed();
    let printed = recording.run(&format!("configurations {count}"));
    let process = recording.process();
    assert_eq!(process.definitions.configs().count(), interpose_limits::CONFIGS);
    assert_eq!(process.config_overflow as usize, 2 * MORE, "each launch beyond the table is counted");
    let all = launches(&process);
    assert_eq!(all.len(), 2 * count, "and recorded");
    assert_eq!(all.iter().filter(|launch| launch.config == NO_CONFIG).count(), 2 * MORE);

    let resident: Vec<usize> = printed.lines().map(|line| line.parse().unwrap()).collect();
    let bound = interpose_limits::FIXED_BYTES + 2 * interpose_limits::THREAD_BYTES;
    assert!(resident[1] < bound + (4 << 20), "{resident:?} against {bound}");
    assert!(resident[1] < resident[0] + (1 << 20), "a second round needs no more: {resident:?}");
}

#[test]
fn threads_that_end_leave_nothing_behind() {
    let recording = Recording::untimed();
    recording.run("threads-in-turn 300 100");
    let process = recording.process();
    assert_eq!(launches(&process).len(), 30_000);
    let bytes = std::fs::metadata(&process.file).unwrap().len();
    assert!(bytes < 8 << 20, "chunks are handed on from thread to thread: {bytes} bytes for 300 threads");
}

#[test]
fn a_forked_child_has_a_file_of_its_own() {
    for _ in 0..5 {
        let recording = Recording::untimed();
        let printed = recording.run("fork");
        let pids: Vec<u32> = printed.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
        let session = recording.open();
        let of = |pid: u32| {
            let process = session.processes.iter().find(|process| process.pid == pid).expect("a file");
            assert_eq!(process.dropped, 0);
            by_name_and_grid(process)
        };
        let kernel = |grid| ("forked_100".to_owned(), grid);
        assert_eq!(of(pids[0]), BTreeMap::from([(kernel(1), 1000), (kernel(3), 1000)]));
        assert_eq!(of(pids[1]), BTreeMap::from([(kernel(2), 500)]));
    }
}

#[test]
fn a_program_that_becomes_another_leaves_what_it_did() {
    let recording = Recording::untimed();
    recording.run("exec");
    let session = recording.open();
    let counts: BTreeSet<usize> = session.processes.iter().map(|process| launches(process).len()).collect();
    assert_eq!(counts, BTreeSet::from([10]), "ten launches before and ten after");
    assert_eq!(session.processes.len(), 2);
}

#[test]
fn captured_launches_are_told_from_executed_ones_and_left_alone() {
    for timing in [TimingMode::Off, TimingMode::All] {
        let recording = Recording::new(Settings { timing, ..Settings::default() });
        assert_eq!(recording.run("capture"), "0\n", "nothing that spoils a capture");
        let process = recording.process();
        let mut counts = BTreeMap::new();
        for launch in launches(&process) {
            let name = config(&process, &launch).1.name.clone();
            *counts.entry((name, launch.head.flags & flags::CAPTURED != 0)).or_insert(0) += 1;
            assert!(
                process.definitions.stream(launch.stream).is_some(),
                "streams are known even if they only captured"
            );
        }
        let expected =
            [("captured_1000", false, 10), ("captured_1000", true, 51), ("executed_1000", false, 62)];
        assert_eq!(
            counts,
            expected.map(|(name, captured, count)| ((name.to_owned(), captured), count)).into()
        );
    }
}

#[test]
fn each_launch_of_a_graph_says_what_it_does() {
    let recording = Recording::untimed();
    recording.run("graphs");
    let process = recording.process();
    let states: Vec<_> = records(&process, |event| match event {
        Event::GraphLaunch(launch) => Some(launch.graph),
        _ => None,
    })
    .into_iter()
    .map(|graph| {
        let graph = process.definitions.graph(graph).expect("a defined graph");
        let kernels: BTreeMap<_, _> = graph
            .kernels
            .iter()
            .map(|&(id, count)| {
                let config = process.definitions.config(id).unwrap();
                let function = process.definitions.function(config.function).unwrap();
                ((function.name.as_str(), config.launch.grid.x), count)
            })
            .collect();
        (kernels, graph.copies, graph.sets, graph.opaque)
    })
    .collect();
    let whole = |first: &[((&'static str, u32), u32)]| {
        let mut kernels: BTreeMap<_, _> = first.iter().copied().collect();
        kernels.extend([(("second_2000", 2), 1), (("second_2000", 5), 1)]);
        (kernels, 1, 1, 0)
    };
    let as_made = whole(&[(("first_1000", 1), 3)]);
    let changed = whole(&[(("first_1000", 1), 2), (("first_1000", 7), 1)]);
    let switched_off = whole(&[(("first_1000", 1), 1), (("first_1000", 7), 1)]);
    let inner = (BTreeMap::from([(("second_2000", 5), 1)]), 0, 0, 0);
    let mut expected = vec![as_made; 10];
    expected.extend(vec![changed; 3]);
    expected.extend(vec![switched_off; 2]);
    expected.extend(vec![inner; 5]);
    assert_eq!(states, expected);
    assert_eq!(process.definitions.graphs().count(), 4, "the same state is defined once");
}

#[test]
fn calls_say_what_they_moved_and_where() {
    let recording = Recording::untimed();
    recording.run("calls");
    let process = recording.process();
    let calls = records(&process, |event| match event {
        Event::Call(call) => Some(*call),
        _ => None,
    });
    let of = |class: CallClass| calls.iter().filter(move |call| call.class() == Some(class)).copied();
    let device = of(CallClass::Allocate).next().expect("an allocation");
    assert_eq!((device.bytes, device.memory()), (4096, MemoryKind::Device));
    let failed: Vec<Call> = of(CallClass::Allocate).filter(|call| call.result != 0).collect();
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0].address, 0, "a call that failed wrote nothing");

    let copies: Vec<_> = of(CallClass::Copy)
        .map(|call| (call.bytes, call.source_memory(), call.memory(), call.head.flags & flags::ASYNC != 0))
        .collect();
    assert_eq!(
        copies,
        [
            (100, MemoryKind::Pinned, MemoryKind::Device, true),
            (200, MemoryKind::Pageable, MemoryKind::Device, true),
            (300, MemoryKind::Device, MemoryKind::Pageable, false),
        ]
    );
    let set = of(CallClass::Set).next().expect("a set");
    assert_eq!((set.bytes, set.address, set.memory()), (100, device.address, MemoryKind::Device));
    assert_eq!(of(CallClass::Free).next().map(|call| call.address), Some(device.address));
    assert_eq!(of(CallClass::Synchronize).count(), 1);
    assert_eq!(of(CallClass::Event).count(), 4);
    assert_eq!(of(CallClass::Stream).count(), 2);
    assert_eq!(of(CallClass::Module).count(), 2);
    assert_eq!(of(CallClass::Context).count(), 1);
}

#[test]
fn the_driver_is_asked_once_about_memory_until_it_changes() {
    let recording = Recording::untimed();
    assert_eq!(recording.run("copies"), "3\n");
    let kinds = records(&recording.process(), |event| match event {
        Event::Call(call) if call.class() == Some(CallClass::Copy) => Some(call.source_memory()),
        _ => None,
    });
    let expected = [MemoryKind::Pageable, MemoryKind::Pinned, MemoryKind::Pageable].map(|kind| [kind; 100]);
    assert_eq!(kinds, expected.concat());
}

#[test]
fn copies_between_devices_are_told_from_those_within_one() {
    let recording = Recording::untimed();
    // One device: nothing is asked. Two: each address once, and none during a capture.
    assert_eq!(recording.run("copies-between-devices"), "0 4\n");
    let copies = records(&recording.process(), |event| match event {
        Event::Call(call) if call.class() == Some(CallClass::Copy) => Some(call.is_peer()),
        _ => None,
    });
    assert_eq!(copies, [false, true, false, false, true, false, false]);
}

#[test]
fn recording_can_be_switched_off_and_on_while_the_program_runs() {
    let recording = Recording::untimed();
    let mut child = recording
        .client("switched")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program");
    let mut printed = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut input = child.stdin.take().unwrap();
    for (step, on) in [false, true, true].into_iter().enumerate() {
        assert_eq!(printed.next().unwrap().unwrap(), (step + 1).to_string());
        recording.control.set_recording(on);
        writeln!(input).unwrap();
    }
    assert!(child.wait().unwrap().success());
    let kernel = |grid| ("switched_100".to_owned(), grid);
    assert_eq!(by_name_and_grid(&recording.process()), BTreeMap::from([(kernel(1), 100), (kernel(3), 100)]));
}

#[test]
fn calls_from_within_a_call_are_recorded_too() {
    let recording = Recording::untimed();
    recording.run("callback");
    let process = recording.process();
    assert_eq!(launches(&process).len(), 10);
    assert_eq!(process.dropped, 0);
}

#[test]
fn launches_that_fail_are_recorded_and_their_handles_not_touched() {
    let recording = Recording::new(Settings { timing: TimingMode::All, ..Settings::default() });
    recording.run("failing");
    let results: Vec<_> = launches(&recording.process())
        .iter()
        .map(|launch| (launch.result, launch.config == NO_CONFIG))
        .collect();
    assert_eq!(results, [(400, true), (400, true), (400, true), (0, false)]);
}

#[test]
fn the_recorder_takes_its_own_time_on_some_one_launch_of_64_of_each_thread() {
    let recording = Recording::untimed();
    recording.run("launches 3 6400");
    let process = recording.process();
    assert_eq!(launches(&process).len(), 3 * 6400);
    // A thread that loses its processor in between leaves a sample out.
    let taken = process.cost_samples;
    assert!((250..=3 * 6400 / 57).contains(&taken), "{taken} samples");
    assert!(process.cost_ns > 0);
}

/// The limits, which the library states and keeps.
mod interpose_limits {
    pub use apex::limits::CONFIGS;
    pub use apex::{FIXED_BYTES, THREAD_BYTES};
}
