//! Atomic operations that make threads wait for each other: at one address, and in loops that try
//! again.

use super::{FactKind, Found, Listing, Parts, Place};
use crate::analysis::Atom;
use crate::body::{InstructionId, Operand};
use crate::instruction::{
    Atomic, Class, Direction, Opcode, Operation, Order, Scope, Synchronization, accesses,
};
use crate::syntax::{Constant, ScalarType, StateSpace};

impl Listing<'_, '_> {
    fn atomics(&self) -> impl Iterator<Item = (InstructionId, &Operation)> {
        let all = (0..).map(InstructionId).zip(self.operations.iter());
        all.filter(|(_, operation)| operation.is(&[Opcode::Atom, Opcode::Red]))
    }

    /// Atomic sums in floating point or 64 bits, at an address that no thread, block or data
    /// chooses, by all threads. Those of 32-bit integers are combined within a warp by ptxas.
    pub(super) fn totals(&self, found: &mut Found<'_>) {
        let mut parts = Parts::default();
        for (at, operation) in self.atomics() {
            let combined = |ty: &ScalarType| !ty.is_float() && ty.bytes() == 4;
            let sums = operation.atomic == Some(Atomic::Add) && !operation.types().iter().any(combined);
            if sums && self.is_one_address(at) && self.is_for_all(at) {
                parts.add(self.weights[at.index()], (0.0, 0.0), Place::of(&self.body.lines[at.index()]));
            }
        }
        found.tell(FactKind::OneTotal, parts, self.accesses_to_data());
    }

    /// Atomic sums in global memory by which all blocks add to the same numbers: no data and no
    /// number of a block chooses the address, and it is not one address for all threads.
    pub(super) fn shared_sums(&self, found: &mut Found<'_>) {
        let mut parts = Parts::default();
        for (at, operation) in self.atomics() {
            let is_global = matches!(operation.space, Some(StateSpace::Global) | None);
            let sums = operation.atomic == Some(Atomic::Add) && is_global;
            if sums && !self.is_one_address(at) && self.is_of_any_block(at) {
                parts.add(self.weights[at.index()], (0.0, 0.0), Place::of(&self.body.lines[at.index()]));
            }
        }
        found.tell(FactKind::SharedSums, parts, self.accesses_to_data());
    }

    /// Whether an address is the same in each block, as far as it depends on no data.
    fn is_of_any_block(&self, at: InstructionId) -> bool {
        let mut operands = self.body.lines[at.index()].operands.iter();
        let address = operands.find(|operand| matches!(operand, Operand::Address(_)));
        address.is_some_and(|address| {
            let origin = self.origins.of_operand(address, self.body);
            !origin.block && !origin.data && origin.rows.is_empty()
        })
    }

    /// The weight of the accesses to global and shared memory.
    fn accesses_to_data(&self) -> f64 {
        let is_data = |space| matches!(space, Some(StateSpace::Global | StateSpace::Shared) | None);
        let lines = self.body.lines.iter().zip(self.operations.iter()).zip(&self.weights);
        let counts = lines.filter(|((line, operation), _)| {
            accesses(operation, &line.operands).first().is_some_and(|access| is_data(access.space))
        });
        counts.map(|(_, weight)| weight).sum()
    }

    fn is_one_address(&self, at: InstructionId) -> bool {
        let Some(address) = self.values.address(at, 0) else { return false };
        let mut is_one = true;
        self.values.sums().atoms_of(self.values.sums().get(address.value), &mut |atom| {
            is_one &= matches!(atom, Atom::Parameter { .. } | Atom::Address(_) | Atom::Extended { .. });
        });
        is_one
    }

