//! Random numbers that depend on nothing but their seeds.
//!
//! The recorded results of a GPU belong to inputs that are made again from seeds, so what this
//! module gives for a seed must never change.

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Random(apex_random::Random);

impl Random {
    /// The stream that these numbers select.
    pub fn of(seeds: &[u64]) -> Random {
        // Each step is one of SplitMix64's, whose increment this is.
        let step = |state: u64, seed: &u64| {
            let mixed = state ^ seed.wrapping_mul(0xff51_afd7_ed55_8ccd);
            mixed.wrapping_add(0x9e37_79b9_7f4a_7c15).rotate_left(23)
        };
        Random(apex_random::Random::new(seeds.iter().fold(0, step)))
    }

    /// The stream that belongs to a name.
    pub fn named(name: &str) -> Random {
        Random::of(&[apex_random::hash(0, name.as_bytes())])
    }

    /// 64 random bits.
    #[allow(
        clippy::should_implement_trait,
        reason = "it never ends, so an iterator's `next` would always be `Some`"
    )]
    pub fn next(&mut self) -> u64 {
        self.0.bits()
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
