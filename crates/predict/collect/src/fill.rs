//! The random inputs of the benchmark kernels, as `crates/device/device-code/suite/fill.cu`
//! computes them.

/// Element `index` of the random words of `seed`, as `crates/device/device-code/suite/fill.cu`
/// computes it.
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
    fn numbers_lie_in_their_range() {
        let inputs: Vec<f32> = (0..10_000).map(|index| single(index, 5)).collect();
        assert!(inputs.iter().all(|value| (-1.0..1.0).contains(value)));
        let mean = inputs.iter().sum::<f32>() / inputs.len() as f32;
        assert!(mean.abs() < 0.05, "{mean}");
    }
}
