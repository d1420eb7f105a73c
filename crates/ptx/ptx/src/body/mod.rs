//! The resolved listing of a function: the meaning of its names, resolved once for all users.
//!
//! [`Names`] knows the symbols of a module; [`Names::body`] makes the [`Body`] of a function from
//! its tree. A body is a flat list of [`Line`]s, one for each instruction, in source order, whose
//! operands name registers, variables, labels and functions by number instead of by text. The
//! shapes of operands are those of the [tree](crate::syntax::tree::Operand).
//!
//! # Rules
//!
//! They are those of ptxas 13.5, which `tests/body.rs` asks about each:
//!
//! 1. *Identifiers are stable.* [`InstructionId`] is the place of the instruction in the listing: a
//!    label stands for the instruction that follows it, and for the end of the listing if none
//!    does.
//! 2. *A declaration holds from where it stands* to the end of its braces. Before it, a name stands
//!    for what an outer scope declares. Parameters stand in the outermost braces of the body.
//! 3. *An inner declaration hides an outer one*, whatever the two declare. In one pair of braces no
//!    name is declared twice.
//! 4. *`.reg .b32 %r<20>` declares `%r0` to `%r19`.* A name is split before all of the digits at
//!    its end, and the digits are a decimal number: `%r012` is `%r12`. Nothing can therefore name
//!    what `.reg .b32 %r1<5>` declares: `%r12` is number 12 of `%r`. A name that is declared in
//!    full goes before the members of such a declaration.
//! 5. *A vector register is its components.* It has four consecutive [`RegisterId`]s, for `x`, `y`,
//!    `z` and `w` (or `r`, `g`, `b` and `a`), whether or not its type has as many.
//! 6. *A label is seen in its own braces and in those inside them*, before and after the place
//!    where it stands.
//! 7. *Special registers come after all that the function declares*, and the module's symbols after
//!    them. A module's symbol is known after its first declaration; a function stands for its
//!    definition, an alias for the function it names.
//! 8. *Resolution never fails.* A name that nothing declares is a register without declaration, the
//!    same one wherever the function has that name. [`Body::problems`] lists declarations that
//!    contradict each other; whether an instruction may name what it names is for
//!    [`verify`](mod@crate::verify).
//!
//! The time is linear in the size of the function, times the depth of its scopes.

mod module;
mod resolve;
mod scope;
mod special;

use std::borrow::Cow;

use crate::diagnostic::Diagnostic;
use crate::syntax::tree::{Constant, Function, Instruction, Location, Name, Prototype, Variable};
use crate::syntax::types::ScalarType;
pub use module::{Global, Names};
pub use special::SpecialRegister;

