//! Functions and kernels before and after.

use apex_ordered::{Gather, Order};
use std::collections::BTreeMap;

use cuda_launch::{Dim3, LaunchConfig};
use serde::Serialize;

use super::{Change, Comparison, Side};
use apex_counts::Space;
use apex_profile::names::{Row, unique_short_names};
use apex_profile::{Figure, Kernel, KernelCounts, SaturatingSum as _, total};

/// The sides on which something occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Presence {
    /// On both sides.
    Both,
    /// Only after.
    Added,
    /// Only before.
    Removed,
}

/// One function, or one kernel, on both sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KernelChange {
    /// Its short name.
    pub name: String,
    /// Name as the driver gives it.
    pub symbol: String,
    /// The configuration; `None` for a function over all its configurations.
    pub configuration: Option<String>,
    /// The same as numbers.
    #[serde(skip)]
    pub launch: Option<LaunchConfig>,
    /// The sides on which it occurs.
    pub presence: Presence,
    /// Runs of it, of a step where both sides have steps; 0 where it does not occur.
    pub launches: Change,
    /// Mean GPU time, nanoseconds.
    pub duration_ns: Change,
    /// GPU time of all launches, nanoseconds, of a step where both sides have steps.
    pub total_ns: Change,
    /// Theoretical occupancy, mean over launches.
    pub occupancy: Change,
    /// The CPU device's counts; `None` if neither side has any.
    pub counts: Option<KernelCountChanges>,
}

/// The CPU device's counts of a function or kernel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KernelCountChanges {
    /// PTX instructions by warp, of a launch.
    pub warp_instructions: Change,
    /// Sectors of global memory, of all launches of a run.
    pub sectors: Change,
    /// Sectors of a request.
    pub sectors_per_request: Change,
    /// Wavefronts of shared memory, of all launches of a run.
    pub wavefronts: Change,
    /// Wavefronts of a request.
    pub wavefronts_per_request: Change,
    /// Threads that execute an instruction together, of 32.
    pub active_threads: Change,
}

/// The key by which kernels are matched: symbol and configuration.
type Key = (String, Option<String>);

/// The kernels of one run that share a key.
#[derive(Clone, Default)]
struct Group<'a> {
    kernels: Vec<&'a Kernel>,
    by: f64,
}

/// A sum over all launches of a kernel, by those that were counted; `None` if none was.
pub(super) fn of_all_launches(kernel: &Kernel, of: impl Fn(&KernelCounts) -> u64) -> Option<f64> {
    let counts = kernel.counts.as_ref().filter(|counts| counts.launches > 0)?;
    Some(of(counts) as f64 / counts.launches as f64 * kernel.launches.ran() as f64)
}

impl Group<'_> {
    fn launches(&self) -> u64 {
        self.kernels.iter().map(|kernel| kernel.launches.ran()).saturating_sum()
    }

    /// GPU time of all launch calls; `None` unless every kernel that was called is timed.
    fn total(&self) -> Option<Figure> {
        let called = || self.kernels.iter().filter(|kernel| kernel.launches.calls > 0);
        called()
            .all(|kernel| kernel.gpu.is_some())
            .then(|| Figure::sum(called().filter_map(|k| Some(k.gpu?.total_ns))))?
    }

    fn mean(&self) -> Option<Figure> {
        let calls = self.kernels.iter().map(|kernel| kernel.launches.calls).saturating_sum();
        self.total().map(|total| total.scaled(1.0 / calls.max(1) as f64))
    }

    fn occupancy(&self) -> Option<Figure> {
        let weighed =
            |kernel: &&Kernel| Some(kernel.geometry?.occupancy.fraction() * kernel.launches.ran() as f64);
        let sum = self.kernels.iter().map(weighed).sum::<Option<f64>>()?;
        (self.launches() > 0).then(|| Figure::computed(sum / self.launches() as f64))
    }

    /// A sum over what was counted, divided by another; `None` where nothing was, or that is 0.
    fn ratio(&self, of: impl Fn(&KernelCounts) -> f64, by: impl Fn(&KernelCounts) -> f64) -> Option<Figure> {
        let counts = || self.kernels.iter().filter_map(|kernel| kernel.counts.as_ref());
        let (first, divisor) = (counts().next()?, total(counts().map(by)));
        (divisor > 0.0).then(|| first.figure(total(counts().map(of)) / divisor))
    }

    /// Transactions of loads and stores of a space, of all launches.
    fn transactions(&self, space: Space) -> Option<Figure> {
        let of = |kernel: &&Kernel| {
            of_all_launches(kernel, |counts| counts.sums.loads_and_stores(space).transactions)
        };
        let known: Vec<f64> = self.kernels.iter().filter_map(of).collect();
        (!known.is_empty()).then(|| Figure::computed(total(known)))
    }

    /// The same of a request.
    fn transactions_per_request(&self, space: Space) -> Option<Figure> {
        self.ratio(
            |counts| counts.sums.loads_and_stores(space).transactions as f64,
            |counts| counts.sums.loads_and_stores(space).requests as f64,
        )
    }
}

