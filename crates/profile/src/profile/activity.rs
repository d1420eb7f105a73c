//! The second reading of a process: launches of known time on the time line of each device.

use std::collections::{BTreeMap, HashMap, HashSet};

use apex_trace::Event;
use apex_trace::layout::{Call, CallClass, flags};

use super::build::Builder;
use super::idle::{Queue, Taken};
use super::reading::{Extent, GraphState, Reading, THIS, waits};
use super::times::Estimate;
use super::{Activity, IdleCause};
use crate::figure::Figure;

/// What one launch takes.
#[derive(Clone, Copy)]
pub(super) struct Cost {
    mean_ns: f64,
    /// Variance of the mean; `None` where the spread of the samples is not known.
    variance: Option<f64>,
    /// Standard deviation of one launch; `None` where it is not known.
    deviation_ns: Option<f64>,
    samples: u64,
    /// Launches that the mean is of.
    launches: u64,
}

/// What is launched: a configuration or a graph, by its place in the process's list; `None` if it was not recorded.
#[derive(Clone, Copy)]
enum Launched {
    Config(Option<usize>),
    Graph(Option<usize>),
}

/// Something for each configuration and each graph of a process.
pub(super) struct PerLaunched<T> {
    configs: Vec<T>,
    graphs: Vec<T>,
}

impl<T> PerLaunched<T> {
    fn get_mut(&mut self, what: Launched) -> Option<&mut T> {
        match what {
            Launched::Config(place) => self.configs.get_mut(place?),
            Launched::Graph(place) => self.graphs.get_mut(place?),
        }
    }

    fn get(&self, what: Launched) -> Option<&T> {
        match what {
            Launched::Config(place) => self.configs.get(place?),
            Launched::Graph(place) => self.graphs.get(place?),
        }
    }

    fn iter(&self) -> impl Iterator<Item = &T> {
        self.configs.iter().chain(&self.graphs)
    }
}

/// What launches take, where it is known.
pub(super) type Costs = PerLaunched<Option<Cost>>;

/// A device while the process is read for the second time.
struct Device {
    queue: Queue,
    /// The same queue with launches that are as short and as long as they may be.
    ends: [Queue; 2],
    timed: u64,
    counts: PerLaunched<u64>,
}

/// What a call that waited has waited for.
enum Waited {
    Stream(u32),
    Device(usize),
    All,
    /// One of several things, nobody knows which.
    Unclear,
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
        }
    }

    const NONE: Self =
        Self { mean_ns: 0.0, variance: Some(0.0), deviation_ns: Some(0.0), samples: 0, launches: u64::MAX };

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
        }
    }

    /// For the model of the queue. What is not known of the spread is taken to be as large as the mean.
    fn taken(self) -> Taken {
        Taken {
            mean_ns: self.mean_ns,
            error_ns: self.variance.map_or(self.mean_ns, f64::sqrt),
            deviation_ns: self.deviation_ns.unwrap_or(self.mean_ns),
        }
    }
}

