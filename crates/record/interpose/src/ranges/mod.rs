//! The ranges that the program names (NVTX), and those that are open in each thread.
//!
//! A range is a name inside of another range: what has the same names around it has the same
//! identifier, however often it is entered. Each thread keeps a stack of the ranges that it is in.
//! Domains push and pop independently of each other, so a range may end while others that began
//! later stay open; these move into the range around it.
//!
//! This room knows nothing of sessions: ranges may begin before there is one. Identifiers belong to
//! a process, and a forked child begins anew, outside of all ranges. Domains and registered strings
//! ([`texts`]) outlive a fork, since the program keeps their handles.

mod table;
pub mod texts;

pub use table::table;

use crate::hot::hot;
use crate::switch::guarded;
use apex_trace::ForkGuard;
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

/// Open ranges of a thread that are kept, the outermost ones.
const DEPTH: usize = 64;

/// A change of a thread's ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The innermost range that is open now; 0 for none.
    pub range: u32,
    /// The range that began or ended; 0 for one that has no identifier.
    pub changed: u32,
    /// The number of ranges of its domain around it.
    pub level: i32,
}

#[derive(Clone, Copy)]
struct Entry {
    domain: u32,
    range: u32,
}

/// The ranges that a thread is in.
struct Open {
    guard: ForkGuard,
    entries: [Entry; DEPTH],
    count: usize,
    /// Ranges that began while there was no room for more.
    beyond: u32,
}

thread_local! {
    /// The calling thread's ranges; null before the first one, and while they are looked at.
    static OPEN: Cell<*mut Open> = const { Cell::new(null_mut()) };
}

impl Open {
    fn entries(&self) -> &[Entry] {
        &self.entries[..self.count]
    }

    /// The innermost range below the entry at `end`.
    fn innermost(&self, end: usize) -> u32 {
        self.entries[..end].last().map_or(0, |entry| entry.range)
    }

    fn level(&self, domain: u32, end: usize) -> i32 {
        self.entries[..end].iter().filter(|entry| entry.domain == domain).count() as i32
    }

    fn push(&mut self, domain: u32, name: &str) -> Option<Change> {
        let (parent, at) = (self.innermost(self.count), self.count);
        if at == DEPTH {
            self.beyond = self.beyond.saturating_add(1);
            return None;
        }
        let range = table()?.range(parent, domain, name);
        self.entries[at] = Entry { domain, range };
        self.count += 1;
        let changed = if range == parent { 0 } else { range };
        Some(Change { range, changed, level: self.level(domain, at) })
    }

    fn pop(&mut self, domain: u32) -> Option<Change> {
        if self.beyond > 0 {
            self.beyond -= 1;
            return None;
        }
        let at = self.entries().iter().rposition(|entry| entry.domain == domain)?;
        let ended = self.entries[at].range;
        let changed = if ended == self.innermost(at) { 0 } else { ended };
        self.entries.copy_within(at + 1..self.count, at);
        self.count -= 1;
        for above in at..self.count {
            let parent = self.innermost(above);
            self.entries[above].range = table()?.moved(self.entries[above].range, parent);
        }
        Some(Change { range: self.innermost(self.count), changed, level: self.level(domain, at) })
    }
}

/// Lends the calling thread's ranges to `work`; `None` where there is no memory for them, or in a
/// signal handler that interrupts another such call.
fn with_open<R>(work: impl FnOnce(&mut Open) -> Option<R>) -> Option<R> {
    let mut open = OPEN.replace(null_mut());
    // SAFETY: null, or made by `make` in this thread and freed only when the thread ends; it was
    // taken out of its place, so nobody else has it.
    if !unsafe { open.as_ref() }.is_some_and(|open| open.guard.is_same_process()) {
        // (In a child of the process that made it, it is left alone: another thread is not there
        // to free its own either.)
        open = guarded(make)??;
    }
    // SAFETY: as above.
    let result = work(unsafe { &mut *open });
    OPEN.set(open);
    result
}

fn make() -> Option<*mut Open> {
    let guard = table()?.guard();
    hot().has_ranges.store(true, Relaxed);
    let entries = [Entry { domain: 0, range: 0 }; DEPTH];
    let open = Box::into_raw(Box::new(Open { guard, entries, count: 0, beyond: 0 }));
    // SAFETY: a valid key. A failure only means that the memory outlives the thread.
    unsafe { libc::pthread_setspecific(key()?, open.cast_const().cast()) };
    Some(open)
}

/// The key whose destructor frees a thread's ranges.
fn key() -> Option<libc::pthread_key_t> {
    static KEY: OnceLock<Option<libc::pthread_key_t>> = OnceLock::new();
    *KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: `key` is valid for writing, and `free` is what a destructor must be.
        (unsafe { libc::pthread_key_create(&mut key, Some(free)) } == 0).then_some(key)
    })
}

unsafe extern "C" fn free(open: *mut c_void) {
    if OPEN.replace(null_mut()).cast() == open {
        // SAFETY: made by `make` from a box; its place is empty now, so nobody finds it any more.
        guarded(|| drop(unsafe { Box::from_raw(open.cast::<Open>()) }));
    }
}

/// The thread enters a range; `None` if that is not noted.
pub fn push(domain: u32, name: &str) -> Option<Change> {
    with_open(|open| open.push(domain, name))
}

/// The thread leaves the innermost range of a domain; `None` if it is in none.
pub fn pop(domain: u32) -> Option<Change> {
    with_open(|open| open.pop(domain))
}

/// The ranges that the calling thread is in, the outermost first. Makes no table, and none for the
/// thread.
pub fn open() -> impl Iterator<Item = u32> {
    let open = OPEN.get();
    // SAFETY: as in `with_open`; nothing is made of the copy but its entries.
    let ours = unsafe { open.as_ref() }.filter(|open| open.guard.is_same_process());
    let (entries, count) = ours.map_or(([Entry { domain: 0, range: 0 }; DEPTH], 0), |o| (o.entries, o.count));
    (0..count).map(move |at| entries[at].range)
}

/// The innermost range that the calling thread is in; 0 for none.
#[inline(always)]
pub fn current() -> u32 {
    if hot().has_ranges.load(Relaxed) { innermost() } else { 0 }
}

fn innermost() -> u32 {
    // SAFETY: as in `with_open`.
    let open = unsafe { OPEN.get().as_ref() };
    open.filter(|open| open.guard.is_same_process()).map_or(0, |open| open.innermost(open.count))
}
