//! The functions that PTX approximates, for whole warps at once: polynomials in double precision,
//! without branches or calls, so that loops over lanes vectorise.
//!
//! The polynomials are off by less than 2^-31 of the result, far less than what rounding to `.f32`
//! adds, so the result is the nearest number or the one beside it. `docs/cpu-device.md` has what
//! was measured.

/// Added to a double of moderate size it leaves the nearest whole number in the low bits, and
/// rounds away the rest.
const WHOLE: f64 = 6_755_399_441_055_744.0; // 1.5 * 2^52

/// The nearest whole number, as a double, and as an integer modulo 2^52.
#[inline(always)]
fn nearest(x: f64) -> (f64, u64) {
    let shifted = x + WHOLE;
    (shifted - WHOLE, shifted.to_bits().wrapping_sub(WHOLE.to_bits()))
}

/// `c[0] + c[1] * x + …`.
#[inline(always)]
fn polynomial<const N: usize>(x: f64, c: [f64; N]) -> f64 {
    let mut sum = c[N - 1];
    for index in (0..N - 1).rev() {
        sum = sum * x + c[index];
    }
    sum
}

/// `2^x` for a double between -1000 and 1000.
#[inline(always)]
fn power_of_two(x: f64) -> f64 {
    let (whole, bits) = nearest(x);
    let fraction = polynomial(x - whole, ptx_compile::POWERS);
    f64::from_bits(fraction.to_bits().wrapping_add(bits << 52))
}

/// `ex2`.
#[inline(always)]
pub(crate) fn exp2(a: f32) -> f32 {
    // Beyond these bounds every result is 0 or infinite.
    let bounded = f64::from(a).clamp(-200.0, 200.0);
    // Computed of a NaN too: within a branch it would be computed lane by lane.
    let value = power_of_two(bounded) as f32;
    if a.is_nan() { a } else { value }
}

/// `lg2`.
#[inline(always)]
pub(crate) fn log2(a: f32) -> f32 {
    /// The bits of the square root of 1/2: mantissas are taken from there to its double.
    const START: u64 = 0x3fe6_a09e_667f_3bcd;
    let bits = f64::from(a).to_bits();
    // 2048 is added and taken away again, so that the shift sees no negative number.
    let exponent = (bits.wrapping_sub(START).wrapping_add(2048 << 52) >> 52).wrapping_sub(2048);
    let mantissa = f64::from_bits(bits.wrapping_sub(exponent << 52));
    let whole = f64::from_bits(WHOLE.to_bits().wrapping_add(exponent)) - WHOLE;
    // ln(m) = 2 artanh(s), s = (m - 1) / (m + 1), and 1 / ln(2) on top.
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let series = polynomial(s * s, [1.0, 1.0 / 3.0, 1.0 / 5.0, 1.0 / 7.0, 1.0 / 9.0, 1.0 / 11.0, 1.0 / 13.0]);
    let result = (whole + s * series * (2.0 * std::f64::consts::LOG2_E)) as f32;
    let result = if a == 0.0 { f32::NEG_INFINITY } else { result };
    let result = if a < 0.0 { f32::NAN } else { result };
    if a.is_nan() || a == f32::INFINITY { a } else { result }
}

/// Sine (`turned` = 0) or cosine (1).
#[inline(always)]
fn circular(a: f32, turned: u64) -> f32 {
    /// A quarter turn in two parts; the first has so few bits that multiples up to 2^20 are exact.
    const QUARTER: [f64; 2] = [1.570_796_326_734_125_6, 6.077_100_506_506_192e-11];
    let x = f64::from(a);
    let (whole, quadrant) = nearest(x * std::f64::consts::FRAC_2_PI);
    let r = (x - whole * QUARTER[0]) - whole * QUARTER[1];
    let square = r * r;
    let sine = r * polynomial(
        square,
        [1.0, -1.0 / 6.0, 1.0 / 120.0, -1.0 / 5040.0, 1.0 / 362_880.0, -1.0 / 39_916_800.0],
    );
    let cosine = polynomial(
        square,
        [1.0, -0.5, 1.0 / 24.0, -1.0 / 720.0, 1.0 / 40_320.0, -1.0 / 3_628_800.0, 1.0 / 479_001_600.0],
    );
    let quadrant = quadrant.wrapping_add(turned);
    let value = if quadrant & 1 == 0 { sine } else { cosine };
    let value = f64::from_bits(value.to_bits() ^ (quadrant & 2) << 62);
    // Angles of millions exceed the precision; the result is a sine nevertheless.
    let value = if x.abs() < 1e6 { value } else { value.clamp(-1.0, 1.0) };
    // -0 stays -0.
    let value = if turned == 0 && a == 0.0 { x } else { value };
    if a.is_finite() { value as f32 } else { f32::NAN }
}

