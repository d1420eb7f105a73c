//! Trains models from data sets: training, judgement on held-out families, the model card.
//!
//! ```text
//! data set ─► examples ─► learn (ensembles of networks) ─► judge (folds by family, baselines) ─► report, card
//!                                       └───────────► models with calibrated intervals
//! ```
//!
//! * [`examples`]: a data set as cases with known outcome.
//! * [`learn`]: networks from examples.
//! * [`judge`]: how well they predict what they have not seen, beside plain methods.
//! * [`report`]: the findings, for people and programs.
//!
//! The same data, seed and kind of processor give the same weights.

pub mod examples;
mod fit;
pub mod judge;
pub mod learn;
mod rates;
pub mod report;
mod run;
mod work;

pub use examples::Data;
pub use report::Report;
pub use run::{Options, Progress, Trained, refit, run};

/// The reason why training gave no model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The data set cannot be read.
    #[error(transparent)]
    DataSet(#[from] apex_dataset::Error),
    /// The data cannot be learned from.
    #[error(transparent)]
    Model(#[from] apex_model::Error),
    /// The options ask for something impossible.
    #[error("{0}")]
    Refused(String),
    /// The caller stopped it.
    #[error("stopped before the end; nothing was written")]
    Stopped,
}
