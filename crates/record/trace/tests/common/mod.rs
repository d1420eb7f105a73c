//! Shared parts of the tests of sessions: random records and definitions, and child processes.
#![allow(dead_code, reason = "each test file uses its part of this")]

use apex_trace::definition::{
    ArgumentMemory, Arguments, CallStack, Config, Context, Definition, Device, Function, FunctionCode, Graph,
    Module, NativeFrame, Pointer, PythonFrame, Range, Stream, StreamKind, Variable,
};
use apex_trace::layout::{
    ArgumentSample, Call, GraphLaunch, Launch, RangeChange, RecordHead, RecordKind, Slots as _, StackSample,
    Timing,
};
use apex_trace::python::{LineTable, PythonCode};
use apex_trace::{Event, Process, ProcessFile, Record, Session};
use cuda_launch::{Carveout, FunctionAttributes, LaunchConfig};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use test_process::Command;

/// Opens a session that is made of process files alone: that `session.json` is missing is the only
/// problem allowed.
pub fn open_sound(dir: &Path) -> Session {
    let session = Session::open(dir).unwrap();
    let unexpected: Vec<_> =
        session.problems.iter().filter(|problem| !problem.path.ends_with(apex_trace::META_FILE)).collect();
    assert!(unexpected.is_empty(), "{unexpected:#?}");
    session
}

/// The only process of a sound session.
pub fn open_only_process(dir: &Path) -> Process {
    let mut session = open_sound(dir);
    assert_eq!(session.processes.len(), 1);
    session.processes.remove(0)
}

/// A launch that carries two numbers to be found again.
pub fn launch(config: u32, number: u32) -> Launch {
    let start = apex_trace::now();
    Launch { head: Launch::head(0, start, start + 5), config, stream: !number, result: number, api: 1 }
}

/// The numbers of the launches of `config`, in the order in which `records` gives them. Each is
/// checked to be whole.
pub fn numbers(records: impl Iterator<Item = Record>, config: u32) -> Vec<u32> {
    let launches = records.filter_map(|record| match record.event {
        Event::Launch(launch) if launch.config == config => Some(launch),
        _ => None,
    });
    launches.inspect(|launch| assert_eq!(launch.stream, !launch.result)).map(|launch| launch.result).collect()
}

/// Runs a test function of this test program in a process of its own, under the environment
/// variable `CHILD_DIR`. `prefix` is a command to run it through.
pub fn child(test: &str, dir: &Path, prefix: &[&str]) -> Command {
    let mut words: Vec<OsString> = prefix.iter().map(OsString::from).collect();
    words.push(std::env::current_exe().unwrap().into());
    words.extend(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"].map(OsString::from));
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).env("CHILD_DIR", dir);
    command
}

