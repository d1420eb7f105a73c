//! The memory accesses of an instruction.

use apex_counts::Direction;

use super::modifier::Flag;
use super::opcode::Opcode;
use super::operation::Operation;
use crate::body::{Address, Base, Operand};
use crate::syntax::tree::Constant;
use crate::syntax::types::{ScalarType, StateSpace};

/// The addresses that a warp accesses, given those in its lanes' registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// Each active lane accesses [`Access::bytes`] from its own address on.
    Lanes,
    /// Each of this number of first lanes names a row of 16 bytes, which all lanes share
    /// (`ldmatrix`, `stmatrix`).
    Rows(u32),
    /// All lanes name the first of several rows of equal size; the last operand is the stride in
    /// elements (`wmma`).
    Tile {
        /// Rows.
        rows: u32,
        /// Bytes of an element; a row has as many elements as there are rows.
        element: u32,
    },
    /// One thread moves a block of memory (`cp.async.bulk`).
    Bulk,
    /// Lanes name a surface and coordinates in it.
    Surface,
}

/// An access to memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Access<'m> {
    /// The space; none for generic addresses.
    pub space: Option<StateSpace>,
    /// The direction.
    pub direction: Direction,
    /// The start of the address.
    pub base: Base<'m>,
    /// Added to it, in bytes.
    pub offset: i64,
    /// Bytes that a lane moves; 0 where a register or a descriptor holds the size.
    pub bytes: u64,
    /// The type of an element.
    pub element: ScalarType,
    /// The addresses that the lanes access.
    pub shape: Shape,
}

/// Returns the accesses of an instruction, in the order of its operands: none, one, or the two of a
/// copy, of which the first is written.
pub fn accesses<'m>(operation: &Operation, operands: &[Operand<'m>]) -> Vec<Access<'m>> {
    use Direction::{Atomic, Load, Store};
    let Some(opcode) = operation.opcode else { return Vec::new() };
    let one = |direction| access(operation, operands, direction).into_iter().collect();
    match opcode {
        Opcode::Ld | Opcode::Ldu | Opcode::Ldmatrix => one(Load),
        Opcode::St | Opcode::Stmatrix => one(Store),
        Opcode::Atom | Opcode::Red => one(Atomic),
        Opcode::Wmma if operation.has(Flag::Load) => one(Load),
        Opcode::Wmma if operation.has(Flag::Store) => one(Store),
        Opcode::Suld => one(Load),
        Opcode::Sust => one(Store),
        Opcode::Cp => copy(operation, operands),
        _ => Vec::new(),
    }
}

fn access<'m>(operation: &Operation, operands: &[Operand<'m>], direction: Direction) -> Option<Access<'m>> {
    let (base, offset) = operands.iter().find_map(|operand| match operand {
        Operand::Address(address) => Some((address.base, address.offset)),
        other => other.place(),
    })?;
    let element = operation.types().last().copied().unwrap_or(ScalarType::B32);
    let vectors = operands.iter().filter_map(|operand| match operand {
        Operand::Vector(parts) => Some(parts.len()),
        _ => None,
    });
    let parts = vectors.max().unwrap_or(1) as u64;
    let (bytes, shape) = match operation.opcode {
        // A row of eight elements of two bytes for each eight lanes; each lane gets a word of each
        // matrix.
        Some(Opcode::Ldmatrix | Opcode::Stmatrix) => (4 * parts, Shape::Rows(8 * parts.min(4) as u32)),
        // Registers of a fragment hold pairs of narrow elements.
        Some(Opcode::Wmma) => {
            (element.bytes().max(4) * parts, Shape::Tile { rows: 16, element: element.bytes().max(1) as u32 })
        }
        Some(Opcode::Suld | Opcode::Sust) => (element.bytes() * parts, Shape::Surface),
        _ => (element.bytes() * parts, Shape::Lanes),
    };
    Some(Access { space: operation.space, direction, base, offset, bytes, element, shape })
}

/// `cp.async` and its like: to shared from global memory, or as the modifiers say.
fn copy<'m>(operation: &Operation, operands: &[Operand<'m>]) -> Vec<Access<'m>> {
    let [Operand::Address(to), Operand::Address(from), rest @ ..] = operands else { return Vec::new() };
    let bytes = match rest.first() {
        Some(Operand::Constant(Constant::Integer(bytes))) => u64::try_from(*bytes).unwrap_or(0),
        _ => 0,
    };
    let bulk = operation.has(Flag::Bulk);
    let shape = if bulk { Shape::Bulk } else { Shape::Lanes };
    // The first space that a bulk copy names is the one it writes.
    let into = if bulk { operation.space } else { Some(StateSpace::Shared) };
    let out_of = if into == Some(StateSpace::Global) { StateSpace::Shared } else { StateSpace::Global };
    let one = |space, direction, address: &Address<'m>| Access {
        space,
        direction,
        base: address.base,
        offset: address.offset,
        bytes,
        element: ScalarType::B32,
        shape,
    };
    vec![one(into, Direction::Store, to), one(Some(out_of), Direction::Load, from)]
}
