//! How the values of a register lie to each other from lane to lane.
//!
//! Kernels address memory by thread: the lanes of a warp access one element after the other, or all the same one; and
//! where a block is 8 or 16 threads wide, parts of the warp do. A [`Pattern`] says so in a few numbers, from which the
//! addresses of all lanes can be checked and accessed without being computed. It is found once for all accesses of a
//! straight run that share a register (see [`super::compile`]'s `fold`).

use super::lanes::WARP;
use super::vectors::{steady_longs, steady_words};

/// Lanes of a part.
pub(super) const PART: usize = 8;

/// Parts of a warp.
pub(super) const PARTS: usize = WARP / PART;

/// Values that rise by the same step from lane to lane within each part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    /// The value in the first lane of each part.
    pub(super) first: [i64; PARTS],
    /// What each lane has more than the one before it.
    pub(super) step: i64,
    /// The smallest value.
    pub(super) least: i64,
    /// The largest value.
    pub(super) most: i64,
}

impl Pattern {
    /// The pattern of the values of a word, read as signed or unsigned numbers, if they have one.
    #[inline(always)]
    pub(super) fn of_words(values: &[u32; WARP], signed: bool) -> Option<Pattern> {
        let step = values[1].wrapping_sub(values[0]);
        if !steady_words(values, step) {
            return None;
        }
        let widen = |word: u32| if signed { i64::from(word as i32) } else { i64::from(word) };
        let ends = |part: usize| (widen(values[part * PART]), widen(values[part * PART + PART - 1]));
        let (ends, step) = ([ends(0), ends(1), ends(2), ends(3)], i64::from(step as i32));
        // What rises through the end of the numbers is no rise when widened.
        let mut rises = true;
        for (first, last) in ends {
            rises &= first + (PART as i64 - 1) * step == last;
        }
        rises.then(|| Pattern::new(ends, step))
    }

    /// The pattern of the values of a long, read as signed numbers, if they have one.
    #[inline(always)]
    pub(super) fn of_longs(values: &[u64; WARP]) -> Option<Pattern> {
        let step = values[1].wrapping_sub(values[0]);
        if i32::try_from(step as i64).is_err() || !steady_longs(values, step) {
            return None;
        }
        let ends = |part: usize| (values[part * PART] as i64, values[part * PART + PART - 1] as i64);
        Some(Pattern::new([ends(0), ends(1), ends(2), ends(3)], step as i64))
    }

    /// From the first and the last value of each part.
    #[inline(always)]
    fn new(ends: [(i64, i64); PARTS], step: i64) -> Pattern {
        let (mut least, mut most) = (i64::MAX, i64::MIN);
        for (first, last) in ends {
            least = least.min(first).min(last);
            most = most.max(first).max(last);
        }
        Pattern { first: ends.map(|ends| ends.0), step, least, most }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(pattern: &Pattern) -> [i64; WARP] {
        std::array::from_fn(|lane| pattern.first[lane / PART] + (lane % PART) as i64 * pattern.step)
    }

    fn random(seed: &mut u64) -> u64 {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        *seed
    }

    #[test]
    fn a_pattern_gives_back_the_values() {
        let (mut seed, mut found, mut refused) = (99, 0, 0);
        for round in 0..40_000u64 {
            let step = [0, 1, 4, 8, -4i64 as u64, random(&mut seed) >> 40][round as usize % 6];
            let starts: [u64; PARTS] = std::array::from_fn(|_| match round % 4 {
                0 => random(&mut seed),
                1 => (random(&mut seed) % 64).wrapping_sub(32),
                2 => (1 << 31) - random(&mut seed) % 64,
                _ => (1 << 32) - random(&mut seed) % 64,
            });
            let mut values: [u64; WARP] = std::array::from_fn(|lane| {
                starts[lane / PART].wrapping_add(step.wrapping_mul((lane % PART) as u64))
            });
            if round % 5 == 0 {
                values[random(&mut seed) as usize % WARP] ^= 1 << (random(&mut seed) % 64);
            }
            let words = values.map(|value| value as u32);
            let cases = [
                (Pattern::of_longs(&values), values.map(|value| value as i64)),
                (Pattern::of_words(&words, false), words.map(i64::from)),
                (Pattern::of_words(&words, true), words.map(|word| i64::from(word as i32))),
            ];
            for (pattern, expected) in cases {
                let Some(pattern) = pattern else {
                    refused += 1;
                    continue;
                };
                found += 1;
                // Longs may wrap around, which an address cannot: accesses check where they end up.
                let wraps = pattern.first.iter().any(|first| first.checked_add(7 * pattern.step).is_none());
                if !wraps {
                    assert_eq!(expand(&pattern), expected);
                    assert_eq!(pattern.least, *expected.iter().min().unwrap());
                    assert_eq!(pattern.most, *expected.iter().max().unwrap());
                }
            }
        }
        assert!(found > 20_000 && refused > 20_000, "{found} found, {refused} refused");
    }

    #[test]
    fn words_that_wrap_have_no_pattern() {
        let values: [u32; WARP] = std::array::from_fn(|lane| 0xffff_fffcu32.wrapping_add(lane as u32));
        assert_eq!(Pattern::of_words(&values, false), None);
        assert!(Pattern::of_words(&values, true).is_some());
        let values = values.map(|value| value.wrapping_add(1 << 31));
        assert_eq!(Pattern::of_words(&values, true), None);
        assert!(Pattern::of_words(&values, false).is_some());
    }
}
