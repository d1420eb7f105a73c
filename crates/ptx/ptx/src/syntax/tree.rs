//! PTX as data: the parser builds the tree, the printer writes it, every other layer reads it.
//!
//! The tree is general on purpose: an instruction is a mnemonic and a list of operands of a few
//! shapes, so PTX of any version parses. Rules:
//!
//! 1. Constant expressions are evaluated while parsing; the tree holds their values.
//! 2. A parameterised declaration (`.reg .b32 %r<10>`) is one [`Variable`] with a
//!    [`Variable::count`].
//! 3. Statements keep their source order, scopes (`{ … }`) included; labels and `.loc` are
//!    statements.
//! 4. [`Position`]s are for messages only: two trees that differ in positions alone compare equal.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::types::{ScalarType, StateSpace};
use crate::diagnostic::Position;

/// An identifier. Cheap to clone; one allocation for each distinct name of a module.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Arc<str>);

impl Deref for Name {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl std::borrow::Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Self {
        Name(text.into())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}", &self.0)
    }
}

/// One PTX translation unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Module {
    /// `.version`: major and minor number.
    pub version: (u32, u32),
    /// `.target`: architecture first, then options such as `texmode_independent` or `debug`.
    pub target: Vec<Name>,
    /// `.address_size` in bits: 32 or 64. ptxas takes PTX without the directive as 64, where the
    /// ISA says 32.
    pub address_size: u32,
    /// Everything below the header, in source order.
    pub items: Vec<Item>,
}

impl Module {
    /// The number of the architecture that `.target` names: 90 for `sm_90a`; 0 if it names none.
    pub fn architecture(&self) -> u32 {
        let digits = self.target.first().and_then(|name| name.strip_prefix("sm_")).unwrap_or_default();
        digits.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or(0)
    }

    /// The functions, declarations included, in source order.
    pub fn functions(&self) -> impl Iterator<Item = &Function> {
        self.items.iter().filter_map(|item| match item {
            Item::Function(function) => Some(function),
            _ => None,
        })
    }

    /// The kernels that have code, in source order.
    pub fn kernels(&self) -> impl Iterator<Item = &Function> {
        self.functions().filter(|function| function.kind == FunctionKind::Entry && function.body.is_some())
    }

    /// The kernel of a name; `None` if the module has no code of it.
    pub fn kernel(&self, name: &str) -> Option<&Function> {
        self.kernels().find(|kernel| &*kernel.name == name)
    }

    /// The module-scope variables in source order.
    pub fn variables(&self) -> impl Iterator<Item = &Variable> {
        self.items.iter().filter_map(|item| match item {
            Item::Variable(variable) => Some(variable),
            _ => None,
        })
    }

    /// The path that `.file` gave to `index`, as [`Location::file`] refers to it.
    pub fn file(&self, index: u32) -> Option<&str> {
        self.items.iter().find_map(|item| match item {
            Item::File(file) if file.index == index => Some(file.path.as_str()),
            _ => None,
        })
    }
}

/// A construct at module scope.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// A variable in `.global`, `.const`, `.shared` or `.tex`.
    Variable(Variable),
    /// An `.entry` or `.func`, with or without a body.
    Function(Function),
    /// `.file`.
    File(File),
    /// `.section`: debugging data.
    Section(Section),
    /// `.alias NAME, FUNCTION`.
    Alias {
        /// The new name.
        name: Name,
        /// The function that it stands for.
        function: Name,
    },
    /// `.pragma` outside functions.
    Pragma(Vec<String>),
}

/// The visibility of a symbol to the linker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linkage {
    /// Seen in this module only.
    Internal,
    /// `.extern`: defined elsewhere (for `.shared`: sized at launch).
    Extern,
    /// `.visible`.
    Visible,
    /// `.weak`.
    Weak,
    /// `.common`.
    Common,
}

