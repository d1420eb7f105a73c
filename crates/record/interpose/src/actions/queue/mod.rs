//! The launch queue: the program hands calls over, and a thread of this library makes them.
//!
//! A launch takes the driver some microseconds, and copying its arguments takes a tenth of one.
//! With the queue on (`apex run --fast`), launches and a few calls like them are copied into a
//! [`ring`], and the program goes on; the [`worker`] makes them in the order in which they were
//! queued. Every other call first waits until the ring is empty ([`order`] says which and
//! why), so the driver sees one order of calls, and it is one in which the program could have made
//! them.
//!
//! # Contract
//! 1. *Order.* A call that is made after a call was queued, in the same thread or in one that
//!    knows of it, reaches the driver after that call. A call is queued with a ticket, out of
//!    one sequence for the process; [`Queue::wait_until_made`] waits for all tickets that were
//!    given out before it was called.
//! 2. *Progress.* A call that was queued reaches the driver without a further call of the
//!    program. The worker never waits for more work, and makes no call that waits for the GPU.
//! 3. *Refusals.* Only what the driver has accepted before is queued: the same function in the
//!    same configuration on the same stream ([`accepted`]), a copy within living allocations.
//!    Should the driver refuse it nevertheless, the next launch returns the error, and the queue
//!    stays off.
//! 4. *Use.* The queue closes where it gains nothing ([`gain`]) and opens again later. While it is
//!    closed, calls go straight to the driver, and launches do not even come here. The worker
//!    sleeps until the queue may open and then sets their slots, and the next launch opens it.
//!
//! The queue knows nothing of what calls do: [`crate::hooks::queued`] copies their arguments, and
//! makes them through the hooks that record them. So what the session holds is what was made, when
//! it was made; what the queue itself did is in the header of the process file. With
//! `--fast=batch` the worker makes launches that wait in a row together, as one graph ([`batch`]),
//! with `--fast=schedule` as one in which some run beside others. Two launches of which a plan has
//! a joined kernel are made as one ([`fusion`]).

pub mod accepted;
pub mod batch;
mod enqueue_cost;
mod gain;
mod last_thread;
mod opening;
pub mod order;
mod ring;
pub(super) mod wait;
mod worker;

pub use ring::LARGEST_BYTES;
pub use wait::now_ns;

use crate::actions::{Slots, fusion, is_wanted};
use crate::driver;
use crate::hot::{hot, own};
use crate::objects::{Objects, epochs};
use crate::per_process::{OfProcess, PerProcess};
use crate::record::Recorder;
use accepted::Accepted;
use apex_conventions::variables;
use apex_trace::layout::QueueState;
use apex_trace::{Control, ForkGuard, ProcessFile};
use batch::{Batches, OfLaunch};
use cuda_abi::types::*;
use enqueue_cost::EnqueueCost;
use gain::Gain;
use ring::Ring;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use worker::Worker;

/// Makes a call whose arguments were copied.
///
/// # Safety
/// The arguments are those that were written for this function.
pub type Make = unsafe fn(arguments: *mut u8, scratch: &mut Scratch) -> CUresult;

/// A kind of calls that are queued.
pub struct Kind {
    /// Makes the call.
    pub make: Make,
    /// The functions by which batches treat it, if it may be a launch.
    pub launch: Option<OfLaunch>,
}

/// The memory that the worker lends to [`Make`].
pub struct Scratch {
    /// Room for pointers to a launch's parameters: as many as a launch that is queued can
    /// have.
    pub pointers: Box<[*mut c_void]>,
    batches: Batches,
}

// SAFETY: the pointers mean nothing between calls.
unsafe impl Send for Scratch {}

/// Most parameters of a launch that is queued.
pub const MOST_PARAMETERS: usize = 4096;

/// The decision of the queue about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taking {
    /// It is closed: nothing waits, and the caller makes the call.
    Closed,
    /// The caller makes the call, once nothing waits.
    Not,
    /// It takes the call, if the driver has accepted the same one before.
    Takes,
}

/// Launches in a row, with no call between them for which the ring must be empty, from which on a
/// sleeping worker is woken. A program that waits for each of its launches never wakes it.
const WAKING_STREAK: u32 = 3;

