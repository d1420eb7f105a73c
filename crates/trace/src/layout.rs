//! The bytes of a process file: header, chunks, records. Little-endian; every structure is a
//! multiple of 32 bytes.
//!
//! Records are one or two *slots* of 32 bytes. The first 16 bytes are the same in all
//! ([`RecordHead`]); the first byte tells the kind, the second how many slots the record takes, so
//! that a reader can step over kinds it does not know.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// First eight bytes of a process file.
pub const MAGIC: [u8; 8] = *b"APEXREC\0";
/// Version of this layout; a reader refuses a newer one.
pub const VERSION: u32 = 1;
/// Size of the header page, and offset of the first chunk.
pub const HEADER_BYTES: usize = 4096;
/// Size of every chunk, its own header included. The unit in which files grow and memory is mapped.
pub const CHUNK_BYTES: usize = 256 * 1024;
/// Size of a slot, the unit of records.
pub const SLOT_BYTES: usize = 32;
/// Bytes of records or definitions that a chunk holds.
pub const CHUNK_PAYLOAD_BYTES: usize = CHUNK_BYTES - size_of::<ChunkHeader>();

/// First bytes of a process file. Fields that change while the process runs are atomics.
#[repr(C)]
pub struct FileHeader {
    /// [`MAGIC`], stored last when a file is made, so that a half-made file is recognised.
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
    /// Anchors taken, the first not counted. (In front of `latest`: who copies the header reads the
    /// count first.)
    pub latest_count: AtomicU32,
    /// An [`Ended`].
    pub ended: AtomicU32,
    /// The newest anchor is `latest[latest_count % 2]`; the other one is being written. So a kill
    /// at any moment leaves a whole one.
    pub latest: [SharedAnchor; 2],
    /// Nominal ticks per second, 0 if unknown. The anchors are better unless they lie very close
    /// together.
    pub nominal_hz: u64,
    /// Chunks handed out so far; chunk `i` starts at `HEADER_BYTES + i * CHUNK_BYTES`.
    pub chunks: AtomicU64,
    /// Records lost because no space could be had (full disk, session limit, out of memory).
    pub dropped: AtomicU64,
    /// Records given up because the session's size limit made a thread reuse its oldest chunk.
    pub overwritten: AtomicU64,
    /// `errno` of the first failure to get space, [`LIMIT_REACHED`] if that was the session's
    /// limit, 0 if none.
    pub drop_errno: AtomicU32,
    /// Launches seen on configurations beyond the table's capacity (recorded as [`NO_CONFIG`]).
    pub config_overflow: AtomicU32,
    /// Ticks that the recorder itself spent on timing (event pairs and their collection).
    pub timing_ticks: AtomicU64,
    /// Path of the executable, cut to fit, zero-padded.
    pub executable: [u8; 512],
    /// Launches around which the recorder took the time that it spent itself; 0 in files of
    /// recorders that took none.
    pub cost_samples: AtomicU64,
    /// Ticks that it spent on these.
    pub cost_ticks: AtomicU64,
    /// A [`QueueState`].
    pub queue_state: AtomicU32,
    /// A [`PoolState`].
    pub pool_state: AtomicU32,
    /// What the launch queue did: the fields of [`QueueFigures`].
    pub queue: [AtomicU64; QueueFigures::FIELDS],
    /// What the memory pool did: the fields of [`PoolFigures`].
    pub pool: [AtomicU64; PoolFigures::FIELDS],
    /// What the launch queue launched in batches: the fields of [`BatchFigures`].
    pub batches: [AtomicU64; 3],
}

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

/// [`FileHeader::drop_errno`] when the session's size limit, not the system, refused space.
pub const LIMIT_REACHED: u32 = u32::MAX;

/// How a process came to its end, as far as it could tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum Ended {
    /// It did not say: it still runs, or was killed.
    #[default]
    Unmarked = 0,
    /// It came to its `atexit`.
    Exited = 1,
    /// It replaced itself by exec.
    Replaced = 2,
}

/// How a process counts time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ClockKind {
    /// The invariant time-stamp counter; the anchors give its rate.
    Tsc = 1,
    /// `CLOCK_MONOTONIC`, ticks are nanoseconds.
    Monotonic = 2,
}

/// One moment on three clocks.
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

/// A [`ClockAnchor`] that changes while others look at it; [`FileHeader::latest_count`] says when
/// it is whole.
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

/// First bytes of a chunk.
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

/// What a chunk holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ChunkKind {
    /// Slots, written by one thread at a time; [`Thread`] records tell which.
    Records = 0x4352_0001,
    /// [`crate::definition`]s, of variable length. Never overwritten.
    Definitions = 0x4352_0002,
}

