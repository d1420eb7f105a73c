//! The thread that makes queued calls.
//!
//! It makes them in order, one at a time, each in the context in which the program made it. Without
//! work it polls for some 200 µs and then sleeps. While the queue is closed, it wakes up when the
//! queue may open. It ends when the program's threads have ended ([`last_thread`]), because a
//! process lives as long as one of its threads.

use super::batch::{Batches, Next};
use super::last_thread::Watch;
use super::ring::{Ring, Waiting};
use super::wait::{can_order_all_threads, now_ns, order_all_threads, sleep, wake};
use super::{MOST_PARAMETERS, Queue, Scratch};
use crate::actions::fusion;
use crate::actions::pool::work;
use crate::driver;
use crate::objects::epochs;
use crate::objects::streams::thread_id;
use crate::record::ranges;
use crate::record::stacks::OWN_THREAD;
use crate::record::thread::{self, Thread};
use apex_trace::layout::QueueState;
use cuda_abi::types::*;
use std::ffi::c_void;
use std::mem::zeroed;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, compiler_fence};

/// Rounds in which the worker looks for work before it sleeps: some 200 µs, longer than an
/// interpreter takes from one launch to the next.
const LOOKS: u32 = 6000;
/// Rounds in which a thread looks whether its calls are made before it sleeps: some 200 µs.
const WAITING_LOOKS: u32 = 6000;

/// The time for which a thread that ends the process waits for a call whose arguments are not
/// written yet, in ns: it may have interrupted the thread that writes them.
const MISSING_NS: u64 = 1_000_000_000;
/// Pause between looks of a thread that ends the process, nanoseconds.
const ENDING_PAUSE_NS: u64 = 100_000;

/// States of the worker.
const ABSENT: u32 = 0;
const AWAKE: u32 = 1;
const ASLEEP: u32 = 2;

/// The state of the worker that other threads see.
#[derive(Default)]
#[repr(align(64))]
pub struct Worker {
    state: AtomicU32,
    /// Its kernel thread identifier.
    thread: AtomicU32,
    /// Threads that wait until calls are made.
    waiting: AtomicU32,
    /// Changes when calls have been made while threads wait.
    rounds: AtomicU32,
}

impl Worker {
    /// Whether it sleeps.
    #[inline(always)]
    pub fn is_asleep(&self) -> bool {
        self.state.load(Relaxed) == ASLEEP
    }

    /// Wakes it if it sleeps. Called after a call was queued.
    #[inline(always)]
    pub fn wake_if_asleep(&self) {
        // The store of the call comes first; see `run` for what the processor makes of that.
        compiler_fence(SeqCst);
        if self.is_asleep() && self.state.swap(AWAKE, SeqCst) == ASLEEP {
            wake(&self.state, 1);
        }
    }

    /// Whether the caller is the worker.
    pub fn is_this_thread(&self) -> bool {
        self.thread.load(Relaxed) == thread_id()
    }

    /// Waits until `is_done`, which a call of the worker's makes true.
    pub fn wait_until(&self, is_done: impl Fn() -> bool) {
        for _ in 0..WAITING_LOOKS {
            if is_done() {
                return;
            }
            std::hint::spin_loop();
        }
        self.waiting.fetch_add(1, SeqCst);
        loop {
            let round = self.rounds.load(SeqCst);
            if is_done() {
                break;
            }
            sleep(&self.rounds, round, None);
        }
        self.waiting.fetch_sub(1, SeqCst);
    }

    /// Waits until the calls that are in the ring have been made, in a thread that ends the process
    /// and may have interrupted any other code. It gives up if no call is made for `patience_ns`,
    /// and if the next call has a ticket but never comes. Atomics and system calls only.
    pub fn wait_for_rest(&self, ring: &Ring, patience_ns: Option<u64>) {
        self.wake_if_asleep();
        let (mut made, mut since) = (ring.made(), now_ns());
        while ring.made() < ring.given() {
            let now = now_ns();
            if ring.made() != made {
                (made, since) = (ring.made(), now);
            }
            let most = if ring.has_next() { patience_ns } else { Some(MISSING_NS) };
            if most.is_some_and(|most| now.saturating_sub(since) > most) {
                return;
            }
            sleep(&self.rounds, self.rounds.load(SeqCst), Some(ENDING_PAUSE_NS));
        }
    }

