//! JSON in pieces: a stream is split into values without holding more than one of them, and a value
//! is read member by member.
//!
//! Splitting only counts braces outside of strings, so it runs at the speed of memory; whether a
//! value makes sense is seen when it is read. Text need not be UTF-8.

use std::borrow::Cow;
use std::io::{self, Read};

/// Bytes of one value, at most.
const MOST_VALUE: usize = 16 << 20;
const BLOCK: usize = 1 << 18;
/// The mark of UTF-8 at the beginning of some files.
pub const BOM: &[u8] = b"\xef\xbb\xbf";
/// Nesting that is read, at most.
const MOST_DEPTH: usize = 128;

/// A stream of JSON.
pub struct Splitter<R> {
    input: R,
    buffer: Vec<u8>,
    /// The part of the buffer that is not taken yet.
    at: usize,
    filled: usize,
    /// Bytes before the buffer.
    passed: u64,
    /// Error that ended the stream early: a read that failed (a cut gzip file).
    pub failure: Option<io::Error>,
}

/// Reason for which no value came.
#[derive(Debug, PartialEq, Eq)]
pub enum Stop {
    /// The stream ended inside a value.
    Cut,
    /// A value is longer than what is read.
    TooLong,
}

impl<R: Read> Splitter<R> {
    /// A splitter of this input.
    pub fn new(input: R) -> Self {
        Self { input, buffer: vec![0; 2 * BLOCK], at: 0, filled: 0, passed: 0, failure: None }
    }

    /// Bytes that were taken.
    pub fn position(&self) -> u64 {
        self.passed + self.at as u64
    }

    /// Reads more; false at the end.
    fn fill(&mut self) -> bool {
        if self.failure.is_some() {
            return false;
        }
        if self.at > 0 {
            self.buffer.copy_within(self.at..self.filled, 0);
            self.passed += self.at as u64;
            self.filled -= self.at;
            self.at = 0;
        }
        if self.buffer.len() - self.filled < BLOCK {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        loop {
            match self.input.read(&mut self.buffer[self.filled..]) {
                Ok(count) => {
                    self.filled += count;
                    return count > 0;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.failure = Some(error);
                    return false;
                }
            }
        }
    }

    /// The next byte that is no white space, which is not taken; `None` at the end.
    pub fn peek(&mut self) -> Option<u8> {
        loop {
            let rest = &self.buffer[self.at..self.filled];
            if let Some(skip) = rest.iter().position(|byte| !byte.is_ascii_whitespace()) {
                self.at += skip;
                return Some(self.buffer[self.at]);
            }
            self.at = self.filled;
            if !self.fill() {
                return None;
            }
        }
    }

    /// Passes the mark of UTF-8, with which some editors begin a file.
    pub fn skip_bom(&mut self) {
        if self.peek() == Some(BOM[0]) && self.buffer[self.at..self.filled].starts_with(BOM) {
            self.at += BOM.len();
        }
    }

    /// Passes everything up to the end.
    pub fn drain(&mut self) {
        while self.peek().is_some() {
            self.at = self.filled;
        }
    }

    /// Takes the next byte that is no white space, if it is this one.
    pub fn take(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    /// The next value, whole.
    pub fn value(&mut self) -> Result<&[u8], Stop> {
        let first = self.peek().ok_or(Stop::Cut)?;
        let mut scan = Scan { at: 0, depth: 0, in_text: false };
        loop {
            let rest = &self.buffer[self.at..self.filled];
            let done = match first {
                b'{' | b'[' | b'"' => scan.nested(rest),
                _ => scan.plain(rest),
            };
            if let Some(length) = done {
                let begin = self.at;
                self.at += length;
                return Ok(&self.buffer[begin..begin + length]);
            }
            if self.filled - self.at > MOST_VALUE {
                return Err(Stop::TooLong);
            }
            if !self.fill() {
                let is_plain = !matches!(first, b'{' | b'[' | b'"');
                let begin = self.at;
                self.at = self.filled;
                return if is_plain { Ok(&self.buffer[begin..self.filled]) } else { Err(Stop::Cut) };
            }
        }
    }
}

impl<R: Read> Splitter<R> {
    /// Passes over the next value, however long it is.
    pub fn skip(&mut self) -> Result<(), Stop> {
        let first = self.peek().ok_or(Stop::Cut)?;
        if !matches!(first, b'{' | b'[' | b'"') {
            return self.value().map(|_| ());
        }
        let mut scan = Scan { at: 0, depth: 0, in_text: false };
        loop {
            if let Some(length) = scan.nested(&self.buffer[self.at..self.filled]) {
                self.at += length;
                return Ok(());
            }
            self.at += std::mem::take(&mut scan.at);
            if !self.fill() {
                return Err(Stop::Cut);
            }
        }
    }
}

/// The way through a value whose end has not been seen yet.
struct Scan {
    at: usize,
    depth: usize,
    in_text: bool,
}

impl Scan {
    /// The length of a text, list or object, if it ends here.
    fn nested(&mut self, bytes: &[u8]) -> Option<usize> {
        while self.at < bytes.len() {
            if self.in_text {
                match memchr::memchr2(b'"', b'\\', &bytes[self.at..]) {
                    Some(skip) if bytes[self.at + skip] == b'\\' => {
                        if self.at + skip + 1 >= bytes.len() {
                            self.at += skip;
                            return None;
                        }
                        self.at += skip + 2;
                    }
                    Some(skip) => {
                        self.at += skip + 1;
                        self.in_text = false;
                        if self.depth == 0 {
                            return Some(self.at);
                        }
                    }
                    None => {
                        self.at = bytes.len();
                        return None;
                    }
                }
                continue;
            }
            let byte = bytes[self.at];
            self.at += 1;
            match byte {
                b'"' => self.in_text = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        return Some(self.at);
                    }
                }
                _ => {}
            }
        }
        None
    }

