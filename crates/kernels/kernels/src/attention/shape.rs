//! Shapes and options of attention, and their validation.

use crate::attention::{AttentionForm, TECHNIQUE};
use crate::{Error, Result};

/// Sizes of a problem. Any may be zero but for the head dimension.
///
/// Q and O have `batch * heads * queries` rows of `dim` elements, K and V `batch * key_heads *
/// keys`. Each key head serves `heads / key_heads` neighbouring heads of queries (grouped-query
/// attention).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Independent problems of the same sizes.
    pub batch: usize,
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys and values; divides `heads`.
    pub key_heads: usize,
    /// Queries of a head.
    pub queries: usize,
    /// Keys of a head.
    pub keys: usize,
    /// Elements of a row of a head: 64, 128 or 256.
    pub dim: usize,
}

/// The keys that a query sees. Query `r` stands at key `r + keys - queries`: the last query at the
/// last key, as it is when the keys before are a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mask {
    /// All.
    #[default]
    Full,
    /// The keys up to the query's own place.
    Causal,
    /// A sliding window around its own place, which it always sees. `None` is unlimited.
    Window {
        /// Keys before its own that it sees.
        left: Option<usize>,
        /// Keys after its own that it sees.
        right: Option<usize>,
    },
}

/// The order of rows in Q, K, V and O. All are contiguous.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Layout {
    /// `[batch, heads, rows, dim]`.
    #[default]
    HeadsFirst,
    /// `[batch, rows, heads, dim]`.
    RowsFirst,
}

/// Options of a computation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Options {
    /// The keys that a query sees.
    pub mask: Mask,
    /// The factor of scores, a positive number; `1 / √dim` if it is `None`.
    pub scale: Option<f32>,
    /// The order of rows.
    pub layout: Layout,
    /// The form; that of [`Attention::form_for`](crate::Attention::form_for) if it is `None`.
    pub form: Option<AttentionForm>,
}

/// Head dimensions for which there are kernels.
const DIMS: [usize; 3] = [64, 128, 256];

/// Most rows of a tensor, most heads of all batches: kernels add rows and sides of windows in 32
/// bits.
const MOST: usize = 1 << 29;

impl Shape {
    /// Elements of Q, and of O.
    pub fn query_elements(&self) -> usize {
        self.rows() * self.dim
    }

    /// Elements of K, and of V.
    pub fn key_elements(&self) -> usize {
        self.batch * self.key_heads * self.keys * self.dim
    }

    /// Rows of Q: as many log-sum-exps are computed.
    pub fn rows(&self) -> usize {
        self.batch * self.heads * self.queries
    }

    pub(crate) fn check(&self) -> Result<()> {
        let Shape { batch, heads, key_heads, queries, keys, dim } = *self;
        if !DIMS.contains(&dim) {
            return Err(wrong(format!("there are kernels for head dimensions 64, 128 and 256, not {dim}")));
        }
        if key_heads == 0 && heads > 0 || key_heads > 0 && !heads.is_multiple_of(key_heads) {
            return Err(wrong(format!(
                "{heads} heads of queries cannot share {key_heads} heads of keys evenly; make heads a multiple of key_heads"
            )));
        }
        for (what, heads, rows) in [("queries", heads, queries), ("keys", key_heads, keys)] {
            let all = batch.checked_mul(heads).and_then(|all| all.checked_mul(rows));
            if rows > MOST || batch.saturating_mul(heads) > MOST || all.is_none_or(|all| all > MOST) {
                return Err(wrong(format!(
                    "batch {batch}, {heads} heads and {rows} {what} make more than {MOST} rows; split the batch"
                )));
            }
        }
        Ok(())
    }

    pub(crate) fn check_queries(&self, what: &str, found: usize) -> Result<()> {
        self.check_buffer(what, found, self.heads, self.queries)
    }

    pub(crate) fn check_keys(&self, what: &str, found: usize) -> Result<()> {
        self.check_buffer(what, found, self.key_heads, self.keys)
    }

    fn check_buffer(&self, what: &str, found: usize, heads: usize, rows: usize) -> Result<()> {
        let needed = self.batch * heads * rows * self.dim;
        if found == needed {
            return Ok(());
        }
        Err(wrong(format!(
            "{what} has {found} elements, and its shape [batch {}, heads {heads}, rows {rows}, dim {}] needs {needed}",
            self.batch, self.dim
        )))
    }

    pub(crate) fn check_log_sum_exp(&self, found: usize) -> Result<()> {
        let needed = self.rows();
        if found == needed {
            return Ok(());
        }
        Err(wrong(format!("the log-sum-exps have {found} elements, and there are {needed} rows of queries")))
    }
}

impl Options {
    /// The scale, checked. Kernels find the greatest score before they scale it, so it must be
    /// positive.
    pub(crate) fn checked_scale(&self, dim: usize) -> Result<f32> {
        let scale = self.scale.unwrap_or_else(|| 1.0 / (dim as f32).sqrt());
        if scale.is_finite() && scale > 0.0 {
            return Ok(scale);
        }
        Err(wrong(format!("the scale must be positive and finite, not {scale}")))
    }
}

fn wrong(why: String) -> Error {
    Error::Shape { technique: TECHNIQUE, why }
}
