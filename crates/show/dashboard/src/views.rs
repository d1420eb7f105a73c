//! Sessions that were read, shared by all viewers.
//!
//! A part that an event stream shows is held: it stays, however many others are asked for, so that
//! an ended session is read once for each part. Of the other parts, the last few are kept.
//! Readings take turns ([`crate::turns`]). A stream does not wait for its turn, and it asks again.

use crate::parameters::ViewParameters;
use crate::problem::Problem;
use crate::reading::{Kernels, Reader, Reading};
use crate::sessions::{Known, State, fingerprint};
use crate::turns::{Turn, Turns};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// Maximum number of cached views that no event stream holds; a view is a part of a session.
pub const MOST_VIEWS: usize = 12;

/// Views that are read at the same time.
const READINGS: usize = 2;

/// The times at which a running session is read again.
pub(crate) struct Pace {
    /// After this age.
    pub fresh: Duration,
    /// And after this multiple of the time that reading took, so that the dashboard does not slow
    /// the program down.
    pub rest: u32,
}

impl Pace {
    /// Age at which what was read is read again, where so many views take turns: all of them
    /// together read for as long as one would alone.
    pub fn longest(&self, took: Duration, views: u32) -> Duration {
        let Self { fresh, rest } = self;
        took.saturating_mul((rest + 1).saturating_mul(views.max(1)) - 1).max(*fresh)
    }
}

/// A whole session gets longer and longer.
pub(crate) const WHOLE: Pace = Pace { fresh: Duration::from_millis(800), rest: 9 };
/// Reading the last seconds takes the same each time. Where it takes up to 200 ms, what is shown is
/// replaced before it is a second old.
const LAST: Pace = Pace { fresh: Duration::from_millis(450), rest: 3 };

/// Time between two looks at whether the files of a session that has ended have changed.
const ENDED: Duration = Duration::from_secs(1);

/// Maximum age of kernels for questions about them.
const RECENT: Duration = Duration::from_secs(10);

/// A document, and the state of its session.
#[derive(Clone, Debug)]
pub struct Looked {
    /// The state of the session.
    pub state: State,
    /// Processes that record it.
    pub running: Vec<u32>,
    /// The document; the same one as before if nothing was read since.
    pub document: Arc<str>,
    /// Its kernels.
    pub kernels: Arc<Kernels>,
}

/// All views.
pub struct Views {
    /// The one that was looked at last comes last.
    kept: Mutex<Vec<Arc<View>>>,
    turns: Turns,
}

impl Default for Views {
    fn default() -> Self {
        Self { kept: Mutex::default(), turns: Turns::new(READINGS) }
    }
}

/// A part of a session, with what was read of it. It is kept as long as somebody holds it.
pub struct View {
    known: Known,
    wanted: ViewParameters,
    /// Whether reading it again may give something else.
    changes: AtomicBool,
    open: Mutex<Open>,
    /// The kernels that were read last, and when: questions about them do not wait while the
    /// session is read again.
    kernels: Mutex<Option<(Instant, Arc<Kernels>)>>,
}

/// A session as a view has it open.
struct Open {
    reader: Reader,
    last: Option<Last>,
}

/// The last reading.
struct Last {
    at: Instant,
    took: Duration,
    fingerprint: Option<u64>,
    /// Whether it is the same as long as the fingerprint is.
    rests: bool,
    result: Result<Looked, Problem>,
}

