//! What each instruction does, as far as a walk follows it.

use super::code::{
    Access, AccessKind, Action, Comparison, Form, Guard, Kind, Logic, NONE, Op, Register, Relation, Rounding,
    Shuffle, Space, Vote,
};
use super::compile::Compiler;
use crate::instruction::Operation;
use crate::syntax::{Address, AddressBase, Constant, Instruction, Mnemonic, Operand};
use crate::syntax::{ScalarType, StateSpace};

/// A move of a register.
pub(super) fn movement(to: Register, from: Register, ty: ScalarType) -> Action {
    let kind = bits_of(ty);
    Action::Compute { form: Form { op: Op::Move, from: kind, to: kind }, to, from: [from, NONE, NONE, NONE] }
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

/// What a register holds after a load of this type.
fn loaded_kind(ty: ScalarType) -> Kind {
    arithmetic_kind(ty).unwrap_or_else(|| bits_of(ty))
}

impl<'a> Compiler<'a> {
    pub(super) fn instruction(&mut self, instruction: &'a Instruction) {
        let mnemonic = &instruction.mnemonic;
        match mnemonic.opcode() {
            "mov" => self.mov(instruction),
            "bra" => match instruction.operands.first() {
                Some(Operand::Name(label)) => self.jump(instruction, label),
                _ => self.emit(instruction, Action::Nothing),
            },
            "brx" => match instruction.operands.as_slice() {
                [index, Operand::Name(table), ..] => {
                    let index = self.read(index, ScalarType::U32);
                    self.jump_table(instruction, index, table);
                }
                _ => self.emit(instruction, Action::Nothing),
            },
            "call" => self.call(instruction),
            "ret" => self.leave(instruction),
            "exit" | "trap" => self.emit(instruction, Action::Exit),
            "bar" | "barrier" if !mnemonic.has("warp") && !mnemonic.has("cluster") => {
                self.emit(instruction, Action::Barrier);
                self.unknown_parts(instruction);
            }
            "nanosleep" | "prefetch" | "prefetchu" | "membar" | "fence" | "setmaxnreg" | "pragma"
            | "discard" | "applypriority" => self.emit(instruction, Action::Nothing),
            "ld" | "ldu" if space(instruction) == Some(StateSpace::Param) => self.load_parameter(instruction),
            "st" if space(instruction) == Some(StateSpace::Param) => self.store_parameter(instruction),
            "ld" | "ldu" | "ldmatrix" => self.access(instruction, AccessKind::Load),
            "st" | "stmatrix" => self.access(instruction, AccessKind::Store),
            "atom" | "red" => self.access(instruction, AccessKind::Atomic),
            "cp" => self.copy_asynchronously(instruction),
            "wmma" if mnemonic.has("load") || mnemonic.has("store") => self.fragment(instruction),
            "setp" | "set" => self.comparison(instruction),
            "cvt" => self.conversion(instruction),
            "shfl" => self.shuffle(instruction),
            "vote" | "activemask" => self.vote(instruction),
            _ => self.computation(instruction),
        }
    }

    fn mov(&mut self, instruction: &'a Instruction) {
        let Some(ty) = instruction.mnemonic.types().next() else { return self.unknown(instruction) };
        match instruction.operands.as_slice() {
            [Operand::Vector(parts), from] => {
                let from = self.read(from, ty);
                self.unpack(instruction, parts, from, ty);
            }
            [to, Operand::Vector(parts)] => {
                let to = self.write(to);
                self.pack(instruction, to, parts, ty);
            }
            [to, from] => {
                let (to, from) = (self.write(to), self.read(from, ty));
                self.emit(instruction, movement(to, from, ty));
            }
            _ => self.unknown(instruction),
        }
    }

    fn unpack(&mut self, instruction: &'a Instruction, parts: &'a [Operand], from: Register, ty: ScalarType) {
        let width = (8 * ty.bytes() as u32).min(64) / (parts.len() as u32).max(1);
        let form = |shift| Form {
            op: Op::Unpack(shift),
            from: bits_of(ty),
            to: Kind::Integer { bits: width, signed: false },
        };
        self.emit(instruction, Action::Nothing);
        for (index, part) in (0u32..).zip(parts) {
            let to = self.write(part);
            let action = Action::Compute { form: form(index * width), to, from: [from, NONE, NONE, NONE] };
            self.emit_part(instruction, action);
        }
    }

    fn pack(&mut self, instruction: &'a Instruction, to: Register, parts: &'a [Operand], ty: ScalarType) {
        let width = (8 * ty.bytes() as u32).min(64) / (parts.len() as u32).max(1);
        self.emit(instruction, Action::Nothing);
        let mut sum = self.constant(0);
        for (index, part) in (0u32..).zip(parts) {
            let from = [sum, self.read(part, ty), NONE, NONE];
            // What is above is cut off by the width of what is so far.
            let kind = Kind::Integer { bits: (index * width).max(1), signed: false };
            let form = Form { op: Op::Pack(index * width), from: kind, to: bits_of(ty) };
            let next = if index as usize + 1 == parts.len() { to } else { self.temporary() };
            self.emit_part(instruction, Action::Compute { form, to: next, from });
            sum = next;
        }
    }

    /// An instruction that computes a result of its other operands.
    fn computation(&mut self, instruction: &'a Instruction) {
        let operands = instruction.operands.as_slice();
        let ty = instruction.mnemonic.types().next();
        let form = ty.and_then(|ty| form(instruction, ty));
        let (Some(form), Some(ty), [to, from @ ..]) = (form, ty, operands) else {
            return self.unknown(instruction);
        };
        let mut plain = |operand: &Operand| match operand {
            Operand::Name(_) | Operand::Component(..) | Operand::Constant(_) => true,
            Operand::Offset(name, _) => self.symbol(name).is_some(),
            _ => false,
        };
        if from.is_empty() || from.len() > 5 || !from.iter().all(&mut plain) {
            return self.unknown(instruction);
        }
        let to = self.write(to);
        let mut registers = [NONE; 4];
        for (place, operand) in registers.iter_mut().zip(from) {
            *place = self.read(operand, ty);
        }
        self.emit(instruction, Action::Compute { form, to, from: registers });
    }

    /// An instruction whose results a walk does not know.
    fn unknown(&mut self, instruction: &'a Instruction) {
        self.emit(instruction, Action::Nothing);
        self.unknown_parts(instruction);
    }

    fn unknown_parts(&mut self, instruction: &'a Instruction) {
        let ty = instruction.mnemonic.types().next().unwrap_or(ScalarType::B32);
        let Some((results, operands)) = instruction.operands.split_first() else { return };
        let mut from = [NONE; 4];
        for (place, operand) in from.iter_mut().zip(operands) {
            *place = self.read(operand, ty);
        }
        for (register, predicate) in self.results(results) {
            let kind = if predicate { bits_of(ScalarType::Pred) } else { loaded_kind(ty) };
            self.emit_part(instruction, Action::Unknown { to: register, from, kind });
        }
    }

    /// Registers of an operand that is written, and whether each is the predicate of a pair.
    fn results(&mut self, operand: &'a Operand) -> Vec<(Register, bool)> {
        match operand {
            Operand::Name(_) | Operand::Component(..) => vec![(self.write(operand), false)],
            Operand::Pair(first, second) => vec![(self.write(first), false), (self.write(second), true)],
            Operand::Vector(parts) => parts.iter().map(|part| (self.write(part), false)).collect(),
            _ => Vec::new(),
        }
    }

    fn conversion(&mut self, instruction: &'a Instruction) {
        let mnemonic = &instruction.mnemonic;
        let kinds: Vec<Kind> = mnemonic.types().filter_map(arithmetic_kind).collect();
        let types: Vec<ScalarType> = mnemonic.types().collect();
        let ([to_kind, from_kind], [_, from_ty], [to, from]) =
            (kinds.as_slice(), types.as_slice(), instruction.operands.as_slice())
        else {
            return self.unknown(instruction);
        };
        let rounding = rounding(mnemonic, *to_kind);
        let form = Form { op: Op::Convert(rounding), from: *from_kind, to: *to_kind };
        let (to, from) = (self.write(to), self.read(from, *from_ty));
        self.emit(instruction, Action::Compute { form, to, from: [from, NONE, NONE, NONE] });
    }

    fn comparison(&mut self, instruction: &'a Instruction) {
        let mnemonic = &instruction.mnemonic;
        let relation = mnemonic.modifiers().find_map(relation);
        let ty = mnemonic.types().next_back();
        let kind = ty.and_then(arithmetic_kind);
        let (Some(relation), Some(ty), Some(kind), [to, a, b, rest @ ..]) =
            (relation, ty, kind, instruction.operands.as_slice())
        else {
            return self.unknown(instruction);
        };
        let (to, opposite) = match to {
            Operand::Pair(first, second) => (self.write(first), self.write(second)),
            to => (self.write(to), NONE),
        };
        let logic = mnemonic.modifiers().find_map(|modifier| match modifier {
            "and" => Some(Logic::And),
            "or" => Some(Logic::Or),
            "xor" => Some(Logic::Xor),
            _ => None,
        });
        let combine = match (logic, rest.first()) {
            (Some(logic), Some(operand)) => Some((logic, self.predicate(operand))),
            _ => None,
        };
        let truth = match (mnemonic.opcode(), mnemonic.types().next()) {
            ("set", Some(ScalarType::F32)) => 1f32.to_bits().into(),
            ("set", _) => u64::from(u32::MAX),
            _ => 1,
        };
        let (a, b) = (self.read(a, ty), self.read(b, ty));
        let comparison = Comparison { relation, kind, to, opposite, a, b, combine, truth };
        self.emit(instruction, Action::Compare(comparison));
    }

    fn predicate(&mut self, operand: &Operand) -> Guard {
        let negated = matches!(operand, Operand::Not(_));
        Guard { register: self.read(operand, ScalarType::Pred), negated }
    }

    fn shuffle(&mut self, instruction: &'a Instruction) {
        let mode = instruction.mnemonic.modifiers().find_map(|modifier| match modifier {
            "up" => Some(Shuffle::Up),
            "down" => Some(Shuffle::Down),
            "bfly" => Some(Shuffle::Butterfly),
            "idx" => Some(Shuffle::Index),
            _ => None,
        });
        let (Some(mode), [to, value, lane, clamp, ..]) = (mode, instruction.operands.as_slice()) else {
            return self.unknown(instruction);
        };
        let (to, valid) = match to {
            Operand::Pair(first, second) => (self.write(first), self.write(second)),
            to => (self.write(to), NONE),
        };
        let [value, lane, clamp] = [value, lane, clamp].map(|operand| self.read(operand, ScalarType::B32));
        self.emit(instruction, Action::Shuffle { mode, to, valid, value, lane, clamp });
    }

    fn vote(&mut self, instruction: &'a Instruction) {
        let mnemonic = &instruction.mnemonic;
        let vote = match mnemonic.opcode() {
            "activemask" => Some(Vote::Active),
            _ => mnemonic.modifiers().find_map(|modifier| match modifier {
                "all" => Some(Vote::All),
                "any" => Some(Vote::Any),
                "uni" => Some(Vote::Uniform),
                "ballot" => Some(Vote::Ballot),
                _ => None,
            }),
        };
        match (vote, instruction.operands.as_slice()) {
            (Some(Vote::Active), [to, ..]) => {
                let to = self.write(to);
                let action = Action::Vote { vote: Vote::Active, to, from: NONE, negated: false };
                self.emit(instruction, action);
            }
            (Some(vote), [to, from, ..]) => {
                let (to, from) = (self.write(to), self.predicate(from));
                let action = Action::Vote { vote, to, from: from.register, negated: from.negated };
                self.emit(instruction, action);
            }
            _ => self.unknown(instruction),
        }
    }

    fn load_parameter(&mut self, instruction: &'a Instruction) {
        let ty = instruction.mnemonic.types().next_back().unwrap_or(ScalarType::B32);
        let [to, Operand::Address(address)] = instruction.operands.as_slice() else {
            return self.unknown(instruction);
        };
        let parts = match to {
            Operand::Vector(parts) => parts.as_slice(),
            _ => std::slice::from_ref(to),
        };
        self.emit(instruction, Action::Nothing);
        for (index, part) in (0i64..).zip(parts) {
            let to = self.write(part);
            let offset = address.offset.wrapping_add(index * ty.bytes() as i64);
            let from = match &address.base {
                AddressBase::Name(name) => self.parameter(name, offset, ty.bytes()),
                _ => None,
            };
            let action = match from {
                Some(from) => movement(to, from, ty),
                None => {
                    let base = self.base(address);
                    Action::Unknown { to, from: [base, NONE, NONE, NONE], kind: loaded_kind(ty) }
                }
            };
            self.emit_part(instruction, action);
        }
    }

    fn store_parameter(&mut self, instruction: &'a Instruction) {
        let ty = instruction.mnemonic.types().next_back().unwrap_or(ScalarType::B32);
        self.emit(instruction, Action::Nothing);
        let [Operand::Address(address), from] = instruction.operands.as_slice() else { return };
        let parts = match from {
            Operand::Vector(parts) => parts.as_slice(),
            _ => std::slice::from_ref(from),
        };
        for (index, part) in (0i64..).zip(parts) {
            let offset = address.offset.wrapping_add(index * ty.bytes() as i64);
            let AddressBase::Name(name) = &address.base else { continue };
            let Some(to) = self.parameter(name, offset, ty.bytes()) else { continue };
            let from = self.read(part, ty);
            self.emit_part(instruction, movement(to, from, ty));
        }
    }

    /// The register of an address, without its offset.
    fn base(&mut self, address: &Address) -> Register {
        match &address.base {
            AddressBase::Name(name) => self.read_name(name),
            AddressBase::Component(name, selector) => self.component(name, selector),
            AddressBase::Absolute => self.constant(0),
        }
    }

    fn access(&mut self, instruction: &'a Instruction, kind: AccessKind) {
        let mnemonic = &instruction.mnemonic;
        let address = instruction.operands.iter().find_map(|operand| match operand {
            Operand::Address(address) => Some(address),
            _ => None,
        });
        let Some(address) = address else { return self.unknown(instruction) };
        let ty = mnemonic.types().next_back().unwrap_or(ScalarType::B32);
        let to = match instruction.operands.first() {
            Some(operand) => self.results(operand),
            None => Vec::new(),
        };
        let vectors = instruction.operands.iter().filter_map(|operand| match operand {
            Operand::Vector(parts) => Some(parts.len()),
            _ => None,
        });
        let parts = vectors.max().unwrap_or(1) as u32;
        let matrix = matches!(mnemonic.opcode(), "ldmatrix" | "stmatrix");
        // Eight lanes have the addresses of a matrix's rows, of 16 bytes each.
        let (bytes, lanes) = if matrix { (16, 8 * parts.min(4)) } else { (ty.bytes() as u32 * parts, 32) };
        let access = Access {
            space: space_of(instruction),
            kind,
            address: self.base(address),
            offset: address.offset,
            bytes: bytes.clamp(1, 128),
            lanes,
            to: to.into_iter().map(|(register, _)| register).collect(),
            element: loaded_kind(ty),
        };
        self.emit(instruction, Action::Access(access));
    }

    /// `cp.async`: a load from global and a store to shared memory.
    fn copy_asynchronously(&mut self, instruction: &'a Instruction) {
        let [Operand::Address(to), Operand::Address(from), Operand::Constant(Constant::Integer(bytes)), ..] =
            instruction.operands.as_slice()
        else {
            return self.emit(instruction, Action::Nothing);
        };
        if instruction.mnemonic.has("bulk") {
            return self.emit(instruction, Action::Nothing);
        }
        let bytes = u32::try_from(*bytes).unwrap_or(1).clamp(1, 128);
        let part = |space, kind, address, offset| {
            let element = bits_of(ScalarType::B32);
            Action::Access(Access { space, kind, address, offset, bytes, lanes: 32, to: Vec::new(), element })
        };
        let (source, target) = (self.base(from), self.base(to));
        self.emit(instruction, part(Space::Global, AccessKind::Load, source, from.offset));
        self.emit_part(instruction, part(Space::Shared, AccessKind::Store, target, to.offset));
    }

    /// `wmma.load` and `wmma.store`: all lanes name one address, from which rows lie `stride` elements apart.
    fn fragment(&mut self, instruction: &'a Instruction) {
        let mnemonic = &instruction.mnemonic;
        let address = instruction.operands.iter().find_map(|operand| match operand {
            Operand::Address(address) => Some(address),
            _ => None,
        });
        let Some(address) = address else { return self.unknown(instruction) };
        let element = mnemonic.types().next_back().map_or(4, |ty| ty.bytes().max(1)) as u32;
        let stride = match instruction.operands.last() {
            Some(operand @ (Operand::Name(_) | Operand::Constant(_))) => self.read(operand, ScalarType::U32),
            _ => self.constant(16),
        };
        let store = mnemonic.has("store");
        let address = self.base(address);
        let space = space_of(instruction);
        self.emit(instruction, Action::Fragment { space, store, rows: 16, element, address, stride });
    }
}

/// The memory that an instruction names.
pub(super) fn space_of(instruction: &Instruction) -> Space {
    match space(instruction) {
        Some(StateSpace::Global) => Space::Global,
        Some(StateSpace::Shared) => Space::Shared,
        Some(StateSpace::Local) => Space::Local,
        Some(StateSpace::Const | StateSpace::Param) => Space::Constant,
        _ => Space::Generic,
    }
}

fn space(instruction: &Instruction) -> Option<StateSpace> {
    Operation::of(&instruction.mnemonic).space
}

fn rounding(mnemonic: &Mnemonic, to: Kind) -> Rounding {
    let named = mnemonic.modifiers().find_map(|modifier| match modifier {
        "rni" => Some(Rounding::Nearest),
        "rzi" => Some(Rounding::Zero),
        "rmi" => Some(Rounding::Down),
        "rpi" => Some(Rounding::Up),
        _ => None,
    });
    named.unwrap_or(match to {
        Kind::Integer { .. } => Rounding::Zero,
        _ => Rounding::None,
    })
}

fn relation(modifier: &str) -> Option<Relation> {
    Some(match modifier {
        "eq" => Relation::Equal,
        "ne" => Relation::NotEqual,
        "lt" | "lo" => Relation::Less,
        "le" | "ls" => Relation::LessEqual,
        "gt" | "hi" => Relation::Greater,
        "ge" | "hs" => Relation::GreaterEqual,
        "num" => Relation::Number,
        "nan" => Relation::Nan,
        "equ" => Relation::UnorderedEqual,
        "neu" => Relation::UnorderedNotEqual,
        "ltu" => Relation::UnorderedLess,
        "leu" => Relation::UnorderedLessEqual,
        "gtu" => Relation::UnorderedGreater,
        "geu" => Relation::UnorderedGreaterEqual,
        _ => return None,
    })
}

/// How an instruction on this type is computed, if it is.
fn form(instruction: &Instruction, ty: ScalarType) -> Option<Form> {
    let mnemonic = &instruction.mnemonic;
    let opcode = mnemonic.opcode();
    if opcode == "selp" {
        return Some(Form { op: Op::Select, from: bits_of(ty), to: bits_of(ty) });
    }
    let kind = arithmetic_kind(ty)?;
    let real = matches!(kind, Kind::Single | Kind::Double);
    let operands = instruction.operands.len() - 1;
    let (wide, high) = (mnemonic.has("wide"), mnemonic.has("hi"));
    let op = match opcode {
        "add" => Op::Add,
        "sub" => Op::Subtract,
        "mul" if high => Op::MultiplyHigh,
        "mul" => Op::Multiply,
        "mad" | "fma" if high => Op::MultiplyAddHigh,
        "mad" | "fma" => Op::MultiplyAdd,
        "div" => Op::Divide,
        "rem" => Op::Remainder,
        "min" if operands == 2 => Op::Minimum,
        "max" if operands == 2 => Op::Maximum,
        "abs" => Op::Absolute,
        "neg" => Op::Negate,
        "sqrt" if real => Op::SquareRoot,
        "rcp" if real => Op::Reciprocal,
        "cvta" => Op::Move,
        _ if real => return None,
        "and" => Op::And,
        "or" => Op::Or,
        "xor" => Op::Xor,
        "not" => Op::Not,
        "shl" => Op::ShiftLeft,
        "shr" => Op::ShiftRight,
        "lop3" if operands == 4 => Op::Table(match instruction.operands.last() {
            Some(Operand::Constant(Constant::Integer(table))) => *table as u8,
            _ => return None,
        }),
        "shf" => Op::Funnel { left: mnemonic.has("l"), wrap: mnemonic.has("wrap") },
        "bfe" => Op::ExtractBits,
        "bfi" => Op::InsertBits,
        "prmt" if mnemonic.modifiers().count() == 1 => Op::Permute,
        "popc" => Op::CountOnes,
        "clz" => Op::CountLeadingZeros,
        "brev" => Op::ReverseBits,
        _ => return None,
    };
    let to = match (kind, opcode) {
        (_, "popc" | "clz") => Kind::Integer { bits: 32, signed: false },
        (Kind::Integer { bits, signed }, _) if wide => Kind::Integer { bits: (2 * bits).min(64), signed },
        _ => kind,
    };
    Some(Form { op, from: kind, to })
}
