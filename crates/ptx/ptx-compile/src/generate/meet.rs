//! Places where strips meet.
//!
//! A strip that comes to one puts its live registers into the frame and leaves the code to the next
//! strip, which begins where this one has begun: at the start of the same *segment*, whose address
//! is on the stack. When all strips of the warp have come, the [`Meeting`] is held, on the frame,
//! and the strips set out on the next segment, one after the other. At a barrier, all warps come
//! first.
//!
//! Strips of a warp come to the same place, because branches are taken by all threads of a warp
//! or by none: that is the condition of entering, or a meeting finds it out. Warps may come to
//! different places; then the code ends and says where each is.
//!
//! A meeting is counted when it has been held, so that whoever executes its step instead counts it.

use super::{Generator, stack};
use crate::assembler::{If, Label, R8, R12, R14, RAX, RBX, RCX, RSP, Rm, op};
use crate::context::{JUMPS, LOOP, MEETING, STRIPS, at};
use crate::liveness::Set;
use crate::nans::State;
use crate::region::{End, Guard, Instruction, Meeting, Reg, Region, Target};

/// Whether a loop in which strips meet begins at each block. Who enters it puts registers into the
/// frame, so that those which the loop does not write are put there once.
pub(super) fn loop_starts(region: &Region) -> Vec<bool> {
    let mut starts = vec![false; region.blocks.len()];
    for (index, block) in region.blocks.iter().enumerate() {
        for target in block.end.targets() {
            if let Target::Block(to) = target
                && (to as usize..=index).any(|block| region.meeting(block).is_some())
            {
                starts[to as usize] = true;
            }
        }
    }
    starts
}

/// Whether registers are put into the frame where a block goes on at another one.
fn saves(starts: &[bool], from: usize, to: u32) -> bool {
    from < to as usize && starts[to as usize]
}

/// The registers whose place in the frame may be out of date at the start of each block: those that
/// have been written since the strips met last.
pub(super) fn unsaved(region: &Region) -> Vec<Set> {
    let loops = loop_starts(region);
    let mut starts = vec![Set::new(region.registers.len()); region.blocks.len()];
    let mut changed = true;
    while changed {
        changed = false;
        for (index, block) in region.blocks.iter().enumerate() {
            let mut after = match block.end {
                End::Meet { .. } => Set::new(region.registers.len()),
                _ => starts[index].clone(),
            };
            block.instructions.iter().flat_map(Instruction::definitions).for_each(|reg| after.insert(reg));
            for target in block.end.targets() {
                let Target::Block(to) = target else { continue };
                if saves(&loops, index, to) {
                    continue;
                }
                let mut joined = starts[to as usize].clone();
                joined.add(&after);
                changed |= joined != starts[to as usize];
                starts[to as usize] = joined;
            }
        }
    }
    starts
}

/// Code for a meeting.
#[derive(Clone, Copy)]
struct Held {
    /// The block that ends with it.
    block: usize,
    meeting: u32,
    taken: Option<Target>,
    next: Target,
    /// Where it stops.
    refused: Label,
}

impl<'r> Generator<'r> {
    pub(super) fn has_meetings(&self) -> bool {
        !self.region.meetings.is_empty()
    }

    /// Whether warps may be at different places.
    fn may_part(&self) -> bool {
        self.region.meetings.iter().any(|one| matches!(one, Meeting::Barrier | Meeting::Branch(_)))
    }

    /// Notes on the stack what meetings need, when the code begins.
    pub(super) fn begin_meetings(&mut self, begin: Label) {
        if !self.has_meetings() {
            return;
        }
        self.asm.load(RAX, RBX, at::FRAMES);
        self.asm.store(RSP, stack::FRAMES, RAX);
        self.asm.load(RAX, RBX, at::LAPS);
        self.asm.store(RSP, stack::LAPS, RAX);
        self.begin_exits();
        self.set_time();
        self.keep_address(stack::WARP_SEGMENT, begin);
    }

