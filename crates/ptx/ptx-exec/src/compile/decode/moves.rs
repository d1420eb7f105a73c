//! `mov` in all its forms, and instructions that need no execution.
//!
//! If a register is written once, with a constant, a special register, an address or a kernel
//! parameter, it *is* that input: [`FunctionCompiler::bind_inputs`] finds such registers before
//! anything is decoded. (If a read can come before the write, the ISA leaves the value undefined.)

use ptx::body::{Line, Operand, Symbol};
use ptx::instruction::{Opcode, Operation};
use ptx::{ScalarType, StateSpace};
use ptx_lower::{Meaning, Memory, Op};

use crate::code::Input;
use crate::compile::decode::Undecoded;
use crate::compile::decode::{address, control, load_store};
use crate::compile::function::{Decoded, FunctionCompiler, invalid, unsupported};
use crate::compile::operand::{class_of, constant_bits};
use crate::compile::special::is_clock;
use crate::native::Lowered;
use crate::operands::{Args, Class, Reg};
use crate::registers::shapes::{binary, logic, quaternary, split};

/// Decodes `mov` and its like. `None` if the opcode is another.
pub(crate) fn decode(
    compiler: &mut FunctionCompiler,
    line: &Line,
    form: &mut Undecoded,
) -> Option<Decoded<()>> {
    Some(match form.opcode? {
        Opcode::Mov => mov(compiler, line, form),
        _ => return None,
    })
}

fn mov(compiler: &mut FunctionCompiler, line: &Line, form: &mut Undecoded) -> Decoded<()> {
    let length = form.vector.take().unwrap_or(1).into();
    let Some(ty) = form.take_type() else { return invalid("`mov` needs a type") };
    let [destination, source] = line.operands.as_slice() else {
        return invalid("`mov` takes a destination and a source");
    };
    if length != 1 {
        return mov_vector(compiler, destination, source, ty, length);
    }
    let [destination, source] = &[destination, source].map(|operand| {
        let components = compiler.components(operand);
        components.map_or_else(|| operand.clone(), Operand::Vector)
    });
    match (destination, source) {
        _ if ty == ScalarType::B128 => mov_wide(compiler, destination, source),
        (Operand::Vector(parts), source) => unpack(compiler, parts, source, ty),
        (destination, Operand::Vector(parts)) => pack(compiler, destination, parts, ty),
        _ if ty == ScalarType::Pred => {
            let destination = compiler.destination(destination, ty)?;
            let (run, a, op) = match source {
                Operand::Not(name) => (logic(|a, _, _| !a), compiler.predicate(*name)?, Op::Not),
                other => (logic(|a, _, _| a), compiler.source(other, ty)?, Op::Move),
            };
            compiler.means(Lowered::Computes(Meaning::plain(op, ty)));
            compiler.lanes(run, Args { d: destination.reg, a, ..Args::EMPTY });
            Ok(())
        }
        _ => {
            let source = compiler.source(source, ty)?;
            let destination = compiler.destination(destination, ty)?;
            control::copy(compiler, destination.reg, source);
            compiler.widen(destination);
            Ok(())
        }
    }
}

/// `mov.v2`, `mov.v4`: element by element. All are read before any is written, for they may change
/// places.
fn mov_vector(
    compiler: &mut FunctionCompiler,
    destination: &Operand,
    source: &Operand,
    ty: ScalarType,
    length: usize,
) -> Decoded<()> {
    let mut values = Vec::new();
    for element in load_store::elements(source, length)? {
        let element = compiler.source(&element, ty)?;
        let value = compiler.fresh(class_of(ty)?);
        control::copy(compiler, value, element);
        values.push(value);
    }
    for (element, value) in load_store::elements(destination, length)?.iter().zip(values) {
        let destination = compiler.destination(element, ty)?;
        control::copy(compiler, destination.reg, value);
        compiler.widen(destination);
    }
    Ok(())
}

/// `mov.b128`: between wide registers, from parts or into them.
fn mov_wide(compiler: &mut FunctionCompiler, destination: &Operand, source: &Operand) -> Decoded<()> {
    match (destination, source) {
        (Operand::Vector(parts), source) => {
            let [low, high] = compiler.wide(source)?;
            match parts.as_slice() {
                [first, second] => {
                    for (part, half) in [(first, low), (second, high)] {
                        let part = compiler.destination(part, ScalarType::B64)?;
                        control::copy(compiler, part.reg, half);
                        compiler.widen(part);
                    }
                }
                [_, _, _, _] => {
                    for (pair, half) in parts.chunks(2).zip([low, high]) {
                        let first = compiler.destination(&pair[0], ScalarType::B32)?;
                        let second = compiler.destination(&pair[1], ScalarType::B32)?;
                        let run = split(|a: u64| (a as u32, (a >> 32) as u32));
                        compiler.lanes(run, Args { d: first.reg, e: second.reg, a: half, ..Args::EMPTY });
                        compiler.widen(first);
                        compiler.widen(second);
                    }
                }
                _ => return invalid("a .b128 has two or four parts"),
            }
            Ok(())
        }
        (destination, Operand::Vector(parts)) => {
            let halves = match parts.as_slice() {
                [low, high] => {
                    [compiler.source(low, ScalarType::B64)?, compiler.source(high, ScalarType::B64)?]
                }
                [a, b, c, d] => [pack_words(compiler, a, b)?, pack_words(compiler, c, d)?],
                _ => return invalid("a .b128 has two or four parts"),
            };
            copy_wide(compiler, destination, halves)
        }
        (destination, source) => {
            let halves = compiler.wide(source)?;
            copy_wide(compiler, destination, halves)
        }
    }
}

