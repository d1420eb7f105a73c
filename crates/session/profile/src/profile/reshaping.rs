//! Outcome of the plan by which a process's launches are reshaped (`apex run --tuned`).

use apex_trace::layout::ReshapeState;
use serde::Serialize;

/// The reshaping of a process's launches. Kernels whose launches were reshaped say what the program
/// asked for ([`Kernel::asked`](super::Kernel::asked)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Reshaping {
    /// The final state.
    pub state: State,
    /// Launches of the plan's kernels that were made as the program asked, because the condition
    /// of the proof did not hold for them.
    pub refused: u64,
    /// Pairs of launches that were made as one launch.
    pub joined: u64,
}

/// Outcome of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Launches were reshaped.
    On,
    /// None of its kernels was launched.
    Unused,
    /// The device is another one.
    OtherDevice,
    /// The driver is another one.
    OtherDriver,
    /// It could not be read.
    Failed,
    /// The driver does not tell where parameters lie.
    OldDriver,
    /// The program mapped memory, so that two addresses may mean the same memory: from then on,
    /// launches were made as it asked.
    Closed,
}

impl Reshaping {
    /// That of a process; `None` without `--tuned`.
    pub(super) fn of(process: &apex_trace::Process) -> Option<Self> {
        let state = match process.reshape_state {
            ReshapeState::NotWanted => return None,
            ReshapeState::On => State::On,
            ReshapeState::Unused => State::Unused,
            ReshapeState::OtherDevice => State::OtherDevice,
            ReshapeState::OtherDriver => State::OtherDriver,
            ReshapeState::Failed => State::Failed,
            ReshapeState::OldDriver => State::OldDriver,
            ReshapeState::Closed => State::Closed,
        };
        Some(Self { state, refused: process.reshape_refused, joined: process.joined })
    }
}