/// Changes of what `configuration` tells apart, those with the largest change of GPU time first.
pub(super) fn changes(
    before: &Side<'_>,
    after: &Side<'_>,
    configuration: impl Fn(&Kernel) -> Option<String>,
) -> Vec<KernelChange> {
    let mut groups: BTreeMap<Key, [Vec<Group<'_>>; 2]> = BTreeMap::new();
    let empty =
        |side: &Side<'_>| side.by.iter().map(|&by| Group { by, ..Group::default() }).collect::<Vec<_>>();
    for (side, of) in [before, after].into_iter().enumerate() {
        for (place, run) in of.runs.iter().enumerate() {
            for kernel in run.profile.kernels.iter().filter(|kernel| kernel.launches.ran() > 0) {
                let key = (kernel.symbol.clone(), configuration(kernel));
                let groups = groups.entry(key).or_insert_with(|| [empty(before), empty(after)]);
                groups[side][place].kernels.push(kernel);
            }
        }
    }
    let mut changes: Vec<KernelChange> =
        groups.into_iter().map(|(key, groups)| change(key, &groups)).collect();
    let moved = |kernel: &KernelChange, change: &Change| kernel.moved(change).unwrap_or(0.0).abs();
    let counted = |kernel: &KernelChange| {
        let counts = kernel.counts.as_ref();
        counts.map_or(0.0, |counts| moved(kernel, &counts.sectors) + moved(kernel, &counts.wavefronts))
    };
    // Times of the CPU device say nothing; where it counted, counts are compared.
    let time = |kernel: &KernelChange| match kernel.counts {
        None => moved(kernel, &kernel.total_ns),
        Some(_) => 0.0,
    };
    changes.order_by(|a, b| {
        time(b)
            .total_cmp(&time(a))
            .then(counted(b).total_cmp(&counted(a)))
            .then(moved(b, &b.launches).total_cmp(&moved(a, &a.launches)))
    });
    changes
}

impl KernelChange {
    /// Returns the increase of one of its sums; `None` if it is unknown on a side on which the
    /// kernel ran. If it did not run, the sum is 0.
    pub fn moved(&self, change: &Change) -> Option<f64> {
        let value = |figure: Option<Figure>, absent: Presence| match figure {
            Some(figure) => Some(figure.value),
            None => (self.presence == absent).then_some(0.0),
        };
        Some(value(change.after, Presence::Removed)? - value(change.before, Presence::Added)?)
    }
}

/// The kernel of the first run that has it.
fn first<'a>(groups: &[Group<'a>]) -> Option<&'a Kernel> {
    groups.iter().find_map(|group| group.kernels.first().copied())
}

fn change((symbol, configuration): Key, [before, after]: &[Vec<Group<'_>>; 2]) -> KernelChange {
    let presence = match (first(before), first(after)) {
        (None, _) => Presence::Added,
        (_, None) => Presence::Removed,
        _ => Presence::Both,
    };
    let any = first(before).or(first(after));
    // Absent from a run is unknown there, not zero.
    let of = |figure: &dyn Fn(&Group<'_>) -> Option<Figure>| {
        let one = |group: &Group<'_>| if group.kernels.is_empty() { None } else { figure(group) };
        let all = |groups: &[Group<'_>]| groups.iter().map(one).collect::<Vec<_>>();
        Change::of(&all(before), &all(after))
    };
    let launches = |groups: &[Group<'_>]| -> Vec<f64> {
        groups.iter().map(|group| group.launches() as f64 / group.by).collect()
    };
    let counts =
        before.iter().chain(after).flat_map(|group| &group.kernels).any(|kernel| kernel.counts.is_some());
    KernelChange {
        name: any.map(|kernel| kernel.short_name.clone()).unwrap_or_default(),
        symbol,
        launch: configuration.as_ref().and(any).map(|kernel| kernel.launch),
        configuration,
        presence,
        launches: Change::counted(&launches(before), &launches(after)),
        duration_ns: of(&|group| group.mean()),
        total_ns: of(&|group| Some(group.total()?.scaled(1.0 / group.by))),
        occupancy: of(&|group| group.occupancy()),
        counts: counts.then(|| KernelCountChanges {
            warp_instructions: of(&|group| {
                group.ratio(
                    |counts| counts.sums.total_warp_instructions() as f64,
                    |counts| counts.launches as f64,
                )
            }),
            sectors: of(&|group| group.transactions(Space::Global)),
            sectors_per_request: of(&|group| group.transactions_per_request(Space::Global)),
            wavefronts: of(&|group| group.transactions(Space::Shared)),
            wavefronts_per_request: of(&|group| group.transactions_per_request(Space::Shared)),
            active_threads: of(&|group| {
                let warps = |counts: &KernelCounts| counts.sums.total_warp_instructions() as f64;
                group.ratio(|counts| counts.sums.active_threads() * warps(counts), warps)
            }),
        }),
    }
}

/// The configuration of a kernel, as a key and in words.
pub(super) fn configuration(kernel: &Kernel) -> String {
    let launch = kernel.launch;
    let clusters = launch.cluster != Dim3::ZERO;
    let clusters = if clusters { format!(" in clusters {}", launch.cluster) } else { String::new() };
    format!("{launch}{clusters}")
}

/// Gives functions different names: those of each profile are, but two functions of which each
/// profile has one may share theirs.
pub(super) fn name_apart(compared: &mut Comparison) {
    let row = |change: &'_ KernelChange| (change.symbol.clone(), change.name.clone());
    let functions: Vec<(String, String)> = compared.functions.iter().map(row).collect();
    let rows: Vec<Row<'_>> =
        functions.iter().map(|(name, short_name)| Row { name, short_name, launch: "" }).collect();
    let names: BTreeMap<&str, String> =
        rows.iter().map(|row| row.name).zip(unique_short_names(&rows)).gathered();
    for change in compared.functions.iter_mut().chain(&mut compared.kernels) {
        if let Some(name) = names.get(change.symbol.as_str()) {
            change.name.clone_from(name);
        }
    }
}
