//! The values of registers and addresses, as sums of what threads know when they begin.
//!
//! # Rules
//!
//! 1. *Every value is a [`Sum`]* of the width of its register, 32 or 64 bits. Sums are exact: they
//!    wrap as registers do. A value that none of the rules below makes is an
//!    [unknown](Atom::Unknown) of its own, the top.
//! 2. *Sums, differences, negations, products, shifts to the left by a number, and moves* of values
//!    are sums. So is what `ld.param` loads, and what special registers hold that never change.
//! 3. *Extending 32 to 64 bits is exact*, because the extended value stays whole in
//!    [`Atom::Extended`], whether or not it wraps.
//! 4. *A register that each round of a natural loop changes by the same amount*, which the loop
//!    does not change, is what it held before the loop and a multiple of [`Atom::Round`].
//! 5. *An atom holds where the value is used*: it is what its origin last made for the thread.

use std::collections::HashMap;

use super::definitions::{Cursor, Definition, Definitions, Origin};
use super::sum::{Atom, Sum, SumId, Sums};
use crate::body::{
    Base, Body, Home, Indexed, InstructionId, Operand, RegisterId, SpecialRegister, Symbol, component,
};
use crate::flow::{BlockId, Flow, Loop};
use crate::instruction::{Access, Flag, Opcode, Operation, Part, accesses};
use crate::syntax::{Constant, FunctionKind, ScalarType, StateSpace};

/// Most factors of a product, unless the caller wants more.
const MOST_FACTORS: usize = 3;

/// The largest element of an array is 64 KiB.
const MOST_SHIFT: u32 = 16;

/// The values of a function: see the [module](self).
#[derive(Clone, Debug)]
pub struct Values {
    loops: Vec<Loop>,
    sums: Sums,
    known: HashMap<Definition, SumId>,
    addresses: HashMap<(InstructionId, usize), Address>,
}

/// The address of an access, without its offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// Its value.
    pub value: SumId,
    /// The parts of the value, if it is the address of an array's element.
    pub element: Option<Element>,
}

/// `base + (index << shift)`: the address of an element of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element {
    /// A pointer in the parameters, or the address of a variable.
    pub base: Atom,
    /// A 32-bit register that holds the index where the access stands.
    pub index: RegisterId,
    /// Whether the index is a signed number.
    pub signed: bool,
    /// The logarithm of the element's size.
    pub shift: u32,
}

impl Values {
    /// The values of a listing, whose operations and blocks are given.
    pub fn of(body: &Body<'_>, operations: &[Operation], flow: &Flow) -> Values {
        Values::made(body, operations, flow, MOST_FACTORS, false)
    }

    /// The same with products of up to this number of factors, larger ones being unknown, and with
    /// lower halves of extended values as these values: so that a loop is found whose counter takes
    /// its steps through 64 bits.
    pub fn with_factors(
        body: &Body<'_>,
        operations: &[Operation],
        flow: &Flow,
        most_factors: usize,
    ) -> Values {
        Values::made(body, operations, flow, most_factors, true)
    }

    fn made(
        body: &Body<'_>,
        operations: &[Operation],
        flow: &Flow,
        most_factors: usize,
        halves: bool,
    ) -> Values {
        let definitions = Definitions::of(body, operations, flow);
        let loops = flow.loops(definitions.dominators());
        let values =
            Values { loops, sums: Sums::default(), known: HashMap::new(), addresses: HashMap::new() };
        let inductions = HashMap::new();
        let definitions = &definitions;
        let mut maker =
            Maker { body, operations, flow, definitions, values, inductions, most_factors, halves };
        maker.follow();
        if maker.find_inductions() {
            maker.values.known.clear();
            maker.values.addresses.clear();
            maker.follow();
        }
        maker.values
    }

    /// The sums that values are.
    pub fn sums(&self) -> &Sums {
        &self.sums
    }

    /// The loops that [`Atom::Round`] numbers.
    pub fn loops(&self) -> &[Loop] {
        &self.loops
    }

