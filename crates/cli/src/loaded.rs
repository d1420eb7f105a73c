//! Reads the session of a command with its profile, and prints its problems on stderr.

use crate::{import, output, progress, session, units};
use anyhow::Context;
use apex_view::{Filters, Loaded};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::Path;

/// Problems that are remarked upon.
const PROBLEMS: usize = 20;

/// The session that a command reads.
#[derive(clap::Args, Clone, Debug)]
pub struct Source {
    /// Session: a folder, a packed one, or traces of another profiler [default: the newest session
    /// in this folder]
    pub session: Option<std::path::PathBuf>,
}

impl Source {
    /// Reads what the filters leave of the session that the user means.
    ///
    /// # Errors
    /// As [`read`], or if there is no session.
    pub fn load(&self, filters: &Filters) -> anyhow::Result<Loaded> {
        read(&session::choose_recorded(self.session.as_deref())?, filters)
    }
}

/// Reads the part of a session that filters leave. What is wrong with it is said on stderr.
///
/// # Errors
/// If it cannot be read at all, or if the filters leave nothing.
pub fn read(path: &Path, filters: &Filters) -> anyhow::Result<Loaded> {
    session::exists(path)?;
    let (named, path) = (path, &*import::opened(path)?);
    let doing = format!("reading {} of {}", units::bytes(recorded_bytes(path)), apex_untrusted::shown(named));
    session::refuse_stdout(path)?;
    let loaded = progress::show(&doing, |_| anyhow::Ok(Loaded::read(path, filters)?))?;
    let mut loaded = loaded;
    name_as_typed(&mut loaded);
    tell_problems(&loaded.profile.recorder.problems);
    Ok(loaded)
}

/// Has the problems of a session that was unpacked or imported name what the user named, and not
/// the temporary folder.
fn name_as_typed(loaded: &mut Loaded) {
    let named = import::named(&loaded.session.dir);
    if named != loaded.session.dir {
        let [temporary, named] = [&loaded.session.dir, &named].map(|path| path.display().to_string());
        for problem in &mut loaded.profile.recorder.problems {
            *problem = problem.replace(&temporary, &named);
        }
    }
}

/// Says the problems of a session on stderr.
pub fn tell_problems(problems: &[String]) {
    let problems = once(problems);
    problems.iter().take(PROBLEMS).for_each(output::remark);
    if let Some(more) = problems.len().checked_sub(PROBLEMS).filter(|more| *more > 0) {
        let more = units::counted(more as u64, "more problem", "more problems");
        output::remark(format!("{more}; `apex report --json` lists all"));
    }
}

/// Reads a whole session.
///
/// # Errors
/// As [`read`].
pub fn read_all(path: &Path) -> anyhow::Result<Loaded> {
    read(path, &Filters::default())
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
    read_all(path).with_context(|| format!("the session {} cannot be read back", apex_untrusted::shown(path)))
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
