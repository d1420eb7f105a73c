//! Follows one session while it is recorded.

use crate::processes::running;
use apex_machine::Machine;
use apex_profile::{Profile, Selection, origin_ns};
use apex_trace::{Error, Session, Watcher};
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

/// Looks at one session again and again.
///
/// What a look costs depends on what was recorded since the last one and in the window, not on the
/// length of the session (`docs/results/live.txt`): a [`Watcher`] keeps what it has read.
#[derive(Debug)]
pub struct Follower {
    watcher: Watcher,
    machine: apex_machine::Watcher,
    span: Duration,
    /// Bytes of records that a window of a session that runs may hold.
    most_bytes: u64,
    /// The start of the window of the last look, in nanoseconds since the session's start.
    began: u64,
}

/// Bytes of records that [`Follower::fresh`] lets a window hold: 200,000 launches, which take 0.1 s
/// to 0.2 s to read.
const FRESH_BYTES: u64 = 6_400_000;

/// Longer windows are read whole.
const LONGEST_FRESH: Duration = Duration::from_secs(10);

/// A session at one moment.
#[derive(Debug)]
pub struct Snapshot {
    /// The session up to now. Its records are those of the window, those of the recent past, and
    /// the older ones that they refer to ([`Watcher`] has the bounds).
    pub session: Session,
    /// Identifiers of its processes that run, in ascending order; none of a session that has ended.
    pub running: Vec<u32>,
    /// The seconds that [`Self::profile`] is of, in nanoseconds since the session's start.
    pub window: Range<u64>,
    /// The last seconds.
    ///
    /// Steps, what a kernel takes where a launch was not timed itself, and NVTX ranges come from
    /// the records that the session has: not from the whole run, as those of
    /// [`apex_profile::Selection`] do, but from the window and the recent past. The images of
    /// kernels are not read.
    pub profile: Profile,
    /// The state of the machine in the window, on its monotonic clock.
    pub machine: Machine,
    /// The sums since the session's start.
    pub since_start: SinceStart,
}

/// Counts since a session's start, of all its processes. They include what was overwritten after a
/// follower read it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SinceStart {
    /// Kernel launches that succeeded, without those that were captured into a graph.
    pub launches: u64,
    /// Graph launches that succeeded.
    pub graph_launches: u64,
    /// Records that were read.
    pub records: u64,
    /// Records that were lost: there was no space, or newer ones took their place.
    pub lost_records: u64,
    /// Disk space of the process files, bytes.
    pub disk_bytes: u64,
    /// Bytes of records that are not counted yet: the next looks go on with them. 0 once the counts
    /// are complete.
    pub unread_bytes: u64,
}

impl Follower {
    /// Will look at the session in `dir`: at its last `span`.
    pub fn new(dir: &Path, span: Duration) -> Self {
        let (watcher, machine) = (Watcher::new(dir), apex_machine::Watcher::new(dir));
        Self { watcher, machine, span, most_bytes: u64::MAX, began: 0 }
    }

    /// Will look at its last `span`, for somebody who watches it: up to 10 s are to be fresh rather
    /// than complete. Where a session that runs records more than 200,000 launches in them, a
    /// look is at the last 200,000, and takes no longer; [`Snapshot::window`] says which time
    /// that is.
    pub fn fresh(dir: &Path, span: Duration) -> Self {
        let most_bytes = if span <= LONGEST_FRESH { FRESH_BYTES } else { u64::MAX };
        Self { most_bytes, ..Self::new(dir, span) }
    }

    /// The span of a window, where nothing makes it shorter.
    pub fn span(&self) -> Duration {
        self.span
    }

    /// The session's folder.
    pub fn dir(&self) -> &Path {
        self.watcher.dir()
    }

    /// Looks.
    ///
    /// # Errors
    /// If there is no session any more, or one that can't be understood at all.
    pub fn look(&mut self) -> Result<Snapshot, Error> {
        let span = u64::try_from(self.span.as_nanos()).unwrap_or(u64::MAX);
        let (most_bytes, before) = (self.most_bytes, self.began);
        let snapshot = self.look_at(Duration::ZERO, |window_end, since| {
            let start = window_end.saturating_sub(span);
            // Records of before the last window may be forgotten.
            if most_bytes == u64::MAX {
                start
            } else {
                start.max(before).max(since(most_bytes)).min(window_end)
            }
        })?;
        self.began = snapshot.window.start;
        Ok(snapshot)
    }

