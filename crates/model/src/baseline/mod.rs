//! Plain methods that a network must beat to be worth its name: least squares, nearest neighbours,
//! boosted trees.
//!
//! Each is fitted to [`Examples`] (their weights count, unknown targets are left out) and predicts
//! one number for each target, through the same [`crate::Regressor`] as a network; fractions are
//! kept from 0 to 1.

mod linear;
mod neighbours;
mod trees;

use crate::network::Range;
use crate::train::Examples;
use crate::{Error, Matrix};

pub use linear::LeastSquares;
pub use neighbours::Neighbours;
pub use trees::{Boosting, Trees};

/// `Ok` when a baseline can be fitted: one range for each target, and an example that counts for
/// each.
fn check(examples: &Examples, ranges: &[Range]) -> Result<(), Error> {
    Error::check_length("the ranges of targets", examples.targets().columns(), ranges.len())?;
    let counts = |target| {
        let known = examples.targets().column(target).zip(examples.weights());
        known.into_iter().any(|(value, &weight)| !value.is_nan() && weight > 0.0)
    };
    match (0..ranges.len()).all(counts) {
        true => Ok(()),
        false => Err(Error::TooFew { what: "examples with a known target", needed: 1, found: 0 }),
    }
}

/// `Ok` when these are features that a baseline of so many can be asked with.
fn check_features(features: &Matrix, expected: usize) -> Result<(), Error> {
    Error::check_length("a row of features", expected, features.columns())?;
    features.iter().try_for_each(|row| Error::check_finite("a row of features", row))
}

/// `value`, or the nearest that the target may have.
fn within(range: Range, value: f64) -> f32 {
    match range {
        Range::Fraction => value.clamp(0.0, 1.0) as f32,
        Range::Real => value as f32,
    }
}
