//! The use of a device by a process: the division of its time, its gaps, its collectives.
//! [`super::activity`] computes it.

use std::collections::BTreeMap;

use serde::Serialize;

use super::IdleSamples;
use super::growth::Growth;
use super::launches::LaunchesOverTime;
use crate::accounts::{Accounts, IdleCause, Iterations, OverTime, Phase, PhaseKind};
use crate::figure::Figure;

/// One process's use of one device over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Activity {
    /// Index into [`Profile::processes`](super::Profile::processes).
    pub process: usize,
    /// Index into [`Profile::devices`](super::Profile::devices); `None` if unknown.
    pub device: Option<usize>,
    /// CUDA ordinal of the device in this process; `None` if unknown.
    pub ordinal: Option<u32>,
    /// Start of the first launch, nanoseconds after the process's start.
    pub start_ns: f64,
    /// The time from there to the end of the last launch or synchronisation call.
    pub span_ns: f64,
    /// Launch calls and graph launches that ran.
    pub launches: u64,
    /// Share of these launches whose GPU time is known.
    pub timed_share: f64,
    /// Streams that work was launched into. With more than one, kernels may overlap.
    pub streams: usize,
    /// Whether several threads launched.
    #[serde(skip)]
    pub has_threads: bool,
    /// GPU time of kernels; `None` if no launch was timed.
    pub gpu_time_ns: Option<Figure>,
    /// The division of the span into kinds of time.
    pub accounts: Accounts,
    /// The phases; their accounts add up to [`Self::accounts`].
    pub phases: Vec<Phase>,
    /// The iterations of the steady state; `None` if no repetition was found.
    pub iterations: Option<Iterations>,
    /// Share of the span in which the device is idle; `None` if too much of the span is unknown
    /// ([`Self::MOST_UNKNOWN`]).
    pub idle_share: Option<Figure>,
    /// The idle time in nanoseconds, divided by the host's activity during it. Empty if too much is
    /// unknown.
    pub idle_by: BTreeMap<IdleCause, f64>,
    /// The ten longest gaps of at least [`Self::long_gap_ns`].
    pub gaps: Vec<Gap>,
    /// Number of all gaps of at least that length.
    pub long_gaps: u64,
    /// Total time of these gaps.
    pub long_gaps_ns: f64,
    /// Busy share of [`Self::CHUNKS`] equal parts of the span; empty if too much is unknown.
    pub busy: Vec<f64>,
    /// The accounts of [`OverTime::PARTS`] equal parts of the span; `None` in a profile of one
    /// phase.
    pub over_time: Option<OverTime>,
    /// Launch calls of each kernel over time; empty in a profile of one phase.
    pub launches_over_time: Vec<LaunchesOverTime>,
    /// How steps grow; `None` where they do not. Of the whole run, also in a profile of one phase.
    #[serde(skip)]
    pub growth: Option<Growth>,
    /// Collectives (NCCL) that were launched and timed.
    pub collectives: Vec<Collective>,
    /// Samples of the host by idle account; empty where it was not sampled.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub host_samples: Vec<IdleSamples>,
}

impl Activity {
    /// Minimum length of a long gap, from Nsight Systems.
    const LONG_GAP_NS: f64 = 500e6;
    /// In a shorter span, a gap of this share of the span is long …
    const LONG_GAP_SHARE: f64 = 0.05;
    /// … if it has at least this length.
    const LEAST_GAP_NS: f64 = 10e6;
    /// Parts of the span for which utilisation is reported, as in Nsight Systems.
    pub const CHUNKS: usize = 30;
    /// Maximum unknown share of the span for idle time to be reported.
    pub const MOST_UNKNOWN: f64 = 0.1;

    /// Minimum length of a long gap in a span of this length.
    pub fn long_gap_ns(span_ns: f64) -> f64 {
        (Self::LONG_GAP_SHARE * span_ns).clamp(Self::LEAST_GAP_NS, Self::LONG_GAP_NS)
    }

    /// A part of the idle time in nanoseconds, with the relative uncertainty of the whole.
    pub fn idle_part(&self, part_ns: f64) -> Figure {
        let [least, most] = self.idle_share.map_or([1.0; 2], |idle| {
            let (low, high) = idle.bounds();
            [low, high].map(|end| if idle.value > 0.0 { end / idle.value } else { 1.0 })
        });
        Figure::predicted(part_ns, (part_ns * least, (part_ns * most).min(self.span_ns)))
    }

    /// The time of the long gaps in nanoseconds, with the relative uncertainty of those listed.
    pub fn long_gaps(&self) -> Figure {
        let listed = Figure::sum(self.gaps.iter().map(|gap| gap.duration_ns)).filter(|sum| sum.value > 0.0);
        listed.map_or(Figure::measured(self.long_gaps_ns), |sum| sum.scaled(self.long_gaps_ns / sum.value))
    }

    /// Busy share of a part of the span, with the relative uncertainty of the whole span's.
    pub fn busy_part(&self, share: f64) -> Figure {
        let busy = self.idle_share.map(Figure::complement).filter(|busy| busy.value > 0.0);
        let (low, high) = busy.map_or((share, share), |busy| {
            let (low, high) = busy.bounds();
            (share * low / busy.value, share * high / busy.value)
        });
        Figure::predicted(share, (low, high)).at_most(1.0)
    }

    /// Iterations in the span, as a fraction; `None` unless the whole span is steady state.
    pub fn steps(&self) -> Option<f64> {
        let step_ns = self.iterations.as_ref()?.step_ns.value;
        let steady = self.phases.iter().all(|phase| phase.kind == PhaseKind::Steady);
        (steady && step_ns > 0.0).then(|| self.span_ns / step_ns)
    }

    /// Share of the span in which kernels ran; see [`Totals::gpu_busy`](super::Totals::gpu_busy).
    pub fn gpu_busy(&self) -> Option<Figure> {
        let Accounts { kernels, collectives, waiting, .. } = self.accounts;
        self.gpu_time_ns.filter(|_| self.span_ns > 0.0)?;
        let busy = Figure::sum([kernels, collectives, waiting])?;
        Some(busy.scaled(1.0 / self.span_ns).at_most(1.0))
    }
}

/// The time that a collective takes in one process.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Collective {
    /// Index into [`Profile::kernels`](super::Profile::kernels).
    pub kernel: usize,
    /// Launch calls that ran.
    pub launches: u64,
    /// Mean time of one launch, including the time that it waits for other ranks.
    pub mean_ns: f64,
}

/// A period without work on the device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Gap {
    /// Nanoseconds after the process's start.
    pub start_ns: f64,
    /// The phase in which it begins.
    pub phase: PhaseKind,
    /// Its length: measured if it begins when a synchronisation returned, otherwise predicted.
    pub duration_ns: Figure,
    /// The kernel before it: index into [`Profile::kernels`](super::Profile::kernels).
    pub before: Option<usize>,
    /// The kernel after it.
    pub after: Option<usize>,
    /// Its time in nanoseconds, divided by the host's activity during it.
    pub by: BTreeMap<IdleCause, f64>,
}
