//! The figures in a file's header about APEX's actions: the launch queue and the memory pool.

/// What became of the launch queue of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum QueueState {
    /// Nobody wanted one.
    #[default]
    NotWanted = 0,
    /// It took launches.
    On = 1,
    /// It was closed the last time because it gained nothing.
    GainsNothing = 2,
    /// The process may use one processor only.
    OneProcessor = 3,
    /// Its memory or its thread could not be had.
    Failed = 4,
    /// The driver refused a launch that it had accepted before.
    Refused = 5,
    /// It was made, but no launch came that it could have taken.
    Unused = 6,
    /// The driver does not tell how functions lay out their parameters (before CUDA 12.4).
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

/// What the launch queue of a process did. Times are nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueFigures {
    /// Calls that were handed over and made.
    pub made: u64,
    /// Time that the driver took for them.
    pub call_ns: u64,
    /// How often the program waited until they were made.
    pub waits: u64,
    /// How long.
    pub wait_ns: u64,
    /// Calls for which the time that handing over took was taken.
    pub asked_samples: u64,
    /// That time.
    pub asked_ns: u64,
    /// The median of it; 0 in files of before it was taken.
    pub asked_median_ns: u64,
}

impl QueueFigures {
    /// Fields of it.
    pub const FIELDS: usize = 7;

    /// The fields, in order.
    pub fn to_array(self) -> [u64; QueueFigures::FIELDS] {
        let QueueFigures { made, call_ns, waits, wait_ns, asked_samples, asked_ns, asked_median_ns } = self;
        [made, call_ns, waits, wait_ns, asked_samples, asked_ns, asked_median_ns]
    }

    /// What [`QueueFigures::to_array`] gave.
    pub fn from_array(fields: [u64; QueueFigures::FIELDS]) -> QueueFigures {
        let [made, call_ns, waits, wait_ns, asked_samples, asked_ns, asked_median_ns] = fields;
        QueueFigures { made, call_ns, waits, wait_ns, asked_samples, asked_ns, asked_median_ns }
    }
}

/// What the launch queue of a process launched in batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchFigures {
    /// Batches.
    pub batches: u64,
    /// Launches that went out in them.
    pub launches: u64,
    /// How much longer these would have taken one by one, computed from those that were made so.
    pub avoided_ns: u64,
}

/// What became of the memory pool of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum PoolState {
    /// Nobody wanted one.
    #[default]
    NotWanted = 0,
    /// It served no allocation.
    Unused = 1,
    /// It served allocations.
    On = 2,
    /// A call closed it that lets others use memory, or submits work that it does not see.
    Closed = 3,
    /// The driver refused to free memory that it had kept.
    Refused = 4,
    /// There was no memory for its tables.
    Failed = 5,
}

impl PoolState {
    /// The state that is stored as `raw`.
    pub fn from_raw(raw: u32) -> Option<PoolState> {
        use PoolState::{Closed, Failed, NotWanted, On, Refused, Unused};
        [NotWanted, Unused, On, Closed, Refused, Failed].into_iter().find(|&state| state as u32 == raw)
    }
}

/// What the memory pool of a process did. Times are nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolFigures {
    /// Allocations that it served.
    pub served: u64,
    /// Their bytes.
    pub served_bytes: u64,
    /// Time that the driver took to allocate the same blocks the first time, once for each
    /// allocation that was served.
    pub alloc_ns: u64,
    /// Allocations that the driver made.
    pub allocated: u64,
    /// Frees after which it kept the memory.
    pub kept: u64,
    /// Of these, frees that waited because work may have been outstanding.
    pub waits: u64,
    /// Blocks that it gave back to the driver.
    pub given_back: u64,
    /// Operations whose time was taken.
    pub asked_samples: u64,
    /// That time.
    pub asked_ns: u64,
    /// Most bytes that the program had in a context.
    pub peak_bytes: u64,
    /// Most bytes that the program had and the pool kept in a context.
    pub peak_held_bytes: u64,
    /// The entry point that closed it: the identifier of its name; 0 if it is open.
    pub closed_by: u64,
}

impl PoolFigures {
    /// Fields of it.
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

    /// What [`PoolFigures::to_array`] gave.
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
