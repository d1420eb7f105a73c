//! A figure before and after, and whether the difference is more than chance.
//!
//! Where a side has several runs, their spread decides: the means differ if they do by more than
//! three standard errors would be of a normal distribution (1 in 370 by chance), by Welch's t-test.
//! One run alone is taken to spread as the runs of the other side do. Where both sides are one run,
//! the spread of samples in it decides, or whether the intervals of predicted figures meet; where
//! samples are counted each side needs five. How runs differ is not known then. A difference of
//! less than 1% is none.

use serde::Serialize;

use apex_profile::{Figure, total};

/// Standard errors that a difference must exceed.
const ERRORS: f64 = 3.0;
/// Replaces [`ERRORS`] if the error itself is estimated with one to ten degrees of freedom:
/// quantiles of Student's t with the same probability.
const FEW: [f64; 10] = [235.801, 19.207, 9.219, 6.620, 5.507, 4.904, 4.530, 4.277, 4.094, 3.957];
/// Share of the value that a difference must exceed.
const LEAST: f64 = 0.01;
/// Samples on each side below which nothing is significant.
pub(super) const SAMPLES: u64 = 5;

/// A figure before and after; of several runs, their mean.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Before.
    pub before: Option<Figure>,
    /// After.
    pub after: Option<Figure>,
    /// After over before; `None` where one is unknown or before is 0.
    pub ratio: Option<f64>,
    /// Whether the difference is more than chance; `None` if unknown.
    pub significant: Option<bool>,
    /// The values of the runs before and of those after, as far as they are known.
    pub runs: (Vec<f64>, Vec<f64>),
}

impl Change {
    /// Compares the figures of both sides' runs.
    pub(super) fn of(before: &[Option<Figure>], after: &[Option<Figure>]) -> Self {
        let known = |runs: &[Option<Figure>]| runs.iter().copied().flatten().collect::<Vec<Figure>>();
        let (before, after) = (known(before), known(after));
        let significant = significant(&before, &after);
        Self::new(&before, &after, significant)
    }

    /// A time of the CPU device, where the host executes kernels beside everything else that it
    /// runs: samples of one run say nothing about the next run, so that only repeated runs show
    /// what is chance.
    pub(super) fn of_a_busy_host(mut self) -> Self {
        if self.runs.0.len() < 2 || self.runs.1.len() < 2 {
            self.significant = None;
        }
        self
    }

    /// As [`Self::counted`], where some runs may not have been counted: a side without counts is
    /// unknown, not zero.
    pub(super) fn counted_if_known(before: &[Option<f64>], after: &[Option<f64>]) -> Self {
        let known = |runs: &[Option<f64>]| runs.iter().copied().flatten().collect::<Vec<f64>>();
        Self::counted(&known(before), &known(after))
    }

    /// Compares the counts of both sides' runs. With one run each, every difference is significant.
    pub(super) fn counted(before: &[f64], after: &[f64]) -> Self {
        let counts = |runs: &[f64]| runs.iter().copied().map(Figure::measured).collect::<Vec<Figure>>();
        let (counts_before, counts_after) = (counts(before), counts(after));
        let significant = match (before, after) {
            ([before], [after]) => Some(before != after),
            _ => significant(&counts_before, &counts_after),
        };
        Self::new(&counts_before, &counts_after, significant)
    }

    fn new(before: &[Figure], after: &[Figure], significant: Option<bool>) -> Self {
        let values = |figures: &[Figure]| figures.iter().map(|figure| figure.value).collect();
        let runs = (values(before), values(after));
        let (before, after) = (mean(before), mean(after));
        let ratio = match (before, after) {
            (Some(before), Some(after)) if before.value != 0.0 => Some(after.value / before.value),
            _ => None,
        };
        Self { before, after, ratio, significant, runs }
    }

    /// Whether the figure rose beyond chance by more than this factor.
    pub fn rose_above(&self, factor: f64) -> bool {
        self.significant == Some(true) && self.ratio.is_some_and(|ratio| ratio > factor)
    }
}

/// The mean of runs; its error is by how far they spread, where they are several.
fn mean(runs: &[Figure]) -> Option<Figure> {
    let mut mean = Figure::sum(runs.iter().copied())?.scaled(1.0 / runs.len() as f64);
    if let Some(variance) = variance(runs) {
        mean.samples = runs.len() as u64;
        mean.standard_error = Some((variance / runs.len() as f64).sqrt());
    }
    Some(mean)
}

/// Sample variance; `None` of fewer than two.
fn variance(runs: &[Figure]) -> Option<f64> {
    let count = runs.len() as f64;
    let mean = total(runs.iter().map(|run| run.value)) / count;
    let squares = total(runs.iter().map(|run| (run.value - mean).powi(2)));
    (runs.len() > 1).then(|| squares / (count - 1.0))
}

fn significant(before: &[Figure], after: &[Figure]) -> Option<bool> {
    let (mean_before, mean_after) = (mean(before)?, mean(after)?);
    let difference = (mean_after.value - mean_before.value).abs();
    let least = LEAST * mean_before.value.abs();
    let limit = match (variance(before), variance(after)) {
        (None, None) => {
            if let (Some(one), Some(other)) = (mean_before.interval(), mean_after.interval()) {
                let few = |mean: &Figure| (1..SAMPLES).contains(&mean.samples);
                let apart = one.1 < other.0 || other.1 < one.0;
                return (!few(&mean_before) && !few(&mean_after)).then_some(apart && difference > least);
            }
            let error = mean_before.standard_error?.hypot(mean_after.standard_error?);
            let samples = mean_before.samples.min(mean_after.samples);
            ERRORS * Some(error).filter(|_| samples >= SAMPLES)?
        }
        spreads => {
            let counts = [before.len() as f64, after.len() as f64];
            let (error, freedom) = error_of_difference(spreads, counts);
            errors(freedom) * error
        }
    };
    Some(difference > limit && difference > least)
}

