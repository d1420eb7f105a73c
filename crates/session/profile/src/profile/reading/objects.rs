//! Configurations, graphs, streams and devices of the process that is read: the meaning of its
//! identifiers, and the facts about each.

use super::{Reading, THIS};
use crate::profile::stacks::StackCounts;
use crate::profile::times::Samples;
use crate::profile::{Graph, Stream};
use crate::sketch::Sketch;

/// A configuration in one process.
pub(in crate::profile) struct ConfigState {
    pub kernel: usize,
    pub device: Option<usize>,
    /// Identifier of its function in the process.
    pub function: u32,
    /// Threads of all its blocks.
    pub threads: u64,
    /// Whether it is a collective of NCCL.
    pub collective: bool,
    /// Launch calls that ran.
    pub launches: u64,
    pub(super) samples: Samples,
}

/// A graph in one process.
pub(in crate::profile) struct GraphState {
    pub id: u32,
    pub device: Option<usize>,
    pub samples: Samples,
    pub(super) cpu: Sketch,
    pub(super) launches: u64,
    pub(super) failed: u64,
    /// Kernels and how many nodes each is.
    pub kernels: Vec<(usize, u32)>,
    pub(super) stacks: StackCounts,
}

impl Reading<'_> {
    /// Returns the index of a configuration's state; `None` if it was not recorded.
    pub(super) fn config(&mut self, id: u32) -> Option<usize> {
        if let Some(known) = self.config_places.get(id) {
            return Some(known);
        }
        let definition = self.process.definitions.config(id)?;
        let device = self.device_of(definition.context);
        let function = self.process.definitions.function(definition.function);
        let image = self.process.definitions.function_code(definition.function).map(|code| code.image);
        // Where only PTX is kept, the same function of another image is the same kernel.
        let own_row = image.filter(|_| self.others.code.is_some());
        let kernel = self.part.kernels.of(device, function, definition, own_row);
        let memory = self.process.definitions.argument_memory(id);
        self.part.kernels.counts(kernel).note(image, memory);
        self.configs.push(ConfigState {
            kernel,
            device,
            function: definition.function,
            threads: definition.launch.threads(),
            collective: function.is_some_and(|function| is_collective(&function.name)),
            launches: 0,
            samples: Samples::default(),
        });
        self.config_places.insert(id, self.configs.len() - 1);
        Some(self.configs.len() - 1)
    }

    /// Returns the index of a graph's state; a graph that was not recorded has no kernels.
    pub(super) fn graph(&mut self, id: u32) -> usize {
        if let Some(known) = self.graph_places.get(id) {
            return known;
        }
        let nodes = self.process.definitions.graph(id).map_or(&[][..], |graph| &graph.kernels);
        let (mut kernels, mut device) = (Vec::new(), None);
        for &(config, nodes) in nodes {
            if let Some(config) = self.config(config) {
                device = device.or(self.configs[config].device);
                kernels.push((self.configs[config].kernel, nodes));
            }
        }
        let (samples, cpu) = (Samples::default(), Sketch::default());
        let stacks = StackCounts::default();
        self.graphs.push(GraphState { id, device, samples, cpu, launches: 0, failed: 0, kernels, stacks });
        self.graph_places.insert(id, self.graphs.len() - 1);
        self.graphs.len() - 1
    }

    pub(super) fn stream(&mut self, id: u32) -> &mut Stream {
        let (process, devices) = (self.process, &self.devices);
        self.streams.entry(id, || {
            let definition = process.definitions.stream(id);
            Stream {
                process: THIS,
                device: definition.and_then(|stream| devices.get(&stream.context).copied()),
                id,
                kind: definition.map(|stream| stream.kind),
                launches: 0,
                graph_launches: 0,
                transfers: 0,
            }
        })
    }

    /// The device of a context; where the context is not known, the only device that the process
    /// has.
    fn device_of(&self, context: u32) -> Option<usize> {
        self.devices.get(&context).copied().or_else(|| self.only_device())
    }

    /// The device of a stream; where it is not known, the only device that the process has.
    pub(in crate::profile) fn device_of_stream(&self, stream: u32) -> Option<usize> {
        let known = self.streams.get(stream).and_then(|stream| stream.device);
        known.or_else(|| self.only_device())
    }

    fn only_device(&self) -> Option<usize> {
        let mut all = self.devices.values().copied();
        let first = all.next()?;
        all.all(|other| other == first).then_some(first)
    }
}

impl GraphState {
    pub(super) fn finish(self, recorded: &apex_trace::Process) -> Graph {
        let definition = recorded.definitions.graph(self.id);
        let count = |of: fn(&apex_trace::definition::Graph) -> u32| definition.map_or(0, of);
        Graph {
            process: THIS,
            id: self.id,
            launches: self.launches,
            failed: self.failed,
            kernels: self.kernels,
            copies: count(|graph| graph.copies),
            sets: count(|graph| graph.sets),
            others: count(|graph| graph.others),
            opaque: count(|graph| graph.opaque),
            cpu: self.cpu.distribution(),
            gpu: self.samples.estimate().map(|estimate| estimate.gpu_time(self.launches)),
            stacks: self.stacks.counts(),
        }
    }
}

/// Whether a kernel of this name is a collective of NCCL.
fn is_collective(symbol: &str) -> bool {
    ["ncclDevKernel", "ncclKernel"].iter().any(|name| symbol.contains(name))
}
