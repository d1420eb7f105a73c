//! Allocations and frees: what is live, what peaks, what is allocated again and again.

use std::collections::{BTreeMap, HashMap};

use apex_trace::layout::{Call, MemoryKind};

use super::Memory;

/// Distinct freed sizes that are remembered for each kind; a program with more does not allocate in
/// a simple loop.
const SIZES: usize = 4096;

/// What names an allocation until it is freed.
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

/// The memory of one process.
#[derive(Default)]
pub(crate) struct Heap {
    live: HashMap<Place, (MemoryKind, u64)>,
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
    /// How many of each size were freed and not allocated again.
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

impl Heap {
    /// An allocation that succeeded. Mappings of memory that is counted elsewhere have no kind and
    /// do not count here.
    pub fn allocate(&mut self, kind: MemoryKind, call: &Call, cpu_ns: f64, after_launch: bool) {
        if kind == MemoryKind::Unknown {
            return;
        }
        // An address that is live still was freed in a way that is not recorded.
        if let Some((old, bytes)) = self.live.insert(Place::of(call), (kind, call.bytes)) {
            let old = self.kinds.entry(old).or_default();
            old.live_bytes = old.live_bytes.saturating_sub(bytes);
        }
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
    pub fn free(&mut self, call: &Call, cpu_ns: f64) {
        let Some((kind, bytes)) = self.live.remove(&Place::of(call)) else { return };
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

    /// A launch: the allocations up to here were among launches.
    pub fn launch(&mut self) {
        if !std::mem::take(&mut self.has_unconfirmed) {
            return;
        }
        for kind in self.kinds.values_mut() {
            kind.memory.among_launches += std::mem::take(&mut kind.unconfirmed);
        }
    }

    /// The memory of the process by kind.
    pub fn finish(self) -> BTreeMap<MemoryKind, Memory> {
        let memory = |(&kind, heap): (&MemoryKind, &Kind)| {
            let Totals { allocations, frees, allocated_bytes, peak_bytes, repeated, among_launches, cpu_ns } =
                heap.memory;
            let live = self.live.values().filter(|(of, _)| *of == kind).count() as u64;
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
        used.map(memory).collect()
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

    fn totals(heap: Heap) -> BTreeMap<MemoryKind, Memory> {
        heap.finish()
    }

    #[test]
    fn a_loop_repeats_sizes_among_launches() {
        let mut heap = Heap::default();
        heap.launch();
        for i in 0..10 {
            heap.allocate(MemoryKind::Device, &call(0x1000, 64), 5.0, true);
            heap.launch();
            heap.free(&call(0x1000, 0), 3.0);
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
        let mut heap = Heap::default();
        heap.allocate(MemoryKind::Device, &call(1, 64), 0.0, false);
        heap.launch();
        heap.allocate(MemoryKind::Device, &call(2, 64), 0.0, true);
        assert_eq!(totals(heap)[&MemoryKind::Device].among_launches, 0);
    }

    #[test]
    fn what_is_freed_is_of_the_kind_that_was_allocated() {
        let mut heap = Heap::default();
        heap.allocate(MemoryKind::Pool, &call(7, 100), 0.0, false);
        heap.free(&Call { memory: MemoryKind::Device as u8, ..call(7, 0) }, 0.0);
        let all = totals(heap);
        assert_eq!((all.len(), all[&MemoryKind::Pool].frees), (1, 1));
    }

    #[test]
    fn leaks_and_peaks_are_seen() {
        let mut heap = Heap::default();
        heap.allocate(MemoryKind::Device, &call(1, 100), 0.0, false);
        heap.allocate(MemoryKind::Device, &call(2, 50), 0.0, false);
        heap.free(&call(1, 0), 0.0);
        heap.free(&call(99, 0), 0.0);
        let memory = &totals(heap)[&MemoryKind::Device];
        assert_eq!((memory.peak_bytes, memory.live, memory.live_bytes, memory.frees), (150, 1, 50, 1));
    }

    #[test]
    fn an_address_that_comes_again_replaces_what_was_there() {
        let mut heap = Heap::default();
        heap.allocate(MemoryKind::Device, &call(1, 100), 0.0, false);
        heap.allocate(MemoryKind::Pinned, &call(1, 30), 0.0, false);
        let all = totals(heap);
        assert_eq!((all[&MemoryKind::Device].live_bytes, all[&MemoryKind::Pinned].live_bytes), (0, 30));
    }

    #[test]
    fn handles_stand_for_memory_without_an_address() {
        let mut heap = Heap::default();
        heap.allocate(MemoryKind::Virtual, &Call { object: 5, bytes: 10, ..Call::default() }, 0.0, false);
        heap.allocate(
            MemoryKind::Unknown,
            &Call { object: 5, address: 0x10, bytes: 10, ..Call::default() },
            0.0,
            false,
        );
        heap.free(&Call { object: 5, ..Call::default() }, 0.0);
        let all = totals(heap);
        assert_eq!((all.len(), all[&MemoryKind::Virtual].live), (1, 0));
    }
}
