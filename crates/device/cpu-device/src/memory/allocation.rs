//! One range of memory, with its attributes and the program's advice.
//!
//! A range's address, size and kind never change. Its own pages stay mapped as long as anyone holds
//! the range; pages of a registered range belong to the program.

use crate::memory::backing::Backing;
use ptx_exec::Shadow;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};

/// The kind of a range, as `cuPointerGetAttribute` reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// From `cuMemAlloc` and its like.
    Device,
    /// From `cuMemAllocAsync`: belongs to the pool with this identity.
    Pooled(u64),
    /// From an allocation node of a graph.
    Graph,
    /// From `cuMemAllocManaged`.
    Managed,
    /// Page-locked host memory from `cuMemHostAlloc`.
    Pinned,
    /// The program's own host memory, page-locked by `cuMemHostRegister`.
    Registered,
    /// A `__device__` or `__constant__` variable of a module.
    Global,
    /// From `malloc` in device code.
    Heap,
    /// Arguments of a launch that device code prepares.
    Parameters,
    /// A physical allocation mapped by `cuMemMap`.
    Mapped,
    /// An allocation of another process, opened by its handle.
    Imported,
    /// The texels of a CUDA array.
    Array,
}

impl Kind {
    /// Whether the memory counts as the host's.
    pub fn is_host(self) -> bool {
        matches!(self, Kind::Pinned | Kind::Registered)
    }

    pub(super) fn counts_against_the_device(self) -> bool {
        !self.is_host() && !matches!(self, Kind::Mapped | Kind::Imported)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Kind::Device => "device allocation",
            Kind::Pooled(_) => "stream-ordered allocation",
            Kind::Graph => "graph allocation",
            Kind::Managed => "managed allocation",
            Kind::Pinned => "pinned host allocation",
            Kind::Registered => "registered host range",
            Kind::Global => "module variable",
            Kind::Heap => "device-side malloc",
            Kind::Parameters => "parameter buffer of a device-side launch",
            Kind::Mapped => "mapped allocation",
            Kind::Imported => "allocation of another process",
            Kind::Array => "CUDA array",
        })
    }
}

/// One range of memory.
#[derive(Debug)]
pub struct Allocation {
    /// The first address.
    pub start: u64,
    /// Its length; never zero.
    pub bytes: u64,
    /// The kind of range.
    pub kind: Kind,
    /// Unique over the life of the process (`CU_POINTER_ATTRIBUTE_BUFFER_ID`).
    pub id: u64,
    /// The flags it was allocated or registered with.
    pub flags: u32,
    /// The context it was made in, as a handle; 0 for none.
    pub context: u64,
    /// Whether kernels may write it; constants they may write through a generic address.
    pub writable: bool,
    /// Marks of the bytes that have been written. They are kept if launches are checked and no
    /// write can go unseen.
    pub shadow: Option<Arc<Shadow>>,
    /// The program's advice on the range's use.
    pub advice: Mutex<Advice>,
    /// The name of a module's variable.
    pub(super) name: OnceLock<String>,
    /// The memory itself, unless it is somebody else's.
    pub(super) backing: Option<Arc<Backing>>,
}

/// A program's advice on managed memory. It is kept without effect, because host and device access
/// the same memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Advice {
    /// Whether it will mostly be read.
    pub read_mostly: bool,
    /// The preferred location.
    pub preferred: Option<Location>,
    /// Whether the host and the device want it mapped, in this order.
    pub accessed_by: [bool; 2],
    /// The location of the last prefetch.
    pub prefetched: Option<Location>,
}

/// A place for managed memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// The host.
    Host,
    /// The device.
    Device,
}

impl Allocation {
    /// Says which variable of a module lies here, for messages.
    pub fn set_name(&self, name: &str) {
        // A second name would be that of the same variable.
        let _ = self.name.set(name.to_owned());
    }

    /// The memory itself, unless it is somebody else's.
    pub fn backing(&self) -> Option<&Arc<Backing>> {
        self.backing.as_ref()
    }

    /// Whether the host may use the address too.
    pub fn is_on_host(&self) -> bool {
        self.kind.is_host() || self.kind == Kind::Managed
    }

    /// Whether it is a constant variable of a module.
    pub fn is_constant(&self) -> bool {
        self.kind == Kind::Global && !self.writable
    }

    /// The first address after the range.
    pub fn end(&self) -> u64 {
        self.start + self.bytes
    }

    /// Whether `bytes` bytes from `address` lie inside.
    pub fn holds(&self, address: u64, bytes: u64) -> bool {
        address >= self.start && bytes <= self.bytes && address - self.start <= self.bytes - bytes
    }
}

/// An allocation in words.
pub(super) struct Described<'a>(pub(super) &'a Allocation);

impl fmt::Display for Described<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Allocation { kind, bytes, start, name, .. } = self.0;
        match name.get() {
            Some(name) => write!(formatter, "the variable `{name}` of {bytes} bytes at {start:#x}"),
            None => write!(formatter, "a {kind} of {bytes} bytes at {start:#x}"),
        }
    }
}
