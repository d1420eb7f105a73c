//! The profile as data.
//!
//! Plain integers are counts of records (measured). Durations are in nanoseconds unless their name
//! gives another unit. Lists are sorted by cost, the highest first. Indices ([`Kernel::device`],
//! [`Activity::process`], …) point into the lists of the same profile.
//!
//! A *kernel* here is a function in one launch configuration on one device: launches of the same
//! function with another grid are another kernel. Processes that run the same function in the same
//! configuration share it.

mod activity;
mod build;
pub(crate) mod by_id;
mod by_rank;
mod calls;
mod code;
mod collectives;
mod costs;
mod counts;
mod data_flow;
mod devices;
mod geometry;
mod growth;
mod host_profile;
mod host_stacks;
mod idle_functions;
mod interned;
mod kernels;
mod launches;
mod lines;
mod memory;
mod memory_over_time;
mod native;
mod owners;
mod phase;
mod pool;
mod predictions;
mod queue;
mod quotes;
mod ranges;
mod reading;
mod reshaping;
mod sampled;
mod sequences;
pub(crate) mod serde_layout;
mod shares;
pub(crate) mod sizes;
mod stacks;
mod summary;
mod telling;
mod times;
mod transfers;
mod unit_activity;
mod usage;

use apex_counts::Defect;
use std::collections::BTreeMap;

use apex_trace::definition::StreamKind;
use cuda_launch::DeviceAttributes;
use occupancy::DeviceLimits;
use serde::Serialize;

use crate::figure::Figure;
use crate::sketch::Distribution;

pub use build::{Builder, RECORD_COST_INTERVAL_NS, RECORD_COST_NS, device_uuid};
pub use by_rank::{ByRank, Communicator, Guest, LateCause, LateRank, Link, Matching, RankRow};
pub use calls::{AfterLaunch, Call, Copies, CopyDirection};
pub use code::{
    ArgumentMemory, CodeFact, Images, KernelArguments, KernelCode, KnownCode, MachineCode, Parameter,
    PointerTo, SessionCode,
};
pub use collectives::{CollectiveLaunch, CollectiveSeries};
pub use counts::KernelCounts;
pub use data_flow::{DataFlow, FlowLaunch};
pub use devices::DeviceNames;
pub use geometry::Geometry;
pub use growth::Growth;
pub use host_profile::{HostFunctions, HostProfile, HostThread, ThreadStack};
pub use host_stacks::{HostFrame, HostSampling, HostStack, HostState, IdleSamples, IdleStack, Other};
pub use idle_functions::{IdleFunction, IdleFunctions, IdlePlace};
pub use kernels::{Asked, Kernel, Launches};
pub use launches::LaunchesOverTime;
pub use lines::Sources;
pub use memory::Memory;
pub use memory_over_time::{MemoryOverTime, PlaceOverTime};
pub use pool::{MemoryPool, State as MemoryPoolState};
pub use predictions::{KernelPrediction, Predictions, basis_shares};
pub use queue::{LaunchQueue, Schedule, ScheduleEnd, State as LaunchQueueState};
pub use quotes::{Functions, Loops, Quotes, Readings};
pub use ranges::Range;
pub use reshaping::{Reshaping, State as ReshapingState};
pub use sequences::Sequence;
pub use serde_layout::{memory_kind_name, stream_kind_name};
pub use shares::GpuShares;
pub use sizes::{SizeGroup, Sizes};
pub use stacks::{CallStack, Frame, Site, SiteShare, SiteTotals, StackCount};
pub use times::{Basis, GpuTime};
pub use unit_activity::UnitActivity;
pub use usage::{Activity, Collective, Gap};

