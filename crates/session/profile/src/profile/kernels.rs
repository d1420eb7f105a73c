//! Kernels by identity: the same function in the same configuration on the same kind of device is
//! one kernel, in any process and under any identifier.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use apex_kernel_names::{Identity, Row, Traits, identify, unique_short_names, with_mark};
use apex_trace::definition::{self, Config, Function};
use apex_trace::layout::{Launch, MemoryKind, flags};
use cuda_launch::{Dim3, FunctionAttributes, LaunchConfig};
use serde::Serialize;

use super::Device;
use super::code::{ArgumentCounts, ArgumentMemory, KernelCode};
use super::counts::{CountedKernels, KernelCounts};
use super::geometry::Geometry;
use super::stacks::{StackCount, StackCounts};
use super::times::{Estimate, GpuTime};
use crate::prediction::Prediction;
use crate::sketch::{Distribution, Sketch};

/// Launch calls above this are slow (Holistic Trace Analysis' cutoff).
const SLOW_CALL_NS: u64 = 50_000;

/// A function in one launch configuration on one device.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Kernel {
    /// Full demangled name.
    pub name: String,
    /// Name for tables, distinct for each function of a profile.
    pub short_name: String,
    /// Information in the name: operation, types, tensor cores, owner.
    #[serde(flatten)]
    pub traits: Traits,
    /// Name as the driver reports it.
    pub symbol: String,
    /// Index into [`Profile::devices`](super::Profile::devices); `None` if unknown.
    pub device: Option<usize>,
    /// Launch configuration.
    #[serde(flatten)]
    pub launch: LaunchConfig,
    /// Whether its code requires this block, so that the program cannot choose another.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub requires_block: bool,
    /// The program's block, if APEX launched these threads in other blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked: Option<Asked>,
    /// Attributes; `None` if they could not be read.
    pub attributes: Option<FunctionAttributes>,
    /// Number of launches.
    pub launches: Launches,
    /// CPU time of its launch calls that ran.
    pub cpu: Distribution,
    /// Launch calls that took longer than 50 µs, and their CPU time.
    pub slow_calls: (u64, f64),
    /// GPU time; `None` if no launch was timed.
    pub gpu: Option<GpuTime>,
    /// Figures computed from configuration, attributes and device; `None` if one of them is not
    /// known.
    pub geometry: Option<Geometry>,
    /// Call stacks that were read on its launches, the most frequent first.
    pub stacks: Vec<StackCount>,
    /// Counts of the CPU device; `None` if it executed or counted no launch.
    pub counts: Option<KernelCounts>,
    /// Its image and its arguments; `None` if the session does not keep them.
    pub code: Option<KernelCode>,
    /// The kinds of memory that its pointers pointed to in the first launches of configurations.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub memory: Vec<ArgumentMemory>,
    /// The models' prediction; `None` until `apex_predict` adds it, and for a device that they do
    /// not know.
    pub prediction: Option<Prediction>,
}

/// Grid and block of a launch that APEX made in other blocks (`apex run --tuned`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Asked {
    /// The grid that the program asked for.
    pub grid: Dim3,
    /// The block that it asked for.
    pub block: Dim3,
}

impl Kernel {
    /// Sixteen hexadecimal digits, unique within a profile. They are a hash of the kernel's
    /// identity, so they stay the same while the session grows, and in each part of it.
    pub fn id(&self) -> String {
        let image = self.code.as_ref().and_then(|code| code.image.as_deref());
        let mut hasher = DefaultHasher::new();
        (&self.symbol, self.device, self.launch, self.attributes, image).hash(&mut hasher);
        if let Some(asked) = self.asked {
            asked.hash(&mut hasher);
        }
        format!("{:016x}", hasher.finish())
    }

    /// Whether grid and block are known: some traces of other profilers do not have them, and no
    /// launch has an empty grid.
    pub fn has_configuration(&self) -> bool {
        !self.launch.grid.is_empty() && !self.launch.block.is_empty()
    }

    /// Blocks of the grid; saturates.
    pub fn blocks(&self) -> u64 {
        self.launch.blocks()
    }

    /// Threads of all blocks; saturates.
    pub fn threads(&self) -> u64 {
        self.launch.threads()
    }

    /// Threads of a block; saturates.
    pub fn block_threads(&self) -> u32 {
        u32::try_from(self.launch.threads_per_block()).unwrap_or(u32::MAX)
    }

    /// GPU time of all launch calls, from samples. Runs by graphs are in the graphs' time.
    pub fn gpu_total_ns(&self) -> Option<f64> {
        self.gpu.as_ref().map(|gpu| gpu.total_ns.value)
    }
}

