//! Code objects of the Python interpreter: the line that an instruction belongs to.
//!
//! The recorder copies a code object's line table as the interpreter holds it, once; it is decoded
//! here, by those who read. There are three formats: differences of addresses and lines (CPython
//! 3.9), pairs of bytes (3.10, PEP 626) and location entries (3.11 and later, PEP 657). Any bytes
//! are a table: one that makes no sense gives no line.

/// A code object: a function, a module's or class's body, an expression that is evaluated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PythonCode {
    /// Its identifier.
    pub id: u32,
    /// `co_filename`: a path, or a name such as `<string>` where the code has no file.
    pub file: String,
    /// `co_qualname`, or `co_name` before CPython 3.11.
    pub function: String,
    /// `co_firstlineno`.
    pub first_line: u32,
    /// Its lines.
    pub lines: LineTable,
}

/// `co_linetable`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LineTable {
    /// It was not read, or is of a format that this version does not know.
    #[default]
    Unknown,
    /// CPython 3.10: a byte of instruction bytes and a signed byte of lines, alternately.
    Pairs(Vec<u8>),
    /// CPython 3.11 and later: entries that begin with a byte whose highest bit is set.
    Locations(Vec<u8>),
    /// CPython 3.9, `co_lnotab`: a byte of instruction bytes and a signed byte of lines from one
    /// entry to the next, alternately.
    Differences(Vec<u8>),
}

impl LineTable {
    /// Longest table that a session file holds, bytes. A longer one is cut, and
    /// later lines are not known.
    pub const MOST_BYTES: usize = 128 * 1024;

    /// The table of a format, by its number in files.
    pub(crate) fn from_parts(format: u32, bytes: Vec<u8>) -> LineTable {
        match format {
            1 => LineTable::Pairs(bytes),
            2 => LineTable::Locations(bytes),
            3 => LineTable::Differences(bytes),
            _ => LineTable::Unknown,
        }
    }

    pub(crate) fn format(&self) -> u32 {
        match self {
            LineTable::Unknown => 0,
            LineTable::Pairs(_) => 1,
            LineTable::Locations(_) => 2,
            LineTable::Differences(_) => 3,
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            LineTable::Unknown => &[],
            LineTable::Pairs(bytes) | LineTable::Locations(bytes) | LineTable::Differences(bytes) => bytes,
        }
    }
}

impl PythonCode {
    /// The line of the instruction `offset` bytes after the first one; `None` where the table does
    /// not tell. An instruction before the first one belongs to the first line.
    pub fn line(&self, offset: i32) -> Option<u32> {
        let first = i64::from(self.first_line);
        let line = match (&self.lines, u64::try_from(offset)) {
            (LineTable::Unknown, _) => None,
            (_, Err(_)) => Some(first),
            (LineTable::Differences(bytes), Ok(offset)) => Some(line_of_differences(bytes, first, offset)),
            (LineTable::Pairs(bytes), Ok(offset)) => line_of_pairs(bytes, first, offset),
            (LineTable::Locations(bytes), Ok(offset)) => line_of_locations(bytes, first, offset),
        };
        line.and_then(|line| u32::try_from(line).ok()).filter(|&line| line > 0)
    }
}

/// In place of a difference of lines: the instructions belong to no line.
const NO_LINE: i8 = -128;

fn line_of_pairs(bytes: &[u8], first: i64, offset: u64) -> Option<i64> {
    let (mut line, mut end) = (first, 0);
    for pair in bytes.chunks_exact(2) {
        let difference = pair[1] as i8;
        end += u64::from(pair[0]);
        if difference != NO_LINE {
            line += i64::from(difference);
        }
        if offset < end {
            return (difference != NO_LINE).then_some(line);
        }
    }
    None
}

fn line_of_differences(bytes: &[u8], first: i64, offset: u64) -> i64 {
    let (mut line, mut begin) = (first, 0);
    for pair in bytes.chunks_exact(2) {
        begin += u64::from(pair[0]);
        if begin > offset {
            break;
        }
        line += i64::from(pair[1] as i8);
    }
    line
}

/// Bytes of a code unit, in which location entries count instructions.
const CODE_UNIT_BYTES: u64 = 2;

fn line_of_locations(bytes: &[u8], first: i64, offset: u64) -> Option<i64> {
    let (mut line, mut end) = (first, 0);
    let mut rest = bytes;
    while let [head, after @ ..] = rest {
        let more = after.iter().position(|byte| byte & 0x80 != 0).unwrap_or(after.len());
        let (operands, next) = after.split_at(more);
        rest = next;
        if head & 0x80 == 0 {
            return None;
        }
        let (kind, units) = (head >> 3 & 15, u64::from(head & 7) + 1);
        let difference = match kind {
            // 15: no location. 13 and 14: a signed number comes first. 10 to 12: up to two lines
            // further.
            15 => None,
            13 | 14 => Some(signed(operands)),
            10..=12 => Some(i64::from(kind) - 10),
            _ => Some(0),
        };
        line = line.saturating_add(difference.unwrap_or(0));
        end += units * CODE_UNIT_BYTES;
        if offset < end {
            return difference.map(|_| line);
        }
    }
    None
}

