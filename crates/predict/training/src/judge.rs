//! Scores of predictions: correlation, errors, intervals; over all cases, and for each family.
//!
//! Errors of fractions are in points (hundredths), errors of durations in percent of what was
//! measured. Confidence intervals are bootstrapped over families: launches of one family are alike.

use crate::report::{FamilyScore, Range, Score};
use apex_model::evaluate::{Bootstrap, coverage, pearson, quantile};
use apex_ordered::Order;
use apex_predict::Basis;
use std::collections::BTreeMap;

/// The quantity that is predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Quantity {
    /// Achieved occupancy.
    AchievedOccupancy,
    /// SM throughput.
    SmUtilisation,
    /// Warp efficiency.
    WarpEfficiency,
    /// Duration, of a launch of a kernel that was never measured.
    Duration,
    /// Duration, of a launch of a kernel that was measured when it was launched in another way.
    DurationWhatIf,
}

impl Quantity {
    /// The predictions of small and large, in the order of their targets.
    pub const PREDICTED: [Quantity; 4] =
        [Quantity::AchievedOccupancy, Quantity::SmUtilisation, Quantity::WarpEfficiency, Quantity::Duration];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Quantity::AchievedOccupancy => "achieved occupancy",
            Quantity::SmUtilisation => "SM throughput",
            Quantity::WarpEfficiency => "warp efficiency",
            Quantity::Duration => "duration",
            Quantity::DurationWhatIf => "duration, what-if",
        }
    }

    fn is_duration(self) -> bool {
        self >= Quantity::Duration
    }

    /// Error of a prediction: positive if it is more than what was measured.
    fn error(self, predicted: f32, measured: f32) -> f64 {
        let (predicted, measured) = (f64::from(predicted), f64::from(measured));
        match self.is_duration() {
            true => 100.0 * (predicted / measured - 1.0),
            false => 100.0 * (predicted - measured),
        }
    }
}

/// Predictions of one quantity by one method, beside the measurements.
#[derive(Clone, Debug, Default)]
pub struct Cases {
    /// The predictions.
    pub predicted: Vec<f32>,
    /// Intervals, if the method has any.
    pub intervals: Vec<(f32, f32)>,
    /// The measurements.
    pub measured: Vec<f32>,
    /// Families.
    pub groups: Vec<usize>,
    /// Whether the score tells to which side errors are. It does for what users are shown of
    /// durations and SM throughput, not for the networks that are trained to be compared with it.
    pub signed: bool,
}

impl Cases {
    /// Adds a case, unless nothing was measured.
    pub fn push(&mut self, predicted: f32, interval: Option<(f32, f32)>, measured: f32, family: usize) {
        if measured.is_nan() {
            return;
        }
        self.predicted.push(predicted);
        self.intervals.extend(interval);
        self.measured.push(measured);
        self.groups.push(family);
    }

    /// The score; `None` where there is no case.
    pub fn score(
        &self,
        method: &str,
        quantity: Quantity,
        basis: Basis,
        families: &[String],
    ) -> Option<Score> {
        let signed = self.errors(quantity);
        let errors: Vec<f64> = signed.iter().map(|error| error.abs()).collect();
        // Durations span decades: their logarithms correlate.
        let scale = |values: &[f32]| -> Vec<f32> {
            values.iter().map(|value| if quantity.is_duration() { value.log2() } else { *value }).collect()
        };
        let (predicted, measured) = (scale(&self.predicted), scale(&self.measured));
        let bootstrap = Bootstrap { resamples: 400, ..Bootstrap::default() };
        let over = |measure: &dyn Fn(&[usize]) -> Option<f64>| {
            let found = bootstrap.run(errors.len(), Some(&self.groups), measure)?;
            Some(Range { value: found.value, low: found.low, high: found.high })
        };
        let pick = |values: &[f32], rows: &[usize]| rows.iter().map(|&row| values[row]).collect::<Vec<f32>>();
        let correlation = |rows: &[usize]| pearson(&pick(&predicted, rows), &pick(&measured, rows));
        let median =
            |rows: &[usize]| quantile(&rows.iter().map(|&row| errors[row]).collect::<Vec<f64>>(), 0.5);
        let inside = |rows: &[usize]| {
            let intervals: Vec<(f32, f32)> = rows.iter().map(|&row| self.intervals[row]).collect();
            coverage(&intervals, &pick(&self.measured, rows))
        };
        let has_intervals = !self.intervals.is_empty();
        let score = Score {
            method: method.to_owned(),
            quantity: quantity.name().to_owned(),
            basis: basis.name().to_owned(),
            cases: errors.len(),
            correlation: over(&correlation),
            median_error: over(&median)?,
            large_error: quantile(&errors, 0.9)?,
            bias: if self.signed { quantile(&signed, 0.5) } else { None },
            coverage: if has_intervals { over(&inside) } else { None },
            families: self.by_group(quantity, &self.groups, families),
            parts: Vec::new(),
        };
        Some(score)
    }

    fn errors(&self, quantity: Quantity) -> Vec<f64> {
        self.predicted.iter().zip(&self.measured).map(|(&p, &m)| quantity.error(p, m)).collect()
    }

    /// Median errors of groups of the cases, worst first. `groups` has the group of each case,
    /// which is a place among `names`.
    pub fn by_group(&self, quantity: Quantity, groups: &[usize], names: &[String]) -> Vec<FamilyScore> {
        let mut of_group: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        for (&group, error) in groups.iter().zip(self.errors(quantity)) {
            of_group.entry(group).or_default().push(error);
        }
        let score = |(group, errors): (&usize, &Vec<f64>)| {
            let sizes: Vec<f64> = errors.iter().map(|error| error.abs()).collect();
            FamilyScore {
                family: names[*group].clone(),
                cases: errors.len(),
                median_error: quantile(&sizes, 0.5).unwrap_or(f64::NAN),
                bias: if self.signed { quantile(errors, 0.5) } else { None },
            }
        };
        let mut scores: Vec<FamilyScore> = of_group.iter().map(score).collect();
        scores.order_by(|a, b| b.median_error.total_cmp(&a.median_error));
        scores
    }
}
