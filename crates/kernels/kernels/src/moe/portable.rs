//! Routing and combination, which all forms have in common, and the products that run everywhere:
//! `cuda/moe_portable.cu`.

use apex_gpu::Buffer;

use crate::images::{Code, Image};
use crate::moe::plan::Plan;
use crate::moe::shape::{CHUNK, Options, TILE_ROWS, most_tiles};
use crate::moe::{Between, Call, Inputs, Routing};
use crate::workspace::reserve;
use crate::{Element, Result};

const PORTABLE: Image =
    Image { name: "moe_portable", code: Code::Ptx(include_bytes!("../../binaries/moe_portable.ptx.zst")) };

/// Threads of a block of all of these kernels.
pub const THREADS: u32 = 256;
/// Rows and columns of a block's part of a tile, as `moe::SIDE`.
pub const SIDE: usize = 32;
/// Blocks of a grid; kernels loop over what is more.
pub const MOST_BLOCKS: usize = 1 << 20;
/// Blocks along y, of which a grid can have 65535.
pub const MOST_PARTS: usize = 65535;

impl Call<'_> {
    /// Lets tokens choose, and gives each choice that its expert takes a row.
    pub fn route<T>(
        &self,
        inputs: &Inputs<'_, Buffer<T>>,
        options: &Options,
        routing: &mut Routing,
        counts: &mut Buffer<u32>,
        plan: &mut Plan,
    ) -> Result<()> {
        let shape = self.shape;
        plan.reserve(self.rows, shape.choices(), shape.experts, self.stream)?;
        let counts = reserve(counts, shape.experts * shape.chunks(), self.stream)?;
        let kernel = |name| self.moe.kernel(PORTABLE, name);
        let (route, scan, place) = (kernel("moe_route")?, kernel("moe_scan")?, kernel("moe_place")?);
        let chunks = shape.chunks().min(MOST_BLOCKS) as u32;

        // A count for each expert, and its rank for each warp.
        let shared = 4 * shape.experts as u32 * (1 + THREADS / 32);
        let launch = route.launch(chunks, THREADS).shared(shared).on(self.stream);
        let launch = launch.arg(inputs.logits);
        let launch = match inputs.bias {
            Some(bias) => launch.arg(bias),
            None => launch.arg(0u64),
        };
        let launch = launch.arg(&mut routing.weights).arg(&mut routing.experts).arg(&mut *counts);
        // SAFETY: the buffers have the sizes that the problem says, and there is a count for each
        // expert and chunk.
        unsafe { launch.arg(&mut routing.drops).arg(self.problem).launch()? };

        let launch = scan.launch(shape.experts as u32, THREADS).on(self.stream);
        // SAFETY: as above; there is a load for each expert.
        unsafe { launch.arg(&mut *counts).arg(&mut routing.loads).arg(self.problem).launch()? };

        // The first row of each expert, and the choices of a chunk.
        let shared = 4 * (shape.experts + CHUNK * shape.top_k) as u32;
        let launch = place.launch(chunks, THREADS).shared(shared).on(self.stream);
        let launch = launch.arg(&routing.experts).arg(&*counts).arg(&routing.loads);
        let launch = launch.arg(&mut plan.row_tokens).arg(&mut plan.row_choices);
        let launch = launch.arg(&mut plan.choice_rows).arg(&mut plan.spans).arg(&mut plan.tiles);
        let launch = launch.arg(shape.most_taken(options) as i32).arg(&mut routing.drops);
        // SAFETY: as above; loads and counts are those of the choices, so that rows and tiles are
        // within the plan.
        unsafe { launch.arg(self.problem).launch()? };
        Ok(())
    }

    /// Both products, for the rows that [`Call::route`] has placed.
    pub fn portable_products<T: Element>(
        &self,
        inputs: &Inputs<'_, Buffer<T>>,
        between: Between<'_, T>,
    ) -> Result<()> {
        let Between { plan, projections, hidden, rows, .. } = between;
        let kernel = |product| self.moe.kernel(PORTABLE, &format!("moe_{product}_portable_{}", T::NAME));
        let (up, down) = (kernel("up")?, kernel("down")?);
        let launch = up.launch(self.parts(self.shape.hidden), THREADS).on(self.stream);
        let launch = launch.arg(inputs.up).arg(inputs.tokens).arg(&plan.row_tokens).arg(&plan.tiles);
        let launch = launch.arg(&mut *hidden);
        let launch = match projections {
            Some(projections) => launch.arg(projections),
            None => launch.arg(0u64),
        };
        // SAFETY: the buffers have the sizes that the problem says, and tiles are those of its
        // rows.
        unsafe { launch.arg(self.problem).launch()? };

        let launch = down.launch(self.parts(self.shape.dim), THREADS).on(self.stream);
        let launch = launch.arg(inputs.down).arg(&*hidden).arg(&plan.tiles);
        // SAFETY: as above; the first product has written all rows.
        unsafe { launch.arg(rows).arg(self.problem).launch()? };
        Ok(())
    }

    /// The grid of a product whose rows have `width` elements: columns along x, parts of tiles
    /// along y.
    pub fn parts(&self, width: usize) -> [u32; 3] {
        let parts = (most_tiles(self.rows, self.shape.experts) * (TILE_ROWS / SIDE)).min(MOST_PARTS);
        [width.div_ceil(SIDE) as u32, parts as u32, 1]
    }

    /// Adds up the rows of each token, by their weights if there are any.
    pub fn combine<T: Element>(
        &self,
        rows: &Buffer<u16>,
        weights: Option<&Buffer<f32>>,
        plan: &Plan,
        output: &mut Buffer<T>,
    ) -> Result<()> {
        let kernel = self.moe.kernel(PORTABLE, &format!("moe_combine_{}", T::NAME))?;
        let launch = kernel.launch(self.shape.tokens.min(MOST_BLOCKS) as u32, THREADS).on(self.stream);
        let launch = launch.arg(rows);
        let launch = match weights {
            Some(weights) => launch.arg(weights),
            None => launch.arg(0u64),
        };
        // SAFETY: the buffers have the sizes that the problem says, and the row of each choice that
        // has one has been written.
        unsafe { launch.arg(&plan.choice_rows).arg(output).arg(self.problem).launch()? };
        Ok(())
    }
}
