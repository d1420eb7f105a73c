//! `cvt`: from any of the integer and floating-point types to any other.
//!
//! The conversions that compilers emit most have a handler of their own, which vectorises; all others go through
//! [`general`], which follows the ISA step by step. Both compute the same, and tests compare them.

use ptx::ScalarType;

use super::super::half::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};
use super::super::lanes::{LaneHandler, binary, each_immediate, unary};
use super::super::numbers::{canonical, flush};
use super::super::soft::{self, Format, Rounding};
use super::decode::Pure;
use super::form::Form;

/// A conversion, as it travels in the immediate of a step.
#[derive(Clone, Copy)]
struct Conversion {
    from: ScalarType,
    to: ScalarType,
    rounding: Rounding,
    /// Rounds to a whole number: `.rni` and its like.
    whole: bool,
    saturate: bool,
    ftz: bool,
    relu: bool,
    /// Infinities become the largest number: `.satfinite`.
    finite: bool,
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
    fn pack(self) -> Option<u32> {
        let index = |ty| TYPES.iter().position(|known| *known == ty);
        let rounding = ROUNDINGS.iter().position(|known| *known == self.rounding)?;
        let flags = [self.whole, self.saturate, self.ftz, self.relu, self.finite];
        let flags = flags.iter().enumerate().fold(0, |bits, (index, &set)| bits | u32::from(set) << index);
        Some(index(self.from)? as u32 | (index(self.to)? as u32) << 8 | (rounding as u32) << 16 | flags << 24)
    }

