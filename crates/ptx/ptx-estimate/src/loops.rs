//! The loops of a function, and the registers that grow by the same amount in every round.
//!
//! A loop is what lies between a branch and an earlier step that it goes to. Inside, a register is
//! *constant*, *linear* (a linear function of the number of the round, as far as the code tells) or
//! neither. If all that is decided in a loop depends on registers of the first two kinds, then two
//! rounds tell when something will be decided otherwise: see [`super::skip`].

use super::code::{Action, Code, Computation, Kind, Register};
use ptx::instruction::Part;
use ptx::syntax::StateSpace;
use ptx_lower::Op;

/// Loops beyond which none is looked for.
const MOST_LOOPS: usize = 64;
/// Steps beyond which none is looked for.
const MOST_STEPS: usize = 20_000;

/// The change of a register from round to round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Change {
    Constant,
    Linear,
    Other,
}

/// A loop: the steps from `first` to `last`.
#[derive(Clone, Debug)]
pub(super) struct Loop {
    pub(super) first: usize,
    pub(super) last: usize,
    /// The loop around it.
    pub(super) parent: Option<usize>,
    /// The change of each register.
    pub(super) changes: Vec<Change>,
    /// Registers that it writes.
    pub(super) written: Vec<Register>,
    /// Whether all branches and guards in it depend on constant and linear registers.
    pub(super) regular: bool,
    /// Whether at least the branches do that leave it or repeat it.
    pub(super) bounded: bool,
    /// Comparisons that these depend on.
    pub(super) bounds: Vec<usize>,
}