/// A declaration in any state space, function parameters included.
#[derive(Clone, Debug, PartialEq)]
pub struct Variable {
    /// Linkage; [`Linkage::Internal`] inside functions.
    pub linkage: Linkage,
    /// The state space.
    pub space: StateSpace,
    /// Contents of `.attribute( … )`, such as `.managed`, as written.
    pub attributes: Vec<Name>,
    /// `.align` in bytes, if given.
    pub align: Option<u32>,
    /// 2 or 4 for `.v2` and `.v4`, 8 where the ISA allows it, else 1.
    pub vector: u8,
    /// Type of an element.
    pub ty: ScalarType,
    /// `.ptr` of a kernel parameter.
    pub pointer: Option<Pointer>,
    /// Name; `_` in prototypes.
    pub name: Name,
    /// `Some(n)` for `name<n>`, which declares `name0` to `name(n-1)`.
    pub count: Option<u32>,
    /// Array dimensions; `None` where the brackets are empty.
    pub dimensions: Vec<Option<u64>>,
    /// Initial value, if given.
    pub initializer: Option<Initializer>,
    /// The position of the name.
    pub position: Position,
}

impl Variable {
    /// Bytes of one element, vectors included.
    pub fn element_bytes(&self) -> u64 {
        self.ty.bytes() * u64::from(self.vector)
    }

    /// Bytes of the variable, [`u64::MAX`] where they do not fit into 64 bits; `None` if it is an
    /// array without a size. An empty first dimension takes its size from the initialiser.
    pub fn bytes(&self) -> Option<u64> {
        let mut total = self.element_bytes();
        for (index, dimension) in self.dimensions.iter().enumerate() {
            let length = match (dimension, &self.initializer) {
                (Some(length), _) => *length,
                (None, Some(Initializer::List(items))) if index == 0 => items.len() as u64,
                _ => return None,
            };
            total = total.saturating_mul(length);
        }
        Some(total)
    }

    /// Bytes of the variable if its declaration states them: `[]` and `[0]` leave them open. An
    /// `.extern` variable that states its size and is defined nowhere is a definition to ptxas,
    /// full of zeros; shared memory that does not is sized at launch.
    pub fn stated_bytes(&self) -> Option<u64> {
        self.bytes().filter(|&bytes| bytes > 0)
    }

    /// Alignment in bytes: `.align`, or the natural one of the element.
    pub fn alignment(&self) -> u64 {
        self.align.map_or(self.element_bytes().max(1), u64::from)
    }
}

/// `.ptr [.space] [.align n]` of a kernel parameter: what the pointer points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointer {
    /// State space that it points into; generic if none is given.
    pub space: Option<StateSpace>,
    /// Alignment of what it points to, in bytes.
    pub align: Option<u32>,
}

/// Initial value of a variable.
#[derive(Clone, Debug, PartialEq)]
pub enum Initializer {
    /// A number.
    Constant(Constant),
    /// The address of a variable or function.
    Symbol(SymbolAddress),
    /// `{ … }`, for arrays and vectors.
    List(Vec<Initializer>),
    /// `name = value`, for `.samplerref` and `.texref`.
    Field(Name, Constant),
    /// `name = word`, for `.samplerref` and `.texref`.
    Setting(Name, Name),
}

/// `symbol + offset`, `generic(symbol) + offset` or `mask(symbol)` in an initialiser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SymbolAddress {
    /// The variable or function.
    pub name: Name,
    /// Added to the address, in bytes.
    pub offset: i64,
    /// Whether the generic address is meant rather than the one in the symbol's state space.
    pub generic: bool,
    /// The selected byte of the address, as a mask such as `0xff00`.
    pub mask: Option<u64>,
}

/// The kind of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionKind {
    /// `.entry`: a kernel.
    Entry,
    /// `.func`: a device function.
    Func,
}

/// An `.entry` or `.func`.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// Linkage.
    pub linkage: Linkage,
    /// Kernel or device function.
    pub kind: FunctionKind,
    /// Contents of `.attribute( … )`.
    pub attributes: Vec<Name>,
    /// Return parameters, `.reg` or `.param`.
    pub returns: Vec<Variable>,
    /// Name.
    pub name: Name,
    /// Parameters, `.reg` or `.param`.
    pub params: Vec<Variable>,
    /// `.maxntid`, `.noreturn`, … between parameters and body.
    pub directives: Vec<Directive>,
    /// The body; `None` for a declaration.
    pub body: Option<Vec<Statement>>,
    /// The position of the name.
    pub position: Position,
}

impl Function {
    /// The values of the directive `name` (no dot), if the function has it.
    pub fn directive(&self, name: &str) -> Option<&[u64]> {
        self.directives.iter().find(|d| &*d.name == name).map(|d| d.values.as_slice())
    }