/// Runs such a child to its end, which must be a success.
pub fn run_child(test: &str, dir: &Path, prefix: &[&str]) {
    let output = child(test, dir, prefix).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{test}: {}\n{}\n{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
}

/// The directory that [`child`] names; `None` if the function was called by hand.
pub fn child_dir() -> Option<std::path::PathBuf> {
    std::env::var_os("CHILD_DIR").map(Into::into)
}

/// A record of any kind that readers see, with any content.
pub fn any_event() -> impl Strategy<Value = Event> {
    let words = prop::array::uniform4(any::<u32>());
    let longs = prop::array::uniform4(any::<u64>());
    (1..=7, any::<u16>(), any::<u64>(), any::<u64>(), words, longs).prop_map(
        |(which, flags, start, length, [a, b, c, d], [bytes, address, source, object])| {
            let head = |kind, slots| RecordHead::new(kind, slots, flags, start, start.saturating_add(length));
            match which {
                1 => Event::Launch(Launch {
                    head: head(RecordKind::Launch, 1),
                    config: a,
                    stream: b,
                    result: c,
                    api: d,
                }),
                2 => Event::GraphLaunch(GraphLaunch {
                    head: head(RecordKind::GraphLaunch, 1),
                    graph: a,
                    stream: b,
                    result: c,
                    api: d,
                }),
                3 => Event::Timing(Timing {
                    head: head(RecordKind::Timing, 1),
                    config: a,
                    stream: b,
                    raw_ns: bytes,
                }),
                4 => Event::StackSample(StackSample {
                    head: head(RecordKind::StackSample, 1),
                    config: a,
                    stack: b,
                    class: c.to_le_bytes()[0],
                    memory: c.to_le_bytes()[1],
                    source_memory: c.to_le_bytes()[2],
                    reserved: [c.to_le_bytes()[3]; 5],
                }),
                5 => Event::RangeChange(RangeChange {
                    head: head(RecordKind::RangeChange, 1),
                    range: a,
                    changed: b,
                    instance: bytes,
                }),
                6 => Event::ArgumentSample(ArgumentSample {
                    head: head(RecordKind::ArgumentSample, 1),
                    config: a,
                    arguments: b,
                    allocations: bytes.to_le_bytes(),
                }),
                _ => {
                    let [class, memory, source_memory, reserved] = d.to_le_bytes();
                    let head = head(RecordKind::Call, 2);
                    Event::Call(Call {
                        head,
                        api: a,
                        stream: b,
                        result: c,
                        class,
                        memory,
                        source_memory,
                        reserved,
                        bytes,
                        address,
                        source,
                        object,
                    })
                }
            }
        },
    )
}

/// Writes an event through a lane.
pub fn record(lane: &mut apex_trace::Lane, file: &ProcessFile, event: &Event) -> bool {
    match event {
        Event::Launch(record) => lane.record(file, record),
        Event::GraphLaunch(record) => lane.record(file, record),
        Event::Timing(record) => lane.record(file, record),
        Event::Call(record) => lane.record(file, record),
        Event::StackSample(record) => lane.record(file, record),
        Event::RangeChange(record) => lane.record(file, record),
        Event::ArgumentSample(record) => lane.record(file, record),
    }
}

/// A definition of any kind, with any content.
pub fn any_definition() -> impl Strategy<Value = Definition> {
    let id = 1..200u32;
    let text = "\\PC{0,80}";
    let pairs = prop::collection::vec(any::<(u32, u32)>(), 0..40);
    let attributes = prop::collection::vec(any::<(u32, i32)>(), 0..40);
    let words = prop::array::uniform12(any::<u32>());
    let more = (any::<u64>(), any::<[u8; 16]>(), any::<bool>(), 0..4u32);
    (1..=15, id, text, pairs, attributes, words, more).prop_map(
        |(which, id, text, kernels, attributes, w, (long, uuid, known, kind))| match which {
            1 => Definition::Name { id, text },
            2 => Definition::Device(Device {
                id,
                ordinal: w[0],
                name: text,
                uuid,
                driver_version: w[1],
                memory_bytes: long,
                attributes,
            }),
            3 => Definition::Context(Context {
                id,
                handle: long,
                device: w[0],
                pair_busy_ns: w[1],
                pair_idle_ns: w[2],
            }),
            4 => Definition::Stream(Stream { id, handle: long, context: w[0], kind: stream_kind(kind) }),
            5 => Definition::Function(Function {
                id,
                name: text,
                attributes: known.then_some(FunctionAttributes {
                    registers: w[0],
                    static_shared_bytes: w[1],
                    local_bytes: w[2],
                    constant_bytes: w[3],
                    max_threads_per_block: w[4],
                    max_dynamic_shared_bytes: Some(w[5]),
                    carveout: Carveout::from_attribute(w[6] as i32),
                    binary_version: w[7],
                    ptx_version: w[8],
                    barriers: 0,
                }),
            }),
            6 => Definition::Config(Config {
                id,
                function: w[0],
                context: w[1],
                launch: LaunchConfig {
                    grid: [w[2], w[3], w[4]].into(),
                    block: [w[5], w[6], w[7]].into(),
                    cluster: [w[8], w[9], w[10]].into(),
                    dynamic_shared_bytes: w[11],
                },
                requires_block: known,
                asked: (w[0] % 2 == 0).then(|| ([w[4], w[3], w[2]].into(), [w[7], w[6], w[5]].into())),
            }),
            7 => Definition::Graph(Graph {
                id,
                handle: long,
                kernels,
                copies: w[0],
                sets: w[1],
                others: w[2],
                opaque: w[3],
            }),
            8 => Definition::PythonCode(PythonCode {
                id,
                function: text.chars().rev().collect(),
                file: text,
                first_line: w[0],
                lines: if known {
                    LineTable::Pairs(uuid.to_vec())
                } else {
                    LineTable::Locations(uuid.to_vec())
                },
            }),
            9 => Definition::CallStack(CallStack {
                id,
                thread: text,
                python: kernels.iter().map(|&(code, at)| PythonFrame { code, offset: at as i32 }).collect(),
                native: kernels
                    .iter()
                    .take(900)
                    .map(|&(module, at)| NativeFrame { module, address: long ^ u64::from(at) })
                    .collect(),
                is_cut: known,
            }),
            10 => Definition::Module(Module {
                id,
                build_id: text.chars().rev().collect(),
                path: text,
                bytes: long,
                modified_ns: long.rotate_left(32),
            }),
            11 => Definition::FunctionCode(FunctionCode {
                id,
                image: u128::from_le_bytes(uuid),
                ptx: u128::from_be_bytes(uuid),
            }),
            12 => Definition::Arguments(Arguments {
                id,
                config: w[0],
                bytes: text.into_bytes(),
                pointers: kernels
                    .iter()
                    .map(|&(at, allocation)| Pointer {
                        at,
                        allocation,
                        allocation_bytes: long,
                        offset: !long,
                    })
                    .collect(),
                parameters: kernels,
            }),
            13 => Definition::ArgumentMemory(ArgumentMemory { id, parameters: kernels }),
            14 => Definition::Variable(Variable { id, value: text.chars().rev().collect(), name: text }),
            _ => Definition::Range(Range {
                id,
                parent: w[0],
                domain: text.chars().rev().collect(),
                name: text,
            }),
        },
    )
}

fn stream_kind(raw: u32) -> StreamKind {
    match raw {
        0 => StreamKind::LegacyDefault,
        1 => StreamKind::PerThreadDefault,
        2 => StreamKind::Blocking,
        _ => StreamKind::NonBlocking,
    }
}

/// Returns the identifier that a definition defines: its kind and number.
pub fn identifier(definition: &Definition) -> (u8, u32) {
    match definition {
        Definition::Name { id, .. } => (1, *id),
        Definition::Device(device) => (2, device.id),
        Definition::Context(context) => (3, context.id),
        Definition::Stream(stream) => (4, stream.id),
        Definition::Function(function) => (5, function.id),
        Definition::Config(config) => (6, config.id),
        Definition::Graph(graph) => (7, graph.id),
        Definition::PythonCode(code) => (8, code.id),
        Definition::CallStack(stack) => (9, stack.id),
        Definition::Module(module) => (10, module.id),
        Definition::Range(range) => (11, range.id),
        Definition::FunctionCode(code) => (12, code.id),
        Definition::Arguments(arguments) => (13, arguments.id),
        Definition::ArgumentMemory(memory) => (14, memory.id),
        Definition::Variable(variable) => (15, variable.id),
    }
}

/// Returns a process's definition of an identifier.
pub fn lookup(process: &Process, (kind, id): (u8, u32)) -> Option<Definition> {
    let all = &process.definitions;
    match kind {
        1 => all.name(id).map(|text| Definition::Name { id, text: text.to_owned() }),
        2 => all.device(id).cloned().map(Definition::Device),
        3 => all.context(id).cloned().map(Definition::Context),
        4 => all.stream(id).cloned().map(Definition::Stream),
        5 => all.function(id).cloned().map(Definition::Function),
        6 => all.config(id).cloned().map(Definition::Config),
        7 => all.graph(id).cloned().map(Definition::Graph),
        8 => all.python_code(id).cloned().map(Definition::PythonCode),
        9 => all.call_stack(id).cloned().map(Definition::CallStack),
        10 => all.module(id).cloned().map(Definition::Module),
        11 => all.range(id).cloned().map(Definition::Range),
        12 => all.function_code(id).copied().map(Definition::FunctionCode),
        13 => all.arguments(id).cloned().map(Definition::Arguments),
        14 => all.argument_memory(id).cloned().map(Definition::ArgumentMemory),
        _ => all.variable(id).cloned().map(Definition::Variable),
    }
}

/// The last of each identifier's definitions.
pub fn last_of_each(definitions: &[Definition]) -> BTreeMap<(u8, u32), Definition> {
    definitions.iter().map(|definition| (identifier(definition), definition.clone())).collect()
}
