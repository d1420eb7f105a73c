//! The state of each thread of a recorded process: its chunk of the session file, and caches that
//! reduce the launch path to a few cache lines.
//!
//! The state is made when a thread's first call is recorded, and freed when the thread ends.
//! [`Here::borrow`] lends it, never twice at a time: if a call is recorded from within recording
//! (the driver calls back, or a signal handler makes a driver call), the inner call is counted as
//! dropped and forwarded unchanged.
//!
//! Between two launches, the program and the driver use the processor's caches, so the data that a
//! launch needs is in few lines and few pages ([`block`]).

mod block;
mod current;

use super::Recorder;
use super::launch::LaunchCache;
use super::stacks::Noted;
use crate::driver;
use crate::hot::hot;
use crate::objects::addresses::KnownAddresses;
use crate::objects::{Objects, epochs, streams};
use crate::switch::guarded;
use crate::timing::{Candidates, Pending};
use apex_trace::layout::{RangeChange, Slots};
use apex_trace::{Control, Lane, TickCounter};
use block::{Block, State};
use cuda_abi::types::*;
use std::ffi::c_void;
use std::ops::{Deref, DerefMut};
use std::ptr::{NonNull, null};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

/// Least uses of the current context's identifier after which the driver is asked again, in case it
/// was changed by ways that no hook sees; up to 15 more, so 64 on average.
const CONTEXT_USES: u32 = 57;

/// Streams that a thread remembers.
const STREAMS: usize = 8;

/// Bytes of a thread's state.
pub const BYTES: usize = Block::BYTES;

