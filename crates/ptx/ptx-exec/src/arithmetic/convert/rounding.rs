//! Results that are floating-point numbers: rounding to their format, and the modifiers.

use ptx::ScalarType;

use crate::arithmetic::convert::{Conversion, Longs, Words, format};
use crate::arithmetic::half::odd_f32;
use crate::arithmetic::half_arithmetic;
use crate::arithmetic::numbers::{canonical, flush};
use crate::arithmetic::soft::{self, Format, Rounding};
use crate::registers::lanes::{WARP, map};

/// Doubles in a format of at most 32 bits, with the modifiers. What is not exact has been rounded
/// to odd.
#[inline(always)]
pub(super) fn narrowed(a: &[f64; WARP], how: Conversion) -> Words {
    let to = format(how.to).unwrap_or(soft::F32);
    if how.to != ScalarType::F32 {
        return finished(&rounded(&map(a, odd_f32), to, how.rounding), to, how);
    }
    // The nearest number, and from there one step towards where the direction points.
    let step = |bits: u32, further: bool| if further { bits.wrapping_add(1) } else { bits.wrapping_sub(1) };
    let bits = match how.rounding {
        Rounding::NearestEven | Rounding::NearestAway => map(a, |x| (x as f32).to_bits()),
        Rounding::Zero => map(a, |x| {
            let nearest = x as f32;
            if f64::from(nearest).abs() > x.abs() {
                step(nearest.to_bits(), false)
            } else {
                nearest.to_bits()
            }
        }),
        Rounding::Down => map(a, |x| {
            let nearest = x as f32;
            let bits = nearest.to_bits();
            if f64::from(nearest) > x { step(bits, nearest.is_sign_negative()) } else { bits }
        }),
        Rounding::Up => map(a, |x| {
            let nearest = x as f32;
            let bits = nearest.to_bits();
            if f64::from(nearest) < x { step(bits, nearest.is_sign_positive()) } else { bits }
        }),
    };
    finished(&map(&bits, |bits| canonical(f32::from_bits(bits)).to_bits()), to, how)
}

/// Single precision rounded to a format that is no wider.
#[inline(always)]
pub(super) fn rounded(a: &[f32; WARP], to: Format, rounding: Rounding) -> Words {
    if to == soft::F32 {
        return map(a, |x| canonical(x).to_bits());
    }
    if to == soft::F16
        && let Some(halves) = half_arithmetic::narrowed_by(a, rounding)
    {
        return halves;
    }
    if to.bias() == soft::F32.bias() {
        return shortened(a, to, rounding);
    }
    match rounding {
        Rounding::NearestEven => nearest(a, to),
        Rounding::NearestAway => round(a, to, [true; 2], |_, lost, half, _| lost >= half),
        Rounding::Zero => round(a, to, [false; 2], |_, _, _, _| false),
        Rounding::Down => round(a, to, [false, true], |_, lost, _, negative| negative && lost != 0),
        Rounding::Up => round(a, to, [true, false], |_, lost, _, negative| !negative && lost != 0),
    }
}

/// [`rounded`] to a format with the same exponents: what is added to the bits that go away carries
/// into those that stay, and from the largest number to infinity.
#[inline(always)]
fn shortened(a: &[f32; WARP], to: Format, rounding: Rounding) -> Words {
    let shift = 23 - to.fraction();
    let (half, rest) = (1u32 << (shift - 1), (1u32 << shift) - 1);
    let nan = to.nan() as u32;
    let bits = map(a, |x| if x.is_nan() { nan << shift } else { x.to_bits() });
    match rounding {
        Rounding::NearestEven => map(&bits, |x| (x + (half - 1) + (x >> shift & 1)) >> shift),
        Rounding::NearestAway => map(&bits, |x| (x + half) >> shift),
        Rounding::Zero => map(&bits, |x| x >> shift),
        Rounding::Down => map(&bits, |x| (x + ((x as i32 >> 31) as u32 & rest)) >> shift),
        Rounding::Up => map(&bits, |x| (x + (!(x as i32 >> 31) as u32 & rest)) >> shift),
    }
}

