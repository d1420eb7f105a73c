//! The sources of a conversion as `f32`, `f64` or 64-bit integers.

use ptx::ScalarType;

use crate::arithmetic::convert::{Conversion, Longs, Words};
use crate::arithmetic::half::bf16_to_f32;
use crate::arithmetic::half_arithmetic;
use crate::arithmetic::numbers::flush;
use crate::arithmetic::soft::Rounding;
use crate::registers::lanes::{WARP, map};

pub(super) const TWO_32: f64 = 4_294_967_296.0;

/// Below 2^52 the low bits of its fraction are an integer; of the other number, multiples of 2^32.
const TWO_52: f64 = TWO_32 * 1_048_576.0;
const TWO_84: f64 = TWO_52 * TWO_32;
const TWO_31: f64 = 2_147_483_648.0;
const TWO_63: f64 = TWO_32 * TWO_31;

/// An integer of at most 32 bits, extended by its own sign.
#[inline(always)]
pub(super) fn extended(a: &Words, from: ScalarType) -> Longs {
    match (from.bytes(), from.is_signed()) {
        (1, true) => map(a, |x| x as i8 as u64),
        (1, false) => map(a, |x| (x as u8).into()),
        (2, true) => map(a, |x| x as i16 as u64),
        (2, false) => map(a, |x| (x as u16).into()),
        (_, true) => map(a, |x| x as i32 as u64),
        (_, false) => map(a, u64::from),
    }
}

/// An integer of at most 16 bits as a number: exact.
#[inline(always)]
pub(super) fn small_integers(a: &Words, from: ScalarType) -> [f32; WARP] {
    let shift = 32 - 8 * from.bytes() as u32;
    match from.is_signed() {
        true => map(a, |x| ((x << shift) as i32 >> shift) as f32),
        false => map(a, |x| (x << shift >> shift) as i32 as f32),
    }
}

/// An integer of 32 bits as a number: exact below 2^24, elsewhere rounded to odd.
#[inline(always)]
pub(super) fn odd_integers(a: &Words, from: ScalarType) -> [f32; WARP] {
    // Beyond this, only whether the lowest eight bits are zero matters.
    let odd = |upper: u32, x: u32| (upper | u32::from(x & 0xff != 0)) as i32 as f32 * 256.0;
    match from.is_signed() {
        true => map(a, |x| {
            let (exact, odd) = (x as i32 as f32, odd((x as i32 >> 8) as u32, x));
            if ((x as i32 >> 24) ^ (x as i32 >> 31)) == 0 { exact } else { odd }
        }),
        false => map(a, |x| {
            let (exact, odd) = (x as i32 as f32, odd(x >> 8, x));
            if x >> 24 == 0 { exact } else { odd }
        }),
    }
}

/// An integer of 32 bits as a number: exact. Vectors have the conversion of signed integers.
#[inline(always)]
pub(super) fn integers(a: &Words, from: ScalarType) -> [f64; WARP] {
    match from.is_signed() {
        true => map(a, |x| f64::from(x as i32)),
        false => map(a, |x| f64::from((x ^ 1 << 31) as i32) + TWO_31),
    }
}

/// A floating-point source of at most 32 bits, with `.ftz` if it is wanted: exact.
#[inline(always)]
pub(super) fn singles(a: &Words, how: Conversion) -> [f32; WARP] {
    match how.from {
        ScalarType::F16 => half_arithmetic::widened(&map(a, |x| x & 0xffff)),
        ScalarType::Bf16 => map(a, |x| bf16_to_f32(x as u16)),
        ScalarType::E5m2 => half_arithmetic::widened(&map(a, |x| (x & 0xff) << 8)),
        ScalarType::E4m3 => map(a, |x| {
            // Scaling by 2^120 moves the exponent from one bias to the other.
            let scaled = f32::from_bits((x & 0x7f) << 20) * f32::from_bits(0x7b80_0000);
            let bits = if x & 0x7f == 0x7f { 0x7ff0_0000 } else { scaled.to_bits() };
            f32::from_bits(bits | (x & 0x80) << 24)
        }),
        _ if how.ftz => map(a, |x| flush(f32::from_bits(x))),
        _ => map(a, f32::from_bits),
    }
}

/// A 64-bit integer as a double: rounded as the conversion says, or to odd.
#[inline(always)]
pub(super) fn doubles(a: &Longs, how: Conversion, rounding: Option<Rounding>) -> [f64; WARP] {
    // The upper half and the lower are exact; so is what their sum lacks. Either is put into the
    // fraction of a number from which what is too much is taken: vectors of 64-bit lanes have no
    // conversion. The sign bit counts as positive, once it is inverted.
    let (inverted, excess) = if how.from.is_signed() { (1 << 63, TWO_84 + TWO_63) } else { (0, TWO_84) };
    let parts = |value: u64| -> (f64, f64) {
        let top = f64::from_bits(((value ^ inverted) >> 32) | TWO_84.to_bits()) - excess;
        (top, f64::from_bits(value & 0xffff_ffff | TWO_52.to_bits()) - TWO_52)
    };
    let sum = |value: u64| {
        let (top, low) = parts(value);
        let sum = top + low;
        (sum, low - (sum - top))
    };
    // A unit of the last place further from zero or closer to it.
    let step = |sum: f64, further: bool| {
        let bits = sum.to_bits();
        f64::from_bits(if further { bits.wrapping_add(1) } else { bits.wrapping_sub(1) })
    };
    match rounding {
        Some(Rounding::NearestEven | Rounding::NearestAway) => map(a, |value| sum(value).0),
        Some(Rounding::Zero) => map(a, |value| {
            let (sum, lost) = sum(value);
            let away = lost != 0.0 && (lost < 0.0) != (sum < 0.0);
            if away { step(sum, false) } else { sum }
        }),
        Some(Rounding::Down) => map(a, |value| {
            let (sum, lost) = sum(value);
            if lost < 0.0 { step(sum, sum < 0.0) } else { sum }
        }),
        Some(Rounding::Up) => map(a, |value| {
            let (sum, lost) = sum(value);
            if lost > 0.0 { step(sum, sum > 0.0) } else { sum }
        }),
        None => map(a, |value| {
            let (sum, lost) = sum(value);
            let away = (lost < 0.0) != (sum < 0.0);
            let odd = if sum.to_bits() & 1 == 0 { step(sum, !away) } else { sum };
            if lost != 0.0 { odd } else { sum }
        }),
    }
}
