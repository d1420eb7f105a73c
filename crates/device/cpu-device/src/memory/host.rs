//! Memory that belongs to the program: pageable and registered host memory.
//!
//! The device's own memory stays mapped as long as anything uses it (see [`crate::memory`]). The
//! program's memory does not: the program may unmap or protect it, or truncate the file behind it,
//! at any time after a call has named it. This must become an error code, so this module never
//! dereferences such memory directly:
//!
//! - Copies and fills let the kernel move the bytes (`process_vm_readv`, `process_vm_writev` on
//!   this process), which returns an error where a load or store would raise a signal.
//! - A launch looks up a range in the process's [`Map`] when it first accesses the range.

use std::sync::atomic::{AtomicBool, Ordering};

const PAGE: u64 = 4096;

/// The first address at which memory was missing, and whether it was to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The address.
    pub address: u64,
    /// Whether the access was a write.
    pub write: bool,
}

/// Whether the kernel moves bytes for this process; a sandbox may forbid it.
static KERNEL_COPIES: AtomicBool = AtomicBool::new(true);

/// Copies `bytes` bytes, some or all of which may be the program's memory. The ranges may overlap.
///
/// # Safety
///
/// Each of both ranges belongs to the program, or stays mapped during the call.
pub unsafe fn copy(source: u64, destination: u64, bytes: u64) -> Result<(), Missing> {
    let overlap = source < destination.saturating_add(bytes) && destination < source.saturating_add(bytes);
    if overlap || !KERNEL_COPIES.load(Ordering::Relaxed) {
        // SAFETY: the caller's promise.
        return unsafe { copy_checked(source, destination, bytes) };
    }
    let mut done = 0;
    while done < bytes {
        let (from, to) = (source + done, destination + done);
        match kernel_copy(from, to, bytes - done) {
            Ok(moved) => done += moved,
            Err(libc::EFAULT) => return Err(find_missing(from, to)),
            Err(_) => {
                KERNEL_COPIES.store(false, Ordering::Relaxed);
                // SAFETY: the caller's promise.
                return unsafe { copy_checked(from, to, bytes - done) };
            }
        }
    }
    Ok(())
}

/// Copies rows of `width` bytes, from the first address of each pair to the second, as [`copy`]
/// does.
///
/// # Safety
///
/// As for [`copy`], of each row.
pub unsafe fn copy_rows(rows: &[(u64, u64)], width: u64) -> Result<(), Missing> {
    let moved = if rows.len() > 1 && are_apart(rows, width) { kernel_copy_rows(rows, width) } else { 0 };
    for (source, destination) in &rows[moved..] {
        // SAFETY: the caller's promise.
        unsafe { copy(*source, *destination, width)? };
    }
    Ok(())
}

/// Whether all that is read lies before or behind all that is written.
fn are_apart(rows: &[(u64, u64)], width: u64) -> bool {
    let span = |address: fn(&(u64, u64)) -> u64| {
        let (least, most) = rows.iter().map(address).fold((u64::MAX, 0), |(a, b), at| (a.min(at), b.max(at)));
        (least, most.saturating_add(width))
    };
    let (read, written) = (span(|row| row.0), span(|row| row.1));
    read.1 <= written.0 || written.1 <= read.0
}

/// Has the kernel move rows with one call; how many it has moved as a whole.
fn kernel_copy_rows(rows: &[(u64, u64)], width: u64) -> usize {
    let parts = |address: fn(&(u64, u64)) -> u64| -> Vec<libc::iovec> {
        let part = |row| libc::iovec { iov_base: address(row) as *mut libc::c_void, iov_len: width as usize };
        rows.iter().map(part).collect()
    };
    let (remote, local) = (parts(|row| row.0), parts(|row| row.1));
    let count = rows.len() as libc::c_ulong;
    // SAFETY: both lists have so many elements; the kernel checks the addresses in them, and what
    // is written there is what the program asked for.
    let moved =
        unsafe { libc::process_vm_readv(libc::getpid(), local.as_ptr(), count, remote.as_ptr(), count, 0) };
    usize::try_from(moved).unwrap_or(0) / width.max(1) as usize
}