/// A number in groups of six bits, the lowest first, all but the last marked with 0x40; its lowest
/// bit is the sign.
fn signed(bytes: &[u8]) -> i64 {
    let (mut value, mut shift) = (0u64, 0);
    for byte in bytes {
        value |= u64::from(byte & 63).checked_shl(shift).unwrap_or(0);
        shift += 6;
        if byte & 0x40 == 0 {
            break;
        }
    }
    let magnitude = (value >> 1) as i64;
    if value & 1 == 1 { -magnitude } else { magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(first_line: u32, lines: LineTable) -> PythonCode {
        PythonCode { id: 1, first_line, lines, ..PythonCode::default() }
    }

    // Of `def f(n):\n for i in range(n):\n  g(i,\n   i)\n return n` from line 5 on: what two
    // interpreters give as `co_linetable`, and as `(offset, offset after, line)` by `co_lines`.
    const PAIRS: &[u8] = &[12, 1, 4, 1, 2, 1, 6, 255, 4, 2];
    const OF_PAIRS: [(i32, i32, u32); 5] = [(0, 12, 6), (12, 16, 7), (16, 18, 8), (18, 24, 7), (24, 28, 9)];
    const LOCATIONS: &[u8] = &[
        128, 0, 220, 10, 15, 144, 1, 139, 40, 242, 0, 2, 2, 6, 128, 81, 220, 2, 3, 128, 65, 216, 3, 4, 245,
        3, 1, 3, 6, 240, 3, 2, 2, 6, 240, 6, 0, 9, 10, 128, 24,
    ];
    const OF_LOCATIONS: [(i32, i32, u32); 7] =
        [(0, 2, 5), (2, 30, 6), (30, 42, 7), (42, 44, 8), (44, 56, 7), (56, 58, 6), (58, 62, 9)];

    const DIFFERENCES: &[u8] = &[0, 1, 12, 1, 4, 1, 2, 255, 6, 2];
    const OF_DIFFERENCES: [(i32, u32); 5] = [(0, 6), (12, 7), (16, 8), (18, 7), (24, 9)];

    fn check(code: &PythonCode, ranges: &[(i32, i32, u32)]) {
        for &(from, to, line) in ranges {
            for offset in (from..to).step_by(2) {
                assert_eq!(code.line(offset), Some(line), "offset {offset}");
            }
        }
        let end = ranges.iter().map(|range| range.1).max().unwrap();
        assert_eq!((code.line(-2), code.line(end)), (Some(5), None));
    }

    #[test]
    fn tables_of_interpreters_give_their_lines() {
        check(&code(5, LineTable::Pairs(PAIRS.to_vec())), &OF_PAIRS);
        check(&code(5, LineTable::Locations(LOCATIONS.to_vec())), &OF_LOCATIONS);
        assert_eq!(code(5, LineTable::Unknown).line(0), None);
    }

    #[test]
    fn a_table_of_3_9_gives_its_lines() {
        // The same function by CPython 3.9: what `co_lnotab` and `dis.findlinestarts` give.
        let code = code(5, LineTable::Differences(DIFFERENCES.to_vec()));
        let mut line = 5;
        for offset in (0..30).step_by(2) {
            line = OF_DIFFERENCES.iter().find(|start| start.0 == offset).map_or(line, |start| start.1);
            assert_eq!(code.line(offset), Some(line), "offset {offset}");
        }
        assert_eq!(code.line(-1), Some(5));
    }

    #[test]
    fn instructions_without_a_line_have_none() {
        let pairs = code(10, LineTable::Pairs(vec![2, 0x80, 2, 1]));
        assert_eq!([0, 2].map(|offset| pairs.line(offset)), [None, Some(11)]);
        // No location; no columns, 300 lines further.
        let locations = code(10, LineTable::Locations(vec![0xf8, 0xe8, 0x58, 0x09]));
        assert_eq!([0, 2, 4].map(|offset| locations.line(offset)), [None, Some(310), None]);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_a_table(
            format in 0u32..5,
            bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..80),
            first_line: u32,
            offset: i32,
        ) {
            let table = LineTable::from_parts(format, bytes);
            proptest::prop_assert!(code(first_line, table).line(offset) != Some(0));
        }
    }
}
