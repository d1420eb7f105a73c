//! The conditions of each rule, judged on one look at a session.

use crate::rule::{Limits, Rule};
use crate::subject::Subject;
use crate::tracker::Verdict;
use apex_advice::Steps;
use apex_live::Snapshot;
use apex_machine::{Quantity, Readings, Summary};
use apex_ordered::Gather;
use apex_profile::units;
use apex_profile::{Activity, Figure, Profile, device_uuid};
use apex_untrusted::printable;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A condition is over below this share of its limit, and unclear between the two.
const MARGIN: f64 = 0.5;
/// An idle device is busy again below this much of the limit: half of it would be a device that is
/// hardly idle.
const IDLE_MARGIN: f64 = 0.8;

/// The part of a snapshot that the conditions judge.
#[derive(Clone, Debug)]
pub struct View<'a> {
    /// The profile of the last seconds.
    pub profile: &'a Profile,
    /// These seconds, in nanoseconds since the session's start.
    pub window: Range<u64>,
    /// The devices on which running processes have launched work since its start, by UUID, with
    /// these processes' identifiers.
    pub used: BTreeMap<String, BTreeSet<u32>>,
    /// NVML's readings of these devices in these seconds, by UUID; empty without NVML.
    pub readings: BTreeMap<String, Readings>,
    /// Records that were lost since its start because space was missing.
    pub dropped: u64,
}

impl<'a> From<&'a Snapshot> for View<'a> {
    fn from(snapshot: &'a Snapshot) -> Self {
        let dropped = snapshot.session.processes.iter().map(|process| process.dropped);
        let used = used(snapshot);
        let summary = Summary::of(&snapshot.machine, used.keys().map(String::as_str));
        let devices = summary.into_iter().flat_map(|summary| summary.devices);
        let readings = devices.map(|device| (device.device.uuid, device.readings));
        Self {
            profile: &snapshot.profile,
            window: snapshot.window.clone(),
            readings: readings.collect(),
            used,
            dropped: dropped.fold(0, u64::saturating_add),
        }
    }
}

/// The devices that the processes which run have launched work on.
fn used(snapshot: &Snapshot) -> BTreeMap<String, BTreeSet<u32>> {
    let mut used: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
    for process in &snapshot.session.processes {
        let (definitions, totals) = (&process.definitions, &process.totals);
        if !snapshot.running.contains(&process.pid) {
            continue;
        }
        let launched = definitions.configs().filter(|config| totals.launches_of(config.id) > 0);
        let contexts: BTreeSet<u32> = launched.map(|config| config.context).gathered();
        for context in contexts.into_iter().filter_map(|context| definitions.context(context)) {
            if let Some(device) = definitions.device(context.device) {
                used.entry(device_uuid(&device.uuid)).or_default().insert(process.pid);
            }
        }
    }
    used
}

/// A good run, to compare with.
#[derive(Clone, Debug)]
pub struct Reference {
    /// Its name, as a command takes it.
    pub name: String,
    steps: Option<Steps>,
    occupancy: Option<f64>,
}

impl Reference {
    /// A run by its profile.
    pub fn of(name: String, profile: &Profile) -> Self {
        Self { name, steps: Steps::of(profile), occupancy: occupancy(profile) }
    }

    /// Whether it says how long a step takes.
    pub fn has_steps(&self) -> bool {
        self.steps.is_some()
    }
}

/// The state of a session that is kept from look to look.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    dropped: u64,
    /// The first occupancy that was seen.
    occupancy: Option<f64>,
}

/// A condition at one look.
#[derive(Debug)]
pub(crate) struct Observed {
    pub rule: Rule,
    pub subject: Subject,
    pub verdict: Verdict,
    /// The finding, if the condition holds.
    pub finding: Option<Finding>,
}

/// A value that breaks a rule.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    /// A clause whose subject is not the session: `a step takes …`.
    pub what: String,
    /// The value that was judged, and what it was compared with; their unit is the rule's.
    pub value: Figure,
    pub reference: Option<Figure>,
    /// The command that shows more.
    pub next: Next,
}

