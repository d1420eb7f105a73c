//! The figures in a file's header about APEX's actions: the launch queue and the memory pool.

/// State of the launch queue of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum QueueState {
    /// Not requested.
    #[default]
    NotWanted = 0,
    /// It queued launches.
    On = 1,
    /// It was last closed because it saved no time.
    GainsNothing = 2,
    /// The process may use one processor only.
    OneProcessor = 3,
    /// Its memory could not be allocated, or its thread not started.
    Failed = 4,
    /// The driver refused a launch that it had accepted before.
    Refused = 5,
    /// It was created, but the program made no launch that can be queued.
    Unused = 6,
    /// The driver does not report the layout of functions' parameters (before CUDA 12.4).
    OldDriver = 7,
}

impl QueueState {
    /// The state that is stored as `raw`.
    pub fn from_raw(raw: u32) -> Option<QueueState> {
        use QueueState::{Failed, GainsNothing, NotWanted, OldDriver, On, OneProcessor, Refused, Unused};
        [NotWanted, On, GainsNothing, OneProcessor, Failed, Refused, Unused, OldDriver]
            .into_iter()
            .find(|&state| state as u32 == raw)
    }
}

/// Figures of the launch queue of a process. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueFigures {
    /// Calls that were queued and made.
    pub made: u64,
    /// The driver's time for them.
    pub call_ns: u64,
    /// Times that the program waited until they were made.
    pub waits: u64,
    /// Total time of these waits.
    pub wait_ns: u64,
    /// Calls for which the time of queueing was measured.
    pub asked_samples: u64,
    /// Their time in all, in nanoseconds.
    pub asked_ns: u64,
    /// Its median; 0 in files of versions that did not record it.
    pub asked_median_ns: u64,
}

impl QueueFigures {
    /// Number of fields.
    pub const FIELDS: usize = 7;

    /// The fields, in order.
    pub fn to_array(self) -> [u64; QueueFigures::FIELDS] {
        let QueueFigures { made, call_ns, waits, wait_ns, asked_samples, asked_ns, asked_median_ns } = self;
        [made, call_ns, waits, wait_ns, asked_samples, asked_ns, asked_median_ns]
    }

    /// The inverse of [`QueueFigures::to_array`].
    pub fn from_array(fields: [u64; QueueFigures::FIELDS]) -> QueueFigures {
        let [made, call_ns, waits, wait_ns, asked_samples, asked_ns, asked_median_ns] = fields;
        QueueFigures { made, call_ns, waits, wait_ns, asked_samples, asked_ns, asked_median_ns }
    }
}

/// Figures of the launch queue's batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchFigures {
    /// Batches.
    pub batches: u64,
    /// Launches that were combined into them.
    pub launches: u64,
    /// Additional time that these launches would have taken one by one, computed from launches that
    /// were made one by one.
    pub avoided_ns: u64,
}

/// Outcome of scheduling by data (`apex run --fast=schedule`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum ScheduleState {
    /// Not requested.
    #[default]
    NotWanted = 0,
    /// No sequence of launches came twice in which some are independent.
    Unused = 1,
    /// Launches ran beside others.
    On = 2,
    /// They took as long beside others as one after the other.
    GainsNothing = 3,
    /// A call shared memory in a way that is not followed.
    Closed = 4,
    /// Its tables could not be allocated.
    Failed = 5,
}

impl ScheduleState {
    /// The state that is stored as `raw`.
    pub fn from_raw(raw: u32) -> Option<ScheduleState> {
        use ScheduleState::{Closed, Failed, GainsNothing, NotWanted, On, Unused};
        [NotWanted, Unused, On, GainsNothing, Closed, Failed].into_iter().find(|&state| state as u32 == raw)
    }
}

/// Figures of batches in which launches ran beside others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScheduleFigures {
    /// These batches.
    pub batches: u64,
    /// Launches in them.
    pub launches: u64,
    /// How much longer the batches would have taken one launch after the other, computed from the
    /// first ones, of which every second was launched so.
    pub saved_ns: u64,
}

