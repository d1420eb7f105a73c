//! `.f16` and `.bf16` by way of `.f32`, written so that loops over them vectorise.
//!
//! Addition, subtraction and multiplication of halves round the `.f32` result again: that equals
//! one rounding, for `.f32` has more than twice the bits of both (Figueroa). A fused multiply-add
//! is made exact first, then rounded to odd, which no later rounding can spoil (Boldo and
//! Melquiond). [`soft`](crate::arithmetic::soft) is the definition; the tests compare.

/// A NaN of either half format, as the hardware makes it.
const NAN: u16 = 0x7fff;

/// `.f16` as `.f32`: exact.
#[inline(always)]
pub(crate) fn f16_to_f32(half: u16) -> f32 {
    let magnitude = u32::from(half & 0x7fff);
    // Scaling by 2^112 moves the exponent from one bias to the other, and makes subnormals normal.
    let scaled = (f32::from_bits(magnitude << 13) * f32::from_bits(0x7780_0000)).to_bits();
    let bits = if magnitude >= 0x7c00 { magnitude << 13 | 0x7f80_0000 } else { scaled };
    f32::from_bits(bits | u32::from(half & 0x8000) << 16)
}

/// A number that compares with its like as the `.f16` in the upper half of `word` does; with `ftz`,
/// subnormal numbers are zeros.
#[inline(always)]
pub(crate) fn ordered_f16(word: u32, ftz: bool) -> f32 {
    // The fields at the places of `.f32`'s. Another exponent than before keeps the order; infinity
    // and NaN get theirs.
    let fields = (word as i32 >> 3) as u32 & 0x8fff_e000;
    let zero = fields & if ftz { 0x0f80_0000 } else { 0x0fff_e000 } == 0;
    f32::from_bits(if zero { 0 } else { fields + 0x7000_0000 })
}

/// `.f32` as `.f16`, to nearest even.
#[inline(always)]
pub(crate) fn f32_to_f16(value: f32) -> u16 {
    let bits = value.to_bits();
    let magnitude = bits & 0x7fff_ffff;
    // Below the smallest normal half: adding 0.5 leaves the wanted bits at the bottom, rounded by
    // the addition.
    let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0x3f00_0000);
    let odd = magnitude >> 13 & 1;
    let normal = magnitude.wrapping_sub(0x3800_0000).wrapping_add(0xfff + odd) >> 13;
    let half = if magnitude < 0x3880_0000 { subnormal } else { normal };
    let half = if magnitude >= 0x4780_0000 { 0x7c00 } else { half };
    let half = half | bits >> 16 & 0x8000;
    if magnitude > 0x7f80_0000 { NAN } else { half as u16 }
}

/// `.bf16` as `.f32`: exact.
#[inline(always)]
pub(crate) fn bf16_to_f32(half: u16) -> f32 {
    f32::from_bits(u32::from(half) << 16)
}

/// `.f32` as `.bf16`, to nearest even.
#[inline(always)]
pub(crate) fn f32_to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = (bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16) as u16;
    if bits & 0x7fff_ffff > 0x7f80_0000 { NAN } else { rounded }
}

/// `a + b`, rounded to odd: towards zero, with the last bit set if anything was lost.
#[inline(always)]
pub(crate) fn odd_sum_f32(a: f32, b: f32) -> f32 {
    let sum = a + b;
    let part = sum - a;
    let lost = (a - (sum - part)) + (b - part);
    let bits = sum.to_bits();
    let even = bits & 1 == 0;
    // Towards zero if the sum was rounded away from it; where it was odd already, it stays.
    let away = (lost < 0.0) != (sum < 0.0);
    let odd = if away { bits.wrapping_sub(1) } else { bits | 1 };
    f32::from_bits(if lost != 0.0 && even && sum.is_finite() { odd } else { bits })
}

