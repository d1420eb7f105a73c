//! The profile as data.
//!
//! Plain integers are counts of records (measured). Durations whose name does not tell otherwise
//! are in nanoseconds. Lists are sorted by what costs most. Indices ([`Kernel::device`],
//! [`Activity::process`], …) point into the lists of the same profile.
//!
//! A *kernel* here is a function in one launch configuration on one device: launches of the same
//! function with another grid are another kernel. Processes that run the same function in the same
//! configuration share it.

mod activity;
mod build;
mod code;
mod costs;
mod counts;
mod geometry;
mod kernels;
mod launches;
mod lines;
mod memory;
mod memory_over_time;
mod native;
mod phase;
pub(crate) mod places;
mod pool;
mod queue;
mod ranges;
mod reading;
mod sampled;
mod sequences;
pub(crate) mod serde_layout;
mod stacks;
mod summary;
mod times;
mod transfers;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use apex_kernel_names::Traits;
use apex_trace::definition::StreamKind;
use apex_trace::layout::{CallClass, MemoryKind};
use cuda_launch::{FunctionAttributes, LaunchConfig};
use occupancy::{DeviceLimits, Occupancy, Waves};
use serde::Serialize;

use crate::accounts::{Accounts, IdleCause, Iterations, OverTime, Phase, PhaseKind};
use crate::figure::Figure;
use crate::prediction::Prediction;
use crate::sketch::Distribution;

pub use build::{Builder, RECORD_COST_INTERVAL_NS, RECORD_COST_NS, device_uuid};
pub use code::{
    Images, KernelArguments, KernelCode, KnownCode, MachineCode, Parameter, PointerTo, SessionCode,
};
pub use counts::{Defect, Hotspot, KernelCounts, Place, Traffic};
pub use launches::LaunchesOverTime;
pub use lines::{Line, Sources};
pub use memory_over_time::{MemoryOverTime, PlaceOverTime};
pub use pool::{MemoryPool, State as MemoryPoolState};
pub use queue::{LaunchQueue, State as LaunchQueueState};
pub use ranges::Range;
pub use serde_layout::{memory_kind_name, stream_kind_name};
pub use stacks::{CallStack, Frame, Site, SiteShare, SiteTotals, StackCount};

/// What a session says.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Profile {
    /// Sums over everything.
    pub totals: Totals,
    /// Devices, in the order in which they were seen.
    pub devices: Vec<Device>,
    /// Processes that made CUDA calls, in the order of their start.
    pub processes: Vec<Process>,
    /// Kernels, by GPU time where it is known, then by launches.
    pub kernels: Vec<Kernel>,
    /// Executable graphs that were launched, by launches.
    pub graphs: Vec<Graph>,
    /// Calls other than launches, by CPU time.
    pub calls: Vec<Call>,
    /// Copies, by bytes.
    pub copies: Vec<Copies>,
    /// Memory by kind, by peak.
    pub memory: Vec<Memory>,
    /// What each process had allocated over time.
    pub memory_over_time: Vec<MemoryOverTime>,
    /// Streams that work was launched into, by launches.
    pub streams: Vec<Stream>,
    /// Sequences of launches that repeat, by launches that they cover.
    pub sequences: Vec<Sequence>,
    /// Each device over time, as each process used it.
    pub activities: Vec<Activity>,
    /// What the CPU device found wrong with kernels, the most frequent first.
    pub defects: Vec<Defect>,
    /// Call stacks of launches, in the order of their frames.
    pub call_stacks: Vec<CallStack>,
    /// Ranges that the program names, each before those inside of it.
    pub ranges: Vec<Range>,
    /// What recording cost, and what it missed.
    pub recorder: Recorder,
    /// Of each device for which nothing is predicted, why not.
    pub unpredicted: Vec<String>,
    /// What the predictions of its kernels rest on: the share of the GPU time of predicted kernels,
    /// by [`Prediction::basis`].
    pub prediction_basis: BTreeMap<String, f64>,
    /// What was kept of the programs' code; `None` where that was not asked for.
    pub code: Option<SessionCode>,
    /// The images that its kernels are from.
    #[serde(skip)]
    pub images: Images,
    /// The source files that its kernels' line tables name, where the CPU device counted lines.
    #[serde(skip)]
    pub sources: Sources,
}