/// Has the kernel move bytes inside of this process; how many it has moved, at least one, or the
/// error's number.
fn kernel_copy(source: u64, destination: u64, bytes: u64) -> Result<u64, i32> {
    let part = |start: u64| libc::iovec { iov_base: start as *mut libc::c_void, iov_len: bytes as usize };
    let (local, remote) = (part(destination), part(source));
    // SAFETY: both lists have one element. The kernel checks the addresses in them, and what is
    // written there is what the program asked for.
    let moved = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    match moved {
        1.. => Ok(moved.cast_unsigned() as u64),
        0 => Err(libc::EFAULT),
        _ => Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EFAULT)),
    }
}

/// Finds the side that is to blame for a copy that failed at its first byte.
fn find_missing(source: u64, destination: u64) -> Missing {
    if is_readable(source) {
        Missing { address: destination, write: true }
    } else {
        Missing { address: source, write: false }
    }
}

/// Whether the byte at `address` can be read now.
pub fn is_readable(address: u64) -> bool {
    let mut byte = 0u8;
    kernel_copy(address, (&raw mut byte) as u64, 1).is_ok()
}

/// [`copy`] without the kernel's help: looks first, then copies.
///
/// # Safety
///
/// As for [`copy`].
unsafe fn copy_checked(source: u64, destination: u64, bytes: u64) -> Result<(), Missing> {
    let map = Map::read();
    for (start, write) in [(source, false), (destination, true)] {
        map.check(start, bytes, write).map_err(|address| Missing { address, write })?;
    }
    // SAFETY: both ranges have just been found in the process's map; the program does not change it
    // during a call.
    unsafe { std::ptr::copy(source as *const u8, destination as *mut u8, bytes as usize) };
    Ok(())
}

/// Fills `bytes` bytes with the repeated bytes of `pattern`, which divides 64 KiB and `bytes`.
///
/// # Safety
///
/// As for [`copy`].
pub unsafe fn fill(start: u64, bytes: u64, pattern: &[u8]) -> Result<(), Missing> {
    let filled = pattern.repeat((bytes.min(64 << 10) as usize) / pattern.len());
    let mut done = 0;
    while done < bytes {
        let part = (bytes - done).min(filled.len() as u64);
        // SAFETY: the caller's promise; the vector is this function's.
        unsafe { copy(filled.as_ptr() as u64, start + done, part)? };
        done += part;
    }
    Ok(())
}

/// One line of `/proc/self/maps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mapping {
    start: u64,
    end: u64,
    readable: bool,
    writable: bool,
    /// Whether it shows a file, which may have become shorter than the mapping.
    of_file: bool,
}

/// The process's address space at one moment.
pub struct Map {
    /// By address; `None` if the system does not tell.
    mappings: Option<Vec<Mapping>>,
}

/// A range that may be accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first address.
    pub start: u64,
    /// The first address after it.
    pub end: u64,
    /// Whether all of it may be written.
    pub writable: bool,
}

impl Map {
    /// The address space as it is now.
    pub fn read() -> Map {
        let text = std::fs::read_to_string("/proc/self/maps");
        Map { mappings: text.ok().map(|text| text.lines().filter_map(Mapping::parse).collect()) }
    }

