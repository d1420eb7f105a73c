//! Condition 1: thread and block reach what a thread does only inside L and T.
//!
//! The proof follows every value that matters back to where it comes from: operands of accesses,
//! guards, targets of branches. A value is good if it is a sum without [loose](Piece::is_loose)
//! pieces, or if all that it is computed from is good. Since all guards are good, control flow is
//! the same function of L, T, parameters and memory in every shape, and so is a value that depends
//! on the path.

use std::collections::HashSet;

use crate::Rules;
use crate::code::Code;
use crate::form::{Form, Piece};
use crate::refusal::{Reason, Refusal};
use ptx::StateSpace;
use ptx::analysis::{Atom, Definition, Origin, Sum};
use ptx::body::{InstructionId, Operand, RegisterId, SpecialRegister, Symbol};
use ptx::flow::BlockId;
use ptx::instruction::{Control, Opcode};

/// Dependences of a kernel's values.
#[derive(Clone, Debug, Default)]
pub(crate) struct Indices {
    /// The instruction that uses T along each axis, if any does.
    pub totals: [Option<InstructionId>; 3],
}

/// Checks all values that matter.
pub(crate) fn check(code: &Code<'_, '_>, rules: &Rules) -> Result<Indices, Refusal> {
    let mut walk = Walk { code, rules, open: Vec::new(), seen: HashSet::new(), found: Indices::default() };
    let is_sink = |at: &InstructionId| walk.is_sink(*at);
    let sinks: Vec<InstructionId> = code.lines().filter(is_sink).collect();
    // An address in a thread's own memory may be the address of a variable there; others may not.
    for (of_local, is_local) in [(false, false), (true, true)] {
        for &at in &sinks {
            walk.sink(at, of_local)?;
            walk.run(is_local)?;
        }
        walk.seen.clear();
    }
    Ok(walk.found)
}

struct Walk<'c, 'a, 'm> {
    code: &'c Code<'a, 'm>,
    rules: &'c Rules,
    /// Values that are still to be checked, and the instruction that uses each.
    open: Vec<(Definition, InstructionId)>,
    seen: HashSet<Definition>,
    found: Indices,
}

