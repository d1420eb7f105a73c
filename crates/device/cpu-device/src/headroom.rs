//! Checks that the process has address space left for work whose allocations cannot fail.
//!
//! The compiler's small allocations, and those of the dynamic linker for a new thread, end the
//! process where there is no memory. Such work is therefore refused before it begins if the process
//! has too little left: it has a limit (`ulimit -v`), or the host gives no more.

use std::ffi::c_void;

/// Bytes that any such work may take.
pub const MARGIN: u64 = 4 << 20;

/// Bytes that a new thread may take: its stack, its thread-local memory and what it allocates.
const THREAD: u64 = 8 << 20;

/// Bytes that a byte of PTX may become while it is compiled.
const PER_BYTE_OF_PTX: u64 = 48;

/// Whether `bytes` of address space are available.
pub fn has(bytes: u64) -> bool {
    let Ok(length) = usize::try_from(bytes) else { return false };
    let (protection, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
    // SAFETY: new memory at an address that the system chooses; nothing is touched.
    let start = unsafe { libc::mmap(std::ptr::null_mut::<c_void>(), length, protection, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return false;
    }
    // SAFETY: the range has just been mapped, and nobody knows of it.
    unsafe { libc::munmap(start, length) };
    true
}

/// Whether a thread can be started.
pub fn for_thread() -> bool {
    has(THREAD)
}

/// Whether the process can compile `bytes` of PTX.
pub fn for_ptx(bytes: usize) -> bool {
    has((bytes as u64).saturating_mul(PER_BYTE_OF_PTX).saturating_add(MARGIN))
}
