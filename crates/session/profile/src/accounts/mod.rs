//! Accounts of a device's time: every nanosecond between its first and its last work belongs to
//! exactly one account.
//!
//! A session contains no GPU clock. The time line of the device is therefore *modelled* by
//! simulating the queue of each stream ([`timeline`]): work starts when its call has returned and
//! the previous work is done, and takes the measured time of the launch or of its kernel. The
//! host's observations correct the model: after a call that waited, the queue was empty; a long
//! wait shows that the queue was full until then. Idle time is attributed to the host's activity
//! during it ([`host`]).
//!
//! If the duration of a kernel is unknown, the device may be busy or idle: that time is reported as
//! *unknown*.
//!
//! Invariants: the accounts of a phase add up to its span and the phases to the device's span, to
//! the nanosecond; none is negative. The model runs three times, with the mean, the shortest and
//! the longest plausible durations; an account's interval spans the three results.

mod host;
mod idle_samples;
mod ledger;
mod over_time;
mod phases;
mod timeline;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::figure::Figure;
use crate::profile::{CopyDirection, Sizes};
use crate::sketch::Distribution;
use apex_trace::layout::CallClass;

pub(crate) use idle_samples::{
    IdleAccount, IdleSampler, SampledSpan, SampledThread, SampledThreads, StackOf, Sum as IdleSum,
};
pub(crate) use ledger::Boundaries;
pub use ledger::Use;
pub use over_time::OverTime;
pub(crate) use phases::{Launched, Loop};
pub(crate) use timeline::{Model, NewWork, Queued, Seen, Timeline, Work};

/// The samples of each idle account of a device.
pub(crate) type IdleSums = BTreeMap<IdleAccount, IdleSum>;

/// The host's activity while the device was idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum IdleCause {
    /// It was in launch calls.
    Launching,
    /// It allocated or freed memory.
    Allocating,
    /// It was in calls that copy or set memory.
    Transferring,
    /// It synchronised with work that was already done, or was returning from a synchronisation.
    Synchronising,
    /// It loaded or unloaded code, including at the first launch of a kernel.
    Loading,
    /// It captured, instantiated or changed graphs.
    Capturing,
    /// It was in other driver calls.
    OtherCalls,
    /// It ran its own code.
    HostCode,
    /// None of its calls was recorded: a trace of another profiler has the device's work alone.
    Unrecorded,
}

impl IdleCause {
    /// All causes.
    pub const ALL: [Self; 9] = [
        Self::Launching,
        Self::Allocating,
        Self::Transferring,
        Self::Synchronising,
        Self::Loading,
        Self::Capturing,
        Self::OtherCalls,
        Self::HostCode,
        Self::Unrecorded,
    ];

    /// Name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Launching => "launch calls",
            Self::Allocating => "allocating and freeing",
            Self::Transferring => "copying and setting memory",
            Self::Synchronising => "synchronising",
            Self::Loading => "loading code",
            Self::Capturing => "capturing graphs",
            Self::OtherCalls => "other driver calls",
            Self::HostCode => "the program's own code",
            Self::Unrecorded => "something that was not recorded",
        }
    }
}

/// The accounts of a device, nanoseconds. They add up to [`Self::span_ns`].
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Accounts {
    /// The accounted time.
    pub span_ns: f64,
    /// Kernels run, except those of collectives.
    pub kernels: Figure,
    /// Collectives (NCCL) run, and no other kernel: exposed communication.
    pub collectives: Figure,
    /// The part of the time in collectives in which this rank waits for another one: the same
    /// collectives take less time on that rank.
    pub waiting: Figure,
    /// The device copies or sets memory, and no kernel runs. The duration of a copy is estimated
    /// from its bytes.
    pub copies: Figure,
    /// The device is idle, by the host's activity.
    pub idle: BTreeMap<IdleCause, Figure>,
    /// The pauses: a part of the idle time in host code.
    pub pauses: Pauses,
    /// Kernels may or may not run, because their durations are unknown.
    pub unknown: Figure,
}

/// Stretches of idle time in which the host runs its own code for at least [`Pauses::LEAST_NS`] and
/// makes no driver call. They are too long to be slow launching.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Pauses {
    /// Number of pauses.
    pub count: u64,
    /// Sum of their durations, nanoseconds.
    pub time: Figure,
}