/// Sums over everything.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Totals {
    /// Launch calls that ran.
    pub launches: u64,
    /// Graph launches that ran.
    pub graph_launches: u64,
    /// Kernels that graph launches ran.
    pub graph_kernels: u64,
    /// Launch calls that were captured into a graph, and did not run.
    pub captured: u64,
    /// Launch calls (of graphs too) that the driver refused.
    pub failed: u64,
    /// Launches that ran whose configuration was not recorded.
    pub unknown: u64,
    /// CPU time in launch calls, of graphs too.
    pub launch_cpu_ns: f64,
    /// Share of the launches that ran, by graphs too, whose GPU time is known from samples.
    pub timed_share: f64,
    /// Time from first launch to last launch or synchronisation, summed over
    /// [`Profile::activities`].
    pub span_ns: f64,
    /// GPU time of kernels, from samples; `None` without any.
    pub gpu_time_ns: Option<Figure>,
    /// Share of `span_ns` in which kernels ran, as [`Activity::accounts`] has it: at most 1, and a
    /// lower bound where some of the time is unknown.
    pub gpu_busy: Option<Figure>,
    /// From the start of the first process to the last record of the last one.
    pub wall_ns: f64,
}

impl Totals {
    /// Kernels that ran, by launch calls and by graphs.
    pub fn kernels_run(&self) -> u64 {
        self.launches.saturating_add(self.graph_kernels)
    }
}

/// A device.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Device {
    /// Name, such as `NVIDIA H200`; empty where the device of a launch is not known.
    pub name: String,
    /// UUID, as `GPU-…`.
    pub uuid: String,
    /// Compute capability; `None` if the driver did not tell.
    pub compute_capability: Option<(u32, u32)>,
    /// Multiprocessors; 0 if unknown.
    pub sms: u32,
    /// Global memory.
    #[serde(rename = "total_memory")]
    pub memory_bytes: u64,
    /// Version of the driver's API: 13000 is CUDA 13.0.
    pub driver_version: u32,
    /// `(CUdevice_attribute, value)`, as recorded.
    pub attributes: Vec<(u32, i32)>,
}

impl Device {
    /// What its multiprocessors have to give; `None` for a compute capability whose rules are not
    /// known.
    pub fn limits(&self) -> Option<DeviceLimits> {
        DeviceLimits::from_pairs(&self.attributes)
    }
}

/// A process.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Process {
    /// Its identifier.
    pub pid: u32,
    /// Its parent's.
    pub parent_pid: u32,
    /// Its place in [`crate::ranks`] of its session; `None` where it launched no kernel, or where
    /// the profile is not of one session.
    pub rank: Option<usize>,
    /// Path of its executable.
    pub executable: String,
    /// Nanoseconds from the start of the session's first process to the start of this one.
    pub start_ns: f64,
    /// From its start to its last record.
    pub wall_ns: f64,
    /// Launch calls that ran, and graph launches.
    pub launches: u64,
    /// Whether it came to its end (by exit or exec); else it was killed, or still ran when the
    /// session was read.
    pub ended: bool,
    /// Its launch queue, if one was wanted (`apex run --fast`).
    pub queue: Option<LaunchQueue>,
    /// Its memory pool, if one was wanted (`apex run --fast=memory`).
    pub pool: Option<MemoryPool>,
}

/// A function in one launch configuration on one device.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Kernel {
    /// Demangled name in full.
    pub name: String,
    /// Name for tables: the function and what makes it different; functions of a profile have
    /// different ones.
    pub short_name: String,
    /// What the name tells: operation, types, tensor cores, owner.
    #[serde(flatten)]
    pub traits: Traits,
    /// Name as the driver gives it.
    pub symbol: String,
    /// Index into [`Profile::devices`]; `None` if unknown.
    pub device: Option<usize>,
    /// How it is launched.
    #[serde(flatten)]
    pub launch: LaunchConfig,
    /// Attributes; `None` where they could not be read.
    pub attributes: Option<FunctionAttributes>,
    /// How often it was launched.
    pub launches: Launches,
    /// CPU time of its launch calls that ran.
    pub cpu: Distribution,
    /// Launch calls that took longer than 50 us, and the CPU time of these.
    pub slow_calls: (u64, f64),
    /// GPU time, where some of its launches were timed.
    pub gpu: Option<GpuTime>,
    /// What follows from configuration, attributes and device; `None` where one of them is not
    /// known.
    pub geometry: Option<Geometry>,
    /// Call stacks that were read on its launches, the most frequent first.
    pub stacks: Vec<StackCount>,
    /// What the CPU device counted; `None` where it executed or counted no launch.
    pub counts: Option<KernelCounts>,
    /// Its image and what it was given; `None` where the session does not keep them.
    pub code: Option<KernelCode>,
    /// What the models say of it; `None` before `apex_predict` says it, and where they do not know
    /// the device.
    pub prediction: Option<Prediction>,
}

