//! Instructions that select one of two numbers or change their sign: `min`, `max`, `abs`, `neg`,
//! `copysign`, `testp`.

use ptx::ScalarType;
use ptx::instruction::Property;
use ptx_lower::{Meaning, Op};

use crate::arithmetic::half_extremum::{self, Extremum};
use crate::arithmetic::numbers::{canonical, flush, maximum, minimum, saturate, saturate_flushed, with_nan};
use crate::compile::decode::Choice;
use crate::compile::decode::float::single;
use crate::compile::decode::halves::{flush_f16, pairwise};
use crate::registers::handler::LaneHandler;
use crate::registers::shapes::{binary, registers, ternary, test, unary};

#[inline(always)]
fn minimum_double(a: f64, b: f64) -> f64 {
    let first = if a == b { a.is_sign_negative() } else { a < b };
    if b.is_nan() | first { a } else { b }
}

#[inline(always)]
fn maximum_double(a: f64, b: f64) -> f64 {
    let first = if a == b { a.is_sign_positive() } else { a > b };
    if b.is_nan() | first { a } else { b }
}

/// `.xorsign.abs`: of the magnitudes, with the signs multiplied; a NaN has no sign.
#[inline(always)]
fn xor_sign(a: f32, b: f32, f: impl Fn(f32, f32) -> f32) -> f32 {
    let (sign, value) = ((a.to_bits() ^ b.to_bits()) & 0x8000_0000, f(a.abs(), b.abs()));
    if value.is_nan() { value } else { f32::from_bits(value.to_bits() | sign) }
}

/// Returns the handler of an instruction of this module.
pub(crate) fn handler(meaning: &Meaning) -> Option<Choice> {
    let run = match meaning.op {
        Op::MinimumOfThree | Op::MaximumOfThree => extremum_of_three(meaning)?,
        Op::Minimum | Op::Maximum => return extremum(meaning),
        Op::Absolute | Op::Negate => sign(meaning)?,
        Op::CopySign => copy_sign(meaning.ty)?,
        Op::Test(property) => test_property(property, meaning.ty)?,
        _ => return None,
    };
    Some((run, 0))
}

/// The extremum of three numbers.
fn extremum_of_three(meaning: &Meaning) -> Option<LaneHandler> {
    let Meaning { op, ty, modifiers } = *meaning;
    if ty != ScalarType::F32 || modifiers.saturates {
        return None;
    }
    #[inline(always)]
    fn three(a: f32, b: f32, c: f32, f: impl Fn(f32, f32) -> f32) -> f32 {
        f(f(a, b), c)
    }
    #[inline(always)]
    fn least(a: f32, b: f32) -> f32 {
        with_nan(a, b, minimum(a, b))
    }
    #[inline(always)]
    fn most(a: f32, b: f32) -> f32 {
        with_nan(a, b, maximum(a, b))
    }
    Some(match (op == Op::MinimumOfThree, modifiers.nan, modifiers.magnitudes) {
        (true, false, false) => single!(modifiers, ternary, |a, b, c| three(a, b, c, minimum)),
        (false, false, false) => single!(modifiers, ternary, |a, b, c| three(a, b, c, maximum)),
        (true, true, false) => single!(modifiers, ternary, |a, b, c| three(a, b, c, least)),
        (false, true, false) => single!(modifiers, ternary, |a, b, c| three(a, b, c, most)),
        (true, false, true) => {
            single!(modifiers, ternary, |a, b, c| three(a.abs(), b.abs(), c.abs(), minimum))
        }
        (false, false, true) => {
            single!(modifiers, ternary, |a, b, c| three(a.abs(), b.abs(), c.abs(), maximum))
        }
        (true, true, true) => single!(modifiers, ternary, |a, b, c| three(a.abs(), b.abs(), c.abs(), least)),
        (false, true, true) => single!(modifiers, ternary, |a, b, c| three(a.abs(), b.abs(), c.abs(), most)),
    })
}

