//! `cvt` on whole registers: from any of the integer and floating-point types to any other.
//!
//! A conversion is a few stages, each a loop over the lanes that vectorises: the source as `f32`,
//! `f64` or a 64-bit integer, all exact; rounding to whole numbers; rounding to the format of the
//! result; the modifiers. What has more digits than the stage's type is rounded to odd first, which
//! no later rounding can spoil (Boldo and Melquiond). The tests hold all of it against the
//! definition of [`soft`].

use ptx::ScalarType;

use crate::arithmetic::half::{bf16_to_f32, odd_f32};
use crate::arithmetic::half_arithmetic;
use crate::arithmetic::numbers::{canonical, flush, to_i32, to_u32};
use crate::arithmetic::soft::{self, Format, Rounding};
use crate::registers::lanes::{WARP, map};

/// A conversion, as it travels in the immediate of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Conversion {
    pub(crate) from: ScalarType,
    pub(crate) to: ScalarType,
    pub(crate) rounding: Rounding,
    /// Rounds to a whole number: `.rni` and its like.
    pub(crate) whole: bool,
    pub(crate) saturate: bool,
    pub(crate) ftz: bool,
    pub(crate) relu: bool,
    /// Infinities become the largest number: `.satfinite`.
    pub(crate) finite: bool,
}

const TYPES: [ScalarType; 18] = [
    ScalarType::U8,
    ScalarType::U16,
    ScalarType::U32,
    ScalarType::U64,
    ScalarType::S8,
    ScalarType::S16,
    ScalarType::S32,
    ScalarType::S64,
    ScalarType::F16,
    ScalarType::Bf16,
    ScalarType::F32,
    ScalarType::F64,
    ScalarType::Tf32,
    ScalarType::B16,
    ScalarType::B32,
    ScalarType::B64,
    ScalarType::E4m3,
    ScalarType::E5m2,
];

const ROUNDINGS: [Rounding; 5] =
    [Rounding::NearestEven, Rounding::NearestAway, Rounding::Zero, Rounding::Down, Rounding::Up];

impl Conversion {
    /// None for what is no conversion: from `.tf32`, modifiers on types that do not take them.
    pub(crate) fn pack(self) -> Option<u32> {
        let index = |ty| TYPES.iter().position(|known| *known == ty);
        let rounding = ROUNDINGS.iter().position(|known| *known == self.rounding)?;
        let narrow = format(self.to).is_some() && self.to != ScalarType::F64;
        let away = self.rounding == Rounding::NearestAway && !matches!(self.to, ScalarType::Tf32);
        let narrow = narrow && format(self.from).is_some();
        if self.from == ScalarType::Tf32 || (self.relu || self.finite) && !narrow || away {
            return None;
        }
        let flags = [self.whole, self.saturate, self.ftz, self.relu, self.finite];
        let flags = flags.iter().enumerate().fold(0, |bits, (index, &set)| bits | u32::from(set) << index);
        Some(index(self.from)? as u32 | (index(self.to)? as u32) << 8 | (rounding as u32) << 16 | flags << 24)
    }

    #[inline(always)]
    pub(crate) fn unpack(bits: u32) -> Self {
        let flag = |index: u32| bits >> (24 + index) & 1 != 0;
        let field = |shift: u32, end: usize| (bits as usize >> shift & 255).min(end - 1);
        Conversion {
            from: TYPES[field(0, TYPES.len())],
            to: TYPES[field(8, TYPES.len())],
            rounding: ROUNDINGS[field(16, ROUNDINGS.len())],
            whole: flag(0),
            saturate: flag(1),
            ftz: flag(2),
            relu: flag(3),
            finite: flag(4),
        }
    }
}

/// The format of a floating-point type.
pub(crate) fn format(ty: ScalarType) -> Option<Format> {
    Some(match ty {
        ScalarType::F16 => soft::F16,
        ScalarType::Bf16 => soft::BF16,
        ScalarType::F32 => soft::F32,
        ScalarType::F64 => soft::F64,
        ScalarType::Tf32 => soft::TF32,
        ScalarType::E4m3 => soft::E4M3,
        ScalarType::E5m2 => soft::E5M2,
        _ => return None,
    })
}

