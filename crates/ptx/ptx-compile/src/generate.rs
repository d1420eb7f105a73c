//! Writes the machine code of a region.
//!
//! The code executes the region for each strip of each warp, one after the other. Registers: `rbx`
//! has the [`Context`](crate::Context), `rbp` the windows, `r12`, `r13` and `r14` the strip's words,
//! longs and predicates in the frame, `r15` the backward jumps that are left, `r8` the strip's
//! addresses that are known on entering, `r9` to `r11` the bases that [`quick`] versions keep.
//! Vector registers from [`REGISTERS`](crate::liveness::REGISTERS) on are for the generator; the
//! others hold what [`allocate`](crate::liveness::allocate) gave them.

mod access;
mod compute;
mod meet;
mod narrow;
mod numbers;
mod quick;

pub use numbers::POWERS;

use crate::assembler::{
    Assembler, Gpr, If, Label, R8, R9, R10, R11, R12, R13, R14, R15, RAX, RBP, RBX, RCX, RDI, RSP, Rm, op,
};
use crate::context::{JUMPS, LOOP, Stop, at};
use crate::groups::Groups;
use crate::liveness::{Home, Homes, Liveness, REGISTERS, Set, allocate};
use crate::nans::{Nans, State};
use crate::region::{Block, Class, End, Guard, LaneLoop, Mask, Operation, Reg, Region, Register, Target};
use crate::same::same_registers;
use quick::{Kept, Version, quick_blocks};

/// The generator's own vector registers.
pub(crate) const A: u8 = REGISTERS;
pub(crate) const B: u8 = REGISTERS + 1;
pub(crate) const C: u8 = REGISTERS + 2;

/// Bytes of a vector.
pub(crate) const VECTOR: i32 = 32;

/// The control register of the vector unit, as kernels expect it.
pub(crate) const DEFAULT_CONTROL: u32 = 0x1f80;

/// PTX's NaN.
const NAN: u32 = 0x7fff_ffff;

/// Code that is generated.
pub(crate) struct Generator<'r> {
    region: &'r Region,
    asm: Assembler,
    homes: Homes,
    liveness: Liveness,
    nans: Nans,
    groups: Groups,
    /// The accesses generated so far.
    accesses: usize,
    /// The block that is generated.
    block: usize,
    /// The blocks that have a quick version.
    quick: Vec<bool>,
    /// The version of the block that is generated.
    version: Version,
    /// Registers of which the threads of a strip probably have the same value.
    same: Set,
    /// Registers that the region writes.
    written: Set,
    labels: Vec<Label>,
    /// Where the careful version of each block starts, and goes on at each access.
    careful: Vec<Label>,
    resume: Vec<Option<Label>>,
    /// The bases that the quick version of the block keeps.
    kept: Kept,
    next_strip: Label,
    next_warp: Label,
    /// The end of the code.
    done: Label,
    /// Where a warp has left the region.
    left: Label,
    call_helper: Label,
    /// Registers whose place in the frame may be out of date, at the start of each block.
    unsaved: Vec<Set>,
    /// The blocks before which they are put there: those at which loops with meetings begin.
    saving: Vec<bool>,
    /// Code that is to follow: what seldom runs.
    later: Vec<Later<'r>>,
    /// The states of NaNs.
    states: Vec<State>,
}

type Later<'r> = Box<dyn FnOnce(&mut Generator<'r>) + 'r>;

/// Offsets from the stack pointer.
mod stack {
    /// The warp's predicates.
    pub(super) const PREDICATES: i32 = 0;
    /// The predicates after the last strip.
    pub(super) const END: i32 = 8;
    /// The backward jumps that were left, and the rounds of them, before a loop that threads leave
    /// one by one: after it, strips are at the same time again.
    pub(super) const LEFT: i32 = 16;
    pub(super) const ROUNDS: i32 = 24;
    /// The code that strips begin with, and the one that warps begin with.
    pub(super) const SEGMENT: i32 = 32;
    pub(super) const WARP_SEGMENT: i32 = 40;
    /// The code for a warp whose strips have met.
    pub(super) const MET: i32 = 48;
    /// Where the next warp's exit goes, and the exit of the first warp.
    pub(super) const EXITS: i32 = 56;
    pub(super) const FIRST_EXIT: i32 = 64;
    /// Meetings until the user is asked whether to go on.
    pub(super) const MEETINGS: i32 = 72;
    /// What the context had on entering.
    pub(super) const FRAMES: i32 = 80;
    pub(super) const LAPS: i32 = 88;
    /// The starts of the memory of the strip's lanes.
    pub(super) const LANES: i32 = 96;
    /// Place of vectors while a helper runs.
    pub(super) const SAVED: i32 = 112;
    /// The lanes of a gathered word.
    pub(super) const GATHERED: i32 = SAVED + 16 * 32;
    pub(super) const REST: i32 = GATHERED + 32;
}

