//! Indexes of sessions: built in the background, stored in the session's folder, opened, rebuilt.
//!
//! An index is written into a file without a name in the session's folder, so that nothing is left
//! of one that was not finished. It gets its name when it is whole, if the session does not change
//! any more. Where the folder cannot be written to, the file is one without a name in the folder
//! for temporary files, and lives as long as the server.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use apex_profile::{Predictions, Profile};
use apex_trace::{Ended, Session};

use crate::build::{Progress, build};
use crate::file::{Damaged, Source};
use crate::query::Lane;
use crate::tables::{LaneRow, Tables};

/// The file of an index in the session's folder.
pub const INDEX_FILE: &str = "timeline.index";

/// Timelines that are kept open.
const MOST_OPEN: usize = 4;
/// A session that grows is read again after this multiple of the time that reading it took …
const REST: u32 = 9;
/// … and after at least this time.
const LEAST_REST: Duration = Duration::from_secs(5);
/// A session is no longer recorded if its files have not changed for this time.
const QUIET: Duration = Duration::from_secs(10);

/// The function that predicts the kernels of a profile.
type Predict = dyn Fn(&Profile) -> Predictions + Send + Sync;

/// The timelines of sessions.
pub struct Timelines {
    predict: Arc<Predict>,
    /// The one that was asked for last comes last.
    kept: Mutex<Vec<Arc<Kept>>>,
    /// Held by the one index that is made at a time.
    working: Arc<Mutex<()>>,
}

/// An index that is open.
#[derive(Debug)]
pub struct Timeline {
    pub(crate) source: Source,
    pub(crate) tables: Tables,
    /// The identity of the session's state.
    pub(crate) identity: u64,
    /// The reason why its file has no name, if it should have one.
    pub(crate) note: Option<String>,
}

/// The timeline of a session, as far as there is one.
pub struct Look {
    /// The timeline, perhaps of an earlier state of the session; `None` while the first one is
    /// made.
    pub timeline: Option<Arc<Timeline>>,
    /// The progress of the index that is being made, from 0 to 1.
    pub progress: Option<f64>,
    /// Whether the session has changed since.
    pub growing: bool,
}

/// The reason why there is no timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The session cannot be read, or its index not be written.
    Unreadable(String),
    /// The session is gone.
    Deleted,
}

struct Kept {
    dir: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    timeline: Option<Arc<Timeline>>,
    building: Option<Arc<Progress>>,
    /// The end of the last building, and its duration.
    built: Option<(Instant, Duration)>,
    /// The state of the session for which building failed, and the problem.
    failed: Option<(u64, Problem)>,
}

