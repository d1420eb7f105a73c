//! Which work must wait for which: the hazards between pieces of work that read and write memory.
//!
//! Work is given in the order in which the program states it. A piece that reads waits for the last
//! one that wrote the same bytes; a piece that writes waits for the last writer and for all that
//! read since. Everything else may run at the same time. Bytes are those of addresses, so parts of
//! a buffer are apart where their bytes are, and host memory is treated as device memory is.
//!
//! Invariants: segments do not overlap; each has the last writer and the readers since; what a
//! piece waits for is the least set from which all that it must wait for can be reached.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::uses::Access;

/// A rule of the order, which a test leaves out to see that its programs notice.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A read waits for the last write.
    ReadAfterWrite,
    /// A write waits for the reads since the last write.
    WriteAfterRead,
    /// A write waits for all of these reads, not for the last one alone.
    AllReaders,
    /// A write waits for the last write.
    WriteAfterWrite,
    /// Ranges that begin at different addresses may overlap.
    Overlap,
    /// Each part of a range has its own last writer.
    Segments,
    /// All uses of a piece count, not its first one alone.
    AllUses,
}

impl Rule {
    /// All rules.
    pub const ALL: [Rule; 7] = [
        Rule::ReadAfterWrite,
        Rule::WriteAfterRead,
        Rule::AllReaders,
        Rule::WriteAfterWrite,
        Rule::Overlap,
        Rule::Segments,
        Rule::AllUses,
    ];
}

/// A use of memory by a piece of work.
#[derive(Clone, Debug)]
pub(crate) struct Use {
    pub bytes: Range<u64>,
    pub access: Access,
}

/// Bytes with the same history.
#[derive(Clone, Debug, Default)]
struct Segment {
    end: u64,
    writer: Option<usize>,
    readers: Vec<usize>,
}

/// The history of all memory that the work so far has used.
#[derive(Debug, Default)]
pub(crate) struct Hazards {
    /// By their first byte.
    segments: BTreeMap<u64, Segment>,
    /// For each piece, all pieces that are done before it starts.
    before: Vec<BTreeSet<usize>>,
    without: Option<Rule>,
}

impl Hazards {
    /// Leaves out a rule.
    pub fn without(&mut self, rule: Rule) {
        self.without = Some(rule);
    }

    fn keeps(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    /// Adds a piece of work; returns the pieces that it must wait for, the others being reached
    /// through these.
    pub fn add(&mut self, uses: &[Use]) -> Vec<usize> {
        let uses = if self.keeps(Rule::AllUses) { uses } else { &uses[..uses.len().min(1)] };
        let piece = self.before.len();
        let mut needed = BTreeSet::new();
        for one in uses.iter().filter(|one| !one.bytes.is_empty()) {
            self.collect(one, &mut needed);
        }
        for one in uses.iter().filter(|one| !one.bytes.is_empty()) {
            self.note(piece, one);
        }
        let direct = self.reduced(&needed);
        let mut all = needed;
        direct.iter().for_each(|one| all.extend(&self.before[*one]));
        self.before.push(all);
        direct
    }

    /// The pieces that `one` must wait for.
    fn collect(&mut self, one: &Use, needed: &mut BTreeSet<usize>) {
        self.split(one.bytes.start);
        self.split(one.bytes.end);
        let (reads, writes) = (one.access == Access::Read, one.access == Access::Write);
        let after_write =
            reads && self.keeps(Rule::ReadAfterWrite) || writes && self.keeps(Rule::WriteAfterWrite);
        let after_read = writes && self.keeps(Rule::WriteAfterRead);
        let most = if self.keeps(Rule::AllReaders) { usize::MAX } else { 1 };
        let first = one.bytes.start;
        for (start, segment) in self.segments.range(one.bytes.clone()) {
            if !self.keeps(Rule::Overlap) && *start != first {
                break;
            }
            needed.extend(segment.writer.filter(|_| after_write));
            if after_read {
                needed.extend(segment.readers.iter().rev().take(most));
            }
        }
    }

    /// Notes the use in the history.
    fn note(&mut self, piece: usize, one: &Use) {
        self.fill(one.bytes.clone());
        let keeps_segments = self.keeps(Rule::Segments);
        for (_, segment) in self.segments.range_mut(one.bytes.clone()) {
            match one.access {
                Access::Read => {
                    if segment.readers.last() != Some(&piece) {
                        segment.readers.push(piece);
                    }
                }
                Access::Write => {
                    (segment.writer, segment.readers) = (Some(piece), Vec::new());
                }
            }
            if !keeps_segments {
                break;
            }
        }
    }

    /// Lets a segment begin at an address that lies within one.
    fn split(&mut self, at: u64) {
        let Some((_, around)) = self.segments.range_mut(..at).next_back() else { return };
        if around.end > at {
            let behind = around.clone();
            around.end = at;
            self.segments.insert(at, behind);
        }
    }

    /// Makes segments of the bytes that have none. (Segments begin and end where the range does.)
    fn fill(&mut self, bytes: Range<u64>) {
        let known: Vec<(u64, u64)> =
            self.segments.range(bytes.clone()).map(|(start, segment)| (*start, segment.end)).collect();
        let mut next = bytes.start;
        for (start, end) in known.into_iter().chain([(bytes.end, bytes.end)]) {
            if next < start {
                self.segments.insert(next, Segment { end: start, ..Segment::default() });
            }
            next = end;
        }
    }

    /// Those that none of the others waits for.
    fn reduced(&self, needed: &BTreeSet<usize>) -> Vec<usize> {
        let is_reached = |one: &usize| needed.iter().any(|other| self.before[*other].contains(one));
        needed.iter().copied().filter(|one| !is_reached(one)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: Range<u64>) -> Use {
        Use { bytes, access: Access::Read }
    }

    fn write(bytes: Range<u64>) -> Use {
        Use { bytes, access: Access::Write }
    }

    #[test]
    fn reads_are_independent_and_writes_wait_for_all_of_them() {
        let mut hazards = Hazards::default();
        assert!(hazards.add(&[write(0..8)]).is_empty());
        assert_eq!(hazards.add(&[read(0..8)]), [0]);
        assert_eq!(hazards.add(&[read(4..6)]), [0]);
        assert_eq!(hazards.add(&[write(0..8)]), [1, 2], "the first write is reached through these");
        assert_eq!(hazards.add(&[write(0..4), read(6..7)]), [3]);
    }

    #[test]
    fn parts_have_their_own_history() {
        let mut hazards = Hazards::default();
        assert!(hazards.add(&[write(0..8)]).is_empty());
        assert!(hazards.add(&[write(8..16)]).is_empty());
        assert_eq!(hazards.add(&[read(7..9)]), [0, 1]);
        assert_eq!(hazards.add(&[write(2..4)]), [0]);
        assert_eq!(hazards.add(&[read(0..2), read(4..7)]), [0]);
        assert_eq!(hazards.add(&[write(0..16)]), [2, 3, 4]);
        assert!(hazards.add(&[read(16..20), read(5..5)]).is_empty(), "no bytes are no use");
    }

    #[test]
    fn a_piece_does_not_wait_for_itself() {
        let mut hazards = Hazards::default();
        assert!(hazards.add(&[read(0..8), write(0..8), read(2..3)]).is_empty());
        assert_eq!(hazards.add(&[write(2..3), read(2..3)]), [0]);
    }
}
