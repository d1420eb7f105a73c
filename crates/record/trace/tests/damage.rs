//! Sessions that are damaged, foreign, empty or too new: a clear answer, never a panic, and
//! whatever is sound is read.

mod common;

use apex_trace::definition::{Definition, Graph};
use apex_trace::layout::{CHUNK_BYTES, HEADER_BYTES, LIMIT_REACHED, SLOT_BYTES};
use apex_trace::{Error, Event, Lane, Process, ProcessFile, Session};
use common::*;
use proptest::prelude::*;
use std::fs;
use std::path::Path;
use std::sync::{Barrier, OnceLock};

const THREADS: u32 = 3;
const LAUNCHES: u32 = 9000;

/// A process file with one definitions chunk and two records chunks of each of three threads.
fn sound_bytes() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let file = ProcessFile::create(dir.path(), None).unwrap();
        for id in 1..=50 {
            assert!(file.define(&Definition::Name { id, text: format!("entry point {id}") }));
            let kernels = vec![(id, 7); id as usize];
            assert!(file.define(&Definition::Graph(Graph { id, kernels, ..Graph::default() })));
        }
        let together = Barrier::new(THREADS as usize);
        std::thread::scope(|scope| {
            for thread in 1..=THREADS {
                let (file, together) = (&file, &together);
                scope.spawn(move || {
                    let mut lane = Lane::default();
                    assert!((0..LAUNCHES).all(|number| lane.record(file, &launch(thread, number))));
                    together.wait(); // or else one thread continues the chunk of another
                });
            }
        });
        fs::read(open_only_process(dir.path()).file).unwrap()
    })
}

/// Reads everything there is to read; what a reader promises of any bytes is checked.
fn read_all(bytes: &[u8]) -> Option<Process> {
    let (process, problems) = match Process::from_bytes(Path::new("test.rec"), bytes) {
        Ok(loaded) => loaded,
        Err(error) => {
            assert!(matches!(error, Error::Newer { .. }), "{error}");
            return None;
        }
    };
    assert!(process.is_some() || !problems.is_empty(), "nothing read, and nothing said");
    assert!(problems.len() <= 21);
    let process = process?;
    let records: Vec<_> = process.records().collect();
    assert_eq!(records.len() as u64, process.record_count);
    assert_eq!(process.records_by_time().count(), records.len());
    for record in records {
        let clock = process.clock;
        let _ = (clock.real_ns(record.start()), clock.duration_ns(record.duration_ticks()));
        let _ = match record.event {
            Event::Launch(launch) => process.definitions.config(launch.config).is_some(),
            Event::GraphLaunch(launch) => process.definitions.graph(launch.graph).is_some(),
            Event::Timing(timing) => process.definitions.stream(timing.stream).is_some(),
            Event::Call(call) => {
                let _ = (call.class(), call.memory(), call.source_memory());
                process.definitions.name(call.api).is_some()
            }
            Event::StackSample(sample) => {
                let stack = process.definitions.call_stack(sample.stack);
                let frames = stack.map_or(&[][..], |stack| &stack.python);
                frames.iter().any(|frame| {
                    let code = process.definitions.python_code(frame.code);
                    code.and_then(|code| code.line(frame.offset)).is_some()
                })
            }
            Event::RangeChange(change) => process.definitions.range(change.range).is_some(),
            Event::ArgumentSample(sample) => process.definitions.arguments(sample.arguments).is_some(),
        };
    }
    assert_eq!(process.read_failure(), None);
    Some(process)
}

/// A place in a file, near enough to its structures that hits on them are common.
fn place() -> impl Strategy<Value = usize> {
    let chunk = (0..7usize, 0..160usize).prop_map(|(chunk, byte)| HEADER_BYTES + chunk * CHUNK_BYTES + byte);
    prop_oneof![0..300usize, chunk, 0..HEADER_BYTES + 7 * CHUNK_BYTES]
}