impl Views {
    /// The view of this part of a session; it replaces the least recently used ones that nobody
    /// holds if there are too many.
    pub fn of(&self, known: &Known, wanted: &ViewParameters) -> Arc<View> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let place = kept.iter().position(|view| view.known.id == known.id && view.wanted == *wanted);
        let view = match place {
            Some(place) => kept.remove(place),
            None => Arc::new(View::new(known, wanted)),
        };
        let is_held = |view: &Arc<View>| Arc::strong_count(view) > 1;
        let others = MOST_VIEWS - usize::from(Arc::strong_count(&view) == 1);
        let mut excess = kept.iter().filter(|view| !is_held(view)).count().saturating_sub(others);
        kept.retain(|view| {
            let stays = is_held(view) || excess == 0;
            excess -= usize::from(!stays);
            stays
        });
        kept.push(Arc::clone(&view));
        view
    }

    /// Returns the number of views that may be read again, which share the time for that.
    fn changing(&self) -> u32 {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let is_shown = |view: &&Arc<View>| Arc::strong_count(view) > 1;
        kept.iter().filter(is_shown).filter(|view| view.changes.load(Ordering::Relaxed)).count() as u32
    }

    /// Reads a part of a session. Concurrent calls for the same part wait, and get the same result.
    ///
    /// # Errors
    /// The reason why there is no document.
    pub fn look(&self, known: &Known, wanted: &ViewParameters) -> Result<Looked, Problem> {
        let view = self.of(known, wanted);
        let open = view.open.lock().unwrap_or_else(PoisonError::into_inner);
        match self.last(&view, &open) {
            Ok(result) => result,
            Err(now) => view.read(open, now, self.turns.take()),
        }
    }

    /// The same of a view that is held, for somebody who asks again soon; `None` if it would have
    /// to wait for others.
    pub fn look_if_free(&self, view: &View) -> Option<Result<Looked, Problem>> {
        let open = match view.open.try_lock() {
            Ok(open) => open,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        match self.last(view, &open) {
            Ok(result) => Some(result),
            Err(now) => Some(view.read(open, now, self.turns.try_take()?)),
        }
    }

    /// How long what a view shows stays as it is, for somebody who has just looked at it. It may be
    /// read again then.
    pub fn pause(&self, view: &View) -> Duration {
        // (Somebody may read it.)
        let Ok(open) = view.open.try_lock() else { return Duration::ZERO };
        match &open.last {
            Some(last) if last.rests => ENDED,
            Some(last) => last.stays(&view.wanted, self.changing()),
            None => Duration::ZERO,
        }
    }

    /// What was read last, if it is still valid; else what the session's files are like now. (What
    /// is fresh is valid whatever the files are like, so that nobody looks at them.)
    fn last(&self, view: &View, open: &Open) -> Result<Result<Looked, Problem>, Option<u64>> {
        let result = |last: &Last| Ok(last.result.clone());
        let last = open.last.as_ref();
        if let Some(last) = last.filter(|last| !last.stays(&view.wanted, self.changing()).is_zero()) {
            return result(last);
        }
        let now = fingerprint(&view.known.dir);
        last.filter(|last| last.rests && last.fingerprint == now).map_or(Err(now), result)
    }
}

impl Views {
    /// The kernels of a part of a session, as they were read a moment ago, or are read now.
    ///
    /// # Errors
    /// The reason why nothing was read.
    pub fn kernels(&self, known: &Known, wanted: &ViewParameters) -> Result<Arc<Kernels>, Problem> {
        let view = self.of(known, wanted);
        let read = view.kernels().clone().filter(|(at, _)| at.elapsed() < RECENT);
        match read {
            Some((_, kernels)) => Ok(kernels),
            None => self.look(known, wanted).map(|looked| looked.kernels),
        }
    }
}

impl View {
    fn new(known: &Known, wanted: &ViewParameters) -> Self {
        Self {
            known: known.clone(),
            wanted: wanted.clone(),
            changes: AtomicBool::new(true),
            open: Mutex::new(Open { reader: Reader::new(&known.dir, wanted), last: None }),
            kernels: Mutex::default(),
        }
    }

    /// Reads it; `now` is the fingerprint of its session.
    fn read(
        &self,
        mut open: MutexGuard<'_, Open>,
        now: Option<u64>,
        turn: Turn<'_>,
    ) -> Result<Looked, Problem> {
        let started = Instant::now();
        let read = match now {
            Some(_) => open.reader.read(),
            None => Err(Problem::Deleted(self.known.gone())),
        };
        let (took, at) = (started.elapsed(), Instant::now());
        drop(turn);
        let has_ended = open.reader.has_ended();
        let result = read.map(|Reading { document, running, kernels }| Looked {
            state: state(&running, now, open.last.as_ref()),
            running,
            document: document.into(),
            kernels,
        });
        if let Ok(looked) = &result {
            *self.kernels() = Some((at, Arc::clone(&looked.kernels)));
        }
        let rests = match &result {
            Ok(looked) => looked.state == State::Ended,
            // (There is no such part of it, and there will be none.)
            Err(_) => has_ended,
        };
        self.changes.store(!rests, Ordering::Relaxed);
        open.last = Some(Last { at, took, fingerprint: now, rests, result: result.clone() });
        result
    }

