//! Data that outlives the process that wrote it, and the effects of a fork or of a program's
//! carelessness on it.

mod common;

use apex_random::Random;
use apex_trace::control::Settings;
use apex_trace::definition::Definition;
use apex_trace::layout::{CHUNK_BYTES, HEADER_BYTES, Launch, Slots};
use apex_trace::{Event, Lane, MappedControl, ProcessFile, Session};
use common::*;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const KILLS: u64 = 100;
const KILLED_THREADS: u32 = 3;

/// Each thread of the child says how far it is; after the kill all of that must be there, whole,
/// with its definitions.
#[test]
fn what_is_committed_survives_sigkill_at_any_moment() {
    let mut recorded = 0;
    for kill in 0..KILLS {
        let dir = tempfile::tempdir().unwrap();
        let limited = kill % 2 == 1;
        let max_bytes = if limited { (HEADER_BYTES + 7 * CHUNK_BYTES) as u64 } else { 0 };
        MappedControl::create(dir.path(), Settings { max_bytes, ..Settings::default() }).unwrap();
        let said = kill_a_writer(dir.path(), Duration::from_micros(random(kill) % 60_000));
        let session = Session::open(dir.path()).unwrap();
        for problem in &session.problems {
            let half_made = problem.what.contains("ended while it made this file");
            assert!(problem.path.ends_with(apex_trace::META_FILE) || half_made, "kill {kill}: {problem}");
        }
        let Some(process) = session.processes.first() else {
            assert_eq!(said, [None; KILLED_THREADS as usize], "kill {kill}");
            continue;
        };
        assert_eq!(process.dropped, 0);
        recorded += process.record_count;
        for (thread, said) in (1..).zip(said) {
            let numbers = numbers(process.records(), thread);
            assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "kill {kill}: a gap");
            if limited && numbers.is_empty() && said.is_some() {
                // The thread had just begun a chunk, and the others came round to its last one.
                assert!(process.overwritten > 0, "kill {kill}");
                continue;
            }
            if !limited {
                assert_eq!(numbers.first().copied().unwrap_or(0), 0, "kill {kill}");
            }
            let last = numbers.last().copied();
            assert!(last >= said, "kill {kill}: {said:?} was said to be committed, {last:?} is there");
        }
        for record in process.records() {
            let Event::Launch(launch) = record.event else { panic!("{record:?}") };
            let text = name(launch.api);
            assert_eq!(process.definitions.name(launch.api), Some(text.as_str()), "kill {kill}");
        }
    }
    assert!(
        recorded > 1000 * KILLS,
        "only {recorded} records in {KILLS} runs: the kills come too early to tell"
    );
}

fn name(id: u32) -> String {
    format!("entry point {id}")
}

/// Runs a writer, kills it after `life`, and returns the last number that each thread said was
/// committed.
fn kill_a_writer(dir: &Path, life: Duration) -> [Option<u32>; KILLED_THREADS as usize] {
    let listener = UnixListener::bind(dir.join("progress")).unwrap();
    let mut writer =
        child("child_that_is_killed", dir, &[]).stdout(std::process::Stdio::null()).spawn().unwrap();
    // All connections are made before the first file is, so this waits for a child that is about to
    // record.
    let connections: [UnixStream; KILLED_THREADS as usize] =
        std::array::from_fn(|_| listener.accept().unwrap().0);
    let readers = connections.map(|mut connection| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = connection.read_to_end(&mut bytes); // a reset connection ends it as well
            bytes.chunks_exact(4).last().map(|last| u32::from_le_bytes(last.try_into().unwrap()))
        })
    });
    std::thread::sleep(life);
    writer.kill().unwrap(); // SIGKILL
    writer.wait().unwrap();
    readers.map(|reader| reader.join().unwrap())
}

