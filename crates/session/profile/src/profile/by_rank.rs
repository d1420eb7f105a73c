//! The ranks of a job beside each other: which one comes last to collectives, and how long the
//! others wait for it.
//!
//! No clock is compared. A synchronising collective (all-reduce, all-gather, reduce-scatter,
//! all-to-all) ends on all ranks when the last one has arrived and the data have moved: the rank
//! with the *shortest* time in it came last, and the excess of the others is their waiting.
//! Collectives are matched by communicator and sequence number ([`super::collectives`]).
//!
//! Invariants: each collective that a rank launched is matched, or counted with the reason why it
//! is not ([`Matching`]). A match needs the same kernel on all ranks that recorded the
//! communicator; after the first difference nothing of it is matched, nor where records were lost.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use apex_kernel_names as names;
use serde::Serialize;

use super::{Activity, CollectiveSeries, Profile};
use crate::figure::Figure;
use crate::{Account, Accounts, units};

/// Differences between the shortest and the second shortest time up to this share of the shortest,
/// and up to [`TOGETHER_NS`], say of no rank that it came last.
const TOGETHER: f64 = 0.05;
/// See [`TOGETHER`]; the timing of a launch is off by some µs.
const TOGETHER_NS: f64 = 10_000.0;
/// Minimum share of the others' time that they wait for one rank, for it to be named.
const LEAST_WAITING: f64 = 0.01;
/// Minimum part of the late rank's additional time that one account has, to be the cause.
const MAIN: f64 = 0.4;
/// Minimum ratio of the late rank's kernel times to the others', in the same launches, to be
/// slower.
const SLOWER: f64 = 1.03;

/// Accounts and collectives by rank.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ByRank {
    /// The ranks, in order; one with several devices has a row for each.
    pub ranks: Vec<RankRow>,
    /// Processes of the job according to its launcher; `None` if it does not say, or if the ranks
    /// disagree.
    pub world_size: Option<u32>,
    /// The communicators.
    pub communicators: Vec<Communicator>,
    /// What became of all collectives.
    pub matching: Matching,
    /// The rank that the others wait for; `None` where there is no single one.
    pub late: Option<LateRank>,
}

/// A rank.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RankRow {
    /// Its number; `None` for a process that has none.
    pub rank: Option<usize>,
    /// Index into [`Profile::processes`].
    pub process: usize,
    /// Process identifier.
    pub pid: u32,
    /// Index into [`Profile::devices`]; `None` if unknown.
    pub device: Option<usize>,
    /// Its use of the device, nanoseconds.
    pub accounts: Accounts,
    /// Share of the time in which kernels, collectives or copies run.
    pub busy: Figure,
    /// Iterations.
    pub steps: u64,
    /// Mean duration of an iteration, nanoseconds; `None` where launches do not repeat.
    pub step_ns: Option<Figure>,
    /// Matched collectives to which it came last.
    pub late: u64,
    /// Time in matched collectives beyond the shortest one of all ranks, nanoseconds.
    pub waited_ns: f64,
    /// The time that the other ranks waited for it in these, nanoseconds.
    pub caused_ns: f64,
}

/// A communicator.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Communicator {
    /// NCCL's identifier as hexadecimal digits; `None` where NCCL did not say it, and the order of
    /// first use stands for it.
    pub id: Option<String>,
    /// Ranks that used it (process identifiers for those without a rank).
    pub ranks: Vec<usize>,
    /// Collectives that were launched in it, on the rank with most of them.
    pub launched: u64,
    /// Of these, how many were matched.
    pub matched: u64,
}

/// What became of collectives: they are counted once, not for each rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Matching {
    /// Launched, on the rank with most of them.
    pub launched: u64,
    /// Matched on all ranks of their communicator that were recorded, and timed on each.
    pub matched: u64,
    /// Of the matched ones: those to which no rank clearly came last.
    pub together: u64,
    /// Not timed on some rank.
    pub untimed: u64,
    /// In a communicator of which one rank alone was recorded.
    pub alone: u64,
    /// Launched by fewer ranks than others of their communicator: at the end of a recording.
    pub unmatched: u64,
    /// It is not certain what they match: the ranks launched different kernels before, or records
    /// were lost.
    pub ambiguous: u64,
    /// Of kinds that do not synchronise all ranks (broadcast, reduce, sends and receives that are
    /// no all-to-all), or that the kernel's name does not tell.
    pub others: u64,
}

