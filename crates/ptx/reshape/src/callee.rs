//! Functions that a kernel calls and whose result depends on their arguments alone: they compute in
//! registers and local memory of their own, and have no effect that anybody else could observe.
//!
//! The compiler calls such functions where it does not put them in place, above all for the slow
//! paths of sines and powers. Arguments are checked where they are stored ([`crate::index`]); a
//! function that reads a register of the thread's place, or memory that others may write, is not
//! one of these.

use crate::Rules;
use crate::code::Code;
use crate::refusal::{Reason, Refusal};
use crate::{access, index, screen};
use ptx::body::{Body, Home, InstructionId, Names, Operand, SpecialRegister, Symbol};
use ptx::flow::Flow;
use ptx::instruction::{Opcode, Operation, Operations, accesses};
use ptx::{FunctionKind, Module, StateSpace};

/// Most calls within calls.
const DEPTH: u32 = 4;

/// Refuses the first instruction that no proof covers.
pub(crate) fn check_instructions(code: &Code<'_, '_>, rules: &Rules) -> Result<(), Refusal> {
    for at in (0..code.body.lines.len() as u32).map(InstructionId) {
        if let Some(reason) = reason(code, at, 0)
            && (rules.instructions || reason == Reason::Atomic)
            && (rules.atomics || reason != Reason::Atomic)
        {
            return Err(code.refuse(reason, at));
        }
    }
    Ok(())
}

/// The reason why no proof covers an instruction, if none does, in a function at a depth of calls.
fn reason(code: &Code<'_, '_>, at: InstructionId, depth: u32) -> Option<Reason> {
    let operation = code.operation(at);
    let is_allowed = match operation.opcode {
        Some(Opcode::Call) => is_harmless(code, at, depth),
        Some(Opcode::St) if operation.space == Some(StateSpace::Param) => is_argument(code, at),
        _ => return screen::reason(code, at),
    };
    (!is_allowed).then_some(Reason::Instruction)
}

/// Whether a call is of such a function, named in it.
fn is_harmless(code: &Code<'_, '_>, at: InstructionId, depth: u32) -> bool {
    let line = &code.body.lines[at.index()];
    let mut named = line.operands.iter().filter_map(|operand| match operand {
        Operand::Name(Symbol::Function(function)) => Some(*function),
        _ => None,
    });
    let is_variable = |operand: &Operand<'_>| match operand {
        Operand::Name(Symbol::Variable(id)) => code.body.variable(*id).space == StateSpace::Param,
        Operand::List(parts) => parts.iter().all(|part| is_own(code.body, part)),
        Operand::Name(Symbol::Function(_)) => true,
        _ => false,
    };
    let (Some(function), None) = (named.next(), named.next()) else { return false };
    line.operands.iter().all(is_variable) && is_function(code.module, function, depth + 1)
}

/// Whether an operand is a variable of the function's own parameters for calls.
fn is_own(body: &Body<'_>, operand: &Operand<'_>) -> bool {
    matches!(operand, Operand::Name(Symbol::Variable(id)) if body.variable(*id).space == StateSpace::Param)
}

fn is_function(module: &Module, function: &ptx::Function, depth: u32) -> bool {
    if depth > DEPTH || function.kind == FunctionKind::Entry || function.body.is_none() {
        return false;
    }
    let body = Names::new(module).body(function);
    let operations = Operations::of(&body);
    let flow = Flow::of(&body, &operations);
    if screen::check_kernel(module, &body, &flow).is_err() {
        return false;
    }
    let code = Code::new(module, &body, &operations, &flow);
    let lines = (0..body.lines.len() as u32).map(InstructionId);
    // (All is read after it was written, too.)
    lines.into_iter().all(|at| is_harmless_line(&code, at, depth)) && index::check(&code, &Rules::ALL).is_ok()
}

fn is_harmless_line(code: &Code<'_, '_>, at: InstructionId, depth: u32) -> bool {
    let (line, operation) = (&code.body.lines[at.index()], code.operation(at));
    let reads_place = |symbol: Symbol<'_>, _: &Body<'_>| {
        use SpecialRegister::{Ctaid, Nctaid, Ntid, Tid};
        matches!(symbol, Symbol::Special(special) if [Tid, Ntid, Ctaid, Nctaid].contains(&special))
    };
    if line.operands.iter().any(|operand| screen::names(operand, code.body, &reads_place)) {
        return false;
    }
    match operation.opcode {
        Some(Opcode::Ld | Opcode::St) if has_own_space(operation) => reason(code, at, depth).is_none(),
        Some(Opcode::Ld) => reason(code, at, depth).is_none() && reads_table(code, at),
        Some(Opcode::St | Opcode::Atom | Opcode::Red | Opcode::Brx | Opcode::Exit) => false,
        _ => reason(code, at, depth).is_none(),
    }
}

/// Whether an access is to memory that only the thread sees, or that nobody writes.
fn has_own_space(operation: &Operation) -> bool {
    use StateSpace::{Const, Local, Param};
    [Const, Local, Param].map(Some).contains(&operation.space)
}

/// Whether all that a load reads lies in a table of the compiler's.
fn reads_table(code: &Code<'_, '_>, at: InstructionId) -> bool {
    let (line, operation) = (&code.body.lines[at.index()], code.operation(at));
    let is_table = |place: usize| {
        let address = code.values.address(at, place);
        address.is_some_and(|address| access::is_compilers_table(code, code.values.sums().get(address.value)))
    };
    (0..accesses(operation, &line.operands).len()).all(is_table)
}

/// Whether a store to parameters is of an argument for a call, not of the function's own.
fn is_argument(code: &Code<'_, '_>, at: InstructionId) -> bool {
    let line = &code.body.lines[at.index()];
    let is_of_body = |operand: &Operand<'_>| match operand.place() {
        Some((ptx::body::Base::Name(Symbol::Variable(id)), _)) => {
            !matches!(code.body.variables[id.index()].home, Home::Parameter(_))
        }
        _ => false,
    };
    line.operands.first().is_some_and(is_of_body)
}
