//! A warp batch: warps of a block that are at the same place and execute together.
//!
//! Finding a step, calling its handler, checking an address: a batch pays for them once for all of
//! its warps, and the CPU has arithmetic at hand that does not depend on each other's results.
//! Warps set out together where the kernel begins and where a barrier has let them go. They stay
//! together while they agree: a branch has to be taken by all threads or by none (or skip a few
//! steps that only compute and access memory, which the batch executes for the others), warp
//! instructions have to find all their lanes, a barrier must have nobody else to wait for. Of
//! anything else the batch keeps off: it *parts*, and each warp goes on alone from the very step
//! ([`crate::warp`]).
//!
//! Invariants:
//!
//! 1. What a kernel without races computes, and what is counted, is what it would be if the warps
//!    ran one after the other. A step that one of them is refused has been executed by those before
//!    it and by none after it; these then run alone, in order, so that the first thread to fault is
//!    the same too.
//! 2. Nobody waits for a batch for ever: backward jumps and synchronising accesses burn its fuel as
//!    they burn a warp's.
//! 3. Launches that are watched have none.
//! 4. Warps whose prologue is deferred ([`crate::warp::prologue`]) are in the kernel itself. The
//!    batch ends or flushes it before it holds back a lane.

use std::ops::ControlFlow;
use std::sync::atomic::{Ordering, fence};

use crate::code::{BarrierKind, Code, Op, Step};
use crate::memory::spaces::{Accessed, DeferredIndex, Spaces};
use crate::operands::{AccessKind, Guard, Reg};
use crate::registers::Extent;
use crate::registers::lanes::{Lanes, wide_vectors};
use crate::registers::pattern::Pattern;
use crate::warp::fuel::Fuel;
use crate::warp::regions::{Left, enter};
use crate::warp::straight::{access, straight};
use crate::warp::{Surroundings, Warp, exchange};

/// Most warps of a batch: more would save hardly anything.
const MOST: usize = 8;

/// Most steps that some threads skip while the others execute them in the batch.
const SKIPPED: u32 = 16;

/// Bytes of registers that a batch works on: not much more than what the first-level cache holds.
const CACHE: u32 = 48 << 10;

/// Returns the maximum number of warps in a batch with frames of this size.
pub(crate) fn most(frame: Extent) -> usize {
    (CACHE / frame.bytes().max(1)).clamp(1, MOST as u32) as usize
}

/// Returns the number of `warps`, from the first on, that can set out together.
pub(crate) fn size(warps: &[Warp], most: usize) -> usize {
    let Some(leader) = warps.first().and_then(Warp::whole) else { return 1 };
    let joins = |warp: &&Warp| warp.whole().is_some_and(|path| path.same_place(leader));
    warps.iter().take(most).take_while(joins).count().max(1)
}

/// The reason why a batch ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parting {
    /// All threads have exited.
    Exited,
    /// Each warp goes on alone.
    Alone,
    /// The fuel is used up. The flag tells whether synchronising accesses burnt most of it.
    Tired { spinning: bool },
}

/// Runs warps that can set out together until they part. `lanes` are theirs; after
/// [`Parting::Exited`] they are what they were. `everyone` tells that all others of the block have
/// exited, `fresh` that these have not been started: they are where the kernel begins, and need to
/// be started only if they do not end together; then `threads` is what the kernel's prologue finds
/// of them.
pub(crate) fn run(
    warps: &mut [Warp],
    lanes: &mut [Lanes],
    around: &mut Surroundings,
    everyone: bool,
    fresh: bool,
    threads: Option<&Pattern>,
) -> Parting {
    let launch = around.launch;
    let (function, pc, outermost) = match warps.first().and_then(Warp::whole) {
        Some(leader) if !fresh => (leader.function, leader.pc, leader.is_outermost()),
        _ => (launch.kernel_function, 0, true),
    };
    let (code, fuel) = (launch.code(function), Fuel::full());
    Batch { warps, around, code, pc, outermost, everyone, fresh, lanes, threads: 0, fuel }.run(threads)
}

/// Warps on their way.
struct Batch<'w, 'a, 'l, 's, 'm> {
    warps: &'w mut [Warp],
    around: &'a mut Surroundings<'l, 's, 'm>,
    code: &'l Code,
    pc: u32,
    /// Whether they are in the kernel itself, not in a function that it called.
    outermost: bool,
    everyone: bool,
    fresh: bool,
    /// The registers of each warp. Between steps their masks have all lanes that have not exited.
    lanes: &'w mut [Lanes],
    /// Threads that have not exited.
    threads: u64,
    fuel: Fuel,
}

/// The share of lanes that execute a step, of those that could.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Agreement {
    All,
    None,
    Some,
}

