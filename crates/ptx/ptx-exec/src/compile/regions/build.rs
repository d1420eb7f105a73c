//! Builds what the generator takes of a region: its blocks, meetings and exits, over registers of
//! the region's own.
//!
//! A block in an area begins with a test whether any thread is in it, and its instructions act for
//! the threads of its predicate alone. What an exit lists is live there and was written.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ptx::ScalarType;
use ptx_compile::{
    Access, Address, Block, Element, End, Instruction, LaneLoop, Mask, Meeting, Operation, Region, Register,
    Target,
};
use ptx_lower::Meaning;
use ptx_lower::scalar::shuffled;

use super::{Area, Finder, target};
use crate::code::{Input, Op, WarpOp};
use crate::compile::allocate::Set;
use crate::native::{Counted, Exits, Lowered, NativeRegion, Site};
use crate::operands::{AccessArgs, AccessKind, Class, Guard, Indexed, Reg, Space};
use crate::registers::lanes::WARP;

/// An operation on predicates.
fn on_predicates(op: ptx_lower::Op, d: ptx_compile::Reg, sources: &[ptx_compile::Reg]) -> Instruction {
    let meaning = Meaning::plain(op, ScalarType::Pred);
    Instruction { guard: None, operation: Operation::Compute { meaning, d, sources: sources.to_vec() } }
}

/// The element that an access of a type has for each register.
pub(super) fn element(ty: ScalarType) -> Option<Element> {
    Some(match ty.bytes() {
        bytes @ (1 | 2) => Element::Narrow { bytes: bytes as u8, signed: ty.is_signed() },
        4 => Element::Word,
        8 => Element::Long,
        _ => return None,
    })
}

/// A region that is being built.
pub(super) struct Builder<'f, 's> {
    finder: &'f Finder<'s>,
    range: (usize, usize),
    /// For each first step of a block its number in the region; in an area that of the block
    /// before it, which tests whether any thread is in it.
    numbers_of: BTreeMap<usize, u32>,
    areas: &'f [Area],
    /// The predicates of the areas' blocks, by first step.
    masks: HashMap<usize, ptx_compile::Reg>,
    region: Region,
    counted: Vec<Counted>,
    numbers: HashMap<Reg, ptx_compile::Reg>,
    exits: BTreeMap<usize, u32>,
    exit_steps: Vec<u32>,
    /// The steps of meetings, and the barriers among them.
    meetings: Vec<u32>,
    barriers: Vec<u32>,
    sites: Vec<Site>,
}

/// A block that is being built.
struct Open<'f> {
    instructions: Vec<Instruction>,
    counted: Counted,
    /// The area that it is in, its predicate, and what threads need that are elsewhere.
    masked: Option<(&'f Area, ptx_compile::Reg, Vec<Set>)>,
}

impl<'f, 's> Builder<'f, 's> {
    pub(super) fn new(
        finder: &'f Finder<'s>,
        range: (usize, usize),
        starts: &[usize],
        areas: &'f [Area],
    ) -> Self {
        let mut count = 0;
        let mut number = |start: usize| {
            let number = count;
            count += 1 + u32::from(areas.iter().any(|area| area.has(start)));
            (start, number)
        };
        Builder {
            finder,
            range,
            numbers_of: starts.iter().map(|&start| number(start)).collect(),
            areas,
            masks: HashMap::new(),
            region: Region::default(),
            counted: Vec::new(),
            numbers: HashMap::new(),
            exits: BTreeMap::new(),
            exit_steps: Vec::new(),
            meetings: Vec::new(),
            barriers: Vec::new(),
            sites: Vec::new(),
        }
    }

    /// A register of the region's own.
    fn own(&mut self, class: ptx_compile::Class) -> ptx_compile::Reg {
        self.region.registers.push(Register { class, place: 0 });
        ptx_compile::Reg(self.region.registers.len() as u32 - 1)
    }

    /// The predicate of a block in an area.
    fn mask(&mut self, start: usize) -> ptx_compile::Reg {
        if let Some(&mask) = self.masks.get(&start) {
            return mask;
        }
        let mask = self.own(ptx_compile::Class::Predicate);
        self.masks.insert(start, mask);
        mask
    }

    fn reg(&mut self, reg: Reg) -> ptx_compile::Reg {
        let region = &mut self.region;
        *self.numbers.entry(reg).or_insert_with(|| {
            let class = match self.finder.class(reg) {
                Class::Word => ptx_compile::Class::Word,
                Class::Long => ptx_compile::Class::Long,
                Class::Predicate => ptx_compile::Class::Predicate,
            };
            region.registers.push(Register { class, place: self.finder.source.places[reg.0 as usize].0 });
            ptx_compile::Reg(region.registers.len() as u32 - 1)
        })
    }

