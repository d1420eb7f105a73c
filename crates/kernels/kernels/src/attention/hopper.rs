//! The Hopper form: `cuda/attention_hopper.cu`.
//!
//! The host creates the tensor maps, which describe the layout of the tensors to the copy engine
//! (TMA), and selects the order of tiles. For packed sequences, a kernel writes the order into
//! memory, the plan: `cuda/attention_tiles.cuh`.

use std::sync::PoisonError;

use apex_gpu::{Buffer, ViewMut};

use crate::attention::sequences::{Sequences, tiles_of};
use crate::attention::shape::{Mask, Shape};
use crate::attention::{AttentionForm, Call, Tensors};
use crate::hopper::{Layout, TensorMap, tensor_map};
use crate::images::{Code, Image};
use crate::{Element, Result};

const PLAN: Image = Image {
    name: "attention_plan",
    code: Code::Binary(include_bytes!("../../binaries/attention_plan.fatbin")),
};
/// Threads of the block that makes a plan, and buckets into which it sorts tiles.
const BUCKETS: u32 = 1024;
/// Words of a tile in a plan.
const PLAN_WORDS: usize = 8;

/// Queries of a warpgroup, which has a part of Q of its own.
const WARPGROUP_QUERIES: usize = 64;

/// Blocks of K, and of V, in shared memory.
const STAGES: usize = 2;

/// As `attention::Chosen` in `cuda/attention_hopper.cu`.
struct Config {
    image: Image,
    /// Queries of a tile.
    queries: usize,
    /// Keys of a block.
    keys: usize,
    /// Tiles of Q in shared memory.
    query_stages: usize,
}

impl Config {
    fn of(dim: usize) -> Config {
        macro_rules! config {
            ($name:literal, $queries:literal, $keys:literal, $query_stages:literal) => {
                Config {
                    image: Image {
                        name: $name,
                        code: Code::Binary(include_bytes!(concat!("../../binaries/", $name, ".fatbin"))),
                    },
                    queries: $queries,
                    keys: $keys,
                    query_stages: $query_stages,
                }
            };
        }
        match dim {
            64 => config!("attention_hopper_d64", 192, 128, 2),
            128 => config!("attention_hopper_d128", 128, 128, 2),
            _ => config!("attention_hopper_d256", 128, 80, 1),
        }
    }

    /// Each 64 queries have a warpgroup of 128 threads; one more loads.
    fn threads(&self) -> u32 {
        (self.queries / WARPGROUP_QUERIES + 1) as u32 * 128
    }

    /// Tiles, barriers with the tiles that are handed over, and room to align.
    fn shared(&self, dim: usize) -> u32 {
        let row = 2 * dim;
        let rows = self.query_stages * self.queries + 2 * STAGES * self.keys;
        (1024 + rows * row + 512) as u32
    }
}

/// K and V of the heads whose tiles are interleaved, in bytes: they should stay in the L2.
const GROUP_BYTES: usize = 32 << 20;
/// Heads of keys whose tiles are interleaved, at least and at most. Measured: with fewer, too many
/// blocks end a group with short tiles.
const GROUP_HEADS: (usize, usize) = (8, 32);

/// The tiles of a plan: on which side they lie, their rows, and those of the blocks that they see.
pub struct Tiles {
    pub of_keys: bool,
    pub rows: usize,
    pub others: usize,
    /// Rows of a block of queries.
    pub block: usize,
}

/// Words of memory of a plan of at most so many tiles.
pub fn plan_words(tiles: usize) -> usize {
    PLAN_WORDS * (tiles + 1)
}

/// The same of a forward pass over `count` sequences.
pub fn forward_plan_words(all: &Shape, count: usize) -> usize {
    plan_words(tiles_of(all.queries, Config::of(all.dim).queries, count))
}

