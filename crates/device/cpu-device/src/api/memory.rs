//! Memory management and unified addressing: allocation, host memory, managed memory, and
//! attributes of pointers.

use crate::context::{self, Context};
use crate::device::{self, PITCH_ALIGNMENT};
use crate::entry::{array, entries, opaque, refuse, supported, write, write_if_wanted};
use crate::error::{Error, Result, ensure, fail};
use crate::memory::pool;
use crate::memory::{Allocation, Kind, Location, Request};
use crate::stream::Stream;
use crate::stream::operation::Operation;
use cuda_abi::types::*;
use std::ffi::c_void;
use std::sync::{Arc, PoisonError};

entries! {
    /// The device's free and total memory.
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) {
        context::current()?;
        let (available, all) = device::get()?.memory.free_and_total();
        write(free, available as usize)?;
        write(total, all as usize)
    }

    /// Allocates device memory.
    fn cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize) {
        ensure(!address.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        write(address, allocate(bytes as u64, Kind::Device, 0)?.start)
    }

    /// Allocates rows whose starts are well aligned.
    fn cuMemAllocPitch_v2(
        address: *mut CUdeviceptr,
        pitch: *mut usize,
        width: usize,
        height: usize,
        element: u32,
    ) {
        ensure(!address.is_null() && !pitch.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        ensure(matches!(element, 4 | 8 | 16) && width > 0 && height > 0, CUDA_ERROR_INVALID_VALUE)?;
        let row = (width as u64).checked_next_multiple_of(PITCH_ALIGNMENT).ok_or(Error(CUDA_ERROR_OUT_OF_MEMORY))?;
        let bytes = row.checked_mul(height as u64).ok_or(Error(CUDA_ERROR_OUT_OF_MEMORY))?;
        write(address, allocate(bytes, Kind::Device, 0)?.start)?;
        write(pitch, row as usize)
    }

    /// Allocates memory that host and device use.
    fn cuMemAllocManaged(address: *mut CUdeviceptr, bytes: usize, flags: u32) {
        ensure(!address.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        ensure(matches!(flags, CU_MEM_ATTACH_GLOBAL | CU_MEM_ATTACH_HOST), CUDA_ERROR_INVALID_VALUE)?;
        write(address, allocate(bytes as u64, Kind::Managed, flags)?.start)
    }

    /// Frees device memory, after all work that was submitted before.
    fn cuMemFree_v2(address: CUdeviceptr) {
        if address == 0 {
            return Ok(());
        }
        let context = current_or_owner(address)?;
        ensure(find(address)?.start == address, CUDA_ERROR_INVALID_VALUE)?;
        context.forbid_while_capturing()?;
        context.order.wait();
        context.check()?;
        ensure(pool::free_now(address)?, CUDA_ERROR_INVALID_VALUE)
    }

    /// The start and size of the allocation that an address lies in.
    fn cuMemGetAddressRange_v2(start: *mut CUdeviceptr, bytes: *mut usize, address: CUdeviceptr) {
        context::current()?;
        let found = device::get()?.memory.find(address).ok_or(Error(CUDA_ERROR_NOT_FOUND))?;
        write_if_wanted(start, found.start);
        write_if_wanted(bytes, found.bytes as usize);
        Ok(())
    }

    /// Allocates page-locked host memory.
    fn cuMemAllocHost_v2(address: *mut *mut c_void, bytes: usize) {
        ensure(!address.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        write(address, opaque(allocate(bytes as u64, Kind::Pinned, CU_MEMHOSTALLOC_DEVICEMAP)?.start))
    }

    /// Allocates page-locked host memory.
    fn cuMemHostAlloc(address: *mut *mut c_void, bytes: usize, flags: u32) {
        ensure(!address.is_null() && flags & !7 == 0, CUDA_ERROR_INVALID_VALUE)?;
        // With unified addressing, all of it is mapped.
        let flags = flags | CU_MEMHOSTALLOC_DEVICEMAP;
        write(address, opaque(allocate(bytes as u64, Kind::Pinned, flags)?.start))
    }

    /// Frees page-locked host memory.
    fn cuMemFreeHost(address: *mut c_void) {
        if address.is_null() {
            return Ok(());
        }
        let context = current_or_owner(address as u64)?;
        ensure(find(address as u64)?.start == address as u64, CUDA_ERROR_INVALID_VALUE)?;
        context.forbid_while_capturing()?;
        context.order.wait();
        let released = device::get()?.memory.release(address as u64, |kind| kind == Kind::Pinned);
        released.map(drop).ok_or(Error(CUDA_ERROR_INVALID_VALUE))
    }

    /// Page-locks memory of the program's.
    fn cuMemHostRegister_v2(address: *mut c_void, bytes: usize, flags: u32) {
        ensure(flags & !15 == 0, CUDA_ERROR_INVALID_VALUE)?;
        supported(
            flags & CU_MEMHOSTREGISTER_IOMEMORY == 0,
            "registering memory of other devices (CU_MEMHOSTREGISTER_IOMEMORY); copy it through host memory",
        )?;
        let flags = flags | CU_MEMHOSTREGISTER_DEVICEMAP;
        let context = context::current()?.handle;
        ensure(is_mapped(address as u64, bytes as u64), CUDA_ERROR_INVALID_VALUE)?;
        let request = Request { bytes: bytes as u64, kind: Kind::Registered, flags, context };
        let writable = flags & CU_MEMHOSTREGISTER_READ_ONLY == 0;
        device::get()?.memory.register(address as u64, request, writable, None)?;
        Ok(())
    }

    /// Ends page-locking.
    fn cuMemHostUnregister(address: *mut c_void) {
        current_or_owner(address as u64)?.order.wait();
        let released = device::get()?.memory.release(address as u64, |kind| kind == Kind::Registered);
        released.map(drop).ok_or(Error(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED))
    }

    /// The device's address of page-locked host memory: the same.
    fn cuMemHostGetDevicePointer_v2(address: *mut CUdeviceptr, host: *mut c_void, flags: u32) {
        ensure(flags == 0, CUDA_ERROR_INVALID_VALUE)?;
        context::current()?;
        ensure(find(host as u64)?.kind.is_host(), CUDA_ERROR_INVALID_VALUE)?;
        write(address, host as u64)
    }

    /// The flags that page-locked host memory was allocated with.
    fn cuMemHostGetFlags(flags: *mut u32, host: *mut c_void) {
        context::current()?;
        let found = find(host as u64)?;
        ensure(found.kind == Kind::Pinned, CUDA_ERROR_INVALID_VALUE)?;
        write(flags, found.flags)
    }

    /// Says how managed memory will be used: it is where every processor finds it.
    fn cuMemAdvise(address: CUdeviceptr, bytes: usize, advice: CUmem_advise, device: CUdevice)
        partly "advice for a part of an allocation applies to the whole"
    {
        advise(address, bytes, advice, || location_of_device(device))
    }

    /// Says how managed memory will be used: it is where every processor finds it.
    fn cuMemAdvise_v2(address: CUdeviceptr, bytes: usize, advice: CUmem_advise, location: CUmemLocation)
        partly "advice for a part of an allocation applies to the whole"
    {
        advise(address, bytes, advice, || location_of(&location))
    }

    /// Moves managed memory: it is where every processor finds it.
    fn cuMemPrefetchAsync(
        address: CUdeviceptr,
        bytes: usize,
        device: CUdevice,
        stream: CUstream,
    ) also cuMemPrefetchAsync_ptsz [default] {
        prefetch(address, bytes, location_of_device(device)?, &*Stream::resolve(stream, default)?)
    }

    /// Moves managed memory: it is where every processor finds it.
    fn cuMemPrefetchAsync_v2(
        address: CUdeviceptr,
        bytes: usize,
        location: CUmemLocation,
        flags: u32,
        stream: CUstream,
    ) also cuMemPrefetchAsync_v2_ptsz [default] {
        ensure(flags == 0, CUDA_ERROR_INVALID_VALUE)?;
        prefetch(address, bytes, location_of(&location)?, &*Stream::resolve(stream, default)?)
    }

    /// Returns an attribute of a range of managed memory.
    fn cuMemRangeGetAttribute(
        value: *mut c_void,
        bytes: usize,
        attribute: CUmem_range_attribute,
        address: CUdeviceptr,
        count: usize,
    ) {
        write_range_attribute(value, bytes, attribute, address, count)
    }

    /// Returns several attributes of a range of managed memory.
    fn cuMemRangeGetAttributes(
        values: *mut *mut c_void,
        sizes: *mut usize,
        attributes: *mut CUmem_range_attribute,
        attribute_count: usize,
        address: CUdeviceptr,
        count: usize,
    ) {
        ensure(attribute_count > 0, CUDA_ERROR_INVALID_VALUE)?;
        let (values, sizes) = (array(values, attribute_count)?, array(sizes, attribute_count)?);
        for ((value, bytes), attribute) in values.iter().zip(sizes).zip(array(attributes, attribute_count)?) {
            write_range_attribute(*value, *bytes, *attribute, address, count)?;
        }
        Ok(())
    }

    /// Returns an attribute of an address.
    fn cuPointerGetAttribute(value: *mut c_void, attribute: CUpointer_attribute, address: CUdeviceptr) {
        ensure(!value.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let found = find(address)?;
        write_attribute(value, attribute, &found, address)
    }

    /// Returns several attributes of an address, or zeros if the address is unknown.
    fn cuPointerGetAttributes(
        count: u32,
        attributes: *mut CUpointer_attribute,
        values: *mut *mut c_void,
        address: CUdeviceptr,
    ) {
        let found = device::get()?.memory.find(address);
        let attributes = array(attributes, count as usize)?;
        for (attribute, value) in attributes.iter().zip(array(values, count as usize)?) {
            ensure(!value.is_null(), CUDA_ERROR_INVALID_VALUE)?;
            match &found {
                // Where asking for this attribute alone is an error, there is none.
                Some(found) if *attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER && !found.is_on_host() => {
                    write_unknown(*value, *attribute)?
                }
                Some(found) => write_attribute(*value, *attribute, found, address)?,
                None => write_unknown(*value, *attribute)?,
            }
        }
        Ok(())
    }

    /// Sets what is known of an address: copies always synchronise as is asked for here.
    fn cuPointerSetAttribute(value: *const c_void, attribute: CUpointer_attribute, address: CUdeviceptr)
        partly "the attribute has no effect"
    {
        ensure(!value.is_null() && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, CUDA_ERROR_INVALID_VALUE)?;
        find(address).map(drop)
    }
}

fn allocate(bytes: u64, kind: Kind, flags: u32) -> Result<Arc<Allocation>> {
    let context = context::current()?;
    context.forbid_while_capturing()?;
    let request = Request { bytes, kind, flags, context: context.handle };
    Ok(device::get()?.memory.allocate(request)?)
}

/// The current context; in a thread without one, that of the allocation at `address`: calls that end
/// an allocation need none.
fn current_or_owner(address: u64) -> Result<Arc<Context>> {
    match context::current() {
        Err(Error(CUDA_ERROR_INVALID_CONTEXT)) => Context::resolve(opaque(find(address)?.context)),
        current => current,
    }
}

/// The allocation that holds an address.
fn find(address: u64) -> Result<Arc<Allocation>> {
    device::get()?.memory.find(address).ok_or(Error(CUDA_ERROR_INVALID_VALUE))
}

/// Whether the process has memory at every address of a range.
fn is_mapped(start: u64, bytes: u64) -> bool {
    const PAGE: u64 = 4096;
    let first = start / PAGE * PAGE;
    let Some(length) = start.checked_add(bytes).map(|end| end - first) else { return false };
    // SAFETY: without the flag that waits for files, this only looks whether the pages are there.
    unsafe { libc::msync(first as *mut c_void, length as usize, libc::MS_ASYNC) == 0 }
}

/// The managed allocation that holds a range.
fn managed(address: u64, bytes: usize) -> Result<Arc<Allocation>> {
    context::current()?;
    let found = find(address)?;
    ensure(
        found.kind == Kind::Managed && bytes > 0 && found.holds(address, bytes as u64),
        CUDA_ERROR_INVALID_VALUE,
    )?;
    Ok(found)
}

fn location_of_device(device: CUdevice) -> Result<Location> {
    if device == CU_DEVICE_CPU {
        return Ok(Location::Host);
    }
    device::at(device).map(|_| Location::Device)
}

fn location_of(location: &CUmemLocation) -> Result<Location> {
    match location.r#type {
        // SAFETY: the member is an integer, whatever was written.
        CU_MEM_LOCATION_TYPE_DEVICE => location_of_device(unsafe { location.anonymous.id }),
        CU_MEM_LOCATION_TYPE_HOST
        | CU_MEM_LOCATION_TYPE_HOST_NUMA
        | CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT => Ok(Location::Host),
        _ => fail(CUDA_ERROR_INVALID_VALUE),
    }
}

/// Keeps a piece of advice; `place` is the location that goes with it, if it needs one.
fn advise(address: u64, bytes: usize, advice: CUmem_advise, place: impl Fn() -> Result<Location>) -> Result {
    let found = managed(address, bytes)?;
    let mut kept = found.advice.lock().unwrap_or_else(PoisonError::into_inner);
    match advice {
        CU_MEM_ADVISE_SET_READ_MOSTLY => kept.read_mostly = true,
        CU_MEM_ADVISE_UNSET_READ_MOSTLY => kept.read_mostly = false,
        CU_MEM_ADVISE_SET_PREFERRED_LOCATION => kept.preferred = Some(place()?),
        CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION => kept.preferred = None,
        CU_MEM_ADVISE_SET_ACCESSED_BY => kept.accessed_by[place()? as usize] = true,
        CU_MEM_ADVISE_UNSET_ACCESSED_BY => kept.accessed_by[place()? as usize] = false,
        _ => return fail(CUDA_ERROR_INVALID_VALUE),
    }
    Ok(())
}

fn prefetch(address: u64, bytes: usize, place: Location, stream: &Stream) -> Result {
    let found = managed(address, bytes)?;
    stream.enqueue(Operation::Empty)?;
    found.advice.lock().unwrap_or_else(PoisonError::into_inner).prefetched = Some(place);
    Ok(())
}

/// # Safety
///
/// `value` is null or valid for a write of `bytes` bytes.
unsafe fn write_range_attribute(
    value: *mut c_void,
    bytes: usize,
    attribute: CUmem_range_attribute,
    address: u64,
    count: usize,
) -> Result {
    ensure(!value.is_null() && bytes > 0 && bytes.is_multiple_of(4), CUDA_ERROR_INVALID_VALUE)?;
    let found = managed(address, count)?;
    let advice = *found.advice.lock().unwrap_or_else(PoisonError::into_inner);
    let device = |place: Location| if place == Location::Host { CU_DEVICE_CPU } else { device::ORDINAL };
    let kind = |place: Option<Location>| match place {
        None => CU_MEM_LOCATION_TYPE_INVALID,
        Some(Location::Host) => CU_MEM_LOCATION_TYPE_HOST,
        Some(Location::Device) => CU_MEM_LOCATION_TYPE_DEVICE,
    } as i32;
    let out = match attribute {
        CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY => advice.read_mostly.into(),
        CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION => advice.preferred.map_or(CU_DEVICE_INVALID, device),
        CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION => advice.prefetched.map_or(CU_DEVICE_INVALID, device),
        CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE => kind(advice.preferred),
        CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE => kind(advice.prefetched),
        CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID | CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID => {
            device::ORDINAL
        }
        CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY => {
            // As many devices as there is room for, and then none.
            let [host, by_device] = advice.accessed_by;
            let devices = [(host, CU_DEVICE_CPU), (by_device, device::ORDINAL)];
            let mut devices = devices.iter().filter(|(wanted, _)| *wanted).map(|(_, device)| *device);
            for index in 0..bytes / 4 {
                // SAFETY: as promised by the caller.
                unsafe {
                    write(value.cast::<i32>().add(index), devices.next().unwrap_or(CU_DEVICE_INVALID))?
                };
            }
            return Ok(());
        }
        _ => return fail(CUDA_ERROR_INVALID_VALUE),
    };
    ensure(bytes == 4, CUDA_ERROR_INVALID_VALUE)?;
    // SAFETY: as promised by the caller.
    unsafe { write(value.cast::<i32>(), out) }
}

/// # Safety
///
/// `place` is valid for a write of the attribute's type.
unsafe fn write_attribute(
    place: *mut c_void,
    attribute: CUpointer_attribute,
    found: &Allocation,
    address: u64,
) -> Result {
    let is_host = found.kind.is_host();
    // SAFETY: the types are those that the driver's reference gives the attributes.
    unsafe {
        match attribute {
            CU_POINTER_ATTRIBUTE_CONTEXT => write(place.cast::<CUcontext>(), opaque(found.context)),
            CU_POINTER_ATTRIBUTE_MEMORY_TYPE => {
                write(place.cast::<u32>(), if is_host { CU_MEMORYTYPE_HOST } else { CU_MEMORYTYPE_DEVICE })
            }
            CU_POINTER_ATTRIBUTE_DEVICE_POINTER => write(place.cast::<u64>(), address),
            CU_POINTER_ATTRIBUTE_HOST_POINTER => {
                ensure(found.is_on_host(), CUDA_ERROR_INVALID_VALUE)?;
                write(place.cast::<u64>(), address)
            }
            CU_POINTER_ATTRIBUTE_BUFFER_ID | CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID => {
                write(place.cast::<u64>(), found.id)
            }
            CU_POINTER_ATTRIBUTE_IS_MANAGED => {
                write(place.cast::<u32>(), (found.kind == Kind::Managed).into())
            }
            CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => write(place.cast::<i32>(), device::ORDINAL),
            CU_POINTER_ATTRIBUTE_RANGE_START_ADDR | CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR => {
                write(place.cast::<u64>(), found.start)
            }
            CU_POINTER_ATTRIBUTE_RANGE_SIZE | CU_POINTER_ATTRIBUTE_MAPPING_SIZE => {
                write(place.cast::<usize>(), found.bytes as usize)
            }
            CU_POINTER_ATTRIBUTE_MAPPED => write(place.cast::<u32>(), 1),
            CU_POINTER_ATTRIBUTE_ACCESS_FLAGS => {
                let flags = if found.writable {
                    CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE
                } else {
                    CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READ
                };
                write(place.cast::<u32>(), flags)
            }
            CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE => match found.kind {
                Kind::Pooled(pool) => write(place.cast::<CUmemoryPool>(), opaque(pool)),
                _ => write(place.cast::<CUmemoryPool>(), std::ptr::null_mut()),
            },
            CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
            | CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE
            | CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE
            | CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE => write(place.cast::<u32>(), 0),
            CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES => write(place.cast::<u64>(), 0),
            CU_POINTER_ATTRIBUTE_P2P_TOKENS => {
                refuse("peer-to-peer tokens of memory; no other device reads this one's memory")
            }
            _ => fail(CUDA_ERROR_INVALID_VALUE),
        }
    }
}

/// Writes the value that `cuPointerGetAttributes` gives for an unknown address.
///
/// # Safety
///
/// `place` is valid for a write of the attribute's type.
unsafe fn write_unknown(place: *mut c_void, attribute: CUpointer_attribute) -> Result {
    // SAFETY: the types are those that the driver's reference gives the attributes.
    unsafe {
        match attribute {
            CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => write(place.cast::<i32>(), -2),
            CU_POINTER_ATTRIBUTE_MEMORY_TYPE
            | CU_POINTER_ATTRIBUTE_IS_MANAGED
            | CU_POINTER_ATTRIBUTE_MAPPED
            | CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
            | CU_POINTER_ATTRIBUTE_ACCESS_FLAGS
            | CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE
            | CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE
            | CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE => write(place.cast::<u32>(), 0),
            CU_POINTER_ATTRIBUTE_CONTEXT..=CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID => {
                write(place.cast::<u64>(), 0)
            }
            _ => fail(CUDA_ERROR_INVALID_VALUE),
        }
    }
}
