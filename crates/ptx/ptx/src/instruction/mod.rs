//! Typed facts about instructions, from the table of [forms](crate::forms).
//!
//! [`Operation::of`] decodes a mnemonic: opcode, types, the modifiers that other layers ask for.
//! [`Operations`] decodes each mnemonic of a function once. With the operands of a [`Line`] an
//! operation tells what is read, written and accessed.
//!
//! # Rules
//!
//! 1. *Everything is decoded.* A mnemonic that the table does not have has no opcode, or an opcode
//!    and the modifiers that are known; it reads its operands but the first, which it writes.
//!    Whether it is an instruction is for [`verify`](mod@crate::verify).
//! 2. *Modifiers are a set* but for types, state spaces and layouts: the order of `.global` and
//!    `.relaxed` says nothing. Types keep their order: the last is that of the elements in memory,
//!    or of the source of a conversion.
//! 3. *The first operand is written, or none is*, as the table of forms says; `d|p` and `{a, b}` in
//!    its place are written as a whole. All other operands are read. An address is read wherever it
//!    stands.
//! 4. *A guarded write keeps the old value* in threads whose guard is false: the register is read
//!    as well.
//! 5. *Calls* read and write what stands in their lists. What the callee does to memory is not
//!    known here.
//! 6. *[`Class`] is the one taxonomy* of instructions: each has exactly one.

mod access;
mod class;
mod effect;
mod modifier;
mod opcode;
mod operation;

use std::collections::HashMap;

pub use access::{Access, Shape, accesses};
pub use apex_counts::Direction;
pub use class::{Class, counted_class};
pub use effect::{Carry, Control, Synchronization};
pub use modifier::{
    Atomic, Cache, Comparison, Flag, Flags, Geometry, Layout, Letter, Limit, Logic, Order, Part, Permutation,
    Phase, Property, Query, Rounding, Scope, Shuffle, Vote,
};
pub use opcode::Opcode;
pub use operation::Operation;

use crate::body::{Body, Line, Operand, RegisterId};

/// The operations of a function's listing, by [`InstructionId`](crate::body::InstructionId).
#[derive(Clone, Debug)]
pub struct Operations(Vec<Operation>);

impl Operations {
    /// Decodes each mnemonic of a listing once.
    pub fn of(body: &Body<'_>) -> Operations {
        let mut known: HashMap<&str, Operation> = HashMap::new();
        let mut operations = Vec::with_capacity(body.lines.len());
        for line in &body.lines {
            let mnemonic = &line.instruction.mnemonic;
            operations.push(*known.entry(mnemonic.text()).or_insert_with(|| Operation::of(mnemonic)));
        }
        Operations(operations)
    }
}

impl std::ops::Deref for Operations {
    type Target = [Operation];
    fn deref(&self) -> &[Operation] {
        &self.0
    }
}

impl Operation {
    /// The operand that the instruction writes, and those that it reads.
    pub fn split<'o, 'm>(&self, operands: &'o [Operand<'m>]) -> (Option<&'o Operand<'m>>, &'o [Operand<'m>]) {
        match operands.split_first() {
            // The results of a call stand before the function.
            Some((first @ Operand::List(_), rest)) => (Some(first), rest),
            Some((first, rest))
                if self.writes_first
                    && self.opcode != Some(Opcode::Call)
                    && !matches!(first, Operand::Address(_)) =>
            {
                (Some(first), rest)
            }
            _ => (None, operands),
        }
    }

    /// Calls `visit` for each register that the instruction writes.
    pub fn writes<'m>(&self, line: &Line<'m>, body: &Body<'m>, visit: &mut impl FnMut(RegisterId)) {
        if let (Some(result), _) = self.split(&line.operands) {
            result.registers(body, visit);
        }
    }

    /// Calls `visit` for each register that the instruction reads: operands, addresses, the guard,
    /// and under a guard what it writes.
    pub fn reads<'m>(&self, line: &Line<'m>, body: &Body<'m>, visit: &mut impl FnMut(RegisterId)) {
        if let Some(guard) = line.guard {
            guard.symbol.register().into_iter().for_each(&mut *visit);
            self.writes(line, body, visit);
        }
        let (_, operands) = self.split(&line.operands);
        operands.iter().for_each(|operand| operand.registers(body, visit));
    }
}
