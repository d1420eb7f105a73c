//! Compares the times of two shapes by pairs of launches.
//!
//! Launches of both shapes alternate at random within one run. A pair is two timed launches of
//! different shapes, next to each other in time, of one size and one stream's state, so that
//! clocks, temperature and other work are as equal as they can be. The interval is that of the
//! pairs' median by order statistics, which assumes nothing about the distribution of times.

use apex_ordered::Order;
use serde::{Deserialize, Serialize};

/// Least number of pairs that decide.
pub const LEAST_PAIRS: usize = 10;

/// Quantile of the normal distribution for a two-sided interval of 95%.
const Z: f64 = 1.96;

/// A timed launch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timed {
    /// Start of its call, in nanoseconds since the process's start.
    pub start_ns: u64,
    /// Its time on the GPU.
    pub ns: f64,
    /// Whether it was made in the other shape, not in the program's.
    pub is_other: bool,
}

/// The time in the other shape divided by that in the program's: a measured median with its 95%
/// interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// The median of the pairs.
    pub median: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end of the interval.
    pub high: f64,
    /// Pairs of launches.
    pub pairs: usize,
}

/// The ratios of pairs among launches that may be compared with each other.
pub fn paired_ratios(mut launches: Vec<Timed>) -> Vec<f64> {
    launches.order_by_key(|launch| launch.start_ns);
    let mut ratios = Vec::new();
    let mut waiting: Option<Timed> = None;
    for launch in launches {
        match waiting.take() {
            Some(before) if before.is_other != launch.is_other => {
                let (own, other) = if launch.is_other { (before, launch) } else { (launch, before) };
                ratios.push(other.ns.max(1.0) / own.ns.max(1.0));
            }
            _ => waiting = Some(launch),
        }
    }
    ratios
}

/// A share or ratio to four digits after the point: what JSON gives back as it was written.
pub(crate) fn rounded(ratio: f64) -> f64 {
    (ratio * 1e4).round() / 1e4
}

impl Ratio {
    /// Of these pairs; `None` with too few.
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timed(start_ns: u64, ns: f64, is_other: bool) -> Timed {
        Timed { start_ns, ns, is_other }
    }

    #[test]
    fn neighbours_of_different_shapes_are_pairs() {
        let launches = vec![
            timed(5, 50.0, true),
            timed(1, 100.0, false),
            timed(2, 110.0, false),
            timed(3, 55.0, true),
            timed(4, 200.0, false),
            timed(6, 60.0, true),
        ];
        assert_eq!(paired_ratios(launches), [0.5, 0.25], "110 with 55, 200 with 50; 100 and 60 are alone");
    }

    #[test]
    fn the_interval_is_that_of_the_median() {
        let ratio = Ratio::of((1..=100).rev().map(f64::from).collect()).unwrap();
        assert_eq!((ratio.low, ratio.median, ratio.high, ratio.pairs), (41.0, 50.5, 60.0, 100));
        let few = Ratio::of((1..=10).map(f64::from).collect()).unwrap();
        assert_eq!((few.low, few.median, few.high), (2.0, 5.5, 9.0));
        assert_eq!(Ratio::of(vec![1.0; 9]), None);
    }

    #[test]
    fn one_launch_that_took_long_changes_nothing() {
        let mut ratios = vec![0.5; 40];
        ratios[7] = 1000.0;
        let ratio = Ratio::of(ratios).unwrap();
        assert_eq!((ratio.low, ratio.median, ratio.high), (0.5, 0.5, 0.5));
    }
}
