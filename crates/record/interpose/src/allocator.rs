//! Memory of the library: the system's, and a small reserve for the moment when the system has none
//! left.
//!
//! Rust aborts the process where an allocation that cannot fail fails, and this process is
//! somebody's program. So whatever can grow large is reserved by calls that can fail, and
//! everything else (a path, a message, a small structure) comes out of a static reserve once the
//! system refuses. The first refusal ends recording ([`crate::switch::stop`]): afterwards no work
//! begins that allocates, so the reserve has to last for what is under way.
//!
//! The allocator serves `libapex.so`. It is part of every program that links this crate too, where
//! it is the system's.

use crate::switch::{self, Stop};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::ptr::null_mut;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// Bytes of the reserve.
const RESERVE_BYTES: usize = 256 * 1024;
/// Longest piece that comes out of the reserve. Longer ones are reserved by calls that can fail.
const LONGEST_PIECE: usize = 16 * 1024;

#[repr(align(64))]
struct Reserve(UnsafeCell<[u8; RESERVE_BYTES]>);

// SAFETY: pieces are handed out once each, by an atomic count.
unsafe impl Sync for Reserve {}

static RESERVE: Reserve = Reserve(UnsafeCell::new([0; RESERVE_BYTES]));
static HANDED_OUT: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

struct Allocator;

/// A piece of the reserve, zeroed and never reused; null if there is none.
fn piece(layout: Layout) -> *mut u8 {
    switch::stop(Stop::NoMemory);
    if layout.size() > LONGEST_PIECE || layout.align() > 64 {
        return null_mut();
    }
    let taken = |used: usize| {
        let end = used.next_multiple_of(layout.align()) + layout.size();
        (end <= RESERVE_BYTES).then_some(end)
    };
    match HANDED_OUT.fetch_update(Relaxed, Relaxed, taken) {
        // SAFETY: within the reserve, as was just checked.
        Ok(used) => unsafe { RESERVE.0.get().cast::<u8>().add(used.next_multiple_of(layout.align())) },
        Err(_) => null_mut(),
    }
}

fn is_of_reserve(pointer: *mut u8) -> bool {
    (pointer as usize).wrapping_sub(RESERVE.0.get() as usize) < RESERVE_BYTES
}

// SAFETY: memory is the system's, or a piece of the reserve that nobody else has; neither is both.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract is the system allocator's.
        let made = unsafe { System.alloc(layout) };
        if made.is_null() { piece(layout) } else { made }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        let made = unsafe { System.alloc_zeroed(layout) };
        if made.is_null() { piece(layout) } else { made }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if !is_of_reserve(pointer) {
            // SAFETY: as above; the memory is the system's.
            unsafe { System.dealloc(pointer, layout) };
        }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !is_of_reserve(pointer) {
            // SAFETY: as above; the memory is the system's.
            let made = unsafe { System.realloc(pointer, layout, size) };
            if !made.is_null() {
                return made;
            }
        }
        // SAFETY: the caller's contract: the size is valid for the alignment, and as many bytes as
        // both have are readable.
        unsafe {
            let made = piece(Layout::from_size_align_unchecked(size, layout.align()));
            if !made.is_null() {
                std::ptr::copy_nonoverlapping(pointer, made, layout.size().min(size));
                self.dealloc(pointer, layout);
            }
            made
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_hands_out_pieces_that_do_not_overlap_and_ends() {
        let layout = Layout::from_size_align(1000, 16).unwrap();
        let mut pieces: Vec<usize> =
            std::iter::repeat_with(|| piece(layout) as usize).take_while(|&piece| piece != 0).collect();
        pieces.sort_unstable();
        assert!(pieces.len() > 200, "{}", pieces.len());
        assert!(pieces.windows(2).all(|pair| pair[1] - pair[0] >= 1000));
        assert!(pieces.iter().all(|&piece| piece % 16 == 0 && is_of_reserve(piece as *mut u8)));
        assert!(piece(Layout::from_size_align(LONGEST_PIECE + 1, 1).unwrap()).is_null());
    }
}
