//! The CPU device's counts and defects, assigned to the recorded kernels.

use apex_ordered::Order;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use apex_counts::{Counted, Counts, Fault, Hotspot, Line, Place};
use apex_trace::counts::LaunchCounts;
use cuda_launch::{Dim3, LaunchConfig};
use serde::Serialize;

use super::lines::Lines;
use super::{Kernel, Profile};
use crate::figure::{Figure, total};

/// Counts of launches that the CPU device executed, added up: no measurement of time. Exact, unless
/// a share says that only part of the launches was counted and the counts are scaled to the whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct KernelCounts {
    /// Launches that were counted.
    pub launches: u64,
    /// The share of these launches' instructions that was counted; `None` if all were.
    pub sampled_share: Option<f64>,
    /// The counts.
    #[serde(flatten)]
    pub sums: Counts,
    /// The worst places, by fault and then by excess.
    pub hotspots: Vec<Hotspot>,
    /// The counts of each line, by file and line; empty if an earlier version counted.
    pub lines: Vec<Line>,
    /// Lines that are not listed, of the launch that has most of them.
    pub lines_left_out: u64,
}

impl KernelCounts {
    /// A figure that rests on these counts.
    pub fn figure(&self, value: f64) -> Figure {
        match self.sampled_share {
            None => Figure::computed(value),
            Some(share) => {
                let samples = self.sums.total_warp_instructions() as f64 * share;
                Figure::sampled(value, samples as u64, None)
            }
        }
    }

    /// The worst place of a fault.
    pub fn worst(&self, fault: Fault) -> Option<&Hotspot> {
        self.hotspots.iter().find(|hotspot| hotspot.fault == fault)
    }
}

impl Profile {
    /// Each kernel's share of the work that the CPU device counted, indexed like
    /// [`Profile::kernels`]: of the instructions that warps executed or of the sectors of global
    /// memory, whichever share is larger. Launches that were not counted are taken to be like
    /// those that were. Kernels without counts have a share of zero.
    pub fn counted_shares(&self) -> Vec<f64> {
        let [instructions, sectors] = self.counted_shares_by_kind();
        instructions.into_iter().zip(sectors).map(|(a, b)| a.max(b)).collect()
    }

    /// Returns the part of these kernels in all that the CPU device counted, and the name of that
    /// count: the larger one of their share of the instructions and their share of the sectors.
    /// `None` if nothing of them was counted.
    pub fn counted_part(&self, kernels: impl IntoIterator<Item = usize>) -> Option<(f64, &'static str)> {
        let kinds = self.counted_shares_by_kind();
        let mut sums = [0.0; 2];
        for kernel in kernels {
            sums.iter_mut().zip(&kinds).for_each(|(sum, shares)| *sum += shares.get(kernel).unwrap_or(&0.0));
        }
        let [instructions, sectors] = sums.map(|sum| sum.min(1.0));
        let (share, what) = match sectors > instructions {
            true => (sectors, "global memory sectors"),
            false => (instructions, "executed instructions"),
        };
        (share > 0.0).then_some((share, what))
    }

    /// Shares of the instructions that warps executed, and of the sectors of global memory.
    fn counted_shares_by_kind(&self) -> [Vec<f64>; 2] {
        [Counts::total_warp_instructions, Counts::global_sectors].map(|count| shares(&self.kernels, count))
    }
}

/// Each kernel's share of a count, over all launches that ran.
fn shares(kernels: &[Kernel], count: impl Fn(&Counts) -> u64) -> Vec<f64> {
    let of = |kernel: &Kernel| {
        let Some(counts) = &kernel.counts else { return 0.0 };
        count(&counts.sums) as f64 / counts.launches.max(1) as f64 * kernel.launches.ran() as f64
    };
    let counts: Vec<f64> = kernels.iter().map(of).collect();
    let sum = total(counts.iter().copied());
    counts.into_iter().map(|count| if sum > 0.0 { count / sum } else { 0.0 }).collect()
}

/// The CPU device's counts of a kernel in one configuration, summed over launches.
#[derive(Default)]
struct Sum {
    launches: u64,
    counts: Counts,
    watched: u64,
    executed: u64,
    hotspots: BTreeMap<(Fault, Place), Hotspot>,
    lines: Lines,
}

/// Counts by kernel: symbol, grid, block, dynamic shared memory.
#[derive(Default)]
pub(super) struct CountedKernels(BTreeMap<(String, Dim3, Dim3, u32), Sum>);

impl CountedKernels {
    /// Counts do not tell clusters.
    fn key(symbol: &str, launch: LaunchConfig) -> (String, Dim3, Dim3, u32) {
        (symbol.to_owned(), launch.grid, launch.block, launch.dynamic_shared_bytes)
    }

    /// Adds the counts of a launch.
    pub fn add(&mut self, launch: &LaunchCounts) {
        let sum = self.0.entry(Self::key(&launch.kernel, launch.launch)).or_default();
        let Counted { counts, hotspots, lines, lines_left_out, watched, executed } = &launch.counted;
        sum.add(1, counts, *watched, *executed);
        sum.lines.add(lines, *lines_left_out);
        hotspots.iter().for_each(|spot| sum.add_hotspot(spot.clone()));
    }

    /// Adds the counts of other processes.
    pub fn merge(&mut self, others: Self) {
        for (key, other) in others.0 {
            let sum = self.0.entry(key).or_default();
            sum.add(other.launches, &other.counts, other.watched, other.executed);
            sum.lines.merge(other.lines);
            other.hotspots.into_values().for_each(|spot| sum.add_hotspot(spot));
        }
    }

    /// The counts of a kernel; `None` where none of its launches was counted.
    pub fn of(&self, kernel: &Kernel) -> Option<KernelCounts> {
        let key = Self::key(&kernel.symbol, kernel.launch);
        self.0.get(&key).map(Sum::summary)
    }
}

impl Sum {
    fn add(&mut self, launches: u64, counts: &Counts, watched: u64, executed: u64) {
        self.launches += launches;
        self.counts += counts;
        self.watched = self.watched.saturating_add(watched);
        self.executed = self.executed.saturating_add(executed);
    }

    fn add_hotspot(&mut self, spot: Hotspot) {
        match self.hotspots.entry((spot.fault, spot.place.clone())) {
            Entry::Vacant(entry) => {
                entry.insert(spot);
            }
            Entry::Occupied(mut entry) => {
                let known = entry.get_mut();
                known.events = known.events.saturating_add(spot.events);
                known.total = known.total.saturating_add(spot.total);
                known.excess = known.excess.saturating_add(spot.excess);
            }
        }
    }

    fn summary(&self) -> KernelCounts {
        let Self { watched, executed, .. } = *self;
        let mut hotspots: Vec<Hotspot> = self.hotspots.values().cloned().collect();
        hotspots.order_by_key(|spot| (spot.fault, Reverse(spot.excess)));
        KernelCounts {
            launches: self.launches,
            sampled_share: (watched < executed).then(|| watched as f64 / executed as f64),
            sums: self.counts.clone(),
            hotspots,
            lines: self.lines.list(),
            lines_left_out: self.lines.left_out(),
        }
    }
}
