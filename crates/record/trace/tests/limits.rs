//! Behaviour when space runs out: the session's limit, the disk, the process's own limits, the
//! directory's permissions.

mod common;

use apex_trace::control::Settings;
use apex_trace::definition::{Definition, Graph};
use apex_trace::layout::{CHUNK_BYTES, Ended, HEADER_BYTES, LIMIT_REACHED, SLOT_BYTES};
use apex_trace::{Control, Headers, Lane, MappedControl, ProcessFile, Session};
use common::*;
use std::fs;
use std::io::Write;
use std::path::Path;

const LAUNCHES_PER_CHUNK: usize = CHUNK_BYTES / SLOT_BYTES - 2; // its header, and who writes

/// The part of a chunk that has disk space under a limit of 1 MiB and less, in bytes.
const PART_BYTES: usize = 16 * 1024;
const LAUNCHES_PER_PART: usize = PART_BYTES / SLOT_BYTES - 2;

fn limited(dir: &Path, chunks: usize, files: usize) -> &'static Control {
    let max_bytes = (files * HEADER_BYTES + chunks * CHUNK_BYTES) as u64;
    MappedControl::create(dir, Settings { max_bytes, ..Settings::default() }).unwrap().leak()
}

/// Bytes that the file system has allocated for process files. It may need some for itself.
fn bytes_of_process_files(dir: &Path) -> usize {
    use std::os::unix::fs::MetadataExt;
    let entries = fs::read_dir(dir).unwrap().map(Result::unwrap);
    let files = entries.filter(|entry| entry.path().extension().is_some_and(|extension| extension == "rec"));
    files.map(|file| 512 * file.metadata().unwrap().blocks() as usize).sum()
}

/// Checks that process files have `bytes` bytes on disk, and that the session's limit was charged
/// as many.
fn assert_allocated(dir: &Path, control: &Control, bytes: usize) {
    assert_eq!(control.used_bytes.load(std::sync::atomic::Ordering::Relaxed), bytes as u64);
    let (found, own) = (bytes_of_process_files(dir), 64 * 1024);
    assert!((bytes..bytes + own).contains(&found), "{found} bytes are allocated, {bytes} were charged");
}

#[test]
fn a_limited_session_keeps_the_newest_records() {
    let dir = tempfile::tempdir().unwrap();
    let control = limited(dir.path(), 4, 1);
    let file = ProcessFile::create(dir.path(), Some(control)).unwrap();
    assert!(file.define(&Definition::Name { id: 1, text: "cuLaunchKernel".to_owned() }));
    let mut lane = Lane::default();
    let count = 10 * LAUNCHES_PER_CHUNK as u32 + 5;
    assert!((0..count).all(|number| lane.record(&file, &launch(1, number))));
    assert_allocated(dir.path(), control, HEADER_BYTES + 4 * CHUNK_BYTES);
    let process = open_only_process(dir.path());
    // One chunk has the name, and one is being filled.
    let parts = (4 * CHUNK_BYTES / PART_BYTES) as u32;
    let kept = (parts - 2) * LAUNCHES_PER_PART as u32 + count % LAUNCHES_PER_PART as u32;
    assert!(numbers(process.records(), 1).into_iter().eq(count - kept..count));
    assert_eq!(process.overwritten, u64::from(count - kept));
    assert_eq!((process.dropped, process.drop_errno), (0, 0));
    assert_eq!(process.definitions.name(1), Some("cuLaunchKernel"));
}

