//! Waits of threads for each other: first by polling, then asleep in the kernel.

use std::ptr::{from_ref, null};
use std::sync::atomic::AtomicU32;

/// Rounds of [`pause`] that only pause the processor: some 50 µs.
const BUSY_ROUNDS: u32 = 1500;

/// One round of waiting for another thread that is about to act: a pause at first, later the
/// processor for others.
pub fn pause(rounds: &mut u32) {
    *rounds = rounds.saturating_add(1);
    if *rounds < BUSY_ROUNDS {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}

/// Sleeps until `word` is woken, unless it no longer holds `value`; at most `most_ns` nanoseconds,
/// if that is given. It may wake for no reason.
pub fn sleep(word: &AtomicU32, value: u32, most_ns: Option<u64>) {
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    let most = most_ns.map(|ns| libc::timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    });
    // SAFETY: the word and the time outlive the call; a null pointer is no limit.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            operation,
            value,
            most.as_ref().map_or(null(), from_ref),
        );
    }
}

/// Has the kernel order memory between this thread and all others of the process, from now on when
/// [`order_all_threads`] asks for it. False if it can't.
pub fn can_order_all_threads() -> bool {
    membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
}

/// Orders all threads' accesses: either this thread's later loads see what other threads stored
/// before, or they see what this thread stored before.
pub fn order_all_threads() {
    membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}

fn membarrier(command: i32) -> bool {
    // SAFETY: no memory is touched.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Wakes up to `most` threads that sleep on `word`.
pub fn wake(word: &AtomicU32, most: i32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word is only looked up.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), operation, most);
    }
}

/// `CLOCK_MONOTONIC`, nanoseconds.
#[inline]
pub fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writing.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