    /// The length of a number or word, if it ends here.
    fn plain(&mut self, bytes: &[u8]) -> Option<usize> {
        let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']') || byte.is_ascii_whitespace();
        let end = bytes[self.at..].iter().position(ends).map(|skip| self.at + skip);
        self.at = bytes.len();
        end
    }
}

/// A position in a value.
pub struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    depth: usize,
}

/// A value makes no sense here.
#[derive(Debug, PartialEq, Eq)]
pub struct Damage;

impl<'a> Cursor<'a> {
    /// The start of a value.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, depth: 0 }
    }

    fn peek(&mut self) -> Option<u8> {
        while let Some(&byte) = self.bytes.get(self.at) {
            if !byte.is_ascii_whitespace() {
                return Some(byte);
            }
            self.at += 1;
        }
        None
    }

    fn take(&mut self, byte: u8) -> Result<(), Damage> {
        if self.peek() == Some(byte) {
            self.at += 1;
            return Ok(());
        }
        Err(Damage)
    }

    /// Whether the next value is of this kind, by its first byte.
    pub fn is(&mut self, first: u8) -> bool {
        self.peek() == Some(first)
    }

    /// Hands each member of an object to `member`, which reads its value.
    pub fn object(
        &mut self,
        mut member: impl FnMut(&[u8], &mut Self) -> Result<(), Damage>,
    ) -> Result<(), Damage> {
        self.enter(b'{')?;
        while self.peek() != Some(b'}') {
            let key = self.raw_text()?;
            self.take(b':')?;
            member(key, self)?;
            if self.peek() == Some(b',') {
                self.at += 1;
            } else if self.peek() != Some(b'}') {
                return Err(Damage);
            }
        }
        self.leave()
    }

    /// Hands each item of a list to `item`, which reads it.
    pub fn list(&mut self, mut item: impl FnMut(&mut Self) -> Result<(), Damage>) -> Result<(), Damage> {
        self.enter(b'[')?;
        while self.peek() != Some(b']') {
            item(self)?;
            if self.peek() == Some(b',') {
                self.at += 1;
            } else if self.peek() != Some(b']') {
                return Err(Damage);
            }
        }
        self.leave()
    }

    fn enter(&mut self, byte: u8) -> Result<(), Damage> {
        self.take(byte)?;
        self.depth += 1;
        if self.depth > MOST_DEPTH { Err(Damage) } else { Ok(()) }
    }

    fn leave(&mut self) -> Result<(), Damage> {
        self.at += 1;
        self.depth -= 1;
        Ok(())
    }

    /// The bytes between the quotes of a text, as they are.
    pub fn raw_text(&mut self) -> Result<&'a [u8], Damage> {
        self.take(b'"')?;
        let begin = self.at;
        loop {
            let skip = memchr::memchr2(b'"', b'\\', &self.bytes[self.at..]).ok_or(Damage)?;
            self.at += skip;
            if self.bytes[self.at] == b'"' {
                self.at += 1;
                return Ok(&self.bytes[begin..self.at - 1]);
            }
            self.at = (self.at + 2).min(self.bytes.len());
        }
    }

    /// A text; `None`, and passed, for anything else.
    pub fn text_if_any(&mut self) -> Result<Option<Cow<'a, str>>, Damage> {
        if self.is(b'"') { self.text().map(Some) } else { self.skip().map(|()| None) }
    }

    /// A text.
    pub fn text(&mut self) -> Result<Cow<'a, str>, Damage> {
        Ok(unescaped(self.raw_text()?))
    }

    /// The digits of a number, as they are; also of one in quotes.
    pub fn number(&mut self) -> Result<&'a [u8], Damage> {
        if self.is(b'"') {
            return self.raw_text();
        }
        let begin = self.at;
        let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'.' | b'-' | b'+' | b'e' | b'E');
        let length = self.bytes[begin..].iter().position(|byte| !is_part(byte));
        self.at = length.map_or(self.bytes.len(), |length| begin + length);
        if self.at == begin { Err(Damage) } else { Ok(&self.bytes[begin..self.at]) }
    }

    /// A number, as a whole one that is not negative; `None` for any other.
    pub fn whole(&mut self) -> Result<Option<u64>, Damage> {
        if matches!(self.peek(), Some(b'n' | b't' | b'f' | b'{' | b'[')) {
            self.skip()?;
            return Ok(None);
        }
        Ok(whole(self.number()?))
    }

    /// Passes over a value.
    pub fn skip(&mut self) -> Result<(), Damage> {
        match self.peek().ok_or(Damage)? {
            b'"' => self.raw_text().map(|_| ()),
            b'{' | b'[' => {
                let mut scan = Scan { at: 0, depth: 0, in_text: false };
                self.at += scan.nested(&self.bytes[self.at..]).ok_or(Damage)?;
                Ok(())
            }
            _ => {
                let mut scan = Scan { at: 0, depth: 0, in_text: false };
                let length = scan.plain(&self.bytes[self.at..]).unwrap_or(self.bytes.len() - self.at);
                self.at += length;
                if length == 0 { Err(Damage) } else { Ok(()) }
            }
        }
    }
}