/// Cases of each of the tests below. They differ from run to run; `TRACE_FUZZ_CASES=100000 cargo
/// test --release -p apex-trace --test damage` takes minutes.
fn cases() -> u32 {
    std::env::var("TRACE_FUZZ_CASES").map_or(300, |text| text.parse().expect("a number of cases"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn damaged_bytes_are_read_as_far_as_they_go(
        damage in prop::collection::vec((place(), prop_oneof![Just(0), Just(u32::MAX), any::<u32>()]), 1..20),
    ) {
        let mut bytes = sound_bytes().to_vec();
        for (at, value) in damage {
            let end = (at + 4).min(bytes.len());
            bytes[at.min(end)..end].copy_from_slice(&value.to_le_bytes()[..end - at.min(end)]);
        }
        read_all(&bytes);
    }

    #[test]
    fn flipped_bits_cost_at_most_the_chunks_they_are_in(
        flips in prop::collection::vec((0..7 * CHUNK_BYTES, 0..8u32), 1..6),
    ) {
        let mut bytes = sound_bytes().to_vec();
        let mut damaged = [false; 7];
        for (at, bit) in flips {
            bytes[HEADER_BYTES + at] ^= 1 << bit;
            damaged[at / CHUNK_BYTES] = true;
        }
        let process = read_all(&bytes).unwrap();
        let whole = |count: usize| count * (CHUNK_BYTES / SLOT_BYTES - 2);
        let lost = damaged.iter().filter(|&&damaged| damaged).count();
        let all = (THREADS * LAUNCHES) as usize;
        prop_assert!(process.record_count as usize + whole(lost) >= all);
    }

    #[test]
    fn a_file_cut_anywhere_gives_what_was_before_the_cut(cut in 0..HEADER_BYTES + 7 * CHUNK_BYTES) {
        let process = read_all(&sound_bytes()[..cut]);
        if cut >= HEADER_BYTES {
            let process = process.unwrap();
            for thread in 1..=THREADS {
                prop_assert!(numbers(process.records(), thread).windows(2).all(|pair| pair[0] < pair[1]));
            }
        }
    }

    #[test]
    fn any_bytes_at_all_are_read(bytes in prop::collection::vec(any::<u8>(), 0..3000), header in any::<bool>()) {
        let mut file = if header { sound_bytes()[..HEADER_BYTES + 32].to_vec() } else { Vec::new() };
        file.extend(&bytes);
        read_all(&file);
    }
}

#[test]
fn problems_say_where_and_what() {
    let mut bytes = sound_bytes().to_vec();
    let chunk = |index: usize| HEADER_BYTES + index * CHUNK_BYTES;
    let put =
        |bytes: &mut Vec<u8>, at: usize, value: u32| bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    put(&mut bytes, chunk(1), 0x1234); // kind of a chunk
    put(&mut bytes, chunk(2) + 4, 300_000); // committed
    put(&mut bytes, chunk(3) + 32 + 10 * SLOT_BYTES, 0); // a record's kind and slots
    put(&mut bytes, chunk(0) + 32 + 4, 70_000_000); // length of a definition
    let (process, problems) = Process::from_bytes(Path::new("test.rec"), &bytes).unwrap();
    let found = |offset: usize, words: &str| {
        let matches = |problem: &&apex_trace::Problem| {
            problem.offset == Some(offset as u64) && problem.what.contains(words)
        };
        assert_eq!(problems.iter().filter(matches).count(), 1, "{words}, in {problems:#?}");
    };
    found(chunk(1), "unknown kind 0x1234");
    found(chunk(2), "says that it holds 300000 bytes");
    found(chunk(3) + 32 + 10 * SLOT_BYTES, "no record here (kind 0, 0 slots");
    found(chunk(0) + 32, "70000000 bytes, where");
    assert_eq!(problems[0].path, Path::new("test.rec"));
    assert_eq!(process.unwrap().definitions.names().count(), 0);
}

#[test]
fn a_cut_file_says_so() {
    let cut = &sound_bytes()[..HEADER_BYTES + CHUNK_BYTES + CHUNK_BYTES / 2];
    let (process, problems) = Process::from_bytes(Path::new("test.rec"), cut).unwrap();
    let said: Vec<_> = problems.iter().map(|problem| problem.what.as_str()).collect();
    assert!(said[0].starts_with("the file is cut off: 7 chunks were written, 2 are there"), "{said:?}");
    assert!(said[1].starts_with("the file is cut off inside a chunk:"), "{said:?}");
    assert_eq!(process.unwrap().record_count as usize, CHUNK_BYTES / 2 / SLOT_BYTES - 2);
}

/// A newer APEX may add kinds of records and of definitions without a new version.
#[test]
fn unknown_kinds_are_stepped_over() {
    let mut bytes = sound_bytes().to_vec();
    let payload = |index: usize| HEADER_BYTES + index * CHUNK_BYTES + 32;
    bytes[payload(1) + 5 * SLOT_BYTES] = 200; // kind
    bytes[payload(1) + 5 * SLOT_BYTES + 1] = 4; // slots
    bytes[payload(0)] = 99; // tag of the first definition
    let (process, problems) = Process::from_bytes(Path::new("test.rec"), &bytes).unwrap();
    let process = process.unwrap();
    assert_eq!(process.unknown_records, 1);
    assert_eq!(process.record_count, u64::from(THREADS * LAUNCHES) - 4);
    assert_eq!(process.definitions.names().count(), 49);
    assert_eq!(process.definitions.name(2), Some("entry point 2"));
    assert!(problems.iter().all(|problem| problem.what.contains("only a newer APEX knows")), "{problems:?}");
}

#[test]
fn a_newer_file_asks_for_an_update() {
    let dir = tempfile::tempdir().unwrap();
    let mut bytes = sound_bytes().to_vec();
    bytes[8] = 2; // version
    let path = dir.path().join("1-1.rec");
    fs::write(&path, bytes).unwrap();
    let error = Session::open(dir.path()).unwrap_err().to_string();
    assert!(error.contains(path.to_str().unwrap()), "{error}");
    assert!(error.contains("recorded by a newer APEX (version 2"), "{error}");
    assert!(error.ends_with("update APEX to read it"), "{error}");
}

#[test]
fn what_is_no_session_is_refused_with_what_was_expected() {
    let dir = tempfile::tempdir().unwrap();
    let error = Session::open(dir.path()).unwrap_err();
    assert!(matches!(error, Error::NotASession { .. }));
    assert!(error.to_string().contains("expected a directory made by `apex run`"), "{error}");
    let file = dir.path().join("file");
    fs::write(&file, "text").unwrap();
    assert!(Session::open(&file).unwrap_err().to_string().contains("it is a file"));
    let missing = Session::open(dir.path().join("missing")).unwrap_err();
    assert!(matches!(missing, Error::Unreadable { .. }), "{missing}");
    assert!(missing.to_string().contains("missing: No such file"), "{missing}");
}

#[test]
fn a_session_without_processes_is_a_session() {
    let dir = tempfile::tempdir().unwrap();
    apex_trace::MappedControl::create(dir.path(), apex_trace::control::Settings::default()).unwrap();
    assert!(open_sound(dir.path()).processes.is_empty());
}

#[test]
fn a_session_is_told_by_its_control_page_and_its_files_by_their_names() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("session.json"), "{}").unwrap();
    assert!(!apex_trace::is_session(dir.path()), "others use that name too");
    apex_trace::MappedControl::create(dir.path(), apex_trace::control::Settings::default()).unwrap();
    assert!(apex_trace::is_session(dir.path()));
    assert!(!apex_trace::has_process_files(dir.path()));
    fs::write(dir.path().join("1.rec"), sound_bytes()).unwrap();
    assert!(apex_trace::has_process_files(dir.path()));
    for entry in fs::read_dir(dir.path()).unwrap() {
        assert!(apex_trace::is_part_of_session(&entry.unwrap().file_name()));
    }
    assert!(!apex_trace::is_part_of_session("report.csv".as_ref()));
}

