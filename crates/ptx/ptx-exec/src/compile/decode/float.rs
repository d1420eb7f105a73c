//! Floating-point arithmetic.
//!
//! To nearest even, in `.f32` and `.f64`, it is the host's arithmetic with NVIDIA's NaN; in the
//! other directions [`directed`](crate::arithmetic::directed) computes it. Approximate instructions
//! give the correctly rounded result, or within two units of the last place of it, which is inside
//! every bound that the ISA states; only the special cases that it documents are imitated.

use ptx::ScalarType;
use ptx_lower::{Meaning, Modifiers, Op};

use crate::arithmetic::approximate;
use crate::arithmetic::directed::{self, Directed, Operation};
use crate::arithmetic::numbers::{canonical, flush, saturate, saturate_flushed};
use crate::arithmetic::soft::Rounding;
use crate::compile::decode::{Choice, choice, direction, halves};
use crate::registers::handler::LaneHandler;
use crate::registers::shapes::{binary, ternary, unary};

/// `$shape` of an `.f32` expression, with `.ftz` and `.sat` as the modifiers say.
macro_rules! single {
    ($modifiers:expr, $shape:ident, |$($x:ident),+| $body:expr) => {
        match ($modifiers.flushes, $modifiers.saturates) {
            (false, false) => $shape(|$($x: f32),+| canonical($body)),
            (false, true) => $shape(|$($x: f32),+| saturate($body)),
            (true, false) => $shape(|$($x: f32),+| {
                $(let $x = flush($x);)+
                flush(canonical($body))
            }),
            (true, true) => $shape(|$($x: f32),+| {
                $(let $x = flush($x);)+
                saturate_flushed($body)
            }),
        }
    };
}

pub(crate) use single;

/// An operation of [`directed`](crate::arithmetic::directed), computed in this type.
fn directed(meaning: &Meaning, ty: ScalarType) -> Option<Choice> {
    let Modifiers { flushes: ftz, saturates: sat, rounding, narrow, .. } = meaning.modifiers;
    let operation = match meaning.op {
        Op::Add => Operation::Add,
        Op::Subtract => Operation::Sub,
        Op::Multiply(_) => Operation::Mul,
        Op::MultiplyAdd(_) => Operation::Fma,
        Op::Divide => Operation::Div,
        Op::SquareRoot => Operation::Sqrt,
        Op::Reciprocal => Operation::Reciprocal,
        _ => return None,
    };
    let how = Directed { operation, rounding: direction(rounding), ftz, sat, narrow };
    Some((directed::handler(ty)?, how.pack()))
}

/// Returns the handler of floating-point arithmetic.
pub(crate) fn handler(meaning: &Meaning) -> Option<Choice> {
    use ScalarType::{F32, F32x2, F64};
    let Meaning { op, ty, modifiers } = *meaning;
    let is_nearest = direction(modifiers.rounding) == Rounding::NearestEven;
    match (op, ty) {
        (Op::Test(_) | Op::CopySign | Op::Absolute | Op::Negate, _) => choice::handler(meaning),
        (Op::Minimum | Op::Maximum | Op::MinimumOfThree | Op::MaximumOfThree, _) => choice::handler(meaning),
        _ if modifiers.rectifies && (!is_nearest || matches!(ty, F32 | F64 | F32x2)) => None,
        // The narrow sources become `.f32` first.
        (Op::Add | Op::Subtract | Op::MultiplyAdd(_), F32) if modifiers.narrow.is_some() => {
            directed(meaning, F32)
        }
        _ if modifiers.narrow.is_some() => None,
        (Op::Add | Op::Subtract | Op::Multiply(_) | Op::MultiplyAdd(_), F32x2) if !modifiers.saturates => {
            directed(meaning, F32x2)
        }
        (_, F32x2) => None,
        (_, F64) if modifiers.saturates || !is_nearest && modifiers.flushes => None,
        _ if !is_nearest => directed(meaning, ty),
        (_, F32) => Some((single_precision(meaning)?, 0)),
        (_, F64) => Some((double_precision(meaning)?, 0)),
        _ => halves::handler(meaning),
    }
}

