//! The interval of paired ratios, and when a candidate counts as better.
//!
//! A pair is two measurements in turn, of the original and of the candidate: clocks, temperature
//! and other work are as equal for both as they can be. The interval is that of the median by order
//! statistics, which assumes nothing about the distribution of times.
//!
//! Invariants: fewer than [`LEAST_PAIRS`] pairs have no interval; `low <= median <= high`, each
//! with four digits after the point, so that JSON gives them back as they were written.

use apex_ordered::Order;
use serde::{Deserialize, Serialize};

/// Least number of pairs that decide.
pub const LEAST_PAIRS: usize = 10;

/// A candidate replaces the original if the upper end of its interval lies below this ratio.
pub const MOST_RATIO: f64 = 0.99;

/// Quantile of the normal distribution for a two-sided interval of 95%.
const Z: f64 = 1.96;

/// The ratio of a candidate's time to the original's: a measured median with its 95% interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// The median of the pairs.
    pub median: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end of the interval.
    pub high: f64,
    /// Pairs that were measured.
    pub pairs: usize,
}

/// Rounds a share or ratio to four digits after the point.
pub fn rounded(ratio: f64) -> f64 {
    (ratio * 1e4).round() / 1e4
}

/// The median of values; `None` of none.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut values = values.to_vec();
    values.order_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    Some(f64::midpoint(values[(values.len() - 1) / 2], upper))
}

impl Ratio {
    /// The ratio of these pairs; `None` if they are fewer than [`LEAST_PAIRS`].
    pub fn of(mut ratios: Vec<f64>) -> Option<Self> {
        let pairs = ratios.len();
        if pairs < LEAST_PAIRS {
            return None;
        }
        ratios.order_by(f64::total_cmp);
        let spread = Z * (pairs as f64).sqrt() / 2.0;
        let low = (pairs as f64 / 2.0 - spread).floor().max(0.0) as usize;
        let median = f64::midpoint(ratios[(pairs - 1) / 2], ratios[pairs / 2]);
        let [median, low, high] = [median, ratios[low], ratios[pairs - 1 - low]].map(rounded);
        Some(Self { median, low, high, pairs })
    }

    /// Whether the candidate takes less: the whole interval lies below [`MOST_RATIO`].
    pub fn is_better(&self) -> bool {
        self.high < MOST_RATIO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_that_of_the_median() {
        let ratio = Ratio::of((1..=100).rev().map(f64::from).collect()).unwrap();
        assert_eq!((ratio.low, ratio.median, ratio.high, ratio.pairs), (41.0, 50.5, 60.0, 100));
        let few = Ratio::of((1..=10).map(f64::from).collect()).unwrap();
        assert_eq!((few.low, few.median, few.high), (2.0, 5.5, 9.0));
        assert_eq!(Ratio::of(vec![1.0; 9]), None);
    }

    #[test]
    fn one_value_that_took_long_changes_nothing() {
        let mut ratios = vec![0.5; 40];
        ratios[7] = 1000.0;
        let ratio = Ratio::of(ratios).unwrap();
        assert_eq!((ratio.low, ratio.median, ratio.high), (0.5, 0.5, 0.5));
        assert!(ratio.is_better() && !Ratio::of(vec![0.99; 40]).unwrap().is_better());
    }

    #[test]
    fn the_median_is_between_the_middle_values() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }
}
