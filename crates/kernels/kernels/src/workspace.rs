//! Memory that kernels need beside their results. It is kept between calls, because clearing new
//! memory takes longer than some calls. Calls on different streams take turns at it, as `gpu`
//! orders the uses of a buffer.

use apex_gpu::{Buffer, Stream};
use bytemuck::Pod;

use crate::Result;

/// `buffer` with at least `len` elements, which hold anything. If it has fewer, a new one of
/// exactly `len` zeros takes its place.
pub fn reserve<'a, T: Pod>(
    buffer: &'a mut Buffer<T>,
    len: usize,
    stream: &Stream,
) -> Result<&'a mut Buffer<T>> {
    if buffer.len() < len {
        *buffer = buffer.device().zeros_on(len, stream)?;
    }
    Ok(buffer)
}
