//! The late rank: whether there is one, and what it did while the others waited.

use std::collections::BTreeMap;
use std::fmt;

use apex_kernel_names as names;
use serde::Serialize;

use super::{ByRank, Profile, RankRow};
use crate::figure::Figure;
use crate::profile::{Activity, HostStack, HostState};
use crate::{Account, units};

/// Minimum share of the others' time that they wait for one rank, for it to be named.
pub(super) const LEAST_WAITING: f64 = 0.01;
/// Minimum part of the late rank's additional time that one account has, to be the cause.
const MAIN: f64 = 0.4;
/// Minimum ratio of the late rank's kernel times to the others', in the same launches, to be
/// slower; and of its threads to theirs, to have more work.
const SLOWER: f64 = 1.03;
/// Minimum ratio of its threads to the others' for more work to be the cause even if another
/// account has more of its additional time …
const CLEARLY_MORE: f64 = 1.25;
/// … and minimum part of that time that its kernels have.
const LEAST_OF_WORK: f64 = 0.25;
/// Minimum part of the waiting for a rank that its kernels' additional time must be, for more work
/// to explain it.
const EXPLAINED: f64 = 0.5;

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
    /// Share of the others' time in which their GPUs do nothing but wait, in any collective: their
    /// accounts of waiting. It excludes the part of `share` in which kernels run
    /// concurrently, and includes the collectives that were not matched or timed.
    pub exposed: Figure,
    /// What it did instead.
    pub cause: LateCause,
    /// What it does beside that for longer than the others, where this takes more time than `cause`
    /// does: more work often needs more input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub also: Option<LateCause>,
    /// The account in which it spends most more than the others, on average, nanoseconds in all:
    /// that of `also`, if there is one.
    pub more: Option<(Account, f64)>,
    /// The place in the program where its host was in that account, if the host was sampled.
    pub place: Option<String>,
    /// Ratio of its kernels' work or times to the others', for [`LateCause::MoreWork`] and
    /// [`LateCause::SlowerKernels`].
    pub ratio: Option<f64>,
}

/// What the late rank did while the others waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
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
    #[default]
    Unknown,
}

impl fmt::Display for LateRank {
    /// What it did instead of arriving, as a clause.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.clause(self.cause))?;
        self.also.map_or(Ok(()), |also| write!(to, ", and {}", self.clause(also)))
    }
}

impl LateRank {
    fn clause(&self, cause: LateCause) -> String {
        let ratio =
            |what: &str| self.ratio.map_or(String::new(), |ratio| format!(" ({ratio:.2} times {what})"));
        match (cause, self.more) {
            (LateCause::HostCode, _) => self.longer("idle while its host runs code of its own"),
            (LateCause::Input, _) => self.longer("idle while its host waits for input"),
            (LateCause::DriverCalls, Some((Account::Idle(idle), _))) => {
                self.longer(&format!("idle during {}", idle.name()))
            }
            (LateCause::DriverCalls, _) => self.longer("idle during driver calls"),
            (LateCause::Copies, _) => self.longer("in copies"),
            (LateCause::MoreWork, _) => {
                format!("its kernels have more work{}", ratio("as many threads as on the others"))
            }
            (LateCause::SlowerKernels, _) => {
                format!("the same kernels take longer on it{}", ratio("their time on the others"))
            }
            (LateCause::Unknown, _) => "what it did instead is not known".to_owned(),
        }
    }