    /// Loops that swap until nobody was faster, for a sum or for a lock.
    pub(super) fn swaps(&self, found: &mut Found<'_>) {
        let (mut sums, mut locks) = (Parts::default(), Parts::default());
        for (at, operation) in self.atomics() {
            let (Some(Atomic::CompareAndSwap), Some(index)) = (operation.atomic, self.innermost[at.index()])
            else {
                continue;
            };
            let line = &self.body.lines[at.index()];
            let [.., expected, new] = &line.operands[..] else { continue };
            let is_for_each_round = self.is_in_each_round(at, index);
            if !self.stays(at, index) || !(is_for_each_round || self.only_waits(at, index)) {
                continue;
            }
            let kind = match (self.is_sum(at, new), self.number(at, expected), self.number(at, new)) {
                (true, ..) if is_for_each_round => &mut sums,
                (_, true, true) => &mut locks,
                _ => continue,
            };
            kind.add(self.weights[at.index()], (0.0, 0.0), Place::of(line));
        }
        let all = self.accesses_to_data();
        found.tell(FactKind::SumBySwap, sums, all);
        found.tell(FactKind::Lock, locks, all);
    }

    /// Whether a loop does nothing with global memory but this operation, which one thread may make
    /// for the others: threads wait in it.
    fn only_waits(&self, at: InstructionId, index: usize) -> bool {
        let is_global = |space| matches!(space, Some(StateSpace::Global) | None);
        let lines = self.body.lines.iter().zip(self.operations.iter()).enumerate();
        let mut inside = lines.filter(|(other, _)| self.innermost[*other] == Some(index));
        !inside.any(|(other, (line, operation))| {
            let accessed = accesses(operation, &line.operands);
            other != at.index() && accessed.first().is_some_and(|access| is_global(access.space))
        })
    }

    /// Whether an operand is a sum in floating point.
    fn is_sum(&self, at: InstructionId, operand: &Operand<'_>) -> bool {
        self.maker(at, operand).is_some_and(|made| {
            let operation = &self.operations[made.index()];
            operation.is(&[Opcode::Add, Opcode::Sub]) && operation.types().iter().any(|ty| ty.is_float())
        })
    }

    /// Whether an operand is a number.
    fn number(&self, at: InstructionId, operand: &Operand<'_>) -> bool {
        let is_number = |operand: &Operand<'_>| matches!(operand, Operand::Constant(Constant::Integer(_)));
        is_number(operand)
            || self.maker(at, operand).is_some_and(|made| {
                let moves = self.operations[made.index()].opcode == Some(Opcode::Mov);
                moves && self.body.lines[made.index()].operands.last().is_some_and(is_number)
            })
    }

    /// Fences for the whole device in each round of a loop that has no other means to talk to other
    /// blocks: atomic operations, and accesses that are volatile or ordered.
    pub(super) fn fences(&self, found: &mut Found<'_>) {
        let mut parts = Parts::default();
        for (at, operation) in (0..).map(InstructionId).zip(self.operations.iter()) {
            let is_fence = operation.synchronization() == Some(Synchronization::Fence)
                && matches!(operation.scope, Some(Scope::Gpu | Scope::System))
                && operation.unknown == 0;
            let Some(index) = self.innermost[at.index()].filter(|_| is_fence) else { continue };
            if self.is_in_each_round(at, index) && !self.talks(index) {
                parts.add(self.weights[at.index()], (0.0, 0.0), Place::of(&self.body.lines[at.index()]));
            }
        }
        found.tell(FactKind::FenceInLoop, parts, self.accesses_to_data());
    }

    fn talks(&self, index: usize) -> bool {
        let inside = |at: usize| {
            let block = self.flow.block_of(InstructionId(at as u32));
            self.loops[index].blocks.binary_search(&block).is_ok()
        };
        let lines = self.body.lines.iter().zip(self.operations.iter()).enumerate();
        lines.filter(|(at, _)| inside(*at)).any(|(_, (line, operation))| {
            let ordered = operation.is_strong() || operation.order == Some(Order::Volatile);
            let accessed = accesses(operation, &line.operands);
            accessed.iter().any(|access| access.direction == Direction::Atomic || ordered)
                || operation.class() == Class::AsyncCopy
        })
    }
}
