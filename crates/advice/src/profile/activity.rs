//! The second reading of a process: launches of known time on the time line of each device.

use std::collections::{BTreeMap, HashMap, HashSet};

use trace::Event;
use trace::layout::{Call, CallClass, flags};

use super::build::{Extent, Reading, waits};
use super::idle::Queue;
use super::times::Estimate;
use super::{Activity, IdleCause};
use crate::figure::Figure;

/// What one launch takes.
#[derive(Clone, Copy)]
struct Cost {
    mean_ns: f64,
    /// Variance of the mean; `None` where the spread of the samples is not known.
    variance: Option<f64>,
    samples: u64,
}

/// What is launched: a configuration or a graph, by identifier.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Launched {
    Config(u32),
    Graph(u32),
}

/// What launches take, where it is known.
#[derive(Default)]
pub(super) struct Costs(HashMap<Launched, Cost>);

/// A device while the process is read for the second time.
struct Device {
    queue: Queue,
    timed: u64,
    counts: HashMap<Launched, u64>,
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
        Self { mean_ns, variance, samples }
    }
}

impl Reading<'_> {
    /// What configurations and graphs take: by their own samples, else by those of other processes; a graph without
    /// samples takes the sum of its kernels.
    pub(super) fn costs(&mut self, estimates: &HashMap<u32, Option<Estimate>>) -> Costs {
        let mut costs = Costs::default();
        let mut by_kernel = HashMap::new();
        for (&config, estimate) in estimates {
            let Some(kernel) = self.kernel_of(config) else { continue };
            let estimate = estimate.as_ref().or(self.builder.kernels.counts(kernel).times.as_ref());
            if let Some(cost) = estimate.map(Cost::of) {
                costs.0.insert(Launched::Config(config), cost);
                by_kernel.insert(kernel, cost);
            }
        }
        for graph in &self.graphs {
            let own = graph.samples.estimate().as_ref().map(Cost::of);
            let opaque = self.process.definitions.graph(graph.id).is_none_or(|graph| graph.opaque > 0);
            let parts = || {
                graph.kernels.iter().map(|(kernel, nodes)| Some((by_kernel.get(kernel)?, f64::from(*nodes))))
            };
            let sum = || {
                let none = Cost { mean_ns: 0.0, variance: Some(0.0), samples: 0 };
                parts().try_fold(none, |sum, part| {
                    let (cost, nodes) = part?;
                    Some(Cost {
                        mean_ns: sum.mean_ns + cost.mean_ns * nodes,
                        variance: sum.variance.zip(cost.variance).map(|(sum, one)| sum + one * nodes * nodes),
                        samples: sum.samples + cost.samples,
                    })
                })
            };
            if let Some(cost) = own.or_else(|| if opaque { None } else { sum() }) {
                costs.0.insert(Launched::Graph(graph.id), cost);
            }
        }
        costs
    }

    /// Reads the process's launches and synchronisations again.
    pub(super) fn activities(&self, costs: &Costs) -> Vec<Activity> {
        let mut devices: BTreeMap<Option<usize>, Device> =
            self.extents.iter().map(|(&device, extent)| (device, Device::new(extent))).collect();
        let events = self.event_synchronisations();
        for record in self.process.records_by_time() {
            match record.event {
                Event::Launch(launch) if launch.result == 0 && launch.head.flags & flags::CAPTURED == 0 => {
                    let (start, cpu_ns) = self.times(&launch.head);
                    let device = self.configs.get(&launch.config).and_then(|subject| subject.device);
                    let kernel = self.kernel_of(launch.config);
                    if let Some(device) = devices.get_mut(&device) {
                        let what = Launched::Config(launch.config);
                        device.launch(what, costs, launch.stream, (start, start + cpu_ns as f64), kernel);
                    }
                }
                Event::GraphLaunch(launch) if launch.result == 0 => {
                    let (start, cpu_ns) = self.times(&launch.head);
                    let graph = self.graph_index.get(&launch.graph).map(|&at| &self.graphs[at]);
                    let kernel = graph.and_then(|graph| graph.kernels.first()).map(|&(kernel, _)| kernel);
                    if let Some(device) = devices.get_mut(&graph.and_then(|graph| graph.device)) {
                        let what = Launched::Graph(launch.graph);
                        device.launch(what, costs, launch.stream, (start, start + cpu_ns as f64), kernel);
                    }
                }
                Event::Call(call) => {
                    let (start, cpu_ns) = self.times(&call.head);
                    let cause = cause(&call);
                    devices
                        .values_mut()
                        .for_each(|state| state.queue.called(cause, start, start + cpu_ns as f64));
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
                    state.queue.synchronised(Some(stream), start, end);
                }
            }
            Waited::Device(device) => {
                if let Some(state) = devices.get_mut(&Some(device)) {
                    state.queue.synchronised(None, start, end);
                }
            }
            Waited::All => devices.values_mut().for_each(|state| state.queue.synchronised(None, start, end)),
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
            process: self.index,
            device,
            start_ns: extent.start,
            span_ns: extent.end - extent.start,
            launches: extent.launches,
            timed_share: state.timed as f64 / extent.launches.max(1) as f64,
            streams: extent.streams.len(),
            gpu_time_ns: state.gpu_time(costs),
            ..Activity::default()
        };
        state.queue.finish(&mut activity);
        activity
    }
}

impl Device {
    fn new(extent: &Extent) -> Self {
        Self { queue: Queue::new(extent.start, extent.end), timed: 0, counts: HashMap::new() }
    }

    fn launch(
        &mut self,
        what: Launched,
        costs: &Costs,
        stream: u32,
        call: (f64, f64),
        kernel: Option<usize>,
    ) {
        let cost = costs.0.get(&what);
        self.timed += u64::from(cost.is_some());
        *self.counts.entry(what).or_default() += 1;
        self.queue.launch(stream, call, kernel, cost.map(|cost| cost.mean_ns));
    }

    /// GPU time of all launches whose time is known.
    fn gpu_time(&self, costs: &Costs) -> Option<Figure> {
        Figure::sum(self.counts.iter().filter_map(|(what, &count)| {
            let cost = costs.0.get(what)?;
            let error = cost.variance.map(f64::sqrt);
            Some(Figure::sampled(cost.mean_ns, cost.samples, error).scaled(count as f64))
        }))
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
