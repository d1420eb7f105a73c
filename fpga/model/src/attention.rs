//! The attention tile: attention of N rows of queries over blocks of N keys, with online softmax in
//! fixed point.
//!
//! Logarithms are of base 2 and have 10 fraction bits; weights have 15, results 8. The running
//! maximum is a whole number, so that rescaling is a shift. Sums are of whole numbers, so that their
//! order does not matter except for the shifts, which come block by block.

use crate::Tile;
use crate::exp2::{LOG_BITS, Table, WEIGHT_BITS};

/// Most keys of a job (`2^LOG_KEYS`).
pub const MOST_KEYS: usize = 1 << 16;
/// Logarithms saturate to 22 bits.
const LOG_LIMIT: i64 = 1 << 21;
/// The largest shift of a rescaling.
const MOST_SHIFT: i32 = 63;

/// How scores become logarithms: `score * mult / 2^right`, rounded to nearest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Factor.
    pub mult: u16,
    /// Shift, 0 to 31.
    pub right: u32,
}

/// N keys and their values.
#[derive(Clone, Debug)]
pub struct Block {
    /// Row k has the elements of key k.
    pub keys: Vec<Vec<i8>>,
    /// Row k has the elements of the value of key k.
    pub values: Vec<Vec<i8>>,
    /// Whether there is a key; others are masked.
    pub present: Vec<bool>,
}

/// What the tile does between two loads of queries.
#[derive(Clone, Debug)]
pub struct Job {
    /// N rows.
    pub queries: Vec<Vec<i8>>,
    /// At least one block.
    pub blocks: Vec<Block>,
    /// Whether row i sees only the keys up to `position + i`.
    pub causal: bool,
    /// The position of the first row of queries among the keys. Below 0, rows see no key.
    pub position: i32,
    /// How scores become logarithms.
    pub scale: Scale,
}

/// What is known of a row after some blocks.
struct Row {
    maximum: Option<i32>,
    total: u64,
    held: Vec<i64>,
}

impl Job {
    /// The result: row i, element d, in units of 1/256 of a value's unit.
    pub fn result(&self, tile: Tile, table: &Table) -> Vec<Vec<i16>> {
        let rows = self.queries.iter().enumerate();
        rows.map(|(row, query)| self.row(tile, table, row, query)).collect()
    }

    fn row(&self, tile: Tile, table: &Table, row: usize, query: &[i8]) -> Vec<i16> {
        let mut state = Row { maximum: None, total: 0, held: vec![0; tile.dimension] };
        for (number, block) in self.blocks.iter().enumerate() {
            let logarithms: Vec<Option<i32>> = (0..tile.size)
                .map(|column| {
                    let key = number * tile.size + column;
                    let is_seen = block.present[column] && self.sees(row, key);
                    is_seen.then(|| self.scale.logarithm(dot(query, &block.keys[column])))
                })
                .collect();
            state.add(table, &logarithms, &block.values);
        }
        state.result()
    }

    /// Whether the causal mask leaves this key to a row.
    fn sees(&self, row: usize, key: usize) -> bool {
        !self.causal || key as i64 <= i64::from(self.position) + row as i64
    }
}

fn dot(a: &[i8], b: &[i8]) -> i32 {
    a.iter().zip(b).map(|(&a, &b)| i32::from(a) * i32::from(b)).sum()
}

impl Scale {
    /// The base-2 logarithm of a weight before the maximum is subtracted.
    pub fn logarithm(self, score: i32) -> i32 {
        let half = (1i64 << self.right) >> 1;
        let scaled = (i64::from(score) * i64::from(self.mult) + half) >> self.right;
        scaled.clamp(-LOG_LIMIT, LOG_LIMIT - 1) as i32
    }
}

impl Row {
    /// Adds a block: what was added before shrinks as the maximum grows.
    fn add(&mut self, table: &Table, logarithms: &[Option<i32>], values: &[Vec<i8>]) {
        let shift = self.raise_maximum(logarithms);
        let weight = |logarithm: &Option<i32>| match (logarithm, self.maximum) {
            (Some(t), Some(m)) => table.power(((m << LOG_BITS) - t) as u32),
            _ => 0,
        };
        let weights: Vec<u32> = logarithms.iter().map(weight).collect();
        self.total = (self.total >> shift) + weights.iter().map(|&w| u64::from(w)).sum::<u64>();
        debug_assert!(self.total < 1 << 32, "the hardware's totals have 32 bits");
        for (element, held) in self.held.iter_mut().enumerate() {
            let terms = weights.iter().zip(values);
            let sum: i64 = terms.map(|(&w, value)| i64::from(w) * i64::from(value[element])).sum();
            *held = (*held >> shift) + sum;
            debug_assert!(held.unsigned_abs() < 1 << 39, "the hardware's sums have 40 bits");
        }
    }

    /// Raises the maximum to the ceiling of the largest logarithm, and returns by how much.
    fn raise_maximum(&mut self, logarithms: &[Option<i32>]) -> i32 {
        let Some(largest) = logarithms.iter().flatten().max() else { return 0 };
        let ceiling = (largest + (1 << LOG_BITS) - 1) >> LOG_BITS;
        let before = *self.maximum.get_or_insert(ceiling);
        self.maximum = Some(before.max(ceiling));
        (ceiling - before).clamp(0, MOST_SHIFT)
    }

    /// The sums over the total, by a reciprocal of 17 bits.
    fn result(&self) -> Vec<i16> {
        if self.total == 0 {
            return vec![0; self.held.len()];
        }
        let zeros = (self.total as u32).leading_zeros();
        let divisor = (self.total << zeros) >> 15;
        let reciprocal = (((1u64 << 33) - 1) / divisor) as i64;
        let divide = |held: &i64| {
            let upper = (held << zeros) >> 23;
            ((upper * reciprocal + (1 << 16)) >> 17).clamp(-0x8000, 0x7FFF) as i16
        };
        self.held.iter().map(divide).collect()
    }
}

const _: () = assert!(MOST_KEYS << WEIGHT_BITS <= 1 << 31, "a total fits in 32 bits");
