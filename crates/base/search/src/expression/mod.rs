//! Restrictions and lists of values, in the part of Python that tuners' files use.
//!
//! An [`Expression`] is parsed by a small parser and evaluated on the values of parameters. It
//! knows numbers, texts, `True`, `False`, names of parameters, arithmetic, comparisons (chains and
//! `in` as well), `and`, `or`, `not`, `a if c else b`, and the functions of [`FUNCTIONS`]. Lists
//! may also be `range(…)`, `[… for x in …]`, and sums of lists.
//!
//! Invariants: nothing else is evaluated, and the error names what it is, with its column. Length,
//! depth, steps and elements are bounded. An integer beyond 63 bits is an error where Python would
//! go on. A result is that of Python.

mod evaluate;
mod lexer;
mod parser;

use crate::Value;
use std::fmt;

/// Functions that an expression may call.
pub const FUNCTIONS: [&str; 12] = [
    "abs",
    "bool",
    "float",
    "int",
    "len",
    "max",
    "min",
    "math.ceil",
    "math.floor",
    "math.log2",
    "math.sqrt",
    "round",
];

/// Largest text that is parsed, bytes.
const MOST_BYTES: usize = 16 << 10;

/// Elements of a list at most.
pub const MOST_ELEMENTS: usize = 1 << 16;

/// The fault of an expression, and its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Fault {
    /// The fault, in words.
    pub what: String,
    /// The character in the text, from 1; 0 if it is not at one.
    pub column: usize,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.column {
            0 => f.write_str(&self.what),
            column => write!(f, "{} at character {column}", self.what),
        }
    }
}

/// A parsed expression about parameters.
#[derive(Clone, Debug)]
pub struct Expression {
    text: String,
    tree: parser::Tree,
    /// The parameters whose values it needs, ascending.
    needs: Vec<usize>,
}

impl Expression {
    /// Parses a text that may name these parameters.
    ///
    /// # Errors
    /// If it is not in the part of Python that is known, or names something else.
    pub fn parse<'n>(text: &str, names: impl IntoIterator<Item = &'n str>) -> Result<Self, Fault> {
        let names: Vec<&str> = names.into_iter().collect();
        let (tree, needs) = parser::parse(text, &names)?;
        Ok(Self { text: text.to_owned(), tree, needs })
    }

    /// The parameters whose values it needs, as places in the list of names, ascending.
    pub fn needs(&self) -> &[usize] {
        &self.needs
    }

    /// Its text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it is true of the values that parameters have.
    ///
    /// # Errors
    /// Where Python would raise an exception.
    pub fn is_true(&self, of: &dyn Fn(usize) -> Value) -> Result<bool, Fault> {
        evaluate::truth(&self.tree, of)
    }

    /// Its value.
    ///
    /// # Errors
    /// Where Python would raise an exception, and for a list.
    pub fn value(&self, of: &dyn Fn(usize) -> Value) -> Result<Value, Fault> {
        evaluate::value(&self.tree, of)
    }
}

/// The values of a list, such as `[1, 2, 4]` and `[32 * i for i in range(1, 33)]`.
///
/// # Errors
/// As [`Expression::parse`] and [`Expression::value`], and if it is no list.
pub fn list(text: &str) -> Result<Vec<Value>, Fault> {
    let (tree, _) = parser::parse(text, &[])?;
    evaluate::list(&tree)
}