impl Walk<'_, '_, '_> {
    /// Whether the operands of an instruction matter: it accesses memory, has a guard, decides
    /// where control goes, or uses the carry, whose way is not followed.
    fn is_sink(&self, at: InstructionId) -> bool {
        let operation = self.code.operation(at);
        let carry = operation.carry();
        let accesses = matches!(
            operation.opcode,
            Some(Opcode::Ld | Opcode::St | Opcode::Atom | Opcode::Red | Opcode::Call)
        );
        let branches = operation.control() != Control::Next;
        accesses
            || branches
            || carry.read
            || carry.written
            || self.code.body.lines[at.index()].guard.is_some()
    }

    /// Opens what a sink reads: addresses of local memory, or all else.
    fn sink(&mut self, at: InstructionId, of_local: bool) -> Result<(), Refusal> {
        let (line, operation) = (&self.code.body.lines[at.index()], self.code.operation(at));
        let is_local = operation.space == Some(StateSpace::Local);
        if !of_local && let Some(guard) = line.guard.and_then(|guard| guard.symbol.register()) {
            self.open(at, guard)?;
        }
        let is_access =
            matches!(operation.opcode, Some(Opcode::Ld | Opcode::St | Opcode::Atom | Opcode::Red));
        let needs_all = is_access || operation.control() != Control::Next || {
            let carry = operation.carry();
            carry.read || carry.written
        };
        if !needs_all {
            return Ok(());
        }
        let (_, sources) = operation.split(&line.operands);
        for source in sources {
            if of_local == (is_local && source.place().is_some()) {
                self.operand(at, source)?;
            }
        }
        Ok(())
    }

    fn operand(&mut self, at: InstructionId, operand: &Operand<'_>) -> Result<(), Refusal> {
        self.special(at, operand)?;
        let mut registers = Vec::new();
        operand.registers(self.code.body, &mut |register| registers.push(register));
        registers.into_iter().try_for_each(|register| self.open(at, register))
    }

    fn special(&self, at: InstructionId, operand: &Operand<'_>) -> Result<(), Refusal> {
        let special = match operand {
            Operand::Name(Symbol::Special(special)) | Operand::Component(Symbol::Special(special), _) => {
                special
            }
            _ => return Ok(()),
        };
        use SpecialRegister::{Ctaid, Nctaid, Ntid, Tid};
        let is_loose = [Tid, Ntid, Ctaid, Nctaid].contains(special);
        if is_loose && self.rules.index { Err(self.code.refuse(Reason::Index, at)) } else { Ok(()) }
    }

    fn open(&mut self, at: InstructionId, register: RegisterId) -> Result<(), Refusal> {
        let used = self.code.used(at, register).ok_or_else(|| self.code.refuse(Reason::Undefined, at))?;
        self.open.push((used, at));
        Ok(())
    }

    /// Checks all open values.
    fn run(&mut self, is_local: bool) -> Result<(), Refusal> {
        while let Some((definition, user)) = self.open.pop() {
            if self.seen.insert(definition) {
                let maker = match definition.origin {
                    Origin::Instruction(at) => at,
                    _ => user,
                };
                match self.code.values.definition(definition) {
                    Some(sum) if !is_itself(sum, definition, self.code) => self.sum(sum, maker, is_local)?,
                    _ => self.sources(definition, user, is_local)?,
                }
            }
        }
        Ok(())
    }

    /// A value that is a sum: its pieces, and those of the values that it extends.
    fn sum(&mut self, sum: &Sum, at: InstructionId, is_local: bool) -> Result<(), Refusal> {
        let code = self.code;
        let sums = code.values.sums();
        let (mut open, mut seen) = (vec![sum], HashSet::new());
        while let Some(sum) = open.pop() {
            for piece in Form::of(sum, sums).pieces() {
                if let Piece::Atom(Atom::Extended { value, .. }) = piece {
                    open.extend(seen.insert(value).then(|| sums.get(value)));
                }
                self.piece(piece, at, is_local)?;
            }
        }
        Ok(())
    }

    fn piece(&mut self, piece: Piece, at: InstructionId, is_local: bool) -> Result<(), Refusal> {
        match piece {
            _ if piece.is_loose() && self.rules.index => return Err(self.code.refuse(Reason::Index, at)),
            Piece::Total(axis) => self.found.totals[usize::from(axis)] = Some(at),
            Piece::Atom(Atom::Unknown(definition)) => self.open.push((definition, at)),
            Piece::Atom(Atom::Address(variable)) => {
                let space = self.code.body.variable(variable).space;
                if space == StateSpace::Local && !is_local {
                    return Err(self.code.refuse(Reason::Pointer, at));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// A value that is no sum: what it is made from.
    fn sources(
        &mut self,
        definition: Definition,
        user: InstructionId,
        is_local: bool,
    ) -> Result<(), Refusal> {
        let undefined = |code: &Code<'_, '_>| code.refuse(Reason::Undefined, user);
        match definition.origin {
            Origin::Entry => Err(undefined(self.code)),
            Origin::Block(block) => {
                // What enters the function at a loop's head has not been written.
                let predecessors = &self.code.flow.block(block).predecessors;
                if block.index() == 0 || predecessors.is_empty() {
                    return Err(undefined(self.code));
                }
                let is_reached = |before: &&BlockId| self.code.definitions.dominators().contains(**before);
                for &before in predecessors.iter().filter(is_reached) {
                    let last = self.code.definitions.at_exit(definition.register, before);
                    self.open.push((last.ok_or_else(|| undefined(self.code))?, user));
                }
                Ok(())
            }
            Origin::Instruction(at) => {
                let (line, operation) = (&self.code.body.lines[at.index()], self.code.operation(at));
                if operation.is(&[Opcode::Cvta]) && operation.space == Some(StateSpace::Local) && !is_local {
                    return Err(self.code.refuse(Reason::Pointer, at));
                }
                if let Some(guard) = line.guard.and_then(|guard| guard.symbol.register()) {
                    self.open(at, guard)?;
                    self.open(at, definition.register)?;
                }
                // What an access reads besides is a sink itself.
                if operation.is(&[Opcode::Ld, Opcode::Atom]) {
                    return Ok(());
                }
                let (_, sources) = operation.split(&line.operands);
                sources.iter().try_for_each(|source| self.operand(at, source))?;
                self.addresses(at, is_local)
            }
        }
    }

    /// A variable whose address an instruction takes in another way than through a sum.
    fn addresses(&self, at: InstructionId, is_local: bool) -> Result<(), Refusal> {
        let is_place = |operand: &&Operand<'_>| match operand {
            Operand::Name(Symbol::Variable(id)) | Operand::Offset(Symbol::Variable(id), _) => {
                self.code.body.variable(*id).space == StateSpace::Local
            }
            _ => false,
        };
        let takes = self.code.body.lines[at.index()].operands.iter().any(|operand| is_place(&operand));
        if takes && !is_local { Err(self.code.refuse(Reason::Pointer, at)) } else { Ok(()) }
    }
}

/// Whether a sum is nothing but the unknown value of its definition.
fn is_itself(sum: &Sum, definition: Definition, code: &Code<'_, '_>) -> bool {
    let [term] = sum.terms.as_slice() else { return false };
    let [factor] = term.factors.as_slice() else { return false };
    (sum.constant, term.coefficient) == (0, 1)
        && code.values.sums().atom(*factor) == Atom::Unknown(definition)
}