fn copy_wide(compiler: &mut FunctionCompiler, destination: &Operand, halves: [Reg; 2]) -> Decoded<()> {
    let registers = compiler.wide(destination)?;
    registers.into_iter().zip(halves).for_each(|(register, half)| control::copy(compiler, register, half));
    Ok(())
}

/// A long made of two words.
fn pack_words(compiler: &mut FunctionCompiler, low: &Operand, high: &Operand) -> Decoded<Reg> {
    let (a, b) = (compiler.source(low, ScalarType::B32)?, compiler.source(high, ScalarType::B32)?);
    let d = compiler.fresh(Class::Long);
    let run = binary(|a: u32, b: u32| u64::from(a) | u64::from(b) << 32);
    compiler.lanes(run, Args { d, a, b, ..Args::EMPTY });
    Ok(d)
}

/// The type of each of `count` registers that together hold a `ty`.
fn part_type(ty: ScalarType, count: usize) -> Decoded<ScalarType> {
    match (ty.bytes() as usize, count) {
        (2, 2) => Ok(ScalarType::B8),
        (4, 4) => Ok(ScalarType::B8),
        (4, 2) | (8, 4) => Ok(ScalarType::B16),
        (8, 2) => Ok(ScalarType::B32),
        _ => unsupported(format!("`mov` between {ty} and {count} registers is not supported")),
    }
}

fn unpack(
    compiler: &mut FunctionCompiler,
    parts: &[Operand],
    source: &Operand,
    ty: ScalarType,
) -> Decoded<()> {
    let part = part_type(ty, parts.len())?;
    let source = compiler.source(source, ty)?;
    let mut registers = Vec::new();
    for operand in parts {
        registers.push(compiler.destination(operand, part)?);
    }
    // The source may be among the destinations: it is split in two before anything is overwritten.
    if parts.len() == 4 {
        let (low, high) = (compiler.fresh(Class::Word), compiler.fresh(Class::Word));
        let halves = match ty.bytes() {
            8 => split(|a: u64| (a as u32, (a >> 32) as u32)),
            _ => split(|a: u32| (a & 0xffff, a >> 16)),
        };
        compiler.lanes(halves, Args { d: low, e: high, a: source, ..Args::EMPTY });
        let run = match part {
            ScalarType::B16 => split(|a: u32| (a & 0xffff, a >> 16)),
            _ => split(|a: u32| (a & 0xff, a >> 8 & 0xff)),
        };
        for (half, pair) in [low, high].into_iter().zip(registers.chunks(2)) {
            compiler.lanes(run, Args { d: pair[0].reg, e: pair[1].reg, a: half, ..Args::EMPTY });
        }
    } else {
        let run = match ty.bytes() {
            8 => split(|a: u64| (a as u32, (a >> 32) as u32)),
            4 => split(|a: u32| (a & 0xffff, a >> 16)),
            _ => split(|a: u32| (a & 0xff, a >> 8 & 0xff)),
        };
        compiler.lanes(run, Args { d: registers[0].reg, e: registers[1].reg, a: source, ..Args::EMPTY });
    }
    registers.into_iter().for_each(|register| compiler.widen(register));
    Ok(())
}

fn pack(
    compiler: &mut FunctionCompiler,
    destination: &Operand,
    parts: &[Operand],
    ty: ScalarType,
) -> Decoded<()> {
    let part = part_type(ty, parts.len())?;
    let mut sources = [Reg::NONE; 4];
    for (slot, operand) in sources.iter_mut().zip(parts) {
        *slot = compiler.source(operand, part)?;
    }
    let destination = compiler.destination(destination, ty)?;
    let run = match (ty.bytes(), parts.len()) {
        (8, 2) => binary(|a: u32, b: u32| u64::from(a) | u64::from(b) << 32),
        (4, 2) => binary(|a: u16, b: u16| u32::from(a) | u32::from(b) << 16),
        (2, 2) => binary(|a: u8, b: u8| u16::from(a) | u16::from(b) << 8),
        (8, _) => quaternary(|a: u16, b: u16, c: u16, d: u16| {
            u64::from(a) | u64::from(b) << 16 | u64::from(c) << 32 | u64::from(d) << 48
        }),
        _ => quaternary(|a: u8, b: u8, c: u8, d: u8| u32::from_le_bytes([a, b, c, d])),
    };
    let [a, b, c, f] = sources;
    compiler.lanes(run, Args { d: destination.reg, a, b, c, f, ..Args::EMPTY });
    compiler.widen(destination);
    Ok(())
}

