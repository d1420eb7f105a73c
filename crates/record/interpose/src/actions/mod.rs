//! Actions: ways to execute calls differently (`apex run --fast`, `--tuned`, `--universal`,
//! `--capability`). The
//! [`queue`] makes launches in a thread of its own, the [`pool`] reuses memory that the program
//! frees, [`schedule`] runs launches of a batch concurrently, [`reshape`] launches the same threads
//! in other blocks, [`fusion`] makes two launches as one, [`results`] hashes the program's results,
//! with and without that, [`universal`] loads PTX that the driver refuses as too new, and
//! [`capability`] tells chosen libraries another compute capability.
//!
//! Everything about an action but its hooks is in its module here; its hooks are a module of
//! [`hooks`](crate::hooks), which ends with the action's line of the table
//! ([`hooks::actions`](crate::hooks::actions)). Its figures are in the file's header
//! (`apex_trace::layout`).

mod ask;
pub mod capability;
pub mod fusion;
pub mod pool;
pub mod queue;
pub mod reshape;
pub mod results;
pub mod schedule;
pub mod universal;

use apex_conventions::variables::FAST;

/// Functions that set the slots of entry points; see [`crate::loader`].
#[derive(Clone, Copy)]
pub struct Slots {
    /// Work is held back: calls that must not overtake it let it out first.
    pub hold: fn(),
    /// Calls that may hold work back come to the action; other calls go straight to the driver.
    pub arm: fn(),
    /// Calls go straight to the driver: a launch costs what it costs without an action.
    pub release: fn(),
}

/// The way in which the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Handlers of the end are called.
    Exit,
    /// They are not: `_exit` and its like, which any code may call, a signal handler too.
    Abrupt,
    /// It becomes another program, or goes on if that fails.
    Exec,
}

/// Whether the user wants the program made faster in this way.
pub fn is_wanted(way: &str) -> bool {
    std::env::var(FAST.name).is_ok_and(|value| value.split(',').any(|wanted| wanted == way))
}
