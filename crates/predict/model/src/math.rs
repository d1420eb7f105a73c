//! Elementary functions in single precision whose result is the same on every processor.
//!
//! They have no branch, no table, no fused multiply-add and no call, so the compiler turns loops
//! over them into vector code of whatever width the surrounding function is compiled for, and every
//! width gives the same bits.

/// `e^x` within 3 units in the last place for `-87 <= x <= 88`; outside, the value at the nearer
/// end.
///
/// `x = n ln 2 + r` with integer `n` and `|r| <= ln 2 / 2`; `e^r` by its Taylor polynomial of
/// degree 7, whose remainder, below `r^8 / 8! < 6e-9`, is a tenth of a rounding error.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    /// Added to a number below 2^22 in magnitude, it leaves the nearest integer in the low bits of
    /// the sum.
    const ROUND: f32 = (3 << 22) as f32;
    /// ln 2 with trailing zeros, so that its product with `n` is exact, and what that leaves of ln
    /// 2.
    const LN_2_HIGH: f32 = 355.0 / 512.0;
    const LN_2_LOW: f32 = (std::f64::consts::LN_2 - 355.0 / 512.0) as f32;
    let x = if x > -87.0 { x } else { -87.0 };
    let x = if x < 88.0 { x } else { 88.0 };
    let rounded = x * std::f32::consts::LOG2_E + ROUND;
    let n = rounded - ROUND;
    let exponent = rounded.to_bits().wrapping_sub(ROUND.to_bits());
    let r = (x - n * LN_2_HIGH) - n * LN_2_LOW;
    let mut sum = 1.0 / 5040.0;
    for coefficient in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        sum = sum * r + coefficient;
    }
    sum * f32::from_bits(exponent.wrapping_add(127) << 23)
}

/// The logistic function `1 / (1 + e^-x)`.
#[inline(always)]
pub(crate) fn logistic(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// `sqrt(8 / pi)` and the coefficient of the cube: see [`crate::network::Activation::Gelu`].
pub(crate) const GELU_FACTOR: f32 = 1.595_769;
pub(crate) const GELU_CUBIC: f32 = 0.044715;

#[cfg(test)]
mod tests {
    use super::*;
    use apex_random::Random;

    #[test]
    fn exp_is_within_its_bound() {
        let mut random = Random::new(3);
        for _ in 0..200_000 {
            let x = (random.uniform() * 175.0 - 87.0) as f32;
            let exact = f64::from(x).exp();
            let ulp = f64::from(f32::EPSILON) * exact;
            assert!((f64::from(exp(x)) - exact).abs() <= 3.0 * ulp, "e^{x}: {} against {exact}", exp(x));
        }
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(1000.0), exp(88.0));
        assert_eq!(exp(-1000.0), exp(-87.0));
    }

    #[test]
    fn the_logistic_function_keeps_its_range() {
        for x in [-1e30, -100.0, -1.0, 0.0, 1.0, 100.0, 1e30f32] {
            let y = logistic(x);
            assert!((0.0..=1.0).contains(&y));
            let exact = 1.0 / (1.0 + (-f64::from(x)).exp());
            assert!((f64::from(y) - exact).abs() < 2e-7, "{x}: {y} against {exact}");
        }
    }
}
