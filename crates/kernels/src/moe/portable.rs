//! Routing and combination, which all forms have in common, and the products that run everywhere:
//! `cuda/moe_portable.cu`.

use apex_gpu::Buffer;

use crate::images::{Code, Image};
use crate::moe::shape::{CHUNK, TILE_ROWS};
use crate::moe::{Call, Inputs, Routing, Workspace};
use crate::workspace::reserve;
use crate::{Element, Result};

const PORTABLE: Image =
    Image { name: "moe_portable", code: Code::Ptx(include_bytes!("../../binaries/moe_portable.ptx.zst")) };

/// Threads of a block of all of these kernels.
const THREADS: u32 = 256;
/// Rows and columns of a block's part of a tile, as `moe::SIDE`.
const SIDE: usize = 32;
/// Blocks of a grid; kernels loop over what is more.
const MOST_BLOCKS: usize = 1 << 20;
/// Blocks along y, of which a grid can have 65535.
const MOST_PARTS: usize = 65535;

impl Call<'_> {
    /// As much memory as the call needs.
    pub fn reserve(&self, workspace: &mut Workspace) -> Result<()> {
        let (shape, stream) = (self.shape, self.stream);
        reserve(&mut workspace.counts, shape.experts * shape.chunks(), stream)?;
        reserve(&mut workspace.row_tokens, shape.choices(), stream)?;
        reserve(&mut workspace.choice_rows, shape.choices(), stream)?;
        reserve(&mut workspace.tiles, 1 + shape.most_tiles(), stream)?;
        reserve(&mut workspace.hidden, shape.choices() * shape.hidden, stream)?;
        reserve(&mut workspace.rows, shape.choices() * shape.dim, stream)?;
        Ok(())
    }

    /// Lets tokens choose, and gives each choice its row.
    pub fn route(
        &self,
        logits: &Buffer<f32>,
        routing: &mut Routing,
        workspace: &mut Workspace,
    ) -> Result<()> {
        let shape = self.shape;
        let kernel = |name| self.moe.kernel(PORTABLE, name);
        let (route, scan, place) = (kernel("moe_route")?, kernel("moe_scan")?, kernel("moe_place")?);
        let chunks = shape.chunks().min(MOST_BLOCKS) as u32;

        // A count for each expert, and its rank for each warp.
        let shared = 4 * shape.experts as u32 * (1 + THREADS / 32);
        let launch = route.launch(chunks, THREADS).shared(shared).on(self.stream).arg(logits);
        let launch = launch.arg(&mut routing.weights).arg(&mut routing.experts).arg(&mut workspace.counts);
        // SAFETY: the buffers have the sizes that the problem says, and there is a count for each
        // expert and chunk.
        unsafe { launch.arg(self.problem).launch()? };

        let launch = scan.launch(shape.experts as u32, THREADS).on(self.stream);
        // SAFETY: as above; there is a load for each expert.
        unsafe { launch.arg(&mut workspace.counts).arg(&mut routing.loads).arg(self.problem).launch()? };

        // The first row of each expert, and the choices of a chunk.
        let shared = 4 * (shape.experts + CHUNK * shape.top_k) as u32;
        let launch = place.launch(chunks, THREADS).shared(shared).on(self.stream);
        let launch = launch.arg(&routing.experts).arg(&workspace.counts).arg(&routing.loads);
        let launch = launch.arg(&mut workspace.row_tokens).arg(&mut workspace.choice_rows);
        // SAFETY: as above; loads and counts are those of the choices, so that rows and tiles are
        // within the workspace.
        unsafe { launch.arg(&mut workspace.tiles).arg(self.problem).launch()? };
        Ok(())
    }

    /// Both products, for the rows that [`Call::route`] has placed.
    pub fn portable_products<T: Element>(
        &self,
        inputs: &Inputs<'_, Buffer<T>>,
        workspace: &mut Workspace,
    ) -> Result<()> {
        let kernel = |product| self.moe.kernel(PORTABLE, &format!("moe_{product}_portable_{}", T::NAME));
        let (up, down) = (kernel("up")?, kernel("down")?);
        let parts = (self.shape.most_tiles() * (TILE_ROWS / SIDE)).min(MOST_PARTS);
        let grid = |width: usize| [width.div_ceil(SIDE) as u32, parts as u32, 1];

        let launch = up.launch(grid(self.shape.hidden), THREADS).on(self.stream);
        let launch =
            launch.arg(inputs.up).arg(inputs.tokens).arg(&workspace.row_tokens).arg(&workspace.tiles);
        // SAFETY: the buffers have the sizes that the problem says, and tiles are those of its
        // rows.
        unsafe { launch.arg(&mut workspace.hidden).arg(self.problem).launch()? };

        let launch = down.launch(grid(self.shape.dim), THREADS).on(self.stream);
        let launch = launch.arg(inputs.down).arg(&workspace.hidden).arg(&workspace.tiles);
        // SAFETY: as above; the first product has written all rows.
        unsafe { launch.arg(&mut workspace.rows).arg(self.problem).launch()? };
        Ok(())
    }

    /// Adds up the rows of each token.
    pub fn combine<T: Element>(
        &self,
        routing: &Routing,
        workspace: &Workspace,
        output: &mut Buffer<T>,
    ) -> Result<()> {
        let kernel = self.moe.kernel(PORTABLE, &format!("moe_combine_{}", T::NAME))?;
        let launch = kernel.launch(self.shape.tokens.min(MOST_BLOCKS) as u32, THREADS).on(self.stream);
        let launch = launch.arg(&workspace.rows).arg(&routing.weights).arg(&workspace.choice_rows);
        // SAFETY: the buffers have the sizes that the problem says, and each choice's row has been
        // written.
        unsafe { launch.arg(output).arg(self.problem).launch()? };
        Ok(())
    }
}
