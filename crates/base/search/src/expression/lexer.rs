//! The words of an expression.

use super::{Fault, MOST_BYTES};

/// A word.
#[derive(Clone, Debug, PartialEq)]
pub enum Word {
    Int(i64),
    Float(f64),
    Text(String),
    /// A name, with its dots: `math.sqrt`.
    Name(String),
    /// An operator or bracket.
    Sign(&'static str),
    End,
}

/// Operators and brackets; longer ones first.
const SIGNS: [&str; 31] = [
    "**", "//", "<=", ">=", "==", "!=", "<<", ">>", ":=", "->", "<", ">", "+", "-", "*", "/", "%", "&", "|",
    "^", "~", "(", ")", "[", "]", "{", "}", ",", ":", "=", ".",
];

/// The words of a text, each with its column; the last one is [`Word::End`].
pub fn words(text: &str) -> Result<Vec<(Word, usize)>, Fault> {
    if text.len() > MOST_BYTES {
        return Err(Fault { what: format!("more than {MOST_BYTES} bytes"), column: 0 });
    }
    let characters: Vec<char> = text.chars().collect();
    let (mut words, mut at) = (Vec::new(), 0);
    while let Some(&first) = characters.get(at) {
        let column = at + 1;
        if first.is_ascii_whitespace() {
            at += 1;
            continue;
        }
        let (word, length) = word(&characters[at..]).map_err(|what| Fault { what, column })?;
        words.push((word, column));
        at += length;
    }
    words.push((Word::End, characters.len() + 1));
    Ok(words)
}

/// The word that a text begins with, and its length.
fn word(text: &[char]) -> Result<(Word, usize), String> {
    let first = text[0];
    if first.is_ascii_digit() || (first == '.' && text.get(1).is_some_and(char::is_ascii_digit)) {
        return number(text);
    }
    if first == '"' || first == '\'' {
        return quoted(text);
    }
    if is_of_name(first) {
        let length = text.iter().take_while(|&&c| is_of_name(c) || c.is_ascii_digit() || c == '.').count();
        return Ok((Word::Name(text[..length].iter().collect()), length));
    }
    let begins = |sign: &&str| sign.chars().eq(text.iter().copied().take(sign.len()));
    match SIGNS.into_iter().find(begins) {
        Some(sign) => Ok((Word::Sign(sign), sign.len())),
        None => Err(format!("unexpected {first:?}")),
    }
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_'
}

fn number(text: &[char]) -> Result<(Word, usize), String> {
    let mut length = 0;
    while let Some(&c) = text.get(length) {
        let is_sign_of_exponent = matches!(c, '+' | '-') && matches!(text[length - 1], 'e' | 'E');
        if !(c.is_ascii_alphanumeric() || c == '.' || is_sign_of_exponent) {
            break;
        }
        length += 1;
    }
    let digits: String = text[..length].iter().collect();
    if digits.bytes().all(|c| c.is_ascii_digit()) {
        let int = digits.parse().map_err(|_| format!("the integer {digits} is beyond 63 bits"))?;
        return Ok((Word::Int(int), length));
    }
    let is_plain =
        digits.bytes().all(|c| c.is_ascii_digit() || matches!(c, b'.' | b'e' | b'E' | b'+' | b'-'));
    match digits.parse::<f64>() {
        Ok(float) if is_plain && float.is_finite() => Ok((Word::Float(float), length)),
        _ => Err(format!("{digits} is no decimal number")),
    }
}

fn quoted(text: &[char]) -> Result<(Word, usize), String> {
    let inside = text[1..].iter().take_while(|&&c| c != text[0] && c != '\\').count();
    match text.get(inside + 1) {
        Some('\\') => Err("a text has a backslash, which is not supported".to_owned()),
        Some(_) => Ok((Word::Text(text[1..=inside].iter().collect()), inside + 2)),
        None => Err("a text does not end".to_owned()),
    }
}
