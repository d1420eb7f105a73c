//! SIGBUS: the program's handler and ours side by side.
//!
//! [`apex_trace::fault`] keeps a handler installed that repairs mapped session files which others
//! truncate. A program that installs a handler of its own must not displace it, and must see
//! nothing of it. So this library exports `sigaction` and `signal`: for SIGBUS, once that handler
//! is installed, they change and tell what the program wants; for everything else they are glibc's.
//!
//! A fault that is blocked ends the program whatever its handler. So, from the same moment on,
//! `pthread_sigmask` and `sigprocmask` leave SIGBUS out of what they block (threads that blocked it
//! before are seen to when they first record).

use crate::switch::{self, Stop};
use apex_trace::fault;
use std::mem::zeroed;

unsafe extern "C" {
    /// glibc's `sigaction` and `signal` under names that nobody interposes.
    fn __sigaction(signal: i32, new: *const libc::sigaction, old: *mut libc::sigaction) -> i32;
    fn ssignal(signal: i32, handler: libc::sighandler_t) -> libc::sighandler_t;
}

/// The function of that name.
///
/// # Safety
/// `sigaction`'s contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(
    signal: i32,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> i32 {
    // SAFETY: the caller's contract is the same.
    unsafe {
        if signal != libc::SIGBUS || !fault::is_protecting() {
            return __sigaction(signal, new, old);
        }
        fault::program_action(new, old);
    }
    0
}

/// The function of that name.
///
/// # Safety
/// `signal`'s contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn signal(signal: i32, handler: libc::sighandler_t) -> libc::sighandler_t {
    // SAFETY: the caller's contract is the same; `sigaction` is plain data, for which zeros are
    // valid.
    unsafe {
        if signal != libc::SIGBUS || !fault::is_protecting() || handler == libc::SIG_ERR {
            return ssignal(signal, handler);
        }
        let (mut new, mut old): (libc::sigaction, libc::sigaction) = (zeroed(), zeroed());
        new.sa_sigaction = handler;
        new.sa_flags = libc::SA_RESTART;
        libc::sigaddset(&mut new.sa_mask, signal);
        fault::program_action(&new, &mut old);
        old.sa_sigaction
    }
}

/// Implements both functions for masks; returns an `errno`, or 0.
///
/// # Safety
/// `new` is null or points to a set, `old` is null or valid for writing.
unsafe fn change_mask(how: i32, new: *const libc::sigset_t, old: *mut libc::sigset_t) -> i32 {
    /// Signals that glibc keeps for itself, and never lets a program block.
    const OF_GLIBC: [i32; 2] = [32, 33];
    let bit = |signal: i32| 1u64 << (signal - 1);
    let mut kept = OF_GLIBC.iter().fold(0, |kept, &signal| kept | bit(signal));
    if how != libc::SIG_UNBLOCK && fault::is_protecting() {
        kept |= bit(libc::SIGBUS);
    }
    // SAFETY: by contract; the kernel's sets are the first 64 bits of glibc's. The system call
    // keeps `errno` apart.
    unsafe {
        let wanted = new.cast::<u64>().as_ref().map(|set| set & !kept);
        let wanted = wanted.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let before = *libc::__errno_location();
        let failed = libc::syscall(libc::SYS_rt_sigprocmask, how, wanted, old, size_of::<u64>()) != 0;
        if failed { std::mem::replace(&mut *libc::__errno_location(), before) } else { 0 }
    }
}

/// The function of that name.
///
/// # Safety
/// `pthread_sigmask`'s contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_sigmask(
    how: i32,
    new: *const libc::sigset_t,
    old: *mut libc::sigset_t,
) -> i32 {
    // SAFETY: the caller's contract is the same.
    unsafe { change_mask(how, new, old) }
}

/// The function of that name.
///
/// # Safety
/// `sigprocmask`'s contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigprocmask(how: i32, new: *const libc::sigset_t, old: *mut libc::sigset_t) -> i32 {
    // SAFETY: the caller's contract is the same; `errno` is the calling thread's own.
    unsafe {
        match change_mask(how, new, old) {
            0 => 0,
            error => {
                *libc::__errno_location() = error;
                -1
            }
        }
    }
}

/// Ends recording when a session file is lost.
pub fn watch_for_losses() {
    extern "C" fn lost() {
        switch::stop(Stop::FileLost);
    }
    fault::on_loss(lost);
}
