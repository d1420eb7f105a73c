//! Memory that can be executed.
//!
//! It is written first and executed afterwards, never both; a page without access lies on each side
//! of it.

use std::io;
use std::ptr::NonNull;

/// Code in memory.
pub(crate) struct Executable {
    /// The first page without access.
    mapping: NonNull<libc::c_void>,
    bytes: usize,
    page: usize,
}

// SAFETY: nobody writes the memory after it was made.
unsafe impl Send for Executable {}
// SAFETY: as above.
unsafe impl Sync for Executable {}

impl Executable {
    pub(crate) fn new(code: &[u8]) -> io::Result<Executable> {
        // SAFETY: the call has no conditions.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let inner = code.len().next_multiple_of(page).max(page);
        let bytes = inner + 2 * page;
        // SAFETY: a new mapping, which nobody else knows.
        let mapping = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if mapping == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let Some(mapping) = NonNull::new(mapping) else { return Err(io::Error::other("a mapping at zero")) };
        let made = Executable { mapping, bytes, page };
        let start = made.start().cast_mut();
        // SAFETY: the inner pages belong to the mapping, which is as long.
        unsafe {
            if libc::mprotect(start.cast(), inner, libc::PROT_READ | libc::PROT_WRITE) != 0 {
                return Err(io::Error::last_os_error());
            }
            std::ptr::copy_nonoverlapping(code.as_ptr(), start, code.len());
            if libc::mprotect(start.cast(), inner, libc::PROT_READ | libc::PROT_EXEC) != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(made)
    }

    /// The first byte of the code.
    pub(crate) fn start(&self) -> *const u8 {
        // SAFETY: the mapping is longer than a page.
        unsafe { self.mapping.as_ptr().cast::<u8>().add(self.page) }
    }
}

impl Drop for Executable {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's, and whoever runs the code holds a reference.
        unsafe { libc::munmap(self.mapping.as_ptr(), self.bytes) };
    }
}