/// The command that goes on from a finding.
#[derive(Clone, Debug)]
pub(crate) enum Next {
    /// Compare with this session.
    Diff(String),
    /// Ask for advice on the time since it began.
    Advise,
    /// Look at a rank.
    Rank(usize),
    /// Look at what the machine did.
    Report,
    /// Record the next run with a limit on its size.
    LimitSize,
}

impl Observed {
    fn new(rule: Rule, subject: Subject, verdict: Verdict, finding: impl FnOnce() -> Finding) -> Self {
        let finding = (verdict == Verdict::Holds).then(finding);
        Self { rule, subject, verdict, finding }
    }

    fn unclear(rule: Rule, subject: Subject) -> Self {
        Self { rule, subject, verdict: Verdict::Unclear, finding: None }
    }
}

/// All conditions that can be judged, but those of rules that are off. A condition that could be
/// judged before and is missing here is over.
pub(crate) fn observe(
    view: &View<'_>,
    reference: Option<&Reference>,
    limits: &Limits,
    memory: &mut Memory,
) -> Vec<Observed> {
    let mut observed = Vec::new();
    if let Some(limit) = limits.of(Rule::Slower) {
        observed.extend(slower(view, reference, limit));
    }
    if let Some(limit) = limits.of(Rule::Occupancy) {
        observed.extend(occupancy_fell(view, reference, limit, memory));
    }
    if let Some(limit) = limits.of(Rule::Straggler) {
        observed.extend(straggler(view.profile, limit));
    }
    if let Some(limit) = limits.of(Rule::Idle) {
        observed.extend(idle(view, limit));
    }
    if limits.of(Rule::LostRecords).is_some() {
        observed.extend(lost_records(view, memory));
    }
    if let Some(limit) = limits.of(Rule::PowerCapped) {
        observed.extend(view.used.keys().map(|uuid| power_capped(uuid, view.readings.get(uuid), limit)));
    }
    observed
}

fn slower(view: &View<'_>, reference: Option<&Reference>, limit: f64) -> Option<Observed> {
    let reference = reference?;
    let before = reference.steps?;
    let change = Steps::of(view.profile).and_then(|after| Steps::compare(&before, &after));
    let judged = change.filter(|change| change.significant.is_some());
    let Some((after, change)) = judged.and_then(|change| Some((change.after?, change))) else {
        return Some(Observed::unclear(Rule::Slower, Subject::Session));
    };
    let verdict = if change.rose_above(1.0 + limit) {
        Verdict::Holds
    } else if change.rose_above(1.0 + MARGIN * limit) {
        Verdict::Unclear
    } else {
        Verdict::Over
    };
    Some(Observed::new(Rule::Slower, Subject::Session, verdict, || Finding {
        what: format!(
            "a step takes {} instead of {} in {} ({} longer; means of {} and {} steps)",
            units::time(after.value),
            units::time(before.mean_ns.value),
            printable(&reference.name),
            units::percent(change.ratio.unwrap_or(1.0) - 1.0),
            units::count(after.samples),
            units::count(before.count),
        ),
        value: after,
        reference: Some(before.mean_ns),
        next: Next::Diff(reference.name.clone()),
    }))
}

/// Theoretical occupancy of what runs, weighted by GPU time; `None` where nothing was timed.
fn occupancy(profile: &Profile) -> Option<f64> {
    let (mut weighted, mut time) = (0.0, 0.0);
    for kernel in &profile.kernels {
        if let (Some(geometry), Some(ns)) = (kernel.geometry, kernel.gpu_total_ns()) {
            weighted += geometry.occupancy.fraction() * ns;
            time += ns;
        }
    }
    (time > 0.0).then(|| weighted / time)
}

