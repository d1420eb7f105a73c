//! Random input of the programs, the same in every run.

use apex_random::Random;

/// `count` numbers, evenly spread over -1 to 1.
pub fn floats(random: &mut Random, count: usize) -> Vec<f32> {
    (0..count).map(|_| random.signed()).collect()
}

/// `count` bytes, small ones more frequent than large ones.
pub fn skewed_bytes(random: &mut Random, count: usize) -> Vec<u8> {
    let byte = |bits: u64| (bits as u8).min((bits >> 8) as u8);
    (0..count).map(|_| byte(random.bits())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_fill_their_range_and_seeds_differ() {
        let of = |seed| floats(&mut Random::new(seed), 10_000);
        let values = of(1);
        assert!(values.iter().all(|value| (-1.0..1.0).contains(value)));
        let mean = values.iter().sum::<f32>() / values.len() as f32;
        assert!(mean.abs() < 0.05, "{mean}");
        assert_ne!(values, of(2));
    }

    #[test]
    fn small_bytes_are_more_frequent() {
        let bytes = skewed_bytes(&mut Random::new(3), 10_000);
        let small = bytes.iter().filter(|byte| **byte < 128).count();
        assert!((7_000..8_000).contains(&small), "three in four are expected, found {small}");
    }
}
