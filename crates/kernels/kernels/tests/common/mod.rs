//! Shared parts of the tests of all techniques: numbers, random inputs, and the error's measure.

use apex_kernels::Element;
use apex_random::Random;
use half::{bf16, f16};

/// Elements that tests make from numbers.
pub trait Number: Element {
    /// Largest relative error (Frobenius norm): inputs are exact, weights and outputs are rounded.
    const TOLERANCE: f64;
    #[allow(dead_code, reason = "not every test plants one")]
    const NAN: Self;
    fn of(value: f64) -> Self;
    fn wide(self) -> f64;
}

impl Number for bf16 {
    const TOLERANCE: f64 = 5e-3;
    const NAN: bf16 = bf16::NAN;
    fn of(value: f64) -> bf16 {
        bf16::from_f64(value)
    }
    fn wide(self) -> f64 {
        self.to_f64()
    }
}

impl Number for f16 {
    const TOLERANCE: f64 = 8e-4;
    const NAN: f16 = f16::NAN;
    fn of(value: f64) -> f16 {
        f16::from_f64(value)
    }
    fn wide(self) -> f64 {
        self.to_f64()
    }
}

/// Numbers between -`size` and `size`, the same for the same seed.
pub fn random<T: Number>(seed: u64, len: usize, size: f64) -> Vec<T> {
    let mut random = Random::new(seed);
    let next = || T::of(f64::from(random.signed()) * size);
    std::iter::repeat_with(next).take(len).collect()
}

/// The same numbers, wide.
pub fn wide<T: Number>(values: &[T]) -> Vec<f64> {
    values.iter().map(|value| value.wide()).collect()
}

/// Relative distance in the Frobenius norm; 0 where both are zero. NaN stays NaN.
pub fn distance(found: impl Iterator<Item = f64>, expected: &[f64]) -> f64 {
    let (mut difference, mut norm) = (0.0, 0.0);
    for (found, expected) in found.zip(expected) {
        difference += (found - expected).powi(2);
        norm += expected * expected;
    }
    if norm == 0.0 { difference.sqrt() } else { (difference / norm).sqrt() }
}
