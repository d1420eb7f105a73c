//! GPU times from samples.
//!
//! The recorder samples early launches of a kernel more often than late ones, so a plain mean of
//! samples would weigh the early ones too much. Samples are therefore *stratified by time*: the
//! process's span is cut into [`STRATA`] equal parts, each stratum's launches are counted in full,
//! and its samples stand for these launches alone. A stratum with launches but without samples is
//! joined to the nearest one that has some.

use apex_trace::layout::flags;
use serde::Serialize;

use crate::figure::Figure;
use crate::sketch::{Distribution, Moments, Sketch};

/// Parts of a process's span.
pub(crate) const STRATA: u64 = 32;
/// Minimum samples of the better kinds for the others to be left out.
const ENOUGH: u64 = 4;

/// The kind of samples that a GPU time is computed from. If the host was not ahead of the GPU, a
/// reading contains part of the host's time for the launch, so queued samples are preferred, then
/// those from busy streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Only samples whose events were both recorded before the GPU reached the first one.
    Queued,
    /// Only samples from busy streams.
    #[default]
    Busy,
    /// Only samples from idle streams: no others exist.
    Idle,
    /// Several kinds, because there are too few of the better ones.
    Mixed,
}

/// GPU time of a kernel or graph: the readings of event pairs around sampled launches, less the
/// cost of a pair on the same kind of stream, never below zero.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct GpuTime {
    /// The samples used, in nanoseconds each.
    pub each: Distribution,
    /// Standard deviation of these; `None` with fewer than two.
    pub deviation_ns: Option<f64>,
    /// The samples that are used.
    pub basis: Basis,
    /// Samples whose events were both recorded before the GPU reached the first one, used or not.
    pub queued_samples: u64,
    /// Other samples from busy streams, used or not.
    pub busy_samples: u64,
    /// Other samples from idle streams, used or not.
    pub idle_samples: u64,
    /// Mean correction of the samples used.
    pub correction_ns: f64,
    /// Time of all launches: mean times launch calls (graph launches for a graph). The standard
    /// error follows from the spread of the samples, with the correction for a finite population.
    pub total_ns: Figure,
}

/// The load of the GPU when a launch was timed, in the order of the readings' quality, the best
/// first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    /// Enough work that both events were recorded before the GPU reached the first.
    Queued,
    /// Some work.
    Busy,
    /// No work.
    Idle,
}

impl Sort {
    const ALL: [Sort; 3] = [Sort::Queued, Sort::Busy, Sort::Idle];

    /// The load that a timing record with these flags had.
    pub fn of(of_record: u16) -> Sort {
        if of_record & flags::QUEUED != 0 {
            Sort::Queued
        } else if of_record & flags::STREAM_WAS_IDLE != 0 {
            Sort::Idle
        } else {
            Sort::Busy
        }
    }

    fn basis(self) -> Basis {
        match self {
            Sort::Queued => Basis::Queued,
            Sort::Busy => Basis::Busy,
            Sort::Idle => Basis::Idle,
        }
    }
}

/// Something for each [`Sort`], in its order.
type BySort<T> = [T; Sort::ALL.len()];

/// Launches and samples of one kernel or graph in one process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples {
    /// By number, ascending; only those with launches or samples.
    strata: Vec<Stratum>,
    pooled: BySort<Pooled>,
}

#[derive(Clone, Debug, Default)]
struct Stratum {
    number: u64,
    launches: u64,
    moments: BySort<Moments>,
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

