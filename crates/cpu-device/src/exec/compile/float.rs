//! Floating-point arithmetic.
//!
//! To nearest even, in `.f32` and `.f64`, it is the host's arithmetic with NVIDIA's NaN. In the other directions it is
//! [`soft`]'s. Approximate instructions give the correctly rounded result, or within two units of the last place of
//! it, which is inside every bound that the ISA states; only the special cases that it documents are imitated.

use ptx::ScalarType;

use super::super::half::{bf16_fma, bf16_to_f32, f16_fma, f16_to_f32, f32_to_bf16, f32_to_f16};
use super::super::lanes::{
    LaneHandler, binary, binary_each, each_immediate, ternary, test, unary, unary_each,
};
use super::super::soft::{self, Format, Rounding};
use super::decode::Pure;
use super::form::Form;

/// The NaN of `.f32`.
const NAN: u32 = 0x7fff_ffff;

/// `value`, with NVIDIA's NaN for any. Told by the bits: a comparison is optimised away after a square root.
#[inline(always)]
pub(super) fn canonical(value: f32) -> f32 {
    let bits = value.to_bits();
    f32::from_bits(if bits & 0x7fff_ffff > 0x7f80_0000 { NAN } else { bits })
}

/// `.ftz`: subnormal numbers become zeros of their sign.
#[inline(always)]
pub(super) fn flush(value: f32) -> f32 {
    let bits = value.to_bits();
    f32::from_bits(if bits & 0x7f80_0000 == 0 { bits & 0x8000_0000 } else { bits })
}

/// `.sat`: into [0, 1], NaN to 0.
#[inline(always)]
pub(super) fn saturate(value: f32) -> f32 {
    if value > 0.0 { value.min(1.0) } else { 0.0 }
}

pub(super) fn add_f32(a: u32, b: u32) -> u32 {
    canonical(f32::from_bits(a) + f32::from_bits(b)).to_bits()
}

#[inline(always)]
pub(super) fn add_f16(a: u16, b: u16) -> u16 {
    f32_to_f16(f16_to_f32(a) + f16_to_f32(b))
}

#[inline(always)]
pub(super) fn add_bf16(a: u16, b: u16) -> u16 {
    f32_to_bf16(bf16_to_f32(a) + bf16_to_f32(b))
}

/// `f` on both halves.
#[inline(always)]
pub(super) fn pairwise(a: u32, b: u32, f: impl Fn(u16, u16) -> u16) -> u32 {
    u32::from(f(a as u16, b as u16)) | u32::from(f((a >> 16) as u16, (b >> 16) as u16)) << 16
}

/// Modifiers that any arithmetic instruction may have.
#[derive(Clone, Copy)]
struct Modifiers {
    rounding: Rounding,
    ftz: bool,
    sat: bool,
}

/// `$shape` of an `.f32` expression, with `.ftz` and `.sat` as the modifiers say.
macro_rules! single {
    ($modifiers:expr, $shape:ident, |$($x:ident),+| $body:expr) => {
        match ($modifiers.ftz, $modifiers.sat) {
            (false, false) => $shape(|$($x: f32),+| canonical($body)),
            (false, true) => $shape(|$($x: f32),+| saturate($body)),
            (true, false) => $shape(|$($x: f32),+| {
                $(let $x = flush($x);)+
                flush(canonical($body))
            }),
            (true, true) => $shape(|$($x: f32),+| {
                $(let $x = flush($x);)+
                saturate(flush($body))
            }),
        }
    };
}

/// What [`directed`] computes; bits of its immediate.
mod encoding {
    pub(super) const ADD: u32 = 0;
    pub(super) const SUB: u32 = 1;
    pub(super) const MUL: u32 = 2;
    pub(super) const FMA: u32 = 3;
    pub(super) const DIV: u32 = 4;
    pub(super) const SQRT: u32 = 5;
    pub(super) const OPERATION: u32 = 7;
    pub(super) const ROUNDING: u32 = 4;
    pub(super) const FTZ: u32 = 1 << 8;
    pub(super) const SAT: u32 = 1 << 9;
    pub(super) const DOUBLE: u32 = 1 << 10;
}

