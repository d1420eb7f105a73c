//! The interpreter: executes the steps of a path until another path is due, the fuel is used up, or
//! no path can run.

use std::slice;

use crate::code::{BarrierKind, Code, Op, Step};
use crate::fault::{FaultKind, Stop};
use crate::memory::spaces::{AccessFault, Spaces};
use crate::observe::probe::{Moment, Probe};
use crate::operands::{Class, Reg};
use crate::registers::lanes::{Lanes, WARP, each_lane};
use crate::warp::barrier::CLUSTER_BARRIER;
use crate::warp::fuel::Fuel;
use crate::warp::path::{Frame, State, Waiting};
use crate::warp::regions::{Left, enter};
use crate::warp::straight::{Refused, access, straight};
use crate::warp::{Pause, Surroundings, Warp, exchange};

/// The result of running a path.
enum Outcome {
    /// It met another, split, waits or ended: choose again.
    Choose,
    /// It is out of fuel.
    Tired,
}

impl Warp {
    /// Runs until nothing more can be done now.
    pub(crate) fn run<P: Probe>(
        &mut self,
        around: &mut Surroundings,
        probe: &mut P,
    ) -> Result<Pause, Box<Stop>> {
        around.spaces.warp_local = self.local;
        let mut fuel = Fuel::full();
        loop {
            let Some(index) = self.choose() else {
                return Ok(if self.live == 0 { Pause::Exited } else { Pause::Waiting });
            };
            if let Outcome::Tired = self.step(index, around, &mut fuel, probe)? {
                self.paths[index].epoch += u32::from(self.paths.len() > 1);
                return Ok(Pause::Tired { spinning: fuel.spinning() });
            }
        }
    }

    /// Runs one path until it has to be chosen again.
    fn step<P: Probe>(
        &mut self,
        index: usize,
        around: &mut Surroundings,
        fuel: &mut Fuel,
        probe: &mut P,
    ) -> Result<Outcome, Box<Stop>> {
        #[cfg(target_arch = "x86_64")]
        if crate::registers::lanes::wide_vectors() {
            // SAFETY: the CPU has the features, as `wide_vectors` has found.
            return unsafe { self.step_wide(index, around, fuel, probe) };
        }
        self.step_plain(index, around, fuel, probe)
    }

    /// [`step_plain`](Self::step_plain), with `popcnt` and its like.
    ///
    /// # Safety
    /// The CPU has the features.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt,f16c")]
    unsafe fn step_wide<P: Probe>(
        &mut self,
        index: usize,
        around: &mut Surroundings,
        fuel: &mut Fuel,
        probe: &mut P,
    ) -> Result<Outcome, Box<Stop>> {
        self.step_plain(index, around, fuel, probe)
    }