/// `a + b`, rounded to odd.
#[inline(always)]
pub(crate) fn odd_sum_f64(a: f64, b: f64) -> f64 {
    let sum = a + b;
    let part = sum - a;
    let lost = (a - (sum - part)) + (b - part);
    let bits = sum.to_bits();
    let even = bits & 1 == 0;
    let away = (lost < 0.0) != (sum < 0.0);
    let odd = if away { bits.wrapping_sub(1) } else { bits | 1 };
    f64::from_bits(if lost != 0.0 && even && sum.is_finite() { odd } else { bits })
}

/// `value` as `.f32`, rounded to odd.
#[inline(always)]
pub(crate) fn odd_f32(value: f64) -> f32 {
    let nearest = value as f32;
    let back = f64::from(nearest);
    let bits = nearest.to_bits();
    let cut = if back.abs() > value.abs() { bits.wrapping_sub(1) } else { bits };
    f32::from_bits(if back == value || value.is_nan() { bits } else { cut | 1 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arithmetic::soft::{self, BF16, F16, F32, Rounding};
    use apex_random::Random;

    #[test]
    fn conversions_are_those_of_the_definition() {
        for bits in 0..=u16::MAX {
            let exact = |format| soft::convert(bits.into(), format, F32, Rounding::NearestEven) as u32;
            let (half, brain) = (f16_to_f32(bits), bf16_to_f32(bits));
            assert!(half.to_bits() == exact(F16) || half.is_nan() && F16.is_nan(bits.into()), "{bits:x}");
            assert!(brain.to_bits() == exact(BF16) || brain.is_nan() && BF16.is_nan(bits.into()), "{bits:x}");
        }
        let mut random = Random::new(9);
        for round in 0..400_000u32 {
            // Every exponent, and all around the limits of the halves.
            let bits = (random.bits() as u32 >> 9) | round << 23;
            let value = f32::from_bits(bits);
            let exact = |format| soft::convert(bits.into(), F32, format, Rounding::NearestEven) as u16;
            assert_eq!(f32_to_f16(value), exact(F16), "{bits:x}");
            assert_eq!(f32_to_bf16(value), exact(BF16), "{bits:x}");
        }
    }

    #[test]
    fn halves_keep_their_order() {
        let halves = |random: &mut Random| -> u16 {
            let bits = random.bits();
            [0, 0x8000, 1, 0x8001, 0x3ff, 0x400, 0x7c00, 0xfc00, 0x7c01, bits as u16, bits as u16]
                [(bits >> 32) as usize % 11]
        };
        let mut random = Random::new(13);
        for _ in 0..200_000 {
            let (a, b) = (halves(&mut random), halves(&mut random));
            for ftz in [false, true] {
                let flushed = |half: u16| if ftz && half & 0x7c00 == 0 { 0 } else { half };
                let ordered = |half: u16| ordered_f16(u32::from(half) << 16 | 0x1234, ftz);
                let expected = f16_to_f32(flushed(a)).partial_cmp(&f16_to_f32(flushed(b)));
                assert_eq!(ordered(a).partial_cmp(&ordered(b)), expected, "{a:x} {b:x} {ftz}");
            }
        }
    }

    #[test]
    fn sums_and_products_may_round_twice() {
        let mut random = Random::new(11);
        for _ in 0..600_000 {
            let bits = random.bits();
            let (a, b) = (bits as u16, (bits >> 16) as u16);
            let (x, y) = (f16_to_f32(a), f16_to_f32(b));
            let nearest = Rounding::NearestEven;
            assert_eq!(f32_to_f16(x + y), soft::add(a.into(), b.into(), F16, nearest) as u16);
            assert_eq!(f32_to_f16(x * y), soft::mul(a.into(), b.into(), F16, nearest) as u16);
            let (x, y) = (bf16_to_f32(a), bf16_to_f32(b));
            assert_eq!(f32_to_bf16(x + y), soft::add(a.into(), b.into(), BF16, nearest) as u16);
        }
    }
}
