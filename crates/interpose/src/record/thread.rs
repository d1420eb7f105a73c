//! What each thread of a recorded process keeps to itself: its way into the session file, and
//! caches that make the launch path a matter of a few cache lines.
//!
//! The state is made when a thread's first call is recorded and freed when the thread ends.
//! [`Here::lend`] lends it out, never twice at a time: should a call be recorded from within
//! recording (the driver calls back, or a signal handler makes a driver call), the inner one is
//! counted as dropped and goes through untouched.

mod current;

use super::Recorder;
use super::launch::LaunchCache;
use super::stacks::Noted;
use crate::driver;
use crate::objects::addresses::KnownAddresses;
use crate::objects::{Objects, streams};
use crate::switch::guarded;
use crate::timing::Pending;
use apex_trace::layout::{RangeChange, Slots};
use apex_trace::{Control, ForkGuard, Lane, TickCounter};
use cuda_abi::types::*;
use std::cell::{Cell, UnsafeCell};
use std::ffi::c_void;
use std::ptr::null;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

/// Least uses of the current context's identifier after which the driver is asked again, in case it
/// was changed by ways that no hook sees; up to 15 more, so 64 on average.
const CONTEXT_USES: u32 = 57;

/// Streams that a thread remembers.
const STREAMS: usize = 8;

/// A thread's state. What every launch looks at comes first: between two launches the driver has
/// used the processor's caches for itself, so each line that is touched costs.
#[repr(C)]
pub struct Thread {
    /// The driver objects of this process.
    pub objects: &'static Objects,
    /// The session's control page.
    pub control: &'static Control,
    /// What its records' times are read from.
    pub clock: TickCounter,
    context: u32,
    context_epoch: u32,
    context_uses: u32,
    id: u32,
    /// Launch configurations seen lately.
    pub launches: LaunchCache,
    lane: Lane,
    /// The recorder of this process.
    pub recorder: &'static Recorder,
    streams: [KnownStream; STREAMS],
    /// What the program last set as current context.
    context_set: u64,
    /// Addresses asked about lately.
    pub addresses: KnownAddresses,
    /// Event pairs whose reading is awaited.
    pub pending: Pending,
    /// What it notes about its stacks.
    pub noted: Noted,
    /// The range that it has stated to be in; 0 for none.
    pub range: u32,
}

#[derive(Clone, Copy, Default)]
struct KnownStream {
    handle: u64,
    context: u32,
    epoch: u32,
    id: u32,
}

/// A thread's state, whether it is lent out, and whether it is this process's.
#[repr(C, align(64))]
struct Lent {
    busy: Cell<bool>,
    guard: ForkGuard,
    thread: UnsafeCell<Thread>,
}

/// The calling thread's state, or nothing if this process can't record, or if the state is lent out
/// already (then a record is counted as dropped).
#[inline(always)]
pub fn here() -> Option<Here> {
    let current = current::get();
    // SAFETY: null, or made by `attach` in this thread and freed only when the thread ends.
    match unsafe { current.as_ref() } {
        Some(current) if current.is_ready() => Some(Here(current)),
        _ => attach(),
    }
}

/// As [`here`], but only if the thread has recorded before.
fn here_already() -> Option<Here> {
    // SAFETY: as in `here`.
    unsafe { current::get().as_ref() }.filter(|current| current.is_ready()).map(Here)
}

/// Lends the calling thread's state to `work`.
#[inline(always)]
pub fn with<R>(work: impl FnOnce(&mut Thread) -> R) -> Option<R> {
    here()?.lend(work)
}

/// Lends the calling thread's state to `work`, if the thread has recorded before.
pub fn with_existing(work: impl FnOnce(&mut Thread)) {
    here_already().and_then(|here| here.lend(work));
}

