//! The plan of one call's kernels: the position of each expert's rows.

use apex_gpu::{Buffer, Device, Stream};

use crate::Result;
use crate::moe::shape::{Shape, most_tiles};
use crate::workspace::reserve;

/// The rows of experts, as the routing of a forward pass places them: five buffers, which may be
/// larger than [`Plan::lengths`].
///
/// A *row* is one choice of one token; rows of an expert are contiguous, in the order of tokens.
#[derive(Debug)]
pub struct Plan {
    /// The token of each row.
    pub row_tokens: Buffer<u32>,
    /// The choice of each row.
    pub row_choices: Buffer<u32>,
    /// The row of each choice; `u32::MAX` for a choice that its expert did not take.
    pub choice_rows: Buffer<u32>,
    /// The first row of each expert, and their number.
    pub spans: Buffer<[u32; 2]>,
    /// As `moe::Tile`: their number, then the tiles.
    pub tiles: Buffer<[u32; 4]>,
}

impl Plan {
    pub(super) fn new(device: &Device) -> Result<Plan> {
        Ok(Plan {
            row_tokens: device.zeros(0)?,
            row_choices: device.zeros(0)?,
            choice_rows: device.zeros(0)?,
            spans: device.zeros(0)?,
            tiles: device.zeros(0)?,
        })
    }

    /// Elements of the buffers of a shape's plan, in the order of its fields.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape).
    pub fn lengths(shape: &Shape) -> Result<[usize; 5]> {
        shape.check()?;
        let rows = shape.choices();
        Ok([rows, rows, rows, shape.experts, 1 + most_tiles(rows, shape.experts)])
    }

    /// Reserves memory for at most `rows` rows, and for `choices` choices that may have one.
    pub(super) fn reserve(
        &mut self,
        rows: usize,
        choices: usize,
        experts: usize,
        stream: &Stream,
    ) -> Result<()> {
        reserve(&mut self.row_tokens, rows, stream)?;
        reserve(&mut self.row_choices, rows, stream)?;
        reserve(&mut self.choice_rows, choices, stream)?;
        reserve(&mut self.spans, experts, stream)?;
        reserve(&mut self.tiles, 1 + most_tiles(rows, experts), stream)?;
        Ok(())
    }
}
