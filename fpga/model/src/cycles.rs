//! How many cycles the tiles take when neither side makes them wait. The testbenches count, and
//! `fpga/check` compares the counts with these formulas: they are equal, not close.

use crate::Tile;

/// From the first beat that the matrix tile takes to the last row that it gives, for tiles of so
/// many terms one after the other.
///
/// A result needs a cycle for each term, or for each row of the result before it if that is longer.
pub fn products(size: usize, terms: &[usize]) -> usize {
    let Some((first, later)) = terms.split_first() else { return 0 };
    first + later.iter().map(|&terms| terms.max(size)).sum::<usize>() + size + PRODUCT_FILL
}

/// Cycles of a beat through queue, operands, products, accumulators and the register of the result.
const PRODUCT_FILL: usize = 4;

/// Cycles of one job of the attention tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attention {
    /// From the first beat of the queries to the last beat of the result.
    pub latency: usize,
    /// From the first beat of the queries to that of the next job's.
    pub period: usize,
    /// Cycles in which all multipliers of the array have operands.
    pub busy: usize,
}

/// A job of so many blocks of keys, at least one.
///
/// Each block keeps the array busy for a part of keys and a part of values. Beside that, the
/// queries come in and the results go out, and the array waits for the lanes twice: for the scores
/// of the first block to be read, and for the weights of the last one.
///
/// # Panics
/// If a part is too short to hide a pass of the lanes: see [`hides_passes`].
pub fn attention(tile: Tile, blocks: usize) -> Attention {
    assert!(hides_passes(tile), "{tile:?}: the passes of the lanes are not hidden");
    let busy = 2 * tile.dimension * blocks;
    let passes = 2 * tile.size + PASSES + if blocks == 1 { ONLY_BLOCK } else { 0 };
    let drain = tile.size.ilog2() as usize + DRAIN;
    let period = 2 * tile.dimension + busy + passes + drain;
    Attention { latency: period + LATENCY, period, busy }
}

/// Whether the passes of the lanes are hidden behind the array's work, and the reciprocals behind
/// the last values: 24 cycles, and one for each row.
pub fn hides_passes(tile: Tile) -> bool {
    tile.dimension >= tile.size + 24
}

/// Registers that a pass of the maximum and one of the power go through where the array waits.
const PASSES: usize = 14;
/// With one block the array waits for the whole pass of the maximum, not only until it has read.
const ONLY_BLOCK: usize = 10;
/// From the last values to the first result: registers of the array's adders and of the sums.
const DRAIN: usize = 6;
/// From the last result's reading to its leaving.
const LATENCY: usize = 8;
