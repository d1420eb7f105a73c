//! Sessions that were read, shared by all viewers.

use crate::parameters::ViewParameters;
use crate::problem::Problem;
use crate::reading::{Kernels, Reader, Reading};
use crate::sessions::{Known, State, fingerprint};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of cached views; a view is a part of a session.
pub const MOST_VIEWS: usize = 12;

/// When a running session is read again.
pub(crate) struct Pace {
    /// After this age.
    pub fresh: Duration,
    /// And after this multiple of the time that reading took, so that the dashboard does not slow
    /// the program down.
    pub rest: u32,
}

/// A whole session gets longer and longer.
pub(crate) const WHOLE: Pace = Pace { fresh: Duration::from_millis(800), rest: 9 };
/// Reading the last seconds takes the same each time. Where it takes up to 200 ms, what is shown is
/// replaced before it is a second old.
const LAST: Pace = Pace { fresh: Duration::from_millis(450), rest: 3 };

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
#[derive(Default)]
pub struct Views {
    /// The one that was looked at last comes last.
    kept: Mutex<Vec<Arc<View>>>,
}

/// A part of a session, with what was read of it.
struct View {
    id: String,
    wanted: ViewParameters,
    shown: Mutex<Shown>,
    /// The kernels that were read last, and when: questions about them do not wait while the
    /// session is read again.
    kernels: Mutex<Option<(Instant, Arc<Kernels>)>>,
}

struct Shown {
    reader: Reader,
    last: Option<Last>,
}

/// What was read last.
struct Last {
    at: Instant,
    took: Duration,
    fingerprint: Option<u64>,
    result: Result<Looked, Problem>,
}

impl Views {
    /// The view of this part of a session; it replaces the least recently used one if there are too
    /// many.
    fn of(&self, known: &Known, wanted: &ViewParameters) -> Arc<View> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let place = kept.iter().position(|view| view.id == known.id && view.wanted == *wanted);
        let view = match place {
            Some(place) => kept.remove(place),
            None => {
                let shown = Mutex::new(Shown { reader: Reader::new(&known.dir, wanted), last: None });
                let kernels = Mutex::default();
                Arc::new(View { id: known.id.clone(), wanted: wanted.clone(), shown, kernels })
            }
        };
        kept.push(Arc::clone(&view));
        if kept.len() > MOST_VIEWS {
            kept.remove(0);
        }
        view
    }

    /// Reads a part of a session. Concurrent calls for the same part wait, and get the same result.
    ///
    /// # Errors
    /// Why there is no document.
    pub fn look(&self, known: &Known, wanted: &ViewParameters) -> Result<Looked, Problem> {
        let view = self.of(known, wanted);
        let mut shown = view.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let now = fingerprint(&known.dir);
        if let Some(last) = shown.last.as_ref().filter(|last| last.is_good(now, wanted)) {
            return last.result.clone();
        }
        let started = Instant::now();
        let read = match now {
            Some(_) => shown.reader.read(),
            None => Err(Problem::Deleted(known.gone())),
        };
        let result = read.map(|Reading { document, running, kernels }| Looked {
            state: state(&running, now, shown.last.as_ref()),
            running,
            document: document.into(),
            kernels,
        });
        if let Ok(looked) = &result {
            *view.kernels() = Some((Instant::now(), Arc::clone(&looked.kernels)));
        }
        let took = started.elapsed();
        shown.last = Some(Last { at: Instant::now(), took, fingerprint: now, result: result.clone() });
        result
    }
}

impl Views {
    /// The kernels of a part of a session, as they were read a moment ago, or are read now.
    ///
    /// # Errors
    /// Why nothing was read.
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
    fn kernels(&self) -> MutexGuard<'_, Option<(Instant, Arc<Kernels>)>> {
        self.kernels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Last {
    /// Whether it is still valid.
    fn is_good(&self, fingerprint: Option<u64>, wanted: &ViewParameters) -> bool {
        let age = self.at.elapsed();
        let has_ended = matches!(&self.result, Ok(looked) if looked.state == State::Ended);
        if has_ended && self.fingerprint == fingerprint {
            return true;
        }
        let Pace { fresh, rest } = if wanted.last.is_some() { LAST } else { WHOLE };
        age < fresh || age < self.took * rest
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

    #[test]
    fn what_does_not_change_is_read_once_for_all_who_look() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().to_owned();
        let record = || {
            let mut recording = Recording::new(&dir);
            let kernel = recording.function("scale");
            let kernel = recording.config(kernel, 64, 256);
            recording.timed(kernel, LEGACY, 20_000);
            recording.exit();
            test_session::open(&dir);
        };
        record();
        let found = dir.clone();
        let known = Sessions::new(move || vec![found.clone()]).list().remove(0);
        let (views, wanted) = (Views::default(), ViewParameters::default());
        let first = views.look(&known, &wanted).unwrap();
        let again = views.look(&known, &wanted).unwrap();
        assert!(Arc::ptr_eq(&first.document, &again.document));
        assert!(Arc::ptr_eq(&first.kernels, &views.kernels(&known, &wanted).unwrap()));
        record();
        while Arc::ptr_eq(&first.document, &views.look(&known, &wanted).unwrap().document) {
            std::thread::yield_now();
        }
    }
}
