//! Liveness of a region's registers, and which vector register or memory each gets.
//!
//! A linear scan over the instructions in order: a register is live from the first to the last
//! moment at which it is. Of those that do not fit, the ones that are used least for their length
//! stay in memory: on the stack, or, if the region never writes them, in the frame.

use crate::region::{Class, End, Mask, Operation, Reg, Region, Target};

/// A set of registers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Set(Vec<u64>);

impl Set {
    pub(crate) fn new(registers: usize) -> Set {
        Set(vec![0; registers.div_ceil(64)])
    }

    pub(crate) fn has(&self, reg: Reg) -> bool {
        self.0[reg.0 as usize / 64] >> (reg.0 % 64) & 1 != 0
    }

    pub(crate) fn insert(&mut self, reg: Reg) {
        self.0[reg.0 as usize / 64] |= 1 << (reg.0 % 64);
    }

    pub(crate) fn remove(&mut self, reg: Reg) {
        self.0[reg.0 as usize / 64] &= !(1 << (reg.0 % 64));
    }

    pub(crate) fn add(&mut self, other: &Set) {
        self.0.iter_mut().zip(&other.0).for_each(|(here, there)| *here |= there);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Reg> {
        self.0.iter().enumerate().flat_map(|(index, &word)| {
            let words = std::iter::successors(Some(word), |&word| Some(word & word.wrapping_sub(1)));
            let words = words.take_while(|word| *word != 0);
            words.map(move |word| Reg(64 * index as u32 + word.trailing_zeros()))
        })
    }
}

/// The registers that are live at the start of each block, and before each of its instructions.
pub(crate) struct Liveness {
    pub(crate) starts: Vec<Set>,
}

impl Liveness {
    pub(crate) fn of(region: &Region) -> Liveness {
        let mut found = Liveness { starts: vec![Set::new(region.registers.len()); region.blocks.len()] };
        let mut changed = true;
        while changed {
            changed = false;
            for block in (0..region.blocks.len()).rev() {
                let live =
                    found.before(region, block).next_back().unwrap_or_else(|| found.at_end(region, block));
                changed |= live != found.starts[block];
                found.starts[block] = live;
            }
        }
        found
    }

    /// The registers that are needed after a jump to `target` from a block, or from outside.
    pub(crate) fn at(&self, region: &Region, from: Option<usize>, target: Target) -> Set {
        match target {
            Target::Block(block) => {
                let mut set = self.starts[block as usize].clone();
                if let Some(lane_loop) = region.blocks[block as usize].lane_loop
                    && from != Some(block as usize)
                {
                    // Who enters the loop sets them.
                    set.remove(lane_loop.mask);
                    set.remove(lane_loop.laps);
                }
                set
            }
            Target::Exit(exit) => {
                let mut set = Set::new(region.registers.len());
                region.exits[exit as usize].iter().for_each(|reg| set.insert(*reg));
                set
            }
        }
    }

    /// The registers that are needed by the end of a block and after it.
    pub(crate) fn at_end(&self, region: &Region, block: usize) -> Set {
        let mut live = Set::new(region.registers.len());
        let end = region.blocks[block].end;
        end.targets().into_iter().for_each(|target| live.add(&self.at(region, Some(block), target)));
        if let End::Branch { guard, .. } = end {
            live.insert(guard.predicate);
        }
        if let Some(meeting) = region.meeting(block) {
            meeting.definitions().into_iter().for_each(|reg| live.remove(reg));
            meeting.uses().into_iter().for_each(|reg| live.insert(reg));
        }
        if let Some(guard) = region.blocks[block].counted {
            live.insert(guard.predicate);
        }
        if let Some(lane_loop) = region.blocks[block].lane_loop {
            live.insert(lane_loop.mask);
            live.insert(lane_loop.laps);
        }
        live
    }