/// The profile of a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Profile {
    /// Sums over the session.
    pub totals: Totals,
    /// Devices, in the order in which they were first used.
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
    /// Allocated memory of each process over time.
    pub memory_over_time: Vec<MemoryOverTime>,
    /// Streams that work was launched into, by launches.
    pub streams: Vec<Stream>,
    /// Repeated sequences of launches, by the launches that they cover.
    pub sequences: Vec<Sequence>,
    /// Data flow of repeated steps, where the arguments of their launches were recorded.
    #[serde(skip)]
    pub data_flows: Vec<DataFlow>,
    /// Each process's use of each device over time.
    pub activities: Vec<Activity>,
    /// The collectives of each process one by one. They may be many: [`Profile::by_rank`] says what
    /// they amount to.
    #[serde(skip)]
    pub collectives: Vec<CollectiveSeries>,
    /// Defects that the CPU device found in kernels, the most frequent first.
    pub defects: Vec<Defect>,
    /// Kernels of which the CPU device executed parts as machine code, in alphabetical order; it
    /// interpreted the rest.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub machine_code: Vec<String>,
    /// Call stacks of launches, in the order of their frames.
    pub call_stacks: Vec<CallStack>,
    /// Sampled call stacks of the host while a device was idle, in the order of their frames; empty
    /// where nothing was sampled. They may be many: [`Profile::idle_functions`] says what they
    /// amount to.
    #[serde(skip)]
    pub host_stacks: Vec<HostStack>,
    /// The sampling of the host; `None` if it was not sampled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_sampling: Option<HostSampling>,
    /// What the threads of the program did, in a session of `apex attach`, which has no launches;
    /// `None` in others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<HostProfile>,
    /// The program's NVTX ranges, each before the ranges inside it.
    pub ranges: Vec<Range>,
    /// The cost of recording, and lost records.
    pub recorder: Recorder,
    /// For each device without predictions, the reason.
    pub unpredicted: Vec<String>,
    /// The basis of the predictions: share of the GPU time of predicted kernels, by
    /// [`Prediction::basis`](crate::Prediction::basis).
    pub prediction_basis: BTreeMap<String, f64>,
    /// The code that the session keeps; `None` without `--code`.
    pub code: Option<SessionCode>,
    /// The images that contain the kernels.
    #[serde(skip)]
    pub images: Images,
    /// The source files that the kernels' line tables name, where the CPU device counted lines.
    #[serde(skip)]
    pub sources: Sources,
    /// The source text of the program's lines that launch work or that the host is at while a
    /// device is idle.
    #[serde(skip)]
    pub quotes: Quotes,
    /// The loops of Python around these lines.
    #[serde(skip)]
    pub loops: Loops,
    /// The statements of Python functions in the files of these lines.
    #[serde(skip)]
    pub functions: Functions,
    /// What reading the source says of the program's lines.
    #[serde(skip)]
    pub readings: Readings,
    /// How busy the units of the only GPU were in the steady state.
    #[serde(skip)]
    pub unit_activity: Option<UnitActivity>,
}

/// Sums over a session.
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
    /// Launch calls, including graph launches, that failed.
    pub failed: u64,
    /// Launches that ran whose configuration was not recorded.
    pub unknown: u64,
    /// CPU time in launch calls, including graph launches.
    pub launch_cpu_ns: f64,
    /// Share of the launches that ran, including those by graphs, whose GPU time is known from
    /// samples.
    pub timed_share: f64,
    /// Time from the first launch to the last launch or synchronisation, summed over
    /// [`Profile::activities`].
    pub span_ns: f64,
    /// GPU time of kernels, from samples; `None` without samples.
    pub gpu_time_ns: Option<Figure>,
    /// Share of `span_ns` in which kernels ran, from [`Activity::accounts`]: at most 1, and a lower
    /// bound if some of the time is unknown.
    pub gpu_busy: Option<Figure>,
    /// The time from the start of the first process to the last record of the last one.
    pub wall_ns: f64,
}

impl Totals {
    /// Kernels that ran, by launch calls and by graphs.
    pub fn kernels_run(&self) -> u64 {
        self.launches.saturating_add(self.graph_kernels)
    }
}

impl Profile {
    /// Nodes in launches of graphs whose kernels are in no count, because the host cannot know what
    /// they do: above all conditional nodes, whose bodies run as often as the device decides.
    pub fn uncounted_nodes(&self) -> u64 {
        let launched = |graph: &Graph| graph.launches.saturating_mul(u64::from(graph.opaque));
        self.graphs.iter().map(launched).fold(0, u64::saturating_add)
    }
}

/// A device.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Device {
    /// Name, such as `NVIDIA H200`; empty if the device of a launch is not known.
    pub name: String,
    /// CUDA ordinals under which processes used it, in ascending order: one, unless processes see
    /// different devices (`CUDA_VISIBLE_DEVICES`).
    pub ordinals: Vec<u32>,
    /// UUID, as `GPU-…`.
    pub uuid: String,
    /// Compute capability; `None` if the driver did not report it.
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
    /// The resources of its multiprocessors; `None` for an unknown compute capability.
    pub fn limits(&self) -> Option<DeviceLimits> {
        DeviceLimits::from_pairs(&self.attributes)
    }

    /// Bytes that its memory moves in a nanosecond at most; 0 if unknown.
    pub fn memory_bytes_per_ns(&self) -> f64 {
        DeviceAttributes::UNKNOWN.with_pairs(&self.attributes).memory_bytes_per_ns()
    }
}