    /// A call was made: whoever waits may look again.
    #[inline(always)]
    fn tell_waiting(&self) {
        if self.waiting.load(SeqCst) != 0 {
            self.rounds.fetch_add(1, SeqCst);
            wake(&self.rounds, i32::MAX);
        }
    }
}

/// Makes the worker of the queue, if there is none yet; false if it cannot be made.
pub fn start(queue: &'static Queue) -> bool {
    if queue.worker.state.load(Relaxed) != ABSENT {
        return true;
    }
    let Some(pointers) = zeroed_pointers() else { return false };
    if !can_order_all_threads() {
        return false;
    }
    let batches = Batches::new(queue.stays_open, queue.control);
    let scratch = Scratch { pointers, batches };
    queue.worker.state.store(AWAKE, SeqCst);
    let is_made = without_signals(|mask| {
        let builder = std::thread::Builder::new().name(OWN_THREAD.to_owned());
        let work = move || {
            run(queue, scratch);
            // This is the program's last thread. If it ends as the last thread of all, glibc calls
            // the program's handlers of the end from it; signals work meanwhile as they would.
            set_mask(&mask);
        };
        builder.spawn(work).is_ok()
    });
    if !is_made {
        queue.worker.state.store(ABSENT, SeqCst);
    }
    is_made
}

/// Runs `work`, which gets the mask of before, with all signals blocked: a thread that it makes
/// never runs the program's handlers.
fn without_signals<R>(work: impl FnOnce(libc::sigset_t) -> R) -> R {
    // SAFETY: valid sets; zeros are a set.
    let before = unsafe {
        let (mut all, mut before) = (zeroed::<libc::sigset_t>(), zeroed::<libc::sigset_t>());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        before
    };
    let result = work(before);
    set_mask(&before);
    result
}

fn set_mask(mask: &libc::sigset_t) {
    // SAFETY: a valid set; a null pointer means that the old one is not wanted.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, null_mut()) };
}

/// Makes calls until the program's threads have ended.
fn run(queue: &'static Queue, scratch: Scratch) {
    queue.worker.thread.store(thread_id(), Relaxed);
    let mut maker =
        Maker { queue, scratch, context: null_mut(), context_epoch: 0, range: 0, made: 0, has_failed: false };
    let (mut looks, mut watch) = (0, Watch::new());
    loop {
        if maker.make_next() {
            looks = 0;
            continue;
        }
        if maker.has_failed && queue.ring.made() == queue.ring.given() && queue.end(Some(QueueState::Refused))
        {
            maker.scratch.batches.clear();
            maker.has_failed = false;
        }
        looks += 1;
        if looks < LOOKS {
            std::hint::spin_loop();
            continue;
        }
        looks = 0;
        queue.note_figures();
        let state = &queue.worker.state;
        state.store(ASLEEP, SeqCst);
        // Whoever hands a call over stores it, and then looks whether the worker sleeps, without a
        // fence of its own.
        order_all_threads();
        if queue.ring.next().is_some() {
            state.store(AWAKE, SeqCst);
            continue;
        }
        watch.begin();
        while queue.worker.is_asleep() {
            let rest = queue.rest_ns().unwrap_or(u64::MAX);
            sleep(state, ASLEEP, Some(rest.min(watch.pause_ns())));
            queue.arm_if_due();
            // (The last thread may have handed a call over before it ended.)
            if watch.is_last_thread() && queue.worker.is_asleep() {
                queue.shut_down(None);
                while maker.make_next() {}
                return;
            }
        }
    }
}

/// Makes calls one after the other.
struct Maker {
    queue: &'static Queue,
    scratch: Scratch,
    /// The current context of this thread, and the epoch in which it was made that: a context that
    /// is gone may have left its handle to another one.
    context: CUcontext,
    context_epoch: u32,
    /// The range that this thread has stated to be in.
    range: u32,
    /// Calls of the program that were made.
    made: u64,
    /// Whether the driver has refused a call, and the queue has not ended yet.
    has_failed: bool,
}