impl Call<'_> {
    /// Launches the kernel that writes a plan.
    pub fn plan(&self, sequences: &Sequences, tiles: &Tiles, plan: ViewMut<'_, f32>) -> Result<()> {
        let kernel = self.attention.kernel(PLAN, "attention_plan")?;
        let most = sequences.longest[usize::from(!tiles.of_keys)].div_ceil(tiles.others);
        // The most blocks that a tile sees, shifted, are less than the buckets.
        let shift = (usize::BITS - most.leading_zeros()).saturating_sub(BUCKETS.ilog2()) as i32;
        let launch =
            kernel.launch([1, 1, 1], [BUCKETS, 1, 1]).on(self.stream).arg(&sequences.starts).arg(plan);
        let launch = launch.arg(self.problem).arg(sequences.count as i32).arg(self.mask_number());
        let launch = launch
            .arg(i32::from(tiles.of_keys))
            .arg(tiles.rows as i32)
            .arg(tiles.others as i32)
            .arg(tiles.block as i32);
        // SAFETY: there is memory for as many tiles as the sequences can have.
        unsafe { launch.arg(shift).launch()? };
        Ok(())
    }

    /// One persistent block for each multiprocessor.
    pub fn hopper<T: Element>(&self, tensors: Tensors<'_, T>) -> Result<()> {
        let Tensors { q, k, v, output, log_sum_exp } = tensors;
        let (shape, config) = (self.shape, Config::of(self.shape.dim));
        let mut problem = self.problem;
        problem.query_tiles = shape.queries.div_ceil(config.queries) as i32;
        problem.head_group = self.head_group() as i32;
        let panels = shape.dim / 64;
        let queries = self.query_map(q, [WARPGROUP_QUERIES, panels])?;
        let keys = self.key_map(k, [config.keys, panels])?;
        let values = self.key_map(v, [config.keys, panels])?;

        let of_head = match self.sequences {
            None => problem.query_tiles as usize,
            Some(sequences) => tiles_of(shape.queries, config.queries, sequences.count),
        };
        let tiles = of_head * shape.heads * shape.batch;
        let blocks = tiles.min(self.attention.device.limits().multiprocessors as usize) as u32;
        let name = format!("attention_hopper_{}_d{}_{}", T::NAME, shape.dim, self.mask_name());
        let kernel = self.attention.kernel(config.image, &name)?;
        // Whoever panicked while holding them had not launched: they are zeros.
        let mut workspace = self.attention.workspace.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sequences) = self.sequences {
            let words = plan_words(of_head);
            let [plan, _] = workspace.reserve([words, 0], self.stream)?;
            let tiles =
                Tiles { of_keys: false, rows: config.queries, others: config.keys, block: config.queries };
            self.plan(sequences, &tiles, plan.slice_mut(..words))?;
        }
        let workspace = &mut *workspace;
        let launch = kernel.launch([blocks, 1, 1], [config.threads(), 1, 1]).shared(config.shared(shape.dim));
        let launch = launch.on(self.stream).arg(queries).arg(keys).arg(values).arg(q).arg(k).arg(v);
        let launch = launch.arg(output).arg(log_sum_exp).arg(&mut workspace.counters).arg(problem);
        let launch = match self.sequences {
            None => launch.arg(NO_PLAN),
            Some(_) => launch.arg(&workspace.partial[0]),
        };
        // SAFETY: the maps describe the buffers, which have the sizes that the problem says, and
        // the counters are zero: a launch leaves them so, and the next one on any stream runs after
        // it. The plan of sequences has been made before.
        unsafe { launch.launch()? };
        Ok(())
    }

    /// Heads whose tiles are interleaved. Only the causal form and packed sequences take tiles out
    /// of their order, the longest first.
    fn head_group(&self) -> usize {
        match self.sequences {
            None => head_group(self.shape, self.mask),
            Some(sequences) => {
                let shape = Shape { keys: sequences.longest[1].max(1), ..*self.shape };
                head_group(&shape, Mask::Causal)
            }
        }
    }

    /// As kernels' names have it.
    pub fn mask_name(&self) -> &'static str {
        match self.mask {
            Mask::Full => "full",
            Mask::Causal => "causal",
            Mask::Window { .. } => "window",
        }
    }

    /// Creates a map of Q, or of a tensor with Q's layout, that copies this number of rows and
    /// panels of one head.
    pub fn query_map<T: Element>(&self, buffer: &Buffer<T>, tile: [usize; 2]) -> Result<TensorMap> {
        let strides = [self.problem.query_row, self.problem.query_head, self.problem.query_batch];
        self.map(buffer, self.shape.heads, self.shape.queries, strides, tile)
    }

    /// The same of K, or of V.
    pub fn key_map<T: Element>(&self, buffer: &Buffer<T>, tile: [usize; 2]) -> Result<TensorMap> {
        let strides = [self.problem.key_row, self.problem.key_head, self.problem.key_batch];
        self.map(buffer, self.shape.key_heads, self.shape.keys, strides, tile)
    }

    /// A map of `[batch, heads, rows, dim]` that copies `tile` rows and panels of one head. Rows
    /// are cut into panels of 64 elements, 128 bytes, which is what the swizzle handles: the tensor
    /// has the dimensions 64, rows, panels, heads, batch, and a tile arrives panel by panel.
    fn map<T: Element>(
        &self,
        buffer: &Buffer<T>,
        heads: usize,
        rows: usize,
        [row, head, batch]: [i64; 3],
        [tile_rows, tile_panels]: [usize; 2],
    ) -> Result<TensorMap> {
        let (panels, tile) = (self.shape.dim / 64, [64, tile_rows, tile_panels, 1, 1]);
        let layout = match self.sequences {
            None => Layout {
                sizes: [64, rows, panels, heads, self.shape.batch],
                strides: [row as usize, 64, head as usize, batch as usize],
                tile,
            },
            Some(_) => packed_layout::<T>(row as usize, panels, tile),
        };
        tensor_map::<T, T>(buffer, &layout).map_err(|why| self.attention.refused(AttentionForm::Hopper, why))
    }
}

