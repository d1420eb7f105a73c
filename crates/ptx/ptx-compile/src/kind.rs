//! The operations that the generator knows, by their meaning.

use ptx::ScalarType;
use ptx::instruction::{Comparison, Part, Rounding};
use ptx_lower::{Meaning, Modifiers, Op};

use crate::assembler::{Vex, op};

/// Way in which an operation is generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The same bits.
    Copy,
    /// One instruction on each half or word.
    Simple(Vex),
    /// One instruction whose sources are numbers of `.f32`: the result may be any NaN.
    Float(Vex),
    /// `fma` of `.f32`.
    Fma,
    /// The square root of `.f32`.
    SquareRoot,
    /// `1 / a` of `.f32`.
    Reciprocal,
    /// The lesser or the greater of two numbers of `.f32`.
    Extremum { least: bool },
    /// Each bit but these is kept: `a & bits`.
    Keep(u32),
    /// `a ^ bits`.
    Flip(u32),
    /// `0 - a`.
    Negate,
    /// `a * b + c` of words.
    MultiplyAdd,
    /// The product of words as a long, plus a long.
    Wide { signed: bool, add: bool },
    /// A shift of longs by a word.
    ShiftLong(Vex),
    /// A comparison of numbers of `.f32`: the code of the instruction.
    CompareFloat(u8),
    /// A comparison of integers.
    Compare { relation: Comparison, signed: bool, long: bool },
    /// One of two by a predicate.
    Select { long: bool },
    /// A word as a long.
    Extend { signed: bool },
    /// The lower half of a long.
    Truncate,
    /// A signed word as a number.
    ToFloat,
}

impl Kind {
    /// Whether the sources are numbers of which only the value counts, so that one NaN is as good
    /// as another.
    pub(crate) fn takes_numbers(self) -> bool {
        use Kind::*;
        matches!(self, Float(_) | Fma | SquareRoot | Reciprocal | Extremum { .. } | CompareFloat(_))
    }

    /// Whether the result may be a NaN that is not PTX's.
    pub(crate) fn makes_nans(self) -> bool {
        self.takes_numbers() && !matches!(self, Kind::CompareFloat(_))
    }
}

/// Whether the generator knows the operation.
pub fn supports(meaning: &Meaning) -> bool {
    kind(meaning).is_some()
}

/// Returns the way in which an operation is generated; `None` if the generator does not know it.
pub(crate) fn kind(meaning: &Meaning) -> Option<Kind> {
    use ScalarType::{B32, B64, F32, F64, Pred, S32, S64, U32, U64};
    let rounding = meaning.modifiers.rounding;
    let plain = Modifiers { rounding, ..Modifiers::default() } == meaning.modifiers;
    if !plain || !matches!(rounding, None | Some(Rounding::Nearest)) {
        return None;
    }
    match (meaning.op, meaning.ty) {
        (Op::Move, _) => Some(Kind::Copy),
        (Op::Select, U32 | S32 | B32 | F32) => Some(Kind::Select { long: false }),
        (Op::Select, U64 | S64 | B64 | F64) => Some(Kind::Select { long: true }),
        (Op::Convert { to, finite: false }, from) => convert(from, to, rounding),
        (Op::Compare { relation, logic: None, truth: Pred }, ty) => compare(relation, ty),
        (_, F32) => single(meaning.op),
        (_, Pred) => bits(meaning.op),
        (_, U32 | S32 | B32) => word(meaning.op, meaning.ty),
        (_, U64 | S64 | B64) => long(meaning.op, meaning.ty),
        _ => None,
    }
}

fn single(operation: Op) -> Option<Kind> {
    Some(match operation {
        Op::Add => Kind::Float(op::ADDPS),
        Op::Subtract => Kind::Float(op::SUBPS),
        Op::Multiply(Part::Low) => Kind::Float(op::MULPS),
        Op::MultiplyAdd(Part::Low) => Kind::Fma,
        Op::Divide => Kind::Float(op::DIVPS),
        Op::SquareRoot => Kind::SquareRoot,
        Op::Reciprocal => Kind::Reciprocal,
        Op::Minimum => Kind::Extremum { least: true },
        Op::Maximum => Kind::Extremum { least: false },
        Op::Absolute => Kind::Keep(0x7fff_ffff),
        Op::Negate => Kind::Flip(0x8000_0000),
        _ => return None,
    })
}

