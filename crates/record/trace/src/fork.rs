//! Detects, at the cost of one load, whether this process made a [`ForkGuard`] or is a forked
//! child.
//!
//! A forked child inherits the mappings of its parent's process file and must never write through
//! them. Comparing `getpid()` would cost a system call, and `MADV_DONTFORK` would turn a forgotten
//! check into a segmentation fault of the program. A guard is therefore a word that is 1 in the
//! process that made it and 0 in every child. The kernel wipes its page (`MADV_WIPEONFORK`, Linux
//! 4.14); on older kernels, a `pthread_atfork` handler clears it.
//!
//! A `vfork` child shares its parent's memory and may only exec. The guard correctly stays 1 for
//! it.

use crate::mapping::Mapping;
use std::io;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// Tells the process that made it from its forked children. Never freed: a thread may be about to
/// look at it.
#[derive(Clone, Copy, Debug)]
pub struct ForkGuard {
    alive: &'static AtomicU32,
}

impl ForkGuard {
    /// A guard of the calling process.
    pub fn new() -> io::Result<ForkGuard> {
        ForkGuard::wiped_by_kernel().or_else(|_| ForkGuard::cleared_by_handler())
    }

    /// Whether the caller is in the process that made the guard.
    #[inline]
    pub fn is_same_process(&self) -> bool {
        self.alive.load(Ordering::Relaxed) != 0
    }

    fn wiped_by_kernel() -> io::Result<ForkGuard> {
        let page = Mapping::anonymous(size_of::<AtomicU32>())?;
        page.advise(libc::MADV_WIPEONFORK)?;
        // SAFETY: the page is zeroed, aligned, long enough, and leaked here; it is only ever used
        // as this atomic.
        let alive = unsafe { page.leak().cast::<AtomicU32>().as_ref() };
        alive.store(1, Ordering::Relaxed);
        Ok(ForkGuard { alive })
    }

    fn cleared_by_handler() -> io::Result<ForkGuard> {
        static REGISTER: Once = Once::new();
        static FAILURE: AtomicU32 = AtomicU32::new(0);
        REGISTER.call_once(|| {
            // SAFETY: `clear_in_child` touches atomics only, which is allowed in a forked child.
            let error = unsafe { libc::pthread_atfork(None, None, Some(clear_in_child)) };
            FAILURE.store(error as u32, Ordering::Relaxed);
        });
        match FAILURE.load(Ordering::Relaxed) {
            0 => Ok(ForkGuard { alive: Watched::add() }),
            error => Err(io::Error::from_raw_os_error(error as i32)),
        }
    }
}

/// A word that [`clear_in_child`] clears; a list of leaked nodes.
struct Watched {
    alive: AtomicU32,
    next: Option<&'static Watched>,
}

static WATCHED: AtomicPtr<Watched> = AtomicPtr::new(ptr::null_mut());

impl Watched {
    fn first() -> Option<&'static Watched> {
        // SAFETY: the list holds leaked nodes only, published by `add` with release.
        unsafe { WATCHED.load(Ordering::Acquire).as_ref() }
    }

    fn add() -> &'static AtomicU32 {
        let node = Box::leak(Box::new(Watched { alive: AtomicU32::new(1), next: None }));
        let node: *mut Watched = node;
        loop {
            let head = Watched::first();
            // SAFETY: the node is leaked and not published yet, so this thread alone touches it.
            unsafe { (*node).next = head };
            let expected = head.map_or(ptr::null_mut(), |head| ptr::from_ref(head).cast_mut());
            if WATCHED.compare_exchange(expected, node, Ordering::Release, Ordering::Relaxed).is_ok() {
                // SAFETY: leaked, and from now on only shared.
                return unsafe { &(*node).alive };
            }
        }
    }
}

extern "C" fn clear_in_child() {
    let mut node = Watched::first();
    while let Some(watched) = node {
        watched.alive.store(0, Ordering::Relaxed);
        node = watched.next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Exit status of a child that reports what the guard tells it.
    fn in_child(guard: ForkGuard) -> i32 {
        // SAFETY: the child calls nothing but `_exit`.
        unsafe {
            match libc::fork() {
                -1 => panic!("fork failed: {}", io::Error::last_os_error()),
                0 => libc::_exit(if guard.is_same_process() { 1 } else { 42 }),
                child => {
                    let mut status = 0;
                    assert_eq!(libc::waitpid(child, &mut status, 0), child);
                    libc::WEXITSTATUS(status)
                }
            }
        }
    }

    #[test]
    fn a_child_is_told_from_its_parent() {
        let handler = [ForkGuard::cleared_by_handler(), ForkGuard::cleared_by_handler()];
        let kernel = ForkGuard::wiped_by_kernel();
        for guard in handler.into_iter().chain([kernel]).map(Result::unwrap) {
            assert!(guard.is_same_process());
            assert_eq!(in_child(guard), 42);
            assert!(guard.is_same_process(), "the parent's guard is untouched");
        }
    }
}
