//! Finds the regions of a kernel that can become machine code.
//!
//! A region is a range of steps that the generator knows, entered at its first step only. Branches
//! in it depend on registers that other steps of the region compute of what is likely to be the
//! same in all threads; the caller checks that on entry. In a loop, a forward branch may diverge:
//! then each block up to the step where the threads reconverge has a mask of its threads, and all
//! its branches lead forward. Ranges are shortened until these conditions hold.
//!
//! Steps by which lanes communicate are [meetings](Meeting). Regions are looked for twice: barriers
//! are in those that all warps of a block enter together. Branches outside of loops that lead over
//! other meetings are meetings themselves, at which warps may part.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ptx::ScalarType;
use ptx_compile::{
    Access, Address, Block, Element, End, Instruction, LATER, LaneLoop, Mask, Meeting, Operation, Region,
    Register, Target, supports,
};
use ptx_lower::scalar::shuffled;
use ptx_lower::{Meaning, Op as Lowest};

use crate::code::{BarrierKind, Input, Op, Step, WarpOp};
use crate::compile::allocate::{Set, Span, live_in};
use crate::native::{Counted, Exits, Lowered, Native, NativeRegion, Outside, Site};
use crate::operands::{AccessArgs, AccessKind, Class, Guard, Indexed, Reg, Role, Space};
use crate::registers::lanes::WARP;
use crate::warp::barrier::BARRIERS;

/// Minimum number of steps in a region without a loop: a shorter one costs more to enter than it
/// saves.
const FEWEST: usize = 4;

/// Most steps of a region.
const MOST: usize = 2048;

/// Most steps of a function in which regions are looked for.
const LONGEST: usize = 20_000;

/// A function's steps, over virtual registers.
pub(super) struct Source<'s> {
    pub(super) steps: Vec<Step>,
    pub(super) lowered: &'s [Lowered],
    pub(super) classes: &'s [Class],
    /// The register of the region that stands for each register.
    pub(super) places: &'s [Reg],
}

/// The steps between a divergent branch and the step at which its threads reconverge.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Area {
    /// The branch.
    branch: usize,
    /// Where its blocks start, in order; the first is the step after the branch.
    starts: Vec<usize>,
    /// The step at which the threads reconverge.
    end: usize,
}

/// The branches of a range that threads take differently.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Branches {
    areas: Vec<Area>,
    /// Branches that part warps.
    parting: Vec<usize>,
}

impl Area {
    /// Whether a step is in one of the blocks.
    fn has(&self, step: usize) -> bool {
        (self.branch + 1..self.end).contains(&step)
    }

    /// Where the blocks after the one at `start` start.
    fn later(&self, start: usize) -> impl Iterator<Item = usize> {
        self.starts.iter().copied().filter(move |later| *later > start)
    }
}

/// The prologue, if batches may pass it.
pub(super) struct Deferred {
    /// The step after it.
    pub(super) end: usize,
    /// What it computes: the index, and the outcome of its comparison.
    pub(super) registers: Vec<Reg>,
}

/// The regions of a function.
pub(super) fn find(
    mut source: Source,
    spans: &[Span],
    inputs: &HashMap<Reg, Input>,
    deferred: Option<Deferred>,
) -> Native {
    for step in &mut source.steps {
        if let Op::Access { args, .. } = &mut step.op
            && args.indexed.is_some()
        {
            // The parts tell the address.
            args.address = Reg::NONE;
        }
    }
    let count = source.steps.len();
    if count > LONGEST {
        return Native::default();
    }
    let live = live_in(&mut source.steps, spans, source.classes.len());
    let registers = source.steps.iter_mut().map(registers).collect();
    let mut finder = Finder {
        meetings: Vec::new(),
        barriers: Vec::new(),
        jumps: Vec::new(),
        lane_loops: Vec::new(),
        varying: Vec::new(),
        registers,
        source,
        spans,
        inputs,
        live,
        deferred,
    };
    finder.jumps = finder.jumps();
    // Who passes the prologue goes on behind it.
    finder.jumps.extend(finder.deferred.iter().map(|deferred| (usize::MAX, deferred.end)));
    finder.varying = finder.varying();
    finder.barriers = (0..count).map(|at| finder.barrier(at)).collect();
    finder.meetings = (0..count).map(|at| finder.is_exchange(at)).collect();
    finder.lane_loops = (0..count).map(|at| finder.find_lane_loop(at)).collect();
    let (regions, outside) = finder.all();
    if finder.barriers.iter().all(Option::is_none) {
        return Native::new(regions, None, outside);
    }
    for (meets, barrier) in finder.meetings.iter_mut().zip(&finder.barriers) {
        *meets |= barrier.is_some();
    }
    let (of_blocks, outside) = finder.all();
    Native::new(regions, Some(of_blocks), outside)
}