#[test]
#[ignore = "run by what_is_committed_survives_sigkill_at_any_moment"]
fn child_that_is_killed() {
    let Some(dir) = child_dir() else { return };
    let connections: Vec<_> =
        (0..KILLED_THREADS).map(|_| UnixStream::connect(dir.join("progress")).unwrap()).collect();
    let control = MappedControl::open(&dir).unwrap().leak();
    let file = ProcessFile::create(&dir, Some(control)).unwrap();
    std::thread::scope(|scope| {
        for (thread, mut connection) in (1..).zip(connections) {
            let file = &file;
            scope.spawn(move || {
                let mut lane = Lane::default();
                let mut api = thread;
                for number in 0.. {
                    if number % 20_000 == 0 {
                        api += KILLED_THREADS;
                        assert!(file.define(&Definition::Name { id: api, text: name(api) }));
                    }
                    let start = apex_trace::now();
                    let head = Launch::head(0, start, start + 5);
                    let record = Launch { head, config: thread, stream: !number, result: number, api };
                    assert!(lane.record(file, &record));
                    if number % 64 == 63 {
                        connection.write_all(&number.to_le_bytes()).unwrap();
                    }
                }
            });
        }
    });
}

/// Moments that differ from run to run of the loop, and are the same in every run of the test.
fn random(seed: u64) -> u64 {
    Random::new(seed).bits()
}

/// A child leaves its parent's file alone, whatever the parent's other threads were at, and records
/// into its own.
#[test]
fn a_forked_child_records_into_a_file_of_its_own() {
    const FORKS: u32 = 30;
    let dir = tempfile::tempdir().unwrap();
    let file = ProcessFile::create(dir.path(), None).unwrap();
    let mut lane = Lane::default();
    assert!((0..50).all(|number| lane.record(&file, &launch(1, number))));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut lane = Lane::default();
            let mut number = 0;
            while !done.load(Ordering::Relaxed) {
                lane.record(&file, &launch(4, number));
                lane.give_back(); // and so hold the lock as often as can be
                number += 1;
            }
        });
        for _ in 0..FORKS {
            assert_eq!(fork_and_record(dir.path(), &file, &mut lane), 0);
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!((50..100).all(|number| lane.record(&file, &launch(1, number))));
    let session = open_sound(dir.path());
    assert_eq!(session.processes.len(), 1 + FORKS as usize);
    let (children, parents): (Vec<_>, Vec<_>) =
        session.processes.iter().partition(|process| process.parent_pid == std::process::id());
    assert!(numbers(parents[0].records(), 1).into_iter().eq(0..100));
    assert!(numbers(parents[0].records(), 4).into_iter().eq(0..parents[0].record_count as u32 - 100));
    assert_eq!(parents[0].dropped, 0, "what children drop is theirs");
    for child in children {
        assert!(numbers(child.records(), 2).into_iter().eq(0..9000));
        assert_eq!(child.record_count, 9000);
    }
}

/// The exit status of a child that did as it should: 0.
fn fork_and_record(dir: &Path, inherited: &ProcessFile, lane: &mut Lane) -> i32 {
    // SAFETY: the child uses what it made itself, and of what it inherited only what may be used
    // after a fork; glibc makes its allocator usable there.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child > 0 {
        let mut status = 0;
        // SAFETY: `status` is valid for writing.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        return status;
    }
    test_process::limit_this_process();
    let refused = !inherited.is_ours()
        && !lane.record(inherited, &launch(3, 0))
        && !Lane::default().record(inherited, &launch(3, 0))
        && !inherited.define(&Definition::Name { id: 1, text: "of the child".to_owned() });
    inherited.count_dropped(1);
    inherited.anchor_clock();
    lane.give_back();
    let own = ProcessFile::create(dir, None).is_ok_and(|file| {
        let mut lane = Lane::default();
        (0..9000).all(|number| lane.record(&file, &launch(2, number)))
    });
    // SAFETY: ends the child without running what the parent registered.
    unsafe { libc::_exit(if refused && own { 0 } else { 1 }) }
}

/// Daemons close descriptors that they did not open, and open files of their own under the same
/// numbers.
#[test]
fn a_program_may_close_our_descriptor_and_reuse_its_number() {
    let dir = tempfile::tempdir().unwrap();
    run_child("child_that_closes_everything", dir.path(), &[]);
    let process = open_only_process(dir.path());
    assert!(numbers(process.records(), 1).into_iter().eq(0..30_000));
    assert_eq!(process.dropped, 0);
}

