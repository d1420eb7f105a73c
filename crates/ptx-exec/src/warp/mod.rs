//! A warp: 32 threads that execute together as far as they agree.
//!
//! The lanes of a warp are divided into *paths*, sets of lanes at the same place with the same
//! calls behind them. A branch that lanes take differently splits a path; paths that meet at the
//! same place merge. Of those that can run, the one furthest behind runs (see [`crate::code`], rule
//! 4), until it meets another, ends or waits. That brings lanes together again at the earliest
//! place where they can meet.
//!
//! It would also let lanes that spin wait for ever for lanes further on, which independent thread
//! scheduling forbids. So each run has *fuel*, which backward jumps and synchronising accesses
//! burn; a path that runs out moves on one *epoch*, and lower epochs run first. Every path that can
//! run therefore does, sooner or later.
//!
//! Invariants: the masks of the paths are disjoint, and together they are the lanes that have not
//! exited.

pub(crate) mod barrier;
pub(crate) mod batch;
mod calls;
pub(crate) mod exchange;
pub(crate) mod fuel;
pub(crate) mod input;
mod path;
pub(crate) mod prologue;
pub(crate) mod straight;

use std::slice;

use crate::code::{BarrierKind, Code, Op, Step};
use crate::fault::{FaultKind, Stop};
use crate::launch::Launch;
use crate::launch::budget::Share;
use crate::launch::symbolization;
use crate::memory::spaces::{AccessFault, Spaces};
use crate::observe::probe::{Moment, Probe};
use crate::operands::{Class, Reg, Space};
use crate::registers::lanes::{Lanes, WARP, each_lane};
use crate::registers::{Extent, Registers};
use crate::warp::barrier::{Barriers, CLUSTER_BARRIER};
use crate::warp::fuel::Fuel;
use crate::warp::input::Setting;
use crate::warp::path::Frame;
pub(crate) use crate::warp::path::{Path, State, Waiting};
use crate::warp::straight::{Refused, access, straight};

/// Why a run ended. Later ones are nearer to going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pause {
    /// All lanes have exited.
    Exited,
    /// Every path waits, for the block or for each other.
    Waiting,
    /// The fuel is used up. The flag tells whether synchronising accesses burnt most of it.
    Tired { spinning: bool },
}

/// What was executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) warp_instructions: u64,
    pub(crate) thread_instructions: u64,
    pub(crate) branches: u64,
    pub(crate) divergent_branches: u64,
}

impl Counts {
    /// Adds what another block executed.
    pub(crate) fn add(&mut self, other: &Counts) {
        self.warp_instructions += other.warp_instructions;
        self.thread_instructions += other.thread_instructions;
        self.branches += other.branches;
        self.divergent_branches += other.divergent_branches;
    }
}

/// Everything around a warp while it runs.
pub(crate) struct Surroundings<'l, 's, 'm> {
    pub(crate) launch: &'l Launch<'l>,
    pub(crate) spaces: &'s mut Spaces<'m>,
    pub(crate) barriers: &'s mut Barriers,
    pub(crate) counts: &'s mut Counts,
    /// What nested calls take memory from.
    pub(crate) share: &'s mut Share<'l>,
    pub(crate) block: [u32; 3],
}

impl Surroundings<'_, '_, '_> {
    /// A number that the threads of a grid differ by.
    pub(crate) fn thread(&self, warp: u32, lane: usize) -> u64 {
        let [gx, gy, _] = self.launch.config.grid.to_array().map(u64::from);
        let [x, y, z] = self.block.map(u64::from);
        let block = (z * gy + y) * gx + x;
        block * u64::from(self.launch.block_threads) + u64::from(warp) * WARP as u64 + lane as u64
    }
}

/// 32 threads and their registers.
pub(crate) struct Warp {
    pub(super) index: u32,
    /// Lanes that exist and have not exited.
    pub(crate) live: u32,
    pub(crate) paths: Vec<Path>,
    /// From its first step on.
    registers: Option<Registers>,
    /// The kernel's inputs that differ between the warps of a block.
    own: Vec<(Reg, Class, [u64; WARP])>,
    /// First address of the local memory of lane 0.
    pub(super) local: u64,
}