    fn kernels(&self) -> MutexGuard<'_, Option<(Instant, Arc<Kernels>)>> {
        self.kernels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Last {
    /// Time for which it stays fresh from now on, where so many views are read again.
    fn stays(&self, wanted: &ViewParameters, views: u32) -> Duration {
        let pace = if wanted.last.is_some() { LAST } else { WHOLE };
        pace.longest(self.took, views).saturating_sub(self.at.elapsed())
    }
}

/// The state of a session that was just read.
fn state(running: &[u32], now: Option<u64>, last: Option<&Last>) -> State {
    // What has changed since a process was seen to run was written by that.
    let ended = last.filter(|last| !matches!(&last.result, Ok(looked) if looked.state == State::Running));
    match ended {
        _ if !running.is_empty() => State::Running,
        Some(last) if last.fingerprint != now => State::Growing,
        _ => State::Ended,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sessions::Sessions;
    use test_session::{LEGACY, Recording};

    /// A session that has ended.
    fn record(dir: &std::path::Path) {
        let mut recording = Recording::new(dir);
        let kernel = recording.function("scale");
        let kernel = recording.config(kernel, 64, 256);
        recording.timed(kernel, LEGACY, 20_000);
        recording.exit();
        test_session::open(dir);
    }

    fn known(dir: &std::path::Path) -> Known {
        let found = dir.to_owned();
        Sessions::new(move || vec![found.clone()]).list().remove(0)
    }

    /// A part of a session: its first seconds.
    fn part(seconds: usize) -> ViewParameters {
        let window = format!("0s..{seconds}s");
        let filters = apex_view::Filters::of_words(None, &[], Some(&window), None).unwrap();
        ViewParameters { last: None, filters }
    }

    #[test]
    fn parts_that_streams_show_are_read_once_however_many_they_are() {
        let folder = tempfile::tempdir().unwrap();
        record(folder.path());
        let (views, known) = (Views::default(), known(folder.path()));
        let held: Vec<Arc<View>> =
            (1..=3 * MOST_VIEWS).map(|seconds| views.of(&known, &part(seconds))).collect();
        let look = |view: &Arc<View>| views.look_if_free(view).unwrap().unwrap().document;
        let first: Vec<Arc<str>> = held.iter().map(look).collect();
        // Others come and go.
        for seconds in 1000..1000 + 2 * MOST_VIEWS {
            views.look(&known, &part(seconds)).unwrap();
        }
        let again: Vec<Arc<str>> = held.iter().map(look).collect();
        assert!(first.iter().zip(&again).all(|(first, again)| Arc::ptr_eq(first, again)));
        let by_request = views.look(&known, &part(1)).unwrap().document;
        assert!(Arc::ptr_eq(&first[0], &by_request), "a request shares what a stream shows");
        assert_eq!(views.kept.lock().unwrap().len(), held.len() + MOST_VIEWS);
        assert_eq!(views.changing(), 0);
        drop(held);
        views.of(&known, &part(5000));
        assert_eq!(views.kept.lock().unwrap().len(), MOST_VIEWS, "what nobody holds any more goes");
    }

    #[test]
    fn a_part_that_an_ended_session_does_not_have_is_looked_for_once() {
        let folder = tempfile::tempdir().unwrap();
        record(folder.path());
        let (views, known) = (Views::default(), known(folder.path()));
        let filters = apex_view::Filters::of_words(None, &["no such kernel".to_owned()], None, None).unwrap();
        let view = views.of(&known, &ViewParameters { last: None, filters });
        let read_at = || view.open.lock().unwrap().last.as_ref().map(|last| (last.at, last.rests));
        assert!(matches!(views.look_if_free(&view), Some(Err(Problem::Empty(_)))));
        let first = read_at();
        assert!(first.is_some_and(|(_, rests)| rests));
        assert!(matches!(views.look_if_free(&view), Some(Err(Problem::Empty(_)))));
        assert_eq!(read_at(), first);
    }

    #[test]
    fn a_stream_does_not_wait_for_readings() {
        let folder = tempfile::tempdir().unwrap();
        record(folder.path());
        let (views, known) = (Views::default(), known(folder.path()));
        let view = views.of(&known, &part(1));
        let turns: Vec<Turn<'_>> = (0..READINGS).map(|_| views.turns.take()).collect();
        assert!(views.look_if_free(&view).is_none());
        drop(turns);
        let reads = view.open.lock().unwrap();
        assert!(views.look_if_free(&view).is_none(), "somebody reads it");
        drop(reads);
        assert!(views.look_if_free(&view).is_some());
    }

    #[test]
    fn many_parts_of_a_session_that_runs_are_read_as_seldom_as_one() {
        let took = Duration::from_secs(1);
        for views in 1..40u32 {
            // From the end of a reading to the end of the next one.
            let rest = WHOLE.longest(took, views);
            let share = f64::from(views) * took.as_secs_f64() / (rest + took).as_secs_f64();
            assert!((0.099..=0.1001).contains(&share), "{views} views take {share} of the time");
        }
        assert_eq!(WHOLE.longest(Duration::ZERO, 1), Duration::from_millis(800));
        assert_eq!(LAST.longest(Duration::ZERO, 40), Duration::from_millis(450));
        // Of the last seconds, a quarter.
        assert_eq!(LAST.longest(took, 0), 3 * took);
        assert_eq!(LAST.longest(took, 2), 7 * took);
    }

    #[test]
    fn a_stream_knows_how_long_nothing_changes() {
        let folder = tempfile::tempdir().unwrap();
        record(folder.path());
        let (views, known) = (Views::default(), known(folder.path()));
        let view = views.of(&known, &part(1));
        assert_eq!(views.pause(&view), Duration::ZERO, "it was not read yet");
        views.look_if_free(&view).unwrap().unwrap();
        assert_eq!(views.pause(&view), Duration::from_secs(1), "the session has ended");
        // As if the session ran, and as if reading took long.
        let change = |change: fn(&mut Last)| change(view.open.lock().unwrap().last.as_mut().unwrap());
        change(|last| (last.rests, last.took, last.at) = (false, Duration::from_secs(3600), Instant::now()));
        assert!(views.pause(&view) > Duration::from_secs(8 * 3600));
        // What is fresh is shown, whatever has become of the files.
        std::fs::remove_dir_all(folder.path()).unwrap();
        assert!(views.look_if_free(&view).unwrap().is_ok());
        change(|last| last.took = Duration::ZERO);
        change(|last| last.at = last.at.checked_sub(Duration::from_secs(1)).unwrap_or(last.at));
        while views.look_if_free(&view).unwrap().is_ok() {
            std::thread::yield_now();
        }
        let reads = view.open.lock().unwrap();
        assert_eq!(views.pause(&view), Duration::ZERO, "somebody reads it");
        drop(reads);
    }

    #[test]
    fn what_does_not_change_is_read_once_for_all_who_look() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().to_owned();
        record(&dir);
        let known = known(&dir);
        let (views, wanted) = (Views::default(), ViewParameters::default());
        let first = views.look(&known, &wanted).unwrap();
        let again = views.look(&known, &wanted).unwrap();
        assert!(Arc::ptr_eq(&first.document, &again.document));
        assert!(Arc::ptr_eq(&first.kernels, &views.kernels(&known, &wanted).unwrap()));
        record(&dir);
        while Arc::ptr_eq(&first.document, &views.look(&known, &wanted).unwrap().document) {
            std::thread::yield_now();
        }
    }
}