    /// The registers live before each instruction of a block, the last instruction first; the last
    /// set is that of the first instruction.
    fn before<'s>(&'s self, region: &'s Region, block: usize) -> impl DoubleEndedIterator<Item = Set> + 's {
        let mut live = self.at_end(region, block);
        let mask = &region.blocks[block].mask;
        let sets: Vec<Set> = region.blocks[block]
            .instructions
            .iter()
            .rev()
            .map(|instruction| {
                instruction.definitions().into_iter().for_each(|reg| live.remove(reg));
                instruction.uses().into_iter().for_each(|reg| live.insert(reg));
                // Who stops at an access says where all threads are.
                if let Some(Mask { here, later }) = mask {
                    [here].into_iter().chain(later).for_each(|reg| live.insert(*reg));
                }
                live.clone()
            })
            .collect();
        sets.into_iter()
    }

    /// The registers live before each instruction of a block, in order, and before its end.
    pub(crate) fn of_block(&self, region: &Region, block: usize) -> Vec<Set> {
        let mut sets: Vec<Set> = self.before(region, block).collect();
        sets.reverse();
        sets.push(self.at_end(region, block));
        sets
    }
}

/// Where a half of a long, or another register, is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    /// In a vector register.
    Ymm(u8),
    /// On the stack, by number.
    Stack(u32),
    /// Where the region found it in the frame.
    Frame,
    /// Nowhere: nobody reads or writes it.
    Nowhere,
}

/// The homes of a region's registers: both halves of longs.
pub(crate) struct Homes {
    pub(crate) of: Vec<[Home; 2]>,
    /// The number of places on the stack.
    pub(crate) stack: u32,
}

/// Vector registers that are given out; the others are the generator's own.
pub(crate) const REGISTERS: u8 = 13;

/// A unit that gets a vector register: a register, or half of a long.
struct Unit {
    reg: Reg,
    half: usize,
    first: usize,
    last: usize,
    weight: f64,
    written: bool,
    /// The register whose place it would best take.
    wish: Option<Reg>,
}

/// Gives each register a home.
pub(crate) fn allocate(region: &Region, liveness: &Liveness) -> Homes {
    let mut units = units(region, liveness);
    let mut homes = Homes { of: vec![[Home::Nowhere; 2]; region.registers.len()], stack: 0 };
    units.sort_by_key(|unit| unit.first);
    let mut free: Vec<u8> = (0..REGISTERS).rev().collect();
    let mut active: Vec<(usize, u8)> = Vec::new();
    for index in 0..units.len() {
        let unit = &units[index];
        active.retain(|&(other, register)| {
            let stays = units[other].last >= unit.first;
            if !stays {
                free.push(register);
            }
            stays
        });
        let is_worth_it = unit.written || unit.weight >= 2.0;
        // Where the result may replace a source, it does: nothing has to be copied.
        let wished = unit.wish.map(|reg| homes.of[reg.0 as usize][0]);
        let place = free.iter().position(|&register| Some(Home::Ymm(register)) == wished);
        let place = place.or(free.len().checked_sub(1)).filter(|_| is_worth_it);
        let (loser, register) = match place {
            _ if !is_worth_it => (index, None),
            Some(place) => (usize::MAX, Some(free.remove(place))),
            None => {
                let value =
                    |index: usize| units[index].weight / (1 + units[index].last - units[index].first) as f64;
                let least = active.iter().copied().min_by(|a, b| value(a.0).total_cmp(&value(b.0)));
                match least {
                    Some((other, register)) if value(other) < value(index) => (other, Some(register)),
                    _ => (index, None),
                }
            }
        };
        if loser != usize::MAX {
            let Unit { reg, half, written, .. } = units[loser];
            let needs_stack = written || region.registers[reg.0 as usize].class == Class::Predicate;
            homes.of[reg.0 as usize][half] = match needs_stack {
                true => {
                    homes.stack += 1;
                    Home::Stack(homes.stack - 1)
                }
                false => Home::Frame,
            };
            active.retain(|&(other, _)| other != loser);
        }
        if let Some(register) = register {
            homes.of[unit.reg.0 as usize][unit.half] = Home::Ymm(register);
            active.push((index, register));
        }
    }
    homes
}