#[test]
fn each_cause_of_loss_is_named_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut bytes = sound_bytes().to_vec();
    let mut set = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    set(std::mem::offset_of!(apex_trace::layout::FileHeader, dropped), &3u64.to_le_bytes());
    set(
        std::mem::offset_of!(apex_trace::layout::FileHeader, drop_errno),
        &(libc::ENOSPC as u32).to_le_bytes(),
    );
    for name in ["1.rec", "2.rec"] {
        fs::write(dir.path().join(name), &bytes).unwrap();
    }
    let causes = apex_trace::Session::open(dir.path()).unwrap().causes_of_loss();
    assert_eq!(causes.len(), 1);
    assert!(causes.first().unwrap().starts_with("No space left on device"), "{causes:?}");
}

#[test]
fn drop_causes_read_as_sentences() {
    let cause = |errno: u32| {
        let mut bytes = sound_bytes().to_vec();
        let at = std::mem::offset_of!(apex_trace::layout::FileHeader, drop_errno);
        bytes[at..at + 4].copy_from_slice(&errno.to_le_bytes());
        read_all(&bytes).unwrap().drop_cause()
    };
    assert_eq!(cause(0), None);
    assert!(cause(libc::ENOSPC as u32).unwrap().starts_with("No space left on device"));
    assert!(cause(LIMIT_REACHED).unwrap().contains("limit"));
}

/// The session of [`sound_bytes`], recorded by this version, with changed bytes in its file.
#[cfg(feature = "meta")]
fn changed_session(changes: &[(usize, u8)]) -> (tempfile::TempDir, Session) {
    let dir = tempfile::tempdir().unwrap();
    let version = env!("CARGO_PKG_VERSION");
    let meta = format!(
        r#"{{"schema":1,"apex_version":"{version}","command":["x"],"cwd":"/","started_real_ns":1,
           "ended_real_ns":2,"exit":{{"code":0}},"device":"cpu","timing":"off"}}"#
    );
    fs::write(dir.path().join("session.json"), meta).unwrap();
    let mut bytes = sound_bytes().to_vec();
    for &(at, value) in changes {
        bytes[at] = value;
    }
    fs::write(dir.path().join("1-1.rec"), bytes).unwrap();
    let session = Session::open(dir.path()).unwrap();
    (dir, session)
}

