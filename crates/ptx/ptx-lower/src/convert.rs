//! Decodes conversions.

use ptx::ScalarType;
use ptx::instruction::{Flag, Operation, Rounding};

use crate::{Meaning, Modifiers, Op};

/// Decodes `cvt`, but for stochastic rounding.
pub(crate) fn decode(operation: &mut Operation) -> Option<Meaning> {
    if operation.rounding == Some(Rounding::Stochastic) {
        return None;
    }
    if operation.take(Flag::Pack) {
        return pack(operation);
    }
    let modifiers = Modifiers {
        rounding: operation.rounding.take(),
        saturates: operation.take(Flag::Saturate),
        rectifies: operation.take(Flag::Rectified),
        flushes: operation.take(Flag::FlushToZero),
        ..Modifiers::default()
    };
    let finite = operation.take(Flag::SaturateFinite);
    let (to, from) = (operation.take_type()?, operation.take_type()?);
    Some(Meaning { op: Op::Convert { to, finite }, ty: from, modifiers })
}

/// Decodes `cvt.pack`.
fn pack(operation: &mut Operation) -> Option<Meaning> {
    use ScalarType::*;
    let saturates = operation.take(Flag::Saturate);
    let (width, signed) = match operation.take_one(&[Flag::Unsigned2, Flag::Signed2]) {
        Some(narrow) => (2, narrow == Flag::Signed2),
        None => match operation.take_type()? {
            narrow @ (U4 | S4) => (4, narrow.is_signed()),
            narrow @ (U8 | S8) => (8, narrow.is_signed()),
            narrow @ (U16 | S16) => (16, narrow.is_signed()),
            _ => return None,
        },
    };
    let (from, rest) = (operation.take_type()?, operation.take_type());
    let is_whole = saturates && from == S32 && rest == (width < 16).then_some(B32);
    is_whole.then_some(Meaning::plain(Op::PackIntegers { width, signed }, from))
}

/// The type of which a pair that is converted is made.
pub fn element(pair: ScalarType) -> Option<ScalarType> {
    use ScalarType::*;
    Some(match pair {
        F16x2 => F16,
        Bf16x2 => Bf16,
        E4m3x2 => E4m3,
        E5m2x2 => E5m2,
        _ => return None,
    })
}