/// `sin`.
#[inline(always)]
pub(crate) fn sin(a: f32) -> f32 {
    circular(a, 0)
}

/// `cos`.
#[inline(always)]
pub(crate) fn cos(a: f32) -> f32 {
    circular(a, 1)
}

/// `tanh`.
#[inline(always)]
pub(crate) fn tanh(a: f32) -> f32 {
    let x = f64::from(a);
    let size = x.abs();
    // e^(2|x|), as a power of two; from 20 on the result is 1.
    let bounded = if size > 20.0 { 20.0 } else { size };
    let power = power_of_two(bounded * (2.0 * std::f64::consts::LOG2_E));
    let large = 1.0 - 2.0 / (power + 1.0);
    // The difference loses what is small.
    let small = size - size * size * size * (1.0 / 3.0) + size * size * size * size * size * (2.0 / 15.0);
    // Chosen by bits: of a choice of numbers the compiler makes a branch, and computes lane by
    // lane.
    let chosen = u64::from(size < 0.03).wrapping_neg();
    let bits = small.to_bits() & chosen | large.to_bits() & !chosen;
    let value = f64::from_bits(bits | x.to_bits() & 1 << 63) as f32;
    if a.is_nan() { a } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;
    use apex_random::Random;

    /// Every exponent, both signs, and what is special.
    fn arguments() -> impl Iterator<Item = f32> {
        let mut random = Random::new(1);
        let special = [0.0, -0.0, 1.0, -1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX, 1e-45];
        special.into_iter().chain(
            (0..400_000u32)
                .map(move |round| f32::from_bits(random.bits() as u32 & 0x807f_ffff | (round & 0xff) << 23)),
        )
    }

    /// Checks a function against the mathematical library's, to the nearest number or one beside
    /// it.
    fn check(name: &str, f: fn(f32) -> f32, exact: fn(f64) -> f64, domain: impl Fn(f32) -> bool) {
        for a in arguments().filter(|a| domain(*a)) {
            let (found, wanted) = (f(a), exact(a.into()) as f32);
            let near = found == wanted || found == wanted.next_up() || found == wanted.next_down();
            assert!(near || (found.is_nan() && wanted.is_nan()), "{name}({a:e}): {found:e}, not {wanted:e}");
        }
    }

    #[test]
    fn results_are_nearest_or_next_to_it() {
        check("ex2", exp2, f64::exp2, |_| true);
        check("lg2", log2, f64::log2, |_| true);
        check("tanh", tanh, f64::tanh, |_| true);
    }

    #[test]
    fn circles_are_closed() {
        for a in arguments().filter(|a| a.abs() < 1000.0) {
            for (f, exact) in [(sin as fn(f32) -> f32, f64::sin as fn(f64) -> f64), (cos, f64::cos)] {
                let difference = f64::from(f(a)) - exact(a.into());
                assert!(difference.abs() < 2f64.powi(-24), "{a:e}: off by {difference:e}");
            }
        }
        for a in [f32::MAX, -1e20, 3e6] {
            assert!(sin(a).abs() <= 1.0 && cos(a).abs() <= 1.0, "{a:e}");
        }
        assert!(sin(f32::INFINITY).is_nan() && cos(f32::NAN).is_nan());
        assert!(sin(-0.0).is_sign_negative());
    }
}
