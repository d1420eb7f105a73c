//! Confidence intervals of a measure, if other cases had been drawn: the bootstrap (Efron, 1979),
//! percentile method.

use super::quantile;
use apex_random::Random;
use std::collections::BTreeMap;

/// A measure with its confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Confidence {
    /// The measure over all cases.
    pub value: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end of the interval.
    pub high: f64,
}

/// Options of resampling.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bootstrap {
    /// Determines what is drawn.
    pub seed: u64,
    /// The number of resamples.
    pub resamples: usize,
    /// The confidence of the interval, between 0 and 1.
    pub confidence: f64,
}

impl Default for Bootstrap {
    fn default() -> Bootstrap {
        Bootstrap { seed: 1, resamples: 1000, confidence: 0.95 }
    }
}

impl Bootstrap {
    /// The measure of `cases` cases and its interval. `measure` gets the numbers of the cases that
    /// were drawn, some of them more than once. With `groups` (one for each case) whole groups are
    /// drawn, as many as there are, since cases of a group are not independent (cluster bootstrap).
    ///
    /// `None` where the measure is not defined over all cases, or over none of what was drawn.
    ///
    /// # Panics
    /// When there is not one group for each case.
    pub fn run(
        &self,
        cases: usize,
        groups: Option<&[usize]>,
        measure: impl Fn(&[usize]) -> Option<f64>,
    ) -> Option<Confidence> {
        let mut members: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        if let Some(groups) = groups {
            assert_eq!(groups.len(), cases, "one group for each case");
        }
        for case in 0..cases {
            members.entry(groups.map_or(case, |groups| groups[case])).or_default().push(case);
        }
        let members: Vec<Vec<usize>> = members.into_values().collect();
        let all: Vec<usize> = (0..cases).collect();
        let value = measure(&all)?;
        let mut random = Random::new(self.seed);
        let mut drawn = Vec::new();
        let mut resample = |_| {
            drawn.clear();
            (0..members.len()).for_each(|_| drawn.extend_from_slice(&members[random.index(members.len())]));
            measure(&drawn)
        };
        let values: Vec<f64> = (0..self.resamples).filter_map(&mut resample).collect();
        let tail = (1.0 - self.confidence) / 2.0;
        Some(Confidence { value, low: quantile(&values, tail)?, high: quantile(&values, 1.0 - tail)? })
    }
}
