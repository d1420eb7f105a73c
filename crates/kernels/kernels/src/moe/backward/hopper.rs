//! The gradients in the Hopper form: `cuda/moe_hopper.cu` and `cuda/moe_weights_hopper.cu`.

use apex_gpu::Buffer;

use crate::images::{Code, Image};
use crate::moe::backward::{Gradients, Kept};
use crate::moe::hopper::{HOPPER, PANEL, SHARED, STEP, THREADS, WEIGHTS};
use crate::moe::shape::{Shape, TILE_ROWS};
use crate::moe::{Call, Workspace};
use crate::{Element, Result};

const WEIGHT_GRADIENTS: Image = Image {
    name: "moe_weights_hopper",
    code: Code::Binary(include_bytes!("../../../binaries/moe_weights_hopper.fatbin")),
};

/// Number of partial gradients of a row's weight: one for each tile of columns.
pub fn weight_parts(shape: &Shape) -> usize {
    shape.hidden.div_ceil(WEIGHTS)
}

impl Call<'_> {
    /// Gradients of the hidden layers, of both weights, and of the rows of tokens: each a launch of
    /// one persistent block for each multiprocessor.
    pub fn hopper_gradients<T: Element>(
        &self,
        kept: &Kept<'_, T>,
        output_gradient: &Buffer<T>,
        gradients: &mut Gradients<Buffer<T>>,
        workspace: &mut Workspace,
    ) -> Result<()> {
        let &Kept { inputs, weights, plan, projections } = kept;
        let count = self.rows;
        let &Shape { experts, dim, hidden, .. } = self.shape;
        let Workspace { counters, hidden: weighted, rows, projection_gradient, weight_parts, .. } = workspace;
        let kernel = |image, of| self.moe.kernel(image, &format!("moe_{of}_gradient_hopper_{}", T::NAME));
        let blocks = self.moe.device.limits().multiprocessors;
        let panel = [PANEL, STEP, 1];

        let of_hidden = kernel(HOPPER, "hidden")?;
        let down_map = self.map::<T, T>(inputs.down, [hidden, dim, 1, experts], panel)?;
        let launch = of_hidden.launch(blocks, THREADS).shared(SHARED).on(self.stream).arg(down_map);
        let launch = launch.arg(inputs.down).arg(output_gradient).arg(&plan.row_tokens).arg(&plan.tiles);
        let launch = launch.arg(&mut *counters).arg(&mut *projection_gradient).arg(projections);
        let launch = launch.arg(weights).arg(&plan.row_choices).arg(&mut *weighted);
        // SAFETY: maps describe their buffers, the buffers have the sizes that the problem says,
        // the plan is that of its rows, there is a part of a weight's gradient for each row and
        // tile of columns, and the counters are zero: a launch leaves them so, and the next one on
        // any stream runs after it.
        unsafe { launch.arg(weight_parts).arg(self.problem).launch()? };

        let of_up = kernel(WEIGHT_GRADIENTS, "up")?;
        let map = self.map::<T, u16>(projection_gradient, [2 * hidden, count, 1, 1], panel)?;
        let launch = of_up.launch(blocks, THREADS).shared(SHARED).on(self.stream).arg(map);
        let launch = launch.arg(&*projection_gradient).arg(inputs.tokens).arg(&plan.row_tokens);
        let launch = launch.arg(&plan.spans).arg(&mut *counters).arg(&mut gradients.up);
        // SAFETY: as above; the first kernel has written all rows.
        unsafe { launch.arg(self.problem).launch()? };

        let of_down = kernel(WEIGHT_GRADIENTS, "down")?;
        let map = self.map::<T, u16>(weighted, [hidden, count, 1, 1], panel)?;
        let launch = of_down.launch(blocks, THREADS).shared(SHARED).on(self.stream).arg(map);
        let launch = launch.arg(&*weighted).arg(output_gradient).arg(&plan.row_tokens);
        let launch = launch.arg(&plan.spans).arg(&mut *counters).arg(&mut gradients.down);
        // SAFETY: as above.
        unsafe { launch.arg(self.problem).launch()? };

        let of_tokens = kernel(HOPPER, "token")?;
        let up_map = self.map::<T, T>(inputs.up, [dim, 2 * hidden, 1, experts], panel)?;
        let rows_map =
            self.map::<T, u16>(projection_gradient, [2 * hidden, count, 1, 1], [STEP, TILE_ROWS, 1])?;
        let launch = of_tokens.launch(blocks, THREADS).shared(SHARED).on(self.stream);
        let launch = launch.arg(up_map).arg(rows_map).arg(inputs.up).arg(&*projection_gradient);
        // SAFETY: as above.
        unsafe { launch.arg(&plan.tiles).arg(counters).arg(rows).arg(self.problem).launch()? };
        Ok(())
    }
}