macro_rules! identifiers {
    ($($(#[$doc:meta])* $name:ident),*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
            pub struct $name(pub u32);

            impl $name {
                /// As an index.
                pub fn index(self) -> usize {
                    self.0 as usize
                }
            }
        )*
    };
}

identifiers! {
    /// An instruction: its place in [`Body::lines`].
    InstructionId,
    /// A register: its place in [`Body::registers`].
    RegisterId,
    /// A variable that is not a register: its place in [`Body::variables`].
    VariableId,
    /// A label: its place in [`Body::labels`].
    LabelId,
    /// A `.branchtargets` or `.calltargets`: its place in [`Body::branch_targets`] or
    /// [`Body::call_targets`].
    TableId
}

/// Components that a vector register may have.
pub const COMPONENTS: u32 = 4;

/// The meaning of a name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Symbol<'m> {
    /// A register.
    Register(RegisterId),
    /// A vector register: the first of its [`COMPONENTS`] registers.
    Vector(RegisterId),
    /// A special register.
    Special(SpecialRegister),
    /// A variable in another space.
    Variable(VariableId),
    /// A function: its definition if the module has one, else a declaration.
    Function(&'m Function),
    /// A place in the function.
    Label(LabelId),
    /// A `.branchtargets`.
    BranchTargets(TableId),
    /// A `.calltargets`.
    CallTargets(TableId),
    /// A `.callprototype`.
    Prototype(&'m Prototype),
}

/// An operand whose names are resolved.
#[derive(Clone, Debug, PartialEq)]
pub enum Operand<'m> {
    /// A name, by its meaning.
    Name(Symbol<'m>),
    /// `name.selector`: a component of a vector or of a special register, or bytes or halves of a
    /// register.
    Component(Symbol<'m>, &'m str),
    /// `name + bytes`.
    Offset(Symbol<'m>, i64),
    /// `name[index]`: the variable and the bytes before the element.
    Element(Symbol<'m>, i64),
    /// `name[register + number]`.
    Indexed(Indexed<'m>),
    /// A number.
    Constant(Constant),
    /// `!p`.
    Not(Symbol<'m>),
    /// `-a`.
    Negated(Symbol<'m>),
    /// `_`.
    Sink,
    /// `d|p`.
    Pair(Box<Operand<'m>>, Box<Operand<'m>>),
    /// `{a, b}`.
    Vector(Vec<Operand<'m>>),
    /// `(a, b)`.
    List(Vec<Operand<'m>>),
    /// `[base + bytes, rest…]`.
    Address(Address<'m>),
}

/// `array[register + number]`: an element of an array.
///
/// ptxas computes the element's offset in 32 bits, wraps it, and adds it to the array's address as
/// an unsigned number. The offset counts scalars: a component of a vector is an element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Indexed<'m> {
    /// The array.
    pub array: Symbol<'m>,
    /// The register: narrower ones are extended to 32 bits, of wider ones the lower half counts.
    pub index: Symbol<'m>,
    /// The number.
    pub plus: u32,
    /// Bytes of an element.
    pub size: u32,
}

/// An address in brackets.
#[derive(Clone, Debug, PartialEq)]
pub struct Address<'m> {
    /// The start of the address.
    pub base: Base<'m>,
    /// Added to it, in bytes.
    pub offset: i64,
    /// The operands after commas inside the brackets.
    pub rest: Vec<Operand<'m>>,
}

/// The start of an address.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Base<'m> {
    /// A register or variable.
    Name(Symbol<'m>),
    /// A component of a vector register.
    Component(Symbol<'m>, &'m str),
    /// An element of an array.
    Indexed(Indexed<'m>),
    /// Nothing: the address is the offset.
    Absolute,
}

/// `@p` or `@!p`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Guard<'m> {
    /// The symbol that the guard names: a `.pred` register, in a correct module.
    pub symbol: Symbol<'m>,
    /// `@!p`.
    pub negated: bool,
}

/// An instruction of the listing.
#[derive(Clone, Debug)]
pub struct Line<'m> {
    /// The instruction as it is written.
    pub instruction: &'m Instruction,
    /// Its guard.
    pub guard: Option<Guard<'m>>,
    /// Its operands.
    pub operands: Vec<Operand<'m>>,
    /// The last `.loc` before it that names a line.
    pub location: Option<&'m Location>,
}

/// A register that the function declares or mentions.
#[derive(Clone, Copy, Debug)]
pub struct Register<'m> {
    /// Its declaration; none for a name that nothing declares.
    pub declaration: Option<&'m Variable>,
    /// The name, or what stands before the number of a parameterised declaration.
    pub stem: &'m Name,
    /// Its number in a parameterised declaration.
    pub number: Option<u32>,
    /// The component of a vector register, if it is one.
    pub component: Option<u8>,
}

/// The place where a variable is declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// A result of the function: its place among them.
    Return(u32),
    /// A parameter of the function: its place among them.
    Parameter(u32),
    /// The body.
    Body,
    /// The module.
    Module,
}

/// A variable that the function declares or mentions, registers left out.
#[derive(Clone, Copy, Debug)]
pub struct UsedVariable<'m> {
    /// Its declaration. The members of `name<n>` share one.
    pub declaration: &'m Variable,
    /// The place of the declaration.
    pub home: Home,
}

/// A label.
#[derive(Clone, Copy, Debug)]
pub struct Label<'m> {
    /// Its name.
    pub name: &'m Name,
    /// The instruction that follows it; the number of instructions if none does.
    pub target: InstructionId,
}

/// The resolved listing of a function.
#[derive(Clone, Debug)]
pub struct Body<'m> {
    /// The function.
    pub function: &'m Function,
    /// Its instructions.
    pub lines: Vec<Line<'m>>,
    /// The registers that it mentions.
    pub registers: Vec<Register<'m>>,
    /// Its parameters and results in other spaces, the variables that it declares, and those of the
    /// module that it mentions.
    pub variables: Vec<UsedVariable<'m>>,
    /// Its labels.
    pub labels: Vec<Label<'m>>,
    /// Its `.branchtargets`: the labels that each lists, none where a name is no label.
    pub branch_targets: Vec<Vec<Option<LabelId>>>,
    /// Its `.calltargets`: the functions that each lists, none where a name is no function.
    pub call_targets: Vec<Vec<Option<&'m Function>>>,
    /// Declarations that contradict each other or list what does not exist, in source order.
    pub problems: Vec<Diagnostic>,
}

impl<'m> Body<'m> {
    /// The declaration of a variable.
    pub fn variable(&self, id: VariableId) -> &'m Variable {
        self.variables[id.index()].declaration
    }

    /// The register that a formal parameter in `.reg` is, of a vector the first; none if the
    /// function does not mention it.
    pub fn formal(&self, parameter: &Variable) -> Option<RegisterId> {
        let is_it = |register: &Register<'_>| {
            register.declaration.is_some_and(|declaration| std::ptr::eq(declaration, parameter))
        };
        self.registers.iter().position(is_it).map(|index| RegisterId(index as u32))
    }

    /// The place of a label in the listing.
    pub fn target(&self, label: LabelId) -> InstructionId {
        self.labels[label.index()].target
    }

    /// The name of a symbol; of a component of a vector register, that of the vector.
    pub fn name(&self, symbol: Symbol<'m>) -> Cow<'m, str> {
        match symbol {
            Symbol::Register(id) | Symbol::Vector(id) => {
                let register = &self.registers[id.index()];
                match register.number {
                    Some(number) => format!("{}{number}", register.stem).into(),
                    None => (&**register.stem).into(),
                }
            }
            Symbol::Special(special) => special.name().into(),
            Symbol::Variable(id) => (&*self.variable(id).name).into(),
            Symbol::Function(function) => (&*function.name).into(),
            Symbol::Label(id) => (&**self.labels[id.index()].name).into(),
            Symbol::BranchTargets(_) => "a list of branch targets".into(),
            Symbol::CallTargets(_) => "a list of functions".into(),
            Symbol::Prototype(prototype) => (&*prototype.name).into(),
        }
    }
}

impl<'m> Body<'m> {
    /// Returns the reason why an operand that is written as an element of an array is none; `None`
    /// if it is one, or is written otherwise.
    pub fn wrong_element(&self, operand: &Operand<'m>) -> Option<String> {
        let (array, index) = match *operand {
            Operand::Element(array, _) => (array, None),
            Operand::Indexed(element) => (element.array, Some(element.index)),
            _ => return None,
        };
        let is_array = match array {
            Symbol::Variable(id) => !self.variable(id).dimensions.is_empty(),
            _ => false,
        };
        if !is_array {
            return Some(format!("`{}` is no array: only arrays are indexed", self.name(array)));
        }
        let ty = match index? {
            Symbol::Register(id) => self.registers[id.index()].declaration.map(|variable| variable.ty),
            Symbol::Special(special) if !special.is_vector() => Some(special.ty()),
            Symbol::Variable(_) => return None,
            _ => None,
        };
        let fits = |ty: ScalarType| !ty.is_float() && ty != ScalarType::Pred && ty.bytes() <= 8;
        (!ty.is_some_and(fits)).then(|| {
            format!(
                "`{}` is no integer register: it cannot index an array",
                self.name(index.unwrap_or(array))
            )
        })
    }
}

impl Register<'_> {
    /// Components of the vector that it is one of; 1 for any other register.
    pub fn width(&self) -> u8 {
        self.declaration.map_or(1, |variable| variable.vector)
    }
}

