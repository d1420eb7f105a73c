//! The aggregate of a session.

use crate::identity::Identity;
use apex_advice::{Advice, Severity};
use apex_aggregate::{
    Aggregate, Device, End, Finding, Kernel, Kernels, Kind, MOST_BYTES, MOST_COMMAND, MOST_DEVICES,
    MOST_FINDINGS, MOST_KERNELS, MOST_US, MOST_USES, Metered, Reading, Step, Times, Use, shortened,
};
use apex_conventions::cpu_device;
use apex_conventions::documents::AGGREGATE;
use apex_energy::Estimate;
use apex_machine::energy::{Counter, Joules, idle_watts};
use apex_machine::{Machine, Readings, Summary};
use apex_profile::{Accounts, Figure, IdleCause, Profile};
use apex_trace::meta::{Exit, Meta};
use apex_view::Loaded;
use std::collections::BTreeMap;

/// Readings of the machine that are told.
const READINGS: usize = 64;

/// The aggregate of a session up to a moment, nanoseconds since 1970. Its times are those of the
/// whole run, as the accounts of `apex report --phase all` have them.
pub fn aggregate(loaded: &Loaded, advice: &Advice, of: &Identity, sequence: u64, now_ns: u64) -> Aggregate {
    let (profile, meta) = (&loaded.profile, loaded.session.meta.as_ref());
    let started_ns = meta.map_or(now_ns, |meta| meta.started_real_ns);
    let as_of_ns = meta.and_then(|meta| meta.ended_real_ns).unwrap_or(now_ns);
    let wall_us = as_of_ns.saturating_sub(started_ns) / 1000;
    let mut uses = uses(profile, of, wall_us.min(MOST_US));
    let mut other_uses = Times::default();
    uses.drain(MOST_USES.min(uses.len())..).for_each(|used| other_uses.add(&used.times));
    let made = Aggregate {
        schema: AGGREGATE.to_string(),
        apex_version: env!("CARGO_PKG_VERSION").to_owned(),
        recording: of.recording.clone(),
        sequence,
        job: of.job.clone(),
        owner: of.owner.clone(),
        host: meta.map_or(String::new(), |meta| shortened(&meta.host.name)),
        command: meta.map_or_else(Vec::new, command),
        code_version: of.code_version.clone(),
        session: shortened(&loaded.session.dir.to_string_lossy()),
        started_ns,
        as_of_ns,
        ended: meta.and_then(ended),
        // What the CPU device runs uses no GPU, whatever was given.
        allocation: of.allocation.clone().filter(|_| !is_on_cpu(profile)),
        devices: devices(loaded),
        uses,
        other_uses,
        kernels: kernels(profile),
        findings: findings(advice),
        step: step(profile),
        machine: loaded.machine_summary().as_ref().map_or_else(Vec::new, readings),
        peak_memory_bytes: profile.memory.iter().map(|memory| memory.peak_bytes).max().unwrap_or(0),
        lost_records: profile.recorder.lost(),
    };
    fitted(made)
}

/// The message without what texts say, if they make it too large: each of their characters may take
/// six bytes.
fn fitted(mut made: Aggregate) -> Aggregate {
    if made.to_bytes().len() > MOST_BYTES {
        made.command.truncate(1);
        made.findings.clear();
    }
    made
}

fn command(meta: &Meta) -> Vec<String> {
    meta.command.iter().take(MOST_COMMAND).map(|word| shortened(word)).collect()
}

fn ended(meta: &Meta) -> Option<End> {
    let exit = meta.exit?;
    let (status, signal) = match exit {
        Exit::Code(status) => (Some(status), None),
        Exit::Signal(signal) => (None, Some(signal)),
    };
    Some(End { at_ns: meta.ended_real_ns.unwrap_or(0), status, signal })
}

fn devices(loaded: &Loaded) -> Vec<Device> {
    let of = |device: &apex_profile::Device| Device {
        name: shortened(&device.name),
        uuid: shortened(&device.uuid),
        kind: if cpu_device::is(&device.name) { Kind::Cpu } else { Kind::Gpu },
        energy: energy(&loaded.machine, &device.uuid),
    };
    loaded.profile.devices.iter().take(MOST_DEVICES).map(of).collect()
}

/// The energy of a device over the recording; `None` if no counter tells, or if it moved too seldom
/// to say.
fn energy(machine: &Machine, uuid: &str) -> Option<Metered> {
    let (own, is_joined) = machine.devices_of([uuid]);
    let index = own.first().copied().filter(|_| is_joined)?;
    let Joules { value, low, high, ns } = Counter::of(machine, index)?.between(0, u64::MAX)?;
    let thousandths = |of: f64| (of * 1000.0).round().max(0.0) as u64;
    let idle_mw = idle_watts(machine, index).map(thousandths);
    let is_resolved = Estimate { value, low, high }.is_resolved();
    is_resolved.then(|| Metered { mj: thousandths(value), us: ns / 1000, idle_mw })
}

fn is_on_cpu(profile: &Profile) -> bool {
    profile.devices.iter().any(|device| cpu_device::is(&device.name))
}

/// Whole microseconds of a time. What is negative, by a model's rounding, is none.
fn us(time: Figure) -> u64 {
    ns_to_us(time.value)
}

