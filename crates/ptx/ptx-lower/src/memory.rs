//! Decodes loads, stores and atomic operations.
//!
//! Where they access, [`ptx::instruction::accesses`] tells.

use ptx::instruction::{Atomic, Cache, Direction, Flag, Opcode, Operation};
use ptx::{ScalarType, StateSpace};

/// The data that a load, a store or an atomic operation moves, and how it is ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The direction.
    pub direction: Direction,
    /// The operation on the old value, of an atomic operation.
    pub atomic: Option<Atomic>,
    /// The space; none for generic addresses.
    pub space: Option<StateSpace>,
    /// The type of an element.
    pub ty: ScalarType,
    /// Elements of a thread, one after the other.
    pub length: usize,
    /// Whether other threads see it in an order: whether it is strong, in the words of PTX.
    pub is_strong: bool,
    /// Whether a cache operator says that other multiprocessors access the same memory meanwhile.
    pub is_shared: bool,
}

impl Memory {
    /// Decodes `ld`, `ldu`, `st`, `atom` or `red`, and takes the modifiers that its meaning tells
    /// out of the operation. `None` if it is another instruction, or names no type or no atomic
    /// operation.
    pub fn of(operation: &mut Operation) -> Option<Memory> {
        let direction = match operation.opcode? {
            Opcode::Ld | Opcode::Ldu => Direction::Load,
            Opcode::St => Direction::Store,
            Opcode::Atom | Opcode::Red => Direction::Atomic,
            _ => return None,
        };
        let is_atomic = direction == Direction::Atomic;
        let atomic = if is_atomic { Some(operation.atomic.take()?) } else { None };
        if is_atomic {
            operation.take(Flag::NoFlush);
        }
        Some(Memory {
            direction,
            atomic,
            space: operation.take_space(),
            length: operation.vector.take().unwrap_or(1).into(),
            is_strong: take_order(operation),
            is_shared: take_cache_hints(operation),
            ty: operation.take_type()?,
        })
    }

    /// Bytes that a thread moves.
    pub fn bytes(&self) -> u64 {
        self.length as u64 * self.ty.bytes()
    }

    /// Whether all elements are moved at once.
    pub fn is_indivisible(&self) -> bool {
        self.is_strong || self.is_shared && self.length > 1
    }
}

/// Takes the modifiers that say how an access is ordered; whether it is a strong one.
pub fn take_order(operation: &mut Operation) -> bool {
    let is_strong = operation.is_strong();
    operation.order.take();
    operation.scope.take();
    operation.take(Flag::MemoryMapped);
    is_strong
}

/// Takes the cache hints; whether they say that other multiprocessors read or write the same
/// memory.
pub fn take_cache_hints(operation: &mut Operation) -> bool {
    operation.take(Flag::NonCoherent);
    operation.take(Flag::CacheHint);
    operation.take(Flag::CachePriority);
    matches!(operation.cache.take(), Some(Cache::Global | Cache::Volatile | Cache::WriteThrough))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ptx::Mnemonic;

    fn memory(mnemonic: &str) -> Option<Memory> {
        let mut operation = Operation::of(&Mnemonic::new(mnemonic.into()));
        Memory::of(&mut operation).filter(|_| operation.is_spent())
    }

    #[test]
    fn order_and_caches_are_part_of_the_meaning() {
        let plain = memory("ld.global.nc.v4.f32").unwrap();
        assert_eq!((plain.bytes(), plain.is_strong, plain.is_indivisible()), (16, false, false));
        assert!(memory("st.volatile.shared.u32").unwrap().is_strong);
        assert!(memory("ld.global.cg.v2.u64").unwrap().is_indivisible());
        assert!(!memory("ld.global.cg.u64").unwrap().is_indivisible());
        let added = memory("red.relaxed.gpu.global.add.noftz.f16x2").unwrap();
        assert_eq!((added.direction, added.atomic), (Direction::Atomic, Some(Atomic::Add)));
        for other in ["atom.global.u32", "ld.global", "mov.b32", "cp.async.ca.shared.global"] {
            assert_eq!(memory(other), None, "{other}");
        }
    }
}