/// Kinds of records (byte 0 of a record).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordKind {
    /// [`Thread`].
    Thread = 1,
    /// [`Launch`].
    Launch = 2,
    /// [`GraphLaunch`].
    GraphLaunch = 3,
    /// [`Timing`].
    Timing = 4,
    /// [`Call`], two slots.
    Call = 5,
    /// [`StackSample`].
    StackSample = 6,
    /// [`RangeChange`].
    RangeChange = 7,
    /// [`ArgumentSample`].
    ArgumentSample = 8,
}

/// A structure that is written into a chunk as it is.
///
/// # Safety
/// The type is `repr(C)`, starts with a [`RecordHead`], is [`SLOT_BYTES`] times one or two long,
/// has no padding, and any bytes are a valid value of it.
pub unsafe trait Slots: Copy + Default {
    /// Its kind.
    const KIND: RecordKind;

    /// The head of a record of this kind for a call that lasted from `start` to `end`, in ticks.
    #[inline]
    fn head(flags: u16, start: u64, end: u64) -> RecordHead {
        RecordHead::new(Self::KIND, (size_of::<Self>() / SLOT_BYTES) as u8, flags, start, end)
    }

    /// Reads a record back; `None` if `bytes` are too few.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        // SAFETY: the bytes are there (checked), and any bytes are a valid `Self` by this trait's
        // contract.
        (bytes.len() >= size_of::<Self>()).then(|| unsafe { bytes.as_ptr().cast::<Self>().read_unaligned() })
    }

    /// The record's bytes.
    fn as_bytes(&self) -> &[u8] {
        // SAFETY: `Self` has no padding by this trait's contract, so all its bytes are initialised.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), size_of::<Self>()) }
    }
}

/// What every record starts with.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordHead {
    /// A [`RecordKind`].
    pub kind: u8,
    /// Slots that the record takes: 1 or 2.
    pub slots: u8,
    /// [`flags`].
    pub flags: u16,
    /// Ticks that the real driver's call took, in units of [`LONG_UNIT`] where [`flags::LONG`] is
    /// set; saturates. See [`RecordHead::duration_ticks`].
    pub duration: u32,
    /// Ticks when the call began.
    pub start: u64,
}

/// Ticks in a unit of the duration of a long call: with 32 bits, calls of up to a day are told
/// apart.
pub const LONG_UNIT: u64 = 1 << 16;

impl RecordHead {
    /// A head for a call from `start` to `end`. A call that lasted more than 2^32 ticks (1 to 2
    /// seconds) is flagged [`flags::LONG`] and its duration counted in units of [`LONG_UNIT`].
    #[inline]
    pub fn new(kind: RecordKind, slots: u8, flags: u16, start: u64, end: u64) -> RecordHead {
        let ticks = end.saturating_sub(start);
        let (flags, duration) = match u32::try_from(ticks) {
            Ok(duration) => (flags, duration),
            Err(_) => (flags | flags::LONG, (ticks / LONG_UNIT).min(u32::MAX.into()) as u32),
        };
        RecordHead { kind: kind as u8, slots, flags, duration, start }
    }

    /// How long the call took, ticks. (Of a [`Timing`] record, `duration` means something else.)
    #[inline]
    pub fn duration_ticks(&self) -> u64 {
        let unit = if self.flags & flags::LONG != 0 { LONG_UNIT } else { 1 };
        u64::from(self.duration) * unit
    }
}

/// Bits of [`RecordHead::flags`].
pub mod flags {
    /// The call was captured into a graph, not executed.
    pub const CAPTURED: u16 = 1;
    /// Launch: cooperative.
    pub const COOPERATIVE: u16 = 2;
    /// Timing: the stream was idle when the kernel was launched, so the reading includes launch
    /// latency.
    pub const STREAM_WAS_IDLE: u16 = 4;
    /// Copy or set: the call is one of the asynchronous forms.
    pub const ASYNC: u16 = 8;
    /// Timing or call stack: one launch of a graph, not of a kernel; `config` is a graph
    /// identifier.
    pub const OF_GRAPH: u16 = 16;
    /// `duration` is in units of [`LONG_UNIT`](super::LONG_UNIT) ticks.
    pub const LONG: u16 = 32;
    /// Call stack or arguments: taken because the thread had not launched the configuration (or
    /// made such a call) before, not as a sample of its launches.
    pub const FIRST_SEEN: u16 = 64;
    /// Range change: a range has begun.
    pub const RANGE_BEGUN: u16 = 128;
    /// Range change: a range has ended.
    pub const RANGE_ENDED: u16 = 256;
    /// Range change: the range is the process's, and no thread is inside of it.
    pub const PROCESS_WIDE: u16 = 512;
    /// Call stack: one call that is no launch; `config` is the entry point's name.
    pub const OF_CALL: u16 = 1024;
    /// Timing: the first event was still to come when the second had been recorded, so the reading
    /// contains nothing of the time that the host needed for the launch.
    pub const QUEUED: u16 = 2048;
}

