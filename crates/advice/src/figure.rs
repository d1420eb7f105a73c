//! Figures that say where they come from.

use serde::{Deserialize, Serialize};

/// Where a figure comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Provenance {
    /// Read from a clock or counted, perhaps on a sample.
    Measured,
    /// Follows exactly from recorded values by a formula.
    Computed,
    /// A model's estimate: true only as far as its assumptions are.
    Predicted,
}

impl Provenance {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Computed => "computed",
            Self::Predicted => "predicted",
        }
    }
}

/// A value with its provenance. The unit is in the name of the field that holds it; shares are from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The value.
    pub value: f64,
    /// Where it comes from.
    pub provenance: Provenance,
    /// Samples behind it; 0 where it does not rest on a sample.
    #[serde(default)]
    pub samples: u64,
    /// Standard error of `value`, where it rests on a sample of at least two.
    #[serde(default)]
    pub standard_error: Option<f64>,
}

impl Figure {
    /// A value that was read or counted in full.
    pub fn measured(value: f64) -> Self {
        Self { value, provenance: Provenance::Measured, samples: 0, standard_error: None }
    }

    /// A value that was measured on a sample.
    pub fn sampled(value: f64, samples: u64, standard_error: Option<f64>) -> Self {
        Self { value, provenance: Provenance::Measured, samples, standard_error }
    }

    /// A value that a formula gives.
    pub fn computed(value: f64) -> Self {
        Self { value, provenance: Provenance::Computed, samples: 0, standard_error: None }
    }

    /// A value that a model estimates.
    pub fn predicted(value: f64) -> Self {
        Self { value, provenance: Provenance::Predicted, samples: 0, standard_error: None }
    }

    /// The same figure in another unit.
    pub fn scaled(self, by: f64) -> Self {
        Self {
            value: self.value * by,
            standard_error: self.standard_error.map(|error| error * by.abs()),
            ..self
        }
    }

    /// The sum of independent figures, as weak as its weakest part.
    pub fn sum(parts: impl IntoIterator<Item = Self>) -> Option<Self> {
        parts.into_iter().reduce(|a, b| Self {
            value: a.value + b.value,
            provenance: a.provenance.max(b.provenance),
            samples: a.samples + b.samples,
            standard_error: match (a.standard_error, b.standard_error) {
                (None, None) => None,
                (x, y) => Some(x.unwrap_or(0.0).hypot(y.unwrap_or(0.0))),
            },
        })
    }
}

/// The sum of values: of none it is 0, where `Iterator::sum` gives -0.
pub(crate) fn total(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().fold(0.0, |sum, value| sum + value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_as_weak_as_its_weakest_part() {
        let sum = Figure::sum([
            Figure::sampled(3.0, 10, Some(3.0)),
            Figure::predicted(4.0),
            Figure::sampled(1.0, 5, Some(4.0)),
        ])
        .expect("three parts");
        assert_eq!((sum.value, sum.provenance, sum.samples), (8.0, Provenance::Predicted, 15));
        assert_eq!(sum.standard_error, Some(5.0));
        assert_eq!(Figure::sum([]), None);
    }

    #[test]
    fn scaling_scales_the_error() {
        let scaled = Figure::sampled(2.0, 4, Some(0.5)).scaled(-2.0);
        assert_eq!((scaled.value, scaled.standard_error), (-4.0, Some(1.0)));
    }
}
