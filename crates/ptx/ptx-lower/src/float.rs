//! Decodes floating-point arithmetic.

use ptx::ScalarType;
use ptx::instruction::{Flag, Opcode, Operation, Part, Rounding};

use crate::{Meaning, Modifiers, Op};

/// Decodes an instruction with `sources` sources whose first type is a floating-point one.
pub(crate) fn decode(operation: &mut Operation, sources: usize) -> Option<Meaning> {
    use Opcode::*;
    let op = match operation.opcode? {
        Add => Op::Add,
        Sub => Op::Subtract,
        Mul => Op::Multiply(Part::Low),
        Fma | Mad => Op::MultiplyAdd(Part::Low),
        Div => Op::Divide,
        Sqrt => Op::SquareRoot,
        Rcp => Op::Reciprocal,
        Rsqrt => Op::ReciprocalSquareRoot,
        Sin => Op::Sine,
        Cos => Op::Cosine,
        Lg2 => Op::Logarithm,
        Ex2 => Op::PowerOfTwo,
        Tanh => Op::HyperbolicTangent,
        Min if sources == 3 => Op::MinimumOfThree,
        Max if sources == 3 => Op::MaximumOfThree,
        Min => Op::Minimum,
        Max => Op::Maximum,
        Abs => Op::Absolute,
        Neg => Op::Negate,
        Copysign => Op::CopySign,
        Testp => Op::Test(operation.property.take()?),
        _ => return None,
    };
    let mut modifiers = modifiers(operation, op);
    let ty = operation.take_type()?;
    let narrow = operation.types().first().copied();
    if let (ScalarType::F32, Some(ScalarType::F16 | ScalarType::Bf16)) = (ty, narrow) {
        modifiers.narrow = operation.take_type();
    }
    Some(Meaning { op, ty, modifiers })
}

/// Takes the modifiers that an operation has.
fn modifiers(operation: &mut Operation, op: Op) -> Modifiers {
    let two = matches!(op, Op::Minimum | Op::Maximum);
    let three = matches!(op, Op::MinimumOfThree | Op::MaximumOfThree);
    // The bound of `.full` is two units in the last place.
    operation.take(Flag::Full);
    let xor_sign = two && operation.take(Flag::XorSign);
    let magnitudes = (xor_sign || three) && operation.take(Flag::Absolute);
    Modifiers {
        rounding: take_direction(operation),
        saturates: operation.take(Flag::Saturate),
        rectifies: matches!(op, Op::MultiplyAdd(_)) && operation.take(Flag::Rectified),
        flushes: operation.take(Flag::FlushToZero),
        approximate: operation.take(Flag::Approximate),
        nan: (two || three) && operation.take(Flag::PropagateNan),
        xor_sign,
        magnitudes,
        narrow: None,
    }
}

/// Takes `.rn`, `.rz`, `.rm` or `.rp`; another rounding is left.
pub fn take_direction(operation: &mut Operation) -> Option<Rounding> {
    use Rounding::{Down, Nearest, Up, Zero};
    let named = operation.rounding.filter(|rounding| matches!(rounding, Nearest | Zero | Down | Up))?;
    operation.rounding = None;
    Some(named)
}
