//! The gradients in the form that runs everywhere, and that of the gate, which all forms have in
//! common: `cuda/moe_backward_portable.cu`.

use apex_gpu::Buffer;

use crate::images::{Code, Image};
use crate::moe::backward::{Forward, Gradients, Kept};
use crate::moe::portable::{MOST_BLOCKS, MOST_PARTS, SIDE, THREADS};
use crate::moe::shape::Shape;
use crate::moe::{Call, Workspace};
use crate::{Element, Result};

const PORTABLE: Image = Image {
    name: "moe_backward_portable",
    code: Code::Ptx(include_bytes!("../../../binaries/moe_backward_portable.ptx.zst")),
};

/// Number of partial gradients of a row's weight: one for each tile of columns.
pub fn weight_parts(shape: &Shape) -> usize {
    shape.hidden.div_ceil(SIDE)
}

impl Call<'_> {
    /// Gradients of the hidden layers, of both weights, and of the rows of tokens.
    pub fn portable_gradients<T: Element>(
        &self,
        kept: &Kept<'_, T>,
        output_gradient: &Buffer<T>,
        gradients: &mut Gradients<Buffer<T>>,
        workspace: &mut Workspace,
    ) -> Result<()> {
        let (&Kept { inputs, weights, plan, projections }, shape) = (kept, self.shape);
        let Workspace { hidden, rows, projection_gradient, weight_parts, .. } = workspace;
        let kernel = |of| self.moe.kernel(PORTABLE, &format!("moe_{of}_gradient_portable_{}", T::NAME));

        let of_hidden = kernel("hidden")?;
        let launch = of_hidden.launch(self.parts(shape.hidden), THREADS).on(self.stream);
        let launch = launch.arg(inputs.down).arg(output_gradient).arg(&plan.row_tokens).arg(&plan.tiles);
        let launch = launch.arg(&mut *projection_gradient).arg(projections).arg(weights);
        let launch = launch.arg(&plan.row_choices).arg(&mut *hidden).arg(weight_parts);
        // SAFETY: the buffers have the sizes that the problem says, the plan is that of its rows,
        // and there is a part for each row and block along x.
        unsafe { launch.arg(self.problem).launch()? };

        let grid = |height: usize, width: usize| {
            let parts = (shape.experts * height.div_ceil(SIDE)).min(MOST_PARTS);
            [width.div_ceil(SIDE) as u32, parts as u32, 1]
        };
        let of_up = kernel("up")?;
        let launch = of_up.launch(grid(2 * shape.hidden, shape.dim), THREADS).on(self.stream);
        let launch = launch.arg(&*projection_gradient).arg(inputs.tokens).arg(&plan.row_tokens);
        // SAFETY: as above; the first kernel has written all rows.
        unsafe { launch.arg(&plan.spans).arg(&mut gradients.up).arg(self.problem).launch()? };

        let of_down = kernel("down")?;
        let launch = of_down.launch(grid(shape.dim, shape.hidden), THREADS).on(self.stream);
        let launch = launch.arg(&*hidden).arg(output_gradient).arg(&plan.row_tokens);
        // SAFETY: as above.
        unsafe { launch.arg(&plan.spans).arg(&mut gradients.down).arg(self.problem).launch()? };

        let of_tokens = kernel("token")?;
        let launch = of_tokens.launch(self.parts(shape.dim), THREADS).on(self.stream);
        let launch = launch.arg(inputs.up).arg(&*projection_gradient).arg(&plan.tiles);
        // SAFETY: as above.
        unsafe { launch.arg(rows).arg(self.problem).launch()? };
        Ok(())
    }

    /// Adds up the parts of the weights' gradients, `parts` for each row, and leads them through
    /// the gate.
    pub fn gate_gradient<T: Element>(
        &self,
        forward: &Forward<'_, T>,
        weight_parts: &Buffer<f32>,
        parts: usize,
        gradient: &mut Buffer<f32>,
    ) -> Result<()> {
        let Forward { inputs, routing, saved } = forward;
        let kernel = self.moe.kernel(PORTABLE, "moe_gate_gradient")?;
        let warps = THREADS / 32;
        let blocks = self.shape.tokens.div_ceil(warps as usize).min(MOST_BLOCKS) as u32;
        let shared = 4 * warps * self.shape.experts as u32;
        let launch = kernel.launch(blocks, THREADS).shared(shared).on(self.stream).arg(inputs.logits);
        let launch = launch.arg(&routing.weights).arg(&routing.experts).arg(&saved.plan.choice_rows);
        let launch = launch.arg(weight_parts).arg(parts as i32);
        // SAFETY: the buffers have the sizes that the problem says, and each row's parts have been
        // written.
        unsafe { launch.arg(gradient).arg(self.problem).launch()? };
        Ok(())
    }
}
