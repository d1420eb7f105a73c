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
    /// `fma` of `.f32` in another direction: what the control register of the vector unit is to be.
    FmaDirected(u32),
    /// One instruction on each half or word, with one source.
    Unary(Vex),
    /// A whole number of `.f32`: the instruction's direction.
    Round(u8),
    /// The same of `.f64`.
    RoundDouble(u8),
    /// `.sat`: a number of `.f32` in [0, 1].
    Saturate,
    /// `fma` of `.f64`.
    FmaDouble,
    /// `1 / a` of `.f64`.
    ReciprocalDouble,
    /// The lesser or the greater of two numbers of `.f64`.
    ExtremumDouble { least: bool },
    /// The square root of `.f32`.
    SquareRoot,
    /// `1 / sqrt(a)` of `.f32`, approximated.
    ReciprocalRoot,
    /// `2^a` of `.f32`, approximated; whether subnormal results become 0.
    PowerOfTwo { flushes: bool },
    /// `a / b` of `.f32`, approximated.
    DivideApproximately,
    /// `1 / a` of `.f32`.
    Reciprocal,
    /// The lesser or the greater of two numbers of `.f32`.
    Extremum { least: bool },
    /// Each bit but these is kept: `a & bits`, of words or of the halves of longs.
    Keep([u32; 2]),
    /// `a ^ bits`, likewise.
    Flip([u32; 2]),
    /// `0 - a`: the subtraction.
    Negate(Vex),
    /// The upper half of the product of words.
    MultiplyHigh { signed: bool },
    /// `a * b` of longs, plus a third.
    MultiplyLong { add: bool },
    /// The lesser or the greater of two longs.
    ExtremumLong { least: bool, signed: bool },
    /// A shift of longs by a word to the right, with the sign.
    ShiftRightLong,
    /// A word of two, shifted by a word modulo 32.
    Funnel { left: bool },
    /// The quotient of words, or the remainder.
    Divide { signed: bool, remainder: bool },
    /// A word cut to some bits and extended by its sign or not, twice.
    Resize([(u8, bool); 2]),
    /// `a * b + c` of words.
    MultiplyAdd,
    /// The product of words as a long, plus a long.
    Wide { signed: bool, add: bool },
    /// A shift of longs by a word.
    ShiftLong(Vex),
    /// A comparison of numbers of `.f32`: the code of the instruction.
    CompareFloat(u8),
    /// The same of `.f64`.
    CompareDouble(u8),
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
    /// A word without a sign as a number.
    UnsignedToFloat,
    /// A word as a number of `.f64`.
    ToDouble { signed: bool },
    /// `.f32` as `.f64`.
    Widen,
    /// `.f64` as `.f32`.
    Narrow,
    /// A number of `.f32` as a word: the direction of rounding.
    ToWord { direction: u8, signed: bool },
    /// A number of `.f64` as a signed word.
    DoubleToWord(u8),
    /// `.f16` as `.f32`.
    HalfToSingle,
    /// `.f32` as `.f16`, to nearest even.
    SingleToHalf,
    /// An integer of one or two bytes as a number.
    NarrowToFloat { bytes: u8, signed: bool },
    /// One instruction on integers of two bytes, extended to words.
    Short { vex: Vex, signed: bool, second: Second },
    /// A comparison of these.
    CompareShort { relation: Comparison, signed: bool },
}

/// What the second source of an operation on integers of two bytes is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Second {
    /// Another of them.
    Short,
    /// A word.
    Word,
    /// Another of them; the result is a word.
    Widening,
}

impl Kind {
    /// Whether the sources are numbers of which only the value counts, so that one NaN is as good
    /// as another.
    pub(crate) fn takes_numbers(self) -> bool {
        use Kind::*;
        self.makes_nans() && !matches!(self, Narrow | HalfToSingle)
            || matches!(self, CompareFloat(_) | ToWord { .. } | Saturate | SingleToHalf)
    }

    /// Whether the result may be a NaN that is not PTX's.
    pub(crate) fn makes_nans(self) -> bool {
        use Kind::*;
        matches!(self, Float(_) | Fma | FmaDirected(_) | Round(_) | SquareRoot | Reciprocal | Extremum { .. })
            || matches!(
                self,
                ReciprocalRoot | PowerOfTwo { .. } | DivideApproximately | Narrow | HalfToSingle
            )
    }
}

/// Whether the generator knows the operation.
pub fn supports(meaning: &Meaning) -> bool {
    kind(meaning).is_some()
}

