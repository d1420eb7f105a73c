//! Translates each instruction into steps, as far as an estimate follows it.

use super::code::{Access, Action, Compare, Computation, Guard, Kind, NONE, Register, Update};
use super::compile::{Compiler, Site};
use ptx::body::{Base, Indexed, Operand};
use ptx::instruction::{
    Atomic, Direction, Flag, Opcode, Operation, Part, Shape, Synchronization, Vote, accesses,
};
use ptx::syntax::{ScalarType, StateSpace};
use ptx_lower::{Meaning, Memory, Op};

/// A move of a register.
pub(super) fn movement(to: Register, from: Register, ty: ScalarType) -> Action {
    Action::Compute {
        form: computation(Op::Move, bits_of(ty), bits_of(ty)),
        to,
        from: [from, NONE, NONE, NONE],
    }
}

/// A computation that no rounding changes.
fn computation(op: Op, from: Kind, to: Kind) -> Computation {
    Computation { op, rounding: None, from, to }
}

/// A type as bits: an integer of its width.
fn bits_of(ty: ScalarType) -> Kind {
    let bits = if ty == ScalarType::Pred { 1 } else { (8 * ty.bytes() as u32).clamp(1, 64) };
    Kind::Integer { bits, signed: ty.is_signed() }
}

/// A type that is computed with; none for halves and narrower.
fn arithmetic_kind(ty: ScalarType) -> Option<Kind> {
    match ty {
        ScalarType::F32 => Some(Kind::Single),
        ScalarType::F64 => Some(Kind::Double),
        ty if ty.is_float() || matches!(ty, ScalarType::U16x2 | ScalarType::S16x2 | ScalarType::B128) => None,
        ty => Some(bits_of(ty)),
    }
}

/// Returns the type of a register after a load of this type.
fn loaded_kind(ty: ScalarType) -> Kind {
    arithmetic_kind(ty).unwrap_or_else(|| bits_of(ty))
}

