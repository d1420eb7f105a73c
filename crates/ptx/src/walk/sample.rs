//! Which warps stand for all of a launch.
//!
//! Of the grid: the first block, the last, and some between them, each from a stretch of its own. Of a block: the first warp, the
//! last, and one of each stretch between them, the stretches doubling in length, since work that shrinks with the number of the
//! thread (as in a tree of sums) mostly halves.

/// Blocks between the first and the last that are looked at.
const INNER_BLOCKS: u64 = 3;

/// Something that stands for `weight` things of its kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    pub(super) index: u64,
    pub(super) weight: f64,
}

/// Blocks that stand for all `count`.
pub(super) fn blocks(count: u64) -> Vec<Sample> {
    let mut samples = ends(count);
    let inner = count.saturating_sub(2);
    let stretches = inner.min(INNER_BLOCKS);
    let edge =
        |stretch: u64| 1 + (u128::from(inner) * u128::from(stretch) / u128::from(stretches.max(1))) as u64;
    samples.extend((0..stretches).map(|stretch| pick(edge(stretch), edge(stretch + 1), stretch)));
    samples
}

/// Warps that stand for all `count` of a block; `turn` chooses others each time.
pub(super) fn warps(count: u64, turn: u64) -> Vec<Sample> {
    let mut samples = ends(count);
    let mut from = 1;
    while from + 1 < count {
        let to = (2 * from).min(count - 1);
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
            for samples in [blocks(count), warps(count.min(32), count)] {
                let count = if samples == blocks(count) { count } else { count.min(32) };
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
