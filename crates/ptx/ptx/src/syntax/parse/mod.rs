//! Parses tokens into the tree, by recursive descent.
//!
//! [`Parser`] is the cursor with the helpers that all parts use; `directive` reads what stands at
//! module scope and declarations, `statement` what stands in bodies, `operand` the operands,
//! `constant` constant expressions. What nests counts its depth and stops at [`MAX_DEPTH`]. The
//! first error ends the parse.

mod constant;
mod directive;
mod operand;
mod statement;

use std::collections::HashSet;

use crate::diagnostic::{Diagnostic, Position};
use crate::syntax::lexer::{Token, TokenKind, tokenize};
use crate::syntax::tree::{Constant, Module, Name};

/// The maximum nesting of scopes, initialisers, operands and expressions.
const MAX_DEPTH: u32 = 64;

type Parsed<T> = Result<T, Diagnostic>;

/// Reads a PTX module.
pub fn parse(source: &str) -> Result<Module, Diagnostic> {
    let tokens = tokenize(source)?;
    Parser { tokens: &tokens, next: 0, depth: 0, names: HashSet::new() }.module()
}

struct Parser<'t, 'a> {
    tokens: &'t [Token<'a>],
    next: usize,
    depth: u32,
    names: HashSet<Name>,
}

impl<'a> Parser<'_, 'a> {
    /// The token at the cursor; `End` for ever at the end.
    fn peek(&self) -> Token<'a> {
        self.peek_at(0)
    }

    fn peek_at(&self, ahead: usize) -> Token<'a> {
        self.tokens[(self.next + ahead).min(self.tokens.len() - 1)]
    }

    fn advance(&mut self) -> Token<'a> {
        let token = self.peek();
        self.next += 1;
        token
    }

    fn position(&self) -> Position {
        self.peek().position
    }

    fn error<T>(&self, message: impl Into<String>) -> Parsed<T> {
        Err(Diagnostic::new(self.position(), message))
    }

    /// "expected X, found Y" at the cursor.
    fn expected<T>(&self, what: &str) -> Parsed<T> {
        let token = self.peek();
        match token.kind {
            TokenKind::End => self.error(format!("expected {what}, but the text ends here")),
            _ => self.error(format!("expected {what}, found `{}`", token.text)),
        }
    }

    fn at(&self, symbol: u8) -> bool {
        self.peek().kind == TokenKind::Symbol(symbol)
    }

    fn at_word(&self, text: &str) -> bool {
        let token = self.peek();
        token.kind == TokenKind::Word && token.text == text
    }

    /// Takes `symbol` if it is next.
    fn eat(&mut self, symbol: u8) -> bool {
        let found = self.at(symbol);
        self.next += usize::from(found);
        found
    }

    fn eat_word(&mut self, text: &str) -> bool {
        let found = self.at_word(text);
        self.next += usize::from(found);
        found
    }

    fn expect(&mut self, symbol: u8) -> Parsed<()> {
        match self.eat(symbol) {
            true => Ok(()),
            false => self.expected(&format!("`{}`", symbol as char)),
        }
    }

    fn intern(&mut self, text: &str) -> Name {
        if let Some(name) = self.names.get(text) {
            return name.clone();
        }
        let name = Name::from(text);
        self.names.insert(name.clone());
        name
    }

    /// An identifier: a word without dots.
    fn identifier(&mut self, what: &str) -> Parsed<Name> {
        let token = self.peek();
        if token.kind != TokenKind::Word || token.text.contains(['.', ':']) {
            return self.expected(what);
        }
        self.next += 1;
        Ok(self.intern(token.text))
    }

    /// Any word.
    fn word(&mut self, what: &str) -> Parsed<Name> {
        let token = self.peek();
        if token.kind != TokenKind::Word {
            return self.expected(what);
        }
        self.next += 1;
        Ok(self.intern(token.text))
    }

    fn string(&mut self) -> Parsed<String> {
        let token = self.peek();
        if token.kind != TokenKind::String {
            return self.expected("a string");
        }
        self.next += 1;
        Ok(token.text.to_owned())
    }

    fn strings(&mut self) -> Parsed<Vec<String>> {
        let mut strings = vec![self.string()?];
        while self.eat(b',') {
            strings.push(self.string()?);
        }
        Ok(strings)
    }

    /// A constant integer expression that fits `T`.
    fn integer<T: TryFrom<i128>>(&mut self, what: &str) -> Parsed<T> {
        let position = self.position();
        let Constant::Integer(value) = self.constant()? else {
            return Err(Diagnostic::new(position, format!("expected {what}, found a floating-point number")));
        };
        T::try_from(value)
            .map_err(|_| Diagnostic::new(position, format!("{value} is out of range for {what}")))
    }

    /// Runs `inner` one level deeper.
    fn nested<T>(&mut self, inner: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth == MAX_DEPTH {
            return self.error(format!("nested more than {MAX_DEPTH} levels deep"));
        }
        self.depth += 1;
        let result = inner(self);
        self.depth -= 1;
        result
    }

    /// `item, item, …` up to `close`, which is taken. An empty list is allowed.
    fn list<T>(&mut self, close: u8, mut item: impl FnMut(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        let mut items = Vec::new();
        if self.eat(close) {
            return Ok(items);
        }
        loop {
            items.push(item(self)?);
            if self.eat(close) {
                return Ok(items);
            }
            if !self.eat(b',') {
                return self.expected(&format!("`,` or `{}`", close as char));
            }
        }
    }
}
