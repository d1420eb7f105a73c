//! Operands: registers, numbers and addresses as the registers that steps name, of the width that
//! the instruction wants.

use ptx::body::{Indexed, Operand, RegisterId, SpecialRegister, Symbol, component};
use ptx::{Constant, ScalarType};

use crate::arithmetic::soft;
use crate::code::{ClusterInput, Input, Op};
use crate::compile::frame::SymbolPlace;
use crate::compile::function::{Decoded, FunctionCompiler, Refusal, invalid, unsupported};
use crate::compile::special::{Special, special};
use crate::operands::{Args, Class, Reg};
use crate::program::function_address;
use crate::registers::shapes::{binary, compare, logic, ternary, unary};

/// The components of a vector.
const COMPONENTS: [&str; 4] = ["x", "y", "z", "w"];

/// A destination register, and the wider one that the PTX means.
#[must_use]
pub(super) struct Destination {
    pub(super) reg: Reg,
    widen: Option<(Reg, ScalarType)>,
}

/// The class of register that holds a type.
pub(super) fn class_of(ty: ScalarType) -> Decoded<Class> {
    match ty {
        ScalarType::Pred => Ok(Class::Predicate),
        _ => match ty.bytes() {
            1..=4 => Ok(Class::Word),
            8 => Ok(Class::Long),
            _ => unsupported(format!("{ty} registers are not supported")),
        },
    }
}

/// The first components of `operand`, which is the name of a vector.
pub(super) fn components<'m>(symbol: Symbol<'m>, count: usize) -> Vec<Operand<'m>> {
    COMPONENTS.iter().take(count).map(|selector| Operand::Component(symbol, selector)).collect()
}

/// Whether a name stands for a register, special ones included.
pub(super) fn is_register(symbol: Symbol) -> bool {
    matches!(symbol, Symbol::Register(_) | Symbol::Vector(_) | Symbol::Special(_))
}

