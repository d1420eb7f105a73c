//! A session with its profile, as every reading command needs it.

use crate::filters::Filters;
use crate::{output, progress, session, units};
use anyhow::Context;
use apex_machine::Machine;
use apex_predict::{Models, recorded};
use apex_profile::{Profile, Selection, origin_ns};
use apex_trace::Session;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::Path;

/// Problems that are remarked upon.
const PROBLEMS: usize = 20;

/// A session and what it says.
pub struct Loaded {
    /// The session.
    pub session: Session,
    /// Its profile.
    pub profile: Profile,
    /// What the machine did meanwhile.
    pub machine: Machine,
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
        let loaded = progress::show(&doing, |_| {
            session::must_exist(path)?;
            let session = Session::open(path)?;
            let selection = filters.selection(&session)?;
            let mut profile = Profile::of_selection(&session, &selection);
            filters.check_window(&session, &profile)?;
            // The models take milliseconds to get ready: a program without kernels needs none.
            if !profile.kernels.is_empty() {
                recorded::predict(&mut profile, &Models::shipped());
            }
            let machine = machine_of(&session, &selection);
            profile.recorder.problems.extend(machine.problems.iter().cloned());
            anyhow::Ok(Self { session, profile, machine })
        })?;
        let problems = once(&loaded.profile.recorder.problems);
        problems.iter().take(PROBLEMS).for_each(output::remark);
        if let Some(more) = problems.len().checked_sub(PROBLEMS).filter(|more| *more > 0) {
            let more = units::counted(more as u64, "more problem", "more problems");
            output::remark(format!("{more}; `apex report --json` has them all"));
        }
        Ok(loaded)
    }

    /// What was run, as typed.
    pub fn command(&self) -> Option<String> {
        Some(self.session.meta.as_ref()?.command.join(" "))
    }
}

/// Problems (`file: what`), each sort once: files of which the same is to be said are counted.
fn once(problems: &[String]) -> Vec<String> {
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut sorts: Vec<(&str, &str, u64)> = Vec::new();
    for problem in problems {
        let (file, what) = problem.split_once(": ").unwrap_or(("", problem));
        match places.entry(what) {
            Entry::Occupied(place) => sorts[*place.get()].2 += 1,
            Entry::Vacant(place) => {
                place.insert(sorts.len());
                sorts.push((file, what, 0));
            }
        }
    }
    let said = |(file, what, others): (&str, &str, u64)| match (file, others) {
        ("", _) => what.to_owned(),
        (file, 0) => format!("{file}: {what}"),
        (file, others) => {
            format!("{file} and {}: {what}", units::counted(others, "other file", "other files"))
        }
    };
    sorts.into_iter().map(said).collect()
}

/// What the machine did in the time that is selected.
pub fn machine_of(session: &Session, selection: &Selection) -> Machine {
    let machine = Machine::read(&session.dir);
    let Some(window) = &selection.window else { return machine };
    let [from, to] = [window.start, window.end].map(|at| origin_ns(session).saturating_add(at));
    machine.window(from, to)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_be_said_of_several_files_is_said_once() {
        let problems = ["s/1.rec: byte 0: no", "s/2.rec: byte 7: cut", "s/3.rec: byte 0: no", "alone"];
        let said = once(&problems.map(str::to_owned));
        assert_eq!(said, ["s/1.rec and 1 other file: byte 0: no", "s/2.rec: byte 7: cut", "alone"]);
    }
}
