//! Two profiles side by side: what a change did.
//!
//! Functions are matched by symbol, kernels by symbol and configuration. A difference of durations
//! is called significant when it exceeds three standard errors of itself (about 1 in 370 by chance,
//! were samples independent) and 1% of the value, with at least five samples on each side.

use cuda_launch::Dim3;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use apex_profile::names::{Row, unique_short_names};
use apex_profile::{Figure, Kernel, Profile, SaturatingSum as _, Totals};

/// Standard errors that a difference must exceed.
const ERRORS: f64 = 3.0;
/// Share of the value that a difference must exceed.
const LEAST: f64 = 0.01;
/// Samples on each side below which nothing is significant.
const SAMPLES: u64 = 5;

/// Where something occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Presence {
    /// In both profiles.
    Both,
    /// Only in the second.
    Added,
    /// Only in the first.
    Removed,
}

/// A figure before and after.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// In the first profile.
    pub before: Option<Figure>,
    /// In the second.
    pub after: Option<Figure>,
    /// After over before; `None` where one is unknown or before is 0.
    pub ratio: Option<f64>,
    /// Whether the difference is more than chance; `None` where that cannot be told.
    pub significant: Option<bool>,
}

impl Change {
    fn new(before: Option<Figure>, after: Option<Figure>) -> Self {
        let ratio = match (before, after) {
            (Some(before), Some(after)) if before.value != 0.0 => Some(after.value / before.value),
            _ => None,
        };
        Self { before, after, ratio, significant: significant(before, after) }
    }
}

fn significant(before: Option<Figure>, after: Option<Figure>) -> Option<bool> {
    let (before, after) = (before?, after?);
    let error = before.standard_error?.hypot(after.standard_error?);
    if before.samples.min(after.samples) < SAMPLES {
        return None;
    }
    let difference = (after.value - before.value).abs();
    Some(difference > ERRORS * error && difference > LEAST * before.value.abs())
}

/// One function, or one kernel, in both profiles.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelChange {
    /// Its short name.
    pub name: String,
    /// Name as the driver gives it.
    pub symbol: String,
    /// The configuration; `None` for a function over all its configurations.
    pub configuration: Option<String>,
    /// Where it occurs.
    pub presence: Presence,
    /// Runs before and after.
    pub launches: (u64, u64),
    /// Mean GPU time, nanoseconds.
    pub duration_ns: Change,
    /// GPU time of all launches, nanoseconds.
    pub total_ns: Change,
    /// Theoretical occupancy, mean over launches.
    pub occupancy: Change,
}

/// Two profiles side by side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Kernels that ran.
    pub launches: (u64, u64),
    /// From first to last launch, nanoseconds, summed over devices.
    pub span_ns: Change,
    /// GPU time of kernels, nanoseconds.
    pub gpu_time_ns: Change,
    /// GPU busy share.
    pub gpu_busy: Change,
    /// CPU time in launch calls, nanoseconds.
    pub launch_cpu_ns: Change,
    /// Functions over all their configurations, by the change of their GPU time, then of their
    /// launches.
    pub functions: Vec<KernelChange>,
    /// Kernels, in the same order.
    pub kernels: Vec<KernelChange>,
}

/// Sets `after` beside `before`.
pub fn compare(before: &Profile, after: &Profile) -> Comparison {
    let totals = |of: fn(&Totals) -> Option<Figure>| Change::new(of(&before.totals), of(&after.totals));
    let mut compared = Comparison {
        launches: (before.totals.kernels_run(), after.totals.kernels_run()),
        span_ns: totals(|totals| Some(Figure::measured(totals.span_ns))),
        gpu_time_ns: totals(|totals| totals.gpu_time_ns),
        gpu_busy: totals(|totals| totals.gpu_busy),
        launch_cpu_ns: totals(|totals| Some(Figure::measured(totals.launch_cpu_ns))),
        functions: changes(before, after, |_| None),
        kernels: changes(before, after, |kernel| {
            let launch = kernel.launch;
            let clusters = launch.cluster != Dim3::ZERO;
            let clusters = if clusters { format!(" in clusters {}", launch.cluster) } else { String::new() };
            Some(format!("{launch}{clusters}"))
        }),
    };
    name_apart(&mut compared);
    compared
}

/// Gives functions different names: those of each profile are, but two functions of which each
/// profile has one may share theirs.
fn name_apart(compared: &mut Comparison) {
    let row = |change: &'_ KernelChange| (change.symbol.clone(), change.name.clone());
    let functions: Vec<(String, String)> = compared.functions.iter().map(row).collect();
    let rows: Vec<Row<'_>> =
        functions.iter().map(|(name, short_name)| Row { name, short_name, launch: "" }).collect();
    let names: BTreeMap<&str, String> =
        rows.iter().map(|row| row.name).zip(unique_short_names(&rows)).collect();
    for change in compared.functions.iter_mut().chain(&mut compared.kernels) {
        if let Some(name) = names.get(change.symbol.as_str()) {
            change.name.clone_from(name);
        }
    }
}

/// What is matched: symbol and configuration.
type Key = (String, Option<String>);

/// The kernels of one profile that share a key.
#[derive(Clone, Default)]
struct Side<'a> {
    kernels: Vec<&'a Kernel>,
}

impl Side<'_> {
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
}