/// Digits as a whole number that is not negative.
pub fn whole(digits: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(digits).ok()?;
    text.parse()
        .ok()
        .or_else(|| crate::decimal::scaled(digits, 0).and_then(|value| u64::try_from(value).ok()))
}

/// A text without its escapes.
pub fn unescaped(raw: &[u8]) -> Cow<'_, str> {
    if memchr::memchr(b'\\', raw).is_none() {
        return String::from_utf8_lossy(raw);
    }
    let mut plain = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let [byte, after @ ..] = rest {
        rest = after;
        if *byte != b'\\' {
            plain.push(*byte);
            continue;
        }
        let [escape, after @ ..] = rest else { break };
        rest = after;
        match escape {
            b'n' => plain.push(b'\n'),
            b't' => plain.push(b'\t'),
            b'r' => plain.push(b'\r'),
            b'b' => plain.push(8),
            b'f' => plain.push(12),
            b'u' => {
                let (character, used) = code_point(rest);
                rest = &rest[used..];
                plain.extend(character.encode_utf8(&mut [0; 4]).as_bytes());
            }
            other => plain.push(*other),
        }
    }
    Cow::Owned(String::from_utf8_lossy(&plain).into_owned())
}

/// The character whose number follows `\u`, and the bytes that it takes.
fn code_point(rest: &[u8]) -> (char, usize) {
    let unit = |at: usize| {
        let digits = rest.get(at..at + 4).and_then(|digits| std::str::from_utf8(digits).ok());
        digits.and_then(|digits| u32::from_str_radix(digits, 16).ok())
    };
    let Some(first) = unit(0) else { return (char::REPLACEMENT_CHARACTER, 0) };
    let second = unit(6).filter(|_| rest.get(4..6) == Some(b"\\u"));
    match (first, second) {
        (0xd800..=0xdbff, Some(second @ 0xdc00..=0xdfff)) => {
            let joined = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
            (char::from_u32(joined).unwrap_or(char::REPLACEMENT_CHARACTER), 10)
        }
        _ => (char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER), 4),
    }
}
