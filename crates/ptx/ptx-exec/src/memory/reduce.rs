//! Reductions of asynchronous copies in memory: each element changes atomically.

use crate::arithmetic::reduction::Combine;
use crate::memory::access::Cell;

/// Combines the `bytes` bytes at `from` with those at `to`, element by element.
///
/// # Safety
/// `from` may be read, and `to` is valid for aligned atomic reads and writes of elements of `size`
/// bytes: 2, 4 or 8.
pub(crate) unsafe fn combine((size, combine): (usize, Combine), from: *const u8, to: *mut u8, bytes: usize) {
    for at in (0..bytes).step_by(size) {
        // SAFETY: the caller's promise.
        unsafe {
            let (from, to) = (from.add(at), to.add(at));
            match size {
                2 => {
                    let new = from.cast::<u16>().read_unaligned().into();
                    u16::update(to.cast(), |old| combine(old.into(), new) as u16);
                }
                4 => {
                    let new = from.cast::<u32>().read_unaligned().into();
                    u32::update(to.cast(), |old| combine(old.into(), new) as u32);
                }
                _ => {
                    let new = from.cast::<u64>().read_unaligned();
                    u64::update(to.cast(), |old| combine(old, new));
                }
            }
        }
    }
}
