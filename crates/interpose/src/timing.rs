//! GPU durations by event pairs.
use crate::recorder::Recorder;
use cuda_abi::types::*;

/// A configuration's or graph's progress in being sampled.
#[derive(Default)]
pub struct Progress(u32);

/// Timing of a process.
pub struct Timing;

/// Pending pairs of a thread.
#[derive(Default)]
pub struct Pending;

/// What is timed.
#[derive(Clone, Copy)]
pub enum Subject {
    /// A kernel launch.
    Kernel {
        /// Its configuration.
        config: u32,
    },
}

/// Whether to time now, and when to think about it next.
#[derive(Default)]
pub struct Decision {
    /// Time this launch.
    pub now: bool,
    /// Launches until the next decision.
    pub next_after: u32,
}

impl Timing {
    /// New.
    pub fn new() -> Timing {
        Timing
    }
}
/// Prepare.
pub fn prepare(_: &Recorder, _: u32) {}
/// All.
#[inline(always)]
pub fn wants_all(_: &Recorder) -> bool {
    false
}
/// Decide.
pub fn decide(_: &Recorder, _: u32, _: u32) -> Decision {
    Decision { now: false, next_after: 1000 }
}
/// First.
pub fn first_after(_: &Recorder, _: u32) -> u32 {
    1
}
/// Around.
pub fn around(
    _: Subject,
    _: CUstream,
    forward: impl FnOnce() -> CUresult,
    record: impl FnOnce(u64, u64, CUresult),
) -> CUresult {
    let start = trace::now();
    let result = forward();
    record(start, trace::now(), result);
    result
}
