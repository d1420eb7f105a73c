//! The time of launches, estimated from samples.

use apex_ordered::Order;
use std::collections::HashMap;

use super::build::Builder;
use super::reading::{GraphState, Reading};
use super::times::Estimate;
use crate::figure::NINETY_PERCENT;

/// Work of unknown time takes as long as known launches do on average, and at worst this multiple
/// of the longest of nearly all of these …
const UNKNOWN_TIMES: f64 = 4.0;
/// … or this long.
const UNKNOWN_NS: f64 = 20e3;
/// Known launches, by their time, that are "nearly all".
const NEARLY_ALL: f64 = 0.99;

/// The duration of one launch.
#[derive(Clone, Copy)]
pub(super) struct Cost {
    pub mean_ns: f64,
    /// Variance of the mean; `None` where the spread of the samples is not known.
    pub variance: Option<f64>,
    /// Standard deviation of one launch; `None` where it is not known.
    pub deviation_ns: Option<f64>,
    pub samples: u64,
    /// Launches that the mean is of.
    pub launches: u64,
    /// Whether samples of the same configuration say so; else samples of the same function in
    /// another one.
    pub own: bool,
}

/// A launched object: a configuration or a graph, by its index in the process's list; `None` if it
/// was not recorded.
#[derive(Clone, Copy)]
pub(super) enum Launched {
    Config(Option<usize>),
    Graph(Option<usize>),
}

/// Something for each configuration and each graph of a process.
pub(super) struct PerLaunched<T> {
    pub configs: Vec<T>,
    pub graphs: Vec<T>,
}

impl<T> PerLaunched<T> {
    pub fn get_mut(&mut self, what: Launched) -> Option<&mut T> {
        match what {
            Launched::Config(place) => self.configs.get_mut(place?),
            Launched::Graph(place) => self.graphs.get_mut(place?),
        }
    }

    pub fn get(&self, what: Launched) -> Option<&T> {
        match what {
            Launched::Config(place) => self.configs.get(place?),
            Launched::Graph(place) => self.graphs.get(place?),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.configs.iter().chain(&self.graphs)
    }
}

/// The durations of launches.
pub(super) struct Costs {
    /// The durations, if they are known.
    pub known: PerLaunched<Option<Cost>>,
    /// The same, as the time line of the device needs it for each launch.
    pub times: PerLaunched<Option<LaunchTimes>>,
    /// Else: on average, at least, at most.
    pub unknown: [u64; 3],
}

/// The duration of one launch, in figures that are computed once.
#[derive(Clone, Copy)]
pub(super) struct LaunchTimes {
    /// See [`Cost::taken`].
    pub taken: [u64; 3],
    /// See [`Cost::uncertainty`].
    pub uncertainty: (f64, f64),
    /// See [`Cost::own`].
    pub own: bool,
}

impl From<Cost> for LaunchTimes {
    fn from(cost: Cost) -> Self {
        Self { taken: cost.taken(), uncertainty: cost.uncertainty(), own: cost.own }
    }
}

impl Cost {
    fn of(estimate: &Estimate) -> Self {
        let (mean_ns, variance, samples) = estimate.mean_with_variance();
        Self {
            mean_ns,
            variance,
            deviation_ns: estimate.deviation_ns(),
            samples,
            launches: estimate.launches(),
            own: true,
        }
    }

    /// Keeps what samples of the function in another configuration tell: the mean.
    fn of_other(self) -> Self {
        Self { variance: None, deviation_ns: None, own: false, ..self }
    }

    const NONE: Self = Self {
        mean_ns: 0.0,
        variance: Some(0.0),
        deviation_ns: Some(0.0),
        samples: 0,
        launches: u64::MAX,
        own: true,
    };

    fn times(self, count: u32) -> Self {
        let count = f64::from(count);
        Self {
            mean_ns: self.mean_ns * count,
            variance: self.variance.map(|variance| variance * count * count),
            deviation_ns: self.deviation_ns.map(|deviation| deviation * count.sqrt()),
            ..self
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            mean_ns: self.mean_ns + other.mean_ns,
            variance: self.variance.zip(other.variance).map(|(a, b)| a + b),
            deviation_ns: self.deviation_ns.zip(other.deviation_ns).map(|(a, b)| a.hypot(b)),
            samples: self.samples.saturating_add(other.samples),
            launches: self.launches.min(other.launches),
            own: self.own && other.own,
        }
    }

    /// Standard error of the mean, which all launches share, and standard deviation of one. What is
    /// not known of the spread is taken to be as large as the mean.
    fn uncertainty(self) -> (f64, f64) {
        (self.variance.map_or(self.mean_ns, f64::sqrt), self.deviation_ns.unwrap_or(self.mean_ns))
    }

