//! Opens and closes the queue.
//!
//! A closed queue gives out no tickets. It is in one of two states: *resting*, in which launches go
//! directly to the driver and cost the same as without a queue, or *armed*, in which launches come
//! to the queue and one of them opens it. The queue begins armed. If it gains nothing, it closes
//! and rests until it may open again; then the worker arms it.
//!
//! Only one thread at a time changes the state ([`Queue::change`]). A thread that finds another one
//! doing so continues without changing it.

use super::{Queue, SLOTS, Slots, wait, worker};
use crate::hot::hot;
use apex_trace::layout::QueueState;
use cuda_abi::types::*;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// Shortest sleep of the worker while the queue is closed, nanoseconds.
const LEAST_REST_NS: u64 = 1_000_000;
/// The time for which a thread that ends the process waits for one that opens or closes the queue,
/// in ns.
const CHANGING_NS: u64 = 100_000_000;

impl Queue {
    /// Opens the queue, which is closed, if it is time.
    #[cold]
    pub(super) fn open_if_due(&'static self) {
        if self.ended.load(Relaxed) || !self.gain.is_worth_a_look() || !self.gain.may_open(wait::now_ns()) {
            return;
        }
        self.change(|| {
            if self.ended.load(SeqCst) {
                return;
            }
            if !worker::start(self) {
                self.ended.store(true, SeqCst);
                self.file.set_queue_state(QueueState::Failed);
                return;
            }
            self.is_resting.store(false, SeqCst);
            set_slots(|slots| slots.hold);
            self.gain.opened(wait::now_ns());
            self.file.set_queue_state(QueueState::On);
            self.ring.open();
            hot().hands_over.store(true, Relaxed);
            if self.ended.load(SeqCst) {
                // Another thread ends it, and closed the ring before it was opened here. It waits
                // for this change.
                self.ring.close();
                hot().hands_over.store(false, Relaxed);
            }
        });
    }

    /// Closes the queue, which gains nothing, for a while.
    #[cold]
    pub(super) fn close(&self, now: u64) {
        self.change(|| {
            self.let_out();
            self.gain.closed(now);
            self.is_resting.store(true, SeqCst);
            self.file.set_queue_state(QueueState::GainsNothing);
        });
        // It knows now when to have launches come here again.
        self.worker.wake_if_asleep();
    }

    /// Returns the longest time for which the idle worker sleeps, in ns; `None` if nothing will be
    /// due.
    pub(super) fn rest_ns(&self) -> Option<u64> {
        let is_resting = self.is_resting.load(SeqCst) && !self.ended.load(SeqCst);
        is_resting.then(|| self.gain.opens_in(wait::now_ns()).max(LEAST_REST_NS))
    }

    /// Has launches come here again if the queue may open. Called by the worker.
    pub(super) fn arm_if_due(&self) {
        if !self.is_resting.load(SeqCst) || !self.gain.may_open(wait::now_ns()) {
            return;
        }
        self.change(|| {
            // (A launch that came here before the slots were released may have opened it.)
            if self.is_resting.swap(false, SeqCst) && !self.ended.load(SeqCst) {
                set_slots(|slots| slots.arm);
            }
        });
    }

    /// Closes the queue for good; `why` is what the session says of it. False if another thread
    /// opens or closes it now: then it is to be tried again, but nothing is queued from here
    /// on. The worker calls it when nothing waits.
    #[cold]
    pub(super) fn end(&self, why: Option<QueueState>) -> bool {
        self.ended.store(true, SeqCst);
        self.ring.close();
        self.change(|| {
            self.let_out();
            self.note_figures();
            if let Some(why) = why {
                self.file.set_queue_state(why);
            }
        })
    }

    /// Closes the queue for good at the end of the process, and has the calls that wait made. The
    /// calling thread may have interrupted one that opens or closes the queue, so it waits for
    /// such a thread only for a while.
    pub(super) fn shut_down(&self, patience_ns: Option<u64>) {
        self.ended.store(true, SeqCst);
        let begun = wait::now_ns();
        let mut rounds = 0;
        // (A thread that opens it closes it again, for it has ended.)
        while self.changing.load(SeqCst) && wait::now_ns() - begun < CHANGING_NS {
            wait::pause(&mut rounds);
        }
        self.ring.close();
        hot().hands_over.store(false, Relaxed);
        self.make_rest(patience_ns);
    }

    /// No call is queued from here on, those that wait are made, and calls go straight to the
    /// driver again.
    fn let_out(&self) {
        self.drop_batches();
        self.ring.close();
        hot().hands_over.store(false, Relaxed);
        let given = self.ring.given();
        self.worker.wait_until(|| self.ring.made() >= given);
        // The next launch returns the error of a call that was refused.
        let is_refused = self.refusal.load(SeqCst) != 0;
        set_slots(|slots| if is_refused { slots.arm } else { slots.release });
    }

    /// The driver has refused a call although it had accepted it before. True if the queue has to
    /// end for that.
    pub(super) fn refused(&self, result: CUresult) -> bool {
        // After a fault on the GPU every call fails, and the program hears of it from its own
        // calls.
        let is_first = self.refusal.compare_exchange(0, result, SeqCst, SeqCst).is_ok();
        self.ring.close();
        is_first && !self.ended.swap(true, SeqCst)
    }

    /// Does `work` if no other thread opens or closes the queue now.
    fn change(&self, work: impl FnOnce()) -> bool {
        if self.changing.swap(true, SeqCst) {
            return false;
        }
        work();
        self.changing.store(false, SeqCst);
        true
    }
}

fn set_slots(which: impl FnOnce(&Slots) -> fn()) {
    if let Some(slots) = SLOTS.get() {
        which(slots)();
    }
}
