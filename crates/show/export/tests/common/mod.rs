//! A session that the recorder's own writer wrote, with random numbers in it; and a decoder of
//! traces.

#![allow(dead_code, reason = "each test file uses some of this")]

use apex_random::Random;
use apex_trace::definition::{Config, Context, Definition, Device, Function, Graph, Stream, StreamKind};
use apex_trace::layout::{Call, CallClass, GraphLaunch, Launch, MemoryKind, Slots, Timing, flags};
use apex_trace::{Lane, ProcessFile, Session};
use cuda_launch::{FunctionAttributes, LaunchConfig};
use serde_json::Value as Json;
use std::path::Path;
use test_process::Command;

/// What was written for one launch, to be found in what comes out.
#[derive(Clone, Copy, Debug)]
pub struct Written {
    /// 1 or 2.
    pub config: u32,
    /// Raw reading and correction, if it was timed.
    pub timed: Option<(u64, u32)>,
    /// The driver's result.
    pub result: u32,
}

/// Bytes of the allocations in [`write`], in order; the second one is freed.
pub const ALLOCATED: [u64; 3] = [1 << 20, 300_000, 4096];

/// Writes a session into `dir`: `count` kernel launches (some timed, some failed), one graph
/// launch, allocations, a free, a copy. Returns what was launched.
pub fn write(dir: &Path, count: usize, seed: u64) -> Vec<Written> {
    let file = ProcessFile::create(dir, None).unwrap();
    for definition in definitions() {
        assert!(file.define(&definition));
    }
    let mut random = Random::new(seed);
    let mut lane = Lane::default();
    let mut clock = apex_trace::now();
    let mut call = |lane: &mut Lane, class, api, memory, bytes, address| {
        clock += 1000;
        let head = Call::head(0, clock, clock + 500);
        let call = Call { head, api, class, memory, bytes, address, object: 7, ..Call::default() };
        assert!(lane.record(&file, &call));
    };
    let (allocate, free) = (CallClass::Allocate as u8, CallClass::Free as u8);
    for (i, bytes) in ALLOCATED.into_iter().enumerate() {
        call(&mut lane, allocate, 3, MemoryKind::Device as u8, bytes, 0x7000_0000 + i as u64 * 0x1000_0000);
    }
    call(&mut lane, free, 4, MemoryKind::Unknown as u8, 0, 0x8000_0000);
    let head = Call::head(flags::ASYNC, clock + 1000, clock + 3000);
    let (class, memory, source_memory) =
        (CallClass::Copy as u8, MemoryKind::Device as u8, MemoryKind::Pageable as u8);
    let copy = Call { head, api: 5, class, memory, source_memory, bytes: 999, stream: 1, ..Call::default() };
    assert!(lane.record(&file, &copy));

    clock += 10_000;
    let mut written = Vec::new();
    for _ in 0..count {
        clock += 2000 + random.below(5000);
        let took = 500 + random.below(1000);
        let result = if random.below(10) == 0 { 1 } else { 0 };
        let config = 1 + random.below(2) as u32;
        let timed = (result == 0 && random.below(3) == 0)
            .then(|| (2_000 + random.below(100_000), random.below(3000) as u32));
        let head = Launch::head(flags::COOPERATIVE, clock, clock + took);
        assert!(lane.record(&file, &Launch { head, config, stream: 1, result, api: 1 }));
        if let Some((raw_ns, pair_ns)) = timed {
            let mut head = Timing::head(flags::STREAM_WAS_IDLE, clock, clock);
            head.duration = pair_ns;
            assert!(lane.record(&file, &Timing { head, config, stream: 1, raw_ns }));
        }
        written.push(Written { config, timed, result });
    }
    let head = GraphLaunch::head(0, clock + 9000, clock + 9900);
    assert!(lane.record(&file, &GraphLaunch { head, graph: 1, stream: 1, result: 0, api: 2 }));
    written
}

/// A mangled name, and one with everything that must be escaped somewhere.
pub const SYMBOLS: [&str; 2] = ["_Z5saxpyfPKfPfi", "odd \"name\", with <T, 2>\n\tand ünïcode"];

fn definitions() -> Vec<Definition> {
    let names = ["cuLaunchKernel", "cuGraphLaunch", "cuMemAlloc_v2", "cuMemFree_v2", "cuMemcpyHtoDAsync_v2"];
    let names = names.iter().zip(1..).map(|(text, id)| Definition::Name { id, text: text.to_string() });
    let functions = SYMBOLS.iter().zip(1..).map(|(name, id)| {
        let attributes = (id == 1).then_some(FunctionAttributes {
            registers: 30 + id,
            static_shared_bytes: 1024,
            max_threads_per_block: 1024,
            ..FunctionAttributes::default()
        });
        Definition::Function(Function { id, name: name.to_string(), attributes })
    });
    let config = |id, function, launch| {
        Definition::Config(Config { id, function, context: 1, launch, ..Config::default() })
    };
    let clusters = LaunchConfig { cluster: 2.into(), ..LaunchConfig::new((64, 2), 100) };
    let device =
        Device { id: 1, name: "Test Device".into(), attributes: vec![(16, 132)], ..Device::default() };
    let graph = Graph { id: 1, handle: 9, kernels: vec![(1, 3), (2, 4)], ..Graph::default() };
    let stream = Stream { id: 1, handle: 0xabc, context: 1, kind: StreamKind::NonBlocking };
    let rest = [
        Definition::Device(device),
        Definition::Context(Context { id: 1, handle: 5, device: 1, ..Context::default() }),
        Definition::Stream(stream),
        config(1, 1, clusters.with_dynamic_shared_bytes(512)),
        config(2, 2, LaunchConfig::new(7, 100)),
        Definition::Graph(graph),
    ];
    names.chain(functions).chain(rest).collect()
}

/// Writes a session and opens it.
pub fn session(dir: &Path, count: usize, seed: u64) -> (Session, Vec<Written>) {
    let written = write(dir, count, seed);
    let session = Session::open(dir).unwrap();
    assert_eq!(session.processes.len(), 1);
    (session, written)
}

/// Decodes a Perfetto trace with the format's own classes; `None`, with a message, where they are
/// not installed (`scripts/test-deps.sh` installs them).
pub fn decode(trace: &[u8]) -> Option<Vec<Json>> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), trace).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/decode_perfetto.py");
    let output = Command::new("python3").arg(script).arg(file.path()).output();
    let Ok(output) =
        output.inspect_err(|error| test_skip::missing_dependency(format!("no python3: {error}")))
    else {
        return None;
    };
    let text = String::from_utf8(output.stdout).unwrap();
    if output.status.code() == Some(77) {
        test_skip::missing_dependency(text.trim());
        return None;
    }
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}