/// The component that a selector names: `x` and `r` are 0.
pub fn component(selector: &str) -> Option<u8> {
    let place = |names: [&str; COMPONENTS as usize]| names.iter().position(|name| *name == selector);
    place(["x", "y", "z", "w"]).or_else(|| place(["r", "g", "b", "a"])).map(|place| place as u8)
}

impl<'m> Symbol<'m> {
    /// The register, if it is one and no vector.
    pub fn register(self) -> Option<RegisterId> {
        match self {
            Symbol::Register(id) => Some(id),
            _ => None,
        }
    }

    /// The register of a component; the register itself where the selector picks bytes or halves of
    /// it.
    pub fn part(self, selector: &str) -> Option<RegisterId> {
        match self {
            Symbol::Vector(first) => component(selector).map(|place| RegisterId(first.0 + u32::from(place))),
            other => other.register(),
        }
    }
}

impl<'m> Operand<'m> {
    /// The register, if the operand is one or a component or part of one.
    pub fn register(&self) -> Option<RegisterId> {
        match self {
            Operand::Name(symbol) | Operand::Not(symbol) | Operand::Negated(symbol) => symbol.register(),
            Operand::Component(symbol, selector) => symbol.part(selector),
            _ => None,
        }
    }

    /// Calls `visit` for each special register that the operand mentions.
    pub fn special_registers(&self, visit: &mut impl FnMut(SpecialRegister)) {
        match self {
            Operand::Name(Symbol::Special(register)) | Operand::Component(Symbol::Special(register), _) => {
                visit(*register);
            }
            Operand::Pair(first, second) => {
                first.special_registers(visit);
                second.special_registers(visit);
            }
            Operand::Vector(items) | Operand::List(items) => {
                items.iter().for_each(|item| item.special_registers(visit));
            }
            Operand::Address(address) => address.rest.iter().for_each(|item| item.special_registers(visit)),
            _ => {}
        }
    }

