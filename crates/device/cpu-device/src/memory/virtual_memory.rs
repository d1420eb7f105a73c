//! Virtual memory management: address ranges, physical memory, and mappings between them.
//!
//! Physical memory is an anonymous file, so that it can be mapped at several places and handed to
//! other processes. A reserved range is memory without access; mapping puts a file's pages
//! there, and only giving access makes the range known to kernels and copies. Unmapping puts fresh
//! pages in their place, so a kernel that still executes with the old mapping in mind harms nobody.

use crate::device::{self, Device};
use crate::error::{Error, Result, ensure, fail};
use crate::handle::{Kind as HandleKind, Table};
use crate::memory::ipc;
use crate::memory::{Backing, Kind, Request};
use cuda_abi::types::*;
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Sizes and addresses are multiples of this.
pub const GRANULARITY: u64 = 2 << 20;

static PHYSICAL: Table<Physical> = Table::new(HandleKind::Physical);

/// Reserved ranges by their first addresses.
static RESERVED: Mutex<BTreeMap<u64, Reservation>> = Mutex::new(BTreeMap::new());

/// Physical memory.
pub struct Physical {
    /// As the program knows it.
    pub handle: u64,
    /// The properties that the memory was created with.
    pub properties: CUmemAllocationProp,
    bytes: u64,
    file: OwnedFd,
    device: &'static Device,
    /// The number of releases after which the handle ends.
    retained: AtomicU64,
}

// SAFETY: the properties hold a pointer that is never used.
unsafe impl Send for Physical {}
// SAFETY: as for `Send`.
unsafe impl Sync for Physical {}

impl Physical {
    /// Allocates physical memory and names it.
    pub fn create(bytes: u64, properties: CUmemAllocationProp) -> Result<Arc<Physical>> {
        ensure(bytes > 0 && bytes.is_multiple_of(GRANULARITY), CUDA_ERROR_INVALID_VALUE)?;
        let file = ipc::anonymous_file(bytes).map_err(|_| Error(CUDA_ERROR_OUT_OF_MEMORY))?;
        Physical::of_file(file, bytes, properties)
    }

    /// Takes over a file that [`Physical::export`] has made, in this process or another.
    pub fn import(file: i32) -> Result<Arc<Physical>> {
        // SAFETY: `dup` takes any number.
        let copy = unsafe { libc::fcntl(file, libc::F_DUPFD_CLOEXEC, 0) };
        ensure(copy >= 0, CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: the file has just been opened, and nobody else has it.
        let copy = unsafe { OwnedFd::from_raw_fd(copy) };
        // SAFETY: seeking reads no memory.
        let bytes = u64::try_from(unsafe { libc::lseek(copy.as_raw_fd(), 0, libc::SEEK_END) }).unwrap_or(0);
        ensure(bytes > 0 && bytes.is_multiple_of(GRANULARITY), CUDA_ERROR_INVALID_VALUE)?;
        let properties = CUmemAllocationProp {
            r#type: CU_MEM_ALLOCATION_TYPE_PINNED,
            location: CUmemLocation { r#type: CU_MEM_LOCATION_TYPE_DEVICE, ..cuda_abi::Plain::zeroed() },
            ..cuda_abi::Plain::zeroed()
        };
        Physical::of_file(copy, bytes, properties)
    }

    fn of_file(file: OwnedFd, bytes: u64, properties: CUmemAllocationProp) -> Result<Arc<Physical>> {
        let device = device::get()?;
        ensure(device.memory.take(bytes), CUDA_ERROR_OUT_OF_MEMORY)?;
        let physical = Arc::new(Physical {
            handle: PHYSICAL.reserve(),
            properties,
            bytes,
            file,
            device,
            retained: AtomicU64::new(1),
        });
        PHYSICAL.insert(physical.handle, physical.clone());
        Ok(physical)
    }

    /// Returns the physical memory of a handle.
    pub fn resolve(handle: CUmemGenericAllocationHandle) -> Result<Arc<Physical>> {
        device::get()?;
        PHYSICAL.get(handle).ok_or(Error(CUDA_ERROR_INVALID_VALUE))
    }

    /// Takes back one retain; the last takes the name away. The memory lives as long as it is
    /// mapped somewhere.
    pub fn release(handle: CUmemGenericAllocationHandle) -> Result {
        let physical = Physical::resolve(handle)?;
        if physical.retained.fetch_sub(1, Ordering::AcqRel) == 1 {
            PHYSICAL.remove(handle);
        }
        Ok(())
    }

    /// A file that stands for the memory and is the caller's to close.
    pub fn export(&self) -> Result<i32> {
        // SAFETY: the file is open.
        let copy = unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 0) };
        ensure(copy >= 0, CUDA_ERROR_OPERATING_SYSTEM)?;
        Ok(copy)
    }
}

