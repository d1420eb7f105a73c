//! Limited space: what does not fit is dropped and counted, and the program goes on.

use crate::common::{Sandbox, output, program, text};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use test_process::Command;

/// Launches that were recorded and launches that were lost, by the report.
fn recorded_and_lost(sandbox: &Sandbox, session: &str) -> (u64, u64) {
    let report = sandbox.json(&["report", "--json", session]);
    let number = |value: &serde_json::Value| value.as_u64().unwrap();
    let recorder = &report["profile"]["recorder"];
    (
        number(&report["profile"]["totals"]["launches"]),
        number(&recorder["dropped"]) + number(&recorder["overwritten"]),
    )
}

#[test]
fn a_size_limit_bounds_the_session_and_counts_what_gave_way() {
    let sandbox = Sandbox::new();
    let output = sandbox.recorded(&["--max-size", "1M", "--timing", "off"], &["launch", "100000"]);
    assert!(text(&output.stderr).contains("RECORDS WERE LOST"), "{}", text(&output.stderr));
    let files = std::fs::read_dir(sandbox.path("s")).unwrap().map(|entry| entry.unwrap().path());
    let records = files.filter(|path| path.extension().is_some_and(|extension| extension == "rec"));
    // The file system may need some blocks of its own.
    let allocated = |path: PathBuf| 512 * path.metadata().unwrap().blocks();
    assert!(records.map(allocated).sum::<u64>() <= (1 << 20) + (64 << 10));
    let (recorded, lost) = recorded_and_lost(&sandbox, "s");
    assert!(recorded > 0 && lost > 0);
    assert!(recorded + lost >= 100_000, "{recorded} + {lost}: each launch is there or counted");
}

#[test]
fn a_limit_on_the_size_of_files_is_no_end_of_the_program() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.record(&["--timing", "off"], &["launch", "100000", "exit", "4"]);
    // SAFETY: between fork and exec; one async-signal-safe call.
    unsafe {
        command.pre_exec(|| {
            let limit = libc::rlimit { rlim_cur: 1 << 20, rlim_max: 1 << 20 };
            libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit);
            Ok(())
        })
    };
    let output = output(&mut command, 4);
    assert!(text(&output.stderr).contains("RECORDS WERE LOST"), "{}", text(&output.stderr));
    let (recorded, lost) = recorded_and_lost(&sandbox, "s");
    assert!(recorded > 0 && recorded + lost >= 100_000, "{recorded} + {lost}");
}

/// Down to nothing at all: `apex` says what is wrong, and where it can make a session the program
/// runs to its end.
#[test]
fn no_limit_on_the_size_of_files_ends_apex_or_the_program_by_a_signal() {
    for bytes in [0, 1024, 4096, 16 * 1024, 300 * 1024] {
        let sandbox = Sandbox::new();
        let mut command = sandbox.record(&["--check"], &["launch", "20000", "exit", "4"]);
        // SAFETY: between fork and exec; one async-signal-safe call.
        unsafe {
            command.pre_exec(move || {
                let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
                libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit);
                Ok(())
            })
        };
        let output = command.output().unwrap();
        let stderr = text(&output.stderr);
        match output.status.code() {
            Some(4) => assert!(bytes >= 4096, "{bytes}: {stderr}"),
            Some(125) => assert!(bytes <= 4096 && stderr.contains("File too large"), "{bytes}: {stderr}"),
            _ => panic!("{bytes}: {}: {stderr}", output.status),
        }
    }
}

/// A small file system, unmounted afterwards.
struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    fn mount(at: &'a Path, size: &str) -> Option<Self> {
        std::fs::create_dir(at).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", size, "tmpfs"]).arg(at).output();
        mounted.is_ok_and(|output| output.status.success()).then_some(Self(at))
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        // The folder is removed anyway; a mount that stays is visible there.
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[test]
fn a_full_disk_is_counted_and_the_program_goes_on() {
    let sandbox = Sandbox::new();
    let place = sandbox.path("disk");
    let Some(_disk) = SmallDisk::mount(&place, "size=1m") else {
        return test_skip::impossible_here("this user may not mount a small file system");
    };
    let mut command = sandbox.apex(&["run", "--device", "cpu", "--timing", "off", "-o", "disk/s", "--"]);
    let output = output(command.arg(program()).args(["launch", "100000", "exit", "4"]), 4);
    assert!(text(&output.stderr).contains("No space left"), "{}", text(&output.stderr));
    let (recorded, lost) = recorded_and_lost(&sandbox, "disk/s");
    assert!(recorded > 0 && recorded + lost >= 100_000, "{recorded} + {lost}");
}
