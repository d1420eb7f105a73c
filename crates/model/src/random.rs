//! Random numbers that depend on nothing but their seed: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
//!
//! Trained weights belong to a seed, so what this module gives for a seed must never change.

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream that `seed` selects.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The stream that `seed` selects among those for one `purpose`, so that drawing more for one purpose leaves what
    /// another draws as it was.
    pub fn for_purpose(seed: u64, purpose: u64) -> Random {
        let mixed = Random(purpose).bits();
        Random(seed ^ mixed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number below `end`, which is not 0. Its bias is below `end / 2^64`.
    pub fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.bits()) * end as u128) >> 64) as usize
    }

    /// Uniform in `0.0 .. 1.0`, a multiple of 2^-53.
    pub fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Normal with mean 0 and variance 1 (Box and Muller, 1958).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// Puts `items` into a random order, each order as likely as any other.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            items.swap(end, self.below(end + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn purposes_have_streams_of_their_own() {
        let first = Random::for_purpose(7, 1).bits();
        assert_ne!(first, Random::for_purpose(7, 2).bits());
        assert_ne!(first, Random::for_purpose(8, 1).bits());
        assert_eq!(first, Random::for_purpose(7, 1).bits());
    }
}