/// The rank that the others wait for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LateRank {
    /// Index into [`ByRank::ranks`].
    pub row: usize,
    /// Collectives to which it came last, of those to which some rank did.
    pub last: u64,
    /// Those.
    pub of: u64,
    /// Time that the others waited for it in matched collectives, summed over them, nanoseconds:
    /// measured.
    pub waited_ns: Figure,
    /// The same on average for each of the others, as a share of its time.
    pub share: Figure,
    /// What it did instead.
    pub cause: LateCause,
    /// The account in which it spends more than the others, on average, nanoseconds in all.
    pub more: Option<(Account, f64)>,
    /// The place in the program where its host was in that account, if the host was sampled.
    pub place: Option<String>,
    /// Ratio of its kernels' work or times to the others', for [`LateCause::MoreWork`] and
    /// [`LateCause::SlowerKernels`].
    pub ratio: Option<f64>,
}

/// What the late rank did while the others waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LateCause {
    /// Its GPU waited for the host's own code.
    HostCode,
    /// Its GPU waited for input: the host was in a data loader, or waited for data.
    Input,
    /// Its kernels had more to do.
    MoreWork,
    /// The same kernels took longer.
    SlowerKernels,
    /// Its copies took longer.
    Copies,
    /// Its GPU waited for driver calls: launches, allocations, loading of code, ….
    DriverCalls,
    /// No account has clearly more than on the others.
    Unknown,
}

impl fmt::Display for LateRank {
    /// What it did instead of arriving, as a clause.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.place.as_ref().map_or(String::new(), |place| format!(", most of it at {place}"));
        let ratio =
            |what: &str| self.ratio.map_or(String::new(), |ratio| format!(" ({ratio:.2} times {what})"));
        let more = |what: &str| match self.more {
            Some((_, ns)) => format!("its GPU spends {} more than the others' {what}{at}", units::time(ns)),
            None => format!("its GPU spends more time {what}{at}"),
        };
        to.write_str(&match (self.cause, self.more) {
            (LateCause::HostCode, _) => more("idle while its host runs code of its own"),
            (LateCause::Input, _) => more("idle while its host waits for input"),
            (LateCause::DriverCalls, Some((Account::Idle(idle), _))) => {
                more(&format!("idle during {}", idle.name()))
            }
            (LateCause::DriverCalls, _) => more("idle during driver calls"),
            (LateCause::Copies, _) => more("in copies"),
            (LateCause::MoreWork, _) => {
                format!("its kernels have more work{}", ratio("as many threads as on the others"))
            }
            (LateCause::SlowerKernels, _) => {
                format!("the same kernels take longer on it{}", ratio("their time on the others"))
            }
            (LateCause::Unknown, _) => "what it did instead is not known".to_owned(),
        })
    }
}

impl LateCause {
    /// In words, for a table.
    pub fn name(self) -> &'static str {
        match self {
            Self::HostCode => "host code",
            Self::Input => "input",
            Self::MoreWork => "more work",
            Self::SlowerKernels => "slower kernels",
            Self::Copies => "copies",
            Self::DriverCalls => "driver calls",
            Self::Unknown => "unknown",
        }
    }
}

/// Files of the loaders of frameworks.
const LOADERS: [&str; 6] = [
    "torch/utils/data/",
    "tensorflow/python/data/",
    "nvidia/dali/",
    "/datasets/iterable_dataset.py",
    "/webdataset/",
    "/grain/",
];

impl Profile {
    /// The ranks beside each other; `None` with fewer than two processes that launched kernels.
    pub fn by_rank(&self) -> Option<ByRank> {
        let mut ranks: Vec<RankRow> = self.activities.iter().map(|activity| self.row(activity)).collect();
        ranks.retain(|row| self.processes[row.process].launches > 0);
        ranks.sort_by_key(|row| (row.rank.is_none(), row.rank, row.pid, row.device));
        if ranks.iter().map(|row| row.process).collect::<BTreeSet<_>>().len() < 2 {
            return None;
        }
        let mut matcher =
            Matcher { profile: self, ranks, matching: Matching::default(), communicators: Vec::new() };
        self.groups().iter().for_each(|group| matcher.group(group));
        let Matcher { ranks, matching, communicators, .. } = matcher;
        let mut by_rank =
            ByRank { ranks, world_size: self.world_size(), communicators, matching, late: None };
        by_rank.late = self.late(&by_rank);
        Some(by_rank)
    }

