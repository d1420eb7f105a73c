//! The layout of the interpreter's structures, by version.
//!
//! Up to 3.12 the structures are internal to a minor version and do not change within it: a table.
//! From 3.13 on the interpreter describes itself: `_PyRuntime` begins with a cookie, its version,
//! and offsets. Which offset stands where in that description depends on the minor version again,
//! so versions that were not tested are not read.

use crate::memory::{Memory, word_at};
use std::ffi::CStr;

/// Finds the address of a symbol by its name.
pub type Symbols<'s> = &'s dyn Fn(&CStr) -> Option<u64>;

/// The way from a thread's state to its innermost frame.
#[derive(Clone, Copy)]
pub enum Innermost {
    /// A pointer at this offset.
    At(usize),
    /// A pointer to a structure at the first offset, in it a pointer at the second.
    Through(usize, usize),
}

/// The form in which a frame gives the instruction that it executes.
#[derive(Clone, Copy)]
pub enum Instruction {
    /// Its number, in 32 bits: instructions of two bytes.
    Number(usize),
    /// Bytes behind the first one, in 32 bits.
    Bytes(usize),
    /// Its address, and how many bytes behind the code object's address the first one lies.
    Address(usize, u64),
}

/// The format of a code object's lines.
#[derive(Clone, Copy)]
pub enum LineFormat {
    /// `co_lnotab` of 3.9.
    Differences,
    /// `co_linetable` of 3.10.
    Pairs,
    /// `co_linetable` from 3.11 on.
    Locations,
}

/// The way from the interpreter to its threads and to its lock. Offsets in bytes. Offsets in bytes.
#[derive(Clone, Copy)]
pub struct Threads {
    /// In `_PyRuntime`: the first interpreter.
    pub interpreters: usize,
    /// In an interpreter: the next one.
    pub next_interpreter: usize,
    /// In an interpreter: its first thread's state.
    pub first: usize,
    /// In a thread's state: that of the next thread.
    pub next: usize,
    /// In a thread's state: its `pthread_t`.
    pub pthread: usize,
    /// In a thread's state: the system's identifier of the thread, from 3.11 on.
    pub native: Option<usize>,
    pub gil: GilAt,
}

/// The place of the global lock.
#[derive(Clone, Copy)]
pub enum GilAt {
    /// In `_PyRuntime`, at this offset.
    Runtime(usize),
    /// A pointer in an interpreter, at this offset.
    Interpreter(usize),
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
    pub lines: LineFormat,
    /// Bytes in front of the characters of a string: of one in ASCII, and of any other.
    pub characters: [usize; 2],
    pub threads: Threads,
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

const OF_3_9: Layout = Layout {
    innermost: Innermost::At(24),
    previous: 24,
    executable: 32,
    instruction: Instruction::Bytes(104),
    owner: None,
    file: 104,
    function: 112,
    line_table: 120,
    first_line: 40,
    version: None,
    lines: LineFormat::Differences,
    characters: [48, 72],
    threads: Threads {
        interpreters: 32,
        next_interpreter: 0,
        first: 8,
        next: 8,
        pthread: 176,
        native: None,
        gil: GilAt::Runtime(352),
    },
};

const OF_3_10: Layout = Layout { instruction: Instruction::Number(96), lines: LineFormat::Pairs, ..OF_3_9 };

const OF_3_11: Layout = Layout {
    innermost: Innermost::Through(56, 8),
    previous: 48,
    executable: 32,
    instruction: Instruction::Address(56, 184),
    file: 112,
    function: 128,
    line_table: 136,
    first_line: 72,
    lines: LineFormat::Locations,
    threads: Threads {
        interpreters: 40,
        next_interpreter: 0,
        first: 16,
        next: 8,
        pthread: 152,
        native: Some(160),
        gil: GilAt::Runtime(360),
    },
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
    threads: Threads {
        first: 72,
        pthread: 136,
        native: Some(144),
        gil: GilAt::Interpreter(384),
        ..OF_3_11.threads
    },
    ..OF_3_11
};

/// Words of an interpreter's description of itself that are read, and what they begin with.
const DESCRIPTION_WORDS: usize = 88;
const COOKIE: u64 = u64::from_ne_bytes(*b"xdebugpy");

/// The positions in the description of the fields that are read: numbers of words.
struct Description {
    /// `ceval_gil`, an offset in an interpreter.
    gil: usize,
    /// Followed by `thread_id` and `native_thread_id`, and preceded by `next` and `interp`.
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
    Description { gil: 14, current_frame: 23, frame: 28, code: 34, object_type: 45, bytes: 64 };
const IN_3_14: Description =
    Description { gil: 15, current_frame: 26, frame: 31, code: 39, object_type: 51, bytes: 74 };

impl Layout {
    /// The version and the layout of the interpreter with these symbols; `None` for one that is not
    /// known.
    pub fn of(memory: &Memory, symbols: Symbols<'_>) -> Option<(u32, Layout)> {
        if symbols(c"PyModule_Create2TraceRefs").is_some() {
            return None; // its objects have two more words
        }
        let Some(version) = symbols(c"Py_Version") else {
            // `PyObject_CallNoArgs` is new in 3.9, `Py_NewRef` in 3.10, `Py_Version` in 3.11.
            return match (symbols(c"PyObject_CallNoArgs"), symbols(c"Py_NewRef")) {
                (_, Some(_)) => Some((0x030a_0000, OF_3_10)),
                (Some(_), None) => Some((0x0309_0000, OF_3_9)),
                (None, None) => None,
            };
        };
        let version = memory.word(version)?;
        let layout = match version >> 16 {
            0x30b => Some(OF_3_11),
            0x30c => Some(OF_3_12),
            0x30d => Layout::described(memory, symbols, version, &IN_3_13),
            0x30e => Layout::described(memory, symbols, version, &IN_3_14),
            _ => None,
        };
        Some((u32::try_from(version).ok()?, layout?))
    }