    #[inline(always)]
    fn step_plain<P: Probe>(
        &mut self,
        index: usize,
        around: &mut Surroundings,
        fuel: &mut Fuel,
        probe: &mut P,
    ) -> Result<Outcome, Box<Stop>> {
        let limit = if self.paths.len() == 1 { u32::MAX } else { self.limit(index) };
        let path = &mut self.paths[index];
        let (function, mask, frame) = (path.function, path.mask, path.frame);
        let mut met = std::mem::replace(&mut path.state, State::Ready) == State::Met;
        let mut pc = path.pc;
        let code = around.launch.code(function);
        let live = self.live;
        let mut lanes = self.lanes(frame, mask);
        loop {
            if pc >= limit {
                self.paths[index].pc = pc;
                return Ok(Outcome::Choose);
            }
            if !P::WATCHES
                && let Some(region) = code.native.at(pc, around.launch.engine, false)
                && let Some(left) = self.enter(region, pc, &mut lanes, around)
            {
                match left {
                    Some(next) => {
                        pc = next;
                        continue;
                    }
                    None => return Ok(Outcome::Choose),
                }
            }
            if !P::WATCHES && code.steps[pc as usize].straight > 0 {
                (lanes.mask, lanes.full) = (mask, mask == live);
                let end = (pc + code.steps[pc as usize].straight).min(limit);
                let steps = &code.steps[pc as usize..end as usize];
                around.counts.warp_instructions += u64::from(end - pc);
                around.counts.thread_instructions += u64::from(end - pc) * u64::from(mask.count_ones());
                // SAFETY: the frame has the registers that its code names, in the classes that the
                // handlers take; they were made for this CPU, and the windows are this block's own
                // memory.
                if let Err(refused) = unsafe { straight(steps, slice::from_ref(&lanes), around) } {
                    let Refused { step, space, fault, .. } = *refused;
                    let place = (function, pc + step as u32);
                    return Err(self.refuse(around.launch, *fault, space, place, frame));
                }
                pc = end;
                continue;
            }
            let step = &code.steps[pc as usize];
            let Step { guard, op, .. } = step;
            // SAFETY: the frame has the predicates that its code names.
            let active = mask & unsafe { lanes.passing(*guard) };
            around.counts.warp_instructions += 1;
            around.counts.thread_instructions += u64::from(active.count_ones());
            (lanes.mask, lanes.full) = (active, active == live);
            // A warp instruction counts when all of its lanes have come.
            if P::WATCHES && !matches!(op, Op::Warp { .. } | Op::Matrix(_)) {
                let at = (function, pc, frame);
                probe.step(&moment(code, at, mask, &lanes, around.spaces, self.index));
            }
            if active == 0 {
                pc += 1;
                continue;
            }
            match op {
                Op::Lanes { run, args, .. } => {
                    // SAFETY: the frame has the registers that its code names, in the classes that
                    // the handler takes, and the handler was made for this CPU.
                    unsafe { run(slice::from_ref(&lanes), args) };
                    pc += 1;
                }
                Op::Access { run, regular, args } => {
                    around.spaces.forget_patterns();
                    let warps = slice::from_ref(&lanes);
                    // SAFETY: as above; the windows are this block's own memory.
                    let accessed = unsafe { access(*run, *regular, args, warps, around) };
                    if let Err((_, fault)) = accessed {
                        return Err(self.refuse(around.launch, *fault, args.space, (function, pc), frame));
                    }
                    pc += 1;
                    if args.synchronises && fuel.burn_strongly() {
                        self.paths[index].pc = pc;
                        return Ok(Outcome::Tired);
                    }
                }
                Op::Image(step) => {
                    // SAFETY: the frame has the registers that its code names.
                    let accessed = unsafe { step.run(&lanes, around.spaces) };
                    if let Err(fault) = accessed {
                        let AccessFault { lane, address, kind, text } = *fault;
                        return Err(self.stop(kind, text, Some(address), lane, (function, pc)));
                    }
                    pc += 1;
                }
                Op::Jump { target } => {
                    around.counts.branches += 1;
                    if active != mask {
                        around.counts.divergent_branches += 1;
                        self.paths[index].pc = pc + 1;
                        self.split(index, active).pc = *target;
                        if *target <= pc && fuel.burn() {
                            return Ok(Outcome::Tired);
                        }
                        return Ok(Outcome::Choose);
                    }
                    let backward = *target <= pc;
                    pc = *target;
                    if backward && fuel.burn() {
                        self.paths[index].pc = pc;
                        return Ok(Outcome::Tired);
                    }
                }
                Op::Warp { op, members, args } => {
                    // SAFETY: the frame has the register, a word.
                    let needed = if met { 0 } else { unsafe { exchange::needed(&lanes, *op, *members) } };
                    met = false;
                    if needed & live & !active != 0 {
                        self.wait_for_lanes(index, pc, active, needed);
                        return Ok(Outcome::Choose);
                    }
                    if P::WATCHES {
                        let at = (function, pc, frame);
                        probe.step(&moment(code, at, mask, &lanes, around.spaces, self.index));
                    }
                    // SAFETY: the frame has the registers that its code names.
                    unsafe { exchange::run(&lanes, *op, *members, args) };
                    pc += 1;
                }
                Op::Matrix(matrix) => {
                    if !std::mem::take(&mut met) && live & !active != 0 {
                        self.wait_for_lanes(index, pc, active, u32::MAX);
                        return Ok(Outcome::Choose);
                    }
                    if P::WATCHES {
                        let at = (function, pc, frame);
                        probe.step(&moment(code, at, mask, &lanes, around.spaces, self.index));
                    }
                    // SAFETY: the frame has the registers that its code names, as the step takes
                    // them; the windows are this block's own memory.
                    let done = unsafe { matrix.run(&lanes, around.spaces) };
                    if let Err(fault) = done {
                        let AccessFault { lane, address, kind, text } = *fault;
                        return Err(self.stop(kind, text, Some(address), lane, (function, pc)));
                    }
                    pc += 1;
                }
                Op::Return if self.paths[index].is_outermost() => {
                    self.paths[index].pc = pc + 1;
                    self.exit(index, active);
                    return Ok(Outcome::Choose);
                }
                _ => {
                    self.paths[index].pc = pc;
                    return self.rare(index, active, op, around, fuel);
                }
            }
        }
    }

