//! The Hopper form: `cuda/attention_hopper.cu`.
//!
//! The host creates the tensor maps, which describe the layout of the tensors to the copy engine
//! (TMA), and selects the order of tiles.

use std::sync::PoisonError;

use apex_gpu::Buffer;

use crate::attention::shape::{Mask, Shape};
use crate::attention::{AttentionForm, Call, Tensors};
use crate::hopper::{Layout, TensorMap, tensor_map};
use crate::images::{Code, Image};
use crate::{Element, Result};

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

    /// Tiles, barriers, and room to align.
    fn shared(&self, dim: usize) -> u32 {
        let row = 2 * dim;
        let rows = self.query_stages * self.queries + 2 * STAGES * self.keys;
        (1024 + rows * row + 256) as u32
    }
}

/// K and V of the heads whose tiles are interleaved, in bytes: they should stay in the L2.
const GROUP_BYTES: usize = 32 << 20;
/// Heads of keys whose tiles are interleaved, at least and at most. Measured: with fewer, too many
/// blocks end a group with short tiles.
const GROUP_HEADS: (usize, usize) = (8, 32);

impl Call<'_> {
    /// One persistent block for each multiprocessor.
    pub fn hopper<T: Element>(&self, tensors: Tensors<'_, T>) -> Result<()> {
        let Tensors { q, k, v, output, log_sum_exp } = tensors;
        let (shape, config) = (self.shape, Config::of(self.shape.dim));
        let mut problem = self.problem;
        problem.query_tiles = shape.queries.div_ceil(config.queries) as i32;
        problem.head_group = head_group(shape, self.mask) as i32;
        let panels = shape.dim / 64;
        let queries = self.query_map(q, [WARPGROUP_QUERIES, panels])?;
        let keys = self.key_map(k, [config.keys, panels])?;
        let values = self.key_map(v, [config.keys, panels])?;

        let tiles = problem.query_tiles as usize * shape.heads * shape.batch;
        let blocks = tiles.min(self.attention.device.limits().multiprocessors as usize) as u32;
        let name = format!("attention_hopper_{}_d{}_{}", T::NAME, shape.dim, self.mask_name());
        let kernel = self.attention.kernel(config.image, &name)?;
        // Whoever panicked while holding them had not launched: they are zeros.
        let mut workspace = self.attention.workspace.lock().unwrap_or_else(PoisonError::into_inner);
        let launch = kernel.launch([blocks, 1, 1], [config.threads(), 1, 1]).shared(config.shared(shape.dim));
        let launch = launch.on(self.stream).arg(queries).arg(keys).arg(values).arg(q).arg(k).arg(v);
        let launch = launch.arg(output).arg(log_sum_exp).arg(&mut workspace.counters).arg(problem);
        // SAFETY: the maps describe the buffers, which have the sizes that the problem says, and
        // the counters are zero: a launch leaves them so, and the next one on any stream runs after
        // it.
        unsafe { launch.launch()? };
        Ok(())
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
        let layout = Layout {
            sizes: [64, rows, self.shape.dim / 64, heads, self.shape.batch],
            strides: [row as usize, 64, head as usize, batch as usize],
            tile: [64, tile_rows, tile_panels, 1, 1],
        };
        tensor_map::<T, T>(buffer, &layout).map_err(|why| self.attention.refused(AttentionForm::Hopper, why))
    }
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
