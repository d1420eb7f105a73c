//! Files for the testbenches: a word of hexadecimal digits a line, as `$readmemh` reads them.

use crate::Tile;
use crate::attention::{Block, Job};
use crate::cases::{Case, Product};
use crate::exp2::Table;
use crate::product;

/// Appends bits to a word, the most significant first.
#[derive(Default)]
struct Word(Vec<bool>);

impl Word {
    fn bits(mut self, value: u64, width: u32) -> Word {
        self.0.extend((0..width).rev().map(|bit| value >> bit & 1 == 1));
        self
    }

    /// Numbers of `width` bits; the first one is in the lowest bits.
    fn lanes<T: Copy + Into<i64>>(self, values: &[T], width: u32) -> Word {
        values.iter().rev().fold(self, |word, &value| word.bits(value.into() as u64, width))
    }

    fn line(mut self) -> String {
        while !self.0.len().is_multiple_of(4) {
            self.0.insert(0, false);
        }
        let digit = |bits: &[bool]| bits.iter().fold(0, |value, &bit| value * 2 + u32::from(bit));
        let digits = self.0.chunks(4).map(|bits| char::from_digit(digit(bits), 16).unwrap_or('x'));
        digits.chain(['\n']).collect()
    }
}

/// What one testbench plays.
pub struct Vectors {
    /// The beats.
    pub beats: String,
    /// What has to come out.
    pub expected: String,
}

/// The beats of jobs, and their results.
pub fn attention(tile: Tile, cases: &[Case]) -> Vectors {
    let table = Table::default();
    let mut vectors = Vectors { beats: String::new(), expected: String::new() };
    for case in cases {
        vectors.beats.push_str(&beats(tile, &case.job));
        let result = case.job.result(tile, &table);
        for element in 0..tile.dimension {
            let column: Vec<i16> = result.iter().map(|row| row[element]).collect();
            vectors.expected.push_str(&Word::default().lanes(&column, 16).line());
        }
    }
    vectors
}

/// What the beats of one part carry.
struct Part<'a> {
    rows: &'a [Vec<i8>],
    present: &'a [bool],
    is_last: bool,
}

/// The parts of a job in the order in which the tile takes them: keys are one block ahead of values.
fn parts(job: &Job) -> Vec<Part<'_>> {
    let last = job.blocks.len() - 1;
    let keys = |index: usize| {
        let block: &Block = &job.blocks[index];
        Part { rows: &block.keys, present: &block.present, is_last: index == last }
    };
    let mut parts = vec![Part { rows: &job.queries, present: &[], is_last: false }, keys(0)];
    for (index, block) in job.blocks.iter().enumerate() {
        if index < last {
            parts.push(keys(index + 1));
        }
        parts.push(Part { rows: &block.values, present: &[], is_last: false });
    }
    parts
}

/// The beats of a job.
fn beats(tile: Tile, job: &Job) -> String {
    let mut lines = String::new();
    for (number, part) in parts(job).into_iter().enumerate() {
        for element in 0..tile.dimension {
            let column: Vec<i8> = part.rows.iter().map(|row| row[element]).collect();
            let is_last = part.is_last && element == tile.dimension - 1;
            let present = |row| part.present.get(row).copied().unwrap_or(false);
            let mask: Vec<u8> = (0..tile.size).map(|row| u8::from(present(row))).collect();
            lines.push_str(&beat(job, number == 0 && element == 0, is_last, &mask, &column).line());
        }
    }
    lines
}

fn beat(job: &Job, is_first: bool, is_last: bool, mask: &[u8], column: &[i8]) -> Word {
    Word::default()
        .bits(u64::from(is_first), 1)
        .bits(u64::from(job.scale.right), 5)
        .bits(u64::from(job.scale.mult), 16)
        .bits(job.position as u64, 18)
        .bits(u64::from(job.causal), 1)
        .bits(u64::from(is_last), 1)
        .lanes(mask, 1)
        .lanes(column, 8)
}

/// The beats of tiles of products, and their rows.
pub fn products(size: usize, cases: &[Product]) -> Vectors {
    let mut vectors = Vectors { beats: String::new(), expected: String::new() };
    for [a, b] in cases {
        for (term, (left, right)) in a.iter().zip(b).enumerate() {
            let word = Word::default().bits(u64::from(term + 1 == a.len()), 1).lanes(left, 8).lanes(right, 8);
            vectors.beats.push_str(&word.line());
        }
        for row in product::tile(size, a, b).chunks(size) {
            vectors.expected.push_str(&Word::default().lanes(row, 32).line());
        }
    }
    vectors
}

/// The table of the exponential.
pub fn table() -> String {
    Table::default().entries().iter().map(|entry| format!("{entry:04x}\n")).collect()
}
