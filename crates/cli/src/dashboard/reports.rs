//! Documents of sessions, as `apex report --html` makes them, again and again.

use crate::diff::{Document, compared};
use crate::filters::Filters;
use crate::loaded::{Loaded, machine_of};
use crate::report::page;
use crate::units;
use apex_dashboard::{Changed, Kernels, Problem, Reader, Reading, Reports, Unanswerable, Wanted};
use apex_live::Follower;
use apex_page::KernelLines;
use apex_predict::explore::{Explorer, Refusal};
use apex_predict::{Change, Models, recorded};
use apex_profile::{Profile, Selection};
use apex_trace::Session;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Makes documents of sessions.
pub struct OfSessions;

/// Makes documents of a part of a session.
struct OfPart {
    dir: PathBuf,
    /// Follows the session, where its last seconds are wanted.
    follower: Option<Follower>,
    filters: Filters,
}

impl Reports for OfSessions {
    fn check(&self, wanted: &Wanted) -> Result<(), String> {
        filters(wanted).map(drop)
    }

    fn open(&self, dir: &Path, wanted: &Wanted) -> Box<dyn Reader> {
        let follower = wanted.last.map(|seconds| Follower::new(dir, Duration::from_secs(seconds)));
        let filters = filters(wanted).unwrap_or_default();
        Box::new(OfPart { dir: dir.to_owned(), follower, filters })
    }

    fn compare(&self, before: &[PathBuf], after: &[PathBuf], wanted: &Wanted) -> Result<String, Problem> {
        let filters = filters(wanted).unwrap_or_default();
        let read = |dir: &PathBuf| -> Result<Loaded, Problem> {
            let mut part = OfPart { dir: dir.clone(), follower: None, filters: filters.clone() };
            Ok(part.load()?.0)
        };
        let loaded: Vec<Loaded> = before.iter().chain(after).map(read).collect::<Result<_, Problem>>()?;
        let shown = filters.parts(&loaded.iter().collect::<Vec<_>>());
        let shown = shown.map_err(|error| Problem::Empty(error.to_string()))?;
        let comparison = compared(&shown, before.len());
        let document = Document::of(&shown, before, after, &comparison);
        Ok(serde_json::to_string(&document).expect("plain data"))
    }
}

/// Adds what the shipped models say of a profile's kernels.
pub fn predict(profile: &mut Profile) {
    if !profile.kernels.is_empty() {
        recorded::predict(profile, &Models::shipped());
    }
}

fn filters(wanted: &Wanted) -> Result<Filters, String> {
    let Wanted { last: _, phase, kernels, window, ranks } = wanted;
    Filters::of_words(phase.as_deref(), kernels, window.as_deref(), ranks.as_deref())
}

impl Reader for OfPart {
    fn read(&mut self) -> Result<Reading, Problem> {
        let (loaded, window) = self.load()?;
        let running = apex_live::running(&loaded.session);
        let empty = |error: anyhow::Error| Problem::Empty(error.to_string());
        let shown = self.filters.parts(&[&loaded]).map_err(empty)?.remove(0);
        let last = window.map(|Range { start, end }| {
            let [from, to] = [start, end].map(|at| units::time(at as f64));
            format!("The last seconds: from {from} to {to} after the session’s start.")
        });
        let notes: Vec<String> = last.into_iter().chain(shown.lacks()).collect();
        let name = self.dir.file_name().unwrap_or(self.dir.as_os_str()).to_string_lossy();
        let document =
            page::made_of(&name, &loaded, &shown, &shown.advise(&[]), &notes, &[], apex_page::json);
        let profile = shown.profile();
        let kernels =
            Arc::new(OfReading { explorer: Explorer::of(profile), lines: KernelLines::of(profile) });
        Ok(Reading { document, running, kernels })
    }
}

/// The kernels of what was read.
#[derive(Debug)]
struct OfReading {
    explorer: Explorer,
    lines: KernelLines,
}

impl Kernels for OfReading {
    fn what_if(&self, kernel: &str, changed: &Changed) -> Result<String, Unanswerable> {
        let Changed { block, registers, dynamic_shared_bytes } = *changed;
        let change = Change { grid: None, block: block.map(Into::into), registers, dynamic_shared_bytes };
        match self.explorer.explore(&Models::shipped(), kernel, &change) {
            Ok(explored) => Ok(apex_page::what_if(kernel, &explored)),
            Err(why @ Refusal::NoKernel) => Err(Unanswerable::NoKernel(why.to_string())),
            Err(Refusal::Nonsense(why)) => Err(Unanswerable::Nonsense(why)),
        }
    }

    fn lines(&self, kernel: &str) -> Result<String, String> {
        self.lines.json(kernel)
    }
}

impl OfPart {
    /// The session with the profile of the part, and what is predicted of its kernels; and the
    /// window, where it is the last seconds.
    fn load(&mut self) -> Result<(Loaded, Option<Range<u64>>), Problem> {
        let (mut loaded, window) = self.measured()?;
        predict(&mut loaded.profile);
        Ok((loaded, window))
    }

    /// As [`Self::load`], without predictions.
    fn measured(&mut self) -> Result<(Loaded, Option<Range<u64>>), Problem> {
        let unreadable = |error: apex_trace::Error| Problem::Unreadable(error.to_string());
        let empty = |error: anyhow::Error| Problem::Empty(error.to_string());
        let Some(follower) = &mut self.follower else {
            let session = Session::open(&self.dir).map_err(unreadable)?;
            let selection = self.filters.selection(&session).map_err(empty)?;
            let profile = Profile::of_selection(&session, &selection);
            self.filters.check_window(&session, &profile).map_err(empty)?;
            let machine = machine_of(&session, &selection);
            return Ok((Loaded { session, profile, machine }, None));
        };
        let now = follower.look().map_err(unreadable)?;
        let processes = self.filters.selection(&now.session).map_err(empty)?.processes;
        let profile = match processes {
            None => now.profile,
            Some(_) => Profile::of_selection(
                &now.session,
                &Selection { window: Some(now.window.clone()), processes },
            ),
        };
        Ok((Loaded { session: now.session, profile, machine: now.machine }, Some(now.window)))
    }
}
