//! The pattern of a register's values between the lanes of a warp, and between warps.
//!
//! Kernels compute addresses from the thread index: the lanes of a warp access consecutive
//! elements, or all the same element, or, in blocks that are 8 or 16 threads wide, parts of the
//! warp do so. The warps of a batch do the same at a constant distance. A [`Pattern`] describes
//! this by a few numbers, from which the addresses of all lanes can be checked and accessed without
//! being computed. It is determined once for all accesses of a straight run that share a register
//! (see [`crate::compile`]'s `fold`).

use crate::registers::lanes::WARP;
use crate::registers::vectors::{apart_longs, apart_words, steady_longs, steady_words};

/// Lanes of a part.
pub(crate) const PART: usize = 8;

/// Parts of a warp.
pub(crate) const PARTS: usize = WARP / PART;

/// Values that rise by the same step from lane to lane within each part, and by the same distance
/// from warp to warp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    /// The value in the first lane of each part of the first warp.
    pub(crate) first: [i64; PARTS],
    /// The difference of each lane from the one before it.
    pub(crate) step: i64,
    /// The difference of each warp from the one before it.
    pub(crate) between: i64,
    /// The smallest value.
    pub(crate) least: i64,
    /// The largest value.
    pub(crate) most: i64,
}

impl Pattern {
    /// The pattern of the values of a word in some warps, read as signed or unsigned numbers, if
    /// they have one.
    #[inline(always)]
    pub(crate) fn of_words<'v>(
        mut warps: impl Iterator<Item = &'v [u32; WARP]>,
        signed: bool,
    ) -> Option<Pattern> {
        let values = warps.next()?;
        let step = values[1].wrapping_sub(values[0]);
        if !steady_words(values, step) {
            return None;
        }
        let (mut between, mut distance, mut others) = (0, 0u32, 0);
        for other in warps {
            if others == 0 {
                between = other[0].wrapping_sub(values[0]);
            }
            distance = distance.wrapping_add(between);
            if !apart_words(values, other, distance) {
                return None;
            }
            others += 1;
        }
        let widen = |word: u32| if signed { i64::from(word as i32) } else { i64::from(word) };
        let first = std::array::from_fn(|part| widen(values[part * PART]));
        let found = Pattern::new(first, i64::from(step as i32), i64::from(between as i32), others)?;
        // What rises through the end of the numbers is no rise when widened.
        let numbers =
            if signed { i64::from(i32::MIN)..=i64::from(i32::MAX) } else { 0..=i64::from(u32::MAX) };
        (numbers.contains(&found.least) && numbers.contains(&found.most)).then_some(found)
    }

    /// The pattern of the values of a long in some warps, read as signed numbers, if they have one.
    #[inline(always)]
    pub(crate) fn of_longs<'v>(mut warps: impl Iterator<Item = &'v [u64; WARP]>) -> Option<Pattern> {
        let values = warps.next()?;
        let step = values[1].wrapping_sub(values[0]);
        if i32::try_from(step as i64).is_err() || !steady_longs(values, step) {
            return None;
        }
        let (mut between, mut distance, mut others) = (0, 0u64, 0);
        for other in warps {
            if others == 0 {
                between = other[0].wrapping_sub(values[0]);
            }
            distance = distance.wrapping_add(between);
            if !apart_longs(values, other, distance) {
                return None;
            }
            others += 1;
        }
        let first = std::array::from_fn(|part| values[part * PART] as i64);
        Pattern::new(first, step as i64, between as i64, others)
    }

    /// The same with `distance` added to each value. Values and distance are words.
    #[inline(always)]
    pub(crate) fn moved(&self, distance: i64) -> Pattern {
        Pattern {
            first: self.first.map(|first| first + distance),
            least: self.least + distance,
            most: self.most + distance,
            ..*self
        }
    }

    /// Creates the pattern of a warp and `others` others; `None` if its values wrap around.
    #[inline(always)]
    fn new(first: [i64; PARTS], step: i64, between: i64, others: i64) -> Option<Pattern> {
        let (rise, furthest) = (step * (PART as i64 - 1), between.checked_mul(others)?);
        let (mut least, mut most) = (first[0], first[0]);
        for first in first {
            (least, most) = (least.min(first), most.max(first));
        }
        let least = least.checked_add(rise.min(0))?.checked_add(furthest.min(0))?;
        let most = most.checked_add(rise.max(0))?.checked_add(furthest.max(0))?;
        Some(Pattern { first, step, between, least, most })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use apex_random::Random;

    fn expand(pattern: &Pattern, warps: usize) -> Vec<[i64; WARP]> {
        let value = |warp: usize, lane: usize| {
            let first = pattern.first[lane / PART] + warp as i64 * pattern.between;
            first + (lane % PART) as i64 * pattern.step
        };
        (0..warps).map(|warp| std::array::from_fn(|lane| value(warp, lane))).collect()
    }

    #[test]
    fn a_pattern_gives_back_the_values() {
        let (mut random, mut found, mut refused) = (Random::new(99), 0, 0);
        for round in 0..40_000u64 {
            let step = [0, 1, 4, 8, -4i64 as u64, random.bits() >> 40][round as usize % 6];
            let starts: [u64; PARTS] = std::array::from_fn(|_| match round % 4 {
                0 => random.bits(),
                1 => (random.bits() % 64).wrapping_sub(32),
                2 => (1 << 31) - random.bits() % 64,
                _ => (1 << 32) - random.bits() % 64,
            });
            let warps = 1 + random.bits() % 4;
            let between = [0, 32, step.wrapping_mul(32), random.bits() >> 40][random.bits() as usize % 4];
            let of_warp = |warp: u64| -> [u64; WARP] {
                std::array::from_fn(|lane| {
                    let rise =
                        step.wrapping_mul((lane % PART) as u64).wrapping_add(between.wrapping_mul(warp));
                    starts[lane / PART].wrapping_add(rise)
                })
            };
            let mut values: Vec<[u64; WARP]> = (0..warps).map(of_warp).collect();
            if round % 5 == 0 {
                let warp = &mut values[(random.bits() % warps) as usize];
                warp[random.bits() as usize % WARP] ^= 1 << (random.bits() % 64);
            }
            let words: Vec<[u32; WARP]> = values.iter().map(|warp| warp.map(|value| value as u32)).collect();
            let widened =
                |widen: fn(u32) -> i64| words.iter().map(|warp| warp.map(widen)).collect::<Vec<_>>();
            let cases = [
                (
                    Pattern::of_longs(values.iter()),
                    values.iter().map(|warp| warp.map(|value| value as i64)).collect(),
                ),
                (Pattern::of_words(words.iter(), false), widened(i64::from)),
                (Pattern::of_words(words.iter(), true), widened(|word| i64::from(word as i32))),
            ];
            for (pattern, expected) in cases {
                let Some(pattern) = pattern else {
                    refused += 1;
                    continue;
                };
                found += 1;
                assert_eq!(expand(&pattern, warps as usize), expected);
                assert_eq!(Some(&pattern.least), expected.iter().flatten().min());
                assert_eq!(Some(&pattern.most), expected.iter().flatten().max());
            }
        }
        assert!(found > 20_000 && refused > 20_000, "{found} found, {refused} refused");
    }

    #[test]
    fn words_that_wrap_have_no_pattern() {
        let values: [u32; WARP] = std::array::from_fn(|lane| 0xffff_fffcu32.wrapping_add(lane as u32));
        assert_eq!(Pattern::of_words([&values].into_iter(), false), None);
        assert!(Pattern::of_words([&values].into_iter(), true).is_some());
        let values = values.map(|value| value.wrapping_add(1 << 31));
        assert_eq!(Pattern::of_words([&values].into_iter(), true), None);
        assert!(Pattern::of_words([&values].into_iter(), false).is_some());
    }
}