impl FunctionCompiler<'_> {
    /// Finds the registers that equal an input throughout.
    pub(crate) fn bind_inputs(&mut self) {
        let writes = self.count_writes();
        for (line, operation) in self.body.lines.iter().zip(self.operations.iter()) {
            if line.guard.is_none()
                && let Some(Operand::Name(symbol @ Symbol::Register(id))) = line.operands.first()
                && writes[id.index()] == 1
                && let Ok(Some((reg, ty))) = self.register(*symbol, None)
                && let Ok(class @ (Class::Word | Class::Long)) = class_of(ty)
                && let Some(input) = self.input_of(line, *operation, ty, class)
            {
                self.bound.insert(reg, input);
            }
        }
    }

    /// Whether the instruction only says what `bind_inputs` has found.
    pub(crate) fn is_bound(&mut self, line: &Line, operation: &Operation) -> bool {
        let (Some(Operand::Name(symbol)), [_]) = operation.split(&line.operands) else { return false };
        matches!(self.register(*symbol, None), Ok(Some((reg, _))) if self.bound.contains_key(&reg))
    }

    /// Counts the writes of each register; parameters and results in registers count once more, for
    /// the caller's writes.
    fn count_writes(&self) -> Vec<u32> {
        let mut writes = vec![0; self.body.registers.len()];
        for (line, operation) in self.body.lines.iter().zip(self.operations.iter()) {
            operation.writes(line, self.body, &mut |id| writes[id.index()] += 1);
        }
        let formals = || self.function.returns.iter().chain(&self.function.params);
        for (register, writes) in self.body.registers.iter().zip(&mut writes) {
            let is_formal =
                formals().any(|formal| register.declaration.is_some_and(|d| std::ptr::eq(d, formal)));
            *writes += u32::from(is_formal);
        }
        writes
    }

    /// The input whose value an instruction puts into a register of type `ty`, if that is all it
    /// does.
    fn input_of(&mut self, line: &Line, mut form: Undecoded, ty: ScalarType, class: Class) -> Option<Reg> {
        let [_, source] = line.operands.as_slice() else { return None };
        match form.opcode? {
            Opcode::Mov => {
                let moved = form.take_type()?;
                (class_of(moved).ok()? == class).then_some(())?;
                self.plain_input(source, moved, class)
            }
            Opcode::Cvta => {
                address::is_identity(self, &mut form).then_some(())?;
                self.plain_input(source, ty, class)
            }
            Opcode::Ld => {
                let Memory { ty: loaded, space, length: 1, is_strong: false, .. } = Memory::of(&mut form)?
                else {
                    return None;
                };
                (self.is_kernel() && space == Some(StateSpace::Param)).then_some(())?;
                if !form.is_spent() || !(1..=8).contains(&loaded.bytes()) {
                    return None;
                }
                let offset = load_store::kernel_param(self, source)?;
                // Of what fills its register the sign means nothing.
                let extends = loaded.bytes() < if class == Class::Long { 8 } else { 4 };
                let (bytes, signed) = (loaded.bytes() as u8, loaded.is_signed() && extends);
                // Beyond the end or misaligned: left to the access, which complains.
                let end = self.param_bytes;
                if u64::from(offset) + loaded.bytes() > end || u64::from(offset) % loaded.bytes() != 0 {
                    return None;
                }
                (class_of(loaded).ok()? == class || class == Class::Long).then_some(())?;
                Some(self.input(class, Input::Param { offset, bytes, signed }))
            }
            _ => None,
        }
    }

    /// The input that an operand is, if it is one.
    fn plain_input(&mut self, operand: &Operand, ty: ScalarType, class: Class) -> Option<Reg> {
        match operand {
            Operand::Constant(constant) => Some(self.constant(class, constant_bits(*constant, ty))),
            Operand::Name(symbol @ Symbol::Register(_)) => {
                let (reg, _) = self.register(*symbol, None).ok()??;
                self.bound.get(&reg).copied().filter(|input| self.class(*input) == class)
            }
            Operand::Name(Symbol::Special(register)) if is_clock(*register) => None,
            Operand::Name(_) | Operand::Component(..) => {
                let reg = self.source(operand, ty).ok()?;
                (self.class(reg) == class && self.is_input(reg)).then_some(reg)
            }
            _ => None,
        }
    }
}
