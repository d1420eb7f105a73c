//! Time accounted for: every nanosecond of a device between its first and its last work is in
//! exactly one account.
//!
//! The record has no clock of the GPU. The device's time line is therefore *modelled* by playing
//! the queue of each stream ([`timeline`]): work starts when its call has returned and the work
//! before it is done, and takes what was measured of it or of its kernel. What the host saw
//! corrects the model: after a call that waited, the queue was empty; a call that waited for long
//! shows that the queue was full until then. Idle time is charged to what the host did meanwhile
//! ([`host`]).
//!
//! Where nothing is known of a kernel's time, the device may be busy or idle: that time is
//! *unknown*, and shown as such.
//!
//! Invariants: accounts of a phase add up to its span and phases to the device's span, to the
//! nanosecond; none is negative. The model runs three times, with durations as they are on average,
//! as short and as long as they may be; an account's interval spans the three results.

mod host;
mod ledger;
mod over_time;
mod phases;
mod timeline;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::figure::Figure;
use crate::profile::CopyDirection;
use crate::sketch::Distribution;
use apex_trace::layout::CallClass;

pub(crate) use ledger::Boundaries;
pub use ledger::Use;
pub use over_time::OverTime;
pub(crate) use phases::{Launched, Loop};
pub(crate) use timeline::{Model, NewWork, Queued, Seen, Timeline, Work};

/// What the host did while the device was idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum IdleCause {
    /// It was in launch calls.
    Launching,
    /// It allocated or freed memory.
    Allocating,
    /// It was in calls that copy or set memory.
    Transferring,
    /// It was in synchronisations of work that was already done, or just about to return from one.
    Synchronising,
    /// It loaded or unloaded code, the first launch of a kernel included.
    Loading,
    /// It captured, instantiated or changed graphs.
    Capturing,
    /// It was in other driver calls.
    OtherCalls,
    /// It ran its own code.
    HostCode,
}

impl IdleCause {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Launching,
        Self::Allocating,
        Self::Transferring,
        Self::Synchronising,
        Self::Loading,
        Self::Capturing,
        Self::OtherCalls,
        Self::HostCode,
    ];

    /// In words.
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
        }
    }
}

/// The accounts of a device, nanoseconds. They add up to [`Self::span_ns`].
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Accounts {
    /// Time that is accounted for.
    pub span_ns: f64,
    /// Kernels run, other than those of collectives.
    pub kernels: Figure,
    /// Collectives (NCCL) run, and no other kernel: communication that nothing hides.
    pub collectives: Figure,
    /// Of the time in collectives, what the same collectives take less on another rank: this one
    /// waits for it.
    pub waiting: Figure,
    /// The device copies or sets memory, and no kernel runs. How long a copy takes is estimated
    /// from its bytes.
    pub copies: Figure,
    /// The device is idle, by what the host did meanwhile.
    pub idle: BTreeMap<IdleCause, Figure>,
    /// The part of the idle time in host code that lies in pauses.
    pub pauses: Pauses,
    /// Kernels may run or not: nothing is known of their time.
    pub unknown: Figure,
}

/// Stretches of idle time in which the host runs its own code for at least [`Pauses::LEAST_NS`] and
/// makes no driver call. Slow launching does not explain them: the host does something else.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Account {
    /// See [`Accounts::kernels`].
    Kernels,
    /// See [`Accounts::collectives`].
    Collectives,
    /// See [`Accounts::waiting`].
    Waiting,
    /// See [`Accounts::copies`].
    Copies,
    /// See [`Accounts::idle`].
    Idle(IdleCause),
    /// See [`Accounts::unknown`].
    Unknown,
}

impl Account {
    /// All of them, in the order in which reports have them.
    pub const ALL: [Self; 13] = [
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
        Self::Unknown,
    ];

    /// As tables name it.
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

    /// All accounts that hold time: busy ones, idle ones, the unknown.
    pub fn entries(&self) -> Vec<(Account, Figure)> {
        let all = Account::ALL.into_iter().map(|account| (account, self.time(account)));
        all.filter(|(_, time)| time.value > 0.0).collect()
    }

    /// Time in which the device is idle.
    pub fn idle_ns(&self) -> Figure {
        Figure::sum(self.idle.values().copied()).unwrap_or_default()
    }

    /// Idle time while the host does any of this.
    pub fn idle_during(&self, causes: &[IdleCause]) -> Figure {
        let of = causes.iter().filter_map(|cause| self.idle.get(cause).copied());
        Figure::sum(of).unwrap_or_default()
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

/// A part of a program's run, found from the repetition of its launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PhaseKind {
    /// Before the first iteration.
    Startup,
    /// First iterations, slower than later ones.
    Warmup,
    /// Iterations.
    Steady,
    /// Between iterations, with other launches than theirs: evaluation, say.
    Between,
    /// After the last iteration.
    End,
    /// The whole run: no repetition was found.
    Whole,
}

impl PhaseKind {
    /// All of them, in the order of time.
    pub const ALL: [Self; 6] =
        [Self::Startup, Self::Warmup, Self::Steady, Self::Between, Self::End, Self::Whole];

    /// In words.
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
    /// Which.
    pub kind: PhaseKind,
    /// Its accounts, of the time from when the device begins its first work; empty where the device
    /// has not begun any.
    pub accounts: Accounts,
    /// Launch calls and graph launches in it that ran.
    pub launches: u64,
    /// What was launched in it by launch calls: index into [`crate::Profile::kernels`], and how
    /// often.
    pub kernels: Vec<(usize, u64)>,
    /// Graphs that were launched in it: identifier in the process, and how often.
    pub graphs: Vec<(u32, u64)>,
    /// Other calls of the process in it, by CPU time.
    pub calls: Vec<PhaseCall>,
}

/// Calls of one sort in one phase that succeeded.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PhaseCall {
    /// Name of the entry point.
    pub name: String,
    /// What sort of call; `None` for a sort that this version does not know.
    #[serde(with = "crate::profile::serde_layout::call_class")]
    pub class: Option<CallClass>,
    /// Where a copy goes; `None` of other calls.
    pub direction: Option<CopyDirection>,
    /// Whether host memory that it copies is pageable.
    pub pageable: bool,
    /// Whether it is one of the asynchronous forms.
    pub asynchronous: bool,
    /// How many.
    pub count: u64,
    /// Bytes copied, set or allocated.
    pub bytes: u64,
    /// CPU time.
    pub cpu_ns: f64,
}

/// The iterations of the steady state.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Iterations {
    /// How many.
    pub count: u64,
    /// How long one takes on average, nanoseconds: from the start of its first work on the device
    /// to that of the next one's. Predicted by the model of the device, from as many as are the
    /// figure's samples; measured, as the mean of [`Self::duration`], where the device finished
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