    /// Looks at what began since a moment, nanoseconds since the session's start, in place of the
    /// last `span`. While the session runs the window ends `settles` before the present.
    ///
    /// # Errors
    /// As [`Self::look`].
    pub fn look_since(&mut self, start: u64, settles: Duration) -> Result<Snapshot, Error> {
        self.look_at(settles, |end, _| start.min(end))
    }

    /// Looks at the session from a moment that `start` chooses. If the session runs, `start` gets
    /// the end of the window, and a function that returns the moment since which a number of bytes
    /// of records was made.
    fn look_at(
        &mut self,
        settles: Duration,
        start: impl FnOnce(u64, &dyn Fn(u64) -> u64) -> u64,
    ) -> Result<Snapshot, Error> {
        let settles = u64::try_from(settles.as_nanos()).unwrap_or(u64::MAX);
        let (mut running_now, mut window) = (Vec::new(), 0..0);
        let session = self.watcher.look(|session, recent| {
            running_now = running(session);
            let end = match running_now.is_empty() {
                true => last_ns(session),
                false => elapsed_ns(session).saturating_sub(settles),
            };
            let (origin, runs) = (origin_ns(session), !running_now.is_empty());
            let since = |bytes| if runs { recent.since(bytes).saturating_sub(origin) } else { 0 };
            window = start(end, &since)..end;
            if window.start == 0 { 0 } else { origin.saturating_add(window.start) }
        })?;
        let selection = Selection { window: Some(window.clone()), processes: None };
        let profile = Profile::of_selection_without_images(&session, &selection);
        let since_start = SinceStart::of(&session);
        let [from, to] = [window.start, window.end].map(|at| origin_ns(&session).saturating_add(at));
        // A session that has ended was read until its program ended, after its last call.
        let to = if running_now.is_empty() { u64::MAX } else { to };
        let machine = self.machine.look().window(from, to);
        Ok(Snapshot { session, running: running_now, window, profile, machine, since_start })
    }
}

impl SinceStart {
    fn of(session: &Session) -> Self {
        let mut sums = Self::default();
        for process in &session.processes {
            sums.launches += process.totals.launches;
            sums.graph_launches += process.totals.graph_launches;
            sums.records += process.record_count;
            sums.lost_records =
                sums.lost_records.saturating_add(process.dropped).saturating_add(process.overwritten);
            sums.disk_bytes = sums.disk_bytes.saturating_add(process.disk_bytes);
            sums.unread_bytes = sums.unread_bytes.saturating_add(process.totals.unread_bytes);
        }
        sums
    }
}

/// Returns the time from the start of a session to the end of its last call, in nanoseconds.
fn last_ns(session: &Session) -> u64 {
    let origin = origin_ns(session);
    let ends = session.processes.iter().filter_map(|process| {
        let (_, last) = process.span?;
        Some(process.clock.monotonic_ns(last).saturating_sub(origin))
    });
    // The window excludes its end, and what began with the last call counts.
    ends.max().map_or(0, |end| end + 1)
}

/// Returns the time from the start of a session to this moment, in nanoseconds.
fn elapsed_ns(session: &Session) -> u64 {
    if session.processes.is_empty() {
        return 0;
    }
    monotonic_now_ns().saturating_sub(origin_ns(session))
}

