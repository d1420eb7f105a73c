//! Allocations and frees: live memory, its peak, and repeated allocations.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use apex_trace::layout::{Call, MemoryKind};
use serde::Serialize;

use super::memory_over_time::{MemoryOverTime, OverTime, Placed};
use super::serde_layout;

/// Maximum distinct freed sizes remembered for each kind; a program with more does not allocate in
/// a simple loop.
const SIZES: usize = 4096;

/// Memory of one kind, over all processes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Memory {
    /// Kind of memory.
    #[serde(with = "serde_layout::memory_kind")]
    pub kind: MemoryKind,
    /// Allocations.
    pub allocations: u64,
    /// Frees of known allocations.
    pub frees: u64,
    /// Bytes allocated in total.
    pub allocated_bytes: u64,
    /// Maximum bytes live at once in one process.
    pub peak_bytes: u64,
    /// Allocations still live at the end.
    pub live: u64,
    /// Bytes of these.
    pub live_bytes: u64,
    /// Allocations of a size that had been freed before in the same process: a pool would have
    /// reused that memory.
    pub repeated: u64,
    /// Allocations between the first and the last launch of their process.
    pub among_launches: u64,
    /// CPU time of allocations and frees.
    pub cpu_ns: f64,
}

/// Identifies an allocation until it is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Place {
    Address(u64),
    /// Physical memory and arrays have a handle in place of an address.
    Handle(u64),
}

impl Place {
    fn of(call: &Call) -> Self {
        if call.address != 0 { Self::Address(call.address) } else { Self::Handle(call.object) }
    }
}

/// An allocation while it is live.
struct Live {
    kind: MemoryKind,
    bytes: u64,
    placed: Placed,
}

/// The memory of one process.
pub(super) struct Heap {
    live: HashMap<Place, Live>,
    over_time: OverTime,
    /// The last allocation of each thread, with its entry point: a stack that is read belongs to
    /// it.
    last: HashMap<u32, (Place, u32)>,
    kinds: BTreeMap<MemoryKind, Kind>,
    /// Calls are not counted, because they lie outside of the window; what is live is followed
    /// always.
    pub is_outside: bool,
    /// Some kind has allocations that no launch has followed yet.
    has_unconfirmed: bool,
}

#[derive(Default)]
struct Kind {
    memory: Totals,
    live_bytes: u64,
    /// The number of allocations of each size that were freed and not made again.
    freed: HashMap<u64, u64>,
    /// Allocations since the first launch that no launch has followed yet.
    unconfirmed: u64,
}

/// The countable part of [`Memory`].
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    allocations: u64,
    frees: u64,
    allocated_bytes: u64,
    peak_bytes: u64,
    repeated: u64,
    among_launches: u64,
    cpu_ns: f64,
}

/// The caller of an entry point, the time of the call, and its duration.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Caller {
    pub tid: u32,
    /// Nanoseconds after the process's start.
    pub at: u64,
    pub cpu_ns: f64,
}

impl Heap {
    /// The memory of a process; its course over time covers a window: nanoseconds
    /// after the process's start.
    pub fn of(window: Range<f64>) -> Self {
        Self {
            live: HashMap::new(),
            over_time: OverTime::of(window),
            last: HashMap::new(),
            kinds: BTreeMap::new(),
            is_outside: false,
            has_unconfirmed: false,
        }
    }

