//! Chains of loads: each round of a loop loads from an address that the round before has loaded, as
//! along a linked list. No load begins before the one before it has come back.

use std::collections::HashSet;

use super::{FactKind, Found, Listing, Parts, Place};
use crate::body::RegisterId;
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