/// Bytes that a group of accesses takes on the stack: the host address of the first thread, how the
/// threads access, and the addresses of all.
const GROUP: i32 = 96;

/// Most bytes that the code takes of the stack.
const MAX_STACK: i32 = 16 << 10;
/// Registers that the caller finds unchanged (System V ABI).
const OF_CALLER: [Gpr; 6] = [RBX, RBP, R12, R13, R14, R15];

/// The code of a region, and its groups of accesses; `None` if the region is too large.
/// `starts_same` guesses for a register that is live at the start whether the threads of each strip
/// have the same value.
pub(crate) fn generate(
    region: &Region,
    starts_same: &dyn Fn(&Register) -> bool,
) -> Option<(Vec<u8>, Groups)> {
    let liveness = Liveness::of(region);
    let same = same_registers(region, &liveness, starts_same);
    let homes = allocate(region, &liveness);
    let mut asm = Assembler::default();
    let mut written = Set::new(region.registers.len());
    region.definitions().for_each(|reg| written.insert(reg));
    let labels = region.blocks.iter().map(|_| asm.label()).collect();
    let careful = region.blocks.iter().map(|_| asm.label()).collect();
    let groups = Groups::of(region, &same);
    let [next_strip, next_warp, done, left, call_helper] = std::array::from_fn(|_| asm.label());
    let generator = Generator {
        region,
        homes,
        nans: Nans::of(region, &liveness),
        resume: vec![None; groups.of_access.len()],
        quick: quick_blocks(region, &groups),
        groups,
        accesses: 0,
        block: 0,
        version: Version::Only,
        same,
        written,
        labels,
        careful,
        kept: Kept::default(),
        liveness,
        next_strip,
        next_warp,
        done,
        left,
        call_helper,
        unsaved: meet::unsaved(region),
        saving: meet::loop_starts(region),
        later: Vec::new(),
        states: Vec::new(),
        asm,
    };
    (generator.frame_bytes() <= MAX_STACK).then(|| generator.run())
}

impl<'r> Generator<'r> {
    fn run(mut self) -> (Vec<u8>, Groups) {
        let frame = self.frame_bytes();
        let (strip, begin) = (self.asm.label(), self.asm.label());
        let (next_warp, end) = (self.next_warp, self.done);
        OF_CALLER.iter().for_each(|&register| self.asm.push(register));
        self.asm.add(RSP, -frame);
        self.asm.copy(RBX, RDI);
        self.asm.load(RBP, RBX, at::WINDOWS);
        self.asm.load(R8, RBX, at::BASES);
        self.begin_meetings(begin);
        self.asm.bind(next_warp);
        self.first_strip();
        self.begin_warp();
        self.asm.store(RSP, stack::PREDICATES, R14);
        self.asm.copy(RAX, R14);
        self.asm.add(RAX, crate::context::STRIPS as i32);
        self.asm.store(RSP, stack::END, RAX);
        self.asm.set(R15, JUMPS as u32);

        self.asm.bind(strip);
        if self.has_meetings() {
            self.asm.jump_memory(RSP, stack::SEGMENT);
        }
        self.asm.bind(begin);
        self.begin_time();
        let live = self.liveness.at(self.region, None, Target::Block(0));
        self.enter(&live);
        self.begin_lane_loop(None, Target::Block(0));
        for block in 0..self.region.blocks.len() {
            self.block(block);
        }
        self.advance();
        self.asm.compare_memory(R14, RSP, stack::END);
        self.asm.jump_if(If::NotZero, strip);

        self.asm.compare_in_memory(RBX, at::STOPPED, 0);
        self.asm.jump_if(If::NotZero, end);
        self.end_strips();
        self.end_warp();
        self.asm.bind(end);
        self.go_back(frame);

        while !self.later.is_empty() {
            for later in std::mem::take(&mut self.later) {
                later(&mut self);
            }
        }
        self.helper_call();
        (self.asm.finish(), self.groups)
    }