#[test]
fn definitions_take_the_place_of_the_oldest_records() {
    let dir = tempfile::tempdir().unwrap();
    let control = limited(dir.path(), 4, 1);
    let file = ProcessFile::create(dir.path(), Some(control)).unwrap();
    let mut lane = Lane::default();
    let count = 4 * LAUNCHES_PER_CHUNK as u32;
    assert!((0..count).all(|number| lane.record(&file, &launch(1, number))));
    let graph = |id| Definition::Graph(Graph { id, kernels: vec![(1, id); 16_000], ..Graph::default() });
    assert!((1..=3).all(|id| file.define(&graph(id))), "each takes eight parts");
    let process = open_only_process(dir.path());
    assert_allocated(dir.path(), control, HEADER_BYTES + 4 * CHUNK_BYTES);
    assert_eq!(process.definitions.graphs().count(), 3);
    // One part was overwritten by records already.
    let lost = (3 * 8 + 1) * LAUNCHES_PER_PART as u32;
    assert!(numbers(process.records(), 1).into_iter().eq(lost..count));
    assert_eq!(process.overwritten, u64::from(lost));
}

#[test]
fn with_a_single_chunk_the_oldest_records_stay_and_the_rest_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let max_bytes = (HEADER_BYTES + PART_BYTES) as u64;
    let control =
        MappedControl::create(dir.path(), Settings { max_bytes, ..Settings::default() }).unwrap().leak();
    let file = ProcessFile::create(dir.path(), Some(control)).unwrap();
    let mut lane = Lane::default();
    let count = LAUNCHES_PER_PART as u32 + 1000;
    let done = (0..count).filter(|&number| lane.record(&file, &launch(1, number))).count();
    assert_eq!(done, LAUNCHES_PER_PART);
    assert!(!file.define(&Definition::Name { id: 1, text: "cuLaunchKernel".to_owned() }));
    let process = open_only_process(dir.path());
    assert!(numbers(process.records(), 1).into_iter().eq(0..done as u32));
    assert_eq!((process.dropped, process.drop_errno), (1000, LIMIT_REACHED));
    assert_eq!(process.drop_cause().as_deref(), Some("the session's size limit was reached"));
}

/// Sixteen threads that record little fit a small limit: each takes what it needs, not a whole
/// chunk.
#[test]
fn threads_that_record_little_lose_nothing_under_a_small_limit() {
    let dir = tempfile::tempdir().unwrap();
    let control = limited(dir.path(), 4, 0);
    let file = ProcessFile::create(dir.path(), Some(control)).unwrap();
    assert!(file.define(&Definition::Name { id: 1, text: "cuLaunchKernel".to_owned() }));
    let each = 2 * LAUNCHES_PER_PART as u32;
    let lanes: Vec<_> = (1..=16)
        .map(|thread| {
            let mut lane = Lane::default();
            assert!((0..each).all(|number| lane.record(&file, &launch(thread, number))));
            lane
        })
        .collect();
    let process = open_only_process(dir.path());
    assert_eq!((process.dropped, process.overwritten), (0, 0));
    assert_eq!(process.record_count, 16 * u64::from(each));
    assert_allocated(dir.path(), control, HEADER_BYTES + 33 * PART_BYTES);
    drop(lanes);
}

#[test]
fn the_limit_holds_over_all_processes_and_threads() {
    let dir = tempfile::tempdir().unwrap();
    let control = limited(dir.path(), 9, 3);
    let files: Vec<_> = (0..3).map(|_| ProcessFile::create(dir.path(), Some(control)).unwrap()).collect();
    assert_eq!(control.processes.load(std::sync::atomic::Ordering::Relaxed), 3);
    let per_thread = 20_000;
    std::thread::scope(|scope| {
        for file in &files {
            for thread in 1..=4 {
                scope.spawn(move || {
                    let mut lane = Lane::default();
                    (0..per_thread).for_each(|number| _ = lane.record(file, &launch(thread, number)));
                });
            }
        }
    });
    assert_allocated(dir.path(), control, 3 * HEADER_BYTES + 9 * CHUNK_BYTES);
    let refused = ProcessFile::create(dir.path(), Some(control)).unwrap_err().to_string();
    assert!(refused.contains("size limit"), "{refused}");
    let session = open_sound(dir.path());
    let accounted: u64 = session
        .processes
        .iter()
        .map(|process| process.record_count + process.dropped + process.overwritten)
        .sum();
    assert_eq!(accounted, 3 * 4 * u64::from(per_thread), "each record is there or counted");
}

