//! The forms that run everywhere: `cuda/attention_portable.cu`.

use crate::attention::shape::Mask;
use crate::attention::{Call, Tensors};
use crate::images::{Code, Image};
use crate::{Element, Result};

const PORTABLE: Image = Image {
    name: "attention_portable",
    code: Code::Ptx(include_bytes!("../../binaries/attention_portable.ptx.zst")),
};

/// Queries of a tile of the flash form.
pub const FLASH_ROWS: usize = 16;
/// Blocks of a grid; kernels loop over what is more.
const MOST_BLOCKS: usize = 1 << 20;
/// Blocks along z, of which a grid can have 65535.
const MOST_HEADS: usize = 65535;

impl Call<'_> {
    /// All scores, then weights in their place, then the product with V.
    pub fn standard<T: Element>(&self, tensors: Tensors<'_, T>) -> Result<()> {
        let Tensors { q, k, v, output, log_sum_exp } = tensors;
        let (shape, attention, problem) = (self.shape, self.attention, self.problem);
        let mut scores = attention.device.zeros_on::<f32>(shape.rows() * shape.keys, self.stream)?;
        let heads = (shape.batch * shape.heads).min(MOST_HEADS) as u32;

        let (width, height) = (32, 4);
        let grid = [shape.keys.div_ceil(width) as u32, shape.queries.div_ceil(height) as u32, heads];
        let kernel = attention.kernel(PORTABLE, &format!("attention_scores_{}", T::NAME))?;
        let launch = kernel.launch(grid, [width as u32, height as u32, 1]).on(self.stream);
        // SAFETY: the buffers have the sizes that the problem says, and there is a score for each
        // row and key.
        unsafe { launch.arg(q).arg(k).arg(&mut scores).arg(problem).launch()? };

        let warps = 4;
        let grid = [shape.rows().div_ceil(warps).min(MOST_BLOCKS) as u32, 1, 1];
        let kernel = attention.kernel(PORTABLE, "attention_weights")?;
        let launch = kernel.launch(grid, [32 * warps as u32, 1, 1]).on(self.stream);
        // SAFETY: as above, and there is a log-sum-exp for each row.
        unsafe { launch.arg(&mut scores).arg(log_sum_exp).arg(problem).arg(self.mask_number()).launch()? };

        let (width, height) = (shape.dim / 2, 256 / shape.dim);
        let grid = [1, shape.queries.div_ceil(height) as u32, heads];
        let kernel = attention.kernel(PORTABLE, &format!("attention_values_{}", T::NAME))?;
        let launch = kernel.launch(grid, [width as u32, height as u32, 1]).on(self.stream);
        // SAFETY: as above.
        unsafe { launch.arg(&scores).arg(v).arg(output).arg(problem).launch()? };
        Ok(())
    }

    /// One kernel, 16 queries to a block.
    pub fn flash<T: Element>(&self, tensors: Tensors<'_, T>) -> Result<()> {
        let Tensors { q, k, v, output, log_sum_exp } = tensors;
        let shape = self.shape;
        let tiles = shape.batch * shape.heads * shape.queries.div_ceil(FLASH_ROWS);
        let name = format!("attention_flash_{}_d{}", T::NAME, shape.dim);
        let kernel = self.attention.kernel(PORTABLE, &name)?;
        let launch = kernel.launch([tiles.min(MOST_BLOCKS) as u32, 1, 1], [128, 1, 1]).on(self.stream);
        let launch = launch.arg(q).arg(k).arg(v).arg(output).arg(log_sum_exp).arg(self.problem);
        // SAFETY: the buffers have the sizes that the problem says.
        unsafe { launch.arg(self.mask_number()).launch()? };
        Ok(())
    }

    /// As `attention::Mask` in `cuda/attention.cuh`.
    pub fn mask_number(&self) -> i32 {
        match self.mask {
            Mask::Full => 0,
            Mask::Causal => 1,
            Mask::Window { .. } => 2,
        }
    }
}