/// A thread's state, for that thread.
#[derive(Clone, Copy)]
pub struct Here(&'static Lent);

impl Here {
    /// Lends the state to `work`, if it can be lent.
    #[inline(always)]
    pub fn lend<R>(self, work: impl FnOnce(&mut Thread) -> R) -> Option<R> {
        let lent = self.0;
        if !lent.is_ready() {
            return None;
        }
        lent.busy.set(true);
        // SAFETY: `busy` was false, so nobody in this thread holds a reference; other threads have
        // no way to it, for `Here` is not `Send`.
        let result = work(unsafe { &mut *lent.thread.get() });
        lent.busy.set(false);
        Some(result)
    }
}

impl Lent {
    #[inline(always)]
    fn is_ready(&self) -> bool {
        !self.busy.get() && self.guard.is_same_process()
    }
}

/// Makes the calling thread's state where there is none that can be used.
#[cold]
fn attach() -> Option<Here> {
    // SAFETY: as in `here`. (In a child of the process that made it, it is left alone, since the
    // parent's chunk is mapped in it.)
    if let Some(current) = unsafe { current::get().as_ref() }
        && current.guard.is_same_process()
    {
        // SAFETY: a shared look at a field that never changes.
        unsafe { (*current.thread.get()).recorder }.file.count_dropped(1);
        return None;
    }
    guarded(|| {
        let recorder = Recorder::start()?;
        apex_trace::fault::unblock();
        let thread = Box::new(Lent {
            busy: Cell::new(false),
            guard: recorder.file.guard(),
            thread: UnsafeCell::new(Thread::new(recorder)?),
        });
        let thread: &'static Lent = Box::leak(thread);
        current::set(thread);
        // SAFETY: a valid key. A failure only means that the state outlives the thread.
        unsafe { libc::pthread_setspecific(key()?, std::ptr::from_ref(thread).cast()) };
        let here = Here(thread);
        here.lend(Thread::state_open_ranges);
        Some(here)
    })?
}

/// The key whose destructor frees a thread's state.
fn key() -> Option<libc::pthread_key_t> {
    static KEY: OnceLock<Option<libc::pthread_key_t>> = OnceLock::new();
    *KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: `key` is valid for writing, and `detach` is what a destructor must be.
        (unsafe { libc::pthread_key_create(&mut key, Some(detach)) } == 0).then_some(key)
    })
}

/// Frees a thread's state when the thread ends. A driver call from a later destructor makes
/// another.
unsafe extern "C" fn detach(thread: *mut c_void) {
    current::set(null());
    let thread: *mut Lent = thread.cast();
    // SAFETY: the key's value was set by `attach`, once, from a box that nobody else frees.
    if unsafe { (*thread).guard.is_same_process() } {
        // SAFETY: as above.
        let mut thread = unsafe { Box::from_raw(thread) };
        guarded(|| thread.thread.get_mut().give_up_pairs());
        guarded(|| drop(thread));
    }
}

/// Whether setting the current context to `context` changes anything for the calling thread.
pub fn sets_another_context(context: CUcontext) -> bool {
    with(|thread| std::mem::replace(&mut thread.context_set, context as u64) != context as u64)
        .unwrap_or(false)
}

impl Thread {
    /// `None` if there is no memory for it.
    fn new(recorder: &'static Recorder) -> Option<Thread> {
        let clock = TickCounter::decided();
        Some(Thread {
            noted: Noted::new(clock.now()),
            range: 0,
            objects: recorder.objects,
            control: recorder.control,
            clock,
            launches: LaunchCache::new()?,
            addresses: KnownAddresses::default(),
            pending: Pending::default(),
            lane: Lane::default(),
            recorder,
            id: streams::thread_id(),
            context: 0,
            context_epoch: 0,
            context_uses: 0,
            context_set: 0,
            streams: [KnownStream::default(); STREAMS],
        })
    }

    /// Gives the chunk that the thread writes to back, so that the end of the process leaves no
    /// reserved space behind.
    pub fn give_back_chunk(&mut self) {
        self.lane.give_back();
    }

    /// The thread ends: its event pairs go to whoever times next.
    fn give_up_pairs(&mut self) {
        self.pending.give_up(&self.recorder.timing);
    }

