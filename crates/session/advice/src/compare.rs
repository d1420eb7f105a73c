//! Compares runs before and after a change, and checks whether advice kept its promise.
//!
//! Each side is one run or several of the same program. Functions are matched by symbol, kernels by
//! symbol and configuration. If launches repeat on both sides, sums are per step, because a faster
//! program may make more steps. [`Change`] says when a difference is significant.

mod change;
mod followed;
mod kernels;
mod steps;
#[cfg(test)]
mod tests;

use serde::Serialize;

use crate::advise::Advice;
use apex_counts::{Counts, Space};
use apex_profile::{Account, Accounts, Copies, Figure, Profile, SaturatingSum as _, total};
pub use change::Change;
pub use followed::{Basis, Followed, Kept, State, Together};
pub use kernels::{KernelChange, KernelCountChanges, Presence};
pub use steps::Steps;

/// A run to be compared.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// The run, or a part of it, with all of its kernels.
    pub job: &'a Profile,
    /// The same, of whose kernels only those were launched that are compared.
    pub profile: &'a Profile,
    /// The result of the rules for it.
    pub advice: &'a Advice,
}

/// The unit of sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Per {
    /// A step of one device, on average.
    Step,
    /// A run.
    Run,
}

/// Runs side by side. Sums are of [`Self::per`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The unit of sums.
    pub per: Per,
    /// Whether a side ran on the CPU device, whose times are a busy host's: they are significant
    /// between repeated runs alone.
    pub on_cpu_device: bool,
    /// Mean time of a step, nanoseconds; where both sides have steps.
    pub step_ns: Option<Change>,
    /// Steps that it was measured over, of all runs of a side.
    pub steps: (u64, u64),
    /// Kernels that ran.
    pub launches: Change,
    /// From first to last work, nanoseconds, summed over devices: of a run, always.
    pub span_ns: Change,
    /// GPU time of kernels, nanoseconds.
    pub gpu_time_ns: Change,
    /// GPU busy share.
    pub gpu_busy: Change,
    /// CPU time in launch calls, nanoseconds.
    pub launch_cpu_ns: Change,
    /// Copies.
    pub copies: Change,
    /// Bytes of these.
    pub copied_bytes: Change,
    /// The time of the devices by account, in nanoseconds: each account that holds time on a side.
    pub accounts: Vec<AccountChange>,
    /// The CPU device's counts of a run; `None` if neither side has any.
    pub counts: Option<CountChanges>,
    /// The outcome of the first side's findings that promise more than next to nothing.
    pub followed: Vec<Followed>,
    /// The common outcome of the findings that are gone, if there are several.
    pub together: Option<Together>,
    /// Findings of the second side that the first one has not.
    pub new_findings: Vec<NewFinding>,
    /// Functions over all their configurations, by the change of their GPU time, then of what was
    /// counted, then of their launches.
    pub functions: Vec<KernelChange>,
    /// Kernels, in the same order.
    pub kernels: Vec<KernelChange>,
}

/// An account on both sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AccountChange {
    /// Its name, as reports have it.
    pub account: String,
    /// Its time, nanoseconds.
    pub time_ns: Change,
}

/// The CPU device's counts: of the launches that it counted, scaled to all of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CountChanges {
    /// PTX instructions by warp.
    pub warp_instructions: Change,
    /// Sectors of global memory, of loads and stores.
    pub sectors: Change,
    /// The sectors beyond those that the same bytes would take side by side.
    pub excessive_sectors: Change,
    /// Wavefronts of shared memory, of loads and stores.
    pub wavefronts: Change,
    /// The wavefronts that bank conflicts cost.
    pub bank_conflicts: Change,
    /// Branches that threads of a warp took differently.
    pub divergent_branches: Change,
}

/// A finding that was not there before.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NewFinding {
    /// The rule's identifier.
    pub rule: String,
    /// The rule's name.
    pub slug: String,
    /// The fault.
    pub title: String,
}