/// An operation on predicates.
fn on_predicates(op: ptx_lower::Op, d: ptx_compile::Reg, sources: &[ptx_compile::Reg]) -> Instruction {
    let meaning = Meaning::plain(op, ScalarType::Pred);
    Instruction { guard: None, operation: Operation::Compute { meaning, d, sources: sources.to_vec() } }
}

struct Finder<'s> {
    /// Whether strips meet at each step because lanes communicate there.
    meetings: Vec<bool>,
    /// The number of the barrier at each step where all threads of the block wait.
    barriers: Vec<Option<u32>>,
    source: Source<'s>,
    spans: &'s [Span],
    inputs: &'s HashMap<Reg, Input>,
    /// Registers that are live at the start of each span.
    live: Vec<Set>,
    deferred: Option<Deferred>,
    /// Registers that probably differ between threads.
    varying: Vec<bool>,
    /// Uses and definitions of each step.
    registers: Vec<(Vec<Reg>, Vec<Reg>)>,
    /// All jumps: from where to where.
    jumps: Vec<(usize, usize)>,
    /// For each step the start of the loop that it ends, if threads leave that one by one.
    lane_loops: Vec<Option<usize>>,
}

/// The target of a jump.
fn target(step: &Step) -> Option<usize> {
    match step.op {
        Op::Jump { target } => Some(target as usize),
        _ => None,
    }
}

/// The element that an access of a type has for each register.
fn element(ty: ScalarType) -> Option<Element> {
    Some(match ty.bytes() {
        bytes @ (1 | 2) => Element::Narrow { bytes: bytes as u8, signed: ty.is_signed() },
        4 => Element::Word,
        8 => Element::Long,
        _ => return None,
    })
}

/// Uses and definitions of a step.
fn registers(step: &mut Step) -> (Vec<Reg>, Vec<Reg>) {
    let (mut uses, mut definitions) = (Vec::new(), Vec::new());
    step.registers(&mut |reg, role| match role {
        Role::Use => uses.push(*reg),
        Role::Def => definitions.push(*reg),
    });
    (uses, definitions)
}

