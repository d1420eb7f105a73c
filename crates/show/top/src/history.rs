//! The last minutes of a session: one sample for each look.

use crate::Look;
use std::collections::VecDeque;

/// Samples that are kept: ten minutes at a look a second.
const KEPT: usize = 600;

/// Most samples that a column of a graph is the mean of.
const MEANS: [usize; 4] = [1, 2, 5, 10];

/// The samples of a session, the oldest first.
#[derive(Clone, Debug, Default)]
pub struct History {
    samples: VecDeque<Sample>,
    /// Samples that were dropped: columns keep their samples while others come and go.
    dropped: usize,
}

/// A session at one look.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    /// See [`Look::gpu_busy`].
    pub busy: Option<f64>,
    /// See [`Look::launches_per_s`].
    pub launches_per_s: Option<f64>,
}

impl History {
    pub fn add(&mut self, look: &Look) {
        if self.samples.len() == KEPT {
            self.samples.pop_front();
            self.dropped += 1;
        }
        let busy = look.gpu_busy().map(|busy| busy.value);
        self.samples.push_back(Sample { busy, launches_per_s: look.launches_per_s() });
    }

    /// At least so many samples make a graph.
    pub fn has_graph(&self) -> bool {
        self.samples.len() > 1
    }

    /// The latest samples in at most `columns` columns, each the mean of as few samples as let all
    /// fit, the oldest first.
    pub fn columns(&self, columns: usize, of: impl Fn(&Sample) -> Option<f64>) -> Vec<Option<f64>> {
        let fits = |each: &usize| self.samples.len().div_ceil(*each) < columns;
        let each = MEANS.into_iter().find(fits).unwrap_or(MEANS[MEANS.len() - 1]);
        let mut means: Vec<Mean> = Vec::new();
        let mut column = None;
        for (at, sample) in self.samples.iter().enumerate() {
            let now = (self.dropped + at) / each;
            if column.replace(now) != Some(now) {
                means.push(Mean::default());
            }
            if let (Some(mean), Some(value)) = (means.last_mut(), of(sample)) {
                mean.sum += value;
                mean.count += 1;
            }
        }
        let first = means.len().saturating_sub(columns);
        means[first..].iter().map(Mean::value).collect()
    }
}

#[derive(Default)]
struct Mean {
    sum: f64,
    count: usize,
}

impl Mean {
    fn value(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}

/// A graph of one line: a character for each value, its height the share of `most`; blank where
/// there is no value.
pub fn sparkline(values: &[Option<f64>], most: f64) -> String {
    const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let height = |value: f64| {
        let share = if most > 0.0 { (value / most).clamp(0.0, 1.0) } else { 0.0 };
        HEIGHTS[(share * (HEIGHTS.len() - 1) as f64).round() as usize]
    };
    values.iter().map(|value| value.map_or(' ', height)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(samples: usize) -> History {
        let mut history = History::default();
        for at in 0..samples {
            history.samples.push_back(Sample { busy: Some(at as f64), launches_per_s: None });
        }
        history
    }

    #[test]
    fn a_column_is_the_mean_of_as_few_samples_as_let_all_fit() {
        let columns = |samples, columns| history(samples).columns(columns, |sample| sample.busy);
        assert_eq!(columns(3, 10), [Some(0.0), Some(1.0), Some(2.0)]);
        assert_eq!(columns(4, 4), [Some(0.5), Some(2.5)]);
        assert_eq!(columns(12, 5), [Some(2.0), Some(7.0), Some(10.5)]);
        assert_eq!(columns(600, 3).len(), 3);
        assert_eq!(history(4).columns(9, |sample| sample.launches_per_s), [None; 4]);
        assert!(columns(5, 0).is_empty());
    }

    #[test]
    fn a_graph_shows_shares_of_the_most() {
        assert_eq!(sparkline(&[Some(0.0), Some(0.5), None, Some(1.0), Some(7.0)], 1.0), "▁▅ ██");
        assert_eq!(sparkline(&[Some(0.0), Some(f64::NAN)], 0.0), "▁▁");
    }
}