    /// The part of `start..end` around `address` that can be read, and that can be written or not
    /// as a whole. Where the system tells nothing, that is everything.
    pub fn around(&self, address: u64, start: u64, end: u64) -> Option<Run> {
        let Some(mappings) = &self.mappings else { return Some(Run { start, end, writable: true }) };
        let usable = |mapping: &Mapping| mapping.readable.then(|| mapping.existing());
        let at = mappings.partition_point(|mapping| mapping.end <= address);
        let home = usable(mappings.get(at)?).filter(|run| run.start <= address && address < run.end)?;
        let joins = |run: &Run, next: &Run| run.end == next.start && run.writable == next.writable;
        let mut run = home;
        for next in mappings[at + 1..].iter().take_while(|next| next.start < end) {
            match usable(next).filter(|next| joins(&run, next)) {
                Some(next) => run.end = next.end,
                None => break,
            }
        }
        for before in mappings[..at].iter().rev().take_while(|before| before.end > start) {
            match usable(before).filter(|before| joins(before, &run)) {
                Some(before) => run.start = before.start,
                None => break,
            }
        }
        Some(Run { start: run.start.max(start), end: run.end.min(end), ..run })
    }

    /// The first address of a range that cannot be read, or written if `write` is set.
    fn check(&self, start: u64, bytes: u64, write: bool) -> Result<(), u64> {
        let end = start.checked_add(bytes).ok_or(start)?;
        let mut next = start;
        while next < end {
            let run = self.around(next, next, end).filter(|run| run.writable || !write);
            next = run.ok_or(next)?.end;
        }
        Ok(())
    }
}

impl Mapping {
    /// `7f3c00000000-7f3c00021000 rw-p 00000000 00:00 0   [heap]`
    fn parse(line: &str) -> Option<Mapping> {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let (start, end) = (number(start)?, number(end)?);
        let permissions = fields.next()?.as_bytes();
        let of_file = fields.nth(2)? != "0";
        let [readable, writable] = [(0, b'r'), (1, b'w')].map(|(at, bit)| permissions.get(at) == Some(&bit));
        Some(Mapping { start, end, readable, writable, of_file })
    }