    /// What the code for a warp begins with.
    pub(super) fn begin_warp(&mut self) {
        if self.has_meetings() {
            self.asm.load(RAX, RSP, stack::WARP_SEGMENT);
            self.asm.store(RSP, stack::SEGMENT, RAX);
        }
    }

    fn keep_address(&mut self, place: i32, of: Label) {
        self.asm.address(RAX, of);
        self.asm.store(RSP, place, RAX);
    }

    fn begin_exits(&mut self) {
        self.asm.copy(RAX, RBX);
        self.asm.add(RAX, at::EXITS);
        self.asm.store(RSP, stack::EXITS, RAX);
    }

    fn set_time(&mut self) {
        self.asm.set(RAX, JUMPS as u32);
        self.asm.store(RSP, stack::MEETINGS, RAX);
    }

    /// Ends a strip that has left the region by an exit, or come to a meeting, whose number follows
    /// those of exits.
    pub(super) fn arrive(&mut self, exit: u32, met: Label) {
        if self.region.exits.len() > 1 || self.has_meetings() {
            self.asm.store_number(RBX, at::EXIT, exit);
        }
        if self.has_meetings() {
            self.keep_address(stack::MET, met);
        }
        let next = self.next_strip;
        self.asm.jump(next);
    }

    /// Goes on for a warp whose strips have all ended alike.
    pub(super) fn end_strips(&mut self) {
        if !self.has_meetings() {
            return;
        }
        self.asm.jump_memory(RSP, stack::MET);
        let left = self.left;
        self.asm.bind(left);
        self.note_exit();
    }

    /// Notes where a warp is that has ended, and whether that differs from the first.
    fn note_exit(&mut self) {
        self.asm.load(RCX, RBX, at::EXIT);
        self.asm.load(RAX, RSP, stack::EXITS);
        self.asm.store_low(RAX, 0, RCX);
        self.asm.add(RAX, size_of::<u32>() as i32);
        self.asm.store(RSP, stack::EXITS, RAX);
        if !self.may_part() {
            return;
        }
        let (others, alike) = (self.asm.label(), self.asm.label());
        self.asm.compare_in_memory(RBX, at::WARP, 0);
        self.asm.jump_if(If::NotZero, others);
        self.asm.store(RSP, stack::FIRST_EXIT, RCX);
        self.asm.bind(others);
        self.asm.compare_memory(RCX, RSP, stack::FIRST_EXIT);
        self.asm.jump_if(If::Zero, alike);
        self.asm.store_number(RBX, at::APART, 1);
        self.asm.bind(alike);
    }

    /// Puts what is live into the frame before a loop in which strips meet.
    pub(super) fn save_for_loop(&mut self, from: usize, target: Target) {
        let Target::Block(to) = target else { return };
        if !saves(&self.saving, from, to) || self.region.meeting(from).is_some() {
            return;
        }
        let mut unsaved = self.unsaved[from].clone();
        let instructions = &self.region.blocks[from].instructions;
        instructions.iter().flat_map(Instruction::definitions).for_each(|reg| unsaved.insert(reg));
        let live = self.liveness.at(self.region, Some(from), target);
        for reg in live.iter().filter(|reg| unsaved.has(*reg)).collect::<Vec<_>>() {
            // Of a mixed register nobody needs the bits.
            if self.states[reg.0 as usize] == State::Dirty {
                self.clean(reg);
            }
            self.leave(reg);
        }
    }

    /// The end of a strip's segment at a meeting, and the code that holds it.
    pub(super) fn meet(&mut self, block: usize, meeting: u32, (taken, next): (Option<Target>, Target)) {
        let live = self.liveness.at_end(self.region, block);
        for reg in live.iter().filter(|reg| self.written.has(*reg)).collect::<Vec<_>>() {
            if self.nans.escape(&mut self.states, reg) == Ok(true) {
                self.clean(reg);
            }
            if self.unsaved[block].has(reg) {
                self.leave(reg);
            }
        }
        let (met, refused) = (self.asm.label(), self.asm.label());
        self.arrive(self.region.exits.len() as u32 + meeting, met);
        self.later.push(Box::new(move |this| {
            this.asm.bind(met);
            let held = Held { block, meeting, taken, next, refused };
            match &this.region.meetings[meeting as usize] {
                Meeting::Barrier => this.hold_for_block(held),
                _ => this.hold_for_warp(held),
            }
        }));
    }