/// Changes of what `configuration` tells apart, those with the largest change of GPU time first.
fn changes(
    before: &Profile,
    after: &Profile,
    configuration: impl Fn(&Kernel) -> Option<String>,
) -> Vec<KernelChange> {
    let mut sides: BTreeMap<Key, [Side<'_>; 2]> = BTreeMap::new();
    for (side, profile) in [before, after].into_iter().enumerate() {
        for kernel in profile.kernels.iter().filter(|kernel| kernel.launches.ran() > 0) {
            let key = (kernel.symbol.clone(), configuration(kernel));
            sides.entry(key).or_default()[side].kernels.push(kernel);
        }
    }
    let mut changes: Vec<KernelChange> = sides.into_iter().map(|(key, sides)| change(key, &sides)).collect();
    let value = |figure: Option<Figure>| figure.map_or(0.0, |figure| figure.value);
    let moved = |change: &KernelChange| (value(change.total_ns.after) - value(change.total_ns.before)).abs();
    let launches = |change: &KernelChange| (change.launches.0.abs_diff(change.launches.1), change.launches.0);
    changes.sort_by(|a, b| moved(b).total_cmp(&moved(a)).then(launches(b).cmp(&launches(a))));
    changes
}

fn change((symbol, configuration): Key, [before, after]: &[Side<'_>; 2]) -> KernelChange {
    let presence = match (before.kernels.is_empty(), after.kernels.is_empty()) {
        (true, _) => Presence::Added,
        (_, true) => Presence::Removed,
        _ => Presence::Both,
    };
    let any = before.kernels.first().or(after.kernels.first());
    // Absent on one side is unknown there, not zero.
    let of = |figure: &dyn Fn(&Side<'_>) -> Option<Figure>| {
        let side = |side: &Side<'_>| if side.kernels.is_empty() { None } else { figure(side) };
        Change::new(side(before), side(after))
    };
    KernelChange {
        name: any.map(|kernel| kernel.short_name.clone()).unwrap_or_default(),
        symbol,
        configuration,
        presence,
        launches: (before.launches(), after.launches()),
        duration_ns: of(&|side| side.mean()),
        total_ns: of(&|side| side.total()),
        occupancy: of(&|side| side.occupancy()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::rules::fixture::{kernel_of, profile_of, timed};

    fn named(symbol: &str, kernel: Kernel) -> Kernel {
        Kernel { symbol: symbol.to_owned(), short_name: symbol.to_owned(), ..kernel }
    }

    #[test]
    fn finds_what_came_and_went() {
        let before = profile_of([named("stays", kernel_of(100, 128)), named("goes", kernel_of(100, 128))]);
        let after = profile_of([named("stays", kernel_of(100, 128)), named("comes", kernel_of(100, 128))]);
        let compared = compare(&before, &after);
        let presence: BTreeMap<&str, Presence> =
            compared.kernels.iter().map(|change| (change.name.as_str(), change.presence)).collect();
        let expected = [("comes", Presence::Added), ("goes", Presence::Removed), ("stays", Presence::Both)];
        assert_eq!(presence, BTreeMap::from(expected));
    }

    #[test]
    fn functions_of_either_profile_are_told_apart() {
        let called =
            |symbol: &str| Kernel { short_name: "gemm".to_owned(), ..named(symbol, kernel_of(100, 128)) };
        let compared = compare(&profile_of([called("gemm_nn")]), &profile_of([called("gemm_tn")]));
        let names: BTreeSet<&str> = compared.functions.iter().map(|change| change.name.as_str()).collect();
        assert_eq!(names, BTreeSet::from(["gemm [gemm_nn]", "gemm [gemm_tn]"]));
    }

    #[test]
    fn a_new_configuration_is_still_the_same_function() {
        let before = profile_of([timed(kernel_of(1000, 100), 10_000.0)]);
        let after = profile_of([timed(kernel_of(782, 128), 8_000.0)]);
        let compared = compare(&before, &after);
        assert_eq!((compared.functions.len(), compared.kernels.len()), (1, 2));
        let function = &compared.functions[0];
        assert_eq!((function.presence, function.duration_ns.significant), (Presence::Both, Some(true)));
        assert!((function.duration_ns.ratio.expect("both known") - 0.8).abs() < 1e-9);
        assert!(compared.kernels.iter().all(|change| change.duration_ns.ratio.is_none()));
    }

    #[test]
    fn noise_is_not_significant() {
        // Standard errors are 2% / sqrt(50) on each side: three of their difference are 1.2%.
        let with = |mean| profile_of([timed(kernel_of(1000, 128), mean)]);
        let significant = |mean| compare(&with(10_000.0), &with(mean)).functions[0].duration_ns.significant;
        assert_eq!((significant(10_100.0), significant(10_200.0)), (Some(false), Some(true)));
    }

    #[test]
    fn too_few_samples_tell_nothing() {
        let mut kernel = timed(kernel_of(1000, 128), 10_000.0);
        if let Some(gpu) = &mut kernel.gpu {
            gpu.total_ns.samples = SAMPLES - 1;
        }
        let compared = compare(&profile_of([kernel]), &profile_of([timed(kernel_of(1000, 128), 20_000.0)]));
        assert_eq!(compared.functions[0].duration_ns.significant, None);
    }

    #[test]
    fn untimed_is_unknown() {
        let compared = compare(&profile_of([kernel_of(1000, 128)]), &profile_of([kernel_of(1000, 128)]));
        assert_eq!(compared.functions[0].duration_ns, Change::new(None, None));
        assert_eq!(compared.functions[0].occupancy.ratio, Some(1.0));
    }
}
