//! A follower of a session that goes on gives the same results as reading all of it.

use apex_live::{Follower, Snapshot};
use apex_profile::{Profile, Selection};
use apex_trace::Session;
use apex_trace::layout::{MemoryKind, flags};
use std::time::Duration;
use test_session::{LEGACY, Recording};

const SECOND: u64 = 1_000_000_000;

/// The window of a snapshot, read out of the whole session.
fn whole(snapshot: &Snapshot) -> Profile {
    let session = Session::open(&snapshot.session.dir).unwrap();
    let selection = Selection { window: Some(snapshot.window.clone()), processes: None };
    Profile::of_selection(&session, &selection)
}

#[test]
fn a_window_needs_no_more_than_the_recent_past() {
    let dir = tempfile::tempdir().unwrap();
    let mut recording = Recording::new(dir.path());
    let function = recording.function("usual");
    let usual = recording.config(function, 264, 256);
    let function = recording.function("rare");
    let rare = recording.config(function, 132, 128);
    recording.allocate(MemoryKind::Device, 0x1000, 1 << 20, 1_000);
    recording.allocate(MemoryKind::Device, 0x2000, 1 << 10, 1_000);
    recording.timed(rare, LEGACY, 50_000);
    recording.free(0x2000, 1_000);
    // Ten minutes, then a look, and ten seconds more.
    let step = |recording: &mut Recording| {
        let start = recording.launch(usual, LEGACY);
        recording.timing(usual, LEGACY, start, 20_000, flags::STREAM_WAS_IDLE);
        recording.launch(usual, LEGACY);
        recording.now += SECOND / 100;
    };
    (0..60_000).for_each(|_| step(&mut recording));
    // (This makes the process's clock what the recording takes it for.)
    test_session::open(&dir);
    let mut follower = Follower::new(dir.path(), Duration::from_secs(5));
    follower.look().unwrap();
    (0..1_000).for_each(|_| step(&mut recording));
    recording.launch(rare, LEGACY);
    recording.free(0x1000, 1_000);
    recording.exit();

    let snapshot = follower.look().unwrap();
    let whole = whole(&snapshot);
    let recent = &snapshot.profile;
    assert_eq!(snapshot.window.end - snapshot.window.start, 5 * SECOND);
    assert_eq!(recent.totals.launches, whole.totals.launches);
    assert_eq!(recent.memory, whole.memory, "what was allocated long ago is freed in the window");
    let accounts = |profile: &Profile| profile.activities[0].accounts.clone();
    assert_eq!(accounts(recent), accounts(&whole));
    // (Timings and definitions are records too, and calls alone are counted since the start.)
    let cost = |profile: &Profile| profile.recorder.overhead_share.as_ref().unwrap().value;
    assert!(cost(recent) > 0.6 * cost(&whole), "{} of {}", cost(recent), cost(&whole));
    let of = |profile: &Profile, name: &str| {
        let kernel = profile.kernels.iter().find(|kernel| kernel.short_name == name).unwrap();
        (kernel.launches, kernel.gpu.as_ref().map(|gpu| gpu.each.mean_ns))
    };
    for name in ["usual", "rare"] {
        assert_eq!(of(recent, name), of(&whole, name), "{name}");
    }
    let records = snapshot.session.processes[0].records_by_time().count();
    assert!(records < 40_000, "{records} of {}", snapshot.since_start.records);
    assert_eq!((snapshot.since_start.launches, snapshot.since_start.unread_bytes), (122_002, 0));
    assert!(snapshot.since_start.disk_bytes > 32 * snapshot.since_start.records);
}

#[test]
fn a_session_that_vanishes_is_an_error_and_one_that_comes_back_is_followed() {
    let dir = tempfile::tempdir().unwrap();
    let session = dir.path().join("session");
    std::fs::create_dir(&session).unwrap();
    let record = || {
        let mut recording = Recording::new(&session);
        let function = recording.function("f");
        let config = recording.config(function, 1, 32);
        recording.launch(config, LEGACY);
        recording.exit();
        test_session::open(&session);
    };
    record();
    let mut follower = Follower::new(&session, Duration::from_secs(5));
    assert_eq!(follower.look().unwrap().since_start.launches, 1);
    std::fs::remove_dir_all(&session).unwrap();
    assert!(follower.look().is_err());
    std::fs::create_dir(&session).unwrap();
    record();
    assert_eq!(follower.look().unwrap().profile.totals.launches, 1);
}