    /// Calls `visit` for each statement, in source order, statements of inner scopes after their
    /// scope's own.
    pub fn visit<'a>(&'a self, visit: &mut impl FnMut(&'a Statement)) {
        let mut open: Vec<std::slice::Iter<'a, Statement>> = Vec::new();
        open.extend(self.body.as_ref().map(|body| body.iter()));
        while let Some(top) = open.last_mut() {
            match top.next() {
                Some(statement) => {
                    visit(statement);
                    if let Statement::Block(inner) = statement {
                        open.push(inner.iter());
                    }
                }
                None => {
                    open.pop();
                }
            }
        }
    }
}

/// A function directive: `.maxntid 256, 1, 1`, `.noreturn`, `.pragma "…"`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directive {
    /// Name without its dot.
    pub name: Name,
    /// Numbers that follow.
    pub values: Vec<u64>,
    /// Strings that follow (`.pragma`).
    pub strings: Vec<String>,
}

/// A part of a function's body.
#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    /// `name:`.
    Label(Name, Position),
    /// An instruction.
    Instruction(Instruction),
    /// A declaration.
    Variable(Variable),
    /// `{ … }`: a scope of its own.
    Block(Vec<Statement>),
    /// `.loc`: the source line of what follows.
    Location(Location),
    /// `.pragma`.
    Pragma(Vec<String>),
    /// `name: .callprototype …;`
    Prototype(Prototype),
    /// `name: .calltargets f, g;`
    CallTargets(Name, Vec<Name>),
    /// `name: .branchtargets L1, L2;`
    BranchTargets(Name, Vec<Name>),
}

/// The parameters and results of an indirect call.
#[derive(Clone, Debug, PartialEq)]
pub struct Prototype {
    /// Label by which calls name it.
    pub name: Name,
    /// Return parameters.
    pub returns: Vec<Variable>,
    /// Parameters.
    pub params: Vec<Variable>,
    /// `.noreturn`, `.abi_preserve`, ….
    pub directives: Vec<Directive>,
}

/// `.loc`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// Index of a `.file`.
    pub file: u32,
    /// Line in that file, from 1; 0 where the compiler knew none.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
    /// For inlined code: label of the function's name, offset to it, and where it was inlined
    /// (file, line, column).
    pub inlined: Option<Inlined>,
}

/// The `function_name …, inlined_at …` part of a `.loc`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inlined {
    /// Label in `.debug_str` that holds the name of the inlined function.
    pub function: Name,
    /// Bytes from that label.
    pub offset: i64,
    /// Index of a `.file`.
    pub file: u32,
    /// Line of the call.
    pub line: u32,
    /// Column of the call.
    pub column: u32,
}

/// `.file`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Index that `.loc` uses.
    pub index: u32,
    /// Path of the source file.
    pub path: String,
    /// Modification time (seconds since 1970) and size in bytes, if given.
    pub stamp: Option<(u64, u64)>,
}

/// `.section NAME { … }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Name with its dot, such as `.debug_str`.
    pub name: Name,
    /// Contents.
    pub lines: Vec<SectionLine>,
}

/// A line of a `.section`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SectionLine {
    /// `name:`.
    Label(Name),
    /// `.b8 1, 2, …` and wider.
    Data(ScalarType, Vec<SectionValue>),
}

/// A value in a `.section`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SectionValue {
    /// A number.
    Integer(i128),
    /// Label or section, plus an offset in bytes.
    Symbol(Name, i64),
    /// Distance between two labels.
    Difference(Name, Name),
}

/// An instruction.
#[derive(Clone, Debug, PartialEq)]
pub struct Instruction {
    /// `@p` or `@!p`.
    pub predicate: Option<Predicate>,
    /// Opcode and modifiers.
    pub mnemonic: Mnemonic,
    /// Operands in source order, destination first where there is one.
    pub operands: Vec<Operand>,
    /// The position of the mnemonic.
    pub position: Position,
}

impl Instruction {
    /// Calls `visit` for each name in the guard and the operands, as it is written.
    pub fn names(&self, visit: &mut impl FnMut(&str)) {
        self.predicate.iter().for_each(|predicate| visit(&predicate.register));
        self.operands.iter().for_each(|operand| operand.names(visit));
    }
}

