//! The table of kernels.

use super::figure::{Figure, NAME, Spread, text};
use super::geometry::Geometry;
use super::{SENTENCE, Source};
use apex_counts::{Hotspot, Space};
use apex_profile::{
    BoundBy, GpuTime, KernelCounts, LaunchesOverTime, Prediction, Profile, SaturatingSum as _, StackCount,
    Work, total,
};
use cuda_launch::LaunchConfig;
use serde::Serialize;
use std::collections::BTreeMap;

/// Places of a kernel that are listed.
const MOST_PLACES: usize = 5;
/// Bad places in a kernel's code that are listed.
const MOST_SPOTS: usize = 10;

/// The kernels, those with the most GPU time first.
#[derive(Debug, Serialize)]
pub struct Kernels {
    list: Vec<Kernel>,
    left_out: LeftOut,
    /// GPU time of all of them; `null` where nothing was timed.
    gpu_time_ns: Option<Figure>,
    /// Reason of each device for which nothing is predicted.
    unpredicted: Vec<String>,
}

/// Kernels that are not listed.
#[derive(Debug, Serialize)]
struct LeftOut {
    kernels: usize,
    launches: u64,
    gpu_time_ns: f64,
}

/// A function in one launch configuration on one device.
#[derive(Debug, Serialize)]
struct Kernel {
    /// Index into the profile's kernels.
    kernel: usize,
    /// Identity for as long as the session lasts.
    id: String,
    name: String,
    short_name: String,
    operation: &'static str,
    types: Option<&'static str>,
    tensor_cores: Option<bool>,
    owner: &'static str,
    device: Option<usize>,
    #[serde(flatten)]
    launch: LaunchConfig,
    registers: Option<u32>,
    static_shared_bytes: Option<u32>,
    local_bytes: Option<u32>,
    /// Most threads of a block of this kernel; `null` where that is not known.
    max_threads_per_block: Option<u32>,
    /// Runs, by calls and by graphs.
    launches: u64,
    by_graphs: u64,
    captured: u64,
    failed: u64,
    gpu_total_ns: Option<Figure>,
    gpu_each: Option<Spread>,
    cpu: Spread,
    /// Launch calls in equal parts of the span of each device, summed over devices.
    launches_over_time: Vec<u64>,
    geometry: Option<Geometry>,
    place: Option<String>,
    /// Where it is launched from, the most frequent places first.
    places: Vec<LaunchedFrom>,
    prediction: Option<Predicted>,
    counts: Option<Counted>,
}

/// A place that launches it.
#[derive(Debug, Serialize)]
struct LaunchedFrom {
    place: String,
    /// Figure of the launches whose place was read; `null` where none was sampled.
    share: Option<f64>,
}

/// The models' prediction, and what was measured of the same.
#[derive(Debug, Serialize)]
struct Predicted {
    /// `null` where it was measured and it is not known what a launch executes.
    duration_ns: Option<Interval>,
    achieved_occupancy: Interval,
    sm_utilisation: Interval,
    measured_ns: Option<Figure>,
    measured_over_predicted: Option<f64>,
    /// Source of the prediction: `launch`, `kernel`, `code` or `work`.
    basis: String,
    /// Features outside of what the models were trained on.
    unfamiliar: Vec<String>,
    bound: Option<Bounded>,
    /// Work of a launch.
    work: Option<Work>,
}

/// Bound of the kernel.
#[derive(Debug, Serialize)]
struct Bounded {
    by: BoundBy,
    /// The part of the device that takes longest.
    part: String,
    /// Share of the duration that this part takes at full rate.
    share: f64,
}

/// A predicted value with its 90% prediction interval.
#[derive(Debug, Serialize)]
pub struct Interval {
    value: f64,
    low: f64,
    high: f64,
}

impl Interval {
    pub fn of(predicted: apex_profile::Figure) -> Self {
        let (low, high) = predicted.bounds();
        Self { value: predicted.value, low, high }
    }
}

/// Counts of the CPU device.
#[derive(Debug, Serialize)]
struct Counted {
    launches: u64,
    warp_instructions: u64,
    active_threads: f64,
    sectors_per_request: Option<f64>,
    wavefronts_per_request: Option<f64>,
    divergent_branches: u64,
    /// The share of the instructions that was counted; `null` if all were.
    sampled_share: Option<f64>,
    /// Whether its lines were counted, too.
    has_lines: bool,
    /// The worst places of each fault.
    hotspots: Vec<Spot>,
}

/// A place in the kernel's code where accesses or branches are bad.
#[derive(Debug, Serialize)]
struct Spot {
    /// `uncoalesced`, `bank_conflict` or `divergence`.
    fault: &'static str,
    /// Its source line, or the line of the PTX.
    place: String,
    /// The PTX instruction.
    instruction: String,
    /// Requests, or branches.
    events: u64,
    /// Sectors, wavefronts or branches.
    total: u64,
    /// Number of them that are excess, or divergent.
    excess: u64,
}

impl Spot {
    fn of(spot: &Hotspot) -> Self {
        Self {
            fault: spot.fault.name(),
            place: text(&spot.place.shown(), NAME),
            instruction: text(&spot.place.instruction, NAME),
            events: spot.events,
            total: spot.total,
            excess: spot.excess,
        }
    }
}

