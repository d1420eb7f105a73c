//! The error of the tile's attention against 64-bit floating point, beside the error that INT8
//! inputs have by themselves.

use crate::Tile;
use crate::exp2::Table;
use crate::quantize::{jobs, quantize};
use crate::reference::{Distance, Head, distance};
use anyhow::{Context, ensure};
use apex_random::Random;

/// Errors of one head, each against the exact attention of the real numbers, except `arithmetic`.
#[derive(Clone, Copy, Debug)]
pub struct Errors {
    /// The tile's.
    pub tile: Distance,
    /// That of exact attention of the INT8 numbers: what quantization costs by itself.
    pub quantization: Distance,
    /// The tile's against exact attention of the same INT8 numbers: what its fixed point costs.
    pub arithmetic: Distance,
}

/// Measures one head.
pub fn errors(tile: Tile, head: &Head, table: &Table) -> Errors {
    let exact = head.attention();
    let rounded = |rows: &[Vec<f64>]| quantize(rows).values();
    let quantized = Head {
        queries: rounded(&head.queries),
        keys: rounded(&head.keys),
        values: rounded(&head.values),
        causal: head.causal,
    }
    .attention();
    let result = jobs(tile, head).attention(tile, table);
    Errors {
        tile: distance(&result, &exact),
        quantization: distance(&quantized, &exact),
        arithmetic: distance(&result, &quantized),
    }
}

/// A head of normal random numbers.
pub fn random_head(length: usize, dimension: usize, causal: bool, seed: u64) -> Head {
    let mut random = Random::named(seed, "head");
    let mut rows = || -> Vec<Vec<f64>> {
        (0..length).map(|_| (0..dimension).map(|_| random.normal()).collect()).collect()
    };
    Head { queries: rows(), keys: rows(), values: rows(), causal }
}

/// Q, K and V of a trained model, from a file of `fpga/model/train.py`: little-endian 16-bit
/// integers, three matrices of `length` rows, each number in units of 1/4096.
///
/// # Errors
/// If the file cannot be read or is not three matrices of rows of 64 numbers.
pub fn recorded_head(path: &std::path::Path, dimension: usize) -> anyhow::Result<Head> {
    let bytes = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    ensure!(
        !bytes.is_empty() && bytes.len().is_multiple_of(6 * dimension),
        "{}: {} bytes are not three matrices with rows of {dimension} 16-bit numbers",
        path.display(),
        bytes.len()
    );
    let number = |pair: &[u8]| f64::from(i16::from_le_bytes([pair[0], pair[1]])) / 4096.0;
    let numbers: Vec<f64> = bytes.chunks_exact(2).map(number).collect();
    let mut matrices = numbers
        .chunks(numbers.len() / 3)
        .map(|matrix| matrix.chunks(dimension).map(<[f64]>::to_vec).collect::<Vec<_>>());
    let mut next = || matrices.next().unwrap_or_default();
    Ok(Head { queries: next(), keys: next(), values: next(), causal: true })
}