impl<'m> Compiler<'_, 'm> {
    pub(super) fn instruction(&mut self, site: Site<'_, 'm>) {
        use Opcode::{
            Activemask, Applypriority, Atom, Bar, Barrier, Bra, Brx, Call, Cp, Discard, Exit, Fence, Ld,
            Ldmatrix, Ldu, Membar, Mov, Nanosleep, Prefetch, Prefetchu, Red, Ret, Set, Setmaxnreg, Setp,
            Shfl, St, Stmatrix, Trap, Wmma,
        };
        let operation = site.operation;
        let Some(opcode) = operation.opcode else { return self.computation(site) };
        match opcode {
            Mov => self.mov(site),
            Bra => self.branch(site),
            Brx => self.branch_indexed(site),
            Call => self.call(site),
            Ret => self.leave(site),
            Exit | Trap => self.emit(site, Action::Exit),
            Bar | Barrier if operation.synchronization() == Some(Synchronization::Block) => {
                self.emit(site, Action::Barrier);
                self.unknown_parts(site);
            }
            Nanosleep | Prefetch | Prefetchu | Membar | Fence | Setmaxnreg | Discard | Applypriority => {
                self.emit(site, Action::Nothing);
            }
            Ld | Ldu if operation.space == Some(StateSpace::Param) => self.load_parameter(site),
            St if operation.space == Some(StateSpace::Param) => self.store_parameter(site),
            Ld | Ldu | Ldmatrix | St | Stmatrix | Atom | Red => self.access(site),
            Cp => self.copy_asynchronously(site),
            Wmma if operation.has(Flag::Load) || operation.has(Flag::Store) => self.access(site),
            Setp | Set => self.comparison(site),
            Shfl => self.shuffle(site),
            Opcode::Vote | Activemask => self.vote(site),
            _ => self.computation(site),
        }
    }

    fn mov(&mut self, site: Site<'_, 'm>) {
        let Some(ty) = site.operation.types().first().copied() else { return self.unknown(site) };
        match site.operands() {
            [Operand::Vector(parts), from] => {
                let from = self.read(from, ty);
                self.unpack(site, parts, from, ty);
            }
            [to, Operand::Vector(parts)] => {
                let to = self.write(to);
                self.pack(site, to, parts, ty);
            }
            [to, from] => {
                let from = match from {
                    Operand::Indexed(element) => self.element(site, *element),
                    other => self.read(other, ty),
                };
                let to = self.write(to);
                self.emit(site, movement(to, from, ty));
            }
            _ => self.unknown(site),
        }
    }

    fn unpack(&mut self, site: Site<'_, 'm>, parts: &[Operand<'m>], from: Register, ty: ScalarType) {
        let width = (8 * ty.bytes() as u32).min(64) / (parts.len() as u32).max(1);
        let narrow = Kind::Integer { bits: width, signed: false };
        self.emit(site, Action::Nothing);
        for (index, part) in (0u32..).zip(parts) {
            let to = self.write(part);
            let form = computation(Op::Unpack(index * width), bits_of(ty), narrow);
            let action = Action::Compute { form, to, from: [from, NONE, NONE, NONE] };
            self.emit_part(site, action);
        }
    }

    fn pack(&mut self, site: Site<'_, 'm>, to: Register, parts: &[Operand<'m>], ty: ScalarType) {
        let width = (8 * ty.bytes() as u32).min(64) / (parts.len() as u32).max(1);
        self.emit(site, Action::Nothing);
        let mut sum = self.constant(0);
        for (index, part) in (0u32..).zip(parts) {
            let from = [sum, self.read(part, ty), NONE, NONE];
            // What is above is cut off by the width of what is so far.
            let kind = Kind::Integer { bits: (index * width).max(1), signed: false };
            let form = computation(Op::Pack(index * width), kind, bits_of(ty));
            let next = if index as usize + 1 == parts.len() { to } else { self.temporary() };
            self.emit_part(site, Action::Compute { form, to: next, from });
            sum = next;
        }
    }

    /// An instruction that computes a result of its other operands.
    fn computation(&mut self, site: Site<'_, 'm>) {
        let (Some((form, types)), [to, from @ ..]) = (form(site), site.operands()) else {
            return self.unknown(site);
        };
        let mut plain = |operand: &Operand<'m>| match operand {
            Operand::Name(_) | Operand::Component(..) | Operand::Constant(_) => true,
            Operand::Offset(symbol, _) | Operand::Element(symbol, _) => self.address_of(*symbol).is_some(),
            _ => false,
        };
        if from.is_empty() || from.len() > 5 || !from.iter().all(&mut plain) {
            return self.unknown(site);
        }
        let to = self.write(to);
        let mut registers = [NONE; 4];
        for (index, (place, operand)) in registers.iter_mut().zip(from).enumerate() {
            *place = self.read(operand, types.get(index).copied().unwrap_or(ScalarType::B32));
        }
        self.emit(site, Action::Compute { form, to, from: registers });
    }

    /// An instruction whose results an estimate does not know.
    fn unknown(&mut self, site: Site<'_, 'm>) {
        self.emit(site, Action::Nothing);
        self.unknown_parts(site);
    }

    fn unknown_parts(&mut self, site: Site<'_, 'm>) {
        let ty = site.operation.types().first().copied().unwrap_or(ScalarType::B32);
        let (Some(results), operands) = site.operation.split(site.operands()) else { return };
        let mut from = [NONE; 4];
        for (place, operand) in from.iter_mut().zip(operands) {
            *place = self.read(operand, ty);
        }
        for (register, predicate) in self.results(site, results) {
            let kind = if predicate { bits_of(ScalarType::Pred) } else { loaded_kind(ty) };
            self.emit_part(site, Action::Unknown { to: register, from, kind });
        }
    }

    fn comparison(&mut self, site: Site<'_, 'm>) {
        let (Some(Meaning { op: Op::Compare { relation, logic, truth }, ty, .. }), [to, a, b, rest @ ..]) =
            (Meaning::of(&mut { *site.operation }, site.operands()), site.operands())
        else {
            return self.unknown(site);
        };
        let Some(kind) = arithmetic_kind(ty) else { return self.unknown(site) };
        let (to, opposite) = match to {
            Operand::Pair(first, second) => (self.write(first), self.write(second)),
            to => (self.write(to), NONE),
        };
        let combine = match (logic, rest.first()) {
            (Some(logic), Some(operand)) => Some((logic, self.predicate(operand))),
            _ => None,
        };
        let truth = match truth {
            ScalarType::Pred => 1,
            ScalarType::F32 => 1f32.to_bits().into(),
            _ => u64::from(u32::MAX),
        };
        let (a, b) = (self.read(a, ty), self.read(b, ty));
        self.emit(site, Action::Compare(Compare { relation, kind, to, opposite, a, b, combine, truth }));
    }

    fn predicate(&mut self, operand: &Operand<'m>) -> Guard {
        let negated = matches!(operand, Operand::Not(_));
        Guard { register: self.read(operand, ScalarType::Pred), negated }
    }

    fn shuffle(&mut self, site: Site<'_, 'm>) {
        let (Some(mode), [to, value, lane, clamp, ..]) = (site.operation.shuffle, site.operands()) else {
            return self.unknown(site);
        };
        let (to, valid) = match to {
            Operand::Pair(first, second) => (self.write(first), self.write(second)),
            to => (self.write(to), NONE),
        };
        let [value, lane, clamp] = [value, lane, clamp].map(|operand| self.read(operand, ScalarType::B32));
        self.emit(site, Action::Shuffle { mode, to, valid, value, lane, clamp });
    }

    fn vote(&mut self, site: Site<'_, 'm>) {
        match (site.operation.opcode, site.operation.vote, site.operands()) {
            // The lanes that vote are those that are active.
            (Some(Opcode::Activemask), _, [to, ..]) => {
                let to = self.write(to);
                self.emit(site, Action::Vote { vote: Vote::Ballot, to, from: NONE, negated: false });
            }
            (_, Some(vote), [to, from, ..]) => {
                let (to, from) = (self.write(to), self.predicate(from));
                self.emit(site, Action::Vote { vote, to, from: from.register, negated: from.negated });
            }
            _ => self.unknown(site),
        }
    }

    fn load_parameter(&mut self, site: Site<'_, 'm>) {
        let ty = moved_type(site.operation);
        let [to, source] = site.operands() else { return self.unknown(site) };
        let Some((base, offset)) = source.place() else { return self.unknown(site) };
        let parts = match to {
            Operand::Vector(parts) => parts.as_slice(),
            _ => std::slice::from_ref(to),
        };
        self.emit(site, Action::Nothing);
        for (index, part) in (0i64..).zip(parts) {
            let to = self.write(part);
            let offset = offset.wrapping_add(index * ty.bytes() as i64);
            let from = match base {
                Base::Name(symbol) => self.parameter(symbol, offset, ty.bytes()),
                _ => None,
            };
            let action = match from {
                Some(from) => movement(to, from, ty),
                None => {
                    let base = self.base(site, base);
                    Action::Unknown { to, from: [base, NONE, NONE, NONE], kind: loaded_kind(ty) }
                }
            };
            self.emit_part(site, action);
        }
    }

    fn store_parameter(&mut self, site: Site<'_, 'm>) {
        let ty = moved_type(site.operation);
        self.emit(site, Action::Nothing);
        let [to, from] = site.operands() else { return };
        let Some((base, offset)) = to.place() else { return };
        let parts = match from {
            Operand::Vector(parts) => parts.as_slice(),
            _ => std::slice::from_ref(from),
        };
        for (index, part) in (0i64..).zip(parts) {
            let offset = offset.wrapping_add(index * ty.bytes() as i64);
            let Base::Name(symbol) = base else { continue };
            let Some(to) = self.parameter(symbol, offset, ty.bytes()) else { continue };
            let from = self.read(part, ty);
            self.emit_part(site, movement(to, from, ty));
        }
    }

    /// The register of an address, without its offset.
    fn base(&mut self, site: Site<'_, 'm>, base: Base<'m>) -> Register {
        match base {
            Base::Indexed(element) => self.element(site, element),
            Base::Name(symbol) => self.read_symbol(symbol),
            Base::Component(symbol, selector) => match symbol.part(selector) {
                Some(id) => self.register(id),
                None => self.constant(0),
            },
            Base::Absolute => self.constant(0),
        }
    }

    /// The register of the address of an array's element.
    fn element(&mut self, site: Site<'_, 'm>, element: Indexed<'m>) -> Register {
        let unsigned = |bits| Kind::Integer { bits, signed: false };
        let index = self.read_symbol(element.index);
        let declared = element.index.register().and_then(|register| site.type_of(register));
        let [widened, offset, address] = [(); 3].map(|()| self.temporary());
        let scale = self.constant(element.size.into());
        let plus = self.constant(element.plus.wrapping_mul(element.size).into());
        let array = self.read_symbol(element.array);
        let narrow = declared.map_or(unsigned(32), bits_of);
        for (op, from, kind, to, operands) in [
            (
                Op::Convert { to: ScalarType::U32, finite: false },
                narrow,
                unsigned(32),
                widened,
                [index, NONE, NONE, NONE],
            ),
            (Op::MultiplyAdd(Part::Low), unsigned(32), unsigned(32), offset, [widened, scale, plus, NONE]),
            (Op::Add, unsigned(64), unsigned(64), address, [array, offset, NONE, NONE]),
        ] {
            let form = computation(op, from, kind);
            self.emit_part(site, Action::Compute { form, to, from: operands });
        }
        address
    }

    fn access(&mut self, site: Site<'_, 'm>) {
        let Some(access) = accesses(site.operation, site.operands()).first().copied() else {
            return self.unknown(site);
        };
        let (bytes, lanes) = match access.shape {
            Shape::Tile { rows, element } => {
                let stride = match site.operands().last() {
                    Some(operand @ (Operand::Name(_) | Operand::Constant(_))) => {
                        self.read(operand, ScalarType::U32)
                    }
                    _ => self.constant(rows.into()),
                };
                let address = self.base(site, access.base);
                let (space, store) = (space_of(site.operation), access.direction == Direction::Store);
                return self.emit(site, Action::Fragment { space, store, rows, element, address, stride });
            }
            Shape::Rows(lanes) => (16, lanes),
            _ => (access.bytes.min(u32::MAX.into()) as u32, 32),
        };
        let to = match site.operands().first() {
            Some(operand) => self.results(site, operand),
            None => Vec::new(),
        };
        let access = Access {
            space: space_of(site.operation),
            direction: access.direction,
            address: self.base(site, access.base),
            offset: access.offset,
            bytes: bytes.clamp(1, 128),
            lanes,
            to: to.into_iter().map(|(register, _)| register).collect(),
            element: loaded_kind(access.element),
            below: Vec::new(),
            is_offset: false,
            update: self.update(site),
        };
        self.emit(site, Action::Access(access));
    }

    /// Returns the way in which an atomic operation's result can be computed; `None` if it cannot.
    fn update(&mut self, site: Site<'_, 'm>) -> Option<Update> {
        let Memory { atomic: Some(atomic), ty, length: 1, .. } = Memory::of(&mut { *site.operation })? else {
            return None;
        };
        // A result that nobody reads makes the assembler take `red` for `atom`.
        let returns = site.operation.opcode == Some(Opcode::Atom)
            && site.operands().first().is_some_and(|result| self.is_read(site, result));
        let operand = usize::from(site.operation.opcode == Some(Opcode::Atom)) + 1;
        arithmetic_kind(ty)?;
        let mut read = |index: usize| site.operands().get(index).map(|operand| self.read(operand, ty));
        match atomic {
            Atomic::CompareAndSwap => Some(Update::CompareAndSwap { expected: read(2)?, new: read(3)? }),
            Atomic::Exchange => Some(Update::Exchange { new: read(2)? }),
            _ if ty.is_float() => None,
            // One lane for all: what each lane gets back follows from its place among them only if
            // all add the same; and only words are reduced in one instruction (`redux`).
            Atomic::Add if returns || ty.bytes() > 4 => Some(Update::Reduction { operand: read(operand)? }),
            Atomic::Add | Atomic::Minimum | Atomic::Maximum | Atomic::And | Atomic::Or | Atomic::Xor
                if !returns && ty.bytes() <= 4 =>
            {
                Some(Update::Reduction { operand: NONE })
            }
            _ => None,
        }
    }

    /// `cp.async`: a load from global and a store to shared memory.
    fn copy_asynchronously(&mut self, site: Site<'_, 'm>) {
        let found = accesses(site.operation, site.operands());
        let [to, from] = found.as_slice() else { return self.emit(site, Action::Nothing) };
        if to.shape != Shape::Lanes || to.bytes == 0 {
            return self.emit(site, Action::Nothing);
        }
        let bytes = to.bytes.min(128) as u32;
        let part = |space, direction, address, offset| {
            let element = bits_of(ScalarType::B32);
            Action::Access(Access {
                space: Some(space),
                direction,
                address,
                offset,
                bytes,
                lanes: 32,
                to: Vec::new(),
                element,
                below: Vec::new(),
                is_offset: false,
                update: None,
            })
        };
        let (source, target) = (self.base(site, from.base), self.base(site, to.base));
        self.emit(site, part(StateSpace::Global, Direction::Load, source, from.offset));
        self.emit_part(site, part(StateSpace::Shared, Direction::Store, target, to.offset));
    }
}

