//! Intervals with a guaranteed coverage: split conformal prediction.
//!
//! A predictor's own idea of an interval is a [`Band`]. On cases that it was not trained on, each
//! truth `y` has a *score*, how far it lies outside of its band in units of the band's spread:
//!
//! ```text
//! score = max(low - y, y - high) / spread
//! ```
//!
//! The [`Margin`] is the score that enough of them do not exceed; bands are widened by it
//! (narrowed, where it is negative). The band decides what the interval is: the estimate itself
//! (Papadopoulos et al., 2002; Lei et al., 2018), the estimate with a predicted spread
//! (Papadopoulos et al., 2008), or two predicted quantiles (Romano, Patterson and Candès, 2019).
//!
//! Cases of one group (launches of one kernel family) are alike, so many of them say little more
//! than one. With groups, each counts as much as any other, and the interval holds for a case of a
//! *new* group (Lee, Barber and Willett, 2023): with `K` groups, a score of a group of `n` has the
//! weight `1 / ((K + 1) n)`, the remaining `1 / (K + 1)` belongs to the group that is not known
//! yet, and the margin is the least score up to which the weights reach the coverage. Every case a
//! group of its own is plain split conformal prediction. What is promised holds on average over
//! what the predictor is asked, if that is drawn as the calibration cases were.

use crate::Error;
use crate::network::Range;
use std::collections::BTreeMap;

/// The interval that a predictor gives before calibration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Band {
    /// The lower end.
    pub low: f32,
    /// The upper end.
    pub high: f32,
    /// The unit in which it is widened; above 0.
    pub spread: f32,
}

impl Band {
    /// Nothing but the estimate: all intervals will be equally wide.
    pub fn around(estimate: f32) -> Band {
        Band { low: estimate, high: estimate, spread: 1.0 }
    }

    /// The estimate and how uncertain it is: intervals will be wide where `spread` is large. A
    /// spread that is not a positive number is replaced by the least positive one.
    pub fn spread(estimate: f32, spread: f32) -> Band {
        Band { low: estimate, high: estimate, spread: spread.max(f32::MIN_POSITIVE) }
    }

    /// Two quantiles; where they have crossed, they are exchanged.
    pub fn between(one: f32, other: f32) -> Band {
        Band { low: one.min(other), high: one.max(other), spread: 1.0 }
    }

    fn score(&self, truth: f32) -> f64 {
        let outside = f64::from(self.low - truth).max(f64::from(truth - self.high));
        outside / f64::from(self.spread)
    }
}

/// The margin by which bands are widened.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Margin {
    /// The share of all cases in which the interval holds the truth, between 0 and 1.
    pub coverage: f32,
    /// In units of the band's spread.
    pub margin: f32,
}

impl Margin {
    /// Calibrates on cases that were not trained on: their bands, what was true, and which group
    /// each belongs to (none: each to its own).
    ///
    /// # Errors
    /// [`Error`] when the lengths differ, a number is not finite, the coverage is not between 0 and
    /// 1, or there are fewer groups than the coverage needs: `coverage / (1 - coverage)`, nine for
    /// 0.9.
    pub fn calibrate(
        bands: &[Band],
        truths: &[f32],
        groups: Option<&[usize]>,
        coverage: f32,
    ) -> Result<Margin, Error> {
        let inside = coverage > 0.0 && coverage < 1.0;
        Error::check_range(inside, "the coverage", f64::from(coverage), "between 0 and 1")?;
        Error::check_length("what was true", bands.len(), truths.len())?;
        Error::check_finite("what was true", truths)?;
        for band in bands {
            Error::check_finite("a band", &[band.low, band.high, band.spread])?;
            let spread = f64::from(band.spread);
            Error::check_range(band.spread > 0.0, "the spread of a band", spread, "positive")?;
        }
        if let Some(groups) = groups {
            Error::check_length("the groups", bands.len(), groups.len())?;
        }
        let (sizes, groups) = sizes(groups, bands.len());
        let weight = |size: &usize| 1.0 / ((groups + 1) as f64 * *size as f64);
        let cases = bands.iter().zip(truths).zip(&sizes);
        let mut scores: Vec<(f64, f64)> =
            cases.map(|((band, &truth), size)| (band.score(truth), weight(size))).collect();
        scores.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut reached = 0.0;
        // Coverage and the sum of the weights are rounded; one that they reach exactly must count
        // as reached.
        let enough = f64::from(coverage) - 1e-6;
        let margin = scores.iter().find(|(_, weight)| {
            reached += weight;
            reached >= enough
        });
        let needed = (enough / (1.0 - enough)).ceil() as usize;
        let (margin, _) =
            margin.ok_or(Error::TooFew { what: "groups to calibrate on", needed, found: groups })?;
        Ok(Margin { coverage, margin: *margin as f32 })
    }