impl Pauses {
    /// Minimum duration of a pause. Frameworks need some 10 µs for a launch, at most some 100 µs.
    pub const LEAST_NS: u64 = 1_000_000;
}

/// An account by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Account {
    /// See [`Accounts::kernels`].
    Kernels,
    /// See [`Accounts::collectives`].
    Collectives,
    /// See [`Accounts::waiting`].
    Waiting,
    /// See [`Accounts::copies`].
    Copies,
    /// See [`Accounts::unknown`].
    Unknown,
    /// See [`Accounts::idle`]. Documents name its cause.
    #[serde(untagged)]
    Idle(IdleCause),
}

impl Account {
    /// All accounts, in the order of reports.
    pub const ALL: [Self; 14] = [
        Self::Kernels,
        Self::Collectives,
        Self::Waiting,
        Self::Copies,
        Self::Idle(IdleCause::Launching),
        Self::Idle(IdleCause::Allocating),
        Self::Idle(IdleCause::Transferring),
        Self::Idle(IdleCause::Synchronising),
        Self::Idle(IdleCause::Loading),
        Self::Idle(IdleCause::Capturing),
        Self::Idle(IdleCause::OtherCalls),
        Self::Idle(IdleCause::HostCode),
        Self::Idle(IdleCause::Unrecorded),
        Self::Unknown,
    ];

    /// Name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kernels => "kernels",
            Self::Collectives => "collectives",
            Self::Waiting => "waiting for another rank",
            Self::Copies => "copies",
            Self::Idle(IdleCause::HostCode) => "idle: host code",
            Self::Idle(IdleCause::Launching) => "idle: launch calls",
            Self::Idle(IdleCause::Allocating) => "idle: allocation",
            Self::Idle(IdleCause::Transferring) => "idle: copy calls",
            Self::Idle(IdleCause::Synchronising) => "idle: synchronising",
            Self::Idle(IdleCause::Loading) => "idle: loading code",
            Self::Idle(IdleCause::Capturing) => "idle: graph capture",
            Self::Idle(IdleCause::OtherCalls) => "idle: other calls",
            Self::Idle(IdleCause::Unrecorded) => "idle: cause unknown",
            Self::Unknown => "unknown",
        }
    }
}

impl Accounts {
    /// The time of an account.
    pub fn time(&self, account: Account) -> Figure {
        match account {
            Account::Kernels => self.kernels,
            Account::Collectives => self.collectives,
            Account::Waiting => self.waiting,
            Account::Copies => self.copies,
            Account::Idle(cause) => self.idle.get(&cause).copied().unwrap_or_default(),
            Account::Unknown => self.unknown,
        }
    }

    /// All accounts with time: busy, idle, unknown.
    pub fn entries(&self) -> Vec<(Account, Figure)> {
        let all = Account::ALL.into_iter().map(|account| (account, self.time(account)));
        all.filter(|(_, time)| time.value > 0.0).collect()
    }

    /// Time in which the device is idle.
    pub fn idle_ns(&self) -> Figure {
        Figure::sum(self.idle.values().copied()).unwrap_or_default()
    }

    /// Share of the span that is unknown.
    pub fn unknown_share(&self) -> f64 {
        if self.span_ns > 0.0 { self.unknown.value / self.span_ns } else { 0.0 }
    }

    /// Moves a share of the time in collectives to [`Self::waiting`].
    pub(crate) fn wait_for_share(&mut self, share: f64) {
        let whole = self.collectives;
        let waited = (whole.value * share).round();
        self.waiting = Figure::predicted(waited, whole.scaled(share).bounds());
        self.collectives = Figure::predicted(whole.value - waited, whole.scaled(1.0 - share).bounds());
    }

