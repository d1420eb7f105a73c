//! The cells of one column in one row group, and their pages: a dictionary where values repeat, and
//! data pages of [`PAGE_ROWS`] rows.
//!
//! A data page has one definition level per row (1 if there is a value, 0 for null), then the
//! values.

use super::thrift::Struct;
use super::{File, length, runs};
use crate::table::{Cell, Type};
use std::collections::HashMap;
use std::hash::Hash;
use std::io::{self, Write};

/// Number of rows in a data page.
const PAGE_ROWS: usize = 32 * 1024;
/// Maximum number of values in a dictionary of numbers: with more, indices save little. Texts
/// always have a dictionary.
const DICTIONARY_VALUES: usize = 1 << 16;

/// How values are encoded, as the format numbers it.
pub mod encoding {
    /// Values one after the other (`PLAIN`).
    pub const PLAIN: i32 = 0;
    /// Levels (`RLE`).
    pub const RUNS: i32 = 3;
    /// Indices into the dictionary page (`RLE_DICTIONARY`).
    pub const DICTIONARY: i32 = 8;
}

/// The cells of one column in the row group that is being filled.
pub struct Buffer {
    kind: Type,
    values: Values,
    /// 1 where there is a value, 0 for null.
    levels: Vec<u32>,
}

enum Values {
    /// The bits of integers and real numbers.
    Words(Vec<u64>),
    Flags(Vec<bool>),
    /// Indices of texts.
    Texts(Vec<u32>, Dictionary<Box<str>>),
}

/// The distinct values and the bytes of their dictionary page.
struct Dictionary<T> {
    indices: HashMap<T, u32>,
    page: Vec<u8>,
}

/// The pages of a column in a row group, as the footer lists them.
pub struct Chunk {
    /// Where the dictionary page begins, if there is one.
    pub dictionary_at: Option<u64>,
    /// Where the first data page begins.
    pub data_at: u64,
    /// Rows without a value.
    pub nulls: u64,
    /// Size of all pages with their headers, compressed, bytes.
    pub packed: u64,
    /// Size of all pages with their headers, before compression, bytes.
    pub unpacked: u64,
    /// Minimum and maximum of a column of integers.
    pub range: Option<(i64, i64)>,
}

