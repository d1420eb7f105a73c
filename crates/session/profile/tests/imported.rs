//! Profiles of imported traces, against an independent recount of the same events.
//!
//! One random program is written as PyTorch's JSON (of several versions) and as Nsight Systems'
//! SQLite export; both must give the accounts that the events themselves have.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use apex_import::{Imported, import};
use apex_profile::{CopyDirection, Profile};
use apex_trace::Session;
use apex_untrusted::Folder;
use proptest::prelude::*;
use rusqlite::Connection;
use tempfile::TempDir;

const PID: u64 = 4242;
const EPOCH_NS: u64 = 1_712_195_495_505_583_217;

/// A launch or copy, and what it queued.
#[derive(Clone, Debug)]
struct Step {
    /// Nanoseconds from the end of the call before to this one.
    pause: u64,
    cpu_ns: u64,
    /// From the start of the call to that on the device.
    delay: u64,
    gpu_ns: u64,
    stream: u8,
    kernel: u8,
    is_copy: bool,
    /// Whether the trace has the call.
    has_call: bool,
}

/// A piece of work as the trace has it.
struct Placed {
    call: Option<(u64, u64)>,
    start: u64,
    end: u64,
    stream: u8,
    kernel: u8,
    is_copy: bool,
}

fn step() -> impl Strategy<Value = Step> {
    let times = (0..40_000_u64, 1..20_000_u64, 0..60_000_u64, 0..50_000_u64);
    let what = (7_u8..10, 0_u8..4, prop::bool::weighted(0.2), prop::bool::weighted(0.9));
    (times, what).prop_map(|((pause, cpu_ns, delay, gpu_ns), (stream, kernel, is_copy, has_call))| Step {
        pause,
        cpu_ns,
        delay,
        gpu_ns,
        stream,
        kernel,
        is_copy,
        has_call,
    })
}

impl Placed {
    /// Whether a copy is between two devices.
    fn is_peer(&self) -> bool {
        self.is_copy && self.kernel % 2 == 1
    }
}

fn placed(steps: &[Step]) -> Vec<Placed> {
    let mut now = 1_000;
    let place = |step: &Step| {
        let start = now + step.pause;
        now = start + step.cpu_ns;
        Placed {
            call: step.has_call.then_some((start, now)),
            start: start + step.delay,
            end: start + step.delay + step.gpu_ns,
            stream: step.stream,
            kernel: step.kernel,
            is_copy: step.is_copy,
        }
    };
    steps.iter().map(place).collect()
}

/// The time that intervals cover, counted by their ends.
fn covered<'p>(work: impl Iterator<Item = &'p Placed>) -> u64 {
    let mut edges: Vec<(u64, i32)> = work.flat_map(|work| [(work.start, 1), (work.end, -1)]).collect();
    edges.sort_unstable();
    let (mut open, mut before, mut sum) = (0, 0, 0);
    for (at, change) in edges {
        sum += if open > 0 { at - before } else { 0 };
        (open, before) = (open + change, at);
    }
    sum
}

/// A time in decimal microseconds.
fn micros(ns: u64) -> String {
    format!("{}.{:03}", ns / 1000, ns % 1000)
}

/// The versions of PyTorch's format: times since 1970 or a base, names of categories, and whether
/// streams are texts.
#[derive(Clone, Copy, Debug)]
enum Version {
    Of2021,
    Of2023,
    Of2025,
}