/// The lanes of a register.
type Words = [u32; WARP];
type Longs = [u64; WARP];

/// From at most 32 bits to at most 32.
#[inline(always)]
pub(crate) fn word_to_word(a: &Words, conversion: u32) -> Words {
    let how = Conversion::unpack(conversion);
    match (format(how.from), format(how.to)) {
        (None, None) => map(&clamped(&extended(a, how.from), how), |value| value as u32),
        (Some(_), None) => whole_singles_as_words(&singles(a, how), how),
        // Integers of 16 bits are exact in single precision.
        (None, Some(to)) if how.from.bytes() <= 2 => {
            finished(&rounded(&small_integers(a, how.from), to, how.rounding), to, how)
        }
        (None, Some(to)) if how.to != ScalarType::F32 => {
            finished(&rounded(&odd_integers(a, how.from), to, how.rounding), to, how)
        }
        (None, Some(_)) => narrowed(&integers(a, how.from), how),
        (Some(_), Some(to)) => {
            let value = singles(a, how);
            let value = if how.whole { whole_singles(&value, how.rounding) } else { value };
            finished(&rounded(&value, to, how.rounding), to, how)
        }
    }
}

/// From at most 32 bits to 64.
#[inline(always)]
pub(crate) fn word_to_long(a: &Words, conversion: u32) -> Longs {
    let how = Conversion::unpack(conversion);
    match (format(how.from), format(how.to)) {
        (None, None) => clamped(&extended(a, how.from), how),
        (Some(_), None) => whole_longs(&map(&singles(a, how), f64::from), how),
        (None, Some(_)) if how.from.bytes() <= 2 => {
            saturated(&map(&small_integers(a, how.from), |value| f64::from(value).to_bits()), how)
        }
        (None, Some(_)) => saturated(&map(&integers(a, how.from), f64::to_bits), how),
        (Some(_), Some(_)) => {
            let value = map(&singles(a, how), f64::from);
            let value = if how.whole { whole_doubles(&value, how.rounding) } else { value };
            saturated(&map(&value, f64::to_bits), how)
        }
    }
}

/// From 64 bits to at most 32.
#[inline(always)]
pub(crate) fn long_to_word(a: &Longs, conversion: u32) -> Words {
    let how = Conversion::unpack(conversion);
    match (format(how.from), format(how.to)) {
        (None, None) => map(&clamped(a, how), |value| value as u32),
        (Some(_), None) => whole_words(&map(a, f64::from_bits), how),
        (None, Some(_)) => narrowed(&doubles(a, how, None), how),
        (Some(_), Some(_)) => {
            let value = map(a, f64::from_bits);
            narrowed(&if how.whole { whole_doubles(&value, how.rounding) } else { value }, how)
        }
    }
}

/// From 64 bits to 64.
#[inline(always)]
pub(crate) fn long_to_long(a: &Longs, conversion: u32) -> Longs {
    let how = Conversion::unpack(conversion);
    match (format(how.from), format(how.to)) {
        (None, None) => clamped(a, how),
        (Some(_), None) => whole_longs(&map(a, f64::from_bits), how),
        (None, Some(_)) => saturated(&map(&doubles(a, how, Some(how.rounding)), f64::to_bits), how),
        (Some(_), Some(_)) => {
            let value = map(a, f64::from_bits);
            let value = if how.whole { whole_doubles(&value, how.rounding) } else { value };
            // Quiet, whether it was made whole or not.
            saturated(&map(&value, |value| value.to_bits() | u64::from(value.is_nan()) << 51), how)
        }
    }
}

