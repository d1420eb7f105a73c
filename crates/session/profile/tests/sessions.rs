//! Profiles of sessions: what programs did is what the profile says.

use apex_profile::{Basis, CopyDirection, PhaseKind, Profile, Provenance};
use apex_trace::definition::{Context, Definition, Device, Graph, Stream, StreamKind};
use apex_trace::layout::{CallClass, MemoryKind, flags};
use tempfile::TempDir;
use test_session::{BLOCKING, LEGACY, NON_BLOCKING, Recording};

fn profile(program: impl FnOnce(&mut Recording)) -> Profile {
    test_session::of_program(program, Profile::from_session)
}

#[test]
fn a_session_without_records_is_an_empty_profile() {
    let profile = profile(|_| {});
    assert_eq!((profile.kernels.len(), profile.totals.launches, profile.processes.len()), (0, 0, 1));
    assert!(profile.processes[0].ended);
    assert!(profile.totals.gpu_busy.is_none());
}

#[test]
fn launches_are_told_apart_by_what_became_of_them() {
    let profile = profile(|program| {
        let function = program.function("_Z5saxpyifPfS_");
        let config = program.config(function, 1056, 256);
        for _ in 0..7 {
            program.launch(config, LEGACY);
        }
        for _ in 0..3 {
            program.launch_with(config, BLOCKING, flags::CAPTURED, 0);
        }
        for _ in 0..2 {
            program.launch_with(config, LEGACY, 0, 700);
        }
        program.launch_with(config, LEGACY, flags::COOPERATIVE, 0);
        program.launch(0, LEGACY);
        program.launch(999, LEGACY);
    });
    let totals = &profile.totals;
    assert_eq!((totals.launches, totals.captured, totals.failed, totals.unknown), (10, 3, 2, 2));
    let [kernel] = &profile.kernels[..] else { panic!("{} kernels", profile.kernels.len()) };
    assert_eq!(
        (kernel.short_name.as_str(), kernel.name.as_str()),
        ("saxpy", "saxpy(int, float, float*, float*)")
    );
    let launches = kernel.launches;
    assert_eq!((launches.calls, launches.captured, launches.failed, launches.cooperative), (8, 3, 2, 1));
    assert_eq!((kernel.cpu.count, kernel.cpu.mean_ns, kernel.cpu.max_ns), (8, 4_000.0, 4_000.0));
    assert!((kernel.cpu.median_ns / 4_000.0 - 1.0).abs() < 0.016);
    let geometry = kernel.geometry.expect("its device is known");
    assert_eq!(
        (geometry.occupancy.fraction(), geometry.waves.waves, geometry.block_efficiency),
        (1.0, 1.0, 1.0)
    );
    assert_eq!(profile.devices[0].compute_capability, Some((9, 0)));
    assert_eq!(profile.devices[0].uuid, "GPU-30313233-3435-3637-3839-616263646566");
}

#[test]
fn graphs_run_their_kernels() {
    let profile = profile(|program| {
        let function = program.function("step");
        let (a, b) = (program.config(function, 132, 256), program.config(function, 264, 256));
        program.define(Definition::Graph(Graph {
            id: 1,
            kernels: vec![(a, 2), (b, 3)],
            copies: 1,
            ..Graph::default()
        }));
        for _ in 0..10 {
            let start = program.graph_launch(1, BLOCKING);
            program.timing(1, BLOCKING, start, 50_000, flags::OF_GRAPH);
        }
        program.launch(a, BLOCKING);
    });
    let totals = &profile.totals;
    assert_eq!(
        (totals.launches, totals.graph_launches, totals.graph_kernels, totals.kernels_run()),
        (1, 10, 50, 51)
    );
    let runs: Vec<(u64, u64)> = profile.kernels.iter().map(|k| (k.blocks(), k.launches.by_graphs)).collect();
    assert_eq!(runs, [(264, 30), (132, 20)]);
    let graph = &profile.graphs[0];
    assert_eq!((graph.launches, graph.copies, &graph.kernels[..]), (10, 1, &[(1, 2), (0, 3)][..]));
    assert_eq!(graph.gpu.expect("timed").total_ns.value, 500_000.0);
}

