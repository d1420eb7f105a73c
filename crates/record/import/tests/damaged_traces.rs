//! Any bytes give a session or an error that names the file; never a panic. Traces of other devices
//! are refused by name.

use apex_import::{Error, Format, Found, Imported, import, import_found, refusal};
use apex_trace::{Event, Session};
use apex_untrusted::Folder;
use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use rusqlite::Connection;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use tempfile::TempDir;

/// What importing files of these contents gives, and the session.
fn imported(files: &[(&str, &[u8])]) -> (Result<Imported, Error>, TempDir) {
    let dir = TempDir::new().unwrap();
    let paths: Vec<PathBuf> = files.iter().map(|(name, _)| dir.path().join(name)).collect();
    for (path, (_, bytes)) in paths.iter().zip(files) {
        std::fs::write(path, bytes).unwrap();
    }
    let folder = Folder::make(&dir.path().join("session")).unwrap();
    (import(&paths, &folder), dir)
}

fn session(dir: &TempDir) -> Session {
    Session::open(dir.path().join("session")).unwrap()
}

const EVENTS: &str = r##"
  {"ph": "M", "name": "thread_name", "pid": 11, "tid": 12, "ts": 1, "args": {"name": "main"}},
  {"ph": "X", "cat": "user_annotation", "name": "step\u00e9\"#1", "pid": 11, "tid": 12, "ts": 0.5, "dur": 100},
  {"ph": "X", "cat": "python_function", "name": "a.py(3): f", "pid": 11, "tid": 12, "ts": 0.5, "dur": 100},
  {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 11, "tid": 12, "ts": 1.001, "dur": 2.5, "args": {"correlation": 5}},
  {"ph": "X", "cat": "kernel", "name": "k<float>", "pid": 0, "tid": 7, "ts": 9.25, "dur": 3.125,
   "args": {"correlation": 5, "device": 0, "context": 1, "stream": 7, "grid": [2, 1, 1], "block": [64, 1, 1], "registers per thread": 16}},
  {"ph": "X", "cat": "cuda_runtime", "name": "cudaMemcpyAsync", "pid": 11, "tid": 12, "ts": 14, "dur": 1, "args": {"correlation": 6}},
  {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD (Pinned -> Device)", "pid": 0, "tid": 7, "ts": 20, "dur": 1.5,
   "args": {"correlation": 6, "device": 0, "context": 1, "stream": 7, "bytes": 4096}},
  {"ph": "X", "cat": "something_new", "name": "?", "pid": 0, "tid": 7, "ts": 20, "dur": 1}
"##;

