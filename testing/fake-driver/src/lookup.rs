//! Attributes of the driver, its device and addresses.

use crate::world::{is_set, world};
use crate::{SLOTS, count};
use cuda_abi::types::*;
use cuda_abi::{index, resolve};
use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::Ordering;

pub const VERSION: i32 = 13000;
pub const DEVICE_NAME: &[u8] = b"Fake GPU\0";

pub unsafe extern "C" fn init(_: u32) -> CUresult {
    count(index::cuInit);
    crate::world::survive_forks();
    CUDA_SUCCESS
}

pub unsafe extern "C" fn driver_version(version: *mut i32) -> CUresult {
    // SAFETY: the caller keeps to the driver's contract.
    unsafe { *version = VERSION };
    CUDA_SUCCESS
}

pub unsafe extern "C" fn get_proc_address(
    symbol: *const c_char,
    pointer: *mut *mut c_void,
    version: i32,
    flags: cuuint64_t,
) -> CUresult {
    // SAFETY: the caller keeps to the driver's contract.
    unsafe { look_up(symbol, pointer, version, flags, std::ptr::null_mut()) }
}

pub unsafe extern "C" fn get_proc_address_v2(
    symbol: *const c_char,
    pointer: *mut *mut c_void,
    version: i32,
    flags: cuuint64_t,
    status: *mut CUdriverProcAddressQueryResult,
) -> CUresult {
    // SAFETY: the caller keeps to the driver's contract.
    unsafe { look_up(symbol, pointer, version, flags, status) }
}

/// # Safety
/// As for `cuGetProcAddress_v2`.
unsafe fn look_up(
    symbol: *const c_char,
    pointer: *mut *mut c_void,
    version: i32,
    flags: cuuint64_t,
    status: *mut CUdriverProcAddressQueryResult,
) -> CUresult {
    // SAFETY: a C string.
    let name = unsafe { CStr::from_ptr(symbol) }.to_str().unwrap_or("");
    let found = if name == "cuFromTheFuture" {
        Some(from_the_future as *mut c_void)
    } else {
        resolve(name, version as u32, flags & 2 != 0).map(address)
    };
    // SAFETY: null, or valid for writing.
    unsafe {
        if !pointer.is_null() {
            *pointer = found.unwrap_or(std::ptr::null_mut());
        }
        if !status.is_null() {
            *status = if found.is_some() {
                CU_GET_PROC_ADDRESS_SUCCESS
            } else {
                CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND
            };
        }
    }
    if found.is_some() { CUDA_SUCCESS } else { CUDA_ERROR_NOT_FOUND }
}

/// The exported address, or the one behind it.
fn address(index: usize) -> *mut c_void {
    if is_set("FAKE_HIDES") {
        return SLOTS[index].load(Ordering::Relaxed).cast();
    }
    let name = std::ffi::CString::new(cuda_abi::ENTRY_POINTS[index].symbol).expect("no zero in a symbol");
    type LookUp = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
    // SAFETY: looks the name up in this library; by glibc's `dlsym`, since the driver's answers do
    // not pass through the hook of a shim.
    unsafe {
        let genuine = libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), c"GLIBC_2.2.5".as_ptr());
        std::mem::transmute::<*mut c_void, LookUp>(genuine)(own_handle(), name.as_ptr())
    }
}

fn own_handle() -> *mut c_void {
    let mut info = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    // SAFETY: an address in this library; the name lives as long as it.
    unsafe {
        libc::dladdr((&raw const SLOTS).cast(), &mut info);
        libc::dlopen(info.dli_fname, libc::RTLD_NOLOAD | libc::RTLD_NOW)
    }
}

unsafe extern "C" fn from_the_future() -> CUresult {
    42
}

pub unsafe extern "C" fn device_count(count: *mut i32) -> CUresult {
    // SAFETY: the caller keeps to the driver's contract.
    unsafe { *count = 1 };
    CUDA_SUCCESS
}

pub unsafe extern "C" fn device_name(name: *mut c_char, length: i32, _: CUdevice) -> CUresult {
    let count = DEVICE_NAME.len().min(length as usize);
    // SAFETY: the caller keeps to the driver's contract.
    unsafe { std::ptr::copy_nonoverlapping(DEVICE_NAME.as_ptr().cast(), name, count) };
    CUDA_SUCCESS
}

pub unsafe extern "C" fn device_uuid(uuid: *mut CUuuid, device: CUdevice) -> CUresult {
    // SAFETY: the caller keeps to the driver's contract.
    unsafe { (*uuid).bytes = [device as c_char + 1; 16] };
    CUDA_SUCCESS
}

pub unsafe extern "C" fn device_memory(bytes: *mut usize, _: CUdevice) -> CUresult {
    // SAFETY: the caller keeps to the driver's contract.
    unsafe { *bytes = 80 << 30 };
    CUDA_SUCCESS
}

pub unsafe extern "C" fn device_attribute(
    value: *mut i32,
    attribute: CUdevice_attribute,
    _: CUdevice,
) -> CUresult {
    // SAFETY: the caller keeps to the driver's contract.
    unsafe { *value = attribute as i32 * 10 };
    CUDA_SUCCESS
}

/// Answers that registered memory and 0x1001 are pinned, that device addresses are the driver's
/// own, from 0x7080_0000_0000 on of device 1, and that everything else is unknown.
pub unsafe extern "C" fn pointer_attributes(
    count: u32,
    attributes: *mut CUpointer_attribute,
    values: *mut *mut c_void,
    pointer: CUdeviceptr,
) -> CUresult {
    crate::count(index::cuPointerGetAttributes);
    let kind = match pointer {
        0x7000_0000_0000..0x7100_0000_0000 => CU_MEMORYTYPE_DEVICE,
        0x1001 => CU_MEMORYTYPE_HOST,
        other if world().registered.contains(&other) => CU_MEMORYTYPE_HOST,
        _ => 0,
    };
    for at in 0..count as usize {
        // SAFETY: the caller keeps to the driver's contract.
        unsafe {
            *(*values.add(at)).cast::<u32>() = match *attributes.add(at) {
                CU_POINTER_ATTRIBUTE_MEMORY_TYPE => kind,
                CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => (pointer >= 0x7080_0000_0000).into(),
                _ => 0,
            };
        }
    }
    CUDA_SUCCESS
}
