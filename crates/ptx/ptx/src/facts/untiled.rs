//! Matrix products out of global memory, without tiles.
//!
//! In a loop each thread multiplies two numbers that it loads from global memory. The row of block
//! and thread selects the first number, the column selects the second. So all threads of a row load
//! the same first numbers, and all threads of a column the same second ones. In the product of a
//! matrix and a vector one of the numbers is the same for all, and nothing is loaded again.

use super::{FactKind, Found, Listing, Parts, Place};
use crate::analysis::Atom;
use crate::body::{InstructionId, Operand};
use crate::instruction::{Class, Opcode};
use crate::syntax::StateSpace;

impl Listing<'_, '_> {
    pub(super) fn untiled(&self, found: &mut Found<'_>) {
        let mut parts = Parts::default();
        for (at, operation) in (0..).map(InstructionId).zip(self.operations.iter()) {
            let Some(index) = self.innermost[at.index()].filter(|_| operation.opcode == Some(Opcode::Fma))
            else {
                continue;
            };
            let line = &self.body.lines[at.index()];
            let Some([a, b]) = line.operands.get(1..3) else { continue };
            let axes = [a, b].map(|factor| self.axes(at, factor, index));
            if let [Some(a), Some(b)] = axes
                && a & b == 0
                && a != 0
                && b != 0
            {
                // With its two loads.
                parts.add(3.0 * self.weights[at.index()], (0.0, 0.0), Place::of(line));
            }
        }
        let shares = self.operations.iter().any(|operation| operation.class() == Class::SharedLoad);
        if !shares {
            found.tell(FactKind::UntiledProduct, parts, self.all());
        }
    }

    /// The axes of threads and blocks, as bits, that say which number of global memory a factor is;
    /// `None` if it is none that the loop loads, or data choose it.
    fn axes(&self, at: InstructionId, factor: &Operand<'_>, index: usize) -> Option<u8> {
        let load = self.writer(at, factor.register()?)?;
        let operation = &self.operations[load.index()];
        let is_load = operation.opcode == Some(Opcode::Ld) && operation.space == Some(StateSpace::Global);
        let address = self.values.address(load, 0)?;
        if !is_load || self.innermost[load.index()] != Some(index) || self.stays(load, index) {
            return None;
        }
        let (mut axes, mut known) = (0, true);
        self.values.sums().atoms_of(self.values.sums().get(address.value), &mut |atom| match atom {
            Atom::Thread(axis) | Atom::Block(axis) => axes |= 1 << axis.min(7),
            Atom::Unknown(_) | Atom::Special(_) => known = false,
            _ => {}
        });
        known.then_some(axes)
    }
}