fn document() -> String {
    format!(
        "{{\"schemaVersion\": 1, \"deviceProperties\": [{{\"id\": 0, \"name\": \"NVIDIA H200\", \"numSms\": 132, \
         \"computeMajor\": 9, \"computeMinor\": 0}}], \"distributedInfo\": {{\"rank\": 3}}, \"traceEvents\": [{EVENTS}], \
         \"baseTimeNanoseconds\": 1700000000000000000}}"
    )
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn a_trace_becomes_records_to_the_nanosecond() {
    let (result, dir) = imported(&[("t.json.gz", &gzip(document().as_bytes()))]);
    let result = result.unwrap();
    assert_eq!((result.kernels, result.transfers, result.calls), (1, 1, 2));
    assert_eq!(result.left_out.get("something_new"), Some(&1));
    let session = session(&dir);
    assert!(session.problems.is_empty(), "{:?}", session.problems);
    let process = &session.processes[0];
    assert_eq!((process.pid, process.clock.real_ns(0)), (11, 1_700_000_000_000_001_001));
    let mut placed = Vec::new();
    for record in process.records() {
        if let Event::Timing(timing) = record.event {
            placed.push((timing.placed_at().unwrap(), timing.raw_ns, timing.correction_ns(), record.range));
        }
    }
    assert_eq!(placed, [(8_249, 3_125, 0, 1), (18_999, 1_500, 0, 1)]);
    let range = process.definitions.range(1).unwrap();
    assert_eq!(range.name, "stepé\"#1");
    assert_eq!(process.definitions.devices().next().unwrap().name, "NVIDIA H200");
}

#[test]
fn what_follows_the_trace_is_told() {
    let text = document();
    let twice = format!("{text}\n{text}");
    let packed = [gzip(text.as_bytes()), gzip(text.as_bytes())].concat();
    for bytes in [twice.as_bytes(), &packed] {
        let result = imported(&[("t.json", bytes)]).0.unwrap();
        let expected = format!("there are {} bytes more, which are not read", text.len());
        let said = result.remarks.iter().any(|remark| remark.contains(&expected));
        assert!(said && result.kernels == 1, "{:?}", result.remarks);
    }
    let result = imported(&[("t.json", format!("{text}\n\n").as_bytes())]).0.unwrap();
    assert!(result.remarks.iter().all(|remark| !remark.contains("bytes more")), "{:?}", result.remarks);
    // A checksum behind the end that is not that of the text.
    let mut damaged = gzip(text.as_bytes());
    let crc = damaged.len() - 8;
    damaged[crc] ^= 1;
    let result = imported(&[("t.json.gz", &damaged)]).0.unwrap();
    assert!(result.remarks.iter().any(|remark| remark.contains("incomplete")), "{:?}", result.remarks);
}

#[test]
fn a_kernel_may_have_the_shared_memory_that_it_had() {
    for (bytes, may_have) in [(24, 48 << 10), (100 << 10, 100 << 10)] {
        let with = format!("\"registers per thread\": 16, \"shared memory\": {bytes}");
        let text = document().replace("\"registers per thread\": 16", &with);
        let (result, dir) = imported(&[("t.json", text.as_bytes())]);
        assert_eq!(result.unwrap().kernels, 1);
        let session = session(&dir);
        let function = session.processes[0].definitions.function(1).unwrap();
        assert_eq!(function.attributes.unwrap().max_dynamic_shared_bytes, Some(may_have));
    }
}

#[test]
fn a_cut_trace_keeps_what_came_before() {
    let text = document();
    let cut = &text[..text.find("something_new").unwrap()];
    for bytes in [cut.as_bytes().to_vec(), gzip(text.as_bytes())[..400].to_vec()] {
        let (result, _dir) = imported(&[("t.json.tmp", &bytes)]);
        match result {
            Ok(result) => {
                let said = result.remarks.iter().any(|remark| remark.contains("incomplete"));
                assert!(said, "{:?}", result.remarks);
            }
            Err(error) => assert!(error.to_string().contains("t.json.tmp"), "{error}"),
        }
    }
}

#[test]
fn traces_of_other_devices_are_refused_by_name() {
    let event = |category: &str, time: &str| {
        format!(
            "{{\"traceEvents\": [{{\"ph\": \"X\", \"cat\": \"{category}\", \"name\": \"n\", \"pid\": 0, \"tid\": 0, \"ts\": {time}, \"dur\": 1}}]}}"
        )
    };
    for (text, word) in [
        ("{\"roctracer_version\": 4, \"traceEvents\": []}".to_owned(), "ROCm"),
        (event("mtia_runtime", "1"), "MTIA"),
        (event("xpu_runtime", "1"), "XPU"),
        (event("kernel", "\"1.5\""), "Ascend"),
        (event("cuda_runtime", "1").replace("\"n\"", "\"hipLaunchKernel\""), "ROCm"),
        ("{\"rocprofiler-sdk-tool\": [1]}".to_owned(), "rocprofiler"),
        ("{\"schema\": \"1\", \"nodes\": []}".to_owned(), "execution trace"),
        (event("cpu_op", "1"), "no work of a GPU"),
    ] {
        let (result, _dir) = imported(&[("t.json", text.as_bytes())]);
        let error = result.unwrap_err().to_string();
        assert!(error.contains(word) && error.contains("t.json"), "{error}");
    }
    let (result, _dir) = imported(&[("r.nsys-rep", b"?")]);
    assert!(result.unwrap_err().to_string().contains("nsys export --type sqlite"));
}

#[test]
fn two_traces_of_one_rank_are_refused_and_ranks_number_the_processes() {
    let text = document();
    let (result, _dir) = imported(&[("a.json", text.as_bytes()), ("b.json", text.as_bytes())]);
    assert!(result.unwrap_err().to_string().contains("rank 3"));
    let other = text.replace("\"rank\": 3", "\"rank\": 0");
    let (result, dir) = imported(&[("a.json", text.as_bytes()), ("b.json", other.as_bytes())]);
    assert_eq!(result.unwrap().kernels, 2);
    let mut pids: Vec<u32> = session(&dir).processes.iter().map(|process| process.pid).collect();
    pids.sort_unstable();
    assert_eq!(pids, [1, 4]);
}

/// A folder with these files.
fn folder_of(files: &[(&str, &[u8])]) -> TempDir {
    let dir = TempDir::new().unwrap();
    for (name, bytes) in files {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
    dir
}

#[test]
fn a_folder_gives_the_traces_in_it_and_inside_and_says_what_is_none() {
    let of_rank = |rank: u32| document().replace("\"rank\": 3", &format!("\"rank\": {rank}"));
    let no_rank = document().replace("\"rank\": 3", "\"backend\": null");
    let dir = folder_of(&[
        ("worker0.1.pt.trace.json", of_rank(0).as_bytes()),
        ("b/steps_of_one.json", &gzip(of_rank(1).as_bytes())),
        ("b/c/rank_2/profile", no_rank.as_bytes()),
        ("b/c/rank_2/x.json.gz", b"\x1f\x8b, but no more"),
        ("c/cut.json", &document().as_bytes()[..250]),
        ("package.json", b"{}"),
        ("notes.txt", b"{}"),
        (".git/trace.json", of_rank(7).as_bytes()),
    ]);
    std::fs::rename(dir.path().join("b/c/rank_2/profile"), dir.path().join("b/c/rank_2/profile.json"))
        .unwrap();
    let found = Found::at(dir.path());
    let names = |paths: Vec<&PathBuf>| -> Vec<String> {
        paths.into_iter().map(|path| path.strip_prefix(dir.path()).unwrap().display().to_string()).collect()
    };
    let traces = ["b/c/rank_2/profile.json", "b/steps_of_one.json", "c/cut.json", "worker0.1.pt.trace.json"];
    assert_eq!(names(found.traces.iter().collect()), traces);
    let passed = names(found.passed.iter().map(|(path, _)| path).collect());
    assert_eq!(
        (passed, found.others),
        (vec!["b/c/rank_2/x.json.gz".to_owned(), "package.json".to_owned()], 1)
    );
    let folder = Folder::make(&dir.path().join("session")).unwrap();
    let imported = import_found(&found, &folder).unwrap();
    assert_eq!(imported.kernels, 3);
    let said =
        |words: &[&str]| imported.remarks.iter().any(|remark| words.iter().all(|word| remark.contains(word)));
    assert!(said(&["cut.json is not read", "ends before its first"]), "{:?}", imported.remarks);
    assert!(said(&["package.json is not read", "no trace"]), "{:?}", imported.remarks);
    let mut pids: Vec<u32> = session(&dir).processes.iter().map(|process| process.pid).collect();
    pids.sort_unstable();
    assert_eq!(pids, [1, 2, 3]);
    assert_eq!(Format::of(&dir.path().join("notes.txt")), Some(Format::Json));
    assert_eq!(Format::of(Path::new("/nowhere")), None);
}

/// The trace with one more event before the first.
fn with(event: &str) -> String {
    document().replace("\"traceEvents\": [", &format!("\"traceEvents\": [{event},"))
}

#[test]
fn what_is_lost_is_counted() {
    for (event, kind) in [
        (
            r#"{"ph": "B", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1}"#,
            "kernel (begin and end apart)",
        ),
        (
            r#"{"ph": "b", "cat": "Kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1}"#,
            "Kernel (asynchronous)",
        ),
        (r#"{"ph": "C", "name": "memory", "pid": 0, "ts": 1}"#, "without a category (a counter)"),
        (
            r#"{"ph": "X", "cat": "concurrent_kernel", "name": "k", "pid": 0, "ts": 1, "dur": 1}"#,
            "concurrent_kernel",
        ),
    ] {
        let result = imported(&[("t.json", with(event).as_bytes())]).0.unwrap();
        assert_eq!(result.left_out.get(kind), Some(&1), "{:?}", result.left_out);
        assert_eq!(result.kernels, 1);
    }
}

#[test]
fn values_that_are_no_events_and_wrong_types_lose_nothing_else() {
    for event in [
        "null",
        "17",
        "\"text\"",
        "[{}]",
        "true",
        r#"{"ph": "X", "cat": "kernel", "name": "k", "ts": null, "dur": 1}"#,
    ] {
        let result = imported(&[("t.json", with(event).as_bytes())]).0.unwrap();
        assert_eq!((result.kernels, result.calls), (1, 2), "{event}");
        assert!(result.remarks.iter().any(|remark| remark.starts_with("1 event makes no sense")), "{event}");
    }
    let odd = r#"{"ph": "X", "cat": "kernel", "name": null, "pid": null, "tid": {}, "ts": 30, "dur": 1, "args": {"grid": null}}"#;
    assert_eq!(imported(&[("t.json", with(odd).as_bytes())]).0.unwrap().kernels, 2);
    let result = imported(&[("t.json", with("<html>").as_bytes())]);
    assert!(result.0.unwrap_err().to_string().contains("no JSON"));
}

#[test]
fn threads_of_two_processes_and_calls_that_overlap_stay_apart() {
    let call = |pid: u32, ts: &str| {
        format!(
            r#"{{"ph": "X", "cat": "cuda_runtime", "name": "cudaMalloc", "pid": {pid}, "tid": 12, "ts": {ts}, "dur": 2.5}}"#
        )
    };
    let (result, dir) = imported(&[("t.json", with(&call(99, "1.5")).as_bytes())]);
    assert_eq!(result.unwrap().calls, 3);
    let session = session(&dir);
    let mut tids: Vec<u32> = session.processes[0].records().map(|record| record.tid).collect();
    tids.sort_unstable();
    tids.dedup();
    assert_eq!(tids.len(), 2, "{tids:?}");
    let result = imported(&[("t.json", with(&call(11, "2.5")).as_bytes())]).0.unwrap();
    assert_eq!(result.calls, 3);
    assert!(
        result.remarks.iter().any(|remark| remark.starts_with("1 call overlaps the one before")),
        "{:?}",
        result.remarks
    );
    let result = imported(&[("t.json", with(&call(11, "1.0")).as_bytes())]).0.unwrap();
    assert_eq!((result.calls, result.inside), (3, 0), "{:?}", result.remarks);
    let inside = call(11, "1.002").replace("2.5", "0.5");
    let result = imported(&[("t.json", with(&inside).as_bytes())]).0.unwrap();
    assert_eq!((result.calls, result.inside), (2, 1));
}

#[test]
fn impossible_times_are_left_out_and_readers_find_nothing_damaged() {
    let kernel = |ts: &str, dur: &str| {
        format!(
            r#"{{"ph": "X", "cat": "kernel", "name": "far", "pid": 0, "tid": 7, "ts": {ts}, "dur": {dur}, "args": {{"stream": 7}}}}"#
        )
    };
    for (ts, dur, kernels) in [
        ("-5000", "3", 2),
        ("-9000000000000000", "3", 1),
        ("9000000000000000", "3", 1),
        ("5", "9000000000000000", 1),
        ("5", "-1", 1),
    ] {
        let (result, dir) = imported(&[("t.json", with(&kernel(ts, dur)).as_bytes())]);
        let result = result.unwrap();
        assert_eq!(result.kernels, kernels, "{ts} {dur}");
        let said = result.remarks.iter().any(|remark| remark.starts_with("1 event "));
        assert_eq!(said, kernels == 1, "{:?}", result.remarks);
        let session = session(&dir);
        session.processes[0].records_by_time().for_each(drop);
        assert!(session.problems.is_empty(), "{:?}", session.problems);
    }
}

#[test]
fn a_cut_or_empty_trace_names_its_cause() {
    let text = document();
    let cut = &text[..text.find("\"cat\": \"kernel\"").unwrap()];
    for (bytes, words) in [
        (cut.as_bytes().to_vec(), "it ends before its first kernel (it ends in the middle), after 4 events"),
        (gzip(cut.as_bytes())[..60].to_vec(), "ends"),
        (b"{\"a\": [1, 2]}".to_vec(), "no trace"),
        (b"{\"traceEvents\": []}".to_vec(), "no work of a GPU in 0 events"),
    ] {
        let error = imported(&[("t.json", &bytes)]).0.unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn other_files_are_told_by_what_they_are() {
    let text = document();
    let utf16: Vec<u8> =
        [0xff, 0xfe].into_iter().chain(text.encode_utf16().flat_map(u16::to_le_bytes)).collect();
    let packed = gzip(small_database());
    for (name, bytes, words) in [
        ("t.json", utf16.as_slice(), "UTF-16"),
        ("t.gz", &packed, "gunzip"),
        ("t.gz", &gzip(b"notes"), "no trace"),
        ("t.zip", b"PK\x03\x04...", "zip archive"),
        ("t.json.zst", &[0x28, 0xb5, 0x2f, 0xfd, 0], "decompress"),
        ("notes.txt", b"hello", "it is text"),
        ("t.json", b"", "empty"),
    ] {
        let (result, dir) = imported(&[(name, bytes)]);
        assert!(refusal(&dir.path().join(name)).unwrap().contains(words), "{name}");
        assert!(result.unwrap_err().to_string().contains(words), "{name}");
    }
    let with_mark = [b"\xef\xbb\xbf", text.as_bytes()].concat();
    assert_eq!(imported(&[("t.json", &with_mark)]).0.unwrap().kernels, 1);
}

/// A database whose kernels have these columns and rows.
fn database(statements: &[&str]) -> Vec<u8> {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("t.sqlite");
    let connection = Connection::open(&path).unwrap();
    statements.iter().for_each(|statement| connection.execute_batch(statement).unwrap());
    drop(connection);
    std::fs::read(path).unwrap()
}

const STRINGS: &str = "CREATE TABLE StringIds (id, value); INSERT INTO StringIds VALUES (1, 'kernel'), (2, 'cudaLaunchKernel_v7000');";

#[test]
fn a_database_with_wrong_types_and_missing_columns_keeps_what_makes_sense() {
    let bytes = database(&[
        STRINGS,
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, globalPid, correlationId, streamId, shortName)",
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (10, 20, 281476838981632, 1, 7, 1), ('x', 3, 1, 1, 1, 1), (5, 1, 1, 1, 1, 1),
         (30, 35, 281476838981632, 9, x'00', 'text')",
        "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start, end, globalTid, correlationId, nameId)",
        "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (1, 4, 281476838981743, 1, 2)",
        "CREATE TABLE SOMETHING_NEW (a); INSERT INTO SOMETHING_NEW VALUES (1), (2)",
    ]);
    let (result, dir) = imported(&[("t.sqlite", &bytes)]);
    let result = result.unwrap();
    assert_eq!((result.kernels, result.calls, result.left_out["rows of SOMETHING_NEW"]), (2, 1, 2));
    let said = |word: &str| result.remarks.iter().any(|remark| remark.contains(word));
    assert!(said("2 rows have no time") && said("no launch call"), "{:?}", result.remarks);
    let session = session(&dir);
    assert_eq!(session.processes[0].definitions.name(1), Some("cudaLaunchKernel"));
}

#[test]
fn views_are_not_read_and_other_databases_are_refused() {
    let endless = "CREATE VIEW StringIds AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS id, i AS value FROM n";
    for statement in [endless, "CREATE TABLE other (a)"] {
        let (result, _dir) = imported(&[("t.sqlite", &database(&[statement]))]);
        assert!(result.unwrap_err().to_string().contains("no export of Nsight Systems"));
    }
    let (result, _dir) = imported(&[("t.sqlite", b"SQLite format 3\0 and nothing more")]);
    assert!(result.unwrap_err().to_string().contains("t.sqlite"));
}

/// A database that is made once: SQLite waits for the disk.
fn small_database() -> &'static Vec<u8> {
    static MADE: OnceLock<Vec<u8>> = OnceLock::new();
    MADE.get_or_init(|| {
        database(&[
            STRINGS,
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, globalPid, correlationId, streamId, shortName);
             INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (10, 20, 281476838981632, 1, 7, 1)",
            "CREATE TABLE NVTX_EVENTS (start, end, eventType, text, globalTid);
             INSERT INTO NVTX_EVENTS VALUES (1, 99, 59, 'r', 281476838981743)",
        ])
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn damaged_json_never_panics(
        changes in prop::collection::vec((0usize..4096, any::<u8>()), 0..12),
        end in 0usize..4096,
        packed in any::<bool>(),
    ) {
        let mut bytes = document().into_bytes();
        for (at, byte) in changes {
            let length = bytes.len();
            bytes[at % length] = byte;
        }
        bytes.truncate(end.max(1));
        let bytes = if packed { gzip(&bytes) } else { bytes };
        let (result, dir) = imported(&[("t.json", &bytes)]);
        match result {
            Ok(_) => drop(session(&dir).processes[0].records_by_time().count()),
            Err(error) => prop_assert!(error.to_string().contains("t.json")),
        }
    }

    #[test]
    fn damaged_databases_never_panic(changes in prop::collection::vec((100usize..16_384, any::<u8>()), 1..20)) {
        let mut bytes = small_database().clone();
        for (at, byte) in changes {
            let length = bytes.len();
            bytes[at % length] = byte;
        }
        if let (Err(error), _dir) = imported(&[("t.sqlite", &bytes)]) {
            prop_assert!(error.to_string().contains("t.sqlite"), "{}", error);
        }
    }
}

#[test]
fn one_time_that_is_a_text_is_damage_and_all_of_them_are_ascend() {
    let text = r#"{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": "30.5", "dur": 1}"#;
    let result = imported(&[("t.json", with(text).as_bytes())]).0.unwrap();
    assert_eq!(result.kernels, 1);
    assert!(result.remarks.iter().any(|remark| remark.starts_with("1 event makes no sense")));
    let ascend = format!(r#"{{"traceEvents": [{text}]}}"#);
    let refused = imported(&[("t.json", ascend.as_bytes())]).0.unwrap_err().to_string();
    assert!(refused.contains("Ascend"), "{refused}");
}

#[test]
fn a_device_that_is_not_nvidia_s_is_refused_by_its_name_whatever_its_calls_are_named() {
    for (name, whose) in [
        ("AMD Instinct MI300X", "of AMD"),
        ("Radeon RX 7900 XTX", "of AMD"),
        ("Intel(R) Data Center GPU Max 1550", "of Intel"),
    ] {
        let trace = document().replace("NVIDIA H200", name);
        let refused = imported(&[("t.json", trace.as_bytes())]).0.unwrap_err().to_string();
        assert!(refused.contains(name) && refused.contains(whose), "{refused}");
    }
    let kernel = r#"{"ph": "X", "cat": "kernel", "name": "__amd_rocclr_copyBuffer", "ts": 30, "dur": 1}"#;
    let refused = imported(&[("t.json", with(kernel).as_bytes())]).0.unwrap_err().to_string();
    assert!(refused.contains("AMD GPU"), "{refused}");
}

#[test]
fn a_launch_without_grid_and_block_has_none_in_the_session() {
    let kernel = r#"{"ph": "X", "cat": "kernel", "name": "bare", "ts": 30, "dur": 1, "args": {"stream": 7}}"#;
    let (result, dir) = imported(&[("t.json", with(kernel).as_bytes())]);
    assert_eq!(result.unwrap().kernels, 2);
    let session = session(&dir);
    assert!(session.problems.is_empty(), "{:?}", session.problems);
    let launches = session.processes[0].definitions.configs().map(|config| config.launch);
    let mut grids: Vec<[u32; 3]> = launches.map(|launch| launch.grid.to_array()).collect();
    grids.sort_unstable();
    assert_eq!(grids, [[0, 0, 0], [2, 1, 1]]);
}

#[test]
fn ranks_are_the_numbers_in_the_names_of_the_files() {
    let trace = document().replace("\"rank\": 3", "");
    let files = [("worker10.json", trace.as_bytes()), ("worker3.json", trace.as_bytes())];
    let (result, dir) = imported(&files);
    result.unwrap();
    let ranks = session(&dir).meta.unwrap().ranks;
    assert_eq!(ranks.into_iter().collect::<Vec<_>>(), [(4, 3), (11, 10)]);
}
