//! Integer arithmetic.
//!
//! Where the ISA leaves a result open (division by zero), it is what NVIDIA's compilers' code
//! gives: all bits set (seen on an H200).

use ptx::ScalarType;
use ptx::body::Line;
use ptx::instruction::{Flag, Opcode, Part};
use ptx_lower::{Meaning, Modifiers, Op};

use crate::arithmetic::quotient;
use crate::compile::decode::Undecoded;
use crate::compile::function::{Decoded, FunctionCompiler, invalid};
use crate::operands::{Args, Reg};
use crate::registers::handler::LaneHandler;
use crate::registers::shapes::{binary, carry, ternary, unary};

/// `$shape(|x: T, …| body)` with `T` the Rust type of `$ty`.
macro_rules! typed {
    ($ty:expr, $shape:ident, |$($x:ident),+| $body:expr) => {
        match $ty {
            ScalarType::U16 | ScalarType::B16 => $shape(|$($x: u16),+| $body),
            ScalarType::S16 => $shape(|$($x: i16),+| $body),
            ScalarType::U32 | ScalarType::B32 => $shape(|$($x: u32),+| $body),
            ScalarType::S32 => $shape(|$($x: i32),+| $body),
            ScalarType::U64 | ScalarType::B64 => $shape(|$($x: u64),+| $body),
            ScalarType::S64 => $shape(|$($x: i64),+| $body),
            _ => return None,
        }
    };
}

/// `binary` or `ternary` of an expression on integers whose product is twice as wide, as is the
/// third source.
macro_rules! widening {
    ($ty:expr, |$a:ident, $b:ident| $body:expr) => {
        match $ty {
            ScalarType::U16 => binary(|$a: u16, $b: u16| $body),
            ScalarType::S16 => binary(|$a: i16, $b: i16| $body),
            ScalarType::U32 => binary(|$a: u32, $b: u32| $body),
            ScalarType::S32 => binary(|$a: i32, $b: i32| $body),
            _ => return None,
        }
    };
    ($ty:expr, |$a:ident, $b:ident, $c:ident| $body:expr) => {
        match $ty {
            ScalarType::U16 => ternary(|$a: u16, $b: u16, $c: u32| $body),
            ScalarType::S16 => ternary(|$a: i16, $b: i16, $c: i32| $body),
            ScalarType::U32 => ternary(|$a: u32, $b: u32, $c: u64| $body),
            ScalarType::S32 => ternary(|$a: i32, $b: i32, $c: i64| $body),
            _ => return None,
        }
    };
}

/// Products with all their bits.
trait Product: Sized {
    type Wide;
    fn wide(self, other: Self) -> Self::Wide;
    /// The upper half.
    fn high(self, other: Self) -> Self;
}

macro_rules! product_of {
    ($($ty:ty: $wide:ty),*) => {$(
        impl Product for $ty {
            type Wide = $wide;
            #[inline(always)]
            fn wide(self, other: $ty) -> $wide {
                <$wide>::from(self) * <$wide>::from(other)
            }
            #[inline(always)]
            fn high(self, other: $ty) -> $ty {
                (self.wide(other) >> <$ty>::BITS) as $ty
            }
        }
    )*};
}

product_of!(u16: u32, i16: i32, u32: u64, i32: i64, u64: u128, i64: i128);

#[inline(always)]
fn low24_signed(a: i32) -> i64 {
    i64::from(a << 8 >> 8)
}

#[inline(always)]
fn low24(a: u32) -> u64 {
    u64::from(a & 0xff_ffff)
}

