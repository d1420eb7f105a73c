//! An attention problem as kernels take it: sizes and strides.

use bytemuck::{Pod, Zeroable};

use crate::Result;
use crate::attention::shape::{Layout, Mask, Options, Shape};

/// The same bytes as `attention::Problem` in `cuda/attention.cuh`. Strides are in elements.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct Problem {
    pub query_batch: i64,
    pub query_row: i64,
    pub query_head: i64,
    pub key_batch: i64,
    pub key_row: i64,
    pub key_head: i64,
    pub batch: i32,
    pub heads: i32,
    pub key_heads: i32,
    pub queries: i32,
    pub keys: i32,
    pub dim: i32,
    pub window_left: i32,
    pub window_right: i32,
    pub query_tiles: i32,
    pub head_group: i32,
    pub scale: f32,
    pub scale_log2: f32,
}

/// A window's side without limit: more than any tensor has rows, and its sum with a row fits 32
/// bits.
const UNLIMITED: usize = (1 << 30) - 1;

impl Problem {
    /// The problem of a shape, but for the tiles, which are the Hopper form's. Everything is
    /// checked.
    pub fn new(shape: &Shape, options: &Options) -> Result<Problem> {
        shape.check()?;
        let scale = options.checked_scale(shape.dim)?;
        let strides = |heads: usize, rows: usize| {
            let (row, head) = match options.layout {
                Layout::HeadsFirst => (shape.dim, rows * shape.dim),
                Layout::RowsFirst => (heads * shape.dim, shape.dim),
            };
            [(heads * rows * shape.dim) as i64, row as i64, head as i64]
        };
        let [query_batch, query_row, query_head] = strides(shape.heads, shape.queries);
        let [key_batch, key_row, key_head] = strides(shape.key_heads, shape.keys);
        let side = |limit: Option<usize>| limit.unwrap_or(UNLIMITED).min(UNLIMITED) as i32;
        let (left, right) = match options.mask {
            Mask::Full => (None, None),
            Mask::Causal => (None, Some(0)),
            Mask::Window { left, right } => (left, right),
        };
        // `Shape::check` has seen to it that all of these fit.
        Ok(Problem {
            query_batch,
            query_row,
            query_head,
            key_batch,
            key_row,
            key_head,
            batch: shape.batch as i32,
            heads: shape.heads as i32,
            key_heads: shape.key_heads as i32,
            queries: shape.queries as i32,
            keys: shape.keys as i32,
            dim: shape.dim as i32,
            window_left: side(left),
            window_right: side(right),
            query_tiles: 0,
            head_group: 0,
            scale,
            scale_log2: scale * std::f32::consts::LOG2_E,
        })
    }
}