/// An operation of [`soft`], in single or double precision, as `immediate` says.
fn directed(a: u64, b: u64, c: u64, immediate: u32) -> u64 {
    use encoding as i;
    let format = if immediate & i::DOUBLE != 0 { soft::F64 } else { soft::F32 };
    let rounding = match immediate >> i::ROUNDING & 3 {
        0 => Rounding::NearestEven,
        1 => Rounding::Zero,
        2 => Rounding::Down,
        _ => Rounding::Up,
    };
    let flush = |bits: u64| match immediate & i::FTZ {
        0 => bits,
        _ => flush(f32::from_bits(bits as u32)).to_bits().into(),
    };
    let (a, b, c) = (flush(a), flush(b), flush(c));
    let result = flush(match immediate & i::OPERATION {
        i::ADD => soft::add(a, b, format, rounding),
        i::SUB => soft::sub(a, b, format, rounding),
        i::MUL => soft::mul(a, b, format, rounding),
        i::FMA => soft::fma(a, b, c, format, rounding),
        i::DIV => soft::div(a, b, format, rounding),
        _ => soft::sqrt(a, format, rounding),
    });
    match immediate & i::SAT {
        0 => result,
        _ => saturate(f32::from_bits(result as u32)).to_bits().into(),
    }
}

fn directed_pure(operation: u32, modifiers: Modifiers, ty: ScalarType, sources: usize) -> Option<Pure> {
    use encoding as i;
    let rounding = match modifiers.rounding {
        Rounding::NearestEven | Rounding::NearestAway => 0,
        Rounding::Zero => 1,
        Rounding::Down => 2,
        Rounding::Up => 3,
    };
    let (run, double) = match ty {
        ScalarType::F32 => {
            let run = each_immediate(|a: u32, b: u32, c: u32, immediate| {
                directed(a.into(), b.into(), c.into(), immediate) as u32
            });
            (run, 0)
        }
        ScalarType::F64 => (each_immediate(directed), i::DOUBLE),
        _ => return None,
    };
    let flag = |set: bool, bit: u32| if set { bit } else { 0 };
    let immediate = operation
        | rounding << i::ROUNDING
        | flag(modifiers.ftz, i::FTZ)
        | flag(modifiers.sat, i::SAT)
        | double;
    Some(Pure::uniform(run, ty, sources)?.with(immediate))
}

/// Decodes instructions whose first type is a floating-point one.
pub(super) fn decode(form: &mut Form) -> Option<Pure> {
    let approx = form.flag("approx");
    form.flag("full");
    let rounding = form.rounding();
    let modifiers = Modifiers { rounding, ftz: form.flag("ftz"), sat: form.flag("sat") };
    match form.opcode {
        "testp" => return test_property(form),
        "copysign" => return copy_sign(form),
        "min" | "max" => return extremum(form, modifiers),
        "abs" | "neg" => return sign(form, modifiers),
        _ => {}
    }
    let ty = form.ty()?;
    if rounding != Rounding::NearestEven {
        let (operation, sources) = match form.opcode {
            "add" => (encoding::ADD, 2),
            "sub" => (encoding::SUB, 2),
            "mul" => (encoding::MUL, 2),
            "fma" | "mad" => (encoding::FMA, 3),
            "div" => (encoding::DIV, 2),
            "sqrt" => (encoding::SQRT, 1),
            "rcp" => return reciprocal_directed(modifiers, ty),
            _ => return None,
        };
        return directed_pure(operation, modifiers, ty, sources);
    }
    match ty {
        ScalarType::F32 => single_precision(form, modifiers, approx),
        ScalarType::F64 => double_precision(form, modifiers, approx),
        _ => half_precision(form, modifiers, ty),
    }
}

