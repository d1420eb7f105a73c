//! A warp: 32 threads that execute together as far as they agree.
//!
//! The lanes of a warp are divided into *fragments*, sets of lanes at the same place with the same calls behind them.
//! A branch that lanes take differently splits a fragment; fragments that meet at the same place merge. Of those that
//! can run, the one furthest behind runs (see [`crate::code`], rule 4), until it meets another, ends or waits. That
//! brings lanes together again at the earliest place where they can meet.
//!
//! It would also let lanes that spin wait for ever for lanes further on, which independent thread scheduling forbids.
//! So each run has *fuel*, which backward jumps and synchronising accesses burn; a fragment that runs out moves on one
//! *epoch*, and lower epochs run first. Every fragment that can run therefore does, sooner or later.
//!
//! Invariants: the masks of the fragments are disjoint, and together they are the lanes that have not exited.

pub(crate) mod barrier;
pub(crate) mod batch;
pub(crate) mod exchange;
pub(crate) mod fuel;
pub(crate) mod input;
pub(crate) mod prologue;
pub(crate) mod straight;

use std::slice;

use crate::code::{BarrierKind, Call, Callee, Code, Op, Step, Transfer};
use crate::fault::{FaultKind, Stop};
use crate::launch::Launch;
use crate::launch::budget::Share;
use crate::launch::symbolization;
use crate::memory::spaces::{AccessFault, Spaces};
use crate::observe::probe::{Moment, Probe};
use crate::operands::{Class, Reg, Space};
use crate::program::function_at;
use crate::registers::lanes::{Lanes, WARP, each_lane};
use crate::registers::{Extent, Registers, Shortage};
use crate::warp::barrier::{Barriers, CLUSTER_BARRIER};
use crate::warp::fuel::Fuel;
use crate::warp::input::Setting;
use crate::warp::straight::{Refused, access, straight};

/// Where a function's registers and local memory begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Frame {
    registers: Extent,
    local: u32,
}

/// Where a function returns to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Return {
    function: u32,
    /// The step after the call.
    pc: u32,
    frame: Frame,
}

/// Why a fragment does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It does.
    Ready,
    /// It waits for the lanes of this mask at a warp instruction.
    Warp(u32),
    /// They have all come: the instruction may be executed.
    Met,
    /// It waits at a barrier of the block.
    Barrier(Waiting),
}

/// A fragment at a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) barrier: u32,
    pub(crate) kind: BarrierKind,
    /// Expected threads, if the instruction says.
    pub(crate) threads: Option<u32>,
    /// For reductions: lanes whose predicate is true.
    pub(crate) votes: u32,
    /// For reductions: where the outcome goes.
    result: Reg,
}

/// Lanes at the same place.
#[derive(Clone, Debug)]
pub(crate) struct Fragment {
    pub(crate) function: u32,
    pub(crate) pc: u32,
    pub(crate) mask: u32,
    frame: Frame,
    returns: Vec<Return>,
    epoch: u32,
    pub(crate) state: State,
}

impl Fragment {
    /// Lanes at the start of a kernel.
    fn new(function: u32, mask: u32) -> Fragment {
        let frame = Frame::default();
        Fragment { function, pc: 0, mask, frame, returns: Vec::new(), epoch: 0, state: State::Ready }
    }

    /// Makes it what [`new`](Self::new) makes, field by field: a fragment made elsewhere and moved has to wait for all
    /// that this CPU has still to write.
    fn rewind(&mut self, function: u32, mask: u32) {
        (self.function, self.pc, self.mask, self.epoch) = (function, 0, mask, 0);
        self.frame = Frame::default();
        self.returns.clear();
        self.state = State::Ready;
    }

    pub(crate) fn same_place(&self, other: &Fragment) -> bool {
        self.pc == other.pc && self.same_calls(other)
    }

    /// Whether it is in the kernel itself, not in a function that it called.
    pub(crate) fn is_outermost(&self) -> bool {
        self.returns.is_empty()
    }

