//! Reads memory of a process that may not be mapped.
//!
//! `process_vm_readv` gives an error instead of a fault. On the calling process itself it needs no
//! privilege, on another one the right to trace it; the other process does not notice. Where a
//! sandbox forbids the call, every read fails, and no stacks are recorded
//! ([`Memory::is_readable`]).

use libc::iovec;

/// Most pieces that are read at a time.
pub const PIECES: usize = 16;

const PAGE_BYTES: u64 = 4096;

/// The memory of a process.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    pid: libc::pid_t,
}

impl Memory {
    /// Reads the memory of the calling process; in a forked child another one must be made.
    pub fn of_this_process() -> Memory {
        Memory { pid: std::process::id() as libc::pid_t }
    }

    /// Reads the memory of the process with this identifier.
    pub fn of(pid: u32) -> Memory {
        Memory { pid: pid.cast_signed() }
    }

    /// Checks that the memory of the calling process can be read.
    ///
    /// # Errors
    /// The system's, where a sandbox forbids the call.
    pub fn is_readable(&self) -> std::io::Result<()> {
        let known = 7u64;
        match self.word((&raw const known) as u64) {
            Some(_) => Ok(()),
            None => Err(std::io::Error::last_os_error()),
        }
    }

    /// Fills `to` with what lies at `address`; false, and `to` undefined, where not all of it can
    /// be read.
    pub fn read(&self, address: u64, to: &mut [u8]) -> bool {
        let remote = iovec { iov_base: address as *mut _, iov_len: to.len() };
        let local = iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
        // SAFETY: `local` is ours to write to; the kernel checks the other address.
        let read = unsafe { libc::process_vm_readv(self.pid, &local, 1, &remote, 1, 0) };
        usize::try_from(read) == Ok(to.len())
    }

    /// As [`Memory::read`], but where all of it cannot be read, what lies on the first page; how
    /// many bytes were read.
    pub fn read_some(&self, address: u64, to: &mut [u8]) -> usize {
        if self.read(address, to) {
            return to.len();
        }
        let on_page = (PAGE_BYTES - address % PAGE_BYTES) as usize;
        if on_page < to.len() && self.read(address, &mut to[..on_page]) { on_page } else { 0 }
    }

    /// Fills each of `to` with what lies at the address of the same place; at most [`PIECES`]. True
    /// if all were read.
    pub fn read_all<const N: usize>(&self, addresses: &[u64], to: &mut [[u8; N]]) -> bool {
        let count = addresses.len().min(to.len()).min(PIECES);
        let none = iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let (mut remote, mut local) = ([none; PIECES], [none; PIECES]);
        for (at, (&address, to)) in addresses.iter().zip(to).take(count).enumerate() {
            remote[at] = iovec { iov_base: address as *mut _, iov_len: N };
            local[at] = iovec { iov_base: to.as_mut_ptr().cast(), iov_len: N };
        }
        let pieces = count as libc::c_ulong;
        // SAFETY: the pieces of `local` are ours to write to; the kernel checks the other
        // addresses.
        let read =
            unsafe { libc::process_vm_readv(self.pid, local.as_ptr(), pieces, remote.as_ptr(), pieces, 0) };
        usize::try_from(read) == Ok(count * N)
    }

    /// The word at `address`.
    pub fn word(&self, address: u64) -> Option<u64> {
        let mut word = [0; 8];
        self.read(address, &mut word).then(|| u64::from_ne_bytes(word))
    }
}

/// The word at byte `at` of `bytes`; 0 where they end before.
pub fn word_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).map_or(0, |word| u64::from_ne_bytes(word.try_into().unwrap_or_default()))
}

/// The 32 bits at byte `at` of `bytes`; 0 where they end before.
pub fn half_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |half| u32::from_ne_bytes(half.try_into().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_an_answer_and_not_a_fault() {
        let memory = Memory::of_this_process();
        let words = [7u64, 9];
        let address = (&raw const words) as u64;
        assert!(memory.is_readable().is_ok());
        assert_eq!(memory.word(address + 8), Some(9));
        for nowhere in [0, 8, u64::MAX - 3, 1 << 63, 0xffff_8000_0000_0000] {
            assert_eq!(memory.word(nowhere), None);
        }
        let mut pieces = [[0; 8]; 2];
        assert!(memory.read_all(&[address, address + 8], &mut pieces));
        assert_eq!(pieces.map(u64::from_ne_bytes), words);
        assert!(!memory.read_all(&[address, 0], &mut pieces));
    }

    #[test]
    fn the_end_of_a_mapping_is_read_up_to() {
        // SAFETY: two new pages, of which the second is made inaccessible.
        let page = unsafe {
            let both = libc::mmap(
                std::ptr::null_mut(),
                2 * PAGE_BYTES as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(both, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(both.byte_add(4096), 4096, libc::PROT_NONE), 0);
            both as u64
        };
        let memory = Memory::of_this_process();
        let mut bytes = [1; 64];
        assert_eq!(memory.read_some(page + PAGE_BYTES - 16, &mut bytes), 16);
        assert_eq!(bytes[..16], [0; 16]);
        assert_eq!(memory.read_some(page + PAGE_BYTES, &mut bytes), 0);
    }
}
