//! Floating-point arithmetic.
//!
//! To nearest even, in `.f32` and `.f64`, it is the host's arithmetic with NVIDIA's NaN; in the
//! other directions [`directed`](crate::arithmetic::directed) computes it. Approximate instructions
//! give the correctly rounded result, or within two units of the last place of it, which is inside
//! every bound that the ISA states; only the special cases that it documents are imitated.

use ptx::ScalarType;
use ptx::instruction::{Flag, Opcode};

use crate::arithmetic::approximate;
use crate::arithmetic::directed::{self, Directed, Operation};
use crate::arithmetic::numbers::{canonical, flush, saturate, saturate_flushed};
use crate::arithmetic::soft::Rounding;
use crate::compile::decode::Undecoded;
use crate::compile::decode::rounding;
use crate::compile::decode::{Pure, choice, halves};
use crate::registers::shapes::{binary, ternary, unary};

/// Modifiers that any arithmetic instruction may have.
#[derive(Clone, Copy)]
pub(crate) struct Modifiers {
    pub(crate) rounding: Rounding,
    pub(crate) ftz: bool,
    pub(crate) sat: bool,
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
                saturate_flushed($body)
            }),
        }
    };
}

pub(crate) use single;

/// An operation of [`directed`](crate::arithmetic::directed) whose sources have the type of the
/// result.
fn directed(form: &Undecoded, modifiers: Modifiers, ty: ScalarType) -> Option<Pure> {
    let (operation, sources) = arithmetic(form.opcode?)?;
    if ty == ScalarType::F64 && (modifiers.ftz || modifiers.sat) {
        return None;
    }
    let pure = Pure::uniform(directed::handler(ty)?, ty, sources)?;
    Some(pure.with(how(operation, modifiers, None)))
}

/// The immediate of an operation with its modifiers.
fn how(operation: Operation, modifiers: Modifiers, narrow: Option<ScalarType>) -> u32 {
    let Modifiers { rounding, ftz, sat } = modifiers;
    Directed { operation, rounding, ftz, sat, narrow }.pack()
}

/// Returns the operation of an opcode, and the number of its sources.
fn arithmetic(opcode: Opcode) -> Option<(Operation, usize)> {
    Some(match opcode {
        Opcode::Add => (Operation::Add, 2),
        Opcode::Sub => (Operation::Sub, 2),
        Opcode::Mul => (Operation::Mul, 2),
        Opcode::Fma | Opcode::Mad => (Operation::Fma, 3),
        Opcode::Div => (Operation::Div, 2),
        Opcode::Sqrt => (Operation::Sqrt, 1),
        Opcode::Rcp => (Operation::Reciprocal, 1),
        _ => return None,
    })
}

/// `add.f32.f16` and its like: the narrow sources become `.f32` first.
fn mixed(form: &Undecoded, modifiers: Modifiers, narrow: ScalarType) -> Option<Pure> {
    use ScalarType::F32;
    let sources: &[ScalarType] = match form.opcode? {
        Opcode::Add | Opcode::Sub => &[narrow, F32],
        Opcode::Fma => &[narrow, narrow, F32],
        _ => return None,
    };
    let (operation, _) = arithmetic(form.opcode?)?;
    Some(Pure::new(directed::handler(F32)?, F32, sources)?.with(how(operation, modifiers, Some(narrow))))
}

/// `.f32x2`: both halves of a long.
fn pair(form: &Undecoded, modifiers: Modifiers) -> Option<Pure> {
    if modifiers.sat || !form.is(&[Opcode::Add, Opcode::Sub, Opcode::Mul, Opcode::Fma]) {
        return None;
    }
    directed(form, modifiers, ScalarType::F32x2)
}

