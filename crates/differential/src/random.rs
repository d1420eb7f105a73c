//! Random numbers that depend on nothing but their seed: SplitMix64.
//!
//! The recorded results of a GPU belong to inputs that are made again from seeds, so what this module gives for a
//! seed must never change.

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream that these numbers select.
    pub fn of(seeds: &[u64]) -> Random {
        let mut random = Random(0);
        for seed in seeds {
            random.0 ^= seed.wrapping_mul(0xff51_afd7_ed55_8ccd);
            random.next();
            random.0 = random.0.rotate_left(23);
        }
        random
    }

    /// The stream that belongs to a name.
    pub fn named(name: &str) -> Random {
        // FNV-1a.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Random::of(&[hash])
    }

    /// 64 random bits.
    #[allow(
        clippy::should_implement_trait,
        reason = "it never ends, so an iterator's `next` would always be `Some`"
    )]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// One of `choices`, which is not empty.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }

    /// True once in `times`.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_what_they_were_when_the_corpus_was_recorded() {
        assert_eq!(Random::of(&[1, 2, 3]).next(), 16484122606594399206);
        assert_eq!(Random::named("add.u32").next(), 11726224916935883272);
    }
}