    /// An allocation that succeeded. Mappings of memory that is counted elsewhere have no kind and
    /// do not count here.
    pub fn allocate(&mut self, kind: MemoryKind, call: &Call, by: Caller, after_launch: bool) {
        if kind == MemoryKind::Unknown {
            return;
        }
        let Caller { tid, at, cpu_ns } = by;
        let place = Place::of(call);
        // An address that is live still was freed in a way that is not recorded.
        if let Some(old) = self.live.remove(&place) {
            self.over_time.free(&old.placed, at);
            let kind = self.kinds.entry(old.kind).or_default();
            kind.live_bytes = kind.live_bytes.saturating_sub(old.bytes);
        }
        let placed = self.over_time.allocate(kind == MemoryKind::Pinned, (call.api, call.bytes), at);
        self.live.insert(place, Live { kind, bytes: call.bytes, placed });
        self.last.insert(tid, (place, call.api));
        let kind = self.kinds.entry(kind).or_default();
        kind.live_bytes = kind.live_bytes.saturating_add(call.bytes);
        let freed = kind.freed.get_mut(&call.bytes).filter(|freed| **freed > 0);
        let is_repeated = freed.map(|freed| *freed -= 1).is_some();
        if self.is_outside {
            return;
        }
        kind.memory.allocations += 1;
        kind.memory.allocated_bytes = kind.memory.allocated_bytes.saturating_add(call.bytes);
        kind.memory.cpu_ns += cpu_ns;
        kind.memory.peak_bytes = kind.memory.peak_bytes.max(kind.live_bytes);
        kind.memory.repeated += u64::from(is_repeated);
        kind.unconfirmed += u64::from(after_launch);
        self.has_unconfirmed |= after_launch;
    }

    /// A free that succeeded: of the kind that was allocated, whatever call frees it.
    pub fn free(&mut self, call: &Call, Caller { at, cpu_ns, .. }: Caller) {
        let Some(Live { kind, bytes, placed }) = self.live.remove(&Place::of(call)) else { return };
        self.over_time.free(&placed, at);
        let kind = self.kinds.entry(kind).or_default();
        if !self.is_outside {
            kind.memory.frees += 1;
            kind.memory.cpu_ns += cpu_ns;
        }
        kind.live_bytes = kind.live_bytes.saturating_sub(bytes);
        if kind.freed.len() < SIZES || kind.freed.contains_key(&bytes) {
            *kind.freed.entry(bytes).or_default() += 1;
        }
    }

    /// The stack of the last allocation of a thread was read, if that was by this entry point: it
    /// has this place among all stacks, and a name.
    pub fn read_stack(&mut self, tid: u32, api: u32, stack: usize, name: impl FnOnce() -> String) {
        let Some((place, _)) = self.last.remove(&tid).filter(|(_, of)| *of == api) else { return };
        if let Some(live) = self.live.get_mut(&place) {
            self.over_time.read(&mut live.placed, api, stack, name);
        }
    }

    /// A launch: the allocations up to here were among launches.
    pub fn launch(&mut self) {
        if !std::mem::take(&mut self.has_unconfirmed) {
            return;
        }
        for kind in self.kinds.values_mut() {
            kind.memory.among_launches += std::mem::take(&mut kind.unconfirmed);
        }
    }

    /// The memory of the process over time, and by kind.
    pub fn finish(self, process: usize) -> (Vec<MemoryOverTime>, BTreeMap<MemoryKind, Memory>) {
        let memory = |(&kind, heap): (&MemoryKind, &Kind)| {
            let Totals { allocations, frees, allocated_bytes, peak_bytes, repeated, among_launches, cpu_ns } =
                heap.memory;
            let live = self.live.values().filter(|live| live.kind == kind).count() as u64;
            let live_bytes = heap.live_bytes;
            let memory = Memory {
                kind,
                allocations,
                frees,
                allocated_bytes,
                peak_bytes,
                live,
                live_bytes,
                repeated,
                among_launches,
                cpu_ns,
            };
            (kind, memory)
        };
        let used = self.kinds.iter().filter(|(_, kind)| kind.memory.allocations + kind.memory.frees > 0);
        let by_kind = used.map(memory).collect();
        (self.over_time.finish(process), by_kind)
    }
}

impl Memory {
    /// No memory of a kind.
    pub(super) fn none(kind: MemoryKind) -> Self {
        Self {
            kind,
            allocations: 0,
            frees: 0,
            allocated_bytes: 0,
            peak_bytes: 0,
            live: 0,
            live_bytes: 0,
            repeated: 0,
            among_launches: 0,
            cpu_ns: 0.0,
        }
    }