/// Guard of an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Predicate {
    /// `@!p`.
    pub negated: bool,
    /// A `.pred` register.
    pub register: Name,
}

/// Opcode and modifiers as written: `ld.global.v4.f32`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Mnemonic(Name);

impl Mnemonic {
    /// Creates a mnemonic from its text.
    pub fn new(text: Name) -> Self {
        Mnemonic(text)
    }

    /// The whole text.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// The part before the first dot.
    pub fn opcode(&self) -> &str {
        self.0.split('.').next().unwrap_or("")
    }

    /// The parts after the opcode, without dots: `shared::cta`, `v4`, `f32`.
    pub fn modifiers(&self) -> impl DoubleEndedIterator<Item = &str> {
        let mut parts = self.0.split('.');
        parts.next();
        parts
    }
}

impl fmt::Display for Mnemonic {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, out)
    }
}

impl fmt::Debug for Mnemonic {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, out)
    }
}

/// A number in an instruction or initialiser.
#[derive(Clone, Copy, Debug)]
pub enum Constant {
    /// An integer, from -2^63 to 2^64 - 1.
    Integer(i128),
    /// `0f…`: the bits of an `.f32`.
    Single(u32),
    /// `0d…` or a decimal fraction: the bits of an `.f64`.
    Double(u64),
}

impl PartialEq for Constant {
    fn eq(&self, other: &Constant) -> bool {
        match (self, other) {
            (Constant::Integer(a), Constant::Integer(b)) => a == b,
            (Constant::Single(a), Constant::Single(b)) => a == b,
            (Constant::Double(a), Constant::Double(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for Constant {}

/// An operand.
#[derive(Clone, Debug, PartialEq)]
pub enum Operand {
    /// A register, variable, function or label.
    Name(Name),
    /// `name.selector`: a component of a vector register (`x`), a part of a register in video
    /// instructions (`b0`, `h1`), a special register's dimension (`%tid.x`).
    Component(Name, Name),
    /// `name + bytes`, without brackets: an address as a value.
    Offset(Name, i64),
    /// `name[index]`: an element of an array.
    Element(Name, i64),
    /// `name[register + number]`: an element of an array whose index a register holds.
    Indexed(Name, Name, i64),
    /// A number.
    Constant(Constant),
    /// `!p`.
    Not(Name),
    /// `-a`, where an instruction negates an operand.
    Negated(Name),
    /// `_`: a result that is not wanted.
    Sink,
    /// `d|p`: two destinations.
    Pair(Box<Operand>, Box<Operand>),
    /// `{a, b}`.
    Vector(Vec<Operand>),
    /// `(a, b)`: parameters of a call.
    List(Vec<Operand>),
    /// `[base + bytes]`.
    Address(Address),
}

impl Operand {
    /// Calls `visit` for each name in the operand, as it is written. (The parser bounds the depth.)
    pub fn names(&self, visit: &mut impl FnMut(&str)) {
        match self {
            Operand::Name(name)
            | Operand::Component(name, _)
            | Operand::Offset(name, _)
            | Operand::Element(name, _)
            | Operand::Not(name)
            | Operand::Negated(name) => visit(name),
            Operand::Indexed(array, index, _) => [array, index].iter().for_each(|name| visit(name)),
            Operand::Pair(first, second) => [first, second].iter().for_each(|one| one.names(visit)),
            Operand::Vector(parts) | Operand::List(parts) => {
                parts.iter().for_each(|part| part.names(visit));
            }
            Operand::Address(address) => {
                match &address.base {
                    AddressBase::Name(name) | AddressBase::Component(name, _) => visit(name),
                    AddressBase::Absolute => {}
                }
                address.rest.iter().for_each(|part| part.names(visit));
            }
            Operand::Constant(_) | Operand::Sink => {}
        }
    }
}

/// `[base + bytes]`, or `[base, coordinates…]` of textures, surfaces and tensors.
#[derive(Clone, Debug, PartialEq)]
pub struct Address {
    /// Register, variable or absolute address.
    pub base: AddressBase,
    /// Added to it, in bytes.
    pub offset: i64,
    /// The operands after commas inside the brackets.
    pub rest: Vec<Operand>,
}

/// The start of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressBase {
    /// A register or variable.
    Name(Name),
    /// A component of a vector register.
    Component(Name, Name),
    /// Nothing: the address is the offset.
    Absolute,
}