/// Returns the way in which an operation is generated; `None` if the generator does not know it.
pub(crate) fn kind(meaning: &Meaning) -> Option<Kind> {
    use ScalarType::{B16, B32, B64, F32, F64, Pred, S16, S32, S64, U16, U32, U64};
    let Modifiers { rounding, approximate, flushes, saturates, .. } = meaning.modifiers;
    let known = Modifiers { rounding, approximate, flushes, saturates, ..Modifiers::default() };
    if known != meaning.modifiers {
        return None;
    }
    match (meaning.op, meaning.ty) {
        (Op::Convert { to: F32, finite: false }, F32) if saturates && !flushes && rounding.is_none() => {
            return Some(Kind::Saturate);
        }
        (Op::PowerOfTwo, F32) if !saturates => return Some(Kind::PowerOfTwo { flushes }),
        _ if flushes || saturates => return None,
        (Op::MultiplyAdd(Part::Low), F32) => return fused(rounding),
        (Op::Convert { to, finite: false }, from) => return convert(from, to, rounding),
        _ if !matches!(rounding, None | Some(Rounding::Nearest)) => return None,
        (Op::Divide, F32) if approximate => return Some(Kind::DivideApproximately),
        (Op::ReciprocalSquareRoot, F32) => return Some(Kind::ReciprocalRoot),
        // The approximations are the nearest numbers.
        _ if approximate && !matches!((meaning.op, meaning.ty), (Op::SquareRoot | Op::Reciprocal, F32)) => {
            return None;
        }
        _ => {}
    }
    match (meaning.op, meaning.ty) {
        (Op::Move, _) => Some(Kind::Copy),
        (Op::Select, U32 | S32 | B32 | F32 | U16 | S16 | B16) => Some(Kind::Select { long: false }),
        (Op::Select, U64 | S64 | B64 | F64) => Some(Kind::Select { long: true }),
        (Op::Compare { relation, logic: None, truth: Pred }, ty) => compare(relation, ty),
        (_, F32) => single(meaning.op),
        (_, F64) => double(meaning.op),
        (_, Pred) => bits(meaning.op),
        (_, U32 | S32 | B32) => word(meaning.op, meaning.ty),
        (_, U64 | S64 | B64) => long(meaning.op, meaning.ty),
        (_, U16 | S16 | B16) => short(meaning.op, meaning.ty == S16),
        _ => None,
    }
}

/// `fma` of `.f32`.
fn fused(rounding: Option<Rounding>) -> Option<Kind> {
    // All exceptions masked, and the direction.
    let control = |direction: u32| Some(Kind::FmaDirected(0x1f80 | direction << 13));
    match rounding {
        None | Some(Rounding::Nearest) => Some(Kind::Fma),
        Some(Rounding::Down) => control(1),
        Some(Rounding::Up) => control(2),
        Some(Rounding::Zero) => control(3),
        _ => None,
    }
}

fn single(operation: Op) -> Option<Kind> {
    Some(match operation {
        Op::Add => Kind::Float(op::ADDPS),
        Op::Subtract => Kind::Float(op::SUBPS),
        Op::Multiply(Part::Low) => Kind::Float(op::MULPS),
        Op::Divide => Kind::Float(op::DIVPS),
        Op::SquareRoot => Kind::SquareRoot,
        Op::Reciprocal => Kind::Reciprocal,
        Op::Minimum => Kind::Extremum { least: true },
        Op::Maximum => Kind::Extremum { least: false },
        Op::Absolute => Kind::Keep([0x7fff_ffff; 2]),
        Op::Negate => Kind::Flip([0x8000_0000; 2]),
        _ => return None,
    })
}

/// Numbers of `.f64` keep the NaN that a source is, so nothing has to be replaced.
fn double(operation: Op) -> Option<Kind> {
    Some(match operation {
        Op::Add => Kind::Simple(op::ADDPD),
        Op::Subtract => Kind::Simple(op::SUBPD),
        Op::Multiply(Part::Low) => Kind::Simple(op::MULPD),
        Op::MultiplyAdd(Part::Low) => Kind::FmaDouble,
        Op::Divide => Kind::Simple(op::DIVPD),
        Op::SquareRoot => Kind::Unary(op::SQRTPD),
        Op::Reciprocal => Kind::ReciprocalDouble,
        Op::Minimum => Kind::ExtremumDouble { least: true },
        Op::Maximum => Kind::ExtremumDouble { least: false },
        Op::Absolute => Kind::Keep([u32::MAX, 0x7fff_ffff]),
        Op::Negate => Kind::Flip([0, 0x8000_0000]),
        _ => return None,
    })
}

fn bits(operation: Op) -> Option<Kind> {
    Some(match operation {
        Op::And => Kind::Simple(op::PAND),
        Op::Or => Kind::Simple(op::POR),
        Op::Xor => Kind::Simple(op::PXOR),
        Op::Not => Kind::Flip([u32::MAX; 2]),
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
        Op::Negate => Kind::Negate(op::PSUBD),
        Op::Multiply(Part::High) => Kind::MultiplyHigh { signed },
        Op::Absolute if signed => Kind::Unary(op::PABSD),
        Op::Divide => Kind::Divide { signed, remainder: false },
        Op::Remainder => Kind::Divide { signed, remainder: true },
        Op::Funnel { left, wrap: true } => Kind::Funnel { left },
        _ => return bits(operation),
    })
}