/// Numbers of launches of a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Launches {
    /// Launch calls that ran.
    pub calls: u64,
    /// Runs by graph launches.
    pub by_graphs: u64,
    /// Launch calls captured into a graph, which did not run.
    pub captured: u64,
    /// Launch calls that failed.
    pub failed: u64,
    /// Cooperative launches among `calls`.
    pub cooperative: u64,
}

impl Launches {
    /// Runs, by calls and by graphs.
    pub fn ran(&self) -> u64 {
        self.calls.saturating_add(self.by_graphs)
    }

    /// Whether any launch was made, even one that did not run.
    pub fn any(&self) -> bool {
        (self.calls, self.by_graphs, self.captured, self.failed) != (0, 0, 0, 0)
    }
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    device: Option<usize>,
    symbol: String,
    attributes: Option<FunctionAttributes>,
    launch: LaunchConfig,
    requires_block: bool,
    asked: Option<Asked>,
    /// Functions of one name from several images are several kernels.
    image: Option<u128>,
}

/// All kernels of a session.
#[derive(Default)]
pub(crate) struct Kernels {
    index: HashMap<Key, usize>,
    list: Vec<Counts>,
}

/// The counts of a kernel.
pub(crate) struct Counts {
    key: Key,
    pub launches: Launches,
    pub cpu: Sketch,
    pub times: Option<Estimate>,
    pub stacks: StackCounts,
    pub arguments: ArgumentCounts,
    /// An image that has it.
    image: Option<u128>,
    memory: BTreeSet<ArgumentMemory>,
}

impl Kernels {
    /// The kernel of a configuration; `function` is `None` where its definition is missing, `image`
    /// where the function's was not kept.
    pub fn of(
        &mut self,
        device: Option<usize>,
        function: Option<&Function>,
        config: &Config,
        image: Option<u128>,
    ) -> usize {
        let key = Key {
            device,
            symbol: function
                .map_or_else(|| format!("function {}", config.function), |function| function.name.clone()),
            attributes: function.and_then(|function| function.attributes),
            launch: config.launch,
            requires_block: config.requires_block,
            asked: config.asked.map(|(grid, block)| Asked { grid, block }),
            image,
        };
        self.place(key)
    }

    fn place(&mut self, key: Key) -> usize {
        if let Some(&index) = self.index.get(&key) {
            return index;
        }
        self.index.insert(key.clone(), self.list.len());
        self.list.push(Counts {
            key,
            launches: Launches::default(),
            cpu: Sketch::default(),
            times: None,
            stacks: StackCounts::default(),
            arguments: ArgumentCounts::default(),
            image: None,
            memory: BTreeSet::new(),
        });
        self.list.len() - 1
    }

    /// Adds the kernels of others, whose devices and call stacks have these places here. Returns
    /// the places of their kernels.
    pub fn merge(&mut self, others: Self, devices: &[usize], stacks: &[usize]) -> Vec<usize> {
        let add = |other: Counts| {
            let device = other.key.device.map(|device| devices[device]);
            let at = self.place(Key { device, ..other.key });
            let counts = &mut self.list[at];
            counts.launches.merge(other.launches);
            counts.cpu.merge(&other.cpu);
            counts.stacks.merge(&other.stacks, stacks);
            counts.arguments.merge(other.arguments);
            counts.image = counts.image.or(other.image);
            counts.memory.extend(other.memory);
            other.times.iter().for_each(|times| counts.add_times(times));
            at
        };
        others.list.into_iter().map(add).collect()
    }

    /// Returns the estimate of a kernel's time from samples.
    pub fn times(&self, kernel: usize) -> Option<&Estimate> {
        self.list[kernel].times.as_ref()
    }

    /// Returns a kernel's symbol and its configuration.
    pub fn symbol_and_launch(&self, kernel: usize) -> (&str, &LaunchConfig) {
        let Key { symbol, launch, .. } = &self.list[kernel].key;
        (symbol, launch)
    }

    /// Returns the estimate from samples here of a kernel of others, whose devices have these
    /// indices here.
    pub fn times_of(
        &self,
        others: &Self,
        kernel: usize,
        place: impl Fn(usize) -> Option<usize>,
    ) -> Option<&Estimate> {
        let key = others.list[kernel].key.clone();
        let device = match key.device {
            Some(device) => Some(place(device)?),
            None => None,
        };
        self.times(*self.index.get(&Key { device, ..key })?)
    }

    pub fn counts(&mut self, kernel: usize) -> &mut Counts {
        &mut self.list[kernel]
    }