impl Maker {
    /// Makes the next call, if there is one.
    #[inline(always)]
    fn make_next(&mut self) -> bool {
        let queue = self.queue;
        let Some(call) = queue.ring.next() else { return false };
        let epoch = epochs().contexts.load(Relaxed);
        // (Graphs are dropped without a context.)
        if (call.context != self.context || epoch != self.context_epoch) && !call.context.is_null() {
            self.enter(call.context, epoch);
        }
        if fusion::is_ready() && self.make_pair(&call) {
            return true;
        }
        if queue.is_batching && !self.scratch.batches.is_decided() && self.make_batch(call.context) {
            return true;
        }
        if call.range != self.range && ranges::enter(call.range) {
            self.range = call.range;
        }
        let begun = now_ns();
        // SAFETY: the arguments are those that were put in with this function.
        let result = unsafe { (call.kind.make)(call.arguments, &mut self.scratch) };
        let ns = now_ns().saturating_sub(begun);
        queue.gain.made(ns);
        if queue.is_batching && call.kind.launch.is_some() {
            self.scratch.batches.was_single(ns);
        }
        self.were_made(1, u64::from(call.is_programs()));
        if result != CUDA_SUCCESS {
            self.has_failed |= queue.refused(result);
        }
        true
    }

    /// Makes the next two calls as one launch, if they are a pair of the plan.
    fn make_pair(&mut self, call: &Waiting) -> bool {
        let queue = self.queue;
        let Some(behind) = queue.ring.peek(1).filter(|behind| behind.context == call.context) else {
            return false;
        };
        let (Some(first), Some(second)) = (&call.kind.launch, &behind.kind.launch) else { return false };
        if call.range != self.range && ranges::enter(call.range) {
            self.range = call.range;
        }
        let begun = now_ns();
        // SAFETY: the arguments are those that were put in with these calls.
        if !unsafe { (first.join)(call.context, call.arguments, (second.node, behind.arguments)) } {
            return false;
        }
        queue.gain.made_as_one(2, now_ns().saturating_sub(begun));
        self.were_made(2, 2);
        true
    }

    /// Makes the launches that wait next as one batch, if they are worth one.
    fn make_batch(&mut self, context: CUcontext) -> bool {
        let (queue, begun) = (self.queue, now_ns());
        let waited_at = queue.waited_at.load(Relaxed);
        let Scratch { pointers, batches } = &mut self.scratch;
        let Next::Batch(plan, count) = batches.next(&queue.ring, waited_at, context, pointers, begun) else {
            return false;
        };
        let start = apex_trace::now();
        if !batches.launch(&plan, begun) {
            return false;
        }
        let span = apex_trace::now() - start;
        work::submitted();
        let share = |at: usize| start + span * at as u64 / count as u64;
        for at in 0..count {
            let Some(call) = queue.ring.peek(at) else { break };
            if call.range != self.range && ranges::enter(call.range) {
                self.range = call.range;
            }
            if let Some(launch) = &call.kind.launch {
                // SAFETY: the arguments are those that were put in with this call.
                unsafe { (launch.record)(call.arguments, share(at), share(at + 1)) };
            }
        }
        let now = now_ns();
        let ns = now.saturating_sub(begun);
        if plan.is_timed() {
            queue.gain.tries();
        }
        let avoided = self.scratch.batches.was_batch(&plan, count, ns, now);
        queue.gain.made_batch(count as u64, ns, avoided);
        self.were_made(count, count as u64);
        true
    }

    /// Accounts for the next `count` calls of the ring, `of_program` of which are the program's.
    #[inline(always)]
    fn were_made(&mut self, count: usize, of_program: u64) {
        let queue = self.queue;
        self.made += of_program;
        queue.ring.were_made(count);
        queue.file.set_queue_made(self.made);
        queue.worker.tell_waiting();
    }

    #[cold]
    fn enter(&mut self, context: CUcontext, epoch: u32) {
        driver::set_current_context(context);
        thread::with_existing(Thread::forget_context);
        (self.context, self.context_epoch) = (context, epoch);
    }
}

fn zeroed_pointers() -> Option<Box<[*mut c_void]>> {
    let mut pointers = Vec::new();
    pointers.try_reserve_exact(MOST_PARAMETERS).ok()?;
    pointers.resize(MOST_PARAMETERS, null_mut());
    Some(pointers.into_boxed_slice())
}
