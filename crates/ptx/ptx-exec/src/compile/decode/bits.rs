//! Logic, shifts, and instructions that look at single bits or bytes.

use ptx::body::{Line, Operand};
use ptx::instruction::{Flag, Limit, Logic, Opcode, Permutation};
use ptx::{Constant, ScalarType};

use crate::arithmetic::permute::{self, permute_bytes};
use crate::compile::decode::Pure;
use crate::compile::decode::Undecoded;
use crate::compile::function::{Decoded, FunctionCompiler, invalid, unsupported};
use crate::operands::{Args, Reg};
use crate::registers::handler::LaneHandler;
use crate::registers::shapes::{
    binary, combine, compare, logic, quaternary, registers, ternary, ternary_immediate, unary,
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

/// The pure instructions of this module.
pub(crate) const OPCODES: [Opcode; 18] = {
    use Opcode::*;
    [And, Or, Xor, Not, Cnot, Shl, Shr, Shf, Popc, Clz, Brev, Bfind, Fns, Bfe, Bfi, Bmsk, Szext, Prmt]
};

/// Decodes pure instructions on bits.
pub(crate) fn decode(form: &mut Undecoded) -> Option<Pure> {
    use ScalarType::*;
    match form.opcode? {
        Opcode::And | Opcode::Or | Opcode::Xor | Opcode::Not | Opcode::Cnot => bitwise(form),
        Opcode::Shl | Opcode::Shr => shift(form),
        Opcode::Shf => funnel(form),
        Opcode::Popc | Opcode::Clz => {
            let popc = form.opcode == Some(Opcode::Popc);
            let ty = form.take_type()?;
            let run = match (popc, ty) {
                (true, B32) => unary(|a: u32| a.count_ones()),
                (true, B64) => unary(|a: u64| a.count_ones()),
                (false, B32) => unary(|a: u32| a.leading_zeros()),
                (false, B64) => unary(|a: u64| a.leading_zeros()),
                _ => return None,
            };
            Pure::new(run, U32, &[ty])
        }
        Opcode::Brev => {
            let ty = form.take_type()?;
            Pure::uniform(of_width!(ty, unary, |a| a.reverse_bits()), ty, 1)
        }
        Opcode::Bfind => find(form),
        Opcode::Fns => {
            form.take_type();
            Pure::new(ternary(find_nth), B32, &[B32, B32, S32])
        }
        Opcode::Bfe => extract(form),
        Opcode::Bfi => {
            let ty = form.take_type()?;
            let run = match ty {
                B32 => quaternary(insert32),
                B64 => quaternary(insert64),
                _ => return None,
            };
            Pure::new(run, ty, &[ty, ty, U32, U32])
        }
        Opcode::Bmsk => {
            let run = match form.limit.take()? {
                Limit::Clamp => binary(mask_clamped),
                _ => binary(|a: u32, b: u32| mask_clamped(a & 31, b & 31)),
            };
            form.take_type();
            Pure::uniform(run, B32, 2)
        }
        Opcode::Szext => sign_zero_extend(form),
        Opcode::Prmt => permute(form),
        _ => None,
    }
}

fn bitwise(form: &mut Undecoded) -> Option<Pure> {
    let ty = form.take_type()?;
    let (run, sources) = match (form.opcode?, ty) {
        (Opcode::And, ScalarType::Pred) => (logic(|a, b, _| a & b), 2),
        (Opcode::Or, ScalarType::Pred) => (logic(|a, b, _| a | b), 2),
        (Opcode::Xor, ScalarType::Pred) => (logic(|a, b, _| a ^ b), 2),
        (Opcode::Not, ScalarType::Pred) => (logic(|a, _, _| !a), 1),
        (Opcode::And, _) => (of_width!(ty, binary, |a, b| a & b), 2),
        (Opcode::Or, _) => (of_width!(ty, binary, |a, b| a | b), 2),
        (Opcode::Xor, _) => (of_width!(ty, binary, |a, b| a ^ b), 2),
        (Opcode::Not, _) => (of_width!(ty, unary, |a| !a), 1),
        (_, ScalarType::B16) => (unary(|a: u16| u16::from(a == 0)), 1),
        (_, ScalarType::B32) => (unary(|a: u32| u32::from(a == 0)), 1),
        (_, ScalarType::B64) => (unary(|a: u64| u64::from(a == 0)), 1),
        _ => return None,
    };
    Pure::uniform(run, ty, sources)
}

/// Shifts by more than the width give zeros, or copies of the sign.
fn shift(form: &mut Undecoded) -> Option<Pure> {
    use ScalarType::*;
    let left = form.opcode == Some(Opcode::Shl);
    let ty = form.take_type()?;
    let run = match (left, ty) {
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
    };
    Pure::new(run, ty, &[ty, U32])
}

#[inline(always)]
fn both(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

fn funnel(form: &mut Undecoded) -> Option<Pure> {
    let left = form.take_one(&[Flag::Left, Flag::Right])? == Flag::Left;
    let clamp = form.limit.take()? == Limit::Clamp;
    form.take_type();
    let run: LaneHandler = match (left, clamp) {
        (true, true) => ternary(|a: u32, b: u32, c: u32| (both(a, b) << c.min(32) >> 32) as u32),
        (true, false) => ternary(|a: u32, b: u32, c: u32| (both(a, b) << (c & 31) >> 32) as u32),
        (false, true) => ternary(|a: u32, b: u32, c: u32| (both(a, b) >> c.min(32)) as u32),
        (false, false) => ternary(|a: u32, b: u32, c: u32| (both(a, b) >> (c & 31)) as u32),
    };
    Pure::uniform(run, ScalarType::B32, 3)
}

/// Position of the highest bit that differs from the sign, or all ones.
fn find(form: &mut Undecoded) -> Option<Pure> {
    use ScalarType::*;
    let amount = form.take(Flag::ShiftAmount);
    let ty = form.take_type()?;
    let run = match (ty, amount) {
        (U32, false) => unary(|a: u32| 31u32.wrapping_sub(a.leading_zeros())),
        (S32, false) => unary(|a: i32| 31u32.wrapping_sub((a ^ a >> 31).leading_zeros())),
        (U64, false) => unary(|a: u64| 63u32.wrapping_sub(a.leading_zeros())),
        (S64, false) => unary(|a: i64| 63u32.wrapping_sub((a ^ a >> 63).leading_zeros())),
        (U32, true) => unary(|a: u32| shift_amount(a.leading_zeros(), 32)),
        (S32, true) => unary(|a: i32| shift_amount((a ^ a >> 31).leading_zeros(), 32)),
        (U64, true) => unary(|a: u64| shift_amount(a.leading_zeros(), 64)),
        (S64, true) => unary(|a: i64| shift_amount((a ^ a >> 63).leading_zeros(), 64)),
        _ => return None,
    };
    Pure::new(run, U32, &[ty])
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

#[inline(always)]
fn field_mask(length: u32, width: u32) -> u64 {
    if length >= width { u64::MAX >> (64 - width) } else { (1 << length) - 1 }
}

#[inline(always)]
fn extract_field(a: u64, position: u32, length: u32, width: u32, signed: bool) -> u64 {
    let (position, length) = (position & 0xff, length & 0xff);
    let field = if position >= width { 0 } else { a >> position };
    let kept = length.min(width.saturating_sub(position));
    let value = field & field_mask(kept, width);
    if !signed || length == 0 {
        return value;
    }
    let sign_at = (position + length - 1).min(width - 1);
    if a >> sign_at & 1 != 0 { value | !field_mask(kept, width) } else { value }
}

fn extract(form: &mut Undecoded) -> Option<Pure> {
    use ScalarType::*;
    let ty = form.take_type()?;
    let run = match ty {
        U32 => ternary(|a: u32, b: u32, c: u32| extract_field(a.into(), b, c, 32, false) as u32),
        S32 => ternary(|a: u32, b: u32, c: u32| extract_field(a.into(), b, c, 32, true) as u32),
        U64 => ternary(|a: u64, b: u32, c: u32| extract_field(a, b, c, 64, false)),
        S64 => ternary(|a: u64, b: u32, c: u32| extract_field(a, b, c, 64, true)),
        _ => return None,
    };
    Pure::new(run, ty, &[ty, U32, U32])
}

#[inline(always)]
fn insert32(a: u32, b: u32, c: u32, d: u32) -> u32 {
    let (position, length) = (c & 0xff, d & 0xff);
    if position > 31 {
        return b;
    }
    let mask = (field_mask(length, 32) as u32) << position;
    a << position & mask | b & !mask
}

#[inline(always)]
fn insert64(a: u64, b: u64, c: u32, d: u32) -> u64 {
    let (position, length) = (c & 0xff, d & 0xff);
    if position > 63 {
        return b;
    }
    let mask = field_mask(length, 64) << position;
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

fn sign_zero_extend(form: &mut Undecoded) -> Option<Pure> {
    use ScalarType::*;
    let clamp = form.limit.take()? == Limit::Clamp;
    let ty = form.take_type()?;
    let run = match (ty, clamp) {
        (U32, true) => binary(|a: u32, b: u32| a & field_mask(b, 32) as u32),
        (U32, false) => binary(|a: u32, b: u32| a & field_mask(b & 31, 32) as u32),
        (S32, true) => binary(|a: u32, b: u32| sign_extended(a, b.min(32))),
        (S32, false) => binary(|a: u32, b: u32| sign_extended(a, b & 31)),
        _ => return None,
    };
    Pure::new(run, ty, &[ty, U32])
}

/// `prmt` without a mode.
pub(crate) fn byte_permutation() -> LaneHandler {
    registers!(u32 => u32, |a, b, c, _| permute::bytes(a, b, c))
}

fn permute(form: &mut Undecoded) -> Option<Pure> {
    form.take_type()?;
    let run = match form.permutation.take() {
        None => byte_permutation(),
        Some(Permutation::ForwardFour) => ternary(|a: u32, b: u32, c: u32| {
            let c = c & 3;
            permute_bytes(a, b, [c, c + 1, c + 2, c + 3])
        }),
        Some(Permutation::BackwardFour) => ternary(|a: u32, b: u32, c: u32| {
            let c = c & 3;
            permute_bytes(a, b, [c, (c + 7) & 7, (c + 6) & 7, (c + 5) & 7])
        }),
        Some(Permutation::ReplicateByte) => ternary(|a: u32, b: u32, c: u32| permute_bytes(a, b, [c & 3; 4])),
        Some(Permutation::ClampLeft) => ternary(|a: u32, b: u32, c: u32| {
            let c = c & 3;
            permute_bytes(a, b, [c, c.max(1), c.max(2), 3])
        }),
        Some(Permutation::ClampRight) => ternary(|a: u32, b: u32, c: u32| {
            let c = c & 3;
            permute_bytes(a, b, [0, c.min(1), c.min(2), c])
        }),
        Some(_) => ternary(|a: u32, b: u32, c: u32| {
            let low = (c & 1) * 2;
            permute_bytes(a, b, [low, low + 1, low, low + 1])
        }),
    };
    Pure::uniform(run, ScalarType::B32, 3)
}

/// Any function of three bits, by its table: a tree of choices, by `a`, then `b`, then `c`.
#[inline(always)]
fn lookup(a: u32, b: u32, c: u32, table: u32) -> u32 {
    let entry = |index: u32| 0u32.wrapping_sub(table >> index & 1);
    let choose = |bit: u32, one: u32, zero: u32| zero ^ (bit & (zero ^ one));
    let set = choose(b, choose(c, entry(7), entry(6)), choose(c, entry(5), entry(4)));
    let clear = choose(b, choose(c, entry(3), entry(2)), choose(c, entry(1), entry(0)));
    choose(a, set, clear)
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
    form.take_type();
    let [destination, a, b, c, Operand::Constant(Constant::Integer(table)), rest @ ..] =
        line.operands.as_slice()
    else {
        return invalid("`lop3` takes a destination, three sources and a table");
    };
    let args = Args {
        a: compiler.source(a, ty)?,
        b: compiler.source(b, ty)?,
        c: compiler.source(c, ty)?,
        immediate: *table as u32 & 0xff,
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
    let zero = compiler.constant(crate::operands::Class::Word, 0);
    let args = Args { d: predicate, a: result, b: zero, c: other, immediate, ..Args::EMPTY };
    compiler.lanes(compare(|a: u32, b: u32| a != b), args);
    Ok(())
}