impl Kernel {
    /// Sixteen digits that tell it from the other kernels of a profile. They follow from what it
    /// is: they stay the same while the session grows, and in each part of it.
    pub fn id(&self) -> String {
        let image = self.code.as_ref().and_then(|code| code.image.as_deref());
        let mut hasher = DefaultHasher::new();
        (&self.symbol, self.device, self.launch, self.attributes, image).hash(&mut hasher);
        format!("{:016x}", hasher.finish())
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

    /// GPU time of all launches, from samples.
    pub fn gpu_total_ns(&self) -> Option<f64> {
        self.gpu.as_ref().map(|gpu| gpu.total_ns.value)
    }
}

/// How often a kernel was launched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Launches {
    /// Launch calls that ran.
    pub calls: u64,
    /// Runs by graph launches.
    pub by_graphs: u64,
    /// Launch calls captured into a graph: these did not run.
    pub captured: u64,
    /// Launch calls that the driver refused.
    pub failed: u64,
    /// Of `calls`, cooperative ones.
    pub cooperative: u64,
}

impl Launches {
    /// Runs, by calls and by graphs.
    pub fn ran(&self) -> u64 {
        self.calls.saturating_add(self.by_graphs)
    }

    /// Whether there were any, run or not.
    pub fn any(&self) -> bool {
        (self.calls, self.by_graphs, self.captured, self.failed) != (0, 0, 0, 0)
    }
}

/// Which samples a GPU time rests on. If the host was not ahead of the GPU, a reading contains part
/// of the host's time for the launch, so queued samples are preferred, then those from busy
/// streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Only samples whose events were both recorded before the GPU reached the first one.
    Queued,
    /// Samples from busy streams alone.
    #[default]
    Busy,
    /// Samples from idle streams alone: there were no others.
    Idle,
    /// Several of these: too few of the better ones.
    Mixed,
}

/// GPU time of a kernel or graph: the readings of event pairs around sampled launches, less the
/// cost of a pair on the same sort of stream, never below zero.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct GpuTime {
    /// The samples that count, in nanoseconds each.
    pub each: Distribution,
    /// Standard deviation of these; `None` below two.
    pub deviation_ns: Option<f64>,
    /// Which samples count.
    pub basis: Basis,
    /// Samples whose events were both recorded before the GPU reached the first one, counted or
    /// not.
    pub queued_samples: u64,
    /// Other samples from busy streams, counted or not.
    pub busy_samples: u64,
    /// Other samples from idle streams, counted or not.
    pub idle_samples: u64,
    /// Mean correction of the samples that count.
    pub correction_ns: f64,
    /// Time of all launches: mean times launch calls (graph launches for a graph). Standard error
    /// from the spread of the samples, with the correction for a finite population.
    pub total_ns: Figure,
}

/// What follows from configuration, attributes and device: computed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Geometry {
    /// Theoretical occupancy.
    pub occupancy: Occupancy,
    /// Waves and tail.
    pub waves: Waves,
    /// Share of the lanes of a block's warps that hold a thread.
    pub block_efficiency: f64,
}

/// An executable graph, or its state after an update.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Graph {
    /// Index into [`Profile::processes`].
    pub process: usize,
    /// Its identifier in that process.
    pub id: u32,
    /// Launches that ran.
    pub launches: u64,
    /// Launches that the driver refused.
    pub failed: u64,
    /// Kernel nodes: index into [`Profile::kernels`], and how many of the nodes it is.
    pub kernels: Vec<(usize, u32)>,
    /// Copy nodes.
    pub copies: u32,
    /// Set nodes.
    pub sets: u32,
    /// Other nodes.
    pub others: u32,
    /// Nodes whose work is not known.
    pub opaque: u32,
    /// CPU time of its launch calls.
    pub cpu: Distribution,
    /// GPU time of one launch.
    pub gpu: Option<GpuTime>,
    /// Call stacks that were read on its launches, the most frequent first.
    pub stacks: Vec<StackCount>,
}