/// Returns the identity of the state of a session's files; `None` if there is no folder.
pub(crate) fn identity(dir: &Path) -> Option<u64> {
    let mut files: Vec<_> = std::fs::read_dir(dir)
        .ok()?
        .flatten()
        .filter(|file| file.path().extension().is_some_and(|extension| extension == "rec"))
        .filter_map(|file| {
            let found = file.metadata().ok()?;
            Some((file.file_name(), found.size(), found.mtime(), found.mtime_nsec()))
        })
        .collect();
    files.sort_unstable();
    let mut hasher = DefaultHasher::new();
    files.hash(&mut hasher);
    Some(hasher.finish())
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Timeline {
    /// Opens the index in a session's folder, if it is of this state.
    ///
    /// # Errors
    /// If there is none, or of another state, or a damaged one.
    pub(crate) fn open(dir: &Path, identity: u64) -> Result<Self, Damaged> {
        let file = apex_untrusted::read::open(&dir.join(INDEX_FILE), u64::MAX).map_err(|_| Damaged)?;
        let (source, table) = Source::open(file, identity)?;
        let tables: Tables = serde_json::from_slice(&source.table(table)?).map_err(|_| Damaged)?;
        let is_sound = tables.order.iter().all(|&lane| (lane as usize) < tables.lanes.len())
            && tables.lanes.iter().all(|lane| lane.process < tables.processes.len())
            && tables.phases.iter().all(|phase| phase.process < tables.processes.len());
        let timeline = Self { source, tables, identity, note: None };
        if is_sound { Ok(timeline) } else { Err(Damaged) }
    }

    /// Makes the index of the session in a folder, beside it where that can be.
    ///
    /// # Errors
    /// If the session cannot be read, or the index not be written.
    pub fn make(
        dir: &Path,
        progress: &Progress,
        predict: impl FnOnce(&Profile) -> Predictions,
    ) -> Result<Self, Problem> {
        let unreadable = |error: &dyn std::fmt::Display| Problem::Unreadable(error.to_string());
        let before = identity(dir).ok_or(Problem::Deleted)?;
        let session = Session::open(dir).map_err(|error| unreadable(&error))?;
        let (file, is_beside) = nameless(dir).map_err(|error| unwritable(&error))?;
        let made = build(&session, file, before, progress, predict);
        let (source, tables) = made.map_err(|error| unwritable(&error))?;
        let mut timeline = Self { source, tables, identity: before, note: None };
        if !is_beside {
            timeline.note = Some(
                "The session’s folder cannot be written to: the timeline’s index is a temporary file, and is made \
                 anew by the next server."
                    .to_owned(),
            );
        } else if has_ended(&session) && identity(dir) == Some(before) {
            // Without its name the index serves as well, as long as it is open.
            let _ = give_name(timeline.source.file(), dir);
        }
        Ok(timeline)
    }

    /// Bytes of the index.
    pub fn bytes(&self) -> u64 {
        self.source.bytes()
    }

    /// A lane.
    pub(crate) fn lane<'t>(&'t self, row: &'t LaneRow) -> Lane<'t> {
        Lane { source: &self.source, index: &row.index }
    }
}

fn unwritable(error: &io::Error) -> Problem {
    Problem::Unreadable(format!(
        "The timeline’s index cannot be written: {error}. It takes up to as much space as the session; make room, and \
         load the page again."
    ))
}

/// A file without a name in the session's folder, or in the one for temporary files; and whether it
/// is in the session's.
fn nameless(dir: &Path) -> io::Result<(File, bool)> {
    match nameless_in(dir) {
        Ok(file) => Ok((file, true)),
        Err(_) => nameless_in(&std::env::temp_dir()).map(|file| (file, false)),
    }
}

fn nameless_in(dir: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).mode(0o600);
    options.clone().custom_flags(libc::O_TMPFILE).open(dir).or_else(|_| {
        // A file system that knows no such files.
        let name = format!(".{INDEX_FILE}.{}", std::process::id());
        let folder = apex_untrusted::folder::Folder::open(dir)?;
        let file = folder.create_new(&name)?;
        folder.remove(&name)?;
        Ok(file)
    })
}

/// Gives the nameless file of an index its name; what had the name before is replaced.
fn give_name(file: &File, dir: &Path) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    use std::os::unix::ffi::OsStrExt;
    let text = |path: &Path| std::ffi::CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other);
    let passing = dir.join(format!(".{INDEX_FILE}.{}", std::process::id()));
    let from = text(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd())))?;
    let to = text(&passing)?;
    // SAFETY: both are strings that end in 0 and live until the call returns; the call keeps
    // neither.
    let linked = unsafe {
        libc::linkat(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), libc::AT_SYMLINK_FOLLOW)
    };
    if linked != 0 {
        return Err(io::Error::last_os_error());
    }
    std::fs::rename(&passing, dir.join(INDEX_FILE)).inspect_err(|_| drop(std::fs::remove_file(&passing)))
}

