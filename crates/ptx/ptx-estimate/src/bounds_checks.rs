//! Finds loaded integers that a kernel compares with a number from its parameters: bounds checks.
//!
//! A kernel that loads an index compares it with a length before it uses it. The index is mostly
//! below the length, because the actual work comes after the comparison. The estimate therefore
//! assumes that a loaded integer is below the number that it is compared with, if that number
//! follows from the kernel's parameters.

use super::code::{Action, Code, Computation, Input, Kind, NONE, Register};
use ptx::body::SpecialRegister;
use ptx::instruction::{Comparison, Direction};
use ptx_lower::Op;

/// The content of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holds {
    /// A number that the code names.
    Constant,
    /// A number that follows from a parameter of the kernel, the same for all threads.
    Given,
    Other,
}

/// Writes into each load the registers that what it loads is compared with.
pub(super) fn mark(code: &mut Code) {
    let mut writers = vec![0u32; code.registers];
    for step in &code.steps {
        step.action.writes(|register| writers[register as usize] += 1 + u32::from(step.guard.is_some()));
    }
    let holds = holds(code, &writers);
    let copies = copies(code, &writers);
    let mut below = vec![NONE; code.registers];
    for step in &code.steps {
        let Action::Compare(comparison) = &step.action else { continue };
        let ordered = matches!(
            comparison.relation,
            Comparison::Less | Comparison::LessEqual | Comparison::Greater | Comparison::GreaterEqual
        );
        if !ordered || !matches!(comparison.kind, Kind::Integer { .. }) {
            continue;
        }
        for (number, bound) in [(comparison.a, comparison.b), (comparison.b, comparison.a)] {
            if holds[bound as usize] == Holds::Given {
                below[copies[number as usize] as usize] = bound;
            }
        }
    }
    for step in &mut code.steps {
        if let Action::Access(access) = &mut step.action
            && access.direction == Direction::Load
        {
            let bound = |to: &Register| below.get(*to as usize).copied().unwrap_or(NONE);
            access.below = access.to.iter().map(bound).collect();
        }
    }
}

/// Returns the content of each register that one step alone writes.
fn holds(code: &Code, writers: &[u32]) -> Vec<Holds> {
    let mut holds = vec![Holds::Other; code.registers];
    for &(register, input) in &code.inputs {
        holds[register as usize] = match input {
            Input::Constant(_) => Holds::Constant,
            Input::Parameter { .. } => Holds::Given,
            Input::Special(SpecialRegister::Ntid | SpecialRegister::Nctaid, _) => Holds::Given,
            Input::Special(..) => Holds::Other,
        };
    }
    // A register is written before it is read, but in loops.
    for step in &code.steps {
        let Action::Compute { to, from, .. } = &step.action else { continue };
        if *to == NONE || writers[*to as usize] != 1 {
            continue;
        }
        let of: Vec<Holds> = from.iter().filter(|&&r| r != NONE).map(|&r| holds[r as usize]).collect();
        holds[*to as usize] = match () {
            () if of.contains(&Holds::Other) => Holds::Other,
            () if of.contains(&Holds::Given) => Holds::Given,
            () => Holds::Constant,
        };
    }
    holds
}

/// The register that each register is a copy of, perhaps a wider one; itself where it is none.
fn copies(code: &Code, writers: &[u32]) -> Vec<Register> {
    let mut copies: Vec<Register> = (0..code.registers as Register).collect();
    for step in &code.steps {
        let Action::Compute {
            form: Computation { op: Op::Move | Op::Convert { .. }, from: Kind::Integer { .. }, .. },
            to,
            from,
        } = &step.action
        else {
            continue;
        };
        if *to != NONE && from[0] != NONE && writers[*to as usize] == 1 {
            copies[*to as usize] = copies[from[0] as usize];
        }
    }
    copies
}