fn reciprocal_directed(modifiers: Modifiers, ty: ScalarType) -> Option<Pure> {
    let rounding = modifiers.rounding;
    let run = match (ty, rounding, modifiers.ftz) {
        (ScalarType::F32, Rounding::Zero, false) => {
            unary_each(|a: u32| reciprocal(a.into(), soft::F32, Rounding::Zero) as u32)
        }
        (ScalarType::F32, Rounding::Down, false) => {
            unary_each(|a: u32| reciprocal(a.into(), soft::F32, Rounding::Down) as u32)
        }
        (ScalarType::F32, Rounding::Up, false) => {
            unary_each(|a: u32| reciprocal(a.into(), soft::F32, Rounding::Up) as u32)
        }
        (ScalarType::F32, Rounding::Zero, true) => unary_each(|a: f32| flushed_reciprocal(a, Rounding::Zero)),
        (ScalarType::F32, Rounding::Down, true) => unary_each(|a: f32| flushed_reciprocal(a, Rounding::Down)),
        (ScalarType::F32, Rounding::Up, true) => unary_each(|a: f32| flushed_reciprocal(a, Rounding::Up)),
        (ScalarType::F64, Rounding::Zero, false) => {
            unary_each(|a: u64| reciprocal(a, soft::F64, Rounding::Zero))
        }
        (ScalarType::F64, Rounding::Down, false) => {
            unary_each(|a: u64| reciprocal(a, soft::F64, Rounding::Down))
        }
        (ScalarType::F64, Rounding::Up, false) => unary_each(|a: u64| reciprocal(a, soft::F64, Rounding::Up)),
        _ => return None,
    };
    Pure::uniform(run, ty, 1)
}

fn flushed_reciprocal(a: f32, rounding: Rounding) -> f32 {
    flush(f32::from_bits(reciprocal(flush(a).to_bits().into(), soft::F32, rounding) as u32))
}

fn reciprocal(a: u64, format: Format, rounding: Rounding) -> u64 {
    soft::div(soft::from_integer(1, format, Rounding::NearestEven), a, format, rounding)
}

/// `.f32` to nearest even, and the approximations.
fn single_precision(form: &mut Form, modifiers: Modifiers, approx: bool) -> Option<Pure> {
    let run = match form.opcode {
        "add" => single!(modifiers, binary, |a, b| a + b),
        "sub" => single!(modifiers, binary, |a, b| a - b),
        "mul" => single!(modifiers, binary, |a, b| a * b),
        "fma" | "mad" => single!(modifiers, ternary, |a, b, c| a.mul_add(b, c)),
        "div" if approx => single!(modifiers, binary, |a, b| divide_approximately(a, b)),
        // `.full` too: its bound is two units in the last place.
        "div" => single!(modifiers, binary, |a, b| a / b),
        "sqrt" => single!(modifiers, unary, |a| a.sqrt()),
        "rcp" => single!(modifiers, unary, |a| 1.0 / a),
        "rsqrt" => single!(modifiers, unary, |a| (1.0 / f64::from(a).sqrt()) as f32),
        "sin" => single!(modifiers, unary_each, |a| f64::from(a).sin() as f32),
        "cos" => single!(modifiers, unary_each, |a| f64::from(a).cos() as f32),
        "lg2" => single!(modifiers, unary_each, |a| f64::from(a).log2() as f32),
        "ex2" => single!(modifiers, unary_each, |a| f64::from(a).exp2() as f32),
        "tanh" => single!(modifiers, unary_each, |a| f64::from(a).tanh() as f32),
        _ => return None,
    };
    let sources = match form.opcode {
        "fma" | "mad" => 3,
        "add" | "sub" | "mul" | "div" => 2,
        _ => 1,
    };
    Pure::uniform(run, ScalarType::F32, sources)
}