    /// Returns to the caller, with its registers and its stack.
    fn go_back(&mut self, frame: i32) {
        self.asm.zero_upper();
        self.asm.add(RSP, frame);
        OF_CALLER.iter().rev().for_each(|&register| self.asm.pop(register));
        self.asm.ret();
    }

    /// Goes on to the next strip: its registers, loops, windows and lanes.
    fn advance(&mut self) {
        let next_strip = self.next_strip;
        self.asm.bind(next_strip);
        let loops = self.region.lane_loops() as i32;
        if loops > 0 {
            self.asm.load(RAX, RBX, at::LAPS);
            self.asm.add(RAX, loops * VECTOR);
            self.asm.store(RBX, at::LAPS, RAX);
        }
        if !self.groups.early.is_empty() {
            self.asm.add(R8, size_of::<u64>() as i32);
        }
        if self.region.has_memory_of_lanes() {
            self.asm.set(RAX, 8 * size_of::<u64>() as u32);
            self.asm.add_to_memory(RSP, stack::LANES, RAX);
        }
        self.asm.add(R12, 8 * 4);
        self.asm.add(R13, 8 * 8);
        self.asm.add(R14, 1);
    }

    /// Calls the helper, and keeps the vector registers.
    fn helper_call(&mut self) {
        let label = self.call_helper;
        self.asm.bind(label);
        // With the address to return to, an odd number keeps the stack aligned.
        let saved = [R8, R9, R10, R11, R11];
        saved.iter().for_each(|&register| self.asm.push(register));
        let pushed = 8 * (1 + saved.len() as i32);
        let at = |register: u8| Rm::Memory(RSP, stack::SAVED + pushed + i32::from(register) * VECTOR);
        (0..16).for_each(|register| self.asm.two(op::MOVUPS_STORE, register, at(register)));
        self.asm.zero_upper();
        self.asm.copy(RDI, RBX);
        self.asm.call_memory(RBX, at::HELPER);
        (0..16).for_each(|register| self.asm.two(op::MOVUPS_LOAD, register, at(register)));
        saved.iter().rev().for_each(|&register| self.asm.pop(register));
        self.asm.ret();
    }

    /// Bytes of the stack, so that it is aligned to 16 after six registers and the address to
    /// return to.
    fn frame_bytes(&self) -> i32 {
        let groups = self.groups.all.len() as i32 * GROUP;
        let bytes = stack::REST + groups + self.homes.stack as i32 * VECTOR;
        (bytes + 15) / 16 * 16 + 8
    }

    /// Goes to the next warp, if there is one.
    fn end_warp(&mut self) {
        self.asm.load(RAX, RBX, at::FRAMES);
        self.asm.add(RAX, size_of::<crate::context::Frame>() as i32);
        self.asm.store(RBX, at::FRAMES, RAX);
        self.asm.increment(RBX, at::WARP);
        self.asm.load(RAX, RBX, at::WARP);
        self.asm.compare_memory(RAX, RBX, at::WARPS);
        let next_warp = self.next_warp;
        self.asm.jump_if(If::NotZero, next_warp);
    }

    /// Sets the registers of the frame to the first strip of the warp.
    fn first_strip(&mut self) {
        self.asm.load(RAX, RBX, at::FRAMES);
        self.asm.load(R12, RAX, 0);
        self.asm.load(R13, RAX, 8);
        self.asm.load(R14, RAX, 16);
        if self.region.has_memory_of_lanes() {
            self.asm.load(RAX, RAX, 24);
            self.asm.store(RSP, stack::LANES, RAX);
        }
    }

    /// Begins to count the backward jumps of a strip.
    fn begin_time(&mut self) {
        if self.has_loops() {
            self.asm.set(R15, JUMPS as u32);
            self.asm.store_number(RBX, at::ROUNDS, 0);
        }
    }

