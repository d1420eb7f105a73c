//! GPU times from samples.
//!
//! The recorder samples early launches of a kernel more often than late ones, so a plain mean of
//! samples would weigh the early ones too much. Samples are therefore *stratified by time*: the
//! process's span is cut into [`STRATA`] equal parts, each stratum's launches are counted in full,
//! and its samples stand for these launches alone. A stratum with launches but without samples is
//! joined to the nearest one that has some.

use super::{Basis, GpuTime};
use crate::figure::Figure;
use crate::sketch::{Moments, Sketch};

/// Parts of a process's span.
pub(crate) const STRATA: u64 = 32;
/// So many samples from busy streams are enough to do without those from idle ones.
const ENOUGH_BUSY: u64 = 4;

/// Launches and samples of one kernel or graph in one process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples {
    /// By number, ascending; only those with launches or samples.
    strata: Vec<Stratum>,
    busy: Pooled,
    idle: Pooled,
}

#[derive(Clone, Debug, Default)]
struct Stratum {
    number: u64,
    launches: u64,
    busy: Moments,
    idle: Moments,
}

/// Samples of one sort, over all strata.
#[derive(Clone, Debug, Default)]
struct Pooled {
    sketch: Sketch,
    moments: Moments,
    correction: Moments,
}

impl Pooled {
    fn merge(&mut self, other: &Self) {
        self.sketch.merge(&other.sketch);
        self.moments.merge(&other.moments);
        self.correction.merge(&other.correction);
    }
}

impl Samples {
    pub fn launch(&mut self, stratum: u64) {
        self.stratum(stratum).launches += 1;
    }

    /// A reading of `raw_ns` on a stream that was `idle` or not, of which `correction_ns` is the
    /// event pair's own.
    pub fn sample(&mut self, stratum: u64, raw_ns: u64, correction_ns: u64, idle: bool) {
        let ns = raw_ns.saturating_sub(correction_ns);
        let stratum = self.stratum(stratum);
        if idle { &mut stratum.idle } else { &mut stratum.busy }.add(ns as f64);
        let pooled = if idle { &mut self.idle } else { &mut self.busy };
        pooled.sketch.add(ns);
        pooled.moments.add(ns as f64);
        pooled.correction.add(correction_ns as f64);
    }

    fn stratum(&mut self, number: u64) -> &mut Stratum {
        // Records come in the order of time, nearly.
        let last = self.strata.len().wrapping_sub(1);
        if self.strata.get(last).is_some_and(|stratum| stratum.number == number) {
            return &mut self.strata[last];
        }
        let at = match self.strata.binary_search_by_key(&number, |stratum| stratum.number) {
            Ok(at) => at,
            Err(at) => {
                self.strata.insert(at, Stratum { number, ..Stratum::default() });
                at
            }
        };
        &mut self.strata[at]
    }

    /// What the samples tell of all launches; `None` without samples.
    pub fn estimate(&self) -> Option<Estimate> {
        let (busy, idle) = (self.busy.moments.count, self.idle.moments.count);
        let basis = match (busy, idle) {
            (0, 0) => return None,
            (busy, idle) if busy >= ENOUGH_BUSY || idle == 0 => Basis::Busy,
            (0, _) => Basis::Idle,
            _ => Basis::Mixed,
        };
        let mut pooled = Pooled::default();
        if basis != Basis::Idle {
            pooled.merge(&self.busy);
        }
        if basis != Basis::Busy {
            pooled.merge(&self.idle);
        }
        let deviation = pooled.moments.deviation();
        let (mut launches, mut total, mut variance) = (0, 0.0, 0.0);
        for (population, moments) in self.joined(basis) {
            launches += population;
            total += population as f64 * moments.mean;
            // A single sample's spread is that of all samples.
            let spread = moments.deviation().or(deviation).unwrap_or(0.0);
            let unseen = 1.0 - (moments.count as f64 / population.max(1) as f64).min(1.0);
            variance += (population as f64 * spread).powi(2) / moments.count as f64 * unseen;
        }
        Some(Estimate {
            launches,
            total,
            variance,
            basis,
            busy,
            idle,
            pooled,
            uncertain: deviation.is_none(),
        })
    }

    /// Launches and samples of each stratum that has samples on this basis, with those that have
    /// none joined to it.
    fn joined(&self, basis: Basis) -> Vec<(u64, Moments)> {
        let mut joined: Vec<(u64, Moments)> = Vec::new();
        let mut orphans = 0;
        for stratum in &self.strata {
            let mut moments = Moments::default();
            if basis != Basis::Idle {
                moments.merge(&stratum.busy);
            }
            if basis != Basis::Busy {
                moments.merge(&stratum.idle);
            }
            match joined.last_mut() {
                _ if moments.count > 0 => {
                    joined.push((stratum.launches + std::mem::take(&mut orphans), moments))
                }
                Some(last) => last.0 += stratum.launches,
                None => orphans += stratum.launches,
            }
        }
        joined
    }
}

/// What samples tell of launches, of one process or several.
#[derive(Clone, Debug)]
pub(crate) struct Estimate {
    launches: u64,
    total: f64,
    variance: f64,
    basis: Basis,
    busy: u64,
    idle: u64,
    pooled: Pooled,
    /// Whether the spread is not known.
    uncertain: bool,
}