/// `div.approx`: a divisor whose reciprocal would be subnormal gives zero.
#[inline(always)]
fn divide_approximately(a: f32, b: f32) -> f32 {
    let huge = b.abs() > f32::from_bits(0x7e80_0000) && b.is_finite();
    if huge { a * (0.0f32).copysign(b) } else { a / b }
}

fn double_precision(form: &mut Form, modifiers: Modifiers, approx: bool) -> Option<Pure> {
    if modifiers.sat {
        return None;
    }
    let (run, sources) = match form.opcode {
        "add" => (binary(|a: f64, b: f64| a + b), 2),
        "sub" => (binary(|a: f64, b: f64| a - b), 2),
        "mul" => (binary(|a: f64, b: f64| a * b), 2),
        "fma" | "mad" => (ternary(f64::mul_add), 3),
        "div" => (binary(|a: f64, b: f64| a / b), 2),
        "sqrt" => (unary(f64::sqrt), 1),
        "rcp" if approx => (unary(|a: f64| approximately(1.0 / flush_double(a))), 1),
        "rcp" => (unary(|a: f64| 1.0 / a), 1),
        "rsqrt" if modifiers.ftz => (unary(|a: f64| approximately(1.0 / flush_double(a).sqrt())), 1),
        "rsqrt" => (unary(|a: f64| 1.0 / a.sqrt()), 1),
        _ => return None,
    };
    Pure::uniform(run, ScalarType::F64, sources)
}

#[inline(always)]
fn flush_double(value: f64) -> f64 {
    if value.is_subnormal() { 0.0f64.copysign(value) } else { value }
}

/// The approximations of `.ftz.f64` have 20 bits of fraction, and a NaN of their own.
#[inline(always)]
fn approximately(value: f64) -> f64 {
    if value.is_nan() {
        return f64::from_bits(0x7fff_ffff_0000_0000);
    }
    f64::from_bits(flush_double(value).to_bits() & !0xffff_ffff)
}

/// Makes an expression on `.f32` one on halves or pairs of halves.
macro_rules! half {
    ($ty:expr, $shape1:ident, |$($x:ident),+| $body:expr) => {
        match $ty {
            ScalarType::F16 => $shape1(|$($x: u16),+| {
                $(let $x = f16_to_f32($x);)+
                f32_to_f16($body)
            }),
            ScalarType::Bf16 => $shape1(|$($x: u16),+| {
                $(let $x = bf16_to_f32($x);)+
                f32_to_bf16($body)
            }),
            ScalarType::F16x2 => $shape1(|$($x: u32),+| {
                let low = { $(let $x = f16_to_f32($x as u16);)+ f32_to_f16($body) };
                let high = { $(let $x = f16_to_f32(($x >> 16) as u16);)+ f32_to_f16($body) };
                u32::from(low) | u32::from(high) << 16
            }),
            ScalarType::Bf16x2 => $shape1(|$($x: u32),+| {
                let low = { $(let $x = bf16_to_f32($x as u16);)+ f32_to_bf16($body) };
                let high = { $(let $x = bf16_to_f32(($x >> 16) as u16);)+ f32_to_bf16($body) };
                u32::from(low) | u32::from(high) << 16
            }),
            _ => return None,
        }
    };
}

#[inline(always)]
fn flush_f16(half: u16) -> u16 {
    if half & 0x7c00 == 0 { half & 0x8000 } else { half }
}

#[inline(always)]
fn saturate_f16(half: u16) -> u16 {
    f32_to_f16(saturate(f16_to_f32(half)))
}

#[inline(always)]
fn relu(half: u16, infinity: u16) -> u16 {
    // NaN becomes the canonical one, negative numbers +0.
    if half & 0x7fff > infinity {
        0x7fff
    } else if half & 0x8000 != 0 {
        0
    } else {
        half
    }
}

#[inline(always)]
fn fused_pair(a: u32, b: u32, c: u32, f: impl Fn(u16, u16, u16) -> u16) -> u32 {
    let low = f(a as u16, b as u16, c as u16);
    u32::from(low) | u32::from(f((a >> 16) as u16, (b >> 16) as u16, (c >> 16) as u16)) << 16
}

