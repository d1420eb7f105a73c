//! The time that one warp takes on its own: the critical path through each stretch of code.
//!
//! A scoreboard: an instruction waits until what it reads is ready, and holds back the warp for as
//! long as its issue takes. Between branches and barriers instructions go in the order in which
//! they become ready, since the assembler moves loads ahead of what uses them; no load moves ahead
//! of a store to a memory that may be the same. Results that are not ready at the end of a stretch
//! are waited for where they are used: independent loads overlap, a chain of them does not.
//!
//! Code is followed as it is laid out. A loop is followed for three rounds: the third, which finds
//! what the others left, stands for all that follow; by how much the first two differ is put down
//! to what comes before the loop.

use super::code::{Action, Guard, Register, Step};
use super::decode::space_of;
use super::latency::{GLOBAL_LOAD, Latency};
use ptx::body::Operand;
use ptx::instruction::{Flag, Opcode, Operation, Synchronization};
use ptx::syntax::{Constant, StateSpace};
use ptx_lower::Op;

/// Loops in loops that are followed for more than a round.
const DEPTH: usize = 4;

/// The dependencies of a step, and the times that others wait for it.
#[derive(Clone, Debug, Default)]
pub(super) struct Issue {
    pub(super) latency: Latency,
    pub(super) reads: Vec<Register>,
    pub(super) writes: Vec<Register>,
    pub(super) guard: Option<Guard>,
    pub(super) order: Order,
}

/// The order that a step must keep with others.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Order {
    #[default]
    Free,
    /// Not ahead of a store to the same memory.
    Load(Option<StateSpace>),
    Store(Option<StateSpace>),
    /// Nothing is moved past it.
    Barrier,
    /// Copies on their way to shared memory, and waiting for all of them.
    Copy,
    WaitForCopies,
}

impl Order {
    pub(super) fn of(operation: &Operation, operands: &[Operand<'_>]) -> Order {
        let space = space_of(operation);
        match operation.synchronization() {
            Some(Synchronization::Grid) => return Order::Free,
            Some(Synchronization::Copies { all }) => {
                let none_left = operands.first() == Some(&Operand::Constant(Constant::Integer(0)));
                return if all || none_left { Order::WaitForCopies } else { Order::Free };
            }
            Some(_) => return Order::Barrier,
            None => {}
        }
        match operation.opcode {
            Some(Opcode::Ld | Opcode::Ldu) if operation.has(Flag::NonCoherent) => Order::Free,
            Some(Opcode::Ld | Opcode::Ldu | Opcode::Ldmatrix) => Order::Load(space),
            Some(Opcode::Wmma) if operation.has(Flag::Load) => Order::Load(space),
            Some(Opcode::Wmma) if operation.has(Flag::Store) => Order::Store(space),
            Some(Opcode::St | Opcode::Stmatrix | Opcode::Atom | Opcode::Red) => Order::Store(space),
            Some(Opcode::Cp) => Order::Copy,
            _ => Order::Free,
        }
    }
}

/// Writes into each step how many cycles it takes; `issues` belong to the steps of the same number.
pub(super) fn schedule(steps: &mut [Step], issues: &[Issue], registers: usize) {
    let all = cycles(steps, issues, registers, GLOBAL_LOAD);
    let served = cycles(steps, issues, registers, SERVED);
    for (((step, issue), all), served) in steps.iter_mut().zip(issues).zip(all).zip(served) {
        step.cycles = all;
        step.serial_loads = (all - served) / (GLOBAL_LOAD - SERVED);
        step.busy = issue.latency.busy;
    }
}

/// Cycles of a load that L1 serves, on which the count of loads that wait for each other rests.
const SERVED: f64 = 40.0;

/// Cycles of each step, if a load from global memory takes `load` of them.
fn cycles(steps: &[Step], issues: &[Issue], registers: usize, load: f64) -> Vec<f64> {
    Scoreboard {
        load,
        clock: 0.0,
        ready: vec![0.0; registers],
        copied: 0.0,
        cycles: vec![0.0; steps.len()],
        leads: leaders(steps),
        ends: loops(steps),
        steps,
        issues,
    }
    .all()
}

fn ends_stretch(action: &Action) -> bool {
    matches!(action, Action::Branch { .. } | Action::Table { .. } | Action::Exit)
}

/// Whether a stretch of code without branches begins at each step.
fn leaders(steps: &[Step]) -> Vec<bool> {
    let mut leads = vec![false; steps.len() + 1];
    for (index, step) in steps.iter().enumerate() {
        leads[index + 1] |= ends_stretch(&step.action);
        step.action.targets().iter().for_each(|&target| leads[target] = true);
    }
    leads
}

/// The last step of the loop that begins at each step.
fn loops(steps: &[Step]) -> Vec<Option<usize>> {
    let mut ends = vec![None; steps.len()];
    for (index, step) in steps.iter().enumerate() {
        for &target in step.action.targets().iter().filter(|&&target| target <= index) {
            ends[target] = Some(index);
        }
    }
    ends
}

struct Scoreboard<'s> {
    /// Cycles of a load from global memory.
    load: f64,
    clock: f64,
    /// The time at which each register is ready.
    ready: Vec<f64>,
    /// The time at which the current copies are complete.
    copied: f64,
    cycles: Vec<f64>,
    leads: Vec<bool>,
    ends: Vec<Option<usize>>,
    steps: &'s [Step],
    issues: &'s [Issue],
}

