//! Guesses which registers are the same in all threads of a strip: those that the caller names on
//! entering, and those that are computed or loaded from these alone. Only speed depends on it.

use crate::liveness::{Liveness, Set};
use crate::region::{Instruction, Meeting, Reg, Region, Register, Target};

/// The registers that are probably the same, if `starts_same` says so of those that are live at the
/// start.
pub(crate) fn same_registers(
    region: &Region,
    liveness: &Liveness,
    starts_same: &dyn Fn(&Register) -> bool,
) -> Set {
    let mut same = Set::new(region.registers.len());
    (0..region.registers.len() as u32).for_each(|reg| same.insert(Reg(reg)));
    for reg in liveness.at(region, None, Target::Block(0)).iter() {
        if !starts_same(&region.registers[reg.0 as usize]) {
            same.remove(reg);
        }
    }
    region.meetings.iter().flat_map(Meeting::definitions).for_each(|reg| same.remove(reg));
    let mut settled = false;
    while !settled {
        settled = true;
        for instruction in region.blocks.iter().flat_map(|block| &block.instructions) {
            settled &= !contradicts(instruction, &mut same);
        }
    }
    same
}

/// Takes what an instruction writes out of the set, if it acts in some threads only or reads others
/// than these; whether that changes the set.
fn contradicts(instruction: &Instruction, same: &mut Set) -> bool {
    if instruction.guard.is_none() && instruction.uses().iter().all(|reg| same.has(*reg)) {
        return false;
    }
    let written = instruction.definitions().into_iter().filter(|reg| same.has(*reg));
    let written: Vec<Reg> = written.collect();
    written.iter().for_each(|&reg| same.remove(reg));
    !written.is_empty()
}