#[test]
fn a_process_that_ends_gives_back_what_it_did_not_use() {
    let dir = tempfile::tempdir().unwrap();
    let control = limited(dir.path(), 4, 2);
    let file = ProcessFile::create(dir.path(), Some(control)).unwrap();
    assert!(file.define(&Definition::Name { id: 1, text: "cuLaunchKernel".to_owned() }));
    let mut lane = Lane::default();
    assert!((0..100).all(|number| lane.record(&file, &launch(1, number))));
    lane.give_back();
    file.mark_ended(Ended::Exited);
    let used = control.used_bytes.load(std::sync::atomic::Ordering::Relaxed) as usize;
    assert!(used <= 4 * HEADER_BYTES, "{used} bytes are still taken");
    // Threads may go on after `exit` was called.
    assert!((100..200).all(|number| lane.record(&file, &launch(1, number))));
    assert!(file.define(&Definition::Name { id: 2, text: "cuCtxSynchronize".to_owned() }));
    let process = open_only_process(dir.path());
    assert!(numbers(process.records(), 1).into_iter().eq(0..200));
    assert_eq!(process.definitions.names().collect::<Vec<_>>(), ["cuLaunchKernel", "cuCtxSynchronize"]);
}

#[test]
fn an_unusable_directory_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    let error = ProcessFile::create(&missing, None).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    assert!(error.to_string().contains(missing.to_str().unwrap()), "{error}");
    assert!(MappedControl::open(&missing).unwrap_err().to_string().contains("missing/control"));
    // `/proc` is writable for nobody, root included.
    let error = ProcessFile::create(Path::new("/proc"), None).unwrap_err();
    assert!(error.to_string().contains("cannot create /proc/"), "{error}");
}

#[test]
fn a_file_is_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let _file = ProcessFile::create(dir.path(), None).unwrap();
    let process = open_only_process(dir.path());
    assert_eq!(fs::metadata(&process.file).unwrap().permissions().mode() & 0o777, 0o600);
}

/// A file size limit must neither kill the program (SIGXFSZ) nor go unnoticed.
#[test]
fn past_the_file_size_limit_records_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    run_child("child_with_a_file_size_limit", dir.path(), &[]);
    let process = open_only_process(dir.path());
    assert_eq!(process.drop_errno, libc::EFBIG as u32);
    assert!(process.drop_cause().unwrap().contains("File too large"));
    assert_eq!(process.record_count, LAUNCHES_PER_CHUNK as u64);
    assert_eq!(process.record_count + process.dropped, 50_000);
}

#[test]
#[ignore = "run by past_the_file_size_limit_records_are_counted"]
fn child_with_a_file_size_limit() {
    let Some(dir) = child_dir() else { return };
    let bytes = (HEADER_BYTES + CHUNK_BYTES + CHUNK_BYTES / 2) as u64;
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: `limit` is valid; it holds for this process, which is of this test alone.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) }, 0);
    let file = ProcessFile::create(&dir, None).unwrap();
    let mut lane = Lane::default();
    (0..50_000).for_each(|number| _ = lane.record(&file, &launch(1, number)));
}

#[test]
fn on_a_full_disk_records_are_counted_until_there_is_space_again() {
    let dir = tempfile::tempdir().unwrap();
    // A file system of one's own takes a name space, or to be root.
    let prefixes: [&[&str]; 2] =
        [&["unshare", "--user", "--map-root-user", "--mount"], &["unshare", "--mount"]];
    let able = |prefix: &&&[&str]| {
        let mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "apex-test"];
        let mut command = test_process::Command::new(prefix[0]);
        command
            .args(&prefix[1..])
            .args(mount)
            .arg(dir.path())
            .output()
            .is_ok_and(|output| output.status.success())
    };
    let Some(prefix) = prefixes.iter().find(able) else {
        test_skip::impossible_here("a small file system needs user name spaces or root");
        return;
    };
    run_child("child_on_a_full_disk", dir.path(), prefix);
}