/// Number of loops around each block.
fn depths(region: &Region) -> Vec<i32> {
    let mut depths = vec![0; region.blocks.len()];
    for (at, block) in region.blocks.iter().enumerate() {
        for target in block.end.targets() {
            if let Target::Block(to) = target
                && to as usize <= at
            {
                depths[to as usize..=at].iter_mut().for_each(|depth| *depth += 1);
            }
        }
    }
    depths
}

fn units(region: &Region, liveness: &Liveness) -> Vec<Unit> {
    let count = region.registers.len();
    let (mut first, mut last) = (vec![usize::MAX; count], vec![0; count]);
    let (mut weight, mut written) = (vec![0.0; count], vec![false; count]);
    let mut cover = |reg: Reg, moment: usize| {
        let index = reg.0 as usize;
        (first[index], last[index]) = (first[index].min(moment), last[index].max(moment));
    };
    let depths = depths(region);
    let mut wish = vec![None; count];
    let mut moment = 1;
    // What is live at the start of the region is loaded before it.
    liveness.at(region, None, Target::Block(0)).iter().for_each(|reg| cover(reg, 0));
    for (index, block) in region.blocks.iter().enumerate() {
        let sets = liveness.of_block(region, index);
        let worth = 10f64.powi(depths[index].min(4));
        for (instruction, live) in block.instructions.iter().zip(&sets) {
            live.iter().for_each(|reg| cover(reg, moment));
            for reg in instruction.uses() {
                cover(reg, moment);
                weight[reg.0 as usize] += worth;
            }
            for reg in instruction.definitions() {
                // A long shares no register with the sources: its first half is written before they
                // are read for the second.
                if region.registers[reg.0 as usize].class == Class::Long {
                    cover(reg, moment);
                }
                cover(reg, moment + 1);
                weight[reg.0 as usize] += worth;
                written[reg.0 as usize] = true;
                if let Operation::Compute { sources, .. } = &instruction.operation {
                    wish[reg.0 as usize] = sources.last().copied();
                }
            }
            moment += 2;
        }
        sets.last().into_iter().flat_map(Set::iter).for_each(|reg| cover(reg, moment));
        if let End::Branch { guard, .. } = block.end {
            weight[guard.predicate.0 as usize] += worth;
        }
        if let Some(meeting) = region.meeting(index) {
            meeting.definitions().iter().for_each(|reg| written[reg.0 as usize] = true);
            // What is live after it is loaded before the next block.
            let after = block.end.targets().into_iter().map(|to| liveness.at(region, Some(index), to));
            after.for_each(|live| live.iter().for_each(|reg| cover(reg, moment + 1)));
        }
        block.counted.iter().for_each(|guard| weight[guard.predicate.0 as usize] += worth);
        for reg in block.lane_loop.iter().flat_map(|lane_loop| [lane_loop.mask, lane_loop.laps]) {
            weight[reg.0 as usize] += 2.0 * worth;
            written[reg.0 as usize] = true;
        }
        moment += 2;
    }
    let units = (0..count).filter(|&index| first[index] != usize::MAX).flat_map(|index| {
        let halves = if region.registers[index].class == Class::Long { 2 } else { 1 };
        let (first, last, weight, written) = (first[index], last[index], weight[index], written[index]);
        let wish = wish[index];
        (0..halves).map(move |half| Unit { reg: Reg(index as u32), half, first, last, weight, written, wish })
    });
    units.collect()
}

impl Region {
    /// Removes instructions whose results nobody needs.
    pub fn prune(&mut self) {
        loop {
            let liveness = Liveness::of(self);
            let mut removed = false;
            for index in 0..self.blocks.len() {
                let mut live = liveness.of_block(self, index).into_iter().skip(1);
                self.blocks[index].instructions.retain(|instruction| {
                    let live = live.next();
                    let needed = |reg: &Reg| live.as_ref().is_none_or(|live| live.has(*reg));
                    let stays = match &instruction.operation {
                        Operation::Compute { d, .. } => instruction.guard.is_some() || needed(d),
                        Operation::Access(_) => true,
                    };
                    removed |= !stays;
                    stays
                });
            }
            if !removed {
                return;
            }
        }
    }
}