    /// Adds the memory of other processes.
    pub(super) fn merge(&mut self, other: &Self) {
        self.allocations += other.allocations;
        self.frees += other.frees;
        self.allocated_bytes = self.allocated_bytes.saturating_add(other.allocated_bytes);
        self.peak_bytes = self.peak_bytes.max(other.peak_bytes);
        self.live += other.live;
        self.live_bytes = self.live_bytes.saturating_add(other.live_bytes);
        self.repeated += other.repeated;
        self.among_launches += other.among_launches;
        self.cpu_ns += other.cpu_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(address: u64, bytes: u64) -> Call {
        Call { address, bytes, ..Call::default() }
    }

    fn taking(cpu_ns: f64) -> Caller {
        Caller { cpu_ns, ..Caller::default() }
    }

    fn totals(heap: Heap) -> BTreeMap<MemoryKind, Memory> {
        heap.finish(0).1
    }

    #[test]
    fn a_loop_repeats_sizes_among_launches() {
        let mut heap = Heap::of(0.0..1.0);
        heap.launch();
        for i in 0..10 {
            heap.allocate(MemoryKind::Device, &call(0x1000, 64), taking(5.0), true);
            heap.launch();
            heap.free(&call(0x1000, 0), taking(3.0));
            assert_eq!(heap.live.len(), 0, "iteration {i}");
        }
        let memory = &totals(heap)[&MemoryKind::Device];
        assert_eq!(
            (memory.allocations, memory.frees, memory.repeated, memory.among_launches),
            (10, 10, 9, 10)
        );
        assert_eq!((memory.peak_bytes, memory.live_bytes, memory.cpu_ns), (64, 0, 80.0));
    }

    #[test]
    fn allocations_after_the_last_launch_are_not_among_launches() {
        let mut heap = Heap::of(0.0..1.0);
        heap.allocate(MemoryKind::Device, &call(1, 64), Caller::default(), false);
        heap.launch();
        heap.allocate(MemoryKind::Device, &call(2, 64), Caller::default(), true);
        assert_eq!(totals(heap)[&MemoryKind::Device].among_launches, 0);
    }

    #[test]
    fn what_is_freed_is_of_the_kind_that_was_allocated() {
        let mut heap = Heap::of(0.0..1.0);
        heap.allocate(MemoryKind::Pool, &call(7, 100), Caller::default(), false);
        heap.free(&Call { memory: MemoryKind::Device as u8, ..call(7, 0) }, Caller::default());
        let all = totals(heap);
        assert_eq!((all.len(), all[&MemoryKind::Pool].frees), (1, 1));
    }

    #[test]
    fn leaks_and_peaks_are_seen() {
        let mut heap = Heap::of(0.0..1.0);
        heap.allocate(MemoryKind::Device, &call(1, 100), Caller::default(), false);
        heap.allocate(MemoryKind::Device, &call(2, 50), Caller::default(), false);
        heap.free(&call(1, 0), Caller::default());
        heap.free(&call(99, 0), Caller::default());
        let memory = &totals(heap)[&MemoryKind::Device];
        assert_eq!((memory.peak_bytes, memory.live, memory.live_bytes, memory.frees), (150, 1, 50, 1));
    }

    #[test]
    fn an_address_that_comes_again_replaces_what_was_there() {
        let mut heap = Heap::of(0.0..1.0);
        heap.allocate(MemoryKind::Device, &call(1, 100), Caller::default(), false);
        heap.allocate(MemoryKind::Pinned, &call(1, 30), Caller::default(), false);
        let all = totals(heap);
        assert_eq!((all[&MemoryKind::Device].live_bytes, all[&MemoryKind::Pinned].live_bytes), (0, 30));
    }

    #[test]
    fn handles_stand_for_memory_without_an_address() {
        let mut heap = Heap::of(0.0..1.0);
        heap.allocate(
            MemoryKind::Virtual,
            &Call { object: 5, bytes: 10, ..Call::default() },
            Caller::default(),
            false,
        );
        heap.allocate(
            MemoryKind::Unknown,
            &Call { object: 5, address: 0x10, bytes: 10, ..Call::default() },
            Caller::default(),
            false,
        );
        heap.free(&Call { object: 5, ..Call::default() }, Caller::default());
        let all = totals(heap);
        assert_eq!((all.len(), all[&MemoryKind::Virtual].live), (1, 0));
    }
}
