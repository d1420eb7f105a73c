//! What asynchronous copies with an operation make of the element at the destination and the one
//! that arrives. Elements are the low bits of a number of 64 bits.

use ptx::ScalarType;
use ptx::instruction::Atomic;

use crate::arithmetic::half_numbers::{add_bf16, add_f16, least_bf16, least_f16, most_bf16, most_f16};
use crate::arithmetic::numbers::add_f32;

/// From the old element and the one that arrives to the new one.
pub(crate) type Combine = fn(u64, u64) -> u64;

/// The bytes of an element and what is made of two, if the operation exists on the type.
pub(crate) fn of(operation: Atomic, ty: ScalarType) -> Option<(usize, Combine)> {
    use Atomic::{Add, And, Decrement, Increment, Maximum, Minimum, Or, Xor};
    use ScalarType::{B32, B64, Bf16, F16, F32, F64, S32, S64, U32, U64};
    let combine: Combine = match (operation, ty) {
        (Add, U32 | S32 | U64 | S64) => u64::wrapping_add,
        (Add, F16) => |old, new| add_f16(old as u16, new as u16).into(),
        (Add, Bf16) => |old, new| add_bf16(old as u16, new as u16).into(),
        // Unlike those of `red`, subnormal numbers are kept, as an H200 does.
        (Add, F32) => |old, new| add_f32(old as u32, new as u32).into(),
        (Add, F64) => |old, new| (f64::from_bits(old) + f64::from_bits(new)).to_bits(),
        (Minimum, U32 | U64) => u64::min,
        (Maximum, U32 | U64) => u64::max,
        (Minimum, S32) => |old, new| (old as i32).min(new as i32) as u64,
        (Maximum, S32) => |old, new| (old as i32).max(new as i32) as u64,
        (Minimum, S64) => |old, new| (old as i64).min(new as i64) as u64,
        (Maximum, S64) => |old, new| (old as i64).max(new as i64) as u64,
        (Minimum, F16) => |old, new| least_f16(old as u16, new as u16).into(),
        (Maximum, F16) => |old, new| most_f16(old as u16, new as u16).into(),
        (Minimum, Bf16) => |old, new| least_bf16(old as u16, new as u16).into(),
        (Maximum, Bf16) => |old, new| most_bf16(old as u16, new as u16).into(),
        (Increment, U32) => |old, new| if old >= new { 0 } else { old + 1 },
        (Decrement, U32) => |old, new| if old == 0 || old > new { new } else { old - 1 },
        (And, B32 | U32 | S32 | B64 | U64 | S64) => |old, new| old & new,
        (Or, B32 | U32 | S32 | B64 | U64 | S64) => |old, new| old | new,
        (Xor, B32 | U32 | S32 | B64 | U64 | S64) => |old, new| old ^ new,
        _ => return None,
    };
    Some((ty.bytes() as usize, combine))
}

const OPERATIONS: [Atomic; 8] = [
    Atomic::Add,
    Atomic::Minimum,
    Atomic::Maximum,
    Atomic::Increment,
    Atomic::Decrement,
    Atomic::And,
    Atomic::Or,
    Atomic::Xor,
];

const TYPES: [ScalarType; 10] = [
    ScalarType::B32,
    ScalarType::U32,
    ScalarType::S32,
    ScalarType::B64,
    ScalarType::U64,
    ScalarType::S64,
    ScalarType::F16,
    ScalarType::Bf16,
    ScalarType::F32,
    ScalarType::F64,
];

/// The number of an operation, not 0, below 16.
pub(crate) fn number_of(operation: Atomic) -> Option<u32> {
    OPERATIONS.iter().position(|each| *each == operation).map(|index| index as u32 + 1)
}

/// The number of an operation on a type, not 0, below 256.
pub(crate) fn number_on(operation: Atomic, ty: ScalarType) -> Option<u32> {
    let ty = TYPES.iter().position(|each| *each == ty)? as u32;
    number_of(operation).map(|operation| operation | ty << 4)
}

/// The operation with this number.
pub(crate) fn operation(number: u32) -> Option<Atomic> {
    OPERATIONS.get((number as usize & 15).checked_sub(1)?).copied()
}

/// What the operation with this number makes of two elements.
pub(crate) fn numbered(number: u32) -> Option<(usize, Combine)> {
    of(operation(number)?, *TYPES.get(number as usize >> 4)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_for_operations() {
        for operation in OPERATIONS {
            assert_eq!(super::operation(number_of(operation).unwrap()), Some(operation));
            for ty in TYPES {
                let found = numbered(number_on(operation, ty).unwrap());
                assert_eq!(found.map(|found| found.0), of(operation, ty).map(|found| found.0));
            }
        }
        assert!(operation(0).is_none() && numbered(0).is_none());
    }

    #[test]
    fn elements_are_numbers_of_their_type() {
        let on = |operation, ty, old, new| of(operation, ty).map(|(_, combine)| combine(old, new));
        let minus = 0xffff_ffff;
        assert_eq!(on(Atomic::Minimum, ScalarType::S32, minus, 1).map(|sum| sum as u32), Some(minus as u32));
        assert_eq!(on(Atomic::Minimum, ScalarType::U32, minus, 1), Some(1));
        assert_eq!(on(Atomic::Increment, ScalarType::U32, 7, 7), Some(0));
        assert_eq!(on(Atomic::Decrement, ScalarType::U32, 0, 7), Some(7));
        assert_eq!(on(Atomic::Add, ScalarType::F16, 0x3c00, 0x3c00), Some(0x4000));
        assert_eq!(on(Atomic::Add, ScalarType::B32, 1, 1), None);
    }
}
