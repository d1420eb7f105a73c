//! The CPU device's counts for each line of a kernel, added up, and the source text.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use apex_counts::{Line, LineCounts, MAX_LINES};
use apex_trace::{Session, source};

use crate::Selection;

/// Bytes of source text that are read of a session.
const MOST_BYTES: usize = 32 << 20;

/// The counts of lines, summed over launches.
#[derive(Default)]
pub(super) struct Lines {
    each: BTreeMap<(Arc<str>, u32), LineCounts>,
    /// The number of lines of the launch that left out most.
    left_out: u64,
    /// Lines that came when there were [`MAX_LINES`].
    others: u64,
}

impl Lines {
    pub fn add(&mut self, lines: &[Line], left_out: u64) {
        self.left_out = self.left_out.max(left_out);
        for Line { file, line, counts } in lines {
            self.add_line((Arc::clone(file), *line), counts);
        }
    }

    pub fn merge(&mut self, other: Self) {
        self.left_out = self.left_out.max(other.left_out);
        self.others = self.others.max(other.others);
        other.each.iter().for_each(|(line, counts)| self.add_line(line.clone(), counts));
    }

    fn add_line(&mut self, line: (Arc<str>, u32), counts: &LineCounts) {
        let is_full = self.each.len() >= MAX_LINES;
        match self.each.entry(line) {
            Entry::Occupied(mut sum) => *sum.get_mut() += counts,
            Entry::Vacant(_) if is_full => self.others += 1,
            Entry::Vacant(place) => {
                place.insert(*counts);
            }
        }
    }

    pub fn list(&self) -> Vec<Line> {
        let lines = self.each.iter();
        lines.map(|((file, line), &counts)| Line { file: Arc::clone(file), line: *line, counts }).collect()
    }

    pub fn left_out(&self) -> u64 {
        self.left_out.saturating_add(self.others)
    }
}

/// Source files by the name that line tables have for them: the text that the session keeps, or why
/// it keeps none. No part of what is written.
pub type Sources = BTreeMap<String, Result<Arc<str>, String>>;

/// The source files of the processes of a session that are read.
pub(super) fn sources(session: &Session, selection: &Selection) -> Sources {
    let mut hashes: BTreeMap<&str, Vec<&Result<u128, String>>> = BTreeMap::new();
    let processes = session.counts.iter().filter(|process| selection.has(process.pid));
    for file in processes.flat_map(|process| &process.sources) {
        hashes.entry(&file.name).or_default().push(&file.kept);
    }
    // What several processes found under one name: a relative one means a file in the folder of
    // each.
    let the_same = |found: Vec<&Result<u128, String>>| {
        let mut texts = found.iter().filter_map(|kept| kept.as_ref().ok());
        match texts.next() {
            Some(first) if texts.all(|other| other == first) => Ok(*first),
            Some(_) => Err("it differed between the program's processes".to_owned()),
            None => found[0].clone(),
        }
    };
    let mut room = MOST_BYTES;
    let mut read = |hash| {
        let text = source::read(&session.dir, hash).map_err(|error| error.to_string())?;
        room = room.checked_sub(text.len()).ok_or("the session has more source text than is read")?;
        Ok(text.into())
    };
    hashes.into_iter().map(|(name, found)| (name.to_owned(), the_same(found).and_then(&mut read))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(file: &str, line: u32, warp_instructions: u64) -> Line {
        let counts = LineCounts { warp_instructions, ..Default::default() };
        Line { file: file.into(), line, counts }
    }

    #[test]
    fn lines_are_added_up_and_bounded() {
        let mut lines = Lines::default();
        lines.add(&[line("a.cu", 7, 3), line("", 7, 5)], 2);
        let mut other = Lines::default();
        other.add(&[line("a.cu", 7, 4)], 1);
        lines.merge(other);
        let sums = lines.list();
        let shown: Vec<_> = sums.iter().map(|of| (&*of.file, of.line, of.counts.warp_instructions)).collect();
        assert_eq!((shown, lines.left_out()), (vec![("", 7, 5), ("a.cu", 7, 7)], 2));
        let many: Vec<Line> = (0..MAX_LINES as u32).map(|at| line("b.cu", at, 1)).collect();
        lines.add(&many, 0);
        assert_eq!((lines.list().len(), lines.left_out()), (MAX_LINES, 2 + 2));
    }
}