fn bits(operation: Op) -> Option<Kind> {
    Some(match operation {
        Op::And => Kind::Simple(op::PAND),
        Op::Or => Kind::Simple(op::POR),
        Op::Xor => Kind::Simple(op::PXOR),
        Op::Not => Kind::Flip(u32::MAX),
        _ => return None,
    })
}

fn word(operation: Op, ty: ScalarType) -> Option<Kind> {
    let signed = ty == ScalarType::S32;
    Some(match operation {
        Op::Add => Kind::Simple(op::PADDD),
        Op::Subtract => Kind::Simple(op::PSUBD),
        Op::Multiply(Part::Low) => Kind::Simple(op::PMULLD),
        Op::Multiply(Part::Wide) => Kind::Wide { signed, add: false },
        Op::MultiplyAdd(Part::Low) => Kind::MultiplyAdd,
        Op::MultiplyAdd(Part::Wide) => Kind::Wide { signed, add: true },
        Op::Minimum => Kind::Simple(if signed { op::PMINSD } else { op::PMINUD }),
        Op::Maximum => Kind::Simple(if signed { op::PMAXSD } else { op::PMAXUD }),
        Op::ShiftLeft => Kind::Simple(op::PSLLVD),
        Op::ShiftRight => Kind::Simple(if signed { op::PSRAVD } else { op::PSRLVD }),
        Op::Negate => Kind::Negate,
        _ => return bits(operation),
    })
}

fn long(operation: Op, ty: ScalarType) -> Option<Kind> {
    Some(match operation {
        Op::Add => Kind::Simple(op::PADDQ),
        Op::Subtract => Kind::Simple(op::PSUBQ),
        Op::ShiftLeft => Kind::ShiftLong(op::PSLLVQ),
        Op::ShiftRight if ty != ScalarType::S64 => Kind::ShiftLong(op::PSRLVQ),
        _ => return bits(operation),
    })
}

fn convert(from: ScalarType, to: ScalarType, rounding: Option<Rounding>) -> Option<Kind> {
    use ScalarType::{B32, B64, F32, S32, S64, U32, U64};
    Some(match (from, to) {
        (S32, F32) => Kind::ToFloat,
        _ if rounding.is_some() => return None,
        (U32 | S32 | B32, U32 | S32 | B32) | (U64 | S64 | B64, U64 | S64 | B64) => Kind::Copy,
        (U32 | B32, U64 | S64 | B64) => Kind::Extend { signed: false },
        (S32, U64 | S64 | B64) => Kind::Extend { signed: true },
        (U64 | S64 | B64, U32 | S32 | B32) => Kind::Truncate,
        _ => return None,
    })
}

fn compare(relation: Comparison, ty: ScalarType) -> Option<Kind> {
    use Comparison::*;
    use ScalarType::{B32, B64, F32, S32, S64, U32, U64};
    let ordered = matches!(relation, Equal | NotEqual | Less | LessEqual | Greater | GreaterEqual);
    Some(match ty {
        F32 => Kind::CompareFloat(match relation {
            Equal => 0x00,
            Less => 0x11,
            LessEqual => 0x12,
            Nan => 0x03,
            UnorderedNotEqual => 0x04,
            UnorderedGreaterEqual => 0x15,
            UnorderedGreater => 0x16,
            Number => 0x07,
            UnorderedEqual => 0x08,
            UnorderedLess => 0x19,
            UnorderedLessEqual => 0x1a,
            NotEqual => 0x0c,
            GreaterEqual => 0x1d,
            Greater => 0x1e,
        }),
        _ if !ordered => return None,
        U32 | B32 => Kind::Compare { relation, signed: false, long: false },
        S32 => Kind::Compare { relation, signed: true, long: false },
        U64 | B64 => Kind::Compare { relation, signed: false, long: true },
        S64 => Kind::Compare { relation, signed: true, long: true },
        _ => return None,
    })
}
