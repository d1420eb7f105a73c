//! The number of machine instructions that each instruction of PTX becomes.
//!
//! The figures are those of ptxas 13.0 for `sm_90`: first what an instruction becomes on its own,
//! then what the assembler saves where instructions stand together. It fuses two operations of
//! which one uses the result of the other, computes the reciprocal of a divisor once, and unrolls
//! short loops that count, so that counting costs a quarter.
//!
//! What is not followed: instructions that are removed because nobody reads their results, moves
//! into registers for results of branches, and code that keeps the threads of a warp together.

use std::collections::HashSet;

use crate::body::{Body, InstructionId, Line, Operand, RegisterId, Symbol};
use crate::flow::{Flow, Loop};
use crate::instruction::{Class, Control, Flag, Opcode, Operation, Part};
use crate::syntax::ScalarType;

/// Instructions of an integer division of 32 bits.
const DIVISION: f64 = 17.0;
/// Instructions of such a division if the reciprocal of its divisor has been computed before.
const DIVISION_BY_KNOWN: f64 = 9.0;
/// Maximum number of instructions of a loop that the assembler unrolls.
const SHORT_LOOP: f64 = 64.0;
/// Number of rounds of a loop that unrolling joins.
const UNROLLED: f64 = 4.0;

/// Instructions of the machine for each instruction of a listing.
pub fn instructions(body: &Body<'_>, operations: &[Operation]) -> Vec<f64> {
    let lines = body.lines.iter().zip(operations);
    let mut counts: Vec<f64> = lines.map(|(line, operation)| alone(line, operation)).collect();
    let listing = Listing { body, operations, uses: Uses::of(body, operations) };
    let flow = Flow::of(body, operations);
    let loops = flow.loops(&flow.dominators());
    listing.fuse(&mut counts);
    listing.share_reciprocals(&flow, &loops, &mut counts);
    for found in &loops {
        listing.unroll(&flow, found, &mut counts);
    }
    counts
}

/// Returns the number of machine instructions for an instruction on its own.
fn alone(line: &Line<'_>, operation: &Operation) -> f64 {
    use Opcode::{
        Abs, Add, And, Cos, Cvt, Cvta, Div, Ex2, Lg2, Mad, Mov, Mul, Neg, Not, Or, Rcp, Rem, Rsqrt, Set,
        Setp, Shl, Shr, Sin, Sqrt, Sub, Wmma, Xor,
    };
    let last = operation.types().last().copied();
    let real = last.is_some_and(ScalarType::is_float);
    let wide = last.is_some_and(|ty| ty.bytes() >= 8);
    let approximate = operation.has(Flag::Approximate) || operation.has(Flag::Full);
    match (operation.opcode, real, wide) {
        (Some(Mov), ..) => match line.operands.last() {
            Some(Operand::Name(Symbol::Special(_)) | Operand::Component(Symbol::Special(_), _)) => 1.0,
            // No instruction has room for a number of 64 bits.
            Some(Operand::Constant(_)) if real && wide => 2.0,
            _ => 0.0,
        },
        // Generic addresses are those of global memory; signs belong to the operands of others.
        (Some(Cvta | Neg | Abs), ..) => 0.0,
        (Some(Div | Rem), false, false) => DIVISION,
        (Some(Div | Rem), false, true) => 80.0,
        (Some(Div | Sqrt), true, true) => 25.0,
        (Some(Div), true, false) if approximate => 6.0,
        (Some(Div), true, false) => 10.0,
        (Some(Sqrt | Rcp), true, false) if !approximate => 8.0,
        (Some(Sin | Cos), ..) => 2.0,
        // Small numbers are scaled before and after, unless they count as 0.
        (Some(Ex2 | Lg2 | Rsqrt | Rcp | Sqrt), true, false) if !operation.has(Flag::FlushToZero) => 4.0,
        (Some(Mul | Mad), false, _) if operation.part == Some(Part::Wide) => 1.0,
        (Some(Mul | Mad), false, true) => 4.0,
        (Some(Add | Sub | And | Or | Xor | Not | Shl | Shr | Setp | Set), false, true) => 2.0,
        // Most are joined to the comparison.
        (Some(And | Or | Xor | Not), ..) if last == Some(ScalarType::Pred) => 0.5,
        // Most are a change of name.
        (Some(Cvt), false, _) => 0.3,
        (Some(Wmma), ..) if operation.has(Flag::Load) || operation.has(Flag::Store) => 12.0,
        (Some(Wmma), ..) => 2.0,
        _ => 1.0,
    }
}

