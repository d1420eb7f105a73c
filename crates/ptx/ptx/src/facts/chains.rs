//! Loads that wait for each other. Of a chain, each round of a loop loads from an address that the
//! round before has loaded, as along a linked list: no load begins before the one before it has
//! come back. Of a linear search, each round loads the next value of a table, which decides whether
//! there is another round.

use std::collections::HashSet;

use super::{FactKind, Found, Listing, Parts, Place};
use crate::analysis::Atom;
use crate::body::{InstructionId, RegisterId};
use crate::instruction::{Direction, Opcode, Operation, accesses};
use crate::syntax::{ScalarType, StateSpace};

/// Most passes over a loop until what depends on a load is known; beyond them it is not told.
const MOST_PASSES: usize = 8;

impl Listing<'_, '_> {
    /// Loads from an address that the round before has loaded.
    pub(super) fn chains(&self, found: &mut Found<'_>) {
        self.tell_loads(FactKind::ChainOfLoads, found, |at, index, address| {
            address.is_some_and(|address| self.depends(at, index).contains(&address))
        });
    }

    /// Loops that load one value after another for nothing but a comparison.
    pub(super) fn searches(&self, found: &mut Found<'_>) {
        self.tell_loads(FactKind::LinearSearch, found, |at, index, _| {
            self.is_compared(at, index) && self.steps(at, index) && !self.writes_data(index)
        });
    }

    /// Tells those loads of loops from global memory that are such, by instruction, loop and
    /// register of the address.
    fn tell_loads(
        &self,
        kind: FactKind,
        found: &mut Found<'_>,
        is_such: impl Fn(usize, usize, Option<RegisterId>) -> bool,
    ) {
        let (mut all, mut parts) = (0.0, Parts::default());
        for (at, (line, operation)) in self.body.lines.iter().zip(self.operations.iter()).enumerate() {
            let accessed = accesses(operation, &line.operands);
            let Some(access) = accessed.first().filter(|one| one.space == Some(StateSpace::Global)) else {
                continue;
            };
            all += self.weights[at];
            let is_load = access.direction == Direction::Load && !operation.is_strong();
            let Some(index) = self.innermost[at].filter(|_| is_load) else { continue };
            if is_such(at, index, access.base.register()) {
                parts.add(self.weights[at], (0.0, 0.0), Place::of(line));
            }
        }
        found.tell(kind, parts, all);
    }

    /// Whether a loop does nothing with what it loads but to compare it, and ends by the
    /// comparison: one that counts what compares goes over the whole table.
    fn is_compared(&self, load: usize, index: usize) -> bool {
        let loaded = self.depends(load, index);
        let mut own = 0;
        self.operations[load].writes(&self.body.lines[load], self.body, &mut |_| own += 1);
        own == 1 && loaded.len() == 1 && self.ends_by(&self.deciding(loaded, index), index)
    }

    /// The predicates that a loop computes from values, by comparisons and from such predicates.
    fn deciding(&self, values: HashSet<RegisterId>, index: usize) -> HashSet<RegisterId> {
        let is_of_predicates = |operation: &Operation| {
            operation.opcode == Some(Opcode::Setp) || operation.types().contains(&ScalarType::Pred)
        };
        self.computed(values, index, is_of_predicates).0
    }

    /// Whether one of these predicates decides if a loop is left.
    fn ends_by(&self, predicates: &HashSet<RegisterId>, index: usize) -> bool {
        let inside = &self.loops[index].blocks;
        inside.iter().map(|block| &self.flow.blocks[block.index()]).any(|block| {
            let last = &self.body.lines[block.end.index() - 1];
            let guard = last.guard.as_ref().and_then(|guard| guard.symbol.register());
            let leaves = block.leaves || block.successors.iter().any(|next| !inside.contains(next));
            leaves && guard.is_some_and(|guard| predicates.contains(&guard))
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
    /// a comparison decides are left out. None if there are too many steps between.
    fn depends(&self, load: usize, index: usize) -> HashSet<RegisterId> {
        let mut loaded = HashSet::new();
        self.operations[load].writes(&self.body.lines[load], self.body, &mut |register| {
            loaded.insert(register);
        });
        let (depends, are_all) =
            self.computed(loaded, index, |operation| operation.opcode != Some(Opcode::Setp));
        if are_all { depends } else { HashSet::new() }
    }

    /// These registers and those that a loop computes from them by such operations; and whether
    /// they are all.
    fn computed(
        &self,
        mut known: HashSet<RegisterId>,
        index: usize,
        is_such: impl Fn(&Operation) -> bool,
    ) -> (HashSet<RegisterId>, bool) {
        for _ in 0..MOST_PASSES {
            let before = known.len();
            for (at, (line, operation)) in self.body.lines.iter().zip(self.operations.iter()).enumerate() {
                if self.innermost[at] != Some(index) || !is_such(operation) {
                    continue;
                }
                let (mut reads, (_, sources)) = (false, operation.split(&line.operands));
                for source in sources {
                    source.registers(self.body, &mut |register| reads |= known.contains(&register));
                }
                if reads {
                    operation.writes(line, self.body, &mut |register| {
                        known.insert(register);
                    });
                }
            }
            if known.len() == before {
                return (known, true);
            }
        }
        (known, false)
    }
}
