//! Where the interpreter keeps what is read, by version.
//!
//! Up to 3.12 the structures are internal to a minor version and do not change within it: a table.
//! From 3.13 on the interpreter describes itself: `_PyRuntime` begins with a cookie, its version,
//! and offsets. Which offset stands where in that description depends on the minor version again,
//! so versions that were not tested are not read.

use super::scope::Scope;
use crate::memory::{Memory, word_at};

/// How a thread's state leads to its innermost frame.
#[derive(Clone, Copy)]
pub enum Innermost {
    /// A pointer at this offset.
    At(usize),
    /// A pointer to a structure at the first offset, in it a pointer at the second.
    Through(usize, usize),
}

/// What a frame tells of the instruction that it executes.
#[derive(Clone, Copy)]
pub enum Instruction {
    /// Its number, in 32 bits: instructions of two bytes.
    Number(usize),
    /// Its address, and how many bytes behind the code object's address the first one lies.
    Address(usize, u64),
}

/// Offsets in bytes.
#[derive(Clone, Copy)]
pub struct Layout {
    pub innermost: Innermost,
    /// In a frame: the frame that called it.
    pub previous: usize,
    /// In a frame: its code object, or what it executes instead.
    pub executable: usize,
    pub instruction: Instruction,
    /// In a frame: the byte that tells who owns it. From 3 on it is no Python frame.
    pub owner: Option<usize>,
    /// In a code object: `co_filename`.
    pub file: usize,
    /// `co_qualname`, or `co_name`.
    pub function: usize,
    pub line_table: usize,
    pub first_line: usize,
    /// `co_version`, a number that no other code object has had.
    pub version: Option<usize>,
    /// Whether the line table is of the format of 3.10.
    pub lines_are_pairs: bool,
    /// Bytes in front of the characters of a string: of one in ASCII, and of any other.
    pub characters: [usize; 2],
}

/// In an object: its type.
pub const TYPE: usize = 8;
/// In a string: its length.
pub const LENGTH: usize = 16;
/// In a string: its form. Two bits tell whether it is interned, three the bytes of a character,
/// then one each whether the characters follow in the same piece of memory, and whether it is
/// ASCII.
pub const FORM: usize = 32;
/// In an object of bytes: how many.
pub const SIZE: usize = 16;
/// In an object of bytes: the first one.
pub const BYTES: usize = 32;

const OF_3_10: Layout = Layout {
    innermost: Innermost::At(24),
    previous: 24,
    executable: 32,
    instruction: Instruction::Number(96),
    owner: None,
    file: 104,
    function: 112,
    line_table: 120,
    first_line: 40,
    version: None,
    lines_are_pairs: true,
    characters: [48, 72],
};

const OF_3_11: Layout = Layout {
    innermost: Innermost::Through(56, 8),
    previous: 48,
    executable: 32,
    instruction: Instruction::Address(56, 184),
    file: 112,
    function: 128,
    line_table: 136,
    first_line: 72,
    lines_are_pairs: false,
    ..OF_3_10
};

const OF_3_12: Layout = Layout {
    innermost: Innermost::Through(56, 0),
    previous: 8,
    executable: 0,
    instruction: Instruction::Address(56, 192),
    owner: Some(70),
    first_line: 68,
    version: Some(92),
    characters: [40, 56],
    ..OF_3_11
};

/// Words of an interpreter's description of itself that are read, and what they begin with.
const DESCRIPTION_WORDS: usize = 88;
const COOKIE: u64 = u64::from_ne_bytes(*b"xdebugpy");

/// Where what is read stands in the description: numbers of words.
struct Description {
    current_frame: usize,
    /// The first word about frames: `size`, `previous`, `executable`, `instr_ptr`, `localsplus`,
    /// `owner`.
    frame: usize,
    /// The first word about code objects: `size`, `filename`, `name`, `qualname`, `linetable`,
    /// `firstlineno`, and `co_code_adaptive` as the tenth.
    code: usize,
    object_type: usize,
    /// The first word about objects of bytes, and then strings: `size`, `ob_size`, `ob_sval`,
    /// `size`, `state`, `length`, `asciiobject_size`.
    bytes: usize,
}

const IN_3_13: Description =
    Description { current_frame: 23, frame: 28, code: 34, object_type: 45, bytes: 64 };
const IN_3_14: Description =
    Description { current_frame: 26, frame: 31, code: 39, object_type: 51, bytes: 74 };