fn occupancy_fell(
    view: &View<'_>,
    reference: Option<&Reference>,
    limit: f64,
    memory: &mut Memory,
) -> Option<Observed> {
    let now = occupancy(view.profile);
    memory.occupancy = memory.occupancy.or(now);
    let own = memory.occupancy?;
    let of_run = reference.and_then(|reference| Some((reference.occupancy?, reference)));
    let before = of_run.map_or(own, |(occupancy, _)| occupancy);
    let Some(now) = now else {
        return Some(Observed::unclear(Rule::Occupancy, Subject::Session));
    };
    let verdict = if now < before * (1.0 - limit) {
        Verdict::Holds
    } else if now < before * (1.0 - MARGIN * limit) {
        Verdict::Unclear
    } else {
        Verdict::Over
    };
    let place = of_run.map_or_else(
        || "when it was first looked at".to_owned(),
        |(_, reference)| format!("in {}", printable(&reference.name)),
    );
    Some(Observed::new(Rule::Occupancy, Subject::Session, verdict, || Finding {
        what: format!(
            "kernels have a theoretical occupancy of {} instead of {} {place} (computed, weighted by GPU time)",
            units::percent(now),
            units::percent(before),
        ),
        value: Figure::computed(now),
        reference: Some(Figure::computed(before)),
        next: of_run.map_or(Next::Advise, |(_, reference)| Next::Diff(reference.name.clone())),
    }))
}

/// Share of its time that each process waits for other ranks, of those that take part in
/// collectives.
fn waiting(profile: &Profile) -> Vec<(usize, f64)> {
    let mut sums: BTreeMap<usize, (f64, f64, f64)> = BTreeMap::new();
    for activity in &profile.activities {
        let (waits, together, span) = sums.entry(activity.process).or_default();
        *waits += activity.accounts.waiting.value;
        *together += activity.accounts.waiting.value + activity.accounts.collectives.value;
        *span += activity.accounts.span_ns;
    }
    let of_ranks = sums.into_iter().filter(|(_, (_, together, span))| *together > 0.0 && *span > 0.0);
    of_ranks.map(|(process, (waits, _, span))| (process, waits / span)).collect()
}

fn straggler(profile: &Profile, limit: f64) -> Option<Observed> {
    let shares = waiting(profile);
    let &(process, least) = shares.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
    if shares.len() < 2 {
        return None;
    }
    let others = shares.iter().map(|(_, share)| share).sum::<f64>() - least;
    let others = others / (shares.len() - 1) as f64;
    let rank = profile.processes.get(process)?.rank?;
    let verdict = if others > limit && least <= MARGIN * others {
        Verdict::Holds
    } else if others > MARGIN * limit {
        Verdict::Unclear
    } else {
        Verdict::Over
    };
    Some(Observed::new(Rule::Straggler, Subject::Rank(rank), verdict, || Finding {
        what: format!(
            "the other ranks wait {} of their time for rank {rank} (process {}), which waits {} (predicted from \
             timed launches)",
            units::percent(others),
            profile.processes[process].pid,
            units::percent(least),
        ),
        value: figure_between(others, least),
        reference: None,
        next: Next::Rank(rank),
    }))
}

/// A predicted share that is at least that of the rank that waits least, and at most all.
fn figure_between(value: f64, low: f64) -> Figure {
    Figure::predicted(value, (low, 1.0))
}

fn idle(view: &View<'_>, limit: f64) -> Vec<Observed> {
    let profile = view.profile;
    let window_ns = view.window.end.saturating_sub(view.window.start) as f64;
    let mut active: BTreeMap<&str, Vec<&Activity>> = BTreeMap::new();
    for activity in &profile.activities {
        let Some(device) = activity.device.map(|at| &profile.devices[at]) else { continue };
        active.entry(&device.uuid).or_default().push(activity);
    }
    let judged = view.used.iter().map(|(uuid, processes)| {
        let subject = Subject::Device(uuid.clone());
        match active.get(uuid.as_str()) {
            None => nothing_launched(subject, uuid, processes.len(), window_ns),
            Some(_) if profile.on_cpu_device() => {
                Observed { rule: Rule::Idle, subject, verdict: Verdict::Over, finding: None }
            }
            Some(activities) => idle_share(subject, uuid, activities, window_ns, limit),
        }
    });
    judged.collect()
}