    fn unpack(bits: u32) -> Self {
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

fn format(ty: ScalarType) -> Option<Format> {
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

/// Smallest and largest value of an integer type.
fn range(ty: ScalarType) -> (i128, i128) {
    let bits = 8 * ty.bytes() as u32;
    match ty.is_signed() {
        true => (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
        false => (0, (1 << bits) - 1),
    }
}

/// Any conversion, by the book. Bits above the type's own are ignored on the way in and extend it on the way out.
fn general(bits: u64, conversion: u32) -> u64 {
    let Conversion { from, to, rounding, whole, saturate, ftz, relu, finite } =
        Conversion::unpack(conversion);
    let width = 8 * from.bytes() as u32;
    let bits = bits & u64::MAX >> (64 - width);
    match (format(from), format(to)) {
        (None, None) => {
            let value = integer_value(bits, from);
            integer_bits(if saturate { value.clamp(range(to).0, range(to).1) } else { value }, to)
        }
        (None, Some(to_format)) => {
            let value = soft::from_integer(integer_value(bits, from), to_format, rounding);
            if saturate { saturated(value, to_format) } else { value }
        }
        (Some(from_format), None) => {
            let bits = if ftz { flushed(bits, from) } else { bits };
            match soft::to_integer(bits, from_format, rounding) {
                Some(value) => integer_bits(value.clamp(range(to).0, range(to).1), to),
                // NaN: zero, but the top bit where either side has 64 bits.
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
            let value = if saturate { saturated(value, to_format) } else { value };
            let infinite = value & (to_format.sign() - 1) == to_format.infinity() && !to_format.is_nan(value);
            let value =
                if finite && infinite { value & to_format.sign() | to_format.largest() } else { value };
            // `.tf32` fills the upper bits of its register.
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
            soft::from_integer(value, format, Rounding::NearestEven) & !format.sign() | bits & format.sign()
        }
        _ => bits,
    }
}

/// Into [0, 1]; NaN to 0.
fn saturated(value: u64, format: Format) -> u64 {
    let one = soft::from_integer(1, format, Rounding::NearestEven);
    if format.is_nan(value) || value & format.sign() != 0 { 0 } else { value.min(one) }
}

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
        // Rust's casts saturate and give 0 for NaN, as the ISA does where neither side has 64 bits. Subnormal
        // numbers truncate to 0 with `.ftz` and without.
        (F32, S32) if rounding == Rounding::Zero => unary(|a: f32| a as i32),
        (F32, U32) if rounding == Rounding::Zero => unary(|a: f32| a as u32),
        (F32, S32) if nearest => unary(|a: f32| a.round_ties_even() as i32),
        (F32, S32) if !ftz && rounding == Rounding::Down => unary(|a: f32| a.floor() as i32),
        (F32, S32) if !ftz && rounding == Rounding::Up => unary(|a: f32| a.ceil() as i32),
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
        (F32, F16) if nearest && !whole => unary(f32_to_f16),
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

/// Decodes `cvt`.
pub(super) fn decode(form: &mut Form) -> Option<Pure> {
    if form.flag("pack") {
        return pack_integers(form);
    }
    let (rounding, whole) = form
        .take(|m| {
            Some(match m {
                "rn" => (Rounding::NearestEven, false),
                "rna" => (Rounding::NearestAway, false),
                "rz" => (Rounding::Zero, false),
                "rm" => (Rounding::Down, false),
                "rp" => (Rounding::Up, false),
                "rni" => (Rounding::NearestEven, true),
                "rzi" => (Rounding::Zero, true),
                "rmi" => (Rounding::Down, true),
                "rpi" => (Rounding::Up, true),
                _ => return None,
            })
        })
        .unwrap_or((Rounding::NearestEven, false));
    let (relu, ftz, saturate) = (form.flag("relu"), form.flag("ftz"), form.flag("sat"));
    let finite = form.flag("satfinite");
    let (to, from) = (form.ty()?, form.ty()?);
    let conversion = Conversion { from, to, rounding, whole, saturate, ftz, relu, finite };
    if element(to).is_some() {
        return pair(conversion);
    }
    let immediate = conversion.pack()?;
    if let Some(run) = fast(conversion) {
        return Pure::new(run, to, &[from]);
    }
    let run = match (from.bytes(), to.bytes()) {
        (8, 8) => each_immediate(|a: u64, _, _, conversion| general(a, conversion)),
        (8, _) => return Some(Pure::new(narrowing(), to, &[from])?.with(immediate)),
        (_, 8) => return Some(Pure::new(widening(), to, &[from])?.with(immediate)),
        _ => each_immediate(|a: u32, _, _, conversion| general(a.into(), conversion) as u32),
    };
    Some(Pure::new(run, to, &[from])?.with(immediate))
}

fn narrowing() -> LaneHandler {
    each_immediate(|a: u64, _, _, conversion| general(a, conversion) as u32)
}

fn widening() -> LaneHandler {
    each_immediate(|a: u32, _, _, conversion| general(a.into(), conversion))
}

/// The type of which a pair is made.
fn element(pair: ScalarType) -> Option<ScalarType> {
    use ScalarType::*;
    Some(match pair {
        F16x2 => F16,
        Bf16x2 => Bf16,
        E4m3x2 => E4m3,
        E5m2x2 => E5m2,
        _ => return None,
    })
}

/// `cvt` to a pair: of two `.f32`, of which the first becomes the upper half, or of another pair.
fn pair(conversion: Conversion) -> Option<Pure> {
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
            return Pure::new(binary(|a: f32, b: f32| join(f32_to_f16(a), f32_to_f16(b))), to, &[F32; 2]);
        }
        Bf16x2 if from == F32 && rounding == Rounding::NearestEven && !relu && !finite => {
            return Pure::new(binary(|a: f32, b: f32| join(f32_to_bf16(a), f32_to_bf16(b))), to, &[F32; 2]);
        }
        _ => {}
    }
    let of_elements =
        Conversion { from: element(from).unwrap_or(from), to: element(to).unwrap_or(to), ..conversion };
    let immediate = of_elements.pack()?;
    let pure = match (from, to.bytes()) {
        (F32, 4) => {
            Pure::new(each_immediate(|a, b, _, conversion| two::<16>(a, b, conversion)), to, &[F32; 2])
        }
        (F32, _) => {
            Pure::new(each_immediate(|a, b, _, conversion| two::<8>(a, b, conversion)), to, &[F32; 2])
        }
        (_, 4) => {
            Pure::new(each_immediate(|a, _, _, conversion| two::<16>(a >> 8, a, conversion)), to, &[from])
        }
        _ => Pure::new(each_immediate(|a, _, _, conversion| two::<8>(a >> 16, a, conversion)), to, &[from]),
    };
    Some(pure?.with(immediate))
}

#[inline(always)]
fn join(high: u16, low: u16) -> u32 {
    u32::from(high) << 16 | u32::from(low)
}

/// Two conversions, their results in elements of `WIDTH` bits.
fn two<const WIDTH: u32>(high: u32, low: u32, conversion: u32) -> u32 {
    let one = |value: u32| general(value.into(), conversion) as u32 & ((1 << WIDTH) - 1);
    one(high) << WIDTH | one(low)
}

/// `cvt.pack`: two integers, saturated to a narrow type, at the bottom of the result; `c` moves up.
fn pack_integers(form: &mut Form) -> Option<Pure> {
    let saturates = form.flag("sat");
    let narrow = form.one_of(&["u16", "s16", "u8", "s8", "u4", "s4", "u2", "s2"])?;
    let (from, rest) = (form.ty()?, form.ty());
    let wide = narrow.ends_with("16");
    if !saturates || from != ScalarType::S32 || rest != (!wide).then_some(ScalarType::B32) {
        return None;
    }
    let width: u32 = narrow[1..].parse().ok()?;
    let signed = narrow.starts_with('s');
    let run = each_immediate(|a: u32, b: u32, c: u32, immediate| {
        let (width, signed) = (immediate & 31, immediate >> 5 != 0);
        let (low, high) =
            if signed { (-(1i64 << (width - 1)), (1 << (width - 1)) - 1) } else { (0, (1 << width) - 1) };
        let narrowed = |value: u32| i64::from(value as i32).clamp(low, high) as u32 & ((1 << width) - 1);
        let both = narrowed(a) << width | narrowed(b);
        if width < 16 { c << (2 * width) | both } else { both }
    });
    let sources = [from, from, ScalarType::B32];
    let sources = if wide { &sources[..2] } else { &sources };
    Some(Pure::new(run, ScalarType::U32, sources)?.with(width | u32::from(signed) << 5))
}
