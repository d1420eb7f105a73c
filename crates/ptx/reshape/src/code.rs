//! The listing of a kernel with everything that the proof asks about it.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use crate::refusal::{Place, Reason, Refusal};
use ptx::analysis::{Atom, Definition, Definitions, Origin, Sum, Values};
use ptx::body::{Body, Home, InstructionId, Operand, RegisterId, VariableId};
use ptx::flow::{BlockId, Flow};
use ptx::instruction::{Comparison, Opcode, Operation, Operations};
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
    /// The most rounds that loops complete whose counter begins with some bits of a number.
    counted: HashMap<u32, i128>,
    /// Numbers that depend on the path, and how many periods they add at most.
    merged: RefCell<Vec<(Definition, Option<i128>)>>,
    /// How many parts of values may still be looked at: values in values may be many.
    budget: Cell<u32>,
}

/// The most rounds of a loop that counts low bits.
const MOST_COUNTED: i128 = 1 << 10;
/// Most parts of values that are looked at; then nothing more is known.
const MOST_PARTS: u32 = 4_000_000;
/// Numbers from here on are not of loops, but of merged values.
const MERGED: u32 = 1 << 31;

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
            counted: HashMap::new(),
            merged: RefCell::default(),
            budget: Cell::new(MOST_PARTS),
        };
        code.find_uses();
        code.counted = (0..code.values.loops().len()).filter_map(|round| code.counted(round)).collect();
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

    /// The most rounds that are completed, or periods added, where that is a small number.
    pub fn most_rounds(&self, round: u32) -> Option<i128> {
        match round.checked_sub(MERGED) {
            None => self.counted.get(&round).copied(),
            Some(place) => self.merged.borrow().get(place as usize)?.1,
        }
    }

    /// Counts a part of a value; nothing once there were too many.
    pub fn spend(&self) -> Option<()> {
        self.budget.set(self.budget.get().checked_sub(1)?);
        Some(())
    }

    /// The number of a merged value.
    pub fn add_merged(&self, definition: Definition, most: Option<i128>) -> u32 {
        let mut merged = self.merged.borrow_mut();
        let place = merged.iter().position(|known| *known == (definition, most)).unwrap_or(merged.len());
        if place == merged.len() {
            merged.push((definition, most));
        }
        MERGED + place as u32
    }

    /// A loop that counts some low bits of a number down to 0, as compilers put it before or after
    /// an unrolled one: with the most rounds that go back to its head.
    fn counted(&self, round: usize) -> Option<(u32, i128)> {
        let found = &self.values.loops()[round];
        let [latch] = found.latches.as_slice() else { return None };
        let (tested, true) = self.compared_with_zero(*latch, found.head)? else { return None };
        let sum = self.values.definition(tested)?;
        if (sum.bits, sum.constant, sum.terms.len()) != (32, u32::MAX.into(), 2) {
            return None;
        }
        let mut start = None;
        for term in &sum.terms {
            let [factor] = term.factors.as_slice() else { return None };
            match (self.values.sums().atom(*factor), term.coefficient) {
                (Atom::Round(of), coefficient) if of as usize == round && coefficient == u32::MAX.into() => {}
                (Atom::Unknown(definition), 1) => start = Some(definition),
                _ => return None,
            }
        }
        let start = start?;
        let mut block = found.head;
        while let Some(above) = self.definitions.dominators().parent(block) {
            let is_only = self
                .flow
                .block(block)
                .predecessors
                .iter()
                .all(|before| *before == above || block == found.head && *before == *latch);
            if is_only && self.compared_with_zero(above, block) == Some((start, true)) {
                return Some((round as u32, self.mask(start)? - 1));
            }
            block = above;
        }
        None
    }

    /// The number that the branch at the end of a block compares with 0, and whether the edge to
    /// the other block says that it is another one.
    fn compared_with_zero(&self, from: BlockId, to: BlockId) -> Option<(Definition, bool)> {
        let block = self.flow.block(from);
        let last = InstructionId(block.end.0.checked_sub(1)?);
        let guard = self.body.lines[last.index()].guard?;
        let Origin::Instruction(at) = self.used(last, guard.symbol.register()?)?.origin else { return None };
        let (line, operation) = (&self.body.lines[at.index()], self.operation(at));
        let (_, [source, Operand::Constant(Constant::Integer(0))]) = operation.split(&line.operands) else {
            return None;
        };
        let differs = match operation.comparison? {
            Comparison::NotEqual => true,
            Comparison::Equal => false,
            _ => return None,
        };
        let is_plain = operation.is(&[Opcode::Setp]) && operation.logic.is_none() && line.guard.is_none();
        if !is_plain || block.successors.len() != 2 || !self.operation(last).is(&[Opcode::Bra]) {
            return None;
        }
        // The edge that is fallen into is taken where the guard is false.
        let holds = (self.flow.block(to).first != block.end) != guard.negated;
        Some((self.used(at, source.register()?)?, holds == differs))
    }

    /// The bits that a number can have, if it is the result of an `and` with a constant.
    fn mask(&self, definition: Definition) -> Option<i128> {
        let Origin::Instruction(at) = definition.origin else { return None };
        let (line, operation) = (&self.body.lines[at.index()], self.operation(at));
        let (_, [_, Operand::Constant(Constant::Integer(mask))]) = operation.split(&line.operands) else {
            return None;
        };
        let is_mask =
            operation.is(&[Opcode::And]) && line.guard.is_none() && (1..=MOST_COUNTED).contains(mask);
        is_mask.then_some(*mask)
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
