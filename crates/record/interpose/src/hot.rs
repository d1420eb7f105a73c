//! The data that every recorded launch reads and that belongs to no thread, in one page.
//!
//! Between two launches, the program and the driver use the processor's caches and TLB. In a real
//! program each page that a launch touches, and each page that it reaches through another one,
//! costs some tens of nanoseconds. The switch, the epochs, the pointers to the threads' states and
//! the real driver's addresses are therefore in one page, and the data that belongs to no thread is
//! in one cache line. These modules describe the parts: [`crate::switch`], [`crate::objects`],
//! [`crate::actions::pool::work`], [`crate::actions::queue`], [`crate::ranges`],
//! [`crate::record::thread`], [`crate::driver`].

use cuda_abi::{COUNT, index};
use std::mem::offset_of;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize};

/// Threads whose state is found in the page, where their thread pointers do not collide.
const THREADS: usize = 64;
/// Threads whose entries are in the first line.
const FIRST: usize = 2;
const PAGE_BYTES: usize = 4096;

/// See the [module](self).
#[repr(C, align(4096))]
pub struct Hot {
    /// The session's switch for recording. Never null.
    pub recording: AtomicPtr<AtomicU32>,
    /// See [`Epochs`].
    pub epochs: Epochs,
    /// Captures that are under way or about to begin ([`crate::objects::captures`]).
    pub captures: AtomicU32,
    /// Whether calls that submit work are watched ([`crate::actions::pool::work`]).
    pub is_watched: AtomicBool,
    /// Whether any thread has ever named a range ([`crate::ranges`]): most programs name none.
    pub has_ranges: AtomicBool,
    /// Whether the launch queue is open ([`crate::actions::queue`]).
    pub hands_over: AtomicBool,
    /// Entries of the threads that came first: in the line of the other fields.
    first: [Entry; FIRST],
    threads: [Entry; THREADS],
    /// The real driver's entry points, by index.
    pub real: [AtomicPtr<()>; COUNT],
}

/// Moments after which what was known of handles may be wrong. Each only ever grows.
pub struct Epochs {
    /// Ends when a module or library is unloaded, a function's attributes change, or a context is
    /// destroyed: functions.
    pub modules: AtomicU32,
    /// Ends when a stream or context is destroyed: what threads remember of streams.
    pub streams: AtomicU32,
    /// Ends when a context is destroyed or may have been: what threads remember of their current
    /// context.
    pub contexts: AtomicU32,
    /// Ends when memory is allocated on the host, registered or freed: what threads remember of
    /// addresses.
    pub memory: AtomicU32,
}

const _: () = assert!(offset_of!(Hot, threads) == 64);
const _: () = assert!(offset_of!(Hot, real) + 8 * (index::cuLaunchKernel_ptsz + 1) <= PAGE_BYTES);

static HOT: Hot = Hot {
    recording: AtomicPtr::new((&raw const OFF).cast_mut()),
    epochs: Epochs {
        modules: AtomicU32::new(0),
        streams: AtomicU32::new(0),
        contexts: AtomicU32::new(0),
        memory: AtomicU32::new(0),
    },
    captures: AtomicU32::new(0),
    is_watched: AtomicBool::new(false),
    has_ranges: AtomicBool::new(false),
    hands_over: AtomicBool::new(false),
    first: [FREE; FIRST],
    threads: [FREE; THREADS],
    real: [const { AtomicPtr::new(null_mut()) }; COUNT],
};

/// A reference to a static of this library. The compiler looks for the address of one that other
/// crates may see in a table, which is one more line and page to touch.
macro_rules! own {
    ($name:path: $type:ty) => {{
        let address: *const $type;
        // SAFETY: computes the address of the static, whose type this is.
        unsafe {
            std::arch::asm!(
                "lea {address}, [rip + {symbol}]",
                address = out(reg) address,
                symbol = sym $name,
                options(nomem, nostack, preserves_flags, pure),
            );
            let _: *const $type = &raw const $name;
            &*address
        }
    }};
}
pub(crate) use own;