fn half_fma(form: &mut Form, modifiers: Modifiers, ty: ScalarType) -> Option<LaneHandler> {
    use ScalarType::*;
    let with_relu = form.flag("relu");
    Some(match (ty, modifiers.ftz, modifiers.sat, with_relu) {
        (F16, false, false, false) => ternary(f16_fma),
        (F16, false, true, false) => ternary(|a, b, c| saturate_f16(f16_fma(a, b, c))),
        (F16, false, false, true) => ternary(|a, b, c| relu(f16_fma(a, b, c), 0x7c00)),
        (F16, true, false, false) => ternary(f16_fma_flushed),
        (F16, true, true, false) => ternary(|a, b, c| saturate_f16(f16_fma_flushed(a, b, c))),
        (F16, true, false, true) => ternary(|a, b, c| relu(f16_fma_flushed(a, b, c), 0x7c00)),
        (F16x2, false, false, false) => ternary(|a, b, c| fused_pair(a, b, c, f16_fma)),
        (F16x2, false, true, false) => {
            ternary(|a, b, c| fused_pair(a, b, c, |a, b, c| saturate_f16(f16_fma(a, b, c))))
        }
        (F16x2, false, false, true) => {
            ternary(|a, b, c| fused_pair(a, b, c, |a, b, c| relu(f16_fma(a, b, c), 0x7c00)))
        }
        (F16x2, true, false, false) => ternary(|a, b, c| fused_pair(a, b, c, f16_fma_flushed)),
        (F16x2, true, true, false) => {
            ternary(|a, b, c| fused_pair(a, b, c, |a, b, c| saturate_f16(f16_fma_flushed(a, b, c))))
        }
        (F16x2, true, false, true) => {
            ternary(|a, b, c| fused_pair(a, b, c, |a, b, c| relu(f16_fma_flushed(a, b, c), 0x7c00)))
        }
        (Bf16, false, false, false) => ternary(bf16_fma),
        (Bf16, false, false, true) => ternary(|a, b, c| relu(bf16_fma(a, b, c), 0x7f80)),
        (Bf16x2, false, false, false) => ternary(|a, b, c| fused_pair(a, b, c, bf16_fma)),
        (Bf16x2, false, false, true) => {
            ternary(|a, b, c| fused_pair(a, b, c, |a, b, c| relu(bf16_fma(a, b, c), 0x7f80)))
        }
        _ => return None,
    })
}

#[inline(always)]
fn f16_fma_flushed(a: u16, b: u16, c: u16) -> u16 {
    flush_f16(f16_fma(flush_f16(a), flush_f16(b), flush_f16(c)))
}

fn half_precision(form: &mut Form, modifiers: Modifiers, ty: ScalarType) -> Option<Pure> {
    if form.opcode == "fma" {
        return Pure::uniform(half_fma(form, modifiers, ty)?, ty, 3);
    }
    if modifiers.ftz || modifiers.sat {
        return half_modified(form, modifiers, ty);
    }
    let (run, sources) = match form.opcode {
        "add" => (half!(ty, binary, |a, b| a + b), 2),
        "sub" => (half!(ty, binary, |a, b| a - b), 2),
        "mul" if matches!(ty, ScalarType::Bf16) => (binary(|a: u16, b: u16| bf16_fma(a, b, 0x8000)), 2),
        "mul" if matches!(ty, ScalarType::Bf16x2) => {
            (binary(|a: u32, b: u32| pairwise(a, b, |a, b| bf16_fma(a, b, 0x8000))), 2)
        }
        "mul" => (half!(ty, binary, |a, b| a * b), 2),
        "ex2" => (half!(ty, unary_each, |a| f64::from(a).exp2() as f32), 1),
        "tanh" => (half!(ty, unary_each, |a| f64::from(a).tanh() as f32), 1),
        _ => return None,
    };
    Pure::uniform(run, ty, sources)
}