#[test]
fn graphs_run_their_kernels_in_the_steady_state_too() {
    let profile = profile(|program| {
        let function = program.function("step");
        let (a, b) = (program.config(function, 132, 256), program.config(function, 264, 256));
        let kernels = vec![(a, 2), (b, 3)];
        program.define(Definition::Graph(Graph { id: 1, kernels, ..Graph::default() }));
        let other = program.function("other");
        let other = program.config(other, 132, 256);
        for _ in 0..5 {
            program.launch(other, BLOCKING);
        }
        for _ in 0..41 {
            let start = program.graph_launch(1, BLOCKING);
            program.timing(1, BLOCKING, start, 50_000, flags::OF_GRAPH);
            program.launch(a, BLOCKING);
            program.synchronise(BLOCKING, 100_000);
        }
    });
    let steady = profile.in_phase(PhaseKind::Steady).expect("a loop");
    let steps = steady.activities[0].iterations.as_ref().expect("a loop").count;
    assert!(steps >= 39);
    let of = |profile: &Profile| {
        let launched = |blocks| {
            let kernel =
                profile.kernels.iter().find(|kernel| kernel.blocks() == blocks && kernel.symbol == "step");
            kernel.map(|kernel| (kernel.launches.calls, kernel.launches.by_graphs))
        };
        (launched(132).expect("launched"), launched(264).expect("run by graphs"))
    };
    assert_eq!(of(&profile), ((41, 82), (0, 123)));
    let launches = steady.graphs[0].launches;
    assert!((steps..=41).contains(&launches));
    assert_eq!(of(&steady), ((steps, 2 * launches), (0, 3 * launches)));
    let totals = &steady.totals;
    assert_eq!(
        (totals.launches, totals.graph_launches, totals.graph_kernels),
        (steps, launches, 5 * launches)
    );
    assert_eq!(steady.graphs[0].gpu.expect("timed").total_ns.value, 50_000.0 * launches as f64);
    assert_eq!(totals.gpu_time_ns.expect("of graphs").value, 50_000.0 * launches as f64);
    let filtered = profile.of_kernels(&[0].into()).in_phase(PhaseKind::Steady).expect("a loop");
    assert_eq!(filtered.kernels.iter().filter(|kernel| kernel.launches.any()).count(), 1);
}

/// A second device, its context and a stream there. Returns the stream.
fn second_device(program: &Recording) -> u32 {
    let (id, context, stream) = (2, 2, 9);
    let device = Device { id, ordinal: 1, name: "another".to_owned(), uuid: [9; 16], ..Device::default() };
    program.define(Definition::Device(device));
    program.define(Definition::Context(Context {
        id: context,
        handle: 0xd0,
        device: id,
        ..Context::default()
    }));
    program.define(Definition::Stream(Stream {
        id: stream,
        handle: 9,
        context,
        kind: StreamKind::NonBlocking,
    }));
    stream
}

/// Launches by device, of all activities.
fn launches_by_device(profile: &Profile) -> Vec<(Option<usize>, u64)> {
    profile.activities.iter().map(|activity| (activity.device, activity.launches)).collect()
}

#[test]
fn a_launch_whose_kernels_are_unknown_is_on_the_device_of_its_stream() {
    // A graph that copies, one that was not recorded, and a configuration that was not.
    let copies = || Definition::Graph(Graph { id: 1, copies: 5, ..Graph::default() });
    let launches = |program: &mut Recording, stream| {
        for graph in [1, 77] {
            program.graph_launch(graph, stream);
        }
        program.launch(78, stream);
    };
    let one = profile(|program| {
        program.define(copies());
        let function = program.function("k");
        let config = program.config(function, 132, 128);
        (0..20).for_each(|_| {
            program.timed(config, NON_BLOCKING, 50_000);
            launches(program, NON_BLOCKING);
            // A stream that was not recorded is on the only device.
            launches(program, 79);
        });
    });
    assert_eq!(launches_by_device(&one), [(Some(0), 140)]);
    let several = profile(|program| {
        program.define(copies());
        let other = second_device(program);
        launches(program, other);
        launches(program, NON_BLOCKING);
        launches(program, other);
    });
    assert_eq!(launches_by_device(&several), [(Some(0), 3), (Some(1), 6)]);
}