/// Whether the session is no longer being recorded.
fn has_ended(session: &Session) -> bool {
    let is_quiet = |path: &Path| {
        let changed = path.metadata().and_then(|found| found.modified());
        changed.is_ok_and(|at| SystemTime::now().duration_since(at).is_ok_and(|age| age >= QUIET))
    };
    session.processes.iter().all(|process| process.ended != Ended::Unmarked || is_quiet(&process.file))
}

impl Timelines {
    /// Timelines whose kernels have the predictions that `predict` makes.
    pub fn new(predict: impl Fn(&Profile) -> Predictions + Send + Sync + 'static) -> Self {
        Self { predict: Arc::new(predict), kept: Mutex::default(), working: Arc::default() }
    }

    fn of(&self, dir: &Path) -> Arc<Kept> {
        let mut kept = locked(&self.kept);
        let found = kept.iter().position(|kept| kept.dir == dir).map(|place| kept.remove(place));
        let found = found.unwrap_or_else(|| Arc::new(Kept { dir: dir.to_owned(), state: Mutex::default() }));
        kept.push(Arc::clone(&found));
        if kept.len() > MOST_OPEN {
            kept.remove(0);
        }
        found
    }

    /// Returns the present timeline of a session. If a part is missing it is begun, and the call
    /// returns at once.
    ///
    /// # Errors
    /// If there is none, and will be none.
    pub fn look(&self, dir: &Path) -> Result<Look, Problem> {
        let kept = self.of(dir);
        let mut state = locked(&kept.state);
        let now = identity(dir).ok_or(Problem::Deleted)?;
        let is_current = |state: &State| state.timeline.as_ref().is_some_and(|open| open.identity == now);
        if !is_current(&state) && state.building.is_none() && state.timeline.is_none() {
            state.timeline = Timeline::open(dir, now).ok().map(Arc::new);
        }
        let rested = state.built.is_none_or(|(at, took)| at.elapsed() >= (took * REST).max(LEAST_REST));
        let failed = state.failed.clone().filter(|(of, _)| *of == now);
        let must_build = !is_current(&state) && state.building.is_none();
        match failed {
            Some((_, problem)) if must_build && !rested => return Err(problem),
            _ if must_build && (rested || state.timeline.is_none()) => {
                state.building = Some(self.begin(&kept));
            }
            _ => {}
        }
        Ok(Look {
            growing: state.timeline.is_some() && !is_current(&state),
            timeline: state.timeline.clone(),
            progress: state.building.as_ref().map(|progress| progress.share()),
        })
    }

    /// Forgets a damaged index: the next look rebuilds it.
    pub fn forget(&self, dir: &Path, damaged: &Timeline) {
        let kept = self.of(dir);
        let mut state = locked(&kept.state);
        if state.timeline.as_ref().is_some_and(|open| std::ptr::eq(&raw const **open, damaged)) {
            state.timeline = None;
            state.built = None;
            let _ = std::fs::remove_file(dir.join(INDEX_FILE));
        }
    }

    /// Begins to make an index.
    fn begin(&self, kept: &Arc<Kept>) -> Arc<Progress> {
        let progress = Arc::new(Progress::default());
        let (kept, predict) = (Arc::clone(kept), Arc::clone(&self.predict));
        let (working, of_thread) = (Arc::clone(&self.working), Arc::clone(&progress));
        std::thread::spawn(move || {
            let _working = locked(&working);
            let (begun, identity) = (Instant::now(), identity(&kept.dir));
            let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                Timeline::make(&kept.dir, &of_thread, &*predict)
            }));
            let made = made.unwrap_or_else(|_| {
                Err(Problem::Unreadable(
                    "The timeline’s index cannot be made: this is a defect of APEX.".to_owned(),
                ))
            });
            let mut state = locked(&kept.state);
            state.building = None;
            state.built = Some((Instant::now(), begun.elapsed()));
            match made {
                Ok(timeline) => (state.timeline, state.failed) = (Some(Arc::new(timeline)), None),
                Err(problem) => state.failed = identity.map(|identity| (identity, problem)),
            }
        });
        progress
    }
}