    /// Returns the place that an operand of a load or store accesses: an address without
    /// coordinates, or an element of an array, which needs no brackets.
    pub fn place(&self) -> Option<(Base<'m>, i64)> {
        match self {
            Operand::Address(address) if address.rest.is_empty() => Some((address.base, address.offset)),
            Operand::Element(symbol, bytes) => Some((Base::Name(*symbol), *bytes)),
            Operand::Indexed(element) => Some((Base::Indexed(*element), 0)),
            _ => None,
        }
    }

    /// Calls `visit` for each register that the operand mentions; a vector register mentions its
    /// components.
    pub fn registers(&self, body: &Body<'m>, visit: &mut impl FnMut(RegisterId)) {
        match self {
            Operand::Name(Symbol::Vector(first)) => {
                let width = body.registers[first.index()].width();
                (0..u32::from(width).min(COMPONENTS)).for_each(|place| visit(RegisterId(first.0 + place)));
            }
            Operand::Name(_) | Operand::Not(_) | Operand::Negated(_) | Operand::Component(..) => {
                self.register().into_iter().for_each(visit);
            }
            Operand::Offset(symbol, _) | Operand::Element(symbol, _) => {
                symbol.register().into_iter().for_each(visit);
            }
            Operand::Indexed(element) => element.index.register().into_iter().for_each(visit),
            Operand::Pair(first, second) => {
                first.registers(body, visit);
                second.registers(body, visit);
            }
            Operand::Vector(parts) | Operand::List(parts) => {
                parts.iter().for_each(|part| part.registers(body, visit));
            }
            Operand::Address(address) => {
                address.base.register().into_iter().for_each(&mut *visit);
                address.rest.iter().for_each(|part| part.registers(body, visit));
            }
            Operand::Constant(_) | Operand::Sink => {}
        }
    }
}

impl<'m> Base<'m> {
    /// Returns the start as an operand, if it has a name.
    pub fn operand(self) -> Option<Operand<'m>> {
        match self {
            Base::Name(symbol) => Some(Operand::Name(symbol)),
            Base::Component(symbol, selector) => Some(Operand::Component(symbol, selector)),
            Base::Indexed(element) => Some(Operand::Indexed(element)),
            Base::Absolute => None,
        }
    }

    /// The register that the address starts from.
    pub fn register(self) -> Option<RegisterId> {
        match self {
            Base::Name(symbol) => symbol.register(),
            Base::Component(symbol, selector) => symbol.part(selector),
            Base::Indexed(element) => element.index.register(),
            Base::Absolute => None,
        }
    }
}
