//! Division of integers on vectors, which divide floating-point numbers only.
//!
//! A quotient `a / b` that is not whole lies at least `1 / b` below the next whole number, which is
//! the part `1 / a` of itself: rounding to more digits than `a` has cannot reach it, and what is
//! cut off is the fraction.

/// Added to a whole number below 2^22 or 2^51, these leave its integer in the low bits.
const WHOLE_SINGLE: f32 = 12_582_912.0; // 1.5 * 2^23
const WHOLE_DOUBLE: f64 = 6_755_399_441_055_744.0; // 1.5 * 2^52

/// `a / b` without a sign; of `b` 0 any number.
#[inline(always)]
pub(crate) fn u16(a: u16, b: u16) -> u16 {
    ((f32::from(a) / f32::from(b)).trunc() + WHOLE_SINGLE).to_bits() as u16
}

/// `a / b`; the quotient of the least number by -1 wraps.
#[inline(always)]
pub(crate) fn i16(a: i16, b: i16) -> i16 {
    ((f32::from(a) / f32::from(b)).trunc() + WHOLE_SINGLE).to_bits() as i16
}

/// [`u16`](fn@u16) of 32 bits.
#[inline(always)]
pub(crate) fn u32(a: u32, b: u32) -> u32 {
    // Vectors have the conversion of signed integers.
    let double = |x: u32| f64::from((x ^ 1 << 31) as i32) + 2_147_483_648.0;
    ((double(a) / double(b)).trunc() + WHOLE_DOUBLE).to_bits() as u32
}

/// [`i16`](fn@i16) of 32 bits.
#[inline(always)]
pub(crate) fn i32(a: i32, b: i32) -> i32 {
    ((f64::from(a) / f64::from(b)).trunc() + WHOLE_DOUBLE).to_bits() as i32
}

#[cfg(test)]
mod tests {
    use apex_random::Random;

    #[test]
    fn quotients_are_those_of_integers() {
        for a in 0..=u16::MAX {
            for b in (1..=u16::MAX).step_by(usize::from(a) % 90 + 7).chain([1, 2, 3, a.max(1), u16::MAX]) {
                assert_eq!(super::u16(a, b), a / b, "{a} / {b}");
                let (a, b) = (a as i16, b as i16);
                assert_eq!(super::i16(a, b), a.wrapping_div(b), "{a} / {b}");
            }
        }
        let mut random = Random::new(1);
        for round in 0..400_000u32 {
            let (bits, sizes) = (random.bits(), random.bits());
            let b = (bits as u32 >> (sizes & 31)).max(1);
            // Any number, and those around multiples of the divisor.
            let a = match round % 3 {
                0 => (bits >> 32) as u32 >> (sizes >> 8 & 31),
                1 => (u32::MAX / b).wrapping_mul(b).wrapping_sub(round & 4),
                _ => b.wrapping_mul((bits >> 32) as u32 >> (sizes >> 8 & 31)).wrapping_sub(1),
            };
            assert_eq!(super::u32(a, b), a / b, "{a} / {b}");
            for (a, b) in
                [(a as i32, b as i32), (a as i32, -(b as i32)), (i32::MIN, -1), (i32::MIN, b as i32)]
            {
                assert_eq!(super::i32(a, b), a.wrapping_div(b), "{a} / {b}");
            }
        }
    }
}