/// How the values of a chunk are written.
enum Plan<'v> {
    Indices(&'v [u32], u32),
    Words(&'v [u64]),
    Flags(&'v [bool]),
}

impl<T> Default for Dictionary<T> {
    fn default() -> Self {
        Self { indices: HashMap::new(), page: Vec::new() }
    }
}

impl<T: Eq + Hash> Dictionary<T> {
    /// Adds a new value and returns its index.
    fn add(&mut self, value: T, bytes: &[u8]) -> u32 {
        let index = self.indices.len() as u32;
        self.page.extend_from_slice(bytes);
        self.indices.insert(value, index);
        index
    }

    /// Number of bits in an index.
    fn width(&self) -> u32 {
        (self.indices.len() as u32).saturating_sub(1).max(1).ilog2() + 1
    }
}

impl Dictionary<Box<str>> {
    fn text(&mut self, value: &str) -> u32 {
        if let Some(known) = self.indices.get(value) {
            return *known;
        }
        let bytes = [&(value.len() as u32).to_le_bytes(), value.as_bytes()].concat();
        self.add(value.into(), &bytes)
    }
}

/// A dictionary of the words and their indices, if each value occurs at least four times on
/// average.
fn repeated(words: &[u64]) -> Option<(Vec<u32>, Dictionary<u64>)> {
    let most = (words.len() / 4).min(DICTIONARY_VALUES);
    let mut dictionary = Dictionary::default();
    let mut indices = Vec::new();
    for word in words {
        let index = match dictionary.indices.get(word) {
            Some(known) => *known,
            None if dictionary.indices.len() == most => return None,
            None => dictionary.add(*word, &word.to_le_bytes()),
        };
        indices.push(index);
    }
    Some((indices, dictionary))
}

impl Buffer {
    /// An empty column.
    pub fn new(kind: Type) -> Self {
        let values = match kind {
            Type::Integer | Type::Real => Values::Words(Vec::new()),
            Type::Flag => Values::Flags(Vec::new()),
            Type::Text => Values::Texts(Vec::new(), Dictionary::default()),
        };
        Self { kind, values, levels: Vec::new() }
    }

    /// Adds a cell. A cell whose type is not the column's becomes null, so that the file stays
    /// readable.
    pub fn push(&mut self, cell: &Cell<'_>) {
        match (&mut self.values, *cell) {
            (Values::Words(values), Cell::Integer(value)) if self.kind == Type::Integer => {
                values.push(value.cast_unsigned());
            }
            (Values::Words(values), Cell::Real(value)) if self.kind == Type::Real => {
                values.push(value.to_bits());
            }
            (Values::Flags(values), Cell::Flag(value)) => values.push(value),
            (Values::Texts(values, dictionary), Cell::Text(value)) => values.push(dictionary.text(value)),
            (_, other) => {
                debug_assert_eq!(other, Cell::Null, "a cell of another type than its column's");
                return self.levels.push(0);
            }
        }
        self.levels.push(1);
    }

    /// Writes the pages, and empties the buffer.
    ///
    /// # Errors
    /// Those of the file.
    pub fn write<W: Write>(&mut self, file: &mut File<W>) -> io::Result<Chunk> {
        let levels = std::mem::take(&mut self.levels);
        let empty = Self::new(self.kind);
        let values = std::mem::replace(self, empty).values;
        let mut pages = Pages::new(file, &levels);
        match &values {
            Values::Words(words) => {
                if self.kind == Type::Integer {
                    pages.chunk.range = range(words);
                }
                match repeated(words) {
                    Some((indices, dictionary)) => pages.indexed(&indices, &dictionary)?,
                    None => pages.data(&Plan::Words(words))?,
                }
            }
            Values::Flags(flags) => pages.data(&Plan::Flags(flags))?,
            Values::Texts(indices, dictionary) => pages.indexed(indices, dictionary)?,
        }
        Ok(pages.chunk)
    }
}

fn range(words: &[u64]) -> Option<(i64, i64)> {
    let numbers = || words.iter().map(|word| word.cast_signed());
    Some((numbers().min()?, numbers().max()?))
}

/// Writes the pages of one chunk.
struct Pages<'p, W> {
    file: &'p mut File<W>,
    levels: &'p [u32],
    chunk: Chunk,
}

impl<'p, W: Write> Pages<'p, W> {
    fn new(file: &'p mut File<W>, levels: &'p [u32]) -> Self {
        let nulls = levels.iter().filter(|level| **level == 0).count() as u64;
        let data_at = file.at;
        let chunk = Chunk { dictionary_at: None, data_at, nulls, packed: 0, unpacked: 0, range: None };
        Self { file, levels, chunk }
    }

    /// Writes a dictionary and the indices into it; nothing but levels where all cells are null.
    fn indexed<T: Eq + Hash>(&mut self, indices: &[u32], dictionary: &Dictionary<T>) -> io::Result<()> {
        if indices.is_empty() {
            return self.data(&Plan::Words(&[]));
        }
        let mut head = Struct::default();
        head.int32(1, dictionary.indices.len() as i32).int32(2, encoding::PLAIN);
        self.chunk.dictionary_at = Some(self.file.at);
        self.page(2, 7, &head, &dictionary.page)?;
        self.chunk.data_at = self.file.at;
        self.data(&Plan::Indices(indices, dictionary.width()))
    }

    fn data(&mut self, plan: &Plan<'_>) -> io::Result<()> {
        let mut first = 0;
        for levels in self.levels.chunks(PAGE_ROWS) {
            let end = first + levels.iter().sum::<u32>() as usize;
            let mut body = level_bytes(levels)?;
            plan.append(&mut body, first, end);
            let mut head = Struct::default();
            head.int32(1, levels.len() as i32).int32(2, plan.encoding());
            head.int32(3, encoding::RUNS).int32(4, encoding::RUNS);
            self.page(0, 5, &head, &body)?;
            first = end;
        }
        Ok(())
    }

    /// Writes a page of this kind; `own` is the header of the kind, in this field of the page
    /// header.
    fn page(&mut self, kind: i32, field: u8, own: &Struct, body: &[u8]) -> io::Result<()> {
        let packed = snap::raw::Encoder::new().compress_vec(body).map_err(io::Error::other)?;
        let mut head = Struct::default();
        head.int32(1, kind).int32(2, length(body)?).int32(3, length(&packed)?).nested(field, own);
        let head: Vec<u8> = head.finished().collect();
        self.chunk.packed += (head.len() + packed.len()) as u64;
        self.chunk.unpacked += (head.len() + body.len()) as u64;
        self.file.write(&head)?;
        self.file.write(&packed)
    }
}

fn level_bytes(levels: &[u32]) -> io::Result<Vec<u8>> {
    let mut runs = Vec::new();
    runs::append(&mut runs, levels, 1);
    Ok([&length(&runs)?.to_le_bytes()[..], &runs].concat())
}

impl Plan<'_> {
    fn encoding(&self) -> i32 {
        match self {
            Plan::Indices(..) => encoding::DICTIONARY,
            Plan::Words(_) | Plan::Flags(_) => encoding::PLAIN,
        }
    }

    fn append(&self, body: &mut Vec<u8>, first: usize, end: usize) {
        match self {
            Plan::Indices(indices, width) => {
                body.push(*width as u8);
                runs::append(body, &indices[first..end], *width);
            }
            Plan::Words(words) => body.extend(words[first..end].iter().flat_map(|word| word.to_le_bytes())),
            Plan::Flags(flags) => body.extend(flags[first..end].chunks(8).map(eight_flags)),
        }
    }
}

/// Flags as the bits of a byte, the first one lowest.
fn eight_flags(flags: &[bool]) -> u8 {
    flags.iter().enumerate().map(|(bit, flag)| u8::from(*flag) << bit).sum()
}
