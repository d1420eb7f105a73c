//! The accounts of the devices' time: in total, by phase, over time.

use super::Source;
use super::figure::{Figure, NAME, Spread, text};
use apex_ordered::Order;
use apex_profile::{Account, Accounts, Activity, Gap, IdleCause, OverTime, Phase, Profile};
use serde::Serialize;

/// Shares over time are written in these parts of one.
const PARTS_OF_ONE: f64 = 10_000.0;

/// The accounts of the job.
#[derive(Debug, Serialize)]
pub struct Job {
    /// `step`, `span`, or the name of the phase: what the times are of.
    of: &'static str,
    /// Divisor of the times: steps of all devices.
    steps: Option<f64>,
    span_ns: f64,
    entries: Vec<Entry>,
}

/// An account. Times are of the whole; the page divides them by steps.
#[derive(Debug, Serialize)]
struct Entry {
    id: Account,
    name: &'static str,
    group: &'static str,
    time_ns: Figure,
}

/// The devices over time.
#[derive(Debug, Serialize)]
pub struct Devices {
    list: Vec<DeviceAccounts>,
    left_out: usize,
}

/// A device, as one process used it.
#[derive(Debug, Serialize)]
struct DeviceAccounts {
    /// Index into `machine.devices`.
    device: Option<usize>,
    /// CUDA ordinal of the device in the process.
    ordinal: Option<u32>,
    pid: u32,
    rank: Option<usize>,
    /// First launch, after the session's start.
    start_ns: f64,
    span_ns: f64,
    launches: u64,
    streams: usize,
    accounts: Vec<Entry>,
    phases: Vec<PhaseAccounts>,
    iterations: Option<Steps>,
    over_time: Option<SharesOverTime>,
    gaps: Vec<LongGap>,
    long_gaps: u64,
}

/// The iterations of the steady state.
#[derive(Debug, Serialize)]
struct Steps {
    count: u64,
    /// Iterations of the warm-up, before these.
    warmup: u64,
    /// Where the first one begins, after the session's start.
    start_ns: f64,
    duration: Spread,
}

#[derive(Debug, Serialize)]
struct PhaseAccounts {
    id: apex_profile::PhaseKind,
    name: &'static str,
    launches: u64,
    span_ns: f64,
    accounts: Vec<Entry>,
}

/// Account of each part of the span.
#[derive(Debug, Serialize)]
struct SharesOverTime {
    part_ns: f64,
    lines: Vec<Line>,
}

/// The share of an account in each part, in ten thousandths.
#[derive(Debug, Serialize)]
struct Line {
    id: Account,
    shares: Vec<u32>,
}

/// A long time without work.
#[derive(Debug, Serialize)]
struct LongGap {
    /// After the session's start.
    start_ns: f64,
    duration_ns: Figure,
    /// The host's activity meanwhile for most of it.
    cause: Option<IdleCause>,
    before: Option<String>,
    after: Option<String>,
}

impl Job {
    pub fn of(source: &Source<'_>) -> Self {
        let accounts = source.job.accounts();
        let of = match (source.steps, source.phase) {
            (Some(_), _) => "step",
            (None, Some(phase)) => phase.name(),
            (None, None) => "span",
        };
        // Times of the CPU device say nothing about a GPU.
        let entries = if source.whole.on_cpu_device() { Vec::new() } else { entries(&accounts) };
        Self { of, steps: source.steps, span_ns: accounts.span_ns, entries }
    }
}

impl Devices {
    pub fn of(profile: &Profile, most: usize) -> Self {
        let mut list: Vec<DeviceAccounts> = profile
            .activities
            .iter()
            .take(most)
            .map(|activity| DeviceAccounts::of(profile, activity))
            .collect();
        list.order_by_key(|device| (device.rank, device.pid, device.device));
        Self { list, left_out: profile.activities.len().saturating_sub(most) }
    }
}

impl DeviceAccounts {
    fn of(profile: &Profile, activity: &Activity) -> Self {
        let process = profile.processes.get(activity.process);
        let started_ns = process.map_or(0.0, |process| process.start_ns);
        Self {
            device: activity.device,
            ordinal: activity.ordinal,
            pid: process.map_or(0, |process| process.pid),
            rank: process.and_then(|process| process.rank),
            start_ns: started_ns + activity.start_ns,
            span_ns: activity.span_ns,
            launches: activity.launches,
            streams: activity.streams,
            accounts: entries(&activity.accounts),
            phases: activity.phases.iter().map(PhaseAccounts::of).collect(),
            iterations: activity.iterations.as_ref().map(|found| Steps {
                count: found.count,
                warmup: found.warmup,
                start_ns: started_ns + found.start_ns,
                duration: Spread::of(&found.duration),
            }),
            over_time: activity.over_time.as_ref().map(SharesOverTime::of),
            gaps: activity.gaps.iter().map(|gap| LongGap::of(profile, gap, started_ns)).collect(),
            long_gaps: activity.long_gaps,
        }
    }
}

impl PhaseAccounts {
    fn of(phase: &Phase) -> Self {
        Self {
            id: phase.kind,
            name: phase.kind.name(),
            launches: phase.launches,
            span_ns: phase.accounts.span_ns,
            accounts: entries(&phase.accounts),
        }
    }
}

impl SharesOverTime {
    fn of(over_time: &OverTime) -> Self {
        let share = |&time: &u64| (time as f64 / over_time.part_ns * PARTS_OF_ONE).round() as u32;
        let line =
            |account| Line { id: account, shares: over_time.parts(account).iter().map(share).collect() };
        let lines =
            Account::ALL.into_iter().map(line).filter(|line| line.shares.iter().any(|&share| share > 0));
        Self { part_ns: over_time.part_ns, lines: lines.collect() }
    }
}

impl LongGap {
    fn of(profile: &Profile, gap: &Gap, started_ns: f64) -> Self {
        let name = |kernel: Option<usize>| Some(text(&profile.kernels.get(kernel?)?.short_name, NAME));
        let most = gap.by.iter().max_by(|a, b| a.1.total_cmp(b.1));
        Self {
            start_ns: started_ns + gap.start_ns,
            duration_ns: Figure::of(gap.duration_ns),
            cause: most.map(|(&cause, _)| cause),
            before: name(gap.before),
            after: name(gap.after),
        }
    }
}

/// The accounts that hold time.
fn entries(accounts: &Accounts) -> Vec<Entry> {
    let entry = |(account, time)| Entry {
        id: account,
        name: account.name(),
        group: group(account),
        time_ns: Figure::of(time),
    };
    accounts.entries().into_iter().map(entry).collect()
}

/// Whether the device does something in that time.
fn group(account: Account) -> &'static str {
    match account {
        Account::Kernels | Account::Collectives | Account::Waiting | Account::Copies => "busy",
        Account::Idle(_) => "idle",
        Account::Unknown => "unknown",
    }
}