impl Loop {
    pub(super) fn contains(&self, step: usize) -> bool {
        (self.first..=self.last).contains(&step)
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Loops {
    pub(super) loops: Vec<Loop>,
    /// The smallest loop around each step.
    pub(super) innermost: Vec<Option<usize>>,
    /// Bits of each register.
    pub(super) widths: Vec<u32>,
}

impl Loops {
    pub(super) fn of(code: &Code) -> Loops {
        let mut loops =
            Loops { loops: Vec::new(), innermost: vec![None; code.steps.len()], widths: widths(code) };
        if code.steps.len() > MOST_STEPS {
            return loops;
        }
        let mut ranges: Vec<(usize, usize)> = Vec::new();
        for (step, target) in branches(code).filter(|(step, target)| target <= step) {
            match ranges.iter().position(|(first, _)| *first == target) {
                Some(known) => ranges[known].1 = step,
                None if ranges.len() < MOST_LOOPS => ranges.push((target, step)),
                None => {}
            }
        }
        // Smaller loops first: the first that contains a step is the innermost.
        ranges.sort_by_key(|(first, last)| last - first);
        let around = |index: usize, (first, last): (usize, usize)| {
            let outer = ranges.iter().enumerate().skip(index + 1);
            outer.filter(|(_, (f, l))| *f <= first && last <= *l).map(|(outer, _)| outer).next()
        };
        for (index, &(first, last)) in ranges.iter().enumerate() {
            for step in first..=last {
                loops.innermost[step].get_or_insert(index);
            }
            loops.loops.push(analyse(code, first, last, around(index, (first, last))));
        }
        loops
    }

    /// The loops around a step, the innermost first.
    pub(super) fn around(&self, step: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(self.innermost[step], |&index| self.loops[index].parent)
    }
}

fn branches(code: &Code) -> impl Iterator<Item = (usize, usize)> {
    let steps = code.steps.iter().enumerate();
    steps.flat_map(|(index, step)| step.action.targets().iter().map(move |&target| (index, target)))
}

fn widths(code: &Code) -> Vec<u32> {
    let mut widths = vec![1; code.registers];
    for step in &code.steps {
        let bits = match &step.action {
            Action::Compute { form, .. } => form.to.bits(),
            Action::Access(access) => access.element.bits(),
            Action::Unknown { kind, .. } => kind.bits(),
            _ => 32,
        };
        step.action.writes(|register| {
            let width = &mut widths[register as usize];
            *width = bits.max(*width);
        });
    }
    widths
}

fn analyse(code: &Code, first: usize, last: usize, parent: Option<usize>) -> Loop {
    let steps = &code.steps[first..=last];
    let mut changes = vec![Change::Constant; code.registers];
    let mut written = vec![false; code.registers];
    let mut early = vec![false; code.registers];
    for step in steps {
        // What is read, or may be kept, before it is written comes from the round before.
        step.action.reads(|register| early[register as usize] |= !written[register as usize]);
        if let Some(guard) = step.guard {
            early[guard.register as usize] |= !written[guard.register as usize];
            step.action.writes(|register| early[register as usize] |= !written[register as usize]);
        }
        step.action.writes(|register| written[register as usize] = true);
    }
    for register in 0..code.registers {
        if early[register] && written[register] {
            changes[register] = Change::Linear;
        }
    }
    while raise(steps, &mut changes) {}
    let guards = |step: &super::code::Step| step.guard.map(|guard| guard.register);
    let regular = steps.iter().all(|step| {
        let table = match step.action {
            Action::Table { index, .. } => changes[index as usize] == Change::Constant,
            _ => true,
        };
        table && guards(step).is_none_or(|register| changes[register as usize] < Change::Other)
    });
    let inside = |step: usize| (first..=last).contains(&step);
    let mut deciding = Vec::new();
    for (index, step) in (first..).zip(steps) {
        let leaves = match step.action {
            Action::Branch { target } => !inside(target) || !inside(index + 1) || target <= first,
            Action::Exit => true,
            _ => false,
        };
        deciding.extend(guards(step).filter(|_| leaves));
    }
    let bounded = deciding.iter().all(|&register| changes[register as usize] < Change::Other);
    let bounds = comparisons(code, first, last, deciding);
    let written = (0..code.registers as u32).filter(|&register| written[register as usize]).collect();
    Loop { first, last, parent, changes, written, regular, bounded, bounds }
}

/// Passes on how operands change to what is computed of them; whether that was news.
fn raise(steps: &[super::code::Step], changes: &mut [Change]) -> bool {
    let mut news = false;
    for step in steps {
        let mut result = result(&step.action, changes);
        if let Some(guard) = step.guard {
            result = result.max(changes[guard.register as usize]);
        }
        step.action.writes(|register| {
            let change = &mut changes[register as usize];
            news |= result > *change;
            *change = result.max(*change);
        });
    }
    news
}

fn result(action: &Action, changes: &[Change]) -> Change {
    let mut most = Change::Constant;
    action.reads(|register| most = most.max(changes[register as usize]));
    let nonlinear = match action {
        Action::Compute { form, from, .. } => !linear(*form, from, changes),
        Action::Compare(_) => false,
        Action::Access(access) => {
            access.space != Some(StateSpace::Const) && access.direction != ptx::instruction::Direction::Load
        }
        _ => true,
    };
    let loads = matches!(action, Action::Access(_));
    if most > Change::Constant && (nonlinear || loads) { Change::Other } else { most }
}

/// Whether linear operands give a linear result.
fn linear(form: Computation, from: &[Register; 4], changes: &[Change]) -> bool {
    if !matches!(form.from, Kind::Integer { .. }) || !matches!(form.to, Kind::Integer { .. }) {
        return form.op == Op::Move;
    }
    let change = |index: usize| changes.get(from[index] as usize).copied().unwrap_or(Change::Constant);
    match form.op {
        Op::Move | Op::Add | Op::Subtract | Op::Negate | Op::Select | Op::Minimum | Op::Maximum => true,
        Op::Not => form.to.bits() > 1 || change(0) == Change::Linear,
        // Predicates: as long as all comparisons stay as they are, so do these.
        Op::And | Op::Or | Op::Xor => form.to.bits() == 1,
        Op::Multiply(Part::Low | Part::Wide) | Op::MultiplyAdd(Part::Low | Part::Wide) => {
            change(0) == Change::Constant || change(1) == Change::Constant
        }
        Op::ShiftLeft => change(1) == Change::Constant,
        Op::Convert { .. } => form.to.bits() >= form.from.bits() || form.to.bits() >= 32,
        _ => false,
    }
}

/// The comparisons in the loop that these predicates depend on.
fn comparisons(code: &Code, first: usize, last: usize, mut open: Vec<Register>) -> Vec<usize> {
    let mut seen = open.clone();
    let mut found = Vec::new();
    while let Some(register) = open.pop() {
        for (index, step) in (first..).zip(&code.steps[first..=last]) {
            let mut writes = false;
            step.action.writes(|written| writes |= written == register);
            if !writes {
                continue;
            }
            let mut add = |register: Register| {
                if !seen.contains(&register) {
                    seen.push(register);
                    open.push(register);
                }
            };
            match &step.action {
                Action::Compare(comparison) => {
                    found.push(index);
                    comparison.combine.iter().for_each(|(_, guard)| add(guard.register));
                }
                action => action.reads(add),
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}
