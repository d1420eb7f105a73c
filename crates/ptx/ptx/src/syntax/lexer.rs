//! Splits PTX text into tokens.
//!
//! A *word* is any run of identifier characters, dots and `::`, so a whole mnemonic
//! (`ld.shared::cta.v4.f32`), a component (`%tid.x`) and a plain identifier are each one token; the
//! parser knows which it wants. A word that starts with a dot is a directive or a type, and ends
//! before the next dot (`.reg.b32` is two). Invariant: the tokens end with exactly one
//! [`TokenKind::End`], and every token lies on character boundaries of the source.

use super::tree::Constant;
use crate::diagnostic::{Diagnostic, Position};

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TokenKind {
    /// Identifier, directive, mnemonic or component.
    Word,
    /// A number; `true` marks integers that C rules make unsigned.
    Number(Constant, bool),
    /// Text between double quotes.
    String,
    /// A single punctuation character.
    Symbol(u8),
    /// `<<`, `>>`, `<=`, `>=`, `==`, `!=`, `&&`, `||`: the two characters.
    Double([u8; 2]),
    /// End of the text.
    End,
}

/// A token and its place.
#[derive(Clone, Copy, Debug)]
pub struct Token<'a> {
    /// The kind.
    pub kind: TokenKind,
    /// Its characters; for strings without the quotes.
    pub text: &'a str,
    /// The start of the token.
    pub position: Position,
}

/// Splits `source` into tokens.
pub fn tokenize(source: &str) -> Result<Vec<Token<'_>>, Diagnostic> {
    let mut lexer = Lexer { source, offset: 0, line: 1, line_start: 0 };
    let mut tokens = Vec::with_capacity(source.len() / 4);
    loop {
        let token = lexer.next()?;
        tokens.push(token);
        if token.kind == TokenKind::End {
            return Ok(tokens);
        }
    }
}

struct Lexer<'a> {
    source: &'a str,
    offset: usize,
    line: u32,
    line_start: usize,
}

fn starts_word(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'$' | b'%' | b'.')
}

fn continues_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'.')
}

impl<'a> Lexer<'a> {
    fn peek(&self, ahead: usize) -> u8 {
        self.source.as_bytes().get(self.offset + ahead).copied().unwrap_or(0)
    }

    fn position(&self) -> Position {
        Position {
            line: self.line,
            column: (self.offset - self.line_start + 1).min(u32::MAX as usize) as u32,
        }
    }

    fn error<T>(&self, message: impl Into<String>) -> Result<T, Diagnostic> {
        Err(Diagnostic::new(self.position(), message))
    }

    fn newline(&mut self) {
        self.line = self.line.saturating_add(1);
        self.line_start = self.offset;
    }

    fn skip_blank(&mut self) -> Result<(), Diagnostic> {
        loop {
            match (self.peek(0), self.peek(1)) {
                (b'\n', _) => {
                    self.offset += 1;
                    self.newline();
                }
                (b' ' | b'\t' | b'\r' | 0x0b | 0x0c, _) => self.offset += 1,
                (b'/', b'/') => self.skip_line(),
                (b'/', b'*') => self.skip_block_comment()?,
                (b'#', _) if self.at_line_marker() => self.skip_line(),
                _ => return Ok(()),
            }
        }
    }

    fn skip_line(&mut self) {
        let rest = &self.source[self.offset..];
        self.offset += rest.find('\n').unwrap_or(rest.len());
    }

    /// Whether the `#` at the cursor begins what a C preprocessor says of lines: `# 1 "x.c"` or
    /// `#line 1 "x.c"`.
    fn at_line_marker(&self) -> bool {
        let said = self.source[self.offset + 1..].trim_start_matches([' ', '\t']);
        let said = said.strip_prefix("line").map_or(said, |said| said.trim_start_matches([' ', '\t']));
        said.starts_with(|c: char| c.is_ascii_digit())
    }

    fn skip_block_comment(&mut self) -> Result<(), Diagnostic> {
        let Some(length) = self.source[self.offset + 2..].find("*/") else {
            return self.error("comment without end");
        };
        let end = self.offset + 2 + length + 2;
        while self.offset < end {
            let newline = self.peek(0) == b'\n';
            self.offset += 1;
            if newline {
                self.newline();
            }
        }
        Ok(())
    }