    /// All of them, in the order of their numbers, with what the CPU device counted. Call stacks
    /// get these places.
    pub fn finish(self, devices: &[Device], counted: &CountedKernels, stacks: &[usize]) -> Vec<Kernel> {
        let limits: Vec<_> = devices.iter().map(Device::limits).collect();
        let names = Names::of(&self.list);
        let finish = |counts: Counts| {
            let of_stacks = counts.stacks.finish(stacks);
            let mut kernel = counts.finish(&names);
            kernel.stacks = of_stacks;
            let limits = kernel.device.and_then(|device| limits[device].as_ref());
            kernel.geometry = limits.and_then(|limits| Geometry::of(limits, &kernel));
            kernel.counts = counted.of(&kernel);
            kernel
        };
        let mut kernels: Vec<Kernel> = self.list.into_iter().map(finish).collect();
        number_namesakes(&mut kernels);
        kernels
    }
}

/// Numbers rows that would look the same: functions of one name from several modules (XLA calls its
/// fusions so) in one configuration.
fn number_namesakes(kernels: &mut [Kernel]) {
    let mut seen: HashMap<(String, Option<usize>, String), u32> = HashMap::new();
    for kernel in kernels {
        let row = (kernel.short_name.clone(), kernel.device, kernel.launch.to_string());
        let count = seen.entry(row).or_default();
        *count += 1;
        if *count > 1 {
            kernel.short_name = with_mark(&kernel.short_name, &format!(" ({count})"));
        }
    }
}

/// The identities of all kernels by symbol; functions have different short names.
struct Names(HashMap<String, Identity>);

impl Names {
    fn of(kernels: &[Counts]) -> Self {
        let mut known: Vec<(String, Identity)> = Vec::new();
        let mut seen = HashSet::new();
        for Counts { key, .. } in kernels {
            if seen.insert(&key.symbol) {
                known.push((key.symbol.clone(), identify(&key.symbol)));
            }
        }
        let short = unique_short_names(&known.iter().map(Self::row).collect::<Vec<_>>());
        let named = known.into_iter().zip(short);
        Self(
            named
                .map(|((symbol, identity), short_name)| (symbol, Identity { short_name, ..identity }))
                .collect(),
        )
    }

    fn row((symbol, identity): &(String, Identity)) -> Row<'_> {
        Row { name: symbol, short_name: &identity.short_name, launch: "" }
    }

    fn get(&self, symbol: &str) -> Identity {
        self.0.get(symbol).cloned().unwrap_or_else(|| identify(symbol))
    }
}

impl Launches {
    fn merge(&mut self, other: Self) {
        self.calls += other.calls;
        self.by_graphs = self.by_graphs.saturating_add(other.by_graphs);
        self.captured += other.captured;
        self.failed += other.failed;
        self.cooperative += other.cooperative;
    }
}

impl Counts {
    /// Adds what samples tell of some of the launches.
    pub fn add_times(&mut self, times: &Estimate) {
        match &mut self.times {
            Some(known) => known.merge(times),
            none => *none = Some(times.clone()),
        }
    }

    /// Notes an image that has the kernel, and what memory it was given.
    pub fn note(&mut self, image: Option<u128>, memory: Option<&definition::ArgumentMemory>) {
        self.image = self.image.or(image);
        let parameters = memory.into_iter().flat_map(|memory| &memory.parameters);
        self.memory.extend(parameters.filter_map(|&(parameter, kind)| {
            let kind = MemoryKind::from_raw(u8::try_from(kind).ok()?)?;
            Some(ArgumentMemory { parameter, kind })
        }));
    }

    fn finish(self, names: &Names) -> Kernel {
        let Key { device, symbol, attributes, launch, requires_block, asked, image } = self.key;
        let Identity { name, short_name, traits } = names.get(&symbol);
        Kernel {
            name,
            short_name,
            traits,
            symbol,
            device,
            launch,
            requires_block,
            asked,
            attributes,
            launches: self.launches,
            cpu: self.cpu.distribution(),
            slow_calls: self.cpu.above(SLOW_CALL_NS),
            gpu: self.times.map(|times| times.gpu_time(self.launches.calls)),
            geometry: None,
            stacks: Vec::new(),
            counts: None,
            code: self.arguments.finish(image.or(self.image)),
            memory: self.memory.into_iter().collect(),
            prediction: None,
        }
    }

    /// Counts a launch call; true if it ran.
    pub fn launch(&mut self, launch: &Launch, cpu_ns: u64) -> bool {
        if launch.result != 0 {
            self.launches.failed += 1;
        } else if launch.head.flags & flags::CAPTURED != 0 {
            self.launches.captured += 1;
        } else {
            self.launches.calls += 1;
            self.launches.cooperative += u64::from(launch.head.flags & flags::COOPERATIVE != 0);
            if launch.head.flags & flags::NO_CALL == 0 {
                self.cpu.add(cpu_ns);
            }
            return true;
        }
        false
    }
}