    fn row(&self, activity: &Activity) -> RankRow {
        let process = &self.processes[activity.process];
        let accounts = activity.accounts.clone();
        let span = accounts.span_ns.max(1.0);
        RankRow {
            rank: process.rank,
            process: activity.process,
            pid: process.pid,
            device: activity.device,
            busy: accounts.idle_ns().scaled(1.0 / span).complement(),
            accounts,
            steps: activity.iterations.as_ref().map_or(0, |iterations| iterations.count),
            step_ns: activity.iterations.as_ref().map(|iterations| iterations.step_ns),
            late: 0,
            waited_ns: 0.0,
            caused_ns: 0.0,
        }
    }

    fn world_size(&self) -> Option<u32> {
        let sizes = self.processes.iter().filter_map(|process| process.launcher.as_ref()?.world_size);
        let sizes: BTreeSet<u32> = sizes.collect();
        sizes.first().copied().filter(|_| sizes.len() == 1)
    }

    /// Series of one communicator on several ranks: those with the same identifier, and of those
    /// without one the first, second, … of each process.
    fn groups(&self) -> Vec<Vec<&CollectiveSeries>> {
        let mut known: BTreeMap<u64, Vec<&CollectiveSeries>> = BTreeMap::new();
        let mut in_order: BTreeMap<usize, Vec<&CollectiveSeries>> = BTreeMap::new();
        let mut met: BTreeMap<usize, usize> = BTreeMap::new();
        for series in &self.collectives {
            match series.communicator {
                Some(id) => known.entry(id).or_default().push(series),
                None => {
                    let number = met.entry(series.process).or_default();
                    in_order.entry(*number).or_default().push(series);
                    *number += 1;
                }
            }
        }
        known.into_values().chain(in_order.into_values()).collect()
    }

    /// The rank that most of the waiting is for.
    fn late(&self, by_rank: &ByRank) -> Option<LateRank> {
        let ranks = &by_rank.ranks;
        let (row, worst) = ranks.iter().enumerate().max_by(|a, b| a.1.caused_ns.total_cmp(&b.1.caused_ns))?;
        let all: f64 = crate::total(ranks.iter().map(|row| row.caused_ns));
        let decided = by_rank.matching.matched - by_rank.matching.together;
        if worst.caused_ns <= 0.0 || worst.caused_ns < most_of_the_waiting(ranks.len()) * all {
            return None;
        }
        let others: Vec<&RankRow> = ranks.iter().filter(|other| other.process != worst.process).collect();
        let span = crate::total(others.iter().map(|other| other.accounts.span_ns));
        if worst.caused_ns < LEAST_WAITING * span {
            return None;
        }
        let (cause, more, place, ratio) = self.cause(worst, &others);
        let figure = |value: f64| Figure::sampled(value, worst.late, None);
        Some(LateRank {
            row,
            last: worst.late,
            of: decided,
            waited_ns: figure(worst.caused_ns),
            share: figure((worst.caused_ns / span.max(1.0)).min(1.0)),
            cause,
            more,
            place,
            ratio,
        })
    }

    /// What a rank did while the others waited: the account in which it spent more time than they
    /// did on average.
    #[allow(clippy::type_complexity, reason = "the parts of a cause, named where they are taken apart")]
    fn cause(
        &self,
        late: &RankRow,
        others: &[&RankRow],
    ) -> (LateCause, Option<(Account, f64)>, Option<String>, Option<f64>) {
        let is_own = |account: &Account| {
            !matches!(account, Account::Collectives | Account::Waiting | Account::Unknown)
        };
        let mean = |account| {
            crate::total(others.iter().map(|other| other.accounts.time(account).value))
                / others.len().max(1) as f64
        };
        let more = Account::ALL.into_iter().filter(is_own);
        let more: Vec<(Account, f64)> =
            more.map(|account| (account, late.accounts.time(account).value - mean(account))).collect();
        let all = crate::total(more.iter().map(|(_, more)| more.max(0.0)));
        let Some(&(account, most)) = more.iter().max_by(|a, b| a.1.total_cmp(&b.1)) else {
            return (LateCause::Unknown, None, None, None);
        };
        if most <= 0.0 || most < MAIN * all {
            return (LateCause::Unknown, None, None, None);
        }
        let more = Some((account, most));
        match account {
            Account::Kernels => {
                let (cause, ratio) = self.kernels_of(late, others);
                (cause, more, None, ratio)
            }
            Account::Copies => (LateCause::Copies, more, None, None),
            Account::Idle(crate::IdleCause::HostCode) => {
                let (cause, place) = self.host_of(late, crate::IdleCause::HostCode);
                (cause, more, place, None)
            }
            Account::Idle(idle) => (LateCause::DriverCalls, more, self.host_of(late, idle).1, None),
            _ => (LateCause::Unknown, more, None, None),
        }
    }

