//! Quick versions of blocks, for the usual case.
//!
//! A block with several accesses at one address, and a loop that threads leave one by one, are
//! generated twice. The *quick* version is for strips whose threads are all in the block and access
//! memory as expected: its loops need no masks, and only the first access of a group is checked.
//! Where something else is found, the code goes on at the same access of the *careful* version,
//! which finds out everything itself; registers are at the same places, and a [`Slots`] has what
//! earlier accesses have found. The careful version leads back to quick ones.

use super::access::{Mode, Slots};
use super::{B, C, Generator};
use crate::assembler::{Gpr, If, Label, R8, R9, R10, R11, RAX, RSP, Rm, op};
use crate::context::Bases;
use crate::groups::Groups;
use crate::liveness::Set;
use crate::region::{Access, Address, Block, Guard, Instruction, Region};

/// A version of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// There is no other.
    Only,
    Quick,
    /// It stands elsewhere, and takes over from the quick one.
    Careful,
}

/// The way in which the threads of a strip are expected to access memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Consecutive,
    Same,
}

/// General registers that keep the bases of groups.
const KEEPERS: [Gpr; 3] = [R9, R10, R11];

/// The groups whose bases general registers keep.
#[derive(Default)]
pub(super) struct Kept([Option<usize>; KEEPERS.len()]);

impl Kept {
    /// The register that keeps the base of a group.
    fn of(&self, group: usize) -> Option<Gpr> {
        self.0.iter().position(|kept| *kept == Some(group)).map(|place| KEEPERS[place])
    }

    /// A register for the base of a group, if one is free.
    fn take(&mut self, group: usize) -> Option<Gpr> {
        let place = self.0.iter().position(Option::is_none)?;
        self.0[place] = Some(group);
        Some(KEEPERS[place])
    }
}

/// Whether each block has a quick version.
pub(super) fn quick_blocks(region: &Region, groups: &Groups) -> Vec<bool> {
    let mut of_access = groups.of_access.iter();
    let is_quick = |block: &Block| {
        let repeats = of_access.by_ref().take(block.accesses()).filter(|(_, first)| !first).count() > 0;
        block.mask.is_none() && (block.lane_loop.is_some() || repeats)
    };
    region.blocks.iter().map(is_quick).collect()
}

impl<'r> Generator<'r> {
    /// The guard of an instruction in the version that is generated: in a quick one all threads are
    /// in the loop.
    pub(super) fn remaining_guard(&self, block: &Block, instruction: &Instruction) -> Option<Guard> {
        let stays = |guard: &Guard| {
            let mask = block.lane_loop.map(|lane_loop| lane_loop.mask);
            mask == Some(guard.predicate) && !guard.negated
        };
        instruction.guard.filter(|guard| self.version != Version::Quick || !stays(guard))
    }

    /// An access in a quick version.
    pub(super) fn quick_access(&mut self, access: &'r Access, guard: Option<Guard>, live: Set) {
        let (group, first) = self.groups.of_access[self.accesses];
        let Some(way) = self.way(access, guard, group) else { return self.access(access, guard, live) };
        let slots = self.slots(group);
        let base = match first {
            true => self.first_base(access, way, (group, slots)),
            false => self.known_base(group, slots),
        };
        self.accesses += 1;
        match way {
            Way::Consecutive => self.consecutive(access, slots, base),
            Way::Same => self.load_same(access, slots, base),
        }
    }

    /// The way in which a group is expected to be accessed, if that is a quick one.
    fn way(&self, access: &Access, guard: Option<Guard>, group: usize) -> Option<Way> {
        let same = self.same.has(access.address.register());
        match guard {
            Some(_) => None,
            None if access.of_lane => None,
            None if same => (!self.groups.all[group].store).then_some(Way::Same),
            None => (access.data.len() == 1).then_some(Way::Consecutive),
        }
    }

    /// The register that has the base of a group which has been accessed.
    fn known_base(&mut self, group: usize, slots: Slots) -> Gpr {
        self.kept.of(group).unwrap_or_else(|| {
            self.asm.load(RAX, RSP, slots.base);
            RAX
        })
    }

    /// The register that has the base of a group at its first access. If the threads do not access
    /// as expected, the careful version takes over.
    fn first_base(&mut self, access: &'r Access, way: Way, (group, slots): (usize, Slots)) -> Gpr {
        let careful = self.asm.label();
        self.resume[self.accesses] = Some(careful);
        let early = self.groups.early.iter().position(|early| early.group == group);
        match early {
            Some(place) => self.early_base(access, way, (place, slots), careful),
            None => self.find_base(access, way, slots, careful),
        }
        if self.groups.members[group] == 1 {
            return RAX;
        }
        let mode = if way == Way::Same { Mode::SAME } else { Mode::CONSECUTIVE };
        self.asm.store(RSP, slots.base, RAX);
        self.asm.store_number(RSP, slots.mode, mode);
        let Some(keeper) = self.kept.take(group) else { return RAX };
        self.asm.copy(keeper, RAX);
        keeper
    }

    /// The base in `rax`, which may be known on entering.
    fn early_base(&mut self, access: &'r Access, way: Way, (place, slots): (usize, Slots), careful: Label) {
        let (unknown, found) = (self.asm.label(), self.asm.label());
        self.asm.load(RAX, R8, size_of::<Bases>() as i32 * place as i32);
        self.asm.test_zero(RAX);
        self.asm.jump_if(If::Zero, unknown);
        self.asm.bind(found);
        self.later.push(Box::new(move |this| {
            this.asm.bind(unknown);
            this.find_base(access, way, slots, careful);
            this.asm.jump(found);
        }));
    }

    /// Finds the base, which is left in `rax`; goes to `careful` if the threads do not access as
    /// expected, or may not.
    fn find_base(&mut self, access: &Access, way: Way, slots: Slots, careful: Label) {
        let step = (way == Way::Consecutive).then(|| access.element.bytes() as u32);
        match access.address {
            Address::Long(reg) => self.compare_longs(reg, step, careful),
            Address::Word(reg) => self.compare_words(reg, false, 0, step, careful),
            Address::Indexed { index, signed, shift } => {
                self.compare_words(index, signed, shift, step, careful);
            }
        }
        if way == Way::Same {
            if let Address::Long(_) = access.address {
                self.asm.vector(op::POR, B, B, Rm::Ymm(C));
            }
            self.asm.two(op::PTEST, B, Rm::Ymm(B));
            self.asm.jump_if(If::NotZero, careful);
            if let Address::Indexed { signed, shift, .. } = access.address {
                self.extend_first(signed, shift);
            }
        }
        self.allow(if way == Way::Same { 1 } else { 8 }, slots, careful);
    }
}