    /// A meeting of all warps.
    fn hold_for_block(&mut self, held: Held) {
        self.note_exit();
        self.end_warp();
        let done = self.done;
        self.asm.compare_in_memory(RBX, at::APART, 0);
        self.asm.jump_if(If::NotZero, done);
        self.may_go_on(held);
        self.asm.load(RAX, RBX, at::WARPS);
        self.asm.shift_left(RAX, STRIPS.trailing_zeros() as u8);
        self.count_meeting(held.block);
        self.asm.load(RAX, RSP, stack::FRAMES);
        self.asm.store(RBX, at::FRAMES, RAX);
        self.asm.load(RAX, RSP, stack::LAPS);
        self.asm.store(RBX, at::LAPS, RAX);
        self.asm.load(R8, RBX, at::BASES);
        self.begin_exits();
        self.asm.set(RAX, 0);
        self.asm.store(RBX, at::WARP, RAX);
        self.asm.store_number(RBX, at::PASSED, held.meeting + 1);
        let segment = self.asm.label();
        self.keep_address(stack::WARP_SEGMENT, segment);
        let next_warp = self.next_warp;
        self.asm.jump(next_warp);
        self.segment(held.block, held.next, segment);
        // Whoever has to stop parts with all warps at the barrier.
        self.asm.bind(held.refused);
        self.asm.store_number(RBX, at::APART, 1);
        self.asm.jump(done);
    }

    /// A meeting of a warp's strips.
    fn hold_for_warp(&mut self, held: Held) {
        self.first_strip();
        if !self.groups.early.is_empty() {
            self.asm.add(R8, -((STRIPS * size_of::<u64>()) as i32));
        }
        let loops = self.region.lane_loops() as i32;
        if loops > 0 {
            self.asm.load(RAX, RBX, at::LAPS);
            self.asm.add(RAX, -(STRIPS as i32 * loops * super::VECTOR));
            self.asm.store(RBX, at::LAPS, RAX);
        }
        self.may_go_on(held);
        match &self.region.meetings[held.meeting as usize] {
            Meeting::Barrier => unreachable!("a barrier is for the block"),
            Meeting::Step { .. } => {
                self.call(MEETING | held.meeting, None);
                self.asm.test(RAX, u32::MAX);
                self.asm.jump_if(If::NotZero, held.refused);
            }
            Meeting::Shuffle { d, valid, a, from, inside } => {
                self.shuffle((*d, *a), from);
                if let Some(valid) = valid {
                    let place = self.region.registers[valid.0 as usize].place as i32;
                    self.asm.store_number(R14, place * 4, *inside);
                }
            }
            Meeting::Branch(guard) => self.part_ways(held, *guard),
        }
        self.hold(held.block, held.next);
        let done = self.done;
        self.asm.bind(held.refused);
        self.asm.store_number(RBX, at::STOPPED, 1);
        self.asm.jump(done);
    }

    /// Counts a meeting of a warp, and begins its next segment.
    fn hold(&mut self, block: usize, next: Target) {
        self.asm.set(RAX, STRIPS as u32);
        self.count_meeting(block);
        let segment = self.asm.label();
        self.keep_address(stack::SEGMENT, segment);
        self.segment(block, next, segment);
    }

    /// Goes on at `taken` if all threads of the warp take the branch; stops if some do.
    fn part_ways(&mut self, held: Held, guard: Guard) {
        let place = self.region.registers[guard.predicate.0 as usize].place as i32;
        self.asm.load_low(RAX, R14, place * 4);
        if guard.negated {
            self.asm.flip(RAX, u32::MAX);
        }
        let falls_through = self.asm.label();
        self.asm.test(RAX, u32::MAX);
        self.asm.jump_if(If::Zero, falls_through);
        self.asm.compare(RAX, -1);
        self.asm.jump_if(If::NotZero, held.refused);
        self.asm.set(RAX, STRIPS as u32);
        self.count_meeting(self.region.blocks.len() + held.block);
        self.hold(held.block, held.taken.expect("a branch has two ways"));
        self.asm.bind(falls_through);
    }