    /// Returns the value that an instruction writes to its only result; `None` if it has another
    /// number of results, or one that is neither 32 nor 64 bits wide.
    pub fn result(&self, at: InstructionId, register: RegisterId) -> Option<&Sum> {
        let definition = Definition { register, origin: Origin::Instruction(at) };
        self.known.get(&definition).map(|&id| self.sums.get(id))
    }

    /// The value of a definition, if anything in the function made it a sum.
    pub fn definition(&self, definition: Definition) -> Option<&Sum> {
        self.known.get(&definition).map(|&id| self.sums.get(id))
    }

    /// The address of an access of an instruction, the first of which is number 0 (see
    /// [`accesses`]). None where neither a register nor a variable has the address, and in code
    /// that is never reached.
    pub fn address(&self, at: InstructionId, access: usize) -> Option<Address> {
        self.addresses.get(&(at, access)).copied()
    }
}

/// A register that a loop changes by the same amount in each round.
struct Induction {
    /// The definition that holds when the loop is entered.
    before: Definition,
    step: Sum,
    round: u32,
}

/// Values that are being made.
struct Maker<'a, 'm> {
    body: &'a Body<'m>,
    operations: &'a [Operation],
    flow: &'a Flow,
    definitions: &'a Definitions<'a>,
    values: Values,
    /// The induction variables by their definitions at the loop's head.
    inductions: HashMap<Definition, Induction>,
    most_factors: usize,
    /// Whether lower halves of extended values are these values.
    halves: bool,
}

