//! Reaching definitions: the definition of a register that an instruction reads, as static single
//! assignment would name it, without rewriting.

use std::collections::HashMap;

use crate::body::{Body, InstructionId, RegisterId};
use crate::flow::{BlockId, Flow, Tree};
use crate::instruction::Operation;

/// Most entries of the table of definitions, registers times blocks.
const MOST_ENTRIES: usize = 1 << 20;

/// Most passes over the blocks until the table is stable.
const MOST_PASSES: usize = 64;

/// The origin of a register's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Origin {
    /// The function begins with it.
    Entry,
    /// The instruction wrote it. Under a guard it may have kept what was there before.
    Instruction(InstructionId),
    /// It is what the register holds where the block begins.
    Block(BlockId),
}

/// A value of a register: what the register holds from its origin to the next write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Definition {
    /// The register.
    pub register: RegisterId,
    /// The origin of the value.
    pub origin: Origin,
}

/// The number of times that a register is written.
#[derive(Clone, Copy, PartialEq)]
enum Writes {
    Never,
    /// By this instruction.
    Once(InstructionId),
    /// It has this place among the registers of the table.
    Several(usize),
}

/// The definitions that reach the blocks of a function.
///
/// A definition reaches a use if every path to the use passes its origin later than any other write
/// of the register. Registers that are written once need no table: their definition reaches what
/// its block dominates. Where none does, the [block](Origin::Block) of the use is the origin.
pub struct Definitions<'f> {
    flow: &'f Flow,
    dominators: Tree,
    writes: Vec<Writes>,
    /// Registers of the table.
    columns: usize,
    /// By block and place among the registers of the table; empty if the table would be too large.
    entries: Vec<Option<Origin>>,
    /// The last write of each register of the table in each block.
    last: Vec<Option<Origin>>,
}

impl<'f> Definitions<'f> {
    /// The definitions of a listing, whose operations and blocks are given.
    pub fn of(body: &Body<'_>, operations: &[Operation], flow: &'f Flow) -> Definitions<'f> {
        let (mut writes, mut columns) = (vec![Writes::Never; body.registers.len()], 0);
        for (at, (line, operation)) in (0..).map(InstructionId).zip(body.lines.iter().zip(operations)) {
            operation.writes(line, body, &mut |register| {
                let known = &mut writes[register.index()];
                *known = match *known {
                    Writes::Never => Writes::Once(at),
                    Writes::Once(_) => {
                        columns += 1;
                        Writes::Several(columns - 1)
                    }
                    several => several,
                };
            });
        }
        let dominators = flow.dominators();
        let mut found =
            Definitions { flow, dominators, writes, columns, entries: Vec::new(), last: Vec::new() };
        found.fill(body, operations);
        found
    }

    fn fill(&mut self, body: &Body<'_>, operations: &[Operation]) {
        let (blocks, columns) = (self.flow.blocks.len(), self.columns);
        if columns == 0 || blocks.saturating_mul(columns) > MOST_ENTRIES {
            return;
        }
        let mut last: Vec<Option<Origin>> = vec![None; blocks * columns];
        for (at, (line, operation)) in (0..).map(InstructionId).zip(body.lines.iter().zip(operations)) {
            let row = self.flow.block_of(at).index() * columns;
            operation.writes(line, body, &mut |register| {
                if let Writes::Several(column) = self.writes[register.index()] {
                    last[row + column] = Some(Origin::Instruction(at));
                }
            });
        }
        let order = self.flow.reverse_postorder();
        let mut entries: Vec<Option<Origin>> = vec![None; blocks * columns];
        for _ in 0..MOST_PASSES {
            let mut changed = false;
            for &block in &order {
                for column in 0..columns {
                    let at = block.index() * columns + column;
                    let met = self.meet(block, column, &entries, &last);
                    changed |= entries[at] != met;
                    entries[at] = met;
                }
            }
            if !changed {
                (self.entries, self.last) = (entries, last);
                return;
            }
        }
    }

    /// Returns the origin of a register's value at the beginning of a block, as far as its
    /// predecessors are known.
    fn meet(
        &self,
        block: BlockId,
        column: usize,
        entries: &[Option<Origin>],
        last: &[Option<Origin>],
    ) -> Option<Origin> {
        let own = Origin::Block(block);
        if entries[block.index() * self.columns + column] == Some(own) {
            return Some(own);
        }
        let mut met = (block.index() == 0).then_some(Origin::Entry);
        for before in &self.flow.block(block).predecessors {
            let at = before.index() * self.columns + column;
            let Some(origin) = last[at].or(entries[at]) else { continue };
            if met.is_some_and(|met| met != origin) {
                return Some(own);
            }
            met = Some(origin);
        }
        met
    }

    /// The trees that say which block dominates which.
    pub fn dominators(&self) -> &Tree {
        &self.dominators
    }

    /// The definition of a register that reaches the beginning of a block.
    pub fn at_entry(&self, register: RegisterId, block: BlockId) -> Definition {
        let here = Origin::Block(block);
        let origin = match self.writes[register.index()] {
            Writes::Never => Origin::Entry,
            Writes::Once(at) => {
                let home = self.flow.block_of(at);
                let reaches = home != block && self.dominators.is_above(home, block);
                if reaches { Origin::Instruction(at) } else { here }
            }
            Writes::Several(column) => {
                let entry = self.entries.get(block.index() * self.columns + column);
                entry.copied().flatten().unwrap_or(here)
            }
        };
        Definition { register, origin }
    }

    /// The definition of a register that reaches the end of a block. None where the register is not
    /// written more than once, and where the table would be too large.
    pub fn at_exit(&self, register: RegisterId, block: BlockId) -> Option<Definition> {
        let Writes::Several(column) = self.writes[register.index()] else { return None };
        let at = block.index() * self.columns + column;
        let origin = self.last.get(at).copied().flatten().or(self.entries.get(at).copied().flatten())?;
        Some(Definition { register, origin })
    }

    /// The registers that are written more than once.
    pub fn rewritten(&self) -> impl Iterator<Item = RegisterId> {
        let several = |(_, writes): &(u32, &Writes)| matches!(writes, Writes::Several(_));
        (0..).zip(&self.writes).filter(several).map(|(register, _)| RegisterId(register))
    }

    /// Follows the instructions of a block.
    pub fn follow(&self, block: BlockId) -> Cursor<'_, 'f> {
        Cursor { definitions: self, block, written: HashMap::new() }
    }
}

/// A place in a block, before one of its instructions.
pub struct Cursor<'d, 'f> {
    definitions: &'d Definitions<'f>,
    block: BlockId,
    /// The last write of each register in the block so far.
    written: HashMap<RegisterId, InstructionId>,
}

impl Cursor<'_, '_> {
    /// The definition of a register that reaches the place.
    pub fn definition(&self, register: RegisterId) -> Definition {
        match self.written.get(&register) {
            Some(&at) => Definition { register, origin: Origin::Instruction(at) },
            None => self.definitions.at_entry(register, self.block),
        }
    }

    /// Goes on behind an instruction; calls `visit` for each definition that it makes.
    pub fn pass(
        &mut self,
        at: InstructionId,
        operation: &Operation,
        body: &Body<'_>,
        visit: &mut impl FnMut(Definition),
    ) {
        operation.writes(&body.lines[at.index()], body, &mut |register| {
            self.written.insert(register, at);
            visit(Definition { register, origin: Origin::Instruction(at) });
        });
    }
}