    fn same_calls(&self, other: &Fragment) -> bool {
        self.function == other.function && self.frame == other.frame && self.returns == other.returns
    }

    /// How far it has come: calls from the outside in (at the call itself), then the place. A fragment inside a call
    /// is behind one that has the call behind it.
    fn progress(&self) -> impl Iterator<Item = (u32, u32)> {
        let calls = self.returns.iter().map(|call| (call.function, call.pc - 1));
        calls.chain(std::iter::once((self.function, self.pc)))
    }

    fn runs_before(&self, other: &Fragment) -> bool {
        self.epoch.cmp(&other.epoch).then_with(|| self.progress().cmp(other.progress())).is_lt()
    }
}

/// Where the frame of a callee begins, behind a frame of `bytes` bytes at `local`; `None` if no thread has so much local
/// memory.
fn frame_behind(local: u32, bytes: u32, align: u32) -> Option<u32> {
    local.checked_add(bytes)?.checked_next_multiple_of(align)
}

/// Makes room for one more place to return to.
fn room_for_a_return(returns: &mut Vec<Return>, share: &mut Share) -> Result<(), Shortage> {
    if returns.len() < returns.capacity() {
        return Ok(());
    }
    let more = returns.len().max(4);
    let granted = share.take((more * size_of::<Return>()) as u64) && returns.try_reserve_exact(more).is_ok();
    if granted { Ok(()) } else { Err(Shortage::Memory) }
}

/// Why a run ended. Later ones are nearer to going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pause {
    /// All lanes have exited.
    Exited,
    /// Every fragment waits, for the block or for each other.
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
        let [gx, gy, _] = self.launch.grid.map(u64::from);
        let [x, y, z] = self.block.map(u64::from);
        let block = (z * gy + y) * gx + x;
        block * u64::from(self.launch.block_threads) + u64::from(warp) * WARP as u64 + lane as u64
    }
}

/// 32 threads and their registers.
pub(crate) struct Warp {
    index: u32,
    /// Lanes that exist and have not exited.
    pub(crate) live: u32,
    pub(crate) fragments: Vec<Fragment>,
    /// From its first step on.
    registers: Option<Registers>,
    /// The kernel's inputs that differ between the warps of a block.
    own: Vec<(Reg, Class, [u64; WARP])>,
    /// First address of the local memory of lane 0.
    local: u64,
}

/// What the run of a fragment comes to.
enum Outcome {
    /// It met another, split, waits or ended: choose again.
    Choose,
    /// It is out of fuel.
    Tired,
}

impl Warp {
    /// A warp of a block whose shared memory begins at `shared`; `local` is the local memory of its first lane.
    pub(crate) fn new(index: u32, launch: &Launch, shared: u64, local: u64) -> Self {
        let setting = Setting { launch, block: [0; 3], shared, warp: index, local, frame: 0 };
        let inputs = launch.code(launch.kernel_function).inputs.iter();
        let own = inputs.filter(|(.., input)| input.is_of_warp());
        let own = own.map(|&(reg, class, input)| (reg, class, setting.values(input))).collect();
        Warp { index, live: 0, fragments: Vec::new(), registers: None, own, local }
    }

    /// Sets the warp, which has taken registers, at the start of the kernel.
    pub(crate) fn start(&mut self, launch: &Launch, block: [u32; 3]) {
        self.live = launch.lanes_of(self.index);
        let lanes = self.first_lanes(launch);
        for &(reg, class, axis) in &launch.block_inputs {
            // SAFETY: the frame has the register, of this class.
            unsafe { lanes.fill(class, reg, block[axis as usize]) };
        }
        self.fragments.truncate(1);
        match self.fragments.as_mut_slice() {
            [left] => left.rewind(launch.kernel_function, self.live),
            _ => self.fragments.push(Fragment::new(launch.kernel_function, self.live)),
        }
    }

    /// The fragment that is all of the warp, if it is one and can run.
    pub(crate) fn whole(&self) -> Option<&Fragment> {
        match self.fragments.as_slice() {
            [whole] if whole.state == State::Ready => Some(whole),
            _ => None,
        }
    }