#[test]
fn times_are_corrected_and_extended_to_all_launches() {
    let profile = profile(|program| {
        let function = program.function("kernel");
        let config = program.config(function, 1056, 256);
        for i in 0..1000u64 {
            let start = program.launch(config, LEGACY);
            if i % 50 == 0 {
                program.timing(config, LEGACY, start, 8_000 + i, 0);
            }
            if i % 200 == 0 {
                program.timing(config, LEGACY, start, 20_000, flags::STREAM_WAS_IDLE);
            }
        }
    });
    let gpu = profile.kernels[0].gpu.expect("timed");
    assert_eq!((gpu.busy_samples, gpu.idle_samples, gpu.basis), (20, 5, Basis::Busy));
    assert_eq!(gpu.correction_ns, 2_700.0);
    let expected = 1000.0 * (8_000.0 + 475.0);
    assert!((gpu.total_ns.value / expected - 1.0).abs() < 0.01, "{}", gpu.total_ns.value);
    assert_eq!((gpu.total_ns.provenance(), gpu.total_ns.samples), (Provenance::Measured, 20));
    assert!(gpu.total_ns.standard_error.expect("a spread") > 0.0);
    assert_eq!(profile.totals.timed_share, 1.0);
    assert_eq!(profile.totals.gpu_time_ns.expect("timed").value, gpu.total_ns.value);
}

#[test]
fn busy_share_and_idle_time_follow_from_times_and_synchronisations() {
    let profile = profile(|program| {
        let function = program.function("kernel");
        let config = program.config(function, 1056, 256);
        for _ in 0..100 {
            // Half of each 20 us the device works: the call, then 10 us of kernel, then 6 us of
            // nothing.
            program.timed(config, LEGACY, 10_000);
            program.synchronise(LEGACY, 10_000);
            program.now += 6_000;
        }
    });
    let [activity] = &profile.activities[..] else { panic!("{} activities", profile.activities.len()) };
    assert_eq!((activity.launches, activity.timed_share, activity.streams), (100, 1.0, 1));
    assert!((profile.totals.gpu_busy.expect("timed").value - 0.5).abs() < 0.01);
    assert!((activity.idle_share.expect("modelled").value - 0.5).abs() < 0.01);
    assert!(activity.busy.iter().all(|busy| (busy - 0.5).abs() < 0.2), "{:?}", activity.busy);
}

#[test]
fn copies_memory_and_calls_are_counted_by_kind() {
    let profile = profile(|program| {
        let function = program.function("kernel");
        let config = program.config(function, 1056, 256);
        program.launch(config, LEGACY);
        for _ in 0..20 {
            program.allocate(MemoryKind::Device, 0x7000, 1 << 20, 30_000);
            program.launch(config, LEGACY);
            program.free(0x7000, 20_000);
        }
        program.allocate(MemoryKind::Pinned, 0x9000, 4096, 5_000);
        program.copy(MemoryKind::Device, MemoryKind::Pageable, 1000, false, 50_000);
        program.copy(MemoryKind::Device, MemoryKind::Pinned, 5000, true, 2_000);
        program.copy(MemoryKind::Pageable, MemoryKind::Device, 70, false, 9_000);
        program.copy_between_devices(LEGACY, 1 << 29, 3_000);
    });
    let device = profile.memory.iter().find(|memory| memory.kind == MemoryKind::Device).expect("allocated");
    assert_eq!((device.allocations, device.frees, device.repeated, device.among_launches), (20, 20, 19, 20));
    assert_eq!((device.peak_bytes, device.live, device.cpu_ns), (1 << 20, 0, 1_000_000.0));
    let pinned = profile.memory.iter().find(|memory| memory.kind == MemoryKind::Pinned).expect("allocated");
    assert_eq!((pinned.live, pinned.live_bytes), (1, 4096));
    let copies: Vec<_> =
        profile.copies.iter().map(|c| (c.direction, c.asynchronous, c.count, c.bytes)).collect();
    let expected = [
        (CopyDirection::PeerToPeer, true, 1, 1 << 29),
        (CopyDirection::HostToDevice, true, 1, 5000),
        (CopyDirection::HostToDevice, false, 1, 1000),
        (CopyDirection::DeviceToHost, false, 1, 70),
    ];
    assert_eq!(copies, expected);
    // Over NVLink 5, or through host memory.
    let time = profile.time_of_copies(&profile.copies[0]);
    assert_eq!(time.interval(), Some(((1 << 29) as f64 / 900.0, (1 << 29) as f64 / 5.0)));
    let call = profile.calls.iter().find(|call| call.name == "cuMemAlloc_v2").expect("called");
    assert_eq!((call.class, call.count, call.cpu.total_ns), (Some(CallClass::Allocate), 21, 605_000.0));
    let stream = &profile.streams[0];
    assert_eq!((stream.kind, stream.launches, stream.transfers), (Some(StreamKind::LegacyDefault), 21, 2));
}

