//! The figures of a run that can have a limit.

use std::collections::BTreeMap;

use apex_counts::{Counts, Space};
use apex_profile::{Account, IdleCause, Kernel, Profile, total};
use serde::{Serialize, Serializer};

use crate::Quantity;

/// The unit of sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Per {
    /// A step of one device, on average.
    Step,
    /// The run.
    Run,
}

impl Per {
    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Run => "run",
        }
    }
}

/// Values by quantity.
pub type Values = BTreeMap<Quantity, f64>;

/// The figures of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measures {
    /// The unit of sums.
    pub per: Per,
    /// Whether it ran on the CPU device.
    #[serde(rename = "device", serialize_with = "device_name")]
    pub on_cpu_device: bool,
    /// Of the whole.
    #[serde(rename = "figures")]
    pub whole: Values,
    /// Of each kernel function, by its short name.
    #[serde(serialize_with = "list_of_kernels")]
    pub kernels: BTreeMap<String, Values>,
}

fn device_name<S: Serializer>(on_cpu_device: &bool, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(if *on_cpu_device { "cpu" } else { "gpu" })
}

/// A list, since readers know the members of a document beforehand, and no names of kernels.
fn list_of_kernels<S: Serializer>(kernels: &BTreeMap<String, Values>, to: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Entry<'k> {
        kernel: &'k str,
        figures: &'k Values,
    }
    to.collect_seq(kernels.iter().map(|(kernel, figures)| Entry { kernel, figures }))
}

impl Measures {
    /// The figures of a run, or of its steady state; with `per`, sums are of this unit where the
    /// run has it. Only a run that was `checked` (`apex run --check`) says how many defects there
    /// are.
    pub fn of(profile: &Profile, checked: bool, per: Option<Per>) -> Self {
        let on_cpu_device = profile.on_cpu_device();
        let steps = profile.steps().filter(|_| !on_cpu_device && per != Some(Per::Run));
        let by = steps.unwrap_or(1.0);
        let mut functions: BTreeMap<String, Vec<&Kernel>> = BTreeMap::new();
        let launched = profile.kernels.iter().filter(|kernel| kernel.launches.ran() > 0);
        launched.for_each(|kernel| functions.entry(kernel.short_name.clone()).or_default().push(kernel));
        let of_function = |kernels: &[&Kernel]| function(kernels, by, on_cpu_device);
        Self {
            per: if steps.is_some() { Per::Step } else { Per::Run },
            on_cpu_device,
            whole: whole(profile, by, on_cpu_device, checked),
            kernels: functions.iter().map(|(name, kernels)| (name.clone(), of_function(kernels))).collect(),
        }
    }
}

/// Keeps what is known.
fn known<const N: usize>(values: [(Quantity, Option<f64>); N]) -> Values {
    values.into_iter().filter_map(|(quantity, value)| Some((quantity, value?))).collect()
}

fn whole(profile: &Profile, by: f64, on_cpu_device: bool, checked: bool) -> Values {
    let copies = profile.copies.iter();
    let mut values = known([
        (Quantity::Launches, Some(profile.totals.kernels_run() as f64 / by)),
        (Quantity::Copies, Some(total(copies.clone().map(|copies| copies.count as f64)) / by)),
        (Quantity::CopiedBytes, Some(total(copies.map(|copies| copies.bytes as f64)) / by)),
        (Quantity::PeakBytes, Some(total(profile.memory.iter().map(|memory| memory.peak_bytes as f64)))),
    ]);
    if on_cpu_device {
        values.extend(counted(profile.kernels.iter(), by));
        values.extend(known([(Quantity::Defects, checked.then_some(profile.defects.len() as f64))]));
    } else {
        values.extend(times(profile));
    }
    values
}

/// Times and shares of time.
fn times(profile: &Profile) -> Values {
    let accounts = profile.accounts();
    let share = |account| 100.0 * accounts.time(account).value / accounts.span_ns.max(1.0);
    let calls = IdleCause::ALL
        .into_iter()
        .filter(|cause| !matches!(cause, IdleCause::HostCode | IdleCause::Unrecorded));
    let busy = profile.totals.gpu_busy;
    known([
        (Quantity::StepMs, profile.step_ns().map(|step| step.value / 1e6)),
        (Quantity::GpuBusyPercent, busy.map(|busy| 100.0 * busy.value)),
        (Quantity::IdleHostCodePercent, busy.map(|_| share(Account::Idle(IdleCause::HostCode)))),
        (
            Quantity::IdleDriverCallsPercent,
            busy.map(|_| total(calls.map(|cause| share(Account::Idle(cause))))),
        ),
    ])
}

/// Figures of the configurations of one function.
fn function(kernels: &[&Kernel], by: f64, on_cpu_device: bool) -> Values {
    let occupancy = kernels.iter().filter_map(|kernel| Some(kernel.geometry.as_ref()?.occupancy.fraction()));
    let mut values = known([
        (Quantity::Launches, Some(total(kernels.iter().map(|kernel| kernel.launches.ran() as f64)) / by)),
        (Quantity::OccupancyPercent, occupancy.reduce(f64::min).map(|least| 100.0 * least)),
    ]);
    match on_cpu_device {
        true => values.extend(counted(kernels.iter().copied(), by)),
        false => values.extend(known([(Quantity::KernelUs, mean_us(kernels))])),
    }
    values
}

/// Mean GPU time of a launch; `None` if no launch was timed.
fn mean_us(kernels: &[&Kernel]) -> Option<f64> {
    let timed = || {
        kernels.iter().filter_map(|kernel| Some((kernel.gpu.as_ref()?.each.mean_ns, kernel.launches.ran())))
    };
    let launches = total(timed().map(|(_, launches)| launches as f64));
    (launches > 0.0).then(|| total(timed().map(|(mean, launches)| mean * launches as f64)) / launches / 1e3)
}

/// The CPU device's counts, of all launches; empty if it counted none.
fn counted<'p>(kernels: impl Iterator<Item = &'p Kernel> + Clone, by: f64) -> Values {
    if kernels.clone().all(|kernel| kernel.counts.is_none()) {
        return Values::new();
    }
    let sum = |of: fn(&Counts) -> u64| {
        let of_launches = kernels.clone().filter_map(|kernel| {
            let counts = kernel.counts.as_ref()?;
            let scale = kernel.launches.ran() as f64 / counts.launches.max(1) as f64;
            Some(of(&counts.sums) as f64 * scale)
        });
        Some(total(of_launches) / by)
    };
    known([
        (Quantity::WarpInstructions, sum(Counts::total_warp_instructions)),
        (Quantity::Sectors, sum(|counts| counts.loads_and_stores(Space::Global).transactions)),
        (Quantity::ExcessiveSectors, sum(|counts| counts.loads_and_stores(Space::Global).excess)),
        (Quantity::BankConflicts, sum(|counts| counts.loads_and_stores(Space::Shared).excess)),
        (Quantity::DivergentBranches, sum(|counts| counts.divergent_branches)),
    ])
}
