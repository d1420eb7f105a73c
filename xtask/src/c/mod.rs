//! A reader for the C declarations of NVIDIA's driver headers: just enough C, and no compiler
//! library.
//!
//! The C preprocessor runs first (`toolkit`), so what comes in is declarations, line markers and,
//! because of `-dD`, the `#define` lines. Three passes, a module each: [`lex`] makes tokens,
//! [`parse`] makes a [`Unit`], with constant expressions in [`expr`]; [`layout`] computes sizes as
//! the System V x86-64 ABI says. Invariants:
//!
//! * Anything not understood is an error with file and line. Nothing is skipped silently except
//!   function bodies, attributes and static assertions.
//! * No input makes it panic: nesting is bounded, arithmetic is checked.

pub mod expr;
pub mod layout;
pub mod lex;
pub mod parse;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

/// A C type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// `void`
    Void,
    /// `char`, whose sign is the platform's.
    Char,
    /// Any other integer: bits and sign.
    Int { bits: u32, signed: bool },
    /// `float` (32) or `double` (64).
    Float { bits: u32 },
    /// A typedef's name.
    Named(String),
    /// `struct tag` or `union tag`; nameless ones are given a tag by the parser.
    Record(String),
    /// `enum tag`; nameless ones are given a tag by the parser.
    Enum(String),
    /// A pointer; `constant` says whether what it points to is.
    Pointer { to: Box<Type>, constant: bool },
    /// An array. `None` where the bound is left out.
    Array { of: Box<Type>, len: Option<u64> },
    /// A function.
    Function(Box<Prototype>),
}

/// A function's result and parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prototype {
    /// The type of its result.
    pub result: Type,
    /// The parameters, arrays and functions already turned into pointers.
    pub params: Vec<Param>,
}

/// A parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Empty where the header gives none.
    pub name: String,
    /// Its type.
    pub ty: Type,
}

/// A declared function.
#[derive(Clone, Debug)]
pub struct Function {
    /// Its symbol.
    pub name: String,
    /// Its type.
    pub prototype: Prototype,
    /// The place of its first declaration.
    pub place: Place,
}

/// `typedef`
#[derive(Clone, Debug)]
pub struct Typedef {
    /// The new name.
    pub name: String,
    /// The type that it stands for.
    pub ty: Type,
    /// The place.
    pub place: Place,
}

/// A struct or union.
#[derive(Clone, Debug)]
pub struct Record {
    /// `struct` or `union`.
    pub union: bool,
    /// Members; `None` while only declared.
    pub fields: Option<Vec<Field>>,
    /// From `_Alignas`, in bytes.
    pub align: Option<u64>,
    /// The layout of its members; `None` while only declared.
    pub layout: Option<layout::RecordLayout>,
    /// The enclosing record's tag and the member's name, for a record without a tag inside another.
    pub inside: Option<(String, String)>,
}

/// A member of a record.
#[derive(Clone, Debug)]
pub struct Field {
    /// Empty for an anonymous struct or union.
    pub name: String,
    /// Its type.
    pub ty: Type,
}

/// An enumeration.
#[derive(Clone, Debug)]
pub struct Enum {
    /// Enumerators in order.
    pub values: Vec<(String, i128)>,
}

/// All that a translation unit declares.
#[derive(Clone, Debug, Default)]
pub struct Unit {
    /// Functions in order of declaration; a repeated declaration counts once.
    pub functions: Vec<Function>,
    /// Typedefs in order.
    pub typedefs: Vec<Typedef>,
    /// Typedefs by name: an index into `typedefs`.
    pub typedef_index: BTreeMap<String, usize>,
    /// Tags of records in order of declaration.
    pub record_order: Vec<String>,
    /// Records by tag.
    pub records: BTreeMap<String, Record>,
    /// Tags of enumerations in order.
    pub enum_order: Vec<String>,
    /// Enumerations by tag.
    pub enums: BTreeMap<String, Enum>,
    /// Enumerators by name: value and tag of their enumeration.
    pub enumerators: BTreeMap<String, (i128, String)>,
    /// Object-like macros in order of their last definition: name and unexpanded body.
    pub macros: Vec<Macro>,
}

/// An object-like macro.
#[derive(Clone, Debug)]
pub struct Macro {
    /// Its name.
    pub name: String,
    /// Its body.
    pub body: Vec<lex::Token>,
    /// The place of its definition.
    pub place: Place,
}

impl Unit {
    /// Returns the typedef of a name.
    pub fn typedef(&self, name: &str) -> Option<&Typedef> {
        self.typedef_index.get(name).map(|&at| &self.typedefs[at])
    }

    /// `ty` with all typedefs seen through, down to pointers' targets and functions' parameters;
    /// parameter names are dropped. Two declarations are compatible where these are equal.
    pub fn canonical(&self, ty: &Type) -> Type {
        match ty {
            Type::Named(name) => match self.typedef(name) {
                // A typedef can only name what was declared before it, so this ends.
                Some(typedef) => self.canonical(&typedef.ty),
                None => ty.clone(),
            },
            Type::Pointer { to, constant } => {
                Type::Pointer { to: Box::new(self.canonical(to)), constant: *constant }
            }
            Type::Array { of, len } => Type::Array { of: Box::new(self.canonical(of)), len: *len },
            Type::Function(prototype) => Type::Function(Box::new(self.canonical_prototype(prototype))),
            _ => ty.clone(),
        }
    }

    /// [`Unit::canonical`] for a function.
    pub fn canonical_prototype(&self, prototype: &Prototype) -> Prototype {
        let params = prototype.params.iter();
        Prototype {
            result: self.canonical(&prototype.result),
            params: params.map(|p| Param { name: String::new(), ty: self.canonical(&p.ty) }).collect(),
        }
    }
}

/// File and line, from the preprocessor's line markers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Path as the preprocessor wrote it.
    pub file: std::sync::Arc<str>,
    /// From 1.
    pub line: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// The reason why something could not be read.
#[derive(Clone, Debug)]
pub struct Error {
    /// The place.
    pub place: Place,
    /// The fault.
    pub what: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

impl std::error::Error for Error {}

/// The result of all passes.
pub type Result<T> = std::result::Result<T, Error>;
