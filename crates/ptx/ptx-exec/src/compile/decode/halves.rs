//! Arithmetic in half precision: `.f16`, `.bf16` and pairs of them.

use ptx::ScalarType;
use ptx_lower::{Meaning, Modifiers, Op};

use crate::arithmetic::approximate;
use crate::arithmetic::half_arithmetic::{self, Half, Operation};
use crate::arithmetic::numbers::flush;
use crate::compile::decode::Choice;
use crate::registers::handler::LaneHandler;
use crate::registers::shapes::registers;

/// `f` on both halves.
#[inline(always)]
pub(crate) fn pairwise(a: u32, b: u32, f: impl Fn(u16, u16) -> u16) -> u32 {
    u32::from(f(a as u16, b as u16)) | u32::from(f((a >> 16) as u16, (b >> 16) as u16)) << 16
}

/// Makes an expression on `.f32` one on halves or pairs of halves.
macro_rules! half {
    ($ty:expr, |$a:ident| $body:expr) => {{
        use crate::arithmetic::half_arithmetic::on_halves;
        match $ty {
            ScalarType::F16 => registers!(u32 => u32, |a, _, _, _| on_halves::<false, false>(a, |$a| $body)),
            ScalarType::F16x2 => registers!(u32 => u32, |a, _, _, _| on_halves::<false, true>(a, |$a| $body)),
            ScalarType::Bf16 => registers!(u32 => u32, |a, _, _, _| on_halves::<true, false>(a, |$a| $body)),
            ScalarType::Bf16x2 => registers!(u32 => u32, |a, _, _, _| on_halves::<true, true>(a, |$a| $body)),
            _ => return None,
        }
    }};
}

#[inline(always)]
pub(crate) fn flush_f16(half: u16) -> u16 {
    if half & 0x7c00 == 0 { half & 0x8000 } else { half }
}

/// `add`, `sub`, `mul` and `fma`, with their modifiers.
fn arithmetic(meaning: &Meaning, operation: Operation) -> Option<Choice> {
    use ScalarType::*;
    let Modifiers { flushes: ftz, saturates: sat, rectifies: relu, .. } = meaning.modifiers;
    let (brain, pair) = match meaning.ty {
        F16 => (false, false),
        F16x2 => (false, true),
        Bf16 => (true, false),
        Bf16x2 => (true, true),
        _ => return None,
    };
    if brain && (ftz || sat) || sat && relu {
        return None;
    }
    let how = Half { operation, brain, pair, ftz, sat, relu };
    Some((registers!(u32 => u32, |a, b, c, how| half_arithmetic::compute(a, b, c, how)), how.pack()))
}

/// Returns the handler of arithmetic on halves and pairs of halves.
pub(crate) fn handler(meaning: &Meaning) -> Option<Choice> {
    let Meaning { op, ty, modifiers } = *meaning;
    let run = match (op, modifiers.flushes, modifiers.saturates) {
        (Op::Add, ..) => return arithmetic(meaning, Operation::Add),
        (Op::Subtract, ..) => return arithmetic(meaning, Operation::Sub),
        (Op::Multiply(_), ..) => return arithmetic(meaning, Operation::Mul),
        (Op::MultiplyAdd(_), ..) => return arithmetic(meaning, Operation::Fma),
        (Op::PowerOfTwo, false, false) => half!(ty, |a| approximate::exp2(a)),
        (Op::PowerOfTwo, true, false) => power_flushed(ty)?,
        (Op::HyperbolicTangent, false, false) => half!(ty, |a| approximate::tanh(a)),
        _ => return None,
    };
    Some((run, 0))
}

/// `ex2.ftz`.
fn power_flushed(ty: ScalarType) -> Option<LaneHandler> {
    use ScalarType::*;
    use half_arithmetic::{flushed, on_halves};
    Some(match ty {
        F16 => registers!(u32 => u32, |a, _, _, _| {
            flushed(&on_halves::<false, false>(a, approximate::exp2))
        }),
        F16x2 => registers!(u32 => u32, |a, _, _, _| {
            flushed(&on_halves::<false, true>(a, approximate::exp2))
        }),
        _ => half!(ty, |a| flush(approximate::exp2(a))),
    })
}
