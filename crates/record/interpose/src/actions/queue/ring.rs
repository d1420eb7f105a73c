//! The ring of calls that wait to be made: any thread puts calls in, one thread takes them out.
//!
//! A call gets a *ticket*, and calls are taken in the order of their tickets. Each place of the
//! ring has a *turn*, which says who may touch it next: at turn `t` the thread that holds ticket
//! `t`, at turn `t + 1` the thread that takes calls out.
//!
//! Invariants:
//! 1. What a place holds is written by the holder of its ticket, before it passes the turn on with
//!    release; it is read by the taker after it has seen that turn with acquire.
//! 2. No ticket is given out while the ring is closed. Closing and giving out tickets are changes
//!    of one word, so a ticket was given before the ring was closed, or not at all.
//! 3. A ticket that was given out is always followed by a call: between the two, nothing can fail.

use super::Kind;
use crate::ranges;
use cuda_abi::types::CUcontext;
use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

/// Calls that can wait at a time.
pub const PLACES: usize = 1024;
/// Calls that wait at most when a thread that found the ring full goes on: so it hands hundreds
/// over at once, and does not follow the taker from place to place.
const RESUMED_AT: u64 = PLACES as u64 / 4;
/// Bytes of arguments that a place holds itself.
const INLINE_BYTES: usize = 448;
/// Bytes of arguments that a call can have: 32 KiB of parameters, and what describes the launch.
pub const LARGEST_BYTES: usize = 40 * 1024;
/// Lines of a place that most calls use.
const FETCHED_LINES: usize = 5;
/// In the word of tickets: no further ticket is given out.
const CLOSED: u64 = 1 << 63;

/// See the [module](self).
pub struct Ring {
    /// Tickets given out, and [`CLOSED`].
    tickets: Line<AtomicU64>,
    /// Calls that were made.
    made: Line<AtomicU64>,
    places: Box<[Place]>,
    /// Room for the arguments of calls that do not fit their places: [`LARGEST_BYTES`] for each
    /// place. Address space, of which only what is used becomes memory.
    large: NonNull<u8>,
}

// SAFETY: places are handed from thread to thread as the module's first invariant says; `large` is
// divided among places.
unsafe impl Sync for Ring {}
// SAFETY: the ring owns plain memory.
unsafe impl Send for Ring {}

/// A value on a cache line of its own.
#[derive(Default)]
#[repr(align(64))]
struct Line<T>(T);

#[repr(C, align(64))]
struct Place {
    turn: AtomicU64,
    call: UnsafeCell<MaybeUninit<Waiting>>,
    arguments: UnsafeCell<MaybeUninit<[u64; INLINE_BYTES / 8]>>,
}

/// A call that waits.
#[derive(Clone, Copy)]
pub struct Waiting {
    /// The functions that make the call.
    pub kind: &'static Kind,
    /// The context in which it is to be made.
    pub context: CUcontext,
    /// The range in which the program made it.
    pub range: u32,
    /// Its arguments, as `make` wants them.
    pub arguments: *mut u8,
}

impl Waiting {
    /// Whether the program made it. The queue's own calls have no context.
    #[inline(always)]
    pub fn is_programs(&self) -> bool {
        !self.context.is_null()
    }
}

impl Ring {
    /// An empty ring, closed; `None` if there is no memory for it.
    pub fn new() -> Option<Ring> {
        let mut places = Vec::new();
        places.try_reserve_exact(PLACES).ok()?;
        places.extend((0..PLACES as u64).map(|turn| Place {
            turn: AtomicU64::new(turn),
            call: UnsafeCell::new(MaybeUninit::uninit()),
            arguments: UnsafeCell::new(MaybeUninit::uninit()),
        }));
        Some(Ring {
            tickets: Line(AtomicU64::new(CLOSED)),
            made: Line::default(),
            places: places.into_boxed_slice(),
            large: reserve(PLACES * LARGEST_BYTES)?,
        })
    }

    /// Whether no ticket is given out.
    #[inline(always)]
    pub fn is_closed(&self) -> bool {
        self.tickets.0.load(Acquire) & CLOSED != 0
    }

    /// Tickets are given out from now on.
    pub fn open(&self) {
        self.tickets.0.fetch_and(!CLOSED, SeqCst);
    }

    /// No ticket is given out from now on.
    pub fn close(&self) {
        self.tickets.0.fetch_or(CLOSED, SeqCst);
    }

    /// Tickets given out so far.
    #[inline(always)]
    pub fn given(&self) -> u64 {
        self.tickets.0.load(SeqCst) & !CLOSED
    }

