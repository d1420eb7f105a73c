//! Calls by address in loops: virtual functions, and pointers to functions.

use super::{FactKind, Found, Parts, Place, weight};
use crate::body::{Body, InstructionId, Line, Operand, Symbol};
use crate::flow::Flow;
use crate::instruction::{Control, Operation, Operations};

/// Finds calls by address in the loops of a kernel and of the functions that it names.
pub(super) fn calls(bodies: &[Body<'_>], found: &mut Found<'_>) {
    let (mut all, mut parts) = (0.0, Parts::default());
    for body in bodies {
        let operations = Operations::of(body);
        let lines = body.lines.iter().zip(operations.iter());
        for ((line, operation), depth) in lines.zip(depths(body, &operations)) {
            all += weight(depth);
            if depth > 0 && is_by_address(line, operation) {
                parts.add(weight(depth), (0.0, 0.0), Place::of(line));
            }
        }
    }
    found.tell(FactKind::IndirectCalls, parts, all);
}

/// For each instruction, the number of loops around it.
fn depths(body: &Body<'_>, operations: &Operations) -> Vec<u32> {
    let flow = Flow::of(body, operations);
    let loops = flow.loops(&flow.dominators());
    let around = |at| {
        let block = flow.block_of(at);
        loops.iter().filter(|one| one.blocks.binary_search(&block).is_ok()).count() as u32
    };
    (0..body.lines.len() as u32).map(InstructionId).map(around).collect()
}

fn is_by_address(line: &Line<'_>, operation: &Operation) -> bool {
    let is_named = |operand: &Operand<'_>| matches!(operand, Operand::Name(Symbol::Function(_)));
    operation.control() == Control::Call && !line.operands.iter().any(is_named)
}