    /// Returns the part of the mapping that exists: a truncated file ends it early.
    fn existing(&self) -> Run {
        let Mapping { start, end, writable, .. } = *self;
        let whole = Run { start, end, writable };
        if !self.of_file || !KERNEL_COPIES.load(Ordering::Relaxed) || is_readable(end - PAGE) {
            return whole;
        }
        // Of pages in the order of the file, those that exist come first.
        let (mut exists, mut missing) = (0, (end - start) / PAGE);
        while exists < missing {
            let middle = exists + (missing - exists) / 2;
            if is_readable(start + middle * PAGE) {
                exists = middle + 1;
            } else {
                missing = middle;
            }
        }
        Run { end: start + exists * PAGE, ..whole }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages of this test's own; those named are then unmapped or protected.
    struct Pages(u64);

    const COUNT: u64 = 8;

    impl Pages {
        fn new() -> Pages {
            let (length, access) = ((COUNT * PAGE) as usize, libc::PROT_READ | libc::PROT_WRITE);
            let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            // SAFETY: an anonymous mapping at an address of the kernel's choosing.
            let start = unsafe { libc::mmap(std::ptr::null_mut(), length, access, kind, -1, 0) };
            assert_ne!(start, libc::MAP_FAILED);
            Pages(start as u64)
        }

        fn page(&self, index: u64) -> u64 {
            self.0 + index * PAGE
        }

        fn protect(&self, index: u64, access: i32) {
            let page = self.page(index) as *mut libc::c_void;
            // SAFETY: the page is this test's.
            assert_eq!(unsafe { libc::mprotect(page, PAGE as usize, access) }, 0);
        }
    }

    impl Drop for Pages {
        fn drop(&mut self) {
            // SAFETY: the pages are this test's.
            unsafe { libc::munmap(self.0 as *mut libc::c_void, (COUNT * PAGE) as usize) };
        }
    }

    #[test]
    fn a_copy_tells_the_first_byte_that_is_missing() {
        let (from, to) = (Pages::new(), Pages::new());
        let bytes = COUNT * PAGE;
        // SAFETY: the pages are this test's.
        let copy = |from: u64, to: u64, bytes| unsafe { copy(from, to, bytes) };
        assert_eq!(copy(from.0, to.0, bytes), Ok(()));
        from.protect(5, libc::PROT_NONE);
        assert_eq!(copy(from.0 + 3, to.0, bytes - 3), Err(Missing { address: from.page(5), write: false }));
        to.protect(2, libc::PROT_READ);
        assert_eq!(copy(from.0, to.0, bytes), Err(Missing { address: to.page(2), write: true }));
        assert_eq!(copy(8, to.0, 16), Err(Missing { address: 8, write: false }));
        assert_eq!(copy(from.0, u64::MAX - 100, 16), Err(Missing { address: u64::MAX - 100, write: true }));
        // The same without the kernel's help.
        // SAFETY: as above.
        let checked = |from: u64, to: u64, bytes| unsafe { copy_checked(from, to, bytes) };
        assert_eq!(checked(from.0, to.page(3), 4 * PAGE), Ok(()));
        assert_eq!(
            checked(from.0, to.page(3), 5 * PAGE + 1),
            Err(Missing { address: from.page(5), write: false })
        );
        assert_eq!(checked(from.0, to.page(1), 2 * PAGE), Err(Missing { address: to.page(2), write: true }));
    }

    #[test]
    fn overlapping_ranges_are_moved_as_a_whole() {
        let mut bytes: Vec<u8> = (0..100).collect();
        let start = bytes.as_mut_ptr() as u64;
        // SAFETY: the vector is this test's.
        assert_eq!(unsafe { copy(start, start + 10, 90) }, Ok(()));
        assert_eq!(bytes, (0..10).chain(0..90).collect::<Vec<u8>>());
    }

    #[test]
    fn fills_repeat_their_pattern() {
        let mut bytes = vec![0u8; 200_000];
        // SAFETY: the vector is this test's.
        assert_eq!(unsafe { fill(bytes.as_mut_ptr() as u64, 199_996, &[1, 2, 3, 4]) }, Ok(()));
        assert!(bytes[..199_996].chunks(4).all(|chunk| chunk == [1, 2, 3, 4]) && bytes[199_996..] == [0; 4]);
    }

    #[test]
    fn the_map_has_the_parts_of_a_range_that_exist() {
        let pages = Pages::new();
        let (start, end) = (pages.0, pages.page(COUNT));
        pages.protect(3, libc::PROT_READ);
        pages.protect(6, libc::PROT_NONE);
        let map = Map::read();
        let run = |from, to, writable| Some(Run { start: pages.page(from), end: pages.page(to), writable });
        let around = |index| map.around(pages.page(index) + 100, start, end);
        assert_eq!((around(1), around(3), around(4)), (run(0, 3, true), run(3, 4, false), run(4, 6, true)));
        assert_eq!((around(6), around(7)), (None, run(7, 8, true)));
        assert_eq!(map.around(8, 0, 100), None);
    }

    #[test]
    fn a_file_that_was_cut_off_ends_its_mapping() {
        // SAFETY: the name ends in a zero byte.
        let file = unsafe { libc::memfd_create(c"cut".as_ptr(), libc::MFD_CLOEXEC) };
        assert!(file >= 0);
        let length = 8 * PAGE as usize;
        // SAFETY: the file is open; the mapping is at an address of the kernel's choosing.
        let start = unsafe {
            assert_eq!(libc::ftruncate(file, length as i64), 0);
            let access = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), length, access, libc::MAP_SHARED, file, 0)
        };
        assert_ne!(start, libc::MAP_FAILED);
        let (start, end) = (start as u64, start as u64 + length as u64);
        for kept in [8, 3, 0] {
            // SAFETY: the file is open.
            assert_eq!(unsafe { libc::ftruncate(file, (kept * PAGE) as i64) }, 0);
            let found = Map::read().around(start, start, end);
            let expected = (kept > 0).then_some(Run { start, end: start + kept * PAGE, writable: true });
            assert_eq!(found, expected, "{kept} pages are left");
        }
        // SAFETY: mapping and file are this test's.
        unsafe { (libc::munmap(start as *mut libc::c_void, length), libc::close(file)) };
    }
}