/// `.ftz` and `.sat` on `.f16` and pairs of them.
fn half_modified(form: &mut Form, modifiers: Modifiers, ty: ScalarType) -> Option<Pure> {
    use ScalarType::*;
    macro_rules! modified {
        ($operation:expr) => {
            match (ty, modifiers.ftz, modifiers.sat) {
                (F16, true, false) => {
                    binary_each(|a: u16, b: u16| flush_f16($operation(flush_f16(a), flush_f16(b))))
                }
                (F16, false, true) => binary_each(|a: u16, b: u16| saturate_f16($operation(a, b))),
                (F16, true, true) => binary_each(|a: u16, b: u16| {
                    saturate_f16(flush_f16($operation(flush_f16(a), flush_f16(b))))
                }),
                (F16x2, true, false) => binary_each(|a: u32, b: u32| {
                    pairwise(a, b, |a, b| flush_f16($operation(flush_f16(a), flush_f16(b))))
                }),
                (F16x2, false, true) => {
                    binary_each(|a: u32, b: u32| pairwise(a, b, |a, b| saturate_f16($operation(a, b))))
                }
                (F16x2, true, true) => binary_each(|a: u32, b: u32| {
                    pairwise(a, b, |a, b| saturate_f16(flush_f16($operation(flush_f16(a), flush_f16(b)))))
                }),
                _ => return None,
            }
        };
    }
    let run = match form.opcode {
        "add" => modified!(add_f16),
        "sub" => modified!(|a: u16, b: u16| add_f16(a, if b & 0x7fff > 0x7c00 { b } else { b ^ 0x8000 })),
        "mul" => modified!(|a: u16, b: u16| f32_to_f16(f16_to_f32(a) * f16_to_f32(b))),
        "ex2" if modifiers.ftz && !modifiers.sat => {
            let run = half!(ty, unary_each, |a| f64::from(a).exp2() as f32);
            return Pure::uniform(run, ty, 1);
        }
        _ => return None,
    };
    Pure::uniform(run, ty, 2)
}

/// The smaller of two numbers: -0 is less than +0, and a NaN loses against a number.
#[inline(always)]
fn minimum(a: f32, b: f32) -> f32 {
    let first = if a == b { a.is_sign_negative() } else { a < b };
    if b.is_nan() || first { canonical(a) } else { canonical(b) }
}

#[inline(always)]
fn maximum(a: f32, b: f32) -> f32 {
    let first = if a == b { a.is_sign_positive() } else { a > b };
    if b.is_nan() || first { canonical(a) } else { canonical(b) }
}

#[inline(always)]
fn minimum_double(a: f64, b: f64) -> f64 {
    let first = if a == b { a.is_sign_negative() } else { a < b };
    if b.is_nan() || first { a } else { b }
}

#[inline(always)]
fn maximum_double(a: f64, b: f64) -> f64 {
    let first = if a == b { a.is_sign_positive() } else { a > b };
    if b.is_nan() || first { a } else { b }
}

/// `.NaN`: a NaN wins.
#[inline(always)]
fn with_nan(a: f32, b: f32, value: f32) -> f32 {
    if a.is_nan() || b.is_nan() { f32::from_bits(NAN) } else { value }
}

/// `.xorsign.abs`: of the magnitudes, with the signs multiplied.
#[inline(always)]
fn xor_sign(a: f32, b: f32, f: impl Fn(f32, f32) -> f32) -> f32 {
    let sign = (a.to_bits() ^ b.to_bits()) & 0x8000_0000;
    f32::from_bits(f(a.abs(), b.abs()).to_bits() & 0x7fff_ffff | sign)
}

