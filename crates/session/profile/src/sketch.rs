//! Distributions of durations in bounded memory.
//!
//! A [`Sketch`] is a histogram whose buckets widen with the value: each power of two is split into
//! 32, so a quantile is within 1.6% of the true one. Only non-empty buckets take space, and there
//! are at most 64 * 32 of them. [`Moments`] are mean and variance in one pass (Welford's
//! algorithm).

use serde::Serialize;

const SPLIT_BITS: u32 = 5;

/// Quantiles of unsigned values.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sketch {
    /// `(bucket, values in it)`, ascending by bucket.
    buckets: Vec<(u16, u64)>,
    count: u64,
    total: u128,
    max: u64,
}

impl Sketch {
    pub fn add(&mut self, value: u64) {
        let bucket = bucket_of(value);
        match self.buckets.binary_search_by_key(&bucket, |&(bucket, _)| bucket) {
            Ok(at) => self.buckets[at].1 += 1,
            Err(at) => self.buckets.insert(at, (bucket, 1)),
        }
        self.count += 1;
        self.total += u128::from(value);
        self.max = self.max.max(value);
    }

    pub fn merge(&mut self, other: &Self) {
        for &(bucket, values) in &other.buckets {
            match self.buckets.binary_search_by_key(&bucket, |&(bucket, _)| bucket) {
                Ok(at) => self.buckets[at].1 += values,
                Err(at) => self.buckets.insert(at, (bucket, values)),
            }
        }
        self.count += other.count;
        self.total += other.total;
        self.max = self.max.max(other.max);
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// The value below which a share `q` of all values lies; 0 without values.
    pub fn quantile(&self, q: f64) -> f64 {
        let rank = ((self.count as f64 * q).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for &(bucket, values) in &self.buckets {
            seen += values;
            if seen >= rank {
                return middle_of(bucket).min(self.max as f64);
            }
        }
        0.0
    }

    /// Number of values above `limit`, and their approximate sum.
    pub fn above(&self, limit: u64) -> (u64, f64) {
        let first = bucket_of(limit);
        self.buckets
            .iter()
            .filter(|&&(bucket, _)| bucket > first)
            .fold((0, 0.0), |(count, sum), &(bucket, values)| {
                (count + values, sum + values as f64 * middle_of(bucket))
            })
    }

    pub fn distribution(&self) -> Distribution {
        Distribution {
            count: self.count,
            total_ns: self.total as f64,
            mean_ns: if self.count == 0 { 0.0 } else { self.total as f64 / self.count as f64 },
            p10_ns: self.quantile(0.10),
            median_ns: self.quantile(0.50),
            p90_ns: self.quantile(0.90),
            p99_ns: self.quantile(0.99),
            max_ns: self.max as f64,
        }
    }
}

/// Each value below 32 has its own bucket; for larger values, the five bits after the leading one
/// select the bucket.
fn bucket_of(value: u64) -> u16 {
    if value < 1 << SPLIT_BITS {
        return value as u16;
    }
    let power = value.ilog2();
    let part = (value >> (power - SPLIT_BITS)) & ((1 << SPLIT_BITS) - 1);
    (((power - SPLIT_BITS + 1) << SPLIT_BITS) as u64 + part) as u16
}

/// The middle of a bucket's range.
fn middle_of(bucket: u16) -> f64 {
    let bucket = u32::from(bucket);
    if bucket < 1 << SPLIT_BITS {
        return f64::from(bucket);
    }
    let shift = (bucket >> SPLIT_BITS) - 1;
    let low = f64::from((1 << SPLIT_BITS) + (bucket & ((1 << SPLIT_BITS) - 1)));
    (low + 0.5) * 2f64.powi(shift as i32) - 0.5
}

/// Summary of durations in nanoseconds. Quantiles are within 1.6% of the true ones; the other
/// fields are exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Distribution {
    /// Number of values.
    pub count: u64,
    /// Their sum.
    pub total_ns: f64,
    /// Their mean; 0 without values.
    pub mean_ns: f64,
    /// 10th percentile.
    pub p10_ns: f64,
    /// Median.
    pub median_ns: f64,
    /// 90th percentile.
    pub p90_ns: f64,
    /// 99th percentile.
    pub p99_ns: f64,
    /// Maximum.
    pub max_ns: f64,
}

/// Mean and variance.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Moments {
    pub count: u64,
    pub mean: f64,
    squares: f64,
}

impl Moments {
    pub fn add(&mut self, value: f64) {
        self.count += 1;
        let off = value - self.mean;
        self.mean += off / self.count as f64;
        self.squares += off * (value - self.mean);
    }

    pub fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        let (mine, theirs) = (self.count as f64, other.count as f64);
        let off = other.mean - self.mean;
        self.count += other.count;
        self.mean += off * theirs / (mine + theirs);
        self.squares += other.squares + off * off * mine * theirs / (mine + theirs);
    }

    /// Standard deviation; `None` with fewer than two values.
    pub fn deviation(&self) -> Option<f64> {
        (self.count >= 2).then(|| (self.squares / (self.count - 1) as f64).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn quantiles_are_within_two_percent(mut values in prop::collection::vec(0u64..1 << 50, 1..400), q in 0.0f64..1.0) {
            let mut sketch = Sketch::default();
            values.iter().for_each(|&value| sketch.add(value));
            values.sort_unstable();
            let rank = ((values.len() as f64 * q).ceil() as usize).clamp(1, values.len());
            let exact = values[rank - 1] as f64;
            prop_assert!((sketch.quantile(q) - exact).abs() <= exact * 0.016 + 0.5);
        }

        #[test]
        fn merging_is_adding(a in prop::collection::vec(any::<u64>(), 0..50), b in prop::collection::vec(0u64..1000, 0..50)) {
            let sketch = |values: &[u64]| {
                let mut sketch = Sketch::default();
                values.iter().for_each(|&value| sketch.add(value));
                sketch
            };
            let mut merged = sketch(&a);
            merged.merge(&sketch(&b));
            prop_assert_eq!(merged, sketch(&[a, b].concat()));
        }

        #[test]
        fn moments_agree_with_their_definition(values in prop::collection::vec(-1e6f64..1e6, 2..200), cut in 0usize..200) {
            let (a, b) = values.split_at(cut.min(values.len()));
            let moments = |values: &[f64]| {
                let mut moments = Moments::default();
                values.iter().for_each(|&value| moments.add(value));
                moments
            };
            let mut merged = moments(a);
            merged.merge(&moments(b));
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (values.len() - 1) as f64;
            prop_assert!((merged.mean - mean).abs() < 1e-6);
            prop_assert!((merged.deviation().expect("two or more") - variance.sqrt()).abs() < 1e-4);
        }
    }

    #[test]
    fn what_lies_above_a_limit_is_counted() {
        let mut sketch = Sketch::default();
        [10, 100, 60_000, 90_000].into_iter().for_each(|value| sketch.add(value));
        let (count, sum) = sketch.above(50_000);
        assert_eq!(count, 2);
        assert!((sum - 150_000.0).abs() < 150_000.0 * 0.016);
    }
}