    /// The interval of a case, from where to where. It lies in the target's range, and is never
    /// less than empty.
    pub fn interval(&self, band: &Band, range: Range) -> (f32, f32) {
        let (low, high) = (band.low - self.margin * band.spread, band.high + self.margin * band.spread);
        // Narrowed to less than nothing: what is left is the middle.
        let (low, high) = if low <= high { (low, high) } else { (0.5 * (low + high), 0.5 * (low + high)) };
        match range {
            Range::Fraction => (low.clamp(0.0, 1.0), high.clamp(0.0, 1.0)),
            Range::Real => (low, high),
        }
    }
}

/// Returns the number of cases in the group of each case, and the number of groups.
fn sizes(groups: Option<&[usize]>, cases: usize) -> (Vec<usize>, usize) {
    let Some(groups) = groups else { return (vec![1; cases], cases) };
    let mut sizes = BTreeMap::new();
    groups.iter().for_each(|group| *sizes.entry(group).or_insert(0) += 1);
    (groups.iter().map(|group| sizes[group]).collect(), sizes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Truths 1 to 9 around an estimate of 0.
    fn nine() -> (Vec<Band>, Vec<f32>) {
        (vec![Band::around(0.0); 9], (1..=9u8).map(f32::from).collect())
    }

    #[test]
    fn a_coverage_that_is_none_is_refused() {
        let (bands, truths) = nine();
        for coverage in [0.0, 1.0, -0.1, 1.1, f32::NAN] {
            let refused = Margin::calibrate(&bands, &truths, None, coverage);
            assert!(matches!(refused, Err(Error::Range { .. })), "{coverage}: {refused:?}");
        }
        // Nine cases are just enough for a 90% interval.
        assert_eq!(Margin::calibrate(&bands, &truths, None, 0.9).map(|margin| margin.margin), Ok(9.0));
        assert_eq!(Margin::calibrate(&bands, &truths, None, 0.5).map(|margin| margin.margin), Ok(5.0));
    }

    #[test]
    fn a_spread_of_zero_is_refused_or_replaced() {
        let (mut bands, truths) = nine();
        bands[3].spread = 0.0;
        let refused = Margin::calibrate(&bands, &truths, None, 0.9);
        assert!(matches!(refused, Err(Error::Range { .. })), "{refused:?}");
        for spread in [0.0, -1.0, f32::NAN] {
            assert_eq!(Band::spread(2.0, spread).spread, f32::MIN_POSITIVE);
        }
        assert_eq!(Band::spread(2.0, 0.25).spread, 0.25);
    }

    #[test]
    fn bands_are_widened_by_their_spread() {
        let margin = Margin { coverage: 0.9, margin: 2.0 };
        assert_eq!(margin.interval(&Band::spread(1.0, 0.5), Range::Real), (0.0, 2.0));
        assert_eq!(margin.interval(&Band::between(3.0, 1.0), Range::Real), (-1.0, 5.0));
        assert_eq!(margin.interval(&Band::around(0.5), Range::Fraction), (0.0, 1.0));
        // Narrowed to less than nothing.
        let narrow = Margin { margin: -2.0, ..margin };
        assert_eq!(narrow.interval(&Band::between(1.0, 3.0), Range::Real), (2.0, 2.0));
        assert_eq!(narrow.interval(&Band::between(1.0, 6.0), Range::Real), (3.0, 4.0));
    }
}
