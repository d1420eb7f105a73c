//! Arguments of driver functions: pointers to results, structures, arrays and text, and
//! handles.
//!
//! A pointer is null or valid: that is the contract of [`crate::entry`]. Nothing else is taken for
//! granted.

use crate::error::{Result, fail};
use cuda_abi::types::*;
use std::ffi::{CStr, c_char};

/// Stores a result where the program asked for it.
///
/// # Safety
///
/// `place` is null, which is an error, or valid for a write.
pub unsafe fn write<T>(place: *mut T, value: T) -> Result {
    if place.is_null() {
        return fail(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, hence valid for a write. Programs are not held to alignment by the real
    // driver either.
    unsafe { place.write_unaligned(value) };
    Ok(())
}

/// Stores a result where the program may have asked for it.
///
/// # Safety
///
/// `place` is null, which means that the result is not wanted, or valid for a write.
pub unsafe fn write_if_wanted<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: not null, hence valid for a write.
        unsafe { place.write_unaligned(value) };
    }
}

/// Reads a structure that the program passed by pointer.
///
/// # Safety
///
/// `place` is null, which is an error, or valid for a read.
pub unsafe fn read<T: Copy>(place: *const T) -> Result<T> {
    if place.is_null() {
        return fail(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, hence valid for a read.
    Ok(unsafe { place.read_unaligned() })
}

/// Reads an array that the program passed with its length.
///
/// # Safety
///
/// `start` is valid for reads of `count` elements while the result lives, or is null, which is an
/// error unless `count` is 0.
pub unsafe fn array<'a, T>(start: *const T, count: usize) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if start.is_null() || !start.is_aligned() {
        return fail(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: aligned and valid for `count` elements.
    Ok(unsafe { std::slice::from_raw_parts(start, count) })
}

/// Reads a string that the program passed.
///
/// # Safety
///
/// `start` is null, which is an error, or ends in a zero byte and stays as it is while the result
/// lives.
pub unsafe fn text<'a>(start: *const c_char) -> Result<&'a CStr> {
    if start.is_null() {
        return fail(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, hence a string.
    Ok(unsafe { CStr::from_ptr(start) })
}

/// A handle as the pointer that it is to the program.
pub fn opaque<T>(handle: u64) -> *mut T {
    std::ptr::without_provenance_mut(handle as usize)
}

/// Writes `value` into a buffer of `length` bytes, cut to fit and always ended by a zero byte.
///
/// # Safety
///
/// `buffer` is null, which is an error, or valid for writes of `length` bytes.
pub unsafe fn write_text(buffer: *mut c_char, length: i32, value: &str) -> Result {
    let room = usize::try_from(length).unwrap_or(0);
    if buffer.is_null() || room == 0 {
        return fail(CUDA_ERROR_INVALID_VALUE);
    }
    let copied = value.len().min(room - 1);
    // SAFETY: `copied` bytes and the zero byte behind them fit in `length`.
    unsafe {
        buffer.cast::<u8>().copy_from_nonoverlapping(value.as_ptr(), copied);
        buffer.add(copied).write(0);
    }
    Ok(())
}
