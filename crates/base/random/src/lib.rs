//! Random numbers that depend on nothing but their seed: `SplitMix64` of `rand_xoshiro` (Steele,
//! Lea, Flood, OOPSLA 2014).
//!
//! Committed data belongs to these numbers: the launches of the benchmark suite and their inputs,
//! the weights of trained models, what the demo programs print, the recorded corpus of random PTX.
//! What this crate gives for a seed must never change. That is why the distributions are here:
//! those of `rand` may change their results with a minor version.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Random(SplitMix64);

impl Random {
    /// The stream that `seed` selects.
    pub fn new(seed: u64) -> Random {
        Random(SplitMix64::seed_from_u64(seed))
    }

    /// The stream that `seed` selects among those for one `purpose`, so that drawing more for one
    /// purpose leaves what another draws as it was.
    pub fn for_purpose(seed: u64, purpose: u64) -> Random {
        Random::new(seed ^ Random::new(purpose).bits())
    }

    /// The stream that `seed` selects among those for a purpose that has a name.
    pub fn named(seed: u64, purpose: &str) -> Random {
        Random::new(hash(seed, purpose.as_bytes()))
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Random bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.bits() as u8).collect()
    }

    /// A number below `end`, which is not 0. Its bias is below `end / 2^64`.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u64
    }

    /// An index of a list of `len` items, of which there is one at least.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// One of `choices`, which is not empty.
    pub fn choose<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.index(choices.len())]
    }

    /// Uniform in `0.0 .. 1.0`, a multiple of 2^-53.
    pub fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Uniform in `-1.0 .. 1.0`, a multiple of 2^-23.
    pub fn signed(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    /// Between two positive numbers such that each doubling is equally likely.
    pub fn logarithmic(&mut self, low: f64, high: f64) -> f64 {
        low * (high / low).powf(self.uniform())
    }

    /// Normal with mean 0 and variance 1 (Box and Muller, 1958).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// Puts `items` into a random order, each order as likely as any other.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            items.swap(end, self.index(end + 1));
        }
    }
}

/// FNV-1a of some bytes, begun with a seed; 0 is the hash as it was published.
pub fn hash(seed: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(seed ^ 0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_never_change() {
        // Published with the algorithm, for seed 1234567.
        let mut random = Random::new(1_234_567);
        assert_eq!([random.bits(), random.bits()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
        // Published with FNV-1a.
        assert_eq!(hash(0, b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn streams_differ_by_seed_and_purpose_and_repeat() {
        let first = |seed, purpose| Random::named(seed, purpose).bits();
        assert_eq!(first(1, "a"), first(1, "a"));
        assert_ne!(first(1, "a"), first(2, "a"));
        assert_ne!(first(1, "a"), first(1, "b"));
        let first = |seed, purpose| Random::for_purpose(seed, purpose).bits();
        assert_eq!(first(7, 1), first(7, 1));
        assert_ne!(first(7, 1), first(7, 2));
        assert_ne!(first(7, 1), first(8, 1));
    }

    #[test]
    fn numbers_lie_in_their_ranges() {
        let mut random = Random::named(7, "ranges");
        for _ in 0..10_000 {
            assert!(random.below(3) < 3);
            assert!((-1.0..1.0).contains(&random.signed()));
            let value = random.logarithmic(2.0, 1e6);
            assert!((2.0..=1e6).contains(&value), "{value}");
        }
    }

    #[test]
    fn moments_are_those_of_the_distributions() {
        let mut random = Random::new(1);
        let count = 100_000;
        let uniform: f64 = (0..count).map(|_| random.uniform()).sum::<f64>() / f64::from(count);
        let normals: Vec<f64> = (0..count).map(|_| random.normal()).collect();
        let mean = normals.iter().sum::<f64>() / f64::from(count);
        let variance = normals.iter().map(|x| x * x).sum::<f64>() / f64::from(count);
        // Five standard errors.
        assert!((uniform - 0.5).abs() < 5.0 * (1.0 / 12.0f64 / f64::from(count)).sqrt(), "{uniform}");
        assert!(mean.abs() < 5.0 / f64::from(count).sqrt(), "{mean}");
        assert!((variance - 1.0).abs() < 5.0 * (2.0 / f64::from(count)).sqrt(), "{variance}");
    }

    #[test]
    fn a_shuffle_keeps_every_item() {
        let mut items: Vec<usize> = (0..1000).collect();
        Random::new(2).shuffle(&mut items);
        assert_ne!(items, (0..1000).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..1000).collect::<Vec<_>>());
    }
}
