//! From data sets to models: training, judging on what was held out, the model card.
//!
//! ```text
//! data set ─► examples ─► learn (ensembles of networks) ─► judge (folds by family, baselines) ─► report, card
//!                                       └───────────► models with calibrated intervals
//! ```
//!
//! * [`examples`]: a data set as cases with known outcome.
//! * [`learn`]: networks from examples.
//! * [`judge`]: how well they do on what they have not seen, beside plain methods.
//! * [`report`]: what is found, for people and programs.
//!
//! The same data, seed and kind of processor give the same weights.

pub mod examples;
pub mod judge;
pub mod learn;
pub mod report;
mod run;
mod work;

pub use examples::Data;
pub use report::Report;
pub use run::{Options, Progress, Trained, run};

/// Why there is no model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The data set cannot be read.
    #[error(transparent)]
    DataSet(#[from] apex_dataset::Error),
    /// The data cannot be learned from.
    #[error(transparent)]
    Model(#[from] apex_model::Error),
    /// What was asked for cannot be done.
    #[error("{0}")]
    Refused(String),
    /// It was stopped.
    #[error("stopped before the end; nothing was written")]
    Stopped,
}
