//! Origins of values in registers, and conditions under which instructions are executed.
//!
//! An [`Origin`] holds on every path: what a register may have from anywhere is united. Arithmetic
//! that keeps neighbours apart (sums, products with a number, shifts to the left) keeps the loads
//! that gave each lane the beginning of a row; any other arithmetic makes data of them.

use std::collections::HashMap;

use super::Listing;
use crate::analysis::{Atom, Values};
use crate::body::{Body, InstructionId, Operand, RegisterId, SpecialRegister, Symbol};
use crate::flow::BlockId;
use crate::instruction::{Comparison, Control, Opcode, Operation, Operations};
use crate::syntax::{Constant, StateSpace};

/// Most loads of rows that a register is told to depend on.
const MOST_ROWS: usize = 8;
/// Most passes over a listing until origins are stable; beyond them nothing is known.
const MOST_PASSES: usize = 12;
/// Shifting a thread's index by so many bits or more leaves what the lanes of a warp share.
const WARP_SHIFT: i128 = 5;

/// The origin of a value.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Origin {
    /// The lane's number.
    pub lane: bool,
    /// The block's number.
    pub block: bool,
    /// Loaded values, the beginnings of rows left out.
    pub data: bool,
    /// Loads of neighbouring values of a table by neighbouring threads, from which the value
    /// differs by what all lanes share: beginnings of rows.
    pub rows: Vec<InstructionId>,
}

impl Origin {
    const UNKNOWN: Origin = Origin { lane: true, block: true, data: true, rows: Vec::new() };

    fn add(&mut self, other: &Origin) {
        self.lane |= other.lane;
        self.block |= other.block;
        self.data |= other.data;
        for row in &other.rows {
            if !self.rows.contains(row) {
                self.rows.push(*row);
            }
        }
        if self.rows.len() > MOST_ROWS {
            *self = Origin { data: true, rows: Vec::new(), ..self.clone() };
        }
    }

    /// The same where rows are nothing but data.
    fn scattered(self) -> Origin {
        Origin { data: self.data || !self.rows.is_empty(), rows: Vec::new(), ..self }
    }

    /// Whether all lanes have the same value, and it is not loaded.
    pub fn is_uniform(&self) -> bool {
        !self.lane && !self.data && self.rows.is_empty()
    }
}

/// The origins of a function's registers, and who writes these.
pub(super) struct Origins {
    registers: Vec<Origin>,
    writers: HashMap<RegisterId, Vec<InstructionId>>,
}

impl Origins {
    pub fn of(body: &Body<'_>, operations: &Operations, values: &Values) -> Self {
        let mut writers: HashMap<RegisterId, Vec<InstructionId>> = HashMap::new();
        for (at, (line, operation)) in (0..).map(InstructionId).zip(body.lines.iter().zip(operations.iter()))
        {
            operation.writes(line, body, &mut |register| writers.entry(register).or_default().push(at));
        }
        let mut origins = Origins { registers: vec![Origin::default(); body.registers.len()], writers };
        if !(0..MOST_PASSES).any(|_| !origins.pass(body, operations, values)) {
            origins.registers.fill(Origin::UNKNOWN);
        }
        origins
    }

    /// Goes through the listing once; whether anything changed.
    fn pass(&mut self, body: &Body<'_>, operations: &Operations, values: &Values) -> bool {
        let mut changed = false;
        for (at, (line, operation)) in (0..).map(InstructionId).zip(body.lines.iter().zip(operations.iter()))
        {
            let (_, sources) = operation.split(&line.operands);
            let made = self.made(at, operation, sources, body, values);
            operation.writes(line, body, &mut |register| {
                let known = &mut self.registers[register.index()];
                let before = known.clone();
                known.add(&made);
                changed |= *known != before;
            });
        }
        changed
    }

