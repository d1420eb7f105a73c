//! The Hopper form of the products: `cuda/moe_hopper.cu`.

use apex_gpu::Buffer;
use bytemuck::Pod;

use crate::hopper::{Layout, TensorMap, tensor_map};
use crate::images::{Code, Image};
use crate::moe::shape::{Shape, TILE_ROWS};
use crate::moe::{Between, Call, Inputs, MoeForm};
use crate::{Element, Result};

pub const HOPPER: Image =
    Image { name: "moe_hopper", code: Code::Binary(include_bytes!("../../binaries/moe_hopper.fatbin")) };

/// As in `cuda/moe_hopper.cu`.
pub const THREADS: u32 = 384;
const STAGES: usize = 4;
pub const STEP: usize = 64;
pub const WEIGHTS: usize = 256;
pub const PANEL: usize = 64;
/// Room to align, the stages, barriers.
pub const SHARED: u32 = (1024 + STAGES * (TILE_ROWS + WEIGHTS) * 2 * STEP + 256) as u32;

// A block fits a multiprocessor, and copies fit the copy engine: rows of the swizzle, at most 256
// of them.
const _: () = assert!(SHARED <= 227 * 1024 && 2 * STEP == 128 && WEIGHTS <= 256 && TILE_ROWS <= 256);

/// Returns the reason why there is no kernel for the shape, if there is none.
pub fn refusal(shape: &Shape) -> Option<String> {
    let even = shape.dim.is_multiple_of(8) && shape.hidden.is_multiple_of(8);
    (!even).then(|| {
        let Shape { dim, hidden, .. } = shape;
        format!("it copies 8 elements at a time, and dim {dim} or hidden {hidden} is no multiple of 8")
    })
}

impl Call<'_> {
    /// Both products, for the rows that [`Call::route`] has placed: one persistent block for each
    /// multiprocessor.
    pub fn hopper_products<T: Element>(
        &self,
        inputs: &Inputs<'_, Buffer<T>>,
        between: Between<'_, T>,
    ) -> Result<()> {
        let &Shape { experts, dim, hidden, .. } = self.shape;
        let Between { plan, counters, projections, hidden: layers, rows } = between;
        let kernel = |product| self.moe.kernel(HOPPER, &format!("moe_{product}_hopper_{}", T::NAME));
        let (up, down) = (kernel("up")?, kernel("down")?);
        let blocks = self.moe.device.limits().multiprocessors;

        // A copy of weights brings half of them from Gate and half from Up.
        let up_map = self.map::<T, T>(inputs.up, [dim, hidden, 2, experts], [STEP, WEIGHTS / 2, 2])?;
        let launch = up.launch(blocks, THREADS).shared(SHARED).on(self.stream).arg(up_map);
        let launch = launch.arg(inputs.up).arg(inputs.tokens).arg(&plan.row_tokens).arg(&plan.tiles);
        let launch = launch.arg(&mut *counters).arg(&mut *layers);
        let launch = match projections {
            Some(projections) => launch.arg(projections),
            None => launch.arg(0u64),
        };
        // SAFETY: the map describes the weights, the buffers have the sizes that the problem says,
        // tiles are those of its rows, and the counters are zero: a launch leaves them so, and the
        // next one on any stream runs after it.
        unsafe { launch.arg(self.problem).launch()? };

        let down_map = self.map::<T, T>(inputs.down, [hidden, dim, 1, experts], [STEP, WEIGHTS, 1])?;
        let hidden_map = self.map::<T, u16>(layers, [hidden, self.rows, 1, 1], [STEP, TILE_ROWS, 1])?;
        let launch =
            down.launch(blocks, THREADS).shared(SHARED).on(self.stream).arg(down_map).arg(hidden_map);
        let launch = launch.arg(inputs.down).arg(&*layers).arg(&plan.tiles);
        let launch = launch.arg(counters).arg(rows);
        // SAFETY: as above; the first product has written all rows.
        unsafe { launch.arg(self.problem).launch()? };
        Ok(())
    }

    /// A map of a contiguous tensor, the innermost dimension first, and of the tiles that are
    /// copied of it.
    pub fn map<T: Element, B: Pod>(
        &self,
        buffer: &Buffer<B>,
        [columns, rows, matrices, experts]: [usize; 4],
        [wide, high, deep]: [usize; 3],
    ) -> Result<TensorMap> {
        let layout = Layout {
            sizes: [columns, rows, matrices, experts, 1],
            strides: [columns, columns * rows, columns * rows * matrices, columns * rows * matrices],
            tile: [wide, high, deep, 1, 1],
        };
        tensor_map::<T, B>(buffer, &layout).map_err(|why| self.moe.refused(MoeForm::Hopper, why))
    }
}