/// Calls of one entry point.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Call {
    /// Its name.
    pub name: String,
    /// What sort of call; `None` for a sort that this version does not know.
    #[serde(with = "serde_layout::call_class")]
    pub class: Option<CallClass>,
    /// Calls that succeeded.
    pub count: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Of `count`, calls captured into a graph.
    pub captured: u64,
    /// Bytes allocated, copied or set.
    pub bytes: u64,
    /// CPU time of the calls that succeeded.
    pub cpu: Distribution,
    /// Of these, those after the process's first launch.
    pub after_launch: AfterLaunch,
    /// Call stacks that were read on some of them, the most frequent first.
    pub stacks: Vec<StackCount>,
}

/// Calls that came after their process's first launch. A share of the job's time begins there too,
/// so no change to earlier calls can save any of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct AfterLaunch {
    /// How many.
    pub count: u64,
    /// Their CPU time, nanoseconds.
    pub cpu_ns: f64,
}

/// Where a copy goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CopyDirection {
    /// From host memory to the device.
    HostToDevice,
    /// From the device to host memory.
    DeviceToHost,
    /// Within the device, or between devices.
    DeviceToDevice,
    /// Between host memory.
    HostToHost,
    /// One of the ends is managed memory, or not known.
    Other,
}

impl CopyDirection {
    /// The direction between two kinds of memory.
    pub fn between(source: MemoryKind, destination: MemoryKind) -> Self {
        use MemoryKind::{Array, Device, Pageable, Pinned, Pitched, Pool, Virtual};
        let host = |kind| matches!(kind, Pinned | Pageable);
        let device = |kind| matches!(kind, Device | Pitched | Pool | Virtual | Array);
        match (source, destination) {
            (from, to) if host(from) && device(to) => Self::HostToDevice,
            (from, to) if device(from) && host(to) => Self::DeviceToHost,
            (from, to) if device(from) && device(to) => Self::DeviceToDevice,
            (from, to) if host(from) && host(to) => Self::HostToHost,
            _ => Self::Other,
        }
    }

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::HostToDevice => "host to device",
            Self::DeviceToHost => "device to host",
            Self::DeviceToDevice => "device to device",
            Self::HostToHost => "host to host",
            Self::Other => "other",
        }
    }
}

/// Copies of one sort.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Copies {
    /// Where to.
    pub direction: CopyDirection,
    /// Memory that is read.
    #[serde(with = "serde_layout::memory_kind")]
    pub source: MemoryKind,
    /// Memory that is written.
    #[serde(with = "serde_layout::memory_kind")]
    pub destination: MemoryKind,
    /// Whether the call is one of the asynchronous forms.
    pub asynchronous: bool,
    /// Calls that succeeded and ran.
    pub count: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// CPU time of these.
    pub cpu: Distribution,
    /// Of these, those after the process's first launch.
    pub after_launch: AfterLaunch,
    /// Call stacks that were read on some of them, the most frequent first.
    pub stacks: Vec<StackCount>,
}

/// Memory of one kind, over all processes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Memory {
    /// Which kind.
    #[serde(with = "serde_layout::memory_kind")]
    pub kind: MemoryKind,
    /// Allocations.
    pub allocations: u64,
    /// Frees of known allocations.
    pub frees: u64,
    /// Bytes allocated, in all.
    pub allocated_bytes: u64,
    /// Most bytes live at once in one process.
    pub peak_bytes: u64,
    /// Allocations still live at the end.
    pub live: u64,
    /// Bytes of these.
    pub live_bytes: u64,
    /// Allocations of a size that had been freed before in the same process: a pool would have had
    /// it.
    pub repeated: u64,
    /// Allocations between the first and the last launch of their process.
    pub among_launches: u64,
    /// CPU time of allocations and frees.
    pub cpu_ns: f64,
}

