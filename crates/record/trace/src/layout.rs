//! The layout of a process file: header, chunks, records. It is little-endian, and the size of
//! every structure is a multiple of 32 bytes.
//!
//! A record has one or two *slots* of 32 bytes. All records begin with the same 16 bytes
//! ([`RecordHead`]); the first byte is the kind, the second the number of slots, so that a reader
//! can skip unknown kinds.

/// Makes `$name::from_raw`, the inverse of `as`.
macro_rules! from_raw {
    ($name:ident: $raw:ty { $($variant:ident),* }) => {
        impl $name {
            /// The variant that is stored as `raw`, if there is one.
            pub fn from_raw(raw: $raw) -> Option<$name> {
                [$($name::$variant),*].into_iter().find(|variant| *variant as $raw == raw)
            }
        }
    };
}

mod actions;
mod record;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

pub use actions::{
    BatchFigures, PoolFigures, PoolState, QueueFigures, QueueState, ReshapeState, ScheduleFigures,
    ScheduleState,
};
pub use record::{
    ArgumentSample, Call, CallClass, GraphLaunch, LONG_UNIT, Launch, MemoryKind, NO_CONFIG,
    NUMBERED_POINTERS, RangeChange, RecordHead, RecordKind, Slots, StackSample, Thread, Timing, flags,
};

/// The extension of process files.
pub const PROCESS_FILE_EXTENSION: &str = "rec";
/// First eight bytes of a process file.
pub const MAGIC: [u8; 8] = *b"APEXREC\0";
/// Version of this layout; a reader rejects newer versions.
pub const VERSION: u32 = 1;
/// Size of the header page, and offset of the first chunk.
pub const HEADER_BYTES: usize = 4096;
/// Size of every chunk, including its header. Files grow and are mapped in this unit.
pub const CHUNK_BYTES: usize = 256 * 1024;
/// Size of a slot, the unit of records.
pub const SLOT_BYTES: usize = 32;
/// Bytes of records or definitions that a chunk holds.
pub const CHUNK_PAYLOAD_BYTES: usize = CHUNK_BYTES - size_of::<ChunkHeader>();

/// The header of a process file. Fields that change while the process runs are atomics.
#[repr(C)]
pub struct FileHeader {
    /// [`MAGIC`], stored last when a file is created, so that an incomplete file is recognised.
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: u32,
    /// Process that wrote the file.
    pub pid: u32,
    /// Its parent when the file was made.
    pub parent_pid: u32,
    /// A [`ClockKind`].
    pub clock: u32,
    /// The first anchor between ticks, monotonic and real time.
    pub start: ClockAnchor,
    /// Number of anchors after the first. It precedes `latest`, because a copy of the header must
    /// read the count first.
    pub latest_count: AtomicU32,
    /// An [`Ended`].
    pub ended: AtomicU32,
    /// The newest anchor is `latest[latest_count % 2]`; the other one may be incomplete. A kill at
    /// any time therefore leaves a complete one.
    pub latest: [SharedAnchor; 2],
    /// Nominal ticks per second, 0 if unknown. The anchors are better unless they lie very close
    /// together.
    pub nominal_hz: u64,
    /// Number of chunks; chunk `i` starts at `HEADER_BYTES + i * CHUNK_BYTES`.
    pub chunks: AtomicU64,
    /// Records lost for lack of space (full disk, session limit, out of memory).
    pub dropped: AtomicU64,
    /// Records overwritten because the session's size limit made a thread reuse the oldest chunk.
    pub overwritten: AtomicU64,
    /// `errno` of the first failure to get space, [`LIMIT_REACHED`] for the session's limit, 0 if
    /// there was none.
    pub drop_errno: AtomicU32,
    /// Launches of configurations beyond the table's capacity (recorded as [`NO_CONFIG`]).
    pub config_overflow: AtomicU32,
    /// Ticks that the recorder spent on timing (event pairs and their collection).
    pub timing_ticks: AtomicU64,
    /// Path of the executable, cut to fit, zero-padded.
    pub executable: [u8; 512],
    /// Launches for which the recorder measured its own time; 0 in files of recorders that did not
    /// measure it.
    pub cost_samples: AtomicU64,
    /// The recorder's ticks for these launches.
    pub cost_ticks: AtomicU64,
    /// A [`QueueState`].
    pub queue_state: AtomicU32,
    /// A [`PoolState`].
    pub pool_state: AtomicU32,
    /// The launch queue: the fields of [`QueueFigures`].
    pub queue: [AtomicU64; QueueFigures::FIELDS],
    /// The memory pool: the fields of [`PoolFigures`].
    pub pool: [AtomicU64; PoolFigures::FIELDS],
    /// The launch queue's batches: the fields of [`BatchFigures`].
    pub batches: [AtomicU64; 3],
    /// Calls that the launch queue took. It is current at any moment, and so is `queue_made`, so
    /// that a killed process leaves the number of calls that waited.
    pub queue_taken: OwnLine,
    /// Calls of these that were made.
    pub queue_made: OwnLine,
    /// A [`ReshapeState`].
    pub reshape_state: AtomicU32,
    /// Launches of the plan's kernels that were made as the program asked, because the condition
    /// of the proof did not hold for them.
    pub reshape_refused: AtomicU64,
    /// A [`ScheduleState`].
    pub schedule_state: AtomicU32,
    /// The fields of [`ScheduleFigures`].
    pub schedule: [AtomicU64; 3],
    /// Pairs of launches that were made as one.
    pub joined: AtomicU64,
}