impl<'m> Maker<'_, 'm> {
    /// Makes the values of all blocks that are reached.
    fn follow(&mut self) {
        for block in self.flow.reverse_postorder() {
            let mut cursor = self.definitions.follow(block);
            for at in self.flow.block(block).first.0..self.flow.block(block).end.0 {
                let at = InstructionId(at);
                let (line, operation) = (&self.body.lines[at.index()], &self.operations[at.index()]);
                for (place, access) in accesses(operation, &line.operands).iter().enumerate() {
                    if let Some(address) = self.address(access, &cursor) {
                        self.values.addresses.insert((at, place), address);
                    }
                }
                let result = match operation.split(&line.operands) {
                    (Some(Operand::Name(Symbol::Register(register))), sources) if line.guard.is_none() => {
                        self.bits(*register).and_then(|bits| {
                            Some((*register, self.result(operation, sources, bits, &cursor)?))
                        })
                    }
                    _ => None,
                };
                cursor.pass(at, operation, self.body, &mut |_| {});
                if let Some((register, sum)) = result {
                    let id = self.values.sums.put(sum);
                    self.values.known.insert(cursor.definition(register), id);
                }
            }
        }
    }

    /// The width of a register, if values of it are followed.
    fn bits(&self, register: RegisterId) -> Option<u32> {
        let ty = self.body.registers[register.index()].declaration?.ty;
        (!ty.is_float()).then(|| width(ty)).flatten()
    }

    /// The value of a definition.
    fn value(&mut self, definition: Definition, bits: u32) -> Sum {
        if let Some(&id) = self.values.known.get(&definition) {
            return self.values.sums.get(id).clone();
        }
        let induced = self.induced(definition, bits);
        let sum = induced.unwrap_or_else(|| self.values.sums.single(Atom::Unknown(definition), bits));
        let id = self.values.sums.put(sum.clone());
        self.values.known.insert(definition, id);
        sum
    }

    /// The value of a register where a loop begins.
    fn induced(&mut self, definition: Definition, bits: u32) -> Option<Sum> {
        let Induction { before, step, round } = self.inductions.get(&definition)?;
        let (before, step, round) = (*before, step.clone(), Atom::Round(*round));
        let rise = step.times(&self.values.sums.single(round, bits), self.most_factors)?;
        self.value(before, bits).plus(&rise)
    }

    /// The value of an operand, if it has this width.
    fn operand(&mut self, operand: &Operand<'m>, bits: u32, cursor: &Cursor<'_, '_>) -> Option<Sum> {
        let address = |variable, offset: i64, sums: &mut Sums| {
            sums.single(Atom::Address(variable), bits).plus(&Sum::number(offset as u64, bits))
        };
        match *operand {
            Operand::Constant(Constant::Integer(number)) => Some(Sum::number(number as u64, bits)),
            Operand::Name(Symbol::Special(special)) => self.special(special, 0, bits),
            Operand::Component(Symbol::Special(special), selector) => {
                self.special(special, component(selector)?, bits)
            }
            Operand::Name(Symbol::Variable(variable)) => address(variable, 0, &mut self.values.sums),
            Operand::Offset(Symbol::Variable(variable), bytes)
            | Operand::Element(Symbol::Variable(variable), bytes) => {
                address(variable, bytes, &mut self.values.sums)
            }
            Operand::Indexed(element) => self.indexed(element, bits, cursor),
            Operand::Name(_) | Operand::Component(..) => {
                let register = operand.register()?;
                let fits = self.bits(register) == Some(bits);
                fits.then(|| self.value(cursor.definition(register), bits))
            }
            _ => None,
        }
    }

    /// The address of an element of an array.
    fn indexed(&mut self, element: Indexed<'m>, bits: u32, cursor: &Cursor<'_, '_>) -> Option<Sum> {
        let Symbol::Variable(array) = element.array else { return None };
        let width = element.index.register().map_or(Some(32), |register| self.bits(register))?;
        let index = self.operand(&Operand::Name(element.index), width, cursor)?.truncated(32);
        let index = index.plus(&Sum::number(element.plus.into(), 32))?;
        let mut offset = index.times_number(element.size.into());
        if bits == 64 {
            offset = self.values.sums.extended(offset, false, None);
        }
        self.values.sums.single(Atom::Address(array), bits).plus(&offset)
    }

    fn special(&mut self, special: SpecialRegister, axis: u8, bits: u32) -> Option<Sum> {
        use SpecialRegister::{Ctaid, Laneid, Nctaid, Ntid, Nwarpid, Tid};
        if width(special.ty()) != Some(bits) {
            return None;
        }
        let atom = match special {
            // The fourth component is 0.
            Tid | Ntid | Ctaid | Nctaid if axis > 2 => return Some(Sum::number(0, bits)),
            Tid => Atom::Thread(axis),
            Ntid => Atom::BlockSize(axis),
            Ctaid => Atom::Block(axis),
            Nctaid => Atom::GridSize(axis),
            Laneid | Nwarpid => Atom::Special(special),
            _ => return None,
        };
        Some(self.values.sums.single(atom, bits))
    }

    /// Returns the value that an instruction without a guard writes into a register of this width.
    fn result(
        &mut self,
        operation: &Operation,
        sources: &[Operand<'m>],
        bits: u32,
        cursor: &Cursor<'_, '_>,
    ) -> Option<Sum> {
        if operation.has(Flag::Saturate) {
            return None;
        }
        let types = operation.types();
        let ty = *types.first()?;
        let is_packed = matches!(ty, ScalarType::U16x2 | ScalarType::S16x2);
        let number = !ty.is_float() && !is_packed && operation.part != Some(Part::High);
        let wide = operation.part == Some(Part::Wide);
        match (operation.opcode?, sources) {
            (Opcode::Ld, [source]) => self.parameter(operation, source, bits),
            (Opcode::Cvt, [source]) => self.converted(types, source, bits, cursor),
            (Opcode::Cvta, [source]) if operation.space == Some(StateSpace::Global) => {
                self.operand(source, bits, cursor)
            }
            (Opcode::Mul, [a, b]) if wide && number => self.widened_product(ty, [a, b], bits, cursor),
            (Opcode::Mad, [a, b, c]) if wide && number => {
                let product = self.widened_product(ty, [a, b], bits, cursor)?;
                product.plus(&self.operand(c, bits, cursor)?)
            }
            _ if !number || width(ty) != Some(bits) => None,
            (Opcode::Mov, [source]) => self.operand(source, bits, cursor),
            (Opcode::Neg, [a]) => Some(self.operand(a, bits, cursor)?.times_number(u64::MAX)),
            (Opcode::Add, [a, b]) => self.operand(a, bits, cursor)?.plus(&self.operand(b, bits, cursor)?),
            (Opcode::Sub, [a, b]) => self.operand(a, bits, cursor)?.minus(&self.operand(b, bits, cursor)?),
            (Opcode::Mul, [a, b]) => {
                self.operand(a, bits, cursor)?.times(&self.operand(b, bits, cursor)?, self.most_factors)
            }
            (Opcode::Mad, [a, b, c]) => {
                let (a, b) = (self.operand(a, bits, cursor)?, self.operand(b, bits, cursor)?);
                a.times(&b, self.most_factors)?.plus(&self.operand(c, bits, cursor)?)
            }
            (Opcode::Shl, [a, Operand::Constant(Constant::Integer(by))]) => {
                let factor = u32::try_from(*by).ok().and_then(|by| 1u64.checked_shl(by)).unwrap_or(0);
                Some(self.operand(a, bits, cursor)?.times_number(factor))
            }
            _ => None,
        }
    }

    /// Returns the value that `ld.param` loads from a kernel's parameters.
    fn parameter(&mut self, operation: &Operation, source: &Operand<'m>, bits: u32) -> Option<Sum> {
        let (Base::Name(Symbol::Variable(variable)), offset) = source.place()? else { return None };
        let is_kernels = self.body.function.kind == FunctionKind::Entry
            && matches!(self.body.variables[variable.index()].home, Home::Parameter(_));
        let plain = operation.space == Some(StateSpace::Param) && operation.vector.is_none();
        let loaded = operation.types().first().copied().and_then(width);
        if !is_kernels || !plain || loaded != Some(bits) {
            return None;
        }
        let offset = u32::try_from(offset).ok()?;
        let atom = Atom::Parameter { variable, offset, bytes: (bits / 8) as u8 };
        Some(self.values.sums.single(atom, bits))
    }

    /// A conversion between integers.
    fn converted(
        &mut self,
        types: &[ScalarType],
        source: &Operand<'m>,
        bits: u32,
        cursor: &Cursor<'_, '_>,
    ) -> Option<Sum> {
        let [to, from] = types else { return None };
        if to.is_float() || from.is_float() || width(*to) != Some(bits) {
            return None;
        }
        match width(*from)? {
            32 if bits == 64 => self.extended(source, from.is_signed(), cursor),
            64 if bits == 32 && self.halves => {
                let sum = self.operand(source, 64, cursor)?;
                Some(self.values.sums.lower_half(&sum, self.most_factors))
            }
            from => Some(self.operand(source, from, cursor)?.truncated(bits)),
        }
    }

    /// The product of two 32-bit numbers as a 64-bit one.
    fn widened_product(
        &mut self,
        ty: ScalarType,
        [a, b]: [&Operand<'m>; 2],
        bits: u32,
        cursor: &Cursor<'_, '_>,
    ) -> Option<Sum> {
        if (width(ty), bits) != (Some(32), 64) {
            return None;
        }
        let (a, b) = (self.extended(a, ty.is_signed(), cursor)?, self.extended(b, ty.is_signed(), cursor)?);
        a.times(&b, self.most_factors)
    }

    fn extended(&mut self, operand: &Operand<'m>, signed: bool, cursor: &Cursor<'_, '_>) -> Option<Sum> {
        let sum = self.operand(operand, 32, cursor)?;
        let source = operand.register().map(|register| cursor.definition(register));
        Some(self.values.sums.extended(sum, signed, source))
    }

    /// The address of an access.
    fn address(&mut self, access: &Access<'m>, cursor: &Cursor<'_, '_>) -> Option<Address> {
        let base = access.base.operand()?;
        let sum = match base.register() {
            Some(register) => self.operand(&base, self.bits(register)?, cursor)?,
            None => self.operand(&base, 64, cursor)?,
        };
        let element = self.element(&sum, cursor);
        Some(Address { value: self.values.sums.put(sum), element })
    }

    fn element(&self, sum: &Sum, cursor: &Cursor<'_, '_>) -> Option<Element> {
        let single = |place: usize| {
            let term = sum.terms.get(place)?;
            let [factor] = term.factors.as_slice() else { return None };
            Some((self.values.sums.atom(*factor), term.coefficient))
        };
        if (sum.bits, sum.constant, sum.terms.len()) != (64, 0, 2) {
            return None;
        }
        let (base, index, size) = match (single(0)?, single(1)?) {
            ((base, 1), (index @ Atom::Extended { .. }, size)) => (base, index, size),
            ((index @ Atom::Extended { .. }, size), (base, 1)) => (base, index, size),
            _ => return None,
        };
        let is_pointer = matches!(base, Atom::Parameter { bytes: 8, .. } | Atom::Address(_));
        let Atom::Extended { signed, source: Some(source), .. } = index else { return None };
        let holds = cursor.definition(source.register) == source;
        let shift = size.trailing_zeros();
        let fits = is_pointer && holds && size.is_power_of_two() && shift <= MOST_SHIFT;
        fits.then_some(Element { base, index: source.register, signed, shift })
    }

    /// Finds the registers that loops change by the same amount in each round; whether there are
    /// any.
    fn find_inductions(&mut self) -> bool {
        for round in 0..self.values.loops.len() {
            for register in self.definitions.rewritten() {
                let start = self.definitions.at_entry(register, self.values.loops[round].head);
                if let Some((before, step)) = self.induction(start, round) {
                    self.inductions.insert(start, Induction { before, step, round: round as u32 });
                }
            }
        }
        !self.inductions.is_empty()
    }

    /// Returns the definition of a register before a loop, and the step that each round adds.
    fn induction(&mut self, start: Definition, round: usize) -> Option<(Definition, Sum)> {
        let head = self.values.loops[round].head;
        let bits = self.bits(start.register).filter(|_| start.origin == Origin::Block(head))?;
        let itself = self.values.sums.single(Atom::Unknown(start), bits);
        let (mut before, mut step) = (None, None);
        for &block in &self.flow.block(head).predecessors {
            let last = self.definitions.at_exit(start.register, block)?;
            if !self.values.loops[round].blocks.contains(&block) {
                before.get_or_insert(last);
                (before == Some(last)).then_some(())?;
                continue;
            }
            let id = *self.values.known.get(&last)?;
            let added = self.values.sums.get(id).minus(&itself)?;
            if !self.is_constant(&added, round) || *step.get_or_insert(added.clone()) != added {
                return None;
            }
        }
        // What enters the function at its head has no block before it.
        let entered = head.index() != 0;
        before.filter(|_| entered).zip(step)
    }

    /// Whether a loop leaves a sum as it is.
    fn is_constant(&self, sum: &Sum, round: usize) -> bool {
        let blocks = &self.values.loops[round].blocks;
        let is_head = |block: BlockId| self.values.loops.iter().any(|found| found.head == block);
        let mut constant = true;
        self.values.sums.atoms_of(sum, &mut |atom| {
            if let Atom::Unknown(Definition { origin, .. }) = atom {
                constant &= match origin {
                    Origin::Entry => true,
                    Origin::Instruction(at) => blocks.binary_search(&self.flow.block_of(at)).is_err(),
                    Origin::Block(block) => !is_head(block) && blocks.binary_search(&block).is_err(),
                };
            }
        });
        constant
    }
}

/// The width of a type whose values are followed.
fn width(ty: ScalarType) -> Option<u32> {
    match ty.bytes() {
        4 => Some(32),
        8 => Some(64),
        _ => None,
    }
}