/// `.f32` to nearest even, and the approximations.
fn single_precision(meaning: &Meaning) -> Option<LaneHandler> {
    let modifiers = meaning.modifiers;
    Some(match meaning.op {
        Op::Add => single!(modifiers, binary, |a, b| a + b),
        Op::Subtract => single!(modifiers, binary, |a, b| a - b),
        Op::Multiply(_) => single!(modifiers, binary, |a, b| a * b),
        Op::MultiplyAdd(_) => single!(modifiers, ternary, |a, b, c| a.mul_add(b, c)),
        Op::Divide if modifiers.approximate => {
            single!(modifiers, binary, |a, b| divide_approximately(a, b))
        }
        Op::Divide => single!(modifiers, binary, |a, b| a / b),
        Op::SquareRoot => single!(modifiers, unary, |a| a.sqrt()),
        Op::Reciprocal => single!(modifiers, unary, |a| 1.0 / a),
        Op::ReciprocalSquareRoot => single!(modifiers, unary, |a| (1.0 / f64::from(a).sqrt()) as f32),
        Op::Sine => single!(modifiers, unary, |a| approximate::sin(a)),
        Op::Cosine => single!(modifiers, unary, |a| approximate::cos(a)),
        Op::Logarithm => single!(modifiers, unary, |a| approximate::log2(a)),
        Op::PowerOfTwo => single!(modifiers, unary, |a| approximate::exp2(a)),
        Op::HyperbolicTangent => single!(modifiers, unary, |a| approximate::tanh(a)),
        _ => return None,
    })
}

/// `div.approx`: a divisor whose reciprocal would be subnormal gives zero.
#[inline(always)]
fn divide_approximately(a: f32, b: f32) -> f32 {
    let huge = b.abs() > f32::from_bits(0x7e80_0000) && b.is_finite();
    if huge { a * (0.0f32).copysign(b) } else { a / b }
}

fn double_precision(meaning: &Meaning) -> Option<LaneHandler> {
    let Modifiers { approximate, flushes, .. } = meaning.modifiers;
    Some(match meaning.op {
        Op::Add => binary(|a: f64, b: f64| a + b),
        Op::Subtract => binary(|a: f64, b: f64| a - b),
        Op::Multiply(_) => binary(|a: f64, b: f64| a * b),
        Op::MultiplyAdd(_) => ternary(f64::mul_add),
        Op::Divide => binary(|a: f64, b: f64| a / b),
        Op::SquareRoot => unary(f64::sqrt),
        Op::Reciprocal if approximate => unary(|a: f64| approximately(1.0 / upper_word(a))),
        Op::Reciprocal => unary(|a: f64| 1.0 / a),
        Op::ReciprocalSquareRoot if flushes => unary(|a: f64| approximately(1.0 / upper_word(a).sqrt())),
        Op::ReciprocalSquareRoot => unary(|a: f64| 1.0 / a.sqrt()),
        _ => return None,
    })
}

#[inline(always)]
fn flush_double(value: f64) -> f64 {
    if value.is_subnormal() { 0.0f64.copysign(value) } else { value }
}

/// Returns the part of a number that the approximations of `.ftz.f64` read: its upper word, without
/// subnormals.
#[inline(always)]
fn upper_word(value: f64) -> f64 {
    flush_double(f64::from_bits(value.to_bits() & !0xffff_ffff))
}

/// The approximations of `.ftz.f64` have 20 bits of fraction, and a NaN of their own.
#[inline(always)]
fn approximately(value: f64) -> f64 {
    if value.is_nan() {
        return f64::from_bits(0x7fff_ffff_0000_0000);
    }
    f64::from_bits(flush_double(value).to_bits() & !0xffff_ffff)
}
