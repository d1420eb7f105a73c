//! The sizes of copies: their number by order of magnitude.
//!
//! A mean says nothing of 60 copies of 4 bytes and one of 64 KiB. Sizes are therefore counted in
//! groups, one for each power of two, with the exact extremes of each group. Groups are bounded in
//! number, and those of several processes add up in any order.

use apex_ordered::{Gather, Order};
use std::collections::BTreeMap;

use serde::Serialize;

use crate::units;

/// Groups that words name one by one.
const NAMED: usize = 3;

/// Sizes by order of magnitude.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(into = "Vec<SizeGroup>")]
pub struct Sizes(BTreeMap<u32, SizeGroup>);

/// Sizes between a power of two and the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SizeGroup {
    /// The smallest size, bytes.
    pub least: u64,
    /// The largest size, bytes.
    pub most: u64,
    /// The number of copies with a size of the group.
    pub count: u64,
}

impl From<Sizes> for Vec<SizeGroup> {
    fn from(sizes: Sizes) -> Self {
        sizes.0.into_values().collect()
    }
}

impl Sizes {
    /// Returns `count` copies of one size.
    pub fn of(bytes: u64, count: u64) -> Self {
        let mut sizes = Self::default();
        sizes.add_group(SizeGroup { least: bytes, most: bytes, count });
        sizes
    }

    /// Counts one of this size.
    pub fn add(&mut self, bytes: u64) {
        self.add_group(SizeGroup { least: bytes, most: bytes, count: 1 });
    }

    /// Adds other sizes.
    pub fn merge(&mut self, other: &Self) {
        other.0.values().for_each(|group| self.add_group(*group));
    }

    fn add_group(&mut self, group: SizeGroup) {
        if group.count == 0 {
            return;
        }
        let join = |known: &mut SizeGroup| {
            *known = SizeGroup {
                least: known.least.min(group.least),
                most: known.most.max(group.most),
                count: known.count.saturating_add(group.count),
            };
        };
        let magnitude = group.least.checked_ilog2().map_or(0, |log| log + 1);
        self.0.entry(magnitude).and_modify(join).or_insert(group);
    }

    /// A share of them, of each group alike; groups of which less than half a copy is left are
    /// dropped.
    pub fn scaled(&self, share: f64) -> Self {
        let scaled = |group: &SizeGroup| (group.count as f64 * share).round() as u64;
        let groups = self.0.iter().map(|(&at, group)| (at, SizeGroup { count: scaled(group), ..*group }));
        Self(groups.filter(|(_, group)| group.count > 0).gathered())
    }

    /// The groups, by size.
    pub fn groups(&self) -> impl Iterator<Item = &SizeGroup> {
        self.0.values()
    }

    /// The sizes in words, after a number of copies: ` of 4 B`; ` (60 of 4 B, 1 of 64.0 KiB)`;
    /// ` (4 B to 64.0 KiB, half of them at most 31 B)`. Empty if none is known.
    pub fn in_words(&self) -> String {
        let (Some(first), Some(last)) = (self.0.values().next(), self.0.values().next_back()) else {
            return String::new();
        };
        if first.least == last.most {
            return format!(" of {}", units::bytes(first.least));
        }
        if self.0.len() <= NAMED && self.groups().all(|group| group.least == group.most) {
            let mut groups: Vec<&SizeGroup> = self.groups().collect();
            groups.order_by_key(|group| (std::cmp::Reverse(group.count), group.least));
            let named = |group: &&SizeGroup| {
                format!("{} of {}", units::count(group.count), units::bytes(group.least))
            };
            return format!(" ({})", groups.iter().map(named).collect::<Vec<_>>().join(", "));
        }
        let range = format!("{} to {}", units::bytes(first.least), units::bytes(last.most));
        match self.median_at_most().filter(|median| *median < last.most) {
            Some(median) => format!(" ({range}, half of them at most {})", units::bytes(median)),
            None => format!(" ({range})"),
        }
    }

    /// A size that at least half of them do not exceed.
    fn median_at_most(&self) -> Option<u64> {
        let all: u128 = self.groups().map(|group| u128::from(group.count)).sum();
        let mut seen = 0;
        let is_half = |group: &&SizeGroup| {
            seen += u128::from(group.count);
            2 * seen >= all
        };
        self.0.values().find(is_half).map(|group| group.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(of: &[(u64, u64)]) -> Sizes {
        let mut sizes = Sizes::default();
        of.iter().for_each(|&(bytes, count)| sizes.merge(&Sizes::of(bytes, count)));
        sizes
    }

    #[test]
    fn words_name_no_size_that_no_copy_has() {
        let cases: [(&[(u64, u64)], &str); 7] = [
            (&[], ""),
            (&[(4, 61)], " of 4 B"),
            (&[(65_536, 1), (4, 60)], " (60 of 4 B, 1 of 64.0 KiB)"),
            (&[(0, 2), (1, 2)], " (2 of 0 B, 2 of 1 B)"),
            (&[(4, 5), (5, 5)], " (4 B to 5 B)"),
            (&[(1, 6), (3, 1), (9, 1), (30, 4)], " (1 B to 30 B, half of them at most 1 B)"),
            (&[(1, 1), (3, 1), (9, 1), (30, 4)], " (1 B to 30 B)"),
        ];
        for (of, words) in cases {
            assert_eq!(sizes(of).in_words(), words, "{of:?}");
        }
    }

    #[test]
    fn sizes_add_up_in_any_order_and_keep_their_extremes() {
        let one = sizes(&[(5, 1), (7, 2), (1 << 40, 3)]);
        let other = sizes(&[(4, 10), (u64::MAX, 1)]);
        let (mut ab, mut ba) = (one.clone(), other.clone());
        ab.merge(&other);
        ba.merge(&one);
        assert_eq!(ab, ba);
        let groups: Vec<SizeGroup> = ab.clone().into();
        assert_eq!(groups[0], SizeGroup { least: 4, most: 7, count: 13 });
        assert_eq!(groups.len(), 3);
        let mut single = Sizes::default();
        (0..3).for_each(|_| single.add(1 << 40));
        assert_eq!(single, sizes(&[(1 << 40, 3)]));
        assert_eq!(ab.scaled(0.1), sizes(&[(4, 1)]).with_most(7), "no part of a copy is left");
    }

    impl Sizes {
        fn with_most(mut self, most: u64) -> Self {
            self.0.values_mut().for_each(|group| group.most = most);
            self
        }
    }
}
