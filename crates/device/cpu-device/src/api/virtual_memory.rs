//! Virtual memory management.

use crate::context;
use crate::device;
use crate::entry::{array, entries, read, supported, write};
use crate::error::{Result, ensure};
use crate::memory::virtual_memory::{self, GRANULARITY, Physical};
use cuda_abi::types::*;
use std::ffi::c_void;

entries! {
    /// Returns the number of bytes that sizes and addresses have to be multiples of.
    fn cuMemGetAllocationGranularity(
        bytes: *mut usize,
        properties: *const CUmemAllocationProp,
        _which: CUmemAllocationGranularity_flags,
    ) {
        device::get()?;
        check(&read(properties)?)?;
        write(bytes, GRANULARITY as usize)
    }

    /// Reserves addresses.
    fn cuMemAddressReserve(
        address: *mut CUdeviceptr,
        bytes: usize,
        alignment: usize,
        wanted: CUdeviceptr,
        flags: u64,
    ) {
        device::get()?;
        ensure(!address.is_null() && flags == 0, CUDA_ERROR_INVALID_VALUE)?;
        write(address, virtual_memory::reserve(bytes as u64, alignment as u64, wanted)?)
    }

    /// Gives reserved addresses back.
    fn cuMemAddressFree(address: CUdeviceptr, bytes: usize) {
        device::get()?;
        virtual_memory::unreserve(address, bytes as u64)
    }

    /// Allocates physical memory.
    fn cuMemCreate(
        handle: *mut CUmemGenericAllocationHandle,
        bytes: usize,
        properties: *const CUmemAllocationProp,
        flags: u64,
    ) partly "host locations, and handle types other than file descriptors, are refused" {
        device::get()?;
        ensure(!handle.is_null() && flags == 0, CUDA_ERROR_INVALID_VALUE)?;
        let properties = read(properties)?;
        check(&properties)?;
        write(handle, Physical::create(bytes as u64, properties)?.handle)
    }

    /// Ends a handle; the memory lives as long as it is mapped.
    fn cuMemRelease(handle: CUmemGenericAllocationHandle) {
        device::get()?;
        Physical::release(handle)
    }

    /// Maps physical memory at reserved addresses.
    fn cuMemMap(
        address: CUdeviceptr,
        bytes: usize,
        offset: usize,
        handle: CUmemGenericAllocationHandle,
        flags: u64,
    ) {
        // CUDA itself demands zeros.
        ensure(offset == 0 && flags == 0, CUDA_ERROR_INVALID_VALUE)?;
        virtual_memory::map(address, bytes as u64, Physical::resolve(handle)?)
    }

    /// Takes mappings away.
    fn cuMemUnmap(address: CUdeviceptr, bytes: usize) {
        virtual_memory::unmap(address, bytes as u64)
    }

    /// Says what devices may do with what is mapped.
    fn cuMemSetAccess(address: CUdeviceptr, bytes: usize, access: *const CUmemAccessDesc, count: usize) {
        device::get()?;
        let context = context::current_handle().unwrap_or(0);
        for description in array(access, count)? {
            supported(description.location.r#type == CU_MEM_LOCATION_TYPE_DEVICE, HOST_LOCATION)?;
            virtual_memory::set_access(address, bytes as u64, description.flags, context)?;
        }
        Ok(())
    }

    /// Returns the access that a device has to an address.
    fn cuMemGetAccess(flags: *mut u64, _location: *const CUmemLocation, address: CUdeviceptr) {
        device::get()?;
        write(flags, virtual_memory::access(address)?.into())
    }

    /// The handle of what is mapped at an address; it has to be released once more.
    fn cuMemRetainAllocationHandle(handle: *mut CUmemGenericAllocationHandle, address: *mut c_void) {
        device::get()?;
        write(handle, virtual_memory::physical(address as u64)?.handle)
    }

    /// Returns the properties that physical memory was created with.
    fn cuMemGetAllocationPropertiesFromHandle(
        properties: *mut CUmemAllocationProp,
        handle: CUmemGenericAllocationHandle,
    ) {
        write(properties, Physical::resolve(handle)?.properties)
    }

    /// A file descriptor that stands for physical memory.
    fn cuMemExportToShareableHandle(
        shareable: *mut c_void,
        handle: CUmemGenericAllocationHandle,
        kind: CUmemAllocationHandleType,
        flags: u64,
    ) partly "only file descriptors" {
        ensure(!shareable.is_null() && flags == 0, CUDA_ERROR_INVALID_VALUE)?;
        supported(kind == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, SHAREABLE)?;
        write(shareable.cast::<i32>(), Physical::resolve(handle)?.export()?)
    }

    /// The physical memory that a file descriptor stands for.
    fn cuMemImportFromShareableHandle(
        handle: *mut CUmemGenericAllocationHandle,
        shareable: *mut c_void,
        kind: CUmemAllocationHandleType,
    ) partly "only file descriptors" {
        device::get()?;
        ensure(!handle.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        supported(kind == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, SHAREABLE)?;
        // The descriptor is passed in place of a pointer.
        write(handle, Physical::import(shareable as usize as i32)?.handle)
    }
}

/// The unsupported features of physical memory.
const HOST_LOCATION: &str =
    "physical memory at a location of the host; ask for CU_MEM_LOCATION_TYPE_DEVICE, or use cuMemAllocHost";
const SHAREABLE: &str = "handles for sharing memory other than file descriptors, such as fabric handles; ask for \
                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR";

fn check(properties: &CUmemAllocationProp) -> Result {
    ensure(properties.r#type == CU_MEM_ALLOCATION_TYPE_PINNED, CUDA_ERROR_INVALID_VALUE)?;
    let handles = properties.requestedHandleTypes & !CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    supported(handles == 0, SHAREABLE)?;
    supported(properties.location.r#type == CU_MEM_LOCATION_TYPE_DEVICE, HOST_LOCATION)
}
