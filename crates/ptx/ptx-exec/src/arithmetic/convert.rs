//! `cvt` on whole registers: from any integer or floating-point type to any other.
//!
//! A conversion has a few stages, each a loop over the lanes that vectorises: the source as `f32`,
//! `f64` or a 64-bit integer, exactly ([`source`]); rounding to whole numbers ([`integer`]);
//! rounding to the format of the result, and the modifiers ([`rounding`]). A value with more digits
//! than the stage's type is first rounded to odd, which makes the later rounding exact (Boldo and
//! Melquiond). The tests compare every conversion with its definition by [`soft`].

mod integer;
mod rounding;
mod source;
#[cfg(test)]
mod tests;

use ptx::ScalarType;

use crate::arithmetic::convert::integer::{
    clamped, whole_doubles, whole_longs, whole_singles, whole_singles_as_words, whole_words,
};
use crate::arithmetic::convert::rounding::{finished, narrowed, rounded, saturated};
use crate::arithmetic::convert::source::{
    doubles, extended, integers, odd_integers, singles, small_integers,
};
use crate::arithmetic::soft::{self, Format, Rounding};
use crate::registers::lanes::{WARP, map};

/// A conversion, packed into the immediate of a step.
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
    /// `None` for an invalid conversion: from `.tf32`, or with modifiers that the types do not
    /// take.
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

/// Converts from at most 32 bits to at most 32.
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

/// Converts from at most 32 bits to 64.
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

/// Converts from 64 bits to at most 32.
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

/// Converts from 64 bits to 64.
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