    /// A reading of `raw_ns`, of which `correction_ns` is the event pair's own.
    pub fn sample(&mut self, stratum: u64, raw_ns: u64, correction_ns: u64, sort: Sort) {
        let ns = raw_ns.saturating_sub(correction_ns);
        self.stratum(stratum).moments[sort as usize].add(ns as f64);
        let pooled = &mut self.pooled[sort as usize];
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

    /// Estimates the time of all launches from the samples; `None` without samples.
    pub fn estimate(&self) -> Option<Estimate> {
        let samples = Sort::ALL.map(|sort| self.pooled[sort as usize].moments.count);
        let mut pooled = Pooled::default();
        let mut sorts = Vec::new();
        for sort in Sort::ALL {
            if samples[sort as usize] > 0 && pooled.moments.count < ENOUGH {
                pooled.merge(&self.pooled[sort as usize]);
                sorts.push(sort);
            }
        }
        let basis = match sorts[..] {
            [] => return None,
            [sort] => sort.basis(),
            _ => Basis::Mixed,
        };
        let deviation = pooled.moments.deviation();
        let (mut launches, mut total, mut variance) = (0, 0.0, 0.0);
        for (population, moments) in self.joined(&sorts) {
            launches += population;
            total += population as f64 * moments.mean;
            // A single sample's spread is that of all samples.
            let spread = moments.deviation().or(deviation).unwrap_or(0.0);
            let unseen = 1.0 - (moments.count as f64 / population.max(1) as f64).min(1.0);
            variance += (population as f64 * spread).powi(2) / moments.count as f64 * unseen;
        }
        Some(Estimate { launches, total, variance, basis, samples, pooled, uncertain: deviation.is_none() })
    }

    /// Launches and samples of each stratum that has samples of these sorts, with those that have
    /// none joined to it.
    fn joined(&self, sorts: &[Sort]) -> Vec<(u64, Moments)> {
        let mut joined: Vec<(u64, Moments)> = Vec::new();
        let mut orphans = 0;
        for stratum in &self.strata {
            let mut moments = Moments::default();
            sorts.iter().for_each(|&sort| moments.merge(&stratum.moments[sort as usize]));
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

/// The estimate of launches' time from samples, of one process or several.
#[derive(Clone, Debug)]
pub(crate) struct Estimate {
    launches: u64,
    total: f64,
    variance: f64,
    basis: Basis,
    /// Samples of each sort, whether or not they count.
    samples: BySort<u64>,
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
        self.samples.iter_mut().zip(other.samples).for_each(|(count, other)| *count += other);
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
        let [queued_samples, busy_samples, idle_samples] = self.samples;
        GpuTime {
            each,
            deviation_ns: self.pooled.moments.deviation(),
            basis: self.basis,
            queued_samples,
            busy_samples,
            idle_samples,
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
                samples.sample(u64::from(late), if late { 25 } else { 15 }, 5, Sort::Busy);
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
        samples.sample(1, 10, 0, Sort::Busy);
        samples.sample(3, 30, 0, Sort::Busy);
        // Parts 0 to 2 are like part 1, part 3 is itself.
        assert_eq!(samples.estimate().expect("sampled").total, 3.0 * 10.0 + 30.0);
    }

    #[test]
    fn worse_sorts_of_samples_count_only_where_better_ones_are_too_few() {
        let with = |counts: [usize; 3]| {
            let mut samples = Samples::default();
            (0..10).for_each(|_| samples.launch(0));
            for (sort, count) in Sort::ALL.into_iter().zip(counts) {
                (0..count).for_each(|_| samples.sample(0, [60, 100, 500][sort as usize], 0, sort));
            }
            samples.estimate().map(|estimate| (estimate.basis, estimate.mean()))
        };
        assert_eq!(with([0, 0, 0]), None);
        assert_eq!(with([4, 30, 9]), Some((Basis::Queued, 60.0)));
        assert_eq!(with([1, 0, 0]), Some((Basis::Queued, 60.0)));
        assert_eq!(with([1, 3, 9]), Some((Basis::Mixed, 90.0)));
        assert_eq!(with([0, 4, 9]), Some((Basis::Busy, 100.0)));
        assert_eq!(with([0, 1, 0]), Some((Basis::Busy, 100.0)));
        assert_eq!(with([0, 3, 1]), Some((Basis::Mixed, 200.0)));
        assert_eq!(with([2, 0, 2]), Some((Basis::Mixed, 280.0)));
        assert_eq!(with([0, 0, 2]), Some((Basis::Idle, 500.0)));
    }

    #[test]
    fn a_correction_never_makes_a_time_negative() {
        let mut samples = Samples::default();
        samples.launch(0);
        samples.sample(0, 2000, 2700, Sort::Busy);
        assert_eq!(samples.estimate().expect("sampled").mean(), 0.0);
    }

    #[test]
    fn the_error_shrinks_to_nothing_when_all_launches_are_timed() {
        let with = |every: u64| {
            let mut samples = Samples::default();
            for i in 0..1000u64 {
                samples.launch(0);
                if i % every == 0 {
                    samples.sample(0, 1000 + (i * 7919) % 101, 0, Sort::Busy);
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
        samples.sample(0, 10, 0, Sort::Busy);
        assert_eq!(samples.estimate().expect("sampled").gpu_time(3).total_ns.value, 30.0);
    }
}
