//! Freed ranges that stay mapped for a while.
//!
//! A use after free is found rather than hidden by the next allocation, and an executing kernel
//! that still holds a freed range touches nobody else's memory.

use crate::memory::Allocation;
use std::collections::VecDeque;
use std::sync::Arc;

/// Freed ranges, oldest first. They hold address space only: their pages go back to the system at
/// once.
#[derive(Default)]
pub(super) struct Quarantine {
    /// Each with the driver function that freed it, if that is known.
    pub(super) freed: VecDeque<(Arc<Allocation>, &'static str)>,
}

impl Quarantine {
    pub(super) const CAPACITY: usize = 256;

    pub(super) fn push(&mut self, allocation: Arc<Allocation>, by: &'static str) {
        let Some(backing) = &allocation.backing else { return };
        // Unless somebody means to use it again.
        if Arc::strong_count(backing) == 1 {
            backing.discard_pages();
        }
        self.freed.push_back((allocation, by));
    }

    pub(super) fn shrink(&mut self) {
        let excess = self.freed.len().saturating_sub(Self::CAPACITY);
        self.freed.drain(..excess);
    }

    pub(super) fn find(&self, address: u64) -> Option<(&Allocation, &'static str)> {
        let mut newest_first = self.freed.iter().rev().map(|(freed, by)| (&**freed, *by));
        newest_first.find(|(freed, _)| freed.holds(address, 1))
    }
}