/// Configuration identifier of a launch that did not fit the table.
pub const NO_CONFIG: u32 = 0;

/// The records that follow in this chunk are of this thread.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    /// Kind `Thread`; `start` is when the thread took the chunk.
    pub head: RecordHead,
    /// Kernel thread identifier.
    pub tid: u32,
    /// The thread's name (first 12 bytes of what `pthread_getname_np` says), zero-padded.
    pub name: [u8; 12],
}

/// One kernel launch call.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Launch {
    /// Kind `Launch`.
    pub head: RecordHead,
    /// A configuration definition, or [`NO_CONFIG`].
    pub config: u32,
    /// A stream definition; 0 if unknown.
    pub stream: u32,
    /// The driver's result; 0 is success.
    pub result: u32,
    /// A [`crate::definition::Definition::Name`]: which entry point was called.
    pub api: u32,
}

/// One launch of an executable graph.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GraphLaunch {
    /// Kind `GraphLaunch`.
    pub head: RecordHead,
    /// A graph definition, 0 if the graph was made while recording was off.
    pub graph: u32,
    /// A stream definition; 0 if unknown.
    pub stream: u32,
    /// The driver's result.
    pub result: u32,
    /// The entry point's name.
    pub api: u32,
}

/// One measured duration on the GPU: an event pair around one launch.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// Kind `Timing`; `start` is the `start` of the launch that was timed, on the same thread;
    /// `duration` is what the event pair costs by calibration, in nanoseconds.
    pub head: RecordHead,
    /// The launch's configuration.
    pub config: u32,
    /// A stream definition.
    pub stream: u32,
    /// What the event pair read, nanoseconds, uncorrected.
    pub raw_ns: u64,
}

/// Where in the program one launch or other call was made: the calling thread's stack at that
/// moment.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackSample {
    /// Kind `StackSample`; `start` is when the stack was read, `duration` how long that took.
    pub head: RecordHead,
    /// The launch's configuration.
    pub config: u32,
    /// A [`crate::definition::CallStack`].
    pub stack: u32,
    /// The [`Call::class`] of the call; 0 where it is a launch.
    pub class: u8,
    /// Its [`Call::memory`].
    pub memory: u8,
    /// Its [`Call::source_memory`].
    pub source_memory: u8,
    /// Unused.
    pub reserved: [u8; 5],
}

/// From here on, the thread is inside of this range: what it records belongs to the range.
///
/// A chunk of a thread that is inside of a range begins with such a record, so that a lost chunk
/// does not make the next one belong to another range. Only records with
/// [`flags::RANGE_BEGUN`] or [`flags::RANGE_ENDED`] tell of an event.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RangeChange {
    /// Kind `RangeChange`; `start` is when it was noted.
    pub head: RecordHead,
    /// The innermost [`crate::definition::Range`] that is open in the thread; 0 for none, or where
    /// it is not known.
    pub range: u32,
    /// The range that has begun or ended; 0 if none has.
    pub changed: u32,
    /// Which of the ranges of the process, where that has begun or ended; else 0.
    pub instance: u64,
}

/// What the kernel was given in one launch, of those that were looked at (`apex run --code`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArgumentSample {
    /// Kind `ArgumentSample`; `start` is the `start` of the launch, on the same thread.
    pub head: RecordHead,
    /// The launch's configuration.
    pub config: u32,
    /// A [`crate::definition::Arguments`]; 0 where the configuration had as many different ones as
    /// are kept.
    pub arguments: u32,
    /// Unused.
    pub reserved: u64,
}

/// Any other recorded call.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// Kind `Call`, two slots.
    pub head: RecordHead,
    /// The entry point's name.
    pub api: u32,
    /// A stream definition, 0 where none is involved.
    pub stream: u32,
    /// The driver's result.
    pub result: u32,
    /// A [`CallClass`].
    pub class: u8,
    /// A [`MemoryKind`]: of what is allocated, freed or set; of the destination of a copy.
    pub memory: u8,
    /// A [`MemoryKind`]: of the source of a copy.
    pub source_memory: u8,
    /// Unused.
    pub reserved: u8,
    /// Bytes allocated, copied or set.
    pub bytes: u64,
    /// Address allocated, freed, set or copied to.
    pub address: u64,
    /// Address copied from.
    pub source: u64,
    /// The handle involved: stream, event, module, library, context, graph.
    pub object: u64,
}