    /// Adds other accounts, of another device or phase.
    pub fn add(&mut self, other: &Self) {
        let sum = |a: Figure, b: Figure| Figure::sum([a, b]).unwrap_or(a);
        self.span_ns += other.span_ns;
        self.kernels = sum(self.kernels, other.kernels);
        self.collectives = sum(self.collectives, other.collectives);
        self.waiting = sum(self.waiting, other.waiting);
        self.copies = sum(self.copies, other.copies);
        self.pauses.count = self.pauses.count.saturating_add(other.pauses.count);
        self.pauses.time = sum(self.pauses.time, other.pauses.time);
        self.unknown = sum(self.unknown, other.unknown);
        for (&cause, &time) in &other.idle {
            let entry = self.idle.entry(cause).or_default();
            *entry = sum(*entry, time);
        }
    }
}

/// A phase of a program's run, derived from the repetition of its launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PhaseKind {
    /// Before the first iteration.
    Startup,
    /// The first iterations, which are slower than later ones.
    Warmup,
    /// The remaining iterations.
    Steady,
    /// Between iterations, with other launches, for instance evaluation.
    Between,
    /// After the last iteration.
    End,
    /// The whole run, because no repetition was found.
    Whole,
}

impl PhaseKind {
    /// All phases, in the order of time.
    pub const ALL: [Self; 6] =
        [Self::Startup, Self::Warmup, Self::Steady, Self::Between, Self::End, Self::Whole];

    /// Name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Startup => "start-up",
            Self::Warmup => "warm-up",
            Self::Steady => "steady state",
            Self::Between => "between iterations",
            Self::End => "end",
            Self::Whole => "whole run",
        }
    }
}

/// A phase of a device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Phase {
    /// Kind of phase.
    pub kind: PhaseKind,
    /// Its accounts, from the time when the device begins the phase's first work; empty if the
    /// device has not begun any.
    pub accounts: Accounts,
    /// Launch calls and graph launches of the phase that ran.
    pub launches: u64,
    /// The kernels that launch calls launched in it: index into [`crate::Profile::kernels`], and
    /// number of launches.
    pub kernels: Vec<(usize, u64)>,
    /// Graphs that were launched in it: identifier in the process, and how often.
    pub graphs: Vec<(u32, u64)>,
    /// Other calls of the process in it, by CPU time.
    pub calls: Vec<PhaseCall>,
}

/// Successful calls of one kind in one phase.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PhaseCall {
    /// Name of the entry point.
    pub name: String,
    /// Class of call; `None` for a class that this version does not know.
    #[serde(with = "crate::profile::serde_layout::call_class")]
    pub class: Option<CallClass>,
    /// Direction of a copy; `None` for other calls.
    pub direction: Option<CopyDirection>,
    /// Whether the copied host memory is pageable.
    pub pageable: bool,
    /// Whether the call is asynchronous.
    pub asynchronous: bool,
    /// The number of calls.
    pub count: u64,
    /// Bytes copied, set or allocated.
    pub bytes: u64,
    /// The sizes of the copies; empty for other calls.
    #[serde(skip)]
    pub sizes: Sizes,
    /// CPU time.
    pub cpu_ns: f64,
}