    /// Calls made so far.
    #[inline(always)]
    pub fn made(&self) -> u64 {
        self.made.0.load(SeqCst)
    }

    /// Puts a call in, whose `bytes` of arguments `write` writes, aligned to 8 bytes. False, and
    /// nothing was written, if the ring is closed. Waits while the ring is full.
    ///
    /// `bytes` are at most [`LARGEST_BYTES`]; `write` must not unwind.
    #[inline(always)]
    pub fn put(
        &self,
        kind: &'static Kind,
        context: CUcontext,
        bytes: usize,
        write: impl FnOnce(*mut u8),
    ) -> bool {
        debug_assert!(bytes <= LARGEST_BYTES);
        let Some(ticket) = self.take_ticket() else { return false };
        let at = ticket as usize % PLACES;
        let place = &self.places[at];
        if place.turn.load(Acquire) != ticket {
            self.wait_for_turn(ticket);
        }
        let arguments = if bytes <= INLINE_BYTES {
            place.arguments.get().cast::<u8>()
        } else {
            // SAFETY: the room has so many bytes for each place.
            unsafe { self.large.as_ptr().add(at * LARGEST_BYTES) }
        };
        write(arguments);
        // SAFETY: it is this ticket's turn, so nobody else touches the place.
        unsafe { (*place.call.get()).write(Waiting { kind, context, range: ranges::current(), arguments }) };
        place.turn.store(ticket + 1, Release);
        self.fetch_place(ticket + 1);
        true
    }

    /// Fetches the place of a ticket that comes soon: the taker's processor had it last, and what
    /// is written there would wait for it.
    #[inline(always)]
    fn fetch_place(&self, ticket: u64) {
        let place = std::ptr::from_ref(&self.places[ticket as usize % PLACES]).cast::<i8>();
        for line in 0..FETCHED_LINES {
            // SAFETY: a prefetch reads and writes nothing; the lines are the place's.
            unsafe { _mm_prefetch::<_MM_HINT_ET0>(place.add(line * 64)) };
        }
    }

    /// The call with the next ticket, if it is there. The taker alone asks, and then says that it
    /// was made ([`Ring::were_made`]).
    #[inline(always)]
    pub fn next(&self) -> Option<Waiting> {
        self.peek(0)
    }

    /// Whether the call with the next ticket is there. Any thread may ask; the answer may be old.
    pub fn has_next(&self) -> bool {
        let ticket = self.made();
        self.places[ticket as usize % PLACES].turn.load(Acquire) == ticket + 1
    }

    /// Returns the call `behind` places behind the next one (less than [`PLACES`]), if it is there.
    /// Only the taker may call this.
    #[inline(always)]
    pub fn peek(&self, behind: usize) -> Option<Waiting> {
        let ticket = self.made.0.load(Relaxed) + behind as u64;
        let place = &self.places[ticket as usize % PLACES];
        // SAFETY: at this turn the call was written, and the place is the taker's.
        (place.turn.load(Acquire) == ticket + 1).then(|| unsafe { (*place.call.get()).assume_init() })
    }

    /// The next `count` calls, all of which are there, were made: their places are free.
    #[inline(always)]
    pub fn were_made(&self, count: usize) {
        let first = self.made.0.load(Relaxed);
        let end = first + count as u64;
        for ticket in first..end {
            self.places[ticket as usize % PLACES].turn.store(ticket + PLACES as u64, Release);
        }
        self.made.0.store(end, SeqCst);
    }

    #[inline(always)]
    fn take_ticket(&self) -> Option<u64> {
        let mut seen = self.tickets.0.load(Relaxed);
        while seen & CLOSED == 0 {
            match self.tickets.0.compare_exchange_weak(seen, seen + 1, AcqRel, Relaxed) {
                Ok(ticket) => return Some(ticket),
                Err(now) => seen = now,
            }
        }
        None
    }

    /// Waits until few calls wait, among which its place is free. All calls before the ticket are
    /// made without it, so this ends.
    #[cold]
    fn wait_for_turn(&self, ticket: u64) {
        let mut rounds = 0_u32;
        while self.made() + RESUMED_AT < ticket {
            super::wait::pause(&mut rounds);
        }
    }
}

/// Address space of `bytes`, zeroed where it is touched; `None` if the system has none.
fn reserve(bytes: usize) -> Option<NonNull<u8>> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let base = unsafe { libc::mmap(null_mut::<c_void>(), bytes, protection, flags, -1, 0) };
    if base == libc::MAP_FAILED { None } else { NonNull::new(base.cast()) }
}
