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
//! other meetings are meetings themselves, at which warps may part. What the generator takes of a
//! region is [built](build) from the range.

mod build;

use std::collections::{BTreeSet, HashMap};

use ptx_compile::{Element, LATER, supports};
use ptx_lower::Op as Lowest;

use build::{Builder, element};

use crate::code::{BarrierKind, Input, Op, Step};
use crate::compile::allocate::{Set, Span, live_in};
use crate::native::{Lowered, Native, NativeRegion, Outside};
use crate::operands::{AccessKind, Class, Guard, Reg, Role};
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
