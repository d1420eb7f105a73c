//! JAX's traces in both of their forms: the same program as planes and as JSON gives the same
//! kernels, calls, ranges and frames; damaged planes give an error that names the file.

use apex_import::{Error, Found, Imported, import, import_found};
use apex_protobuf::Message;
use apex_trace::{Event, Session};
use apex_untrusted::Folder;
use proptest::prelude::*;
use tempfile::TempDir;

/// A name with its number in a plane.
fn named(number: u64, name: &str) -> Message {
    let mut inner = Message::new();
    inner.integer(1, number).text(2, name);
    let mut entry = Message::new();
    entry.integer(1, number).message(2, &inner);
    entry
}

/// A stat of an event: the number of its name, and its value.
enum Stat<'a> {
    Number(u64, u64),
    Text(u64, &'a str),
    Name(u64, u64),
}

impl Stat<'_> {
    fn message(&self) -> Message {
        let mut stat = Message::new();
        match self {
            Stat::Number(name, value) => stat.integer(1, *name).integer(3, *value),
            Stat::Text(name, value) => stat.integer(1, *name).text(5, value),
            Stat::Name(name, value) => stat.integer(1, *name).integer(7, *value),
        };
        stat
    }
}

fn event(name: u64, offset_ps: u64, duration_ps: u64, stats: &[Stat<'_>]) -> Message {
    let mut event = Message::new();
    event.integer(1, name).integer(2, offset_ps).integer(3, duration_ps);
    for stat in stats {
        event.message(4, &stat.message());
    }
    event
}

fn line(number: u64, name: &str, began_ns: u64, events: &[Message]) -> Message {
    let mut line = Message::new();
    line.integer(1, number).text(2, name).integer(3, began_ns);
    for event in events {
        line.message(4, event);
    }
    line
}

fn plane(name: &str, lines: &[Message], events: &[&str], stats: &[&str], own: &[Stat<'_>]) -> Message {
    let mut plane = Message::new();
    plane.text(2, name);
    for line in lines {
        plane.message(3, line);
    }
    for (field, names) in [(4, events), (5, stats)] {
        for (number, name) in (1..).zip(names) {
            plane.message(field, &named(number, name));
        }
    }
    for stat in own {
        plane.message(6, &stat.message());
    }
    plane
}

/// A step with a launch, a copy, and what XLA makes of them.
fn planes(vendor: &str) -> Vec<u8> {
    let details = "regs:32 static_shared:16 dynamic_shared:64 grid:8,1,1 block:128,1,1 occ_pct:100";
    let copied = "kind_src:pinned kind_dst:device size:4096 dest:0 async:1";
    let stats =
        ["correlation_id", "kernel_details", details, "device_vendor", "core_count", "memcpy_details"];
    let stream = line(
        13,
        "Stream #13(Compute,MemcpyH2D)",
        1_000,
        &[
            event(1, 9_250_400, 3_125_000, &[Stat::Number(1, 5), Stat::Name(2, 3)]),
            event(2, 20_000_000, 1_500_600, &[Stat::Number(1, 6), Stat::Text(6, copied)]),
        ],
    );
    let derived = line(9_999, "XLA Ops", 1_000, &[event(1, 9_250_000, 3_125_000, &[])]);
    let device = plane(
        "/device:GPU:0",
        &[stream, derived],
        &["loop_add_fusion", "MemcpyH2D"],
        &stats,
        &[Stat::Text(4, vendor), Stat::Number(5, 132)],
    );
    let calls = [Stat::Number(1, 5), Stat::Number(1, 6)];
    let host = plane(
        "/host:CPU",
        &[line(
            77,
            "python",
            1_000,
            &[
                event(1, 0, 90_000_000, &[Stat::Number(2, 3)]),
                event(2, 500_000, 80_000_000, &[]),
                event(3, 1_001_000, 2_500_000, &calls[..1]),
                event(4, 14_000_000, 1_000_000, &calls[1..]),
                event(5, 30_000_000, 1_000_000, &[]),
            ],
        )],
        &["train", "$train.py:4 step", "cuLaunchKernel", "cuMemcpyHtoDAsync_v2", "ThunkExecutor::Execute"],
        &["correlation_id", "step_num"],
        &[],
    );
    let environment = plane(
        "Task Environment",
        &[],
        &[],
        &["profile_start_time"],
        &[Stat::Number(1, 1_700_000_000_000_000_000)],
    );
    let mut space = Message::new();
    space.message(1, &environment).message(1, &device).message(1, &host).text(4, "a host's name");
    space.as_bytes().to_vec()
}

const JSON: &str = r#"{"displayTimeUnit":"ns","metadata":{"highres-ticks":true},"traceEvents":[
{"ph":"M","pid":1,"name":"process_name","args":{"name":"/device:GPU:0"}},
{"ph":"M","pid":1,"name":"process_sort_index","args":{"sort_index":1}},
{"ph":"M","pid":1,"tid":13,"name":"thread_name","args":{"name":"Stream #13(Compute,MemcpyH2D)"}},
{"ph":"M","pid":1,"tid":9999,"name":"thread_name","args":{"name":"XLA Ops"}},
{"ph":"M","pid":701,"name":"process_name","args":{"name":"/host:CPU"}},
{"ph":"M","pid":701,"tid":77,"name":"thread_name","args":{"name":"python"}},
{"ph":"X","pid":1,"tid":13,"ts":10.2504,"dur":3.125,"name":"loop_add_fusion","args":{"correlation_id":"5","hlo_op":"add"}},
{"ph":"X","pid":1,"tid":13,"ts":21,"dur":1.5006,"name":"MemcpyH2D","args":{"correlation_id":"6","memcpy_details":"kind_src:pinned kind_dst:device size:4096 dest:0 async:1"}},
{"ph":"X","pid":1,"tid":9999,"ts":10.25,"dur":3.125,"name":"loop_add_fusion"},
{"ph":"X","pid":701,"tid":77,"ts":1,"dur":90,"name":"train","args":{"step_num":"3"}},
{"ph":"X","pid":701,"tid":77,"ts":1.5,"dur":80,"name":"$train.py:4 step"},
{"ph":"X","pid":701,"tid":77,"ts":2.001,"dur":2.5,"name":"cuLaunchKernel","args":{"correlation_id":"5"}},
{"ph":"X","pid":701,"tid":77,"ts":15,"dur":1,"name":"cuMemcpyHtoDAsync_v2","args":{"correlation_id":"6"}},
{"ph":"X","pid":701,"tid":77,"ts":31,"dur":1,"name":"ThunkExecutor::Execute"},
{}]}"#;