fn json(work: &[Placed], version: Version) -> String {
    let base = if matches!(version, Version::Of2025) { 0 } else { EPOCH_NS };
    let mut events = Vec::new();
    for (at, work) in work.iter().enumerate() {
        let correlation = at + 1;
        let (call, kernel, copy) = match version {
            Version::Of2021 => ("Runtime", "Kernel", "Memcpy"),
            _ => ("cuda_runtime", "kernel", "gpu_memcpy"),
        };
        if let Some((start, end)) = work.call {
            let name = if work.is_copy { "cudaMemcpyAsync" } else { "cudaLaunchKernel" };
            events.push(format!(
                r#"{{"ph": "X", "cat": "{call}", "name": "{name}", "pid": {PID}, "tid": {PID}, "ts": {}, "dur": {}, "args": {{"correlation": {correlation}}}}}"#,
                micros(start + base), micros(end - start)
            ));
        }
        let tid = match version {
            Version::Of2021 => format!("\"stream {}\"", work.stream),
            _ => work.stream.to_string(),
        };
        let (category, name) = match work.is_copy {
            true if work.is_peer() => (copy, "Memcpy PtoP (Device -> Device)".to_owned()),
            true => (copy, "Memcpy HtoD (Pinned -> Device)".to_owned()),
            false => (kernel, format!("kernel_{}", work.kernel)),
        };
        events.push(format!(
            r#"{{"ph": "X", "cat": "{category}", "name": "{name}", "pid": 0, "tid": {tid}, "ts": {}, "dur": {}, "args": {{"correlation": {correlation}, "device": 0, "context": 1, "stream": {}, "bytes": 64, "grid": [3, 1, 1], "block": [32, 1, 1]}}}}"#,
            micros(work.start + base), micros(work.end - work.start), work.stream
        ));
    }
    let mut text = String::from("{\"schemaVersion\": 1, ");
    let _ = write!(text, "\"traceEvents\": [\n{}\n]", events.join(",\n"));
    if matches!(version, Version::Of2025) {
        let _ = write!(text, ", \"displayTimeUnit\": \"ms\", \"baseTimeNanoseconds\": {EPOCH_NS}");
    }
    text + "}"
}

fn sqlite(work: &[Placed], path: &Path) {
    let connection = Connection::open(path).unwrap();
    let global = (PID << 24) | (1 << 48);
    let mut sql = String::from(
        "CREATE TABLE StringIds (id INTEGER, value TEXT);
         INSERT INTO StringIds VALUES (1, 'cudaLaunchKernel_v7000'), (2, 'cudaMemcpyAsync_v3020'),
             (10, 'kernel_0'), (11, 'kernel_1'), (12, 'kernel_2'), (13, 'kernel_3');
         CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER);
         CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);
         INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '3.24.14');
         CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER,
             streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER,
             gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER);
         CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER,
             streamId INTEGER, correlationId INTEGER, globalPid INTEGER, bytes INTEGER, srcKind INTEGER, dstKind INTEGER,
             copyKind INTEGER);
         CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER,
             correlationId INTEGER, nameId INTEGER, returnValue INTEGER);",
    );
    let _ = write!(sql, "INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES ({EPOCH_NS});");
    for (at, work) in work.iter().enumerate() {
        let (correlation, Placed { start, end, stream, .. }) = (at + 1, work);
        if let Some((start, end)) = work.call {
            let name = if work.is_copy { 2 } else { 1 };
            let _ = write!(
                sql,
                "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES ({start}, {end}, {}, {correlation}, {name}, 0);",
                global + PID
            );
        }
        let _ = match work.is_copy {
            true => write!(
                sql,
                "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES ({start}, {end}, 0, 1, {stream}, {correlation}, {global}, 64, {}, 2, {});",
                if work.is_peer() { 2 } else { 1 },
                if work.is_peer() { 10 } else { 1 }
            ),
            false => write!(
                sql,
                "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({start}, {end}, 0, 1, {stream}, {correlation}, {global}, {name}, {name}, 3, 1, 1, 32, 1, 1);",
                name = 10 + work.kernel
            ),
        };
    }
    connection.execute_batch(&format!("BEGIN; {sql} COMMIT;")).unwrap();
}

fn profile_of(path: PathBuf, dir: &TempDir) -> (Imported, Profile) {
    let folder = Folder::make(&dir.path().join(format!("{}.session", path.display()))).unwrap();
    let imported = import(&[path], &folder).unwrap();
    let session = Session::open(folder.path()).unwrap();
    assert!(session.problems.is_empty(), "{:?}", session.problems);
    (imported, Profile::from_session(&session))
}