/// [`rounded`] to nearest even.
#[inline(always)]
fn nearest(a: &[f32; WARP], to: Format) -> Words {
    let (shift, exponents) = (23 - to.fraction(), (127 - to.bias()) as u32);
    let (infinity, overflow, nan) = (to.infinity() as u32, to.overflow() as u32, to.nan() as u32);
    let sign_shift = 31 - to.sign().trailing_zeros();
    let normals = (exponents + 1) << 23;
    // The number whose last bit is worth that of the subnormal numbers: the sum is rounded as they
    // are.
    let aligned = f32::from_bits((exponents + 1 + shift) << 23);
    let half = (1u32 << (shift - 1)) - 1;
    map(a, |x| {
        let bits = x.to_bits();
        let magnitude = bits & 0x7fff_ffff;
        let subnormal = (f32::from_bits(magnitude) + aligned).to_bits().wrapping_sub(aligned.to_bits());
        let scaled = magnitude.wrapping_sub(exponents << 23);
        let normal = scaled.wrapping_add(half + (magnitude >> shift & 1)) >> shift;
        let value = if magnitude < normals { subnormal } else { normal };
        let value = if value >= infinity { overflow } else { value };
        let value = value | (bits & 0x8000_0000) >> sign_shift;
        if magnitude > 0x7f80_0000 { nan } else { value }
    })
}

/// [`rounded`], where `up` says whether a magnitude grows by a unit: from what is kept of it, what
/// is lost, half a unit in the same measure, and whether the number is negative. `beyond` says of
/// positive and of negative numbers whether too large ones become infinite.
#[inline(always)]
fn round(a: &[f32; WARP], to: Format, beyond: [bool; 2], up: impl Fn(u32, u32, u32, bool) -> bool) -> Words {
    let (fraction, exponents) = (to.fraction(), 127 - to.bias());
    let (infinity, overflow, nan) = (to.infinity() as u32, to.overflow() as u32, to.nan() as u32);
    let sign_shift = 31 - to.sign().trailing_zeros();
    let large = beyond.map(|beyond| if beyond { overflow } else { to.largest() as u32 });
    map(a, |x| {
        let bits = x.to_bits();
        let (magnitude, negative) = (bits & 0x7fff_ffff, bits >> 31 != 0);
        let exponent = (magnitude >> 23) as i32;
        let significand = magnitude & 0x7f_ffff | u32::from(exponent != 0) << 23;
        // The exponent field of the result, at least that of the subnormal numbers, which lose more
        // digits.
        let field = exponent.max(1) - exponents;
        let missing = (1 - field).max(0);
        let shift = (23 - fraction as i32 + missing).min(31) as u32;
        let kept = significand >> shift;
        let lost = significand & ((1 << shift) - 1);
        let grown = kept + u32::from(up(kept, lost, 1 << (shift - 1), negative));
        let finite = (((field.max(1) - 1) as u32) << fraction).wrapping_add(grown);
        let too_large = if negative { large[1] } else { large[0] };
        let finite = if finite >= infinity { too_large } else { finite };
        let value = if magnitude == 0x7f80_0000 { overflow } else { finite };
        let value = value | (bits & 0x8000_0000) >> sign_shift;
        if magnitude > 0x7f80_0000 { nan } else { value }
    })
}

/// A result of at most 32 bits with the modifiers.
#[inline(always)]
pub(super) fn finished(value: &Words, to: Format, how: Conversion) -> Words {
    let mut value = *value;
    let [sign, infinity, nan] = [to.sign(), to.infinity(), to.nan()].map(|bits| bits as u32);
    // The first magnitude that stands for a NaN.
    let nans = if to.infinities() { infinity + 1 } else { infinity };
    let is_nan = |x: u32| x & (sign - 1) >= nans;
    if how.ftz && to == soft::F32 {
        value = map(&value, |x| flush(f32::from_bits(x)).to_bits());
    }
    if how.relu {
        value = map(&value, |x| {
            let positive = if x & sign != 0 { 0 } else { x };
            if is_nan(x) { nan } else { positive }
        });
    }
    if how.saturate {
        let one = to.one() as u32;
        // Negative numbers, whose sign is the top bit, are beyond the NaNs.
        value = map(&value, |x| if x >= nans { 0 } else { x.min(one) });
    }
    if how.finite && to.infinities() {
        let largest = to.largest() as u32;
        value = map(&value, |x| if x & (sign - 1) == infinity { x & sign | largest } else { x });
    }
    // `.tf32` fills the upper bits of its register.
    if how.to == ScalarType::Tf32 { map(&value, |x| x << 13) } else { value }
}

/// A double with `.sat`, if it is wanted: into [0, 1], NaN to 0.
#[inline(always)]
pub(super) fn saturated(value: &Longs, how: Conversion) -> Longs {
    if !how.saturate {
        return *value;
    }
    map(value, |bits| {
        let x = f64::from_bits(bits);
        let least = if x > 0.0 { bits } else { 0 };
        if x > 1.0 { 1f64.to_bits() } else { least }
    })
}
