//! The statistics of a process's launch queue (`apex run --fast`).

use apex_trace::layout::{BatchFigures, QueueFigures, QueueState, ScheduleFigures, ScheduleState};
use serde::Serialize;

/// The launch queue of a process. Times are nanoseconds, measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LaunchQueue {
    /// The final state.
    pub state: State,
    /// Calls that were queued and made.
    pub made: u64,
    /// Calls that were queued and not made: of a process that has ended, they are lost; of one that
    /// ran when the session was read, they waited.
    pub not_made: u64,
    /// Time that the driver took for them, recording included, on the queue's thread.
    pub call_ns: f64,
    /// The number of times that the program waited until calls were made.
    pub waits: u64,
    /// The time of these waits in all, in nanoseconds.
    pub wait_ns: f64,
    /// Calls for which the time that handing over took was taken.
    pub asked_samples: u64,
    /// Their time in all, in nanoseconds.
    pub asked_ns: f64,
    /// The median of it, within 6%; none without samples, and in sessions of older versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked_median_ns: Option<f64>,
    /// Batches: launches that went out together, as one graph.
    pub batches: u64,
    /// Launches that were combined into them.
    pub batched: u64,
    /// The time that batches saved over single calls, computed from those that were made singly.
    pub avoided_ns: f64,
    /// Launches that ran beside others; none without `--fast=schedule`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Schedule>,
}

/// Batches in which launches that are independent ran beside each other.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Schedule {
    /// The final state.
    pub state: ScheduleEnd,
    /// These batches.
    pub batches: u64,
    /// Launches in them.
    pub launches: u64,
    /// How much longer the batches would have taken on the GPU one launch after the other, in
    /// nanoseconds, computed from the first ones.
    pub saved_ns: f64,
}

/// The final state of scheduling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleEnd {
    /// No sequence of launches came often enough in which some are known to be independent.
    Unused,
    /// Launches ran beside others.
    On,
    /// Launches took as long beside others as one after the other.
    GainsNothing,
    /// A call shared memory in a way that is not followed.
    Closed,
    /// Its tables could not be allocated.
    Failed,
}

impl Schedule {
    fn of(process: &apex_trace::Process) -> Option<Self> {
        let state = match process.schedule_state {
            ScheduleState::NotWanted => return None,
            ScheduleState::Unused => ScheduleEnd::Unused,
            ScheduleState::On => ScheduleEnd::On,
            ScheduleState::GainsNothing => ScheduleEnd::GainsNothing,
            ScheduleState::Closed => ScheduleEnd::Closed,
            ScheduleState::Failed => ScheduleEnd::Failed,
        };
        let ScheduleFigures { batches, launches, saved_ns } = process.schedule;
        Some(Self { state, batches, launches, saved_ns: saved_ns as f64 })
    }
}

/// The final state of a launch queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It took launches until the end.
    On,
    /// It gained nothing the last time that it was open.
    GainsNothing,
    /// The process may use one processor only.
    OneProcessor,
    /// Its memory or its thread could not be had.
    Failed,
    /// The driver refused a launch that it had accepted before.
    Refused,
    /// No launch came that it could have taken.
    Unused,
    /// The driver does not tell how functions lay out their parameters (before CUDA 12.4).
    OldDriver,
}

impl LaunchQueue {
    /// The queue of a process; `None` without `--fast`.
    pub(super) fn of(process: &apex_trace::Process) -> Option<Self> {
        let state = match process.queue_state {
            QueueState::NotWanted => return None,
            QueueState::On => State::On,
            QueueState::GainsNothing => State::GainsNothing,
            QueueState::OneProcessor => State::OneProcessor,
            QueueState::Failed => State::Failed,
            QueueState::Refused => State::Refused,
            QueueState::Unused => State::Unused,
            QueueState::OldDriver => State::OldDriver,
        };
        let QueueFigures { made, call_ns, waits, wait_ns, asked_samples, asked_ns, asked_median_ns } =
            process.queue;
        let asked_median_ns = (asked_median_ns > 0).then_some(asked_median_ns as f64);
        let (call_ns, wait_ns, asked_ns) = (call_ns as f64, wait_ns as f64, asked_ns as f64);
        let BatchFigures { batches, launches: batched, avoided_ns } = process.batches;
        Some(Self {
            state,
            made,
            not_made: process.queue_waiting,
            call_ns,
            waits,
            wait_ns,
            asked_samples,
            asked_ns,
            asked_median_ns,
            batches,
            batched,
            avoided_ns: avoided_ns as f64,
            schedule: Schedule::of(process),
        })
    }

    /// Mean time that the program took to queue a call; `None` without samples.
    pub fn mean_asked_ns(&self) -> Option<f64> {
        (self.asked_samples > 0).then(|| self.asked_ns / self.asked_samples as f64)
    }

    /// Time saved for the program's threads: the time of the calls in the queue's thread and the
    /// time that batches avoided, less the time of queueing the calls and of waiting for them.
    pub fn saved_ns(&self) -> f64 {
        let queueing = self.mean_asked_ns().unwrap_or(0.0) * self.made as f64;
        self.call_ns + self.avoided_ns - queueing - self.wait_ns
    }
}
