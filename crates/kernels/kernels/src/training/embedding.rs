//! Embeddings: rows of a table by number, and the table's gradient.

use apex_gpu::{Buffer, Device, Stream};

use crate::error::check_elements;
use crate::training::{Kernels, MOST_BLOCKS, TECHNIQUE, THREADS, wrong};
use crate::{Element, Result};

/// Rows of the vocabulary of a block of the gradient, as `training::ROWS` in `cuda/training.cu`.
const ROWS: usize = 16;
/// Most tokens, and most rows of a table: kernels count them in 32 bits.
const MOST: usize = 1 << 30;
/// Most elements of a row: blocks along y take 128 of them each.
const MOST_DIM: usize = 1 << 20;

/// Embeddings on one device: looks up the rows of tokens in a table, `[vocabulary, dim]`. Make one,
/// use it for all tables.
///
/// ```
/// use apex_kernels::training::Embedding;
/// use half::bf16;
///
/// let device = apex_gpu::Device::open(0)?;
/// let embedding = Embedding::new(&device);
/// let row = |number: f32| [bf16::from_f32(number); 2];
/// let table = device.upload(&[row(0.0), row(1.0), row(2.0)].concat())?; // three rows of two
/// let ids = device.upload(&[2u32, 0, 2])?;
/// let mut rows = device.zeros(6)?;
/// embedding.forward_into(&table, &ids, &mut rows, 2, device.stream())?;
/// assert_eq!(rows.to_vec()?, [row(2.0), row(0.0), row(2.0)].concat());
///
/// let mut gradient = device.zeros(6)?;
/// embedding.gradient_into(&ids, &rows, &mut gradient, 2, device.stream())?;
/// assert_eq!(gradient.to_vec()?, [row(0.0), row(0.0), row(4.0)].concat()); // row 2 was read twice
/// # apex_kernels::Result::Ok(())
/// ```
#[derive(Debug)]
pub struct Embedding(Kernels);

impl Embedding {
    /// Embeddings on `device`. Kernels are loaded when they are first needed.
    pub fn new(device: &Device) -> Embedding {
        Embedding(Kernels::new(device))
    }

    /// Writes row `ids[i]` of `table`, which has rows of `dim` elements, to row `i` of `output`;
    /// zeros if the table has no such row. Returns before the work is done.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the table has a part of a row, `output` is not
    /// `[ids, dim]`, or a size is too large; [`Error::Gpu`](crate::Error::Gpu).
    pub fn forward_into<T: Element>(
        &self,
        table: &Buffer<T>,
        ids: &Buffer<u32>,
        output: &mut Buffer<T>,
        dim: usize,
        stream: &Stream,
    ) -> Result<()> {
        let sizes = Sizes::new(table.len(), ids.len(), dim)?;
        sizes.check_tokens("the outputs", output.len())?;
        if sizes.tokens == 0 {
            return Ok(());
        }
        let kernel = self.0.get::<T>("embed")?;
        let launch = kernel.launch(sizes.tokens.min(MOST_BLOCKS) as u32, THREADS as u32).on(stream);
        let launch = launch.arg(table).arg(ids).arg(output).arg(sizes.tokens as i32);
        // SAFETY: the buffers have these sizes, and ids outside of the vocabulary are not followed.
        unsafe { launch.arg(sizes.vocabulary as i32).arg(dim as i32).launch()? };
        Ok(())
    }

    /// Writes the table's gradient: each row is the sum, in f32 and in the order of tokens, of the
    /// rows of `output_gradient`, `[ids, dim]`, whose tokens looked it up; zeros if none did. It
    /// may hold anything before. Returns before the work is done.
    ///
    /// # Errors
    /// As [`Embedding::forward_into`].
    pub fn gradient_into<T: Element>(
        &self,
        ids: &Buffer<u32>,
        output_gradient: &Buffer<T>,
        gradient: &mut Buffer<T>,
        dim: usize,
        stream: &Stream,
    ) -> Result<()> {
        let sizes = Sizes::new(gradient.len(), ids.len(), dim)?;
        sizes.check_tokens("the outputs' gradients", output_gradient.len())?;
        if sizes.vocabulary == 0 {
            return Ok(());
        }
        let kernel = self.0.get::<T>("embed_gradient")?;
        let grid = [sizes.vocabulary.div_ceil(ROWS) as u32, dim.div_ceil(THREADS) as u32, 1];
        let launch = kernel.launch(grid, [THREADS as u32, 1, 1]).on(stream);
        let launch = launch.arg(ids).arg(output_gradient).arg(gradient).arg(sizes.tokens as i32);
        // SAFETY: the buffers have these sizes, and each block looks for the ids of its own rows.
        unsafe { launch.arg(sizes.vocabulary as i32).arg(dim as i32).launch()? };
        Ok(())
    }
}

/// Sizes that kernels can count.
struct Sizes {
    vocabulary: usize,
    tokens: usize,
    dim: usize,
}

impl Sizes {
    fn new(table: usize, tokens: usize, dim: usize) -> Result<Sizes> {
        if !(1..=MOST_DIM).contains(&dim) {
            return Err(wrong(format!("rows of a table have 1 to {MOST_DIM} elements, not {dim}")));
        }
        if !table.is_multiple_of(dim) {
            return Err(wrong(format!("a table of {table} elements has no whole rows of {dim}")));
        }
        let vocabulary = table / dim;
        for (what, size) in [("tokens", tokens), ("rows of a table", vocabulary)] {
            if size > MOST {
                return Err(wrong(format!("{size} {what} are more than {MOST}")));
            }
        }
        Ok(Sizes { vocabulary, tokens, dim })
    }

    fn check_tokens(&self, what: &str, found: usize) -> Result<()> {
        check_elements(TECHNIQUE, what, &[("tokens", self.tokens), ("dim", self.dim)], found)
    }
}