    /// Writes a record, or counts it as dropped.
    #[inline(always)]
    pub fn push<R: Slots>(&mut self, record: &R) {
        if !self.lane.try_record(record) {
            push_into_next_chunk(&mut self.lane, self.recorder, self.range, *record);
        }
    }

    /// Reads up to `most` of the event pairs that are done, and records them.
    pub fn read_pairs(&mut self, most: usize) {
        let (lane, recorder, range) = (&mut self.lane, self.recorder, self.range);
        self.pending.read(&recorder.timing, most, |timing| {
            if !lane.try_record(timing) {
                push_into_next_chunk(lane, recorder, range, *timing);
            }
        });
    }

    /// The identifier of the current context, 0 without one.
    #[inline(always)]
    pub fn context(&mut self) -> u32 {
        if self.context_uses == 0 || self.context_epoch != self.objects.epochs.contexts.load(Relaxed) {
            return self.ask_for_context();
        }
        self.context_uses -= 1;
        self.context
    }

    /// The time, in ticks, if the recorder is to take its own time around the launch that is about
    /// to be planned; else 0. One of [`CONTEXT_USES`] uses of the context is such a launch, and
    /// never the one that asks the driver for it.
    #[inline(always)]
    pub fn cost_sample_begun(&self) -> u64 {
        if self.context_uses == CONTEXT_USES / 2 { self.clock.now() } else { 0 }
    }

    #[cold]
    fn ask_for_context(&mut self) -> u32 {
        self.context_epoch = self.objects.epochs.contexts.load(Relaxed);
        let (recorder, handle) = (self.recorder, driver::current_context());
        let define = || guarded(|| recorder.context(handle)).unwrap_or(0);
        self.context = recorder.known_context(handle).unwrap_or_else(define);
        // Not always as many: or else samples would always meet the same launch of a loop.
        let more = (self.clock.now().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60) as u32;
        self.context_uses = if self.context == 0 { 0 } else { CONTEXT_USES + more };
        self.context
    }

    /// The thread's current context has changed.
    pub fn forget_context(&mut self) {
        self.context_uses = 0;
    }

    /// The identifier of a stream as [`streams::normalised`] gives it.
    #[inline(always)]
    pub fn stream(&mut self, stream: CUstream) -> u32 {
        let (handle, context) = (stream as u64, self.context);
        let epoch = self.objects.epochs.streams.load(Relaxed);
        let known = &self.streams[place_of(handle)];
        if known.handle == handle && known.context == context && known.epoch == epoch {
            return known.id;
        }
        self.look_up_stream(stream, epoch)
    }

    #[cold]
    fn look_up_stream(&mut self, stream: CUstream, epoch: u32) -> u32 {
        let context = self.context;
        let id = guarded(|| self.recorder.stream(stream, context, self.id)).unwrap_or(0);
        if id != 0 {
            let handle = stream as u64;
            self.streams[place_of(handle)] = KnownStream { handle, context, epoch, id };
        }
        id
    }

    /// Whether a call on `stream`, as [`streams::normalised`] gives it, is captured and not
    /// executed.
    #[inline(always)]
    pub fn is_captured(&self, stream: CUstream) -> bool {
        self.objects.captures.any() && !streams::is_legacy(stream) && driver::is_capturing(stream)
    }
}

#[cold]
#[inline(never)]
fn push_into_next_chunk<R: Slots>(lane: &mut Lane, recorder: &'static Recorder, range: u32, record: R) {
    guarded(|| {
        if range != 0 {
            // What is in this chunk must tell its range, should those before it be lost.
            lane.give_back();
            let head = RangeChange::head(0, apex_trace::now(), 0);
            lane.record(&recorder.file, &RangeChange { head, range, ..RangeChange::default() });
        }
        lane.record(&recorder.file, &record)
    });
}

/// Streams are allocated with headers of some hundred bytes.
#[inline(always)]
fn place_of(handle: u64) -> usize {
    (handle ^ handle >> 7 ^ handle >> 12) as usize % STREAMS
}
