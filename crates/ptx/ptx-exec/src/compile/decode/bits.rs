//! Logic, shifts, selections, and instructions that look at single bits or bytes.

use ptx::ScalarType;
use ptx::body::{Line, Operand};
use ptx::instruction::{Logic, Opcode, Permutation};
use ptx_lower::scalar::{extract_field, field_mask, funnel, insert_field, lookup, permute_bytes, selectors};
use ptx_lower::{Meaning, Op};

use crate::arithmetic::permute;
use crate::compile::decode::Undecoded;
use crate::compile::function::{Decoded, FunctionCompiler, invalid, unsupported};
use crate::compile::operand::class_of;
use crate::operands::{Args, Class, Reg};
use crate::registers::handler::LaneHandler;
use crate::registers::shapes::{
    binary, combine, compare, logic, quaternary, registers, select, ternary, ternary_immediate, unary,
};

/// `$shape(|x: T, …| body)` with `T` the unsigned integer of the width of `$ty`.
macro_rules! of_width {
    ($ty:expr, $shape:ident, |$($x:ident),+| $body:expr) => {
        match $ty {
            ScalarType::B16 => $shape(|$($x: u16),+| $body),
            ScalarType::B32 => $shape(|$($x: u32),+| $body),
            ScalarType::B64 => $shape(|$($x: u64),+| $body),
            _ => return None,
        }
    };
}

/// Returns the handler of an instruction on bits.
pub(crate) fn handler(meaning: &Meaning) -> Option<LaneHandler> {
    use ScalarType::*;
    let ty = meaning.ty;
    Some(match (meaning.op, ty) {
        (Op::And | Op::Or | Op::Xor | Op::Not | Op::IsZero, _) => bitwise(meaning.op, ty)?,
        (Op::ShiftLeft | Op::ShiftRight, _) => shift(meaning.op, ty)?,
        (Op::Funnel { left, wrap }, _) => match (left, wrap) {
            (true, false) => ternary(|a: u32, b: u32, c: u32| funnel(a, b, c, true, false)),
            (true, true) => ternary(|a: u32, b: u32, c: u32| funnel(a, b, c, true, true)),
            (false, false) => ternary(|a: u32, b: u32, c: u32| funnel(a, b, c, false, false)),
            (false, true) => ternary(|a: u32, b: u32, c: u32| funnel(a, b, c, false, true)),
        },
        (Op::CountOnes, B32) => unary(|a: u32| a.count_ones()),
        (Op::CountOnes, B64) => unary(|a: u64| a.count_ones()),
        (Op::CountLeadingZeros, B32) => unary(|a: u32| a.leading_zeros()),
        (Op::CountLeadingZeros, B64) => unary(|a: u64| a.leading_zeros()),
        (Op::ReverseBits, _) => of_width!(ty, unary, |a| a.reverse_bits()),
        (Op::FindHighest { amount }, _) => find(ty, amount)?,
        (Op::FindNth, _) => ternary(find_nth),
        (Op::ExtractBits, U32) => {
            ternary(|a: u32, b: u32, c: u32| extract_field(a.into(), b, c, 32, false) as u32)
        }
        (Op::ExtractBits, S32) => {
            ternary(|a: u32, b: u32, c: u32| extract_field(a.into(), b, c, 32, true) as u32)
        }
        (Op::ExtractBits, U64) => ternary(|a: u64, b: u32, c: u32| extract_field(a, b, c, 64, false)),
        (Op::ExtractBits, S64) => ternary(|a: u64, b: u32, c: u32| extract_field(a, b, c, 64, true)),
        (Op::InsertBits, B32) => quaternary(insert_word),
        (Op::InsertBits, B64) => quaternary(|a: u64, b: u64, c: u32, d: u32| insert_field(a, b, c, d, 64)),
        (Op::Mask { wrap: false }, _) => binary(mask_clamped),
        (Op::Mask { wrap: true }, _) => binary(|a: u32, b: u32| mask_clamped(a & 31, b & 31)),
        (Op::Extend { wrap: false }, U32) => binary(|a: u32, b: u32| a & field_mask(b, 32) as u32),
        (Op::Extend { wrap: true }, U32) => binary(|a: u32, b: u32| a & field_mask(b & 31, 32) as u32),
        (Op::Extend { wrap: false }, S32) => binary(|a: u32, b: u32| sign_extended(a, b.min(32))),
        (Op::Extend { wrap: true }, S32) => binary(|a: u32, b: u32| sign_extended(a, b & 31)),
        (Op::Permute(mode), _) => permutation(mode),
        (Op::Select, _) => match class_of(ty).ok()? {
            Class::Word => select(|a: u32, b: u32, c| if c { a } else { b }),
            Class::Long => select(|a: u64, b: u64, c| if c { a } else { b }),
            Class::Predicate => return None,
        },
        (Op::SelectSign { sign, flush }, _) => select_sign(class_of(ty).ok()?, sign, flush)?,
        _ => return None,
    })
}