/// A session that this version recorded holds nothing newer.
#[cfg(feature = "meta")]
#[test]
fn what_only_a_newer_apex_can_write_is_damage_in_a_session_of_this_one() {
    let record = HEADER_BYTES + CHUNK_BYTES + 32 + 5 * SLOT_BYTES;
    let definition = HEADER_BYTES + 32;
    for (at, value, says) in [
        (8, 3, "damaged: its version is 3, and it is read as version 1"),
        (8, 0, "damaged: its version is 0"),
        (0, b'B', "does not start like a process file, and is read as one"),
        (record, 200, "no record here (kind 200"),
        (definition, 99, "a definition of the unknown kind 99"),
    ] {
        let (_dir, session) = changed_session(&[(at, value)]);
        let [problem] = session.problems.as_slice() else { panic!("{says}: {:?}", session.problems) };
        assert!(problem.what.contains(says) && problem.offset == Some(at as u64), "{problem}");
        let lost = u64::from(at == record);
        assert_eq!(session.processes[0].record_count, u64::from(THREADS * LAUNCHES) - lost, "{says}");
    }
}

#[test]
fn fields_of_the_header_that_cannot_be_are_named_and_not_used() {
    use apex_trace::layout::FileHeader;
    use std::mem::offset_of;
    let anchors = offset_of!(FileHeader, latest);
    for (at, says) in [
        (offset_of!(FileHeader, dropped) + 7, "records were lost; how many is not known"),
        (offset_of!(FileHeader, overwritten) + 7, "records were lost; how many is not known"),
        (offset_of!(FileHeader, chunks) + 6, "chunks; those that are there are read"),
        (offset_of!(FileHeader, clock) + 2, "the clock is "),
        (offset_of!(FileHeader, ended) + 2, "the end of the process is "),
        (offset_of!(FileHeader, queue_state) + 2, "the launch queue's state is "),
        (offset_of!(FileHeader, pool_state) + 2, "the memory pool's state is "),
        (offset_of!(FileHeader, start) + 15, "clocks contradict each other"),
        (8 + 1, "its version is 257"),
    ] {
        let mut bytes = sound_bytes().to_vec();
        bytes[at] ^= 1;
        // Both of the newest anchors, of which one is used.
        if at == offset_of!(FileHeader, start) + 15 {
            bytes[anchors + 14] ^= 1;
        }
        let (process, problems) = Process::from_bytes(Path::new("test.rec"), &bytes).unwrap();
        let (process, [problem]) = (process.unwrap(), problems.as_slice()) else {
            panic!("{says}: {problems:?}")
        };
        assert!(problem.what.starts_with("damaged: ") && problem.what.contains(says), "{problem}");
        assert!(
            problem.offset.is_some_and(|offset| (offset..offset + 24).contains(&(at as u64))),
            "{problem}"
        );
        assert_eq!((process.dropped, process.overwritten), (0, 0));
        assert_eq!(process.record_count, u64::from(THREADS * LAUNCHES));
    }
}

#[cfg(feature = "meta")]
#[test]
fn a_record_that_cannot_be_costs_itself_alone() {
    let slot = |number: usize| HEADER_BYTES + CHUNK_BYTES + 32 + number * SLOT_BYTES;
    for (at, value, says) in [
        (slot(9) + 1, 0, "no record here (kind 2, 0 slots"),
        (slot(9) + 1, 3, "no record here (kind 2, 3 slots"),
        (slot(9), 0, "no record here (kind 0, 1 slots"),
        (slot(9) + 15, 0x7f, "its time is not one of the process"),
        (slot(9) + 12, 0xff, "ended before the one in front"),
        (slot(9) + 26, 0x10, "its result is none of the driver's"),
    ] {
        let (_dir, session) = changed_session(&[(at, value)]);
        let [problem] = session.problems.as_slice() else { panic!("{says}: {:?}", session.problems) };
        assert!(problem.what.contains(says) && problem.what.ends_with("left out"), "{problem}");
        assert_eq!(problem.offset, Some(slot(9) as u64), "{says}");
        let process = &session.processes[0];
        assert_eq!(process.record_count, u64::from(THREADS * LAUNCHES) - 1, "{says}");
        assert_eq!(process.records().count() as u64, process.record_count, "{says}");
        assert_eq!(process.records_by_time().count() as u64, process.record_count, "{says}");
    }
}