/// A process.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Process {
    /// Process identifier; in a joined session with the number of its member
    /// ([`apex_trace::session_pid`]).
    pub pid: u32,
    /// Process identifier of the parent.
    pub parent_pid: u32,
    /// Its rank among the processes of the session ([`crate::Ranks`]); `None` if it launched no
    /// kernel, or if the profile covers several sessions.
    pub rank: Option<usize>,
    /// What its launcher says about its rank; `None` if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launcher: Option<LaunchedRank>,
    /// The host that it ran on, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Path of the executable.
    pub executable: String,
    /// Variables of its environment that configure CUDA, libraries and frameworks, at its first
    /// driver call; empty in sessions that do not hold them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// Nanoseconds from the start of the session's first process to the start of this one.
    pub start_ns: f64,
    /// The time from its start to its last record.
    pub wall_ns: f64,
    /// Launch calls that ran, and graph launches.
    pub launches: u64,
    /// Whether it ended by exit or exec; otherwise it was killed, or still ran when the session was
    /// read.
    pub ended: bool,
    /// Its launch queue, with `apex run --fast`.
    pub queue: Option<LaunchQueue>,
    /// Its memory pool, with `apex run --fast=memory`.
    pub pool: Option<MemoryPool>,
    /// What became of the plan by which its launches are reshaped, with `apex run --tuned`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reshaping: Option<Reshaping>,
}

/// The rank that a launcher gave a process, by the variables that it set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LaunchedRank {
    /// The launcher: `torchrun`, `slurm`, `openmpi`, …
    pub name: &'static str,
    /// The rank in the job.
    pub rank: u32,
    /// The rank among the job's processes on its host; `None` if the launcher does not say.
    pub local_rank: Option<u32>,
    /// Processes of the job; `None` if the launcher does not say.
    pub world_size: Option<u32>,
    /// How often the job had been restarted.
    pub restarts: u32,
    /// The job's name, if it has one.
    pub job: Option<String>,
}

impl From<apex_conventions::launchers::Rank> for LaunchedRank {
    fn from(rank: apex_conventions::launchers::Rank) -> Self {
        Self {
            name: rank.launcher.name(),
            rank: rank.rank,
            local_rank: rank.local_rank,
            world_size: rank.world_size,
            restarts: rank.restarts,
            job: rank.job,
        }
    }
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
    /// Launches that failed.
    pub failed: u64,
    /// Kernel nodes: index into [`Profile::kernels`], and the number of nodes with this kernel.
    pub kernels: Vec<(usize, u32)>,
    /// Copy nodes.
    pub copies: u32,
    /// Memset nodes.
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

/// A stream that work was launched into.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stream {
    /// Index into [`Profile::processes`].
    pub process: usize,
    /// Index into [`Profile::devices`]; `None` if unknown.
    pub device: Option<usize>,
    /// Its identifier in that process; 0 for launches whose stream is not known.
    pub id: u32,
    /// Kind of stream; `None` if unknown.
    #[serde(with = "serde_layout::stream_kind")]
    pub kind: Option<StreamKind>,
    /// Launch calls that ran.
    pub launches: u64,
    /// Graph launches that ran.
    pub graph_launches: u64,
    /// Asynchronous copies and memsets.
    pub transfers: u64,
}

/// The cost of recording, and lost records.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Recorder {
    /// Records read.
    pub records: u64,
    /// Timed launches among them.
    pub timings: u64,
    /// Time spent on timing, as the recorder measured it.
    pub timing_ns: f64,
    /// Time spent on recording: the number of records times the mean cost that the process's
    /// recorder measured, or times [`RECORD_COST_NS`] if it took too few samples.
    pub recording_ns: f64,
    /// Both over the processes' wall time; `None` if records were lost.
    pub overhead_share: Option<Figure>,
    /// Records lost for lack of space.
    pub dropped: u64,
    /// Records overwritten because of the session's size limit.
    pub overwritten: u64,
    /// Launches whose configuration did not fit the table.
    pub config_overflow: u64,
    /// Problems of the session's files.
    pub problems: Vec<String>,
}

impl Recorder {
    /// Records lost for either reason; saturates.
    pub fn lost(&self) -> u64 {
        self.dropped.saturating_add(self.overwritten)
    }
}
