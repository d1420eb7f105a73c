//! What the value of a register is computed from.
//!
//! An [`Origin`] is the union over all instructions that write the register, whatever their order:
//! parameters, variables whose addresses are taken, and whether something may be a pointer that was
//! loaded from memory. Predicates carry nothing, because an address is based on the values that it
//! is computed from, not on those that decide which of them is taken.

use std::collections::BTreeSet;

use ptx::body::{Address, Base, Body, Home, InstructionId, Operand, RegisterId, Symbol, VariableId};
use ptx::instruction::{Opcode, Operation, Operations, accesses};
use ptx::{Constant, ScalarType, StateSpace};

use crate::Fault;

/// Most passes over a listing.
const MOST_PASSES: usize = 64;
/// A number of fewer than 64 bits that is moved by so many bits or more may be a part of a pointer.
const PART_OF_POINTER: i128 = 24;

/// What a value may be computed from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    /// Offsets of the 64-bit words of parameters.
    pub parameters: BTreeSet<u32>,
    /// Variables by their addresses.
    pub variables: BTreeSet<VariableId>,
    /// Fewer than 64 bits that were loaded: an index, or a part of a pointer.
    pub piece: bool,
    /// It may be a pointer from memory.
    pub loaded: bool,
    /// It may be a number without a pointer in it. Added to a pointer, it is an offset; as an
    /// address, it is one that nobody knows, however it was put together.
    pub bare: bool,
}

impl Origin {
    fn loaded() -> Origin {
        Origin { loaded: true, ..Origin::default() }
    }

    fn add(&mut self, other: &Origin) {
        self.parameters.extend(&other.parameters);
        self.variables.extend(&other.variables);
        self.piece |= other.piece;
        self.loaded |= other.loaded;
        self.bare |= other.bare;
    }

    /// Whether there may be a pointer in it.
    fn has_pointer(&self) -> bool {
        !self.parameters.is_empty() || !self.variables.is_empty() || self.loaded
    }
}

/// The origins of the registers of a kernel.
pub(crate) struct Origins<'a, 'm> {
    body: &'a Body<'m>,
    operations: &'a Operations,
    /// Offsets of the kernel's parameters.
    offsets: &'a [u32],
    fault: Option<Fault>,
    registers: Vec<Origin>,
}

impl<'a, 'm> Origins<'a, 'm> {
    /// Finds the origins; `None` if that takes too long.
    pub fn of(
        body: &'a Body<'m>,
        operations: &'a Operations,
        offsets: &'a [u32],
        fault: Option<Fault>,
    ) -> Option<Origins<'a, 'm>> {
        let registers = vec![Origin::default(); body.registers.len()];
        let mut origins = Origins { body, operations, offsets, fault, registers };
        let passes = if fault == Some(Fault::OnePass) { 1 } else { MOST_PASSES };
        let is_stable = (0..passes).any(|_| !origins.pass());
        (is_stable || fault == Some(Fault::OnePass)).then_some(origins)
    }

    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    /// Adds what each instruction writes; whether anything was new.
    fn pass(&mut self) -> bool {
        let mut changed = false;
        let mut seen = BTreeSet::new();
        for at in (0..self.body.lines.len() as u32).map(InstructionId) {
            for (register, origin) in self.written(at) {
                if self.is_predicate(register) || self.has(Fault::FirstWrite) && !seen.insert(register) {
                    continue;
                }
                let known = &mut self.registers[register.index()];
                let before = known.clone();
                known.add(&origin);
                changed |= *known != before;
            }
        }
        changed
    }

    fn is_predicate(&self, register: RegisterId) -> bool {
        let declaration = self.body.registers[register.index()].declaration;
        declaration.is_some_and(|declaration| declaration.ty == ScalarType::Pred)
    }

    /// The registers that an instruction writes, and what it puts into each.
    fn written(&self, at: InstructionId) -> Vec<(RegisterId, Origin)> {
        let (line, operation) = (&self.body.lines[at.index()], &self.operations[at.index()]);
        let mut registers = Vec::new();
        operation.writes(line, self.body, &mut |register| registers.push(register));
        let origin = |place: usize| match operation.opcode {
            Some(Opcode::Ld | Opcode::Ldu) => self.of_load(at, place),
            Some(Opcode::Atom) => self.of_size(operation, Fault::Loaded),
            Some(Opcode::Ldmatrix | Opcode::Wmma) => Origin { piece: true, bare: true, ..self.computed(at) },
            Some(Opcode::Call) if self.has(Fault::Calls) => Origin::default(),
            Some(Opcode::Call) | None => Origin::loaded(),
            Some(_) if self.has(Fault::Unpacked) && registers.len() > 1 => Origin::default(),
            Some(_) => self.computed(at),
        };
        registers.iter().enumerate().map(|(place, register)| (*register, origin(place))).collect()
    }