    fn guard(&mut self, guard: Guard) -> Option<ptx_compile::Guard> {
        match guard {
            Guard::Always => None,
            Guard::If(reg) => Some(ptx_compile::Guard { predicate: self.reg(reg), negated: false }),
            Guard::Unless(reg) => Some(ptx_compile::Guard { predicate: self.reg(reg), negated: true }),
        }
    }

    fn target(&mut self, step: usize) -> Target {
        if let Some(&block) = self.numbers_of.get(&step) {
            return Target::Block(block);
        }
        let count = self.exits.len() as u32;
        let exit = *self.exits.entry(step).or_insert(count);
        if exit == count {
            self.exit_steps.push(step as u32);
            self.region.exits.push(Vec::new());
        }
        Target::Exit(exit)
    }

    /// Adds the block of a step at which strips meet.
    pub(super) fn meeting(&mut self, at: usize) {
        let step = &self.finder.source.steps[at];
        let guard = self.guard(step.guard);
        let taken = target(step).map(|to| self.target(to));
        let held = match (&step.op, guard) {
            (_, Some(guard)) => Meeting::Branch(guard),
            (Op::Barrier { .. }, _) => {
                self.barriers.extend(self.finder.barriers[at]);
                Meeting::Barrier
            }
            _ => self.known_shuffle(at).unwrap_or_else(|| {
                let (uses, definitions) = &self.finder.registers[at];
                Meeting::Step {
                    uses: uses.iter().map(|&reg| self.reg(reg)).collect(),
                    definitions: definitions.iter().map(|&reg| self.reg(reg)).collect(),
                }
            }),
        };
        let next = self.target(at + 1);
        let meeting = self.region.meetings.len() as u32;
        self.region.meetings.push(held);
        self.meetings.push(at as u32);
        self.region.blocks.push(Block { end: End::Meet { meeting, taken, next }, ..Block::default() });
        self.counted.push(Counted {
            start: at as u32,
            steps: 1,
            unguarded: u64::from(guard.is_none()),
            jumps: false,
            divides: false,
            is_masked: false,
            lane_loop: None,
        });
    }

    /// A shuffle of which each lane reads a lane that is known.
    fn known_shuffle(&mut self, at: usize) -> Option<Meeting> {
        let Op::Warp { op: WarpOp::Shuffle(mode), args, .. } = &self.finder.source.steps[at].op else {
            return None;
        };
        let [distance, control] = [args.b, args.c].map(|reg| self.finder.constant(reg, at));
        let (distance, control) = (distance? as u32, control? as u32);
        let lanes: [(u32, bool); WARP] =
            std::array::from_fn(|lane| shuffled(*mode, lane as u32, distance, control));
        let inside = (0..WARP).fold(0, |bits, lane| bits | u32::from(lanes[lane].1) << lane);
        let valid = args.e.is_some().then(|| self.reg(args.e));
        let from = lanes.map(|(from, _)| from as u8);
        Some(Meeting::Shuffle { d: self.reg(args.d), valid, a: self.reg(args.a), from, inside })
    }

    /// Adds the block of these steps.
    pub(super) fn block(&mut self, first: usize, last: usize) {
        let finder = self.finder;
        let mut open = self.open(first, last);
        let lane_loop = self.begin_lane_loop(first, last);
        open.counted.lane_loop = lane_loop.map(|lane_loop| lane_loop.index as usize);
        let after = lane_loop.map(|_| finder.live_before(last));
        let stays = lane_loop.map(|of| ptx_compile::Guard { predicate: of.mask, negated: false });
        let waiting = match (&open.masked, lane_loop) {
            (Some((area, ..)), _) => area.later(first).chain([area.end]).collect(),
            (None, Some(_)) => vec![last],
            (None, None) => Vec::new(),
        };
        let (mut end, mut counted) = (None, None);
        for at in first..last {
            let step = &finder.source.steps[at];
            let guard = self.guard(step.guard);
            open.counted.unguarded += u64::from(guard.is_none());
            match (&step.op, &finder.source.lowered[at]) {
                (Op::Jump { target }, _) => {
                    let (ends, divided) = self.jump(&mut open, guard, (at, *target as usize), last);
                    (end, counted) = (Some(ends), divided);
                }
                (Op::Lanes { args, .. }, Lowered::Computes(meaning)) => {
                    let sources = [args.a, args.b, args.c].into_iter().filter(|reg| reg.is_some());
                    let sources = sources.map(|reg| self.reg(reg)).collect();
                    let d = self.reg(args.d);
                    let is_needed = after.as_ref().is_some_and(|after| after.has(args.d.0 as usize));
                    let stay = stays.filter(|_| is_needed);
                    let guard = self.acting(&mut open, guard.or(stay), Some(args.d));
                    let operation = Operation::Compute { meaning: *meaning, d, sources };
                    open.instructions.push(Instruction { guard, operation });
                }
                (Op::Access { args, .. }, Lowered::Moves(ty)) => {
                    let guard = self.acting(&mut open, guard.or(stays), None);
                    let element = element(*ty).unwrap_or(Element::Word);
                    let operation = Operation::Access(self.access(at, args, element, &waiting));
                    open.instructions.push(Instruction { guard, operation });
                }
                _ => {}
            }
        }
        if end.is_none()
            && let Some((area, here, _)) = &open.masked
        {
            self.send(&mut open.instructions, area, last, *here);
        }
        let end = end.unwrap_or_else(|| End::Jump(self.target(last)));
        let mask = open.masked.as_ref().map(|(area, here, _)| Mask {
            here: *here,
            later: area.later(first).map(|start| self.masks[&start]).collect(),
        });
        self.region.blocks.push(Block { lane_loop, mask, counted, instructions: open.instructions, end });
        self.counted.push(open.counted);
    }