/// The readers of results, as far as one instruction alone writes a register.
struct Uses {
    /// The instructions that read the result of each one.
    readers: Vec<Vec<usize>>,
    /// The instruction that writes each register.
    writers: Vec<Option<usize>>,
}

impl Uses {
    fn of(body: &Body<'_>, operations: &[Operation]) -> Uses {
        let lines = || body.lines.iter().zip(operations).enumerate();
        let mut written = vec![0; body.registers.len()];
        let mut writers: Vec<Option<usize>> = vec![None; body.registers.len()];
        for (at, (line, operation)) in lines() {
            operation.writes(line, body, &mut |id| {
                written[id.index()] += 1;
                writers[id.index()] = (written[id.index()] == 1).then_some(at);
            });
        }
        let mut readers: Vec<Vec<usize>> = vec![Vec::new(); operations.len()];
        for (at, (line, operation)) in lines() {
            operation.reads(line, body, &mut |id| {
                if let Some(writer) = writers[id.index()] {
                    readers[writer].push(at);
                }
            });
        }
        Uses { readers, writers }
    }
}

/// Whether it is one of these opcodes on integers of `bytes` bytes.
fn is_integer(operation: &Operation, opcodes: &[Opcode], bytes: u64) -> bool {
    let ty = operation.types().last();
    operation.is(opcodes) && ty.is_some_and(|ty| !ty.is_float() && ty.bytes() == bytes)
}

/// Whether it is one of these on floating-point numbers, and may be rounded together with another.
fn is_contracted(operation: &Operation, opcodes: &[Opcode]) -> bool {
    let real = operation.types().last().is_some_and(|ty| ty.is_float());
    real && operation.is(opcodes) && operation.rounding.is_none()
}

/// Whether the machine has one instruction for both, where the second uses the result of the first.
fn is_pair(first: &Operation, second: &Operation) -> bool {
    use Opcode::{Add, And, Max, Min, Mul, Not, Or, Shl, Sub, Xor};
    let integers =
        |one: &[Opcode], other: &[Opcode]| is_integer(first, one, 4) && is_integer(second, other, 4);
    is_contracted(first, &[Mul]) && is_contracted(second, &[Add, Sub])
        || integers(&[Add, Sub, Shl], &[Add, Sub])
        || integers(&[And, Or, Xor, Not], &[And, Or, Xor, Not])
        || integers(&[Add, Min, Max], &[Min, Max])
}

/// A function's listing.
struct Listing<'a, 'm> {
    body: &'a Body<'m>,
    operations: &'a [Operation],
    uses: Uses,
}

impl Listing<'_, '_> {
    /// Sets instructions that are fused with their readers to 0.
    fn fuse(&self, counts: &mut [f64]) {
        let is_sum = |at: usize| is_integer(&self.operations[at], &[Opcode::Add, Opcode::Sub], 8);
        let mut fused = vec![false; counts.len()];
        for (at, readers) in self.uses.readers.iter().enumerate() {
            let operation = &self.operations[at];
            // Addresses: a product and a sum are one instruction, a shift and a sum two.
            let product = operation.is(&[Opcode::Mul]) && operation.part == Some(Part::Wide);
            let shift = is_integer(operation, &[Opcode::Shl], 8);
            if (product || shift) && !readers.is_empty() && readers.iter().all(|&reader| is_sum(reader)) {
                counts[at] = 0.0;
                readers.iter().filter(|_| product).for_each(|&reader| counts[reader] = 1.0);
            }
            if let [reader] = readers[..]
                && !fused[at]
                && !fused[reader]
                && is_pair(operation, &self.operations[reader])
            {
                fused[reader] = true;
                counts[at] = 0.0;
            }
        }
    }

