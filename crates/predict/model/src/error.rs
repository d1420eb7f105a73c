//! Errors in a caller's data.

use thiserror::Error as ThisError;

/// Input that cannot be used.
#[derive(Clone, Debug, PartialEq, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// Something has another length than what it goes with.
    #[error("{what} has {found} numbers where {expected} are needed")]
    Length {
        /// The name of the data.
        what: &'static str,
        /// The number of values that it should have.
        expected: usize,
        /// The number of values that it has.
        found: usize,
    },
    /// A number is infinite or not a number.
    #[error("{what}: number {index} is {value}, which cannot be computed with; leave it out or replace it")]
    NotFinite {
        /// The name of the data.
        what: &'static str,
        /// Its position, from 0.
        index: usize,
        /// The value.
        value: f32,
    },
    /// A number lies outside of the range that it must have.
    #[error("{what} is {value}, but must be {range}")]
    Range {
        /// The name of the number.
        what: &'static str,
        /// The value.
        value: f64,
        /// The allowed range.
        range: &'static str,
    },
    /// There is not enough to work with.
    #[error("{what}: {found} found, at least {needed} needed")]
    TooFew {
        /// The things of which there are too few.
        what: &'static str,
        /// The least number of them.
        needed: usize,
        /// The number of them.
        found: usize,
    },
    /// Training went astray.
    #[error("the loss or a weight is no longer finite in epoch {epoch}: lower the learning rate")]
    Diverged {
        /// The epoch, from 1.
        epoch: usize,
    },
}

impl Error {
    /// `Ok` when the lengths agree.
    pub(crate) fn check_length(what: &'static str, expected: usize, found: usize) -> Result<(), Error> {
        if expected == found { Ok(()) } else { Err(Error::Length { what, expected, found }) }
    }

    /// `Ok` when all values are finite.
    pub(crate) fn check_finite(what: &'static str, values: &[f32]) -> Result<(), Error> {
        match values.iter().position(|value| !value.is_finite()) {
            None => Ok(()),
            Some(index) => Err(Error::NotFinite { what, index, value: values[index] }),
        }
    }

    /// `Ok` when `holds`.
    pub(crate) fn check_range(
        holds: bool,
        what: &'static str,
        value: f64,
        range: &'static str,
    ) -> Result<(), Error> {
        if holds { Ok(()) } else { Err(Error::Range { what, value, range }) }
    }
}