/// The number of consecutive shorter rows of launches that show a program that waits for nearly
/// each of its launches. It makes the first launches of a row itself, whether or not the worker
/// sleeps, so the worker falls asleep.
const SHORT_ROWS: u32 = 16;

/// The interval between calls that are timed while they are queued.
const ASKED_INTERVAL: u64 = 64;

static QUEUE: PerProcess<Queue> = PerProcess::new();

static SLOTS: OnceLock<Slots> = OnceLock::new();

/// The queue of a process. What its thread writes for each call is on lines of its own ([`Gain`],
/// [`Ring`], [`Worker`]): whoever hands a call over reads the rest.
pub struct Queue {
    ring: Ring,
    worker: Worker,
    gain: Gain,
    enqueue_cost: EnqueueCost,
    /// The launches that the driver has accepted.
    pub accepted: Accepted,
    /// Whether it stays open where it gains nothing.
    stays_open: bool,
    /// Whether launches that wait go out in batches.
    is_batching: bool,
    /// The ticket at which a call was made last that waits until the ring is empty.
    waited_at: AtomicU64,
    control: &'static Control,
    file: &'static ProcessFile,
    objects: &'static Objects,
    guard: ForkGuard,
    /// The process's identifier: a child of `vfork`, which the guard takes for this process, has
    /// another one.
    process: u32,
    /// Calls that could have been queued and were not, since the last call for which the ring must
    /// be empty.
    streak: AtomicU32,
    /// Rows of launches shorter than [`WAKING_STREAK`] since the last longer one.
    short_rows: AtomicU32,
    /// Whether a thread is opening or closing it.
    changing: AtomicBool,
    /// Whether it is closed for a while and launches do not come to it: the worker changes that
    /// when it may open again.
    is_resting: AtomicBool,
    /// Whether it stays closed for good.
    ended: AtomicBool,
    /// The error of a call that the driver refused although it had accepted it before; 0 if there
    /// was none, or once a launch has returned it.
    refusal: AtomicU32,
    /// Events destroyed: what was accepted of a handle counts only until then.
    events_destroyed: AtomicU32,
}

impl OfProcess for Queue {
    fn is_ours(&self) -> bool {
        self.guard.is_same_process()
    }
}

/// Makes the queue of this process, closed; or says why there is none. `slots` sets the slots of
/// entry points.
pub fn start(recorder: &'static Recorder, slots: Slots) -> Option<&'static Queue> {
    let file = &recorder.file;
    SLOTS.get_or_init(|| slots);
    if processors() < 2 {
        file.set_queue_state(QueueState::OneProcessor);
        return None;
    }
    if !driver::tells_parameters() {
        file.set_queue_state(QueueState::OldDriver);
        return None;
    }
    let made = QUEUE.get_or_make(|| Queue::new(recorder), |_| {});
    file.set_queue_state(if made.is_some() { QueueState::Unused } else { QueueState::Failed });
    made
}

/// The queue of this process, if it has one.
#[inline(always)]
pub fn existing() -> Option<&'static Queue> {
    own!(QUEUE: PerProcess<Queue>).get()
}

/// Whether calls wait that the call of the entry point at `index`, which is about to be made, must
/// not overtake.
pub fn is_due(index: usize) -> bool {
    existing().is_some_and(|queue| queue.is_before(index))
}

/// Waits until every call that was queued before has been made.
pub fn flush() {
    if let Some(queue) = existing() {
        queue.wait_until_made();
    }
}

/// While this lives, the calling thread waits for the GPU.
pub struct GpuWait {
    begun: u64,
}

/// A wait for the GPU begins; `None` while nothing is queued.
#[inline(always)]
pub fn gpu_wait() -> Option<GpuWait> {
    hot().hands_over.load(Relaxed).then(|| GpuWait { begun: wait::now_ns() })
}

impl Drop for GpuWait {
    fn drop(&mut self) {
        if let Some(queue) = existing() {
            queue.waited_for_gpu(self.begun);
        }
    }
}

/// Longest time that a process whose handlers of the end are not called waits for one queued call:
/// the driver may be unable to make it, because the GPU hangs, or because the thread that ends the
/// process has interrupted the driver.
const PATIENCE_NS: u64 = 5_000_000_000;

/// The process comes to its end: what waits is made, and nothing is queued any more.
pub fn shut_down() {
    if let Some(queue) = existing() {
        queue.shut_down(None);
    }
}