#[test]
fn a_chunk_that_says_that_it_holds_less_than_it_does_is_named() {
    let mut bytes = sound_bytes().to_vec();
    let committed = HEADER_BYTES + CHUNK_BYTES + 4;
    bytes[committed..committed + 4].copy_from_slice(&(100 * SLOT_BYTES as u32).to_le_bytes());
    let (_, problems) = Process::from_bytes(Path::new("test.rec"), &bytes).unwrap();
    let [problem] = problems.as_slice() else { panic!("{problems:?}") };
    assert!(problem.what.contains("more records follow than the chunk says"), "{problem}");
    assert_eq!(problem.offset, Some((HEADER_BYTES + CHUNK_BYTES + 32 + 100 * SLOT_BYTES) as u64));
}

/// The control page counts the process files, so that one that was removed is missed.
#[test]
fn a_process_file_that_was_removed_is_missed() {
    let dir = tempfile::tempdir().unwrap();
    let control = apex_trace::MappedControl::create(dir.path(), Default::default()).unwrap();
    control.processes.store(2, std::sync::atomic::Ordering::Relaxed);
    let said = |files: &[&str]| {
        files.iter().for_each(|name| fs::write(dir.path().join(name), sound_bytes()).unwrap());
        let session = Session::open(dir.path()).unwrap();
        let all = session.problems.iter().map(ToString::to_string);
        all.filter(|problem| problem.contains("process files")).collect::<Vec<_>>()
    };
    let none = said(&[]);
    assert!(none[0].contains("*.rec: 2 of 2 process files"), "{none:?}");
    assert!(apex_trace::has_process_files(dir.path()), "the session had calls");
    assert!(said(&["1.rec"])[0].contains("1 of 2 process files"));
    assert_eq!(said(&["1.rec", "2.rec"]), [""; 0]);
}

/// The files `1.rec` and `2.rec`, their list, and a control page that counts so many.
fn listed_session(counted: u32) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let control = apex_trace::MappedControl::create(dir.path(), Default::default()).unwrap();
    control.processes.store(counted, std::sync::atomic::Ordering::Relaxed);
    ["1.rec", "2.rec"].iter().for_each(|name| fs::write(dir.path().join(name), sound_bytes()).unwrap());
    let folder = apex_untrusted::Folder::open(dir.path()).unwrap();
    apex_trace::checksums::store(&folder, |name| name.to_string_lossy().ends_with(".rec")).unwrap();
    dir
}

/// The problems of a session's process files and of its control page, without the folder.
fn told(dir: &Path) -> Vec<String> {
    let session = Session::open(dir).unwrap();
    let folder = format!("{}/", dir.display());
    let told = session.problems.iter().map(|problem| problem.to_string().replace(&folder, ""));
    told.filter(|problem| !problem.starts_with("session.json")).collect()
}

#[test]
fn a_count_of_files_that_the_list_refutes_is_what_is_damaged() {
    let dir = listed_session(254);
    let [problem] = &told(dir.path())[..] else { panic!("{:?}", told(dir.path())) };
    assert!(
        problem.starts_with("control: byte 40: this count is probably damaged: it says that 254"),
        "{problem}"
    );
    assert!(problem.contains("checksums has 2"), "{problem}");
    // What the list misses is missing.
    let dir = listed_session(2);
    fs::remove_file(dir.path().join("1.rec")).unwrap();
    assert_eq!(told(dir.path()), ["1.rec: missing: the CUDA calls of its process are in no figure"]);
}

#[test]
fn a_process_file_that_is_not_in_the_list_is_named() {
    let dir = listed_session(2);
    fs::write(dir.path().join("3.rec"), sound_bytes()).unwrap();
    let [problem] = &told(dir.path())[..] else { panic!("{:?}", told(dir.path())) };
    assert!(problem.starts_with("3.rec: not in checksums: it came after `apex run` had ended"), "{problem}");
    assert_eq!(Session::open(dir.path()).unwrap().processes.len(), 3);
}

#[test]
fn a_process_file_that_was_emptied_is_not_said_to_have_been_empty() {
    let dir = listed_session(2);
    fs::write(dir.path().join("2.rec"), "").unwrap();
    let [problem] = &told(dir.path())[..] else { panic!("{:?}", told(dir.path())) };
    let recorded = sound_bytes().len();
    let says = format!(
        "2.rec: damaged: it had {recorded} bytes when it was recorded, and has 0; records that stood"
    );
    assert!(problem.starts_with(&says), "{problem}");
}
