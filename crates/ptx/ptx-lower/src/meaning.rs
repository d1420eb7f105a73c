//! The operations, and the types of what they read and write.

use ptx::ScalarType;
use ptx::body::Operand;
use ptx::instruction::{Comparison, Logic, Opcode, Operation, Part, Permutation, Property, Rounding};

use crate::{bits, compare, convert, float, integer};

/// Operation that an instruction applies to its sources `a`, `b`, `c`, `d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// `a`, unchanged: `mov` and `cvta`.
    Move,
    /// `a + b`.
    Add,
    /// `a - b`.
    Subtract,
    /// A part of `a * b`; the low one of floating-point numbers is the product.
    Multiply(Part),
    /// A part of `a * b`, plus `c`.
    MultiplyAdd(Part),
    /// `mul24`: a part of the product of 24 bits each.
    Multiply24(Part),
    /// `mad24`.
    MultiplyAdd24(Part),
    /// `clmad`: a half of the product of polynomials over two elements, plus `c`.
    CarrylessMultiplyAdd(Part),
    /// `dp4a`: the sum of the products of four bytes each, plus `c`; whether `a` and `b` are
    /// signed.
    DotBytes([bool; 2]),
    /// `dp2a`: the sum of the products of two halves of `a` and two bytes of `b`, plus `c`.
    DotHalves {
        /// Whether `a` and `b` are signed.
        signed: [bool; 2],
        /// Whether the upper bytes of `b` count.
        high: bool,
    },
    /// `sad`: `|a - b| + c`.
    SumOfDifferences,
    /// `a / b`.
    Divide,
    /// The remainder of `a / b`.
    Remainder,
    /// The lesser of `a` and `b`.
    Minimum,
    /// The greater of `a` and `b`.
    Maximum,
    /// The least of `a`, `b` and `c`.
    MinimumOfThree,
    /// The greatest of `a`, `b` and `c`.
    MaximumOfThree,
    /// `|a|`.
    Absolute,
    /// `-a`.
    Negate,
    /// `a & b`.
    And,
    /// `a | b`.
    Or,
    /// `a ^ b`.
    Xor,
    /// `!a`.
    Not,
    /// `cnot`: 1 where `a` is 0, else 0.
    IsZero,
    /// `lop3` with its table: each bit is looked up by the bits of `a`, `b`, `c`.
    Table(u8),
    /// `a` shifted to the left by `b`; zero beyond the width.
    ShiftLeft,
    /// `a` shifted to the right by `b`; zero, or copies of the sign, beyond the width.
    ShiftRight,
    /// `shf`: a word of `b:a` shifted by `c`.
    Funnel {
        /// To the left; the upper word is kept.
        left: bool,
        /// Amounts count modulo 32, instead of 32 at most.
        wrap: bool,
    },
    /// `bfe`: `c` bits of `a` from bit `b` on.
    ExtractBits,
    /// `bfi`: `b`, with the lowest `d` bits of `a` from bit `c` on.
    InsertBits,
    /// `bmsk`: `b` bits set from bit `a` on; whether both count modulo 32.
    Mask {
        /// Modulo 32, instead of clamped.
        wrap: bool,
    },
    /// `szext`: the lowest `b` bits of `a`, extended.
    Extend {
        /// `b` counts modulo 32, instead of clamped.
        wrap: bool,
    },
    /// `prmt`: bytes of `b:a`, as `c` selects.
    Permute(Option<Permutation>),
    /// `popc`.
    CountOnes,
    /// `clz`.
    CountLeadingZeros,
    /// `brev`.
    ReverseBits,
    /// `bfind`: the position of the highest bit that differs from the sign, or all ones.
    FindHighest {
        /// Distance by which it has to be shifted to the left, instead of its position.
        amount: bool,
    },
    /// `fns`: the position of the `c`-th bit that is set in `a`, from bit `b` on.
    FindNth,
    /// Whether `a` and `b` have a relation; where it says so, combined with the predicate `c`. A
    /// second predicate gets the opposite, combined likewise.
    Compare {
        /// The relation.
        relation: Comparison,
        /// The operation with `c`.
        logic: Option<Logic>,
        /// The type of the result: a predicate, or numbers of which 1.0 or all bits say that it is
        /// true.
        truth: ScalarType,
    },
    /// `selp`: `a` where the predicate `c` is true, else `b`.
    Select,
    /// `slct`: `a` where `c`, of this type, is not negative, else `b`.
    SelectSign {
        /// The type of `c`.
        sign: ScalarType,
        /// Whether subnormal numbers count as 0.
        flush: bool,
    },
    /// `a` without this many of its lowest bits: `mov` to several registers.
    Unpack(u32),
    /// `a` in this many low bits and `b` above them: `mov` of several registers.
    Pack(u32),
    /// `cvt`: `a` as a number of another type, or `a` and `b` as a pair.
    Convert {
        /// The type of the result.
        to: ScalarType,
        /// `.satfinite`: infinities become the largest number.
        finite: bool,
    },
    /// `cvt.pack`: `b` and above it `a`, saturated to a width; above both `c`, where there is room.
    PackIntegers {
        /// The bits of each, at most 16.
        width: u8,
        /// Whether they are signed.
        signed: bool,
    },
    /// The square root.
    SquareRoot,
    /// `1 / a`.
    Reciprocal,
    /// `rsqrt`.
    ReciprocalSquareRoot,
    /// `sin`.
    Sine,
    /// `cos`.
    Cosine,
    /// `lg2`.
    Logarithm,
    /// `ex2`: 2 to the power of `a`.
    PowerOfTwo,
    /// `tanh`.
    HyperbolicTangent,
    /// `copysign`: `b` with the sign of `a`.
    CopySign,
    /// `testp`: whether `a` has a property.
    Test(Property),
}

