//! The form for a few queries against many keys: `cuda/attention_decode.cu`.
//!
//! The host decides into how many chunks the keys are split, so that few heads still fill the GPU,
//! and provides the memory for the partial results between the two kernels.

use std::sync::PoisonError;

use crate::attention::shape::Shape;
use crate::attention::{Attention, Call, Tensors};
use crate::images::{Code, Image};
use crate::{Element, Result};

const DECODE: Image = Image {
    name: "attention_decode",
    code: Code::Ptx(include_bytes!("../../binaries/attention_decode.ptx.zst")),
};

/// Rows of queries of a tile, as `attention::DECODE_ROWS`: more of a head of keys read its cache
/// again.
const ROWS: usize = 8;
/// As `DECODE_WARPS`.
const WARPS: usize = 4;
/// Threads of a block of the second kernel.
const MERGE_THREADS: u32 = 128;
/// Keys of a chunk, at least: four tiles of 16 keys for each warp.
const FEWEST_KEYS: usize = 256;
/// Keys from which on this form is chosen. With fewer there is little to split.
const MANY_KEYS: usize = 1024;
/// Blocks of a grid; kernels loop over what is more.
const MOST_BLOCKS: usize = 1 << 20;

/// Whether this form is the fastest for a shape: the queries of a head of keys fit one tile, and
/// there are many keys.
pub fn suits(shape: &Shape) -> bool {
    shape.keys >= MANY_KEYS && rows_of_head(shape) <= ROWS
}

/// Rows of queries that share a head of keys. The shape has been checked.
fn rows_of_head(shape: &Shape) -> usize {
    shape.heads.checked_div(shape.key_heads).unwrap_or(0) * shape.queries
}

/// The shared memory for copies, in bytes: `DECODE_STAGES` tiles of 16 keys and values for each
/// warp; the size is the same in all dimensions.
const SHARED: u32 = (WARPS * 2 * 64 * 128) as u32;

/// Chunks of the keys of each of `units` tiles of rows: about as many blocks as multiprocessors.
/// One block keeps its multiprocessor's share of the memory busy, and each chunk more leaves
/// partial results to merge (measured).
fn chunks(units: usize, keys: usize, multiprocessors: usize) -> usize {
    (multiprocessors / units).min(keys.div_ceil(FEWEST_KEYS)).max(1)
}

impl Attention {
    /// Tiles of rows, and chunks of the keys of each.
    fn decode_grid(&self, shape: &Shape) -> (usize, usize) {
        let units = shape.batch * shape.key_heads * rows_of_head(shape).div_ceil(ROWS);
        // Nothing is launched without units.
        (units, chunks(units.max(1), shape.keys, self.device.limits().multiprocessors as usize))
    }

    /// Elements of the partial outputs of chunks, and of their maxima and sums.
    pub(super) fn decode_partial(&self, shape: &Shape) -> [usize; 2] {
        let (units, chunks) = self.decode_grid(shape);
        let rows = units * chunks * ROWS;
        [rows * shape.dim, 2 * rows]
    }
}

impl Call<'_> {
    /// A kernel for the chunks, and one that merges their results.
    pub fn decode<T: Element>(&self, tensors: Tensors<'_, T>) -> Result<()> {
        let Tensors { q, k, v, output, log_sum_exp } = tensors;
        let (shape, attention, problem) = (self.shape, self.attention, self.problem);
        let kernel = |name| attention.kernel(DECODE, &format!("attention_{name}_{}_d{}", T::NAME, shape.dim));
        let (decode, merge) = (kernel("decode")?, kernel("merge")?);
        let threads = (32 * WARPS) as u32;
        let (units, chunks) = attention.decode_grid(shape);
        // What the first kernel leaves for the second: outputs, and a maximum and a sum of each
        // row. Whoever panicked while holding the buffers left whole ones.
        let mut workspace = attention.workspace.lock().unwrap_or_else(PoisonError::into_inner);
        let [outputs, sums] = workspace.reserve(attention.decode_partial(shape), self.stream)?;
        let blocks = (units * chunks).min(MOST_BLOCKS) as u32;
        let launch = decode.launch([blocks, 1, 1], [threads, 1, 1]).shared(SHARED).on(self.stream);
        let launch = launch.arg(q).arg(k).arg(v).arg(&mut *outputs).arg(&mut *sums);
        // SAFETY: the buffers have the sizes that the problem says, and there are as many partial
        // rows as chunks of tiles have rows, a maximum and a sum for each.
        unsafe { launch.arg(problem).arg(self.mask_number()).arg(chunks as i32).launch()? };

        let blocks = shape.rows().min(MOST_BLOCKS) as u32;
        let launch = merge.launch([blocks, 1, 1], [MERGE_THREADS, 1, 1]).on(self.stream);
        let launch = launch.arg(&*outputs).arg(&*sums).arg(output).arg(log_sum_exp);
        // SAFETY: as above; the first kernel has written the partial rows of all queries.
        unsafe { launch.arg(problem).arg(chunks as i32).launch()? };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { batch: 1, heads: 8, key_heads: 1, queries: 1, keys: 65536, dim: 128 };

    #[test]
    fn few_heads_are_cut_into_many_chunks_and_many_heads_are_not() {
        assert_eq!(chunks(1, 65536, 132), 132);
        assert_eq!(chunks(8, 65536, 132), 16);
        assert_eq!(chunks(1, 1000, 132), 4, "a chunk has about 256 keys at least");
        assert_eq!(chunks(1 << 20, 65536, 132), 1);
        assert_eq!(chunks(1, 1, 132), 1);
    }

    #[test]
    fn it_suits_few_queries_of_long_caches() {
        assert!(suits(&SHAPE));
        assert!(suits(&Shape { heads: 4, queries: 2, ..SHAPE }));
        assert!(!suits(&Shape { heads: 16, ..SHAPE }), "16 rows share a head of keys");
        assert!(!suits(&Shape { queries: 2, ..SHAPE }));
        assert!(!suits(&Shape { keys: 1000, ..SHAPE }));
    }
}
