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

mod late;
mod links;

use apex_ordered::{Gather, Order};
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::{Activity, CollectiveSeries, Profile};
use crate::Accounts;
use crate::figure::Figure;

pub use late::{LateCause, LateRank};
pub use links::{Guest, Link};

/// Differences between the shortest and the second shortest time up to this share of the shortest,
/// and up to [`TOGETHER_NS`], say of no rank that it came last.
const TOGETHER: f64 = 0.05;
/// See [`TOGETHER`]; the timing of a launch is off by some µs.
const TOGETHER_NS: f64 = 10_000.0;
/// Maximum part of a process's launches that it makes on a GPU that is not its own: with more, it
/// uses several.
const GUEST: f64 = 0.01;

/// Accounts and collectives by rank.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ByRank {
    /// The ranks, in order; one that works on several devices has a row for each.
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
    /// Ranks that copy between their GPU and another one, beside the collectives.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<Link>,
    /// Ranks that use the GPU of another rank, beside their own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub guests: Vec<Guest>,
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

impl ByRank {
    /// How many processes the ranks are: one that works on several devices counts once.
    pub fn processes(&self) -> usize {
        processes(&self.ranks)
    }

    /// The waiting for all ranks together, nanoseconds.
    fn waiting_ns(&self) -> f64 {
        crate::total(self.ranks.iter().map(|row| row.caused_ns))
    }
}

fn processes(ranks: &[RankRow]) -> usize {
    ranks.iter().map(|row| row.process).gathered::<BTreeSet<_>>().len()
}

impl Profile {
    /// The ranks beside each other; `None` with fewer than two processes that launched kernels.
    pub fn by_rank(&self) -> Option<ByRank> {
        let works =
            |activity: &&Activity| self.processes[activity.process].launches > 0 && !self.is_guest(activity);
        let mut ranks: Vec<RankRow> =
            self.activities.iter().filter(works).map(|activity| self.row(activity)).collect();
        ranks.order_by_key(|row| (row.rank.is_none(), row.rank, row.pid, row.device));
        if processes(&ranks) < 2 {
            return None;
        }
        let mut matcher =
            Matcher { profile: self, ranks, matching: Matching::default(), communicators: Vec::new() };
        self.groups().iter().for_each(|group| matcher.group(group));
        let Matcher { ranks, matching, communicators, .. } = matcher;
        let mut by_rank = ByRank {
            ranks,
            world_size: self.world_size(),
            communicators,
            matching,
            late: None,
            links: Vec::new(),
            guests: Vec::new(),
        };
        by_rank.late = self.late(&by_rank);
        by_rank.links = self.links(&by_rank);
        by_rank.guests = self.guests(&by_rank);
        Some(by_rank)
    }

    /// Whether a process hardly launches on this device, compared with the one that is its own.
    fn is_guest(&self, activity: &Activity) -> bool {
        let own = self.activities.iter().filter(|other| other.process == activity.process);
        let own = own.map(|other| other.launches).max().unwrap_or(0);
        activity.launches < own && activity.launches as f64 <= GUEST * own as f64
    }

    /// Which processes hardly use which devices: those of ranks, and of processes that share the
    /// device with others. Their contexts there are no GPUs of theirs.
    pub fn guest_uses(&self) -> BTreeSet<(usize, Option<usize>)> {
        let shares = |activity: &Activity| {
            let is_other = |other: &Activity| other.process != activity.process;
            self.activities.iter().any(|other| is_other(other) && other.device == activity.device)
                && activity.device.is_some()
        };
        let is_ranked = |activity: &Activity| self.processes[activity.process].rank.is_some();
        let guests = self.activities.iter().filter(|activity| is_ranked(activity) || shares(activity));
        let guests = guests.filter(|activity| self.is_guest(activity));
        guests.map(|activity| (activity.process, activity.device)).gathered()
    }

    /// Leaves these uses of devices out of the accounts, unless they are all that there is. Kernels
    /// and calls stay.
    pub fn leave_out_uses(&mut self, uses: &BTreeSet<(usize, Option<usize>)>) {
        let is_kept = |activity: &Activity| !uses.contains(&(activity.process, activity.device));
        if self.activities.iter().all(is_kept) || !self.activities.iter().any(is_kept) {
            return;
        }
        self.activities.retain(is_kept);
        let mut totals = std::mem::take(&mut self.totals);
        let wall_ns = totals.wall_ns;
        totals.sum_up(self);
        self.totals = super::Totals { wall_ns, ..totals };
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
        let sizes: BTreeSet<u32> = sizes.gathered();
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
        let processes: BTreeSet<usize> = group.iter().map(|series| series.process).gathered();
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
        order.order_by(|&a, &b| times[a].total_cmp(&times[b]));
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

/// Whether no rank leaves a collective, of this kernel and with this number, before all have come.
/// Sends and receives do that if each rank exchanges data with all others.
fn synchronises(symbol: &str, group: &[&CollectiveSeries], number: usize) -> bool {
    let with_all =
        |series: &&CollectiveSeries| usize::from(series.launches[number].exchanges) + 1 >= group.len();
    ["AllReduce", "AllGather", "ReduceScatter"].iter().any(|name| symbol.contains(name))
        || symbol.contains("SendRecv") && group.iter().all(with_all)
}
