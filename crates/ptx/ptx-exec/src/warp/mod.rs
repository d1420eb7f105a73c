//! A warp: 32 threads that execute together while they are at the same place.
//!
//! The lanes of a warp are divided into *paths*, sets of lanes at the same place with the same call
//! stack. A divergent branch splits a path; paths that reach the same place merge. Among the paths
//! that can run, the one furthest behind runs (see [`crate::code`], rule 4) until it meets another,
//! ends or waits. Lanes therefore reconverge at the earliest possible place.
//!
//! This alone would let spinning lanes wait forever for lanes further on, which independent thread
//! scheduling forbids. So each run has *fuel*, which backward jumps and synchronising accesses
//! burn; a path without fuel enters the next *epoch*, and lower epochs run first. Every path that
//! can run therefore runs eventually.
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
mod regions;
mod run;
pub(crate) mod straight;

use crate::budget::Share;
use crate::code::BarrierKind;
use crate::fault::{FaultKind, Stop};
use crate::launch::Launch;
use crate::launch::symbolization;
use crate::memory::spaces::{AccessFault, Spaces};
use crate::operands::{Class, Reg, Space};
use crate::registers::lanes::{Lanes, WARP};
use crate::registers::{Extent, Registers};
use crate::warp::barrier::Barriers;
use crate::warp::input::Setting;
use crate::warp::path::Frame;
pub(crate) use crate::warp::path::{Path, State, Waiting};

/// The reason why a run ended, in the order of how near the warp is to going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pause {
    /// All lanes have exited.
    Exited,
    /// Every path waits, for the block or for each other.
    Waiting,
    /// The fuel is used up. The flag tells whether synchronising accesses burnt most of it.
    Tired { spinning: bool },
}

/// The executed instructions.
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
    /// The share from which nested calls take memory.
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
    /// The registers, from its first step on.
    registers: Option<Registers>,
    /// The kernel's inputs that differ between the warps of a block.
    own: Vec<(Reg, Class, [u64; WARP])>,
    /// First address of the local memory of lane 0.
    pub(super) local: u64,
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
        for &(reg, class, which) in &launch.block_inputs {
            // SAFETY: the frame has the register, of this class.
            unsafe { lanes.fill(class, reg, launch.block_value(block, which)) };
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

    /// Divides a warp that is [`whole`](Self::whole) into paths: the lanes at a step, and whether
    /// others run before them, from which they stay apart.
    #[cold]
    pub(crate) fn divide(&mut self, paths: &[(u32, u32, bool)]) {
        let whole = self.paths[0].clone();
        let part = |&(mask, pc, late): &(u32, u32, bool)| Path {
            mask,
            pc,
            epoch: whole.epoch + u32::from(late),
            apart: late,
            ..whole.clone()
        };
        self.paths = paths.iter().map(part).collect();
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

    #[inline(always)]
    fn lanes(&mut self, frame: Frame, mask: u32) -> Lanes {
        let (words, longs, predicates) = self.registers().frame(frame.registers);
        let (live, local) = (self.live, self.local);
        Lanes { words, longs, predicates, mask, live, full: mask == live, local }
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
