//! Figures with their provenance.
//!
//! Every predicted figure has an interval: [`Figure::predicted`], the only constructor, requires
//! one, and sums, parts and complements of predicted figures derive theirs from it. Measured and
//! computed figures have no interval; in a prediction that includes them, their sampling error
//! counts.

use serde::Serialize;

/// Half the width of a 90% interval, in standard errors.
pub(crate) const NINETY_PERCENT: f64 = 1.645;

/// The provenance of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Provenance {
    /// Read from a clock or counted, in full or on a sample.
    Measured,
    /// Computed exactly from recorded values.
    Computed,
    /// Estimated by a model.
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

/// A value with its provenance. The unit is in the name of the field that holds it; shares are from
/// 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(into = "Written")]
pub struct Figure {
    /// The value.
    pub value: f64,
    /// Number of samples; 0 if the value is not from a sample.
    pub samples: u64,
    /// Standard error of `value`; `None` with fewer than two samples.
    pub standard_error: Option<f64>,
    source: Source,
}

/// A provenance, and the interval of a prediction.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Source {
    Measured,
    Computed,
    Predicted { low: f64, high: f64 },
}

/// A figure as it is written: flat.
#[derive(Serialize)]
struct Written {
    value: f64,
    provenance: Provenance,
    samples: u64,
    standard_error: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
}

impl Default for Figure {
    /// Nothing.
    fn default() -> Self {
        Self::computed(0.0)
    }
}

impl From<Figure> for Written {
    fn from(figure: Figure) -> Self {
        let (low, high) = figure.interval().unzip();
        let Figure { value, samples, standard_error, .. } = figure;
        Self { value, provenance: figure.provenance(), samples, standard_error, low, high }
    }
}

impl Figure {
    /// A value that was read or counted in full.
    pub fn measured(value: f64) -> Self {
        Self::sampled(value, 0, None)
    }

    /// A value that was measured on a sample.
    pub fn sampled(value: f64, samples: u64, standard_error: Option<f64>) -> Self {
        Self { value, samples, standard_error, source: Source::Measured }
    }

    /// A value that was computed exactly.
    pub fn computed(value: f64) -> Self {
        Self { value, samples: 0, standard_error: None, source: Source::Computed }
    }

    /// A value that a model estimates, and its interval, which is extended if the value lies
    /// outside.
    pub fn predicted(value: f64, (low, high): (f64, f64)) -> Self {
        let source = Source::Predicted { low: low.min(value), high: high.max(value) };
        Self { value, samples: 0, standard_error: None, source }
    }

    /// The same figure with this number of samples.
    pub fn of_samples(self, samples: u64) -> Self {
        Self { samples, ..self }
    }

    /// The provenance.
    pub fn provenance(&self) -> Provenance {
        match self.source {
            Source::Measured => Provenance::Measured,
            Source::Computed => Provenance::Computed,
            Source::Predicted { .. } => Provenance::Predicted,
        }
    }

    /// The interval of a predicted figure; `None` for others.
    pub fn interval(&self) -> Option<(f64, f64)> {
        match self.source {
            Source::Predicted { low, high } => Some((low, high)),
            Source::Measured | Source::Computed => None,
        }
    }

    /// The 90% bounds: the interval, or the value and its sampling error. The spread of a single
    /// sample is unknown and assumed to be as large as the value.
    pub fn bounds(&self) -> (f64, f64) {
        if let Some(interval) = self.interval() {
            return interval;
        }
        let unknown = if self.samples == 1 { self.value.abs() } else { 0.0 };
        let off = NINETY_PERCENT * self.standard_error.unwrap_or(unknown);
        (self.value - off, self.value + off)
    }

    /// The same figure in another unit.
    pub fn scaled(self, by: f64) -> Self {
        self.mapped(|value| value * by, by.abs())
    }

    /// `1 - self`.
    pub fn complement(self) -> Self {
        self.mapped(|value| 1.0 - value, 1.0)
    }

    /// The figure and its interval, limited to `most`.
    pub fn at_most(self, most: f64) -> Self {
        self.mapped(|value| value.min(most), 1.0)
    }

    /// A predicted figure with another value, whose interval is limited to `most`.
    pub fn capped(self, value: f64, most: f64) -> Self {
        let (low, high) = self.bounds();
        Self::predicted(value, (low, high.min(most)))
    }

    /// This share of `whole`, as a prediction whose interval combines the bounds of both.
    pub fn part_of(self, whole: Self) -> Self {
        let ((low, high), (least, most)) = (self.bounds(), whole.bounds());
        Self::predicted(self.value * whole.value, (low * least.max(0.0), high * most))
    }

