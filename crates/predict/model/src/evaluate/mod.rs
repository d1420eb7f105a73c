//! Evaluation of predictions: measures, their confidence, and the cases to test on.
//!
//! Cases of one group (launches of one kernel family) are alike. A split that puts some of them on
//! both sides, or a confidence interval that takes them for independent, flatters: [`folds`] keeps
//! groups whole, and [`Bootstrap`] resamples whole groups.

mod bootstrap;
mod folds;
mod measures;

pub use bootstrap::{Bootstrap, Confidence};
pub use folds::{Fold, folds};
pub use measures::{coverage, pearson, quantile};
