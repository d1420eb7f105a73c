//! The table of actions. A new action is a folder in [`crate::actions`], its hooks, and a line
//! here.

use super::{Hook, gives_addresses, hashed, pooled, queued, reshaped, retargeted, scheduled, told};
use crate::actions::{Ending, Slots};
use crate::flush;
use crate::record::Recorder;

/// All actions, in the order in which they start and end. Before a call, the last one comes first:
/// it is the one nearest to the driver.
static ACTIONS: [&Action; 7] = [
    &queued::ACTION,
    &pooled::ACTION,
    &scheduled::ACTION,
    &reshaped::ACTION,
    &hashed::ACTION,
    &retargeted::ACTION,
    &told::ACTION,
];

/// An action as the loader sees it.
pub struct Action {
    /// Whether the user asks for it.
    pub is_wanted: fn() -> bool,
    /// Makes it for this process. False, and the file's header says so, if that fails.
    pub start: fn(&'static Recorder, Slots) -> bool,
    /// Its hook in place of the ordinary one of the entry point at an index, whatever slots are set
    /// to.
    pub hook: fn(usize) -> Option<Hook>,
    /// Whether it has to know of each call of the entry point at an index ([`Action::is_due`]).
    pub watches: fn(usize) -> bool,
    /// The functions by which it holds work back, if it does.
    pub holding: Option<Holding>,
    /// A call of the entry point at an index is about to be made. Whether work has to be let out
    /// before.
    pub is_due: fn(usize) -> bool,
    /// Lets work out.
    pub flush: fn(),
    /// The process ends.
    pub end: fn(Ending),
}

/// The functions by which work is held back.
pub struct Holding {
    /// Returns the content of the slot at an index meanwhile, given its usual content.
    pub slot: fn(usize, *mut ()) -> *mut (),
    /// Whether calls of the entry point at an index begin it.
    pub begins: fn(usize) -> bool,
    /// Sets the slots at first.
    pub first: fn(Slots),
}

/// For a flush that is not an action's: work may be held back at any time, so that every call
/// flushes it.
pub static ALWAYS: Holding = Holding {
    slot: |index, direct| if gives_addresses(index) { direct } else { flush::slot(index, direct) },
    begins: |_| false,
    first: |slots| (slots.hold)(),
};

/// Starts the actions that the user wants, as far as they are possible here.
pub fn start(recorder: &'static Recorder, slots: Slots) -> Vec<&'static Action> {
    let wanted = ACTIONS.iter().copied().filter(|action| (action.is_wanted)());
    let started: Vec<_> = wanted.filter(|action| (action.start)(recorder, slots)).collect();
    if !started.is_empty() {
        flush::register(flush::Flush { is_due, run });
    }
    started
}

/// Tells every action of a call, and says whether work has to be let out before.
fn is_due(index: usize) -> bool {
    // Every action is asked: `any` would stop at the first.
    let due = ACTIONS.iter().rev().filter(|action| (action.is_due)(index)).count();
    due > 0
}

fn run() {
    ACTIONS.iter().for_each(|action| (action.flush)());
}

/// The process ends.
pub fn end(ending: Ending) {
    ACTIONS.iter().for_each(|action| (action.end)(ending));
}
