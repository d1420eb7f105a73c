//! Accesses to memory.

use std::ops::AddAssign;

/// A memory whose traffic is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[repr(u8)]
pub enum Space {
    /// Global memory; transactions are sectors of 32 bytes.
    Global,
    /// Shared memory; transactions are wavefronts over 32 banks of 4 bytes.
    Shared,
    /// Local memory; transactions are not counted, for they depend on how a compiler spills.
    Local,
}

impl Space {
    /// All of them, in the order of their numbers.
    pub const ALL: [Space; 3] = [Space::Global, Space::Shared, Space::Local];
}

/// The direction of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[repr(u8)]
pub enum Direction {
    /// Reads.
    Load,
    /// Writes.
    Store,
    /// Both at once.
    Atomic,
}

impl Direction {
    /// All of them, in the order of their numbers.
    pub const ALL: [Direction; 3] = [Direction::Load, Direction::Store, Direction::Atomic];
}

/// Accesses of one sort.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Traffic {
    /// Memory instructions, each counted once for a warp.
    pub requests: u64,
    /// The same, counted for each thread.
    pub threads: u64,
    /// Bytes that the threads asked for.
    pub bytes: u64,
    /// Sectors or wavefronts.
    pub transactions: u64,
    /// Transactions that another layout would save.
    pub excess: u64,
}

impl Traffic {
    /// Transactions of a request on average; 0 without requests.
    pub fn per_request(&self) -> f64 {
        if self.requests == 0 { 0.0 } else { self.transactions as f64 / self.requests as f64 }
    }
}

impl AddAssign<&Traffic> for Traffic {
    fn add_assign(&mut self, other: &Traffic) {
        for (sum, more) in [
            (&mut self.requests, other.requests),
            (&mut self.threads, other.threads),
            (&mut self.bytes, other.bytes),
            (&mut self.transactions, other.transactions),
            (&mut self.excess, other.excess),
        ] {
            *sum = sum.saturating_add(more);
        }
    }
}