    /// The end of a block whose step `at` jumps to `to` where the guard lets it, and the guard that
    /// is counted where this divides the threads.
    fn jump(
        &mut self,
        open: &mut Open<'f>,
        guard: Option<ptx_compile::Guard>,
        (at, to): (usize, usize),
        last: usize,
    ) -> (End, Option<ptx_compile::Guard>) {
        open.counted.jumps = guard.is_none();
        let area = self.areas.iter().find(|area| area.branch == at || area.has(at));
        match (area, guard) {
            (Some(area), guard) => {
                let counted = self.divide(open, area, guard, (at, to));
                (End::Jump(self.target(last)), counted)
            }
            (None, None) => (End::Jump(self.target(to)), None),
            (None, Some(guard)) => {
                let taken = self.target(to);
                (End::Branch { guard, taken, next: self.target(at + 1) }, None)
            }
        }
    }

    /// Begins a block. A block of an area is preceded by one that skips it if it has no threads.
    fn open(&mut self, first: usize, last: usize) -> Open<'f> {
        let counted = Counted {
            start: first as u32,
            steps: (last - first) as u64,
            unguarded: 0,
            jumps: false,
            divides: self.areas.iter().any(|area| area.branch == last - 1),
            is_masked: false,
            lane_loop: None,
        };
        let area = self.areas.iter().find(|area| area.has(first));
        let Some(area) = area else { return Open { instructions: Vec::new(), counted, masked: None } };
        let here = self.mask(first);
        let guard = ptx_compile::Guard { predicate: here, negated: true };
        let next = Target::Block(self.region.blocks.len() as u32 + 1);
        let end = End::Branch { guard, taken: self.target(last), next };
        self.region.blocks.push(Block { end, ..Block::default() });
        self.counted.push(Counted { steps: 0, divides: false, is_masked: true, ..counted });
        let later = area.later(first).chain([area.end]);
        let needed = later.map(|at| self.finder.live_before(at)).collect();
        Open {
            instructions: Vec::new(),
            counted: Counted { is_masked: true, ..counted },
            masked: Some((area, here, needed)),
        }
    }

    /// The guard of an instruction: in an area it lets no thread act that is elsewhere, unless the
    /// instruction only writes a register that nobody needs afterwards.
    fn acting(
        &mut self,
        open: &mut Open,
        guard: Option<ptx_compile::Guard>,
        written: Option<Reg>,
    ) -> Option<ptx_compile::Guard> {
        let Some((_, here, needed)) = &open.masked else { return guard };
        let is_needed = |reg: Reg| needed.iter().any(|live| live.has(reg.0 as usize));
        let Some(guard) = guard else {
            let everybody = written.is_some_and(|reg| !is_needed(reg));
            return (!everybody).then_some(ptx_compile::Guard { predicate: *here, negated: false });
        };
        let here = *here;
        let predicate = self.of_predicates(&mut open.instructions, guard, here);
        Some(ptx_compile::Guard { predicate, negated: false })
    }

    /// A predicate: in which threads of another one a guard lets act.
    fn of_predicates(
        &mut self,
        instructions: &mut Vec<Instruction>,
        guard: ptx_compile::Guard,
        here: ptx_compile::Reg,
    ) -> ptx_compile::Reg {
        let d = self.own(ptx_compile::Class::Predicate);
        let mut from = guard.predicate;
        if guard.negated {
            instructions.push(on_predicates(ptx_lower::Op::Not, d, &[from]));
            from = d;
        }
        instructions.push(on_predicates(ptx_lower::Op::And, d, &[from, here]));
        d
    }

    /// Sends threads to the block of an area that starts at a step, if one does.
    fn send(
        &mut self,
        instructions: &mut Vec<Instruction>,
        area: &Area,
        step: usize,
        threads: ptx_compile::Reg,
    ) {
        if area.has(step) {
            let mask = self.mask(step);
            instructions.push(on_predicates(ptx_lower::Op::Or, mask, &[mask, threads]));
        }
    }

    /// Ends a block at a jump that threads take differently, or that those in an area take. The
    /// threads that are counted for the jump are returned, if it has a guard.
    fn divide(
        &mut self,
        open: &mut Open,
        area: &Area,
        guard: Option<ptx_compile::Guard>,
        (at, target): (usize, usize),
    ) -> Option<ptx_compile::Guard> {
        let instructions = &mut open.instructions;
        let here = match (&open.masked, guard) {
            (Some((_, here, _)), _) => *here,
            // All threads are at the branch; nobody is in its blocks yet.
            (None, Some(guard)) => {
                let all = self.own(ptx_compile::Class::Predicate);
                for &start in &area.starts {
                    let mask = self.mask(start);
                    instructions.push(on_predicates(ptx_lower::Op::Xor, mask, &[guard.predicate; 2]));
                }
                let first = self.mask(area.starts[0]);
                instructions.push(on_predicates(ptx_lower::Op::Not, all, &[first]));
                all
            }
            (None, None) => return None,
        };
        let Some(guard) = guard else {
            self.send(instructions, area, target, here);
            return None;
        };
        let taken = self.of_predicates(instructions, guard, here);
        let others = self.own(ptx_compile::Class::Predicate);
        instructions.push(on_predicates(ptx_lower::Op::Xor, others, &[here, taken]));
        self.send(instructions, area, target, taken);
        self.send(instructions, area, at + 1, others);
        Some(ptx_compile::Guard { predicate: taken, negated: false })
    }

    /// What a block needs that is a loop which threads leave one by one.
    fn begin_lane_loop(&mut self, first: usize, last: usize) -> Option<LaneLoop> {
        self.finder.lane_loop(last - 1, first).filter(|&start| start == first)?;
        let index = self.region.lane_loops() as u32;
        let (mask, laps) = (self.own(ptx_compile::Class::Predicate), self.own(ptx_compile::Class::Word));
        Some(LaneLoop { mask, laps, index })
    }

    fn access(&mut self, at: usize, args: &AccessArgs, element: Element, waiting: &[usize]) -> Access {
        let (address, base) = match args.indexed {
            Some(Indexed { base, index, signed, shift }) => {
                (Address::Indexed { index: self.reg(index), signed, shift }, base.0)
            }
            None if args.narrow => (Address::Word(self.reg(args.address)), 0),
            None => (Address::Long(self.reg(args.address)), 0),
        };
        let data =
            args.data.iter().copied().take_while(|reg| reg.is_some()).map(|reg| self.reg(reg)).collect();
        let waiting = waiting.iter().map(|&step| step as u32).collect();
        let index = self.finder.deferred.as_ref().and_then(|deferred| deferred.registers.first());
        let is_at_index = index.is_some() && args.indexed.as_ref().map(|of| &of.index) == index;
        self.sites.push(Site { step: at as u32, element, is_at_index, waiting });
        let site = self.sites.len() as u32 - 1;
        let key = u64::from(base) << 2 | args.space as u64;
        let store = args.kind == AccessKind::Store;
        let of_lane = args.space == Space::Local;
        Access { site, key, address, offset: args.offset, data, element, store, of_lane }
    }

    pub(super) fn finish(mut self, uniform: Vec<(Class, Reg)>) -> NativeRegion {
        let written: BTreeSet<ptx_compile::Reg> = self.region.definitions().collect();
        for (&step, &exit) in &self.exits {
            let live = self.finder.live_before(step);
            // What is only read is still in the frame.
            let known = self.numbers.iter();
            let known = known.filter(|(reg, number)| live.has(reg.0 as usize) && written.contains(number));
            let mut live: Vec<ptx_compile::Reg> = known.map(|(_, number)| *number).collect();
            live.sort_unstable();
            self.region.exits[exit as usize] = live;
        }
        self.region.prune();
        let reads_prologue = self.finder.deferred.as_ref().is_some_and(|deferred| {
            let is_block = |reg: &Reg| matches!(self.finder.inputs.get(reg), Some(Input::Block(_)));
            self.numbers
                .keys()
                .any(|reg| is_block(reg) || deferred.registers.iter().skip(1).any(|one| one == reg))
        });
        let Builder { region, counted, mut exit_steps, meetings, barriers, sites, range, .. } = self;
        exit_steps.extend(meetings);
        let exits = Exits { steps: exit_steps, barriers };
        NativeRegion::new(range.0 as u32, region, counted, exits, sites, uniform, reads_prologue)
    }
}
