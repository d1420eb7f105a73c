//! A linker that makes "machine code" of texts: an ELF file whose only segment they are.

use crate::world::{Linker, world};
use crate::{count, result};
use cuda_abi::index;
use cuda_abi::types::*;
use std::ffi::{c_char, c_void};

/// Bytes of a header of a file and of a segment.
const HEADERS_BYTES: usize = 64 + 56;

pub unsafe extern "C" fn create(
    _: u32,
    _: *mut CUjit_option,
    _: *mut *mut c_void,
    linker: *mut CUlinkState,
) -> CUresult {
    count(index::cuLinkCreate_v2);
    // SAFETY: the caller keeps to the driver's contract.
    unsafe { *linker = world().linkers.add(Linker::default()) as CUlinkState };
    CUDA_SUCCESS
}

pub unsafe extern "C" fn add(
    linker: CUlinkState,
    _: CUjitInputType,
    data: *mut c_void,
    bytes: usize,
    _: *const c_char,
    _: u32,
    _: *mut CUjit_option,
    _: *mut *mut c_void,
) -> CUresult {
    let mut world = world();
    let Some(linker) = world.linkers.get(linker as u64) else { return CUDA_ERROR_INVALID_HANDLE };
    // SAFETY: the caller keeps to the driver's contract.
    linker.inputs.extend_from_slice(unsafe { std::slice::from_raw_parts(data.cast(), bytes) });
    CUDA_SUCCESS
}

pub unsafe extern "C" fn complete(
    linker: CUlinkState,
    image: *mut *mut c_void,
    bytes: *mut usize,
) -> CUresult {
    let mut world = world();
    let Some(linker) = world.linkers.get(linker as u64) else { return CUDA_ERROR_INVALID_HANDLE };
    let mut file = vec![0; HEADERS_BYTES];
    file[..5].copy_from_slice(b"\x7fELF\x02");
    // Where the one header of a segment is, its bytes, how many there are.
    file[32] = 64;
    file[54] = 56;
    file[56] = 1;
    // Where the segment is, and its bytes.
    file[64 + 8] = HEADERS_BYTES as u8;
    file[64 + 32..64 + 40].copy_from_slice(&(linker.inputs.len() as u64).to_le_bytes());
    file.extend_from_slice(&linker.inputs);
    linker.image = file;
    // SAFETY: the caller keeps to the driver's contract.
    unsafe {
        *image = linker.image.as_mut_ptr().cast();
        *bytes = linker.image.len();
    }
    CUDA_SUCCESS
}

pub unsafe extern "C" fn destroy(linker: CUlinkState) -> CUresult {
    result(world().linkers.remove(linker as u64).map(drop), CUDA_ERROR_INVALID_HANDLE)
}