impl FunctionCompiler<'_> {
    /// The components of `operand` where it is a vector register: `v` means `{v.x, v.y}`.
    pub(super) fn components<'m>(&self, operand: &Operand<'m>) -> Option<Vec<Operand<'m>>> {
        let Operand::Name(symbol @ Symbol::Vector(first)) = *operand else { return None };
        let declaration = self.body.registers[first.index()].declaration?;
        Some(components(symbol, declaration.vector.into()))
    }

    /// The register that `symbol` (or a component of it) is, if it is one, with its declared type.
    pub(super) fn register(
        &mut self,
        symbol: Symbol,
        selector: Option<&str>,
    ) -> Decoded<Option<(Reg, ScalarType)>> {
        let (Symbol::Register(first) | Symbol::Vector(first)) = symbol else { return Ok(None) };
        let ty = self.declared(first)?.ty;
        let id = match (symbol, selector) {
            (Symbol::Register(id), None) => id,
            (Symbol::Vector(_), None) => {
                let name = self.body.name(symbol);
                return invalid(format!("vector register `{name}` needs a component such as `.x`"));
            }
            (_, Some(selector)) => {
                let place = component(selector).filter(|_| symbol.register().is_none());
                match place.filter(|place| *place < self.body.registers[first.index()].width()) {
                    Some(place) => RegisterId(first.0 + u32::from(place)),
                    None => {
                        let name = self.body.name(symbol);
                        return invalid(format!("register `{name}` has no component `.{selector}`"));
                    }
                }
            }
            (_, None) => return Ok(None),
        };
        let class = class_of(ty)?;
        Ok(Some((self.place_of(id, class), ty)))
    }

    /// The declaration of a register.
    fn declared(&self, id: RegisterId) -> Decoded<&ptx::Variable> {
        let declaration = self.body.registers[id.index()].declaration;
        declaration.ok_or_else(|| {
            let name = self.body.name(Symbol::Register(id));
            Refusal::Invalid(format!("unknown name `{name}`: declare it before it is used"))
        })
    }

    /// The virtual register of a register of the PTX: the first of two for a `.b128`.
    fn place_of(&mut self, id: RegisterId, class: Class) -> Reg {
        let known = self.registers[id.index()];
        if known.is_some() {
            return known;
        }
        let reg = self.fresh(class);
        self.registers[id.index()] = reg;
        reg
    }

    /// The halves of a `.b128` register, which is two longs here, or of a constant, whose upper
    /// half is 0.
    pub(super) fn wide(&mut self, operand: &Operand) -> Decoded<[Reg; 2]> {
        let id = match operand {
            Operand::Sink => return Ok([self.fresh(Class::Long), self.fresh(Class::Long)]),
            Operand::Constant(Constant::Integer(value)) => {
                return Ok([*value as u64, 0].map(|half| self.constant(Class::Long, half)));
            }
            Operand::Name(Symbol::Register(id)) if self.declared(*id)?.ty == ScalarType::B128 => *id,
            _ => return invalid(format!("`{}` is not a .b128 register", self.show(operand))),
        };
        let known = self.registers[id.index()].is_some();
        let low = self.place_of(id, Class::Long);
        let high = if known { Reg(low.0 + 1) } else { self.fresh(Class::Long) };
        Ok([low, high])
    }

    /// A predicate register.
    pub(super) fn predicate(&mut self, symbol: Symbol) -> Decoded<Reg> {
        match self.register(symbol, None)? {
            Some((reg, ScalarType::Pred)) => Ok(reg),
            _ => invalid(format!("`{}` is not a predicate", self.body.name(symbol))),
        }
    }

    /// The register that an operand names, if it names one and no special one, with its declared
    /// type.
    pub(super) fn named(&mut self, operand: &Operand) -> Decoded<Option<(Reg, ScalarType)>> {
        match operand {
            Operand::Name(symbol) => self.register(*symbol, None),
            Operand::Component(symbol, selector) => self.register(*symbol, Some(selector)),
            _ => Ok(None),
        }
    }

    /// A register to write `operand` to, of the class of `ty`; the second part tells how the value
    /// must be put into the register that the PTX names, where that is wider.
    pub(super) fn destination(&mut self, operand: &Operand, ty: ScalarType) -> Decoded<Destination> {
        let class = class_of(ty)?;
        if *operand == Operand::Sink {
            return Ok(Destination { reg: self.fresh(class), widen: None });
        }
        let Some((reg, declared)) = self.named(operand)? else {
            return invalid(format!("`{}` is not a register", self.show(operand)));
        };
        if class_of(declared)? == class && declared.bytes() >= ty.bytes() {
            return Ok(Destination { reg, widen: None });
        }
        if class == Class::Word && self.class(reg) == Class::Long {
            return Ok(Destination { reg: self.fresh(class), widen: Some((reg, ty)) });
        }
        invalid(format!("register `{}` of type {declared} cannot hold a {ty}", self.show(operand)))
    }

    /// Completes what [`destination`](Self::destination) began, after the step that writes it.
    pub(super) fn widen(&mut self, destination: Destination) {
        let Some((wide, ty)) = destination.widen else { return };
        let run = if ty.is_signed() { unary(|a: i32| i64::from(a)) } else { unary(|a: u32| u64::from(a)) };
        self.lanes(run, Args { d: wide, a: destination.reg, ..Args::EMPTY });
    }

    /// A register with the value of `operand`, read as `ty`.
    pub(super) fn source(&mut self, operand: &Operand, ty: ScalarType) -> Decoded<Reg> {
        let class = class_of(ty)?;
        if class == Class::Predicate {
            return self.predicate_source(operand);
        }
        let found = match *operand {
            Operand::Constant(constant) => Some(self.constant(class, constant_bits(constant, ty))),
            Operand::Name(symbol) => self.value(symbol, None, class)?,
            Operand::Component(symbol, selector) => self.value(symbol, Some(selector), class)?,
            Operand::Offset(symbol, offset) if is_register(symbol) => {
                let base = self.source(&Operand::Name(symbol), ty)?;
                Some(self.sum(base, offset, ty)?)
            }
            Operand::Offset(symbol, offset) | Operand::Element(symbol, offset) => {
                Some(self.symbol_address(symbol, offset, class)?)
            }
            Operand::Indexed(element) => Some(self.element_address(element, class)?),
            Operand::Negated(symbol) => {
                let reg = self.source(&Operand::Name(symbol), ty)?;
                Some(self.negated(reg, ty)?)
            }
            _ => None,
        };
        let Some(reg) = found else { return invalid(format!("`{}` is not a value", self.show(operand))) };
        match (self.class(reg), class) {
            (have, want) if have == want => Ok(reg),
            (Class::Long, Class::Word) => {
                let low = self.fresh(Class::Word);
                self.lanes(unary(|a: u64| a as u32), Args { d: low, a: reg, ..Args::EMPTY });
                Ok(low)
            }
            _ => invalid(format!("`{}` is too narrow for {ty}", self.show(operand))),
        }
    }

    fn negated(&mut self, reg: Reg, ty: ScalarType) -> Decoded<Reg> {
        let (class, run) = match ty {
            ScalarType::F32 => (Class::Word, binary(|a: u32, b: u32| a ^ b)),
            _ => return unsupported("negated operands are supported for .f32 only"),
        };
        let (sign, result) = (self.constant(class, 0x8000_0000), self.fresh(class));
        self.lanes(run, Args { d: result, a: reg, b: sign, ..Args::EMPTY });
        Ok(result)
    }

    fn predicate_source(&mut self, operand: &Operand) -> Decoded<Reg> {
        match *operand {
            Operand::Name(Symbol::Special(SpecialRegister::IsExplicitCluster)) => {
                let given = self.input(Class::Word, Input::Cluster(ClusterInput::IsGiven));
                let (b, d) = (self.constant(Class::Word, 0), self.fresh(Class::Predicate));
                self.lanes(compare(|a: u32, b: u32| a != b), Args { d, a: given, b, ..Args::EMPTY });
                Ok(d)
            }
            Operand::Name(symbol) => self.predicate(symbol),
            Operand::Not(symbol) => {
                let (a, d) = (self.predicate(symbol)?, self.fresh(Class::Predicate));
                self.lanes(logic(|a, _, _| !a), Args { d, a, ..Args::EMPTY });
                Ok(d)
            }
            Operand::Constant(Constant::Integer(value)) => {
                Ok(self.constant(Class::Predicate, if value != 0 { u64::MAX } else { 0 }))
            }
            _ => invalid(format!("`{}` is not a predicate", self.show(operand))),
        }
    }

    /// The value of a register or special register (or of a component of it), or the address of a
    /// symbol.
    fn value(&mut self, symbol: Symbol, selector: Option<&str>, class: Class) -> Decoded<Option<Reg>> {
        if let Some((reg, _)) = self.register(symbol, selector)? {
            return Ok(Some(self.bound.get(&reg).copied().unwrap_or(reg)));
        }
        let Symbol::Special(register) = symbol else {
            return match selector {
                None => self.symbol_address(symbol, 0, class).map(Some),
                Some(_) => Ok(None),
            };
        };
        let place = selector.map(component);
        let found = if place == Some(None) { None } else { special(register, place.flatten()) };
        match found {
            Some(Special::Input(input)) => Ok(Some(self.input(class, input))),
            Some(Special::Clock(clock)) => {
                let reg = self.fresh(class);
                self.push(Op::Clock { d: reg, class, clock });
                Ok(Some(reg))
            }
            None => Ok(None),
        }
    }

    /// A register with the address of `symbol + offset`, in the symbol's own space.
    pub(super) fn symbol_address(&mut self, symbol: Symbol, offset: i64, class: Class) -> Decoded<Reg> {
        let (input, offset) = match self.symbol_place(symbol)? {
            SymbolPlace::Frame(start) => (Input::Frame(start.wrapping_add(offset as u32)), 0),
            SymbolPlace::Param(start) => (Input::ParamAddress(start.wrapping_add(offset as u32)), 0),
            SymbolPlace::Function(index) => {
                (Input::Constant(function_address(index).wrapping_add(offset as u64)), 0)
            }
            SymbolPlace::Shared(index) => {
                self.note_shared(index);
                (Input::SharedVariable(index), offset)
            }
            SymbolPlace::Global(index) => (Input::Global(index), offset),
        };
        let base = self.input(class, input);
        if offset == 0 {
            return Ok(base);
        }
        self.sum(base, offset, if class == Class::Long { ScalarType::U64 } else { ScalarType::U32 })
    }

    /// A register with the address of an element, in the array's own space.
    pub(super) fn element_address(&mut self, element: Indexed, class: Class) -> Decoded<Reg> {
        let array = self.symbol_address(element.array, 0, class)?;
        let offset = self.element_offset(element)?;
        let address = self.fresh(class);
        let run = match class {
            Class::Long => binary(|array: u64, offset: u32| array.wrapping_add(offset.into())),
            _ => binary(|array: u32, offset: u32| array.wrapping_add(offset)),
        };
        self.lanes(run, Args { d: address, a: array, b: offset, ..Args::EMPTY });
        Ok(address)
    }

    /// A register with the bytes before an element of an array.
    fn element_offset(&mut self, element: Indexed) -> Decoded<Reg> {
        let index = Operand::Name(element.index);
        let declared = self.named(&index)?.map(|(_, ty)| ty);
        let index = self.source(&index, declared.unwrap_or(ScalarType::U32))?;
        let (scale, offset) = (self.constant(Class::Word, element.size.into()), self.fresh(Class::Word));
        let plus = self.constant(Class::Word, element.plus.wrapping_mul(element.size).into());
        // Extended to 32 bits or cut to them.
        let run = match declared.map_or((4, false), |ty| (ty.bytes(), ty.is_signed())) {
            (1, true) => ternary(|a: i8, b: u32, c: u32| (a as u32).wrapping_mul(b).wrapping_add(c)),
            (1, false) => ternary(|a: u8, b: u32, c: u32| u32::from(a).wrapping_mul(b).wrapping_add(c)),
            (2, true) => ternary(|a: i16, b: u32, c: u32| (a as u32).wrapping_mul(b).wrapping_add(c)),
            (2, false) => ternary(|a: u16, b: u32, c: u32| u32::from(a).wrapping_mul(b).wrapping_add(c)),
            (8, _) => ternary(|a: u64, b: u32, c: u32| (a as u32).wrapping_mul(b).wrapping_add(c)),
            _ => ternary(|a: u32, b: u32, c: u32| a.wrapping_mul(b).wrapping_add(c)),
        };
        self.lanes(run, Args { d: offset, a: index, b: scale, c: plus, ..Args::EMPTY });
        Ok(offset)
    }

    /// A register with `base + offset`, of the width of `ty`.
    fn sum(&mut self, base: Reg, offset: i64, ty: ScalarType) -> Decoded<Reg> {
        let run = match ty.bytes() {
            _ if ty.is_float() => {
                return invalid(format!("a number cannot be added to an operand of type {ty}"));
            }
            8 => binary(|a: u64, b: u64| a.wrapping_add(b)),
            2 => binary(|a: u16, b: u16| a.wrapping_add(b)),
            _ => binary(|a: u32, b: u32| a.wrapping_add(b)),
        };
        let class = class_of(ty)?;
        let (d, b) = (self.fresh(class), self.constant(class, offset as u64));
        self.lanes(run, Args { d, a: base, b, ..Args::EMPTY });
        Ok(d)
    }

    /// An operand as messages name it.
    pub(super) fn show(&self, operand: &Operand) -> String {
        let name = |symbol: &Symbol| self.body.name(*symbol).into_owned();
        match operand {
            Operand::Name(symbol) | Operand::Element(symbol, _) | Operand::Offset(symbol, _) => name(symbol),
            Operand::Indexed(element) => name(&element.array),
            Operand::Not(symbol) => format!("!{}", name(symbol)),
            Operand::Negated(symbol) => format!("-{}", name(symbol)),
            Operand::Component(symbol, selector) => format!("{}.{selector}", name(symbol)),
            Operand::Constant(Constant::Integer(value)) => value.to_string(),
            Operand::Constant(Constant::Single(bits)) => format!("0f{bits:08X}"),
            Operand::Constant(Constant::Double(bits)) => format!("0d{bits:016X}"),
            Operand::Sink => "_".to_owned(),
            Operand::Pair(..) => "d|p".to_owned(),
            Operand::Vector(_) => "{…}".to_owned(),
            Operand::List(_) => "(…)".to_owned(),
            Operand::Address(_) => "[…]".to_owned(),
        }
    }
}

