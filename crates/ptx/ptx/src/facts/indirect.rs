//! Calls by address in loops: virtual functions, and pointers to functions.

use super::{FactKind, Found, Listing, Parts, ROUNDS};
use crate::body::{Body, Line, Operand, Symbol};
use crate::estimate::Place;
use crate::flow::Flow;
use crate::instruction::{Control, Operation, Operations};

impl Listing<'_, '_> {
    /// Calls by address in the loops of the kernel and of the functions that it names.
    pub(super) fn indirect(&self, bodies: &[Body<'_>], found: &mut Found<'_>) {
        let (mut all, mut parts) = (0.0, Parts::default());
        for (depth, body) in bodies.iter().enumerate() {
            let operations = Operations::of(body);
            let flow = Flow::of(body, &operations);
            let loops = flow.loops(&flow.dominators());
            for (at, (line, operation)) in
                (0..).map(crate::body::InstructionId).zip(body.lines.iter().zip(operations.iter()))
            {
                let block = flow.block_of(at);
                let is_looped = loops.iter().any(|one| one.blocks.contains(&block));
                let weight = if depth == 0 {
                    self.weights[at.index()]
                } else if is_looped {
                    ROUNDS
                } else {
                    1.0
                };
                all += weight;
                if is_looped && is_by_address(line, operation) {
                    parts.add(weight, (0.0, 0.0), Place::of(line));
                }
            }
        }
        found.tell(FactKind::IndirectCalls, parts, all);
    }
}

fn is_by_address(line: &Line<'_>, operation: &Operation) -> bool {
    let is_named = |operand: &Operand<'_>| matches!(operand, Operand::Name(Symbol::Function(_)));
    operation.control() == Control::Call && !line.operands.iter().any(is_named)
}