impl Batch<'_, '_, '_, '_, '_> {
    fn run(self, threads: Option<&Pattern>) -> Parting {
        #[cfg(target_arch = "x86_64")]
        if wide_vectors() {
            // SAFETY: the CPU has the features, as `wide_vectors` has found.
            return unsafe { self.run_wide(threads) };
        }
        self.run_plain(threads)
    }

    /// [`run_plain`](Self::run_plain), with `popcnt` and its like.
    ///
    /// # Safety
    /// The CPU has the features.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt,f16c")]
    unsafe fn run_wide(self, threads: Option<&Pattern>) -> Parting {
        self.run_plain(threads)
    }

    #[inline(always)]
    fn run_plain(mut self, threads: Option<&Pattern>) -> Parting {
        self.threads = self.active();
        if self.fresh && threads.and_then(|threads| self.pass_prologue(threads)).is_none() {
            // SAFETY: these are frames of the kernel, and no mask holds back a lane.
            unsafe { self.around.set_block_inputs(self.lanes) };
        }
        loop {
            if let ControlFlow::Break(parting) = self.step() {
                return parting;
            }
        }
    }

    /// Passes the prologue, if its outcome can be told.
    #[inline(always)]
    fn pass_prologue(&mut self, threads: &Pattern) -> Option<()> {
        let prologue = self.code.prologue.as_ref()?;
        // SAFETY: these are frames of the kernel.
        let (pattern, branches) = unsafe { prologue.pass(self.lanes.first()?, self.around.block, threads)? };
        self.around.spaces.found = Some(DeferredIndex { index: prologue.index, pattern });
        (0..prologue.steps()).for_each(|_| self.count(self.threads));
        self.pc = prologue.steps() as u32;
        match &prologue.check {
            Some(check) if branches => {
                // Forward, so there is fuel for it.
                let _ = self.jump(check.target);
            }
            Some(_) => {
                self.count(0);
                self.pc += 1;
            }
            None => {}
        }
        Some(())
    }

    /// Computes what has been put off, while no mask holds back a lane.
    #[inline(always)]
    fn flush_prologue(&mut self) {
        // SAFETY: whoever has put something off is in the kernel itself.
        unsafe { self.around.flush_prologue(self.lanes) };
    }

    /// Executes a step, or as many straight ones as follow each other.
    #[inline(always)]
    fn step(&mut self) -> ControlFlow<Parting> {
        let code = self.code;
        if let Some(region) = code.native.at(self.pc, self.around.launch.engine, self.everyone)
            && let Some(flow) = self.enter(region)
        {
            return flow;
        }
        let Step { guard, op, straight, .. } = &code.steps[self.pc as usize];
        if *straight > 0 {
            return self.straight(&code.steps[self.pc as usize..(self.pc + straight) as usize]);
        }
        match (self.agreement(*guard), op) {
            (Agreement::None, _) => self.count(0),
            (Agreement::All, Op::Jump { target }) => return self.jump(*target),
            (Agreement::Some, Op::Jump { target }) if self.is_skip(*target) => {
                return self.skip(*guard, *target);
            }
            (Agreement::All, Op::Return | Op::Exit) if self.outermost => return self.exit(),
            (Agreement::All, Op::Barrier { kind: BarrierKind::Sync, barrier, threads: Reg::NONE, .. })
                if self.opens(*barrier) =>
            {
                self.count(self.threads)
            }
            _ => {
                self.flush_prologue();
                self.hold_back(*guard);
                self.execute(op)?;
                self.hold_back(Guard::Always);
            }
        }
        self.pc += 1;
        match op {
            Op::Access { args, .. } if args.synchronises && self.fuel.burn_strongly() => self.rest(),
            _ => ControlFlow::Continue(()),
        }
    }

    #[inline(always)]
    fn straight(&mut self, steps: &[Step]) -> ControlFlow<Parting> {
        // SAFETY: the frames have the registers that their code names, in the classes that the
        // handlers take; they were made for this CPU, and the windows are this block's own memory.
        if let Err(refused) = unsafe { straight(steps, &*self.lanes, self.around) } {
            self.pc += refused.step as u32;
            return self.part(refused.warp);
        }
        let count = steps.len() as u64;
        self.around.counts.warp_instructions += count * self.lanes.len() as u64;
        self.around.counts.thread_instructions += count * self.threads;
        self.pc += steps.len() as u32;
        ControlFlow::Continue(())
    }

    /// Executes a region as machine code; `None` if that is not possible, and nothing has been done.
    fn enter(&mut self, index: usize) -> Option<ControlFlow<Parting>> {
        let engine = self.around.launch.engine;
        let code = self.code;
        let region = code.native.region(index);
        if !self.outermost || !region.is_ready(engine, self.lanes.len()) {
            return None;
        }
        if region.reads_prologue {
            self.flush_prologue();
        }
        // SAFETY: the frames have the registers that their code names, nothing of them but the index
        // is deferred, and the windows are this block's own memory.
        let left = unsafe { enter(index, region, self.lanes, self.around)? };
        Some(match left {
            Left::At(pc) => {
                self.pc = pc;
                ControlFlow::Continue(())
            }
            Left::Apart(places) => {
                let parting = self.part(0);
                self.warps.iter_mut().zip(places).for_each(|(warp, place)| warp.move_whole(place));
                parting
            }
            Left::Stopped { warp, before, after, paths } => {
                let parting = self.part(0);
                self.warps.iter_mut().zip(before).for_each(|(warp, place)| warp.move_whole(place));
                self.warps[warp].divide(&paths);
                self.warps[warp + 1..].iter_mut().for_each(|warp| warp.move_whole(after));
                parting
            }
        })
    }

    /// Tests the guard in all threads.
    #[inline(always)]
    fn agreement(&self, guard: Guard) -> Agreement {
        if guard == Guard::Always {
            return Agreement::All;
        }
        let (mut passing, mut held) = (0, 0);
        for lanes in &*self.lanes {
            // SAFETY: the frame has the predicates that its code names.
            let pass = unsafe { lanes.passing(guard) };
            (passing, held) = (passing | lanes.live & pass, held | lanes.live & !pass);
        }
        match (passing, held) {
            (_, 0) => Agreement::All,
            (0, _) => Agreement::None,
            _ => Agreement::Some,
        }
    }

    /// Sets the masks to the lanes that the guard lets pass.
    fn hold_back(&mut self, guard: Guard) {
        for lanes in self.lanes.iter_mut() {
            // SAFETY: the frame has the predicates that its code names.
            lanes.mask = lanes.live & unsafe { lanes.passing(guard) };
            lanes.full = lanes.mask == lanes.live;
        }
    }

    /// Threads that act.
    #[inline(always)]
    fn active(&self) -> u64 {
        self.lanes.iter().map(|lanes| u64::from(lanes.mask.count_ones())).sum()
    }

    /// Counts a step that `threads` threads execute.
    fn count(&mut self, threads: u64) {
        self.around.counts.warp_instructions += self.lanes.len() as u64;
        self.around.counts.thread_instructions += threads;
    }

    fn jump(&mut self, target: u32) -> ControlFlow<Parting> {
        self.count(self.threads);
        self.around.counts.branches += self.lanes.len() as u64;
        let backward = target <= self.pc;
        self.pc = target;
        if backward && self.fuel.burn() { self.rest() } else { ControlFlow::Continue(()) }
    }

    /// Whether a jump from here skips a few steps that only compute and access memory.
    fn is_skip(&self, target: u32) -> bool {
        let first = self.pc + 1;
        let is_plain = |step: &Step| match &step.op {
            Op::Lanes { .. } => true,
            Op::Access { args, .. } => {
                !args.synchronises && matches!(args.kind, AccessKind::Load | AccessKind::Store)
            }
            _ => false,
        };
        (first..=first + SKIPPED).contains(&target)
            && self.code.steps[first as usize..target as usize].iter().all(is_plain)
    }

    /// Executes the steps up to the target of a branch that some threads take, for the others.
    #[inline(never)]
    fn skip(&mut self, guard: Guard, target: u32) -> ControlFlow<Parting> {
        self.flush_prologue();
        self.hold_back(guard);
        let mut here = [0; MOST];
        for (here, lanes) in here.iter_mut().zip(&*self.lanes) {
            let taken = lanes.mask;
            *here = lanes.live & !taken;
            self.around.counts.branches += u64::from(taken != 0);
            self.around.counts.divergent_branches += u64::from(taken != 0 && *here != 0);
        }
        self.count(self.active());
        self.pc += 1;
        while self.pc < target {
            let Step { guard, op, .. } = &self.code.steps[self.pc as usize];
            self.hold_back(*guard);
            for (here, lanes) in here.iter().zip(self.lanes.iter_mut()) {
                lanes.mask &= here;
                lanes.full = lanes.mask == lanes.live;
            }
            if let Err(done) = self.execute_plain(op) {
                return self.part_inside(&here, done, target);
            }
            self.around.counts.warp_instructions += here.iter().filter(|here| **here != 0).count() as u64;
            self.around.counts.thread_instructions += self.active();
            self.pc += 1;
        }
        self.hold_back(Guard::Always);
        ControlFlow::Continue(())
    }

    /// Executes a step that computes or accesses memory in the lanes that act; the index of the
    /// warp that was refused it.
    fn execute_plain(&mut self, op: &Op) -> Result<(), usize> {
        let warps = &*self.lanes;
        // SAFETY: as for straight steps.
        unsafe {
            match op {
                Op::Lanes { run, args, .. } => run(warps, args),
                Op::Access { run, regular, args } => {
                    self.around.spaces.forget_patterns();
                    let done = access(*run, *regular, args, warps, self.around);
                    done.map_err(|(warp, _)| warp)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Leaves the warps at this step, with the threads that are `here`; the first `done` have
    /// executed it. The other threads wait at the target of the branch.
    #[cold]
    fn part_inside(&mut self, here: &[u32], done: usize, target: u32) -> ControlFlow<Parting> {
        let parting = self.part(done);
        for (warp, (&here, lanes)) in self.warps.iter_mut().zip(here.iter().zip(&*self.lanes)) {
            let at = warp.whole().map_or(target, |whole| whole.pc);
            match (here, lanes.live & !here) {
                (0, _) => warp.move_whole(target),
                (_, 0) => {}
                (here, others) => warp.divide(&[(here, at, false), (others, target, false)]),
            }
        }
        parting
    }

    fn exit(&mut self) -> ControlFlow<Parting> {
        self.count(self.threads);
        self.around.spaces.found = None;
        if !self.fresh {
            self.warps.iter_mut().for_each(Warp::exit_whole);
        }
        ControlFlow::Break(Parting::Exited)
    }

    /// Whether the barrier has only waited for these warps.
    fn opens(&self, barrier: Reg) -> bool {
        let mut numbers = self.lanes.iter().map(|lanes| {
            // SAFETY: the frame has the register, a word.
            unsafe { lanes.source::<u32>(barrier)[lanes.mask.trailing_zeros() as usize] }
        });
        let number = numbers.next().filter(|&number| numbers.all(|other| other == number));
        self.everyone && number.is_some_and(|number| self.around.barriers.is_unused(number))
    }

    /// Executes a step that is not straight in the lanes that act.
    #[inline(never)]
    fn execute(&mut self, op: &Op) -> ControlFlow<Parting> {
        // SAFETY: as for straight steps.
        let refused = unsafe {
            match op {
                Op::Lanes { .. } | Op::Access { .. } => self.execute_plain(op),
                Op::Image(step) => self.in_turn(|lanes, spaces| step.run(lanes, spaces)),
                Op::Warp { op, members, args } if self.meet(|l| exchange::needed(l, *op, *members)) => self
                    .in_turn(|lanes, _| {
                        exchange::run(lanes, *op, *members, args);
                        Ok(())
                    }),
                Op::Matrix(step) if self.meet(|_| u32::MAX) => {
                    self.in_turn(|lanes, spaces| step.run(lanes, spaces))
                }
                Op::Fence => {
                    fence(Ordering::SeqCst);
                    Ok(())
                }
                _ => Err(0),
            }
        };
        match refused {
            Ok(()) => {
                self.count(self.active());
                ControlFlow::Continue(())
            }
            Err(warp) => self.part(warp),
        }
    }

    /// Whether all lanes that a warp instruction needs act, in each warp of which any does.
    fn meet(&self, needed: impl Fn(&Lanes) -> u32) -> bool {
        let met = |lanes: &Lanes| lanes.mask == 0 || needed(lanes) & lanes.live & !lanes.mask == 0;
        self.lanes.iter().all(met)
    }

    /// Calls `f` for each warp of which a lane acts; the index of the one that was refused what it
    /// does.
    fn in_turn(&mut self, f: impl Fn(&Lanes, &mut Spaces) -> Accessed) -> Result<(), usize> {
        let warps = self.lanes.iter().enumerate();
        for (index, lanes) in warps.filter(|(_, lanes)| lanes.mask != 0) {
            self.around.spaces.warp_local = lanes.local;
            f(lanes, self.around.spaces).map_err(|_| index)?;
        }
        Ok(())
    }

    /// Leaves the warps at this step; the first `done` have executed it.
    #[cold]
    fn part(&mut self, done: usize) -> ControlFlow<Parting> {
        self.flush_prologue();
        let (launch, block) = (self.around.launch, self.around.block);
        for (index, warp) in self.warps.iter_mut().enumerate() {
            if self.fresh {
                warp.start(launch, block);
            }
            warp.move_whole(self.pc + u32::from(index < done));
        }
        ControlFlow::Break(Parting::Alone)
    }

    /// Leaves the warps at this step, which none has executed, out of fuel.
    #[cold]
    fn rest(&mut self) -> ControlFlow<Parting> {
        let _ = self.part(0);
        ControlFlow::Break(Parting::Tired { spinning: self.fuel.spinning() })
    }
}
