//! The CPU device's counts and defects, assigned to the recorded kernels.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use apex_trace::counts::{self, Counts, Direction, InstructionClass, LaunchCounts, Space};
use cuda_launch::{Dim3, LaunchConfig};
use serde::Serialize;

use super::lines::{Line, Lines};
use super::{Kernel, Profile};
use crate::figure::{Figure, total};
use crate::saturating::SaturatingSum as _;

/// Counts of launches that the CPU device executed, added up: no measurement of time. Exact, unless
/// a share says that only part of the launches was counted and the counts are scaled to the whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct KernelCounts {
    /// Launches that were counted.
    pub launches: u64,
    /// Of the instructions of these launches the share that was counted; none if all were.
    pub sampled_share: Option<f64>,
    /// PTX instructions by class, each counted once for the threads of a warp that execute it
    /// together.
    pub warp_instructions: BTreeMap<String, u64>,
    /// The same, counted for each thread.
    pub thread_instructions: BTreeMap<String, u64>,
    /// Of these, those whose guard predicate did not hold them back.
    pub not_predicated_off: u64,
    /// Threads that execute an instruction together, on average; 32 without divergence.
    pub active_threads: f64,
    /// Floating-point operations by width (`f16`, `f32`, `f64`, `tensor`); a fused multiply-add
    /// counts two.
    pub operations: BTreeMap<String, u64>,
    /// Memory traffic; kinds without any are left out.
    pub traffic: Vec<Traffic>,
    /// Branch instructions, by warp.
    pub branches: u64,
    /// Branches that threads of a warp took differently.
    pub divergent_branches: u64,
    /// The worst places, by fault and then by excess.
    pub hotspots: Vec<Hotspot>,
    /// What each line did, by file and line; empty where an earlier version counted.
    pub lines: Vec<Line>,
    /// Lines that are not listed, of the launch that has most of them.
    pub lines_left_out: u64,
}

/// Traffic of one kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Traffic {
    /// `global`, `shared` or `local`.
    pub space: String,
    /// `load`, `store` or `atomic`.
    pub direction: String,
    /// Memory instructions of warps.
    pub requests: u64,
    /// The same, counted for each thread.
    pub threads: u64,
    /// Bytes that the threads asked for.
    pub bytes: u64,
    /// Sectors of 32 bytes (global), wavefronts (shared); 0 for local memory, where they are not
    /// counted.
    pub transactions: u64,
    /// Transactions beyond what the same bytes would take side by side.
    pub excess: u64,
    /// Transactions of a request.
    pub per_request: f64,
}

/// One of the worst places.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Hotspot {
    /// `uncoalesced`, `bank_conflict` or `divergence`.
    pub fault: String,
    /// Where.
    pub place: Place,
    /// Requests, or branches.
    pub events: u64,
    /// Transactions, or branches.
    pub total: u64,
    /// How many of them are excess, or divergent.
    pub excess: u64,
}

/// Where in a program something is.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Place {
    /// The PTX instruction.
    pub instruction: String,
    /// Its line in the PTX, from 1; 0 if there is none.
    pub ptx_line: u32,
    /// Source file; empty where the PTX does not say.
    pub file: String,
    /// Line in it.
    pub line: u32,
}

impl Place {
    /// The source line where it is known, else the line of the PTX.
    pub fn shown(&self) -> String {
        match self.file.is_empty() {
            true => format!("PTX line {} ({})", self.ptx_line, self.instruction),
            false => format!("{}:{}", self.file, self.line),
        }
    }
}

impl From<&counts::Place> for Place {
    fn from(place: &counts::Place) -> Self {
        let counts::Place { instruction, ptx_line, file, line } = place.clone();
        Place { instruction, ptx_line, file, line }
    }
}

/// A defect that the CPU device found: once for all places that one mistake shows at.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Defect {
    /// `uninitialized-read`, `shared-race`, `shared-out-of-bounds`, `constant-write`,
    /// `divergent-barrier`, or the name of a CUDA error that ended a kernel.
    pub kind: String,
    /// The kernel, as the driver names it.
    pub kernel: String,
    /// What happened the first time.
    pub text: String,
    /// Where: the first of the places.
    pub place: Place,
    /// For races: where the other access is. For uninitialised values: where it was loaded.
    pub other: Option<Place>,
    /// How often it happened.
    pub count: u64,
    /// At how many places, or pairs of places; 0 where an earlier version did not say.
    pub places: u64,
}