#[test]
#[ignore = "run by a_program_may_close_our_descriptor_and_reuse_its_number"]
fn child_that_closes_everything() {
    let Some(dir) = child_dir() else { return };
    let file = ProcessFile::create(&dir, None).unwrap();
    let mut lane = Lane::default();
    assert!((0..10_000).all(|number| lane.record(&file, &launch(1, number))));
    let ours = descriptors_of(&dir);
    assert_eq!(ours.len(), 1, "the writer has one descriptor");
    let mut theirs = File::create(dir.join("theirs")).unwrap();
    theirs.write_all(b"the program's own").unwrap();
    // SAFETY: the number changes its owner behind the writer's back: what this test is about.
    assert_eq!(unsafe { libc::dup2(theirs.as_raw_fd(), ours[0]) }, ours[0]);
    assert!((10_000..30_000).all(|number| lane.record(&file, &launch(1, number))));
    assert_eq!(fs::read(dir.join("theirs")).unwrap(), b"the program's own");
    drop((lane, file));
    // SAFETY: asks about a descriptor.
    assert!(unsafe { libc::fcntl(ours[0], libc::F_GETFD) } >= 0, "theirs is not closed");
}

/// This process's descriptors of process files in `dir`.
fn descriptors_of(dir: &Path) -> Vec<i32> {
    let entries = fs::read_dir("/proc/self/fd").unwrap().map(Result::unwrap);
    let ours = entries.filter(|entry| {
        fs::read_link(entry.path())
            .is_ok_and(|target| target.starts_with(dir) && target.extension().is_some_and(|it| it == "rec"))
    });
    ours.map(|entry| entry.file_name().to_str().unwrap().parse().unwrap()).collect()
}

/// The session of a process that was killed before its clock had run for long still has sane
/// durations.
#[test]
fn a_clock_that_ran_for_a_moment_gives_sane_durations() {
    let dir = tempfile::tempdir().unwrap();
    let file = ProcessFile::create(dir.path(), None).unwrap();
    let mut lane = Lane::default();
    assert!(lane.record(&file, &launch(1, 0)));
    let killed = open_only_process(dir.path());
    // The same machine's clock, measured over a longer time.
    std::thread::sleep(Duration::from_millis(30));
    file.anchor_clock();
    let measured = open_only_process(dir.path());
    let (quick, good) =
        (killed.clock.duration_ns(1 << 40) as f64, measured.clock.duration_ns(1 << 40) as f64);
    assert!((quick / good - 1.0).abs() < 0.1, "{:?}: {quick} instead of {good}", killed.clock.rate());
}

#[test]
fn a_file_that_shrinks_under_a_reader_is_a_read_failure() {
    let dir = tempfile::tempdir().unwrap();
    let file = ProcessFile::create(dir.path(), None).unwrap();
    let mut lane = Lane::default();
    assert!((0..20_000).all(|number| lane.record(&file, &launch(1, number))));
    drop((lane, file));
    let process = open_only_process(dir.path());
    let mut records = process.records();
    assert_eq!(records.by_ref().take(100).count(), 100);
    let path = &process.file;
    fs::OpenOptions::new()
        .write(true)
        .open(path)
        .unwrap()
        .set_len((HEADER_BYTES + CHUNK_BYTES) as u64)
        .unwrap();
    assert!(records.count() < 19_900);
    let problem =
        process.read_failure().expect("the records that are missing are not passed over in silence");
    assert_eq!(&problem.path, path);
    // Deleted, it is a failure as well.
    let process = open_damaged(dir.path());
    fs::remove_file(path).unwrap();
    assert_eq!(process.records().count(), 0);
    assert!(process.read_failure().unwrap().what.contains("No such file"));
}

fn open_damaged(dir: &Path) -> apex_trace::Process {
    Session::open(dir).unwrap().processes.remove(0)
}

#[test]
fn a_half_made_file_is_no_error() {
    let dir = tempfile::tempdir().unwrap();
    for (number, length) in
        [0, 100, HEADER_BYTES as u64, (HEADER_BYTES + CHUNK_BYTES) as u64].into_iter().enumerate()
    {
        File::create(dir.path().join(format!("{number}-1.rec"))).unwrap().set_len(length).unwrap();
    }
    let strange = File::create(dir.path().join("9-9.rec")).unwrap();
    strange.write_at(b"GIF89a: not one of ours", 0).unwrap();
    let session = Session::open(dir.path()).unwrap();
    assert!(session.processes.is_empty());
    let about = |text: &str| session.problems.iter().filter(|problem| problem.what.contains(text)).count();
    assert_eq!((about("it recorded nothing"), about("is no process file")), (4, 1));
}