    /// Whether the same launches take longer on a rank, or its launches are others.
    fn kernels_of(&self, late: &RankRow, others: &[&RankRow]) -> (LateCause, Option<f64>) {
        let of = |row: &RankRow| -> BTreeMap<String, (f64, f64)> {
            let kernels =
                self.kernels.iter().filter(|kernel| kernel.device == row.device && kernel.launches.any());
            let kernels = kernels.filter(|kernel| kernel.traits.operation != names::Operation::Collective);
            let each = kernels.filter_map(|kernel| {
                let gpu = kernel.gpu.as_ref()?;
                Some((
                    format!("{} {:?}", kernel.symbol, kernel.launch),
                    (gpu.each.mean_ns, gpu.total_ns.value),
                ))
            });
            each.collect()
        };
        let own = of(late);
        let (mut same, mut here, mut there) = (0.0, 0.0, 0.0);
        for other in others {
            for (key, (mean, _)) in of(other) {
                let Some((own_mean, total)) = own.get(&key) else { continue };
                same += total;
                here += total;
                there += total * mean / own_mean.max(1.0);
            }
        }
        let count = others.len().max(1) as f64;
        let all = crate::total(own.values().map(|(_, total)| *total));
        let mean = crate::total(others.iter().map(|other| self.threads(other))) / count;
        let work = self.threads(late) / mean.max(1.0);
        let share_device = others.iter().any(|other| other.device == late.device);
        if !share_device && same / count > all / 2.0 && here > SLOWER * there && work < SLOWER {
            return (LateCause::SlowerKernels, Some(here / there.max(1.0)));
        }
        // With as many threads as the others, its kernels may have other shapes, or share the
        // device.
        match work >= SLOWER {
            true => (LateCause::MoreWork, Some(work)),
            false => (LateCause::Unknown, None),
        }
    }

    /// Threads of the kernels that a rank launched, except collectives.
    fn threads(&self, row: &RankRow) -> f64 {
        let is_own = |activity: &&Activity| activity.process == row.process && activity.device == row.device;
        let phases = self.activities.iter().filter(is_own).flat_map(|activity| &activity.phases);
        let launched =
            phases.flat_map(|phase| &phase.kernels).map(|&(kernel, count)| (&self.kernels[kernel], count));
        let launched = launched.filter(|(kernel, _)| kernel.traits.operation != names::Operation::Collective);
        crate::total(launched.map(|(kernel, count)| kernel.threads() as f64 * count as f64))
    }

    /// Where a rank's host was in an idle account, and whether that is its input.
    fn host_of(&self, late: &RankRow, cause: crate::IdleCause) -> (LateCause, Option<String>) {
        let places = self.idle_places(|activity, samples| {
            activity.process == late.process && activity.device == late.device && samples.cause == cause
        });
        let Some(place) = places.first() else { return (LateCause::HostCode, None) };
        let loads = |stack: &super::HostStack| {
            stack.frames.iter().any(|frame| LOADERS.iter().any(|part| frame.frame.file.contains(part)))
        };
        let is_input = place.state == super::HostState::WaitsForData || place.share_of_samples(loads) > 0.5;
        let cause = if is_input { LateCause::Input } else { LateCause::HostCode };
        (cause, Some(place.to_string()))
    }
}

/// Matches collectives and adds them up.
struct Matcher<'p> {
    profile: &'p Profile,
    ranks: Vec<RankRow>,
    matching: Matching,
    communicators: Vec<Communicator>,
}