    /// Whether the region goes back to its first block.
    fn is_entered_again(&self) -> bool {
        is_entered_again(self.region)
    }

    fn has_loops(&self) -> bool {
        let blocks = self.region.blocks.iter().enumerate();
        blocks
            .flat_map(|(at, block)| block.end.targets().into_iter().map(move |to| (at, to)))
            .any(|(at, to)| is_back(to, at))
    }

    fn class(&self, reg: Reg) -> Class {
        self.region.registers[reg.0 as usize].class
    }

    fn halves(&self, reg: Reg) -> usize {
        if self.class(reg) == Class::Long { 2 } else { 1 }
    }

    /// The place of a register in the frame.
    fn in_frame(&self, reg: Reg, half: usize) -> Rm {
        let register = self.region.registers[reg.0 as usize];
        let place = register.place as i32;
        match register.class {
            Class::Word => Rm::Memory(R12, place * 128),
            Class::Long => Rm::Memory(R13, place * 256 + half as i32 * VECTOR),
            Class::Predicate => Rm::Memory(R14, place * 4),
        }
    }

    /// Location of a register.
    fn rm(&self, reg: Reg, half: usize) -> Rm {
        match self.homes.of[reg.0 as usize][half] {
            Home::Ymm(number) => Rm::Ymm(number),
            Home::Stack(number) => {
                let groups = self.groups.all.len() as i32 * GROUP;
                Rm::Memory(RSP, stack::REST + groups + number as i32 * VECTOR)
            }
            Home::Frame | Home::Nowhere => self.in_frame(reg, half),
        }
    }

    /// The vector register of a register, which is loaded into `scratch` if it has none.
    fn reg(&mut self, reg: Reg, half: usize, scratch: u8) -> u8 {
        match self.rm(reg, half) {
            Rm::Ymm(number) => number,
            memory => {
                self.asm.two(op::MOVUPS_LOAD, scratch, memory);
                scratch
            }
        }
    }

    /// Copies a register to `to`.
    fn fetch(&mut self, reg: Reg, half: usize, to: u8) {
        match self.rm(reg, half) {
            Rm::Ymm(number) if number == to => {}
            from => self.asm.two(op::MOVUPS_LOAD, to, from),
        }
    }

    /// Loads what is live, unless it stays in the frame.
    fn enter(&mut self, live: &Set) {
        for reg in live.iter() {
            for half in 0..self.halves(reg) {
                let home = self.homes.of[reg.0 as usize][half];
                if matches!(home, Home::Frame | Home::Nowhere) {
                    continue;
                }
                let to = if let Home::Ymm(number) = home { number } else { A };
                match self.class(reg) {
                    Class::Predicate => self.spread(self.in_frame(reg, 0), to),
                    _ => self.asm.two(op::MOVUPS_LOAD, to, self.in_frame(reg, half)),
                }
                if to == A {
                    let memory = self.rm(reg, half);
                    self.asm.two(op::MOVUPS_STORE, A, memory);
                }
            }
        }
    }

    /// Makes a mask of eight bits in memory.
    fn spread(&mut self, bits: Rm, to: u8) {
        let each = self.asm.constant(std::array::from_fn(|lane| 1 << lane));
        self.asm.two(op::PBROADCASTB, to, bits);
        self.asm.vector(op::PAND, to, to, each);
        self.asm.vector(op::PCMPEQD, to, to, each);
    }

    /// Puts a register into its place in the frame.
    fn leave(&mut self, reg: Reg) {
        for half in 0..self.halves(reg) {
            let from = self.reg(reg, half, A);
            match self.in_frame(reg, half) {
                Rm::Memory(base, distance) if self.class(reg) == Class::Predicate => {
                    self.asm.two(op::MOVMSKPS, RAX.0, Rm::Ymm(from));
                    self.asm.store_byte(base, distance);
                }
                place => self.asm.two(op::MOVUPS_STORE, from, place),
            }
        }
    }