/// What the run of a path comes to.
enum Outcome {
    /// It met another, split, waits or ended: choose again.
    Choose,
    /// It is out of fuel.
    Tired,
}

impl Warp {
    /// A warp of a block whose shared memory begins at `shared`; `local` is the local memory of its
    /// first lane.
    pub(crate) fn new(index: u32, launch: &Launch, shared: u64, local: u64) -> Self {
        let setting = Setting { launch, block: [0; 3], shared, warp: index, local, frame: 0 };
        let inputs = launch.code(launch.kernel_function).inputs.iter();
        let own = inputs.filter(|(.., input)| input.is_of_warp());
        let own = own.map(|&(reg, class, input)| (reg, class, setting.values(input))).collect();
        Warp { index, live: 0, paths: Vec::new(), registers: None, own, local }
    }

    /// Sets the warp, which has taken registers, at the start of the kernel.
    pub(crate) fn start(&mut self, launch: &Launch, block: [u32; 3]) {
        self.live = launch.lanes_of(self.index);
        let lanes = self.first_lanes(launch);
        for &(reg, class, axis) in &launch.block_inputs {
            // SAFETY: the frame has the register, of this class.
            unsafe { lanes.fill(class, reg, block[axis as usize]) };
        }
        self.paths.truncate(1);
        match self.paths.as_mut_slice() {
            [left] => left.rewind(launch.kernel_function, self.live),
            _ => self.paths.push(Path::new(launch.kernel_function, self.live)),
        }
    }

    /// The path that is all of the warp, if it is one and can run.
    pub(crate) fn whole(&self) -> Option<&Path> {
        match self.paths.as_slice() {
            [whole] if whole.state == State::Ready => Some(whole),
            _ => None,
        }
    }

    /// The lanes of a warp that has registers, but has not been [started](Self::start): where the
    /// kernel begins.
    #[inline(always)]
    pub(crate) fn first_lanes(&mut self, launch: &Launch) -> Lanes {
        let mask = launch.lanes_of(self.index);
        Lanes { live: mask, full: true, ..self.lanes(Frame::default(), mask) }
    }

    /// The lanes of a warp that is [`whole`](Self::whole).
    #[inline(always)]
    pub(crate) fn whole_lanes(&mut self) -> Lanes {
        let (frame, mask) = (self.paths[0].frame, self.paths[0].mask);
        self.lanes(frame, mask)
    }

    /// Moves a warp that is [`whole`](Self::whole) to another step.
    pub(crate) fn move_whole(&mut self, pc: u32) {
        self.paths[0].pc = pc;
    }

    /// Ends all threads of a warp that is [`whole`](Self::whole). Its path stays for the next
    /// block, without lanes.
    pub(crate) fn exit_whole(&mut self) {
        self.live = 0;
        self.paths[0].mask = 0;
    }

    /// Takes registers for a block, unless the warp has kept some: from `idle`, else new ones. They
    /// hold what the kernel finds there at its start, but for what [`start`](Self::start) adds.
    pub(crate) fn take_registers(
        &mut self,
        launch: &Launch,
        block: [u32; 3],
        shared: u64,
        idle: &mut Vec<Registers>,
    ) {
        if self.registers.is_none() {
            self.registers = Some(match idle.pop() {
                Some(found) => self.with_own_inputs(found),
                None => self.new_registers(launch, block, shared),
            });
        }
    }

    /// Registers that another warp of the launch has used.
    fn with_own_inputs(&self, mut registers: Registers) -> Registers {
        for (reg, class, values) in &self.own {
            registers.load(*class, reg.0, values);
        }
        registers
    }

    fn new_registers(&self, launch: &Launch, block: [u32; 3], shared: u64) -> Registers {
        let code = launch.code(launch.kernel_function);
        let mut registers = Registers::new(code.registers);
        let setting = Setting { launch, block, shared, warp: self.index, local: self.local, frame: 0 };
        for (reg, class, input) in &code.inputs {
            registers.set(Extent::default(), *class, reg.0, u32::MAX, &setting.values(*input));
        }
        registers
    }

