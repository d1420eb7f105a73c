//! Sessions that somebody made to hurt: files that block or never end, and links where files are
//! about to be made.

use apex_counts::{Defect, Place};
use apex_trace::control::{CONTROL_FILE, Settings};
use apex_trace::counts::CountsFile;
use apex_trace::layout::{Launch, Slots};
use apex_trace::{Lane, MappedControl, ProcessFile, Session};
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

fn fifo(path: &Path) {
    let name = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: the name ends with a zero byte.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
}

/// Records `launches` launches in a file of the session, and returns its path.
fn recorded(dir: &Path, launches: u32) -> PathBuf {
    let before = files(dir);
    let file = ProcessFile::create(dir, None).unwrap();
    let mut lane = Lane::default();
    for config in 0..launches {
        assert!(
            lane.record(&file, &Launch { head: Launch::head(0, 1, 2), config, stream: 1, result: 0, api: 1 })
        );
    }
    files(dir).into_iter().find(|path| !before.contains(path)).unwrap()
}

fn files(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// Each sort of file of a session is a FIFO, a device, or 1 TiB of nothing: it is named, and the
/// rest is read.
#[test]
fn files_that_block_or_never_end_are_problems() {
    let block: fn(&Path) = fifo;
    let device: fn(&Path) = |path| symlink("/dev/zero", path).unwrap();
    let endless: fn(&Path) = |path| File::create(path).unwrap().set_len(1 << 40).unwrap();
    let names = ["1-1.rec", "1-1.counts", "session.json"];
    for (make, what) in [(block, "a FIFO"), (device, "a device"), (endless, "1 TiB")] {
        for name in names {
            if name == "session.json" && cfg!(not(feature = "meta")) {
                continue;
            }
            let dir = tempfile::tempdir().unwrap();
            recorded(dir.path(), 3);
            make(&dir.path().join(name));
            let session = Session::open(dir.path()).unwrap();
            assert_eq!(session.processes[0].record_count, 3, "{name}");
            let problems: Vec<_> = session.problems.iter().map(ToString::to_string).collect();
            let named = problems.iter().any(|problem| problem.contains(name));
            assert!(named, "{name}: {problems:?}");
            // A process file may be that long: it is read, and has nothing in it.
            if !(name.ends_with(".rec") && what == "1 TiB") {
                assert!(problems.iter().any(|problem| problem.contains(what)), "{name}: {problems:?}");
            }
        }
        let dir = tempfile::tempdir().unwrap();
        make(&dir.path().join(CONTROL_FILE));
        assert!(MappedControl::open(dir.path()).unwrap_err().to_string().contains("control"), "{what}");
    }
}

/// A file that is as long as a file may be and has its records at both ends is read as fast as a
/// short one.
#[test]
fn holes_are_stepped_over() {
    let dir = tempfile::tempdir().unwrap();
    let path = recorded(dir.path(), 5);
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let mut chunk = vec![0; apex_trace::layout::CHUNK_BYTES];
    file.read_exact_at(&mut chunk, apex_trace::layout::HEADER_BYTES as u64).unwrap();
    let last = ((1u64 << 40) - 2 * chunk.len() as u64) / chunk.len() as u64;
    file.write_all_at(&chunk, apex_trace::layout::HEADER_BYTES as u64 + last * chunk.len() as u64).unwrap();
    let session = Session::open(dir.path()).unwrap();
    assert_eq!(session.processes[0].records().count(), 10);

    file.set_len((1 << 40) + 1).unwrap();
    let session = Session::open(dir.path()).unwrap();
    assert!(session.processes.is_empty());
    let refused = session.problems.iter().any(|problem| problem.what.contains("at most 1 TiB"));
    assert!(refused, "{:?}", session.problems);
}

#[test]
fn the_control_page_is_never_reached_through_a_link() {
    let (theirs, ours) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let _control = MappedControl::create(theirs.path(), Settings::default()).unwrap();
    symlink(theirs.path().join(CONTROL_FILE), ours.path().join(CONTROL_FILE)).unwrap();
    let error = MappedControl::open(ours.path()).unwrap_err().to_string();
    assert!(error.contains("symbolic link"), "{error}");
    let error = MappedControl::create(ours.path(), Settings::default()).unwrap_err().to_string();
    assert!(error.contains("exists"), "{error}");
}

/// A file that was put in the place of a file of counts is not appended to.
#[test]
fn counts_are_appended_to_their_own_file_only() {
    let dir = tempfile::tempdir().unwrap();
    let victim = dir.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    let defect = Defect {
        kind: "race".to_owned(),
        kernel: "kernel".to_owned(),
        text: "text".to_owned(),
        place: Place::default(),
        other: None,
        count: 1,
        places: 1,
    };
    for exchange in [
        (|victim, path| fs::hard_link(victim, path).unwrap()) as fn(&Path, &Path),
        |victim, path| symlink(victim, path).unwrap(),
        |_, path| fifo(path),
    ] {
        let session = tempfile::tempdir_in(dir.path()).unwrap();
        let mut counts = CountsFile::create(session.path()).unwrap();
        counts.defect(&defect).unwrap();
        let path = files(session.path()).remove(0);
        fs::remove_file(&path).unwrap();
        exchange(&victim, &path);
        let error = counts.defect(&defect).unwrap_err().to_string();
        assert!(error.contains(&*path.display().to_string()), "{error}");
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    }
}