/// Checks a profile against the events.
fn check(work: &[Placed], imported: &Imported, profile: &Profile) {
    let kernels = || work.iter().filter(|work| !work.is_copy);
    assert_eq!(imported.kernels, kernels().count() as u64);
    let alone = work.iter().filter(|work| work.call.is_none()).count();
    let said = format!("{alone} of {} pieces of GPU work have no launch call", work.len());
    let is_said = imported.remarks.iter().any(|remark| remark.starts_with(&said));
    let has_calls = work.iter().any(|work| work.call.is_some());
    assert_eq!(is_said, alone > 0 && has_calls, "{:?}", imported.remarks);

    let mut by_kernel: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for work in kernels() {
        let sum = by_kernel.entry(format!("kernel_{}", work.kernel)).or_default();
        *sum = (sum.0 + 1, sum.1 + work.end - work.start);
    }
    let found = profile.kernels.iter().map(|kernel| {
        let time = kernel.gpu_total_ns().expect("each kernel is measured");
        (kernel.symbol.clone(), (kernel.launches.calls, time.round() as u64))
    });
    assert_eq!(found.collect::<BTreeMap<_, _>>(), by_kernel);

    let with_call = |peer: bool| {
        let is = |work: &&Placed| work.is_copy && work.is_peer() == peer && work.call.is_some();
        work.iter().filter(is).count() as u64
    };
    let copies = |direction| {
        let of = profile.copies.iter().filter(move |copies| copies.direction == direction);
        of.map(|copies| copies.count).sum::<u64>()
    };
    let found = [CopyDirection::PeerToPeer, CopyDirection::HostToDevice].map(copies);
    assert_eq!(found, [with_call(true), with_call(false)]);

    let [activity] = &profile.activities[..] else { panic!("{} activities", profile.activities.len()) };
    let accounts = &activity.accounts;
    let busy = covered(work.iter());
    assert_eq!(accounts.kernels.value as u64, covered(kernels()));
    assert_eq!((accounts.kernels.value + accounts.copies.value) as u64, busy);
    let first = work.iter().map(|work| work.call.map_or(work.start, |(start, _)| start)).min().unwrap();
    let last = work.iter().map(|work| work.end.max(work.call.map_or(0, |(_, end)| end))).max().unwrap();
    assert_eq!(accounts.span_ns as u64, last - first);
    assert_eq!(accounts.idle_ns().value as u64, last - first - busy);
    assert_eq!(accounts.unknown.value, 0.0);
    assert_eq!(accounts.kernels.provenance(), apex_profile::Provenance::Measured);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn accounts_are_those_of_the_events_in_every_format(steps in prop::collection::vec(step(), 1..60)) {
        let mut work = placed(&steps);
        // A process without any kernel launch is another case.
        work[0].is_copy = false;
        let dir = TempDir::new().unwrap();
        for version in [Version::Of2021, Version::Of2023, Version::Of2025] {
            let path = dir.path().join(format!("{version:?}.json"));
            std::fs::write(&path, json(&work, version)).unwrap();
            let (imported, profile) = profile_of(path, &dir);
            check(&work, &imported, &profile);
        }
        let path = dir.path().join("trace.sqlite");
        sqlite(&work, &path);
        let (imported, profile) = profile_of(path, &dir);
        check(&work, &imported, &profile);
        prop_assert_eq!(&imported.sources, &["Nsight Systems, schema 3.24.14".to_owned()]);
    }
}

#[test]
fn a_long_trace_is_settled_in_parts_without_losing_time() {
    let step = |at: u64| Step {
        pause: at * 37 % 900,
        cpu_ns: 2_000,
        delay: 3_000 + at * 7_919 % 40_000,
        gpu_ns: 1_500 + at * 31 % 2_500,
        stream: 7 + (at % 3) as u8,
        kernel: (at % 4) as u8,
        is_copy: at % 11 == 10,
        has_call: true,
    };
    let steps: Vec<Step> = (0..60_000).map(step).collect();
    let work = placed(&steps);
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("long.json");
    std::fs::write(&path, json(&work, Version::Of2025)).unwrap();
    let (imported, profile) = profile_of(path, &dir);
    check(&work, &imported, &profile);
}