/// A stream that work was launched into.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stream {
    /// Index into [`Profile::processes`].
    pub process: usize,
    /// Index into [`Profile::devices`]; `None` if unknown.
    pub device: Option<usize>,
    /// Its identifier in that process; 0 for launches whose stream is not known.
    pub id: u32,
    /// Which sort; `None` if unknown.
    #[serde(with = "serde_layout::stream_kind")]
    pub kind: Option<StreamKind>,
    /// Launch calls that ran.
    pub launches: u64,
    /// Graph launches that ran.
    pub graph_launches: u64,
    /// Asynchronous copies and sets.
    pub transfers: u64,
}

/// A sequence of launches that repeats on one stream with no synchronisation, allocation or
/// synchronous copy inside, so that a CUDA graph could hold it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Sequence {
    /// Index into [`Profile::processes`].
    pub process: usize,
    /// The kernels in their order: index into [`Profile::kernels`]. At most [`Self::SHOWN`] of
    /// them.
    pub kernels: Vec<usize>,
    /// Launches of one repetition.
    pub length: u64,
    /// Repetitions.
    pub repeats: u64,
    /// CPU time in the launch calls of all repetitions.
    pub launch_cpu_ns: f64,
    /// Time from the first to the end of the last launch call of each repetition, summed up.
    pub elapsed_ns: f64,
}

impl Sequence {
    /// Most kernels that are listed.
    pub const SHOWN: usize = 64;

    /// Launches of all repetitions; saturates.
    pub fn covered(&self) -> u64 {
        self.length.saturating_mul(self.repeats)
    }
}

/// One device over time, as one process used it: what [`crate::accounts`] says of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Activity {
    /// Index into [`Profile::processes`].
    pub process: usize,
    /// Index into [`Profile::devices`]; `None` if unknown.
    pub device: Option<usize>,
    /// Start of the first launch, nanoseconds after the process's start.
    pub start_ns: f64,
    /// From there to the end of the last launch or synchronisation call.
    pub span_ns: f64,
    /// Launch calls and graph launches that ran.
    pub launches: u64,
    /// Share of these whose GPU time is known.
    pub timed_share: f64,
    /// Streams that were launched into. With more than one, kernels may overlap.
    pub streams: usize,
    /// GPU time of kernels; `None` where nothing was timed.
    pub gpu_time_ns: Option<Figure>,
    /// Where the span went.
    pub accounts: Accounts,
    /// Where each phase went; their accounts add up to [`Self::accounts`].
    pub phases: Vec<Phase>,
    /// The iterations of the steady state; `None` where no repetition was found.
    pub iterations: Option<Iterations>,
    /// Of the span, share in which the device is idle; `None` where too much of it is unknown
    /// ([`Self::MOST_UNKNOWN`]).
    pub idle_share: Option<Figure>,
    /// The idle time by what the host did meanwhile, nanoseconds; sums up to it. Empty where too
    /// much is unknown.
    pub idle_by: BTreeMap<IdleCause, f64>,
    /// Gaps of at least [`Self::long_gap_ns`], the longest ten.
    pub gaps: Vec<Gap>,
    /// All gaps of that length.
    pub long_gaps: u64,
    /// Their time.
    pub long_gaps_ns: f64,
    /// Share of time that the device was busy, in [`Self::CHUNKS`] equal parts of the span; empty
    /// where too much is unknown.
    pub busy: Vec<f64>,
    /// The accounts of [`OverTime::PARTS`] equal parts of the span; `None` in a profile of one
    /// phase.
    pub over_time: Option<OverTime>,
    /// When each kernel is launched by launch calls; empty in a profile of one phase.
    pub launches_over_time: Vec<LaunchesOverTime>,
    /// Collectives (NCCL) that were launched and timed.
    pub collectives: Vec<Collective>,
}

/// What a collective takes in one process.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Collective {
    /// Index into [`Profile::kernels`].
    pub kernel: usize,
    /// Launch calls that ran.
    pub launches: u64,
    /// Mean time of one, with the time that it waits for other ranks.
    pub mean_ns: f64,
}

impl Activity {
    /// Nsight Systems calls a gap long from here on.
    const LONG_GAP_NS: f64 = 500e6;
    /// In a shorter span a gap is long that takes this share of it …
    const LONG_GAP_SHARE: f64 = 0.05;
    /// … if it is no shorter than this.
    const LEAST_GAP_NS: f64 = 10e6;
    /// Parts of the span in which utilisation is given, as in Nsight Systems.
    pub const CHUNKS: usize = 30;
    /// Share of the span that may be unknown where idle time is told.
    pub const MOST_UNKNOWN: f64 = 0.1;