impl Matcher<'_> {
    /// Counts the collectives of one communicator.
    fn group(&mut self, group: &[&CollectiveSeries]) {
        let before = self.matching;
        let first = group.iter().map(|series| series.counted.start).max().unwrap_or(0);
        let ends = || group.iter().map(|series| series.counted.end);
        let (shortest, longest) = (ends().min().unwrap_or(0), ends().max().unwrap_or(0));
        let counted = longest.saturating_sub(first) as u64;
        let beyond = group.iter().map(|series| series.beyond).max().unwrap_or(0);
        self.matching.launched += counted + beyond;
        self.matching.untimed += beyond;
        let processes: BTreeSet<usize> = group.iter().map(|series| series.process).collect();
        // Where records were lost, sequence numbers may be wrong.
        let has_losses = self.profile.recorder.lost() > 0;
        match () {
            () if processes.len() < 2 => self.matching.alone += counted,
            () if processes.len() < group.len() || has_losses => self.matching.ambiguous += counted,
            () => {
                self.matching.unmatched += longest.saturating_sub(shortest.max(first)) as u64;
                self.each(group, first..shortest);
            }
        }
        self.communicators.push(Communicator {
            id: group[0].communicator.map(|id| format!("{id:016x}")),
            ranks: processes.iter().map(|&process| self.number(process)).collect(),
            launched: counted + beyond,
            matched: self.matching.matched - before.matched,
        });
    }

    fn number(&self, process: usize) -> usize {
        let process = &self.profile.processes[process];
        process.rank.unwrap_or(process.pid as usize)
    }

    /// The collectives with these sequence numbers.
    fn each(&mut self, group: &[&CollectiveSeries], numbers: std::ops::Range<usize>) {
        let symbol = |series: &&CollectiveSeries, number: usize| -> String {
            series.symbol_of(&series.launches[number]).to_owned()
        };
        let differ =
            |number: &usize| group.iter().any(|series| symbol(series, *number) != symbol(&group[0], *number));
        let same_until = (0..numbers.end).find(differ).unwrap_or(numbers.end);
        self.matching.ambiguous += (numbers.end - same_until.max(numbers.start).min(numbers.end)) as u64;
        for number in numbers.start..same_until {
            if !synchronises(&symbol(&group[0], number), group, number) {
                self.matching.others += 1;
                continue;
            }
            let times: Option<Vec<f64>> =
                group.iter().map(|series| series.launches[number].ns.map(|ns| ns as f64)).collect();
            match times {
                Some(times) => self.matched(group, &times),
                None => self.matching.untimed += 1,
            }
        }
    }

    fn matched(&mut self, group: &[&CollectiveSeries], times: &[f64]) {
        self.matching.matched += 1;
        let mut order: Vec<usize> = (0..times.len()).collect();
        order.sort_by(|&a, &b| times[a].total_cmp(&times[b]));
        let (least, second) = (times[order[0]], times[order[1]]);
        if second - least <= TOGETHER_NS.max(TOGETHER * least) {
            self.matching.together += 1;
            return;
        }
        let waited = |at: usize| times[at] - least;
        for &at in &order[1..] {
            let waited = waited(at);
            self.of(group[at]).into_iter().for_each(|row| row.waited_ns += waited);
        }
        let caused = crate::total(order[1..].iter().map(|&at| waited(at)));
        if let Some(row) = self.of(group[order[0]]) {
            row.late += 1;
            row.caused_ns += caused;
        }
    }

    fn of(&mut self, series: &CollectiveSeries) -> Option<&mut RankRow> {
        let is_meant = |row: &&mut RankRow| {
            row.process == series.process && (row.device == series.device || series.device.is_none())
        };
        self.ranks.iter_mut().find(is_meant)
    }
}

/// Minimum share of all waiting that is for one of so many ranks, for it to be named: half-way
/// between an even share, which ranks have that are late in turn, and all of it.
fn most_of_the_waiting(ranks: usize) -> f64 {
    0.5 + 0.5 / ranks.max(1) as f64
}

/// Whether no rank leaves a collective, of this kernel and with this number, before all have come.
/// Sends and receives do that if each rank exchanges data with all others.
fn synchronises(symbol: &str, group: &[&CollectiveSeries], number: usize) -> bool {
    let with_all =
        |series: &&CollectiveSeries| usize::from(series.launches[number].exchanges) + 1 >= group.len();
    ["AllReduce", "AllGather", "ReduceScatter"].iter().any(|name| symbol.contains(name))
        || symbol.contains("SendRecv") && group.iter().all(with_all)
}