/// Extended, integers of two bytes are signed words.
fn short(operation: Op, signed: bool) -> Option<Kind> {
    let (vex, second) = match operation {
        Op::Add => (op::PADDD, Second::Short),
        Op::Subtract => (op::PSUBD, Second::Short),
        Op::Multiply(Part::Low) => (op::PMULLD, Second::Short),
        Op::Multiply(Part::Wide) => (op::PMULLD, Second::Widening),
        Op::Minimum => (op::PMINSD, Second::Short),
        Op::Maximum => (op::PMAXSD, Second::Short),
        Op::And => (op::PAND, Second::Short),
        Op::Or => (op::POR, Second::Short),
        Op::Xor => (op::PXOR, Second::Short),
        Op::ShiftLeft => (op::PSLLVD, Second::Word),
        Op::ShiftRight if signed => (op::PSRAVD, Second::Word),
        Op::ShiftRight => (op::PSRLVD, Second::Word),
        _ => return None,
    };
    Some(Kind::Short { vex, signed, second })
}

fn long(operation: Op, ty: ScalarType) -> Option<Kind> {
    Some(match operation {
        Op::Add => Kind::Simple(op::PADDQ),
        Op::Subtract => Kind::Simple(op::PSUBQ),
        Op::ShiftLeft => Kind::ShiftLong(op::PSLLVQ),
        Op::ShiftRight if ty == ScalarType::S64 => Kind::ShiftRightLong,
        Op::ShiftRight => Kind::ShiftLong(op::PSRLVQ),
        Op::Multiply(Part::Low) => Kind::MultiplyLong { add: false },
        Op::MultiplyAdd(Part::Low) => Kind::MultiplyLong { add: true },
        Op::Minimum => Kind::ExtremumLong { least: true, signed: ty == ScalarType::S64 },
        Op::Maximum => Kind::ExtremumLong { least: false, signed: ty == ScalarType::S64 },
        Op::Negate => Kind::Negate(op::PSUBQ),
        _ => return bits(operation),
    })
}

/// The field of an instruction that rounds to whole numbers, if a conversion names one.
fn direction(rounding: Option<Rounding>) -> Option<u8> {
    match rounding? {
        Rounding::WholeNearest => Some(0),
        Rounding::WholeDown => Some(1),
        Rounding::WholeUp => Some(2),
        Rounding::WholeZero => Some(3),
        _ => None,
    }
}

fn convert(from: ScalarType, to: ScalarType, rounding: Option<Rounding>) -> Option<Kind> {
    use ScalarType::{B32, B64, F16, F32, F64, S8, S16, S32, S64, U8, U16, U32, U64};
    let nearest = rounding == Some(Rounding::Nearest);
    let whole = direction(rounding);
    Some(match (from, to) {
        (S32, F32) if nearest => Kind::ToFloat,
        (U32, F32) if nearest => Kind::UnsignedToFloat,
        (F64, F32) if nearest => Kind::Narrow,
        (F32, F16) if nearest => Kind::SingleToHalf,
        (U8 | S8 | U16 | S16, F32) if nearest => {
            Kind::NarrowToFloat { bytes: from.bytes() as u8, signed: from.is_signed() }
        }
        (F32, S32 | U32) => Kind::ToWord { direction: whole?, signed: to == S32 },
        (F64, S32) => Kind::DoubleToWord(whole?),
        (F32, F32) => Kind::Round(whole?),
        (F64, F64) => Kind::RoundDouble(whole?),
        (S32 | U32, F64) if rounding.is_none() || nearest => Kind::ToDouble { signed: from == S32 },
        _ if rounding.is_some() => return None,
        (F32, F64) => Kind::Widen,
        (F16, F32) => Kind::HalfToSingle,
        (U32 | S32 | B32, U32 | S32 | B32) | (U64 | S64 | B64, U64 | S64 | B64) => Kind::Copy,
        (U32 | B32, U64 | S64 | B64) => Kind::Extend { signed: false },
        (S32, U64 | S64 | B64) => Kind::Extend { signed: true },
        (U64 | S64 | B64, U32 | S32 | B32) => Kind::Truncate,
        _ => Kind::Resize([small(from)?, small(to)?]),
    })
}

/// The bits of an integer of at most 32 bits, and whether it has a sign.
fn small(ty: ScalarType) -> Option<(u8, bool)> {
    use ScalarType::{S8, S16, S32, U8, U16, U32};
    matches!(ty, U8 | U16 | U32 | S8 | S16 | S32).then(|| (8 * ty.bytes() as u8, ty.is_signed()))
}

fn compare(relation: Comparison, ty: ScalarType) -> Option<Kind> {
    use Comparison::*;
    use ScalarType::{B16, B32, B64, F32, F64, S16, S32, S64, U16, U32, U64};
    let ordered = matches!(relation, Equal | NotEqual | Less | LessEqual | Greater | GreaterEqual);
    let code = match relation {
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
    };
    Some(match ty {
        F32 => Kind::CompareFloat(code),
        F64 => Kind::CompareDouble(code),
        _ if !ordered => return None,
        U16 | B16 => Kind::CompareShort { relation, signed: false },
        S16 => Kind::CompareShort { relation, signed: true },
        U32 | B32 => Kind::Compare { relation, signed: false, long: false },
        S32 => Kind::Compare { relation, signed: true, long: false },
        U64 | B64 => Kind::Compare { relation, signed: false, long: true },
        S64 => Kind::Compare { relation, signed: true, long: true },
        _ => return None,
    })
}