    /// Gives the registers of a warp that has exited to `idle`: the next warp finds them in the
    /// cache.
    #[inline]
    pub(crate) fn give_registers(&mut self, idle: &mut Vec<Registers>) {
        idle.extend(self.registers.take());
    }

    pub(super) fn registers(&mut self) -> &mut Registers {
        self.registers.as_mut().expect("a warp that runs has taken registers")
    }

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

    #[inline(always)]
    fn lanes(&mut self, frame: Frame, mask: u32) -> Lanes {
        let (words, longs, predicates) = self.registers().frame(frame.registers);
        let (live, local) = (self.live, self.local);
        Lanes { words, longs, predicates, mask, live, full: mask == live, local }
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

    /// Lets the paths at a barrier go on, with the outcome of its reduction.
    pub(crate) fn release(&mut self, barrier: u32, outcome: impl Fn(BarrierKind) -> u32) {
        for index in 0..self.paths.len() {
            let State::Barrier(waiting) = self.paths[index].state else { continue };
            if waiting.barrier != barrier {
                continue;
            }
            let path = &mut self.paths[index];
            path.state = State::Ready;
            // A barrier brings all back together.
            path.epoch = 0;
            let (frame, mask) = (path.frame, path.mask);
            if waiting.result.is_some() {
                let lanes = self.lanes(frame, mask);
                let value = outcome(waiting.kind);
                // SAFETY: the frame has the register: a word for counts, else a predicate.
                unsafe {
                    match waiting.kind {
                        BarrierKind::Popc => lanes.write(waiting.result, &[value; WARP]),
                        _ => lanes.write_predicate(waiting.result, if value != 0 { u32::MAX } else { 0 }),
                    }
                }
            }
        }
        self.merge();
    }

    /// The warp, counted through the block.
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// Lanes that wait at `barrier`, and at which function and step.
    pub(crate) fn waiting_at(&self, barrier: u32) -> impl Iterator<Item = (u32, (u32, u32))> {
        let waits = move |state| matches!(state, State::Barrier(waiting) if waiting.barrier == barrier);
        let paths = self.paths.iter().filter(move |path| waits(path.state));
        // The step is behind the path already.
        paths.map(|path| (path.mask, (path.function, path.pc - 1)))
    }

    /// A fault of the warp where its first path stands; `None` if all lanes have exited.
    pub(crate) fn stuck(&self, kind: FaultKind, text: &str) -> Option<Box<Stop>> {
        let path = self.paths.first().filter(|_| self.live != 0)?;
        // At a barrier the step is behind the path already.
        let pc = if matches!(path.state, State::Barrier(_)) { path.pc - 1 } else { path.pc };
        let lane = path.mask.trailing_zeros() as usize;
        Some(self.stop(kind, text.to_owned(), None, lane, (path.function, pc)))
    }

    /// The fault of an access that was refused.
    #[cold]
    fn refuse(
        &self,
        launch: &Launch,
        fault: AccessFault,
        space: Space,
        place: (u32, u32),
        frame: Frame,
    ) -> Box<Stop> {
        let AccessFault { lane, address, kind, text } = fault;
        let text = text + &symbolization::beside(launch, space, address, (place.0, frame.local));
        self.stop(kind, text, Some(address), lane, place)
    }

    pub(super) fn stop(
        &self,
        kind: FaultKind,
        text: String,
        address: Option<u64>,
        lane: usize,
        place: (u32, u32),
    ) -> Box<Stop> {
        Box::new(Stop {
            kind,
            text,
            address,
            thread: self.index * WARP as u32 + lane as u32,
            place: Some(place),
        })
    }
}

/// What a probe is shown of a step.
fn moment<'a>(
    code: &'a Code,
    (function, pc, frame): (u32, u32, Frame),
    mask: u32,
    lanes: &'a Lanes,
    spaces: &'a Spaces<'a>,
    warp: u32,
) -> Moment<'a> {
    let (step, classes) = (&code.steps[pc as usize], code.classes.of(pc));
    let Frame { registers, local } = frame;
    Moment { function, pc, step, lanes, mask, spaces, warp, local, registers, classes }
}