/// The machine's monotonic clock, which the clocks of all sessions are joined to.
fn monotonic_now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills the structure that it is given, and only that.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_seconds_of_a_session_that_has_ended_are_those_before_its_last_record() {
        let dir = tempfile::tempdir().unwrap();
        let mut recording = test_session::Recording::new(dir.path());
        let function = recording.function("early");
        let early = recording.config(function, 1, 32);
        let function = recording.function("late");
        let late = recording.config(function, 2, 64);
        for _ in 0..3 {
            recording.launch(early, test_session::LEGACY);
        }
        recording.now += 10_000_000_000;
        for _ in 0..5 {
            recording.launch(late, test_session::LEGACY);
        }
        recording.exit();
        test_session::open(&dir);
        let snapshot = Follower::new(dir.path(), Duration::from_secs(5)).look().unwrap();
        assert!(snapshot.running.is_empty());
        assert_eq!(snapshot.profile.totals.launches, 5);
        let snapshot = Follower::new(dir.path(), Duration::from_secs(60)).look().unwrap();
        assert_eq!((snapshot.profile.totals.launches, snapshot.window.start), (8, 0));
    }

    #[test]
    fn a_folder_without_a_session_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Follower::new(&dir.path().join("none"), Duration::from_secs(1)).look().is_err());
    }

    /// A span that no test reaches, however slow the machine is.
    const HOUR: Duration = Duration::from_secs(3600);

    /// A recording of this process that has made a thousand launches, 5 µs each, in the 20 ms that
    /// have passed since.
    fn running_recording(dir: &Path) -> (test_session::Recording, u32) {
        let mut recording = test_session::Recording::new(dir);
        let function = recording.function("f");
        let config = recording.config(function, 1, 32);
        launch(&mut recording, config, 1000, 1_000);
        test_session::open(dir);
        std::thread::sleep(Duration::from_millis(20));
        (recording, config)
    }

    fn launch(recording: &mut test_session::Recording, config: u32, times: u64, gap: u64) {
        for _ in 0..times {
            recording.launch(config, test_session::LEGACY);
            recording.now += gap;
        }
    }

    #[test]
    fn a_fresh_window_holds_so_many_records_and_never_goes_back() {
        let dir = tempfile::tempdir().unwrap();
        let (mut recording, config) = running_recording(dir.path());
        let mut fresh = Follower { most_bytes: 100 * 32, ..Follower::new(dir.path(), HOUR) };
        let first = fresh.look().unwrap();
        assert_eq!(first.running, [std::process::id()], "this process records it");
        assert!((90..=100).contains(&first.profile.totals.launches), "{}", first.profile.totals.launches);
        launch(&mut recording, config, 10, 100_000);
        let next = fresh.look().unwrap();
        assert!(next.window.start > first.window.start);
        // The last 500 launches began earlier, and some of them are forgotten.
        fresh.most_bytes = 500 * 32;
        assert_eq!(fresh.look().unwrap().window.start, next.window.start);
        let mut whole = Follower { most_bytes: FRESH_BYTES, ..Follower::new(dir.path(), HOUR) };
        assert_eq!(whole.look().unwrap().profile.totals.launches, 1010, "so few are read whole");
    }

    #[test]
    fn windows_of_up_to_ten_seconds_are_fresh() {
        let most_bytes = |span| {
            let follower = Follower::fresh(Path::new("s"), span);
            assert_eq!((follower.span(), follower.dir()), (span, Path::new("s")));
            follower.most_bytes
        };
        assert_eq!(most_bytes(Duration::from_secs(10)), 200_000 * 32);
        assert_eq!(most_bytes(Duration::from_nanos(10_000_000_001)), u64::MAX);
        assert_eq!(Follower::new(Path::new("s"), Duration::from_secs(1)).most_bytes, u64::MAX);
    }

    #[test]
    fn the_window_of_a_session_that_runs_ends_now() {
        let dir = tempfile::tempdir().unwrap();
        let started = std::time::Instant::now();
        let recording = running_recording(dir.path());
        let made = std::time::Instant::now();
        let mut follower = Follower::new(dir.path(), HOUR);
        let least = made.elapsed().as_nanos();
        let window = follower.look().unwrap().window;
        let most = started.elapsed().as_nanos();
        assert_eq!(window.start, 0);
        assert!((least..=most).contains(&u128::from(window.end)), "{least} {} {most}", window.end);
        // It may end earlier, and begin at its end at the latest.
        assert_eq!(follower.look_since(0, HOUR).unwrap().window, 0..0);
        let future = follower.look_since(u64::MAX, Duration::ZERO).unwrap().window;
        assert!(future.is_empty() && future.start >= window.end, "{future:?}");
        let settled = follower.look_since(7_000, Duration::from_millis(1)).unwrap();
        assert_eq!(settled.window.start, 7_000);
        // Launches begin at 1,000 ns, 5,000 ns apart: the first two are earlier.
        assert_eq!(settled.profile.totals.launches, 998);
        drop(recording);
    }

    /// Adds what the machine did in these milliseconds since the session's start.
    fn machine_records(dir: &Path, origin_ns: u64, spans: &[Range<u64>]) {
        let mut text = "{\"schema\":\"apex.machine/1\"}\n".to_owned();
        for Range { start, end } in spans {
            let [from, to] = [start, end].map(|ms| origin_ns + ms * 1_000_000);
            text += &format!("{{\"record\":{{\"from_ns\":{from},\"to_ns\":{to}}}}}\n");
        }
        std::fs::write(dir.join(apex_machine::FILE), text).unwrap();
    }

    #[test]
    fn the_window_of_a_session_that_has_ended_ends_with_its_last_call() {
        let dir = tempfile::tempdir().unwrap();
        let mut recording = test_session::Recording::new(dir.path());
        let function = recording.function("f");
        let config = recording.config(function, 1, 32);
        launch(&mut recording, config, 2, 10_000_000);
        recording.launch(config, test_session::LEGACY);
        // The end is excluded.
        let end = recording.now + 1;
        recording.exit();
        let session = test_session::open(&dir);
        machine_records(dir.path(), origin_ns(&session), &[0..4, 8..12, 16..19, 30..40]);
        let mut follower = Follower::new(dir.path(), Duration::from_millis(15));
        let snapshot = follower.look().unwrap();
        assert_eq!(snapshot.window, end - 15_000_000..end);
        assert_eq!(snapshot.profile.totals.launches, 2);
        // The program goes on after its last call.
        assert_eq!(snapshot.machine.records.len(), 3, "{:?}", snapshot.machine.records);
        // Nothing is left to settle.
        assert_eq!(follower.look_since(9_000, HOUR).unwrap().window, 9_000..end);
        assert_eq!(follower.look_since(u64::MAX, HOUR).unwrap().window, end..end);
    }

    #[test]
    fn while_a_session_runs_its_machine_is_that_of_the_window() {
        let dir = tempfile::tempdir().unwrap();
        let (recording, _) = running_recording(dir.path());
        let hour_ms = 3_600_000;
        let session = Session::open(dir.path()).unwrap();
        machine_records(dir.path(), origin_ns(&session), &[0..1, 4..5, hour_ms..hour_ms + 1]);
        let mut follower = Follower::new(dir.path(), HOUR);
        let records = |snapshot: Snapshot| snapshot.machine.records.len();
        assert_eq!(records(follower.look().unwrap()), 2);
        assert_eq!(records(follower.look_since(2_000_000, Duration::ZERO).unwrap()), 1);
        drop(recording);
    }

    #[test]
    fn counts_since_the_start_are_sums_over_processes() {
        let session = |launches: u64, graphs: u64| {
            let dir = tempfile::tempdir().unwrap();
            let mut recording = test_session::Recording::new(dir.path());
            let function = recording.function("f");
            let config = recording.config(function, 1, 32);
            launch(&mut recording, config, launches, 0);
            recording.launch_with(config, test_session::LEGACY, 0, 1);
            (0..graphs).for_each(|_| _ = recording.graph_launch(1, test_session::LEGACY));
            recording.synchronise(test_session::LEGACY, 1_000);
            recording.exit();
            test_session::open(&dir)
        };
        let (mut both, mut other) = (session(5, 2), session(7, 4));
        both.processes.append(&mut other.processes);
        for (process, factor) in both.processes.iter_mut().zip([1, 10]) {
            process.dropped = 2 * factor;
            process.overwritten = 3 * factor;
            process.disk_bytes = 5 * factor;
            process.totals.unread_bytes = 7 * factor;
        }
        let expected = SinceStart {
            launches: 12,
            graph_launches: 6,
            // One launch that failed and one other call in each.
            records: 22,
            lost_records: 55,
            disk_bytes: 55,
            unread_bytes: 77,
        };
        assert_eq!(SinceStart::of(&both), expected);
        both.processes[0].dropped = u64::MAX;
        assert_eq!(SinceStart::of(&both).lost_records, u64::MAX);
    }
}