    /// Executes a region as machine code: the step at which the warp goes on, or nothing if it was
    /// divided into paths. `None` if that is not possible, and nothing has been done.
    fn enter(
        &mut self,
        index: usize,
        pc: u32,
        lanes: &mut Lanes,
        around: &mut Surroundings,
    ) -> Option<Option<u32>> {
        let engine = around.launch.engine;
        let path = self.paths.first()?;
        let (function, outermost) = (path.function, path.is_outermost());
        let region = around.launch.code(function).native.region(index);
        let alone = self.paths.len() == 1 && path.mask == u32::MAX && outermost;
        if !alone || !region.is_ready(engine, 1) {
            return None;
        }
        (lanes.mask, lanes.full) = (u32::MAX, true);
        // SAFETY: the frame has the registers that its code names, and a warp that runs alone has
        // nothing deferred; the windows are this block's own memory.
        match unsafe { enter(index, region, slice::from_ref(lanes), around)? } {
            Left::At(next) => Some(Some(next)),
            Left::Apart(next) => Some(next.first().copied()),
            // It has come no further than here, where it would only stop again.
            Left::Stopped { paths, .. } if matches!(paths[..], [(u32::MAX, at, _)] if at == pc) => None,
            Left::Stopped { paths, .. } => {
                self.move_whole(pc);
                self.divide(&paths);
                Some(None)
            }
        }
    }

    /// Parks the active lanes of a path at the warp instruction at `pc`; the others go past it.
    fn wait_for_lanes(&mut self, index: usize, pc: u32, active: u32, needed: u32) {
        self.paths[index].pc = pc + 1;
        let parked = self.split(index, active);
        parked.pc = pc;
        parked.state = State::Warp(needed);
    }

