//! The error log. Callbacks are not called: programs read it.

use crate::entry::{entries, read, text, write};
use crate::error::{Error, ensure};
use crate::log;
use cuda_abi::types::*;
use std::ffi::c_char;

/// Bytes that a program gets at once.
const MOST: usize = 25_600;

entries! {
    /// The end of the log, from where later messages are read.
    fn cuLogsCurrent(iterator_out: *mut CUlogIterator, flags: u32) {
        ensure(flags == 0, CUDA_ERROR_INVALID_VALUE)?;
        write(iterator_out, log::lock().end())
    }

    /// Copies messages from an iterator on, which it advances, and writes their size.
    fn cuLogsDumpToMemory(iterator: *mut CUlogIterator, buffer: *mut c_char, size: *mut usize, flags: u32) {
        ensure(flags == 0 && !buffer.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let room = read(size)?.min(MOST);
        ensure(room > 0, CUDA_ERROR_INVALID_VALUE)?;
        let Some(messages) = messages(iterator, room - 1) else {
            write(size, 0)?;
            return Err(Error(CUDA_ERROR_INVALID_VALUE));
        };
        crate::entry::write_text(buffer, room as i32, &messages)?;
        write(size, messages.len())
    }

    /// Writes messages into a file, which is made anew; advances the iterator.
    fn cuLogsDumpToFile(iterator: *mut CUlogIterator, pathToFile: *const c_char, flags: u32) {
        ensure(flags == 0, CUDA_ERROR_INVALID_VALUE)?;
        let path = text(pathToFile)?.to_str().map_err(|_| Error(CUDA_ERROR_INVALID_VALUE))?;
        let messages = messages(iterator, usize::MAX).unwrap_or_default();
        std::fs::write(path, messages).map_err(|_| Error(CUDA_ERROR_INVALID_VALUE))
    }
}

/// The messages from an iterator on, which is advanced; all that there are if it is null.
///
/// # Safety
///
/// `iterator` is null or valid for reading and writing.
unsafe fn messages(iterator: *mut CUlogIterator, room: usize) -> Option<String> {
    let log = log::lock();
    // SAFETY: as promised by the caller.
    let iterator = unsafe { iterator.as_mut() };
    let text = log.text(iterator.as_deref().copied(), room)?;
    if let Some(iterator) = iterator {
        *iterator = log.end();
    }
    Some(text)
}
