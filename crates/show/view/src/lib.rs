//! The part of a session that a command shows, and what every view says about it.
//!
//! * [`Filters`] say which part is wanted: a window and ranks decide what is read, a phase and
//!   kernels what of that is shown.
//! * [`Loaded`] is a session with its profile, read with filters.
//! * [`Shown`] is what the filters leave of it: what is judged, what figures and tables are about.
//! * [`DiffDocument`] is the document of `apex diff`.
//! * [`text`] is the wording of figures, kernels, savings and the verdict.
//!
//! Invariants:
//!
//! 1. A filter that leaves nothing is an error that says what there is.
//! 2. `apex report`, `apex diff`, the page and the dashboard read sessions here, so that the same
//!    filters show the same part everywhere.

mod comparison;
mod filters;
mod loaded;
mod notes;
mod shown;
pub mod text;

pub use comparison::{
    DiffDocument, commands, compared, different_commands, different_programs, energy_change, verdict,
};
pub use filters::{Applied, Filters, Phase};
pub use loaded::{Loaded, predict};
pub use notes::{PHASE_MENU, PHASE_OPTION};
pub use shown::Shown;

/// Reason for which there is nothing to show.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The session cannot be read.
    #[error(transparent)]
    Unreadable(#[from] apex_trace::Error),
    /// The filters leave nothing of the session.
    #[error("{0}")]
    Empty(String),
}
