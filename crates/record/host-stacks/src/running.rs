//! Registers and stacks of threads that run, as the kernel copies them.
//!
//! A software clock of the kernel (`perf_event_open`) counts a thread's processor time and copies
//! its registers and the inner end of its stack each time that a period has passed. The thread is
//! interrupted for some microseconds as by any timer; it is not stopped and gets no signal.
//!
//! Where the system allows it (root, or `CAP_PERFMON`), the clock also ticks in system calls and
//! page faults, and a sample says that the thread was in the kernel. Elsewhere only the program's
//! own time is sampled; where the call is refused, nothing is.
//!
//! The copy ends at the first page that the program has never touched: within a large local
//! variable of which only a part was written, for instance. Callers behind it are then unknown.

use apex_call_frames::memory::word_at;
use apex_call_frames::native::{R12, RBP, RBX, REGISTERS, RIP, RSP, Registers};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a stack that are copied, from the stack pointer on.
const STACK_BYTES: u32 = 16 << 10;
/// Bytes of samples that wait to be read; a page of the kernel's own lies in front of them.
const RING_BYTES: usize = 128 << 10;
const PAGE_BYTES: usize = 4096;
/// Places of the ring's two ends in the kernel's page.
const HEAD: usize = 1024;
const TAIL: usize = 1032;

/// `PERF_TYPE_SOFTWARE`, `PERF_COUNT_SW_TASK_CLOCK`
const SOFTWARE: u64 = 1;
const TASK_CLOCK: u64 = 1;
/// `PERF_SAMPLE_TIME | PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER`
const SAMPLED: u64 = 1 << 2 | 1 << 12 | 1 << 13;
/// The kernel's numbers of the registers that unwinding needs, and DWARF's, in their order.
const KERNELS: [u32; 8] = [1, 6, 7, 8, 20, 21, 22, 23];
const DWARFS: [usize; 8] = [RBX, RBP, RSP, RIP, R12, R12 + 1, R12 + 2, R12 + 3];
/// Bits of an event: `exclude_kernel`, `exclude_hv`, `exclude_callchain_kernel`, `use_clockid`.
const WITHOUT_KERNEL: u64 = 1 << 5;
const USUAL: u64 = 1 << 6 | 1 << 21 | 1 << 25;
/// `PERF_FLAG_FD_CLOEXEC`
const CLOSE_ON_EXEC: libc::c_ulong = 8;
/// `PERF_RECORD_SAMPLE`, and the bits of a record that say where the thread was: in the kernel.
const SAMPLE: u32 = 9;
const MODE: u16 = 7;
const IN_KERNEL: u16 = 1;
/// Bytes of a record's header, and of a sample before its stack.
const HEADER: usize = 8;
const BEFORE_STACK: usize = HEADER + 8 + 8 + KERNELS.len() * 8 + 8;

/// A thread at a moment in which it ran.
pub struct Sample {
    /// The time on the monotonic clock, in nanoseconds.
    #[cfg(test)]
    pub time_ns: u64,
    /// Whether it was in a system call or in a page fault.
    pub is_in_kernel: bool,
    /// The registers of the program.
    pub registers: Registers,
    /// The inner end of the stack, from the stack pointer on.
    stack: Vec<u8>,
}

impl Sample {
    /// The word of the stack at `address`; `None` where it was not copied.
    pub fn word(&self, address: u64) -> Option<u64> {
        let at = usize::try_from(address.checked_sub(self.registers.0[RSP])?).ok()?;
        (at.checked_add(8)? <= self.stack.len()).then(|| word_at(&self.stack, at))
    }
}

/// The clock of a thread, with its samples that were not read yet.
pub struct Clock {
    ring: Ring,
    _event: File,
}

impl Clock {
    /// Starts the clock of a thread, which ticks each `period_ns` of its processor time.
    ///
    /// # Errors
    /// The system's: where the call is refused, or the thread has ended.
    pub fn of(tid: u32, period_ns: u64) -> io::Result<Clock> {
        let event = open(tid, period_ns, USUAL).or_else(|_| open(tid, period_ns, USUAL | WITHOUT_KERNEL))?;
        Ok(Clock { ring: Ring::of(&event)?, _event: event })
    }