/// An integer of at most 32 bits, extended by its own sign.
#[inline(always)]
fn extended(a: &Words, from: ScalarType) -> Longs {
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
fn small_integers(a: &Words, from: ScalarType) -> [f32; WARP] {
    let shift = 32 - 8 * from.bytes() as u32;
    match from.is_signed() {
        true => map(a, |x| ((x << shift) as i32 >> shift) as f32),
        false => map(a, |x| (x << shift >> shift) as i32 as f32),
    }
}

/// An integer of 32 bits as a number: exact below 2^24, elsewhere rounded to odd.
#[inline(always)]
fn odd_integers(a: &Words, from: ScalarType) -> [f32; WARP] {
    // Of what is beyond, the lowest eight bits are only told from zero.
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
fn integers(a: &Words, from: ScalarType) -> [f64; WARP] {
    match from.is_signed() {
        true => map(a, |x| f64::from(x as i32)),
        false => map(a, |x| f64::from((x ^ 1 << 31) as i32) + TWO_31),
    }
}

/// An integer within the range of the result's type, as its register holds it.
#[inline(always)]
fn clamped(a: &Longs, how: Conversion) -> Longs {
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

/// A floating-point source of at most 32 bits, with `.ftz` if it is wanted: exact.
#[inline(always)]
fn singles(a: &Words, how: Conversion) -> [f32; WARP] {
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
fn doubles(a: &Longs, how: Conversion, rounding: Option<Rounding>) -> [f64; WARP] {
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

#[inline(always)]
fn whole_singles(a: &[f32; WARP], rounding: Rounding) -> [f32; WARP] {
    match rounding {
        Rounding::NearestEven | Rounding::NearestAway => map(a, f32::round_ties_even),
        Rounding::Zero => map(a, f32::trunc),
        Rounding::Down => map(a, f32::floor),
        Rounding::Up => map(a, f32::ceil),
    }
}

#[inline(always)]
fn whole_doubles(a: &[f64; WARP], rounding: Rounding) -> [f64; WARP] {
    match rounding {
        Rounding::NearestEven | Rounding::NearestAway => map(a, f64::round_ties_even),
        Rounding::Zero => map(a, f64::trunc),
        Rounding::Down => map(a, f64::floor),
        Rounding::Up => map(a, f64::ceil),
    }
}

/// Added to a whole number below 2^51 it leaves its integer, modulo 2^32, in the low bits.
const WHOLE: f64 = 6_755_399_441_055_744.0; // 1.5 * 2^52

/// The same of a number in single precision below 2^22.
const WHOLE_SINGLE: f32 = 12_582_912.0; // 1.5 * 2^23

const TWO_32: f64 = 4_294_967_296.0;

/// Below 2^52 the low bits of its fraction are an integer; of the other number, multiples of 2^32.
const TWO_52: f64 = TWO_32 * 1_048_576.0;
const TWO_84: f64 = TWO_52 * TWO_32;
const TWO_31: f64 = 2_147_483_648.0;
const TWO_63: f64 = TWO_32 * TWO_31;

/// What a NaN becomes as an integer: zero, but the top bit where either side has 64 bits.
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
fn whole_words(a: &[f64; WARP], how: Conversion) -> Words {
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
fn whole_singles_as_words(a: &[f32; WARP], how: Conversion) -> Words {
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
fn whole_longs(a: &[f64; WARP], how: Conversion) -> Longs {
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

/// Doubles in a format of at most 32 bits, with the modifiers. What is not exact has been rounded
/// to odd.
#[inline(always)]
fn narrowed(a: &[f64; WARP], how: Conversion) -> Words {
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
fn rounded(a: &[f32; WARP], to: Format, rounding: Rounding) -> Words {
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
fn finished(value: &Words, to: Format, how: Conversion) -> Words {
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
fn saturated(value: &Longs, how: Conversion) -> Longs {
    if !how.saturate {
        return *value;
    }
    map(value, |bits| {
        let x = f64::from_bits(bits);
        let least = if x > 0.0 { bits } else { 0 };
        if x > 1.0 { 1f64.to_bits() } else { least }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use apex_random::Random;

    /// Smallest and largest value of an integer type.
    fn range(ty: ScalarType) -> (i128, i128) {
        let bits = 8 * ty.bytes() as u32;
        match ty.is_signed() {
            true => (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
            false => (0, (1 << bits) - 1),
        }
    }

    /// Any conversion, by the book. Bits above the type's own are ignored on the way in and extend
    /// it on the way out.
    fn definition(bits: u64, how: Conversion) -> u64 {
        let Conversion { from, to, rounding, whole, saturate, ftz, relu, finite } = how;
        let width = 8 * from.bytes() as u32;
        let bits = bits & u64::MAX >> (64 - width);
        match (format(from), format(to)) {
            (None, None) => {
                let value = integer_value(bits, from);
                integer_bits(if saturate { value.clamp(range(to).0, range(to).1) } else { value }, to)
            }
            (None, Some(to_format)) => {
                let value = soft::from_integer(integer_value(bits, from), to_format, rounding);
                let value = if saturate { saturated_bits(value, to_format) } else { value };
                if to == ScalarType::Tf32 { value << 13 } else { value }
            }
            (Some(from_format), None) => {
                let bits = if ftz { flushed(bits, from) } else { bits };
                match soft::to_integer(bits, from_format, rounding) {
                    Some(value) => integer_bits(value.clamp(range(to).0, range(to).1), to),
                    None if from == ScalarType::F64 || to.bytes() == 8 => {
                        integer_bits(1 << (8 * to.bytes() - 1), to)
                    }
                    None => 0,
                }
            }
            (Some(from_format), Some(to_format)) => {
                let bits = if ftz { flushed(bits, from) } else { bits };
                let value = if whole {
                    soft::convert(whole_number(bits, from_format, rounding), from_format, to_format, rounding)
                } else {
                    soft::convert(bits, from_format, to_format, rounding)
                };
                let value = if ftz { flushed(value, to) } else { value };
                let value = match relu {
                    true if to_format.is_nan(value) => to_format.nan(),
                    true if value & to_format.sign() != 0 => 0,
                    _ => value,
                };
                let value = if saturate { saturated_bits(value, to_format) } else { value };
                let infinite =
                    value & (to_format.sign() - 1) == to_format.infinity() && !to_format.is_nan(value);
                let value =
                    if finite && infinite { value & to_format.sign() | to_format.largest() } else { value };
                if to == ScalarType::Tf32 { value << 13 } else { value }
            }
        }
    }

    fn integer_value(bits: u64, ty: ScalarType) -> i128 {
        let shift = 64 - 8 * ty.bytes() as u32;
        if ty.is_signed() { ((bits << shift) as i64 >> shift).into() } else { bits.into() }
    }

    /// The low bits of `value`, extended by the sign of the type.
    fn integer_bits(value: i128, ty: ScalarType) -> u64 {
        integer_value(value as u64 & u64::MAX >> (64 - 8 * ty.bytes() as u32), ty) as u64
    }

    /// `.ftz` applies to `.f32` on either side.
    fn flushed(bits: u64, ty: ScalarType) -> u64 {
        if ty == ScalarType::F32 { flush(f32::from_bits(bits as u32)).to_bits().into() } else { bits }
    }

    /// A floating-point number rounded to a whole one, in its own format. NaN stays.
    fn whole_number(bits: u64, format: Format, rounding: Rounding) -> u64 {
        match soft::to_integer(bits, format, rounding) {
            // Beyond 2^64 every number is whole.
            Some(value) if value.unsigned_abs() <= 1 << 64 => {
                soft::from_integer(value, format, Rounding::NearestEven) & !format.sign()
                    | bits & format.sign()
            }
            _ => bits,
        }
    }

    /// Into [0, 1]; NaN to 0.
    fn saturated_bits(value: u64, format: Format) -> u64 {
        let one = soft::from_integer(1, format, Rounding::NearestEven);
        if format.is_nan(value) || value & format.sign() != 0 { 0 } else { value.min(one) }
    }

    /// A value of one lane: any bits, integers of any size, numbers around powers of two and
    /// halves, special ones.
    fn value(random: &mut Random, from: ScalarType) -> u64 {
        let (bits, kind) = (random.bits(), random.bits());
        let Some(format) = format(from) else {
            let sized = bits >> (kind >> 8 & 63);
            return if kind & 1 != 0 { sized } else { sized.wrapping_neg() };
        };
        let small = || (bits as i64 >> (kind >> 8 & 63)).into();
        match kind % 8 {
            0 => bits,
            1 => [0, format.sign(), format.infinity(), format.infinity() | format.sign(), format.nan(), 1]
                [(bits % 6) as usize],
            2 => (format.infinity() - 1 - (bits & 0x3f)) | ((bits >> 60 & 1) * format.sign()),
            3 => soft::from_integer(small(), format, Rounding::NearestEven),
            4 => soft::from_integer(small(), format, Rounding::NearestEven).wrapping_add(bits >> 62),
            // Halves, and next to them.
            5 => {
                let twice = soft::from_integer(i128::from(bits as i16 | 1), soft::F64, Rounding::NearestEven);
                let half = (f64::from_bits(twice) / 2.0).to_bits();
                soft::convert(half, soft::F64, format, Rounding::NearestEven).wrapping_add(kind >> 62)
            }
            // Around the limits of narrower formats: exponents near zero and near their ends.
            6 => {
                let exponent =
                    [-150, -127, -25, -15, -10, -7, 8, 9, 15, 16, 127, 128][(kind >> 8) as usize % 12];
                let number = f64::from_bits(
                    ((1023 + exponent + (kind >> 16 & 3) as i64) as u64) << 52
                        | bits & 0xf_ffff_ffff_ffff & !(u64::MAX >> 12 >> (kind >> 20 & 63).min(52)),
                );
                soft::convert(number.to_bits(), soft::F64, format, Rounding::Zero)
            }
            _ => bits & (format.sign() - 1) | format.sign(),
        }
    }

    fn conversions() -> Vec<(u32, Conversion)> {
        let mut all = Vec::new();
        for from in TYPES {
            for to in TYPES {
                for rounding in ROUNDINGS {
                    for flags in [0, 1, 2, 3, 4, 6, 7, 8, 16, 24] {
                        let flag = |index: u32| flags >> index & 1 != 0;
                        let how = Conversion {
                            from,
                            to,
                            rounding,
                            whole: flag(0),
                            saturate: flag(1),
                            ftz: flag(2),
                            relu: flag(3),
                            finite: flag(4),
                        };
                        let whole = how.whole && (format(to).is_none() || from != to);
                        all.extend(how.pack().filter(|_| !whole).map(|packed| (packed, how)));
                    }
                }
            }
        }
        all
    }

    #[test]
    fn immediates_keep_everything() {
        assert!(conversions().iter().all(|(packed, how)| Conversion::unpack(*packed) == *how));
    }

    #[test]
    fn every_conversion_is_the_definition() {
        let mut random = Random::new(4711);
        for (packed, how) in conversions() {
            for _ in 0..8 {
                let longs: Longs = std::array::from_fn(|_| value(&mut random, how.from));
                let words = map(&longs, |x| x as u32);
                let found = match (how.from.bytes() == 8, how.to.bytes() == 8) {
                    (false, false) => map(&word_to_word(&words, packed), u64::from),
                    (false, true) => word_to_long(&words, packed),
                    (true, false) => map(&long_to_word(&longs, packed), u64::from),
                    (true, true) => long_to_long(&longs, packed),
                };
                for lane in 0..WARP {
                    let expected = definition(longs[lane], how);
                    let expected = if how.to.bytes() == 8 { expected } else { expected & 0xffff_ffff };
                    assert_eq!(
                        found[lane], expected,
                        "{how:?} of {:x}: {:x} {expected:x}",
                        longs[lane], found[lane]
                    );
                }
            }
        }
    }
}
