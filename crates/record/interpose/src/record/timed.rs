//! Timed launches: the events around them, and the points at which event pairs are read.

use super::thread::{self, Thread};
use super::{Done, Recorder};
use crate::limits;
use crate::switch::caught;
use crate::timing::{Candidates, Sample, Subject, is_off, wants_all};
use apex_trace::now;
use cuda_abi::types::*;

/// Pairs that are looked at on a timed launch.
const READ_AT_ONCE: usize = 4;

/// Forwards a launch between two events.
pub fn between_events(subject: Subject, stream: CUstream, forward: impl FnOnce() -> CUresult) -> Done {
    let begun = now();
    let sample = thread::with(|thread| caught(|| thread.begin_sample(subject, stream)).flatten()).flatten();
    let start = now();
    let result = forward();
    let end = now();
    if let Some(sample) = sample {
        thread::with(|thread| {
            caught(|| {
                thread.end_sample(sample, stream, Done { start, end, result });
                thread.read_pairs(Candidates::Aged, READ_AT_ONCE);
                thread.recorder.spend(now() - end + start - begun);
            })
        });
    }
    Done { start, end, result }
}

/// Reads what can be read of the calling thread's pairs.
pub fn read_all() {
    read(|_| Candidates::All);
}

fn read(which: impl FnOnce(&mut Thread) -> Candidates) {
    thread::with_existing(|thread| thread.read_pending(which));
}

/// The program waited for an event, so pairs may be done; which is not known.
pub fn after_event(result: CUresult) {
    if result == CUDA_SUCCESS {
        read(|_| Candidates::Aged);
    }
}

/// The program waited for a stream, as [`crate::objects::streams::normalised`] gives it: the pairs
/// on it are done.
pub fn after_stream(result: CUresult, stream: CUstream) {
    if result == CUDA_SUCCESS {
        read(|thread| {
            thread.context();
            Candidates::OfStream(thread.stream(stream))
        });
    }
}

/// The program waited for a context.
pub fn after_context(result: CUresult) {
    if result == CUDA_SUCCESS {
        read_all();
    }
}

/// The program waited for its current context: besides, there is nothing running, and so a moment
/// to calibrate.
pub fn after_idling(result: CUresult) {
    if result != CUDA_SUCCESS {
        return;
    }
    thread::with_existing(|thread| {
        thread.read_pending(|_| Candidates::All);
        let context = thread.context();
        if context != thread.settled_context && !is_off(thread.control) {
            thread.calibrate_idle(context);
        }
    });
}

impl Recorder {
    /// Counts ticks that timing took.
    pub(super) fn spend(&self, ticks: u64) {
        self.file.add_timing_ticks(ticks);
        self.timing.spend(ticks);
    }
}

impl Thread {
    /// Reads what can be read of the pairs that `which` says.
    #[inline(always)]
    fn read_pending(&mut self, which: impl FnOnce(&mut Thread) -> Candidates) {
        if !self.pending.is_empty() {
            let begun = now();
            caught(|| {
                let which = which(self);
                self.read_pairs(which, limits::PENDING_PAIRS);
            });
            self.recorder.spend(now() - begun);
        }
    }

    /// Calibrates the current context, which is idle, if it still has to be.
    #[cold]
    fn calibrate_idle(&mut self, context: u32) {
        let recorder = self.recorder;
        recorder.calibrated(context, recorder.timing.prepare_idle(context));
        if recorder.timing.is_settled(context) {
            self.settled_context = context;
        }
    }

    /// Records the event before a launch.
    fn begin_sample(&mut self, subject: Subject, stream: CUstream) -> Option<Sample> {
        if self.pending.is_full() {
            let all = wants_all(self.control);
            let which = if all { Candidates::MakingRoom } else { Candidates::Aged };
            self.read_pairs(which, limits::PENDING_PAIRS);
            if self.pending.is_full() {
                return None;
            }
        }
        let context = self.context();
        self.pending.begin(&self.recorder.timing, subject, context, stream)
    }

    /// Records the event after a launch.
    fn end_sample(&mut self, sample: Sample, stream: CUstream, done: Done) {
        if let Some(sample) = self.pending.end(&self.recorder.timing, sample, stream, done.result) {
            let stream = self.stream(stream);
            self.pending.keep(sample, done.start, stream);
        }
    }
}
