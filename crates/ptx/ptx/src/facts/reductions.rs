//! Sums and other reductions through shared memory, with a barrier in each step.
//!
//! A step is a store to shared memory of what a commutative operation makes of a value that was
//! loaded from there and of another one. Steps are a reduction where a loop that halves or doubles
//! a distance has a barrier and nothing but one such store, or where at least [`STEPS`] of them
//! follow each other at distances that halve or double. A transform stores two values in each step,
//! and a stencil what it makes of more than one operation: neither is a reduction.

use super::{FactKind, Found, Listing, Parts, Place};
use crate::analysis::SumId;
use crate::body::{InstructionId, Operand};
use crate::instruction::{Class, Opcode, Synchronization, accesses};
use crate::syntax::{Constant, StateSpace};

/// Least steps of a reduction whose loop is unrolled.
const STEPS: usize = 3;

/// A store of what is made of a loaded value.
struct Step {
    at: InstructionId,
    /// Of the value that is loaded: what its address differs by from the store's, if that is a
    /// number.
    apart: Option<u64>,
}

impl Listing<'_, '_> {
    pub(super) fn reductions(&self, found: &mut Found<'_>) {
        let steps: Vec<Step> = self.stores().filter_map(|at| self.step(at)).collect();
        let mut parts = Parts::default();
        for index in 0..self.loops.len() {
            if self.is_reduction(index, &steps) {
                let lines = (0..self.body.lines.len()).filter(|at| self.innermost[*at] == Some(index));
                self.add_reduction(lines, super::ROUNDS, &mut parts);
            }
        }
        for run in self.unrolled(&steps) {
            let lines = run[0].at.index()..=run[run.len() - 1].at.index();
            self.add_reduction(lines, 1.0, &mut parts);
        }
        found.tell(FactKind::BarrierReduction, parts, self.all());
    }

    /// Adds the instructions of a reduction, each of which counts so many times as much as the
    /// reduction as a whole. It costs the loads from global memory outside of it that there are for
    /// each time that it is made.
    fn add_reduction(&self, lines: impl Iterator<Item = usize> + Clone, rounds: f64, parts: &mut Parts) {
        let Some(first) = lines.clone().next() else { return };
        let each = self.weights[first] / rounds;
        let loads: f64 = self.of_class(Class::GlobalLoad).map(|at| self.weights[at]).sum();
        for at in lines {
            parts.add(self.weights[at], (loads / each, 0.0), Place::of(&self.body.lines[at]));
        }
    }

    fn of_class(&self, class: Class) -> impl Iterator<Item = usize> {
        (0..self.body.lines.len()).filter(move |at| self.operations[*at].class() == class)
    }

    /// Stores to shared memory.
    fn stores(&self) -> impl Iterator<Item = InstructionId> {
        self.of_class(Class::SharedStore).map(|at| InstructionId(at as u32))
    }

    /// The step that a store is, if it is one.
    fn step(&self, at: InstructionId) -> Option<Step> {
        let made = self.maker(at, self.body.lines[at.index()].operands.last()?)?;
        let operation = &self.operations[made.index()];
        let is_commutative = operation.is(&[
            Opcode::Add,
            Opcode::Min,
            Opcode::Max,
            Opcode::Mul,
            Opcode::And,
            Opcode::Or,
            Opcode::Xor,
        ]);
        let (_, sources) = operation.split(&self.body.lines[made.index()].operands);
        let [a, b] = sources else { return None };
        if !is_commutative || self.flow.block_of(made) != self.flow.block_of(at) {
            return None;
        }
        let own = self.place(at)?;
        let from = [a, b].map(|source| self.shared_place(made, source));
        // The other value is a register, or what was stored here before.
        let other = match from {
            [Some(a), Some(b)] if a == own => b,
            [Some(a), Some(b)] if b == own => a,
            [Some(other), None] | [None, Some(other)] => other,
            _ => return None,
        };
        (other != own).then(|| Step { at, apart: self.distance(own, other) })
    }

    /// Where in shared memory the value of an operand was loaded from, in the same block.
    fn shared_place(&self, at: InstructionId, operand: &Operand<'_>) -> Option<(SumId, i64)> {
        let loads = self.writer(at, operand.register()?)?;
        let operation = &self.operations[loads.index()];
        let is_load = operation.opcode == Some(Opcode::Ld) && operation.space == Some(StateSpace::Shared);
        (is_load && self.flow.block_of(loads) == self.flow.block_of(at)).then(|| self.place(loads)).flatten()
    }

    /// The address of an access, and the number that is added to it.
    fn place(&self, at: InstructionId) -> Option<(SumId, i64)> {
        let line = &self.body.lines[at.index()];
        let offset = accesses(&self.operations[at.index()], &line.operands).first()?.offset;
        Some((self.values.address(at, 0)?.value, offset))
    }

    fn distance(&self, (from, start): (SumId, i64), (to, end): (SumId, i64)) -> Option<u64> {
        let sums = self.values.sums();
        let apart = sums.get(to).minus(sums.get(from))?;
        let bits = apart.bits.min(64);
        let number = (apart.constant as i64) << (64 - bits) >> (64 - bits);
        apart.terms.is_empty().then(|| (number + end - start).unsigned_abs())
    }

    /// Whether a loop reduces: it has a barrier and a distance that it halves or doubles, and its
    /// only store to shared memory is a step.
    fn is_reduction(&self, index: usize, steps: &[Step]) -> bool {
        let inside = |at: &usize| self.innermost[*at] == Some(index);
        let stores: Vec<InstructionId> = self.stores().filter(|at| inside(&at.index())).collect();
        let [store] = stores[..] else { return false };
        let is_barrier = |at: usize| {
            self.operations[at].synchronization() == Some(Synchronization::Block)
                && self.is_in_each_round(InstructionId(at as u32), index)
        };
        steps.iter().any(|step| step.at == store)
            && (0..self.body.lines.len()).filter(inside).any(is_barrier)
            && (0..self.body.lines.len()).filter(inside).any(|at| self.halves(at))
    }

    /// Whether an instruction halves or doubles a number.
    fn halves(&self, at: usize) -> bool {
        let by_one =
            matches!(self.body.lines[at].operands.last(), Some(Operand::Constant(Constant::Integer(1))));
        by_one && self.operations[at].is(&[Opcode::Shr, Opcode::Shl])
    }

    /// Steps that follow each other at distances that halve or double, with a barrier between each
    /// two and no other store.
    fn unrolled<'s>(&self, steps: &'s [Step]) -> Vec<&'s [Step]> {
        let follows = |a: &Step, b: &Step| {
            let (Some(x), Some(y)) = (a.apart, b.apart) else { return false };
            let between = a.at.index() + 1..b.at.index();
            x > 0
                && (x == 2 * y || y == 2 * x)
                && self.innermost[a.at.index()] == self.innermost[b.at.index()]
                && between
                    .clone()
                    .any(|at| self.operations[at].synchronization() == Some(Synchronization::Block))
                && !between.clone().any(|at| self.operations[at].class() == Class::SharedStore)
        };
        steps.chunk_by(follows).filter(|run| run.len() >= STEPS).collect()
    }
}
