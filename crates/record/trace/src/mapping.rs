//! Mapped memory, and the disk space below it.
//!
//! Space is reserved before it is mapped, so that running out of it is an error code here and not a
//! SIGBUS in the middle of somebody's launch. What others do to a mapped file is survived in
//! [`crate::fault`]. Growing a file past RLIMIT_FSIZE is an error code too, and no SIGXFSZ
//! ([`without_sigxfsz`]).

use crate::fault::{self, Region};
use std::io;
use std::mem::zeroed;
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
    /// The entry of a mapped file in the handler's list.
    region: Option<&'static Region>,
}

// SAFETY: a mapping is plain memory, tied to no thread; those who share it use atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// `bytes` of `file` from `offset`, a multiple of the page size. Where the file does not reach
    /// that far, or not any more, the first access makes private memory of the mapping ([`fault`]).
    pub fn shared(file: BorrowedFd<'_>, offset: u64, bytes: usize) -> io::Result<Mapping> {
        fault::protect();
        let mut map = Mapping::map(bytes, libc::MAP_SHARED, file.as_raw_fd(), offset as libc::off_t)?;
        map.region = Some(Region::enter(map.base.as_ptr() as usize, bytes)?);
        Ok(map)
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
        Ok(Mapping { base, bytes, region: None })
    }

    /// First byte; page-aligned.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// `madvise` on all of it.
    pub fn advise(&self, advice: i32) -> io::Result<()> {
        // SAFETY: the range is this mapping. The advice that this crate gives (wipe on fork,
        // populate) changes nothing in this process.
        let result = unsafe { libc::madvise(self.base.as_ptr().cast(), self.bytes, advice) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Makes every page present and writable, so that no write faults later. (`MAP_POPULATE`
    /// prepares shared mappings for reading only.) An error is what would have been a SIGBUS.
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
            // SAFETY: inside the mapping; an atomic operation that changes nothing disturbs no
            // other user.
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
        if let Some(region) = self.region {
            region.leave();
        }
        // SAFETY: the range is this mapping, and its owner drops it, so nothing refers to it any
        // more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Reserves disk space for `bytes` of `file` from `offset`, which hold nothing yet, and fills them
/// with zeros; the file then reaches that far.
///
/// Filling reserves too, where the file system can't otherwise, or where a sandbox refuses the
/// system call. Where it can, it is a matter of
/// speed: one large write brings large folios into the page cache, and mapping those costs a third
/// of faulting page by page (80 against 300 microseconds a chunk on ext4).
pub(crate) fn reserve(file: BorrowedFd<'_>, offset: u64, bytes: usize) -> io::Result<()> {
    without_sigxfsz(|| match fallocate(file, 0, offset, bytes) {
        Err(error) if is_about_space(&error) => Err(error),
        _ => write_zeros(file, offset, bytes),
    })
}

/// Whether an error of `fallocate` is about the file or its space, so that filling fails too. Any
/// other one says that the call itself is missing, that the file system has none, or that a sandbox
/// refuses it, for which sandboxes choose any error.
fn is_about_space(error: &io::Error) -> bool {
    let space = [libc::ENOSPC, libc::EDQUOT, libc::EFBIG, libc::EIO, libc::EBADF, libc::EINTR];
    error.raw_os_error().is_some_and(|code| space.contains(&code))
}

/// Runs `grow`, which makes a file longer. Past RLIMIT_FSIZE the kernel would not only refuse
/// (EFBIG) but send SIGXFSZ to the calling thread, which ends the program. (Asking for the limit
/// beforehand is not enough: it can change at any moment.)
pub(crate) fn without_sigxfsz<T>(grow: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let before = fault::change_mask(libc::SIG_BLOCK, fault::bit(libc::SIGXFSZ));
    // SAFETY: signal sets are plain data, for which zeros are valid; all pointers are to locals.
    unsafe {
        let (mut only, mut pending): (libc::sigset_t, libc::sigset_t) = (zeroed(), zeroed());
        libc::sigaddset(&mut only, libc::SIGXFSZ);
        libc::sigpending(&mut pending);
        let result = grow();
        // One that was sent to the program before stays.
        let refused = matches!(&result, Err(error) if error.raw_os_error() == Some(libc::EFBIG));
        if refused && libc::sigismember(&pending, libc::SIGXFSZ) == 0 {
            let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            libc::sigtimedwait(&only, ptr::null_mut(), &now);
        }
        fault::change_mask(libc::SIG_SETMASK, before);
        result
    }
}

/// Gives disk space back: the range reads as zeros from then on, and is no longer reserved.
pub(crate) fn release(file: BorrowedFd<'_>, offset: u64, bytes: usize) -> io::Result<()> {
    fallocate(file, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, offset, bytes)
}

fn fallocate(file: BorrowedFd<'_>, mode: i32, offset: u64, bytes: usize) -> io::Result<()> {
    retry(|| {
        // SAFETY: no memory of ours is involved.
        let result =
            unsafe { libc::fallocate(file.as_raw_fd(), mode, offset as libc::off_t, bytes as libc::off_t) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    })
}

fn write_zeros(file: BorrowedFd<'_>, offset: u64, bytes: usize) -> io::Result<()> {
    static ZEROS: [u8; PAGE_BYTES] = [0; PAGE_BYTES];
    let mut done = 0;
    while done < bytes {
        let slices: [libc::iovec; 64] = std::array::from_fn(|index| {
            let left = (bytes - done).saturating_sub(index * ZEROS.len());
            libc::iovec { iov_base: ZEROS.as_ptr().cast_mut().cast(), iov_len: left.min(ZEROS.len()) }
        });
        let at = (offset + done as u64) as libc::off_t;
        done += retry(|| {
            // SAFETY: each slice is the beginning of `ZEROS`, which is read only.
            match unsafe { libc::pwritev(file.as_raw_fd(), slices.as_ptr(), slices.len() as i32, at) } {
                -1 => Err(io::Error::last_os_error()),
                0 => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
                written => Ok(written as usize),
            }
        })?;
    }
    Ok(())
}

/// Repeats what a signal interrupted; not for ever, because a fast interval timer can interrupt
/// every attempt.
pub(crate) fn retry<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 0..100 {
        match attempt() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
    Err(io::Error::from_raw_os_error(libc::EINTR))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek, Write};
    use std::os::fd::AsFd;

    #[test]
    fn zeros_extend_a_file() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"before").unwrap();
        let (offset, bytes) = (PAGE_BYTES as u64, 99 * PAGE_BYTES + 7);
        write_zeros(file.as_fd(), offset, bytes).unwrap();
        let mut content = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut content).unwrap();
        assert_eq!(content.len(), PAGE_BYTES + bytes);
        assert_eq!(&content[..6], b"before");
        assert!(content[6..].iter().all(|&byte| byte == 0));
    }

    #[test]
    fn populated_pages_keep_their_content() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 3 * PAGE_BYTES]).unwrap();
        let map = Mapping::shared(file.as_fd(), 0, 3 * PAGE_BYTES).unwrap();
        map.populate().unwrap();
        map.touch();
        // SAFETY: mapped above, and nobody writes to it.
        let content = unsafe { std::slice::from_raw_parts(map.base().as_ptr(), 3 * PAGE_BYTES) };
        assert!(content.iter().all(|&byte| byte == 7));
    }

    #[test]
    fn what_is_interrupted_for_ever_fails() {
        let mut tries = 0;
        let endless = retry(|| -> io::Result<()> {
            tries += 1;
            Err(io::Error::from_raw_os_error(libc::EINTR))
        });
        assert_eq!(endless.unwrap_err().raw_os_error(), Some(libc::EINTR));
        assert_eq!(tries, 100);
    }
}
