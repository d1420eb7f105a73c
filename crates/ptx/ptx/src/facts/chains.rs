//! Loads that wait for each other. Of a chain, each round of a loop loads from an address that the
//! round before has loaded, as along a linked list: no load begins before the one before it has
//! come back. Of a linear search, each round loads the next value of a table, which decides whether
//! there is another round.

use std::collections::HashSet;

use super::{FactKind, Found, Listing, Parts, Place};
use crate::analysis::Atom;
use crate::body::{InstructionId, RegisterId};
use crate::instruction::{Direction, Opcode, accesses};
use crate::syntax::StateSpace;

/// Most passes over a loop until what depends on a load is known; beyond them it is not told.
const MOST_PASSES: usize = 8;

impl Listing<'_, '_> {
    pub(super) fn chains(&self, found: &mut Found<'_>) {
        let (mut all, mut parts) = (0.0, Parts::default());
        for (at, (line, operation)) in self.body.lines.iter().zip(self.operations.iter()).enumerate() {
            let accessed = accesses(operation, &line.operands);
            let Some(access) = accessed.first().filter(|one| one.space == Some(StateSpace::Global)) else {
                continue;
            };
            all += self.weights[at];
            let is_load = access.direction == Direction::Load && !operation.is_strong();
            let (Some(index), Some(address)) = (self.innermost[at], access.base.register()) else { continue };
            if is_load && self.depends(at, index).contains(&address) {
                parts.add(self.weights[at], (0.0, 0.0), Place::of(line));
            }
        }
        found.tell(FactKind::ChainOfLoads, parts, all);
    }

    /// Loops that load one value after another for nothing but a comparison.
    pub(super) fn searches(&self, found: &mut Found<'_>) {
        let (mut all, mut parts) = (0.0, Parts::default());
        for (at, (line, operation)) in self.body.lines.iter().zip(self.operations.iter()).enumerate() {
            let accessed = accesses(operation, &line.operands);
            let Some(access) = accessed.first().filter(|one| one.space == Some(StateSpace::Global)) else {
                continue;
            };
            all += self.weights[at];
            let is_load = access.direction == Direction::Load && !operation.is_strong();
            let Some(index) = self.innermost[at].filter(|_| is_load) else { continue };
            if self.is_compared(at, index) && self.steps(at, index) && !self.writes_data(index) {
                parts.add(self.weights[at], (0.0, 0.0), Place::of(line));
            }
        }
        found.tell(FactKind::LinearSearch, parts, all);
    }

    /// Whether a loop compares what it loads, and does nothing else with it.
    fn is_compared(&self, load: usize, index: usize) -> bool {
        let loaded = self.depends(load, index);
        let mut own = 0;
        self.operations[load].writes(&self.body.lines[load], self.body, &mut |_| own += 1);
        let lines = self.body.lines.iter().zip(self.operations.iter()).enumerate();
        let mut compares = lines.filter(|(at, (_, operation))| {
            self.innermost[*at] == Some(index) && operation.opcode == Some(Opcode::Setp)
        });
        own == 1
            && loaded.len() == 1
            && compares.any(|(_, (line, operation))| {
                let (mut reads, (_, sources)) = (false, operation.split(&line.operands));
                for source in sources {
                    source.registers(self.body, &mut |register| reads |= loaded.contains(&register));
                }
                reads
            })
    }

    /// Whether an access goes on by its own size from round to round of its loop.
    fn steps(&self, at: usize, index: usize) -> bool {
        let at = InstructionId(at as u32);
        let (Some(address), head) = (self.values.address(at, 0), self.loops[index].head) else {
            return false;
        };
        let mut steps = false;
        self.values.sums().atoms_of(self.values.sums().get(address.value), &mut |atom| {
            steps |= matches!(atom, Atom::Round(round) if self.values.loops()[round as usize].head == head);
        });
        steps
    }

    /// Whether a loop stores anything, or adds to memory.
    fn writes_data(&self, index: usize) -> bool {
        let lines = self.body.lines.iter().zip(self.operations.iter()).enumerate();
        lines.filter(|(at, _)| self.innermost[*at] == Some(index)).any(|(_, (line, operation))| {
            let accessed = accesses(operation, &line.operands);
            accessed.iter().any(|access| access.direction != Direction::Load)
        })
    }

    /// The registers whose values a loop computes from what an instruction of it loads; those that
    /// a comparison decides are left out.
    fn depends(&self, load: usize, index: usize) -> HashSet<RegisterId> {
        let mut depends = HashSet::new();
        self.operations[load].writes(&self.body.lines[load], self.body, &mut |register| {
            depends.insert(register);
        });
        for _ in 0..MOST_PASSES {
            let before = depends.len();
            for (at, (line, operation)) in self.body.lines.iter().zip(self.operations.iter()).enumerate() {
                if self.innermost[at] != Some(index) || operation.opcode == Some(Opcode::Setp) {
                    continue;
                }
                let (mut reads, (_, sources)) = (false, operation.split(&line.operands));
                for source in sources {
                    source.registers(self.body, &mut |register| reads |= depends.contains(&register));
                }
                if reads {
                    operation.writes(line, self.body, &mut |register| {
                        depends.insert(register);
                    });
                }
            }
            if depends.len() == before {
                return depends;
            }
        }
        HashSet::new()
    }
}