fn imported(name: &str, bytes: &[u8]) -> (Result<Imported, Error>, TempDir) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    let folder = Folder::make(&dir.path().join("session")).unwrap();
    (import(&[path], &folder), dir)
}

#[test]
fn both_forms_give_the_same_work_calls_ranges_and_frames() {
    for (name, bytes) in [("vm.xplane.pb", planes("Nvidia")), ("vm.trace.json", JSON.into())] {
        let (result, dir) = imported(name, &bytes);
        let result = result.unwrap();
        assert_eq!((result.kernels, result.transfers, result.calls), (1, 1, 2), "{name}");
        assert!(result.sources[0].starts_with("JAX"), "{:?}", result.sources);
        assert_eq!(result.left_out.get("events of XLA's own code"), Some(&1), "{name}");
        let session = Session::open(dir.path().join("session")).unwrap();
        assert!(session.problems.is_empty(), "{:?}", session.problems);
        let process = &session.processes[0];
        let mut placed = Vec::new();
        for record in process.records() {
            if let Event::Timing(timing) = record.event {
                placed.push((timing.placed_at().unwrap(), timing.raw_ns, timing.stream, record.range));
            }
        }
        // (Times are those after the first call.)
        assert_eq!(placed, [(8_249, 3_125, 13, 1), (18_999, 1_501, 13, 1)], "{name}");
        let definitions = &process.definitions;
        assert_eq!(definitions.function(1).unwrap().name, "loop_add_fusion");
        assert_eq!(definitions.range(1).unwrap().name, "train");
        let stack = definitions.call_stack(1).unwrap();
        let code = definitions.python_code(stack.python[0].code).unwrap();
        assert_eq!((code.file.as_str(), code.function.as_str(), code.line(0)), ("train.py", "step", Some(4)));
    }
}

#[test]
fn planes_have_launch_configurations_and_the_time_of_day() {
    let (result, dir) = imported("vm.xplane.pb", &planes("Nvidia"));
    result.unwrap();
    let session = Session::open(dir.path().join("session")).unwrap();
    let process = &session.processes[0];
    let config = process.definitions.config(1).unwrap();
    assert_eq!(
        (config.launch.grid.x, config.launch.block.x, config.launch.dynamic_shared_bytes),
        (8, 128, 64)
    );
    let attributes = process.definitions.function(1).unwrap().attributes.unwrap();
    assert_eq!((attributes.registers, attributes.static_shared_bytes), (32, 16));
    assert_eq!(process.clock.real_ns(0), 1_700_000_000_000_002_001);
}

#[test]
fn other_devices_are_refused_by_name() {
    let tpu = JSON.replace("/device:GPU:0", "/device:TPU:0");
    let hip = JSON.replace("cuLaunchKernel", "hipModuleLaunchKernel");
    for (name, bytes, word) in [
        ("vm.xplane.pb", planes("AMD"), "AMD"),
        ("vm.trace.json", tpu.into(), "TPU"),
        ("vm.trace.json", hip.into(), "AMD"),
    ] {
        let error = imported(name, &bytes).0.unwrap_err().to_string();
        assert!(error.contains(word) && error.contains(name), "{error}");
    }
}

#[test]
fn of_the_files_of_a_run_the_planes_are_read() {
    let dir = TempDir::new().unwrap();
    let run = dir.path().join("plugins/profile/2026_11_29");
    std::fs::create_dir_all(&run).unwrap();
    std::fs::write(run.join("vm.xplane.pb"), planes("Nvidia")).unwrap();
    std::fs::write(run.join("vm.trace.json"), JSON).unwrap();
    std::fs::write(run.join("perfetto_trace.json"), JSON).unwrap();
    let found = Found::at(dir.path());
    assert_eq!((found.traces, found.passed.len()), (vec![run.join("vm.xplane.pb")], 2));
    // Without them, one of the others is.
    std::fs::remove_file(run.join("vm.xplane.pb")).unwrap();
    let found = Found::at(dir.path());
    assert_eq!((&found.traces, found.passed.len()), (&vec![run.join("vm.trace.json")], 1));
    let folder = Folder::make(&dir.path().join("session")).unwrap();
    assert_eq!(import_found(&found, &folder).unwrap().kernels, 1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn damaged_planes_never_panic(
        changes in prop::collection::vec((0usize..4096, any::<u8>()), 0..12),
        end in 0usize..4096,
    ) {
        let mut bytes = planes("Nvidia");
        for (at, byte) in changes {
            let length = bytes.len();
            bytes[at % length] = byte;
        }
        bytes.truncate(end.max(1));
        let (result, dir) = imported("t.xplane.pb", &bytes);
        match result {
            Ok(_) => drop(Session::open(dir.path().join("session")).unwrap()),
            Err(error) => prop_assert!(error.to_string().contains("t.xplane.pb")),
        }
    }
}