    /// Steps that need more than registers and memory. The path's `pc` is at the step.
    #[inline(never)]
    fn rare(
        &mut self,
        index: usize,
        active: u32,
        op: &Op,
        around: &mut Surroundings,
        fuel: &mut Fuel,
    ) -> Result<Outcome, Box<Stop>> {
        let pc = self.paths[index].pc;
        let function = self.paths[index].function;
        let lane = active.trailing_zeros() as usize;
        let stop = |warp: &Self, kind, text| Err(warp.stop(kind, text, None, lane, (function, pc)));
        self.paths[index].pc = pc + 1;
        match op {
            Op::Exit => self.exit(index, active),
            Op::Return => match self.paths[index].returns.last().copied() {
                None => self.exit(index, active),
                Some(back) => {
                    let part = self.split(index, active);
                    part.returns.pop();
                    (part.function, part.pc, part.frame) = (back.function, back.pc, back.frame);
                }
            },
            Op::Call(call) => {
                self.call(index, active, call, around)?;
                // Calls can go on for ever as jumps can.
                if fuel.burn() {
                    return Ok(Outcome::Tired);
                }
            }
            Op::Results(transfers) => self.fetch_results(index, active, transfers, around)?,
            Op::JumpTable { index: reg, targets } => {
                self.jump_table(index, active, *reg, targets);
                if fuel.burn() {
                    return Ok(Outcome::Tired);
                }
            }
            Op::Barrier { kind: BarrierKind::ClusterArrive, .. } => {
                around.barriers.cluster.arrive(self.index, active);
            }
            Op::Barrier { kind: kind @ BarrierKind::ClusterWait, .. } => {
                if !around.barriers.cluster.pass(self.index, active) {
                    let (kind, result) = (*kind, Reg::NONE);
                    let waiting = Waiting { barrier: CLUSTER_BARRIER, kind, threads: None, votes: 0, result };
                    self.split(index, active).state = State::Barrier(waiting);
                }
            }
            Op::Barrier { kind, barrier, threads, source, negated, result } => {
                let frame = self.paths[index].frame;
                let lanes = self.lanes(frame, active);
                // SAFETY: the frame has the registers that its code names.
                let (barrier, threads, votes) = unsafe {
                    let threads = threads.is_some().then(|| lanes.source::<u32>(*threads)[lane]);
                    let votes = if source.is_some() { lanes.predicate(*source) } else { 0 };
                    (
                        lanes.source::<u32>(*barrier)[lane],
                        threads,
                        if *negated { !votes } else { votes } & active,
                    )
                };
                if barrier >= 16 {
                    return stop(
                        self,
                        FaultKind::IllegalInstruction,
                        format!("barrier {barrier} does not exist"),
                    );
                }
                let whole = active == self.live;
                let waiting = Waiting { barrier, kind: *kind, threads, votes, result: *result };
                if *kind == BarrierKind::Arrive {
                    around.barriers.arrive(&waiting, if whole { WARP as u32 } else { active.count_ones() });
                } else {
                    self.split(index, active).state = State::Barrier(waiting);
                }
            }
            Op::Fence => std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst),
            Op::Yield => {
                fuel.burn_all();
                return Ok(Outcome::Tired);
            }
            Op::Clock { d, class, clock } => {
                let frame = self.paths[index].frame;
                let now = around.launch.now(*clock);
                let lanes = self.lanes(frame, active);
                // SAFETY: the frame has the register, of this class.
                unsafe {
                    match class {
                        Class::Long => lanes.write(*d, &[now; WARP]),
                        _ => {
                            lanes.write(*d, &[if clock.high { (now >> 32) as u32 } else { now as u32 }; WARP])
                        }
                    }
                }
            }
            Op::Trap => return stop(self, FaultKind::Trap, "trap".to_owned()),
            Op::Unsupported(reason) => {
                let text = around.launch.code(function).unsupported[*reason as usize].clone();
                return stop(self, FaultKind::Unsupported, text);
            }
            // Executed by `step`.
            Op::Lanes { .. } | Op::Access { .. } | Op::Image(_) | Op::Jump { .. } => {}
            Op::Warp { .. } | Op::Matrix(_) => {}
        }
        Ok(Outcome::Choose)
    }

    fn exit(&mut self, index: usize, active: u32) {
        self.live &= !active;
        self.paths[index].mask &= !active;
        if self.paths[index].mask == 0 {
            self.paths.swap_remove(index);
        }
    }

    fn jump_table(&mut self, index: usize, active: u32, reg: Reg, targets: &[u32]) {
        let frame = self.paths[index].frame;
        let lanes = self.lanes(frame, active);
        // SAFETY: the frame has the register, a word.
        let choices = unsafe { *lanes.source::<u32>(reg) };
        let mut left = active;
        while left != 0 {
            // An index beyond the list is undefined: it takes the last target.
            let choice = choices[left.trailing_zeros() as usize];
            let mut same = 0;
            each_lane(left, |lane| same |= u32::from(choices[lane] == choice) << lane);
            let target = targets[(choice as usize).min(targets.len() - 1)];
            // The last group may be all that is left of the path itself.
            self.split(index, same).pc = target;
            left &= !same;
        }
    }
}

/// Returns the description of a step for a probe.
fn moment<'a>(
    code: &'a Code,
    (function, pc, frame): (u32, u32, Frame),
    mask: u32,
    lanes: &'a Lanes,
    spaces: &'a Spaces<'a>,
    warp: u32,
) -> Moment<'a> {
    let (step, classes) = (&code.steps[pc as usize], code.classes.of_step(pc));
    let Frame { registers, local } = frame;
    Moment { function, pc, step, lanes, mask, spaces, warp, local, registers, classes }
}