/// In place of the address of a plan.
pub const NO_PLAN: u64 = 0;

/// Rows of a map of packed sequences: as `EDGE` in `cuda/attention_tiles.cuh`.
const EDGE: usize = 1 << 30;
/// Elements along the dimensions that lead back from the edge: more than any coordinate.
const UNBOUNDED: usize = (1 << 31) - (1 << 16);

/// A map in which every sequence ends at the last row, so that what a copy brings of rows beyond
/// it are zeros, not the rows of the next sequence. A step along the fourth dimension is a row too,
/// and `EDGE` steps along the fifth are `-EDGE` rows: addresses are computed modulo 2^64. The
/// panels of all heads of a row, or of one, are one dimension.
fn packed_layout<T: Element>(row: usize, panels: usize, tile: [usize; 5]) -> Layout {
    let panels = panels.max(row / 64);
    let back = (1 << 34) / size_of::<T>() - row;
    Layout { sizes: [64, EDGE, panels, UNBOUNDED, UNBOUNDED], strides: [row, 64, row, back], tile }
}

/// Heads whose tiles are interleaved. Only the causal form takes tiles out of their order, the
/// longest first.
fn head_group(shape: &Shape, mask: Mask) -> usize {
    if mask != Mask::Causal {
        return 1;
    }
    let key_heads = interleaved(4 * shape.keys * shape.dim); // K and V
    (key_heads * (shape.heads / shape.key_heads)).min(shape.heads * shape.batch)
}

/// Heads whose tiles are interleaved if blocks read `bytes` of each again and again.
pub fn interleaved(bytes: usize) -> usize {
    (GROUP_BYTES / bytes).clamp(GROUP_HEADS.0, GROUP_HEADS.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_configuration_fits_a_multiprocessor() {
        for dim in [64, 128, 256] {
            let config = Config::of(dim);
            assert!(config.shared(dim) <= 227 * 1024, "dim {dim}: {} bytes", config.shared(dim));
            assert!(config.threads() <= 512 && config.queries <= 256 && config.keys <= 256);
        }
    }

    #[test]
    fn a_group_of_heads_holds_what_the_cache_does_and_never_more_heads_than_there_are() {
        let shape = Shape { batch: 2, heads: 64, key_heads: 64, queries: 2048, keys: 2048, dim: 128 };
        assert_eq!(head_group(&shape, Mask::Causal), 32);
        assert_eq!(head_group(&Shape { keys: 65536, ..shape }, Mask::Causal), 8);
        assert_eq!(head_group(&Shape { key_heads: 16, ..shape }, Mask::Causal), 128);
        assert_eq!(head_group(&Shape { heads: 2, key_heads: 1, ..shape }, Mask::Causal), 4);
        // Kernels multiply it with the number of tiles, in 32 bits.
        let long = Shape { batch: 1, heads: 1, key_heads: 1, queries: 1 << 29, keys: 1, dim: 64 };
        assert_eq!(head_group(&long, Mask::Causal), 1);
        assert_eq!(head_group(&shape, Mask::Full), 1);
    }
}