/// A counter on a cache line of its own.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct OwnLine(pub AtomicU64);

/// [`FileHeader::drop_errno`] when the session's size limit, not the system, refused space.
pub const LIMIT_REACHED: u32 = u32::MAX;

/// The end of a process, as the process itself recorded it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum Ended {
    /// Not recorded: it still runs, or was killed.
    #[default]
    Unmarked = 0,
    /// It reached `atexit`.
    Exited = 1,
    /// It replaced itself by exec.
    Replaced = 2,
}

/// The source of a process's ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ClockKind {
    /// The invariant time-stamp counter; the anchors give its rate.
    Tsc = 1,
    /// `CLOCK_MONOTONIC`, ticks are nanoseconds.
    Monotonic = 2,
}

/// One point in time on three clocks.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockAnchor {
    /// The recorder's own ticks.
    pub ticks: u64,
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub monotonic_ns: u64,
    /// `CLOCK_REALTIME`, nanoseconds since 1970.
    pub real_ns: u64,
}

/// A [`ClockAnchor`] that changes while readers see it; [`FileHeader::latest_count`] says which one
/// is complete.
#[repr(C)]
#[derive(Debug, Default)]
pub struct SharedAnchor {
    /// See [`ClockAnchor::ticks`].
    pub ticks: AtomicU64,
    /// See [`ClockAnchor::monotonic_ns`].
    pub monotonic_ns: AtomicU64,
    /// See [`ClockAnchor::real_ns`].
    pub real_ns: AtomicU64,
}

impl SharedAnchor {
    /// Writes it field by field.
    pub fn store(&self, anchor: ClockAnchor) {
        self.ticks.store(anchor.ticks, Ordering::Relaxed);
        self.monotonic_ns.store(anchor.monotonic_ns, Ordering::Relaxed);
        self.real_ns.store(anchor.real_ns, Ordering::Relaxed);
    }
}

/// The header of a chunk.
#[repr(C)]
pub struct ChunkHeader {
    /// A [`ChunkKind`], stored last (release) when the chunk is opened; 0 in a chunk never opened.
    pub kind: AtomicU32,
    /// Committed payload bytes.
    pub committed: AtomicU32,
    /// Order among the chunks of the file by time of (re)opening, starting at 1.
    pub sequence: AtomicU64,
    /// Unused.
    pub reserved: [u64; 2],
}

/// The content of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ChunkKind {
    /// Slots, written by one thread at a time; [`Thread`] records tell which.
    Records = 0x4352_0001,
    /// [`crate::definition`]s, of variable length. Never overwritten.
    Definitions = 0x4352_0002,
}

from_raw!(Ended: u32 { Unmarked, Exited, Replaced });
from_raw!(ClockKind: u32 { Tsc, Monotonic });
from_raw!(ChunkKind: u32 { Records, Definitions });

const _: () = {
    assert!(size_of::<FileHeader>() <= HEADER_BYTES);
    assert!(size_of::<ChunkHeader>() == 32);
    assert!(size_of::<SharedAnchor>() == size_of::<ClockAnchor>());
};