#[test]
fn repeated_sequences_name_their_kernels() {
    let profile = profile(|program| {
        let function = program.function("layer");
        let configs: Vec<u32> = (1..=5).map(|i| program.config(function, i * 132, 256)).collect();
        for _ in 0..300 {
            for &config in &configs {
                program.launch(config, LEGACY);
            }
            program.synchronise(LEGACY, 10_000);
        }
    });
    let [sequence] = &profile.sequences[..] else { panic!("{:?}", profile.sequences) };
    assert_eq!((sequence.length, sequence.repeats), (5, 300));
    assert_eq!((sequence.launch_cpu_ns, sequence.elapsed_ns), (300.0 * 20_000.0, 300.0 * 20_000.0));
    let grids: Vec<u64> = sequence.kernels.iter().map(|&kernel| profile.kernels[kernel].blocks()).collect();
    assert_eq!(grids, [132, 264, 396, 528, 660]);
}

#[test]
fn processes_share_kernels_and_devices() {
    let dir = TempDir::new().expect("a temporary directory");
    let mut first = Recording::new(dir.path());
    let mut second = Recording::new(dir.path());
    // Identifiers differ between the processes.
    second.function("other");
    for (program, launches) in [(&mut first, 10), (&mut second, 30)] {
        let function = program.function("kernel");
        let config = program.config(function, 132, 128);
        for _ in 0..launches {
            program.launch(config, LEGACY);
        }
    }
    first.exit();
    drop(second);
    let profile = Profile::from_session(&test_session::open(&dir));
    assert_eq!((profile.processes.len(), profile.devices.len(), profile.kernels.len()), (2, 1, 1));
    assert_eq!(profile.kernels[0].launches.calls, 40);
    let mut ends: Vec<(u64, bool)> = profile.processes.iter().map(|p| (p.launches, p.ended)).collect();
    ends.sort_unstable();
    assert_eq!(ends, [(10, true), (30, false)], "the second process never said that it ended");
    assert_eq!(profile.activities.len(), 2);
}

#[test]
fn the_recorders_own_cost_is_stated() {
    let profile = profile(|program| {
        let function = program.function("kernel");
        let config = program.config(function, 132, 128);
        for _ in 0..100 {
            program.launch(config, LEGACY);
        }
    });
    let recorder = &profile.recorder;
    assert_eq!((recorder.records, recorder.timings, recorder.dropped), (100, 0, 0));
    assert_eq!(recorder.recording_ns, 100.0 * apex_profile::RECORD_COST_NS);
    let share = recorder.overhead_share.expect("the process took time");
    assert!((share.value - recorder.recording_ns / 401_000.0).abs() < 0.002, "{}", share.value);
    // An estimate with an interval: no clock was read for it.
    let (low, high) = share.interval().expect("predicted");
    let (least, most) = apex_profile::RECORD_COST_INTERVAL_NS;
    let relative = |bound: f64| bound / share.value;
    assert!((relative(low) - least / apex_profile::RECORD_COST_NS).abs() < 1e-9);
    assert!((relative(high) - most / apex_profile::RECORD_COST_NS).abs() < 1e-9);
}