fn bitwise(op: Op, ty: ScalarType) -> Option<LaneHandler> {
    Some(match (op, ty) {
        (Op::And, ScalarType::Pred) => logic(|a, b, _| a & b),
        (Op::Or, ScalarType::Pred) => logic(|a, b, _| a | b),
        (Op::Xor, ScalarType::Pred) => logic(|a, b, _| a ^ b),
        (Op::Not, ScalarType::Pred) => logic(|a, _, _| !a),
        (Op::And, _) => of_width!(ty, binary, |a, b| a & b),
        (Op::Or, _) => of_width!(ty, binary, |a, b| a | b),
        (Op::Xor, _) => of_width!(ty, binary, |a, b| a ^ b),
        (Op::Not, _) => of_width!(ty, unary, |a| !a),
        (_, ScalarType::B16) => unary(|a: u16| u16::from(a == 0)),
        (_, ScalarType::B32) => unary(|a: u32| u32::from(a == 0)),
        (_, ScalarType::B64) => unary(|a: u64| u64::from(a == 0)),
        _ => return None,
    })
}

/// Shifts by more than the width give zeros, or copies of the sign.
fn shift(op: Op, ty: ScalarType) -> Option<LaneHandler> {
    use ScalarType::*;
    Some(match (op == Op::ShiftLeft, ty) {
        (true, B16) => binary(|a: u16, b: u32| if b > 15 { 0 } else { a << (b & 15) }),
        (true, B32) => binary(|a: u32, b: u32| if b > 31 { 0 } else { a << (b & 31) }),
        (true, B64) => binary(|a: u64, b: u32| if b > 63 { 0 } else { a << (b & 63) }),
        (false, B16 | U16) => binary(|a: u16, b: u32| if b > 15 { 0 } else { a >> (b & 15) }),
        (false, B32 | U32) => binary(|a: u32, b: u32| if b > 31 { 0 } else { a >> (b & 31) }),
        (false, B64 | U64) => binary(|a: u64, b: u32| if b > 63 { 0 } else { a >> (b & 63) }),
        (false, S16) => binary(|a: i16, b: u32| a >> b.min(15)),
        (false, S32) => binary(|a: i32, b: u32| a >> b.min(31)),
        (false, S64) => binary(|a: i64, b: u32| a >> b.min(63)),
        _ => return None,
    })
}

/// `slct` by a number of type `sign`: NaN selects `b`, both zeros select `a`, and so do subnormal
/// numbers that are flushed.
fn select_sign(class: Class, sign: ScalarType, flush: bool) -> Option<LaneHandler> {
    use ScalarType::{F32, S32};
    Some(match (class, sign, flush) {
        (Class::Word, S32, _) => ternary(|a: u32, b: u32, c: i32| if c >= 0 { a } else { b }),
        (Class::Long, S32, _) => ternary(|a: u64, b: u64, c: i32| if c >= 0 { a } else { b }),
        (Class::Word, F32, false) => ternary(|a: u32, b: u32, c: f32| if c >= 0.0 { a } else { b }),
        (Class::Long, F32, false) => ternary(|a: u64, b: u64, c: f32| if c >= 0.0 { a } else { b }),
        (Class::Word, F32, true) => {
            ternary(|a: u32, b: u32, c: f32| if c > -f32::MIN_POSITIVE { a } else { b })
        }
        (Class::Long, F32, true) => {
            ternary(|a: u64, b: u64, c: f32| if c > -f32::MIN_POSITIVE { a } else { b })
        }
        _ => return None,
    })
}

/// Position of the highest bit that differs from the sign, or all ones.
fn find(ty: ScalarType, amount: bool) -> Option<LaneHandler> {
    use ScalarType::*;
    Some(match (ty, amount) {
        (U32, false) => unary(|a: u32| 31u32.wrapping_sub(a.leading_zeros())),
        (S32, false) => unary(|a: i32| 31u32.wrapping_sub((a ^ a >> 31).leading_zeros())),
        (U64, false) => unary(|a: u64| 63u32.wrapping_sub(a.leading_zeros())),
        (S64, false) => unary(|a: i64| 63u32.wrapping_sub((a ^ a >> 63).leading_zeros())),
        (U32, true) => unary(|a: u32| shift_amount(a.leading_zeros(), 32)),
        (S32, true) => unary(|a: i32| shift_amount((a ^ a >> 31).leading_zeros(), 32)),
        (U64, true) => unary(|a: u64| shift_amount(a.leading_zeros(), 64)),
        (S64, true) => unary(|a: i64| shift_amount((a ^ a >> 63).leading_zeros(), 64)),
        _ => return None,
    })
}

#[inline(always)]
fn shift_amount(zeros: u32, width: u32) -> u32 {
    if zeros == width { u32::MAX } else { zeros }
}