    /// Generates a block: once, or in two versions.
    fn block(&mut self, index: usize) {
        let first = self.accesses;
        let label = self.labels[index];
        self.block = index;
        self.asm.bind(label);
        let block = &self.region.blocks[index];
        // The first block is executed once, unless it is a loop.
        let meets = matches!(block.end, End::Meet { .. });
        if block.lane_loop.is_none() && !meets && (index > 0 || self.is_entered_again()) {
            self.count(index);
        }
        if let Some(mask) = &block.mask {
            self.count_lanes(
                Guard { predicate: mask.here, negated: false },
                self.region.blocks.len() + index,
            );
        }
        self.version = if self.quick[index] { Version::Quick } else { Version::Only };
        self.kept = Kept::default();
        self.body(block, index);
        if self.version == Version::Quick {
            self.later.push(Box::new(move |this| {
                (this.accesses, this.block, this.version) = (first, index, Version::Careful);
                let label = this.careful[index];
                this.asm.bind(label);
                this.body(block, index);
            }));
        }
    }

    /// A version of a block: its instructions, and its end.
    fn body(&mut self, block: &'r Block, index: usize) {
        let here = block.mask.as_ref().map(|mask| Guard { predicate: mask.here, negated: false });
        let all = 2 * self.region.blocks.len();
        self.states = self.nans.starts[index].clone();
        let live = self.liveness.of_block(self.region, index);
        for (instruction, live) in block.instructions.iter().zip(live) {
            let dirty = self.nans.step(&mut self.states, instruction).expect("no mixed register escapes");
            dirty.into_iter().for_each(|reg| self.clean(reg));
            if let Some(guard) = instruction.guard
                && block.lane_loop.is_none()
                && Some(guard) != here
            {
                self.count_lanes(guard, all);
            }
            let guard = self.remaining_guard(block, instruction);
            match &instruction.operation {
                Operation::Compute { meaning, d, sources } => {
                    self.compute(meaning, *d, sources, guard, instruction.guard.is_some());
                }
                Operation::Access(access) if self.version == Version::Quick => {
                    self.quick_access(access, guard, live);
                }
                Operation::Access(access) => self.access(access, guard, live),
            }
        }
        self.end(block, index, all);
    }

    /// The end of a block; `all` is the counter of threads that execute guarded instructions.
    fn end(&mut self, block: &'r Block, index: usize, all: usize) {
        if let (Some(lane_loop), End::Branch { guard, next, .. }) = (block.lane_loop, block.end) {
            self.repeat_lane_loop(index, lane_loop, guard);
            return self.go(index, next);
        }
        if let Some(guard) = block.counted {
            self.count_lanes(guard, all);
            if block.mask.is_none() {
                let nobody = self.asm.label();
                self.asm.test_zero(RAX);
                self.asm.jump_if(If::Zero, nobody);
                self.count(self.region.blocks.len() + index);
                self.asm.bind(nobody);
            }
        }
        match block.end {
            End::Jump(target) => self.go(index, target),
            End::Branch { guard, taken, next } => {
                self.branch(index, guard, taken);
                self.go(index, next);
            }
            End::Meet { meeting, taken, next } => self.meet(index, meeting, (taken, next)),
        }
    }

    /// Goes to `taken` where the guard lets any thread act, and counts that.
    fn branch(&mut self, from: usize, guard: Guard, taken: Target) {
        let mask = self.reg(guard.predicate, 0, A);
        self.asm.two(op::TESTPS, mask, Rm::Ymm(mask));
        let not_taken = self.asm.label();
        self.asm.jump_if(if guard.negated { If::NotZero } else { If::Zero }, not_taken);
        self.count(self.region.blocks.len() + from);
        let states = self.states.clone();
        self.go_explicitly(from, taken);
        self.states = states;
        self.asm.bind(not_taken);
    }

    /// Goes on at a target, which may be the next block.
    fn go(&mut self, from: usize, target: Target) {
        match target == Target::Block(from as u32 + 1) && self.version != Version::Careful {
            true => {
                self.save_for_loop(from, target);
                self.begin_lane_loop(Some(from), target);
            }
            false => self.go_explicitly(from, target),
        }
    }

    fn go_explicitly(&mut self, from: usize, target: Target) {
        match target {
            Target::Exit(exit) => self.exit(exit),
            Target::Block(block) => {
                let label = self.labels[block as usize];
                self.save_for_loop(from, target);
                self.begin_lane_loop(Some(from), target);
                if is_back(target, from) {
                    self.burn(block, label);
                }
                self.asm.jump(label);
            }
        }
    }

