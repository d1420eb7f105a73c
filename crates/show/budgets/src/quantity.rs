//! What can have a limit.

use serde::{Serialize, Serializer};

use crate::Per;

/// A figure of a run, or of a kernel function in it. Sums are of a step, where launches repeat on a
/// GPU, otherwise of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Quantity {
    /// Mean time of a step, milliseconds.
    StepMs,
    /// Kernels that ran.
    Launches,
    /// Copies.
    Copies,
    /// Bytes of these.
    CopiedBytes,
    /// Most memory that was allocated at one time, bytes, summed over kinds of memory.
    PeakBytes,
    /// Share of the time in which the GPU is busy, percent.
    GpuBusyPercent,
    /// Share of the time in which the GPU is idle while the host runs code of its own, percent.
    IdleHostCodePercent,
    /// Share of the time in which the GPU is idle during driver calls, percent.
    IdleDriverCallsPercent,
    /// Mean GPU time of a launch of the function, microseconds.
    KernelUs,
    /// Theoretical occupancy, percent; of a function, that of its worst configuration.
    OccupancyPercent,
    /// Instructions of warps.
    WarpInstructions,
    /// 32-byte sectors of global memory.
    Sectors,
    /// Sectors beyond those that the same bytes would take side by side.
    ExcessiveSectors,
    /// Wavefronts of shared memory that bank conflicts cost.
    BankConflicts,
    /// Branches that threads of a warp took differently.
    DivergentBranches,
    /// Defects that `apex run --check` found: races, accesses out of bounds, reads of what was
    /// never written.
    Defects,
}

/// Which side of the limit is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Good {
    /// At most the limit.
    AtMost,
    /// At least the limit.
    AtLeast,
}

/// Margin of a time, as a share of it, where the first runs vary less.
const MARGIN: f64 = 0.02;
/// The same of a count in a step: the number of steps in a stretch of time is no whole number.
const COUNT_MARGIN: f64 = 0.01;
/// The same of a share, percentage points.
const POINTS: f64 = 2.0;
/// Student's quantiles of one chance in 2000, by runs less one from two on: how far a further run
/// is from the mean of the first ones, in units of its standard error. Four standard deviations
/// would be exceeded by chance in one of 27 runs after three first ones, and in one of 2000 after
/// twenty.
const QUANTILES: [f64; 19] = [
    31.6, 12.92, 8.61, 6.87, 5.96, 5.41, 5.04, 4.78, 4.59, 4.44, 4.32, 4.22, 4.14, 4.07, 4.01, 3.97, 3.92,
    3.88, 3.85,
];
/// Margin of a time that one run alone was measured in, as a share: its spread is not known.
const UNKNOWN_MARGIN: f64 = 0.1;
/// The same of a share, percentage points.
const UNKNOWN_POINTS: f64 = 10.0;

impl Quantity {
    /// All quantities, in the order of files and tables.
    pub const ALL: [Self; 16] = [
        Self::StepMs,
        Self::Launches,
        Self::Copies,
        Self::CopiedBytes,
        Self::PeakBytes,
        Self::GpuBusyPercent,
        Self::IdleHostCodePercent,
        Self::IdleDriverCallsPercent,
        Self::KernelUs,
        Self::OccupancyPercent,
        Self::WarpInstructions,
        Self::Sectors,
        Self::ExcessiveSectors,
        Self::BankConflicts,
        Self::DivergentBranches,
        Self::Defects,
    ];

    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::StepMs => "step_ms",
            Self::Launches => "launches",
            Self::Copies => "copies",
            Self::CopiedBytes => "copied_bytes",
            Self::PeakBytes => "peak_bytes",
            Self::GpuBusyPercent => "gpu_busy_percent",
            Self::IdleHostCodePercent => "idle_host_code_percent",
            Self::IdleDriverCallsPercent => "idle_driver_calls_percent",
            Self::KernelUs => "kernel_us",
            Self::OccupancyPercent => "occupancy_percent",
            Self::WarpInstructions => "warp_instructions",
            Self::Sectors => "sectors",
            Self::ExcessiveSectors => "excessive_sectors",
            Self::BankConflicts => "bank_conflicts",
            Self::DivergentBranches => "divergent_branches",
            Self::Defects => "defects",
        }
    }

    /// The quantity of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|quantity| quantity.name() == name)
    }

    /// Which side of the limit is good.
    pub fn good(self) -> Good {
        match self {
            Self::GpuBusyPercent | Self::OccupancyPercent => Good::AtLeast,
            _ => Good::AtMost,
        }
    }

    /// Whether two runs of the same program have the same value, with sums of this unit.
    pub fn is_exact(self, per: Per) -> bool {
        let is_time = matches!(self, Self::StepMs | Self::KernelUs) || self.is_share_of_time();
        let is_sum = !matches!(self, Self::PeakBytes | Self::OccupancyPercent);
        !is_time && (per == Per::Run || !is_sum)
    }

    fn is_share_of_time(self) -> bool {
        matches!(self, Self::GpuBusyPercent | Self::IdleHostCodePercent | Self::IdleDriverCallsPercent)
    }

    /// How far beyond the mean of the first runs the limit is, for sums of this unit: as far as one
    /// further run in 2000 is by chance, if runs vary like these with this standard deviation, and
    /// at least 2% of a time, 1% of a count of a step or two percentage points of a share. Fewer
    /// than three runs do not tell how they vary: 10% of a time or ten points of a share.
    pub fn margin(self, per: Per, mean: f64, deviation: f64, runs: usize) -> f64 {
        let (least, unknown) = match self {
            _ if self.is_exact(per) => return 0.0,
            _ if self.is_share_of_time() => (POINTS, UNKNOWN_POINTS),
            Self::StepMs | Self::KernelUs => (MARGIN * mean, UNKNOWN_MARGIN * mean),
            _ => (COUNT_MARGIN * mean, COUNT_MARGIN * mean),
        };
        let Some(freedom) = runs.checked_sub(3) else { return unknown };
        let quantile = QUANTILES[freedom.min(QUANTILES.len() - 1)];
        (quantile * (1.0 + 1.0 / runs as f64).sqrt() * deviation).max(least)
    }

    /// Whether a value keeps a limit.
    pub fn keeps(self, value: f64, limit: f64) -> bool {
        // Sums of counts that were scaled have the noise of arithmetic.
        let noise = 1e-9 * limit.abs();
        match self.good() {
            Good::AtMost => value <= limit + noise,
            Good::AtLeast => value >= limit - noise,
        }
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}
