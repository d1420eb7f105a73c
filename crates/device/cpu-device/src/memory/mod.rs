//! The device's memory: every range that a kernel or a copy may access, with its attributes.
//!
//! A device address is a host address, because the device's memory is host memory. Unified
//! addressing follows: a pointer has the same meaning on both sides, and pinned and managed memory
//! need no translation.
//!
//! Invariants:
//! - Allocations never overlap, and a guard page lies between two that this module made: running
//!   past the end of one is found, not absorbed by its neighbour.
//! - A freed range stays mapped for a while (see [`Quarantine`]).

mod allocation;
mod backing;
pub mod copy;
pub mod graph_memory;
pub mod host;
pub mod ipc;
pub mod pool;
mod quarantine;
pub mod virtual_memory;

pub use allocation::{Allocation, Kind, Location};
pub use backing::Backing;

use crate::error::Error;
use crate::fault;
use crate::memory::allocation::Described;
use crate::memory::host::Map;
use crate::memory::quarantine::Quarantine;
use crate::observation;
use crate::thread;
use cuda_abi::types::{
    CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY,
};
use ptx_exec::Shadow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

/// The granularity of mappings, hence the alignment of allocations (CUDA promises 256), and the
/// width of the guard between two of them.
const PAGE: u64 = 4096;

/// The reason why an allocation or registration failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocationError {
    /// The device (or the system) has no such amount left.
    OutOfMemory,
    /// The range is empty or runs past the end of the address space.
    Invalid,
    /// The range overlaps one that is already known.
    Overlaps,
}

impl From<AllocationError> for Error {
    fn from(error: AllocationError) -> Error {
        Error(match error {
            AllocationError::OutOfMemory => CUDA_ERROR_OUT_OF_MEMORY,
            AllocationError::Invalid => CUDA_ERROR_INVALID_VALUE,
            AllocationError::Overlaps => CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
        })
    }
}

/// An allocation to make.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The size in bytes.
    pub bytes: u64,
    /// The kind of the new range.
    pub kind: Kind,
    /// Flags to remember.
    pub flags: u32,
    /// The context to remember.
    pub context: u64,
}

/// All ranges that are known, and the accounts.
pub struct Memory {
    ranges: RwLock<BTreeMap<u64, Arc<Allocation>>>,
    quarantine: Mutex<Quarantine>,
    /// Kernels that execute now and may hold on to ranges they have looked up.
    readers: AtomicUsize,
    used: AtomicU64,
    /// The memory that device code has allocated, in bytes.
    heap: AtomicU64,
    total: u64,
    next_id: AtomicU64,
}

impl Memory {
    /// Memory of `total` bytes.
    pub fn new(total: u64) -> Memory {
        Memory {
            ranges: RwLock::new(BTreeMap::new()),
            quarantine: Mutex::new(Quarantine::default()),
            readers: AtomicUsize::new(0),
            used: AtomicU64::new(0),
            heap: AtomicU64::new(0),
            total,
            next_id: AtomicU64::new(1),
        }
    }

    /// The device's bytes: how many are free, and how many there are.
    pub fn free_and_total(&self) -> (u64, u64) {
        (self.total.saturating_sub(self.used.load(Ordering::Relaxed)), self.total)
    }

    /// Allocates zeroed memory.
    pub fn allocate(&self, request: Request) -> Result<Arc<Allocation>, AllocationError> {
        self.allocate_variable(request, true)
    }

    /// Allocates zeroed memory that kernels may write, or not. Copies may in any case.
    pub fn allocate_variable(
        &self,
        request: Request,
        writable: bool,
    ) -> Result<Arc<Allocation>, AllocationError> {
        if request.bytes == 0 {
            return Err(AllocationError::Invalid);
        }
        self.adopt(Backing::map(request.bytes)?, request, writable)
    }

