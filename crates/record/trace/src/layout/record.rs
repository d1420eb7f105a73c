//! Records: launches, calls, timings, call stacks, ranges and arguments.

use super::SLOT_BYTES;

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

impl RecordKind {
    /// Slots that a record of this kind takes.
    pub fn slots(self) -> u8 {
        if self == RecordKind::Call { 2 } else { 1 }
    }
}

/// A record, which is written into a chunk as its bytes.
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

/// The first 16 bytes of every record.
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

/// Ticks per unit of the duration of a long call: 32 bits then cover more than a day.
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

    /// Duration of the call in ticks, except for a [`Timing`] record, whose `duration` has another
    /// meaning.
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
    /// Copy or memset: the call is asynchronous.
    pub const ASYNC: u16 = 8;
    /// Timing or call stack: one launch of a graph, not of a kernel; `config` is a graph
    /// identifier.
    pub const OF_GRAPH: u16 = 16;
    /// `duration` is in units of [`LONG_UNIT`](super::LONG_UNIT) ticks.
    pub const LONG: u16 = 32;
    /// Call stack or arguments: read because this was the thread's first launch of the
    /// configuration (or first such call), not as a sample.
    pub const FIRST_SEEN: u16 = 64;
    /// Range change: a range has begun.
    pub const RANGE_BEGUN: u16 = 128;
    /// Range change: a range has ended.
    pub const RANGE_ENDED: u16 = 256;
    /// Range change: the range belongs to the process, not to a thread.
    pub const PROCESS_WIDE: u16 = 512;
    /// Call stack: of a call other than a launch; `config` is the entry point's name.
    pub const OF_CALL: u16 = 1024;
    /// Timing: both events were recorded before the GPU reached the first, so the reading contains
    /// no time of the host.
    pub const QUEUED: u16 = 2048;
    /// Timing: another tool recorded when the work ran on the device. `duration` is then the time
    /// from the start of its call to its start on the device, in ticks (in units of
    /// [`LONG_UNIT`](super::LONG_UNIT) with [`LONG`]); `raw_ns` is its exact duration. With
    /// [`OF_GRAPH`] it is one node of a graph launch, with [`OF_CALL`] a copy or set of memory,
    /// whose entry point `config` names.
    pub const PLACED: u16 = 4096;
    /// Launch: its call was not recorded; the kernel was. It has the kernel's start and no
    /// duration.
    pub const NO_CALL: u16 = 8192;
    /// Copy, and the call stack of one: between the memories of two devices.
    pub const PEER: u16 = 16384;
}

/// Configuration identifier of a launch that did not fit the table.
pub const NO_CONFIG: u32 = 0;

/// The thread of the following records of this chunk.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    /// Kind `Thread`; `start` is when the thread took the chunk.
    pub head: RecordHead,
    /// Kernel thread identifier.
    pub tid: u32,
    /// The thread's name (the first 12 bytes from `pthread_getname_np`), zero-padded.
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
    /// The reading of the event pair, in nanoseconds, uncorrected.
    pub raw_ns: u64,
}

impl Timing {
    /// The part of [`Self::raw_ns`] that is the event pair's own, nanoseconds.
    pub fn correction_ns(&self) -> u64 {
        if self.head.flags & flags::PLACED != 0 { 0 } else { self.head.duration.into() }
    }

    /// Whether it is a node of a graph launch, or a copy, and so no time of a whole launch.
    pub fn is_part_of_launch(&self) -> bool {
        let of = self.head.flags & (flags::OF_GRAPH | flags::OF_CALL) != 0;
        of && self.head.flags & flags::PLACED != 0
    }

    /// The start of the work on the device, in ticks, where it was recorded ([`flags::PLACED`]).
    pub fn placed_at(&self) -> Option<u64> {
        let placed = self.head.flags & flags::PLACED != 0;
        placed.then(|| self.head.start.saturating_add(self.head.duration_ticks()))
    }
}

/// The calling thread's stack at a launch or another call.
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

/// The thread's innermost range, to which its following records belong.
///
/// Each chunk of a thread inside a range begins with such a record, so that a lost chunk does not
/// change the range of the next one. Only records with [`flags::RANGE_BEGUN`] or
/// [`flags::RANGE_ENDED`] are events.
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
    /// The number of the process-wide range that began or ended. Where a thread's range began that
    /// is a collective call of NCCL, its communicator, if NCCL says it. Else 0.
    pub instance: u64,
}

/// Pointers of a launch whose allocations have numbers in an [`ArgumentSample`].
pub const NUMBERED_POINTERS: usize = 8;

/// The kernel's arguments in a sampled launch (`apex run --code`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArgumentSample {
    /// Kind `ArgumentSample`; `start` is the `start` of the launch, on the same thread.
    pub head: RecordHead,
    /// The launch's configuration.
    pub config: u32,
    /// A [`crate::definition::Arguments`]; 0 if the configuration has more distinct arguments than
    /// are stored.
    pub arguments: u32,
    /// For each of the first [`NUMBERED_POINTERS`] pointers of that definition, the number of the
    /// allocation that it points into, among all that arguments of the process pointed into: from
    /// 1; 0 where it is not known, and in sessions of earlier versions.
    pub allocations: [u8; NUMBERED_POINTERS],
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

/// The class of a [`Call`].
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
    /// A stream was made, destroyed or told to wait, or got work that is no launch, copy or set.
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

/// Kind of memory.
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

impl Call {
    /// Its class; `None` for a class that this version does not know.
    pub fn class(&self) -> Option<CallClass> {
        CallClass::from_raw(self.class)
    }

    /// Kind of the memory that is allocated, freed, set or copied to.
    pub fn memory(&self) -> MemoryKind {
        MemoryKind::from_raw(self.memory).unwrap_or(MemoryKind::Unknown)
    }

    /// Whether it copies from one device's memory to another's.
    pub fn is_peer(&self) -> bool {
        self.head.flags & flags::PEER != 0
    }

    /// Kind of the memory that is copied from.
    pub fn source_memory(&self) -> MemoryKind {
        MemoryKind::from_raw(self.source_memory).unwrap_or(MemoryKind::Unknown)
    }
}

from_raw!(RecordKind: u8 {
    Thread, Launch, GraphLaunch, Timing, Call, StackSample, RangeChange, ArgumentSample
});
from_raw!(CallClass: u8 {
    Allocate, Free, Copy, Set, Synchronize, Module, Stream, Event, Context, Graph, HostFunction
});
from_raw!(MemoryKind: u8 { Unknown, Device, Pitched, Pool, Managed, Pinned, Pageable, Virtual, Array });

const _: () = {
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