impl Drop for Physical {
    fn drop(&mut self) {
        self.device.memory.give_back(self.bytes);
    }
}

/// A reserved range.
struct Reservation {
    bytes: u64,
    backing: Arc<Backing>,
    /// By first address.
    mappings: BTreeMap<u64, Mapping>,
}

struct Mapping {
    bytes: u64,
    physical: Arc<Physical>,
    access: CUmemAccess_flags,
}

/// Reserves addresses, from `wanted` if that is not 0 and they are free.
pub fn reserve(bytes: u64, alignment: u64, wanted: u64) -> Result<u64> {
    ensure(bytes > 0 && bytes.is_multiple_of(GRANULARITY), CUDA_ERROR_INVALID_VALUE)?;
    ensure(alignment == 0 || alignment.is_power_of_two(), CUDA_ERROR_INVALID_VALUE)?;
    let alignment = alignment.max(GRANULARITY);
    if wanted != 0
        && wanted.is_multiple_of(alignment)
        && let Some(backing) = Backing::map_at(wanted, bytes)
    {
        reserved().insert(wanted, Reservation { bytes, backing, mappings: BTreeMap::new() });
        return Ok(wanted);
    }
    let backing = Backing::map(bytes.checked_add(alignment).ok_or(Error(CUDA_ERROR_OUT_OF_MEMORY))?)?;
    let start = backing.start().next_multiple_of(alignment);
    reserved().insert(start, Reservation { bytes, backing, mappings: BTreeMap::new() });
    Ok(start)
}

/// Gives reserved addresses back. Nothing may be mapped there.
pub fn unreserve(start: u64, bytes: u64) -> Result {
    let mut reserved = reserved();
    let found = reserved.get(&start).is_some_and(|range| range.bytes == bytes && range.mappings.is_empty());
    ensure(found, CUDA_ERROR_INVALID_VALUE)?;
    reserved.remove(&start);
    Ok(())
}

/// Maps physical memory, from its start, at reserved addresses where nothing is mapped.
pub fn map(start: u64, bytes: u64, physical: Arc<Physical>) -> Result {
    ensure(bytes > 0 && bytes.is_multiple_of(GRANULARITY), CUDA_ERROR_INVALID_VALUE)?;
    ensure(start.is_multiple_of(GRANULARITY) && bytes <= physical.bytes, CUDA_ERROR_INVALID_VALUE)?;
    let mut reserved = reserved();
    let range = range_with(&mut reserved, start, bytes)?;
    let before = range.mappings.range(..start + bytes).next_back();
    ensure(before.is_none_or(|(at, mapping)| at + mapping.bytes <= start), CUDA_ERROR_INVALID_VALUE)?;
    put_pages(start, bytes, Some(&physical.file))?;
    range.mappings.insert(start, Mapping { bytes, physical, access: CU_MEM_ACCESS_FLAGS_PROT_NONE });
    Ok(())
}

/// Takes away whole mappings that fill a range.
pub fn unmap(start: u64, bytes: u64) -> Result {
    let device = device::get()?;
    let mut reserved = reserved();
    let range = range_with(&mut reserved, start, bytes)?;
    let mappings = mappings_filling(range, start, bytes)?;
    put_pages(start, bytes, None)?;
    for at in mappings {
        device.memory.release(at, |kind| kind == Kind::Mapped);
        range.mappings.remove(&at);
    }
    Ok(())
}