/// As [`shut_down`], for `_exit` and its like, which any code may call, a signal handler too.
pub fn shut_down_soon() {
    if let Some(queue) = existing().filter(|queue| queue.is_of_process()) {
        queue.shut_down(Some(PATIENCE_NS));
    }
}

/// The process is about to become another program: what waits is made. If that fails, the queue
/// goes on.
pub fn before_exec() {
    if let Some(queue) = existing().filter(|queue| queue.is_of_process()) {
        queue.make_rest(Some(PATIENCE_NS));
    }
}

/// Processors that this process may use.
fn processors() -> usize {
    // SAFETY: a zeroed set is a valid set, and its size is stated.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        match libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) {
            0 => libc::CPU_COUNT(&set) as usize,
            _ => 1,
        }
    }
}

impl Queue {
    fn new(recorder: &'static Recorder) -> Option<Box<Queue>> {
        Some(Box::new(Queue {
            ring: Ring::new()?,
            worker: Worker::default(),
            accepted: Accepted::new()?,
            gain: Gain::default(),
            enqueue_cost: EnqueueCost::default(),
            stays_open: variables::FAST_ALWAYS.is_on(),
            is_batching: is_wanted("batch") || is_wanted("schedule"),
            waited_at: AtomicU64::new(0),
            control: recorder.control,
            file: &recorder.file,
            objects: recorder.objects,
            guard: ForkGuard::new().ok()?,
            process: std::process::id(),
            streak: AtomicU32::new(0),
            short_rows: AtomicU32::new(0),
            is_resting: AtomicBool::new(false),
            changing: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            refusal: AtomicU32::new(0),
            events_destroyed: AtomicU32::new(0),
        }))
    }

    /// Decides on a call that comes now.
    #[inline(always)]
    pub fn takes(&'static self) -> Taking {
        if self.ring.is_closed() {
            self.open_if_due();
            // (Another thread has just closed it, and calls of this one may still wait.)
            let is_empty = self.ring.made() >= self.ring.given();
            return if is_empty { Taking::Closed } else { Taking::Not };
        }
        if self.objects.captures.any() {
            return Taking::Not;
        }
        // (Whoever makes a call itself waits first until the ring is empty, as it is while the
        // worker sleeps.)
        let is_idle = self.worker.is_asleep() || self.short_rows.load(Relaxed) >= SHORT_ROWS;
        if is_idle && self.streak.fetch_add(1, Relaxed) + 1 < WAKING_STREAK {
            self.passed_by();
            return Taking::Not;
        }
        Taking::Takes
    }

    /// Hands a call over, whose `bytes` of arguments `write` writes. False, and nothing was done,
    /// if the queue has closed meanwhile. `bytes` are at most [`LARGEST_BYTES`]; `write` must not
    /// unwind.
    #[inline(always)]
    pub fn put(
        &self,
        kind: &'static Kind,
        context: CUcontext,
        bytes: usize,
        write: impl FnOnce(*mut u8),
    ) -> bool {
        let is_put = self.ring.put(kind, context, bytes, write);
        self.worker.wake_if_asleep();
        if is_put && !context.is_null() {
            self.file.count_queue_taken();
        }
        is_put
    }

    /// Returns the time at which handing over the next call began, in ns, if it is to be timed.
    #[inline(always)]
    pub fn asked_sample(&self) -> Option<u64> {
        self.ring.given().is_multiple_of(ASKED_INTERVAL).then(wait::now_ns)
    }

    /// A call was queued that began at `begun`.
    #[cold]
    pub fn add_asked_sample(&self, begun: u64) {
        self.enqueue_cost.add(begun, wait::now_ns());
    }

    /// The epoch of streams, contexts and code: what was accepted before another one does not
    /// count.
    #[inline(always)]
    pub fn epoch(&self) -> u64 {
        let epochs = epochs();
        let [streams, modules] =
            [&epochs.streams, &epochs.modules].map(|epoch| u64::from(epoch.load(Relaxed)));
        streams << 32 | modules
    }

    /// The epoch of functions.
    #[inline(always)]
    pub fn code_epoch(&self) -> u32 {
        epochs().modules.load(Relaxed)
    }