/// The bits of a constant as a value of type `ty`, as ptxas takes it: `0f…` stands for its bits
/// wherever it is, `0d…` and decimal fractions are rounded to 32 bits, and what is narrower takes
/// the lowest bits.
pub(super) fn constant_bits(constant: Constant, ty: ScalarType) -> u64 {
    let half = match ty {
        ScalarType::F16 => Some(soft::F16),
        ScalarType::Bf16 => Some(soft::BF16),
        _ => None,
    };
    let rounded = |bits, format| soft::convert(bits, soft::F64, format, soft::Rounding::NearestEven);
    let bits = match (constant, half) {
        (Constant::Integer(value), _) => value as u64,
        // ptxas takes no numbers here.
        (Constant::Single(bits), Some(format)) => rounded(f64::from(f32::from_bits(bits)).to_bits(), format),
        (Constant::Double(bits), Some(format)) => rounded(bits, format),
        (Constant::Single(bits), None) => bits.into(),
        // The upper bits of a NaN's payload are kept.
        (Constant::Double(bits), None) if ty.bytes() == 4 && f64::from_bits(bits).is_nan() => {
            bits >> 32 & 0x8000_0000 | 0x7fc0_0000 | bits >> 29 & 0x003f_ffff
        }
        (Constant::Double(bits), None) if ty.bytes() == 4 => rounded(bits, soft::F32),
        (Constant::Double(bits), None) => bits,
    };
    match ty.bytes() {
        1 => bits & 0xff,
        2 => bits & 0xffff,
        4 => bits & 0xffff_ffff,
        _ => bits,
    }
}