impl Scoreboard<'_> {
    fn all(mut self) -> Vec<f64> {
        if let Some(last) = self.steps.len().checked_sub(1) {
            self.follow(0, last, None, 0);
        }
        self.cycles
    }

    /// Follows the steps from `first` to `last`, which are one round of the loop that begins at
    /// `inside`.
    fn follow(&mut self, first: usize, last: usize, inside: Option<usize>, depth: usize) {
        let mut at = first;
        while at <= last {
            let end = self.ends[at].filter(|_| inside != Some(at)).map(|end| end.min(last));
            match end {
                Some(end) if depth < DEPTH => {
                    self.repeat(at, end, depth + 1);
                    at = end + 1;
                }
                _ => {
                    let next = (at + 1..=last).find(|&next| self.leads[next]).unwrap_or(last + 1);
                    self.stretch(at, next);
                    at = next;
                }
            }
        }
    }

    fn repeat(&mut self, first: usize, last: usize, depth: usize) {
        let mut round = || {
            let begin = self.clock;
            self.follow(first, last, Some(first), depth);
            self.clock - begin
        };
        let (one, two, more) = (round(), round(), round());
        if let Some(before) = first.checked_sub(1) {
            self.cycles[before] += one + two - 2.0 * more;
        }
    }

    /// Steps up to `end`, without a branch between them.
    fn stretch(&mut self, first: usize, end: usize) {
        let begin = self.clock;
        let mut floor = begin;
        let mut stored: [f64; 3] = [begin; 3];
        // When each could be issued, and for how long it is.
        let mut issued: Vec<(f64, f64)> = Vec::new();
        for at in first..end {
            self.cycles[at] = 0.0;
            let (step, issue) = (&self.steps[at], &self.issues[at]);
            if step.tally.is_empty() {
                self.pass_on(&step.action);
                continue;
            }
            let reads = issue.reads.iter().chain(issue.guard.iter().map(|guard| &guard.register));
            let mut start = reads.fold(floor, |start, &read| start.max(self.ready[read as usize]));
            match issue.order {
                Order::Load(space) => start = memories(space).fold(start, |start, m| start.max(stored[m])),
                Order::Store(space) => memories(space).for_each(|m| stored[m] = stored[m].max(start)),
                Order::Copy => self.copied = self.copied.max(start + self.load),
                Order::WaitForCopies => start = start.max(self.copied),
                Order::Free | Order::Barrier => {}
            }
            let Latency { issue: busy, result, .. } = issue.latency;
            let result = if result == GLOBAL_LOAD { self.load } else { result };
            for &register in &issue.writes {
                let kept = if issue.guard.is_some() { self.ready[register as usize] } else { 0.0 };
                self.ready[register as usize] = kept.max(start + result);
            }
            if busy > 0.0 {
                issued.push((start, busy));
            }
            if matches!(issue.order, Order::Barrier | Order::WaitForCopies) || ends_stretch(&step.action) {
                floor = drain(floor, &mut issued).max(start + result);
            }
        }
        self.clock = drain(floor, &mut issued);
        self.cycles[first] = self.clock - begin;
    }

    /// A part of an instruction that moves a register: it is ready when what it is moved from is.
    fn pass_on(&mut self, action: &Action) {
        if let Action::Compute { form, to, from } = action
            && form.op == Op::Move
            && let Some(&ready) = self.ready.get(from[0] as usize)
            && let Some(to) = self.ready.get_mut(*to as usize)
        {
            *to = ready;
        }
    }
}

/// Returns the time at which the last of these instructions has been issued, one after the other as
/// they become ready.
fn drain(from: f64, issued: &mut Vec<(f64, f64)>) -> f64 {
    issued.sort_by(|a, b| a.0.total_cmp(&b.0));
    issued.drain(..).fold(from, |clock, (start, busy)| clock.max(start) + busy)
}

/// The memories that an address of a space may lie in.
fn memories(space: Option<StateSpace>) -> std::ops::Range<usize> {
    match space {
        Some(StateSpace::Global) => 0..1,
        Some(StateSpace::Shared) => 1..2,
        Some(StateSpace::Local) => 2..3,
        None => 0..3,
        Some(_) => 0..0,
    }
}
