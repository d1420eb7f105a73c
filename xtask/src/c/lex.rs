//! Tokens of preprocessed C, each with the file and line that the line markers give it.

use super::{Error, Place, Result};
use std::fmt;
use std::sync::Arc;

/// A token and where it stands.
#[derive(Clone, Debug)]
pub struct Token {
    /// The kind.
    pub kind: Kind,
    /// The place.
    pub place: Place,
}

/// The kind of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An identifier or keyword.
    Word(String),
    /// An integer; `unsigned` where its suffix has a `u`.
    Int { value: u64, unsigned: bool },
    /// A string, character or floating literal: present in macro bodies, meaningless in
    /// declarations.
    Other(String),
    /// Punctuation.
    Mark(&'static str),
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Word(text) | Kind::Other(text) => write!(f, "`{text}`"),
            Kind::Int { value, .. } => write!(f, "`{value}`"),
            Kind::Mark(mark) => write!(f, "`{mark}`"),
        }
    }
}

/// A `#define` or `#undef` line, as `-dD` keeps it.
#[derive(Clone, Debug)]
pub enum Directive {
    /// An object-like macro. Function-like ones are left out.
    Define { name: String, body: Vec<Token>, place: Place },
    /// The macro ends.
    Undef { name: String },
}

/// The tokens of a translation unit.
#[derive(Debug, Default)]
pub struct Source {
    /// Tokens of the declarations.
    pub tokens: Vec<Token>,
    /// Macro lines in order.
    pub directives: Vec<Directive>,
}

/// Longest first, so that `<<=` is not `<<` and `=`.
const MARKS: [&str; 46] = [
    "...", "<<=", ">>=", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "->", "++", "--", "+=", "-=", "*=",
    "/=", "%=", "&=", "|=", "^=", "##", "{", "}", "(", ")", "[", "]", ";", ",", ":", "=", "*", "&", "|", "^",
    "~", "!", "+", "-", "/", "%", "<", ">", "?",
];

/// Splits preprocessed text into tokens.
///
/// # Errors
/// A character that starts no token, an integer beyond 64 bits, or an unfinished literal.
pub fn lex(text: &str) -> Result<Source> {
    let mut source = Source::default();
    let mut place = Place { file: Arc::from("<input>"), line: 1 };
    for line in text.lines() {
        match line.trim_start().strip_prefix('#') {
            Some(directive) => {
                if let Some(marked) = line_marker(directive, &place) {
                    place = marked;
                    continue;
                }
                source.directives.extend(macro_line(directive, &place)?);
            }
            None => tokens(line, &place, &mut source.tokens)?,
        }
        place.line = place.line.saturating_add(1);
    }
    Ok(source)
}

/// `# 12 "cuda.h" 2`: the next line is line 12 of cuda.h.
fn line_marker(directive: &str, current: &Place) -> Option<Place> {
    let directive = directive.trim_start();
    let (number, rest) = directive.split_once(' ').unwrap_or((directive, ""));
    let line = number.parse().ok()?;
    let file = match rest.split('"').nth(1) {
        Some(name) if name != &*current.file => Arc::from(name),
        _ => current.file.clone(),
    };
    Some(Place { file, line })
}

fn macro_line(directive: &str, place: &Place) -> Result<Option<Directive>> {
    let directive = directive.trim_start();
    if let Some(name) = directive.strip_prefix("undef ") {
        return Ok(Some(Directive::Undef { name: name.trim().to_owned() }));
    }
    let Some(definition) = directive.strip_prefix("define ") else { return Ok(None) };
    let end = definition.find(|c: char| !is_word(c)).unwrap_or(definition.len());
    let (name, rest) = definition.split_at(end);
    if rest.starts_with('(') {
        return Ok(None);
    }
    let mut body = Vec::new();
    // A body that is no C token sequence (`#`, `@`, …) is nobody's constant.
    if tokens(rest, place, &mut body).is_err() {
        return Ok(None);
    }
    Ok(Some(Directive::Define { name: name.to_owned(), body, place: place.clone() }))
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn tokens(line: &str, place: &Place, out: &mut Vec<Token>) -> Result<()> {
    let error = |what: String| Error { place: place.clone(), what };
    let mut rest = line.trim_start();
    while let Some(first) = rest.chars().next() {
        let (kind, len) = if first.is_ascii_digit() {
            number(rest).map_err(error)?
        } else if is_word(first) {
            let len = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
            (Kind::Word(rest[..len].to_owned()), len)
        } else if first == '"' || first == '\'' {
            let len = literal_len(rest, first).ok_or_else(|| error("unfinished literal".to_owned()))?;
            (Kind::Other(rest[..len].to_owned()), len)
        } else if let Some(mark) = MARKS.into_iter().find(|mark| rest.starts_with(mark)) {
            (Kind::Mark(mark), mark.len())
        } else if first == '.' {
            (Kind::Other(".".to_owned()), 1)
        } else {
            return Err(error(format!("`{}` starts no C token", first.escape_default())));
        };
        out.push(Token { kind, place: place.clone() });
        rest = rest[len..].trim_start();
    }
    Ok(())
}

/// Bytes of a string or character literal, quotes included.
fn literal_len(text: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return Some(at + c.len_utf8()),
            _ => {}
        }
    }
    None
}

/// An integer with base and suffix; a floating literal is [`Kind::Other`].
fn number(text: &str) -> std::result::Result<(Kind, usize), String> {
    let len = text.find(|c: char| !is_word(c) && c != '.').unwrap_or(text.len());
    let literal = &text[..len];
    let lower = literal.to_ascii_lowercase();
    let hexadecimal = lower.strip_prefix("0x");
    let digits_and_suffix = hexadecimal.unwrap_or(&lower);
    let digits = digits_and_suffix.trim_end_matches(['u', 'l']);
    let suffix = &digits_and_suffix[digits.len()..];
    if literal.contains('.') || (hexadecimal.is_none() && digits.contains(['e', 'f'])) {
        return Ok((Kind::Other(literal.to_owned()), len));
    }
    let radix = match hexadecimal {
        Some(_) => 16,
        None if digits.len() > 1 && digits.starts_with('0') => 8,
        None => 10,
    };
    let value = u64::from_str_radix(digits, radix).map_err(|error| format!("`{literal}`: {error}"))?;
    Ok((Kind::Int { value, unsigned: suffix.contains('u') }, len))
}