    /// What an instruction computes from registers, addresses of variables, and numbers.
    fn computed(&self, at: InstructionId) -> Origin {
        let (line, operation) = (&self.body.lines[at.index()], &self.operations[at.index()]);
        let (_, sources) = operation.split(&line.operands);
        let sources = if self.has(Fault::FirstSource) { &sources[..sources.len().min(1)] } else { sources };
        let mut origin = Origin::default();
        sources.iter().for_each(|source| self.add_operand(source, &mut origin));
        if self.forgets(operation) {
            return Origin::default();
        }
        if origin.piece && !self.has(Fault::Pieces) && assembles(operation, sources) {
            origin.loaded = true;
        }
        if self.has(Fault::Pieces) {
            return Origin { bare: false, ..origin };
        }
        // What a pointer is subtracted from may become another pointer by adding it again.
        let taken = sources.get(1).filter(|_| operation.is(&[Opcode::Sub, Opcode::Subc]));
        origin.loaded |= taken.is_some_and(|taken| self.of_operand(taken).has_pointer());
        origin.bare = self.is_bare(operation, sources);
        origin
    }

    /// Whether an instruction's result may be without a pointer.
    fn is_bare(&self, operation: &Operation, sources: &[Operand<'m>]) -> bool {
        use Opcode::{Add, Addc, And, Cvt, Cvta, Mad, Max, Min, Mov, Or, Selp, Shfl, Slct, Sub, Subc};
        let bare = |place: usize| sources.get(place).is_none_or(|source| self.is_number(source));
        match operation.opcode {
            Some(Mov) => match sources {
                [Operand::Vector(parts)] => parts.iter().all(|part| self.is_number(part)),
                _ => bare(0),
            },
            Some(Cvt | Cvta | Shfl | Sub | Subc) => bare(0),
            Some(Selp | Slct | Min | Max) => bare(0) || bare(1),
            Some(Add | Addc | And | Or) => bare(0) && bare(1),
            Some(Mad) => bare(2),
            _ => true,
        }
    }

    /// Whether an operand may be a number without a pointer.
    fn is_number(&self, operand: &Operand<'m>) -> bool {
        let mut registers = 0;
        operand.registers(self.body, &mut |_| registers += 1);
        let origin = self.of_operand(operand);
        origin.bare || registers == 0 && !origin.has_pointer()
    }

    fn of_operand(&self, operand: &Operand<'m>) -> Origin {
        let mut origin = Origin::default();
        self.add_operand(operand, &mut origin);
        origin
    }

    fn forgets(&self, operation: &Operation) -> bool {
        use Opcode::{And, Lop3, Mad, Mul, Or, Shfl, Shl, Shr, Xor};
        let is = |opcodes: &[Opcode]| operation.is(opcodes);
        match self.fault {
            Some(Fault::Bits) => is(&[And, Or, Xor, Lop3]),
            Some(Fault::Products) => is(&[Mul, Mad]),
            Some(Fault::Shifts) => is(&[Shl, Shr]),
            Some(Fault::Shuffles) => is(&[Shfl]),
            _ => false,
        }
    }

    /// What a load puts into the register at a place of its result.
    fn of_load(&self, at: InstructionId, place: usize) -> Origin {
        let (line, operation) = (&self.body.lines[at.index()], &self.operations[at.index()]);
        let space = operation.space;
        if space != Some(StateSpace::Param) {
            let local = if space == Some(StateSpace::Local) { Fault::LoadedLocal } else { Fault::Loaded };
            return self.of_size(operation, local);
        }
        let access = accesses(operation, &line.operands).into_iter().next();
        let offset = access.and_then(|access| {
            let Base::Name(Symbol::Variable(variable)) = access.base else { return None };
            let start = i64::from(parameter(self.body, self.offsets, variable)?);
            let bytes = access.element.bytes();
            u32::try_from(start.checked_add(access.offset)? + (place as u64 * bytes) as i64).ok()
        });
        match (offset, element_bytes(operation)) {
            // A word of a kernel's parameter.
            (Some(offset), 8) if offset.is_multiple_of(8) => {
                Origin { parameters: BTreeSet::from([offset]), ..Origin::default() }
            }
            (_, bytes) if bytes < 8 => Origin { piece: true, bare: true, ..Origin::default() },
            (None, _) if self.has(Fault::Calls) => Origin::default(),
            _ => Origin::loaded(),
        }
    }

    /// What is loaded from memory in elements of this size.
    fn of_size(&self, operation: &Operation, neglected: Fault) -> Origin {
        let is_whole = element_bytes(operation) >= 8;
        match is_whole && !self.has(neglected) {
            true => Origin::loaded(),
            false => Origin { piece: true, bare: !is_whole, ..Origin::default() },
        }
    }

    fn add_operand(&self, operand: &Operand<'m>, origin: &mut Origin) {
        operand.registers(self.body, &mut |register| origin.add(&self.registers[register.index()]));
        self.add_names(operand, origin);
    }

    /// Adds the variables whose addresses an operand takes; a function's address is as a loaded
    /// pointer.
    fn add_names(&self, operand: &Operand<'m>, origin: &mut Origin) {
        let mut add = |symbol: Symbol<'m>| match symbol {
            Symbol::Variable(variable) => {
                origin.variables.insert(variable);
            }
            Symbol::Function(_) => origin.loaded = true,
            _ => {}
        };
        match operand {
            Operand::Name(symbol)
            | Operand::Component(symbol, _)
            | Operand::Offset(symbol, _)
            | Operand::Element(symbol, _)
            | Operand::Not(symbol)
            | Operand::Negated(symbol) => add(*symbol),
            Operand::Indexed(element) => add(element.array),
            Operand::Address(Address { base, rest, .. }) => {
                self.add_base(base, origin);
                rest.iter().for_each(|part| self.add_names(part, origin));
            }
            Operand::Pair(first, second) => {
                self.add_names(first, origin);
                self.add_names(second, origin);
            }
            Operand::Vector(parts) | Operand::List(parts) => {
                parts.iter().for_each(|part| self.add_names(part, origin));
            }
            Operand::Constant(_) | Operand::Sink => {}
        }
    }