impl Layout {
    /// The layout of the interpreter in this process; `None` for one that is not known.
    pub fn of(scope: Scope, memory: &Memory) -> Option<Layout> {
        if scope.symbol(c"PyModule_Create2TraceRefs").is_some() {
            return None; // its objects have two more words
        }
        let Some(version) = scope.symbol(c"Py_Version") else {
            // `Py_NewRef` is new in 3.10, `Py_Version` in 3.11.
            return scope.symbol(c"Py_NewRef").and(Some(OF_3_10));
        };
        let version = memory.word(version as u64)?;
        match version >> 16 {
            0x30b => Some(OF_3_11),
            0x30c => Some(OF_3_12),
            0x30d => Layout::described(scope, memory, version, &IN_3_13),
            0x30e => Layout::described(scope, memory, version, &IN_3_14),
            _ => None,
        }
    }

    /// The layout that the interpreter describes.
    fn described(scope: Scope, memory: &Memory, version: u64, places: &Description) -> Option<Layout> {
        let mut bytes = [0; 8 * DESCRIPTION_WORDS];
        let is_read = memory.read(scope.symbol(c"_PyRuntime")? as u64, &mut bytes);
        is_read.then(|| Layout::from_description(&bytes, version, places))?
    }

    fn from_description(bytes: &[u8], version: u64, places: &Description) -> Option<Layout> {
        let word = |at: usize| word_at(bytes, 8 * at);
        let is_free_threaded = word(2) != 0;
        if word(0) != COOKIE || word(1) != version || is_free_threaded {
            return None;
        }
        let offset = |at: usize| usize::try_from(word(at)).ok().filter(|&offset| offset < MOST_OFFSET);
        let Description { current_frame, frame, code, object_type, bytes } = *places;
        let objects = [object_type, bytes + 1, bytes + 2, bytes + 4, bytes + 5].map(word);
        if objects != [TYPE, SIZE, BYTES, FORM, LENGTH].map(|offset| offset as u64) {
            return None;
        }
        let ascii = offset(bytes + 6)?;
        let (file, first_line) = (offset(code + 1)?, offset(code + 5)?);
        Some(Layout {
            innermost: Innermost::At(offset(current_frame)?),
            previous: offset(frame + 1)?,
            executable: offset(frame + 2)?,
            instruction: Instruction::Address(offset(frame + 3)?, word(code + 9)),
            owner: Some(offset(frame + 5)?),
            file,
            function: offset(code + 3)?,
            line_table: offset(code + 4)?,
            first_line,
            // It is not described, but lies between the two.
            version: OF_3_12.version.filter(|_| (file, first_line) == (OF_3_12.file, OF_3_12.first_line)),
            lines_are_pairs: false,
            characters: [ascii, ascii + 16],
        })
    }
}

/// Bound of offsets that are believed: structures that are read are smaller.
pub const MOST_OFFSET: usize = 160;

#[cfg(test)]
mod tests {
    use super::*;

    /// What 3.13.0 says of itself, as far as it is read.
    fn description() -> Vec<u64> {
        let mut words = vec![0; DESCRIPTION_WORDS];
        (words[0], words[1]) = (COOKIE, 0x30d_00f0);
        words[23] = 72;
        words[28..34].copy_from_slice(&[88, 8, 0, 56, 72, 70]);
        words[34..44].copy_from_slice(&[208, 112, 120, 128, 136, 68, 52, 96, 104, 200]);
        words[45] = 8;
        words[64..71].copy_from_slice(&[40, 16, 32, 64, 32, 16, 40]);
        words
    }

    fn read(words: &[u64]) -> Option<Layout> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        Layout::from_description(&bytes, 0x30d_00f0, &IN_3_13)
    }

    #[test]
    fn a_description_is_believed_only_if_it_is_sound() {
        let layout = read(&description()).expect("a sound description");
        assert!(matches!(layout.innermost, Innermost::At(72)));
        assert!(matches!(layout.instruction, Instruction::Address(56, 200)));
        assert_eq!((layout.file, layout.function, layout.line_table), (112, 128, 136));
        assert_eq!((layout.version, layout.characters), (Some(92), [40, 56]));
        // The cookie, the version, the GIL, an object's type, and offsets far outside.
        for (word, value) in [(0, 1), (1, 0x30d_00f1), (2, 1), (45, 24), (30, 4096), (23, u64::MAX)] {
            let mut words = description();
            words[word] = value;
            assert!(read(&words).is_none(), "word {word}");
        }
    }
}