/// `mul24` and `mad24`: the low or the high 32 bits of a 48-bit product.
fn multiply24(ty: ScalarType, part: Part, add: bool, saturate: bool) -> Option<LaneHandler> {
    use ScalarType::*;
    Some(match (ty, part, add, saturate) {
        (U32, Part::Low, false, false) => binary(|a: u32, b: u32| (low24(a) * low24(b)) as u32),
        (U32, Part::High, false, false) => binary(|a: u32, b: u32| ((low24(a) * low24(b)) >> 16) as u32),
        (S32, Part::Low, false, false) => binary(|a: i32, b: i32| (low24_signed(a) * low24_signed(b)) as i32),
        (S32, Part::High, false, false) => {
            binary(|a: i32, b: i32| ((low24_signed(a) * low24_signed(b)) >> 16) as i32)
        }
        (U32, Part::Low, true, false) => {
            ternary(|a: u32, b: u32, c: u32| ((low24(a) * low24(b)) as u32).wrapping_add(c))
        }
        (U32, Part::High, true, false) => {
            ternary(|a: u32, b: u32, c: u32| (((low24(a) * low24(b)) >> 16) as u32).wrapping_add(c))
        }
        (S32, Part::Low, true, false) => {
            ternary(|a: i32, b: i32, c: i32| ((low24_signed(a) * low24_signed(b)) as i32).wrapping_add(c))
        }
        (S32, Part::High, true, false) => ternary(|a: i32, b: i32, c: i32| {
            (((low24_signed(a) * low24_signed(b)) >> 16) as i32).wrapping_add(c)
        }),
        (S32, Part::High, true, true) => ternary(|a: i32, b: i32, c: i32| {
            (((low24_signed(a) * low24_signed(b)) >> 16) as i32).saturating_add(c)
        }),
        _ => return None,
    })
}

fn divide(ty: ScalarType) -> Option<LaneHandler> {
    use ScalarType::*;
    macro_rules! quotient {
        ($quotient:path, $ty:ty) => {
            binary(|a: $ty, b: $ty| {
                let quotient = $quotient(a, b);
                if b == 0 { !0 } else { quotient }
            })
        };
    }
    Some(match ty {
        U16 => quotient!(quotient::u16, u16),
        U32 => quotient!(quotient::u32, u32),
        U64 => binary(|a: u64, b: u64| a.checked_div(b).unwrap_or(u64::MAX)),
        S16 => quotient!(quotient::i16, i16),
        S32 => quotient!(quotient::i32, i32),
        S64 => binary(|a: i64, b: i64| if b == 0 { -1 } else { a.wrapping_div(b) }),
        _ => return None,
    })
}

fn remainder(ty: ScalarType) -> Option<LaneHandler> {
    use ScalarType::*;
    macro_rules! rest {
        ($quotient:path, $ty:ty) => {
            binary(|a: $ty, b: $ty| {
                let rest = a.wrapping_sub($quotient(a, b).wrapping_mul(b));
                if b == 0 { !0 } else { rest }
            })
        };
    }
    Some(match ty {
        U16 => rest!(quotient::u16, u16),
        U32 => rest!(quotient::u32, u32),
        U64 => binary(|a: u64, b: u64| a.checked_rem(b).unwrap_or(!0)),
        S16 => rest!(quotient::i16, i16),
        S32 => rest!(quotient::i32, i32),
        S64 => binary(|a: i64, b: i64| if b == 0 { -1 } else { a.wrapping_rem(b) }),
        _ => return None,
    })
}

#[inline(always)]
fn halves(value: u32) -> [u16; 2] {
    [value as u16, (value >> 16) as u16]
}

#[inline(always)]
fn joined([low, high]: [u16; 2]) -> u32 {
    u32::from(low) | u32::from(high) << 16
}

#[inline(always)]
fn by_halves(a: u32, b: u32, f: impl Fn(u16, u16) -> u16) -> u32 {
    let ([a0, a1], [b0, b1]) = (halves(a), halves(b));
    joined([f(a0, b0), f(a1, b1)])
}

/// Arithmetic on pairs of 16-bit integers.
fn packed(meaning: &Meaning) -> Option<LaneHandler> {
    use ScalarType::*;
    #[inline(always)]
    fn signed(a: u32, b: u32, f: impl Fn(i16, i16) -> i16) -> u32 {
        by_halves(a, b, |a, b| f(a as i16, b as i16) as u16)
    }
    Some(match (meaning.op, meaning.ty, meaning.modifiers.rectifies) {
        (Op::Add, U16x2 | S16x2, false) => binary(|a: u32, b: u32| by_halves(a, b, u16::wrapping_add)),
        (Op::Minimum, U16x2, false) => binary(|a: u32, b: u32| by_halves(a, b, u16::min)),
        (Op::Maximum, U16x2, false) => binary(|a: u32, b: u32| by_halves(a, b, u16::max)),
        (Op::Minimum, S16x2, false) => binary(|a: u32, b: u32| signed(a, b, i16::min)),
        (Op::Maximum, S16x2, false) => binary(|a: u32, b: u32| signed(a, b, i16::max)),
        (Op::Minimum, S16x2, true) => binary(|a: u32, b: u32| signed(a, b, |a, b| a.min(b).max(0))),
        (Op::Maximum, S16x2, true) => binary(|a: u32, b: u32| signed(a, b, |a, b| a.max(b).max(0))),
        _ => return None,
    })
}

