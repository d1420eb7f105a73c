//! The edges of recent batches: a batch that came before with the same parameters has the edges
//! that it had then, which costs the host less than to compute them.
//!
//! # Invariants
//! 1. *Nothing is taken for something else*: functions, dimensions and parameters are compared, not
//!    hashes of them.
//! 2. *Nothing else has changed*: the loaded code and the allocations are the same ([`Version`]).

use super::edges::Edges;
use super::heeds;
use crate::tables::{push, put};
use cuda_abi::types::*;
use std::collections::HashMap;

/// Most batches that are remembered for each sequence.
const MOST_BATCHES: usize = 4;
/// Most sequences whose batches are remembered.
const MOST_SEQUENCES: usize = 1 << 10;

/// Which code and which allocations there are: a number that changes with each change of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Version {
    /// The epoch of modules.
    pub code: u32,
    /// The number of changes of the allocations.
    pub memory: u64,
}

/// The inputs of the edges in a launch: its function, dimensions and parameters.
pub type Launch<'a> = (CUfunction, [u32; 7], &'a [u8]);

/// See the [module](self).
#[derive(Default)]
pub struct Recent {
    version: Version,
    sequences: HashMap<u64, Vec<Batch>>,
}

struct Batch {
    launches: Vec<(CUfunction, [u32; 7], usize)>,
    /// The parameters of all launches, one after the other.
    parameters: Vec<u8>,
    edges: Edges,
}

impl Recent {
    /// The edges that this batch of a sequence had before, if it is remembered.
    pub fn edges<'a>(
        &self,
        version: Version,
        sequence: u64,
        launches: impl ExactSizeIterator<Item = Launch<'a>> + Clone,
    ) -> Option<Edges> {
        let batches = self.sequences.get(&sequence).filter(|_| version == self.version)?;
        batches.iter().find(|batch| batch.is_of(launches.clone())).map(|batch| batch.edges)
    }

    /// Remembers the edges of a batch instead of those of the oldest one of its sequence.
    pub fn keep<'a>(
        &mut self,
        version: Version,
        sequence: u64,
        launches: impl ExactSizeIterator<Item = Launch<'a>>,
        edges: Edges,
    ) {
        if version != self.version || self.sequences.len() >= MOST_SEQUENCES {
            *self = Recent { version, sequences: HashMap::new() };
        }
        if !self.sequences.contains_key(&sequence) && !put(&mut self.sequences, sequence, Vec::new()) {
            return;
        }
        let (Some(batches), Some(batch)) = (self.sequences.get_mut(&sequence), Batch::of(launches, edges))
        else {
            return;
        };
        if batches.len() >= MOST_BATCHES {
            batches.remove(0);
        }
        push(batches, batch);
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.sequences.clear();
    }
}

impl Batch {
    fn of<'a>(launches: impl ExactSizeIterator<Item = Launch<'a>>, edges: Edges) -> Option<Batch> {
        let mut batch = Batch { launches: Vec::new(), parameters: Vec::new(), edges };
        batch.launches.try_reserve_exact(launches.len()).ok()?;
        for (function, dimensions, parameters) in launches {
            batch.launches.push((function, dimensions, parameters.len()));
            batch.parameters.try_reserve(parameters.len()).ok()?;
            batch.parameters.extend_from_slice(parameters);
        }
        Some(batch)
    }

    fn is_of<'a>(&self, launches: impl ExactSizeIterator<Item = Launch<'a>>) -> bool {
        let mut rest = self.parameters.as_slice();
        self.launches.len() == launches.len()
            && self.launches.iter().zip(launches).all(|(&(function, dimensions, bytes), launch)| {
                let (held, behind) = rest.split_at(bytes);
                rest = behind;
                (function, dimensions) == (launch.0, launch.1)
                    && (held == launch.2 || !heeds("schedule-parameters"))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(function: u64, blocks: u32, parameters: &[u8]) -> Launch<'_> {
        (function as CUfunction, [blocks, 1, 1, 32, 1, 1, 0], parameters)
    }

    #[test]
    fn a_batch_is_known_by_all_that_its_edges_follow_from() {
        let now = Version { code: 3, memory: 5 };
        let batch = [launch(1, 8, &[1, 2]), launch(2, 8, &[3])];
        let mut recent = Recent::default();
        recent.keep(now, 7, batch.into_iter(), Edges::CHAIN);
        let known = |recent: &Recent, version, sequence, batch: &[Launch]| {
            recent.edges(version, sequence, batch.iter().copied()).is_some()
        };
        assert!(known(&recent, now, 7, &batch));
        let other_batches = [
            [launch(9, 8, &[1, 2]), batch[1]],
            [launch(1, 9, &[1, 2]), batch[1]],
            [batch[0], launch(2, 8, &[4])],
            [launch(1, 8, &[1]), launch(2, 8, &[2, 3])],
        ];
        for other in &other_batches {
            assert!(!known(&recent, now, 7, other), "{other:?}");
        }
        assert!(!known(&recent, now, 7, &batch[..1]) && !known(&recent, now, 8, &batch));
        let (loaded, freed) = (Version { code: 4, ..now }, Version { memory: 6, ..now });
        assert!(!known(&recent, loaded, 7, &batch) && !known(&recent, freed, 7, &batch));
    }

    #[test]
    fn the_oldest_batch_of_a_sequence_is_forgotten() {
        let (now, mut recent) = (Version::default(), Recent::default());
        let numbers: Vec<[u8; 1]> = (0..=MOST_BATCHES as u8).map(|number| [number]).collect();
        for number in &numbers {
            recent.keep(now, 1, [launch(1, 1, number)].into_iter(), Edges::CHAIN);
        }
        let known: Vec<bool> = numbers
            .iter()
            .map(|number| recent.edges(now, 1, [launch(1, 1, number)].into_iter()).is_some())
            .collect();
        assert_eq!(known, [false, true, true, true, true]);
        recent.keep(Version { code: 1, memory: 0 }, 1, [].into_iter(), Edges::CHAIN);
        assert_eq!(recent.sequences[&1].len(), 1, "those of other code are gone");
    }
}
