//! The statistics of a process's memory pool (`apex run --fast=memory`).

use apex_trace::layout::{PoolFigures, PoolState};
use serde::Serialize;

/// The memory pool of a process. Times are nanoseconds, measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemoryPool {
    /// The final state.
    pub state: State,
    /// The entry point whose call closed it.
    pub closed_by: Option<String>,
    /// Allocations that it served.
    pub served: u64,
    /// Their bytes.
    pub served_bytes: u64,
    /// Time that the driver took to allocate the same blocks the first time, once for each
    /// allocation that was served.
    pub alloc_ns: f64,
    /// Allocations that the driver made.
    pub allocated: u64,
    /// Operations whose time was taken.
    pub asked_samples: u64,
    /// Their time in all, in nanoseconds.
    pub asked_ns: f64,
    /// Frees after which it kept the memory.
    pub kept: u64,
    /// The frees among them that waited because work may have been outstanding.
    pub waits: u64,
    /// Blocks that it gave back to the driver.
    pub given_back: u64,
    /// Most bytes that the program had in a context.
    pub peak_bytes: u64,
    /// Most bytes that the program had and the pool kept in a context.
    pub peak_held_bytes: u64,
}

/// The final state of a memory pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It served allocations until the end.
    On,
    /// It served no allocation.
    Unused,
    /// A call closed it that lets others use memory, or submits work that the pool does not see.
    Closed,
    /// The driver refused to free memory that the pool had kept.
    Refused,
    /// There was no memory for its tables.
    Failed,
}

impl MemoryPool {
    /// The pool of a process; `None` without `--fast=memory`.
    pub(super) fn of(process: &apex_trace::Process) -> Option<Self> {
        let state = match process.pool_state {
            PoolState::NotWanted => return None,
            PoolState::Unused => State::Unused,
            PoolState::On => State::On,
            PoolState::Closed => State::Closed,
            PoolState::Refused => State::Refused,
            PoolState::Failed => State::Failed,
        };
        let figures: PoolFigures = process.pool;
        let closed_by = u32::try_from(figures.closed_by).ok().and_then(|id| process.definitions.name(id));
        Some(Self {
            state,
            closed_by: closed_by.map(str::to_owned),
            served: figures.served,
            served_bytes: figures.served_bytes,
            alloc_ns: figures.alloc_ns as f64,
            allocated: figures.allocated,
            kept: figures.kept,
            waits: figures.waits,
            given_back: figures.given_back,
            asked_samples: figures.asked_samples,
            asked_ns: figures.asked_ns as f64,
            peak_bytes: figures.peak_bytes,
            peak_held_bytes: figures.peak_held_bytes,
        })
    }

    /// Mean time of an operation that did not wait; `None` without samples.
    pub fn mean_asked_ns(&self) -> Option<f64> {
        (self.asked_samples > 0).then(|| self.asked_ns / self.asked_samples as f64)
    }

    /// Time saved on allocations: the driver's time for the first allocation of these blocks, less
    /// the pool's time. The driver's time to free them is not known.
    pub fn saved_ns(&self) -> f64 {
        self.alloc_ns - self.mean_asked_ns().unwrap_or(0.0) * self.served as f64
    }
}
