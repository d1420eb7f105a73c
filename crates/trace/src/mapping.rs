//! Mapped memory, and the disk space below it.
//!
//! Space is reserved before it is mapped, so that running out of it is an error code here and not a SIGBUS in the
//! middle of somebody's launch.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU8, Ordering};

/// x86-64 has no other page size.
pub(crate) const PAGE_BYTES: usize = 4096;

/// Readable and writable memory from `mmap`; unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping is plain memory, tied to no thread; those who share it use atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// `bytes` of `file` from `offset`, a multiple of the page size. The file must reach that far.
    pub fn shared(file: BorrowedFd<'_>, offset: u64, bytes: usize) -> io::Result<Mapping> {
        Mapping::map(bytes, libc::MAP_SHARED, file.as_raw_fd(), offset as libc::off_t)
    }

    /// Zeroed memory of this process.
    pub fn anonymous(bytes: usize) -> io::Result<Mapping> {
        Mapping::map(bytes, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    }

    fn map(bytes: usize, flags: i32, fd: i32, offset: libc::off_t) -> io::Result<Mapping> {
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use.
        let base = unsafe {
            libc::mmap(ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, fd, offset)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::Error::from_raw_os_error(libc::ENOMEM))?;
        Ok(Mapping { base, bytes })
    }

    /// First byte; page-aligned.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// `madvise` on all of it.
    pub fn advise(&self, advice: i32) -> io::Result<()> {
        // SAFETY: the range is this mapping. The advice that this crate gives (wipe on fork, populate) changes
        // nothing in this process.
        let result = unsafe { libc::madvise(self.base.as_ptr().cast(), self.bytes, advice) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Makes every page present and writable, so that no write faults later. (`MAP_POPULATE` prepares shared
    /// mappings for reading only.) An error is what would have been a SIGBUS.
    pub fn populate(&self) -> io::Result<()> {
        match retry(|| self.advise(libc::MADV_POPULATE_WRITE)) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                self.touch(); // before Linux 5.14
                Ok(())
            }
            Err(error) if error.raw_os_error() == Some(libc::EFAULT) => {
                Err(io::Error::from_raw_os_error(libc::EIO))
            }
            result => result,
        }
    }

    fn touch(&self) {
        for offset in (0..self.bytes).step_by(PAGE_BYTES) {
            // SAFETY: inside the mapping; an atomic operation that changes nothing disturbs no other user.
            let byte = unsafe { self.base.add(offset).cast::<AtomicU8>().as_ref() };
            byte.fetch_or(0, Ordering::Relaxed);
        }
    }

    /// Keeps it mapped for good.
    pub fn leak(self) -> NonNull<u8> {
        let base = self.base;
        std::mem::forget(self);
        base
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is this mapping, and its owner drops it, so nothing refers to it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Reserves disk space for `bytes` of `file` from `offset`; the file then reaches that far. Existing content stays
/// where the file system can reserve; where it can't, the range is filled with zeros.
pub(crate) fn reserve(file: BorrowedFd<'_>, offset: u64, bytes: usize) -> io::Result<()> {
    // Past RLIMIT_FSIZE the kernel would not only refuse but send SIGXFSZ, which ends the program.
    if offset + bytes as u64 > file_size_limit() {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    let allocate = || {
        // SAFETY: no memory is involved.
        let result =
            unsafe { libc::fallocate(file.as_raw_fd(), 0, offset as libc::off_t, bytes as libc::off_t) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    match retry(allocate) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS)) => {
            write_zeros(file, offset, bytes)
        }
        result => result,
    }
}

fn file_size_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for writing.
    match unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) } {
        0 => limit.rlim_cur,
        _ => u64::MAX,
    }
}

fn write_zeros(file: BorrowedFd<'_>, offset: u64, bytes: usize) -> io::Result<()> {
    static ZEROS: [u8; 4 * PAGE_BYTES] = [0; 4 * PAGE_BYTES];
    let mut done = 0;
    while done < bytes {
        let wanted = ZEROS.len().min(bytes - done);
        let at = (offset + done as u64) as libc::off_t;
        done += retry(|| {
            // SAFETY: `wanted` bytes of `ZEROS` are read.
            match unsafe { libc::pwrite(file.as_raw_fd(), ZEROS.as_ptr().cast(), wanted, at) } {
                -1 => Err(io::Error::last_os_error()),
                0 => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
                written => Ok(written as usize),
            }
        })?;
    }
    Ok(())
}

/// Repeats what a signal interrupted; not for ever, because a fast interval timer can interrupt every attempt.
pub(crate) fn retry<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 0..100 {
        match attempt() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
    Err(io::Error::from_raw_os_error(libc::EINTR))
}
