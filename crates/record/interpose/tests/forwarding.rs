//! A program gets the same results through the library as without it.

mod support;

use apex_trace::control::Settings;
use support::{Recording, client, fake_driver, finished, library};
use test_process::Command;

/// Entry points with a signature.
const DECLARED: usize = cuda_abi::COUNT - 3;

#[test]
fn every_entry_point_gets_its_arguments() {
    let recording = Recording::untimed();
    assert_eq!(recording.run("forward"), format!("{DECLARED}\n"));
}

#[test]
fn every_entry_point_gets_its_arguments_while_recording_is_off() {
    let recording = Recording::new(Settings { recording: false, ..Settings::default() });
    assert_eq!(recording.run("forward"), format!("{DECLARED}\n"));
}

#[test]
fn every_entry_point_gets_its_arguments_through_bare_jumps() {
    let recording = Recording::untimed();
    for command in [
        recording.client("forward").env("APEX_DISABLE", "1"),
        recording.client("forward").env_remove("APEX_SESSION"),
    ] {
        assert_eq!(finished(command), format!("{DECLARED}\n"));
    }
    assert_eq!(recording.open().processes.len(), 0, "bare jumps record nothing");
}

/// A program under the library with a flush, which runs before calls that have no hook.
fn flushed(recording: &Recording, program: &str) -> Command {
    let mut command = recording.client(program);
    command.env("LD_PRELOAD", test_build::library("flushing-library"));
    command
}

#[test]
fn a_flush_runs_before_every_entry_point_and_leaves_its_arguments_alone() {
    let recording = Recording::untimed();
    let output = finished(flushed(&recording, "forward").env_remove("APEX_SESSION"));
    // All but the two that give addresses, whose answers must lead through the slots.
    assert_eq!(output, format!("{DECLARED} {}\n", DECLARED - 2));
    assert_eq!(recording.open().processes.len(), 0);
}

#[test]
fn while_calls_are_recorded_a_flush_runs_before_those_with_a_hook_too() {
    let recording = Recording::untimed();
    let output = finished(&mut flushed(&recording, "forward"));
    let process = recording.process();
    let names = (1..=cuda_abi::COUNT as u32).filter_map(|id| process.definitions.name(id)).count();
    assert!(names > 100, "every hook has a name in the session");
    assert_eq!(output, format!("{DECLARED} {}\n", DECLARED - 2));
}

#[test]
fn a_flush_runs_before_calls_through_addresses_that_were_looked_up() {
    let recording = Recording::untimed();
    finished(flushed(&recording, "flushed-look-up").env_remove("APEX_SESSION"));
    finished(&mut flushed(&recording, "flushed-look-up"));
}

#[test]
fn a_flush_is_not_run_where_apex_is_disabled() {
    let recording = Recording::untimed();
    let output = finished(flushed(&recording, "forward").env("APEX_DISABLE", "1"));
    assert_eq!(output, format!("{DECLARED} 0\n"));
}

#[test]
fn functions_that_are_looked_up_are_recorded_like_those_that_are_linked() {
    for hides in [false, true] {
        let recording = Recording::untimed();
        let mut command = recording.client("look-up");
        if hides {
            command.env("FAKE_HIDES", "1");
        }
        finished(&mut command);
        let process = recording.process();
        let launches = support::launches(&process);
        let names: Vec<_> =
            launches.iter().map(|launch| process.definitions.name(launch.api).unwrap()).collect();
        assert_eq!(names, ["cuLaunchKernel", "cuLaunchKernel_ptsz"], "hides: {hides}");
    }
}

#[test]
fn many_threads_may_make_the_first_call_together() {
    for _ in 0..10 {
        let recording = Recording::untimed();
        recording.run("cold-start 32");
        assert_eq!(recording.open().processes.len(), 1);
    }
}

#[test]
fn a_process_that_makes_no_driver_call_is_left_alone() {
    let recording = Recording::untimed();
    recording.run("nothing");
    let files = std::fs::read_dir(recording.path()).unwrap().count();
    assert_eq!(files, 1, "the control page only");
}

#[test]
fn without_a_driver_every_call_says_that_there_is_no_device() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = folder.path().join("libcuda.so.1");
    let mut alone = client("without-driver");
    alone.env("LD_PRELOAD", library()).env("APEX_DRIVER", &nowhere);
    assert_eq!(finished(&mut alone), "", "without a session it is silent");

    let recording = Recording::untimed();
    let output = recording.client("without-driver").env("APEX_DRIVER", &nowhere).output().unwrap();
    assert!(output.status.success());
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(message.starts_with("apex: cannot open") && message.contains("APEX_DRIVER"), "{message}");
}

#[test]
fn the_library_never_takes_itself_for_the_driver() {
    let recording = Recording::untimed();
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("libcuda.so.1");
    std::os::unix::fs::symlink(library(), &link).unwrap();
    let output = recording.client("without-driver").env("APEX_DRIVER", &link).output().unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("itself"));

    // Found by search: the link is passed over, and what comes after it is taken.
    let other = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(fake_driver(), other.path().join("libcuda.so.1")).unwrap();
    let path = format!("{}:{}", folder.path().display(), other.path().display());
    let mut command = recording.client("cold-start 1");
    command.env_remove("APEX_DRIVER").env("LD_LIBRARY_PATH", path);
    // The program itself asks the fake driver by the name in APEX_DRIVER, which is why it fails in
    // the end.
    let output = command.output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("APEX_DRIVER"), "the call itself went through");
    assert_eq!(recording.open().processes.len(), 1);
}

/// A driver that has two functions.
fn small_driver(folder: &std::path::Path) -> std::path::PathBuf {
    let (source, driver) = (folder.join("small.c"), folder.join("libcuda.so.1"));
    std::fs::write(
        &source,
        "int cuInit(unsigned f) { return 0; }\nint cuDriverGetVersion(int *v) { *v = 9000; return 0; }\n",
    )
    .unwrap();
    let made = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&driver, &source]).status().unwrap();
    assert!(made.success());
    driver
}

#[test]
fn what_the_driver_lacks_is_not_found() {
    let folder = tempfile::tempdir().unwrap();
    let recording = Recording::untimed();
    let mut command = recording.client("small-driver");
    assert_eq!(finished(command.env("APEX_DRIVER", small_driver(folder.path()))), "500 500 0 9000\n");
}

#[test]
fn a_session_that_cannot_be_written_is_said_once_and_harms_nothing() {
    let recording = Recording::untimed();
    let output =
        recording.client("launches 2 10").env("APEX_SESSION", "/nonexistent/session").output().unwrap();
    assert!(output.status.success());
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(message.contains("/nonexistent/session") && message.contains("not recorded"), "{message}");
}

#[test]
fn programs_that_open_the_other_name_get_the_same_library() {
    let recording = Recording::untimed();
    let mut command = recording.client("other-name");
    let preload = format!("{}:{}", library().display(), support::alias().display());
    finished(command.env("LD_PRELOAD", preload));
    assert_eq!(support::launches(&recording.process()).len(), 1);
}
