//! Estimates how many different sectors the atomic operations of a launch access, from the sectors
//! that a few sampled warps access.
//!
//! Warps draw sectors from a population whose size is to be estimated. Three numbers bound the
//! size: the number of all draws; where draws repeat, the size for which as many repeats are
//! likely; and the range between the lowest and the highest sector. The smallest bound is used.
//! However, if most sectors are adjacent, repeats mean nothing, because warps that process an array
//! share the sectors at their boundaries; then only the draws and the range count.

use std::collections::{BTreeMap, HashSet};

/// Draws that are remembered, of all warps and of one.
const MOST_DRAWS: usize = 16_384;
const MOST_OF_WARP: usize = 512;
/// Stretches of memory that are told apart; addresses of one have the same upper bits.
const MOST_REGIONS: usize = 64;
const REGION_BITS: u32 = 27;

/// Sectors that were seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Contention {
    /// Sectors of all warps, including the current one.
    seen: HashSet<u64>,
    own: HashSet<u64>,
    /// Draws by warps, each sector once for a warp; and however often.
    draws: usize,
    repeated: usize,
    /// Draws of the warp that is on its way.
    of_warp: usize,
    /// The first and the last sector of each stretch of memory.
    regions: BTreeMap<u64, (u64, u64)>,
}

impl Contention {
    /// Another warp is on its way.
    pub(super) fn begin(&mut self) {
        self.own.clear();
        self.of_warp = 0;
    }

    /// An operation touches these sectors, each named once.
    pub(super) fn touch(&mut self, sectors: &[u64]) {
        for &sector in sectors {
            let region = sector >> REGION_BITS;
            if self.regions.len() < MOST_REGIONS || self.regions.contains_key(&region) {
                let (first, last) = self.regions.entry(region).or_insert((sector, sector));
                (*first, *last) = (sector.min(*first), sector.max(*last));
            }
            if self.of_warp < MOST_OF_WARP && self.repeated < MOST_DRAWS {
                self.of_warp += 1;
                self.repeated += 1;
                self.draws += usize::from(self.own.insert(sector));
                self.seen.insert(sector);
            }
        }
    }

    /// Sectors that the launch touches, if it draws `all` times.
    pub(super) fn sectors(&self, all: f64) -> f64 {
        let seen = self.seen.len() as f64;
        if seen == 0.0 {
            return 0.0;
        }
        let span: f64 = self.regions.values().map(|(first, last)| (last - first + 1) as f64).sum();
        let all = all * self.draws as f64 / self.repeated as f64;
        let places = if self.dense() { None } else { places(seen, self.draws as f64) };
        let drawn = places.map_or(all, |places| -places * (-all / places).exp_m1());
        drawn.min(all).min(span).max(seen)
    }

    /// Whether most sectors that were seen have a neighbour that was.
    fn dense(&self) -> bool {
        let beside =
            |sector: u64| [sector.wrapping_sub(1), sector + 1].iter().any(|other| self.seen.contains(other));
        2 * self.seen.iter().filter(|&&sector| beside(sector)).count() >= self.seen.len()
    }
}

/// Returns the most likely number of places if `draws` of them hit `seen` different ones; `None` if
/// no draw repeats another.
fn places(seen: f64, draws: f64) -> Option<f64> {
    if draws - seen < 0.5 {
        return None;
    }
    // places * (1 - exp(-draws / places)) grows with the places, up to the draws.
    let (mut least, mut most) = (seen, draws * draws);
    for _ in 0..60 {
        let middle = (least * most).sqrt();
        match -middle * (-draws / middle).exp_m1() < seen {
            true => least = middle,
            false => most = middle,
        }
    }
    Some(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the estimate for `all` draws, after warps have made these.
    fn after(warps: impl Iterator<Item = Vec<u64>>, all: f64) -> f64 {
        let mut contention = Contention::default();
        for sectors in warps {
            contention.begin();
            contention.touch(&sectors);
        }
        contention.sectors(all)
    }

    #[test]
    fn places_are_found_again() {
        // Of 1000 places that lie 64 apart, 400 random draws.
        let mut state = 1u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % 1000
        };
        let warps: Vec<_> = (0..40).map(|_| (0..10).map(|_| 64 * random()).collect()).collect();
        let sectors = after(warps.into_iter(), 1e9);
        assert!((800.0..1250.0).contains(&sectors), "{sectors}");
    }

    #[test]
    fn edges_that_neighbours_share_are_no_repeats() {
        // Of 10,000 sectors that lie side by side each warp has five, the last of which is the next
        // warp's first.
        let warps = (0..40).map(|warp| 4 * (warp / 2 * 131 + warp % 2));
        let sectors = after(warps.map(|first| (first..first + 5).collect()).chain([vec![9_999]]), 1e9);
        assert_eq!(sectors, 10_000.0);
    }

    #[test]
    fn without_repeats_all_draws_differ_as_far_as_there_is_room() {
        let apart = |distance: u64| (0..32).map(move |warp| vec![warp * distance]);
        assert_eq!(after(apart(1 << 20), 64_000.0), 64_000.0);
        assert_eq!(after(apart(1000), 64_000.0), 31_001.0);
        assert_eq!(after((0..32).map(|_| vec![7]), 64_000.0), 1.0);
        assert_eq!(after(std::iter::empty(), 0.0), 0.0);
    }
}