fn extremum(meaning: &Meaning) -> Option<Choice> {
    let Meaning { op, ty, modifiers } = *meaning;
    let (min, nan, xorsign) = (op == Op::Minimum, modifiers.nan, modifiers.xor_sign);
    if modifiers.saturates {
        return None;
    }
    let run = match ty {
        ScalarType::F32 => match (min, nan, xorsign) {
            (true, false, false) => single!(modifiers, binary, |a, b| minimum(a, b)),
            (false, false, false) => single!(modifiers, binary, |a, b| maximum(a, b)),
            (true, true, false) => single!(modifiers, binary, |a, b| with_nan(a, b, minimum(a, b))),
            (false, true, false) => single!(modifiers, binary, |a, b| with_nan(a, b, maximum(a, b))),
            (true, false, true) => single!(modifiers, binary, |a, b| xor_sign(a, b, minimum)),
            (false, false, true) => single!(modifiers, binary, |a, b| xor_sign(a, b, maximum)),
            (true, true, true) => single!(modifiers, binary, |a, b| with_nan(a, b, xor_sign(a, b, minimum))),
            (false, true, true) => {
                single!(modifiers, binary, |a, b| with_nan(a, b, xor_sign(a, b, maximum)))
            }
        },
        ScalarType::F64 if !nan && !xorsign => match min {
            true => binary(minimum_double),
            false => binary(maximum_double),
        },
        ScalarType::F16 | ScalarType::F16x2 | ScalarType::Bf16 | ScalarType::Bf16x2 => {
            let brain = matches!(ty, ScalarType::Bf16 | ScalarType::Bf16x2);
            let pair = matches!(ty, ScalarType::F16x2 | ScalarType::Bf16x2);
            if brain && modifiers.flushes {
                return None;
            }
            let how = Extremum { max: !min, brain, pair, nan, xorsign, ftz: modifiers.flushes };
            let run = registers!(u32 => u32, |a, b, _, how| half_extremum::compute(a, b, how));
            return Some((run, how.pack()));
        }
        _ => return None,
    };
    Some((run, 0))
}

/// `abs` and `neg` change the sign bit, of NaNs too.
fn sign(meaning: &Meaning) -> Option<LaneHandler> {
    use ScalarType::*;
    Some(match (meaning.ty, meaning.op == Op::Absolute, meaning.modifiers.flushes) {
        (F32, true, false) => unary(|a: u32| a & 0x7fff_ffff),
        (F32, false, false) => unary(|a: u32| a ^ 0x8000_0000),
        (F32, true, true) => unary(|a: f32| flush(a).abs()),
        (F32, false, true) => unary(|a: f32| -flush(a)),
        (F64, true, false) => unary(|a: u64| a & i64::MAX as u64),
        (F64, false, false) => unary(|a: u64| a ^ 1 << 63),
        (F16 | Bf16, true, false) => unary(|a: u16| a & 0x7fff),
        (F16 | Bf16, false, false) => unary(|a: u16| a ^ 0x8000),
        (F16, true, true) => unary(|a: u16| flush_f16(a) & 0x7fff),
        (F16, false, true) => unary(|a: u16| flush_f16(a) ^ 0x8000),
        (F16x2 | Bf16x2, true, false) => unary(|a: u32| a & 0x7fff_7fff),
        (F16x2 | Bf16x2, false, false) => unary(|a: u32| a ^ 0x8000_8000),
        (F16x2, true, true) => unary(|a: u32| pairwise(a, a, |a, _| flush_f16(a) & 0x7fff)),
        (F16x2, false, true) => unary(|a: u32| pairwise(a, a, |a, _| flush_f16(a) ^ 0x8000)),
        _ => return None,
    })
}

fn copy_sign(ty: ScalarType) -> Option<LaneHandler> {
    Some(match ty {
        // The first operand gives the sign.
        ScalarType::F32 => binary(|a: u32, b: u32| a & 0x8000_0000 | b & 0x7fff_ffff),
        ScalarType::F64 => binary(|a: u64, b: u64| a & 1 << 63 | b & i64::MAX as u64),
        _ => return None,
    })
}

fn test_property(property: Property, ty: ScalarType) -> Option<LaneHandler> {
    use ScalarType::{F32, F64};
    Some(match (property, ty) {
        (Property::Finite, F32) => test(|a: f32| a.is_finite()),
        (Property::Infinite, F32) => test(|a: f32| a.is_infinite()),
        (Property::Number, F32) => test(|a: f32| !a.is_nan()),
        (Property::Nan, F32) => test(|a: f32| a.is_nan()),
        (Property::Normal, F32) => test(|a: f32| a.is_normal() || a == 0.0),
        (Property::Subnormal, F32) => test(|a: f32| a.is_subnormal()),
        (Property::Finite, F64) => test(|a: f64| a.is_finite()),
        (Property::Infinite, F64) => test(|a: f64| a.is_infinite()),
        (Property::Number, F64) => test(|a: f64| !a.is_nan()),
        (Property::Nan, F64) => test(|a: f64| a.is_nan()),
        (Property::Normal, F64) => test(|a: f64| a.is_normal() || a == 0.0),
        (Property::Subnormal, F64) => test(|a: f64| a.is_subnormal()),
        _ => return None,
    })
}