    /// The newest sample since the last call, if there is one.
    pub fn newest(&mut self) -> Option<Sample> {
        let mut newest = None;
        let mut bytes = Vec::new();
        while self.ring.next(&mut bytes) {
            newest = parse(&bytes).or(newest);
        }
        newest
    }
}

/// The reason why running threads of compiled code cannot be sampled here; `None` if they can.
pub fn refusal() -> Option<String> {
    // SAFETY: takes nothing, returns a number.
    let own = unsafe { libc::gettid() };
    let refused = Clock::of(own.cast_unsigned(), 1_000_000_000).err()?;
    Some(format!("perf_event_open is refused ({refused})"))
}

fn open(tid: u32, period_ns: u64, flags: u64) -> io::Result<File> {
    let registers = KERNELS.iter().fold(0, |mask, number| mask | 1u64 << number);
    let monotonic = u64::from(libc::CLOCK_MONOTONIC.cast_unsigned());
    // `struct perf_event_attr` in its fifth version, by words.
    let mut attributes = [0u64; 14];
    attributes[0] = SOFTWARE | (size_of_val(&attributes) as u64) << 32;
    attributes[1] = TASK_CLOCK;
    attributes[2] = period_ns;
    attributes[3] = SAMPLED;
    attributes[5] = flags;
    attributes[10] = registers;
    attributes[11] = u64::from(STACK_BYTES) | monotonic << 32;
    // SAFETY: the attributes have the size that they name; the other arguments are numbers.
    let event = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            attributes.as_ptr(),
            tid as libc::pid_t,
            -1 as libc::c_int,
            -1 as libc::c_int,
            CLOSE_ON_EXEC,
        )
    };
    match i32::try_from(event) {
        // SAFETY: a new descriptor that nothing else owns.
        Ok(event) if event >= 0 => Ok(unsafe { File::from_raw_fd(event) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Records that the kernel writes and this process reads.
struct Ring {
    start: *mut u8,
}

// SAFETY: the mapping belongs to this value alone, whichever thread has it.
unsafe impl Send for Ring {}

impl Ring {
    fn of(event: &File) -> io::Result<Ring> {
        // SAFETY: a new mapping of an open event, at a place that the kernel chooses.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PAGE_BYTES + RING_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                event.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Ring { start: start.cast() })
    }

    fn end(&self, at: usize) -> &AtomicU64 {
        // SAFETY: an aligned word of the mapped page, which the kernel also accesses atomically.
        unsafe { AtomicU64::from_ptr(self.start.add(at).cast()) }
    }

    /// Moves the oldest record into `bytes`; false if there is none.
    fn next(&mut self, bytes: &mut Vec<u8>) -> bool {
        let (head, tail) = (self.end(HEAD).load(Ordering::Acquire), self.end(TAIL).load(Ordering::Relaxed));
        bytes.clear();
        let waiting = head.wrapping_sub(tail) as usize;
        if !(HEADER..=RING_BYTES).contains(&waiting) {
            return false;
        }
        self.copy(tail, HEADER, bytes);
        let length = usize::from(u16::from_le_bytes([bytes[6], bytes[7]]));
        if !(HEADER..=waiting).contains(&length) {
            // It makes no sense: all of it is given back.
            self.end(TAIL).store(head, Ordering::Release);
            return false;
        }
        self.copy(tail.wrapping_add(HEADER as u64), length - HEADER, bytes);
        self.end(TAIL).store(tail.wrapping_add(length as u64), Ordering::Release);
        true
    }

    /// Appends `count` bytes of the ring from `from` on, at most all of it.
    fn copy(&self, from: u64, count: usize, bytes: &mut Vec<u8>) {
        let at = from as usize % RING_BYTES;
        let first = count.min(RING_BYTES - at);
        // SAFETY: both pieces lie in the mapping, behind its first page; the kernel does not write
        // there before the tail has moved.
        let pieces = unsafe {
            let ring = self.start.add(PAGE_BYTES);
            [std::slice::from_raw_parts(ring.add(at), first), std::slice::from_raw_parts(ring, count - first)]
        };
        pieces.into_iter().for_each(|piece| bytes.extend_from_slice(piece));
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping that `of` made, to which no reference is left.
        unsafe { libc::munmap(self.start.cast(), PAGE_BYTES + RING_BYTES) };
    }
}

/// Reads a record: time, the registers and which ones they are, the stack and its length.
fn parse(record: &[u8]) -> Option<Sample> {
    let kind = u32::from_le_bytes(record.get(..4)?.try_into().ok()?);
    let mode = u16::from_le_bytes(record.get(4..6)?.try_into().ok()?);
    let has_registers = word_at(record, HEADER + 8) != 0;
    if kind != SAMPLE || !has_registers || record.len() < BEFORE_STACK {
        return None;
    }
    let mut registers = [0; REGISTERS];
    for (at, number) in DWARFS.into_iter().enumerate() {
        registers[number] = word_at(record, HEADER + 16 + 8 * at);
    }
    // The copied length stands behind room for all that was asked for.
    let room = word_at(record, BEFORE_STACK - 8) as usize;
    let copied = record.get(BEFORE_STACK..)?.get(..room)?;
    let length = word_at(record, BEFORE_STACK + room) as usize;
    Some(Sample {
        #[cfg(test)]
        time_ns: word_at(record, HEADER),
        is_in_kernel: mode & MODE == IN_KERNEL,
        registers: Registers(registers),
        stack: copied[..length.min(room)].to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::clock_ns;
    use proptest::prelude::*;

    /// A record as the kernel writes it.
    fn record(time_ns: u64, stack: &[u64], copied: u64) -> Vec<u8> {
        let registers = [3, 6, 0x1000, 0x40_0000, 12, 13, 14, 15];
        let words = [time_ns, 2].into_iter().chain(registers).chain([8 * stack.len() as u64]);
        let all = words.chain(stack.iter().copied()).chain([copied]);
        let body: Vec<u8> = all.flat_map(u64::to_le_bytes).collect();
        let length = (HEADER + body.len()) as u16;
        [&9u32.to_le_bytes()[..], &[1, 0], &length.to_le_bytes(), &body].concat()
    }

    #[test]
    fn records_have_registers_and_the_stack_that_was_copied() {
        let sample = parse(&record(77, &[5, 6, 7], 16)).expect("a sample");
        assert_eq!((sample.time_ns, sample.is_in_kernel), (77, true));
        assert_eq!([RBX, RBP, RSP, RIP, 15].map(|at| sample.registers.0[at]), [3, 6, 0x1000, 0x40_0000, 15]);
        let words = [0xff8, 0x1000, 0x1008, 0x1010, u64::MAX].map(|at| sample.word(at));
        assert_eq!(words, [None, Some(5), Some(6), None, None]);
    }

    proptest! {
        #[test]
        fn damaged_records_are_no_fault(
            at in 0..128usize, byte: u8, cut in 0..160usize, copied: u64,
        ) {
            let mut bytes = record(1, &[1, 2, 3, 4], copied);
            if let Some(to) = bytes.get_mut(at) { *to = byte }
            bytes.truncate(cut);
            if let Some(sample) = parse(&bytes) {
                let _ = (sample.word(0x1000), sample.word(u64::from(byte)));
            }
        }
    }

    #[test]
    fn a_thread_that_computes_is_sampled_where_the_system_allows_it() {
        if let Some(why) = refusal() {
            test_skip::impossible_here(why);
            return;
        }
        // SAFETY: takes nothing, returns a number.
        let own = unsafe { libc::gettid() };
        let before = clock_ns(libc::CLOCK_MONOTONIC);
        let mut clock = Clock::of(own.cast_unsigned(), 1_000_000).expect("a clock");
        let mut sum = 0u64;
        let sample = (0..100_000).find_map(|_| {
            sum = (0..100_000).fold(sum, |sum, n| std::hint::black_box(sum ^ n));
            clock.newest()
        });
        let sample = sample.expect("a sample");
        assert!((before..=clock_ns(libc::CLOCK_MONOTONIC)).contains(&sample.time_ns));
        let here = (&raw const sum) as u64;
        assert!(sample.registers.0[RSP].abs_diff(here) < 1 << 20, "{:x} {here:x}", sample.registers.0[RSP]);
        assert!(sample.word(sample.registers.0[RSP]).is_some());
    }
}
