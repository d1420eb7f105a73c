//! The stream-ordered memory allocator.

use crate::device;
use crate::entry::{entries, opaque, read, refuse, supported, write};
use crate::error::{Result, ensure};
use crate::memory::graph_memory::{self, GraphMemory};
use crate::memory::pool::{self, Pool};
use crate::stream::Stream;
use crate::stream::operation::Operation;
use cuda_abi::types::*;
use std::ffi::c_void;

entries! {
    /// Allocates from the device's current pool.
    fn cuMemAllocAsync(address: *mut CUdeviceptr, bytes: usize, stream: CUstream) also cuMemAllocAsync_ptsz [default]
    {
        allocate(address, bytes, &pool::current_pool(), &*Stream::resolve(stream, default)?)
    }

    /// Allocates from a pool.
    fn cuMemAllocFromPoolAsync(
        address: *mut CUdeviceptr,
        bytes: usize,
        pool: CUmemoryPool,
        stream: CUstream,
    ) also cuMemAllocFromPoolAsync_ptsz [default] {
        allocate(address, bytes, &*Pool::resolve(pool)?, &*Stream::resolve(stream, default)?)
    }

    /// Frees memory when the stream comes to it.
    fn cuMemFreeAsync(address: CUdeviceptr, stream: CUstream) also cuMemFreeAsync_ptsz [default]
    {
        let stream = Stream::resolve(stream, default)?;
        if address == 0 {
            return Ok(());
        }
        if stream.capture().is_some() { pool::check_freeable(address)? } else { pool::plan_free(address)? }
        stream.enqueue(Operation::Free(address))
    }

    /// The device's default pool.
    fn cuDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, device: CUdevice) {
        device::at(device)?;
        write(pool, opaque(pool::default_pool().handle))
    }

    /// The pool that the device allocates from.
    fn cuDeviceGetMemPool(pool: *mut CUmemoryPool, device: CUdevice) {
        device::at(device)?;
        write(pool, opaque(pool::current_pool().handle))
    }

    /// Has the device allocate from another pool.
    fn cuDeviceSetMemPool(device: CUdevice, pool: CUmemoryPool) {
        device::at(device)?;
        pool::set_current_pool(Pool::resolve(pool)?);
        Ok(())
    }

    /// Creates a pool.
    fn cuMemPoolCreate(pool: *mut CUmemoryPool, properties: *const CUmemPoolProps)
        partly "pools that others can import, and pools on the host, are refused"
    {
        device::get()?;
        ensure(!pool.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let properties = read(properties)?;
        ensure(properties.allocType == CU_MEM_ALLOCATION_TYPE_PINNED, CUDA_ERROR_INVALID_VALUE)?;
        if properties.handleTypes != CU_MEM_HANDLE_TYPE_NONE {
            return refuse("memory pools that other processes import; share allocations by cudaIpcGetMemHandle");
        }
        supported(
            properties.location.r#type == CU_MEM_LOCATION_TYPE_DEVICE,
            "memory pools on the host; allocate from a pool of the device, or by cuMemAllocHost",
        )?;
        write(pool, opaque(Pool::create().handle))
    }

    /// Ends a pool; what was allocated from it lives on.
    fn cuMemPoolDestroy(pool: CUmemoryPool) {
        Pool::destroy(pool)
    }

    /// Gives memory back to the system: nothing is kept back.
    fn cuMemPoolTrimTo(pool: CUmemoryPool, _keep: usize) {
        Pool::resolve(pool).map(drop)
    }

    /// An attribute of a pool.
    fn cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: CUmemPool_attribute, value: *mut c_void) {
        let found = Pool::resolve(pool)?.attribute(attribute)?;
        match pool::is_wide(attribute) {
            true => write(value.cast::<u64>(), found),
            false => write(value.cast::<i32>(), found as i32),
        }
    }

    /// Sets an attribute of a pool.
    fn cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: CUmemPool_attribute, value: *mut c_void)
        partly "the reuse policy has no effect"
    {
        let pool = Pool::resolve(pool)?;
        let wide = pool::is_wide(attribute);
        let wanted = if wide { read(value.cast::<u64>())? } else { u64::from(read(value.cast::<i32>())? != 0) };
        pool.set_attribute(attribute, wanted)
    }

    /// Says which devices may use a pool's memory: there is one, and it may.
    fn cuMemPoolSetAccess(pool: CUmemoryPool, access: *const CUmemAccessDesc, count: usize) {
        Pool::resolve(pool)?;
        for description in crate::entry::array(access, count)? {
            let reading_and_writing = description.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
            ensure(reading_and_writing, CUDA_ERROR_INVALID_DEVICE)?;
        }
        Ok(())
    }

    /// Returns that a device may read and write a pool's memory.
    fn cuMemPoolGetAccess(flags: *mut CUmemAccess_flags, pool: CUmemoryPool, _location: *mut CUmemLocation) {
        Pool::resolve(pool)?;
        write(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
    }

    /// Gives the pages of graphs' memory that is not allocated back to the system.
    fn cuDeviceGraphMemTrim(device: CUdevice) {
        device::at(device)?;
        graph_memory::trim();
        Ok(())
    }

    /// An attribute of graphs' memory.
    fn cuDeviceGetGraphMemAttribute(device: CUdevice, attribute: CUgraphMem_attribute, value: *mut c_void) {
        device::at(device)?;
        write(value.cast::<u64>(), graph_memory::attribute(attribute)?)
    }

    /// Sets a high-water mark of graphs' memory.
    fn cuDeviceSetGraphMemAttribute(device: CUdevice, attribute: CUgraphMem_attribute, value: *mut c_void) {
        device::at(device)?;
        graph_memory::reset_attribute(attribute, read(value.cast::<u64>())?)
    }
}

/// # Safety
///
/// `address` is null or valid for a write.
unsafe fn allocate(address: *mut CUdeviceptr, bytes: usize, pool: &Pool, stream: &Stream) -> Result {
    ensure(!address.is_null(), CUDA_ERROR_INVALID_VALUE)?;
    let context = stream.context()?;
    if bytes == 0 {
        // As the driver answers, also in a capture, which gets no node.
        // SAFETY: as promised by the caller.
        return unsafe { write(address, 0) };
    }
    let start = match stream.capture() {
        None => pool.allocate(bytes as u64, context.handle)?.start,
        Some(capture) => {
            let memory = GraphMemory::new(bytes as u64, context.handle)?;
            let start = memory.address();
            capture.add(stream, Operation::Allocate(memory))?;
            start
        }
    };
    // SAFETY: as promised by the caller.
    unsafe { write(address, start) }
}
