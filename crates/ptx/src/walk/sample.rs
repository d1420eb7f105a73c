//! Which warps stand for all of a launch.
//!
//! Of the grid: the first block, the last, and some between them, each from a stretch of its own. Of a block: the first warp, the
//! last, and one of each stretch between them, the stretches growing in length, since work that shrinks with the number of the
//! thread (as in a tree of sums) mostly halves.

/// How many warps are looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Density {
    /// Blocks between the first and the last.
    inner_blocks: u64,
    /// How much longer each stretch of warps is than what is before it; 1 for all warps.
    growth: u64,
}

impl Density {
    /// As many warps as may take `budget` steps in all, between about 10 and 50, if one takes `cost`.
    pub(super) fn of(budget: u64, cost: u64, blocks: u64, warps: u64) -> Density {
        let affordable = (budget / cost.max(1)).min(MOST_WARPS);
        let of_block = |growth| self::warps(warps, growth, 0).len() as u64;
        let fits = |growth: &u64| blocks.min(LEAST_BLOCKS) * of_block(*growth) <= affordable;
        let growth = [1, 2, 4].into_iter().find(fits).unwrap_or(32);
        Density { inner_blocks: (affordable / of_block(growth)).max(LEAST_BLOCKS) - 2, growth }
    }
}

/// Blocks that are looked at, at least, where there are as many.
const LEAST_BLOCKS: u64 = 4;
/// Warps that are looked at, about.
const MOST_WARPS: u64 = 48;

/// Something that stands for `weight` things of its kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    pub(super) index: u64,
    pub(super) weight: f64,
}

/// Warps of blocks that stand for all of a grid; `turn` chooses others each time.
pub(super) fn warps_of_grid(blocks: u64, warps: u64, density: Density, turn: u64) -> Vec<(Sample, Sample)> {
    let turns = turn * (density.inner_blocks + 2);
    let blocks = self::blocks(blocks, density.inner_blocks, turns);
    let warps = |(turn, block)| {
        let warps = self::warps(warps, density.growth, turn);
        warps.into_iter().map(move |warp| (block, warp))
    };
    (turns..).zip(blocks).flat_map(warps).collect()
}

/// Blocks that stand for all `count`.
fn blocks(count: u64, inner_blocks: u64, turn: u64) -> Vec<Sample> {
    let mut samples = ends(count);
    let inner = count.saturating_sub(2);
    let stretches = inner.min(inner_blocks);
    let edge =
        |stretch: u64| 1 + (u128::from(inner) * u128::from(stretch) / u128::from(stretches.max(1))) as u64;
    samples.extend((0..stretches).map(|stretch| pick(edge(stretch), edge(stretch + 1), turn + stretch)));
    samples
}

/// Warps that stand for all `count` of a block.
fn warps(count: u64, growth: u64, turn: u64) -> Vec<Sample> {
    let mut samples = ends(count);
    let mut from = 1;
    while from + 1 < count {
        let to = (growth * from).max(from + 1).min(count - 1);
        samples.push(pick(from, to, turn));
        from = to;
    }
    samples
}

/// The first and the last.
fn ends(count: u64) -> Vec<Sample> {
    let mut ends = vec![Sample { index: 0, weight: 1.0 }];
    ends.extend((count > 1).then(|| Sample { index: count - 1, weight: 1.0 }));
    ends
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
    fn samples_stand_for_all_and_lie_among_them() {
        for count in (1..200).chain([1 << 20, u64::from(u32::MAX) << 20]) {
            let in_block = count.min(32);
            for (samples, count) in [
                (blocks(count, 3, count), count),
                (blocks(count, 46, 0), count),
                (warps(in_block, 1, count), in_block),
                (warps(in_block, 2, count), in_block),
                (warps(in_block, 32, count), in_block),
            ] {
                assert_eq!(samples.iter().map(|sample| sample.weight).sum::<f64>(), count as f64);
                assert!(samples.iter().all(|sample| sample.index < count), "{count}: {samples:?}");
                let mut indices: Vec<_> = samples.iter().map(|sample| sample.index).collect();
                indices.sort_unstable();
                indices.dedup();
                assert_eq!(indices.len(), samples.len(), "{count}: {samples:?}");
            }
        }
    }
}
