//! What was read of sessions, shared by all who look at it.

use crate::sessions::{Known, State, fingerprint};
use crate::wanted::Wanted;
use crate::what_if::Kernels;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Views that are kept: parts of sessions that somebody looks at, or has looked at.
pub const MOST_VIEWS: usize = 12;

/// When what was read of a session that runs is read again.
pub(crate) struct Pace {
    /// Once it is so old.
    pub fresh: Duration,
    /// And after so many times of what reading it took: the program needs the machine more than who
    /// looks at it.
    pub rest: u32,
}

/// A whole session gets longer and longer.
pub(crate) const WHOLE: Pace = Pace { fresh: Duration::from_millis(800), rest: 9 };
/// Reading the last seconds takes the same each time. Where it takes up to 200 ms, what is shown is
/// replaced before it is a second old.
const LAST: Pace = Pace { fresh: Duration::from_millis(450), rest: 3 };

/// Kernels that were read so long ago are good enough to be asked about.
const RECENT: Duration = Duration::from_secs(10);

/// Makes documents of sessions.
pub trait Reports: Send + Sync {
    /// Whether what is wanted makes sense, whatever a session holds.
    ///
    /// # Errors
    /// Says what makes none.
    fn check(&self, wanted: &Wanted) -> Result<(), String>;

    /// Will read a part of the session in a folder.
    fn open(&self, dir: &Path, wanted: &Wanted) -> Box<dyn Reader>;

    /// Compares the same part of the sessions in folders: runs before a change and after it. What
    /// it returns is JSON.
    ///
    /// # Errors
    /// If one cannot be read, or if none has such a part.
    fn compare(&self, before: &[PathBuf], after: &[PathBuf], wanted: &Wanted) -> Result<String, Problem>;
}

/// Reads a part of a session, again and again.
pub trait Reader: Send {
    /// Reads it.
    ///
    /// # Errors
    /// If it cannot be read, or if there is no such part.
    fn read(&mut self) -> Result<Reading, Problem>;
}

/// What was read of a session.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The document, as JSON.
    pub document: String,
    /// Identifiers of processes that record it.
    pub running: Vec<u32>,
    /// The kernels of the document.
    pub kernels: Arc<dyn Kernels>,
}

/// Why there is no document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The session has no such part, or not yet.
    Empty(String),
    /// The session cannot be read.
    Unreadable(String),
    /// The session is gone.
    Deleted(String),
}

/// A document, and how its session is.
#[derive(Clone, Debug)]
pub struct Looked {
    /// How the session is.
    pub state: State,
    /// Processes that record it.
    pub running: Vec<u32>,
    /// The document; the same one as before if nothing was read since.
    pub document: Arc<str>,
    /// Its kernels.
    pub kernels: Arc<dyn Kernels>,
}

/// All views.
pub struct Views {
    reports: Box<dyn Reports>,
    /// The one that was looked at last comes last.
    kept: Mutex<Vec<Arc<View>>>,
}

/// A part of a session that somebody looks at.
struct View {
    id: String,
    wanted: Wanted,
    shown: Mutex<Shown>,
    /// The kernels that were read last, and when: whoever asks about one does not wait while the
    /// session is read again.
    kernels: Mutex<Option<(Instant, Arc<dyn Kernels>)>>,
}

struct Shown {
    reader: Box<dyn Reader>,
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
    pub fn new(reports: Box<dyn Reports>) -> Self {
        Self { reports, kept: Mutex::default() }
    }

    /// Makes the documents.
    pub fn reports(&self) -> &dyn Reports {
        &*self.reports
    }

    /// As [`Reports::check`].
    pub fn check(&self, wanted: &Wanted) -> Result<(), String> {
        self.reports.check(wanted)
    }

    /// The view of this part of a session; the one that nobody has looked at for longest makes
    /// room.
    fn of(&self, known: &Known, wanted: &Wanted) -> Arc<View> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let place = kept.iter().position(|view| view.id == known.id && view.wanted == *wanted);
        let view = match place {
            Some(place) => kept.remove(place),
            None => {
                let shown = Mutex::new(Shown { reader: self.reports.open(&known.dir, wanted), last: None });
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

    /// Looks at a part of a session. Who looks at the same part meanwhile waits, and gets the same.
    ///
    /// # Errors
    /// Why there is no document.
    pub fn look(&self, known: &Known, wanted: &Wanted) -> Result<Looked, Problem> {
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
    pub fn kernels(&self, known: &Known, wanted: &Wanted) -> Result<Arc<dyn Kernels>, Problem> {
        let view = self.of(known, wanted);
        let read = view.kernels().clone().filter(|(at, _)| at.elapsed() < RECENT);
        match read {
            Some((_, kernels)) => Ok(kernels),
            None => self.look(known, wanted).map(|looked| looked.kernels),
        }
    }
}

impl View {
    fn kernels(&self) -> MutexGuard<'_, Option<(Instant, Arc<dyn Kernels>)>> {
        self.kernels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Last {
    /// Whether it needs not be read again.
    fn is_good(&self, fingerprint: Option<u64>, wanted: &Wanted) -> bool {
        let age = self.at.elapsed();
        let has_ended = matches!(&self.result, Ok(looked) if looked.state == State::Ended);
        if has_ended && self.fingerprint == fingerprint {
            return true;
        }
        let Pace { fresh, rest } = if wanted.last.is_some() { LAST } else { WHOLE };
        age < fresh || age < self.took * rest
    }
}

/// How a session is that was just read.
fn state(running: &[u32], now: Option<u64>, last: Option<&Last>) -> State {
    // What has changed since a process was seen to run was written by that.
    let ended = last.filter(|last| !matches!(&last.result, Ok(looked) if looked.state == State::Running));
    match ended {
        _ if !running.is_empty() => State::Running,
        Some(last) if last.fingerprint != now => State::Growing,
        _ => State::Ended,
    }
}