    fn add_base(&self, base: &Base<'m>, origin: &mut Origin) {
        if let Some(register) = base.register() {
            origin.add(&self.registers[register.index()]);
        }
        if let Some(operand) = base.operand() {
            self.add_names(&operand, origin);
        }
    }

    /// What an address is computed from.
    pub fn of_base(&self, base: &Base<'m>) -> Origin {
        let mut origin = Origin::default();
        self.add_base(base, &mut origin);
        origin
    }
}

/// Bytes of an element that a load or an atomic operation gives.
fn element_bytes(operation: &Operation) -> u64 {
    operation.types().last().map_or(16, |ty| ty.bytes())
}

/// The offset of a kernel's parameter.
pub(crate) fn parameter(body: &Body<'_>, offsets: &[u32], variable: VariableId) -> Option<u32> {
    match body.variables[variable.index()].home {
        Home::Parameter(index) => offsets.get(index as usize).copied(),
        _ => None,
    }
}

/// Whether an instruction may put parts of a pointer together: it moves a number of fewer than 64
/// bits far to the left, or puts it above another one.
fn assembles(operation: &Operation, sources: &[Operand<'_>]) -> bool {
    let number = |operand: &Operand<'_>| match operand {
        Operand::Constant(Constant::Integer(number)) => Some(*number),
        _ => None,
    };
    let is_wide = operation.types().first().is_some_and(|ty| ty.bytes() == 8);
    let is_product_wide = is_wide || operation.part == Some(ptx::instruction::Part::Wide);
    match operation.opcode {
        Some(Opcode::Mov) => match sources {
            [Operand::Vector(parts)] => is_wide && parts.iter().skip(1).any(|part| number(part) != Some(0)),
            _ => false,
        },
        Some(Opcode::Shl) => {
            let amount = sources.get(1).and_then(number);
            is_wide && amount.is_none_or(|amount| amount >= PART_OF_POINTER)
        }
        Some(Opcode::Mul | Opcode::Mad) => {
            let mut factors = sources.iter().take(2).filter_map(number);
            is_product_wide && factors.any(|factor| factor.unsigned_abs() >= 1 << PART_OF_POINTER)
        }
        Some(Opcode::Bfi) => is_wide,
        _ => false,
    }
}
