//! Accesses that are checked together: those of a block whose address is the same register with
//! different offsets, unless the register is written between them, and that all threads make that
//! are in the block.

use std::collections::{HashMap, HashSet};

use crate::context::{Early, Group};
use crate::liveness::Set;
use crate::region::{Address, Element, Guard, Instruction, Operation, Reg, Region};

/// The largest difference of offsets in a group.
const SPAN: i64 = 1 << 20;

/// What accesses of a group have in common: address, key, the number of elements, what they are,
/// and the guard.
type Key = (Address, u64, usize, Element, Option<Guard>);

/// The groups of a region.
pub(crate) struct Groups {
    pub(crate) all: Vec<Group>,
    /// The groups whose addresses may be known on entering, to who checks them for all strips at
    /// once: single words or longs at an index that the region does not change.
    pub(crate) early: Vec<Early>,
    /// For each access, in order: its group, and whether it is the first.
    pub(crate) of_access: Vec<(usize, bool)>,
    /// The number of accesses in each group.
    pub(crate) members: Vec<u32>,
}

impl Groups {
    /// Groups whose threads probably access the same are checked when they do.
    pub(crate) fn of(region: &Region, same: &Set) -> Groups {
        let mut groups =
            Groups { all: Vec::new(), early: Vec::new(), of_access: Vec::new(), members: Vec::new() };
        let written: HashSet<Reg> = region.definitions().collect();
        for block in &region.blocks {
            let mask = block.mask.as_ref().map(|mask| mask.here).or(block.lane_loop.map(|of| of.mask));
            let mut open: HashMap<Key, usize> = HashMap::new();
            for instruction in &block.instructions {
                groups.add(instruction, mask, &mut open);
                groups.note_early(instruction, &written, same);
                let written = instruction.definitions();
                open.retain(|(address, ..), _| !written.contains(&address.register()));
            }
        }
        groups
    }

    /// Notes the group that an access has begun, if its address is known on entering.
    fn note_early(&mut self, instruction: &Instruction, written: &HashSet<Reg>, same: &Set) {
        let Operation::Access(access) = &instruction.operation else { return };
        if let Some(&(group, true)) = self.of_access.last()
            && access.data.len() == 1
            && !access.of_lane
            && matches!(access.address, Address::Indexed { .. })
            && !written.contains(&access.address.register())
            && !same.has(access.address.register())
        {
            self.early.push(Early { group, access: self.of_access.len() - 1 });
        }
    }

    /// Adds an access of a block with this mask, if the instruction is one.
    fn add(&mut self, instruction: &Instruction, mask: Option<Reg>, open: &mut HashMap<Key, usize>) {
        let Operation::Access(access) = &instruction.operation else { return };
        let (offset, bytes) = (access.offset, access.bytes());
        let key = (access.address, access.key, access.data.len(), access.element, instruction.guard);
        // The same threads access then: the block does not change its mask.
        let shares = instruction.guard.is_none_or(|guard| Some(guard.predicate) == mask);
        let joins = |group: &Group| {
            (group.least - offset) % bytes == 0
                && (offset - group.least).abs() < SPAN
                && (offset - group.most).abs() < SPAN
        };
        let known = open.get(&key).copied().filter(|&index| joins(&self.all[index]) && shares);
        match known {
            Some(index) => {
                let group = &mut self.all[index];
                (group.least, group.most) = (group.least.min(offset), group.most.max(offset));
                group.store |= access.store;
                self.members[index] += 1;
                self.of_access.push((index, false));
            }
            None => {
                self.all.push(Group {
                    least: offset,
                    most: offset,
                    bytes: bytes as u64,
                    store: access.store,
                });
                self.members.push(1);
                self.of_access.push((self.all.len() - 1, true));
                if shares {
                    open.insert(key, self.all.len() - 1);
                }
            }
        }
    }
}