/// Says what the device may do with whole mappings that fill a range, for the context with this
/// handle.
pub fn set_access(start: u64, bytes: u64, access: CUmemAccess_flags, context: u64) -> Result {
    let writable = match access {
        CU_MEM_ACCESS_FLAGS_PROT_NONE => None,
        CU_MEM_ACCESS_FLAGS_PROT_READ => Some(false),
        CU_MEM_ACCESS_FLAGS_PROT_READWRITE => Some(true),
        _ => return fail(CUDA_ERROR_INVALID_VALUE),
    };
    let device = device::get()?;
    let mut reserved = reserved();
    let range = range_with(&mut reserved, start, bytes)?;
    for at in mappings_filling(range, start, bytes)? {
        let Some(mapping) = range.mappings.get_mut(&at) else { continue };
        device.memory.release(at, |kind| kind == Kind::Mapped);
        if let Some(writable) = writable {
            let request = Request { bytes: mapping.bytes, kind: Kind::Mapped, flags: 0, context };
            device.memory.register(at, request, writable, Some(range.backing.clone()))?;
        }
        mapping.access = access;
    }
    Ok(())
}

/// Returns the access that the device has to an address.
pub fn access(address: u64) -> Result<CUmemAccess_flags> {
    with_mapping(address, |mapping| mapping.access)
}

/// The physical memory at an address, with its name.
pub fn physical(address: u64) -> Result<Arc<Physical>> {
    let physical = with_mapping(address, |mapping| mapping.physical.clone())?;
    physical.retained.fetch_add(1, Ordering::AcqRel);
    // It may have lost its name: asking for it gives it back.
    PHYSICAL.insert(physical.handle, physical.clone());
    Ok(physical)
}

fn with_mapping<T>(address: u64, look: impl FnOnce(&Mapping) -> T) -> Result<T> {
    let mut reserved = reserved();
    let range = range_with(&mut reserved, address, 1)?;
    let mapping =
        range.mappings.range(..=address).next_back().filter(|(at, mapping)| address - **at < mapping.bytes);
    mapping.map(|(_, mapping)| look(mapping)).ok_or(Error(CUDA_ERROR_INVALID_VALUE))
}

fn reserved() -> MutexGuard<'static, BTreeMap<u64, Reservation>> {
    RESERVED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The reservation in which a range lies.
fn range_with(reserved: &mut BTreeMap<u64, Reservation>, start: u64, bytes: u64) -> Result<&mut Reservation> {
    let end = start.checked_add(bytes).ok_or(Error(CUDA_ERROR_INVALID_VALUE))?;
    let found = reserved.range_mut(..=start).next_back().filter(|(at, range)| end <= **at + range.bytes);
    found.map(|(_, range)| range).ok_or(Error(CUDA_ERROR_INVALID_VALUE))
}

/// The mappings that fill a range without a gap and without leaving it.
fn mappings_filling(range: &Reservation, start: u64, bytes: u64) -> Result<Vec<u64>> {
    let mut next = start;
    for (at, mapping) in range.mappings.range(start..start + bytes) {
        ensure(*at == next, CUDA_ERROR_INVALID_VALUE)?;
        next = at + mapping.bytes;
    }
    ensure(next == start + bytes, CUDA_ERROR_INVALID_VALUE)?;
    Ok(range.mappings.range(start..start + bytes).map(|(at, _)| *at).collect())
}

/// Puts a file's pages, or fresh ones, at addresses inside of a reservation.
fn put_pages(start: u64, bytes: u64, file: Option<&OwnedFd>) -> Result {
    let (flags, file) = match file {
        Some(file) => (libc::MAP_SHARED, file.as_raw_fd()),
        None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1),
    };
    // SAFETY: the range lies inside of a reservation, which this module has mapped and nobody else
    // uses; the caller has checked that, and holds the lock.
    let mapped = unsafe {
        libc::mmap(
            start as *mut libc::c_void,
            bytes as usize,
            libc::PROT_READ | libc::PROT_WRITE,
            flags | libc::MAP_FIXED,
            file,
            0,
        )
    };
    ensure(mapped != libc::MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY)
}