/// Modifiers that change the result of an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modifiers {
    /// The rounding that is named.
    pub rounding: Option<Rounding>,
    /// `.sat`: the result is clamped where it does not fit, a floating-point number into [0, 1].
    pub saturates: bool,
    /// `.relu`: a negative result becomes 0.
    pub rectifies: bool,
    /// `.ftz`: subnormal numbers count as 0.
    pub flushes: bool,
    /// `.approx`.
    pub approximate: bool,
    /// `.NaN`: of a NaN and a number, the NaN is chosen.
    pub nan: bool,
    /// `.xorsign.abs`: of the magnitudes, with the signs multiplied.
    pub xor_sign: bool,
    /// `.abs`: of the magnitudes.
    pub magnitudes: bool,
    /// The type of the first sources, where it is narrower than that of the operation.
    pub narrow: Option<ScalarType>,
}

/// What an instruction computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meaning {
    /// The operation.
    pub op: Op,
    /// The type that it computes in: that of the first source, unless a modifier says otherwise.
    pub ty: ScalarType,
    /// The modifiers.
    pub modifiers: Modifiers,
}

impl Meaning {
    /// An operation without modifiers.
    pub fn plain(op: Op, ty: ScalarType) -> Meaning {
        Meaning { op, ty, modifiers: Modifiers::default() }
    }

