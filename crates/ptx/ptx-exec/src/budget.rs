//! The host memory that a launch takes beside what the program has allocated: shared and local
//! memory of resident blocks, and the registers of nested calls.
//!
//! PTX and limits that programs set decide how much that is. So it is accounted for before it is
//! allocated, with functions that can fail: a launch that asks for too much ends with a fault, and
//! the process goes on.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// The memory that all blocks of a launch may take together, in bytes.
pub(crate) struct Budget {
    left: AtomicU64,
}

impl Budget {
    pub(crate) fn new(bytes: u64) -> Self {
        Budget { left: AtomicU64::new(bytes) }
    }
}

/// The memory that one resident block has taken of a [`Budget`]. It is given back with the block.
pub(crate) struct Share<'l> {
    budget: &'l Budget,
    taken: u64,
}

impl<'l> Share<'l> {
    pub(crate) fn new(budget: &'l Budget) -> Self {
        Share { budget, taken: 0 }
    }

    /// Takes as many bytes more, if there are as many left.
    #[must_use]
    pub(crate) fn take(&mut self, bytes: u64) -> bool {
        let rest = |left: u64| left.checked_sub(bytes);
        let granted = self.budget.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest).is_ok();
        self.taken += if granted { bytes } else { 0 };
        granted
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.budget.left.fetch_add(self.taken, Ordering::Relaxed);
    }
}

/// Zeroed memory that only one block uses at a time.
pub(crate) struct Arena {
    storage: NonNull<u8>,
    layout: Layout,
    start: u64,
}

impl Arena {
    /// Memory of `bytes` bytes whose start is a multiple of `align`; `None` if the share or the
    /// host has not as much.
    pub(crate) fn new(bytes: u64, align: u64, share: &mut Share) -> Option<Self> {
        // Larger alignment is made by hand: the allocator would write all of the memory to zero it.
        let units = bytes.checked_add(align)?.div_ceil(16).max(1);
        let layout = Layout::array::<u128>(usize::try_from(units).ok()?).ok()?;
        if !share.take(layout.size() as u64) {
            return None;
        }
        // SAFETY: the layout has a size, of one unit at least.
        let storage = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        let start = (storage.as_ptr() as u64).next_multiple_of(align);
        Some(Arena { storage, layout, start })
    }

    /// The first address.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// Fills the memory with zeros.
    pub(crate) fn clear(&mut self) {
        // SAFETY: the memory is as large as its layout says, and nothing refers to it while a block
        // has not started.
        unsafe { self.storage.write_bytes(0, self.layout.size()) };
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout, and its block is gone.
        unsafe { dealloc(self.storage.as_ptr(), self.layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_end_where_the_budget_does_and_are_given_back() {
        let budget = Budget::new(1000);
        let (mut first, mut second) = (Share::new(&budget), Share::new(&budget));
        assert!(first.take(600) && !second.take(401) && second.take(400) && !first.take(1));
        drop(first);
        assert!(second.take(600) && !second.take(1));
    }

    #[test]
    fn an_arena_that_does_not_fit_is_none() {
        let budget = Budget::new(1 << 20);
        let mut share = Share::new(&budget);
        let arena = Arena::new(1000, 256, &mut share).unwrap();
        assert!(arena.start().is_multiple_of(256));
        assert!(Arena::new(1 << 20, 16, &mut share).is_none());
        let unlimited = Budget::new(u64::MAX);
        for bytes in [1 << 60, u64::MAX - 16, u64::MAX] {
            // Of an arena that nobody looks at, the compiler leaves the allocation out.
            let arena = std::hint::black_box(Arena::new(bytes, 16, &mut Share::new(&unlimited)));
            assert!(arena.is_none(), "{bytes}");
        }
    }
}