    fn longer(&self, what: &str) -> String {
        let at = self.place.as_ref().map_or(String::new(), |place| format!(", most of it at {place}"));
        match self.more {
            Some((_, ns)) => format!("its GPU spends {} more than the others' {what}{at}", units::time(ns)),
            None => format!("its GPU spends more time {what}{at}"),
        }
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

/// What a rank did instead of arriving; see [`LateRank`].
#[derive(Default)]
struct Cause {
    cause: LateCause,
    also: Option<LateCause>,
    more: Option<(Account, f64)>,
    place: Option<String>,
    ratio: Option<f64>,
}

impl Profile {
    /// The rank that most of the waiting is for.
    pub(super) fn late(&self, by_rank: &ByRank) -> Option<LateRank> {
        let ranks = &by_rank.ranks;
        let (row, worst) = ranks.iter().enumerate().max_by(|a, b| a.1.caused_ns.total_cmp(&b.1.caused_ns))?;
        let others: Vec<&RankRow> = ranks.iter().filter(|other| other.process != worst.process).collect();
        let span = crate::total(others.iter().map(|other| other.accounts.span_ns));
        if worst.caused_ns <= 0.0 || worst.caused_ns < LEAST_WAITING * span {
            return None;
        }
        let (share, ranks) = (worst.caused_ns / by_rank.waiting_ns(), by_rank.processes());
        let is_named = share >= most_of_the_waiting(ranks)
            || share >= much_of_the_waiting(ranks) && self.work_explains_waiting(worst, &others);
        if !is_named {
            return None;
        }
        let Cause { cause, also, more, place, ratio } = self.cause(worst, &others);
        let waiting = Figure::sum(others.iter().map(|other| other.accounts.time(Account::Waiting)));
        let figure = |value: f64| Figure::sampled(value, worst.late, None);
        Some(LateRank {
            row,
            last: worst.late,
            of: by_rank.matching.matched - by_rank.matching.together,
            waited_ns: figure(worst.caused_ns),
            share: figure((worst.caused_ns / span.max(1.0)).min(1.0)),
            exposed: waiting.unwrap_or_default().scaled(1.0 / span.max(1.0)).at_most(1.0),
            cause,
            also,
            more,
            place,
            ratio,
        })
    }

    /// What a rank did while the others waited: the account in which it spent more time than they
    /// did on average. Clearly more work comes first, since what feeds it takes longer, too.
    fn cause(&self, late: &RankRow, others: &[&RankRow]) -> Cause {
        let is_own = |account: &Account| {
            !matches!(account, Account::Collectives | Account::Waiting | Account::Unknown)
        };
        let own = Account::ALL.into_iter().filter(is_own);
        let more: Vec<(Account, f64)> = own.map(|account| (account, longer(late, others, account))).collect();
        let all = crate::total(more.iter().map(|(_, more)| more.max(0.0)));
        let most = more.iter().max_by(|a, b| a.1.total_cmp(&b.1)).copied();
        let main = most.filter(|&(_, most)| most > 0.0 && most >= MAIN * all);
        let found = main.map_or_else(Cause::default, |more| self.cause_of(late, others, more));
        let kernels = longer(late, others, Account::Kernels);
        let work = self.work(late, others);
        let is_work = work >= CLEARLY_MORE && kernels > 0.0 && kernels >= LEAST_OF_WORK * all;
        match most {
            Some((account, _)) if is_work && account != Account::Kernels => Cause {
                cause: LateCause::MoreWork,
                also: Some(found.cause).filter(|&also| also != LateCause::Unknown),
                ratio: Some(work),
                ..found
            },
            _ => found,
        }
    }

    /// The cause that an account tells, in which a rank spent so much more.
    fn cause_of(&self, late: &RankRow, others: &[&RankRow], more: (Account, f64)) -> Cause {
        let (cause, place, ratio) = match more.0 {
            Account::Kernels => {
                let (cause, ratio) = self.kernels_of(late, others);
                (cause, None, ratio)
            }
            Account::Copies => (LateCause::Copies, None, None),
            Account::Idle(crate::IdleCause::HostCode) => {
                let (cause, place) = self.host_of(late, crate::IdleCause::HostCode);
                (cause, place, None)
            }
            Account::Idle(idle) => (LateCause::DriverCalls, self.host_of(late, idle).1, None),
            _ => (LateCause::Unknown, None, None),
        };
        Cause { cause, also: None, more: Some(more), place, ratio }
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
        let work = self.work(late, others);
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

    /// Ratio of the threads of a rank's kernels to the others', on average.
    fn work(&self, late: &RankRow, others: &[&RankRow]) -> f64 {
        let mean = mean(others, |other| self.threads(other));
        self.threads(late) / mean.max(1.0)
    }

    /// Whether a rank has more work than each other one, and its kernels take longer for it by a
    /// good part of what each of the others waits for it.
    fn work_explains_waiting(&self, late: &RankRow, others: &[&RankRow]) -> bool {
        let most = others.iter().map(|other| self.threads(other)).fold(0.0, f64::max);
        let kernels = longer(late, others, Account::Kernels);
        self.threads(late) >= SLOWER * most && kernels * others.len() as f64 >= EXPLAINED * late.caused_ns
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
        let loads = |stack: &HostStack| {
            stack.frames.iter().any(|frame| LOADERS.iter().any(|part| frame.frame.file.contains(part)))
        };
        let is_input = place.state == HostState::WaitsForData || place.share_of_samples(loads) > 0.5;
        let cause = if is_input { LateCause::Input } else { LateCause::HostCode };
        (cause, Some(place.to_string()))
    }
}

/// Minimum share of all waiting that is for one of so many ranks, for it to be named: half-way
/// between an even share, which ranks have that are late in turn, and all of it.
fn most_of_the_waiting(ranks: usize) -> f64 {
    0.5 + 0.5 / ranks.max(1) as f64
}

/// The same for a rank whose work explains the waiting, since that is known without the waiting:
/// half of it, and at least half-way between an even share and [`most_of_the_waiting`].
fn much_of_the_waiting(ranks: usize) -> f64 {
    let even = 1.0 / ranks.max(1) as f64;
    ((even + most_of_the_waiting(ranks)) / 2.0).max(0.5)
}

/// How much longer a rank's time in an account is than the others', on average, nanoseconds.
fn longer(late: &RankRow, others: &[&RankRow], account: Account) -> f64 {
    let time = |row: &RankRow| row.accounts.time(account).value;
    time(late) - mean(others, time)
}

fn mean(rows: &[&RankRow], of: impl Fn(&RankRow) -> f64) -> f64 {
    crate::total(rows.iter().map(|row| of(row))) / rows.len().max(1) as f64
}
