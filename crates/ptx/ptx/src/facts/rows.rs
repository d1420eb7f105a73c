//! Rows: neighbouring threads walk along rows that begin where a table says.
//!
//! Each thread loads the beginning of its row, a pointer or an index, from a table, and a loop goes
//! on from there. The lanes of a warp then read addresses a row apart. Where lanes of one row read
//! side by side, the address depends on the lane too, and no row is reported.

use super::{FactKind, Found, Listing, Parts, Place};
use crate::body::InstructionId;
use crate::instruction::{Direction, accesses};
use crate::syntax::StateSpace;

/// Lanes of a warp, each with a sector of its own.
const LANES: f64 = 32.0;
/// Bytes of a sector.
const SECTOR: f64 = 32.0;

impl Listing<'_, '_> {
    pub(super) fn rows(&self, found: &mut Found<'_>) {
        let mut all = 0.0;
        // Of short rows, neighbours lie in the same sectors.
        let mut parts = Parts { by_parameter: true, ..Parts::default() };
        for (at, (line, operation)) in self.body.lines.iter().zip(self.operations.iter()).enumerate() {
            let accessed = accesses(operation, &line.operands);
            let moves =
                |space, direction| space == Some(StateSpace::Global) && direction != Direction::Atomic;
            let Some(access) = accessed.first().filter(|one| moves(one.space, one.direction)) else {
                continue;
            };
            all += self.weights[at];
            if self.walks(InstructionId(at as u32), access.base.register()) {
                let least = (access.bytes as f64 * LANES / SECTOR).min(LANES);
                parts.add(self.weights[at], (LANES, least), Place::of(line));
            }
        }
        found.tell(FactKind::RowsByThread, parts, all);
    }

    /// Whether an access goes along a row of its lane's own in the rounds of a loop.
    fn walks(&self, at: InstructionId, address: Option<crate::body::RegisterId>) -> bool {
        let (Some(index), Some(address)) = (self.innermost[at.index()], address) else { return false };
        let origin = self.origins.of_register(address);
        let outside = |load: &InstructionId| {
            self.loops[index].blocks.binary_search(&self.flow.block_of(*load)).is_err()
        };
        !origin.lane
            && !origin.data
            && !origin.rows.is_empty()
            && origin.rows.iter().all(outside)
            && !self.stays(at, index)
    }
}