    /// From here on a gap is long, in a span of so many nanoseconds.
    pub fn long_gap_ns(span_ns: f64) -> f64 {
        (Self::LONG_GAP_SHARE * span_ns).clamp(Self::LEAST_GAP_NS, Self::LONG_GAP_NS)
    }
}

impl AfterLaunch {
    /// Adds other calls.
    pub fn add(&mut self, other: Self) {
        self.count = self.count.saturating_add(other.count);
        self.cpu_ns += other.cpu_ns;
    }
}

impl Activity {
    /// A part of the idle time, nanoseconds, as uncertain as all of it.
    pub fn idle_part(&self, part_ns: f64) -> Figure {
        let [least, most] = self.idle_share.map_or([1.0; 2], |idle| {
            let (low, high) = idle.bounds();
            [low, high].map(|end| if idle.value > 0.0 { end / idle.value } else { 1.0 })
        });
        Figure::predicted(part_ns, (part_ns * least, (part_ns * most).min(self.span_ns)))
    }

    /// The time of the long gaps, nanoseconds: as uncertain as those that are listed.
    pub fn long_gaps(&self) -> Figure {
        let listed = Figure::sum(self.gaps.iter().map(|gap| gap.duration_ns)).filter(|sum| sum.value > 0.0);
        listed.map_or(Figure::measured(self.long_gaps_ns), |sum| sum.scaled(self.long_gaps_ns / sum.value))
    }

    /// A busy share of a part of the span, as uncertain as that of all of it.
    pub fn busy_part(&self, share: f64) -> Figure {
        let busy = self.idle_share.map(Figure::complement).filter(|busy| busy.value > 0.0);
        let (low, high) = busy.map_or((share, share), |busy| {
            let (low, high) = busy.bounds();
            (share * low / busy.value, share * high / busy.value)
        });
        Figure::predicted(share, (low, high)).at_most(1.0)
    }
}

impl Activity {
    /// Iterations that the span holds, also in part, if all of it is steady state.
    pub fn steps(&self) -> Option<f64> {
        let step_ns = self.iterations.as_ref()?.step_ns.value;
        let steady = self.phases.iter().all(|phase| phase.kind == PhaseKind::Steady);
        (steady && step_ns > 0.0).then(|| self.span_ns / step_ns)
    }

    /// Share of the span in which kernels ran; see [`Totals::gpu_busy`].
    pub fn gpu_busy(&self) -> Option<Figure> {
        let Accounts { kernels, collectives, waiting, .. } = self.accounts;
        self.gpu_time_ns.filter(|_| self.span_ns > 0.0)?;
        let busy = Figure::sum([kernels, collectives, waiting])?;
        Some(busy.scaled(1.0 / self.span_ns).at_most(1.0))
    }
}

/// A time without work on the device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Gap {
    /// Nanoseconds after the process's start.
    pub start_ns: f64,
    /// The phase that it begins in.
    pub phase: PhaseKind,
    /// Its length. Measured where it begins with a synchronisation that returned, else predicted.
    pub duration_ns: Figure,
    /// The kernel before it: index into [`Profile::kernels`].
    pub before: Option<usize>,
    /// The kernel after it.
    pub after: Option<usize>,
    /// Its time by what the host did meanwhile, nanoseconds.
    pub by: BTreeMap<IdleCause, f64>,
}

/// What recording cost, and what it missed.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Recorder {
    /// Records read.
    pub records: u64,
    /// Timed launches among them.
    pub timings: u64,
    /// Time spent on timing, as the recorder measured itself.
    pub timing_ns: f64,
    /// Time spent on recording: records times the mean of what their process's recorder measured of
    /// itself, or times [`RECORD_COST_NS`] where it took too few samples.
    pub recording_ns: f64,
    /// Both over the processes' wall time; not known where records were lost.
    pub overhead_share: Option<Figure>,
    /// Records lost for want of space.
    pub dropped: u64,
    /// Records given up to the session's size limit.
    pub overwritten: u64,
    /// Launches whose configuration did not fit the table.
    pub config_overflow: u64,
    /// What is wrong with the session's files.
    pub problems: Vec<String>,
}

impl Recorder {
    /// Records lost, of any sort; saturates.
    pub fn lost(&self) -> u64 {
        self.dropped.saturating_add(self.overwritten)
    }
}