    fn next(&mut self) -> Result<Token<'a>, Diagnostic> {
        self.skip_blank()?;
        let position = self.position();
        let start = self.offset;
        let first = self.peek(0);
        let kind = if start == self.source.len() {
            TokenKind::End
        } else if first.is_ascii_digit() || first == b'.' && self.peek(1).is_ascii_digit() {
            self.number()?
        } else if starts_word(first) && (first != b'%' || continues_word(self.peek(1))) {
            self.word();
            TokenKind::Word
        } else if first == b'"' {
            return self.string(position);
        } else {
            self.symbol()?
        };
        Ok(Token { kind, text: &self.source[start..self.offset], position })
    }

    fn word(&mut self) {
        let directive = self.peek(0) == b'.';
        self.offset += 1;
        loop {
            if continues_word(self.peek(0)) && !(directive && self.peek(0) == b'.') {
                self.offset += 1;
            } else if self.peek(0) == b':' && self.peek(1) == b':' && self.peek(2).is_ascii_alphanumeric() {
                self.offset += 2;
            } else {
                return;
            }
        }
    }

    fn string(&mut self, position: Position) -> Result<Token<'a>, Diagnostic> {
        let start = self.offset + 1;
        let mut end = start;
        loop {
            match self.source.as_bytes().get(end) {
                Some(b'"') => break,
                // A quote after a backslash belongs to the string; a lone backslash (Windows paths)
                // is itself.
                Some(b'\\') if self.source.as_bytes().get(end + 1) == Some(&b'"') => end += 2,
                Some(b'\n') | None => return self.error("string without end"),
                Some(_) => end += 1,
            }
        }
        self.offset = end + 1;
        Ok(Token { kind: TokenKind::String, text: &self.source[start..end], position })
    }

    fn symbol(&mut self) -> Result<TokenKind, Diagnostic> {
        let pair = [self.peek(0), self.peek(1)];
        if matches!(&pair, b"<<" | b">>" | b"<=" | b">=" | b"==" | b"!=" | b"&&" | b"||") {
            self.offset += 2;
            return Ok(TokenKind::Double(pair));
        }
        if !b"()[]{}<>,;:@!|+-*/%&^~?=".contains(&pair[0]) {
            let unknown = self.source[self.offset..].chars().next().unwrap_or('\0');
            return self.error(format!("character {unknown:?} has no meaning in PTX"));
        }
        self.offset += 1;
        Ok(TokenKind::Symbol(pair[0]))
    }

    fn number(&mut self) -> Result<TokenKind, Diagnostic> {
        let start = self.offset;
        let hex = matches!((self.peek(0), self.peek(1)), (b'0', b'x' | b'X' | b'f' | b'F' | b'd' | b'D'));
        loop {
            let byte = self.peek(0);
            let exponent_sign = !hex
                && matches!(byte, b'e' | b'E')
                && matches!(self.peek(1), b'+' | b'-')
                && self.peek(2).is_ascii_digit();
            if exponent_sign {
                self.offset += 2;
            } else if byte.is_ascii_alphanumeric() || byte == b'.' {
                self.offset += 1;
            } else {
                break;
            }
        }
        let text = &self.source[start..self.offset];
        number(text).ok_or_else(|| {
            self.offset = start;
            Diagnostic::new(self.position(), format!("`{text}` is not a number that PTX allows"))
        })
    }
}

fn number(text: &str) -> Option<TokenKind> {
    let digits = |radix: u32, digits: &str| {
        // from_str_radix would accept a sign.
        (digits.bytes().all(|b| b.is_ascii_alphanumeric()))
            .then(|| u64::from_str_radix(digits, radix).ok())?
    };
    let float = |digits_wanted: usize, rest: &str| (rest.len() == digits_wanted).then(|| digits(16, rest))?;
    if let Some(rest) = text.strip_prefix("0f").or(text.strip_prefix("0F")) {
        return Some(TokenKind::Number(Constant::Single(float(8, rest)? as u32), false));
    }
    if let Some(rest) = text.strip_prefix("0d").or(text.strip_prefix("0D")) {
        return Some(TokenKind::Number(Constant::Double(float(16, rest)?), false));
    }
    let (body, marked) = match text.strip_suffix('U') {
        Some(body) => (body, true),
        None => (text, false),
    };
    let value = if let Some(rest) = body.strip_prefix("0x").or(body.strip_prefix("0X")) {
        digits(16, rest)
    } else if let Some(rest) = body.strip_prefix("0b").or(body.strip_prefix("0B")) {
        digits(2, rest)
    } else if body.len() > 1 && body.starts_with('0') && body.bytes().all(|b| b.is_ascii_digit()) {
        digits(8, body)
    } else if body.bytes().all(|b| b.is_ascii_digit()) {
        digits(10, body)
    } else {
        let value: f64 = text.parse().ok().filter(|v: &f64| v.is_finite())?;
        return Some(TokenKind::Number(Constant::Double(value.to_bits()), false));
    }?;
    Some(TokenKind::Number(Constant::Integer(value.into()), marked || value > i64::MAX as u64))
}
