//! The samples of timed launches, for the second reading of their process, which requests them in
//! the order of time.

/// Readings that are kept.
const MOST: usize = 1 << 19;

/// The sample of a timed launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    /// Its time.
    pub ns: u64,
    /// Whether its stream was empty when it was launched.
    pub idle: bool,
}

/// Samples by the ticks when their calls began.
#[derive(Default)]
pub(super) struct Sampled {
    list: Vec<(u64, Sample)>,
}

/// The position among the samples of a reading in the order of time.
#[derive(Default)]
pub(super) struct Cursor(usize);

impl Sampled {
    pub fn add(&mut self, ticks: u64, sample: Sample) {
        if self.list.len() < MOST {
            self.list.push((ticks, sample));
        }
    }

    /// Has to be called between [`Self::add`] and [`Self::at`]. Of several samples of the same
    /// ticks, the last one counts.
    pub fn sort(&mut self) {
        self.list.reverse();
        self.list.sort_by_key(|&(ticks, _)| ticks);
        self.list.dedup_by_key(|&mut (ticks, _)| ticks);
    }

    /// The sample of these ticks. Fast where ticks do not decrease from one question to the next,
    /// right for all.
    pub fn at(&self, ticks: u64, cursor: &mut Cursor) -> Option<Sample> {
        let Cursor(next) = cursor;
        if next.checked_sub(1).is_some_and(|before| self.list[before].0 >= ticks) {
            *next = self.list.partition_point(|&(other, _)| other < ticks);
        }
        while self.list.get(*next).is_some_and(|&(other, _)| other < ticks) {
            *next += 1;
        }
        self.list.get(*next).filter(|&&(other, _)| other == ticks).map(|&(_, sample)| sample)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn samples_are_found_as_in_a_table(
            added in prop::collection::vec((0u64..40, 0u64..1000), 0..60),
            asked in prop::collection::vec(0u64..42, 0..60),
        ) {
            let sample = |ns| Sample { ns, idle: ns % 2 == 0 };
            let mut sampled = Sampled::default();
            added.iter().for_each(|&(ticks, ns)| sampled.add(ticks, sample(ns)));
            sampled.sort();
            let table: HashMap<u64, u64> = added.into_iter().collect();
            let mut cursor = Cursor::default();
            for ticks in asked {
                prop_assert_eq!(sampled.at(ticks, &mut cursor), table.get(&ticks).map(|&ns| sample(ns)));
            }
        }
    }
}
