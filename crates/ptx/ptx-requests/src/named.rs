//! Changes that cannot be written into PTX, because they concern data outside of the kernel or the
//! order of its loops: they are named by the pattern of the addresses, and nothing is counted.

use crate::{Change, is_excessive};
use ptx::instruction::Direction;
use ptx::syntax::StateSpace;
use ptx_estimate::{RequestCost, Requested};

/// Largest structure, bytes; farther apart lie rows.
const MOST_STRUCTURE: u64 = 128;

/// The change for each access to global memory that asks for too much, if its pattern is known.
pub(crate) fn changes(accesses: &[Requested]) -> Vec<(usize, Change)> {
    let judged = accesses.iter().enumerate().filter(|(_, access)| {
        access.space == StateSpace::Global && access.direction != Direction::Atomic && is_excessive(access)
    });
    judged.filter_map(|(at, access)| Some((at, change(&access.cost?, access.bytes.into())?))).collect()
}

fn change(cost: &RequestCost, bytes: u64) -> Option<Change> {
    let moves_on = cost.round_step.is_some_and(|step| step.unsigned_abs() == bytes);
    match cost.lane_step.map(i64::unsigned_abs) {
        Some(step) if moves_on && step > bytes => Some(Change::ExchangeLoops),
        Some(step) if step > bytes && step <= MOST_STRUCTURE && !cost.by_parameter => {
            Some(Change::StructureOfArrays { structure_bytes: step })
        }
        Some(step) if step > bytes => Some(Change::TransposeTile),
        _ => None,
    }
}
