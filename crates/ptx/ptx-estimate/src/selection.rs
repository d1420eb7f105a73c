//! The initial selection of blocks and warps.
//!
//! Of the grid: the first block, the last one, and some between them, each from a section of its
//! own. Of a block: the first warp, the last one, and one from each section between them. The
//! sections grow in length, because work that depends on the thread index (as in a tree reduction)
//! mostly halves.

/// The density of sampled blocks and warps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Density {
    /// Blocks between the first and the last.
    inner_blocks: u64,
    /// The factor by which each stretch of warps is longer than the one before it; 1 selects all
    /// warps.
    growth: u64,
}

impl Density {
    /// As many warps as may take `budget` steps in all, between about 10 and 100, if one takes
    /// `cost`.
    pub(super) fn of(budget: u64, cost: u64, blocks: u64, warps: u64) -> Density {
        let affordable = (budget / cost.max(1)).min(2 * WARPS);
        let of_block = |growth| stretches(warps, growth, 0).len() as u64;
        // Not every block can be asked for all of its warps: a launch may claim any number.
        let fits = |growth: &u64| {
            (*growth > 1 || warps <= affordable) && blocks.min(LEAST_BLOCKS) * of_block(*growth) <= affordable
        };
        let growth = [1, 2, 4].into_iter().find(fits).unwrap_or(32);
        let blocks = affordable.min(WARPS) / of_block(growth);
        Density { inner_blocks: blocks.max(LEAST_BLOCKS) - 2, growth }
    }
}

/// Blocks that are looked at, at least, where there are as many.
const LEAST_BLOCKS: u64 = 4;
/// Warps that are looked at first, about; up to twice as many if these are all of their blocks.
const WARPS: u64 = 48;

/// Something that stands for `weight` things of its kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    pub(super) index: u64,
    pub(super) weight: f64,
}

/// The blocks of `count` that are looked at first.
pub(super) fn blocks(count: u64, density: Density) -> Vec<u64> {
    let inner = count.saturating_sub(2);
    let stretches = inner.min(density.inner_blocks);
    let edge =
        |stretch: u64| 1 + (u128::from(inner) * u128::from(stretch) / u128::from(stretches.max(1))) as u64;
    let mut blocks = vec![0];
    blocks.extend((0..stretches).map(|stretch| pick(edge(stretch), edge(stretch + 1), stretch).index));
    blocks.extend((count > 1).then(|| count - 1));
    blocks
}

/// A block about half-way between two; `turn` chooses others each time, so that no pattern is
/// followed.
pub(super) fn between(first: u64, last: u64, turn: u64) -> u64 {
    let quarter = (last - first) / 4;
    pick(first + quarter, last - quarter, turn).index.clamp(first + 1, last - 1)
}

/// Warps that stand for all `count` of a block; `turn` chooses others each time.
pub(super) fn warps(count: u64, density: Density, turn: u64) -> Vec<Sample> {
    stretches(count, density.growth, turn)
}

/// The first, the last, and one of each stretch between them.
fn stretches(count: u64, growth: u64, turn: u64) -> Vec<Sample> {
    let mut samples = vec![Sample { index: 0, weight: 1.0 }];
    samples.extend((count > 1).then(|| Sample { index: count - 1, weight: 1.0 }));
    let mut from = 1;
    while from + 1 < count {
        let to = (growth * from).max(from + 1).min(count - 1);
        samples.push(pick(from, to, turn));
        from = to;
    }
    samples
}

/// One of a stretch.
fn pick(from: u64, to: u64, turn: u64) -> Sample {
    // Multiples of the golden ratio fall evenly.
    let place = ((turn as f64 + 1.0) * 0.618_033_988_749_895).fract();
    let length = to - from;
    let index = from + ((place * length as f64) as u64).min(length.saturating_sub(1));
    Sample { index, weight: length as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warps_stand_for_all_and_lie_among_them() {
        for (count, growth) in (1..70).flat_map(|count| [1, 2, 4, 32].map(|growth| (count, growth))) {
            let samples = stretches(count, growth, count);
            assert_eq!(samples.iter().map(|sample| sample.weight).sum::<f64>(), count as f64);
            let mut indices: Vec<_> = samples.iter().map(|sample| sample.index).collect();
            indices.sort_unstable();
            indices.dedup();
            assert_eq!(indices.len(), samples.len(), "{count}: {samples:?}");
            assert!(indices.iter().all(|&index| index < count), "{count}: {samples:?}");
        }
    }

    #[test]
    fn blocks_lie_apart_and_in_the_grid() {
        for count in (1..200).chain([1 << 20, u64::from(u32::MAX) << 20]) {
            for cost in [1, 100, 1 << 20] {
                let blocks = blocks(count, Density::of(50_000, cost, count, 8));
                assert!(blocks.is_sorted_by(|a, b| a < b), "{count}: {blocks:?}");
                assert_eq!((blocks[0], blocks[blocks.len() - 1]), (0, count - 1));
                for (turn, pair) in (0..).zip(blocks.windows(2).filter(|pair| pair[1] - pair[0] > 1)) {
                    let middle = between(pair[0], pair[1], turn);
                    assert!(pair[0] < middle && middle < pair[1], "{pair:?}: {middle}");
                }
            }
        }
    }
}