    /// Makes mapped memory an allocation: the first `request.bytes` bytes of it.
    pub fn adopt(
        &self,
        backing: Arc<Backing>,
        request: Request,
        writable: bool,
    ) -> Result<Arc<Allocation>, AllocationError> {
        let start = backing.start();
        let mut ranges = self.write();
        forget_registered(&mut ranges, start, start + backing.mapped as u64);
        if ranges.contains_key(&start) {
            return Err(AllocationError::Overlaps);
        }
        if request.kind.counts_against_the_device() && !self.take(request.bytes) {
            return Err(AllocationError::OutOfMemory);
        }
        let described = self.describe_new(start, request, writable, Some(backing));
        let Some(allocation) = described.map(Arc::new) else {
            if request.kind.counts_against_the_device() {
                self.give_back(request.bytes);
            }
            return Err(AllocationError::OutOfMemory);
        };
        ranges.insert(start, allocation.clone());
        Ok(allocation)
    }

    /// Allocates for `malloc` in device code, from which at most `limit` bytes can be had at once.
    pub fn allocate_from_heap(
        &self,
        request: Request,
        limit: u64,
    ) -> Result<Arc<Allocation>, AllocationError> {
        let within = |used: u64| used.checked_add(request.bytes).filter(|&sum| sum <= limit);
        let taken = self.heap.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within);
        taken.map_err(|_| AllocationError::OutOfMemory)?;
        let allocated = self.allocate(request);
        if allocated.is_err() {
            self.heap.fetch_sub(request.bytes, Ordering::Relaxed);
        }
        allocated
    }

    /// Notes that the calling thread's stack is memory of this library's: registered ranges that
    /// overlap it are forgotten, because the program has unmapped them.
    pub fn note_stack(&self) {
        let stack = thread::stack();
        forget_registered(&mut self.write(), stack.start as u64, stack.end as u64);
    }

    /// Makes memory of somebody else's known, for as long as its owner says. With a backing, that
    /// stays mapped at least until the range has been released and nothing that executes can still
    /// know of it.
    pub fn register(
        &self,
        start: u64,
        request: Request,
        writable: bool,
        backing: Option<Arc<Backing>>,
    ) -> Result<Arc<Allocation>, AllocationError> {
        let end = start.checked_add(request.bytes).ok_or(AllocationError::Invalid)?;
        if start == 0 || request.bytes == 0 {
            return Err(AllocationError::Invalid);
        }
        let mut ranges = self.write();
        let before = ranges.range(..end).next_back();
        if before.is_some_and(|(_, known)| known.end() > start) {
            return Err(AllocationError::Overlaps);
        }
        let described = self.describe_new(start, request, writable, backing);
        let allocation = described.map(Arc::new).ok_or(AllocationError::OutOfMemory)?;
        ranges.insert(start, allocation.clone());
        Ok(allocation)
    }

    /// Forgets the range that starts at `start`, if there is one that `may_release` agrees to.
    pub fn release(&self, start: u64, may_release: impl FnOnce(Kind) -> bool) -> Option<Arc<Allocation>> {
        let mut ranges = self.write();
        if !may_release(ranges.get(&start)?.kind) {
            return None;
        }
        let allocation = ranges.remove(&start)?;
        drop(ranges);
        if allocation.kind.counts_against_the_device() {
            self.give_back(allocation.bytes);
        }
        if allocation.kind == Kind::Heap {
            self.heap.fetch_sub(allocation.bytes, Ordering::Relaxed);
        }
        self.quarantine().push(allocation.clone(), thread::call());
        self.recycle();
        Some(allocation)
    }

    /// The id that the next range will have.
    pub fn next_id(&self) -> u64 {
        self.next_id.load(Ordering::Relaxed)
    }

    /// Releases everything that was allocated or registered in a context and has an id below `end`.
    pub fn release_all(&self, context: u64, end: u64) {
        let is_meant = |range: &&Arc<Allocation>| range.context == context && range.id < end;
        let starts: Vec<u64> =
            self.read(|ranges| ranges.values().filter(is_meant).map(|range| range.start).collect());
        for start in starts {
            self.release(start, |_| true);
        }
    }

    /// The range that holds `address`.
    pub fn find(&self, address: u64) -> Option<Arc<Allocation>> {
        self.read(|ranges| {
            let (_, allocation) = ranges.range(..=address).next_back()?;
            (address < allocation.end()).then(|| allocation.clone())
        })
    }

    /// Notes that bytes have been written by somebody else than a kernel.
    pub fn note_written(&self, address: u64, bytes: u64) {
        if observation::checks()
            && let Some(shadow) = self.shadow(address)
        {
            shadow.mark(address, bytes);
        }
    }

    /// Notes that bytes have been copied: what had not been written at `source` has not been at
    /// `address` either.
    pub fn note_copied(&self, address: u64, source: u64, bytes: u64) {
        if !observation::checks() {
            return;
        }
        match (self.shadow(address), self.shadow(source)) {
            (Some(shadow), Some(from)) => {
                shadow.copy(address, &from, source, bytes);
                observation::follow_copy(&shadow, address, source, bytes);
            }
            (Some(shadow), None) => shadow.mark(address, bytes),
            // To where nobody keeps track: the host reads it.
            (None, Some(_)) => observation::host_reads(source, bytes),
            (None, None) => {}
        }
    }

    /// The shadow of the allocation that holds `address`.
    pub fn shadow(&self, address: u64) -> Option<Arc<Shadow>> {
        self.find(address)?.shadow.clone()
    }

    /// Promises that ranges looked up from now on stay mapped until the promise is dropped, freed
    /// or not.
    pub fn pin(&self) -> Pin<'_> {
        self.readers.fetch_add(1, Ordering::AcqRel);
        Pin(self)
    }

    /// Whether `address` lies in a range that was freed and has not been given back yet.
    pub fn has_freed(&self, address: u64) -> bool {
        self.quarantine().find(address).is_some()
    }

    /// Describes in words where `address` lies, for the report of a fault.
    pub fn describe(&self, address: u64) -> String {
        if address < PAGE {
            return "a null pointer, or an offset from one".into();
        }
        if let Some(inside) = self.find(address) {
            let gone = inside.kind == Kind::Registered
                && Map::read().around(address, inside.start, inside.end()).is_none();
            let since = if gone {
                ", which is no longer accessible: unmapped, protected, or behind the end of its file"
            } else {
                ""
            };
            return format!("{} bytes into {}{since}", address - inside.start, Described(&inside));
        }
        if let Some((freed, by)) = self.quarantine().find(address) {
            let by = if by.is_empty() { String::new() } else { format!(" by {}", fault::name(by)) };
            return format!(
                "{} bytes into {}, which has been freed{by}",
                address - freed.start,
                Described(freed)
            );
        }
        self.read(|ranges| {
            let before =
                ranges.range(..=address).next_back().map(|(_, below)| (address - below.end(), below));
            let after = ranges.range(address..).next().map(|(_, above)| (above.start - address, above));
            match (before, after) {
                (Some((gap, below)), Some((distance, _))) if gap < distance => past_the_end(gap, below),
                (Some((gap, below)), None) => past_the_end(gap, below),
                (_, Some((distance, above))) => format!("{distance} bytes before {}", Described(above)),
                (None, None) => "nothing is allocated".into(),
            }
        })
    }

    /// Accounts for `bytes` of the device's memory, unless there is not as much left.
    pub fn take(&self, bytes: u64) -> bool {
        let within = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= self.total);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).is_ok()
    }

    /// Takes back what [`Memory::take`] has accounted for.
    pub fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Gives the oldest freed ranges back, unless somebody may still hold them. The lock is taken
    /// before the readers are counted: who pins afterwards can only look up what has not been
    /// freed.
    fn recycle(&self) {
        let mut quarantine = self.quarantine();
        if self.readers.load(Ordering::Acquire) == 0 {
            quarantine.shrink();
        }
    }

    /// A range, with a shadow where its writes are kept track of; `None` if there is no memory for
    /// that.
    fn describe_new(
        &self,
        start: u64,
        request: Request,
        writable: bool,
        backing: Option<Arc<Backing>>,
    ) -> Option<Allocation> {
        let Request { bytes, kind, flags, context } = request;
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let tracked = matches!(kind, Kind::Device | Kind::Pooled(_) | Kind::Graph | Kind::Heap)
            && observation::checks();
        let shadow = if tracked { Some(Arc::new(Shadow::new(start, bytes)?)) } else { None };
        let (advice, name) = (Mutex::default(), OnceLock::new());
        Some(Allocation { start, bytes, kind, id, flags, context, writable, shadow, advice, name, backing })
    }

    fn read<T>(&self, look: impl FnOnce(&BTreeMap<u64, Arc<Allocation>>) -> T) -> T {
        look(&self.ranges.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, BTreeMap<u64, Arc<Allocation>>> {
        self.ranges.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn quarantine(&self) -> MutexGuard<'_, Quarantine> {
        self.quarantine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Forgets registered ranges that overlap `start..end`, where this library has mapped memory: the
/// program has unmapped them without unregistering them, and who uses them must not reach what is
/// there now.
fn forget_registered(ranges: &mut BTreeMap<u64, Arc<Allocation>>, start: u64, end: u64) {
    while let Some((&at, last)) = ranges.range(..end).next_back()
        && last.end() > start
        && last.kind == Kind::Registered
    {
        ranges.remove(&at);
    }
}

/// While it lives, what [`Memory::find`] returned stays mapped.
pub struct Pin<'a>(&'a Memory);

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        if self.0.readers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.recycle();
        }
    }
}