/// Sum of the products of four bytes, signed or not, and `c`.
#[inline(always)]
fn dot4(a: u32, signed_a: bool, b: u32, signed_b: bool, c: u32) -> u32 {
    let element = |value: u32, signed: bool, index: usize| {
        let byte = value.to_le_bytes()[index];
        if signed { i32::from(byte as i8) } else { i32::from(byte) }
    };
    (0..4).fold(c, |sum, i| sum.wrapping_add((element(a, signed_a, i) * element(b, signed_b, i)) as u32))
}

/// Sum of the products of two halves of `a` with the low or high two bytes of `b`, and `c`.
#[inline(always)]
fn dot2(a: u32, signed_a: bool, b: u32, signed_b: bool, c: u32) -> u32 {
    (0..2).fold(c, |sum, i| {
        let half = halves(a)[i];
        let x = if signed_a { i32::from(half as i16) } else { i32::from(half) };
        let byte = b.to_le_bytes()[i];
        let y = if signed_b { i32::from(byte as i8) } else { i32::from(byte) };
        sum.wrapping_add(x.wrapping_mul(y) as u32)
    })
}

/// Sums of products of the parts of words.
fn dot(op: Op) -> Option<LaneHandler> {
    Some(match op {
        Op::DotBytes([false, false]) => ternary(|a: u32, b: u32, c: u32| dot4(a, false, b, false, c)),
        Op::DotBytes([false, true]) => ternary(|a: u32, b: u32, c: u32| dot4(a, false, b, true, c)),
        Op::DotBytes([true, false]) => ternary(|a: u32, b: u32, c: u32| dot4(a, true, b, false, c)),
        Op::DotBytes([true, true]) => ternary(|a: u32, b: u32, c: u32| dot4(a, true, b, true, c)),
        Op::DotHalves { signed, high } => match (high, signed) {
            (false, [false, false]) => ternary(|a: u32, b: u32, c: u32| dot2(a, false, b, false, c)),
            (false, [false, true]) => ternary(|a: u32, b: u32, c: u32| dot2(a, false, b, true, c)),
            (false, [true, false]) => ternary(|a: u32, b: u32, c: u32| dot2(a, true, b, false, c)),
            (false, [true, true]) => ternary(|a: u32, b: u32, c: u32| dot2(a, true, b, true, c)),
            (true, [false, false]) => ternary(|a: u32, b: u32, c: u32| dot2(a, false, b >> 16, false, c)),
            (true, [false, true]) => ternary(|a: u32, b: u32, c: u32| dot2(a, false, b >> 16, true, c)),
            (true, [true, false]) => ternary(|a: u32, b: u32, c: u32| dot2(a, true, b >> 16, false, c)),
            (true, [true, true]) => ternary(|a: u32, b: u32, c: u32| dot2(a, true, b >> 16, true, c)),
        },
        _ => return None,
    })
}

