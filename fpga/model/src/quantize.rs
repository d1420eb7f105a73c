//! Real numbers as the tile's INT8: one scale for each of Q, K and V, symmetric around 0.

use crate::Tile;
use crate::attention::{Block, Job, Scale};
use crate::exp2::{LOG_BITS, Table};
use crate::reference::Head;

/// INT8 numbers and the unit that they count.
#[derive(Clone, Debug)]
pub struct Quantized {
    /// Row by row, from -127 to 127.
    pub rows: Vec<Vec<i8>>,
    /// The real number that 1 stands for.
    pub unit: f64,
}

/// The largest magnitude becomes 127.
pub fn quantize(rows: &[Vec<f64>]) -> Quantized {
    let largest = rows.iter().flatten().fold(0.0f64, |largest, value| largest.max(value.abs()));
    let unit = if largest > 0.0 { largest / 127.0 } else { 1.0 };
    let round = |value: &f64| (value / unit).round() as i8;
    Quantized { rows: rows.iter().map(|row| row.iter().map(round).collect()).collect(), unit }
}

impl Quantized {
    /// The real numbers that it stands for.
    pub fn values(&self) -> Vec<Vec<f64>> {
        self.rows.iter().map(|row| row.iter().map(|&q| f64::from(q) * self.unit).collect()).collect()
    }
}

/// The factor of scores as 16 significant bits and a shift.
///
/// # Panics
/// If the factor is outside of 2^-16 (inclusive) to 2^16 (exclusive).
pub fn scale(factor: f64) -> Scale {
    assert!((2f64.powi(-16)..2f64.powi(16)).contains(&factor), "no scale is {factor}");
    let exponent = (15 - factor.log2().floor() as i32).min(31);
    let mult = (factor * f64::from(exponent).exp2()).round();
    // Rounding may reach 2^16, which the half of it says as well.
    if mult < 65536.0 {
        Scale { mult: mult as u16, right: exponent as u32 }
    } else {
        Scale { mult: 32768, right: exponent as u32 - 1 }
    }
}

/// A head as jobs of a tile: one for each N rows of queries. With a causal mask, blocks that no row
/// sees are left out.
pub struct Jobs {
    /// The jobs, in the order of their queries.
    pub jobs: Vec<Job>,
    /// What 1 in a value stands for.
    pub unit: f64,
    rows: usize,
}

/// Cuts a head into jobs. Missing rows of the last block of queries are 0; missing keys are masked.
pub fn jobs(tile: Tile, head: &Head) -> Jobs {
    let [queries, keys, values] = [&head.queries, &head.keys, &head.values].map(|rows| quantize(rows));
    let unit = queries.unit * keys.unit / (tile.dimension as f64).sqrt() * std::f64::consts::LOG2_E;
    let scale = scale(unit * f64::from(1 << LOG_BITS));
    let blocks: Vec<Block> = (0..keys.rows.len().div_ceil(tile.size))
        .map(|block| Block {
            keys: rows_of(tile, &keys.rows, block),
            values: rows_of(tile, &values.rows, block),
            present: (0..tile.size).map(|key| block * tile.size + key < keys.rows.len()).collect(),
        })
        .collect();
    let job = |number: usize| Job {
        queries: rows_of(tile, &queries.rows, number),
        blocks: blocks[..if head.causal { number + 1 } else { blocks.len() }].to_vec(),
        causal: head.causal,
        position: (number * tile.size) as i32,
        scale,
    };
    let count = queries.rows.len().div_ceil(tile.size);
    Jobs { jobs: (0..count).map(job).collect(), unit: values.unit, rows: queries.rows.len() }
}

/// N rows of a matrix, from row `block * N` on; rows beyond its end are 0.
fn rows_of(tile: Tile, rows: &[Vec<i8>], block: usize) -> Vec<Vec<i8>> {
    let row = |index| rows.get(block * tile.size + index).cloned();
    (0..tile.size).map(|index| row(index).unwrap_or_else(|| vec![0; tile.dimension])).collect()
}

impl Jobs {
    /// What the tile computes, as real numbers.
    pub fn attention(&self, tile: Tile, table: &Table) -> Vec<Vec<f64>> {
        let rows = self.jobs.iter().flat_map(|job| job.result(tile, table));
        let real = |row: Vec<i16>| row.iter().map(|&q| f64::from(q) * self.unit / 256.0).collect();
        rows.map(real).take(self.rows).collect()
    }
}
