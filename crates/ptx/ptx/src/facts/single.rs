//! Work that one thread of a block does while the others wait, and arrays that are not in
//! registers.

use super::origins::Condition;
use super::{FactKind, Found, Listing, Parts, Place};
use crate::analysis::{Atom, Sum};
use crate::body::InstructionId;
use crate::instruction::{Class, Direction, accesses};
use crate::syntax::{StateSpace, Variable};

/// Bytes of the array by which sine and cosine reduce large arguments, in FP32 and in FP64. It is
/// used for these arguments alone.
const REDUCTION_BYTES: [u64; 2] = [28, 40];
/// The table that the reduction reads. Where its numbers are in the code instead, the array is
/// written at known indices, and read at an unknown one.
const REDUCTION_TABLE: &str = "__cudart_i2opi";

impl Listing<'_, '_> {
    /// Accesses to global memory in loops that one thread of several executes. Kernels in which a
    /// thread starts copies for the others are left out.
    pub(super) fn lonely(&self, found: &mut Found<'_>) {
        let copies = self.operations.iter().any(|operation| operation.class() == Class::AsyncCopy);
        let (mut all, mut parts) = (0.0, Parts::default());
        for (at, (line, operation)) in self.body.lines.iter().zip(self.operations.iter()).enumerate() {
            let accessed = accesses(operation, &line.operands);
            let Some(access) = accessed.first().filter(|one| one.space == Some(StateSpace::Global)) else {
                continue;
            };
            all += self.weights[at];
            let waits = access.direction == Direction::Atomic || operation.is_strong();
            let alone = self.innermost[at].is_some_and(|index| self.is_for_one_thread(index));
            if alone && !waits && !copies {
                parts.add(self.weights[at], (0.0, 0.0), Place::of(line));
            }
        }
        found.tell(FactKind::OneThread, parts, all);
    }

    /// Whether one thread of a block enters a loop: a comparison of the thread's index itself, and
    /// not of its place in a warp or group.
    fn is_for_one_thread(&self, index: usize) -> bool {
        let first = self.flow.block(self.loops[index].head).first;
        self.conditions(first)
            .iter()
            .any(|condition| self.chooses_a_lane(condition) && self.compares_index(condition))
    }

    /// Whether an operand of a condition is the thread's index, in its block or in the grid.
    fn compares_index(&self, condition: &Condition) -> bool {
        let compares = condition.compares;
        let (_, sources) =
            self.operations[compares.index()].split(&self.body.lines[compares.index()].operands);
        sources.iter().any(|source| {
            let made = self.maker(compares, source);
            made.and_then(|made| self.made(made)).is_some_and(|sum| self.is_index(sum))
        })
    }

    /// Returns the value that an instruction writes, if it is known.
    fn made(&self, at: InstructionId) -> Option<&Sum> {
        let (result, _) = self.operations[at.index()].split(&self.body.lines[at.index()].operands);
        self.values.result(at, result?.register()?)
    }

    fn is_index(&self, sum: &Sum) -> bool {
        let (mut by_thread, mut known) = (false, true);
        self.values.sums().atoms_of(sum, &mut |atom| match atom {
            Atom::Thread(axis) => by_thread |= axis == 0,
            Atom::Unknown(_) | Atom::Special(_) => known = false,
            _ => {}
        });
        by_thread && known
    }

    /// Accesses to arrays in local memory at an index that the compiler does not know.
    pub(super) fn arrays(&self, found: &mut Found<'_>) {
        let (mut all, mut parts, mut is_written) = (0.0, Parts::default(), false);
        for (at, (line, operation)) in self.body.lines.iter().zip(self.operations.iter()).enumerate() {
            let accessed = accesses(operation, &line.operands);
            let Some(access) = accessed.first() else { continue };
            match access.space {
                Some(StateSpace::Global | StateSpace::Shared) | None => all += self.weights[at],
                Some(StateSpace::Local) => {
                    all += self.weights[at];
                    if self.is_indexed(InstructionId(at as u32)) {
                        is_written |= access.direction == Direction::Store;
                        parts.add(self.weights[at], (0.0, 0.0), Place::of(line));
                    }
                }
                _ => {}
            }
        }
        match self.reduces_arguments(is_written) {
            true => found.tell(FactKind::ArgumentReduction, parts, self.all()),
            false => found.tell(FactKind::LocalArray, parts, all),
        }
    }

    /// Whether the only local memory is the array of sine and cosine; `is_written`: at unknown
    /// indices.
    fn reduces_arguments(&self, is_written: bool) -> bool {
        let places = || self.body.variables.iter().map(|place| place.declaration);
        let has_table = places().any(|variable| variable.name.contains(REDUCTION_TABLE));
        let mut local = places().filter(|variable| variable.space == StateSpace::Local);
        let as_large =
            |variable: &Variable| variable.bytes().is_some_and(|bytes| REDUCTION_BYTES.contains(&bytes));
        (has_table || !is_written) && local.all(as_large)
    }

    /// Whether the address of an access is not a variable's and a number.
    fn is_indexed(&self, at: InstructionId) -> bool {
        let Some(address) = self.values.address(at, 0) else { return false };
        let mut is_indexed = false;
        self.values.sums().atoms_of(self.values.sums().get(address.value), &mut |atom| {
            is_indexed |= !matches!(atom, Atom::Address(_));
        });
        is_indexed
    }
}