    /// As long as a launch is on average, and as short and as long as all launches may be on
    /// average.
    fn taken(self) -> [u64; 3] {
        let (error, deviation) = self.uncertainty();
        let off = NINETY_PERCENT * (error + deviation / (self.launches.max(1) as f64).sqrt());
        [self.mean_ns, (self.mean_ns - off).max(0.0), self.mean_ns + off].map(|ns| ns.round() as u64)
    }
}

impl Reading<'_> {
    /// Estimates the durations of configurations and graphs: by their own samples, else by those of
    /// other processes, else by those of the same function in the most similar configuration; a
    /// graph without samples takes the sum of its kernels.
    pub(super) fn costs(&self, estimates: &[Option<Estimate>]) -> Costs {
        let mut configs: Vec<Option<Cost>> = Vec::new();
        for (config, estimate) in self.configs.iter().zip(estimates) {
            configs.push(match estimate {
                Some(estimate) => Some(Cost::of(estimate)),
                None => self.shared_estimate(config.kernel).as_ref().map(Cost::of),
            });
        }
        self.add_costs_of_others(&mut configs);
        let by_kernel: HashMap<usize, Option<Cost>> =
            self.configs.iter().zip(&configs).map(|(config, cost)| (config.kernel, *cost)).collect();
        let graph_cost = |graph: &GraphState| {
            let own = graph.samples.estimate().as_ref().map(Cost::of);
            let opaque = self.process.definitions.graph(graph.id).is_none_or(|graph| graph.opaque > 0);
            let kernels =
                || graph.kernels.iter().map(|(kernel, nodes)| Some(by_kernel[kernel]?.times(*nodes)));
            own.or_else(|| {
                if opaque { None } else { kernels().try_fold(Cost::NONE, |sum, cost| Some(sum.plus(cost?))) }
            })
        };
        let graphs: Vec<Option<Cost>> = self.graphs.iter().map(graph_cost).collect();
        let unknown = self.unknown_ns(&configs);
        let times = |costs: &[Option<Cost>]| costs.iter().map(|cost| cost.map(LaunchTimes::from)).collect();
        let times = PerLaunched { configs: times(&configs), graphs: times(&graphs) };
        Costs { known: PerLaunched { configs, graphs }, times, unknown }
    }

    /// Configurations without samples take what the same function takes with the most similar
    /// number of threads.
    fn add_costs_of_others(&self, configs: &mut [Option<Cost>]) {
        let mut known: HashMap<u32, Vec<(f64, Cost)>> = HashMap::new();
        let threads = |config: usize| (self.configs[config].threads.max(1) as f64).ln();
        for (place, cost) in configs.iter().enumerate() {
            if let Some(cost) = cost {
                known.entry(self.configs[place].function).or_default().push((threads(place), *cost));
            }
        }
        for (place, cost) in configs.iter_mut().enumerate().filter(|(_, cost)| cost.is_none()) {
            let others = known.get(&self.configs[place].function);
            let far = |other: &f64| (other - threads(place)).abs();
            let nearest = others.and_then(|all| all.iter().min_by(|a, b| far(&a.0).total_cmp(&far(&b.0))));
            *cost = nearest.map(|(_, cost)| cost.of_other());
        }
    }

    /// Returns the assumed duration of work of unknown time: mean, minimum, maximum. Kernels that
    /// are never timed (those with programmatic dependence, say) are mostly short, so that the
    /// longest known one is no estimate. If no duration is known, work lasts until something shows
    /// that it is done.
    fn unknown_ns(&self, configs: &[Option<Cost>]) -> [u64; 3] {
        let mut known: Vec<(f64, u64)> = self
            .configs
            .iter()
            .zip(configs)
            .filter_map(|(config, cost)| Some((cost.filter(|cost| cost.own)?.mean_ns, config.launches)))
            .collect();
        known.order_by(|a, b| a.0.total_cmp(&b.0));
        let all: u64 = known.iter().map(|&(_, launches)| launches).sum();
        let mut seen = 0.0;
        let longest = known.iter().find(|(_, launches)| {
            seen += *launches as f64;
            seen >= NEARLY_ALL * all as f64
        });
        let sum: f64 = known.iter().map(|&(mean, launches)| mean * launches as f64).sum();
        match longest {
            Some((longest, _)) => {
                let worst = (UNKNOWN_TIMES * longest).max(UNKNOWN_NS);
                [sum / all.max(1) as f64, 0.0, worst].map(|ns| ns as u64)
            }
            None => [u64::MAX / 4, 0, u64::MAX / 4],
        }
    }

    /// Estimates a kernel's time from its samples in other processes, and under other identifiers
    /// in this one.
    fn shared_estimate(&self, kernel: usize) -> Option<Estimate> {
        let Builder { kernels, devices, .. } = &self.part;
        let place = |device: usize| self.others.known_device(&devices[device]);
        let others = self.others.kernels.times_of(kernels, kernel, place);
        let own = kernels.times(kernel);
        let merged = others.cloned().map(|mut others| {
            own.into_iter().for_each(|own| others.merge(own));
            others
        });
        merged.or_else(|| own.cloned())
    }
}
