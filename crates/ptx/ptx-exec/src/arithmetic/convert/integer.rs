//! Results that are integers: clamping of integers, rounding of floating-point numbers.

use ptx::ScalarType;

use crate::arithmetic::convert::source::TWO_32;
use crate::arithmetic::convert::{Conversion, Longs, Words};
use crate::arithmetic::numbers::{to_i32, to_u32};
use crate::arithmetic::soft::Rounding;
use crate::registers::lanes::{WARP, map};

/// Added to a whole number below 2^51 it leaves its integer, modulo 2^32, in the low bits.
const WHOLE: f64 = 6_755_399_441_055_744.0; // 1.5 * 2^52

/// The same of a number in single precision below 2^22.
const WHOLE_SINGLE: f32 = 12_582_912.0; // 1.5 * 2^23

/// An integer within the range of the result's type, as its register holds it.
#[inline(always)]
pub(super) fn clamped(a: &Longs, how: Conversion) -> Longs {
    let bits = 8 * how.to.bytes() as u32;
    let a = &if !how.saturate {
        *a
    } else if how.from.is_signed() {
        let (least, most) = match how.to.is_signed() {
            true => (-1i64 << (bits - 1), i64::MAX >> (64 - bits)),
            false => (0, (u64::MAX >> (64 - bits)).min(i64::MAX as u64) as i64),
        };
        map(a, |value| (value as i64).clamp(least, most) as u64)
    } else {
        let most = if how.to.is_signed() { i64::MAX as u64 >> (64 - bits) } else { u64::MAX >> (64 - bits) };
        map(a, |value| value.min(most))
    };
    let shift = 64 - bits;
    match how.to.is_signed() {
        true => map(a, |value| ((value << shift) as i64 >> shift) as u64),
        false => map(a, |value| value << shift >> shift),
    }
}

#[inline(always)]
pub(super) fn whole_singles(a: &[f32; WARP], rounding: Rounding) -> [f32; WARP] {
    match rounding {
        Rounding::NearestEven | Rounding::NearestAway => map(a, f32::round_ties_even),
        Rounding::Zero => map(a, f32::trunc),
        Rounding::Down => map(a, f32::floor),
        Rounding::Up => map(a, f32::ceil),
    }
}

#[inline(always)]
pub(super) fn whole_doubles(a: &[f64; WARP], rounding: Rounding) -> [f64; WARP] {
    match rounding {
        Rounding::NearestEven | Rounding::NearestAway => map(a, f64::round_ties_even),
        Rounding::Zero => map(a, f64::trunc),
        Rounding::Down => map(a, f64::floor),
        Rounding::Up => map(a, f64::ceil),
    }
}

/// Converts a NaN to an integer: zero, but the top bit if either side has 64 bits.
#[inline(always)]
fn nan_as_integer(how: Conversion) -> u64 {
    if how.from != ScalarType::F64 && how.to.bytes() != 8 {
        return 0;
    }
    let top = 1u64 << (8 * how.to.bytes() - 1);
    if how.to.is_signed() { top.wrapping_neg() } else { top }
}

/// Rounded to integers of at most 32 bits; what is outside of the type becomes its end.
#[inline(always)]
pub(super) fn whole_words(a: &[f64; WARP], how: Conversion) -> Words {
    let bits = 8 * how.to.bytes() as i32;
    let (least, most) = match how.to.is_signed() {
        true => (-f64::from(1u32 << (bits - 1)), f64::from((1u32 << (bits - 1)) - 1)),
        false => (0.0, f64::from(u32::MAX >> (32 - bits))),
    };
    let nan = nan_as_integer(how) as u32;
    map(&whole_doubles(a, how.rounding), |value| {
        let inside = if value > most { most } else { value };
        let inside = if inside < least { least } else { inside };
        let integer = (inside + WHOLE).to_bits() as u32;
        if value.is_nan() { nan } else { integer }
    })
}

/// Single precision rounded to integers of at most 32 bits, likewise; a NaN becomes 0.
#[inline(always)]
pub(super) fn whole_singles_as_words(a: &[f32; WARP], how: Conversion) -> Words {
    let whole = whole_singles(a, how.rounding);
    let bits = 8 * how.to.bytes() as u32;
    let (least, most) = match (bits, how.to.is_signed()) {
        (32, true) => return map(&whole, |value| to_i32(value) as u32),
        (32, false) => return map(&whole, to_u32),
        (_, true) => (-((1 << (bits - 1)) as f32), ((1 << (bits - 1)) - 1) as f32),
        (_, false) => (0.0, ((1 << bits) - 1) as f32),
    };
    map(&whole, |value| {
        let number = if value.is_nan() { 0.0 } else { value };
        let inside = if number > most { most } else { number };
        let inside = if inside < least { least } else { inside };
        (inside + WHOLE_SINGLE).to_bits().wrapping_sub(WHOLE_SINGLE.to_bits())
    })
}

/// Rounded to integers of 64 bits, likewise.
#[inline(always)]
pub(super) fn whole_longs(a: &[f64; WARP], how: Conversion) -> Longs {
    let nan = nan_as_integer(how);
    // The first number beyond the type, and the integer before it; the same of the other end.
    let (end, most, least, first) = match how.to.is_signed() {
        true => (TWO_32 * TWO_32 / 2.0, i64::MAX as u64, -TWO_32 * TWO_32 / 2.0, i64::MIN as u64),
        false => (TWO_32 * TWO_32, u64::MAX, 0.0, 0),
    };
    map(&whole_doubles(a, how.rounding), |value| {
        // Both halves are whole numbers, and exact.
        let top = (value * (1.0 / TWO_32)).floor();
        let low = value - top * TWO_32;
        let half = |half: f64| (half + WHOLE).to_bits();
        let integer = half(top) << 32 | half(low) & 0xffff_ffff;
        let integer = if value < least { first } else { integer };
        let integer = if value >= end { most } else { integer };
        if value.is_nan() { nan } else { integer }
    })
}
