//! PTX as text and as a tree: lexer, parser, tree, printer.
//!
//! `lexer` splits text into tokens, `parse` builds the [`tree`] from them by recursive descent,
//! `print` writes a tree as text again. Arrows point one way: `parse` → `lexer` → `tree` → `types`,
//! and `print` → `tree`.
//!
//! 1. This layer knows how PTX is written, not what it means: a mnemonic is text, an operand names
//!    a register or a variable by text. A later layer says what names stand for,
//!    [`instruction`](crate::instruction) what a mnemonic does.
//! 2. The parser takes any text. It gives a [`Module`] or the first
//!    [`Diagnostic`](crate::Diagnostic), in linear time and space, and never panics; nesting is
//!    limited.
//! 3. `parse(print(parse(x)))` equals `parse(x)`.

mod lexer;
mod parse;
mod print;
pub mod tree;
pub mod types;

pub use parse::parse;
pub use tree::*;
pub use types::{ScalarType, StateSpace};
