//! A session with its profile, as every reading command needs it.

use crate::filters::Filters;
use crate::{output, progress, session, units};
use anyhow::Context;
use apex_predict::{Models, recorded};
use apex_profile::Profile;
use apex_trace::Session;
use std::path::Path;

/// Problems that are remarked upon.
const PROBLEMS: usize = 20;

/// A session and what it says.
pub struct Loaded {
    /// The session.
    pub session: Session,
    /// Its profile.
    pub profile: Profile,
}

/// Where a command reads from.
#[derive(clap::Args, Clone, Debug)]
pub struct Source {
    /// Session folder [default: the newest one here]
    pub session: Option<std::path::PathBuf>,
}

impl Source {
    /// Reads what the filters leave of the session that the user means.
    ///
    /// # Errors
    /// As [`Loaded::read_part`], or if there is no session.
    pub fn load(&self, filters: &Filters) -> anyhow::Result<Loaded> {
        Loaded::read_part(&session::choose_recorded(self.session.as_deref())?, filters)
    }
}

impl Loaded {
    /// Reads a session. What is wrong with it is said on stderr.
    ///
    /// # Errors
    /// If it cannot be read at all.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        Self::read_part(path, &Filters::default())
    }

    /// Reads the part of a session that filters by time and rank leave.
    ///
    /// # Errors
    /// As [`Self::read`]; or if they leave nothing.
    pub fn read_part(path: &Path, filters: &Filters) -> anyhow::Result<Self> {
        let doing =
            format!("reading {} of {}", units::bytes(recorded_bytes(path)), apex_untrusted::shown(path));
        session::refuse_stdout(path)?;
        let (session, profile) = progress::show(&doing, |_| {
            let session = Session::open(path)?;
            let mut profile = Profile::of_selection(&session, &filters.selection(&session)?);
            filters.check_window(&session, &profile)?;
            // The models take milliseconds to get ready: a program without kernels needs none.
            if !profile.kernels.is_empty() {
                recorded::predict(&mut profile, &Models::shipped());
            }
            anyhow::Ok((session, profile))
        })?;
        let loaded = Self { session, profile };
        let problems = &loaded.profile.recorder.problems;
        problems.iter().take(PROBLEMS).for_each(output::remark);
        if problems.len() > PROBLEMS {
            output::remark(format!(
                "{} more problems; `apex report --json` has them all",
                problems.len() - PROBLEMS
            ));
        }
        Ok(loaded)
    }

    /// What was run, as typed.
    pub fn command(&self) -> Option<String> {
        Some(self.session.meta.as_ref()?.command.join(" "))
    }
}

/// Bytes of the process files.
fn recorded_bytes(path: &Path) -> u64 {
    let files = std::fs::read_dir(path).into_iter().flatten().flatten();
    files.filter_map(|file| file.metadata().ok()).map(|metadata| metadata.len()).sum()
}

/// A session that was just recorded.
///
/// # Errors
/// Names the session.
pub fn just_recorded(path: &Path) -> anyhow::Result<Loaded> {
    Loaded::read(path)
        .with_context(|| format!("the session {} cannot be read back", apex_untrusted::shown(path)))
}