    /// Returns the origin of an instruction's results.
    fn made(
        &self,
        at: InstructionId,
        operation: &Operation,
        sources: &[Operand<'_>],
        body: &Body<'_>,
        values: &Values,
    ) -> Origin {
        let mut all = Origin::default();
        sources.iter().for_each(|source| all.add(&self.of_operand(source, body)));
        let is_float = operation.types().iter().any(|ty| ty.is_float());
        match operation.opcode {
            Some(Opcode::Ld) if operation.space == Some(StateSpace::Param) => Origin::default(),
            Some(Opcode::Ld) if is_table(at, operation, values) => {
                Origin { rows: vec![at], ..Origin::default() }
            }
            Some(Opcode::Ld | Opcode::Ldu | Opcode::Atom | Opcode::Tex | Opcode::Call) => {
                Origin { data: true, ..all.scattered() }
            }
            Some(Opcode::Mov | Opcode::Cvt | Opcode::Cvta | Opcode::Add | Opcode::Sub | Opcode::Neg)
                if !is_float =>
            {
                all
            }
            Some(Opcode::Mul | Opcode::Mad) if !is_float && self.scales(sources, body) => all,
            Some(Opcode::Shl) if number(sources.last()).is_some() => all,
            Some(Opcode::Shr) if number(sources.last()).is_some_and(|by| by >= WARP_SHIFT) => {
                Origin { lane: false, ..all.scattered() }
            }
            _ => all.scattered(),
        }
    }

    /// Whether one of two factors is the same for all lanes.
    fn scales(&self, sources: &[Operand<'_>], body: &Body<'_>) -> bool {
        sources.iter().take(2).any(|factor| self.of_operand(factor, body).is_uniform())
    }

    /// Returns the origin of an operand.
    pub fn of_operand(&self, operand: &Operand<'_>, body: &Body<'_>) -> Origin {
        let mut all = Origin::default();
        operand.registers(body, &mut |register| all.add(&self.registers[register.index()]));
        all.lane |= matches!(
            operand,
            Operand::Name(Symbol::Special(SpecialRegister::Laneid))
                | Operand::Component(Symbol::Special(SpecialRegister::Tid), "x")
        );
        all.block |= matches!(operand, Operand::Component(Symbol::Special(SpecialRegister::Ctaid), _));
        all
    }

    /// Returns the origin of a register.
    pub fn of_register(&self, register: RegisterId) -> &Origin {
        &self.registers[register.index()]
    }
}

/// The number that an operand is.
fn number(operand: Option<&Operand<'_>>) -> Option<i128> {
    match operand? {
        Operand::Constant(Constant::Integer(number)) => Some(*number),
        _ => None,
    }
}

/// Whether neighbouring threads load neighbouring values, at addresses that the code tells.
fn is_table(at: InstructionId, operation: &Operation, values: &Values) -> bool {
    let Some(address) = values.address(at, 0) else { return false };
    let (mut by_thread, mut known) = (false, operation.space == Some(StateSpace::Global));
    values.sums().atoms_of(values.sums().get(address.value), &mut |atom| match atom {
        Atom::Thread(axis) => by_thread |= axis == 0,
        Atom::Unknown(_) | Atom::Special(_) => known = false,
        _ => {}
    });
    by_thread && known
}

/// A comparison and whether it holds.
pub(super) struct Condition {
    /// The comparison.
    pub compares: InstructionId,
    /// Whether it holds.
    pub holds: bool,
}

impl<'m> Listing<'_, 'm> {
    /// The last instruction before `at` that writes a register: in the same block, or the only one.
    pub(super) fn writer(&self, at: InstructionId, register: RegisterId) -> Option<InstructionId> {
        let all = self.origins.writers.get(&register)?;
        let before = all[..all.partition_point(|writer| *writer < at)].last().copied();
        let block = self.flow.block(self.flow.block_of(at));
        before.filter(|writer| *writer >= block.first).or(if let [only] = all[..] {
            Some(only)
        } else {
            None
        })
    }

    /// The last instruction before `at` that makes what an operand holds; moves and conversions of
    /// the same value are passed.
    pub(super) fn maker(&self, at: InstructionId, operand: &Operand<'m>) -> Option<InstructionId> {
        let writer = self.writer(at, operand.register()?)?;
        let operation = &self.operations[writer.index()];
        let is_copy = operation.is(&[Opcode::Mov, Opcode::Cvta]);
        match operation.split(&self.body.lines[writer.index()].operands) {
            (_, [source]) if is_copy && source.register().is_some() => self.maker(writer, source),
            _ => Some(writer),
        }
    }

    /// The comparisons that an instruction is executed under, as far as they are known.
    pub(super) fn conditions(&self, at: InstructionId) -> Vec<Condition> {
        let mut found = Vec::new();
        if let Some(guard) = self.body.lines[at.index()].guard {
            self.split(at, guard.symbol, !guard.negated, &mut found);
        }
        let block = self.flow.block_of(at);
        let mut above = self.dominators.parent(block);
        while let Some(parent) = above {
            self.decides(parent, block, &mut found);
            above = self.dominators.parent(parent);
        }
        found
    }

    /// Adds the condition of the branch at the end of a block, if only one of its sides leads to
    /// another one.
    fn decides(&self, parent: BlockId, block: BlockId, found: &mut Vec<Condition>) {
        let Some(last) = self.flow.block(parent).end.0.checked_sub(1).map(InstructionId) else { return };
        let line = &self.body.lines[last.index()];
        let (Some(guard), Control::Branch) = (line.guard, self.operations[last.index()].control()) else {
            return;
        };
        let leads = |side: &&BlockId| {
            self.flow.block(**side).predecessors == [parent] && self.dominators.is_above(**side, block)
        };
        let Some(side) = self.flow.block(parent).successors.iter().find(leads) else { return };
        let falls = self.flow.block(*side).first == self.flow.block(parent).end;
        self.split(last, guard.symbol, falls == guard.negated, found);
    }

    /// The comparisons that a predicate is made of.
    fn split(&self, at: InstructionId, symbol: Symbol<'m>, holds: bool, found: &mut Vec<Condition>) {
        let Some(writer) = symbol.register().and_then(|register| self.writer(at, register)) else { return };
        let operation = &self.operations[writer.index()];
        let (_, sources) = operation.split(&self.body.lines[writer.index()].operands);
        let parts = match (operation.opcode, holds) {
            (Some(Opcode::Setp), _) if operation.logic.is_none() => {
                return found.push(Condition { compares: writer, holds });
            }
            (Some(Opcode::Not), _) => (sources, !holds),
            (Some(Opcode::And), true) | (Some(Opcode::Or), false) => (sources, holds),
            _ => return,
        };
        for source in parts.0 {
            if let Operand::Name(symbol) = source
                && writer < at
            {
                self.split(writer, *symbol, parts.1, found);
            }
        }
    }

    /// The comparison of a condition and what its operands depend on.
    fn compared(&self, condition: &Condition) -> (Option<Comparison>, Vec<Origin>) {
        let operation = &self.operations[condition.compares.index()];
        let (_, sources) = operation.split(&self.body.lines[condition.compares.index()].operands);
        let origins = sources.iter().map(|source| self.origins.of_operand(source, self.body));
        (operation.comparison, origins.collect())
    }

    /// Whether a condition chooses one lane: a number that each lane has a different one of is
    /// equal to one that all share.
    pub(super) fn chooses_a_lane(&self, condition: &Condition) -> bool {
        let (comparison, origins) = self.compared(condition);
        let equal = match comparison {
            Some(Comparison::Equal) => condition.holds,
            Some(Comparison::NotEqual) => !condition.holds,
            _ => false,
        };
        let lanes = origins.iter().filter(|origin| origin.lane && !origin.data).count();
        equal && lanes == 1 && origins.iter().filter(|origin| origin.is_uniform()).count() == 1
    }

    /// Whether each thread executes an instruction, but for bounds of indices: no condition asks
    /// for data, and none for one lane of several.
    pub(super) fn is_for_all(&self, at: InstructionId) -> bool {
        self.conditions(at).iter().all(|condition| {
            let (comparison, origins) = self.compared(condition);
            let exact = matches!(comparison, Some(Comparison::Equal | Comparison::NotEqual) | None);
            let known =
                |origin: &Origin| origin.is_uniform() || !exact && !origin.data && origin.rows.is_empty();
            origins.iter().all(known)
        })
    }
}