fn past_the_end(gap: u64, below: &Allocation) -> String {
    format!("{gap} bytes past the end of {}", Described(below))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOTAL: u64 = 1 << 30;

    fn request(bytes: u64) -> Request {
        Request { bytes, kind: Kind::Device, flags: 0, context: 0 }
    }

    #[test]
    fn finds_exactly_the_bytes_that_were_allocated() {
        let memory = Memory::new(TOTAL);
        for bytes in [1, 255, 4096, 4097, 1 << 20] {
            let allocation = memory.allocate(request(bytes)).unwrap();
            assert_eq!(allocation.start % 256, 0);
            assert_eq!(memory.find(allocation.start).unwrap().id, allocation.id);
            assert_eq!(memory.find(allocation.end() - 1).unwrap().id, allocation.id);
            assert!(memory.find(allocation.end()).is_none());
            assert!(memory.find(allocation.start - 1).is_none());
        }
    }

    #[test]
    fn holds_does_not_wrap() {
        let memory = Memory::new(TOTAL);
        let allocation = memory.allocate(request(100)).unwrap();
        assert!(allocation.holds(allocation.start, 100));
        assert!(!allocation.holds(allocation.start + 1, 100));
        assert!(!allocation.holds(allocation.start, u64::MAX));
        assert!(!allocation.holds(u64::MAX, 2));
    }

    #[test]
    fn the_account_goes_up_and_down_and_has_an_end() {
        let memory = Memory::new(10_000);
        let first = memory.allocate(request(6_000)).unwrap();
        assert_eq!(memory.free_and_total(), (4_000, 10_000));
        assert_eq!(memory.allocate(request(4_001)).unwrap_err(), AllocationError::OutOfMemory);
        assert_eq!(memory.allocate(request(u64::MAX)).unwrap_err(), AllocationError::OutOfMemory);
        assert!(memory.release(first.start, |_| true).is_some());
        assert_eq!(memory.free_and_total(), (10_000, 10_000));
        assert!(memory.release(first.start, |_| true).is_none(), "a second release of the same range");
    }

    #[test]
    fn registered_ranges_may_not_overlap() {
        let memory = Memory::new(TOTAL);
        let host = vec![0u8; 4096];
        let start = host.as_ptr() as u64;
        let registered = Request { kind: Kind::Registered, ..request(4096) };
        memory.register(start, registered, true, None).unwrap();
        for (at, bytes) in [(start, 1), (start - 1, 2), (start + 4095, 10), (start - 10, 5000)] {
            let overlapping = memory.register(at, Request { bytes, ..registered }, true, None);
            assert_eq!(overlapping.unwrap_err(), AllocationError::Overlaps);
        }
        memory.register(start + 4096, Request { bytes: 1, ..registered }, true, None).unwrap();
        memory.register(start - 1, Request { bytes: 1, ..registered }, true, None).unwrap();
        assert_eq!(memory.register(u64::MAX, registered, true, None).unwrap_err(), AllocationError::Invalid);
    }

    #[test]
    fn memory_in_the_place_of_a_registered_range_takes_its_place() {
        let memory = Memory::new(TOTAL);
        let place = Backing::map(4 * PAGE).unwrap();
        let start = place.start();
        drop(place);
        let registered = Request { kind: Kind::Registered, ..request(PAGE) };
        for page in 0..4 {
            memory.register(start + page * PAGE, registered, true, None).unwrap();
        }
        // Another thread of these tests may have got the addresses by now.
        let Some(backing) = Backing::map_at(start + PAGE, 2 * PAGE) else { return };
        memory.adopt(backing, request(2 * PAGE), true).unwrap();
        let kinds = [0, 1, 2, 3].map(|page| memory.find(start + page * PAGE).unwrap().kind);
        assert_eq!(kinds, [Kind::Registered, Kind::Device, Kind::Device, Kind::Registered]);
        let local = 0u8;
        memory.register((&raw const local) as u64, Request { bytes: 1, ..registered }, true, None).unwrap();
        memory.note_stack();
        assert!(memory.find((&raw const local) as u64).is_none());
    }

    #[test]
    fn says_where_an_address_lies() {
        let memory = Memory::new(TOTAL);
        assert_eq!(memory.describe(1 << 40), "nothing is allocated");
        let allocation = memory.allocate(request(1000)).unwrap();
        assert!(memory.describe(0).contains("null pointer"));
        let past = memory.describe(allocation.end() + 24);
        assert!(past.starts_with("24 bytes past the end of a device allocation of 1000 bytes"), "{past}");
        assert!(memory.describe(allocation.start - 8).starts_with("8 bytes before"));
        memory.release(allocation.start, |_| true);
        let freed = memory.describe(allocation.start + 4);
        assert!(freed.starts_with("4 bytes into") && freed.ends_with("has been freed"), "{freed}");
        let variable = memory.allocate(Request { kind: Kind::Global, ..request(16) }).unwrap();
        variable.set_name("table");
        let inside = memory.describe(variable.start + 12);
        assert!(inside.starts_with("12 bytes into the variable `table` of 16 bytes at 0x"), "{inside}");
    }

    #[test]
    fn a_pinned_range_stays_mapped_however_much_is_freed() {
        let memory = Memory::new(TOTAL);
        let pin = memory.pin();
        let ranges: Vec<_> =
            (0..2 * Quarantine::CAPACITY).map(|_| memory.allocate(request(64)).unwrap()).collect();
        for range in &ranges {
            memory.release(range.start, |_| true);
        }
        for range in &ranges {
            // SAFETY: the pin keeps every range mapped that has been freed since.
            assert_eq!(unsafe { *(range.start as *const u8) }, 0);
        }
        assert_eq!(memory.quarantine().freed.len(), ranges.len());
        drop(pin);
        assert_eq!(memory.quarantine().freed.len(), Quarantine::CAPACITY);
    }
}