    /// The sum of figures, with the weakest provenance of its parts. Errors of measured parts are
    /// independent; if a part is predicted, the interval is the sum of the parts' bounds.
    pub fn sum(parts: impl IntoIterator<Item = Self>) -> Option<Self> {
        parts.into_iter().reduce(|a, b| {
            let ((low_a, high_a), (low_b, high_b)) = (a.bounds(), b.bounds());
            Self {
                value: a.value + b.value,
                samples: a.samples.saturating_add(b.samples),
                standard_error: match (a.standard_error, b.standard_error) {
                    (None, None) => None,
                    (x, y) => Some(x.unwrap_or(0.0).hypot(y.unwrap_or(0.0))),
                },
                source: match (a.source, b.source) {
                    (Source::Measured, Source::Measured) => Source::Measured,
                    (Source::Predicted { .. }, _) | (_, Source::Predicted { .. }) => {
                        Source::Predicted { low: low_a + low_b, high: high_a + high_b }
                    }
                    _ => Source::Computed,
                },
            }
        })
    }

    /// Applies a monotonic function to value and interval.
    fn mapped(self, map: impl Fn(f64) -> f64, error_by: f64) -> Self {
        let source = match self.source {
            Source::Predicted { low, high } => {
                let (one, other) = (map(low), map(high));
                Source::Predicted { low: one.min(other), high: one.max(other) }
            }
            source => source,
        };
        let standard_error = self.standard_error.map(|error| error * error_by);
        Self { value: map(self.value), standard_error, source, ..self }
    }
}

/// The sum of values. Unlike `Iterator::sum`, the sum of no values is 0, not -0.
pub fn total(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().fold(0.0, |sum, value| sum + value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_as_weak_as_its_weakest_part() {
        let sum = Figure::sum([
            Figure::sampled(3.0, 10, Some(3.0)),
            Figure::predicted(4.0, (2.0, 7.0)),
            Figure::sampled(1.0, 5, Some(4.0)),
        ])
        .expect("three parts");
        assert_eq!((sum.value, sum.provenance(), sum.samples), (8.0, Provenance::Predicted, 15));
        assert_eq!(sum.standard_error, Some(5.0));
        let (low, high) = sum.interval().expect("it is predicted");
        let off = 7.0 * NINETY_PERCENT;
        assert!((low - (6.0 - off)).abs() < 1e-12 && (high - (11.0 + off)).abs() < 1e-12, "{low} {high}");
        let mixed = Figure::sum([Figure::measured(1.0), Figure::computed(2.0)]).expect("two parts");
        assert_eq!((mixed.provenance(), mixed.interval()), (Provenance::Computed, None));
        assert_eq!(Figure::sum([]), None);
    }

    #[test]
    fn scaling_scales_the_error_and_the_interval() {
        let scaled = Figure::sampled(2.0, 4, Some(0.5)).scaled(-2.0);
        assert_eq!((scaled.value, scaled.standard_error), (-4.0, Some(1.0)));
        let predicted = Figure::predicted(2.0, (1.0, 4.0));
        assert_eq!(predicted.scaled(-2.0).interval(), Some((-8.0, -2.0)));
        assert_eq!(predicted.scaled(0.1).complement(), Figure::predicted(0.8, (0.6, 0.9)));
        assert_eq!(predicted.at_most(3.0).interval(), Some((1.0, 3.0)));
        assert_eq!(predicted.capped(1.5, 2.5), Figure::predicted(1.5, (1.0, 2.5)));
    }

    #[test]
    fn an_interval_holds_its_value_whatever_it_was_made_of() {
        assert_eq!(Figure::predicted(5.0, (1.0, 4.0)).interval(), Some((1.0, 5.0)));
        assert_eq!(Figure::predicted(0.0, (1.0, 4.0)).interval(), Some((0.0, 4.0)));
        let part = Figure::predicted(0.5, (0.0, 0.5)).part_of(Figure::sampled(100.0, 9, Some(10.0)));
        assert_eq!((part.value, part.interval()), (50.0, Some((0.0, 0.5 * (100.0 + 10.0 * NINETY_PERCENT)))));
        // Nothing is known of the spread of one sample.
        assert_eq!(Figure::sampled(10.0, 1, None).bounds(), (10.0 - 16.45, 10.0 + 16.45));
        assert_eq!(Figure::measured(10.0).bounds(), (10.0, 10.0));
    }

    #[test]
    fn a_predicted_figure_is_written_with_its_interval() {
        let text = serde_json::to_string(&Figure::predicted(1.0, (0.5, 2.0))).expect("serialises");
        assert!(
            text.contains(r#""provenance":"predicted""#) && text.contains(r#""low":0.5,"high":2.0"#),
            "{text}"
        );
    }
}