/// Standard error of the difference of two means, and how many degrees of freedom it has (Welch and
/// Satterthwaite).
fn error_of_difference(spreads: (Option<f64>, Option<f64>), [before, after]: [f64; 2]) -> (f64, f64) {
    match spreads {
        (Some(first), Some(second)) => {
            let (first, second) = (first / before, second / after);
            let sum = first + second;
            let parts = first * first / (before - 1.0) + second * second / (after - 1.0);
            (sum.sqrt(), if parts > 0.0 { sum * sum / parts } else { before + after - 2.0 })
        }
        (Some(one), None) | (None, Some(one)) => {
            ((one * (1.0 / before + 1.0 / after)).sqrt(), before.max(after) - 1.0)
        }
        (None, None) => (f64::INFINITY, 1.0),
    }
}

/// Returns the number of standard errors that a difference must exceed if the error has this number
/// of degrees of freedom.
fn errors(freedom: f64) -> f64 {
    match FEW.get((freedom.max(1.0) as usize) - 1) {
        Some(errors) => *errors,
        // The first terms of the expansion of t by the normal quantile (Fisher and Cornish).
        None => {
            let z = ERRORS;
            let (first, second) =
                ((z.powi(3) + z) / 4.0, (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0);
            z + first / freedom + second / (freedom * freedom)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(before: &[f64], after: &[f64]) -> Change {
        let runs =
            |values: &[f64]| values.iter().map(|&value| Some(Figure::measured(value))).collect::<Vec<_>>();
        Change::of(&runs(before), &runs(after))
    }

    #[test]
    fn the_spread_of_runs_decides() {
        // Means differ by 10; the standard error of that is 0.82, with four degrees of freedom.
        let change = compared(&[99.0, 100.0, 101.0], &[109.0, 110.0, 111.0]);
        assert_eq!((change.significant, change.ratio), (Some(true), Some(1.1)));
        let before = change.before.expect("known");
        assert_eq!((before.value, before.samples), (100.0, 3));
        assert!((before.standard_error.expect("three runs") - 1.0 / 3f64.sqrt()).abs() < 1e-12);
        assert_eq!(change.runs.1, [109.0, 110.0, 111.0]);
        assert_eq!(compared(&[90.0, 100.0, 110.0], &[100.0, 110.0, 120.0]).significant, Some(false));
        // Two runs a side tell little.
        assert_eq!(compared(&[99.0, 101.0], &[109.0, 111.0]).significant, Some(false));
        // One run spreads as the others do.
        assert_eq!(compared(&[99.0, 99.5, 100.0, 100.5, 101.0], &[110.0]).significant, Some(true));
        assert_eq!(compared(&[90.0, 95.0, 100.0, 105.0, 110.0], &[110.0]).significant, Some(false));
        assert_eq!(compared(&[100.0, 100.0], &[100.5, 100.5]).significant, Some(false), "less than 1%");
        assert_eq!(compared(&[100.0], &[200.0]).significant, None, "nothing is known of their spread");
    }

    #[test]
    fn one_run_of_the_cpu_device_tells_nothing_about_the_next() {
        let sampled = |value: f64| [Some(Figure::sampled(value, 100, Some(value / 1000.0)))];
        let change = Change::of(&sampled(464e6), &sampled(138e6));
        assert_eq!(change.significant, Some(true), "the samples of a GPU tell");
        let change = change.of_a_busy_host();
        assert_eq!((change.significant, change.rose_above(0.1)), (None, false));
        let repeated = compared(&[99.0, 100.0, 101.0], &[109.0, 110.0, 111.0]).of_a_busy_host();
        assert_eq!(repeated.significant, Some(true));
        assert_eq!(compared(&[100.0, 101.0, 99.0], &[200.0]).of_a_busy_host().significant, None);
    }

    #[test]
    fn what_was_not_counted_is_unknown() {
        let change = Change::counted_if_known(&[None], &[Some(7.0)]);
        assert_eq!((change.before, change.ratio, change.significant), (None, None, None));
        assert_eq!(change.after.map(|figure| figure.value), Some(7.0));
    }

    #[test]
    fn what_is_counted_once_is_exact() {
        assert_eq!(Change::counted(&[8.0], &[8.0]).significant, Some(false));
        assert_eq!(Change::counted(&[1000.0], &[1001.0]).significant, Some(true));
        assert_eq!(Change::counted(&[8.0, 9.0], &[8.0, 10.0]).significant, Some(false));
        assert_eq!(Change::counted(&[0.0], &[10.0]).ratio, None);
    }

    #[test]
    fn few_runs_must_differ_by_more() {
        let expected = [(1.0, 235.801), (4.9, 6.62), (12.0, 3.764), (30.0, 3.270), (1e9, 3.0)];
        for (freedom, limit) in expected {
            assert!((errors(freedom) / limit - 1.0).abs() < 0.01, "{freedom}: {}", errors(freedom));
        }
    }
}
