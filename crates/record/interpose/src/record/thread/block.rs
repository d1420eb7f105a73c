//! The memory of a thread's state.
//!
//! A launch meets a processor whose caches and TLB the program and the driver have used since the
//! last one. So the state and its cache of launches are one block, whose first page holds
//! everything that a launch looks at but the configuration itself; and whether the state may be
//! used, which includes that this process is not a forked child of the one that made it, is one
//! word of that page: the kernel wipes the block in a child (`MADV_WIPEONFORK`), or, before Linux
//! 4.14, the child forgets it.

use super::super::launch::LaunchCache;
use super::{Thread, current};
use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;
use std::ptr::{NonNull, null, null_mut};
use std::sync::Once;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// The state of a block: whether it may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// It is another process's. (What a wiped block says.)
    Gone = 0,
    Ready = 1,
    /// It is lent out.
    Busy = 2,
}

/// See the [module](self).
#[repr(C, align(4096))]
pub struct Block {
    state: Cell<State>,
    thread: UnsafeCell<MaybeUninit<Thread>>,
    launches: UnsafeCell<LaunchCache>,
}

impl Block {
    /// Bytes of a block.
    pub const BYTES: usize = size_of::<Block>();

    /// A zeroed block; `None` if the system has no memory for it.
    pub fn map() -> Option<NonNull<Block>> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at an address of the kernel's choice, which is a page's; the advice
        // changes nothing in this process.
        unsafe {
            let base = libc::mmap(null_mut(), Block::BYTES, protection, flags, -1, 0);
            if base == libc::MAP_FAILED {
                return None;
            }
            if libc::madvise(base, Block::BYTES, libc::MADV_WIPEONFORK) != 0 && !children_forget() {
                libc::munmap(base, Block::BYTES);
                return None;
            }
            NonNull::new(base.cast())
        }
    }

    /// Gives the memory of a block back.
    ///
    /// # Safety
    /// It came from [`Block::map`], and nobody refers to it any more.
    pub unsafe fn unmap(block: NonNull<Block>) {
        // SAFETY: by contract.
        unsafe { libc::munmap(block.as_ptr().cast(), Block::BYTES) };
    }

    #[inline(always)]
    pub fn state(&self) -> State {
        self.state.get()
    }

    #[inline(always)]
    pub fn set_state(&self, state: State) {
        self.state.set(state);
    }

    /// The thread's state, which is initialised unless the block is new or wiped.
    #[inline(always)]
    pub fn thread(&self) -> *mut Thread {
        self.thread.get().cast()
    }

    /// The thread's cache of launches: empty in a new block.
    #[inline(always)]
    pub fn launches(&self) -> *mut LaunchCache {
        self.launches.get()
    }
}

/// Arranges that the one thread of a forked child has no state; returns false if that cannot be
/// arranged.
fn children_forget() -> bool {
    extern "C" fn forget() {
        current::set(null());
    }
    static REGISTER: Once = Once::new();
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    REGISTER.call_once(|| {
        // SAFETY: `forget` stores one word of the calling thread.
        let is_registered = unsafe { libc::pthread_atfork(None, None, Some(forget)) } == 0;
        REGISTERED.store(is_registered, Relaxed);
    });
    REGISTERED.load(Relaxed)
}