/// Returns the handler of integer arithmetic.
pub(crate) fn handler(meaning: &Meaning) -> Option<LaneHandler> {
    use ScalarType::*;
    let Meaning { op, ty, modifiers: Modifiers { saturates, rectifies, .. } } = *meaning;
    if matches!(ty, U16x2 | S16x2) {
        return if saturates { None } else { packed(meaning) };
    }
    Some(match (op, saturates, rectifies) {
        (Op::Add, true, false) if ty == S32 => binary(i32::saturating_add),
        (Op::Subtract, true, false) if ty == S32 => binary(i32::saturating_sub),
        (Op::MultiplyAdd(Part::High), true, false) if ty == S32 => {
            ternary(|a: i32, b: i32, c: i32| a.high(b).saturating_add(c))
        }
        (Op::MultiplyAdd24(part), _, false) => multiply24(ty, part, true, saturates)?,
        (Op::Minimum, false, true) if ty == S32 => binary(|a: i32, b: i32| a.min(b).max(0)),
        (Op::Maximum, false, true) if ty == S32 => binary(|a: i32, b: i32| a.max(b).max(0)),
        (_, true, _) | (_, _, true) => return None,
        (Op::Add, ..) => typed!(ty, binary, |a, b| a.wrapping_add(b)),
        (Op::Subtract, ..) => typed!(ty, binary, |a, b| a.wrapping_sub(b)),
        (Op::Multiply(Part::Low), ..) => typed!(ty, binary, |a, b| a.wrapping_mul(b)),
        (Op::Multiply(Part::High), ..) => typed!(ty, binary, |a, b| a.high(b)),
        (Op::Multiply(Part::Wide), ..) => widening!(ty, |a, b| a.wide(b)),
        (Op::MultiplyAdd(Part::Low), ..) => typed!(ty, ternary, |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
        (Op::MultiplyAdd(Part::High), ..) => typed!(ty, ternary, |a, b, c| a.high(b).wrapping_add(c)),
        (Op::MultiplyAdd(Part::Wide), ..) => widening!(ty, |a, b, c| a.wide(b).wrapping_add(c)),
        (Op::Multiply24(part), ..) => multiply24(ty, part, false, false)?,
        (Op::CarrylessMultiplyAdd(Part::Low), ..) if matches!(ty, U64 | S64) => {
            ternary(|a: u64, b: u64, c: u64| carryless_product(a, b) as u64 ^ c)
        }
        (Op::CarrylessMultiplyAdd(Part::High), ..) if matches!(ty, U64 | S64) => {
            ternary(|a: u64, b: u64, c: u64| (carryless_product(a, b) >> 64) as u64 ^ c)
        }
        (Op::SumOfDifferences, ..) => sum_of_differences(ty)?,
        (Op::Divide, ..) => divide(ty)?,
        (Op::Remainder, ..) => remainder(ty)?,
        (Op::Absolute, ..) => absolute(ty)?,
        (Op::Negate, ..) => typed!(ty, unary, |a| a.wrapping_neg()),
        (Op::Minimum, ..) => typed!(ty, binary, |a, b| a.min(b)),
        (Op::Maximum, ..) => typed!(ty, binary, |a, b| a.max(b)),
        _ => dot(op)?,
    })
}

/// The product of two polynomials over the field of two elements.
fn carryless_product(a: u64, b: u64) -> u128 {
    (0..64).filter(|bit| b >> bit & 1 != 0).fold(0, |product, bit| product ^ u128::from(a) << bit)
}

fn sum_of_differences(ty: ScalarType) -> Option<LaneHandler> {
    use ScalarType::*;
    Some(match ty {
        U16 => ternary(|a: u16, b: u16, c: u16| c.wrapping_add(a.abs_diff(b))),
        S16 => ternary(|a: i16, b: i16, c: i16| c.wrapping_add(a.abs_diff(b) as i16)),
        U32 => ternary(|a: u32, b: u32, c: u32| c.wrapping_add(a.abs_diff(b))),
        S32 => ternary(|a: i32, b: i32, c: i32| c.wrapping_add(a.abs_diff(b) as i32)),
        U64 => ternary(|a: u64, b: u64, c: u64| c.wrapping_add(a.abs_diff(b))),
        S64 => ternary(|a: i64, b: i64, c: i64| c.wrapping_add(a.abs_diff(b) as i64)),
        _ => return None,
    })
}

fn absolute(ty: ScalarType) -> Option<LaneHandler> {
    Some(match ty {
        ScalarType::S16 => unary(i16::wrapping_abs),
        ScalarType::S32 => unary(i32::wrapping_abs),
        ScalarType::S64 => unary(i64::wrapping_abs),
        _ => return None,
    })
}

/// `a + b + carry` with its carry; the shape's third source is not used.
macro_rules! carried {
    ($ty:ty, |$a:ident, $b:ident, $c:ident, $carry:ident| $body:expr) => {
        carry(|$a: $ty, $b: $ty, $c: $ty, $carry: bool| $body)
    };
}

/// Decodes additions and subtractions that read or write the condition code. `None` for anything
/// else.
///
/// The condition code is a predicate of the function: the carry of the adder. A subtraction adds
/// the complement, with a carry in of 1 where it takes no other, so that the code is set where
/// nothing was borrowed.
pub(crate) fn decode_carry(
    compiler: &mut FunctionCompiler,
    line: &Line,
    form: &mut Undecoded,
) -> Option<Decoded<()>> {
    let carry = form.carry();
    if !carry.read && !carry.written {
        return None;
    }
    form.take(Flag::Carry);
    let part = form.part.take();
    let ty = form.take_type();
    let run = ty.and_then(|ty| carry_handler(form.opcode?, part, ty));
    let (Some(ty), Some(run)) = (ty, run) else {
        return Some(invalid(format!("`{}` is not an instruction", line.instruction.mnemonic)));
    };
    Some(emit_carry(compiler, line, run, ty, carry))
}

fn emit_carry(
    compiler: &mut FunctionCompiler,
    line: &Line,
    run: LaneHandler,
    ty: ScalarType,
    carry: ptx::instruction::Carry,
) -> Decoded<()> {
    let (a, b, c) = match line.operands.as_slice() {
        [_, a, b] => (a, b, None),
        [_, a, b, c] => (a, b, Some(c)),
        _ => return invalid("this instruction takes two or three sources"),
    };
    let flag = compiler.carry_flag;
    let args = Args {
        a: compiler.source(a, ty)?,
        b: compiler.source(b, ty)?,
        c: c.map_or(Ok(Reg::NONE), |c| compiler.source(c, ty))?,
        f: if carry.read { flag } else { Reg::NONE },
        e: if carry.written { flag } else { Reg::NONE },
        ..Args::EMPTY
    };
    let destination = compiler.destination(&line.operands[0], ty)?;
    compiler.lanes(run, Args { d: destination.reg, ..args });
    compiler.widen(destination);
    Ok(())
}

fn carry_handler(opcode: Opcode, part: Option<Part>, ty: ScalarType) -> Option<LaneHandler> {
    use ScalarType::*;
    let long = matches!(ty, U64 | S64);
    if !matches!(ty, U32 | S32 | U64 | S64) {
        return None;
    }
    use Opcode::{Add, Addc, Mad, Madc, Sub, Subc};
    Some(match (opcode, part, long) {
        (Add | Addc, None, false) => carried!(u32, |a, b, _c, carry| a.carrying(b, carry)),
        (Add | Addc, None, true) => carried!(u64, |a, b, _c, carry| a.carrying(b, carry)),
        (Subc, None, false) => carried!(u32, |a, b, _c, carry| a.carrying(!b, carry)),
        (Subc, None, true) => carried!(u64, |a, b, _c, carry| a.carrying(!b, carry)),
        (Sub, None, false) => carried!(u32, |a, b, _c, _carry| a.carrying(!b, true)),
        (Sub, None, true) => carried!(u64, |a, b, _c, _carry| a.carrying(!b, true)),
        (Mad | Madc, Some(Part::Low), false) => {
            carried!(u32, |a, b, c, carry| a.wrapping_mul(b).carrying(c, carry))
        }
        (Mad | Madc, Some(Part::Low), true) => {
            carried!(u64, |a, b, c, carry| a.wrapping_mul(b).carrying(c, carry))
        }
        (Mad | Madc, Some(Part::High), false) if ty == U32 => {
            carried!(u32, |a, b, c, carry| a.high(b).carrying(c, carry))
        }
        (Mad | Madc, Some(Part::High), false) => {
            carried!(u32, |a, b, c, carry| ((a as i32).high(b as i32) as u32).carrying(c, carry))
        }
        (Mad | Madc, Some(Part::High), true) if ty == U64 => {
            carried!(u64, |a, b, c, carry| a.high(b).carrying(c, carry))
        }
        (Mad | Madc, Some(Part::High), true) => {
            carried!(u64, |a, b, c, carry| ((a as i64).high(b as i64) as u64).carrying(c, carry))
        }
        _ => return None,
    })
}

/// Addition with a carry in and out.
trait Carry: Sized {
    fn carrying(self, other: Self, carry: bool) -> (Self, bool);
}

macro_rules! carry_for {
    ($($ty:ty),*) => {$(
        impl Carry for $ty {
            #[inline(always)]
            fn carrying(self, other: Self, carry: bool) -> (Self, bool) {
                let (sum, first) = self.overflowing_add(other);
                let (sum, second) = sum.overflowing_add(Self::from(carry));
                (sum, first | second)
            }
        }
    )*};
}

carry_for!(u32, u64);
