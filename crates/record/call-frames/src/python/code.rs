//! Code objects of the interpreter, each copied once.
//!
//! An [`Identity`] distinguishes a code object from an earlier one at the same address: from Python
//! 3.12 on by its version number, which is unique, before that by the beginnings of its strings and
//! of its line table.

use super::Interpreter;
use super::layout::{BYTES, FORM, LENGTH, LineFormat, MOST_OFFSET, SIZE, TYPE};
use crate::memory::{half_at, word_at};
use apex_trace::python::LineTable;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Bytes of a code object that are read; all offsets lie within.
pub const HEAD_BYTES: usize = MOST_OFFSET;

/// Bytes of what a code object points to that tell it from others.
const SAMPLE_BYTES: usize = 160;

/// Most characters of a name that are kept.
const MOST_CHARACTERS: usize = 1024;

/// The fixed part of a code object, as far as it is used: addresses of strings and bytes, and
/// numbers.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Head {
    file: u64,
    function: u64,
    line_table: u64,
    first_line: u32,
    version: u32,
}

/// A code object, wherever it lay: two with the same identity are the same, or cannot be told apart
/// by what is shown.
pub type Identity = u128;

/// The part of a code object that is copied.
pub struct Code {
    /// `co_filename`.
    pub file: String,
    /// `co_qualname`, or `co_name` before 3.11.
    pub function: String,
    /// `co_firstlineno`.
    pub first_line: u32,
    /// Its lines.
    pub lines: LineTable,
}

impl Interpreter {
    /// The head of what may be a code object; `None` if it is of another type.
    pub(super) fn head(&self, bytes: &[u8; HEAD_BYTES]) -> Option<Head> {
        let layout = &self.layout;
        (word_at(bytes, TYPE) == self.code_type).then(|| Head {
            file: word_at(bytes, layout.file),
            function: word_at(bytes, layout.function),
            line_table: word_at(bytes, layout.line_table),
            first_line: half_at(bytes, layout.first_line),
            version: layout.version.map_or(0, |version| half_at(bytes, version)),
        })
    }

    /// Returns the identity of the code object at `address` among all others.
    pub fn identity(&self, address: u64, head: &Head) -> Identity {
        let contents = if head.version == 0 { self.sample(head) } else { [0; 3] };
        let half = |seed: u64| {
            let mut hasher = DefaultHasher::new();
            (seed, address, head, contents).hash(&mut hasher);
            u128::from(hasher.finish())
        };
        half(1) << 64 | half(2)
    }

    /// Digests of how file, function and line table begin.
    fn sample(&self, head: &Head) -> [u64; 3] {
        [head.file, head.function, head.line_table].map(|object| {
            let mut bytes = [0; SAMPLE_BYTES];
            let length = self.memory.read_some(object, &mut bytes);
            let bytes = &bytes[..length];
            let (size, begin) = if object == head.line_table {
                (word_at(bytes, SIZE), BYTES)
            } else {
                (word_at(bytes, LENGTH), self.text(bytes).map_or(length, |text| text.begin))
            };
            let end = begin.saturating_add(usize::try_from(size).unwrap_or(0)).min(length);
            let mut hasher = DefaultHasher::new();
            (size, bytes.get(begin..end)).hash(&mut hasher);
            hasher.finish()
        })
    }

    /// Copies what a code object says; what cannot be read is left empty. `None` if there is no
    /// memory for it.
    pub fn copy(&self, head: &Head) -> Option<Code> {
        Some(Code {
            file: self.string(head.file)?,
            function: self.string(head.function)?,
            first_line: head.first_line,
            lines: self.lines(head.line_table)?,
        })
    }

    fn lines(&self, object: u64) -> Option<LineTable> {
        let mut head = [0; BYTES];
        if !self.memory.read(object, &mut head) {
            return Some(LineTable::Unknown);
        }
        let size = usize::try_from(word_at(&head, SIZE)).unwrap_or(0).min(LineTable::MOST_BYTES);
        let mut bytes = zeros(size)?;
        let is_read = self.memory.read(object.wrapping_add(BYTES as u64), &mut bytes);
        // An empty table of 3.9 says that all instructions belong to the first line.
        if !is_read || size == 0 && !matches!(self.layout.lines, LineFormat::Differences) {
            return Some(LineTable::Unknown);
        }
        Some(match self.layout.lines {
            LineFormat::Differences => LineTable::Differences(bytes),
            LineFormat::Pairs => LineTable::Pairs(bytes),
            LineFormat::Locations => LineTable::Locations(bytes),
        })
    }

    fn string(&self, object: u64) -> Option<String> {
        let mut head = [0; FORM + 8];
        if !self.memory.read(object, &mut head) {
            return Some(String::new());
        }
        let Some(text) = self.text(&head) else { return Some(String::new()) };
        let count = usize::try_from(word_at(&head, LENGTH)).unwrap_or(0).min(MOST_CHARACTERS);
        let mut bytes = zeros(count * text.width)?;
        if !self.memory.read(object.wrapping_add(text.begin as u64), &mut bytes) {
            return Some(String::new());
        }
        let mut string = String::new();
        string.try_reserve_exact(count * 4).ok()?;
        for character in bytes.chunks_exact(text.width) {
            let mut code = [0; 4];
            code[..text.width].copy_from_slice(character);
            string.push(char::from_u32(u32::from_le_bytes(code)).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        Some(string)
    }

    /// The form of a string whose object begins with `bytes`; `None` if its characters lie
    /// elsewhere.
    fn text(&self, bytes: &[u8]) -> Option<Text> {
        let form = half_at(bytes, FORM);
        let (width, is_compact, is_ascii) = (form >> 2 & 7, form & 1 << 5 != 0, form & 1 << 6 != 0);
        let begin = self.layout.characters[usize::from(!is_ascii)];
        (is_compact && matches!(width, 1 | 2 | 4)).then_some(Text { begin, width: width as usize })
    }
}

/// The place of a string's characters.
struct Text {
    /// Bytes in front of them.
    begin: usize,
    /// Bytes of one.
    width: usize,
}

fn zeros(count: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(count).ok()?;
    bytes.resize(count, 0);
    Some(bytes)
}
