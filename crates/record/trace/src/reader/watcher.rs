//! One session, opened again and again.

use crate::checksums::{self, Checked};
use crate::counts::ProcessCounts;
use crate::error::{Error, Problem};
use crate::joined::{is_joined, member_of};
use crate::reader::file::FileState;
use crate::reader::process::settle_clocks;
use crate::reader::source::Source;
use crate::reader::{
    COUNTS_FILE_EXTENSION, MOST_FILES, PROCESS_FILE_EXTENSION, Session, files_of, has_checksums, kept_code,
    list, members, uncounted,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Bytes of records that a look at a watched session reads at most, over all its files; at least a
/// chunk of each.
const MOST_BYTES: u64 = 256 << 20;

/// The amounts of recorded data over time: the runs of records that a watcher knows, those that it
/// gave at the look before, and the new ones.
#[derive(Debug, Default)]
pub struct Recent {
    /// First and last moment of each run on the machine's monotonic clock, and its bytes.
    runs: Vec<(u64, u64, u64)>,
}

impl Recent {
    /// Returns the moment since which `bytes` of records were made, on the machine's monotonic
    /// clock; 0 if fewer were. Records of a run are assumed to be spread evenly over its time.
    pub fn since(&self, bytes: u64) -> u64 {
        let made_since = |moment: u64| -> u64 {
            let of = |&(first, last, bytes): &(u64, u64, u64)| {
                let length = last.saturating_sub(first).saturating_add(1);
                let left = last.saturating_add(1).saturating_sub(moment.max(first)).min(length);
                (u128::from(bytes) * u128::from(left) / u128::from(length)) as u64
            };
            self.runs.iter().map(of).fold(0, u64::saturating_add)
        };
        if made_since(0) <= bytes {
            return 0;
        }
        let (mut more, mut enough) =
            (0, self.runs.iter().map(|run| run.1).max().unwrap_or(0).saturating_add(1));
        while more + 1 < enough {
            let middle = more + (enough - more) / 2;
            if made_since(middle) > bytes { more = middle } else { enough = middle }
        }
        enough
    }
}

/// Opens one session again and again, and reads only what is new.
///
/// The first looks at a long session read its newest records first and go on with older ones: until
/// then, [`crate::Totals::unread_bytes`] says what is missing from the counts.
///
/// Of its records, a session that is watched gives those from a stated moment on, those of the 60 s
/// before it (or before the process's last record, if that is earlier; at most 1 MiB of each
/// process), and of older ones those that the others refer to: allocations that are not freed,
/// ranges of the process that are open, and the last 16 timings of each kernel.
///
/// Memory for each process: its definitions, some 40 bytes for each 256 KiB of its file, and at
/// most 50 MB for its recent and past records.
#[derive(Debug)]
pub struct Watcher {
    dir: PathBuf,
    is_watched: bool,
    files: BTreeMap<PathBuf, FileState>,
    counts: BTreeMap<PathBuf, (u64, ProcessCounts, Vec<Problem>)>,
    /// Of a joined session, its members, which have no members themselves.
    members: BTreeMap<usize, Watcher>,
}

impl Watcher {
    /// Will look at the session in `dir`.
    pub fn new(dir: &Path) -> Watcher {
        Watcher { is_watched: true, ..Watcher::of_all(dir) }
    }

    /// Will look once, and give all records.
    pub(crate) fn of_all(dir: &Path) -> Watcher {
        Watcher {
            dir: dir.to_owned(),
            is_watched: false,
            files: BTreeMap::new(),
            counts: BTreeMap::new(),
            members: BTreeMap::new(),
        }
    }

    /// The session's folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The session as it is now. `from_ns` says from when on records are wanted, on the machine's
    /// monotonic clock; it is asked when all is known but the records, and told when these were
    /// made. What was left out once is not given by later looks either.
    ///
    /// # Errors
    /// If there is no session any more, or one that can't be understood at all.
    pub fn look(&mut self, from_ns: impl FnOnce(&Session, &Recent) -> u64) -> Result<Session, Error> {
        let (mut session, recent) =
            if is_joined(&self.dir) { self.survey_members()? } else { self.survey()? };
        let from_ns = from_ns(&session, &recent);
        for process in &mut session.processes {
            let member = self.members.get_mut(&member_of(process.pid));
            let files = member.map_or(&mut self.files, |member| &mut member.files);
            if let Some(file) = files.get_mut(&process.file) {
                file.give(process, from_ns);
            }
        }
        Ok(session)
    }

    /// All members of a joined session, but the records.
    fn survey_members(&mut self) -> Result<(Session, Recent), Error> {
        let mut whole = Session::empty(&self.dir);
        #[cfg(feature = "meta")]
        {
            (whole.meta, whole.problems) = crate::meta::Meta::load(&self.dir)?;
        }
        let mut recent = Recent::default();
        let found = members(&self.dir);
        self.members.retain(|number, _| found.iter().any(|member| member.number == *number));
        for member in &found {
            let new = || Watcher { is_watched: self.is_watched, ..Watcher::of_all(&member.dir) };
            let watcher = self.members.entry(member.number).or_insert_with(new);
            let (session, of_member) = watcher.survey()?;
            let moved = |ns: u64| ns.saturating_add_signed(member.offset_ns);
            let runs =
                of_member.runs.into_iter().map(|(first, last, bytes)| (moved(first), moved(last), bytes));
            recent.runs.extend(runs);
            whole.take(member, session);
        }
        whole.processes.sort_by_key(|process| (process.start_real_ns, process.pid));
        Ok((whole, recent))
    }

    /// All of the session but the records.
    fn survey(&mut self) -> Result<(Session, Recent), Error> {
        let (paths, mut left_out) = list(&self.dir)?;
        #[cfg(feature = "meta")]
        let (meta, mut problems) = crate::meta::Meta::load(&self.dir)?;
        #[cfg(not(feature = "meta"))]
        let mut problems = Vec::new();
        #[cfg(feature = "meta")]
        let is_known = meta.as_ref().is_some_and(crate::meta::Meta::is_known);
        #[cfg(not(feature = "meta"))]
        let is_known = false;
        let checked = self.check_files(&paths);
        let emptied = checked.emptied();
        problems.extend(checked.problems);
        let mut of_processes = Vec::new();
        let processes = self.look_at_processes(paths, is_known, &mut of_processes)?;
        // Why a file is empty is known better.
        problems.extend(of_processes.into_iter().filter(|problem| !emptied.contains(&problem.path)));
        let (paths, left_out_counts) = files_of(&self.dir, COUNTS_FILE_EXTENSION)?;
        let counts = self.look_at_counts(paths, is_known, &mut problems)?;
        left_out += left_out_counts;
        if left_out > 0 {
            let what =
                format!("has {left_out} files beyond the {MOST_FILES} that are read; they are left out");
            problems.push(Problem { path: self.dir.clone(), offset: None, what });
        }
        let session = Session {
            dir: self.dir.clone(),
            members: members(&self.dir),
            #[cfg(feature = "meta")]
            meta,
            processes,
            counts,
            code: kept_code(&self.dir),
            problems,
        };
        let mut recent = Recent::default();
        for process in &session.processes {
            let runs = self.files.get(&process.file).into_iter().flat_map(FileState::runs);
            let moment = |ticks| process.clock.monotonic_ns(ticks);
            recent.runs.extend(runs.map(|run| (moment(run.first), moment(run.last), run.bytes())));
        }
        Ok((session, recent))
    }

    /// What is wrong with the files of the session as such. A session that is watched is not
    /// compared with its checksums, because that would read all of it at each look.
    fn check_files(&self, found: &[PathBuf]) -> Checked {
        let is_expected = !self.is_watched && has_checksums(&self.dir);
        let mut checked = checksums::check(&self.dir, self.is_watched, is_expected);
        checked.note_unlisted(found);
        let is_records =
            |problem: &&Problem| problem.path.extension().is_some_and(|end| end == PROCESS_FILE_EXTENSION);
        let lost = checked.problems.iter().filter(is_records).filter(|problem| !problem.path.exists());
        let (missing, listed) = (lost.count(), checked.process_files.as_ref().map(BTreeSet::len));
        checked.problems.extend(uncounted(&self.dir, found.len(), missing, listed));
        checked
    }

    fn look_at_processes(
        &mut self,
        paths: Vec<PathBuf>,
        is_known: bool,
        problems: &mut Vec<Problem>,
    ) -> Result<Vec<crate::Process>, Error> {
        self.files.retain(|path, _| paths.binary_search(path).is_ok());
        let most_bytes = if self.is_watched { MOST_BYTES / paths.len().max(1) as u64 } else { u64::MAX };
        let mut processes = Vec::new();
        for path in paths {
            let new = || FileState::new(&path, Source::Path(path.clone()), self.is_watched);
            let file = self.files.entry(path.clone()).or_insert_with(new);
            processes.extend(file.look(most_bytes, is_known)?);
            problems.extend(file.problems());
        }
        processes.sort_by_key(|process| (process.start_real_ns, process.pid));
        settle_clocks(&mut processes);
        Ok(processes)
    }

    /// Files of counts only grow.
    fn look_at_counts(
        &mut self,
        paths: Vec<PathBuf>,
        is_known: bool,
        problems: &mut Vec<Problem>,
    ) -> Result<Vec<ProcessCounts>, Error> {
        self.counts.retain(|path, _| paths.binary_search(path).is_ok());
        let mut counts = Vec::new();
        for path in paths {
            let bytes = path.metadata().map_or(0, |metadata| metadata.len());
            if self.counts.get(&path).is_none_or(|&(known, ..)| known != bytes) {
                let (found, wrong) = match ProcessCounts::read(&path) {
                    Err(Error::Newer { version, .. }) if is_known => {
                        let what = format!("damaged: its version is {version}; what was counted is missing");
                        (
                            ProcessCounts::default(),
                            vec![Problem { path: path.clone(), offset: Some(8), what }],
                        )
                    }
                    read => read?,
                };
                self.counts.insert(path.clone(), (bytes, found, wrong));
            }
            if let Some((_, found, wrong)) = self.counts.get(&path) {
                counts.push(found.clone());
                problems.extend(wrong.iter().cloned());
            }
        }
        Ok(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn since_when_so_many_bytes_were_recorded() {
        // Two threads at once, and one long before.
        let recent = Recent { runs: vec![(1_000, 1_999, 1_000), (1_500, 1_999, 1_000), (100, 199, 100)] };
        assert_eq!(recent.since(2_100), 0, "no more were made");
        assert_eq!(recent.since(300), 1_900, "one byte of the first and two of the second each nanosecond");
        assert_eq!(recent.since(1_500), 1_500);
        assert_eq!(recent.since(1_600), 1_400);
        assert_eq!(recent.since(0), 2_000);
        assert_eq!(Recent::default().since(0), 0);
        let hostile = Recent { runs: vec![(u64::MAX, 0, u64::MAX), (0, u64::MAX, u64::MAX)] };
        assert!(hostile.since(1) > 0);
    }
}