/// `fns`: the position of the `offset`-th set bit of `mask`, counted from bit `base` (upwards if
/// positive).
#[inline(always)]
fn find_nth(mask: u32, base: u32, offset: i32) -> u32 {
    if base > 31 {
        return u32::MAX;
    }
    if offset == 0 {
        return if mask >> base & 1 != 0 { base } else { u32::MAX };
    }
    let mut left = offset.unsigned_abs();
    let mut position = base as i32;
    while (0..32).contains(&position) {
        left -= mask >> position & 1;
        if left == 0 {
            return position as u32;
        }
        position += offset.signum();
    }
    u32::MAX
}

/// `bfi.b32`, in words.
#[inline(always)]
fn insert_word(a: u32, b: u32, c: u32, d: u32) -> u32 {
    let (position, length) = (c & 0xff, d & 0xff);
    if position > 31 {
        return b;
    }
    let mask = (field_mask(length, 32) as u32) << position;
    a << position & mask | b & !mask
}

#[inline(always)]
fn mask_clamped(a: u32, b: u32) -> u32 {
    if a > 31 { 0 } else { (field_mask(b, 32) as u32) << a }
}

/// The lowest bits of `a`, at most 32, extended by their sign; 0 if they are none.
#[inline(always)]
fn sign_extended(a: u32, bits: u32) -> u32 {
    let shift = (32 - bits) & 31;
    let extended = ((a << shift) as i32 >> shift) as u32;
    if bits == 0 { 0 } else { extended }
}

/// `prmt` without a mode.
pub(crate) fn byte_permutation() -> LaneHandler {
    registers!(u32 => u32, |a, b, c, _| permute::bytes(a, b, c))
}

fn permutation(mode: Option<Permutation>) -> LaneHandler {
    macro_rules! in_mode {
        ($mode:ident) => {
            ternary(|a: u32, b: u32, c: u32| permute_bytes(a, b, selectors(c, Some(Permutation::$mode))))
        };
    }
    match mode {
        None => byte_permutation(),
        Some(Permutation::ForwardFour) => in_mode!(ForwardFour),
        Some(Permutation::BackwardFour) => in_mode!(BackwardFour),
        Some(Permutation::ReplicateByte) => in_mode!(ReplicateByte),
        Some(Permutation::ClampLeft) => in_mode!(ClampLeft),
        Some(Permutation::ClampRight) => in_mode!(ClampRight),
        Some(Permutation::ReplicateHalf) => in_mode!(ReplicateHalf),
    }
}

/// Decodes `lop3`. `None` for anything else.
pub(crate) fn decode_lop3(
    compiler: &mut FunctionCompiler,
    line: &Line,
    form: &mut Undecoded,
) -> Option<Decoded<()>> {
    (form.opcode == Some(Opcode::Lop3)).then(|| lop3(compiler, line, form))
}

fn lop3(compiler: &mut FunctionCompiler, line: &Line, form: &mut Undecoded) -> Decoded<()> {
    let ty = ScalarType::B32;
    let combination = form.logic.take();
    let meaning = Meaning::of(form, &line.operands);
    let ([destination, a, b, c, _, rest @ ..], Some(Meaning { op: Op::Table(table), .. })) =
        (line.operands.as_slice(), meaning)
    else {
        return invalid("`lop3` takes a destination, three sources and a table");
    };
    let args = Args {
        a: compiler.source(a, ty)?,
        b: compiler.source(b, ty)?,
        c: compiler.source(c, ty)?,
        immediate: table.into(),
        ..Args::EMPTY
    };
    let (value, predicate) = match destination {
        Operand::Pair(value, predicate) => (&**value, Some(&**predicate)),
        value => (value, None),
    };
    let value = compiler.destination(value, ty)?;
    compiler.lanes(ternary_immediate(lookup), Args { d: value.reg, ..args });
    let result = value.reg;
    compiler.widen(value);
    let Some(predicate) = predicate else { return Ok(()) };
    let immediate = match combination {
        Some(Logic::And) => combine::AND,
        Some(Logic::Or) => combine::OR,
        Some(_) => return unsupported("`lop3.xor` is not supported"),
        None => return invalid("`lop3` with a predicate needs `.and` or `.or`"),
    };
    let [other] = rest else { return invalid("`lop3` with a predicate takes one more predicate") };
    let (other, immediate) = match other {
        Operand::Not(name) => (compiler.predicate(*name)?, immediate | combine::NOT),
        other => (compiler.source(other, ScalarType::Pred)?, immediate),
    };
    let predicate = match predicate {
        Operand::Sink => Reg::NONE,
        Operand::Name(name) => compiler.predicate(*name)?,
        _ => return invalid("the second result of `lop3` is a predicate"),
    };
    let zero = compiler.constant(Class::Word, 0);
    let args = Args { d: predicate, a: result, b: zero, c: other, immediate, ..Args::EMPTY };
    compiler.lanes(compare(|a: u32, b: u32| a != b), args);
    Ok(())
}