    /// The layout that the interpreter describes.
    fn described(
        memory: &Memory,
        symbols: Symbols<'_>,
        version: u64,
        places: &Description,
    ) -> Option<Layout> {
        let mut bytes = [0; 8 * DESCRIPTION_WORDS];
        let is_read = memory.read(symbols(c"_PyRuntime")?, &mut bytes);
        is_read.then(|| Layout::from_description(&bytes, version, places))?
    }

    fn from_description(bytes: &[u8], version: u64, places: &Description) -> Option<Layout> {
        let word = |at: usize| word_at(bytes, 8 * at);
        let is_free_threaded = word(2) != 0;
        if word(0) != COOKIE || word(1) != version || is_free_threaded {
            return None;
        }
        let offset = |at: usize| usize::try_from(word(at)).ok().filter(|&offset| offset < MOST_OFFSET);
        let Description { gil, current_frame, frame, code, object_type, bytes } = *places;
        // Interpreters are larger than what is read of other structures.
        let far = |at: usize| usize::try_from(word(at)).ok().filter(|&offset| offset < MOST_FAR_OFFSET);
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
            lines: LineFormat::Locations,
            characters: [ascii, ascii + 16],
            threads: Threads {
                interpreters: far(5)?,
                next_interpreter: far(8)?,
                first: far(9)?,
                next: far(current_frame - 2)?,
                pthread: far(current_frame + 1)?,
                native: Some(far(current_frame + 2)?),
                gil: GilAt::Interpreter(far(gil)?),
            },
        })
    }
}

/// Bound of offsets that are believed: structures that are read are smaller.
pub const MOST_OFFSET: usize = 160;

/// The same for interpreters and `_PyRuntime`.
const MOST_FAR_OFFSET: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the part of the description of 3.13.0 that is read.
    fn description() -> Vec<u64> {
        let mut words = vec![0; DESCRIPTION_WORDS];
        (words[0], words[1]) = (COOKIE, 0x30d_00f0);
        (words[5], words[8], words[9], words[14]) = (632, 7264, 7344, 16);
        (words[21], words[24], words[25]) = (8, 152, 160);
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
        let threads = layout.threads;
        assert_eq!((threads.interpreters, threads.first, threads.next), (632, 7344, 8));
        assert_eq!((threads.pthread, threads.native), (152, Some(160)));
        // The cookie, the version, the GIL, an object's type, and offsets far outside.
        for (word, value) in
            [(0, 1), (1, 0x30d_00f1), (2, 1), (45, 24), (30, 4096), (23, u64::MAX), (9, 1 << 40)]
        {
            let mut words = description();
            words[word] = value;
            assert!(read(&words).is_none(), "word {word}");
        }
    }
}