/// What sort of call a [`Call`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum CallClass {
    /// Memory allocated (or an address range mapped).
    Allocate = 1,
    /// Memory freed.
    Free = 2,
    /// Memory copied.
    Copy = 3,
    /// Memory set.
    Set = 4,
    /// The caller waited: for a stream, an event, a context.
    Synchronize = 5,
    /// A module or library was loaded or unloaded.
    Module = 6,
    /// A stream was made or destroyed, or told to wait.
    Stream = 7,
    /// An event was made, recorded, queried or destroyed.
    Event = 8,
    /// A context was made, destroyed, or made current.
    Context = 9,
    /// A graph was captured, made, changed or destroyed.
    Graph = 10,
    /// A function of the host was queued.
    HostFunction = 11,
}

/// Where bytes live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum MemoryKind {
    /// Not known, or does not apply.
    Unknown = 0,
    /// Device memory of a plain allocation (`cuMemAlloc`).
    Device = 1,
    /// Pitched device memory (`cuMemAllocPitch`).
    Pitched = 2,
    /// Stream-ordered device memory (`cuMemAllocAsync`, pools).
    Pool = 3,
    /// Managed memory.
    Managed = 4,
    /// Page-locked host memory.
    Pinned = 5,
    /// Ordinary host memory.
    Pageable = 6,
    /// Physical memory of the virtual memory calls (`cuMemCreate`).
    Virtual = 7,
    /// An array (texture memory).
    Array = 8,
}

macro_rules! slots {
    ($($record:ident),*) => {$(
        // SAFETY: `repr(C)`, made of integers only, its head first; size and absence of padding
        // (the sum of its fields' sizes) are asserted below.
        unsafe impl Slots for $record {
            const KIND: RecordKind = RecordKind::$record;
        }
    )*};
}
slots!(Thread, Launch, GraphLaunch, Timing, Call, StackSample, RangeChange, ArgumentSample);

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
from_raw!(Ended: u32 { Unmarked, Exited, Replaced });
from_raw!(ClockKind: u32 { Tsc, Monotonic });
from_raw!(ChunkKind: u32 { Records, Definitions });
from_raw!(RecordKind: u8 {
    Thread, Launch, GraphLaunch, Timing, Call, StackSample, RangeChange, ArgumentSample
});
from_raw!(CallClass: u8 {
    Allocate, Free, Copy, Set, Synchronize, Module, Stream, Event, Context, Graph, HostFunction
});
from_raw!(MemoryKind: u8 { Unknown, Device, Pitched, Pool, Managed, Pinned, Pageable, Virtual, Array });

impl Call {
    /// What sort of call it is; `None` if it is of a sort that this version does not know.
    pub fn class(&self) -> Option<CallClass> {
        CallClass::from_raw(self.class)
    }

    /// Where the memory lies that is allocated, freed, set or copied to.
    pub fn memory(&self) -> MemoryKind {
        MemoryKind::from_raw(self.memory).unwrap_or(MemoryKind::Unknown)
    }

    /// Where the memory lies that is copied from.
    pub fn source_memory(&self) -> MemoryKind {
        MemoryKind::from_raw(self.source_memory).unwrap_or(MemoryKind::Unknown)
    }
}

const _: () = {
    assert!(size_of::<FileHeader>() <= HEADER_BYTES);
    assert!(size_of::<ChunkHeader>() == 32);
    assert!(size_of::<SharedAnchor>() == size_of::<ClockAnchor>());
    assert!(size_of::<RecordHead>() == 16);
    assert!(size_of::<Thread>() == SLOT_BYTES);
    assert!(size_of::<Launch>() == SLOT_BYTES);
    assert!(size_of::<GraphLaunch>() == SLOT_BYTES);
    assert!(size_of::<Timing>() == SLOT_BYTES);
    assert!(size_of::<Call>() == 2 * SLOT_BYTES);
    assert!(size_of::<RecordHead>() == 1 + 1 + 2 + 4 + 8);
    assert!(size_of::<Thread>() == 16 + 4 + 12);
    assert!(size_of::<Timing>() == 16 + 4 + 4 + 8);
    assert!(size_of::<StackSample>() == SLOT_BYTES);
    assert!(size_of::<StackSample>() == 16 + 4 + 4 + 3 + 5);
    assert!(size_of::<RangeChange>() == SLOT_BYTES);
    assert!(size_of::<RangeChange>() == 16 + 4 + 4 + 8);
    assert!(size_of::<ArgumentSample>() == SLOT_BYTES);
    assert!(size_of::<ArgumentSample>() == 16 + 4 + 4 + 8);
    assert!(size_of::<Call>() == 16 + 3 * 4 + 4 + 4 * 8);
};
