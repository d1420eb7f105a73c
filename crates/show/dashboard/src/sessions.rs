//! The list of sessions, and the state of each.

use crate::problem::Problem;
use serde::Serialize;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Sessions that are listed at most.
pub const MOST_SESSIONS: usize = 1000;

/// The state of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Processes of this machine record it.
    Running,
    /// No process of this machine records it, and yet it has grown since it was read before.
    Growing,
    /// It does not change.
    Ended,
    /// It cannot be read.
    Unreadable,
    /// Its folder is gone.
    Deleted,
}

/// A session that is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// The name for requests: digits that depend on its folder alone.
    pub id: String,
    /// Its folder.
    pub dir: PathBuf,
}

impl Known {
    fn new(dir: PathBuf) -> Self {
        let mut hasher = DefaultHasher::new();
        dir.hash(&mut hasher);
        Self { id: format!("{:016x}", hasher.finish()), dir }
    }

    /// Its folder's name.
    pub fn name(&self) -> String {
        let name = self.dir.file_name().unwrap_or(self.dir.as_os_str());
        apex_untrusted::printable(&name.to_string_lossy()).into_owned()
    }

    /// Returns the message for the time after its folder is gone.
    pub fn gone(&self) -> String {
        format!("the folder of the session {} is gone", self.name())
    }
}

/// All sessions that are shown. One that was listed once stays known: it may be looked at when it
/// is gone.
pub struct Sessions {
    find: Box<dyn Fn() -> Vec<PathBuf> + Send + Sync>,
    known: Mutex<Vec<Known>>,
}

impl Sessions {
    /// Creates the list of the sessions that `find` finds, now and later, in the order in which
    /// they are shown.
    pub fn new(find: impl Fn() -> Vec<PathBuf> + Send + Sync + 'static) -> Self {
        Self { find: Box::new(find), known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, Vec<Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks for sessions, and lists all that are known: those that were found now first.
    pub fn list(&self) -> Vec<Known> {
        // What is gone is known by the folder that it had.
        let found = (self.find)().into_iter().filter_map(|dir| dir.canonicalize().ok());
        let mut known = self.known();
        let mut all: Vec<Known> = Vec::new();
        for session in found.map(Known::new).chain(known.drain(..)) {
            if all.iter().all(|listed| listed.id != session.id) && all.len() < MOST_SESSIONS {
                all.push(session);
            }
        }
        known.clone_from(&all);
        all
    }

    /// The session of this identifier.
    ///
    /// # Errors
    /// If it was not listed.
    pub fn of(&self, id: &str) -> Result<Known, Problem> {
        let of = || self.known().iter().find(|known| known.id == id).cloned();
        // It may be in the address of a page that was open before this server.
        let found = of().or_else(|| {
            self.list();
            of()
        });
        found
            .ok_or_else(|| Problem::Empty("there is no such session: /api/v1/sessions lists them".to_owned()))
    }
}

/// Names, sizes and times of a session's own files, as one number: a session of the same number
/// holds the same. `None` if there is no folder.
pub fn fingerprint(dir: &Path) -> Option<u64> {
    let mut files: Vec<_> = std::fs::read_dir(dir)
        .ok()?
        .flatten()
        // (An index that the server makes beside them is no change.)
        .filter(|file| apex_trace::is_part_of_session(&file.file_name()))
        .filter_map(|file| {
            let found = file.metadata().ok()?;
            Some((file.file_name(), found.ino(), found.size(), found.mtime(), found.mtime_nsec()))
        })
        .collect();
    files.sort_unstable();
    let mut hasher = DefaultHasher::new();
    files.hash(&mut hasher);
    Some(hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_listed_stays_known_and_nothing_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let [one, two] = ["one", "two"].map(|name| folder.path().join(name));
        for dir in [&one, &two] {
            std::fs::create_dir(dir).unwrap();
        }
        let list = std::sync::Arc::new(Mutex::new(vec![one.clone()]));
        let found = std::sync::Arc::clone(&list);
        let sessions = Sessions::new(move || found.lock().unwrap().clone());
        let first = sessions.list();
        assert_eq!(first.iter().map(Known::name).collect::<Vec<_>>(), ["one"]);
        *list.lock().unwrap() = vec![two.clone(), two.join("../two")];
        let both = sessions.list();
        assert_eq!(both.iter().map(Known::name).collect::<Vec<_>>(), ["two", "one"]);
        std::fs::remove_dir(&one).unwrap();
        *list.lock().unwrap() = vec![one, two];
        assert_eq!(sessions.list(), both, "the one that is gone is still the same");
        assert_eq!(sessions.of(&first[0].id).map(|known| known.dir), Ok(first[0].dir.clone()));
        assert!(sessions.of("../two").is_err());
    }

    #[test]
    fn a_fingerprint_changes_with_the_files() {
        let folder = tempfile::tempdir().unwrap();
        let empty = fingerprint(folder.path()).unwrap();
        std::fs::write(folder.path().join("1.rec"), "x").unwrap();
        let one = fingerprint(folder.path()).unwrap();
        assert_ne!(one, empty);
        assert_eq!(fingerprint(folder.path()), Some(one));
        std::fs::write(folder.path().join("1.rec"), "xy").unwrap();
        let more = fingerprint(folder.path());
        assert_ne!(more, Some(one));
        std::fs::write(folder.path().join("timeline.index"), "an index").unwrap();
        assert_eq!(fingerprint(folder.path()), more);
        assert_eq!(fingerprint(&folder.path().join("none")), None);
    }
}