/// The one of this library.
#[inline(always)]
pub fn hot() -> &'static Hot {
    own!(HOT: Hot)
}

/// A switch that is off.
pub static OFF: AtomicU32 = AtomicU32::new(0);

#[allow(clippy::declare_interior_mutable_const, reason = "each use is an entry of its own")]
const FREE: Entry = Entry { thread: AtomicUsize::new(0), state: AtomicPtr::new(null_mut()) };

/// The state of the thread with this thread pointer. A thread takes an entry that no other thread
/// has, and only that thread changes the entry until it leaves it: what it reads there is its own.
#[repr(align(16))]
struct Entry {
    thread: AtomicUsize,
    state: AtomicPtr<()>,
}

impl Hot {
    /// Returns the state that the calling thread has set; null if there is none, or no entry for
    /// it.
    #[inline(always)]
    pub fn state(&self) -> *const () {
        let thread = thread_pointer();
        let is_its = |entry: &&Entry| entry.thread.load(Relaxed) == thread;
        let entry = self.entries(thread).find(is_its);
        entry.map_or(null_mut(), |entry| entry.state.load(Relaxed))
    }

    /// Sets the calling thread's state, if there is an entry for it.
    pub fn set_state(&self, state: *const ()) {
        let thread = thread_pointer();
        let is_its = |entry: &&Entry| entry.thread.load(Relaxed) == thread;
        let becomes_its = |entry: &&Entry| entry.thread.compare_exchange(0, thread, Relaxed, Relaxed).is_ok();
        let own = self.entries(thread).find(is_its);
        if let Some(entry) = own.or_else(|| self.entries(thread).find(becomes_its)) {
            entry.state.store(state.cast_mut(), Relaxed);
        }
    }

    /// The calling thread ends: its entry is free.
    pub fn leave(&self) {
        let thread = thread_pointer();
        if let Some(entry) = self.entries(thread).find(|entry| entry.thread.load(Relaxed) == thread) {
            entry.state.store(null_mut(), Relaxed);
            entry.thread.store(0, Release);
        }
    }

    /// The entries that the thread may have. Threads' control blocks are pages apart, and their
    /// stacks megabytes.
    #[inline(always)]
    fn entries(&self, thread: usize) -> impl Iterator<Item = &Entry> {
        let other = &self.threads[(thread >> 6 ^ thread >> 12 ^ thread >> 23) % THREADS];
        self.first.iter().chain(std::iter::once(other))
    }
}

/// Returns the identity of the calling thread among all living ones: the address of its control
/// block, whose first word holds it (the System V ABI for x86-64).
#[inline(always)]
fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: reads a word that every thread has.
    unsafe {
        std::arch::asm!(
            "mov {pointer}, qword ptr fs:[0]",
            pointer = out(reg) pointer,
            options(nostack, preserves_flags, readonly, pure),
        );
    }
    pointer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_finds_its_own_state_or_none() {
        let threads: Vec<_> = (0..200)
            .map(|number: usize| {
                std::thread::spawn(move || {
                    let mine = std::ptr::without_provenance(number + 1);
                    assert!(hot().state().is_null());
                    hot().set_state(mine);
                    std::thread::yield_now();
                    let found = hot().state();
                    assert!(found.is_null() || found == mine);
                    hot().set_state(null_mut());
                    assert!(hot().state().is_null());
                    hot().leave();
                    !found.is_null()
                })
            })
            .collect();
        let found = threads.into_iter().filter_map(|thread| thread.join().ok()).filter(|&found| found);
        assert!(found.count() > 0);
        assert!(
            hot().first.iter().chain(&hot().threads).all(|entry| entry.thread.load(Relaxed) == 0),
            "all entries are free again"
        );
    }
}