fn ns_to_us(ns: f64) -> u64 {
    (ns / 1000.0).round().clamp(0.0, MOST_US as f64) as u64
}

fn times(accounts: &Accounts) -> Times {
    let idle = |cause| accounts.idle.get(&cause).copied().map_or(0, us);
    Times {
        kernels_us: us(accounts.kernels),
        collectives_us: us(accounts.collectives),
        waiting_us: us(accounts.waiting),
        copies_us: us(accounts.copies),
        idle_us: std::array::from_fn(|at| idle(IdleCause::ALL[at])),
        // (A run records its calls: an import is not sent to a hub.)
        unknown_us: us(accounts.unknown).saturating_add(idle(IdleCause::Unrecorded)),
        outside_us: 0,
    }
}

/// The uses of devices. A device is held as long as the recording runs: what is before its first
/// work and after its last is told of the first use of it.
fn uses(profile: &Profile, of: &Identity, wall_us: u64) -> Vec<Use> {
    let rank = |process: usize| match of.job.rank {
        None => profile.processes.get(process).and_then(|process| u32::try_from(process.rank?).ok()),
        rank => rank,
    };
    let used = |activity: &apex_profile::Activity| Use {
        rank: rank(activity.process),
        pid: profile.processes.get(activity.process).map_or(0, |process| process.pid),
        device: activity.device.filter(|&device| device < MOST_DEVICES).map(|device| device as u32),
        launches: activity.launches,
        times: times(&activity.accounts),
    };
    let mut uses: Vec<Use> = profile.activities.iter().map(used).collect();
    let mut spans: BTreeMap<Option<u32>, (usize, u64)> = BTreeMap::new();
    for (at, used) in uses.iter().enumerate() {
        let (_, span) = spans.entry(used.device).or_insert((at, 0));
        *span = span.saturating_add(used.times.held_us());
    }
    for (at, span) in spans.into_values() {
        uses[at].times.outside_us = wall_us.saturating_sub(span);
    }
    uses
}

fn kernels(profile: &Profile) -> Kernels {
    let mut functions: BTreeMap<&str, (u64, f64)> = BTreeMap::new();
    for kernel in &profile.kernels {
        let (launches, ns) = functions.entry(&kernel.short_name).or_default();
        *launches = launches.saturating_add(kernel.launches.ran());
        *ns += kernel.gpu_total_ns().unwrap_or(0.0);
    }
    let of = |(name, (launches, ns)): (&str, (u64, f64))| Kernel {
        name: shortened(name),
        launches,
        gpu_us: ns_to_us(ns),
    };
    let mut listed: Vec<Kernel> =
        functions.into_iter().map(of).filter(|kernel| kernel.launches > 0).collect();
    listed.sort_by_key(|kernel| std::cmp::Reverse((kernel.gpu_us, kernel.launches)));
    let rest = listed.split_off(MOST_KERNELS.min(listed.len()));
    let others = Kernel {
        name: String::new(),
        launches: rest.iter().map(|kernel| kernel.launches).fold(0, u64::saturating_add),
        gpu_us: rest.iter().map(|kernel| kernel.gpu_us).fold(0, u64::saturating_add).min(MOST_US),
    };
    Kernels { listed, others, timed: profile.totals.gpu_time_ns.is_some() }
}

fn findings(advice: &Advice) -> Vec<Finding> {
    let severity = |severity| match severity {
        Severity::Info => "info",
        Severity::Low => "low",
        Severity::Medium => "medium",
        Severity::High => "high",
    };
    let of = |finding: &apex_advice::Finding| Finding {
        rule: shortened(&finding.rule),
        title: shortened(&finding.title),
        remedy: shortened(&finding.remedy),
        severity: severity(finding.severity).to_owned(),
        saving: finding.saving.of_job.map(|share| {
            let (low, high) = share.bounds();
            [share.value, low, high]
        }),
    };
    advice.findings.iter().take(MOST_FINDINGS).map(of).collect()
}

/// The step of the use that takes longest.
fn step(profile: &Profile) -> Option<Step> {
    let steady = profile.activities.iter().filter(|activity| activity.iterations.is_some());
    let longest = steady.max_by(|a, b| a.span_ns.total_cmp(&b.span_ns))?;
    let iterations = longest.iterations.as_ref()?;
    let (low_ns, high_ns) = iterations.step_ns.bounds();
    Some(Step { ns: iterations.step_ns.value, low_ns, high_ns, count: iterations.count })
}

fn readings(summary: &Summary) -> Vec<Reading> {
    let of = |device: Option<u32>, uuid: &str, readings: &Readings| {
        let reading = |(quantity, span): (apex_machine::Quantity, apex_machine::Span)| Reading {
            device,
            uuid: shortened(uuid),
            name: quantity.key().to_owned(),
            mean: span.mean,
            most: span.most,
        };
        readings.iter().map(reading).collect::<Vec<_>>()
    };
    let host = of(None, "", &summary.host);
    let of_device = |device: &apex_machine::DeviceSummary| {
        of(u32::try_from(device.index).ok(), &device.device.uuid, &device.readings)
    };
    let devices = summary.devices.iter().flat_map(of_device);
    host.into_iter().chain(devices).take(READINGS).collect()
}