#[test]
#[ignore = "run by on_a_full_disk_records_are_counted_until_there_is_space_again"]
fn child_on_a_full_disk() {
    let Some(dir) = child_dir() else { return };
    let mount = ["-t", "tmpfs", "-o", "size=2m", "apex-test"];
    let mounted = test_process::Command::new("mount").args(mount).arg(&dir).status().unwrap();
    assert!(mounted.success());
    let other = dir.join("other");
    fs::write(&other, vec![1; 1 << 20]).unwrap();
    let file = ProcessFile::create(&dir, None).unwrap();
    assert!(file.define(&Definition::Name { id: 1, text: "cuLaunchKernel".to_owned() }));
    let mut lane = Lane::default();
    let mut done = (0..50_000).filter(|&number| lane.record(&file, &launch(1, number))).count();
    let process = open_only_process(&dir);
    assert_eq!(process.drop_errno, libc::ENOSPC as u32);
    assert_eq!((process.record_count, process.dropped), (done as u64, 50_000 - done as u64));
    assert_eq!(done, 2 * LAUNCHES_PER_CHUNK, "the MiB that is left holds the header and three chunks");
    assert!(MappedControl::create(&dir, Settings::default()).is_ok_and(|control| control.is_recording()));
    fill(&dir.join("rest"));
    let refused = ProcessFile::create(&dir, None).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::StorageFull);
    // More space: recording goes on before long.
    fs::remove_file(other).unwrap();
    done += (0..50_000).filter(|&number| lane.record(&file, &launch(2, number))).count();
    let session = Session::open(&dir).unwrap();
    let process = &session.processes[0];
    assert_eq!((process.record_count, process.dropped), (done as u64, 100_000 - done as u64));
    assert!(!numbers(process.records(), 2).is_empty());
    assert!(numbers(process.records(), 1).into_iter().eq(0..2 * LAUNCHES_PER_CHUNK as u32));
}

/// Sandboxes choose the error with which they refuse a system call.
#[test]
fn where_fallocate_is_refused_space_is_reserved_by_filling_it() {
    for error in [libc::EPERM, libc::EACCES, libc::EINVAL, libc::ENOSYS, libc::EOPNOTSUPP] {
        let dir = tempfile::tempdir().unwrap();
        let mut child = child("child_that_records", dir.path(), &[]);
        let output = child.refuse(libc::SYS_fallocate, error).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "error {error}: {}{said}", String::from_utf8_lossy(&output.stdout));
        let process = open_only_process(dir.path());
        assert_eq!((process.record_count, process.dropped), (20_000, 0), "error {error}");
    }
}

#[test]
#[ignore = "run by where_fallocate_is_refused_space_is_reserved_by_filling_it"]
fn child_that_records() {
    let Some(dir) = child_dir() else { return };
    let file = ProcessFile::create(&dir, None).unwrap();
    let mut lane = Lane::default();
    assert!((0..20_000).all(|number| lane.record(&file, &launch(1, number))));
}

/// Whatever the limit, and even if it changes while the program runs, no file of ours raises
/// SIGXFSZ.
#[test]
fn no_file_of_a_session_raises_sigxfsz() {
    let dir = tempfile::tempdir().unwrap();
    run_child("child_whose_file_size_limit_falls", dir.path(), &[]);
}