/// The runs of one side.
struct Side<'a> {
    runs: &'a [Run<'a>],
    /// The number of units in each run, by which its sums are divided.
    by: Vec<f64>,
}

impl Side<'_> {
    fn sums(&self, of: impl Fn(&Profile) -> Option<Figure>) -> Vec<Option<Figure>> {
        let each = self.runs.iter().zip(&self.by);
        each.map(|(run, by)| Some(of(run.job)?.scaled(1.0 / by))).collect()
    }

    /// Steps that were measured, of all runs.
    fn steps(&self) -> u64 {
        self.runs.iter().filter_map(|run| run.job.step_ns()).map(|step| step.samples).sum()
    }

    fn is_on_cpu_device(&self) -> bool {
        self.runs.iter().any(|run| run.job.on_cpu_device())
    }

    fn counts(&self, of: impl Fn(&Profile) -> u64) -> Vec<f64> {
        self.runs.iter().zip(&self.by).map(|(run, by)| of(run.job) as f64 / by).collect()
    }
}

/// Sets the runs after a change beside those before it. Neither side is empty.
pub fn compare(before: &[Run<'_>], after: &[Run<'_>]) -> Comparison {
    let steps = |runs: &[Run<'_>]| -> Option<Vec<f64>> { runs.iter().map(|run| run.job.steps()).collect() };
    let (per, [before, after]) = match (steps(before), steps(after)) {
        (Some(steps), Some(steps_after)) => {
            (Per::Step, [Side { runs: before, by: steps }, Side { runs: after, by: steps_after }])
        }
        _ => (Per::Run, [before, after].map(|runs| Side { runs, by: vec![1.0; runs.len()] })),
    };
    let on_cpu_device = [&before, &after].iter().any(|side| side.is_on_cpu_device());
    let timed = |change: Change| if on_cpu_device { change.of_a_busy_host() } else { change };
    let sums = |of: fn(&Profile) -> Option<Figure>| timed(Change::of(&before.sums(of), &after.sums(of)));
    let whole = |of: fn(&Profile) -> Option<Figure>| {
        let figures = |side: &Side<'_>| side.runs.iter().map(|run| of(run.job)).collect::<Vec<_>>();
        timed(Change::of(&figures(&before), &figures(&after)))
    };
    let counts = |of: fn(&Profile) -> u64| Change::counted(&before.counts(of), &after.counts(of));
    let copies = |profile: &Profile, of: fn(&Copies) -> u64| profile.copies.iter().map(of).saturating_sum();
    let mut compared = Comparison {
        per,
        on_cpu_device,
        step_ns: (per == Per::Step).then(|| whole(Profile::step_ns)),
        steps: match per {
            Per::Step => (before.steps(), after.steps()),
            Per::Run => (0, 0),
        },
        launches: counts(|profile| profile.totals.kernels_run()),
        span_ns: whole(|profile| Some(Figure::measured(profile.totals.span_ns))),
        gpu_time_ns: sums(|profile| profile.totals.gpu_time_ns),
        gpu_busy: whole(|profile| profile.totals.gpu_busy),
        launch_cpu_ns: sums(|profile| Some(Figure::measured(profile.totals.launch_cpu_ns))),
        copies: Change::counted(
            &before.counts(|profile| copies(profile, |copies| copies.count)),
            &after.counts(|profile| copies(profile, |copies| copies.count)),
        ),
        copied_bytes: Change::counted(
            &before.counts(|profile| copies(profile, |copies| copies.bytes)),
            &after.counts(|profile| copies(profile, |copies| copies.bytes)),
        ),
        accounts: accounts(&before, &after),
        counts: count_changes(&before, &after),
        followed: Vec::new(),
        together: None,
        new_findings: followed::new_findings(&before, &after),
        functions: kernels::changes(&before, &after, |_| None),
        kernels: kernels::changes(&before, &after, |kernel| Some(kernels::configuration(kernel))),
    };
    if on_cpu_device {
        compared.doubt_times();
    }
    kernels::name_apart(&mut compared);
    (compared.followed, compared.together) = followed::followed(&before, &after, &compared);
    compared
}

impl Comparison {
    /// Whether each side has several runs.
    pub fn is_of_repeated_runs(&self) -> bool {
        let runs = &self.span_ns.runs;
        runs.0.len().min(runs.1.len()) > 1
    }

    /// Times of accounts and kernels are the busy host's.
    fn doubt_times(&mut self) {
        let accounts = self.accounts.iter_mut().map(|account| &mut account.time_ns);
        let kernels = self.functions.iter_mut().chain(&mut self.kernels);
        let times = kernels.flat_map(|kernel| [&mut kernel.duration_ns, &mut kernel.total_ns]);
        accounts.chain(times).for_each(|change| *change = change.clone().of_a_busy_host());
    }
}

/// The time of an account; `None` where kernels ran whose time is unknown, and it holds none.
fn known_time(accounts: &Accounts, account: Account) -> Option<Figure> {
    let time = accounts.time(account);
    let is_of_kernels = matches!(account, Account::Kernels | Account::Collectives | Account::Waiting);
    let is_unknown = is_of_kernels && time.value == 0.0 && accounts.unknown.value > 0.0;
    (!is_unknown).then_some(time)
}

/// The accounts that hold time on any side, in the order in which reports have them.
fn accounts(before: &Side<'_>, after: &Side<'_>) -> Vec<AccountChange> {
    let all = |side: &Side<'_>| side.runs.iter().map(|run| run.job.accounts()).collect::<Vec<Accounts>>();
    let (accounts_before, accounts_after) = (all(before), all(after));
    let used = Account::ALL.into_iter().filter(|&account| {
        accounts_before.iter().chain(&accounts_after).any(|accounts| accounts.time(account).value > 0.0)
    });
    let times = |accounts: &[Accounts], by: &[f64], account| -> Vec<Option<Figure>> {
        let of = accounts.iter().zip(by);
        of.map(|(accounts, by)| Some(known_time(accounts, account)?.scaled(1.0 / by))).collect()
    };
    used.map(|account| AccountChange {
        account: account.name().to_owned(),
        time_ns: Change::of(
            &times(&accounts_before, &before.by, account),
            &times(&accounts_after, &after.by, account),
        ),
    })
    .collect()
}

fn count_changes(before: &Side<'_>, after: &Side<'_>) -> Option<CountChanges> {
    let counted = |side: &Side<'_>| {
        side.runs.iter().flat_map(|run| &run.profile.kernels).any(|kernel| kernel.counts.is_some())
    };
    if !counted(before) && !counted(after) {
        return None;
    }
    let change = |of: &dyn Fn(&Counts) -> u64| {
        let sums = |side: &Side<'_>| -> Vec<Option<f64>> {
            let of_run = |run: &Run<'_>| {
                let kernels = &run.profile.kernels;
                let counted = kernels
                    .iter()
                    .filter_map(|kernel| kernels::of_all_launches(kernel, |counts| of(&counts.sums)));
                let counted: Vec<f64> = counted.collect();
                (!counted.is_empty()).then(|| total(counted))
            };
            side.runs.iter().map(of_run).collect()
        };
        Change::counted_if_known(&sums(before), &sums(after))
    };
    Some(CountChanges {
        warp_instructions: change(&Counts::total_warp_instructions),
        sectors: change(&|counts| counts.loads_and_stores(Space::Global).transactions),
        excessive_sectors: change(&|counts| counts.loads_and_stores(Space::Global).excess),
        wavefronts: change(&|counts| counts.loads_and_stores(Space::Shared).transactions),
        bank_conflicts: change(&|counts| counts.loads_and_stores(Space::Shared).excess),
        divergent_branches: change(&|counts| counts.divergent_branches),
    })
}