    /// Sets what a loop that threads leave one by one starts with, if the target is one.
    fn begin_lane_loop(&mut self, from: Option<usize>, target: Target) {
        let Target::Block(block) = target else { return };
        let Some(lane_loop) = self.region.blocks[block as usize].lane_loop else { return };
        if from == Some(block as usize) {
            return;
        }
        for (vex, reg) in [(op::PCMPEQD, lane_loop.mask), (op::PXOR, lane_loop.laps)] {
            self.asm.vector(vex, A, A, Rm::Ymm(A));
            let home = self.rm(reg, 0);
            self.asm.two(op::MOVUPS_STORE, A, home);
        }
        self.asm.store(RSP, stack::LEFT, R15);
        self.asm.load(RAX, RBX, at::ROUNDS);
        self.asm.store(RSP, stack::ROUNDS, RAX);
    }

    /// The end of a loop that threads leave one by one: it goes back while any of them stays, and
    /// else notes their laps.
    fn repeat_lane_loop(&mut self, block: usize, lane_loop: LaneLoop, stays: Guard) {
        let mask = self.reg(lane_loop.mask, 0, A);
        let laps = self.reg(lane_loop.laps, 0, B);
        self.asm.vector(op::PSUBD, laps, laps, Rm::Ymm(mask));
        self.finish(lane_loop.laps, 0, laps, None);
        let condition = self.reg(stays.predicate, 0, C);
        match stays.negated {
            false => self.asm.vector(op::PAND, mask, mask, Rm::Ymm(condition)),
            true => self.asm.vector(op::PANDN, mask, condition, Rm::Ymm(mask)),
        }
        self.finish(lane_loop.mask, 0, mask, None);
        let (done, some) = (self.asm.label(), self.asm.label());
        self.asm.two(op::MOVMSKPS, RAX.0, Rm::Ymm(mask));
        self.asm.compare(RAX, 0xff);
        self.asm.jump_if(If::NotZero, some);
        self.jump_back(block as u32, self.labels[block]);
        self.asm.bind(some);
        self.asm.test(RAX, 0xff);
        self.asm.jump_if(If::Zero, done);
        let careful = if self.quick[block] { self.careful[block] } else { self.labels[block] };
        self.jump_back(block as u32, careful);
        self.asm.bind(done);
        self.asm.load(R15, RSP, stack::LEFT);
        self.asm.load(RAX, RSP, stack::ROUNDS);
        self.asm.store(RBX, at::ROUNDS, RAX);
        let laps = self.reg(lane_loop.laps, 0, B);
        self.asm.load(RAX, RBX, at::LAPS);
        self.asm.two(op::MOVUPS_STORE, laps, Rm::Memory(RAX, lane_loop.index as i32 * VECTOR));
    }

    /// Goes back to a block, at a label.
    fn jump_back(&mut self, block: u32, label: Label) {
        self.burn(block, label);
        self.asm.jump(label);
    }

    /// Asks the helper whether to go on with a loop, and stops if not.
    fn ask(&mut self, block: u32, target: Label) {
        self.call(LOOP | block, None);
        self.asm.test(RAX, u32::MAX);
        self.asm.jump_if(If::Zero, target);
        let live = self.liveness.starts[block as usize].clone();
        self.stop(LOOP | block, &live, None);
    }

    /// Counts a backward jump; once in a while the helper is asked whether to go on.
    fn burn(&mut self, block: u32, target: Label) {
        self.asm.decrement(R15);
        let ask = self.asm.label();
        self.asm.jump_if(If::Zero, ask);
        self.later.push(Box::new(move |this| {
            this.asm.bind(ask);
            this.asm.increment(RBX, at::ROUNDS);
            this.asm.set(R15, JUMPS as u32);
            this.ask(block, target);
        }));
    }

    /// Calls the helper for a site, in the threads of a mask in `rax` or in all.
    fn call(&mut self, site: u32, mask: Option<()>) {
        let label = self.call_helper;
        match mask {
            Some(()) => self.asm.copy(crate::assembler::RDX, RAX),
            None => self.asm.set(crate::assembler::RDX, 0xff),
        }
        self.asm.set(crate::assembler::RSI, site);
        self.asm.call(label);
    }