impl KernelCounts {
    /// A figure that rests on these counts.
    pub fn figure(&self, value: f64) -> Figure {
        match self.sampled_share {
            None => Figure::computed(value),
            Some(share) => {
                let samples = self.total_warp_instructions() as f64 * share;
                Figure::sampled(value, samples as u64, None)
            }
        }
    }

    /// Traffic of a kind, if there was any.
    pub fn traffic(&self, space: &str, direction: &str) -> Option<&Traffic> {
        self.traffic.iter().find(|traffic| traffic.space == space && traffic.direction == direction)
    }

    /// PTX instructions of warps, of all classes.
    pub fn total_warp_instructions(&self) -> u64 {
        self.warp_instructions.values().copied().saturating_sum()
    }

    /// PTX instructions of threads, of all classes.
    pub fn total_thread_instructions(&self) -> u64 {
        self.thread_instructions.values().copied().saturating_sum()
    }

    /// Floating-point operations of all widths.
    pub fn total_operations(&self) -> u64 {
        self.operations.values().copied().saturating_sum()
    }

    /// One value of the traffic of a space, over these directions.
    pub fn total_traffic(&self, space: &str, directions: &[&str], of: impl Fn(&Traffic) -> u64) -> u64 {
        let kinds = directions.iter().filter_map(|direction| self.traffic(space, direction));
        kinds.map(of).saturating_sum()
    }

    /// Sectors of global memory that loads, stores and atomics moved.
    pub fn total_global_sectors(&self) -> u64 {
        self.total_traffic("global", &["load", "store", "atomic"], |traffic| traffic.transactions)
    }

    /// The worst place of a fault.
    pub fn worst(&self, fault: &str) -> Option<&Hotspot> {
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

    /// What these kernels do together of what the CPU device counted: the larger one of their share
    /// of the instructions and their share of the sectors, and which of them it is. `None` if
    /// nothing of them was counted.
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
        [KernelCounts::total_warp_instructions, KernelCounts::total_global_sectors]
            .map(|count| shares(&self.kernels, count))
    }
}

/// Each kernel's share of a count, over all launches that ran.
fn shares(kernels: &[Kernel], count: impl Fn(&KernelCounts) -> u64) -> Vec<f64> {
    let of = |kernel: &Kernel| {
        let Some(counts) = &kernel.counts else { return 0.0 };
        count(counts) as f64 / counts.launches.max(1) as f64 * kernel.launches.ran() as f64
    };
    let counts: Vec<f64> = kernels.iter().map(of).collect();
    let sum = total(counts.iter().copied());
    counts.into_iter().map(|count| if sum > 0.0 { count / sum } else { 0.0 }).collect()
}

/// What the CPU device counted of a kernel in one configuration, added up over launches.
#[derive(Default)]
struct Counted {
    launches: u64,
    counts: Counts,
    watched: u64,
    executed: u64,
    hotspots: BTreeMap<(counts::Fault, Place), Hotspot>,
    lines: Lines,
}

/// Counts by kernel: symbol, grid, block, dynamic shared memory.
#[derive(Default)]
pub(super) struct CountedKernels(BTreeMap<(String, Dim3, Dim3, u32), Counted>);

impl CountedKernels {
    /// Counts do not tell clusters.
    fn key(symbol: &str, launch: LaunchConfig) -> (String, Dim3, Dim3, u32) {
        (symbol.to_owned(), launch.grid, launch.block, launch.dynamic_shared_bytes)
    }