    /// Subtracts the reciprocals of divisors that an earlier division had, or that a loop does not
    /// change.
    fn share_reciprocals(&self, flow: &Flow, loops: &[Loop], counts: &mut [f64]) {
        let has = |found: &Loop, at: usize| {
            found.blocks.binary_search(&flow.block_of(InstructionId(at as u32))).is_ok()
        };
        let mut seen = HashSet::new();
        for (at, operation) in self.operations.iter().enumerate() {
            let last = self.body.lines[at].operands.last().and_then(Operand::register);
            let divisor = last.and_then(|id| self.uses.writers[id.index()]);
            let Some(divisor) = divisor.filter(|_| is_integer(operation, &[Opcode::Div, Opcode::Rem], 4))
            else {
                continue;
            };
            let hoisted = || loops.iter().any(|found| has(found, at) && !has(found, divisor));
            if !seen.insert(divisor) || hoisted() {
                counts[at] = DIVISION_BY_KNOWN;
            }
        }
    }

    /// Divides the cost of counting in a short loop without branches by [`UNROLLED`].
    fn unroll(&self, flow: &Flow, found: &Loop, counts: &mut [f64]) {
        let &[block] = &found.blocks[..] else { return };
        let lines = flow.block(block).first.index()..flow.block(block).end.index();
        let keeps_order = |at: usize| {
            self.operations[at].class() == Class::Barrier || self.operations[at].control() == Control::Call
        };
        if lines.clone().any(keeps_order) || counts[lines.clone()].iter().sum::<f64>() > SHORT_LOOP {
            return;
        }
        let branch = lines.end - 1;
        let guard = self.body.lines[branch].guard.and_then(|guard| guard.symbol.register());
        let Some(comparison) = guard.and_then(|id| self.uses.writers[id.index()]) else { return };
        let compared = self.read(comparison);
        let counters: Vec<usize> = lines.clone().filter(|&at| self.is_counter(at)).collect();
        let counts_rounds = |&at: &usize| self.written(at).iter().any(|id| compared.contains(id));
        if counters.iter().any(counts_rounds) {
            let moves = lines.filter(|&at| self.operations[at].is(&[Opcode::Mov]));
            for at in [branch, comparison].into_iter().chain(counters).chain(moves) {
                counts[at] /= UNROLLED;
            }
        }
    }

    fn read(&self, at: usize) -> Vec<RegisterId> {
        let mut read = Vec::new();
        self.operations[at].reads(&self.body.lines[at], self.body, &mut |id| read.push(id));
        read
    }

    /// The registers that an instruction writes, and those that its result is moved to.
    fn written(&self, at: usize) -> Vec<RegisterId> {
        let mut written = Vec::new();
        let moves =
            self.uses.readers[at].iter().filter(|&&reader| self.operations[reader].is(&[Opcode::Mov]));
        for &by in [at].iter().chain(moves) {
            self.operations[by].writes(&self.body.lines[by], self.body, &mut |id| written.push(id));
        }
        written
    }

    /// Whether an instruction adds a constant to an integer, round by round.
    fn is_counter(&self, at: usize) -> bool {
        let (operation, operands) = (&self.operations[at], &self.body.lines[at].operands);
        let (read, written) = (self.read(at), self.written(at));
        operation.is(&[Opcode::Add, Opcode::Sub])
            && operation.types().iter().all(|ty| !ty.is_float())
            && matches!(operands.last(), Some(Operand::Constant(_)))
            && read.iter().any(|id| written.contains(id))
    }
}
