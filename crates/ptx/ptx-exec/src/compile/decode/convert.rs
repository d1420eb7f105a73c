//! `cvt`: from any of the integer and floating-point types to any other.
//!
//! The conversions that compilers emit most have a handler of their own; all others go through the
//! stages of [`convert`].

use ptx::ScalarType;
use ptx::instruction::Rounding::{WholeDown, WholeNearest, WholeUp, WholeZero};
use ptx_lower::{Meaning, Modifiers, Op, element};

use crate::arithmetic::convert::{self, Conversion, format};
use crate::arithmetic::half::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};
use crate::arithmetic::numbers::{canonical, to_i32, to_u32};
use crate::arithmetic::soft::Rounding;
use crate::compile::decode::{Choice, direction};
use crate::registers::handler::LaneHandler;
use crate::registers::lanes::{Register, map, zip};
use crate::registers::shapes::{binary, registers, unary};

/// Handlers for what is frequent.
fn fast(conversion: Conversion) -> Option<LaneHandler> {
    use ScalarType::*;
    let Conversion { from, to, rounding, whole, saturate, ftz, relu, finite } = conversion;
    if saturate || relu || finite {
        return None;
    }
    let nearest = rounding == Rounding::NearestEven;
    macro_rules! cast {
        ($($a:ty),* => $($b:ident: $bt:ty),*) => { cast!(@ [$($a),*] [$($b: $bt),*]) };
        (@ [$($a:ty),*] $b:tt) => { None$(.or_else(|| cast!(# $a, $b)))* };
        (# $a:ty, [$($b:ident: $bt:ty),*]) => {
            if from != type_of::<$a>() { None } else { match to { $($b => Some(unary(|a: $a| a as $bt)),)* _ => None } }
        };
    }
    let integers = format(from).is_none() && format(to).is_none();
    if integers {
        return cast!(u8, i8, u16, i16, u32, i32, u64, i64
            => U8: u8, S8: i8, U16: u16, S16: i16, U32: u32, S32: i32, U64: u64, S64: i64);
    }
    Some(match (from, to) {
        _ if ftz && !(from == F32 && matches!(to, S32 | U32)) => return None,
        (U8 | U16 | U32 | U64 | S8 | S16 | S32 | S64, F32) if nearest => {
            return cast!(u8, i8, u16, i16, u32, i32, u64, i64 => F32: f32);
        }
        (U8 | U16 | U32 | S8 | S16 | S32, F64) => return cast!(u8, i8, u16, i16, u32, i32 => F64: f64),
        (U64 | S64, F64) if nearest => return cast!(u64, i64 => F64: f64),
        // Subnormal numbers truncate to 0 with `.ftz` and without.
        (F32, S32) if rounding == Rounding::Zero => unary(|a: f32| to_i32(a.trunc())),
        (F32, U32) if rounding == Rounding::Zero => unary(|a: f32| to_u32(a.trunc())),
        (F32, S32) if nearest => unary(|a: f32| to_i32(a.round_ties_even())),
        (F32, S32) if !ftz && rounding == Rounding::Down => unary(|a: f32| to_i32(a.floor())),
        (F32, S32) if !ftz && rounding == Rounding::Up => unary(|a: f32| to_i32(a.ceil())),
        // Rust's casts saturate, as the ISA does.
        (F32, S64) if rounding == Rounding::Zero => {
            unary(|a: f32| if a.is_nan() { i64::MIN } else { a as i64 })
        }
        (F32, U64) if rounding == Rounding::Zero => {
            unary(|a: f32| if a.is_nan() { 1 << 63 } else { a as u64 })
        }
        (F64, S32) if rounding == Rounding::Zero => {
            unary(|a: f64| if a.is_nan() { i32::MIN } else { a as i32 })
        }
        (F64, U32) if rounding == Rounding::Zero => {
            unary(|a: f64| if a.is_nan() { 1 << 31 } else { a as u32 })
        }
        (F64, S64) if rounding == Rounding::Zero => {
            unary(|a: f64| if a.is_nan() { i64::MIN } else { a as i64 })
        }
        (F64, U64) if rounding == Rounding::Zero => {
            unary(|a: f64| if a.is_nan() { 1 << 63 } else { a as u64 })
        }
        (F32, F64) if !whole => unary(|a: f32| f64::from(a)),
        (F64, F32) if nearest && !whole => unary(|a: f64| canonical(a as f32)),
        (F32, F32) if whole && nearest => unary(|a: f32| canonical(a.round_ties_even())),
        (F32, F32) if whole && rounding == Rounding::Zero => unary(|a: f32| canonical(a.trunc())),
        (F32, F32) if whole && rounding == Rounding::Down => unary(|a: f32| canonical(a.floor())),
        (F32, F32) if whole && rounding == Rounding::Up => unary(|a: f32| canonical(a.ceil())),
        (F64, F64) if whole && nearest => unary(f64::round_ties_even),
        (F64, F64) if whole && rounding == Rounding::Zero => unary(f64::trunc),
        (F64, F64) if whole && rounding == Rounding::Down => unary(f64::floor),
        (F64, F64) if whole && rounding == Rounding::Up => unary(f64::ceil),
        (F16, F32) if !whole => unary(|a: u16| canonical(f16_to_f32(a))),
        (Bf16, F32) if !whole => unary(|a: u16| canonical(bf16_to_f32(a))),
        (F32, Bf16) if nearest && !whole => unary(f32_to_bf16),
        _ => return None,
    })
}

/// The PTX type of a Rust integer.
fn type_of<T: Typed>() -> ScalarType {
    T::TYPE
}

trait Typed {
    const TYPE: ScalarType;
}

macro_rules! typed_as {
    ($($ty:ty: $ptx:ident),*) => {$(
        impl Typed for $ty {
            const TYPE: ScalarType = ScalarType::$ptx;
        }
    )*};
}

typed_as!(u8: U8, i8: S8, u16: U16, i16: S16, u32: U32, i32: S32, u64: U64, i64: S64);

/// Returns the handler of a conversion.
pub(crate) fn handler(meaning: &Meaning) -> Option<Choice> {
    let (to, finite) = match meaning.op {
        Op::Convert { to, finite } => (to, finite),
        Op::PackIntegers { width, signed } => return Some(pack_integers(width, signed)),
        _ => return None,
    };
    let Modifiers { rounding, saturates: saturate, rectifies: relu, flushes: ftz, .. } = meaning.modifiers;
    let whole = matches!(rounding, Some(WholeNearest | WholeZero | WholeDown | WholeUp));
    let rounding = direction(rounding);
    let conversion = Conversion { from: meaning.ty, to, rounding, whole, saturate, ftz, relu, finite };
    if element(to).is_some() {
        return pair(conversion);
    }
    let immediate = conversion.pack()?;
    if let Some(run) = fast(conversion) {
        return Some((run, 0));
    }
    let run = match (meaning.ty.bytes() == 8, to.bytes() == 8) {
        (false, false) => registers!(u32 => u32, |a, _, _, how| convert::word_to_word(a, how)),
        (false, true) => registers!(u32 => u64, |a, _, _, how| convert::word_to_long(a, how)),
        (true, false) => registers!(u64 => u32, |a, _, _, how| convert::long_to_word(a, how)),
        (true, true) => registers!(u64 => u64, |a, _, _, how| convert::long_to_long(a, how)),
    };
    Some((run, immediate))
}

/// `cvt` to a pair: of two `.f32`, of which the first becomes the upper half, or of another pair.
fn pair(conversion: Conversion) -> Option<Choice> {
    use ScalarType::*;
    let Conversion { from, to, rounding, relu, whole, saturate, ftz, finite } = conversion;
    let directions: &[Rounding] = match (from, to) {
        (F32, F16x2 | Bf16x2) => &[Rounding::NearestEven, Rounding::Zero],
        (F32 | F16x2 | Bf16x2, E4m3x2 | E5m2x2) if finite => &[Rounding::NearestEven],
        (E4m3x2 | E5m2x2, F16x2) if !finite => &[Rounding::NearestEven],
        _ => &[],
    };
    if whole || saturate || ftz || !directions.contains(&rounding) {
        return None;
    }
    match to {
        F16x2 if from == F32 && rounding == Rounding::NearestEven && !relu && !finite => {
            return Some((binary(|a: f32, b: f32| join(f32_to_f16(a), f32_to_f16(b))), 0));
        }
        Bf16x2 if from == F32 && rounding == Rounding::NearestEven && !relu && !finite => {
            return Some((binary(|a: f32, b: f32| join(f32_to_bf16(a), f32_to_bf16(b))), 0));
        }
        _ => {}
    }
    let of_elements =
        Conversion { from: element(from).unwrap_or(from), to: element(to).unwrap_or(to), ..conversion };
    Some((registers!(u32 => u32, |a, b, _, how| two(a, b, how)), of_elements.pack()?))
}

#[inline(always)]
fn join(high: u16, low: u16) -> u32 {
    u32::from(high) << 16 | u32::from(low)
}

/// Converts the two elements of a pair, or two `.f32`, to the elements of a pair: `a` becomes the
/// upper one, `b` the lower.
#[inline(always)]
fn two(a: &Register<u32>, b: &Register<u32>, conversion: u32) -> Register<u32> {
    let Conversion { from, to, .. } = Conversion::unpack(conversion);
    let upper = if from == ScalarType::F32 { *a } else { map(a, |a| a >> (8 * from.bytes())) };
    let mut elements = [upper, *b];
    for element in &mut elements {
        *element = convert::word_to_word(element, conversion);
    }
    let width = 8 * to.bytes();
    zip(&elements[0], &elements[1], |high, low| high << width | low & ((1 << width) - 1))
}

/// `cvt.pack`: two integers, saturated to a narrow type, at the bottom of the result; `c` moves up.
fn pack_integers(width: u8, signed: bool) -> Choice {
    let run = registers!(u32 => u32, |a, b, c, immediate| {
        let (width, signed) = (immediate & 31, immediate >> 5 != 0);
        let (low, high) =
            if signed { (-(1i32 << (width - 1)), (1 << (width - 1)) - 1) } else { (0, (1 << width) - 1) };
        let narrowed = |value: u32| (value as i32).clamp(low, high) as u32 & ((1 << width) - 1);
        let both = zip(a, b, |a, b| narrowed(a) << width | narrowed(b));
        if width < 16 { zip(c, &both, |c, both| c << (2 * width) | both) } else { both }
    });
    (run, u32::from(width) | u32::from(signed) << 5)
}