    /// The lanes of a warp that has registers, but has not been [started](Self::start): where the kernel begins.
    #[inline(always)]
    pub(crate) fn first_lanes(&mut self, launch: &Launch) -> Lanes {
        let mask = launch.lanes_of(self.index);
        Lanes { live: mask, full: true, ..self.lanes(Frame::default(), mask) }
    }

    /// The lanes of a warp that is [`whole`](Self::whole).
    #[inline(always)]
    pub(crate) fn whole_lanes(&mut self) -> Lanes {
        let (frame, mask) = (self.fragments[0].frame, self.fragments[0].mask);
        self.lanes(frame, mask)
    }

    /// Moves a warp that is [`whole`](Self::whole) to another step.
    pub(crate) fn move_whole(&mut self, pc: u32) {
        self.fragments[0].pc = pc;
    }

    /// Ends all threads of a warp that is [`whole`](Self::whole). Its fragment stays for the next block, without lanes.
    pub(crate) fn exit_whole(&mut self) {
        self.live = 0;
        self.fragments[0].mask = 0;
    }

    /// Takes registers for a block, unless the warp has kept some: from `idle`, else new ones. They hold what the kernel
    /// finds there at its start, but for what [`start`](Self::start) adds.
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

    /// Gives the registers of a warp that has exited to `idle`: the next warp finds them in the cache.
    #[inline]
    pub(crate) fn give_registers(&mut self, idle: &mut Vec<Registers>) {
        idle.extend(self.registers.take());
    }