/// The type of what a load or store of a parameter moves.
fn moved_type(operation: &Operation) -> ScalarType {
    Memory::of(&mut { *operation }).map_or(ScalarType::B32, |memory| memory.ty)
}

/// The memory that an operation names; `None` for generic addresses.
pub(super) fn space_of(operation: &Operation) -> Option<StateSpace> {
    use StateSpace::{Const, Global, Local, Param, Shared};
    match operation.space {
        Some(Const | Param) => Some(Const),
        other => other.filter(|space| matches!(space, Global | Shared | Local)),
    }
}

/// Returns the computation of an instruction, if it is followed.
fn form(site: Site<'_, '_>) -> Option<(Computation, Vec<ScalarType>)> {
    let meaning = match site.operation.opcode? {
        Opcode::Cvta => Meaning::plain(Op::Move, *site.operation.types().first()?),
        _ => Meaning::of(&mut { *site.operation }, site.operands())?,
    };
    let (from, to) = match meaning.op {
        Op::Select => (bits_of(meaning.ty), bits_of(meaning.ty)),
        _ => (arithmetic_kind(meaning.ty)?, arithmetic_kind(meaning.result())?),
    };
    let sources = meaning.sources();
    let real = matches!(from, Kind::Single | Kind::Double);
    let is_followed = match meaning.op {
        Op::Move | Op::Select | Op::Convert { .. } => true,
        Op::Add | Op::Subtract | Op::Multiply(_) | Op::MultiplyAdd(_) | Op::Divide => true,
        Op::Minimum | Op::Maximum => site.operands().len() == 3,
        Op::Absolute | Op::Negate => true,
        Op::SquareRoot | Op::Reciprocal => real,
        Op::Table(_) => site.operands().len() == 5,
        Op::Remainder | Op::And | Op::Or | Op::Xor | Op::Not | Op::ShiftLeft | Op::ShiftRight => !real,
        Op::Funnel { .. } | Op::ExtractBits | Op::InsertBits | Op::Permute(None) => !real,
        Op::CountOnes | Op::CountLeadingZeros | Op::ReverseBits => !real,
        _ => false,
    };
    is_followed
        .then_some((Computation { op: meaning.op, rounding: meaning.modifiers.rounding, from, to }, sources))
}
