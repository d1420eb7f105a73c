//! Random numbers that are the same in every run: a sequence for choosing launches, and a function for inputs.

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of a seed and of what it is for.
    pub fn of(seed: u64, purpose: &str) -> Random {
        let hash = |state: u64, byte: u8| (state ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        Random(purpose.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, hash))
    }

    /// 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number below `end`, which is not zero.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u64
    }

    /// One of `choices`, which is not empty.
    pub fn choose<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// From 0 to below 1.
    pub fn fraction(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Between two positive numbers such that each doubling is equally likely.
    pub fn logarithmic(&mut self, low: f64, high: f64) -> f64 {
        low * (high / low).powf(self.fraction())
    }
}

/// Element `index` of the random words of `seed`, as `crates/device-code/suite/fill.cu` computes it.
pub fn word(index: u32, seed: u32) -> u32 {
    let mut bits = index.wrapping_mul(0x9e37_79b9).wrapping_add(seed);
    bits = (bits ^ (bits >> 16)).wrapping_mul(0x85eb_ca6b);
    bits = (bits ^ (bits >> 13)).wrapping_mul(0xc2b2_ae35);
    bits ^ (bits >> 16)
}

/// The same as a number from -1 to below 1, exact in 24 bits.
pub fn single(index: u32, seed: u32) -> f32 {
    (word(index, seed) >> 8) as f32 / (1 << 23) as f32 - 1.0
}

/// The same as a number from -1 to below 1, exact in 32 bits.
pub fn double(index: u32, seed: u32) -> f64 {
    f64::from(word(index, seed)) / f64::from(1u32 << 31) - 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_differ_by_seed_and_purpose_and_repeat() {
        let first = |seed, purpose| Random::of(seed, purpose).bits();
        assert_eq!(first(1, "a"), first(1, "a"));
        assert_ne!(first(1, "a"), first(2, "a"));
        assert_ne!(first(1, "a"), first(1, "b"));
    }

    #[test]
    fn numbers_lie_in_their_ranges() {
        let mut random = Random::of(7, "ranges");
        for _ in 0..10_000 {
            assert!(random.below(3) < 3);
            let value = random.logarithmic(2.0, 1e6);
            assert!((2.0..=1e6).contains(&value), "{value}");
        }
        let inputs: Vec<f32> = (0..10_000).map(|index| single(index, 5)).collect();
        assert!(inputs.iter().all(|value| (-1.0..1.0).contains(value)));
        let mean = inputs.iter().sum::<f32>() / inputs.len() as f32;
        assert!(mean.abs() < 0.05, "{mean}");
    }
}
