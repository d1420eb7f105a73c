//! The action of scheduling by data (`apex run --fast=schedule`).
//!
//! It has no hooks of its own: the ordinary hooks of memory and modules tell it what the program
//! allocates and loads, and the queue's thread asks it about batches. It only watches for calls
//! that share memory, which end it.

use super::actions::Action;
use crate::actions::schedule;
use cuda_abi::ENTRY_POINTS;

/// Launches beside others.
pub static ACTION: Action = Action {
    is_wanted: schedule::is_wanted,
    start: |recorder, _| schedule::start(recorder),
    hook: |_| None,
    watches: shares,
    holding: None,
    is_due: |index| {
        if shares(index) {
            schedule::close();
        }
        false
    },
    flush: || {},
    end: |_| {},
};

/// Whether calls of the entry point at an index end scheduling.
fn shares(index: usize) -> bool {
    schedule::SHARING.contains(&ENTRY_POINTS[index].base)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_share_memory_are_entry_points() {
        for name in schedule::SHARING {
            assert!(ENTRY_POINTS.iter().any(|entry| entry.base == name), "{name}");
        }
    }
}
