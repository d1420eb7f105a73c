//! Predictions for kernels as plain data: models compute them, a profile takes them
//! ([`Profile::with`](crate::Profile::with)), and views show them.

use serde::Serialize;

use crate::figure::{Figure, Provenance};

/// The models' predictions for a launch, with 90% prediction intervals.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// Duration (`gpu__time_duration`). `None` for a measured kernel of a session whose work is not
    /// known.
    pub duration_ns: Option<Figure>,
    /// Achieved occupancy: resident warps of an active multiprocessor, relative to the maximum.
    pub achieved_occupancy: Figure,
    /// Compute (SM) throughput, relative to the peak.
    pub sm_utilisation: Figure,
    /// Avg. active threads per warp, relative to 32.
    pub warp_efficiency: Figure,
    /// Input of the prediction: `launch`, `kernel`, `code` or `work`.
    pub basis: String,
    /// Features outside the range of the training data; if there are any, the interval has not been
    /// tested.
    pub unfamiliar: Vec<String>,
    /// Measured duration; `None` if the kernel was not timed.
    pub measured_duration_ns: Option<Figure>,
    /// Measured duration divided by the predicted one.
    pub measured_over_predicted: Option<f64>,
    /// The limit of the kernel; `None` if its work is not known.
    pub bound: Option<Bound>,
    /// The work of a launch, if known.
    pub work: Option<Work>,
}

/// The work of a launch for a roofline, computed from PTX and arguments.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Work {
    /// Executed PTX instructions, per warp.
    pub warp_instructions: f64,
    /// Bytes of the sectors that global loads and stores access, summed over requests: the maximum
    /// traffic between L1 and L2.
    pub global_bytes: f64,
    /// Whether it depends on an assumption about values in memory.
    pub assumed: bool,
}

/// The bound of a kernel, from a roofline of the work of its launches.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bound {
    /// Kind of bound.
    pub by: BoundBy,
    /// The part of the device that takes longest for the work: `memory`, `double`, `issue`, ….
    pub part: String,
    /// Time of that part for the work at full rate, in nanoseconds: computed from the work, which
    /// depends on assumptions if [`Bound::assumed`] is set.
    pub part_ns: Figure,
    /// Share of the kernel's duration, at most 1.
    pub share: f64,
    /// Provenance of that duration: measured if the kernel was timed, otherwise predicted.
    pub duration: Provenance,
    /// Whether the work depends on an assumption about values in memory.
    pub assumed: bool,
}

/// The resource that bounds a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BoundBy {
    /// Bytes or accesses of a level of the memory hierarchy.
    Memory,
    /// Instructions of a pipe.
    Compute,
    /// Latency of dependent instructions and accesses: no part of the device is busy.
    Latency,
    /// The time to start and end a kernel, which exceeds the time of the work.
    Launch,
    /// The last wave of blocks, which leaves most of the device idle.
    Tail,
}

impl BoundBy {
    /// Name in reports.
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
    /// Adds a measured duration.
    pub fn beside(mut self, measured_ns: Option<Figure>) -> Self {
        self.measured_duration_ns = measured_ns;
        let predicted = self.duration_ns.filter(|predicted| predicted.value > 0.0);
        self.measured_over_predicted =
            measured_ns.zip(predicted).map(|(measured, predicted)| measured.value / predicted.value);
        self
    }
}