    /// Adds `rax` to a counter.
    fn count_meeting(&mut self, counter: usize) {
        self.asm.load(RCX, RBX, at::COUNTERS);
        self.asm.add_to_memory(RCX, counter as i32 * 8, RAX);
    }

    /// Asks the helper once in a while whether to go on.
    fn may_go_on(&mut self, held: Held) {
        let (ask, on) = (self.asm.label(), self.asm.label());
        self.asm.decrement_memory(RSP, stack::MEETINGS);
        self.asm.jump_if(If::Zero, ask);
        self.asm.bind(on);
        self.later.push(Box::new(move |this| {
            this.asm.bind(ask);
            this.set_time();
            this.call(LOOP | held.block as u32, None);
            this.asm.test(RAX, u32::MAX);
            this.asm.jump_if(If::Zero, on);
            this.asm.jump(held.refused);
        }));
    }

    /// A segment of a strip, from a meeting on.
    fn segment(&mut self, block: usize, next: Target, label: Label) {
        self.asm.bind(label);
        self.begin_time();
        let live = self.liveness.at(self.region, Some(block), next);
        self.enter(&live);
        self.states = vec![State::Clean; self.region.registers.len()];
        self.go_explicitly(block, next);
    }

    /// Gives each lane of `d` the word of a lane of `a`, in the frame.
    fn shuffle(&mut self, (d, a): (Reg, Reg), from: &[u8; 32]) {
        let place = |reg: Reg, strip: usize| {
            let place = self.region.registers[reg.0 as usize].place as i32;
            Rm::Memory(R12, place * 128 + strip as i32 * super::VECTOR)
        };
        let (of_a, of_d): ([Rm; STRIPS], [Rm; STRIPS]) =
            (std::array::from_fn(|strip| place(a, strip)), std::array::from_fn(|strip| place(d, strip)));
        for (strip, words) in of_a.into_iter().enumerate() {
            self.asm.two(op::MOVUPS_LOAD, strip as u8, words);
        }
        for (strip, words) in of_d.into_iter().enumerate() {
            let lanes = &from[8 * strip..][..8];
            let result = self.shuffled(lanes);
            self.asm.two(op::MOVUPS_STORE, result, words);
        }
    }

    /// The vector that has the words of eight lanes; the words of each strip are in the register
    /// with its number.
    fn shuffled(&mut self, lanes: &[u8]) -> u8 {
        let (result, moved, order) = (STRIPS as u8, STRIPS as u8 + 1, STRIPS as u8 + 2);
        let mut sources: Vec<u8> = lanes.iter().map(|lane| lane / 8).collect();
        sources.sort_unstable();
        sources.dedup();
        let in_place = lanes.iter().enumerate().all(|(at, lane)| usize::from(lane % 8) == at);
        if in_place && let [only] = sources[..] {
            return only;
        }
        if !in_place {
            let words = self.asm.constant(std::array::from_fn(|at| u32::from(lanes[at] % 8)));
            self.asm.two(op::MOVUPS_LOAD, order, words);
        }
        for (index, &source) in sources.iter().enumerate() {
            let to = if index == 0 { result } else { moved };
            let from = if in_place { source } else { to };
            if !in_place {
                self.asm.vector(op::PERMD, to, order, Rm::Ymm(source));
            }
            let here = lanes.iter().enumerate().filter(|(_, lane)| **lane / 8 == source);
            let mask = here.fold(0, |mask, (at, _)| mask | 1u8 << at);
            match index {
                0 if in_place => self.asm.two(op::MOVAPS, result, Rm::Ymm(from)),
                0 => {}
                _ => self.asm.with_byte(op::PBLENDD, result, result, Rm::Ymm(from), mask),
            }
        }
        result
    }
}

const _: () = assert!(STRIPS == 4, "a meeting has a register for each strip");