    fn registers(&mut self) -> &mut Registers {
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
                self.fragments[index].epoch += u32::from(self.fragments.len() > 1);
                return Ok(Pause::Tired { spinning: fuel.spinning() });
            }
        }
    }

    /// Releases lanes that have found each other, merges, and picks the fragment to run.
    fn choose(&mut self) -> Option<usize> {
        if self.fragments.len() == 1 && self.fragments[0].state == State::Ready {
            return Some(0);
        }
        self.release_members();
        self.merge();
        let ready = |fragment: &&Fragment| matches!(fragment.state, State::Ready | State::Met);
        let first =
            self.fragments.iter().filter(ready).reduce(|a, b| if b.runs_before(a) { b } else { a })?;
        self.fragments.iter().position(|fragment| fragment.mask == first.mask)
    }

    /// Lets fragments go that wait for lanes which now wait too, or have exited.
    fn release_members(&mut self) {
        for index in 0..self.fragments.len() {
            let State::Warp(members) = self.fragments[index].state else { continue };
            let waiting = |fragment: &Fragment| fragment.state == State::Warp(members);
            let arrived =
                self.fragments.iter().filter(|f| waiting(f)).fold(0, |mask, fragment| mask | fragment.mask);
            if members & self.live & !arrived == 0 {
                self.fragments.iter_mut().filter(|f| waiting(f)).for_each(|f| f.state = State::Met);
            }
        }
    }

    /// Joins fragments that are at the same place.
    fn merge(&mut self) {
        let mut index = 0;
        while index < self.fragments.len() {
            let mut other = index + 1;
            while other < self.fragments.len() {
                let (a, b) = (&self.fragments[index], &self.fragments[other]);
                let state = matches!(a.state, State::Ready | State::Met) && a.state == b.state;
                if state && a.same_place(b) {
                    let joined = self.fragments.swap_remove(other);
                    let fragment = &mut self.fragments[index];
                    fragment.mask |= joined.mask;
                    fragment.epoch = fragment.epoch.min(joined.epoch);
                } else {
                    other += 1;
                }
            }
            index += 1;
        }
    }

    /// The place at which a fragment may meet another, and has to stop to see.
    fn limit(&self, index: usize) -> u32 {
        let fragment = &self.fragments[index];
        let others = self.fragments.iter().filter(|other| {
            other.state == State::Ready && other.pc > fragment.pc && other.same_calls(fragment)
        });
        others.map(|other| other.pc).min().unwrap_or(u32::MAX)
    }

    #[inline(always)]
    fn lanes(&mut self, frame: Frame, mask: u32) -> Lanes {
        let (words, longs, predicates) = self.registers().frame(frame.registers);
        let (live, local) = (self.live, self.local);
        Lanes { words, longs, predicates, mask, live, full: mask == live, local }
    }

    /// Runs one fragment until it has to be chosen again.
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
        let limit = if self.fragments.len() == 1 { u32::MAX } else { self.limit(index) };
        let fragment = &mut self.fragments[index];
        let (function, mask, frame) = (fragment.function, fragment.mask, fragment.frame);
        let mut met = std::mem::replace(&mut fragment.state, State::Ready) == State::Met;
        let mut pc = fragment.pc;
        let code = around.launch.code(function);
        let live = self.live;
        let mut lanes = self.lanes(frame, mask);
        loop {
            if pc >= limit {
                self.fragments[index].pc = pc;
                return Ok(Outcome::Choose);
            }
            if !P::WATCHES && code.steps[pc as usize].straight > 0 {
                (lanes.mask, lanes.full) = (mask, mask == live);
                let end = (pc + code.steps[pc as usize].straight).min(limit);
                let steps = &code.steps[pc as usize..end as usize];
                around.counts.warp_instructions += u64::from(end - pc);
                around.counts.thread_instructions += u64::from(end - pc) * u64::from(mask.count_ones());
                // SAFETY: the frame has the registers that its code names, in the classes that the handlers take;
                // they were made for this CPU, and the windows are this block's own memory.
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
                    // SAFETY: the frame has the registers that its code names, in the classes that the handler
                    // takes, and the handler was made for this CPU.
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
                        self.fragments[index].pc = pc;
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
                        self.fragments[index].pc = pc + 1;
                        self.split(index, active).pc = *target;
                        if *target <= pc && fuel.burn() {
                            return Ok(Outcome::Tired);
                        }
                        return Ok(Outcome::Choose);
                    }
                    let backward = *target <= pc;
                    pc = *target;
                    if backward && fuel.burn() {
                        self.fragments[index].pc = pc;
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
                    // SAFETY: the frame has the registers that its code names, as the step takes them; the windows
                    // are this block's own memory.
                    let done = unsafe { matrix.run(&lanes, around.spaces) };
                    if let Err(fault) = done {
                        let AccessFault { lane, address, kind, text } = *fault;
                        return Err(self.stop(kind, text, Some(address), lane, (function, pc)));
                    }
                    pc += 1;
                }
                Op::Return if self.fragments[index].is_outermost() => {
                    self.fragments[index].pc = pc + 1;
                    self.exit(index, active);
                    return Ok(Outcome::Choose);
                }
                _ => {
                    self.fragments[index].pc = pc;
                    return self.rare(index, active, op, around, fuel);
                }
            }
        }
    }

    /// Parks the active lanes of a fragment at the warp instruction at `pc`; the others go past it.
    fn wait_for_lanes(&mut self, index: usize, pc: u32, active: u32, needed: u32) {
        self.fragments[index].pc = pc + 1;
        let parked = self.split(index, active);
        parked.pc = pc;
        parked.state = State::Warp(needed);
    }

    /// Makes a fragment of its own of the lanes of `mask`, which the fragment has; returns it. If these are all its
    /// lanes it stays what it is.
    fn split(&mut self, index: usize, mask: u32) -> &mut Fragment {
        let fragment = &mut self.fragments[index];
        if fragment.mask == mask {
            return &mut self.fragments[index];
        }
        fragment.mask &= !mask;
        let part = Fragment { mask, ..fragment.clone() };
        self.fragments.push(part);
        let last = self.fragments.len() - 1;
        &mut self.fragments[last]
    }

    /// Steps that need more than registers and memory. The fragment's `pc` is at the step.
    #[inline(never)]
    fn rare(
        &mut self,
        index: usize,
        active: u32,
        op: &Op,
        around: &mut Surroundings,
        fuel: &mut Fuel,
    ) -> Result<Outcome, Box<Stop>> {
        let pc = self.fragments[index].pc;
        let function = self.fragments[index].function;
        let lane = active.trailing_zeros() as usize;
        let stop = |warp: &Self, kind, text| Err(warp.stop(kind, text, None, lane, (function, pc)));
        self.fragments[index].pc = pc + 1;
        match op {
            Op::Exit => self.exit(index, active),
            Op::Return => match self.fragments[index].returns.last().copied() {
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
                let frame = self.fragments[index].frame;
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
                let frame = self.fragments[index].frame;
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
            Op::Unsupported(complaint) => {
                let text = around.launch.code(function).complaints[*complaint as usize].clone();
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
        self.fragments[index].mask &= !active;
        if self.fragments[index].mask == 0 {
            self.fragments.swap_remove(index);
        }
    }

    fn jump_table(&mut self, index: usize, active: u32, reg: Reg, targets: &[u32]) {
        let frame = self.fragments[index].frame;
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
            // The last group may be all that is left of the fragment itself.
            self.split(index, same).pc = target;
            left &= !same;
        }
    }

    fn call(
        &mut self,
        index: usize,
        active: u32,
        call: &Call,
        around: &mut Surroundings,
    ) -> Result<(), Box<Stop>> {
        let Callee::Indirect(reg) = call.callee else {
            return self.call_one(index, active, call.callee, call, around);
        };
        let frame = self.fragments[index].frame;
        let lanes = self.lanes(frame, active);
        // SAFETY: the frame has the register, a long.
        let targets = unsafe { *lanes.source::<u64>(reg) };
        let first = active.trailing_zeros() as usize;
        let mut same = 0;
        each_lane(active, |lane| same |= u32::from(targets[lane] == targets[first]) << lane);
        let (pc, function) = (self.fragments[index].pc, self.fragments[index].function);
        let known = function_at(targets[first]).filter(|&callee| around.launch.has(callee));
        let Some(callee) = known else {
            let text = format!("call of {:#x}, which is no function", targets[first]);
            let address = Some(targets[first]);
            return Err(self.stop(FaultKind::IllegalInstruction, text, address, first, (function, pc - 1)));
        };
        // Lanes with other targets make the call again, among themselves.
        if active & !same != 0 {
            self.split(index, active & !same).pc = pc - 1;
        }
        let own = self.fragments.iter().position(|fragment| fragment.mask & same != 0).unwrap_or(index);
        self.call_one(own, same, Callee::Function(callee), call, around)
    }

    fn call_one(
        &mut self,
        index: usize,
        active: u32,
        callee: Callee,
        call: &Call,
        around: &mut Surroundings,
    ) -> Result<(), Box<Stop>> {
        let caller = &self.fragments[index];
        let (function, pc, frame) = (caller.function, caller.pc, caller.frame);
        let code = around.launch.code(function);
        let align = around.launch.local_align;
        let lane = active.trailing_zeros() as usize;
        let (depth, stack) = (caller.returns.len(), around.launch.stack);
        let stop = |warp: &Self, kind, text| warp.stop(kind, text, None, lane, (function, pc - 1));
        let overflow = |warp: &Self| {
            let text = format!(
                "stack overflow: calls nest too deeply for a stack of {stack} bytes (cudaLimitStackSize), {depth} deep"
            );
            stop(warp, FaultKind::StackOverflow, text)
        };
        if depth >= around.launch.most_calls {
            return Err(overflow(self));
        }
        let Some(local) = frame_behind(frame.local, code.frame_bytes, align) else {
            return Err(overflow(self));
        };
        let inner = Frame { registers: frame.registers.plus(code.registers), local };
        for Transfer { caller, callee, bytes } in &call.arguments {
            let moved =
                around.spaces.move_local(active, (frame.local, *caller), (inner.local, *callee), *bytes);
            moved.ok_or_else(|| overflow(self))?;
        }
        let callee = match callee {
            Callee::Builtin(builtin) => {
                return crate::runtime::builtin::run(builtin, around, self.index, active, inner.local.into())
                    .map_err(|(kind, text, lane)| self.stop(kind, text, None, lane, (function, pc - 1)));
            }
            Callee::Function(callee) => callee,
            // Resolved by `call`.
            Callee::Indirect(_) => return Ok(()),
        };
        let code = around.launch.code(callee);
        if u64::from(inner.local) + u64::from(code.frame_bytes) > around.launch.local_bytes {
            return Err(overflow(self));
        }
        let grown = self.registers().grow(inner.registers.plus(code.registers), around.share);
        let remembered = room_for_a_return(&mut self.fragments[index].returns, around.share);
        match grown.and(remembered) {
            Ok(()) => {}
            Err(Shortage::Registers) => return Err(overflow(self)),
            Err(Shortage::Memory) => {
                let text =
                    "out of memory: the registers of nested calls do not fit into the host's".to_owned();
                return Err(stop(self, FaultKind::OutOfMemory, text));
            }
        }
        let (launch, block, shared) = (around.launch, around.block, around.spaces.shared.start);
        let setting =
            Setting { launch, block, shared, warp: self.index, local: self.local, frame: inner.local };
        for (reg, class, input) in &code.inputs {
            self.registers().set(inner.registers, *class, reg.0, active, &setting.values(*input));
        }
        let part = self.split(index, active);
        part.returns.push(Return { function, pc, frame });
        (part.function, part.pc, part.frame) = (callee, 0, inner);
        Ok(())
    }

    fn fetch_results(
        &mut self,
        index: usize,
        active: u32,
        transfers: &[Transfer],
        around: &mut Surroundings,
    ) -> Result<(), Box<Stop>> {
        let Fragment { function, pc, frame, .. } = self.fragments[index];
        let code = around.launch.code(function);
        // The call has been made, so there is a frame.
        let inner =
            frame_behind(frame.local, code.frame_bytes, around.launch.local_align).unwrap_or(u32::MAX);
        for Transfer { caller, callee, bytes } in transfers {
            let moved = around.spaces.move_local(active, (inner, *callee), (frame.local, *caller), *bytes);
            moved.ok_or_else(|| {
                let text = "a result lies outside local memory".to_owned();
                let lane = active.trailing_zeros() as usize;
                self.stop(FaultKind::OutOfBounds, text, None, lane, (function, pc - 1))
            })?;
        }
        Ok(())
    }

    /// Lets the fragments at a barrier go on, with the outcome of its reduction.
    pub(crate) fn release(&mut self, barrier: u32, outcome: impl Fn(BarrierKind) -> u32) {
        for index in 0..self.fragments.len() {
            let State::Barrier(waiting) = self.fragments[index].state else { continue };
            if waiting.barrier != barrier {
                continue;
            }
            let fragment = &mut self.fragments[index];
            fragment.state = State::Ready;
            // A barrier brings all back together.
            fragment.epoch = 0;
            let (frame, mask) = (fragment.frame, fragment.mask);
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
        let fragments = self.fragments.iter().filter(move |fragment| waits(fragment.state));
        // The step is behind the fragment already.
        fragments.map(|fragment| (fragment.mask, (fragment.function, fragment.pc - 1)))
    }

    /// A fault of the warp where its first fragment stands; `None` if all lanes have exited.
    pub(crate) fn stuck(&self, kind: FaultKind, text: &str) -> Option<Box<Stop>> {
        let fragment = self.fragments.first().filter(|_| self.live != 0)?;
        // At a barrier the step is behind the fragment already.
        let pc = if matches!(fragment.state, State::Barrier(_)) { fragment.pc - 1 } else { fragment.pc };
        let lane = fragment.mask.trailing_zeros() as usize;
        Some(self.stop(kind, text.to_owned(), None, lane, (fragment.function, pc)))
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

    fn stop(
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