    /// Leaves the code with what is live, before the site, at which only the threads of the mask
    /// are.
    fn stop(&mut self, site: u32, live: &Set, mask: Option<&Mask>) {
        let live: Vec<Reg> = live.iter().filter(|reg| self.written.has(*reg)).collect();
        live.into_iter().for_each(|reg| self.leave(reg));
        // The stop of the strip, whose number is that of its byte of predicates.
        self.asm.copy(RAX, R14);
        self.asm.subtract_memory(RAX, RSP, stack::PREDICATES);
        self.asm.shift_left(RAX, size_of::<Stop>().trailing_zeros() as u8);
        self.asm.copy(RCX, RBX);
        self.asm.add(RCX, at::STOPS);
        self.asm.store(RSP, stack::GATHERED, RCX);
        self.asm.add_memory(RAX, RSP, stack::GATHERED);
        self.asm.store_number(RAX, 0, 1);
        self.asm.store_number(RAX, 4, site);
        self.asm.store(RAX, 8, R15);
        self.asm.load(RCX, RBX, at::ROUNDS);
        self.asm.store(RAX, 16, RCX);
        self.asm.copy(RCX, RAX);
        self.asm.set(RAX, 0xff);
        self.asm.store_byte(RCX, at::MASKS);
        let masks = mask.into_iter().flat_map(|mask| [mask.here].into_iter().chain(mask.later.clone()));
        for (place, reg) in (at::MASKS..).zip(masks) {
            self.lanes_of(Guard { predicate: reg, negated: false });
            self.asm.store_byte(RCX, place);
        }
        self.asm.store_number(RBX, at::STOPPED, 1);
        let next = self.next_strip;
        self.asm.jump(next);
    }

    fn exit(&mut self, exit: u32) {
        for index in 0..self.region.exits[exit as usize].len() {
            let reg = self.region.exits[exit as usize][index];
            if !self.written.has(reg) {
                continue;
            }
            if self.nans.escape(&mut self.states, reg) == Ok(true) {
                self.clean(reg);
            }
            self.leave(reg);
        }
        self.arrive(exit, self.left);
    }

    /// Replaces NaNs in a word.
    fn clean(&mut self, reg: Reg) {
        let from = self.reg(reg, 0, A);
        self.replace_nans(from, from);
        if let memory @ Rm::Memory(..) = self.rm(reg, 0) {
            self.asm.two(op::MOVUPS_STORE, from, memory);
        }
    }

    /// `to = from`, with PTX's NaN for any.
    fn replace_nans(&mut self, to: u8, from: u8) {
        let nan = self.asm.constant([NAN; 8]);
        self.asm.with_byte(op::CMPPS, B, from, Rm::Ymm(from), 3);
        self.asm.blend(to, from, nan, B);
    }

    /// Counts one event.
    fn count(&mut self, counter: usize) {
        self.asm.load(RCX, RBX, at::COUNTERS);
        self.asm.increment(RCX, counter as i32 * 8);
    }

    /// Counts the threads that a guard lets act.
    fn count_lanes(&mut self, guard: Guard, counter: usize) {
        self.lanes_of(guard);
        self.asm.count_bits(RAX, RAX);
        self.asm.load(RCX, RBX, at::COUNTERS);
        self.asm.add_to_memory(RCX, counter as i32 * 8, RAX);
    }

    /// The threads that a guard lets act, as bits in `rax`.
    fn lanes_of(&mut self, guard: Guard) {
        let mask = self.reg(guard.predicate, 0, A);
        self.asm.two(op::MOVMSKPS, RAX.0, Rm::Ymm(mask));
        if guard.negated {
            self.asm.flip(RAX, 0xff);
        }
    }
}

/// Whether a region goes back to its first block, or may stop without a fault, so that this block
/// counts how often it is executed.
pub(crate) fn is_entered_again(region: &Region) -> bool {
    !region.meetings.is_empty()
        || region.blocks.iter().any(|block| block.end.targets().contains(&Target::Block(0)))
}

/// Whether a jump goes back.
fn is_back(target: Target, from: usize) -> bool {
    matches!(target, Target::Block(to) if to as usize <= from)
}
