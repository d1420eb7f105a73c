//! The verdict: where the time of a session or of a part of it went, what to change, and what that
//! saves.

mod counted;
mod lasted;
mod remedy;
mod spent;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use apex_advice::Advice;
use apex_machine::Summary;
use apex_ordered::Gather;
use apex_profile::{HostProfile, HostState, Iterations, Kernel, Profile, SaturatingSum as _, total, units};

use super::machine;
use counted::{counted_first, on_cpu};
use lasted::lasted;
use remedy::{fault_of_longest, next_look, remedy, worth};
use spent::time_went;

/// A GPU that is idle for less is busy.
const IDLE: f64 = 0.25;
/// Least share that is worth a word.
pub const LEAST: f64 = 0.02;

/// Subject of a verdict.
#[derive(Clone, Debug)]
pub struct Part<'a> {
    /// The part of the run.
    pub job: &'a Profile,
    /// As a sentence names it: `each step`, `the start-up`, `the last 5 s`.
    pub name: String,
    /// The iterations of the device with the most of them, where the part consists of iterations.
    pub iterations: Option<&'a Iterations>,
    /// Steps of all devices, where the part consists of them.
    pub steps: Option<f64>,
    /// Whether the part is a window of the run.
    pub is_window: bool,
    /// Whether the whole run was searched for steps and has none.
    pub is_without_steps: bool,
    /// The kernels that alone are meant; `None` for all of them.
    pub kernels: Option<Chosen<'a>>,
    /// State of the machine meanwhile; `None` where that is not known.
    pub machine: Option<&'a Summary>,
}

/// Kernels of a part.
#[derive(Clone, Copy, Debug)]
pub struct Chosen<'a> {
    /// Their places in the profile.
    pub kernels: &'a BTreeSet<usize>,
    /// The part without launches of other kernels.
    pub profile: &'a Profile,
}

/// The verdict: what the time went into, how busy the units of a busy device were, how long it
/// took, and what to change; a sentence each, of which the last three may be missing.
pub fn sentences(part: &Part<'_>, advice: &Advice) -> Vec<String> {
    let first = match part.job.on_cpu_device() {
        // What is wrong comes before what is slow.
        true => counted_first(part.job, advice).filter(|_| part.job.defects.is_empty()),
        false => worth(advice),
    };
    let lasted = if part.kernels.is_some() || part.job.on_cpu_device() { None } else { lasted(part) };
    let first = first.or_else(|| fault_of_longest(part.job, advice));
    let remedy = first.map(|first| remedy(part, first)).or_else(|| next_look(part));
    [Some(sentence(part, advice)), units_of(part), lasted, remedy].into_iter().flatten().collect()
}

/// Use of the units of a busy device.
fn units_of(part: &Part<'_>) -> Option<String> {
    let is_shown = !part.job.on_cpu_device() && part.kernels.is_none() && keeps_busy(part.job);
    machine::busy_units(part.machine.filter(|_| is_shown)?)
}

/// Whether kernels run most of the time.
fn keeps_busy(job: &Profile) -> bool {
    let accounts = job.accounts();
    accounts.kernels.value >= (1.0 - IDLE) * accounts.span_ns
}

/// The kernel that takes most GPU time, and its share of it.
fn longest(job: &Profile) -> Option<(&Kernel, f64)> {
    let whole = job.totals.gpu_time_ns.map(|time| time.value).filter(|whole| *whole > 0.0)?;
    let timed = job.kernels.iter().filter_map(|kernel| Some((kernel, kernel.gpu_total_ns()? / whole)));
    timed.max_by(|a, b| a.1.total_cmp(&b.1))
}

/// The first sentence of the verdict.
pub fn sentence(part: &Part<'_>, advice: &Advice) -> String {
    if let Some(host) = &part.job.host {
        return of_host(part.job, host);
    }
    match &part.kernels {
        Some(kernels) => of_kernels(part, kernels),
        None if part.job.on_cpu_device() => on_cpu(part, counted_first(part.job, advice)),
        None => time_went(part, advice),
    }
}

/// The verdict on a session of `apex attach`: what its threads did.
fn of_host(job: &Profile, host: &HostProfile) -> String {
    let running = host.running_ns();
    if host.threads.is_empty() {
        return "No thread of the process was sampled; its launches are not seen.".to_owned();
    }
    let places = job.host_places(|one| one.state == HostState::Running);
    let most = places.first().filter(|_| running > 0.0);
    let most = most.map_or_else(String::new, |(place, ns)| {
        format!(", {} of that at {place}", units::share(ns / running))
    });
    let threads = running / host.span_ns.max(1.0);
    format!("On average {threads:.2} threads ran or were ready to run{most}; launches are not seen.")
}

/// The share of the chosen kernels in the launches and the GPU time.
fn of_kernels(part: &Part<'_>, chosen: &Chosen<'_>) -> String {
    let (all, Chosen { kernels, profile }) = (part.job, *chosen);
    let launched = all.kernels.iter().filter(|kernel| kernel.launches.any()).count();
    let ran: u64 = profile.kernels.iter().map(|kernel| kernel.launches.ran()).saturating_sum();
    let launches = format!("{} of {}", units::count(ran), launches(all));
    let who = match kernels.iter().next().filter(|_| kernels.len() == 1) {
        Some(&one) => format!("`{}`", all.kernels[one].short_name),
        None => format!("{} of {launched} kernels", kernels.len()),
    };
    let whole = all.totals.gpu_time_ns.map_or(0.0, |time| time.value);
    let own = total(profile.kernels.iter().filter_map(apex_profile::Kernel::gpu_total_ns));
    if all.on_cpu_device() || whole <= 0.0 {
        return format!("{who}: {launches}.");
    }
    format!(
        "{who}: {} of the kernels' time ({}ᵐ), in {launches}.",
        units::share(own / whole),
        units::time(own)
    )
}

/// How many kernels ran: `3 launches`, or `at least 3 launches` where nobody knows how often the
/// device ran the bodies of conditional nodes.
pub fn launches(profile: &Profile) -> String {
    let least = if profile.uncounted_nodes() > 0 { "at least " } else { "" };
    format!("{least}{}", units::counted(profile.totals.kernels_run(), "launch", "launches"))
}

/// The parts of a job whose accounts are added, if there are several: `2 ranks`, `3 processes`,
/// `4 GPUs`.
pub fn together(job: &Profile) -> Option<String> {
    let used = || job.activities.iter().filter(|activity| activity.accounts.span_ns > 0.0);
    let count = used().count();
    let processes: BTreeSet<usize> = used().map(|activity| activity.process).gathered();
    let is_ranked =
        |&process: &usize| job.processes.get(process).is_some_and(|process| process.rank.is_some());
    let what = match (processes.len() == count, processes.iter().all(is_ranked)) {
        (false, _) => "GPUs",
        (true, true) => "ranks",
        (true, false) => "processes",
    };
    (count > 1).then(|| format!("{count} {what}"))
}

/// With a capital letter, as at the beginning of a sentence.
pub(super) fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// The kind of record that a session without launches lacks, and why, to follow `No`.
pub fn what_is_missing(profile: &Profile) -> String {
    let recorder = &profile.recorder;
    let is_unreadable =
        profile.processes.is_empty() && recorder.problems.iter().any(|problem| problem.contains(".rec: "));
    match recorder.lost() {
        0 if is_unreadable => "known launch: the records cannot be read".to_owned(),
        0 => "kernel was launched".to_owned(),
        lost => format!("known launch: {} lost", units::counted(lost, "record was", "records were")),
    }
}
