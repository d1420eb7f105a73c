//! What models say of a kernel, as plain data: `apex-predict` makes it, and views show it.

use serde::Serialize;

use crate::figure::{Figure, Provenance};

/// What the models say of a launch. The interval of a prediction holds the truth in nine of ten
/// cases like those that it was tested on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// The kernel's own duration. `None` of a session's kernel that was measured and of which it is
    /// not known what a launch executes.
    pub duration_ns: Option<Figure>,
    /// Warps resident on a multiprocessor while it is active, of the most possible.
    pub achieved_occupancy: Figure,
    /// Compute (SM) throughput, of the most possible.
    pub sm_utilisation: Figure,
    /// Threads that take part in a warp's instruction, of 32.
    pub warp_efficiency: Figure,
    /// What the prediction was made from: `launch`, `kernel`, `code` or `work`.
    pub basis: String,
    /// Features outside of what the models were trained on: where there are any, no interval has
    /// been tested.
    pub unfamiliar: Vec<String>,
    /// The kernel's own duration as measured; `None` where it was not timed.
    pub measured_duration_ns: Option<Figure>,
    /// This over the predicted one.
    pub measured_over_predicted: Option<f64>,
    /// What bounds the kernel; `None` where it is not known what it executes.
    pub bound: Option<Bound>,
    /// What a launch executes, where that is known.
    pub work: Option<Work>,
}

/// What a launch executes, as far as a roofline shows it: computed from PTX and arguments.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Work {
    /// PTX instructions of warps.
    pub warp_instructions: f64,
    /// Bytes of the sectors that loads from and stores to global memory touch, each request on its
    /// own: what passes between L1 and L2 at most.
    pub global_bytes: f64,
    /// Whether it rests on a guess about values in memory.
    pub assumed: bool,
}

/// What bounds a kernel, by a roofline over what its launches execute.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bound {
    /// What it is.
    pub by: BoundBy,
    /// The part of the device that takes longest for the work: `memory`, `double`, `issue`, ….
    pub part: String,
    /// How long that part takes for it at full rate, nanoseconds. Computed from the work; the work
    /// is predicted where [`Bound::assumed`] says so.
    pub part_ns: Figure,
    /// Share of the kernel's duration that this is; 1 at most.
    pub share: f64,
    /// Where that duration comes from: measured where the kernel was timed, else predicted.
    pub duration: Provenance,
    /// Whether the work rests on a guess about values in memory.
    pub assumed: bool,
}

/// What bounds a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BoundBy {
    /// The bytes or accesses that some level of memory serves.
    Memory,
    /// The instructions that some pipe executes.
    Compute,
    /// The time that dependent instructions and accesses take: no part of the device is busy.
    Latency,
    /// What starting and ending any kernel takes: the work is less than that.
    Launch,
    /// The last wave of blocks, which leaves most of the device idle.
    Tail,
}

impl BoundBy {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Compute => "compute",
            Self::Latency => "latency",
            Self::Launch => "launch",
            Self::Tail => "tail",
        }
    }
}

impl Prediction {
    /// Sets a measured duration beside it.
    pub fn beside(mut self, measured_ns: Option<Figure>) -> Self {
        self.measured_duration_ns = measured_ns;
        let predicted = self.duration_ns.filter(|predicted| predicted.value > 0.0);
        self.measured_over_predicted =
            measured_ns.zip(predicted).map(|(measured, predicted)| measured.value / predicted.value);
        self
    }
}
