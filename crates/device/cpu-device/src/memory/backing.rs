//! Mapped memory: private pages, or those of a file that other processes map too.
//!
//! The pages stay mapped until the last holder drops the [`Backing`].

use crate::memory::{AllocationError, PAGE, ipc};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Mapped memory that is given back when nobody holds it any more.
#[derive(Debug)]
pub struct Backing {
    start: u64,
    pub(super) mapped: usize,
    /// The file that the pages belong to, once they are shared with other processes.
    file: OnceLock<OwnedFd>,
}

impl Backing {
    /// Maps zeroed pages for `bytes` bytes, and a guard behind them.
    pub fn map(bytes: u64) -> Result<Arc<Backing>, AllocationError> {
        let pages = bytes.checked_next_multiple_of(PAGE).and_then(|pages| pages.checked_add(PAGE));
        let mapped =
            pages.and_then(|pages| usize::try_from(pages).ok()).filter(|&size| isize::try_from(size).is_ok());
        let mapped = mapped.ok_or(AllocationError::OutOfMemory)?;
        // SAFETY: an anonymous mapping at an address of the kernel's choosing touches no existing
        // memory.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(AllocationError::OutOfMemory);
        }
        Ok(Arc::new(Backing { start: start as u64, mapped, file: OnceLock::new() }))
    }

    /// Maps zeroed pages for `bytes` bytes at an address, if nothing is there.
    pub fn map_at(start: u64, bytes: u64) -> Option<Arc<Backing>> {
        let mapped = usize::try_from(bytes.checked_next_multiple_of(PAGE)?).ok()?;
        // SAFETY: the mapping is refused where there is anything already.
        let found = unsafe {
            libc::mmap(
                start as *mut libc::c_void,
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE,
                -1,
                0,
            )
        };
        if found == libc::MAP_FAILED {
            return None;
        }
        let backing = Arc::new(Backing { start: found as u64, mapped, file: OnceLock::new() });
        // A kernel older than 4.17 takes the address for a hint.
        (found as u64 == start).then_some(backing)
    }

    /// Maps the first `bytes` bytes of a file, and a guard behind them.
    pub fn of_file(file: OwnedFd, bytes: u64) -> Result<Arc<Backing>, AllocationError> {
        let backing = Backing::map(bytes)?;
        backing.put(&file, bytes).map_err(|_| AllocationError::OutOfMemory)?;
        let _ = backing.file.set(file);
        Ok(backing)
    }

    /// Makes the first `bytes` bytes those of an anonymous file, which other processes can map.
    /// What is written to them meanwhile may be lost.
    pub fn share(&self, bytes: u64) -> io::Result<&OwnedFd> {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        if self.file.get().is_none() {
            let file = ipc::anonymous_file(bytes.next_multiple_of(PAGE))?;
            self.copy_to(&file, bytes)?;
            self.put(&file, bytes)?;
            let _ = self.file.set(file);
        }
        self.file.get().ok_or_else(|| io::Error::other("the memory has no file"))
    }

    /// Writes the contents to a file of zeros, without those pages that hold nothing else.
    fn copy_to(&self, file: &OwnedFd, bytes: u64) -> io::Result<()> {
        let file = File::from(file.try_clone()?);
        let mut page = vec![0; PAGE as usize];
        for offset in (0..bytes).step_by(PAGE as usize) {
            // SAFETY: a page of the mapping. Kernels may write it: the bytes are copied before they
            // are looked at.
            unsafe { std::ptr::copy((self.start + offset) as *const u8, page.as_mut_ptr(), page.len()) };
            if page.iter().any(|&byte| byte != 0) {
                file.write_all_at(&page, offset)?;
            }
        }
        Ok(())
    }

    /// Puts a file's pages in the place of the first `bytes` bytes.
    fn put(&self, file: &OwnedFd, bytes: u64) -> io::Result<()> {
        // SAFETY: the range is the start of this mapping, which is at least as long; the new pages
        // can be read and written like the old ones.
        let found = unsafe {
            libc::mmap(
                self.start as *mut libc::c_void,
                bytes.next_multiple_of(PAGE) as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_FIXED,
                file.as_raw_fd(),
                0,
            )
        };
        if found == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// The first address.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Gives the pages back to the system and keeps the addresses. The contents, which must be
    /// dead, become zeros.
    pub fn discard_pages(&self) {
        // SAFETY: the range was mapped with this size, and its contents are dead: nothing allocates
        // them.
        unsafe { libc::madvise(self.start as *mut libc::c_void, self.mapped, libc::MADV_DONTNEED) };
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        // SAFETY: the range was mapped with this size, and whoever could know of it held this.
        unsafe { libc::munmap(self.start as *mut libc::c_void, self.mapped) };
    }
}