#[test]
#[ignore = "run by no_file_of_a_session_raises_sigxfsz"]
fn child_whose_file_size_limit_falls() {
    use apex_trace::counts::CountsFile;
    let Some(dir) = child_dir() else { return };
    let defect = apex_counts::Defect {
        kind: "race".to_owned(),
        kernel: "k".repeat(5000),
        text: String::new(),
        place: apex_counts::Place::default(),
        other: None,
        count: 1,
        places: 1,
    };
    let is_too_large = |error: std::io::Error| error.to_string().contains("File too large");
    let control = MappedControl::create(&dir, Settings::default()).unwrap().leak();
    let file = ProcessFile::create(&dir, Some(control)).unwrap();
    let mut counts = CountsFile::create(&dir).unwrap();
    counts.defect(&defect).unwrap();
    let mut lane = Lane::default();
    assert!(lane.record(&file, &launch(1, 0)));
    for bytes in [8192, 6000, 100, 0] {
        let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
        // SAFETY: `limit` is valid; it holds for this process, which is of this test alone.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) }, 0);
        assert!((0..20).any(|_| counts.defect(&defect).is_err_and(is_too_large)), "at {bytes}");
        assert!((0..20_000).any(|number| !lane.record(&file, &launch(1, number))), "at {bytes}");
        let other = dir.join(format!("under-{bytes}"));
        fs::create_dir(&other).unwrap();
        if bytes < 4096 {
            assert!(MappedControl::create(&other, Settings::default()).is_err_and(is_too_large));
            assert!(ProcessFile::create(&other, None).is_err_and(is_too_large));
        }
        if bytes == 0 {
            assert!(CountsFile::create(&other).is_err_and(is_too_large));
        }
    }
    // A signal that the program sent itself, and blocks, stays for the program.
    // SAFETY: sets on this stack.
    unsafe {
        let mut only: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&mut only, libc::SIGXFSZ);
        libc::sigprocmask(libc::SIG_BLOCK, &only, std::ptr::null_mut());
        libc::raise(libc::SIGXFSZ);
        assert!(counts.defect(&defect).is_err());
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        assert_eq!(libc::sigtimedwait(&only, std::ptr::null_mut(), &now), libc::SIGXFSZ);
    }
}

fn fill(path: &Path) {
    let mut file = fs::File::create(path).unwrap();
    while file.write_all(&[1; 4096]).is_ok() {}
}

/// The amount of lost data, and the existence of any, is known without the records.
#[test]
fn headers_say_what_the_session_says_without_its_records() {
    let dir = tempfile::tempdir().unwrap();
    let control = limited(dir.path(), 2, 1);
    let file = ProcessFile::create(dir.path(), Some(control)).unwrap();
    assert!(file.define(&Definition::Name { id: 1, text: "cuLaunchKernel".to_owned() }));
    assert!(!Headers::read(dir.path()).unwrap().has_records);
    let mut lane = Lane::default();
    assert!((0..5 * LAUNCHES_PER_CHUNK as u32).all(|number| lane.record(&file, &launch(1, number))));
    file.count_dropped(3);
    (0..5).for_each(|_| file.count_queue_taken());
    file.set_queue_made(3);
    // Damage to what a chunk holds shows in its records alone.
    let path = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
    let path = path.into_iter().find(|path| path.extension().is_some_and(|found| found == "rec")).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    let before = Headers::read(dir.path()).unwrap();
    for chunk in bytes[HEADER_BYTES..].chunks_mut(CHUNK_BYTES) {
        chunk[64..].fill(0xff);
    }
    fs::write(&path, bytes).unwrap();
    let session = Session::open(dir.path()).unwrap();
    for headers in [before, Headers::read(dir.path()).unwrap()] {
        assert!(headers.has_records);
        let process = &session.processes[0];
        assert_eq!(headers.lost(), process.dropped + process.overwritten);
        assert!(headers.lost() > 3);
        assert_eq!(headers.session.causes_of_loss(), session.causes_of_loss());
        let of = |process: &apex_trace::Process| (process.pid, process.queue_waiting);
        assert_eq!((of(&headers.session.processes[0]), of(process)), ((std::process::id(), 2), of(process)));
        assert!(headers.session.processes[0].records().next().is_none());
    }
    fs::write(dir.path().join("1.rec"), "no process file").unwrap();
    assert_eq!(Headers::read(dir.path()).unwrap().session.problems.len(), 1);
    assert!(Headers::read(&dir.path().join("nowhere")).is_err());
}
