//! Kernels by what they are: the same function in the same configuration on the same kind of device is one kernel, in
//! whichever process and under whichever identifier.

use std::collections::HashMap;

use apex_trace::definition::{Config, Function};
use apex_trace::layout::{Launch, flags};
use cuda_launch::{Carveout, FunctionAttributes};

use super::times::Estimate;
use super::{Device, Geometry, Kernel, Launches};
use crate::names::{demangled, shortened};
use crate::sketch::Sketch;

/// Launch calls above this are slow (Holistic Trace Analysis' cutoff).
const SLOW_CALL_NS: u64 = 50_000;

#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    device: Option<usize>,
    symbol: String,
    attributes: Option<FunctionAttributes>,
    grid: [u32; 3],
    block: [u32; 3],
    cluster: [u32; 3],
    dynamic_shared: u32,
}

/// All kernels of a session.
#[derive(Default)]
pub(crate) struct Kernels {
    index: HashMap<Key, usize>,
    list: Vec<Counts>,
    /// Full and short name by symbol.
    names: HashMap<String, (String, String)>,
}

/// What is counted of a kernel.
pub(crate) struct Counts {
    key: Key,
    pub launches: Launches,
    pub cpu: Sketch,
    pub times: Option<Estimate>,
}

impl Kernels {
    /// The kernel of a configuration; `function` is `None` where its definition is missing.
    pub fn of(&mut self, device: Option<usize>, function: Option<&Function>, config: &Config) -> usize {
        let key = Key {
            device,
            symbol: function
                .map_or_else(|| format!("function {}", config.function), |function| function.name.clone()),
            attributes: function.filter(|function| function.attributes_known).map(attributes),
            grid: config.grid,
            block: config.block,
            cluster: config.cluster,
            dynamic_shared: config.dynamic_shared,
        };
        if let Some(&index) = self.index.get(&key) {
            return index;
        }
        self.index.insert(key.clone(), self.list.len());
        self.list.push(Counts { key, launches: Launches::default(), cpu: Sketch::default(), times: None });
        self.list.len() - 1
    }

    pub fn counts(&mut self, kernel: usize) -> &mut Counts {
        &mut self.list[kernel]
    }

    /// All of them, in the order of their numbers.
    pub fn finish(mut self, devices: &[Device]) -> Vec<Kernel> {
        let limits: Vec<_> = devices.iter().map(Device::limits).collect();
        let list = std::mem::take(&mut self.list);
        list.into_iter()
            .map(|counts| {
                let mut kernel = self.kernel(counts);
                let limits = kernel.device.and_then(|device| limits[device].as_ref());
                kernel.geometry = limits.and_then(|limits| Geometry::of(limits, &kernel));
                kernel
            })
            .collect()
    }

    fn kernel(&mut self, counts: Counts) -> Kernel {
        let Key { device, symbol, attributes, grid, block, cluster, dynamic_shared } = counts.key;
        let (name, short_name) = self
            .names
            .entry(symbol.clone())
            .or_insert_with(|| {
                let name = demangled(&symbol);
                let short = shortened(&name);
                (name, short)
            })
            .clone();
        Kernel {
            name,
            short_name,
            symbol,
            device,
            grid,
            block,
            cluster,
            dynamic_shared,
            attributes,
            launches: counts.launches,
            cpu: counts.cpu.distribution(),
            slow_calls: counts.cpu.above(SLOW_CALL_NS),
            gpu: counts.times.map(|times| times.gpu_time(counts.launches.calls)),
            geometry: None,
            counts: None,
            prediction: None,
        }
    }
}

impl Counts {
    /// Counts a launch call; true if it ran.
    pub fn launch(&mut self, launch: &Launch, cpu_ns: u64) -> bool {
        if launch.result != 0 {
            self.launches.failed += 1;
        } else if launch.head.flags & flags::CAPTURED != 0 {
            self.launches.captured += 1;
        } else {
            self.launches.calls += 1;
            self.launches.cooperative += u64::from(launch.head.flags & flags::COOPERATIVE != 0);
            self.cpu.add(cpu_ns);
            return true;
        }
        false
    }
}

fn attributes(function: &Function) -> FunctionAttributes {
    FunctionAttributes {
        registers: function.registers,
        static_shared_bytes: function.static_shared,
        local_bytes: function.local,
        constant_bytes: function.constant,
        max_threads_per_block: function.max_threads,
        max_dynamic_shared_bytes: Some(function.max_dynamic_shared),
        carveout: Carveout::from_attribute(function.carveout),
        barriers: 0,
        binary_version: function.binary_version,
        ptx_version: function.ptx_version,
    }
}
