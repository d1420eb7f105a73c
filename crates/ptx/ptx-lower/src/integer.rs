//! Decodes integer arithmetic.

use ptx::ScalarType;
use ptx::instruction::{Flag, Opcode, Operation, Part};

use crate::{Meaning, Modifiers, Op};

/// Decodes an instruction on integers.
pub(crate) fn decode(operation: &mut Operation) -> Option<Meaning> {
    use Opcode::*;
    let opcode = operation.opcode?;
    if matches!(opcode, Dp4a | Dp2a) {
        return dot(operation);
    }
    let has_parts = matches!(opcode, Mul | Mad | Clmad | Mul24 | Mad24);
    let part = if has_parts { operation.part.take() } else { None };
    let op = match opcode {
        Add => Op::Add,
        Sub => Op::Subtract,
        Mul => Op::Multiply(part?),
        Mad => Op::MultiplyAdd(part?),
        Mul24 => Op::Multiply24(part?),
        Mad24 => Op::MultiplyAdd24(part?),
        Clmad => Op::CarrylessMultiplyAdd(part?),
        Sad => Op::SumOfDifferences,
        Div => Op::Divide,
        Rem => Op::Remainder,
        Abs => Op::Absolute,
        Neg => Op::Negate,
        Min => Op::Minimum,
        Max => Op::Maximum,
        _ => return None,
    };
    let modifiers = Modifiers {
        saturates: operation.take(Flag::Saturate),
        rectifies: operation.take(Flag::Rectified),
        ..Modifiers::default()
    };
    Some(Meaning { op, ty: operation.take_type()?, modifiers })
}

/// `dp4a` and `dp2a`.
fn dot(operation: &mut Operation) -> Option<Meaning> {
    let high = operation.part.take();
    let (a, b) = (operation.take_type()?, operation.take_type()?);
    if ![a, b].iter().all(|ty| matches!(ty, ScalarType::U32 | ScalarType::S32)) {
        return None;
    }
    let signed = [a, b].map(ScalarType::is_signed);
    let op = match operation.opcode {
        Some(Opcode::Dp4a) => Op::DotBytes(signed),
        _ => Op::DotHalves { signed, high: high? == Part::High },
    };
    Some(Meaning::plain(op, a))
}
