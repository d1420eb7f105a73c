//! Calls other than launches, by entry point, and the copies among them by kind.

use apex_trace::layout::{CallClass, MemoryKind};
use serde::Serialize;

use super::serde_layout;
use super::sizes::Sizes;
use super::stacks::{StackCount, StackCounts};
use crate::sketch::{Distribution, Sketch};

/// Calls of one entry point.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Call {
    /// Name of the entry point.
    pub name: String,
    /// Class of call; `None` for a class that this version does not know.
    #[serde(with = "serde_layout::call_class")]
    pub class: Option<CallClass>,
    /// Calls that succeeded.
    pub count: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Calls captured into a graph, among `count`.
    pub captured: u64,
    /// Bytes allocated, copied or set.
    pub bytes: u64,
    /// CPU time of the calls that succeeded.
    pub cpu: Distribution,
    /// Calls after the process's first launch, among those that succeeded.
    pub after_launch: AfterLaunch,
    /// Call stacks that were read on some of them, the most frequent first.
    pub stacks: Vec<StackCount>,
}

/// Calls after their process's first launch. The job's time also begins there, so a change to
/// earlier calls cannot save any of it. In a process that only copies and sets memory the time
/// begins with the first of these, and all copies count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct AfterLaunch {
    /// Number of calls.
    pub count: u64,
    /// Their CPU time in nanoseconds.
    pub cpu_ns: f64,
}

impl AfterLaunch {
    /// Adds other calls.
    pub fn add(&mut self, other: Self) {
        self.count = self.count.saturating_add(other.count);
        self.cpu_ns += other.cpu_ns;
    }
}

/// Direction of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CopyDirection {
    /// From host memory to the device.
    HostToDevice,
    /// From the device to host memory.
    DeviceToHost,
    /// Within a device; or between devices, where the recorder did not tell.
    DeviceToDevice,
    /// Between the memories of two devices.
    PeerToPeer,
    /// Between host memory.
    HostToHost,
    /// One of the two sides is managed memory or unknown.
    Other,
}

impl CopyDirection {
    /// The direction of a recorded copy.
    pub fn of(call: &apex_trace::layout::Call) -> Self {
        Self::between(call.source_memory(), call.memory()).or_peer(call.is_peer())
    }

    /// The same, or [`Self::PeerToPeer`] for what `is_peer` and moves between device memory.
    pub fn or_peer(self, is_peer: bool) -> Self {
        if is_peer && self == Self::DeviceToDevice { Self::PeerToPeer } else { self }
    }

    /// The direction between two kinds of memory, of the same device where both are a device's.
    pub fn between(source: MemoryKind, destination: MemoryKind) -> Self {
        use MemoryKind::{Array, Device, Pageable, Pinned, Pitched, Pool, Virtual};
        let host = |kind| matches!(kind, Pinned | Pageable);
        let device = |kind| matches!(kind, Device | Pitched | Pool | Virtual | Array);
        match (source, destination) {
            (from, to) if host(from) && device(to) => Self::HostToDevice,
            (from, to) if device(from) && host(to) => Self::DeviceToHost,
            (from, to) if device(from) && device(to) => Self::DeviceToDevice,
            (from, to) if host(from) && host(to) => Self::HostToHost,
            _ => Self::Other,
        }
    }
}

/// Copies of one kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Copies {
    /// Direction.
    pub direction: CopyDirection,
    /// Kind of memory that is read.
    #[serde(with = "serde_layout::memory_kind")]
    pub source: MemoryKind,
    /// Kind of memory that is written.
    #[serde(with = "serde_layout::memory_kind")]
    pub destination: MemoryKind,
    /// Whether the call is asynchronous.
    pub asynchronous: bool,
    /// Calls that succeeded and ran.
    pub count: u64,
    /// Bytes copied.
    pub bytes: u64,
    /// The sizes of these copies.
    pub sizes: Sizes,
    /// CPU time of the calls.
    pub cpu: Distribution,
    /// Calls after the process's first launch, among `count`.
    pub after_launch: AfterLaunch,
    /// Call stacks that were read on some of them, the most frequent first.
    pub stacks: Vec<StackCount>,
}

/// Counts of an entry point.
#[derive(Clone, Default)]
pub(super) struct CallCounts {
    pub failed: u64,
    pub captured: u64,
    pub bytes: u64,
    pub cpu: Sketch,
    pub after_launch: AfterLaunch,
    pub stacks: StackCounts,
}

impl CallCounts {
    /// Adds `other`; `stacks` maps its call stacks to those of this profile.
    pub(super) fn merge(&mut self, other: &Self, stacks: &[usize]) {
        self.stacks.merge(&other.stacks, stacks);
        self.failed += other.failed;
        self.captured += other.captured;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.cpu.merge(&other.cpu);
        self.after_launch.add(other.after_launch);
    }
}

/// Counts of a kind of copies.
#[derive(Default)]
pub(super) struct CopyCounts {
    pub bytes: u64,
    pub sizes: Sizes,
    pub cpu: Sketch,
    pub after_launch: AfterLaunch,
    pub stacks: StackCounts,
}

impl CopyCounts {
    /// Adds `other`; `stacks` maps its call stacks to those of this profile.
    pub(super) fn merge(&mut self, other: &Self, stacks: &[usize]) {
        self.stacks.merge(&other.stacks, stacks);
        self.sizes.merge(&other.sizes);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.cpu.merge(&other.cpu);
        self.after_launch.add(other.after_launch);
    }
}
