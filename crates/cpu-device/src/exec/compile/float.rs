//! Floating-point arithmetic.
//!
//! To nearest even, in `.f32` and `.f64`, it is the host's arithmetic with NVIDIA's NaN. In the other directions it is
//! [`soft`]'s. Approximate instructions give the correctly rounded result, or within two units of the last place of
//! it, which is inside every bound that the ISA states; only the special cases that it documents are imitated.

use ptx::ScalarType;

use super::super::approximate;
use super::super::half::{bf16_to_f32, f16_to_f32};
use super::super::lanes::{binary, each_immediate, ternary, unary, unary_each};
use super::super::numbers::{canonical, flush, saturate};
use super::super::soft::{self, Format, Rounding};
use super::decode::Pure;
use super::form::Form;
use super::{choice, halves};

/// Modifiers that any arithmetic instruction may have.
#[derive(Clone, Copy)]
pub(super) struct Modifiers {
    pub(super) rounding: Rounding,
    pub(super) ftz: bool,
    pub(super) sat: bool,
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

pub(super) use single;

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
    /// The sources that are multiplied, or the first of a sum, are `.f16`.
    pub(super) const HALF: u32 = 1 << 11;
    /// They are `.bf16`.
    pub(super) const BRAIN: u32 = 1 << 12;
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
    let widen = |bits: u64| match (immediate & i::HALF, immediate & i::BRAIN) {
        (0, 0) => bits,
        (_, 0) => f16_to_f32(bits as u16).to_bits().into(),
        _ => bf16_to_f32(bits as u16).to_bits().into(),
    };
    let operation = immediate & i::OPERATION;
    let b = if operation == i::FMA { widen(b) } else { b };
    let (a, b, c) = (flush(widen(a)), flush(b), flush(c));
    let result = flush(match operation {
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

fn directed_single(a: u32, b: u32, c: u32, immediate: u32) -> u32 {
    directed(a.into(), b.into(), c.into(), immediate) as u32
}

/// The immediate of [`directed`] for an operation with its modifiers.
fn encode(operation: u32, modifiers: Modifiers) -> u32 {
    use encoding as i;
    let rounding = match modifiers.rounding {
        Rounding::NearestEven | Rounding::NearestAway => 0,
        Rounding::Zero => 1,
        Rounding::Down => 2,
        Rounding::Up => 3,
    };
    let flag = |set: bool, bit: u32| if set { bit } else { 0 };
    operation | rounding << i::ROUNDING | flag(modifiers.ftz, i::FTZ) | flag(modifiers.sat, i::SAT)
}

fn directed_pure(operation: u32, modifiers: Modifiers, ty: ScalarType, sources: usize) -> Option<Pure> {
    let (run, precision) = match ty {
        ScalarType::F32 => (each_immediate(directed_single), 0),
        ScalarType::F64 => (each_immediate(directed), encoding::DOUBLE),
        _ => return None,
    };
    Some(Pure::uniform(run, ty, sources)?.with(encode(operation, modifiers) | precision))
}

/// The operation of an opcode in [`encoding`], and how many sources it takes.
fn arithmetic(opcode: &str) -> Option<(u32, usize)> {
    Some(match opcode {
        "add" => (encoding::ADD, 2),
        "sub" => (encoding::SUB, 2),
        "mul" => (encoding::MUL, 2),
        "fma" | "mad" => (encoding::FMA, 3),
        "div" => (encoding::DIV, 2),
        "sqrt" => (encoding::SQRT, 1),
        _ => return None,
    })
}

/// `add.f32.f16` and its like: the narrow sources become `.f32` first.
fn mixed(form: &Form, modifiers: Modifiers, narrow: ScalarType) -> Option<Pure> {
    use ScalarType::F32;
    let (operation, _) = arithmetic(form.opcode)?;
    let sources: &[ScalarType] = match form.opcode {
        "add" | "sub" => &[narrow, F32],
        "fma" => &[narrow, narrow, F32],
        _ => return None,
    };
    let widening = if narrow == ScalarType::F16 { encoding::HALF } else { encoding::BRAIN };
    let run = each_immediate(directed_single);
    Some(Pure::new(run, F32, sources)?.with(encode(operation, modifiers) | widening))
}

/// `.f32x2`: both halves of a long.
fn pair(form: &Form, modifiers: Modifiers) -> Option<Pure> {
    let (operation, sources) = arithmetic(form.opcode)?;
    if modifiers.sat || !matches!(form.opcode, "add" | "sub" | "mul" | "fma") {
        return None;
    }
    let run = each_immediate(|a: u64, b: u64, c: u64, immediate| {
        let half = |shift: u32| {
            let [a, b, c] = [a, b, c].map(|pair| (pair >> shift) as u32);
            u64::from(directed_single(a, b, c, immediate)) << shift
        };
        half(0) | half(32)
    });
    Some(Pure::uniform(run, ScalarType::F32x2, sources)?.with(encode(operation, modifiers)))
}

/// Decodes instructions whose first type is a floating-point one and that have so many sources.
pub(super) fn decode(form: &mut Form, sources: usize) -> Option<Pure> {
    let approx = form.flag("approx");
    form.flag("full");
    let rounding = form.rounding();
    let modifiers = Modifiers { rounding, ftz: form.flag("ftz"), sat: form.flag("sat") };
    if matches!(form.opcode, "testp" | "copysign" | "min" | "max" | "abs" | "neg") {
        return choice::decode(form, modifiers, sources);
    }
    let ty = form.ty()?;
    match (ty, form.types().first()) {
        (ScalarType::F32, Some(&narrow @ (ScalarType::F16 | ScalarType::Bf16))) => {
            form.ty();
            return mixed(form, modifiers, narrow);
        }
        (ScalarType::F32x2, None) => return pair(form, modifiers),
        _ => {}
    }
    if rounding != Rounding::NearestEven {
        if form.opcode == "rcp" {
            return reciprocal_directed(modifiers, ty);
        }
        let (operation, sources) = arithmetic(form.opcode)?;
        return directed_pure(operation, modifiers, ty, sources);
    }
    match ty {
        ScalarType::F32 => single_precision(form, modifiers, approx),
        ScalarType::F64 => double_precision(form, modifiers, approx),
        _ => halves::decode(form, modifiers, ty),
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
        "sin" => single!(modifiers, unary, |a| approximate::sin(a)),
        "cos" => single!(modifiers, unary, |a| approximate::cos(a)),
        "lg2" => single!(modifiers, unary, |a| approximate::log2(a)),
        "ex2" => single!(modifiers, unary, |a| approximate::exp2(a)),
        "tanh" => single!(modifiers, unary, |a| approximate::tanh(a)),
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
        "rcp" if approx => (unary(|a: f64| approximately(1.0 / upper_word(a))), 1),
        "rcp" => (unary(|a: f64| 1.0 / a), 1),
        "rsqrt" if modifiers.ftz => (unary(|a: f64| approximately(1.0 / upper_word(a).sqrt())), 1),
        "rsqrt" => (unary(|a: f64| 1.0 / a.sqrt()), 1),
        _ => return None,
    };
    Pure::uniform(run, ScalarType::F64, sources)
}

#[inline(always)]
fn flush_double(value: f64) -> f64 {
    if value.is_subnormal() { 0.0f64.copysign(value) } else { value }
}

/// What the approximations of `.ftz.f64` see: the upper word of a number, without subnormals.
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