/// State of the memory pool of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum PoolState {
    /// Not requested.
    #[default]
    NotWanted = 0,
    /// It served no allocation.
    Unused = 1,
    /// It served allocations.
    On = 2,
    /// It was closed by a call that shares memory, or that submits work which the pool does not
    /// see.
    Closed = 3,
    /// The driver failed to free memory that the pool had kept.
    Refused = 4,
    /// Its tables could not be allocated.
    Failed = 5,
}

impl PoolState {
    /// The state that is stored as `raw`.
    pub fn from_raw(raw: u32) -> Option<PoolState> {
        use PoolState::{Closed, Failed, NotWanted, On, Refused, Unused};
        [NotWanted, Unused, On, Closed, Refused, Failed].into_iter().find(|&state| state as u32 == raw)
    }
}

/// Outcome of the plan by which launches are reshaped (`apex run --tuned`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum ReshapeState {
    /// There was none.
    #[default]
    NotWanted = 0,
    /// No kernel of it was launched.
    Unused = 1,
    /// Launches were reshaped.
    On = 2,
    /// The device is another one than the plan's.
    OtherDevice = 3,
    /// The driver is another one than the plan's.
    OtherDriver = 4,
    /// The plan could not be read, or its tables could not be allocated.
    Failed = 5,
    /// The driver does not report the layout of functions' parameters (before CUDA 12.4).
    OldDriver = 6,
    /// The program mapped memory, so that two addresses may mean the same memory.
    Closed = 7,
}

impl ReshapeState {
    /// The state that is stored as `raw`.
    pub fn from_raw(raw: u32) -> Option<ReshapeState> {
        use ReshapeState::{Closed, Failed, NotWanted, OldDriver, On, OtherDevice, OtherDriver, Unused};
        [NotWanted, Unused, On, OtherDevice, OtherDriver, Failed, OldDriver, Closed]
            .into_iter()
            .find(|&state| state as u32 == raw)
    }
}

/// Figures of the memory pool of a process. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolFigures {
    /// Allocations that it served.
    pub served: u64,
    /// Their bytes.
    pub served_bytes: u64,
    /// The driver's time for the first allocation of each block, added once for each allocation
    /// that was served with it.
    pub alloc_ns: u64,
    /// Allocations that the driver made.
    pub allocated: u64,
    /// Frees after which the pool kept the memory.
    pub kept: u64,
    /// Frees among these that waited because work may have been outstanding.
    pub waits: u64,
    /// Blocks that it returned to the driver.
    pub given_back: u64,
    /// Operations whose time was measured.
    pub asked_samples: u64,
    /// Their time in all, in nanoseconds.
    pub asked_ns: u64,
    /// Maximum bytes allocated by the program in a context.
    pub peak_bytes: u64,
    /// Maximum bytes allocated by the program and kept by the pool in a context.
    pub peak_held_bytes: u64,
    /// The entry point that closed it: the identifier of its name; 0 if it is open.
    pub closed_by: u64,
}

impl PoolFigures {
    /// Number of fields.
    pub const FIELDS: usize = 12;

    /// The fields, in order.
    pub fn to_array(self) -> [u64; PoolFigures::FIELDS] {
        [
            self.served,
            self.served_bytes,
            self.alloc_ns,
            self.allocated,
            self.kept,
            self.waits,
            self.given_back,
            self.asked_samples,
            self.asked_ns,
            self.peak_bytes,
            self.peak_held_bytes,
            self.closed_by,
        ]
    }

    /// The inverse of [`PoolFigures::to_array`].
    pub fn from_array(fields: [u64; PoolFigures::FIELDS]) -> PoolFigures {
        let [served, served_bytes, alloc_ns, allocated, kept, waits, given_back, ..] = fields;
        let [.., asked_samples, asked_ns, peak_bytes, peak_held_bytes, closed_by] = fields;
        PoolFigures {
            served,
            served_bytes,
            alloc_ns,
            allocated,
            kept,
            waits,
            given_back,
            asked_samples,
            asked_ns,
            peak_bytes,
            peak_held_bytes,
            closed_by,
        }
    }
}