impl Finder<'_> {
    /// All regions, and why each step would be in none.
    fn all(&self) -> (Vec<NativeRegion>, Vec<Option<Outside>>) {
        let mut open = self.known_ranges();
        let mut regions = Vec::new();
        let mut outside: Vec<Option<Outside>> = (0..self.source.steps.len())
            .map(|at| Some(if self.is_known(at) { Outside::Short } else { Outside::Unknown }))
            .collect();
        while let Some((start, end)) = open.pop() {
            match self.cut(start, end) {
                Some(parts) => {
                    let kept = |at: &usize| parts.iter().any(|(start, end)| (start..end).contains(&at));
                    (start..end).filter(|at| !kept(at)).for_each(|at| outside[at] = Some(Outside::Branch));
                    open.extend(parts);
                }
                None => regions.extend(self.region(start, end)),
            }
        }
        (regions, outside)
    }

    /// The number of the barrier at a step where all threads of the block wait.
    fn barrier(&self, at: usize) -> Option<u32> {
        match self.source.steps[at].op {
            _ if self.source.steps[at].guard != Guard::Always => None,
            Op::Barrier { kind: BarrierKind::Sync, barrier, threads: Reg::NONE, .. } => {
                self.constant(barrier, at).map(|number| number as u32).filter(|&one| one < BARRIERS as u32)
            }
            _ => None,
        }
    }

    /// Whether the lanes of a warp communicate at a step.
    fn is_exchange(&self, at: usize) -> bool {
        let Step { guard, op, .. } = &self.source.steps[at];
        *guard == Guard::Always && matches!(op, Op::Warp { .. } | Op::Matrix(_))
    }

    /// Whether strips meet at a step because lanes communicate there.
    fn meets(&self, at: usize) -> bool {
        self.meetings[at]
    }

    /// The number that a register has at a step in all threads, if it is known: an input, or what
    /// the only step that writes it, which is before, moves there.
    fn constant(&self, reg: Reg, at: usize) -> Option<u64> {
        let input = |reg: Reg| match self.inputs.get(&reg)? {
            Input::Constant(bits) => Some(*bits),
            _ => None,
        };
        if let Some(bits) = input(reg) {
            return Some(bits);
        }
        let writes = |at: &usize| self.registers[*at].1.contains(&reg);
        let mut writers = (0..self.source.steps.len()).filter(writes);
        let (writer, None) = (writers.next()?, writers.next()) else { return None };
        let Step { guard: Guard::Always, op: Op::Lanes { args, .. }, .. } = &self.source.steps[writer] else {
            return None;
        };
        let moves = matches!(&self.source.lowered[writer], Lowered::Computes(of) if of.op == Lowest::Move);
        if moves && writer < at { input(args.a) } else { None }
    }

    /// Whether an input is the same in all threads of a block.
    fn is_uniform_input(&self, reg: Reg) -> bool {
        use Input::{Lane, LaneMask, LocalWindow, LocalWindowEnd, Thread, Warp};
        let differs = |input: &Input| {
            matches!(input, Thread(_) | Lane | Warp | LaneMask(_) | LocalWindow | LocalWindowEnd)
        };
        self.inputs.get(&reg).is_some_and(|input| !differs(input))
    }

    /// The registers that differ between threads, as far as data tell.
    fn varying(&self) -> Vec<bool> {
        let mut varying: Vec<bool> = (0..self.source.classes.len() as u32)
            .map(|reg| self.inputs.contains_key(&Reg(reg)) && !self.is_uniform_input(Reg(reg)))
            .collect();
        let mut changed = true;
        while changed {
            changed = false;
            for (step, (uses, definitions)) in self.source.steps.iter().zip(&self.registers) {
                let computes = matches!(step.op, Op::Lanes { .. });
                if !computes || uses.iter().any(|reg| varying[reg.0 as usize]) {
                    for reg in definitions {
                        changed |= !std::mem::replace(&mut varying[reg.0 as usize], true);
                    }
                }
            }
        }
        varying
    }

    /// The longest ranges of steps that the generator knows.
    fn known_ranges(&self) -> Vec<(usize, usize)> {
        let mut ranges = Vec::new();
        let mut start = 0;
        for at in 0..=self.source.steps.len() {
            if at < self.source.steps.len() && self.is_known(at) && at - start < MOST {
                continue;
            }
            if at > start {
                ranges.push((start, at));
            }
            start = at + 1;
        }
        ranges
    }

    fn class(&self, reg: Reg) -> Class {
        self.source.classes[reg.0 as usize]
    }

    fn is_known(&self, at: usize) -> bool {
        match (&self.source.steps[at].op, &self.source.lowered[at]) {
            (Op::Jump { .. }, _) => true,
            _ if self.meets(at) => true,
            (Op::Lanes { args, .. }, Lowered::Computes(meaning)) => {
                let count = meaning.sources().len();
                let given = [args.a, args.b, args.c, args.f].iter().filter(|reg| reg.is_some()).count();
                args.d.is_some() && !args.e.is_some() && count == given && count <= 3 && supports(meaning)
            }
            (Op::Access { args, .. }, Lowered::Moves(ty)) => {
                let data: Vec<Reg> = args.data.iter().copied().take_while(|reg| reg.is_some()).collect();
                let (class, most) = match element(*ty) {
                    Some(Element::Long) => (Class::Long, 2),
                    Some(_) => (Class::Word, 4),
                    None => return false,
                };
                matches!(data.len(), 1 | 2 | 4)
                    && data.len() <= most
                    && data.iter().all(|&reg| self.class(reg) == class)
                    && !args.synchronises
                    && matches!(args.kind, AccessKind::Load | AccessKind::Store)
                    && args.offset.abs() < 1 << 30
            }
            _ => false,
        }
    }

    /// The target of a jump.
    fn jump(&self, at: usize) -> Option<usize> {
        target(&self.source.steps[at])
    }

    /// The steps to which others than the one before jump from outside a range.
    fn entries(&self, start: usize, end: usize) -> BTreeSet<usize> {
        let outside = self.jumps.iter().filter(|(from, _)| !(start..end).contains(from));
        outside.map(|&(_, to)| to).filter(|to| (start + 1..end).contains(to)).collect()
    }

    /// All jumps.
    fn jumps(&self) -> Vec<(usize, usize)> {
        let mut jumps = Vec::new();
        for (at, step) in self.source.steps.iter().enumerate() {
            match &step.op {
                Op::Jump { target } => jumps.push((at, *target as usize)),
                Op::JumpTable { targets, .. } => jumps.extend(targets.iter().map(|&to| (at, to as usize))),
                _ => {}
            }
        }
        jumps
    }

    /// The start of the loop that a step ends, if it is in the range and threads leave it one by
    /// one.
    fn lane_loop(&self, at: usize, start: usize) -> Option<usize> {
        self.lane_loops[at].filter(|&first| first >= start)
    }

    /// Cuts a range that is no region; `None` if it is one.
    fn cut(&self, start: usize, end: usize) -> Option<Vec<(usize, usize)>> {
        let cuts = self.entries(start, end);
        if !cuts.is_empty() {
            let starts = std::iter::once(start).chain(cuts.iter().copied());
            let ends = cuts.iter().copied().chain(std::iter::once(end));
            return Some(starts.zip(ends).collect());
        }
        for at in (start..end).filter(|&at| self.jump(at).is_some()) {
            let Some(first) = self.lane_loop(at, start) else { continue };
            let encloses = |&other: &usize| {
                other > at && self.jump(other).is_some_and(|target| (start..=first).contains(&target))
            };
            if (start..end).any(|other| encloses(&other)) {
                // It would be executed again and again.
                let parts = [(start, first), (first, at + 1), (at + 1, end)];
                return Some(parts.into_iter().filter(|(start, end)| start < end).collect());
            }
        }
        let bad = self.branches(start, end).err()?;
        Some([(start, bad), (bad + 1, end)].into_iter().filter(|(start, end)| start < end).collect())
    }

    /// The branches of a range that threads take differently; the one that can be no such, if there
    /// is one.
    fn branches(&self, start: usize, end: usize) -> Result<Branches, usize> {
        let mut branches = Branches::default();
        loop {
            let found = self.branches_beside(start, end, &branches.areas)?;
            if found == branches {
                return Ok(found);
            }
            if found.areas.len() < branches.areas.len() {
                // What they compute makes no branch uniform.
                return Err(branches.areas[0].branch);
            }
            branches = found;
        }
    }

    /// The branches of a range that threads take differently, if they differ in what other areas
    /// compute.
    fn branches_beside(&self, start: usize, end: usize, others: &[Area]) -> Result<Branches, usize> {
        let (mut branches, mut at) = (Branches::default(), start);
        while at < end {
            let diverges = self.jump(at).is_some()
                && self.lane_loop(at, start).is_none()
                && self.conditions(at, start, end, others).is_none();
            if !diverges {
                at += 1;
                continue;
            }
            match self.area(at, (start, end)) {
                Some(area) => {
                    at = area.end;
                    branches.areas.push(area);
                }
                None if self.may_part_warps(at, (start, end)) => {
                    branches.parting.push(at);
                    at += 1;
                }
                None => return Err(at),
            }
        }
        Ok(branches)
    }

    /// Whether a jump may part warps: it leads forward over a meeting, and is in no loop, which
    /// would stop again and again if its threads go different ways.
    fn may_part_warps(&self, at: usize, (start, end): (usize, usize)) -> bool {
        let is_around =
            |&(from, to): &(usize, usize)| (at..end).contains(&from) && (start..=at).contains(&to);
        let leads_over = |target: usize| (at + 1..target.min(end)).any(|step| self.meets(step));
        self.jump(at).is_some_and(leads_over) && !self.jumps.iter().any(is_around)
    }

    /// The area that a branch begins; `None` if it leads back, or the area has loops, is entered
    /// from elsewhere, has too many blocks, or meetings. There is none outside of loops either: cut
    /// there, the parts are shorter, but have no masks, and most warps do not divide.
    fn area(&self, branch: usize, (start, end): (usize, usize)) -> Option<Area> {
        let mut last = self.jump(branch)?;
        let mut starts = BTreeSet::from([branch + 1, last]);
        let mut at = branch + 1;
        while at < last {
            if self.meets(at) {
                return None;
            }
            if let Some(target) = self.jump(at) {
                (target > at).then_some(())?;
                starts.extend([at + 1, target]);
                last = last.max(target);
            }
            at += 1;
        }
        starts.retain(|start| *start < last);
        let is_entered = self
            .jumps
            .iter()
            .any(|&(from, to)| !(branch..last).contains(&from) && (branch + 1..last).contains(&to));
        let fits = branch + 1 < last && last <= end && starts.len() <= LATER + 1;
        let is_repeated = self
            .jumps
            .iter()
            .any(|&(from, to)| (start..=branch).contains(&to) && (last..end).contains(&from));
        (fits && is_repeated && !is_entered).then(|| Area {
            branch,
            starts: starts.into_iter().collect(),
            end: last,
        })
    }

    /// The first step of the loop that the jump at a step ends, if that is one block, and threads
    /// leave it one by one, however many rounds others make and whatever they write.
    fn find_lane_loop(&self, at: usize) -> Option<usize> {
        let step = &self.source.steps[at];
        let first = self.jump(at).filter(|&target| target < at)?;
        let (Guard::If(condition) | Guard::Unless(condition)) = step.guard else { return None };
        let is_plain = |step: &Step| step.guard == Guard::Always && target(step).is_none();
        let is_one = self.varying[condition.0 as usize]
            && self.source.steps[first..at].iter().all(is_plain)
            && !self.is_loaded(condition, first, at)
            && (first..at).all(|at| self.is_known(at) && !self.meets(at))
            && self.entries(first, at + 1).is_empty();
        is_one.then_some(first)
    }

    /// Whether a register depends on what steps load from memory.
    fn is_loaded(&self, reg: Reg, first: usize, last: usize) -> bool {
        let (mut seen, mut open) = (BTreeSet::new(), vec![reg]);
        while let Some(reg) = open.pop() {
            if !seen.insert(reg) {
                continue;
            }
            for at in (first..last).filter(|&at| self.registers[at].1.contains(&reg)) {
                if !matches!(self.source.steps[at].op, Op::Lanes { .. }) {
                    return true;
                }
                open.extend(self.registers[at].0.iter().copied());
            }
        }
        false
    }

    /// Whether a step is in a loop that threads leave one by one.
    fn is_in_lane_loop(&self, at: usize, (start, end): (usize, usize)) -> bool {
        let mut jumps = (at..end).filter(|&jump| self.jump(jump).is_some());
        jumps.next().and_then(|jump| self.lane_loop(jump, start)).is_some_and(|first| first <= at)
    }

    /// The registers that have to be the same in all threads, so that the jump at a step is taken by
    /// all or by none; `None` if they are not likely to be.
    fn conditions(&self, at: usize, start: usize, end: usize, areas: &[Area]) -> Option<BTreeSet<Reg>> {
        let (Guard::If(condition) | Guard::Unless(condition)) = self.source.steps[at].guard else {
            return Some(BTreeSet::new());
        };
        let live = self.live_before(start);
        let (mut seen, mut open) = (BTreeSet::new(), vec![condition]);
        let mut needed = BTreeSet::new();
        while let Some(reg) = open.pop() {
            if self.is_uniform_input(reg) || !seen.insert(reg) {
                continue;
            }
            if self.varying[reg.0 as usize] {
                return None;
            }
            if live.has(reg.0 as usize) {
                needed.insert(reg);
            }
            for (at, (uses, definitions)) in self.registers.iter().enumerate().take(end).skip(start) {
                if definitions.contains(&reg) {
                    if self.is_in_lane_loop(at, (start, end)) || areas.iter().any(|area| area.has(at)) {
                        return None;
                    }
                    open.extend(uses.iter().copied());
                }
            }
        }
        Some(needed)
    }

    /// Returns the registers that are live before a step.
    fn live_before(&self, at: usize) -> Set {
        let Some(span) = self.spans.iter().position(|span| (span.start..span.end).contains(&at)) else {
            return Set::empty(self.source.classes.len());
        };
        let mut live = Set::empty(self.source.classes.len());
        for &next in &self.spans[span].successors {
            self.live[next].iter().for_each(|reg| live.insert(reg));
        }
        for at in (at..self.spans[span].end).rev() {
            let (uses, definitions) = &self.registers[at];
            if self.source.steps[at].guard == Guard::Always {
                definitions.iter().for_each(|reg| live.remove(reg.0 as usize));
            }
            uses.iter().for_each(|reg| live.insert(reg.0 as usize));
        }
        live
    }

    /// The region of a range that needs no cut, if it is worth to be one.
    fn region(&self, start: usize, end: usize) -> Option<NativeRegion> {
        let jumps: Vec<usize> = (start..end).filter(|&at| self.jump(at).is_some()).collect();
        let has_loop = jumps.iter().any(|&at| self.jump(at).is_some_and(|to| (start..=at).contains(&to)));
        if end - start - jumps.len() < if has_loop { 1 } else { FEWEST } {
            return None;
        }
        let mut starts: BTreeSet<usize> = jumps.iter().map(|at| at + 1).filter(|at| *at < end).collect();
        starts.extend(jumps.iter().filter_map(|&at| self.jump(at)).filter(|to| (start..end).contains(to)));
        starts.insert(start);
        let Branches { areas, parting } = self.branches(start, end).ok()?;
        let meetings = (start..end).filter(|at| self.meets(*at)).chain(parting.iter().copied());
        starts.extend(meetings.flat_map(|at| [at, at + 1]).filter(|at| *at < end));
        let starts: Vec<usize> = starts.into_iter().collect();
        let mut builder = Builder::new(self, (start, end), &starts, &areas);
        let mut uniform = BTreeSet::new();
        for (index, &first) in starts.iter().enumerate() {
            let last = starts.get(index + 1).copied().unwrap_or(end);
            if self.meets(first) || parting.contains(&first) {
                builder.meeting(first);
                continue;
            }
            builder.block(first, last);
            let diverges = areas.iter().any(|area| area.branch == last - 1 || area.has(last - 1));
            if self.jump(last - 1).is_some() && self.lane_loop(last - 1, start).is_none() && !diverges {
                uniform.extend(self.conditions(last - 1, start, end, &areas)?);
            }
        }
        let uniform =
            uniform.into_iter().map(|reg| (self.class(reg), self.source.places[reg.0 as usize])).collect();
        Some(builder.finish(uniform))
    }
}

/// Builds a region.
struct Builder<'f, 's> {
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
    fn new(finder: &'f Finder<'s>, range: (usize, usize), starts: &[usize], areas: &'f [Area]) -> Self {
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
    fn meeting(&mut self, at: usize) {
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
    fn block(&mut self, first: usize, last: usize) {
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

    fn finish(mut self, uniform: Vec<(Class, Reg)>) -> NativeRegion {
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