impl Estimate {
    /// Mean over launches, nanoseconds.
    pub fn mean(&self) -> f64 {
        if self.launches == 0 { self.pooled.moments.mean } else { self.total / self.launches as f64 }
    }

    /// Mean, variance of the mean (`None` where the spread is not known), and samples.
    pub fn mean_with_variance(&self) -> (f64, Option<f64>, u64) {
        let variance = (!self.uncertain).then(|| self.variance / (self.launches.max(1) as f64).powi(2));
        (self.mean(), variance, self.pooled.moments.count)
    }

    /// Launches that the samples stand for.
    pub fn launches(&self) -> u64 {
        self.launches
    }

    /// Standard deviation of one launch; `None` where it is not known.
    pub fn deviation_ns(&self) -> Option<f64> {
        self.pooled.moments.deviation()
    }

    pub fn merge(&mut self, other: &Self) {
        self.launches += other.launches;
        self.total += other.total;
        self.variance += other.variance;
        if self.basis != other.basis {
            self.basis = Basis::Mixed;
        }
        self.busy += other.busy;
        self.idle += other.idle;
        self.pooled.merge(&other.pooled);
        self.uncertain &= other.uncertain;
    }

    /// The figures for `launches` launches; those in processes without samples are taken to be like
    /// the others.
    pub fn gpu_time(&self, launches: u64) -> GpuTime {
        let mut each = self.pooled.sketch.distribution();
        each.mean_ns = self.mean();
        let samples = self.pooled.moments.count;
        let scale = if self.launches == 0 { 0.0 } else { launches as f64 / self.launches as f64 };
        let error = (!self.uncertain).then(|| self.variance.sqrt());
        GpuTime {
            each,
            deviation_ns: self.pooled.moments.deviation(),
            basis: self.basis,
            busy_samples: self.busy,
            idle_samples: self.idle,
            correction_ns: self.pooled.correction.mean,
            total_ns: Figure::sampled(self.total, samples, error).scaled(scale),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_launches_count_though_they_are_sampled_less() {
        // A hundred launches of 10 ns, each sampled; then 900 of 20 ns, of which 9 are sampled.
        let mut samples = Samples::default();
        for i in 0..1000u64 {
            let late = i >= 100;
            samples.launch(u64::from(late));
            if !late || i % 100 == 0 {
                samples.sample(u64::from(late), if late { 25 } else { 15 }, 5, false);
            }
        }
        let estimate = samples.estimate().expect("sampled");
        assert!((estimate.mean() - 19.0).abs() < 1e-9, "{}", estimate.mean());
        let gpu = estimate.gpu_time(1000);
        assert_eq!((gpu.total_ns.value, gpu.busy_samples, gpu.correction_ns), (19_000.0, 109, 5.0));
        assert_eq!(gpu.total_ns.standard_error, Some(0.0), "within each part all launches are alike");
    }

    #[test]
    fn a_part_without_samples_joins_its_neighbour() {
        let mut samples = Samples::default();
        (0..4).for_each(|stratum| samples.launch(stratum));
        samples.sample(1, 10, 0, false);
        samples.sample(3, 30, 0, false);
        // Parts 0 to 2 are like part 1, part 3 is itself.
        assert_eq!(samples.estimate().expect("sampled").total, 3.0 * 10.0 + 30.0);
    }

    #[test]
    fn idle_streams_count_only_where_busy_ones_are_too_few() {
        let with = |busy: usize, idle: usize| {
            let mut samples = Samples::default();
            (0..10).for_each(|_| samples.launch(0));
            (0..busy).for_each(|_| samples.sample(0, 100, 0, false));
            (0..idle).for_each(|_| samples.sample(0, 500, 0, true));
            samples.estimate().map(|estimate| (estimate.basis, estimate.mean()))
        };
        assert_eq!(with(0, 0), None);
        assert_eq!(with(4, 9), Some((Basis::Busy, 100.0)));
        assert_eq!(with(1, 0), Some((Basis::Busy, 100.0)));
        assert_eq!(with(3, 1), Some((Basis::Mixed, 200.0)));
        assert_eq!(with(0, 2), Some((Basis::Idle, 500.0)));
    }

    #[test]
    fn a_correction_never_makes_a_time_negative() {
        let mut samples = Samples::default();
        samples.launch(0);
        samples.sample(0, 2000, 2700, false);
        assert_eq!(samples.estimate().expect("sampled").mean(), 0.0);
    }

    #[test]
    fn the_error_shrinks_to_nothing_when_all_launches_are_timed() {
        let with = |every: u64| {
            let mut samples = Samples::default();
            for i in 0..1000u64 {
                samples.launch(0);
                if i % every == 0 {
                    samples.sample(0, 1000 + (i * 7919) % 101, 0, false);
                }
            }
            samples.estimate().expect("sampled").gpu_time(1000).total_ns.standard_error.expect("many samples")
        };
        assert_eq!(with(1), 0.0);
        assert!(with(10) > 0.0 && with(100) > with(10));
    }

    #[test]
    fn processes_without_samples_are_like_the_others() {
        let mut samples = Samples::default();
        samples.launch(0);
        samples.sample(0, 10, 0, false);
        assert_eq!(samples.estimate().expect("sampled").gpu_time(3).total_ns.value, 30.0);
    }
}
