//! Finds registers that may hold a NaN that is not PTX's.
//!
//! x86 arithmetic keeps a NaN's payload, PTX has one NaN. Arithmetic cannot tell them apart, so a
//! NaN is replaced where its bits *escape*: into memory, another register, an integer operation,
//! out of the region, or into the frame where strips meet. A register is *clean* if its bits are
//! what PTX says, *dirty* if a NaN in it has to be replaced, *mixed* if that depends on the path.
//! The bits of a mixed register must not escape: then all its results are replaced as soon as they
//! are computed.

use crate::kind::kind;
use crate::liveness::Liveness;
use crate::region::{Instruction, Operation, Reg, Region, Target};

/// The bits of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Unknown,
    Clean,
    Dirty,
    Mixed,
}

impl State {
    fn or(self, other: State) -> State {
        match (self, other) {
            (State::Unknown, state) | (state, State::Unknown) => state,
            (a, b) if a == b => a,
            _ => State::Mixed,
        }
    }
}

/// Knowledge about NaNs at a point of the code.
pub(crate) struct Nans {
    /// The states at the start of each block.
    pub(crate) starts: Vec<Vec<State>>,
    /// The registers whose results are replaced at once.
    pub(crate) eager: Vec<bool>,
}

impl Nans {
    pub(crate) fn of(region: &Region, liveness: &Liveness) -> Nans {
        let count = region.registers.len();
        let mut found = Nans { starts: Vec::new(), eager: vec![false; count] };
        while !found.settle(region, liveness) {}
        found
    }

    /// Finds the states; `false` if a mixed register escaped and has become eager.
    fn settle(&mut self, region: &Region, liveness: &Liveness) -> bool {
        let count = region.registers.len();
        self.starts = vec![vec![State::Unknown; count]; region.blocks.len()];
        if let Some(first) = self.starts.first_mut() {
            first.fill(State::Clean);
        }
        let mut changed = true;
        while changed {
            changed = false;
            for (index, block) in region.blocks.iter().enumerate() {
                let mut states = self.starts[index].clone();
                for instruction in &block.instructions {
                    if self.step(&mut states, instruction).is_err() {
                        return false;
                    }
                }
                if let Some(meeting) = region.meeting(index) {
                    for reg in liveness.at_end(region, index).iter() {
                        if self.escape(&mut states, reg).is_err() {
                            return false;
                        }
                    }
                    meeting.definitions().iter().for_each(|reg| states[reg.0 as usize] = State::Clean);
                }
                for target in block.end.targets() {
                    match target {
                        Target::Exit(exit) => {
                            for &reg in &region.exits[exit as usize] {
                                if self.escape(&mut states.clone(), reg).is_err() {
                                    return false;
                                }
                            }
                        }
                        Target::Block(to) => {
                            for (there, &here) in self.starts[to as usize].iter_mut().zip(&states) {
                                let joined = there.or(here);
                                changed |= joined != *there;
                                *there = joined;
                            }
                        }
                    }
                }
            }
        }
        true
    }

    /// Passes an instruction. The registers whose NaNs have to be replaced before it are returned.
    pub(crate) fn step(&mut self, states: &mut [State], instruction: &Instruction) -> Result<Vec<Reg>, Reg> {
        let mut dirty = Vec::new();
        for reg in escaping(instruction) {
            if self.escape(states, reg)? {
                dirty.push(reg);
            }
        }
        let makes_nans = match &instruction.operation {
            Operation::Compute { meaning, .. } => kind(meaning).is_some_and(|kind| kind.makes_nans()),
            Operation::Access(_) => false,
        };
        for reg in instruction.definitions() {
            let at_once = self.eager[reg.0 as usize] || instruction.guard.is_some();
            let state = if makes_nans && !at_once { State::Dirty } else { State::Clean };
            let whole = instruction.guard.is_none();
            states[reg.0 as usize] = if whole { state } else { states[reg.0 as usize].or(state) };
        }
        Ok(dirty)
    }

    /// Has the bits of a register escape; whether its NaNs have to be replaced.
    pub(crate) fn escape(&mut self, states: &mut [State], reg: Reg) -> Result<bool, Reg> {
        let state = std::mem::replace(&mut states[reg.0 as usize], State::Clean);
        if state == State::Mixed {
            self.eager[reg.0 as usize] = true;
            return Err(reg);
        }
        Ok(state == State::Dirty)
    }
}

/// The registers whose bits an instruction lets escape.
fn escaping(instruction: &Instruction) -> Vec<Reg> {
    match &instruction.operation {
        Operation::Compute { meaning, sources, .. } => match kind(meaning) {
            Some(kind) if kind.takes_numbers() => Vec::new(),
            _ => sources.clone(),
        },
        Operation::Access(access) if access.store => access.data.clone(),
        Operation::Access(_) => Vec::new(),
    }
}
