//! Counts by line. They are computed after a launch has ended, so that observing it costs nothing
//! more.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use apex_counts::{Line, LineCounts, MAX_LINES};

use crate::launch::Launch;

/// A line: the file's index in the line table, none for the PTX itself, and the number of the line.
pub(super) type LineKey = (Option<u32>, u32);

/// The counts of lines.
#[derive(Debug, Default)]
pub(super) struct Lines(BTreeMap<LineKey, LineCounts>);

impl Lines {
    /// Adds what an instruction of a line did.
    pub(super) fn add(&mut self, line: LineKey, counts: &LineCounts) {
        *self.0.entry(line).or_default() += counts;
    }

    /// The lines that execute most, by file and line, and how many are left out.
    pub(super) fn finish(self, launch: &Launch) -> (Vec<Line>, u64) {
        let mut names: BTreeMap<Option<u32>, Arc<str>> = BTreeMap::new();
        let mut lines: BTreeMap<(Arc<str>, u32), LineCounts> = BTreeMap::new();
        for ((file, line), counts) in self.0 {
            let name = names.entry(file).or_insert_with(|| launch.file(file).into());
            // A table may name a file twice.
            *lines.entry((Arc::clone(name), line)).or_default() += &counts;
        }
        let lines = lines.into_iter().map(|((file, line), counts)| Line { file, line, counts });
        let mut lines: Vec<Line> = lines.collect();
        let left_out = lines.len().saturating_sub(MAX_LINES);
        if left_out > 0 {
            lines.sort_by_key(|line| Reverse(line.counts.warp_instructions));
            lines.truncate(MAX_LINES);
            lines.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
        }
        (lines, left_out as u64)
    }
}