fn extremum(form: &mut Form, modifiers: Modifiers) -> Option<Pure> {
    let min = form.opcode == "min";
    let nan = form.flag("NaN");
    let xorsign = form.flag("xorsign");
    if xorsign {
        form.flag("abs");
    }
    let ty = form.ty()?;
    if modifiers.sat {
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
        _ if modifiers.ftz => match (min, nan, xorsign) {
            (true, false, false) => half!(ty, binary, |a, b| minimum(flush_half(a), flush_half(b))),
            (false, false, false) => half!(ty, binary, |a, b| maximum(flush_half(a), flush_half(b))),
            (true, true, false) => {
                half!(ty, binary, |a, b| with_nan(a, b, minimum(flush_half(a), flush_half(b))))
            }
            (false, true, false) => {
                half!(ty, binary, |a, b| with_nan(a, b, maximum(flush_half(a), flush_half(b))))
            }
            _ => return None,
        },
        _ => match (min, nan, xorsign) {
            (true, false, false) => half!(ty, binary, |a, b| minimum(a, b)),
            (false, false, false) => half!(ty, binary, |a, b| maximum(a, b)),
            (true, true, false) => half!(ty, binary, |a, b| with_nan(a, b, minimum(a, b))),
            (false, true, false) => half!(ty, binary, |a, b| with_nan(a, b, maximum(a, b))),
            (true, false, true) => half!(ty, binary, |a, b| xor_sign(a, b, minimum)),
            (false, false, true) => half!(ty, binary, |a, b| xor_sign(a, b, maximum)),
            (true, true, true) => half!(ty, binary, |a, b| with_nan(a, b, xor_sign(a, b, minimum))),
            (false, true, true) => half!(ty, binary, |a, b| with_nan(a, b, xor_sign(a, b, maximum))),
        },
    };
    Pure::uniform(run, ty, 2)
}

/// `.ftz` of a half that has become an `.f32`.
#[inline(always)]
fn flush_half(value: f32) -> f32 {
    if value.abs() < f32::from_bits(0x3880_0000) { 0.0f32.copysign(value) } else { value }
}

/// `abs` and `neg` change the sign bit, of NaNs too.
fn sign(form: &mut Form, modifiers: Modifiers) -> Option<Pure> {
    use ScalarType::*;
    let abs = form.opcode == "abs";
    let ty = form.ty()?;
    let run = match (ty, abs, modifiers.ftz) {
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
    };
    Pure::uniform(run, ty, 1)
}

fn copy_sign(form: &mut Form) -> Option<Pure> {
    let ty = form.ty()?;
    let run = match ty {
        // The first operand gives the sign.
        ScalarType::F32 => binary(|a: u32, b: u32| a & 0x8000_0000 | b & 0x7fff_ffff),
        ScalarType::F64 => binary(|a: u64, b: u64| a & 1 << 63 | b & i64::MAX as u64),
        _ => return None,
    };
    Pure::uniform(run, ty, 2)
}

fn test_property(form: &mut Form) -> Option<Pure> {
    use ScalarType::{F32, F64, Pred};
    let property = form.one_of(&["finite", "infinite", "number", "notanumber", "normal", "subnormal"])?;
    let ty = form.ty()?;
    let run = match (property, ty) {
        ("finite", F32) => test(|a: f32| a.is_finite()),
        ("infinite", F32) => test(|a: f32| a.is_infinite()),
        ("number", F32) => test(|a: f32| !a.is_nan()),
        ("notanumber", F32) => test(|a: f32| a.is_nan()),
        ("normal", F32) => test(|a: f32| a.is_normal() || a == 0.0),
        ("subnormal", F32) => test(|a: f32| a.is_subnormal()),
        ("finite", F64) => test(|a: f64| a.is_finite()),
        ("infinite", F64) => test(|a: f64| a.is_infinite()),
        ("number", F64) => test(|a: f64| !a.is_nan()),
        ("notanumber", F64) => test(|a: f64| a.is_nan()),
        ("normal", F64) => test(|a: f64| a.is_normal() || a == 0.0),
        ("subnormal", F64) => test(|a: f64| a.is_subnormal()),
        _ => return None,
    };
    Pure::new(run, Pred, &[ty])
}