    /// The epoch of event handles.
    pub fn event_epoch(&self) -> u32 {
        self.events_destroyed.load(Relaxed)
    }

    /// Returns, once, the error of a call that was queued and refused: a launch returns it in place
    /// of its own result.
    pub fn take_refusal(&'static self) -> Option<CUresult> {
        if self.refusal.load(Relaxed) == 0 {
            return None;
        }
        Some(self.refusal.swap(0, Relaxed) as CUresult).filter(|&refusal| refusal != CUDA_SUCCESS)
    }

    fn is_before(&self, index: usize) -> bool {
        if order::destroys_event(index) {
            self.events_destroyed.fetch_add(1, Relaxed);
        }
        if order::ends_code(index) {
            self.drop_batches();
        }
        let given = self.ring.given();
        self.row_ends(given);
        self.ring.made() != given
    }

    /// Ends a row: a call is made for which the ring must be empty, after `given` tickets. (Threads
    /// that do this at the same time may count a row wrongly, which only changes when the worker
    /// sleeps.)
    fn row_ends(&self, given: u64) {
        let handed_over = given.saturating_sub(self.waited_at.load(Relaxed));
        let row = handed_over + u64::from(self.streak.load(Relaxed));
        if row >= u64::from(WAKING_STREAK) {
            self.short_rows.store(0, Relaxed);
        } else if row > 0 && !self.stays_open() {
            let short = self.short_rows.load(Relaxed).saturating_add(1);
            self.short_rows.store(short, Relaxed);
        }
        self.streak.store(0, Relaxed);
        self.waited_at.store(given, Relaxed);
    }

    /// Whether it stays open where it gains no time of the host's: the user wants that, or launches
    /// are made as one, which saves the GPU's.
    fn stays_open(&self) -> bool {
        self.stays_open || fusion::is_ready()
    }

    /// Has the worker drop its graphs, behind all calls that wait.
    fn drop_batches(&self) {
        if self.is_batching && !self.worker.is_this_thread() {
            self.put(&batch::DROP_ALL, null_mut(), 0, |_| {});
        }
    }

    /// Waits until every call that was queued before has been made.
    pub fn wait_until_made(&self) {
        let given = self.ring.given();
        if self.ring.made() >= given || self.worker.is_this_thread() {
            return;
        }
        let begun = wait::now_ns();
        self.worker.wait_until(|| self.ring.made() >= given);
        let now = wait::now_ns();
        if !self.gain.waited(begun, now) && !self.stays_open() {
            self.close(now);
        }
    }

    fn waited_for_gpu(&self, begun: u64) {
        let now = wait::now_ns();
        if !self.gain.waited_for_gpu(begun, now) && !self.stays_open() && !self.ring.is_closed() {
            self.close(now);
        }
    }

    /// A call is made by the program itself, because the worker sleeps or need not be kept awake.
    #[inline(always)]
    fn passed_by(&self) {
        if self.gain.passed_by() {
            self.judge_passed_by();
        }
    }

    #[cold]
    fn judge_passed_by(&self) {
        let now = wait::now_ns();
        if !self.gain.is_gained(now) && !self.stays_open() {
            self.close(now);
        }
    }

    /// Whether the caller is a thread of this process, and not a child that shares its memory.
    fn is_of_process(&self) -> bool {
        self.process == std::process::id()
    }

    /// Waits until the calls that wait are made; see [`Worker::wait_for_rest`].
    fn make_rest(&self, patience_ns: Option<u64>) {
        if !self.worker.is_this_thread() {
            self.worker.wait_for_rest(&self.ring, patience_ns);
        }
        self.note_figures();
    }

    /// Writes what the queue did into the process file.
    fn note_figures(&self) {
        self.file.set_queue_figures(&apex_trace::layout::QueueFigures {
            made: self.ring.made(),
            call_ns: self.gain.call_ns(),
            wait_ns: self.gain.wait_ns(),
            waits: self.gain.waits(),
            asked_samples: self.enqueue_cost.samples(),
            asked_ns: self.enqueue_cost.ns(),
            asked_median_ns: self.enqueue_cost.median_ns(),
        });
        let [batches, launches, avoided_ns] = self.gain.batches();
        self.file.set_batch_figures(&apex_trace::layout::BatchFigures { batches, launches, avoided_ns });
    }
}