    /// Decodes an instruction, and takes the modifiers that its meaning tells out of the operation.
    /// `None` if it does more, or something else, than to compute one result.
    pub fn of(operation: &mut Operation, operands: &[Operand<'_>]) -> Option<Meaning> {
        if operation.is(&bits::OPCODES) {
            return bits::decode(operation, operands);
        }
        match operation.opcode {
            Some(Opcode::Cvt) => return convert::decode(operation),
            Some(Opcode::Setp | Opcode::Set) => return compare::decode(operation),
            _ => {}
        }
        match operation.types().first()?.is_float() {
            true => float::decode(operation, operands.len().saturating_sub(1)),
            false => integer::decode(operation),
        }
    }

    /// The type of the result.
    pub fn result(&self) -> ScalarType {
        use ScalarType::{B32, U32};
        match self.op {
            Op::Multiply(Part::Wide) | Op::MultiplyAdd(Part::Wide) => wide(self.ty),
            Op::CountOnes | Op::CountLeadingZeros | Op::FindHighest { .. } | Op::PackIntegers { .. } => U32,
            Op::DotBytes(_) | Op::DotHalves { .. } => B32,
            Op::Convert { to, .. } | Op::Compare { truth: to, .. } => to,
            Op::Test(_) => ScalarType::Pred,
            _ => self.ty,
        }
    }

    /// The types of the sources, in order; at most four.
    pub fn sources(&self) -> Vec<ScalarType> {
        use Op::*;
        use ScalarType::{B32, F32, Pred, S32, U32};
        let (ty, word) = (self.ty, |signed: bool| if signed { S32 } else { U32 });
        match self.op {
            Add | Subtract => vec![self.modifiers.narrow.unwrap_or(ty), ty],
            MultiplyAdd(_) => {
                let factor = self.modifiers.narrow.unwrap_or(ty);
                vec![factor, factor, self.result()]
            }
            ShiftLeft | ShiftRight | Extend { .. } => vec![ty, U32],
            DotBytes([a, b]) | DotHalves { signed: [a, b], .. } => vec![word(a), word(b), B32],
            ExtractBits => vec![ty, U32, U32],
            InsertBits => vec![ty, ty, U32, U32],
            FindNth => vec![B32, B32, S32],
            Select | Compare { logic: Some(_), .. } => vec![ty, ty, Pred],
            Compare { .. } => vec![ty; 2],
            SelectSign { sign, .. } => vec![ty, ty, sign],
            Convert { to, .. } if ty == F32 && convert::element(to).is_some() => vec![F32; 2],
            PackIntegers { width: 16, .. } => vec![ty; 2],
            PackIntegers { .. } => vec![ty, ty, B32],
            MultiplyAdd24(_) | CarrylessMultiplyAdd(_) | SumOfDifferences => vec![ty; 3],
            MinimumOfThree | MaximumOfThree | Table(_) | Funnel { .. } | Permute(_) => vec![ty; 3],
            Multiply(_) | Multiply24(_) | Divide | Remainder | Minimum | Maximum => vec![ty; 2],
            And | Or | Xor | Mask { .. } | Pack(_) | CopySign => vec![ty; 2],
            _ => vec![ty],
        }
    }
}

/// The integer of twice the width; of 64 bits, the same.
fn wide(ty: ScalarType) -> ScalarType {
    use ScalarType::*;
    match ty {
        U16 => U32,
        S16 => S32,
        U32 => U64,
        S32 => S64,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ptx::Mnemonic;

    fn meaning(mnemonic: &str) -> Option<Meaning> {
        let mut operation = Operation::of(&Mnemonic::new(mnemonic.into()));
        Meaning::of(&mut operation, &[]).filter(|_| operation.is_spent())
    }

    #[test]
    fn modifiers_are_part_of_the_meaning_or_left() {
        use ScalarType::{S32, U16, U32, U64};
        assert_eq!(meaning("add.s32"), Some(Meaning::plain(Op::Add, S32)));
        let modifiers = Modifiers { saturates: true, ..Modifiers::default() };
        let saturating = Meaning { modifiers, ..Meaning::plain(Op::Add, S32) };
        assert_eq!(meaning("add.sat.s32"), Some(saturating));
        let wide = meaning("mad.wide.u32").unwrap();
        assert_eq!((wide.result(), wide.sources()), (U64, vec![U32, U32, U64]));
        assert_eq!(meaning("mul.wide.u16").unwrap().result(), U32);
        let funnel = meaning("shf.l.wrap.b32").unwrap().op;
        assert_eq!(funnel, Op::Funnel { left: true, wrap: true });
        assert_eq!(meaning("shl.b16").unwrap().sources(), [ScalarType::B16, U32]);
        assert_eq!(meaning("min.u16"), Some(Meaning::plain(Op::Minimum, U16)));
        assert_eq!(meaning("add.ftz.s32"), None, "`.ftz` is left");
        assert_eq!(meaning("fma.rn.ftz.f32").unwrap().modifiers.rounding, Some(Rounding::Nearest));
        assert_eq!(meaning("add.f32.f16").unwrap().sources(), [ScalarType::F16, ScalarType::F32]);
        assert_eq!(meaning("testp.finite.f64").unwrap().result(), ScalarType::Pred);
        let combined = meaning("setp.lt.and.u32").unwrap();
        assert_eq!(
            (combined.result(), combined.sources()),
            (ScalarType::Pred, vec![U32, U32, ScalarType::Pred])
        );
        let pair = meaning("cvt.rn.f16x2.f32").unwrap();
        assert_eq!((pair.result(), pair.sources().len()), (ScalarType::F16x2, 2));
        assert_eq!(meaning("mul.s32"), None, "no part is named");
    }

    #[test]
    fn what_does_more_has_none() {
        for mnemonic in ["ld.global.u32", "bra", "setp.s32", "mov.b32", "cvt.pack.u16.s32"] {
            assert_eq!(meaning(mnemonic), None, "{mnemonic}");
        }
    }
}