/// The iterations of the steady state.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Iterations {
    /// The number of iterations.
    pub count: u64,
    /// The mean duration of an iteration, in nanoseconds: from the start of its first work on the
    /// device to that of the next one's. Predicted by the model of the device, from as many as are
    /// the figure's samples; measured, as the mean of [`Self::duration`], where the device finished
    /// none.
    pub step_ns: Figure,
    /// Intervals from the first launch call of one to that of the next: measured. Where the host
    /// runs ahead of the device they are not what an iteration takes.
    pub duration: Distribution,
    /// Launch calls of one, on average over them.
    pub launches: f64,
    /// Iterations of the warm-up, before these.
    pub warmup: u64,
    /// Start of the first one of the steady state, nanoseconds after the process's start.
    pub start_ns: f64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Provenance;

    /// Accounts whose every entry is another number of nanoseconds, times `by`.
    fn distinct(by: f64) -> Accounts {
        let mut idle = BTreeMap::new();
        for (at, cause) in IdleCause::ALL.into_iter().enumerate() {
            idle.insert(cause, Figure::measured(by * (100.0 + at as f64)));
        }
        Accounts {
            span_ns: by * 5_000.0,
            kernels: Figure::measured(by * 1.0),
            collectives: Figure::measured(by * 2.0),
            waiting: Figure::measured(by * 4.0),
            copies: Figure::measured(by * 8.0),
            idle,
            pauses: Pauses { count: by as u64 * 3, time: Figure::measured(by * 16.0) },
            unknown: Figure::measured(by * 32.0),
        }
    }

    #[test]
    fn adding_adds_every_account_span_and_pauses() {
        let mut sum = distinct(1.0);
        sum.add(&distinct(2.0));
        assert_eq!(sum, distinct(3.0));
        let mut from_nothing = Accounts::default();
        from_nothing.add(&distinct(1.0));
        for account in Account::ALL {
            assert_eq!(from_nothing.time(account).value, distinct(1.0).time(account).value, "{account:?}");
        }
        let pauses = from_nothing.pauses;
        assert_eq!((from_nothing.span_ns, pauses.count, pauses.time.value), (5_000.0, 3, 16.0));
    }

    #[test]
    fn adding_counts_no_more_pauses_than_there_are_numbers() {
        let mut sum =
            Accounts { pauses: Pauses { count: u64::MAX, ..Pauses::default() }, ..Accounts::default() };
        sum.add(&distinct(1.0));
        assert_eq!(sum.pauses.count, u64::MAX);
    }

    #[test]
    fn an_account_has_its_own_time_and_an_absent_one_none() {
        let accounts = distinct(1.0);
        let times: Vec<f64> = Account::ALL.into_iter().map(|account| accounts.time(account).value).collect();
        assert_eq!(
            times,
            [1.0, 2.0, 4.0, 8.0, 100.0, 101.0, 102.0, 103.0, 104.0, 105.0, 106.0, 107.0, 108.0, 32.0]
        );
        assert!(Account::ALL.into_iter().all(|account| Accounts::default().time(account).value == 0.0));
    }

    #[test]
    fn entries_are_the_accounts_with_time_in_their_order() {
        let mut accounts = distinct(1.0);
        accounts.collectives = Figure::measured(0.0);
        accounts.idle.remove(&IdleCause::Loading);
        let entries: Vec<Account> = accounts.entries().into_iter().map(|(account, _)| account).collect();
        let expected = Account::ALL
            .into_iter()
            .filter(|account| !matches!(account, Account::Collectives | Account::Idle(IdleCause::Loading)));
        assert_eq!(entries, expected.collect::<Vec<_>>());
    }

    #[test]
    fn idle_time_and_the_unknown_share_are_of_all() {
        let causes = i32::try_from(IdleCause::ALL.len()).unwrap();
        assert_eq!(distinct(1.0).idle_ns().value, f64::from((100..100 + causes).sum::<i32>()));
        assert_eq!(Accounts::default().idle_ns().value, 0.0);
        assert_eq!(distinct(1.0).unknown_share(), 32.0 / 5_000.0);
        assert_eq!(Accounts { span_ns: 0.0, ..distinct(1.0) }.unknown_share(), 0.0);
    }

    #[test]
    fn waiting_is_taken_out_of_collectives_to_the_nanosecond() {
        let mut accounts =
            Accounts { collectives: Figure::predicted(1_001.0, (801.0, 1_201.0)), ..distinct(1.0) };
        accounts.wait_for_share(0.25);
        assert_eq!((accounts.waiting.value, accounts.collectives.value), (250.0, 751.0));
        assert_eq!(accounts.waiting.provenance(), Provenance::Predicted);
        assert_eq!(accounts.waiting.interval(), Some((200.25, 300.25)));
        assert_eq!(accounts.collectives.interval(), Some((600.75, 900.75)));
        accounts.wait_for_share(0.0);
        assert_eq!((accounts.waiting.value, accounts.collectives.value), (0.0, 751.0));
    }

    #[test]
    fn names_are_distinct() {
        let distinct = |names: Vec<&str>| {
            let mut sorted = names.clone();
            sorted.sort_unstable();
            sorted.dedup();
            assert!(sorted.len() == names.len() && names.iter().all(|name| name.len() > 2), "{names:?}");
        };
        distinct(Account::ALL.map(Account::name).to_vec());
        distinct(IdleCause::ALL.map(IdleCause::name).to_vec());
        distinct(PhaseKind::ALL.map(PhaseKind::name).to_vec());
    }
}