    /// Adds the counts of a launch.
    pub fn add(&mut self, launch: &LaunchCounts) {
        let key = Self::key(&launch.kernel, launch.launch);
        let counted = self.0.entry(key).or_default();
        counted.launches += 1;
        counted.counts += &launch.counts;
        counted.watched = counted.watched.saturating_add(launch.watched);
        counted.executed = counted.executed.saturating_add(launch.executed);
        counted.lines.add(&launch.lines, launch.lines_left_out);
        for spot in &launch.hotspots {
            let (place, fault) = (Place::from(&spot.place), fault_name(spot.fault).to_owned());
            let counts::Hotspot { events, total, excess, .. } = *spot;
            counted.add_hotspot(spot.fault, Hotspot { fault, place, events, total, excess });
        }
    }

    /// Adds the counts of other processes.
    pub fn merge(&mut self, others: Self) {
        for (key, other) in others.0 {
            let counted = self.0.entry(key).or_default();
            counted.launches += other.launches;
            counted.counts += &other.counts;
            counted.watched = counted.watched.saturating_add(other.watched);
            counted.executed = counted.executed.saturating_add(other.executed);
            counted.lines.merge(other.lines);
            other.hotspots.into_iter().for_each(|((fault, _), spot)| counted.add_hotspot(fault, spot));
        }
    }

    /// The counts of a kernel; `None` where none of its launches was counted.
    pub fn of(&self, kernel: &Kernel) -> Option<KernelCounts> {
        let key = Self::key(&kernel.symbol, kernel.launch);
        self.0.get(&key).map(Counted::summary)
    }
}

impl Counted {
    fn add_hotspot(&mut self, fault: counts::Fault, spot: Hotspot) {
        match self.hotspots.entry((fault, spot.place.clone())) {
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
        let Self { counts, watched, executed, .. } = self;
        let mut hotspots: Vec<_> = self.hotspots.iter().collect();
        hotspots.sort_by_key(|((fault, _), spot)| (*fault, std::cmp::Reverse(spot.excess)));
        let by_class = |values: &[u64]| {
            let pairs = InstructionClass::ALL.iter().zip(values);
            pairs.map(|(class, &count)| (class.name().to_owned(), count)).collect()
        };
        KernelCounts {
            launches: self.launches,
            sampled_share: (watched < executed).then(|| *watched as f64 / *executed as f64),
            warp_instructions: by_class(&counts.warp_instructions),
            thread_instructions: by_class(&counts.thread_instructions),
            not_predicated_off: counts.not_predicated_off,
            active_threads: counts.active_threads(),
            operations: ["f16", "f32", "f64", "tensor"]
                .into_iter()
                .zip(counts.operations)
                .map(|(name, count)| (name.to_owned(), count))
                .collect(),
            traffic: traffic(counts),
            branches: counts.branches,
            divergent_branches: counts.divergent_branches,
            hotspots: hotspots.into_iter().map(|(_, spot)| spot.clone()).collect(),
            lines: self.lines.list(),
            lines_left_out: self.lines.left_out(),
        }
    }
}

pub(super) fn fault_name(fault: counts::Fault) -> &'static str {
    match fault {
        counts::Fault::Uncoalesced => "uncoalesced",
        counts::Fault::BankConflict => "bank_conflict",
        counts::Fault::Divergence => "divergence",
    }
}

fn traffic(counts: &Counts) -> Vec<Traffic> {
    let mut kinds = Vec::new();
    for (space, space_name) in [(Space::Global, "global"), (Space::Shared, "shared"), (Space::Local, "local")]
    {
        for (direction, name) in
            [(Direction::Load, "load"), (Direction::Store, "store"), (Direction::Atomic, "atomic")]
        {
            let found = counts.traffic(space, direction);
            if found.requests > 0 {
                kinds.push(Traffic {
                    space: space_name.to_owned(),
                    direction: name.to_owned(),
                    requests: found.requests,
                    threads: found.threads,
                    bytes: found.bytes,
                    transactions: found.transactions,
                    excess: found.excess,
                    per_request: found.per_request(),
                });
            }
        }
    }
    kinds
}

impl From<&counts::Defect> for Defect {
    fn from(defect: &counts::Defect) -> Self {
        Self {
            kind: defect.kind.clone(),
            kernel: defect.kernel.clone(),
            text: defect.text.clone(),
            place: Place::from(&defect.place),
            other: defect.other.as_ref().map(Place::from),
            count: defect.count,
            places: defect.places,
        }
    }
}
