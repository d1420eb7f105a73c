//! The listing of a kernel with everything that the proof asks about it.

use std::collections::HashMap;

use crate::refusal::{Place, Reason, Refusal};
use ptx::analysis::{Definition, Definitions, Sum, Values};
use ptx::body::{Body, Home, InstructionId, Operand, RegisterId, VariableId};
use ptx::flow::{BlockId, Flow};
use ptx::instruction::{Operation, Operations};
use ptx::{Constant, Module};

/// Most factors of a product: index, size, and three extents.
const MOST_FACTORS: usize = 5;

/// A kernel's code.
pub(crate) struct Code<'a, 'm> {
    pub module: &'m Module,
    pub body: &'a Body<'m>,
    pub operations: &'a Operations,
    pub flow: &'a Flow,
    pub definitions: Definitions<'a>,
    pub values: Values,
    /// The definition of each register that an instruction reads.
    uses: HashMap<(InstructionId, RegisterId), Definition>,
    /// The blocks that the entry reaches.
    pub reached: Vec<BlockId>,
    /// Offsets of the parameters in their space.
    offsets: Vec<u32>,
}

impl<'a, 'm> Code<'a, 'm> {
    pub fn new(module: &'m Module, body: &'a Body<'m>, operations: &'a Operations, flow: &'a Flow) -> Self {
        let definitions = Definitions::of(body, operations, flow);
        let values = Values::with_factors(body, operations, flow, MOST_FACTORS);
        let reached = flow.reverse_postorder();
        let mut code = Code {
            module,
            body,
            operations,
            flow,
            definitions,
            values,
            uses: HashMap::new(),
            reached,
            offsets: offsets(body),
        };
        code.find_uses();
        code
    }

    fn find_uses(&mut self) {
        for &block in &self.reached {
            let mut cursor = self.definitions.follow(block);
            for at in self.flow.block(block).first.0..self.flow.block(block).end.0 {
                let at = InstructionId(at);
                let (line, operation) = (&self.body.lines[at.index()], &self.operations[at.index()]);
                operation.reads(line, self.body, &mut |register| {
                    self.uses.insert((at, register), cursor.definition(register));
                });
                cursor.pass(at, operation, self.body, &mut |_| {});
            }
        }
    }

    /// The instructions that the entry reaches.
    pub fn lines(&self) -> impl Iterator<Item = InstructionId> {
        let of = |&block: &BlockId| self.flow.block(block).first.0..self.flow.block(block).end.0;
        self.reached.iter().flat_map(of).map(InstructionId)
    }

    pub fn operation(&self, at: InstructionId) -> &Operation {
        &self.operations[at.index()]
    }

    /// The definition of a register that an instruction reads.
    pub fn used(&self, at: InstructionId, register: RegisterId) -> Option<Definition> {
        self.uses.get(&(at, register)).copied()
    }

    /// The value of a source operand as a sum of this width.
    pub fn operand(&self, at: InstructionId, operand: &Operand<'m>, bits: u32) -> Option<Sum> {
        if let Operand::Constant(Constant::Integer(number)) = operand {
            return Some(Sum::number(*number as u64, bits));
        }
        let Operand::Name(_) = operand else { return None };
        let sum = self.values.definition(self.used(at, operand.register()?)?)?;
        (sum.bits == bits).then(|| sum.clone())
    }

    /// The offset of a parameter in the parameter space.
    pub fn offset(&self, variable: VariableId) -> Option<u32> {
        match self.body.variables[variable.index()].home {
            Home::Parameter(index) => self.offsets.get(index as usize).copied(),
            _ => None,
        }
    }

    /// The place of an instruction.
    pub fn place(&self, at: InstructionId) -> Place {
        let line = &self.body.lines[at.index()];
        let source = line
            .location
            .and_then(|location| Some((self.module.file(location.file)?.to_owned(), location.line)));
        let text = line.instruction.to_string();
        Place { instruction: text.trim().to_owned(), line: line.instruction.position.line, source }
    }

    /// A refusal that is about an instruction.
    pub fn refuse(&self, reason: Reason, at: InstructionId) -> Refusal {
        Refusal { reason, place: self.place(at) }
    }
}

/// Offsets of a kernel's parameters: one after the other, each aligned.
fn offsets(body: &Body<'_>) -> Vec<u32> {
    let mut next = 0u64;
    let offset = |parameter: &ptx::Variable| {
        let start = next.next_multiple_of(parameter.alignment().max(1));
        next = start.saturating_add(parameter.bytes().unwrap_or(u64::from(u32::MAX)));
        u32::try_from(start).unwrap_or(u32::MAX)
    };
    body.function.params.iter().map(offset).collect()
}