impl Reading<'_> {
    /// What configurations and graphs take: by their own samples, else by those of other processes; a graph without
    /// samples takes the sum of its kernels.
    pub(super) fn costs(&self, estimates: &[Option<Estimate>]) -> Costs {
        let mut configs = Vec::new();
        let mut by_kernel = HashMap::new();
        for (config, estimate) in self.configs.iter().zip(estimates) {
            let cost = match estimate {
                Some(estimate) => Some(Cost::of(estimate)),
                None => self.shared_estimate(config.kernel).as_ref().map(Cost::of),
            };
            by_kernel.insert(config.kernel, cost);
            configs.push(cost);
        }
        let graph_cost = |graph: &GraphState| {
            let own = graph.samples.estimate().as_ref().map(Cost::of);
            let opaque = self.process.definitions.graph(graph.id).is_none_or(|graph| graph.opaque > 0);
            let kernels =
                || graph.kernels.iter().map(|(kernel, nodes)| Some(by_kernel[kernel]?.times(*nodes)));
            own.or_else(|| {
                if opaque { None } else { kernels().try_fold(Cost::NONE, |sum, cost| Some(sum.plus(cost?))) }
            })
        };
        let graphs = self.graphs.iter().map(graph_cost).collect();
        Costs { configs, graphs }
    }

    /// What the samples of a kernel in other processes, and under other identifiers in this one, tell.
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

    /// Reads the process's launches and synchronisations again.
    pub(super) fn activities(&self, costs: &Costs) -> Vec<Activity> {
        let mut devices: BTreeMap<Option<usize>, Device> =
            self.extents.iter().map(|(&device, extent)| (device, Device::new(extent, costs))).collect();
        let events = self.event_synchronisations();
        for record in self.process.records_by_time() {
            match record.event {
                Event::Launch(launch) if launch.result == 0 && launch.head.flags & flags::CAPTURED == 0 => {
                    let (start, cpu_ns) = self.times(&launch.head);
                    let place = self.config_places.get(launch.config);
                    let config = place.map(|place| &self.configs[place]);
                    let kernel = config.map(|config| config.kernel);
                    if let Some(device) = devices.get_mut(&config.and_then(|config| config.device)) {
                        let what = Launched::Config(place);
                        device.launch(what, costs, launch.stream, (start, start + cpu_ns as f64), kernel);
                    }
                }
                Event::GraphLaunch(launch) if launch.result == 0 => {
                    let (start, cpu_ns) = self.times(&launch.head);
                    let place = self.graph_places.get(launch.graph);
                    let graph = place.map(|place| &self.graphs[place]);
                    let kernel = graph.and_then(|graph| graph.kernels.first()).map(|&(kernel, _)| kernel);
                    if let Some(device) = devices.get_mut(&graph.and_then(|graph| graph.device)) {
                        let what = Launched::Graph(place);
                        device.launch(what, costs, launch.stream, (start, start + cpu_ns as f64), kernel);
                    }
                }
                Event::Call(call) => {
                    let (start, cpu_ns) = self.times(&call.head);
                    let cause = cause(&call);
                    devices.values_mut().for_each(|state| state.called(cause, start, start + cpu_ns as f64));
                    if call.result == 0 && waits(&call) {
                        self.waited(&call, &events, &mut devices);
                    }
                }
                _ => {}
            }
        }
        devices.into_iter().map(|(device, state)| self.activity(device, state, costs)).collect()
    }

    fn waited(&self, call: &Call, events: &HashSet<u32>, devices: &mut BTreeMap<Option<usize>, Device>) {
        let (start, cpu_ns) = self.times(&call.head);
        let end = start + cpu_ns as f64;
        match self.waited_for(call, events, devices.len() == 1) {
            Waited::Stream(stream) => {
                let device = self.streams.get(&stream).and_then(|stream| stream.device);
                let only = devices.len() == 1;
                for (_, state) in devices.iter_mut().filter(|(known, _)| only || **known == device) {
                    state.synchronised(Some(stream), start, end);
                }
            }
            Waited::Device(device) => {
                if let Some(state) = devices.get_mut(&Some(device)) {
                    state.synchronised(None, start, end);
                }
            }
            Waited::All => devices.values_mut().for_each(|state| state.synchronised(None, start, end)),
            Waited::Unclear => {}
        }
    }

    fn waited_for(&self, call: &Call, events: &HashSet<u32>, one_device: bool) -> Waited {
        if call.stream != 0 {
            return Waited::Stream(call.stream);
        }
        if events.contains(&call.api) {
            return Waited::Unclear;
        }
        let is_context = CallClass::from_raw(call.class) == Some(CallClass::Synchronize) && call.object != 0;
        let context =
            self.process.definitions.contexts().find(|context| is_context && context.handle == call.object);
        match context.and_then(|context| self.devices.get(&context.id)) {
            Some(&device) => Waited::Device(device),
            None if one_device => Waited::All,
            None => Waited::Unclear,
        }
    }

    /// Entry points that wait for an event: what was recorded into it is not known.
    fn event_synchronisations(&self) -> HashSet<u32> {
        let apis = self.calls.keys().map(|&(api, _)| api);
        apis.filter(|&api| self.process.definitions.name(api).is_some_and(|name| name.contains("Event")))
            .collect()
    }

    fn activity(&self, device: Option<usize>, state: Device, costs: &Costs) -> Activity {
        let extent = &self.extents[&device];
        let mut activity = Activity {
            process: THIS,
            device,
            start_ns: extent.start,
            span_ns: extent.end - extent.start,
            launches: extent.launches,
            timed_share: state.timed as f64 / extent.launches.max(1) as f64,
            streams: extent.streams.len(),
            gpu_time_ns: state.gpu_time(costs),
            ..Activity::default()
        };
        state.queue.finish(state.ends, &mut activity);
        activity
    }
}

impl Device {
    fn new(extent: &Extent, costs: &Costs) -> Self {
        let counts =
            PerLaunched { configs: vec![0; costs.configs.len()], graphs: vec![0; costs.graphs.len()] };
        let queue = Queue::new(extent.start, extent.end);
        Self { ends: [queue.clone(), queue.clone()], queue, timed: 0, counts }
    }

    fn queues(&mut self) -> impl Iterator<Item = &mut Queue> {
        std::iter::once(&mut self.queue).chain(&mut self.ends)
    }

    fn called(&mut self, cause: IdleCause, called: f64, returned: f64) {
        self.queues().for_each(|queue| queue.called(cause, called, returned));
    }

    fn synchronised(&mut self, stream: Option<u32>, called: f64, returned: f64) {
        self.queues().for_each(|queue| queue.synchronised(stream, called, returned));
    }

    fn launch(
        &mut self,
        what: Launched,
        costs: &Costs,
        stream: u32,
        call: (f64, f64),
        kernel: Option<usize>,
    ) {
        let cost = costs.get(what).copied().flatten();
        self.timed += u64::from(cost.is_some());
        if let Some(count) = self.counts.get_mut(what) {
            *count += 1;
        }
        self.queue.launch(stream, call, kernel, cost.map(Cost::taken));
        let ends = cost.map(|cost| cost.taken().ends(cost.launches));
        for (end, queue) in self.ends.iter_mut().enumerate() {
            queue.launch(stream, call, kernel, ends.map(|ends| ends[end]));
        }
    }

    /// GPU time of all launches whose time is known.
    fn gpu_time(&self, costs: &Costs) -> Option<Figure> {
        Figure::sum(self.counts.iter().zip(costs.iter()).filter(|(count, _)| **count > 0).filter_map(
            |(&count, cost)| {
                let cost = (*cost)?;
                let error = cost.variance.map(f64::sqrt);
                Some(Figure::sampled(cost.mean_ns, cost.samples, error).scaled(count as f64))
            },
        ))
    }
}

/// What the host does in a call.
fn cause(call: &Call) -> IdleCause {
    match CallClass::from_raw(call.class) {
        Some(CallClass::Allocate | CallClass::Free) => IdleCause::Allocating,
        Some(CallClass::Copy | CallClass::Set) => IdleCause::Transferring,
        Some(CallClass::Synchronize) => IdleCause::Synchronising,
        Some(CallClass::Module) => IdleCause::Loading,
        _ => IdleCause::OtherCalls,
    }
}