/// A thread's state. What every launch looks at comes first, in two lines with the word before it
/// ([`block`]).
#[repr(C)]
pub struct Thread {
    /// The clock that its records' times are read from.
    pub clock: TickCounter,
    /// The driver objects of this process.
    pub objects: &'static Objects,
    /// The session's control page.
    pub control: &'static Control,
    context: u32,
    context_epoch: u32,
    context_uses: u32,
    id: u32,
    /// The stream that was used last.
    stream: KnownStream,
    lane: Lane,
    /// The recorder of this process.
    pub recorder: &'static Recorder,
    /// Streams used lately.
    streams: [KnownStream; STREAMS],
    /// The context that the program last set as current.
    context_set: u64,
    /// Addresses asked about lately.
    pub addresses: KnownAddresses,
    /// Event pairs whose reading is awaited.
    pub pending: Pending,
    /// The context last found to need no calibration any more; 0 for none.
    pub settled_context: u32,
    /// The notes about its stacks.
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

impl KnownStream {
    #[inline(always)]
    fn is(&self, handle: u64, context: u32, epoch: u32) -> bool {
        self.handle == handle && self.context == context && self.epoch == epoch
    }
}

/// The calling thread's state, or nothing if this process can't record, or if the state is lent out
/// already (then a record is counted as dropped).
#[inline(always)]
pub fn here() -> Option<Here> {
    near().or_else(find_or_attach)
}

/// The calling thread's state, if it is found in the page that all launches look at.
#[inline(always)]
fn near() -> Option<Here> {
    // SAFETY: null, or set by `attach` in this thread and freed only when the thread ends.
    let near = unsafe { hot().state().cast::<Block>().as_ref() };
    near.filter(|block| block.state() == State::Ready).map(Here)
}

#[cold]
fn find_or_attach() -> Option<Here> {
    here_already().or_else(attach)
}

/// As [`here`], but only if the thread has recorded before.
fn here_already() -> Option<Here> {
    // SAFETY: null, or made by `attach` in this thread and freed only when the thread ends.
    unsafe { current::get().as_ref() }.filter(|block| block.state() == State::Ready).map(Here)
}

/// Lends the calling thread's state to `work`.
#[inline(always)]
pub fn with<R>(work: impl FnOnce(&mut Thread) -> R) -> Option<R> {
    here()?.lend(work)
}

/// Lends the calling thread's state to `work`, if the thread has recorded before.
pub fn with_existing(work: impl FnOnce(&mut Thread)) {
    near().or_else(here_already).and_then(|here| here.lend(work));
}

/// A thread's state, for that thread.
#[derive(Clone, Copy)]
pub struct Here(&'static Block);

/// A thread's state that is lent out, until this is dropped.
pub struct Borrowed(&'static Block);

impl Here {
    /// Lends the state to `work`, if it can be lent.
    #[inline(always)]
    pub fn lend<R>(self, work: impl FnOnce(&mut Thread) -> R) -> Option<R> {
        self.borrow().map(|mut thread| work(&mut thread))
    }

    /// The state, if it can be lent.
    #[inline(always)]
    pub fn borrow(self) -> Option<Borrowed> {
        if self.0.state() != State::Ready {
            return None;
        }
        self.0.set_state(State::Busy);
        Some(Borrowed(self.0))
    }
}

impl Borrowed {
    /// The state, and the launch configurations that the thread has seen lately.
    #[inline(always)]
    pub fn parts(&mut self) -> (&mut Thread, &mut LaunchCache) {
        // SAFETY: as in `deref_mut`.
        unsafe { (&mut *self.0.thread(), &mut *self.0.launches()) }
    }
}

impl Deref for Borrowed {
    type Target = Thread;

    #[inline(always)]
    fn deref(&self) -> &Thread {
        // SAFETY: the state was ready, and is busy until `self` is dropped: nobody else in this
        // thread holds a reference; other threads have no way to it, for `Here` is not `Send`.
        unsafe { &*self.0.thread() }
    }
}

impl DerefMut for Borrowed {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Thread {
        // SAFETY: as in `deref`.
        unsafe { &mut *self.0.thread() }
    }
}

impl Drop for Borrowed {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.set_state(State::Ready);
    }
}

/// Makes the calling thread's state where there is none that can be used.
#[cold]
fn attach() -> Option<Here> {
    // SAFETY: as in `here_already`. (In a child of the process that made it, it is left alone,
    // since the parent's chunk is mapped in it.)
    if let Some(current) = unsafe { current::get().as_ref() }
        && current.state() == State::Busy
    {
        // SAFETY: a shared look at a field that never changes.
        unsafe { (*current.thread()).recorder }.file.count_dropped(1);
        return None;
    }
    guarded(|| {
        let recorder = Recorder::start()?;
        apex_trace::fault::unblock();
        let block = Block::map()?;
        // SAFETY: a new block, ours alone.
        unsafe { block.as_ref().thread().write(Thread::new(recorder)) };
        // SAFETY: mapped until the thread ends.
        let block: &'static Block = unsafe { block.as_ref() };
        block.set_state(State::Ready);
        current::set(block);
        let value = std::ptr::from_ref(block).cast();
        // SAFETY: a valid key. A failure only means that the state outlives the thread; no later
        // thread may find it then.
        if unsafe { libc::pthread_setspecific(key()?, value) } == 0 {
            hot().set_state(value.cast());
        }
        let here = Here(block);
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
unsafe extern "C" fn detach(block: *mut c_void) {
    current::set(null());
    hot().leave();
    let Some(block) = NonNull::new(block.cast::<Block>()) else { return };
    // SAFETY: the key's value was set by `attach`, once, and nobody else unmaps it.
    if unsafe { block.as_ref() }.state() != State::Gone {
        guarded(|| {
            // SAFETY: the thread ends, so nobody refers to its state any more.
            unsafe {
                let thread = block.as_ref().thread();
                (*thread).give_up_pairs();
                thread.drop_in_place();
            }
        });
        // SAFETY: as above.
        unsafe { Block::unmap(block) };
    }
}

/// Whether setting the current context to `context` changes anything for the calling thread.
pub fn sets_another_context(context: CUcontext) -> bool {
    with(|thread| std::mem::replace(&mut thread.context_set, context as u64) != context as u64)
        .unwrap_or(false)
}

impl Thread {
    /// The state of a thread that has recorded nothing yet.
    fn new(recorder: &'static Recorder) -> Thread {
        Thread {
            clock: TickCounter::decided(),
            objects: recorder.objects,
            control: recorder.control,
            context: 0,
            context_epoch: 0,
            context_uses: 0,
            id: streams::thread_id(),
            stream: KnownStream::default(),
            lane: Lane::default(),
            recorder,
            streams: [KnownStream::default(); STREAMS],
            context_set: 0,
            addresses: KnownAddresses::default(),
            pending: Pending::default(),
            settled_context: 0,
            noted: Noted::new(),
            range: 0,
        }
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

    /// Fetches what [`Thread::push`] will write to. The driver's call lies between, so that a
    /// record does not wait for memory, nor the program's next lock for the record.
    #[inline(always)]
    pub fn fetch(&self) {
        self.lane.fetch();
    }

    /// Writes a record, or counts it as dropped.
    #[inline(always)]
    pub fn push<R: Slots>(&mut self, record: &R) {
        if !self.lane.try_record(record) {
            push_into_next_chunk(&mut self.lane, self.recorder, self.range, *record);
        }
    }

    /// Reads up to `most` of the event pairs that are done, and records them.
    pub fn read_pairs(&mut self, which: Candidates, most: usize) {
        let (lane, recorder, range) = (&mut self.lane, self.recorder, self.range);
        self.pending.read(&recorder.timing, which, most, |timing| {
            if !lane.try_record(timing) {
                push_into_next_chunk(lane, recorder, range, *timing);
            }
        });
    }

    /// The identifier of the current context, 0 without one.
    #[inline(always)]
    pub fn context(&mut self) -> u32 {
        if self.context_uses == 0 || self.context_epoch != epochs().contexts.load(Relaxed) {
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
        self.context_epoch = epochs().contexts.load(Relaxed);
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
        let epoch = epochs().streams.load(Relaxed);
        if self.stream.is(handle, context, epoch) {
            return self.stream.id;
        }
        self.change_stream(stream, epoch)
    }

    /// As [`Thread::stream`], for another stream than the last one.
    #[cold]
    fn change_stream(&mut self, stream: CUstream, epoch: u32) -> u32 {
        let (handle, context) = (stream as u64, self.context);
        let place = place_of(handle);
        let mut known = self.streams[place];
        if !known.is(handle, context, epoch) {
            let id = guarded(|| self.recorder.stream(stream, context, self.id)).unwrap_or(0);
            if id == 0 {
                return 0;
            }
            known = KnownStream { handle, context, epoch, id };
            self.streams[place] = known;
        }
        self.stream = known;
        known.id
    }

    /// Whether a call on `stream`, as [`streams::normalised`] gives it, is captured and not
    /// executed.
    #[inline(always)]
    pub fn is_captured(&self, stream: CUstream) -> bool {
        self.objects.captures.any() && is_captured(stream)
    }
}

#[cold]
#[inline(never)]
fn is_captured(stream: CUstream) -> bool {
    !streams::is_legacy(stream) && driver::is_capturing(stream)
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