impl Kernels {
    pub fn of(source: &Source<'_>, most: usize) -> Self {
        let profile = source.selected;
        let launched = || profile.kernels.iter().enumerate().filter(|(_, kernel)| kernel.launches.any());
        let rest = || launched().skip(most).map(|(_, kernel)| kernel);
        let over_time = over_time(source.whole);
        let row = |(index, kernel)| Kernel::of(profile, index, kernel, &over_time);
        Self {
            list: launched().take(most).map(row).collect(),
            left_out: LeftOut {
                kernels: rest().count(),
                launches: rest().map(|kernel| kernel.launches.ran()).saturating_sum(),
                // Graphs take time that no kernel of the list has.
                gpu_time_ns: total(rest().filter_map(own_ns))
                    + total(profile.graphs.iter().filter_map(|graph| Some(graph.gpu?.total_ns.value))),
            },
            gpu_time_ns: profile.totals.gpu_time_ns.map(Figure::of),
            unpredicted: source.whole.unpredicted.iter().map(|why| text(why, SENTENCE)).collect(),
        }
    }
}

/// The GPU time of a kernel; `None` where graphs run it, which have one time for all of their
/// kernels.
fn own(kernel: &apex_profile::Kernel) -> Option<&GpuTime> {
    kernel.gpu.as_ref().filter(|_| kernel.launches.by_graphs == 0)
}

fn own_ns(kernel: &apex_profile::Kernel) -> Option<f64> {
    own(kernel).map(|gpu| gpu.total_ns.value)
}

/// Launch times of each kernel, over all devices.
fn over_time(profile: &Profile) -> BTreeMap<usize, Vec<u64>> {
    let mut sums: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
    for launches in profile.activities.iter().flat_map(|activity| &activity.launches_over_time) {
        let sum = sums.entry(launches.kernel).or_insert_with(|| vec![0; LaunchesOverTime::PARTS]);
        sum.iter_mut().zip(&launches.parts).for_each(|(sum, part)| *sum = sum.saturating_add(*part));
    }
    sums
}

impl Kernel {
    fn of(
        profile: &Profile,
        index: usize,
        kernel: &apex_profile::Kernel,
        over_time: &BTreeMap<usize, Vec<u64>>,
    ) -> Self {
        let attributes = kernel.attributes.as_ref();
        Self {
            kernel: index,
            id: kernel.id(),
            name: text(&kernel.name, NAME),
            short_name: text(&kernel.short_name, NAME),
            operation: kernel.traits.operation.name(),
            types: kernel.traits.types.input.map(|input| input.name()),
            tensor_cores: kernel.traits.tensor_cores,
            owner: kernel.traits.owner.name(),
            device: kernel.device,
            launch: kernel.launch,
            registers: attributes.map(|attributes| attributes.registers),
            static_shared_bytes: attributes.map(|attributes| attributes.static_shared_bytes),
            local_bytes: attributes.map(|attributes| attributes.local_bytes),
            max_threads_per_block: attributes
                .map(|attributes| attributes.max_threads_per_block)
                .filter(|&most| most > 0),
            launches: kernel.launches.ran(),
            by_graphs: kernel.launches.by_graphs,
            captured: kernel.launches.captured,
            failed: kernel.launches.failed,
            gpu_total_ns: own(kernel).map(|gpu| Figure::of(gpu.total_ns)),
            gpu_each: kernel.gpu.as_ref().map(|gpu| Spread::of(&gpu.each)),
            cpu: Spread::of(&kernel.cpu),
            launches_over_time: over_time.get(&index).cloned().unwrap_or_default(),
            geometry: kernel.geometry.as_ref().map(Geometry::of),
            place: profile.main_place(&kernel.stacks).map(|place| text(&place, NAME)),
            places: LaunchedFrom::of(profile, &kernel.stacks),
            prediction: kernel.prediction.as_ref().map(Predicted::of),
            counts: kernel.counts.as_ref().map(Counted::of),
        }
    }
}

impl LaunchedFrom {
    fn of(profile: &Profile, stacks: &[StackCount]) -> Vec<Self> {
        let sites = profile.sites(stacks);
        let place = |site: &apex_profile::SiteShare<'_>| Self {
            place: text(&site.site.to_string(), NAME),
            share: site.share,
        };
        sites.iter().take(MOST_PLACES).map(place).collect()
    }
}

impl Predicted {
    fn of(prediction: &Prediction) -> Self {
        Self {
            duration_ns: prediction.duration_ns.map(Interval::of),
            achieved_occupancy: Interval::of(prediction.achieved_occupancy),
            sm_utilisation: Interval::of(prediction.sm_utilisation),
            measured_ns: prediction.measured_duration_ns.map(Figure::of),
            measured_over_predicted: prediction.measured_over_predicted,
            basis: prediction.basis.clone(),
            unfamiliar: prediction.unfamiliar.iter().map(|feature| text(feature, NAME)).collect(),
            bound: prediction.bound.as_ref().map(|bound| Bounded {
                by: bound.by,
                part: bound.part.clone(),
                share: bound.share,
            }),
            work: prediction.work,
        }
    }
}

impl Counted {
    fn of(counts: &KernelCounts) -> Self {
        let per_request = |space| {
            let traffic = counts.sums.all_traffic(space);
            (traffic.requests > 0).then(|| traffic.per_request())
        };
        Self {
            launches: counts.launches,
            warp_instructions: counts.sums.total_warp_instructions(),
            active_threads: counts.sums.active_threads(),
            sectors_per_request: per_request(Space::Global),
            wavefronts_per_request: per_request(Space::Shared),
            divergent_branches: counts.sums.divergent_branches,
            sampled_share: counts.sampled_share,
            has_lines: !counts.lines.is_empty(),
            hotspots: counts.hotspots.iter().take(MOST_SPOTS).map(Spot::of).collect(),
        }
    }
}
