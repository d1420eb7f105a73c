//! Random input, the same in every run: SplitMix64.

/// A generator of random numbers.
pub struct Random(u64);

impl Random {
    /// The generator with this seed.
    pub fn seeded(seed: u64) -> Random {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// `count` numbers, evenly spread over -1 to 1.
    pub fn floats(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0).collect()
    }

    /// `count` bytes, small ones more frequent than large ones.
    pub fn skewed_bytes(&mut self, count: usize) -> Vec<u8> {
        let byte = |bits: u64| (bits as u8).min((bits >> 8) as u8);
        (0..count).map(|_| byte(self.next())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_fill_their_range_and_seeds_differ() {
        let values = Random::seeded(1).floats(10_000);
        assert!(values.iter().all(|value| (-1.0..1.0).contains(value)));
        let mean = values.iter().sum::<f32>() / values.len() as f32;
        assert!(mean.abs() < 0.05, "{mean}");
        assert_ne!(values, Random::seeded(2).floats(10_000));
    }

    #[test]
    fn small_bytes_are_more_frequent() {
        let bytes = Random::seeded(3).skewed_bytes(10_000);
        let small = bytes.iter().filter(|byte| **byte < 128).count();
        assert!((7_000..8_000).contains(&small), "three in four are expected, found {small}");
    }
}
