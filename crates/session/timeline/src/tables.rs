//! The tables of an index beside its events: names, kernels, lanes. They are kept as JSON in one
//! block.

use serde::{Deserialize, Serialize};

use crate::lane::LaneIndex;

/// Characters of a name.
pub const NAME: usize = 500;
/// Frames of a stack.
const FRAMES: usize = 40;

/// Everything beside events and cells.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Tables {
    pub processes: Vec<Process>,
    pub phases: Vec<Phase>,
    /// The names of events; the first has the number 1.
    pub names: Vec<Name>,
    pub kernels: Vec<Kernel>,
    /// Ranges of the program in full, the first of which has the number 1.
    pub ranges: Vec<String>,
    pub lanes: Vec<LaneRow>,
    /// Lanes in the order in which answers have them.
    pub order: Vec<u32>,
    /// The parts that the timeline lacks.
    pub lacks: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Process {
    pub pid: u32,
    pub rank: Option<usize>,
    pub name: String,
    pub start_ns: u64,
}

impl Process {
    /// Whether a rank or an identifier means it.
    pub fn is(&self, rank: u32) -> bool {
        self.rank == Some(rank as usize) || self.pid == rank
    }
}

/// The beginning of a phase.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Phase {
    pub process: usize,
    pub kind: apex_profile::PhaseKind,
    pub start_ns: u64,
}

/// The name of an event.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Name {
    pub text: String,
    /// Place among the kernels.
    pub kernel: Option<usize>,
}

/// The source of a lane's events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LaneKind {
    /// The uses of a device.
    Device,
    /// Work of a stream.
    Stream,
    /// Calls of a thread.
    Thread,
    /// Ranges of a thread.
    Range,
}

impl LaneKind {
    /// The letter in front of a lane's number.
    pub fn letter(self) -> char {
        match self {
            Self::Device => 'd',
            Self::Stream => 's',
            Self::Thread => 't',
            Self::Range => 'r',
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LaneRow {
    pub kind: LaneKind,
    pub process: usize,
    pub name: String,
    pub device: Option<String>,
    pub device_uuid: Option<String>,
    /// The thread's identifier.
    pub thread: Option<u32>,
    /// The number of streams of the process with collectives before this one; `None` for a stream
    /// without collectives.
    pub group: Option<u32>,
    pub index: LaneIndex,
}

/// A function in one launch configuration, as an answer has it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Kernel {
    pub name: String,
    #[serde(flatten)]
    pub row: KernelRow,
    /// Predicted duration: value, and the interval.
    pub prediction: Option<[f64; 3]>,
    pub frames: Vec<Frame>,
}

/// The fields of a kernel that answers show unchanged.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KernelRow {
    pub symbol: String,
    pub operation: String,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub cluster: Option<[u32; 3]>,
    pub dynamic_shared_bytes: u32,
    pub static_shared_bytes: Option<u32>,
    pub registers: Option<u32>,
    pub occupancy: Option<f64>,
    pub limiters: Vec<String>,
    pub waves: Option<f64>,
    pub launches: u64,
    pub timed: Option<Timed>,
}

/// The durations of a kernel's timed launches.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Timed {
    pub samples: u64,
    pub mean_ns: f64,
    pub p10_ns: f64,
    pub median_ns: f64,
    pub p90_ns: f64,
    pub longest_ns: f64,
    /// Standard deviation.
    pub deviation_ns: Option<f64>,
}

/// A frame of a call stack.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Frame {
    pub function: String,
    pub file: String,
    pub line: Option<u32>,
}

/// Foreign text, printable and cut.
pub fn text(foreign: &str) -> String {
    let mut short: String = foreign.chars().take(NAME).collect();
    if short.len() < foreign.len() {
        short.push('…');
    }
    apex_untrusted::printable(&short).into_owned()
}

impl Kernel {
    pub fn of(profile: &apex_profile::Profile, kernel: &apex_profile::Kernel) -> Self {
        let three = |dim: cuda_launch::Dim3| [dim.x, dim.y, dim.z];
        let geometry = kernel.geometry.as_ref();
        let limiters = geometry
            .into_iter()
            .flat_map(|geometry| geometry.occupancy.limiters())
            .map(|by| by.name().to_owned());
        // The stack that was read most often.
        let stack = kernel.stacks.iter().max_by_key(|count| (count.sampled, count.first_seen));
        let stack = stack.and_then(|count| profile.call_stacks.get(count.stack));
        let frames = stack.into_iter().flat_map(|stack| stack.native.iter().chain(&stack.frames));
        let row = KernelRow {
            symbol: text(&kernel.symbol),
            operation: kernel.traits.operation.name().to_owned(),
            grid: three(kernel.launch.grid),
            block: three(kernel.launch.block),
            cluster: Some(three(kernel.launch.cluster)).filter(|cluster| *cluster != [0; 3]),
            dynamic_shared_bytes: kernel.launch.dynamic_shared_bytes,
            static_shared_bytes: kernel.attributes.map(|attributes| attributes.static_shared_bytes),
            registers: kernel.attributes.map(|attributes| attributes.registers),
            occupancy: geometry.map(|geometry| geometry.occupancy.fraction()),
            limiters: limiters.collect(),
            waves: geometry.map(|geometry| geometry.waves.waves),
            launches: kernel.launches.ran(),
            timed: kernel.gpu.as_ref().map(|gpu| Timed {
                samples: gpu.each.count,
                mean_ns: gpu.each.mean_ns,
                p10_ns: gpu.each.p10_ns,
                median_ns: gpu.each.median_ns,
                p90_ns: gpu.each.p90_ns,
                longest_ns: gpu.each.max_ns,
                deviation_ns: gpu.deviation_ns,
            }),
        };
        let predicted = kernel.prediction.as_ref().and_then(|prediction| prediction.duration_ns);
        Self {
            name: text(&kernel.name),
            row,
            prediction: predicted
                .map(|predicted| [predicted.value, predicted.bounds().0, predicted.bounds().1]),
            frames: frames.take(FRAMES).map(Frame::of).collect(),
        }
    }
}

impl Frame {
    fn of(frame: &apex_profile::Frame) -> Self {
        Self { function: text(&frame.function), file: text(&frame.file), line: frame.line }
    }
}
