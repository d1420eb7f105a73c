//! One session, looked at again and again.

use crate::processes::running;
use apex_profile::{Profile, Selection, origin_ns};
use apex_trace::{Error, Session};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Looks at one session again and again.
#[derive(Debug)]
pub struct Follower {
    dir: PathBuf,
    span: Duration,
}

/// A session at one moment.
#[derive(Debug)]
pub struct Snapshot {
    /// What was recorded up to now.
    pub session: Session,
    /// Identifiers of its processes that run, in ascending order; none of a session that has ended.
    pub running: Vec<u32>,
    /// The seconds that [`Self::profile`] is of, in nanoseconds since the session's start.
    pub window: Range<u64>,
    /// The last seconds.
    pub profile: Profile,
}

impl Follower {
    /// Will look at the session in `dir`: at its last `span`.
    pub fn new(dir: &Path, span: Duration) -> Self {
        Self { dir: dir.to_owned(), span }
    }

    /// The session's folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Looks.
    ///
    /// # Errors
    /// If there is no session any more, or one that can't be understood at all.
    pub fn look(&mut self) -> Result<Snapshot, Error> {
        let session = Session::open(&self.dir)?;
        let running = running(&session);
        let end = if running.is_empty() { last_ns(&session) } else { elapsed_ns(&session) };
        let span = u64::try_from(self.span.as_nanos()).unwrap_or(u64::MAX);
        let window = end.saturating_sub(span)..end;
        let selection = Selection { window: Some(window.clone()), processes: None };
        let profile = Profile::of_selection(&session, &selection);
        Ok(Snapshot { session, running, window, profile })
    }
}

/// From the start of a session to the end of its last call.
fn last_ns(session: &Session) -> u64 {
    let origin = origin_ns(session);
    let ends = session.processes.iter().filter_map(|process| {
        let (_, last) = process.span?;
        Some(process.clock.monotonic_ns(last).saturating_sub(origin))
    });
    // The window excludes its end, and what began with the last call counts.
    ends.max().map_or(0, |end| end + 1)
}

/// From the start of a session to this moment.
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
}
