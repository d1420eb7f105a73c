//! Program slicing: removes instructions that no branch and no address depends on.
//!
//! Most of a kernel's results decide neither its control flow nor its accesses. Their instructions
//! are only counted, and consecutive ones become one step.

use super::bounds_checks;
use super::code::{Action, Code, NONE, Register, Step};
use ptx::instruction::Direction;

pub(super) fn slice(mut code: Code) -> Code {
    let needed = needed(&code);
    for step in &mut code.steps {
        reduce(step, &needed);
    }
    let mut code = join(code);
    number(&mut code, &needed);
    bounds_checks::mark(&mut code);
    code
}

/// Whether each register decides a branch or an address.
fn needed(code: &Code) -> Vec<bool> {
    let mut needed = vec![false; code.registers];
    for step in &code.steps {
        let decides = match &step.action {
            Action::Nothing | Action::Barrier | Action::Compute { .. } | Action::Compare(_) => false,
            // Whether it is executed at all is what matters.
            Action::UnknownCall => true,
            Action::Shuffle { .. } | Action::Vote { .. } | Action::Unknown { .. } => false,
            Action::Branch { .. } | Action::Table { .. } | Action::Exit => true,
            Action::Access(_) | Action::Fragment { .. } => true,
        };
        if decides {
            mark(step, &mut needed);
        }
    }
    loop {
        let mut changed = false;
        for step in code.steps.iter().rev() {
            if wanted(step, &needed) {
                changed |= mark(step, &mut needed);
            }
        }
        if !changed {
            return needed;
        }
    }
}

fn wanted(step: &Step, needed: &[bool]) -> bool {
    let mut wanted = false;
    step.action.writes(|register| wanted |= needed[register as usize]);
    wanted
}

/// Marks what a step reads; whether anything was not marked before.
fn mark(step: &Step, needed: &mut [bool]) -> bool {
    let mut changed = false;
    let mut each = |register: Register| {
        changed |= !needed[register as usize];
        needed[register as usize] = true;
    };
    step.action.reads(&mut each);
    step.action.updates_with(&mut each);
    if let Some(guard) = step.guard {
        each(guard.register);
    }
    changed
}

/// Makes a step nothing if nobody needs what it does.
fn reduce(step: &mut Step, needed: &[bool]) {
    let keep = match &step.action {
        Action::Branch { .. } | Action::Exit | Action::Table { .. } | Action::UnknownCall => true,
        Action::Access(_) | Action::Fragment { .. } => true,
        Action::Barrier => {
            // Counted whether or not its guard holds, as every instruction.
            step.guard = None;
            true
        }
        _ => wanted(step, needed),
    };
    if !keep {
        step.action = Action::Nothing;
        step.guard = None;
    }
    if let Action::Access(access) = &mut step.action
        && access.direction == Direction::Store
    {
        access.to.clear();
    }
}

/// Joins steps that do nothing, up to the next target of a branch.
fn join(code: Code) -> Code {
    let mut target = vec![false; code.steps.len() + 1];
    for step in &code.steps {
        step.action.targets().iter().for_each(|to| target[*to] = true);
    }
    let mut steps: Vec<Step> = Vec::new();
    // Where each step has gone.
    let mut places = Vec::with_capacity(code.steps.len() + 1);
    let mut open = false;
    for (step, target) in code.steps.into_iter().zip(&target) {
        open &= !target;
        let nothing = matches!(step.action, Action::Nothing);
        match steps.last_mut().filter(|_| open && nothing) {
            Some(last) => {
                places.push(steps_index(&places));
                add(&mut last.tally, &step.tally);
                last.cycles += step.cycles;
                last.serial_loads += step.serial_loads;
                last.busy += step.busy;
                last.machine += step.machine;
            }
            None => {
                places.push(steps.len());
                steps.push(step);
            }
        }
        open = nothing;
    }
    places.push(steps.len());
    for step in &mut steps {
        step.action.targets_mut().iter_mut().for_each(|to| *to = places[*to]);
    }
    Code { steps, ..code }
}

fn steps_index(places: &[usize]) -> usize {
    places.last().copied().unwrap_or(0)
}

fn add(sum: &mut Vec<(ptx::instruction::Class, u32)>, more: &[(ptx::instruction::Class, u32)]) {
    for (class, count) in more {
        match sum.iter_mut().find(|(other, _)| other == class) {
            Some((_, total)) => *total += count,
            None => sum.push((*class, *count)),
        }
    }
}

/// Gives the registers that are left numbers without gaps.
fn number(code: &mut Code, needed: &[bool]) {
    let mut next = 0;
    let numbers: Vec<Register> = needed
        .iter()
        .map(|&needed| {
            next += u32::from(needed);
            if needed { next - 1 } else { NONE }
        })
        .collect();
    let renamed = |register: Register| numbers.get(register as usize).copied().unwrap_or(NONE);
    for step in &mut code.steps {
        step.action.rename(renamed);
        if let Some(guard) = &mut step.guard {
            guard.register = renamed(guard.register);
        }
    }
    code.inputs.retain_mut(|(register, _)| {
        *register = renamed(*register);
        *register != NONE
    });
    code.inputs.sort_by_key(|(register, _)| *register);
    code.registers = next as usize;
}