/// Decodes instructions with `sources` sources whose first type is a floating-point one.
pub(crate) fn decode(form: &mut Undecoded, sources: usize) -> Option<Pure> {
    let approx = form.take(Flag::Approximate);
    form.take(Flag::Full);
    let rounding = rounding(form);
    let modifiers = Modifiers { rounding, ftz: form.take(Flag::FlushToZero), sat: form.take(Flag::Saturate) };
    if form.is(&[Opcode::Testp, Opcode::Copysign, Opcode::Min, Opcode::Max, Opcode::Abs, Opcode::Neg]) {
        return choice::decode(form, modifiers, sources);
    }
    let ty = form.take_type()?;
    match (ty, form.types().first()) {
        (ScalarType::F32, Some(&narrow @ (ScalarType::F16 | ScalarType::Bf16))) => {
            form.take_type();
            return mixed(form, modifiers, narrow);
        }
        (ScalarType::F32x2, None) => return pair(form, modifiers),
        _ => {}
    }
    if rounding != Rounding::NearestEven {
        return directed(form, modifiers, ty);
    }
    match ty {
        ScalarType::F32 => single_precision(form, modifiers, approx),
        ScalarType::F64 => double_precision(form, modifiers, approx),
        _ => halves::decode(form, modifiers, ty),
    }
}

/// `.f32` to nearest even, and the approximations.
fn single_precision(form: &mut Undecoded, modifiers: Modifiers, approx: bool) -> Option<Pure> {
    let run = match form.opcode? {
        Opcode::Add => single!(modifiers, binary, |a, b| a + b),
        Opcode::Sub => single!(modifiers, binary, |a, b| a - b),
        Opcode::Mul => single!(modifiers, binary, |a, b| a * b),
        Opcode::Fma | Opcode::Mad => single!(modifiers, ternary, |a, b, c| a.mul_add(b, c)),
        Opcode::Div if approx => single!(modifiers, binary, |a, b| divide_approximately(a, b)),
        // `.full` too: its bound is two units in the last place.
        Opcode::Div => single!(modifiers, binary, |a, b| a / b),
        Opcode::Sqrt => single!(modifiers, unary, |a| a.sqrt()),
        Opcode::Rcp => single!(modifiers, unary, |a| 1.0 / a),
        Opcode::Rsqrt => single!(modifiers, unary, |a| (1.0 / f64::from(a).sqrt()) as f32),
        Opcode::Sin => single!(modifiers, unary, |a| approximate::sin(a)),
        Opcode::Cos => single!(modifiers, unary, |a| approximate::cos(a)),
        Opcode::Lg2 => single!(modifiers, unary, |a| approximate::log2(a)),
        Opcode::Ex2 => single!(modifiers, unary, |a| approximate::exp2(a)),
        Opcode::Tanh => single!(modifiers, unary, |a| approximate::tanh(a)),
        _ => return None,
    };
    let sources = match form.opcode? {
        Opcode::Fma | Opcode::Mad => 3,
        Opcode::Add | Opcode::Sub | Opcode::Mul | Opcode::Div => 2,
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

fn double_precision(form: &mut Undecoded, modifiers: Modifiers, approx: bool) -> Option<Pure> {
    if modifiers.sat {
        return None;
    }
    let (run, sources) = match form.opcode? {
        Opcode::Add => (binary(|a: f64, b: f64| a + b), 2),
        Opcode::Sub => (binary(|a: f64, b: f64| a - b), 2),
        Opcode::Mul => (binary(|a: f64, b: f64| a * b), 2),
        Opcode::Fma | Opcode::Mad => (ternary(f64::mul_add), 3),
        Opcode::Div => (binary(|a: f64, b: f64| a / b), 2),
        Opcode::Sqrt => (unary(f64::sqrt), 1),
        Opcode::Rcp if approx => (unary(|a: f64| approximately(1.0 / upper_word(a))), 1),
        Opcode::Rcp => (unary(|a: f64| 1.0 / a), 1),
        Opcode::Rsqrt if modifiers.ftz => (unary(|a: f64| approximately(1.0 / upper_word(a).sqrt())), 1),
        Opcode::Rsqrt => (unary(|a: f64| 1.0 / a.sqrt()), 1),
        _ => return None,
    };
    Pure::uniform(run, ScalarType::F64, sources)
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
