//! Reads sessions repeatedly and makes their documents, as `apex report --html` does, and their
//! comparisons, as `apex diff` does.

use crate::parameters::ViewParameters;
use crate::problem::Problem;
use apex_conventions::documents::{self, Envelope};
use apex_live::Follower;
use apex_page::{KernelLines, Source};
use apex_predict_session::explore::Explorer;
use apex_profile::units;
use apex_view::{DiffDocument, Error, Filters, Loaded};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Reads a part of a session, again and again.
pub struct Reader {
    dir: PathBuf,
    /// Follows the session, where its last seconds are wanted.
    follower: Option<Follower>,
    filters: Filters,
    /// Whether no process recorded the session when it was read last.
    has_ended: bool,
}

/// The content that was read of a session.
pub struct Reading {
    /// The document, as JSON.
    pub document: String,
    /// Identifiers of processes that record it.
    pub running: Vec<u32>,
    /// The kernels of the document.
    pub kernels: Arc<Kernels>,
}

/// The kernels of what was read of a session.
#[derive(Debug)]
pub struct Kernels {
    /// Answers what they would do in other configurations.
    pub explorer: Explorer,
    /// The counts of each of their lines.
    pub lines: KernelLines,
}

impl Reader {
    /// Will read a part of the session in a folder.
    pub fn new(dir: &Path, wanted: &ViewParameters) -> Self {
        let follower = wanted.last.map(|seconds| Follower::fresh(dir, Duration::from_secs(seconds)));
        Self { dir: dir.to_owned(), follower, filters: wanted.filters.clone(), has_ended: false }
    }

    /// Whether no process of this machine recorded the session when it was read last.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Reads it.
    ///
    /// # Errors
    /// If it cannot be read, or if there is no such part.
    pub fn read(&mut self) -> Result<Reading, Problem> {
        self.has_ended = false;
        let (loaded, window) = match &mut self.follower {
            None => (Loaded::read(&self.dir, &self.filters)?, None),
            Some(follower) => {
                let (loaded, window) = Loaded::read_last(follower, &self.filters)?;
                (loaded, Some(window))
            }
        };
        let running = apex_live::running(&loaded.session);
        self.has_ended = running.is_empty();
        let shown = self.filters.shown(&loaded)?;
        let last = window.map(|window| self.window_note(&window));
        let name = self.dir.file_name().unwrap_or(self.dir.as_os_str()).to_string_lossy();
        let advice = shown.advise(&[]);
        let mut source = Source::served(&name, &loaded, &shown, &advice);
        source.notes.splice(..0, last.into_iter().chain(shown.lacks()));
        let document = apex_page::json(&source);
        let profile = shown.profile();
        let kernels = Kernels { explorer: Explorer::of(profile), lines: KernelLines::of(profile) };
        Ok(Reading { document, running, kernels: Arc::new(kernels) })
    }
}

impl Reader {
    /// Says which seconds the last ones are.
    fn window_note(&self, window: &Range<u64>) -> String {
        let [from, to] = [window.start, window.end].map(|at| units::time(at as f64));
        let note = format!("The last seconds: from {from} to {to} after the session’s start.");
        let span = self.follower.as_ref().map_or(Duration::ZERO, Follower::span);
        if window.start == 0 || u128::from(window.end - window.start) >= span.as_nanos() {
            return note;
        }
        let span = units::time(span.as_nanos() as f64);
        format!(
            "{note} This is less than {span}, because the program launches too much to read {span} each second."
        )
    }
}

/// Compares the same part of the sessions in folders: runs before a change and after it. What it
/// returns is JSON.
///
/// # Errors
/// If one cannot be read, or if none has such a part.
pub fn compare(before: &[PathBuf], after: &[PathBuf], filters: &Filters) -> Result<String, Problem> {
    let read = |dir: &PathBuf| Loaded::read(dir, filters);
    let loaded = before.iter().chain(after).map(read).collect::<Result<Vec<Loaded>, Error>>()?;
    let shown = filters.shown_alike(&loaded)?;
    let comparison = apex_view::compared(&loaded, &shown, before.len());
    let document = DiffDocument::of(&loaded, &shown, before, after, &comparison);
    Ok(serde_json::to_string(&Envelope::of(documents::DIFF, document)).expect("plain data"))
}