fn nothing_launched(subject: Subject, uuid: &str, processes: usize, window_ns: f64) -> Observed {
    Observed::new(Rule::Idle, subject, Verdict::Holds, || Finding {
        what: format!(
            "nothing was launched on {uuid} in the last {}, and {} that used it {}: waiting for data, for another \
             rank, for requests, or for work that takes that long",
            units::time(window_ns),
            units::counted(processes as u64, "process", "processes"),
            if processes == 1 { "runs" } else { "run" },
        ),
        value: Figure::predicted(1.0, (0.0, 1.0)),
        reference: None,
        next: Next::Advise,
    })
}

/// The device is idle where it is for all processes that use it. What is not known of a process
/// counts as work where it must not raise an alert, and as idle where it must not end one.
fn idle_share(
    subject: Subject,
    uuid: &str,
    activities: &[&Activity],
    window_ns: f64,
    limit: f64,
) -> Observed {
    let share = |ns: f64| (ns / window_ns.max(1.0)).clamp(0.0, 1.0);
    let idle_of = |activity: &&Activity| share(activity.accounts.idle_ns().value);
    let busy_of = |activity: &&Activity| {
        let accounts = &activity.accounts;
        share(
            [accounts.kernels, accounts.collectives, accounts.waiting, accounts.copies]
                .map(|of| of.value)
                .iter()
                .sum(),
        )
    };
    let least = (activities.iter().map(idle_of).sum::<f64>() - (activities.len() - 1) as f64).max(0.0);
    let most = 1.0 - activities.iter().map(busy_of).fold(0.0, f64::max);
    let verdict = if least > limit {
        Verdict::Holds
    } else if most < IDLE_MARGIN * limit {
        Verdict::Over
    } else {
        Verdict::Unclear
    };
    Observed::new(Rule::Idle, subject, verdict, || Finding {
        what: format!(
            "{uuid} was idle for {} of the last {} (predicted from timed launches)",
            units::percent_between(least, least, most),
            units::time(window_ns),
        ),
        value: Figure::predicted(least, (least, most)),
        reference: None,
        next: Next::Advise,
    })
}

fn lost_records(view: &View<'_>, memory: &mut Memory) -> Option<Observed> {
    let before = std::mem::replace(&mut memory.dropped, view.dropped);
    let new = view.dropped.saturating_sub(before);
    let verdict = if new > 0 { Verdict::Holds } else { Verdict::Over };
    (view.dropped > 0).then(|| {
        Observed::new(Rule::LostRecords, Subject::Session, verdict, || Finding {
            what: format!(
                "{} lost for want of space ({} since its start, measured)",
                units::counted(new, "record was", "records were"),
                units::count(view.dropped),
            ),
            value: Figure::measured(new as f64),
            reference: None,
            next: Next::LimitSize,
        })
    })
}

fn power_capped(uuid: &str, readings: Option<&Readings>, limit: f64) -> Observed {
    let subject = Subject::Device(uuid.to_owned());
    let mean = |quantity| Some(readings?.get(quantity)?.mean);
    let Some(share) = mean(Quantity::PowerCapped) else {
        return Observed::unclear(Rule::PowerCapped, subject);
    };
    let verdict = if share > limit {
        Verdict::Holds
    } else if share > MARGIN * limit {
        Verdict::Unclear
    } else {
        Verdict::Over
    };
    let power = mean(Quantity::Power).zip(mean(Quantity::PowerLimit));
    let power = power.map_or_else(String::new, |(power, most)| format!("; {power:.0} W of {most:.0} W"));
    Observed::new(Rule::PowerCapped, subject, verdict, || Finding {
        what: format!(
            "{uuid} lowered its clocks for its power limit {} of the time (measured{power})",
            units::percent(share),
        ),
        value: Figure::measured(share),
        reference: None,
        next: Next::Report,
    })
}

#[cfg(test)]
mod tests;
